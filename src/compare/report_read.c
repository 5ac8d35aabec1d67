/* What a run's directory holds, read once: in memory that does not grow with its length. */
#include "compare/report_private.h"

#include <lockstep/base/file.h>
#include <lockstep/base/formatted.h>
#include <lockstep/ckpt.h>
#include <lockstep/config/inputs.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LIST_MAX = 2048 };

static int no_memory(const struct report_run *run, struct ls_error *error)
{
    return ls_error_set(error, LS_ENOMEM, "%s: no memory for its records", run->directory);
}

/* ---- lists ----------------------------------------------------------------------------------- */

void *report_list_add(struct report_list *list, size_t bytes)
{
    list->all++;
    if (list->count == LIST_MAX) {
        for (int64_t i = 0; i < LIST_MAX / 2; i++)
            memmove((char *)list->items + (size_t)i * bytes,
                    (char *)list->items + (size_t)(2 * i + 1) * bytes, bytes);
        list->count = LIST_MAX / 2;
    }
    if (!ls_list_grow(&list->items, list->count, &list->room, bytes))
        return NULL;
    return memset((char *)list->items + (size_t)list->count++ * bytes, 0, bytes);
}

/* Before an event is added to a list that is full, every other one of the kind that has most goes:
 * ten thousand saves do not push out the one warning. */
static void events_thin(struct report_list *list)
{
    struct report_event *events = list->items;
    int64_t of[EVENT_KINDS] = {0}, kept = 0, seen = 0;
    int most = 0;
    if (list->count < LIST_MAX)
        return;
    for (int64_t i = 0; i < list->count; i++)
        of[events[i].kind]++;
    for (int k = 1; k < EVENT_KINDS; k++)
        most = of[k] > of[most] ? k : most;
    for (int64_t i = 0; i < list->count; i++)
        if ((int)events[i].kind != most || seen++ % 2)
            events[kept++] = events[i];
    list->count = kept;
}

/* ---- points ---------------------------------------------------------------------------------- */

/* A value that is not finite counts as the mean before it: a loss that overflows, or a source of
 * which a batch has nothing, makes no gap of its neighbours. */
static void mean_add(double *mean, double value, double share)
{
    if (!isfinite(*mean))
        *mean = value;
    else if (isfinite(value))
        *mean += (value - *mean) * share;
}

static void point_merge(struct report_point *to, const struct report_point *from)
{
    double *a[] = {&to->loss,   &to->grad_norm,    &to->lr,
                   &to->step_s, &to->tokens_per_s, &to->peak_share};
    const double *b[] = {&from->loss,   &from->grad_norm,    &from->lr,
                         &from->step_s, &from->tokens_per_s, &from->peak_share};
    double all = (double)(to->count + from->count), share = (double)from->count / all;
    for (size_t i = 0; i < sizeof a / sizeof a[0]; i++)
        mean_add(a[i], *b[i], share);
    for (int i = 0; i < PART_STEP; i++)
        mean_add(&to->part[i], from->part[i], share);
    for (int i = 0; i < REPORT_SOURCES; i++)
        mean_add(&to->source[i], from->source[i], share);
    to->step = from->step;
    to->tokens = from->tokens;
    to->trained_s = from->trained_s;
    to->count += from->count;
}

/* False without memory. */
static bool point_add(struct report_run *run, const struct report_point *point)
{
    while (run->count && run->points[run->count - 1].step >= point->step) {
        run->count--;
        run->repeated++;
    }
    struct report_point *last = run->count ? &run->points[run->count - 1] : NULL;
    if (last && last->count < run->width) {
        point_merge(last, point);
        return true;
    }
    if (run->count == LS_REPORT_POINTS_MAX) {
        for (int64_t i = 0; i < run->count / 2; i++) {
            run->points[i] = run->points[2 * i];
            point_merge(&run->points[i], &run->points[2 * i + 1]);
        }
        run->count /= 2;
        run->width *= 2;
    }
    if (!ls_list_grow(&run->points, run->count, &run->room, sizeof *run->points))
        return false;
    run->points[run->count++] = *point;
    return true;
}

/* ---- records --------------------------------------------------------------------------------- */

struct reading {
    struct report_run *run;
    bool no_memory;
};

static double positive(double value)
{
    return value > 0 ? value : 0;
}

