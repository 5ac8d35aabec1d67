/* The page of a run, and of several: well-formed, whole without a network, with the numbers that
 * were recorded, and made of whatever is there. What it looks like is looked at by `make
 * report-shots`.
 */
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/svg.h"
#include "../support/xml.h"
#include "runs.h"

#include <lockstep/base.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- pages ----------------------------------------------------------------------------------- */

static void has(const char *page, const char *words)
{
    if (!strstr(page, words))
        fail_msg("the page lacks: %s", words);
}

static void has_not(const char *page, const char *words)
{
    const char *found = strstr(page, words);
    if (found)
        fail_msg("the page has: %.200s", found);
}

/* The table of that caption has the words. */
static void has_in(const char *page, const char *caption, const char *words)
{
    char whole[256];
    snprintf(whole, sizeof whole, "<caption>%s</caption>", caption);
    const char *table = strstr(page, whole);
    const char *found = table ? strstr(table, words) : NULL;
    if (!found || found > strstr(table, "</table>"))
        fail_msg("the table \"%s\" lacks: %s", caption, words);
}

/* In a narrow window the table of that caption is a stack, whose cells have names. */
static void stacks(const char *page, const char *caption)
{
    char words[1024];
    snprintf(words, sizeof words, "<caption>%s</caption>\n<thead><tr>", caption);
    const char *table = strstr(page, words), *end = table ? strstr(table, "</tr></thead>") : NULL;
    assert_non_null(end);
    size_t used = (size_t)snprintf(words, sizeof words, "<table class=\"stack\" style=\"");
    int column = 0;
    for (const char *at = table; (at = strstr(at, "<th scope=\"col\"")) && at < end; at++) {
        char rule[96];
        const char *name = strchr(at, '>') + 1;
        column++;
        used += (size_t)snprintf(words + used, sizeof words - used, "%s--c%d:'%.*s'",
                                 column > 1 ? ";" : "", column, (int)strcspn(name, "<"), name);
        snprintf(rule, sizeof rule, ">:nth-child(%d)::before{content:var(--c%d)}", column, column);
        has(page, rule);
    }
    snprintf(words + used, sizeof words - used, "\">\n<caption>%s</caption>", caption);
    has(page, words);
}

static int count_of(const char *page, const char *words)
{
    int count = 0;
    for (; (page = strstr(page, words)); page += strlen(words))
        count++;
    return count;
}

/* The page, to be freed; fails unless it is XML of one page and loads nothing. */
static char *page_read(const char *name)
{
    static const char doctype[] = "<!DOCTYPE html>\n";
    static const char *const never[] = {"https://", "<script", "<link", "<img", "@import", "url(",
                                        " src=",    "onload=", "NaN",   ">nan", "inf "};
    static const char *const sections[] = {"curves",        "throughput", "time",   "layout",
                                           "memory",        "schedule",   "events", "evaluations",
                                           "configuration", "checkpoints"};
    char *page = scratch_read(at(name), NULL);
    assert_memory_equal(page, doctype, sizeof doctype - 1);
    assert_xml(page + sizeof doctype - 1);
    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++)
        has_not(page, never[i]);
    assert_int_equal(count_of(page, "http://"),
                     count_of(page, "xmlns=\"http://www.w3.org/2000/svg\""));
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++) {
        char words[64];
        snprintf(words, sizeof words, "<section id=\"%s\"", sections[i]);
        assert_int_equal(count_of(page, words), 1);
        snprintf(words, sizeof words, "<a href=\"#%s\"", sections[i]);
        assert_int_equal(count_of(page, words), 1);
    }
    assert_int_equal(count_of(page, "<h1>"), 1);
    assert_int_equal(count_of(page, "<svg"), count_of(page, "role=\"img\""));
    has_not(page, "<title></title>");
    for (const char *svg = page; (svg = strstr(svg, "<svg ")); svg++)
        assert_svg_texts(svg);
    return page;
}

static char *page_of(const char *run)
{
    char line[512];
    snprintf(line, sizeof line, "$L report '%s'", run);
    expect(line, 0, "/report.html");
    snprintf(line, sizeof line, "%s/report.html", run);
    return page_read(line);
}

static void write_text(const char *name, const char *text)
{
    scratch_write(at(name), text, strlen(text));
}

/* ---- a run ----------------------------------------------------------------------------------- */

