/* The ranks' side: they wait for orders, do them together, and say how it went. */
#include "session/session_private.h"

#include <lockstep/base/helper_thread.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- what ranks tell ------------------------------------------------------------------------- */

void session_log(void *user, enum ls_log_level level, const char *line)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    session_tell(user, "log", json_pack("{s:s,s:s}", "level", names[level], "text", line));
}

static void on_started(void *user, const struct ls_config *config,
                       const struct ls_memory_plan *plan, const struct ls_params *params,
                       int64_t first_step)
{
    session_tell(user, "started",
                 json_pack("{s:I,s:I,s:I,s:I,s:s}", "step", (json_int_t)first_step, "steps",
                           (json_int_t)ls_config_steps(config), "parameters",
                           (json_int_t)params->weights, "memory", (json_int_t)plan->total, "out",
                           config->train.out));
}

static void on_evaluated(void *user, int64_t step, const struct ls_eval_report *r)
{
    session_tell(user, "evaluated",
                 json_pack("{s:I,s:o,s:o,s:I,s:I}", "step", (json_int_t)step, "loss",
                           real_json(r->loss), "bits_per_byte", real_json(r->bits_per_byte),
                           "sequences", (json_int_t)r->sequences, "tokens", (json_int_t)r->tokens));
}

static void on_sampled(void *user, int64_t step, const char *text)
{
    char shown[4096];
    ls_escape(text, strlen(text), "\n\t", shown, sizeof shown);
    session_tell(user, "sampled", json_pack("{s:I,s:s}", "step", (json_int_t)step, "text", shown));
}

static void on_saved(void *user, int64_t step)
{
    session_tell(user, "saved", json_pack("{s:I}", "step", (json_int_t)step));
}

static void on_idle(void *user, int64_t step, const char *hash)
{
    session_tell(user, "idle", json_pack("{s:I,s:s}", "step", (json_int_t)step, "hash", hash));
}

static void rank_open(struct rank *rank, struct ls_session *s, struct ls_comm *world)
{
    *rank = (struct rank){.session = s, .world = world, .first = ls_comm_rank(world) == 0};
    rank->speaks = rank->first || ls_comm_transport(world) == LS_TRANSPORT_MPI;
    rank->log = (struct ls_log){.level_max = s->config.log.level, .write = session_log, .user = s};
    rank->hooks = (struct ls_run_hooks){.user = s,
                                        .started = on_started,
                                        .evaluated = on_evaluated,
                                        .sampled = on_sampled,
                                        .saved = on_saved,
                                        .idle = on_idle,
                                        .stop = &s->stop};
    ls_comm_set_check(world, s->config.comm.check);
    ls_comm_set_timeout(world, s->config.comm.timeout_s);
}

static bool mpi_begun;
static atomic_bool leaves; /* this process is about to end */

/* ---- orders ---------------------------------------------------------------------------------- */

/* The next one, behind that number; false: the session ends. Who waits here is not late. */
static bool order_await(struct ls_session *s, uint64_t *number)
{
    const double sign_s = 0.25;
    pthread_mutex_lock(&s->lock);
    while (!s->quits && s->number == *number) {
        ls_condition_wait_until(&s->changed, &s->lock, ls_now_s() + sign_s);
        if (!atomic_load(&leaves)) /* others who wait for this process shall find it late */
            ls_progress();
    }
    *number = s->number;
    bool goes_on = !s->quits;
    pthread_mutex_unlock(&s->lock);
    return goes_on;
}

/* The last rank of this process says that the order is over; that the ranks end says the session's
 * thread, once they have. */
static void order_leave(struct rank *rank, int status, const struct ls_error *error)
{
    struct ls_session *s = rank->session;
    int local = ls_comm_transport(rank->world) == LS_TRANSPORT_MPI ? 1 : ls_comm_size(rank->world);
    pthread_mutex_lock(&s->lock);
    bool last = ++s->at_work == local;
    if (last)
        s->at_work = 0;
    if (last && s->order.verb->where == VERB_STARTS) {
        s->opened = true;
        s->shared = ls_comm_transport(rank->world) == LS_TRANSPORT_MPI;
    }
    pthread_mutex_unlock(&s->lock);
    if (last)
        order_done(s, status, error);
}

static int text_hash(const char *text, size_t bytes, void *user)
{
    uint64_t *hash = user;
    *hash = ls_hash64(text, bytes, *hash);
    return 0;
}

/* Of what all processes ask alike: not of arrays of which rank 0's count, nor of a step's batch,
 * which is looked at there. */
static int order_digest(const struct order *order, int64_t *digest, struct ls_error *error)
{
    static const char *const names[] = {"ids", "lengths"};
    const struct verb *verb = order->verb;
    uint64_t hash = ls_hash64(verb->name, strlen(verb->name), 0);
    if (!verb->own &&
        json_dump_callback(order->options, text_hash, &hash, JSON_COMPACT | JSON_SORT_KEYS))
        return ls_no_memory(error, "for an order");
    for (int i = 0; i < 2; i++) {
        const struct ls_array *array = order_array(order, names[i]); /* was checked */
        size_t bytes = sizeof(int32_t);
        for (int d = 0; array && d < array->dims; d++)
            bytes *= (size_t)array->shape[d];
        if (!array)
            continue;
        hash = ls_hash64(array->shape, (size_t)array->dims * sizeof array->shape[0], hash);
        hash = ls_hash64(array->data, bytes, hash);
    }
    *digest = (int64_t)(hash >> 1);
    return LS_OK;
}

