/* A distributed tensor: 888 x 12 over 4 ranks, through every placement.
 *
 *   make examples && build/examples/dtensor
 *   mpirun -n 4 build/examples/dtensor       the same among processes
 *
 * Element i of the tensor is i, so what a rank holds tells where it lies: every value is checked
 * after each step. Last, the 4 ranks become a mesh of 2 x 2, as data and tensor parallel use it. */
#include <lockstep/dtensor.h>

#include <stdio.h>
#include <stdlib.h>

enum { RANKS = 4, ROWS = 888, COLUMNS = 12 };

/* Element `global` of what a rank holds must be `factor` times its index. What is Partial has
 * values only when it is reduced. */
static int check(const struct ls_dtensor *tensor, float factor, struct ls_error *error)
{
    const float *data = ls_to_local(tensor);
    struct ls_runs runs;
    struct ls_run run;
    for (int axis = 0; axis < tensor->spec.mesh.axis_count; axis++)
        if (tensor->spec.placement[axis].kind == LS_PARTIAL)
            return LS_OK;
    for (ls_runs_init(&runs, &tensor->spec, tensor->rank); ls_runs_next(&runs, &run);)
        for (int64_t i = 0; i < run.count; i++)
            if (data[run.local + i] != factor * (float)(run.global + i))
                return ls_error_set(error, LS_ENUMERIC, "element %lld is %g, expected %g",
                                    (long long)(run.global + i), (double)data[run.local + i],
                                    (double)(factor * (float)(run.global + i)));
    return LS_OK;
}

/* Rank 0 prints the local shapes and offsets of all: any rank can compute them. */
static void print(const struct ls_dtensor_spec *spec, int64_t rank, const char *how)
{
    char text[LS_PLACEMENT_TEXT_MAX];
    int64_t shape[2], offset[2];
    if (rank != 0)
        return;
    for (int axis = 0; axis < spec->mesh.axis_count; axis++)
        printf("%s%s", axis ? ", " : "", ls_placement_text(spec->placement[axis], text));
    printf("  (%s)\n", how);
    for (int64_t r = 0; r < ls_mesh_ranks(&spec->mesh); r++) {
        ls_dtensor_local_shape(spec, r, shape);
        ls_dtensor_offset(spec, r, offset);
        printf("    rank %d: %3d x %2d from row %3d, column %2d\n", (int)r, (int)shape[0],
               (int)shape[1], (int)offset[0], (int)offset[1]);
    }
}

static const char *const op_names[] = {"nothing moves",  "all-gather", "all-reduce",
                                       "reduce-scatter", "all-to-all", "point to point"};

/* *tensor becomes the same tensor with other placements. */
static int walk(struct ls_dtensor *tensor, const struct ls_placement *placements, float factor,
                struct ls_mesh_comms *comms, struct ls_error *error)
{
    struct ls_redistribute_step steps[LS_REDISTRIBUTE_STEPS_MAX];
    struct ls_dtensor_spec spec;
    struct ls_dtensor next = {0};
    int status = ls_dtensor_spec_place(&spec, &tensor->spec, placements, error);
    if (status == LS_OK)
        status = ls_dtensor_init(&next, &spec, comms->rank, NULL, error);
    if (status == LS_OK)
        status = ls_redistribute(tensor, &next, comms, error);
    if (status == LS_OK)
        status = check(&next, factor, error);
    if (status != LS_OK) {
        ls_dtensor_release(&next);
        return status;
    }
    int count = ls_redistribute_plan(&tensor->spec, &spec, comms->rank, steps, error);
    print(&spec, comms->rank, op_names[count > 0 ? steps[0].op : LS_STEP_LOCAL]);
    ls_dtensor_release(tensor);
    *tensor = next;
    return LS_OK;
}

/* Every rank brings the whole as a term: the sum is RANKS times it, cut or on every rank. */
static int walk_terms(float *term, struct ls_mesh_comms *comms, struct ls_error *error)
{
    const int64_t shape[] = {ROWS, COLUMNS};
    const struct ls_placement sum = ls_partial(LS_REDUCE_SUM), rows = ls_shard(0);
    const struct ls_placement path[] = {
        ls_replicate(),            /* Partial -> Replicate */
        ls_partial(LS_REDUCE_MAX), /* Replicate -> Partial */
        ls_shard(1),               /* Partial(max) -> Shard */
        ls_partial(LS_REDUCE_SUM), /* Shard -> Partial */
        ls_shard(0),               /* Partial -> Shard */
        ls_partial(LS_REDUCE_AVG),
        ls_replicate(),
        ls_partial(LS_REDUCE_MIN),
        ls_replicate(),
    };
    struct ls_dtensor terms;
    int status = ls_from_local(&terms, LS_F32, 2, shape, term, &sum, comms, error);
    if (status == LS_OK)
        print(&terms.spec, comms->rank, "from_local: each rank brings a term");
    if (status == LS_OK)
        status = walk(&terms, &rows, RANKS, comms, error);
    for (size_t i = 0; i < sizeof path / sizeof *path && status == LS_OK; i++)
        status = walk(&terms, &path[i], RANKS, comms, error);
    ls_dtensor_release(&terms);
    return status;
}

