/* Large pieces are read ahead past the page cache: the values are the same, whatever fails, damage
 * is found, and what is in memory or wanted by others too is not read so. */
#include <lockstep/base/stored_file.h>
#include <lockstep/ckpt.h>

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "../support/checkpoints.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"

/* Of two blocks and a part of one; of one; too small to be read so. */
static const struct {
    const char *name;
    int64_t count;
} tensors[] = {{"a", 9 << 18}, {"b", 100001}, {"c", 1000}};
enum { TENSORS = 3, READS = 4 /* of a and b */ };

/* ---- the system ------------------------------------------------------------------------------ */

WRAPPED(open);
WRAPPED(close);
WRAPPED(pread);
WRAPPED(ls_stored_file_cached);
static bool cached;
static atomic_int reads;
static enum { WHOLE, FAILING, SHORT, WRONG } way; /* of every second read */

static atomic_int direct = -1; /* opened to be read past the page cache */

/* Any file system admits it. */
int __wrap_open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    int mode = flags & O_CREAT ? va_arg(rest, int) : 0;
    va_end(rest);
    int fd = __real_open(path, flags & ~O_DIRECT, mode);
    if (flags & O_DIRECT)
        direct = fd;
    return fd;
}

int __wrap_close(int fd)
{
    if (fd == direct) /* another file may get its number */
        direct = -1;
    return __real_close(fd);
}

ssize_t __wrap_pread(int fd, void *to, size_t bytes, off_t offset)
{
    if (fd != direct)
        return __real_pread(fd, to, bytes, offset);
    bool second = reads++ % 2;
    assert_int_equal(((uintptr_t)to | bytes | (uintptr_t)offset) % 4096, 0); /* as O_DIRECT asks */
    if (second && way == FAILING) {
        errno = EIO;
        return -1;
    }
    ssize_t got = __real_pread(fd, to, second && way == SHORT ? bytes / 2 : bytes, offset);
    if (second && way == WRONG)
        ((unsigned char *)to)[4096] ^= 1;
    return got;
}

bool __wrap_ls_stored_file_cached(struct ls_stored_file *file, int64_t at, int64_t bytes)
{
    (void)file, (void)at, (void)bytes;
    return cached;
}

/* ---- a checkpoint ---------------------------------------------------------------------------- */

static float value_of(int t, int64_t i)
{
    return (float)(i * TENSORS + t);
}

static int setup(void **state)
{
    const struct ls_checkpoint_state about = {
        .step = 1, .recipe_digest = "0", .recipe = "", .fingerprint = "", .hash = ""};
    struct ls_tensor_entry entries[TENSORS];
    struct ls_error error = {0};
    int failed = scratch_setup(state);
    for (int t = 0; t < TENSORS; t++) {
        float *values = malloc((size_t)tensors[t].count * sizeof *values);
        for (int64_t i = 0; i < tensors[t].count; i++)
            values[i] = value_of(t, i);
        entries[t] =
            (struct ls_tensor_entry){tensors[t].name, LS_F32, 1, {tensors[t].count}, values};
    }
    const struct checkpoint_tensors parts[] = {{entries, NULL, TENSORS}, {entries, NULL, 1}};
    assert_ok(checkpoint_write(*state, &about, NULL, parts, NULL, &error), error);
    for (int t = 0; t < TENSORS; t++)
        free((void *)entries[t].data);
    cached = false;
    reads = 0;
    way = WHOLE;
    return failed;
}

static struct ls_checkpoint *opened(void *state)
{
    return checkpoint_open(scratch_path(state, "checkpoints/step-00000001"));
}

static const struct ls_stored_tensor *tensor_of(struct ls_checkpoint *checkpoint, int t)
{
    const struct ls_stored_tensor *tensor;
    struct ls_error error = {0};
    assert_ok(ls_checkpoint_require(checkpoint, LS_CKPT_MODEL, tensors[t].name, LS_F32, 1,
                                    &tensors[t].count, &tensor, &error),
              error);
    return tensor;
}

