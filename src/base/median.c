/* What lies in the middle of some numbers. */
#include <lockstep/base.h>
#include <lockstep/base/median.h>

#include <math.h>
#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void ls_sort(double *values, int64_t count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
}

double ls_quantile(const double *sorted, int64_t count, double share)
{
    if (count == 0)
        return NAN;
    double place = share * (double)(count - 1);
    int64_t below = (int64_t)place, above = ls_min(below + 1, count - 1);
    return sorted[below] + (place - (double)below) * (sorted[above] - sorted[below]);
}

double ls_median(double *values, int64_t count)
{
    ls_sort(values, count);
    return count ? ls_quantile(values, count, 0.5) : 0;
}
