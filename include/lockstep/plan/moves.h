/* lockstep/plan/moves.h - what ranks of a layout move, and the proof that their lists fit together.
 *
 * A rank's list is a recording (lockstep/plan/recording.h) whose operations are on the groups of
 * enum ls_layout_group; lockstep/train/recorded.h makes it from the trainer. Everything here is
 * Local.
 *
 *   ls_move_bytes       what one operation sends
 *   ls_move_proof_*     every wait ends: groups agree, messages meet, nobody waits in a circle
 */
#ifndef LOCKSTEP_PLAN_MOVES_H
#define LOCKSTEP_PLAN_MOVES_H

#include <lockstep/plan/groups.h>
#include <lockstep/plan/recording.h>

LS_C_BEGIN

/* Bytes that rank hands over (ls_operation_bytes). */
int64_t ls_move_bytes(const struct ls_layout *layout, int64_t rank, const struct ls_recorded *move);

/* ---- proof ---------------------------------------------------------------------------------- */

/* What ranks do, carried out on paper. */
struct ls_move_proof;
/* alike: ranks that differ in tp, dp_replicate or dp_shard alone do the same, at their own places
 * (but for a table tied across stages, where uneven shards of it differ), and one of them stands
 * for all: ls_move_proof_alike says which. Otherwise every rank stands for itself.
 *
 * Where the optimizer's matrices meet (layout.matrices_meet) each rank does something else, as each
 * matrix has an owner. So with alike, what a list does in a row in LS_GROUP_MATRICES counts as one
 * operation of the whole group, at which its ranks wait for each other. That proves the rest; that
 * these rows come to their end is for another proof, of them alone and without alike. */
int ls_move_proof_new(const struct ls_layout *layout, bool alike, struct ls_move_proof **out,
                      struct ls_error *error);
/* The rank whose list is rank's. */
int64_t ls_move_proof_alike(const struct ls_move_proof *proof, int64_t rank);
/* What rank does, which is its own ls_move_proof_alike. Copied. LS_ENOTSUP: more operations than
 * are taken (2^25). LS_ENOMEM. */
int ls_move_proof_add(struct ls_move_proof *proof, int64_t rank,
                      const struct ls_recording *recording, struct ls_error *error);

struct ls_layout_proof {
    int64_t ranks, groups;         /* groups of more than one rank */
    int64_t collectives, messages; /* of all ranks; a message counts once */
    int64_t recorded;              /* lists that were added */
};
/* Every rank was added, or one that it is alike. LS_OK if all lists come to their end: in each
 * group the ranks' nth operations are the same one, with type, count, root and label; of two ranks
 * and a tag the nth send meets the nth receive, with type, count and label; and no rank is held up
 * for ever. LS_ELAYOUT says who makes or waits for what, with the places in the source. */
int ls_move_proof_finish(struct ls_move_proof *proof, struct ls_layout_proof *out,
                         struct ls_error *error);
void ls_move_proof_free(struct ls_move_proof *proof);

LS_C_END
#endif
