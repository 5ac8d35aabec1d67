/* How far may numerics.mode fast lie from the default? It adds the same numbers in another order,
 * so no fixed number says it: the distance depends on the instruction set, on the type, and in
 * bf16 it grows from step to step, since a sum that falls on the other side of a rounding moves a
 * value by 2^-9 and all later ones with it. The bound is measured, in the run that it is for: the
 * default is trained in other orders of its own (numerics.tp_tiles, seq_tiles and leaf_sequences
 * say where its sums are cut), on the same machine, from the same parameters and data. Each of
 * these is as right as the default, and the default itself is held to float64 by
 * test/nn/test_parity.c. fast is one more order. So it may lie from the default
 *
 *   gradients of the first step: |g_fast - g| <= FACTOR max |g_order - g|, for every tensor and
 *       for all of them together (Euclidean lengths: sums over thousands of elements, which hardly
 *       vary from order to order). Nothing has grown yet, so this is the sharp one.
 *   loss of step t: FACTOR max |loss_order - loss|, over orders and over steps up to t. This one
 *       has the growth in it.
 *
 * FACTOR is 4: chains of fast are at most as long as the longest of the orders (one tile, one
 * leaf), so its errors have the same size; what is left is chance. What is measured is printed, and
 * was at most 1.6 so far. Floors are the half units in the last place of float32 in which both
 * sides are kept. Broken twins show that the bound finds what is wrong. */
#include "fast.h"
#include "../support/checkpoints.h"
#include "../support/extent.h"
#include "recipes.h"
#include "twins.h"

#include <lockstep/ckpt.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS = 5, ORDERS = 4, TENSORS_MAX = 128 };
static const double FACTOR = 4, unit = 0x1p-24;

typedef const char *keys_t[KEYS];
static const keys_t orders[ORDERS] = {
    {"numerics.tp_tiles=1"},
    {"numerics.tp_tiles=2"},
    {"numerics.seq_tiles=1", "numerics.leaf_sequences=4"},
    {"numerics.tp_tiles=1", "numerics.seq_tiles=1", "numerics.leaf_sequences=4"},
};
#define FAST "numerics.mode=fast"
static const keys_t layouts[] = {
    {FAST},
    {FAST, "parallel.tp=4", "parallel.sp=true"},
    {FAST, "parallel.tp=2", "parallel.pp=2", "parallel.dp_shard=2"},
    {FAST, "parallel.dp=2", "batch.micro=2", "parallel.threads=2"},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };
static const struct {
    int twin;
    keys_t keys;
} broken[] = {{TWIN_BUCKET_DROPPED, {FAST, "parallel.dp_replicate=2"}},
              {TWIN_COUNTED_TWICE, {FAST, "batch.micro=2"}},
              {TWIN_SCALED, {FAST}},
              {TWIN_LEAF_MISSING, {FAST, "batch.micro=2"}}};
enum { BROKEN = sizeof broken / sizeof *broken };

/* In `make check` all steps are as small as the first. */
static const char *const small[] = {"batch.rampup_start=0", "batch.rampup_increment=0",
                                    "batch.rampup_samples=0", "batch.global=4"};

/* ---- one run --------------------------------------------------------------------------------- */

struct course {
    struct ls_config config;
    int64_t steps;
    double loss[RECIPE_STEPS_MAX], norm;
    struct ls_checkpoint *moments; /* of the first step: a number x clipped gradient */
};

static int course_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct course *course = user;
    struct ls_trainer *t;
    struct ls_step_report report;
    int status = ls_trainer_new(&course->config, world, NULL, &t, error);
    for (int64_t i = 0; i < course->steps && !status; i++) {
        status = ls_trainer_step(t, &report, error);
        if (!status && i == 0)
            status = ls_trainer_save(t, error);
        if (!status && ls_comm_rank(world) == 0)
            course->loss[i] = (double)report.loss;
        if (!status && ls_comm_rank(world) == 0 && i == 0)
            course->norm = report.grad_norm;
    }
    ls_trainer_free(t);
    return status;
}

