/* An outer step by its definition (doc/async.md), in plain loops beside a run of one rank: when
 * deltas leave, the global parameters, the workers' after the step, and which samples each worker
 * takes, all bit for bit, for every length of an interval, delay and count of fragments in small.
 * AdamW is computed in double, and compared within the rounding of float.
 *
 * Broken twins, each of which one of these checks must find: deltas of the interval before, deltas
 * that leave a step late, a sum in another order of workers, a sum in the order of arrival, an
 * outer momentum that a resumption forgets, a worker that takes the samples of another, an AdamW
 * without the correction of its first moments. */
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "tokens.h"
#include "train/workers_private.h"
#include "workers_run.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum { HONEST, STALE, LATE, REVERSED, ARRIVAL, FORGOTTEN, OTHERS_SAMPLES, UNCORRECTED } twin;

static _Thread_local struct ls_trainer *trainer; /* of this rank */

/* ---- who takes part -------------------------------------------------------------------------- */

/* Of four workers, by the interval from 0 on; the last one holds on. NULL: all do. */
static const char *const *membership;

static bool takes_part(int interval, int worker)
{
    int i = 0;
    while (membership && i < interval && membership[i + 1])
        i++;
    return !membership || strchr(membership[i], '0' + worker);
}
/* Members below a worker; of the number of workers: all of them. */
static int members_below(int interval, int worker)
{
    int count = 0;
    for (int i = 0; i < worker; i++)
        count += takes_part(interval, i);
    return count;
}

/* As RUN/members has it, for runs with async.follow. */
static void membership_write(const char *directory)
{
    char lines[1024];
    size_t used = 0;
    for (int i = 0; membership[i]; i++) {
        const char *in = membership[i];
        used += (size_t)snprintf(lines + used, sizeof lines - used,
                                 "{\"outer_step\": %d, \"workers\": \"%c", i + 1, in[0]);
        for (const char *more = in + 1; *more; more++)
            used += (size_t)snprintf(lines + used, sizeof lines - used, ",%c", *more);
        used += (size_t)snprintf(lines + used, sizeof lines - used, "\"}\n");
    }
    scratch_write(scratch_path(directory, "members"), lines, used);
}

/* ---- the reference --------------------------------------------------------------------------- */

enum { PARAMS_MAX = 64, WORKERS = 4 };

/* What it knows of a run, from its first weights on. */
static struct reference {
    bool runs;
    int meeting; /* the next one, from 0 */
    int params, fragments;
    int64_t count[PARAMS_MAX];
    int fragment[PARAMS_MAX];
    float *global[PARAMS_MAX], *momentum[PARAMS_MAX];
    double *moments[PARAMS_MAX][2];    /* of AdamW */
    float *sum[PARAMS_MAX];            /* of deltas */
    float *sent[PARAMS_MAX][WORKERS];  /* who they are of, async.delay steps before */
    float *local[PARAMS_MAX][WORKERS]; /* as they must be after the outer step */
    char wrong[200];
} reference;

static float *copied(const float *values, int64_t count)
{
    float *copy = malloc((size_t)count * sizeof *copy);
    assert_non_null(copy);
    return memcpy(copy, values, (size_t)count * sizeof *copy);
}

/* The block of "transformer.h.3.attn..." and "model.layers.3...", or -1. */
static int block_of(const char *name)
{
    const char *digit = strpbrk(name, "0123456789");
    return digit && digit[-1] == '.' ? atoi(digit) : -1;
}

