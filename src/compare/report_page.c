/* The page of a run, or of several: its head, and its sections in order. */
#include "compare/report_private.h"

#include <lockstep/base/formatted.h>
#include <lockstep/base/median.h>
#include <lockstep/base/words.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- words ----------------------------------------------------------------------------------- */

const char *report_part_name(enum report_part part)
{
    static const char *const names[PARTS] = {
        [PART_COMPUTE] = "computing",
        [PART_OPTIMIZER] = "optimizer",
        [PART_DATA] = "waiting for data",
        [PART_WAIT + LS_ACCOUNT_TP] = "waiting on tp",
        [PART_WAIT + LS_ACCOUNT_CP] = "waiting on cp",
        [PART_WAIT + LS_ACCOUNT_PP] = "waiting on pp (with bubbles)",
        [PART_WAIT + LS_ACCOUNT_SHARD] = "waiting on dp_shard",
        [PART_WAIT + LS_ACCOUNT_REPLICATE] = "waiting on dp_replicate",
        [PART_WAIT + LS_ACCOUNT_OPTIMIZER] = "waiting on matrices (muon)",
        [PART_WAIT + LS_ACCOUNT_OTHER] = "waiting on others (loss, norm)",
        [PART_EVAL] = "evaluations",
        [PART_SAVE] = "saves",
        [PART_REST] = "the rest (start, hashes, samples)",
    };
    return names[part];
}

struct report_text report_seconds(double seconds)
{
    struct report_text out;
    long whole = isfinite(seconds) ? lround(seconds) : 0;
    if (!isfinite(seconds))
        snprintf(out.text, sizeof out.text, "unknown");
    else if (seconds == 0)
        snprintf(out.text, sizeof out.text, "0 s");
    else if (seconds < 1e-3)
        snprintf(out.text, sizeof out.text, "%.0f µs", 1e6 * seconds);
    else if (seconds < 1)
        snprintf(out.text, sizeof out.text, seconds < 0.1 ? "%.1f ms" : "%.0f ms", 1e3 * seconds);
    else if (seconds < 120)
        snprintf(out.text, sizeof out.text, seconds < 10 ? "%.2f s" : "%.1f s", seconds);
    else if (whole < 7200)
        snprintf(out.text, sizeof out.text, "%ld min %02ld s", whole / 60, whole % 60);
    else
        snprintf(out.text, sizeof out.text, "%ld h %02ld min", whole / 3600, whole % 3600 / 60);
    return out;
}

struct report_text report_count(double count)
{
    struct report_text out;
    char plain[40];
    size_t used = 0;
    if (!isfinite(count) || fabs(count) >= 1e15) {
        snprintf(out.text, sizeof out.text, isfinite(count) ? "%.3g" : "unknown", count);
        return out;
    }
    size_t length = (size_t)snprintf(plain, sizeof plain, "%.0f", count);
    for (size_t i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0 && plain[i - 1] != '-')
            out.text[used++] = ',';
        out.text[used++] = plain[i];
    }
    out.text[used] = '\0';
    return out;
}

struct report_text report_share(double share)
{
    struct report_text out;
    if (isfinite(share))
        snprintf(out.text, sizeof out.text, "%.1f %%", 100 * share);
    else
        snprintf(out.text, sizeof out.text, "not measured");
    return out;
}

struct report_text report_time(double time)
{
    struct report_text out = {""};
    struct tm parts;
    time_t whole = (time_t)time;
    if (isfinite(time) && time > 0 && time < 1e11 && gmtime_r(&whole, &parts))
        strftime(out.text, sizeof out.text, "%Y-%m-%d %H:%M:%S", &parts);
    return out;
}

/* ---- speed ----------------------------------------------------------------------------------- */

static const double percentiles[REPORT_PERCENTILES] = {0, 0.05, 0.25, 0.5, 0.75, 0.95, 1};

