/* `lockstep profile`: the parts of a run's steps add up to them, the plan stands beside, the
 * bottleneck is named, and what is no run or too old a one is refused.
 */
#include "../support/scratch.h"
#include "../support/suite.h"
#include "runs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLUSTER                                                                                    \
    "name: test\nhosts: 1\naccelerators: 64\naccelerator: {name: core, peak: {bf16: 1 TFLOP/s}, "  \
    "memory: 1 GB, bandwidth: 10 GB/s}\nlinks: [{name: bus, joins: 64, latency: 1 us, "            \
    "bandwidth: 10 GB/s}]\n"

/* The share that stands in the line beginning with name, in percent; fails without such a line. */
static double share_of(const char *name)
{
    char begin[64];
    snprintf(begin, sizeof begin, "\n  %s", name);
    const char *line = strstr(output, begin);
    if (!line)
        fail_msg("no line of %s in\n%s", name, output);
    const char *percent = strchr(line, '%');
    while (percent[-1] != ' ')
        percent--;
    return atof(percent);
}

/* The shares above "a step". */
static double sum_of_shares(void)
{
    double sum = 0;
    char *line = strstr(output, "  computing"), *end = strstr(output, "  a step");
    if (!line || !end)
        fail_msg("no table in\n%s", output);
    while (line < end) {
        char *percent = strchr(line, '%');
        while (percent[-1] != ' ')
            percent--;
        sum += atof(percent);
        line = strchr(line, '\n') + 1;
    }
    return sum;
}

CASE(test_parts_are_the_step)
{
    static const struct {
        const char *name;
        double percent;
    } parts[] = {{"computing", 40},
                 {"the optimizer", 20},
                 {"waits for samples", 10},
                 {"waits for stages (pp)", 15},
                 {"waits for dp_shard", 10},
                 {"waits for the slowest", 4},
                 {"rest", 1}};
    enum { PARTS = sizeof parts / sizeof *parts };
    expect("$L train $C train.out=cut train.steps=40 parallel.dp=2 parallel.zero=2 "
           "parallel.pp=2 batch.micro=1",
           0, "hash");
    expect("$L profile cut", 0, "steps 3 to 40; 2 others left out");
    double sum = sum_of_shares();
    if (sum < 99.5 || sum > 100.5)
        fail_msg("the shares add up to %g %%:\n%s", sum, output);
    assert_true(share_of("computing") > 0);
    for (int i = 0; i < PARTS; i++)
        share_of(parts[i].name); /* the line is there */
    assert_non_null(strstr(output, "The bottleneck is "));
    assert_non_null(strstr(output, "--cluster machine.yaml"));
    assert_null(strstr(output, "by ops"));
    /* How long steps took is a machine's affair; those that took this have these shares. */
    expect("sed -i '/loss_bits/s/\"step_s\".*\"wait_other_s\": [-+.0-9e]*/\"step_s\": 0.01, "
           "\"tokens_per_s\": 12800, \"compute_s\": 0.004, \"optimizer_s\": 0.002, "
           "\"wait_data_s\": 0.001, \"wait_pp_s\": 0.0015, \"wait_dp_shard_s\": 0.001, "
           "\"wait_other_s\": 0.0004/' cut/metrics.jsonl && $L profile cut",
           0, "steps 3 to 40; 2 others left out");
    for (int i = 0; i < PARTS; i++)
        if (fabs(share_of(parts[i].name) - parts[i].percent) > 0.051)
            fail_msg("%s: expected %g %% in\n%s", parts[i].name, parts[i].percent, output);
}

