/* lockstep/parallel/stage_times.h - layers of stages whose ranks do not compute alike.
 *
 * ls_stage_split (lockstep/parallel/schedule.h) knows the costs of layers alone. Here a layer takes
 * times[s] as long in stage s. Everything here is Local. */
#ifndef LOCKSTEP_PARALLEL_STAGE_TIMES_H
#define LOCKSTEP_PARALLEL_STAGE_TIMES_H

#include <lockstep/parallel/schedule.h>

LS_C_BEGIN

/* times[stages] > 0; NULL: 1 each. All else as of ls_stage_split. */
int ls_stage_split_timed(const double *layer_cost, int64_t layers, const double *times,
                         int64_t stages, int64_t *first, struct ls_error *error);
/* text[bytes] = the split, first[stages + 1], as ls_stage_split_parse reads it. False: it is too
 * long. */
bool ls_stage_split_text(const int64_t *first, int64_t stages, char *text, size_t bytes);

LS_C_END
#endif
