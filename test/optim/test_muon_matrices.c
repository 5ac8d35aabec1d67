/* Muon over ranks: small matrices beside PyTorch's torch.optim.Muon (test/golden/muon.txt, by
 * tools/golden_muon.py), the same bits on meshes that cut them in every way, who owns what. */
#include "../support/suite.h"
#include "optim/muon_matrices.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- parameters ------------------------------------------------------------------------------ */

struct shape {
    int64_t rows, cols;
    int lie;     /* of `placements` */
    bool hidden; /* else AdamW's */
};
enum { PARAMS_MAX = 8, AXES = 4 };

/* How a matrix may lie over dp_replicate, shard, tp and sharers, as ls_layout_params has it. */
enum { WHOLE, ROWS, ROWS_TP, COLS_TP, SHARED, COLS_ONLY, LIES };
static void place(int lie, int64_t tp, struct ls_placement placements[AXES])
{
    const struct ls_placement all[LIES][AXES] = {
        [WHOLE] = {ls_replicate(), ls_replicate(), ls_replicate(), ls_replicate()},
        [ROWS] = {ls_replicate(), ls_shard(0), ls_replicate(), ls_replicate()},
        [ROWS_TP] = {ls_replicate(), ls_strided_shard(0, tp), ls_shard(0), ls_shard(0)},
        [COLS_TP] = {ls_replicate(), ls_shard(0), ls_shard(1), ls_shard(1)},
        [SHARED] = {ls_replicate(), ls_strided_shard(0, tp), ls_shard(0), ls_replicate()},
        [COLS_ONLY] = {ls_replicate(), ls_replicate(), ls_shard(1), ls_replicate()},
    };
    memcpy(placements, all[lie], sizeof all[lie]);
}

static void params_make(const struct shape *shapes, int count, const int64_t sizes[AXES],
                        struct ls_param list[PARAMS_MAX], struct ls_params *params)
{
    static const char *const names[AXES] = {"dp_replicate", "shard", "tp", "sharers"};
    struct ls_mesh mesh;
    struct ls_error error = {0};
    assert_int_equal(ls_mesh_init(&mesh, AXES, names, sizes, &error), LS_OK);
    *params = (struct ls_params){.list = list, .count = count};
    for (int i = 0; i < count; i++) {
        const struct shape *s = &shapes[i];
        struct ls_placement placements[AXES];
        bool both = s->lie == ROWS_TP || s->lie == COLS_TP;
        place(s->lie, both ? sizes[2] * sizes[3] : sizes[2], placements);
        list[i] = (struct ls_param){.rows = s->rows,
                                    .cols = s->cols,
                                    .global_rows = s->rows,
                                    .global_cols = s->cols,
                                    .matrix = true,
                                    .hidden = s->hidden,
                                    .decay = true};
        snprintf(list[i].name, sizeof list[i].name, "matrix.%d", i);
        assert_int_equal(ls_dtensor_spec_init(&list[i].spec, LS_F32, 2,
                                              (int64_t[]){s->rows, s->cols}, &mesh, placements,
                                              &error),
                         LS_OK);
    }
}

/* ---- a rank ---------------------------------------------------------------------------------- */

struct job {
    const struct shape *shapes;
    int count;
    int64_t sizes[AXES];
    struct ls_optim_config config;
    int steps;
    const float *begin[PARAMS_MAX];    /* parameters before the first step */
    float *whole[PARAMS_MAX];          /* and after the last */
    float *momentum[PARAMS_MAX];       /* state 0 then */
    const float *gradient[PARAMS_MAX]; /* [steps, rows, cols] */
    bool check;                        /* compare with whole and momentum instead of writing them */
};

/* A rank's state: slices behind each other, room as rank 0 needs it. */
struct rank {
    struct ls_params params;
    struct ls_param list[PARAMS_MAX];
    struct ls_slice slices[PARAMS_MAX];
    struct ls_zero_slice parts[PARAMS_MAX];
    struct ls_arena arena;
    struct ls_ops ops;
    struct ls_optimizer optimizer;
    float *master, *gradient;
};

