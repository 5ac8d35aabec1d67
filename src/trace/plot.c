/* The picture of runs: their losses and learning rates over the step. */
#include <lockstep/trace/picture.h>

#include <math.h>

int ls_run_curves_read(struct ls_run_curves *run, const char *name, const char *metrics_path,
                       struct ls_error *error)
{
    static const char *const keys[] = {"loss", "lr", "validation_loss"};
    struct ls_series series[3];
    *run = (struct ls_run_curves){.name = name};
    int status = ls_series_read(series, metrics_path, "step", keys, 3, error);
    if (status)
        return status;
    *run = (struct ls_run_curves){name, series[0], series[1], series[2]};
    if (run->loss.count + run->validation.count > 0)
        return LS_OK;
    ls_run_curves_release(run);
    return ls_error_set(error, LS_EDATA, "%s: no record has a loss yet", metrics_path);
}

void ls_run_curves_release(struct ls_run_curves *run)
{
    ls_series_release(&run->loss);
    ls_series_release(&run->lr);
    ls_series_release(&run->validation);
}

enum { LEGEND_BYTES = 1024 };

/* The curves of one plot, with the texts of the legend. */
struct curves {
    struct ls_curve loss[2 * LS_PLOT_RUNS_MAX], lr[LS_PLOT_RUNS_MAX];
    char text[2 * LS_PLOT_RUNS_MAX][LEGEND_BYTES];
    int losses, rates;
};

/* "NAME, train: 2.1250 at step 300 (line: mean of 7 steps)"; NULL if nothing is finite. */
static const char *legend(char text[LEGEND_BYTES], const char *name, const char *what,
                          const struct ls_series *series, bool smooth)
{
    size_t last = series->count, window = smooth ? ls_smooth_window(series->count) : 1;
    while (last > 0 && !isfinite(series->y[last - 1]))
        last--;
    if (last == 0)
        return NULL;
    char mean[64] = "", value[32];
    if (window > 1)
        snprintf(mean, sizeof mean, " (line: mean of %zu steps)", window);
    snprintf(value, sizeof value, fabs(series->y[last - 1]) < 1e9 ? "%.4f" : "%.4g",
             series->y[last - 1]);
    snprintf(text, LEGEND_BYTES, "%.512s%s%s: %s at step %.0f%s", name, *name ? ", " : "", what,
             value, series->x[last - 1], mean);
    return text;
}

static void add_run(struct curves *curves, const struct ls_run_curves *run, int index, bool only)
{
    const char *name = only ? "" : run->name;
    const struct ls_series *series[] = {&run->loss, &run->validation};
    static const char *const what[] = {"train", "validation"};
    for (int i = 0; i < 2; i++) {
        int at = curves->losses++;
        curves->loss[at] = (struct ls_curve){
            .legend = legend(curves->text[at], name, what[i], series[i], i == 0),
            .series = *series[i],
            .colour = only ? i : index,
            .smooth = i == 0,
            .points = i == 1,
            .rings = index % 2, /* equal runs are both seen */
            .gaps = true,
        };
    }
    curves->lr[curves->rates++] = (struct ls_curve){.series = run->lr, .colour = index};
}

int ls_plot_draw(const struct ls_plot *plot, FILE *file, struct ls_error *error)
{
    LS_ASSERT(plot->count > 0 && plot->count <= LS_PLOT_RUNS_MAX);
    char title[64];
    struct curves curves = {.losses = 0};
    for (int i = 0; i < plot->count; i++)
        add_run(&curves, &plot->runs[i], i, plot->count == 1);
    snprintf(title, sizeof title, "Loss of %d runs", plot->count);
    const struct ls_panel panels[] = {
        {"loss (nats per token)", curves.loss, curves.losses, 340, plot->log, false},
        {"learning rate", curves.lr, curves.rates, 80, false, false},
    };
    const struct ls_chart chart = {.title = plot->count == 1 ? plot->runs[0].name : title,
                                   .x_label = "step",
                                   .panels = panels,
                                   .count = 2,
                                   .width = plot->width,
                                   .x_whole = true};
    return ls_chart_draw(&chart, file, error);
}
