/* Copies of checkpoints in a second place, beside the run: the newest that is complete goes there
 * next, and those that the run no longer keeps leave. */
#include "train/second_copy.h"

#include <lockstep/base/helper_thread.h>
#include <lockstep/ckpt.h>
#include <lockstep/ckpt/place.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A checkpoint to be copied. */
struct job {
    struct ls_held *held; /* NULL: there is none */
    int64_t step;
    char run[PATH_MAX];
};
enum { OUTCOMES_MAX = 8 };

struct second_copy {
    struct ls_place *place; /* the thread's, while it runs; NULL: it could not be reached yet */
    struct ls_place_options options;
    char where[LS_CONFIG_TEXT_BYTES];
    char owner[LS_PLACE_OWNER_BYTES]; /* the run, whose the place is to be; "" before it is known */
    pthread_t thread;
    bool running;
    struct ls_progress progress; /* of the thread */
    pthread_mutex_t lock;        /* of what follows */
    pthread_cond_t changed;
    struct job next;
    bool busy, ends;                            /* ends is read without it */
    struct copy_outcome outcomes[OUTCOMES_MAX]; /* not told yet */
    int count;
};

/* ---- the thread ------------------------------------------------------------------------------ */

/* What cannot be looked at is not gone. */
static bool is_gone(const char *run_directory, int64_t step)
{
    char directory[PATH_MAX];
    return !ls_checkpoint_path(directory, run_directory, step, NULL) &&
           access(directory, F_OK) != 0 && errno == ENOENT;
}

/* What the run no longer has leaves the place too, but for its newest copy. A run whose folder
 * cannot be read has lost its checkpoints, and not removed them. */
static int copies_prune(struct ls_place *place, const struct job *job, struct ls_error *error)
{
    int64_t *steps = NULL;
    size_t count = 0;
    int local = 0;
    int status = ls_checkpoint_count(job->run, &local, error);
    if (status || !local)
        return status;
    status = ls_place_list(place, &steps, &count, error);
    for (size_t i = 1; i < count && !status; i++)
        if (steps[i] != job->step && is_gone(job->run, steps[i]))
            status = ls_place_remove(place, steps[i], error);
    free(steps);
    return status;
}

static int refuse(const char *where, struct ls_error *error)
{
    return ls_error_set(
        error, LS_ECONFIG,
        "%s holds the copies of another run: name another place, or remove its file "
        "\"owner\"",
        where);
}

static void outcome_add(struct second_copy *copy, const struct copy_outcome *outcome)
{
    LS_ASSERT(copy->count < OUTCOMES_MAX);
    copy->outcomes[copy->count++] = *outcome;
}

static bool gives_up(void *user)
{
    return __atomic_load_n(&((struct second_copy *)user)->ends, __ATOMIC_RELAXED);
}

/* Another run may have taken the place since. One that could not be reached is tried again. */
static int place_meet(struct second_copy *copy, struct ls_error *error)
{
    char owner[LS_PLACE_OWNER_BYTES];
    int status =
        copy->place ? LS_OK : ls_place_open(&copy->place, copy->where, &copy->options, error);
    status = status ? status : ls_place_owner(copy->place, owner, error);
    if (!status && !owner[0])
        return ls_place_own(copy->place, copy->owner, error);
    return status || !strcmp(owner, copy->owner) ? status : refuse(copy->where, error);
}

static struct copy_outcome job_do(struct second_copy *copy, const struct job *job)
{
    struct copy_outcome outcome = {.step = job->step, .how = COPY_DONE};
    struct ls_error error = {0};
    double start_s = ls_now_s();
    int status = place_meet(copy, &error);
    status = status ? status : ls_place_put(copy->place, job->held, &outcome.bytes, &error);
    outcome.copy_s = ls_now_s() - start_s;
    if (status)
        outcome.how = COPY_FAILED;
    else
        copies_prune(copy->place, job, &error);
    snprintf(outcome.text, sizeof outcome.text, "%s", error.text);
    return outcome;
}

static void *thread_main(void *user)
{
    struct second_copy *copy = user;
    ls_progress_keep(&copy->progress);
    pthread_mutex_lock(&copy->lock);
    for (;;) {
        while (!copy->next.held && !copy->ends)
            pthread_cond_wait(&copy->changed, &copy->lock);
        struct job job = copy->next;
        if (!job.held)
            break;
        copy->next.held = NULL;
        copy->busy = true;
        pthread_mutex_unlock(&copy->lock);
        struct copy_outcome outcome = job_do(copy, &job);
        ls_held_close(job.held);
        pthread_mutex_lock(&copy->lock);
        copy->busy = false;
        outcome_add(copy, &outcome);
        pthread_cond_broadcast(&copy->changed);
    }
    pthread_mutex_unlock(&copy->lock);
    return NULL;
}

