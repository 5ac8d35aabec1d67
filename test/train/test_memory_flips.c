/* One bit that flips in what a live rank holds: in a parameter, a moment, or the copy that is
 * computed with, drawn over layouts, ranks and places.
 *
 *     test_memory_flips [COUNT [SEED]]     COUNT flips (make faults-memory)
 *
 * If other ranks have copies of it, the next hash finds it; otherwise check.replay does. Not found
 * are flips that no copy and no replay can show, and of copies those that spoil a gradient and then
 * are rounded away. They are counted. */
#include "../support/config_words.h"
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "tokens.h"

#include "../../src/train/step_replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAST = 2 }; /* the flip is before this step, the last one */

static int64_t flips;
static uint64_t seed = 1;

/* ---- what is drawn --------------------------------------------------------------------------- */

enum watch { COPIES, REPLAY, NOBODY, WATCHES };
static const char *const watch_names[WATCHES] = {"with copies", "with check.replay=1",
                                                 "that nothing watches"};
/* Of copies every element of the state has two; of nobody each rank's part is its own. */
static const char *const layouts[WATCHES][6] = {
    {"parallel.dp=2", "parallel.dp=4", "parallel.dp=2 parallel.tp=2", "parallel.dp=2 parallel.pp=2",
     "parallel.dp_replicate=2 parallel.dp_shard=2 parallel.zero=1",
     "parallel.dp_replicate=2 parallel.dp_shard=2 parallel.zero=3"},
    {"parallel.dp_shard=2 parallel.zero=1", "parallel.dp_shard=4 parallel.zero=2",
     "parallel.dp_shard=2 parallel.zero=3", "parallel.tp=2 parallel.zero=1",
     "parallel.pp=2 parallel.tp=2", "parallel.dp=2"},
    {"parallel.dp_shard=2 parallel.zero=1", "parallel.dp_shard=4 parallel.zero=2",
     "parallel.dp_shard=2 parallel.zero=3", "parallel.dp_shard=4 parallel.zero=1", "parallel.pp=2",
     "parallel.dp_shard=4 parallel.zero=3"},
};
static const char *const precisions[] = {"fp32", "bf16"};
enum array { MASTER, FIRST_MOMENT, SECOND_MOMENT, COMPUTED_WITH, ARRAYS };
static const char *const array_names[ARRAYS] = {"parameter", "first moment", "second moment",
                                                "copy that is computed with"};

struct flip {
    enum watch watch;
    int layout, precision, rank;
    enum array array;
    bool late;   /* between the copy for the replay and the step */
    uint64_t at; /* of its bits, modulo how many there are */
};

static struct flip draw(uint64_t i)
{
    const uint64_t of[] = {seed, i};
    uint64_t key = ls_hash64(of, sizeof of, 2), more = ls_hash64(of, sizeof of, 3);
    struct flip flip = {.watch = (enum watch)(i % 10 == 9 ? NOBODY : i % 2),
                        .layout = (int)(key % 6),
                        .precision = (int)(key >> 8 & 1),
                        .rank = (int)(key >> 16 & 3),
                        .array = (enum array)(key >> 24 & 3),
                        .late = key >> 32 & 1,
                        .at = more};
    if (flip.array == COMPUTED_WITH && (flip.precision == 0 || flip.watch != REPLAY))
        flip.array = (enum array)(more % 3); /* there is none, or no other rank's copy shows it */
    return flip;
}

/* ---- the flip -------------------------------------------------------------------------------- */

static const struct flip *now; /* NULL: none */
static _Thread_local struct ls_trainer *trainer;
static _Thread_local int rank; /* modulo the ranks that there are */

/* The array of a slice, or NULL. */
static void *array_of(const struct ls_slice *slice, enum array array, const struct ls_state *state,
                      size_t *bytes)
{
    enum ls_dtype dtype = array == COMPUTED_WITH ? slice->compute_type
                          : array == MASTER      ? LS_F32
                                                 : state->optimizer.config.moments;
    void *values = array == COMPUTED_WITH ? slice->compute
                   : array == MASTER      ? (void *)slice->master
                                          : slice->state[array - FIRST_MOMENT];
    *bytes = values ? (size_t)slice->part->count * ls_dtype_bytes(dtype) : 0;
    return values;
}

