/* Which tokens count: from examples to a mask, from a mask to targets, and masks that are refused.
 */
#include "support.h"

#include "data/data_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int prepare(const char *name, const char *text, struct ls_prepare_config config,
                   struct ls_prepare_report *report, struct ls_error *error)
{
    static char input[300], output[300];
    const char *inputs[] = {input};
    snprintf(input, sizeof input, "%s/%s", support_folder, name);
    snprintf(output, sizeof output, "%s/c", support_folder);
    scratch_write(input, text, strlen(text));
    config.inputs = inputs;
    config.inputs_count = 1;
    config.output = output;
    config.tokenizer = config.tokenizer ? config.tokenizer : "byte";
    config.workers = 2;
    return ls_data_prepare(&config, report, error);
}

static const struct ls_prepare_config pairs = {.records = LS_RECORDS_PAIRS, .append_eod = true};

/* The store's text; a token that does not count is '.', one that ends a document '|'. */
static void counted_text(const char *store_path, char *text, size_t size)
{
    struct ls_error error = {0};
    struct ls_token_store *store;
    assert_ok(ls_token_store_open(store_path, &store, &error), error);
    int64_t tokens = ls_token_store_tokens(store), counted = 0;
    int32_t ids[200];
    assert_true(tokens < 200 && (size_t)tokens < size);
    assert_ok(ls_token_store_read(store, 0, tokens, 257, ids, &error), error);
    support_mask(store, 0, tokens, ids);
    for (int64_t i = 0; i < tokens; i++) {
        text[i] = ids[i] < 0 ? '.' : ids[i] == 256 ? '|' : (char)ids[i];
        counted += ids[i] >= 0;
    }
    text[tokens] = 0;
    for (int64_t first = 0; first <= tokens; first++) { /* every range, against its tokens */
        int64_t expected = 0;
        for (int64_t count = 0; first + count <= tokens; count++) {
            assert_int_equal(support_counted(store, first, count), expected);
            if (first + count < tokens)
                expected += ids[first + count] >= 0;
        }
    }
    assert_int_equal(ls_token_store_file(store, 0).counted, counted);
    ls_token_store_close(store);
}

static const char examples[] =
    "{\"prompt\": \"2+2=\", \"completion\": \"4\"}\n"
    "{\"completion\": \"Paris.\", \"prompt\": \"The capital of France? \"}\n"
    "\n"
    "{\"prompt\": \"\", \"completion\": \"nothing asked\", \"id\": 7}\n"
    "{\"prompt\": \"Say \\u00e9 and 20 more: \", \"completion\": \"\\u00e9\"}\n";

CASE_WITH(test_completions_count, support_setup, support_teardown)
{
    struct ls_error error = {0};
    struct ls_prepare_report report;
    char text[200];
    assert_ok(prepare("x.jsonl", examples, pairs, &report, &error), error);
    counted_text(support_path("c_train"), text, sizeof text);
    assert_string_equal(text, "....4|"
                              ".......................Paris.|"
                              "nothing asked|"
                              "....................\xc3\xa9|");
    assert_int_equal(report.train.counted, 2 + 7 + 14 + 3);
    assert_int_equal(report.train.documents, 4);
    /* The end of a document is not always asked for. */
    struct ls_prepare_config config = pairs;
    config.append_eod = false;
    assert_ok(prepare("x.jsonl", examples, config, &report, &error), error);
    assert_int_equal(report.train.counted, 1 + 6 + 13 + 2);
    /* What is prepared as text afterwards has no mask, and all of it counts. */
    config = (struct ls_prepare_config){.json_key = "prompt"};
    assert_ok(prepare("x.jsonl", examples, config, &report, &error), error);
    assert_int_not_equal(access(support_path("c_train.mask"), F_OK), 0);
    assert_int_equal(report.train.counted, report.train.tokens);
}

