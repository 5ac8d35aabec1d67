/* Batches that the caller gives, and weights of their targets: one hash, one loss and the same
 * log-probabilities in every layout, a step in two parts, and what is refused. */
#include "../support/config_words.h"
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "tokens.h"

#include <lockstep/base/file.h>
#include <lockstep/train.h>

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
    "model.kv_heads=2 model.ffn=64 model.context=256 batch.global=2 numerics.seq_tiles=2 "         \
    "parallel.threads=1 "

/* ---- twins ----------------------------------------------------------------------------------- */

/* Trainers that are broken: a rank weighs losses, or entropies, by what another row has; the
 * gradient is that of the mean over targets, of the loss without weights, or without entropies. */
enum twin { HONEST, OTHER_ROWS, OTHER_ENTROPIES, OVER_COUNTED, LOSS_ALONE, NO_ENTROPIES };
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
    if (twin == OTHER_ENTROPIES && batch->entropy_weights && batch->first_sequence == 0)
        changed.entropy_weights++;
    if (twin == OVER_COUNTED && batch->weights)
        changed.gradient_scale = counted_scale;
    return __real_ls_layer_forward(model, ops, layer, &changed, gradient, error);
}

WRAPPED(ls_cross_entropy_finish);
void __wrap_ls_cross_entropy_finish(struct ls_ops *ops, const struct ls_cross_entropy *op,
                                    void *logits, const int32_t *target, const float *max,
                                    const float *sum, const float *target_logit, float *loss)
{
    struct ls_cross_entropy changed = *op;
    if (twin == LOSS_ALONE)
        changed.weight = NULL;
    if (twin == NO_ENTROPIES)
        changed.entropy_weight = changed.product = NULL;
    __real_ls_cross_entropy_finish(ops, &changed, logits, target, max, sum, target_logit, loss);
}

/* ---- a batch --------------------------------------------------------------------------------- */

enum { SEQUENCES_MAX = 8, TOKENS_MAX = 256, BATCH_MAX = SEQUENCES_MAX * TOKENS_MAX, VOCAB = 96 };

struct batch {
    int32_t inputs[BATCH_MAX], targets[BATCH_MAX];
    float weights[BATCH_MAX], entropy_weights[BATCH_MAX];
    float logprobs[BATCH_MAX], entropies[BATCH_MAX];
    struct ls_given_batch given;
};

/* Random tokens, of whose targets some do not count, and weights of both signs, some of them 0.
 * Batch 0 has no entropies; the others are at a temperature at which a new model is not near to
 * uniform, where entropies have no gradient. */
static void batch_fill(struct batch *b, uint32_t number, int64_t sequences, int64_t tokens)
{
    for (uint32_t i = 0; i < sequences * tokens; i++) {
        uint32_t bits[4];
        ls_philox(ls_philox_key_of(number, "given"), (uint32_t[4]){i, 0, 0, 0}, bits);
        b->inputs[i] = (int32_t)(bits[0] % VOCAB);
        b->targets[i] = bits[1] % 5 ? (int32_t)(bits[2] % VOCAB) : -1;
        b->weights[i] = bits[1] % 7 ? 3 * ls_uniform_of(bits[3]) - 1 : 0;
        b->entropy_weights[i] = bits[1] % 3 ? 2 * ls_uniform_of(bits[0]) - 1 : 0;
    }
    b->given = (struct ls_given_batch){.sequences = sequences,
                                       .tokens = tokens,
                                       .inputs = b->inputs,
                                       .targets = b->targets,
                                       .weights = b->weights,
                                       .entropy_weights = number ? b->entropy_weights : NULL,
                                       .temperature = number ? 0.05f : 0,
                                       .logprobs = b->logprobs,
                                       .entropies = number ? b->entropies : NULL};
}

/* ---- what a layout must tell like one rank --------------------------------------------------- */

enum { STEPS = 4 };

