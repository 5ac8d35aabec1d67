/* Recordings carried out against a clock: each rank's events in the order of time, so that who
 * comes first to a link has it first. */
#include "plan/meeting_places.h"

#include <lockstep/plan/simulate.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is carried out --------------------------------------------------------------------- */

/* Of a link. Sums and copies of parameters over data parallel are many and may wait: a whole
 * stage's are started at once when its backward ends. What the next work needs does not stand in
 * line behind them, since each group of ranks moves its bytes by itself (a communicator and a
 * stream of NCCL each): it takes the link's time from them. */
enum lane { LANE_NEXT, LANE_BULK, LANES };

static enum lane lane_of(enum ls_account account)
{
    return account == LS_ACCOUNT_SHARD || account == LS_ACCOUNT_REPLICATE ? LANE_BULK : LANE_NEXT;
}

enum event_kind {
    EVENT_START,
    EVENT_WAIT,
    EVENT_TRANSFER,
    EVENT_TRANSFER_WAIT,
    EVENT_STEP,
    EVENT_END
};

/* After so many seconds of computing, a rank starts its operation or transfer `number`, waits for
 * it, begins its second step, or ends it. */
struct event {
    double before_s;
    float units_s, memory_s; /* of before_s, as in struct ls_work_time */
    int32_t number;
    int16_t kind; /* enum event_kind */
    int16_t pass; /* enum ls_work_pass of what was computed last */
};

/* What a rank computes for one pass without a break, before an event or behind the last one. Kept
 * where somebody watches. */
struct stretch {
    int64_t event;
    double seconds;
    enum ls_work_pass pass;
};

/* One operation of a rank: where it meets the others, and how long it takes. */
struct operation {
    int32_t place, nth;           /* the nth of that place */
    float seconds, units, memory; /* as in struct ls_move_time */
    int8_t link, account;
    bool send, receive; /* of a message; else both links are used */
    const char *name;   /* of the library: lives on */
};

struct transfer {
    float seconds;
    bool writes;
    enum ls_tier_kind kind;
    double from, to; /* once it was started */
};

/* What an operation takes of a player that has part in it. */
struct taken {
    double from, to;
    float units, memory;
};

struct player {
    int64_t rank;
    struct event *events;
    struct operation *operations;
    struct transfer *transfers;
    struct stretch *stretches;
    double tier_free[LS_TIER_KINDS];
    int64_t count, next;
    int64_t stretch_count, stretch_room, stretch_next;
    double clock, from_s; /* from_s: when it began to compute what lies before the next event */
    struct taken *taken;  /* by operations, in the order of their beginning */
    int64_t taken_count, taken_room, taken_known; /* taken_known: clock heeds so many of them */
    double out_free[LANES][LS_PACE_LINKS_MAX], in_free[LANES][LS_PACE_LINKS_MAX];
    int waits_next;           /* of those that wait for the same meeting: index + 1 */
    bool computing, computed; /* what lies before the next event */
    bool second;              /* step */
    struct ls_simulated_rank figures;
};

/* The nth operation of a place. */
struct meeting {
    double from, to; /* from: the latest to come, then when it began */
    int came;
    int waiting; /* the first player that waits for it, index + 1 */
};

/* What happens at one of struct meeting_places. */
struct place {
    struct meeting_place at;
    struct meeting *meetings;
    int64_t count, room;
    int *parties; /* players that come here */
    int64_t parties_count, parties_room;
    int visitor;       /* the last player that was added here, index + 1 */
    int32_t visits[2]; /* of it, as the sender of a message and as its receiver */
};

struct ls_simulation {
    const struct ls_layout *layout;
    struct ls_pace pace;
    struct ls_move_proof *alike;
    struct player *players;
    struct meeting_places where;
    struct place *places; /* [where.count] */
    int *of_rank;         /* [ranks] player, index + 1 */
    int *heap;            /* of players that can go on, by clock */
    int heap_count;
    int64_t player_count, player_room, place_count, place_room;
    ls_simulated_visit *visit;
    void *visit_user;
};

static int no_memory(struct ls_error *error)
{
    return ls_error_set(error, LS_ENOMEM, "no memory to simulate a layout");
}

