/* Handles of the transport mpi, and the engine that makes all MPI calls of the process. */
#include "comm/internal.h"

#include <stdlib.h>
#include <string.h>

static bool set_above(const char *name, long least)
{
    const char *value = getenv(name);
    return value && *value && strtol(value, NULL, 10) > least;
}

bool ls_mpi_launched(void)
{
    return set_above("OMPI_COMM_WORLD_SIZE", 0) || getenv("PMIX_RANK") || getenv("PMI_RANK") ||
           set_above("PMI_SIZE", 0) ||
           (getenv("SLURM_PROCID") && set_above("SLURM_STEP_NUM_TASKS", 1));
}

int ls_mpi_launched_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                        "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (set_above(names[i], -1))
            return (int)strtol(getenv(names[i]), NULL, 10);
    return -1;
}

bool ls_mpi_survives(void)
{
    const char *value = getenv("OMPI_MCA_orte_enable_recovery");
    return value && (!strcmp(value, "1") || !strcmp(value, "true"));
}

int ls_mpi_machine_ranks(void)
{
    /* Open MPI; MPICH and Intel MPI. */
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"};
    long most = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (set_above(names[i], 0))
            return (int)strtol(getenv(names[i]), NULL, 10);
    /* "4(x2),3" */
    for (const char *at = getenv("SLURM_STEP_TASKS_PER_NODE"); at && *at;) {
        most = ls_max(most, strtol(at, NULL, 10));
        at += strcspn(at, ",");
        at += *at == ',';
    }
    return (int)most;
}

#ifndef LS_WITH_MPI
int ls_comm_mpi_new(struct ls_comm **out, struct ls_error *error)
{
    *out = NULL;
    return ls_error_set(error, LS_ENOTSUP,
                        "this build has no MPI: install libopenmpi-dev (or libmpich-dev) and build "
                        "with make MPI=1, or run with the thread transport");
}

int64_t ls_comm_mpi_sum_bytes(int ranks)
{
    (void)ranks;
    return 0;
}

void ls_mpi_finish(void) {}

void ls_mpi_abort(int exit_code)
{
    (void)exit_code;
}

bool ls_mpi_part(const char *why, bool whole, double seconds)
{
    (void)why, (void)whole, (void)seconds;
    return true;
}
#else
#include "comm/mpi.h"

#include <lockstep/base/helper_thread.h>

#include <math.h>
#include <sched.h>
#include <string.h>
#include <strings.h>
#include <time.h>

/* MPI exists once in a process, so what serialises its calls does too. */
static struct {
    pthread_mutex_t lock;
    atomic_int drivers; /* callers that drive the engine, or are about to */
    bool began_mpi;
    bool timed_out; /* some rank did not come: what needs all of them would hang */
    struct mpi_board board;
    struct mpi_farewells farewells;
    uint64_t worlds;   /* made so far */
    bool survives;     /* one that has ended is to be seen soon */
    bool stuck;        /* a thread is left within MPI: nothing more is asked of it */
    bool shares_cores; /* more ranks than cores on this machine, as far as they may use them, or
                        * threads that wait are to leave theirs (OMP_WAIT_POLICY) */
    struct mpi_comm *comms;
    pthread_cond_t wake; /* for the progress thread */
    pthread_t thread;
    bool thread_runs, stopping;
} engine = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- progress ------------------------------------------------------------------------------- */

/* Between two polls of what does not move. */
enum { PAUSE_NS_MIN = 20 * 1000, PAUSE_NS_MAX = 500 * 1000 };

static bool engine_pending(void)
{
    for (const struct mpi_comm *comm = engine.comms; comm; comm = comm->next)
        if (comm->unfinished)
            return true;
    return false;
}

static bool engine_advance(void)
{
    bool moved = false;
    for (struct mpi_comm *comm = engine.comms; comm; comm = comm->next)
        if (comm->unfinished)
            moved |= comm_mpi_advance(comm);
    return moved;
}