/* False where the trainer itself found a fault: replicas that differ. Another failure is the
 * test's own. */
static bool course_run(struct course *course, const char *folder, int recipe, const keys_t keys,
                       int64_t steps)
{
    static int runs;
    char out[LS_CONFIG_TEXT_BYTES], path[LS_CONFIG_TEXT_BYTES + 64];
    struct ls_error error = {0};
    snprintf(out, sizeof out, "train.out=%s/fast-%d", folder, runs++);
    recipe_config(recipe, folder, &course->config);
    course->steps = steps;
    int status = ls_config_set(&course->config, out, &error);
    if (!status) /* of fp16: no step is skipped, the first least of all */
        status = ls_config_set(&course->config, "numerics.initial_scale_power=10", &error);
    if (!status) /* gradients are read from the first step's moments */
        status = ls_config_set(&course->config, "optim.moments=fp32", &error);
    for (int k = 0; k < 4 && !check_all() && !status; k++)
        status = ls_config_set(&course->config, small[k], &error);
    for (int k = 0; k < KEYS && keys && keys[k] && !status; k++)
        status = ls_config_set(&course->config, keys[k], &error);
    if (!status)
        status = ls_train_resolve(&course->config, &error);
    if (!status)
        status = ls_world_run((int)ls_config_ranks(&course->config), course_body, course, &error);
    snprintf(path, sizeof path, "%s/checkpoints/step-%08d", course->config.train.out, 1);
    if (!status)
        status = ls_checkpoint_open(&course->moments, path, &error);
    if (status && status != LS_ENUMERIC)
        exit(fprintf(stderr, "fast: %s, %s: %s\n", recipe_names[recipe], keys ? keys[0] : "default",
                     error.text) > 0);
    return status == LS_OK;
}

/* ---- distances ------------------------------------------------------------------------------- */

/* From the default, relative to it. The last entry is of all tensors together. */
struct distance {
    int count;
    double tensor[TENSORS_MAX];
    double loss[RECIPE_STEPS_MAX];
};

/* What the moments are divided by to have the gradients, but for one factor that all have. */
static double clip_of(const struct course *course)
{
    struct ls_optim_config clip = {.clip = (float)course->config.optim.clip};
    return (double)ls_clip_factor(&clip, course->norm);
}

static void distance_of(const struct course *a, const struct course *base, struct distance *d)
{
    double all = 0, all_norm = 0, clip_a = clip_of(a), clip_base = clip_of(base);
    const struct ls_stored_tensor *list;
    size_t count = ls_checkpoint_tensors(base->moments, LS_CKPT_OPTIMIZER, &list);
    d->count = 0;
    for (size_t i = 0; i < count; i++) {
        const struct ls_stored_tensor *want = &list[i];
        if (strncmp(want->name, "exp_avg.", strlen("exp_avg.")) != 0 &&
            strncmp(want->name, "momentum_buffer.", strlen("momentum_buffer.")) != 0)
            continue;
        float *x = checkpoint_tensor(a->moments, LS_CKPT_OPTIMIZER, want->name, NULL);
        float *y = checkpoint_tensor(base->moments, LS_CKPT_OPTIMIZER, want->name, NULL);
        double square = 0, norm = 0;
        for (size_t j = 0; j < stored_tensor_bytes(want) / sizeof *y; j++) {
            double value = (double)y[j] / clip_base, off = (double)x[j] / clip_a - value;
            square += off * off;
            norm += value * value;
        }
        d->tensor[d->count++] = square == 0 ? 0 : sqrt(square / norm); /* both may be zeros */
        free(x);
        free(y);
        all += square;
        all_norm += norm;
    }
    d->tensor[d->count++] = sqrt(all / all_norm);
    for (int64_t t = 0; t < a->steps; t++)
        d->loss[t] = fabs(a->loss[t] - base->loss[t]) / base->loss[t];
}

