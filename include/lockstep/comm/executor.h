/* lockstep/comm/executor.h - who goes on, who waits and who waits for ever, where lists of
 * operations are carried out on paper.
 *
 * A player is a rank on its way through a list. Players meet: each starts the meeting when it comes
 * to it, without waiting, and the meeting is over when all its parties have. A player that waits
 * for a meeting is held up until it is over. What lists hold, what meetings are and how long
 * anything takes is the caller's to say.
 *
 *   ls_executor_init(&executor, players, meetings, clocked, error)
 *   while ((who = ls_executor_next(&executor)) >= 0)
 *       go on with who: ls_executor_start, ls_executor_wait, until
 *           ls_executor_wait is false,
 *           ls_executor_ready(&executor, who, at)     others may come first now, or
 *           it comes to the end of its list
 *   ls_executor_finish(&executor, &words, error)      nobody waits for ever
 *   ls_executor_release(&executor)
 *
 * clocked: players go on in the order of their times, those of one time in the order of their
 * numbers, so that who comes first to something has it first. Otherwise times are not looked at: a
 * player that can go on still can later, so if one order comes to the end, each does.
 *
 * Everything here is Local. Time: O(1) a call, O(log players) if clocked. */
#ifndef LOCKSTEP_COMM_EXECUTOR_H
#define LOCKSTEP_COMM_EXECUTOR_H

#include <lockstep/base.h>

LS_C_BEGIN

struct ls_executor_player {
    double at;       /* it goes on at that time, once the meeting is over */
    int64_t meeting; /* that it waits for, -1: none */
    int next;        /* of those that wait for the same meeting: player + 1 */
};
struct ls_executor_meeting {
    int came;    /* parties that have started it */
    int waiting; /* the first player that waits for it, + 1; LS_EXECUTOR_OVER */
};
enum { LS_EXECUTOR_OVER = -1 };
struct ls_executor_ready {
    double at;
    int player;
};
/* Read-only for callers. */
struct ls_executor {
    struct ls_executor_player *players;
    struct ls_executor_meeting *meetings;
    struct ls_executor_ready *ready; /* a heap if clocked, else a stack */
    struct ls_executor_ready held;   /* beside the heap: most that are ready again go on at once */
    int player_count, ready_count;
    bool clocked, holds;
};

/* Every player is ready, at time 0. LS_ENOMEM. */
int ls_executor_init(struct ls_executor *executor, int players, int64_t meetings, bool clocked,
                     struct ls_error *error);
void ls_executor_release(struct ls_executor *executor);

/* The player to go on with, which is not ready any more; -1: none is. */
int ls_executor_next(struct ls_executor *executor);
void ls_executor_ready(struct ls_executor *executor, int who, double at);
/* One of so many parties starts the meeting. true: it was the last, and the meeting is over. */
bool ls_executor_start(struct ls_executor *executor, int64_t meeting, int parties);
/* true: the meeting is over. false: who is ready, at that time, once it is. */
bool ls_executor_wait(struct ls_executor *executor, int who, int64_t meeting, double at);

/* How a deadlock is told; user is given to each. */
struct ls_executor_words {
    /* A player that has not come to the meeting for which who waits. */
    int (*absent)(void *user, int who);
    /* "rank 3 waits in its all_gather for rank 4": of who, for the absent one. */
    void (*waits)(void *user, int who, int absent, char *text, size_t bytes);
    void *user;
    const char *where; /* before the text: "schedule: ", "" */
};
/* Once nobody is ready. LS_ELAYOUT if somebody still waits: the text tells who waits for whom, in a
 * circle or up to a player that ended without coming. */
int ls_executor_finish(const struct ls_executor *executor, const struct ls_executor_words *words,
                       struct ls_error *error);

LS_C_END
#endif
