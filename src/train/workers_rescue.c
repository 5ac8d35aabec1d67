/* What the workers that are left when a rank dies keep of an interval, and how a start of the job
 * takes it up. In RUN/rescue/workers/0002:
 *
 *   checkpoints          the worker, behind the interval's steps, or behind the outer step
 *   outer/checkpoints    the global parameters, before or behind it
 *   notes                the rest: the last to be written, so that all is there with it
 *   deltas-00003         with async.delay, of that rank: as they left, before the last steps
 *   refused              in place of these: it lived, and could not be written
 *
 * With a parameter server its ranks are one worker more, who has the global parameters and what was
 * said of the interval's steps. If the server died, workers keep these as they were at the last
 * meeting. */
#include "train/membership.h"
#include "train/parameter_server.h"

#include <lockstep/base/file.h>
#include <lockstep/train/members.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char folder_name[] = "rescue";

static int run_path(const struct ls_trainer *t, char path[PATH_MAX], struct ls_error *error)
{
    return ls_path_join(path, t->config.train.out, folder_name, error);
}

static int worker_path(const struct ls_trainer *t, int worker, const char *name,
                       char path[PATH_MAX], struct ls_error *error)
{
    char below[64];
    snprintf(below, sizeof below, "%s/workers/%04d/%s", folder_name, worker, name);
    return ls_path_join(path, t->config.train.out, below, error);
}

/* ---- notes ----------------------------------------------------------------------------------- */

/* Behind it: [1 or count, interval, note_size] doubles, and the hash of all that. */
struct head {
    char mark[16];
    int64_t interval, count, note_size;
    struct rescue of;
};
static const char mark[16] = "lockstep notes 1";

static bool serves(const struct workers *w, int worker)
{
    return w->server && worker == w->count;
}

static size_t notes_count(const struct workers *w, bool met)
{
    if (w->server)
        return met ? (size_t)w->interval * w->note_size : 0;
    return (size_t)((met ? w->count : 1) * w->interval) * w->note_size;
}

/* The step of the global parameters that this group keeps, -1: it keeps none. A worker of a server
 * keeps those of the last meeting, if the server may have died: it told of no other death. */
static int64_t outer_kept(const struct ls_trainer *t)
{
    const struct workers *w = t->workers;
    const struct server *s = w->server;
    if (s && !serves(w, w->group))
        return s->lost < 0 && s->copied > 0 ? s->copied : -1;
    return w->stage == WORKERS_AT_WORK ? -1 : workers_outer(t)->step;
}

/* Whether the group keeps what its workers are behind the interval's steps. */
static bool units_kept(const struct workers *w)
{
    return w->stage != WORKERS_AT_WORK;
}

/* Whether all that was said of the steps before these parameters goes with them. */
static bool has_met(const struct ls_trainer *t)
{
    const struct workers *w = t->workers;
    if (w->server && !serves(w, w->group))
        return outer_kept(t) >= 0 && w->server->noted;
    return w->stage == WORKERS_MET;
}

/* Of the worker under way, or of the server. */
static void notes_copy(const struct workers *w, size_t words, bool met, double *to)
{
    if (w->server) {
        memcpy(to, w->notes, words * sizeof *to);
        return;
    }
    for (int i = 0; i < (met ? w->count : 1); i++)
        for (int64_t step = 0; step < w->interval; step++, to += w->note_size)
            memcpy(to,
                   met ? reports_note(w, i, step)
                       : w->mine + (size_t)(step * w->each + w->worker) * w->note_size,
                   w->note_size * sizeof *to);
}