CASE(test_ops_and_plan)
{
    expect("$L train $C train.out=ops train.steps=12 log.profile=true parallel.dp=2", 0, "hash");
    scratch_write(at("cluster.yaml"), CLUSTER, sizeof CLUSTER - 1);
    /* Within each step ops are a part of computing. With all steps as the last one, medians are. */
    expect(
        "last=$(grep loss_bits ops/metrics.jsonl | tail -1 | sed 's/.*\"step_s\"/\"step_s\"/') && "
        "sed -i \"/loss_bits/s|\\\"step_s\\\".*|$last|\" ops/metrics.jsonl && "
        "$L profile ops/checkpoints/step-00000012 --cluster cluster.yaml",
        0, "difference");
    double sum = sum_of_shares();
    assert_true(sum > 99.5 && sum < 100.5);
    double ops = share_of("products") + share_of("attention") + share_of("passes over memory") +
                 share_of("update");
    double both = share_of("computing") + share_of("the optimizer");
    assert_true(share_of("products") > 0 && ops > 0);
    if (ops > both + 3)
        fail_msg("ops take %g %%, of %g %% of computing:\n%s", ops, both, output);
    assert_null(strstr(output, "--cluster machine.yaml"));
}

/* A run with a plan says so; its profile has the plan's column without being asked, and the records
 * of what drifted are told until it is over. */
CASE(test_a_run_with_a_plan)
{
    scratch_write(at("cluster.yaml"), CLUSTER, sizeof CLUSTER - 1);
    expect("$L train $C train.out=planned train.steps=12 log.drift_every=5 train.plan=cluster.yaml "
           "parallel.dp=2",
           0, "by the plan of cluster.yaml a step takes");
    expect("grep -c '\"event\": \"start\".*\"plan_step_s\": [0-9]' planned/metrics.jsonl", 0, "1");
    expect("grep -c 'lockstep_plan_step_seconds{run=\"planned\"}' planned/metrics.prom", 0, "1");
    expect("grep -c 'lockstep_drift{run=\"planned\",kind=' planned/metrics.prom", 0, "4");
    expect("$L profile planned", 0, "difference");
    expect("sed -i '/drift/d' planned/metrics.jsonl && echo '{\"step\": 12, \"event\": \"drift\", "
           "\"kind\": \"slow_rank\", \"text\": \"rank 1 is slow\"}' >> planned/metrics.jsonl && "
           "$L profile planned",
           0, "Since step 12 the run names: rank 1 is slow.");
    expect("echo '{\"step\": 12, \"event\": \"drift_over\", \"kind\": \"slow_rank\"}' >> "
           "planned/metrics.jsonl && $L profile planned",
           0, "The bottleneck is ");
    assert_null(strstr(output, "the run names"));
    expect("$L train $C train.out=none train.steps=2 train.plan=nothing.yaml", 16, "train.plan");
    expect("$L train $C train.out=none train.steps=2 train.plan=cluster.yaml log.drift_every=0", 2,
           "log.drift_every");
}

/* Ops that are watched are the same ones. */
CASE(test_watching_changes_no_bits)
{
    expect("$L train $C train.out=watched train.steps=3 log.profile=true", 0, "hash");
    expect("$L train $C train.out=alone train.steps=3", 0, "hash");
    expect_same_run("watched", "alone");
}

CASE(test_a_new_layout_counts_anew)
{
    expect("$L train $C train.out=moved train.steps=12 train.save_every=6 train.keep=9", 0, "hash");
    expect("$L train $C train.out=moved train.steps=20 train.resume=auto parallel.dp=2", 0, "hash");
    expect("$L profile moved", 0, "steps 15 to 20; 14 others left out");
    /* Records whose step is no whole number are none. */
    expect("last=$(grep loss_bits moved/metrics.jsonl | tail -1) && for step in 20.5 -1 1e300; do "
           "echo \"$last\" | sed \"s/\\\"step\\\": 20/\\\"step\\\": $step/\" >> "
           "moved/metrics.jsonl; done && $L profile moved",
           0, "steps 15 to 20; 14 others left out");
}

