/* What context parallel would give a recipe whose sequences are not cut. */
#include "planned.h"

#include <lockstep/config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Into as many tiles as are admitted: then cp may be any power of two below. 0: none. */
static int64_t tiles_most(const struct ls_search_options *options)
{
    const struct ls_config *config = options->config;
    int64_t there = options->cluster->hosts * options->cluster->accelerators;
    int64_t most = options->accelerators ? options->accelerators : there, tiles = 1;
    while (2 * tiles <= most && !ls_seq_tiles_admit(2 * tiles, config->data.sequence, 1, NULL))
        tiles *= 2;
    return tiles > 1 ? tiles : 0;
}

/* The best plan of the same search with sequences in tiles; false where there is none. */
static bool tiled_search(const struct ls_search_options *options, int64_t tiles,
                         struct ls_search_plan *plan)
{
    struct ls_config *config = malloc(sizeof *config);
    struct ls_search_options other = *options;
    struct ls_search search = {0};
    bool found = false;
    if (config) {
        *config = *options->config;
        config->numerics.seq_tiles = tiles;
        config->numerics.leaf_sequences = 1;
        other.config = config;
        other.top = 1;
        found = !ls_search_run(&other, &search, NULL);
    }
    if (found)
        *plan = search.plans[0];
    ls_search_release(&search);
    free(config);
    return found;
}

/* "numerics.seq_tiles=16": what the recipe has to say for the plan. */
static bool recipe_text(const struct ls_config *config, const struct ls_search_plan *plan,
                        char *text, size_t bytes)
{
    const char *cp = strstr(plan->keys, "parallel.cp=");
    long tiles = cp ? atol(cp + strlen("parallel.cp=")) : 1;
    bool leaves = config->numerics.leaf_sequences > 1 &&
                  ls_config_is_given(config, "numerics.leaf_sequences");
    snprintf(text, bytes, "numerics.seq_tiles=%ld%s", tiles,
             leaves ? " numerics.leaf_sequences=1" : "");
    return tiles > 1;
}

bool planned_tiles(const struct ls_search_options *options, const struct ls_forecast *best,
                   char *text, size_t bytes)
{
    static const double worth = 0.02; /* of a step */
    const struct ls_config *config = options->config;
    bool pinned = options->pinned && options->pinned("parallel.cp");
    bool enough = best && config->batch.global >= best->ranks * best->accelerators;
    int64_t tiles = config->numerics.seq_tiles > 1 || pinned ? 0 : tiles_most(options);
    struct ls_search_plan plan;
    char recipe[96];
    if (!tiles || enough || !tiled_search(options, tiles, &plan) ||
        (best && plan.forecast.step_s > best->step_s * (1 - worth)) ||
        !recipe_text(config, &plan, recipe, sizeof recipe))
        return false;
    snprintf(text, bytes, "with %s (another recipe, other bits) a step would take %.3g s: %s",
             recipe, plan.forecast.step_s, plan.keys);
    return true;
}