static void reference_begin(struct ls_trainer *t)
{
    const struct ls_state *outer = workers_outer(t);
    int64_t layers = t->config.model.layers;
    reference = (struct reference){.runs = true, .params = outer->params->count};
    reference.fragments = (int)t->config.async.fragments;
    assert_true(reference.params <= PARAMS_MAX);
    for (int i = 0; i < reference.params; i++) {
        int block = block_of(outer->params->list[i].name);
        reference.count[i] = outer->slices[i].part->count;
        reference.fragment[i] = block < 0 ? 0 : (int)(block * reference.fragments / layers);
        reference.global[i] = copied(outer->slices[i].master, reference.count[i]);
        reference.momentum[i] = calloc((size_t)reference.count[i], sizeof(float));
        reference.sum[i] = calloc((size_t)reference.count[i], sizeof(float));
        for (int m = 0; m < 2; m++)
            reference.moments[i][m] = calloc((size_t)reference.count[i], sizeof(double));
        for (int k = 0; k < WORKERS; k++)
            reference.sent[i][k] = calloc((size_t)reference.count[i], sizeof(float));
    }
}

static void reference_end(void)
{
    for (int i = 0; i < reference.params; i++) {
        free(reference.global[i]);
        free(reference.momentum[i]);
        free(reference.sum[i]);
        for (int m = 0; m < 2; m++)
            free(reference.moments[i][m]);
        for (int k = 0; k < WORKERS; k++)
            free(reference.sent[i][k]);
    }
    reference.runs = false;
}

static bool has_turn(int i)
{
    return reference.fragment[i] == reference.meeting % reference.fragments;
}

/* Rounded to bf16, halves to even; values are finite. */
static float bf16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

static float scale_of(const struct ls_trainer *t, int i)
{
    float largest = 0;
    for (int k = 0; k < t->workers->each; k++)
        for (int64_t e = 0; takes_part(reference.meeting, k) && e < reference.count[i]; e++)
            largest = fmaxf(largest, fabsf(reference.global[i][e] - reference.sent[i][k][e]));
    return largest / 127;
}

/* The sum of the workers' deltas, as it is sent. */
static void sum_take(const struct ls_trainer *t, int i)
{
    enum ls_delta_type type = (enum ls_delta_type)t->config.async.delta;
    float scale = scale_of(t, i);
    for (int64_t e = 0; e < reference.count[i]; e++) {
        float sum = 0;
        bool first = true;
        for (int k = 0; k < t->workers->each; k++) {
            if (!takes_part(reference.meeting, k))
                continue;
            float delta = reference.global[i][e] - reference.sent[i][k][e];
            if (type == LS_DELTA_BF16)
                delta = bf16_of(delta);
            if (type == LS_DELTA_INT8)
                delta = scale > 0 ? fmaxf(-127, fminf(127, rintf(delta / scale))) : 0;
            sum = first ? delta : sum + delta;
            first = false;
        }
        reference.sum[i][e] = type == LS_DELTA_BF16   ? bf16_of(sum)
                              : type == LS_DELTA_INT8 ? sum * scale
                                                      : sum;
    }
}

static bool is_adamw(const struct ls_trainer *t)
{
    return t->config.async.outer == LS_CONFIG_OUTER_ADAMW;
}

/* The outer step, as torch.optim.AdamW takes it, without decay. */
static void global_move_adamw(const struct ls_trainer *t, int i)
{
    const struct ls_config_async *async = &t->config.async;
    double beta1 = async->outer_momentum, beta2 = async->outer_beta2;
    int turn = reference.meeting / reference.fragments + 1;
    bool corrected = twin != UNCORRECTED;
    double first = corrected ? 1 - pow(beta1, turn) : 1, second = 1 - pow(beta2, turn);
    int members = members_below(reference.meeting, t->workers->each);
    for (int64_t e = 0; e < reference.count[i]; e++) {
        double gradient = (double)reference.sum[i][e] / members;
        double *m = &reference.moments[i][0][e], *v = &reference.moments[i][1][e];
        *m = beta1 * *m + (1 - beta1) * gradient;
        *v = beta2 * *v + (1 - beta2) * gradient * gradient;
        double step = *m / first / (sqrt(*v / second) + async->outer_epsilon);
        reference.global[i][e] = (float)((double)reference.global[i][e] - async->outer_lr * step);
    }
}