/* A step of DiLoCo takes a batch of each worker. */
CASE(test_workers_batches_are_a_whole_one)
{
    expect("$L train $C train.out=workers train.steps=8 async.mode=diloco async.workers=2 "
           "async.sync_every=4",
           0, "hash");
    expect("$L profile workers", 0, "steps 3 to 8; 2 others left out");
    /* With other members the batch is another one. */
    expect("$L members workers 0 && $L train $C train.out=workers train.steps=8 train.extend=8 "
           "async.mode=diloco async.workers=2 async.sync_every=4 train.resume=auto",
           0, "workers 0 train");
    expect("$L profile workers", 0, "steps 11 to 16; 10 others left out");
}

/* A server's tokens a second are those of all workers; older versions recorded one worker's. */
CASE(test_pushes_of_older_versions)
{
    expect("$L train $C train.out=pushes train.steps=8 async.mode=server async.workers=2 "
           "async.sync_every=4 parallel.workers=2",
           0, "hash");
    expect("$L profile pushes", 0, "steps 3 to 8; 2 others left out");
    expect("sed -Ei 's/(\"tokens_per_s\": )[-+.0-9e]*/\\116000/; s/(\"step_s\": )[-+.0-9e]*/"
           "\\10.008/' pushes/metrics.jsonl && $L profile pushes",
           0, "steps 3 to 8; 2 others left out");
}

CASE(test_refused)
{
    expect("$L profile", 2, "expected the directory of a run");
    expect("$L profile nothing", 16, "nothing");
    expect("$L profile cut ops", 2, "one argument too many");
    expect("$L profile cut --cluster nothing.yaml", 16, "nothing.yaml");
    expect("$L train $C train.out=short train.steps=2", 0, "hash");
    expect("$L profile short", 14, "of 2 steps none counts");
    expect("cp -r ops old && sed -i 's/\"compute_s\"/\"other_s\"/' old/metrics.jsonl && "
           "$L profile old",
           14, "older versions did not record it");
    expect("cp -r ops empty && rm empty/metrics.jsonl && $L profile empty", 16, "metrics.jsonl");
    expect("cp -r ops torn && echo '{\"step\": 1' > torn/metrics.jsonl && echo x >> "
           "torn/metrics.jsonl && $L profile torn",
           14, "torn/metrics.jsonl");
    static const char tiny[] = "s/accelerators: 64/accelerators: 1/; s/joins: 64/joins: 1/";
    char line[512];
    snprintf(line, sizeof line,
             "sed '%s' cluster.yaml > one.yaml; $L profile ops --cluster one.yaml", tiny);
    expect(line, 13, "the cluster has 1");
}

/* A trace of rank with steps from 3 to 14 of a millisecond each, whose parts are known. */
static void trace_make(int rank)
{
    static const struct {
        const char *name, *category, *group;
        int begin, us;
    } spans[] = {{"wait", "data", "", 0, 50},
                 {"all_reduce", "comm", "tp", 150, 100}, /* within forward */
                 {"forward", "layer", "", 100, 300},
                 {"reduce_scatter", "wait", "shard", 500, 80}, /* within backward */
                 {"backward", "layer", "", 400, 500},
                 {"all_gather", "comm", "world", 900, 20},
                 {"update", "op", "", 930, 40}, /* counts for nothing by itself */
                 {"update", "optimizer", "", 920, 70},
                 {"step", "step", "", 0, 1000}};
    char path[64];
    snprintf(path, sizeof path, "traced/trace/rank-%05d.json", rank);
    FILE *file = fopen(at(path), "w");
    assert_non_null(file);
    fprintf(file, "[");
    for (int step = 3; step <= 14; step++)
        for (size_t i = 0; i < sizeof spans / sizeof *spans; i++)
            fprintf(file,
                    "{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":0,\"ts\":%d,"
                    "\"dur\":%d,\"args\":{\"group\":\"%s\",\"step\":%d}},\n",
                    spans[i].name, spans[i].category, rank, 2000 * step + spans[i].begin,
                    spans[i].us, spans[i].group, step);
    fprintf(file,
            "{\"name\":\"events\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"kept\":96,\"dropped\":0,"
            "\"realtime_ns\":4000000000000000000}}]\n",
            rank);
    fclose(file);
}

