/* planner/candidates.h - the layouts that a search looks at, and what is known of each before it is
 * simulated. Private to src/planner. */
#ifndef PLANNER_CANDIDATES_H
#define PLANNER_CANDIDATES_H

#include <lockstep/planner/search.h>

/* What a micro-batch takes at least on a rank: of a block, and of the head in all. backward_s
 * contains both halves, and what belongs to neither. */
struct layer_times {
    double forward_s, backward_s, input_s, weight_s, head_s;
};

struct candidate {
    int64_t pp, replicate, shard, cp, tp, micro, threads;
    int zero, schedule, chunks, recompute;
    bool offload;
    /* Those of one kind are cut alike; of one family, only recomputation and offload differ. */
    int64_t kind, family;
    bool tried;
    double bound_s, estimate_s; /* of a step; bound_s is never more than it takes */
    struct layer_times layer;
    double least_bytes; /* that a rank takes at least, about */
};

struct candidates {
    struct candidate *list;
    int64_t count, room, kinds, families;
    struct candidate unadmitted; /* the first whose blocks the recipe does not admit; pp 0: none */
};

/* Whether the search leaves that key as it is. */
bool key_pinned(const struct ls_search_options *options, const char *key);
/* Of parallel.split where the search chooses the stages and leaves the split as it is; else 0. */
int64_t split_parts(const struct ls_search_options *options);
/* Whether hosts hold so many ranks of so many cores: a rank is on one host. */
bool ranks_have_hosts(const struct ls_cluster *cluster, int64_t ranks, int64_t cores);
/* Writes its keys into config. */
void candidate_apply(const struct candidate *candidate, const struct ls_search_options *options,
                     struct ls_config *config);
/* Adds all candidates for so many accelerators, with bounds and estimates. LS_ENOMEM. */
int candidates_add(const struct ls_search_options *options, int64_t accelerators,
                   struct candidates *candidates, struct ls_error *error);
/* The step of its layout, at least: its schedule with the least that its stages take; 0: it has no
 * stages. */
double candidate_pipeline_s(const struct candidate *candidate, const struct ls_layout *layout);
/* Why no layout for so many accelerators has the axes that are pinned: LS_ELAYOUT; LS_OK if they
 * are not the reason. */
int pinned_refuse(const struct ls_search_options *options, int64_t accelerators,
                  struct ls_error *error);
/* No layout is admitted: why this one is not, LS_ELAYOUT; LS_OK if it is. */
int unadmitted_refuse(const struct ls_search_options *options, const struct candidate *candidate,
                      int64_t accelerators, struct ls_error *error);

#endif
