/* Training on tokens of which some count, or weigh more: the loss and the gradient are means over
 * those, with the same bits in every layout. */
#include "../support/config_words.h"
#include "../support/examples.h"
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"

#include <lockstep/compare.h>
#include <lockstep/data/pack.h>
#include <lockstep/train.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 3, EXAMPLES = 150 };

/* Examples of prompts and completions of many lengths; `all` gives them no prompts. */
static void examples_write(const char *directory, const char *name, bool all)
{
    static char text[EXAMPLES * 256];
    char *at = text;
    for (uint32_t i = 0; i < EXAMPLES; i++) {
        uint32_t bits[4];
        ls_philox(ls_philox_key_of(3, "examples"), (uint32_t[4]){i, 0, 0, 0}, bits);
        int prompt = (int)(bits[0] % 90), completion = 1 + (int)(bits[1] % 30);
        at += sprintf(at, "{\"prompt\": \"%.*s\", \"completion\": \"%s%0*x\"}\n",
                      all ? 0 : prompt + 1,
                      "Which of these numbers is the one that the machine under the table shall "
                      "say, and not another one? ",
                      all ? "what is there counts: " : "", completion, bits[2]);
    }
    examples_prepare(directory, name, text);
}

static int setup(void **state)
{
    if (scratch_setup(state))
        return -1;
    examples_write(*state, "some", false);
    examples_write(*state, "all", true);
    struct ls_pack_report report;
    return ls_store_pack(scratch_path(*state, "some_train"), 64, NULL, &report, NULL);
}

#define GPT2                                                                                       \
    "model.arch=gpt2 model.vocab=260 model.layers=4 model.channels=32 model.heads=4 "              \
    "model.context=64 model.dropout=0.1 batch.global=8 parallel.threads=1 "
#define LLAMA                                                                                      \
    "model.arch=llama model.vocab=260 model.layers=4 model.channels=32 model.heads=4 "             \
    "model.kv_heads=2 model.ffn=64 model.context=256 batch.global=4 numerics.seq_tiles=2 "         \
    "parallel.threads=1 "

#define PACKED   "data.packing=documents "
#define BEST_FIT "data.packing=best_fit "

static struct ls_config config_of(const char *directory, const char *store, const char *recipe,
                                  const char *layout)
{
    return config_of_words("data.train=%s/%s_train train.out=%s/run %s %s", directory, store,
                           directory, recipe, layout);
}

static void prove(const char *directory, const char *store, const char *recipe, const char *layout,
                  struct ls_proof proof[STEPS])
{
    struct ls_config config = config_of(directory, store, recipe, layout);
    struct ls_error error = {0};
    if (ls_proof_threads(&config, STEPS, proof, &error))
        fail_msg("%s: %s", layout, error.text);
}

CASE_WITH(test_layouts_agree, setup, scratch_teardown)
{
    static const char *const layouts[][2] = {
        {GPT2, "batch.micro=1"},
        {GPT2, "batch.micro=3 parallel.dp=2 parallel.zero=2"},
        {GPT2, "batch.micro=1 parallel.pp=2 parallel.schedule=zbv parallel.dp=4"},
        {GPT2, "parallel.tp=2"},
        {GPT2, "parallel.dp_shard=2 parallel.dp_replicate=2 parallel.zero=3 memory.recompute=full"},
        {LLAMA, "parallel.cp=2"},
        {LLAMA, "parallel.cp=2 parallel.cp_method=ring parallel.tp=2 parallel.dp=2"},
        {LLAMA, "parallel.cp=2 parallel.pp=2 batch.micro=1"},
        {GPT2 PACKED, "batch.micro=1"},
        {GPT2 PACKED, "batch.micro=3 parallel.dp=2 parallel.zero=2 memory.recompute=full"},
        {GPT2 PACKED, "batch.micro=1 parallel.pp=2 parallel.schedule=zbv parallel.dp=4"},
        {GPT2 PACKED, "parallel.tp=2 parallel.sp=true"},
        {LLAMA PACKED, "parallel.cp=2"},
        {LLAMA PACKED, "parallel.cp=2 parallel.cp_method=ring parallel.tp=2 parallel.dp=2"},
        {LLAMA PACKED, "parallel.cp=2 parallel.pp=2 batch.micro=1 memory.recompute=selective"},
        {GPT2 BEST_FIT, "batch.micro=3 parallel.dp=2 parallel.zero=2"},
        {GPT2 BEST_FIT, "parallel.tp=2 parallel.sp=true parallel.pp=2"},
    };
    struct ls_proof one[STEPS], cut[STEPS];
    const char *recipe = NULL;
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l += (size_t)check_every(3, 2)) {
        if (recipe != layouts[l][0])
            prove(*state, "some", layouts[l][0], "", one);
        recipe = layouts[l][0];
        prove(*state, "some", recipe, layouts[l][1], cut);
        int64_t step = ls_proof_differs(one, cut, STEPS);
        if (step)
            fail_msg("%s: step %ld has other bits than one rank", layouts[l][1], (long)step);
    }
}

