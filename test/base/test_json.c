/* Objects of JSON: what is none is refused with its place, what was expected, and the caller's
 * code. */
#include "../support/scratch.h"

#include <lockstep/base/json.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <string.h>

static void test_an_object_is_read(void **state)
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

static void test_what_is_no_object_is_refused(void **state)
{
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"", "bad.json:1:0: not JSON: "},
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
    assert_int_equal(ls_json_read(scratch_path(*state, "none.json"), LS_ECKPT, &object, &error),
                     LS_EIO);
    assert_null(object);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_object_is_read),
        cmocka_unit_test(test_what_is_no_object_is_refused),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
