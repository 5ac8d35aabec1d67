/* lockstep/state.h - a unit of state: parameters, what the optimizer keeps of them, ZeRO's
 * gradients and copies, and the counters of steps.
 *
 * A state is spread over the ranks of a layout. Its hash is the same in any layout. Each rank
 * writes what it owns to a checkpoint (lockstep/ckpt.h), and any layout reads it.
 *
 * Each parameter, gradient and optimizer state is a distributed tensor (lockstep/dtensor.h) by its
 * parameter's spec (ls_layout_params). It lies over the ranks that hold its layer, those of one pp
 * coordinate in the order of the world: ls_comm_split(world, color = the pp coordinate, key = the
 * rank, ...) makes the communicator for ls_mesh_comms_init.
 *
 * ZeRO 3 gathers and frees copies of the parameters in the compute type; these here are the masters
 * that they are made of, and stay: on the device, or in a memory tier.
 *
 * A rank may hold several units, of one model or of several, which share groups, ops, tiers and an
 * arena. They take turns: ls_state_settle of one comes before another communicates.
 *
 * Order of calls, the same on all ranks:
 *
 *     set what is borrowed; ls_state_take, first with a measuring arena, to learn the size
 *     write the masters (ls_slice_visit_array), or ls_state_resume; ls_state_publish
 *     each step:
 *       read weights and write gradients of all micro-batches (lockstep/parallel/zero.h), where
 *       ls_state_region_done follows each region
 *       ls_state_gradient, ls_state_square, ls_queue_synchronise, ls_state_norm
 *       ls_state_update, ls_state_share; step and samples are the caller's to count
 *     ls_state_settle, ls_state_release
 */
#ifndef LOCKSTEP_STATE_H
#define LOCKSTEP_STATE_H

#include <lockstep/base.h>
#include <lockstep/comm.h>
#include <lockstep/config.h>
#include <lockstep/dtensor.h>
#include <lockstep/nn.h>
#include <lockstep/ops.h>
#include <lockstep/optim.h>
#include <lockstep/parallel/zero.h>
#include <lockstep/plan.h>
#include <lockstep/plan/groups.h>

LS_C_BEGIN

/* Bytes taken from the arena. */
struct ls_state_bytes {
    struct ls_zero_sizes zero; /* of all sets */
    size_t optimizer;          /* masters and states that lie there */
    size_t work;               /* in which the optimizer works, not kept from step to step */
};

/* What a rank holds of a unit, and with whom. */
struct ls_state {
    /* Borrowed, set by the caller. */
    const struct ls_config *config;      /* resolved */
    const struct ls_optim_config *optim; /* NULL: that of config */
    const struct ls_layout *layout;
    int64_t rank;                   /* of the layout */
    struct ls_comm *const *groups;  /* [LS_GROUPS]; NULL while its memory is planned */
    const struct ls_params *params; /* of this rank's part, with their specs */
    struct ls_ops *ops;
    struct ls_tier *const *tiers; /* [LS_TIER_KINDS]; NULL: nothing lies there, or it is planned */
    struct ls_tier_room *rooms;   /* [LS_TIER_KINDS]: what tiers hold */
    bool resident;                /* all of it is on the device, whatever memory.offload says */
    /* Units whose frozen parameters are alike hold them once: in the memory of that one, itself
     * among them, where all of them compute. So ls_state_publish comes before what computes with
     * another one than before. NULL: its memory is its own. */
    struct ls_state *lender;
    const struct ls_log *log; /* may be NULL; rank 0 writes to it */

    /* Made by ls_state_take. */
    struct ls_zero *zero[LS_SETS_MAX]; /* [layout.set_count] */
    struct ls_optimizer optimizer;
    struct ls_slice *slices; /* [params.count] what the optimizer holds of each */
    struct ls_state_bytes bytes;

    float *gradient; /* of the last step, at the slices' places, times its loss scale;
                      * NULL before the first */
    /* Of it, by set: what commands write lives as long as they. */
    struct ls_exact_sum squares[LS_SETS_MAX];

    int64_t step, samples;   /* done, consumed */
    struct ls_digest beside; /* of what belongs to this state and is saved elsewhere (workers): in
                              * its hash. The caller's to set, before a load too */
    struct ls_loss_scale loss_scale; /* of the next step */
    int64_t saved_step;    /* of the newest checkpoint that this run wrote or went on from, or -1 */
    bool keeps_older;      /* older checkpoints are the caller's to remove, who sets this */
    int64_t start;         /* ls_run_token.start, 0 if not known: the caller's to set */
    const char *snapshots; /* the folder of ls_saving_begin, where ls_state_resume looks too; NULL:
                            * there is none. The caller's */
    bool from_snapshot;    /* it went on from one */
    struct ls_saving *saving;  /* whose thread reads the state; NULL: none */
    double saving_wait_s;      /* that updates have waited for such threads */
    struct ls_file_maps *maps; /* of its snapshots, or copies, which that thread writes over */
};

/* Local. Takes the unit's memory from arena, which may be measuring, and places in tiers. Nothing
 * is filled. After a failure ls_state_release, too. Errors: ls_zero_new's, ls_optimizer_meet's. */
