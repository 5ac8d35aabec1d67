/* Layouts without a network: shapes, offsets and runs on awkward sizes, beside PyTorch's. */
#include "../support/suite.h"
#include "cases.h"

#include <stdlib.h>
#include <string.h>

static const int awkward[] = {1, 2, 3, 4, 5, 6, 7, 11, 12};
enum { AWKWARD = sizeof awkward / sizeof *awkward };

CASE(test_chunks)
{
    int64_t first, count;
    for (int64_t size = 0; size < 40; size++)
        for (int64_t parts = 1; parts < 14; parts++) {
            int64_t next = 0, part = ls_ceil_div(size, parts);
            for (int64_t i = 0; i < parts; i++) {
                ls_shard_range(size, parts, i, &first, &count);
                int64_t expected = ls_max(0, ls_min(part, size - i * part));
                if (first != next || count != expected)
                    fail_msg("part %d of %d of %d: [%d, +%d), expected [%d, +%d)", (int)i,
                             (int)parts, (int)size, (int)first, (int)count, (int)next,
                             (int)expected);
                next += count;
            }
            assert_int_equal(next, size);
        }
    ls_shard_range(INT64_MAX, INT64_MAX, INT64_MAX - 1, &first, &count);
    assert_true(first == INT64_MAX - 1 && count == 1);
}

/* ---- as PyTorch ------------------------------------------------------------------------------ */

static int check_rank(const struct ls_dtensor_spec *spec, int64_t rank, const char *word)
{
    int64_t shape[LS_DTENSOR_DIMS_MAX], offset[LS_DTENSOR_DIMS_MAX];
    int64_t golden_shape[LS_DTENSOR_DIMS_MAX], golden_offset[LS_DTENSOR_DIMS_MAX];
    size_t bytes = (size_t)spec->dims * sizeof *shape;
    ls_dtensor_local_shape(spec, rank, shape);
    ls_dtensor_offset(spec, rank, offset);
    assert_int_equal(cases_sizes(word, golden_shape), spec->dims);
    cases_sizes(strchr(word, '@') + 1, golden_offset);
    return memcmp(shape, golden_shape, bytes) == 0 && memcmp(offset, golden_offset, bytes) == 0;
}