/* Spans give the parts that the records have, and more. */
CASE(test_traces_are_read)
{
    static const struct {
        const char *name;
        double percent;
    } rows[] = {{"computing", 68},    {"the optimizer", 7},      {"waits for samples", 5},
                {"waits for tp", 10}, {"waits for dp_shard", 8}, {"waits for the slowest", 2},
                {"forward", 20},      {"backward", 42}};
    enum { ROWS = sizeof rows / sizeof *rows, OF_RECORDS = 6 };
    expect("$L train $C train.out=traced train.steps=14 parallel.dp_shard=2 parallel.tp=2 "
           "parallel.zero=1 batch.micro=1 log.trace=true train.save_every=5",
           0, "hash");
    expect("touch -d '1 hour ago' traced/trace/*; $L profile traced", 0,
           "by the spans of the traces of all ranks");
    expect("$L profile traced", 0, "steps 3 to 14; 2 others left out");
    expect("$L profile traced", 0, "computes longest");
    expect("$L profile traced", 0, " each, 3 times\n");
    for (int i = 0; i < ROWS; i++)
        share_of(rows[i].name); /* the line is there */
    expect("cp -r traced recorded && rm -r recorded/trace && $L profile recorded", 0,
           "steps 3 to 14; 2 others left out");
    if (strstr(output, "trace"))
        fail_msg("a run without traces speaks of them:\n%s", output);
    for (int i = 0; i < OF_RECORDS; i++)
        share_of(rows[i].name);
    expect("cp -r traced again", 0, "");
    for (int rank = 0; rank < 4; rank++)
        trace_make(rank);
    expect("$L profile traced", 0, "steps 3 to 14; 2 others left out");
    for (int i = 0; i < ROWS; i++)
        if (fabs(share_of(rows[i].name) - rows[i].percent) > 0.051)
            fail_msg("%s\n%s", rows[i].name, output);
    /* A start that does the last steps again, without traces: those of before are not its, also if
     * the files are copies. */
    expect("$L train traced/config.yaml train.out=again log.trace=false "
           "train.resume=again/checkpoints/step-00000010",
           0, "hash");
    expect("touch again/trace/*; $L profile again", 0, "steps 3 to 14; ");
    if (strstr(output, "spans"))
        fail_msg("older traces are read:\n%s", output);
}

/* The spans are what is shown: where they say something else, so does the table. What cannot be
 * read is named. */
CASE(test_traces_of_another_kind)
{
    expect("$L train $C train.out=other train.steps=8 parallel.dp_shard=2 parallel.zero=2 "
           "log.trace=true",
           0, "hash");
    expect("$L profile other", 0, "waits for dp_shard");
    expect("sed -i 's/\"group\":\"[^\"]*\"/\"group\":\"tp\"/' other/trace/*.json; $L profile other",
           0, "waits for tp");
    if (strstr(output, "waits for dp_shard"))
        fail_msg("no span is on dp_shard:\n%s", output);
    expect("sed -i 's/\"cat\":\"step\"/\"cat\":\"walk\"/' other/trace/rank-00001.json; "
           "$L profile other",
           0, "waits for dp_shard"); /* no step is in all traces: by the records */
    expect("echo '{\"traceEvents\": 1}' > other/trace/rank-00001.json; $L profile other", 14,
           "rank-00001.json: expected a trace");
    expect("echo '{\"traceEvents\": [{\"ph\": \"X\"}]}' > other/trace/rank-00001.json; "
           "$L profile other",
           14, "rank-00001.json: event 0 is");
    expect("echo '{' > other/trace/rank-00001.json; $L profile other", 14, "rank-00001.json:");
    expect("rm other/trace/rank-00001.json; $L profile other", 0, "traces of 1 rank, of 2");
}

SUITE_MAIN(corpus_setup, scratch_teardown)