static void expect_all(struct ls_checkpoint *checkpoint, bool alone)
{
    for (int t = 0; t < TENSORS; t++)
        ls_checkpoint_expect(checkpoint, tensor_of(checkpoint, t), 0, tensors[t].count, alone);
}

static void arrived(void *user, int64_t first, int64_t count, void *values)
{
    int64_t *next = user;
    (void)values;
    assert_int_equal(first, *next);
    *next = first + count;
}

static int take(struct ls_checkpoint *checkpoint, int t, struct ls_error *error)
{
    int64_t count = tensors[t].count, next = 0;
    float *values = calloc((size_t)count, sizeof *values);
    int status = ls_checkpoint_take(checkpoint, tensor_of(checkpoint, t), 0, count, values, arrived,
                                    &next, error);
    int64_t right = 0;
    while (!status && right < count && values[right] == value_of(t, right))
        right++;
    free(values);
    if (!status) {
        assert_int_equal(next, count);
        assert_int_equal(right, count);
    }
    return status;
}

static void take_all(struct ls_checkpoint *checkpoint)
{
    struct ls_error error = {0};
    for (int t = 0; t < TENSORS; t++)
        assert_ok(take(checkpoint, t, &error), error);
    ls_checkpoint_close(checkpoint);
}

/* ---- what holds ------------------------------------------------------------------------------ */

CASE_WITH(test_values_whatever_a_read_gives, setup, scratch_teardown)
{
    for (way = WHOLE; way <= SHORT; way++) {
        struct ls_checkpoint *checkpoint = opened(*state);
        reads = 0;
        expect_all(checkpoint, true);
        take_all(checkpoint);
        assert_in_range(reads, way == WHOLE ? READS : 2, READS); /* after a failure none is added */
    }
}

/* The twin: what is read is not what was written. */
CASE_WITH(test_a_wrong_read_is_damage, setup, scratch_teardown)
{
    struct ls_checkpoint *checkpoint = opened(*state);
    struct ls_error error = {0};
    way = WRONG;
    expect_all(checkpoint, true);
    assert_int_equal(take(checkpoint, 0, &error), LS_ECKPT);
    assert_non_null(strstr(error.text, "tensor a: the digest is "));
    assert_true(checkpoint->damaged);
    ls_checkpoint_close(checkpoint);
}

CASE_WITH(test_what_others_or_memory_have_goes_through_the_page_cache, setup, scratch_teardown)
{
    for (int i = 0; i < 2; i++) {
        struct ls_checkpoint *checkpoint = opened(*state);
        cached = i;
        expect_all(checkpoint, cached);
        take_all(checkpoint);
    }
    assert_int_equal(reads, 0);
}

/* Those before it are passed over, and read by themselves later; one is taken twice. */
CASE_WITH(test_pieces_in_another_order, setup, scratch_teardown)
{
    struct ls_checkpoint *checkpoint = opened(*state);
    struct ls_error error = {0};
    expect_all(checkpoint, true);
    assert_ok(take(checkpoint, 1, &error), error);
    assert_ok(take(checkpoint, 1, &error), error);
    take_all(checkpoint);
    assert_int_equal(reads, READS);
}

/* Of a large piece a part, and nothing: the thread is in the middle of it. */
CASE_WITH(test_pieces_that_nobody_takes, setup, scratch_teardown)
{
    struct ls_checkpoint *checkpoint = opened(*state);
    const struct ls_stored_tensor *tensor = tensor_of(checkpoint, 0);
    struct ls_error error = {0};
    float value;
    expect_all(checkpoint, true);
    assert_ok(ls_checkpoint_read(checkpoint, tensor, 7, 1, &value, &error), error);
    assert_true(value == value_of(0, 7));
    ls_checkpoint_close(checkpoint);
}

SUITE_MAIN(NULL, NULL)