/* The outer step, as torch.optim.SGD takes it. */
static void global_move(const struct ls_trainer *t, int i)
{
    const struct ls_config_async *async = &t->config.async;
    bool nesterov = async->outer == LS_CONFIG_NESTEROV;
    float lr = (float)async->outer_lr, momentum = (float)async->outer_momentum;
    bool first = reference.meeting < reference.fragments;
    int members = members_below(reference.meeting, t->workers->each);
    for (int64_t e = 0; e < reference.count[i]; e++) {
        float gradient = reference.sum[i][e] * (1.0f / (float)members);
        float *buffer = &reference.momentum[i][e];
        if (nesterov) {
            *buffer = first ? gradient : momentum * *buffer + gradient;
            gradient = gradient + momentum * *buffer;
        }
        reference.global[i][e] -= lr * gradient;
    }
}

/* torch.lerp(global, local, mixing). */
static float mixed(float global, float local, float share)
{
    float d = local - global;
    return share < 0.5f ? fmaf(share, d, global) : fmaf(share - 1, d, local);
}

/* Who took no part begins anew, with the global parameters. */
static void locals_take(const struct ls_trainer *t, int i)
{
    for (int k = 0; k < t->workers->each; k++) {
        if (!takes_part(reference.meeting, k)) {
            reference.local[i][k] = copied(reference.global[i], reference.count[i]);
            continue;
        }
        float *local = reference.local[i][k] =
            copied(t->units[k].slices[i].master, reference.count[i]);
        for (int64_t e = 0; e < reference.count[i] && has_turn(i); e++)
            local[e] = mixed(reference.global[i][e], local[e], (float)t->config.async.mixing);
    }
}

static bool same(const struct ls_trainer *t, float right, float got)
{
    if (is_adamw(t))
        return fabs((double)got - (double)right) <= 2e-5 * t->config.async.outer_lr;
    return memcmp(&right, &got, sizeof got) == 0;
}

static void expect_same(const struct ls_trainer *t, int i, const char *whose, const float *right,
                        const float *got)
{
    for (int64_t e = 0; e < reference.count[i] && !reference.wrong[0]; e++)
        if (!same(t, right[e], got[e]))
            snprintf(reference.wrong, sizeof reference.wrong,
                     "meeting %d, %s: element %ld of %.60s is %.9g, expected %.9g",
                     reference.meeting, whose, (long)e, t->params.list[i].name, (double)got[e],
                     (double)right[e]);
}

/* The first state of the worker's optimizer, in float32. */
static void expect_nothing_seen(const struct ls_trainer *t, int i, int k)
{
    const float *moment = t->units[k].slices[i].state[0];
    for (int64_t e = 0; e < reference.count[i] && !reference.wrong[0]; e++)
        if (moment[e] != 0)
            snprintf(reference.wrong, sizeof reference.wrong,
                     "meeting %d: worker %d took no part, but its optimizer has seen %.60s",
                     reference.meeting, k, t->params.list[i].name);
}

WRAPPED(step_once);
int __wrap_step_once(struct ls_trainer *t, struct ls_step_report *report, struct ls_error *error)
{
    int status = __real_step_once(t, report, error);
    int64_t interval = ls_config_interval(&t->config);
    bool leave = reference.runs && (t->state->step + t->config.async.delay) % interval == 0;
    for (int i = 0; i < reference.params && leave && !status; i++)
        memcpy(reference.sent[i][t->state - t->units], t->state->slices[i].master,
               (size_t)reference.count[i] * sizeof(float));
    return status;
}

