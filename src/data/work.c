/* Work in order: jobs go round a ring, from the calling thread to others and back. */
#include "data/data_private.h"

#include <lockstep/base/helper_thread.h>

#include <stdlib.h>

/* Job n lives in slot n % count; taken <= claimed <= posted <= taken + count. */
struct ring {
    const struct data_work *work;
    char *jobs; /* [count] of job_bytes */
    struct slot {
        bool worked;
        int status;
        struct ls_error error;
    } * slots; /* [count] */
    int count;
    int64_t posted, claimed, taken;
    pthread_mutex_t mutex; /* posted, claimed, ends, slot.worked */
    pthread_cond_t changed;
    bool ends;
    struct worker {
        struct ring *ring;
        pthread_t thread;
        bool started;
    } * workers;
};

static void *job_of(const struct ring *ring, int64_t job)
{
    return ring->jobs + (size_t)(job % ring->count) * ring->work->job_bytes;
}

static void *worker_main(void *user)
{
    struct worker *worker = user;
    struct ring *ring = worker->ring;
    const struct data_work *work = ring->work;
    pthread_mutex_lock(&ring->mutex);
    for (;;) {
        while (!ring->ends && ring->claimed == ring->posted)
            pthread_cond_wait(&ring->changed, &ring->mutex);
        if (ring->ends)
            break;
        int64_t job = ring->claimed++;
        struct slot *slot = &ring->slots[job % ring->count];
        pthread_mutex_unlock(&ring->mutex);
        slot->status =
            work->work(work->user, (int)(worker - ring->workers), job_of(ring, job), &slot->error);
        pthread_mutex_lock(&ring->mutex);
        slot->worked = true;
        pthread_cond_broadcast(&ring->changed);
    }
    pthread_mutex_unlock(&ring->mutex);
    return NULL;
}

static int workers_start(struct ring *ring, struct ls_error *error)
{
    int workers = ring->work->workers, failure = 0;
    ring->jobs = calloc((size_t)ring->count, ring->work->job_bytes);
    ring->slots = calloc((size_t)ring->count, sizeof *ring->slots);
    ring->workers = calloc((size_t)workers, sizeof *ring->workers);
    if (!ring->jobs || !ring->slots || !ring->workers)
        return ls_no_memory(error, "for %d workers", workers);
    for (int i = 0; i < workers && !failure; i++) {
        struct worker *worker = &ring->workers[i];
        worker->ring = ring;
        failure = ls_helper_start(&worker->thread, worker_main, worker);
        worker->started = !failure;
    }
    return failure ? ls_error_errno(error, failure, "one of %d workers cannot be started", workers)
                   : LS_OK;
}

static void workers_end(struct ring *ring)
{
    pthread_mutex_lock(&ring->mutex);
    ring->ends = true;
    pthread_cond_broadcast(&ring->changed);
    pthread_mutex_unlock(&ring->mutex);
    for (int i = 0; ring->workers && i < ring->work->workers; i++)
        if (ring->workers[i].started)
            pthread_join(ring->workers[i].thread, NULL);
    for (int i = 0; ring->jobs && i < ring->count; i++)
        ring->work->release(job_of(ring, i));
    free(ring->jobs);
    free(ring->slots);
    free(ring->workers);
}

static int job_post(struct ring *ring, bool *last, struct ls_error *error)
{
    const struct data_work *work = ring->work;
    int status = work->fill(work->user, job_of(ring, ring->posted), last, error);
    if (status)
        return status;
    pthread_mutex_lock(&ring->mutex);
    ring->slots[ring->posted++ % ring->count].worked = false;
    pthread_cond_broadcast(&ring->changed);
    pthread_mutex_unlock(&ring->mutex);
    return LS_OK;
}

static int job_take(struct ring *ring, struct ls_error *error)
{
    const struct data_work *work = ring->work;
    struct slot *slot = &ring->slots[ring->taken % ring->count];
    pthread_mutex_lock(&ring->mutex);
    while (!slot->worked)
        pthread_cond_wait(&ring->changed, &ring->mutex);
    pthread_mutex_unlock(&ring->mutex);
    if (slot->status)
        return ls_error_copy(error, slot->status, &slot->error);
    void *job = job_of(ring, ring->taken++);
    return work->take ? work->take(work->user, job, error) : LS_OK;
}

int data_work_run(const struct data_work *work, struct ls_error *error)
{
    struct ring ring = {.work = work, .count = 2 * work->workers + 1};
    bool last = false;
    pthread_mutex_init(&ring.mutex, NULL);
    pthread_cond_init(&ring.changed, NULL);
    int status = workers_start(&ring, error);
    while (!status && (!last || ring.taken < ring.posted)) {
        if (work->stop && *work->stop)
            status = ls_error_set(error, LS_ESTOPPED, "stopped by a signal%s", work->stopped);
        else if (!last && ring.posted - ring.taken < ring.count)
            status = job_post(&ring, &last, error);
        else
            status = job_take(&ring, error);
    }
    workers_end(&ring);
    pthread_cond_destroy(&ring.changed);
    pthread_mutex_destroy(&ring.mutex);
    return status;
}
