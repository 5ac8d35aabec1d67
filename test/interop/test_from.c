/* Training from another program's model: the same state in any layout and by either way, resumed
 * without the model's folder; keys that contradict it are refused. */
#include "../support/scratch.h"
#include "../support/suite.h"
#include "folders.h"
#include "trained.h"

#include <lockstep/base/file.h>
#include <lockstep/data.h>
#include <lockstep/train.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROOM = 8192 };
#define LLAMA3 "test/data/golden/families/llama3.json"
#define TINY   " model.layers=1 model.channels=32 model.heads=4 model.vocab=5000 model.context=16"

static void check_family(const char *directory, const char *golden, int shards)
{
    char name[64], hash[33], folder[4096], away[4200];
    snprintf(name, sizeof name, "%s-%d", golden, shards);
    snprintf(folder, sizeof folder, "%s",
             folder_make(directory, name, &(struct folder_of){.golden = golden, .shards = shards}));
    snprintf(hash, sizeof hash, "%s",
             trained(directory, "one", "train.steps=4 model.from=%s", folder));
    static const char *const layouts[] = {
        "parallel.tp=2", "parallel.pp=2", "parallel.dp_shard=2 parallel.zero=3",
        "parallel.dp=2 parallel.zero=1 parallel.tp=2", "memory.offload.optimizer=host"};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        char run[64];
        snprintf(run, sizeof run, "run%zu", i);
        assert_string_equal(
            hash, trained(directory, run, "train.steps=4 model.from=%s %s", folder, layouts[i]));
    }
    /* By an import, in another layout. */
    char imported[4096];
    snprintf(imported, sizeof imported, "%s", scratch_path(directory, "imported"));
    model_import(directory, name, "imported", (struct ls_import){0});
    assert_string_equal(hash,
                        trained(directory, "from-run", "train.steps=4 model.from=%s", imported));
    assert_string_equal(hash, trained(directory, "imported",
                                      "train.steps=4 train.resume=auto model.from=%s "
                                      "parallel.tp=2",
                                      folder));
    /* Stopped, and resumed without the folder. */
    trained(directory, "stopped", "train.steps=2 model.from=%s parallel.pp=2", folder);
    snprintf(away, sizeof away, "%s.away", folder);
    assert_int_equal(rename(folder, away), 0);
    assert_string_equal(hash, trained(directory, "stopped",
                                      "train.steps=4 train.resume=auto model.from=%s", folder));
    /* What goes with the model lies with the run. */
    assert_int_equal(access(scratch_path(directory, "stopped/hf/config.json"), F_OK), 0);
}

CASE_WITH(test_gpt2, tokens_setup, scratch_teardown)
{
    check_family(*state, "gpt2_tiny", 3);
}

CASE_WITH(test_llama, tokens_setup, scratch_teardown)
{
    check_family(*state, "llama_tiny", 0);
}

/* A seed that changes random weights changes nothing of weights that are read; their values do. */
CASE_WITH(test_weights_count, tokens_setup, scratch_teardown)
{
    char folder[4096], hash[33];
    snprintf(folder, sizeof folder, "%s",
             folder_make(*state, "m", &(struct folder_of){.golden = "llama3_tiny"}));
    snprintf(hash, sizeof hash, "%s", trained(*state, "a", "train.steps=1 model.from=%s", folder));
    assert_string_equal(hash,
                        trained(*state, "b", "train.steps=1 model.from=%s model.seed=7", folder));
    snprintf(
        folder, sizeof folder, "%s",
        folder_make(*state, "n", &(struct folder_of){.golden = "llama3_tiny", .dtype = LS_BF16}));
    assert_string_not_equal(hash, trained(*state, "c", "train.steps=1 model.from=%s", folder));
}

struct looks {
    const char *run, *which; /* what rank 1 found when it looked */
};

static int look_body(struct ls_comm *comm, void *user, struct ls_error *error)
{
    const struct looks *looks = user;
    struct ls_model_source *source = NULL;
    const char *which = ls_comm_rank(comm) ? looks->which : NULL;
    int status = ls_model_source_choose(&source, looks->run, which, NULL, error);
    status = ls_model_source_agree(&source, comm, status, error);
    struct ls_digest mine = {0, 0};
    uint64_t sums[2] = {0};
    float values[64];
    struct ls_config config;
    struct ls_ops ops;
    if (!status)
        status = ls_model_source_alone(source, NULL, 0, NULL, &config, error);
    struct ls_numerics numerics = ls_config_numerics(&config);
    if (!status)
        status = ls_model_source_check(source, &config.model, &numerics, error);
    if (!status)
        status = ls_ops_init(&ops, 1, ls_isa_best(), error);
    if (!status) {
        struct ls_params params;
        assert_int_equal(ls_params_init(&params, &config.model, &numerics, NULL, NULL), LS_OK);
        status = ls_model_source_fill(source, &params.list[0], &ops, 0, 64, values, error);
        ls_params_release(&params);
        ls_ops_release(&ops);
        ls_digest_piece(&mine, "values", 0, 0, values, sizeof values);
        sums[0] = ls_comm_rank(comm) ? mine.low : -mine.low;
        status = ls_all_reduce_u64(comm, sums, 1, error);
        if (!status && sums[0])
            status = ls_error_set(error, LS_ENUMERIC, "ranks have different weights");
    }
    ls_model_source_close(source);
    return status;
}

