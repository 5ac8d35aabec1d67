/* A checkpoint in other pieces: each rank of a layout, a thread here, copies its share of the
 * tensors from the pieces that have something of it. */
#include "state/state_private.h"

#include <lockstep/base/meter.h>

#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { PIECE_BYTES = 1 << 20 };

struct reshard {
    struct ls_checkpoint *from;
    pthread_mutex_t reading; /* of from */
    const struct ls_checkpoint_state *state;
    struct ls_optim_config optim;
    const struct ls_layout *layout;
    const char *run;
    const struct ls_fault *fault;
};

/* A rank at work. */
struct copying {
    struct reshard *of;
    struct ls_params params;
    int64_t rank;
    struct ls_safetensors_writer *to;
    char *piece; /* [PIECE_BYTES] */
};

/* Local elements [run->local, + count) of a slice, which are those of the whole from run->global
 * on. piece has `used` bytes, and is written when it is full. */
static int run_copy(struct copying *c, const struct ls_stored_tensor *tensor,
                    const struct ls_run *run, size_t *used, struct ls_error *error)
{
    size_t element = ls_dtype_bytes(tensor->dtype);
    int status = LS_OK;
    for (int64_t at = 0, count; at < run->count && !status; at += count) {
        count = ls_min(run->count - at, (int64_t)((PIECE_BYTES - *used) / element));
        pthread_mutex_lock(&c->of->reading);
        status = ls_checkpoint_read(c->of->from, tensor, run->global + at, count, c->piece + *used,
                                    error);
        pthread_mutex_unlock(&c->of->reading);
        *used += (size_t)count * element;
        if (!status && PIECE_BYTES - *used < element) {
            status = ls_safetensors_writer_append(c->to, c->piece, *used, error);
            *used = 0;
            ls_progress();
        }
    }
    return status;
}

static int share_copy(struct copying *c, enum ls_checkpoint_part part,
                      const struct state_listing *list, size_t i, struct ls_error *error)
{
    const struct state_share *share = &list->shares[i];
    const struct ls_dtensor_spec *spec = &c->params.list[share->param].spec;
    const struct ls_stored_tensor *tensor;
    int64_t end = share->first + share->count;
    size_t used = 0;
    struct ls_runs runs;
    struct ls_run run;
    int status =
        ls_checkpoint_require(c->of->from, part, list->boxes[i].name, list->entries[i].dtype,
                              spec->dims, spec->shape, &tensor, error);
    if (status) {
        ls_error_prefix(error, "%.300s", c->of->from->directory);
        return status;
    }
    ls_runs_init(&runs, spec, c->rank % ls_mesh_ranks(&spec->mesh)); /* pp is the outermost axis */
    while (!status && ls_runs_next(&runs, &run)) {
        int64_t from = ls_max(run.local, share->first);
        run.count = ls_min(run.local + run.count, end) - from;
        run.global += from - run.local;
        run.local = from;
        status = run_copy(c, tensor, &run, &used, error);
    }
    if (!status && used > 0)
        status = ls_safetensors_writer_append(c->to, c->piece, used, error);
    return status;
}

static int part_copy(struct copying *c, struct ls_checkpoint_writer *checkpoint,
                     enum ls_checkpoint_part part, struct ls_error *error)
{
    const struct state_of_rank of = {&c->of->layout->model, &c->params, &c->of->optim, c->rank};
    const struct ls_tensor_entry *next;
    struct state_listing list;
    int status = state_listing_init(&list, &of, part, error);
    bool begun = !status && list.count > 0;
    if (begun)
        status = ls_checkpoint_writer_begin(checkpoint, part, list.entries, list.boxes, list.count,
                                            &c->to, error);
    for (int64_t i = 1; !status && begun && (next = ls_safetensors_writer_next(c->to)); i++) {
        status = share_copy(c, part, &list, (size_t)(next - list.entries), error);
        if (c->rank == 0)
            ls_meter("tensors", i, (int64_t)list.count);
    }
    if (!status && begun)
        status = ls_checkpoint_writer_end(checkpoint, error);
    if (!status && begun) /* not all ranks' files of both parts are open at once */
        status = ls_checkpoint_writer_sync(checkpoint, error);
    state_listing_release(&list);
    return status;
}