static int notes_bytes_write(const void *context, FILE *file, struct ls_error *error)
{
    const struct ls_trainer *t = context;
    const struct workers *w = t->workers;
    bool met = has_met(t);
    size_t words = notes_count(w, met);
    double *notes = malloc((words + 1) * sizeof *notes);
    if (!notes)
        return ls_no_memory(error, "for the notes of a worker");
    notes_copy(w, words, met, notes);
    const struct ls_state *outer = workers_outer(t);
    const struct ls_state *unit = w->server ? outer : &t->units[w->worker];
    struct head head = {.interval = w->interval,
                        .count = w->count,
                        .note_size = (int64_t)w->note_size,
                        .of = {.met = met,
                               .outer_step = outer_kept(t),
                               .base = w->base,
                               .start = w->start,
                               .step = units_kept(w) ? unit->step : -1,
                               .samples = unit->samples,
                               .outer_norm = w->outer_norm}};
    memcpy(head.mark, mark, sizeof mark);
    memcpy(head.of.placed, w->placed, sizeof w->placed);
    uint64_t hash = ls_hash64(notes, words * sizeof *notes, ls_hash64(&head, sizeof head, 0));
    fwrite(&head, sizeof head, 1, file);
    fwrite(notes, sizeof *notes, words, file);
    fwrite(&hash, sizeof hash, 1, file);
    free(notes);
    return LS_OK;
}

/* Local. False: there are none of this worker, or they are damaged or of another recipe. */
static bool notes_read(const struct ls_trainer *t, int worker, struct rescue *of, double *notes)
{
    const struct workers *w = t->workers;
    const size_t most = sizeof(struct head) + notes_count(w, true) * sizeof(double) + 64;
    char path[PATH_MAX], *text = NULL;
    struct head head;
    uint64_t hash;
    size_t bytes, words;
    if (worker_path(t, worker, "notes", path, NULL) || access(path, F_OK) ||
        ls_file_read(path, most, LS_EDATA, &text, &bytes, NULL))
        return false;
    bool sound = bytes >= sizeof head;
    if (sound)
        memcpy(&head, text, sizeof head);
    sound = sound && !memcmp(head.mark, mark, sizeof mark) && head.interval == w->interval &&
            head.count == w->count && head.note_size == (int64_t)w->note_size;
    words = sound ? notes_count(w, head.of.met) : 0;
    sound = sound && bytes == sizeof head + words * sizeof *notes + sizeof hash;
    if (sound) {
        memcpy(&hash, text + bytes - sizeof hash, sizeof hash);
        sound = hash == ls_hash64(text + sizeof head, words * sizeof *notes,
                                  ls_hash64(&head, sizeof head, 0));
    }
    if (sound)
        *of = head.of;
    if (sound && notes)
        memcpy(notes, text + sizeof head, words * sizeof *notes);
    free(text);
    return sound;
}

/* ---- deltas ---------------------------------------------------------------------------------- */

bool rescue_keeps_deltas(const struct ls_trainer *t)
{
    return t->workers->delay == 0 || t->config.async.delta != LS_DELTA_INT8;
}

static int deltas_path(const struct ls_trainer *t, int worker, char path[PATH_MAX],
                       struct ls_error *error)
{
    char name[32];
    snprintf(name, sizeof name, "deltas-%05d", ls_comm_rank(t->world));
    return worker_path(t, worker, name, path, error);
}

/* Of the worker under way: the deltas, and the hash of all that and of which elements they are. */
static int deltas_write(const void *context, FILE *file, struct ls_error *error)
{
    struct ls_trainer *t = *(struct ls_trainer *const *)context;
    const size_t bytes = exchange_deltas_bytes(t);
    char *deltas = malloc(bytes + 1);
    if (!deltas)
        return ls_no_memory(error, "for the deltas of a worker");
    exchange_deltas_copy(t, t->workers->worker, deltas, true);
    const uint64_t hash = ls_hash64(deltas, bytes, exchange_deltas_hash(t));
    fwrite(deltas, 1, bytes, file);
    fwrite(&hash, sizeof hash, 1, file);
    free(deltas);
    return LS_OK;
}

