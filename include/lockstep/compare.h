/* lockstep/compare.h - layouts of one recipe, and runs of it, held against each other.
 *
 *   proving    losses and hashes of a layout's steps: two layouts of a recipe have the same
 *   drawing    admissible layouts of a recipe, to prove each of them
 *   records    what two runs wrote: the first step in which they differ
 *   rerun      a stretch of a run again, with the digests of its tensors: the first that differs
 *   lockstep/compare/diff.h    two runs of a recipe: where they diverge
 *   lockstep/compare/audit.h   a stretch of a run again, beside its records
 *
 * Everything here but ls_proof_make is Local. Ranks of a rerun are threads of the calling process;
 * they write nothing. */
#ifndef LOCKSTEP_COMPARE_H
#define LOCKSTEP_COMPARE_H

#include <lockstep/train.h>

#include <limits.h>
#include <stdio.h>

LS_C_BEGIN

/* ---- proving that layouts agree -------------------------------------------------------------- */

/* What two layouts of one recipe must have alike, after each step. */
struct ls_proof {
    uint32_t loss_bits;
    struct ls_digest hash; /* of the state */
    double grad_norm;
    char ledger[33]; /* which samples the step took, on rank 0 */
};
/* Collective. Trains from the start to `steps` and fills proof [steps] (on every rank). Writes
 * nothing. */
int ls_proof_make(const struct ls_config *config, struct ls_comm *world, int64_t steps,
                  struct ls_proof *proof, struct ls_error *error);
/* Local. The same on as many thread ranks as the layout has. */
int ls_proof_threads(const struct ls_config *config, int64_t steps, struct ls_proof *proof,
                     struct ls_error *error);
/* The first step (counted from 1) at which two proofs differ, 0 if they are equal. */
int64_t ls_proof_differs(const struct ls_proof *a, const struct ls_proof *b, int64_t steps);
/* Local. Runs both layouts again on thread ranks, up to step, and names the first tensor in which
 * that step differs: outputs of layers ascending, gradients descending, gradients of parameters;
 * "the update" if none does. */
int ls_proof_trace(const struct ls_config *a, const struct ls_config *b, int64_t step, char *name,
                   size_t bytes, struct ls_error *error);

/* ---- drawing layouts ------------------------------------------------------------------------- */

/* *one = config on one rank: no axis, no ZeRO, the micro-batch that the planner chooses. Threads of
 * the rank stay as they are. config is resolved. */
void ls_compare_one_rank(const struct ls_config *config, struct ls_config *one);

/* What layouts are made of: every key of the configuration's layout part, with the values that are
 * drawn, and behind them corners of recipe and layout that no key names. */
enum { LS_DRAW_ROWS_MAX = 48, LS_DRAW_VALUES_MAX = 8 };
struct ls_draw_row {
    const char *name; /* a key's, "parallel.tp", or what the corner is, "ramp-up" */
    /* As one writes them, NULL behind the last. The first is that of a layout without the key;
     * "given" stands for a text that is made for the layout. */
    const char *values[LS_DRAW_VALUES_MAX + 1];
};
const struct ls_draw_row *ls_draw_rows(int *count);

/* A row and one of its values; value 0: any but the first. */
struct ls_draw_ask {
    int row, value;
};
struct ls_draw {
    uint64_t seed, index; /* layout number `index` of the sequence that seed begins */
    int64_t ranks_max;
    bool mpi;           /* ranks may be processes: comm.transport=mpi is drawn too */
    int isas;           /* numerics.isa is drawn too, among the first so many sets; 0: it is not */
    const char *folder; /* where tables for parallel.schedule_file are written; NULL: none is */
    const char *file;   /* memory.file of layouts that offload to it; NULL: in folder */
    uint64_t kept;      /* bit i: row i stays as it is in the configuration; 0: none does */
    struct ls_draw_ask asks[2]; /* what the layout has to have */
    int ask_count;
    int attempts; /* until it is given up; 0: many */
};
/* *drawn = config in an admissible layout of several ranks, drawn at random; keys that mean nothing
 * in it have their default. Where rows are kept, only the others are drawn. The same for the same
 * numbers. config is resolved. False if none was found. */
bool ls_draw_layout(const struct ls_config *config, const struct ls_draw *draw,
                    struct ls_config *drawn);
/* values[row] = the index of the value that config's layout has, -1 if it is none of the row's;
 * keys that mean nothing in it count as the first.
 * False if config's layout is not admissible. */
bool ls_draw_values(const struct ls_config *config, int values[LS_DRAW_ROWS_MAX]);

/* How often each value, and each pair of rows, was drawn. A pair of rows counts where neither has
 * its first value. Zero it first. */
struct ls_draw_cover {
    int layouts;
    int value[LS_DRAW_ROWS_MAX][LS_DRAW_VALUES_MAX];
    int pair[LS_DRAW_ROWS_MAX][LS_DRAW_ROWS_MAX];
    bool value_impossible[LS_DRAW_ROWS_MAX][LS_DRAW_VALUES_MAX];
    bool pair_impossible[LS_DRAW_ROWS_MAX][LS_DRAW_ROWS_MAX];
};
void ls_draw_cover_add(struct ls_draw_cover *cover, const int values[LS_DRAW_ROWS_MAX]);
/* Asks of draw what was never drawn and is not known to be impossible: a pair of rows, then a
 * value. False if nothing is left. */
bool ls_draw_cover_ask(const struct ls_draw_cover *cover, struct ls_draw *draw);
/* What draw asks for was searched for, and no recipe admits it. */
void ls_draw_cover_impossible(struct ls_draw_cover *cover, const struct ls_draw *draw);
/* In a line: how many pairs of rows met. each: before it, in a few lines, how many layouts had each
 * row at another value than its first. */
