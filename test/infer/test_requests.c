/* Files of prompts and of texts to score: what is read, and what is refused, by file and line. */
#include "../support/scratch.h"
#include "../support/suite.h"

#include <lockstep/base/file.h>
#include <lockstep/infer.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VOCABULARY = 257, END = 256 };

static struct ls_tokenizer *tokenizer;
static const struct ls_text_reader only_ids = {.vocabulary = VOCABULARY};

static const struct ls_text_reader *reader(void)
{
    static struct ls_text_reader with_text = {.vocabulary = VOCABULARY};
    with_text.tokenizer = tokenizer;
    return &with_text;
}

static struct ls_text_requests read_good(const char *name, const char *text,
                                         enum ls_request_kind kind)
{
    struct ls_error error = {0};
    struct ls_text_requests out;
    if (ls_requests_parse(name, text, strlen(text), kind, reader(), &out, &error))
        fail_msg("%s: %s", text, error.text);
    return out;
}

static void check_tokens(const struct ls_text_request *request, const char *text, int64_t first)
{
    assert_int_equal(request->tokens.count, strlen(text));
    for (size_t i = 0; i < strlen(text); i++) /* \1 stands for the end of a document */
        assert_int_equal(request->tokens.ids[i], text[i] == 1 ? END : text[i]);
    assert_int_equal(request->first, first);
}

CASE(test_prompts)
{
    struct ls_text_requests lines = read_good("p.txt", "one\r\n\n  \ntwo {\nlast", LS_PROMPTS);
    assert_int_equal(lines.count, 3);
    check_tokens(&lines.list[0], "one", 3);
    check_tokens(&lines.list[1], "two {", 5);
    check_tokens(&lines.list[2], "last", 4);
    assert_int_equal(lines.list[2].line, 5);
    ls_requests_release(&lines);
    struct ls_text_requests objects =
        read_good("p.jsonl",
                  "\xef\xbb\xbf{\"prompt\": \"a\\nb\", \"stop\": \"x\", \"other\": 1}\r\n"
                  "{\"prompt\": [104, 105], \"max_tokens\": 7, \"stop\": [\"y\", \"zz\"]}\n"
                  "{\"prompt\": \"\"}\n",
                  LS_PROMPTS);
    assert_int_equal(objects.count, 3);
    check_tokens(&objects.list[0], "a\nb", 3);
    assert_string_equal(objects.list[0].stops[0], "x");
    check_tokens(&objects.list[1], "hi", 2);
    assert_int_equal(objects.list[1].tokens_max, 7);
    assert_int_equal(objects.list[1].stop_count, 2);
    assert_string_equal(objects.list[1].stops[1], "zz");
    check_tokens(&objects.list[2], "\n", 1);
    ls_requests_release(&objects);
}

