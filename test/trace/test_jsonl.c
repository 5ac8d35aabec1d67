/* Records as JSON lines: escaping, torn lines, full disks, reading back. */
#include <lockstep/trace.h>

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "../support/scratch.h"
#include "../support/suite.h"

static void assert_text(const char *path, const char *expected)
{
    char *text = scratch_read(path, NULL);
    assert_string_equal(text, expected);
    free(text);
}

static void put_step(struct ls_jsonl *jsonl, int64_t step)
{
    struct ls_error error = {0};
    ls_jsonl_begin(jsonl);
    ls_jsonl_int(jsonl, "step", step);
    assert_ok(ls_jsonl_end(jsonl, &error), error);
}

static struct ls_jsonl *open_good(const char *path)
{
    struct ls_error error = {0};
    struct ls_jsonl *jsonl;
    assert_ok(ls_jsonl_open(&jsonl, path, &error), error);
    return jsonl;
}

CASE_WITH(test_record_of_every_type, scratch_setup, scratch_teardown)
{
    const char *path = scratch_path(*state, "metrics.jsonl");
    struct ls_error error = {0};
    struct ls_jsonl *jsonl = open_good(path);
    ls_jsonl_begin(jsonl);
    ls_jsonl_int(jsonl, "step", INT64_MIN);
    ls_jsonl_float(jsonl, "loss", 0.1f);
    ls_jsonl_float(jsonl, "grad_norm", 16777217.0f / 3);
    ls_jsonl_float(jsonl, "nan", NAN);
    ls_jsonl_double(jsonl, "tokens_per_s", 0.1);
    ls_jsonl_double(jsonl, "inf", -INFINITY);
    ls_jsonl_string(jsonl, "sample", "a\"\\\n\t\x01\xc3\xa9\xff\xe2\x82.");
    assert_int_equal(ls_jsonl_end(jsonl, &error), LS_OK);
    assert_text(path, "{\"step\": -9223372036854775808, \"loss\": 0.1, \"grad_norm\": 5592405.5, "
                      "\"nan\": null, \"tokens_per_s\": 0.10000000000000001, \"inf\": null, "
                      "\"sample\": \"a\\\"\\\\\\n\\t\\u0001\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf"
                      "\xbd.\"}\n");
    assert_int_equal(ls_jsonl_close(jsonl, &error), LS_OK);
}

/* Any bytes make valid JSON, and any fp32 comes back with its bits. */
CASE_WITH(test_random_records_parse, scratch_setup, scratch_teardown)
{
    const char *path = scratch_path(*state, "random.jsonl");
    struct ls_error error = {0};
    struct ls_jsonl *jsonl = open_good(path);
    enum { COUNT = 500 };
    static float values[COUNT];
    struct ls_philox_key key = ls_philox_key_of(1, "test_jsonl");
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t out[4];
        char bytes[9] = {0};
        ls_philox(key, (uint32_t[4]){i}, out);
        memcpy(bytes, out, 8);
        memcpy(&values[i], &out[2], sizeof values[i]);
        ls_jsonl_begin(jsonl);
        ls_jsonl_string(jsonl, "s", bytes);
        ls_jsonl_float(jsonl, "f", values[i]);
        assert_int_equal(ls_jsonl_end(jsonl, &error), LS_OK);
    }
    ls_jsonl_close(jsonl, NULL);
    char *text = scratch_read(path, NULL), *line = text;
    for (int i = 0; i < COUNT; i++) {
        char *end = strchr(line, '\n');
        json_error_t where;
        json_t *record = json_loadb(line, (size_t)(end - line), JSON_REJECT_DUPLICATES, &where);
        if (!record)
            fail_msg("record %d: %s: %.*s", i, where.text, (int)(end - line), line);
        const json_t *number = json_object_get(record, "f");
        float got = (float)json_number_value(number);
        if (isfinite(values[i]))
            assert_memory_equal(&got, &values[i], sizeof got);
        else
            assert_true(json_is_null(number));
        json_decref(record);
        line = end + 1;
    }
    assert_string_equal(line, "");
    free(text);
}

CASE_WITH(test_too_long_record_is_not_written, scratch_setup, scratch_teardown)
{
    const char *path = scratch_path(*state, "long.jsonl");
    struct ls_error error = {0};
    struct ls_jsonl *jsonl = open_good(path);
    char *long_text = calloc(1, 70000);
    memset(long_text, 'x', 69999);
    ls_jsonl_begin(jsonl);
    ls_jsonl_string(jsonl, "sample", long_text);
    assert_int_equal(ls_jsonl_end(jsonl, &error), LS_EINVAL);
    free(long_text);
    put_step(jsonl, 1);
    ls_jsonl_close(jsonl, NULL);
    assert_text(path, "{\"step\": 1}\n");
}

