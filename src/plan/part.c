#include "part.h"

#include <stdlib.h>
#include <string.h>

int64_t plan_shard_elements(const struct ls_layout *layout, const struct ls_param *param)
{
    int64_t rows = param->rows == 1 ? param->cols : param->rows;
    int64_t cols = param->rows == 1 ? 1 : param->cols;
    return ls_ceil_div(rows, layout->shard_ranks) * cols;
}

int64_t plan_slice_elements(const struct ls_layout *layout, const struct ls_param *param, bool cut,
                            int64_t rank)
{
    int64_t all = param->rows * param->cols, room = plan_shard_elements(layout, param);
    return cut ? ls_min(room, all - ls_min(rank * room, all)) : all;
}

/* What each tensor adds to the gathers and reductions that it is part of. */
static void elements_add(const struct ls_layout *layout, struct plan_part *part)
{
    const struct ls_params *params = &part->params;
    for (int i = 0; i < params->count; i++) {
        const struct ls_param *param = &params->list[i];
        int64_t mine = plan_shard_elements(layout, param);
        bool stays = layout->zero == 3 && layout->reshard_after_forward &&
                     param->rows * param->cols <= layout->persist;
        int64_t *gather = stays ? part->kept : part->units[param->unit].gather;
        gather[!param->matrix] += mine;
        part->scatter[param->region] += mine;
        if (i == params->tied_param && params->tied_region >= 0)
            part->scatter[params->tied_region] += mine;
        if (i == params->shared_param)
            part->shared = part->cut ? mine : param->rows * param->cols;
    }
}

int plan_part_init(const struct ls_layout *layout, int64_t pp_rank, int64_t tp_rank,
                   struct plan_part *part, struct ls_error *error)
{
    bool held[LS_LAYOUT_LAYERS_MAX + 2];
    int64_t layers = layout->model.layers + 2;
    *part = (struct plan_part){.cut = layout->zero > 0 && layout->shard_ranks > 1};
    part->each = layout->shard_ranks > 1 && layout->each_micro_batch;
    ls_layout_layers(layout, pp_rank, held, NULL);
    struct ls_part cut = {.tp = layout->size[LS_AXIS_TP], .tp_rank = tp_rank, .layers = held};
    int status = ls_params_init(&part->params, &layout->model, &layout->numerics, &cut, error);
    if (status)
        return status;
    part->units = calloc((size_t)part->params.unit_count + 1, sizeof *part->units);
    part->scatter = calloc((size_t)part->params.region_count + 1, sizeof *part->scatter);
    part->unit_of = malloc((size_t)layers * sizeof *part->unit_of);
    part->region_of = malloc((size_t)layers * sizeof *part->region_of);
    if (!part->units || !part->scatter || !part->unit_of || !part->region_of) {
        plan_part_release(part);
        return ls_error_set(error, LS_ENOMEM, "no memory for the list of what moves");
    }
    for (int64_t l = 0; l < layers; l++) {
        part->unit_of[l] = ls_params_unit(&part->params, (int)l);
        part->region_of[l] = ls_params_region(&part->params, (int)l);
    }
    elements_add(layout, part);
    return LS_OK;
}

void plan_part_release(struct plan_part *part)
{
    ls_params_release(&part->params);
    free(part->units);
    free(part->scatter);
    free(part->unit_of);
    free(part->region_of);
    memset(part, 0, sizeof *part);
}