CASE(test_a_run)
{
    char words[256];
    expect("$L train $C train.out=whole train.steps=6 train.save_every=3 log.hash_every=2 "
           "eval.every=3 parallel.pp=2 parallel.dp=2 model.layers=2",
           0, "step 6/6");
    expect("$L train $C train.out=whole train.steps=8 train.save_every=3 eval.every=3 "
           "parallel.tp=2 model.layers=2 train.resume=auto",
           0, "step 8/8");
    struct metrics *metrics = metrics_read("whole");
    char *page = page_of("whole");
    float loss;
    memcpy(&loss, &metrics->bits[7], sizeof loss);
    snprintf(words, sizeof words, "<b>%.4f</b>\n<span>training loss at step 8</span>",
             (double)loss);
    has(page, words);
    snprintf(words, sizeof words, "<td class=\"n\">%.4f</td>", metrics->validation_loss);
    has(page, words);
    has(page, metrics->hash);
    free(metrics);
    has(page, "<span class=\"state good\">finished</span>");
    has(page, "<b>8 / 8</b>");
    has(page, "<td>start: parallel.pp=2 parallel.dp=2</td>");
    has(page, "<td>resume in another layout: parallel.tp=2 (before: parallel.pp=2 "
              "parallel.dp=2)</td>");
    assert_int_equal(count_of(page, "<td>checkpoint saved in "), 3);
    stacks(page, "Losses on the validation data");
    stacks(page, "Whole checkpoints, newest first");
    stacks(page, "What one rank keeps");
    has(page, ".stack tr{display:grid;");
    has(page, "<th scope=\"row\" class=\"w\">step-00000006</th>");
    has(page, "<th scope=\"row\" class=\"w\">step-00000008</th>");
    has_in(page, "What differs from the defaults: recipe", ">model.channels</th><td>32</td>");
    has_in(page, "What differs from the defaults: layout", ">parallel.tp</th><td>2</td>");
    has_in(page, "What differs from the defaults: run", ">train.steps</th><td>8</td>");
    has_not(page, ">model.ffn</th>"); /* nobody set it */
    has_not(page, ">model.preset</th>");
    has_not(page, ">snapshot.folder</th>");
    has(page, "The whole configuration, as resolved");
    has(page, "2 ranks. A step is 4 sequences of 32 tokens");
    has(page, "rank 1: pp 0, dp_replicate 0, dp_shard 0, cp 0, tp 1");
    has(page, "waiting on tp</th>");
    has(page, "waiting on pp (with bubbles)</th>");
    has_not(page, "waiting on cp</th>");
    has(page, "No pipeline");
    free(page);
    expect("$L train whole/config.yaml train.out=piped parallel.tp=1 parallel.pp=2 "
           "train.resume=never",
           0, "step 8/8");
    page = page_of("piped");
    has(page, "1f1b");
    has(page, "<th scope=\"row\" class=\"n\">1</th>");
    free(page);
    expect("$L report whole --output elsewhere.html", 0, "elsewhere.html");
    free(page_read("elsewhere.html"));
}

/* A launcher saw two failures, of which the job got over the first: both are on the run's clock. */
CASE(test_failures)
{
    expect("$L train $C train.out=failed train.steps=2", 0, "step 2/2");
    write_text("failed/metrics.jsonl",
               "{\"time\": 1000, \"event\": \"start\", \"step\": 0, \"layout\": \"\"}\n"
               "{\"time\": 1060, \"step\": 1, \"loss\": 2, \"step_s\": 1, \"compute_s\": 1}\n"
               "{\"time\": 1100, \"step\": 2, \"loss\": 1, \"step_s\": 1, \"compute_s\": 1}\n");
    write_text(
        "failed/events.jsonl",
        "{\"time\": 1020, \"event\": \"failed\", \"step\": 0, \"kind\": \"killed\", \"text\": "
        "\"rank 1 < 2\"}\n"
        "{\"time\": 1030, \"event\": \"going_on\", \"step\": 1, \"from\": 0, \"again\": 0, "
        "\"seconds\": 10}\n"
        "{\"time\": 1090, \"event\": \"failed\", \"step\": 1, \"kind\": \"late\", \"text\": "
        "\"rank 2\"}\n");
    char *page = page_of("failed");
    has(page, "<h3>Failures</h3>");
    has(page, "2 failures that the launcher saw");
    has(page, "<title>killed after step 0: rank 1 &lt; 2; 10.0 s</title>");
    has(page, "<title>late after step 1: rank 2; no new step since</title>");
    has(page, "seconds since the first start");
    has(page, "<td>going on: a new step 10.0 s after the failure, 0 computed again</td>");
    const char *first = strstr(page, "<td>failed: killed");
    assert_true(first && strstr(first, "<td>failed: late")); /* by time */
    free(page);
}