void ls_draw_cover_line(const struct ls_draw_cover *cover, bool each, FILE *file);

/* *drawn = one of recipes[count] in a layout as draw says: what the layouts added to cover do not
 * have is asked for first, the rest is by chance; draw asks for nothing itself. What no recipe
 * admits is noted in cover, and the layout drawn is added. Returns the recipe, or -1 if none
 * admits a layout of several ranks. */
int ls_compare_draw(const struct ls_config *recipes, int count, const struct ls_draw *draw,
                    struct ls_draw_cover *cover, struct ls_config *drawn);

/* ---- what two runs recorded ------------------------------------------------------------------ */

struct ls_recorded_step {
    int64_t step;
    bool has_loss, has_norm, has_hash;
    uint32_t loss_bits;
    double grad_norm;
    char hash[33];         /* of the state after the step: of metrics.jsonl, or a checkpoint */
    char ledger[33];       /* of the samples of the step; "": not recorded */
    bool given;            /* on a batch that the run's program gave: nobody else has it */
    bool changed;          /* then by the run's program: a checkpoint has what it made */
    bool saved;            /* there is a checkpoint */
    char saved_hash[33];   /* of the checkpoint */
    char fingerprint[256]; /* of the checkpoint */
};
/* What the chain of a run's records says (lockstep/train/chain.h). */
struct ls_chain_found {
    int64_t records;   /* of steps, in the chain */
    int64_t unchained; /* of steps before its first, which an older version wrote */
    int64_t broken;    /* the step of the first record that does not fit; 0: the chain is whole */
    char why[200];     /* "the record of step 7 was altered" */
};
/* A run's directory: config.yaml, metrics.jsonl, and the hashes of its checkpoints. */
struct ls_run_record {
    char directory[PATH_MAX];
    struct ls_config config;        /* resolved */
    struct ls_recorded_step *steps; /* ascending */
    int64_t count;
    struct ls_chain_found chain;
    bool resumed;  /* its first records go on from a checkpoint */
    char data[33]; /* ls_training_data_digest; "": not recorded */
};
/* Zero the record first. run_directory may be one of its checkpoints (ls_checkpoint_run). LS_EIO,
 * LS_EDATA, LS_ECONFIG name the file. Release it in any case. */
int ls_run_record_read(struct ls_run_record *record, const char *run_directory,
                       struct ls_error *error);
void ls_run_record_release(struct ls_run_record *record);
/* The step's record, NULL if there is none. */
const struct ls_recorded_step *ls_run_record_at(const struct ls_run_record *record, int64_t step);
/* Whether the step has a checkpoint that is not the state whose hash was recorded, though nothing
 * changed that. */
bool ls_recorded_step_strays(const struct ls_recorded_step *step);

struct ls_run_difference {
    int64_t compared; /* steps of which both runs recorded a loss or a hash */
    int64_t last;     /* the last of them */
    int64_t step;     /* the first that differs, 0: none */
    bool loss, hash;  /* in what it differs */
    /* The first step of which a checkpoint strays (ls_recorded_step_strays), up to `step`. */
    bool strays;
    int64_t stray_step;
    /* The newest step before it after which both recorded the same hash, 0: none. Up to there the
     * runs are equal for certain; between there and `step` only what was recorded is. */
    int64_t equal;
    /* The newest checkpoint (of either run) at or before `equal` that does not stray; "" and 0:
     * from the start. */
    char checkpoint[PATH_MAX];
    int64_t checkpoint_step;
};
void ls_run_records_compare(const struct ls_run_record *a, const struct ls_run_record *b,
                            struct ls_run_difference *difference);

/* ---- a stretch of a run again ---------------------------------------------------------------- */

/* LS_ENOTSUP names the first step of (after, last] that was taken on a batch that the run's program
 * gave: it is not in the run's data. */
int ls_run_record_repeats(const struct ls_run_record *record, int64_t after, int64_t last,
                          struct ls_error *error);
struct ls_rerun;
/* Trains config on as many thread ranks as its layout has, from a checkpoint directory (NULL or "":
 * from the start) to step `last`, and keeps the loss and the hash of every step, and of steps from
 * tensors_from on the digests of all tensors: outputs of layers, gradients of their inputs,
 * gradients of parameters. Errors are those of a trainer; LS_EINVAL if the checkpoint is not
 * before `last`. */
int ls_rerun_new(const struct ls_config *config, const char *checkpoint, int64_t tensors_from,
                 int64_t last, struct ls_rerun **out, struct ls_error *error);
void ls_rerun_free(struct ls_rerun *rerun); /* NULL is allowed */
/* What a step gave; NULL if it was not run. */
const struct ls_proof *ls_rerun_proof(const struct ls_rerun *rerun, int64_t step);
/* A rerun of a run beside what the run recorded. */
struct ls_rerun_check {
    int64_t losses, norms, hashes, ledgers; /* compared */
    int64_t hashed;                         /* the last step whose hash was, 0: none */
    int64_t step;                           /* the first that differs, 0: none */
    bool loss, norm, hash, ledger;          /* in what it differs */
};
/* Compares the bits of steps from to to, as far as they were recorded and computed. */
void ls_rerun_check(const struct ls_rerun *rerun, const struct ls_run_record *record, int64_t from,
                    int64_t to, struct ls_rerun_check *check);
/* The first step in which two reruns differ, 0 if none does. name: the first tensor of that
 * step, in the order in which a step makes them; "the loss" or "the update" if none of them
 * differs, and "" if no tensors were kept. */
int64_t ls_rerun_differs(const struct ls_rerun *a, const struct ls_rerun *b, char *name,
                         size_t bytes);

LS_C_END
#endif