static void *progress_main(void *unused)
{
    long pause_ns = PAUSE_NS_MIN;
    (void)unused;
    pthread_mutex_lock(&engine.lock);
    while (!engine.stopping) {
        if (atomic_load(&engine.drivers) || !engine_pending()) {
            pthread_cond_wait(&engine.wake, &engine.lock);
            pause_ns = PAUSE_NS_MIN;
        } else if (engine_advance()) {
            pause_ns = PAUSE_NS_MIN;
            pthread_mutex_unlock(&engine.lock);
            pthread_mutex_lock(&engine.lock);
        } else {
            struct timespec until;
            clock_gettime(CLOCK_MONOTONIC, &until);
            until.tv_nsec += pause_ns;
            until.tv_sec += until.tv_nsec / 1000000000;
            until.tv_nsec %= 1000000000;
            pthread_cond_timedwait(&engine.wake, &engine.lock, &until);
            pause_ns = ls_min(2 * pause_ns, PAUSE_NS_MAX);
        }
    }
    pthread_mutex_unlock(&engine.lock);
    return NULL;
}

/* Without the thread, operations move only while somebody waits. */
static void progress_start(void)
{
    if (engine.thread_runs)
        return;
    ls_condition_init(&engine.wake);
    engine.stopping = false;
    engine.thread_runs = ls_helper_start(&engine.thread, progress_main, NULL) == 0;
}

/* Patience of a waiting caller: it polls as MPI's own calls do while an answer may come soon, then
 * sleeps between polls, the longer the longer it has waited. Where ranks share cores, those that it
 * waits for need its core: it leaves it to them from the first, and sleeps soon. */
static void pause_after(double waited_s)
{
    const double poll_s = engine.shares_cores ? 0.001 : 0.1;
    if (waited_s > poll_s)
        nanosleep(&(struct timespec){.tv_nsec = (long)fmin(waited_s * 1e9 / 128, PAUSE_NS_MAX)},
                  NULL);
    else if (engine.shares_cores)
        sched_yield();
}

/* A rank of the group has left the job and will not come. What it sent before is here when nothing
 * has moved for a while. */
static bool peer_left(struct mpi_comm *comm, double now_s, double moved_s)
{
    const double still_s = 0.1;
    int rank;
    if (now_s - moved_s < still_s / 16)
        return false;
    comm_mpi_farewells_take(&engine.farewells, now_s);
    if (now_s - moved_s < still_s)
        return false;
    const char *why = comm_mpi_farewells_of(&engine.farewells, comm->world_ranks, comm->base.size,
                                            now_s - still_s, &rank);
    if (why)
        comm_mpi_give_up(comm, true, "rank %d of the job has left: %s", rank, why);
    return why != NULL;
}

/* ---- the vtable ----------------------------------------------------------------------------- */

static int mpi_start(struct ls_comm *base, const struct comm_call *call, void **operation,
                     struct ls_error *error)
{
    struct mpi_comm *comm = (struct mpi_comm *)base;
    struct mpi_op *op = NULL;
    atomic_fetch_add(&engine.drivers, 1);
    pthread_mutex_lock(&engine.lock);
    int status = comm_mpi_post(comm, call, &op, error);
    *operation = op;
    if (status == LS_OK) {
        comm_mpi_advance(comm);
        if (!call->blocking)
            progress_start();
    }
    /* The progress thread takes over, unless the caller or another one drives. */
    if (atomic_fetch_sub(&engine.drivers, 1) == 1 && engine.thread_runs && !call->blocking)
        pthread_cond_signal(&engine.wake);
    pthread_mutex_unlock(&engine.lock);
    return status;
}

static int mpi_wait(struct ls_comm *base, void *operation, struct ls_error *error)
{
    struct mpi_comm *comm = (struct mpi_comm *)base;
    struct mpi_op *op = operation;
    atomic_fetch_add(&engine.drivers, 1);
    pthread_mutex_lock(&engine.lock);
    double moved_s = ls_now_s(); /* anything */
    uint64_t moves = comm->moves;
    const bool looks = base->timeout_s > 0 || engine.survives;
    struct flight_wait wait;
    flight_wait_begin(&wait, base, moved_s);
    if (engine.survives)
        wait.look_s = fmin(wait.look_s, moved_s + 0.25);
    while (!atomic_load_explicit(&op->over, memory_order_acquire)) {
        if (engine_advance()) {
            moved_s = ls_now_s();
            continue;
        }
        double now_s = ls_now_s();
        flight_wait_seen(&wait, now_s);
        if (comm->moves != moves) {
            moves = comm->moves;
            flight_wait_moved(&wait, base, now_s);
        }
        bool late = looks && now_s >= wait.look_s && !comm_mpi_look(comm, op, &wait, now_s);
        if (late || peer_left(comm, now_s, moved_s)) {
            engine.timed_out = true;
            break;
        }
        pthread_mutex_unlock(&engine.lock);
        pause_after(now_s - moved_s);
        pthread_mutex_lock(&engine.lock);
    }
    int status = op->status;
    if (status != LS_OK) {
        ls_error_set(error, status, "%s: %s", comm_describe(&op->call).text, op->text);
        ls_error_blame(error, comm->broken_cause, "");
    }
    comm_mpi_retire(comm, op);
    if (atomic_fetch_sub(&engine.drivers, 1) == 1 && engine.thread_runs && engine_pending())
        pthread_cond_signal(&engine.wake);
    pthread_mutex_unlock(&engine.lock);
    return status;
}

