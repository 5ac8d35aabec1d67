/* The timeline of a rank's memory, drawn. */
#include <lockstep/trace/picture.h>
#include <lockstep/train/memory.h>

#include <stdlib.h>

/* What lasts has a band each. What is needed for a layer at a time comes and goes from moment to
 * moment, and is one band on top. */
enum { BRIEF = LS_MEMORY_WORKSPACE, BANDS };

static int band_of(int kind)
{
    return kind < BRIEF ? kind : BRIEF;
}

struct points {
    double *values[BANDS];
    double unit; /* bytes of 1 on the axis */
    int64_t count, room[BANDS], peak;
    struct ls_memory_moment most;
};

static int points_visit(void *user, const struct ls_memory_moment *moment, struct ls_error *error)
{
    struct points *p = user;
    for (int band = 0; band < BANDS; band++) {
        if (!ls_list_grow(&p->values[band], p->count, &p->room[band], sizeof *p->values[band]))
            return ls_no_memory(error, "to draw %ld moments", (long)p->count + 1);
        p->values[band][p->count] = 0;
    }
    for (int kind = 0; kind < LS_MEMORY_KINDS; kind++)
        p->values[band_of(kind)][p->count] += (double)moment->bytes[kind] / p->unit;
    if (moment->all > p->most.all) {
        p->most = *moment;
        p->peak = p->count;
    }
    p->count++;
    return LS_OK;
}

struct ls_memory_moment_text ls_memory_moment_text(const struct ls_memory_moment *moment)
{
    struct ls_memory_moment_text out;
    if (moment->layer < 0)
        snprintf(out.text, sizeof out.text, "the update of the parameters");
    else
        snprintf(out.text, sizeof out.text, "%s of layer %d, micro-batch %d (action %ld, %s)",
                 ls_memory_phase_name(moment->phase), moment->layer, moment->action.micro_batch,
                 (long)moment->index, ls_action_text(moment->action).text);
    return out;
}

struct legend {
    char text[96];
};

/* "activations 3.81 GiB": what a band has of the moment at which most is in use. */
static struct legend legend_of(const struct points *p, int band, const char *unit)
{
    struct legend legend = {""};
    for (int kind = band; kind < LS_MEMORY_KINDS && band_of(kind) == band; kind++)
        ls_string_add(legend.text, sizeof legend.text, ", ", "%s %.2f %s",
                      ls_memory_name((enum ls_memory_kind)kind),
                      (double)p->most.bytes[kind] / p->unit, unit);
    return legend;
}

static int points_draw(const struct points *p, size_t total, int64_t rank, int width, FILE *file,
                       struct ls_error *error)
{
    struct ls_stack_part parts[BANDS];
    struct legend legends[BANDS];
    const char *unit = p->unit > 0x1p25 ? "GiB" : p->unit > 0x1p15 ? "MiB" : "KiB";
    char title[96], peak[256], limit[64];
    for (int band = 0; band < BANDS; band++) {
        legends[band] = legend_of(p, band, unit);
        parts[band] = (struct ls_stack_part){legends[band].text, p->values[band]};
    }
    snprintf(title, sizeof title, "Memory in use on rank %ld during a step", (long)rank);
    snprintf(peak, sizeof peak, "most: %.2f %s, in the %s. Of this:", (double)p->most.all / p->unit,
             unit, ls_memory_moment_text(&p->most).text);
    snprintf(limit, sizeof limit, "allocated: %.2f %s", (double)total / p->unit, unit);
    struct ls_stack stack = {.title = title,
                             .x_label = "layers under work, in the order of the rank's schedule",
                             .y_label = unit,
                             .parts = parts,
                             .part_count = BANDS,
                             .count = p->count,
                             .limit = (double)total / p->unit,
                             .limit_text = limit,
                             .marked = p->peak,
                             .marked_text = peak,
                             .width = width};
    return ls_stack_draw(&stack, file, error);
}

int ls_memory_draw(const struct ls_config *config, const struct ls_layout *layout, int64_t rank,
                   int width, FILE *file, struct ls_error *error)
{
    struct ls_memory_plan plan;
    int status = ls_plan_rank(config, layout, rank, &plan, error);
    if (status)
        return status;
    struct points p = {.unit = plan.total >> 30 ? 0x1p30 : plan.total >> 20 ? 0x1p20 : 0x1p10};
    status = ls_memory_timeline(config, layout, rank, points_visit, &p, error);
    if (!status)
        status = points_draw(&p, plan.total, rank, width, file, error);
    for (int band = 0; band < BANDS; band++)
        free(p.values[band]);
    return status;
}
