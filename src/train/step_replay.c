/* A step computed a second time, each rank's part by another rank. */
#include "train/step_replay.h"

#include "train/sink.h"
#include "train/workers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct replay {
    struct ls_trainer *first, *second;
    struct ls_comm *world;  /* the first's */
    struct ls_comm *turned; /* the second's: the same ranks, in other places */
    bool changed;           /* what this rank holds is not what it held after the step before */
};

bool replay_due(const struct ls_config *config, int64_t step)
{
    const uint64_t at = (uint64_t)step;
    const uint32_t counter[4] = {(uint32_t)at, (uint32_t)(at >> 32), 0, 0};
    uint32_t word[4];
    ls_philox(ls_philox_key_of((uint64_t)config->model_keys.seed, "replay"), counter, word);
    return (double)ls_uniform_of(word[0]) < config->check.replay;
}

int replay_admit(const struct ls_config *config, struct ls_error *error)
{
    if (config->check.replay <= 0)
        return LS_OK;
    if (ls_config_ranks(config) == 1)
        return ls_config_reject(config, LS_ECONFIG, "check.replay", error,
                                "a step is computed again by other ranks, and there is one: use "
                                "several, or 0");
    if (config->numerics.mode == LS_CONFIG_FAST)
        return ls_config_reject(config, LS_ECONFIG, "check.replay", error,
                                "with numerics.mode=fast a step has no bits to repeat: use "
                                "ordered, or 0");
    return LS_OK;
}

/* ---- the state goes to who has the same place ------------------------------------------------ */

/* Ranks form a ring: each sends its state to the one before it, and takes that of the next. */
struct moving {
    struct ls_state *state;
    struct ls_comm *world;
    enum ls_dtype dtype;
    int peer;
    bool sends;
};

static int piece_move(void *user, const struct ls_slice_piece *piece, struct ls_error *error)
{
    struct moving *m = user;
    int status = ls_queue_synchronise(&m->state->ops->queue, error);
    if (status)
        return status;
    return m->sends ? ls_send(m->world, piece->values, piece->count, m->dtype, m->peer, 0, error)
                    : ls_recv(m->world, piece->values, piece->count, m->dtype, m->peer, 0, error);
}

/* All arrays of a rank's slices, in one order on both sides. */
static int state_visit(struct ls_state *state, enum ls_access access, ls_slice_visit *visit,
                       enum ls_dtype *dtype, void *user, struct ls_error *error)
{
    int arrays = ls_optimizer_states_most(&state->optimizer.config), status = LS_OK;
    for (int array = LS_STATE_PARAMETERS; array < arrays && !status; array++) {
        *dtype = ls_state_type(state, array);
        for (int i = 0; i < state->params->count && !status; i++)
            if (array < ls_state_arrays(state, &state->params->list[i]))
                status = ls_slice_visit_array(&state->optimizer, &state->slices[i], array + 1,
                                              access, visit, user, error);
    }
    return status;
}

/* With the counters, which are not alike in all groups of workers. */
static int state_move(struct ls_state *state, struct ls_comm *world, int peer, bool sends,
                      struct ls_error *error)
{
    struct {
        int64_t step, samples;
        struct ls_loss_scale loss_scale;
    } counters = {state->step, state->samples, state->loss_scale};
    struct moving m = {.state = state, .world = world, .peer = peer, .sends = sends};
    int status = sends ? ls_send(world, &counters, sizeof counters, LS_U8, peer, 0, error)
                       : ls_recv(world, &counters, sizeof counters, LS_U8, peer, 0, error);
    if (status)
        return status;
    state->step = counters.step;
    state->samples = counters.samples;
    state->loss_scale = counters.loss_scale;
    return state_visit(state, sends ? LS_READS : LS_WRITES, piece_move, &m.dtype, &m, error);
}

/* When a rank sends: never at once with its neighbours. In a ring of odd length the last one has a
 * turn for itself. */
static int turn_of(int rank, int ranks)
{
    return rank == ranks - 1 && ranks % 2 ? 2 : rank % 2;
}

static int unit_turn(struct replay *r, int u, struct ls_error *error)
{
    struct ls_state *from = &r->first->units[u], *to = &r->second->units[u];
    int ranks = ls_comm_size(r->world), rank = ls_comm_rank(r->world);
    int before = (rank + ranks - 1) % ranks, next = (rank + 1) % ranks;
    int status = ls_state_settle(from, error);
    for (int turn = 0; turn < 3 && !status; turn++) {
        if (turn_of(rank, ranks) == turn)
            status = state_move(from, r->world, before, true, error);
        if (turn_of(next, ranks) == turn && !status)
            status = state_move(to, r->world, next, false, error);
    }
    if (!status)
        status = ls_state_publish(to, error);
    return status ? status : ls_state_settle(to, error);
}

