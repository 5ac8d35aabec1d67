/* lockstep/optim/loss_scale.h - what the loss is multiplied by, so that gradients fit into fp16.
 *
 * Source: Micikevicius et al. 2018, "Mixed Precision Training". The rule and the names of its
 * parameters are DeepSpeed's (DynamicLossScaler): halve at a step whose gradient is not finite,
 * double after `window` steps in a row that were. With hysteresis 1 it is the rule of PyTorch's
 * GradScaler (growth_factor 2, backoff_factor 0.5, growth_interval = window). DeepSpeed 0.19
 * doubles one step later.
 *
 * Everything is Local arithmetic on plain values: ranks that see the same steps have the same
 * scale. */
#ifndef LOCKSTEP_OPTIM_LOSS_SCALE_H
#define LOCKSTEP_OPTIM_LOSS_SCALE_H

#include <stdbool.h>
#include <stdint.h>

struct ls_loss_scale_config {
    bool dynamic;       /* false: initial for ever */
    double initial;     /* > 0; dynamic: a power of two, so that scaling rounds nothing */
    int64_t window;     /* >= 1 */
    int64_t hysteresis; /* >= 1: halve the scale after this many non-finite steps */
    bool consecutive;   /* count those afresh after every finite step, not after each doubling */
    double least;       /* never halved below it */
};

/* Part of a run's state. */
struct ls_loss_scale {
    double scale;
    int64_t good_steps; /* since the last one that was not finite, or the first */
    int64_t hysteresis; /* steps that are not finite until the one that halves, itself included */
};
struct ls_loss_scale ls_loss_scale_begin(const struct ls_loss_scale_config *config);

/* After a step whose loss and gradient were finite, or not. False if the scale should fall and
 * is at its least already (DeepSpeed ends the run there). Without dynamic nothing changes, and what
 * is not finite gives false. */
bool ls_loss_scale_update(const struct ls_loss_scale_config *config, bool finite,
                          struct ls_loss_scale *scale);

#endif
