/* Which workers of a run take part, and from which outer step on: requests at the start, between
 * starts and while a run goes on. Each outer step is taken again by its definition, and each sample
 * is read once; all layouts give the same bits; a run that goes on, and one that follows another,
 * have the members that were recorded.
 *
 * Broken twins: a worker that is away adds its delta, a mean over all workers, a worker that comes
 * again with its old moments. */
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "tokens.h"
#include "train/membership.h"
#include "workers_run.h"

#include <lockstep/train/members.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- folders --------------------------------------------------------------------------------- */

/* A folder of that name under that of the test, empty. */
static const char *folder_new(void **state, const char *name)
{
    static char path[600];
    char line[700];
    snprintf(path, sizeof path, "%s/%s", (char *)*state, name);
    snprintf(line, sizeof line, "rm -rf '%s'", path);
    assert_int_equal(system(line), 0);
    assert_int_equal(mkdir(path, 0755), 0);
    return path;
}

static void write_to(const char *folder, const char *name, const char *text)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    scratch_write(path, text, strlen(text));
}

static bool is_there(const char *folder, const char *name)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static void expect_file(const char *folder, const char *expected)
{
    char path[700];
    snprintf(path, sizeof path, "%s/" LS_MEMBERS_FILE, folder);
    char *text = scratch_read(path, NULL);
    assert_string_equal(text, expected);
    free(text);
}

#define LINE(step, workers) "{\"outer_step\": " #step ", \"workers\": \"" workers "\"}\n"

/* ---- requests, and what each outer step must be ---------------------------------------------- */

static enum { HONEST, AWAY_ADDS, MEAN_OF_ALL, MOMENTS_KEPT } twin;

enum { WORKERS = 4, INTERVALS = 6, PARAMS_MAX = 64, SAMPLES_MAX = 200 };

/* Requests by the outer step that is the first to know of them, and the workers of each outer step.
 * Those of odd ones are made while the run is in the interval before. */
struct plan {
    const char *wanted[INTERVALS];
    const char *in[INTERVALS]; /* '1': takes part */
};
static const struct plan leaving = {
    {NULL, "0-2", "1", "2-3\n", "nonsense", "all"},
    {"1111", "1110", "0100", "0011", "0011", "1111"},
};
#define LEAVING_LINES LINE(2, "0-2") LINE(3, "1") LINE(4, "2-3") LINE(6, "0-3")

static const struct plan *plan; /* NULL: nobody asks */
static _Thread_local struct ls_trainer *trainer;
static _Thread_local bool ending; /* in exchange_end */
static char wrong[200];           /* the first that is, of one rank */

static void request_make(const struct ls_trainer *t, int64_t outer_step)
{
    if (plan && outer_step <= INTERVALS && plan->wanted[outer_step - 1] &&
        ls_comm_rank(t->whole) == 0)
        write_to(t->config.train.out, LS_MEMBERS_WANTED, plan->wanted[outer_step - 1]);
}

WRAPPED(members_next);
int __wrap_members_next(struct ls_trainer *t, struct ls_error *error)
{
    int64_t outer_step = t->workers->begin / t->workers->interval + 1;
    if (outer_step % 2 == 0)
        request_make(t, outer_step);
    return __real_members_next(t, error);
}

static bool expected_in(const struct ls_trainer *t, int worker)
{
    return plan->in[t->workers->begin / t->workers->interval][worker] == '1';
}

static void wrong_note(const struct ls_trainer *t, int worker, const char *what)
{
    if (!wrong[0])
        snprintf(wrong, sizeof wrong, "outer step %ld, worker %d: %s",
                 (long)(t->workers->begin / t->workers->interval + 1), worker, what);
}

/* The fragment's global parameters after the outer step, by the definition; of one rank. */
static struct reference {
    bool runs;
    float *momentum[PARAMS_MAX];
    float *global[PARAMS_MAX]; /* [count], of the interval's fragment */
} reference;

