/* A parameter server (async.mode = server) whose order is computed from async.times: who computes
 * which worker, and whether a server has ranks of its own, is layout. Recipes of every key give the
 * same losses, ledgers, evaluations and hashes in every layout; they stop and go on in another one;
 * every push is of the batch, and as stale, as the definition says; and a lone worker trains as a
 * run without workers does. */
#include "../support/checkpoints.h"
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "pushes.h"
#include "tokens.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SERVER                                                                                     \
    "async.mode=server async.sync_every=4 train.steps=12 train.save_every=4 log.hash_every=4 "

/* ---- recipes and layouts --------------------------------------------------------------------- */

/* The loss scale falls, and grows again. */
#define FP16                                                                                       \
    "numerics.precision=fp16 numerics.initial_scale_power=26 numerics.hysteresis=1 "               \
    "numerics.loss_scale_window=2 "
#define BF16 "numerics.precision=bf16"

static const char *const recipes[] = {
    "",
    "async.staleness=2 async.times=1,1,1,4",
    "async.staleness=0 async.compensation=0.04 async.times=2,1,3,4",
    "async.compensation=2 async.staleness_lr=inverse async.times=3,2,5,7 optim.name=muon "
    "model.arch=llama model.ffn=32",
    "async.staleness=1 model.arch=llama model.ffn=32 model.tied=true async.compensation=1",
    "lora.rank=2 async.compensation=1 async.times=1,2,1,2",
    "blend async.staleness=3 async.times=5,1,1,1 numerics.precision=bf16",
    "model.dropout=0.1 optim.name=lion async.staleness_lr=inverse",
    FP16 "async.compensation=0.5 async.times=1,3,1,1 async.staleness=1",
    "optim.name=sgd optim.momentum=0 optim.lr=900 optim.clip=0 train.on_nonfinite=skip "
    "numerics.precision=bf16 async.times=1,3,1,1",
    "data.sequence=256 model.context=256 numerics.seq_tiles=2 async.times=4,1,1,1 "
    "optim.moments=bf16",
};
enum { RECIPES = sizeof recipes / sizeof *recipes, SKIPS = RECIPES - 2, CP = RECIPES - 1 };

static const char *const groups[] = {
    "parallel.workers=1",
    "parallel.workers=2",
    "parallel.workers=4",
    "parallel.workers=4 parallel.servers=1",
};
enum { GROUPS = 4 };

static float bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Each recipe in so many layouts, one after the other, that each has its turn. */
CASE(test_layouts_of_a_server_give_the_same_bits)
{
    int every = check_every(43, 37), runs = 0;
    for (int r = 0; r < RECIPES; r++) {
        struct workers_run one = {.config = workers_config(*state, "%s " SERVER, recipes[r]),
                                  .evaluate = r != SKIPS};
        workers_run_well(&one);
        const char *wrong = pushes_wrong(&one);
        if (wrong)
            fail_msg("%s: %s", recipes[r], wrong);
        for (int l = 0; l < WORKERS_LAYOUTS * GROUPS; l++) {
            struct workers_run other = {.evaluate = one.evaluate};
            int layout = l / GROUPS, group = (l + r) % GROUPS;
            if ((layout >= WORKERS_LAYOUTS_CP && r != CP) || (l + 7 * r) % every)
                continue;
            other.config = workers_config(*state, "%s %s %s " SERVER, recipes[r],
                                          workers_layouts[layout], groups[group]);
            workers_run_well(&other);
            workers_expect_alike(
                &one, &other, other.config.parallel.servers ? "servers" : workers_layouts[layout]);
            runs++;
        }
    }
    printf("%d recipes in %d layouts\n", RECIPES, runs);
}

/* A group computes its workers' gradients ahead of their pushes: what is said of each is its own.
 */