/* ---- the run --------------------------------------------------------------------------------- */

void second_copy_committed(struct second_copy *copy, const char *run_directory, int64_t step)
{
    struct ls_error error = {0};
    char directory[PATH_MAX];
    if (!copy)
        return;
    struct job job = {.step = step};
    int status = ls_checkpoint_path(directory, run_directory, step, &error);
    snprintf(job.run, sizeof job.run, "%s", run_directory);
    status = status ? status : ls_held_open(&job.held, directory, &error);
    pthread_mutex_lock(&copy->lock);
    if (status) {
        struct copy_outcome failed = {.step = step, .how = COPY_FAILED};
        snprintf(failed.text, sizeof failed.text, "%s", error.text);
        outcome_add(copy, &failed);
    } else {
        if (copy->next.held)
            outcome_add(copy, &(struct copy_outcome){.step = copy->next.step, .how = COPY_SKIPPED});
        ls_held_close(copy->next.held);
        copy->next = job;
        pthread_cond_broadcast(&copy->changed);
    }
    pthread_mutex_unlock(&copy->lock);
}

bool second_copy_next(struct second_copy *copy, struct copy_outcome *outcome)
{
    if (!copy)
        return false;
    pthread_mutex_lock(&copy->lock);
    bool any = copy->count > 0;
    if (any) {
        *outcome = copy->outcomes[0];
        memmove(copy->outcomes, copy->outcomes + 1, (size_t)--copy->count * sizeof *outcome);
    }
    pthread_mutex_unlock(&copy->lock);
    return any;
}

void second_copy_finish(struct second_copy *copy)
{
    if (!copy)
        return;
    pthread_mutex_lock(&copy->lock);
    while (copy->busy || copy->next.held)
        ls_helper_wait(&copy->changed, &copy->lock, &copy->progress);
    pthread_mutex_unlock(&copy->lock);
}

void second_copy_close(struct second_copy *copy)
{
    if (!copy)
        return;
    if (copy->running) {
        pthread_mutex_lock(&copy->lock);
        __atomic_store_n(&copy->ends, true, __ATOMIC_RELAXED);
        pthread_cond_broadcast(&copy->changed);
        pthread_mutex_unlock(&copy->lock);
        pthread_join(copy->thread, NULL);
    }
    ls_place_close(copy->place);
    pthread_cond_destroy(&copy->changed);
    pthread_mutex_destroy(&copy->lock);
    free(copy);
}

/* ---- the beginning --------------------------------------------------------------------------- */

static void step_take(void *user, const char *directory, const struct ls_checkpoint_state *state)
{
    int64_t *newest = user;
    (void)directory;
    *newest = ls_max(*newest, state->step);
}

/* The newest of the copies that is sound, if it is of a later step than newest, which is the run's.
 * *fetched: there is one. */
static int fetch(const struct second_copy *copy, const struct ls_config *config, int64_t newest,
                 const struct ls_log *log, bool *fetched, struct ls_error *error)
{
    int64_t *steps = NULL;
    size_t count = 0;
    struct ls_error damage = {0};
    *fetched = false;
    int status = ls_place_list(copy->place, &steps, &count, error);
    for (size_t i = 0; i < count && !status && !*fetched && steps[i] > newest; i++) {
        struct ls_error why = {0};
        status = ls_place_get(copy->place, steps[i], config->train.out, &why);
        *fetched = !status;
        if (*fetched)
            ls_log(log, LS_LOG_WARNING, "%s has %s; that of step %ld was fetched from %s",
                   config->train.out, newest < 0 ? "no sound checkpoint" : "only older checkpoints",
                   (long)steps[i], copy->where);
        else if (status == LS_ECKPT)
            ls_log(log, LS_LOG_WARNING, "skipping a damaged copy: %s", why.text);
        else
            ls_error_set(error, status, "%s", why.text);
        damage = damage.code ? damage : why;
        status = status == LS_ECKPT ? LS_OK : status;
    }
    if (!status && !*fetched && newest < 0 && damage.code)
        status = ls_error_set(error, LS_ECKPT,
                              "none of %zu copies is sound, and %s has no checkpoint (name another "
                              "place to start afresh); the newest: %.600s",
                              count, config->train.out, damage.text);
    free(steps);
    return status;
}

static bool newest_is_sound(const char *run_directory)
{
    struct ls_checkpoint *checkpoint = NULL;
    int status = ls_checkpoint_find_latest(&checkpoint, run_directory, NULL, NULL);
    status = status ? status : checkpoint ? LS_OK : LS_ECKPT;
    status = status ? status : ls_checkpoint_verify(checkpoint, LS_CKPT_MODEL, NULL);
    status = status ? status : ls_checkpoint_verify(checkpoint, LS_CKPT_OPTIMIZER, NULL);
    ls_checkpoint_close(checkpoint);
    return !status;
}

