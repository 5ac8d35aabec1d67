/* What a rank keeps, by formulas. */
#include "part.h"

#include <lockstep/plan/moves.h>

#include <stdlib.h>

/* Elements that a rank keeps: matrices and vectors, of whole tensors or of its parts. */
static void elements_of(const struct ls_layout *layout, const struct plan_part *part, bool cut,
                        int64_t elements[2])
{
    elements[0] = elements[1] = 0;
    for (int i = 0; i < part->params.count; i++) {
        const struct ls_param *param = &part->params.list[i];
        int64_t whole = param->rows * param->cols;
        elements[!param->matrix] += cut ? plan_shard_elements(layout, param) : whole;
    }
}

static int64_t parameters(const struct ls_layout *layout, const struct plan_part *part,
                          const int64_t mine[2], const int64_t whole[2])
{
    bool bf16 = layout->numerics.act == LS_BF16;
    int64_t act = bf16 ? 2 : 4, masters = 4 * (mine[0] + mine[1]);
    if (!part->cut)
        return masters + (bf16 ? 2 * mine[0] : 0);
    int64_t copies = act * whole[0] + 4 * whole[1];
    if (layout->zero < 3)
        return masters + copies;
    int64_t kept = layout->shard_ranks * (act * part->kept[0] + 4 * part->kept[1]);
    return masters + (bf16 ? 2 * mine[0] : 0) + (layout->reshard_after_forward ? kept : copies);
}

/* Elements of the gradient's regions: whole, or a rank's parts. */
static int64_t gradient_elements(const struct plan_part *part, bool cut)
{
    int64_t elements = 0;
    for (int i = 0; i < part->params.region_count; i++)
        elements += cut ? part->scatter[i] : part->params.regions[i].elements;
    return elements;
}

static int64_t gradients(const struct ls_layout *layout, const struct plan_part *part)
{
    int64_t buffers = layout->numerics.fast ? 1 : ls_accumulation_buffers(layout->micro_batches);
    int64_t whole = gradient_elements(part, false), mine = gradient_elements(part, part->cut);
    if (part->cut && !part->each)
        return 4 * (whole * buffers + mine + part->shared);
    return 4 * (mine * buffers + part->shared);
}

/* Of one block and one micro-batch. */
static int64_t block_bytes(const struct ls_layout *layout)
{
    const struct ls_model_config *m = &layout->model;
    int64_t tp = layout->size[LS_AXIS_TP], act = (int64_t)ls_dtype_bytes(layout->numerics.act);
    int64_t rows = layout->micro_sequences * layout->sequence / layout->size[LS_AXIS_CP];
    int64_t stream = layout->sp ? ls_ceil_div(rows, tp) : rows;
    int64_t heads = m->heads / tp, q = heads * m->head_dim;
    int64_t kv = ls_max(m->kv_heads / tp, 1) * m->head_dim, ffn = m->ffn / tp;
    int64_t up = m->act == LS_ACT_SWIGLU ? 2 : 1;
    int64_t values = 4 * stream * m->channels + rows * (2 * q + 2 * kv + up * ffn + ffn);
    return act * values + 4 * (4 * stream + rows * heads);
}

int ls_layout_memory(const struct ls_layout *layout, int64_t rank, int states,
                     struct ls_layout_memory *memory, struct ls_error *error)
{
    int64_t at[LS_AXES], mine[2], whole[2];
    struct plan_part part;
    struct ls_schedule table;
    *memory = (struct ls_layout_memory){0};
    ls_layout_coordinates(layout, rank, at);
    int32_t *slots = calloc((size_t)layout->micro_batches, sizeof *slots);
    if (!slots)
        return ls_error_set(error, LS_ENOMEM, "no memory for %ld micro-batches",
                            (long)layout->micro_batches);
    int status = plan_part_init(layout, at[LS_AXIS_PP], at[LS_AXIS_TP], &part, error);
    if (status)
        goto out;
    elements_of(layout, &part, part.cut, mine);
    elements_of(layout, &part, false, whole);
    memory->parameters = parameters(layout, &part, mine, whole);
    memory->gradients = gradients(layout, &part);
    memory->optimizer = 4 * states * (mine[0] + mine[1]);
    plan_part_release(&part);
    status = ls_layout_table(layout, layout->micro_batches, &table, error);
    for (int chunk = 0; chunk < layout->chunks && !status; chunk++) {
        int stage = layout->rank_stage[at[LS_AXIS_PP] * layout->chunks + chunk];
        int64_t last = ls_min(layout->stage_first[stage + 1], layout->model.layers + 1);
        int64_t blocks = last - ls_max(layout->stage_first[stage], 1);
        int live = ls_schedule_slots(&table, (int)at[LS_AXIS_PP], chunk, LS_SLOT_SAVED, slots);
        memory->live += live;
        memory->activations += live * blocks * block_bytes(layout);
    }
    if (!status)
        ls_schedule_release(&table);
out:
    free(slots);
    return status;
}