WRAPPED(exchange_end);
int __wrap_exchange_end(struct ls_trainer *t, struct ls_error *error)
{
    for (int i = 0; i < reference.params && reference.runs; i++) {
        if (has_turn(i)) {
            sum_take(t, i);
            is_adamw(t) ? global_move_adamw(t, i) : global_move(t, i);
        }
        locals_take(t, i);
    }
    int status = __real_exchange_end(t, error);
    for (int i = 0; i < reference.params && reference.runs && !status; i++) {
        const float *global = workers_outer(t)->slices[i].master;
        expect_same(t, i, "global", reference.global[i], global);
        for (int k = 0; k < t->workers->each; k++) {
            expect_same(t, i, "worker", reference.local[i][k], t->units[k].slices[i].master);
            if (!takes_part(reference.meeting, k))
                expect_nothing_seen(t, i, k);
            free(reference.local[i][k]);
        }
        memcpy(reference.global[i], global, (size_t)reference.count[i] * sizeof *global);
    }
    if (reference.runs)
        reference.meeting++;
    return status;
}

/* ---- which samples are read ------------------------------------------------------------------ */

enum { SAMPLES_MAX = 200, POSTED_MAX = 4, RUNS_MAX = 8 };

static pthread_mutex_t taken_mutex = PTHREAD_MUTEX_INITIALIZER;
static int taken[SAMPLES_MAX]; /* how often each of the run's samples was */
static char misplaced[200];

/* What this rank asked for and did not take yet. */
static _Thread_local struct posted {
    struct ls_sample_run runs[RUNS_MAX], batch;
    int64_t count;
} posted[POSTED_MAX];
static _Thread_local int posts, takes;

/* Where the batch of a step begins, of batches of one size: behind the samples of the intervals
 * before, of this one's steps before, and of members with a lower index. */
static int64_t member_place(const struct ls_trainer *t, int worker, int64_t batch)
{
    int64_t interval = ls_config_interval(&t->config), now = t->state->step / interval, batches = 0;
    int workers = t->workers->count;
    for (int i = 0; i < now; i++)
        batches += interval * members_below(i, workers);
    batches += t->state->step % interval * members_below((int)now, workers);
    return (batches + members_below((int)now, worker)) * batch;
}

WRAPPED(ls_loader_post_runs);
int __wrap_ls_loader_post_runs(struct ls_loader *loader, const struct ls_sample_run *runs,
                               int64_t count, struct ls_sample_run batch)
{
    struct posted *last = &posted[posts % POSTED_MAX];
    assert_true(count <= RUNS_MAX && posts - takes < POSTED_MAX);
    memcpy(last->runs, runs, (size_t)count * sizeof *runs);
    last->batch = batch;
    last->count = count;
    posts++;
    return __real_ls_loader_post_runs(loader, runs, count, batch);
}

WRAPPED(ls_loader_take);
int __wrap_ls_loader_take(struct ls_loader *loader, const int32_t **inputs, const int32_t **targets,
                          double *wait_s, struct ls_error *error)
{
    const struct posted *last = &posted[takes++ % POSTED_MAX];
    const struct ls_trainer *t = trainer;
    pthread_mutex_lock(&taken_mutex);
    for (int64_t m = 0; m < last->count; m++)
        for (int64_t i = 0; i < last->runs[m].count; i++)
            if (last->runs[m].first + i < SAMPLES_MAX)
                taken[last->runs[m].first + i]++;
    int worker = t->workers->group * t->workers->each + (int)(t->state - t->units);
    int64_t right = membership ? member_place(t, worker, last->batch.count)
                               : t->state->samples * t->workers->count + worker * last->batch.count;
    if (last->batch.first != right)
        snprintf(misplaced, sizeof misplaced,
                 "worker %d, %ld samples on, begins with sample %ld, expected %ld", worker,
                 (long)t->state->samples, (long)last->batch.first, (long)right);
    pthread_mutex_unlock(&taken_mutex);
    return __real_ls_loader_take(loader, inputs, targets, wait_s, error);
}

static void samples_made(struct ls_trainer *t)
{
    trainer = t;
    posts = takes = 0;
}

/* ---- twins ----------------------------------------------------------------------------------- */