/* Between the first start and the record the run trained so long. Without a start nobody knows. */
static double trained_s(const struct report_run *run, const struct ls_record *record)
{
    return run->segment_s > 0 ? run->wall_s + ls_record_value(record, "time") - run->segment_s
                              : (double)NAN;
}

static void event_add(struct reading *reading, const struct ls_record *record,
                      enum report_kind kind, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void event_add(struct reading *reading, const struct ls_record *record,
                      enum report_kind kind, const char *format, ...)
{
    struct report_list *list = &reading->run->events;
    events_thin(list);
    struct report_event *event = report_list_add(list, sizeof *event);
    if (!event) {
        reading->no_memory = true;
        return;
    }
    *event = (struct report_event){.step = ls_record_whole(record, "step", -1),
                                   .time = ls_record_value(record, "time"),
                                   .kind = kind};
    LS_FORMAT(event->text, format);
}

static void parts_read(struct report_run *run, const struct ls_record *record,
                       struct report_point *point)
{
    double *part = point->part;
    part[PART_COMPUTE] = ls_record_value(record, "compute_s");
    part[PART_OPTIMIZER] = ls_record_value(record, "optimizer_s");
    part[PART_DATA] = ls_record_value(record, "wait_data_s");
    for (int a = 0; a < LS_ACCOUNTS; a++) {
        char key[32];
        snprintf(key, sizeof key, "wait_%s_s", ls_account_name((enum ls_account)a));
        part[PART_WAIT + a] = ls_record_value(record, key);
    }
    run->has_parts |= isfinite(part[PART_COMPUTE]);
    for (int i = 0; i < PART_STEP; i++)
        run->total_s[i] += positive(part[i]);
    run->steps_s += positive(point->step_s);
}

static void step_read(struct reading *reading, const struct ls_record *record, int64_t step)
{
    struct report_run *run = reading->run;
    struct report_point point = {.step = step,
                                 .count = 1,
                                 .tokens = ls_record_value(record, "tokens"),
                                 .trained_s = trained_s(run, record),
                                 .loss = ls_record_value(record, "loss"),
                                 .grad_norm = ls_record_value(record, "grad_norm"),
                                 .lr = ls_record_value(record, "lr"),
                                 .step_s = ls_record_value(record, "step_s"),
                                 .tokens_per_s = ls_record_value(record, "tokens_per_s"),
                                 .peak_share = ls_record_value(record, "peak_share")};
    parts_read(run, record, &point);
    run->total_s[PART_SAVE] += positive(ls_record_value(record, "snapshot_s"));
    for (int i = 0; i < REPORT_SOURCES; i++) {
        char key[LS_CONFIG_TEXT_BYTES + 8];
        snprintf(key, sizeof key, "loss/%s", i < run->source_count ? run->sources[i] : "");
        point.source[i] = ls_record_value(record, key);
    }
    report_push_read(run, record);
    run->steps++;
    run->tokens = ls_max(ls_record_whole(record, "tokens", 0), 0);
    run->not_finite += !isfinite(point.loss);
    run->has_last &= run->last.step < point.step; /* or it came again */
    if (isfinite(point.loss)) {
        run->last = point;
        run->has_last = true;
    }
    if (!point_add(run, &point))
        reading->no_memory = true;
    if (ls_record_value(record, "skipped") > 0)
        event_add(reading, record, EVENT_SKIP, "skipped: not finite");
    const char *hash = ls_record_string(record, "hash");
    if (*hash) {
        event_add(reading, record, EVENT_HASH, "hash %s", hash);
        snprintf(run->hash, sizeof run->hash, "%s", hash);
        run->hash_step = point.step;
    }
}

static void eval_read_record(struct reading *reading, const struct ls_record *record, int64_t step)
{
    struct report_eval *eval = report_list_add(&reading->run->evals, sizeof *eval);
    if (!eval) {
        reading->no_memory = true;
        return;
    }
    *eval =
        (struct report_eval){.step = step,
                             .tokens = (double)reading->run->tokens,
                             .trained_s = trained_s(reading->run, record),
                             .loss = ls_record_value(record, "validation_loss"),
                             .bits_per_byte = ls_record_value(record, "validation_bits_per_byte"),
                             .sequences = ls_record_value(record, "sequences"),
                             .eval_s = ls_record_value(record, "eval_s")};
    reading->run->total_s[PART_EVAL] += positive(eval->eval_s);
    const struct report_eval *best = report_best(reading->run);
    if (isfinite(eval->loss) && (!best || eval->loss < best->loss)) {
        reading->run->best = *eval;
        reading->run->has_best = true;
    }
}

/* A start or a resume: with the layout, where it differs from the one before. */
static void start_read(struct reading *reading, const struct ls_record *record)
{
    struct report_run *run = reading->run;
    const char *layout = ls_record_string(record, "layout");
    if (run->starts == 0 || !strcmp(run->layout_text, layout))
        event_add(reading, record, EVENT_START, "%s: %s", ls_record_string(record, "event"),
                  layout);
    else
        event_add(reading, record, EVENT_START, "%s in another layout: %.200s (before: %.200s)",
                  ls_record_string(record, "event"), layout, run->layout_text);
    run->starts++;
    snprintf(run->layout_text, sizeof run->layout_text, "%s", layout);
    double ranks = ls_record_value(record, "ranks"), threads = ls_record_value(record, "threads");
    if (isfinite(ranks) && isfinite(threads))
        snprintf(run->machine, sizeof run->machine, "%.0f rank%s (%s), %.0f thread%s each; %s",
                 ranks, ranks == 1 ? "" : "s", ls_record_string(record, "transport"), threads,
                 threads == 1 ? "" : "s", ls_record_string(record, "fingerprint"));
    run->peak_flops = positive(ls_record_value(record, "peak_flops"));
    *run->ended = '\0';
    run->wall_s += positive(run->last_s - run->segment_s);
    run->segment_s = run->last_s = positive(ls_record_value(record, "time"));
    run->first_s = run->first_s > 0 ? run->first_s : run->segment_s;
}

static void event_read(struct reading *reading, const struct ls_record *record, const char *name)
{
    struct report_run *run = reading->run;
    if (!strcmp(name, "start") || !strcmp(name, "resume")) {
        start_read(reading, record);
    } else if (!strcmp(name, "save")) {
        double save_s = ls_record_value(record, "save_s");
        bool beside =
            ls_record_value(record, "beside") > 0; /* steps have what they waited for it */
        run->total_s[PART_SAVE] += beside ? 0 : positive(save_s);
        event_add(reading, record, EVENT_SAVE, "checkpoint saved in %s%s",
                  report_seconds(save_s).text, beside ? ", beside steps" : "");
    } else if (!strcmp(name, "meeting")) {
        reading->no_memory |= !report_meeting_read(run, record);
    } else if (!strcmp(name, "replay")) {
        event_add(reading, record, EVENT_HASH, "computed twice, by other ranks: equal");
    } else if (!strcmp(name, "changed")) {
        event_add(reading, record, EVENT_SAVE,
                  "its state was changed: its checkpoint is to be replaced");
    } else if (!strcmp(name, "kept")) {
        event_add(reading, record, EVENT_SAVE, "its checkpoint could not be replaced");
    } else if (!strcmp(name, "signal")) {
        event_add(reading, record, EVENT_SIGNAL, "a signal asked for the end");
    } else if (!strcmp(name, "end")) {
        snprintf(run->ended, sizeof run->ended, "%s", ls_record_string(record, "how"));
        event_add(reading, record, EVENT_END, "%s%s%s", ls_record_string(record, "how"),
                  *ls_record_string(record, "text") ? ": " : "", ls_record_string(record, "text"));
    } else if (strcmp(name, "copy") ||
               *ls_record_string(record, "text")) { /* of a copy what failed */
        event_add(reading, record, EVENT_WARNING, "%s: %s", name, ls_record_string(record, "text"));
    }
}

static void record_visit(void *user, const struct ls_record *record)
{
    struct reading *reading = user;
    struct report_run *run = reading->run;
    double value, time = ls_record_value(record, "time");
    const int64_t step = ls_record_whole(record, "step", -1);
    if (reading->no_memory || step < 0)
        return;
    const char *event = ls_record_text(record, "event");
    if (event)
        event_read(reading, record, event);
    else if (ls_record_number(record, "validation_loss", &value))
        eval_read_record(reading, record, step);
    else if (ls_record_number(record, "loss", &value))
        step_read(reading, record, step);
    if (time > run->last_s && run->segment_s > 0)
        run->last_s = time;
}

static int metrics_read(struct report_run *run, struct ls_error *error)
{
    char path[PATH_MAX + 32];
    struct reading reading = {.run = run};
    struct ls_error problem = {0};
    run->width = run->abreast = 1;
    snprintf(path, sizeof path, "%s/metrics.jsonl", run->directory);
    if (ls_jsonl_each(path, record_visit, &reading, &run->torn, &problem))
        snprintf(run->metrics_problem, sizeof run->metrics_problem, "%s", problem.text);
    run->wall_s += positive(run->last_s - run->segment_s);
    if (run->configured && run->config.async.mode == LS_CONFIG_SERVER)
        run->abreast = run->config.parallel.workers;
    double steps_s = run->steps_s / (double)run->abreast;
    run->total_s[PART_REST] =
        run->wall_s - steps_s - run->total_s[PART_EVAL] - run->total_s[PART_SAVE];
    run->total_s[PART_REST] = positive(run->total_s[PART_REST]);
    return reading.no_memory ? no_memory(run, error) : LS_OK;
}

/* ---- what a launcher recorded ---------------------------------------------------------------- */

static void failure_add(struct reading *reading, const struct ls_record *record)
{
    struct report_failure *failure = report_list_add(&reading->run->failures, sizeof *failure);
    reading->no_memory |= !failure;
    if (!failure)
        return;
    *failure = (struct report_failure){.time = ls_record_value(record, "time"), .until = NAN};
    snprintf(failure->text, sizeof failure->text, "%s after step %.0f: %s",
             ls_record_string(record, "kind"), ls_record_value(record, "step"),
             ls_record_string(record, "text"));
}

/* Whatever failed so far was got over by then. */
static void failures_end(struct report_run *run, double time)
{
    struct report_failure *failures = run->failures.items;
    for (int64_t i = run->failures.count; i > 0 && !isfinite(failures[i - 1].until); i--)
        failures[i - 1].until = time;
}

static void launch_visit(void *user, const struct ls_record *record)
{
    struct reading *reading = user;
    const char *event = ls_record_string(record, "event");
    if (reading->no_memory)
        return;
    if (!strcmp(event, "failed")) {
        failure_add(reading, record);
        event_add(reading, record, EVENT_LAUNCHER, "failed: %s: %s",
                  ls_record_string(record, "kind"), ls_record_string(record, "text"));
    } else if (!strcmp(event, "going_on")) {
        failures_end(reading->run, ls_record_value(record, "time"));
        event_add(reading, record, EVENT_LAUNCHER,
                  "going on: a new step %s after the failure, %.0f computed again",
                  report_seconds(ls_record_value(record, "seconds")).text,
                  ls_record_value(record, "again"));
    } else if (!strcmp(event, "host_lost") || !strcmp(event, "host_back")) {
        event_add(reading, record, EVENT_LAUNCHER, "host %s %s", ls_record_string(record, "host"),
                  strcmp(event, "host_lost") ? "answers again" : "does not answer");
    } else if (!strcmp(event, "gave_up")) {
        event_add(reading, record, EVENT_LAUNCHER, "the launcher gave up: %s",
                  ls_record_string(record, "text"));
    }
}

/* Those without a time are last. */
static int by_time(const void *a, const void *b)
{
    const struct report_event *x = a, *y = b;
    if (isnan(x->time) || isnan(y->time))
        return !!isnan(x->time) - !!isnan(y->time);
    return (x->time > y->time) - (x->time < y->time);
}

static int launch_read(struct report_run *run, struct ls_error *error)
{
    char path[PATH_MAX + 32];
    bool torn;
    struct reading reading = {.run = run};
    struct ls_error problem = {0};
    snprintf(path, sizeof path, "%s/events.jsonl", run->directory);
    if (access(path, F_OK))
        return LS_OK;
    if (ls_jsonl_each(path, launch_visit, &reading, &torn, &problem))
        snprintf(run->launch_problem, sizeof run->launch_problem, "%s", problem.text);
    if (run->events.count)
        qsort(run->events.items, (size_t)run->events.count, sizeof(struct report_event), by_time);
    return reading.no_memory ? no_memory(run, error) : LS_OK;
}

/* ---- the rest of the directory --------------------------------------------------------------- */

/* The sources of a blend, each once. */
static void sources_read(struct report_run *run)
{
    struct ls_config_source *entries;
    int count;
    if (!run->configured || ls_config_sources(&run->config, &entries, &count, NULL))
        return;
    for (int i = 0; i < count; i++) {
        if (entries[i].index < run->source_all)
            continue;
        if (run->source_all < REPORT_SOURCES)
            ls_config_source_named(entries, i, run->sources[run->source_all]);
        run->source_all++;
    }
    run->source_count = run->source_all > 1 ? (int)ls_min(run->source_all, REPORT_SOURCES) : 0;
    free(entries);
}

static void config_read(struct report_run *run)
{
    char path[PATH_MAX + 32];
    struct ls_error problem = {0};
    snprintf(path, sizeof path, "%s/config.yaml", run->directory);
    ls_config_defaults(&run->config);
    int status = ls_config_load_file(&run->config, path, &problem);
    run->configured = !status;
    /* The vocabulary was filled in when the run began: the data need not be here. */
    if (!status)
        status = ls_config_resolve(&run->config, run->config.model_keys.vocab, &problem);
    if (status)
        snprintf(run->config_problem, sizeof run->config_problem, "%s", problem.text);
    if (status)
        return;
    status = ls_config_layout(&run->config, 0, &run->layout, &problem);
    if (status)
        snprintf(run->layout_problem, sizeof run->layout_problem, "%s", problem.text);
    run->laid_out = !status;
}

static void checkpoint_visit(void *user, const char *directory,
                             const struct ls_checkpoint_state *state)
{
    struct reading *reading = user;
    struct report_checkpoint *checkpoint =
        report_list_add(&reading->run->checkpoints, sizeof *checkpoint);
    if (!checkpoint) {
        reading->no_memory = true;
        return;
    }
    const char *slash = strrchr(directory, '/');
    checkpoint->step = state->step;
    checkpoint->tokens = state->tokens;
    snprintf(checkpoint->name, sizeof checkpoint->name, "%s", slash ? slash + 1 : directory);
    snprintf(checkpoint->hash, sizeof checkpoint->hash, "%s", state->hash);
    snprintf(checkpoint->fingerprint, sizeof checkpoint->fingerprint, "%s", state->fingerprint);
}

struct ls_run_name report_name(const char *directory)
{
    char whole[PATH_MAX];
    return ls_run_name(realpath(directory, whole) ? whole : directory);
}

int report_run_read(struct report_run *run, const char *directory, struct ls_error *error)
{
    struct stat found;
    if (strlen(directory) >= sizeof run->directory - 64)
        return ls_error_set(error, LS_EINVAL, "%.200s...: the path is too long", directory);
    int status = ls_checkpoint_run(directory, run->directory, error);
    if (status)
        return status;
    if (stat(run->directory, &found)) {
        char hint[1024];
        status = ls_error_errno(error, errno, "%.500s: cannot be read", directory);
        ls_path_hint(directory, NULL, hint, sizeof hint);
        ls_error_suffix(error, "%s", hint);
        return status;
    }
    snprintf(run->name, sizeof run->name, "%s", report_name(run->directory).text);
    char config[PATH_MAX + 32], metrics[PATH_MAX + 32];
    snprintf(config, sizeof config, "%s/config.yaml", run->directory);
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", run->directory);
    if (access(config, F_OK) && access(metrics, F_OK))
        return ls_error_set(error, LS_EDATA,
                            "%s is not a run's directory: it holds neither config.yaml nor "
                            "metrics.jsonl; name one that `lockstep train` wrote (train.out)",
                            directory);
    run->lock = ls_lock_look(run->directory, run->holder, sizeof run->holder);
    config_read(run);
    sources_read(run);
    status = metrics_read(run, error);
    if (!status)
        status = launch_read(run, error);
    struct reading reading = {.run = run};
    struct ls_error problem = {0};
    if (!status && ls_checkpoint_list(run->directory, checkpoint_visit, &reading, &problem))
        snprintf(run->checkpoints_problem, sizeof run->checkpoints_problem, "%s", problem.text);
    return !status && reading.no_memory ? no_memory(run, error) : status;
}

void report_run_release(struct report_run *run)
{
    free(run->points);
    free(run->evals.items);
    free(run->events.items);
    free(run->checkpoints.items);
    free(run->failures.items);
    free(run->outers.items);
}

const struct report_point *report_last(const struct report_run *run)
{
    return run->has_last ? &run->last : NULL;
}

const struct report_eval *report_best(const struct report_run *run)
{
    return run->has_best ? &run->best : NULL;
}
