/* The converter: whole files against what they became when they were last looked at, every row of
 * every table, what is refused and with which words, and files that are cut short. Runs from the
 * root of the tree. `test_convert --record` writes what files become now. */
#include "../support/extent.h"
#include "convert/convert_private.h"

#include <lockstep/base/file.h>

#include <stdlib.h>
#include <string.h>

#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"

#define GOLDEN "test/convert/golden/"

static const struct golden {
    enum ls_convert_project project;
    const char *name;
    int64_t ranks;
    const char *preset;
} goldens[] = {
    {LS_CONVERT_DEEPSPEED, "zero3.json", 8, NULL},
    {LS_CONVERT_DEEPSPEED, "zero1.json", 0, "gpt2-124m"},
    {LS_CONVERT_DEEPSPEED, "keys.json", 64, NULL},
    {LS_CONVERT_MEGATRON, "pretrain.sh", 0, NULL},
    {LS_CONVERT_MEGATRON, "llama.txt", 16, NULL},
    {LS_CONVERT_MEGATRON, "samples.txt", 8, NULL},
    {LS_CONVERT_MEGATRON, "qwen3.sh", 0, NULL},
    {LS_CONVERT_MEGATRON, "keys.sh", 32, NULL},
    {LS_CONVERT_TORCHTITAN, "older.toml", 16, NULL},
    {LS_CONVERT_TORCHTITAN, "newer.toml", 0, NULL},
    {LS_CONVERT_TORCHTITAN, "qwen3.toml", 8, NULL},
    {LS_CONVERT_TORCHTITAN, "keys.toml", 32, NULL},
};
enum { GOLDENS = sizeof goldens / sizeof *goldens };

static const char *const words[] = {"data.valid=data/valid"};

static struct ls_convert_options options_of(const struct golden *golden)
{
    return (struct ls_convert_options){.ranks = golden->ranks,
                                       .preset = golden->preset,
                                       .allow_loss = true,
                                       .words = words,
                                       .word_count = 1};
}

static void convert_golden(struct ls_convert *result, const struct golden *golden)
{
    char path[256];
    struct ls_error error = {0};
    struct ls_convert_options options = options_of(golden);
    snprintf(path, sizeof path, GOLDEN "%s", golden->name);
    if (ls_convert_file(result, golden->project, path, &options, &error))
        fail_msg("%s: %s", golden->name, error.text);
}

static int convert(struct ls_convert *result, enum ls_convert_project project, const char *text,
                   const struct ls_convert_options *options, struct ls_error *error)
{
    *error = (struct ls_error){0};
    return ls_convert_text(result, project, "file", text, strlen(text), options, error);
}

/* What the text becomes holds each of the words (ended by NULL). */
static void expect(enum ls_convert_project project, const char *text,
                   const struct ls_convert_options *options, ...)
{
    struct ls_convert result;
    struct ls_error error;
    va_list list;
    if (convert(&result, project, text, options, &error))
        fail_msg("%s\nwas refused: %s", text, error.text);
    va_start(list, options);
    for (const char *word; (word = va_arg(list, const char *));)
        if (!strstr(result.text, word))
            fail_msg("%s\nbecame:\n%s\nwhich lacks: %s", text, result.text, word);
    va_end(list);
    ls_convert_release(&result);
}

static void expect_refused(enum ls_convert_project project, const char *text,
                           const struct ls_convert_options *options, ...)
{
    struct ls_convert result;
    struct ls_error error;
    va_list list;
    int status = convert(&result, project, text, options, &error);
    if (status != LS_ECONFIG)
        fail_msg("%s\ngave %s: %s", text, ls_status_name(status), error.text);
    assert_null(result.text);
    va_start(list, options);
    for (const char *word; (word = va_arg(list, const char *));)
        if (!strstr(error.text, word))
            fail_msg("%s\nwas refused with: %s\nwhich lacks: %s", text, error.text, word);
    va_end(list);
    ls_convert_release(&result);
}

/* It has the one word, and not the other. */
static void expect_without(enum ls_convert_project project, const char *text, const char *word,
                           const char *other)
{
    struct ls_convert result;
    struct ls_convert_options options = {0};
    struct ls_error error;
    if (convert(&result, project, text, &options, &error))
        fail_msg("%s\nwas refused: %s", text, error.text);
    if (!strstr(result.text, word) || strstr(result.text, other))
        fail_msg("%s\nbecame:\n%s\nwhich lacks: %s, or has: %s", text, result.text, word, other);
    ls_convert_release(&result);
}

static const struct ls_convert_options strict = {0}, lax = {.allow_loss = true};

/* ---- whole files ---------------------------------------------------------------------------- */

CASE(test_files_become_what_they_became)
{
    for (size_t i = 0; i < GOLDENS; i++) {
        struct ls_convert result;
        char path[256];
        snprintf(path, sizeof path, GOLDEN "%s.yaml", goldens[i].name);
        convert_golden(&result, &goldens[i]);
        char *golden = scratch_read(path, NULL);
        assert_string_equal(result.text, golden);
        free(golden);
        ls_convert_release(&result);
    }
}

/* What is printed is a configuration of ours, and says of each key of the source what became of
 * it. */
CASE(test_no_key_is_passed_over)
{
    for (size_t i = 0; i < GOLDENS; i++) {
        struct ls_convert result;
        struct ls_config config;
        struct ls_error error = {0};
        struct convert_entries entries = {0};
        struct ls_convert_options options = options_of(&goldens[i]);
        char path[256];
        size_t bytes;
        snprintf(path, sizeof path, GOLDEN "%s", goldens[i].name);
        char *source = scratch_read(path, &bytes);
        convert_golden(&result, &goldens[i]);
        ls_config_defaults(&config);
        assert_int_equal(
            ls_config_load_text(&config, "y", result.text, strlen(result.text), &error), LS_OK);
        assert_int_equal(convert_project_of(goldens[i].project)
                             ->read(&entries, path, source, bytes, &options, &error),
                         LS_OK);
        assert_true(entries.count > 10);
        for (size_t e = 0; e < entries.count; e++)
            if (!strstr(result.text, entries.at[e].key)) {
                bool mentioned = false; /* another key gave ours its last value */
                for (size_t k = 0; k < result.count; k++)
                    mentioned |= strcmp(result.items[k].theirs, entries.at[e].key) == 0;
                if (!mentioned)
                    fail_msg("%s: nothing is said of %s", path, entries.at[e].key);
            }
        convert_entries_release(&entries);
        ls_convert_release(&result);
        free(source);
    }
}

static void read_golden(const struct golden *golden, struct convert_entries *entries)
{
    struct ls_error error = {0};
    char path[256];
    size_t bytes;
    snprintf(path, sizeof path, GOLDEN "%s", golden->name);
    char *source = scratch_read(path, &bytes);
    if (convert_project_of(golden->project)->read(entries, path, source, bytes, &strict, &error))
        fail_msg("%s: %s", path, error.text);
    free(source);
}

/* Whether a file has that key, or with a * one that begins so and has no row of its own. */
static bool is_met(const struct convert_project *of, const struct convert_entries *entries,
                   const char *key)
{
    size_t length = strlen(key) - 1;
    bool begins = key[length] == '*';
    const struct ls_convert_rule *rule = convert_rule_of(of, key);
    for (size_t i = 0; i < entries->count; i++) {
        const char *there = entries->at[i].key;
        if (strcmp(there, key) == 0 ||
            (begins && strncmp(there, key, length) == 0 && convert_rule_of(of, there) == rule))
            return true;
    }
    return false;
}

CASE(test_every_key_is_met)
{
    struct convert_entries entries[GOLDENS] = {0};
    char key[LS_CONVERT_KEY_BYTES];
    for (size_t i = 0; i < GOLDENS; i++)
        read_golden(&goldens[i], &entries[i]);
    for (int project = 0; ls_convert_project_name(project); project++) {
        const struct convert_project *of = convert_project_of((enum ls_convert_project)project);
        for (const struct ls_convert_rule *rule = of->rules; rule->theirs; rule++)
            for (int k = 0; ls_convert_rule_key(rule, k, key); k++) {
                bool met = strcmp(key, "zero_optimization") == 0 || strstr(key, ".py");
                for (size_t i = 0; i < GOLDENS; i++)
                    met |= (int)goldens[i].project == project && is_met(of, &entries[i], key);
                if (!met)
                    fail_msg("%s: no file has %s", of->name, key);
            }
    }
    for (size_t i = 0; i < GOLDENS; i++)
        convert_entries_release(&entries[i]);
}

/* ---- reasons -------------------------------------------------------------------------------- */

static bool is_here(const char *name)
{
    char found[LS_CONVERT_HERE_BYTES];
    return ls_convert_here(name, found);
}

/* The next word of text that looks like a key of ours, or like a word of one: "optim.name=lion". */
static bool next_key(const char **text, char *key, size_t bytes)
{
    static const char *const letters = "abcdefghijklmnopqrstuvwxyz0123456789_.=";
    char group[64];
    for (size_t length; **text; *text += length) {
        *text += strcspn(*text, letters);
        length = strspn(*text, letters);
        snprintf(key, bytes, "%.*s", (int)length, *text);
        while (length && *key && key[strlen(key) - 1] == '.')
            key[strlen(key) - 1] = '\0';
        snprintf(group, sizeof group, "%.*s.*", (int)strcspn(key, "."), key);
        if (strchr(key, '.') && is_here(group)) {
            *text += length;
            return true;
        }
    }
    return false;
}

/* Whether all that a text names of ours is there: keys, and words of those that have words. */
static bool names_what_is_here(const struct convert_project *of, const char *text)
{
    char key[128];
    while (next_key(&text, key, sizeof key)) {
        char *word = strchr(key, '=');
        if (word)
            *word = '\0';
        if (convert_rule_of(of, key)) /* of theirs, by the same name */
            continue;
        if (!is_here(key))
            return false;
        if (!word || !ls_config_key_of(key)->words)
            continue;
        *word = '=';
        if (!is_here(key))
            return false;
    }
    return true;
}

/* Whether a row names keys that exist, and says as missing what is not here. */
static bool is_sound(const struct convert_project *of, const struct ls_convert_rule *rule)
{
    char ours[128];
    bool lost = rule->kind == LS_RULE_LOSE;
    for (const char *at = rule->ours; *at; at += strcspn(at, ","), at += *at == ',') {
        snprintf(ours, sizeof ours, "%.*s", (int)strcspn(at, ","), at);
        if (!is_here(ours))
            return false;
    }
    if (lost && (!*rule->why || !rule->lacks || !*rule->lacks))
        return false;
    return !(rule->lacks && is_here(rule->lacks)) && names_what_is_here(of, rule->why);
}

CASE(test_rows_are_sound)
{
    for (int project = 0; ls_convert_project_name(project); project++) {
        const struct convert_project *of = convert_project_of((enum ls_convert_project)project);
        char key[LS_CONVERT_KEY_BYTES];
        for (const struct ls_convert_rule *rule = of->rules; rule->theirs; rule++) {
            if (!is_sound(of, rule))
                fail_msg("%s: %s: no longer true, or nothing that can be asked", rule->theirs,
                         rule->why);
            for (int i = 0; ls_convert_rule_key(rule, i, key); i++)
                if (convert_rule_of(of, key) != rule)
                    fail_msg("%s has another row", key);
        }
    }
}

/* Broken rows, each of which must be caught: what they call missing is here, what they name is not,
 * or there is nothing to ask. */
CASE(test_unsound_rows_are_caught)
{
    static const struct ls_convert_rule twins[] = {
        LOSE("--a", "", "attention sees all tokens before", "model.window"),
        LOSE("--b", "", "there is no Lion", "*adagrad*|optim.name=lion"),
        LOSE("--c", "", "there is no Qwen3", "model.preset=qwen3-*"),
        LOSE("--d", "", "queries and keys are not normed", "*: norm of heads"),
        LOSE("--e", "", "only GPT-2 has learned positions", "model.arch=gpt2"),
        LOSE("--f", "", "no weights are read", "model.from: *hugging face*"),
        LOSE("--g", "", "a reason that nobody can ask", ""),
        RULE("--h", LOSE, "", "", "a reason that nobody can ask"),
        DROP("--i", "there are no adapters", "lora.*"),
        DROP("--j", "optim.rate says it"),
        DROP("--k", "it is data.packing=pages here."),
        COPY("--l", "optim.rate", ""),
    };
    for (size_t i = 0; i < sizeof twins / sizeof *twins; i++)
        if (is_sound(&convert_megatron, &twins[i]))
            fail_msg("%s: %s: passed for sound", twins[i].theirs, twins[i].why);
}

/* The same of reasons that no row has, in all that whole files are told. */
CASE(test_reasons_are_true)
{
    for (size_t i = 0; i < GOLDENS; i++) {
        struct ls_convert result;
        convert_golden(&result, &goldens[i]);
        for (size_t k = 0; k < result.count; k++)
            if (strstr(result.items[k].why, "is here, but") ||
                !names_what_is_here(convert_project_of(goldens[i].project), result.items[k].why))
                fail_msg("%s: %s: %s", goldens[i].name, result.items[k].theirs,
                         result.items[k].why);
        ls_convert_release(&result);
    }
}

