/* lockstep/planner/timeline.h - the step of a plan over time: a picture, and a trace.
 *
 * What each kind of rank computes, and what moves meanwhile, as the forecast simulates it
 * (lockstep/planner/forecast.h). Everything here is Local. config is resolved. */
#ifndef LOCKSTEP_PLANNER_TIMELINE_H
#define LOCKSTEP_PLANNER_TIMELINE_H

#include <lockstep/planner/forecast.h>

#include <stdio.h>

LS_C_BEGIN

/* Writes an SVG of the step that config's layout takes on the cluster. LS_ENOMEM, and what
 * ls_forecast_make reports. Whether file took it all is the caller's to ask. */
int ls_timeline_draw(const struct ls_config *config, const struct ls_cluster *cluster, FILE *file,
                     struct ls_error *error);
/* The same as a trace for Perfetto (trace events in JSON). */
int ls_timeline_trace(const struct ls_config *config, const struct ls_cluster *cluster, FILE *file,
                      struct ls_error *error);

LS_C_END
#endif
