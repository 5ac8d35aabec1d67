/* Ranks as threads of one call: ls_world_run. */
#include "comm/thread.h"

#include <fenv.h>
#include <math.h>
#include <stdlib.h>

struct runner {
    struct world_run *run;
    int rank, status;
    bool ended;
    pthread_t thread;
    struct ls_error error;
};

/* Belongs to ls_world_run, and to the last thread where that gave some up. */
struct world_run {
    struct ls_world *world;
    int (*body)(struct ls_comm *comm, void *user, struct ls_error *error);
    void *user;
    /* The world's mutex guards these, and status and ended of the runners. */
    pthread_cond_t changed;
    int running;
    bool failed, given_up;
    double changed_s; /* when the last rank ended */
    struct runner *runners;
};

static void run_free(struct world_run *run)
{
    ls_world_free(run->world);
    pthread_cond_destroy(&run->changed);
    free(run->runners);
    free(run);
}

static void *runner_main(void *argument)
{
    struct runner *self = argument;
    struct world_run *run = self->run;
    struct ls_world *world = run->world;
    struct ls_comm *comm;
    fesetenv(FE_DFL_ENV); /* rounding and subnormal numbers are not as the caller has them */
    int status = ls_comm_thread_new(world, self->rank, &comm, &self->error);
    if (status == LS_OK)
        status = run->body(comm, run->user, &self->error);
    comm_world_leave(world, self->rank, status, &self->error);
    ls_comm_free(comm);
    pthread_mutex_lock(&world->lock);
    self->status = status;
    self->ended = true;
    run->failed |= status != LS_OK;
    run->changed_s = ls_now_s();
    bool last = --run->running == 0 && run->given_up;
    pthread_cond_signal(&run->changed);
    pthread_mutex_unlock(&world->lock);
    if (last)
        run_free(run);
    return NULL;
}

/* When a rank last ended, or one that runs got on. */
static double run_progress_s(const struct world_run *run)
{
    double last_s = run->changed_s;
    for (int i = 0; i < run->world->size; i++)
        if (!run->runners[i].ended)
            last_s = fmax(last_s, ls_progress_s(&run->world->board.records[i]->progress));
    return last_s;
}

/* Until all ranks have ended; or, after a failure in a world with timeouts, until for twice the
 * timeout none has ended or got on. The mutex is held. */
static void run_wait(struct world_run *run)
{
    struct ls_world *world = run->world;
    while (run->running > 0) {
        double until_s = run_progress_s(run) + 2 * world->timeout_s;
        if (!run->failed || world->timeout_s <= 0)
            pthread_cond_wait(&run->changed, &world->lock);
        else if (ls_now_s() < until_s)
            ls_condition_wait_until(&run->changed, &world->lock, until_s);
        else
            break;
    }
}

/* The first failure by rank, one that is not the consequence of another before those that are. */
static const struct runner *first_failure(const struct world_run *run)
{
    const struct runner *consequence = NULL;
    for (int i = 0; i < run->world->size; i++) {
        const struct runner *runner = &run->runners[i];
        if (!runner->ended || runner->status == LS_OK)
            continue;
        if (runner->status != LS_ECOMM || !run->world->ranks[i].was_left_alone)
            return runner;
        if (!consequence)
            consequence = runner;
    }
    return consequence;
}

/* Ends or gives up the threads; frees the run where no thread is left that uses it. */
static int run_end(struct world_run *run, int started, struct ls_error *error)
{
    int status = LS_OK, late = 0, late_rank = 0;
    struct ls_world *world = run->world;
    pthread_mutex_lock(&world->lock);
    run_wait(run);
    for (int i = started - 1; i >= 0; i--) {
        if (run->runners[i].ended)
            continue;
        late++;
        late_rank = i;
        pthread_detach(run->runners[i].thread);
    }
    run->given_up = late > 0;
    const struct runner *failure = first_failure(run);
    if (failure && late)
        status = ls_error_set(error, failure->status,
                              "rank %d: %.760s; rank %d did not return (%d in all)", failure->rank,
                              failure->error.text, late_rank, late);
    if (late)
        ls_error_blame(error, LS_CAUSE_GIVEN_UP, "");
    else if (failure)
        status = ls_error_copy(error, failure->status, &failure->error);
    if (failure && !late && started > 1)
        ls_error_prefix(error, "rank %d", failure->rank);
    if (failure && error)
        error->number = 1 + failure->rank;
    /* A thread that was given up may free the run from here on. */
    struct runner *runners = late ? NULL : run->runners;
    for (int i = 0; i < started; i++)
        if (late && run->runners[i].ended)
            pthread_detach(run->runners[i].thread);
    pthread_mutex_unlock(&world->lock);
    if (!runners)
        return status;
    for (int i = 0; i < started; i++)
        pthread_join(runners[i].thread, NULL);
    run_free(run);
    return status;
}

static struct world_run *run_new(int size, struct ls_error *error)
{
    struct world_run *run = calloc(1, sizeof *run);
    struct runner *runners = calloc((size_t)ls_max(size, 1), sizeof *runners);
    struct ls_world *world = NULL;
    if (!run || !runners)
        ls_no_memory(error, "for %d rank threads", size);
    else
        ls_world_new(size, &world, error);
    if (!world) {
        free(runners);
        free(run);
        return NULL;
    }
    ls_condition_init(&run->changed);
    run->world = world;
    run->runners = runners;
    run->running = size;
    return run;
}

int ls_world_run(int size, int (*body)(struct ls_comm *comm, void *user, struct ls_error *error),
                 void *user, struct ls_error *error)
{
    struct ls_error local = {0};
    struct world_run *run = run_new(size, &local);
    if (!run)
        return ls_error_copy(error, local.code, &local);
    struct ls_world *world = run->world;
    run->body = body;
    run->user = user;
    int started = 0, failed = 0;
    for (; started < size && !failed; started += !failed) {
        struct runner *runner = &run->runners[started];
        runner->run = run;
        runner->rank = started;
        failed = pthread_create(&runner->thread, NULL, runner_main, runner);
    }
    for (int i = started; i < size; i++) {
        struct runner *runner = &run->runners[i];
        runner->rank = i;
        int status =
            ls_error_errno(&runner->error, failed, "cannot start rank thread %d of %d", i, size);
        comm_world_leave(world, i, status, &runner->error);
        pthread_mutex_lock(&world->lock);
        runner->status = status;
        runner->ended = run->failed = true;
        run->running--;
        pthread_mutex_unlock(&world->lock);
    }
    return run_end(run, started, error);
}
