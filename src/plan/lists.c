/* The lists of ranks, carried out on paper by the rules of comm.h, to find deadlocks: an operation
 * starts when its turn comes, ends when all its ranks have started theirs, and holds its rank up
 * where the list waits for it. */
#include "plan/lists.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char meeting[] = "the matrices' meeting";
enum { ROOM_MIN = 256, NUMBERS_MAX = 1 << EVENT_NUMBER_BITS };

static int no_memory(struct ls_error *error)
{
    return ls_no_memory(error, "for what the ranks of a layout do");
}

static int too_long(int64_t rank, const struct ls_recording *recording, struct ls_error *error)
{
    return ls_error_set(error, LS_ENOTSUP,
                        "rank %ld makes %ld operations and %ld transfers: expected fewer than %d, "
                        "with what it computes fewer than %d; give a step fewer micro-batches, by "
                        "a larger batch.micro or a smaller batch.global",
                        (long)rank, (long)recording->count, (long)recording->transfers_count,
                        NUMBERS_MAX, INT32_MAX);
}

/* ---- ranks that are alike -------------------------------------------------------------------- */

/* Elements of a table that is tied across stages on a shard rank: all that depends on dp_shard. */
static int64_t tied_rows(const struct ls_layout *layout, int64_t shard_rank)
{
    int64_t rows = layout->model.vocab_padded / layout->size[LS_AXIS_TP];
    int64_t each = ls_ceil_div(rows, layout->sets[0].shard_ranks);
    return ls_min(each, rows - ls_min(shard_rank * each, rows));
}

static void shards_compare(const struct ls_layout *layout, int64_t *alike)
{
    int64_t cp = layout->size[LS_AXIS_CP];
    bool tied = layout->model.tied && layout->zero > 0 && layout->size[LS_AXIS_PP] > 1;
    for (int64_t s = 0; s < layout->size[LS_AXIS_DP_SHARD]; s++) {
        bool same = s > 0;
        for (int64_t c = 0; c < cp && same && tied; c++)
            same = tied_rows(layout, s * cp + c) == tied_rows(layout, (s - 1) * cp + c);
        alike[s] = same ? alike[s - 1] : s;
    }
}

int64_t lists_alike(const struct lists *lists, int64_t rank)
{
    int64_t at[LS_AXES];
    if (!lists->shard_alike)
        return rank;
    ls_layout_coordinates(lists->layout, rank, at);
    at[LS_AXIS_TP] = 0;
    if (lists->layout->numerics.fast || lists->layout->zero == 0)
        at[LS_AXIS_DP_REPLICATE] = 0; /* else the sum goes from one to the next */
    at[LS_AXIS_DP_SHARD] = lists->shard_alike[at[LS_AXIS_DP_SHARD]];
    return ls_layout_rank(lists->layout, at);
}

int lists_init(struct lists *lists, const struct ls_layout *layout, bool alike, bool timed,
               struct ls_error *error)
{
    *lists = (struct lists){
        .layout = layout, .timed = timed, .folds = alike && !timed && layout->matrices_meet};
    lists->of_rank = calloc((size_t)layout->ranks, sizeof *lists->of_rank);
    if (alike)
        lists->shard_alike =
            calloc((size_t)layout->size[LS_AXIS_DP_SHARD], sizeof *lists->shard_alike);
    if (!lists->of_rank || (alike && !lists->shard_alike))
        return no_memory(error);
    if (alike)
        shards_compare(layout, lists->shard_alike);
    return LS_OK;
}

void lists_release(struct lists *lists)
{
    for (int64_t i = 0; i < lists->count; i++) {
        free(lists->list[i].events);
        free(lists->list[i].acts);
    }
    free(lists->list);
    free(lists->shard_alike);
    free(lists->of_rank);
    free(lists->places);
    free(lists->places_table);
    free(lists->members);
    free(lists->firsts);
    free(lists->deeds);
    ls_executor_release(&lists->executor);
    *lists = (struct lists){0};
}

/* ---- places ---------------------------------------------------------------------------------- */

static bool is_message(const struct meeting_place *at)
{
    return at->to >= 0;
}

