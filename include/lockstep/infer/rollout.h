/* lockstep/infer/rollout.h - a runner in another layout of the same ranks, over the weights of one
 * that trains.
 *
 * A model that trains in ZeRO 3, tp or pp may generate faster in data parallel, or the other way
 * around. A rollout is a second runner of the same ranks, in a layout of its own. Before it works,
 * ls_rollout_refresh brings it the weights of this moment, in memory and bit for bit:
 *
 *     ls_rollout_new(runner, &config, &rollout, &error)    config of ls_config_rollout
 *     after steps:
 *         ls_rollout_refresh
 *         ls_runner_continue(ls_rollout_runner(rollout), ...), ls_runner_score
 *     ls_rollout_free
 *
 * Layer by layer the training runner makes its weights available, which ZeRO 3 gathers and tiers
 * read; then each rank gets the rows and columns that it lacks from the ranks of its own copy of
 * the model, those that differ from it in pp and tp alone. Nothing passes between copies, and
 * nothing is summed or rounded. A layer that both layouts place alike on a rank is not copied, if
 * training has it whole in one place: then the rollout reads the trainer's memory.
 *
 * Texts and log-probabilities have the bits of the training layout (lockstep/infer.h). */
#ifndef LOCKSTEP_INFER_ROLLOUT_H
#define LOCKSTEP_INFER_ROLLOUT_H

#include <lockstep/infer.h>

LS_C_BEGIN

struct ls_rollout;
/* Collective over the world of `from`, which is borrowed. Takes the memory; there are no weights
 * yet. LS_ENOMEM; errors of ls_config_layout for config. */
int ls_rollout_new(struct ls_runner *from, const struct ls_config *config, struct ls_rollout **out,
                   struct ls_error *error);
/* Local (over MPI: Collective). NULL is allowed. */
void ls_rollout_free(struct ls_rollout *rollout);
/* Collective. The weights become those of `from`. They are valid until these change. Parameters
 * that are frozen are brought the first time alone. If weights are not to be had on one rank, all
 * get its error, and the next refresh brings all of them. */
int ls_rollout_refresh(struct ls_rollout *rollout, struct ls_error *error);
/* Local, on every rank alike. Frozen parameters of `from` got other values, by other means than
 * steps: the next refresh brings them too. NULL is allowed. */
void ls_rollout_forget(struct ls_rollout *rollout);
/* Local. Interrupted as `from` was when it was last refreshed. */
struct ls_runner *ls_rollout_runner(struct ls_rollout *rollout);

/* Local, pure arithmetic. bytes[count]: what ls_rollout_new takes on ranks first, first + 1, ...
 * for weights, and for what they pass through: 0 if group rollout of config is not set, or not
 * admitted. layout is config's. LS_ENOMEM. */
int ls_rollout_bytes(const struct ls_config *config, const struct ls_layout *layout, int64_t first,
                     int64_t count, size_t *bytes, struct ls_error *error);

LS_C_END
#endif
