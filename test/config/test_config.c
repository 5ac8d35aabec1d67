/* The configuration: what is read, what is refused and with which words, and that it can be written
 * and read back. */
#include "config/config_private.h"

#include <lockstep/config/inputs.h>

#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../support/scratch.h"
#include "../support/suite.h"

#define TINY "model: {preset: gpt2-tiny}\n"

static int load(struct ls_config *config, const char *text, struct ls_error *error)
{
    ls_config_defaults(config);
    return ls_config_load_text(config, "run.yaml", text, strlen(text), error);
}

static int load_and_resolve(struct ls_config *config, const char *text, struct ls_error *error)
{
    int status = load(config, text, error);
    return status ? status : ls_config_resolve(config, 257, error);
}

static void expect_good(struct ls_config *config, const char *text)
{
    struct ls_error error = {0};
    int status = load_and_resolve(config, text, &error);
    if (status)
        fail_msg("%s\nwas refused: %s", text, error.text);
}

/* The text is refused with LS_ECONFIG, and the message holds each of the words (ended by NULL). */
static void expect_refused(const char *text, ...)
{
    struct ls_config config;
    struct ls_error error = {0};
    int status = load_and_resolve(&config, text, &error);
    if (status != LS_ECONFIG)
        fail_msg("%s\ngave %s, expected LS_ECONFIG: %s", text, ls_status_name(status), error.text);
    va_list words;
    va_start(words, text);
    for (const char *word; (word = va_arg(words, const char *));)
        if (!strstr(error.text, word))
            fail_msg("%s\nwas refused with: %s\nwhich lacks: %s", text, error.text, word);
    va_end(words);
}

/* ---- reading -------------------------------------------------------------------------------- */

CASE(test_nested_and_dotted_keys_are_the_same)
{
    const char *texts[] = {
        "optim:\n  lr: 3e-4\n  name: lion\nbatch:\n  global: 16\n",
        "optim.lr: 3e-4\noptim.name: lion\nbatch.global: 16\n",
        "{\"optim\": {\"lr\": 0.0003, \"name\": \"lion\"}, \"batch\": {\"global\": 16}}",
        "# comment\n---\noptim: {lr: 3.0e-04}\noptim.name: 'lion'\nbatch: {global: +16}\n...\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct ls_config config;
        struct ls_error error = {0};
        if (load(&config, texts[i], &error))
            fail_msg("%s: %s", texts[i], error.text);
        assert_true(config.optim.lr == 3e-4);
        assert_int_equal(config.optim.name, LS_LION);
        assert_int_equal(config.batch.global, 16);
    }
}

CASE(test_every_key_has_a_good_default_and_a_place_of_its_own)
{
    size_t count;
    const struct ls_config_key *keys = ls_config_keys(&count);
    struct ls_config config;
    ls_config_defaults(&config);
    for (size_t i = 0; i < count; i++) {
        char assignment[256];
        struct ls_error error = {0};
        snprintf(assignment, sizeof assignment, "%s=%s", keys[i].name, keys[i].initial);
        if (ls_config_set(&config, assignment, &error))
            fail_msg("%s: %s", assignment, error.text);
        assert_non_null(strchr(keys[i].name, '.'));
        assert_true(strlen(keys[i].help) > 5);
        for (size_t j = 0; j < i; j++) {
            assert_string_not_equal(keys[i].name, keys[j].name);
            if (keys[i].offset == keys[j].offset)
                fail_msg("%s and %s share a place", keys[i].name, keys[j].name);
        }
    }
}

CASE(test_empty_file_and_null_text)
{
    struct ls_config config;
    struct ls_error error = {0};
    assert_int_equal(load(&config, "", &error), LS_OK);
    assert_int_equal(load(&config, "# nothing\n", &error), LS_OK);
    assert_int_equal(load(&config, "data:\n  valid:\n  train: ~\n", &error), LS_OK);
    assert_string_equal(config.data.valid, "");
    assert_string_equal(config.data.train, "");
}

CASE(test_overrides_win_and_keep_their_text)
{
    struct ls_config config;
    struct ls_error error = {0};
    assert_int_equal(load(&config, "optim: {lr: 1}\n", &error), LS_OK);
    assert_int_equal(ls_config_set(&config, "optim.lr=0.5", &error), LS_OK);
    assert_int_equal(ls_config_set(&config, "sample.prompt=a = \"b\": # c", &error), LS_OK);
    assert_true(config.optim.lr == 0.5);
    assert_string_equal(config.sample.prompt, "a = \"b\": # c");
    char where[64];
    ls_config_where(&config, "optim.lr", where, sizeof where);
    assert_string_equal(where, "command line");
}

CASE(test_whole_numbers_however_written)
{
    static const struct {
        const char *text;
        int64_t value;
    } cases[] = {{"1000", 1000},
                 {"1e3", 1000},
                 {"1E+3", 1000},
                 {"1.5e3", 1500},
                 {"0.25e4", 2500},
                 {"4.0", 4},
                 {"40.", 40},
                 {"1200e-2", 12},
                 {"0001000", 1000},
                 {"10100.00", 10100},
                 {"1e17", 100000000000000000},
                 {"123456789012345678", 123456789012345678}};
    struct ls_error error = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ls_config config;
        char text[64];
        ls_config_defaults(&config);
        snprintf(text, sizeof text, "train.steps=%s", cases[i].text);
        assert_ok(ls_config_set(&config, text, &error), error);
        assert_int_equal(config.train.steps, cases[i].value);
        snprintf(text, sizeof text, "train: {steps: %s}\n", cases[i].text);
        assert_ok(load(&config, text, &error), error);
        assert_int_equal(config.train.steps, cases[i].value);
    }
}

/* Each name that another program has for a key leads to that key, in a file and on a command line,
 * under any group and however it is spelt. */
CASE(test_names_of_other_programs)
{
    char theirs[CONFIG_ALIAS_BYTES], again[CONFIG_ALIAS_BYTES];
    const char *ours, *key;
    size_t count = 0;
    for (; config_alias(count, theirs, &ours); count++) {
        char text[256], words[128];
        struct ls_config config;
        struct ls_error error = {0};
        if (config_index(ours) < 0 || strchr(theirs, '.') || config_index(theirs) >= 0)
            fail_msg("%s -> %s", theirs, ours);
        for (size_t i = 0; i < count && config_alias(i, again, &key); i++)
            assert_string_not_equal(again, theirs);
        snprintf(words, sizeof words, "did you mean %s?", ours);
        snprintf(text, sizeof text, "%s: 1\n", theirs);
        expect_refused(text, "run.yaml:1:1: ", words, NULL);
        snprintf(text, sizeof text, "%.*s%s=1", (int)(strchr(ours, '.') + 1 - ours), ours, theirs);
        ls_config_defaults(&config);
        assert_int_equal(ls_config_set(&config, text, &error), LS_ECONFIG);
        if (!strstr(error.text, words) || !strstr(error.text, "command line: "))
            fail_msg("%s: %s", text, error.text);
    }
    assert_true(count > 100);
}

