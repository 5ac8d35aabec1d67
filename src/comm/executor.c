/* Lists of operations carried out on paper: players that are ready, and those that wait. */
#include <lockstep/comm/executor.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int ls_executor_init(struct ls_executor *executor, int players, int64_t meetings, bool clocked,
                     struct ls_error *error)
{
    *executor = (struct ls_executor){.player_count = players, .clocked = clocked};
    executor->players = calloc((size_t)players + 1, sizeof *executor->players);
    executor->meetings = calloc((size_t)meetings + 1, sizeof *executor->meetings);
    executor->ready = calloc((size_t)players + 1, sizeof *executor->ready);
    if (!executor->players || !executor->meetings || !executor->ready) {
        ls_executor_release(executor);
        return ls_no_memory(error, "to carry out the lists of %d ranks", players);
    }
    for (int who = players; who-- > 0;) {
        executor->players[who].meeting = -1;
        ls_executor_ready(executor, who, 0);
    }
    return LS_OK;
}

void ls_executor_release(struct ls_executor *executor)
{
    free(executor->players);
    free(executor->meetings);
    free(executor->ready);
    *executor = (struct ls_executor){0};
}

/* ---- who goes on ----------------------------------------------------------------------------- */

static bool sooner(struct ls_executor_ready a, struct ls_executor_ready b)
{
    return a.at < b.at || (a.at == b.at && a.player < b.player);
}

void ls_executor_ready(struct ls_executor *executor, int who, double at)
{
    struct ls_executor_ready *ready = executor->ready, one = {at, who};
    if (executor->clocked && !executor->holds) {
        executor->held = one;
        executor->holds = true;
        return;
    }
    int slot = executor->ready_count++;
    for (; executor->clocked && slot > 0 && sooner(one, ready[(slot - 1) / 2]);
         slot = (slot - 1) / 2)
        ready[slot] = ready[(slot - 1) / 2];
    ready[slot] = one;
}

int ls_executor_next(struct ls_executor *executor)
{
    struct ls_executor_ready *ready = executor->ready;
    const bool holds = executor->holds;
    executor->holds = false;
    if (holds && (executor->ready_count == 0 || sooner(executor->held, ready[0])))
        return executor->held.player;
    if (executor->ready_count == 0)
        return -1;
    const struct ls_executor_ready last = holds ? executor->held : ready[--executor->ready_count];
    if (!executor->clocked || executor->ready_count == 0)
        return last.player;
    const int first = ready[0].player;
    int slot = 0;
    for (int child; (child = 2 * slot + 1) < executor->ready_count; slot = child) {
        if (child + 1 < executor->ready_count && sooner(ready[child + 1], ready[child]))
            child++;
        if (!sooner(ready[child], last))
            break;
        ready[slot] = ready[child];
    }
    ready[slot] = last;
    return first;
}

bool ls_executor_start(struct ls_executor *executor, int64_t meeting, int parties)
{
    struct ls_executor_meeting *started = &executor->meetings[meeting];
    if (++started->came < parties)
        return false;
    for (int waiting = started->waiting; waiting > 0;) {
        struct ls_executor_player *player = &executor->players[waiting - 1];
        ls_executor_ready(executor, waiting - 1, player->at);
        player->meeting = -1;
        waiting = player->next;
    }
    started->waiting = LS_EXECUTOR_OVER;
    return true;
}

bool ls_executor_wait(struct ls_executor *executor, int who, int64_t meeting, double at)
{
    struct ls_executor_meeting *waited = &executor->meetings[meeting];
    if (waited->waiting == LS_EXECUTOR_OVER)
        return true;
    executor->players[who] = (struct ls_executor_player){at, meeting, waited->waiting};
    waited->waiting = who + 1;
    return false;
}

/* ---- who waits for ever ---------------------------------------------------------------------- */

int ls_executor_finish(const struct ls_executor *executor, const struct ls_executor_words *words,
                       struct ls_error *error)
{
    int who = 0, more = 0;
    while (who < executor->player_count && executor->players[who].meeting < 0)
        who++;
    if (who == executor->player_count)
        return LS_OK;
    for (int i = 0; i < executor->player_count; i++) { /* into the circle, or up to its end */
        int absent = words->absent(words->user, who);
        who = executor->players[absent].meeting < 0 ? who : absent;
    }
    const int first = who;
    char text[900] = "", one[400];
    size_t used = 0;
    do {
        int absent = words->absent(words->user, who);
        words->waits(words->user, who, absent, one, sizeof one);
        size_t bytes = strlen(one);
        if (more || used + bytes + 3 > sizeof text)
            more++;
        else
            used +=
                (size_t)snprintf(text + used, sizeof text - used, "%s%s", used ? "; " : "", one);
        who = absent;
    } while (who != first && executor->players[who].meeting >= 0);
    if (more)
        snprintf(one, sizeof one, "; and %d more", more);
    return ls_error_set(error, LS_ELAYOUT, "%sdeadlock: %s%s, %s", words->where, text,
                        more ? one : "",
                        who == first ? "and so on in a circle" : "which ends without it");
}
