/* Copies of checkpoints in a second place, beside the run: the newest that is complete goes there
 * next, and those that the run no longer keeps leave.
 *
 * A run of workers has a checkpoint of the global parameters, part 0, and of each worker, parts 1
 * and on, in RUN/workers/%04d. Their copies lie in PLACE and PLACE/workers/%04d; that of part 0 is
 * the last to come and the first to go, so with it all are there. */
#include "train/second_copy.h"

#include <lockstep/base/helper_thread.h>
#include <lockstep/ckpt.h>
#include <lockstep/ckpt/place.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A checkpoint to be copied. */
struct job {
    struct ls_held **held; /* [parts]; NULL: there is none */
    int64_t step;
    char run[PATH_MAX];
};
enum { OUTCOMES_MAX = 8 };

struct second_copy {
    int parts;
    /* [parts] The thread's, while it runs; NULL: it could not be reached, or was not asked yet. */
    struct ls_place **places;
    struct ls_place_options options;
    char where[LS_CONFIG_TEXT_BYTES];
    char owner[LS_PLACE_OWNER_BYTES]; /* the run, whose the place is to be; "" before it is known */
    pthread_t thread;
    bool running;
    int64_t back;                /* the run went back there: later copies are not its own; -1 */
    int64_t keep;                /* train.keep */
    struct ls_progress progress; /* of the thread */
    pthread_mutex_t lock;        /* of what follows */
    pthread_cond_t changed;
    struct job next;
    bool busy, ends;                            /* ends is read without it */
    struct copy_outcome outcomes[OUTCOMES_MAX]; /* not told yet */
    int count;
};

/* ---- parts ----------------------------------------------------------------------------------- */

/* Where a part lies below base, which is the run's folder or the place. */
static int part_path(char path[PATH_MAX], const char *base, int part, struct ls_error *error)
{
    size_t length = strlen(base);
    while (part > 0 && length > 1 && base[length - 1] == '/')
        length--;
    int used = part > 0 ? snprintf(path, PATH_MAX, "%.*s/workers/%04d", (int)length, base, part - 1)
                        : snprintf(path, PATH_MAX, "%s", base);
    if (used < PATH_MAX)
        return LS_OK;
    return ls_error_set(error, LS_ECONFIG, "%.200s...: the name is too long", base);
}

static int part_place(struct second_copy *copy, int part, struct ls_place **place,
                      struct ls_error *error)
{
    char where[PATH_MAX], parent[PATH_MAX];
    struct ls_place **own = &copy->places[part];
    int status = *own ? LS_OK : part_path(where, copy->where, part, error);
    if (!status && !*own && part > 0 && !ls_url_is(where)) {
        snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(where, '/') - where), where);
        status = ls_directory_add(parent, NULL, error);
    }
    if (!status && !*own)
        status = ls_place_open(own, where, &copy->options, error);
    *place = *own;
    return status;
}

static void held_release(const struct second_copy *copy, struct ls_held **held)
{
    for (int part = 0; part < copy->parts && held; part++)
        ls_held_close(held[part]);
    free(held);
}

/* ---- going back ------------------------------------------------------------------------------ */

/* In the run's folder: the step that it went back to, while its place may have copies of later
 * steps, which are of the past that it left. */
#define BACK_FILE "went_back"

static int back_read(const char *run_directory, int64_t *step, struct ls_error *error)
{
    enum { BACK_BYTES_MAX = 4096 };
    char path[PATH_MAX], *text;
    size_t bytes;
    long long found = -1;
    *step = -1;
    int status = ls_path_join(path, run_directory, BACK_FILE, error);
    if (status || (access(path, F_OK) && errno == ENOENT))
        return status;
    status = ls_file_read(path, BACK_BYTES_MAX, LS_ECKPT, &text, &bytes, error);
    if (status)
        return status;
    if (sscanf(text, "step %lld", &found) != 1 || found < 0)
        status = ls_error_set(error, LS_ECKPT,
                              "%s: expected \"step\" with the number of the step that the run went "
                              "back to; remove the file if it did not go back",
                              path);
    free(text);
    *step = found;
    return status;
}

static int back_write(const char *run_directory, int64_t step, struct ls_error *error)
{
    char path[PATH_MAX], text[40];
    int bytes = snprintf(text, sizeof text, "step %lld\n", (long long)step);
    int status = ls_path_join(path, run_directory, BACK_FILE, error);
    return status ? status : ls_file_put(path, text, (size_t)bytes, NULL, error);
}

