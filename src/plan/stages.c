/* Which layers a pipeline rank holds, and what its schedule asks for. */
#include "plan/plan_private.h"

#include <lockstep/base/words.h>

static const char *schedule_name(const struct ls_layout *layout)
{
    return layout->schedule == LS_LAYOUT_CSV
               ? "csv"
               : ls_schedule_name((enum ls_schedule_kind)layout->schedule);
}

/* ---- chunks ---------------------------------------------------------------------------------- */

/* The kind of a layout without a file; one stage has no pipeline to speak of. */
static enum ls_schedule_kind kind_of(const struct ls_layout *layout)
{
    return layout->stages == 1 ? LS_SCHEDULE_1F1B : (enum ls_schedule_kind)layout->schedule;
}

static int check_chunks(const struct ls_layout_keys *keys, const struct ls_schedule *file,
                        struct ls_layout *layout, struct ls_error *error)
{
    enum { SEVERAL = 2 };
    int64_t fixed = file ? file->chunks : ls_schedule_chunks((enum ls_schedule_kind)keys->schedule);
    layout->chunks = keys->chunks ? keys->chunks : fixed ? fixed : SEVERAL;
    if (fixed == 0 || layout->chunks == fixed)
        return LS_OK;
    return plan_refuse(error, "parallel.chunks", keys->chunks,
                       "parallel.schedule = %s gives each pipeline rank %s", schedule_name(layout),
                       ls_counted(fixed, "chunk").text);
}

int plan_schedule_takes(const struct ls_layout *layout, const struct ls_schedule *file,
                        int64_t micro_batches, struct ls_error *error)
{
    struct ls_error why = {0};
    int64_t pp = layout->size[LS_AXIS_PP];
    if (file && micro_batches != file->micro_batches)
        return ls_error_refuse(error, LS_ELAYOUT, "parallel.schedule_file", layout->schedule_file,
                               "it has %ld micro-batches, and a step has %ld",
                               (long)file->micro_batches, (long)micro_batches);
    if (!file &&
        ls_schedule_admits(kind_of(layout), pp, layout->chunks, micro_batches, error ? &why : NULL))
        return plan_refuse(error, "parallel.pp", pp, "%s", why.text);
    return LS_OK;
}

int ls_layout_table(const struct ls_layout *layout, int64_t micro_batches,
                    struct ls_schedule *schedule, struct ls_error *error)
{
    int ranks = (int)layout->size[LS_AXIS_PP], chunks = (int)layout->chunks;
    int status;
    if (layout->schedule != LS_LAYOUT_CSV) /* whatever is admitted is valid */
        return ls_schedule_generate(schedule, kind_of(layout), ranks, chunks, micro_batches, error);
    status = ls_schedule_read(schedule, layout->schedule_file, ranks, chunks, micro_batches, error);
    if (status)
        return status;
    status = ls_schedule_validate(schedule, error);
    if (status)
        ls_schedule_release(schedule);
    return status;
}

/* Where each stage lies. */
static void place_stages(const struct ls_schedule *file, struct ls_layout *layout)
{
    int pp = (int)layout->size[LS_AXIS_PP];
    enum ls_stage_placement placement =
        file ? LS_PLACEMENT_FILE : ls_schedule_placement(kind_of(layout));
    for (int stage = 0; stage < layout->stages; stage++) {
        int rank = file ? file->stage_rank[stage] : ls_stage_rank(placement, pp, stage);
        int chunk = file ? file->stage_chunk[stage] : stage / pp;
        layout->stage_rank[stage] = rank;
        layout->rank_stage[rank * layout->chunks + chunk] = stage;
    }
}

/* ---- the schedule's costs and picture -------------------------------------------------------- */

void ls_layout_stage_costs(const struct ls_layout *layout, struct ls_stage_cost *costs)
{
    double most = 0;
    for (int64_t s = 0; s < layout->stages; s++) {
        double cost = 0;
        for (int l = layout->stage_first[s]; l < layout->stage_first[s + 1]; l++)
            cost += ls_layer_flops_per_token(&layout->model, l, layout->sequence);
        costs[s] = (struct ls_stage_cost){cost, cost, cost};
        most = cost > most ? cost : most;
    }
    for (int64_t s = 0; s < layout->stages; s++) {
        double each = costs[s].forward / most;
        costs[s] = (struct ls_stage_cost){each, each, each};
    }
}

int ls_layout_draw_schedule(const struct ls_layout *layout, int width, FILE *file,
                            struct ls_error *error)
{
    struct ls_schedule table;
    const struct ls_schedule_picture picture = {.name = layout->stages == 1 ? "no pipeline"
                                                                            : schedule_name(layout),
                                                .time_label = "time (1 = the longest forward)",
                                                .ranks_max = 64,
                                                .width = width};
    int status = ls_layout_table(layout, layout->micro_batches, &table, error);
    if (status)
        return status;
    struct ls_stage_cost costs[LS_LAYOUT_LAYERS_MAX + 2];
    ls_layout_stage_costs(layout, costs);
    status = ls_schedule_draw(&table, &(struct ls_schedule_costs){.stage = costs}, &picture, file,
                              error);
    ls_schedule_release(&table);
    return status;
}

/* ---- layers of stages ------------------------------------------------------------------------ */

int plan_split(const struct ls_layout_keys *keys, struct ls_layout *layout, struct ls_error *error)
{
    int64_t layers = layout->model.layers + 2, first[LS_LAYOUT_LAYERS_MAX + 3];
    double cost[LS_LAYOUT_LAYERS_MAX + 2];
    for (int64_t l = 0; l < layers; l++)
        cost[l] = ls_layer_flops_per_token(&layout->model, l, layout->sequence);
    struct ls_error why = {0};
    int status = *keys->split
                     ? ls_stage_split_parse(keys->split, layers, layout->stages, first, &why)
                     : ls_stage_split(cost, layers, layout->stages, first, &why);
    if (status && *keys->split)
        return ls_error_refuse(error, LS_ELAYOUT, "parallel.split", keys->split, "%s", why.text);
    if (status)
        return ls_error_copy(error, status, &why);
    for (int64_t s = 0; s <= layout->stages; s++)
        layout->stage_first[s] = (int)first[s];
    return LS_OK;
}

int plan_stages(const struct ls_layout_keys *keys, const struct ls_schedule *file,
                struct ls_layout *layout, struct ls_error *error)
{
    int64_t pp = layout->size[LS_AXIS_PP], layers = layout->model.layers + 2;
    if (file && pp != file->ranks)
        return plan_refuse(error, "parallel.pp", pp,
                           "the table of parallel.schedule_file = %.200s has %d pipeline ranks",
                           keys->schedule_file, file->ranks);
    int status = check_chunks(keys, file, layout, error);
    if (status)
        return status;
    layout->stages = pp * layout->chunks;
    if (layout->stages > layers)
        return plan_refuse(error, "parallel.pp", pp,
                           "%ld stages (%s a rank) need a layer each, and the model has %ld: "
                           "embedding, %s and head",
                           (long)layout->stages, ls_counted(layout->chunks, "chunk").text,
                           (long)layers, ls_counted(layout->model.layers, "block").text);
    place_stages(file, layout);
    return LS_OK;
}