/* Collective, of processes. Those that ask different things would wait for each other, or mix what
 * they were given. */
static int orders_compare(struct rank *rank, int status, struct ls_error *error)
{
    int64_t most = 0, least;
    if (!status)
        status = order_digest(&rank->session->order, &most, error);
    least = -most;
    status = ls_comm_agree(rank->world, status, error);
    if (!status)
        status = ls_all_reduce_max(rank->world, &most, error);
    if (!status)
        status = ls_all_reduce_max(rank->world, &least, error);
    if (status || most == -least)
        return status;
    return ls_error_set(error, LS_EINVAL,
                        "processes of the job ask different things: expected the same calls with "
                        "the same arguments, in the same order, in all of them");
}

/* Collective. *ends: the rank has nothing more to do. A failure that all know leaves them where
 * they were. */
static int order_do(struct rank *rank, bool *ends, struct ls_error *error)
{
    const struct order *order = &rank->session->order;
    const struct verb *verb = order->verb;
    struct ls_error first = order->refusal;
    int status = order->status;
    bool ending = verb->where == VERB_ENDS;
    if (verb->where != VERB_STARTS && ls_comm_transport(rank->world) == LS_TRANSPORT_MPI) {
        status = orders_compare(rank, status, &first);
        ending = ending && !status; /* the others did not ask for it */
    }
    if (!status && verb->where != VERB_STARTS)
        status = views_settle(rank, &first);
    if (!status && verb->one_model && rank->trainer && !ls_trainer_runner(rank->trainer))
        status = ls_error_set(&first, LS_EINVAL,
                              "%s: with async.mode each worker trains a model of its own: close "
                              "the run, and open what it saved as a model",
                              verb->name);
    if (!status)
        status = verb->run(rank, &first);
    if (!status && verb->where == VERB_STARTS && rank_runner(rank))
        ls_runner_set_interrupt(rank_runner(rank), &rank->session->interrupt);
    if (!status && verb->interrupted && rank->session->interrupt) /* the others shall know */
        status = ls_error_set(&first, LS_ESTOPPED, "%s: interrupted", verb->name);
    *ends = ending || (status && verb->where == VERB_STARTS) || rank->lost || status == LS_ECOMM;
    if (!*ends) {
        int agreed = ls_comm_agree(rank->world, status, &first);
        *ends = agreed == LS_ECOMM;
        status = agreed;
    }
    if (status)
        *error = first;
    if (!*ends)
        views_note(rank);
    return status;
}

static int rank_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct ls_session *s = user;
    struct rank rank;
    uint64_t number = s->number;
    bool ends = false;
    rank_open(&rank, s, world);
    int status = order_do(&rank, &ends, error);
    while (!ends) {
        order_leave(&rank, status, error);
        status = LS_OK;
        if (!order_await(s, &number))
            break;
        status = order_do(&rank, &ends, error);
    }
    /* Not closed: the session was dropped, or it failed. */
    if (rank.run)
        ls_run_close(rank.run, status ? status : LS_ECOMM, NULL);
    ls_finished_free(rank.finished);
    if (status)
        ls_error_unplace(error); /* before the rank's number stands there */
    return status;
}

/* ---- what outlives them ---------------------------------------------------------------------- */

static int kept_add(struct ls_session *s, int ranks, struct ls_error *error)
{
    struct kept *kept = calloc(1, sizeof *kept + (size_t)ranks * sizeof kept->arenas[0]);
    if (!kept)
        return ls_no_memory(error, "for %d ranks", ranks);
    kept->ranks = ranks;
    kept->next = s->kept;
    s->kept = kept;
    return LS_OK;
}

struct ls_arena *session_arena(struct ls_session *s, int rank)
{
    return &s->kept->arenas[s->kept->ranks == 1 ? 0 : rank];
}

/* ---- starting -------------------------------------------------------------------------------- */

static int mpi_run(struct ls_session *s, struct ls_error *error)
{
    struct ls_comm *world;
    int status = ls_comm_mpi_new(&world, error);
    if (status)
        return status;
    mpi_begun = true;
    status = ls_comm_agree(world, kept_add(s, 1, error), error);
    if (!status)
        status = rank_body(world, s, error);
    if (status != LS_ECOMM) /* others may be stuck in it */
        ls_comm_free(world);
    return status;
}

int session_ranks(struct ls_session *s, struct ls_error *error)
{
    struct ls_layout layout;
    bool mpi = s->config.comm.transport == LS_TRANSPORT_MPI ||
               (s->config.comm.transport == LS_CONFIG_AUTO && ls_mpi_launched());
    if (mpi)
        return mpi_run(s, error);
    int status = ls_config_layout(&s->config, 0, &layout, error);
    int ranks = status ? 0 : (int)(layout.ranks * ls_config_groups(&s->config));
    if (!status)
        status = kept_add(s, ranks, error);
    return status ? status : ls_world_run(ranks, rank_body, s, error);
}

bool ls_session_part(const char *why, bool whole)
{
    const double heard_s =
        10; /* time for the others to end by themselves, before the launcher does */
    return !mpi_begun || ls_mpi_part(why, whole, heard_s);
}

void ls_session_leave(void)
{
    atomic_store(&leaves, true);
    if (mpi_begun)
        ls_mpi_finish();
    mpi_begun = false;
}