/* reach = the farthest of the orders: a tensor's, and a loss's up to each step. */
static void reach_add(struct distance *reach, const struct distance *d, int64_t steps)
{
    reach->count = d->count;
    for (int i = 0; i < d->count; i++)
        reach->tensor[i] = fmax(reach->tensor[i], fmax(d->tensor[i], 2 * unit));
    for (int64_t t = 0; t < steps; t++)
        reach->loss[t] =
            fmax(fmax(reach->loss[t], t > 0 ? reach->loss[t - 1] : 2 * unit), d->loss[t]);
}

/* The largest quotient of a distance and its reach; not a number counts as beyond all bounds. */
static double beyond(const struct distance *d, const struct distance *reach, int64_t steps)
{
    double worst = 0;
    for (int i = 0; i < d->count; i++)
        if (!(d->tensor[i] <= worst * reach->tensor[i]))
            worst = isfinite(d->tensor[i]) ? d->tensor[i] / reach->tensor[i] : INFINITY;
    for (int64_t t = 0; t < steps; t++)
        if (!(d->loss[t] <= worst * reach->loss[t]))
            worst = isfinite(d->loss[t]) ? d->loss[t] / reach->loss[t] : INFINITY;
    return worst;
}

/* ---- the check ------------------------------------------------------------------------------- */

/* How far one run lies from base, in units of reach. */
static double course_beyond(const char *folder, int recipe, const keys_t keys, int64_t steps,
                            const struct course *base, const struct distance *reach)
{
    static struct course course;
    struct distance d;
    if (!course_run(&course, folder, recipe, keys, steps))
        return INFINITY;
    distance_of(&course, base, &d);
    ls_checkpoint_close(course.moments);
    return beyond(&d, reach, steps);
}

/* The broken twins of a recipe that passed for another order of sums. */
static int broken_check(const char *folder, int recipe, const struct course *base,
                        const struct distance *reach)
{
    double nearest = INFINITY;
    int missed = 0;
    for (int i = 0; i < BROKEN; i++) {
        twin_set(broken[i].twin);
        double far = course_beyond(folder, recipe, broken[i].keys, 1, base, reach);
        twin_set(-1);
        nearest = fmin(nearest, far);
        missed += far <= FACTOR;
        if (far <= FACTOR)
            printf("%s: broken twin of fast (%s): MISSED, only %.2f times as far\n",
                   recipe_names[recipe], twins[broken[i].twin].name, far);
    }
    if (missed == 0)
        printf("%s: its %d broken twins of fast lie at least %.0f times as far: caught\n",
               recipe_names[recipe], BROKEN, nearest);
    return missed;
}

static int recipe_check(const char *folder, int recipe, int64_t steps)
{
    static struct course base, order;
    struct distance reach = {0}, d;
    double worst = 0;
    if (!course_run(&base, folder, recipe, NULL, steps))
        return 1;
    for (int i = 0; i < ORDERS; i++) {
        if (!course_run(&order, folder, recipe, orders[i], steps))
            return 1;
        distance_of(&order, &base, &d);
        ls_checkpoint_close(order.moments);
        reach_add(&reach, &d, steps);
    }
    for (int i = 0; i < LAYOUTS; i++)
        worst = fmax(worst, course_beyond(folder, recipe, layouts[i], steps, &base, &reach));
    printf("%s: fast lies at most %.2f times as far from the default as other orders of its sums "
           "(gradients %.1e, losses of %ld steps %.1e); allowed are %g\n",
           recipe_names[recipe], worst, reach.tensor[reach.count - 1], (long)steps,
           reach.loss[steps - 1], FACTOR);
    int missed = broken_check(folder, recipe, &base, &reach);
    ls_checkpoint_close(base.moments);
    return !(worst <= FACTOR) || missed;
}

int fast_check(const char *folder, int64_t steps)
{
    int failed = 0;
    /* Of `make check`: fp32 alone. */
    for (int recipe = 0; recipe < RECIPES; recipe += check_every(RECIPES, RECIPES))
        failed += recipe_check(folder, recipe, steps);
    return failed;
}