/* Examples are held out whole, wherever their completions end. */
CASE_WITH(test_examples_are_held_out_whole, support_setup, support_teardown)
{
    struct ls_error error = {0};
    struct ls_prepare_report report;
    struct ls_prepare_config config = pairs;
    char text[200];
    config.validation = 0.1; /* of four: none by number, so the last */
    assert_ok(prepare("x.jsonl", examples, config, &report, &error), error);
    counted_text(support_path("c_train"), text, sizeof text);
    assert_string_equal(text, "....4|.......................Paris.|nothing asked|");
    counted_text(support_path("c_valid"), text, sizeof text);
    assert_string_equal(text, "....................\xc3\xa9|");
    /* One that has no prompt goes on counting where the one before ended. */
    assert_ok(prepare("x.jsonl",
                      "{\"prompt\": \"a\", \"completion\": \"b\"}\n"
                      "{\"prompt\": \"\", \"completion\": \"cd\"}\n",
                      config, &report, &error),
              error);
    counted_text(support_path("c_train"), text, sizeof text);
    assert_string_equal(text, ".b|");
    counted_text(support_path("c_valid"), text, sizeof text);
    assert_string_equal(text, "cd|");
    config.validation = 0.5;
    assert_ok(prepare("x.jsonl", examples, config, &report, &error), error);
    counted_text(support_path("c_train"), text, sizeof text);
    assert_string_equal(text, "....4|nothing asked|");
    counted_text(support_path("c_valid"), text, sizeof text);
    assert_string_equal(text, ".......................Paris.|....................\xc3\xa9|");
    config.validation = 0.1;
    assert_int_equal(
        prepare("x.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}", config, &report, &error),
        LS_EDATA);
    assert_text_contains(error.text, "one example");
}

/* A conversation whose turns are documents is held out with all of them. */
CASE_WITH(test_conversations_are_held_out_whole, support_setup, support_teardown)
{
    static const char template[] = "{% for m in messages %}{{ m.content }}"
                                   "{% if m.role == 'assistant' and loop.last %}!{% endif %}"
                                   "{% endfor %}";
    struct ls_error error = {0};
    struct ls_prepare_report report;
    struct ls_chat *chat;
    char talks[2000] = "", text[200];
    size_t ends[4];
    for (int i = 0; i < 4; i++) {
        int c = 'a' + 4 * i;
        sprintf(talks + strlen(talks),
                "{\"messages\": [{\"role\": \"user\", \"content\": \"%c\"}, {\"role\": "
                "\"assistant\", \"content\": \"%c\"}, {\"role\": \"user\", \"content\": \"%c\"}, "
                "{\"role\": \"assistant\", \"content\": \"%c\"}]}\n",
                c, c + 1, c + 2, c + 3);
        ends[i] = strlen(talks);
    }
    assert_ok(ls_chat_new("t", template, strlen(template), NULL, &chat, &error), error);
    struct ls_prepare_config config = {
        .records = LS_RECORDS_CHAT, .append_eod = true, .chat = chat, .validation = 0.4};
    assert_ok(prepare("x.jsonl", talks, config, &report, &error), error);
    counted_text(support_path("c_train"), text, sizeof text);
    assert_string_equal(text, ".b!....d!..f!....h!..n!....p!.");
    counted_text(support_path("c_valid"), text, sizeof text);
    assert_string_equal(text, ".j!....l!.");
    talks[ends[1]] = 0; /* of two none is held out by number, so the last */
    assert_ok(prepare("x.jsonl", talks, config, &report, &error), error);
    assert_int_equal(report.train.documents, 2);
    counted_text(support_path("c_valid"), text, sizeof text);
    assert_string_equal(text, ".f!....h!.");
    talks[ends[0]] = 0;
    assert_int_equal(prepare("x.jsonl", talks, config, &report, &error), LS_EDATA);
    assert_text_contains(error.text, "one example");
    ls_chat_free(chat);
}

