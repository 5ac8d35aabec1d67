/* What metrics.jsonl tells besides the losses: where each step's time went, by axis of the layout,
 * and what happened to the run. */
#include "../support/scratch.h"
#include "../support/suite.h"
#include "run_program.h"

#include <lockstep/base.h>

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *folder; /* every command runs there */
static char enter[PATH_MAX];

static void expect(const char *arguments, int code, const char *words)
{
    program_expect_under(enter, arguments, code, words);
}

static int folder_setup(void **state)
{
    int status = scratch_setup(state);
    folder = *state;
    snprintf(enter, sizeof enter, "cd '%s';", folder);
    program_corpus(folder);
    static const char config[] = "model: {preset: gpt2-tiny}\n"
                                 "data: {train: corpus_train, valid: corpus_valid}\n"
                                 "batch: {global: 8}\n"
                                 "parallel: {threads: 1}\n"
                                 "eval: {samples: 4}\n"
                                 "log: {progress: 'off'}\n";
    scratch_write(scratch_path(folder, "run.yaml"), config, sizeof config - 1);
    return status;
}

/* All records of a run, a JSON array. */
static json_t *records_read(const char *name)
{
    json_t *all = json_array();
    char *text = scratch_read(scratch_path(folder, name), NULL), *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        json_t *record = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        if (!record)
            fail_msg("%s: no JSON: %s", name, line);
        json_array_append_new(all, record);
    }
    free(text);
    return all;
}

static const char *text_of(const json_t *record, const char *key)
{
    const char *text = json_string_value(json_object_get(record, key));
    return text ? text : "";
}

static double number_of(const json_t *record, const char *key)
{
    return json_number_value(json_object_get(record, key));
}

/* "start@0 save@2 ...": events and evaluations in their order. */
static void events_expect(const char *name, const char *expected)
{
    char found[1024] = "";
    size_t used = 0, i;
    json_t *all = records_read(name), *record;
    json_array_foreach(all, i, record)
    {
        const char *event =
            json_object_get(record, "validation_loss") ? "eval" : text_of(record, "event");
        assert_true(number_of(record, "time") > 0);
        if (*event)
            used += (size_t)snprintf(found + used, sizeof found - used, "%s%s@%d", used ? " " : "",
                                     event, (int)number_of(record, "step"));
    }
    assert_string_equal(found, expected);
    json_decref(all);
}

/* An evaluation that fell due between two meetings follows the second, also where a run that went
 * on from there has none of it. */
CASE(test_an_evaluation_that_a_meeting_owes)
{
    expect("train run.yaml train.out=met train.steps=3 train.save_every=3 eval.every=0 "
           "async.mode=diloco async.workers=2 async.sync_every=3",
           0, "");
    expect("train run.yaml train.out=met train.steps=6 optim.decay_steps=3 train.save_every=3 "
           "eval.every=2 async.mode=diloco async.workers=2 async.sync_every=3 train.resume=auto",
           0, "");
    events_expect("met/metrics.jsonl", "start@0 meeting@3 save@3 end@3 resume@3 eval@3 meeting@6 "
                                       "save@6 eval@6 end@6");
    /* A worker's folder is a run like any other. */
    expect("eval met/workers/0001", 0, "step 6 ");
    expect("export met/workers/0001 --out met-worker", 0, "met-worker");
}

/* The parts of a step add up to it, and there is one part for each axis that is cut. */
CASE(test_where_the_time_went)
{
    static const char *const parts[] = {"compute_s",       "optimizer_s",         "wait_data_s",
                                        "wait_tp_s",       "wait_cp_s",           "wait_pp_s",
                                        "wait_dp_shard_s", "wait_dp_replicate_s", "wait_other_s"};
    static const struct {
        const char *layout, *absent;
    } runs[] = {
        {"", "wait_tp_s wait_cp_s wait_pp_s wait_dp_shard_s wait_dp_replicate_s wait_other_s"},
        {"parallel.pp=2 parallel.tp=2", "wait_cp_s wait_dp_shard_s wait_dp_replicate_s"},
        {"parallel.dp=2", "wait_tp_s wait_cp_s wait_pp_s wait_dp_shard_s"},
        {"parallel.dp=2 parallel.zero=2", "wait_tp_s wait_cp_s wait_pp_s wait_dp_replicate_s"},
    };
    for (size_t r = 0; r < sizeof runs / sizeof runs[0]; r++) {
        char line[256];
        size_t i;
        snprintf(line, sizeof line, "train run.yaml train.out=times%zu train.steps=6 %s", r,
                 runs[r].layout);
        expect(line, 0, "");
        snprintf(line, sizeof line, "times%zu/metrics.jsonl", r);
        json_t *all = records_read(line), *record;
        double whole = 0, sum = 0;
        json_array_foreach(all, i, record)
        {
            if (!json_object_get(record, "loss"))
                continue;
            whole += number_of(record, "step_s");
            for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
                const json_t *part = json_object_get(record, parts[p]);
                bool absent = strstr(runs[r].absent, parts[p]) != NULL;
                if (absent == (part != NULL))
                    fail_msg("%s: %s is%s there", runs[r].layout, parts[p], part ? "" : " not");
                sum += number_of(record, parts[p]);
            }
            assert_true(number_of(record, "compute_s") > 0);
            assert_true(number_of(record, "optimizer_s") > 0);
        }
        /* step_s is rank 0's, the parts are means over ranks, of which any may leave a step later:
         * what they must be is in train/test_trace_times.c, by a clock of its own. A single rank
         * may be held up where it would wait for others. */
        if (r == 0 && sum > whole * (1 + 1e-3))
            fail_msg("%s: parts of %g s of steps of %g s", runs[r].layout, sum, whole);
        json_decref(all);
    }
}

