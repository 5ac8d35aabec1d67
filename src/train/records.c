/* A run's records of its steps and evaluations: metrics.jsonl, TensorBoard, metrics.prom. */
#include "train/records.h"

#include "train/events.h"

#include <lockstep/base/file.h>

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the best evaluation --------------------------------------------------------------------- */

/* By the records: a run that was killed between two writes has the same as one that was not. */
bool best_records_take(struct best_records *records, const struct ls_checkpoint_best *now)
{
    const struct ls_checkpoint_best *best = &records->best;
    bool first = best->step < 0 || best->sequences != now->sequences;
    if (!isfinite(now->loss) || (!first && now->loss >= best->loss))
        return false;
    records->before = records->best;
    records->best = *now;
    return true;
}

bool best_records_drop(struct best_records *records, const char *out, int64_t step)
{
    const struct ls_checkpoint_best none = {.step = -1}, before = records->before;
    records->dropped = none;
    if (step < 0 || records->best.step != step)
        return false;
    records->dropped = records->best;
    records->best = before.step >= 0 && ls_checkpoint_there(out, before.step) ? before : none;
    records->before = none;
    return true;
}

bool best_records_restore(struct best_records *records, int64_t step)
{
    if (step < 0 || records->dropped.step != step)
        return false;
    records->before = records->best;
    records->best = records->dropped;
    records->dropped.step = -1;
    return true;
}