/* The last token that is added needs no room; one token of a prompt is not what was asked. */
CASE(test_prompts_are_cut_to_what_fits)
{
    static const struct {
        int64_t added, cut;
        const char *kept; /* of the second prompt */
        const char *refused;
    } cases[] = {{1, 0, "abcdef", NULL},
                 {3, 0, "abcdef", NULL},
                 {5, 1, "cdef", NULL},
                 {7, 1, "ef", NULL},
                 {8, 0, NULL, "line 2 has 6 tokens, and 8 are to be added (max_tokens, --tokens)"},
                 {INT64_MAX, 0, NULL, "expected at most 7 to be added"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_error error = {0};
        struct ls_text_requests out = read_good("p.jsonl",
                                                "{\"prompt\": \"a\"}\n{\"prompt\": \"abcdef\"}\n"
                                                "{\"prompt\": \"abcd\", \"max_tokens\": 5}",
                                                LS_PROMPTS);
        int64_t cut = -1;
        int status = ls_prompts_truncate(&out, 8, cases[i].added, &cut, &error);
        assert_int_equal(status, cases[i].refused ? LS_EDATA : LS_OK);
        if (cases[i].refused) {
            assert_text_contains(error.text, cases[i].refused);
        } else {
            assert_int_equal(cut, cases[i].cut);
            check_tokens(&out.list[0], "a", 1);
            check_tokens(&out.list[1], cases[i].kept, (int64_t)strlen(cases[i].kept));
            check_tokens(&out.list[2], "abcd", 4);
        }
        ls_requests_release(&out);
    }
}

CASE(test_texts_to_score)
{
    struct ls_text_requests out =
        read_good("s.jsonl",
                  "{\"context\": \"ab \\t\", \"continuation\": \"cd\"}\n"
                  "{\"context\": \"\", \"continuation\": \"cd\"}\n"
                  "{\"context\": [], \"continuation\": [99]}\n"
                  "{\"context\": [97, 98], \"continuation\": \"c\"}\n"
                  "{\"text\": \"abc\"}\n"
                  "{\"tokens\": [97, 98, 99]}\n"
                  "{\"tokens\": [97, 98, 99], \"prompt_tokens\": 2, \"text\": \"abc\"}\n",
                  LS_SCORES);
    assert_int_equal(out.count, 7);
    check_tokens(&out.list[0], "ab \tcd", 2); /* the white space is the continuation's */
    check_tokens(&out.list[1], "\1cd", 1);
    check_tokens(&out.list[2], "\1c", 1);
    check_tokens(&out.list[3], "abc", 2);
    check_tokens(&out.list[4], "\1abc", 1);
    assert_true(out.list[4].whole && !out.list[0].whole);
    check_tokens(&out.list[5], "abc", 1);
    check_tokens(&out.list[6], "abc", 2);
    ls_requests_release(&out);
}

/* Of a context's end, in any language: what Python's rstrip takes. */
CASE(test_white_space_at_a_context_s_end)
{
    static const struct {
        const char *context;
        int64_t first;
    } cases[] = {
        {"ab\u00a0", 2},         {"ab\u3000", 2},  {"ab \u2003\u2028", 2},
        {"ab\\u001c\\u001f", 2}, {"ab\\u0085", 2}, {"ab\u200b", 5},
        {"ab\\u0000", 3},        {"a\u3000b", 5},  {"\u3000\u00e9", 5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[200];
        snprintf(line, sizeof line, "{\"context\": \"%s\", \"continuation\": \"c\"}",
                 cases[i].context);
        struct ls_text_requests out = read_good("s.jsonl", line, LS_SCORES);
        if (out.list[0].first != cases[i].first)
            fail_msg("%s: %lld tokens of context, expected %lld", line,
                     (long long)out.list[0].first, (long long)cases[i].first);
        ls_requests_release(&out);
    }
}

CASE(test_bad_lines_are_named)
{
    static const struct {
        const char *name, *text, *words;
        enum ls_request_kind kind;
    } cases[] = {
        {"p.txt", "", "p.txt holds no prompts", LS_PROMPTS},
        {"p.jsonl", "\n \n", "p.jsonl holds no prompts", LS_PROMPTS},
        {"p.jsonl", "{\"prompt\": \"a\"}\nb\n", "p.jsonl:2: column 1", LS_PROMPTS},
        {"p.jsonl", "[1]",
         "p.jsonl:1: expected one JSON object a line, {\"prompt\": \"TEXT\"} or {\"prompt\": [1, 2",
         LS_PROMPTS},
        {"p.jsonl", "{\"promt\": 1}",
         "p.jsonl:1: no key \"prompt\": expected one, with a string or a list of token ids",
         LS_PROMPTS},
        {"p.jsonl", "{\"prompt\": 1}", "\"prompt\": expected a string or a list", LS_PROMPTS},
        {"p.jsonl", "{\"prompt\": []}", "expected at least one token", LS_PROMPTS},
        {"p.jsonl", "{\"prompt\": [1, 257]}",
         "\"prompt\", value 2: expected token ids from 0 to 256", LS_PROMPTS},
        {"p.jsonl", "{\"prompt\": [1, -1]}", "value 2", LS_PROMPTS},
        {"p.jsonl", "{\"prompt\": [1.5]}", "value 1", LS_PROMPTS},
        {"p.jsonl", "{\"prompt\": \"a\", \"max_tokens\": 0}", "\"max_tokens\": expected a whole",
         LS_PROMPTS},
        {"p.jsonl", "{\"prompt\": \"a\", \"stop\": \"\"}", "\"stop\": expected a string",
         LS_PROMPTS},
        {"p.jsonl", "{\"prompt\": \"a\", \"stop\": [1]}", "\"stop\": expected a string",
         LS_PROMPTS},
        {"p.jsonl", "{\"prompt\": \"a\", \"stop\": \"\\u0000\"}", "\"stop\": expected a string",
         LS_PROMPTS},
        {"p.jsonl", "{\"prompt\": \"a\", \"prompt\": \"b\"}", "p.jsonl:1: column", LS_PROMPTS},
        {"s.jsonl", "{\"context\": \"a\"}", "s.jsonl:1: expected \"context\" and", LS_SCORES},
        {"s.jsonl", "{\"continuation\": \"a\"}", "no key \"context\"", LS_SCORES},
        {"s.jsonl", "{\"context\": \"a\", \"continuation\": \"\"}", "holds nothing to score",
         LS_SCORES},
        {"s.jsonl", "{\"tokens\": []}", "s.jsonl:1: \"tokens\": expected at least one", LS_SCORES},
        {"s.jsonl", "{\"tokens\": [1], \"prompt_tokens\": 3}", "\"prompt_tokens\" is 3, of 1",
         LS_SCORES},
        {"s.jsonl", "{\"tokens\": \"a\"}", "\"tokens\": expected a list", LS_SCORES},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ls_error error = {0};
        struct ls_text_requests out;
        int status = ls_requests_parse(cases[i].name, cases[i].text, strlen(cases[i].text),
                                       cases[i].kind, reader(), &out, &error);
        if (status != LS_EDATA || !strstr(error.text, cases[i].words))
            fail_msg("%s: %d \"%s\", expected \"%s\"", cases[i].text, status, error.text,
                     cases[i].words);
        assert_null(out.list);
    }
}

CASE(test_ids_need_no_tokenizer)
{
    static const char good[] = "{\"context\": [97], \"continuation\": [98]}";
    static const char *const bad[] = {"{\"context\": [97], \"continuation\": \"b\"}",
                                      "{\"context\": [], \"continuation\": [98]}"};
    struct ls_error error = {0};
    struct ls_text_requests out;
    assert_int_equal(
        ls_requests_parse("s.jsonl", good, strlen(good), LS_SCORES, &only_ids, &out, &error),
        LS_OK);
    check_tokens(&out.list[0], "ab", 1);
    ls_requests_release(&out);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ls_requests_parse("s.jsonl", bad[i], strlen(bad[i]), LS_SCORES, &only_ids,
                                           &out, &error),
                         LS_ECONFIG);
}

/* As transformers encodes a prompt. */
CASE(test_special_tokens)
{
    static const char text[] = "{\"prompt\": \"a<|end_of_text|>\", \"text\": \"a<|end_of_text|>\"}";
    static const struct {
        struct ls_encode_options encode;
        enum ls_request_kind kind;
        int begins, ends;
    } cases[] = {
        {{.special = true, .around = true}, LS_PROMPTS, 1, 1},
        {{.special = true}, LS_PROMPTS, 0, 1},
        {{.around = true}, LS_PROMPTS, 1, 0},
        {{0}, LS_PROMPTS, 0, 0},
        {{.special = true, .around = true}, LS_SCORES, 1, 1},
    };
    struct ls_error error = {0};
    struct ls_tokenizer *llama3;
    assert_ok(ls_tokenizer_new("test/data/golden/families/llama3.json", &llama3, &error), error);
    int32_t bos = ls_tokenizer_id(llama3, "<|begin_of_text|>"), end = ls_tokenizer_eod(llama3);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct ls_text_reader by = {
            .tokenizer = llama3, .vocabulary = 10000, .encode = cases[i].encode};
        struct ls_text_requests out;
        assert_ok(
            ls_requests_parse("s.jsonl", text, strlen(text), cases[i].kind, &by, &out, &error),
            error);
        const struct ls_token_list *ids = &out.list[0].tokens;
        int begins = 0, ends = 0;
        for (int64_t t = 0; t < ids->count; t++) {
            begins += ids->ids[t] == bos && t == 0;
            ends += ids->ids[t] == end;
        }
        assert_int_equal(begins, cases[i].begins);
        assert_int_equal(ends, cases[i].ends);
        ls_requests_release(&out);
    }
    ls_tokenizer_free(llama3);
}

