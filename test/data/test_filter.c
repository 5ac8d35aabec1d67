/* The filter: what each rule measures, and which documents it drops. Repetition is what a plain
 * comparison of all pairs of lines, paragraphs and n-grams counts. */
#include "data/filter_measure.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int rule_of(const char *name)
{
    int count;
    const struct ls_filter_rule *rules = ls_filter_rules(&count);
    for (int i = 0; i < count; i++)
        if (strcmp(rules[i].name, name) == 0)
            return i;
    fail_msg("no rule %s", name);
    return -1;
}

static void measure_with(struct filter_scratch *scratch, const char *text,
                         double value[FILTER_RULES])
{
    struct ls_error error = {0};
    bool used[FILTER_RULES];
    for (int i = 0; i < FILTER_RULES; i++)
        used[i] = true;
    const struct ls_text of = {.bytes = (char *)text, .count = strlen(text)};
    assert_ok(filter_measure(scratch, used, &of, value, &error), error);
}

static void measure(const char *text, double value[FILTER_RULES])
{
    struct filter_scratch scratch = {0};
    measure_with(&scratch, text, value);
    filter_scratch_release(&scratch);
}

CASE(test_measures)
{
    static const struct {
        const char *rule, *text;
        double value;
    } cases[] = {
        {"characters-min", "", 0},
        {"characters-max", "a\xc3\xbc\xe4\xb8\x96\n", 4},
        {"words-min", "", 0},
        {"words-min", " one  two\nthree\t", 3},
        {"words-max", "\xe4\xb8\x96\xe7\x95\x8c one\xe4\xb8\x96", 4}, /* Han: each letter */
        {"word-length-min", "ab abcd", 3},
        {"word-length-max", "\xc3\xbc\xc3\xbc", 2},
        {"hashes-max", "# one #two three", 0.5},
        {"ellipses-max", "a... b\xe2\x80\xa6 c d", 0.5},
        {"ellipses-max", "a......", 2},
        {"bullet-lines-max", "- a\n  * b\n\xe2\x80\xa2 c\nd\n\n", 0.75},
        {"ellipsis-lines-max", "a...\nb\xe2\x80\xa6  \nc\n\nd...e", 0.5},
        {"alphabetic-min", "a1 12 -- \xce\xb1", 0.5},
        {"stop-words-min", "The end, of \"that\" day to be. they of The", 5},
        {"sentences-min", "One two three four five. Six? Seven!", 3},
        {"sentences-min", "Too short.\nNo mark at the end here\nOne two three four 5.", 1},
        {"sentences-min", "This needs javaScript to be on.", 0},
        {"sentences-min", "Version 1.5 of the thing is out.", 1},
        {"sentences-min", "He said \"stop it right now.\" Then he left...", 2},
        {"sentences-min",
         "\xe4\xbd\xa0\xe5\xa5\xbd\xe5\x90\x97\xe4\xb8\x96\xe7\x95\x8c"
         "\xe3\x80\x82\xe5\xa5\xbd\xe3\x80\x82",
         2},
        {"lorem-ipsum-max", "Lorem ipsum, lorem Ipsum; lorem  ipsum", 2},
        {"braces-max", "f() { return {1}; ", 3},
    };
    double value[FILTER_RULES];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        measure(cases[i].text, value);
        double found = value[rule_of(cases[i].rule)];
        if (found != cases[i].value)
            fail_msg("%s of \"%s\" is %g, expected %g", cases[i].rule, cases[i].text, found,
                     cases[i].value);
    }
}

/* ---- repetition ------------------------------------------------------------------------------ */

enum { PIECES = 60 };

static uint64_t draw(uint64_t seed, uint64_t index)
{
    uint64_t key[2] = {seed, index};
    return ls_hash64(key, sizeof key, 5);
}

/* Words of 1 to 9 letters, few of them, so that n-grams repeat. */
static int draw_words(uint64_t seed, char words[PIECES][16], char text[PIECES * 16])
{
    int count = 1 + (int)(draw(seed, 1000) % PIECES), kinds = 1 + (int)(draw(seed, 1001) % 8);
    text[0] = 0;
    for (int i = 0; i < count; i++) {
        int kind = (int)(draw(seed, (uint64_t)i) % (uint64_t)kinds);
        snprintf(words[i], 16, "%.*s%c", kind, "abcdefgh", 'p' + kind);
        strcat(strcat(text, words[i]), i % 7 == 6 ? "\n" : " ");
    }
    return count;
}

