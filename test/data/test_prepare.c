/* From texts to a token store: what a document is, what is held out, what is refused. */
#include "../support/extent.h"
#include "../support/told.h"
#include "../support/wrapped.h"
#include "support.h"

#include <lockstep/base/file.h>
#include <lockstep/data/store_tools.h>

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum { INPUTS_MAX = 32 };
static char output[300];
static char input_paths[INPUTS_MAX][300];
static int inputs_made;

/* The folders in/ and out/. */
static int setup(void **state)
{
    char path[300];
    support_setup(state);
    snprintf(path, sizeof path, "%s/in", support_folder);
    mkdir(path, 0777);
    inputs_made = 0;
    snprintf(output, sizeof output, "%s/out/c", support_folder);
    snprintf(path, sizeof path, "%s/out", support_folder);
    return mkdir(path, 0777);
}

/* Writes in/NAME; its path lives as long as the test. */
static const char *input(const char *name, const char *text)
{
    assert_in_range(inputs_made, 0, INPUTS_MAX - 1);
    char *path = input_paths[inputs_made++];
    snprintf(path, sizeof input_paths[0], "%s/in/%s", support_folder, name);
    scratch_write(path, text, strlen(text));
    return path;
}

static struct ls_prepare_config config_of(const char *const *inputs, int count)
{
    return (struct ls_prepare_config){.inputs = inputs,
                                      .inputs_count = count,
                                      .output = output,
                                      .tokenizer = "byte",
                                      .append_eod = true,
                                      .workers = 2};
}

/* The store's text: end-of-document is '|'. */
static void store_text(const char *store_path, char *text, size_t size)
{
    struct ls_error error = {0};
    struct ls_token_store *store;
    assert_ok(ls_token_store_open(store_path, &store, &error), error);
    int64_t tokens = ls_token_store_tokens(store);
    int32_t *ids = malloc(((size_t)tokens + 1) * sizeof *ids);
    assert_ok(ls_token_store_read(store, 0, tokens, 257, ids, &error), error);
    assert_true((size_t)tokens < size);
    for (int64_t i = 0; i < tokens; i++)
        text[i] = ids[i] == 256 ? '|' : (char)ids[i];
    text[tokens] = 0;
    free(ids);
    ls_token_store_close(store);
}

static void assert_train(const struct ls_prepare_config *config, const char *expected)
{
    struct ls_error error = {0};
    struct ls_prepare_report report;
    char text[4096];
    assert_ok(ls_data_prepare(config, &report, &error), error);
    store_text(support_path("out/c_train"), text, sizeof text);
    assert_string_equal(text, expected);
}

static void assert_refused(const struct ls_prepare_config *config, int code, const char *says)
{
    struct ls_error error = {0};
    struct ls_prepare_report report;
    char names[2048];
    int status = ls_data_prepare(config, &report, &error);
    if (status != code)
        fail_msg("%s (%s), expected %s", ls_status_name(status), error.text, ls_status_name(code));
    assert_text_contains(error.text, says);
    support_list(support_path("out"), names);
    assert_string_equal(names, "");
}

/* ---- what is read --------------------------------------------------------------------------- */

CASE_WITH(test_texts_are_documents, setup, support_teardown)
{
    const char *inputs[] = {input("b.txt", "second"), input("a.txt", "first\n"), input("e.txt", ""),
                            input("x.bin", "\xff\x80")};
    struct ls_prepare_config config = config_of(inputs, 4);
    assert_train(&config, "second|first\n|\xff\x80|");
    config.append_eod = false;
    assert_train(&config, "secondfirst\n\xff\x80");
    char names[2048];
    support_list(support_path("out"), names);
    assert_string_equal(names, "c.tokenizer c_train.bin c_train.idx c_train.sums ");
    struct ls_text spec = support_read(support_path("out/c.tokenizer"));
    assert_memory_equal(spec.bytes, "byte\n", 5);
    assert_int_equal(spec.count, 5 + 32 + 1); /* a line more, the digest */
    ls_text_release(&spec);

    struct ls_error error = {0};
    struct ls_tokenizer *tokenizer;
    static const char *const stores[] = {"out/c", "out/c_train", "out/c_valid.bin",
                                         "out/c_train.idx"};
    for (int i = 0; i < 4; i++) {
        assert_ok(ls_tokenizer_new_for_store(support_path(stores[i]), &tokenizer, &error), error);
        assert_string_equal(ls_tokenizer_name(tokenizer), "byte");
        ls_tokenizer_free(tokenizer);
    }
    assert_ok(ls_tokenizer_new_for_store(support_path("out/d"), &tokenizer, &error), error);
    assert_null(tokenizer);
}

/* A mark for what has no name of its own, such as a pipe. */
CASE_WITH(test_a_mark_says_what_is_jsonl, setup, support_teardown)
{
    char marked[320], absent[320], in[320];
    snprintf(marked, sizeof marked, "jsonl:%s",
             input("lines", "{\"text\":\"a\"}\n{\"text\":\"b\"}"));
    const char *inputs[] = {marked};
    struct ls_prepare_config config = config_of(inputs, 1);
    assert_train(&config, "a|b|");
    snprintf(absent, sizeof absent, "jsonl:%s/in/no", support_folder);
    snprintf(in, sizeof in, "jsonl:%s/in", support_folder);
    struct ls_error error = {0};
    struct ls_prepare_report report;
    inputs[0] = absent;
    assert_int_equal(ls_data_prepare(&config, &report, &error), LS_EIO);
    inputs[0] = in;
    assert_int_equal(ls_data_prepare(&config, &report, &error), LS_EINVAL);
    assert_text_contains(error.text, "expected a file, not a folder");
}

CASE_WITH(test_folders_are_sorted_and_deep, setup, support_teardown)
{
    mkdir(support_path("in/B"), 0777);
    mkdir(support_path("in/a"), 0777);
    mkdir(support_path("in/empty"), 0777);
    input("z.txt", "z");
    input("a/2.txt", "a2");
    input("a/10.txt", "a10");
    input("B/q.txt", "Bq");
    input(".hidden", "no");
    assert_int_equal(symlink("..", support_path("in/a/up")), 0);
    assert_int_equal(symlink("../B", support_path("in/a/side")), 0);
    char in[300];
    snprintf(in, sizeof in, "%s/in", support_folder);
    const char *inputs[] = {in};
    struct ls_prepare_config config = config_of(inputs, 1);
    assert_train(&config, "Bq|a10|a2|Bq|z|");
}

static const char *pack_gzip(const char *name, const char *text, size_t cut)
{
    const char *path = input(name, "");
    gzFile file = gzopen(path, "wb");
    gzwrite(file, text, (unsigned)strlen(text));
    gzclose(file);
    struct ls_text packed = support_read(path);
    scratch_write(path, packed.bytes, packed.count - cut);
    ls_text_release(&packed);
    return path;
}

