/* JSONL records: what is taken and what is refused is what Python's json module takes and refuses,
 * byte for byte of the text. */
#include "data/data_private.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One record a line. Every line is given to both. */
static const char *const records[] = {
    /* what everybody reads */
    "{\"text\": \"plain\"}",
    "  {\"text\" : \"white space\"}  \t\r",
    "{\"text\": \"\"}",
    "{\"a\": [1, {\"text\": \"inner\"}], \"text\": \"outer\"}",
    "{\"text\": \"first\", \"text\": \"last\"}",
    "{\"text\": \"last\", \"text\": 3}",
    "{\"text\": \"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"}",
    "{\"text\": \"\\u00e9\\u20AC\\ud83d\\ude00\"}",
    "{\"text\": \"\\\" \\\\ \\/ \\b \\f \\n \\r \\t\"}",
    "{\"text\": \"a\\u0000b\"}",
    "{\"te\\u0078t\": \"escaped key\"}",
    "{\"text\": \"\x7f\xc2\x85\"}",
    /* halves of surrogate pairs */
    "{\"text\": \"\\ud800\"}",
    "{\"text\": \"\\udc00\"}",
    "{\"text\": \"x\\uD83Dy\"}",
    "{\"text\": \"\\ud83d\\ud83d\\ude00\"}",
    "{\"text\": \"\\ude00\\ud83d\"}",
    "{\"text\": \"\\ud83d\\n\"}",
    "{\"text\": \"\\ud83d\\\\ude00\"}",
    "{\"text\": \"\\\\ud83d\"}",
    "{\"text\": \"\\\\\\ud83d\"}",
    "{\"\\ud800\": 1, \"text\": \"half in a key\"}",
    "{\"text\": \"\\ud83d\\u0041\"}",
    "{\"text\": \"\\udbff\\udfff\\udbff\\udc00\"}",
    "{\"text\": \"\\ud83\"}",
    "{\"text\": \"\\ud83d\\u\"}",
    /* numbers */
    "{\"n\": NaN, \"text\": \"a\"}",
    "{\"n\": Infinity, \"text\": \"b\"}",
    "{\"n\": -Infinity, \"text\": \"c\"}",
    "{\"n\": [NaN,-Infinity], \"text\": \"d\"}",
    "{\"n\": -NaN, \"text\": \"e\"}",
    "{\"n\": nan, \"text\": \"e\"}",
    "{\"n\": inf, \"text\": \"e\"}",
    "{\"n\": NaNx, \"text\": \"e\"}",
    "{\"n\": 1NaN, \"text\": \"e\"}",
    "{\"n\": 123456789012345678901234567890, \"text\": \"f\"}",
    "{\"n\": 1e999, \"text\": \"g\"}",
    "{\"n\": -1.5E-999, \"text\": \"h\"}",
    "{\"n\": -0, \"text\": \"i\"}",
    "{\"n\": 01, \"text\": \"j\"}",
    "{\"n\": -01, \"text\": \"j\"}",
    "{\"n\": 1., \"text\": \"k\"}",
    "{\"n\": .5, \"text\": \"k\"}",
    "{\"n\": +1, \"text\": \"l\"}",
    "{\"n\": --1, \"text\": \"l\"}",
    "{\"n\": -, \"text\": \"l\"}",
    "{\"n\": 1-2, \"text\": \"l\"}",
    "{\"n\": 1e, \"text\": \"m\"}",
    "{\"n\": 1e+, \"text\": \"m\"}",
    "{\"n\": 1.5.5, \"text\": \"m\"}",
    "{\"n\": 0x10, \"text\": \"n\"}",
    "{\"n\": 1_000, \"text\": \"n\"}",
    "{\"n\": 1 2, \"text\": \"n\"}",
    "{\"n\": 12\"a\", \"text\": \"n\"}",
    /* keys */
    "{\"a\\u0000b\": 1, \"text\": \"zero in a key\"}",
    "{\"a\\u0000b\" : \"c\\u0000\", \"text\": \"zeros\"}",
    "{text: \"bare key\"}",
    "{'text': 'single'}",
    "{1: 2}",
    /* shape */
    "{\"text\": \"comma\",}",
    "{\"text\": [1,]}",
    "{\"text\": \"a\"} x",
    "{\"text\": \"a\"}{\"text\": \"b\"}",
    "{\"text\": \"a\" \"b\": 1}",
    "{\"text\" \"a\"}",
    "{\"text\": \"open",
    "{\"text\": \"open\\",
    "{\"text\": \"a\"",
    "{",
    "}",
    "[\"text\"]",
    "\"text\"",
    "3",
    "NaN",
    "null",
    "{}",
    "{\"other\": \"a\"}",
    "{\"Text\": \"a\"}",
    "{\"text\": null}",
    "{\"text\": true}",
    "{\"text\": 3}",
    "{\"text\": {}}",
    "{\"text\": [\"a\"]}",
    "// comment",
    "{\"text\": \"a\"} // comment",
    "{\"text\": True}",
    "{\"text\": undefined}",
    /* strings */
    "{\"text\": \"tab\tinside\"}",
    "{\"text\": \"\x01\"}",
    "{\"text\": \"\\x41\"}",
    "{\"text\": \"\\u12\"}",
    "{\"text\": \"\\u12g4\"}",
    "{\"text\": \"\\u+123\"}",
    "{\"text\": \"\\U0001F600\"}",
    "{\"text\": \"\xff\"}",
    "{\"text\": \"\xc3\"}",
    "{\"text\": \"\xed\xa0\x80\"}",
    "{\"text\": \"\xc0\x80\"}",
    "{\"text\": \"a\", \"b\": \"\xff\"}",
};
enum { RECORDS = sizeof records / sizeof records[0] };