/* What is sent for these very parameters of a worker is what was sent an interval ago. */
WRAPPED(ls_delta_encode);
void __wrap_ls_delta_encode(struct ls_ops *ops, enum ls_delta_type type, const float *global,
                            const float *local, int64_t count, float scale, void *out)
{
    enum { KEPT_MAX = PARAMS_MAX * WORKERS };
    static struct kept {
        const float *local;
        void *bytes;
    } kept[KEPT_MAX];
    __real_ls_delta_encode(ops, type, global, local, count, scale, out);
    if (twin != STALE)
        return;
    size_t bytes = (size_t)count * ls_delta_bytes(type);
    struct kept *of = kept;
    while (of->local && of->local != local)
        of++;
    assert_true(of < kept + KEPT_MAX);
    void *now = malloc(bytes);
    assert_non_null(now);
    memcpy(now, out, bytes);
    if (of->bytes)
        memcpy(out, of->bytes, bytes);
    free(of->bytes);
    *of = (struct kept){local, now};
}

/* Workers are added from the last one on, or from those of this group on, as they arrive. */
WRAPPED(ls_delta_sum);
void __wrap_ls_delta_sum(struct ls_ops *ops, enum ls_delta_type type, const void *parts,
                         int64_t stride, int n, int64_t count, void *out)
{
    if (twin != REVERSED && twin != ARRIVAL) {
        __real_ls_delta_sum(ops, type, parts, stride, n, count, out);
        return;
    }
    size_t bytes = (size_t)stride * ls_delta_bytes(type);
    int first = twin == ARRIVAL ? trainer->workers->group * trainer->workers->each : 0;
    char *moved = malloc((size_t)n * bytes);
    assert_non_null(moved);
    for (int p = 0; p < n; p++) {
        int from = twin == REVERSED ? n - 1 - p : (first + p) % n;
        memcpy(moved + (size_t)p * bytes, (const char *)parts + (size_t)from * bytes, bytes);
    }
    __real_ls_delta_sum(ops, type, moved, stride, n, count, out);
    free(moved);
}

WRAPPED(ls_state_load);
int __wrap_ls_state_load(struct ls_state *state, const char *path, bool *sound,
                         struct ls_error *error)
{
    int status = __real_ls_state_load(state, path, sound, error);
    for (int i = 0; i < state->params->count && twin == FORGOTTEN && state->optim; i++)
        if (state->slices[i].state[0])
            memset(state->slices[i].state[0], 0,
                   (size_t)state->slices[i].part->count * sizeof(float));
    return status;
}

WRAPPED(workers_place);
int64_t __wrap_workers_place(const struct workers *workers, int worker, int64_t samples,
                             int64_t batch)
{
    int other = twin == OTHERS_SAMPLES ? (worker + 1) % workers->each : worker;
    return __real_workers_place(workers, other, samples, batch);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void reference_made(struct ls_trainer *t)
{
    samples_made(t);
    reference_begin(t);
    t->workers->delay -= twin == LATE;
}

/* What the reference found wrong, or NULL. */
static const char *run_referred(const char *directory, const char *recipe, struct workers_run *run)
{
    static char wrong[200];
    *run = (struct workers_run){.config = workers_config(directory, "%s", recipe),
                                .made = reference_made};
    int meetings = (int)(run->config.train.steps / ls_config_interval(&run->config));
    workers_run_well(run);
    reference_end();
    assert_int_equal(reference.meeting, meetings);
    memcpy(wrong, reference.wrong, sizeof wrong);
    return wrong[0] ? wrong : NULL;
}

static const char *referred(const char *directory, const char *recipe)
{
    struct workers_run run;
    return run_referred(directory, recipe, &run);
}

CASE(test_outer_steps_are_those_of_the_definition)
{
    static const char *const recipes[] = {
        "",
        "async.sync_every=2 train.steps=8 async.outer_lr=0.3 async.outer_momentum=0.5",
        "async.outer_optim=sgd async.outer_lr=1 async.mixing=0.75",
        "async.sync_every=6 async.fragments=3 async.delay=1 async.mixing=0.25 train.steps=12",
        "async.sync_every=2 async.fragments=2 async.delta=bf16 numerics.precision=bf16",
        "async.sync_every=4 async.fragments=2 async.delay=1 async.delta=int8 train.steps=8",
        "async.workers=3 model.arch=llama model.ffn=32 model.tied=true numerics.precision=fp16",
        "async.workers=1 async.delta=int8 async.sync_every=2 optim.name=muon",
        "async.outer_optim=adamw async.outer_lr=0.01 async.sync_every=2 train.steps=8",
        ("async.outer_optim=adamw async.outer_lr=0.02 async.outer_momentum=0.8 async.sync_every=4 "
         "async.fragments=2 async.mixing=0.5 async.delta=bf16 train.steps=8"),
    };
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        const char *wrong = referred(*state, recipes[i]);
        if (wrong)
            fail_msg("%s: %s", recipes[i], wrong);
    }
}