static const char *pack_zstd(const char *name, const char *text, size_t cut)
{
    char packed[4096];
    size_t bytes = ZSTD_compress(packed, sizeof packed, text, strlen(text), 3);
    const char *path = input(name, "");
    scratch_write(path, packed, bytes - cut);
    return path;
}

static const char jsonl[] =
    "{\"text\":\"one\\n\",\"id\":1}\n\n  \t\r\n{\"id\":2,\"text\":\"t\\u0000w\\u00f6\"}\r\n"
    "{\"text\":\"\"}\n{\"text\":\"last\"}";

CASE_WITH(test_jsonl_plain_and_packed, setup, support_teardown)
{
    const char *inputs[] = {input("a.jsonl", jsonl), pack_gzip("b.jsonl.gz", jsonl, 0),
                            pack_zstd("c.jsonl.zst", jsonl, 0), pack_gzip("d.txt.gz", "gzip", 0),
                            pack_zstd("e.txt.zst", "zstd", 0)};
    struct ls_prepare_config config = config_of(inputs, 5);
    struct ls_error error = {0};
    struct ls_prepare_report report;
    told_clear();
    assert_ok(ls_data_prepare(&config, &report, &error), error);
    told_expect("MB read", 0);
    assert_int_equal(report.train.documents, 11);
    assert_int_equal(report.text_bytes, 3 * 13 + 8);
    assert_int_equal(report.train.tokens, 3 * 13 + 8 + 11);
    struct ls_token_store *store;
    int32_t ids[16];
    assert_ok(ls_token_store_open(support_path("out/c_train"), &store, &error), error);
    assert_ok(ls_token_store_read(store, 0, 16, 257, ids, &error), error);
    static const int32_t expected[] = {'o',  'n',  'e', '\n', 256, 't', 0,   'w',
                                       0xc3, 0xb6, 256, 'l',  'a', 's', 't', 256};
    for (int i = 0; i < 16; i++)
        assert_int_equal(ids[i], expected[i]);
    ls_token_store_close(store);
    const char *titled[] = {input("t.jsonl", "{\"title\":\"T\",\"text\":\"no\"}\n")};
    config.inputs = titled;
    config.inputs_count = 1;
    config.json_key = "title";
    assert_train(&config, "T|");
}

/* Members that follow one another are one text, and padding is none of it; a member whose head is
 * damaged is not passed over. */
CASE_WITH(test_members_of_gzip, setup, support_teardown)
{
    struct ls_text one = support_read(pack_gzip("a.gz", "one\n", 0));
    struct ls_text none = support_read(pack_gzip("a.gz", "", 0));
    char all[200] = {0};
    const size_t second = none.count + one.count + 5, bytes = second + one.count + 5;
    assert_true(bytes <= sizeof all);
    memcpy(all, none.bytes, none.count);
    memcpy(all + none.count, one.bytes, one.count);
    memcpy(all + second, one.bytes, one.count);
    const char *inputs[] = {support_path("in/a.gz")};
    struct ls_prepare_config config = config_of(inputs, 1);
    all[second] ^= 1;
    scratch_write(inputs[0], all, bytes);
    assert_refused(&config, LS_EDATA, "a.gz: gzip data damaged: what follows a whole member");
    all[second] ^= 1;
    scratch_write(inputs[0], all, bytes);
    assert_train(&config, "one\none\n|");
    ls_text_release(&one);
    ls_text_release(&none);
}

/* As of zstd --long=28: a window of 256 MiB. */
CASE_WITH(test_a_long_window_of_zstd, setup, support_teardown)
{
    static const char frame[] = "\x28\xb5\x2f\xfd\x00\x90\x21\x00\x00long";
    const char *inputs[] = {input("a.zst", "")};
    struct ls_prepare_config config = config_of(inputs, 1);
    scratch_write(inputs[0], frame, sizeof frame - 1);
    assert_train(&config, "long|");
}

/* ---- train and validation ------------------------------------------------------------------- */

CASE_WITH(test_documents_are_held_out_evenly, setup, support_teardown)
{
    char lines[2000] = "", train[200], held_out[200];
    for (int i = 0; i < 26; i++)
        sprintf(lines + strlen(lines), "{\"text\":\"%c\"}\n{\"text\":\"\"}\n", 'a' + i);
    const char *inputs[] = {input("a.jsonl", lines)};
    struct ls_prepare_config config = config_of(inputs, 1);
    struct ls_error error = {0};
    struct ls_prepare_report report;
    config.validation = 0.2;
    assert_ok(ls_data_prepare(&config, &report, &error), error);
    assert_int_equal(report.validation.documents, 5);
    assert_int_equal(report.train.documents, 21);
    store_text(support_path("out/c_train"), train, sizeof train);
    store_text(support_path("out/c_valid"), held_out, sizeof held_out);
    assert_string_equal(held_out, "e|j|o|t|y|");
    assert_string_equal(train, "a|b|c|d|f|g|h|i|k|l|m|n|p|q|r|s|u|v|w|x|z|");
    /* Without a share, an older validation store does not stay beside the new corpus. */
    config.validation = 0;
    assert_ok(ls_data_prepare(&config, &report, &error), error);
    assert_int_equal(access(support_path("out/c_valid.idx"), F_OK), -1);
    assert_int_equal(access(support_path("out/c_valid.bin"), F_OK), -1);
}

static void check_tail(const char *const *texts, int count, double validation, const char *train,
                       const char *held_out)
{
    const char *inputs[4];
    for (int i = 0; i < count; i++) {
        char name[] = {(char)('0' + i), 0};
        inputs[i] = input(name, texts[i]);
    }
    struct ls_prepare_config config = config_of(inputs, count);
    struct ls_error error = {0};
    struct ls_prepare_report report;
    char text[4096];
    config.validation = validation;
    assert_ok(ls_data_prepare(&config, &report, &error), error);
    store_text(support_path("out/c_train"), text, sizeof text);
    assert_string_equal(text, train);
    assert_int_equal(report.train.tokens, strlen(text));
    store_text(support_path("out/c_valid"), text, sizeof text);
    assert_string_equal(text, held_out);
    assert_int_equal(report.validation.tokens, strlen(text));
}

