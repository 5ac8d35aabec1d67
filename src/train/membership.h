/* Private to train: lockstep/train/members.h, as a run takes part in it. A run that goes on, an
 * audit, and a run with async.follow read RUN/members.
 *
 * A worker that does not take part consumes no samples and has no part in the mean. One that comes
 * again is new: it has the global parameters, and an optimizer that has seen nothing. So nothing of
 * it need be kept. So is one of which a rank died: workers_rescue.c. */
#ifndef TRAIN_MEMBERSHIP_H
#define TRAIN_MEMBERSHIP_H

#include "train/workers_private.h"

/* Local. */
int members_open(struct workers *workers, struct ls_error *error);
void members_close(struct members *members);
/* Collective over t->whole, when an interval begins: w->member, renew, index, places and
 * members. Of one that goes on from what a job kept of it, nobody is asked for others. */
int members_next(struct ls_trainer *t, struct ls_error *error);
/* Local, on rank 0. Records of the interval that begins behind w->begin, of which all that the job
 * kept of it is there already: who took part, who of these was lost, and who renewed. */
int members_lose(struct ls_trainer *t, const bool *in, const bool *lost, const bool *renewed,
                 struct ls_error *error);
/* Local. Whether the order of another run is followed: nobody is asked, and nothing written. */
bool members_follows(const struct ls_trainer *t);

#endif