CASE(test_what_was_meant)
{
    expect_refused("optim: {learning_rate: 1}\n", "did you mean optim.lr?", NULL);
    expect_refused("optim: {Learning-Rate: 1}\n", "did you mean optim.lr?", NULL);
    expect_refused("train: {lr: 1}\n", "did you mean optim.lr?", NULL);
    expect_refused("seed: 1\n", "did you mean model.seed or data.seed?", NULL);
    expect_refused("optim: {wieght_decay: 1}\n", "did you mean optim.weight_decay?", NULL);
    expect_refused("optm.lr: 1\n", "did you mean optim.lr?", NULL);
    expect_refused("parallel: {zreo: 1}\n", "did you mean parallel.zero?", NULL);
    expect_refused("optim: {wx: 1}\n", "unknown key optim.wx (lockstep train --help-config", NULL);
    expect_refused("optim: {name: adagrad}\n", "expected adamw, sgd, lion or muon", NULL);
    expect_refused("optim: {name: AdamW}\n", "did you mean adamw?", NULL);
    expect_refused("model: {arch: mixtral}\n", "models with experts are not supported", NULL);
    expect_refused("model: {preset: mixtral-8x7b}\n", "no such preset; models with experts are not",
                   NULL);
    expect_refused("train: {resume: true}\n", "expected auto, never or the path of a",
                   "; did you mean auto?", NULL);
    expect_refused("train: {resume: no}\n", "; did you mean never?", NULL);
    expect_refused("train: {resume: last}\n", "; did you mean auto?", NULL);
    expect_refused("numerics: {precision: float16}\n", "; did you mean fp16?", NULL);
    expect_refused("numerics: {precision: bfloat16}\n", "; did you mean bf16?", NULL);
    expect_refused("data: {shuffle: yes}\n", "true or false; did you mean true?", NULL);
    expect_refused("parallel: {sp: yes}\n", "; did you mean true?", NULL);
    expect_refused("log: {progress: no}\n", "; did you mean off?", NULL);
    expect_refused("batch: {size: 8}\n", "unknown key batch.size; did you mean batch.global?",
                   NULL);
    expect_refused("model: {experts: 8}\n", "unknown key model.experts: models with experts", NULL);
    expect_refused("numerics: {fp8: true}\n", "numerics.fp8: training is in fp32, bf16 or", NULL);
    expect_refused("parallel: {vpp: 2}\n", "did you mean parallel.chunks?", NULL);
    expect_refused("parallel: {ep: 2}\n", "unknown key parallel.ep: models with experts are", NULL);
    expect_refused("train: {device: cuda}\n", "unknown key train.device: there are only CPUs",
                   NULL);
    expect_refused("log: {wandb: true}\n", "unknown key log.wandb: records go to train.out", NULL);
    expect_refused("traning: {steps: 1}\n", "unknown group traning", "the groups are model, data",
                   NULL);
    expect_refused("optm: {lr: 1}\n", "unknown group optm; did you mean optim?", NULL);
    struct ls_config config;
    struct ls_error error = {0};
    load(&config, "optim: {name: muon}\n", &error);
    assert_null(strstr(error.text, "did you mean"));
}

/* What refuses a value often begins with it, as the key's place ends: it is said once. */
CASE(test_a_value_is_said_once)
{
    enum { VALUES = 2 };
    static const char *const values[VALUES] = {"nowhere/at/all", "7-3"};
    int refused = 0;
    for (const struct ls_config_key *key = ls_config_keys(NULL); key->name; key++) {
        for (int i = 0; i < VALUES && config_is_text(key); i++) {
            struct ls_config config;
            struct ls_error error = {0};
            struct ls_tokenizer *tokenizer = NULL;
            struct ls_layout layout;
            char text[400];
            snprintf(text, sizeof text, TINY "data.sequence: 64\n%s: %s\n", key->name, values[i]);
            int status = load_and_resolve(&config, text, &error);
            status = status ? status : ls_config_tokenizer(&config, &tokenizer, &error);
            status = status ? status : ls_config_layout(&config, 0, &layout, &error);
            ls_tokenizer_free(tokenizer);
            char twice[3][200];
            refused += status != LS_OK;
            snprintf(twice[0], sizeof twice[0], "= \"%s\": %s: ", values[i], values[i]);
            snprintf(twice[1], sizeof twice[1], "= %s: %s: ", values[i], values[i]);
            snprintf(twice[2], sizeof twice[2], "= \"%s\": tokenizer \"%s\": ", values[i],
                     values[i]);
            for (int k = 0; k < 3; k++)
                if (status && strstr(error.text, twice[k]))
                    fail_msg("%s", error.text);
        }
    }
    assert_true(refused >= 10);
}

/* A refusal says the value and hands out its parts; blame leaves the value to the text that it is
 * put before. What comes from no file tells where it begins behind "command line: ". */
CASE(test_errors_have_parts)
{
    struct ls_config config;
    struct ls_error error = {0};
    assert_ok(load(&config, "data.tokenizer: a/b\n", &error), error);
    ls_config_reject(&config, LS_EDATA, "data.tokenizer", &error, "it has %d tokens", 3);
    assert_string_equal(error.text, "run.yaml:1:17: data.tokenizer = \"a/b\": it has 3 tokens");
    assert_string_equal(error.key, "data.tokenizer");
    assert_string_equal(error.text + error.reason, "it has 3 tokens");
    assert_int_equal(error.unfiled, 0);
    ls_error_set(&error, LS_EDATA, "a/b: no such folder");
    assert_int_equal(ls_config_blame(&config, "data.tokenizer", &error), LS_EDATA);
    assert_string_equal(error.text, "run.yaml:1:17: data.tokenizer: a/b: no such folder");
    assert_int_equal(ls_config_set(&config, "optim.lr=x", &error), LS_ECONFIG);
    assert_string_equal(error.key, "optim.lr");
    assert_non_null(strstr(error.text, "command line: optim.lr = x: expected "));
    assert_ptr_equal(strstr(error.text, "optim.lr"), error.text + error.unfiled);
    assert_int_equal(ls_config_set(&config, "optim.lrr=x", &error), LS_ECONFIG);
    assert_ptr_equal(strstr(error.text, "unknown"), error.text + error.unfiled);
    assert_string_equal(error.key, "optim.lrr");
    assert_int_equal(load(&config, "optim: {lrr: 1}\n", &error), LS_ECONFIG);
    assert_string_equal(error.text, "run.yaml:1:9: unknown key optim.lrr; did you mean optim.lr?");
    assert_string_equal(error.key, "optim.lrr");
    static const char *const about[][3] = {
        {"optm: {lr: 1}\n", "optm", "unknown group optm"},
        {"optim: {lr: x}\n", "optim.lr", "expected "},
        {"optim: 1\n", "optim", "optim is a group"},
        {"optim: {lr: [1]}\n", "optim.lr", "optim.lr: expected one value"},
        {"optim: {lr: 1, lr: 1}\n", "optim.lr", "optim.lr is given twice"},
        {"data: {blend: [1]}\n", "data.blend", "data.blend: expected {source"},
        {"data: {blend: [{source: a, weight: x}]}\n", "data.blend", "data.blend: weight = x"},
    };
    for (size_t i = 0; i < sizeof about / sizeof *about; i++) {
        assert_int_equal(load(&config, about[i][0], &error), LS_ECONFIG);
        assert_string_equal(error.key, about[i][1]);
        assert_ptr_equal(strstr(error.text, about[i][2]), error.text + error.reason);
    }
    ls_config_reject(&config, LS_ECONFIG, "model.layers", &error, "expected more");
    assert_ptr_equal(strstr(error.text, "model.layers"), error.text + error.unfiled);
    ls_config_defaults(&config);
    assert_int_equal(ls_config_require(&config, "data.train", &error), LS_ECONFIG);
    assert_ptr_equal(strstr(error.text, "data.train is not set"), error.text + error.unfiled);
    expect_refused(TINY "async.follow: x\n", "its default is empty", NULL);
}