struct told {
    uint32_t loss[STEPS];
    double norm[STEPS];
    struct ls_digest hash[STEPS];
    float logprobs[STEPS][BATCH_MAX], entropies[STEPS][BATCH_MAX];
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
    if (batch->given.entropies)
        memcpy(told->entropies[i], batch->entropies, sizeof batch->entropies);
    if (report->step != i + 1 || ls_trainer_steps(t) != i + 1)
        return ls_error_set(error, LS_EINVAL, "step %ld, after %d", (long)report->step, i);
    return ls_trainer_hash(t, &told->hash[i], error);
}

/* The end of a body whose steps returned `status`: the hash behind them is told, by one rank. */
static int body_end(const struct job *job, struct ls_comm *world, struct ls_trainer *t,
                    struct batch *batch, int status, struct ls_error *error)
{
    struct ls_digest hash;
    if (!status)
        status = ls_trainer_hash(t, &hash, error);
    if (!status && ls_comm_rank(world) == 0)
        job->told->hash[0] = hash;
    ls_trainer_free(t);
    free(batch);
    return status;
}

/* The targets of a batch are the inputs one further, so that a sequence is a text. */
static int scores_check(struct ls_trainer *t, const struct batch *batch, struct ls_error *error)
{
    int64_t tokens = batch->given.tokens;
    float logprobs[TOKENS_MAX + 1], entropies[TOKENS_MAX + 1];
    struct ls_scored text = {.ids = batch->inputs,
                             .count = tokens,
                             .first = 1,
                             .logprobs = logprobs,
                             .entropies = entropies};
    int status =
        ls_runner_score_at(ls_trainer_runner(t), &text, 1, batch->given.temperature, error);
    for (int64_t i = 0; i + 1 < tokens && !status; i++)
        if (memcmp(&logprobs[i + 1], &batch->logprobs[i], sizeof(float)))
            status = ls_error_set(error, LS_EINVAL, "token %ld: log-probability %.9g, scored %.9g",
                                  (long)i, (double)batch->logprobs[i], (double)logprobs[i + 1]);
        else if (memcmp(&entropies[i + 1], &batch->entropies[i], sizeof(float)))
            status = ls_error_set(error, LS_EINVAL, "token %ld: entropy %.9g, scored %.9g", (long)i,
                                  (double)batch->entropies[i], (double)entropies[i + 1]);
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
                      .sequences = llama ? 2 : 7,
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
                           : memcmp(a->entropies[i], b->entropies[i], sizeof a->entropies[i])
                               ? "entropy"
                           : memcmp(&a->hash[i], &b->hash[i], sizeof a->hash[i]) ? "hash"
                                                                                 : NULL;
        if (what) {
            snprintf(text, sizeof text, "step %d: another %s", i + 1, what);
            return text;
        }
    }
    return NULL;
}

CASE(test_layouts_agree)
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
        {GPT2, "parallel.dp=2 parallel.zero=2 memory.offload.gradients=host"},
        {LLAMA, "parallel.cp=2"},
        {LLAMA, "parallel.cp=2 parallel.cp_method=ring parallel.tp=2"},
        {LLAMA, "parallel.cp=2 parallel.pp=2 batch.micro=1"},
        {LLAMA, "parallel.dp=2 parallel.zero=3"},
        {LLAMA, "parallel.tp=2 parallel.dp=2 parallel.zero=1"},
        {LLAMA "numerics.precision=fp16 ", "parallel.cp=2"},
    };
    static struct told one, cut;
    const char *recipe = NULL;
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l += (size_t)check_every(3, 2)) {
        if (recipe != layouts[l][0])
            layout_run(layouts[l][0], "", &one);
        recipe = layouts[l][0];
        layout_run(recipe, layouts[l][1], &cut);
        if (difference(&one, &cut))
            fail_msg("%s: %s than on one rank", layouts[l][1], difference(&one, &cut));
    }
    layout_run(GPT2, "", &one);
    for (twin = OTHER_ROWS; twin <= OTHER_ENTROPIES; twin++) {
        layout_run(GPT2, "batch.micro=3 parallel.dp=2", &cut);
        assert_non_null(difference(&one, &cut));
    }
    twin = HONEST;
}

