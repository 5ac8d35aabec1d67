/* The rate of this machine that the environment gives. */
#include <lockstep/base/figure.h>
#include <lockstep/train/peak.h>

#include <stdlib.h>

int ls_peak_given(double *flops, struct ls_error *error)
{
    const char *given = getenv("LOCKSTEP_PEAK_FLOPS");
    *flops = 0;
    if (!given || !*given)
        return LS_OK;
    if (ls_figure_read(LS_FIGURE_FLOPS, given, flops) && *flops > 0)
        return LS_OK;
    return ls_error_set(error, LS_ECONFIG,
                        "LOCKSTEP_PEAK_FLOPS = %s: expected the rate of this machine in FLOP/s, as "
                        "in 2e11 or 200G; unset it to have the rate measured",
                        given);
}