CASE_WITH(test_tail_of_few_documents_is_held_out, setup, support_teardown)
{
    check_tail((const char *[]){"aaaa\nbbbb\ncccc\ndddd\n"}, 1, 0.3, "aaaa\nbbbb\ncccc\n|",
               "dddd\n|");
    check_tail((const char *[]){"aaaa\nbbbb\ncccc\ndddd\n"}, 1, 0.4, "aaaa\nbbbb\n|",
               "cccc\ndddd\n|");
    check_tail((const char *[]){"aaaabbbbccccdddd"}, 1, 0.25, "aaaabbbbccccd|", "ddd|");
    check_tail((const char *[]){"aaaa\nbb", "cc\ndd", "ee"}, 3, 0.3, "aaaa\nbb|cc\n|", "dd|ee|");
    check_tail((const char *[]){"aaaaaaaaaaaa", "b"}, 2, 0.2, "aaaaaaaaaaaa|", "b|");
    check_tail((const char *[]){"ab"}, 1, 0.1, "a|", "b|");
    const char *one[] = {input("0", "a")};
    struct ls_prepare_config config = config_of(one, 1);
    config.validation = 0.5;
    config.append_eod = false;
    assert_true(ls_directory_remove(support_path("out")));
    mkdir(support_path("out"), 0777);
    assert_refused(&config, LS_EDATA, "too little to hold out");
}

/* ---- long documents and many workers -------------------------------------------------------- */

/* Three megabytes of words of all lengths in one document, cut into jobs, give the ids of the
 * whole.
 */
CASE_WITH(test_long_document_and_any_number_of_workers, setup, support_teardown)
{
    enum { BYTES = 2 << 20 };
    char *text = malloc(BYTES);
    for (uint32_t i = 0; i < BYTES; i += 4) {
        uint32_t random[4];
        ls_philox(ls_philox_key_of(3, "document"), (uint32_t[4]){i, 0, 0, 0}, random);
        for (int k = 0; k < 4; k++)
            text[i + (uint32_t)k] = "the the \xc3\xa9\n =9"[random[k] % 14];
    }
    memset(text + BYTES / 4, 'a', 9 << 17); /* no place to cut for longer than a job */
    const char *inputs[] = {input("long.txt", "")};
    scratch_write(inputs[0], text, BYTES);
    struct ls_prepare_config config = config_of(inputs, 1);
    config.tokenizer = "test/data/golden";
    struct ls_error error = {0};
    struct ls_prepare_report report;
    struct ls_tokenizer *tokenizer;
    struct ls_encoder *encoder;
    struct ls_token_list whole = {0};
    assert_ok(ls_tokenizer_new("test/data/golden", &tokenizer, &error), error);
    assert_ok(ls_encoder_new(tokenizer, &encoder, &error), error);
    assert_ok(ls_encode(encoder, text, BYTES, &whole, &error), error);
    int32_t *ids = malloc((size_t)whole.count * sizeof *ids);
    static const int workers[] = {1, 4};
    for (int w = 0; w < 2; w++) {
        config.workers = workers[w];
        assert_ok(ls_data_prepare(&config, &report, &error), error);
        assert_int_equal(report.train.tokens, whole.count + 1);
        assert_int_equal(report.text_bytes, BYTES);
        struct ls_token_store *store;
        assert_ok(ls_token_store_open(support_path("out/c_train"), &store, &error), error);
        assert_ok(ls_token_store_read(store, 0, whole.count, 10000, ids, &error), error);
        assert_memory_equal(ids, whole.ids, (size_t)whole.count * sizeof *ids);
        ls_token_store_close(store);
    }
    free(ids);
    ls_token_list_release(&whole);
    ls_encoder_free(encoder);
    ls_tokenizer_free(tokenizer);
    free(text);
}

/* The ids of the store, checked to have `begins` times bos, each where a document begins, and eod
 * behind every document. */
static void check_around(const struct ls_prepare_config *config, int begins, int documents)
{
    struct ls_error error = {0};
    struct ls_prepare_report report;
    struct ls_token_store *store;
    struct ls_tokenizer *tokenizer;
    assert_ok(ls_data_prepare(config, &report, &error), error);
    assert_ok(ls_tokenizer_new(config->tokenizer, &tokenizer, &error), error);
    int32_t bos = ls_tokenizer_id(tokenizer, "<|begin_of_text|>"),
            eod = ls_tokenizer_eod(tokenizer);
    assert_ok(ls_token_store_open(support_path("out/c_train"), &store, &error), error);
    int64_t count = ls_token_store_tokens(store);
    int32_t *ids = malloc((size_t)count * sizeof *ids);
    assert_ok(ls_token_store_read(store, 0, count, 10000, ids, &error), error);
    for (int64_t i = 0; i < count; i++) {
        bool first = i == 0 || ids[i - 1] == eod;
        assert_int_equal(ids[i] == bos, begins > 0 && first);
        begins -= ids[i] == bos;
        documents -= ids[i] == eod;
    }
    assert_int_equal(begins, 0);
    assert_int_equal(documents, 0);
    assert_int_equal(ids[count - 1], eod);
    free(ids);
    ls_token_store_close(store);
    ls_tokenizer_free(tokenizer);
}

/* What the tokenizer's post-processor and tokenizer_config.json say, once a document, however many
 * pieces it is encoded in. */
CASE_WITH(test_tokens_around_documents, setup, support_teardown)
{
    enum { BYTES = 3 << 20 };
    char *text = malloc(BYTES), spec[300];
    for (int i = 0; i < BYTES; i++)
        text[i] = "word by word\n"[i % 13];
    const char *inputs[] = {input("a.txt", "short"), input("b.txt", ""), input("c.txt", "")};
    scratch_write(inputs[1], text, BYTES);
    struct ls_prepare_config config = config_of(inputs, 3);
    config.tokenizer = "test/data/golden/families/llama3.json";
    check_around(&config, 0, 2);
    config.around = true;
    check_around(&config, 2, 2); /* and nothing around an empty one */

    static const char settings[] = "{\"eos_token\": \"<|end_of_text|>\", \"add_eos_token\": true}";
    struct ls_text file = support_read(config.tokenizer);
    snprintf(spec, sizeof spec, "%s", support_path("in/tokenizer.json"));
    scratch_write(spec, file.bytes, file.count);
    scratch_write(support_path("in/tokenizer_config.json"), settings, sizeof settings - 1);
    ls_text_release(&file);
    snprintf(spec, sizeof spec, "%s", support_path("in"));
    config.tokenizer = spec;
    check_around(&config, 2, 2); /* eos ends the document too, and stands there once */
    config.append_eod = false;
    config.inputs_count = 2;
    check_around(&config, 2, 2);
    free(text);
}

/* Of several tokens behind a text the last one ends the document, and the others stand before it.
 */
