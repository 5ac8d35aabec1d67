/* lockstep/parallel/context.h - context parallel: a sequence's tokens among cp ranks.
 *
 * A sequence is cut in S tiles (numerics.seq_tiles). Causal attention makes late tokens dearer than
 * early ones, so tile r is two half chunks of T/2S tokens, r and 2S - 1 - r: all tiles cost the
 * same (the zig-zag of Llama 3, Dubey et al. 2024, and of striped and ring attention, Liu et al.
 * 2023). Rank c of cp holds tiles [c S/cp, (c + 1) S/cp). The tiles belong to the recipe, because
 * sums over tokens are sums over tiles (law of sums, S4); who holds them does not.
 *
 * Queries stay where they are. Keys and values of the whole sequence come to each rank, either all
 * at once (all-gather) or in blocks handed from rank to rank (ring); either way a query row sees
 * them in ascending order. */
#ifndef LOCKSTEP_PARALLEL_CONTEXT_H
#define LOCKSTEP_PARALLEL_CONTEXT_H

#include <lockstep/comm.h>
#include <lockstep/ops.h>

LS_C_BEGIN

enum ls_cp_method { LS_CP_ALL_GATHER, LS_CP_RING };
/* A ring has sends to all ranks under way, besides what moves keys and values. */
enum { LS_CP_RING_RANKS_MAX = LS_COMM_PENDING_MAX - 4 };

struct ls_cp {
    struct ls_comm *comm; /* borrowed; its size and rank are cp's; NULL for a group of one */
    int size, rank;
    enum ls_cp_method method;
};
/* Local. What a recipe admits: sequences of that many tokens in that many tiles. LS_ELAYOUT with
 * the reason unless tiles is 1, or cuts them in attention blocks, and a leaf is one sequence. */
int ls_seq_tiles_admit(int64_t seq_tiles, int64_t tokens, int64_t leaf_sequences,
                       struct ls_error *error);
/* Local. Whether cp ranks can share the tiles by that method: each has a power of two of them, a
 * subtree. LS_ELAYOUT with the reason. */
int ls_cp_admits(int64_t cp, int64_t seq_tiles, enum ls_cp_method method, struct ls_error *error);

/* Local. comm is borrowed; NULL is a group of one. */
void ls_cp_init(struct ls_cp *cp, struct ls_comm *comm, enum ls_cp_method method);

/* The rows of a sequence held by a rank, in their order: tile by tile. With seq_tiles == 1 that is
 * the sequence itself. Segment i < ls_segments(S, cp) of rank cp_rank is tokens
 * [*first, *first + *count) of it. Local. */
int ls_segments(int64_t seq_tiles, int64_t cp);
void ls_segment(int64_t seq_tiles, int64_t cp, int64_t cp_rank, int64_t tokens, int i,
                int64_t *first, int64_t *count);

/* Rows of one sequence: [tokens, width] dtype, T being tokens. */
struct ls_cp_rows {
    int64_t seq_tiles, tokens, width;
    enum ls_dtype dtype;
};
/* Collective over cp (Local in a group of one). natural [T, width] = all rows of one sequence in
 * the order of its tokens, of which this rank brings own [T/cp, width], row distance ld, in the
 * order of its segments. staging [T, width]: not used in a group of one. */
int ls_cp_gather(const struct ls_cp *cp, struct ls_ops *ops, const struct ls_cp_rows *rows,
                 const void *own, int64_t ld, void *staging, void *natural, struct ls_error *error);
/* Collective over cp (Local in a group of one). dtype is LS_F32. natural: `parts` matrices [T,
 * width], one behind the other; own: as many [T/cp, width] = this rank's rows, in the order of its
 * segments, of the tree sum over ranks. staging [parts, T, width]; own may be natural. */
int ls_cp_reduce(const struct ls_cp *cp, struct ls_ops *ops, const struct ls_cp_rows *rows,
                 int parts, const float *natural, float *staging, float *own,
                 struct ls_error *error);

LS_C_END
#endif
