/* Checkpoints are whole or absent: every failing call, every interruption, every damage. */
#include <lockstep/ckpt.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../support/scratch.h"

enum { VALUES = 1000 };
static float weights[VALUES], moments[VALUES];
static const struct ls_tensor_entry model[] = {{"wte.weight", LS_F32, 2, {10, 100}, weights}};
static const struct ls_tensor_entry optimizer[] = {
    {"exp_avg.wte.weight", LS_F32, 2, {10, 100}, moments}};

static struct ls_checkpoint_state state_of(int64_t step)
{
    return (struct ls_checkpoint_state){.step = step,
                                        .samples = 32 * step,
                                        .tokens = 4096 * step,
                                        .loss_scale = 65536,
                                        .good_steps = 77,
                                        .hysteresis = 2,
                                        .recipe_digest = "0123456789abcdef",
                                        .recipe = "model:\n  layers: 4\n",
                                        .fingerprint = "avx512, onednn 2.6.3",
                                        .hash = "00112233445566778899aabbccddeeff"};
}

static int save(const char *run, int64_t step, const struct ls_fault *fault, struct ls_error *error)
{
    struct ls_checkpoint_state state = state_of(step);
    for (int i = 0; i < VALUES; i++) {
        weights[i] = (float)(step + i);
        moments[i] = (float)(step - i);
    }
    return ls_checkpoint_save(run, &state, model, 1, optimizer, 1, fault, error);
}

static void save_good(const char *run, int64_t step)
{
    struct ls_error error = {0};
    if (save(run, step, NULL, &error))
        fail_msg("%s", error.text);
}

/* The newest checkpoint's step, -1 for none; its tensors must be that step's. */
static int64_t latest_step(const char *run, const struct ls_log *log)
{
    struct ls_error error = {0};
    struct ls_checkpoint *checkpoint;
    if (ls_checkpoint_find_latest(&checkpoint, run, log, &error))
        fail_msg("%s", error.text);
    if (!checkpoint)
        return -1;
    int64_t step = checkpoint->state.step;
    const float *values = ls_safetensors_find(checkpoint->model, "wte.weight")->data;
    assert_true(values[7] == (float)(step + 7));
    values = ls_safetensors_find(checkpoint->optimizer, "exp_avg.wte.weight")->data;
    assert_true(values[7] == (float)(step - 7));
    ls_checkpoint_close(checkpoint);
    return step;
}

static void test_round_trip(void **state)
{
    const char *run = scratch_path(*state, "a/new/run");
    struct ls_error error = {0};
    assert_int_equal(latest_step(run, NULL), -1);
    /* The folder of a run is not made again: it may have been moved. */
    assert_int_equal(save(run, 120, NULL, &error), LS_EIO);
    assert_int_equal(access(run, F_OK), -1);
    assert_int_equal(ls_directory_make(run, NULL, &error), LS_OK);
    save_good(run, 120);
    struct ls_checkpoint *checkpoint;
    if (ls_checkpoint_open(&checkpoint, scratch_path(run, "checkpoints/step-00000120"), &error))
        fail_msg("%s", error.text);
    struct ls_checkpoint_state want = state_of(120), *got = &checkpoint->state;
    assert_int_equal(got->step, want.step);
    assert_int_equal(got->samples, want.samples);
    assert_int_equal(got->tokens, want.tokens);
    assert_true(got->loss_scale == want.loss_scale);
    assert_int_equal(got->good_steps, want.good_steps);
    assert_int_equal(got->hysteresis, want.hysteresis);
    assert_string_equal(got->recipe_digest, want.recipe_digest);
    assert_string_equal(got->recipe, want.recipe);
    assert_string_equal(got->fingerprint, want.fingerprint);
    assert_string_equal(got->hash, want.hash);
    ls_checkpoint_close(checkpoint);
    assert_int_equal(latest_step(run, NULL), 120);
}