CASE_WITH(test_tokens_before_the_end_of_a_document, setup, support_teardown)
{
    static const char text[] = "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}";
    static const char more[] = ",{\"SpecialToken\":{\"id\":\"<|begin_of_text|>\"}}";
    static const char settings[] = "{\"eos_token\": \"<|end_of_text|>\", \"add_eos_token\": true}";
    const char *inputs[] = {input("a.txt", "short")};
    struct ls_prepare_config config = config_of(inputs, 1);
    struct ls_text file = support_read("test/data/golden/families/llama3.json");
    const char *at = strstr(file.bytes, text) + sizeof text - 1;
    FILE *edited = fopen(support_path("in/tokenizer.json"), "we");
    fprintf(edited, "%.*s%s%s", (int)(at - file.bytes), file.bytes, more, at);
    fclose(edited);
    ls_text_release(&file);
    scratch_write(support_path("in/tokenizer_config.json"), settings, sizeof settings - 1);
    char spec[300];
    snprintf(spec, sizeof spec, "%s", support_path("in"));
    config.tokenizer = spec;
    config.around = true;
    for (int eod = 0; eod < 2; eod++) {
        struct ls_error error = {0};
        struct ls_prepare_report report;
        struct ls_token_store *store;
        struct ls_detokenize_report said;
        char lines[300];
        int32_t ids[2];
        config.append_eod = eod;
        assert_ok(ls_data_prepare(&config, &report, &error), error);
        assert_ok(ls_token_store_open(support_path("out/c_train"), &store, &error), error);
        int64_t tokens = ls_token_store_tokens(store);
        assert_ok(ls_token_store_read(store, tokens - 2, 2, 1000, ids, &error), error);
        assert_int_equal(ids[0], 560); /* <|begin_of_text|> */
        assert_int_equal(ids[1], 561); /* <|end_of_text|> */
        ls_token_store_close(store);
        snprintf(lines, sizeof lines, "%s", support_path("out/text.jsonl"));
        const struct ls_store_job job = {.output = lines, .workers = 1};
        assert_ok(ls_store_detokenize(support_path("out/c_train"), NULL, NULL, &job, &said, &error),
                  error);
        file = support_read(lines);
        assert_string_equal(file.bytes, "{\"text\": \"short\"}\n");
        ls_text_release(&file);
    }
}

/* Two stores are of one tokenizer if its files hold the same bytes, wherever they lie. */
CASE_WITH(test_stores_of_two_tokenizers, setup, support_teardown)
{
    const char *inputs[] = {input("a.txt", "short")};
    struct ls_prepare_config config = config_of(inputs, 1);
    struct ls_prepare_report report;
    struct ls_error error = {0};
    struct ls_tokenizer *byte;
    char copy[300], made[3][300], stores[1000];
    struct ls_text file = support_read("test/data/golden/families/llama3.json");
    snprintf(copy, sizeof copy, "%s", support_path("in/copy.json"));
    scratch_write(copy, file.bytes, file.count);
    ls_text_release(&file);
    const char *const specs[] = {"test/data/golden/families/llama3.json", copy, "byte"};
    for (int i = 0; i < 3; i++) {
        char name[20];
        snprintf(name, sizeof name, "out/s%d", i);
        snprintf(made[i], sizeof made[i], "%s", support_path(name));
        config.output = made[i];
        config.tokenizer = specs[i];
        assert_ok(ls_data_prepare(&config, &report, &error), error);
    }
    snprintf(stores, sizeof stores, "%s_train,%s_train.bin,nowhere", made[0], made[1]);
    assert_ok(ls_tokenizer_stores_check(NULL, stores, &error), error);
    snprintf(stores, sizeof stores, "%s_train,%s_train,%s_train", made[0], made[1], made[2]);
    assert_int_equal(ls_tokenizer_stores_check(NULL, stores, &error), LS_EDATA);
    assert_text_contains(error.text, "s2_train: its tokenizer is byte, and that of ");
    assert_text_contains(error.text, "expected one tokenizer for all data of a model");
    assert_ok(ls_tokenizer_new("byte", &byte, &error), error);
    assert_ok(ls_tokenizer_stores_check(byte, made[2], &error), error);
    assert_int_equal(ls_tokenizer_stores_check(byte, made[0], &error), LS_EDATA);
    assert_text_contains(error.text, "that of the model is byte");
    ls_tokenizer_free(byte);
    /* It is known by its digest: the same where it is gone, another one where it has changed. */
    assert_int_equal(remove(copy), 0);
    snprintf(stores, sizeof stores, "%s_train,%s_train", made[0], made[1]);
    assert_ok(ls_tokenizer_stores_check(NULL, stores, &error), error);
    snprintf(stores, sizeof stores, "%s_train,%s_train", made[1], made[2]);
    assert_int_equal(ls_tokenizer_stores_check(NULL, stores, &error), LS_EDATA);
    file = support_read("test/data/golden/families/qwen.json");
    scratch_write(copy, file.bytes, file.count);
    ls_text_release(&file);
    config.output = made[2];
    config.tokenizer = copy;
    assert_ok(ls_data_prepare(&config, &report, &error), error);
    assert_int_equal(ls_tokenizer_stores_check(NULL, stores, &error), LS_EDATA);
    assert_text_contains(error.text, "copy.json, changed since: expected one tokenizer");
}

/* One that was saved again, other in its bytes, is the same. */
CASE_WITH(test_a_tokenizer_saved_again, setup, support_teardown)
{
    const char *inputs[] = {input("a.txt", "short")};
    struct ls_prepare_config config = config_of(inputs, 1);
    struct ls_prepare_report report;
    struct ls_error error = {0};
    struct ls_tokenizer *again, *other;
    char copy[300], kept[300];
    struct ls_text file = support_read("test/data/golden/families/llama3.json");
    snprintf(copy, sizeof copy, "%s", support_path("in/copy.json"));
    snprintf(kept, sizeof kept, "%s", support_path("in/kept.json"));
    scratch_write(kept, file.bytes, file.count);
    size_t end = file.count;
    while (file.bytes[--end] != '}')
        ;
    file.bytes[end] = ' ';
    file.bytes[file.count - 1] = '}';
    scratch_write(copy, file.bytes, file.count);
    ls_text_release(&file);
    config.tokenizer = kept;
    assert_ok(ls_data_prepare(&config, &report, &error), error);
    char *store = strdup(support_path("out/c_train"));
    assert_ok(ls_tokenizer_new(copy, &again, &error), error);
    assert_ok(ls_tokenizer_new("test/data/golden/families/qwen.json", &other, &error), error);
    assert_ok(ls_tokenizer_stores_check(again, store, &error), error);
    assert_ok(ls_tokenizer_stores_fit(again, "data.tokenizer", store, &error), error);
    assert_int_equal(ls_tokenizer_stores_fit(other, "data.tokenizer", store, &error), LS_ECONFIG);
    assert_text_contains(error.text, "and that of data.tokenizer is ");
    /* What cannot be compared is told by its digest, where that is enough. */
    assert_int_equal(remove(kept), 0);
    assert_ok(ls_tokenizer_stores_fit(again, "data.tokenizer", store, &error), error);
    assert_int_equal(ls_tokenizer_stores_check(again, store, &error), LS_EDATA);
    ls_tokenizer_free(again);
    ls_tokenizer_free(other);
    free(store);
}

