/* Events of a run, as records of metrics.jsonl. */
#include "train/events.h"

#include "train/workers.h"

#include <lockstep/base/words.h>

#include <stdio.h>
#include <string.h>

static struct ls_jsonl *event_begin_of(const struct events *events, int64_t step, const char *event)
{
    ls_jsonl_begin(events->metrics);
    ls_jsonl_int(events->metrics, "step", step);
    ls_jsonl_string(events->metrics, "event", event);
    ls_jsonl_double(events->metrics, "time", ls_record_time_s());
    return events->metrics;
}
static struct ls_jsonl *event_begin(const struct events *events, const char *event)
{
    return event_begin_of(events, events->step, event);
}

/* ---- warnings -------------------------------------------------------------------------------- */

static int warning_record(const struct events *events, const char *line, struct ls_error *error)
{
    struct ls_jsonl *m = event_begin(events, "warning");
    ls_jsonl_string(m, "text", line);
    return ls_jsonl_end(m, error);
}

/* A warning that cannot be recorded was still shown. */
static void on_log(void *user, enum ls_log_level level, const char *line)
{
    enum { EARLY_MAX = sizeof((struct events *)0)->early / sizeof((struct events *)0)->early[0] };
    struct events *events = user;
    const struct ls_log *caller = events->caller;
    if (caller && caller->write && level <= caller->level_max)
        caller->write(caller->user, level, line);
    if (level > LS_LOG_WARNING)
        return;
    if (events->metrics)
        warning_record(events, line, NULL);
    else if (events->early_count < EARLY_MAX)
        snprintf(events->early[events->early_count++], sizeof events->early[0], "%s", line);
}

void events_init(struct events *events, const struct ls_log *caller)
{
    enum ls_log_level level = caller ? caller->level_max : LS_LOG_WARNING;
    *events = (struct events){.caller = caller};
    events->log = (struct ls_log){.level_max = level > LS_LOG_WARNING ? level : LS_LOG_WARNING,
                                  .write = on_log,
                                  .user = events};
}

/* To the caller's log alone: the event is the record. */
static void show(const struct events *events, enum ls_log_level level, const char *line)
{
    const struct ls_log *caller = events->caller;
    if (caller && caller->write && level <= caller->level_max)
        caller->write(caller->user, level, line);
}

/* ---- data ------------------------------------------------------------------------------------ */

/* A start says of all data "data", and of each of several sources "data/NAME". */
static void source_key(const struct ls_trainer *trainer, int i, char key[LS_CONFIG_TEXT_BYTES + 8])
{
    snprintf(key, LS_CONFIG_TEXT_BYTES + 8, "data/%s", trainer->data.sources[i].name);
}

void events_data_see(const struct ls_trainer *trainer, char (*seen)[33],
                     const struct ls_record *record)
{
    const char *all = ls_record_text(record, "data");
    for (int i = 0; all && i < trainer->data.count; i++) {
        char key[LS_CONFIG_TEXT_BYTES + 8];
        source_key(trainer, i, key);
        const char *own = ls_record_text(record, key);
        if (own || trainer->data.count == 1)
            snprintf(seen[i], sizeof seen[i], "%s", own ? own : all);
    }
}

/* ---- the others ------------------------------------------------------------------------------ */

