/* Batches that the caller gives, and weights of their targets: one hash, one loss and the same
 * log-probabilities in every layout, a step in two parts, and what is refused. */
#include "../support/config_words.h"
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/wrapped.h"

#include <lockstep/base/file.h>
#include <lockstep/train.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPT2                                                                                       \
    "model.arch=gpt2 model.vocab=96 model.layers=4 model.channels=32 model.heads=4 "               \
    "model.context=64 model.dropout=0.1 batch.global=8 parallel.threads=1 "
#define LLAMA                                                                                      \
    "model.arch=llama model.vocab=96 model.layers=4 model.channels=32 model.heads=4 "              \
    "model.kv_heads=2 model.ffn=64 model.context=256 batch.global=4 numerics.seq_tiles=2 "         \
    "parallel.threads=1 "

/* ---- twins ----------------------------------------------------------------------------------- */

/* Trainers that are broken: a rank weighs by what another row has; the gradient is that of the mean
 * over targets, or of the loss without weights. */
enum twin { HONEST, OTHER_ROWS, OVER_COUNTED, LOSS_ALONE };
static _Atomic enum twin twin;
static _Atomic float counted_scale;

WRAPPED(ls_layer_forward);
int __wrap_ls_layer_forward(struct ls_model *model, struct ls_ops *ops, int layer,
                            const struct ls_micro_batch *batch, const struct ls_gradient *gradient,
                            struct ls_error *error)
{
    struct ls_micro_batch changed = *batch;
    if (twin == OTHER_ROWS && batch->weights && batch->first_sequence == 0)
        changed.weights++;
    if (twin == OVER_COUNTED && batch->weights)
        changed.gradient_scale = counted_scale;
    return __real_ls_layer_forward(model, ops, layer, &changed, gradient, error);
}

WRAPPED(ls_cross_entropy);
void __wrap_ls_cross_entropy(struct ls_ops *ops, const struct ls_cross_entropy *op, void *logits,
                             const int32_t *target, float *loss)
{
    struct ls_cross_entropy changed = *op;
    if (twin == LOSS_ALONE)
        changed.weight = NULL;
    __real_ls_cross_entropy(ops, &changed, logits, target, loss);
}

/* ---- a batch --------------------------------------------------------------------------------- */

enum { SEQUENCES_MAX = 8, TOKENS_MAX = 256, BATCH_MAX = SEQUENCES_MAX * TOKENS_MAX, VOCAB = 96 };

struct batch {
    int32_t inputs[BATCH_MAX], targets[BATCH_MAX];
    float weights[BATCH_MAX], logprobs[BATCH_MAX];
    struct ls_given_batch given;
};

/* Random tokens, of whose targets some do not count, and weights of both signs, some of them 0. */
static void batch_fill(struct batch *b, uint32_t number, int64_t sequences, int64_t tokens)
{
    for (uint32_t i = 0; i < sequences * tokens; i++) {
        uint32_t bits[4];
        ls_philox(ls_philox_key_of(number, "given"), (uint32_t[4]){i, 0, 0, 0}, bits);
        b->inputs[i] = (int32_t)(bits[0] % VOCAB);
        b->targets[i] = bits[1] % 5 ? (int32_t)(bits[2] % VOCAB) : -1;
        b->weights[i] = bits[1] % 7 ? 3 * ls_uniform_of(bits[3]) - 1 : 0;
    }
    b->given = (struct ls_given_batch){.sequences = sequences,
                                       .tokens = tokens,
                                       .inputs = b->inputs,
                                       .targets = b->targets,
                                       .weights = b->weights,
                                       .logprobs = b->logprobs};
}

/* ---- what a layout must tell like one rank --------------------------------------------------- */

enum { STEPS = 4 };

struct told {
    uint32_t loss[STEPS];
    double norm[STEPS];
    struct ls_digest hash[STEPS];
    float logprobs[STEPS][BATCH_MAX];
};

struct job {
    struct ls_config config;
    int64_t sequences, tokens;
    struct told *told;
    bool scores; /* nothing is dropped out: scores are compared with log-probabilities */
};