/* A size has a unit, decimal or binary, with a space before it or without, and is written so that
 * it reads back. A small plain number has lost its unit. */
CASE(test_sizes)
{
    static const struct {
        const char *text;
        int64_t bytes;
        const char *written;
    } cases[] = {{"80GB", 80000000000, "80GB"},
                 {"80 G", 80000000000, "80GB"},
                 {"80 GB", 80000000000, "80GB"},
                 {"80GiB", 80LL << 30, "80GiB"},
                 {"1.5 kB", 1500, "1500B"},
                 {"3000B", 3000, "3kB"},
                 {"1000MiB", 1000LL << 20, "1000MiB"},
                 {"7B", 7, "7B"},
                 {"4194304", 4 << 20, "4MiB"},
                 {"0", 0, "0"}};
    static const char *const bad[] = {"80", "80 Gb", "1.5B", "GiB", "80GiBs", "-80GiB"};
    const struct ls_config_key *key = ls_config_key_of("memory.device_budget");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_config config;
        struct ls_error error = {0};
        char text[200], written[4 * LS_CONFIG_TEXT_BYTES];
        for (int again = 0; again < 2; again++) {
            snprintf(text, sizeof text, "memory: {device_budget: %s}\n",
                     again ? cases[i].written : cases[i].text);
            if (load(&config, text, &error))
                fail_msg("%s: %s", text, error.text);
            assert_int_equal(config.memory.device_budget, cases[i].bytes);
            ls_config_value(&config, key, written, sizeof written);
            assert_string_equal(written, cases[i].written);
        }
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[200];
        snprintf(text, sizeof text, "memory: {device_budget: %s}\n", bad[i]);
        expect_refused(text, "expected a size with its unit, such as 80GiB", NULL);
    }
}