/* A run that saves between the looks of two ranks gives both the weights that rank 0 found. */
CASE_WITH(test_ranks_take_one_checkpoint, tokens_setup, scratch_teardown)
{
    struct ls_error error = {0};
    char run[4096];
    trained(*state, "saves", "train.steps=4 train.save_every=2 train.keep=9 model.from=%s",
            folder_make(*state, "m", &(struct folder_of){.golden = "gpt2_tiny"}));
    snprintf(run, sizeof run, "%s", scratch_path(*state, "saves"));
    struct looks looks = {run, "2"};
    assert_ok(ls_world_run(2, look_body, &looks, &error), error);
    looks.which = "3"; /* one that found none fails with all */
    assert_int_equal(ls_world_run(2, look_body, &looks, &error), LS_ECKPT);
    assert_non_null(strstr(error.text, "those of the steps 4, 2"));
}

CASE_WITH(test_refusals, tokens_setup, scratch_teardown)
{
    char words[ROOM];
    const char *folder = folder_make(*state, "m", &(struct folder_of){.golden = "gpt2_tiny"});
    const char *other = folder_make(*state, "other", &(struct folder_of){.golden = "gpt2_tiny"});
    snprintf(words, sizeof words, "model.from=%s model.layers=5", folder);
    train_refused(*state, words, "command line: model.layers = 5: ");
    train_refused(*state, words, "config.json says 2 (n_layer)");
    snprintf(words, sizeof words, "model.from=%s model.arch=llama", folder);
    train_refused(*state, words, "model.arch = llama: ");
    snprintf(words, sizeof words, "model.from=%s model.preset=gpt2-124m", folder);
    train_refused(*state, words, "model.preset = \"gpt2-124m\"");
    snprintf(words, sizeof words, "model.from=%s model.window=0",
             folder_make(*state, "window", &(struct folder_of){.golden = "mistral_tiny"}));
    train_refused(*state, words, "command line: model.window = 0: ");
    snprintf(words, sizeof words, "model.from=%s/nowhere", folder);
    train_refused(*state, words, "model.from: ");
    snprintf(words, sizeof words,
             "model.from=%s model.layers=2 model.kv_heads=0 train.steps=1 "
             "train.out=%s/run",
             folder, (const char *)*state);
    struct ls_error error = {0};
    assert_int_equal(train_words(*state, words, &error), LS_OK);
    snprintf(words, sizeof words, "model.from=%s train.steps=2 train.resume=auto train.out=%s/run",
             other, (const char *)*state);
    train_refused(*state, words, "began from");
}

/* A start before the first checkpoint, and then one from another model. */
CASE_WITH(test_files_of_an_earlier_start, tokens_setup, scratch_teardown)
{
    char first[4096], second[4096];
    snprintf(first, sizeof first, "%s",
             folder_make(*state, "m0", &(struct folder_of){.golden = "gpt2_tiny"}));
    snprintf(second, sizeof second, "%s",
             folder_make(*state, "m9", &(struct folder_of){.golden = "gpt2_tiny"}));
    scratch_write(scratch_path(first, "generation_config.json"), "{\"eos_token_id\": 1}", 19);
    assert_int_equal(mkdir(scratch_path(first, "additional_chat_templates"), 0700), 0);
    scratch_write(scratch_path(first, "additional_chat_templates/rag.jinja"), "rag", 3);
    trained(*state, "run", "train.steps=1 model.from=%s", first);
    assert_int_equal(access(scratch_path(*state, "run/hf/generation_config.json"), F_OK), 0);
    assert_true(ls_directory_remove(scratch_path(*state, "run/checkpoints")));
    trained(*state, "run", "train.steps=1 model.from=%s", second);
    assert_int_equal(access(scratch_path(*state, "run/hf/config.json"), F_OK), 0);
    assert_int_equal(access(scratch_path(*state, "run/hf/generation_config.json"), F_OK), -1);
    assert_int_equal(
        access(scratch_path(*state, "run/hf/additional_chat_templates/rag.jinja"), F_OK), -1);
    assert_true(ls_directory_remove(scratch_path(*state, "run/checkpoints")));
    trained(*state, "run", "train.steps=1" TINY);
    assert_int_equal(access(scratch_path(*state, "run/hf"), F_OK), -1);
}