enum { TO_SLICE, FROM_SLICE, COMPARE };
/* Between a whole matrix and this rank's slice of it; returns how many elements differ. */
static int64_t slice_move(const struct ls_dtensor_spec *spec, int rank, float *whole, float *slice,
                          int how)
{
    struct ls_runs runs;
    struct ls_run run;
    int64_t differing = 0;
    ls_runs_init(&runs, spec, rank);
    while (ls_runs_next(&runs, &run)) {
        size_t bytes = (size_t)run.count * sizeof *whole;
        if (how == COMPARE)
            differing += memcmp(whole + run.global, slice + run.local, bytes) != 0;
        else if (how == TO_SLICE)
            memcpy(slice + run.local, whole + run.global, bytes);
        else
            memcpy(whole + run.global, slice + run.local, bytes);
    }
    return differing;
}

/* Measured, and then taken. */
static int optimizer_open(struct rank *r, const struct job *job, const struct ls_matrices *matrices,
                          struct ls_error *error)
{
    struct ls_arena measure;
    struct ls_optimizer measured;
    ls_arena_measure(&measure);
    ls_optimizer_init(&measured, &job->config, r->slices, job->count, NULL, &measure);
    int status = ls_optimizer_meet(&measured, matrices, &measure, error);
    ls_optimizer_release(&measured);
    if (!status)
        status = ls_arena_init(&r->arena, measure.used, error);
    if (status)
        return status;
    ls_optimizer_init(&r->optimizer, &job->config, r->slices, job->count, NULL, &r->arena);
    return ls_optimizer_meet(&r->optimizer, matrices, &r->arena, error);
}

static int rank_open(struct rank *r, const struct job *job, struct ls_comm *comm,
                     struct ls_error *error)
{
    int rank = ls_comm_rank(comm);
    int64_t elements = 0;
    params_make(job->shapes, job->count, job->sizes, r->list, &r->params);
    for (int i = 0; i < job->count; i++) {
        r->parts[i].room = ls_dtensor_local_shape(&r->list[i].spec, 0, NULL);
        elements += ls_round_up(r->parts[i].room, 16);
    }
    r->master = calloc((size_t)elements + 1, sizeof *r->master);
    r->gradient = calloc((size_t)elements + 1, sizeof *r->gradient);
    elements = 0;
    for (int i = 0; i < job->count; i++) {
        const struct ls_dtensor_spec *spec = &r->list[i].spec;
        r->parts[i].count = ls_dtensor_local_shape(spec, rank, NULL);
        r->parts[i].gradient = elements;
        r->parts[i].second = -1;
        r->slices[i] = (struct ls_slice){.param = &r->list[i],
                                         .part = &r->parts[i],
                                         .lent = true,
                                         .master = r->master + elements};
        slice_move(spec, rank, (float *)job->begin[i], r->slices[i].master, TO_SLICE);
        elements += ls_round_up(r->parts[i].room, 16);
    }
    const struct ls_matrices matrices = {.params = &r->params, .comm = comm, .rank = rank};
    int status = optimizer_open(r, job, &matrices, error);
    return status ? status : ls_ops_init(&r->ops, 1, ls_isa_best(), error);
}

static void rank_close(struct rank *r)
{
    ls_optimizer_release(&r->optimizer);
    ls_arena_release(&r->arena);
    ls_ops_release(&r->ops);
    free(r->master);
    free(r->gradient);
}

static int rank_results(struct rank *r, const struct job *job, int rank, struct ls_error *error)
{
    int64_t differing = 0;
    for (int i = 0; i < job->count; i++) {
        const struct ls_dtensor_spec *spec = &r->list[i].spec;
        int how = job->check ? COMPARE : FROM_SLICE;
        differing += slice_move(spec, rank, job->whole[i], r->slices[i].master, how);
        differing += slice_move(spec, rank, job->momentum[i], r->slices[i].state[0], how);
    }
    return differing ? ls_error_set(error, LS_ENUMERIC, "%ld runs differ", (long)differing) : LS_OK;
}