/* A mask of ones is none. */
CASE_WITH(test_all_counted_is_no_mask, setup, scratch_teardown)
{
    struct ls_proof masked[STEPS], plain[STEPS];
    assert_int_equal(access(scratch_path(*state, "all_train.mask"), F_OK), 0);
    prove(*state, "all", GPT2, "", masked);
    assert_int_equal(unlink(scratch_path(*state, "all_train.mask")), 0);
    prove(*state, "all", GPT2, "", plain);
    assert_int_equal(ls_proof_differs(masked, plain, STEPS), 0);
    prove(*state, "some", GPT2, "", masked);
    assert_int_equal(unlink(scratch_path(*state, "some_train.mask")), 0);
    prove(*state, "some", GPT2, "", plain);
    assert_int_equal(ls_proof_differs(masked, plain, STEPS), 1); /* and this can fail */
}

static struct ls_trainer *trainer_of(const struct ls_config *config, struct ls_comm **world)
{
    struct ls_error error = {0};
    struct ls_trainer *trainer = NULL;
    if (ls_comm_self_new(world, &error) || ls_trainer_new(config, *world, NULL, &trainer, &error))
        fail_msg("%s", error.text);
    return trainer;
}

/* The loss of a step is that of an evaluation of its samples, which adds in another way, and the
 * sum over the batch's sequences of each one's own, over the tokens that count in all. */
CASE_WITH(test_loss_is_the_mean_of_what_counts, setup, scratch_teardown)
{
    char valid[400];
    snprintf(valid, sizeof valid, "data.valid=%s/some_train data.shuffle=false",
             (const char *)*state);
    struct ls_config config =
        config_of(*state, "some", GPT2 "model.dropout=0 numerics.precision=fp32", valid);
    config.eval.samples = 8;
    struct ls_comm *world;
    struct ls_trainer *trainer = trainer_of(&config, &world);
    struct ls_error error = {0};
    struct ls_step_report step;
    struct ls_eval_report eval;
    if (ls_trainer_evaluate(trainer, &eval, &error) || ls_trainer_step(trainer, &step, &error))
        fail_msg("%s", error.text);
    struct ls_token_store *store;
    assert_int_equal(ls_token_store_open(config.data.train, &store, &error), LS_OK);
    int64_t counted;
    assert_int_equal(ls_token_store_counted(store, 1, 8 * 64, &counted, &error), LS_OK);
    ls_token_store_close(store);
    assert_in_range(counted, 20, 8 * 64 - 200);
    assert_int_equal(eval.tokens, counted);
    assert_int_equal(eval.sequences, 8);
    assert_int_equal(step.counted, counted);
    assert_int_equal(step.tokens, 8 * 64);
    if (!(fabs((double)step.loss - eval.loss) < 1e-5))
        fail_msg("the step's loss is %.9g, the evaluation's %.9g", (double)step.loss, eval.loss);
    /* Bits per byte are of the bytes that count. */
    double bits = eval.loss * (double)eval.tokens / log(2.0);
    assert_in_range((int64_t)(bits / eval.bits_per_byte + 0.5), counted, counted + 8 * 13);
    ls_trainer_free(trainer);
    ls_comm_free(world);
}

/* Documents of a sequence do not see each other: the loss is that of each in a sequence of its own.
 */
