/* Where recorded operations meet: the same place for all who take part, and its number. */
#include "plan/meeting_places.h"

#include <stdlib.h>
#include <string.h>

enum { TABLE_MIN = 64 };

struct meeting_place meeting_place_of(const struct ls_layout *layout,
                                      const struct ls_move_proof *alike, int64_t rank,
                                      const struct ls_recorded *did)
{
    enum ls_layout_group group = (enum ls_layout_group)did->group;
    bool message = did->kind == LS_COMM_SEND;
    int64_t mine = ls_move_proof_alike(alike, rank);
    int64_t other =
        ls_move_proof_alike(alike, ls_group_member(layout, group, rank, message ? did->peer : 0));
    if (!message)
        return (struct meeting_place){group, 0, other, -1};
    return (struct meeting_place){group, did->tag, did->receive ? other : mine,
                                  did->receive ? mine : other};
}

static int32_t *table_at(const struct meeting_places *places, const struct meeting_place *place)
{
    for (uint64_t at = ls_hash64(place, sizeof *place, 0);; at++) {
        int32_t *entry = &places->table[at & (uint64_t)(places->table_room - 1)];
        if (*entry == 0 || memcmp(&places->list[*entry - 1], place, sizeof *place) == 0)
            return entry;
    }
}

/* At least half of the table is free. */
static bool table_grow(struct meeting_places *places)
{
    if (2 * places->count < places->table_room)
        return true;
    int64_t room = ls_max(2 * places->table_room, TABLE_MIN);
    int32_t *table = calloc((size_t)room, sizeof *table);
    if (!table)
        return false;
    free(places->table);
    places->table = table;
    places->table_room = room;
    for (int64_t i = 0; i < places->count; i++)
        *table_at(places, &places->list[i]) = (int32_t)i + 1;
    return true;
}

int32_t meeting_places_add(struct meeting_places *places, const struct meeting_place *place)
{
    if (!table_grow(places))
        return -1;
    int32_t *entry = table_at(places, place);
    if (*entry)
        return *entry - 1;
    if (!ls_list_grow(&places->list, places->count, &places->room, sizeof *places->list))
        return -1;
    places->list[places->count++] = *place;
    *entry = (int32_t)places->count;
    return *entry - 1;
}

int32_t meeting_places_find(const struct meeting_places *places, const struct meeting_place *place)
{
    return places->table_room ? *table_at(places, place) - 1 : -1;
}

void meeting_places_release(struct meeting_places *places)
{
    free(places->list);
    free(places->table);
    *places = (struct meeting_places){0};
}
