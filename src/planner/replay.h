/* planner/replay.h - what replay.c and replay_ops.c share: buffers of a replay. */
#ifndef PLANNER_REPLAY_H
#define PLANNER_REPLAY_H

#include <lockstep/planner/measure.h>

enum { REPLAY_RECENT = 8, REPLAY_TAKEN = 16 };

struct replay_span {
    unsigned char *at;
    size_t bytes;
};

struct ls_replay {
    struct ls_ops ops;
    struct ls_replay_hints hints;
    bool alone;
    struct ls_arena read, write; /* the rings */
    size_t read_at, write_at;
    struct replay_span recent[REPLAY_RECENT]; /* the last outputs, the newest first */
    struct replay_span taken[REPLAY_TAKEN];   /* by this op */
    int taken_count;
    int32_t *ids; /* [ids_count], of which ids_filled are there, below ids_below */
    int64_t ids_count, ids_filled, ids_below;
    unsigned turn; /* of ops that tell the same and take turns */
    /* While measuring no op runs: only what it would take is counted. */
    bool measuring;
    size_t read_need, write_need, flow_need;
    int64_t ids_need;
    double begin_s;
};

/* An operand that was last touched long ago. */
void *replay_read(struct ls_replay *r, size_t bytes);
/* Memory for a result, or for states that are read and written, touched long ago. */
void *replay_state(struct ls_replay *r, size_t bytes);
/* The same; later ops may find it by its size. */
void *replay_out(struct ls_replay *r, size_t bytes);
/* What an op before has left: the newest output of that size that this op does not use yet. */
void *replay_flow(struct ls_replay *r, size_t bytes);
/* The same of what may be a part of it, as a sequence is of a micro-batch: parts in turn. */
void *replay_flow_part(struct ls_replay *r, size_t bytes);
/* [count] numbers in [0, below). */
const int32_t *replay_ids(struct ls_replay *r, int64_t count, int64_t below);
/* Buffers are there: the op begins. False: it does not run. */
bool replay_begins(struct ls_replay *r);

/* Takes the buffers of work and, where begun, runs it. */
int replay_work(struct ls_replay *r, const struct ls_work *work, struct ls_error *error);

#endif