/* Many examples, of more text than a job holds: the mask is that of the texts' lengths. */
CASE_WITH(test_mask_does_not_depend_on_jobs, support_setup, support_teardown)
{
    enum { EXAMPLES = 3000, LINE = 1300 };
    char *text = malloc((size_t)EXAMPLES * LINE), *at = text;
    char *expected = malloc((size_t)EXAMPLES * LINE);
    int64_t tokens = 0;
    assert_true(text && expected);
    for (uint32_t i = 0; i < EXAMPLES; i++) {
        uint32_t bits[4];
        ls_philox(ls_philox_key_of(3, "lengths"), (uint32_t[4]){i, 0, 0, 0}, bits);
        int prompt = (int)(bits[0] % 1000), completion = 1 + (int)(bits[1] % 200);
        at += sprintf(at, "{\"prompt\": \"%0*d\", \"completion\": \"%0*d\"}\n", prompt + 1, 0,
                      completion, 1);
        memset(expected + tokens, 0, (size_t)prompt + 1);
        memset(expected + tokens + prompt + 1, 1, (size_t)completion + 1);
        tokens += prompt + 1 + completion + 1;
    }
    struct ls_error error = {0};
    struct ls_prepare_report report;
    assert_ok(prepare("x.jsonl", text, pairs, &report, &error), error);
    assert_int_equal(report.train.tokens, tokens);
    struct ls_token_store *store;
    assert_ok(ls_token_store_open(support_path("c_train"), &store, &error), error);
    int32_t *ids = calloc((size_t)tokens, sizeof *ids);
    assert_non_null(ids);
    support_mask(store, 0, tokens, ids);
    for (int64_t i = 0; i < tokens; i++)
        if ((ids[i] >= 0) != expected[i])
            fail_msg("token %ld counts: %d", (long)i, ids[i] >= 0);
    free(ids);
    free(expected);
    free(text);
    ls_token_store_close(store);
}