/* A reason that has become false does not say so: it names what is here. */
CASE(test_a_false_reason_is_not_given)
{
    struct ls_convert result = {0};
    struct ls_error error = {0};
    struct convert c = {.result = &result, .options = &strict, .name = "file", .error = &error};
    convert_lose(&c, "--a", "*sinks*|model.window", "attention sees all tokens before");
    convert_lose(&c, "--b", "model.sinks", "there are no sinks");
    assert_int_equal(c.status, LS_OK);
    assert_non_null(strstr(result.items[0].why, "model.window is here, but"));
    assert_null(strstr(result.items[0].why, "all tokens before"));
    assert_string_equal(result.items[1].why, "there are no sinks");
    ls_convert_release(&result);
}

/* ---- refusals ------------------------------------------------------------------------------- */

CASE(test_unknown_keys_are_refused_with_the_nearest)
{
    expect_refused(LS_CONVERT_DEEPSPEED, "{\"train_batch_size\": 8,\n\"gradient_cliping\": 1}",
                   &strict, "file:2: gradient_cliping", "did you mean gradient_clipping?",
                   "1 key cannot be kept", NULL);
    expect_refused(
        LS_CONVERT_DEEPSPEED, "{\"train_batch_size\": 8, \"optimizer\": \"Adam\"}", &strict,
        "file:1: optimizer: a section: expected keys with values, such as optimizer.type", NULL);
    expect_refused(LS_CONVERT_DEEPSPEED, "{\"stage\": 2, \"train_batch_size\": 8}", &strict,
                   "did you mean zero_optimization.stage?", NULL);
    expect_refused(LS_CONVERT_MEGATRON, "--num-layer 2", &strict, "did you mean --num-layers?",
                   NULL);
    expect_refused(LS_CONVERT_TORCHTITAN, "[trainig]\nsteps = 2", &strict, "file:2: trainig.steps",
                   "did you mean training.steps?", NULL);
    expect(LS_CONVERT_DEEPSPEED, "{\"train_batch_size\": 8, \"gradient_cliping\": 1}", &lax,
           "LEFT OUT ALTHOUGH RESULTS CHANGE",
           "gradient_cliping (line 1): no such key is known; did you mean gradient_clipping?",
           NULL);
}

CASE(test_losses_are_refused_by_name)
{
    expect_refused(LS_CONVERT_DEEPSPEED,
                   "{\"train_batch_size\": 8, \"optimizer\": {\"type\": \"Lamb\"}}", &strict,
                   "optimizer.type", "there is no Lamb", "--allow-loss", NULL);
    expect_refused(LS_CONVERT_MEGATRON, "--num-experts 4 --attention-dropout 0", &strict,
                   "--num-experts: there are no experts", NULL);
    expect_refused(LS_CONVERT_MEGATRON, "--hidden-dropout 0", &strict, "--attention-dropout",
                   "0.1 (the default there)", NULL);
    expect_refused(LS_CONVERT_TORCHTITAN, "[model]\nname = \"deepseek_v3\"", &strict,
                   "there is no model deepseek_v3 here: there are no experts", NULL);
    expect(LS_CONVERT_MEGATRON, "--num-experts 4 --attention-dropout 0", &lax,
           "--num-experts (line 1): there are no experts", NULL);
}

/* A key that is off changes nothing, and a section that is off neither. */
CASE(test_what_is_off_is_no_loss)
{
    expect(LS_CONVERT_DEEPSPEED,
           "{\"train_batch_size\": 8, \"fp16\": null, \"optimizer\": {\"params\": null},"
           " \"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": null}}",
           &strict, "zero: 2", "fp16 (line 1): an empty section",
           "zero_optimization.offload_optimizer (line 1): an empty section", NULL);
    expect(LS_CONVERT_DEEPSPEED,
           "{\"train_batch_size\": 8, \"curriculum_learning\": {\"enabled\": false, \"seed\": 1},"
           " \"zero_optimization\": {\"zero_quantized_weights\": false}}",
           &strict, "curriculum_learning.seed (line 1): its section is off", "as it is here", NULL);
    expect(LS_CONVERT_MEGATRON, "--attention-dropout 0 --rotary-percent 1.0 --moe-x 1", &lax,
           "--rotary-percent (line 1): as it is here", NULL);
    expect(LS_CONVERT_TORCHTITAN,
           "[model]\nconverters = []\n[parallelism]\n"
           "expert_parallel_degree = 1\ndata_parallel_shard_degree = 2\n",
           &strict, "model.converters (line 2): as it is here", NULL);
}

CASE(test_batches_agree)
{
    struct ls_convert_options eight = {.ranks = 8};
    expect(LS_CONVERT_DEEPSPEED,
           "{\"train_micro_batch_size_per_gpu\": 2,"
           " \"gradient_accumulation_steps\": 3}",
           &eight, "global: 48 ", "micro: 2 ", "dp: 8 ", NULL);
    expect(LS_CONVERT_DEEPSPEED, "{\"train_batch_size\": 48, \"gradient_accumulation_steps\": 3}",
           &eight, "global: 48 ", "micro: 2 ", NULL);
    expect(LS_CONVERT_DEEPSPEED, "{\"train_batch_size\": 48}", &eight, "micro: 6 ", NULL);
    expect(LS_CONVERT_DEEPSPEED,
           "{\"train_batch_size\": 48, \"train_micro_batch_size_per_gpu\": 4,"
           " \"gradient_accumulation_steps\": 3}",
           &strict, "dp: 4 ", NULL);
    expect_refused(LS_CONVERT_DEEPSPEED,
                   "{\"train_batch_size\": 48,\n\"train_micro_batch_size_per_gpu\": 4,"
                   " \"gradient_accumulation_steps\": 3}",
                   &eight, "file:1: train_batch_size = 48", "48 is not 4 x 3 x 8", NULL);
    expect_refused(LS_CONVERT_DEEPSPEED,
                   "{\"train_batch_size\": 50, \"train_micro_batch_size_per_gpu\": 4,"
                   " \"gradient_accumulation_steps\": 3}",
                   &strict, "expected a multiple of", "4 x 3", NULL);
    expect_refused(LS_CONVERT_DEEPSPEED,
                   "{\"train_batch_size\": 12, \"train_micro_batch_size_per_gpu\": 4}", &eight,
                   "train_batch_size = 12: expected a multiple of train_micro_batch_size_per_gpu x "
                   "data-parallel ranks = 4 x 8",
                   NULL);
    expect_refused(LS_CONVERT_DEEPSPEED,
                   "{\"train_batch_size\": 4, \"gradient_accumulation_steps\": 3}", &eight,
                   "expected a multiple of gradient_accumulation_steps x data-parallel ranks = 3 x",
                   NULL);
    expect_refused(LS_CONVERT_DEEPSPEED, "{\"train_micro_batch_size_per_gpu\": 4}", &strict,
                   "--ranks", NULL);
    expect_refused(LS_CONVERT_DEEPSPEED, "{\"train_batch_size\": 0}", &strict,
                   "a whole number of at least 1", NULL);
    expect_refused(LS_CONVERT_DEEPSPEED, "{\"train_batch_size\": \"many\"}", &strict,
                   "train_batch_size = many", NULL);
    expect_refused(LS_CONVERT_MEGATRON,
                   "--attention-dropout 0 --micro-batch-size 3 --global-batch-size 32", &eight,
                   "expected a multiple of --micro-batch-size", "3 x 8", NULL);
    expect_refused(LS_CONVERT_MEGATRON, "--attention-dropout 0 --tensor-model-parallel-size 3",
                   &eight, "8 ranks cannot be shared", NULL);
    expect_refused(LS_CONVERT_TORCHTITAN, "[parallelism]\ntensor_parallel_degree = 3", &eight,
                   "8 ranks cannot be shared", NULL);
    expect_refused(LS_CONVERT_TORCHTITAN, "[parallelism]\ndata_parallel_shard_degree = 4", &eight,
                   "file:2", "1 x 4 are not the 8 ranks", NULL);
}

/* Numbers too large for any product, and tokens that are no sequence. */
CASE(test_large_numbers)
{
    struct ls_convert_options eight = {.ranks = 8};
    expect_refused(LS_CONVERT_DEEPSPEED,
                   "{\"train_batch_size\": 9e15, \"train_micro_batch_size_per_gpu\": 9e15,"
                   " \"gradient_accumulation_steps\": 9e15}",
                   &strict, "file:1", NULL);
    expect_refused(LS_CONVERT_MEGATRON,
                   "--attention-dropout 0 --tensor-model-parallel-size 9e15 "
                   "--pipeline-model-parallel-size 9e15",
                   &eight, "cannot be shared", NULL);
    expect_refused(LS_CONVERT_TORCHTITAN,
                   "[training]\nlocal_batch_size = 9_000_000_000_000_000\nsteps = 1\n"
                   "[lr_scheduler]\ndecay_ratio = 1e300\n"
                   "[parallelism]\ndata_parallel_shard_degree = 4_000_000_000_000\n",
                   &strict, "file:", NULL);
    expect_refused(LS_CONVERT_TORCHTITAN,
                   "[training]\nnum_tokens_per_microbatch_per_dp_rank = 100\n"
                   "num_tokens_per_train_step = 4096\n",
                   &eight, "file:2", "a multiple of the sequence's 2048 tokens", NULL);
}

/* ---- values --------------------------------------------------------------------------------- */

CASE(test_bad_values_name_their_key)
{
    expect_refused(LS_CONVERT_DEEPSPEED,
                   "{\"train_batch_size\": 8,\n\"gradient_clipping\": \"much\"}", &strict,
                   "file:2: gradient_clipping: optim.clip = much: expected a number", NULL);
    expect_refused(LS_CONVERT_DEEPSPEED,
                   "{\"train_batch_size\": 8, \"fp16\": {\"enabled\": true},"
                   " \"bf16\": {\"enabled\": true}}",
                   &strict, "bf16.enabled", "fp16.enabled is on too", NULL);
    expect(LS_CONVERT_DEEPSPEED,
           "{\"train_batch_size\": 8, \"bf16\": {\"enabled\": true},"
           " \"torch_autocast\": {\"enabled\": true, \"dtype\": \"torch.bfloat16\"}}",
           &lax, "precision: bf16 ", NULL);
    expect_refused(LS_CONVERT_DEEPSPEED,
                   "{\"train_batch_size\": 8, \"bf16\": {\"enabled\": true},"
                   " \"torch_autocast\": {\"enabled\": true, \"dtype\": \"float16\"}}",
                   &lax, "torch_autocast.enabled", "bf16.enabled is on too", NULL);
    expect_refused(LS_CONVERT_MEGATRON, "--lr", &lax, "--lr", "expected a number", NULL);
    expect_refused(LS_CONVERT_MEGATRON, "--seq-length $LENGTH", &lax, "$LENGTH is set elsewhere",
                   "LENGTH=VALUE", NULL);
    expect_refused(LS_CONVERT_MEGATRON, "--min-lr `bc 1/2` --lr $(bc)", &lax,
                   "--min-lr: `bc 1/2` is not run: write out what it gives", NULL);
    expect(LS_CONVERT_MEGATRON, "--data-path `pwd`/a", &lax, "data.train: --data-path is `pwd`/a",
           NULL);
    expect_refused(LS_CONVERT_MEGATRON, "--lr-decay-style quadratic", &lax,
                   "expected constant, linear, cosine", NULL);
    expect_refused(LS_CONVERT_TORCHTITAN, "[training]\nsteps = \"all\"", &strict, "file:2",
                   "training.steps", NULL);
    struct ls_convert_options wrong = {.words = (const char *const[]){"optim.rate=1"},
                                       .word_count = 1};
    expect_refused(LS_CONVERT_DEEPSPEED, "{\"train_batch_size\": 8}", &wrong, "optim.rate", NULL);
}

/* Slurm's way: a shell gets the command as one text. What is ahead of the program's name is the
 * launcher's. */
