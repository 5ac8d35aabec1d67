/* Which workers take part in which outer step, and who asks for others. */
#include "train/members.h"

#include <lockstep/base/file.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* From that outer step on. */
struct change {
    int64_t outer_step;
    bool in[WORKERS_MAX];
};

struct members {
    struct change *changes; /* in ascending order */
    size_t count;
    bool opened;
    int workers;
    struct ls_error damage; /* of a line */
};

/* ---- texts ----------------------------------------------------------------------------------- */

bool members_parse(const char *text, int workers, bool *in)
{
    int found = 0;
    memset(in, 0, (size_t)workers * sizeof *in);
    if (!strcmp(text, "all"))
        text = "";
    for (int i = 0; i < workers && !*text; i++)
        in[i] = true;
    while (*text) {
        char *end;
        long first = strtol(text, &end, 10), last = first;
        if (end == text || first < 0)
            return false;
        if (*end == '-') {
            text = end + 1;
            last = strtol(text, &end, 10);
            if (end == text)
                return false;
        }
        if (last < first || last >= workers || (*end && (*end != ',' || !end[1])))
            return false;
        for (long i = first; i <= last; i++)
            in[i] = true;
        found++;
        text = *end ? end + 1 : end;
    }
    return found > 0 || in[0];
}

void members_text(const bool *in, int workers, char *text, size_t bytes)
{
    size_t used = 0;
    *text = '\0';
    for (int i = 0, end; i < workers; i = end) {
        for (end = i + 1; end < workers && in[end] == in[i]; end++)
            ;
        if (!in[i] || used >= bytes)
            continue;
        used += (size_t)snprintf(text + used, bytes - used, end - i > 1 ? "%s%d-%d" : "%s%d",
                                 used ? "," : "", i, end - 1);
    }
}

/* ---- the file -------------------------------------------------------------------------------- */

static int change_add(struct members *m, int64_t outer_step, const bool *in, struct ls_error *error)
{
    struct change *more = realloc(m->changes, (m->count + 1) * sizeof *more);
    if (!more)
        return ls_error_set(error, LS_ENOMEM, "no memory for the list of workers");
    m->changes = more;
    more[m->count].outer_step = outer_step;
    memcpy(more[m->count].in, in, (size_t)m->workers * sizeof *in);
    m->count++;
    return LS_OK;
}

static void line_read(void *user, const struct ls_record *record)
{
    struct members *m = user;
    const char *text = ls_record_text(record, "workers");
    bool in[WORKERS_MAX] = {false};
    double step;
    int64_t last = m->count ? m->changes[m->count - 1].outer_step : 0;
    if (m->damage.code)
        return;
    if (!text || !members_parse(text, m->workers, in) ||
        !ls_record_number(record, "outer_step", &step) || step != (double)(int64_t)step ||
        (int64_t)step <= last)
        ls_error_set(&m->damage, LS_EDATA,
                     "entry %ld: expected an outer_step that is larger than the one before, and "
                     "workers such as 0-2,5 of %d",
                     (long)m->count + 1, m->workers);
    else
        change_add(m, (int64_t)step, in, &m->damage);
}

/* Local, on rank 0. What the run's earlier part recorded; lines of outer steps that a run does
 * again go. */
static int file_read(struct members *m, const struct ls_trainer *t, struct ls_error *error)
{
    const struct workers *w = t->workers;
    const char *run = members_follows(t) ? t->config.async.follow : t->config.train.out;
    char path[PATH_MAX];
    bool torn;
    int status = ls_path_join(path, run, "members", error);
    if (status || access(path, F_OK) != 0)
        return status;
    status = members_follows(t)
                 ? ls_jsonl_each(path, line_read, m, &torn, error)
                 : ls_jsonl_truncate_after(path, "outer_step", w->begin / w->interval, line_read, m,
                                           error);
    if (!status && m->damage.code)
        status = ls_error_set(error, m->damage.code, "%.300s: %s", path, m->damage.text);
    return status;
}