static bool mpi_test(struct ls_comm *base, void *operation)
{
    struct mpi_op *op = operation;
    (void)base;
    return atomic_load_explicit(&op->over, memory_order_acquire);
}

static int mpi_split(struct ls_comm *base, const int *members, int size, int rank,
                     struct ls_comm **out, struct ls_error *error);

static void mpi_free(struct ls_comm *base)
{
    struct mpi_comm *comm = (struct mpi_comm *)base;
    pthread_mutex_lock(&engine.lock);
    struct mpi_comm **at = &engine.comms;
    while (*at != comm)
        at = &(*at)->next;
    *at = comm->next;
    for (int i = 0; i < LS_COMM_PENDING_MAX; i++)
        if (base->pending[i].ticket && mpi_test(base, base->pending[i].operation))
            comm_mpi_retire(comm, base->pending[i].operation);
    if (!engine.stuck)
        comm_mpi_resources_free(comm);
    /* Collective, formally: after a timeout the process ends without it. */
    if (!engine.timed_out) {
        MPI_Comm_free(&comm->pairs);
        MPI_Comm_free(&comm->group);
    }
    pthread_mutex_unlock(&engine.lock);
    free(comm->world_ranks);
    comm_release(base);
    free(comm);
}

static const struct comm_transport mpi_transport = {LS_TRANSPORT_MPI, mpi_start, mpi_wait,
                                                    mpi_test,         mpi_split, mpi_free};

/* ---- handles -------------------------------------------------------------------------------- */

/* world_ranks[size] of a group. */
static int *world_ranks_of(MPI_Comm comm, int size)
{
    int *own = calloc((size_t)size, sizeof *own), *ranks = calloc((size_t)size, sizeof *ranks);
    MPI_Group group, world;
    for (int i = 0; own && i < size; i++)
        own[i] = i;
    if (own && ranks) {
        MPI_Comm_group(comm, &group);
        MPI_Comm_group(MPI_COMM_WORLD, &world);
        MPI_Group_translate_ranks(group, size, own, world, ranks);
        MPI_Group_free(&world);
        MPI_Group_free(&group);
    } else {
        free(ranks);
        ranks = NULL;
    }
    free(own);
    return ranks;
}

static int world_rank_of(MPI_Comm comm, int rank)
{
    MPI_Group group, world;
    int out = rank;
    MPI_Comm_group(comm, &group);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_translate_ranks(group, 1, &rank, world, &out);
    MPI_Group_free(&world);
    MPI_Group_free(&group);
    return out;
}

int comm_mpi_agree(MPI_Comm comm, int status, struct ls_error *error)
{
    struct {
        int status, rank;
    } own = {status, 0}, worst = {LS_OK, 0};
    MPI_Comm_rank(comm, &own.rank);
    if (MPI_Allreduce(&own, &worst, 1, MPI_2INT, MPI_MINLOC, comm) != MPI_SUCCESS && !status)
        return ls_error_set(error, LS_ECOMM, "cannot make an MPI communicator");
    if (status || !worst.status)
        return status;
    return ls_error_set(error, worst.status,
                        "no MPI communicator is made: %s failed with %s, as it says there",
                        comm_rank_text(worst.rank, world_rank_of(comm, worst.rank)).text,
                        ls_status_name(worst.status));
}

int comm_mpi_made(int code, struct ls_error *error)
{
    return code == MPI_SUCCESS ? LS_OK
                               : ls_error_set(error, LS_ECOMM, "cannot make an MPI communicator");
}