int report_speed_of(const struct report_run *run, struct report_speed *speed,
                    struct ls_error *error)
{
    double *step = malloc((size_t)ls_max(run->count, 1) * 2 * sizeof *step);
    double *rate = step + run->count, all_s = 0, shared_s = 0, share = 0, best = NAN, tokens = 0;
    int64_t steps = 0, rates = 0;
    if (!step)
        return ls_no_memory(error, "for the percentiles of a report");
    for (int64_t i = 0; i < run->count; i++) {
        const struct report_point *p = &run->points[i];
        double took = (double)p->count * p->step_s;
        if (isfinite(p->step_s))
            step[steps++] = p->step_s;
        if (isfinite(p->tokens_per_s))
            rate[rates++] = p->tokens_per_s;
        if (isfinite(took) && isfinite(p->tokens_per_s)) {
            all_s += took;
            tokens += took * p->tokens_per_s;
        }
        if (isfinite(took) && p->peak_share > 0) {
            shared_s += took;
            share += took * p->peak_share;
            best = fmax(best, p->peak_share);
        }
    }
    ls_sort(step, steps);
    ls_sort(rate, rates);
    for (int i = 0; i < REPORT_PERCENTILES; i++)
        speed->percentile[i] = ls_quantile(step, steps, percentiles[i]);
    speed->mean_s = run->steps > 0 ? run->steps_s / (double)run->steps : (double)NAN;
    speed->tokens_per_s_median = ls_quantile(rate, rates, 0.5);
    speed->tokens_per_s_mean = all_s > 0 ? tokens / all_s : (double)NAN;
    speed->peak_share_mean = shared_s > 0 ? share / shared_s : (double)NAN;
    speed->peak_share_best = best;
    free(step);
    return LS_OK;
}

/* ---- the head -------------------------------------------------------------------------------- */

/* How the run ended, or, of one that recorded no end, what its lock tells. */
static void state_print(const struct report *report, const struct report_run *run)
{
    static const char *const going[] = {[LS_LOCK_FREE] = "no end recorded",
                                        [LS_LOCK_HELD] = "still going: ",
                                        [LS_LOCK_LEFT] = "killed: ",
                                        [LS_LOCK_ELSEWHERE] = "no end recorded: "};
    bool done = !strcmp(run->ended, "done"), failed = !strcmp(run->ended, "failed");
    char words[300];
    if (*run->ended)
        snprintf(words, sizeof words, "%s",
                 done     ? "finished"
                 : failed ? "failed"
                          : "stopped by a signal");
    else
        snprintf(words, sizeof words, "%s%s", going[run->lock], run->holder);
    fputs("<p>", report->file);
    ls_html_print(report->file, "span",
                  done     ? "state good"
                  : failed ? "state bad"
                           : "state",
                  "%s%s%s", run->label, *run->label ? ": " : "", words);
    if (*run->machine)
        ls_html_print(report->file, "span", "soft", "%s", run->machine);
    fputs("</p>\n", report->file);
}

