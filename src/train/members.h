/* Private to train: which workers take part in which outer step (async.mode = diloco).
 *
 * At first all do. A change is asked for by a file, RUN/members.wanted ("0-2,5", "all"), which the
 * first rank looks for at each meeting; it holds from the next interval on. Which workers take part
 * is the only input of a run that the recipe does not give. RUN/members has it, a line a change:
 *
 *     {"outer_step": 12, "workers": "0-2"}
 *
 * A run that goes on, an audit, and a run with async.follow read it.
 *
 * A worker that does not take part consumes no samples; its place in the mean is taken by nobody.
 * One that comes again is new: it has the global parameters, and an optimizer that has seen
 * nothing. So nothing of it need be kept. */
#ifndef TRAIN_MEMBERS_H
#define TRAIN_MEMBERS_H

#include "train/workers_private.h"

/* Local. */
int members_open(struct workers *workers, struct ls_error *error);
void members_close(struct members *members);
/* Collective over t->whole, when an interval begins: w->member, index and members. */
int members_next(struct ls_trainer *t, struct ls_error *error);
/* Local. Whether the order of another run is followed: nobody is asked, and nothing written. */
bool members_follows(const struct ls_trainer *t);

/* Local. in[workers] of a text such as "0-2,5" or "all"; false: it is none, or names nobody. */
bool members_parse(const char *text, int workers, bool *in);
void members_text(const bool *in, int workers, char *text, size_t bytes);

#endif