static void flip_do(void)
{
    const struct ls_state *state = trainer->state;
    size_t all = 0, bytes;
    for (int i = 0; i < state->params->count; i++) {
        array_of(&state->slices[i], now->array, state, &bytes);
        all += bytes;
    }
    assert_true(all > 0);
    size_t at = (size_t)(now->at >> 3) % all;
    for (int i = 0; i < state->params->count; i++) {
        unsigned char *values = array_of(&state->slices[i], now->array, state, &bytes);
        if (at < bytes) {
            values[at] ^= (unsigned char)(1u << (now->at & 7));
            return;
        }
        at -= bytes;
    }
}

static void flip_at(int64_t step, bool late)
{
    if (now && step == LAST && late == now->late && rank == now->rank)
        flip_do();
}

/* The run's; a replay's has the layout of that. */
WRAPPED(trainer_new);
int __wrap_trainer_new(const struct ls_config *config, const struct ls_layout *layout, bool blank,
                       struct ls_comm *world, const struct ls_log *log, struct ls_trainer **out,
                       struct ls_error *error)
{
    int status = __real_trainer_new(config, layout, blank, world, log, out, error);
    trainer = layout ? trainer : *out;
    return status;
}

WRAPPED(replay_due); /* is asked before each step */
bool __wrap_replay_due(const struct ls_config *config, int64_t step)
{
    flip_at(step, false);
    return __real_replay_due(config, step);
}

WRAPPED(ls_trainer_step);
int __wrap_ls_trainer_step(struct ls_trainer *of, struct ls_step_report *report,
                           struct ls_error *error)
{
    if (of == trainer)
        flip_at(ls_trainer_steps(of) + 1, true);
    return __real_ls_trainer_step(of, report, error);
}

/* ---- a run ----------------------------------------------------------------------------------- */

struct outcome {
    int status, ranks;
    float loss[LAST + 1];
    char hash[33];
    struct ls_error error;
};
struct job {
    struct ls_config config;
    struct outcome outcome;
};

static void on_step(void *user, const struct ls_step_report *report)
{
    struct outcome *outcome = &((struct job *)user)->outcome;
    outcome->loss[report->step] = report->loss;
    memcpy(outcome->hash, report->hash, sizeof outcome->hash);
}

static int run_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    const struct ls_run_hooks hooks = {.user = job, .stepped = on_step};
    rank = ls_comm_rank(world);
    return ls_run(&job->config, world, NULL, rank == 0 ? &hooks : NULL, error);
}

static struct outcome run(const char *directory, const char *words, const char *precision)
{
    static int number;
    static struct job job;
    job =
        (struct job){.config = config_of_words(
                         "model.vocab=50 model.vocab_multiple=16 model.layers=2 "
                         "model.channels=16 model.heads=2 model.context=8 batch.global=4 "
                         "data.train=u16:%s/tokens.bin parallel.threads=1 numerics.arithmetic=fma "
                         "log.tensorboard=false log.drift_every=0 log.hash_every=1 "
                         "optim.warmup_steps=0 train.steps=%d train.out=%s/run%d "
                         "numerics.precision=%s %s",
                         directory, LAST, directory, ++number, precision, words)};
    job.outcome.ranks = (int)ls_config_ranks(&job.config);
    job.outcome.status = ls_world_run(job.outcome.ranks, run_body, &job, &job.outcome.error);
    return job.outcome;
}

/* ---- the verdict ----------------------------------------------------------------------------- */

enum found { BY_COPIES, BY_DIGEST, BY_REPLAY, NOT_FINITE, NO_TRACE, NOT_FOUND, ENDS };
static const char *const found_names[ENDS] = {"by the hash of copies",
                                              "by what a rank held",
                                              "by replay",
                                              "not finite",
                                              "no trace",
                                              "not found"};

