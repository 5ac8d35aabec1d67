/* What a run records while the job goes on: metrics.jsonl, from its end. */
#include "launch/launch_private.h"

#include <lockstep/base/median.h>
#include <lockstep/train/drift.h>

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WARM_UP_STEPS = 2 };

/* What the lines told so far, read from the last one backwards. */
struct found {
    int64_t step, from, ranks;
    double peak_flops, save_s, eval_s, step_s;
    char mark[512], end[32], end_text[1024];
    bool stepped, began, any, drifted, staged;
    bool evaluation;   /* the line that is read */
    int64_t slow_rank; /* where it drifted; -1: no more */
    double slow_above;
    char slow_host[64];
    int64_t stage; /* the same of stages */
    char stages_s[4096];
};

/* 0: it has no such number. */
static double amount(const struct ls_record *record, const char *key)
{
    return fmax(ls_record_value(record, key), 0);
}

/* "drift" or "drift_over": the newest of each kind counts. */
static void drift_take(struct found *found, const struct ls_record *record, bool over)
{
    const char *kind = ls_record_string(record, "kind");
    if (!found->drifted && !strcmp(kind, ls_drift_name(LS_DRIFT_SLOW_RANK))) {
        double took_s = amount(record, "took_s"), expected_s = amount(record, "expected_s");
        found->drifted = true;
        found->slow_rank = over ? -1 : ls_record_whole(record, "rank", 0);
        snprintf(found->slow_host, sizeof found->slow_host, "%s", ls_record_string(record, "host"));
        found->slow_above = expected_s > 0 ? took_s / expected_s - 1 : 0;
    } else if (!found->staged && !strcmp(kind, ls_drift_name(LS_DRIFT_STAGE))) {
        found->staged = true;
        found->stage = over ? -1 : ls_record_whole(record, "stage", 0);
        snprintf(found->stages_s, sizeof found->stages_s, "%s",
                 ls_record_string(record, "stages_s"));
    }
}

static void record_take(void *user, const struct ls_record *record)
{
    struct found *found = user;
    const char *name = ls_record_string(record, "event");
    const int64_t step = ls_record_whole(record, "step", -1);
    if (found->evaluation) {
        found->eval_s = fmax(found->eval_s, amount(record, "eval_s"));
    } else if (!*name && !found->stepped && step >= 0) {
        found->step = step;
        found->step_s = amount(record, "step_s");
        found->stepped = true;
    } else if (!strncmp(name, "drift", 5)) {
        drift_take(found, record, strcmp(name, "drift") != 0);
    } else if (!strcmp(name, "save")) {
        found->save_s = fmax(found->save_s, amount(record, "save_s"));
    } else if (!strcmp(name, "end") && !found->any && !found->stepped) {
        snprintf(found->end, sizeof found->end, "%s", ls_record_string(record, "how"));
        snprintf(found->end_text, sizeof found->end_text, "%s", ls_record_string(record, "text"));
    } else if (!strcmp(name, "start") || !strcmp(name, "resume")) {
        found->from = ls_max(step, ls_record_whole(record, "rescued", 0));
        found->ranks = launch_count(record, "ranks");
        found->peak_flops = amount(record, "peak_flops");
        found->began = true;
    }
    found->any |= *name && strcmp(name, "end") != 0 && strcmp(name, "save") != 0;
}

/* One line. Only those of interest are parsed. */
static void line_take(struct found *found, const char *line, size_t length)
{
    const bool event = memmem(line, length, "\"event\"", 7) != NULL, began = found->began;
    found->evaluation = !event && memmem(line, length, "\"eval_s\"", 8);
    if (event || found->evaluation ||
        (!found->stepped && memmem(line, length, "\"loss_bits\"", 11)))
        ls_record_show(line, length, record_take, found);
    if (found->began && !began)
        snprintf(found->mark, sizeof found->mark, "%.*s", (int)length, line);
}

/* The lines of text[bytes] from the last whole one to the newest start. Returns where the first one
 * that was taken begins; the text of others is before it. */
static size_t lines_take(struct found *found, const char *text, size_t bytes, bool whole)
{
    const char *last = memrchr(text, '\n', bytes);
    size_t taken = bytes;
    while (last && !found->began) {
        const char *before = last > text ? memrchr(text, '\n', (size_t)(last - text)) : NULL;
        if (!before && !whole)
            break; /* its beginning is not here */
        taken = before ? (size_t)(before + 1 - text) : 0;
        line_take(found, text + taken, (size_t)(last - text) - taken);
        last = before;
    }
    return taken;
}

