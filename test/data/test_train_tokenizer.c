/* Training a tokenizer: the merges are those of a plain reference, which counts all pairs anew
 * before each; threads change nothing; what is refused or stopped leaves nothing. */
#include "../support/extent.h"
#include "support.h"

#include <lockstep/base/json.h>
#include <lockstep/data/train_tokenizer.h>

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

static char output[300], corpus[300];
static const char *inputs[] = {corpus};
static const char *end_of_text[] = {"<|endoftext|>"};

static int setup(void **state)
{
    support_setup(state);
    snprintf(output, sizeof output, "%s/tokenizer", support_folder);
    snprintf(corpus, sizeof corpus, "%s/corpus.txt", support_folder);
    return 0;
}

static struct ls_train_tokenizer_config config_of(int64_t vocabulary)
{
    return (struct ls_train_tokenizer_config){.corpus.inputs = inputs,
                                              .corpus.inputs_count = 1,
                                              .corpus.output = output,
                                              .vocabulary = vocabulary,
                                              .pattern = "gpt2",
                                              .special = end_of_text,
                                              .special_count = 1,
                                              .frequency_min = 2,
                                              .corpus.workers = 1};
}

static struct ls_train_tokenizer_report train(const struct ls_train_tokenizer_config *config)
{
    struct ls_error error = {0};
    struct ls_train_tokenizer_report report;
    assert_ok(ls_train_tokenizer(config, &report, &error), error);
    return report;
}

/* "a b, ab c": the merges of the tokenizer that was written. Spaces within tokens are "Ġ" there. */
static void merges_read(char *text, size_t bytes)
{
    struct ls_error error = {0};
    json_t *root, *merge;
    size_t i, used = 0;
    char path[320];
    snprintf(path, sizeof path, "%s/tokenizer.json", output);
    assert_ok(ls_json_read(path, LS_EDATA, &root, &error), error);
    json_array_foreach(json_object_get(json_object_get(root, "model"), "merges"), i, merge)
    {
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", i ? ", " : "",
                                 json_string_value(merge));
        assert_true(used < bytes);
    }
    json_decref(root);
}

static void assert_merges(const char *text, int64_t vocabulary, const char *expected)
{
    char merges[4096] = "";
    scratch_write(corpus, text, strlen(text));
    const struct ls_train_tokenizer_config config = config_of(vocabulary);
    train(&config);
    merges_read(merges, sizeof merges);
    assert_string_equal(merges, expected);
}

/* ---- by hand --------------------------------------------------------------------------------- */

CASE_WITH(test_merges_by_hand, setup, support_teardown)
{
    /* "Ġl", "lo", "ow" occur 5 times of 6, "lo" and "ow" once more: "l o" has the lesser ids. */
    assert_merges("low low low low lower lowest", 300, "l o, lo w, Ġ low, Ġlow e");
    /* "a b" and "c d" occur twice each, and ids decide; "Ġ cd" occurs once. */
    assert_merges("cd cd ab ab", 300, "a b, c d, Ġ ab");
    assert_merges("ba ba", 257 + 1, "b a");
    assert_merges("ba ba", 257, "");
    /* In a row of equal letters the first two are merged: aa aa a, where "aa a" has lesser ids. */
    assert_merges("aaaaa aaaaa", 300, "a a, aa a, aa aaa");
    /* Nothing occurs twice. */
    assert_merges("abc", 300, "");
}

CASE_WITH(test_frequencies_and_counts, setup, support_teardown)
{
    char merges[4096] = "";
    scratch_write(corpus, "ab ab ab cd cd", 14);
    struct ls_train_tokenizer_config config = config_of(300);
    config.frequency_min = 3;
    struct ls_train_tokenizer_report report = train(&config);
    merges_read(merges, sizeof merges);
    assert_string_equal(merges, "a b");
    assert_int_equal(report.vocabulary, 258);
    assert_int_equal(report.merges, 1);
    assert_int_equal(report.documents, 1);
    assert_int_equal(report.text_bytes, 14);
    assert_int_equal(report.words, 3); /* "ab", " ab", " cd" */
    config.frequency_min = 1;
    config.vocabulary = 256 + 1 + 4;
    report = train(&config);
    merges_read(merges, sizeof merges);
    assert_string_equal(merges, "a b, c d, Ġ ab, Ġ cd");
}

/* ---- beside the reference -------------------------------------------------------------------- */

enum { WORDS = 40, LETTERS = 12, ROUNDS = 60, SYMBOLS = 300 };