/* How the run ended, and that it names what it found. */
static enum found judge(const struct outcome *got, const struct outcome *right,
                        const struct flip *flip)
{
    static const char *const texts[] = {
        [BY_COPIES] = "after step 2 the state of rank ",
        [BY_DIGEST] = "holds changed between steps 1 and 2",
        [BY_REPLAY] = "step 2 was computed twice",
        [NOT_FINITE] = "step 2: the ",
    };
    char who[32];
    if (!got->status) {
        bool same =
            !memcmp(got->loss, right->loss, sizeof got->loss) && !strcmp(got->hash, right->hash);
        return same ? NO_TRACE : NOT_FOUND;
    }
    snprintf(who, sizeof who, "rank %d", flip->rank);
    for (int i = 0; i < NO_TRACE; i++)
        if (got->status == LS_ENUMERIC && strstr(got->error.text, texts[i]) &&
            (i > BY_DIGEST || strstr(got->error.text, who)))
            return (enum found)i;
    fail_msg("%s, %s of rank %d: status %d: %s", layouts[flip->watch][flip->layout],
             array_names[flip->array], flip->rank, got->status, got->error.text);
    return ENDS;
}

static void counts_print(int64_t counts[WATCHES][ENDS])
{
    for (int watch = 0; watch < WATCHES; watch++) {
        int64_t *of = counts[watch], all = 0, found = 0;
        for (int i = 0; i < ENDS; i++) {
            all += of[i];
            found += i < NO_TRACE ? of[i] : 0;
        }
        printf("seed %lu: %ld bits flipped in memory %s: %ld found (", (unsigned long)seed,
               (long)all, watch_names[watch], (long)found);
        for (int i = 0; i < NO_TRACE; i++)
            printf("%s%s %ld", i ? ", " : "", found_names[i], (long)of[i]);
        printf("), %ld left no trace, %ld not found\n", (long)of[NO_TRACE], (long)of[NOT_FOUND]);
    }
}

CASE(test_flips)
{
    struct outcome right[2];
    int64_t counts[WATCHES][ENDS] = {0};
    for (int p = 0; p < 2; p++) {
        right[p] = run(*state, "", precisions[p]);
        assert_int_equal(right[p].status, LS_OK);
    }
    for (uint64_t i = 0; i < (uint64_t)flips; i++) {
        struct flip flip = draw(i);
        char words[200];
        snprintf(words, sizeof words, "%s check.replay=%d", layouts[flip.watch][flip.layout],
                 flip.watch == REPLAY);
        struct ls_config config =
            config_of_words("model.preset=gpt2-tiny model.vocab=50 %s", words);
        flip.rank %= (int)ls_config_ranks(&config);
        now = &flip;
        struct outcome got = run(*state, words, precisions[flip.precision]);
        now = NULL;
        enum found found = judge(&got, &right[flip.precision], &flip);
        if (found == NOT_FOUND && flip.watch != NOBODY)
            printf("flip %lu was not found: %s, %s, %s of rank %d%s\n", (unsigned long)i, words,
                   precisions[flip.precision], array_names[flip.array], flip.rank,
                   flip.late ? ", late" : "");
        counts[flip.watch][found]++;
    }
    counts_print(counts);
    assert_int_equal(counts[REPLAY][NOT_FOUND], 0);
    assert_true(counts[COPIES][NOT_FOUND] * 50 <= flips);
    assert_true(counts[REPLAY][BY_DIGEST] > 0 && counts[REPLAY][BY_REPLAY] > 0);
    assert_true(counts[COPIES][BY_COPIES] > 0);
    assert_true(counts[NOBODY][NOT_FOUND] > 0); /* the twin: who looks at nothing finds nothing */
}

int main(int argc, char **argv)
{
    flips = argc > 1 ? strtoll(argv[1], NULL, 10) : 1000 / check_every(50, 50);
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    setenv("LOCKSTEP_PEAK_FLOPS", "1e12", 1);
    return suite_run(tokens_setup, scratch_teardown);
}
