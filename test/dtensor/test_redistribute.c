/* Redistribution among thread ranks: values beside PyTorch's, bits of sums, what moves. */
#include "../support/suite.h"
#include "pairs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void run_ranks(int64_t n, int (*body)(struct ls_comm *, void *, struct ls_error *),
                      void *user)
{
    struct ls_error error = {0};
    if (ls_world_run((int)n, body, user, &error) != LS_OK)
        fail_msg("%d ranks: %s", (int)n, error.text);
}

/* ---- the golden moves ------------------------------------------------------------------------ */

struct move {
    char *shape, *mesh, *from, *to;
    char *rank[12]; /* the values that PyTorch has */
};

static int compare_values(const float *values, int64_t count, const char *golden,
                          struct ls_error *error)
{
    for (int64_t i = 0; i < count; i++) {
        char *end;
        double expected = strtod(golden, &end);
        if (end == golden || trunc((double)values[i]) != expected)
            return ls_error_set(error, LS_ENUMERIC, "value %lld is %g, PyTorch has %g",
                                (long long)i, (double)values[i], expected);
        golden = end + (*end == ',');
    }
    return *golden == 0 || *golden == '-'
               ? LS_OK
               : ls_error_set(error, LS_ENUMERIC, "%lld values, PyTorch has more: %.40s",
                              (long long)count, golden);
}

static int body_move(struct ls_comm *comm, void *user, struct ls_error *error)
{
    const struct move *move = user;
    int rank = ls_comm_rank(comm);
    struct ls_dtensor_spec from_spec = cases_spec(move->shape, move->mesh, move->from);
    struct ls_dtensor_spec to_spec = cases_spec(move->shape, move->mesh, move->to);
    struct ls_mesh_comms comms = {0};
    struct ls_dtensor from = {0}, to = {0};
    float *whole = calloc((size_t)ls_dtensor_count(&to_spec) + 1, sizeof *whole);
    int status = ls_mesh_comms_init(&comms, &from_spec.mesh, comm, error);
    if (status == LS_OK)
        status = ls_dtensor_init(&from, &from_spec, rank, NULL, error);
    if (status == LS_OK)
        status = ls_dtensor_init(&to, &to_spec, rank, NULL, error);
    if (status == LS_OK) {
        cases_fill(&from);
        status = ls_redistribute(&from, &to, &comms, error);
    }
    if (status == LS_OK)
        status = ls_full_tensor(&to, whole, &comms, error);
    if (status == LS_OK && pairs_has_partial(&to_spec))
        status = compare_values(whole, ls_dtensor_count(&to_spec), move->rank[rank], error);
    else if (status == LS_OK)
        status = compare_values(to.data, to.local_count, move->rank[rank], error);
    free(whole);
    ls_dtensor_release(&to);
    ls_dtensor_release(&from);
    ls_mesh_comms_release(&comms);
    return status;
}

CASE(test_values_are_those_of_pytorch)
{
    FILE *file = cases_open();
    char *line = NULL, *text, *word;
    size_t capacity = 0;
    int cases = 0;
    for (; (text = cases_next(file, "move", &line, &capacity)); cases++) {
        struct ls_error error = {0};
        struct move move = {.shape = cases_word(&text)};
        move.mesh = cases_word(&text);
        move.from = cases_word(&text);
        move.to = cases_word(&text);
        int ranks = 0;
        while ((word = cases_word(&text)))
            move.rank[ranks++] = word;
        if (ls_world_run(ranks, body_move, &move, &error) != LS_OK)
            fail_msg("%s on %s, %s to %s: %s", move.shape, move.mesh, move.from, move.to,
                     error.text);
    }
    free(line);
    fclose(file);
    assert_true(cases > 180);
}

/* ---- every pair ------------------------------------------------------------------------------ */

static const char *const ones[] = {"R",    "S0", "S1",   "S2",   "S0/2", "S1/3",
                                   "S2/5", "P",  "Pavg", "Pmax", "Pmin"};