/* ---- against a plain reference --------------------------------------------------------------- */

#define PLAIN                                                                                      \
    GPT2 "model.dropout=0 numerics.precision=fp32 optim.name=sgd optim.momentum=0 "                \
         "optim.weight_decay=0 optim.clip=0 optim.schedule=constant "

static struct ls_trainer *trainer_of(const struct ls_config *config, struct ls_comm **world)
{
    struct ls_error error = {0};
    struct ls_trainer *trainer = NULL;
    if (ls_comm_self_new(world, &error) || ls_trainer_new(config, *world, NULL, &trainer, &error))
        fail_msg("%s", error.text);
    return trainer;
}

static void trainer_end(struct ls_trainer *trainer, struct ls_comm *world)
{
    ls_trainer_free(trainer);
    ls_comm_free(world);
}

/* Of a batch at the parameters of a new model, or of one that took a step on `move`. */
static struct ls_step_report report_of(const char *words, const struct batch *batch,
                                       const struct batch *move)
{
    struct ls_config config = config_of_words("%s", words);
    struct ls_comm *world;
    struct ls_trainer *t = trainer_of(&config, &world);
    struct ls_step_report report;
    struct ls_error error = {0};
    if ((move && ls_trainer_step_on(t, &move->given, &report, &error)) ||
        ls_trainer_backward(t, &batch->given, &report, &error))
        fail_msg("%s", error.text);
    trainer_end(t, world);
    return report;
}

/* Of its targets: the sum of weights, and that of weighted losses and entropies, in double. */
static void sums_of(const struct batch *b, double *weights, double *losses, int64_t *counted)
{
    *weights = *losses = 0;
    *counted = 0;
    for (int64_t i = 0; i < b->given.sequences * b->given.tokens; i++) {
        double weight = b->targets[i] < 0 ? 0 : (double)b->weights[i];
        double entropy = b->targets[i] < 0 ? 0 : (double)b->entropy_weights[i];
        *counted += weight != 0 || entropy != 0;
        *weights += weight;
        *losses += entropy * (double)b->entropies[i] - weight * (double)b->logprobs[i];
    }
}

/* Whether the loss is the mean, or sum, in double, and the gradient its derivative, by a
 * central difference along itself. */
static bool is_the_loss(bool sum)
{
    static struct batch batch, up, down;
    const double lr = 2e-7;
    batch_fill(&batch, 5, 7, 50);
    batch.given.sum = sum;
    struct ls_step_report here = report_of(PLAIN, &batch, NULL);
    double weights, losses;
    int64_t counted;
    sums_of(&batch, &weights, &losses, &counted);
    /* Along the gradient of the sum, to both sides. */
    up = down = batch;
    up.given.sum = down.given.sum = true;
    up.given.weights = up.weights;
    up.given.entropy_weights = up.entropy_weights;
    for (int i = 0; i < 7 * 50; i++) {
        up.weights[i] = -batch.weights[i];
        up.entropy_weights[i] = -batch.entropy_weights[i];
    }
    struct ls_step_report above = report_of(PLAIN "optim.lr=2e-7", &batch, &up);
    struct ls_step_report below = report_of(PLAIN "optim.lr=2e-7", &batch, &down);
    struct ls_step_report along = report_of(PLAIN, &down, NULL);
    double divisor = sum ? 1 : weights;
    double slope = ((double)above.loss - (double)below.loss) / (2 * lr * along.grad_norm);
    print_message("loss %.9g, in double %.9g; slope %.6g, gradient's norm %.6g\n",
                  (double)here.loss, losses / divisor, slope, here.grad_norm);
    return here.counted == counted && fabs(here.weight - divisor) < 1e-12 * fabs(divisor) &&
           fabs((double)here.loss - losses / divisor) < 1e-6 * fabs(losses / divisor) &&
           fabs(slope - here.grad_norm) < 2e-3 * here.grad_norm;
}

