/* Duplicates: exact ones are those that a comparison of all pairs finds; the index by bands finds
 * what a look at every entry finds; the estimate is the Jaccard similarity of sets of strings. The
 * output is the same for any number of threads, and after any stop. */
#include "data/minhash.h"
#include "support.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TEXT_MAX = 4096 };

static uint64_t draw(uint64_t seed, uint64_t index)
{
    uint64_t key[2] = {seed, index};
    return ls_hash64(key, sizeof key, 11);
}

/* A config of in.jsonl; its strings live until the next call. */
static struct ls_corpus_config config_of(const char *output, int workers)
{
    static char in[300], out[300];
    static const char *inputs[1];
    snprintf(in, sizeof in, "%s/in.jsonl", support_folder);
    snprintf(out, sizeof out, "%s/%s", support_folder, output);
    inputs[0] = in;
    return (struct ls_corpus_config){
        .inputs = inputs, .inputs_count = 1, .output = out, .workers = workers};
}

static void assert_same_file(const char *a, const char *b)
{
    support_same(support_read(support_path(a)), support_read(support_path(b)));
}

/* ---- exact ----------------------------------------------------------------------------------- */

enum { EXACT_DOCUMENTS = 3000, EXACT_TEXTS = 1000 };

/* Line i has a text of its own kind, and an id that must stay. */
static void exact_line(int i, char line[128], size_t *key_bytes)
{
    int text = (int)(draw(1, (uint64_t)i) % EXACT_TEXTS);
    *key_bytes =
        (size_t)snprintf(line, 128, "{\"text\": \"%s %d\"", text % 7 ? "a" : "\\u00fc", text);
    snprintf(line + *key_bytes, 128 - *key_bytes, ", \"id\": %d}", i);
}

CASE_WITH(test_exact_is_a_comparison_of_all_pairs, support_setup, support_teardown)
{
    static char lines[EXACT_DOCUMENTS][128];
    static size_t keys[EXACT_DOCUMENTS];
    struct ls_error error = {0};
    struct ls_dedup_report report;
    FILE *in = fopen(support_path("in.jsonl"), "w"),
         *expected = fopen(support_path("expected.jsonl"), "w");
    int64_t kept = 0;
    for (int i = 0; i < EXACT_DOCUMENTS; i++) {
        bool repeats = false;
        exact_line(i, lines[i], &keys[i]);
        fprintf(in, "%s\n", lines[i]);
        for (int j = 0; j < i && !repeats; j++)
            repeats = keys[i] == keys[j] && memcmp(lines[i], lines[j], keys[i]) == 0;
        if (!repeats && ++kept)
            fprintf(expected, "%s\n", lines[i]);
    }
    fclose(in);
    fclose(expected);
    for (int workers = 1; workers <= 4; workers++) {
        struct ls_corpus_config config = config_of("out.jsonl", workers);
        assert_ok(ls_corpus_dedup(&config, &(struct ls_dedup_config){0}, &report, &error), error);
        assert_int_equal(report.corpus.documents, EXACT_DOCUMENTS);
        assert_int_equal(report.exact, EXACT_DOCUMENTS - kept);
        assert_same_file("out.jsonl", "expected.jsonl");
        assert_in_range(report.memory_bytes, 48 * kept, 96 * kept);
    }
}

/* Texts that are files, with bytes that are no UTF-8: judged as they are written. */
CASE_WITH(test_files_become_lines, support_setup, support_teardown)
{
    struct ls_error error = {0};
    struct ls_dedup_report report;
    mkdir(support_path("texts"), 0777);
    scratch_write(support_path("texts/a"), "one\n\xff", 5);
    scratch_write(support_path("texts/b"), "one\n\xfe", 5);
    scratch_write(support_path("texts/c.jsonl"), "{\"k\": \"one\\n\xef\xbf\xbd\", \"n\": 1}\n", 26);
    scratch_write(support_path("texts/d"), "", 0);
    struct ls_corpus_config config = config_of("out.jsonl", 2);
    const char *inputs[] = {support_path("texts")};
    config.inputs = inputs;
    config.json_key = "k";
    assert_ok(ls_corpus_dedup(&config, &(struct ls_dedup_config){0}, &report, &error), error);
    struct ls_text found = support_read(support_path("out.jsonl"));
    assert_string_equal(found.bytes, "{\"k\": \"one\\n\xef\xbf\xbd\"}\n{\"k\": \"\"}\n");
    ls_text_release(&found);
    assert_int_equal(report.exact, 2);
}

