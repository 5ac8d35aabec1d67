/* Muon's matrices over ranks: parts to owners, whole matrices orthogonalised, parts back. No sum is
 * cut: an owner computes a whole matrix, whose parts lie by their index in it. */
#include "optim/muon_matrices.h"

#include <stdlib.h>

enum {
    WINDOW = 64, /* transfers of this rank under way at most */
    TAG_PART = 0,
    TAG_RESULT = 1
};

struct ls_muon {
    struct muon_owners owners;
    struct ls_comm *comm;
    int rank, steps;
    float **place;     /* [owners.count] this rank's part of each matrix */
    int64_t *staged;   /* [owners.count] where it is in staging; -1: in the gradient's place */
    float *staging[2]; /* of an even and an odd round's parts whose gradients are away */
    /* [ranks] where each rank's part of the matrix that is owned in an even or an odd round has its
     * place among the others'. */
    int64_t *offset[2];
    float *parts;  /* [elements of the largest matrix]: of others, as they come */
    float *whole;  /* the same: the matrix that is owned */
    float *work;   /* of ls_newton_schulz */
    float *result; /* parts that leave: whole or work */
    struct ls_request window[WINDOW];
    int64_t started, ended; /* transfers */
    int failed;             /* the first hook that did, in this step */
    struct ls_error why;
};

/* ---- making ---------------------------------------------------------------------------------- */

static struct ls_newton_schulz iteration_of(const struct ls_muon *muon,
                                            const struct muon_matrix *matrix)
{
    return (struct ls_newton_schulz){matrix->param->global_rows, matrix->param->global_cols,
                                     muon->steps};
}

/* Elements of the round that stages most: as many on each rank, by the first one's parts, the
 * largest. */
static int64_t staging_set(struct ls_muon *muon, const struct ls_slice *slices)
{
    int64_t most = 0, round = 0;
    for (int m = 0; m < muon->owners.count; m++) {
        const struct muon_matrix *matrix = &muon->owners.list[m];
        if (m > 0 && matrix->round != matrix[-1].round)
            round = 0;
        bool away = slices && slices[matrix->index].part->gradient_away;
        muon->staged[m] = away ? round : -1;
        if (away)
            round += ls_round_up(ls_dtensor_local_shape(&matrix->param->spec, 0, NULL), 16);
        most = ls_max(most, round);
    }
    return most;
}

/* Every rank has room for the largest matrix, also where it owns none of that size. */
static void buffers_take(struct ls_muon *muon, int64_t staged, struct ls_arena *arena)
{
    int64_t whole = 0, work = 0;
    for (int m = 0; m < muon->owners.count; m++) {
        struct ls_newton_schulz op = iteration_of(muon, &muon->owners.list[m]);
        whole = ls_max(whole, op.rows * op.cols);
        work = ls_max(work, ls_newton_schulz_work(&op));
    }
    if (muon->owners.ranks > 1)
        muon->parts = ls_arena_take(arena, (size_t)whole * sizeof(float));
    for (int i = 0; i < 2; i++)
        muon->staging[i] = ls_arena_take(arena, (size_t)staged * sizeof(float));
    muon->whole = ls_arena_take(arena, (size_t)whole * sizeof(float));
    muon->work = ls_arena_take(arena, (size_t)work * sizeof(float));
}

int muon_new(const struct ls_matrices *matrices, int ns_steps, struct ls_arena *arena,
             struct ls_muon **out, struct ls_error *error)
{
    struct ls_muon *muon = calloc(1, sizeof *muon);
    *out = muon;
    int status = muon ? muon_owners_init(&muon->owners, matrices->params, error) : LS_ENOMEM;
    if (!status) {
        muon->place = calloc((size_t)muon->owners.count + 1, sizeof *muon->place);
        muon->staged = calloc((size_t)muon->owners.count + 1, sizeof *muon->staged);
        for (int i = 0; i < 2; i++)
            muon->offset[i] = calloc((size_t)muon->owners.ranks, sizeof *muon->offset[i]);
    }
    if (!muon ||
        (!status && (!muon->place || !muon->staged || !muon->offset[0] || !muon->offset[1])))
        status = ls_no_memory(error, "for the list of an optimizer's matrices");
    if (status)
        return status;
    muon->comm = matrices->comm;
    muon->rank = matrices->rank;
    muon->steps = ns_steps;
    buffers_take(muon, staging_set(muon, matrices->slices), arena);
    return LS_OK;
}

