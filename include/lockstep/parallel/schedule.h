/* lockstep/parallel/schedule.h - pipeline schedules as data: what each pipeline rank computes, in
 * which order.
 *
 *   p ranks, v chunks (virtual stages) a rank, stages 0 .. p v - 1 in model order, m micro-batches.
 *   Actions are written as PyTorch's pipelining and torchtitan write them,
 *   <stage><kind><micro-batch>: F forward, I the backward's input half, W its weight half, B both.
 *
 * A table holds, per rank, the list of actions in order. Sends and receives are not in it; they
 * follow: after F of stage s an activation goes to the rank of stage s + 1, after I or B of stage s
 * a gradient to the rank of stage s - 1 (pipeline.h says when).
 *
 *   struct ls_schedule table;
 *   ls_schedule_generate(&table, LS_SCHEDULE_1F1B, p, v, m, error)    or ls_schedule_read
 *   ls_schedule_validate(&table, error)                               complete, ordered, no
 * deadlock ls_schedule_simulate(&table, &costs, &figures, error)             makespan, bubble,
 * peaks
 *   ... ls_pipeline_run (pipeline.h), ls_schedule_slots, ls_schedule_print ...
 *   ls_schedule_release(&table)
 *
 * In every table the micro-batches of a stage come in ascending order: its F, its I and B, and its
 * W and B. The last is what keeps the order of the sum over leaves, so a schedule chooses when
 * something is computed and never what. Everything here is Local. */
#ifndef LOCKSTEP_PARALLEL_SCHEDULE_H
#define LOCKSTEP_PARALLEL_SCHEDULE_H

#include <lockstep/base.h>

#include <stdio.h>

LS_C_BEGIN

/* ---- the table ------------------------------------------------------------------------------ */

enum ls_action_kind {
    LS_ACTION_F, /* forward */
    LS_ACTION_I, /* backward: the gradient of the stage's input */
    LS_ACTION_W, /* backward: the gradients of its weights */
    LS_ACTION_B, /* both */
};

struct ls_action {
    int32_t stage;
    int32_t micro_batch;
    int32_t kind; /* enum ls_action_kind */
};

/* Where stage s lives. A file may place stages otherwise: then LS_PLACEMENT_FILE. */
enum ls_stage_placement {
    LS_PLACEMENT_LOOP, /* on rank s % p: chunk s / p */
    LS_PLACEMENT_V,    /* v = 2: stage s < p on rank s (chunk 0), s >= p on rank 2p - 1 - s */
    LS_PLACEMENT_FILE,
};

enum {
    LS_SCHEDULE_RANKS_MAX = 1 << 17,
    LS_SCHEDULE_CHUNKS_MAX = 64,
    LS_SCHEDULE_STAGES_MAX = 1 << 18,
    LS_SCHEDULE_MICRO_BATCHES_MAX = 1 << 20,
};

/* Read-only once made. */
struct ls_schedule {
    int ranks, chunks; /* p, v */
    int stages;        /* p v */
    int64_t micro_batches;
    enum ls_stage_placement placement;
    int64_t *first;            /* [p + 1]: rank r's actions are [first[r], first[r + 1]) */
    struct ls_action *actions; /* [first[p]] */
    int32_t *stage_rank;       /* [stages] */
    int32_t *stage_chunk;      /* [stages]: its number among its rank's stages, ascending */
    int32_t *rank_stage;       /* [p v]: stage of (rank, chunk) at rank * v + chunk */
    int32_t *cell;             /* [first[p]]: the cell it was read from, 1 first; NULL: generated */
    int32_t *line;             /* [p]: the line of rank r, 1 first; NULL: generated */
};

enum ls_schedule_kind {
    LS_SCHEDULE_GPIPE,
    LS_SCHEDULE_1F1B,
    LS_SCHEDULE_INTERLEAVED,
    LS_SCHEDULE_ZB_H1,
    LS_SCHEDULE_ZBV,
    LS_SCHEDULE_DUALPIPEV,
    LS_SCHEDULE_KINDS,
};
/* "gpipe", "1f1b", "interleaved", "zb-h1", "zbv", "dualpipev". */
const char *ls_schedule_name(enum ls_schedule_kind kind);

/* Chunks that a schedule of that kind puts on each rank; 0: any number. */
int ls_schedule_chunks(enum ls_schedule_kind kind);
/* Whether there is a schedule of that kind for so many ranks, chunks and micro-batches: then what
 * ls_schedule_generate makes is valid. LS_ELAYOUT with the reason and the nearest that works. */
int ls_schedule_admits(enum ls_schedule_kind kind, int64_t ranks, int64_t chunks,
                       int64_t micro_batches, struct ls_error *error);