/* The file from its end, a piece at a time until there is what is looked for. */
static void file_read(int fd, off_t size, bool enough_is_a_step, struct found *found)
{
    off_t room = 1 << 16, end = size;
    char *text = malloc((size_t)room);
    *found = (struct found){0};
    while (text && end > 0 && !found->began && !(enough_is_a_step && found->stepped)) {
        off_t take = ls_min(room, end);
        size_t got;
        if (ls_fd_read(fd, end - take, text, (size_t)take, &got) || got < (size_t)take)
            break;
        size_t taken = lines_take(found, text, (size_t)take, take == end);
        if (taken == (size_t)take && take == end)
            break; /* no whole line is left */
        if (taken < (size_t)take) {
            end -= take - (off_t)taken;
            continue;
        }
        char *more = realloc(text, (size_t)(room *= 8)); /* for a line that is longer */
        if (!more)
            break;
        text = more;
    }
    free(text);
}

void launch_watch_open(struct launch_watch *watch, const char *run, double slow)
{
    *watch = (struct launch_watch){.slow = slow};
    snprintf(watch->path, sizeof watch->path, "%s/metrics.jsonl", run);
}

int launch_watch_code(const struct launch_watch *watch)
{
    return !strcmp(watch->end, "done")      ? LS_OK
           : !strcmp(watch->end, "stopped") ? ls_exit_code(LS_ESTOPPED)
                                            : -1;
}

static void durations_take(struct launch_watch *watch, const struct found *found)
{
    watch->save_s = fmax(watch->save_s, found->save_s);
    watch->eval_s = fmax(watch->eval_s, found->eval_s);
    watch->step_s = found->stepped ? found->step_s : watch->step_s;
}

double launch_watch_step_s(const struct launch_watch *watch)
{
    double sorted[LAUNCH_RECENT];
    int64_t count = ls_min(watch->recent, LAUNCH_RECENT);
    memcpy(sorted, watch->recent_s, sizeof sorted);
    return count > 0 ? ls_median(sorted, count) : watch->step_s;
}

void launch_watch_begin(struct launch_watch *watch)
{
    struct found found = {0};
    struct stat status;
    int fd = open(watch->path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &status) == 0)
        file_read(fd, status.st_size, watch->known, &found);
    if (fd >= 0)
        close(fd);
    if (!watch->known)
        memcpy(watch->mark, found.mark, sizeof watch->mark);
    watch->known = true;
    watch->step = ls_max(watch->step, found.step);
    durations_take(watch, &found);
    watch->started = watch->stepped = false;
    watch->slow_rank = watch->stage = -1;
    watch->recent = 0;
    watch->end[0] = watch->end_text[0] = '\0';
    watch->size = 0;
}

bool launch_watch_look(struct launch_watch *watch)
{
    struct found found = {0};
    struct stat status;
    int fd = open(watch->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) ||
        (status.st_size == watch->size && status.st_mtim.tv_nsec == watch->changed.tv_nsec &&
         status.st_mtim.tv_sec == watch->changed.tv_sec)) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    watch->size = status.st_size;
    watch->changed = status.st_mtim;
    file_read(fd, status.st_size, watch->started, &found);
    close(fd);
    if (found.began && strcmp(found.mark, watch->mark) != 0) {
        watch->started = watch->begun = true;
        memcpy(watch->mark, found.mark, sizeof watch->mark);
        watch->from = found.from;
        watch->ranks = found.ranks;
        watch->peak_flops = found.peak_flops;
    }
    if (!watch->started)
        return true;
    durations_take(watch, &found);
    if (found.drifted) {
        bool lasts = watch->slow_rank == found.slow_rank && watch->slow_above >= watch->slow;
        watch->slow_s = lasts ? watch->slow_s : ls_now_s();
        watch->slow_rank = found.slow_rank;
        watch->slow_above = found.slow_above;
        memcpy(watch->slow_host, found.slow_host, sizeof watch->slow_host);
    }
    if (found.staged) {
        watch->stage_since_s = watch->stage == found.stage ? watch->stage_since_s : ls_now_s();
        watch->stage = found.stage;
        memcpy(watch->stages_s, found.stages_s, sizeof watch->stages_s);
    }
    if (found.stepped && found.step > ls_max(watch->step, watch->from + WARM_UP_STEPS))
        watch->recent_s[watch->recent++ % LAUNCH_RECENT] = found.step_s;
    if (found.stepped) {
        watch->stepped = true;
        watch->step = found.step;
    }
    memcpy(watch->end, found.end, sizeof watch->end);
    memcpy(watch->end_text, found.end_text, sizeof watch->end_text);
    return true;
}