/* What is recorded for a folder with a comma in its name is its file, and no pair. */
CASE_WITH(test_a_tokenizer_in_a_folder_with_a_comma, setup, support_teardown)
{
    const char *inputs[] = {input("a.txt", "short")};
    struct ls_prepare_config config = config_of(inputs, 1);
    struct ls_prepare_report report;
    struct ls_error error = {0};
    struct ls_tokenizer *tokenizer;
    char folder[300], file[320];
    snprintf(folder, sizeof folder, "%s", support_path("in/a,b"));
    snprintf(file, sizeof file, "%s/tokenizer.json", folder);
    assert_int_equal(mkdir(folder, 0777), 0);
    struct ls_text text = support_read("test/data/golden/families/llama3.json");
    scratch_write(file, text.bytes, text.count);
    ls_text_release(&text);
    config.tokenizer = folder;
    assert_ok(ls_data_prepare(&config, &report, &error), error);
    assert_ok(ls_tokenizer_new_for_store(support_path("out/c_train"), &tokenizer, &error), error);
    assert_string_equal(ls_tokenizer_spec(tokenizer), file);
    ls_tokenizer_free(tokenizer);
}

/* ---- what is wrong is said, and nothing is left --------------------------------------------- */

static void refuse_input(const char *path, int code, const char *says)
{
    const char *inputs[] = {path};
    struct ls_prepare_config config = config_of(inputs, 1);
    assert_refused(&config, code, says);
}

/* Whoever names JSON lines otherwise would train on one document of braces. */
CASE_WITH(test_records_under_another_name, setup, support_teardown)
{
    static const char records[] = "{\"text\":\"a\", \"n\":1}\r\n{\"n\":2, \"text\":\"b\"}";
    const char *path = input("c4.json", records);
    char marked[320];
    snprintf(marked, sizeof marked, "jsonl:%s", path);
    refuse_input(path, LS_EDATA, "c4.json: its lines are JSON objects, but its name");
    refuse_input(pack_gzip("c4.json.gz", records, 0), LS_EDATA, "c4.json.gz: its lines are JSON");
    refuse_input(input("list.json", " [\n{\"n\": [1], \"text\": \"a\"}, {}]"), LS_EDATA,
                 "list.json: a list of JSON objects, of which all would be one document");
    refuse_input(input("alpaca.json", "[{\"output\": \"a\"}]"), LS_EDATA,
                 "alpaca.json: a list of JSON objects");
    refuse_input(input("code.json", "{\"content\":\"a\"}\n{\"content\":\"a\"}\n"), LS_EDATA,
                 "code.json takes it as one text");
    refuse_input(support_path("in"), LS_EDATA, "/in takes all its files as texts");
    const char *inputs[] = {marked};
    struct ls_prepare_config config = config_of(inputs, 1);
    assert_train(&config, "a|b|");
    snprintf(marked, sizeof marked, "text:%s", support_path("in/alpaca.json"));
    assert_train(&config, "[{\"output\": \"a\"}]|");
    static const char *const texts[] = {"{\"text\":\"a\"}\n",
                                        "{\"text\":\"a\"}\n{\n}",
                                        "{\"x\":\"a\"}\n{\"x\":\"a\"\n",
                                        "\n\nab",
                                        "[\"text\"]",
                                        "[{}]",
                                        "{",
                                        "[",
                                        "[a text]"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char want[64];
        inputs[0] = input("one.json", texts[i]);
        snprintf(want, sizeof want, "%s|", texts[i]);
        assert_train(&config, want);
    }
}

/* Their first line is longer than what is read at once; a text that begins as they do is whole. */
CASE_WITH(test_long_records_under_another_name, setup, support_teardown)
{
    enum { BYTES = 3 << 20 };
    static const char begin[] = "{\"text\":\"", end[] = "\"}\n{\"text\":\"b\"}\n";
    char *text = malloc(BYTES);
    assert_non_null(text);
    memset(text, 'a', BYTES);
    memcpy(text, begin, sizeof begin - 1);
    memcpy(text + BYTES - (sizeof end - 1), end, sizeof end - 1);
    const char *inputs[] = {input("long.json", "")};
    scratch_write(inputs[0], text, BYTES);
    refuse_input(inputs[0], LS_EDATA, "long.json: its lines are JSON objects");
    text[BYTES - 2] = 'a';
    scratch_write(inputs[0], text, BYTES);
    free(text);
    struct ls_prepare_config config = config_of(inputs, 1);
    struct ls_prepare_report report;
    struct ls_error error = {0};
    assert_ok(ls_data_prepare(&config, &report, &error), error);
    assert_int_equal(report.train.documents, 1);
    assert_int_equal(report.text_bytes, BYTES);
}

CASE_WITH(test_a_folder_is_no_prefix, setup, support_teardown)
{
    static const char *const folders[] = {"", ".", "..", "corpora/", "in/.", "../.."};
    const char *inputs[] = {input("a.txt", "a text")};
    struct ls_prepare_config config = config_of(inputs, 1);
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        config.output = folders[i];
        assert_refused(&config, LS_EINVAL, "a folder; expected how the files' names begin");
    }
}

/* A table is a text alone if one says so. */
CASE_WITH(test_tables, setup, support_teardown)
{
    static const char table[] = "a,b\n1,2\n";
    char marked[320], in[320];
    const char *inputs[] = {marked};
    struct ls_prepare_config config = config_of(inputs, 1);
    refuse_input(pack_gzip("a.csv.gz", table, 0), LS_EDATA, "a.csv.gz: a table, by its name");
    refuse_input(input("a.tsv", table), LS_EDATA, "a.tsv takes it as one text");
    refuse_input(input("A.CSV", table), LS_EDATA, "A.CSV: a table, by its name");
    remove(support_path("in/a.csv.gz"));
    remove(support_path("in/A.CSV"));
    snprintf(marked, sizeof marked, "%s/in", support_folder);
    assert_refused(&config, LS_EDATA, "a.tsv: a table, by its name: expected text");
    snprintf(marked, sizeof marked, "text:%s", support_path("in/a.tsv"));
    assert_train(&config, "a,b\n1,2\n|");
    input("b.jsonl", "{\"text\":\"a\"}\n{\"text\":\"b\"}\n");
    snprintf(in, sizeof in, "text:%s/in", support_folder);
    inputs[0] = in;
    assert_train(&config, "a,b\n1,2\n|{\"text\":\"a\"}\n{\"text\":\"b\"}\n|");
}

