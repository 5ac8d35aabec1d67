/* Copies of checkpoints in a directory and in S3: whole or absent, whatever fails, and the same
 * bits when they come back. */
#include "../support/checkpoints.h"
#include "../support/countdown.h"
#include "../support/extent.h"
#include "../support/s3_server.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "ckpt/place_kind.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* A checkpoint has three files; the model's and the optimizer's are uploaded in parts. */
enum { VALUES = 600, FILES = 3, PART_BYTES = 1000, TRIES = 3 };
#define BUCKET "s3://bucket/runs/a"

static struct s3_server *server;

static void checkpoint_make(const char *run, int64_t step)
{
    const struct ls_checkpoint_state state = {.step = step,
                                              .samples = 8 * step,
                                              .tokens = 64 * step,
                                              .loss_scale = 1,
                                              .recipe_digest = "0123456789abcdef",
                                              .recipe = "model:\n",
                                              .fingerprint = "plain",
                                              .hash = "00112233445566778899aabbccddeeff"};
    float values[VALUES];
    struct ls_error error = {0};
    for (int i = 0; i < VALUES; i++)
        values[i] = (float)(step * 1000 + i);
    struct ls_tensor_entry model = {"wte.weight", LS_F32, 1, {VALUES}, values};
    struct ls_tensor_entry moment = {"exp_avg.wte.weight", LS_F32, 1, {VALUES}, values};
    const struct checkpoint_tensors parts[] = {{&model, NULL, 1}, {&moment, NULL, 1}};
    assert_ok(checkpoint_write(run, &state, NULL, parts, NULL, &error), error);
}

static const char *step_path(const char *run, int64_t step)
{
    char name[64];
    snprintf(name, sizeof name, "checkpoints/step-%08lld", (long long)step);
    return scratch_path(run, name);
}

static struct ls_place *place_open_with(const char *where, const struct ls_fault *fault,
                                        struct ls_net_options net)
{
    const struct ls_place_options options = {.fault = fault, .net = net, .part_bytes = PART_BYTES};
    struct ls_place *place;
    struct ls_error error = {0};
    assert_ok(ls_place_open(&place, where, &options, &error), error);
    return place;
}

static struct ls_place *place_open(const char *where, const struct ls_fault *fault)
{
    return place_open_with(
        where, fault, (struct ls_net_options){.tries = TRIES, .pause_s = 1e-3, .slow_s = 1000});
}

static int put(struct ls_place *place, const char *run, int64_t step, uint64_t *bytes,
               struct ls_error *error)
{
    struct ls_held *held;
    int status = ls_held_open(&held, step_path(run, step), error);
    status = status ? status : ls_place_put(place, held, bytes, error);
    ls_held_close(held);
    return status;
}

static void put_good(struct ls_place *place, const char *run, int64_t step)
{
    struct ls_error error = {0};
    uint64_t bytes;
    assert_ok(put(place, run, step, &bytes, &error), error);
}

/* The steps of whole copies, as a text. */
static const char *steps_of(struct ls_place *place)
{
    static char text[256];
    struct ls_error error = {0};
    int64_t *steps;
    size_t count, used = 0;
    assert_ok(ls_place_list(place, &steps, &count, &error), error);
    text[0] = '\0';
    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%lld", i ? " " : "",
                                 (long long)steps[i]);
    free(steps);
    return text;
}

/* What comes back is what went there. */
static void expect_back(struct ls_place *place, const char *run, int64_t step)
{
    struct ls_error error = {0};
    char back[PATH_MAX], line[4 * PATH_MAX];
    snprintf(back, sizeof back, "%s", scratch_path(run, "back"));
    snprintf(line, sizeof line, "rm -rf '%s' && mkdir '%s'", back, back);
    assert_int_equal(system(line), 0);
    assert_ok(ls_place_get(place, step, back, &error), error);
    char original[PATH_MAX];
    snprintf(original, sizeof original, "%s", step_path(run, step));
    expect_same_checkpoints(original, step_path(back, step), "a copy");
    assert_int_equal(scratch_count(scratch_path(back, "checkpoints")), 1);
}