/* What a twin of the reference gets wrong. */
enum wrong { RIGHT, TIES_BY_GREATER_IDS, LAST_OF_A_ROW };
struct reference {
    char token[SYMBOLS][LETTERS + 3];
    int symbols;
    int word[WORDS][LETTERS + 1], length[WORDS]; /* of symbols */
    int count[WORDS];
    struct {
        int a, b, id;
    } merges[SYMBOLS];
    int merges_count;
};

/* Letters a to c and a space before each word; one word may occur several times. */
static void words_draw(struct reference *r, uint32_t round, char *text)
{
    *r = (struct reference){.symbols = 4};
    strcpy(r->token[0], "a"), strcpy(r->token[1], "b"), strcpy(r->token[2], "c");
    strcpy(r->token[3], "\xc4\xa0");
    for (uint32_t w = 0; w < WORDS; w++) {
        uint32_t bits[4];
        ls_philox(ls_philox_key_of(round, "words"), (uint32_t[4]){w, 0, 0, 0}, bits);
        const uint32_t letters = 2 + round % 2;
        r->count[w] = 1 + (int)(bits[2] % 3);
        r->length[w] = 2 + (int)(bits[1] % (LETTERS - 1));
        r->word[w][0] = 3;
        for (int k = 1; k < r->length[w]; k++, bits[0] /= letters)
            r->word[w][k] = (int)(bits[0] % letters);
        for (int i = 0; i < r->count[w]; i++) {
            *text++ = ' ';
            for (int k = 1; k < r->length[w]; k++)
                *text++ = (char)('a' + r->word[w][k]);
        }
    }
    *text = '\0';
}

static void join_in_word(struct reference *r, int w, int a, int b, int id, enum wrong wrong)
{
    int *word = r->word[w], kept = 0;
    for (int k = 0; k < r->length[w]; k++) {
        bool pair = k + 1 < r->length[w] && word[k] == a && word[k + 1] == b;
        bool later = wrong == LAST_OF_A_ROW && k + 2 < r->length[w] && a == b && word[k + 2] == b;
        word[kept++] = pair && !later ? id : word[k];
        k += pair && !later;
    }
    r->length[w] = kept;
}

static int pair_counts(const struct reference *r, int a, int b)
{
    int count = 0;
    for (int w = 0; w < WORDS; w++)
        for (int k = 0; k + 1 < r->length[w]; k++)
            count += r->word[w][k] == a && r->word[w][k + 1] == b ? r->count[w] : 0;
    return count;
}

/* Bytes have ids by their characters: the space's comes last. */
static bool best_pair(const struct reference *r, int *a, int *b, enum wrong wrong)
{
    int most = 1;
    for (int i = 0; i < r->symbols; i++)
        for (int k = 0; k < r->symbols; k++) {
            int count = pair_counts(r, i, k);
            if (count < most + (wrong != TIES_BY_GREATER_IDS || most == 1))
                continue;
            most = count;
            *a = i;
            *b = k;
        }
    return most > 1;
}

static void reference_train(struct reference *r, enum wrong wrong)
{
    for (int a = 0, b = 0; best_pair(r, &a, &b, wrong);) {
        int id = r->symbols;
        char token[2 * (LETTERS + 3)];
        strcat(strcpy(token, r->token[a]), r->token[b]);
        for (int i = 0; i < r->symbols; i++)
            if (strcmp(r->token[i], token) == 0)
                id = i;
        if (id == r->symbols)
            strcpy(r->token[r->symbols++], token);
        assert_in_range(r->symbols, 5, SYMBOLS - 1);
        r->merges[r->merges_count].a = a;
        r->merges[r->merges_count].b = b;
        r->merges[r->merges_count++].id = id;
        for (int w = 0; w < WORDS; w++)
            join_in_word(r, w, a, b, id, wrong);
    }
}

static void reference_merges(const struct reference *r, char *text)
{
    *text = '\0';
    for (int i = 0; i < r->merges_count; i++)
        text += sprintf(text, "%s%s %s", i ? ", " : "", r->token[r->merges[i].a],
                        r->token[r->merges[i].b]);
}