static void global_move(const struct ls_trainer *t, int i, int members)
{
    const struct ls_slice *global = &workers_outer(t)->slices[i];
    int64_t count = global->part->count;
    const struct ls_config_async *async = &t->config.async;
    float lr = (float)async->outer_lr, momentum = (float)async->outer_momentum;
    if (!reference.momentum[i])
        reference.momentum[i] = calloc((size_t)count, sizeof(float));
    reference.global[i] = malloc((size_t)count * sizeof(float));
    for (int64_t e = 0; e < count; e++) {
        float sum = 0, *buffer = &reference.momentum[i][e];
        for (int k = 0; k < WORKERS; k++)
            if (expected_in(t, k))
                sum += global->master[e] - t->units[k].slices[i].master[e];
        float gradient = sum * (1.0f / (float)members);
        *buffer = momentum * *buffer + gradient;
        reference.global[i][e] = global->master[e] - lr * (gradient + momentum * *buffer);
    }
}

WRAPPED(exchange_begin);
int __wrap_exchange_begin(struct ls_trainer *t, int status, struct ls_error *error)
{
    struct workers *w = t->workers;
    bool member[WORKERS_MAX];
    int64_t outer_step = w->begin / w->interval + 1;
    int members = 0;
    if ((outer_step + 1) % 2)
        request_make(t, outer_step + 1);
    for (int k = 0; k < WORKERS && reference.runs; k++) {
        members += expected_in(t, k);
        if ((t->units[k].samples > w->start) != expected_in(t, k))
            wrong_note(t, k, "trains, or does not");
    }
    for (int i = 0; i < t->params.count && reference.runs; i++)
        if (w->fragment[i] == workers_fragment(w))
            global_move(t, i, members);
    memcpy(member, w->member, sizeof member);
    if (twin == AWAY_ADDS)
        memset(w->member, 1, sizeof w->member);
    status = __real_exchange_begin(t, status, error);
    memcpy(w->member, member, sizeof member);
    return status;
}

static bool same(const float *a, const float *b, int64_t count)
{
    return memcmp(a, b, (size_t)count * sizeof *a) == 0;
}

/* Who is away is as new. */
static void away_check(const struct ls_trainer *t, int i, int k)
{
    const struct ls_slice *slice = &t->units[k].slices[i];
    const struct ls_state *outer = workers_outer(t);
    int64_t count = slice->part->count;
    if (!same(slice->master, outer->slices[i].master, count))
        wrong_note(t, k, "away, with other parameters than the global ones");
    for (int s = 0; s < ls_state_arrays(&t->units[k], slice->param); s++)
        for (int64_t e = 0; e < count; e++)
            if (((const float *)slice->state[s])[e] != 0)
                wrong_note(t, k, "away, with moments");
}

WRAPPED(exchange_end);
int __wrap_exchange_end(struct ls_trainer *t, struct ls_error *error)
{
    ending = true;
    int status = __real_exchange_end(t, error);
    ending = false;
    for (int i = 0; i < t->params.count && reference.runs && !status; i++) {
        const struct ls_slice *global = &workers_outer(t)->slices[i];
        if (reference.global[i] && !same(reference.global[i], global->master, global->part->count))
            wrong_note(t, -1, "the global parameters are not those of the definition");
        free(reference.global[i]);
        reference.global[i] = NULL;
        for (int k = 0; k < WORKERS; k++)
            if (!expected_in(t, k))
                away_check(t, i, k);
    }
    return status;
}

WRAPPED(ls_fill_zero);
void __wrap_ls_fill_zero(struct ls_ops *ops, size_t bytes, void *out)
{
    if (twin != MOMENTS_KEPT || !ending)
        __real_ls_fill_zero(ops, bytes, out);
}

WRAPPED(ls_optimizer_step);
int __wrap_ls_optimizer_step(struct ls_optimizer *optimizer, struct ls_ops *ops,
                             const struct ls_slice *slices, int count,
                             const struct ls_optim_step *step, struct ls_error *error)
{
    struct ls_optim_step mean = *step;
    if (twin == MEAN_OF_ALL && ending)
        mean.gradient_scale = 1.0f / (float)trainer->workers->count;
    return __real_ls_optimizer_step(optimizer, ops, slices, count, &mean, error);
}

