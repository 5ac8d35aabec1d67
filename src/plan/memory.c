/* What a rank keeps, by formulas. */
#include "memory.h"
#include "part.h"

#include <lockstep/parallel/pipeline.h>

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

/* Whether boundary tensors go to another rank in the backward. */
static bool sends_gradients(const struct ls_layout *layout, int64_t pp)
{
    for (int64_t s = 1; s < layout->stages; s++)
        if (layout->stage_rank[s] == pp && layout->stage_rank[s - 1] != pp)
            return true;
    return false;
}

static int rank_init(const struct ls_layout *layout, int64_t pp, struct plan_rank *rank,
                     struct ls_error *error)
{
    struct ls_schedule table;
    int64_t count;
    int32_t *slot = calloc((size_t)layout->micro_batches, sizeof *slot);
    if (!slot)
        return ls_error_set(error, LS_ENOMEM, "no memory for %ld micro-batches",
                            (long)layout->micro_batches);
    *rank = (struct plan_rank){0};
    ls_layout_layers(layout, pp, rank->held, NULL);
    int status = ls_layout_table(layout, layout->micro_batches, &table, error);
    for (int chunk = 0; chunk < layout->chunks && !status; chunk++) {
        int slots = ls_schedule_slots(&table, (int)pp, chunk, LS_SLOT_SAVED, slot);
        rank->slots = ls_max(rank->slots, slots);
        rank->live += slots;
        rank->boundaries += ls_schedule_slots(&table, (int)pp, chunk, LS_SLOT_INPUT, slot);
        rank->boundaries += ls_schedule_slots(&table, (int)pp, chunk, LS_SLOT_GRADIENT, slot);
    }
    free(slot);
    if (status)
        return status;
    const struct ls_action *actions = ls_schedule_actions(&table, (int)pp, &count);
    for (int64_t i = 0; i < count; i++)
        rank->split |= actions[i].kind == LS_ACTION_W;
    if (sends_gradients(layout, pp))
        rank->boundaries += ls_pipeline_gradient_sends(&table);
    ls_schedule_release(&table);
    return LS_OK;
}

int ls_layout_memory(const struct ls_layout *layout, int64_t rank, int states,
                     struct ls_layout_memory *memory, struct ls_error *error)
{
    int64_t at[LS_AXES], mine[2], whole[2];
    struct plan_part part;
    struct plan_rank held;
    *memory = (struct ls_layout_memory){0};
    ls_layout_coordinates(layout, rank, at);
    int status = rank_init(layout, at[LS_AXIS_PP], &held, error);
    if (!status)
        status = plan_part_init(layout, at[LS_AXIS_PP], at[LS_AXIS_TP], &part, error);
    if (status)
        return status;
    elements_of(layout, &part, part.cut, mine);
    elements_of(layout, &part, false, whole);
    *memory = (struct ls_layout_memory){
        .parameters = parameters(layout, &part, mine, whole),
        .gradients = gradients(layout, &part),
        .optimizer = 4 * states * (mine[0] + mine[1]),
        .activations = plan_kept_bytes(layout, &held),
        .work = plan_work_bytes(layout, &held),
        .live = held.live,
    };
    plan_part_release(&part);
    return LS_OK;
}
