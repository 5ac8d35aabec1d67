/* `lockstep plan`: what it finds, draws, writes and refuses, and how long it takes. Runs from the
 * root of the tree, where configs/ and clusters/ are. */
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/svg.h"
#include "../support/xml.h"
#include "run_program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMALL                                                                                      \
    "plan configs/llama-8b.yaml --cluster clusters/h100-2048.yaml --accelerators 16 "              \
    "model.layers=8 batch.global=32 memory.recompute=none memory.offload.optimizer=none "          \
    "parallel.cp=1 --seconds "                                                                     \
    "unlimited "

#define CPU "clusters/cpu-2core.yaml"

CASE(test_shows_every_part)
{
    static const char *const words[] = {
        "llama-8b: 2.8 G parameters",
        "the best by time",
        "the second is",
        "proven: no other layout is better",
        "where the time of a step goes",
        "waits for other stages (bubble)",
        "model flops",
        "memory: ",
        "samples of a step: ",
        "a checkpoint: ",
        "the state's hash",
        "goodput",
        "the textbook beside it",
        "bubble of",
        "with link.inter=100Gbps",
        "the best then:",
    };
    static char output[PROGRAM_OUTPUT_BYTES];
    assert_int_equal(
        program_run("", SMALL "--explain pp=4,schedule=1f1b --what-if link.inter=100Gbps", output),
        0);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strstr(output, words[i]))
            fail_msg("%s is missing in\n%s", words[i], output);
    assert_null(strstr(output, "parallel.pp=2")); /* pinned */
}

/* By how many percent the step of that line is longer than before the change. */
static double change_of(const char *output, const char *line)
{
    double step, change = 0;
    char unit[8];
    const char *at = strstr(output, line);
    if (!at || sscanf(at + strlen(line), "%lf %7s a step, %lf %%", &step, unit, &change) != 3)
        fail_msg("no \"%s\" in %s", line, output);
    return change;
}

/* A search that is cut short knows of the layout that was the best before the change. */
CASE(test_what_is_best_then_is_no_worse)
{
    static const char *const changes[] = {"accelerator.peak.bf16=5PFLOP/s", "link.intra=10Gbps",
                                          "link.inter=1Gbps"};
    static char output[PROGRAM_OUTPUT_BYTES];
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char arguments[1024];
        snprintf(arguments, sizeof arguments, SMALL "--forecasts 2 --what-if %s", changes[i]);
        assert_int_equal(program_run("", arguments, output), 0);
        double same = change_of(output, "the same layout: ");
        if (change_of(output, "the best then:   ") > same)
            fail_msg("%s: %s", changes[i], output);
    }
}

CASE(test_what_if_takes_several_figures)
{
#define FEW SMALL "--forecasts 1 --top 1 --what-if "
    static char output[PROGRAM_OUTPUT_BYTES];
    program_expect(FEW "'accelerator.tile=[128, 256],price=3'", 0,
                   "with accelerator.tile=[128, 256],price=3\n");
    assert_int_equal(program_run("", FEW "price=3,failures=1e-5", output), 0);
    assert_non_null(strstr(output, " a step, +0.0 %"));
    assert_null(strstr(output, "-0.0 %"));
    program_expect(FEW "hosts=1,price=3", 0, /* no link between hosts */
                   "the same layout: it needs 16 accelerators, and there are 8\n  the best then: ");
}

/* What is compared is said; the step on another cluster is told, also if no training there is in
 * time. */
CASE(test_plans_within_a_time)
{
#define IN_TIME SMALL "--top 2 --explain pp=4,tp=1,schedule=1f1b "
    static char output[PROGRAM_OUTPUT_BYTES];
    program_expect(IN_TIME "--goal cost --within '1 day' --tokens 1B", 0,
                   "the best within 24 h by cost: ");
    assert_int_equal(
        program_run("", IN_TIME "--within 30d --what-if accelerator.peak.bf16=1TFLOP/s", output),
        13);
    static const char *const words[] = {
        "the best within 30 days by time",
        "no other layout within 30 days is better than the first",
        "with accelerator.peak.bf16=1TFLOP/s\n  the same layout: ",
        "no layout that fits ends the training within 30 days: it takes "};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strstr(output, words[i]))
            fail_msg("%s is missing in\n%s", words[i], output);
    assert_null(strstr(output, "the best then"));
}