/* What our tokenizer makes of each word is what the reference has of it at the end. */
static void check_words(const struct reference *r, const struct reference *words)
{
    struct ls_error error = {0};
    struct ls_tokenizer *tokenizer;
    struct ls_encoder *encoder;
    assert_ok(ls_tokenizer_new(output, &tokenizer, &error), error);
    assert_ok(ls_encoder_new(tokenizer, &encoder, &error), error);
    assert_int_equal(ls_tokenizer_eod(tokenizer), 0);
    assert_int_equal(ls_tokenizer_eos(tokenizer), 0);
    assert_int_equal(ls_tokenizer_vocabulary(tokenizer), 257 + r->symbols - 4);
    for (int w = 0; w < WORDS; w++) {
        struct ls_token_list ids = {0};
        struct ls_text back = {0};
        char text[LETTERS + 2];
        int length = words->length[w];
        text[0] = ' ';
        for (int k = 1; k < length; k++)
            text[k] = (char)('a' + words->word[w][k]);
        assert_ok(ls_encode(encoder, text, (size_t)length, &ids, &error), error);
        assert_int_equal(ids.count, r->length[w]);
        assert_ok(ls_decode(tokenizer, ids.ids, ids.count, &back, &error), error);
        assert_int_equal(back.count, length);
        assert_memory_equal(back.bytes, text, (size_t)length);
        ls_token_list_release(&ids);
        ls_text_release(&back);
    }
    ls_encoder_free(encoder);
    ls_tokenizer_free(tokenizer);
}

CASE_WITH(test_merges_are_the_references, setup, support_teardown)
{
    static struct reference words, right, twin;
    static char text[WORDS * 3 * (LETTERS + 1) + 1], merges[1 << 14], expected[1 << 14];
    int differ[LAST_OF_A_ROW + 1] = {0};
    for (uint32_t round = 0; round < ROUNDS; round += (uint32_t)check_every(6, 6)) {
        words_draw(&words, round, text);
        scratch_write(corpus, text, strlen(text));
        right = words;
        reference_train(&right, RIGHT);
        reference_merges(&right, expected);
        struct ls_train_tokenizer_config config = config_of(1000);
        config.corpus.workers = 1 + (int)(round % 3);
        train(&config);
        merges_read(merges, sizeof merges);
        assert_string_equal(merges, expected);
        check_words(&right, &words);
        for (int wrong = RIGHT + 1; wrong <= LAST_OF_A_ROW; wrong++) {
            twin = words;
            reference_train(&twin, (enum wrong)wrong);
            reference_merges(&twin, expected);
            differ[wrong] += strcmp(merges, expected) != 0;
        }
    }
    for (int wrong = RIGHT + 1; wrong <= LAST_OF_A_ROW; wrong++)
        assert_true(differ[wrong] > 0);
}

/* ---- files and threads ----------------------------------------------------------------------- */

static struct ls_text tokenizer_text(const char *name)
{
    char path[330];
    snprintf(path, sizeof path, "%s/%s", output, name);
    return support_read(path);
}

/* Words of letters, digits, signs, spaces and lines, of more than two bytes each. */
static char *text_draw(size_t bytes)
{
    static const char *const parts[] = {
        " the", " \xc3\xa9t\xc3\xa9",       "\n\n", " 1234", " don't",
        "!!",   "\xe4\xb8\xad\xe6\x96\x87", "  ",   "\xff",  "ing"};
    char *text = malloc(bytes + 32);
    size_t at = 0;
    assert_non_null(text);
    for (uint32_t i = 0; at < bytes; i++) {
        uint32_t bits[4];
        ls_philox(ls_philox_key_of(5, "text"), (uint32_t[4]){i, 0, 0, 0}, bits);
        if (bits[0] % 3)
            at += (size_t)sprintf(text + at, "%s", parts[bits[1] % 10]);
        else
            at += (size_t)sprintf(text + at, " %c%c%c", 'a' + bits[1] % 9, 'a' + bits[2] % 9,
                                  'a' + bits[3] % 9);
    }
    text[bytes] = '\0';
    return text;
}