/* Local. *comm is zeros. */
static int handle_fill(struct mpi_comm *comm, MPI_Comm group, MPI_Comm pairs,
                       struct ls_error *error)
{
    int rank = 0, size = 1, *tag_max = NULL, known = 0;
    MPI_Comm_rank(group, &rank);
    MPI_Comm_size(group, &size);
    MPI_Comm_get_attr(group, MPI_TAG_UB, &tag_max, &known);
    int status = comm_init(&comm->base, &mpi_transport, rank, size, error);
    comm->group = group;
    comm->pairs = pairs;
    comm->tag_max = known ? *tag_max : 32767;
    comm->world_ranks = world_ranks_of(group, size);
    if (status == LS_OK && !comm->world_ranks)
        status = ls_no_memory(error, "for an MPI communicator");
    return status ? status : comm_mpi_resources_new(comm, error);
}

static void handle_drop(struct mpi_comm *comm, MPI_Comm group, MPI_Comm pairs)
{
    if (pairs != MPI_COMM_NULL)
        MPI_Comm_free(&pairs);
    if (group != MPI_COMM_NULL)
        MPI_Comm_free(&group);
    if (!comm)
        return;
    comm_mpi_resources_free(comm);
    free(comm->world_ranks);
    comm_release(&comm->base);
    free(comm);
}

/* Collective over parent; the lock is held. Ranks of one color are ordered by key. All make their
 * communicators, or, if one lacks memory or MPI fails there, none does: whoever had one would wait
 * for that rank. */
static int handle_new(MPI_Comm parent, int color, int key, struct ls_comm **out,
                      struct ls_error *error)
{
    struct mpi_comm *comm = calloc(1, sizeof *comm);
    MPI_Comm group = MPI_COMM_NULL, pairs = MPI_COMM_NULL;
    int status = comm_mpi_made(MPI_Comm_split(parent, color, key, &group), error);
    status = comm_mpi_agree(parent, status, error);
    if (status == LS_OK) {
        status = comm_mpi_made(MPI_Comm_dup(group, &pairs), error);
        if (status == LS_OK) {
            MPI_Comm_set_errhandler(group, MPI_ERRORS_RETURN);
            MPI_Comm_set_errhandler(pairs, MPI_ERRORS_RETURN);
            status = comm ? handle_fill(comm, group, pairs, error)
                          : ls_no_memory(error, "for an MPI communicator");
        }
        status = comm_mpi_agree(parent, status, error);
    }
    if (status != LS_OK) {
        handle_drop(comm, group, pairs);
        return status;
    }
    comm->base.world_ranks = comm->world_ranks;
    comm->base.board = &engine.board.base;
    comm->base.record = engine.board.base.records[comm->world_ranks[comm->base.rank]];
    *out = &comm->base;
    return LS_OK;
}

/* Not by a thread that was left within MPI and comes back: nobody waits for its communicator. */
static void handle_add(struct ls_comm *base)
{
    struct mpi_comm *comm = (struct mpi_comm *)base;
    comm->next = engine.comms;
    engine.comms = comm;
}

/* MPI makes a communicator in a call that waits for all its ranks, without a limit: a thread makes
 * it, and is left in there if one of them never comes, or ends in a job whose others live on. */
struct splitting {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool over;
    MPI_Comm parent;
    int color, key;
    struct ls_comm *made;
    int status;
    struct ls_error error;
};