/* Eleven steps of 1 to 11 seconds, of which a quarter is computing. */
CASE(test_numbers)
{
    char text[8192];
    size_t used = 0;
    used +=
        (size_t)snprintf(text, sizeof text,
                         "{\"step\": 0, \"event\": \"start\", \"time\": 1000000000, \"layout\": "
                         "\"one rank\", \"ranks\": 1, \"threads\": 2, \"transport\": \"self\", "
                         "\"fingerprint\": \"plain\", \"peak_flops\": 2.5e9}\n");
    for (int i = 1; i <= 11; i++)
        used += (size_t)snprintf(
            text + used, sizeof text - used,
            "{\"step\": %d, \"time\": %d, \"tokens\": %d, \"loss\": %d, \"grad_norm\": 1, \"lr\": "
            "0.5, \"step_s\": %d, \"tokens_per_s\": %d, \"peak_share\": 0.125, \"compute_s\": %g, "
            "\"optimizer_s\": %g, \"wait_data_s\": 0, \"wait_cp_s\": %g, \"snapshot_s\": %d}\n",
            i, 1000000000 + 10 * i, 1000 * i, 12 - i, i, 1000 * i, i / 4.0, i / 4.0, i / 2.0,
            i == 11 ? 2 : 0);
    snprintf(text + used, sizeof text - used,
             "{\"step\": 11, \"validation_loss\": 2.5, \"validation_bits_per_byte\": 1.25, "
             "\"sequences\": 7, \"eval_s\": 4}\n"
             "{\"step\": 10, \"event\": \"save\", \"time\": 1000000119, \"save_s\": 9, "
             "\"beside\": 1}\n"
             "{\"step\": 11, \"event\": \"save\", \"time\": 1000000120, \"save_s\": 8}\n"
             "{\"step\": 11, \"event\": \"changed\", \"time\": 1000000120}\n"
             "{\"step\": 11, \"event\": \"kept\", \"time\": 1000000120}\n"
             "{\"step\": 11, \"event\": \"signal\", \"time\": 1000000120}\n"
             "{\"step\": 11, \"event\": \"warning\", \"time\": 1000000120, \"text\": \"tired\"}\n"
             "{\"step\": 11, \"event\": \"end\", \"time\": 1000000132, \"how\": \"failed\", "
             "\"text\": \"a <script>\"}\n");
    expect("mkdir numbers", 0, "");
    write_text("numbers/metrics.jsonl", text);
    char *page = page_of("numbers");
    has(page, "<th scope=\"row\">fastest</th><td class=\"n\">1.00 s</td>");
    has(page, "<th scope=\"row\">5th percentile</th><td class=\"n\">1.50 s</td>");
    has(page, "<th scope=\"row\">median</th><td class=\"n\">6.00 s</td>");
    has(page, "<th scope=\"row\">95th percentile</th><td class=\"n\">10.5 s</td>");
    has(page, "<th scope=\"row\">slowest</th><td class=\"n\">11.0 s</td>");
    has(page, "<th scope=\"row\">mean</th><td class=\"n\">6.00 s</td>");
    has(page, "tokens a second, median</th><td class=\"n\">6,000</td>");
    has(page, "tokens a second, overall</th><td class=\"n\">7,667</td>");
    has(page, "share of the machine's rate</th><td class=\"n\">12.5 %</td>");
    has(page, "<td class=\"n\">2.5 GFLOP/s</td>");
    has(page, "computing</th><td class=\"n\">1.50 s</td><td class=\"n\">25.0 %</td>");
    has(page, "waiting on cp</th><td class=\"n\">3.00 s</td><td class=\"n\">50.0 %</td>");
    /* 132 s from start to end: 66 of steps, 4 of an evaluation, 8 of a save, 2 that a step
     * waited for one that was written beside it. */
    has(page, "computing</th><td class=\"n\">16.5 s</td><td class=\"n\">12.5 %</td>");
    has(page, "evaluations</th><td class=\"n\">4.00 s</td><td class=\"n\">3.0 %</td>");
    has(page, "saves</th><td class=\"n\">10.0 s</td><td class=\"n\">7.6 %</td>");
    has(page, "the rest (start, hashes, samples)</th><td class=\"n\">52.0 s</td>");
    has(page, "<th scope=\"row\" class=\"n\">11</th><td class=\"n\">2.5000</td>"
              "<td class=\"n\">12.182</td><td class=\"n\">1.2500</td><td class=\"n\">7</td>"
              "<td class=\"n\">4.00 s</td>");
    has(page, "<span class=\"state bad\">failed</span>");
    has(page, "1 rank (self), 2 threads each; plain");
    has(page, "<td>its state was changed: its checkpoint is to be replaced</td>");
    has(page, "<td>its checkpoint could not be replaced</td>");
    has(page, "<td>warning: tired</td>");
    has(page, "<td>failed: a &lt;script&gt;</td>");
    has(page, "2001-09-09 01:48:52");
    free(page);
}

/* ---- names and texts ------------------------------------------------------------------------- */

CASE(test_one_step_is_no_plural)
{
    expect("$L train $C train.out=brief train.steps=1 && cp -r brief brief-too && $L report brief "
           "brief-too --output brief.html && cat brief.html",
           0, "Equal up to step 1: 1 step compared bit by bit");
}

