/* Workers (async.mode = diloco): who computes them is layout. Recipes of every key of async, with
 * every kind of inner state, give the same losses, norms, ledgers, evaluations and hashes in every
 * layout and number of groups; they stop and go on in another one; each sample is taken once; and a
 * lone worker that keeps all of itself trains as a run without workers does. */
#include "../support/examples.h"
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "tokens.h"
#include "workers_run.h"

#include "train/trainer.h"
#include "train/workers_private.h"

#include <lockstep/config/inputs.h>
#include <lockstep/data/blend.h>
#include <lockstep/train/peak.h>

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- recipes and layouts --------------------------------------------------------------------- */

static const char *const recipes[] = {
    "",
    "async.sync_every=6 async.fragments=3 async.delay=1 async.mixing=0.5",
    "async.sync_every=4 async.fragments=2 async.delay=1 async.delta=int8 numerics.precision=bf16",
    "async.delta=bf16 async.outer_optim=adamw async.outer_lr=0.01 optim.name=lion",
    "async.outer_optim=sgd async.outer_lr=1 optim.name=muon model.arch=llama model.ffn=32",
    "numerics.precision=fp16 model.arch=llama model.ffn=32 model.tied=true async.sync_every=6 "
    "async.fragments=2 numerics.initial_scale_power=26",
    "lora.rank=2 async.sync_every=6 async.fragments=3 async.mixing=0.25",
    "batch.global=4 batch.rampup_start=2 batch.rampup_increment=2 batch.rampup_samples=4",
    "blend async.sync_every=2 async.delay=1",
    "model.dropout=0.1 async.sync_every=6 async.fragments=3 async.delay=1 async.delta=int8",
    "async.workers=6 async.mixing=0.9 optim.name=sgd optim.momentum=0.9 numerics.precision=bf16",
    "async.workers=2 data.sequence=256 model.context=256 numerics.seq_tiles=2 train.steps=3 "
    "async.delay=2 optim.moments=bf16",
};
enum { RECIPES = sizeof recipes / sizeof *recipes, CP = RECIPES - 1 };

static const int groups[] = {1, 2, 4, 3};
enum { GROUPS = 4 };

/* In `make check` each recipe has a layout of others, and each number of groups comes. */
CASE(test_layouts_of_workers_give_the_same_bits)
{
    int every = check_every(29, 29), runs = 0;
    for (int r = 0; r < RECIPES; r++) {
        struct workers_run one = {.config = workers_config(*state, "%s", recipes[r]),
                                  .evaluate = true};
        workers_run_well(&one);
        for (int l = 0; l < WORKERS_LAYOUTS * GROUPS; l++) {
            struct workers_run other = {.evaluate = true};
            int layout = l / GROUPS, group = groups[(l + r) % GROUPS];
            if ((layout >= WORKERS_LAYOUTS_CP && r != CP) || one.config.async.workers % group ||
                (l + 12 * r) % every)
                continue;
            other.config = workers_config(*state, "%s %s parallel.workers=%d", recipes[r],
                                          workers_layouts[layout], group);
            workers_run_well(&other);
            workers_expect_alike(&one, &other, workers_layouts[layout]);
            runs++;
        }
    }
    printf("%d recipes in %d layouts\n", RECIPES, runs);
}

/* A rank's units hold what is frozen once, and compute where it lies (ls_state.lender); not with
 * parameters in a tier. */
#define FEW_BITS "model.channels=128 model.ffn=128 model.layers=2 lora.rank=2 "
static const char *const frozen[] = {
    "train.frozen=wte.*,h.0.*,h.1.mlp.* numerics.precision=bf16 async.delay=1 optim.name=muon",
    "train.frozen=h.0.*,h.2.ln_1.* async.sync_every=6 async.fragments=3 async.mixing=0.5",
    "lora.rank=2 numerics.precision=fp16 async.sync_every=4 async.fragments=2 async.delay=1",
    "async.mode=server async.staleness=2 lora.rank=2 numerics.precision=bf16",
    FEW_BITS "lora.base=nf4 async.delay=1 numerics.precision=bf16",
    FEW_BITS "lora.base=int8 async.mode=server",
};
enum { FROZEN = sizeof frozen / sizeof *frozen, FROZEN_BLOCKS = FROZEN - 2 };