static void test_same_step_is_replaced(void **state)
{
    save_good(*state, 5);
    save_good(*state, 5);
    assert_int_equal(latest_step(*state, NULL), 5);
    assert_int_equal(scratch_count(scratch_path(*state, "checkpoints")), 1);
    assert_int_equal(scratch_count(scratch_path(*state, "checkpoints/step-00000005")), 3);
}

/* ---- failures while writing ---- */

struct countdown {
    int left, errno_value;
    char call[16];
};

static int fail_when_zero(void *user, const char *call)
{
    struct countdown *countdown = user;
    if (countdown->left-- != 0)
        return 0;
    snprintf(countdown->call, sizeof countdown->call, "%s", call);
    return countdown->errno_value;
}

/* Whichever system call fails, the one checkpoint that is there stays, and the new one is whole or
 * absent. */
static void fail_each_call(const char *run, int64_t step, int errno_value, int code_expected)
{
    int64_t before = latest_step(run, NULL);
    int n = 0;
    for (bool failed = true; failed; n++) {
        struct countdown countdown = {.left = n, .errno_value = errno_value};
        struct ls_fault fault = {fail_when_zero, &countdown};
        struct ls_error error = {0};
        int code = save(run, step, &fault, &error);
        failed = countdown.call[0] != '\0';
        assert_int_equal(code, failed ? code_expected : LS_OK);
        if (failed && (!strstr(error.text, run) || !strstr(error.text, strerror(errno_value))))
            fail_msg("call %d (%s): \"%s\"", n, countdown.call, error.text);
        int64_t latest = latest_step(run, NULL);
        /* Past the rename only the directory's fsync can fail. */
        if (latest != before && !(latest == step && (!failed || !strcmp(countdown.call, "fsync"))))
            fail_msg("call %d (%s) failed: the latest step is %lld", n, countdown.call,
                     (long long)latest);
        int entries = scratch_count(scratch_path(run, "checkpoints"));
        if (entries != 1 + (latest != before))
            fail_msg("call %d (%s) left %d entries", n, countdown.call, entries);
    }
    assert_in_range(n, 18, 60); /* the loop really went through all of them */
}

static void test_every_failing_call(void **state)
{
    save_good(*state, 1);
    fail_each_call(*state, 2, ENOSPC, LS_ENOSPC);
    assert_int_equal(ls_checkpoint_prune(*state, 1, NULL), LS_OK);
    fail_each_call(*state, 2, EIO, LS_EIO); /* again, in place of a checkpoint that is there */
}

/* The system itself cuts a write short and refuses the rest. */
static void test_file_size_limit(void **state)
{
    const char *run = *state;
    save_good(run, 1);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit before, limit;
    getrlimit(RLIMIT_FSIZE, &before);
    for (rlim_t bytes = 0; bytes < 4 * VALUES; bytes += 333) {
        struct ls_error error = {0};
        limit = (struct rlimit){bytes, before.rlim_max};
        setrlimit(RLIMIT_FSIZE, &limit);
        int code = save(run, 2, NULL, &error);
        setrlimit(RLIMIT_FSIZE, &before);
        assert_int_equal(code, LS_EIO);
        assert_non_null(strstr(error.text, strerror(EFBIG)));
        assert_int_equal(latest_step(run, NULL), 1);
        assert_int_equal(scratch_count(scratch_path(run, "checkpoints")), 1);
    }
    signal(SIGXFSZ, SIG_DFL);
}

