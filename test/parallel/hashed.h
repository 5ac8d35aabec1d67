/* A pipeline whose stages are hashes: a wrong, stale or missing number anywhere changes all that
 * follows, and the order of micro-batches is part of each stage's sum. */
#ifndef TEST_PARALLEL_HASHED_H
#define TEST_PARALLEL_HASHED_H

#include <lockstep/parallel/pipeline.h>

struct hashed_job {
    const struct ls_schedule *schedule;
    int fail_stage; /* whose forward of micro-batch 1 fails; -1: none */
    bool shake;     /* sleep now and then */
    int steps;
};

/* Collective over the schedule's ranks. Runs the steps and compares the sums of this rank's stages
 * with those of one rank that computes everything one by one: LS_ENUMERIC names the stage. */
int hashed_run(struct ls_comm *comm, const struct hashed_job *job, struct ls_error *error);

#endif
