/* Lessons on the command line. */
#ifndef CMD_PLAN_LESSON_H
#define CMD_PLAN_LESSON_H

#include "cmd.h"

/* The lesson that --lesson names, printed; its picture in --svg's file. */
int plan_lesson(const struct cmd_args *args, struct ls_error *error);

#endif