CASE(test_what_is_frozen_is_held_once)
{
    static const char *const layouts[] = {
        "memory.offload.parameters=host",
        "",
        "parallel.dp_shard=2 parallel.zero=0",
        "parallel.dp_shard=2 parallel.zero=1 memory.offload.optimizer=host",
        "parallel.dp_shard=2 parallel.zero=2",
        "parallel.dp_shard=2 parallel.zero=3",
        "parallel.dp_shard=2 parallel.zero=3 memory.offload.gradients=host",
        "parallel.tp=2",
        "parallel.pp=2 parallel.tp=2",
    };
    enum { LAYOUTS = sizeof layouts / sizeof *layouts };
    int every = check_every(7, 7);
    for (int r = 0; r < FROZEN; r++) {
        bool blocks = r >= FROZEN_BLOCKS, server = strstr(frozen[r], "async.mode=server");
        /* One worker a rank, or each unit with memory of its own. */
        struct workers_run one = {.config =
                                      workers_config(*state, "%s %s", frozen[r],
                                                     blocks ? "parallel.workers=4" : layouts[0]),
                                  .evaluate = true};
        workers_run_well(&one);
        for (int l = 1; l < LAYOUTS; l++) {
            if ((l > 1 && (l + r) % every) || (server && strstr(layouts[l], "gradients")))
                continue;
            struct workers_run other = {.config =
                                            workers_config(*state, "%s %s parallel.workers=%d",
                                                           frozen[r], layouts[l], 1 + r % 2),
                                        .evaluate = true};
            workers_run_well(&other);
            workers_expect_alike(&one, &other, layouts[l]);
        }
    }
}

/* Evaluations read the global parameters where workers' are computed with. */
CASE(test_an_evaluation_changes_nothing)
{
    struct ls_config config = workers_config(*state, "numerics.precision=bf16 async.sync_every=2 "
                                                     "parallel.dp_shard=2 parallel.zero=3");
    struct workers_run with = {.config = config, .evaluate = true}, without = {.config = config};
    workers_run_well(&with);
    workers_run_well(&without);
    assert_true(with.told[5].evaluation > 0);
    for (int i = 0; i < 6; i++)
        assert_string_equal(with.hash[i], without.hash[i]);
}

/* ---- one group alone ------------------------------------------------------------------------- */

static _Thread_local int own_group, own_rank;
static _Thread_local const struct ls_trainer *own;
static int fails_behind = -1; /* so many steps a group's gradient is not finite; -1: never */
static int fails_in = 1;      /* that group */
static int stops_behind = -1; /* a signal ends its wait for samples */
/* How deltas, or sums of them, cannot leave, and in which group; -1: in all. */
static struct loss {
    int deltas, sums, in;
} loss;
static atomic_int lost;  /* how often they did not leave */
static atomic_int sums;  /* that were made of deltas that did not all come */
static bool cannot_read; /* rank 1 of the run, its workers' parameters */

static void group_note(struct ls_trainer *t)
{
    own_group = t->workers->group;
    own_rank = ls_comm_rank(t->whole);
    own = t;
}

/* A group that loses them as if another's rank had died waits for the others, which wait for it. */
static bool loses(int what)
{
    const double short_s = 0.2;
    bool here = what && (loss.in < 0 || loss.in == own_group);
    if (here && what == LS_ECOMM && loss.in >= 0)
        ls_comm_set_timeout(own->whole, short_s);
    lost += here;
    return here;
}

WRAPPED(ls_all_to_all_start);
int __wrap_ls_all_to_all_start(struct ls_comm *comm, const void *input, void *output, int64_t count,
                               enum ls_dtype dtype, struct ls_request *request,
                               struct ls_call_site site, struct ls_error *error)
{
    return loses(loss.deltas) ? ls_error_set(error, loss.deltas, "no deltas leave")
                              : __real_ls_all_to_all_start(comm, input, output, count, dtype,
                                                           request, site, error);
}

