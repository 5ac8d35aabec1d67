/* Runs side by side: whether they are equal, their figures, and how they were configured. */
#include "compare/report_private.h"

#include <math.h>
#include <string.h>

/* ---- equal, or not --------------------------------------------------------------------------- */

static void step_say(struct report *report, const struct ls_run_record *record, const char *label,
                     int64_t step)
{
    const struct ls_recorded_step *recorded = ls_run_record_at(record, step);
    char loss[32] = "";
    if (recorded->has_loss)
        snprintf(loss, sizeof loss, " loss bits %08x", recorded->loss_bits);
    ls_html_print(report->file, "p", "mono", "%s:%s%s%s", label, loss,
                  recorded->has_hash ? " hash " : "", recorded->hash);
}

/* Run b and the first one, as `lockstep diff --no-rerun --force` has it: from what was recorded. */
static void equality_say(struct report *report, const struct ls_run_record *a,
                         const struct ls_run_record *b, const char *label)
{
    struct ls_run_difference found;
    char keys[700];
    int recipe = ls_config_recipe_diff(&a->config, &b->config, keys, sizeof keys);
    ls_run_records_compare(a, b, &found);
    if (recipe)
        ls_html_print(report->file, "p", NULL,
                      "The recipes differ, so the numbers differ too: %d key%s differ%s.", recipe,
                      recipe == 1 ? "" : "s", recipe == 1 ? "s" : "");
    if (found.compared == 0) {
        ls_html_print(report->file, "p", NULL, "They recorded no step in common.");
        return;
    }
    if (found.step == 0 && found.equal)
        ls_html_print(report->file, "p", "verdict",
                      "Equal up to step %ld: %s compared bit by bit, the state's hash last "
                      "at step %ld.",
                      (long)found.last, ls_counted(found.compared, "step").text, (long)found.equal);
    else if (found.step == 0)
        ls_html_print(report->file, "p", "verdict",
                      "Equal losses up to step %ld: %s compared bit by bit, no hash among them.",
                      (long)found.last, ls_counted(found.compared, "step").text);
    if (found.strays)
        ls_html_print(report->file, "p", "warn",
                      "A checkpoint of step %ld is not the state that its run recorded: "
                      "`lockstep diff` says which.",
                      (long)found.stray_step);
    if (found.step == 0)
        return;
    ls_html_print(report->file, "p", recipe ? NULL : "warn",
                  "The records differ at step %ld, in %s%s%s", (long)found.step,
                  found.loss && found.hash ? "loss and hash"
                  : found.loss             ? "the loss"
                                           : "the hash",
                  recipe ? "." : ", though the recipes are one: ",
                  recipe ? "" : "`lockstep diff` finds the first tensor.");
    step_say(report, a, report->runs->label, found.step);
    step_say(report, b, label, found.step);
}

static int equality(struct report *report)
{
    struct ls_run_record first = {0}, other = {0};
    struct ls_error problem = {0};
    int status = ls_run_record_read(&first, report->runs->directory, &problem);
    for (int r = 1; r < report->count && status != LS_ENOMEM; r++) {
        const struct report_run *run = &report->runs[r];
        if (report->count > 2)
            ls_html_print(report->file, "h3", NULL, "%s and %s", report->runs->label, run->label);
        int read = status ? status : ls_run_record_read(&other, run->directory, &problem);
        if (!read)
            equality_say(report, &first, &other, run->label);
        else
            ls_html_print(report->file, "p", "warn", "They cannot be compared: %s", problem.text);
        ls_run_record_release(&other);
        status = read == LS_ENOMEM ? read : status;
    }
    ls_run_record_release(&first);
    return status == LS_ENOMEM ? ls_error_copy(report->error, status, &problem) : LS_OK;
}

/* ---- figures --------------------------------------------------------------------------------- */

/* A number of each run, and of two how the second relates to the first. */
static void row(struct report *report, struct ls_html_table *table, const char *name,
                const double *values, struct report_text (*text)(double value))
{
    double a = values[0], b = values[1];
    ls_html_cell(table, "%s", name);
    for (int r = 0; r < report->count; r++)
        ls_html_cell(table, "%s", isfinite(values[r]) ? text(values[r]).text : "–");
    if (report->count > 2)
        return;
    if (isfinite(a) && isfinite(b) && a != 0)
        ls_html_cell(table, "%.3f", b / a);
    else
        ls_html_cell(table, "–");
}

static struct report_text loss_text(double value)
{
    struct report_text out;
    snprintf(out.text, sizeof out.text, "%.4f", value);
    return out;
}

static struct report_text tenths_text(double value)
{
    struct report_text out;
    snprintf(out.text, sizeof out.text, "%.1f", value);
    return out;
}

/* [figures][runs] */
struct figures {
    double steps[LS_REPORT_RUNS_MAX], tokens[LS_REPORT_RUNS_MAX], last[LS_REPORT_RUNS_MAX],
        best[LS_REPORT_RUNS_MAX], trained_s[LS_REPORT_RUNS_MAX], rate[LS_REPORT_RUNS_MAX],
        overall[LS_REPORT_RUNS_MAX], median_s[LS_REPORT_RUNS_MAX], slow_s[LS_REPORT_RUNS_MAX],
        share[LS_REPORT_RUNS_MAX], staleness[LS_REPORT_RUNS_MAX];
};

