/* The newest figures of a run as metrics.prom. */
#include "train/metrics_prom.h"

#include <lockstep/base/file.h>
#include <lockstep/trace.h>

enum { METRICS_MAX = 32, SECONDS_BETWEEN_WRITES = 10 };

void metrics_prom_open(struct metrics_prom *prom, const struct ls_config *config, size_t memory)
{
    *prom = (struct metrics_prom){
        .config = config, .memory = memory, .run = ls_run_name(config->train.out)};
}

/* What only some runs have, behind count others; returns how many there are then. */
static size_t sometimes(const struct metrics_prom *prom, struct ls_metric list[METRICS_MAX],
                        size_t count)
{
    if (prom->evaluated)
        list[count++] =
            (struct ls_metric){"lockstep_validation_loss", "Mean validation loss, nats per token.",
                               NULL, .value = prom->evaluation.loss};
    if (prom->evaluated && prom->evaluation.bits_per_byte > 0)
        list[count++] = (struct ls_metric){"lockstep_validation_bits_per_byte",
                                           "Mean validation loss, bits per byte of text.", NULL,
                                           .value = prom->evaluation.bits_per_byte};
    if (prom->plan_step_s > 0)
        list[count++] =
            (struct ls_metric){"lockstep_plan_step_seconds", "What a step takes by the plan.",
                               "seconds", .value = prom->plan_step_s};
    for (int kind = 0; kind < LS_DRIFT_KINDS && prom->watched; kind++)
        list[count++] = (struct ls_metric){
            .name = "lockstep_drift",
            .help = "How far above what is expected, 0.2 is 20 %; of slow_link and input_wait the "
                    "share of a step that is lost. 0: it does not drift.",
            .labels = {{0}, {"kind", ls_drift_name((enum ls_drift_kind)kind)}},
            .value = prom->drift[kind]};
    return count;
}

/* The list; returns how many. */
static size_t metrics_of(const struct metrics_prom *prom, struct ls_metric list[METRICS_MAX])
{
    const struct ls_step_report *step = &prom->step;
    const struct ls_metric always[] = {
        {"lockstep_steps", "Optimizer steps done.", NULL, .value = (double)step->step},
        {"lockstep_tokens", "Tokens consumed.", NULL, .value = (double)step->tokens},
        {"lockstep_samples", "Sequences consumed.", NULL, .value = (double)step->samples},
        {"lockstep_skipped_steps",
         "Steps skipped because they were not finite, since this process started.", NULL,
         .value = (double)prom->skipped},
        {"lockstep_loss", "Mean loss of the last batch, nats per token.", NULL,
         .value = step->loss},
        {"lockstep_learning_rate", "Learning rate of the last step.", NULL, .value = step->lr},
        {"lockstep_grad_norm", "Gradient norm before clipping.", NULL, .value = step->grad_norm},
        {"lockstep_loss_scale", "What the loss was multiplied by in the last step; 1 but for fp16.",
         NULL, .value = step->loss_scale},
        {"lockstep_step_seconds", "Duration of the last step.", "seconds", .value = step->step_s},
        {"lockstep_data_wait_seconds", "Of the last step, waiting for samples, on rank 0.",
         "seconds", .value = step->data_wait_s},
        {"lockstep_comm_wait_seconds", "Of the last step, waiting for other ranks, on rank 0.",
         "seconds", .value = step->comm_wait_s},
        {"lockstep_tokens_per_second", "Tokens per second of the last step.", NULL,
         .value = step->tokens_per_s},
        {"lockstep_peak_share", "Model flops as a share of the rate measured on this machine.",
         NULL, .value = step->peak_share},
        {"lockstep_memory_bytes", "Memory that rank 0 planned.", "bytes",
         .value = (double)prom->memory},
        {"lockstep_updated_timestamp_seconds", "Time of day of this file, seconds since 1970.",
         "seconds", .value = ls_record_time_s()},
    };
    size_t count = sizeof always / sizeof always[0], counters = 4;
    for (size_t i = 0; i < count; i++) {
        list[i] = always[i];
        list[i].type = i < counters ? LS_METRIC_COUNTER : LS_METRIC_GAUGE;
    }
    count = sometimes(prom, list, count);
    for (size_t i = 0; i < count; i++)
        list[i].labels[0] = (struct ls_metric_label){"run", prom->run.text};
    return count;
}

void metrics_prom_drift(struct metrics_prom *prom, const struct ls_drift drifts[LS_DRIFT_KINDS])
{
    prom->watched = true;
    for (int kind = 0; kind < LS_DRIFT_KINDS; kind++)
        prom->drift[kind] = drifts[kind].found ? drifts[kind].above : 0;
}

static int write_metrics(const void *prom, FILE *file, struct ls_error *error)
{
    struct ls_metric list[METRICS_MAX];
    return ls_prometheus_write(file, list, metrics_of(prom, list), error);
}

static int write_file(const struct metrics_prom *prom, struct ls_error *error)
{
    char path[LS_CONFIG_TEXT_BYTES + 64];
    snprintf(path, sizeof path, "%s/metrics.prom", prom->config->train.out);
    return ls_file_write(path, write_metrics, prom, error);
}

int metrics_prom_step(struct metrics_prom *prom, const struct ls_step_report *step, bool last,
                      struct ls_error *error)
{
    double now = ls_now_s();
    prom->step = *step;
    prom->skipped += step->skipped;
    if (now < prom->next_s && !last)
        return LS_OK;
    int status = write_file(prom, error);
    prom->next_s = status ? 0 : now + SECONDS_BETWEEN_WRITES; /* after a failure each step tries */
    return status;
}

int metrics_prom_evaluated(struct metrics_prom *prom, const struct ls_eval_report *evaluation,
                           struct ls_error *error)
{
    prom->evaluated = true;
    prom->evaluation = *evaluation;
    return write_file(prom, error);
}
