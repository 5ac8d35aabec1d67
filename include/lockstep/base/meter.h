/* lockstep/base/meter.h - how far a long work is, for the person who waits for it: one line on a
 * terminal, updated in place, or a line now and then in a log.
 *
 *     ls_meter_show(&view)               the program, once: without it nothing is shown
 *     ls_meter("sequences", done, all)   the code that works, after each part
 *     ls_meter_clear()                   before anything else is printed to the same place
 *
 * All Local. Of several ranks one tells. */
#ifndef LOCKSTEP_BASE_METER_H
#define LOCKSTEP_BASE_METER_H

#include <lockstep/base.h>

LS_C_BEGIN

/* Where it is shown. title is borrowed. */
struct ls_meter_view {
    const char *title; /* "lockstep eval" */
    int columns;       /* of the terminal; 0: a log, which gets whole lines */
    void (*write)(void *user, const char *text, size_t bytes);
    void *user;
};
/* NULL: nothing is shown from here on. The time until the first line counts from here. */
void ls_meter_show(const struct ls_meter_view *view);
/* So much is done of all, both in `what`; all 0: nobody knows how much there is. It is a sign of
 * life too (ls_progress). Shown from the third second on: ten times a second on a terminal, every
 * ten seconds in a log. The line goes when all is done. */
void ls_meter(const char *what, int64_t done, int64_t all);
/* Takes the line off the terminal; a work that goes on is timed from here. */
void ls_meter_clear(void);

LS_C_END
#endif
