/* Which workers take part in which outer step, and who asks for others. */
#include "train/membership.h"

#include <lockstep/base/file.h>
#include <lockstep/train/members.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* From that outer step on; lost and renewed: in this one alone. */
struct change {
    int64_t outer_step;
    bool in[WORKERS_MAX], lost[WORKERS_MAX], renewed[WORKERS_MAX];
};
/* Who takes part in an outer step, and since which: 1, or the last one that it joined at. */
struct now {
    struct change change;
    int64_t since[WORKERS_MAX];
};

struct members {
    struct change *changes; /* in ascending order */
    int64_t count, room;
    bool opened;
    int workers;
    struct ls_error damage;
};

/* ---- the file -------------------------------------------------------------------------------- */

static int change_add(struct members *m, const struct change *change, struct ls_error *error)
{
    if (!ls_list_grow(&m->changes, m->count, &m->room, sizeof *m->changes))
        return ls_no_memory(error, "for the list of workers");
    m->changes[m->count++] = *change;
    return LS_OK;
}

static void change_note(void *user, const struct ls_members_change *read)
{
    struct members *m = user;
    struct change change = {.outer_step = read->outer_step};
    if (m->damage.code || !ls_members_parse(read->workers, m->workers, change.in))
        return;
    if (*read->lost)
        ls_members_parse(read->lost, m->workers, change.lost);
    if (*read->renewed)
        ls_members_parse(read->renewed, m->workers, change.renewed);
    change_add(m, &change, &m->damage);
}

/* Local, on rank 0. What the run's earlier part recorded, also of outer steps behind the checkpoint
 * that it goes on from: these come out as they did. A run that begins has nothing before it. */
static int file_read(struct members *m, const struct ls_trainer *t, struct ls_error *error)
{
    const struct workers *w = t->workers;
    const char *run = members_follows(t) ? t->config.async.follow : t->config.train.out;
    char path[PATH_MAX];
    int status = ls_path_join(path, run, LS_MEMBERS_FILE, error);
    if (!status && members_follows(t) && access(run, F_OK) != 0)
        return ls_config_reject(&t->config, LS_ECONFIG, "async.follow", error,
                                "there is no such folder: expected that of a run whose workers "
                                "this one's follow");
    if (!status && !members_follows(t) && w->begin == 0)
        status = ls_jsonl_truncate_after(path, "outer_step", 0, NULL, NULL, error);
    if (!status)
        status = ls_members_each(run, m->workers, change_note, m, error);
    if (!status && m->damage.code)
        status = ls_error_copy(error, m->damage.code, &m->damage);
    return status;
}

static void some_write(struct ls_jsonl *file, const char *key, const bool *some, int workers)
{
    char text[8 * WORKERS_MAX];
    ls_members_text(some, workers, text, sizeof text);
    if (*text)
        ls_jsonl_string(file, key, text);
}

/* From that outer step on: what a run that goes on had recorded behind it no longer holds. */
static int file_add(const struct ls_trainer *t, const struct change *change, struct ls_error *error)
{
    char path[PATH_MAX];
    struct ls_jsonl *file = NULL;
    int workers = t->workers->count;
    int status = ls_path_join(path, t->config.train.out, LS_MEMBERS_FILE, error);
    if (!status)
        status =
            ls_jsonl_truncate_after(path, "outer_step", change->outer_step - 1, NULL, NULL, error);
    if (!status)
        status = ls_jsonl_open(&file, path, error);
    if (status)
        return status;
    ls_jsonl_begin(file);
    ls_jsonl_int(file, "outer_step", change->outer_step);
    some_write(file, "workers", change->in, workers);
    some_write(file, "lost", change->lost, workers);
    some_write(file, "renewed", change->renewed, workers);
    status = ls_jsonl_end(file, error);
    int closed = ls_jsonl_close(file, status ? NULL : error);
    status = status ? status : closed;
    return status ? status : workers_record_sync(t, LS_MEMBERS_FILE, error);
}

/* ---- who asks -------------------------------------------------------------------------------- */