static int deltas_read(struct ls_trainer *t, int k, struct ls_error *error)
{
    struct workers *w = t->workers;
    const size_t expected = exchange_deltas_bytes(t);
    char path[PATH_MAX], **deltas = &w->kept_deltas[k];
    size_t bytes;
    uint64_t hash;
    int status = deltas_path(t, w->group * w->each + k, path, error);
    if (!status)
        status = ls_file_read(path, expected + sizeof hash, LS_ECKPT, deltas, &bytes, error);
    if (status)
        return ls_error_set(error, LS_ECKPT, "%.600s: deltas of a worker cannot be read", path);
    bool sound = bytes == expected + sizeof hash;
    if (sound)
        memcpy(&hash, *deltas + expected, sizeof hash);
    if (sound && hash == ls_hash64(*deltas, expected, exchange_deltas_hash(t)))
        return LS_OK;
    return ls_error_set(error, LS_ECKPT,
                        "%.600s is damaged, or of another layout: expected %zu bytes of deltas",
                        path, expected);
}

/* ---- a job that lost a rank ------------------------------------------------------------------ */

static int unit_keep(struct ls_trainer *t, struct ls_state *unit, const char *run, int64_t worker,
                     struct ls_error *error)
{
    struct ls_digest digest;
    int status = unit_folder(t, unit, run, worker, error);
    if (!status)
        status = ls_state_hash(unit, &digest, error);
    if (!status)
        status = ls_state_save(unit, &digest, error);
    unit->config = &t->config;
    return status;
}

/* Whether this group has something of its own to keep: the server, or a worker that takes part. */
static bool keeps(const struct workers *w, int worker)
{
    return w->server || workers_takes_part(w, worker);
}

/* The global parameters are those of that step, which may be of a meeting before. */
static int outer_keep(struct ls_trainer *t, const char *path, struct ls_error *error)
{
    struct ls_state *outer = workers_outer(t);
    const int64_t step = outer->step, samples = outer->samples;
    outer->step = outer_kept(t);
    outer->samples -= (step - outer->step) * t->config.batch.global;
    outer->beside = (struct ls_digest){0, 0};
    int status = unit_keep(t, outer, path, -1, error);
    outer->step = step;
    outer->samples = samples;
    return status;
}

static int group_keep(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    char run[PATH_MAX], path[PATH_MAX];
    int status = run_path(t, run, error);
    for (int k = 0; k < w->each && !status; k++) {
        int worker = w->group * w->each + k;
        if (!keeps(w, k))
            continue;
        w->worker = k;
        if (!serves(w, worker) && units_kept(w))
            status = unit_keep(t, &t->units[k], run, worker, error);
        if (!status)
            status = worker_path(t, worker, "outer", path, error);
        if (!status && outer_kept(t) >= 0)
            status = outer_keep(t, path, error);
        if (!status && w->delay > 0 && !has_met(t)) {
            status = deltas_path(t, worker, path, error);
            if (!status)
                status = ls_file_write(path, deltas_write, &t, error);
        }
        status = ls_comm_agree(t->world, status, error);
        if (!status && ls_comm_rank(t->world) == 0)
            status = worker_path(t, worker, "notes", path, error);
        if (!status && ls_comm_rank(t->world) == 0)
            status = ls_file_write(path, notes_bytes_write, t, error);
        status = ls_comm_agree(t->world, status, error);
    }
    return status;
}

/* Local, on rank 0 of t->world. What this group has cannot be kept: then no worker goes on from
 * what the others have, for this one would begin anew, but all from the newest checkpoint. */
static void group_refuse(const struct ls_trainer *t)
{
    const struct workers *w = t->workers;
    char path[PATH_MAX];
    for (int k = 0; k < w->each; k++) {
        int worker = w->group * w->each + k;
        if (worker_path(t, worker, "", path, NULL))
            continue;
        path[strlen(path) - 1] = '\0';
        ls_directory_remove(path);
        if (keeps(w, k) && !worker_path(t, worker, "refused", path, NULL))
            ls_directory_make(path, NULL, NULL);
    }
}

static bool is_refused(const struct ls_trainer *t, int worker)
{
    char path[PATH_MAX];
    return !worker_path(t, worker, "refused", path, NULL) && !access(path, F_OK);
}