static void *splitting_main(void *argument)
{
    struct splitting *s = argument;
    int status = handle_new(s->parent, s->color, s->key, &s->made, &s->error);
    pthread_mutex_lock(&s->lock);
    s->status = status;
    s->over = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Those of the parent's ranks that are stopped or have ended; all others if none is. */
static void ranks_late(const struct ls_comm *base, struct flight_late *late)
{
    for (int all = 0; all < 2 && late->count == 0; all++)
        for (int r = 0; r < base->size; r++) {
            struct flight_record *record = engine.board.base.records[base->world_ranks[r]];
            bool runs = !record || flight_process_of(record) == FLIGHT_RUNS;
            if (r != base->rank && (all || !runs))
                flight_late_add(late, base, r);
        }
}

/* Whether the thread came back, before a rank has ended and within the timeout, without the time in
 * which this rank did not run: looks that come late. It is no flight_wait, since threads of MPI
 * work for a rank that waits here: who watches waits must not take it for idle. */
static bool splitting_await(struct splitting *s, struct mpi_comm *own, struct ls_error *error)
{
    const struct ls_comm *base = &own->base;
    const double limit_s = flight_limit_s(base);
    const double look_s = fmin(limit_s / 8, 0.05);
    double begin_s = ls_now_s(), last_s = begin_s;
    struct flight_late late = {0};
    char text[720];
    int ended = -1;
    pthread_mutex_lock(&s->lock);
    while (!s->over && ended < 0 && last_s - begin_s < limit_s) {
        ls_condition_wait_until(&s->changed, &s->lock, last_s + look_s);
        double now_s = ls_now_s();
        begin_s += fmax(now_s - last_s - 2 * look_s, 0);
        last_s = now_s;
        ended = s->over ? -1 : comm_mpi_ended(own, NULL);
    }
    bool over = s->over;
    pthread_mutex_unlock(&s->lock);
    if (over)
        return true;
    if (ended >= 0) {
        snprintf(text, sizeof text, "the process of %s has ended",
                 comm_rank_text(ended, base->world_ranks[ended]).text);
    } else {
        ranks_late(base, &late);
        flight_late_text(base, &(struct comm_call){.sequence = base->sequence}, last_s - begin_s,
                         &late, text, sizeof text);
    }
    enum ls_error_cause cause = ended < 0 ? flight_late_cause(&late) : LS_CAUSE_OTHER;
    for (struct mpi_comm *comm = engine.comms; comm; comm = comm->next) {
        comm->broken_cause = cause;
        comm_mpi_give_up(comm, false, "%s", text);
    }
    engine.timed_out = engine.stuck = true;
    ls_error_set(error, LS_ECOMM, "a group of %d ranks is not made: %s", base->size, text);
    ls_error_blame(error, cause, "");
    return false;
}

/* ls_comm_split has gathered all ranks before: nobody is kept waiting by a rank that computes. The
 * lock is held meanwhile for the thread. */
static int mpi_split(struct ls_comm *base, const int *members, int size, int rank,
                     struct ls_comm **out, struct ls_error *error)
{
    struct mpi_comm *comm = (struct mpi_comm *)base;
    bool limited = base->timeout_s > 0 || engine.survives;
    struct splitting here, *own = limited ? calloc(1, sizeof *own) : NULL;
    struct splitting *s = own ? own : &here; /* the others need this rank even without memory */
    pthread_t thread;
    (void)size;
    *s = (struct splitting){.parent = comm->group, .color = members[0], .key = rank};
    pthread_mutex_init(&s->lock, NULL);
    ls_condition_init(&s->changed);
    pthread_mutex_lock(&engine.lock);
    bool helped = own && !ls_helper_start(&thread, splitting_main, s);
    if (!helped)
        splitting_main(s);
    bool over = !helped || splitting_await(s, comm, error);
    if (over && s->made)
        handle_add(s->made);
    pthread_mutex_unlock(&engine.lock);
    if (!over)
        return LS_ECOMM; /* the thread has s for ever */
    if (helped)
        pthread_join(thread, NULL);
    int status = s->status;
    *out = s->made;
    if (status)
        ls_error_copy(error, status, &s->error);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(own);
    return status;
}

/* A launcher of another MPI starts processes that do not know each other: each would train alone.
 */
static int mpi_check_world(struct ls_error *error)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int ranks, length;
    size_t i = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    while (i < sizeof names / sizeof *names && !set_above(names[i], 0))
        i++;
    if (ranks > 1 || i == sizeof names / sizeof *names || !set_above(names[i], 1))
        return LS_OK;
    MPI_Get_library_version(library, &length);
    library[strcspn(library, ",\n")] = '\0';
    return ls_error_set(error, LS_ENOTSUP,
                        "%s=%s, but MPI sees one process: what started them is not of the MPI that "
                        "lockstep was built with (%s). Use the mpirun of that MPI or, under Slurm, "
                        "an --mpi= of srun that it knows (srun --mpi=list shows them); or build "
                        "with make MPICC=the mpicc of the MPI whose mpirun you use",
                        names[i], getenv(names[i]), library);
}