/* A half of a surrogate pair cannot be written as UTF-8; as tiktoken does, it becomes U+FFFD. */
static const char script[] =
    "import json, sys\n"
    "for line in open(sys.argv[1], 'rb').read().split(b'\\n')[:-1]:\n"
    "    try:\n"
    "        text = json.loads(line.decode('utf-8'))['text']\n"
    "        text = text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')\n"
    "        print('+' + text.encode('utf-8').hex())\n"
    "    except Exception:\n"
    "        print('-')\n";

static int plain, not_plain; /* records that one pass read, and that it left to the parser */

/* What one pass reads, the parser of any record reads too, as the same text. */
static void both_ways(const char *record)
{
    char *line = strdup(record);
    struct ls_text one = {0}, other = {0};
    struct ls_error error = {0};
    if (!data_record_plain(line, strlen(line), "text", &one)) {
        not_plain++;
        assert_int_equal(one.count, 0);
    } else {
        plain++;
        if (data_record_any(line, strlen(line), "text", &other, &error))
            fail_msg("%s: taken in one pass, though: %s", record, error.text);
        if (one.count != other.count || (one.count && memcmp(one.bytes, other.bytes, one.count)))
            fail_msg("%s: two texts", record);
    }
    ls_text_release(&one);
    ls_text_release(&other);
    free(line);
}

static void ours(const char *record, char *out, size_t bytes)
{
    both_ways(record);
    char *line = strdup(record);
    struct ls_text text = {0};
    struct ls_error error = {0};
    int status = data_record_text(line, strlen(line), "text", &text, &error);
    size_t used = (size_t)snprintf(out, bytes, status ? "-" : "+");
    if (status) {
        assert_int_equal(status, LS_EDATA);
        assert_text_contains(error.text, "expected");
        assert_int_equal(text.count, 0);
    }
    for (size_t i = 0; i < text.count && used + 3 < bytes; i++)
        used += (size_t)snprintf(out + used, bytes - used, "%02x", (unsigned char)text.bytes[i]);
    ls_text_release(&text);
    free(line);
}

CASE(test_as_python_reads_them)
{
    char command[1024], line[512], mine[512], file[300];
    if (system("command -v python3 >/dev/null 2>&1") != 0) {
        print_message("skipped: no python3 to compare with\n");
        skip();
    }
    support_setup(state);
    snprintf(file, sizeof file, "%s/records", support_folder);
    FILE *stream = fopen(file, "w");
    for (int i = 0; i < RECORDS; i++)
        fprintf(stream, "%s\n", records[i]);
    fclose(stream);
    scratch_write(support_path("read.py"), script, sizeof script - 1);
    snprintf(command, sizeof command, "python3 %s/read.py %s", support_folder, file);
    FILE *python = popen(command, "r");
    int taken = 0;
    for (int i = 0; i < RECORDS; i++) {
        assert_non_null(fgets(line, sizeof line, python));
        line[strcspn(line, "\n")] = '\0';
        ours(records[i], mine, sizeof mine);
        taken += *mine == '+';
        if (strcmp(line, mine) != 0)
            fail_msg("record %d: %s\nPython: %s\nhere:   %s", i, records[i], line, mine);
    }
    assert_int_equal(pclose(python), 0);
    assert_in_range(taken, 30, RECORDS - 30);
    support_teardown(state);
}