static const char *const twos[] = {"R,R",   "S0,R",    "R,S0",    "S0,S0",     "S0,S1", "S1,S0",
                                   "S1,S1", "S0/2,S0", "S0,S0/3", "S0/3,S0/2", "P,R",   "R,P",
                                   "P,P",   "P,S0",    "S1,P",    "Pmax,S1",   "Pavg,P"};
static const char *const threes[] = {"R,R,R",   "S0,S0,S0", "S1,S0,S1", "S0/4,S0/2,S0",
                                     "P,S0,S0", "S0,R,P",   "R,S1,S1"};

static void check_pairs(const char *shape, const char *mesh, const char *const *placements,
                        int count)
{
    int64_t sizes[LS_MESH_AXES_MAX], ranks = 1;
    struct pairs pairs = {shape, mesh, placements, count, 0};
    for (int axis = cases_sizes(mesh, sizes); axis-- > 0;)
        ranks *= sizes[axis];
    run_ranks(ranks, pairs_body, &pairs);
}

CASE(test_every_pair_on_a_line)
{
    static const char *const meshes[] = {"1", "2", "3", "4", "5", "6", "7", "11", "12"};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        check_pairs("7x3x5", meshes[i], ones, sizeof ones / sizeof *ones);
        check_pairs("12x4x2", meshes[i], ones, sizeof ones / sizeof *ones);
    }
}

CASE(test_every_pair_on_a_grid)
{
    static const char *const meshes[] = {"2x2", "2x3", "3x2", "1x3", "4x3"};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        check_pairs("11x7", meshes[i], twos, sizeof twos / sizeof *twos);
        check_pairs("8x12", meshes[i], twos, sizeof twos / sizeof *twos);
    }
}

CASE(test_every_pair_in_three_dimensions)
{
    check_pairs("11x5", "2x3x2", threes, sizeof threes / sizeof *threes);
    check_pairs("8x8", "2x2x2", threes, sizeof threes / sizeof *threes);
}

/* Shapes, meshes of up to three axes and 12 ranks, and placements by chance, nested and strided. */
static uint32_t draw(uint32_t *draws, uint32_t below)
{
    struct ls_philox_key key = ls_philox_key_of(1, "test:pairs");
    uint32_t out[4];
    ls_philox(key, (uint32_t[4]){(*draws)++, 0, 0, 0}, out);
    return out[0] % below;
}

static void draw_placements(uint32_t *draws, int axes, int dims, char *text)
{
    for (int axis = 0; axis < axes; axis++) {
        char one[16] = "R";
        uint32_t kind = draw(draws, 6), dim = draw(draws, (uint32_t)dims);
        if (kind == 1)
            strcpy(one, "P");
        else if (kind == 2 || kind == 3)
            snprintf(one, sizeof one, "S%u", dim);
        else if (kind > 3)
            snprintf(one, sizeof one, "S%u/%u", dim, 1 + draw(draws, 4));
        text += sprintf(text, "%s%s", axis ? "," : "", one);
    }
}

CASE(test_pairs_by_chance)
{
    uint32_t draws = 0;
    for (int i = 0; i < 150; i++) {
        int axes = 1 + (int)draw(&draws, 3), dims = 1 + (int)draw(&draws, 3);
        char shape[48] = "", mesh[48] = "", a[64], b[64];
        for (int dim = 0; dim < dims; dim++)
            sprintf(shape + strlen(shape), "%s%u", dim ? "x" : "", 1 + draw(&draws, 13));
        uint32_t room = 12;
        for (int axis = 0; axis < axes; axis++) {
            uint32_t size = 1 + draw(&draws, room < 5 ? room : 5);
            sprintf(mesh + strlen(mesh), "%s%u", axis ? "x" : "", size);
            room /= size;
        }
        draw_placements(&draws, axes, dims, a);
        draw_placements(&draws, axes, dims, b);
        check_pairs(shape, mesh, (const char *const[]){a, b}, 2);
    }
}