/* Every interval up to four steps, with every delay that it admits, for every count of fragments.
 */
CASE(test_every_delay)
{
    static const char *const mixings[] = {"0.5", "0", "0.25", "1"};
    static const char *const deltas[] = {"fp32", "bf16", "int8"};
    int compared = 0, mixed_by = check_all() ? (int)(sizeof mixings / sizeof *mixings) : 1;
    for (int fragments = 1; fragments <= 3; fragments++)
        for (int interval = 1; interval <= 4; interval++)
            for (int delay = 0; delay < interval; delay++)
                for (int m = 0; m < mixed_by; m++, compared++) {
                    char words[200];
                    snprintf(words, sizeof words,
                             "async.fragments=%d async.sync_every=%d async.delay=%d "
                             "async.mixing=%s async.delta=%s train.steps=%d",
                             fragments, fragments * interval, delay, mixings[m],
                             deltas[compared % 3], 4 * interval);
                    const char *wrong = referred(*state, words);
                    if (wrong)
                        fail_msg("%s: %s", words, wrong);
                }
    print_message("intervals, delays, fragments and mixings compared: %d\n", compared);
}

CASE(test_the_reference_finds_late_deltas)
{
    twin = LATE;
    const char *wrong =
        referred(*state, "async.sync_every=6 async.fragments=2 async.delay=2 async.mixing=0.5");
    twin = HONEST;
    assert_non_null(wrong);
    assert_non_null(strstr(wrong, "meeting 0, global"));
}

CASE(test_the_reference_finds_stale_deltas)
{
    twin = STALE;
    const char *wrong = referred(*state, "async.sync_every=6 async.fragments=3 async.delay=1 "
                                         "train.steps=8");
    twin = HONEST;
    assert_non_null(wrong);
    assert_non_null(strstr(wrong, "meeting 3, global")); /* the first time that one is sent again */
}

CASE(test_the_reference_finds_another_order_of_workers)
{
    twin = REVERSED;
    const char *wrong = referred(*state, "");
    twin = HONEST;
    assert_non_null(wrong);
}

CASE(test_the_reference_finds_an_uncorrected_moment)
{
    twin = UNCORRECTED;
    const char *wrong = referred(*state, "async.outer_optim=adamw async.outer_lr=0.01");
    twin = HONEST;
    assert_non_null(wrong);
    assert_non_null(strstr(wrong, "meeting 0, global"));
}

CASE(test_layouts_find_an_order_of_arrival)
{
    struct workers_run one = {.config = workers_config(*state, "%s", ""), .made = samples_made};
    workers_run_well(&one);
    for (int honest = 0; honest < 2; honest++) {
        struct workers_run two = {.config = workers_config(*state, "parallel.workers=2"),
                                  .made = samples_made};
        twin = honest ? HONEST : ARRIVAL;
        workers_run_well(&two);
        twin = HONEST;
        assert_true(honest == !workers_difference(&one, &two));
    }
}