CASE(test_what_is_escaped)
{
    expect("mkdir 'a <b>&\"c'", 0, "");
    write_text("a <b>&\"c/config.yaml",
               "model: {preset: gpt2-tiny}\ndata: {train: \"<script>alert(1)</script>\"}\n");
    write_text("a <b>&\"c/metrics.jsonl", "{\"step\": 1, \"event\": \"</td><script>\", \"text\": "
                                          "\"\\u0001]]>\\\"\xef\xbf\xbf\"}\n");
    char *page = page_of("a <b>&\"c");
    has(page, "<h1>a &lt;b&gt;&amp;&quot;c</h1>");
    has(page, "&lt;script&gt;alert(1)&lt;/script&gt;");
    has(page, "&lt;/td&gt;&lt;script&gt;:  ]]&gt;&quot;\xef\xbf\xbd</td>");
    free(page);
}

/* ---- what is missing ------------------------------------------------------------------------- */

CASE(test_what_is_missing)
{
    static const struct {
        const char *config, *metrics, *words;
    } runs[] = {
        {"model: {preset: gpt2-tiny}\n", NULL, "metrics.jsonl: cannot be opened"},
        {"model: {preset: gpt2-tiny}\n", "", "has not recorded a step yet"},
        {"model: {preset: nothing}\n", "", "model.preset"},
        {"model: {preset: gpt2-tiny, vocab: 259}\nparallel: {tp: 3}\n", "", "parallel.tp = 3"},
        {NULL, "{\"step\": 1, \"loss\": 2}\n", "part4/config.yaml: "},
        {NULL, "{\"step\": 1, \"loss\": 2}\n{\"step\": 2, \"lo", "the last line of metrics.jsonl"},
        {NULL, "{\"step\": 1, \"loss\": 2}\nno record\n", "metrics.jsonl:2: expected one JSON"},
        {NULL, "{\"step\": 1, \"loss\": null, \"skipped\": 1}\n",
         "the loss of 1 step is not finite"},
        {NULL, "{\"step\": 1, \"loss\": null, \"skipped\": 1}\n", "<td>skipped: not finite</td>"},
        {NULL, "{\"step\": 1, \"loss\": 2}\n", "does not tell: no step has compute_s"},
        {NULL,
         "{\"step\": 1, \"loss\": 2}\n{\"step\": 2, \"loss\": 9}\n{\"step\": 2, \"loss\": 3}\n",
         "1 records are of steps that came again"},
        {NULL, "{\"step\": 3, \"event\": \"resume\", \"time\": 1, \"layout\": \"\"}\n",
         "no end recorded"},
        {NULL, "{\"step\": -9, \"loss\": \"x\", \"step_s\": {}}\n[1]\n{}\n", "expected one JSON"},
    };
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        char line[64], name[64];
        snprintf(line, sizeof line, "mkdir part%zu", i);
        expect(line, 0, "");
        snprintf(name, sizeof name, "part%zu/config.yaml", i);
        if (runs[i].config)
            write_text(name, runs[i].config);
        snprintf(name, sizeof name, "part%zu/metrics.jsonl", i);
        if (runs[i].metrics)
            write_text(name, runs[i].metrics);
        snprintf(name, sizeof name, "part%zu", i);
        char *page = page_of(name);
        has(page, runs[i].words);
        free(page);
    }
    expect("mkfifo part0/metrics.jsonl && $L report part0", 0, "report.html");
    char *pipe = page_read("part0/report.html");
    has(pipe, "metrics.jsonl: a pipe: expected a regular file");
    free(pipe);
    expect("rm part0/metrics.jsonl; mkdir part0/log; echo died early > part0/log/rank.txt", 0, "");
    char *died = page_of("part0");
    has(died, "None recorded.");
    has(died, "died early");
    free(died);
    expect("$L report part0 part5", 0, "report.html");
    char *page = page_read("report.html");
    has(page, "They cannot be compared: ");
    free(page);
}

CASE(test_what_is_refused)
{
    expect("$L report", ls_exit_code(LS_ECONFIG), "expected the directory of a run");
    expect("$L report nowhere", ls_exit_code(LS_EIO), "nowhere: cannot be read: No such file");
    expect("$L report book.txt", ls_exit_code(LS_EDATA), "is a file, not a run's directory");
    expect("mkdir bare && $L report bare", ls_exit_code(LS_EDATA),
           "neither config.yaml nor metrics.jsonl");
    assert_false(exists("bare/report.html"));
    expect("mkdir good && echo '{}' > good/metrics.jsonl && $L report good --output no/where.html",
           ls_exit_code(LS_EIO), "no/where.html");
    expect("mkdir good/report.html && $L report good", ls_exit_code(LS_EIO),
           "good/report.html: expected a file, found a folder; --output names another file");
    expect("$L report good good good good good good good", ls_exit_code(LS_ECONFIG),
           "good is one argument too many: at most 6 are taken (RUN...)");
}