/* "^" for what begins a text, "$" for what ends one, "|" before the first that is scored. */
static void request_show(const struct ls_text_request *request, const struct ls_tokenizer *by,
                         char shown[200])
{
    struct ls_error error = {0};
    size_t at = 0;
    for (int64_t i = 0; i < request->tokens.count; i++) {
        const int32_t *id = &request->tokens.ids[i];
        const char *mark = *id == ls_tokenizer_bos(by)   ? "^"
                           : *id == ls_tokenizer_eos(by) ? "$"
                                                         : NULL;
        struct ls_text text = {0};
        assert_ok(ls_decode(by, id, 1, &text, &error), error);
        at += (size_t)snprintf(shown + at, 200 - at, "%s%.*s", i == request->first ? "|" : "",
                               mark ? 1 : (int)text.count, mark ? mark : text.bytes);
        assert_in_range(at, 0, 199);
        ls_text_release(&text);
    }
}

/* As lm-evaluation-harness has it: what the tokenizer puts in front counts, special tokens are
 * tokens, and bos stands for an empty context. Nothing is behind, even if the tokenizer puts it
 * there. */
CASE(test_texts_to_score_begin_with_bos)
{
    static const struct ls_encode_options both = {.special = true, .around = true},
                                          special = {.special = true}, around = {.around = true};
    static const struct {
        const char *line, *shown;
        const struct ls_encode_options *encode;
    } cases[] = {
        {"{\"context\": \"a\", \"continuation\": \" b\"}", "^a| b", &both},
        {"{\"context\": \"a\", \"continuation\": \" b\"}", "a| b", &special},
        {"{\"context\": \"a\", \"continuation\": [65]}", "^a|b", &both},
        {"{\"context\": [64], \"continuation\": \"b\"}", "a|b", &both},
        {"{\"context\": \"<|begin_of_text|>a\", \"continuation\": \" b\"}", "^a| b", &both},
        {"{\"context\": \"a<|end_of_text|>\", \"continuation\": \"b\"}", "^a$|b", &both},
        {"{\"context\": \"a<|end_of_text|>\", \"continuation\": \" b\"}", "^a<|end_of_text|>| b",
         &around},
        {"{\"context\": \"\", \"continuation\": \"a\"}", "^|a", &both},
        {"{\"context\": \"\", \"continuation\": \"a\"}", "^|a", &special},
        {"{\"context\": \"\", \"continuation\": \"<|begin_of_text|>a\"}", "^|a", &both},
        {"{\"context\": \"\", \"continuation\": [64]}", "^|a", &both},
        {"{\"context\": [], \"continuation\": [64]}", "^|a", &both},
        {"{\"context\": \" \", \"continuation\": \"a\"}", "^| a", &both},
        {"{\"text\": \"a b\"}", "^|a b", &both},
        {"{\"text\": \"<|begin_of_text|>a b\"}", "^|a b", &both},
        {"{\"text\": \"a b\"}", "^|a b", &special},
        {"{\"text\": [64]}", "^|a", &both},
        {"{\"tokens\": [64, 65]}", "a|b", &both},
    };
    static const char settings[] =
        "{\"bos_token\": \"<|begin_of_text|>\", \"eos_token\": \"<|end_of_text|>\", "
        "\"add_bos_token\": true, \"add_eos_token\": true}";
    struct ls_error error = {0};
    struct ls_tokenizer *llama3;
    char shown[200], *vocabulary;
    size_t bytes;
    assert_ok(ls_file_read("test/data/golden/families/llama3.json", 1 << 24, LS_EDATA, &vocabulary,
                           &bytes, &error),
              error);
    assert_int_equal(mkdir(scratch_path(*state, "llama3"), 0777), 0);
    scratch_write(scratch_path(*state, "llama3/tokenizer.json"), vocabulary, bytes);
    scratch_write(scratch_path(*state, "llama3/tokenizer_config.json"), settings, strlen(settings));
    free(vocabulary);
    assert_ok(ls_tokenizer_new(scratch_path(*state, "llama3"), &llama3, &error), error);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct ls_text_reader by = {
            .tokenizer = llama3, .vocabulary = 10000, .encode = *cases[i].encode};
        struct ls_text_requests out;
        const char *line = cases[i].line;
        assert_ok(ls_requests_parse("s.jsonl", line, strlen(line), LS_SCORES, &by, &out, &error),
                  error);
        request_show(out.list, llama3, shown);
        if (strcmp(shown, cases[i].shown))
            fail_msg("%s: %s, expected %s", line, shown, cases[i].shown);
        ls_requests_release(&out);
    }
    const struct ls_text_reader small = {.tokenizer = llama3, .vocabulary = 300};
    struct ls_text_requests out;
    static const char empty[] = "{\"context\": \"\", \"continuation\": \"a\"}";
    assert_int_equal(
        ls_requests_parse("s.jsonl", empty, strlen(empty), LS_SCORES, &small, &out, &error),
        LS_EDATA);
    assert_non_null(strstr(error.text, "s.jsonl:1: the context is empty, and the tokenizer's"));
    ls_tokenizer_free(llama3);
}

