/* lockstep/train/recorded.h - what a layout makes each rank do, recorded from the trainer itself.
 *
 * The trainer of one rank runs alone (lockstep/plan/recording.h) and goes through the motions: its
 * ops compute nothing (ls_ops_init_idle), its memory is addresses (ls_arena_reserve), it has no
 * data. All else is as in a run, so what is recorded is what a run does: prefetched, cut and
 * ordered as there. Groups are those of enum ls_layout_group. Everything here is Local. */
#ifndef LOCKSTEP_TRAIN_RECORDED_H
#define LOCKSTEP_TRAIN_RECORDED_H

#include <lockstep/config.h>
#include <lockstep/plan/moves.h>
#include <lockstep/plan/recording.h>

LS_C_BEGIN

/* Appends what rank does in steps of leaves[0], ... leaves[steps - 1] leaves, each the full batch
 * of layout (that of config, which is resolved) or one of its ramp-up, from the first gathers of
 * parameters on. begins[i]: operations before step i. */
int ls_record_steps(const struct ls_config *config, const struct ls_layout *layout, int64_t rank,
                    int steps, const int64_t *leaves, struct ls_recording *recording,
                    int64_t *begins, struct ls_error *error);

/* Two steps of rank, the first of which may be shorter and the second is full, with what it
 * computes in between (recording->done). What comes first in the second step has *second_at as its
 * `at`. */
int ls_record_works(const struct ls_config *config, const struct ls_layout *layout, int64_t rank,
                    struct ls_recording *recording, int64_t *second_at, struct ls_error *error);
/* What the ranks of a stage do where the optimizer's matrices meet (layout.matrices_meet), in any
 * step: visit is called with each one's list, in LS_GROUP_MATRICES. Errors of visit, LS_ENOMEM. */
typedef int ls_record_visit(void *user, int64_t rank, const struct ls_recording *recording,
                            struct ls_error *error);
int ls_record_matrices(const struct ls_config *config, const struct ls_layout *layout,
                       int64_t pp_rank, ls_record_visit *visit, void *user, struct ls_error *error);

/* Collective over world. Steps as a run of this layout has them, but that ops compute nothing:
 * watch, which is borrowed, is told of each and may sleep for as long as it would take. Memory is
 * there, zeroed, and collectives move it. step_s[steps]: what each took on this rank. */
int ls_rehearse_steps(const struct ls_config *config, const struct ls_layout *layout,
                      struct ls_comm *world, const struct ls_queue_watch *watch, int steps,
                      double *step_s, struct ls_error *error);

/* The same layout with a step of fewer micro-batches. False if the recipe does not admit it. */
bool ls_step_shorten(const struct ls_config *config, const struct ls_layout *layout,
                     int64_t micro_batches, struct ls_config *shorter, struct ls_layout *out);
/* Bytes that rank sends in a full step, between the first and the last, by account. Of a step of
 * very many micro-batches three shorter ones are recorded, and the line through them is followed to
 * the whole one, if they are on a line to the byte. */
int ls_record_bytes(const struct ls_config *config, const struct ls_layout *layout, int64_t rank,
                    int64_t bytes[LS_ACCOUNTS], struct ls_error *error);

/* Records every rank, or one that it is alike, in a step of each batch of the ramp-up and two of
 * the full batch, one after the other, and proves that they agree. Where matrices meet, each rank
 * is recorded there. tells: ls_meter hears how many are. LS_ELAYOUT if they do not agree. */
int ls_layout_check(const struct ls_config *config, const struct ls_layout *layout, bool tells,
                    struct ls_layout_proof *proof, struct ls_error *error);

LS_C_END
#endif
