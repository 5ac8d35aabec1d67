/* The log of arrivals: JSON lines that are written as it happens, and checked line by line when
 * they are read. */
#include <lockstep/parallel/arrival_log.h>
#include <lockstep/trace.h>

#include "parallel/arrivals_private.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FORMAT_VERSION = 1 };

/* ---- reading --------------------------------------------------------------------------------- */

struct reading {
    const char *path, *recipe;
    int64_t line; /* that is read, from 1; 0: none was */
    struct ls_arrivals *order;
    struct ls_clocks clocks; /* behind the events so far */
    struct ls_error *error;  /* of the first line that is wrong; those behind it are not read */
};

static int bad(const struct reading *r, int code, const char *key, const struct ls_record *record,
               const char *expected, int64_t number)
{
    double found;
    char text[32] = "missing";
    if (ls_record_number(record, key, &found) && isnan(found))
        snprintf(text, sizeof text, "no number");
    else if (!isnan(found))
        snprintf(text, sizeof text, "%.15g", found);
    return ls_error_line(r->error, code, r->path, r->line, "%s is %s: expected %s%lld", key, text,
                         expected, (long long)number);
}

static int header_read(struct reading *r, const struct ls_record *record)
{
    const struct ls_arrival_rule rule = r->order->rule;
    const char *recipe = ls_record_text(record, "recipe");
    if (ls_record_whole(record, "arrivals", INT64_MIN) != FORMAT_VERSION)
        return bad(r, LS_EDATA, "arrivals", record, "the first line of a log of version ",
                   FORMAT_VERSION);
    if (!recipe || strcmp(recipe, r->recipe) != 0)
        return ls_error_line(r->error, LS_ECONFIG, r->path, 1,
                             "the order of arrivals of another recipe, %.100s: expected %.100s; "
                             "take the configuration of the run that wrote it",
                             recipe ? recipe : "without a digest", r->recipe);
    if (ls_record_whole(record, "workers", INT64_MIN) != rule.workers)
        return bad(r, LS_ECONFIG, "workers", record, "as many as the recipe has, ", rule.workers);
    if (ls_record_whole(record, "bound", INT64_MIN) != rule.bound)
        return bad(r, LS_ECONFIG, "bound", record, "the recipe's, ", rule.bound);
    return LS_OK;
}

/* Why the worker's push cannot come next. */
static int bad_push(const struct reading *r, int worker)
{
    const struct ls_clocks *clocks = &r->clocks;
    if (clocks->gone[worker])
        return ls_error_line(r->error, LS_EDATA, r->path, r->line,
                             "worker %d pushes: expected nothing of it, as it has left", worker);
    int next = 0;
    while (next < clocks->rule.workers && !ls_clocks_admit(clocks, next))
        next++;
    if (clocks->rule.bound == 0)
        return ls_error_line(r->error, LS_EDATA, r->path, r->line,
                             "worker %d pushes: expected worker %d, as with bound 0 workers come "
                             "in their order",
                             worker, next);
    return ls_error_line(r->error, LS_EDATA, r->path, r->line,
                         "worker %d pushes at clock %lld, and the slowest is at %lld: expected it "
                         "to wait, with bound %d",
                         worker, (long long)clocks->clock[worker], (long long)clocks->slowest,
                         clocks->rule.bound);
}

static const char *const change_keys[] = {"left", "renewed"};

