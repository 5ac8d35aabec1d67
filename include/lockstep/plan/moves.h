/* lockstep/plan/moves.h - what a layout moves: each rank's collectives and messages of a step,
 * derived from layout and schedule alone, before anything runs.
 *
 *   ls_layout_moves     one rank's list, in order
 *   ls_layout_check     proof over all ranks: every group's ranks agree, every send has its receive
 *   ls_layout_bytes     the same summed up, by formulas
 *   ls_layout_memory    what a rank keeps, by formulas
 *
 * M is the rows of a micro-batch on a rank, B T / cp; C channels; a the bytes of the compute type.
 * Bytes are counted as struct ls_comm_stats counts them. Everything here is Local.
 */
#ifndef LOCKSTEP_PLAN_MOVES_H
#define LOCKSTEP_PLAN_MOVES_H

#include <lockstep/comm.h>
#include <lockstep/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- one rank's list ------------------------------------------------------------------------ */

enum ls_layout_group {
    LS_GROUP_TP,
    LS_GROUP_SHARERS,   /* tp ranks that hold the same key/value head */
    LS_GROUP_CP,        /* keys and values */
    LS_GROUP_SHARD,     /* of struct ls_zero_options */
    LS_GROUP_REPLICATE, /* of struct ls_zero_options */
    LS_GROUP_PP,
    /* The loss, a few bytes: over dp_replicate x dp_shard, or one after the other. */
    LS_GROUP_DP,
    LS_GROUP_DP_SHARD,
    LS_GROUP_DP_REPLICATE,
    LS_GROUP_OWNERS, /* ranks that together hold the state once: the gradient's norm */
    LS_GROUP_WORLD,  /* agreement */
    LS_GROUPS
};
/* "tp", "sharers", ... */
const char *ls_group_name(enum ls_layout_group group);
/* Ranks of the group, and this rank's number in it. */
int64_t ls_group_size(const struct ls_layout *layout, enum ls_layout_group group);
int64_t ls_group_rank(const struct ls_layout *layout, enum ls_layout_group group, int64_t rank);
/* The world's rank of member i of rank's group. */
int64_t ls_group_member(const struct ls_layout *layout, enum ls_layout_group group, int64_t rank,
                        int64_t i);

/* What a group's bytes and waits are accounted to: its axis. tp: sharers too; dp_shard and
 * dp_replicate: the two groups of ZeRO; other: the loss, the norm, agreement. */
enum ls_account {
    LS_ACCOUNT_TP,
    LS_ACCOUNT_CP,
    LS_ACCOUNT_PP,
    LS_ACCOUNT_SHARD,
    LS_ACCOUNT_REPLICATE,
    LS_ACCOUNT_OTHER,
    LS_ACCOUNTS
};
/* "tp", "cp", "pp", "dp_shard", "dp_replicate", "other" */
const char *ls_account_name(enum ls_account account);
enum ls_account ls_account_of(enum ls_layout_group group);
/* Whether a rank of the layout has anybody to talk to on that account. */
bool ls_account_used(const struct ls_layout *layout, enum ls_account account);

/* One operation on one group. Where an implementation cuts it into several (buckets, direct and
 * packed tensors, parts that overlap with a product, groups of logits), their counts add up to
 * count; prefetching may bring a gather forward, on all ranks alike. */
struct ls_move {
    enum ls_layout_group group;
    enum ls_comm_kind kind; /* LS_COMM_SEND: a message */
    bool receive;           /* of a message */
    int peer;               /* of a message, or a broadcast's root: rank in the group; -1 */
    int channel;            /* messages of one channel between two ranks keep their order */
    enum ls_dtype dtype;
    int64_t count; /* as the operation of comm.h takes it */
    int layer;     /* -1: of none */
    int64_t micro_batch;
    const char *what; /* "keys and values" */
};
/* Bytes that this rank hands over (struct ls_comm_stats): with b = count elements in bytes and n
 * ranks, reduce_scatter and all_gather b (n - 1), all_reduce b - own + own (n - 1), broadcast
 * b (n - 1) at its root, send b. 0 for LS_COMM_OTHER, whose few words are not counted. */
int64_t ls_move_bytes(const struct ls_layout *layout, int64_t rank, const struct ls_move *move);

/* Calls visit with rank's operations of one step of `leaves` leaves, in the order of its schedule.
 * A step begins after ls_zero_publish of the one before and ends with its own. Stops where visit
 * returns an error, with that. */
typedef int ls_move_visit(void *user, const struct ls_move *move, struct ls_error *error);
int ls_layout_moves(const struct ls_layout *layout, int64_t leaves, int64_t rank,
                    ls_move_visit *visit, void *user, struct ls_error *error);

/* ---- proof ---------------------------------------------------------------------------------- */

/* What ranks do, compared. Feed it every rank's moves, in any order of ranks; ls_layout_check does
 * so with the derived ones, a test may with others. */
struct ls_move_proof;
int ls_move_proof_new(const struct ls_layout *layout, struct ls_move_proof **out,
                      struct ls_error *error);
/* rank's next operation. LS_ENOMEM. */
int ls_move_proof_add(struct ls_move_proof *proof, int64_t rank, const struct ls_move *move,
                      struct ls_error *error);
/* LS_OK where in every group all ranks do the same operations with the same counts in the same
 * order; ranks of one pipeline rank also take their groups' collectives in one order, so that no
 * two groups wait for each other; and every message that is sent is received, in order, with its
 * count. LS_ELAYOUT names group and ranks. (That pipelines do not wait in a circle is
 * ls_schedule_validate's.) */