int events_open(struct events *events, struct ls_jsonl *metrics, const struct ls_trainer *trainer,
                const char *digest, const char *valid, const struct ls_run_plan *plan, bool resumed,
                struct ls_error *error)
{
    char text[1024], fingerprint[256];
    events->metrics = metrics;
    events->step = ls_trainer_steps(trainer);
    ls_config_layout_text(&trainer->config, NULL, text, sizeof text);
    ls_fingerprint(&trainer->ops, fingerprint, sizeof fingerprint);
    struct ls_jsonl *m = event_begin(events, resumed ? "resume" : "start");
    if (workers_rescued(trainer) > events->step)
        ls_jsonl_int(m, "rescued", workers_rescued(trainer));
    ls_jsonl_string(m, "layout", text);
    ls_jsonl_int(m, "ranks", ls_comm_size(trainer->whole));
    ls_jsonl_int(m, "threads", trainer->ops.threads);
    ls_jsonl_string(m, "transport", ls_transport_name(ls_comm_transport(trainer->world)));
    ls_jsonl_string(m, "fingerprint", fingerprint);
    if (*trainer->peak_of)
        ls_jsonl_string(m, "peak_of", trainer->peak_of);
    if (*digest)
        ls_jsonl_string(m, "data", digest);
    for (int i = 0; trainer->data.count > 1 && i < trainer->data.count; i++) {
        char key[LS_CONFIG_TEXT_BYTES + 8];
        source_key(trainer, i, key);
        ls_jsonl_string(m, key, trainer->data.sources[i].digest);
    }
    if (*valid)
        ls_jsonl_string(m, "valid", valid);
    if (trainer->peak_flops > 0)
        ls_jsonl_double(m, "peak_flops", trainer->peak_flops);
    if (plan)
        ls_jsonl_double(m, "plan_step_s", plan->step_s);
    int status = ls_jsonl_end(m, error);
    for (int i = 0; i < events->early_count && !status; i++)
        status = warning_record(events, events->early[i], error);
    return status;
}

int events_outer(struct events *events, const struct ls_outer_report *outer, struct ls_error *error)
{
    struct ls_jsonl *m = event_begin(events, "meeting");
    if (outer->step > 0) {
        ls_jsonl_int(m, "outer_step", outer->step);
        ls_jsonl_int(m, "fragment", outer->fragment);
        ls_jsonl_double(m, "outer_norm", outer->norm);
        ls_jsonl_int(m, "workers", outer->members);
    }
    for (int i = 0; i < outer->groups; i++) {
        char key[32];
        snprintf(key, sizeof key, "outer_wait_s/%d", i);
        ls_jsonl_float(m, key, (float)outer->wait_s[i]);
    }
    return ls_jsonl_end(m, error);
}

void events_peak_name(struct ls_trainer *trainer)
{
    char processor[128] = "unknown processor";
    ls_device_processor(processor, sizeof processor);
    snprintf(trainer->peak_of, sizeof trainer->peak_of, "%s of %s on %s, %d cores",
             ls_counted(trainer->layout.ranks * trainer->ops.threads, "thread").text,
             ls_dtype_name(trainer->numerics.act), processor, ls_device_cores_online());
}

void events_peak_see(const struct ls_trainer *trainer, double *flops,
                     const struct ls_record *record)
{
    const char *of = ls_record_text(record, "peak_of");
    double found;
    if (of && !strcmp(of, trainer->peak_of) && ls_record_number(record, "peak_flops", &found))
        *flops = found > 0 ? found : 0;
}

int events_saved(struct events *events, int64_t step, double save_s, bool beside, bool changed,
                 struct ls_error *error)
{
    struct ls_jsonl *m = event_begin_of(events, step, "save");
    ls_jsonl_float(m, "save_s", (float)save_s);
    if (beside)
        ls_jsonl_int(m, "beside", 1);
    if (changed)
        ls_jsonl_int(m, "changed", 1);
    return ls_jsonl_end(m, error);
}

int events_changed(struct events *events, int64_t step, struct ls_error *error)
{
    return ls_jsonl_end(event_begin_of(events, step, "changed"), error);
}

int events_kept(struct events *events, int64_t step, struct ls_error *error)
{
    return ls_jsonl_end(event_begin_of(events, step, "kept"), error);
}

int events_copied(struct events *events, const char *where, const struct copy_outcome *outcome,
                  struct ls_error *error)
{
    static const char *const how[] = {"done", "skipped", "failed"};
    char text[1400] = "";
    if (outcome->how == COPY_FAILED)
        snprintf(text, sizeof text,
                 "the copy of step %ld is missing in %.200s: %s. The next checkpoint tries again",
                 (long)outcome->step, where, outcome->text);
    else if (outcome->text[0])
        snprintf(text, sizeof text, "%.200s still has older checkpoints: %s", where, outcome->text);
    if (*text)
        show(events, LS_LOG_WARNING, text);
    if (!events->metrics)
        return LS_OK;
    struct ls_jsonl *m = event_begin(events, "copy");
    ls_jsonl_int(m, "of", outcome->step);
    ls_jsonl_string(m, "how", how[outcome->how]);
    if (outcome->how == COPY_DONE) {
        ls_jsonl_float(m, "copy_s", (float)outcome->copy_s);
        ls_jsonl_int(m, "bytes", (int64_t)outcome->bytes);
    }
    if (*text)
        ls_jsonl_string(m, "text", text);
    return ls_jsonl_end(m, error);
}

