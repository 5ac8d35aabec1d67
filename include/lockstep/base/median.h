/* lockstep/base/median.h - what lies in the middle of some numbers, or at another share of them. */
#ifndef LOCKSTEP_BASE_MEDIAN_H
#define LOCKSTEP_BASE_MEDIAN_H

#include <lockstep/base/linkage.h>

#include <stdint.h>

LS_C_BEGIN

/* Ascending. */
void ls_sort(double *values, int64_t count);
/* The value at that share (0 to 1) of sorted ones, between neighbours in proportion; NaN: none. */
double ls_quantile(const double *sorted, int64_t count, double share);
/* Sorts values; 0 if there are none. */
double ls_median(double *values, int64_t count);

LS_C_END
#endif