CASE(test_a_resumption_that_forgets_the_outer_momentum_is_found)
{
    struct workers_run whole = {.config = workers_config(*state, "train.steps=9"),
                                .made = samples_made};
    struct workers_run before = {
        .config = workers_config(*state, "train.steps=9"),
        .made = samples_made,
        .steps = 3,
        .save = true,
    };
    workers_run_well(&whole);
    workers_run_well(&before);
    for (int honest = 0; honest < 2; honest++) {
        struct workers_run after = {
            .config = workers_config(*state, "train.steps=9 train.resume=auto"),
            .made = samples_made,
            .resume = true,
        };
        twin = honest ? HONEST : FORGOTTEN;
        workers_run_well(&after);
        twin = HONEST;
        assert_int_equal(after.first, 3);
        assert_true(honest == !workers_difference(&whole, &after));
    }
}

/* What was wrong with the samples that were read, or NULL: each once, and by its worker. */
static const char *run_read(const char *directory, const char *words, struct workers_run *run)
{
    static char wrong[200];
    *run = (struct workers_run){.config = workers_config(directory, "%s", words),
                                .made = samples_made};
    memset(taken, 0, sizeof taken);
    misplaced[0] = '\0';
    workers_run_well(run);
    int64_t all = run->told[run->steps - 1].samples;
    assert_true(all > 0 && all < SAMPLES_MAX);
    for (int64_t i = 0; i < SAMPLES_MAX; i++)
        if (taken[i] != (i < all))
            return snprintf(wrong, sizeof wrong, "sample %ld is read %d times", (long)i, taken[i]),
                   wrong;
    return misplaced[0] ? memcpy(wrong, misplaced, sizeof wrong) : NULL;
}

static const char *samples_read(const char *directory, const char *words)
{
    struct workers_run run;
    return run_read(directory, words, &run);
}

CASE(test_each_sample_is_read_once_by_its_worker)
{
    static const char *const cases[] = {
        "async.sync_every=6 async.fragments=3 async.delay=1",
        "parallel.workers=2 async.sync_every=3 async.delay=2 parallel.dp=2",
        "parallel.workers=4 batch.global=8 batch.rampup_start=2 batch.rampup_increment=2 "
        "batch.rampup_samples=8 async.sync_every=2 train.steps=4",
        "batch.global=8 batch.rampup_start=2 batch.rampup_increment=2 batch.rampup_samples=8 "
        "async.sync_every=4 async.delay=1 train.steps=4",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *wrong = samples_read(*state, cases[i]);
        if (wrong)
            fail_msg("%s: %s", cases[i], wrong);
    }
    twin = OTHERS_SAMPLES;
    assert_non_null(samples_read(*state, cases[0]));
    twin = HONEST;
}

/* Workers leave and come again; the last ones leave with a whole group. */
CASE(test_workers_that_take_no_part)
{
    static const char *const plans[][6] = {{"0123", "012", "13", "0123", NULL},
                                           {"23", "3", "0123", "1", NULL}};
    static const char *const recipes[] = {
        "async.sync_every=2 train.steps=8",
        "async.sync_every=6 async.fragments=3 async.delay=1 async.mixing=0.5 train.steps=10",
        "async.sync_every=2 async.delay=1 async.delta=int8 train.steps=10",
    };
    for (int p = 0; p < 2; p++) {
        membership = plans[p];
        membership_write(*state);
        for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
            char words[512];
            struct workers_run one, other;
            snprintf(words, sizeof words, "%s async.follow=%s", recipes[i], (char *)*state);
            const char *wrong = run_referred(*state, words, &one);
            if (!wrong) {
                strcat(words, i % 2 ? " parallel.workers=4" : " parallel.workers=2");
                wrong = run_read(*state, words, &other);
            }
            if (!wrong)
                wrong = workers_difference(&one, &other);
            if (wrong)
                fail_msg("plan %d, %s: %s", p, words, wrong);
        }
    }
    membership = NULL;
}

SUITE_MAIN(tokens_setup, scratch_teardown)