/* Local. Where a request lies until it is recorded: so one that is made meanwhile is not lost, nor
 * one whose run dies before. */
static int taken_path(const struct ls_trainer *t, char path[PATH_MAX], struct ls_error *error)
{
    return ls_path_join(path, t->config.train.out, LS_MEMBERS_WANTED ".taken", error);
}

/* Local, on rank 0. *asked: RUN/members.wanted asks for other workers from that outer step on. A
 * request that cannot be read is reported, and nobody takes part by mistake. */
static int wanted_take(const struct ls_trainer *t, struct change *change, bool *asked,
                       struct ls_error *error)
{
    enum { WANTED_MAX = 1 << 16 };
    const struct members *m = t->workers->membership;
    const int workers = t->workers->count;
    char path[PATH_MAX], taken[PATH_MAX], *text = NULL;
    size_t bytes;
    bool in[WORKERS_MAX];
    struct ls_error why = {0};
    *asked = false;
    int status = ls_path_join(path, t->config.train.out, LS_MEMBERS_WANTED, error);
    if (!status)
        status = taken_path(t, taken, error);
    if (status || (rename(path, taken) != 0 && access(taken, F_OK) != 0))
        return status;
    if (ls_file_read(taken, WANTED_MAX, LS_EDATA, &text, &bytes, &why)) {
        ls_log(t->log, LS_LOG_WARNING, "a request for other workers is removed: %s", why.text);
        return LS_OK;
    }
    text[strcspn(text, "\n")] = '\0';
    if (!ls_members_parse(text, workers, in))
        ls_log(t->log, LS_LOG_WARNING,
               "%s: \"%.60s\" names no workers: expected numbers below %d such as 0-2,5, or all. "
               "It is removed",
               path, text, workers);
    else {
        /* Also those that train already, where others were recorded behind a checkpoint. */
        *asked = memcmp(in, change->in, (size_t)workers * sizeof *in) != 0 ||
                 (m->count > 0 && m->changes[m->count - 1].outer_step > change->outer_step);
        memcpy(change->in, in, (size_t)workers * sizeof *in);
        memset(change->lost, 0, sizeof change->lost);
        memset(change->renewed, 0, sizeof change->renewed);
    }
    free(text);
    return LS_OK;
}

/* Local, on rank 0. It is recorded, or there is nothing to record. */
static void wanted_done(const struct ls_trainer *t)
{
    char taken[PATH_MAX];
    if (!taken_path(t, taken, NULL))
        remove(taken);
}

bool members_follows(const struct ls_trainer *t)
{
    return *t->config.async.follow != '\0';
}

/* What is recorded up to that outer step. */
static void now_find(const struct members *m, struct now *now)
{
    struct change *change = &now->change;
    *change = (struct change){.outer_step = change->outer_step};
    for (int i = 0; i < m->workers; i++) {
        change->in[i] = true;
        now->since[i] = 1;
    }
    for (int64_t c = 0; c < m->count && m->changes[c].outer_step <= change->outer_step; c++) {
        const struct change *of = &m->changes[c];
        bool same = of->outer_step == change->outer_step;
        for (int i = 0; i < m->workers; i++) {
            if (of->in[i] && !change->in[i])
                now->since[i] = of->outer_step;
            if (!same && (of->lost[i] || of->renewed[i]))
                now->since[i] = of->outer_step + 1;
            change->in[i] = of->in[i];
            change->lost[i] = same && of->lost[i];
            change->renewed[i] = same && of->renewed[i];
        }
    }
}

/* Local, on rank 0. In memory, what is recorded from that outer step on. */
static int change_set(struct members *m, const struct change *change, struct ls_error *error)
{
    while (m->count > 0 && m->changes[m->count - 1].outer_step >= change->outer_step)
        m->count--;
    return change_add(m, change, error);
}

