/* Which rank writes what: in every small layout each element of each array is in one share, and
 * ranks that hold the same write as much. Pure arithmetic, so no rank runs. */

#include "../support/suite.h"

#include <lockstep/state.h>
#include <lockstep/train.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rows that 3 ranks do not divide, key/value heads that tp 4 shares. */
static const char *const recipe[] = {"model.arch=llama",
                                     "model.vocab_multiple=8",
                                     "model.layers=3",
                                     "model.channels=32",
                                     "model.heads=4",
                                     "model.kv_heads=2",
                                     "model.ffn=56",
                                     "model.context=256",
                                     "data.sequence=256",
                                     "data.tokenizer=byte",
                                     "numerics.tp_tiles=4",
                                     "numerics.seq_tiles=2",
                                     "batch.global=12",
                                     "train.steps=1",
                                     "log.tensorboard=false",
                                     "parallel.threads=1",
                                     "numerics.leaf_sequences=1"};

static bool layout_make(const char *keys, struct ls_config *config, struct ls_layout *layout)
{
    char words[512], *save = NULL;
    struct ls_error error;
    snprintf(words, sizeof words, "%s", keys);
    ls_config_defaults(config);
    for (size_t i = 0; i < sizeof recipe / sizeof *recipe; i++)
        assert_int_equal(ls_config_set(config, recipe[i], &error), LS_OK);
    for (char *word = strtok_r(words, " ", &save); word; word = strtok_r(NULL, " ", &save))
        assert_int_equal(ls_config_set(config, word, &error), LS_OK);
    return !ls_train_resolve(config, &error) && !ls_config_layout(config, 0, layout, &error);
}

/* How often each element of a tensor of the whole model is in a share of an array. */
struct covered {
    struct ls_params all;
    unsigned char **times; /* [all.count][elements] */
};

static void covered_clear(struct covered *c, bool release)
{
    for (int i = 0; i < c->all.count; i++)
        if (release)
            free(c->times[i]);
        else
            memset(c->times[i], 0, (size_t)ls_dtensor_count(&c->all.list[i].spec));
    if (!release)
        return;
    free(c->times);
    ls_params_release(&c->all);
}

static void covered_make(struct covered *c, const struct ls_layout *layout)
{
    assert_int_equal(ls_layout_params(layout, 0, NULL, &c->all, NULL), LS_OK);
    c->times = calloc((size_t)c->all.count, sizeof *c->times);
    for (int i = 0; i < c->all.count; i++)
        c->times[i] = calloc((size_t)ls_dtensor_count(&c->all.list[i].spec), 1);
}

/* Adds the shares of a rank, as `as` would have them; returns their elements. */
static int64_t shares_add(struct covered *c, const struct ls_layout *layout,
                          const struct ls_optim_config *optim, int array, int64_t rank, int64_t as)
{
    bool held[LS_LAYOUT_LAYERS_MAX + 2];
    int64_t at[LS_AXES], sum = 0;
    struct ls_params params;
    ls_layout_coordinates(layout, rank, at);
    ls_layout_layers(layout, at[LS_AXIS_PP], held, NULL);
    assert_int_equal(ls_layout_params(layout, at[LS_AXIS_TP], held, &params, NULL), LS_OK);
    struct ls_state_rows *rows = calloc((size_t)params.count, sizeof *rows);
    ls_state_shares(&params, as, optim, array, rows);
    for (int i = 0; i < params.count; i++) {
        const struct ls_dtensor_spec *spec = &params.list[i].spec;
        int64_t shape[LS_DTENSOR_DIMS_MAX], mesh_rank = rank % ls_mesh_ranks(&spec->mesh);
        int64_t count = ls_dtensor_local_shape(spec, mesh_rank, shape);
        int64_t row = count > 0 ? count / shape[0] : 0;
        int64_t first = rows[i].first * row, end = first + rows[i].count * row;
        unsigned char *times = c->times[ls_params_find(&c->all, params.list[i].name) - c->all.list];
        struct ls_runs runs;
        struct ls_run run;
        assert_true(first >= 0 && end <= count);
        ls_runs_init(&runs, spec, mesh_rank);
        while (ls_runs_next(&runs, &run))
            for (int64_t e = ls_max(first, run.local); e < ls_min(end, run.local + run.count); e++)
                times[run.global + e - run.local]++;
        sum += end - first;
    }
    free(rows);
    ls_params_release(&params);
    return sum;
}

