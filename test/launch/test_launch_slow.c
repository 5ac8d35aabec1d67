/* What the launcher makes of slow ranks and stages, call by call: since when a rank is slow, and
 * the split of layers that a stage gets. */
#include "../support/config_words.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "launch/launch_private.h"

#include <lockstep/base.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DRIFT(took_s)                                                                              \
    "{\"time\": 1, \"event\": \"drift\", \"step\": 1, \"kind\": \"slow_rank\", \"rank\": 2, "      \
    "\"took_s\": " took_s ", \"expected_s\": 1.0, \"host\": \"b\"}\n"

/* The start of a run, and what follows. */
static void records_write(const char *folder, const char *what)
{
    char text[2048];
    snprintf(text, sizeof text,
             "{\"time\": 1, \"event\": \"start\", \"step\": 0, \"ranks\": 4}\n%s", what);
    scratch_write(scratch_path(folder, "metrics.jsonl"), text, strlen(text));
}

/* A rank that gets slower than launch.slow is that slow since then. */
CASE_WITH(test_a_rank_that_gets_slower, scratch_setup, scratch_teardown)
{
    enum { LONG_AGO = -1 };
    struct launch_watch watch;
    launch_watch_open(&watch, *state, 0.5);
    launch_watch_begin(&watch);
    records_write(*state, DRIFT("1.2"));
    assert_true(launch_watch_look(&watch));
    assert_int_equal(watch.slow_rank, 2);
    watch.slow_s = LONG_AGO;
    records_write(*state, DRIFT("1.2") DRIFT("3.0"));
    assert_true(launch_watch_look(&watch));
    assert_true(watch.slow_above == 2 && watch.slow_s != LONG_AGO);
    watch.slow_s = LONG_AGO;
    records_write(*state, DRIFT("1.2") DRIFT("3.0") DRIFT("2.0"));
    assert_true(launch_watch_look(&watch));
    assert_true(watch.slow_above == 1 && watch.slow_s == LONG_AGO);
}

/* Steps are whole numbers: other records are of none. */
CASE_WITH(test_a_step_that_is_none, scratch_setup, scratch_teardown)
{
    struct launch_watch watch;
    launch_watch_open(&watch, *state, 0.5);
    launch_watch_begin(&watch);
    records_write(*state, "{\"step\": 3, \"loss_bits\": \"40000000\", \"step_s\": 2}\n"
                          "{\"step\": 20.5, \"loss_bits\": \"40000000\", \"step_s\": 1}\n"
                          "{\"step\": 1e300, \"loss_bits\": \"40000000\", \"step_s\": 1}\n");
    assert_true(launch_watch_look(&watch));
    assert_int_equal(watch.step, 3);
    assert_true(watch.step_s == 2);
}

/* The launch of a job in two stages, and its records, of which nobody is told. */
struct job {
    struct ls_config config;
    struct ls_log log;
    struct ls_launch launch;
    struct launch_events events;
};

static void job_open(struct job *job, const char *folder)
{
    struct ls_error error = {0};
    *job = (struct job){
        .config = config_of_words("model.preset=gpt2-tiny model.layers=6 model.vocab=50 "
                                  "batch.global=8 parallel.pp=2 launch.pause_s=0 launch.slow=0.5 "
                                  "train.out=%s",
                                  folder)};
    job->launch = (struct ls_launch){.config = &job->config, .log = &job->log};
    assert_ok(launch_events_open(&job->events, &job->launch, &error), error);
}

/* One step that takes long is not what the start without a slow host takes. */
CASE_WITH(test_one_step_does_not_tell_what_was_gained, scratch_setup, scratch_teardown)
{
    struct launch_gain gain = {.host = "b", .before_s = 2, .expected_s = 1};
    const struct launch_watch watch = {
        .stepped = true, .step = 9, .step_s = 3, .recent_s = {1.5, 1.25, 3}, .recent = 3};
    struct job job;
    job_open(&job, *state);
    launch_slow_gained(&gain, &watch, &job.launch, &job.events);
    assert_true(gain.expected_s == 0);
    ls_jsonl_close(job.events.file, NULL);
    char *text = scratch_read(scratch_path(*state, "events.jsonl"), NULL);
    assert_non_null(strstr(text, "\"host\": \"b\", \"step_s\": 1.5, \"before_s\": 2, "
                                 "\"expected_s\": 1}"));
    free(text);
}

