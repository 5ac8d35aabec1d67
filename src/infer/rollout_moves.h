/* Which bytes of weights go where between two layouts of the same ranks. */
#ifndef INFER_ROLLOUT_MOVES_H
#define INFER_ROLLOUT_MOVES_H

#include <lockstep/plan.h>

/* Rows in a rank's weights of one layout. */
struct rollout_side {
    int unit;
    bool matrix;         /* of its matrices, or its vectors */
    size_t offset, step; /* of the first row there, and from row to row */
};

/* A rectangle of a parameter. Members are ranks of one copy of the model, by pp and tp. */
struct rollout_move {
    int layer; /* of the unit that it comes from */
    int from, to;
    int64_t order;
    bool frozen; /* of a parameter that is not trained */
    int64_t rows;
    size_t bytes; /* of a row */
    struct rollout_side source, target;
};

struct rollout_moves {
    int members, me;
    int *ranks; /* [members]: of the world */
    int *lent;  /* [units of the target here]: the unit of the source whose memory it is, -1: it has
                 * its own */
    struct rollout_move *list; /* [count]: those of this member, by layer, from and to */
    int64_t count, room;
    size_t sent_max, came_max; /* of one layer, to and from one other member */
    bool frozen_held;          /* moves of frozen parameters are over: none of these passes */
};
/* Local. steady: a unit of the source lies in the same place as long as the target is used. */
int rollout_moves_init(struct rollout_moves *moves, const struct ls_layout *from,
                       const struct ls_layout *to, int64_t rank, bool steady,
                       struct ls_error *error);
void rollout_moves_release(struct rollout_moves *moves);
/* The end of the moves of list[i]'s layer. */
int64_t rollout_moves_end(const struct rollout_moves *moves, int64_t i);
/* Whether move i goes from that member to that one, and has to be made. */
bool rollout_moves_passes(const struct rollout_moves *moves, int64_t i, int from, int to);
/* Bytes of moves [first, end) from one member to another. */
size_t rollout_moves_bytes(const struct rollout_moves *moves, int64_t first, int64_t end, int from,
                           int to);
/* Local. bytes[count]: what ranks first, ... take for weights and for messages. Time and memory are
 * those of the ranks of one copy of the model, for each kind of place that copies have in `to`. */
int rollout_moves_ranks_bytes(const struct ls_layout *from, const struct ls_layout *to, bool steady,
                              int64_t first, int64_t count, size_t *bytes, struct ls_error *error);

#endif