int ls_simulation_new(const struct ls_layout *layout, const struct ls_pace *pace,
                      struct ls_simulation **out, struct ls_error *error)
{
    struct ls_simulation *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s)
        return no_memory(error);
    s->layout = layout;
    s->pace = *pace;
    s->of_rank = calloc((size_t)layout->ranks, sizeof *s->of_rank);
    int status = ls_move_proof_new(layout, true, &s->alike, error);
    if (!status && !s->of_rank)
        status = no_memory(error);
    if (status) {
        ls_simulation_free(s);
        return status;
    }
    *out = s;
    return LS_OK;
}

void ls_simulation_free(struct ls_simulation *s)
{
    if (!s)
        return;
    for (int64_t i = 0; i < s->player_count; i++) {
        free(s->players[i].events);
        free(s->players[i].operations);
        free(s->players[i].transfers);
        free(s->players[i].stretches);
        free(s->players[i].taken);
    }
    for (int64_t i = 0; i < s->place_count; i++) {
        free(s->places[i].meetings);
        free(s->places[i].parties);
    }
    ls_move_proof_free(s->alike);
    free(s->players);
    free(s->places);
    free(s->of_rank);
    free(s->heap);
    meeting_places_release(&s->where);
    free(s);
}

int64_t ls_simulation_alike(const struct ls_simulation *s, int64_t rank)
{
    return ls_move_proof_alike(s->alike, rank);
}

void ls_simulation_watch(struct ls_simulation *s, ls_simulated_visit *visit, void *user)
{
    s->visit = visit;
    s->visit_user = user;
}

/* ---- places ---------------------------------------------------------------------------------- */

/* Where matrices meet each rank does something else, as each matrix has an owner. Ranks that are
 * alike but for that are one here, so nobody waits for others there: its own moves take their time.
 */
static bool is_of_matrices(const struct ls_recorded *move)
{
    return move->group == LS_GROUP_MATRICES;
}

static bool is_message(const struct ls_recorded *move)
{
    return move->kind == LS_COMM_SEND && !is_of_matrices(move);
}

/* The number of where rank does that; -1 where there is no memory. */
static int32_t place_of(struct ls_simulation *s, int64_t rank, const struct ls_recorded *move)
{
    struct meeting_place where = is_of_matrices(move)
                                     ? (struct meeting_place){move->group, rank + 1, rank, -1}
                                     : meeting_place_of(s->layout, s->alike, rank, move);
    if (!ls_list_grow(&s->places, s->place_count, &s->place_room, sizeof *s->places))
        return -1;
    int32_t number = meeting_places_add(&s->where, &where);
    if (number == s->place_count)
        s->places[s->place_count++] = (struct place){.at = where};
    return number;
}

/* ---- a rank's list --------------------------------------------------------------------------- */

/* The last player's operation, but for its number at its place. */
static bool operation_make(struct ls_simulation *s, const struct ls_recorded *move,
                           struct operation *operation)
{
    struct player *player = &s->players[s->player_count - 1];
    int32_t index = place_of(s, player->rank, move);
    if (index < 0)
        return false;
    struct place *place = &s->places[index];
    if (place->visitor != s->player_count) {
        if (!ls_list_grow(&place->parties, place->parties_count, &place->parties_room,
                          sizeof *place->parties))
            return false;
        place->parties[place->parties_count++] = (int)s->player_count - 1;
        place->visitor = (int)s->player_count;
        place->visits[0] = place->visits[1] = 0;
    }
    bool message = is_message(move);
    const struct ls_move_time time = s->pace.move(s->pace.user, player->rank, move);
    LS_ASSERT(time.link >= 0 && time.link < LS_PACE_LINKS_MAX);
    *operation = (struct operation){
        .place = index,
        .seconds = (float)time.seconds,
        .units = (float)time.units,
        .memory = (float)time.memory,
        .link = (int8_t)time.link,
        .account = (int8_t)ls_account_of(s->layout, (enum ls_layout_group)move->group),
        .send = message && !move->receive,
        .receive = message && move->receive,
        .name = move->operation,
    };
    return true;
}