static void card(const struct report *report, const char *what, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void card(const struct report *report, const char *what, const char *format, ...)
{
    char text[128];
    LS_FORMAT(text, format);
    fputs("<div class=\"card\">", report->file);
    ls_html_print(report->file, "b", NULL, "%s", text);
    ls_html_print(report->file, "span", NULL, "%s", what);
    fputs("</div>\n", report->file);
}

static void loss_cards(const struct report *report, const struct report_run *run)
{
    char what[96];
    const struct report_point *last = report_last(run);
    const struct report_eval *best = report_best(run);
    if (last) {
        snprintf(what, sizeof what, "training loss at step %ld", (long)last->step);
        card(report, what, "%.4f", last->loss);
    }
    if (best) {
        snprintf(what, sizeof what, "best validation loss, at step %ld", (long)best->step);
        card(report, what, "%.4f", best->loss);
    }
}

static int cards_print(const struct report *report, const struct report_run *run)
{
    struct report_speed speed;
    int status = report_speed_of(run, &speed, report->error);
    if (status)
        return status;
    fputs("<div class=\"cards\">\n", report->file);
    int64_t last = run->count ? run->points[run->count - 1].step : 0;
    if (run->configured)
        card(report, "steps done, of those planned", "%s / %s", report_count((double)last).text,
             report_count((double)ls_config_steps(&run->config)).text);
    else
        card(report, "steps done", "%s", report_count((double)last).text);
    loss_cards(report, run);
    if (isfinite(speed.tokens_per_s_median))
        card(report, "tokens a second, median", "%s", report_count(speed.tokens_per_s_median).text);
    if (isfinite(speed.percentile[3]))
        card(report, "a step, median", "%s", report_seconds(speed.percentile[3]).text);
    if (isfinite(speed.peak_share_mean))
        card(report, "of the machine's measured rate", "%.0f %%", 100 * speed.peak_share_mean);
    if (run->laid_out) {
        int64_t ranks = run->layout.ranks * ls_config_groups(&run->config);
        card(report, ranks == 1 ? "rank" : "ranks", "%ld", (long)ranks);
    }
    if (run->tokens > 0)
        card(report, "tokens trained on", "%s", report_count((double)run->tokens).text);
    fputs("</div>\n", report->file);
    if (*run->hash) {
        fprintf(report->file,
                "<p class=\"note\">Hash of the state after step %ld: ", (long)run->hash_step);
        ls_html_print(report->file, "code", NULL, "%s", run->hash);
        fputs("</p>\n", report->file);
    }
    return LS_OK;
}

static void problems_print(const struct report *report, const struct report_run *run)
{
    const char *of = *run->label ? run->label : "This run";
    const char *const problems[] = {run->config_problem, run->layout_problem, run->metrics_problem,
                                    run->checkpoints_problem};
    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++)
        if (*problems[i])
            ls_html_print(report->file, "p", "warn", "%s: %s", of, problems[i]);
    if (run->torn)
        ls_html_print(report->file, "p", "note",
                      "%s: the last line of metrics.jsonl is not whole and was left out: it is "
                      "being written, or the run was killed.",
                      of);
    if (!run->steps && !*run->metrics_problem)
        ls_html_print(report->file, "p", "note", "%s has not recorded a step yet.", of);
    if (run->repeated)
        ls_html_print(report->file, "p", "note",
                      "%s: %s records are of steps that came again; the later ones are shown.", of,
                      report_count((double)run->repeated).text);
    if (run->not_finite)
        ls_html_print(report->file, "p", "warn", "%s: the loss of %s step%s is not finite.", of,
                      report_count((double)run->not_finite).text, run->not_finite == 1 ? "" : "s");
    if (run->width > 1)
        ls_html_print(report->file, "p", "note",
                      "%s: %s steps, drawn as means of up to %ld neighbours; percentiles are of "
                      "these means.",
                      of, report_count((double)run->steps).text, (long)run->width);
}

/* ---- the page -------------------------------------------------------------------------------- */

static const struct section {
    const char *id, *heading;
    report_section *all;                       /* of all runs together, */
    report_run_section *run;                   /* or of one after the other */
    bool planned;                              /* it needs the layout of the run */
    int least;                                 /* runs: with fewer it is left out */
    bool (*has)(const struct report_run *run); /* NULL: every run has it */
    const char *note;                          /* below it */
} sections[] = {
    {"comparison", "Side by side", .all = report_comparison, .least = 2},
    {"curves", "Curves", .all = report_curves},
    {"throughput", "Throughput", .all = report_speeds},
    {"time", "Where the time went", .all = report_times},
    {"workers", "Workers", .run = report_workers, .has = report_has_workers},
    {"layout", "Layout", .run = report_layout, .planned = true,
     .note = "A box is one replica: tensor parallel across, context parallel downwards; pipeline "
             "ranks stand below each other."},
    {"memory", "Memory plan", .run = report_memory, .planned = true,
     .note = "The memory plan of the first rank of each pipeline rank: what a run allocates, to "
             "the byte. Activations are of the micro-batches that are live at once; workspace is "
             "what one layer works in at a time."},
    {"schedule", "Pipeline schedule", .run = report_schedule, .planned = true},
    {"evaluations", "Evaluations", .run = report_evaluations},
    {"checkpoints", "Checkpoints", .run = report_checkpoints},
    {"events", "Events", .run = report_events},
    {"configuration", "Configuration", .run = report_configuration},
};
enum { SECTIONS = sizeof sections / sizeof sections[0] };

bool report_any(const struct report *report, bool (*has)(const struct report_run *run))
{
    bool any = false;
    for (int r = 0; r < report->count && !any; r++)
        any = has(&report->runs[r]);
    return any;
}

static bool section_shown(const struct report *report, int i)
{
    return report->count >= sections[i].least &&
           (!sections[i].has || report_any(report, sections[i].has));
}

