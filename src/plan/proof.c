/* That ranks wait for nothing that does not come. Their lists are carried out on paper by the rules
 * of comm.h: an operation is started where its turn comes, is over when all who take part in it
 * have started theirs, and holds its rank up where the list waits for it. Who starts never waits,
 * and whoever can go on still can later; so where one order of ranks comes to the end, each does.
 */
#include "plan/meeting_places.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char meeting[] = "the matrices' meeting";
enum { ROOM_MIN = 64, MEETINGS_MIN = 2, LABEL_BYTES = 48 };

/* ---- who meets where ------------------------------------------------------------------------- */

/* What a rank does again and again: an operation but for its place in the list. */
struct deed {
    struct ls_recorded did; /* its label is of the recording, gone after it was added */
    char label[LABEL_BYTES];
    int place, visit;
};

/* A rank's operations at one place, on one side of it. */
struct visit {
    int place;
    bool receive;
    int32_t count;
};

/* One operation of a rank's list. */
struct act {
    int32_t deed;
    int32_t number; /* among the rank's at that place */
    int32_t until;  /* as in struct ls_recorded */
};

struct player {
    int64_t rank;
    int64_t alike; /* ranks that do the same, this one too */
    struct act *acts;
    int32_t *waits; /* [waits_count] acts in the order in which they are waited for */
    int32_t count, waits_count;
    struct deed *deeds;
    struct visit *visits;
    int deed_count, visit_count;
    int64_t deed_room, visit_room;
    int32_t started, waited; /* so far */
};

/* The nth operation of a place: who came, and who came first. */
struct meeting {
    int came, player;
    int32_t deed;
};

/* What happens at one of struct meeting_places. */
struct place {
    int parties;
    struct meeting *meetings;
    int32_t count, room;
    /* On each side: the last rank's list that comes here, from 1, and its visit. */
    int32_t visitor[2], visit[2];
};

struct ls_move_proof {
    const struct ls_layout *layout;
    int64_t *shard_alike; /* [dp_shard] the first that does the same; NULL: every rank for itself */
    bool folds;           /* what ranks do where matrices meet is one operation */
    int64_t group_size[LS_GROUPS];
    struct player *players;
    struct meeting_places where;
    struct place *places; /* [where.count] */
    int player_count, place_count;
    int64_t player_room, place_room;
};

static int no_memory(struct ls_error *error)
{
    return ls_error_set(error, LS_ENOMEM, "no memory for the proof of a layout");
}

/* ---- ranks that are alike -------------------------------------------------------------------- */

