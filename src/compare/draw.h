/* Private to compare: what the drawing of layouts and its cover share. */
#ifndef COMPARE_DRAW_H
#define COMPARE_DRAW_H

#include <lockstep/compare.h>

/* Whether a row's value can be had under draw's conditions. */
bool draw_offers(const struct ls_draw *draw, int row, int value);

#endif