/* ---- a run that goes on, and one that was killed --------------------------------------------- */

CASE(test_whether_it_goes_on)
{
    expect("{ $L train $C train.out=going train.steps=1000000 log.progress=off & p=$!; "
           "until grep -qs loss_bits going/metrics.jsonl; do kill -0 $p || exit 9; sleep 0.05; "
           "done; $L report going --output alive.html; kill -9 $p; wait $p; $L report going; }",
           0, "going/report.html");
    char *page = page_read("alive.html");
    has(page, ">still going: process ");
    free(page);
    page = page_read("going/report.html");
    has(page, ">killed: process ");
    free(page);
}

/* ---- a large layout -------------------------------------------------------------------------- */

CASE(test_a_large_layout)
{
    size_t bytes;
    expect("mkdir large", 0, "");
    write_text("large/config.yaml",
               "model: {preset: gpt2-124m, vocab: 50257, layers: 62}\n"
               "numerics: {tp_tiles: 4}\nbatch: {global: 8192, micro: 1}\n"
               "parallel: {pp: 32, tp: 4, dp_shard: 16, zero: 1, schedule: 1f1b}\n");
    char *page = page_of("large");
    free(page);
    page = scratch_read(at("large/report.html"), &bytes);
    assert_in_range(bytes, 20000, 1000000);
    has(page, "<b>2048</b>");
    has(page, "Drawn are the first 16 of 32 pp.");
    has(page, "Too large for a page, with 512 micro-batches");
    has(page, "<th scope=\"row\" class=\"n\">31</th>");
    free(page);
}

/* ---- many evaluations ------------------------------------------------------------------------ */

/* The list drops every other one; the best is among these. */
CASE(test_the_best_of_many_evaluations)
{
    enum { EVALUATIONS = 2100, BEST = 101 };
    static char text[EVALUATIONS * 64];
    size_t used = 0;
    expect("mkdir evaluated", 0, "");
    for (int i = 1; i <= EVALUATIONS; i++)
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "{\"step\": %d, \"validation_loss\": %.2f}\n", i,
                                 i == BEST ? 1.25 : 2.5);
    write_text("evaluated/metrics.jsonl", text);
    char *page = page_of("evaluated");
    has(page, "<b>1.2500</b>\n<span>best validation loss, at step 101</span>");
    has(page, "1,076 of 2,100 evaluations are shown.");
    free(page);
}

/* train.extend adds to the steps that are planned. */
CASE(test_an_extended_run)
{
    expect("mkdir extended", 0, "");
    write_text("extended/config.yaml", "model: {preset: gpt2-124m, vocab: 50257}\n"
                                       "train: {steps: 8, extend: 4}\n");
    write_text("extended/metrics.jsonl", "{\"step\": 9, \"loss\": 3}\n");
    char *page = page_of("extended");
    has(page, "<b>9 / 12</b>");
    free(page);
}

/* A step that is no whole number is none: it had been drawn at -9e18. */
CASE(test_records_without_a_step)
{
    expect("mkdir stepless", 0, "");
    write_text("stepless/metrics.jsonl",
               "{\"step\": 1, \"loss\": 3.5, \"tokens\": 1e300}\n"
               "{\"step\": 1e300, \"loss\": 1.5}\n{\"step\": -5, \"validation_loss\": 1}\n"
               "{\"step\": 2, \"loss\": 2.5, \"tokens\": 8}\n");
    write_text("stepless/events.jsonl", "{\"event\": \"host_lost\", \"host\": \"node7\"}\n");
    char *page = page_of("stepless");
    has(page, "<b>2.5000</b>\n<span>training loss at step 2</span>");
    has(page, "None recorded (eval.every says how often");
    has_in(page, "Starts, saves, signals, failures, skipped steps, warnings, hashes",
           "<td>host node7 does not answer</td>");
    has_not(page, "e+18");
    free(page);
}

CASE(test_events_without_a_time_are_last)
{
    static const char *const order[] = {"warning: first", "warning: second", "warning: timeless"};
    expect("mkdir timeless", 0, "");
    write_text("timeless/metrics.jsonl",
               "{\"step\": 1, \"event\": \"warning\", \"text\": \"second\", \"time\": 30}\n"
               "{\"step\": 2, \"event\": \"warning\", \"text\": \"timeless\"}\n"
               "{\"step\": 3, \"event\": \"warning\", \"text\": \"first\", \"time\": 10}\n");
    write_text("timeless/events.jsonl", "");
    char *page = page_of("timeless"), *found = page;
    for (int i = 0; i < 3; i++)
        if (!(found = strstr(found, order[i])))
            fail_msg("\"%s\" is not where it belongs", order[i]);
    free(page);
}