/* Conversations: the template says what stands around a message, and whose turns count. */
CASE_WITH(test_assistants_count, support_setup, support_teardown)
{
    static const char template[] =
        "{% for m in messages %}{{ m.role[0] ~ ':' ~ m.content }}"
        "{% if m.role == 'assistant' and loop.last %}!{% endif %};{% endfor %}"
        "{% if add_generation_prompt %}a:{% endif %}";
    static const char talks[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"\\ud83d\"}, {\"role\": "
        "\"assistant\", \"content\": -1.50}]}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"b\"}]}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"assistant\", "
        "\"content\": \"y\"}, {\"role\": \"user\", \"content\": \"z\"}, {\"role\": \"assistant\", "
        "\"content\": \"w\"}]}\n";
    struct ls_error error = {0};
    struct ls_prepare_report report;
    struct ls_chat *chat;
    char text[200];
    assert_ok(ls_chat_new("t", template, strlen(template), NULL, &chat, &error), error);
    struct ls_prepare_config config = {
        .records = LS_RECORDS_CHAT, .append_eod = true, .chat = chat, .skip_bad = true};
    assert_ok(prepare("x.jsonl", talks, config, &report, &error), error);
    assert_int_equal(report.skipped, 1);
    counted_text(support_path("c_train"), text, sizeof text);
    /* The last conversation shows its turns in two ways, so it is two documents. */
    assert_string_equal(text, "........-1.5!;.......y!;...............w!;.");
    assert_int_equal(report.train.documents, 3);
    config.skip_bad = false;
    assert_int_equal(prepare("x.jsonl", talks, config, &report, &error), LS_EDATA);
    assert_text_contains(error.text, "x.jsonl:2: no message has the role \"assistant\"");
    config.chat = NULL;
    assert_int_equal(prepare("x.jsonl", talks, config, &report, &error), LS_EINVAL);
    ls_chat_free(chat);
}

/* Special tokens that the template writes are tokens, and the parts of a conversation have the ids
 * that all of it has: nothing is put in front of an answer. */
CASE_WITH(test_special_tokens, support_setup, support_teardown)
{
    static const char *const cases[][2] = {
        {"llama3", "{% for m in messages %}<|start_header_id|>{{ m.role }}{{ m.content }}<|eot_id|>"
                   "{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant"
                   "{% endif %}"},
        {"llama2", "{% for m in messages %}{% if m.role == 'user' %}<s>the {{ m.content }}"
                   "{% else %} {{ m.content }} </s>{% endif %}{% endfor %}"},
    };
    static const char talk[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a b\"}, {\"role\": "
        "\"assistant\", \"content\": \"the c\"}, {\"role\": \"user\", "
        "\"content\": \"d\"}, {\"role\": \"assistant\", \"content\": \"e\"}]}";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char spec[100];
        struct ls_error error = {0};
        struct ls_prepare_report report;
        struct ls_chat *chat;
        struct ls_chat_text text = {0};
        struct ls_tokenizer *tokenizer;
        struct ls_encoder *encoder;
        struct ls_token_store *store;
        struct ls_token_list whole = {0};
        snprintf(spec, sizeof spec, "test/data/golden/families/%s.json", cases[i][0]);
        assert_ok(ls_chat_new("t", cases[i][1], strlen(cases[i][1]), NULL, &chat, &error), error);
        struct ls_prepare_config config = {
            .records = LS_RECORDS_CHAT, .chat = chat, .tokenizer = spec};
        assert_ok(prepare("x.jsonl", talk, config, &report, &error), error);
        assert_ok(ls_chat_render(chat, talk, strlen(talk), false, &text, &error), error);
        assert_ok(ls_tokenizer_new(spec, &tokenizer, &error), error);
        assert_ok(ls_encoder_new(tokenizer, &encoder, &error), error);
        const struct ls_encode_options special = {.special = true};
        assert_ok(ls_encode_with(encoder, text.bytes, text.count, &special, &whole, &error), error);
        assert_ok(ls_token_store_open(support_path("c_train"), &store, &error), error);
        int32_t ids[100], specials = 0;
        int64_t tokens = ls_token_store_tokens(store);
        assert_int_equal(tokens, whole.count);
        assert_ok(ls_token_store_read(store, 0, tokens, 10000, ids, &error), error);
        for (int64_t k = 0; k < tokens; k++) {
            assert_int_equal(ids[k], whole.ids[k]);
            specials += ls_tokenizer_is_special(tokenizer, ids[k]);
        }
        assert_int_equal(specials, i == 0 ? 8 : 4);
        assert_in_range(report.train.counted, 4, tokens - 4);
        ls_token_store_close(store);
        ls_encoder_free(encoder);
        ls_tokenizer_free(tokenizer);
        ls_token_list_release(&whole);
        ls_chat_text_release(&text);
        ls_chat_free(chat);
    }
}

/* An example without a prompt begins as a text does, and what stands in front of it does not count.
 */
CASE_WITH(test_completions_alone, support_setup, support_teardown)
{
    static const char spec[] = "test/data/golden/families/llama2.json";
    static const char lines[] = "{\"prompt\": \"the a\", \"completion\": \" b\"}\n"
                                "{\"prompt\": \"\", \"completion\": \"the c\"}\n";
    const struct {
        const char *text;
        struct ls_encode_options options;
    } parts[] = {{"the a", {.around = true, .unfinished = true}},
                 {" b", {.around = true, .continued = true}},
                 {"the c", {.around = true}}};
    struct ls_error error = {0};
    struct ls_prepare_report report;
    struct ls_tokenizer *tokenizer;
    struct ls_encoder *encoder;
    struct ls_token_store *store;
    struct ls_token_list expected = {0};
    int32_t ids[50], masked[50];
    int64_t ends[3];
    int before;
    struct ls_prepare_config config = pairs;
    config.tokenizer = spec;
    config.append_eod = false;
    config.around = true;
    assert_ok(prepare("x.jsonl", lines, config, &report, &error), error);
    assert_ok(ls_tokenizer_new(spec, &tokenizer, &error), error);
    assert_ok(ls_encoder_new(tokenizer, &encoder, &error), error);
    for (int i = 0; i < 3; i++) {
        assert_ok(ls_encode_with(encoder, parts[i].text, strlen(parts[i].text), &parts[i].options,
                                 &expected, &error),
                  error);
        ends[i] = expected.count;
    }
    ls_tokenizer_around(tokenizer, false, &before);
    assert_int_equal(before, 1);
    assert_ok(ls_token_store_open(support_path("c_train"), &store, &error), error);
    assert_int_equal(ls_token_store_tokens(store), expected.count);
    assert_ok(ls_token_store_read(store, 0, expected.count, 10000, ids, &error), error);
    memcpy(masked, ids, sizeof masked);
    support_mask(store, 0, expected.count, masked);
    for (int64_t i = 0; i < expected.count; i++) {
        bool counts = i >= ends[0] && i != ends[1];
        assert_int_equal(ids[i], expected.ids[i]);
        assert_int_equal(masked[i] >= 0, counts);
    }
    ls_token_store_close(store);
    ls_encoder_free(encoder);
    ls_tokenizer_free(tokenizer);
    ls_token_list_release(&expected);
}

CASE_WITH(test_bad_examples, support_setup, support_teardown)
{
    static const struct {
        const char *line, *part;
    } bad[] = {
        {"{\"prompt\": \"a\"}", "x.jsonl:1: no key \"completion\", the record has \"prompt\": "
                                "expected {\"prompt\": ..., \"completion\": ...}"},
        {"{\"completion\": \"a\"}", "no key \"prompt\""},
        {"{\"prompt\": \"a\", \"completion\": \"\"}", "the completion is empty"},
        {"{\"prompt\": [1], \"completion\": \"b\"}", "\"prompt\" is a list: expected a string"},
        {"[1]", "a list: expected one JSON object a line"},
        {"{\"prompt\": ", "expected one JSON object a line"},
    };
    struct ls_error error = {0};
    struct ls_prepare_report report;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(prepare("x.jsonl", bad[i].line, pairs, &report, &error), LS_EDATA);
        assert_text_contains(error.text, bad[i].part);
    }
    struct ls_prepare_config config = pairs;
    config.skip_bad = true;
    char lines[1000], text[200];
    snprintf(lines, sizeof lines, "%s\n{\"prompt\": \"a\", \"completion\": \"b\"}\n%s\n",
             bad[2].line, bad[0].line);
    assert_ok(prepare("x.jsonl", lines, config, &report, &error), error);
    assert_int_equal(report.skipped, 2);
    counted_text(support_path("c_train"), text, sizeof text);
    assert_string_equal(text, ".b|");
    assert_int_equal(prepare("x.txt", "text", pairs, &report, &error), LS_EDATA);
    assert_text_contains(error.text, "expected examples, one JSON object a line, in a file");
}

