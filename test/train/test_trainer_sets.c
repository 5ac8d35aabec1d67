/* A trainer whose parameters are two sets with groups of their own: it has the losses, norms and
 * hashes of one rank, and what its ranks move is proven. */
#include "../support/config_words.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "tokens.h"
#include "train/trainer.h"

#include <lockstep/train/recorded.h>

#include <stdio.h>
#include <string.h>

#define RECIPE                                                                                     \
    "model.arch=llama model.vocab=50 model.vocab_multiple=16 model.layers=3 model.channels=32 "    \
    "model.heads=4 model.kv_heads=2 model.ffn=56 model.context=256 model.tied=true "               \
    "batch.global=8 data.sequence=256 numerics.seq_tiles=2 numerics.tp_tiles=2 "                   \
    "parallel.threads=1 optim.clip=0.5 "

#define MUON "optim.name=muon"

enum { STEPS = 3 };

/* The axes of set 0 and of set 1, which is the second block. */
struct sets {
    unsigned shard[2], replicate[2];
};
enum {
    REPLICATE = 1 << LS_AXIS_DP_REPLICATE,
    SHARD = 1 << LS_AXIS_DP_SHARD | 1 << LS_AXIS_CP,
    ALL = REPLICATE | SHARD,
};
static const struct sets narrow = {{ALL, SHARD}, {0, REPLICATE}},
                         wide = {{SHARD, ALL}, {REPLICATE, 0}},
                         crossed = {{SHARD, REPLICATE}, {REPLICATE, SHARD}};

static const struct {
    const struct sets *sets;
    const char *words;
} layouts[] = {
    {&narrow, "parallel.dp_replicate=2 parallel.dp_shard=2 parallel.zero=1 batch.micro=1"},
    {&wide, "parallel.dp_replicate=2 parallel.dp_shard=2 parallel.zero=2"},
    {&narrow, "parallel.dp_replicate=2 parallel.dp_shard=2 parallel.zero=3 parallel.persist=64 "
              "memory.recompute=full"},
    {&wide, "parallel.dp_replicate=2 parallel.dp_shard=2 parallel.zero=3 parallel.pp=2 "
            "batch.micro=1"},
    {&narrow, "parallel.dp_replicate=2 parallel.cp=2 parallel.tp=2 parallel.zero=2"},
    {&wide, "parallel.dp_replicate=4"},
    {&narrow, "parallel.dp_replicate=2 parallel.dp_shard=2 parallel.zero=2 " MUON},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

struct job {
    struct ls_config config;
    struct ls_layout layout;
    uint32_t loss_bits[STEPS];
    double norm[STEPS];
    char hash[STEPS][33];
};

static int rank_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    struct ls_trainer *t = NULL;
    int status = trainer_new(&job->config, &job->layout, false, world, NULL, &t, error);
    for (int step = 0; step < STEPS && !status; step++) {
        struct ls_step_report report;
        struct ls_digest digest;
        status = ls_trainer_step(t, &report, error);
        if (!status)
            status = ls_trainer_hash(t, &digest, error);
        if (status || ls_comm_rank(world) > 0)
            continue;
        job->loss_bits[step] = report.loss_bits;
        job->norm[step] = report.grad_norm;
        ls_digest_hex(&digest, job->hash[step]);
    }
    ls_trainer_free(t);
    return status;
}

static void job_init(struct job *job, const char *directory, const char *words,
                     const struct sets *sets)
{
    struct ls_error error = {0};
    job->config =
        config_of_words(RECIPE "train.steps=%d data.train=u16:%s/tokens.bin train.out=%s/run %s",
                        STEPS, directory, directory, words);
    if (ls_config_layout(&job->config, 0, &job->layout, &error))
        fail_msg("%s: %s", words, error.text);
    if (!sets)
        return;
    job->layout.set_count = 2;
    job->layout.layer_set[2] = 1;
    for (int set = 0; set < 2; set++)
        ls_layout_set_init(&job->layout, set, sets->shard[set], sets->replicate[set]);
}

static void job_run(struct job *job, const char *directory, const char *words,
                    const struct sets *sets)
{
    struct ls_error error = {0};
    job_init(job, directory, words, sets);
    if (ls_world_run((int)job->layout.ranks, rank_body, job, &error))
        fail_msg("%s: %s", words, error.text);
}

CASE(test_two_sets_train_as_one)
{
    static struct job ones[2], two;
    job_run(&ones[0], *state, "", NULL);
    job_run(&ones[1], *state, MUON, NULL);
    for (int l = 0; l < LAYOUTS; l++) {
        const struct job *one = &ones[strstr(layouts[l].words, MUON) != NULL];
        job_run(&two, *state, layouts[l].words, layouts[l].sets);
        for (int step = 0; step < STEPS; step++) {
            if (two.loss_bits[step] != one->loss_bits[step] ||
                strcmp(two.hash[step], one->hash[step]) != 0)
                fail_msg("%s: step %d has other bits", layouts[l].words, step + 1);
            assert_memory_equal(&two.norm[step], &one->norm[step], sizeof(double));
        }
    }
}

CASE(test_moves_of_two_sets_are_proven)
{
    static struct job job;
    for (int l = 0; l < LAYOUTS; l++) {
        struct ls_layout_proof proof;
        struct ls_error error = {0};
        job_init(&job, *state, layouts[l].words, layouts[l].sets);
        if (ls_layout_check(&job.config, &job.layout, false, &proof, &error))
            fail_msg("%s: %s", layouts[l].words, error.text);
        assert_true(proof.collectives > 0);
    }
}

/* A set whose shard group has leaves that do not follow each other adds them in another order. */
CASE(test_another_order_is_seen)
{
    static struct job one, two;
    job_run(&one, *state, "", NULL);
    job_run(&two, *state, layouts[1].words, &crossed);
    assert_int_equal(two.loss_bits[0], one.loss_bits[0]);
    assert_string_not_equal(two.hash[0], one.hash[0]);
}

SUITE_MAIN(tokens_setup, scratch_teardown)
