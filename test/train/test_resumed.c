/* All ranks go on from one checkpoint: processes of MPI look for the newest of a run each by
 * itself, while another job may add one. Who goes on draws no first weights. */
#include "../support/config_words.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "tokens.h"

#include <lockstep/train.h>

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

struct part {
    struct ls_config config;
    int64_t until;
    const char *found[2]; /* by rank, in the place of train.resume or resume_else; NULL: as it is */
    struct ls_digest hash;
};

static int part_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct part *part = user;
    struct ls_config config = part->config;
    struct ls_config_train *train = &config.train;
    struct ls_trainer *t = NULL;
    struct ls_digest hash = {0, 0};
    bool resumed;
    int rank = ls_comm_rank(world);
    if (part->found[rank])
        snprintf(strcmp(train->resume, "auto") ? train->resume : train->resume_else,
                 LS_CONFIG_TEXT_BYTES, "%s", part->found[rank]);
    int status = ls_trainer_new(&config, world, NULL, &t, error);
    if (!status)
        status = ls_trainer_resume(t, &resumed, error);
    while (!status && ls_trainer_steps(t) < part->until) {
        struct ls_step_report report;
        status = ls_trainer_step(t, &report, error);
        if (!status)
            status = ls_trainer_save(t, error);
    }
    if (!status)
        status = ls_trainer_hash(t, &hash, error);
    if (rank == 0)
        part->hash = hash;
    ls_trainer_free(t);
    return status;
}

static struct part part_of(const char *folder, const char *words)
{
    return (struct part){
        .config = config_of_words(
            "model.layers=1 model.channels=32 model.heads=2 model.vocab=50 model.context=16 "
            "batch.global=4 parallel.threads=1 train.steps=4 train.keep=9 numerics.arithmetic=fma "
            "data.train=u16:%s/tokens.bin %s",
            folder, words),
        .until = 4};
}

static struct ls_digest part_run(struct part part)
{
    struct ls_error error = {0};
    assert_ok(ls_world_run((int)ls_config_ranks(&part.config), part_body, &part, &error), error);
    return part.hash;
}

CASE_WITH(test_all_ranks_go_on_from_what_the_first_one_found, tokens_setup, scratch_teardown)
{
    static const char *const named[] = {"train.resume=%s",
                                        "train.resume=auto train.resume_else=%s"};
    char words[3 * PATH_MAX], checkpoint[2][PATH_MAX], resume[2 * PATH_MAX];
    snprintf(words, sizeof words, "train.out=%s", scratch_path(*state, "one"));
    struct ls_digest whole = part_run(part_of(*state, words));
    for (int i = 0; i < 2; i++)
        snprintf(checkpoint[i], PATH_MAX, "%.4000s/checkpoints/step-%08d",
                 scratch_path(*state, "one"), i + 1);
    for (int i = 0; i < 4; i++) {
        snprintf(resume, sizeof resume, named[i / 2], checkpoint[0]);
        snprintf(words, sizeof words, "parallel.dp=2 train.out=%s-%d %s",
                 scratch_path(*state, "two"), i, resume);
        struct part part = part_of(*state, words);
        part.found[0] = checkpoint[i % 2];
        part.found[1] = checkpoint[1 - i % 2];
        struct ls_digest hash = part_run(part);
        assert_memory_equal(&hash, &whole, sizeof hash);
    }
}

/* ---- first weights --------------------------------------------------------------------------- */

static atomic_int fills; /* of all ranks */

WRAPPED(ls_param_fill);
void __wrap_ls_param_fill(const struct ls_param *param, uint64_t seed, struct ls_ops *ops,
                          int64_t first, int64_t count, float *values)
{
    fills++;
    __real_ls_param_fill(param, seed, ops, first, count, values);
}

struct job {
    struct ls_config config;
    char hash[33];
};

static void on_step(void *user, const struct ls_step_report *report)
{
    memcpy(((struct job *)user)->hash, report->hash, sizeof report->hash);
}

static int run_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    const struct ls_run_hooks hooks = {.user = job, .stepped = on_step};
    return ls_run(&job->config, world, NULL, ls_comm_rank(world) == 0 ? &hooks : NULL, error);
}

/* How often first weights are drawn. */
static int run_fills(const char *folder, const char *words, struct job *job)
{
    struct ls_error error = {0};
    char keys[1024];
    snprintf(keys, sizeof keys, "optim.decay_steps=4 log.hash_every=1 parallel.dp=2 %s", words);
    job->config = part_of(folder, keys).config;
    fills = 0;
    assert_ok(ls_world_run(2, run_body, job, &error), error);
    return fills;
}

/* Neither for a run that goes on, nor for a step that is computed twice. */
CASE_WITH(test_first_weights_are_drawn_once, tokens_setup, scratch_teardown)
{
    char words[PATH_MAX + 256];
    struct job whole, part;
    snprintf(words, sizeof words, "train.out=%s", scratch_path(*state, "whole"));
    int once = run_fills(*state, words, &whole);
    assert_true(once > 0);
    snprintf(words, sizeof words, "train.out=%s train.resume=auto check.replay=1 train.steps=2",
             scratch_path(*state, "part"));
    assert_int_equal(run_fills(*state, words, &part), once);
    snprintf(words, sizeof words, "train.out=%s train.resume=auto check.replay=1",
             scratch_path(*state, "part"));
    assert_int_equal(run_fills(*state, words, &part), 0);
    assert_string_equal(part.hash, whole.hash);
}

SUITE_MAIN(NULL, NULL)