/* *is: the line says that a worker left or was renewed. */
static int change_read(struct reading *r, const struct ls_record *record, bool *is)
{
    struct ls_arrivals *order = r->order;
    double number;
    int change = 0;
    while (change < 2 && !ls_record_number(record, change_keys[change], &number))
        change++;
    *is = change < 2;
    if (!*is)
        return LS_OK;
    const int64_t worker = ls_record_whole(record, change_keys[change], INT64_MIN);
    if (worker < 0 || worker >= order->rule.workers)
        return bad(r, LS_EDATA, change_keys[change], record, "0 to ", order->rule.workers - 1);
    const struct arrival_change *last = order->changed ? &order->changes[order->changed - 1] : NULL;
    bool behind = last && last->event == r->clocks.version && last->change == LS_ARRIVAL_LEFT;
    if (change == LS_ARRIVAL_RENEWED && (r->clocks.version == 0 || behind))
        return ls_error_line(r->error, LS_EDATA, r->path, r->line,
                             "worker %lld is renewed: expected that behind an event, before any "
                             "worker leaves there",
                             (long long)worker);
    if (!ls_list_grow(&order->changes, order->changed, &order->changes_room,
                      sizeof *order->changes))
        return ls_error_set(r->error, LS_ENOMEM, "%.300s: no memory for %lld changes", r->path,
                            (long long)order->changed);
    order->changes[order->changed++] =
        (struct arrival_change){r->clocks.version, (enum ls_arrival_change)change, (int)worker};
    if (change == LS_ARRIVAL_LEFT)
        ls_clocks_leave(&r->clocks, (int)worker);
    else
        ls_clocks_renew(&r->clocks, (int)worker);
    return LS_OK;
}

static int event_read(struct reading *r, const struct ls_record *record)
{
    struct ls_arrivals *order = r->order;
    struct ls_clocks *clocks = &r->clocks;
    const int64_t worker = ls_record_whole(record, "worker", INT64_MIN);
    bool changes;
    if (ls_record_whole(record, "event", INT64_MIN) != clocks->version)
        return bad(r, LS_EDATA, "event", record, "events without a gap, so ", clocks->version);
    int status = change_read(r, record, &changes);
    if (status || changes)
        return status;
    if (worker < 0 || worker >= order->rule.workers)
        return bad(r, LS_EDATA, "worker", record, "0 to ", order->rule.workers - 1);
    if (ls_record_whole(record, "clock", INT64_MIN) != clocks->clock[worker])
        return bad(r, LS_EDATA, "clock", record, "the worker's next, ", clocks->clock[worker]);
    if (!ls_clocks_admit(clocks, (int)worker))
        return bad_push(r, (int)worker);
    if (!ls_list_grow(&order->worker, order->count, &order->room, sizeof *order->worker))
        return ls_error_set(r->error, LS_ENOMEM, "%.300s: no memory for %lld events", r->path,
                            (long long)order->count);
    order->worker[order->count++] = (uint16_t)worker;
    ls_clocks_push(clocks, (int)worker);
    return LS_OK;
}

static void line_read(void *user, const struct ls_record *record)
{
    struct reading *r = user;
    if (r->error->code)
        return;
    r->line++;
    if (r->line == 1)
        header_read(r, record);
    else
        event_read(r, record);
}

/* *lines = whole lines of the log, 0 if not even the first is whole. */
static int log_read(const char *path, const char *recipe, struct ls_arrival_rule rule,
                    struct ls_arrivals **out, int64_t *lines, struct ls_error *error)
{
    struct ls_error first = {0};
    struct reading r = {.path = path, .recipe = recipe, .error = &first};
    bool torn;
    *lines = 0;
    int status = arrivals_new(rule, out, error);
    if (status)
        return status;
    r.order = *out;
    status = ls_clocks_init(&r.clocks, rule, error);
    if (!status)
        status = ls_jsonl_each(path, line_read, &r, &torn, error);
    if (first.code) /* not a later line, which is no JSON */
        status = ls_error_copy(error, first.code, &first);
    ls_clocks_release(&r.clocks);
    *lines = r.line;
    if (status) {
        ls_arrivals_free(*out);
        *out = NULL;
    }
    return status;
}

int ls_arrivals_of_log(const char *path, const char *recipe, struct ls_arrival_rule rule,
                       struct ls_arrivals **out, struct ls_error *error)
{
    int64_t lines;
    int status = log_read(path, recipe, rule, out, &lines, error);
    if (status || lines > 0)
        return status;
    ls_arrivals_free(*out);
    *out = NULL;
    return ls_error_set(error, LS_EDATA,
                        "%.300s: the log of arrivals is empty: expected a first line with the "
                        "recipe; nothing of that run can be replayed",
                        path);
}

/* ---- writing --------------------------------------------------------------------------------- */

struct ls_arrival_log {
    struct ls_jsonl *file;
    int64_t event; /* the next */
};