/* Operations of a recording that are like each other in all but their number. */
struct likeness {
    const struct ls_recorded *move; /* the first */
    struct operation operation;
    int32_t after; /* what came behind the last of them, index + 1 */
};
struct likenesses {
    struct likeness *list;
    int64_t count, room;
    int32_t last; /* of the operation before, index + 1 */
};

static bool are_alike(const struct ls_recorded *a, const struct ls_recorded *b)
{
    return a->group == b->group && a->kind == b->kind && a->dtype == b->dtype &&
           a->count == b->count && a->receive == b->receive && a->peer == b->peer &&
           a->tag == b->tag && a->operation == b->operation;
}

/* The last player's operation. Operations come in the order in which they came before: that is
 * tried first. */
static bool operation_add(struct ls_simulation *s, struct likenesses *known,
                          const struct ls_recorded *move, struct operation *operation)
{
    int64_t at = known->last ? known->list[known->last - 1].after - 1 : -1;
    if (at < 0 || !are_alike(known->list[at].move, move))
        for (at = 0; at < known->count && !are_alike(known->list[at].move, move);)
            at++;
    if (at == known->count) {
        if (!ls_list_grow(&known->list, known->count, &known->room, sizeof *known->list))
            return false;
        known->list[at] = (struct likeness){.move = move};
        if (!operation_make(s, move, &known->list[at].operation))
            return false;
        known->count++;
    }
    if (known->last)
        known->list[known->last - 1].after = (int32_t)at + 1;
    known->last = (int32_t)at + 1;
    *operation = known->list[at].operation;
    operation->nth = s->places[operation->place].visits[operation->receive]++;
    return true;
}

/* What happens at each tick of the recording's clock. */
struct tick {
    int32_t kind; /* enum event_kind; EVENT_STEP: a work */
    int32_t number;
};

static struct tick *timeline_of(const struct ls_recording *recording)
{
    struct tick *at = malloc(((size_t)recording->clock + 1) * sizeof *at);
    for (int64_t i = 0; i < recording->clock && at; i++)
        at[i] = (struct tick){EVENT_STEP, 0};
    for (int64_t i = 0; i < recording->count && at; i++) {
        at[recording->list[i].started_at] = (struct tick){EVENT_START, (int32_t)i};
        if (recording->list[i].waited_at >= 0)
            at[recording->list[i].waited_at] = (struct tick){EVENT_WAIT, (int32_t)i};
    }
    for (int64_t i = 0; i < recording->transfers_count && at; i++) {
        at[recording->transfers[i].started_at] = (struct tick){EVENT_TRANSFER, (int32_t)i};
        if (recording->transfers[i].waited_at >= 0)
            at[recording->transfers[i].waited_at] = (struct tick){EVENT_TRANSFER_WAIT, (int32_t)i};
    }
    return at;
}

static struct transfer *transfers_of(const struct ls_simulation *s,
                                     const struct ls_recording *recording)
{
    struct transfer *list = malloc(((size_t)recording->transfers_count + 1) * sizeof *list);
    for (int64_t i = 0; i < recording->transfers_count && list; i++) {
        const struct ls_recorded_transfer *transfer = &recording->transfers[i];
        list[i] = (struct transfer){
            .seconds = (float)s->pace.transfer(s->pace.user, transfer),
            .writes = transfer->writes,
            .kind = transfer->kind,
        };
    }
    return list;
}

/* Of each work of the recording. */
static struct ls_work_time *times_of(const struct ls_simulation *s,
                                     const struct ls_recording *recording)
{
    struct ls_work_time *times = calloc((size_t)recording->works_count + 1, sizeof *times);
    for (int32_t i = 0; i < recording->works_count && times; i++)
        times[i] = s->pace.work(s->pace.user, &recording->works[i]);
    return times;
}

static void work_count(struct ls_simulated_rank *figures, const struct ls_work *work,
                       enum ls_work_pass pass, const struct ls_work_time *time)
{
    figures->pass_s[pass] += time->seconds;
    figures->work_s[work->kind] += time->seconds;
    figures->compute_s += time->seconds;
    figures->fixed_s += time->seconds - time->units_s - time->memory_s;
    if (work->kind <= LS_WORK_ATTENTION_BACKWARD)
        figures->flops += work->flops;
}