CASE(test_loss_and_gradient_are_the_weighted_ones)
{
    assert_true(is_the_loss(true));
    assert_true(is_the_loss(false));
    counted_scale = 1.0f / 280;
    for (twin = OVER_COUNTED; twin <= NO_ENTROPIES; twin++)
        assert_false(is_the_loss(false));
    twin = HONEST;
}

/* ---- gradients that are written -------------------------------------------------------------- */

/* Of all tensors of gradients that a rank has. */
static void gradients_scale(struct ls_trainer *t, float by)
{
    static const enum ls_tensor_kind kinds[] = {LS_TENSOR_GRADIENT, LS_TENSOR_TABLE_GRADIENT};
    struct ls_dtensor tensor;
    for (int i = 0; i < ls_trainer_params(t)->count; i++)
        for (int k = 0; k < 2; k++)
            if (!ls_trainer_dtensor(t, i, kinds[k], &tensor, NULL))
                for (int64_t j = 0; j < tensor.local_count; j++)
                    ((float *)tensor.data)[j] *= by;
}

enum { DIVISOR = 1024 };

static int written_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    const struct job *job = user;
    struct ls_trainer *t = NULL;
    struct ls_step_report report = {0};
    struct batch *batch = calloc(1, sizeof *batch);
    batch_fill(batch, 10, 8, 64);
    batch->given.sum = true;
    batch->given.temperature = 1;
    int status = ls_trainer_new(&job->config, world, NULL, &t, error);
    if (!status)
        status = ls_trainer_backward(t, &batch->given, &report, error);
    double norm = report.grad_norm;
    if (!status && (norm < 2 || norm > DIVISOR / 2))
        status =
            ls_error_set(error, LS_EINVAL, "a norm of %g: the factor is to undo clipping", norm);
    if (!status) {
        gradients_scale(t, 1.0f / DIVISOR);
        status = ls_trainer_publish(t, error);
    }
    if (!status)
        status = ls_trainer_update(t, &report, error);
    if (!status && report.grad_norm != norm / DIVISOR)
        status = ls_error_set(error, LS_EINVAL, "the norm is %g, of what was written %g",
                              report.grad_norm, norm / DIVISOR);
    return body_end(job, world, t, batch, status, error);
}

/* The update clips what was written, which is small here: as if nothing was clipped. */
CASE(test_what_was_written_to_gradients_is_clipped)
{
    static const char *const words[] = {
        "optim.clip=0", "optim.clip=1",
        "optim.clip=1 parallel.pp=2 parallel.dp=2 parallel.zero=1 batch.micro=2",
        "optim.clip=1 parallel.dp=2 memory.offload.optimizer=host"};
    static struct told one, other;
    for (int i = 0; i < 4; i++) {
        struct ls_error error = {0};
        struct job job = {.config = config_of_words(PLAIN "optim.lr=1 %s", words[i]),
                          .told = i ? &other : &one};
        if (ls_world_run((int)ls_config_ranks(&job.config), written_body, &job, &error))
            fail_msg("%s: %s", words[i], error.text);
        if (i && memcmp(&one.hash[0], &other.hash[0], sizeof one.hash[0]))
            fail_msg("%s: another hash than without clipping", words[i]);
    }
}

CASE(test_what_was_written_to_gradients_is_finite)
{
    static struct batch batch;
    struct ls_config config = config_of_words(PLAIN);
    struct ls_comm *world;
    struct ls_trainer *t = trainer_of(&config, &world);
    struct ls_step_report report;
    struct ls_error error = {0};
    batch_fill(&batch, 10, 8, 64);
    assert_ok(ls_trainer_backward(t, &batch.given, &report, &error), error);
    gradients_scale(t, NAN);
    assert_ok(ls_trainer_publish(t, &error), error);
    assert_int_equal(ls_trainer_update(t, &report, &error), LS_ENUMERIC);
    assert_text_contains(error.text, "the gradient norm nan");
    trainer_end(t, world);
}