CASE(test_launchers_of_scripts)
{
#define ARGUMENTS "--num-layers 7 --bf16 --attention-dropout 0"
    static const char *const scripts[] = {
        "ARGS=\"" ARGUMENTS "\"\nRUN=\"python -u $D/pretrain_gpt.py ${ARGS}\"\n"
        "srun -l --container-image \"a b\" --output=x.log --export=ALL sh -c \"$RUN\"",
        "srun --nodes=2 bash -lc 'torchrun --local-ranks 2 pretrain_gpt.py " ARGUMENTS "'",
        "A=(" ARGUMENTS ")\nbash -c \"python pretrain_gpt.py ${A[*]}\"",
        "RUN=\"python pretrain_gpt.py " ARGUMENTS "\"\necho $RUN\neval \"$RUN\"",
        "bash -c \"sh -c 'python pretrain_gpt.py " ARGUMENTS "'\"",
        "mpirun -n 64 --bind-to none python pretrain_gpt.py " ARGUMENTS,
        "deepspeed --num_gpus 8 pretrain_gpt.py " ARGUMENTS,
    };
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        expect(LS_CONVERT_MEGATRON, scripts[i], &strict, "layers: 7 ", "precision: bf16 ", NULL);
    expect_refused(LS_CONVERT_MEGATRON, "srun --x y sh -c 'a.py --num-layers 7 --wrong 1'", &strict,
                   "file:1: --wrong: no such key", NULL);
    expect_refused(LS_CONVERT_MEGATRON, "sbatch --nodes=8 --export=ALL run.sh", &strict,
                   "file: expected arguments such as --num-layers 12", NULL);
    expect_refused(LS_CONVERT_MEGATRON, "python x/pretrain_bert.py --num-layers 7", &strict,
                   "file:1: pretrain_bert.py: there is no BERT", NULL);
    char key[LS_CONVERT_KEY_BYTES], text[256];
    for (const struct ls_convert_rule *rule = convert_megatron_rules; rule->theirs; rule++)
        for (int k = 0; ls_convert_rule_key(rule, k, key); k++)
            if (strstr(key, ".py")) {
                snprintf(text, sizeof text, "python %s " ARGUMENTS, key);
                expect_refused(LS_CONVERT_MEGATRON, text, &strict, key, NULL);
            }
    expect_refused(LS_CONVERT_MEGATRON, "a.py --seq-length ${LENGTH}", &lax,
                   "${LENGTH} is set elsewhere: give LENGTH=VALUE", NULL);
}

CASE(test_words_win)
{
    struct ls_convert_options told = {.words = (const char *const[]){"data.train=a"},
                                      .word_count = 1};
    expect(LS_CONVERT_MEGATRON, "--attention-dropout 0 --split 949,50,1 --data-path b", &told,
           "train: \"a\" ", "--split (line 1): data.train is given", NULL);
    expect_refused(LS_CONVERT_MEGATRON, "--attention-dropout 0 --split 949,50,1 --data-path b",
                   &strict, "--split", "give data.train=STORE data.valid=STORE", NULL);

    const char *const all[] = {"optim.clip=0.25", "model.preset=gpt2-tiny", "train.out=here"};
    struct ls_convert_options options = {.words = all, .word_count = 3};
    expect(LS_CONVERT_DEEPSPEED, "{\"train_batch_size\": 8, \"gradient_clipping\": 1}", &options,
           "clip: 0.25 ", "# command line", "preset: \"gpt2-tiny\"", NULL);
}