/* ---- both ------------------------------------------------------------------------------------ */

static void edit(json_t *manifest, void *user)
{
    json_object_set_new(manifest, "layout", json_string("another"));
}

static void check_place(struct ls_place *place, const char *run)
{
    struct ls_error error = {0};
    uint64_t bytes;
    assert_string_equal(steps_of(place), "");
    for (int64_t step = 1; step <= 3; step++) {
        checkpoint_make(run, step);
        put_good(place, run, step);
    }
    assert_string_equal(steps_of(place), "3 2 1");
    for (int64_t step = 1; step <= 3; step++)
        expect_back(place, run, step);
    /* The same again is not copied; another of its step is. */
    assert_int_equal(put(place, run, 3, &bytes, &error), LS_OK);
    assert_int_equal(bytes, 0);
    manifest_edit(step_path(run, 3), edit, NULL);
    assert_int_equal(put(place, run, 3, &bytes, &error), LS_OK);
    assert_true(bytes > 0);
    expect_back(place, run, 3);
    assert_int_equal(ls_place_remove(place, 2, &error), LS_OK);
    assert_int_equal(ls_place_remove(place, 2, &error), LS_OK);
    assert_int_equal(ls_place_remove(place, 9, &error), LS_OK);
    assert_string_equal(steps_of(place), "3 1");
}

/* What is held can be copied though the run has removed it. */
static void check_held(struct ls_place *place, const char *run)
{
    struct ls_held *held;
    struct ls_error error = {0};
    uint64_t bytes;
    checkpoint_make(run, 4);
    checkpoint_make(run, 5);
    assert_int_equal(ls_held_open(&held, step_path(run, 4), &error), LS_OK);
    assert_int_equal(ls_checkpoint_prune(run, 1, 5, &error), LS_OK);
    assert_false(ls_checkpoint_there(run, 4));
    assert_int_equal(ls_place_put(place, held, &bytes, &error), LS_OK);
    ls_held_close(held);
    checkpoint_make(run, 4);
    expect_back(place, run, 4);
}

/* One of version 1 is a copy as others are. */
static void check_version_1(struct ls_place *place, const char *run)
{
    struct ls_error error = {0};
    char old[PATH_MAX];
    snprintf(old, sizeof old, "%s", scratch_path(run, "old"));
    checkpoint_make(run, 6);
    old_checkpoint_copy(step_path(run, 6), old);
    put_good(place, old, 6);
    assert_int_equal(strncmp(steps_of(place), "6 ", 2), 0);
    assert_int_equal(ls_place_sweep(place, &error), LS_OK);
    expect_back(place, old, 6);
    put_good(place, run, 6); /* in its place */
    expect_back(place, run, 6);
}

static int setup(void **state)
{
    server = s3_server_start();
    return scratch_setup(state);
}

static int teardown(void **state)
{
    assert_int_equal(s3_server_faults(server), 0);
    s3_server_stop(server);
    return scratch_teardown(state);
}

/* Of tests that sign wrongly. */
static int teardown_unsigned(void **state)
{
    s3_server_stop(server);
    return scratch_teardown(state);
}

CASE_WITH(test_directory, setup, teardown)
{
    struct ls_place *place = place_open(scratch_path(*state, "copies"), NULL);
    check_place(place, *state);
    check_held(place, *state);
    check_version_1(place, *state);
    ls_place_close(place);
}

CASE_WITH(test_bucket, setup, teardown)
{
    struct ls_place *place = place_open(BUCKET, NULL);
    s3_server_expect_beside(server, FILES - 1);
    check_place(place, *state);
    check_held(place, *state);
    check_version_1(place, *state);
    assert_int_equal(s3_server_objects(server, "runs/a/step-00000006/"), FILES);
    ls_place_close(place);
    /* A prefix is not that of another run whose name begins so; none is a place, too. */
    place = place_open("s3://bucket/runs", NULL);
    assert_string_equal(steps_of(place), "");
    ls_place_close(place);
    place = place_open("s3://bucket", NULL);
    put_good(place, *state, 5);
    assert_string_equal(steps_of(place), "5");
    expect_back(place, *state, 5);
    ls_place_close(place);
    assert_int_equal(s3_server_uploads(server), 0);
}