CASE(test_a_shard_off_by_one_row_is_caught)
{
    static const char *const rows[] = {"S0", "R"};
    struct pairs pairs = {"11x7", "3", rows, 2, 7};
    struct ls_error error = {0};
    assert_int_equal(ls_world_run(3, pairs_body, &pairs, &error), LS_ENUMERIC);
    assert_non_null(strstr(error.text, "element 28 is 35, expected 28"));
}

/* ---- bits of sums ---------------------------------------------------------------------------- */

static float hard(int64_t rank, int64_t i)
{
    return (float)(i % 97 + 1) * (rank % 2 ? -1e-3f : 1e3f) / (float)(rank + 1);
}

/* The tree over the last axis, then over the first. */
static float grid_sum(const struct ls_mesh *mesh, int64_t i)
{
    float rows[12], values[12];
    for (int64_t a = 0; a < mesh->size[0]; a++) {
        for (int64_t b = 0; b < mesh->size[1]; b++)
            values[b] = hard(a * mesh->size[1] + b, i);
        rows[a] = ls_tree_sum(values, mesh->size[1]);
    }
    return ls_tree_sum(rows, mesh->size[0]);
}

static int body_bits(struct ls_comm *comm, void *user, struct ls_error *error)
{
    const char *const *mesh_and_target = user;
    struct ls_dtensor_spec from_spec = cases_spec("11x7", mesh_and_target[0], "P,P");
    struct ls_dtensor_spec to_spec = cases_spec("11x7", mesh_and_target[0], mesh_and_target[1]);
    struct ls_mesh_comms comms = {0};
    struct ls_dtensor from = {0}, to = {0};
    struct ls_runs runs;
    struct ls_run run;
    int status = ls_mesh_comms_init(&comms, &from_spec.mesh, comm, error);
    if (status == LS_OK)
        status = ls_dtensor_init(&from, &from_spec, comms.rank, NULL, error);
    if (status == LS_OK)
        status = ls_dtensor_init(&to, &to_spec, comms.rank, NULL, error);
    for (int64_t i = 0; status == LS_OK && i < from.local_count; i++)
        ((float *)from.data)[i] = hard(comms.rank, i);
    if (status == LS_OK)
        status = ls_redistribute(&from, &to, &comms, error);
    if (status == LS_OK)
        for (ls_runs_init(&runs, &to.spec, to.rank); ls_runs_next(&runs, &run);)
            for (int64_t i = 0; i < run.count; i++) {
                float got = ((float *)to.data)[run.local + i];
                float expected = grid_sum(&to.spec.mesh, run.global + i);
                if (memcmp(&got, &expected, sizeof got) != 0)
                    status = ls_error_set(error, LS_ENUMERIC, "element %d is %a, expected %a",
                                          (int)(run.global + i), (double)got, (double)expected);
            }
    ls_dtensor_release(&to);
    ls_dtensor_release(&from);
    ls_mesh_comms_release(&comms);
    return status;
}

/* The same bits whatever the sum becomes, and on the powers of two those of the tree over ranks. */
CASE(test_sums_are_trees)
{
    static const char *const targets[] = {"R,R", "S0,R", "R,S0", "S0,S1", "S1,S1", "S0/2,S0"};
    static const char *const meshes[] = {"2x2", "2x3", "3x2", "4x3", "1x5"};
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
        for (size_t t = 0; t < sizeof targets / sizeof *targets; t++) {
            struct ls_mesh mesh;
            cases_mesh(meshes[m], &mesh);
            run_ranks(ls_mesh_ranks(&mesh), body_bits,
                      (void *)(const char *const[]){meshes[m], targets[t]});
        }
    struct ls_mesh mesh;
    cases_mesh("4x2", &mesh);
    for (int64_t i = 0; i < 97; i++) {
        float leaves[8], forward = 0;
        for (int r = 0; r < 8; r++)
            leaves[r] = hard(r, i);
        for (int r = 0; r < 8; r++)
            forward += leaves[r];
        float tree = ls_tree_sum(leaves, 8), grid = grid_sum(&mesh, i);
        if (tree != grid)
            fail_msg("element %d: the tree over ranks is %a, over axes %a", (int)i, (double)tree,
                     (double)grid);
        /* The broken twin: rank order is another sum. */
        if (i == 0 && forward == tree)
            fail_msg("rank order gives %a, too", (double)forward);
    }
}