/* The place has only copies of the run's own past. */
static int back_forget(struct second_copy *copy, const char *run_directory, struct ls_error *error)
{
    char path[PATH_MAX];
    if (copy->back < 0)
        return LS_OK;
    int status = ls_path_join(path, run_directory, BACK_FILE, error);
    if (!status && unlink(path) && errno != ENOENT)
        status = ls_error_errno(error, errno, "%s: cannot be removed", path);
    if (!status)
        copy->back = -1;
    return status;
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* What cannot be looked at is not gone. */
static bool is_gone(const char *run_directory, int64_t step)
{
    char directory[PATH_MAX];
    return !ls_checkpoint_path(directory, run_directory, step, NULL) &&
           access(directory, F_OK) != 0 && errno == ENOENT;
}

/* What the run no longer has leaves the place too, but for its newest copy. A run whose folder
 * cannot be read has lost its checkpoints, and not removed them; so has one that has fewer than it
 * keeps, which are those of earlier steps. Where it went back, all other copies of steps behind
 * that leave, since they are of the steps that it left. */
static int copies_prune(struct second_copy *copy, const struct job *job, int part,
                        struct ls_error *error)
{
    struct ls_place *place;
    int64_t *steps = NULL;
    size_t count = 0;
    int local = 0;
    char run[PATH_MAX];
    const bool back = copy->back >= 0;
    int status = part_path(run, job->run, part, error);
    status = status ? status : ls_checkpoint_count(run, &local, error);
    if (status || !local)
        return status;
    status = part_place(copy, part, &place, error);
    status = status ? status : ls_place_list(place, &steps, &count, error);
    for (size_t i = back ? 0 : 1; i < count && !status; i++) {
        bool left = back && steps[i] > copy->back;
        if (left && job->step <= copy->back) /* there is no copy of what comes in their place */
            continue;
        bool gone = (steps[i] > job->step || local >= copy->keep) && is_gone(run, steps[i]);
        if (steps[i] != job->step && (left || gone))
            status = ls_place_remove(place, steps[i], error);
    }
    free(steps);
    return status;
}

static int refuse(const char *where, struct ls_error *error)
{
    return ls_error_set(
        error, LS_ECONFIG,
        "%s holds the copies of another run: name another place, or remove its file \"owner\"",
        where);
}

/* The run that owns the place is in another folder than this one, and that is still there: it may
 * go on at any time, or goes on now. A copy of that folder is no run of this name. */
static int refuse_twin(const struct second_copy *copy, const char *owner, const char *folder,
                       const char *run_directory, struct ls_error *error)
{
    struct ls_run_token token;
    struct stat theirs, mine;
    if (!folder[0] || stat(folder, &theirs) || stat(run_directory, &mine) ||
        (theirs.st_dev == mine.st_dev && theirs.st_ino == mine.st_ino) ||
        ls_run_token_read(folder, &token, NULL) || strcmp(token.run, owner) != 0)
        return LS_OK;
    return ls_error_set(error, LS_ECONFIG,
                        "%.300s holds the copies of another run, which is in %.300s: go on with "
                        "train.out=%.300s, or name another place. If that folder is of no use any "
                        "more, remove its file \"start\"",
                        copy->where, folder, folder);
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

/* Another run may have taken the place since. One that could not be reached is tried again. The
 * place has the present folder of its run. */
static int place_meet(struct second_copy *copy, const char *run_directory, struct ls_error *error)
{
    char owner[LS_PLACE_OWNER_BYTES], folder[PATH_MAX], mine[PATH_MAX];
    struct ls_place *place;
    int status = part_place(copy, 0, &place, error);
    status = status ? status : ls_place_owner(place, owner, folder, error);
    if (!status && owner[0])
        status = strcmp(owner, copy->owner) != 0
                     ? refuse(copy->where, error)
                     : refuse_twin(copy, owner, folder, run_directory, error);
    if (!realpath(run_directory, mine))
        mine[0] = '\0';
    if (status || (owner[0] && (!mine[0] || !strcmp(folder, mine))))
        return status;
    return ls_place_own(place, copy->owner, mine, error);
}

static struct copy_outcome job_do(struct second_copy *copy, const struct job *job)
{
    struct copy_outcome outcome = {.step = job->step, .how = COPY_DONE};
    struct ls_error error = {0};
    double start_s = ls_now_s();
    int status = place_meet(copy, job->run, &error);
    for (int part = copy->parts - 1; part >= 0 && !status; part--) {
        struct ls_place *place;
        uint64_t bytes = 0;
        status = part_place(copy, part, &place, &error);
        status = status ? status : ls_place_put(place, job->held[part], &bytes, &error);
        outcome.bytes += bytes;
    }
    outcome.copy_s = ls_now_s() - start_s;
    int pruned = status;
    for (int part = 0; part < copy->parts && !pruned; part++)
        pruned = copies_prune(copy, job, part, &error);
    if (!pruned && job->step > copy->back)
        back_forget(copy, job->run, &error);
    if (status)
        outcome.how = COPY_FAILED;
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
        held_release(copy, job.held);
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
    char run[PATH_MAX], directory[PATH_MAX];
    if (!copy)
        return;
    struct job job = {.step = step, .held = calloc((size_t)copy->parts, sizeof(struct ls_held *))};
    int status = job.held ? LS_OK : ls_no_memory(&error, "to copy it");
    snprintf(job.run, sizeof job.run, "%s", run_directory);
    for (int part = 0; part < copy->parts && !status; part++) {
        status = part_path(run, run_directory, part, &error);
        status = status ? status : ls_checkpoint_path(directory, run, step, &error);
        status = status ? status : ls_held_open(&job.held[part], directory, &error);
    }
    pthread_mutex_lock(&copy->lock);
    if (status) {
        held_release(copy, job.held);
        struct copy_outcome failed = {.step = step, .how = COPY_FAILED};
        snprintf(failed.text, sizeof failed.text, "%s", error.text);
        outcome_add(copy, &failed);
    } else {
        if (copy->next.held)
            outcome_add(copy, &(struct copy_outcome){.step = copy->next.step, .how = COPY_SKIPPED});
        held_release(copy, copy->next.held);
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

static void places_close(struct second_copy *copy)
{
    for (int part = 0; part < copy->parts && copy->places; part++) {
        ls_place_close(copy->places[part]);
        copy->places[part] = NULL;
    }
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
    places_close(copy);
    free(copy->places);
    pthread_cond_destroy(&copy->changed);
    pthread_mutex_destroy(&copy->lock);
    free(copy);
}

/* ---- the beginning --------------------------------------------------------------------------- */

/* The newest step of which a run has all parts; -1: none. */
struct newest {
    int parts;
    const char *run;
    int64_t step;
};

static void step_take(void *user, const char *directory, const struct ls_checkpoint_state *state)
{
    struct newest *newest = user;
    (void)directory;
    for (int part = 1; part < newest->parts; part++) {
        char run[PATH_MAX], path[PATH_MAX];
        if (part_path(run, newest->run, part, NULL) ||
            ls_checkpoint_path(path, run, state->step, NULL) || access(path, F_OK))
            return;
    }
    newest->step = ls_max(newest->step, state->step);
}

static int newest_find(const struct second_copy *copy, const char *run, int64_t *step,
                       struct ls_error *error)
{
    struct newest newest = {copy->parts, run, -1};
    int status = ls_checkpoint_list(run, step_take, &newest, error);
    *step = newest.step;
    return status;
}

/* Whether the place has a whole copy of that step. */
static int is_there(struct ls_place *place, int64_t step, bool *there, struct ls_error *error)
{
    int64_t *steps = NULL;
    size_t count = 0;
    int status = ls_place_list(place, &steps, &count, error);
    *there = false;
    for (size_t i = 0; i < count && !status; i++)
        *there = *there || steps[i] == step;
    free(steps);
    return status;
}

/* All parts of that step. LS_ECKPT: one is missing or damaged. */
static int step_get(struct second_copy *copy, const char *run_directory, int64_t step,
                    struct ls_error *error)
{
    int status = LS_OK;
    for (int part = copy->parts - 1; part >= 0 && !status; part--) {
        struct ls_place *place;
        char run[PATH_MAX];
        bool there = true;
        status = part_place(copy, part, &place, error);
        status = status ? status : part_path(run, run_directory, part, error);
        if (!status && part > 0)
            status = is_there(place, step, &there, error);
        if (!status && !there)
            status = ls_error_set(error, LS_ECKPT, "%s has no copy of worker %d of step %ld",
                                  copy->where, part - 1, (long)step);
        if (!status && part > 0)
            status = ls_directory_make(run, NULL, error);
        status = status ? status : ls_place_get(place, step, run, error);
    }
    return status;
}

/* No copy was fetched, and those of later steps than the run went back to are left alone. */
static int goes_nowhere(const struct second_copy *copy, const struct ls_config *config,
                        struct ls_error *error)
{
    char folder[PATH_MAX];
    if (ls_config_resume_path(config) || ls_run_has_snapshot(config, folder))
        return LS_OK;
    return ls_error_set(error, LS_ECKPT,
                        "%.300s went back to step %ld and has no checkpoint since, and %.300s has "
                        "only copies of later steps: name the checkpoint again with "
                        "train.resume=PATH, or remove %.300s/" BACK_FILE " to go on from the "
                        "newest copy",
                        config->train.out, (long)copy->back, copy->where, config->train.out);
}

/* The newest of the copies that is sound, if it is of a later step than newest, which is the run's,
 * and of no later one than the run went back to. *fetched: there is one. */
static int fetch(struct second_copy *copy, const struct ls_config *config, int64_t newest,
                 const struct ls_log *log, bool *fetched, struct ls_error *error)
{
    int64_t *steps = NULL;
    size_t count = 0, first = 0;
    struct ls_error damage = {0};
    *fetched = false;
    int status = ls_place_list(copy->places[0], &steps, &count, error);
    while (!status && copy->back >= 0 && first < count && steps[first] > copy->back)
        first++;
    for (size_t i = first; i < count && !status && !*fetched && steps[i] > newest; i++) {
        struct ls_error why = {0};
        status = step_get(copy, config->train.out, steps[i], &why);
        *fetched = !status;
        if (*fetched)
            ls_log(log, LS_LOG_WARNING, "%s has %s; that of step %ld was fetched from %s",
                   config->train.out, newest < 0 ? "no sound checkpoint" : "only older checkpoints",
                   (long)steps[i], copy->where);
        else if (status == LS_ECKPT)
            ls_log(log, LS_LOG_WARNING, "skipping a damaged copy: %s", why.text);
        else
            ls_error_copy(error, status, &why);
        damage = damage.code ? damage : why;
        status = status == LS_ECKPT ? LS_OK : status;
    }
    if (!status && !*fetched && newest < 0 && damage.code)
        status = ls_error_set(error, LS_ECKPT,
                              "none of %zu copies in %s is sound, and %s has no checkpoint (name "
                              "another place to start afresh); the newest: %.600s",
                              count - first, copy->where, config->train.out, damage.text);
    else if (!status && !*fetched && newest < 0 && first > 0)
        status = goes_nowhere(copy, config, error);
    free(steps);
    return status;
}

static bool newest_is_sound(const struct second_copy *copy, const char *run_directory)
{
    int64_t newest = -1;
    int status = newest_find(copy, run_directory, &newest, NULL);
    for (int part = 0; part < copy->parts && !status; part++) {
        struct ls_checkpoint *checkpoint = NULL;
        char run[PATH_MAX], directory[PATH_MAX];
        status = part_path(run, run_directory, part, NULL);
        status = status ? status : ls_checkpoint_path(directory, run, newest, NULL);
        status = status ? status : ls_checkpoint_open(&checkpoint, directory, NULL);
        status = status ? status : ls_checkpoint_verify(checkpoint, LS_CKPT_MODEL, NULL);
        status = status ? status : ls_checkpoint_verify(checkpoint, LS_CKPT_OPTIMIZER, NULL);
        ls_checkpoint_close(checkpoint);
    }
    return !status && newest >= 0;
}

bool second_copy_restore(struct second_copy *copy, const struct ls_config *config,
                         const struct ls_log *log)
{
    struct ls_error why = {0};
    bool fetched = false;
    if (copy->places[0] && !newest_is_sound(copy, config->train.out) &&
        fetch(copy, config, -1, log, &fetched, &why))
        ls_log(log, LS_LOG_WARNING, "%s", why.text);
    return fetched;
}

void second_copy_own(struct second_copy *copy, const char *run)
{
    if (copy)
        snprintf(copy->owner, sizeof copy->owner, "%s", run);
}

int second_copy_went_back(struct second_copy *copy, const struct ls_config *config, int64_t step,
                          const struct ls_log *log, struct ls_error *error)
{
    int64_t *steps = NULL;
    size_t count = 0;
    if (!copy)
        return LS_OK;
    bool known = copy->places[0] && !ls_place_list(copy->places[0], &steps, &count, NULL);
    bool later = known && count > 0 && steps[0] > step;
    free(steps);
    bool marked = copy->back >= 0; /* by an earlier start, with another step */
    copy->back = step;
    if (known && !later && !marked)
        return LS_OK;
    if (later)
        ls_log(log, LS_LOG_WARNING,
               "%s has copies of steps behind %ld, which the run computes again: they are removed "
               "with the first copy of a later step. Save elsewhere what you need of them",
               copy->where, (long)step);
    return back_write(config->train.out, step, error);
}

static int begins_anew(const struct second_copy *copy, struct ls_error *error)
{
    int64_t *steps;
    size_t count;
    int status = ls_place_list(copy->places[0], &steps, &count, error);
    free(steps);
    return status || !count ? status
                            : ls_error_set(error, LS_ECONFIG,
                                           "%s already holds checkpoints; resume with "
                                           "train.resume=auto, or name another place",
                                           copy->where);
}

bool second_copy_holds(const struct ls_config *config, const char *checkpoint)
{
    char above[PATH_MAX];
    return config->checkpoint.also[0] && !ls_path_join(above, checkpoint, "..", NULL) &&
           ls_path_same(above, config->checkpoint.also);
}

/* A run whose folder is lost gets the name by which the place knows it. It goes on from the place:
 * from its newest copy, or from the one that was named. */
static int name_take(const struct second_copy *copy, const struct ls_config *config,
                     struct ls_error *error)
{
    char owner[LS_PLACE_OWNER_BYTES], folder[PATH_MAX];
    struct ls_run_token token;
    int count;
    int status = ls_run_token_read(config->train.out, &token, error);
    status = status ? status : ls_place_owner(copy->places[0], owner, folder, error);
    if (!status && owner[0])
        status = refuse_twin(copy, owner, folder, config->train.out, error);
    if (status || !owner[0] || !strcmp(owner, token.run))
        return status;
    status = ls_checkpoint_count(config->train.out, &count, error);
    bool from_it =
        !strcmp(config->train.resume, "auto") || second_copy_holds(config, config->train.resume);
    if (status || token.run[0] || count || !from_it || /* a copied folder has no name */
        strlen(owner) != sizeof token.run - 1)
        return status ? status : refuse(copy->where, error);
    memcpy(token.run, owner, sizeof token.run);
    token.start = 1;
    return ls_run_token_write(config->train.out, &token, error);
}

/* What takes the run's folder would take the copies too. */
static int apart(const char *where, const char *run, struct ls_error *error)
{
    char place[PATH_MAX], folder[PATH_MAX];
    if (ls_url_is(where) || !realpath(where, place) || !realpath(run, folder))
        return LS_OK;
    size_t length = strlen(folder);
    if (strncmp(place, folder, length) || (place[length] && place[length] != '/'))
        return LS_OK;
    return ls_error_set(error, LS_ECONFIG,
                        "%s is in the run's own folder: name a directory on another disk", where);
}

static int look(struct second_copy *copy, const struct ls_config *config, const struct ls_log *log,
                struct ls_error *error)
{
    int64_t newest = -1;
    bool fetched;
    int status = apart(copy->where, config->train.out, error);
    if (!status && !strcmp(config->train.resume, "never"))
        status = begins_anew(copy, error);
    status = status ? status : name_take(copy, config, error);
    for (int part = 0; part < copy->parts && !status; part++) {
        struct ls_place *place;
        status = part_place(copy, part, &place, error);
        status = status ? status : ls_place_sweep(place, error);
    }
    if (status || strcmp(config->train.resume, "auto"))
        return status;
    status = newest_find(copy, config->train.out, &newest, error);
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
    const int parts = config->async.mode == LS_CONFIG_SYNC ? 1 : 1 + (int)ls_config_workers(config);
    if (copy)
        copy->places = calloc((size_t)parts, sizeof(struct ls_place *));
    if (!copy || !copy->places) {
        free(copy);
        return ls_no_memory(error, "to copy checkpoints");
    }
    copy->parts = parts;
    copy->keep = config->train.keep;
    copy->back = -1;
    pthread_mutex_init(&copy->lock, NULL);
    ls_condition_init(&copy->changed);
    snprintf(copy->where, sizeof copy->where, "%s", config->checkpoint.also);
    copy->options.net = (struct ls_net_options){
        .slow_s = timeout_s > 0 ? fmin(SLOW_S, timeout_s / 4) : SLOW_S,
        .patient_s = timeout_s > 0 ? fmin(PATIENT_S, timeout_s / 2) : PATIENT_S,
        .ends = gives_up,
        .user = copy};
    struct ls_place *place;
    int status = back_read(config->train.out, &copy->back, &why);
    status = status ? status : part_place(copy, 0, &place, &why);
    status = status ? status : look(copy, config, log, &why);
    if (status == LS_EIO && !ls_checkpoint_count(config->train.out, &there, NULL) && there > 0) {
        ls_log(log, LS_LOG_WARNING,
               "checkpoint.also: the run goes on, and tries again with its next checkpoint: %s",
               why.text);
        places_close(copy);
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