CASE_WITH(test_packed_documents_are_apart, setup, scratch_teardown)
{
    char valid[400];
    double loss[2];
    int64_t counted[2], sequences[2];
    /* Texts of 33 to 64 tokens: four or more of them fit 256, and no two fit 64. */
    char text[8000] = "";
    for (uint32_t i = 0, at = 0; i < 40; i++)
        at += (uint32_t)sprintf(text + at, "{\"prompt\": \"%0*d\", \"completion\": \"%d is it\"}\n",
                                30 + (int)(i * 7 % 25), 1, (int)i * 31 % 10);
    struct ls_prepare_report prepared = examples_prepare(*state, "short", text);
    struct ls_error error = {0};
    for (int wide = 0; wide < 2; wide++) {
        snprintf(valid, sizeof valid, PACKED "data.valid=%s/short_train data.sequence=%d",
                 (const char *)*state, wide ? 256 : 64);
        struct ls_config config =
            config_of(*state, "short", LLAMA "numerics.precision=fp32 numerics.seq_tiles=1", valid);
        struct ls_comm *world;
        struct ls_trainer *trainer = trainer_of(&config, &world);
        struct ls_eval_report eval;
        assert_ok(ls_trainer_evaluate(trainer, &eval, &error), error);
        loss[wide] = eval.loss;
        counted[wide] = eval.tokens;
        sequences[wide] = eval.sequences;
        ls_trainer_free(trainer);
        ls_comm_free(world);
    }
    assert_int_equal(sequences[0], 40);
    assert_in_range(sequences[1], 8, 12);
    assert_int_equal(counted[0], prepared.train.counted);
    assert_int_equal(counted[1], prepared.train.counted);
    if (!(fabs(loss[0] - loss[1]) < 1e-6))
        fail_msg("alone the loss is %.9g, packed %.9g", loss[0], loss[1]);
}

/* ---- weights --------------------------------------------------------------------------------- */

/* PREFIX.weights of a store: from -1/2 to 2, some of them 0; or all alike. */
static void weights_write(const char *directory, const char *store, const float *alike)
{
    char name[80];
    struct ls_token_store *read;
    struct ls_error error = {0};
    snprintf(name, sizeof name, "%s_train", store);
    assert_ok(ls_token_store_open(scratch_path(directory, name), &read, &error), error);
    int64_t tokens = ls_token_store_tokens(read);
    ls_token_store_close(read);
    float *weights = calloc((size_t)tokens, sizeof *weights);
    for (uint32_t i = 0; i < tokens; i++) {
        uint32_t bits[4];
        ls_philox(ls_philox_key_of(4, "weights"), (uint32_t[4]){i, 0, 0, 0}, bits);
        weights[i] = alike ? *alike : bits[0] % 6 ? 2.5f * ls_uniform_of(bits[1]) - 0.5f : 0;
    }
    snprintf(name, sizeof name, "%s_train.weights", store);
    scratch_write(scratch_path(directory, name), weights, (size_t)tokens * sizeof *weights);
    free(weights);
}

CASE_WITH(test_layouts_agree_on_weights, setup, scratch_teardown)
{
    char blend[400];
    snprintf(blend, sizeof blend,
             "data.train= data.blend=[{\"source\":\"%s/some_train\",\"weight\":2},"
             "{\"source\":\"%s/all_train\",\"weight\":1}]",
             (const char *)*state, (const char *)*state);
    const char *const layouts[][3] = {
        {GPT2, "batch.micro=3 parallel.dp=2 parallel.zero=2", ""},
        {GPT2, "parallel.tp=2 parallel.pp=2", ""},
        {LLAMA, "parallel.cp=2 parallel.dp=2", ""},
        {GPT2 PACKED, "batch.micro=3 parallel.dp=2", ""},
        {LLAMA PACKED, "parallel.cp=2", ""},
        {GPT2 BEST_FIT, "parallel.dp=4", ""},
        {GPT2, "parallel.dp=2 parallel.zero=3", blend},
    };
    struct ls_proof one[STEPS], cut[STEPS], plain[STEPS];
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l += (size_t)check_every(3, 2)) {
        char recipe[800];
        snprintf(recipe, sizeof recipe, "%s%s", layouts[l][0], layouts[l][2]);
        if (l == 0)
            prove(*state, "some", recipe, "", plain);
        weights_write(*state, "some", NULL);
        prove(*state, "some", recipe, "", one);
        prove(*state, "some", recipe, layouts[l][1], cut);
        int64_t step = ls_proof_differs(one, cut, STEPS);
        if (step)
            fail_msg("%s: step %ld has other bits than one rank", layouts[l][1], (long)step);
        if (l == 0) { /* they matter; and those of 1 are none */
            const float alike = 1;
            assert_int_equal(ls_proof_differs(one, plain, STEPS), 1);
            weights_write(*state, "some", &alike);
            prove(*state, "some", recipe, "", cut);
            assert_int_equal(ls_proof_differs(cut, plain, STEPS), 0);
        }
    }
    /* The mean of nothing. */
    const float none = 0;
    struct ls_error error = {0};
    weights_write(*state, "some", &none);
    struct ls_config config = config_of(*state, "some", GPT2, "");
    assert_int_equal(ls_proof_threads(&config, STEPS, cut, &error), LS_EDATA);
    if (!strstr(error.text, "sum up to 0") || !strstr(error.text, "step 1"))
        fail_msg("%s", error.text);
}

