/* Where a run stands, by its records. */
#include "launch/launch_private.h"

#include <lockstep/ckpt.h>
#include <lockstep/config/inputs.h>
#include <lockstep/train.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *ls_run_state_name(enum ls_run_state state)
{
    static const char *const names[] = {
        [LS_RUN_STARTING] = "starting", [LS_RUN_RUNNING] = "running", [LS_RUN_WAITING] = "waiting",
        [LS_RUN_DONE] = "done",         [LS_RUN_STOPPED] = "stopped", [LS_RUN_FAILED] = "failed",
        [LS_RUN_KILLED] = "killed"};
    return names[state];
}

struct reading {
    struct ls_run_status *status;
    char end[32];       /* how the newest start ended; "" if it did not say */
    double began;       /* when that was */
    char gave_up[1024]; /* why the newest launcher did; "" if it did not */
    double gave_up_s;   /* and when: a run that began since is another matter */
};

/* As many whole characters as there is room for. */
static void text_take(const struct ls_record *record, const char *key, char *text, size_t bytes)
{
    const char *from = ls_record_string(record, key);
    size_t used = 0, length = strlen(from), next;
    while ((next = ls_utf8_character(from + used, length - used)) > 0 && used + next < bytes)
        used += next;
    snprintf(text, bytes, "%.*s", (int)used, from);
}

static void heard(struct ls_run_status *s, const struct ls_record *record)
{
    /* Of NaN and a number, the number. */
    s->heard = fmax(s->heard, ls_record_value(record, "time"));
}

/* A record of metrics.jsonl. */
static void metric_visit(void *user, const struct ls_record *record)
{
    struct reading *reading = user;
    struct ls_run_status *s = reading->status;
    const char *event = ls_record_text(record, "event");
    const int64_t step = ls_record_whole(record, "step", -1);
    heard(s, record);
    if (event && (!strcmp(event, "start") || !strcmp(event, "resume"))) {
        text_take(record, "layout", s->layout, sizeof s->layout);
        s->ranks = launch_count(record, "ranks");
        reading->end[0] = s->text[0] = '\0';
        s->step = ls_max(s->step, step); /* of another run, perhaps: no step of its own yet */
        reading->began = fmax(ls_record_value(record, "time"), 0);
    } else if (event && !strcmp(event, "end")) {
        text_take(record, "how", reading->end, sizeof reading->end);
        text_take(record, "text", s->text, sizeof s->text);
    } else if (!event && step >= 0 && ls_record_text(record, "loss_bits")) {
        s->step = step;
        ls_record_number(record, "loss", &s->loss);
        ls_record_number(record, "time", &s->step_time);
    }
}

static void failure_add(struct ls_run_status *s, const char *kind)
{
    int i = 0;
    while (i < s->kinds && strcmp(s->failures[i].kind, kind))
        i++;
    if (i == LS_FAILURE_KINDS_MAX)
        return;
    snprintf(s->failures[i].kind, sizeof s->failures[i].kind, "%s", kind);
    s->failures[i].count++;
    s->kinds = (int)ls_max(s->kinds, i + 1);
}

/* A record of events.jsonl. */
static void event_visit(void *user, const struct ls_record *record)
{
    struct reading *reading = user;
    struct ls_run_status *s = reading->status;
    const char *event = ls_record_text(record, "event"), *kind = ls_record_text(record, "kind");
    heard(s, record);
    if (!event)
        return;
    if (!strcmp(event, "failed"))
        failure_add(s, kind ? kind : "other");
    if (!strcmp(event, "going_on")) {
        s->again += launch_count(record, "again");
        s->lost_s += fmax(ls_record_value(record, "seconds"), 0);
    }
    if (!strcmp(event, "start"))
        reading->gave_up[0] = reading->end[0] = '\0';
    if (!strcmp(event, "stopped")) /* before the run began, which would say so itself */
        snprintf(reading->end, sizeof reading->end, "stopped");
    if (!strcmp(event, "gave_up")) {
        text_take(record, "text", reading->gave_up, sizeof reading->gave_up);
        reading->gave_up_s = ls_record_value(record, "time");
    }
}

struct newest {
    int64_t step;
    double time;
};

