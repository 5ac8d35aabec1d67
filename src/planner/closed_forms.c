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

/* ---- failures -------------------------------------------------------------------------------- */

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