int events_replayed(struct events *events, double replay_s, struct ls_error *error)
{
    struct ls_jsonl *m = event_begin(events, "replay");
    ls_jsonl_float(m, "replay_s", (float)replay_s);
    return ls_jsonl_end(m, error);
}

int events_signal(struct events *events, struct ls_error *error)
{
    event_begin(events, "signal");
    return ls_jsonl_end(events->metrics, error);
}

/* Which rank, stage or axis. */
static void subject_record(struct ls_jsonl *m, const struct ls_drift *drift)
{
    if (drift->kind == LS_DRIFT_LINK)
        ls_jsonl_string(m, "axis", ls_account_name((enum ls_account)drift->subject));
    else
        ls_jsonl_int(m, drift->kind == LS_DRIFT_STAGE ? "stage" : "rank", drift->subject);
}

/* "0.31,0.1": what a rank of each stage computes, unless there are too many to write down. */
static void stages_record(struct ls_jsonl *m, const double *stage_s, int64_t stages)
{
    enum { NUMBER_BYTES = 16 };
    char text[LS_DRIFT_STAGES_MAX * NUMBER_BYTES] = "";
    for (int64_t pp = 0; pp < stages && stages <= LS_DRIFT_STAGES_MAX; pp++)
        ls_string_add(text, sizeof text, pp ? "," : "", "%.6g", stage_s[pp]);
    if (text[0])
        ls_jsonl_string(m, "stages_s", text);
}

int events_drift(struct events *events, const struct ls_drift *drift, bool new, double step_s,
                 const struct ls_run_plan *plan, const double *stage_s, int64_t stages,
                 struct ls_error *error)
{
    struct ls_jsonl *m = event_begin(events, "drift");
    ls_jsonl_string(m, "kind", ls_drift_name(drift->kind));
    subject_record(m, drift);
    if (drift->host[0])
        ls_jsonl_string(m, "host", drift->host);
    ls_jsonl_float(m, "took_s", (float)drift->took_s);
    if (drift->kind != LS_DRIFT_INPUT)
        ls_jsonl_float(m, "expected_s", (float)drift->expected_s);
    ls_jsonl_float(m, "step_s", (float)step_s);
    if (plan)
        ls_jsonl_float(m, "plan_step_s", (float)plan->step_s);
    if (drift->kind == LS_DRIFT_STAGE)
        stages_record(m, stage_s, stages);
    ls_jsonl_string(m, "text", drift->text);
    if (new)
        show(events, LS_LOG_WARNING, drift->text);
    return ls_jsonl_end(m, error);
}

int events_drift_over(struct events *events, enum ls_drift_kind kind, struct ls_error *error)
{
    struct ls_jsonl *m = event_begin(events, "drift_over");
    ls_jsonl_string(m, "kind", ls_drift_name(kind));
    ls_jsonl_string(m, "text", ls_drift_name(kind));
    return ls_jsonl_end(m, error);
}

int events_advice(struct events *events, const char *text, struct ls_error *error)
{
    struct ls_jsonl *m = event_begin(events, "advice");
    ls_jsonl_string(m, "text", text);
    show(events, LS_LOG_INFO, text);
    return ls_jsonl_end(m, error);
}

int events_end(struct events *events, int status, const struct ls_error *why,
               struct ls_error *error)
{
    if (!events->metrics)
        return LS_OK;
    struct ls_jsonl *m = event_begin(events, "end");
    ls_jsonl_string(m, "how", !status ? "done" : status == LS_ESTOPPED ? "stopped" : "failed");
    if (status && why)
        ls_jsonl_string(m, "text", why->text);
    return ls_jsonl_end(m, error);
}
