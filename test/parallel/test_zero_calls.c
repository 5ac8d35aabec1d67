/* ZeRO's interface where it says no, and a description of 16,384 ranks that nobody runs. */
#include "../support/suite.h"

#include <lockstep/parallel.h>
#include <lockstep/parallel/zero.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNITS = 4 };

/* Four layers of a matrix and a vector. */
struct model {
    struct ls_unit units[UNITS];
    struct ls_region regions[UNITS];
    struct ls_param list[2 * UNITS];
    struct ls_params params;
    struct ls_zero_options options;
};

/* Rows are cut over the ranks. */
static struct ls_dtensor_spec spec_of(int64_t rows, int64_t cols, int64_t ranks)
{
    struct ls_dtensor_spec spec = {.dims = 0};
    struct ls_mesh mesh;
    struct ls_error error = {0};
    const struct ls_placement placement = ls_shard(0);
    if (ls_mesh_init(&mesh, 1, (const char *const[]){"shard"}, &ranks, &error) ||
        ls_dtensor_spec_init(&spec, LS_F32, 2, (const int64_t[]){rows, cols}, &mesh, &placement,
                             &error))
        fail_msg("%s", error.text);
    return spec;
}

static void model_init(struct model *model, int stage, int ranks, int rank)
{
    enum { ROWS = 128, COLS = 48 };
    *model = (struct model){0};
    for (int u = 0; u < UNITS; u++) {
        model->units[u] =
            (struct ls_unit){.elements = ROWS * COLS + ROWS, .matrix_elements = ROWS * COLS};
        model->regions[u] = (struct ls_region){.elements = ROWS * COLS + ROWS};
        model->list[2 * u] = (struct ls_param){.name = "matrix",
                                               .unit = u,
                                               .rows = ROWS,
                                               .cols = COLS,
                                               .matrix = true,
                                               .gradient = {u, 0},
                                               .second = {LS_REGION_NONE, 0},
                                               .spec = spec_of(ROWS, COLS, ranks)};
        model->list[2 * u + 1] = (struct ls_param){.name = "vector",
                                                   .unit = u,
                                                   .offset = ROWS * COLS,
                                                   .rows = ROWS,
                                                   .cols = 1,
                                                   .gradient = {u, ROWS * COLS},
                                                   .second = {LS_REGION_NONE, 0},
                                                   .spec = spec_of(ROWS, 1, ranks)};
    }
    model->params = (struct ls_params){.list = model->list,
                                       .count = 2 * UNITS,
                                       .units = model->units,
                                       .unit_count = UNITS,
                                       .regions = model->regions,
                                       .region_count = UNITS};
    model->options = (struct ls_zero_options){.stage = stage,
                                              .params = &model->params,
                                              .shard_ranks = ranks,
                                              .shard_rank = rank,
                                              .replicate_ranks = 1,
                                              .inner = 1,
                                              .leaves_max = 2,
                                              .micro_batches_max = 2,
                                              .act = LS_F32,
                                              .reshard_after_forward = true};
}

static int plan(const struct model *model, struct ls_zero **zero, struct ls_error *error)
{
    struct ls_arena arena;
    ls_arena_measure(&arena);
    return ls_zero_new(&model->options, &arena, zero, error);
}

/* Micro-batch m of count, each of which is a leaf. */
static struct ls_dp_micro micro_of(int64_t m, int64_t count)
{
    return (struct ls_dp_micro){.m = m,
                                .count = 1,
                                .begins = true,
                                .ends = true,
                                .begins_sum = m == 0,
                                .last = m == count - 1};
}

static void check_refused(const struct model *model, int expected, const char *text)
{
    struct ls_zero *zero;
    struct ls_error error = {0};
    int status = plan(model, &zero, &error);
    if (status != expected || !strstr(error.text, text))
        fail_msg("status %d, \"%s\"; expected %d, \"%s\"", status, error.text, expected, text);
    assert_null(zero);
}