/* Where it places stages: on which of the ranks each. */
enum ls_stage_placement ls_schedule_placement(enum ls_schedule_kind kind);
int ls_stage_rank(enum ls_stage_placement placement, int ranks, int stage);

/* Makes a table. What each needs (ls_schedule_admits):
 *
 *   gpipe        v = 1. All F, then all B. Huang et al., "GPipe", 2019.
 *   1f1b         v = 1. Rank r runs p - 1 - r F ahead, then F and B in turn. Narayanan et al.,
 *                "PipeDream-Flush", 2021.
 *   interleaved  any v. Micro-batches go in groups through the chunks: floor(m / p) groups (at
 *                least one) whose sizes differ by at most one, so m need not be a multiple of p.
 *                Narayanan et al., "Efficient large-scale language model training on GPU clusters",
 *                SC 2021. v = 1 is 1f1b.
 *   zb-h1        v = 1. As 1f1b with I in place of B; rank r's W come r micro-batches late, which
 *                fills the end of the step and holds no more activations than 1f1b's rank 0.
 *                Qi et al., "Zero bubble pipeline parallelism", 2023.
 *   zbv          v = 2, placed as a V. Same paper's follow-up, "Pipeline parallelism with
 *                controllable memory", 2024. Any m; without idle time from m = 2p - 1 on.
 *   dualpipev    v = 2, placed as a V, m >= 2p. DeepSeek's DualPipe cut in half ("Cut-in-half
 *                schedule", 2025). F and B that it overlaps are neighbours in the list.
 *
 * With p = 1 and v = 1 each of them is F0 B0 F1 B1 ... */
int ls_schedule_generate(struct ls_schedule *schedule, enum ls_schedule_kind kind, int ranks,
                         int chunks, int64_t micro_batches, struct ls_error *error);
void ls_schedule_release(struct ls_schedule *schedule);

/* Reads a table in torchtitan's format: one line a rank, cells separated by commas, an empty cell
 * is idle time. Cells: 0F0, 1I2, 1W2, 2B1, and (0F4;7B0)OVERLAP_F_B, which is its parts in turn.
 * Of files in lowered form, UNSHARD, RESHARD, SEND_F, RECV_F, SEND_B, RECV_B, WAIT_SEND_F,
 * WAIT_SEND_B, REDUCE_GRAD and WAIT_REDUCE_GRAD are read and dropped: the runtime derives its own.
 * Stages are where they are computed; each rank must have equally many. ranks, chunks and
 * micro_batches say what the layout has, 0: whatever the file has. Errors name path, line and cell:
 * LS_EDATA for text that is no table, LS_ELAYOUT if it is another layout's, LS_EIO. The table is
 * not yet validated. */
int ls_schedule_read(struct ls_schedule *schedule, const char *path, int ranks, int chunks,
                     int64_t micro_batches, struct ls_error *error);
/* The same from memory; name stands for the path in error texts. */
int ls_schedule_parse(struct ls_schedule *schedule, const char *name, const char *text,
                      size_t bytes, int ranks, int chunks, int64_t micro_batches,
                      struct ls_error *error);
/* Writes the table in that format, without idle cells. LS_EIO. */
int ls_schedule_write(const struct ls_schedule *schedule, FILE *file, struct ls_error *error);

static inline int ls_schedule_stage(const struct ls_schedule *schedule, int rank, int chunk)
{
    return schedule->rank_stage[(int64_t)rank * schedule->chunks + chunk];
}
/* Rank's actions; *count of them. */
static inline const struct ls_action *ls_schedule_actions(const struct ls_schedule *schedule,
                                                          int rank, int64_t *count)
{
    *count = schedule->first[rank + 1] - schedule->first[rank];
    return schedule->actions + schedule->first[rank];
}
/* "3F12" */
struct ls_action_text {
    char text[32];
};
struct ls_action_text ls_action_text(struct ls_action action);

/* ---- proof ---------------------------------------------------------------------------------- */

/* LS_OK if ls_pipeline_run carries the table out on every rank: each stage and micro-batch has
 * one F and either one B or one I and one W, on the stage's rank; micro-batches ascend (see above);
 * every receive has its send, in the same order; and nothing waits in a circle, the runtime's
 * bounded send buffers included (pipeline.h). LS_ELAYOUT says which action is missing, repeated,
 * misplaced or out of order and where (line and cell of a file), or shows the circle as a chain of
 * actions with their ranks. LS_ENOMEM. O(actions) time and memory. */
int ls_schedule_validate(const struct ls_schedule *schedule, struct ls_error *error);