/* A scheduler of theirs as ours, and the optimizers. */
CASE(test_optimizers_and_schedules)
{
    const char *head = "{\"train_batch_size\": 8, \"optimizer\": {\"type\": \"%s\", \"params\": {"
                       "\"lr\": 0.02 %s}}}";
    static const char *const cases[][4] = {
        {"SGD", ", \"momentum\": 0.8, \"nesterov\": true", "name: sgd ", "momentum: 0.8 "},
        {"Lion", "", "name: lion ", "beta2: 0.99 "},
        {"Muon", ", \"adam_lr\": 0.001", "name: muon ", "adamw_lr: 0.001 "},
        {"AdamW", ", \"betas\": [0.5, 0.6]", "name: adamw ", "beta2: 0.6 "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        snprintf(text, sizeof text, head, cases[i][0], cases[i][1]);
        expect(LS_CONVERT_DEEPSPEED, text, &strict, cases[i][2], cases[i][3], "lr: 0.02 ",
               "schedule: constant ", NULL);
    }
    expect(LS_CONVERT_DEEPSPEED,
           "{\"train_batch_size\": 8, \"optimizer\": {\"type\": \"SGD\","
           " \"params\": {\"weight_decay\": 0.1}}}",
           &strict, "name: sgd ", "weight_decay: 0.1 ", NULL);
    expect_refused(LS_CONVERT_DEEPSPEED,
                   "{\"train_batch_size\": 8, \"optimizer\": {\"type\": \"AdamW\","
                   " \"params\": {\"betas\": [0.9]}}}",
                   &strict, "expected a list of two numbers", NULL);
    expect_refused(LS_CONVERT_DEEPSPEED,
                   "{\"train_batch_size\": 8, \"scheduler\": {\"type\": \"OneCycle\"}}", &strict,
                   "there is no OneCycle", NULL);
    expect(LS_CONVERT_MEGATRON,
           "--attention-dropout 0 --optimizer muon --muon-extra-scale-factor 0.2 --muon-nesterov",
           &strict, "name: muon ", "muon_scale: match_rms_adamw", "nesterov: true", NULL);
    expect(LS_CONVERT_MEGATRON,
           "--attention-dropout 0 --optimizer muon --muon-extra-scale-factor 0.2 "
           "--muon-use-nesterov",
           &strict, "nesterov: true", "# --muon-use-nesterov", NULL);
    expect(LS_CONVERT_MEGATRON,
           "--attention-dropout 0 --optimizer muon --muon-extra-scale-factor 0.2 "
           "--muon-nesterov --muon-use-nesterov",
           &strict, "nesterov: true", "--muon-nesterov (line 1): as --muon-use-nesterov", NULL);
    expect_refused(LS_CONVERT_MEGATRON,
                   "--attention-dropout 0 --optimizer muon --muon-extra-scale-factor 0.2 "
                   "--muon-tp-mode blockwise --tensor-model-parallel-size 2",
                   &strict, "--muon-tp-mode", "orthogonalised as a whole here", NULL);
    expect(LS_CONVERT_DEEPSPEED,
           "{\"train_batch_size\": 8, \"scheduler\": {\"type\": \"WarmupDecayLR\","
           " \"params\": {\"warmup_num_steps\": 5, \"warmup_type\": \"linear\"}}}",
           &strict, "warmup_steps: 5 ", "schedule: linear ", NULL);
    expect(LS_CONVERT_MEGATRON,
           "--attention-dropout 0 --tensor-model-parallel-size 1 --sequence-parallel", &strict,
           "--sequence-parallel (line 1): without effect at a tensor-parallel size of 1", NULL);
    expect(LS_CONVERT_MEGATRON, "--attention-dropout 0 --optimizer lion", &strict, "beta1: 0.95 ",
           NULL);
    expect(LS_CONVERT_MEGATRON, "--attention-dropout 0 --optimizer SGD", &strict, "name: sgd ",
           "weight_decay: 0.01 ", NULL);
    expect(LS_CONVERT_MEGATRON,
           "--attention-dropout 0 --lr-decay-style inverse-square-root --lr-warmup-iters 5",
           &strict, "schedule: inverse_sqrt ", NULL);
    expect_refused(LS_CONVERT_MEGATRON,
                   "--attention-dropout 0 --lr-decay-style inverse-square-root "
                   "--lr-warmup-iters 5 --lr-decay-iters 50 --train-iters 100",
                   &strict, "--lr-decay-iters", "the rate is that of --min-lr there", NULL);
    expect(LS_CONVERT_TORCHTITAN,
           "[training]\nsteps = 100\n[lr_scheduler]\nwarmup_steps = 10\ndecay_ratio = 0.0\n",
           &strict, "schedule: constant ", NULL);
    expect_refused(LS_CONVERT_TORCHTITAN, "[optimizer]\nname = \"Adam\"", &strict,
                   "optimizer.weight_decay", "part of Adam's gradient", NULL);
}

/* torch.optim.AdamW decays by default, DeepSpeed's own optimizers do not. */
CASE(test_torch_adam)
{
    static const char *const cases[][3] = {
        {"AdamW", "\"torch_adam\": true", "weight_decay: 0.01 "},
        {"Adam", "\"torch_adam\": true", "weight_decay: 0.01 "},
        {"Adam", "\"torch_adam\": true, \"adam_w_mode\": false", "weight_decay: 0 "},
        {"AdamW", "\"torch_adam\": false", "weight_decay: 0 "},
        {"AdamW", "\"torch_adam\": true, \"weight_decay\": 0.5", "weight_decay: 0.5 "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        snprintf(text, sizeof text,
                 "{\"train_batch_size\": 8, \"optimizer\": {\"type\": \"%s\", \"params\": {%s}}}",
                 cases[i][0], cases[i][1]);
        expect(LS_CONVERT_DEEPSPEED, text, &strict, "name: adamw ", cases[i][2], NULL);
    }
}

/* What Megatron-LM asserts of a run in iterations, and of one in samples. */
CASE(test_a_run_is_counted_in_one_way)
{
    static const char *const refused[][2] = {
        {"--train-iters 5 --train-samples 80", "--train-samples = 80: it counts samples: expected "
                                               "no --train-iters"},
        {"--train-iters 5 --lr-decay-samples 80", "--lr-decay-samples = 80: it counts samples"},
        {"--train-iters 5 --lr-warmup-samples 80", "--lr-warmup-samples = 80: it counts samples"},
        {"--train-iters 5 --rampup-batch-size 1 1 80", "--rampup-batch-size = 1 1 80: it counts"},
        {"--train-samples 80 --lr-decay-iters 5", "--lr-decay-iters = 5: it counts iterations: "
                                                  "expected no --train-samples"},
        {"--train-samples 80 --lr-warmup-iters 5", "--lr-warmup-iters = 5: it counts iterations"},
        {"--train-iters 50 --lr-warmup-iters 5 --lr-warmup-fraction 0.1",
         "--lr-warmup-iters = 5: expected no --lr-warmup-fraction"},
        {"--train-samples 80 --lr-warmup-samples 16 --lr-warmup-fraction 0.1",
         "--lr-warmup-samples = 16: expected no --lr-warmup-fraction"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char text[256];
        snprintf(text, sizeof text, "--global-batch-size 16 %s", refused[i][0]);
        expect_refused(LS_CONVERT_MEGATRON, text, &lax, refused[i][1], NULL);
    }
    expect(LS_CONVERT_MEGATRON,
           "--global-batch-size 16 --train-samples 80 --train-iters 0 --lr-warmup-samples 32", &lax,
           "  steps: 5 ", "warmup_steps: 2 ", NULL);
    expect(LS_CONVERT_MEGATRON,
           "--global-batch-size 16 --train-iters 5 --lr-warmup-samples 0 --lr-warmup-fraction 0.4",
           &lax, "  steps: 5 ", "warmup_steps: 2 ", NULL);
    expect(LS_CONVERT_MEGATRON,
           "--global-batch-size 16 --seq-length 8 --train-samples 800 --train-tokens 3200 "
           "--lr-decay-tokens 6400 --lr-warmup-samples 800 --lr-warmup-tokens 256",
           &lax, "  steps: 25  ", "--train-tokens, line 1", "decay_steps: 50 ", "warmup_steps: 2 ",
           NULL);
    expect(LS_CONVERT_MEGATRON,
           "--global-batch-size 16 --seq-length 8 --train-iters 5 --train-tokens 3200", &lax,
           "  steps: 5  ", NULL);
    expect_refused(LS_CONVERT_MEGATRON, "--train-tokens 80 --attention-dropout 0", &strict,
                   "--train-tokens", "give train.steps=N and --allow-loss", NULL);
    expect_refused(LS_CONVERT_MEGATRON, "--train-samples 80 --attention-dropout 0", &strict,
                   "give train.steps=N and --allow-loss", NULL);
}

/* The steps of update_train_iters of Megatron-LM, while the batch grows and behind it. */
CASE(test_samples_of_a_growing_batch)
{
    static const struct {
        const char *ramp, *steps;
        long samples;
    } cases[] = {
        {"16 16 3000", "  steps: 1068 ", 64000}, {"16 16 3000", "  steps: 1 ", 10},
        {"16 16 3000", "  steps: 2 ", 16},       {"16 16 3000", "  steps: 64 ", 1030},
        {"8 8 640", "  steps: 31 ", 640},        {"8 8 640", "  steps: 31 ", 703},
        {"8 8 640", "  steps: 32 ", 768},        {"1 21 1", "  steps: 2 ", 100},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        snprintf(text, sizeof text,
                 "--global-batch-size 64 --rampup-batch-size %s --train-samples %ld "
                 "--lr-decay-style constant --attention-dropout 0",
                 cases[i].ramp, cases[i].samples);
        expect(LS_CONVERT_MEGATRON, text, &strict, cases[i].steps, NULL);
    }
    static const char *const rates[][2] = {
        {"--lr-decay-style cosine", "--lr-decay-samples: --train-samples is the default there"},
        {"--lr-decay-style constant --lr-warmup-fraction 0.1", "--lr-warmup-fraction"},
        {"--lr-decay-style constant --lr-warmup-samples 64", "give optim.warmup_steps=N"},
    };
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        char text[256];
        snprintf(text, sizeof text,
                 "--global-batch-size 64 --rampup-batch-size 16 16 3000 --train-samples 6400 "
                 "--attention-dropout 0 %s",
                 rates[i][0]);
        expect_refused(LS_CONVERT_MEGATRON, text, &strict, rates[i][1], NULL);
    }
    expect_refused(LS_CONVERT_MEGATRON,
                   "--global-batch-size 64 --rampup-batch-size 1 1 9000000000000000 "
                   "--train-samples 9000000000000000 --attention-dropout 0",
                   &strict, "give train.steps=N and --allow-loss", NULL);
}

/* ---- sources -------------------------------------------------------------------------------- */

CASE(test_json)
{
    expect(LS_CONVERT_DEEPSPEED,
           "# first\n{ // \"a\": 1\n/* {\n */ \"train_batch_size\": 8, # }\n"
           "\"tensorboard\": {\"enabled\": true, \"job_name\": \"a // b # c /* d \\\" e\"}}",
           &strict, "train_batch_size, line 4", "tensorboard.job_name (line 5)", NULL);
    expect_refused(LS_CONVERT_DEEPSPEED, "{\"train_batch_size\": 8,}", &strict,
                   "file:1:", "not JSON", NULL);
    expect_refused(LS_CONVERT_DEEPSPEED, "{\n\n\"steps_per_print\": 8 9}", &strict,
                   "file:3:", NULL);
    expect_refused(LS_CONVERT_DEEPSPEED, "[1]", &strict, "expected an object", NULL);
    static const char *const names[] = {"GBSIZE", "$STAGE", "${A_b}", "CONFIG_BATCH_2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char text[128];
        snprintf(text, sizeof text, "{\"a\\\"B\": \"C D\",\n \"train_batch_size\": %s}", names[i]);
        expect_refused(LS_CONVERT_DEEPSPEED, text, &strict, "file:2: ", names[i],
                       "a script fills in this template", NULL);
    }
    expect_refused(LS_CONVERT_DEEPSPEED, "{\"a\": NaN}", &strict, "not JSON", NULL);
    expect_refused(LS_CONVERT_DEEPSPEED, "{\"a\": True}", &strict, "not JSON", NULL);
    expect(LS_CONVERT_DEEPSPEED,
           "{\"_comment\": \"x\", \"train_batch_size\": 8E0, \"gradient_clipping\": 1}", &strict,
           "global: 8 ", "_comment (line 1): a remark", NULL);
    expect_refused(LS_CONVERT_DEEPSPEED, "{\"bf16\": {}, \"bf16\": {}}", &strict, "duplicate",
                   NULL);
    expect_refused(LS_CONVERT_DEEPSPEED, "{\"zero_optimization.stage\": 3, \"\": 1}", &strict,
                   "\"zero_optimization.stage\"", "no such key", NULL);
    expect_refused(LS_CONVERT_DEEPSPEED, "", &strict, "not JSON", NULL);
}

CASE(test_toml)
{
    struct ls_error error;
    struct convert_entries entries = {0};
    static const char text[] = "a = 1_000 # c\r\n"
                               "b.\"c d\".e = 'raw \\n'\n"
                               "[t]\nf = [1, 2.5, # x\n 'y z',]\n"
                               "g = {h = true, i = {j = -0x10}}\n"
                               "s = \"\"\"\nline\\\n   two\\u00e9\"\"\"\n"
                               "l = '''it's'''\n"
                               "[[m]]\nn = 1\n[[m]]\nn = 2e3\n[m.o]\np.q = +1\np.r = 2\n"
                               "[u.v]\n[u]\nv2 = \"\"\"\"\"\"\n";
    static const char *const values[][2] = {
        {"a", "1000"},    {"b.c d.e", "raw \\n"},     {"t.f", "1 2.5 y z"}, {"t.g.h", "true"},
        {"t.g.i.j", ""},  {"t.s", "linetwo\xc3\xa9"}, {"t.l", "it's"},      {"m.0.n", "1"},
        {"m.1.n", "2e3"}, {"m.1.o.p.q", "+1"},        {"m.1.o.p.r", "2"},   {"u.v2", ""},
    };
    assert_int_equal(convert_toml_read(&entries, "file", text, strlen(text), &strict, &error),
                     LS_ECONFIG); /* no sign before 0x */
    assert_non_null(strstr(error.text, "file:6"));
    convert_entries_release(&entries);
    char *good = strdup(text), *sign = strstr(good, "-0x10");
    memcpy(sign, " 0x10", 5);
    assert_int_equal(convert_toml_read(&entries, "file", good, strlen(good), &strict, &error),
                     LS_OK);
    assert_int_equal(entries.count, sizeof values / sizeof *values);
    for (size_t i = 0; i < entries.count; i++) {
        assert_string_equal(entries.at[i].key, values[i][0]);
        assert_string_equal(entries.at[i].text, i == 4 ? "16" : values[i][1]);
    }
    assert_int_equal(entries.at[5].line, 7);
    convert_entries_release(&entries);
    free(good);
}

static long comparisons; /* of strings, since it was set */

WRAPPED(strcmp);
int __wrap_strcmp(const char *a, const char *b)
{
    comparisons++;
    return __real_strcmp(a, b);
}

/* Comparisons that a file of so many tables of one array takes. */
static long comparisons_of(int tables)
{
    struct ls_error error;
    struct convert_entries entries = {0};
    char *text = calloc((size_t)tables + 1, 16), last[32];
    for (int i = 0; i < tables; i++)
        strcpy(text + strlen(text), "[[a]]\nb = 1\n");
    comparisons = 0;
    if (convert_toml_read(&entries, "file", text, strlen(text), &strict, &error))
        fail_msg("%d tables: %s", tables, error.text);
    long count = comparisons;
    snprintf(last, sizeof last, "a.%d.b", tables - 1);
    assert_int_equal(entries.count, tables);
    assert_string_equal(entries.at[tables - 1].key, last);
    convert_entries_release(&entries);
    free(text);
    return count;
}

/* A table is found among those before without a look at each. */
CASE(test_arrays_of_tables_take_few_comparisons)
{
    long few = comparisons_of(100), many = comparisons_of(200);
    if (many > 2 * few + 100)
        fail_msg("100 tables take %ld comparisons of strings, 200 take %ld", few, many);
}

CASE(test_toml_is_refused_with_its_line)
{
    static const char *const cases[][2] = {
        {"a = 1979-05-27", "dates"},
        {"a = 07:32:00", "dates"},
        {"a = 1\na = 2", "file:2: a key that is given twice"},
        {"[a]\n[a]", "file:2: a table that is given twice"},
        {"a", "expected ="},
        {"a = ", "expected a text in quotes"},
        {"a = maybe", "expected a text in quotes"},
        {"a = \"x", "without its closing quote"},
        {"a = \"\\q\"", "an unknown escape"},
        {"a = \"\\ud800\"", "no character"},
        {"a = [1 2]", "expected , or ]"},
        {"a = {b = 1", "expected , or }"},
        {"[a", "expected ]"},
        {"a = 1 2", "expected the end of the line"},
        {"= 1", "expected a key"},
        {"a = 1__0", "expected a text in quotes"},
        {"a = 01", "expected a text in quotes"},
        {"a = .5", "expected a text in quotes"},
        {"a = 5.", "expected a text in quotes"},
        {"a = 1e_5", "expected a text in quotes"},
        {"a = 1_e5", "expected a text in quotes"},
        {"a = 0x_1", "expected a text in quotes"},
        {"a = \"\\e\"", "an unknown escape"},
        {"a = \"\"\"x \\ y\"\"\"", "an unknown escape"},
        {"a = \"\"\"x\"\"\"\"\"\"", "expected the end of the line"},
        {"a = \"x\ry\"", "a control character in a text"},
        {"a = 1 # x\ry", "a control character in a comment"},
        {"a = 1\n# \xff", "file:2: expected UTF-8 text"},
        {"a = {b = 1,}", "expected a key"},
        {"a = {b = 1\n}", "expected , or } in a table, on one line"},
        {"a = [{b = 1, b = 2}]", "a key that is given twice"},
        {"a = {b = 1}\na.c = 2", "file:2: a key that is given twice: it is no table"},
        {"a = 1\n[a.b]", "file:2: a key that is given twice: it is no table"},
        {"a.b = 1\n[a]", "file:2: a table that is given twice"},
        {"a.b = 1\na = 2", "file:2: a key that is given twice"},
        {"[a.b]\n[a]\nb = 1", "file:3: a key that is given twice"},
        {"[a.b.c]\n[a]\nb.c.d = 1", "file:3: a table that is given twice: its header is"},
        {"[[a]]\n[a]", "file:2: a table that is given twice"},
        {"a = []\n[[a]]", "file:2: a table that is given twice, once as [[an array]]"},
        {"[[a]]\n[a.b]\n[a.b]", "file:3: a table that is given twice"},
        {"a = [[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]", "fewer levels"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_refused(LS_CONVERT_TORCHTITAN, cases[i][0], &lax, "file:", cases[i][1], NULL);
}

CASE(test_shell)
{
    const char *const variables[] = {"LR=3e-4"};
    struct ls_convert_options options = {
        .allow_loss = true, .variables = variables, .variable_count = 1};
    expect(LS_CONVERT_MEGATRON, "LR=1\nrun --lr $LR --seed=${SEED:-7} # --bf16\n", &options,
           "lr: 0.0003 ", "seed: 7 ", "precision: fp32 ", NULL);
    expect(LS_CONVERT_MEGATRON, "A=\"--lr 2 --min-lr 1\"\ncd x; python a/b.py $A --train-iters '3'",
           &lax, "lr: 2 ", "min_ratio: 0.5 ", "steps: 3 ", NULL);
    expect(LS_CONVERT_MEGATRON,
           "D=${OUT:-\"${PWD}/logs-$$\"}\nrun --lr ${LR:-\"2\"} --seed ${S:-'7'}\n", &lax, "lr: 2 ",
           "seed: 7 ", NULL);
    expect(LS_CONVERT_MEGATRON, "ARGS=\"--lr 2\n --bf16\"\n", &lax, "lr: 2 ", "bf16 ", NULL);
    expect(LS_CONVERT_MEGATRON, "run --pretrained-checkpoint $1/x --lr 2", &lax, "lr: 2 ",
           "--pretrained-checkpoint (line 1): checkpoints of Megatron-LM are not read", NULL);
    expect(LS_CONVERT_MEGATRON,
           "torchrun --nnodes 2 --nproc_per_node=4 x.py --tensor-model-parallel-size 2", &lax,
           "dp: 4 ", "# --nproc-per-node, line 1", NULL);
    expect(LS_CONVERT_MEGATRON, "p --data-path $1 --save $(date) --lr 1 --lr 2", &lax, "lr: 2 ",
           "data.train: --data-path is $1 there", "$(date) is not known", NULL);
    expect(LS_CONVERT_MEGATRON,
           "OUT=runs\nOUT+=/a\nA=\"--lr 2\"\nA+=\" --bf16\"\nL=(--seed 5)\nL+=(--load '')\n"
           "NO=()\nE=\"\"\nrun $A --save $OUT \"${NO[@]}\" \"${L[@]}\" --train-iters ${E:-9}",
           &lax, "out: \"runs/a\" ", "lr: 2 ", "bf16 ", "seed: 5 ", "steps: 9 ", NULL);
    expect(LS_CONVERT_MEGATRON,
           "A=\"--lr 2 --num-workers $(nproc --all) `bc <<< \"1; 2\"`\"\nG=$(smi --query-gpu=x)\n"
           "run $A --node-rank $G --train-iters 6_000_000 --wandb-project 1__0 --save a_1",
           &lax, "lr: 2 ", "steps: 6000000 ", "out: \"a_1\" ", "num-workers (line 1): how fast",
           NULL);
    expect(LS_CONVERT_MEGATRON,
           "run --save 2024_11_30 --data-path 11_30 --deepspeed_config 12_1 --seed 1_0", &lax,
           "out: \"2024_11_30\" ", "train: \"11_30\" ", "of 12_1 there", "seed: 10 ", NULL);
    static const char *const outputs[] = {"2>&1 | tee log", "> \"$L/a b\" 2>> c",
                                          "&> $(date)/l",   ">&2",
                                          "--bf16 >| x",    "--num-workers 4 2>/dev/null &"};
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
        char text[128];
        snprintf(text, sizeof text, "run --seed 5 --lr 2 %s\n", outputs[i]);
        expect(LS_CONVERT_MEGATRON, text, &lax, "lr: 2 ", "seed: 5 ", NULL);
    }
    expect(LS_CONVERT_MEGATRON, "run >log --lr 2 2> x --train-iters 2", &lax, "lr: 2 ", "steps: 2 ",
           NULL);
    expect_refused(LS_CONVERT_MEGATRON, "run --lr 'x", &lax, "file:1: a quote without its end",
                   NULL);
    expect_refused(LS_CONVERT_MEGATRON, "A=(--lr\n", &lax, "an array without its )", NULL);
    expect_refused(LS_CONVERT_MEGATRON, "A=$(x\n --lr", &lax, "without its end", NULL);
    expect_refused(LS_CONVERT_MEGATRON, "echo nothing", &lax, "expected arguments such as", NULL);
    expect_refused(LS_CONVERT_MEGATRON, "--lr \001", &lax, "control character", NULL);
    expect_refused(LS_CONVERT_MEGATRON, "run --lr ${A:-2\001--bf16}", &lax,
                   "file:1: ", "control character", NULL);
    expect_refused(LS_CONVERT_MEGATRON, "run --lr ${A:-\002}", &lax, "control character", NULL);
    options.variables = (const char *const[]){"LR=\002"};
    expect_refused(LS_CONVERT_MEGATRON, "run --lr $LR", &options, "LR: ", "control character",
                   NULL);
}

/* A default stands for a variable that has no text, := sets it too, and a ? asks for it. */
CASE(test_shell_defaults)
{
    static const char *const known[] = {
        "run --lr 2 --seed ${A:=7}",
        ": \"${A:=7}\"\nrun --lr 2 --seed $A",
        ": ${A=\"7\"} ${A:=8}\nrun --lr 2 --seed $A",
        "run --lr 2 --seed ${A-7}",
        "A=7\nrun --lr 2 --seed ${A:?no A}",
        "A=7\nrun --lr 2 --seed ${A?}",
        "A=7\nrun --lr 2 --seed ${A-5}",
        "A=\nrun --lr 2 --seed 7${A-5}",
        "A=\nrun --lr 2 --seed ${A:=7}",
        "if false; then : ${A:=5}; fi\nrun --lr 2 --seed ${A:-7}",
    };
    static const char *const variables[] = {"A=3"};
    struct ls_convert_options given = {
        .allow_loss = true, .variables = variables, .variable_count = 1};
    char text[256];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        expect(LS_CONVERT_MEGATRON, known[i], &lax, "lr: 2 ", "seed: 7 ", NULL);
    static const char *const forms[] = {":=8", "=8", "-8", ":?x", "?", ":-8", ":=$B", ":?$B"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        snprintf(text, sizeof text, "run --lr 2 --seed ${A%s}", forms[i]);
        expect(LS_CONVERT_MEGATRON, text, &given, "seed: 3 ", NULL);
    }
    static const char *const unknown[] = {"${A:?no A}", "${A?}", "${A:=$B}", "${A:1}", "${A/1/2}"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        snprintf(text, sizeof text, "run --lr 2 --seed %s", unknown[i]);
        expect_refused(LS_CONVERT_MEGATRON, text, &lax, unknown[i], "give A=VALUE", NULL);
    }
    expect_refused(LS_CONVERT_MEGATRON, "if [ -f x ]; then : ${A:=5}; fi\nrun --lr 2 --seed $A",
                   &lax, "--seed: $A is set elsewhere: give A=VALUE", NULL);
    expect_refused(LS_CONVERT_MEGATRON, "run --lr 2 --seed ${-}", &lax, "${-}", NULL);
}

/* A word has its own line, and that of a variable only if the variable begins it. */
CASE(test_shell_lines)
{
    static const char *const scripts[][2] = {
        {"D=a\nL=(2 3)\nrun --lr 1 \\\n --save=$D/b", "# --save, line 4"},
        {"D=a\nrun --lr 1 \\\n \"--save=${D}\"", "# --save, line 3"},
        {"D=a\nA=\"--lr 1 --save=$D\"\nrun $A", "# --save, line 2"},
        {"A=\"1 --save b\"\nrun --lr=$A", "# --save, line 1"},
        {"A=(--lr 1\n --save b)\nrun ${A[@]}", "# --save, line 2"},
        {"O=--save\nrun --lr 1 $O b", "# --save, line 1"},
        {"C='p.py --save b'\nbash -c \"$C --lr 1\"", "# --save, line 1"},
    };
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        expect(LS_CONVERT_MEGATRON, scripts[i][0], &lax, scripts[i][1], NULL);
    expect_refused(LS_CONVERT_MEGATRON, "A=x\nrun --attention-dropout 0 \\\n --wrong-$A 1", &strict,
                   "file:3: --wrong-x: no such key", NULL);
}

/* bash ends a command at a comment, and at a line without a backslash: arguments behind that are
 * not passed. A mere list of arguments needs no backslashes. */
CASE(test_shell_ends_of_commands)
{
    static const char *const cut[][2] = {
        {"run --lr 2 \\\n # --bf16 \\\n --seed 3 --clip-grad 5\n",
         "file:3: --seed: bash passes it"},
        {"A=--seed\nrun --lr 2 \\\n # --bf16\n\n $A --clip-grad 5\n", "file:1: --seed: bash"},
        {"run --lr 2 \\\n --bf16\n  --seed 3\n", "file:3: --seed: bash passes it to no program"},
        {"main() {\nrun --lr 2 --bf16\n\n--seed 3\n}\nmain\n", "file:4: --seed: bash"}};
    static const char *const lists[] = {"--lr 2\n--seed 3\n",
                                        "--lr 2\n\n# --seed 5\n#\n--seed 3",
                                        "# --seed 5\n--lr 2 # \n --bf16 --seed 3",
                                        "pretrain_gpt.py\n--lr 2 --seed 3",
                                        "run --lr 2 --seed 3 # --seed 5\n# --seed 5\necho --seed 5",
                                        ("while :; do case $1 in\n--lr|-l) a;;\n--seed|-s) "
                                         "b;;\nesac; done\nrun --lr 2 --seed 3 --bf16"),
                                        ("run --lr 2 --seed 3\ncase $1 in\n--lr|-l) a;;\n"
                                         "--seed|-s) b;;\nesac\nif [ $B = 1 ]; then C=--bf16; fi\n"
                                         "echo\n$C\n"),
                                        "source a.sh\n--lr 2\n--seed 3\n"};
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++)
        expect_refused(LS_CONVERT_MEGATRON, cut[i][0], &lax, cut[i][1], NULL);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        expect(LS_CONVERT_MEGATRON, lists[i], &lax, "lr: 2 ", "seed: 3 ", NULL);
}

/* Sums over what is known; others stay as they are written, and are refused by name. */
CASE(test_shell_sums)
{
    static const char *const sums[][2] = {
        {"$((2*3))", "6"},
        {"$(( (GPUS + 1) * NODES ))", "10"},
        {"$((GPUS*${NODES}/$STEP-1))", "7"},
        {"$((${UNSET:-7} % 4 * -1 + 20))", "17"},
        {"$((2 * $((NODES + 1))))", "6"},
        {"\"$((\n3 +\t4))\"", "7"},
        {"$((9223372036854775807 / 9223372036854775807))", "1"},
    };
    static const char *const unknown[] = {
        "$((UNSET * 2))",
        "$((2 ** 3))",
        "$((1 << 3))",
        "$((4 / 0))",
        "$((4 / -1))",
        "$((010 + 1))",
        "$((WORD+1))",
        "$((LIST+1))",

        "$((1 2))",
        "$((--NODES))",
        "$((NODES++))",
        "$((16#ff))",
        "$((9223372036854775807 + 1))",
        "$((99999999999999999999))",
    };
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
        char text[512], word[64];
        snprintf(text, sizeof text,
                 "GPUS=4 NODES=2\nexport STEP=1\nSUM=%s\nrun --train-iters $SUM --seed 5\n",
                 sums[i][0]);
        snprintf(word, sizeof word, "steps: %s ", sums[i][1]);
        expect(LS_CONVERT_MEGATRON, text, &lax, word, "seed: 5 ", NULL);
    }
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        char text[512];
        snprintf(text, sizeof text, "NODES=2\nWORD=two\nLIST=(1 2)\nrun --seed \"%s\" --lr 1\n",
                 unknown[i]);
        expect_refused(LS_CONVERT_MEGATRON, text, &lax, "--seed", NULL);
    }
}

