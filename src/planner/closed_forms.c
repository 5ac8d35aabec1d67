/* The textbook's formulas. Their sources are in the header. */
#include <lockstep/planner/closed_forms.h>

#include <math.h>

/* ---- pipelines ------------------------------------------------------------------------------- */

static double work_of(struct ls_pass_times times)
{
    return times.forward + times.backward_input + times.backward_weight;
}

double ls_bubble_seconds(enum ls_schedule_kind kind, int64_t ranks, int64_t chunks,
                         struct ls_pass_times times)
{
    double far = (double)(ranks - 1);
    switch (kind) {
    case LS_SCHEDULE_GPIPE:
    case LS_SCHEDULE_1F1B:
        return far * work_of(times);
    case LS_SCHEDULE_INTERLEAVED:
        return far * work_of(times) / (double)chunks;
    case LS_SCHEDULE_ZB_H1:
        return far * (times.forward + times.backward_input - times.backward_weight);
    default:
        return NAN;
    }
}

double ls_pipeline_seconds(enum ls_schedule_kind kind, int64_t ranks, int64_t chunks,
                           int64_t micro_batches, struct ls_pass_times times)
{
    return (double)micro_batches * work_of(times) + ls_bubble_seconds(kind, ranks, chunks, times);
}

double ls_bubble_share(enum ls_schedule_kind kind, int64_t ranks, int64_t chunks,
                       int64_t micro_batches, struct ls_pass_times times)
{
    return ls_bubble_seconds(kind, ranks, chunks, times) /
           ls_pipeline_seconds(kind, ranks, chunks, micro_batches, times);
}

double ls_pipeline_efficiency(int64_t ranks, int64_t micro_batches)
{
    return (double)micro_batches / (double)(micro_batches + ranks - 1);
}

int64_t ls_micro_batches_for(int64_t ranks, double efficiency)
{
    /* The quotient may be a hair above a whole number that is enough. */
    double needed = (double)(ranks - 1) * efficiency / (1 - efficiency);
    return ls_max(1, (int64_t)ceil(needed * (1 - 1e-12)));
}

/* ---- collectives ----------------------------------------------------------------------------- */

double ls_ring_seconds(int64_t ranks, double bytes, double latency_s, double bytes_per_s,
                       bool all_reduce)
{
    double n = (double)ranks;
    if (ranks < 2)
        return 0;
    return (all_reduce ? 2 : 1) * (n - 1) * (latency_s + bytes / (n * bytes_per_s));
}

double ls_tree_seconds(int64_t ranks, double bytes, double latency_s, double bytes_per_s,
                       bool all_reduce)
{
    double n = (double)ranks;
    if (ranks < 2)
        return 0;
    double depth = ceil(log2(n));
    return all_reduce ? 2 * depth * latency_s + 2 * bytes * (n - 1) / (n * bytes_per_s)
                      : depth * latency_s + bytes / bytes_per_s;
}

/* ---- memory ---------------------------------------------------------------------------------- */

double ls_zero_state_bytes(int stage, int64_t ranks)
{
    static const double whole[] = {16, 4, 2, 0};
    return whole[stage] + (16 - whole[stage]) / (double)ranks;
}

double ls_zero_sent_elements(int stage, int64_t ranks)
{
    return (stage == 3 ? 3 : 2) * (double)(ranks - 1) / (double)ranks;
}

double ls_book_activation_bytes(const struct ls_book_layer *layer)
{
    double sbh = layer->sequence * layer->batch * layer->channels, t = (double)layer->tp;
    double attention =
        layer->recompute == LS_BOOK_KEEP ? 5 * layer->heads * layer->sequence / layer->channels : 0;
    if (layer->recompute == LS_BOOK_FULL)
        return 2 * sbh;
    return sbh * ((layer->sequence_parallel ? 10 / t : 10) + (24 + attention) / t);
}

/* ---- operations ------------------------------------------------------------------------------ */

double ls_palm_flops_per_token(double parameters, double layers, double heads, double head_dim,
                               double tokens)
{
    return 6 * parameters + 12 * layers * heads * head_dim * tokens;
}

double ls_megatron_flops(double sequences, double tokens, double layers, double channels,
                         double vocabulary, bool recompute)
{
    double passes = recompute ? 4 : 3; /* forward is one, backward two */
    double layer = 24 * channels * channels + 4 * tokens * channels;
    return sequences * tokens * (passes * layers * layer + 6 * channels * vocabulary);
}

double ls_flops_utilization(double tokens_per_s, double flops_per_token, double accelerators,
                            double peak)
{
    return tokens_per_s * flops_per_token / (accelerators * peak);
}

/* ---- failures -------------------------------------------------------------------------------- */

double ls_young_interval(double checkpoint_s, double between_failures_s)
{
    return sqrt(2 * checkpoint_s * between_failures_s);
}

double ls_daly_interval(double checkpoint_s, double between_failures_s)
{
    double ratio = checkpoint_s / (2 * between_failures_s);
    if (ratio >= 1)
        return between_failures_s;
    if (isinf(between_failures_s))
        return between_failures_s;
    return ls_young_interval(checkpoint_s, between_failures_s) * (1 + sqrt(ratio) / 3 + ratio / 9) -
           checkpoint_s;
}

double ls_goodput(double interval_s, double checkpoint_s, double restart_s,
                  double between_failures_s)
{
    double m = between_failures_s;
    if (isinf(m))
        return isinf(interval_s) ? 1 : interval_s / (interval_s + checkpoint_s);
    return interval_s / (m * exp(restart_s / m) * expm1((interval_s + checkpoint_s) / m));
}

/* ---- scaling --------------------------------------------------------------------------------- */

double ls_amdahl_speedup(double parallel_share, double n)
{
    return 1 / (1 - parallel_share + parallel_share / n);
}