static int told_step(struct ls_trainer *t, const struct ls_step_report *report,
                     const struct batch *batch, int i, struct told *told, struct ls_error *error)
{
    told->loss[i] = report->loss_bits;
    told->norm[i] = report->grad_norm;
    if (batch->given.logprobs)
        memcpy(told->logprobs[i], batch->logprobs, sizeof batch->logprobs);
    if (report->step != i + 1 || ls_trainer_steps(t) != i + 1)
        return ls_error_set(error, LS_EINVAL, "step %ld, after %d", (long)report->step, i);
    return ls_trainer_hash(t, &told->hash[i], error);
}

/* The targets of a batch are the inputs one further, so that a sequence is a text. */
static int scores_check(struct ls_trainer *t, const struct batch *batch, struct ls_error *error)
{
    int64_t tokens = batch->given.tokens;
    float logprobs[TOKENS_MAX + 1];
    struct ls_scored text = {
        .ids = batch->inputs, .count = tokens, .first = 1, .logprobs = logprobs};
    int status = ls_runner_score(ls_trainer_runner(t), &text, 1, error);
    for (int64_t i = 0; i + 1 < tokens && !status; i++)
        if (memcmp(&logprobs[i + 1], &batch->logprobs[i], sizeof(float)))
            status = ls_error_set(error, LS_EINVAL, "token %ld: log-probability %.9g, scored %.9g",
                                  (long)i, (double)batch->logprobs[i], (double)logprobs[i + 1]);
    return status;
}

/* A backward and its update, between which the model is as it was, and no other step is taken. */
static int two_parts(const struct job *job, struct ls_trainer *t, struct batch *batch,
                     const struct ls_digest *before, struct ls_step_report *report,
                     struct ls_error *error)
{
    struct ls_digest hash;
    batch_fill(batch, 1, job->sequences, job->tokens);
    for (int64_t i = 0; i + 1 < job->tokens; i++)
        batch->targets[i] = batch->inputs[i + 1];
    batch->given.sum = true;
    int status = ls_trainer_backward(t, &batch->given, report, error);
    if (!status)
        status = ls_trainer_hash(t, &hash, error);
    if (!status && memcmp(&hash, before, sizeof hash))
        status = ls_error_set(error, LS_EINVAL, "a backward changes the state");
    if (!status && job->scores)
        status = scores_check(t, batch, error);
    if (!status && (ls_trainer_step_on(t, &batch->given, report, error) != LS_EINVAL ||
                    ls_trainer_step(t, report, error) != LS_EINVAL ||
                    ls_trainer_backward(t, &batch->given, report, error) != LS_EINVAL ||
                    !strstr(error->text, "the gradient of step 2 waits")))
        status = ls_error_set(error, LS_EINVAL, "a step is taken while a gradient waits");
    return status ? status : ls_trainer_update(t, report, error);
}

static int layout_steps(const struct job *job, struct ls_trainer *t, struct batch *batch,
                        struct told *told, struct ls_error *error)
{
    struct ls_step_report report;
    batch_fill(batch, 0, job->sequences, job->tokens);
    int status = ls_trainer_step_on(t, &batch->given, &report, error);
    if (!status)
        status = told_step(t, &report, batch, 0, told, error);
    if (!status)
        status = two_parts(job, t, batch, &told->hash[0], &report, error);
    if (!status)
        status = told_step(t, &report, batch, 1, told, error);
    /* A gradient that is given up leaves no trace. */
    batch_fill(batch, 2, job->sequences, job->tokens);
    if (!status)
        status = ls_trainer_backward(t, &batch->given, &report, error);
    ls_trainer_discard(t);
    batch_fill(batch, 3, job->sequences - 1, job->tokens);
    batch->given.weights = NULL;
    batch->given.logprobs = NULL;
    if (!status)
        status = ls_trainer_step_on(t, &batch->given, &report, error);
    if (!status)
        status = told_step(t, &report, batch, 2, told, error);
    /* All in two parts is all in one. */
    batch_fill(batch, 4, 1, 7);
    if (!status)
        status = ls_trainer_backward(t, &batch->given, &report, error);
    if (!status)
        status = ls_trainer_update(t, &report, error);
    return status ? status : told_step(t, &report, batch, 3, told, error);
}