static int open_store(struct ls_error *error)
{
    struct ls_token_store *store = NULL;
    int status = ls_token_store_open(support_path("c_train"), &store, error);
    ls_token_store_close(store);
    return status;
}

static void refused(const struct ls_text *mask, const char *part)
{
    struct ls_error error = {0};
    scratch_write(support_path("c_train.mask"), mask->bytes, mask->count);
    assert_int_equal(open_store(&error), LS_EDATA);
    assert_text_contains(error.text, "c_train.mask: ");
    assert_text_contains(error.text, part);
}

CASE_WITH(test_bad_masks, support_setup, support_teardown)
{
    struct ls_error error = {0};
    struct ls_prepare_report report;
    assert_ok(prepare("x.jsonl", examples, pairs, &report, &error), error);
    struct ls_text mask = support_read(support_path("c_train.mask"));
    struct ls_text bad = {malloc(mask.count + 1), mask.count, mask.count + 1};
    assert_non_null(bad.bytes);
#define BAD(change, part)                                                                          \
    memcpy(bad.bytes, mask.bytes, mask.count);                                                     \
    bad.count = mask.count;                                                                        \
    change;                                                                                        \
    refused(&bad, part)
    BAD(bad.count = 31, "not a mask of tokens");
    BAD(bad.bytes[0] = 'X', "not a mask of tokens");
    BAD(bad.bytes[7] = 2, "version 2 of the mask; expected 1");
    BAD(bad.bytes[8]++, "a mask of another store: it is of 74 tokens and the store has 73");
    BAD(bad.bytes[16]++, "damaged");
    BAD(bad.bytes[24]++, "in sequences of other lengths");
    BAD(bad.count--, "a mask of 73 tokens has");
    BAD(bad.count++; bad.bytes[mask.count] = 0, "a mask of 73 tokens has");
    BAD(bad.bytes[40] ^= 1, "damaged");
    BAD(bad.bytes[mask.count - 1] |= (char)0x80, "damaged");
    /* The store prepared anew elsewhere, with as many tokens, and moved here without its mask. */
    scratch_write(support_path("c_train.mask"), mask.bytes, mask.count);
    assert_ok(open_store(&error), error);
    struct ls_text idx = support_read(support_path("c_train.idx"));
    int32_t lengths[2];
    memcpy(lengths, idx.bytes + DATA_IDX_HEADER_BYTES, sizeof lengths);
    lengths[0]++;
    lengths[1]--;
    memcpy(idx.bytes + DATA_IDX_HEADER_BYTES, lengths, sizeof lengths);
    int64_t pointer = 2 * lengths[0];
    memcpy(idx.bytes + DATA_IDX_HEADER_BYTES + 4 * 4 + 8, &pointer, sizeof pointer);
    scratch_write(support_path("c_train.idx"), idx.bytes, idx.count);
    assert_int_equal(open_store(&error), LS_EDATA);
    assert_text_contains(error.text, "in sequences of other lengths");
    ls_text_release(&idx);
    ls_text_release(&bad);
    ls_text_release(&mask);
}

