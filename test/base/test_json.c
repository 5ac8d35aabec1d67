/* Objects of JSON: what is none is refused with its place, what was expected, and the caller's
 * code. */
#include "../support/scratch.h"
#include "../support/suite.h"

#include <lockstep/base/json.h>

#include <jansson.h>
#include <string.h>

CASE(test_an_object_is_read)
{
    struct ls_error error = {0};
    const char *path = scratch_path(*state, "good.json"),
               *text = "{\"a\": [1, {\"a\": \"\\u00e9\"}]}";
    json_t *object;
    scratch_write(path, text, strlen(text));
    assert_int_equal(ls_json_read(path, LS_EDATA, &object, &error), LS_OK);
    assert_int_equal(json_array_size(json_object_get(object, "a")), 2);
    json_decref(object);
}

/* save_pretrained writes model_max_length so. */
CASE(test_integers_of_any_size)
{
    static const struct {
        const char *text;
        double wanted;
    } cases[] = {
        {"1000000000000000019884624838656", 1e30}, {"-1000000000000000019884624838656", -1e30},
        {"9223372036854775808", 0x1p63},           {"18446744073709551615", 0x1p64},
        {"0.10000000000000000000000", 0.1},        {"1e0000000000000000000002", 100},
        {"1e-000000000000000000002", 0.01},        {"100000000000000000000000.5e-3", 1e20},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ls_error error = {0};
        char text[200];
        json_t *object;
        snprintf(text, sizeof text,
                 "{\"100000000000000000000\\\"\": 9223372036854775807, \"a\": %s}", cases[i].text);
        int status = ls_json_parse("text", text, strlen(text), LS_EDATA, &object, &error);
        if (status)
            fail_msg("%s: %s", text, error.text);
        assert_true(json_number_value(json_object_get(object, "a")) == cases[i].wanted);
        if (strlen(cases[i].text) > 20)
            assert_non_null(json_object_get(object, "100000000000000000000\""));
        json_decref(object);
    }
    char digits[1000];
    memset(digits, '7', sizeof digits);
    memcpy(digits, "{\"a\": ", 6);
    digits[sizeof digits - 1] = '}';
    struct ls_error error = {0};
    json_t *object;
    assert_int_equal(ls_json_parse("text", digits, sizeof digits, LS_EDATA, &object, &error),
                     LS_OK);
    assert_true(json_number_value(json_object_get(object, "a")) == 1e308);
    json_decref(object);
    const char *bad = "{\"a\": 10000000000000000000000000, \"b\": ]}";
    assert_int_equal(ls_json_parse("text", bad, strlen(bad), LS_EDATA, &object, &error), LS_EDATA);
    assert_non_null(strstr(error.text, "text:1:40: not JSON"));
    const char *marked = "\xef\xbb\xbf{}";
    assert_int_equal(ls_json_parse("text", marked, strlen(marked), LS_EDATA, &object, &error),
                     LS_EDATA);
    assert_non_null(strstr(error.text, "text:1: begins with a byte order mark (U+FEFF)"));
}

/* Texts that end within a string, behind an integer that makes them be read again. */
CASE(test_cut_behind_a_large_integer)
{
    static const char whole[] = "{\"a\": 18446744073709551616, \"b\\\"c\": \"\\\\\"}";
    for (size_t bytes = 1; bytes < sizeof whole - 1; bytes++) {
        struct ls_error error = {0};
        json_t *object;
        assert_int_equal(ls_json_parse("text", whole, bytes, LS_EDATA, &object, &error), LS_EDATA);
        assert_non_null(strstr(error.text, "not JSON"));
    }
    struct ls_error error = {0};
    json_t *object;
    assert_int_equal(ls_json_parse("text", whole, sizeof whole - 1, LS_EDATA, &object, &error),
                     LS_OK);
    json_decref(object);
}

CASE(test_what_is_no_object_is_refused)
{
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"", "bad.json:1: not JSON: "},
        {"{\n \"a\": 1,\n \"b\": ]}", "bad.json:3:7: not JSON: "},
        {"{\"a\": 1, \"a\": 2}", "duplicate object key"},
        {"{\"a\": \"\xff\"}", "not JSON: unable to decode byte 0xff"},
        {"{} x", "not JSON: end of file expected"},
        {"[1]", "bad.json:1: expected an object, {\"key\": value}"},
        {"\"text\"", ": expected an object, {\"key\": value}"},
    };
    const char *path = scratch_path(*state, "bad.json");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ls_error error = {0};
        json_t *object = (json_t *)path;
        scratch_write(path, cases[i].text, strlen(cases[i].text));
        assert_int_equal(ls_json_read(path, LS_ECKPT, &object, &error), LS_ECKPT);
        assert_null(object);
        if (!strstr(error.text, cases[i].said) || !strstr(error.text, "expected an object"))
            fail_msg("%s: %s", cases[i].text, error.text);
    }
    struct ls_error error = {0};
    json_t *object;
    scratch_write(path, "version https://git-lfs.github.com/spec/v1\n", 43);
    assert_int_equal(ls_json_read(path, LS_ECKPT, &object, &error), LS_ECKPT);
    assert_text_contains(error.text, "bad.json: a pointer of Git LFS, in place of the file");
    assert_int_equal(ls_json_read(scratch_path(*state, "none.json"), LS_ECKPT, &object, &error),
                     LS_EIO);
    assert_null(object);
}

SUITE_MAIN(scratch_setup, scratch_teardown)