/* ---- weights of one -------------------------------------------------------------------------- */

static struct ls_digest hash_of(const char *words, const struct batch *batch)
{
    struct ls_config config = config_of_words("%s", words);
    struct ls_comm *world;
    struct ls_trainer *t = trainer_of(&config, &world);
    struct ls_step_report report;
    struct ls_error error = {0};
    struct ls_digest hash = {0, 0};
    if (ls_trainer_step_on(t, &batch->given, &report, &error) || ls_trainer_hash(t, &hash, &error))
        fail_msg("%s", error.text);
    trainer_end(t, world);
    return hash;
}

/* Weights of 1 are none; weights of 0 are a target that does not count. */
CASE(test_weights_of_one_and_of_zero)
{
    static struct batch b;
    batch_fill(&b, 6, 8, 64);
    for (int i = 0; i < 8 * 64; i++)
        b.weights[i] = 1;
    struct ls_digest ones = hash_of(GPT2, &b), none, zeros;
    b.entropy_weights[5] = 1;
    none = hash_of(GPT2, &b);
    assert_memory_not_equal(&ones, &none, sizeof none);
    b.entropy_weights[5] = 0;
    ones = hash_of(GPT2, &b);
    b.weights[5] = 0;
    zeros = hash_of(GPT2, &b);
    b.given.weights = NULL;
    none = hash_of(GPT2, &b);
    assert_memory_equal(&ones, &none, sizeof none);
    assert_memory_not_equal(&zeros, &none, sizeof none);
    b.targets[5] = -1;
    none = hash_of(GPT2, &b);
    assert_memory_equal(&zeros, &none, sizeof none);
}

/* ---- batches of the data between ------------------------------------------------------------- */

/* A given batch takes the place of the data's: those behind it are the same, whoever asks ahead. */
static int between_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    const struct job *job = user;
    struct ls_trainer *t = NULL;
    struct ls_step_report report;
    struct batch *batch = calloc(1, sizeof *batch);
    batch_fill(batch, 7, 4, 9);
    int status = ls_trainer_new(&job->config, world, NULL, &t, error);
    for (int i = 0; i < 4 && !status; i++) {
        bool given = i == 1 && job->sequences > 0;
        status = given ? ls_trainer_step_on(t, &batch->given, &report, error)
                       : ls_trainer_step(t, &report, error);
        if (!status && ls_comm_rank(world) == 0 && !given)
            memcpy(job->told->logprobs[i], report.ledger, sizeof report.ledger);
        if (!status && (report.samples != 8 * (i + 1) || (given && report.ledger[0])))
            status = ls_error_set(error, LS_EINVAL, "step %d: samples", i);
    }
    return body_end(job, world, t, batch, status, error);
}

CASE(test_given_batches_take_the_place_of_samples)
{
    static struct told data, mixed, cut;
    static const char *const layouts[] = {"", "", "parallel.dp=2 parallel.zero=2"};
    struct told *const told[] = {&data, &mixed, &cut};
    for (int i = 0; i < 3; i++) {
        struct ls_error error = {0};
        struct job job = {.config = config_of_words(GPT2 "data.train=u16:%s/tokens.bin %s",
                                                    (const char *)*state, layouts[i]),
                          .sequences = i,
                          .told = told[i]};
        assert_ok(ls_world_run((int)ls_config_ranks(&job.config), between_body, &job, &error),
                  error);
    }
    for (int i = 0; i < 4; i++)
        assert_true(i == 1 || !memcmp(data.logprobs[i], mixed.logprobs[i], 33));
    assert_memory_equal(&mixed.hash[0], &cut.hash[0], sizeof cut.hash[0]);
    assert_memory_not_equal(&mixed.hash[0], &data.hash[0], sizeof cut.hash[0]);
}

/* ---- stopped, and on in another layout ------------------------------------------------------- */