static void test_parts_must_be_complete(void **state)
{
    struct ls_checkpoint_state of = state_of(3);
    struct ls_checkpoint_writer *writer;
    struct ls_safetensors_writer *tensors;
    struct ls_error error = {0};
    assert_int_equal(ls_checkpoint_writer_open(&writer, *state, &of, NULL, &error), LS_OK);
    assert_int_equal(ls_checkpoint_writer_begin(writer, LS_CKPT_MODEL, model, 1, &tensors, &error),
                     LS_OK);
    assert_int_equal(ls_safetensors_writer_append(tensors, weights, sizeof weights, &error), LS_OK);
    assert_int_equal(ls_checkpoint_writer_end(writer, &error), LS_OK);
    assert_int_equal(ls_checkpoint_writer_commit(writer, &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "optimizer.safetensors was not written"));
    assert_int_equal(latest_step(*state, NULL), -1);

    assert_int_equal(ls_checkpoint_writer_open(&writer, *state, &of, NULL, &error), LS_OK);
    assert_int_equal(ls_checkpoint_writer_begin(writer, LS_CKPT_MODEL, model, 1, &tensors, &error),
                     LS_OK);
    assert_int_equal(ls_checkpoint_writer_end(writer, &error), LS_EINVAL);
    ls_checkpoint_writer_abort(writer);
    of.loss_scale = 1.0 / 0.0;
    assert_int_equal(ls_checkpoint_save(*state, &of, model, 1, optimizer, 1, NULL, &error),
                     LS_EINVAL);
    assert_int_equal(scratch_count(scratch_path(*state, "checkpoints")), 0);
}

/* ---- crashes and damage ---- */

static void count_warnings(void *user, enum ls_log_level level, const char *line)
{
    if (level == LS_LOG_WARNING && strstr(line, "damaged checkpoint"))
        ++*(int *)user;
}

static void test_interrupted_writes_are_never_taken(void **state)
{
    save_good(*state, 1);
    save_good(*state, 2);
    const char *finished = scratch_path(*state, "checkpoints/step-00000002");
    const char *interrupted = scratch_path(*state, "checkpoints/step-00000002.tmp");
    assert_int_equal(rename(finished, interrupted), 0); /* whole, but never given its name */
    assert_int_equal(mkdir(scratch_path(*state, "checkpoints/step-3"), 0777), 0);
    assert_int_equal(latest_step(*state, NULL), 1);
    save_good(*state, 2); /* the leftover is in nobody's way */
    assert_int_equal(latest_step(*state, NULL), 2);
}

/* Changes one byte, or with byte < 0 cuts the last one off. */
static void damage(const char *path, int64_t byte)
{
    size_t size;
    char *data = scratch_read(path, &size);
    if (byte >= 0)
        data[byte] ^= 1;
    scratch_write(path, data, byte < 0 ? size - 1 : size);
    free(data);
}

