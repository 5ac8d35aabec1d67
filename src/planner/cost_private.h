/* planner/cost_private.h - what the costs of works and of moves share. */
#ifndef PLANNER_COST_PRIVATE_H
#define PLANNER_COST_PRIVATE_H

#include <lockstep/planner/cost.h>

/* At x between (x0, y0) and (x1, y1) on logarithmic axes. */
double cost_between(double x, double x0, double y0, double x1, double y1);

#endif