/* How often each sample of the run is read; of layouts that cut no sample. */
static int taken[SAMPLES_MAX];

WRAPPED(ls_loader_post_runs);
int __wrap_ls_loader_post_runs(struct ls_loader *loader, const struct ls_sample_run *runs,
                               int64_t count, struct ls_sample_run batch)
{
    for (int64_t m = 0; m < count; m++)
        for (int64_t i = 0; i < runs[m].count; i++)
            if (runs[m].first + i < SAMPLES_MAX)
                __atomic_add_fetch(&taken[runs[m].first + i], 1, __ATOMIC_RELAXED);
    return __real_ls_loader_post_runs(loader, runs, count, batch);
}

static void made(struct ls_trainer *t)
{
    trainer = t;
}

/* ---- runs ------------------------------------------------------------------------------------ */

#define SHORT  "async.sync_every=2 train.steps=12 train.save_every=2 "
#define PIECES "async.sync_every=6 async.fragments=3 async.delay=1 async.mixing=0.5 train.steps=12 "

/* A run in a folder that is new. */
static struct workers_run run_in(void **state, const char *name, const char *words)
{
    struct workers_run run = {
        .config = workers_config(*state, "%s train.out=%s/%s", words, (char *)*state, name),
        .made = made};
    folder_new(state, name);
    memset(taken, 0, sizeof taken);
    workers_run_well(&run);
    return run;
}

static void expect_alike(const struct workers_run *a, const struct workers_run *b, const char *what)
{
    const char *difference = workers_difference(a, b);
    if (difference)
        fail_msg("%s: %s", what, difference);
}

/* Each of the samples of the run is read once, and a step's follow those of the step before. */
static void expect_each_once(const struct workers_run *run)
{
    int64_t before = 0;
    for (int i = 0; i < run->steps; i++) {
        const char *in = plan->in[i * INTERVALS / run->steps];
        int members = 0;
        for (int k = 0; k < WORKERS; k++)
            members += in[k] == '1';
        assert_int_equal(run->told[i].sequences, 2 * members);
        before += run->told[i].sequences;
        assert_int_equal(run->told[i].samples, before);
    }
    assert_true(before < SAMPLES_MAX);
    for (int64_t i = 0; i < SAMPLES_MAX; i++)
        if (taken[i] != (i < before))
            fail_msg("sample %ld is read %d times", (long)i, taken[i]);
}

/* What is wrong with a run of one rank beside the definition, or NULL. */
static const char *referred(void **state, const char *recipe)
{
    wrong[0] = '\0';
    reference = (struct reference){.runs = true};
    plan = &leaving;
    struct workers_run run = run_in(state, "one", recipe);
    reference.runs = false;
    for (int i = 0; i < PARAMS_MAX; i++)
        free(reference.momentum[i]);
    if (twin == HONEST) {
        expect_each_once(&run);
        assert_non_null(
            strstr(run.said, "\"nonsense\" names no workers: expected numbers below 4"));
    }
    plan = NULL;
    return wrong[0] ? wrong : NULL;
}

static const char *const recipes[] = {SHORT, PIECES,
                                      SHORT "async.delay=1 async.mixing=0.25 optim.name=lion"};

CASE(test_members_are_those_that_were_asked_for)
{
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        const char *found = referred(state, recipes[i]);
        if (found)
            fail_msg("%s: %s", recipes[i], found);
        char path[600];
        snprintf(path, sizeof path, "%s/one", (char *)*state);
        expect_file(path, LEAVING_LINES);
        assert_false(is_there(path, LS_MEMBERS_WANTED));
        assert_false(is_there(path, LS_MEMBERS_WANTED ".taken"));
    }
}

