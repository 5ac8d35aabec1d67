/* The admissible layout nearest to one that was refused: few keys changed, by small factors. */
#include "plan_private.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What may be changed besides the axes, each alone or with others. */
enum {
    FIX_MICRO = 1,    /* a leaf, a power of two next to what was asked, or 0 */
    FIX_SCHEDULE = 2, /* 1f1b */
    FIX_SPLIT = 4,    /* balanced */
    FIX_SP = 8,       /* auto */
    FIX_PERSIST = 16, /* 0 */
    FIX_CHUNKS = 32,  /* what the schedule wants */
    FIXES = 64
};

/* A layout is near that costs no more; and how many are looked at. */
enum { COST_MAX = 16, DIVISORS_MAX = 1536, LOOKS_MAX = 2000000, ADMIT_MAX = 100000 };

struct search {
    const struct ls_layout_request *request;
    const struct ls_schedule *file; /* the table of the request's file */
    struct ls_layout_keys keys;     /* of the candidate */
    struct ls_layout layout;        /* room for admitting it */
    int64_t asked[LS_AXES];
    int64_t best[LS_AXES];
    int best_fixes;
    int64_t micro, best_micro; /* of the candidate, where FIX_MICRO changes it */
    double best_cost;
    int64_t looked, tried;
};

/* Fixes that would change nothing are not tried. */
static int useful_fixes(const struct ls_layout_request *request)
{
    const struct ls_layout_keys *keys = request->keys;
    return (request->micro_sequences ? FIX_MICRO : 0) |
           (keys->schedule != LS_SCHEDULE_1F1B ? FIX_SCHEDULE : 0) |
           (*keys->split ? FIX_SPLIT : 0) | (keys->sp == 1 ? FIX_SP : 0) |
           (keys->persist ? FIX_PERSIST : 0) | (keys->chunks ? FIX_CHUNKS : 0);
}

static double axis_cost(const struct search *search, int axis, int64_t size)
{
    int64_t asked = search->asked[axis];
    return size == asked ? 0 : 1 + fabs(log2((double)size / (double)asked));
}

static double axes_cost(const struct search *search, const int64_t size[LS_AXES])
{
    double cost = 0;
    for (int axis = 0; axis < LS_AXES; axis++)
        cost += axis_cost(search, axis, size[axis]);
    return cost;
}

static bool admits_with(struct search *search, const int64_t size[LS_AXES], int fixes)
{
    struct ls_layout_request request = *search->request;
    struct ls_layout_keys *keys = &search->keys;
    *keys = *search->request->keys;
    request.keys = keys;
    keys->pp = size[LS_AXIS_PP];
    keys->dp = 0;
    keys->dp_replicate = size[LS_AXIS_DP_REPLICATE];
    keys->dp_shard = size[LS_AXIS_DP_SHARD];
    keys->cp = size[LS_AXIS_CP];
    keys->tp = size[LS_AXIS_TP];
    if (fixes & FIX_MICRO)
        request.micro_sequences = search->micro;
    if (fixes & FIX_SCHEDULE) {
        keys->schedule = LS_SCHEDULE_1F1B;
        keys->schedule_file[0] = '\0';
    }
    if (fixes & FIX_CHUNKS)
        keys->chunks = 0;
    if (fixes & FIX_SPLIT)
        keys->split[0] = '\0';
    if (fixes & FIX_SP)
        keys->sp = LS_LAYOUT_AUTO;
    if (fixes & FIX_PERSIST)
        keys->persist = 0;
    search->tried++;
    return plan_admit(&request, search->file, &search->layout, NULL) == LS_OK;
}

static bool admits(struct search *search, const int64_t size[LS_AXES], int fixes)
{
    int64_t leaf = search->request->numerics.leaf_sequences, below = 1;
    if (!(fixes & FIX_MICRO))
        return admits_with(search, size, fixes);
    while (2 * below <= search->request->micro_sequences)
        below *= 2;
    const int64_t near[] = {leaf, below, 2 * below, 0};
    for (int i = 0; i < 4; i++) {
        search->micro = near[i];
        if (admits_with(search, size, fixes))
            return true;
    }
    return false;
}

/* Tries these axes with every set of fixes that would be nearer than the best so far. */
static void consider(struct search *search, const int64_t size[LS_AXES])
{
    double base = axes_cost(search, size);
    int useful = useful_fixes(search->request);
    search->looked++;
    for (int fixes = 0; fixes < FIXES; fixes++) {
        double cost = base + 1.5 * __builtin_popcount((unsigned)fixes);
        if ((fixes & ~useful) || cost > COST_MAX || cost >= search->best_cost ||
            search->tried >= ADMIT_MAX)
            continue;
        if (!admits(search, size, fixes))
            continue;
        memcpy(search->best, size, sizeof search->best);
        search->best_fixes = fixes;
        search->best_micro = search->micro;
        search->best_cost = cost;
    }
}

