/* check.replay: steps that other ranks compute again change no bit; and a rank that computes
 * wrongly what nobody else holds is found, which no comparison of copies does. */
#include "../../src/train/step_replay.h"

#include "../support/config_words.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "tokens.h"

#include <lockstep/trace.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- a rank at fault ------------------------------------------------------------------------- */

static enum fault {
    NONE,
    ONCE,      /* its first trainer, in step 3 */
    EVERY,     /* whatever it computes, from step 3 on */
    OF_A_PLACE /* whoever computes its place: as if the replay had not turned the ranks */
} fault;
enum { FAULTY = 1, STEP = 3, LAST = 4 };

static int ranks;
static _Thread_local int rank;                         /* of the world: a core */
static _Thread_local const struct ls_optimizer *first; /* of the trainer of the run */

static uint32_t flips = 1;

/* A bit of the masters that this rank alone holds. */
WRAPPED(ls_optimizer_step);
int __wrap_ls_optimizer_step(struct ls_optimizer *optimizer, struct ls_ops *ops,
                             const struct ls_slice *slices, int count,
                             const struct ls_optim_step *step, struct ls_error *error)
{
    if (!first)
        first = optimizer;
    int place = optimizer == first ? rank : (rank + 1) % ranks;
    bool faulty = (fault == ONCE && rank == FAULTY && optimizer == first && step->step == STEP) ||
                  (fault == EVERY && rank == FAULTY && step->step >= STEP) ||
                  (fault == OF_A_PLACE && place == FAULTY && step->step >= STEP);
    int status = __real_ls_optimizer_step(optimizer, ops, slices, count, step, error);
    for (int i = 0; i < count && faulty && !status; i++) {
        if (!slices[i].master || slices[i].part->count == 0)
            continue;
        uint32_t bits;
        memcpy(&bits, slices[i].master, sizeof bits);
        bits ^= flips;
        memcpy(slices[i].master, &bits, sizeof bits);
        return status;
    }
    return status;
}

/* A twin: the second trainer is compared with the first one's hash, whatever it computed. */
static bool compares_nothing;
static _Thread_local struct ls_digest last_hash;
static _Thread_local const struct ls_trainer *last_trainer;
WRAPPED(ls_trainer_hash);
int __wrap_ls_trainer_hash(struct ls_trainer *trainer, struct ls_digest *digest,
                           struct ls_error *error)
{
    int status = __real_ls_trainer_hash(trainer, digest, error);
    if (compares_nothing && last_trainer && last_trainer != trainer)
        *digest = last_hash;
    last_trainer = trainer;
    last_hash = *digest;
    return status;
}

/* ---- a run ----------------------------------------------------------------------------------- */

static int body(struct ls_comm *world, void *user, struct ls_error *error)
{
    rank = ls_comm_rank(world);
    first = NULL;
    last_trainer = NULL;
    return ls_run(user, world, NULL, NULL, error);
}

struct outcome {
    int status, replays;
    char hash[33];
    struct ls_error error;
};

static void record_visit(void *user, const struct ls_record *record)
{
    struct outcome *outcome = user;
    const char *event = ls_record_text(record, "event"), *hash = ls_record_text(record, "hash");
    outcome->replays += event && strcmp(event, "replay") == 0;
    if (hash)
        snprintf(outcome->hash, sizeof outcome->hash, "%s", hash);
}

static int number; /* of the last run */

static struct outcome run(void **state, const char *words)
{
    char path[PATH_MAX];
    bool torn;
    struct outcome outcome = {0};
    struct ls_config config = config_of_words(
        "model.vocab=50 model.vocab_multiple=16 model.layers=2 model.channels=32 model.heads=4 "
        "model.context=32 data.train=u16:%s/tokens.bin data.sequence=32 batch.global=4 "
        "parallel.threads=1 log.tensorboard=false train.steps=%d train.out=%s/run%d %s",
        (char *)*state, LAST, (char *)*state, ++number, words);
    ranks = (int)ls_config_ranks(&config);
    outcome.status = ls_world_run(ranks, body, &config, &outcome.error);
    snprintf(path, sizeof path, "%s/metrics.jsonl", config.train.out);
    if (ls_jsonl_each(path, record_visit, &outcome, &torn, NULL))
        outcome.replays = -1;
    return outcome;
}

