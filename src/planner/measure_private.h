/* planner/measure_private.h - what the files that measure share. */
#ifndef PLANNER_MEASURE_PRIVATE_H
#define PLANNER_MEASURE_PRIVATE_H

#include <lockstep/planner/measure.h>

/* Sorts values; 0 where there are none. */
double measure_median(double *values, int64_t count);
int measure_cores(const struct ls_measure *measure);
/* Teams of so many threads that keep the cores busy. */
int measure_teams(const struct ls_measure *measure, int threads);
/* Whether two works are one row of a cluster. */
bool measure_same_row(const struct ls_work *a, const struct ls_work *b);

#endif