/* Where rank, which stands for others, does that. */
static struct meeting_place place_of(const struct lists *lists, int64_t rank,
                                     const struct ls_recorded *did)
{
    enum ls_layout_group group = (enum ls_layout_group)did->group;
    const struct ls_operation *moves = &did->operation;
    bool message = moves->kind == LS_COMM_SEND;
    if (lists->timed && group == LS_GROUP_MATRICES)
        return (struct meeting_place){group, rank + 1, rank, -1};
    int64_t member = ls_group_member(lists->layout, group, rank, message ? moves->peer : 0);
    int64_t mine = lists_alike(lists, rank), other = lists_alike(lists, member);
    if (!message)
        return (struct meeting_place){group, 0, other, -1};
    return (struct meeting_place){group, moves->tag, moves->receive ? other : mine,
                                  moves->receive ? mine : other};
}

static int32_t *place_entry(const struct lists *lists, const struct meeting_place *place)
{
    for (uint64_t at = ls_hash64(place, sizeof *place, 0);; at++) {
        int32_t *entry = &lists->places_table[at & (uint64_t)(lists->table_room - 1)];
        if (*entry == 0 || memcmp(&lists->places[*entry - 1].at, place, sizeof *place) == 0)
            return entry;
    }
}

/* At least half of the table is free. */
static bool places_grow(struct lists *lists)
{
    if (!ls_list_grow(&lists->places, lists->place_count, &lists->place_room,
                      sizeof *lists->places))
        return false;
    if (2 * lists->place_count < lists->table_room)
        return true;
    int64_t room = ls_max(2 * lists->table_room, ROOM_MIN);
    int32_t *table = calloc((size_t)room, sizeof *table);
    if (!table)
        return false;
    free(lists->places_table);
    lists->places_table = table;
    lists->table_room = room;
    for (int64_t i = 0; i < lists->place_count; i++)
        *place_entry(lists, &lists->places[i].at) = (int32_t)i + 1;
    return true;
}

/* The number of where the last list does that; -1 if there is no memory. */
static int32_t place_visit(struct lists *lists, const struct ls_recorded *did)
{
    struct meeting_place where = place_of(lists, lists->list[lists->count - 1].rank, did);
    if (!places_grow(lists))
        return -1;
    int32_t *entry = place_entry(lists, &where);
    if (*entry == 0) {
        lists->places[lists->place_count++] = (struct rendezvous){.at = where};
        *entry = (int32_t)lists->place_count;
    }
    struct rendezvous *place = &lists->places[*entry - 1];
    if (place->visitor != lists->count) {
        place->visitor = (int32_t)lists->count;
        place->visits[0] = place->visits[1] = 0;
    }
    return *entry - 1;
}

/* ---- a rank's list --------------------------------------------------------------------------- */

/* The deeds of the list that is added, by what they are: an open table of number + 1. */
struct deed_table {
    int32_t *entries;
    int64_t room, first; /* the list's first deed */
};

static bool deed_is(const struct deed *deed, const struct ls_recorded *did)
{
    const struct ls_operation *a = &deed->did.operation, *b = &did->operation;
    return deed->did.group == did->group && a->name == b->name && a->kind == b->kind &&
           a->dtype == b->dtype && a->count == b->count && a->peer == b->peer && a->tag == b->tag &&
           a->receive == b->receive && a->label == b->label;
}

static int32_t *deed_entry(const struct deed_table *table, const struct deed *deeds,
                           const struct ls_recorded *did)
{
    const struct ls_operation *moves = &did->operation;
    uint64_t h = (uint64_t)moves->count * 0x9e3779b97f4a7c15u;
    h = (h ^ (uint64_t)(uintptr_t)moves->label) * 0xbf58476d1ce4e5b9u;
    h = (h ^ (uint64_t)(did->group * 4096 + moves->peer * 16 + (int)moves->kind)) *
        0x94d049bb133111ebu;
    for (h >>= 32;; h++) {
        int32_t *entry = &table->entries[h & (uint64_t)(table->room - 1)];
        if (*entry == 0 || deed_is(&deeds[*entry - 1], did))
            return entry;
    }
}

/* Room for one more deed, and at least half of the table free. */
static bool deeds_grow(struct lists *lists, struct deed_table *table)
{
    if (!ls_list_grow(&lists->deeds, lists->deed_count, &lists->deed_room, sizeof *lists->deeds))
        return false;
    if (2 * (lists->deed_count - table->first) < table->room)
        return true;
    const int64_t room = ls_max(4 * table->room, ROOM_MIN);
    struct deed_table grown = {calloc((size_t)room, sizeof *grown.entries), room, table->first};
    if (!grown.entries)
        return false;
    for (int32_t i = (int32_t)table->first; i < lists->deed_count; i++)
        *deed_entry(&grown, lists->deeds, &lists->deeds[i].did) = i + 1;
    free(table->entries);
    *table = grown;
    return true;
}