/* ---- what fails ------------------------------------------------------------------------------ */

/* Whichever call fails, the older copy is whole, and the new one whole or absent. */
CASE_WITH(test_directory_of_which_each_call_fails, setup, teardown)
{
    struct countdown countdown = {.left = -1};
    const struct ls_fault fault = {countdown_before, &countdown};
    struct ls_place *place = place_open(scratch_path(*state, "copies"), &fault);
    struct ls_error error = {0};
    uint64_t bytes;
    int n = 0;
    checkpoint_make(*state, 1);
    checkpoint_make(*state, 2);
    put_good(place, *state, 1);
    for (bool failed = true; failed; n++) {
        countdown = (struct countdown){.left = n};
        int status = put(place, *state, 2, &bytes, &error);
        failed = countdown.call[0] != '\0';
        assert_int_equal(status, failed ? LS_ENOSPC : LS_OK);
        const char *there = steps_of(place);
        /* Past the rename only the directory's fsync can fail. */
        if (strcmp(there, "1") &&
            (strcmp(there, "2 1") || (failed && strcmp(countdown.call, "fsync"))))
            fail_msg("call %d (%s) failed: the place has %s", n, countdown.call, there);
        assert_int_equal(scratch_count(scratch_path(*state, "copies")), strlen(there) / 2 + 1);
        countdown.left = -1;
        expect_back(place, *state, 1);
        if (failed)
            assert_int_equal(ls_place_remove(place, 2, &error), LS_OK);
    }
    assert_in_range(n, 12, 60);
    /* What a process that was killed leaves. */
    assert_int_equal(
        ls_directory_make(scratch_path(*state, "copies/step-00000009.tmp"), NULL, &error), LS_OK);
    scratch_write(scratch_path(*state, "copies/step-00000009.tmp/x"), "x", 1);
    assert_int_equal(ls_place_sweep(place, &error), LS_OK);
    assert_int_equal(scratch_count(scratch_path(*state, "copies")), 2);
    for (n = 0;; n++) { /* and on the way back */
        countdown = (struct countdown){.left = n};
        const char *back = scratch_path(*state, "other");
        assert_int_equal(ls_directory_add(back, NULL, &error), LS_OK);
        int status = ls_place_get(place, 2, back, &error), count = 0;
        assert_int_equal(status, countdown.call[0] ? LS_ENOSPC : LS_OK);
        assert_int_equal(ls_checkpoint_count(back, &count, &error), LS_OK);
        if (count > 0 && status && strcmp(countdown.call, "fsync"))
            fail_msg("call %d (%s) failed, and a checkpoint is there", n, countdown.call);
        if (!status)
            break;
    }
    assert_in_range(n, 12, 60);
    ls_place_close(place);
}

/* In a process that may open a folder and fewer files than a checkpoint has. */
CASE_WITH(test_a_copy_needs_all_files_open, scratch_setup, scratch_teardown)
{
    int ended = -1, next = dup(0);
    close(next);
    checkpoint_make(*state, 1);
    const char *path = step_path(*state, 1);
    pid_t child = fork();
    if (child == 0) {
        const rlim_t limit = (rlim_t)next + FILES;
        struct ls_held *held;
        struct ls_error error = {0};
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){limit, limit});
        int status = ls_held_open(&held, path, &error);
        bool good = status == LS_EIO && !held &&
                    strstr(error.text, " (a copy holds all files of a checkpoint open): Too many "
                                       "open files (raise ulimit -n)");
        if (!good)
            fprintf(stderr, "%d: %s\n", status, error.text);
        _exit(!good);
    }
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(ended, 0);
}

/* A list of what is there of the step, and what its bytes need. The same copy again: the list, of
 * two objects a page here, and the manifest. */