/* A store that another tokenizer made than the one of data.tokenizer, or of the model. */
CASE_WITH(test_stores_of_another_tokenizer, tokens_setup, scratch_teardown)
{
    char text[512], store[512], words[ROOM];
    const char *folder = folder_make(*state, "m", &(struct folder_of){.golden = "gpt2_tiny"});
    const char *const inputs[] = {text};
    struct ls_prepare_config prepare = {
        .inputs = inputs, .inputs_count = 1, .tokenizer = "byte", .output = store, .workers = 1};
    struct ls_prepare_report report;
    struct ls_error error = {0};
    snprintf(text, sizeof text, "%s/a.txt", (const char *)*state);
    snprintf(store, sizeof store, "%s/a", (const char *)*state);
    scratch_write(text, "abcdefgh", 8);
    assert_ok(ls_data_prepare(&prepare, &report, &error), error);
    snprintf(words, sizeof words, "data.train=%s_train data.tokenizer=" LLAMA3 TINY, store);
    train_refused(*state, words, "command line: data.train: ");
    train_refused(*state, words, "a_train: its tokenizer is byte, and that of data.tokenizer is ");
    snprintf(words, sizeof words, "data.valid=%s_train data.tokenizer=" LLAMA3 TINY, store);
    train_refused(*state, words, "command line: data.valid: ");
    snprintf(words, sizeof words, "cp " LLAMA3 " %s/tokenizer.json", folder);
    assert_int_equal(system(words), 0);
    snprintf(words, sizeof words, "data.train=%s_train model.from=%s", store, folder);
    train_refused(*state, words, "command line: data.train: ");
    train_refused(*state, words, "a_train: its tokenizer is byte, and that of model.from is ");
}

/* A recorded tokenizer that cannot be read is not none. */
CASE_WITH(test_a_recorded_tokenizer_is_gone, tokens_setup, scratch_teardown)
{
    char text[512], pair[1200], store[512], words[ROOM];
    const char *const inputs[] = {text};
    struct ls_prepare_config prepare = {
        .inputs = inputs, .inputs_count = 1, .tokenizer = pair, .output = store, .workers = 1};
    struct ls_prepare_report report;
    struct ls_error error = {0};
    snprintf(text, sizeof text, "%s/a.txt", (const char *)*state);
    snprintf(store, sizeof store, "%s/a", (const char *)*state);
    scratch_write(text, "abcdefgh", 8);
    snprintf(words, sizeof words, "cp test/data/golden/vocab.json test/data/golden/merges.txt %s",
             (const char *)*state);
    assert_int_equal(system(words), 0);
    snprintf(pair, sizeof pair, "%s/vocab.json,%s/merges.txt", (const char *)*state,
             (const char *)*state);
    assert_ok(ls_data_prepare(&prepare, &report, &error), error);
    assert_int_equal(remove(scratch_path(*state, "merges.txt")), 0);
    snprintf(words, sizeof words, "data.train=%s_train model.vocab=5000", store);
    train_refused(*state, words, "command line: data.train: tokenizer of ");
    train_refused(*state, words, "/merges.txt: No such file or directory");
}

/* ---- weights beyond fp16 --------------------------------------------------------------------- */

#define UP "model.layers.1.mlp.up_proj.weight" /* [48, 32] */

/* A folder in which a weight of a matrix and one of a norm are these. */
static const char *weights_set(const char *directory, const char *name, float up, float norm)
{
    const char *folder = folder_make(directory, name, &(struct folder_of){.golden = "llama_tiny"});
    values_edit(folder, UP, (size_t[]){40 * 32 + 9}, &up, 1);
    values_edit(folder, "model.norm.weight", (size_t[]){3}, &norm, 1);
    return folder;
}

/* A first weight that is infinite in fp16 is refused by name, however the run gets it and whoever
 * holds it. One that is rounded to the largest number is taken, as is any of a norm, which stays
 * in float32. */
CASE_WITH(test_weights_beyond_fp16, tokens_setup, scratch_teardown)
{
    static const char *const layouts[] = {"",
                                          "parallel.dp=2 parallel.zero=3",
                                          "parallel.pp=2",
                                          "parallel.tp=2",
                                          "lora.rank=4",
                                          "memory.offload.optimizer=host"};
    static const char says[] = "h.1.mlp.up.weight: the weight at [40, 9] is -65520, and the "
                               "numbers of fp16 end at 65504";
    char words[ROOM];
    const char *folder = weights_set(*state, "beyond", -65520, 1);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        snprintf(words, sizeof words, "numerics.precision=fp16 model.from=%s %s", folder,
                 layouts[i]);
        train_refused(*state, words, says);
    }
    trained(*state, "wider", "numerics.precision=bf16 train.steps=1 model.from=%s", folder);
    for (int i = 0; i < 2; i++) {
        char run[32];
        snprintf(run, sizeof run, "imported-%d", i);
        model_import(*state, "beyond", run, (struct ls_import){0});
        snprintf(words, sizeof words,
                 "numerics.precision=fp16 train.resume=auto model.from=%s train.out=%s %s", folder,
                 scratch_path(*state, run), i ? "parallel.dp=2 parallel.zero=3" : "");
        train_refused(*state, words, says);
    }
    folder = weights_set(*state, "within", nextafterf(65520, 0), 1e5f);
    trained(*state, "largest", "numerics.precision=fp16 train.steps=1 model.from=%s", folder);
}

SUITE_MAIN(NULL, NULL)