/* generation_config.json, and the ids of config.json where it has none, as transformers reads them.
 */
CASE(test_a_folder_says_how)
{
    static const struct {
        const char *generation, *model;
        bool sampled;
        struct ls_sampling sampling;
        int32_t ends[3];
        int end_count;
        const char *unsupported;
    } cases[] = {
        {NULL, NULL, false, {0, 0, 0}, {0}, 0, ""},
        {NULL, "{\"eos_token_id\": 5}", false, {0, 0, 0}, {5}, 1, ""},
        {"{\"eos_token_id\": null}", "{\"eos_token_id\": 5}", false, {0, 0, 0}, {5}, 1, ""},
        {"{\"eos_token_id\": [7, 8, 99999]}",
         "{\"eos_token_id\": 5}",
         false,
         {0, 0, 0},
         {7, 8},
         2,
         ""},
        {"{\"do_sample\": true, \"temperature\": 0.5, \"top_p\": 0.25}",
         "{}",
         true,
         {0.5f, 0.25f, 50},
         {0},
         0,
         ""},
        {"{\"do_sample\": false, \"temperature\": 0.5}", "{}", true, {0, 1, 0}, {0}, 0, ""},
        {"{\"temperature\": 0.5, \"num_beams\": 1, \"repetition_penalty\": 1.1, \"top_h\": 0.4, "
         "\"watermarking_config\": null, \"max_time\": 3}",
         "{}",
         false,
         {0, 0, 0},
         {0},
         0,
         "repetition_penalty = 1.1, top_h = 0.4, max_time = 3"},
    };
    char generation[600], model[600];
    struct ls_error error = {0};
    struct ls_generation_defaults found;
    snprintf(generation, sizeof generation, "%s", scratch_path(*state, "generation_config.json"));
    snprintf(model, sizeof model, "%s", scratch_path(*state, "config.json"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].generation)
            scratch_write(generation, cases[i].generation, strlen(cases[i].generation));
        if (cases[i].model)
            scratch_write(model, cases[i].model, strlen(cases[i].model));
        if (ls_generation_defaults_read(*state, VOCABULARY, &found, &error))
            fail_msg("%zu: %s", i, error.text);
        assert_int_equal(found.sampled, cases[i].sampled);
        assert_true(found.sampling.temperature == cases[i].sampling.temperature);
        assert_true(found.sampling.top_p == cases[i].sampling.top_p);
        assert_int_equal(found.sampling.top_k, cases[i].sampling.top_k);
        assert_int_equal(found.end_count, cases[i].end_count);
        assert_memory_equal(found.ends, cases[i].ends, sizeof cases[i].ends);
        assert_string_equal(found.unsupported, cases[i].unsupported);
    }
}

