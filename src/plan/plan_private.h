/* Private to plan. */
#ifndef PLAN_PLAN_PRIVATE_H
#define PLAN_PLAN_PRIVATE_H

#include <lockstep/plan.h>

/* Checks that data-parallel ranks have equal shares of each batch, and chooses the micro-batch. */
int plan_batch(const struct ls_layout_request *request, const struct ls_schedule *file,
               struct ls_layout *layout, struct ls_error *error);
/* Behind what is said of a batch of the ramp-up, the keys that give it: " (the ramp-up's first
 * batch: batch.rampup_start = 2)"; "" for batch.global. */
struct plan_rampup_text {
    char text[160];
};
struct plan_rampup_text plan_rampup_text(const struct ls_layout *layout, int64_t leaves);
/* Fills the stages: how many, and where each lies. */
int plan_stages(const struct ls_layout_keys *keys, const struct ls_schedule *file,
                struct ls_layout *layout, struct ls_error *error);
/* Which layers each stage has; it takes longer than all else. */
int plan_split(const struct ls_layout_keys *keys, struct ls_layout *layout, struct ls_error *error);
/* What each block recomputes, from keys->recompute. */
int plan_recompute(const struct ls_layout_keys *keys, struct ls_layout *layout,
                   struct ls_error *error);

/* LS_ELAYOUT if the schedule cannot run that many micro-batches. */
int plan_schedule_takes(const struct ls_layout *layout, const struct ls_schedule *file,
                        int64_t micro_batches, struct ls_error *error);

/* "<key> = <value>: <reason>" */
int plan_refuse(struct ls_error *error, const char *key, int64_t value, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