/* Every record, cut off and with each byte changed, ends with text or with an error. */
CASE(test_any_bytes_end)
{
    char mine[512];
    for (int i = 0; i < RECORDS; i++) {
        size_t length = strlen(records[i]);
        for (size_t cut = 0; cut <= length; cut++) {
            char *line = malloc(cut + 1);
            memcpy(line, records[i], cut);
            line[cut] = '\0';
            ours(line, mine, sizeof mine);
            for (size_t j = 0; j < cut; j++) {
                char kept = line[j];
                for (const char *other = "\"\\u-N{:0 \x80"; *other; other++) {
                    line[j] = *other;
                    ours(line, mine, sizeof mine);
                }
                line[j] = kept;
                if (cut < length)
                    j += 7;
            }
            free(line);
        }
    }
    assert_true(plain > 1000 && not_plain > 1000);
}

static void expect_refused(const char *record, const char *words)
{
    struct ls_text text = {0};
    struct ls_error error = {0};
    char *line = strdup(record);
    assert_int_equal(data_record_text(line, strlen(line), "text", &text, &error), LS_EDATA);
    assert_text_contains(error.text, words);
    ls_text_release(&text);
    free(line);
}

CASE(test_reasons)
{
    expect_refused("{\"content\": \"a\", \"url\": \"b\"}",
                   "no key \"text\", the record has \"content\", \"url\": expected");
    expect_refused("{}", "the record has none");
    expect_refused("{\"a\":1,\"b\":1,\"c\":1,\"d\":1,\"e\":1,\"f\":1,\"g\":1}", "and 2 more");
    expect_refused("{\"text\": 3}", "\"text\" is a number: expected a string");
    expect_refused("{\"text\": null}", "\"text\" is null");
    expect_refused("[1]", "a list: expected one JSON object a line");
    expect_refused("{\"text\": \"a\",}", "column 14");
    expect_refused("{\"text\": \"\x1b\"}", "control character");
}

/* Numbers that only Python reads may stand beside what a record is asked for. */
CASE(test_numbers_beside_a_weight)
{
    static const struct {
        const char *record;
        float weight;
    } cases[] = {
        {"{\"n\": NaN, \"w\": 2.5, \"m\": [-Infinity, {\"w\": 1e999}]}", 2.5f},
        {"{\"w\": -3, \"id\": 123456789012345678901234567890}", -3},
        {"{\"n\": {\"w\": 4}, \"\\u0077\": 5}", 5},
        {"{\"n\": NaN}", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_error error = {0};
        float weight = 0;
        const char *record = cases[i].record;
        assert_ok(data_record_weight(record, strlen(record), "w", &weight, &error), error);
        assert_true(weight == cases[i].weight);
    }
    struct ls_error error = {0};
    float weight;
    static const char nan_record[] = "{\"n\": 1, \"w\": NaN}";
    assert_int_equal(data_record_weight(nan_record, sizeof nan_record - 1, "w", &weight, &error),
                     LS_EDATA);
}

CASE(test_numbers_beside_messages)
{
    static const char form[] = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}"
                               "{% if add_generation_prompt %}a:{% endif %}";
    char record[] = "{\"score\": NaN, \"messages\": [{\"role\": \"user\", \"content\": 7}, "
                    "{\"role\": \"assistant\", \"content\": [-0.5]}], \"n\": [1e999, -Infinity]}";
    char inside[] = "{\"messages\": [{\"role\": \"assistant\", \"content\": NaN}]}";
    struct ls_error error = {0};
    struct ls_chat *chat;
    struct ls_text text = {0};
    struct data_spans spans = {0};
    assert_ok(ls_chat_new("form", form, sizeof form - 1, NULL, &chat, &error), error);
    assert_ok(data_record_chat(record, sizeof record - 1, chat, &text, &spans, &error), error);
    assert_int_equal(text.count, strlen("u:7;a:[-0.5];"));
    assert_memory_equal(text.bytes, "u:7;a:[-0.5];", text.count);
    assert_int_equal(data_record_chat(inside, sizeof inside - 1, chat, &text, &spans, &error),
                     LS_EDATA);
    ls_text_release(&text);
    free(spans.list);
    ls_chat_free(chat);
}

SUITE_MAIN(NULL, NULL)