/* A plan is of one worker's ranks, and says so. */
CASE(test_groups_are_told)
{
    program_expect("plan configs/llama-8b.yaml --cluster clusters/h100-2048.yaml --layout "
                   "model.layers=2 batch.global=4 async.mode=diloco async.workers=2 "
                   "parallel.workers=2",
                   0, "the layout of one of 2 groups of ranks (async.mode): all of them take 2");
}

/* How far the second is behind the first is said in what the goal makes small. */
CASE(test_goals)
{
    static const char *const more[][2] = {{"--goal memory --top 2", "% more memory"},
                                          {"--goal cost --top 2", "the second costs "}};
    static char output[PROGRAM_OUTPUT_BYTES];
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        char arguments[1024];
        snprintf(arguments, sizeof arguments, SMALL "parallel.schedule=1f1b %s", more[i][0]);
        assert_int_equal(program_run("", arguments, output), 0);
        if (!strstr(output, more[i][1]) || strstr(output, "% slower"))
            fail_msg("%s is missing in\n%s", more[i][1], output);
    }
}

/* The list by cost shows what it is ordered by, from the least: dollars of all tokens, or without a
 * price accelerators in use times seconds of a step. No other list has these columns. */
CASE_WITH(test_cost_is_listed, scratch_setup, scratch_teardown)
{
    static char output[PROGRAM_OUTPUT_BYTES];
    const char *free_path = scratch_path(*state, "free.yaml");
    char *cluster = scratch_read("clusters/h100-2048.yaml", NULL), arguments[1024];
    char *price = strstr(cluster, "\nprice: 2.7\n");
    assert_non_null(price);
    scratch_write(free_path, cluster, (size_t)(price - cluster) + 1);
    free(cluster);
    assert_int_equal(program_run("", SMALL "parallel.schedule=1f1b --top 3", output), 0);
    assert_null(strstr(output, "  accelerators "));
    for (int priced = 0; priced < 2; priced++) {
        double before = 0, scale = priced ? 2e12 / (32 * 8192) * 2.7 / 3600 / 1000 : 1;
        snprintf(arguments, sizeof arguments,
                 SMALL "parallel.schedule=1f1b --goal cost --top 3 --tokens 2T%s%s",
                 priced ? "" : " --cluster ", priced ? "" : free_path);
        assert_int_equal(program_run("", arguments, output), 0);
        const char *line = strstr(output, "  #          cost  accelerators      a step ");
        assert_non_null(line);
        assert_non_null(strstr(output, priced ? "cost: dollars of 2 T tokens" : "has no price)"));
        for (int lines = 0; lines < 3; lines++) {
            double number, accelerators, cost, step;
            line = strchr(line, '\n') + 1;
            if (sscanf(line, priced ? "%lf $%lfk %lf %lf s" : "%lf %lf s %lf %lf s", &number, &cost,
                       &accelerators, &step) != 4 ||
                fabs(cost / (accelerators * step * scale) - 1) > 5e-3 || cost < before ||
                accelerators > 16)
                fail_msg("%d: %.60s", lines, line);
            before = cost;
        }
    }
}

/* The whole of a training in units that people read, however long or short it is. */
CASE(test_units_for_people)
{
    program_expect(SMALL "--forecasts 1 --tokens 5000T", 0, " years, $");
    program_expect(SMALL "--forecasts 1 --tokens 5000T", 0, "GWh; ");
    program_expect(SMALL "--forecasts 1 --tokens 1M", 0, " Wh; less than 0.001 failures");
}

/* What is written is a configuration, and its layout is the one that was planned. */
CASE_WITH(test_writes_and_draws, scratch_setup, scratch_teardown)
{
    const char *svg = scratch_path(*state, "plan.svg"), *trace = scratch_path(*state, "plan.json");
    const char *best = scratch_path(*state, "best.yaml");
    char arguments[2048];
    size_t bytes;
    snprintf(arguments, sizeof arguments,
             SMALL "parallel.pp=2 --svg '%s' --trace '%s' --apply '%s'", svg, trace, best);
    program_expect(arguments, 0, "wrote ");
    char *text = scratch_read(svg, &bytes);
    assert_xml(text);
    assert_svg_texts(text);
    assert_svg_legend(text);
    assert_non_null(strstr(text, "<path class=\"ls-a00\"")); /* forward */
    assert_non_null(strstr(text, "<path class=\"ls-a30\"")); /* backward */
    free(text);
    text = scratch_read(trace, &bytes);
    assert_non_null(strstr(text, "\"traceEvents\""));
    assert_non_null(strstr(text, "{\"name\": \"forward\", \"cat\": \"computes\""));
    assert_non_null(strstr(text, "{\"name\": \"backward\", \"cat\": \"computes\""));
    assert_non_null(strstr(text, "\"cat\": \"pp\""));
    free(text);
    snprintf(arguments, sizeof arguments, "layout '%s'", best);
    program_expect(arguments, 0, "16 ranks = pp 2 x");
}