CASE(test_overrides_refused)
{
    const char *cases[][2] = {
        {"optim.lr", "expected key=value"},
        {"optim.lrr=1", "did you mean optim.lr?"},
        {"=1", "unknown key"},
        {"optim.lr=", "expected a number"},
        {"optim.lr=nan", "expected a number"},
        {"optim.lr=0x10", "expected a number"},
        {"optim.lr=1e400", "expected a number"},
        {"optim.lr=-1", "above 0"},
        {"optim.beta2=0.99999999", "at least 0 and below 1 (this one is 1 in float32)"},
        {"optim.epsilon=1e-46", "above 0 and at most 1 (this one is 0 in float32)"},
        {"batch.global=4.5", "this one is not whole"},
        {"batch.global=1e-3", "this one is not whole"},
        {"batch.global=1.25e1", "this one is not whole"},
        {"batch.global=0e0", "from 1 to"},
        {"batch.global=-1e3", "from 1 to"},
        {"batch.global=1_000", "without _ and ,"},
        {"batch.global=1,000", "without _ and ,"},
        {"batch.global=1e", "a whole number"},
        {"batch.global=1k", "a whole number"},
        {"batch.global=99999999999999999999", "past 2^63"},
        {"train.steps=1e19", "past 2^63"},
        {"train.steps=1e999999999999999999999", "past 2^63"},
        {"train.steps=1e-999999999999999999999", "not whole"},
        {"data.shuffle=yes", "true or false"},
        {"numerics.precision=bf61", "did you mean bf16?"},
        {"numerics.reduce=fp16", "expected fp32 or bf16"},
        {"optim.moments=fp16", "expected fp32 or bf16"},
        {"optim.moments=bf61", "did you mean bf16?"},
        {"numerics.loss_scale=-1", "expected a number"},
        {"numerics.hysteresis=0", "expected a whole number"},
        {"async.staleness=4294967296", "free or a whole number from 0 to 1073741824"},
        {"data.train=\xff\xfe", "UTF-8"},
        {"sample.prompt=\xed\xa0\x80", "UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ls_config config;
        struct ls_error error = {0};
        ls_config_defaults(&config);
        int status = ls_config_set(&config, cases[i][0], &error);
        if (status != LS_ECONFIG || !strstr(error.text, cases[i][1]))
            fail_msg("%s gave %d: %s (expected: %s)", cases[i][0], status, error.text, cases[i][1]);
    }
}

CASE(test_bad_keys_and_values_name_their_place)
{
    expect_refused("optim:\n  learning_rate: 1\n", "run.yaml:2:3", "optim.learning_rate", NULL);
    expect_refused("optim:\n  lrr: 1\n", "run.yaml:2:3", "did you mean optim.lr?", NULL);
    expect_refused("optmi:\n  lr: 1\n", "run.yaml:1:1", "optmi", NULL);
    expect_refused("optim:\n  lr: fast\n", "run.yaml:2:7", "optim.lr = fast", "a number", NULL);
    expect_refused("optim:\n  lr: \"1\"\n", "run.yaml:2:7", "without quotes", NULL);
    expect_refused("optim:\n  lr:\n", "optim.lr = (nothing)", NULL);
    expect_refused("optim:\n  beta1: 1\n", "of at least 0 and below 1", NULL);
    expect_refused("data: {shuffle: yes}\n", "run.yaml:1:17", "true or false", NULL);
    expect_refused("optim: {name: adam}\n", "did you mean adamw?", NULL);
    expect_refused("optim: 3\n", "optim is a group", NULL);
    expect_refused("optim: {lr: [1, 2]}\n", "expected one value", NULL);
    expect_refused("optim: {lr: {a: 1}}\n", "optim.lr: expected one value, not a list or a map",
                   NULL);
    expect_refused("data: {train: [a, b]}\n", "data.train: expected one value",
                   "with commas between: a,b", NULL);
    expect_refused("optim: [lr]\n", "optim", NULL);
    expect_refused("- optim\n", "run.yaml:1:1", "group:", NULL);
    expect_refused("just text\n", "run.yaml:1:1", NULL);
    expect_refused("? [a]\n: 1\n", "expected a key", NULL);
    expect_refused("optim: {lr: 1, lr: 2}\n", "optim.lr is given twice", "line 1", NULL);
    expect_refused("optim: {lr: 1}\noptim: {beta1: 0}\n", "run.yaml:2:1: optim is given twice",
                   "line 1", NULL);
    expect_refused("optim: {lr: 1}\noptim.lr: 2\n", "run.yaml:2:1", "given twice", NULL);
    expect_refused("optim: {lr: 1}\n---\noptim: {lr: 2}\n", "second document", NULL);
    expect_refused("a: &x 1\noptim: {lr: *x}\n", "a", NULL);
    expect_refused("optim: {lr: *x}\n", "aliases are not supported", NULL);
    expect_refused("optim: {lr: !!float 1}\n", "tags are not supported", NULL);
    expect_refused("optim:\n  lr: 1\n bad\n", "run.yaml:3", NULL);
    expect_refused("optim: {lr: 1\n", "run.yaml:", "not YAML", NULL);
    expect_refused("\tlr: 1\n", "run.yaml:1", NULL);
    expect_refused("optim:\n  lr: \xff\n", "run.yaml:2:7", "UTF-8", NULL);
    expect_refused("sample: {prompt: \"a\\0b\"}\n", "zero byte", NULL);
}

CASE(test_long_text_is_refused_not_cut)
{
    char text[2048] = "data: {train: ";
    memset(text + strlen(text), 'x', LS_CONFIG_TEXT_BYTES);
    strcat(text, "}\n");
    expect_refused(text, "at most 511 bytes", NULL);
}

CASE_WITH(test_missing_file, scratch_setup, scratch_teardown)
{
    struct ls_config config;
    struct ls_error error = {0};
    ls_config_defaults(&config);
    assert_int_equal(ls_config_load_file(&config, "no/such/file.yaml", &error), LS_EIO);
    assert_non_null(strstr(error.text, "no/such/file.yaml"));
    assert_non_null(strstr(error.text, "there is no folder no"));
    assert_int_equal(ls_config_load_file(&config, "/", &error), LS_ECONFIG);
    assert_non_null(strstr(error.text, "a folder: expected a regular file"));
    assert_null(strstr(error.text, "config.yaml"));
    scratch_write(scratch_path(*state, "config.yaml"), "", 0);
    assert_int_equal(ls_config_load_file(&config, *state, &error), LS_ECONFIG);
    assert_non_null(strstr(error.text, "; a run's is "));
    assert_int_equal(ls_config_load_file(&config, "/dev/zero", &error), LS_ECONFIG);
    assert_non_null(strstr(error.text, "expected at most 1048576 bytes"));
}

/* ---- resolving ------------------------------------------------------------------------------ */

CASE(test_presets_and_what_overrides_them)
{
    struct ls_config config;
    const char *name;
    for (int i = 0; (name = ls_config_preset_name(i)); i++) {
        char text[128];
        snprintf(text, sizeof text, "model: {preset: %s}\n", name);
        expect_good(&config, text);
        assert_true(config.model.vocab >= 257 && config.model.vocab_padded % 128 == 0);
    }
    expect_good(&config, "model: {preset: gpt2-124m, layers: 3}\n");
    assert_int_equal(config.model.layers, 3);
    assert_int_equal(config.model.channels, 768);
    assert_int_equal(config.model.vocab_padded, 50304);
    assert_int_equal(config.model.ffn, 3072);
    assert_true(config.model.tied && config.model.bias);
    assert_int_equal(config.numerics.tp_tiles, 4);
    assert_int_equal(config.data.sequence, 1024);
    expect_good(&config, "model: {preset: gpt2-1558m}\n");
    assert_int_equal(config.numerics.tp_tiles, 1);
    expect_good(&config, "model: {preset: gpt2-1558m, vocab_multiple: 640}\n"
                         "numerics: {tp_tiles: 5}\n");
    assert_int_equal(config.numerics.tp_tiles, 5);
    expect_good(&config, "model: {preset: llama-8b}\n");
    assert_int_equal(config.model.kv_heads, 8);
    assert_int_equal(config.model.head_dim, 128);
    assert_true(config.model.rope_scaling.factor == 8 && config.model.rope_theta == 500000);
    assert_false(config.model.tied || config.model.bias);
    assert_int_equal(config.numerics.tp_tiles, 8);
    expect_good(&config, "model: {preset: gemma2-2b, window: 512}\n");
    assert_int_equal(config.model.window, 512);
    assert_int_equal(config.model.window_layers, LS_LAYERS_EVEN);
    assert_true(config.model.query_scale == 256 && config.model.logit_softcap == 30);
    assert_true(config.model.tied && config.model.act == LS_ACT_GEGLU);
    expect_good(&config, "model: {preset: gemma2-2b, window_layers: all}\n");
    assert_int_equal(config.model.window_layers, LS_LAYERS_ALL);
    expect_good(&config, "model: {preset: gemma2-tiny}\n");
    assert_true(config.model.query_scale == 32);
    expect_good(&config, "model: {preset: mistral-7b-v0.1}\n");
    assert_int_equal(config.model.window, 4096);
    assert_int_equal(config.model.window_layers, LS_LAYERS_ALL);
    expect_good(&config, "model: {preset: llama-tiny}\n");
    assert_int_equal(config.model.ffn, 256);
    assert_int_equal(config.model.vocab_padded, 384);
}

static void expect_named(const char *key, const char *name)
{
    char help[LS_CONFIG_HELP_BYTES];
    ls_config_key_help(ls_config_key_of(key), help);
    if (!strstr(help, name))
        fail_msg("the help of %s does not name %s: %s", key, name, help);
}

/* Texts that name the families and their presets name all of them; none has an open word. */
CASE(test_help_names_every_family_and_preset)
{
    static const char *const named[] = {"model.arch", "model.ffn", "model.tied", "model.bias",
                                        "model.activation"};
    const char *name;
    size_t count;
    const struct ls_config_key *keys = ls_config_keys(&count);
    for (int i = 0; (name = ls_config_preset_name(i)); i++)
        expect_named("model.preset", name);
    for (int arch = 0; arch < LS_ARCHES; arch++)
        for (size_t i = 0; i < sizeof named / sizeof named[0]; i++)
            expect_named(named[i], ls_arch_name((enum ls_arch)arch));
    for (size_t i = 0; i < count; i++) {
        char help[LS_CONFIG_HELP_BYTES];
        ls_config_key_help(&keys[i], help);
        assert_null(strchr(help, '{'));
    }
    expect_named("model.tied", "true for gpt2");
    expect_named("model.activation", "gelu_tanh for gpt2; swiglu for llama");
    expect_named("model.ffn", "4 channels for gpt2");
    expect_named("model.ffn", "8/3 channels rounded up to a multiple of 256 for llama");
    expect_named("model.window_layers", "even for gemma2");
    expect_named("model.rope_theta", "(llama");
}

CASE(test_automatic_values)
{
    struct ls_config config;
    expect_good(&config, TINY "train: {steps: 7}\n");
    assert_int_equal(config.optim.decay_steps, 7);
    assert_int_equal(config.model.vocab, 257);
    assert_int_equal(config.model.act, LS_ACT_GELU_TANH);
    assert_string_equal(config.train.out, "runs/run");
    /* A short run's decay covers its warm-up. */
    expect_good(&config, TINY "train: {steps: 7}\noptim: {warmup_steps: 9}\n");
    assert_int_equal(config.optim.decay_steps, 9);
    /* With bf16 a run decides what auto is; elsewhere there is nothing to decide. */
    assert_int_equal(config.numerics.arithmetic, LS_CONFIG_AUTO);
    expect_good(&config, TINY "numerics: {precision: fp32}\n");
    assert_int_equal(config.numerics.arithmetic, LS_ARITHMETIC_FMA);
    expect_good(&config, TINY "numerics: {arithmetic: bf16_pairs}\n");
    assert_int_equal(config.numerics.arithmetic, LS_ARITHMETIC_BF16_PAIRS);
    /* Tiles that tensor parallel may share key/value heads over. */
    expect_good(&config, "model: {preset: llama-tiny}\n");
    assert_int_equal(config.numerics.tp_tiles, 4);
    expect_good(&config, "model: {preset: llama-tiny, context: 256}\nnumerics: {seq_tiles: 2}\n");
    expect_good(&config, "model: {preset: llama-tiny, context: 384}\nnumerics: {seq_tiles: 3}\n");
    expect_good(&config, TINY "train: {steps: 7}\noptim: {warmup_steps: 9}\n");
    struct ls_config once = config;
    struct ls_error error = {0};
    assert_int_equal(ls_config_resolve(&config, 257, &error), LS_OK);
    assert_memory_equal(&once, &config, sizeof config);
}

/* The default leaf follows from the model and the batch: never from the layout. */
CASE(test_automatic_leaves)
{
    static const struct {
        const char *model;
        int64_t batch, leaf;
    } cases[] = {
        {"{preset: gpt2-124m}", 512, 4},   /* 4,096 tokens */
        {"{preset: gpt2-124m}", 48, 3},    /* 16 leaves */
        {"{preset: llama-8b}", 512, 1},    /* 64 leaves, 4,096 tokens */
        {"{preset: llama-70b}", 1024, 2},  /* 16,384 tokens */
        {"{preset: llama-405b}", 2048, 8}, /* 256 */
        {"{preset: llama-405b}", 256, 2},  /* 128 of 16,384 tokens */
        {"{preset: llama-405b}", 96, 1},   /* 64 at least */
        {"{preset: llama-405b}", 2160, 8}, /* 270: what is odd stays for dp */
        {"{preset: llama-405b}", 1990, 2}, /* no other power of two divides it */
    };
    static const char *const layouts[] = {"{}", "{dp: 2, tp: 2, zero: 3}"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int l = 0; l < 2; l++) {
            struct ls_config config;
            char text[300];
            snprintf(text, sizeof text,
                     "model: %s\nbatch: {global: %ld}\nparallel: %s\ndata: {sequence: %d}\n",
                     cases[i].model, (long)cases[i].batch, layouts[l],
                     strstr(cases[i].model, "gpt2") ? 1024 : 8192);
            expect_good(&config, text);
            if (config.numerics.leaf_sequences != cases[i].leaf)
                fail_msg("%s: a leaf of %ld sequences, expected %ld", text,
                         (long)config.numerics.leaf_sequences, (long)cases[i].leaf);
        }
}

CASE(test_keys_of_other_families_are_refused)
{
    expect_refused("model: {preset: llama-tiny, window: 16}\n", "model.window",
                   "model.arch = llama", NULL);
    expect_refused("model: {preset: mistral-tiny, logit_softcap: 30}\n", "model.logit_softcap",
                   "model.arch = mistral", NULL);
    expect_refused("model: {preset: gemma2-tiny, activation: swiglu}\n", "takes geglu", NULL);
}

CASE(test_what_is_trained)
{
    expect_refused(TINY "train.frozen: h.9.*\n", "matches no parameter", "h.0.attn.q.weight", NULL);
    expect_refused(TINY "train.frozen: 'wte.*, *'\n", "leaves no parameter to train", NULL);
    expect_refused(TINY "train.frozen: wte.*\nlora.rank: 4\n", "freezes the whole model", NULL);
    expect_refused(TINY "lora.alpha: 4\n", "no meaning with lora.rank = 0", NULL);
    expect_refused(TINY "lora: {rank: 4, targets: q_proj}\n", "no matrix \"q_proj\"",
                   "c_attn, c_proj, c_fc", NULL);
    expect_refused(TINY "lora: {rank: 4, targets: ''}\n", "names no matrix", NULL);
    struct ls_config config;
    expect_good(&config, TINY "lora: {rank: 4, targets: 'c_fc, attn.c_proj'}\n");
    assert_int_equal(config.model.lora.targets, 1 << 3 | 1 << 4);
    assert_true(config.model.lora.alpha == 4);
    /* a name is a name however far behind it stands */
    char words[400] = TINY "lora: {rank: 4, targets: 'c_fc";
    while (strlen(words) < 330)
        strcat(words, ", c_fc");
    char *end = words + strlen(words);
    strcpy(end, ", attn.c_proj'}\n");
    expect_good(&config, words);
    assert_int_equal(config.model.lora.targets, 1 << 3 | 1 << 4);
    strcpy(end, ", q_proj'}\n");
    expect_refused(words, "no matrix \"q_proj\"", NULL);
}

#define WIDE                                                                                       \
    "model: {layers: 1, channels: 64, heads: 256, head_dim: 256, context: 64, vocab: 300}\n"

CASE(test_contradictions_are_refused)
{
    expect_refused("model: {preset: gpt2-1b}\n", "run.yaml:1:17", "did you mean", NULL);
    expect_refused("optim: {lr: 1}\n", "model.layers", "model.preset", NULL);
    expect_refused(TINY "model.heads: 3\n", "run.yaml:2:14: model.heads = 3", "channels = 64",
                   NULL);
    expect_refused(TINY "model.kv_heads: 3\n", "divisor of model.heads = 4", NULL);
    expect_refused("model: {preset: gpt2-124m, heads: 1}\n", "at least 3 heads", NULL);
    expect_refused("model: {preset: llama-tiny, head_dim: 15}\n", "multiple of 8", NULL);
    expect_refused(TINY "model.channels: 32769\n", "model.channels = 32769", "from 0 to 32768",
                   NULL);
    expect_refused(WIDE "model.arch: olmo2\n", "model.heads = 256", "65536 wide",
                   "at most 128 heads of model.head_dim = 256", NULL);
    struct ls_config config;
    expect_good(&config, WIDE "model.arch: llama\n"); /* norms no heads together */
    expect_refused(TINY "model.vocab: 100\n", "the tokenizer's 257", NULL);
    expect_refused(TINY "model.activation: swiglu\n", "gelu_tanh or gelu_erf", NULL);
    expect_refused("model: {preset: llama-tiny, bias: true}\n", "no biases", NULL);
    expect_refused("model: {preset: llama-tiny, rope_factor: 8}\n", "rope_original_context", NULL);
    expect_refused("model: {preset: llama-tiny, rope_scaling: yarn, rope_factor: 1, "
                   "rope_attention_factor: 1.5}\n",
                   "model.rope_attention_factor = 1.5: expected 1, or 0", NULL);
    expect_refused(TINY "model.rope_theta: 500000\n", "no meaning with model.arch = gpt2", NULL);
    expect_refused(TINY "optim.momentum: 0.5\n", "no meaning with optim.name = adamw", NULL);
    expect_refused(TINY "optim: {name: sgd, beta2: 0.5}\n", "optim.name = sgd", NULL);
    expect_refused(TINY "optim: {name: sgd, momentum: 0, moments: bf16}\n", "optim.moments",
                   "no meaning with optim.momentum = 0", NULL);
    expect_refused(TINY "optim.ns_steps: 6\n", "an optim.name other than muon", NULL);
    expect_refused(TINY "optim: {name: lion, muon_scale: original}\n", "optim.muon_scale", NULL);
    expect_refused(TINY "optim: {name: sgd, adamw_lr: 1e-3}\n", "optim.adamw_lr", NULL);
    expect_refused(TINY "optim: {name: muon, momentum: 0, nesterov: true}\n",
                   "needs optim.momentum above 0", NULL);
    expect_refused(TINY "optim: {schedule: constant, min_ratio: 0}\n", "constant", NULL);
    expect_refused(TINY "optim: {cooldown_steps: 5}\n", "wsd", NULL);
    expect_refused(TINY "optim: {warmup_steps: 101, decay_steps: 100}\n",
                   "at most optim.decay_steps = 100", NULL);
    expect_refused(TINY "optim: {schedule: inverse_sqrt}\n", "warm-up", NULL);
    expect_refused(TINY "optim: {schedule: wsd, decay_steps: 100, warmup_steps: 90, "
                        "cooldown_steps: 20}\n",
                   "decay_steps - optim.warmup_steps = 10", NULL);
    expect_refused(TINY "numerics: {reduce: bf16}\n", "numerics.mode = fast", NULL);
    expect_refused(TINY "numerics: {precision: fp16, initial_scale_power: 3, min_loss_scale: 16}\n",
                   "numerics.min_loss_scale = 16", "numerics.initial_scale_power = 3", NULL);
    expect_refused(TINY "numerics: {precision: fp16, arithmetic: bf16_pairs}\n",
                   "numerics.arithmetic = bf16_pairs", "numerics.precision = bf16", NULL);
    expect_refused(TINY "numerics: {arithmetic: bf16_pairs, leaf_sequences: 2}\n"
                        "data: {sequence: 48}\n",
                   "numerics.arithmetic = bf16_pairs", "a leaf has 2 sequences of 48",
                   "a multiple of 32", NULL);
    expect_refused(TINY "data: {sequence: 65}\n", "model.context = 64", NULL);
    expect_refused(TINY "eval: {every: 5}\n", "data.valid", NULL);
    expect_refused(TINY "batch: {rampup_start: 4}\n", "rampup_increment", NULL);
    expect_refused(TINY "batch: {rampup_start: 8, rampup_increment: 1, rampup_samples: 10}\n",
                   "less than batch.global", NULL);
    expect_refused(TINY "batch: {rampup_start: 3, rampup_increment: 2, rampup_samples: 10}\n",
                   "divisor of", NULL);
}

/* The value that is named works with all other keys. */
CASE(test_tiles_and_leaves_that_do_not_fit)
{
    expect_refused(TINY "numerics: {tp_tiles: 3}\n", "does not divide the model's query heads, 4",
                   "is numerics.tp_tiles = 2", NULL);
    expect_refused(TINY "numerics: {tp_tiles: 8}\n", "nearest that works is numerics.tp_tiles = 4",
                   NULL);
    expect_refused("model: {preset: llama-tiny, kv_heads: 1, ffn: 258}\nnumerics: {tp_tiles: 4}\n",
                   "feed-forward width, 258", "nearest that works is numerics.tp_tiles = 2", NULL);
    expect_refused("model: {preset: llama-8b, layers: 1, heads: 24, kv_heads: 6, head_dim: 8}\n"
                   "numerics: {tp_tiles: 4}\n",
                   "nor a multiple of the 6 key/value heads", "is numerics.tp_tiles = 2", NULL);
    expect_refused(TINY "model.context: 512\nnumerics: {seq_tiles: 3}\n",
                   "not a multiple of 2 * 3 * 64", "nearest that works is numerics.seq_tiles = 2",
                   NULL);
    expect_refused(TINY "model.context: 512\nnumerics: {seq_tiles: 8}\n",
                   "not a multiple of 2 * 8 * 64", "nearest that works is numerics.seq_tiles = 4",
                   NULL);
    expect_refused(TINY "numerics: {seq_tiles: 2}\n", "data.sequence = 64",
                   "is numerics.seq_tiles = 1", NULL);
    expect_refused(TINY "model.context: 512\nnumerics: {seq_tiles: 2, leaf_sequences: 2}\n",
                   "it needs numerics.leaf_sequences = 1", NULL);
    /* One tile has larger leaves by default, which that micro-batch would cut. */
    expect_refused("model: {preset: llama-8b}\ndata.sequence: 100\nnumerics.seq_tiles: 2\n"
                   "batch: {global: 512, micro: 2}\n",
                   "is batch.micro = 8, numerics.seq_tiles = 1", NULL);
    expect_refused(TINY "numerics: {leaf_sequences: 3}\n", "nearest that works is batch.global = 9",
                   NULL);
    expect_refused(TINY "numerics: {leaf_sequences: 3}\n"
                        "batch: {rampup_start: 2, rampup_increment: 2, rampup_samples: 9}\n",
                   "is numerics.leaf_sequences = 2", NULL);
    expect_refused(TINY "numerics: {leaf_sequences: 3, reduce: bf16}\n", "numerics.reduce = bf16",
                   NULL);
    expect_refused(TINY "numerics: {leaf_sequences: 3}\noptim: {schedule: inverse_sqrt}\n",
                   "batch.global = 8", "besides, default: optim.warmup_steps = 0", NULL);
    expect_refused(TINY "numerics: {tp_tiles: 3}\nparallel: {tp: 4, pp: 9}\n",
                   "is numerics.tp_tiles = 2, parallel.pp = 4, parallel.tp = 2", NULL);
}

/* Run from the root of the tree, as `make check` does. */
CASE(test_configurations_of_the_tree)
{
    glob_t files;
    if (glob("configs/*.yaml", 0, NULL, &files) != 0) {
        print_message("skipped: no configs/ here; run from the root of the tree\n");
        skip();
    }
    for (size_t i = 0; i < files.gl_pathc; i++) {
        struct ls_config config;
        struct ls_error error = {0};
        ls_config_defaults(&config);
        if (ls_config_load_file(&config, files.gl_pathv[i], &error) ||
            ls_config_resolve(&config, 257, &error))
            fail_msg("%s: %s", files.gl_pathv[i], error.text);
    }
    globfree(&files);
}

CASE(test_no_tokenizer_and_no_data)
{
    struct ls_config config;
    struct ls_error error = {0};
    assert_int_equal(load(&config, TINY, &error), LS_OK);
    assert_int_equal(ls_config_resolve(&config, 0, &error), LS_ECONFIG);
    assert_non_null(strstr(error.text, "model.vocab"));
    assert_int_equal(ls_config_require(&config, "data.train", &error), LS_ECONFIG);
    assert_non_null(strstr(error.text, "run.yaml: data.train is not set"));
}

/* ---- writing and comparing ------------------------------------------------------------------ */

CASE(test_written_configuration_reads_back)
{
    struct ls_config config, again;
    struct ls_error error = {0};
    expect_good(&config, "model: {preset: llama-1b, dropout: 0.1}\noptim: {lr: 0.00012345678901}\n"
                         "sample: {prompt: \"a\\n\\t\\\"b\\\\ \\x7f \\u00e9 #: -\"}\n"
                         "data: {train: 'dir/x: y', sequence: 8192}\n");
    char path[] = "/tmp/lockstep-test-config-XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    close(descriptor);
    assert_ok(ls_config_save(&config, path, &error), error);
    ls_config_defaults(&again);
    if (ls_config_load_file(&again, path, &error) || ls_config_resolve(&again, 257, &error))
        fail_msg("%s", error.text);
    unlink(path);
    char differences[256];
    if (ls_config_recipe_diff(&config, &again, differences, sizeof differences))
        fail_msg("%s", differences);
    size_t count;
    const struct ls_config_key *keys = ls_config_keys(&count);
    for (size_t i = 0; i < count; i++) {
        char a[4 * LS_CONFIG_TEXT_BYTES], b[4 * LS_CONFIG_TEXT_BYTES];
        ls_config_value(&config, &keys[i], a, sizeof a);
        ls_config_value(&again, &keys[i], b, sizeof b);
        assert_string_equal(a, b);
    }
    assert_memory_equal(&config.model, &again.model, sizeof config.model);
}

/* Of many sources too, as near to the longest as they come. */
CASE(test_a_long_blend_reads_back)
{
    struct ls_config config, other, again;
    struct ls_error error = {0};
    char text[LS_CONFIG_BLEND_BYTES] = "data.blend=", differences[640], *written;
    for (int i = 0; i < 170; i++)
        ls_string_add(text, sizeof text, "", "1 /corpora/%052d ", i);
    expect_good(&config, TINY);
    expect_good(&other, TINY);
    assert_ok(ls_config_set(&config, text, &error), error);
    memcpy(strstr(text, "1 /corpora/0000000000000000000000000000000000000000000000000150"), "3", 1);
    assert_ok(ls_config_set(&other, text, &error), error);
    assert_true(strlen(config.data.blend) > (12 << 10));
    assert_ok(ls_config_text(&config, &written, &error), error);
    ls_config_defaults(&again);
    assert_ok(ls_config_load_text(&again, "a.yaml", written, strlen(written), &error), error);
    assert_string_equal(again.data.blend, config.data.blend);
    free(written);
    assert_int_equal(ls_config_recipe_diff(&config, &other, differences, sizeof differences), 1);
    if (!strstr(differences, "0150\", weight: 1}") || !strstr(differences, "0150\", weight: 3}"))
        fail_msg("%s", differences);
}

/* A number, or a word in its place. */
CASE(test_a_number_or_auto)
{
    static const struct {
        const char *text, *written;
        int64_t value;
    } cases[] = {{"auto", "auto", LS_CONFIG_AUTO},
                 {"\"auto\"", "auto", LS_CONFIG_AUTO},
                 {"0", "0", 0},
                 {"7", "7", 7}};
    static const char *const bad[] = {"-1", "often", "\"7\"", "1.5"};
    const struct ls_config_key *key = ls_config_key_of("snapshot.every");
    struct ls_config config;
    struct ls_error error = {0};
    char text[64], written[4 * LS_CONFIG_TEXT_BYTES];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, "snapshot: {every: %s}\n", cases[i].text);
        if (load(&config, text, &error))
            fail_msg("%s: %s", text, error.text);
        assert_int_equal(config.snapshot.every, cases[i].value);
        ls_config_value(&config, key, written, sizeof written);
        assert_string_equal(written, cases[i].written);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(text, sizeof text, "snapshot: {every: %s}\n", bad[i]);
        expect_refused(text, "auto or a whole number of at least 0", NULL);
    }
}

