/* What the two halves of Megatron's translation share. */
#ifndef CONVERT_MEGATRON_H
#define CONVERT_MEGATRON_H

#include "convert/convert_private.h"

#include <lockstep/parallel.h>

/* Numbers that several arguments give, for those that depend on them; 0 = unknown. */
struct megatron {
    int64_t layers, tp, pp, cp, dp;
    int64_t batch; /* sequences of a step */
    int64_t steps; /* of the run */
    bool rampup;
    struct ls_ramp ramp; /* in sequences; full 0: not known */
};

void megatron_model(struct convert *c);
void megatron_layout(struct convert *c, struct megatron *m);
void megatron_memory(struct convert *c, const struct megatron *m);

#endif
