/* Recordings carried out against a clock: each rank's events in the order of time, so that who
 * comes first to a link has it first. */
#include "plan/lists.h"

#include <lockstep/plan/simulate.h>

#include <math.h>
#include <stdlib.h>

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

/* What a rank computes before an event. */
struct before {
    double seconds;
    float units_s, memory_s; /* of seconds, as in struct ls_work_time */
};

_Static_assert(LS_WORK_PASSES <= 16, "a pass lies in four bits of an event");

/* What a rank computes for one pass without a break, before an event or behind the last one. Kept
 * where somebody watches. */
struct stretch {
    int32_t event;
    enum ls_work_pass pass;
    double seconds;
};

/* How long a deed takes, as in struct ls_move_time. */
struct cost {
    float seconds, units, memory;
    int8_t link, account;
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
    struct before *before; /* by event */
    struct transfer *transfers;
    struct stretch *stretches;
    double tier_free[LS_TIER_KINDS];
    int64_t stretch_count, stretch_room, stretch_next;
    double clock, from_s; /* from_s: when it began to compute what lies before the next event */
    struct taken *taken;  /* by operations, in the order of their beginning */
    int64_t taken_count, taken_room, taken_known; /* taken_known: clock heeds so many of them */
    double out_free[LANES][LS_PACE_LINKS_MAX], in_free[LANES][LS_PACE_LINKS_MAX];
    bool computing, computed; /* what lies before the next event */
    bool second;              /* step */
    struct ls_simulated_rank figures;
};

/* When a meeting takes place. from: the latest to come, then when it began. */
struct span {
    double from, to;
};

struct ls_simulation {
    struct ls_pace pace;
    struct lists lists;
    struct player *players; /* by list */
    struct cost *costs;     /* by deed */
    struct span *spans;     /* by meeting */
    int64_t player_room, cost_count, cost_room;
    ls_simulated_visit *visit;
    void *visit_user;
};

static int no_memory(struct ls_error *error)
{
    return ls_no_memory(error, "to simulate a layout");
}

int ls_simulation_new(const struct ls_layout *layout, const struct ls_pace *pace,
                      struct ls_simulation **out, struct ls_error *error)
{
    struct ls_simulation *s = *out = calloc(1, sizeof *s);
    if (!s)
        return no_memory(error);
    s->pace = *pace;
    int status = lists_init(&s->lists, layout, true, true, error);
    if (status) {
        ls_simulation_free(s);
        *out = NULL;
    }
    return status;
}

void ls_simulation_free(struct ls_simulation *s)
{
    if (!s)
        return;
    for (int64_t i = 0; i < s->lists.count && s->players; i++) {
        free(s->players[i].before);
        free(s->players[i].transfers);
        free(s->players[i].stretches);
        free(s->players[i].taken);
    }
    free(s->players);
    free(s->costs);
    free(s->spans);
    lists_release(&s->lists);
    free(s);
}

int64_t ls_simulation_alike(const struct ls_simulation *s, int64_t rank)
{
    return lists_alike(&s->lists, rank);
}

void ls_simulation_watch(struct ls_simulation *s, ls_simulated_visit *visit, void *user)
{
    s->visit = visit;
    s->visit_user = user;
}

/* ---- a rank's list --------------------------------------------------------------------------- */

