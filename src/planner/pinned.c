/* Why no layout has the axes that were asked for, and what could be asked for instead. */
#include "planner/candidates.h"

enum { THREADS, PP, DP, REPLICATE, SHARD, CP, TP, AXES };

struct axes {
    const struct ls_search_options *options;
    struct ls_numerics numerics;
    int64_t accelerators, size[AXES]; /* size 0: free */
};

static const char *const names[AXES] = {
    "parallel.threads",  "parallel.pp", "parallel.dp", "parallel.dp_replicate",
    "parallel.dp_shard", "parallel.cp", "parallel.tp"};

static struct axes axes_of(const struct ls_search_options *options, int64_t accelerators)
{
    const struct ls_layout_keys *keys = &options->config->parallel;
    struct axes axes = {options,
                        ls_config_numerics(options->config),
                        accelerators,
                        {keys->threads, keys->pp, keys->dp, keys->dp_replicate, keys->dp_shard,
                         keys->cp, keys->tp}};
    for (int a = 0; a < AXES; a++)
        if (!key_pinned(options, names[a]))
            axes.size[a] = 0;
    if (!options->cluster->accelerator.is_core)
        axes.size[THREADS] = 0;
    return axes;
}

/* Whether the axis alone may have so many ranks. */
static int axis_admits(const struct axes *axes, int axis, int64_t size, struct ls_error *error)
{
    const struct ls_config *config = axes->options->config;
    const struct ls_cluster *cluster = axes->options->cluster;
    if (axis == TP)
        return ls_model_admits_tp(&config->model, &axes->numerics, size, error);
    if (axis == CP)
        return ls_cp_admits(size, axes->numerics.seq_tiles,
                            (enum ls_cp_method)config->parallel.cp_method, error);
    if (axis == THREADS && size > cluster->accelerators)
        return ls_error_set(error, LS_ELAYOUT, "a rank is on one host, which has %ld cores",
                            (long)cluster->accelerators);
    if (axis == THREADS && !ranks_have_hosts(cluster, axes->accelerators / size, size)) {
        int64_t ranks = cluster->hosts * (cluster->accelerators / size);
        return ls_error_set(error, LS_ELAYOUT,
                            "a rank is on one host, which has %ld cores, so there can be %ld such "
                            "ranks, on %ld cores",
                            (long)cluster->accelerators, (long)ranks, (long)(ranks * size));
    }
    if (axis == PP && size > config->model.layers + 2)
        return ls_error_set(error, LS_ELAYOUT,
                            "%ld blocks, the embedding and the head make %ld stages at most",
                            (long)config->model.layers, (long)config->model.layers + 2);
    if ((axis == DP || axis == REPLICATE || axis == SHARD) && config->batch.global % size)
        return ls_error_set(error, LS_ELAYOUT, "it does not divide batch.global, %ld",
                            (long)config->batch.global);
    if (axes->accelerators % size)
        return ls_error_set(error, LS_ELAYOUT, "it does not divide %ld accelerators",
                            (long)axes->accelerators);
    return LS_OK;
}

/* "; expected 1, 2, 4 or 8": what that axis may be. */
static void expected_add(const struct axes *axes, int axis, struct ls_error *error)
{
    int64_t list[16];
    int count = 0;
    for (int64_t n = 1; n <= axes->accelerators && count < 16; n++)
        if (axes->accelerators % n == 0 && axis_admits(axes, axis, n, NULL) == LS_OK)
            list[count++] = n;
    for (int i = 0; i < count; i++) {
        const char *before = i == 0 ? "; expected " : i == count - 1 ? " or " : ", ";
        ls_error_suffix(error, "%s%ld", before, (long)list[i]);
    }
}

/* "; or set numerics.seq_tiles=2, another recipe with other bits": what the axis asks for. */
static void recipe_add(const struct axes *axes, int axis, struct ls_error *error)
{
    struct axes other = *axes;
    const struct ls_config *config = axes->options->config;
    int64_t size = axes->size[axis], sequence = config->data.sequence;
    bool leaves = axis == CP && config->numerics.leaf_sequences > 1 &&
                  ls_config_is_given(config, "numerics.leaf_sequences");
    const char *key = axis == TP ? "numerics.tp_tiles" : "numerics.seq_tiles";
    if (axis == TP)
        other.numerics.tp_tiles = size;
    else if (axis == CP && !ls_seq_tiles_admit(size, sequence, 1, NULL))
        other.numerics.seq_tiles = size;
    else
        return;
    if (!axis_admits(&other, axis, size, NULL) && axes->accelerators % size == 0)
        ls_error_suffix(error, "; or set %s=%ld%s, another recipe with other bits", key, (long)size,
                        leaves ? " numerics.leaf_sequences=1" : "");
}

/* Axes that divide the accelerators one by one, and together do not. */
static int together_refuse(const struct axes *axes, struct ls_error *error)
{
    char text[256] = "";
    int64_t ranks = 1;
    for (int a = 0; a < AXES; a++) {
        bool counted = axes->size[DP] && (a == REPLICATE || a == SHARD);
        if (axes->size[a] <= 1 || counted)
            continue;
        ls_string_add(text, sizeof text, " x ", "%s=%ld", names[a], (long)axes->size[a]);
        ranks *= axes->size[a];
    }
    if (axes->accelerators % ranks == 0)
        return LS_OK;
    return ls_error_set(error, LS_ELAYOUT,
                        "the recipe admits no layout for %ld accelerators with %s: %ld ranks "
                        "do not divide %ld; leave one of these keys to the search",
                        (long)axes->accelerators, text, (long)ranks, (long)axes->accelerators);
}

int pinned_refuse(const struct ls_search_options *options, int64_t accelerators,
                  struct ls_error *error)
{
    const struct axes axes = axes_of(options, accelerators);
    for (int a = 0; a < AXES; a++)
        if (axes.size[a] && axis_admits(&axes, a, axes.size[a], error)) {
            expected_add(&axes, a, error);
            recipe_add(&axes, a, error);
            return ls_error_prefix(error,
                                   "the recipe admits no layout for %ld accelerators with %s=%ld",
                                   (long)accelerators, names[a], (long)axes.size[a]);
        }
    return together_refuse(&axes, error);
}

int unadmitted_refuse(const struct ls_search_options *options, const struct candidate *candidate,
                      int64_t accelerators, struct ls_error *error)
{
    struct ls_config config = *options->config;
    struct ls_layout layout;
    struct ls_error why = {0};
    candidate_apply(candidate, options, &config);
    if (!ls_config_layout(&config, 0, &layout, &why))
        return LS_OK;
    return ls_error_set(error, LS_ELAYOUT,
                        "the recipe admits no layout for %ld accelerators; the first was refused: "
                        "%s",
                        (long)accelerators, why.text);
}