static bool equal_grams(char words[PIECES][16], int a, int b, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(words[a + i], words[b + i]) != 0)
            return false;
    return true;
}

static int length_of(char words[PIECES][16], int first, int n)
{
    int length = 0;
    for (int i = 0; i < n; i++)
        length += (int)strlen(words[first + i]);
    return length;
}

static double top_gram(char words[PIECES][16], int count, int n)
{
    int most = 1, covered = 0;
    for (int i = 0; i + n <= count; i++) {
        int times = 0, length = length_of(words, i, n);
        for (int j = 0; j + n <= count; j++)
            times += equal_grams(words, i, j, n);
        if (times > 1 && (times > most || (times == most && times * length > covered))) {
            most = times;
            covered = times * length;
        }
    }
    return (double)covered / length_of(words, 0, count);
}

static double duplicate_grams(char words[PIECES][16], int count, int n)
{
    int seen[PIECES], seen_count = 0, covered = 0;
    for (int i = 0; i + n <= count;) {
        bool repeats = false;
        for (int j = 0; j < seen_count; j++)
            repeats |= equal_grams(words, seen[j], i, n);
        if (!repeats)
            seen[seen_count++] = i;
        covered += repeats ? length_of(words, i, n) : 0;
        i += repeats ? n : 1;
    }
    return (double)covered / length_of(words, 0, count);
}

CASE(test_grams_are_those_of_all_pairs)
{
    static char words[PIECES][16], text[PIECES * 16];
    double value[FILTER_RULES];
    int repeated = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        int count = draw_words(seed, words, text);
        measure(text, value);
        for (int n = 2; n <= 10; n++) {
            double expected = n <= 4 ? top_gram(words, count, n) : duplicate_grams(words, count, n);
            double found =
                n <= 4 ? value[FILTER_TOP_2_GRAM + n - 2] : value[FILTER_DUPLICATE_5_GRAMS + n - 5];
            if (found != expected)
                fail_msg("%d-grams of \"%s\": %g, expected %g", n, text, found, expected);
            repeated += found > 0;
        }
    }
    assert_in_range(repeated, 300, 300 * 9 - 300);
}

CASE(test_lines_are_those_of_all_pairs)
{
    double value[FILTER_RULES];
    for (uint64_t seed = 0; seed < 200; seed++) {
        char lines[PIECES][16], text[PIECES * 24];
        int count = 1 + (int)(draw(seed, 1000) % PIECES), repeats = 0, within = 0, all = 0;
        text[0] = 0;
        /* Paragraphs of one line: the same numbers hold for both. */
        for (int i = 0; i < count; i++) {
            bool repeats_one = false;
            int kind = (int)(draw(seed, (uint64_t)i) % 30);
            snprintf(lines[i], 16, "%.*s%d", kind % 9, "abcdefgh", kind);
            strcat(strcat(strcat(text, i % 3 ? "  " : ""), lines[i]), i % 5 ? "\n\n" : " \n\t\n\n");
            for (int j = 0; j < i; j++)
                repeats_one |= strcmp(lines[i], lines[j]) == 0;
            repeats += repeats_one;
            within += repeats_one ? (int)strlen(lines[i]) : 0;
            all += (int)strlen(lines[i]);
        }
        measure(text, value);
        const double share = (double)repeats / count, characters = (double)within / all;
        assert_true(value[FILTER_DUPLICATE_LINES] == share);
        assert_true(value[FILTER_DUPLICATE_PARAGRAPHS] == share);
        assert_true(value[FILTER_DUPLICATE_LINE_CHARACTERS] == characters);
        assert_true(value[FILTER_DUPLICATE_PARAGRAPH_CHARACTERS] == characters);
    }
    measure("a\nb\n\na\nc\n\na\nb\n", value);
    assert_true(value[FILTER_DUPLICATE_LINES] == 0.5);
    assert_true(value[FILTER_DUPLICATE_PARAGRAPHS] == 1.0 / 3);
}