/* Elements of a table that is tied across stages on a shard rank: all that depends on dp_shard. */
static int64_t tied_rows(const struct ls_layout *layout, int64_t shard_rank)
{
    int64_t rows = layout->model.vocab_padded / layout->size[LS_AXIS_TP];
    int64_t each = ls_ceil_div(rows, layout->shard_ranks);
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

int64_t ls_move_proof_alike(const struct ls_move_proof *proof, int64_t rank)
{
    int64_t at[LS_AXES];
    if (!proof->shard_alike)
        return rank;
    ls_layout_coordinates(proof->layout, rank, at);
    at[LS_AXIS_TP] = 0;
    if (proof->layout->numerics.fast || proof->layout->zero == 0)
        at[LS_AXIS_DP_REPLICATE] = 0; /* else the sum goes from one to the next */
    at[LS_AXIS_DP_SHARD] = proof->shard_alike[at[LS_AXIS_DP_SHARD]];
    return ls_layout_rank(proof->layout, at);
}

/* ---- making ---------------------------------------------------------------------------------- */

int ls_move_proof_new(const struct ls_layout *layout, bool alike, struct ls_move_proof **out,
                      struct ls_error *error)
{
    struct ls_move_proof *proof = calloc(1, sizeof *proof);
    *out = proof;
    if (!proof)
        return no_memory(error);
    proof->layout = layout;
    for (int group = 0; group < LS_GROUPS; group++)
        proof->group_size[group] = ls_group_size(layout, (enum ls_layout_group)group);
    if (!alike)
        return LS_OK;
    proof->folds = layout->matrices_meet;
    proof->shard_alike = calloc((size_t)layout->size[LS_AXIS_DP_SHARD], sizeof *proof->shard_alike);
    if (!proof->shard_alike) {
        ls_move_proof_free(proof);
        *out = NULL;
        return no_memory(error);
    }
    shards_compare(layout, proof->shard_alike);
    return LS_OK;
}

void ls_move_proof_free(struct ls_move_proof *proof)
{
    if (!proof)
        return;
    for (int i = 0; i < proof->player_count; i++) {
        free(proof->players[i].acts);
        free(proof->players[i].waits);
        free(proof->players[i].deeds);
        free(proof->players[i].visits);
    }
    for (int i = 0; i < proof->place_count; i++)
        free(proof->places[i].meetings);
    free(proof->players);
    free(proof->places);
    meeting_places_release(&proof->where);
    free(proof->shard_alike);
    free(proof);
}

/* ---- places ---------------------------------------------------------------------------------- */

/* The number of where rank does that, among the ranks that stand for all; -1 where there is no
 * memory. */
static int place_find(struct ls_move_proof *proof, int64_t rank, const struct ls_recorded *did)
{
    struct meeting_place where = meeting_place_of(proof->layout, proof, rank, did);
    if (!ls_list_grow(&proof->places, proof->place_count, &proof->place_room,
                      sizeof *proof->places))
        return -1;
    int number = meeting_places_add(&proof->where, &where);
    if (number == proof->place_count)
        proof->places[proof->place_count++] =
            (struct place){.parties = did->kind == LS_COMM_SEND ? 2 : 0};
    return number;
}

/* ---- a rank's list --------------------------------------------------------------------------- */

/* The deeds of the list that is added, by what they are: an open table of index + 1. */
struct deed_table {
    int *entries, room;
};

static bool deed_is(const struct deed *deed, const struct ls_recorded *did)
{
    const struct ls_recorded *a = &deed->did;
    return a->group == did->group && a->operation == did->operation && a->dtype == did->dtype &&
           a->count == did->count && a->peer == did->peer && a->tag == did->tag &&
           a->receive == did->receive && a->label == did->label;
}

static int *deed_entry(const struct deed_table *table, const struct deed *deeds,
                       const struct ls_recorded *did)
{
    uint64_t h = (uint64_t)did->count * 0x9e3779b97f4a7c15u;
    h = (h ^ (uint64_t)(uintptr_t)did->label) * 0xbf58476d1ce4e5b9u;
    h = (h ^ (uint64_t)(did->group * 4096 + did->peer * 16 + (int)did->kind)) * 0x94d049bb133111ebu;
    for (h >>= 32;; h++) {
        int *entry = &table->entries[h & (uint64_t)(table->room - 1)];
        if (*entry == 0 || deed_is(&deeds[*entry - 1], did))
            return entry;
    }
}

static bool deeds_grow(struct deed_table *table, const struct player *player)
{
    int room = (int)ls_max(4 * table->room, 4 * ROOM_MIN);
    struct deed_table grown = {calloc((size_t)room, sizeof *grown.entries), room};
    if (!grown.entries)
        return false;
    for (int i = 0; i < player->deed_count; i++)
        *deed_entry(&grown, player->deeds, &player->deeds[i].did) = i + 1;
    free(table->entries);
    *table = grown;
    return true;
}

/* The last rank's visits of that place, on that side; -1 where there is no memory. */
static int visit_find(struct ls_move_proof *proof, int place, bool receive)
{
    struct player *player = &proof->players[proof->player_count - 1];
    struct place *where = &proof->places[place];
    if (where->visitor[receive] == proof->player_count)
        return where->visit[receive];
    if (!ls_list_grow(&player->visits, player->visit_count, &player->visit_room,
                      sizeof *player->visits))
        return -1;
    player->visits[player->visit_count] = (struct visit){.place = place, .receive = receive};
    where->visitor[receive] = proof->player_count;
    where->visit[receive] = player->visit_count;
    return player->visit_count++;
}

/* The deed of the last rank that an operation is; -1 where there is no memory. */
static int deed_find(struct ls_move_proof *proof, struct deed_table *table,
                     const struct ls_recorded *did)
{
    struct player *player = &proof->players[proof->player_count - 1];
    if (2 * player->deed_count >= table->room && !deeds_grow(table, player))
        return -1;
    int *entry = deed_entry(table, player->deeds, did);
    if (*entry)
        return *entry - 1;
    int place = place_find(proof, player->rank, did);
    int visit = place < 0 ? -1 : visit_find(proof, place, did->receive);
    if (visit < 0 || !ls_list_grow(&player->deeds, player->deed_count, &player->deed_room,
                                   sizeof *player->deeds))
        return -1;
    struct deed *deed = &player->deeds[player->deed_count++];
    *deed = (struct deed){.did = *did, .place = place, .visit = visit};
    snprintf(deed->label, sizeof deed->label, "%s", did->label ? did->label : "");
    *entry = player->deed_count;
    return *entry - 1;
}

/* The acts in the order in which they are waited for: a counting sort, stable. */
static int waits_sort(struct player *player, struct ls_error *error)
{
    int32_t *begin = calloc((size_t)player->count + 2, sizeof *begin);
    player->waits = malloc(((size_t)player->count + 1) * sizeof *player->waits);
    if (!begin || !player->waits) {
        free(begin);
        return no_memory(error);
    }
    for (int32_t i = 0; i < player->count; i++)
        if (player->acts[i].until >= 0)
            begin[player->acts[i].until + 1]++;
    for (int32_t i = 0; i <= player->count; i++)
        begin[i + 1] += begin[i];
    player->waits_count = begin[player->count + 1];
    for (int32_t i = 0; i < player->count; i++)
        if (player->acts[i].until >= 0)
            player->waits[begin[player->acts[i].until]++] = i;
    free(begin);
    return LS_OK;
}

static int list_add(struct ls_move_proof *proof, int64_t rank, const struct ls_recording *recording,
                    struct ls_error *error)
{
    if (!ls_list_grow(&proof->players, proof->player_count, &proof->player_room,
                      sizeof *proof->players))
        return no_memory(error);
    struct player *player = &proof->players[proof->player_count++];
    *player = (struct player){.rank = rank, .count = (int32_t)recording->count};
    player->acts = malloc(((size_t)recording->count + 1) * sizeof *player->acts);
    if (!player->acts)
        return no_memory(error);
    struct deed_table table = {0};
    int status = LS_OK;
    for (int64_t i = 0; i < recording->count && !status; i++) {
        const struct ls_recorded *did = &recording->list[i];
        int deed = deed_find(proof, &table, did);
        if (deed < 0)
            status = no_memory(error);
        else
            player->acts[i] = (struct act){deed, player->visits[player->deeds[deed].visit].count++,
                                           (int32_t)did->until};
    }
    free(table.entries);
    return status ? status : waits_sort(player, error);
}

static bool is_of_matrices(const struct ls_recording *recording, int64_t i)
{
    return i >= 0 && recording->list[i].group == LS_GROUP_MATRICES;
}

/* A copy in which each run of operations where matrices meet is one, in which all ranks of the
 * group meet at once. Whatever is waited for within the run is waited for before it. So a rank
 * waits for no less than it does, and what comes to its end here does so there. */
static int meetings_fold(const struct ls_recording *recording, struct ls_recording *folded,
                         struct ls_error *error)
{
    int64_t count = recording->count;
    struct ls_recorded *list = malloc(((size_t)count + 1) * sizeof *list);
    int64_t *until = calloc((size_t)count + 1, sizeof *until); /* of recording's, in the copy */
    *folded = (struct ls_recording){.list = list};
    for (int64_t i = 0; i < count && list && until; i++) {
        bool matrices = is_of_matrices(recording, i);
        if (!matrices || !is_of_matrices(recording, i - 1))
            list[folded->count++] = recording->list[i];
        until[i + 1] = folded->count - matrices;
    }
    for (int64_t i = 0; i < folded->count && until; i++)
        if (is_of_matrices(folded, i))
            list[i] = (struct ls_recorded){.group = LS_GROUP_MATRICES,
                                           .operation = meeting,
                                           .kind = LS_COMM_OTHER,
                                           .peer = -1,
                                           .site = list[i].site,
                                           .until = i + 1};
        else if (list[i].until >= 0)
            list[i].until = until[list[i].until];
    bool made = list && until;
    free(until);
    return made ? LS_OK : no_memory(error);
}

int ls_move_proof_add(struct ls_move_proof *proof, int64_t rank,
                      const struct ls_recording *recording, struct ls_error *error)
{
    LS_ASSERT(rank >= 0 && rank < proof->layout->ranks && recording->count < INT32_MAX);
    LS_ASSERT(ls_move_proof_alike(proof, rank) == rank);
    struct ls_recording folded = {0};
    int status = proof->folds ? meetings_fold(recording, &folded, error) : LS_OK;
    if (!status)
        status = list_add(proof, rank, proof->folds ? &folded : recording, error);
    free(folded.list);
    return status;
}

/* ---- texts ----------------------------------------------------------------------------------- */

struct act_text {
    char text[200];
};
/* "operation 17 of tp, all_gather of 10 BF16 [wte] (tensor.c:69)" */
static struct act_text act_text(const struct deed *deed, int number)
{
    struct act_text out;
    const struct ls_recorded *did = &deed->did;
    char peer[40] = "";
    if (did->kind == LS_COMM_SEND)
        snprintf(peer, sizeof peer, " %s %d tag %d", did->receive ? "from" : "to", did->peer,
                 did->tag);
    snprintf(out.text, sizeof out.text, "operation %d of %s, %s%s of %ld %s%s%s%s (%s:%d)",
             number + 1, ls_group_name((enum ls_layout_group)did->group), did->operation, peer,
             (long)did->count, ls_dtype_name(did->dtype), *deed->label ? " [" : "", deed->label,
             *deed->label ? "]" : "", did->site.file, did->site.line);
    return out;
}

/* A party of the place that has not come to its nth operation. NULL where all have. */
static const struct player *absent_from(const struct ls_move_proof *proof, int place, int number)
{
    const struct meeting_place *p = &proof->where.list[place];
    for (int i = 0; i < proof->player_count; i++) {
        const struct player *player = &proof->players[i];
        const struct ls_recorded any = {.group = (int)p->group};
        const struct meeting_place of_group =
            meeting_place_of(proof->layout, proof, player->rank, &any);
        bool sends = p->to >= 0 && player->rank == p->from;
        bool receives = p->to >= 0 && player->rank == p->to;
        if (p->to < 0 ? memcmp(&of_group, p, sizeof *p) != 0 : !sends && !receives)
            continue;
        int came[2] = {0};
        for (int32_t a = 0; a < player->started; a++) {
            const struct deed *deed = &player->deeds[player->acts[a].deed];
            came[deed->did.receive] += deed->place == place;
        }
        bool late = came[0] <= number;
        if (p->to >= 0)
            late = (sends && came[0] <= number) || (receives && came[1] <= number);
        if (late)
            return player;
    }
    return NULL;
}

static bool is_waiting(const struct player *player)
{
    return player->waited < player->waits_count;
}

/* "rank 3 waits in ... for rank 4, which waits in ... for rank 3" */
static int stuck(const struct ls_move_proof *proof, const struct player *player,
                 struct ls_error *error)
{
    enum { HOPS = 4 };
    char text[1200];
    int used = snprintf(text, sizeof text, "rank %ld", (long)player->rank);
    for (int hop = 0; hop < HOPS && player; hop++) {
        if (!is_waiting(player)) {
            snprintf(text + used, sizeof text - (size_t)used, ", which ends without it");
            break;
        }
        const struct act *act = &player->acts[player->waits[player->waited]];
        const struct deed *deed = &player->deeds[act->deed];
        player = absent_from(proof, deed->place, act->number);
        if ((size_t)used >= sizeof text)
            break;
        used += snprintf(text + used, sizeof text - (size_t)used, "%s waits in its %s for rank %ld",
                         hop ? ", which" : "", act_text(deed, act->number).text,
                         player ? (long)player->rank : -1L);
        if ((size_t)used >= sizeof text)
            break;
    }
    return ls_error_set(error, LS_ELAYOUT, "%s", text);
}

/* ---- carrying out ---------------------------------------------------------------------------- */

/* Whether two ranks' operations are the same one. */
static bool deeds_match(const struct deed *a, const struct deed *b)
{
    const struct ls_recorded *x = &a->did, *y = &b->did;
    bool message = x->kind == LS_COMM_SEND;
    if (x->kind != y->kind || x->dtype != y->dtype || x->count != y->count ||
        strcmp(a->label, b->label) != 0)
        return false;
    return message ? x->receive != y->receive : x->operation == y->operation && x->peer == y->peer;
}

static bool is_over(const struct ls_move_proof *proof, const struct player *player, int32_t i)
{
    const struct act *act = &player->acts[i];
    const struct place *place = &proof->places[player->deeds[act->deed].place];
    return act->number < place->count && place->meetings[act->number].came == place->parties;
}

/* Places are many, and most see few operations. */
static bool meetings_grow(struct place *place)
{
    if (place->count < place->room)
        return true;
    int32_t room = (int32_t)ls_max(2 * place->room, MEETINGS_MIN);
    struct meeting *grown = realloc(place->meetings, (size_t)room * sizeof *grown);
    if (!grown)
        return false;
    place->meetings = grown;
    place->room = room;
    return true;
}

static int act_start(struct ls_move_proof *proof, int who, struct ls_error *error)
{
    struct player *player = &proof->players[who];
    const struct act *act = &player->acts[player->started++];
    const struct deed *deed = &player->deeds[act->deed];
    struct place *place = &proof->places[deed->place];
    while (place->count <= act->number) {
        if (!meetings_grow(place))
            return no_memory(error);
        place->meetings[place->count++] = (struct meeting){0};
    }
    struct meeting *meeting = &place->meetings[act->number];
    if (meeting->came++ == 0) {
        meeting->player = who;
        meeting->deed = act->deed;
        return LS_OK;
    }
    const struct player *first = &proof->players[meeting->player];
    const struct deed *other = &first->deeds[meeting->deed];
    if (deeds_match(deed, other))
        return LS_OK;
    return ls_error_set(error, LS_ELAYOUT, "rank %ld makes %s; rank %ld makes %s",
                        (long)first->rank, act_text(other, act->number).text, (long)player->rank,
                        act_text(deed, act->number).text);
}

/* Goes on with a rank as far as it can. */
static int player_run(struct ls_move_proof *proof, int who, bool *moved, struct ls_error *error)
{
    struct player *player = &proof->players[who];
    for (;;) {
        while (is_waiting(player) &&
               player->acts[player->waits[player->waited]].until <= player->started) {
            if (!is_over(proof, player, player->waits[player->waited]))
                return LS_OK;
            player->waited++;
            *moved = true;
        }
        if (player->started == player->count)
            return LS_OK;
        *moved = true;
        int status = act_start(proof, who, error);
        if (status)
            return status;
    }
}

/* Every rank is one that was added, or alike one; and every place knows how many come to it. */
static int parties_count(struct ls_move_proof *proof, struct ls_error *error)
{
    const struct ls_layout *layout = proof->layout;
    int *of_rank = calloc((size_t)layout->ranks, sizeof *of_rank);
    if (!of_rank)
        return no_memory(error);
    for (int i = 0; i < proof->player_count; i++)
        of_rank[proof->players[i].rank] = i + 1;
    int status = LS_OK;
    for (int64_t rank = 0; rank < layout->ranks && !status; rank++) {
        int player = of_rank[ls_move_proof_alike(proof, rank)];
        if (!player)
            status = ls_error_set(error, LS_EINVAL, "what rank %ld does was not added", (long)rank);
        else
            proof->players[player - 1].alike++;
    }
    free(of_rank);
    for (int i = 0; i < proof->player_count && !status; i++)
        for (int g = 0; g < LS_GROUPS; g++) {
            const struct ls_recorded any = {.group = g};
            const struct meeting_place where =
                meeting_place_of(layout, proof, proof->players[i].rank, &any);
            int number = meeting_places_find(&proof->where, &where);
            if (number >= 0)
                proof->places[number].parties++;
        }
    return status;
}

static void count_up(const struct ls_move_proof *proof, struct ls_layout_proof *out)
{
    const struct ls_layout *layout = proof->layout;
    *out = (struct ls_layout_proof){.ranks = layout->ranks, .recorded = proof->player_count};
    for (int group = 0; group < LS_GROUPS; group++)
        if (proof->group_size[group] > 1)
            out->groups += layout->ranks / proof->group_size[group];
    for (int i = 0; i < proof->player_count; i++) {
        const struct player *player = &proof->players[i];
        for (int v = 0; v < player->visit_count; v++) {
            int64_t all = player->alike * player->visits[v].count;
            const struct meeting_place *place = &proof->where.list[player->visits[v].place];
            bool message = place->to >= 0;
            bool folded = proof->folds && place->group == LS_GROUP_MATRICES;
            out->collectives += message || folded ? 0 : all;
            out->messages += message && !player->visits[v].receive ? all : 0;
        }
    }
}

/* Operations that nobody waits for must be met all the same. */
static int leftovers_check(const struct ls_move_proof *proof, struct ls_error *error)
{
    for (int p = 0; p < proof->place_count; p++) {
        const struct place *place = &proof->places[p];
        for (int32_t n = 0; n < place->count; n++) {
            const struct meeting *meeting = &place->meetings[n];
            if (meeting->came == place->parties)
                continue;
            const struct player *player = &proof->players[meeting->player];
            const struct player *absent = absent_from(proof, p, n);
            return ls_error_set(error, LS_ELAYOUT, "rank %ld makes %s; rank %ld ends without it",
                                (long)player->rank, act_text(&player->deeds[meeting->deed], n).text,
                                absent ? (long)absent->rank : -1L);
        }
    }
    return LS_OK;
}

int ls_move_proof_finish(struct ls_move_proof *proof, struct ls_layout_proof *out,
                         struct ls_error *error)
{
    bool moved = true;
    int status = parties_count(proof, error);
    while (moved && !status) {
        moved = false;
        for (int i = 0; i < proof->player_count && !status; i++)
            status = player_run(proof, i, &moved, error);
    }
    for (int i = 0; i < proof->player_count && !status; i++)
        if (is_waiting(&proof->players[i]))
            status = stuck(proof, &proof->players[i], error);
    if (!status)
        status = leftovers_check(proof, error);
    if (!status)
        count_up(proof, out);
    return status;
}