static int body_values(struct ls_comm *comm, void *user, struct ls_error *error)
{
    /* -0.0 survives a detour over Partial; NaN wins a maximum; avg divides once. */
    struct ls_dtensor_spec replica = cases_spec("3", "3", "R"), sum = cases_spec("3", "3", "P");
    struct ls_dtensor_spec max = cases_spec("3", "3", "Pmax"), avg = cases_spec("3", "3", "Pavg");
    struct ls_mesh_comms comms = {0};
    float a[3] = {-0.0f, 1.1f, NAN}, b[3], c[3];
    struct ls_dtensor x, y, z;
    int status = ls_mesh_comms_init(&comms, &replica.mesh, comm, error);
    if (status != LS_OK)
        return status;
    ls_dtensor_init(&x, &replica, comms.rank, a, error);
    ls_dtensor_init(&y, &sum, comms.rank, b, error);
    ls_dtensor_init(&z, &replica, comms.rank, c, error);
    status = ls_redistribute(&x, &y, &comms, error);
    if (status == LS_OK)
        status = ls_redistribute(&y, &z, &comms, error);
    if (status == LS_OK && (!signbit(c[0]) || c[1] != 1.1f || !isnan(c[2])))
        status = ls_error_set(error, LS_ENUMERIC, "sum: %a %a %a", (double)c[0], (double)c[1],
                              (double)c[2]);
    y.spec = max;
    memcpy(b, (float[3]){(float)comms.rank, -1, comms.rank == 1 ? NAN : 5}, sizeof b);
    if (status == LS_OK)
        status = ls_redistribute(&y, &z, &comms, error);
    if (status == LS_OK && (c[0] != 2 || c[1] != -1 || !isnan(c[2])))
        status = ls_error_set(error, LS_ENUMERIC, "max: %a %a %a", (double)c[0], (double)c[1],
                              (double)c[2]);
    y.spec = avg;
    memcpy(b, (float[3]){1, (float)comms.rank, 0.1f}, sizeof b);
    if (status == LS_OK)
        status = ls_redistribute(&y, &z, &comms, error);
    if (status == LS_OK && (c[0] != 1 || c[1] != 1 || c[2] != (0.1f + 0.1f + 0.1f) / 3))
        status = ls_error_set(error, LS_ENUMERIC, "avg: %a %a %a", (double)c[0], (double)c[1],
                              (double)c[2]);
    ls_mesh_comms_release(&comms);
    return status;
}

CASE(test_zeros_nans_and_averages)
{
    run_ranks(3, body_values, NULL);
}

/* ---- what moves ------------------------------------------------------------------------------ */

static void expect_plan(const char *mesh, const char *from_text, const char *to_text,
                        const char *expected)
{
    static const char *const names[] = {"local",          "all_gather", "all_reduce",
                                        "reduce_scatter", "all_to_all", "exchange"};
    struct ls_dtensor_spec from = cases_spec("12x24", mesh, from_text);
    struct ls_dtensor_spec to = cases_spec("12x24", mesh, to_text);
    struct ls_redistribute_step steps[LS_REDISTRIBUTE_STEPS_MAX];
    struct ls_error error = {0};
    char text[256] = "";
    int count = ls_redistribute_plan(&from, &to, 1, steps, &error);
    for (int i = 0; i < count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s %d x%d", i ? ", " : "",
                 names[steps[i].op], steps[i].axis, (int)steps[i].count);
    if (strcmp(text, expected) != 0)
        fail_msg("%s: %s to %s is \"%s\", expected \"%s\"", mesh, from_text, to_text, text,
                 expected);
}