/* A recipe has the last component of a path. A run's config.yaml has the same one, whatever was
 * given, and although the run lies in that folder. */
CASE_WITH(test_a_folder_keeps_its_name, scratch_setup, scratch_teardown)
{
    static const char *const given[] = {"%s/stores", "%s/stores/", "%s/stores//", "%s/stores/.",
                                        "%s/stores/./"};
    char file[300], first[512], again[512];
    struct ls_error error = {0};
    assert_int_equal(mkdir(scratch_path(*state, "stores"), 0777), 0);
    assert_int_equal(mkdir(scratch_path(*state, "stores/run"), 0777), 0);
    snprintf(file, sizeof file, "%s", scratch_path(*state, "stores/run/config.yaml"));
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        struct ls_config config, read;
        const struct ls_config_key *key = ls_config_key_of("data.train");
        ls_config_defaults(&config);
        snprintf(config.data.train, sizeof config.data.train, given[i], (const char *)*state);
        assert_ok(ls_config_save_portable(&config, file, &error), error);
        ls_config_defaults(&read);
        assert_ok(ls_config_load_file(&read, file, &error), error);
        ls_config_compared_value(&config, key, first, sizeof first);
        ls_config_compared_value(&read, key, again, sizeof again);
        assert_string_equal(first, i < 3 ? "\"stores\"" : "\".\"");
        assert_string_equal(again, first);
    }
}