/* The deed of the last list that an operation is; -1 if there is no memory. */
static int32_t deed_find(struct lists *lists, struct deed_table *table,
                         const struct ls_recorded *did)
{
    const int32_t *known = table->room ? deed_entry(table, lists->deeds, did) : NULL;
    if (known && *known)
        return *known - 1;
    if (!deeds_grow(lists, table))
        return -1;
    struct deed *deed = &lists->deeds[lists->deed_count];
    *deed = (struct deed){
        .did = *did, .place = place_visit(lists, did), .list = (int32_t)lists->count - 1};
    if (deed->place < 0)
        return -1;
    if (did->operation.label)
        memcpy(deed->label, did->operation.label,
               strnlen(did->operation.label, sizeof deed->label - 1));
    *deed_entry(table, lists->deeds, did) = (int32_t)++lists->deed_count;
    return (int32_t)lists->deed_count - 1;
}

/* Where matrices meet, alike ranks do different things. Each run of these operations is one then,
 * in which all ranks of the group meet at once. */
static bool is_folded(const struct lists *lists, const struct ls_recorded *did)
{
    return lists->folds && did->group == LS_GROUP_MATRICES;
}

/* The last list's operations. All of a run that is folded are the same one. */
static bool acts_make(struct lists *lists, const struct ls_recording *recording)
{
    struct list *list = &lists->list[lists->count - 1];
    struct deed_table table = {.first = lists->deed_count};
    int64_t i = 0;
    for (bool folded = false; i < recording->count; i++) {
        const struct ls_recorded *did = &recording->list[i];
        struct ls_recorded other;
        bool before = folded;
        folded = is_folded(lists, did);
        if (folded && before) {
            list->acts[i] = list->acts[i - 1];
            continue;
        }
        if (folded || (lists->timed && did->operation.label)) {
            other = *did;
            other.operation.label = NULL;
            if (folded)
                other = (struct ls_recorded){.group = did->group,
                                             .operation = {.name = meeting,
                                                           .kind = LS_COMM_OTHER,
                                                           .peer = -1,
                                                           .site = did->operation.site}};
            did = &other;
        }
        int32_t deed = deed_find(lists, &table, did);
        if (deed < 0)
            break;
        struct rendezvous *place = &lists->places[lists->deeds[deed].place];
        list->acts[i] =
            (struct act){deed, place->visits[is_message(&place->at) && did->operation.receive]++};
        place->meetings = (int32_t)ls_max(place->meetings, list->acts[i].nth + 1);
    }
    free(table.entries);
    return i == recording->count;
}

static struct event event_of(enum event_kind kind, int64_t number)
{
    return (struct event){.kind = kind, .number = (uint32_t)number};
}

/* What happens at each tick of the recording's clock: EVENT_END stands for anything else. */
static struct event *timeline_of(const struct lists *lists, const struct ls_recording *recording)
{
    struct event *at = calloc((size_t)recording->clock + 1, sizeof *at);
    for (int64_t i = 0; i < recording->count && at; i++) {
        at[recording->list[i].started_at] = event_of(EVENT_START, i);
        if (recording->list[i].waited_at >= 0)
            at[recording->list[i].waited_at] = event_of(EVENT_WAIT, i);
    }
    for (int64_t i = 0; i < recording->transfers_count && lists->timed && at; i++) {
        at[recording->transfers[i].started_at] = event_of(EVENT_TRANSFER, i);
        if (recording->transfers[i].waited_at >= 0)
            at[recording->transfers[i].waited_at] = event_of(EVENT_TRANSFER_WAIT, i);
    }
    return at;
}

/* A run that is folded is started and waited for at its end, behind all that is waited for within
 * it. So a rank waits for no less than it does, and what comes to its end here does so there. */