/* One axis: rows to every placement, then terms of a sum. */
static int walk_line(struct ls_comm *comm, float *full, struct ls_error *error)
{
    const struct ls_placement path[] = {
        ls_shard(1),            /* Shard(0) -> Shard(1) */
        ls_replicate(),         /* Shard -> Replicate */
        ls_strided_shard(0, 2), /* Replicate -> StridedShard */
        ls_shard(0),            /* StridedShard -> Shard */
    };
    const int64_t shape[] = {ROWS, COLUMNS}, ranks = RANKS;
    struct ls_placement rows = ls_shard(0);
    struct ls_mesh mesh;
    struct ls_mesh_comms comms = {0};
    struct ls_dtensor_spec spec;
    struct ls_dtensor tensor = {0};
    int status = ls_mesh_init(&mesh, 1, (const char *const[]){"dp"}, &ranks, error);
    if (status == LS_OK)
        status = ls_mesh_comms_init(&comms, &mesh, comm, error);
    if (status == LS_OK)
        status = ls_dtensor_spec_init(&spec, LS_F32, 2, shape, &mesh, &rows, error);
    if (status == LS_OK)
        status = ls_dtensor_init(&tensor, &spec, comms.rank, NULL, error);
    if (status == LS_OK)
        status = ls_distribute(&tensor, full, &comms, error);
    if (status == LS_OK)
        status = check(&tensor, 1, error);
    if (status == LS_OK)
        print(&spec, comms.rank, "distributed from rank 0");
    for (size_t i = 0; i < sizeof path / sizeof *path && status == LS_OK; i++)
        status = walk(&tensor, &path[i], 1, &comms, error);
    if (status == LS_OK)
        status = walk_terms(full, &comms, error);
    ls_dtensor_release(&tensor);
    ls_mesh_comms_release(&comms);
    return status;
}

/* Two axes: rows cut by tp first and by dp within that, as FSDP over tensor parallel does. */
static int walk_grid(struct ls_comm *comm, const float *full, struct ls_error *error)
{
    const int64_t shape[] = {ROWS, COLUMNS}, sizes[] = {2, RANKS / 2};
    struct ls_placement fsdp[] = {ls_strided_shard(0, RANKS / 2), ls_shard(0)};
    struct ls_placement gathered[] = {ls_replicate(), ls_shard(0)};
    struct ls_placement blocks[] = {ls_shard(0), ls_shard(1)};
    struct ls_mesh mesh;
    struct ls_mesh_comms comms = {0};
    struct ls_dtensor_spec spec;
    struct ls_dtensor tensor = {0};
    int status = ls_mesh_init(&mesh, 2, (const char *const[]){"dp", "tp"}, sizes, error);
    if (status == LS_OK)
        status = ls_mesh_comms_init(&comms, &mesh, comm, error);
    if (status == LS_OK)
        status = ls_dtensor_spec_init(&spec, LS_F32, 2, shape, &mesh, fsdp, error);
    if (status == LS_OK)
        status = ls_dtensor_init(&tensor, &spec, comms.rank, NULL, error);
    if (status == LS_OK)
        status = ls_distribute(&tensor, full, &comms, error);
    if (status == LS_OK)
        print(&spec, comms.rank, "a mesh of dp 2 x tp 2; distributed from rank 0");
    if (status == LS_OK)
        status = walk(&tensor, gathered, 1, &comms, error);
    if (status == LS_OK)
        status = walk(&tensor, blocks, 1, &comms, error);
    ls_dtensor_release(&tensor);
    ls_mesh_comms_release(&comms);
    return status;
}

/* Every rank runs this: a thread or a process. */
static int rank_main(struct ls_comm *comm, void *user, struct ls_error *error)
{
    (void)user;
    if (ls_comm_size(comm) != RANKS)
        return ls_error_set(error, LS_EINVAL, "%d ranks: start it with %d", ls_comm_size(comm),
                            RANKS);
    float *full = malloc((size_t)ROWS * COLUMNS * sizeof *full);
    int status = full ? LS_OK : ls_error_set(error, LS_ENOMEM, "no memory for a tensor");
    status = ls_comm_agree(comm, status, error);
    for (int i = 0; i < ROWS * COLUMNS && status == LS_OK; i++)
        full[i] = (float)i;
    if (status == LS_OK)
        status = walk_line(comm, full, error);
    if (status == LS_OK)
        status = walk_grid(comm, full, error);
    if (status == LS_OK && ls_comm_rank(comm) == 0)
        printf("every value where it belongs\n");
    free(full);
    return status;
}

int main(void)
{
    struct ls_error error = {0};
    int status;
    if (ls_mpi_launched()) {
        struct ls_comm *comm;
        status = ls_comm_mpi_new(&comm, &error);
        if (status == LS_OK) {
            status = rank_main(comm, NULL, &error);
            ls_comm_free(comm);
        }
        /* A process that failed ends without a word to the others: the launcher ends them. */
        if (status == LS_OK) {
            ls_mpi_finish();
        }
    } else {
        status = ls_world_run(RANKS, rank_main, NULL, &error);
    }
    if (status != LS_OK)
        fprintf(stderr, "%s\n", error.text);
    return ls_exit_code(status);
}
