/* Where a run stands, by its records: one that ends while they are read, and what began since. */
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"

#include <lockstep/base.h>
#include <lockstep/launch.h>
#include <lockstep/trace.h>

#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define START(time) "{\"time\": " #time ", \"event\": \"start\", \"step\": 0, \"ranks\": 4}\n"
#define END(time)   "{\"time\": " #time ", \"event\": \"end\", \"how\": \"done\"}\n"

static const char *folder;

static void records_write(const char *name, const char *lines)
{
    scratch_write(scratch_path(folder, name), lines, strlen(lines));
}

/* A run on another host has recorded its start. */
static int setup(void **state)
{
    int status = scratch_setup(state);
    folder = *state;
    records_write("config.yaml", "model: {preset: gpt2-tiny, vocab: 50}\ntrain: {steps: 4}\n");
    records_write("metrics.jsonl", START(10));
    records_write("lock", "host node7\npid 4711\nstarted 1\nsince now\n");
    return status;
}

/* The run records its end, and is not held any more, once its records have been read. */
static bool ends;

WRAPPED(ls_jsonl_each);
int __wrap_ls_jsonl_each(const char *path, ls_record_visitor *visit, void *user, bool *torn,
                         struct ls_error *error)
{
    int status = __real_ls_jsonl_each(path, visit, user, torn, error);
    if (ends && strstr(path, "metrics.jsonl")) {
        records_write("metrics.jsonl", START(10) END(20));
        unlink(scratch_path(folder, "lock"));
        ends = false;
    }
    return status;
}

static struct ls_run_status status_of_run(void)
{
    struct ls_run_status status;
    struct ls_error error = {0};
    assert_ok(ls_run_status_read(folder, &status, &error), error);
    return status;
}

CASE_WITH(test_a_run_that_ends_meanwhile, setup, scratch_teardown)
{
    assert_int_equal(status_of_run().state, LS_RUN_RUNNING);
    ends = true;
    assert_int_equal(status_of_run().state, LS_RUN_DONE);
    assert_int_equal(status_of_run().ranks, 4);
}

/* A launcher has given up; then a start without one ended well. */
CASE_WITH(test_a_start_since_a_launcher_gave_up, setup, scratch_teardown)
{
    unlink(scratch_path(folder, "lock"));
    records_write("metrics.jsonl", START(10) END(20));
    records_write("events.jsonl", "{\"time\": 15, \"event\": \"gave_up\", \"text\": \"why\"}\n");
    struct ls_run_status status = status_of_run();
    assert_int_equal(status.state, LS_RUN_FAILED);
    assert_string_equal(status.text, "why");
    records_write("metrics.jsonl", START(10) START(16) END(20));
    assert_int_equal(status_of_run().state, LS_RUN_DONE);
}

/* Launchers whose jobs never began. */
CASE_WITH(test_a_job_that_never_began, setup, scratch_teardown)
{
    unlink(scratch_path(folder, "lock"));
    unlink(scratch_path(folder, "metrics.jsonl"));
    unlink(scratch_path(folder, "config.yaml"));
    records_write("events.jsonl", "{\"time\": 14, \"event\": \"start\"}\n"
                                  "{\"time\": 15, \"event\": \"failed\", \"kind\": \"other\"}\n"
                                  "{\"time\": 15, \"event\": \"gave_up\", \"text\": \"why\"}\n");
    struct ls_run_status status = status_of_run();
    assert_int_equal(status.state, LS_RUN_FAILED);
    assert_string_equal(status.text, "why");
    assert_int_equal(status.kinds, 1);
    assert_int_equal(status.steps, 0);
    records_write("events.jsonl", "{\"time\": 14, \"event\": \"start\"}\n"
                                  "{\"time\": 15, \"event\": \"stopped\"}\n");
    assert_int_equal(status_of_run().state, LS_RUN_STOPPED);
    records_write("events.jsonl", "{\"time\": 14, \"event\": \"start\"}\n");
    assert_int_equal(status_of_run().state, LS_RUN_KILLED);
}

/* Records of other values than runs write. */
CASE_WITH(test_records_without_numbers, setup, scratch_teardown)
{
    records_write("metrics.jsonl", "{\"time\": 1, \"event\": \"start\", \"ranks\": null}\n"
                                   "{\"time\": 2, \"step\": 1e300, \"loss_bits\": \"40000000\"}\n"
                                   "{\"time\": 2, \"step\": 2.5, \"loss_bits\": \"40000000\"}\n");
    records_write(
        "events.jsonl",
        "{\"time\": 3, \"event\": \"going_on\", \"again\": \"all\", \"seconds\": null}\n");
    struct ls_run_status status = status_of_run();
    assert_int_equal(status.ranks, 0);
    assert_int_equal(status.step, 0);
    assert_int_equal(status.again, 0);
    assert_true(status.lost_s == 0);
}

SUITE_MAIN(NULL, NULL)
