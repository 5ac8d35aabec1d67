/* lockstep/compare/report.h - a run, or several side by side, as one page for a browser.
 *
 * The page holds everything that it shows: style and pictures, no scripts, no addresses. It is made
 * of what lies in a run's directory alone: config.yaml, metrics.jsonl, checkpoints/, log/. Layout,
 * memory and schedule are what the planner (lockstep/plan.h) says of the run's configuration.
 *
 * What is missing or unreadable is said on the page, in its place: a run that has not made a step,
 * goes on still, was killed within a line, whose losses are not finite, or whose config.yaml this
 * version does not read. Of runs of more than LS_REPORT_POINTS_MAX steps, neighbours are drawn by
 * their mean: page and memory are bounded. */
#ifndef LOCKSTEP_COMPARE_REPORT_H
#define LOCKSTEP_COMPARE_REPORT_H

#include <lockstep/base.h>

#include <stdio.h>

LS_C_BEGIN

enum { LS_REPORT_RUNS_MAX = 6, LS_REPORT_POINTS_MAX = 1 << 16 };

/* Local. Writes the page of directories[count], of runs or of their checkpoints, to file, which is
 * read as HTML and as XML. LS_EINVAL: count. LS_EIO: a directory that is not there; LS_EDATA: one
 * that is no run's. LS_ENOMEM. Whether file took it all is the caller's to ask (ferror, fclose). */
int ls_report_write(const char *const *directories, int count, FILE *file, struct ls_error *error);
/* Local. The losses of runs over their steps, as SVG (lockstep/trace/picture.h); log: on a
 * logarithmic axis. Errors as above. */
int ls_run_plot_write(const char *const *directories, int count, bool log, FILE *file,
                      struct ls_error *error);

LS_C_END
#endif
