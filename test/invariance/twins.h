/* Faults put under a run: each breaks the law of sums in one way and must show. */
#ifndef INVARIANCE_TWINS_H
#define INVARIANCE_TWINS_H

#include <lockstep/plan.h>

struct twin {
    const char *name;
    const char *keys[6]; /* the layout that it needs, on the first recipe */
};
enum { TWINS = 7 };
extern const struct twin twins[TWINS];
/* The fault that is on; -1: none. Set while no rank runs. */
void twin_set(int which);

#endif
