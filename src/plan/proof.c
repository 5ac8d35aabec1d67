/* Proves that a layout does not deadlock: its ranks' lists are carried out without a clock. */
#include "plan/lists.h"

#include <lockstep/plan/moves.h>

#include <stdlib.h>

struct ls_move_proof {
    struct lists lists;
};

int ls_move_proof_new(const struct ls_layout *layout, bool alike, struct ls_move_proof **out,
                      struct ls_error *error)
{
    struct ls_move_proof *proof = *out = calloc(1, sizeof *proof);
    if (!proof)
        return ls_no_memory(error, "for the proof of a layout");
    int status = lists_init(&proof->lists, layout, alike, false, error);
    if (status) {
        ls_move_proof_free(proof);
        *out = NULL;
    }
    return status;
}

void ls_move_proof_free(struct ls_move_proof *proof)
{
    if (proof)
        lists_release(&proof->lists);
    free(proof);
}

int64_t ls_move_proof_alike(const struct ls_move_proof *proof, int64_t rank)
{
    return lists_alike(&proof->lists, rank);
}

int ls_move_proof_add(struct ls_move_proof *proof, int64_t rank,
                      const struct ls_recording *recording, struct ls_error *error)
{
    return lists_add(&proof->lists, rank, recording, -1, NULL, error);
}

/* Goes on with a rank as far as it can. */
static int list_run(struct lists *lists, int who, struct ls_error *error)
{
    struct list *list = &lists->list[who];
    for (int status = LS_OK; list->next < list->event_count; list->next++) {
        const enum event_kind kind = (enum event_kind)list->events[list->next].kind;
        if (kind == EVENT_END)
            continue;
        const struct turn turn = lists_turn(lists, who);
        bool over;
        if (kind == EVENT_START)
            status = lists_start(lists, who, &turn, &over, error);
        else if (!ls_executor_wait(&lists->executor, who, turn.meeting, 0))
            return LS_OK;
        if (status)
            return status;
    }
    return LS_OK;
}

static void count_up(const struct lists *lists, struct ls_layout_proof *out)
{
    const struct ls_layout *layout = lists->layout;
    *out = (struct ls_layout_proof){.ranks = layout->ranks, .recorded = lists->count};
    for (int g = 0; g < LS_GROUPS; g++) {
        int64_t size = ls_group_size(layout, (enum ls_layout_group)g);
        out->groups += size > 1 ? layout->ranks / size : 0;
    }
    for (const struct list *list = lists->list; list < lists->list + lists->count; list++)
        for (int32_t e = 0; e < list->event_count; e++) {
            if (list->events[e].kind != EVENT_START)
                continue;
            const struct deed *deed = &lists->deeds[list->acts[list->events[e].number].deed];
            bool message = deed->did.operation.kind == LS_COMM_SEND;
            bool folded = lists->folds && deed->did.group == LS_GROUP_MATRICES;
            out->messages += message && !deed->did.operation.receive ? list->alike : 0;
            out->collectives += message || folded ? 0 : list->alike;
        }
}

int ls_move_proof_finish(struct ls_move_proof *proof, struct ls_layout_proof *out,
                         struct ls_error *error)
{
    struct lists *lists = &proof->lists;
    int status = lists_begin(lists, error);
    for (int who; !status && (who = ls_executor_next(&lists->executor)) >= 0;)
        status = list_run(lists, who, error);
    if (!status)
        status = lists_finish(lists, error);
    if (!status)
        count_up(lists, out);
    return status;
}