void muon_free(struct ls_muon *muon)
{
    if (!muon)
        return;
    muon_owners_release(&muon->owners);
    free(muon->place);
    free(muon->staged);
    free(muon->offset[0]);
    free(muon->offset[1]);
    free(muon);
}

/* ---- transfers --------------------------------------------------------------------------------
 *
 * All ranks go through the same list of turns: of each round, for the parts and then for the
 * results, turn s = 1, 2, ..., in which a rank sends to the one s places on, and receives from the
 * one s places back, if there is something to send. Transfers are waited for in that order, so who
 * waits in the earliest turn waits for ranks that have started theirs: no wait is for ever. */

static int64_t count_of(const struct muon_matrix *matrix, int rank)
{
    return ls_dtensor_local_shape(&matrix->param->spec, rank, NULL);
}

static int oldest_wait(struct ls_muon *muon, struct ls_error *error)
{
    return ls_wait(&muon->window[muon->ended++ % WINDOW], error);
}

static int all_wait(struct ls_muon *muon, struct ls_error *error)
{
    int status = LS_OK;
    while (muon->ended < muon->started && !status)
        status = oldest_wait(muon, error);
    return status;
}

static int transfer_start(struct ls_muon *muon, const struct muon_matrix *matrix, float *data,
                          int64_t count, int peer, int tag, bool receive, struct ls_error *error)
{
    int status = muon->started - muon->ended == WINDOW ? oldest_wait(muon, error) : LS_OK;
    if (status)
        return status;
    struct ls_request *request = &muon->window[muon->started++ % WINDOW];
    *request = (struct ls_request){0};
    ls_comm_label(muon->comm, matrix->param->name);
    return receive
               ? ls_recv_start(muon->comm, data, count, LS_F32, peer, tag, request, LS_HERE, error)
               : ls_send_start(muon->comm, data, count, LS_F32, peer, tag, request, LS_HERE, error);
}

/* Whether the owner gets its part from that rank. */
static bool is_source(const struct muon_matrix *matrix, int rank)
{
    return muon_source(matrix, rank) == rank && count_of(matrix, rank) > 0;
}

/* Of a matrix that this rank owns. */
static int64_t *offsets_of(const struct ls_muon *muon, const struct muon_matrix *matrix)
{
    return muon->offset[matrix->round % 2];
}

static void offsets_set(struct ls_muon *muon, const struct muon_matrix *matrix)
{
    int64_t at = 0, *offset = offsets_of(muon, matrix);
    for (int rank = 0; rank < muon->owners.ranks; rank++) {
        offset[rank] = at;
        if (rank != muon->rank && is_source(matrix, rank))
            at += count_of(matrix, rank);
    }
}

/* Turn s of a round's parts: what this rank gets of the matrix that it owns, what it sends. */
static int part_turn(struct ls_muon *muon, int round, int s, struct ls_error *error)
{
    int ranks = muon->owners.ranks, from = (muon->rank + ranks - s) % ranks;
    int to = (muon->rank + s) % ranks, status = LS_OK;
    const struct muon_matrix *mine = muon_owned(&muon->owners, round, muon->rank);
    const struct muon_matrix *theirs = muon_owned(&muon->owners, round, to);
    if (mine && is_source(mine, from))
        status = transfer_start(muon, mine, muon->parts + offsets_of(muon, mine)[from],
                                count_of(mine, from), from, TAG_PART, true, error);
    if (theirs && is_source(theirs, muon->rank) && !status)
        status = transfer_start(muon, theirs, muon->place[theirs - muon->owners.list],
                                count_of(theirs, muon->rank), to, TAG_PART, false, error);
    return status;
}