static int state_turn(struct replay *r, struct ls_error *error)
{
    int status = ls_state_settle(r->second->state, error);
    for (int u = 0; u < r->first->unit_count && !status; u++)
        status = unit_turn(r, u, error);
    return status || !r->second->workers ? status : workers_at_meeting(r->second, error);
}

/* ---- what a rank holds ----------------------------------------------------------------------- */

struct digesting {
    struct ls_state *state;
    enum ls_dtype dtype;
    int64_t pieces;
    struct ls_digest digest;
};

static int piece_digest(void *user, const struct ls_slice_piece *piece, struct ls_error *error)
{
    struct digesting *d = user;
    int status = ls_queue_synchronise(&d->state->ops->queue, error);
    if (!status)
        ls_digest_piece(&d->digest, "piece", d->pieces++, piece->from, piece->values,
                        (size_t)piece->count * ls_dtype_bytes(d->dtype));
    return status;
}

/* Of all units. */
static int held_digest(struct ls_trainer *t, struct ls_digest *digest, struct ls_error *error)
{
    struct digesting d = {0};
    int status = LS_OK;
    for (int u = 0; u < t->unit_count && !status; u++) {
        d.state = &t->units[u];
        status = ls_state_settle(d.state, error);
        if (!status)
            status = state_visit(d.state, LS_READS, piece_digest, &d.dtype, &d, error);
    }
    *digest = d.digest;
    return status;
}

/* Between two steps that are replayed nothing may change: the second trainer begins with what the
 * first one has, so no replay would show it. */
static int held_look(struct replay *r, struct ls_error *error)
{
    struct ls_trainer *first = r->first;
    struct ls_digest now = first->held;
    int status = LS_OK;
    if (first->held_step > 0 && first->held_step == first->state->step)
        status = held_digest(first, &now, error);
    r->changed = now.low != first->held.low || now.high != first->held.high;
    return status;
}

int replay_new(struct ls_trainer *trainer, struct replay **out, struct ls_error *error)
{
    struct ls_comm *world = trainer->whole;
    int ranks = ls_comm_size(world), rank = ls_comm_rank(world);
    struct replay *r = calloc(1, sizeof *r);
    struct ls_config config = trainer->config;
    *out = r;
    int status = r ? LS_OK : ls_no_memory(error, "for a replay");
    status = ls_comm_agree(world, status, error);
    if (status)
        return status;
    r->first = trainer;
    r->world = world;
    config.check.replay = 0; /* its memory alone */
    config.log.trace = config.log.profile = false;
    if (trainer->workers && !*config.async.follow) /* it records nothing of its own */
        memcpy(config.async.follow, config.train.out, sizeof config.async.follow);
    /* Its state comes from the first, and what it offloads must not lie in the place of that. */
    snprintf(config.train.resume, sizeof config.train.resume, "never");
    config.model_keys.from[0] = config.lora.from[0] = '\0';
    if (config.memory.file[0])
        snprintf(config.memory.file, sizeof config.memory.file, "%.*s/" REPLAY_FOLDER,
                 (int)(sizeof config.memory.file - sizeof "/" REPLAY_FOLDER),
                 trainer->config.memory.file);
    status = ls_comm_split(world, 0, (rank + 1) % ranks, &r->turned, error);
    if (!status)
        status = trainer_new(&config, &trainer->layout, true, r->turned, NULL, &r->second, error);
    if (config.memory.file[0] && sink_refused(status)) { /* on all ranks */
        if (rank == 0)
            ls_log(trainer->log, LS_LOG_WARNING, "step %ld is not computed twice: %s",
                   (long)ls_trainer_steps(trainer) + 1, error->text);
        replay_free(r);
        *out = NULL;
        return LS_OK;
    }
    if (!status)
        status = ls_comm_agree(world, held_look(r, error), error);
    return status ? status : state_turn(r, error);
}

void replay_free(struct replay *replay)
{
    if (!replay)
        return;
    ls_trainer_free(replay->second);
    ls_comm_free(replay->turned);
    free(replay);
}

/* ---- the verdict ----------------------------------------------------------------------------- */

/* Whose fault explains all differences: place i was computed by rank i, and again by the rank
 * before it, so a faulty rank is seen in its own place and in the next. Returns how many ranks
 * there are; found holds two of them. */
static int suspects(const bool *differs, int ranks, int found[2])
{
    int count = 0;
    for (int rank = 0; rank < ranks; rank++) {
        bool explains = true;
        for (int place = 0; place < ranks; place++)
            explains &= !differs[place] || place == rank || place == (rank + 1) % ranks;
        if (explains)
            found[count++ > 0] = rank;
    }
    return count;
}