/* Before the event that comes next. */
static bool stretch_add(struct player *player, enum ls_work_pass pass, double seconds)
{
    struct stretch *last =
        player->stretch_count ? &player->stretches[player->stretch_count - 1] : NULL;
    if (last && last->event == player->count && last->pass == pass) {
        last->seconds += seconds;
        return true;
    }
    if (!ls_list_grow(&player->stretches, player->stretch_count, &player->stretch_room,
                      sizeof *player->stretches))
        return false;
    player->stretches[player->stretch_count++] = (struct stretch){player->count, seconds, pass};
    return true;
}

static void event_add(struct player *player, struct ls_work_time *before, int32_t number,
                      int32_t kind, enum ls_work_pass pass)
{
    player->events[player->count++] =
        (struct event){before->seconds, (float)before->units_s, (float)before->memory_s,
                       number,          (int16_t)kind,          (int16_t)pass};
    *before = (struct ls_work_time){0};
}

/* false: no memory. */
static bool events_make(struct player *player, const struct ls_recording *recording,
                        const struct tick *timeline, const struct ls_work_time *times,
                        int64_t second_at, bool watched)
{
    struct ls_work_time before = {0};
    enum ls_work_pass pass = LS_WORK_PASS_NONE;
    int64_t done = 0;
    for (int64_t at = 0; at <= recording->clock; at++) {
        if (at == second_at)
            event_add(player, &before, 0, EVENT_STEP, pass);
        if (at == recording->clock)
            break;
        if (timeline[at].kind != EVENT_STEP) {
            event_add(player, &before, timeline[at].number, timeline[at].kind, pass);
            continue;
        }
        const struct ls_recorded_work *computed = &recording->done[done++];
        const struct ls_work_time *time = &times[computed->work];
        pass = computed->pass;
        before.seconds += time->seconds;
        before.units_s += time->units_s;
        before.memory_s += time->memory_s;
        if (at >= second_at)
            work_count(&player->figures, &recording->works[computed->work], pass, time);
        if (watched && !stretch_add(player, pass, time->seconds))
            return false;
    }
    event_add(player, &before, 0, EVENT_END, pass);
    return true;
}

int ls_simulation_add(struct ls_simulation *s, int64_t rank, const struct ls_recording *recording,
                      int64_t second_at, struct ls_error *error)
{
    LS_ASSERT(ls_simulation_alike(s, rank) == rank && !s->of_rank[rank]);
    LS_ASSERT(recording->clock < INT32_MAX && second_at <= recording->clock);
    if (!ls_list_grow(&s->players, s->player_count, &s->player_room, sizeof *s->players))
        return no_memory(error);
    struct player *player = &s->players[s->player_count++];
    s->of_rank[rank] = (int)s->player_count;
    *player = (struct player){.rank = rank};
    size_t waited = (size_t)(recording->count + recording->transfers_count);
    player->events = malloc((waited * 2 + 2) * sizeof *player->events);
    player->operations = malloc(((size_t)recording->count + 1) * sizeof *player->operations);
    player->transfers = transfers_of(s, recording);
    struct tick *timeline = timeline_of(recording);
    struct ls_work_time *times = times_of(s, recording);
    bool made = player->events && player->operations && player->transfers && timeline && times;
    struct likenesses known = {0};
    for (int64_t i = 0; i < recording->count && made; i++)
        made = operation_add(s, &known, &recording->list[i], &player->operations[i]);
    free(known.list);
    if (made)
        made = events_make(player, recording, timeline, times, second_at, s->visit != NULL);
    free(timeline);
    free(times);
    return made ? LS_OK : no_memory(error);
}

/* ---- players by clock ------------------------------------------------------------------------ */

static bool sooner(const struct ls_simulation *s, int a, int b)
{
    const struct player *x = &s->players[a], *y = &s->players[b];
    return x->clock < y->clock || (x->clock == y->clock && a < b);
}