static int header_write(const struct ls_arrival_log *log, const char *recipe,
                        struct ls_arrival_rule rule, struct ls_error *error)
{
    ls_jsonl_begin(log->file);
    ls_jsonl_int(log->file, "arrivals", FORMAT_VERSION);
    ls_jsonl_string(log->file, "recipe", recipe);
    ls_jsonl_int(log->file, "workers", rule.workers);
    ls_jsonl_int(log->file, "bound", rule.bound);
    return ls_jsonl_end(log->file, error);
}

/* What the log at path has, if there is one, which must be so many events or more. *lines = whole
 * lines. */
static int log_look(const char *path, const char *recipe, struct ls_arrival_rule rule,
                    int64_t event, struct ls_arrivals **order, int64_t *lines,
                    struct ls_error *error)
{
    struct stat found;
    int status = LS_OK;
    *lines = 0;
    *order = NULL;
    if (stat(path, &found) == 0 || errno != ENOENT)
        status = log_read(path, recipe, rule, order, lines, error);
    int64_t count = *order ? (*order)->count : 0;
    if (!status && count < event)
        status = ls_error_set(error, LS_EDATA,
                              "%.300s: the log of arrivals has %lld events: expected at least the "
                              "%lld that came before this state of the run; go on from an older "
                              "one",
                              path, (long long)count, (long long)event);
    return status;
}

int ls_arrival_log_open(const char *path, const char *recipe, struct ls_arrival_rule rule,
                        int64_t event, struct ls_arrival_log **out, struct ls_error *error)
{
    int64_t lines = 0;
    struct ls_arrivals *order = NULL;
    *out = NULL;
    int status = arrivals_check_rule(rule, error);
    struct ls_arrival_log *log = status ? NULL : malloc(sizeof *log);
    if (!status && !log)
        status = ls_error_set(error, LS_ENOMEM, "%.300s: no memory for the log", path);
    if (status)
        return status;
    *log = (struct ls_arrival_log){.event = event};
    status = log_look(path, recipe, rule, event, &order, &lines, error);
    if (!status && lines > 0)
        status = ls_jsonl_truncate_after(path, "event", event - 1, NULL, NULL, error);
    if (!status)
        status = ls_jsonl_open(&log->file, path, error);
    if (!status && lines == 0)
        status = header_write(log, recipe, rule, error);
    if (!status && order)
        status = ls_arrival_log_copy(log, order, LS_ARRIVAL_RENEWED, error);
    ls_arrivals_free(order);
    if (status) {
        ls_arrival_log_close(log, NULL);
        return status;
    }
    *out = log;
    return LS_OK;
}

int ls_arrival_log_add(struct ls_arrival_log *log, const struct ls_arrival *arrival,
                       struct ls_error *error)
{
    LS_ASSERT(arrival->event == log->event);
    ls_jsonl_begin(log->file);
    ls_jsonl_int(log->file, "event", arrival->event);
    ls_jsonl_int(log->file, "worker", arrival->worker);
    ls_jsonl_int(log->file, "clock", arrival->clock);
    int status = ls_jsonl_end(log->file, error);
    log->event += status == LS_OK;
    return status;
}

int ls_arrival_log_change(struct ls_arrival_log *log, enum ls_arrival_change change, int worker,
                          struct ls_error *error)
{
    ls_jsonl_begin(log->file);
    ls_jsonl_int(log->file, "event", log->event);
    ls_jsonl_int(log->file, change_keys[change], worker);
    return ls_jsonl_end(log->file, error);
}

int ls_arrival_log_copy(struct ls_arrival_log *log, const struct ls_arrivals *order,
                        enum ls_arrival_change change, struct ls_error *error)
{
    int64_t at = 0;
    int worker, status = LS_OK;
    while (!status && ls_arrivals_changed(order, log->event, change, &at, &worker))
        status = ls_arrival_log_change(log, change, worker, error);
    return status;
}

int ls_arrival_log_close(struct ls_arrival_log *log, struct ls_error *error)
{
    if (!log)
        return LS_OK;
    int status = ls_jsonl_close(log->file, error);
    free(log);
    return status;
}