/* ---- near ------------------------------------------------------------------------------------ */

enum { WORDS = 104, SHINGLE = 5 };

/* 104 words, of which the last `changed` are those of another document: 100 shingles. */
static void near_text(uint64_t seed, int changed, char text[TEXT_MAX])
{
    size_t used = 0;
    for (int i = 0; i < WORDS; i++)
        used += (size_t)snprintf(
            text + used, TEXT_MAX - used, "w%llu ",
            (unsigned long long)(draw(i >= WORDS - changed ? seed + 1 : seed, (uint64_t)i)));
}

static int values_equal(const char *a, const char *b, int hashes)
{
    static struct data_minhash minhash;
    uint32_t first[DATA_HASHES_MAX], second[DATA_HASHES_MAX];
    struct ls_text scratch = {0};
    struct ls_error error = {0};
    bool empty;
    int equal = 0;
    data_minhash_init(&minhash, hashes, SHINGLE);
    struct ls_text text = {.bytes = (char *)a, .count = strlen(a)};
    assert_ok(data_minhash_sign(&minhash, &text, &scratch, first, &empty, &error), error);
    text = (struct ls_text){.bytes = (char *)b, .count = strlen(b)};
    assert_ok(data_minhash_sign(&minhash, &text, &scratch, second, &empty, &error), error);
    for (int i = 0; i < hashes; i++)
        equal += first[i] == second[i];
    ls_text_release(&scratch);
    return equal;
}

/* By construction: 100 shingles each, 100 - changed in both, so J = (100 - c) / (100 + c). */
CASE(test_the_estimate_is_the_similarity)
{
    enum { HASHES = 1024, PAIRS = 40 };
    char a[TEXT_MAX], b[TEXT_MAX];
    for (int changed = 0; changed <= 100; changed += 20) {
        double s = (100.0 - changed) / (100 + changed), sum = 0;
        for (uint64_t pair = 0; pair < PAIRS; pair++) {
            near_text(1000 * pair, 0, a);
            near_text(1000 * pair, changed, b);
            sum += values_equal(a, b, HASHES) / (double)HASHES;
        }
        double error = fabs(sum / PAIRS - s), deviation = sqrt(s * (1 - s) / HASHES / PAIRS);
        print_message("similarity %.3f: the mean of %d estimates is %.4f\n", s, PAIRS, sum / PAIRS);
        if (error > 5 * deviation)
            fail_msg("similarity %.4f: the mean estimate is off by %.5f, five deviations are %.5f",
                     s, error, 5 * deviation);
    }
}