/* The legend has the passes of this layout, and no others. */
CASE_WITH(test_legend_has_what_is_drawn, scratch_setup, scratch_teardown)
{
    const char *svg = scratch_path(*state, "plan.svg");
    static const struct {
        const char *keys;
        bool recompute, halves;
    } cases[] = {
        {"memory.recompute=none parallel.schedule=1f1b", false, false},
        {"memory.recompute=full parallel.schedule=1f1b", true, false},
        {"memory.recompute=none parallel.schedule=zb-h1", false, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char arguments[2048];
        snprintf(arguments, sizeof arguments, SMALL "parallel.pp=4 parallel.tp=2 %s --svg '%s'",
                 cases[i].keys, svg);
        program_expect(arguments, 0, "the best by time");
        char *text = scratch_read(svg, NULL);
        assert_svg_texts(text);
        assert_svg_legend(text);
        assert_non_null(strstr(text, ">forward</text>"));
        assert_non_null(strstr(text, ">update</text>"));
        assert_non_null(strstr(text, ">waiting</text>"));
        assert_non_null(strstr(text, ">pp</text>"));
        assert_null(strstr(text, ">cp</text>"));
        assert_int_equal(strstr(text, ">recompute</text>") != NULL, cases[i].recompute);
        assert_int_equal(strstr(text, ">backward, weights</text>") != NULL, cases[i].halves);
        free(text);
    }
}

/* A run takes the layout that is planned, and ends with the bits of one rank. */
CASE_WITH(test_a_run_plans_itself, scratch_setup, scratch_teardown)
{
    static char output[PROGRAM_OUTPUT_BYTES];
    const char *folder = *state;
    char arguments[2048], hash[64] = "";
    program_corpus(folder);
    static const char *const layouts[] = {"parallel.auto=true train.plan=" CPU,
                                          "parallel.tp=2 parallel.auto=true train.plan=" CPU,
                                          "parallel.dp=1"};
    static const char *const says[] = {"parallel.auto: ", "parallel.tp=2", "1 rank"};
    for (int i = 0; i < 3; i++) {
        snprintf(arguments, sizeof arguments,
                 "train configs/gpt2-tiny.yaml data.train='%s/corpus_train' train.steps=3 "
                 "train.out='%s/run%d' log.progress=plain numerics.arithmetic=fma %s",
                 folder, folder, i, layouts[i]);
        assert_int_equal(program_run("", arguments, output), 0);
        if (!strstr(output, says[i]))
            fail_msg("%s is missing in\n%s", says[i], output);
        const char *at = strstr(output, "hash ");
        assert_non_null(at);
        if (!*hash)
            snprintf(hash, sizeof hash, "%.37s", at);
        assert_int_equal(strncmp(hash, at, 37), 0);
    }
}

/* Keys of data parallel stay as they are given, as those of the other axes do. */
CASE(test_keeps_data_parallel)
{
    program_expect(SMALL "parallel.schedule=1f1b --top 1 --explain dp_replicate=2", 0,
                   "parallel.dp_replicate=2");
    program_expect(SMALL "parallel.schedule=1f1b --top 1 --explain dp=4", 0,
                   "dp_replicate=1 parallel.dp_shard=4");
}

/* Batches of a ramp-up are smaller: 4 steps of 4 sequences, and 6 of 8. */
CASE(test_counts_the_tokens_of_a_ramp)
{
#define RAMPED                                                                                     \
    "plan configs/llama-tiny.yaml --layout --cluster " CPU " train.steps=10 batch.global=8 "       \
    "numerics.leaf_sequences=1 data.sequence=64 model.vocab=512 "
    program_expect(RAMPED, 0, "\nof 5.12 k tokens: ");
    program_expect(RAMPED "batch.rampup_start=4 batch.rampup_increment=4 batch.rampup_samples=16",
                   0, "\nof 4.1 k tokens: ");
}

/* A split has commas of its own; the list writes it in quotes. */
CASE(test_explains_a_split)
{
    static const char *const keys[] = {"pp=2,split=0-4,5-9,schedule=1f1b",
                                       "parallel.pp=2 parallel.split=\"0-4,5-9\" schedule=1f1b,"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments, SMALL "--forecasts 1 --top 1 --explain '%s'",
                 keys[i]);
        program_expect(arguments, 0, "parallel.split=\"0-4,5-9\"");
    }
}