CASE(test_a_folder_says_it_wrongly)
{
    static const char *const bad[] = {"{\"eos_token_id\": \"</s>\"}",
                                      "{\"eos_token_id\": [-1]}",
                                      "{\"do_sample\": true, \"temperature\": \"hot\"}",
                                      "{\"do_sample\": true, \"top_k\": 0.5}",
                                      "{\"do_sample\": \"yes\"}",
                                      "{\"temperature\": \"hot\"}",
                                      "{\"top_k\": 1.5}",
                                      "{\"eos_token_id\": \"2\"}",
                                      "[]",
                                      "{\"max_new_tokens\": 0}",
                                      "{\"max_length\": 20.0}"};
    struct ls_error error = {0};
    struct ls_generation_defaults found;
    const char *generation = scratch_path(*state, "generation_config.json");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        scratch_write(generation, bad[i], strlen(bad[i]));
        assert_int_equal(ls_generation_defaults_read(*state, VOCABULARY, &found, &error),
                         LS_ECONFIG);
        assert_non_null(strstr(error.text, "generation_config.json:"));
    }
    unlink(generation);
}

/* A stranger's folder must not name files of this machine. */
CASE(test_a_folder_links_to_its_own)
{
    struct ls_error error = {0};
    struct ls_generation_defaults found;
    const char *path = scratch_path(*state, "generation_config.json");
    unlink(path);
    assert_int_equal(symlink("/dev/null", path), 0);
    assert_int_equal(ls_generation_defaults_read(*state, VOCABULARY, &found, &error), LS_EIO);
    assert_non_null(strstr(error.text, "links to /dev/null, which is not in the folder"));
    unlink(path);
}