WRAPPED(ls_all_gather_start);
int __wrap_ls_all_gather_start(struct ls_comm *comm, const void *input, void *output, int64_t count,
                               enum ls_dtype dtype, struct ls_request *request,
                               struct ls_call_site site, struct ls_error *error)
{
    bool of_sums = own && own->workers && request == &own->workers->exchange.request;
    return of_sums && loses(loss.sums) ? ls_error_set(error, loss.sums, "no sums leave")
                                       : __real_ls_all_gather_start(comm, input, output, count,
                                                                    dtype, request, site, error);
}

WRAPPED(ls_delta_sum);
void __wrap_ls_delta_sum(struct ls_ops *ops, enum ls_delta_type type, const void *parts,
                         int64_t stride, int n, int64_t count, void *out)
{
    sums += loss.deltas != LS_OK;
    __real_ls_delta_sum(ops, type, parts, stride, n, count, out);
}

WRAPPED(ls_slice_visit_array);
int __wrap_ls_slice_visit_array(const struct ls_optimizer *optimizer, const struct ls_slice *slice,
                                int array, enum ls_access access, ls_slice_visit *visit, void *user,
                                struct ls_error *error)
{
    if (cannot_read && own_rank == 1 && array == LS_OPTIM_MASTER && access == LS_READS)
        return ls_error_set(error, LS_EIO, "a disk fails");
    return __real_ls_slice_visit_array(optimizer, slice, array, access, visit, user, error);
}

static double waits_s; /* for each batch */

WRAPPED(ls_loader_take);
int __wrap_ls_loader_take(struct ls_loader *loader, const int32_t **inputs, const int32_t **targets,
                          double *wait_s, struct ls_error *error)
{
    if (stops_behind >= 0 && own_group == 1 && own->state->step == stops_behind)
        return ls_error_set(error, LS_ESTOPPED, "a signal came");
    nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * waits_s)}, NULL);
    int status = __real_ls_loader_take(loader, inputs, targets, wait_s, error);
    *wait_s += waits_s;
    return status;
}

WRAPPED(ls_state_norm);
int __wrap_ls_state_norm(struct ls_state *state, double *norm, struct ls_error *error)
{
    int status = __real_ls_state_norm(state, norm, error);
    if (own_group == fails_in && state->step == fails_behind)
        *norm = NAN;
    return status;
}

/* The other groups wait for its deltas, and learn why there are none: also if none can leave, when
 * nothing is made of those that did not come, and nobody is waited for. */
CASE(test_a_step_that_fails_in_one_group_fails_in_all)
{
    static const struct {
        const char *keys;
        int behind, deltas;
    } cases[] = {{"", 1, LS_OK},
                 {"", 1, LS_ECOMM},
                 {"async.delay=1", 1, LS_ECOMM},
                 {"async.delta=int8", 1, LS_OK},
                 {"async.delay=1", 1, LS_OK},
                 {"async.delay=1", 2, LS_OK},
                 {"parallel.dp=2 parallel.zero=1 async.delay=1 async.delta=int8", 2, LS_OK}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct workers_run run = {
            .config =
                workers_config(*state, "parallel.workers=2 comm.timeout_s=4 %s", cases[i].keys),
            .made = group_note};
        fails_behind = cases[i].behind;
        loss = (struct loss){.deltas = cases[i].deltas, .in = -1};
        fails_in = loss.deltas ? 0 : 1; /* rank 0 tells what all learn */
        sums = 0;
        int status = workers_run(&run);
        fails_behind = -1;
        loss = (struct loss){0};
        assert_int_equal(sums, 0);
        if (status != LS_ENUMERIC || !strstr(run.error.text, "the gradient norm nan"))
            fail_msg("%s: status %d: %s", cases[i].keys, status, run.error.text);
    }
}

/* A rank that cannot start an operation, which the other group waits in, meets nobody, and that
 * group hears why. Only after LS_ECOMM do both wait. */