CASE(test_sources_are_told_of_the_push)
{
    struct workers_run one = {.config = workers_config(*state, "blend " SERVER)};
    struct workers_run two = {.config = workers_config(*state, "blend parallel.workers=2 " SERVER)};
    int of_one = 0; /* steps whose samples are all of one source */
    workers_run_well(&one);
    workers_run_well(&two);
    workers_expect_alike(&one, &two, "parallel.workers=2");
    for (int e = 0; e < 12; e++)
        of_one += isnan(bits_float(one.told[e].source_losses[1]));
    assert_in_range(of_one, 1, 11);
}

/* The recipe that skips does: what is compared above is not the skipping of nothing. */
CASE(test_the_recipe_that_skips_does)
{
    struct workers_run run = {.config = workers_config(*state, SERVER "%s", recipes[SKIPS])};
    workers_run_well(&run);
    assert_true(isfinite(bits_float(run.told[0].loss)));
    assert_false(isfinite(bits_float(run.told[11].loss)));
}

/* ---- what it must equal ---------------------------------------------------------------------- */

/* One worker never waits and is never late: synchronous training, in its losses, norms and ledgers
 * and in every tensor of its checkpoint. */
CASE(test_a_lone_worker_is_a_run_without_workers)
{
    for (int i = 0; i < 3; i++) {
        const char *optimizer = i == 1 ? "muon" : "adamw";
        const char *servers = i ? "parallel.servers=1" : "", *precision = i == 2 ? FP16 : BF16;
        struct workers_run runs[2] = {{.save = true}, {.save = true}};
        char a[1024], b[1024];
        runs[0].config = workers_config(*state,
                                        "async.mode=none async.workers=1 async.sync_every=100 "
                                        "train.steps=12 optim.name=%s %s train.out=%s/sync%d",
                                        optimizer, precision, (char *)*state, i);
        runs[1].config = workers_config(*state,
                                        SERVER "async.workers=1 async.compensation=1 optim.name=%s "
                                               "%s %s train.out=%s/lone%d",
                                        optimizer, precision, servers, (char *)*state, i);
        workers_run_well(&runs[0]);
        workers_run_well(&runs[1]);
        for (int s = 0; s < 12; s++) {
            assert_int_equal(runs[0].told[s].loss, runs[1].told[s].loss);
            assert_memory_equal(&runs[0].told[s].grad_norm, &runs[1].told[s].grad_norm,
                                sizeof(double));
            assert_string_equal(runs[0].told[s].ledger, runs[1].told[s].ledger);
            assert_int_equal(runs[0].told[s].samples, runs[1].told[s].samples);
        }
        snprintf(a, sizeof a, "%s/checkpoints/step-00000012", runs[0].config.train.out);
        snprintf(b, sizeof b, "%s/checkpoints/step-00000012", runs[1].config.train.out);
        expect_same_checkpoints(a, b, optimizer);
    }
}

/* A bound of 0 is bulk synchronous: whatever the times, workers push in turn, and all gradients of
 * a clock are of one version. */
CASE(test_no_staleness_is_bulk_synchronous)
{
    struct workers_run fast = {.config = workers_config(*state, SERVER "async.staleness=0")};
    struct workers_run slow = {
        .config = workers_config(*state, SERVER "async.staleness=0 async.times=4,1,3,2")};
    workers_run_well(&fast);
    workers_run_well(&slow);
    for (int e = 0; e < 12; e++) {
        assert_int_equal(slow.told[e].worker, e % 4);
        assert_int_equal(slow.told[e].clock, e / 4);
        assert_int_equal(slow.told[e].staleness, e % 4);
        assert_int_equal(slow.told[e].loss, fast.told[e].loss);
    }
    for (int m = 3; m < 12; m += 4) /* the times are of the recipe, and so of no hash */
        assert_string_equal(slow.hash[m], fast.hash[m]);
}