CASE_WITH(test_bad_inputs, setup, support_teardown)
{
    char tar[264];
    snprintf(tar, sizeof tar, "%257sustar", "a");
    refuse_input(input("empty.txt", ""), LS_EDATA, "empty corpus");
    refuse_input(support_path("in/absent"), LS_EIO, "absent: No such file");
    refuse_input(input("windows.txt", "\xff\xfe"
                                      "a"),
                 LS_EDATA, "windows.txt: UTF-16: expected UTF-8");
    refuse_input(input("other.txt", "\xfe\xff"), LS_EDATA, "iconv -f UTF-16 -t UTF-8");
    refuse_input(input("a.jsonl", "{\"text\":\"a\"}\n{\"text\":\n"), LS_EDATA, "a.jsonl:2: column");
    refuse_input(input("a.jsonl", "\n{\"title\":\"a\"}\n"), LS_EDATA,
                 "a.jsonl:2: no key \"text\", the record has");
    refuse_input(input("a.jsonl", "{\"text\":5}\n"), LS_EDATA, "a.jsonl:1: \"text\" is a number");
    refuse_input(input("a.jsonl", "[\"text\"]\n"), LS_EDATA, "a.jsonl:1: a list");
    refuse_input(input("a.jsonl", "{\"text\":\"\xff\"}\n"), LS_EDATA, "a.jsonl:1: column");
    refuse_input(input("a.jsonl", "{\"text\":\"\"}\n"), LS_EDATA, "empty corpus");
    refuse_input(input("a.gz", "plain"), LS_EDATA, "not gzip data");
    refuse_input(input("a.zst", "plain"), LS_EDATA, "Zstandard data damaged");
    refuse_input(input("a.zst", ""), LS_EDATA, "Zstandard data truncated");
    refuse_input(input("a.parquet", "PAR1"), LS_EDATA, "a.parquet: Parquet files are not read");
    refuse_input(input("a", "PK\3\4"), LS_EDATA, "/a: zip files are not read: expected text");
    refuse_input(pack_gzip("a.tar.gz", tar, 0), LS_EDATA, "a.tar.gz: tar files are not read");
    refuse_input(pack_zstd("a.pdf.zst", "%PDF-1.7", 0), LS_EDATA, "PDF files are not read");
    rename(pack_gzip("b.gz", "packed", 0), support_path("in/b.gzip"));
    refuse_input(support_path("in/b.gzip"), LS_EDATA, "b.gzip: gzip data, and its name");
    rename(pack_zstd("b.zst", "packed", 0), support_path("in/b.jsonl"));
    refuse_input(support_path("in/b.jsonl"), LS_EDATA, "b.jsonl: Zstandard data, and its name");
    refuse_input(pack_gzip("t.gz", "some text that is packed", 6), LS_EDATA, "t.gz: gzip data");
    refuse_input(pack_zstd("t.zst", "some text that is packed", 3), LS_EDATA, "truncated");
    remove(support_path("in/absent"));

    const char *inputs[] = {input("a.txt", "text")};
    struct ls_prepare_config config = config_of(inputs, 1);
    config.tokenizer = support_path("in");
    assert_refused(&config, LS_EDATA, "expected \"byte\"; a directory");
    input("tokenizer.model", "");
    assert_refused(&config, LS_EDATA, "SentencePiece's tokenizer.model is not read: expected");
    remove(support_path("in/tokenizer.model"));
    config = config_of(inputs, 1);
    config.validation = 1;
    assert_refused(&config, LS_EINVAL, "a validation share of 1");
    config = config_of(inputs, 1);
    config.workers = 0;
    assert_refused(&config, LS_EINVAL, "0 workers");
    config = config_of(inputs, 0);
    assert_refused(&config, LS_EINVAL, "no input");
    config = config_of(inputs, 1);
    config.output = support_path("nowhere/c");
    assert_refused(&config, LS_EIO, "nowhere/c_train.bin: cannot");
    assert_refused(&config, LS_EIO, "; there is no folder ");
    volatile int stop = 1;
    config = config_of(inputs, 1);
    config.stop = &stop;
    assert_refused(&config, LS_ESTOPPED, "stopped");
}

struct skips {
    int count;
    char last[512];
};

static void note_skip(void *user, const char *why)
{
    struct skips *skips = user;
    skips->count++;
    snprintf(skips->last, sizeof skips->last, "%s", why);
}

/* What is good is prepared as if the bad records were not there; they are counted and listed. */
CASE_WITH(test_bad_records_are_passed_over, setup, support_teardown)
{
    const char *inputs[] = {input("a.jsonl", "\xef\xbb\xbf{\"text\":\"one\"}\r\n"
                                             "{\"text\":\n"
                                             "\r\n"
                                             "{\"text\":\"t\\ud800wo\"}\n"
                                             "{\"text\":5}\n"
                                             "\xef\xbb\xbf{\"text\":\"no mark here\"}\n"
                                             "{\"text\":\"\x1b[31m\"}\n"
                                             "{\"text\":\"three\"}"),
                            input("b.jsonl", "nothing\n")};
    struct skips skips = {0};
    struct ls_prepare_config config = config_of(inputs, 2);
    struct ls_prepare_report report;
    struct ls_error error = {0};
    refuse_input(inputs[0], LS_EDATA, "a.jsonl:2: column");
    assert_int_equal(access(support_path("out/c.skipped.txt"), F_OK), -1);
    config.skip_bad = true;
    config.skipped = note_skip;
    config.user = &skips;
    assert_ok(ls_data_prepare(&config, &report, &error), error);
    char text[256];
    store_text(support_path("out/c_train"), text, sizeof text);
    assert_string_equal(text, "one|t\xef\xbf\xbdwo|three|");
    assert_int_equal(report.skipped, 5);
    assert_int_equal(skips.count, 5);
    assert_text_contains(skips.last, "b.jsonl:1: column");
    struct ls_text list = support_read(support_path("out/c.skipped.txt"));
    assert_text_contains(list.bytes, "a.jsonl:2: column");
    assert_text_contains(list.bytes, "a.jsonl:5: \"text\" is a number");
    assert_text_contains(list.bytes, "a.jsonl:6: column");
    assert_text_contains(list.bytes, "a.jsonl:7: column");
    assert_text_contains(list.bytes, "b.jsonl:1: column");
    assert_null(strchr(list.bytes, 0x1b));
    ls_text_release(&list);
    /* A list belongs to the stores beside it. */
    inputs[0] = input("good.jsonl", "{\"text\":\"good\"}");
    config.inputs_count = 1;
    assert_ok(ls_data_prepare(&config, &report, &error), error);
    assert_int_equal(report.skipped, 0);
    assert_int_equal(access(support_path("out/c.skipped.txt"), F_OK), -1);
    /* Nothing but bad records, and what is no record: both end it, and leave nothing. */
    remove(support_path("out/c_train.bin"));
    inputs[0] = input("bad.jsonl", "bad\nbad\n");
    assert_int_equal(ls_data_prepare(&config, &report, &error), LS_EDATA);
    assert_text_contains(error.text, "no text but bad records");
    inputs[0] = pack_gzip("t.jsonl.gz", "{\"text\":\"a\"}\nbad\n{\"text\":\"a long one\"}\n", 6);
    assert_int_equal(ls_data_prepare(&config, &report, &error), LS_EDATA);
    assert_text_contains(error.text, "gzip data truncated");
    assert_int_equal(access(support_path("out/c.skipped.txt"), F_OK), -1);
    assert_int_equal(access(support_path("out/c_train.bin"), F_OK), -1);
}