/* Of an if whose condition is known one branch is read. */
CASE(test_shell_branches)
{
    static const char *const conditions[][2] = {
        {"[ $SIZE = 7B ]", "1"},
        {"[[ \"$SIZE\" == 13B ]]", "2"},
        {"test $SIZE != 7B", "2"},
        {"[ ! $SIZE = 7B ]", "2"},
        {"[ $TP -gt 1 ]", "1"},
        {"[ $TP -eq 1 ] || [ $SIZE = 7B ]", "1"},
        {"[ $TP -eq 2 ] && [[ -n $SIZE ]]", "1"},
        {"[ $TP -ge 3 ] && [ -f x ]", "2"},
        {"[ -z \"$NONE\" ]", "1"},
        {"[ -z $NONE ]", "1"},
        {"[ -z ${OTHER:-} ]", "1"},
        {"false", "2"},
        {"[ $OFF ]", "1"},
        {"test $OFF", "1"},
        {"[ ! $OFF ]", "2"},
        {"[ $NONE ]", "2"},
        {"[[ \"$NONE\" ]]", "2"},
        {"[ -n $NONE ]", "1"},
        {"[[ -n $NONE ]]", "2"},
        {"[[ $SIZE && $OFF && -n $OFF ]] && true", "1"},
        {"[[ $SIZE && -n $NONE ]] || false", "2"},
    };
    char text[512], word[64];
    for (size_t i = 0; i < sizeof conditions / sizeof *conditions; i++) {
        snprintf(text, sizeof text,
                 "SIZE=7B TP=2 NONE= OFF=false A=\"--lr 9\"\nif %s; then L=1; A=\"--lr 1\"\n"
                 "  if false\n  then\n    L=7\n  fi\nelif true; then\n  L=2\n  A=\"--lr 2\"\n"
                 "else L=3 A=\"--lr 3\"\nfi\nrun $A --train-iters $L # if\n",
                 conditions[i][0]);
        snprintf(word, sizeof word, "lr: %s ", conditions[i][1]);
        expect(LS_CONVERT_MEGATRON, text, &lax, word, NULL);
        snprintf(word, sizeof word, "steps: %s ", conditions[i][1]);
        expect(LS_CONVERT_MEGATRON, text, &lax, word, NULL);
    }
}

/* What a branch sets whose condition is not known is unknown: a number is to be given, and
 * arguments are named. */
CASE(test_shell_branches_that_are_open)
{
    static const char *const open[][2] = {
        {"[ -f x ]", "give L=VALUE beside"},
        {"[ $1 = a ]", "give 1=VALUE beside"},
        {"[ -z \"${10}\" ]", "give 10=VALUE beside"},
        {"[[ $SIZE == 7* ]]", "give L=VALUE beside"},
        {"[ \"$(hostname)\" = a ]", "give L=VALUE beside"},
        {"[ $TP -lt 1 ] || which x", "give L=VALUE beside"},
        {"[ $1 ]", "give 1=VALUE beside"},
        {"[[ -f $NONE ]]", "give L=VALUE beside"},
        {"[[ $SIZE =~ a|false ]]", "give L=VALUE beside"},
        {"[[ $SIZE && a b c d e f g h i ]]", "give L=VALUE beside"},
    };
    char text[512];
    for (size_t i = 0; i < sizeof open / sizeof *open; i++) {
        snprintf(text, sizeof text,
                 "SIZE=7B TP=2 NONE= L=9 S=5\nif %s; then\n L=1\n S=5\nfi\n"
                 "run --lr $L --seed $S\n",
                 open[i][0]);
        expect_refused(LS_CONVERT_MEGATRON, text, &lax, "file:6: --lr", open[i][1], NULL);
        snprintf(text, sizeof text,
                 "SIZE=7B TP=2 NONE= A_B=\"--seed 4\"\nif %s; then\n A_B=\"--lr 1\"\nelse\n"
                 " A_B=\"--lr 2\"\nfi\nrun $A_B --attention-dropout 0\n",
                 open[i][0]);
        expect_refused(LS_CONVERT_MEGATRON, text, &strict, "file:3: --$A_B: arguments of an if",
                       "1 key cannot", NULL);
        expect(LS_CONVERT_MEGATRON, text, &lax, "seed: 4 ", NULL);
    }
    expect_refused(LS_CONVERT_MEGATRON, "if [ $B = 1 ]; then A=\"--lr 1\"; fi\nrun --seed 1 $A",
                   &strict, "is not known: give B=VALUE beside the file, or write", NULL);
    expect_refused(LS_CONVERT_MEGATRON,
                   "case $1 in\n a)\n L=2;;\nesac\nif [ x = x ]\nthen R=4 # \nfi\nrun --lr $L "
                   "--seed $2 --min-lr $L/$3",
                   &lax, "file:8: --lr: $L", "give L=VALUE 2=VALUE 3=VALUE beside", NULL);
}