/* What a person is told of the way back. */
static void newest_tell(const struct ls_state *state, char text[64])
{
    snprintf(text, 64, "there is no checkpoint");
    if (state->saved_step >= 0)
        snprintf(text, 64, "the newest checkpoint is of step %ld", (long)state->saved_step);
}

static int difference_refuse(const struct replay *r, const bool *differs, int ranks,
                             struct ls_error *error)
{
    const struct ls_state *state = r->first->state;
    int found[2], count = suspects(differs, ranks, found);
    char who[120] = "of one of the ranks", newest[64];
    if (count == 1)
        snprintf(who, sizeof who, "of %s", ls_comm_rank_text(r->world, found[0]).text);
    else if (count == 2)
        snprintf(who, sizeof who, "of rank %d or rank %d", found[0], found[1]);
    newest_tell(state, newest);
    char steps[64];
    snprintf(steps, sizeof steps, "step %ld was", (long)state->step);
    if (r->first->workers)
        snprintf(steps, sizeof steps, "the %ld steps of workers up to step %ld were",
                 (long)ls_config_interval(&r->first->config), (long)state->step);
    ls_error_set(error, LS_ENUMERIC,
                 "%s computed twice, each part by two ranks, and the results differ: memory or "
                 "arithmetic %s is faulty. Go on on other hardware (%s)",
                 steps, who, newest);
    ls_error_blame(error, LS_CAUSE_FAULTY, count == 1 ? ls_comm_rank_host(r->world, found[0]) : "");
    return LS_ENUMERIC;
}

/* Collective. Which parts differ. */
static int difference_tell(struct replay *r, struct ls_error *error)
{
    struct held {
        struct ls_digest first, second;
    } mine, *all;
    int ranks = ls_comm_size(r->world);
    bool *differs = calloc((size_t)ranks, sizeof *differs);
    all = calloc((size_t)ranks, sizeof *all);
    int status = all && differs ? LS_OK : ls_no_memory(error, "for %d digests", ranks);
    if (!status)
        status = held_digest(r->first, &mine.first, error);
    if (!status)
        status = held_digest(r->second, &mine.second, error);
    status = ls_comm_agree(r->world, status, error);
    if (!status)
        status = ls_all_gather(r->world, &mine, all, sizeof mine / sizeof(uint64_t), LS_U64, error);
    for (int i = 0; i < ranks && !status; i++) {
        const struct ls_digest *once = &all[i].first;
        const struct ls_digest *again = &all[(i + ranks - 1) % ranks].second;
        differs[i] = once->low != again->low || once->high != again->high;
    }
    if (!status)
        status = difference_refuse(r, differs, ranks, error);
    free(differs);
    free(all);
    return status;
}

/* Local. What this rank held between two steps. */
static int change_refuse(const struct replay *r, struct ls_error *error)
{
    int rank = ls_comm_rank(r->world);
    char newest[64];
    if (!r->changed)
        return LS_OK;
    newest_tell(r->first->state, newest);
    ls_error_set(error, LS_ENUMERIC,
                 "what rank %d holds changed between steps %ld and %ld: memory of %s is faulty. Go "
                 "on on other hardware (%s)",
                 rank, (long)r->first->held_step, (long)r->first->state->step,
                 ls_comm_rank_text(r->world, rank).text, newest);
    ls_error_blame(error, LS_CAUSE_FAULTY, ls_comm_rank_host(r->world, rank));
    return LS_ENUMERIC;
}

int replay_judge(struct replay *replay, struct ls_digest *hash, struct ls_error *error)
{
    struct ls_step_report report;
    struct ls_digest again;
    struct ls_trainer *first = replay->first;
    int status = ls_comm_agree(replay->world, change_refuse(replay, error), error);
    if (status)
        return status;
    do
        status = ls_trainer_step(replay->second, &report, error);
    while (!status && !ls_trainer_meets(replay->second));
    if (status == LS_ENUMERIC) {
        ls_error_suffix(error, "; the step was computed a second time, and the first time it was "
                               "finite: memory or arithmetic of a rank is faulty");
        ls_error_blame(error, LS_CAUSE_FAULTY, "");
    }
    if (!status)
        status = ls_trainer_hash(replay->first, hash, error);
    if (!status)
        status = ls_trainer_hash(replay->second, &again, error);
    if (!status && (hash->low != again.low || hash->high != again.high))
        status = difference_tell(replay, error);
    if (status)
        return status;
    first->held_step = first->state->step;
    return ls_comm_agree(replay->world, held_digest(first, &first->held, error), error);
}