/* Seconds, or any unit: of one micro-batch. B costs input + weight. */
struct ls_stage_cost {
    double forward, input, weight;
};
struct ls_schedule_costs {
    const struct ls_stage_cost *stage; /* [stages], NULL: `all` holds for each stage */
    struct ls_stage_cost all;
    double send; /* from the end of an action until its result is with another rank */
};

/* Of one rank. Live micro-batches are counted over its chunks: a micro-batch counts once for each
 * chunk that holds something of it. */
struct ls_rank_figures {
    double begin, end, busy;
    int32_t live_max;   /* activations: from F to the end of B or W */
    int32_t weight_max; /* of these, those whose I is done and that only wait for W */
};
struct ls_schedule_figures {
    double makespan;
    double bubble;      /* idle share: 1 - sum of busy / (p makespan) */
    double bubble_rank; /* of the rank from whose begin to whose end it takes longest, between the
                           two: (cost - busy) / cost, the "bubble rate" of Qi et al. */
    int32_t live_max;   /* of the rank with most */
    struct ls_rank_figures *rank; /* [p] */
    int32_t *stage_live_max;      /* [stages]: as live_max, of one stage */
};
/* Every action starts when the one before it and its input are there; sends take costs->send and
 * occupy nobody. Errors as ls_schedule_validate, which it includes. */
int ls_schedule_simulate(const struct ls_schedule *schedule, const struct ls_schedule_costs *costs,
                         struct ls_schedule_figures *figures, struct ls_error *error);
void ls_schedule_figures_release(struct ls_schedule_figures *figures);
/* The same run as times: start[first[p]] of each action in the table's order. */
int ls_schedule_times(const struct ls_schedule *schedule, const struct ls_schedule_costs *costs,
                      double *start, struct ls_error *error);

/* ---- memory --------------------------------------------------------------------------------- */

/* How long something of a micro-batch lives on a rank. */
enum ls_slot_kind {
    LS_SLOT_SAVED,    /* activations: from F to the end of B or W */
    LS_SLOT_WEIGHT,   /* what W needs of I: from I to the end of W; B uses it for its own length */
    LS_SLOT_INPUT,    /* the received activation: from one action ahead of F to the end of B or W */
    LS_SLOT_GRADIENT, /* the received gradient: from one action before I or B to B's or W's end */
};
/* Gives each micro-batch of a chunk the first slot that is free when it begins: slot[m] in
 * [0, returned), slot[micro_batches]. The least number of slots that the table allows; 0 for INPUT
 * on the first stage and GRADIENT on the last. Needs a valid table. LS_ENOMEM: it is negative. */
int ls_schedule_slots(const struct ls_schedule *schedule, int rank, int chunk,
                      enum ls_slot_kind kind, int32_t *slot);

/* ---- drawing -------------------------------------------------------------------------------- */

/* One row a rank, one column a slot of time, where costs are rounded to whole slots of the least
 * cost; wide tables go on below. At most ranks_max rows (0: all), the first and the last. */
int ls_schedule_print(const struct ls_schedule *schedule, const struct ls_schedule_costs *costs,
                      int ranks_max, int columns, FILE *file, struct ls_error *error);
/* What a drawing is told beside the schedule. */
struct ls_schedule_picture {
    const char *name;       /* of the schedule, for the title */
    const char *time_label; /* of the axis: what 1 is */
    int ranks_max;          /* 0: all; else the first and the last */
    int width;              /* 0: 1000; at least 280 */
};
/* The same as SVG (lockstep/trace/picture.h), times to scale: what ls_schedule_simulate computes
 * from these costs, with its bubble in the title, a time axis and a legend. */
int ls_schedule_draw(const struct ls_schedule *schedule, const struct ls_schedule_costs *costs,
                     const struct ls_schedule_picture *picture, FILE *file, struct ls_error *error);

/* ---- which layers a stage holds ------------------------------------------------------------- */

/* Cuts layers 0 .. layers - 1 into stages of neighbours so that the costliest stage costs as little
 * as possible: stage s holds [first[s], first[s + 1]), first[stages + 1]. Exact; of equal cuts the
 * most even one (least sum of squares), and of these one whose early stages are short. Every stage
 * has at least one layer: LS_ELAYOUT if there are fewer layers than stages. layer_cost >= 0
 * [layers]. LS_ENOMEM. */
int ls_stage_split(const double *layer_cost, int64_t layers, int64_t stages, int64_t *first,
                   struct ls_error *error);
/* The same as text: "0-5,6-11,12": one part a stage, first and last layer of it, without gap or
 * overlap. LS_ELAYOUT names the part that is wrong. */
int ls_stage_split_parse(const char *text, int64_t layers, int64_t stages, int64_t *first,
                         struct ls_error *error);

LS_C_END
#endif