CASE(test_descriptions_that_are_wrong)
{
    struct model model;
    model_init(&model, 4, 2, 0);
    check_refused(&model, LS_EINVAL, "ZeRO stage 4: expected 0 to 3");
    model_init(&model, 3, 2, 2);
    check_refused(&model, LS_EINVAL, "rank 2 of 2");
    model_init(&model, 3, 2, 0);
    model.options.act = LS_F64;
    check_refused(&model, LS_EINVAL, "F64");
    model_init(&model, 3, 2, 0);
    model.options.reduce = LS_BF16; /* bits would depend on the layout */
    check_refused(&model, LS_EINVAL, "reduced in BF16");
    model_init(&model, 3, 2, 0);
    model.list[2].offset = 1; /* reaches into the vectors */
    check_refused(&model, LS_EINVAL, "tensor 2, elements 1 to 6145 of unit 1");
    model_init(&model, 3, 2, 0);
    model.list[3].gradient.offset++;
    check_refused(&model, LS_EINVAL, "gradient of tensor 3");
    model_init(&model, 3, 2, 0);
    model.list[5].second.region = UNITS;
    check_refused(&model, LS_EINVAL, "gradient of tensor 5");
    model_init(&model, 3, 2, 0);
    model.list[7].unit = UNITS;
    check_refused(&model, LS_EINVAL, "no such unit");
    model_init(&model, 3, 2, 0);
    model.list[1].spec = spec_of(128, 1, 4); /* cut for another group */
    check_refused(&model, LS_EINVAL, "tensor 1 (vector) is not cut over the 2 ranks");
    model_init(&model, 0, 2, 0); /* cut, where every rank has the whole */
    check_refused(&model, LS_EINVAL, "tensor 0 (matrix) is not cut over the 2 ranks");
}

CASE(test_a_threshold_that_shards_nothing)
{
    struct model model;
    model_init(&model, 3, 2, 0);
    model.options.persistence_elements = 128 * 48;
    check_refused(&model, LS_ELAYOUT, "would shard nothing: the largest tensor has 6144 elements");
    struct ls_zero *zero;
    struct ls_error error = {0};
    for (int i = 0; i < 2; i++) { /* one element less, or nobody to share with */
        model_init(&model, 3, 2 - i, 0);
        model.options.persistence_elements = 128 * 48 - (i == 0);
        assert_ok(plan(&model, &zero, &error), error);
        ls_zero_free(zero);
    }
}

/* Micro-batches that come twice, not at all, or in another order. */
CASE(test_gradients_out_of_order)
{
    struct model model;
    model_init(&model, 0, 1, 0);
    struct ls_arena arena;
    ls_arena_measure(&arena);
    struct ls_zero *zero;
    struct ls_ops ops;
    struct ls_error error = {0};
    assert_int_equal(ls_ops_init(&ops, 1, ls_isa_best(), &error), LS_OK);
    assert_int_equal(ls_zero_new(&model.options, &arena, &zero, &error), LS_OK);
    ls_zero_free(zero);
    assert_int_equal(ls_arena_init(&arena, arena.used, &error), LS_OK);
    assert_int_equal(ls_zero_new(&model.options, &arena, &zero, &error), LS_OK);

    struct ls_zero_gradient gradient;
    float *final;
    for (int u = 0; u < UNITS; u++)
        for (int m = 0; m < 2; m++) {
            struct ls_dp_micro micro = micro_of(m, 2);
            assert_int_equal(ls_zero_gradient(zero, &ops, u, &micro, &gradient, &error), LS_OK);
            assert_int_equal(gradient.onto, m ? LS_ONTO_SUM : LS_ONTO_NOTHING);
            if (u < UNITS - 1 || m == 0)
                assert_int_equal(ls_zero_gradient_done(zero, &ops, u, &micro, &error), LS_OK);
        }
    struct ls_dp_micro second = micro_of(1, 2);
    int status = ls_zero_gradient_done(zero, &ops, 1, &second, &error);
    if (status != LS_EINVAL || !strstr(error.text, "region 1 comes for micro-batch 1, but 2 is"))
        fail_msg("counted twice: status %d, %s", status, error.text);
    status = ls_zero_gradient_finish(zero, &ops, &final, &error);
    if (status != LS_ECOMM || !strstr(error.text, "region 3 was never reduced: micro-batch 1 "))
        fail_msg("forgotten: status %d, %s", status, error.text);
    status = ls_zero_gradient(zero, &ops, 0, &second, &gradient, &error);
    if (status != LS_EINVAL || !strstr(error.text, "but 0 is next"))
        fail_msg("out of order: status %d, %s", status, error.text);
    ls_zero_free(zero);
    ls_arena_release(&arena);
    ls_ops_release(&ops);
}

