/* optim/muon_matrices.h - how the matrices of Muon meet: each has one owner among the ranks that
 * hold parts of it, which gets the parts, orthogonalises the whole matrix and sends each rank its
 * part of that. Owners take matrices in rounds, at most one a round, and the parts of the next
 * round travel while this one's are computed. */
#ifndef OPTIM_MUON_MATRICES_H
#define OPTIM_MUON_MATRICES_H

#include <lockstep/optim.h>

/* ---- who owns what (muon_owners.c) ----------------------------------------------------------- */

struct muon_matrix {
    const struct ls_param *param;
    int index; /* of the parameter */
    int owner; /* rank of the spec's mesh */
    int round;
};
struct muon_owners {
    struct muon_matrix *list; /* [count], round by round */
    int count, rounds;
    int *of_rank; /* [rounds, ranks]: which of list the rank owns in that round, -1: none */
    int ranks;
};
/* The same on all ranks of the mesh. LS_ENOMEM. */
int muon_owners_init(struct muon_owners *owners, const struct ls_params *params,
                     struct ls_error *error);
void muon_owners_release(struct muon_owners *owners);
static inline const struct muon_matrix *muon_owned(const struct muon_owners *owners, int round,
                                                   int rank)
{
    int at = owners->of_rank[round * owners->ranks + rank];
    return at < 0 ? NULL : &owners->list[at];
}
/* The rank from which the owner gets the part that `rank` holds: rank itself, or where ranks hold
 * the same part the one that is where the owner is on the axes that do not cut. */
int muon_source(const struct muon_matrix *matrix, int rank);

/* ---- a step (muon_matrices.c) --------------------------------------------------------------- */

/* What is done to this rank's part of a matrix before and after. */
struct muon_hooks {
    void *user;
    float *(*place)(void *user, int index); /* where it is, if its gradient is on the device */
    int (*begin)(void *user, int index, float *place, struct ls_error *error);
    int (*end)(void *user, int index, float *place, struct ls_error *error);
};
int muon_new(const struct ls_matrices *matrices, int ns_steps, struct ls_arena *arena,
             struct ls_muon **out, struct ls_error *error);
void muon_free(struct ls_muon *muon);
/* Collective, one after the other: the first round's parts leave; all matrices are updated. Where a
 * hook fails the rank goes on, since others wait for it, and muon_finish returns that error. */
int muon_begin(struct ls_muon *muon, const struct muon_hooks *hooks, struct ls_error *error);
int muon_finish(struct ls_muon *muon, struct ls_ops *ops, const struct muon_hooks *hooks,
                struct ls_error *error);
/* Local. The transfers of both as the rank of comm, which is alone, starts them: no computing. */
int muon_rehearse(struct ls_muon *muon, struct ls_ops *idle, struct ls_comm *comm,
                  struct ls_error *error);

#endif