/* ---- no bit changes -------------------------------------------------------------------------- */

CASE(test_replays_change_nothing)
{
    static const char *const layouts[] = {
        "parallel.dp=2 parallel.zero=1",
        "parallel.dp=3 parallel.zero=3 batch.global=6",
        "parallel.tp=2 parallel.pp=2 optim.moments=bf16",
        "parallel.dp=4 optim.name=muon parallel.zero=2",
        "parallel.dp=2 numerics.precision=fp16 lora.rank=2",
        "parallel.dp=2 memory.offload.optimizer=host memory.offload.parameters=host",
    };
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        char words[400];
        struct outcome plain = run(state, layouts[i]);
        snprintf(words, sizeof words, "%s check.replay=1", layouts[i]);
        struct outcome twice = run(state, words);
        if (plain.status || twice.status)
            fail_msg("%s: %s%s", layouts[i], plain.error.text, twice.error.text);
        assert_int_equal(strlen(plain.hash), 32);
        assert_string_equal(plain.hash, twice.hash);
        assert_int_equal(plain.replays, 0);
        assert_int_equal(twice.replays, LAST);
    }
}

/* With workers all steps up to where they meet, by the ranks of another group. */
#define DILOCO "async.mode=diloco async.workers=2 async.sync_every=2 "
#define SERVER "async.mode=server async.workers=2 async.sync_every=2 "
CASE(test_replays_of_workers_change_nothing)
{
    static const struct {
        const char *recipe, *layout;
    } runs[] = {
        {DILOCO, "parallel.workers=2"},
        {DILOCO "async.workers=3 optim.name=muon", "parallel.workers=3 parallel.tp=2"},
        {DILOCO "numerics.precision=fp16 model.dropout=0.1", "parallel.dp=2 parallel.zero=3"},
        {DILOCO "async.sync_every=4 async.fragments=2 async.delay=1 async.delta=int8",
         "parallel.workers=2 parallel.pp=2"},
        {SERVER "async.times=1,3", "parallel.workers=2"},
        {SERVER "async.times=1,3 async.staleness=1 numerics.precision=fp16",
         "parallel.workers=2 parallel.dp=2 parallel.zero=1"},
    };
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        char words[400];
        struct outcome plain = run(state, runs[i].recipe);
        snprintf(words, sizeof words, "%s %s check.replay=1", runs[i].recipe, runs[i].layout);
        struct outcome twice = run(state, words);
        if (plain.status || twice.status)
            fail_msg("%s: %s%s", words, plain.error.text, twice.error.text);
        assert_int_equal(strlen(plain.hash), 32);
        if (strcmp(plain.hash, twice.hash))
            fail_msg("%s: hash %s, expected %s", words, twice.hash, plain.hash);
        assert_int_equal(twice.replays, LAST / 2);
    }
}

/* Workers leave, and come back: the second trainer asks for nobody, and has who took part. */
static bool asks;
WRAPPED(replay_new);
int __wrap_replay_new(struct ls_trainer *trainer, struct replay **out, struct ls_error *error)
{
    char path[PATH_MAX];
    FILE *file;
    snprintf(path, sizeof path, "%s/members.wanted", trainer->config.train.out);
    if (asks && ls_comm_rank(trainer->whole) == 0 && (file = fopen(path, "w"))) {
        fputs(ls_trainer_steps(trainer) == 2 ? "0-2\n" : "0,2\n", file);
        fclose(file);
    }
    return __real_replay_new(trainer, out, error);
}