/* The same text as a file, of several parts, and as lines of JSONL, packed. */
CASE_WITH(test_threads_change_nothing, setup, support_teardown)
{
    enum { BYTES = 5 << 19 };
    char *text = text_draw(BYTES), path[300];
    const char *both[] = {corpus, path};
    scratch_write(corpus, text, BYTES);
    snprintf(path, sizeof path, "%s/more.jsonl.gz", support_folder);
    gzFile file = gzopen(path, "wb1");
    for (int i = 0; i < 50; i++)
        gzprintf(file, "{\"body\": \"the cat %d sat\"}\n", i);
    assert_int_equal(gzclose(file), Z_OK);
    struct ls_text first = {0};
    for (int workers = 1; workers <= 4; workers++) {
        struct ls_train_tokenizer_config config = config_of(1500);
        config.corpus.inputs = both;
        config.corpus.inputs_count = 2;
        config.corpus.json_key = "body";
        config.corpus.workers = workers;
        struct ls_train_tokenizer_report report = train(&config);
        assert_int_equal(report.documents, 51);
        struct ls_text found = tokenizer_text("tokenizer.json");
        if (workers > 1) {
            assert_int_equal(found.count, first.count);
            assert_memory_equal(found.bytes, first.bytes, first.count);
            ls_text_release(&found);
        } else {
            first = found;
        }
    }
    ls_text_release(&first);
    free(text);
}

/* Each pattern splits as the tokenizer that is read back does: with every pair merged, each word is
 * one token. */
CASE_WITH(test_patterns, setup, support_teardown)
{
    static const struct {
        const char *pattern;
        int tokens;
    } cases[] = {{"gpt2", 7}, {"llama3", 8}, {"qwen", 9}, {"o200k_base", 8}, {"tekken", 10}};
    static const char text[] = "The dog'll eat\n 12HelloWorld";
    scratch_write(corpus, text, strlen(text));
    for (int i = 0; i < 5; i++) {
        struct ls_error error = {0};
        struct ls_tokenizer *tokenizer;
        struct ls_encoder *encoder;
        struct ls_token_list ids = {0};
        struct ls_train_tokenizer_config config = config_of(1000);
        config.pattern = cases[i].pattern;
        config.frequency_min = 1;
        struct ls_train_tokenizer_report report = train(&config);
        assert_ok(ls_tokenizer_new(output, &tokenizer, &error), error);
        assert_int_equal(ls_tokenizer_vocabulary(tokenizer), report.vocabulary);
        assert_ok(ls_encoder_new(tokenizer, &encoder, &error), error);
        assert_ok(ls_encode(encoder, text, strlen(text), &ids, &error), error);
        assert_int_equal(ids.count, cases[i].tokens);
        ls_token_list_release(&ids);
        ls_encoder_free(encoder);
        ls_tokenizer_free(tokenizer);
    }
}

CASE_WITH(test_special_tokens, setup, support_teardown)
{
    static const char *special[] = {"<\"\\\x01 \xe4\xb8\xad>", "ab", "<|end_of_text|>", "x"};
    struct ls_error error = {0};
    struct ls_tokenizer *tokenizer;
    scratch_write(corpus, "abab abab x", 11);
    struct ls_train_tokenizer_config config = config_of(300);
    config.special = special;
    config.special_count = 4;
    struct ls_train_tokenizer_report report = train(&config);
    /* "a b" makes the special token's id, and the byte x has one: 4 + 255 + "abab". */
    assert_int_equal(report.merges, 2);
    assert_int_equal(report.vocabulary, 4 + 255 + 1);
    assert_ok(ls_tokenizer_new(output, &tokenizer, &error), error);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ls_tokenizer_id(tokenizer, special[i]), i);
        assert_true(ls_tokenizer_is_special(tokenizer, i));
    }
    assert_int_equal(ls_tokenizer_eod(tokenizer), 2);
    assert_int_equal(ls_tokenizer_eos(tokenizer), 2);
    ls_tokenizer_free(tokenizer);
}

/* ---- refused, stopped, failed ---------------------------------------------------------------- */

static void assert_nothing_left(const char *expected)
{
    char names[2048];
    support_list(support_folder, names);
    assert_string_equal(names, expected);
}

static void assert_refused(const struct ls_train_tokenizer_config *config, int code,
                           const char *says)
{
    struct ls_error error = {0};
    struct ls_train_tokenizer_report report;
    int status = ls_train_tokenizer(config, &report, &error);
    if (status != code)
        fail_msg("%s (%s), expected %s", ls_status_name(status), error.text, ls_status_name(code));
    assert_text_contains(error.text, says);
}