/* The table of a long document is not cleared for the short ones that follow. */
CASE(test_a_long_document_is_paid_for_once)
{
    enum { WORDS = 5000 };
    struct filter_scratch scratch = {0};
    static char words[PIECES][16], text[PIECES * 16], many[8 * WORDS];
    double alone[FILTER_RULES], behind[FILTER_RULES];
    size_t used = 0;
    for (int i = 0; i < WORDS; i++)
        used += (size_t)snprintf(many + used, sizeof many - used, "w%d ", i);
    measure_with(&scratch, many, behind);
    assert_true(scratch.slots_room >= 2 * WORDS);
    struct filter_slot *last = &scratch.slots[scratch.slots_room - 1];
    for (uint64_t seed = 0; seed < 20; seed++) {
        last->count = 7;
        draw_words(seed, words, text);
        measure(text, alone);
        measure_with(&scratch, text, behind);
        assert_memory_equal(alone, behind, sizeof alone);
        assert_int_equal(last->count, 7);
    }
    filter_scratch_release(&scratch);
}

/* ---- rules ----------------------------------------------------------------------------------- */

CASE(test_rules_are_parsed)
{
    struct ls_error error = {0};
    struct ls_filter filter;
    int count, used = 0;
    const struct ls_filter_rule *rules = ls_filter_rules(&count);
    assert_int_equal(count, FILTER_RULES);
    for (int i = 0; i < count; i++) { /* a name says on which side the bound is */
        assert_string_equal(strrchr(rules[i].name, '-'), rules[i].most ? "-max" : "-min");
        assert_ok(ls_filter_parse(rules[i].name, &filter, &error), error);
        for (int j = 0; j < count; j++)
            assert_int_equal(filter.used[j], j == i);
        assert_true(filter.bound[i] == rules[i].bound);
    }
    assert_ok(ls_filter_parse(NULL, &filter, &error), error);
    for (int i = 0; i < count; i++)
        used += filter.used[i];
    assert_true(used == 20 && !filter.used[FILTER_STOP_WORDS] && filter.used[FILTER_WORDS_MIN]);
    assert_ok(ls_filter_parse("c4,words-min=7.5", &filter, &error), error);
    assert_true(filter.used[FILTER_BRACES] && filter.bound[FILTER_WORDS_MIN] == 7.5);
    assert_false(filter.used[FILTER_WORDS_MAX]);
    static const struct {
        const char *text, *says;
    } bad[] = {{"", "no rule and no group of rules \"\""},
               {"gophr", "did you mean gopher?"},
               {"words-mn=3", "did you mean words-min?"},
               {"words-min=", "words-min = : expected a number"},
               {"words-min=x", "words-min = x: expected a number"},
               {"words-min=-1", "expected a number from 0 on"},
               {"words-min=nan", "expected a number from 0 on"},
               {"words-min=1e999", "expected a number from 0 on"},
               {"gopher=3", "no rule and no group of rules \"gopher\""},
               {"gopher any", "no rule and no group"},
               {"c4,,words-min", "no rule and no group of rules \"\""}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(ls_filter_parse(bad[i].text, &filter, &error), LS_ECONFIG);
        assert_text_contains(error.text, bad[i].says);
    }
}

/* ---- the removal ----------------------------------------------------------------------------- */

static int filter_file(const char *rules, const char *output, const char *list, int workers,
                       struct ls_filter_report *report, struct ls_error *error)
{
    char in[300], out[300], explain[300];
    struct ls_filter filter;
    snprintf(in, sizeof in, "%s/in.jsonl", support_folder);
    snprintf(out, sizeof out, "%s/%s", support_folder, output);
    snprintf(explain, sizeof explain, "%s/%s", support_folder, list ? list : "");
    const char *inputs[] = {in};
    assert_ok(ls_filter_parse(rules, &filter, error), *error);
    const struct ls_corpus_config config = {.inputs = inputs,
                                            .inputs_count = 1,
                                            .output = out,
                                            .part_documents = 100,
                                            .workers = workers};
    return ls_corpus_filter(&config, &filter, list ? explain : NULL, report, error);
}