static void checkpoint_visit(void *user, const char *directory,
                             const struct ls_checkpoint_state *state)
{
    struct newest *newest = user;
    struct stat status;
    if (stat(directory, &status))
        return;
    newest->step = state->step;
    newest->time = (double)status.st_mtim.tv_sec;
}

int64_t launch_newest(const char *run, double *time)
{
    struct newest newest = {.step = -1};
    char directory[PATH_MAX];
    int64_t *steps = NULL, count = 0;
    ls_checkpoint_steps(run, &steps, &count, NULL);
    for (int64_t i = 0; i < count && newest.step < 0; i++)
        if (!ls_checkpoint_path(directory, run, steps[i], NULL))
            ls_checkpoint_visit(directory, checkpoint_visit, &newest, NULL);
    free(steps);
    *time = newest.time;
    return newest.step;
}

/* Whether train.resume names train.out, or a checkpoint of it. */
static bool resumes_own(const struct ls_config *config)
{
    char of[PATH_MAX];
    return !ls_checkpoint_run(config->train.resume, of, NULL) &&
           ls_path_same(of, config->train.out);
}

int launch_resume_check(const struct ls_config *config, struct ls_error *error)
{
    const char *path = config->train.resume, *out = config->train.out;
    char newest[PATH_MAX];
    if (ls_config_resume_path(config) != path || !resumes_own(config) ||
        ls_checkpoint_newest(out, newest, NULL) || access(path, F_OK) ||
        ls_path_same(newest, path) || ls_path_same(out, path))
        return LS_OK;
    return ls_config_reject(
        config, LS_ECONFIG, "train.resume", error,
        "this run has the newer %.300s, from which a job goes on: leave train.resume out. To go "
        "back, start `lockstep train` with it once, which sets the newer ones aside",
        newest);
}

void launch_resume_tell(const struct ls_config *config, int64_t kept, const struct ls_log *log)
{
    const char *path = config->train.resume;
    if (kept < 0 || ls_config_resume_path(config) != path || resumes_own(config))
        return;
    ls_log(log, LS_LOG_WARNING,
           "train.resume = %s is not used, because %s goes on from its own step %ld. To go back, "
           "start `lockstep train` with it once; if it is only where the run began, write "
           "train.resume=auto train.resume_else=%s",
           path, config->train.out, (long)kept, path);
}

/* Who holds the run's lock, and its launcher's. */
struct holders {
    enum ls_lock_state trains, launches;
    char who[256], launcher[256];
};

static struct holders holders_look(const char *run)
{
    struct holders h;
    char folder[PATH_MAX];
    memset(&h, 0, sizeof h); /* they are compared */
    h.trains = ls_lock_look(run, h.who, sizeof h.who);
    h.launches = LS_LOCK_FREE;
    if (!ls_path_join(folder, run, "launch", NULL))
        h.launches = ls_lock_look(folder, h.launcher, sizeof h.launcher);
    return h;
}

/* By the locks first, which cannot lie of this host; then by what the run said last. */
static enum ls_run_state state_of(const struct holders *h, const struct reading *reading)
{
    struct ls_run_status *s = reading->status;
    const char *end = reading->end;
    if (h->trains == LS_LOCK_HELD || h->trains == LS_LOCK_ELSEWHERE) {
        s->text[0] = '\0';
        s->elsewhere = h->trains == LS_LOCK_ELSEWHERE;
        snprintf(s->who, sizeof s->who, "%s", h->who);
        return reading->began > 0 ? LS_RUN_RUNNING : LS_RUN_STARTING;
    }
    if (h->launches == LS_LOCK_HELD || h->launches == LS_LOCK_ELSEWHERE) {
        s->elsewhere = h->launches == LS_LOCK_ELSEWHERE;
        snprintf(s->who, sizeof s->who, "its launcher is %.200s", h->launcher);
        return reading->began > 0 ? LS_RUN_WAITING : LS_RUN_STARTING;
    }
    if (reading->gave_up[0] && !(reading->gave_up_s < reading->began)) {
        snprintf(s->text, sizeof s->text, "%s", reading->gave_up);
        return LS_RUN_FAILED;
    }
    return !strcmp(end, "done")      ? LS_RUN_DONE
           : !strcmp(end, "stopped") ? LS_RUN_STOPPED
           : !strcmp(end, "failed")  ? LS_RUN_FAILED
                                     : LS_RUN_KILLED;
}

