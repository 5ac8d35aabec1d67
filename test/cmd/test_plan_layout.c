/* `lockstep plan --layout`: the forecast of the configuration's own layout, as the library makes
 * it, what it refuses, and the published runs of bench/published.json. Runs from the root of the
 * tree. */
#include "../support/extent.h"
#include "../support/suite.h"
#include "run_program.h"

#include <lockstep/planner.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define A100 "--cluster clusters/a100-80g-1024.yaml "
static const char *const cut[] = {"model.preset=gpt2-124m", "model.vocab=50257",
                                  "batch.global=32",        "batch.micro=1",
                                  "numerics.mode=fast",     "parallel.pp=2",
                                  "parallel.tp=2",          "parallel.dp=4",
                                  "parallel.zero=1",        NULL};

static const char *words(void)
{
    static char text[1024];
    text[0] = '\0';
    for (int i = 0; cut[i]; i++) {
        strcat(text, cut[i]);
        strcat(text, " ");
    }
    return text;
}

static json_t *planned(const char *options)
{
    static char output[PROGRAM_OUTPUT_BYTES];
    char arguments[2048];
    json_error_t why;
    snprintf(arguments, sizeof arguments, "plan --layout --json %s%s", words(), options);
    assert_int_equal(program_run("", arguments, output), 0);
    json_t *json = json_loads(output, 0, &why);
    if (!json)
        fail_msg("%s\n%s", why.text, output);
    return json;
}

static void same(json_t *json, const char *name, double expected)
{
    json_t *value = json_object_get(json, name);
    if (!json_is_number(value) || json_number_value(value) != expected)
        fail_msg("%s: %.17g, expected %.17g", name, json_number_value(value), expected);
}

/* What ls_forecast_make says of the same keys. */
static struct ls_forecast made(void)
{
    struct ls_config *config = calloc(1, sizeof *config);
    struct ls_layout *layout = calloc(1, sizeof *layout);
    struct ls_cluster cluster;
    struct ls_forecast forecast;
    struct ls_error error = {0};
    assert_true(config && layout);
    ls_config_defaults(config);
    int status = LS_OK;
    for (int i = 0; cut[i] && !status; i++)
        status = ls_config_set(config, cut[i], &error);
    if (!status)
        status = ls_config_resolve(config, 0, &error);
    if (!status)
        status = ls_config_layout(config, 0, layout, &error);
    if (!status)
        status = ls_cluster_read("clusters/a100-80g-1024.yaml", &cluster, &error);
    assert_ok(status, error);
    const struct ls_forecast_ask ask = {
        .config = config, .layout = layout, .cluster = &cluster, .extend = true};
    assert_ok(ls_forecast_make(&ask, &forecast, &error), error);
    ls_cluster_release(&cluster);
    free(layout);
    free(config);
    return forecast;
}

CASE(test_is_the_librarys)
{
    const struct ls_forecast f = made();
    json_t *json = planned(A100);
    json_t *exposed = json_object_get(json, "exposed_s"), *work = json_object_get(json, "work_s");
    same(json, "ranks", 16);
    same(json, "accelerators", 16);
    same(json, "micro_batches", 8);
    same(json, "step_s", f.step_s);
    same(json, "tokens_per_s", f.tokens_per_s);
    same(json, "mfu", f.mfu);
    same(json, "hfu", f.hfu);
    same(json, "bubble", f.bubble);
    same(json, "device_bytes", f.device_bytes);
    assert_true(json_is_true(json_object_get(json, "fits")) == f.fits);
    for (int a = 0; a < LS_ACCOUNTS; a++)
        same(exposed, ls_account_name((enum ls_account)a), f.exposed_s[a]);
    for (int kind = 0; kind < LS_WORK_KINDS; kind++)
        same(work, ls_work_name((enum ls_work_kind)kind), f.work_s[kind]);
    assert_true(f.step_s > 0 && f.bubble > 0);
    json_decref(json);
}

CASE(test_figures_change)
{
    json_t *as_is = planned(A100);
    json_t *slow = planned(A100 "--what-if 'link.intra=1 GB/s,hosts=4'");
    assert_true(json_number_value(json_object_get(slow, "step_s")) >
                2 * json_number_value(json_object_get(as_is, "step_s")));
    json_decref(as_is);
    json_decref(slow);
}

static void refuses(const char *options, int status, const char *why)
{
    char arguments[2048];
    snprintf(arguments, sizeof arguments, "plan %s%s", words(), options);
    program_expect(arguments, ls_exit_code(status), why);
}