/* Document i has i % 10 words; every 13th has a brace. */
static void words_corpus(int documents)
{
    FILE *in = fopen(support_path("in.jsonl"), "w");
    for (int i = 0; i < documents; i++) {
        fprintf(in, "{\"id\": %d, \"text\": \"", i);
        for (int j = 0; j < i % 10; j++)
            fputs("word ", in);
        fprintf(in, "%s\"}\n", i % 13 == 0 ? " {" : "");
    }
    fclose(in);
}

CASE_WITH(test_documents_are_counted_by_rule, support_setup, support_teardown)
{
    struct ls_error error = {0};
    struct ls_filter_report report;
    struct ls_text one = {0};
    enum { DOCUMENTS = 1300 };
    words_corpus(DOCUMENTS);
    for (int workers = 1; workers <= 4; workers++) {
        assert_ok(filter_file("words-min=3,braces-max=0", "out.jsonl", "explain.jsonl", workers,
                              &report, &error),
                  error);
        int short_ones = 0, braces = 0, kept = 0;
        struct ls_text found = support_read(support_path("out.jsonl"));
        char *at = found.bytes;
        for (int i = 0; i < DOCUMENTS; i++) {
            bool brace = i % 13 == 0, is_short = i % 10 + brace < 3; /* "{" is a word */
            short_ones += is_short;
            braces += brace;
            if (!brace && !is_short) {
                char id[32];
                int length = snprintf(id, sizeof id, "{\"id\": %d, ", i);
                assert_memory_equal(at, id, length);
                at = strchr(at, '\n') + 1;
                kept++;
            }
        }
        assert_int_equal(*at, 0);
        assert_int_equal(report.corpus.documents, DOCUMENTS);
        assert_int_equal(report.corpus.removed, DOCUMENTS - kept);
        assert_int_equal(report.failed[FILTER_WORDS_MIN], short_ones);
        assert_int_equal(report.first[FILTER_WORDS_MIN], short_ones);
        assert_int_equal(report.failed[FILTER_BRACES], braces);
        assert_int_equal(report.first[FILTER_BRACES], DOCUMENTS - kept - short_ones);
        ls_text_release(&found);
        found = support_read(support_path("explain.jsonl"));
        assert_text_contains(found.bytes, "{\"number\": 0, \"document\": \"");
        assert_text_contains(found.bytes, "in.jsonl:1\", \"rules\": \"words-min,braces-max\", "
                                          "\"value\": 1, \"bound\": 3}\n");
        if (one.bytes) { /* the same for any number of threads */
            assert_int_equal(one.count, found.count);
            assert_memory_equal(one.bytes, found.bytes, one.count);
            ls_text_release(&found);
        } else {
            one = found;
        }
    }
    ls_text_release(&one);
}

/* A job whose last parts are gone makes these alone, and counts all of them. */
CASE_WITH(test_a_job_goes_on_behind_its_parts, support_setup, support_teardown)
{
    struct ls_error error = {0};
    struct ls_filter_report whole, report;
    static const char *const lost[] = {"parts/000002.jsonl", "parts/000002.removed.jsonl",
                                       "parts/000003.jsonl"};
    char names[2048];
    words_corpus(350);
    mkdir(support_path("parts"), 0777);
    assert_ok(filter_file("words-min=3,braces-max=0", "parts", NULL, 2, &whole, &error), error);
    struct ls_text last = support_read(support_path("parts/000003.jsonl"));
    for (int i = 0; i < 3; i++)
        remove(support_path(lost[i]));
    scratch_write(support_path("parts/000001.jsonl"), "mine", 4);
    assert_ok(filter_file("words-min=3,braces-max=0", "parts", NULL, 2, &report, &error), error);
    assert_int_equal(report.corpus.resumed, 200);
    assert_int_equal(report.corpus.documents, 350);
    assert_int_equal(report.corpus.removed, whole.corpus.removed);
    assert_memory_equal(report.first, whole.first, sizeof whole.first);
    assert_memory_equal(report.failed, whole.failed, sizeof whole.failed);
    struct ls_text mine = support_read(support_path("parts/000001.jsonl"));
    assert_string_equal(mine.bytes, "mine");
    ls_text_release(&mine);
    support_same(support_read(support_path("parts/000003.jsonl")), last);
    support_list(support_path("parts"), names);
    assert_string_equal(names, "000000.jsonl 000000.removed.jsonl 000001.jsonl "
                               "000001.removed.jsonl 000002.jsonl 000002.removed.jsonl "
                               "000003.jsonl 000003.removed.jsonl job.txt ");
    assert_int_equal(filter_file("words-min=4", "parts", NULL, 2, &report, &error), LS_EINVAL);
    assert_text_contains(error.text, "its parts are of another job");
    assert_int_equal(filter_file("words-min=3,braces-max=0", "parts", "list", 2, &report, &error),
                     LS_EINVAL);
}

