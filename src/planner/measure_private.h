/* planner/measure_private.h - what the files that measure share. */
#ifndef PLANNER_MEASURE_PRIVATE_H
#define PLANNER_MEASURE_PRIVATE_H

#include <lockstep/base/median.h>
#include <lockstep/planner/measure.h>

/* What a row is of, in the order of rows. */
enum { MEASURE_KEY = 7 };
struct measure_key {
    int64_t part[MEASURE_KEY];
};
struct measure_key measure_work_key(const struct ls_measured_work *row);
struct measure_key measure_move_key(const struct ls_measured_move *row);

int measure_cores(const struct ls_measure *measure);
/* Teams of so many threads that keep the cores busy. */
int measure_teams(const struct ls_measure *measure, int threads);
/* Puts the work's row into the measured cluster; bytes 0: those of every row of its shape. */
int measure_row_add(const struct ls_measure *measure, int threads, const struct ls_work *work,
                    int64_t bytes, double seconds, struct ls_error *error);
/* Latency and rate of the link, from the cluster's messages among so many ranks; false: it has
 * none. */
bool measure_link(const struct ls_cluster *cluster, int ranks, struct ls_cluster_link *link);
/* Collective. Messages to and from peer (-1: of none), all pairs of the world at once: rows of as
 * many ranks as the world has go to the cluster of rank 0. Over a slow link the largest are left
 * out. */
int measure_messages(const struct ls_measure *measure, struct ls_comm *world, int peer,
                     struct ls_error *error);
/* Collective. The share of such messages that hides behind computation beside them. */
int measure_overlap(struct ls_comm *world, int peer, double *overlap, struct ls_error *error);

#endif