static void heap_push(struct ls_simulation *s, int player)
{
    int at = s->heap_count++;
    while (at > 0 && sooner(s, player, s->heap[(at - 1) / 2])) {
        s->heap[at] = s->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    s->heap[at] = player;
}

static int heap_pop(struct ls_simulation *s)
{
    int first = s->heap[0], last = s->heap[--s->heap_count], at = 0;
    for (;;) {
        int child = 2 * at + 1;
        if (child + 1 < s->heap_count && sooner(s, s->heap[child + 1], s->heap[child]))
            child++;
        if (child >= s->heap_count || !sooner(s, s->heap[child], last))
            break;
        s->heap[at] = s->heap[child];
        at = child;
    }
    if (s->heap_count > 0)
        s->heap[at] = last;
    return first;
}

/* ---- carrying out ---------------------------------------------------------------------------- */

/* span's times are the simulation's. */
static void span_tell(const struct ls_simulation *s, const struct player *player,
                      struct ls_simulated_span span)
{
    if (!s->visit || !player->second || span.to_s <= span.from_s)
        return;
    span.rank = player->rank;
    span.from_s -= player->figures.begin_s;
    span.to_s -= player->figures.begin_s;
    s->visit(s->visit_user, &span);
}

static struct meeting *meeting_of(struct place *place, int32_t nth)
{
    while (place->count <= nth) {
        if (!ls_list_grow(&place->meetings, place->count, &place->room, sizeof *place->meetings))
            return NULL;
        place->meetings[place->count++] = (struct meeting){0};
    }
    return &place->meetings[nth];
}

static double *link_free(struct player *player, const struct place *place, enum lane lane, int link,
                         bool out)
{
    bool sends = place->at.to < 0 || player->rank == place->at.from;
    bool receives = place->at.to < 0 || player->rank == place->at.to;
    return out ? (sends ? &player->out_free[lane][link] : NULL)
               : (receives ? &player->in_free[lane][link] : NULL);
}

/* Forgets what was over when the player began to compute. */
static void taken_forget(struct player *player)
{
    int64_t left = 0;
    for (int64_t i = 0; i < player->taken_count; i++)
        if (player->taken[i].to > player->from_s)
            player->taken[left++] = player->taken[i];
    player->taken_count = left;
}

/* false: no memory. */
static bool taken_add(struct player *player, const struct meeting *meeting,
                      const struct operation *operation)
{
    if (operation->units <= 0 && operation->memory <= 0)
        return true;
    if (!ls_list_grow(&player->taken, player->taken_count, &player->taken_room,
                      sizeof *player->taken))
        return false;
    int64_t at = player->taken_count++;
    for (; at > 0 && player->taken[at - 1].from > meeting->from; at--)
        player->taken[at] = player->taken[at - 1];
    player->taken[at] =
        (struct taken){meeting->from, meeting->to, operation->units, operation->memory};
    return true;
}

/* All have come: the operation begins when its links are free, and whoever waits may go on. false:
 * no memory. */
static bool meeting_hold(struct ls_simulation *s, const struct place *place,
                         struct meeting *meeting, const struct operation *operation)
{
    const enum lane lane = lane_of((enum ls_account)operation->account);
    double from = meeting->from, seconds = (double)operation->seconds;
    for (int64_t i = 0; i < place->parties_count; i++)
        for (int out = 0; out < 2; out++) {
            const double *is_free =
                link_free(&s->players[place->parties[i]], place, lane, operation->link, out);
            from = is_free && *is_free > from ? *is_free : from;
        }
    meeting->from = from;
    meeting->to = from + seconds;
    for (int64_t i = 0; i < place->parties_count; i++) {
        if (!taken_add(&s->players[place->parties[i]], meeting, operation))
            return false;
        for (int out = 0; out < 2; out++) {
            struct player *party = &s->players[place->parties[i]];
            double *is_free = link_free(party, place, lane, operation->link, out);
            double *bulk = link_free(party, place, LANE_BULK, operation->link, out);
            if (is_free)
                *is_free = meeting->to;
            if (bulk && lane != LANE_BULK)
                *bulk = fmax(*bulk, from) + seconds;
        }
    }
    for (int next, waiting = meeting->waiting; waiting; waiting = next) {
        next = s->players[waiting - 1].waits_next;
        heap_push(s, waiting - 1);
    }
    meeting->waiting = 0;
    return true;
}

/* Of a message both ends come, of a group each of its players; where one that stands for several
 * sends to one that is like itself, it comes twice. */
static int64_t parties_of(const struct place *place)
{
    return place->at.to < 0 ? place->parties_count : 2;
}

static bool operation_start(struct ls_simulation *s, struct player *player, int32_t number)
{
    const struct operation *operation = &player->operations[number];
    struct place *place = &s->places[operation->place];
    struct meeting *meeting = meeting_of(place, operation->nth);
    if (!meeting)
        return false;
    meeting->from = player->clock > meeting->from ? player->clock : meeting->from;
    return ++meeting->came < parties_of(place) || meeting_hold(s, place, meeting, operation);
}

/* Whether the operation is over when the player goes on; else it will be woken. */
static bool operation_wait(struct ls_simulation *s, struct player *player, int32_t number)
{
    const struct operation *operation = &player->operations[number];
    struct place *place = &s->places[operation->place];
    struct meeting *meeting = &place->meetings[operation->nth];
    if (meeting->came < parties_of(place)) {
        player->waits_next = meeting->waiting;
        meeting->waiting = (int)(player - s->players) + 1;
        return false;
    }
    double waited = meeting->to > player->clock ? meeting->to - player->clock : 0;
    double seconds = meeting->to - meeting->from;
    double hidden = seconds > waited ? seconds - waited : 0;
    double messages = place->at.to < 0 ? 0 : s->pace.message_overlap[operation->link];
    double own = (1 - fmax(s->pace.overlap, messages)) * hidden;
    span_tell(s, player,
              (struct ls_simulated_span){.account = operation->account,
                                         .operation = operation->name,
                                         .from_s = meeting->from,
                                         .to_s = meeting->to});
    player->clock += waited + own;
    if (player->second) {
        player->figures.exposed_s[operation->account] += waited + own;
        player->figures.moving_s[operation->account] += seconds;
        player->figures.pass_s[player->events[player->next].pass] += waited + own;
    }
    return true;
}

static void transfer_start(struct player *player, struct transfer *transfer)
{
    double *is_free = &player->tier_free[transfer->kind];
    transfer->from = player->clock > *is_free ? player->clock : *is_free;
    transfer->to = *is_free = transfer->from + (double)transfer->seconds;
}

static void transfer_wait(const struct ls_simulation *s, struct player *player,
                          const struct transfer *transfer)
{
    double waited = transfer->to > player->clock ? transfer->to - player->clock : 0;
    double hidden = fmax((double)transfer->seconds - waited, 0);
    span_tell(s, player,
              (struct ls_simulated_span){.account = -1,
                                         .operation = transfer->writes ? "write" : "read",
                                         .from_s = transfer->from,
                                         .to_s = transfer->to});
    waited += (1 - s->pace.overlap) * hidden;
    player->clock += waited;
    if (player->second) {
        player->figures.offload_exposed_s += waited;
        player->figures.offload_s += (double)transfer->seconds;
    }
}

/* When the player has computed what lies before the event: slower while operations run, of several
 * at once by the one that takes most. */
static double computed_at(const struct player *player, const struct event *event)
{
    double at = player->from_s, left = event->before_s;
    while (left > 0) {
        double units = 0, memory = 0, until = INFINITY;
        for (int64_t i = 0; i < player->taken_count; i++) {
            const struct taken *taken = &player->taken[i];
            if (taken->from > at) {
                until = fmin(until, taken->from);
                break;
            }
            if (taken->to <= at)
                continue;
            units = fmax(units, (double)taken->units);
            memory = fmax(memory, (double)taken->memory);
            until = fmin(until, taken->to);
        }
        double slower = 1 + ((double)event->units_s * units / (1 - units) +
                             (double)event->memory_s * memory / (1 - memory)) /
                                event->before_s;
        if (at + left * slower <= until)
            return at + left * slower;
        left -= (until - at) / slower;
        at = until;
    }
    return at;
}

/* Computes what lies before the event as far as is known, and is true if that is all: operations
 * that are not known yet begin at the player's clock or later. */
static bool compute(struct player *player, const struct event *event)
{
    if (!player->computing) {
        player->computing = true;
        player->from_s = player->clock;
        taken_forget(player);
    } else if (player->taken_known == player->taken_count) {
        return true;
    }
    double end = computed_at(player, event);
    bool over = end <= player->clock;
    player->taken_known = player->taken_count;
    player->clock = fmax(end, player->clock);
    return over;
}

/* What lay before the event is computed. */
static void computed_tell(const struct ls_simulation *s, struct player *player,
                          const struct event *event)
{
    double from = player->from_s, took = player->clock - from;
    double slower = event->before_s > 0 ? took / event->before_s : 1;
    player->computed = true;
    if (player->second && player->taken_count > 0) {
        player->figures.compute_s += took - event->before_s;
        player->figures.contended_s += took - event->before_s;
        player->figures.pass_s[event->pass] += took - event->before_s;
    }
    for (; player->stretch_next < player->stretch_count; player->stretch_next++) {
        const struct stretch *stretch = &player->stretches[player->stretch_next];
        if (stretch->event > player->next)
            break;
        double to = fmin(from + stretch->seconds * slower, player->clock);
        span_tell(s, player,
                  (struct ls_simulated_span){
                      .account = -1, .pass = stretch->pass, .from_s = from, .to_s = to});
        from = to;
    }
}

/* Goes on with the player that comes first, by one event. false: no memory. */
static bool player_step(struct ls_simulation *s)
{
    int who = heap_pop(s);
    struct player *player = &s->players[who];
    const struct event *event = &player->events[player->next];
    if (!player->computed) {
        if (!compute(player, event)) { /* others may come first now */
            heap_push(s, who);
            return true;
        }
        computed_tell(s, player, event);
    }
    bool goes_on = true;
    if (event->kind == EVENT_START && !operation_start(s, player, event->number))
        return false;
    if (event->kind == EVENT_WAIT)
        goes_on = operation_wait(s, player, event->number);
    if (event->kind == EVENT_TRANSFER)
        transfer_start(player, &player->transfers[event->number]);
    if (event->kind == EVENT_TRANSFER_WAIT)
        transfer_wait(s, player, &player->transfers[event->number]);
    if (event->kind == EVENT_STEP) {
        player->figures.begin_s = player->clock;
        player->second = true;
    }
    if (!goes_on)
        return true;
    player->next++;
    player->computing = player->computed = false;
    if (event->kind == EVENT_END)
        player->figures.end_s = player->clock;
    else
        heap_push(s, who);
    return true;
}

int ls_simulation_run(struct ls_simulation *s, struct ls_error *error)
{
    s->heap = calloc((size_t)s->player_count + 1, sizeof *s->heap);
    if (!s->heap)
        return no_memory(error);
    for (int64_t i = 0; i < s->player_count; i++)
        heap_push(s, (int)i);
    while (s->heap_count > 0)
        if (!player_step(s))
            return no_memory(error);
    for (int64_t i = 0; i < s->player_count; i++)
        if (s->players[i].next < s->players[i].count)
            return ls_error_set(
                error, LS_ELAYOUT, "deadlock: rank %ld never completes operation %d of %s",
                (long)s->players[i].rank, s->players[i].events[s->players[i].next].number,
                ls_account_name((enum ls_account)s->players[i]
                                    .operations[s->players[i].events[s->players[i].next].number]
                                    .account));
    return LS_OK;
}

/* ---- figures --------------------------------------------------------------------------------- */

double ls_simulation_step_s(const struct ls_simulation *s)
{
    double begin = 0, end = 0;
    for (int64_t i = 0; i < s->player_count; i++) {
        const struct ls_simulated_rank *figures = &s->players[i].figures;
        begin = figures->begin_s > begin ? figures->begin_s : begin;
        end = figures->end_s > end ? figures->end_s : end;
    }
    return end - begin;
}

const struct ls_simulated_rank *ls_simulation_rank(const struct ls_simulation *s, int64_t rank)
{
    return &s->players[s->of_rank[ls_simulation_alike(s, rank)] - 1].figures;
}