/* Standard input becomes a pipe with this text. */
static void pipe_in(const char *text)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], text, strlen(text)), strlen(text));
    assert_true(dup2(ends[0], STDIN_FILENO) == STDIN_FILENO);
    close(ends[0]);
    close(ends[1]);
}

/* job.txt knows no more of a pipe than its name, so what it brings later is not taken for the
 * documents of the parts. */
CASE_WITH(test_a_pipe_adds_to_no_parts, support_setup, support_teardown)
{
    struct ls_error error = {0};
    struct ls_filter filter;
    struct ls_filter_report report;
    const char *inputs[] = {"jsonl:-"};
    char parts[300];
    const int before = dup(STDIN_FILENO);
    snprintf(parts, sizeof parts, "%s/parts/", support_folder);
    const struct ls_corpus_config config = {
        .inputs = inputs, .inputs_count = 1, .output = parts, .part_documents = 2, .workers = 1};
    assert_ok(ls_filter_parse("words-min=1", &filter, &error), error);
    pipe_in("{\"text\": \"a\"}\n{\"text\": \"b\"}\n{\"text\": \"c\"}\n");
    assert_ok(ls_corpus_filter(&config, &filter, NULL, &report, &error), error);
    assert_int_equal(report.corpus.documents, 3);
    pipe_in("{\"text\": \"d\"}\n{\"text\": \"e\"}\n{\"text\": \"f\"}\n");
    assert_int_equal(ls_corpus_filter(&config, &filter, NULL, &report, &error), LS_EINVAL);
    assert_text_contains(error.text, "has parts, and input /dev/stdin is no regular file");
    /* Nothing was read: without its first part the folder is the job's again. */
    remove(support_path("parts/000000.jsonl"));
    assert_ok(ls_corpus_filter(&config, &filter, NULL, &report, &error), error);
    assert_int_equal(report.corpus.documents, 3);
    struct ls_text first = support_read(support_path("parts/000000.jsonl"));
    assert_string_equal(first.bytes, "{\"text\": \"d\"}\n{\"text\": \"e\"}\n");
    ls_text_release(&first);
    assert_true(dup2(before, STDIN_FILENO) == STDIN_FILENO);
    close(before);
}

/* The parts of a folder are documents for the next tool; what says how they were made is not. */
CASE_WITH(test_parts_are_an_input, support_setup, support_teardown)
{
    struct ls_error error = {0};
    struct ls_filter filter;
    struct ls_filter_report made, report;
    char parts[300], out[300];
    words_corpus(350);
    mkdir(support_path("parts"), 0777);
    assert_ok(filter_file("words-min=3", "parts", NULL, 1, &made, &error), error);
    assert_ok(filter_file("words-min=3", "whole.jsonl", NULL, 1, &made, &error), error);
    snprintf(parts, sizeof parts, "%s/parts/", support_folder);
    snprintf(out, sizeof out, "%s/again.jsonl", support_folder);
    const char *inputs[] = {parts};
    const struct ls_corpus_config config = {
        .inputs = inputs, .inputs_count = 1, .output = out, .workers = 1};
    assert_ok(ls_filter_parse("words-min=3", &filter, &error), error);
    assert_ok(ls_corpus_filter(&config, &filter, NULL, &report, &error), error);
    assert_int_equal(report.corpus.documents, made.corpus.documents - made.corpus.removed);
    support_same(support_read(out), support_read(support_path("whole.jsonl")));
    /* Such names are documents in a folder that no tool made. */
    scratch_write(support_path("parts/job.txt"), "a job of mine", 13);
    assert_int_equal(ls_corpus_filter(&config, &filter, NULL, &report, &error), LS_EDATA);
    assert_text_contains(error.text, "000000.removed.jsonl:1: ");
}

SUITE_MAIN(NULL, NULL)
