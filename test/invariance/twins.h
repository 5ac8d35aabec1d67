/* Faults put under a run: each breaks the law of sums in one way and must show. */
#ifndef TEST_INVARIANCE_TWINS_H
#define TEST_INVARIANCE_TWINS_H

struct twin {
    const char *name;
    int recipe;
    const char *keys[6]; /* the layout that it needs */
};
enum {
    TWIN_RANK_ORDER,
    TWIN_BUCKET_DROPPED,
    TWIN_COUNTED_TWICE,
    TWIN_TIED_ONCE,
    TWIN_NORM_LOCAL,
    TWIN_ROUNDED_TWICE,
    TWIN_ROW_OFF,
    TWIN_ALL_ALIKE,
    TWIN_SCALED,
    TWIN_LEAF_MISSING,
    TWIN_MASK_ANEW,
    TWIN_SCALE_KEPT,
    TWIN_OWN_INDEX,
    TWIN_CHAIN_ANEW,
    TWIN_PART_ALONE,
    TWIN_PARTS_BEHIND,
    TWIN_MOMENT_STALE,
    TWIN_COUNTED_ALONE,
    TWIN_BLOCKS_OFF,
    TWIN_BLOCKS_TURNED,
    TWIN_BLOCKS_FINER,
    TWINS
};
extern const struct twin twins[TWINS];
/* The fault that is on; -1: none. Set while no rank runs. */
void twin_set(int which);

#endif