CASE_WITH(test_refused, setup, support_teardown)
{
    static const char *twice[] = {"<a>", "<a>"}, *bad[] = {"\xff"}, *empty[] = {""};
    struct ls_train_tokenizer_config config;
    scratch_write(corpus, "ab ab", 5);
#define REFUSED(code, says, ...)                                                                   \
    do {                                                                                           \
        config = config_of(300);                                                                   \
        __VA_ARGS__;                                                                               \
        assert_refused(&config, code, says);                                                       \
    } while (0)
    REFUSED(LS_EINVAL, "a vocabulary of 256; expected 257", config.vocabulary = 256);
    REFUSED(LS_EINVAL, "a vocabulary of 2000000", config.vocabulary = 2000000);
    REFUSED(LS_EINVAL, "pattern \"cl100k_base\": expected gpt2", config.pattern = "cl100k_base");
    REFUSED(LS_EINVAL, "\"<a>\" is given twice", config.special = twice, config.special_count = 2);
    REFUSED(LS_EINVAL, "special token 1", config.special = bad);
    REFUSED(LS_EINVAL, "special token 1", config.special = empty);
    REFUSED(LS_EINVAL, "0 special tokens", config.special_count = 0);
    REFUSED(LS_EINVAL, "least frequency of 0", config.frequency_min = 0);
    REFUSED(LS_EINVAL, "0 workers", config.corpus.workers = 0);
    REFUSED(LS_EINVAL, "no input", config.corpus.inputs_count = 0);
    REFUSED(LS_EIO, "corpus.txt: expected a folder", config.corpus.output = corpus);
    char path[320];
    snprintf(path, sizeof path, "%s/no/tokenizer", support_folder);
    REFUSED(LS_EIO, "the folder to make", config.corpus.output = path);
    inputs[0] = path;
    REFUSED(LS_EIO, "no/tokenizer", (void)config);
    inputs[0] = corpus;
    scratch_write(corpus, "", 0);
    REFUSED(LS_EDATA, "empty corpus", (void)config);
    snprintf(path, sizeof path, "%s/bad.jsonl", support_folder);
    scratch_write(path, "{\"text\": \"ab\"}\n{\"text\": 1}\n", 28);
    inputs[0] = path;
    REFUSED(LS_EDATA, "bad.jsonl:2: \"text\" is a number", config.corpus.workers = 3);
    inputs[0] = corpus;
    assert_nothing_left("bad.jsonl corpus.txt ");
    /* An input that the output would replace. */
    mkdir(output, 0777);
    snprintf(path, sizeof path, "%s/tokenizer.json", output);
    scratch_write(path, "ab ab", 5);
    inputs[0] = path;
    REFUSED(LS_EINVAL, "which would replace it", (void)config);
    inputs[0] = corpus;
}

CASE_WITH(test_a_signal_leaves_nothing, setup, support_teardown)
{
    int stop = 1;
    scratch_write(corpus, "ab ab", 5);
    for (int workers = 1; workers < 4; workers++) {
        struct ls_train_tokenizer_config config = config_of(300);
        config.corpus.stop = &stop;
        config.corpus.workers = workers;
        assert_refused(&config, LS_ESTOPPED, "stopped by a signal; nothing was written");
    }
    assert_nothing_left("corpus.txt ");
}

/* A tokenizer that is there stays whole, and a folder that is made goes again. */
CASE_WITH(test_a_full_disk_leaves_nothing, setup, support_teardown)
{
    struct ls_error error = {0};
    struct ls_train_tokenizer_report report;
    struct ls_train_tokenizer_config config = config_of(300);
    int status = LS_ENOSPC, failures = 0;
    scratch_write(corpus, "ab ab", 5);
    for (; status; failures++) {
        support_fail_output(failures, ENOSPC);
        status = ls_train_tokenizer(&config, &report, &error);
        support_fail_output(-1, 0);
        assert_int_equal(status, status ? LS_ENOSPC : LS_OK);
        assert_nothing_left(status ? "corpus.txt " : "corpus.txt tokenizer ");
    }
    assert_true(failures > 4);
    struct ls_text old = tokenizer_text("tokenizer.json");
    scratch_write(corpus, "cd cd", 5);
    support_fail_output(0, ENOSPC);
    assert_int_equal(ls_train_tokenizer(&config, &report, &error), LS_ENOSPC);
    support_fail_output(-1, 0);
    support_same(tokenizer_text("tokenizer.json"), old);
}

static int train_again(void *user, struct ls_error *error)
{
    struct ls_train_tokenizer_report report;
    return ls_train_tokenizer(user, &report, error);
}

CASE_WITH(test_every_allocation_may_fail, setup, support_teardown)
{
    struct ls_train_tokenizer_config config = config_of(300);
    scratch_write(corpus, "low low low lower lowest", 24);
    assert_true(support_fail_each_allocation(train_again, &config) > 20);
}

SUITE_MAIN(NULL, NULL)
