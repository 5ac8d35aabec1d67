/* The formulas of Young and Daly. */
#include <lockstep/ckpt/interval.h>

#include <math.h>

double ls_daly_interval(double checkpoint_s, double between_failures_s)
{
    double ratio = checkpoint_s / (2 * between_failures_s);
    if (ratio >= 1)
        return between_failures_s;
    if (isinf(between_failures_s))
        return between_failures_s;
    double young = sqrt(2 * checkpoint_s * between_failures_s);
    return young * (1 + sqrt(ratio) / 3 + ratio / 9) - checkpoint_s;
}

double ls_snapshot_interval(double snapshot_s, double between_failures_s)
{
    static const double share_always = 0.002;
    return fmin(ls_daly_interval(snapshot_s, between_failures_s), snapshot_s / share_always);
}