/* Of commands between && and || those are read that the ones before them let run. */
CASE(test_shell_lists)
{
    static const char *const known[] = {
        "[ $SIZE = 7B ] && L=1",
        "[ $SIZE = 1B ] && L=3",
        "[[ $SIZE == 1B ]] && L=3 || L=1",
        "[ $SIZE = 7B ] && L=1 || L=3",
        "test -n \"$SIZE\" || L=3",
        "[ $SIZE = 1B ] ||\n # as\n\n L=1",
        "[ $SIZE = 1B ] && {\n L=3\n}",
        "[ $SIZE = 1B ] && { L=3; } || { L=4; L=1; }",
        "[ $SIZE = 7B ] && { L=1; } || { L=3; }",
        "[ $SIZE = 1B ] && { if true; then L=3; fi; }; true && L=1",
        "[ $SIZE = 1B ] && if true; then L=3; fi\nL=1",
        "false && L=3; L=1",
        "false && L=3 & L=1",
        "false || true && L=1",
        "true && false || L=1",
        "[[ $SIZE && $TP ]] && L=1",
        "[[ $SIZE == 1B || $TP == 1 ]] && L=3",
        "[ $SIZE = 1B ] && export X=1 L=3",
        "export X=$(x) Y=2 && L=1",
        "X=1 && cd a && echo b > c && L=1",
        "false && eval 'L=3'",
        "eval 'false && L=3'; eval 'L=1; false' && x",
        "true | [ 1 = 2 ]; L=1",
        "if [ $SIZE = 7B ]; then false && L=3; fi",
        "if false || [ $TP = 2 ] && true; then L=1; else L=3; fi",
    };
    static const char *const open[][2] = {
        {"[ -f x ] && L=1", "L=VALUE"},
        {"which x || L=1", "L=VALUE"},
        {"echo a | grep -q b && L=1", "L=VALUE"},
        {"echo a |\n grep -q b && L=1", "L=VALUE"},
        {"X=$(x) && L=1", "L=VALUE"},
        {"[[ $SIZE =~ a|b ]] && L=1", "L=VALUE"},
        {"[ $B = 1 ] && L=1", "B=VALUE"},
        {"[ -f x ] && { L=1; }", "L=VALUE"},
        {"[ -f x ] && true || L=1", "L=VALUE"},
        {"if [ $B = 1 ]; then [ $TP = 2 ] && L=1; fi", "B=VALUE"},
        {"if [ $TP = 2 ]; then [ $B = 1 ] && L=1; fi", "B=VALUE"},
        {"{ which x; } && L=1", "L=VALUE"},
        {"eval 'which x' && L=1", "L=VALUE"},
        {"if true; then L=9; fi && L=1", "L=VALUE"},
    };
    char text[512], word[64];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        bool given = strstr(known[i], "L=1");
        snprintf(text, sizeof text, "SIZE=7B TP=2 %s\n%s\nrun --lr 5 --train-iters ${L:-2}\n",
                 given ? "" : "L=2", known[i]);
        snprintf(word, sizeof word, "steps: %d ", given ? 1 : 2);
        expect(LS_CONVERT_MEGATRON, text, &lax, "lr: 5 ", word, NULL);
    }
    for (size_t i = 0; i < sizeof open / sizeof *open; i++) {
        snprintf(text, sizeof text, "SIZE=7B TP=2\nL=2\n%s\nrun --train-iters $L --lr 5\n",
                 open[i][0]);
        expect_refused(LS_CONVERT_MEGATRON, text, &lax, "--train-iters: ", "give ", open[i][1],
                       NULL);
    }
    expect_refused(LS_CONVERT_MEGATRON, "A=\"--lr 2\"\n[ $B = 1 ] && A+=\" --bf16\"\nrun $A",
                   &strict, "file:2: --$A: arguments of an if", "give B=VALUE beside", NULL);
    expect_without(LS_CONVERT_MEGATRON,
                   "A=\"--lr 2 --attention-dropout 0\" B=0\n[ $B = 1 ] && A+=\" --bf16\"\nrun $A",
                   "lr: 2 ", "bf16 ");
    expect(LS_CONVERT_MEGATRON, "false && run --lr 1 --bf16 --seed 3 || run --lr 2", &lax, "lr: 2 ",
           NULL);
    expect(LS_CONVERT_MEGATRON, "mkdir -p x && cd x && run --lr 2 || exit 1", &lax, "lr: 2 ", NULL);
}

/* What a case sets is not known, on whatever lines its patterns are. */
CASE(test_shell_cases)
{
    static const char *const cases[] = {
        "case $1 in\n a)\n L=1\n ;;\nesac\n",
        "case $1 in\n a) L=1;;\n *) L=3 ;;\nesac\n",
        "case $1 in\n a|b) L=1;;\nesac\n",
        "case \"$1\" in\n \"a b\" | (c) export L=1;;\nesac\n",
        "case $1 in a) L=1;; esac\n",
        "case $1 in a) { L=1; };; esac\n",
        "case $1 in a) if true; then L=1; fi;; esac\n",
    };
    char text[256];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, "L=9\n%srun --lr 5 --train-iters $L", cases[i]);
        expect_refused(LS_CONVERT_MEGATRON, text, &lax, "--train-iters: $L", "give L=VALUE", NULL);
    }
    expect(LS_CONVERT_MEGATRON, "case $1 in a) L=1;; esac; L=2\nrun --lr 5 --train-iters $L", &lax,
           "steps: 2 ", NULL);
}

/* A function is read where it is called, and if it is. */
CASE(test_shell_functions)
{
    static const char *const known[] = {
        "small() { L=1; }\nlarge() { L=3; }\nsmall\n",
        "small() { L=1; }\nlarge() { L=3; }\nlarge; small\n",
        "L=1\nlarge()\n{\n L=3\n}\n",
        "L=1\nlarge() {\n else\n L=3\n}\n",
        "L=1\nlarge()\n\n# as\n{\n L=3\n}\n",
        "f(){\n # }\n if true; then { L=1; }; fi\n echo \"}\" ${X:-}\n}\nL=3; f\n",
        "function f { L=1; }\nf >log 2>&1\n",
        "function f() { L=1; }\nf a b || exit\n",
        "function f ()\n{ L=1; }\nf &\n",
        "f () { cat <<E\n}\nE\n L=1; }\nf\n",
        "f() { L=$N; }\nN=1\nf\nN=3\n",
        "f() { g; }\ng() { L=1; }\nf\n",
        "f() { g() { L=1; }; }\ng() { L=3; }\nf; g\n",
        "f() { L=3; }\nf() { L=1; f; }\nf\n",
        "f() { L=3; }\nL=1\nfalse && f\n",
        "if false; then f() { L=3; }; else f() { L=1; }; fi\nf\n",
        "f() { L=1; return; } ; echo \"f()\"\nf\n",
        "eval 'f() { L=1; }'\neval f\n",
        "f() { L=1; function\n g\n }\nf\n",
        "f() { [ 1 = 2 ] && L=3 || L=1; }\n[ 1 = 1 ] && f\n",
        "f() {\n L=1\n}\nf <<E\nf() { L=3; }\nE\n",
        "f() { A=1; L=$A; }\nif [[ \"${BASH_SOURCE[0]}\" == \"${0}\" ]]; then f; fi\n",
        "main() { L=1; }\n[ \"$0\" = \"$BASH_SOURCE\" ] && main\n",
        "L=1\nif [ \"$BASH_SOURCE\" != \"$0\" ]; then L=3; fi\n",
    };
    static const char *const others[] = {
        "main() {\n run --lr 5 --train-iters $L\n}\nL=1\nmain \"$@\"\n",
        "main() { local L=1; run --lr 5 --train-iters $L; }\nif ! main; then exit 1; fi\n",
        "do_it() { echo --a; \"$@\"; }\ndo_it run --lr 5 --train-iters 1\n",
        "main() { run --lr 5 --train-iters 1\n",
        "old() { run --lr 5 --train-iters 3 --seed 2; }\nrun --lr 5 --train-iters 1\n",
    };
    char text[512];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        snprintf(text, sizeof text, "%srun --lr 5 --train-iters $L\n", known[i]);
        expect(LS_CONVERT_MEGATRON, text, &lax, "lr: 5 ", "steps: 1 ", NULL);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        expect(LS_CONVERT_MEGATRON, others[i], &lax, "lr: 5 ", "steps: 1 ", NULL);
    expect_refused(LS_CONVERT_MEGATRON, "L=2\nf() { L=1; }\n[ -f x ] && f\nrun --lr $L", &lax,
                   "--lr: $L is set elsewhere: give L=VALUE", NULL);
    expect_refused(LS_CONVERT_MEGATRON, "f() {\n\n run --wrong 1 --attention-dropout 0\n}\nf",
                   &strict, "file:3: --wrong", NULL);
    expect_refused(LS_CONVERT_MEGATRON, "f() {\n f; f; f; f; f; f; f; f; f; f; f\n}\nf", &lax,
                   "called more often than is followed", NULL);
}

/* A function that alone calls a program is taken to be called, whatever the call is behind. */
CASE(test_shell_function_behind_a_condition)
{
    static const char *const known[] = {
        "if [ \"$1\" = run ]; then main; fi\n",
        "[ -f x ] && main \"$@\"\nL=2\n",
        "case $1 in\n run) main;;\n *) echo a; exit 1;;\nesac\n",
        "g() { L=2; }\n[ -f x ] && g\ng() { main; }\nif [ -f y ]; then g; else L=3; fi\n",
        "g() { L=2; }\n[ -f x ] && main\n[ -f y ] && g\n",
        "if true; then [ -f x ] && main; else run --lr 6 --seed 1 --bf16; fi\n",
    };
    static const char *const doubted[] = {
        "[ -f x ] && main\n[ -f y ] && main\n",
        "if [ -f x ]; then main; else L=3; main; fi\n",
        "if [ -f x ]; then main; else run --lr 6; fi\n",
        "run --lr 6\n[ -f x ] && main\n",
        "[ -f x ] && main --lr 6\n",
        "[ -f x ] && M=2\nif [ -f y ]; then main; fi\n",
        "main() { [ -f x ] && L=2; run --lr 5 --train-iters $L; }\n[ -f y ] && main\n",
    };
    static const char main_of[] = "main() {\n L=${M:-1} A=()\n A+=(--lr 5)\n"
                                  " run ${A[@]} --train-iters $L\n}\n";
    char text[512];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        snprintf(text, sizeof text, "%s%s", main_of, known[i]);
        expect(LS_CONVERT_MEGATRON, text, &lax, "lr: 5 ", "steps: 1 ", NULL);
    }
    for (size_t i = 0; i < sizeof doubted / sizeof *doubted; i++) {
        snprintf(text, sizeof text, "%s%s", main_of, doubted[i]);
        expect_refused(LS_CONVERT_MEGATRON, text, &lax, "=VALUE", NULL);
    }
}