/* ---- two runs -------------------------------------------------------------------------------- */

CASE(test_two_runs)
{
    expect("$L train $C train.out=one train.steps=5", 0, "step 5/5");
    expect("$L train $C train.out=two train.steps=4 parallel.dp=2", 0, "4/4");
    expect("$L train $C train.out=three train.steps=5 optim.lr=1e-3", 0, "step 5/5");
    expect("$L report one two", 0, "report.html");
    char *page = page_read("report.html");
    has(page, "<section id=\"comparison\"");
    has(page, "Equal losses up to step 4: 4 steps compared bit by bit, no hash among them.");
    has_in(page, "Keys in which the configurations differ: layout",
           ">parallel.dp</th><td>0</td><td>2</td></tr>");
    has_in(page, "Keys in which the configurations differ: run",
           ">train.steps</th><td>5</td><td>4</td></tr>");
    has(page, "<th scope=\"row\">steps recorded</th><td class=\"n\">5</td><td class=\"n\">4</td>"
              "<td class=\"n\">0.800</td>");
    has(page, ">A training: ");
    has(page, ">B training: ");
    free(page);
    /* A link to a run is not its name. */
    expect("mkdir a b && ln -s ../one a/latest && ln -s ../two b/latest && "
           "$L report a/latest b/latest --output links.html",
           0, "links.html");
    page = page_read("links.html");
    has(page, "<h1>A: one \xc2\xb7 B: two</h1>");
    free(page);
    expect("$L plot a/latest b/latest --output links.svg && grep -c '>one, train\\|>two, train' "
           "links.svg",
           0, "2\n");
    expect("$L train $C train.out=two train.steps=5 train.resume=auto parallel.tp=2", 0, "5/5");
    expect("$L report one/ two/ --output again.html", 0, "again.html");
    page = page_read("again.html");
    has(page, "Equal up to step 5: 5 steps compared bit by bit, the state's hash last at step 5.");
    has_not(page, "corpus_train&quot;</td><td>&quot;two");
    free(page);
    expect("$L report one three --output other.html", 0, "other.html");
    page = page_read("other.html");
    has(page, "The recipes differ, so the numbers differ too: 1 key differs.");
    has(page, "The records differ at step 2, in the loss");
    has_in(page, "Keys in which the configurations differ: recipe",
           ">optim.lr</th><td>0.003</td><td>0.001</td></tr>");
    free(page);
}

/* They differ in the last of many sources. */
CASE(test_two_long_blends)
{
    expect("for i in $(seq 80); do s=\"$s 1 source-$i\"; for e in bin idx; do "
           "cp corpus_train.$e source-$i.$e; done; done; for w in 1 3; do $L train $C "
           "data.train= train.steps=1 train.out=many-$w data.blend=\"$s $w corpus_train\"; done",
           0, "");
    expect("$L report many-1 many-3 --output blends.html", 0, "blends.html");
    char *page = page_read("blends.html");
    has(page, "1 key differs.");
    has_in(page, "Keys in which the configurations differ: recipe",
           "corpus_train&quot;, weight: 1}]</td>");
    has_in(page, "Keys in which the configurations differ: recipe",
           "corpus_train&quot;, weight: 3}]</td>");
    free(page);
}

/* Of the first run's 4030 s by the clock it trained 30; the second one's records are an older
 * version's, without tokens and time. */
