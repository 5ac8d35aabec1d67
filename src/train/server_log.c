/* The log of arrivals of a run by the clock (async.order = clock), RUN/arrivals: read where a run
 * follows it or goes on behind a checkpoint, and written by the first rank of a server. */
#include "train/parameter_server.h"

#include <lockstep/base/file.h>

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What is read and what is written; equal, if a run goes on with its own. */
struct logs {
    char recipe[33]; /* a digest's text */
    char from[PATH_MAX], to[PATH_MAX];
    struct ls_arrival_rule rule;
};

static bool same_file(const char *a, const char *b)
{
    struct stat one, two;
    return stat(a, &one) == 0 && stat(b, &two) == 0 && one.st_dev == two.st_dev &&
           one.st_ino == two.st_ino;
}

static int logs_find(const struct ls_trainer *t, const char *run, struct logs *logs,
                     struct ls_error *error)
{
    struct ls_digest digest = {0, 0};
    const char *follow = t->config.async.follow, *own = t->config.train.out;
    ls_config_recipe_digest(&t->config, &digest);
    ls_digest_hex(&digest, logs->recipe);
    logs->rule = t->workers->server->clocks.rule;
    int status = ls_path_join(logs->to, own, "arrivals", error);
    if (!status)
        status = ls_path_join(logs->from, *follow ? follow : run ? run : own, "arrivals", error);
    if (!status && same_file(logs->from, logs->to))
        memcpy(logs->from, logs->to, sizeof logs->from);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int reading_refuse(const struct ls_trainer *t, int status, const char *why,
                          struct ls_error *error)
{
    if (*t->config.async.follow)
        return ls_config_reject(&t->config, status, "async.follow", error,
                                "expected the folder of a run whose order of updates this one "
                                "takes: %.500s",
                                why);
    return ls_config_reject(&t->config, status, "async.order", error,
                            "expected the run's log of arrivals, from which a run goes on, and "
                            "which one without parallel.servers = 1 follows: %.500s",
                            why);
}

static int log_read(const struct ls_trainer *t, const struct logs *logs, int64_t event,
                    struct ls_arrivals **out, struct ls_error *error)
{
    struct ls_error why = {0};
    int status = ls_arrivals_of_log(logs->from, logs->recipe, logs->rule, out, &why);
    if (!status && ls_arrivals_end(*out) < event)
        status = ls_error_set(&why, LS_EDATA,
                              "%.300s has %lld events: expected at least the %lld that came before "
                              "this state of the run; go on from an older one",
                              logs->from, (long long)ls_arrivals_end(*out), (long long)event);
    return status ? reading_refuse(t, status, why.text, error) : LS_OK;
}

int server_log_reaches(const struct ls_trainer *t, int64_t event, struct ls_error *error)
{
    struct ls_arrivals *order = NULL;
    struct logs logs;
    int status = LS_OK;
    bool own = t->config.async.order == LS_CONFIG_BY_CLOCK && !*t->config.async.follow;
    if (own && ls_comm_rank(t->whole) == 0) {
        status = logs_find(t, NULL, &logs, error);
        status = status ? status : log_read(t, &logs, event, &order, error);
        if (status == LS_EDATA || (status == LS_EIO && access(logs.to, F_OK)))
            status = LS_ECKPT;
        ls_arrivals_free(order);
    }
    return ls_comm_agree(t->whole, status, error);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* What an earlier start of the run left, of this recipe or of another one, goes. */
static int log_remove(const char *path, struct ls_error *error)
{
    if (unlink(path) == 0 || errno == ENOENT)
        return LS_OK;
    return ls_error_set(error, LS_EIO, "%.300s: an old log of arrivals cannot be removed: %s", path,
                        strerror(errno));
}

/* So many events of another run's log become those of this one's, with who left or was renewed. */
static int log_copy(const struct ls_arrivals *order, int64_t events, struct ls_arrival_log *log,
                    struct ls_error *error)
{
    struct ls_clocks clocks;
    struct ls_arrival arrival;
    int status = ls_clocks_init(&clocks, ls_arrivals_rule(order), error);
    for (int64_t e = 0; e < events && !status; e++) {
        ls_arrivals_next(order, &clocks, &arrival);
        status = ls_arrival_log_copy(log, order, LS_ARRIVAL_LEFT, error);
        if (!status)
            status = ls_arrival_log_add(log, &arrival, error);
        if (!status)
            status = ls_arrival_log_copy(log, order, LS_ARRIVAL_RENEWED, error);
    }
    ls_clocks_release(&clocks);
    return status;
}

/* *log goes on at the event. before: what came before it, and how many of it are this run's. */
static int log_write(const struct ls_trainer *t, const struct logs *logs, int64_t event,
                     const struct ls_arrivals *before, int64_t taken, struct ls_arrival_log **log,
                     struct ls_error *error)
{
    bool other = before && strcmp(logs->from, logs->to) != 0;
    int status = ls_directory_make(t->config.train.out, NULL, error);
    if (!status && (event == 0 || other))
        status = log_remove(logs->to, error);
    if (!status)
        status =
            ls_arrival_log_open(logs->to, logs->recipe, logs->rule, other ? 0 : event, log, error);
    return status || !other ? status : log_copy(before, taken, *log, error);
}

int server_log_open(struct ls_trainer *t, int64_t event, const char *run,
                    struct ls_arrivals **before, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct logs logs;
    bool serves = w->all > w->groups, follows = *t->config.async.follow != '\0';
    bool writes = w->group == w->owner && ls_comm_rank(t->world) == 0 && !follows && !w->unrecorded;
    *before = NULL;
    if (t->config.async.order != LS_CONFIG_BY_CLOCK)
        return LS_OK;
    int status = logs_find(t, run, &logs, error);
    if (!status && (event > 0 || !serves || follows))
        status = log_read(t, &logs, event, before, error);
    status = ls_comm_agree(t->whole, status, error);
    ls_arrival_log_close(w->server->log, NULL);
    w->server->log = NULL;
    if (!status && writes && serves)
        status = log_write(t, &logs, event, *before, event, &w->server->log, error);
    if (!status && writes && !serves && strcmp(logs.from, logs.to)) { /* all of it is replayed */
        struct ls_arrival_log *log = NULL;
        status = log_write(t, &logs, event, *before, ls_arrivals_end(*before), &log, error);
        int closed = ls_arrival_log_close(log, status ? NULL : error);
        status = status ? status : closed;
        status = status ? status : workers_record_sync(t, "arrivals", error);
    }
    status = ls_comm_agree(t->whole, status, error);
    if (status)
        ls_arrivals_free(*before);
    return status;
}

int server_log_sync(const struct ls_trainer *t, struct ls_error *error)
{
    const struct server *server = t->workers->server;
    return server && server->log ? workers_record_sync(t, "arrivals", error) : LS_OK;
}
