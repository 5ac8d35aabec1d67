/* Where recorded operations meet. Private to plan. */
#ifndef PLAN_MEETING_PLACES_H
#define PLAN_MEETING_PLACES_H

#include <lockstep/plan/moves.h>

/* A group of ranks, by its first one (to is -1); or the way of messages of one tag from one to
 * another. Ranks are those that stand for all that are alike. */
struct meeting_place {
    int64_t group, tag, from, to;
};

/* Where rank, which stands for others, does that. */
struct meeting_place meeting_place_of(const struct ls_layout *layout,
                                      const struct ls_move_proof *alike, int64_t rank,
                                      const struct ls_recorded *did);

/* Places by number, each once; all zeros is none. */
struct meeting_places {
    struct meeting_place *list; /* [count] */
    int64_t count, room;
    int32_t *table; /* open: number + 1 */
    int64_t table_room;
};
/* The place's number: that of a new one is count before; -1 where there is no memory. */
int32_t meeting_places_add(struct meeting_places *places, const struct meeting_place *place);
/* -1: it was not added. */
int32_t meeting_places_find(const struct meeting_places *places, const struct meeting_place *place);
void meeting_places_release(struct meeting_places *places);

#endif