CASE(test_refuses)
{
    program_expect(SMALL "--goal speed", 2, "expected time, cost or memory");
    program_expect(SMALL "--within 30", 2, "--within = 30: expected a time with its unit, such as");
    program_expect(SMALL "--within -1d", 2, "--within = -1d: expected a time with its unit");
    program_expect(SMALL "parallel.schedule=1f1b --explain pp=4 --tokens 2T --within 12h", 13,
                   "no layout that fits ends the training within 12 h: it takes ");
    program_expect(SMALL "--top 0", 2, "--top");
    program_expect(SMALL "--explain pq=2", 2, "parallel.pq");
    program_expect(SMALL "--apply no/such/folder/a.yaml --what-if link.outer=1", 16, "no/such");
    program_expect(SMALL "--svg no/such/folder/a.svg --what-if link.outer=1", 16, "no/such");
    program_expect(SMALL "--trace configs --what-if link.outer=1", 16, "configs");
    program_expect(SMALL "--what-if link.inter", 2, "expected a figure and its value");
    program_expect(SMALL "--what-if ''", 2, "expected a figure and its value");
    program_expect(SMALL "--what-if link.outer=1", 2, "outer");
    program_expect(SMALL "--what-if link.inter=100", 2, "such as 450 GB/s; its unit is missing");
    program_expect(SMALL "--what-if link.inter=0", 2, "such as 450 GB/s\n");
    program_expect(SMALL "--what-if accelerator.memory=1e40", 2, "such as 80 GiB\n");
    program_expect(SMALL "--what-if accelerator=H200", 2, "a key of it, such as accelerator.name");
    program_expect(SMALL "--what-if accelerator.peak.fp8=2PFLOP/s", 2,
                   "unknown key accelerator.peak.fp8: training is in fp32, bf16 or fp16");
    program_expect(SMALL "--what-if hosts=4,link.outer=1", 2, "outer");
    program_expect(SMALL "--tokens 2Z", 2, "--tokens = 2Z: expected a number from 1");
    program_expect(SMALL "--seconds 0", 2, "--seconds = 0: expected more than 0, or unlimited");
    program_expect(SMALL "--seconds none", 2, "--seconds = none: expected a number");
    program_expect(SMALL "--seconds 0 --forecasts 1", 2, "--seconds = 0: expected more than 0");
    program_expect(SMALL "--forecasts 0", 2, "--forecasts = 0: expected");
    program_expect("plan --layout --forecasts 1", 2, "and --forecasts chooses among many");
    program_expect("plan --layout --within 30d", 2, "and --within chooses among many");
    program_expect("plan configs/llama-8b.yaml --cluster nothing.yaml", 16, "nothing.yaml");
    program_expect(SMALL "parallel.tp=3", 13, "admits no layout");
    program_expect(SMALL "--explain tp=3", 13,
                   "no layout for 16 accelerators with parallel.tp=3: it does not divide the "
                   "model's query heads, 32; expected 1, 2, 4 or 8");
    program_expect(SMALL "--explain tp=16", 13,
                   "expected 1, 2, 4 or 8; or set numerics.tp_tiles=16, another recipe");
    program_expect(SMALL "--explain cp=2", 13, "; or set numerics.seq_tiles=2, another recipe");
    program_expect(SMALL "numerics.leaf_sequences=2 --explain cp=2", 13,
                   "; or set numerics.seq_tiles=2 numerics.leaf_sequences=1, another recipe");
    program_expect(SMALL "numerics.leaf_sequences=2 numerics.seq_tiles=2 "
                         "numerics.leaf_sequences=1 --forecasts 1 --explain cp=2",
                   0, "parallel.cp=2");
    program_expect(SMALL "--explain pp=5", 13,
                   "with parallel.pp=5: it does not divide 16 accelerators; expected 1, 2, 4 or 8");
    program_expect(SMALL "--explain dp=3", 13,
                   "with parallel.dp=3: it does not divide batch.global, 32; expected 1, 2, 4, 8");
    program_expect(SMALL "--explain pp=4,tp=8", 13,
                   "with parallel.pp=4 x parallel.tp=8: 32 ranks do not divide 16; leave one");
    program_expect("plan configs/gpt2-124m.yaml data.tokenizer=byte --cluster "
                   "clusters/h100-2048.yaml --accelerators 16 --explain pp=16",
                   13, "parallel.pp=16: 12 blocks, the embedding and the head make 14 stages");
    program_expect("plan configs/llama-70b.yaml --cluster clusters/h100-2048.yaml "
                   "--accelerators 2 --seconds unlimited",
                   13, "no layout fits: the one that takes least needs");
    program_expect("plan configs/llama-405b.yaml --cluster clusters/h100-2048.yaml --forecasts 1 "
                   "memory.device_budget=20MB",
                   13, ", or use 131072 accelerators (the cluster has 2048)");
    program_expect("plan configs/llama-8b.yaml --cluster clusters/h100-2048.yaml --accelerators "
                   "4096",
                   13, "the cluster has 2048");
    program_expect("plan configs/llama-8b.yaml --cluster clusters/h100-2048.yaml --accelerators "
                   "1000 --forecasts 1 model.layers=4 model.context=256 data.sequence=256",
                   13, "no layout for 1000 accelerators, but for 768 and 1024: ");
}