/* Target p of a sample is its token p + 1, and that token's bit decides; a list of stores, of which
 * one has no mask, is one stream. */
CASE_WITH(test_targets_of_samples, support_setup, support_teardown)
{
    enum { T = 10, STREAM = 73 + 30 };
    struct ls_error error = {0};
    struct ls_prepare_report report;
    uint16_t plain[30];
    char spec[700];
    assert_ok(prepare("x.jsonl", examples, pairs, &report, &error), error);
    for (int i = 0; i < 30; i++)
        plain[i] = (uint16_t)i;
    scratch_write(support_path("plain.bin"), plain, sizeof plain);
    snprintf(spec, sizeof spec, "%s,u16:%s", support_path("c_train"), support_path("plain.bin"));
    struct ls_token_store *store;
    assert_ok(ls_token_store_open(spec, &store, &error), error);
    int32_t all[STREAM], masked[STREAM], inputs[2 * T], targets[2 * T];
    assert_ok(ls_token_store_read(store, 0, STREAM, 257, all, &error), error);
    memcpy(masked, all, sizeof masked);
    support_mask(store, 0, STREAM, masked);
    assert_int_equal(support_counted(store, 0, STREAM), report.train.counted + 30);
    struct ls_sample_order order = {.samples = (STREAM - 1) / T, .seed = 4, .shuffle = true};
    for (int64_t number = 0; number < 2 * order.samples; number++) {
        int64_t first = ls_sample_at(&order, number) * T, counted = 0;
        assert_ok(ls_sample_read(store, first / T, T, 257, inputs, targets, &error), error);
        for (int i = 0; i < T; i++) {
            assert_int_equal(inputs[i], all[first + i]);
            assert_int_equal(targets[i], masked[first + i + 1]);
            counted += targets[i] >= 0;
        }
        assert_int_equal(support_sample_counted(store, first / T, T), counted);
    }
    /* The loader counts the batch, not what this rank reads of it. */
    struct ls_loader *loader;
    const int32_t *got, *got_targets;
    struct ls_blend *blend;
    assert_ok(ls_blend_of_one((STREAM - 1) / T, 0, false, &blend, &error), error);
    struct ls_loader_config config = {.blend = blend,
                                      .stores = (const struct ls_token_store *const *)&store,
                                      .sequence_tokens = T,
                                      .vocabulary = 257,
                                      .sequences_max = 2,
                                      .depth = 1};
    assert_ok(ls_loader_new(&config, &loader, &error), error);
    struct ls_sample_run own = {1, 2}, batch = {0, 6};
    assert_int_equal(ls_loader_post_runs(loader, &own, 1, (struct ls_sample_run){-1, 6}),
                     LS_EINVAL);
    assert_int_equal(ls_loader_post_runs(loader, &own, 1, batch), LS_OK);
    assert_ok(ls_loader_take(loader, &got, &got_targets, NULL, &error), error);
    assert_memory_equal(got_targets, masked + T + 1, 2 * T * sizeof *masked);
    assert_int_equal(ls_loader_counted(loader)[0], support_counted(store, 1, 6 * T));
    ls_loader_free(loader);
    ls_blend_free(blend);
    ls_token_store_close(store);
}

SUITE_MAIN(NULL, NULL)