CASE(test_deltas_that_leave_one_group_alone)
{
    static const struct {
        const char *keys;
        struct loss loss;
    } cases[] = {{"", {.deltas = LS_ENOMEM, .in = 1}},
                 {"async.delay=1", {.deltas = LS_ENOMEM, .in = 1}},
                 {"", {.sums = LS_ENOMEM, .in = 1}},
                 {"async.delay=1", {.sums = LS_ENOMEM, .in = 1}},
                 {"", {.deltas = LS_ECOMM, .in = 1}}};
    static struct workers_run run; /* a rank that is given up goes on with it */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run = (struct workers_run){
            .config =
                workers_config(*state, "parallel.workers=2 comm.timeout_s=60 %s", cases[i].keys),
            .made = group_note};
        loss = cases[i].loss;
        sums = lost = 0;
        int expected = loss.deltas ? loss.deltas : loss.sums, status = workers_run(&run);
        loss = (struct loss){0};
        assert_int_equal(sums, 0);
        assert_true(lost > 0);
        if (status != expected || (status == LS_ENOMEM && !strstr(run.error.text, "rank 1: no ")))
            fail_msg("case %zu: status %d: %s", i, status, run.error.text);
    }
}

/* The ranks beside it cannot compute the steps behind that without it. */
CASE(test_a_rank_that_cannot_make_its_deltas_fails_in_all)
{
    struct workers_run run = {
        .config = workers_config(*state, "parallel.workers=2 parallel.dp=2 async.delay=1 "
                                         "comm.timeout_s=4"),
        .made = group_note};
    cannot_read = true;
    int status = workers_run(&run);
    cannot_read = false;
    if (status != LS_EIO || !strstr(run.error.text, "a disk fails"))
        fail_msg("status %d: %s", status, run.error.text);
}

CASE(test_a_signal_that_one_group_hears_stops_all)
{
    struct workers_run run = {.config =
                                  workers_config(*state, "parallel.workers=2 comm.timeout_s=4"),
                              .made = group_note};
    stops_behind = 1;
    int status = workers_run(&run);
    stops_behind = -1;
    if (status != LS_ESTOPPED || !strstr(run.error.text, "stopped while step 2 waited"))
        fail_msg("status %d: %s", status, run.error.text);
}

static bool samples_alone; /* the first group has a text, and the second one no memory for it */

WRAPPED(ls_runner_sample);
int __wrap_ls_runner_sample(struct ls_runner *runner, const char *prompt, char **text,
                            struct ls_error *error)
{
    if (!samples_alone)
        return __real_ls_runner_sample(runner, prompt, text, error);
    *text = own_group ? NULL : strdup(prompt);
    return own_group ? ls_no_memory(error, "for a sample") : LS_OK;
}

static atomic_int refused; /* groups that have no text */

static void group_sample(struct ls_trainer *t)
{
    char *text;
    group_note(t);
    refused += ls_trainer_sample(t, "text", &text, NULL) == LS_ENOMEM && !text;
}

CASE(test_a_sample_that_fails_in_one_group_fails_in_all)
{
    struct workers_run run = {
        .config = workers_config(*state, "parallel.workers=2"), .made = group_sample, .steps = 1};
    samples_alone = true;
    refused = 0;
    workers_run_well(&run);
    samples_alone = false;
    assert_int_equal(refused, 2);
}

static atomic_int asked_for_peak;
static bool some_know; /* of the ranks the first one that asks */

WRAPPED(ls_peak_given);
int __wrap_ls_peak_given(double *flops, struct ls_error *error)
{
    int status = __real_ls_peak_given(flops, error);
    if (some_know)
        *flops = asked_for_peak++ ? 0 : 1e12;
    return status;
}

/* An environment is that of a host. */
CASE(test_a_rate_that_one_group_is_given_counts_for_all)
{
    struct workers_run run = {
        .config = workers_config(*state, "parallel.workers=2 comm.timeout_s=4"), .whole = true};
    some_know = true;
    int status = workers_run(&run);
    some_know = false;
    if (status)
        fail_msg("%s", run.error.text);
}

/* ---- going on -------------------------------------------------------------------------------- */