static int resumed_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    const struct job *job = user;
    struct ls_trainer *t = NULL;
    struct ls_step_report report;
    bool resumed;
    struct batch *batch = calloc(1, sizeof *batch);
    int status = ls_trainer_new(&job->config, world, NULL, &t, error);
    if (!status)
        status = ls_trainer_resume(t, &resumed, error);
    for (int64_t i = ls_trainer_steps(t); i < job->sequences && !status; i++) {
        batch_fill(batch, (uint32_t)i, 8, 40);
        status = ls_trainer_step_on(t, &batch->given, &report, error);
    }
    if (!status)
        status = ls_trainer_save(t, error);
    return body_end(job, world, t, batch, status, error);
}

CASE(test_a_run_on_given_batches_goes_on)
{
    static struct told whole, parts;
    static const struct {
        const char *out, *layout;
        int steps;
    } runs[] = {{"whole", "", 4},
                {"parts", "parallel.tp=2", 2},
                {"parts", "parallel.dp=2 parallel.zero=2 batch.micro=2", 4}};
    for (int i = 0; i < 3; i++) {
        struct ls_error error = {0};
        struct job job = {.config =
                              config_of_words(GPT2 "numerics.precision=fp16 "
                                                   "train.resume=auto train.out=%s/%s %s",
                                              (const char *)*state, runs[i].out, runs[i].layout),
                          .sequences = runs[i].steps,
                          .told = i ? &parts : &whole};
        if (ls_world_run((int)ls_config_ranks(&job.config), resumed_body, &job, &error))
            fail_msg("%s: %s", runs[i].layout, error.text);
    }
    assert_memory_equal(&whole.hash[0], &parts.hash[0], sizeof whole.hash[0]);
}

/* ---- what is generated ----------------------------------------------------------------------- */

enum { WRITTEN = 24, PROMPT = 5 };

struct drawing {
    int32_t ids[PROMPT + WRITTEN];
    float logprobs[PROMPT + WRITTEN];
    int64_t count;
};

static int text_done(void *user, int64_t prompt, int64_t sample, const struct ls_generated *text,
                     struct ls_error *error)
{
    struct drawing *d = user;
    (void)prompt, (void)sample, (void)error;
    d->count = text->count;
    memcpy(d->ids, text->ids, (size_t)text->count * sizeof *text->ids);
    memcpy(d->logprobs, text->logprobs, (size_t)text->count * sizeof *text->logprobs);
    return LS_OK;
}

static int text_draw(struct ls_trainer *t, struct ls_comm *world, struct drawing *d,
                     struct ls_error *error)
{
    int32_t ids[PROMPT] = {3, 14, 15, 92, 6};
    struct ls_text_request request = {.tokens = {.ids = ids, .count = PROMPT}, .first = PROMPT};
    const struct ls_text_requests prompts = {.list = &request, .count = 1};
    const struct ls_generation generation = {.prompts = &prompts,
                                             .tokens = WRITTEN,
                                             .sampling = {.temperature = 1},
                                             .seed = 4,
                                             .batch = 1,
                                             .logprobs = true,
                                             .done = text_done,
                                             .user = d};
    struct ls_generation_report report;
    int status = ls_runner_continue(ls_trainer_runner(t), &generation, &report, error);
    if (!status)
        status = ls_broadcast(world, (char *)d, sizeof *d, LS_U8, 0, error);
    return status;
}

/* Trained, drawn, and seen by the backward: one log-probability, so that the ratio of the new one
 * to the old one is 1. In the layout of two steps, of which the second trains what was drawn. */