static int mpi_begin(struct ls_error *error)
{
    int initialised = 0, finalised = 0, provided = MPI_THREAD_SINGLE;
    MPI_Finalized(&finalised);
    if (finalised)
        return ls_error_set(error, LS_ECOMM,
                            "MPI was finalized in this process and cannot start again");
    MPI_Initialized(&initialised);
    if (initialised) {
        MPI_Query_thread(&provided);
    } else {
        if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS)
            return ls_error_set(error, LS_ECOMM, "MPI_Init_thread failed");
        engine.began_mpi = true;
        /* MPICH takes the world's handler for errors that a test of a request reports. */
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    }
    if (provided < MPI_THREAD_SERIALIZED)
        return ls_error_set(error, LS_ENOTSUP,
                            "MPI offers thread level %d; at least MPI_THREAD_SERIALIZED (%d) is "
                            "needed: use an MPI that was built with threads",
                            provided, MPI_THREAD_SERIALIZED);
    engine.survives = ls_mpi_survives();
    if (engine.board.base.records)
        return LS_OK;
    int status = mpi_check_world(error);
    if (status)
        return status;
    status = comm_mpi_board_new(&engine.board, &engine.shares_cores, error);
    const char *waits = getenv("OMP_WAIT_POLICY"); /* it is said of other programs too */
    engine.shares_cores |= waits && !strcasecmp(waits, "passive");
    if (status)
        return status;
    status = comm_mpi_farewells_new(&engine.farewells, error);
    if (status)
        comm_mpi_board_free(&engine.board);
    return status;
}

int ls_comm_mpi_new(struct ls_comm **out, struct ls_error *error)
{
    *out = NULL;
    pthread_mutex_lock(&engine.lock);
    int rank = 0;
    int status = engine.stuck ? ls_error_set(error, LS_ECOMM,
                                             "a group was given up while MPI made it: a "
                                             "thread of this process is left within MPI, "
                                             "which cannot be called again: end it")
                              : mpi_begin(error);
    if (status == LS_OK) {
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        status = handle_new(MPI_COMM_WORLD, 0, rank, out, error);
    }
    if (status == LS_OK) {
        handle_add(*out);
        (*out)->id = ++engine.worlds;
        flight_progress_begin((*out)->record);
    }
    pthread_mutex_unlock(&engine.lock);
    return status;
}

void ls_mpi_finish(void)
{
    pthread_mutex_lock(&engine.lock);
    bool runs = engine.thread_runs;
    engine.stopping = true;
    engine.thread_runs = false;
    if (runs)
        pthread_cond_signal(&engine.wake);
    pthread_mutex_unlock(&engine.lock);
    if (runs) {
        pthread_join(engine.thread, NULL);
        pthread_cond_destroy(&engine.wake);
    }
    if (engine.timed_out)
        return;
    comm_mpi_board_free(&engine.board);
    comm_mpi_farewells_free(&engine.farewells);
    if (engine.began_mpi)
        MPI_Finalize();
    engine.began_mpi = false;
}

void ls_mpi_abort(int exit_code)
{
    int initialised = 0, finalised = 0;
    MPI_Initialized(&initialised);
    MPI_Finalized(&finalised);
    if (!initialised || finalised)
        return;
    /* The progress thread may be within a call. */
    pthread_mutex_lock(&engine.lock);
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    pthread_mutex_unlock(&engine.lock);
}

bool ls_mpi_part(const char *why, bool whole, double seconds)
{
    double until_s = ls_now_s() + seconds, now_s;
    bool all = false;
    pthread_mutex_lock(&engine.lock);
    bool runs = engine.farewells.opened && !engine.farewells.apart && !engine.stuck;
    if (runs)
        comm_mpi_farewells_send(&engine.farewells, why, whole);
    while (runs && !all && (now_s = ls_now_s()) < until_s) {
        engine_advance();
        comm_mpi_farewells_take(&engine.farewells, now_s);
        all = comm_mpi_farewells_all(&engine.farewells, &whole);
        pthread_mutex_unlock(&engine.lock);
        if (!all)
            nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS_MAX}, NULL);
        pthread_mutex_lock(&engine.lock);
    }
    engine.farewells.apart = engine.farewells.apart || (all && !whole);
    bool together = !engine.farewells.opened || (all && whole);
    engine.timed_out = engine.timed_out || !together;
    pthread_mutex_unlock(&engine.lock);
    return together;
}
#endif
