/* lockstep/train/memory.h - what a rank keeps in memory, before any of it is taken.
 *
 *   ls_plan_rank    one rank of a layout, by kind of memory
 *   ls_plan         the rank that takes most
 *   ls_memory_timeline, ls_memory_peak, ls_memory_draw
 *                   what of it is in use at each moment of a step
 *
 * There is one source: the code that takes a rank's memory, walked with an arena that only counts.
 * So a plan is what a run allocates, to the byte. A plan costs about as much as looking at the list
 * of the rank's parameters: milliseconds, for the largest models too. Everything here is Local, and
 * the same on every rank. */
#ifndef LOCKSTEP_TRAIN_MEMORY_H
#define LOCKSTEP_TRAIN_MEMORY_H

#include <lockstep/config.h>
#include <lockstep/device/tier.h>

LS_C_BEGIN

enum ls_memory_kind {
    LS_MEMORY_PARAMETERS,    /* float32 masters, and the copies that are computed with */
    LS_MEMORY_GRADIENTS,     /* with the buffers in which micro-batches are added */
    LS_MEMORY_OPTIMIZER,     /* its states */
    LS_MEMORY_ACTIVATIONS,   /* what layers keep of live micro-batches for their backward */
    LS_MEMORY_WORKSPACE,     /* what one layer works in at a time; tables */
    LS_MEMORY_COMMUNICATION, /* what ZeRO gathers and scatters through, what pipelines receive and
                              * send back. What tp and cp exchange is of the workspace */
    LS_MEMORY_KINDS
};
/* "parameters", ... */
const char *ls_memory_name(enum ls_memory_kind kind);

struct ls_memory_plan {
    size_t bytes[LS_MEMORY_KINDS];
    size_t total;                   /* their sum: what a rank takes of its device for its steps */
    size_t tiers[LS_TIER_KINDS];    /* what it takes besides, in each tier, */
    size_t rollout;                 /* and on the device from the first text on that is generated
                                     * in a layout of group rollout, at most */
    int64_t micro_sequences;        /* of a micro-batch */
    int64_t micro_batches;          /* of a step on each rank, at the full batch */
    struct ls_batches_text batches; /* the same in words (ls_layout_batches) */
    int slots; /* micro-batches of a chunk whose activations exist at once, at most */
    int live;  /* the same, summed over the rank's chunks */
};
/* "host 1.2 GiB, file 3.0 GiB, rollout 2.1 GiB": what it takes besides; "" for nothing. */
struct ls_tiers_text {
    char text[96];
};
struct ls_tiers_text ls_memory_tiers_text(const struct ls_memory_plan *plan);
/* config is resolved, and layout its layout (ls_config_layout). Ranks of one pipeline rank take the
 * same. Errors are those of making a trainer's tables: LS_ENOMEM, and of a schedule's file LS_EDATA
 * and LS_EIO. */
int ls_plan_rank(const struct ls_config *config, const struct ls_layout *layout, int64_t rank,
                 struct ls_memory_plan *plan, struct ls_error *error);
/* The plan of the rank that takes most. LS_ELAYOUT (with the nearest layout that works) where the
 * recipe does not admit config->parallel and batch.micro. */
int ls_plan(const struct ls_config *config, struct ls_memory_plan *plan, struct ls_error *error);

/* ---- when ------------------------------------------------------------------------------------ */

enum ls_memory_phase {
    LS_MEMORY_FORWARD,
    LS_MEMORY_AGAIN,  /* what was not kept is made again */
    LS_MEMORY_INPUT,  /* the backward's input half */
    LS_MEMORY_WEIGHT, /* its weight half */
    LS_MEMORY_UPDATE, /* of the parameters: no layer is under work */
    LS_MEMORY_PHASES
};
/* "forward", "forward again", "backward, input", "backward, weights", "update" */
const char *ls_memory_phase_name(enum ls_memory_phase phase);

/* One layer under work, for one micro-batch. */
struct ls_memory_moment {
    enum ls_memory_phase phase;
    int64_t index;           /* of the rank's actions; their number at the update */
    struct ls_action action; /* not of the update */
    int layer;               /* -1: none */
    size_t bytes[LS_MEMORY_KINDS], all;
};
/* "forward of layer 3, micro-batch 0 (action 0, 0F0)" */
struct ls_memory_moment_text {
    char text[128];
};
struct ls_memory_moment_text ls_memory_moment_text(const struct ls_memory_moment *moment);
/* Calls visit with the moments of a full step in their order. What is in use then is at most the
 * plan's, kind by kind: layers keep what they keep from the moment that makes it to the end of
 * their backward, work areas are those of the layer under work, a buffer of gradients is in use
 * from the first micro-batch that it takes, what a pipeline receives from one action ahead, units
 * of ZeRO while their layer computes and as many as are gathered ahead of it. Stops where visit
 * returns an error, with that. */
typedef int ls_memory_visit(void *user, const struct ls_memory_moment *moment,
                            struct ls_error *error);
int ls_memory_timeline(const struct ls_config *config, const struct ls_layout *layout, int64_t rank,
                       ls_memory_visit *visit, void *user, struct ls_error *error);
/* The first moment at which most is in use. */
int ls_memory_peak(const struct ls_config *config, const struct ls_layout *layout, int64_t rank,
                   struct ls_memory_moment *peak, struct ls_error *error);
/* The timeline as SVG (lockstep/trace/picture.h): a band for each kind that lasts, and one on top
 * for workspace and communication, which come and go with each layer; width 0: 880. */
int ls_memory_draw(const struct ls_config *config, const struct ls_layout *layout, int64_t rank,
                   int width, FILE *file, struct ls_error *error);

LS_C_END
#endif