static int drawn_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    const struct job *job = user;
    struct ls_trainer *t = NULL;
    struct ls_step_report report;
    struct drawing d = {.count = 0};
    struct batch *batch = calloc(1, sizeof *batch);
    batch_fill(batch, 8, 8, 64);
    int status = ls_trainer_new(&job->config, world, NULL, &t, error);
    if (!status)
        status = ls_trainer_step_on(t, &batch->given, &report, error);
    if (!status)
        status = text_draw(t, world, &d, error);
    if (!status && d.count != PROMPT + WRITTEN)
        status = ls_error_set(error, LS_EINVAL, "%ld tokens", (long)d.count);
    batch->given.sequences = 1;
    batch->given.temperature = 1;
    batch->given.tokens = PROMPT + WRITTEN - 1;
    memcpy(batch->inputs, d.ids, (PROMPT + WRITTEN - 1) * sizeof *d.ids);
    memcpy(batch->targets, d.ids + 1, (PROMPT + WRITTEN - 1) * sizeof *d.ids);
    if (!status)
        status = ls_trainer_backward(t, &batch->given, &report, error);
    if (!status)
        status = scores_check(t, batch, error);
    for (int i = PROMPT; i < PROMPT + WRITTEN && !status; i++)
        if (memcmp(&d.logprobs[i], &batch->logprobs[i - 1], sizeof(float)))
            status = ls_error_set(error, LS_EINVAL, "token %d: drawn with %.9g, trained with %.9g",
                                  i, (double)d.logprobs[i], (double)batch->logprobs[i - 1]);
    if (!status)
        status = ls_trainer_update(t, &report, error);
    return body_end(job, world, t, batch, status, error);
}

CASE(test_what_is_drawn_has_the_bits_of_the_backward)
{
    static const char *const layouts[] = {
        "", "parallel.dp=2 parallel.zero=3", "parallel.tp=2 parallel.sp=true",
        "parallel.pp=2 batch.micro=2", "parallel.dp=2 parallel.zero=1"};
    static struct told one, cut;
    for (int i = 0; i < 5; i++) {
        struct ls_error error = {0};
        struct job job = {.config = config_of_words(GPT2 "model.dropout=0 %s", layouts[i]),
                          .told = i ? &cut : &one};
        if (ls_world_run((int)ls_config_ranks(&job.config), drawn_body, &job, &error))
            fail_msg("%s: %s", layouts[i], error.text);
        assert_true(!i || !memcmp(&cut.hash[0], &one.hash[0], sizeof one.hash[0]));
    }
}

/* ---- what is refused ------------------------------------------------------------------------- */

enum { CASES = 14 };
static const struct {
    int status;
    const char *text;
} refused[CASES] = {
    {LS_EINVAL, "9 sequences: expected 1 to 8, the batch of step 1"},
    {LS_EINVAL, "sequences of 65 tokens: expected 1 to 64 (data.sequence)"},
    {LS_EDATA, "sequence 1, token 3: input 96 is not in the model's vocabulary: expected 0 to 95"},
    {LS_EDATA, "sequence 0, token 2: target -2 is not in"},
    {LS_EDATA, "sequence 2, token 0: the weight is inf: expected a finite number"},
    {LS_EDATA, "the weights of the given batch sum up to 0"},
    {LS_EDATA, "no target of the given batch counts"},
    {LS_EINVAL, "has no targets"},
    {LS_EINVAL, "ranks were given different batches"},
    {LS_EINVAL, "has 0 sequences"},
    {LS_ECONFIG, "data.train"},
    {LS_EDATA, "sequence 2, token 1: the weight of the entropy is inf: expected a finite"},
    {LS_EINVAL, "asks for entropies: expected entropy_weights"},
    {LS_EINVAL, "ranks were given different batches"},
};

/* The batch of a case, on a rank. */
static void refused_fill(struct batch *batch, int i, int rank)
{
    batch_fill(batch, 9, 4, 4);
    struct ls_given_batch *b = &batch->given;
    b->sequences = i == 0 ? 9 : i == 9 ? 0 : 4;
    b->tokens = i == 1 ? 65 : 4;
    batch->inputs[7] = i == 2 ? VOCAB : 5;
    batch->targets[2] = i == 3 ? -2 : 5;
    batch->weights[8] = i == 4 ? INFINITY : 5;
    for (int k = 0; k < 16 && i == 5; k++) {
        batch->targets[k] = 3;
        batch->weights[k] = k % 2 ? 0.1f : -0.1f;
    }
    for (int k = 0; k < 16 && i == 6; k++)
        batch->targets[k] = k % 2 ? -1 : 0, batch->weights[k] = batch->entropy_weights[k] = 0;
    b->targets = i == 7 ? NULL : b->targets;
    batch->inputs[0] = i == 8 ? rank : 0;
    batch->entropy_weights[9] = i == 11 ? INFINITY : 5;
    b->entropy_weights = i == 12 ? NULL : b->entropy_weights;
    batch->entropy_weights[3] = i == 13 ? (float)rank : 0;
}