int ls_state_take(struct ls_state *state, struct ls_arena *arena, struct ls_error *error);
/* Local. What ls_state_take made; a zeroed struct is allowed. After a failed step close the groups
 * first: they may still move buffers. */
void ls_state_release(struct ls_state *state);

/* Who serves the unit of parameters, the region. */
static inline struct ls_zero *ls_state_zero(const struct ls_state *state, int unit)
{
    return state->zero[state->params->units[unit].set];
}
static inline struct ls_zero *ls_state_region_zero(const struct ls_state *state, int region)
{
    return state->zero[state->params->regions[region].set];
}

static inline struct ls_comm *ls_state_world(const struct ls_state *state)
{
    return state->groups[LS_GROUP_WORLD];
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Collective. ls_zero_gradient_done of a region. With several sets, what other replicas of this one
 * wait for leaves before anybody waits for the ranks of another set. */
int ls_state_region_done(struct ls_state *state, int region, const struct ls_dp_micro *micro,
                         struct ls_error *error);
/* Collective. ls_zero_gradient_pass_on of all sets. */
int ls_state_pass_on(struct ls_state *state, struct ls_error *error);
/* Collective. All gradients are written: waits for their reductions, and gets what another stage
 * computed of a tied table. Sets state->gradient. */
int ls_state_gradient(struct ls_state *state, struct ls_error *error);
/* Local. Commands that add the squares of this rank's gradient to state->squares. */
int ls_state_square(struct ls_state *state, struct ls_error *error);
/* Collective over each set's LS_GROUP_OWNERS, once the host waited for those commands. The norm of
 * the whole gradient, as it is: times the loss scale. */
int ls_state_norm(struct ls_state *state, double *norm, struct ls_error *error);
/* Local; with Muon Collective over LS_GROUP_MATRICES. One update with state->gradient, multiplied
 * by gradient_scale. ls_state_share makes it known. Errors of the tier's disk. */
int ls_state_update(struct ls_state *state, int64_t step, float lr, float gradient_scale,
                    struct ls_error *error);
/* Collective. ls_zero_publish of all sets. */
int ls_state_share(struct ls_state *state, struct ls_error *error);
/* Collective. Waits for gathers that ls_state_share left under way. */
int ls_state_settle(struct ls_state *state, struct ls_error *error);

/* ---- hash and files -------------------------------------------------------------------------- */

/* Collective. 128 bits, the same in any layout, of parameters, optimizer state, step, and data
 * position. LS_ENUMERIC if ranks that must hold the same values do not, naming one: silent
 * corruption. Compared are copies (data parallel), what tensor-parallel ranks hold alike (norms,
 * shared key/value heads), and a table tied across pipeline stages. */
int ls_state_hash(struct ls_state *state, struct ls_digest *digest, struct ls_error *error);
/* Collective. Writes train.out/checkpoints/step-%08d and prunes to train.keep; train.out exists.
 * Each rank writes its share (ls_state_shares) straight from where it lies. hash is what
 * ls_state_hash gave of this very state; NULL: it is computed here, while the disk is busy. */
int ls_state_save(struct ls_state *state, const struct ls_digest *hash, struct ls_error *error);

/* A save beside the steps that follow. Each rank's thread copies its share to a snapshot: a
 * checkpoint in the memory of its machine, FOLDER/checkpoints/step-%08d on each. ls_state_update
 * waits until that is read. What is stored the thread then copies on to train.out/checkpoints. Of
 * slices in a tier the snapshot is complete when begin returns.
 *
 *     ls_saving_begin;  the next step;  ls_saving_keep;  where stored, some steps on
 * ls_saving_store; ls_saving_free */
struct ls_saving;
/* Collective. folder exists on each machine, a file system in memory; NULL: there is no snapshot,
 * but a copy without a name, from which it is stored. hash as of ls_state_save; NULL: the thread
 * makes its digests, and it is not stored. Of the snapshots in folder only that of
 * step `newest` stays; that of step `spare` (-1: none), which nobody reads, is written over. One
 * after the other: the state's former saving is kept. */
int ls_saving_begin(struct ls_saving **out, struct ls_state *state, const char *folder,
                    int64_t newest, int64_t spare, bool stored, const struct ls_digest *hash,
                    struct ls_error *error);
/* Collective, once. The snapshot gets its name on all machines; or what is wrong with it, or with
 * the copy, such as LS_ENOSPC. The one before stays until the next one begins. */
int ls_saving_keep(struct ls_saving *saving, struct ls_error *error);
/* Local, after keep. What it cost: seconds that this rank waited for it, and that its thread took
 * of the rank's threads. */
double ls_saving_cost_s(const struct ls_saving *saving);
/* Local. Whether this rank's thread has nothing more to do. */
bool ls_saving_done(struct ls_saving *saving);
/* Collective, once, after keep, if it is stored: waits until it is done. The checkpoint gets its
 * name, and older ones go by train.keep. */
int ls_saving_store(struct ls_saving *saving, struct ls_error *error);
int64_t ls_saving_step(const struct ls_saving *saving);
/* Local. What is not copied to train.out yet will not be: ls_saving_store is LS_ESTOPPED. */
void ls_saving_cancel(struct ls_saving *saving);
/* Local. Cancels, and waits for the thread. What has no name yet gets none, and its files stay
 * until they are swept. NULL is allowed. */
void ls_saving_free(struct ls_saving *saving);
/* Local. shares[params->count]: rows [first, first + count) of its part of each parameter are what
 * this rank writes of an array; a vector's elements are rows. Ranks that hold the same part divide
 * it: all the rows that they hold alike, one parameter after the other, in equal shares to a row.
 * Over all ranks each element is in one share. params are those of the rank. */
struct ls_state_rows {
    int64_t first, count;
};
void ls_state_shares(const struct ls_params *params, int64_t rank,
                     const struct ls_optim_config *optim, int array, struct ls_state_rows *shares);
/* Local. Writes RUN_DIRECTORY/checkpoints/step-%08d as the ranks of that layout would write it:
 * each a file of its share, by a thread; state and hash stay. from is of the configuration's
 * recipe: what is read of it is verified (LS_ECKPT). Memory: a MiB for each rank, and pages of
 * files. fault may be NULL. */
struct ls_checkpoint;
int ls_state_reshard(struct ls_checkpoint *from, const struct ls_config *config,
                     const struct ls_layout *layout, const char *run_directory,
                     const struct ls_fault *fault, struct ls_error *error);
/* Local. Bytes of the tensors that ls_state_save writes: model and optimizer to the byte in any
 * layout of the recipe. Headers of files and the manifest are beside them. LS_ENOMEM. */
struct ls_state_files {
    int64_t model, optimizer;
    int64_t stage; /* of both, in the pipeline rank that has most: its ranks write equal shares */
};
int ls_state_file_bytes(const struct ls_config *config, const struct ls_layout *layout,
                        struct ls_state_files *files, struct ls_error *error);
/* Collective. Where numerics.arithmetic is auto and train.resume is not never, it becomes that of
 * the checkpoint which ls_state_resume will load; without one, of train.out/config.yaml. It stays
 * auto where neither says. Files of tensors are not read. */
int ls_state_recall(struct ls_config *config, struct ls_comm *world, struct ls_error *error);
/* Collective. Loads the newest whole checkpoint (train.resume auto) or the one named, whatever
 * layout wrote it; with auto also a newer snapshot that the machines have together in their
 * state->snapshots. *resumed is false if there is none and train.resume is auto. Each rank reads
 * and verifies the pieces that have something of its part. If one finds damage, all take the next
 * older checkpoint, with a warning. LS_ECKPT if it belongs to another recipe, with the keys that
 * differ, or where ranks found different ones. LS_EDATA of imported weights: ls_slice_fits. */
int ls_state_resume(struct ls_state *state, bool *resumed, struct ls_error *error);
/* Collective. The checkpoint of that path, whatever keys say; errors name the path alone. *sound:
 * LS_ECKPT is no damage, but the recipe's (or ranks found different ones). */
int ls_state_load(struct ls_state *state, const char *path, bool *sound, struct ls_error *error);

/* Collective. The masters are new, or what is computed with was another unit's (lender): the copies
 * that are computed with follow. */
int ls_state_publish(struct ls_state *state, struct ls_error *error);

/* ---- its tensors ----------------------------------------------------------------------------- */

/* Arrays are LS_STATE_PARAMETERS, 0, 1, ... below ls_optimizer_states_most; a parameter is in those
 * below ls_state_arrays. */
enum { LS_STATE_PARAMETERS = -1 };
/* Local. LS_F32, or for moments what optim.moments says. */
static inline enum ls_dtype ls_state_type_of(const struct ls_optim_config *optim, int array)
{
    return array < 0 ? LS_F32 : optim->moments;
}
/* Local. The same of a state. */
static inline enum ls_dtype ls_state_type(const struct ls_state *state, int array)
{
    return ls_state_type_of(&state->optimizer.config, array);
}
/* Local. How many states a parameter has. */
static inline int ls_state_arrays(const struct ls_state *state, const struct ls_param *param)
{
    return ls_param_states(&state->optimizer.config, param);
}
/* Local. This rank's slice of parameter i, with data of that type. */
int ls_state_tensor(const struct ls_state *state, int i, enum ls_dtype dtype, void *data,
                    struct ls_dtensor *out, struct ls_error *error);

/* ---- what gave its bits ---------------------------------------------------------------------- */

/* Local. What a checkpoint remembers of what gave its bits: numerics.version
 * (lockstep/base/version.h) and arithmetic; and for people instruction set, compiler, and the
 * version and commit of Lockstep. */
void ls_fingerprint(const struct ls_ops *ops, char *text, size_t bytes);
/* Local. Whether the bits of two fingerprints of one recipe may differ: numerics.version does. The
 * arithmetic is a key of the recipe, and nothing else changes bits. text says how
 * ("numerics.version 3 there, 4 here"; there: a, here: b), "" if they agree. */
bool ls_fingerprint_differs(const char *a, const char *b, char *text, size_t bytes);

LS_C_END
#endif
