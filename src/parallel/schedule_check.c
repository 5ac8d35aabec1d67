/* What can be seen of a table without carrying it out: every action there once, on its rank, in
 * order. Builds the index that finds an action's place. */
#include "parallel/schedule_private.h"

#include <stdlib.h>
#include <string.h>

/* "rank 2", with line and cell where the table was read. */
struct place_text {
    char text[96];
};

static struct place_text place_of(const struct ls_schedule *schedule, int rank, int64_t index)
{
    struct place_text out;
    snprintf(out.text, sizeof out.text, "rank %d", rank);
    if (schedule->line && index < 0)
        ls_string_add(out.text, sizeof out.text, ", ", "line %d", schedule->line[rank]);
    else if (schedule->line && schedule->cell)
        ls_string_add(out.text, sizeof out.text, ", ", "line %d, cell %d", schedule->line[rank],
                      schedule->cell[schedule->first[rank] + index]);
    else if (index >= 0)
        ls_string_add(out.text, sizeof out.text, ", ", "action %lld", (long long)index + 1);
    return out;
}

static bool has_part(struct ls_action action, int part)
{
    switch (action.kind) {
    case LS_ACTION_F:
        return part == PARALLEL_FORWARD;
    case LS_ACTION_I:
        return part == PARALLEL_INPUT;
    case LS_ACTION_W:
        return part == PARALLEL_WEIGHT;
    default:
        return part != PARALLEL_FORWARD;
    }
}

static int check_range(const struct ls_schedule *schedule, int rank, int64_t i,
                       struct ls_action action, struct ls_error *error)
{
    if (action.kind < LS_ACTION_F || action.kind > LS_ACTION_B || action.stage < 0 ||
        action.stage >= schedule->stages || action.micro_batch < 0 ||
        action.micro_batch >= schedule->micro_batches)
        return ls_error_set(error, LS_ELAYOUT,
                            "schedule: %s (%s) is outside of %d stages and %lld micro-batches",
                            ls_action_text(action).text, place_of(schedule, rank, i).text,
                            schedule->stages, (long long)schedule->micro_batches);
    if (schedule->stage_rank[action.stage] != rank)
        return ls_error_set(error, LS_ELAYOUT,
                            "schedule: %s is on %s, but stage %d belongs to rank %d: move the "
                            "action there",
                            ls_action_text(action).text, place_of(schedule, rank, i).text,
                            action.stage, schedule->stage_rank[action.stage]);
    return LS_OK;
}

static int repeated(const struct ls_schedule *schedule, int rank, int64_t i, int64_t earlier,
                    struct ls_action action, struct ls_error *error)
{
    struct ls_action before = schedule->actions[schedule->first[rank] + earlier];
    return ls_error_set(error, LS_ELAYOUT,
                        "schedule: %s (%s) repeats %s (%s): a stage and micro-batch has one F and "
                        "either one B or one I and one W",
                        ls_action_text(action).text, place_of(schedule, rank, i).text,
                        ls_action_text(before).text, place_of(schedule, rank, earlier).text);
}

static int missing(const struct ls_schedule *schedule, int part, int stage, int64_t micro_batch,
                   struct ls_error *error)
{
    char backward[48] = "";
    if (part == PARALLEL_INPUT)
        snprintf(backward, sizeof backward, " (or %dB%lld)", stage, (long long)micro_batch);
    return ls_error_set(error, LS_ELAYOUT, "schedule: %d%c%lld%s is missing on %s", stage,
                        "FIW"[part], (long long)micro_batch, backward,
                        place_of(schedule, schedule->stage_rank[stage], -1).text);
}

/* action (at i) wants a part of its stage to stand before it: says where that is. */
static int not_before(const struct ls_schedule *schedule, int rank, int64_t i, int part,
                      int64_t micro_batch, const char *why, struct ls_error *error)
{
    int64_t total;
    const struct ls_action *actions = ls_schedule_actions(schedule, rank, &total);
    for (int64_t k = i; k < total; k++) {
        if (actions[k].stage != actions[i].stage || actions[k].micro_batch != micro_batch ||
            !has_part(actions[k], part))
            continue;
        return ls_error_set(error, LS_ELAYOUT, "schedule: %s (%s) comes before %s (%s): %s",
                            ls_action_text(actions[i]).text, place_of(schedule, rank, i).text,
                            ls_action_text(actions[k]).text, place_of(schedule, rank, k).text, why);
    }
    return missing(schedule, part, actions[i].stage, micro_batch, error);
}

