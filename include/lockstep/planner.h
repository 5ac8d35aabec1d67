/* lockstep/planner.h - which layout, how long, how much memory, what it costs.
 *
 *   lockstep/planner/cluster.h        what is planned for
 *   lockstep/planner/cost.h           how long one thing takes on it
 *   lockstep/planner/storage.h        how long samples and checkpoints take
 *   lockstep/planner/closed_forms.h   the textbook's formulas
 *   lockstep/planner/measure.h        what this machine is, measured
 *   lockstep/planner/forecast.h       what a step of a layout takes
 *   lockstep/planner/search.h         the best layouts of a recipe
 *   lockstep/planner/timeline.h       the step of a plan as a picture and as a trace
 *   lockstep/planner/lesson.h         exercises for people who learn
 *   lockstep/planner/run_plan.h       what the steps of a run under way should take
 *   lockstep/planner/profile.h        where the time of a run went, beside the plan
 */
#ifndef LOCKSTEP_PLANNER_H
#define LOCKSTEP_PLANNER_H

#include <lockstep/planner/closed_forms.h>
#include <lockstep/planner/cluster.h>
#include <lockstep/planner/cost.h>
#include <lockstep/planner/forecast.h>
#include <lockstep/planner/lesson.h>
#include <lockstep/planner/measure.h>
#include <lockstep/planner/profile.h>
#include <lockstep/planner/run_plan.h>
#include <lockstep/planner/search.h>
#include <lockstep/planner/storage.h>
#include <lockstep/planner/timeline.h>

#endif