static void test_damage_is_found_and_passed_over(void **state)
{
    static const struct {
        const char *file;
        int64_t byte;
        const char *expected;
    } cases[] = {
        {"model.safetensors", 500, "the digest is"},
        {"model.safetensors", 9, "the digest is"},
        {"model.safetensors", -1, "bytes long, state.json says"},
        {"optimizer.safetensors", 4000, "the digest is"},
        {"optimizer.safetensors", -1, "bytes long, state.json says"},
        {"state.json", 0, "not JSON"},
        {"state.json", 5, "expected a string under \"format\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        save_good(*state, 10);
        save_good(*state, 20);
        const char *newest = scratch_path(*state, "checkpoints/step-00000020");
        damage(scratch_path(newest, cases[i].file), cases[i].byte);
        struct ls_error error = {0};
        struct ls_checkpoint *checkpoint;
        int code = ls_checkpoint_open(&checkpoint, newest, &error);
        if (code != LS_ECKPT || !strstr(error.text, cases[i].expected) ||
            !strstr(error.text, cases[i].file))
            fail_msg("case %zu: code %d, \"%s\", expected \"%s\"", i, code, error.text,
                     cases[i].expected);
        int warnings = 0;
        struct ls_log log = {LS_LOG_INFO, count_warnings, &warnings};
        assert_int_equal(latest_step(*state, &log), 10);
        assert_int_equal(warnings, 1);
    }
}

/* A step, a scale or a recipe that changed by one bit must not be resumed from. */
static void test_every_flipped_byte_of_the_state(void **state)
{
    save_good(*state, 10);
    const char *directory = scratch_path(*state, "checkpoints/step-00000010");
    const char *path = scratch_path(directory, "state.json");
    size_t size;
    char *text = scratch_read(path, &size);
    for (size_t i = 0; i + 1 < size; i++) { /* the last newline says nothing */
        struct ls_error error = {0};
        struct ls_checkpoint *checkpoint;
        text[i] ^= 1;
        scratch_write(path, text, size);
        int code = ls_checkpoint_open(&checkpoint, directory, &error);
        if (code != LS_ECKPT || !strstr(error.text, "step-00000010"))
            fail_msg("byte %zu as '%c': code %d, \"%s\"", i, text[i], code, error.text);
        text[i] ^= 1;
    }
    free(text);
}

static void test_all_damaged_is_an_error(void **state)
{
    save_good(*state, 10);
    unlink(scratch_path(*state, "checkpoints/step-00000010/model.safetensors"));
    struct ls_error error = {0};
    struct ls_checkpoint *checkpoint;
    assert_int_equal(ls_checkpoint_find_latest(&checkpoint, *state, NULL, &error), LS_ECKPT);
    assert_non_null(strstr(error.text, "none of 1 checkpoints"));
    assert_non_null(strstr(error.text, "model.safetensors"));
}

static void test_newer_version_is_refused(void **state)
{
    save_good(*state, 10);
    const char *path = scratch_path(*state, "checkpoints/step-00000010/state.json");
    char *text = scratch_read(path, NULL);
    char *version = strstr(text, "\"version\": 1");
    assert_non_null(version);
    version[strlen("\"version\": ")] = '2';
    scratch_write(path, text, strlen(text));
    free(text);
    struct ls_error error = {0};
    struct ls_checkpoint *checkpoint;
    assert_int_equal(
        ls_checkpoint_open(&checkpoint, scratch_path(*state, "checkpoints/step-00000010"), &error),
        LS_ECKPT);
    assert_non_null(strstr(error.text, "version 2, this program reads 1"));
}

static void test_prune_keeps_the_newest_whole_ones(void **state)
{
    const char *parent = scratch_path(*state, "checkpoints");
    struct ls_error error = {0};
    assert_int_equal(ls_checkpoint_prune(*state, 2, &error), LS_OK); /* none yet */
    for (int64_t step = 10; step <= 50; step += 10)
        save_good(*state, step);
    assert_int_equal(ls_checkpoint_prune(*state, 0, &error), LS_OK);
    assert_int_equal(scratch_count(parent), 5);
    damage(scratch_path(*state, "checkpoints/step-00000050/model.safetensors"), -1);
    assert_int_equal(mkdir(scratch_path(*state, "checkpoints/step-00000060.tmp"), 0777), 0);
    assert_int_equal(ls_checkpoint_prune(*state, 2, &error), LS_OK);
    assert_int_equal(scratch_count(parent), 3); /* 30 and 40, and 50 for a person to look at */
    assert_int_equal(access(scratch_path(*state, "checkpoints/step-00000030"), F_OK), 0);
    assert_int_equal(latest_step(*state, NULL), 40);
}

int main(void)
{
#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(test_round_trip),
        IN_SCRATCH(test_same_step_is_replaced),
        IN_SCRATCH(test_every_failing_call),
        IN_SCRATCH(test_file_size_limit),
        IN_SCRATCH(test_parts_must_be_complete),
        IN_SCRATCH(test_interrupted_writes_are_never_taken),
        IN_SCRATCH(test_damage_is_found_and_passed_over),
        IN_SCRATCH(test_every_flipped_byte_of_the_state),
        IN_SCRATCH(test_all_damaged_is_an_error),
        IN_SCRATCH(test_newer_version_is_refused),
        IN_SCRATCH(test_prune_keeps_the_newest_whole_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