CASE_WITH(test_how_many_requests_a_copy_takes, setup, teardown)
{
    struct ls_place *place = place_open(BUCKET, NULL);
    struct ls_held *held;
    struct ls_error error = {0};
    int expected = 1;
    checkpoint_make(*state, 1);
    assert_ok(ls_held_open(&held, step_path(*state, 1), &error), error);
    for (int64_t i = 0; i < held->count; i++)
        expected += held->files[i].size <= PART_BYTES
                        ? 1
                        : 2 + (int)ls_ceil_div((int64_t)held->files[i].size, PART_BYTES);
    ls_held_close(held);
    s3_server_fail(server, S3_SOUND, 0, false);
    put_good(place, *state, 1);
    assert_int_equal(s3_server_requests(server), expected);
    s3_server_fail(server, S3_SOUND, 0, false);
    put_good(place, *state, 1);
    assert_int_equal(s3_server_requests(server), (FILES + 1) / 2 + 1);
    ls_place_close(place);
}

/* Any request fails once: it is made again, and nothing is left of the first try. */
CASE_WITH(test_each_request_fails_once, setup, teardown)
{
    static const enum s3_failure kinds[] = {S3_BUSY, S3_DROP, S3_CUT};
    struct ls_place *place = place_open(BUCKET, NULL);
    struct ls_error error = {0};
    checkpoint_make(*state, 1);
    s3_server_expect_beside(server, FILES - 1);
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        int n = 1;
        for (;; n++) {
            assert_int_equal(ls_place_remove(place, 1, &error), LS_OK);
            s3_server_fail(server, kinds[kind], n, false);
            put_good(place, *state, 1);
            int requests = s3_server_requests(server);
            s3_server_fail(server, S3_SOUND, 0, false);
            assert_int_equal(s3_server_uploads(server), 0);
            expect_back(place, *state, 1);
            if (requests < n)
                break;
        }
        assert_in_range(n, 15, 60);
        for (n = 1;; n++) { /* and on the way back */
            s3_server_fail(server, kinds[kind], n, false);
            expect_back(place, *state, 1);
            if (s3_server_requests(server) < n)
                break;
        }
        assert_in_range(n, 8, 60);
    }
    assert_int_equal(s3_server_torn(server), 0);
    ls_place_close(place);
}

/* From any request on all fail: nothing of the step looks whole, and what lies there is removed
 * when the server is back. */
CASE_WITH(test_from_each_request_on_all_fail, setup, teardown)
{
    static const enum s3_failure kinds[] = {S3_BUSY, S3_DROP, S3_CUT, S3_REFUSE};
    const int every = check_every(3, 4);
    struct ls_error error = {0};
    uint64_t bytes;
    checkpoint_make(*state, 1);
    checkpoint_make(*state, 2);
    s3_server_expect_beside(server, FILES - 1);
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        struct ls_place *place = place_open(BUCKET, NULL);
        put_good(place, *state, 1);
        bool failed = true;
        for (int n = 1 + (int)kind % every; failed; n += every) {
            s3_server_fail(server, kinds[kind], n, true);
            int status = put(place, *state, 2, &bytes, &error);
            failed = s3_server_requests(server) >= n;
            s3_server_fail(server, S3_SOUND, 0, false);
            assert_int_equal(status, failed ? LS_EIO : LS_OK);
            const char *there = steps_of(place);
            /* The answer to the last request was lost: then all of it is there. */
            if (strcmp(there, "1") && (strcmp(there, "2 1") || (failed && kinds[kind] != S3_CUT)))
                fail_msg("from request %d on failure %d: the place has %s", n, (int)kinds[kind],
                         there);
            bool whole = strcmp(there, "1") != 0;
            assert_int_equal(ls_place_sweep(place, &error), LS_OK);
            assert_int_equal(s3_server_uploads(server), 0);
            assert_int_equal(s3_server_objects(server, "runs/a/step-00000002/"), whole * FILES);
            expect_back(place, *state, 1);
            put_good(place, *state, 2);
            expect_back(place, *state, 2);
            assert_int_equal(ls_place_remove(place, 2, &error), LS_OK);
            assert_int_equal(s3_server_objects(server, "runs/a/"), FILES);
        }
        ls_place_close(place);
    }
    assert_int_equal(s3_server_torn(server), 0);
}

