/* A pipeline schedule as an object: its names, its maps, its memory. */
#include "parallel/schedule_private.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[LS_SCHEDULE_KINDS] = {
    [LS_SCHEDULE_GPIPE] = "gpipe",
    [LS_SCHEDULE_1F1B] = "1f1b",
    [LS_SCHEDULE_INTERLEAVED] = "interleaved",
    [LS_SCHEDULE_ZB_H1] = "zb-h1",
    [LS_SCHEDULE_ZBV] = "zbv",
    [LS_SCHEDULE_DUALPIPEV] = "dualpipev",
};

enum ls_stage_placement ls_schedule_placement(enum ls_schedule_kind kind)
{
    bool is_v = kind == LS_SCHEDULE_ZBV || kind == LS_SCHEDULE_DUALPIPEV;
    return is_v ? LS_PLACEMENT_V : LS_PLACEMENT_LOOP;
}

int ls_schedule_chunks(enum ls_schedule_kind kind)
{
    if (kind == LS_SCHEDULE_INTERLEAVED)
        return 0;
    return ls_schedule_placement(kind) == LS_PLACEMENT_V ? 2 : 1;
}

int ls_stage_rank(enum ls_stage_placement placement, int ranks, int stage)
{
    bool mirrored = placement == LS_PLACEMENT_V && stage >= ranks;
    return mirrored ? 2 * ranks - 1 - stage : stage % ranks;
}

const char *ls_schedule_name(enum ls_schedule_kind kind)
{
    LS_ASSERT((int)kind >= 0 && kind < LS_SCHEDULE_KINDS);
    return names[kind];
}

struct ls_action_text ls_action_text(struct ls_action action)
{
    struct ls_action_text out;
    snprintf(out.text, sizeof out.text, "%d%c%d", action.stage, "FIWB"[action.kind & 3],
             action.micro_batch);
    return out;
}

/* ---- making --------------------------------------------------------------------------------- */

int parallel_schedule_init(struct ls_schedule *schedule, int ranks, int chunks,
                           int64_t micro_batches, enum ls_stage_placement placement,
                           struct ls_error *error)
{
    *schedule = (struct ls_schedule){.ranks = ranks,
                                     .chunks = chunks,
                                     .stages = ranks * chunks,
                                     .micro_batches = micro_batches,
                                     .placement = placement};
    size_t stages = (size_t)schedule->stages;
    schedule->first = calloc((size_t)ranks + 1, sizeof *schedule->first);
    schedule->stage_rank = calloc(stages, sizeof *schedule->stage_rank);
    schedule->stage_chunk = calloc(stages, sizeof *schedule->stage_chunk);
    schedule->rank_stage = calloc(stages, sizeof *schedule->rank_stage);
    if (!schedule->first || !schedule->stage_rank || !schedule->stage_chunk ||
        !schedule->rank_stage) {
        ls_schedule_release(schedule);
        return ls_no_memory(error, "for a schedule of %d stages", ranks * chunks);
    }
    if (placement == LS_PLACEMENT_FILE)
        return LS_OK;
    for (int s = 0; s < schedule->stages; s++)
        schedule->stage_rank[s] = ls_stage_rank(placement, ranks, s);
    LS_ASSERT(parallel_schedule_map(schedule));
    return LS_OK;
}

bool parallel_schedule_map(struct ls_schedule *schedule)
{
    int v = schedule->chunks;
    for (int i = 0; i < schedule->stages; i++)
        schedule->rank_stage[i] = -1;
    for (int s = 0; s < schedule->stages; s++) {
        int32_t *held = schedule->rank_stage + (int64_t)schedule->stage_rank[s] * v;
        int chunk = 0;
        while (chunk < v && held[chunk] >= 0)
            chunk++;
        if (chunk == v)
            return false;
        held[chunk] = s;
        schedule->stage_chunk[s] = chunk;
    }
    return true;
}

static bool grow(struct parallel_builder *builder)
{
    struct ls_schedule *schedule = builder->schedule;
    int64_t count = builder->capacity, cells = count;
    return (!builder->with_cells ||
            ls_list_grow(&schedule->cell, count, &cells, sizeof *schedule->cell)) &&
           ls_list_grow(&schedule->actions, count, &builder->capacity, sizeof *schedule->actions);
}

