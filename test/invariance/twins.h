/* Faults put under a run: each breaks the law of sums in one way and must show. */
#ifndef INVARIANCE_TWINS_H
#define INVARIANCE_TWINS_H

struct twin {
    const char *name;
    int recipe;
    const char *keys[6]; /* the layout that it needs */
};
enum { TWINS = 8 };
extern const struct twin twins[TWINS];
/* The fault that is on; -1: none. Set while no rank runs. */
void twin_set(int which);

#endif