CASE_WITH(test_torn_line_is_cut_at_open, scratch_setup, scratch_teardown)
{
    static const char *const cases[][2] = {
        {"", ""},
        {"{\"st", ""},
        {"{\"step\": 1}\n{\"st", "{\"step\": 1}\n"},
        {"{\"step\": 1}\n", "{\"step\": 1}\n"},
    };
    const char *path = scratch_path(*state, "torn.jsonl");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        scratch_write(path, cases[i][0], strlen(cases[i][0]));
        ls_jsonl_close(open_good(path), NULL);
        assert_text(path, cases[i][1]);
    }
    /* Longer than the block that is searched at once. */
    char *big = malloc(20000);
    memset(big, 'x', 20000);
    memcpy(big, "{}\n", 3);
    scratch_write(path, big, 20000);
    free(big);
    ls_jsonl_close(open_good(path), NULL);
    assert_text(path, "{}\n");
}

static void count_record(void *user, const struct ls_record *record)
{
    ++*(int *)user;
}

CASE_WITH(test_truncate_after_a_step, scratch_setup, scratch_teardown)
{
    const char *path = scratch_path(*state, "resume.jsonl");
    struct ls_error error = {0};
    int stay = 0;
    assert_int_equal(ls_jsonl_truncate_after(path, "step", 3, count_record, &stay, &error),
                     LS_OK); /* absent */
    struct ls_jsonl *jsonl = open_good(path);
    ls_jsonl_begin(jsonl);
    ls_jsonl_string(jsonl, "note", "no step");
    assert_int_equal(ls_jsonl_end(jsonl, &error), LS_OK);
    for (int64_t step = 1; step <= 5; step++)
        put_step(jsonl, step);
    ls_jsonl_close(jsonl, NULL);
    const char *three = "{\"note\": \"no step\"}\n{\"step\": 1}\n{\"step\": 2}\n{\"step\": 3}\n";
    for (int again = 0; again < 2; again++) {
        assert_int_equal(ls_jsonl_truncate_after(path, "step", 3, count_record, &stay, &error),
                         LS_OK);
        assert_text(path, three);
        assert_int_equal(stay, 4 + 4 * again);
    }
    jsonl = open_good(path);
    put_step(jsonl, 4);
    ls_jsonl_close(jsonl, NULL);
    assert_int_equal(ls_jsonl_truncate_after(path, "step", 0, count_record, &stay, &error), LS_OK);
    assert_text(path, "{\"note\": \"no step\"}\n");
    assert_int_equal(stay, 9);

    static const char numbers[] = "{\"step\": 9.5}\n{\"step\": null}\n{\"step\": 4.0}\n{}\n";
    scratch_write(path, numbers, sizeof numbers - 1);
    assert_int_equal(ls_jsonl_truncate_after(path, "step", 3, NULL, NULL, &error), LS_OK);
    assert_text(path, "{\"step\": 9.5}\n{\"step\": null}\n"); /* the step 4 is one */

    scratch_write(path, "{}\n[]\n", 6);
    assert_int_equal(ls_jsonl_truncate_after(path, "step", 3, count_record, &stay, &error),
                     LS_EDATA);
    assert_non_null(strstr(error.text, "resume.jsonl:2: expected one JSON object"));
}

CASE_WITH(test_series, scratch_setup, scratch_teardown)
{
    const char *path = scratch_path(*state, "series.jsonl");
    static const char text[] =
        "{\"step\": 1, \"loss\": 2.5}\n{\"step\": 1, \"validation_loss\": 9}\n"
        "{\"step\": 2, \"loss\": null}\n{\"step\": 2.5, \"loss\": 1}\n{\"step\": -1, \"loss\": 1}\n"
        "{\"step\": 1e300, \"loss\": 1}\n{\"step\": 3, \"loss\": 4}\n{\"ste";
    scratch_write(path, text, sizeof text - 1);
    struct ls_error error = {0};
    static const char *const key = "loss";
    struct ls_series series;
    assert_int_equal(ls_series_read(&series, path, "step", &key, 1, &error), LS_OK);
    assert_int_equal(series.count, 3);
    assert_true(series.x[0] == 1 && series.y[0] == 2.5);
    assert_true(series.x[1] == 2 && isnan(series.y[1]));
    assert_true(series.x[2] == 3 && series.y[2] == 4);
    ls_series_release(&series);
    /* What comes late, as the save of a step behind later ones, hides none of these. */
    static const char late[] = "{\"step\": 1, \"loss\": 3}\n{\"step\": 2, \"loss\": 2}\n"
                               "{\"step\": 1, \"event\": \"save\", \"beside\": 1}\n";
    scratch_write(path, late, sizeof late - 1);
    assert_ok(ls_series_read(&series, path, "step", &key, 1, &error), error);
    assert_int_equal(series.count, 2);
    ls_series_release(&series);
    assert_int_equal(ls_series_read(&series, scratch_path(*state, "absent"), "a", &key, 1, &error),
                     LS_EIO);
    assert_int_equal(series.count, 0);
}