/* A step on samples and weights of files is one on the same that are given. */
CASE_WITH(test_weights_of_a_file_are_those_that_are_given, setup, scratch_teardown)
{
    enum { BATCH = 8, T = 64 };
    int32_t inputs[BATCH * T], targets[BATCH * T];
    float weights[BATCH * T];
    struct ls_digest hash[2];
    struct ls_error error = {0};
    weights_write(*state, "some", NULL);
    for (int given = 0; given < 2; given++) {
        struct ls_config config = config_of(*state, "some", GPT2, "data.shuffle=false");
        struct ls_comm *world;
        struct ls_trainer *trainer = trainer_of(&config, &world);
        struct ls_step_report report;
        struct ls_token_store *store;
        assert_int_equal(ls_token_store_open(config.data.train, &store, &error), LS_OK);
        for (int i = 0; i < BATCH; i++)
            if (ls_sample_read(store, i, T, 260, inputs + i * T, targets + i * T, &error) ||
                ls_sample_weights(store, i, T, weights + i * T, &error))
                fail_msg("%s", error.text);
        ls_token_store_close(store);
        const struct ls_given_batch batch = {.sequences = BATCH,
                                             .tokens = T,
                                             .inputs = inputs,
                                             .targets = targets,
                                             .weights = weights};
        int status = given ? ls_trainer_step_on(trainer, &batch, &report, &error)
                           : ls_trainer_step(trainer, &report, &error);
        if (status || ls_trainer_hash(trainer, &hash[given], &error))
            fail_msg("%s", error.text);
        ls_trainer_free(trainer);
        ls_comm_free(world);
    }
    assert_memory_equal(&hash[0], &hash[1], sizeof hash[0]);
}

/* Workers tell it too: of DiLoCo the sum over all of a step, of a server's push that of its batch.
 */
CASE_WITH(test_workers_tell_the_sum_of_weights, setup, scratch_teardown)
{
    static const char *const modes[] = {
        "", "async.mode=diloco async.workers=2 async.sync_every=1 batch.global=4",
        "async.mode=server async.workers=2 async.sync_every=1 batch.global=4"};
    double weight[3];
    weights_write(*state, "some", NULL);
    for (int i = 0; i < 3; i++) {
        struct ls_config config = config_of(*state, "some", GPT2, modes[i]);
        struct ls_comm *world;
        struct ls_trainer *trainer = trainer_of(&config, &world);
        struct ls_step_report report;
        struct ls_error error = {0};
        assert_ok(ls_trainer_step(trainer, &report, &error), error);
        assert_true(report.weighted);
        weight[i] = report.weight;
        ls_trainer_free(trainer);
        ls_comm_free(world);
    }
    /* Each worker's sum is rounded. */
    assert_true(fabs(weight[1] - weight[0]) < 1e-12 * fabs(weight[0]));
    assert_true(weight[2] != 0 && fabs(weight[2]) < fabs(weight[0]));
}

/* A batch of prompts alone has no loss. */
CASE_WITH(test_nothing_counts, setup, scratch_teardown)
{
    char text[4000] = "{\"prompt\": \"";
    memset(text + strlen(text), 'x', 3000);
    strcat(text, "\", \"completion\": \"yes\"}\n");
    examples_prepare(*state, "long", text);
    struct ls_error error = {0};
    struct ls_config config = config_of(*state, "long", GPT2, "data.shuffle=false");
    struct ls_proof proof[STEPS];
    assert_int_equal(ls_proof_threads(&config, STEPS, proof, &error), LS_EDATA);
    if (!strstr(error.text, "step 1: no token of the batch counts: samples 0 to 7") ||
        !strstr(error.text, "data.train"))
        fail_msg("%s", error.text);
    config = config_of(*state, "long", GPT2, "data.shuffle=false parallel.dp=2");
    assert_int_equal(ls_proof_threads(&config, STEPS, proof, &error), LS_EDATA);
    /* The same for an evaluation. */
    config = config_of(*state, "some", GPT2, "");
    snprintf(config.data.valid, sizeof config.data.valid, "%s/long_train", (const char *)*state);
    config.eval.samples = 8;
    struct ls_comm *world;
    struct ls_trainer *trainer = trainer_of(&config, &world);
    struct ls_eval_report eval;
    assert_int_equal(ls_trainer_evaluate(trainer, &eval, &error), LS_EDATA);
    assert_text_contains(error.text, "long_train.bin: no token of 8 sequences counts");
    ls_trainer_free(trainer);
    ls_comm_free(world);
}

SUITE_MAIN(NULL, NULL)
