/* What `lockstep plan` prints and draws of plans. */
#ifndef CMD_PLANNED_H
#define CMD_PLANNED_H

#include <lockstep/planner.h>

/* The cluster of a file; NULL: this machine, as bench machine would measure it, in short. */
int planned_cluster(const char *path, const struct ls_config *config, struct ls_cluster *cluster,
                    struct ls_error *error);
/* Recipe and cluster. */
void planned_head(const struct ls_search_options *options);
/* One line a plan, and why the second is slower than the first. */
void planned_list(const struct ls_search_options *options, const struct ls_search *search);
void planned_counts(const struct ls_search *search, double seconds);
/* Where the time of a plan goes, what it takes of memory, what the training costs, and the
 * textbook's formulas beside it. */
void planned_details(const struct ls_search_options *options, const struct ls_search_plan *plan);
/* The best plan, and the best one of a new search, with one figure of the cluster changed. */
int planned_what_if(const struct ls_search_options *options, const char *change,
                    const struct ls_search_plan *plan, struct ls_error *error);
/* The timeline of a step as SVG, and as a trace for Perfetto; each path may be NULL. */
int planned_draw(const struct ls_config *config, const struct ls_cluster *cluster, const char *svg,
                 const char *trace, struct ls_error *error);

#endif
