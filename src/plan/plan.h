/* Private to plan. */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include <lockstep/plan.h>

/* Fills *layout where it is admissible; LS_ELAYOUT without a search for what would be. */
int plan_admit(const struct ls_layout_request *request, struct ls_layout *layout,
               struct ls_error *error);
/* Writes the keys to change for the admissible layout nearest to request, "parallel.tp = 2,
 * parallel.dp = 4"; false where there is none near. */
bool plan_nearest(const struct ls_layout_request *request, char *text, size_t bytes);

/* The axes that keys ask for. LS_ELAYOUT where dp contradicts the other two. */
int plan_axes(const struct ls_layout_keys *keys, int64_t size[LS_AXES], struct ls_error *error);

/* Checks that each batch can be shared by whole subtrees, and chooses the micro-batch. */
int plan_batch(const struct ls_layout_request *request, struct ls_layout *layout,
               struct ls_error *error);
/* Fills stages and stage_first. */
int plan_stages(const struct ls_layout_keys *keys, struct ls_layout *layout,
                struct ls_error *error);

/* LS_ELAYOUT where the schedule cannot run that many micro-batches. */
int plan_schedule_takes(const struct ls_layout *layout, int64_t micro_batches,
                        struct ls_error *error);

/* "<key> = <value>: <reason>" */
int plan_refuse(struct ls_error *error, const char *key, int64_t value, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
