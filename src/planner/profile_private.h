/* planner/profile_private.h - what the files of a profile share. */
#ifndef PLANNER_PROFILE_PRIVATE_H
#define PLANNER_PROFILE_PRIVATE_H

#include <lockstep/planner/profile.h>

/* Seconds of a step by the traces, mean over their ranks. */
struct profile_step {
    int64_t step, ranks; /* ranks whose traces have it */
    double step_s, part_s[LS_PROFILE_PARTS], phase_s[LS_PROFILE_PHASES];
    double compute_s[LS_PROFILE_TRACES_MAX]; /* of each */
};
struct profile_steps {
    struct profile_step *list; /* [count], ascending, of all ranks whose traces were read */
    int64_t count, room;
};
/* The traces in the run's directory that were written since the start of that time (NaN: all), as
 * each start that traces begins new files; none if rank 0 has none of these. Sets trace.ranks,
 * trace.rank and trace.between. LS_EDATA, LS_EIO, LS_ENOMEM. list is to be freed, also after a
 * failure. */
int profile_traces_read(struct ls_profile *profile, double began, struct profile_steps *steps,
                        struct ls_error *error);

#endif