void parallel_builder_add(struct parallel_builder *builder, enum ls_action_kind kind, int stage,
                          int64_t micro_batch, int32_t cell)
{
    struct ls_schedule *schedule = builder->schedule;
    int64_t *end = &schedule->first[schedule->ranks];
    if (*end == builder->capacity && !builder->failed)
        builder->failed = !grow(builder);
    if (builder->failed)
        return;
    schedule->actions[*end] = (struct ls_action){stage, (int32_t)micro_batch, (int32_t)kind};
    if (builder->with_cells)
        schedule->cell[*end] = cell;
    ++*end;
}

void ls_schedule_release(struct ls_schedule *schedule)
{
    free(schedule->first);
    free(schedule->actions);
    free(schedule->stage_rank);
    free(schedule->stage_chunk);
    free(schedule->rank_stage);
    free(schedule->cell);
    free(schedule->line);
    *schedule = (struct ls_schedule){0};
}

/* ---- memory --------------------------------------------------------------------------------- */

/* First and last position of a micro-batch's life. The list is walked once for all of them. */
struct life {
    int32_t begin, end;
};

/* A receive is posted one action ahead; a hand-over within the rank comes with the action that
 * makes it. */
static void lives_mark(const struct ls_schedule *schedule, int rank, int stage,
                       enum ls_slot_kind kind, struct life *life)
{
    int64_t count;
    const struct ls_action *actions = ls_schedule_actions(schedule, rank, &count);
    int from = kind == LS_SLOT_INPUT ? stage - 1 : kind == LS_SLOT_GRADIENT ? stage + 1 : -1;
    bool handed_over = from >= 0 && from < schedule->stages && schedule->stage_rank[from] == rank;
    for (int32_t i = 0; i < count; i++) {
        struct ls_action action = actions[i];
        bool forward = action.kind == LS_ACTION_F, weight = action.kind == LS_ACTION_W;
        bool begins =
            kind == LS_SLOT_SAVED || kind == LS_SLOT_INPUT ? forward : !forward && !weight;
        if (begins && handed_over && action.stage == from)
            life[action.micro_batch].begin = i;
        if (action.stage != stage)
            continue;
        if (begins && !handed_over)
            life[action.micro_batch].begin = kind == LS_SLOT_SAVED || kind == LS_SLOT_WEIGHT ? i
                                             : i > 0                                         ? i - 1
                                                                                             : 0;
        if (weight || action.kind == LS_ACTION_B)
            life[action.micro_batch].end = i;
    }
}

/* The first slot that is free at the begin of a life, which takes it. until[leaves + slot] is the
 * end of the slot's last user, and until[n] the least of those below n: 2n and 2n + 1. */
static int32_t slot_take(int32_t *until, int64_t leaves, struct life life)
{
    int64_t at = 1;
    while (at < leaves)
        at = 2 * at + (until[2 * at] >= life.begin);
    int32_t slot = (int32_t)(at - leaves);
    for (until[at] = life.end; at > 1; at /= 2)
        until[at / 2] = ls_min(until[at], until[at ^ 1]);
    return slot;
}

/* until: 2 * leaves, all -1, of at least as many leaves as micro-batches. */
static int slots_assign(const struct life *life, int64_t micro_batches, int32_t *until,
                        int64_t leaves, int32_t *slot)
{
    int slots = 0;
    for (int64_t m = 0; m < micro_batches; m++) {
        slot[m] = slot_take(until, leaves, life[m]);
        slots = ls_max(slots, slot[m] + 1);
    }
    return slots;
}

int ls_schedule_slots(const struct ls_schedule *schedule, int rank, int chunk,
                      enum ls_slot_kind kind, int32_t *slot)
{
    int stage = ls_schedule_stage(schedule, rank, chunk);
    int64_t m = schedule->micro_batches, leaves = 1;
    if ((kind == LS_SLOT_INPUT && stage == 0) ||
        (kind == LS_SLOT_GRADIENT && stage == schedule->stages - 1)) {
        memset(slot, 0, (size_t)m * sizeof *slot);
        return 0;
    }
    struct life *life = malloc((size_t)m * sizeof *life);
    while (leaves < m)
        leaves *= 2;
    size_t bytes = 2 * (size_t)leaves * sizeof(int32_t);
    int32_t *until = malloc(bytes);
    int slots = LS_ENOMEM;
    if (life && until) {
        lives_mark(schedule, rank, stage, kind, life);
        memset(until, 0xff, bytes);
        slots = slots_assign(life, m, until, leaves, slot);
    }
    free(until);
    free(life);
    return slots;
}
