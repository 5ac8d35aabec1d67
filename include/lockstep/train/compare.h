/* lockstep/train/compare.h - layouts of one recipe, and runs of it, held against each other.
 *
 *   drawing    admissible layouts of a recipe, to prove that each gives one rank's bits
 *              (ls_proof_threads in lockstep/train.h)
 *   records    what two runs wrote: the first step in which they differ
 *   rerun      a stretch of a run again, with the digests of its tensors: the first that differs
 *
 * Everything here is Local. Ranks of a rerun are threads of the calling process; they write
 * nothing.
 */
#ifndef LOCKSTEP_TRAIN_COMPARE_H
#define LOCKSTEP_TRAIN_COMPARE_H

#include <lockstep/train.h>

#include <limits.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- drawing layouts ------------------------------------------------------------------------- */

/* *one = config on one rank: no axis, no ZeRO, the micro-batch that the planner chooses. Threads of
 * the rank stay as they are. config is resolved. */
void ls_compare_one_rank(const struct ls_config *config, struct ls_config *one);
/* *drawn = config in layout number `index` of the sequence that seed begins, over at most ranks_max
 * ranks: pairs of axes, then schedules, then stages of ZeRO are asked for in turn, the rest is by
 * chance; keys that mean nothing in a layout have their default. The same for the same numbers. A
 * pair that the recipe does not admit gives a layout without that demand. False where the recipe
 * admits no layout of more than one rank. */
bool ls_compare_draw(const struct ls_config *config, uint64_t seed, uint64_t index,
                     int64_t ranks_max, struct ls_config *drawn);
/* The layout keys that are not the default, as one writes them on a command line:
 * "batch.micro=2 parallel.tp=2 parallel.zero=1"; "one rank" where all are. Threads are left out. */
void ls_compare_text(const struct ls_config *config, char *text, size_t bytes);

/* ---- what two runs recorded ------------------------------------------------------------------ */

struct ls_recorded_step {
    int64_t step;
    bool has_loss, has_hash;
    uint32_t loss_bits;
    char hash[33];         /* of the state after the step */
    bool saved;            /* there is a checkpoint, with that hash */
    char fingerprint[256]; /* of the checkpoint */
};
/* A run's directory: config.yaml, metrics.jsonl, and the hashes of its checkpoints. */
struct ls_run_record {
    char directory[PATH_MAX];
    struct ls_config config;        /* resolved */
    struct ls_recorded_step *steps; /* ascending */
    int64_t count;
};
/* Zero the record first. LS_EIO, LS_EDATA, LS_ECONFIG name the file. Release it in any case. */
int ls_run_record_read(struct ls_run_record *record, const char *run_directory,
                       struct ls_error *error);
void ls_run_record_release(struct ls_run_record *record);
/* The step's record, NULL where there is none. */
const struct ls_recorded_step *ls_run_record_at(const struct ls_run_record *record, int64_t step);

struct ls_run_difference {
    int64_t compared; /* steps of which both runs recorded a loss or a hash */
    int64_t last;     /* the last of them */
    int64_t step;     /* the first that differs, 0: none */
    bool loss, hash;  /* in what it differs */
    /* The newest step before it after which both recorded the same hash, 0: none. Up to there the
     * runs are equal for certain; between there and `step` only what was recorded is. */
    int64_t equal;
    /* The newest checkpoint (of either run) at or before `equal`; "" and 0: from the start. */
    char checkpoint[PATH_MAX];
    int64_t checkpoint_step;
};
void ls_run_records_compare(const struct ls_run_record *a, const struct ls_run_record *b,
                            struct ls_run_difference *difference);

/* ---- a stretch of a run again ---------------------------------------------------------------- */

struct ls_rerun;
/* Trains config on as many thread ranks as its layout has, from a checkpoint directory (NULL or "":
 * from the start) to step `last`, and keeps the loss and the hash of every step, and of steps from
 * tensors_from on the digests of all tensors: outputs of layers, gradients of their inputs,
 * gradients of parameters. Errors are those of a trainer; LS_EINVAL where the checkpoint is not
 * before `last`. */
int ls_rerun_new(const struct ls_config *config, const char *checkpoint, int64_t tensors_from,
                 int64_t last, struct ls_rerun **out, struct ls_error *error);
void ls_rerun_free(struct ls_rerun *rerun); /* NULL is allowed */
/* What a step gave; NULL where it was not run. */
const struct ls_proof *ls_rerun_proof(const struct ls_rerun *rerun, int64_t step);
/* The first step in which two reruns differ, 0 where none does. name: the first tensor of that
 * step, in the order in which a step makes them; "the loss" or "the update" where none of them
 * differs, and "" where no tensors were kept. */
int64_t ls_rerun_differs(const struct ls_rerun *a, const struct ls_rerun *b, char *name,
                         size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