/* ---- two ranks ------------------------------------------------------------------------------- */

static int expect(int status, int expected, const char *text, const struct ls_error *refused,
                  struct ls_error *error)
{
    if (status == expected && (!expected || strstr(refused->text, text)))
        return LS_OK;
    return ls_error_set(error, LS_EINVAL, "status %d, \"%.200s\"; expected %d, \"%s\"", status,
                        refused->text, expected, text);
}

/* As many units as the header promises may be held; what is prefetched gives way; nothing is held
 * while parameters change; one region at a time. */
static int holds(struct ls_zero *zero, struct ls_ops *ops, struct ls_error *error)
{
    struct ls_zero_weights weights;
    struct ls_zero_gradient gradient;
    struct ls_error refused = {0};
    struct ls_dp_micro only = micro_of(0, 1);
    int status = ls_zero_publish(zero, ops, error);
    if (!status)
        status = ls_zero_weights(zero, ops, 0, &weights, error);
    for (int u = 1; u < UNITS && !status; u++)
        status = ls_zero_prefetch(zero, u, error);
    if (!status)
        status = ls_zero_weights(zero, ops, 3, &weights, error);
    if (!status)
        status = expect(ls_zero_weights(zero, ops, 2, &weights, &refused), LS_EINVAL,
                        "unit 2 cannot be gathered", &refused, error);
    if (!status)
        status = expect(ls_zero_publish(zero, ops, &refused), LS_EINVAL, "unit 0 is held", &refused,
                        error);
    ls_zero_release(zero, 0);
    ls_zero_release(zero, 0);
    if (!status)
        status = ls_zero_weights(zero, ops, 2, &weights, error);
    ls_zero_release(zero, 2);
    ls_zero_release(zero, 3);
    if (!status)
        status = ls_zero_publish(zero, ops, error);
    if (!status)
        status = ls_zero_gradient(zero, ops, 3, &only, &gradient, error);
    if (!status)
        status = expect(ls_zero_gradient(zero, ops, 2, &only, &gradient, &refused), LS_EINVAL,
                        "region 2 is asked for before", &refused, error);
    return status ? status : ls_zero_gradient_done(zero, ops, 3, &only, error);
}

/* A table that is tied to one of another pipeline stage: room for its other gradient. */
static int tied_outside(struct ls_zero *zero, struct ls_error *error)
{
    const struct ls_zero_slice *slices = ls_zero_slices(zero);
    int64_t end = 0;
    for (int t = 0; t < 2 * UNITS; t++)
        end = ls_max(end, slices[t].gradient + slices[t].count);
    if (slices[2].second < end || slices[2].count != 64 * 48 || slices[4].second != -1)
        return ls_error_set(error, LS_EINVAL, "%ld of %ld elements at %ld, the others end at %ld",
                            (long)slices[2].second, (long)slices[2].count, (long)slices[2].second,
                            (long)end);
    return LS_OK;
}