CASE(test_several_runs)
{
    expect("mkdir paused older plain", 0, "");
    write_text("paused/metrics.jsonl",
               "{\"step\": 0, \"event\": \"start\", \"time\": 1000, \"layout\": \"\"}\n"
               "{\"step\": 1, \"time\": 1010, \"tokens\": 1000, \"loss\": 3}\n"
               "{\"step\": 2, \"time\": 1020, \"tokens\": 2000, \"loss\": 2}\n"
               "{\"step\": 2, \"event\": \"resume\", \"time\": 5000, \"layout\": \"\"}\n"
               "{\"step\": 3, \"time\": 5008, \"tokens\": 3000, \"loss\": 1}\n"
               "{\"step\": 3, \"time\": 5010, \"validation_loss\": 1.5}\n");
    write_text("older/metrics.jsonl", "{\"step\": 1, \"loss\": 4}\n{\"step\": 2, \"loss\": 3.5}\n");
    write_text("plain/metrics.jsonl",
               "{\"step\": 0, \"event\": \"start\", \"time\": 100, \"layout\": \"\"}\n"
               "{\"step\": 1, \"time\": 220, \"tokens\": 500, \"loss\": 2.5}\n"
               "{\"step\": 2, \"time\": 160, \"tokens\": 9000, \"loss\": 0.5}\n");
    expect("$L report paused older plain --output several.html", 0, "several.html");
    char *page = page_read("several.html");
    has(page, "<h1>A: paused · B: older · C: plain</h1>");
    has(page, "<h3>A and B</h3>");
    has(page, "<h3>A and C</h3>");
    has(page, "A training: 1.0000 at step 3<");
    has(page, "A training: 1.0000 after 3,000 tokens<");
    has(page, "A training: 1.0000 after 28.0 s<");
    has(page, "A validation: 1.5000 after 30.0 s<");
    has(page, "B training: 3.5000 at step 2<");
    has_not(page, "B training: 3.5000 after");
    has(page, "C training: 0.5000 after 9,000 tokens<");
    has(page, "C training: 2.5000 after 2 min 00 s<"); /* the clock was put back behind it */
    has(page, ">minutes of training<");
    has(page, "time of training, by the clock</th><td class=\"n\">30.0 s</td><td "
              "class=\"n\">–</td><td class=\"n\">2 min 00 s</td>");
    has(page, "tokens a second of that time</th><td class=\"n\">100</td><td "
              "class=\"n\">–</td><td class=\"n\">75</td>");
    free(page);
    page = page_of("paused");
    has_not(page, "Loss against time");
    free(page);
}

/* ---- workers --------------------------------------------------------------------------------- */

/* Two fragments, which take turns; worker 1 is never waited for, and half of the time is waiting.
 */
CASE(test_outer_steps)
{
    expect("mkdir outer", 0, "");
    write_text("outer/metrics.jsonl",
               "{\"step\": 0, \"event\": \"start\", \"time\": 1000, \"layout\": \"\"}\n"
               "{\"step\": 2, \"time\": 1010, \"tokens\": 1000, \"loss\": 3}\n"
               "{\"step\": 2, \"event\": \"meeting\", \"time\": 1010, \"outer_step\": 1, "
               "\"fragment\": 0, \"outer_norm\": 5.5, \"outer_wait_s/0\": 4, "
               "\"outer_wait_s/1\": 0}\n"
               "{\"step\": 4, \"time\": 1020, \"tokens\": 2000, \"loss\": 2}\n"
               "{\"step\": 4, \"event\": \"meeting\", \"time\": 1020, \"outer_step\": 2, "
               "\"fragment\": 1, \"outer_norm\": 7.5, \"outer_wait_s/0\": 6, "
               "\"outer_wait_s/1\": 0}\n");
    char *page = page_of("outer");
    has(page, "<section id=\"workers\"");
    has(page, "<a href=\"#workers\"");
    has(page, ">outer gradient norm<");
    has(page, ">fragment 0<");
    has(page, ">fragment 1<");
    has(page, "<th scope=\"row\">0</th><td class=\"n\">10.0 s</td><td class=\"n\">5.00 s</td>"
              "<td class=\"n\">50.0 %</td>");
    has(page, "<th scope=\"row\">1</th><td class=\"n\">0 s</td>");
    has(page, "2 meetings in all.");
    has_not(page, "Updates by their staleness");
    has_not(page, "warning: meeting"); /* they are no events */
    has_not(page, "<td>meeting");
    free(page);
}

/* Of worker 0 one update of staleness 0; of worker 1 one of 1 and two of 70, so that a bin is of
 * four values. Of the two whose numbers are none, nothing is drawn. */
CASE(test_staleness)
{
    expect("mkdir stale many", 0, "");
    write_text("stale/metrics.jsonl",
               "{\"step\": 1, \"loss\": 3, \"worker\": 0, \"clock\": 0, \"staleness\": 0}\n"
               "{\"step\": 2, \"loss\": 3, \"worker\": 1, \"clock\": 0, \"staleness\": 1}\n"
               "{\"step\": 3, \"loss\": 3, \"worker\": 1, \"clock\": 1, \"staleness\": 70}\n"
               "{\"step\": 4, \"loss\": 3, \"worker\": 1, \"clock\": 2, \"staleness\": 70}\n"
               "{\"step\": 5, \"loss\": 3, \"worker\": -1, \"staleness\": 1}\n"
               "{\"step\": 6, \"loss\": 3, \"worker\": 1e30, \"staleness\": 1e30}\n");
    char *page = page_of("stale");
    has(page, "<title>worker 0: 1 update of staleness 0 to 3</title>");
    has(page, "<title>worker 1: 1 update of staleness 0 to 3</title>");
    has(page, "<title>worker 1: 2 updates of staleness 68 to 71</title>");
    has(page, "<th scope=\"row\" class=\"n\">1</th><td class=\"n\">3</td>"
              "<td class=\"n\">47.00</td><td class=\"n\">70</td>");
    has_not(page, "How long groups waited");
    free(page);
    FILE *file = fopen(at("many/metrics.jsonl"), "w");
    for (int i = 0; i < 64; i++)
        fprintf(file, "{\"step\": %d, \"loss\": 2, \"worker\": %d, \"staleness\": 5}\n", i + 1, i);
    assert_int_equal(fclose(file), 0);
    page = page_of("many");
    has(page, "<title>64 updates of staleness 5</title>");
    free(page);
    expect("$L report stale many --output stale.html", 0, "stale.html");
    page = page_read("stale.html");
    has(page, "staleness of an update, mean</th><td class=\"n\">35.2</td><td class=\"n\">5.0</td>");
    free(page);
}

