/* What larger leaves of a recipe would save of a layout's step. */
#include "planned.h"

#include <lockstep/config.h>

#include <stdio.h>

/* The step with leaves of that many sequences; 0 where the recipe does not admit them, or they do
 * not fit into memory. */
static double step_of(const struct ls_search_options *options, const struct ls_config *config,
                      int64_t leaf)
{
    static struct ls_config tried;
    static struct ls_layout layout;
    struct ls_forecast forecast;
    tried = *config;
    tried.numerics.leaf_sequences = leaf;
    const struct ls_forecast_ask ask = {.config = &tried,
                                        .layout = &layout,
                                        .cluster = options->cluster,
                                        .tokens = options->tokens,
                                        .extend = true};
    int status = ls_config_layout(&tried, 0, &layout, NULL);
    if (!status)
        status = ls_forecast_make(&ask, &forecast, NULL);
    return status || !forecast.fits ? 0 : forecast.step_s;
}

void planned_leaves(const struct ls_search_options *options, const struct ls_config *config,
                    const struct ls_layout *layout, const struct ls_forecast *f)
{
    static const double worth = 0.02; /* of a step */
    int64_t best = 0, leaf = layout->numerics.leaf_sequences, batch = config->batch.global;
    int64_t dp = layout->size[LS_AXIS_DP_REPLICATE] * layout->size[LS_AXIS_DP_SHARD];
    double best_s = f->step_s;
    if (layout->numerics.fast || dp == 1 ||
        f->exposed_s[LS_ACCOUNT_SHARD] + f->exposed_s[LS_ACCOUNT_REPLICATE] < worth * f->step_s)
        return;
    for (leaf *= 2; batch % leaf == 0 && batch / leaf >= dp; leaf *= 2) {
        double step_s = step_of(options, config, leaf);
        if (step_s <= 0 || step_s > best_s * (1 - worth))
            continue;
        best = leaf;
        best_s = step_s;
    }
    if (best)
        printf(
            "  each leaf of %ld of the batch is summed over dp: with numerics.leaf_sequences=%ld "
            "(another recipe, other bits) a step would take %.3g s, and dp could be up to %ld\n",
            (long)layout->numerics.leaf_sequences, (long)best, best_s, (long)(batch / best));
}