/* What a run has in a section. Of several runs a heading names it. */
static int section_run(struct report *report, const struct section *section,
                       const struct report_run *run)
{
    if (section->has && !section->has(run))
        return LS_OK;
    if (report->count > 1)
        ls_html_print(report->file, "h3", NULL, "%s: %s", run->label, run->name);
    if (!section->planned || run->laid_out)
        return section->run(report, run);
    ls_html_print(report->file, "p", "note", "Not known: %s",
                  *run->layout_problem ? run->layout_problem : run->config_problem);
    return LS_OK;
}

static int section_print(struct report *report, const struct section *section)
{
    ls_html_section_begin(report->file, section->id, section->heading);
    int status = section->all ? section->all(report) : LS_OK;
    for (int r = 0; r < report->count && section->run && !status; r++)
        status = section_run(report, section, &report->runs[r]);
    if (section->note)
        ls_html_print(report->file, "p", "note", "%s", section->note);
    ls_html_section_end(report->file);
    return status;
}

/* "NAME", or "A: NAME · B: NAME". */
enum { NAMES_BYTES = LS_REPORT_RUNS_MAX * (sizeof((struct report_run *)0)->name + 8) };
static const char *names_of(const struct report *report, char names[NAMES_BYTES])
{
    names[0] = '\0';
    for (int r = 0; r < report->count; r++)
        ls_string_add(names, NAMES_BYTES, " · ", "%s%s%s", report->runs[r].label,
                      *report->runs[r].label ? ": " : "", report->runs[r].name);
    return names;
}

static int head_print(const struct report *report)
{
    FILE *file = report->file;
    int status = LS_OK;
    fputs("<header>\n", file);
    char names[NAMES_BYTES];
    ls_html_print(file, "p", "soft", "Lockstep: %s", ls_counted(report->count, "run").text);
    ls_html_print(file, "h1", NULL, "%s", names_of(report, names));
    for (int i = 0; i < report->count && !status; i++) {
        state_print(report, &report->runs[i]);
        if (report->count == 1)
            status = cards_print(report, &report->runs[i]);
        problems_print(report, &report->runs[i]);
    }
    fputs("<nav aria-label=\"Sections\">\n", file);
    for (int i = 0; i < SECTIONS; i++)
        if (section_shown(report, i))
            fprintf(file, "<a href=\"#%s\">%s</a>\n", sections[i].id, sections[i].heading);
    fputs("</nav>\n</header>\n", file);
    return status;
}

static void foot_print(const struct report *report)
{
    fputs("<footer>\n", report->file);
    for (int i = 0; i < report->count; i++)
        ls_html_print(report->file, "p", NULL, "%s%s%s", report->runs[i].label,
                      *report->runs[i].label ? ": " : "", report->runs[i].directory);
    ls_html_print(report->file, "p", NULL, "Written by lockstep " LS_VERSION " on %s UTC.",
                  report_time(ls_record_time_s()).text);
    fputs("</footer>\n", report->file);
}

static int page_write(struct report *report)
{
    char title[NAMES_BYTES + 16], names[NAMES_BYTES];
    snprintf(title, sizeof title, "%s · Lockstep", names_of(report, names));
    ls_html_begin(report->file, title);
    int status = head_print(report);
    fputs("<main>\n", report->file);
    for (int i = 0; i < SECTIONS && !status; i++)
        if (section_shown(report, i))
            status = section_print(report, &sections[i]);
    fputs("</main>\n", report->file);
    foot_print(report);
    ls_html_end(report->file);
    return status;
}

int ls_report_write(const char *const *directories, int count, FILE *file, struct ls_error *error)
{
    static const char *const labels[LS_REPORT_RUNS_MAX] = {"A", "B", "C", "D", "E", "F"};
    if (count < 1 || count > LS_REPORT_RUNS_MAX)
        return ls_error_set(error, LS_EINVAL, "a report is of 1 to %d runs, not of %d",
                            LS_REPORT_RUNS_MAX, count);
    struct report report = {.file = file, .count = count, .error = error};
    report.runs = calloc((size_t)count, sizeof *report.runs);
    int status = report.runs ? LS_OK : ls_no_memory(error, "for a report");
    for (int i = 0; i < count && !status; i++) {
        report.runs[i].label = count > 1 ? labels[i] : "";
        status = report_run_read(&report.runs[i], directories[i], error);
    }
    if (!status)
        status = page_write(&report);
    for (int i = 0; i < count && report.runs; i++)
        report_run_release(&report.runs[i]);
    free(report.runs);
    return status;
}