/* Collective over the layout's ranks. */
static int rank_body(struct ls_comm *comm, void *user, struct ls_error *error)
{
    struct reshard *of = user;
    struct copying c = {.of = of, .rank = ls_comm_rank(comm), .piece = malloc(PIECE_BYTES)};
    struct ls_checkpoint_writer *writer;
    bool held[LS_LAYOUT_LAYERS_MAX + 2];
    int64_t at[LS_AXES];
    int status = ls_checkpoint_writer_open(&writer, of->run, of->state, -1, LS_CKPT_SHARED, comm,
                                           c.rank == 0 ? of->fault : NULL, error);
    if (status) {
        free(c.piece);
        return status;
    }
    if (!c.piece)
        status = ls_no_memory(error, "to copy a checkpoint");
    ls_layout_coordinates(of->layout, c.rank, at);
    ls_layout_layers(of->layout, at[LS_AXIS_PP], held, NULL);
    if (!status)
        status = ls_layout_params(of->layout, at[LS_AXIS_TP], held, &c.params, error);
    for (int part = LS_CKPT_MODEL; part <= LS_CKPT_OPTIMIZER && !status; part++)
        if (part == LS_CKPT_MODEL || !of->state->fresh)
            status = part_copy(&c, writer, (enum ls_checkpoint_part)part, error);
    status = ls_checkpoint_writer_commit(writer, status, error);
    ls_params_release(&c.params);
    free(c.piece);
    return status;
}

/* Each tensor that is there is the model's; that each of the model's is there, its ranks find. */
static int tensors_check(const struct reshard *of, struct ls_error *error)
{
    const struct ls_stored_tensor *list;
    struct ls_params params;
    size_t most[2] = {0, 0};
    int status = ls_layout_params(of->layout, 0, NULL, &params, error);
    if (status)
        return status;
    for (int i = 0; i < params.count; i++) {
        most[LS_CKPT_MODEL]++;
        most[LS_CKPT_OPTIMIZER] += (size_t)ls_param_states(&of->optim, &params.list[i]);
    }
    ls_params_release(&params);
    for (int part = LS_CKPT_MODEL; part <= LS_CKPT_OPTIMIZER && !status; part++) {
        size_t found = ls_checkpoint_tensors(of->from, (enum ls_checkpoint_part)part, &list);
        if (found > most[part])
            status =
                ls_error_set(error, LS_ECKPT,
                             "%.300s: holds %zu tensors, expected the %zu of its recipe's model",
                             of->from->directory, found, most[part]);
    }
    return status;
}

/* Each rank has a file open, and the process those that it reads and some of its own. */
static int files_admit(const struct reshard *of, struct ls_error *error)
{
    enum { OWN = 64 };
    int64_t others = OWN + ls_min(ls_checkpoint_files(of->from), LS_STORED_FILES_OPEN);
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) || (rlim_t)(of->layout->ranks + others) <= files.rlim_max)
        return LS_OK;
    return ls_error_set(error, LS_EIO,
                        "%lld ranks write as many files at once, beside %lld others, and this "
                        "process may open %llu: raise the limit (ulimit -Hn), or choose fewer "
                        "ranks",
                        (long long)of->layout->ranks, (long long)others,
                        (unsigned long long)files.rlim_max);
}

int ls_state_reshard(struct ls_checkpoint *from, const struct ls_config *config,
                     const struct ls_layout *layout, const char *run_directory,
                     const struct ls_fault *fault, struct ls_error *error)
{
    char text[160];
    struct ls_checkpoint_state state = from->state;
    state_layout_text(layout, text, sizeof text);
    state.layout = text;
    state.start = 0; /* no run's: a copy */
    struct reshard of = {.from = from,
                         .reading = PTHREAD_MUTEX_INITIALIZER,
                         .state = &state,
                         .optim = ls_config_optim(config),
                         .layout = layout,
                         .run = run_directory,
                         .fault = fault};
    int status = files_admit(&of, error);
    if (!status)
        status = tensors_check(&of, error);
    return status ? status : ls_world_run((int)layout->ranks, rank_body, &of, error);
}