static int rank_body(struct ls_comm *comm, void *user, struct ls_error *error)
{
    struct model model;
    model_init(&model, 3, ls_comm_size(comm), ls_comm_rank(comm));
    model.list[2].second.region = LS_REGION_OUTSIDE;
    struct ls_arena arena;
    struct ls_zero *zero = NULL;
    struct ls_ops ops;
    ls_arena_measure(&arena);
    int status = ls_ops_init(&ops, 1, ls_isa_best(), error);
    if (!status)
        status = ls_zero_new(&model.options, &arena, &zero, error);
    ls_zero_free(zero);
    zero = NULL;
    model.options.shard = comm;
    if (!status)
        status = ls_arena_init(&arena, arena.used, error);
    if (!status)
        status = ls_zero_new(&model.options, &arena, &zero, error);
    if (!status)
        status = holds(zero, &ops, error);
    if (!status)
        status = tied_outside(zero, error);
    if (!status) { /* regions 0 to 2 are missing: only what was started is waited for */
        float *gradient;
        struct ls_error refused = {0};
        status = expect(ls_zero_gradient_finish(zero, &ops, &gradient, &refused), LS_ECOMM,
                        "region 0 was never reduced", &refused, error);
    }
    ls_comm_agree(comm, status, &(struct ls_error){0});
    ls_zero_free(zero);
    ls_arena_release(&arena);
    ls_ops_release(&ops);
    return status;
}

CASE(test_what_may_be_held)
{
    struct ls_error error = {0};
    assert_ok(ls_world_run(2, rank_body, NULL, &error), error);
}

/* ---- a plan ---------------------------------------------------------------------------------- */

/* The shape of a model of 405 billion parameters, over 16,384 ranks. Bytes by the formulas. */
CASE(test_a_large_plan)
{
    enum { LAYERS = 126, MATRICES = 7, SHARDS = 1024 };
    const int64_t c = 16384, kv = 1024, ffn = 53248;
    const int64_t rows[MATRICES] = {c, kv, kv, c, ffn, ffn, c};
    const int64_t cols[MATRICES] = {c, c, c, c, c, c, ffn};
    struct ls_unit *units = calloc(LAYERS, sizeof *units);
    struct ls_param *list = calloc((size_t)LAYERS * MATRICES, sizeof *list);
    struct ls_region *regions = calloc(LAYERS, sizeof *regions);
    int64_t total = 0;
    for (int l = 0; l < LAYERS; l++) {
        int64_t at = 0;
        for (int m = 0; m < MATRICES; m++) {
            list[l * MATRICES + m] = (struct ls_param){.unit = l,
                                                       .offset = at,
                                                       .rows = rows[m],
                                                       .cols = cols[m],
                                                       .matrix = true,
                                                       .gradient = {LAYERS - 1 - l, at},
                                                       .second = {LS_REGION_NONE, 0},
                                                       .spec = spec_of(rows[m], cols[m], SHARDS)};
            at += rows[m] * cols[m];
        }
        units[l] = (struct ls_unit){.elements = at, .matrix_elements = at};
        regions[LAYERS - 1 - l] = (struct ls_region){.elements = at};
        total += at;
    }
    const struct ls_params params = {.list = list,
                                     .count = LAYERS * MATRICES,
                                     .units = units,
                                     .unit_count = LAYERS,
                                     .regions = regions,
                                     .region_count = LAYERS};
    struct ls_zero_options options = {.stage = 3,
                                      .params = &params,
                                      .shard_ranks = SHARDS,
                                      .shard_rank = 1000,
                                      .replicate_ranks = 16,
                                      .inner = 1,
                                      .leaves_max = 1,
                                      .micro_batches_max = 1,
                                      .act = LS_BF16,
                                      .reshard_after_forward = true};
    struct ls_arena arena;
    struct ls_zero *zero;
    struct ls_error error = {0};
    struct ls_zero_sizes sizes;
    ls_arena_measure(&arena);
    assert_ok(ls_zero_new(&options, &arena, &zero, &error), error);
    ls_zero_get_sizes(zero, &sizes);
    assert_int_equal(sizes.master, 4 * total / SHARDS);
    assert_int_equal(sizes.parameters, 2 * total / SHARDS);
    assert_int_equal(sizes.gradients, 4 * total / SHARDS);
    /* Two layers' weights; the gradients of two. */
    assert_int_equal(sizes.buffers, 2 * (2 + 4) * (total / LAYERS));
    ls_zero_free(zero);
    free(units);
    free(list);
    free(regions);
}

SUITE_MAIN(NULL, NULL)
