#include <lockstep/base/file.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/scratch.h"

/* Writes bytes of 'a' + n % 26 in pieces of piece bytes. */
static int write_pattern(const char *path, size_t bytes, size_t piece, const struct ls_fault *fault,
                         struct ls_error *error)
{
    struct ls_atomic_file file;
    int code = ls_atomic_file_open(&file, path, fault, error);
    if (code)
        return code;
    char *data = malloc(piece);
    for (size_t at = 0; at < bytes; at += piece) {
        size_t count = bytes - at < piece ? bytes - at : piece;
        for (size_t i = 0; i < count; i++)
            data[i] = (char)('a' + (at + i) % 26);
        ls_atomic_file_write(&file, data, count); /* a failure is kept for the commit */
    }
    free(data);
    return ls_atomic_file_commit(&file, error);
}

static void assert_pattern(const char *path, size_t bytes)
{
    size_t size;
    char *data = scratch_read(path, &size);
    assert_int_equal(size, bytes);
    for (size_t i = 0; i < size; i++)
        if (data[i] != (char)('a' + i % 26))
            fail_msg("byte %zu is %d, expected %d", i, data[i], (int)('a' + i % 26));
    free(data);
}

static void test_pieces_of_every_size(void **state)
{
    static const size_t pieces[] = {1000, 4096, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 9 << 20};
    const char *path = scratch_path(*state, "file");
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        struct ls_error error = {0};
        size_t bytes = 2 * pieces[i] + 3000;
        if (write_pattern(path, bytes, pieces[i], NULL, &error))
            fail_msg("%s", error.text);
        assert_pattern(path, bytes);
        assert_int_equal(scratch_count(*state), 1);
    }
}

static void test_abort_and_empty(void **state)
{
    const char *path = scratch_path(*state, "file");
    struct ls_error error = {0};
    struct ls_atomic_file file;
    assert_int_equal(ls_atomic_file_open(&file, path, NULL, &error), LS_OK);
    ls_atomic_file_printf(&file, "%d", 42);
    assert_int_equal(access(path, F_OK), -1);
    ls_atomic_file_abort(&file);
    ls_atomic_file_abort(&file);
    assert_int_equal(scratch_count(*state), 0);
    assert_int_equal(write_pattern(path, 0, 1, NULL, &error), LS_OK);
    assert_pattern(path, 0);
}

struct countdown {
    int left;
    char call[16];
};

static int fail_when_zero(void *user, const char *call)
{
    struct countdown *countdown = user;
    if (countdown->left-- != 0)
        return 0;
    snprintf(countdown->call, sizeof countdown->call, "%s", call);
    return ENOSPC;
}

static void test_a_failing_call_keeps_the_older_file(void **state)
{
    enum { OLD = 100, NEW = 5 << 20 };
    const char *path = scratch_path(*state, "file");
    bool failed = true;
    int n = 0;
    for (; failed; n++) {
        struct ls_error error = {0};
        struct countdown countdown = {.left = n};
        struct ls_fault fault = {fail_when_zero, &countdown};
        assert_int_equal(write_pattern(path, OLD, OLD, NULL, &error), LS_OK);
        int code = write_pattern(path, NEW, 700000, &fault, &error);
        failed = countdown.call[0] != '\0';
        assert_int_equal(code, failed ? LS_ENOSPC : LS_OK);
        if (failed && (!strstr(error.text, "No space left") || !strstr(error.text, *state)))
            fail_msg("call %d (%s): \"%s\"", n, countdown.call, error.text);
        assert_int_equal(scratch_count(*state), 1);
        /* The last call that can fail syncs the directory, when the new file has the name. */
        bool is_last = failed && !strcmp(countdown.call, "fsync") && n > 8;
        assert_pattern(path, failed && !is_last ? OLD : NEW);
    }
    assert_in_range(n, 10, 20);
}

static void test_directories(void **state)
{
    struct ls_error error = {0};
    const char *deep = scratch_path(*state, "a/b//c/");
    assert_int_equal(ls_directory_make(deep, NULL, &error), LS_OK);
    assert_int_equal(ls_directory_make(deep, NULL, &error), LS_OK);
    assert_int_equal(ls_directory_sync(deep, NULL, &error), LS_OK);
    const char *file = scratch_path(*state, "a/file");
    scratch_write(file, "x", 1);
    assert_int_equal(ls_directory_make(scratch_path(file, "d"), NULL, &error), LS_EIO);
    assert_non_null(strstr(error.text, "a/file: cannot create the directory: Not a directory"));
    struct ls_atomic_file atomic;
    assert_int_equal(
        ls_atomic_file_open(&atomic, scratch_path(*state, "absent/file"), NULL, &error), LS_EIO);
    char *long_path = malloc(5001);
    memset(long_path, 'x', 5000);
    long_path[5000] = '\0';
    assert_int_equal(ls_atomic_file_open(&atomic, long_path, NULL, &error), LS_EINVAL);
    assert_int_equal(ls_directory_make(long_path, NULL, &error), LS_EINVAL);
    free(long_path);
}

int main(void)
{
#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(test_pieces_of_every_size),
        IN_SCRATCH(test_abort_and_empty),
        IN_SCRATCH(test_a_failing_call_keeps_the_older_file),
        IN_SCRATCH(test_directories),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
