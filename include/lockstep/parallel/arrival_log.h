/* lockstep/parallel/arrival_log.h - the order in which gradients arrived, as a file.
 *
 * JSON lines: one that says whose order it is, then one for each event, written as it happens.
 *
 *     {"arrivals": 1, "recipe": "7c0d...", "workers": 4, "bound": 2}
 *     {"event": 0, "worker": 3, "clock": 0}
 *     {"event": 1, "worker": 0, "clock": 0}
 *
 *     {"event": 2, "left": 3}
 *     {"event": 2, "worker": 0, "clock": 1}
 *     {"event": 3, "renewed": 3}
 *
 * Worker 3 died before event 2, and began anew behind it. At one event who is renewed comes first.
 *
 * 1 is the version of the format, bound -1 a free one. Fields that are not known are ignored. The
 * log is the only input of a run that the recipe does not give: read back, it gives the same order
 * to any number of ranks (lockstep/parallel/arrivals.h).
 *
 * A last line without its end is dropped: its event was not added, or will be again. All else that
 * is not so is an error that names the line: another recipe or rule, an event that is missing or
 * out of order, a worker that is not there, a clock that is not the worker's next, a push of a
 * worker that waits. Everything here is Local. */
#ifndef LOCKSTEP_PARALLEL_ARRIVAL_LOG_H
#define LOCKSTEP_PARALLEL_ARRIVAL_LOG_H

#include <lockstep/parallel/arrivals.h>

LS_C_BEGIN

/* *out = the order of the log at path, for a run with this recipe (its digest, or another short
 * text) and rule. LS_EDATA names the line, LS_ECONFIG a log of another recipe or rule; LS_EIO,
 * LS_ENOMEM. */
int ls_arrivals_of_log(const char *path, const char *recipe, struct ls_arrival_rule rule,
                       struct ls_arrivals **out, struct ls_error *error);

struct ls_arrival_log;
/* Opens the log at path to go on at `event`: it is made if it is not there, and what it has from
 * that event on, which a run that goes on from an older state does again, is cut off; who was
 * renewed behind the event before it stays. Errors as
 * above, and LS_EDATA if it has fewer events. */
int ls_arrival_log_open(const char *path, const char *recipe, struct ls_arrival_rule rule,
                        int64_t event, struct ls_arrival_log **out, struct ls_error *error);
/* Appends in one piece: readers see whole lines. In the order of events. Call it before the
 * gradient is added: what is in no log cannot be done again. */
int ls_arrival_log_add(struct ls_arrival_log *log, const struct ls_arrival *arrival,
                       struct ls_error *error);
/* That worker leaves, or is renewed, where the log stands; and those that are or do there in
 * order. */
int ls_arrival_log_change(struct ls_arrival_log *log, enum ls_arrival_change change, int worker,
                          struct ls_error *error);
int ls_arrival_log_copy(struct ls_arrival_log *log, const struct ls_arrivals *order,
                        enum ls_arrival_change change, struct ls_error *error);
/* log may be NULL. */
int ls_arrival_log_close(struct ls_arrival_log *log, struct ls_error *error);

LS_C_END
#endif