CASE(test_twins_are_found)
{
    static const struct {
        int twin;
        const char *recipe, *says;
    } twins[] = {
        {AWAY_ADDS, SHORT "train.steps=4 async.mixing=0.5",
         "outer step 2, worker -1: the global parameters"},
        {MEAN_OF_ALL, SHORT "train.steps=4", "outer step 2, worker -1: the global parameters"},
        {MOMENTS_KEPT, SHORT "train.steps=4", "outer step 2, worker 3: away, with moments"},
    };
    for (size_t i = 0; i < sizeof twins / sizeof *twins; i++) {
        twin = twins[i].twin;
        const char *found = referred(state, twins[i].recipe);
        twin = HONEST;
        if (!found || !strstr(found, twins[i].says))
            fail_msg("twin %d: %s", twins[i].twin, found ? found : "nothing is found");
    }
}

/* ---- layouts --------------------------------------------------------------------------------- */

CASE(test_layouts_give_the_same_bits)
{
    static const char *const layouts[] = {
        "parallel.workers=2",
        "parallel.workers=4",
        "parallel.tp=2",
        "parallel.workers=2 parallel.pp=2",
        "parallel.workers=4 parallel.dp_shard=2 parallel.zero=3",
        "parallel.workers=2 parallel.tp=2 parallel.dp=2",
    };
    static const char *const all_recipes[] = {
        SHORT "async.delta=bf16",
        PIECES "async.delta=int8 numerics.precision=bf16",
        SHORT "async.delay=1 numerics.precision=fp16 async.outer_optim=adamw async.outer_lr=0.01",
        SHORT "batch.global=4 batch.rampup_start=2 batch.rampup_increment=2 batch.rampup_samples=4",
    };
    enum { RECIPES = sizeof all_recipes / sizeof *all_recipes };
    enum { LAYOUTS = sizeof layouts / sizeof *layouts };
    plan = &leaving;
    for (int r = 0; r < RECIPES; r++) {
        char path[600];
        struct workers_run one = run_in(state, "one", all_recipes[r]);
        for (int l = check_all() ? 0 : r % 3; l < LAYOUTS; l += check_all() ? 1 : 3) {
            char words[400];
            snprintf(words, sizeof words, "%s %s", all_recipes[r], layouts[l]);
            struct workers_run other = run_in(state, "other", words);
            expect_alike(&one, &other, words);
            snprintf(path, sizeof path, "%s/other", (char *)*state);
            expect_file(path, LEAVING_LINES);
        }
    }
    plan = NULL;
}

/* Who is away from the start on is as if it were not there: other workers' samples, losses, norms
 * and outer steps are those of a recipe with fewer. (The hash is of all workers.) */
CASE(test_members_from_the_start_are_a_run_of_fewer)
{
    static const struct plan some = {{"1,3"}, {"0101", "0101", "0101", "0101", "0101", "0101"}};
    for (int i = check_all() ? 0 : 1; i < 2; i++) {
        char words[300];
        snprintf(words, sizeof words, "%s async.workers=2", i ? PIECES : SHORT);
        struct workers_run fewer = run_in(state, "one", words);
        folder_new(state, "some");
        char path[600];
        snprintf(path, sizeof path, "%s/some", (char *)*state);
        write_to(path, LS_MEMBERS_WANTED, some.wanted[0]); /* before the run is there */
        memset(taken, 0, sizeof taken);
        struct workers_run away = {.config = workers_config(*state,
                                                            "%s train.out=%s "
                                                            "parallel.workers=2",
                                                            i ? PIECES : SHORT, path),
                                   .made = made};
        workers_run_well(&away);
        plan = &some;
        expect_each_once(&away);
        plan = NULL;
        expect_file(path, LINE(1, "1,3"));
        memset(fewer.hash, 0, sizeof fewer.hash);
        memset(away.hash, 0, sizeof away.hash);
        expect_alike(&fewer, &away, words);
    }
}

/* ---- going on -------------------------------------------------------------------------------- */

