/* lockstep/plan/simulate.h - recordings carried out against a clock.
 *
 * The proof (lockstep/plan/moves.h) shows that what ranks do ends; this says when: the same lists
 * and the same executor (lockstep/comm/executor.h), with a clock. Each rank goes through its
 * recording in order: what it computes takes its time, an operation is started, and where the
 * recording waits for one the rank waits until that is over. An operation begins when all who take
 * part in it have started it and their links are free, and takes as long as the pace says. While it
 * runs, it takes units and bandwidth from what its ranks compute. Ranks that are alike are
 * simulated once. How long one thing takes is the caller's to say.
 *
 *   ls_simulation_new(layout, &pace, &simulation, error)
 *   for each rank with ls_simulation_alike(simulation, rank) == rank:
 *       ls_simulation_add(simulation, rank, &recording, second_at, error)  of ls_record_works
 *   ls_simulation_run(simulation, error)
 *   ls_simulation_step_s, ls_simulation_rank
 *   ls_simulation_free(simulation)
 *
 * Everything here is Local. */
#ifndef LOCKSTEP_PLAN_SIMULATE_H
#define LOCKSTEP_PLAN_SIMULATE_H

#include <lockstep/plan/groups.h>
#include <lockstep/plan/recording.h>

LS_C_BEGIN

enum { LS_PACE_LINKS_MAX = 8 };

/* Of a work by itself: how long it takes, and how much of that waits for units to compute and for
 * memory. The rest, such as its launch, nothing slows. */
struct ls_work_time {
    double seconds, units_s, memory_s;
};
/* Of an operation: how long it takes, which link of its ranks it occupies (< LS_PACE_LINKS_MAX;
 * each serves one operation at a time, each way), and the shares of a rank's units and of its
 * memory's bandwidth that it takes meanwhile, below 1. */
struct ls_move_time {
    double seconds, units, memory;
    int link;
};

/* How long things take; user is given to each. */
struct ls_pace {
    struct ls_work_time (*work)(void *user, const struct ls_work *work);
    /* Of rank, once all have come. */
    struct ls_move_time (*move)(void *user, int64_t rank, const struct ls_recorded *move);
    /* A transfer; those of one tier go one after the other. May be NULL if nothing is offloaded. */
    double (*transfer)(void *user, const struct ls_recorded_transfer *transfer);
    void *user;
    /* The share of a move that costs its ranks no time where they compute meanwhile: 1 if others
     * move the bytes, 0 if the ranks' own cores do. */
    double overlap;
    /* The same of messages over each link, if that is more: nobody adds what they bring. */
    double message_overlap[LS_PACE_LINKS_MAX];
};

struct ls_simulation;
int ls_simulation_new(const struct ls_layout *layout, const struct ls_pace *pace,
                      struct ls_simulation **out, struct ls_error *error);
void ls_simulation_free(struct ls_simulation *simulation);
/* The rank that rank is like. */
int64_t ls_simulation_alike(const struct ls_simulation *simulation, int64_t rank);
/* What rank does in two steps, the second from second_at on; recording is not needed any more
 * then. rank is its own ls_simulation_alike. LS_ENOTSUP as ls_move_proof_add. LS_ENOMEM. */
int ls_simulation_add(struct ls_simulation *simulation, int64_t rank,
                      const struct ls_recording *recording, int64_t second_at,
                      struct ls_error *error);

/* A stretch of a rank's second step: it computes (account -1, operation NULL) for one pass, or an
 * operation on that account, or a transfer (-1, "write" or "read"), is under way, in seconds from
 * the beginning of the second step. */
struct ls_simulated_span {
    int64_t rank;
    int account; /* enum ls_account, -1 */
    const char *operation;
    enum ls_work_pass pass; /* as recorded */
    double from_s, to_s;
};
typedef void ls_simulated_visit(void *user, const struct ls_simulated_span *span);
/* Before ls_simulation_add: visit sees all spans of second steps, rank by rank in no order. */
void ls_simulation_watch(struct ls_simulation *simulation, ls_simulated_visit *visit, void *user);

/* Every rank was added, or one that it is like. LS_ELAYOUT as ls_move_proof_finish, labels apart:
 * if ranks wait for ever, or make different operations of one. LS_ENOMEM. */
int ls_simulation_run(struct ls_simulation *simulation, struct ls_error *error);

/* Seconds of the second step: from when the last rank began it until the last one ended it. */
double ls_simulation_step_s(const struct ls_simulation *simulation);
/* A rank's second step: doubles alone. */
struct ls_simulated_rank {
    double compute_s; /* in works, each kind below, and what they lose beside operations */
    double work_s[LS_WORK_KINDS], contended_s;
    double exposed_s[LS_ACCOUNTS]; /* that it waited, or moved bytes with its own cores */
    double moving_s[LS_ACCOUNTS];  /* of its operations, hidden or not, waits for others apart */
    double offload_exposed_s, offload_s; /* the same of transfers to and from memory tiers */
    double flops;                        /* of products and attention */
    double pass_s[LS_WORK_PASSES];       /* computing, and waits behind it, transfers apart */
    double fixed_s;                      /* of works, what no operation slows */
    double begin_s, end_s;               /* since the simulation began */
};
/* Of the rank that rank is like. */
const struct ls_simulated_rank *ls_simulation_rank(const struct ls_simulation *simulation,
                                                   int64_t rank);

LS_C_END
#endif