bool second_copy_restore(struct second_copy *copy, const struct ls_config *config,
                         const struct ls_log *log)
{
    struct ls_error why = {0};
    bool fetched = false;
    if (copy->place && !newest_is_sound(config->train.out) &&
        fetch(copy, config, -1, log, &fetched, &why))
        ls_log(log, LS_LOG_WARNING, "%s", why.text);
    return fetched;
}

void second_copy_own(struct second_copy *copy, const char *run)
{
    if (copy)
        snprintf(copy->owner, sizeof copy->owner, "%s", run);
}

static int begins_anew(const struct second_copy *copy, struct ls_error *error)
{
    int64_t *steps;
    size_t count;
    int status = ls_place_list(copy->place, &steps, &count, error);
    free(steps);
    return status || !count ? status
                            : ls_error_set(error, LS_ECONFIG,
                                           "this place already holds checkpoints; resume with "
                                           "train.resume=auto, or name another place");
}

/* A run whose folder is lost gets the name by which the place knows it. */
static int name_take(const struct second_copy *copy, const struct ls_config *config,
                     struct ls_error *error)
{
    char owner[LS_PLACE_OWNER_BYTES];
    struct ls_run_token token;
    int count;
    int status = ls_run_token_read(config->train.out, &token, error);
    status = status ? status : ls_place_owner(copy->place, owner, error);
    if (status || !owner[0] || !strcmp(owner, token.run))
        return status;
    status = ls_checkpoint_count(config->train.out, &count, error);
    if (status || token.run[0] || count) /* a copied folder has no name */
        return status ? status : refuse(copy->where, error);
    if (strcmp(config->train.resume, "auto") || strlen(owner) != sizeof token.run - 1)
        return LS_OK;
    memcpy(token.run, owner, sizeof token.run);
    token.start = 1;
    return ls_run_token_write(config->train.out, &token, error);
}

static int look(const struct second_copy *copy, const struct ls_config *config,
                const struct ls_log *log, struct ls_error *error)
{
    int64_t newest = -1;
    bool fetched;
    int status = strcmp(config->train.resume, "never") ? LS_OK : begins_anew(copy, error);
    status = status ? status : name_take(copy, config, error);
    status = status ? status : ls_place_sweep(copy->place, error);
    if (status || strcmp(config->train.resume, "auto"))
        return status;
    status = ls_checkpoint_list(config->train.out, step_take, &newest, error);
    return status ? status : fetch(copy, config, newest, log, &fetched, error);
}

int second_copy_open(struct second_copy **out, const struct ls_config *config,
                     const struct ls_log *log, struct ls_error *error)
{
    enum { SLOW_S = 30, PATIENT_S = 300 };
    struct ls_error why = {0};
    int there = 0;
    double timeout_s = config->comm.timeout_s;
    *out = NULL;
    if (!config->checkpoint.also[0])
        return LS_OK;
    struct second_copy *copy = calloc(1, sizeof *copy);
    if (!copy)
        return ls_error_set(error, LS_ENOMEM, "no memory to copy checkpoints");
    pthread_mutex_init(&copy->lock, NULL);
    ls_condition_init(&copy->changed);
    snprintf(copy->where, sizeof copy->where, "%s", config->checkpoint.also);
    copy->options.net = (struct ls_net_options){
        .slow_s = timeout_s > 0 ? ls_min(SLOW_S, timeout_s / 4) : SLOW_S,
        .patient_s = timeout_s > 0 ? ls_min(PATIENT_S, timeout_s / 2) : PATIENT_S,
        .ends = gives_up,
        .user = copy};
    int status = ls_place_open(&copy->place, copy->where, &copy->options, &why);
    status = status ? status : look(copy, config, log, &why);
    if (status == LS_EIO && !ls_checkpoint_count(config->train.out, &there, NULL) && there > 0) {
        ls_log(log, LS_LOG_WARNING,
               "checkpoint.also: the run goes on, and tries again with its next checkpoint: %s",
               why.text);
        ls_place_close(copy->place);
        copy->place = NULL;
        status = LS_OK;
    }
    if (status && error)
        *error = why;
    if (!status && ls_helper_start(&copy->thread, thread_main, copy))
        status = ls_error_set(error, LS_ENOMEM, "no thread to copy checkpoints");
    copy->running = !status;
    if (status) {
        ls_config_blame(config, "checkpoint.also", error);
        second_copy_close(copy);
        return status;
    }
    *out = copy;
    return LS_OK;
}