CASE_WITH(test_a_refusal_is_not_tried_again, setup, teardown)
{
    struct ls_place *place = place_open(BUCKET, NULL);
    struct ls_error error = {0};
    int64_t *steps;
    size_t count;
    s3_server_fail(server, S3_REFUSE, 1, true);
    assert_int_equal(ls_place_list(place, &steps, &count, &error), LS_EIO);
    assert_int_equal(s3_server_requests(server), 1);
    assert_non_null(strstr(error.text, "HTTP 403 AccessDenied (for a test)"));
    s3_server_fail(server, S3_BUSY, 1, true);
    assert_int_equal(ls_place_list(place, &steps, &count, &error), LS_EIO);
    assert_int_equal(s3_server_requests(server), TRIES);
    assert_non_null(strstr(error.text, "HTTP 503 SlowDown (for a test), tried 3 times"));
    ls_place_close(place);
}

CASE_WITH(test_a_server_that_stalls, setup, teardown)
{
    const struct ls_net_options hasty = {.tries = 1000, .pause_s = 1e-3, .slow_s = 1};
    struct ls_place *place = place_open_with(BUCKET, NULL, hasty);
    checkpoint_make(*state, 1);
    s3_server_fail(server, S3_STALL, 4, false);
    put_good(place, *state, 1);
    s3_server_fail(server, S3_SOUND, 0, false);
    expect_back(place, *state, 1);
    ls_place_close(place);
}

static bool ends;

static bool ends_now(void *user)
{
    return ends;
}

/* Whoever has no time left is not held up by a server that stalls, or by pauses. */
CASE_WITH(test_giving_up, setup, teardown)
{
    static const enum s3_failure kinds[] = {S3_STALL, S3_BUSY};
    const struct ls_place_options options = {
        .net = {.tries = 1000, .pause_s = 1000, .slow_s = 1000, .ends = ends_now}};
    struct ls_place *place;
    struct ls_error error = {0};
    uint64_t bytes;
    checkpoint_make(*state, 1);
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        ends = false;
        assert_int_equal(ls_place_open(&place, BUCKET, &options, &error), LS_OK);
        s3_server_fail(server, kinds[kind], 2, false);
        ends = true;
        assert_int_equal(put(place, *state, 1, &bytes, &error), LS_ESTOPPED);
        ls_place_close(place);
        s3_server_fail(server, S3_SOUND, 0, false);
    }
    ends = false;
    assert_int_equal(ls_place_open(&place, scratch_path(*state, "copies"), &options, &error),
                     LS_OK);
    ends = true;
    assert_int_equal(put(place, *state, 1, &bytes, &error), LS_ESTOPPED);
    ends = false;
    assert_string_equal(steps_of(place), "");
    assert_int_equal(scratch_count(scratch_path(*state, "copies")), 0);
    ls_place_close(place);
}