/* Collective over t->world. Whether all of its ranks are there, at the same stage, and have
 * something to keep. */
static bool group_stands(struct ls_trainer *t)
{
    struct ls_error ignored = {0};
    const int64_t mine[] = {t->workers->stage, outer_kept(t)};
    bool alike = true;
    for (int i = 0; i < 2 && alike; i++) {
        int64_t most = mine[i], least = -mine[i];
        int status = ls_all_reduce_max(t->world, &most, &ignored);
        if (!status)
            status = ls_all_reduce_max(t->world, &least, &ignored);
        alike = !status && most == -least;
    }
    return alike && (units_kept(t->workers) || outer_kept(t) >= 0);
}

bool rescue_applies(const struct ls_trainer *t)
{
    const struct workers *w = t->workers;
    return w && w->own && ls_mpi_survives() &&
           (!w->server || (w->all > w->groups && t->config.async.order == LS_CONFIG_BY_CLOCK));
}

int rescue_lost(const struct ls_trainer *t, int group)
{
    enum { TRIES = 100, PAUSE_NS = 10 * 1000 * 1000 };
    int ranks = ls_comm_size(group < 0 ? t->whole : t->world),
        first = group < 0 ? 0 : group * ranks;
    int lost = ls_comm_lost(t->whole, first, ranks);
    for (int i = 0; i < TRIES && lost < 0; i++) {
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
        lost = ls_comm_lost(t->whole, first, ranks);
    }
    return lost;
}

/* "workers 2-3" of a group, or "the server". */
static void group_text(const struct workers *w, int group, char text[64])
{
    bool in[WORKERS_MAX] = {false};
    char numbers[48];
    if (serves(w, group)) {
        snprintf(text, 64, "the server");
        return;
    }
    memset(in + group * w->each, true, (size_t)w->each);
    ls_members_text(in, w->count, numbers, sizeof numbers);
    snprintf(text, 64, "worker%s %s", w->each > 1 ? "s" : "", numbers);
}

bool workers_rescue(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t ? t->workers : NULL;
    struct ls_error why = {0};
    char theirs[64], ours[64];
    int lost = w && rescue_applies(t) ? rescue_lost(t, -1) : -1;
    if (lost < 0)
        return false;
    ls_comm_leave(t->whole, lost); /* those that are behind look for who died, not for this one */
    group_text(w, lost / ls_comm_size(t->world), theirs);
    group_text(w, w->group, ours);
    int64_t outer = outer_kept(t), step = w->server && outer >= 0 ? outer : t->units->step;
    ls_error_set(error, LS_ECOMM, "rank %d, of %s, has ended; ", lost, theirs);
    if (members_follows(t) || !group_stands(t))
        ls_error_suffix(error, "this rank, of %s, keeps nothing", ours);
    else if (group_keep(t, &why)) {
        if (ls_comm_rank(t->world) == 0)
            group_refuse(t);
        ls_error_suffix(error, "%s cannot be kept: %s", ours, why.text);
    } else {
        ls_error_suffix(error, "the state kept is of %s, behind step %ld", ours, (long)step);
        ls_error_blame(error, LS_CAUSE_KEPT, "");
    }
    return true;
}

/* ---- the next start -------------------------------------------------------------------------- */

/* Local, on rank 0. The newest global parameters that were kept: those of the server, if it lives.
 * Workers as they are behind the same meeting go on. */
static void served_find(const struct ls_trainer *t, struct rescue *plan)
{
    const struct workers *w = t->workers;
    struct rescue of;
    plan->outer_step = -1;
    for (int i = 0; i <= w->count; i++)
        if (notes_read(t, i, &of, NULL) && of.outer_step >= ls_max(0, plan->outer_step)) {
            *plan = of;
            plan->from = i;
        }
    for (int i = 0; i < w->count; i++)
        plan->has[i] = notes_read(t, i, &of, NULL) && of.step == plan->outer_step;
    plan->step = plan->outer_step; /* where the run goes on, whoever of them does */
}