/* Turn s of its results: each rank gets its part, copies too. */
static int result_turn(struct ls_muon *muon, int round, int s, struct ls_error *error)
{
    int ranks = muon->owners.ranks, from = (muon->rank + ranks - s) % ranks;
    int to = (muon->rank + s) % ranks, status = LS_OK;
    const struct muon_matrix *mine = muon_owned(&muon->owners, round, muon->rank);
    const struct muon_matrix *theirs = muon_owned(&muon->owners, round, from);
    if (theirs && count_of(theirs, muon->rank) > 0)
        status = transfer_start(muon, theirs, muon->place[theirs - muon->owners.list],
                                count_of(theirs, muon->rank), from, TAG_RESULT, true, error);
    if (!mine || count_of(mine, to) == 0 || status)
        return status;
    int source = muon_source(mine, to);
    float *data = source == muon->rank ? muon->place[mine - muon->owners.list]
                                       : muon->result + offsets_of(muon, mine)[source];
    return transfer_start(muon, mine, data, count_of(mine, to), to, TAG_RESULT, false, error);
}

/* ---- a matrix that this rank owns ------------------------------------------------------------ */

/* Runs of a part that are as long and lie at one distance: rows of both matrices. */
struct equal_runs {
    struct ls_run first, last;
    int64_t count, whole_distance, part_distance;
};

static bool rows_add(struct equal_runs *rows, const struct ls_run *run)
{
    int64_t whole = run->global - rows->last.global, part = run->local - rows->last.local;
    if (rows->count == 0)
        rows->first = *run;
    else if (run->count != rows->first.count)
        return false;
    else if (rows->count == 1)
        rows->whole_distance = whole, rows->part_distance = part;
    else if (whole != rows->whole_distance || part != rows->part_distance)
        return false;
    rows->last = *run;
    rows->count++;
    return true;
}

static void rows_copy(struct ls_ops *ops, const struct equal_runs *rows, float *whole, float *part,
                      bool into)
{
    enum { SIZE = sizeof(float) };
    float *in_whole = whole + rows->first.global, *in_part = part + rows->first.local;
    size_t bytes = (size_t)rows->first.count * SIZE;
    size_t far = (size_t)rows->whole_distance * SIZE, near = (size_t)rows->part_distance * SIZE;
    ls_copy_rows(ops, rows->count, bytes, into ? in_part : in_whole, into ? near : far,
                 into ? in_whole : in_part, into ? far : near);
}

/* Between the whole matrix and its parts, by the index of each element: into it, or out of it. */
static void parts_move(const struct ls_muon *muon, struct ls_ops *ops,
                       const struct muon_matrix *matrix, float *whole, float *parts, bool into)
{
    float *own = muon->place[matrix - muon->owners.list];
    for (int rank = 0; rank < muon->owners.ranks; rank++) {
        struct ls_runs runs;
        struct ls_run run;
        struct equal_runs rows = {0};
        if (!is_source(matrix, rank))
            continue;
        float *part = rank == muon->rank ? own : parts + offsets_of(muon, matrix)[rank];
        ls_runs_init(&runs, &matrix->param->spec, rank);
        while (ls_runs_next(&runs, &run)) {
            if (rows_add(&rows, &run))
                continue;
            rows_copy(ops, &rows, whole, part, into);
            rows = (struct equal_runs){0};
            rows_add(&rows, &run);
        }
        rows_copy(ops, &rows, whole, part, into);
    }
}

static int orthogonalise(struct ls_muon *muon, struct ls_ops *ops, const struct muon_matrix *matrix,
                         struct ls_error *error)
{
    struct ls_newton_schulz op = iteration_of(muon, matrix);
    float *out;
    int status = ls_newton_schulz(ops, &op, muon->whole, muon->work, &out, error);
    muon->result = out == muon->whole ? muon->work : muon->whole;
    if (!status)
        parts_move(muon, ops, matrix, out, muon->result, false);
    return status;
}