/* Takes the next record of a run's. out: where its checkpoints are. */
static void best_see(struct best_records *records, const char *out, const struct ls_record *record)
{
    const int64_t step = ls_record_whole(record, "step", -1);
    const int64_t sequences = ls_record_whole(record, "sequences", -1);
    double loss;
    if (step < 0)
        return;
    records->recorded = step;
    const char *event = ls_record_text(record, "event");
    if (event && (!strcmp(event, "start") || !strcmp(event, "resume")))
        snprintf(records->seen, sizeof records->seen, "%s", ls_record_string(record, "valid"));
    if (event && !strcmp(event, "changed"))
        best_records_drop(records, out, step);
    if (event && !strcmp(event, "kept"))
        best_records_restore(records, step);
    if (!ls_record_number(record, "validation_loss", &loss) || sequences < 0)
        return;
    const struct ls_checkpoint_best now = {step, loss, sequences};
    const bool other =
        records->valid[0] && records->seen[0] && strcmp(records->valid, records->seen) != 0;
    records->last = now.step;
    records->others |= other;
    if (!other && ls_checkpoint_there(out, now.step))
        best_records_take(records, &now);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* A run that begins anew where an older one left records, but no checkpoint, keeps those aside. */
static int records_set_aside(const char *metrics, const struct ls_log *log, struct ls_error *error)
{
    char aside[LS_CONFIG_TEXT_BYTES + 96];
    struct stat found;
    int number = 0;
    if (stat(metrics, &found) || found.st_size == 0)
        return LS_OK;
    do
        snprintf(aside, sizeof aside, "%s.%d", metrics, ++number);
    while (access(aside, F_OK) == 0);
    if (rename(metrics, aside))
        return ls_error_errno(error, errno, "%s: cannot rename to %s", metrics, aside);
    ls_log(log, LS_LOG_WARNING,
           "an earlier run left records here but no checkpoint: this run starts at step 1, and "
           "the old records are now %s",
           aside);
    return LS_OK;
}

/* What goes on from the records that stay: the chain, the best evaluation, the measured peak. */
static void record_visit(void *user, const struct ls_record *record)
{
    struct records *records = user;
    const int64_t step = ls_record_whole(record, "step", -1);
    if (step >= 0 && ls_record_text(record, "loss_bits")) {
        records->last_step = step;
        snprintf(records->last_hash, sizeof records->last_hash, "%s",
                 ls_record_string(record, "hash"));
        snprintf(records->chain, sizeof records->chain, "%s", ls_record_string(record, "chain"));
    }
    best_see(&records->best, records->trainer->config.train.out, record);
    events_peak_see(records->trainer, &records->peak_flops, record);
    events_data_see(records->trainer, records->data_seen, record);
}

static int board_judge(struct records *records, int status, const struct ls_error *error)
{
    return sink_judge(&records->board_sink, "the TensorBoard events", status, records->log, error);
}

static int board_open(struct records *records, int64_t purge_step, struct ls_error *error)
{
    records->purge_step = purge_step;
    int status = ls_tensorboard_open(&records->board, records->trainer->config.train.out,
                                     ls_record_time_s(), purge_step, error);
    return status ? board_judge(records, status, error) : LS_OK;
}

static void metrics_path(const char *run, char path[LS_CONFIG_TEXT_BYTES + 64])
{
    snprintf(path, LS_CONFIG_TEXT_BYTES + 64, "%s/metrics.jsonl", run);
}

static void origin_visit(void *user, const struct ls_record *record)
{
    struct records *records = user;
    events_data_see(records->trainer, records->data_seen, record);
}

/* A checkpoint may have come without its run's records. */
static void origin_read(struct records *records, const char *origin)
{
    struct ls_error why = {0};
    char path[PATH_MAX];
    int64_t end;
    int status = ls_path_join(path, origin, "metrics.jsonl", &why);
    if (!status)
        status = ls_jsonl_each_to(path, "step", ls_trainer_steps(records->trainer), origin_visit,
                                  records, &end, &why);
    if (status)
        ls_log(records->log, LS_LOG_WARNING,
               "whether the data are those that %s was trained on is not known: %s", origin,
               why.text);
}

int records_read(struct records *records, const struct ls_trainer *trainer,
                 const struct ls_log *log, bool resumed, const char *origin, struct ls_error *error)
{
    char path[LS_CONFIG_TEXT_BYTES + 64];
    records->trainer = trainer;
    records->log = log;
    records->best = BEST_RECORDS_NONE;
    metrics_prom_open(&records->prom, &trainer->config, trainer->plan.total);
    records->data_seen = calloc((size_t)trainer->data.count + 1, sizeof *records->data_seen);
    if (!records->data_seen)
        return ls_no_memory(error, "for the records of a run");
    if (*origin && !trainer->config.data.changed)
        origin_read(records, origin);
    int status = trainer->valid_store && trainer->config.eval.every > 0
                     ? ls_token_store_digest(trainer->valid_store, records->best.valid, error)
                     : LS_OK;
    metrics_path(trainer->config.train.out, path);
    if (!status && resumed)
        status = ls_jsonl_each_to(path, "step", ls_trainer_steps(trainer), record_visit, records,
                                  &records->metrics_bytes, error);
    return status;
}

int records_open(struct records *records, bool resumed, struct ls_error *error)
{
    const struct ls_config *config = &records->trainer->config;
    char path[LS_CONFIG_TEXT_BYTES + 64];
    metrics_path(config->train.out, path);
    /* A resumed run writes each step once. */
    int status = resumed ? ls_jsonl_cut(path, records->metrics_bytes, error)
                         : records_set_aside(path, records->log, error);
    if (!status)
        status = ls_jsonl_open(&records->metrics, path, error);
    records->metrics_sink.keeps = records->metrics;
    if (!status && config->log.tensorboard)
        status = board_open(records, resumed ? ls_trainer_steps(records->trainer) + 1 : 0, error);
    return status;
}

void records_tell_lost(struct records *records)
{
    sink_close(&records->metrics_sink, "metrics.jsonl", records->log);
    sink_close(&records->board_sink, "the TensorBoard events", records->log);
}

void records_close(struct records *records)
{
    free(records->data_seen);
    ls_jsonl_close(records->metrics, NULL);
    ls_tensorboard_close(records->board, NULL);
}

/* ---- files that may fail --------------------------------------------------------------------- */

int records_judge(struct records *records, int status, const struct ls_error *error)
{
    return sink_judge(&records->metrics_sink, "metrics.jsonl", status, records->log, error);
}

static int prom_judge(struct records *records, int status, const struct ls_error *error)
{
    return sink_judge(&records->prom_sink, "metrics.prom", status, records->log, error);
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Ops by kind; of a kind that the model does not have there is nothing. */
static void works_record(struct ls_jsonl *m, const struct step_means *means)
{
    for (int i = 0; i < LS_WORK_KINDS; i++) {
        char key[64];
        const char *name = ls_work_name((enum ls_work_kind)i);
        if (means->works[i] <= 0)
            continue;
        snprintf(key, sizeof key, "op_%s_s", name);
        ls_jsonl_float(m, key, means->work_s[i]);
        snprintf(key, sizeof key, "op_%s_count", name);
        ls_jsonl_float(m, key, means->works[i]);
    }
}

static void means_record(const struct records *records, const struct step_means *means)
{
    struct ls_jsonl *m = records->metrics;
    ls_jsonl_float(m, "compute_s", means->compute_s);
    ls_jsonl_float(m, "optimizer_s", means->optimizer_s);
    ls_jsonl_float(m, "wait_data_s", means->data_s);
    for (int i = 0; i < LS_ACCOUNTS; i++) {
        char key[32];
        enum ls_account account = (enum ls_account)i;
        snprintf(key, sizeof key, "wait_%s_s", ls_account_name(account));
        if (ls_account_used(&records->trainer->layout, account))
            ls_jsonl_float(m, key, means->wait_s[i]);
    }
    works_record(m, means);
}

/* Into the TensorBoard events, if there are any. */
static int scalars_record(struct records *records, int64_t step, const struct ls_scalar *scalars,
                          size_t count, struct ls_error *error)
{
    int status = LS_OK;
    if (!records->board && records->trainer->config.log.tensorboard) /* it could not be opened */
        status = board_open(records, records->purge_step, error);
    if (status || !records->board)
        return status;
    status =
        ls_tensorboard_scalars(records->board, ls_record_time_s(), step, scalars, count, error);
    return board_judge(records, status, error);
}

/* Ends a step's record with its chain. What is lost is no part of that. */
static int chained_end(struct records *records, const struct ls_step_report *r,
                       struct ls_error *error)
{
    char chain[LS_CHAIN_BYTES];
    const struct ls_chain_link link = {r->step, r->loss_bits, r->grad_norm,
                                       r->hashed ? r->hash : "", r->ledger};
    memcpy(chain, records->chain, sizeof chain);
    ls_chain_add(chain, &link);
    ls_jsonl_string(records->metrics, "chain", chain);
    int64_t lost = ls_jsonl_lost(records->metrics);
    int status = ls_jsonl_end(records->metrics, error);
    if (ls_jsonl_lost(records->metrics) == lost && (!status || sink_refused(status)))
        memcpy(records->chain, chain, sizeof chain);
    return records_judge(records, status, error);
}

/* The loss of each source that the batch has something of, "loss/NAME": into the step's record, or
 * into the TensorBoard events. */
static int source_losses_record(struct records *records, const struct ls_step_report *r, bool board,
                                struct ls_error *error)
{
    const struct ls_training_data *data = &records->trainer->data;
    char key[LS_CONFIG_TEXT_BYTES + 8];
    int status = LS_OK;
    for (int i = 0; r->source_losses && i < data->count && !status; i++) {
        const struct ls_scalar scalar = {key, r->source_losses[i]};
        snprintf(key, sizeof key, "loss/%s", data->sources[i].name);
        if (isnan(scalar.value))
            continue;
        if (board)
            status = scalars_record(records, r->step, &scalar, 1, error);
        else
            ls_jsonl_float(records->metrics, key, scalar.value);
    }
    return status;
}

/* Of the batch: which targets its loss is of. */
static void batch_record(struct ls_jsonl *m, const struct ls_step_report *r)
{
    if (r->counted > 0)
        ls_jsonl_int(m, "counted", r->counted);
    if (r->weighted)
        ls_jsonl_double(m, "weight", r->weight);
    if (r->given)
        ls_jsonl_int(m, "given", 1);
}

int records_step(struct records *records, const struct ls_step_report *r,
                 const struct step_means *means, struct ls_error *error)
{
    struct ls_jsonl *m = records->metrics;
    char bits[16];
    snprintf(bits, sizeof bits, "%08x", r->loss_bits);
    ls_jsonl_begin(m);
    ls_jsonl_int(m, "step", r->step);
    ls_jsonl_double(m, "time", ls_record_time_s());
    ls_jsonl_int(m, "tokens", r->tokens);
    ls_jsonl_float(m, "loss", r->loss);
    ls_jsonl_string(m, "loss_bits", bits);
    ls_jsonl_double(m, "grad_norm", r->grad_norm);
    ls_jsonl_float(m, "lr", r->lr);
    ls_jsonl_float(m, "step_s", (float)r->step_s);
    ls_jsonl_float(m, "tokens_per_s", (float)r->tokens_per_s);
    ls_jsonl_float(m, "peak_share", (float)r->peak_share);
    ls_jsonl_float(m, "data_wait_s", (float)r->data_wait_s);
    ls_jsonl_float(m, "comm_wait_s", (float)r->comm_wait_s);
    means_record(records, means);
    if (r->snapshot_s > 0)
        ls_jsonl_float(m, "snapshot_s", (float)r->snapshot_s);
    if (r->offload_bytes > 0) {
        ls_jsonl_double(m, "offload_bytes", r->offload_bytes);
        ls_jsonl_float(m, "offload_busy_s", (float)r->offload_busy_s);
        ls_jsonl_float(m, "offload_wait_s", (float)r->offload_wait_s);
    }
    batch_record(m, r);
    if (records->trainer->config.numerics.precision == LS_F16)
        ls_jsonl_double(m, "loss_scale", r->loss_scale);
    if (r->skipped)
        ls_jsonl_int(m, "skipped", 1);
    if (r->push.is) {
        ls_jsonl_int(m, "worker", r->push.worker);
        ls_jsonl_int(m, "clock", r->push.clock);
        ls_jsonl_int(m, "staleness", r->push.staleness);
    }
    if (r->hashed)
        ls_jsonl_string(m, "hash", r->hash);
    ls_jsonl_string(m, "ledger", r->ledger);
    source_losses_record(records, r, false, error);
    int status = chained_end(records, r, error);
    if (!status)
        status = source_losses_record(records, r, true, error);
    if (status)
        return status;
    const struct ls_scalar scalars[] = {
        {"loss_metrics/global_avg_loss", r->loss},
        {"grad_norm", (float)r->grad_norm},
        {"lr", r->lr},
        {"throughput(tps)", (float)r->tokens_per_s},
        {"mfu(%)", (float)(100 * r->peak_share)},
        {"time_metrics/end_to_end(s)", (float)r->step_s},
        {"time_metrics/data_loading(s)", (float)r->data_wait_s},
        {"loss_scale", (float)r->loss_scale},
    };
    size_t unscaled = records->trainer->config.numerics.precision != LS_F16;
    status = scalars_record(records, r->step, scalars,
                            sizeof scalars / sizeof scalars[0] - unscaled, error);
    const struct ls_scalar staleness = {"staleness", (float)r->push.staleness};
    if (!status && r->push.is)
        status = scalars_record(records, r->step, &staleness, 1, error);
    const struct ls_scalar norm = {"outer_norm", (float)r->outer.norm};
    if (!status && r->outer.step > 0)
        status = scalars_record(records, r->step, &norm, 1, error);
    return status;
}

int records_step_end(struct records *records, const struct ls_step_report *r, bool last,
                     struct ls_error *error)
{
    return prom_judge(records, metrics_prom_step(&records->prom, r, last, error), error);
}

/* ---- an evaluation --------------------------------------------------------------------------- */

int records_evaluation(struct records *records, int64_t step, const struct ls_eval_report *r,
                       double eval_s, struct ls_error *error)
{
    struct ls_jsonl *m = records->metrics;
    ls_jsonl_begin(m);
    ls_jsonl_int(m, "step", step);
    ls_jsonl_double(m, "time", ls_record_time_s());
    ls_jsonl_double(m, "validation_loss", r->loss);
    if (r->bits_per_byte > 0)
        ls_jsonl_double(m, "validation_bits_per_byte", r->bits_per_byte);
    ls_jsonl_int(m, "sequences", r->sequences);
    ls_jsonl_float(m, "eval_s", (float)eval_s);
    int status = records_judge(records, ls_jsonl_end(m, error), error);
    const struct ls_scalar scalar = {"validation_metrics/loss", (float)r->loss};
    if (!status)
        status = scalars_record(records, step, &scalar, 1, error);
    return status ? status
                  : prom_judge(records, metrics_prom_evaluated(&records->prom, r, error), error);
}