int members_lose(struct ls_trainer *t, const bool *in, const bool *lost, const bool *renewed,
                 struct ls_error *error)
{
    const struct workers *w = t->workers;
    struct members *m = w->membership;
    struct change change = {.outer_step = w->begin / w->interval + 1};
    memcpy(change.in, in, sizeof change.in);
    memcpy(change.lost, lost, sizeof change.lost);
    memcpy(change.renewed, renewed, sizeof change.renewed);
    int status = m->opened ? LS_OK : file_read(m, t, error);
    m->opened = true;
    if (!status)
        status = file_add(t, &change, error); /* before it counts */
    return status ? status : change_set(m, &change, error);
}

/* Local, on rank 0. */
static int change_make(struct ls_trainer *t, struct now *now, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct members *m = w->membership;
    char text[8 * WORKERS_MAX];
    bool asked = false, alone = w->unrecorded && !members_follows(t);
    int status = m->opened || alone ? LS_OK : file_read(m, t, error);
    m->opened = true;
    now->change.outer_step = w->begin / w->interval + 1;
    now_find(m, now);
    if (status || members_follows(t) || w->unrecorded || w->rescue.found)
        return status;
    struct change *change = &now->change;
    status = wanted_take(t, change, &asked, error);
    if (!status && asked)
        status = file_add(t, change, error); /* before it counts */
    if (status)
        return status;
    wanted_done(t);
    if (!asked)
        return LS_OK;
    ls_members_text(change->in, w->count, text, sizeof text);
    ls_log(t->log, LS_LOG_INFO, "from step %ld on workers %s train", (long)w->begin + 1, text);
    status = change_set(m, change, error);
    now_find(m, now);
    return status;
}

/* Workers that came late have moments that saw as much less, also in a run that begins from the
 * checkpoint. */
int workers_begin_from(const struct ls_trainer *t, const char *run, struct ls_error *error)
{
    const struct workers *w = t->workers;
    if (!w || w->server || members_follows(t))
        return LS_OK;
    struct members past = {.workers = w->count};
    struct now now = {.change.outer_step = workers_outer(t)->step / w->interval};
    struct change all = {.outer_step = now.change.outer_step + 1};
    char path[PATH_MAX];
    int status = ls_members_each(run, w->count, change_note, &past, error);
    if (!status && past.damage.code)
        status = ls_error_copy(error, past.damage.code, &past.damage);
    if (!status)
        status = ls_path_join(path, t->config.train.out, LS_MEMBERS_FILE, error);
    if (!status)
        status = ls_jsonl_truncate_after(path, "outer_step", 0, NULL, NULL, error);
    for (int64_t c = 0; c < past.count && past.changes[c].outer_step < all.outer_step && !status;
         c++)
        status = file_add(t, &past.changes[c], error);
    now_find(&past, &now);
    for (int i = 0; i < w->count; i++)
        all.in[i] = true;
    if (!status && memcmp(all.in, now.change.in, sizeof all.in) != 0)
        status = file_add(t, &all, error);
    free(past.changes);
    return status;
}

int members_next(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct now now = {0};
    int status = ls_comm_rank(t->whole) == 0 ? change_make(t, &now, error) : LS_OK;
    status = ls_comm_agree(t->whole, status, error);
    if (!status)
        status = ls_broadcast(t->whole, &now, sizeof now, LS_U8, 0, error);
    status = workers_agree(t, status, error);
    if (status) /* who took part in the interval before is still of use (workers_rescue) */
        return status;
    w->members = w->places = 0;
    for (int i = 0; i < w->count; i++) {
        w->placed[i] = now.change.in[i];
        w->member[i] = now.change.in[i] && !now.change.lost[i];
        w->renew[i] = now.change.renewed[i];
        w->joined[i] = (now.since[i] - 1) * w->interval;
        w->index[i] = w->places;
        w->places += w->placed[i];
        w->members += w->member[i];
    }
    return LS_OK;
}

int members_open(struct workers *w, struct ls_error *error)
{
    w->membership = calloc(1, sizeof *w->membership);
    if (!w->membership)
        return ls_no_memory(error, "for the list of workers");
    w->membership->workers = w->count;
    return LS_OK;
}

void members_close(struct members *members)
{
    if (members)
        free(members->changes);
    free(members);
}