/* Where the list of bad records will be a folder stands by then. */
static void stand_in_the_way(void *user, const char *why)
{
    (void)user;
    (void)why;
    mkdir(support_path("out/c.skipped.txt"), 0777);
}

/* What is there stays until nothing but names is left to be given. */
CASE_WITH(test_a_list_that_cannot_be_written, setup, support_teardown)
{
    const char *inputs[] = {input("a.jsonl", "{\"text\":\"one\"}\n")};
    struct ls_prepare_config config = config_of(inputs, 1);
    struct ls_prepare_report report;
    struct ls_error error = {0};
    char text[64];
    assert_ok(ls_data_prepare(&config, &report, &error), error);
    inputs[0] = input("b.jsonl", "{\"text\":\"two\"}\nbad\n");
    config.skip_bad = true;
    config.skipped = stand_in_the_way;
    assert_int_not_equal(ls_data_prepare(&config, &report, &error), LS_OK);
    assert_text_contains(error.text, "c.skipped.txt");
    store_text(support_path("out/c_train"), text, sizeof text);
    assert_string_equal(text, "one|");
}

/* What the library does while it prepares: calls for memory, bytes moved, calls that write. */
static struct {
    atomic_long allocations, moved, writes;
    bool flushes; /* the broken twin: each line of the list goes to the disk at once */
} counted;

WRAPPED(malloc);
void *__wrap_malloc(size_t bytes)
{
    counted.allocations++;
    return __real_malloc(bytes);
}

WRAPPED(calloc);
void *__wrap_calloc(size_t count, size_t bytes)
{
    counted.allocations++;
    return __real_calloc(count, bytes);
}

WRAPPED(realloc);
void *__wrap_realloc(void *old, size_t bytes)
{
    counted.allocations++;
    return __real_realloc(old, bytes);
}

WRAPPED(memmove);
void *__wrap_memmove(void *to, const void *from, size_t bytes)
{
    counted.moved += (long)bytes;
    return __real_memmove(to, from, bytes);
}

WRAPPED(write);
ssize_t __wrap_write(int fd, const void *bytes, size_t count)
{
    counted.writes++;
    return __real_write(fd, bytes, count);
}

WRAPPED(ls_atomic_file_printf);
int __wrap_ls_atomic_file_printf(struct ls_atomic_file *file, const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    int status = ls_atomic_file_write(file, text, (size_t)length);
    if (counted.flushes)
        ls_atomic_file_start(file);
    return status;
}

struct effort {
    long allocations, moved, writes;
};

/* Of a preparation that passes over so many bad records. */
static struct effort effort_of_bad(int records)
{
    static const char bad[] = "{\"text\": 3}\n", good[] = "{\"text\": \"a\"}\n";
    size_t bytes = sizeof bad - 1;
    char *lines = malloc((size_t)records * bytes + sizeof good);
    assert_non_null(lines);
    for (int i = 0; i < records; i++)
        memcpy(lines + (size_t)i * bytes, bad, bytes);
    memcpy(lines + (size_t)records * bytes, good, sizeof good);
    const char *inputs[] = {input("a.jsonl", lines)};
    free(lines);
    struct ls_prepare_config config = config_of(inputs, 1);
    struct ls_prepare_report report;
    struct ls_error error = {0};
    config.skip_bad = true;
    struct effort before = {counted.allocations, counted.moved, counted.writes};
    assert_ok(ls_data_prepare(&config, &report, &error), error);
    assert_int_equal(report.skipped, records);
    return (struct effort){counted.allocations - before.allocations, counted.moved - before.moved,
                           counted.writes - before.writes};
}

/* A bad record costs no memory, no move of what is behind it and no call that writes: 1,000,000 of
 * them once took 13 s. */
CASE_WITH(test_bad_records_are_cheap, setup, support_teardown)
{
    enum { RECORDS = 20000, FEW = 100 };
    struct effort once = effort_of_bad(RECORDS), twice = effort_of_bad(2 * RECORDS);
    assert_in_range(twice.allocations - once.allocations + FEW, 0, 2 * FEW);
    assert_in_range(twice.moved, 0, 2 * RECORDS * 13);
    assert_in_range(twice.writes - once.writes + FEW, 0, 2 * FEW);
    counted.flushes = true;
    assert_true(effort_of_bad(RECORDS).writes > once.writes + RECORDS / 2);
    counted.flushes = false;
}

/* A line without end costs no more memory than the longest record, and is a bad record. */
CASE_WITH(test_lines_without_end, setup, support_teardown)
{
    char command[700];
    const char *inputs[] = {support_path("in/long.jsonl.gz")};
    snprintf(command, sizeof command,
             "cd %s/in; head -c 1048576 /dev/zero | tr '\\0' x | gzip -1 > some; "
             "{ echo '{\"text\":\"one\"}' | gzip; for i in $(seq 257); do cat some; done; "
             "printf '\\n{\"text\":\"two\"}\\n' | gzip; } > long.jsonl.gz",
             support_folder);
    assert_int_equal(system(command), 0);
    struct skips skips = {0};
    struct ls_prepare_config config = config_of(inputs, 1);
    struct ls_prepare_report report;
    struct ls_error error = {0};
    if (check_all()) {
        assert_int_equal(ls_data_prepare(&config, &report, &error), LS_EDATA);
        assert_text_contains(error.text, "long.jsonl.gz:2: a line of more than 256 MiB");
    }
    config.skip_bad = true;
    config.skipped = note_skip;
    config.user = &skips;
    assert_ok(ls_data_prepare(&config, &report, &error), error);
    char text[64];
    store_text(support_path("out/c_train"), text, sizeof text);
    assert_string_equal(text, "one|two|");
    assert_int_equal(report.skipped, 1);
    assert_text_contains(skips.last, "long.jsonl.gz:2: a line of more than 256 MiB");
}