CASE(test_a_run_goes_on_in_another_layout)
{
    static const struct {
        const char *recipe, *before, *after;
    } cases[] = {
        {"async.sync_every=6 async.fragments=3 async.delay=1 async.mixing=0.5",
         "parallel.workers=4", "parallel.workers=2 parallel.dp_shard=2 parallel.zero=3"},
        {"async.outer_optim=adamw async.delta=int8 numerics.precision=bf16",
         "parallel.workers=2 parallel.pp=2", "parallel.tp=2"},
        {"async.sync_every=2 async.delay=1 batch.global=4 batch.rampup_start=2 "
         "batch.rampup_increment=2 batch.rampup_samples=4 numerics.precision=fp16",
         "parallel.dp=2", "parallel.workers=4"},
        {"model.channels=128 model.ffn=128 lora.rank=2 lora.base=nf4 numerics.precision=bf16",
         "parallel.dp_shard=2 parallel.zero=2", "parallel.workers=2 parallel.tp=2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct workers_run whole = {.config = workers_config(*state, "%s", cases[i].recipe)};
        int half = (int)ls_config_interval(&whole.config) == 2 ? 4 : 3;
        workers_run_well(&whole);
        struct workers_run before = {.config = workers_config(*state, "%s %s train.out=%s/go%zu",
                                                              cases[i].recipe, cases[i].before,
                                                              (char *)*state, i),
                                     .steps = i == 0 ? 2 : half,
                                     .save = true};
        struct workers_run after = {.config = workers_config(*state,
                                                             "%s %s train.out=%s/go%zu "
                                                             "train.resume=auto",
                                                             cases[i].recipe, cases[i].after,
                                                             (char *)*state, i),
                                    .resume = true};
        workers_run_well(&before);
        workers_run_well(&after);
        assert_int_equal(after.first, before.steps);
        workers_expect_alike(&whole, &before, "before");
        workers_expect_alike(&whole, &after, "after");
        assert_string_equal(after.said, "");
    }
}

/* ---- what it must equal ---------------------------------------------------------------------- */

/* A worker that keeps all of its own parameters is a run without workers: on any number of them,
 * each takes its own samples; one takes all. */
static void expect_lone(const char *directory, const char *recipe)
{
    struct workers_run sync = {.config = workers_config(directory,
                                                        "async.mode=none async.workers=1 "
                                                        "async.sync_every=100 %s",
                                                        recipe)};
    struct workers_run lone = {
        .config =
            workers_config(directory, "async.workers=1 async.mixing=1 async.delay=1 %s", recipe)};
    struct workers_run mixed = {.config = workers_config(directory, "async.workers=1 %s", recipe)};
    workers_run_well(&sync);
    workers_run_well(&lone);
    workers_run_well(&mixed);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(sync.told[i].loss, lone.told[i].loss);
        assert_string_equal(sync.told[i].ledger, lone.told[i].ledger);
        assert_int_equal(sync.told[i].samples, lone.told[i].samples);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(sync.told[i].loss, mixed.told[i].loss);
    assert_int_not_equal(sync.told[3].loss, mixed.told[3].loss); /* the outer step is felt */
}

CASE(test_a_lone_worker_is_a_run_without_workers)
{
    expect_lone(*state, "");
    expect_lone(*state, "lora.rank=2 lora.base=nf4 model.channels=64 model.head_dim=64 "
                        "model.ffn=128 optim.lr=0.03");
}

/* A step takes one range of the run's samples, behind that of the step before: together each sample
 * once. The records' ledger is that of the range. */
CASE(test_each_sample_is_taken_once)
{
    struct workers_run run = {
        .config = workers_config(*state, "parallel.workers=2 batch.global=4 batch.rampup_start=2 "
                                         "batch.rampup_increment=2 batch.rampup_samples=4")};
    struct ls_training_data data;
    struct ls_error error = {0};
    int64_t first = 0;
    workers_run_well(&run);
    assert_ok(ls_training_data_open(&run.config, NULL, &data, &error), error);
    for (int i = 0; i < 6; i++) {
        const struct workers_told *told = &run.told[i];
        struct ls_digest digest = {0, 0};
        char expected[33];
        ls_blend_ledger(data.blend, first, told->sequences, &digest);
        ls_digest_hex(&digest, expected);
        assert_string_equal(told->ledger, expected);
        first += told->sequences;
        assert_int_equal(told->samples, first);
        assert_int_equal(told->sequences, i < 2 ? 8 : 16);
    }
    ls_training_data_close(&data);
}

/* Before the first meeting all workers have the parameters of a run without: the first step's loss
 * is that of one batch of all their samples, of which some tokens count. Each worker's mean is
 * rounded to float32 before they are joined, hence the tolerance; without weights it is 2e-4 off.
 */
CASE(test_a_loss_is_the_mean_over_all_tokens_that_count)
{
    enum { EXAMPLES = 60 };
    char lines[EXAMPLES * 160], *at = lines;
    for (int i = 0; i < EXAMPLES; i++)
        at += sprintf(at, "{\"prompt\": \"%.*s\", \"completion\": \"%0*d\"}\n", 1 + i * 37 % 50,
                      "What does the machine under the table in the hall say?", 1 + i * 17 % 40, i);
    examples_prepare(*state, "some", lines);
    struct workers_run runs[2];
    for (int i = 0; i < 2; i++) {
        runs[i] = (struct workers_run){
            .config = workers_config(*state,
                                     "data.train=%s/some_train data.valid= model.vocab=260 "
                                     "data.sequence=32 model.context=32 %s",
                                     (char *)*state,
                                     i ? "parallel.workers=2"
                                       : "async.mode=none async.workers=1 async.sync_every=100 "
                                         "batch.global=8"),
            .steps = 3};
        workers_run_well(&runs[i]);
    }
    const struct workers_told *one = &runs[0].told[0], *all = &runs[1].told[0];
    float losses[2];
    memcpy(&losses[0], &one->loss, sizeof *losses);
    memcpy(&losses[1], &all->loss, sizeof *losses);
    assert_string_equal(all->ledger, one->ledger);
    assert_int_equal(all->counted, one->counted);
    assert_in_range(all->counted, 1, 8 * 32 - 1);
    if (!(fabsf(losses[1] - losses[0]) <= 1e-6f * losses[0]))
        fail_msg("loss %.9g, expected %.9g", (double)losses[1], (double)losses[0]);
}

/* Ranks of all groups know one rate: that of the machine. Each measurement tells another one.
 * Measuring takes long: test_trainer.c and test_run.c do it. */
static double rates[4];

WRAPPED(ls_gemm_peak);
int __wrap_ls_gemm_peak(struct ls_ops *ops, enum ls_dtype dtype, double *flops_per_s,
                        struct ls_error *error)
{
    static atomic_int measured;
    *flops_per_s = 1e12 * ++measured;
    return check_all() ? __real_ls_gemm_peak(ops, dtype, flops_per_s, error) : LS_OK;
}

static void rate_take(struct ls_trainer *t)
{
    struct ls_error error = {0};
    assert_ok(ls_trainer_measure_peak(t, &error), error);
    rates[ls_comm_rank(t->whole)] = t->peak_flops;
}

CASE(test_the_peak_is_that_of_all_groups)
{
    struct workers_run run = {.config = workers_config(*state, "parallel.workers=2 parallel.dp=2"),
                              .made = rate_take};
    workers_run_well(&run);
    for (int i = 0; i < 4; i++)
        if (!(rates[i] > 0) || rates[i] != rates[0])
            fail_msg("rank %d: %.17g FLOP/s, rank 0: %.17g", i, rates[i], rates[0]);
}

/* ---- times ----------------------------------------------------------------------------------- */

static double recorded(const char *line, const char *key)
{
    const char *value = strstr(line, key);
    if (!value || value > line + strcspn(line, "\n"))
        fail_msg("no %s in: %s", key, line);
    return strtod(value + strlen(key), NULL);
}

/* A group that has all four workers waits four times; the parts of a step, of which tp is one, are
 * the whole of it. Two pushes to a server are under way at a time. */
static void expect_times(const char *directory, const char *out, const char *keys, double waited_s,
                         double tokens)
{
    static const char *const parts[] = {"\"compute_s\": ", "\"optimizer_s\": ", "\"wait_data_s\": ",
                                        "\"wait_tp_s\": ", "\"wait_other_s\": "};
    struct workers_run run = {
        .config =
            workers_config(directory, "parallel.tp=2 train.out=%s/%s %s", directory, out, keys),
        .whole = true};
    int steps = 0;
    waits_s = 0.004;
    workers_run_well(&run);
    waits_s = 0;
    char *text = scratch_read(scratch_path(run.config.train.out, "metrics.jsonl"), NULL);
    for (const char *line = text; (line = strstr(line, "\"step_s\": ")); line++, steps++) {
        double sum = 0, step_s = recorded(line, "\"step_s\": ");
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            sum += recorded(line, parts[i]);
        bool meets = steps % 3 == 2; /* parts are means over ranks then */
        if ((!meets && !(fabs(sum - step_s) <= 0.01 * step_s)) || !(recorded(line, parts[3]) > 0) ||
            recorded(line, "\"data_wait_s\": ") < waited_s ||
            !(fabs(recorded(line, "\"tokens_per_s\": ") * step_s - tokens) <= 0.01 * tokens))
            fail_msg("%s: parts of %g s are %g s: %s", keys, step_s, sum, line);
    }
    assert_int_equal(steps, 6);
    free(text);
}

CASE(test_the_parts_of_a_step)
{
    expect_times(*state, "one", "parallel.workers=1", 4 * 0.004, 64);
    expect_times(*state, "two", "parallel.workers=2", 2 * 0.004, 64);
    expect_times(*state, "server", "async.mode=server parallel.workers=2", 0.004, 32);
}

/* ---- what moves ------------------------------------------------------------------------------ */

/* Bytes that ranks sent to other groups of workers; without workers, to each other. */
static _Atomic int64_t sent, sent_deltas;

WRAPPED(ls_trainer_free);
void __wrap_ls_trainer_free(struct ls_trainer *t)
{
    struct ls_comm_stats stats[LS_GROUPS] = {{0}};
    if (t && t->workers && t->workers->across)
        ls_comm_get_stats(t->workers->across, stats);
    else if (t)
        ls_trainer_stats(t, stats);
    for (int g = 0; g < LS_GROUPS; g++) {
        sent += stats[g].sent_bytes - stats[g].kind[LS_COMM_OTHER].sent_bytes;
        sent_deltas += stats[g].kind[LS_COMM_ALL_TO_ALL].sent_bytes;
    }
    __real_ls_trainer_free(t);
}

static void count_sent(const char *directory, const char *keys)
{
    struct workers_run run = {.config = workers_config(directory, "train.steps=12 %s", keys)};
    sent = sent_deltas = 0;
    workers_run_well(&run);
}

/* Twelve steps of four workers, each a rank: the bytes of synchronous steps (one leaf a rank), by
 * the interval, and by the type of deltas. Words beside them, such as losses, are few. */
CASE(test_bytes_between_workers_fall_with_the_interval)
{
    static const struct {
        const char *keys;
        int share;
    } cases[] = {
        {"async.sync_every=2", 2},
        {"async.sync_every=6 async.fragments=3", 6},
        {"async.sync_every=12", 12},
        {"async.sync_every=12 async.delta=bf16", 24},
        {"async.sync_every=12 async.delta=int8", 48},
    };
    char keys[200];
    count_sent(*state, "async.mode=none async.workers=1 async.sync_every=100 batch.global=8 "
                       "numerics.leaf_sequences=2 parallel.dp=4");
    int64_t synchronous = sent;
    count_sent(*state, "async.sync_every=1 parallel.workers=4");
    int64_t every = sent_deltas, words = sent - 2 * sent_deltas;    /* there and back */
    assert_in_range(synchronous, 2 * every, 2 * every + every / 4); /* losses, norms */
    assert_in_range(words, 1, every / 50);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(keys, sizeof keys, "%s parallel.workers=4", cases[i].keys);
        count_sent(*state, keys);
        assert_int_equal(sent_deltas * cases[i].share, every);
        if (!strstr(keys, "async.delta")) /* else sums come back in another type */
            assert_in_range(sent - 2 * sent_deltas, 1, words);
    }
}

SUITE_MAIN(workers_setup, scratch_teardown)