/* Local, on rank 0. Those that came furthest; none, if the checkpoint has all that they have. */
static void plan_find(const struct ls_trainer *t, int64_t saved, struct rescue *plan)
{
    const struct workers *w = t->workers;
    int64_t furthest = -1;
    *plan = (struct rescue){0};
    for (int i = 0; i < w->count + (w->server != NULL); i++) {
        struct rescue of;
        if (is_refused(t, i)) {
            ls_log(t->log, LS_LOG_WARNING,
                   "worker %d could not be kept when a rank died: the run goes on from the newest "
                   "checkpoint",
                   i);
            rescue_remove(t);
            *plan = (struct rescue){0};
            return;
        }
        if (w->server || !notes_read(t, i, &of, NULL))
            continue;
        int64_t reached = 2 * of.step + of.met;
        if (reached > furthest) {
            *plan = of;
            plan->from = i;
            memset(plan->has, 0, sizeof plan->has);
        }
        furthest = ls_max(furthest, reached);
        plan->has[i] = reached == furthest;
    }
    plan->found =
        furthest >= 0 && (plan->met ? plan->outer_step > saved : plan->outer_step >= saved);
    if (w->server) {
        served_find(t, plan);
        plan->found = plan->outer_step > saved;
    }
    if (!plan->found)
        *plan = (struct rescue){0};
}

static int units_load(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    const struct rescue *plan = &w->rescue;
    struct ls_state *outer = workers_outer(t);
    char run[PATH_MAX], path[PATH_MAX];
    int status = run_path(t, run, error);
    if (!status)
        status = worker_path(t, plan->from, "outer", path, error);
    outer->beside = (struct ls_digest){0, 0};
    if (!status)
        status = unit_load(t, outer, path, -1, plan->outer_step, error);
    if (!status)
        status = ls_state_settle(outer, error);
    for (int k = 0; k < w->held && !status; k++) {
        struct ls_state *unit = &t->units[k];
        int worker = w->group * w->each + k;
        bool has = plan->has[worker];
        if (has)
            status = unit_load(t, unit, run, worker, plan->step, error);
        else if (!w->server)
            status = exchange_renew(t, k, error);
        unit->step = w->server ? outer->step : plan->step;
        unit->samples = w->server ? outer->samples : plan->samples;
        if (!status && has && w->delay > 0 && !plan->met)
            status = deltas_read(t, k, error);
        if (!status && !has)
            status = ls_state_publish(unit, error);
        if (!status)
            status = ls_state_settle(unit, error);
    }
    outer->saved_step = -1; /* that is no checkpoint of the run's */
    return status;
}

/* Local. What workers said of the interval's steps. */
static int notes_take(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    const struct rescue *plan = &w->rescue;
    const size_t size = w->note_size;
    struct rescue of;
    const size_t most = notes_count(w, true);
    double *notes = calloc(most, sizeof *notes);
    if (!notes)
        return ls_no_memory(error, "for the notes of workers");
    bool sound = true;
    memset(w->mine, 0, (size_t)(w->interval * w->each) * size * sizeof *w->mine);
    memset(w->waits, 0, (size_t)w->all * sizeof *w->waits);
    for (int k = 0; k < w->each && sound && !plan->met && !w->server; k++) {
        int worker = w->group * w->each + k;
        sound = !plan->has[worker] || notes_read(t, worker, &of, notes);
        for (int64_t step = 0; step < w->interval && sound && plan->has[worker]; step++)
            memcpy(w->mine + (size_t)(step * w->each + k) * size, notes + (size_t)step * size,
                   size * sizeof *notes);
    }
    if (plan->met)
        sound = notes_read(t, plan->from, &of, notes);
    if (w->server && plan->met)
        memcpy(w->notes, notes, most * sizeof *notes);
    for (int i = 0; i < w->count && sound && plan->met && !w->server; i++)
        for (int64_t step = 0; step < w->interval; step++) {
            int64_t at = ((int64_t)(i / w->each) * w->interval + step) * w->each + i % w->each;
            memcpy(w->notes + (size_t)at * size, notes + (size_t)(i * w->interval + step) * size,
                   size * sizeof *notes);
        }
    free(notes);
    return sound ? LS_OK
                 : ls_error_set(error, LS_ECKPT, "%.300s/%s: notes of a worker cannot be read",
                                t->config.train.out, folder_name);
}

