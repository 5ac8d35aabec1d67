/* What `lockstep plan` prints and draws of plans. */
#ifndef CMD_PLANNED_H
#define CMD_PLANNED_H

#include <lockstep/planner.h>

struct cmd_args;

/* The cluster of a file; NULL: this machine, as bench machine would measure it, in short. */
int planned_cluster(const char *path, const struct ls_config *config, struct ls_cluster *cluster,
                    struct ls_error *error);
/* Recipe and cluster. */
void planned_head(const struct ls_search_options *options);
/* One line a plan, and what the second takes more than the first, or why it is slower. */
void planned_list(const struct ls_search_options *options, const struct ls_search *search);
void planned_counts(const struct ls_search_options *options, const struct ls_search *search,
                    double seconds);
/* ls_search_run; an error after a limit names the options that raise it. */
int planned_search(const struct ls_search_options *options, struct ls_search *search,
                   struct ls_error *error);
/* Where the time of a plan goes, what it takes of memory, what the training costs, and the
 * textbook's formulas beside it. */
void planned_details(const struct ls_search_options *options, const struct ls_search_plan *plan);
/* The same of one layout of config; layout NULL: it is not known. */
void planned_forecast(const struct ls_search_options *options, const struct ls_config *config,
                      const struct ls_layout *layout, const struct ls_forecast *forecast);
/* Sets figures of the cluster, "hosts=4,link.inter=100Gbps" (of a link: its bandwidth). LS_ECONFIG.
 */
int planned_change(struct ls_cluster *cluster, const char *text, struct ls_error *error);
/* The best plan, and the best one of a new search, with figures of the cluster changed. */
int planned_what_if(const struct ls_search_options *options, const char *change,
                    const struct ls_search_plan *plan, struct ls_error *error);
/* Whether a file can be written at path: known before a search. LS_EIO and others. */
int planned_file_check(const char *path, struct ls_error *error);
/* The timeline of a step as SVG, and as a trace for Perfetto; each path may be NULL. */
int planned_draw(const struct ls_config *config, const struct ls_cluster *cluster, const char *svg,
                 const char *trace, struct ls_error *error);

#endif