/* Branches within more others than are followed are open, and end what their conditions are. */
CASE(test_shell_branches_within_each_other)
{
    char text[512] = "run --lr 1\n";
    for (int i = 0; i < 50; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s", "if\n");
    expect(LS_CONVERT_MEGATRON, text, &lax, "lr: 1 ", NULL);
    *text = '\0';
    for (int i = 0; i < CONVERT_BRANCHES + 1; i++)
        strcat(text, "if\nthen\n");
    strcat(text, "run --lr 1\n");
    expect(LS_CONVERT_MEGATRON, text, &lax, "lr: 1 ", NULL);
    *text = '\0';
    for (int i = 0; i < CONVERT_BRANCHES + 1; i++)
        strcat(text, "{\n");
    strcat(text, "f() {\n eval 'g() {'\n run --lr 1\n}\n");
    expect(LS_CONVERT_MEGATRON, text, &lax, "lr: 1 ", NULL);
}

/* What is to be given is asked for once, and of what no variable tells none is. */
CASE(test_shell_variables_are_asked_for)
{
    static const char *const refused[][2] = {
        {"--$PR", "file:1: --$PR: set elsewhere: give PR=VALUE beside the file, or write it out"},
        {"--no_${MY_PR}_x 1", "--no-${MY_PR}_x: set elsewhere: give MY_PR=VALUE beside"},
        {"--$PR=$Q", "--$PR: set elsewhere: give PR=VALUE beside"},
        {"--$(x)", "--$(x): no such key is known"},
        {"--seed $(bc) --min-lr $M", "--min-lr: $M is set elsewhere: give M=VALUE beside"},
        {"--seed $BA --min-lr $A --weight-decay $A", "$BA is set elsewhere: give BA=VALUE A=VALUE "
                                                     "beside"},
        {"--seed `echo $X`", "--seed: `echo $X` is not run: write out what it gives"},
        {"--seed $((2*$(n)))", "--seed: $((2*$(n))) is not run"},
        {"--seed $X$(n)", "--seed: $X$(n) is not run"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char text[128];
        snprintf(text, sizeof text, "run %s --lr 1 --attention-dropout 0\n", refused[i][0]);
        expect_refused(LS_CONVERT_MEGATRON, text, &strict, refused[i][1], NULL);
    }
    expect_refused(LS_CONVERT_MEGATRON, "run --lr 1\nA=--$B=\003\n", &lax,
                   "file:2: ", "control character", NULL);
    expect_refused(LS_CONVERT_MEGATRON,
                   "if [ -f x ]; then A=\"--lr 1\"; fi\neval run --lr 2 --use-flash-attn \"$A\"",
                   &strict, "arguments of an if", NULL);
}

/* A split is no path: its variable is asked for, unless the caller says what is trained on. */
CASE(test_shell_splits)
{
    struct ls_convert_options told = {.words = (const char *const[]){"data.train=a"},
                                      .word_count = 1};
#define TRAINED "run --attention-dropout 0 --train-data-path b "
    expect_refused(LS_CONVERT_MEGATRON, TRAINED "--split $SPLIT", &strict,
                   "file:1: --split: $SPLIT is set elsewhere: give SPLIT=VALUE", NULL);
    expect_refused(LS_CONVERT_MEGATRON, TRAINED "--mock-data $MORE", &strict,
                   "--mock-data: $MORE is set elsewhere: give MORE=VALUE", NULL);
    expect(LS_CONVERT_MEGATRON, TRAINED "--split $SPLIT", &told, "train: \"a\" ",
           "--split (line 1): data.train is given", NULL);
    expect(LS_CONVERT_MEGATRON, TRAINED "--mock-data $MORE", &told,
           "--mock-data (line 1): data.train names tokens", NULL);
    expect_refused(LS_CONVERT_MEGATRON, TRAINED "--split 969,30,1 \"$@\"", &strict, "--split",
                   "data.train is trained on as a whole", NULL);
    expect(LS_CONVERT_MEGATRON, TRAINED "--split \"'100,0,0'\"", &strict,
           "--split (line 1): all of it is trained on", NULL);
    expect_refused(LS_CONVERT_MEGATRON, TRAINED "--split \"'99,1,0'\"", &strict, "--split", NULL);
}

/* A word of --data-path is one prefix, whatever is in it, and none is cut short. */
CASE(test_shell_prefixes)
{
    static const char head[] = "run --attention-dropout 0 --train-data-path";
    char text[8192], tail[64];
    size_t used;
    snprintf(text, sizeof text, "D='a b/c'\n%s \"$D\" 'd  e' f", head);
    expect(LS_CONVERT_MEGATRON, text, &strict, "train: \"a b/c,d  e,f\" ", NULL);
    snprintf(text, sizeof text, "D='a b/c'\n%s=\"$D\"", head);
    expect(LS_CONVERT_MEGATRON, text, &strict, "train: \"a b/c\" ", NULL);
    snprintf(text, sizeof text, "%s 1 'a b'", head);
    expect(LS_CONVERT_MEGATRON, text, &strict, "train: \"a b\" ", NULL);
    snprintf(text, sizeof text, "%s 0.5 'a b' 0.5 c", head);
    expect_refused(LS_CONVERT_MEGATRON, text, &strict, "--train-data-path",
                   "expected prefixes without a blank beside weights", NULL);
    snprintf(text, sizeof text, "%s %0600d", head, 1);
    expect_refused(LS_CONVERT_MEGATRON, text, &strict, "--train-data-path", "at most 511 bytes",
                   NULL);
    used = (size_t)snprintf(text, sizeof text, "%s", head);
    for (int i = 0; i < 80; i++)
        used +=
            (size_t)snprintf(text + used, sizeof text - used, " 0.5 corpus/part_of_it_%032d", i);
    snprintf(tail, sizeof tail, "%032d\", weight: 0.5}]", 79);
    expect(LS_CONVERT_MEGATRON, text, &strict, tail, NULL);
}

/* Megatron-LM holds documents out of --data-path without a --split too. */
CASE(test_split_by_default)
{
    struct ls_convert_options told = {.words = (const char *const[]){"data.train=a"},
                                      .word_count = 1};
    struct ls_convert_options blend = {.words = (const char *const[]){"data.blend=1 a"},
                                       .word_count = 1};
    static const char *const unsaid[] = {"--data-path b", "--data-path $DATA",
                                         "--data-path 0.7 b 0.3 c"};
    static const char *const none[] = {"--split 100,0,0 --data-path b", "--train-data-path b",
                                       "--split 1 --data-path b", "--tensorboard-dir x"};
    char text[128];
    for (size_t i = 0; i < sizeof unsaid / sizeof *unsaid; i++) {
        snprintf(text, sizeof text, "--attention-dropout 0 %s", unsaid[i]);
        expect_refused(LS_CONVERT_MEGATRON, text, &strict,
                       "file: --split: 969,30,1 (the default there) holds documents out",
                       "give data.train=STORE data.valid=STORE beside the file",
                       "or data.train=STORE alone to train on all (1 key", NULL);
        expect(LS_CONVERT_MEGATRON, text, &told, "train: \"a\" ", NULL);
        expect(LS_CONVERT_MEGATRON, text, &blend, "blend: [{source: \"a\"", NULL);
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        snprintf(text, sizeof text, "--attention-dropout 0 %s", none[i]);
        expect(LS_CONVERT_MEGATRON, text, &strict, "schedule: linear ", NULL);
    }
}

/* The arguments that a script is called with are no value: the result says that they are to be
 * added. */
CASE(test_shell_arguments_of_the_script)
{
    static const char *const words[] = {"$@", "\"$@\"", "$*", "${@}", "\"${@:2}\""};
    char text[128], word[128];
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t quoted = words[i][0] == '"', length = strlen(words[i]) - 2 * quoted;
        snprintf(word, sizeof word, "  %.*s (line 2): arguments that the script is called with",
                 (int)length, words[i] + quoted);
        snprintf(text, sizeof text, "run --lr 2 --attention-dropout 0 \\\n --bf16 %s", words[i]);
        expect(LS_CONVERT_MEGATRON, text, &strict, "lr: 2 ", "bf16 ", word, NULL);
        snprintf(text, sizeof text, "run \\\n %s --lr 2 --attention-dropout 0", words[i]);
        expect(LS_CONVERT_MEGATRON, text, &strict, "lr: 2 ", word, NULL);
    }
    expect_without(LS_CONVERT_MEGATRON, "torchrun $@ x.py --lr 2 --attention-dropout 0", "lr: 2 ",
                   "is called with");
    expect_refused(LS_CONVERT_MEGATRON, "run --attention-dropout 0 --lr=$@", &strict,
                   "--lr: $@ is not run", NULL);
}

/* A file that the script reads may set variables to other values: the result names it. */
CASE(test_shell_files_that_are_not_read)
{
    static const char *const named[][2] = {
        {"source ./envs.sh", "source ./envs.sh (line 2) is not read: give the variables"},
        {". $HOME/envs.sh", "source $HOME/envs.sh (line 2) is not read"},
        {"set -a; . .env; set +a", "source .env (line 2) is not read"},
        {"[ -f x ] && source x", "source x (line 2) is not read"},
        {"export $(cat .env | xargs)", "export $(cat .env | xargs) (line 2) is not read"},
    };
    static const char *const silent[] = {"if false; then source x; fi", "f() { source x; }",
                                         "echo source x", "export N=$(cat x)"};
    char text[128];
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        snprintf(text, sizeof text, "TP=1\n%s\nrun --lr ${LR:-2} --attention-dropout 0",
                 named[i][0]);
        expect(LS_CONVERT_MEGATRON, text, &strict, "lr: 2 ", named[i][1], "NAME=VALUE", NULL);
    }
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++) {
        snprintf(text, sizeof text, "%s\nrun --lr 2 --attention-dropout 0", silent[i]);
        expect_without(LS_CONVERT_MEGATRON, text, "lr: 2 ", "is not read");
    }
}

/* The lines of a here-document are no commands, whatever they hold. */
CASE(test_shell_documents)
{
    static const char *const scripts[] = {
        "cat > a.json <<EOF\n{\"don't\": 1}\n --lr 7 --seed 9 --bf16 --a 1 --b 2\nEOF\n",
        "cat << 'END OF' > a\n'\nEND\nEND OF\n",
        "cat <<\"EOF\" | tee a\n`(\n EOF\nEOF x\nEOF\r\n",
        "cat <<-EOF\n\t\"\n\t\tEOF\n",
        "cat <<A <<\\B; echo x\n'\nA\n\"\nB\n",
        "cat <<EOF > a \\\n b\n'\nEOF\n",
        "grep x <<< \"$LR\"\n",
    };
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        char text[512];
        snprintf(text, sizeof text, "%srun --lr 2 --seed 3\n", scripts[i]);
        expect(LS_CONVERT_MEGATRON, text, &lax, "lr: 2 ", "seed: 3 ", NULL);
    }
    expect_refused(LS_CONVERT_MEGATRON, "x\ncat <<EOF\n--lr 1\n", &lax,
                   "file:2: a here-document without the line that ends it", NULL);
    expect_refused(LS_CONVERT_MEGATRON, "cat <<\n", &lax, "<< without the word", NULL);
    expect_refused(LS_CONVERT_MEGATRON, "a <<A <<B <<C <<D <<E\n", &lax, "more here-documents",
                   NULL);
    expect_refused(LS_CONVERT_MEGATRON, "sbatch <<EOF\nrun --lr 1\nEOF\n", &lax,
                   "expected arguments such as", "here-document (<<) are not read", NULL);
}

/* What torchtitan has and is not here is refused by its name, with the reason. */
CASE(test_flavors)
{
    static const char *const cases[][3] = {
        {"name = \"llama4\"\nflavor = \"17bx16e\"", "no model llama4", "there are no experts"},
        {"name = \"deepseek_v3\"\nflavor = \"16B\"", "no model deepseek_v3", "no experts"},
        {"name = \"qwen3\"\nflavor = \"30B-A3B\"", "no model 30B-A3B", "there are no experts"},
        {"name = \"qwen3\"\nflavor = \"9B\"", "no model 9B", "debugmodel, 0.6b, 1.7b, 4b"},
        {"name = \"flux\"", "no model flux", "pictures"},
        {"name = \"mine\"", "no model mine", "expected one of llama3, gpt2, llama, qwen2, qwen3"},
        {"name = \"llama3\"\nflavor = \"13B\"", "no model 13B",
         "debugmodel, 1b, 3b, 8b, 70b, 405b"},
        {"name = \"llama\"\nflavor = \"26B\"", "no model 26B", "one of 7b, 13b, 70b"},
        {"name = \"deepseek_v2\"", "no model deepseek_v2", "no experts"},
        {"converters = [\"float8\"]", "float8: nothing is quantised in training", ""},
        {"converters = [\"lora\"]", "beside the head too there", "lora.rank"},
    };
    static const char *const same[][3] = {
        {"name = \"llama3\"\nflavor = \"70B\"", "preset: \"llama-70b\"", ""},
        {"name = \"llama\"\nflavor = \"70B\"", "preset: \"llama2-70b\"", ""},
        {"name = \"llama2\"\nflavor = \"7B\"", "preset: \"llama2-7b\"", ""},
        {"flavor = \"8B\"\n[training]\nbatch_size = 1", "rope_factor: 1 ", "the file is older"},
        {"flavor = \"8B\"\n[training]\nlocal_batch_size = 1", "preset: \"llama-8b\"",
         "give model.rope_factor=1"},
        {"name = \"qwen3\"\nflavor = \"0.6B\"", "preset: \"qwen3-0.6b\"", ""},
        {"name = \"qwen3\"\nflavor = \"debugmodel\"", "arch: qwen3 ", "head_dim: 128 "},
        {"name = \"transformers_modeling_backend\"\nflavor = \"full\"\n"
         "[hf_transformers]\nmodel = \"Qwen/Qwen3-4B\"",
         "preset: \"qwen3-4b\"", ""},
        {"flavor = \"8B_flex\"", "preset: \"llama-8b\"", "packing: documents "},
        {"flavor = \"debugmodel_varlen_attn\"", "layers: 6 ", "packing: documents "},
        {"attn_mask_type = \"block_causal\"", "packing: documents ", "whole documents"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        snprintf(text, sizeof text, "[model]\n%s\n", cases[i][0]);
        expect_refused(LS_CONVERT_TORCHTITAN, text, &strict, cases[i][1], cases[i][2], NULL);
    }
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        char text[256];
        snprintf(text, sizeof text, "[model]\n%s\n", same[i][0]);
        expect(LS_CONVERT_TORCHTITAN, text, &strict, same[i][1], same[i][2], NULL);
    }
}

/* Every preset of the families that torchtitan has is found by its flavor. */
CASE(test_stages_begin_with_whole_blocks)
{
#define SPLIT "[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_split_points = "
    expect(LS_CONVERT_TORCHTITAN, SPLIT "[\"layers.2\"]", &lax, "split: \"0-2,3-7\"", NULL);
    expect(LS_CONVERT_TORCHTITAN, SPLIT "[\"layers.2.5\"]", &lax, "stages are balanced by cost",
           NULL);
}

CASE(test_presets_are_flavors)
{
    static const struct {
        const char *theirs;
        enum ls_arch arch;
    } families[] = {{"llama3", LS_LLAMA}, {"qwen3", LS_QWEN3}, {"gemma2", LS_GEMMA2}};
    int found = 0;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        for (const struct ls_preset *preset = ls_family_of(families[i].arch)->presets; preset->name;
             preset++) {
            char text[256], word[128];
            size_t prefix = strlen(ls_arch_name(families[i].arch)) + 1;
            snprintf(word, sizeof word, "%s-", ls_arch_name(families[i].arch));
            if (strncmp(preset->name, word, prefix) != 0)
                continue;
            snprintf(text, sizeof text, "model = {name = \"%s\", flavor = \"%s\"}\n",
                     families[i].theirs, preset->name + prefix);
            snprintf(word, sizeof word, "preset: \"%s\"", preset->name);
            expect(LS_CONVERT_TORCHTITAN, text, &strict, word, NULL);
            found++;
        }
    assert_in_range(found, 15, 1000);
}

#define MEGATRON "--attention-dropout 0 --num-layers 2 "
#define LLAMA                                                                                      \
    MEGATRON "--position-embedding-type rope --normalization RMSNorm --swiglu "                    \
             "--disable-bias-linear "

/* Arguments that ask for what some family has give that family; those that no family has together
 * are refused, with the families that fit the rest. */