/* Stops after `step`, once saved, in one layout, and goes on in another. */
static struct workers_run go_on(void **state, const char *recipe, int step)
{
    char out[600];
    folder_new(state, "go");
    snprintf(out, sizeof out, "%s train.out=%s/go", recipe, (char *)*state);
    struct workers_run before = {.config = workers_config(*state, "%s parallel.workers=4", out),
                                 .made = made,
                                 .steps = step,
                                 .save = true};
    struct workers_run after = {.config = workers_config(*state,
                                                         "%s parallel.workers=2 "
                                                         "parallel.tp=2 train.resume=auto",
                                                         out),
                                .made = made,
                                .resume = true};
    workers_run_well(&before);
    workers_run_well(&after);
    assert_int_equal(after.first, step);
    return after;
}

CASE(test_a_run_goes_on_with_its_members)
{
    char path[600];
    snprintf(path, sizeof path, "%s/go", (char *)*state);
    for (int i = 0; i < (int)(sizeof recipes / sizeof *recipes); i++)
        for (int late = 0; late < 2; late++) {
            if (!check_all() && late != i % 2)
                continue;
            plan = &leaving;
            struct workers_run whole = run_in(state, "one", recipes[i]);
            struct workers_run after = go_on(state, recipes[i], late ? 10 : 4);
            expect_alike(&whole, &after, recipes[i]);
            expect_file(path, LEAVING_LINES);
        }
    plan = NULL;
}

/* The run has trained six outer steps; its newest checkpoint is of the second, so that steps are
 * done again: with the members that were recorded, unless others are asked for. */
CASE(test_what_was_recorded_is_done_again)
{
    static const struct {
        const char *wanted, *lines;
        struct plan plan;
    } cases[] = {
        {NULL, LEAVING_LINES, {{NULL}, {NULL}}},
        {"0-2",
         LINE(2, "0-2") LINE(3, "0-2"),
         {{NULL, "0-2"}, {"1111", "1110", "1110", "1110", "1110", "1110"}}},
        {"1", /* as recorded, but to the end */
         LINE(2, "0-2") LINE(3, "1"),
         {{NULL, "0-2", "1"}, {"1111", "1110", "0100", "0100", "0100", "0100"}}},
    };
    char path[600];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (i == 1 && !check_all())
            continue;
        plan = cases[i].wanted ? &cases[i].plan : &leaving;
        struct workers_run whole = run_in(state, "one", SHORT);
        plan = &leaving;
        go_on(state, SHORT, 4);
        plan = NULL;
        snprintf(path, sizeof path, "%s/go", (char *)*state);
        expect_file(path, LEAVING_LINES);
        if (cases[i].wanted)
            write_to(path, LS_MEMBERS_WANTED, cases[i].wanted);
        struct workers_run again = {.config = workers_config(*state,
                                                             SHORT "train.out=%s "
                                                                   "train.resume=auto",
                                                             path),
                                    .made = made,
                                    .resume = true};
        workers_run_well(&again);
        assert_int_equal(again.first, 4);
        expect_alike(&whole, &again, cases[i].lines);
        expect_file(path, cases[i].lines);
    }
}

/* In a run that begins from another run's checkpoint all take part. Who was away there joins; who
 * had joined late has moments that saw as much less. What lies in its folder counts for nothing. */
CASE(test_a_run_from_another_run)
{
    char path[600];
    plan = &leaving;
    struct workers_run whole = run_in(state, "one", SHORT);
    go_on(state, SHORT, 10);
    plan = NULL;
    snprintf(path, sizeof path, "%s", folder_new(state, "branch"));
    write_to(path, LS_MEMBERS_FILE, LINE(1, "1,3"));
    struct workers_run branch = {.config = workers_config(*state,
                                                          SHORT "train.out=%s parallel.workers=2 "
                                                                "train.resume=%s/go/checkpoints/"
                                                                "step-00000010",
                                                          path, (char *)*state),
                                 .whole = true};
    workers_run_well(&branch);
    assert_int_equal(branch.first, 10);
    expect_alike(&whole, &branch, "from step 11 on");
    expect_file(path, LEAVING_LINES);
}

