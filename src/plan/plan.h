/* Private to plan. */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include <lockstep/plan.h>

/* Fills *layout where it is admissible; LS_ELAYOUT without a search for what would be. file: the
 * table that parallel.schedule_file holds, NULL where no file is asked for. */
int plan_admit(const struct ls_layout_request *request, const struct ls_schedule *file,
               struct ls_layout *layout, struct ls_error *error);
/* Writes the keys to change for the admissible layout nearest to request, "parallel.tp = 2,
 * parallel.dp = 4"; false where there is none near. */
bool plan_nearest(const struct ls_layout_request *request, const struct ls_schedule *file,
                  char *text, size_t bytes);

/* The axes that keys ask for. LS_ELAYOUT where dp contradicts the other two. */
int plan_axes(const struct ls_layout_keys *keys, int64_t size[LS_AXES], struct ls_error *error);

/* Checks that each batch can be shared by whole subtrees, and chooses the micro-batch. */
int plan_batch(const struct ls_layout_request *request, const struct ls_schedule *file,
               struct ls_layout *layout, struct ls_error *error);
/* Fills the stages: how many, where each lies, which layers it has. */
int plan_stages(const struct ls_layout_keys *keys, const struct ls_schedule *file,
                struct ls_layout *layout, struct ls_error *error);

/* LS_ELAYOUT where the schedule cannot run that many micro-batches. */
int plan_schedule_takes(const struct ls_layout *layout, const struct ls_schedule *file,
                        int64_t micro_batches, struct ls_error *error);
/* "1f1b", ..., "csv" */
const char *plan_schedule_name(const struct ls_layout *layout);

/* "<key> = <value>: <reason>" */
int plan_refuse(struct ls_error *error, const char *key, int64_t value, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same for a size of data parallel, by the key that the user gave: axis is
 * LS_AXIS_DP_REPLICATE, LS_AXIS_DP_SHARD, or LS_AXES for the product of both. */
int plan_refuse_dp(struct ls_error *error, const struct ls_layout_keys *keys, int axis,
                   int64_t size, const char *format, ...) __attribute__((format(printf, 5, 6)));

#endif
