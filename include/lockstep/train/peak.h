/* lockstep/train/peak.h - the rate of this machine that is given, and so not measured. Local. */
#ifndef LOCKSTEP_TRAIN_PEAK_H
#define LOCKSTEP_TRAIN_PEAK_H

#include <lockstep/base.h>

LS_C_BEGIN

/* What LOCKSTEP_PEAK_FLOPS says, in FLOP/s of all ranks of a machine; 0 if it is unset or empty.
 * LS_ECONFIG: it is no rate. */
int ls_peak_given(double *flops, struct ls_error *error);

LS_C_END

#endif
