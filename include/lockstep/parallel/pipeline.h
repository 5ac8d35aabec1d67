/* lockstep/parallel/pipeline.h - one runtime for every pipeline schedule.
 *
 *   ls_pipeline_new(&options, &arena, &pipeline, error)   memory for what is received and sent back
 *   ls_pipeline_run(pipeline, &ops, error)                a step: the rank's list, front to back
 *   ls_pipeline_free(pipeline)
 *
 * What moves. A *boundary* tensor is what one stage hands to the next for a micro-batch: an
 * activation forwards, its gradient backwards, both of the same size and type. For each action, in
 * the order of the rank's list:
 *
 *   1. receives of this action and of the next one are posted: a transfer has at least the length
 *      of one action to hide in;
 *   2. the action's own receive is waited for;
 *   3. the caller computes it;
 *   4. its result is sent. An activation is sent from where it lies; a gradient is first copied
 *      into a buffer of the runtime, so the caller may overwrite its own. Sends are not waited for
 *      until their buffer is needed again: an activation's when that micro-batch's backward begins,
 *      or when LS_PIPELINE_SENDS later ones are under way; a gradient's when all of
 *      ls_pipeline_gradient_sends() buffers are.
 *
 * Stages that are neighbours on one rank (V placement, one rank) hand over by a copy. Buffers have
 * the slots of ls_schedule_slots. ls_schedule_validate proves that this ends. */
#ifndef LOCKSTEP_PARALLEL_PIPELINE_H
#define LOCKSTEP_PARALLEL_PIPELINE_H

#include <lockstep/comm.h>
#include <lockstep/ops.h>
#include <lockstep/parallel/schedule.h>

LS_C_BEGIN

/* Of activations, on a rank. V schedules have as many under way as there are ranks but one. */
enum { LS_PIPELINE_SENDS = 96, LS_PIPELINE_V_RANKS_MAX = LS_PIPELINE_SENDS + 1 };

/* Send buffers for gradients on a rank: 2 with one chunk, 4 with more. */
int ls_pipeline_gradient_sends(const struct ls_schedule *schedule);

/* One action of the rank's list and what it reads, which stays until that micro-batch's B or W has
 * returned. */
struct ls_pipeline_task {
    struct ls_action action;
    int chunk;                   /* of this rank: the one that is action.stage */
    const void *input;           /* the activation from the stage before; NULL on stage 0 */
    const void *output_gradient; /* of what the chunk handed on; NULL in F and on the last stage */
};

/* What a rank computes. */
struct ls_pipeline_ops {
    void *user;
    struct ls_ops *ops; /* what boundary tensors are copied with */
    /* Elements of a boundary tensor of that micro-batch, at most count_max. */
    int64_t (*count)(void *user, int64_t micro_batch);
    /* The action, LS_OK or an error, which ends the run. *result of an F: what is sent on,
     * unchanged until that micro-batch's I or B begins; not asked for (result is NULL) on the last
     * stage. Of an I or B: what is sent back, read before another action begins; not asked for on
     * stage 0. A W has none. */
    int (*compute)(void *user, const struct ls_pipeline_task *task, const void **result,
                   struct ls_error *error);
    /* Optional: this task comes next. Called before its input is waited for: the place to begin
     * what it will need, such as gathering parameters. */
    int (*before)(void *user, const struct ls_pipeline_task *task, struct ls_error *error);
    /* Optional. The rank is about to wait for another rank of the group: what ranks outside of it
     * wait for must not stay behind, or all wait in a circle. Called at the same places on ranks
     * that run the same table, whatever has arrived. */
    int (*settle)(void *user, struct ls_error *error);
};

struct ls_pipeline_options {
    const struct ls_schedule *schedule; /* valid; borrowed until ls_pipeline_free */
    struct ls_comm *comm; /* the pp group: size = schedule->ranks; used by nothing else while a step
                             runs; borrowed. NULL: the arena only measures, for `rank` */
    int rank;             /* with comm NULL */
    enum ls_dtype dtype;  /* of a boundary tensor */
    int64_t count_max;    /* its elements in the largest micro-batch */
};

struct ls_pipeline;

/* Local. Takes the buffers from arena (which may be measuring: then nothing may be run) and the
 * rest from the system. LS_EINVAL if the group's size is not the table's, LS_ENOMEM. */
int ls_pipeline_new(const struct ls_pipeline_options *options, struct ls_arena *arena,
                    struct ls_pipeline **out, struct ls_error *error);
/* Collective over comm: one step. When it returns, everything sent has arrived. Errors of the
 * caller's functions, prefixed with the action, and LS_ECOMM; the others' runs then fail by the
 * rules of comm.h. After a failure transfers may be under way: free the communicator before the
 * pipeline and the arena. */
int ls_pipeline_run(struct ls_pipeline *pipeline, const struct ls_pipeline_ops *ops,
                    struct ls_error *error);
void ls_pipeline_free(struct ls_pipeline *pipeline);
/* Bytes of a boundary tensor's buffer. */
size_t ls_pipeline_boundary_bytes(const struct ls_pipeline *pipeline);

/* ---- rehearsal ------------------------------------------------------------------------------ */

/* The table run for real by stages that sleep: what it idles on these ranks, transport included. */
struct ls_rehearsal {
    double makespan_s; /* from the first action's begin to the last one's end, of all ranks */
    double bubble, bubble_rank; /* as in struct ls_schedule_figures */
};
/* Collective over comm. costs in seconds; count: float32 elements of a boundary tensor. */
int ls_pipeline_rehearse(struct ls_comm *comm, const struct ls_schedule *schedule,
                         const struct ls_schedule_costs *costs, int64_t count,
                         struct ls_rehearsal *out, struct ls_error *error);

LS_C_END
#endif
