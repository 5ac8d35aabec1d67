/* What drawn layouts have in them, for whoever judges the drawing. */
#ifndef TEST_SUPPORT_COVER_H
#define TEST_SUPPORT_COVER_H

#include <lockstep/compare.h>

/* How many values, and with `pairs` pairs too, were never drawn. Impossible ones do not count. */
int cover_missing(const struct ls_draw_cover *cover, bool pairs);
/* Values by row, and a triangle of pairs: how many layouts had both; "-" where none was found that
 * has. */
void cover_print(const struct ls_draw_cover *cover);

#endif