/* ---- the split of a slow stage --------------------------------------------------------------- */

#define BEFORE "parallel.split=0-4,5-7"
#define SPLIT  "parallel.split=0-1,2-7"

/* A step of 3 s, and an end by a layout that is refused, in a start with a layout that the split is
 * not for. */
CASE_WITH(test_a_start_without_the_split_is_not_judged, scratch_setup, scratch_teardown)
{
    struct launch_split split = {
        .text = SPLIT, .ranks = 2, .gain = {.before_s = 2, .expected_s = 1}};
    struct launch_watch watch = {.stepped = true, .step = 9, .step_s = 3};
    const struct launch_job ended = {.code = ls_exit_code(LS_ELAYOUT)};
    char keys[LS_SEARCH_KEYS_BYTES] = "", others[LS_CONFIG_TEXT_BYTES] = "parallel.dp=2";
    struct job job;
    job_open(&job, *state);
    launch_split_add(&split, 2, keys);
    assert_string_equal(keys, SPLIT);
    assert_true(split.gain.expected_s == 1);
    launch_split_add(&split, 2, others);
    assert_string_equal(others, "parallel.dp=2");
    launch_split_gained(&split, &watch, &job.launch, &job.events);
    assert_false(split.fails || split.over);
    assert_false(launch_split_refused(&split, &ended, &watch, "no", &job.launch, &job.events));
    ls_jsonl_close(job.events.file, NULL);
}

/* Whatever ends the start in which a split gained nothing, the next one has the split before. */
CASE_WITH(test_a_split_that_fails_is_not_started_again, scratch_setup, scratch_teardown)
{
    struct launch_split split = {
        .text = SPLIT, .before = BEFORE, .ranks = 2, .gain = {.before_s = 2, .expected_s = 1}};
    struct launch_watch watch = {.stepped = true, .step = 9, .step_s = 3, .stage = -1};
    char keys[LS_SEARCH_KEYS_BYTES] = "";
    struct job job;
    job_open(&job, *state);
    launch_split_gained(&split, &watch, &job.launch, &job.events);
    launch_split_add(&split, 2, keys);
    assert_string_equal(keys, BEFORE);
    assert_false(launch_split_change(&split, &watch, &job.launch, 2, 2, keys, &job.events));
    ls_jsonl_close(job.events.file, NULL);
}

/* However long they are, and with texts in quotes. */
CASE_WITH(test_long_keys_take_a_split, scratch_setup, scratch_teardown)
{
    const struct launch_watch watch = {.stepped = true, .step = 1, .step_s = 2, .stages_s = "3,1"};
    struct launch_split split = {0};
    char keys[LS_SEARCH_KEYS_BYTES], before[sizeof keys], file[LS_CONFIG_TEXT_BYTES];
    struct job job;
    job_open(&job, *state);
    snprintf(file, sizeof file, "/%0*d b", (int)sizeof file - 4, 0);
    snprintf(before, sizeof before, "parallel.pp=2 memory.file=\"%s\"", file);
    assert_true(launch_split_change(&split, &watch, &job.launch, 2, 2, before, &job.events));
    snprintf(keys, sizeof keys, "%s", before);
    launch_split_add(&split, 2, keys);
    assert_int_equal(strlen(keys), strlen(before) + strlen(" " SPLIT));
    assert_string_equal(keys + strlen(before), " " SPLIT);
    ls_jsonl_close(job.events.file, NULL);
}

SUITE_MAIN(NULL, NULL)