int ls_move_proof_finish(struct ls_move_proof *proof, struct ls_error *error);
void ls_move_proof_free(struct ls_move_proof *proof);

struct ls_layout_proof {
    int64_t ranks, groups;         /* groups of more than one rank */
    int64_t collectives, messages; /* of all ranks; a message counts once */
    /* What it took: operations added one by one, and lists of them added as a whole. A ring's
     * messages are such lists, which every block and micro-batch repeats. */
    int64_t folds;
};
/* Derives every rank's moves of a full step and proves them. */
int ls_layout_check(const struct ls_layout *layout, struct ls_layout_proof *proof,
                    struct ls_error *error);

/* ---- bytes ---------------------------------------------------------------------------------- */

/* Bytes that one rank sends in a step, by axis: ls_layout_moves's list without the loss and what
 * LS_COMM_OTHER counts. With m = ceil(M / tp) C (a rank's share of a row-parallel product), per
 * micro-batch:
 *
 *   tp   (tp - 1) times, over the layers held:
 *          embedding   4 m + a m
 *          block       4 (4 m + a m): two reduce-scatters in float32 and two all-gathers in the
 *                      compute type forward, and the same backward; with sp 2 a m more, since the
 *                      weight halves gather their inputs again
 *          head        4 m + a m
 *        and all-reduces: of 3 M float32 for softmax (maximum, sum and target's logit of each row),
 *        and with sp of the norms' gradients (C float32 for each vector and unit; units: leaves of
 *        the micro-batch x seq_tiles / cp).
 *   cp   (cp - 1) times, per block and sequence, with kv = max(kv_heads / tp, 1) head_dim:
 *          forward     2 (T / cp) kv a     keys and values
 *          backward    2 (T / cp) kv a     and their gradients, 2 (T / cp) kv 4
 *        A ring: half chunks, 2 kv T / (2 seq_tiles) elements each, a forward and a + 4 backward;
 *        all of them but 2 seq_tiles / cp.
 *   pp   per boundary to another rank a N C forwards and as much back; N = M, or ceil(M / tp) with
 *        sp. Once a step, for a table that is tied across stages, its shard's gradient each way.
 *   dp   with P the elements of the rank's parameters, d ranks of shard and r of replicate:
 *          zero 0      replicate 2 4 P (r - 1) / r; with cp > 1 shard 2 4 P (cp - 1) / cp at every
 *                      micro-batch
 *          zero 1      shard 4 (P / d) (d - 1) for gradients, once (with cp > 1 at every
 *                      micro-batch), and a (P / d) (d - 1) for parameters (4 for vectors);
 *                      replicate 2 4 (P / d) (r - 1) / r
 *          zero 2      gradients at every micro-batch; 2 bytes for 4 with numerics.reduce bf16
 *          zero 3      parameters at every forward and again at every backward (the embedding's
 *                      at the forward alone), or once a step without reshard_after_forward,
 *                      instead of once at the end
 *
 * Rows of a tensor that d does not divide are rounded up: P / d means ceil(rows / d) cols. */
struct ls_layout_bytes {
    int64_t tp; /* sharers included */
    int64_t cp, pp;
    int64_t shard, replicate; /* dp: the two groups of ZeRO */
};
int ls_layout_bytes(const struct ls_layout *layout, int64_t leaves, int64_t rank,
                    struct ls_layout_bytes *bytes, struct ls_error *error);

/* ---- memory --------------------------------------------------------------------------------- */

/* Bytes that one rank keeps. With P its part's elements, P/d as above, a, and B gradient buffers
 * (ls_accumulation_buffers):
 *
 *   parameters   float32 masters, 4 P (zero 0) or 4 P/d, and what is computed with:
 *                zero 0      2 P_matrix in bf16, nothing more in fp32
 *                zero 1, 2   a P_matrix + 4 P_vector
 *                zero 3      2 P_matrix/d in bf16, nothing more in fp32; without
 *                            reshard_after_forward as zero 1 besides
 *   gradients    zero 0 4 P B; zero 1 4 P B + 4 P/d; zero 2, 3 (and 1 with cp) 4 P/d B
 *   optimizer    4 x states of the optimizer, of the masters' elements
 *   activations  per micro-batch that is between its forward and its backward (the most live of a
 *                chunk), and block: a of 4 N C + M (2 q + 2 kv + f F + F) and 4 (4 N + M heads) of
 *                statistics; embedding a N C; head a N C + 8 N
 *                (q, kv, F this rank's widths, f 2 for SwiGLU and 1 for GELU)
 *   work         what layers compute in and what pipelines receive: among it 3 a N C of the stream,
 *                one block's gradients (every block's and micro-batch's where weight halves come
 *                apart), logits of up to LS_LOGITS_BYTES, with tp 4 M C + 4 M C / tp of sums
 *
 * What ZeRO gathers and scatters through is not in it. */
struct ls_layout_memory {
    int64_t parameters, gradients, optimizer, activations, work;
    int64_t live; /* micro-batches that are live at once, summed over chunks */
};
/* states: arrays of the optimizer (ls_optimizer_states). */
int ls_layout_memory(const struct ls_layout *layout, int64_t rank, int states,
                     struct ls_layout_memory *memory, struct ls_error *error);

#ifdef __cplusplus
}
#endif
#endif