static void events_make(struct lists *lists, const struct ls_recording *recording,
                        const struct event *timeline, int64_t second_at, int32_t *ticks)
{
    struct list *list = &lists->list[lists->count - 1];
    struct event *end = list->events;
    int64_t run = -1; /* an operation of the run that goes on */
    for (int64_t at = 0; at <= recording->clock; at++) {
        const struct event event = timeline[at];
        if (event.kind == EVENT_END && at != second_at && at < recording->clock)
            continue;
        bool starts = event.kind == EVENT_START, waits = event.kind == EVENT_WAIT;
        bool folded = (starts || waits) && is_folded(lists, &recording->list[event.number]);
        const struct event *before = end;
        if (at == second_at)
            *end++ = event_of(EVENT_STEP, 0);
        if (run >= 0 && ((starts && !folded) || at == recording->clock)) {
            *end++ = event_of(EVENT_START, run);
            *end++ = event_of(EVENT_WAIT, run);
            run = -1;
        }
        if (folded && starts)
            run = event.number;
        else if (!folded && (event.kind != EVENT_END || at == recording->clock))
            *end++ = event;
        for (; ticks && before < end; before++)
            ticks[before - list->events] = (int32_t)at;
    }
    for (int64_t i = 0; i < recording->count; i++)
        if (recording->list[i].waited_at < 0 && !is_folded(lists, &recording->list[i])) {
            if (ticks)
                ticks[end - list->events] = (int32_t)recording->clock;
            *end++ = event_of(EVENT_MEET, i);
        }
    list->event_count = (int32_t)(end - list->events);
}

int lists_add(struct lists *lists, int64_t rank, const struct ls_recording *recording,
              int64_t second_at, int32_t **ticks, struct ls_error *error)
{
    LS_ASSERT(rank >= 0 && rank < lists->layout->ranks);
    LS_ASSERT(lists_alike(lists, rank) == rank && !lists->of_rank[rank]);
    if (ls_max(recording->count, recording->transfers_count) >= NUMBERS_MAX ||
        recording->clock >= INT32_MAX)
        return too_long(rank, recording, error);
    if (!ls_list_grow(&lists->list, lists->count, &lists->room, sizeof *lists->list))
        return no_memory(error);
    struct list *list = &lists->list[lists->count++];
    size_t waited = (size_t)(recording->count + (lists->timed ? recording->transfers_count : 0));
    *list = (struct list){
        .rank = rank,
        .events = malloc((waited * 2 + 2) * sizeof *list->events),
        .acts = malloc(((size_t)recording->count + 1) * sizeof *list->acts),
    };
    lists->of_rank[rank] = (int)lists->count;
    if (ticks)
        *ticks = malloc((waited * 2 + 2) * sizeof **ticks);
    struct event *timeline = timeline_of(lists, recording);
    bool made =
        list->events && list->acts && timeline && (!ticks || *ticks) && acts_make(lists, recording);
    if (made)
        events_make(lists, recording, timeline, second_at, ticks ? *ticks : NULL);
    free(timeline);
    return made ? LS_OK : no_memory(error);
}

/* ---- who takes part -------------------------------------------------------------------------- */

/* Counts the members of places, or where they are counted writes them down. */
static void members_visit(struct lists *lists)
{
    for (int i = 0; i < (int)lists->count; i++)
        for (int g = 0; g < LS_GROUPS; g++) {
            const struct ls_recorded any = {.group = g};
            const struct meeting_place where = place_of(lists, lists->list[i].rank, &any);
            int32_t number = lists->place_count ? *place_entry(lists, &where) - 1 : -1;
            if (number < 0)
                continue;
            struct rendezvous *place = &lists->places[number];
            if (lists->members)
                lists->members[place->member + place->parties] = i;
            place->parties++;
        }
}

int lists_begin(struct lists *lists, struct ls_error *error)
{
    int64_t members = 0;
    for (int64_t rank = 0; rank < lists->layout->ranks; rank++) {
        int number = lists->of_rank[lists_alike(lists, rank)];
        if (!number)
            return ls_error_set(error, LS_EINVAL, "what rank %ld does was not added", (long)rank);
        lists->list[number - 1].alike++;
    }
    members_visit(lists);
    for (int64_t p = 0; p < lists->place_count; p++) {
        struct rendezvous *place = &lists->places[p];
        place->meeting = lists->meetings;
        place->member = (int32_t)members;
        lists->meetings += place->meetings;
        members += is_message(&place->at) ? 2 : place->parties;
        place->parties = 0;
    }
    lists->members = malloc(((size_t)members + 1) * sizeof *lists->members);
    lists->firsts = calloc((size_t)lists->meetings + 1, sizeof *lists->firsts);
    if (!lists->members || !lists->firsts)
        return no_memory(error);
    members_visit(lists);
    for (int64_t p = 0; p < lists->place_count; p++) {
        struct rendezvous *place = &lists->places[p];
        const int64_t ends[2] = {place->at.from, place->at.to};
        for (int end = 0; is_message(&place->at) && end < 2; end++)
            lists->members[place->member + place->parties++] = lists->of_rank[ends[end]] - 1;
    }
    return ls_executor_init(&lists->executor, (int)lists->count, lists->meetings, lists->timed,
                            error);
}