static int body(struct ls_comm *comm, void *user, struct ls_error *error)
{
    const struct job *job = user;
    int rank = ls_comm_rank(comm);
    struct rank r = {0};
    int status = rank_open(&r, job, comm, error);
    for (int s = 0; s < job->steps && !status; s++) {
        for (int i = 0; i < job->count; i++) {
            int64_t elements = job->shapes[i].rows * job->shapes[i].cols;
            slice_move(&r.list[i].spec, rank, (float *)job->gradient[i] + s * elements,
                       r.gradient + r.parts[i].gradient, TO_SLICE);
        }
        const struct ls_optim_step step = {s + 1, job->config.lr, r.gradient, 1};
        status = ls_optimizer_step(&r.optimizer, &r.ops, r.slices, job->count, &step, error);
    }
    if (!status)
        status = rank_results(&r, job, rank, error);
    rank_close(&r);
    return status;
}

static void job_run(struct job *job)
{
    struct ls_error error = {0};
    int ranks = (int)(job->sizes[0] * job->sizes[1] * job->sizes[2] * job->sizes[3]);
    if (ls_world_run(ranks, body, job, &error))
        fail_msg("mesh %ld x %ld x %ld x %ld: %s", (long)job->sizes[0], (long)job->sizes[1],
                 (long)job->sizes[2], (long)job->sizes[3], error.text);
}

/* ---- beside PyTorch -------------------------------------------------------------------------- */

static float *values_read(FILE *file, const char *name, int64_t count, float *out)
{
    char word[16];
    assert_int_equal(fscanf(file, "%15s", word), 1);
    assert_string_equal(word, name);
    for (int64_t i = 0; i < count; i++)
        assert_int_equal(fscanf(file, "%f", &out[i]), 1);
    return out;
}

/* |got - want| over |want - from|: of what the steps moved. */
static double distance(const float *got, const float *want, const float *from, int64_t count)
{
    double apart = 0, moved = 0;
    for (int64_t i = 0; i < count; i++) {
        apart += pow((double)got[i] - (double)want[i], 2);
        moved += pow((double)want[i] - (double)from[i], 2);
    }
    return sqrt(apart / moved);
}

enum { ELEMENTS_MAX = 256, STEPS = 3 };

static bool case_read(FILE *file, struct shape *shape, struct ls_optim_config *config)
{
    char scale[32], line[512];
    int nesterov, steps;
    long position;
    do {
        position = ftell(file);
        if (!fgets(line, sizeof line, file))
            return false;
    } while (*line == '#');
    fseek(file, position, SEEK_SET);
    *config = (struct ls_optim_config){.kind = LS_MUON};
    assert_int_equal(fscanf(file, "case %ld %ld %d %31s %f %f %f %d %d\n", &shape->rows,
                            &shape->cols, &nesterov, scale, &config->lr, &config->weight_decay,
                            &config->momentum, &config->ns_steps, &steps),
                     9);
    assert_int_equal(steps, STEPS);
    assert_true(shape->rows * shape->cols <= ELEMENTS_MAX);
    config->nesterov = nesterov;
    config->muon_scale = !strcmp(scale, "original") ? LS_MUON_ORIGINAL : LS_MUON_MATCH_RMS;
    return true;
}

/* PyTorch's formulas in float64 within what float32 rounds: parameters of about 1 have moved by
 * 0.01, of which a last place is 1e-5. PyTorch itself, which orthogonalises in
 * bfloat16 (8 bits), within a few of its roundings: it is that far from its own formulas. */