/* A request that nobody took up in time is of the next start. */
CASE(test_a_request_between_starts)
{
    static const struct plan late = {{NULL, NULL, "0,3"},
                                     {"1111", "1111", "1001", "1001", "1001", "1001"}};
    char path[600], words[700];
    plan = &late;
    struct workers_run whole = run_in(state, "one", SHORT);
    plan = NULL;
    folder_new(state, "go");
    snprintf(path, sizeof path, "%s/go", (char *)*state);
    snprintf(words, sizeof words, SHORT "train.out=%s", path);
    struct workers_run before = {
        .config = workers_config(*state, "%s", words), .made = made, .steps = 4, .save = true};
    workers_run_well(&before);
    assert_false(is_there(path, LS_MEMBERS_FILE));
    write_to(path, LS_MEMBERS_WANTED, "0,3\n");
    struct workers_run after = {.config = workers_config(*state, "%s train.resume=auto", words),
                                .made = made,
                                .resume = true};
    workers_run_well(&after);
    expect_alike(&whole, &after, "from step 5 on");
    expect_file(path, LINE(3, "0,3"));
}

CASE(test_a_run_that_follows)
{
    char words[900], path[600];
    plan = &leaving;
    struct workers_run whole = run_in(state, "one", PIECES);
    plan = NULL;
    snprintf(words, sizeof words,
             PIECES "async.follow=%s/one parallel.workers=4 parallel.dp_shard=2 parallel.zero=1",
             (char *)*state);
    struct workers_run follows = run_in(state, "follows", words);
    expect_alike(&whole, &follows, "follows");
    snprintf(path, sizeof path, "%s/follows", (char *)*state);
    assert_false(is_there(path, LS_MEMBERS_FILE));
    struct workers_run none = {.config = workers_config(*state, "%s", SHORT "async.follow=nowhere"),
                               .made = made};
    assert_int_equal(workers_run(&none), LS_ECONFIG);
    assert_non_null(strstr(none.error.text, "async.follow = \"nowhere\": there is no such folder"));
}

/* ---- what is damaged ------------------------------------------------------------------------- */

/* A run in the folder "bad", which is as it is: its status. */
static int run_bad(void **state, struct workers_run *run)
{
    *run = (struct workers_run){
        .config =
            workers_config(*state, SHORT "train.out=%s/bad parallel.workers=2", (char *)*state),
        .made = made};
    return workers_run(run);
}

CASE(test_a_file_that_cannot_be_used)
{
    struct workers_run run;
    const char *folder = folder_new(state, "bad");
    write_to(folder, LS_MEMBERS_FILE, "{\"workers\": \"0\"}\n");
    assert_int_equal(run_bad(state, &run), LS_EDATA);
    assert_non_null(strstr(run.error.text, "bad/members: entry 1: expected an outer_step"));

    /* It cannot be written: the request stays. */
    char path[700];
    snprintf(path, sizeof path, "%s/" LS_MEMBERS_FILE, folder_new(state, "bad"));
    assert_int_equal(symlink("elsewhere/members", path), 0);
    write_to(folder, LS_MEMBERS_WANTED, "0-1");
    assert_int_not_equal(run_bad(state, &run), LS_OK);
    assert_non_null(strstr(run.error.text, "bad/members"));
    assert_true(is_there(folder, LS_MEMBERS_WANTED) ||
                is_there(folder, LS_MEMBERS_WANTED ".taken"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(run_bad(state, &run), LS_OK);
    expect_file(folder, LINE(1, "0-1"));
}

/* What is no request is reported, and all go on. */
CASE(test_requests_that_cannot_be_read)
{
    struct workers_run run;
    char path[700];
    snprintf(path, sizeof path, "%s/" LS_MEMBERS_WANTED, folder_new(state, "bad"));
    assert_int_equal(mkdir(path, 0755), 0);
    assert_int_equal(run_bad(state, &run), LS_OK);
    assert_non_null(strstr(run.said, LS_MEMBERS_WANTED));
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(run.told[11].sequences, 8);
}

SUITE_MAIN(tokens_setup, scratch_teardown)