static int refused_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    const struct job *job = user;
    struct ls_trainer *t = NULL;
    struct ls_step_report report;
    struct batch *batch = calloc(1, sizeof *batch);
    struct ls_digest before, after;
    int status = ls_trainer_new(&job->config, world, NULL, &t, error);
    if (!status)
        status = ls_trainer_hash(t, &before, error);
    for (int i = 0; i < CASES && !status; i++) {
        refused_fill(batch, i, ls_comm_rank(world));
        const struct ls_given_batch *b = &batch->given;
        *error = (struct ls_error){0};
        int got =
            i == 10 ? ls_trainer_step(t, &report, error) : ls_trainer_step_on(t, b, &report, error);
        if (got != refused[i].status || !strstr(error->text, refused[i].text))
            status = ls_error_set(error, LS_EINVAL, "case %d: %s: %.500s", i, ls_status_name(got),
                                  error->text);
    }
    if (!status && ls_trainer_update(t, &report, error) != LS_EINVAL)
        status = ls_error_set(error, LS_EINVAL, "an update of nothing");
    if (!status)
        status = ls_trainer_hash(t, &after, error);
    if (!status && memcmp(&before, &after, sizeof after))
        status = ls_error_set(error, LS_EINVAL, "a batch that is refused changes the model");
    /* The sum of losses needs no weight: nothing is learned of them. */
    batch_fill(batch, 9, 4, 4);
    memset(batch->weights, 0, sizeof batch->weights);
    memset(batch->entropy_weights, 0, sizeof batch->entropy_weights);
    batch->given.sum = true;
    if (!status)
        status = ls_trainer_step_on(t, &batch->given, &report, error);
    if (!status && (report.loss != 0 || report.grad_norm != 0 || report.skipped))
        status = ls_error_set(error, LS_EINVAL, "weights of 0: loss %g, norm %g",
                              (double)report.loss, report.grad_norm);
    ls_trainer_free(t);
    free(batch);
    return status;
}

CASE(test_bad_batches_are_refused)
{
    struct ls_error error = {0};
    struct job job = {.config = config_of_words(GPT2 "parallel.dp=2 parallel.tp=2")};
    assert_ok(ls_world_run(4, refused_body, &job, &error), error);
    /* Workers take batches of the data, and need it. */
    static struct batch batch;
    batch_fill(&batch, 9, 4, 4);
    job.config = config_of_words(GPT2 "async.mode=diloco async.workers=2 data.train=u16:%s/"
                                      "tokens.bin",
                                 (const char *)*state);
    struct ls_comm *world;
    struct ls_trainer *t = trainer_of(&job.config, &world);
    struct ls_step_report report;
    assert_int_equal(ls_trainer_step_on(t, &batch.given, &report, &error), LS_ECONFIG);
    if (!strstr(error.text, "async.mode") || !strstr(error.text, "none can be given"))
        fail_msg("%s", error.text);
    assert_null(ls_trainer_runner(t));
    trainer_end(t, world);
    job.config = config_of_words(GPT2 "async.mode=diloco async.workers=2");
    assert_int_equal(ls_comm_self_new(&world, &error), LS_OK);
    assert_int_equal(ls_trainer_new(&job.config, world, NULL, &t, &error), LS_ECONFIG);
    assert_text_contains(error.text, "data.train");
    ls_comm_free(world);
}

SUITE_MAIN(tokens_setup, scratch_teardown)