static int figures_of(const struct report *report, int r, struct figures *f)
{
    const struct report_run *run = &report->runs[r];
    struct report_speed speed;
    int status = report_speed_of(run, &speed, report->error);
    if (status)
        return status;
    f->steps[r] = (double)run->steps;
    f->tokens[r] = run->tokens > 0 ? (double)run->tokens : (double)NAN;
    f->last[r] = report_last(run) ? report_last(run)->loss : (double)NAN;
    f->best[r] = report_best(run) ? report_best(run)->loss : (double)NAN;
    f->trained_s[r] = run->wall_s > 0 ? run->wall_s : (double)NAN;
    f->rate[r] = speed.tokens_per_s_median;
    f->overall[r] = f->tokens[r] / f->trained_s[r];
    f->median_s[r] = speed.percentile[3];
    f->slow_s[r] = speed.percentile[5];
    f->share[r] = speed.peak_share_mean;
    f->staleness[r] = report_staleness(&run->async);
    return LS_OK;
}

static int figures(struct report *report)
{
    struct ls_html_column columns[LS_REPORT_RUNS_MAX + 2];
    struct ls_html_table table;
    struct figures f;
    int status = LS_OK;
    for (int r = 0; r < report->count && !status; r++)
        status = figures_of(report, r, &f);
    if (status)
        return status;
    bool two = report->count == 2;
    int count = report_columns(
        report, (struct ls_html_column){"Figure", LS_HTML_TEXT}, NULL, LS_HTML_NUMBER,
        (struct ls_html_column){two ? "B / A" : NULL, LS_HTML_NUMBER}, columns);
    ls_html_table_begin(&table, report->file, two ? "Figures of both" : "Figures of all", columns,
                        count);
    row(report, &table, "steps recorded", f.steps, report_count);
    row(report, &table, "tokens trained on", f.tokens, report_count);
    row(report, &table, "training loss, last", f.last, loss_text);
    row(report, &table, "validation loss, best", f.best, loss_text);
    row(report, &table, "time of training, by the clock", f.trained_s, report_seconds);
    row(report, &table, "tokens a second of that time", f.overall, report_count);
    row(report, &table, "tokens a second of a step, median", f.rate, report_count);
    row(report, &table, "a step, median", f.median_s, report_seconds);
    row(report, &table, "a step, 95th percentile", f.slow_s, report_seconds);
    row(report, &table, "share of the machine's rate", f.share, report_share);
    if (report_any(report, report_has_workers))
        row(report, &table, "staleness of an update, mean", f.staleness, tenths_text);
    ls_html_table_end(&table);
    return LS_OK;
}

/* ---- configurations -------------------------------------------------------------------------- */

/* Whether a run has another value of the key than the first one; text: of two values. */
static bool key_differs(const struct report *report, const struct ls_config_key *key, char *text)
{
    char *other = text + LS_CONFIG_VALUE_BYTES;
    ls_config_compared_value(&report->runs->config, key, text, LS_CONFIG_VALUE_BYTES);
    for (int r = 1; r < report->count; r++) {
        ls_config_compared_value(&report->runs[r].config, key, other, LS_CONFIG_VALUE_BYTES);
        if (strcmp(text, other))
            return true;
    }
    return false;
}

/* A table of the keys of that part which differ: how many. */
static int part_print(struct report *report, enum ls_config_part part)
{
    struct ls_html_column columns[LS_REPORT_RUNS_MAX + 2];
    struct ls_html_table table;
    char text[2 * LS_CONFIG_VALUE_BYTES], caption[64];
    int different = 0;
    int count = report_columns(report, (struct ls_html_column){"Key", LS_HTML_WORD}, NULL,
                               LS_HTML_TEXT, (struct ls_html_column){.name = NULL}, columns);
    snprintf(caption, sizeof caption, "Keys in which the configurations differ: %s",
             report_config_part(part));
    for (const struct ls_config_key *key = ls_config_keys(NULL); key->name; key++) {
        if (key->part != part || !key_differs(report, key, text))
            continue;
        if (different++ == 0)
            ls_html_table_begin(&table, report->file, caption, columns, count);
        ls_html_cell(&table, "%s", key->name);
        for (int r = 0; r < report->count; r++) {
            ls_config_value(&report->runs[r].config, key, text, LS_CONFIG_VALUE_BYTES);
            ls_html_cell_text(&table, text);
        }
    }
    if (different)
        ls_html_table_end(&table);
    return different;
}

static int configurations(struct report *report)
{
    int different = 0;
    for (int r = 0; r < report->count; r++)
        if (!report->runs[r].configured) {
            ls_html_print(report->file, "p", "note",
                          "The configurations are not compared: one was not read.");
            return LS_OK;
        }
    for (int part = LS_CONFIG_RECIPE; part <= LS_CONFIG_RUN; part++)
        different += part_print(report, (enum ls_config_part)part);
    if (!different)
        ls_html_print(report->file, "p", "note", "The configurations are equal.");
    return LS_OK;
}

int report_comparison(struct report *report)
{
    int status = equality(report);
    if (!status)
        status = figures(report);
    return status ? status : configurations(report);
}