/* A run that is stopped by a signal goes on in another layout, and is over. */
CASE(test_what_happened)
{
    char before[PATH_MAX + 256];
    expect("train run.yaml train.out=told train.steps=4 train.save_every=2 eval.every=4 "
           "parallel.dp=2",
           0, "");
    events_expect("told/metrics.jsonl", "start@0 save@2 save@4 eval@4 end@4");
    expect("train run.yaml train.out=told train.steps=6 optim.decay_steps=4 train.resume=auto "
           "eval.every=6 parallel.tp=2",
           0, "");
    events_expect("told/metrics.jsonl",
                  "start@0 save@2 save@4 eval@4 end@4 resume@4 save@6 eval@6 end@6");
    json_t *all = records_read("told/metrics.jsonl"), *record;
    size_t i;
    json_array_foreach(all, i, record)
    {
        const char *event = text_of(record, "event");
        if (!strcmp(event, "start") || !strcmp(event, "resume")) {
            assert_string_equal(text_of(record, "layout"),
                                *event == 's' ? "parallel.dp=2" : "parallel.tp=2");
            assert_int_equal(number_of(record, "ranks"), 2);
            assert_string_equal(text_of(record, "transport"), "thread");
            assert_true(*text_of(record, "fingerprint"));
        }
        if (!strcmp(event, "save"))
            assert_true(number_of(record, "save_s") > 0);
        if (!strcmp(event, "end"))
            assert_string_equal(text_of(record, "how"), "done");
        if (json_object_get(record, "validation_loss"))
            assert_true(number_of(record, "eval_s") > 0 && number_of(record, "sequences") == 4);
    }
    json_decref(all);
    /* The signal comes when there is a step's record. */
    snprintf(
        before, sizeof before,
        "%s run() { \"$@\" & until grep -qs loss_bits signalled/metrics.jsonl; do kill -0 $! || "
        "return; sleep 0.05; done; kill -TERM $!; wait $!; }; run",
        enter);
    program_expect_under(before, "train run.yaml train.out=signalled train.steps=1000000",
                         ls_exit_code(LS_ESTOPPED), "stopped by a signal");
    all = records_read("signalled/metrics.jsonl");
    size_t count = json_array_size(all);
    assert_true(count >= 4);
    assert_string_equal(text_of(json_array_get(all, count - 3), "event"), "signal");
    assert_string_equal(text_of(json_array_get(all, count - 2), "event"), "save");
    assert_string_equal(text_of(json_array_get(all, count - 1), "event"), "end");
    assert_string_equal(text_of(json_array_get(all, count - 1), "how"), "stopped");
    json_decref(all);
}

/* Warnings from before the file is open are there too, and so is why a run failed. */
CASE(test_warnings_and_failures)
{
    char command[PATH_MAX + 128];
    expect("train run.yaml train.out=warned train.steps=4 train.save_every=2", 0, "");
    snprintf(command, sizeof command,
             "%s truncate -s 100 warned/checkpoints/step-00000004/*.safetensors;", enter);
    program_expect_under(command,
                         "train run.yaml train.out=warned train.steps=4 train.resume=auto "
                         "log.level=error",
                         0, "");
    json_t *all = records_read("warned/metrics.jsonl");
    bool found = false;
    size_t i;
    json_t *record;
    json_array_foreach(all, i, record)
    {
        if (strcmp(text_of(record, "event"), "warning"))
            continue;
        found = true;
        assert_non_null(strstr(text_of(record, "text"), "skipping a damaged checkpoint"));
        assert_int_equal(number_of(record, "step"), 2);
    }
    assert_true(found);
    json_decref(all);
    expect("train run.yaml train.out=wild train.steps=40 optim.lr=1 optim.weight_decay=10 "
           "optim.schedule=constant numerics.precision=fp32",
           ls_exit_code(LS_ENUMERIC), "the loss is");
    all = records_read("wild/metrics.jsonl");
    record = json_array_get(all, json_array_size(all) - 1);
    assert_string_equal(text_of(record, "how"), "failed");
    assert_non_null(strstr(text_of(record, "text"), "nothing was updated"));
    json_decref(all);
}

SUITE_MAIN(folder_setup, scratch_teardown)