/* Local, on rank 0. */
static int loss_record(struct ls_trainer *t, struct ls_error *error)
{
    const struct workers *w = t->workers;
    const struct rescue *plan = &w->rescue;
    bool none[WORKERS_MAX] = {false}, gone[WORKERS_MAX] = {false};
    char text[8 * WORKERS_MAX];
    for (int i = 0; i < w->count; i++)
        gone[i] = plan->placed[i] && !plan->has[i];
    ls_members_text(gone, w->count, text, sizeof text);
    if (!*text)
        return LS_OK;
    int status =
        members_lose(t, plan->placed, plan->met ? none : gone, plan->met ? gone : none, error);
    if (!status && plan->met)
        ls_log(t->log, LS_LOG_WARNING,
               "a rank of workers %s died behind outer step %ld: they begin anew", text,
               (long)(w->begin / w->interval + 1));
    else if (!status)
        ls_log(t->log, LS_LOG_WARNING,
               "a rank of workers %s died in outer step %ld: it is made without them, and they "
               "begin anew behind it",
               text, (long)(w->begin / w->interval + 1));
    return status;
}

int rescue_resume(struct ls_trainer *t, int64_t saved, bool *resumed, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct rescue *plan = &w->rescue;
    struct ls_error damage = {0};
    *plan = (struct rescue){0};
    bool applies = !w->server || w->all > w->groups;
    if (ls_comm_rank(t->whole) == 0 && applies && !members_follows(t))
        plan_find(t, saved, plan);
    int status = ls_broadcast(t->whole, plan, sizeof *plan, LS_U8, 0, error);
    if (status || !plan->found)
        return status;
    w->begin = plan->met ? plan->outer_step - w->interval : plan->outer_step;
    status = ls_comm_agree(t->whole, notes_take(t, &damage), &damage);
    if (!status)
        status = ls_comm_agree(t->whole, units_load(t, &damage), &damage);
    if (status == LS_ECKPT) {
        ls_log(ls_comm_rank(t->whole) == 0 ? t->log : NULL, LS_LOG_WARNING,
               "what workers kept when a rank died is damaged, and left out: %s", damage.text);
        exchange_deltas_drop(w);
        *plan = (struct rescue){0};
        return LS_OK;
    }
    if (status)
        return ls_error_copy(error, status, &damage);
    w->base = plan->base;
    w->start = plan->start;
    w->told = w->begin;
    if (w->server) { /* the rest: server_rescued */
        w->stage = plan->met ? WORKERS_MET : WORKERS_AT_WORK;
        *resumed = true;
        return LS_OK;
    }
    status = ls_comm_rank(t->whole) == 0 ? loss_record(t, error) : LS_OK;
    status = ls_comm_agree(t->whole, status, error);
    if (!status && plan->met) {
        status = members_next(t, error);
        w->outer_norm = plan->outer_norm;
        plan->found = false;
        w->stage = WORKERS_MET;
        if (!status)
            reports_make(t);
    }
    *resumed = !status;
    return status;
}

int64_t workers_rescued(const struct ls_trainer *t)
{
    return t->workers ? t->workers->rescue.step : 0;
}

int rescue_take(struct ls_trainer *t, struct ls_error *error)
{
    t->workers->rescue.found = false;
    t->workers->stage = WORKERS_HAVE_DELTAS;
    return exchange_begin(t, LS_OK, error);
}

void rescue_remove(const struct ls_trainer *t)
{
    char path[PATH_MAX];
    if (!run_path(t, path, NULL))
        ls_directory_remove(path);
}