/* The first counts before the second, as in transformers. */
CASE(test_a_folder_says_how_long)
{
    static const struct {
        const char *generation;
        int64_t tokens, length;
    } cases[] = {{"{\"max_new_tokens\": null}", 0, 0},
                 {"{\"max_new_tokens\": null, \"max_length\": 9}", 0, 9},
                 {"{\"max_new_tokens\": 7, \"max_length\": 9}", 7, 0}};
    struct ls_error error = {0};
    struct ls_generation_defaults found;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scratch_write(scratch_path(*state, "generation_config.json"), cases[i].generation,
                      strlen(cases[i].generation));
        assert_ok(ls_generation_defaults_read(*state, VOCABULARY, &found, &error), error);
        assert_int_equal(found.tokens, cases[i].tokens);
        assert_int_equal(found.length, cases[i].length);
    }
}

CASE(test_files_of_one_text)
{
    struct ls_error error = {0};
    struct ls_token_list ids;
    char text[600];
    snprintf(text, sizeof text, "%s", scratch_path(*state, "lines.jsonl"));
    static const char lines[] = "{\"position\": 0, \"id\": 5}\n\n{\"id\": 256, \"text\": \"x\"}\n";
    scratch_write(text, lines, strlen(lines));
    assert_int_equal(ls_token_lines_read(text, VOCABULARY, &ids, &error), LS_OK);
    assert_int_equal(ids.count, 2);
    assert_int_equal(ids.ids[1], 256);
    ls_token_list_release(&ids);
    assert_int_equal(ls_token_lines_read(text, 256, &ids, &error), LS_EDATA);
    assert_non_null(strstr(error.text, "lines.jsonl:3: \"id\": expected a token id from 0 to 255"));
    assert_int_equal(ls_token_text_read(text, reader(), &ids, &error), LS_OK);
    assert_int_equal(ids.count, strlen(lines));
    ls_token_list_release(&ids);
    scratch_write(text, "", 0);
    assert_int_equal(ls_token_lines_read(text, VOCABULARY, &ids, &error), LS_EDATA);
    assert_int_equal(ls_token_text_read(text, reader(), &ids, &error), LS_EDATA);
    assert_int_equal(ls_token_lines_read(scratch_path(*state, "none"), VOCABULARY, &ids, &error),
                     LS_EIO);
}

static int setup(void **state)
{
    struct ls_error error = {0};
    return scratch_setup(state) || ls_tokenizer_new("byte", &tokenizer, &error);
}

static int teardown(void **state)
{
    ls_tokenizer_free(tokenizer);
    return scratch_teardown(state);
}

SUITE_MAIN(setup, teardown)