CASE(test_the_cheapest_operation)
{
    expect_plan("4", "R", "R", "");
    expect_plan("4", "S0", "R", "all_gather 0 x72");
    expect_plan("4", "S1", "R", "all_gather 0 x72");
    expect_plan("5", "S0", "R", "all_gather 0 x72"); /* 3 of 12 rows: padded */
    expect_plan("4", "P", "R", "all_reduce 0 x288");
    expect_plan("4", "Pmax", "R", "all_gather 0 x288");
    expect_plan("4", "P", "S0", "reduce_scatter 0 x72");
    expect_plan("4", "Pmin", "S1", "all_to_all 0 x72");
    expect_plan("4", "S0", "S1", "all_to_all 0 x18");
    expect_plan("4", "S0", "S0/3", "all_to_all 0 x24");
    expect_plan("4", "R", "S1", "local 0 x0");
    expect_plan("4", "R", "P", "local 0 x0");
    expect_plan("4", "S0", "P", "local 0 x0");
    expect_plan("4", "P", "Pmax", "all_reduce 0 x288, local 0 x0");
    expect_plan("2x2", "S0,S1", "S0,R", "all_gather 1 x72");
    expect_plan("2x2", "P,P", "R,R", "all_reduce 1 x288, all_reduce 0 x288");
    expect_plan("2x2", "P,P", "S0,S1", "reduce_scatter 1 x144, reduce_scatter 0 x72");
    expect_plan("2x2", "P,S1", "S0,S1", "reduce_scatter 0 x72");
    /* Two gathers bring less than a whole: no exchange. */
    expect_plan("2x2", "S0,S1", "R,R", "all_gather 1 x72, all_gather 0 x144");
    /* FSDP over TP, gathered over dp: axis by axis it would be made whole first. */
    expect_plan("2x2", "S0/2,S0", "R,S0", "exchange -1 x72");
    /* Rank 1 has rows 6 to 11 and wants 0 to 5; ranks 0 and 3 want what they have. */
    expect_plan("2x2", "R,S0", "S0,R", "exchange -1 x144");
}

static int body_bytes(struct ls_comm *comm, void *user, struct ls_error *error)
{
    struct ls_dtensor_spec from_spec = cases_spec("12x24", "2x2", "S0/2,S0");
    struct ls_dtensor_spec to_spec = cases_spec("12x24", "2x2", "R,S0");
    struct ls_mesh_comms comms = {0};
    struct ls_dtensor from = {0}, to = {0};
    struct ls_comm_stats before, after;
    int status = ls_mesh_comms_init(&comms, &from_spec.mesh, comm, error);
    if (status == LS_OK)
        status = ls_dtensor_init(&from, &from_spec, comms.rank, NULL, error);
    if (status == LS_OK)
        status = ls_dtensor_init(&to, &to_spec, comms.rank, NULL, error);
    if (status == LS_OK) {
        cases_fill(&from);
        ls_comm_get_stats(comms.all, &before);
        status = ls_redistribute(&from, &to, &comms, error);
        ls_comm_get_stats(comms.all, &after);
    }
    /* A shard of 72 floats to one peer, and 8 bytes to each of 3 to agree. */
    int64_t sent = after.sent_bytes - before.sent_bytes;
    if (status == LS_OK && sent != 72 * 4 + 8 * 3)
        status = ls_error_set(error, LS_ENUMERIC, "%lld bytes, expected 312", (long long)sent);
    if (status == LS_OK)
        status = cases_check(&to, 1, error);
    ls_dtensor_release(&to);
    ls_dtensor_release(&from);
    ls_mesh_comms_release(&comms);
    return status;
}

CASE(test_bytes_of_fsdp_over_tp)
{
    run_ranks(4, body_bytes, NULL);
}

SUITE_MAIN(NULL, NULL)