CASE(test_families_are_asked)
{
    static const char *const same[][3] = {
        {MEGATRON, "arch: gpt2 ", ""},
        {MEGATRON "--openai-gelu", "activation: gelu_tanh ", "arch: gpt2 "},
        {MEGATRON "--onnx-safe", "activation: gelu_erf ", ""},
        {LLAMA, "arch: llama ", "bias: false "},
        {LLAMA "--no-position-embedding --rotary-interleaved", "arch: llama ", "another order"},
        {LLAMA "--qk-layernorm --kv-channels 128", "arch: qwen3 ", "head_dim: 128 "},
        {LLAMA "--add-qkv-bias", "arch: qwen2 ", ""},
        {LLAMA "--window-size '(4095,0)'", "arch: mistral ", "window: 4096 "},
        {LLAMA "--window-size 4095,0", "arch: mistral ", "window: 4096 "},
        {LLAMA "--window-size -1,0", "arch: llama ", "all tokens before, as here"},
        {LLAMA "--no-rope-freq 4", "arch: smollm3 ", "rope_layers: three_of_four "},
        {LLAMA "--rotary-seq-len-interpolation-factor 4", "rope_scaling: linear ",
         "rope_factor: 4 "},
        {LLAMA "--use-rope-scaling", "rope_factor: 8 ", "rope_original_context: 8192 "},
        {LLAMA "--apply-layernorm-1p --calculate-per-token-loss", "arch: llama ", ""},
        {LLAMA "--reset-attention-mask", "packing: documents ", "whole documents"},
        {MEGATRON "--reset-attention-mask --reset-position-ids --eod-mask-loss",
         "packing: documents ", "nothing follows a document"},
        {LLAMA "--grad-reduce-in-bf16", "reduce: bf16 ", "mode: fast "},
        {LLAMA "--normalization rmsnorm --num-key-value-heads 2", "kv_heads: 2 ", "arch: llama "},
        {LLAMA "--rotary-position-embeddings-theta 5e5", "rope_theta: 500000 ", ""},
        {LLAMA "--pad-vocab-size-to 250880", "vocab: 250880 ", "vocab_multiple: 1 "},
        {LLAMA "--ds-sequence-parallel-size 2", "cp: 2 ", "seq_tiles: 2 "},
        {LLAMA "--deepspeed --deepspeed_config=a.json --zero-stage=2 --no-pipeline-parallel",
         "zero: 2 ", "gradient_clipping of a.json there"},
        {LLAMA "--deepspeed_config a.$JOB.json", "gradient_clipping of a.$JOB.json there", ""},
        {LLAMA "--num-experts 1 --cpu-optimizer", "optimizer: host ", ""},
    };
    static const char *const refused[][3] = {
        {MEGATRON "--qk-layernorm", "--qk-layernorm: norms of queries and keys", "(gpt2)"},
        {MEGATRON "--window-size 127,0", "--window-size: a window of attention", "(gpt2)"},
        {MEGATRON "--swiglu", "--swiglu: SwiGLU: not in a family", "(gpt2)"},
        {LLAMA "--qk-layernorm --window-size 127,0", "--window-size", "(qwen3)"},
        {LLAMA "--window-size 127,0 --window-attn-skip-freq 2", "--window-attn-skip-freq",
         "(mistral, phi3)"},
        {LLAMA "--no-rope-freq 4 --window-size 127,0", "--no-rope-freq", "(mistral, phi3)"},
        {LLAMA "--no-rope-freq 3", "--no-rope-freq", "model.rope_layers"},
        {LLAMA "--no-rope-freq 4294967300", "--no-rope-freq", "model.rope_layers"},
        {LLAMA "--window-size 127,8", "expected (TOKENS,0)", ""},
        {LLAMA "--window-size 9223372036854775807,0", "expected (TOKENS,0)", ""},
        {MEGATRON "--disable-bias-linear", "biases of LayerNorm", ""},
        {MEGATRON "--position-embedding-type none", "none is not here", ""},
        {MEGATRON "--no-position-embedding", "every family has positions", ""},
        {MEGATRON "--reset-attention-mask", "--reset-position-ids", "data.packing=documents"},
        {"a/pretrain_prefix_lm.py " MEGATRON, "pretrain_prefix_lm.py: attention is causal", ""},
        {"python evaluate.py " MEGATRON, "evaluate.py: this trains nothing", "lockstep eval"},
        {MEGATRON "--embed-layernorm", "no family has a norm behind the embedding", ""},
        {LLAMA "--eod-mask-loss", "--eod-mask-loss", "--reset-attention-mask"},
        {LLAMA "--squared-relu", "--squared-relu", "model.activation"},
        {LLAMA "--optimizer ademamix", "there is no ademamix", "adamw, sgd, lion, muon"},
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        expect(LS_CONVERT_MEGATRON, same[i][0], &strict, same[i][1], same[i][2], NULL);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        expect_refused(LS_CONVERT_MEGATRON, refused[i][0], &strict, refused[i][1], refused[i][2],
                       NULL);
}

CASE(test_yarn)
{
    expect(LS_CONVERT_MEGATRON,
           MEGATRON "--position-embedding-type yarn --normalization RMSNorm --swiglu "
                    "--disable-bias-linear --yarn-rotary-scaling-factor 4 --yarn-mscale 1 "
                    "--yarn-mscale-all-dim 1 --yarn-original-max-position-embeddings 4096",
           &strict, "rope_scaling: yarn ", "rope_factor: 4 ", "rope_original_context: 4096 ",
           "rope_attention_factor: 1 ", "model.rope_attention_factor is of both", NULL);
    expect(LS_CONVERT_MEGATRON,
           MEGATRON "--position-embedding-type yarn --normalization RMSNorm --swiglu "
                    "--disable-bias-linear --rotary-scaling-factor 4 --mscale 2 "
                    "--yarn-correction-range-round-to-int",
           &strict, "rope_factor: 4 ", "rope_original_context: 4096 ", "# default there: --yarn-",
           "rope_attention_factor: 1.27725887 ", NULL);
}

/* DeepSpeed's Muon has two rates, and defaults of its own; a schedule's peak is that of both. */
CASE(test_muon_of_deepspeed)
{
    const char *head = "{\"train_batch_size\": 8, \"optimizer\": {\"type\": \"Muon\", "
                       "\"params\": {%s}}%s}";
    static const char peak[] =
        ", \"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"warmup_type\": "
        "\"linear\", \"total_num_steps\": 100%s}}";
    char none[256], some[256], text[1024];
    snprintf(none, sizeof none, peak, "");
    snprintf(some, sizeof some, peak, ", \"warmup_max_lr\": 0.01");
    const struct {
        const char *params, *schedule, *lr, *adamw_lr;
    } cases[] = {
        {"", "", " lr: 0.02 ", "adamw_lr: 0.0003 "},
        {"\"lr\": 0.01", "", " lr: 0.01 ", NULL},
        {"\"muon_lr\": 0.05", "", " lr: 0.05 ", "adamw_lr: 0.0003 "},
        {"\"adam_lr\": 0.001", "", " lr: 0.02 ", "adamw_lr: 0.001 "},
        {"\"muon_lr\": 0.05, \"lr\": 0.01", "", " lr: 0.05 ", "adamw_lr: 0.01 "},
        {"\"muon_lr\": 0.05, \"adam_lr\": 0.001, \"lr\": 0.01", "", "adamw_lr: 0.001 ",
         "params.lr (line 1): muon_lr and adam_lr are the rates"},
        {"\"lr\": \"auto\"", "", "epsilon: 1e-10 ", NULL},
        {"\"muon_lr\": 0.05, \"adam_lr\": 0.001", some, " lr: 0.01 ", NULL},
        {"\"muon_lr\": 0.05, \"adam_lr\": 0.001", none, " lr: 0.001 ", NULL},
        {"\"ns_method\": \"gram\", \"lr\": 0.01", "", "ns_method (line 1): as it is here", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, head, cases[i].params, cases[i].schedule);
        if (cases[i].adamw_lr)
            expect(LS_CONVERT_DEEPSPEED, text, &strict, cases[i].lr, cases[i].adamw_lr, NULL);
        else
            expect_without(LS_CONVERT_DEEPSPEED, text, cases[i].lr, "adamw_lr:");
    }
}

/* Checkpoints of theirs are not read: the same weights in another format are model.from. */
CASE(test_first_weights)
{
    const char *const given[] = {"model.from=hf/llama"};
    struct ls_convert_options options = {.words = given, .word_count = 1};
    expect_refused(LS_CONVERT_MEGATRON, LLAMA "--save a --load a --finetune", &strict,
                   "--load: checkpoints of Megatron-LM are not read", "model.from=FOLDER", NULL);
    expect_refused(LS_CONVERT_MEGATRON, LLAMA "--pretrained-checkpoint a", &strict,
                   "--pretrained-checkpoint: checkpoints", NULL);
    expect(LS_CONVERT_MEGATRON, LLAMA "--save a --load b --finetune", &options,
           "from: \"hf/llama\"", "model.from has the first weights", NULL);
    expect(LS_CONVERT_MEGATRON, LLAMA "--save a --load a", &strict, "resume: \"auto\"", NULL);
    expect_refused(LS_CONVERT_TORCHTITAN,
                   "checkpoint = {enable = true, initial_load_path = \"dcp\"}\n", &strict,
                   "checkpoints of torchtitan are not read", NULL);
    expect(LS_CONVERT_TORCHTITAN,
           "model = {name = \"qwen3\", flavor = \"0.6B\", hf_assets_path = \"hf/Qwen3-0.6B\"}\n"
           "checkpoint = {enable = true, initial_load_in_hf = true}\n"
           "training.seq_len = 4096\n",
           &strict, "from: \"hf/Qwen3-0.6B\"", "model.preset or model.from says", "sequence: 4096 ",
           NULL);
}

/* Gradients travel in bf16 where the file says so. */
CASE(test_reduced_gradients)
{
    expect(LS_CONVERT_DEEPSPEED,
           "{\"train_batch_size\": 8, \"communication_data_type\": \"bfp16\"}", &strict,
           "reduce: bf16 ", "mode: fast ", "other layouts give other bits", NULL);
    expect(LS_CONVERT_DEEPSPEED, "{\"train_batch_size\": 8, \"communication_data_type\": \"fp32\"}",
           &strict, "as it is here", NULL);
    expect_refused(LS_CONVERT_DEEPSPEED,
                   "{\"train_batch_size\": 8, \"communication_data_type\": \"fp16\"}", &strict,
                   "there is no fp16: numerics.reduce is one of fp32, bf16", NULL);
    expect(LS_CONVERT_TORCHTITAN, "[training]\nmixed_precision_reduce = \"bfloat16\"\n", &strict,
           "reduce: bf16 ", NULL);
}

/* Doubled again and again, a variable stays within its bound. */
CASE(test_hostile_variables)
{
    char text[4096] = "A=xxxxxxxx\n";
    for (int i = 0; i < 40; i++)
        strcat(text, "A=$A$A\n");
    strcat(text, "run --lr $A");
    expect_refused(LS_CONVERT_MEGATRON, text, &lax, "too long", NULL);
}

/* Cut at any byte, a file is converted or refused with a text. */
CASE(test_truncated_files)
{
    for (size_t i = 0; i < GOLDENS; i++) {
        char path[256];
        size_t bytes;
        struct ls_convert_options options = options_of(&goldens[i]);
        snprintf(path, sizeof path, GOLDEN "%s", goldens[i].name);
        char *text = scratch_read(path, &bytes);
        size_t step = (size_t)check_every(7, 4) * (bytes > 4096 ? 53 : 3);
        for (size_t cut = 0; cut < bytes; cut += step) {
            struct ls_convert result;
            struct ls_error error = {0};
            char *part = malloc(cut + 1);
            memcpy(part, text, cut);
            part[cut] = '\0';
            int status =
                ls_convert_text(&result, goldens[i].project, "cut", part, cut, &options, &error);
            if (status && (status != LS_ECONFIG || !*error.text))
                fail_msg("%s cut at %zu: %s", goldens[i].name, cut, ls_status_name(status));
            assert_true((status == LS_OK) == (result.text != NULL));
            ls_convert_release(&result);
            free(part);
        }
        free(text);
    }
}

/* ---- recording ------------------------------------------------------------------------------ */

static int write_text(const void *text, FILE *file, struct ls_error *error)
{
    fputs(text, file);
    return LS_OK;
}

static int record(void)
{
    for (size_t i = 0; i < GOLDENS; i++) {
        struct ls_convert result;
        struct ls_error error = {0};
        struct ls_convert_options options = options_of(&goldens[i]);
        char path[256];
        snprintf(path, sizeof path, GOLDEN "%s", goldens[i].name);
        int status = ls_convert_file(&result, goldens[i].project, path, &options, &error);
        strcat(path, ".yaml");
        if (!status)
            status = ls_file_write(path, write_text, result.text, &error);
        if (status) {
            fprintf(stderr, "%s: %s\n", goldens[i].name, error.text);
            return 1;
        }
        ls_convert_release(&result);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--record") == 0)
        return record();
    return suite_run(NULL, NULL);
}