/* What has its index is whole, with its mask. */
static void stores_whole(bool masked)
{
    static const char *const stores[] = {"out/c_train", "out/c_valid"};
    struct ls_error error = {0};
    for (int s = 0; s < 2; s++) {
        char index[64];
        snprintf(index, sizeof index, "%s.idx", stores[s]);
        struct ls_token_store *store;
        if (access(support_path(index), F_OK) != 0)
            continue;
        assert_ok(ls_token_store_open(support_path(stores[s]), &store, &error), error);
        assert_int_equal(ls_token_store_file(store, 0).masked, masked);
        ls_token_store_close(store);
    }
}

/* Fails the n-th of all writes, syncs and renames, for every n. Until the first rename nothing
 * appears; at any time, what has its index is whole, and no temporary is left. */
static void disk_fills(const struct ls_prepare_config *config)
{
    struct ls_error error = {0};
    struct ls_prepare_report report;
    char names[2048];
    int status = LS_ENOSPC, failures = 0, before_names = 0;
    for (; status; failures++) {
        support_fail_output(failures, ENOSPC);
        status = ls_data_prepare(config, &report, &error);
        support_fail_output(-1, 0);
        if (status) {
            if (status != LS_ENOSPC)
                fail_msg("output %d failed: %s (%s)", failures, ls_status_name(status), error.text);
            assert_text_contains(error.text, "No space left");
        }
        support_list(support_path("out"), names);
        if (strstr(names, "tmp"))
            fail_msg("left after failure %d: %s", failures, names);
        before_names += !*names;
        stores_whole(config->records != LS_RECORDS_TEXT);
        assert_true(ls_directory_remove(support_path("out")));
        mkdir(support_path("out"), 0777);
    }
    assert_true(failures > 15);
    assert_true(before_names > 10);
}

CASE_WITH(test_full_disk, setup, support_teardown)
{
    char *text = malloc(1 << 18);
    memset(text, 'x', 1 << 18);
    text[(1 << 18) - 1] = 0;
    const char *inputs[] = {input("a.txt", text), input("b.txt", "b")};
    struct ls_prepare_config config = config_of(inputs, 2);
    config.validation = 0.5;
    disk_fills(&config);
    const char *examples[] = {input("e.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n"
                                               "{\"prompt\": \"c\", \"completion\": \"d\"}\n")};
    config.inputs = examples;
    config.inputs_count = 1;
    config.records = LS_RECORDS_PAIRS;
    disk_fills(&config);
    free(text);
}

/* An older store survives every failure before the new one is complete. */
/* An input that an output would replace or remove, by its name, in a folder or by a link. */
CASE_WITH(test_an_output_is_no_input, setup, support_teardown)
{
    static const char *const endings[] = {"_train.bin", "_train.idx", "_train.sums", "_valid.bin",
                                          "_valid.idx", ".tokenizer", ".skipped.txt"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        char at[320], link[320], inside[320], names[2048], only[32];
        snprintf(at, sizeof at, "%s%s", output, endings[i]);
        snprintf(link, sizeof link, "%s/in/link-%zu", support_folder, i);
        scratch_write(at, "only copy", 9);
        assert_int_equal(symlink(at, link), 0);
        snprintf(only, sizeof only, "c%s ", endings[i]);
        snprintf(inside, sizeof inside, "%s/out", support_folder);
        const char *inputs[] = {at, inside, link};
        for (int named = 0; named < 3; named++) {
            struct ls_prepare_config config = config_of(&inputs[named], 1);
            struct ls_prepare_report report;
            struct ls_error error = {0};
            char says[800];
            assert_int_equal(ls_data_prepare(&config, &report, &error), LS_EINVAL);
            snprintf(says, sizeof says, "input %s is the output %s", named == 2 ? link : at, at);
            assert_text_contains(error.text, says);
            support_list(inside, names);
            assert_string_equal(names, only);
        }
        struct ls_text kept = support_read(at);
        assert_int_equal(kept.count, 9);
        assert_memory_equal(kept.bytes, "only copy", 9);
        ls_text_release(&kept);
        unlink(at);
    }
}

CASE_WITH(test_failure_keeps_the_older_store, setup, support_teardown)
{
    const char *inputs[] = {input("a.txt", "old")};
    struct ls_prepare_config config = config_of(inputs, 1);
    assert_train(&config, "old|");
    input("a.txt", "new");
    struct ls_error error = {0};
    struct ls_prepare_report report;
    char text[64];
    for (int n = 0; n < 6; n++) { /* write and sync of .bin, .idx and .tokenizer */
        support_fail_output(n, ENOSPC);
        assert_int_equal(ls_data_prepare(&config, &report, &error), LS_ENOSPC);
        support_fail_output(-1, 0);
        store_text(support_path("out/c_train"), text, sizeof text);
        assert_string_equal(text, "old|");
    }
    assert_train(&config, "new|");
}

CASE_WITH(test_every_allocation_may_fail, setup, support_teardown)
{
    if (!support_counts_allocations())
        skip();
    /* No JSON: jansson 2.14 goes on with part of a string where memory for the whole is missing. */
    const char *inputs[] = {input("a.txt", "a"), pack_zstd("b.txt.zst", "b\nb\nb\n", 0),
                            pack_gzip("c.txt.gz", "c\n", 0)};
    struct ls_prepare_config config = config_of(inputs, 3);
    config.validation = 0.2;
    config.workers = 1;
    struct ls_error error = {0};
    struct ls_prepare_report report;
    char names[2048];
    assert_ok(ls_data_prepare(&config, &report, &error), error);
    long before = support_allocations();
    assert_ok(ls_data_prepare(&config, &report, &error), error);
    long total = support_allocations() - before;
    for (long n = 0; n < total; n++) {
        assert_true(ls_directory_remove(support_path("out")));
        mkdir(support_path("out"), 0777);
        long live = support_live();
        support_fail_allocation(n);
        int status = ls_data_prepare(&config, &report, &error);
        support_fail_allocation(-1);
        if (support_live() != live)
            fail_msg("allocation %ld of %ld failed (%s): %ld blocks leaked", n, total, error.text,
                     support_live() - live);
        support_list(support_path("out"), names);
        if (status && *names)
            fail_msg("allocation %ld of %ld failed (%s): left %s", n, total, error.text, names);
    }
}

SUITE_MAIN(NULL, NULL)