CASE_WITH(test_the_name_of_a_run, scratch_setup, scratch_teardown)
{
    static const char *const outs[] = {"%s/run", "%s/run//", "%s/run/.", "%s/run/./",
                                       "%s/run/a/.."};
    char out[300];
    assert_int_equal(mkdir(scratch_path(*state, "run"), 0777), 0);
    assert_int_equal(mkdir(scratch_path(*state, "run/a"), 0777), 0);
    for (size_t i = 0; i < sizeof outs / sizeof *outs; i++) {
        snprintf(out, sizeof out, outs[i], (char *)*state);
        assert_string_equal(ls_run_name(out).text, "run");
    }
    assert_string_equal(ls_run_name("/no/such/.").text, ".");
}

/* ${here} is the file's folder; of alternatives the first that exists is taken, else the last. */
CASE_WITH(test_paths_that_go_with_the_file, scratch_setup, scratch_teardown)
{
    struct ls_config config, again;
    struct ls_error error = {0};
    char folder[256], file[300], text[1024], expected[600];
    snprintf(folder, sizeof folder, "%s", (const char *)*state);
    snprintf(file, sizeof file, "%s/run/config.yaml", folder);
    assert_int_equal(mkdir(scratch_path(*state, "run"), 0777), 0);
    scratch_write(scratch_path(*state, "a.idx"), "x", 1);
    scratch_write(scratch_path(*state, "b"), "x", 1);
    snprintf(text, sizeof text,
             TINY "data: {train: '${here}/../a,u16:${here}/../b|/no/a,u16:/no/b', "
                  "valid: '${here}/../none|/no/where', tokenizer: 'no|here'}\n"
                  "train: {out: '${here}', resume: auto}\n");
    ls_config_defaults(&config);
    assert_ok(ls_config_load_text(&config, file, text, strlen(text), &error), error);
    snprintf(expected, sizeof expected, "%s/run/../a,u16:%s/run/../b", folder, folder);
    assert_string_equal(config.data.train, expected);
    assert_string_equal(config.data.valid, "/no/where");
    assert_string_equal(config.data.tokenizer, "no|here");
    snprintf(expected, sizeof expected, "%s/run", folder);
    assert_string_equal(config.train.out, expected);
    /* Written for the run's folder, and read after that was renamed. */
    assert_ok(ls_config_save_portable(&config, file, &error), error);
    char *written = scratch_read(file, NULL);
    snprintf(expected, sizeof expected, "\"${here}/../a,u16:${here}/../b|%s/a,u16:%s/b\"", folder,
             folder);
    if (!strstr(written, expected) || !strstr(written, "out: \"${here}\"") ||
        !strstr(written, "resume: \"auto\"") || !strstr(written, "tokenizer: \"no|here\""))
        fail_msg("expected %s in:\n%s", expected, written);
    free(written);
    assert_int_equal(rename(scratch_path(*state, "run"), scratch_path(*state, "moved")), 0);
    snprintf(file, sizeof file, "%s/moved/config.yaml", folder);
    ls_config_defaults(&again);
    assert_int_equal(ls_config_load_file(&again, file, &error), LS_OK);
    snprintf(expected, sizeof expected, "%s/moved", folder);
    assert_string_equal(again.train.out, expected);
    /* What lies elsewhere stays; a store behind it in the list is found as by itself. */
    snprintf(again.data.train, sizeof again.data.train, "http://host/a,%s/b", folder);
    assert_int_equal(ls_config_save_portable(&again, file, &error), LS_OK);
    written = scratch_read(file, NULL);
    snprintf(expected, sizeof expected, "\"http://host/a,${here}/../b|http://host/a,%s/b\"",
             folder);
    if (!strstr(written, expected))
        fail_msg("expected %s in:\n%s", expected, written);
    free(written);
    ls_config_defaults(&again);
    assert_int_equal(ls_config_load_file(&again, file, &error), LS_OK);
    snprintf(expected, sizeof expected, "http://host/a,%s/moved/../b", folder);
    assert_string_equal(again.data.train, expected);
    /* A folder so deep that the path has no room. */
    memset(text, 'd', 508);
    strcpy(text + 508, "/c.yaml");
    static const char deep[] = "train: {out: '${here}/longer'}\n";
    assert_int_equal(ls_config_load_text(&again, text, deep, sizeof deep - 1, &error), LS_ECONFIG);
    assert_non_null(strstr(error.text, "train.out: the path is longer"));
}