/* Whether each element of the array is in one share; twin: each rank takes rank 0's. */
static bool is_covered(struct covered *c, const struct ls_layout *layout,
                       const struct ls_optim_config *optim, int array, bool twin, int64_t *most,
                       int64_t *least)
{
    bool good = true;
    *most = 0;
    *least = INT64_MAX;
    covered_clear(c, false);
    for (int64_t rank = 0; rank < layout->ranks; rank++) {
        int64_t sum = shares_add(c, layout, optim, array, rank, twin ? 0 : rank);
        *most = ls_max(*most, sum);
        *least = ls_min(*least, sum);
    }
    for (int i = 0; i < c->all.count; i++) {
        const struct ls_param *param = &c->all.list[i];
        bool there = array < ls_param_states(optim, param);
        for (int64_t e = 0; e < ls_dtensor_count(&param->spec); e++)
            good = good && c->times[i][e] == there;
    }
    return good;
}

/* The greatest difference that rounding to rows makes: a row at each end. */
static int64_t rounding(const struct covered *c)
{
    int64_t most = 0;
    for (int i = 0; i < c->all.count; i++)
        most = ls_max(most, 2 * c->all.list[i].global_cols);
    return most;
}

/* Returns whether the recipe admits it. */
static bool check(const char *keys, bool alike)
{
    struct ls_config *config = malloc(sizeof *config);
    struct ls_layout *layout = malloc(sizeof *layout);
    bool admitted = layout_make(keys, config, layout);
    if (admitted) {
        const struct ls_optim_config optim = ls_config_optim(config);
        struct covered covered;
        int64_t most, least;
        covered_make(&covered, layout);
        for (int array = LS_STATE_PARAMETERS; array < ls_optimizer_states_most(&optim); array++) {
            if (!is_covered(&covered, layout, &optim, array, false, &most, &least))
                fail_msg("%s: array %d: an element is in no share, or in two", keys, array);
            if (alike && most - least > rounding(&covered))
                fail_msg("%s: array %d: one rank writes %ld elements, another %ld", keys, array,
                         (long)most, (long)least);
        }
        if (alike && layout->ranks > 1 &&
            is_covered(&covered, layout, &optim, LS_STATE_PARAMETERS, true, &most, &least))
            fail_msg("%s: the twin passes", keys);
        covered_clear(&covered, true);
    }
    free(config);
    free(layout);
    return admitted;
}

CASE(test_every_small_layout)
{
    static const char *const recipes[] = {"model.tied=true", "model.tied=false optim.name=muon"};
    static const int tps[] = {1, 2, 4};
    int admitted = 0;
    for (size_t r = 0; r < sizeof recipes / sizeof *recipes; r++)
        for (int pp = 1; pp <= 3; pp++)
            for (int replicate = 1; replicate <= 4; replicate++)
                for (int shard = 1; shard <= 6; shard++)
                    for (int cp = 1; cp <= 2; cp++)
                        for (int t = 0; t < 3; t++)
                            for (int zero = 0; zero <= 3; zero++) {
                                char keys[512];
                                if (pp * replicate * shard * cp * tps[t] > 24)
                                    continue;
                                snprintf(keys, sizeof keys,
                                         "%s parallel.pp=%d parallel.dp_replicate=%d "
                                         "parallel.dp_shard=%d parallel.cp=%d parallel.tp=%d "
                                         "parallel.zero=%d",
                                         recipes[r], pp, replicate, shard, cp, tps[t], zero);
                                admitted += check(keys, zero == 0 && tps[t] == 1 && pp == 1);
                            }
    assert_in_range(admitted, 1000, 5000);
}

SUITE_MAIN(NULL, NULL)
