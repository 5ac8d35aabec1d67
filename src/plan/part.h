/* Private to plan: what a rank holds, as ZeRO cuts it. */
#ifndef PLAN_PART_H
#define PLAN_PART_H

#include <lockstep/plan.h>

struct plan_unit {
    int64_t gather[2]; /* elements that one rank brings to a gather: of matrices, of vectors */
};

/* Of all ranks with the same pipeline and tensor-parallel rank. */
struct plan_part {
    struct ls_params params;
    bool cut, each;          /* ZeRO cuts the state; micro-batches are reduced one by one */
    struct plan_unit *units; /* [params.unit_count] */
    int64_t *scatter;        /* [params.region_count] elements of a region that a rank keeps */
    int64_t kept[2];         /* elements that one rank brings of tensors that stay whole (zero 3) */
    int64_t shared; /* elements of room for the other gradient of a table tied across stages */
    int *unit_of, *region_of; /* [layers + 2], -1: none */
};
int plan_part_init(const struct ls_layout *layout, int64_t pp_rank, int64_t tp_rank,
                   struct plan_part *part, struct ls_error *error);
void plan_part_release(struct plan_part *part);

/* Elements of a tensor that each of the shard ranks has room for: rows are rounded up. */
int64_t plan_shard_elements(const struct ls_layout *layout, const struct ls_param *param);
/* Elements that shard rank `rank` really has of it. */
int64_t plan_slice_elements(const struct ls_layout *layout, const struct ls_param *param, bool cut,
                            int64_t rank);

#endif