CASE(test_shapes_and_offsets_are_those_of_pytorch)
{
    FILE *file = cases_open();
    char *line = NULL, *text, *word;
    size_t capacity = 0;
    int cases = 0;
    while ((text = cases_next(file, "layout", &line, &capacity))) {
        char *shape = cases_word(&text), *mesh = cases_word(&text), *place = cases_word(&text);
        struct ls_dtensor_spec spec = cases_spec(shape, mesh, place);
        int64_t rank = 0;
        for (; (word = cases_word(&text)); rank++)
            if (!check_rank(&spec, rank, word)) {
                int64_t got[LS_DTENSOR_DIMS_MAX], offset[LS_DTENSOR_DIMS_MAX];
                ls_dtensor_local_shape(&spec, rank, got);
                ls_dtensor_offset(&spec, rank, offset);
                fail_msg("%s on %s as %s, rank %d: PyTorch has %s, here %dx.. at %d,..", shape,
                         mesh, place, (int)rank, word, (int)got[0], (int)offset[0]);
            }
        assert_int_equal(rank, ls_mesh_ranks(&spec.mesh));
        cases++;
    }
    free(line);
    fclose(file);
    assert_true(cases > 700);
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* Every element of the whole is held by as many ranks as the axes that do not cut have; runs
 * ascend, do not touch, and add up to the local shape. */
static void check_runs(const struct ls_dtensor_spec *spec)
{
    int64_t whole = ls_dtensor_count(spec), copies = 1;
    uint8_t *held = calloc((size_t)whole + 1, 1);
    for (int axis = 0; axis < spec->mesh.axis_count; axis++)
        copies *= ls_placement_cuts(spec->placement[axis]) ? 1 : spec->mesh.size[axis];
    for (int64_t rank = 0; rank < ls_mesh_ranks(&spec->mesh); rank++) {
        struct ls_runs runs;
        struct ls_run run;
        int64_t local = 0, end = -1;
        ls_runs_init(&runs, spec, rank);
        while (ls_runs_next(&runs, &run)) {
            assert_true(run.count > 0 && run.local == local && run.global > end);
            assert_true(run.global + run.count <= whole);
            for (int64_t i = 0; i < run.count; i++)
                held[run.global + i]++;
            local += run.count;
            end = run.global + run.count;
        }
        assert_int_equal(local, ls_dtensor_local_shape(spec, rank, NULL));
    }
    for (int64_t i = 0; i < whole; i++)
        if (held[i] != copies)
            fail_msg("element %d is held %d times, expected %d", (int)i, held[i], (int)copies);
    free(held);
}

CASE(test_runs_cover_every_element)
{
    FILE *file = cases_open();
    char *line = NULL, *text;
    size_t capacity = 0;
    while ((text = cases_next(file, "layout", &line, &capacity))) {
        char *shape = cases_word(&text), *mesh = cases_word(&text), *place = cases_word(&text);
        struct ls_dtensor_spec spec = cases_spec(shape, mesh, place);
        check_runs(&spec);
    }
    free(line);
    fclose(file);
}

static void expect_runs(const char *shape, const char *mesh, const char *place, int64_t rank,
                        const struct ls_run *expected, int count)
{
    struct ls_dtensor_spec spec = cases_spec(shape, mesh, place);
    struct ls_runs runs;
    struct ls_run run;
    int found = 0;
    ls_runs_init(&runs, &spec, rank);
    for (; ls_runs_next(&runs, &run); found++)
        if (found >= count || memcmp(&run, &expected[found], sizeof run) != 0)
            fail_msg("%s on %s as %s, rank %d, run %d: (%d, %d, %d)", shape, mesh, place, (int)rank,
                     found, (int)run.global, (int)run.local, (int)run.count);
    assert_int_equal(found, count);
}

CASE(test_runs_are_joined)
{
    /* Rows are one run, columns one a row; a whole is one; a cut by an axis of one is none. */
    expect_runs("888x12", "4", "S0", 2, (struct ls_run[]){{5328, 0, 2664}}, 1);
    expect_runs("3x4", "2", "S1", 1, (struct ls_run[]){{2, 0, 2}, {6, 2, 2}, {10, 4, 2}}, 3);
    expect_runs("3x4x5", "3", "R", 1, (struct ls_run[]){{0, 0, 60}}, 1);
    expect_runs("3x4", "1", "S1", 0, (struct ls_run[]){{0, 0, 12}}, 1);
    expect_runs("1x4", "2", "S1", 1, (struct ls_run[]){{2, 0, 2}}, 1);
    expect_runs("3x2", "5", "S0", 4, NULL, 0);
    /* PyTorch's own example of _StridedShard: 9 elements, 4 ranks, factor 2. */
    expect_runs("9", "4", "S0/2", 0, (struct ls_run[]){{0, 0, 2}, {5, 2, 1}}, 2);
    expect_runs("9", "4", "S0/2", 2, (struct ls_run[]){{4, 0, 1}, {7, 1, 1}}, 2);
    expect_runs("9", "4", "S0/2", 3, (struct ls_run[]){{8, 0, 1}}, 1);
    /* FSDP over TP: 8 rows, mesh (dp 2, tp 2): tp cuts first. */
    expect_runs("8x2", "2x2", "S0/2,S0", 1, (struct ls_run[]){{8, 0, 4}}, 1);
    expect_runs("8x2", "2x2", "S0/2,S0", 2, (struct ls_run[]){{4, 0, 4}}, 1);
}

/* ---- two layouts ----------------------------------------------------------------------------- */

/* Filling every part of `to` from all parts of `from` reaches every element as often as it is held,
 * with the right value. `shift` puts what is read off by so many elements: the broken twin. */
static int fill_from(const struct ls_dtensor_spec *from, const struct ls_dtensor_spec *to,
                     int64_t shift, struct ls_error *error)
{
    int status = LS_OK;
    for (int64_t rank = 0; rank < ls_mesh_ranks(&to->mesh) && status == LS_OK; rank++) {
        struct ls_dtensor target;
        status = ls_dtensor_init(&target, to, rank, NULL, error);
        for (int64_t i = 0; i < target.local_count; i++)
            ((float *)target.data)[i] = -1;
        for (int64_t r = 0; r < ls_mesh_ranks(&from->mesh) && status == LS_OK; r++) {
            struct ls_dtensor source;
            struct ls_overlap overlap;
            struct ls_copy copy;
            status = ls_dtensor_init(&source, from, r, NULL, error);
            cases_fill(&source);
            ls_overlap_init(&overlap, from, r, to, rank);
            while (ls_overlap_next(&overlap, &copy))
                for (int64_t i = 0; i < copy.count; i++)
                    ((float *)target.data)[copy.to + i] =
                        ((float *)source.data)[(copy.from + i + shift) % source.local_count];
            ls_dtensor_release(&source);
        }
        if (status == LS_OK)
            status = cases_check(&target, 1, error);
        ls_dtensor_release(&target);
    }
    return status;
}

CASE(test_any_layout_fills_any_other)
{
    static const char *const layouts[][2] = {
        {"1", "R"},        {"3", "S0"},        {"5", "S1"},          {"7", "S0/3"},
        {"2x2", "S0,S0"},  {"2x3", "S0/3,S0"}, {"3x2", "S0,S1"},     {"4x3", "S1,S0/2"},
        {"2x3", "R,S1/2"}, {"12", "S0"},       {"2x3x2", "S0,S1,S0"}};
    struct ls_error error = {0};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        for (size_t j = 0; j < sizeof layouts / sizeof *layouts; j++) {
            struct ls_dtensor_spec from = cases_spec("11x7", layouts[i][0], layouts[i][1]);
            struct ls_dtensor_spec to = cases_spec("11x7", layouts[j][0], layouts[j][1]);
            if (fill_from(&from, &to, 0, &error) != LS_OK)
                fail_msg("%s as %s to %s as %s: %s", layouts[i][0], layouts[i][1], layouts[j][0],
                         layouts[j][1], error.text);
        }
}

CASE(test_a_shard_off_by_one_row_is_caught)
{
    struct ls_error error = {0};
    struct ls_dtensor_spec from = cases_spec("11x7", "3", "S0");
    struct ls_dtensor_spec to = cases_spec("11x7", "2", "S0");
    assert_int_equal(fill_from(&from, &to, 7, &error), LS_ENUMERIC);
    assert_string_equal(error.text, "element 0 is 7, expected 0");
}

/* ---- arguments ------------------------------------------------------------------------------- */

static void expect_refused(int dims, const int64_t *shape, struct ls_placement a,
                           struct ls_placement b, const char *text)
{
    struct ls_dtensor_spec spec;
    struct ls_mesh mesh;
    struct ls_error error = {0};
    cases_mesh("2x3", &mesh);
    assert_int_equal(ls_dtensor_spec_init(&spec, LS_F32, dims, shape, &mesh,
                                          (struct ls_placement[]){a, b}, &error),
                     LS_EINVAL);
    assert_string_equal(error.text, text);
}

CASE(test_arguments)
{
    struct ls_placement r = ls_replicate();
    const int64_t shape[9] = {4, 5}, negative[] = {-1}, huge[] = {INT64_MAX / 2, 3};
    expect_refused(9, shape, r, r, "a tensor of 9 dims: 0 to 8 are possible");
    expect_refused(1, negative, r, r, "dim 0 of a tensor has size -1");
    expect_refused(2, huge, r, r, "dim 0 of size 4611686018427387903: more bytes than INT64_MAX");
    expect_refused(2, shape, r, ls_shard(2), "Shard(2) on axis b: the tensor has 2 dims");
    expect_refused(2, shape, ls_shard(-3), r, "Shard(-3) on axis a: the tensor has 2 dims");
    expect_refused(2, shape, r, ls_strided_shard(0, 0),
                   "StridedShard(0, 0) on axis b: the split factor is at least 1");
    expect_refused(2, shape, ls_partial(LS_REDUCE_SUM), ls_partial(LS_REDUCE_MAX),
                   "Partial(max) on axis b beside Partial(sum) on axis a: their order would "
                   "matter; use one reduction (sum and avg may be mixed)");
    struct ls_dtensor_spec spec = cases_spec("4x5", "2x3", "P,Pavg");
    struct ls_error error = {0};
    assert_int_equal(
        ls_dtensor_spec_place(&spec, &spec, (struct ls_placement[]){r, ls_shard(-1)}, &error),
        LS_OK);
    assert_true(ls_placement_equal(spec.placement[1], ls_shard(1)));
    struct ls_dtensor tensor;
    assert_int_equal(ls_dtensor_init(&tensor, &spec, 6, NULL, &error), LS_EINVAL);
    assert_string_equal(error.text, "rank 6 of a mesh of 6");
}

CASE(test_scalars_and_great_tensors)
{
    struct ls_dtensor_spec scalar = cases_spec("-", "3", "R");
    assert_int_equal(ls_dtensor_count(&scalar), 1);
    check_runs(&scalar);
    /* A tensor that no machine holds: arithmetic only, at once. */
    struct ls_dtensor_spec great = cases_spec("1000000007x1048576", "4096x4", "S0/4,S0");
    struct ls_run run;
    struct ls_runs runs;
    int64_t total = 0;
    for (int64_t rank = 0; rank < 4096 * 4; rank++)
        for (ls_runs_init(&runs, &great, rank); ls_runs_next(&runs, &run);)
            total += run.count;
    assert_true(total == INT64_C(1000000007) * 1048576);
    for (int i = 0; i < AWKWARD; i++) {
        char mesh[8];
        snprintf(mesh, sizeof mesh, "%d", awkward[i]);
        struct ls_dtensor_spec spec = cases_spec("888x12", mesh, "S0");
        check_runs(&spec);
    }
}

SUITE_MAIN(NULL, NULL)