CASE(test_what_a_shingle_is)
{
    static const struct {
        const char *a, *b;
        bool equal;
    } cases[] = {
        {"One, two; THREE four - five", "one two three four five", true},
        {"\xc3\x9c"
         "ber alle Gipfel ist Ruh",
         "\xc3\xbc"
         "ber alle gipfel ist ruh.",
         true},
        {"a b", "A B!", true}, /* fewer words than a shingle has */
        {"a b", "a b c", false},
        {"a b c d e", "e d c b a", false},
        {"ab c d e f", "a bc d e f", false},
        {"\xe4\xb8\x96\xe7\x95\x8c", "\xe4\xb8\x96 \xe7\x95\x8c", true}, /* Han: words by letter */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if ((values_equal(cases[i].a, cases[i].b, 64) == 64) != cases[i].equal)
            fail_msg("\"%s\" and \"%s\": expected %s", cases[i].a, cases[i].b,
                     cases[i].equal ? "equal" : "different");
}

/* The index against a look at every entry; signatures of few values share bands often. */
CASE(test_the_index_finds_what_a_search_finds)
{
    enum { ENTRIES = 3000, HASHES = 12, BANDS = 4, ROWS = 3, EQUAL = 7 };
    static uint32_t list[ENTRIES][HASHES];
    struct data_near_index index;
    struct ls_error error = {0};
    int found = 0;
    data_near_init(&index, HASHES, BANDS, ROWS);
    for (int i = 0; i < ENTRIES; i++) {
        int expected = -1, expected_values = 0, values = 0;
        for (int j = 0; j < HASHES; j++)
            list[i][j] = (uint32_t)(draw(7, (uint64_t)(i * HASHES + j)) % 6);
        for (int k = 0; k < i && expected < 0; k++) {
            bool band = false;
            int equal = 0;
            for (int j = 0; j < HASHES; j++)
                equal += list[i][j] == list[k][j];
            for (int b = 0; b < BANDS; b++)
                band |= memcmp(&list[i][b * ROWS], &list[k][b * ROWS], ROWS * 4) == 0;
            if (band && equal >= EQUAL) {
                expected = k;
                expected_values = equal;
            }
        }
        assert_int_equal(data_near_find(&index, list[i], EQUAL, &values), expected);
        if (expected >= 0)
            assert_int_equal(values, expected_values);
        found += expected >= 0;
        assert_ok(data_near_add(&index, list[i], &error), error);
    }
    assert_in_range(found, 100, ENTRIES - 100);
    data_near_release(&index);
}

/* Documents that are kept have numbers of 32 bits, and one more is not the first again. */
CASE(test_more_documents_than_numbers)
{
    struct ls_error error = {0};
    assert_int_equal(data_kept_admit(DATA_KEPT_MAX - 1, &error), LS_OK);
    assert_int_equal(data_kept_admit(DATA_KEPT_MAX, &error), LS_EDATA);
    assert_non_null(strstr(error.text, "more than 2147483648 documents are kept"));
}

CASE(test_bands)
{
    for (int near = 10; near <= 100; near += 5)
        for (int hashes = 16; hashes <= 1024; hashes *= 4) {
            int bands, rows;
            ls_dedup_bands(near / 100.0, hashes, &bands, &rows);
            assert_true(bands * rows <= hashes && rows >= 1);
            double next = 1 - pow(1 - pow(near / 100.0, rows + 1), (int)(hashes / (rows + 1)));
            double here = 1 - pow(1 - pow(near / 100.0, rows), bands);
            assert_true(fabs(here - ls_dedup_probability(near / 100.0, bands, rows)) < 1e-9);
            if (rows > 1)
                assert_true(here >= 0.95 - 1e-9);
            if (rows < hashes)
                assert_true(next < 0.95 + 1e-9);
        }
}

enum { GROUPS = 120, COPIES = 5 };

/* Copy j of a group has changed[j] words of its own at its end, so it repeats the group's first
 * document with a similarity known by construction. Documents of all groups come in turns. */
static const int changed[COPIES] = {0, 3, 9, 14, 40};

static void near_corpus(void)
{
    static char text[TEXT_MAX];
    FILE *in = fopen(support_path("in.jsonl"), "w");
    for (int j = 0; j < COPIES; j++)
        for (uint64_t group = 0; group < GROUPS; group++) {
            near_text(group * 1000 + 1, 0, text);
            if (changed[j] > 0) { /* all but the last words are the group's */
                static char other[TEXT_MAX];
                near_text(group * 1000 + 100 * (uint64_t)j, 0, other);
                char *at = text, *tail = other;
                for (int i = 0; i < WORDS - changed[j]; i++) {
                    at = strchr(at, ' ') + 1;
                    tail = strchr(tail, ' ') + 1;
                }
                strcpy(at, tail);
            }
            fprintf(in, "{\"text\": \"%s%s\"}\n", text, j == 0 ? "" : "!");
        }
    fclose(in);
}

/* Recall and precision at 0.8: pairs of 0.942 and 0.835 are to go, 0.754 and 0.429 to stay. What
 * is far from the bound is found without an exception. */
CASE_WITH(test_near_duplicates_are_found, support_setup, support_teardown)
{
    struct ls_error error = {0};
    struct ls_dedup_report report;
    int removed[COPIES] = {0};
    near_corpus();
    for (int workers = 1; workers <= 4; workers++) {
        struct ls_corpus_config config = config_of("out.jsonl", workers);
        char list[300];
        snprintf(list, sizeof list, "%s/pairs.jsonl", support_folder);
        const struct ls_dedup_config near = {.near = 0.8, .list = list};
        assert_ok(ls_corpus_dedup(&config, &near, &report, &error), error);
        if (workers == 1) {
            assert_int_equal(rename(support_path("out.jsonl"), support_path("one.jsonl")), 0);
            assert_int_equal(rename(list, support_path("one.pairs")), 0);
        } else {
            assert_same_file("out.jsonl", "one.jsonl");
            assert_same_file("pairs.jsonl", "one.pairs");
        }
    }
    assert_int_equal(report.exact, 0);
    /* As doc/data.md says it of 128 hashes in 18 bands. */
    int64_t kept_documents = report.corpus.documents - report.corpus.removed;
    assert_int_equal(report.hashes, 128);
    assert_int_equal(report.bands, 18);
    assert_in_range(report.memory_bytes, 784 * kept_documents, 1274 * kept_documents);
    struct ls_text pairs = support_read(support_path("one.pairs"));
    int lines = 0;
    for (char *at = pairs.bytes; (at = strstr(at, "\"number\": ")); at++, lines++) {
        int number = atoi(at + 10), kept = atoi(strstr(at, "\"kept_number\": ") + 15);
        removed[number / GROUPS]++;
        assert_int_equal(kept % GROUPS, number % GROUPS); /* no pair of two groups */
        assert_true(kept < number);
    }
    ls_text_release(&pairs);
    assert_int_equal(lines, report.near);
    for (int j = 0; j < COPIES; j++)
        print_message("similarity %.3f: %d of %d removed\n",
                      (100.0 - changed[j]) / (100 + changed[j]), removed[j], GROUPS);
    assert_int_equal(removed[0], 0);
    assert_int_equal(removed[1], GROUPS);
    assert_true(removed[2] > removed[3]);
    assert_int_equal(removed[4], 0);
}

/* A near B, B near C, A not near C: B repeats A, and C stays. */
CASE_WITH(test_a_removed_document_removes_none, support_setup, support_teardown)
{
    static char text[3][TEXT_MAX];
    struct ls_error error = {0};
    struct ls_dedup_report report;
    FILE *in = fopen(support_path("in.jsonl"), "w");
    for (int d = 0; d < 3; d++) { /* words [15 d, 15 d + 104) of one sequence */
        size_t used = 0;
        for (int i = 0; i < WORDS; i++)
            used += (size_t)snprintf(text[d] + used, TEXT_MAX - used, "x%d ", 15 * d + i);
        fprintf(in, "{\"text\": \"%s\"}\n", text[d]);
    }
    fclose(in);
    const int ab = values_equal(text[0], text[1], 128), ac = values_equal(text[0], text[2], 128);
    const int bc = values_equal(text[1], text[2], 128);
    assert_true(ab > ac && bc > ac);
    struct ls_corpus_config config = config_of("out.jsonl", 1);
    const struct ls_dedup_config near = {.near = (ac + 1) / 128.0};
    assert_ok(ls_corpus_dedup(&config, &near, &report, &error), error);
    assert_int_equal(report.near, 1);
    struct ls_text found = support_read(support_path("out.jsonl"));
    assert_text_contains(found.bytes, "x133 ");
    ls_text_release(&found);
}

/* ---- folders, stops, failures ---------------------------------------------------------------- */

static volatile int stop;
static int bad_seen, stop_at;

/* The n-th bad record asks to stop: a place in the input, not a time. */
static void stop_at_bad(void *user, const char *why)
{
    (void)user, (void)why;
    stop = ++bad_seen == stop_at;
}

static void folder_corpus(void)
{
    FILE *in = fopen(support_path("in.jsonl"), "w");
    for (int i = 0; i < 20000; i++)
        fprintf(in, i % 2000 == 1999 ? "bad\n" : "{\"text\": \"document %d\"}\n",
                (int)(draw(3, (uint64_t)i) % 9000));
    fclose(in);
}

static int run_folder(const char *output, int stop_after, struct ls_dedup_report *report,
                      struct ls_error *error)
{
    struct ls_corpus_config config = config_of(output, 2);
    stop = bad_seen = 0;
    stop_at = stop_after;
    config.part_documents = 1000;
    config.skip_bad = true;
    config.skipped = stop_at_bad;
    config.stop = &stop;
    return ls_corpus_dedup(&config, &(struct ls_dedup_config){0}, report, error);
}

static void assert_same_folder(const char *a, const char *b)
{
    char first[2048], second[2048], names[2][64];
    support_list(support_path(a), first);
    support_list(support_path(b), second);
    assert_string_equal(first, second);
    for (int part = 0; part < 20; part++)
        for (int removed = 0; removed < 2; removed++) {
            const char *suffix = removed ? ".removed" : "";
            snprintf(names[0], sizeof names[0], "%s/%06d%s.jsonl", a, part, suffix);
            snprintf(names[1], sizeof names[1], "%s/%06d%s.jsonl", b, part, suffix);
            assert_same_file(names[0], names[1]);
        }
}

CASE_WITH(test_a_stopped_job_goes_on, support_setup, support_teardown)
{
    struct ls_error error = {0};
    struct ls_dedup_report whole, report;
    char names[2048];
    folder_corpus();
    assert_ok(run_folder("whole/", 0, &whole, &error), error);
    assert_int_equal(whole.corpus.documents, 19990);
    assert_int_equal(whole.corpus.resumed, 0);
    bool partly = false;
    for (int at = 2; at <= 10; at += 2) {
        assert_int_equal(run_folder("parts/", at, &report, &error), LS_ESTOPPED);
        support_list(support_path("parts"), names);
        assert_null(strstr(names, ".tmp"));
        partly |= strstr(names, "000000.jsonl") && !strstr(names, "000019.jsonl");
    }
    assert_true(partly);
    assert_ok(run_folder("parts/", 0, &report, &error), error);
    assert_true(report.corpus.resumed > 0);
    assert_int_equal(report.exact, whole.exact);
    assert_int_equal(report.corpus.documents, whole.corpus.documents);
    assert_same_folder("whole", "parts");
    /* Parts are not made again: their files stay as they are. */
    scratch_write(support_path("parts/000003.jsonl"), "mine", 4);
    assert_ok(run_folder("parts/", 0, &report, &error), error);
    struct ls_text kept = support_read(support_path("parts/000003.jsonl"));
    assert_string_equal(kept.bytes, "mine");
    ls_text_release(&kept);
}

CASE_WITH(test_a_folder_of_another_job_is_refused, support_setup, support_teardown)
{
    struct ls_error error = {0};
    struct ls_dedup_report report;
    folder_corpus();
    assert_ok(run_folder("parts/", 0, &report, &error), error);
    struct ls_corpus_config config = config_of("parts", 1); /* a folder without the slash */
    config.part_documents = 1000;
    assert_int_equal(ls_corpus_dedup(&config, &(struct ls_dedup_config){0}, &report, &error),
                     LS_EINVAL);
    assert_text_contains(error.text, "its parts are of another job");
    remove(support_path("parts/job.txt"));
    assert_int_equal(run_folder("parts/", 0, &report, &error), LS_EINVAL);
    /* A changed input. */
    assert_ok(run_folder("other/", 0, &report, &error), error);
    FILE *in = fopen(support_path("in.jsonl"), "a");
    fputs("{\"text\": \"more\"}\n", in);
    fclose(in);
    assert_int_equal(run_folder("other/", 0, &report, &error), LS_EINVAL);
}

CASE_WITH(test_bad_requests, support_setup, support_teardown)
{
    struct ls_error error = {0};
    struct ls_dedup_report report;
    char names[2048], before[2048];
    folder_corpus();
    support_list(support_folder, before);
    const struct ls_dedup_config bad[] = {{.near = 1.5},
                                          {.near = -0.1},
                                          {.near = NAN},
                                          {.near = 0.5, .hashes = 15},
                                          {.near = 0.5, .hashes = 1025},
                                          {.near = 0.5, .shingle = 33}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ls_corpus_config config = config_of("out.jsonl", 1);
        assert_int_equal(ls_corpus_dedup(&config, &bad[i], &report, &error), LS_EINVAL);
    }
    struct ls_corpus_config config = config_of("in.jsonl", 1);
    const struct ls_dedup_config plain = {0}, listed = {.list = support_path("list")};
    config.skip_bad = true;
    assert_int_equal(ls_corpus_dedup(&config, &plain, &report, &error), LS_EINVAL);
    assert_text_contains(error.text, "which would replace it");
    config = config_of("out.jsonl", 1);
    assert_int_equal(ls_corpus_dedup(&config, &plain, &report, &error), LS_EDATA);
    assert_text_contains(error.text, "in.jsonl:2000: column");
    config = config_of("nowhere/out.jsonl", 1);
    assert_int_equal(ls_corpus_dedup(&config, &plain, &report, &error), LS_EIO);
    config = config_of("out.jsonl", 0);
    assert_int_equal(ls_corpus_dedup(&config, &plain, &report, &error), LS_EINVAL);
    config = config_of("new/", 1);
    assert_int_equal(ls_corpus_dedup(&config, &listed, &report, &error), LS_EINVAL);
    support_list(support_folder, names);
    assert_string_equal(names, before);
}

/* A list that is the output, whatever the name: both would write over each other's bytes. */
CASE_WITH(test_a_list_that_is_the_output, support_setup, support_teardown)
{
    struct ls_error error = {0};
    struct ls_dedup_report report;
    char lists[2][320];
    struct ls_corpus_config config = config_of("out.jsonl", 1);
    snprintf(lists[0], sizeof lists[0], "%s/out.jsonl", support_folder);
    snprintf(lists[1], sizeof lists[1], "%s/./out.jsonl", support_folder);
    scratch_write(support_path("in.jsonl"), "{\"text\": \"a\"}\n{\"text\": \"a\"}\n", 28);
    scratch_write(support_path("out.jsonl"), "old", 3);
    scratch_write(support_path("old"), "old", 3);
    for (int i = 0; i < 2; i++) {
        const struct ls_dedup_config dedup = {.list = lists[i]};
        assert_int_equal(ls_corpus_dedup(&config, &dedup, &report, &error), LS_EINVAL);
        assert_text_contains(error.text, "one file");
        assert_same_file("out.jsonl", "old");
    }
}

/* The n-th write or rename, and the n-th allocation, fails, for all n. Documents are files: jansson
 * 2.14 leaves characters of a string out when it lacks memory, and says nothing. */
CASE_WITH(test_failures_leave_nothing, support_setup, support_teardown)
{
    struct ls_error error = {0};
    struct ls_dedup_report report;
    char names[2048], texts[300], name[320];
    snprintf(texts, sizeof texts, "%s/.texts", support_folder);
    mkdir(texts, 0777);
    for (int i = 0; i < 30; i++) {
        char text[64];
        int bytes = snprintf(text, sizeof text, "one two three four five six %d", i % 20);
        snprintf(name, sizeof name, "%s/%02d", texts, i);
        scratch_write(name, text, (size_t)bytes);
    }
    const char *inputs[] = {texts};
    const struct ls_dedup_config near = {.near = 0.5, .hashes = 16};
    struct ls_corpus_config config = config_of(".whole", 1);
    config.inputs = inputs;
    assert_ok(ls_corpus_dedup(&config, &near, &report, &error), error);
    assert_in_range(report.exact + report.near, 10, 29);
    for (int kind = 0; kind < (support_counts_allocations() ? 2 : 1); kind++) {
        int status = LS_EIO;
        long n = 0;
        for (; status && n < 10000; n++) {
            config = config_of("out.jsonl", 1);
            config.inputs = inputs;
            long live = support_live();
            kind ? support_fail_allocation(n) : support_fail_output(n, ENOSPC);
            status = ls_corpus_dedup(&config, &near, &report, &error);
            support_fail_output(-1, 0);
            support_fail_allocation(-1);
            support_list(support_folder, names);
            if (status && status != (kind ? LS_ENOMEM : LS_ENOSPC))
                fail_msg("%ld: %s: %s", n, ls_status_name(status), error.text);
            if (kind)
                assert_int_equal(support_live(), live);
            /* The last call syncs the folder, when the file has its name and is whole. */
            if (status && strstr(names, "out.jsonl")) {
                assert_same_file("out.jsonl", ".whole");
                remove(support_path("out.jsonl"));
            } else if (status) {
                assert_string_equal(names, "");
            }
        }
        assert_ok(status, error);
        assert_true(n > 2);
        assert_same_file("out.jsonl", ".whole");
        remove(support_path("out.jsonl"));
    }
}

CASE_WITH(test_split_is_a_loop_over_lines, support_setup, support_teardown)
{
    struct ls_error error = {0};
    struct ls_corpus_report report;
    struct ls_shares shares, reference;
    int64_t documents[LS_PARTS_MAX];
    FILE *in = fopen(support_path("in.jsonl"), "w"), *parts[3];
    assert_ok(ls_shares_parse("5,3,2", &shares, &error), error);
    reference = shares;
    for (int j = 0; j < 3; j++) {
        char name[32];
        snprintf(name, sizeof name, "expected_%d", j);
        parts[j] = fopen(support_path(name), "w");
    }
    for (int i = 0; i < 1000; i++) {
        FILE *to[] = {in, parts[ls_shares_next(&reference)]};
        for (int j = 0; j < 2; j++) /* any object will do */
            fprintf(to[j], "{\"id\": %d, \"%s\": \"t\"}\n", i, i % 2 ? "text" : "other");
    }
    fclose(in);
    for (int j = 0; j < 3; j++)
        fclose(parts[j]);
    struct ls_corpus_config config = config_of("p", 1);
    assert_ok(ls_corpus_split(&config, &shares, documents, &report, &error), error);
    for (int j = 0; j < 3; j++) {
        char names[2][32];
        snprintf(names[0], sizeof names[0], "p_%d.jsonl", j);
        snprintf(names[1], sizeof names[1], "expected_%d", j);
        assert_same_file(names[0], names[1]);
        assert_int_equal(documents[j], reference.given[j]);
    }
    scratch_write(support_path("in.jsonl"), "{}\n{}\n{}\n[1]\n", 13);
    config = config_of("q", 1);
    assert_int_equal(ls_corpus_split(&config, &shares, documents, &report, &error), LS_EDATA);
    assert_text_contains(error.text, ":4: a list: expected one JSON object a line");
    scratch_write(support_path("in.jsonl"), "{\"text\": \"\"}", 12);
    assert_int_equal(ls_corpus_split(&config, &shares, documents, &report, &error), LS_EDATA);
    assert_int_equal(access(support_path("q_0.jsonl"), F_OK), -1);
}

static int note_memory(void *user, const struct data_document *document, struct ls_error *error)
{
    long *most = user;
    (void)document, (void)error;
    *most = ls_max(*most, support_live_bytes());
    return LS_OK;
}

/* Long documents among short ones, each at another place of its batch: memory is that of a few of
 * them, not of one for each place. */
CASE_WITH(test_memory_is_that_of_batches, support_setup, support_teardown)
{
    enum { LONG = 1 << 20, COUNT = 24 };
    if (!support_counts_allocations())
        skip();
    struct ls_error error = {0};
    struct data_corpus *corpus;
    FILE *in = fopen(support_path("in.jsonl"), "w");
    for (int i = 0; i < COUNT; i++) {
        for (int j = 0; j < i; j++)
            fputs("{\"text\": \"a\"}\n", in);
        fprintf(in, "{\"text\": \"%0*d\"}\n", LONG, i);
    }
    fclose(in);
    const char *inputs[] = {support_path("in.jsonl")};
    const struct data_corpus_config config = {
        .inputs = inputs, .count = 1, .json_key = "text", .keep_lines = true};
    const long before = support_live_bytes();
    long most = before;
    int64_t read;
    assert_ok(data_corpus_open(&config, &corpus, &error), error);
    const struct data_documents run = {
        .corpus = corpus, .read = &read, .workers = 1, .take = note_memory, .user = &most};
    assert_ok(data_documents_run(&run, &error), error);
    data_corpus_close(corpus);
    assert_int_equal(read, COUNT + COUNT * (COUNT - 1) / 2);
    print_message("%.1f MiB for documents of 1 MiB\n", (double)(most - before) / LONG);
    assert_in_range(most - before, 2 * LONG, 16 * LONG);
}

SUITE_MAIN(NULL, NULL)