CASE(test_pytorch)
{
    FILE *file = fopen("test/golden/muon.txt", "r");
    struct shape shape = {.hidden = true};
    struct job job = {.shapes = &shape, .count = 1, .sizes = {1, 1, 1, 1}, .steps = STEPS};
    int cases = 0;
    assert_non_null(file);
    for (; case_read(file, &shape, &job.config); cases++) {
        static float from[ELEMENTS_MAX], param[ELEMENTS_MAX], gradient[STEPS * ELEMENTS_MAX];
        static float want[ELEMENTS_MAX], buffer[ELEMENTS_MAX], rounded[ELEMENTS_MAX],
            momentum[ELEMENTS_MAX], none[ELEMENTS_MAX];
        int64_t n = shape.rows * shape.cols;
        values_read(file, "param", n, from);
        for (int s = 0; s < STEPS; s++)
            values_read(file, "grad", n, gradient + s * n);
        values_read(file, "want", n, want);
        values_read(file, "buffer", n, buffer);
        values_read(file, "rounded", n, rounded);
        assert_int_equal(fgetc(file), '\n');
        job.begin[0] = from;
        job.whole[0] = param;
        job.momentum[0] = momentum;
        job.gradient[0] = gradient;
        job_run(&job);
        double exact = distance(param, want, from, n), held = distance(momentum, buffer, none, n);
        double half = distance(param, rounded, from, n);
        if (!(exact < 5e-5) || !(held < 1e-6) || !(half < 0.03))
            fail_msg("case %d, %ld x %ld: %g from the formulas, %g in the momentum, %g from bf16",
                     cases, (long)shape.rows, (long)shape.cols, exact, held, half);
    }
    assert_int_equal(cases, 8);
    fclose(file);
}

/* ---- meshes ---------------------------------------------------------------------------------- */

static const struct shape shapes[] = {
    {12, 10, ROWS_TP, true}, {8, 12, COLS_TP, true}, {4, 9, SHARED, true},    {7, 9, ROWS, true},
    {6, 6, WHOLE, true},     {40, 6, ROWS, false},   {3, 8, COLS_ONLY, true}, {5, 8, COLS_TP, true},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0], MESH_STEPS = 2 };

static float *normal_new(const char *purpose, int i, int64_t count)
{
    float *values = calloc((size_t)count, sizeof *values);
    assert_non_null(values);
    ls_normal_fill(ls_philox_key_of(1, purpose), i * 1000, count, 0, 1, values);
    return values;
}

/* The same on every mesh, with rows that do not divide, ranks without a row, more ranks than
 * matrices, copies; momentum too. */
CASE(test_any_mesh_has_the_same_bits)
{
    static const int64_t meshes[][AXES] = {{1, 1, 1, 1}, {2, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 2, 1},
                                           {1, 1, 1, 2}, {1, 5, 1, 1}, {3, 1, 2, 1}, {2, 3, 2, 1},
                                           {1, 2, 2, 2}, {2, 2, 1, 2}};
    struct job job = {.shapes = shapes, .count = SHAPES, .steps = MESH_STEPS};
    job.config = (struct ls_optim_config){.kind = LS_MUON,
                                          .lr = 0.01f,
                                          .adamw_lr = 0.003f,
                                          .momentum = 0.95f,
                                          .nesterov = true,
                                          .ns_steps = 5,
                                          .muon_scale = LS_MUON_MATCH_RMS,
                                          .beta1 = 0.9f,
                                          .beta2 = 0.95f,
                                          .epsilon = 1e-8f,
                                          .weight_decay = 0.1f};
    for (int i = 0; i < SHAPES; i++) {
        int64_t n = shapes[i].rows * shapes[i].cols;
        job.gradient[i] = normal_new("gradient", i, MESH_STEPS * n);
        job.begin[i] = normal_new("begin", i, n);
        job.whole[i] = normal_new("whole", i, n);
        job.momentum[i] = normal_new("momentum", i, n);
    }
    for (size_t m = 0; m < sizeof meshes / sizeof meshes[0]; m++) {
        memcpy(job.sizes, meshes[m], sizeof job.sizes);
        job_run(&job);
        job.check = true;
    }
    /* And a difference is seen. */
    struct ls_error error = {0};
    memcpy(job.sizes, meshes[0], sizeof job.sizes);
    job.whole[0][7] *= 1 + 0x1p-22f;
    assert_int_equal(ls_world_run(1, body, &job, &error), LS_ENUMERIC);
    for (int i = 0; i < SHAPES; i++) {
        free((float *)job.gradient[i]);
        free((float *)job.begin[i]);
        free(job.whole[i]);
        free(job.momentum[i]);
    }
}