/* ---- a step ---------------------------------------------------------------------------------- */

typedef int hook(void *user, int index, float *place, struct ls_error *error);

/* Calls a hook for this rank's parts of a round's matrices. */
static void hook_call(struct ls_muon *muon, int round, const struct muon_hooks *hooks, hook *hook)
{
    for (int m = 0; m < muon->owners.count; m++) {
        const struct muon_matrix *matrix = &muon->owners.list[m];
        struct ls_error error = {0};
        if (matrix->round != round)
            continue;
        muon->place[m] = muon->staged[m] < 0 ? hooks->place(hooks->user, matrix->index)
                                             : muon->staging[round % 2] + muon->staged[m];
        int status = hook(hooks->user, matrix->index, muon->place[m], &error);
        if (!status || muon->failed)
            continue;
        muon->failed = status;
        muon->why = error;
    }
}

/* The parts of a round are made, and leave. */
static int round_begin(struct ls_muon *muon, int round, const struct muon_hooks *hooks,
                       struct ls_error *error)
{
    const struct muon_matrix *mine = muon_owned(&muon->owners, round, muon->rank);
    int status = LS_OK;
    hook_call(muon, round, hooks, hooks->begin);
    if (mine)
        offsets_set(muon, mine);
    for (int s = 1; s < muon->owners.ranks && !status; s++)
        status = part_turn(muon, round, s, error);
    return status;
}

int muon_begin(struct ls_muon *muon, const struct muon_hooks *hooks, struct ls_error *error)
{
    muon->failed = LS_OK;
    return muon->owners.rounds ? round_begin(muon, 0, hooks, error) : LS_OK;
}

static int rounds_run(struct ls_muon *muon, struct ls_ops *ops, const struct muon_hooks *hooks,
                      struct ls_error *error)
{
    int status = LS_OK;
    for (int round = 0; round < muon->owners.rounds && !status; round++) {
        const struct muon_matrix *mine = muon_owned(&muon->owners, round, muon->rank);
        status = all_wait(muon, error);
        if (!status && round > 0)
            hook_call(muon, round - 1, hooks, hooks->end);
        if (!status && mine)
            parts_move(muon, ops, mine, muon->whole, muon->parts, true);
        ls_progress();
        if (!status && round + 1 < muon->owners.rounds)
            status = round_begin(muon, round + 1, hooks, error);
        if (!status && mine)
            status = orthogonalise(muon, ops, mine, error);
        for (int s = 1; s < muon->owners.ranks && !status; s++)
            status = result_turn(muon, round, s, error);
    }
    return status ? status : all_wait(muon, error);
}

int muon_finish(struct ls_muon *muon, struct ls_ops *ops, const struct muon_hooks *hooks,
                struct ls_error *error)
{
    int status = rounds_run(muon, ops, hooks, error);
    if (status)
        return status;
    if (muon->owners.rounds)
        hook_call(muon, muon->owners.rounds - 1, hooks, hooks->end);
    return muon->failed ? ls_error_copy(error, muon->failed, &muon->why) : LS_OK;
}

/* ---- rehearsal ------------------------------------------------------------------------------- */

/* Nobody writes there. */
static float *rehearsal_place(void *user, int index)
{
    const struct ls_muon *muon = user;
    (void)index;
    return muon->whole;
}

static int rehearsal_hook(void *user, int index, float *place, struct ls_error *error)
{
    (void)user, (void)index, (void)place, (void)error;
    return LS_OK;
}

int muon_rehearse(struct ls_muon *muon, struct ls_ops *idle, struct ls_comm *comm,
                  struct ls_error *error)
{
    const struct muon_hooks hooks = {muon, rehearsal_place, rehearsal_hook, rehearsal_hook};
    LS_ASSERT(idle->idle);
    muon->comm = comm;
    muon->rank = ls_comm_rank(comm);
    int status = muon_begin(muon, &hooks, error);
    return status ? status : muon_finish(muon, idle, &hooks, error);
}