/* A part of micro-batch m comes after that of m - 1, and the parts of m after each other. */
static int check_order(const struct parallel_index *index, const struct ls_schedule *schedule,
                       int rank, int64_t i, struct ls_action action, int part,
                       struct ls_error *error)
{
    int64_t at = action.stage * schedule->micro_batches + action.micro_batch;
    if (action.micro_batch > 0 && index->position[part][at - 1] < 0)
        return not_before(schedule, rank, i, part, action.micro_batch - 1,
                          "the micro-batches of a stage go in ascending order, which is the order "
                          "of its sum of gradients",
                          error);
    int earlier = action.kind == LS_ACTION_W ? PARALLEL_INPUT : PARALLEL_FORWARD;
    if (part != PARALLEL_FORWARD && index->position[earlier][at] < 0)
        return not_before(schedule, rank, i, earlier, action.micro_batch,
                          "a micro-batch goes forward, then I, then W (or B)", error);
    return LS_OK;
}

static int check_rank(struct parallel_index *index, const struct ls_schedule *schedule, int rank,
                      struct ls_error *error)
{
    int64_t count;
    const struct ls_action *actions = ls_schedule_actions(schedule, rank, &count);
    for (int64_t i = 0; i < count; i++) {
        int status = check_range(schedule, rank, i, actions[i], error);
        if (status)
            return status;
        int64_t at = actions[i].stage * schedule->micro_batches + actions[i].micro_batch;
        for (int part = 0; part < PARALLEL_PARTS; part++) {
            if (!has_part(actions[i], part))
                continue;
            if (index->position[part][at] >= 0)
                return repeated(schedule, rank, i, index->position[part][at], actions[i], error);
            status = check_order(index, schedule, rank, i, actions[i], part, error);
            if (status)
                return status;
        }
        for (int part = 0; part < PARALLEL_PARTS; part++)
            if (has_part(actions[i], part))
                index->position[part][at] = (int32_t)i;
    }
    return LS_OK;
}

static int check_complete(const struct parallel_index *index, const struct ls_schedule *schedule,
                          struct ls_error *error)
{
    int64_t m = schedule->micro_batches;
    for (int64_t at = 0; at < schedule->stages * m; at++)
        for (int part = 0; part < PARALLEL_PARTS; part++)
            if (index->position[part][at] < 0)
                return missing(schedule, part, (int)(at / m), at % m, error);
    return LS_OK;
}

int parallel_index_init(struct parallel_index *index, const struct ls_schedule *schedule,
                        struct ls_error *error)
{
    *index = (struct parallel_index){0};
    int64_t actions = schedule->first[schedule->ranks];
    int64_t cells = schedule->stages * schedule->micro_batches;
    /* Keeps a table that names one huge number from asking for as much memory. */
    if (actions < 2 * cells)
        return ls_error_set(error, LS_ELAYOUT,
                            "schedule: %lld actions are too few: %d stages with %lld micro-batches "
                            "have at least an F and a B each, %lld in all",
                            (long long)actions, schedule->stages,
                            (long long)schedule->micro_batches, 2 * (long long)cells);
    for (int part = 0; part < PARALLEL_PARTS; part++) {
        index->position[part] = malloc((size_t)cells * sizeof *index->position[part]);
        if (!index->position[part]) {
            parallel_index_release(index);
            return ls_no_memory(error, "to check %lld actions", (long long)actions);
        }
        memset(index->position[part], 0xff, (size_t)cells * sizeof *index->position[part]);
    }
    int status = LS_OK;
    for (int rank = 0; rank < schedule->ranks && status == LS_OK; rank++)
        status = check_rank(index, schedule, rank, error);
    if (status == LS_OK)
        status = check_complete(index, schedule, error);
    if (status)
        parallel_index_release(index);
    return status;
}

void parallel_index_release(struct parallel_index *index)
{
    for (int part = 0; part < PARALLEL_PARTS; part++)
        free(index->position[part]);
    *index = (struct parallel_index){0};
}