static int layout_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    const struct job *job = user;
    struct ls_trainer *t = NULL;
    struct batch *batch = calloc(1, sizeof *batch);
    struct told *mine = calloc(1, sizeof *mine);
    int status = ls_trainer_new(&job->config, world, NULL, &t, error);
    if (!status)
        status = layout_steps(job, t, batch, mine, error);
    if (ls_comm_rank(world) == ls_comm_size(world) - 1) /* all ranks know the same */
        *job->told = *mine;
    ls_trainer_free(t);
    free(batch);
    free(mine);
    return status;
}

static void layout_run(const char *recipe, const char *layout, struct told *told)
{
    struct ls_error error = {0};
    bool llama = strstr(recipe, "llama") != NULL;
    struct job job = {.config = config_of_words("%s %s", recipe, layout),
                      .sequences = llama ? 3 : 7,
                      .tokens = llama ? 200 : 50,
                      .scores = llama,
                      .told = told};
    memset(told, 0, sizeof *told);
    if (ls_world_run((int)ls_config_ranks(&job.config), layout_body, &job, &error))
        fail_msg("%s: %s", layout, error.text);
}

/* The first step in which two layouts differ, and in what; NULL: in none. */
static const char *difference(const struct told *a, const struct told *b)
{
    static char text[80];
    for (int i = 0; i < STEPS; i++) {
        const char *what = a->loss[i] != b->loss[i]                                        ? "loss"
                           : memcmp(&a->norm[i], &b->norm[i], sizeof(double))              ? "norm"
                           : memcmp(a->logprobs[i], b->logprobs[i], sizeof a->logprobs[i]) ? "logp"
                           : memcmp(&a->hash[i], &b->hash[i], sizeof a->hash[i])           ? "hash"
                                                                                           : NULL;
        if (what) {
            snprintf(text, sizeof text, "step %d: another %s", i + 1, what);
            return text;
        }
    }
    return NULL;
}

static void test_layouts_agree(void **state)
{
    static const char *const layouts[][2] = {
        {GPT2, "batch.micro=3 parallel.dp=2"},
        {GPT2, "batch.micro=1 parallel.dp=4 parallel.zero=1"},
        {GPT2, "batch.micro=3 parallel.dp=2 parallel.zero=2"},
        {GPT2, "parallel.dp_shard=2 parallel.dp_replicate=2 parallel.zero=3 memory.recompute=full"},
        {GPT2, "parallel.tp=2"},
        {GPT2, "parallel.tp=2 parallel.sp=true parallel.pp=2"},
        {GPT2, "batch.micro=1 parallel.pp=2 parallel.schedule=zbv parallel.dp=2"},
        {GPT2, "batch.micro=2 parallel.pp=4"},
        {GPT2, "parallel.dp=2 parallel.zero=2 memory.offload.optimizer=host"},
        {LLAMA, "parallel.cp=2"},
        {LLAMA, "parallel.cp=2 parallel.cp_method=ring parallel.tp=2"},
        {LLAMA, "parallel.cp=2 parallel.pp=2 batch.micro=1"},
        {LLAMA, "parallel.dp=2 parallel.zero=3"},
        {LLAMA, "parallel.tp=2 parallel.dp=2 parallel.zero=1"},
    };
    (void)state;
    static struct told one, cut;
    const char *recipe = NULL;
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
        if (recipe != layouts[l][0])
            layout_run(layouts[l][0], "", &one);
        recipe = layouts[l][0];
        layout_run(recipe, layouts[l][1], &cut);
        if (difference(&one, &cut))
            fail_msg("%s: %s than on one rank", layouts[l][1], difference(&one, &cut));
    }
    twin = OTHER_ROWS;
    layout_run(GPT2, "batch.micro=3 parallel.dp=2", &cut);
    twin = HONEST;
    layout_run(GPT2, "", &one);
    assert_non_null(difference(&one, &cut));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts_agree),
    };
    return cmocka_run_group_tests_name("given", tests, NULL, NULL);
}