CASE(test_replays_of_workers_that_leave)
{
    static const char recipe[] = DILOCO "async.workers=3";
    char words[PATH_MAX + 400];
    snprintf(words, sizeof words, "%s parallel.workers=3 check.replay=1", recipe);
    asks = true;
    struct outcome left = run(state, words);
    asks = false;
    struct outcome all = run(state, recipe);
    assert_ok(left.status, left.error);
    assert_string_not_equal(left.hash, all.hash);
    assert_int_equal(left.replays, LAST / 2);
    snprintf(words, sizeof words, "%s async.follow=%s/run%d", recipe, (char *)*state, number - 1);
    struct outcome follows = run(state, words);
    assert_ok(follows.status, follows.error);
    assert_string_equal(left.hash, follows.hash);
}

/* A tier's file beside the one of the run. */
CASE(test_a_replay_offloads_to_a_folder_of_its_own)
{
    char words[PATH_MAX + 200];
    snprintf(words, sizeof words,
             "parallel.dp=2 memory.offload.optimizer=file memory.file=%s/tier check.replay=1",
             (char *)*state);
    struct outcome offloaded = run(state, words), plain = run(state, "parallel.dp=2");
    if (offloaded.status)
        fail_msg("%s", offloaded.error.text);
    assert_string_equal(offloaded.hash, plain.hash);
}

/* Where the system refuses that folder, each step is computed once. */
CASE(test_a_replay_without_a_folder)
{
    char words[PATH_MAX + 200], path[PATH_MAX];
    snprintf(path, sizeof path, "%s/full", (char *)*state);
    assert_int_equal(mkdir(path, 0777), 0);
    snprintf(path, sizeof path, "%s/full/replay", (char *)*state);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    snprintf(words, sizeof words,
             "parallel.dp=2 memory.offload.optimizer=file memory.file=%s/full check.replay=1",
             (char *)*state);
    struct outcome once = run(state, words), plain = run(state, "parallel.dp=2");
    assert_ok(once.status, once.error);
    assert_string_equal(once.hash, plain.hash);
    assert_int_equal(once.replays, 0);
}

/* Which steps: a function of the seed and the step, in about that share. */
CASE(test_which_steps)
{
    struct ls_config config =
        config_of_words("model.preset=gpt2-tiny model.vocab=50 check.replay=0.25");
    int due = 0, other = 0;
    for (int64_t step = 1; step <= 4000; step++) {
        bool now = replay_due(&config, step);
        due += now;
        config.model_keys.seed++;
        other += now != replay_due(&config, step);
        config.model_keys.seed--;
    }
    assert_in_range(due, 900, 1100);
    assert_true(other > 1000);
    config.check.replay = 0;
    for (int64_t step = 1; step <= 4000; step++)
        assert_false(replay_due(&config, step));
    config.check.replay = 1;
    for (int64_t step = 1; step <= 4000; step++)
        assert_true(replay_due(&config, step));
}

/* ---- a fault is found ------------------------------------------------------------------------ */

static struct outcome run_with(void **state, enum fault with, const char *words)
{
    fault = with;
    struct outcome outcome = run(state, words);
    fault = NONE;
    return outcome;
}

static void expect_found(const struct outcome *found, const char *who)
{
    char words[200];
    snprintf(words, sizeof words,
             "step %d was computed twice, each part by two ranks, and the "
             "results differ: memory or arithmetic %s is faulty",
             STEP, who);
    if (found->status != LS_ENUMERIC || !strstr(found->error.text, words))
        fail_msg("status %d: %s; expected: %s", found->status, found->error.text, words);
    assert_int_equal(found->replays, STEP - 1);
}

#define ONE_HOLDER "parallel.dp=4 parallel.zero=1 "

/* One rank a worker: what it computes wrongly comes to all with the outer step, if that does not
 * round it away. */