static bool has(const char *run, const char *name)
{
    char path[PATH_MAX];
    return ls_path_join(path, run, name, NULL) == LS_OK && access(path, F_OK) == 0;
}

static int records_read(const char *run, const char *name, bool required,
                        void (*visit)(void *user, const struct ls_record *record),
                        struct reading *reading, struct ls_error *error)
{
    char path[PATH_MAX];
    bool torn;
    snprintf(path, sizeof path, "%s/%s", run, name);
    if (!required && !has(run, name))
        return LS_OK;
    return ls_jsonl_each(path, visit, reading, &torn, error);
}

/* A folder below a run's, of a worker or a checkpoint, has no records of its own. */
static int folder_check(const char *given, struct ls_error *error)
{
    static const struct {
        const char *parent, *what;
    } below[] = {{"workers", "a worker"}, {"checkpoints", "a checkpoint"}};
    char real[PATH_MAX], run[PATH_MAX];
    if (has(given, "metrics.jsonl") || !realpath(given, real))
        return LS_OK;
    for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
        snprintf(run, sizeof run, "%s", real);
        *strrchr(run, '/') = '\0';
        char *name = strrchr(run, '/');
        if (!name || strcmp(name + 1, below[i].parent) != 0)
            continue;
        *name = '\0';
        if (has(run, "metrics.jsonl"))
            return ls_error_set(error, LS_EIO,
                                "%.300s is the folder of %s of a run: expected the run itself, "
                                "%.600s",
                                given, below[i].what, run);
    }
    return LS_OK;
}

static int folder_exists(const char *run, struct ls_error *error)
{
    struct stat about;
    char hint[PATH_MAX];
    if (!stat(run, &about) && S_ISDIR(about.st_mode))
        return LS_OK;
    ls_path_hint(run, NULL, hint, sizeof hint);
    return ls_error_set(error, LS_EIO, "%s is no run's folder%s", run, hint);
}

/* What there is beside the lines of metrics.jsonl: the steps that will be, and what is saved. */
static void kept_look(const char *run, struct ls_config *config, struct ls_run_status *s)
{
    char folder[PATH_MAX];
    s->steps = ls_config_steps(config);
    s->saved = launch_newest(run, &s->saved_time);
    snprintf(config->train.out, sizeof config->train.out, "%s", run);
    if (ls_run_has_snapshot(config, folder))
        s->snapshot = launch_newest(folder, &s->snapshot_time);
}

static int status_read(const char *run, const struct holders *holders, struct ls_run_status *status,
                       struct ls_error *error)
{
    struct reading reading = {.status = status};
    struct ls_config config;
    struct ls_tokenizer *tokenizer = NULL;
    *status = (struct ls_run_status){
        .loss = NAN, .step_time = NAN, .heard = NAN, .saved = -1, .snapshot = -1};
    int code = records_read(run, "events.jsonl", false, event_visit, &reading, error);
    status->state = code ? LS_RUN_KILLED : state_of(holders, &reading);
    bool launched = status->state == LS_RUN_STARTING || !isnan(status->heard);
    if (code || (launched && !has(run, "metrics.jsonl")))
        return code;
    if (!has(run, "config.yaml"))
        return ls_error_set(error, LS_EIO, "%s is no run's folder: it has no config.yaml", run);
    code = ls_kept_read(run, &config, &tokenizer, error);
    ls_tokenizer_free(tokenizer);
    if (!code)
        code = records_read(run, "metrics.jsonl", true, metric_visit, &reading, error);
    if (code)
        return code;
    kept_look(run, &config, status);
    status->state = state_of(holders, &reading);
    return LS_OK;
}

/* A run that begins or ends meanwhile is read once more: its locks and records would not be of one
 * moment, and one that is done would seem to have been killed. */
int ls_run_status_read(const char *run, struct ls_run_status *status, struct ls_error *error)
{
    enum { TRIES = 10 };
    int code = folder_exists(run, error);
    if (!code)
        code = folder_check(run, error);
    struct holders now = holders_look(run), before;
    for (int tries = 0; tries < TRIES && !code; tries++) {
        before = now;
        code = status_read(run, &before, status, error);
        now = holders_look(run);
        if (!memcmp(&before, &now, sizeof now))
            break;
    }
    return code;
}