/* A hidden matrix has one state, and the others two: nothing is taken for a second one. */
CASE(test_hidden_matrices_have_one_state)
{
    const struct ls_optim_config config = {.kind = LS_MUON};
    const struct ls_param params[] = {{.hidden = true}, {.hidden = false}};
    const struct ls_zero_slice parts[] = {{.count = 4096, .room = 4096},
                                          {.count = 1024, .room = 1024}};
    struct ls_slice slices[] = {{.param = &params[0], .part = &parts[0], .lent = true},
                                {.param = &params[1], .part = &parts[1], .lent = true}};
    struct ls_arena arena;
    struct ls_optimizer optimizer;
    struct ls_error error = {0};
    ls_arena_measure(&arena);
    ls_optimizer_init(&optimizer, &config, slices, 2, NULL, &arena);
    assert_int_equal(arena.used, 4 * (4096 + 2 * 1024));
    assert_int_equal(ls_arena_init(&arena, 4 * (4096 + 2 * 1024), &error), LS_OK);
    ls_optimizer_init(&optimizer, &config, slices, 2, NULL, &arena);
    assert_null(slices[0].state[1]);
    assert_ptr_equal(slices[1].state[0], (float *)slices[0].state[0] + 4096);
    assert_non_null(slices[1].state[1]);
    ls_optimizer_release(&optimizer);
    ls_arena_release(&arena);
}

/* ---- owners ---------------------------------------------------------------------------------- */

/* Each hidden matrix has one owner, a rank owns at most one a round, and no rank has two matrices
 * more than another of the same shape; few matrices are spread over copies first. */
CASE(test_owners_share_the_work)
{
    struct shape same[PARAMS_MAX];
    struct ls_param list[PARAMS_MAX];
    struct ls_params params;
    struct muon_owners owners;
    struct ls_error error = {0};
    for (int i = 0; i < PARAMS_MAX; i++)
        same[i] = (struct shape){6, 6, ROWS, i != 3};
    params_make(same, PARAMS_MAX, (int64_t[]){2, 3, 1, 1}, list, &params);
    assert_int_equal(muon_owners_init(&owners, &params, &error), LS_OK);
    assert_int_equal(owners.count, PARAMS_MAX - 1);
    assert_int_equal(owners.rounds, 2);
    int copies[2] = {0};
    for (int m = 0; m < owners.count; m++) {
        const struct muon_matrix *matrix = &owners.list[m];
        assert_int_not_equal(matrix->index, 3);
        assert_ptr_equal(muon_owned(&owners, matrix->round, matrix->owner), matrix);
        assert_true(m == 0 || matrix->round >= owners.list[m - 1].round);
        copies[matrix->owner / 3]++;
    }
    assert_true(abs(copies[0] - copies[1]) == 1);
    /* Parts come from the owner's own copy. */
    for (int rank = 0; rank < owners.ranks; rank++)
        assert_int_equal(muon_source(&owners.list[0], rank),
                         owners.list[0].owner / 3 * 3 + rank % 3);
    muon_owners_release(&owners);
}

/* The largest go first, and who has one gets less of the rest. */
CASE(test_owners_go_by_size)
{
    static const struct shape mixed[] = {
        {4, 4, WHOLE, true}, {4, 4, WHOLE, true}, {64, 64, WHOLE, true}, {4, 4, WHOLE, true}};
    struct ls_param list[PARAMS_MAX];
    struct ls_params params;
    struct muon_owners owners;
    struct ls_error error = {0};
    params_make(mixed, 4, (int64_t[]){2, 1, 1, 1}, list, &params);
    assert_int_equal(muon_owners_init(&owners, &params, &error), LS_OK);
    int large = owners.list[0].index == 2 ? owners.list[0].owner : owners.list[1].owner;
    for (int m = 0; m < owners.count; m++)
        assert_true((owners.list[m].owner == large) == (owners.list[m].index == 2));
    assert_int_equal(owners.rounds, 3);
    muon_owners_release(&owners);
}

SUITE_MAIN(NULL, NULL)
