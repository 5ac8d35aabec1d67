/* What `lockstep plan` prints and draws of plans. */
#ifndef CMD_PLANNED_H
#define CMD_PLANNED_H

#include <lockstep/planner.h>

struct cmd_args;
/* `lockstep plan --layout`: no search; what the configuration's own layout takes. */
int plan_layout(const struct cmd_args *args, struct ls_error *error);

/* The cluster of a file; NULL: this machine, as bench machine would measure it, in short. */
int planned_cluster(const char *path, const struct ls_config *config, struct ls_cluster *cluster,
                    struct ls_error *error);
/* Where parallel.auto is set, config gets the layout that the planner finds; tells: says so. Called
 * before ranks are started. LS_ECONFIG under a launcher; errors of the search. */
int planned_auto(struct ls_config *config, bool tells, struct ls_error *error);
/* Whether the command line of config, which is borrowed until the next call, gave a key: such keys
 * stay; a file's are where a search begins. */
bool (*planned_given(const struct ls_config *config))(const char *key);
/* Recipe and cluster. */
void planned_head(const struct ls_search_options *options);
/* One line a plan, and what the second takes more than the first, or why it is slower. */
void planned_list(const struct ls_search_options *options, const struct ls_search *search);
void planned_counts(const struct ls_search *search, double seconds);
/* Where the time of a plan goes, what it takes of memory, what the training costs, and the
 * textbook's formulas beside it. */
void planned_details(const struct ls_search_options *options, const struct ls_search_plan *plan);
/* The same of one layout of config; layout NULL: it is not known. */
void planned_forecast(const struct ls_search_options *options, const struct ls_config *config,
                      const struct ls_layout *layout, const struct ls_forecast *forecast);
/* If waiting for dp is what the step costs: the larger leaf that costs less, with what it takes. */
void planned_leaves(const struct ls_search_options *options, const struct ls_config *config,
                    const struct ls_layout *layout, const struct ls_forecast *forecast);
/* Where sequences are too few for the accelerators, or nothing fits (best NULL): a sentence about
 * what context parallel would give a recipe that does not cut them. false: nothing to say. */
bool planned_tiles(const struct ls_search_options *options, const struct ls_forecast *best,
                   char *text, size_t bytes);
/* Sets a figure of the cluster, "link.inter=100Gbps" (of a link alone, its bandwidth). LS_ECONFIG.
 */
int planned_change(struct ls_cluster *cluster, const char *change, struct ls_error *error);
/* The best plan, and the best one of a new search, with one figure of the cluster changed. */
int planned_what_if(const struct ls_search_options *options, const char *change,
                    const struct ls_search_plan *plan, struct ls_error *error);
/* The timeline of a step as SVG, and as a trace for Perfetto; each path may be NULL. */
int planned_draw(const struct ls_config *config, const struct ls_cluster *cluster, const char *svg,
                 const char *trace, struct ls_error *error);

#endif