/* A slow worker pushes less, and what it pushes is stale. */
CASE(test_a_slow_worker_pushes_less)
{
    struct workers_run run = {.config = workers_config(*state, SERVER "async.times=1,1,1,4")};
    int pushes[4] = {0};
    workers_run_well(&run);
    for (int e = 0; e < 12; e++)
        pushes[run.told[e].worker]++;
    assert_int_equal(pushes[3], 0);
    assert_int_equal(pushes[0], 4);
}

/* ---- going on -------------------------------------------------------------------------------- */

CASE(test_a_run_goes_on_in_another_layout)
{
    static const struct {
        const char *recipe, *before, *after;
    } cases[] = {
        {"async.staleness=2 async.times=1,1,1,4 async.compensation=1",
         "parallel.workers=4 parallel.servers=1",
         "parallel.workers=2 parallel.dp_shard=2 parallel.zero=3"},
        {"async.times=3,2,5,7 async.staleness_lr=inverse optim.name=muon",
         "parallel.workers=2 parallel.pp=2", "parallel.workers=4 parallel.servers=1"},
        {"async.staleness=0 async.times=2,1,3,4 numerics.precision=bf16", "parallel.dp=2",
         "parallel.workers=4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct workers_run whole = {.config = workers_config(*state, SERVER "%s", cases[i].recipe)};
        struct workers_run before = {
            .config = workers_config(*state, SERVER "%s %s train.out=%s/go%zu", cases[i].recipe,
                                     cases[i].before, (char *)*state, i),
            .steps = i == 1 ? 8 : 4,
            .save = true};
        struct workers_run after = {
            .config = workers_config(*state, SERVER "%s %s train.out=%s/go%zu train.resume=auto",
                                     cases[i].recipe, cases[i].after, (char *)*state, i),
            .resume = true};
        workers_run_well(&whole);
        workers_run_well(&before);
        workers_run_well(&after);
        assert_int_equal(after.first, before.steps);
        workers_expect_alike(&whole, &before, "before");
        workers_expect_alike(&whole, &after, "after");
        assert_string_equal(after.said, "");
    }
}

/* Over a stop and a change of layout each batch is pushed once; those below the highest that are
 * not are what workers still compute on, one each at most. */
CASE(test_each_batch_is_pushed_once)
{
    static const char words[] = SERVER "async.staleness=2 async.times=1,2,1,7 train.out=%s/once %s";
    struct workers_run before = {
        .config = workers_config(*state, words, (char *)*state, "parallel.workers=4"),
        .steps = 8,
        .save = true};
    struct workers_run after = {
        .config = workers_config(*state, words, (char *)*state,
                                 "train.resume=auto parallel.workers=4 parallel.servers=1"),
        .resume = true};
    int pushed[64] = {0}, highest = 0, missing = 0;
    workers_run_well(&before);
    workers_run_well(&after);
    assert_int_equal(after.first, 8);
    memcpy(after.told, before.told, 8 * sizeof *after.told);
    assert_null(pushes_wrong(&after));
    for (int e = 0; e < 12; e++) {
        int ticket = (int)after.told[e].ticket;
        assert_in_range(ticket, 0, 63);
        assert_int_equal(pushed[ticket]++, 0);
        highest = ticket > highest ? ticket : highest;
    }
    for (int i = 0; i < highest; i++)
        missing += !pushed[i];
    assert_in_range(missing, 1, 3);
}

/* ---- keys ------------------------------------------------------------------------------------ */

CASE(test_keys_that_cannot_be_kept)
{
    static const struct {
        const char *words, *key, *says;
    } cases[] = {
        {"async.times=1,1,1", "async.times = \"1,1,1\"", "async.workers = 4, and there are 3"},
        {"async.times=1,1,1,1,1", "async.times = ", "there are 5"},
        {"async.times=1,0,1,1", "async.times = ", "whole numbers from 1 to 1048576"},
        {"async.times=1,1,1,", "async.times = ", "commas between, such as 1,1,1,4"},
        {"async.times=1,1,1,x", "async.times = ", "such as 1,1,1,4"},
        {"batch.global=4 batch.rampup_start=2 batch.rampup_increment=2 batch.rampup_samples=4",
         "batch.rampup_start = 2", "no ramp-up"},
        {"train.steps=13", "train.steps = 13", "expected 12 or 16 steps"},
        {"async.staleness=-1", "async.staleness", "free"},
        {"async.order=arrival", "async.order", "clock"},
        {"async.compensation=-1", "async.compensation = -1", "from 0"},
        {"async.staleness_lr=linear", "async.staleness_lr", "inverse"},
        {"async.mode=diloco async.staleness=2", "async.staleness = 2", "async.mode"},
        {"async.mode=diloco async.times=1,1,1,1", "async.times = ", "async.mode"},
        {"async.outer_lr=0.5", "async.outer_lr = 0.5", "async.mode"},
        {"async.order=clock async.times=1,1,1,4", "async.times = ", "async.order"},
        {"async.follow=elsewhere", "async.follow = ", "async.order"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_config config;
        struct ls_error error = {0};
        char words[1024];
        snprintf(words, sizeof words, SERVER "%s", cases[i].words);
        int status = workers_config_try(&config, &error, *state, words);
        if (status != LS_ECONFIG || !strstr(error.text, cases[i].key) ||
            !strstr(error.text, cases[i].says))
            fail_msg("%s: status %d: %s", cases[i].words, status, error.text);
    }
}

CASE(test_layouts_that_are_refused)
{
    static const char *const cases[][3] = {
        {"parallel.servers=1", "parallel.servers = 1", "parallel.workers = async.workers = 4"},
        {"parallel.workers=2 parallel.servers=1", "parallel.servers = 1", "async.workers = 4"},
        {"parallel.workers=3", "parallel.workers = 3", "divisor of async.workers = 4"},
        {"async.mode=diloco parallel.workers=4 parallel.servers=1", "parallel.servers = 1",
         "expected 0 without async.mode = server"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_config config = workers_config(*state, SERVER "%s", cases[i][0]);
        struct ls_memory_plan plan;
        struct ls_error error = {0};
        int status = ls_plan(&config, &plan, &error);
        if (status != LS_ELAYOUT || !strstr(error.text, cases[i][1]) ||
            !strstr(error.text, cases[i][2]))
            fail_msg("%s: status %d: %s", cases[i][0], status, error.text);
    }
}

/* Steps for which the data of a source's few epochs are enough; the refusal of more names them. */
static int steps_admitted(const char *directory, const char *words)
{
    for (int steps = 1; steps <= 12; steps++) {
        struct workers_run run = {
            .config = workers_config(directory,
                                     "%s train.steps=%d data.train= data.blend=[{\"source\":"
                                     "\"u16:%s/tokens.bin\",\"weight\":1,\"epochs\":0.02}]",
                                     words, steps, directory)};
        int status = workers_run(&run);
        char says[64];
        snprintf(says, sizeof says, "the data ends behind step %d:", steps - 1);
        if (status && !strstr(run.error.text, says))
            fail_msg("%s, %d steps: %s", words, steps, run.error.text);
        if (status)
            return steps - 1;
    }
    return 12;
}

/* Beside the batches that are pushed there is one in the hands of each other worker. */
CASE(test_the_end_of_the_data)
{
#define AT_ONCE "async.mode=server async.sync_every=1 "
    static const char *const four[] = {AT_ONCE, AT_ONCE "parallel.workers=4",
                                       AT_ONCE "parallel.workers=4 parallel.servers=1"};
    int sync = steps_admitted(*state, "async.mode=none async.workers=1 async.sync_every=100");
    assert_in_range(sync, 5, 11);
    assert_int_equal(steps_admitted(*state, AT_ONCE "async.workers=1"), sync);
    for (int i = 0; i < 3; i++)
        assert_int_equal(steps_admitted(*state, four[i]), sync - 3);
}

SUITE_MAIN(workers_setup, scratch_teardown)