/* A byte that changes on the way back is found, and nothing is left. */
CASE_WITH(test_a_server_that_lies, setup, teardown)
{
    struct ls_place *place = place_open(BUCKET, NULL);
    struct ls_error error = {0};
    int found = 0, count;
    checkpoint_make(*state, 1);
    put_good(place, *state, 1);
    for (int n = 1;; n++) {
        char name[32];
        snprintf(name, sizeof name, "other-%d", n);
        const char *back = scratch_path(*state, name);
        s3_server_fail(server, S3_LIE, n, false);
        assert_int_equal(ls_directory_add(back, NULL, &error), LS_OK);
        int status = ls_place_get(place, 1, back, &error);
        assert_int_equal(ls_checkpoint_count(back, &count, &error), LS_OK);
        assert_int_equal(count, status ? 0 : 1);
        if (s3_server_requests(server) < n)
            break;
        if (n > 2 && status != LS_ECKPT) /* the first two are pages of a list */
            fail_msg("answer %d was changed, and nobody found it", n);
        found += status == LS_ECKPT;
    }
    assert_in_range(found, 7, 60);
    ls_place_close(place);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void expect_refused(const char *where, int code, const char *words)
{
    struct ls_place *place;
    struct ls_error error = {0};
    const struct ls_place_options options = {.net = {.tries = 2, .pause_s = 1e-3}};
    assert_int_equal(ls_place_open(&place, where, &options, &error), code);
    assert_null(place);
    if (!strstr(error.text, words))
        fail_msg("%s: \"%s\" does not say \"%s\"", where, error.text, words);
}

CASE_WITH(test_places_that_are_none, setup, teardown_unsigned)
{
    static const char *const malformed[] = {
        "s3://",           "s3://ab/x",        "s3://Bucket/x",    "http://host/x",
        "s3://bucket/a b", "s3://bucket/a//b", "s3://bucket/../b", "s3://bucket/a?b"};
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++)
        expect_refused(malformed[i], LS_ECONFIG, "");
    expect_refused("s3://other/a", LS_EIO, "NoSuchBucket");
    expect_refused(scratch_path(*state, "no/such"), LS_EIO, "No such file or directory");
    scratch_write(scratch_path(*state, "file"), "", 0);
    expect_refused(scratch_path(*state, "file"), LS_EIO, "file");
    setenv("AWS_SECRET_ACCESS_KEY", "another", 1);
    expect_refused(BUCKET, LS_EIO, "SignatureDoesNotMatch");
    setenv("AWS_SECRET_ACCESS_KEY", "", 1);
    expect_refused(BUCKET, LS_ECONFIG, "AWS_SECRET_ACCESS_KEY");
    setenv("AWS_SECRET_ACCESS_KEY", "another", 1);
    setenv("AWS_ENDPOINT_URL_S3", "127.0.0.1", 1);
    expect_refused(BUCKET, LS_ECONFIG, "http://");
    setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1", 1);
    expect_refused(BUCKET, LS_EIO, "tried 2 times");
}

/* A stranger's names do not leave the folder. */
CASE_WITH(test_names_that_no_checkpoint_has, setup, teardown)
{
    static const char *const keys[] = {"runs/a/step-00000007/../../x", "runs/a/step-00000007/.x",
                                       "runs/a/step-00000007/a/b", "runs/a/step-00000007/"};
    struct ls_place *place = place_open(BUCKET, NULL);
    struct ls_error error = {0};
    int count;
    s3_server_place(server, "runs/a/step-00000007/manifest.json", "{}");
    assert_int_equal(ls_place_get(place, 7, *state, &error), LS_ECKPT);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        s3_server_place(server, keys[i], "x");
        assert_int_equal(ls_place_get(place, 7, *state, &error), LS_ECKPT);
        assert_int_equal(ls_checkpoint_count(*state, &count, &error), LS_OK);
        assert_int_equal(count, 0);
        assert_int_equal(scratch_count(scratch_path(*state, "checkpoints")), 0);
        assert_int_equal(ls_place_remove(place, 7, &error), LS_OK);
        s3_server_place(server, "runs/a/step-00000007/manifest.json", "{}");
    }
    ls_place_close(place);
}

/* ---- a broken twin --------------------------------------------------------------------------- */

/* One that puts the manifest first: a copy looks whole before it is. */
CASE_WITH(test_a_manifest_that_comes_first, setup, teardown)
{
    struct ls_place *place = place_open(BUCKET, NULL);
    struct ls_held *held;
    struct ls_error error = {0};
    uint64_t bytes;
    checkpoint_make(*state, 1);
    s3_server_expect_beside(server, FILES - 1);
    assert_int_equal(ls_held_open(&held, step_path(*state, 1), &error), LS_OK);
    struct held_file last = held->files[held->count - 1];
    held->files[held->count - 1] = held->files[0];
    held->files[0] = last;
    assert_int_equal(ls_place_put(place, held, &bytes, &error), LS_OK);
    assert_true(s3_server_torn(server) > 0);
    ls_held_close(held);
    ls_place_close(place);
}

/* ---------------------------------------------------------------------------------------------- */

SUITE_MAIN(NULL, NULL)