static int file_add(const struct ls_trainer *t, const struct change *change, struct ls_error *error)
{
    char path[PATH_MAX], text[8 * WORKERS_MAX];
    struct ls_jsonl *file = NULL;
    members_text(change->in, t->workers->count, text, sizeof text);
    int status = ls_path_join(path, t->config.train.out, "members", error);
    if (!status)
        status = ls_jsonl_open(&file, path, error);
    if (status)
        return status;
    ls_jsonl_begin(file);
    ls_jsonl_int(file, "outer_step", change->outer_step);
    ls_jsonl_string(file, "workers", text);
    status = ls_jsonl_end(file, error);
    int closed = ls_jsonl_close(file, status ? NULL : error);
    return status ? status : closed;
}

/* ---- who asks -------------------------------------------------------------------------------- */

/* Local, on rank 0. *asked: RUN/members.wanted asks for other workers from that outer step on. What
 * cannot be read is told and removed: nobody takes part by mistake. */
static int wanted_take(const struct ls_trainer *t, struct change *change, bool *asked,
                       struct ls_error *error)
{
    enum { WANTED_MAX = 1 << 16 };
    const int workers = t->workers->count;
    char path[PATH_MAX], *text = NULL;
    size_t bytes;
    bool in[WORKERS_MAX];
    *asked = false;
    int status = ls_path_join(path, t->config.train.out, "members.wanted", error);
    if (status || access(path, F_OK) != 0)
        return status;
    status = ls_file_read(path, WANTED_MAX, LS_EDATA, &text, &bytes, error);
    if (status)
        return status;
    text[strcspn(text, "\n")] = '\0';
    if (!members_parse(text, workers, in))
        ls_log(t->log, LS_LOG_WARNING,
               "%s: \"%.60s\" names no workers: expected numbers below %d such as 0-2,5, or all. "
               "It is removed",
               path, text, workers);
    else if (memcmp(in, change->in, (size_t)workers * sizeof *in) != 0) {
        memcpy(change->in, in, (size_t)workers * sizeof *in);
        *asked = true;
    }
    free(text);
    unlink(path);
    return LS_OK;
}

bool members_follows(const struct ls_trainer *t)
{
    return *t->config.async.follow != '\0';
}

/* Local, on rank 0. */
static int change_make(struct ls_trainer *t, struct change *now, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct members *m = w->membership;
    char text[8 * WORKERS_MAX];
    bool asked = false;
    int status = m->opened ? LS_OK : file_read(m, t, error);
    m->opened = true;
    for (int i = 0; i < w->count; i++)
        now->in[i] = true;
    now->outer_step = w->begin / w->interval + 1;
    for (size_t i = 0; i < m->count && m->changes[i].outer_step <= now->outer_step; i++)
        memcpy(now->in, m->changes[i].in, (size_t)w->count * sizeof *now->in);
    if (status || members_follows(t))
        return status;
    status = wanted_take(t, now, &asked, error);
    if (status || !asked)
        return status;
    members_text(now->in, w->count, text, sizeof text);
    ls_log(t->log, LS_LOG_INFO, "from step %ld on workers %s train", (long)w->begin + 1, text);
    status = file_add(t, now, error); /* before it counts */
    return status ? status : change_add(m, now->outer_step, now->in, error);
}

int members_next(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct change now = {0};
    int status = ls_comm_rank(t->whole) == 0 ? change_make(t, &now, error) : LS_OK;
    status = ls_comm_agree(t->whole, status, error);
    if (!status)
        status = ls_broadcast(t->whole, now.in, sizeof now.in, LS_U8, 0, error);
    w->members = 0;
    for (int i = 0; i < w->count; i++) {
        w->member[i] = now.in[i];
        w->index[i] = w->members;
        w->members += now.in[i];
    }
    return status;
}

int members_open(struct workers *w, struct ls_error *error)
{
    w->membership = calloc(1, sizeof *w->membership);
    if (!w->membership)
        return ls_error_set(error, LS_ENOMEM, "no memory for the list of workers");
    w->membership->workers = w->count;
    return LS_OK;
}

void members_close(struct members *members)
{
    if (members)
        free(members->changes);
    free(members);
}