#define LONG_RUN                                                                                   \
    "plan configs/llama-1b.yaml --cluster clusters/h100-2048.yaml model.context=65536 "            \
    "data.sequence=65536 batch.global=2 model.layers=4 "
#define LONG LONG_RUN "--accelerators 8 --top 1 --seconds unlimited "

/* The layout that a plan names with tiles takes the time that it says. */
static void expect_named_step(const char *output)
{
    static char arguments[2048];
    static const char words[] = "more accelerators than sequences: with ";
    static const char told[] = " (another recipe, other bits) a step would take ";
    char took[64];
    const char *recipe = strstr(output, words), *step = recipe ? strstr(recipe, told) : NULL;
    assert_non_null(step);
    recipe += sizeof words - 1;
    assert_memory_equal(recipe, "numerics.seq_tiles=4", (size_t)(step - recipe));
    const char *time = step + sizeof told - 1, *keys = strstr(time, ": ");
    assert_non_null(keys);
    snprintf(took, sizeof took, "here %.*s\n", (int)(keys - time), time);
    snprintf(arguments, sizeof arguments, LONG_RUN "--layout %.*s %.*s", (int)(step - recipe),
             recipe, (int)strcspn(keys + 2, "\n"), keys + 2);
    program_expect(arguments, 0, took);
}

/* Context parallel is named where sequences are too few for the accelerators, with what the recipe
 * has to say for it; with a sequence for each it is not. */
CASE(test_names_context_parallel)
{
    static char output[PROGRAM_OUTPUT_BYTES];
    assert_int_equal(program_run("", LONG, output), 0);
    expect_named_step(output);
    program_expect(LONG "numerics.leaf_sequences=2", 0,
                   "with numerics.seq_tiles=4 numerics.leaf_sequences=1 (another recipe");
    program_expect(LONG "parallel.tp=1 parallel.pp=1", 13, "; with numerics.seq_tiles=");
    assert_int_equal(program_run("", LONG "batch.global=8", output), 0);
    assert_null(strstr(output, "seq_tiles"));
    assert_int_equal(program_run("", LONG "parallel.cp=1", output), 0);
    assert_null(strstr(output, "seq_tiles"));
}

/* 2,048 and 16,384 accelerators within 1 GiB, in a search that is cut short. */
CASE(test_large_clusters_in_little_memory)
{
    program_expect_within(
        "plan configs/llama-405b.yaml --cluster clusters/h100-2048.yaml --forecasts 1 --top 2 "
        "batch.global=256",
        "the best by time", (size_t)1 << 30);
    if (check_all())
        program_expect_within(
            "plan configs/llama-405b-16k.yaml --cluster clusters/h100-16384-roce.yaml "
            "--forecasts 8 --top 2",
            "the best by time", (size_t)1 << 30);
}

SUITE_MAIN(NULL, NULL)