/* Of the last list's deeds, which come behind those of the others. */
static bool costs_add(struct ls_simulation *s)
{
    for (; s->cost_count < s->lists.deed_count; s->cost_count++) {
        const struct deed *deed = &s->lists.deeds[s->cost_count];
        const struct ls_move_time time =
            s->pace.move(s->pace.user, s->lists.list[deed->list].rank, &deed->did);
        LS_ASSERT(time.link >= 0 && time.link < LS_PACE_LINKS_MAX);
        if (!ls_list_grow(&s->costs, s->cost_count, &s->cost_room, sizeof *s->costs))
            return false;
        s->costs[s->cost_count] = (struct cost){
            .seconds = (float)time.seconds,
            .units = (float)time.units,
            .memory = (float)time.memory,
            .link = (int8_t)time.link,
            .account =
                (int8_t)ls_account_of(s->lists.layout, (enum ls_layout_group)deed->did.group),
        };
    }
    return true;
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

/* Before the event. */
static bool stretch_add(struct player *player, int32_t event, enum ls_work_pass pass,
                        double seconds)
{
    struct stretch *last =
        player->stretch_count ? &player->stretches[player->stretch_count - 1] : NULL;
    if (last && last->event == event && last->pass == pass) {
        last->seconds += seconds;
        return true;
    }
    if (!ls_list_grow(&player->stretches, player->stretch_count, &player->stretch_room,
                      sizeof *player->stretches))
        return false;
    player->stretches[player->stretch_count++] = (struct stretch){event, pass, seconds};
    return true;
}

/* false: no memory. */
static bool before_make(struct player *player, struct list *list,
                        const struct ls_recording *recording, const int32_t *ticks,
                        const struct ls_work_time *times, int64_t second_at, bool watched)
{
    enum ls_work_pass pass = LS_WORK_PASS_NONE;
    const struct ls_recorded_work *computed = recording->done;
    const struct ls_recorded_work *end = recording->done + recording->done_count;
    for (int32_t e = 0; e < list->event_count; e++) {
        struct ls_work_time before = {0};
        for (; computed < end && computed->at < ticks[e]; computed++) {
            const struct ls_work_time *time = &times[computed->work];
            pass = computed->pass;
            before.seconds += time->seconds;
            before.units_s += time->units_s;
            before.memory_s += time->memory_s;
            if (computed->at >= second_at)
                work_count(&player->figures, &recording->works[computed->work], pass, time);
            if (watched && !stretch_add(player, e, pass, time->seconds))
                return false;
        }
        player->before[e] =
            (struct before){before.seconds, (float)before.units_s, (float)before.memory_s};
        list->events[e].pass = pass;
    }
    return true;
}

int ls_simulation_add(struct ls_simulation *s, int64_t rank, const struct ls_recording *recording,
                      int64_t second_at, struct ls_error *error)
{
    LS_ASSERT(second_at <= recording->clock);
    if (!ls_list_grow(&s->players, s->lists.count, &s->player_room, sizeof *s->players))
        return no_memory(error);
    struct player *player = &s->players[s->lists.count];
    *player = (struct player){0};
    int32_t *ticks = NULL;
    int status = lists_add(&s->lists, rank, recording, second_at, &ticks, error);
    if (status) {
        free(ticks);
        return status;
    }
    struct list *list = &s->lists.list[s->lists.count - 1];
    player->before = malloc((size_t)list->event_count * sizeof *player->before);
    player->transfers = transfers_of(s, recording);
    struct ls_work_time *times = times_of(s, recording);
    bool made = player->before && player->transfers && times && costs_add(s) &&
                before_make(player, list, recording, ticks, times, second_at, s->visit != NULL);
    free(times);
    free(ticks);
    return made ? LS_OK : no_memory(error);
}

/* ---- carrying out ---------------------------------------------------------------------------- */

/* span's times are the simulation's. */
static void span_tell(const struct ls_simulation *s, const struct player *player,
                      struct ls_simulated_span span)
{
    if (!s->visit || !player->second || span.to_s <= span.from_s)
        return;
    span.rank = s->lists.list[player - s->players].rank;
    span.from_s -= player->figures.begin_s;
    span.to_s -= player->figures.begin_s;
    s->visit(s->visit_user, &span);
}

/* The times from which the ith member of a place has its links free for others, out and in; NULL if
 * the place does not use that way. */
static double *link_free(struct player *player, const struct rendezvous *place, int i,
                         enum lane lane, int link, bool out)
{
    if (place->at.to >= 0 && out != (i == 0))
        return NULL;
    return out ? &player->out_free[lane][link] : &player->in_free[lane][link];
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
static bool taken_add(struct player *player, const struct span *meeting, const struct cost *cost)
{
    if (cost->units <= 0 && cost->memory <= 0)
        return true;
    if (!ls_list_grow(&player->taken, player->taken_count, &player->taken_room,
                      sizeof *player->taken))
        return false;
    int64_t at = player->taken_count++;
    for (; at > 0 && player->taken[at - 1].from > meeting->from; at--)
        player->taken[at] = player->taken[at - 1];
    player->taken[at] = (struct taken){meeting->from, meeting->to, cost->units, cost->memory};
    return true;
}

/* All have come: the operation begins when its links are free. false: no memory. */
static bool meeting_hold(struct ls_simulation *s, const struct rendezvous *place,
                         struct span *meeting, const struct cost *cost)
{
    const enum lane lane = lane_of((enum ls_account)cost->account);
    const int32_t *members = &s->lists.members[place->member];
    double from = meeting->from, seconds = (double)cost->seconds;
    for (int i = 0; i < place->parties; i++)
        for (int out = 0; out < 2; out++) {
            const double *is_free =
                link_free(&s->players[members[i]], place, i, lane, cost->link, out);
            from = is_free && *is_free > from ? *is_free : from;
        }
    meeting->from = from;
    meeting->to = from + seconds;
    for (int i = 0; i < place->parties; i++) {
        struct player *party = &s->players[members[i]];
        bool itself = i > 0 && members[i] == members[i - 1]; /* it sends to one that is like it */
        if (!itself && !taken_add(party, meeting, cost))
            return false;
        for (int out = 0; out < 2; out++) {
            double *is_free = link_free(party, place, i, lane, cost->link, out);
            double *bulk = link_free(party, place, i, LANE_BULK, cost->link, out);
            if (is_free)
                *is_free = meeting->to;
            if (bulk && lane != LANE_BULK)
                *bulk = fmax(*bulk, from) + seconds;
        }
    }
    return true;
}

static int operation_start(struct ls_simulation *s, int who, struct ls_error *error)
{
    const struct player *player = &s->players[who];
    const struct turn turn = lists_turn(&s->lists, who);
    struct span *meeting = &s->spans[turn.meeting];
    bool over;
    meeting->from = player->clock > meeting->from ? player->clock : meeting->from;
    int status = lists_start(&s->lists, who, &turn, &over, error);
    if (!status && over && !meeting_hold(s, turn.place, meeting, &s->costs[turn.which]))
        status = no_memory(error);
    return status;
}

/* Whether the operation is over when the player goes on; else it will be woken. */
static bool operation_wait(struct ls_simulation *s, int who)
{
    struct player *player = &s->players[who];
    const struct list *list = &s->lists.list[who];
    const struct turn turn = lists_turn(&s->lists, who);
    const struct cost *cost = &s->costs[turn.which];
    const struct span *meeting = &s->spans[turn.meeting];
    if (!ls_executor_wait(&s->lists.executor, who, turn.meeting, player->clock))
        return false;
    if (list->events[list->next].kind == EVENT_MEET)
        return true;
    double waited = meeting->to > player->clock ? meeting->to - player->clock : 0;
    double seconds = meeting->to - meeting->from;
    double hidden = seconds > waited ? seconds - waited : 0;
    double messages = turn.place->at.to >= 0 ? s->pace.message_overlap[cost->link] : 0;
    double own = (1 - fmax(s->pace.overlap, messages)) * hidden;
    span_tell(s, player,
              (struct ls_simulated_span){.account = cost->account,
                                         .operation = turn.deed->did.operation.name,
                                         .from_s = meeting->from,
                                         .to_s = meeting->to});
    player->clock += waited + own;
    if (player->second) {
        player->figures.exposed_s[cost->account] += waited + own;
        player->figures.moving_s[cost->account] += seconds;
        player->figures.pass_s[list->events[list->next].pass] += waited + own;
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
static double computed_at(const struct player *player, const struct before *before)
{
    double at = player->from_s, left = before->seconds;
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
        double slower = 1 + ((double)before->units_s * units / (1 - units) +
                             (double)before->memory_s * memory / (1 - memory)) /
                                before->seconds;
        if (at + left * slower <= until)
            return at + left * slower;
        left -= (until - at) / slower;
        at = until;
    }
    return at;
}

/* Computes what lies before the event as far as is known, and is true if that is all: operations
 * that are not known yet begin at the player's clock or later. */
static bool compute(struct player *player, const struct before *before)
{
    if (!player->computing) {
        player->computing = true;
        player->from_s = player->clock;
        taken_forget(player);
    } else if (player->taken_known == player->taken_count) {
        return true;
    }
    double end = computed_at(player, before);
    bool over = end <= player->clock;
    player->taken_known = player->taken_count;
    player->clock = fmax(end, player->clock);
    return over;
}

/* What lay before the player's next event is computed. */
static void computed_tell(const struct ls_simulation *s, int who)
{
    struct player *player = &s->players[who];
    const struct list *list = &s->lists.list[who];
    const struct before *before = &player->before[list->next];
    double from = player->from_s, took = player->clock - from;
    double slower = before->seconds > 0 ? took / before->seconds : 1;
    player->computed = true;
    if (player->second && player->taken_count > 0) {
        player->figures.compute_s += took - before->seconds;
        player->figures.contended_s += took - before->seconds;
        player->figures.pass_s[list->events[list->next].pass] += took - before->seconds;
    }
    for (; player->stretch_next < player->stretch_count; player->stretch_next++) {
        const struct stretch *stretch = &player->stretches[player->stretch_next];
        if (stretch->event > list->next)
            break;
        double to = fmin(from + stretch->seconds * slower, player->clock);
        span_tell(s, player,
                  (struct ls_simulated_span){
                      .account = -1, .pass = stretch->pass, .from_s = from, .to_s = to});
        from = to;
    }
}

/* Goes on with a player by one event. */
static int player_step(struct ls_simulation *s, int who, struct ls_error *error)
{
    struct player *player = &s->players[who];
    struct list *list = &s->lists.list[who];
    const struct before *before = &player->before[list->next];
    const struct event event = list->events[list->next];
    int status = LS_OK;
    if (!player->computed) {
        if (!compute(player, before)) { /* others may come first now */
            ls_executor_ready(&s->lists.executor, who, player->clock);
            return LS_OK;
        }
        computed_tell(s, who);
    }
    if (event.kind == EVENT_START)
        status = operation_start(s, who, error);
    if ((event.kind == EVENT_WAIT || event.kind == EVENT_MEET) && !operation_wait(s, who))
        return LS_OK;
    if (event.kind == EVENT_TRANSFER)
        transfer_start(player, &player->transfers[event.number]);
    if (event.kind == EVENT_TRANSFER_WAIT)
        transfer_wait(s, player, &player->transfers[event.number]);
    if (event.kind == EVENT_STEP) {
        player->figures.begin_s = player->clock;
        player->second = true;
    }
    if (event.kind == EVENT_END)
        player->figures.end_s = player->clock;
    player->computing = player->computed = false;
    if (++list->next < list->event_count)
        ls_executor_ready(&s->lists.executor, who, player->clock);
    return status;
}

int ls_simulation_run(struct ls_simulation *s, struct ls_error *error)
{
    int status = lists_begin(&s->lists, error);
    if (status)
        return status;
    s->spans = calloc((size_t)s->lists.meetings + 1, sizeof *s->spans);
    if (!s->spans)
        return no_memory(error);
    for (int who; !status && (who = ls_executor_next(&s->lists.executor)) >= 0;)
        status = player_step(s, who, error);
    return status ? status : lists_finish(&s->lists, error);
}

/* ---- figures --------------------------------------------------------------------------------- */

double ls_simulation_step_s(const struct ls_simulation *s)
{
    double begin = 0, end = 0;
    for (int64_t i = 0; i < s->lists.count; i++) {
        const struct ls_simulated_rank *figures = &s->players[i].figures;
        begin = figures->begin_s > begin ? figures->begin_s : begin;
        end = figures->end_s > end ? figures->end_s : end;
    }
    return end - begin;
}

const struct ls_simulated_rank *ls_simulation_rank(const struct ls_simulation *s, int64_t rank)
{
    return &s->players[s->lists.of_rank[ls_simulation_alike(s, rank)] - 1].figures;
}