CASE(test_refuses)
{
    char arguments[2048];
    refuses(A100 "--layout --goal memory", LS_ECONFIG, "--goal chooses among many");
    refuses(A100 "--layout --apply x.yaml", LS_ECONFIG, "--apply chooses among many");
    refuses(A100 "--json", LS_ECONFIG, "--layout");
    refuses(A100 "--layout --what-if ''", LS_ECONFIG, "expected a figure and its value");
    refuses(A100 "--layout --what-if hosts", LS_ECONFIG, "expected a figure and its value");
    refuses(A100 "--layout --what-if hosts=4,link.moon=1", LS_ECONFIG, "moon");
    refuses(A100 "--layout parallel.tp=7", LS_ELAYOUT, "tp");
    refuses("--layout --cluster clusters/cpu-2core.yaml", LS_ELAYOUT, "the cluster has 2");
    refuses("--layout --cluster no-such.yaml", LS_EIO, "no-such.yaml");
    snprintf(arguments, sizeof arguments, "plan --layout " A100 "%s", words());
    program_expect(arguments, 0, "where the time of a step goes");
}

/* Mode fast, where a rank's last micro-batch is smaller: 3 sequences in micro-batches of 2. */
CASE(test_a_smaller_last_micro_batch)
{
    program_expect("plan --layout " A100 "model.preset=gpt2-124m data.sequence=1024 batch.global=6 "
                   "batch.micro=2 parallel.dp=2 numerics.mode=fast",
                   0, "where the time of a step goes");
}

/* The first row of each table, and with CHECK=all the last, is admitted and has a forecast. */
CASE(test_published_rows_are_admitted)
{
    const char *before = check_all() ? "python3 tools/bench-plan.py --check 2 --lockstep"
                                     : "python3 tools/bench-plan.py --check 1 --lockstep";
    program_expect_under(before, "", 0, "median error");
}

/* What order costs each preset at its published layout: at most 1.05 of fast, which the tool's exit
 * code says. */
CASE(test_order_costs_presets_little)
{
    static char output[PROGRAM_OUTPUT_BYTES];
    int lines = 0,
        code = program_run("python3 tools/bench-plan.py --presets --lockstep", "", output);
    print_message("%s", output);
    assert_int_equal(code, 0);
    for (const char *line = output; (line = strchr(line, '\n')); line++)
        lines++;
    assert_true(lines > 10);
}

/* Waiting for dp is named, with the leaf that costs less and the dp that it leaves. */
CASE(test_larger_leaves_are_named)
{
#define GPT3                                                                                       \
    "plan --layout --cluster clusters/a100-80g-1024.yaml model.arch=gpt2 model.layers=24 "         \
    "model.channels=12288 model.heads=96 model.vocab=51200 model.context=2048 "                    \
    "numerics.tp_tiles=8 parallel.tp=8 parallel.pp=2 parallel.dp=16 batch.global=1536 "            \
    "batch.micro=1 parallel.zero=1 parallel.sp=true memory.recompute=selective "                   \
    "parallel.schedule=interleaved parallel.chunks=6 "
    program_expect(
        GPT3 "numerics.leaf_sequences=2", 0,
        "each leaf of 2 sequences is summed over dp by itself: with numerics.leaf_sequences=");
    program_expect(/* three leaves of a rank, not a power of two */
                   "plan --layout --cluster clusters/h100-2048.yaml --what-if hosts=64 "
                   "model.arch=gpt2 model.layers=32 model.channels=4096 model.heads=32 "
                   "model.vocab=50368 model.context=2048 numerics.precision=bf16 "
                   "batch.global=3072 batch.micro=6 parallel.dp_shard=512 parallel.zero=3",
                   0,
                   "each leaf of 2 sequences is summed over dp by itself: with "
                   "numerics.leaf_sequences=6 ");
    char output[PROGRAM_OUTPUT_BYTES];
    assert_int_equal(program_run("", GPT3, output), 0); /* the default has 192 leaves of 8 */
    assert_null(strstr(output, "each leaf of"));
}

/* A GPU that is nearly full has no room for what needs memory beside a run; a budget leaves some.
 */
CASE(test_a_tight_memory_is_named)
{
#define TIGHT                                                                                      \
    "plan --layout --cluster clusters/a100-80g-1024.yaml model.preset=gpt2-124m batch.global=8 "   \
    "data.sequence=1024 "
    static const char told[] = "the driver and NCCL need some";
    char output[PROGRAM_OUTPUT_BYTES], words[1024], unit[8];
    double gib = 0;
    assert_int_equal(program_run("", TIGHT, output), 0);
    assert_null(strstr(output, told));
    const char *memory = strstr(output, "\nmemory: ");
    assert_true(memory && sscanf(memory, " memory: %lf %3s of", &gib, unit) == 2);
    assert_string_equal(unit, "GiB");
    snprintf(words, sizeof words, TIGHT "--what-if accelerator.memory=%.2fGiB", 1.02 * gib);
    program_expect(words, 0, told);
    snprintf(words, sizeof words,
             TIGHT "--what-if accelerator.memory=%.2fGiB memory.device_budget=%.0fMiB", 1.02 * gib,
             1.01 * 1024 * gib);
    assert_int_equal(program_run("", words, output), 0);
    assert_null(strstr(output, told));
}

SUITE_MAIN(NULL, NULL)
