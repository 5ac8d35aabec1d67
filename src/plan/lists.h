/* What ranks of a layout do, as lists that meet: what the proof and the simulation carry out.
 * Private to plan. */
#ifndef PLAN_LISTS_H
#define PLAN_LISTS_H

#include <lockstep/comm/executor.h>
#include <lockstep/plan/groups.h>
#include <lockstep/plan/recording.h>

/* What a rank comes to next: its last step ends, it starts operation or transfer `number`, or waits
 * for it, or its second step begins. Behind the end it meets others in what it did not wait for. */
enum event_kind {
    EVENT_END,
    EVENT_START,
    EVENT_WAIT,
    EVENT_TRANSFER,
    EVENT_TRANSFER_WAIT,
    EVENT_STEP,
    EVENT_MEET
};
enum { EVENT_NUMBER_BITS = 25 };
struct event {
    uint32_t kind : 3, number : EVENT_NUMBER_BITS;
    uint32_t pass : 4; /* of a simulation: enum ls_work_pass of what was computed last before */
};

enum { DEED_LABEL_BYTES = 48 };
/* What a rank does again and again: an operation but for its turn. */
struct deed {
    struct ls_recorded did; /* its label is the recording's, gone after it was added */
    char label[DEED_LABEL_BYTES];
    int32_t place, list;
};

/* One operation of a rank: the nth at its deed's place. */
struct act {
    int32_t deed, nth;
};

struct list {
    int64_t rank;
    int64_t alike; /* ranks that do the same, this one too */
    struct event *events;
    struct act *acts; /* by number of the operation */
    int32_t event_count;
    int32_t next; /* event */
};

/* A group of ranks, by its first one (to is -1); or the way of messages of one tag from one to
 * another. Ranks are those that stand for all that are alike. */
struct meeting_place {
    int64_t group, tag, from, to;
};

struct rendezvous {
    struct meeting_place at;
    int64_t meeting; /* the number of its first */
    int32_t meetings;
    int32_t parties;   /* of each meeting */
    int32_t member;    /* members[member .. + parties): lists; of a message the sender's, then the
                          receiver's */
    int32_t visitor;   /* the last list that was added here, from 1 */
    int32_t visits[2]; /* of it, as the sender of a message and as its receiver */
};

struct lists {
    const struct ls_layout *layout;
    int64_t *shard_alike; /* [dp_shard] the first that does the same; NULL: every rank for itself */
    bool timed, folds;    /* folds: what ranks do in a row where matrices meet is one operation */
    struct list *list;
    int *of_rank; /* [ranks] list, from 1 */
    struct rendezvous *places;
    int32_t *places_table; /* open: number + 1; its room is a power of two */
    int32_t *members;
    struct deed *deeds; /* of all lists, one after the other */
    int32_t *firsts;    /* [meetings] the deed of who came first, from 1 */
    int64_t count, room, place_count, place_room, table_room, meetings;
    int64_t deed_count, deed_room;
    struct ls_executor executor;
};

/* alike: of ranks that do the same, one stands for all. timed: lists have transfers,
 * labels are left out, and where matrices meet each rank meets itself alone; otherwise alike ranks
 * meet there once for all that they do in a row (lockstep/plan/moves.h). LS_ENOMEM, after which
 * lists are to be released too. */
int lists_init(struct lists *lists, const struct ls_layout *layout, bool alike, bool timed,
               struct ls_error *error);
void lists_release(struct lists *lists);
/* The rank that stands for rank. */
int64_t lists_alike(const struct lists *lists, int64_t rank);
/* What rank does, the second step from second_at on. *ticks, unless NULL: when each event was by
 * the recording's clock, to be freed by the caller after errors too. LS_ENOTSUP: it does more than
 * events can number. LS_ENOMEM. */
int lists_add(struct lists *lists, int64_t rank, const struct ls_recording *recording,
              int64_t second_at, int32_t **ticks, struct ls_error *error);
/* All lists were added: what ls_executor_next needs. LS_EINVAL if a rank's is missing. */
int lists_begin(struct lists *lists, struct ls_error *error);

/* An operation of a list: that of its next event. */
struct turn {
    const struct deed *deed;
    const struct rendezvous *place;
    int64_t meeting; /* its number */
    int32_t which;   /* the number of the deed */
    int32_t nth;     /* at the place */
};
static inline struct turn lists_turn(const struct lists *lists, int who)
{
    const struct list *list = &lists->list[who];
    const struct act *act = &list->acts[list->events[list->next].number];
    const struct deed *deed = &lists->deeds[act->deed];
    const struct rendezvous *place = &lists->places[deed->place];
    return (struct turn){deed, place, place->meeting + act->nth, act->deed, act->nth};
}
/* List `who` starts it: *over if all have come. LS_ELAYOUT if another rank makes another operation
 * of it. */
int lists_start(struct lists *lists, int who, const struct turn *turn, bool *over,
                struct ls_error *error);
/* Once nobody goes on. LS_ELAYOUT if some wait for ever. */
int lists_finish(const struct lists *lists, struct ls_error *error);

#endif