CASE(test_a_fault_in_a_worker)
{
    flips = 1 << 20;
    struct outcome right = run_with(state, NONE, DILOCO "parallel.workers=2");
    struct outcome wrong = run_with(state, EVERY, DILOCO "parallel.workers=2");
    struct outcome found = run_with(state, EVERY, DILOCO "parallel.workers=2 check.replay=1");
    assert_int_equal(wrong.status, LS_OK);
    assert_string_not_equal(right.hash, wrong.hash);
    if (found.status != LS_ENUMERIC ||
        !strstr(found.error.text, "the 2 steps of workers up to step 4 were computed twice"))
        fail_msg("status %d: %s", found.status, found.error.text);
    assert_int_equal(found.replays, 1);

    compares_nothing = true;
    found = run_with(state, EVERY, DILOCO "parallel.workers=2 check.replay=1");
    compares_nothing = false;
    assert_int_equal(found.status, LS_OK);
    flips = 1;
}

/* ZeRO 1: nobody else holds these masters. */
CASE(test_copies_do_not_show_it)
{
    struct outcome right = run_with(state, NONE, ONE_HOLDER);
    struct outcome wrong = run_with(state, ONCE, ONE_HOLDER);
    assert_int_equal(wrong.status, LS_OK);
    assert_string_not_equal(right.hash, wrong.hash);
}

CASE(test_a_faulty_rank_is_named)
{
    struct outcome found = run_with(state, EVERY, ONE_HOLDER "check.replay=1");
    expect_found(&found, "of rank 1");
    found = run_with(state, EVERY, "parallel.dp=2 parallel.zero=1 check.replay=1");
    expect_found(&found, "of rank 0 or rank 1");
}

CASE(test_a_bit_that_flips_once)
{
    struct outcome found = run_with(state, ONCE, ONE_HOLDER "check.replay=1");
    expect_found(&found, "of rank 0 or rank 1");
}

/* What a place computes wrongly, whoever computes it, is no fault of a core: a replay by the same
 * ranks would find as little of one. */
CASE(test_without_turning_it_is_not_found)
{
    struct outcome unseen = run_with(state, OF_A_PLACE, ONE_HOLDER "check.replay=1");
    assert_int_equal(unseen.status, LS_OK);
    assert_int_equal(unseen.replays, LAST);
}

CASE(test_a_replay_that_compares_nothing_is_caught)
{
    compares_nothing = true;
    struct outcome unseen = run_with(state, EVERY, ONE_HOLDER "check.replay=1");
    compares_nothing = false;
    assert_int_equal(unseen.status, LS_OK);
}

/* ---- bad input, and memory ------------------------------------------------------------------- */

CASE(test_refusals)
{
    struct outcome refused = run(state, "check.replay=0.5");
    assert_int_equal(refused.status, LS_ECONFIG);
    assert_non_null(strstr(refused.error.text, "check.replay = 0.5: a step is computed again by "
                                               "other ranks, and there is one"));
    refused = run(state, "parallel.dp=2 numerics.mode=fast check.replay=0.5");
    assert_int_equal(refused.status, LS_ECONFIG);
    assert_non_null(strstr(refused.error.text, "numerics.mode=fast"));
    refused = run(state, SERVER "async.order=clock parallel.workers=2 parallel.servers=1 "
                                "check.replay=1");
    assert_int_equal(refused.status, LS_ECONFIG);
    assert_non_null(strstr(refused.error.text, "lockstep audit"));
}

/* Twice the memory is planned, and refused if it does not fit. */
CASE(test_memory)
{
    struct ls_memory_fit fit[2];
    struct ls_error error = {0};
    for (int twice = 0; twice < 2; twice++) {
        struct ls_layout layout;
        struct ls_config config =
            config_of_words("model.preset=gpt2-tiny model.vocab=50 parallel.dp=2 "
                            "check.replay=%d",
                            twice);
        if (ls_config_layout(&config, 0, &layout, &error) ||
            ls_memory_fit(&config, &layout, NULL, &fit[twice], &error))
            fail_msg("%s", error.text);
    }
    assert_int_equal(2 * fit[0].bytes, fit[1].bytes);
    assert_int_equal(2 * fit[0].rank_bytes, fit[1].rank_bytes);
}

int main(void)
{
    setenv("LOCKSTEP_PEAK_FLOPS", "1e12", 1);
    return suite_run(tokens_setup, scratch_teardown);
}