/* ---- carrying out ---------------------------------------------------------------------------- */

struct act_text {
    char text[200];
};
/* "operation 17 of tp, all_gather of 10 BF16 [wte] (tensor.c:69)" */
static struct act_text act_text(const struct deed *deed, int number)
{
    struct act_text out;
    const struct ls_operation *moves = &deed->did.operation;
    char peer[40] = "";
    if (moves->kind == LS_COMM_SEND)
        snprintf(peer, sizeof peer, " %s %d tag %d", moves->receive ? "from" : "to", moves->peer,
                 moves->tag);
    snprintf(out.text, sizeof out.text, "operation %d of %s, %s%s of %ld %s%s%s%s (%s:%d)",
             number + 1, ls_group_name((enum ls_layout_group)deed->did.group), moves->name, peer,
             (long)moves->count, ls_dtype_name(moves->dtype), *deed->label ? " [" : "", deed->label,
             *deed->label ? "]" : "", moves->site.file, moves->site.line);
    return out;
}

/* Whether two ranks' operations are the same one. */
static bool deeds_match(const struct deed *a, const struct deed *b)
{
    const struct ls_operation *x = &a->did.operation, *y = &b->did.operation;
    bool message = x->kind == LS_COMM_SEND;
    if (x->kind != y->kind || x->dtype != y->dtype || x->count != y->count ||
        strcmp(a->label, b->label) != 0)
        return false;
    return message ? x->receive != y->receive : x->name == y->name && x->peer == y->peer;
}

int lists_start(struct lists *lists, int who, const struct turn *turn, bool *over,
                struct ls_error *error)
{
    int32_t *first = &lists->firsts[turn->meeting];
    *first = *first ? *first : turn->which + 1;
    const struct deed *other = &lists->deeds[*first - 1];
    *over = ls_executor_start(&lists->executor, turn->meeting, turn->place->parties);
    if (turn->deed == other || deeds_match(turn->deed, other))
        return LS_OK;
    return ls_error_set(error, LS_ELAYOUT, "rank %ld makes %s; rank %ld makes %s",
                        (long)lists->list[other->list].rank, act_text(other, turn->nth).text,
                        (long)lists->list[who].rank, act_text(turn->deed, turn->nth).text);
}

/* ---- what does not end ----------------------------------------------------------------------- */

/* How often the list has started operations there, on one side of a message's way. */
static int32_t came_to(const struct lists *lists, const struct list *list,
                       const struct rendezvous *place, bool receive)
{
    int32_t came = 0;
    for (const struct event *event = list->events; event < list->events + list->next; event++) {
        if (event->kind != EVENT_START)
            continue;
        const struct deed *deed = &lists->deeds[list->acts[event->number].deed];
        came += &lists->places[deed->place] == place &&
                (!is_message(&place->at) || deed->did.operation.receive == receive);
    }
    return came;
}

static int absent(void *user, int who)
{
    const struct lists *lists = user;
    const struct turn turn = lists_turn(lists, who);
    const int32_t *members = &lists->members[turn.place->member];
    int i = 0;
    while (i < turn.place->parties &&
           came_to(lists, &lists->list[members[i]], turn.place, i == 1) > turn.nth)
        i++;
    LS_ASSERT(i < turn.place->parties);
    return members[i];
}

static void waits_text(void *user, int who, int absent_one, char *text, size_t bytes)
{
    const struct lists *lists = user;
    const struct turn turn = lists_turn(lists, who);
    snprintf(text, bytes, "rank %ld waits in its %s for rank %ld", (long)lists->list[who].rank,
             act_text(turn.deed, turn.nth).text, (long)lists->list[absent_one].rank);
}

int lists_finish(const struct lists *lists, struct ls_error *error)
{
    const struct ls_executor_words words = {absent, waits_text, (void *)lists, ""};
    return ls_executor_finish(&lists->executor, &words, error);
}
