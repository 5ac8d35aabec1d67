/* lockstep/planner/lesson.h - exercises for people who learn how training is cut over ranks.
 *
 *   ls_lesson_find("bubble", &lesson, error)
 *   ls_lesson_run(lesson, &ask, error)          the page, and its picture
 *
 * A lesson prints a question, what is given, the formula with its source, the numbers as a table,
 * the answer, and an exercise with the command that checks it. Every number comes from the code
 * that plans: closed forms, schedule tables, memory plans, forecasts. The pages, with what is
 * given, are src/planner/lessons.txt. Everything here is Local. */
#ifndef LOCKSTEP_PLANNER_LESSON_H
#define LOCKSTEP_PLANNER_LESSON_H

#include <lockstep/planner/forecast.h>

LS_C_BEGIN

struct ls_lesson_ask {
    const struct ls_cluster *cluster; /* NULL: the lesson's, clusters/h100-2048.yaml */
    FILE *text;
    FILE *picture; /* one <svg> element; NULL: none */
};

struct ls_lesson {
    const char *name;
    bool has_cluster;     /* it computes with a cluster's figures */
    bool forecasts;       /* of its cases; else it asks for their memory alone */
    int64_t ranks, hosts; /* that the cluster has to have */
    const char *link;     /* its own rate between hosts; NULL: the figures' */
};

/* All lessons, in the order in which to read them. */
const struct ls_lesson *ls_lessons(size_t *count);
/* LS_ECONFIG of another name, with the nearest one and all of them. */
int ls_lesson_find(const char *name, const struct ls_lesson **lesson, struct ls_error *error);
/* LS_ECONFIG for a cluster that the lesson has no use for, LS_ELAYOUT for one that is too small for
 * it. LS_ENOMEM. Writing fails as FILEs do. */
int ls_lesson_run(const struct ls_lesson *lesson, const struct ls_lesson_ask *ask,
                  struct ls_error *error);

LS_C_END
#endif