/* Two workers at a time: of ten seconds each computed eight. */
CASE(test_pushes_side_by_side)
{
    expect("$L train $C train.out=abreast train.steps=2 async.mode=server async.workers=2 "
           "async.sync_every=2 parallel.workers=2",
           0, "step 2/2");
    write_text("abreast/metrics.jsonl",
               "{\"step\": 0, \"event\": \"start\", \"time\": 1000, \"layout\": \"\"}\n"
               "{\"step\": 1, \"time\": 1008, \"loss\": 3, \"step_s\": 8, \"compute_s\": 8}\n"
               "{\"step\": 2, \"time\": 1010, \"loss\": 3, \"step_s\": 8, \"compute_s\": 8}\n");
    char *page = page_of("abreast");
    has_in(page, "From start to end, all starts together",
           "computing</th><td class=\"n\">8.00 s</td><td class=\"n\">80.0 %</td>");
    has_in(page, "From start to end, all starts together",
           "(start, hashes, samples)</th><td class=\"n\">2.00 s</td>");
    free(page);
}

/* What a run records is what the page shows: every step of a server is one update. */
CASE(test_workers_of_runs)
{
    char words[256];
    expect("$L train $C train.out=served train.steps=8 async.mode=server async.workers=2 "
           "async.sync_every=4 async.times=1,3 && $L train $C train.out=local train.steps=8 "
           "async.mode=diloco async.workers=2 async.sync_every=4 parallel.workers=2",
           0, "step 8/8");
    expect("$L report served local --output workers.html", 0, "workers.html");
    char *page = page_read("workers.html");
    snprintf(words, sizeof words, "<th scope=\"row\" class=\"n\">%d</th><td class=\"n\">%d</td>", 0,
             6);
    has(page, words); /* three of four are of the worker that is three times as fast */
    has(page, ">outer gradient norm<");
    assert_int_equal(count_of(page, "2 meetings in all."), 2);
    free(page);
    page = page_of("local");
    has(page, "<b>2</b>\n<span>ranks</span>");
    free(page);
    expect("grep -c '\"compute_s\": 0,' local/metrics.jsonl", 1, "0");
    expect("grep -ac outer_norm local/events.out.* && grep -ac staleness served/events.out.*", 0,
           "");
    expect("grep -ac staleness local/events.out.*", 1, "0");
}

/* ---- a long run ------------------------------------------------------------------------------ */

CASE(test_a_long_run)
{
    enum { STEPS = 200000 };
    size_t bytes;
    expect("mkdir long", 0, "");
    FILE *file = fopen(at("long/metrics.jsonl"), "w");
    for (int i = 1; i <= STEPS; i++)
        fprintf(file,
                "{\"step\": %d, \"loss\": %s, \"step_s\": 0.5, \"hash\": \"%032d\"}\n"
                "{\"step\": %d, \"validation_loss\": %g}\n",
                i,
                i == STEPS / 2   ? "99"
                : i == STEPS - 1 ? "null"
                : i == STEPS     ? "2.5"
                                 : "3",
                i, i, 2 + 1.0 / i);
    fprintf(file, "{\"step\": %d, \"event\": \"warning\", \"text\": \"kept\"}\n", STEPS);
    assert_int_equal(fclose(file), 0);
    char *page = page_of("long");
    free(page);
    page = scratch_read(at("long/report.html"), &bytes);
    assert_in_range(bytes, 100000, 2000000);
    has(page, "drawn as means of up to 4 neighbours");
    has(page, "<th scope=\"row\">median</th><td class=\"n\">500 ms</td>");
    has(page, "of 200,000 evaluations are shown.");
    has(page, "of 200,001 events are shown.");
    has(page, "<td>warning: kept</td>");
    has(page, "<b>2.5000</b>\n<span>training loss at step 200000</span>");
    has(page, "training: 2.8750 (mean) at step 200000"); /* 3, 3, not finite, 2.5 */
    char words[64];
    snprintf(words, sizeof words, "hash %032d", STEPS);
    has(page, words);
    free(page);
}

SUITE_MAIN(corpus_setup, scratch_teardown)