/* Gives axis and those after it all sizes whose product is ranks, and that are near. */
static void axes_fill(struct search *search, const int64_t *divisor, int count, int axis,
                      int64_t ranks, double cost, int64_t size[LS_AXES])
{
    if (axis == LS_AXES - 1) {
        size[axis] = ranks;
        consider(search, size);
        return;
    }
    for (int i = 0; i < count && search->looked < LOOKS_MAX; i++) {
        if (ranks % divisor[i])
            continue;
        double with = cost + axis_cost(search, axis, divisor[i]);
        if (with > COST_MAX || with >= search->best_cost)
            continue;
        size[axis] = divisor[i];
        axes_fill(search, divisor, count, axis + 1, ranks / divisor[i], with, size);
    }
}

/* All ways to write ranks as a product of the axes. */
static void same_ranks(struct search *search, int64_t ranks)
{
    int64_t divisor[DIVISORS_MAX], size[LS_AXES];
    int count = 0;
    for (int64_t d = 1; d * d <= ranks; d++)
        if (ranks % d == 0 && count + 2 <= DIVISORS_MAX) {
            divisor[count++] = d;
            if (d * d != ranks)
                divisor[count++] = ranks / d;
        }
    axes_fill(search, divisor, count, 0, ranks, 0, size);
}

/* One axis with another size, or none. */
static void one_axis(struct search *search)
{
    enum { FACTOR = 2, SIZES_MAX = 4096 };
    int64_t size[LS_AXES];
    memcpy(size, search->asked, sizeof size);
    consider(search, size);
    for (int axis = 0; axis < LS_AXES; axis++) {
        int64_t most = ls_min(search->asked[axis] * FACTOR, SIZES_MAX);
        for (int64_t n = 1; n <= most; n++) {
            size[axis] = n;
            consider(search, size);
        }
        size[axis] = search->asked[axis];
    }
}

static void describe(const struct search *search, char *text, size_t bytes)
{
    const struct ls_layout_keys *keys = search->request->keys;
    int64_t dp_axis = keys->zero ? LS_AXIS_DP_SHARD : LS_AXIS_DP_REPLICATE;
    int64_t dp = search->best[LS_AXIS_DP_REPLICATE] * search->best[LS_AXIS_DP_SHARD];
    /* parallel.dp alone says it all, or it has to agree with the other two. */
    bool joint =
        keys->dp && keys->dp_replicate == 0 && keys->dp_shard == 0 && search->best[dp_axis] == dp;
    size_t used = 0;
    text[0] = '\0';
    for (int axis = 0; axis < LS_AXES && used < bytes; axis++)
        if (search->best[axis] != search->asked[axis])
            used += (size_t)snprintf(
                text + used, bytes - used, "%sparallel.%s = %ld", used ? ", " : "",
                joint && axis == dp_axis ? "dp" : ls_axis_name((enum ls_layout_axis)axis),
                (long)search->best[axis]);
    if (keys->dp && keys->dp != dp && !joint && used < bytes)
        used += (size_t)snprintf(text + used, bytes - used, "%sparallel.dp = %ld", used ? ", " : "",
                                 (long)dp);
    if ((search->best_fixes & FIX_SCHEDULE) && keys->schedule == LS_LAYOUT_CSV && used < bytes)
        used += (size_t)snprintf(text + used, bytes - used, "%sparallel.schedule_file = \"\"",
                                 used ? ", " : "");
    char micro[48];
    snprintf(micro, sizeof micro, "batch.micro = %ld", (long)search->best_micro);
    const char *const fixes[] = {micro,
                                 "parallel.schedule = 1f1b",
                                 "parallel.split = \"\"",
                                 "parallel.sp = auto",
                                 "parallel.persist = 0",
                                 "parallel.chunks = 0"};
    for (int i = 0; 1 << i < FIXES && used < bytes; i++)
        if (search->best_fixes & 1 << i)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", fixes[i]);
}

bool plan_nearest(const struct ls_layout_request *request, const struct ls_schedule *file,
                  char *text, size_t bytes)
{
    struct search *search = malloc(sizeof *search);
    if (!search)
        return false;
    *search = (struct search){.request = request, .file = file, .best_cost = HUGE_VAL};
    int64_t ranks = request->world;
    bool found = false;
    if (plan_axes(request->keys, search->asked, NULL)) { /* dp follows the other two */
        search->keys = *request->keys;
        search->keys.dp = 0;
        plan_axes(&search->keys, search->asked, NULL);
    }
    double product = 1;
    for (int axis = 0; axis < LS_AXES; axis++)
        product *= (double)search->asked[axis];
    if (ranks == 0 && product < 1 << 30) {
        one_axis(search);
        ranks = (int64_t)product;
    }
    if (ranks > 0)
        same_ranks(search, ranks);
    found = search->best_cost < HUGE_VAL;
    if (found)
        describe(search, text, bytes);
    free(search);
    return found;
}
