/* Private to optim: slices that lie in a tier. */
#ifndef OPTIM_SLICES_H
#define OPTIM_SLICES_H

#include <lockstep/optim.h>

typedef int slices_work(void *user, const struct ls_window *window, struct ls_error *error);
/* A window's index is its slice's; its lane i is the slice's array i, the one behind them the
 * gradient, each where it lies in a tier. */
enum { LANE_GRADIENT = LS_OPTIM_ARRAYS };
/* Whether anything of the slice lies in a tier. */
static inline bool slices_passes(const struct ls_slice *slice)
{
    return slice->away || slice->part->gradient_away;
}
/* Where the slice's copy that is computed with is: NULL if the master is that. */
static inline int slices_compute(const struct ls_optimizer *optimizer, const struct ls_slice *slice,
                                 int i, void **compute, struct ls_error *error)
{
    *compute = slice->compute;
    return slice->compute_away ? optimizer->places.open(optimizer->places.user, i, compute, error)
                               : LS_OK;
}
/* The window's elements on the device. */
void *slices_array(const struct ls_optimizer *optimizer, const struct ls_slice *slice,
                   const struct ls_window *window, int array);
const float *slices_gradient(const struct ls_slice *slice, const struct ls_window *window,
                             const float *gradient);

/* The copy that slice i is computed with, made anew of its master. */
int slices_round(const struct ls_optimizer *optimizer, struct ls_ops *ops,
                 const struct ls_slice *slice, int i, struct ls_error *error);

/* Works on all slices of which something lies in a tier, but frozen and Muon's hidden ones, window
 * by window; what work leaves of masters and states is kept. */
int slices_pass(const struct ls_optimizer *optimizer, const struct ls_slice *slices, int count,
                slices_work *work, void *user, struct ls_error *error);

#endif