/* Entries of one text are one source; records name each once, and tell apart those called alike. */
CASE(test_sources_of_a_blend)
{
    static const struct {
        const char *source, *name;
        int index;
    } expected[] = {{"a/x", "x", 0}, {"b/x", "x (2)", 1}, {"a/x", "x", 0},
                    {"c", "c", 2},   {"d/x", "x (3)", 3}, {"b/x", "x (2)", 1}};
    struct ls_config config;
    struct ls_config_source *entries;
    struct ls_error error = {0};
    char text[512] = "data.blend=", name[LS_CONFIG_TEXT_BYTES];
    int count;
    expect_good(&config, TINY);
    assert_int_equal(ls_config_source_count(&config), 1);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "1 %s ", expected[i].source);
    assert_int_equal(ls_config_set(&config, text, &error), LS_OK);
    assert_int_equal(ls_config_sources(&config, &entries, &count, &error), LS_OK);
    assert_int_equal(count, sizeof expected / sizeof *expected);
    for (int i = 0; i < count; i++) {
        ls_config_source_named(entries, i, name);
        assert_string_equal(name, expected[i].name);
        assert_int_equal(entries[i].index, expected[i].index);
    }
    assert_int_equal(ls_config_source_count(&config), 4);
    free(entries);
}

CASE(test_save_where_nothing_can_be_written)
{
    struct ls_config config;
    struct ls_error error = {0};
    ls_config_defaults(&config);
    assert_int_equal(ls_config_save(&config, "/no/such/folder/config.yaml", &error), LS_EIO);
    FILE *full = fopen("/dev/full", "w");
    if (!full)
        skip();
    assert_int_equal(ls_config_write(&config, full, &error), LS_ENOSPC);
    fclose(full);
}

