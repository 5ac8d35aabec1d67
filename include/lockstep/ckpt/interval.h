/* lockstep/ckpt/interval.h - how often to save.
 *
 * M mean seconds between failures (of the whole job), C seconds that a checkpoint holds the job up.
 * Everything here is Local. Young 1974, "A First Order Approximation to the Optimum Checkpoint
 * Interval"; Daly 2006, "A higher order estimate of the optimum checkpoint interval for restart
 * dumps".
 */
#ifndef LOCKSTEP_CKPT_INTERVAL_H
#define LOCKSTEP_CKPT_INTERVAL_H

#include <lockstep/base/linkage.h>

LS_C_BEGIN

/* Seconds of work between checkpoints: sqrt(2 C M) (1 + sqrt(C / 2 M) / 3 + (C / 2 M) / 9) - C
 * where C < 2 M, else M. Daly equation 37; the first factor is Young's interval. */
double ls_daly_interval(double checkpoint_s, double between_failures_s);
/* Seconds between snapshots (snapshot.every=auto) that cost so much: Daly's interval; or what two
 * thousandths of the time pay for, if that is shorter, since rates of failures are guesses. */
double ls_snapshot_interval(double snapshot_s, double between_failures_s);

LS_C_END
#endif