static void show_whole(void *user, const struct ls_record *record)
{
    int64_t **next = user;
    *(*next)++ = ls_record_whole(record, "step", -7);
}

CASE_WITH(test_whole_numbers, scratch_setup, scratch_teardown)
{
    static const int64_t expected[] = {3, 4, -5, -7, -7, -7, -7, -7, -7};
    static const char text[] =
        "{\"step\": 3}\n{\"step\": 4.0}\n{\"step\": -5}\n{\"step\": 2.5}\n{\"step\": 1e300}\n"
        "{\"step\": 9007199254740992}\n{\"step\": \"3\"}\n{\"step\": null}\n{}\n";
    const char *path = scratch_path(*state, "whole.jsonl");
    struct ls_error error = {0};
    int64_t found[18], *next = found;
    bool torn;
    scratch_write(path, text, sizeof text - 1);
    assert_ok(ls_jsonl_each(path, show_whole, &next, &torn, &error), error);
    for (const char *line = text; *line; line = strchr(line, '\n') + 1)
        ls_record_show(line, strcspn(line, "\n"), show_whole, &next);
    ls_record_show("[3]", 3, show_whole, &next);
    ls_record_show("{\"step\": 3", 10, show_whole, &next);
    assert_ptr_equal(next, found + 18);
    assert_memory_equal(found, expected, sizeof expected);
    assert_memory_equal(found + 9, expected, sizeof expected);
}

CASE_WITH(test_full_disk_keeps_whole_lines, scratch_setup, scratch_teardown)
{
    struct ls_error error = {0};
    struct ls_jsonl *jsonl = open_good("/dev/full");
    ls_jsonl_begin(jsonl);
    ls_jsonl_int(jsonl, "step", 1);
    assert_int_equal(ls_jsonl_end(jsonl, &error), LS_ENOSPC);
    assert_non_null(strstr(error.text, "/dev/full"));
    ls_jsonl_close(jsonl, NULL);

    /* The system takes a part of the line, then refuses the rest. */
    const char *path = scratch_path(*state, "limit.jsonl");
    jsonl = open_good(path);
    put_step(jsonl, 1);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit before;
    getrlimit(RLIMIT_FSIZE, &before);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){17, before.rlim_max});
    ls_jsonl_begin(jsonl);
    ls_jsonl_int(jsonl, "step", 2);
    int code = ls_jsonl_end(jsonl, &error);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(code, LS_EIO);
    assert_text(path, "{\"step\": 1}\n");
    put_step(jsonl, 3);
    assert_int_equal(ls_jsonl_lost(jsonl), 0);
    assert_ok(ls_jsonl_close(jsonl, &error), error);
    assert_text(path, "{\"step\": 1}\n{\"step\": 2}\n{\"step\": 3}\n");
}

/* 4 MiB of records wait in the order in which they came; what comes then is lost, and counted. */
CASE_WITH(test_what_waits_for_room, scratch_setup, scratch_teardown)
{
    enum { MADE = 100, LONG = 60000, KEPT = (4 << 20) / LONG };
    const char *path = scratch_path(*state, "later.jsonl");
    struct ls_error error = {0};
    static char text[LONG - 28];
    struct ls_jsonl *jsonl = open_good(path);
    struct rlimit before;
    memset(text, 'x', sizeof text - 1);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){17, before.rlim_max});
    for (int i = 0; i < MADE; i++) {
        ls_jsonl_begin(jsonl);
        ls_jsonl_string(jsonl, "text", text);
        ls_jsonl_int(jsonl, "step", 1000 + i);
        assert_int_equal(ls_jsonl_end(jsonl, &error), LS_EIO);
    }
    assert_int_equal(ls_jsonl_flush(jsonl, &error), LS_EIO);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(ls_jsonl_lost(jsonl), MADE - KEPT);
    assert_ok(ls_jsonl_close(jsonl, &error), error);

    struct ls_series steps;
    assert_ok(ls_series_read(&steps, path, "step", (const char *const[]){"step"}, 1, &error),
              error);
    assert_int_equal(steps.count, KEPT);
    for (int i = 0; i < KEPT; i++)
        assert_int_equal(steps.x[i], 1000 + i);
    ls_series_release(&steps);
}

SUITE_MAIN(NULL, NULL)