CASE(test_recipe_digest_sees_the_recipe_only)
{
    struct ls_config base, other;
    struct ls_digest a, b;
    char text[256];
    expect_good(&base, TINY "data: {train: 'x/a,y/z/b'}\n");
    expect_good(&other, TINY "data: {train: 'a,q/b'}\n");
    assert_int_equal(ls_config_recipe_diff(&base, &other, text, sizeof text), 0);
    expect_good(&other, TINY "data: {train: 'b'}\n");
    assert_int_equal(ls_config_recipe_diff(&base, &other, text, sizeof text), 1);
    assert_string_equal(text, "data.train: \"a,b\" here, \"b\" there");
    expect_good(&base, TINY "data: {train: 'u16:x/a,u16:b'}\n");
    expect_good(&other, TINY "data: {train: 'u16:a,u16:x/y/b'}\n");
    assert_int_equal(ls_config_recipe_diff(&base, &other, text, sizeof text), 0);
    expect_good(&base, TINY "data: {train: 'x/a\"b/../a,y\"/\\z/b'}\n");
    expect_good(&other, TINY "data: {train: 'a,b'}\n");
    if (ls_config_recipe_diff(&base, &other, text, sizeof text))
        fail_msg("%s", text);
    expect_good(&base, TINY "data: {train: here/corpus}\n");
    ls_config_recipe_digest(&base, &a);
    expect_good(&other, TINY "data: {train: there/corpus}\nparallel: {dp: 4, threads: 2}\n"
                             "batch: {micro: 2}\ncomm: {bucket_mb: 1}\ntrain: {out: x}\n"
                             "numerics: {isa: plain}\n");
    ls_config_recipe_digest(&other, &b);
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(ls_config_recipe_diff(&base, &other, text, sizeof text), 0);
    expect_good(&other, TINY "data: {train: here/corpus}\noptim: {lr: 1e-3}\nbatch: {global: 4}\n");
    ls_config_recipe_digest(&other, &b);
    assert_memory_not_equal(&a, &b, sizeof a);
    assert_int_equal(ls_config_recipe_diff(&base, &other, text, sizeof text), 2);
    assert_string_equal(text, "batch.global: 8 here, 4 there; optim.lr: 0.0006 here, 0.001 there");
}

SUITE_MAIN(NULL, NULL)
