/* planner/lesson_private.h - what lessons share: text, numbers, configurations, bars. Private to
 * src/planner. */
#ifndef PLANNER_LESSON_PRIVATE_H
#define PLANNER_LESSON_PRIVATE_H

#include <lockstep/planner/lesson.h>

struct ls_lesson_page {
    const struct ls_cluster *cluster; /* NULL: the lesson has none */
    bool own;                         /* these are the lesson's own figures */
    FILE *text, *picture;
};

int lesson_memory(const struct ls_lesson_page *page, struct ls_error *error);
int lesson_bubble(const struct ls_lesson_page *page, struct ls_error *error);
int lesson_allreduce(const struct ls_lesson_page *page, struct ls_error *error);
int lesson_3d(const struct ls_lesson_page *page, struct ls_error *error);
int lesson_scaling(const struct ls_lesson_page *page, struct ls_error *error);

/* ---- text ------------------------------------------------------------------------------------
 */

/* "Given" on a line of its own, after an empty one. */
void lesson_part(const struct ls_lesson_page *page, const char *title);
/* A paragraph, indented, in lines of at most 96 columns. */
void lesson_say(const struct ls_lesson_page *page, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A command to type, on a line of its own. */
void lesson_command(const struct ls_lesson_page *page, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* What the figures of the cluster are, and where they are from. */
void lesson_say_cluster(const struct ls_lesson_page *page);

struct lesson_number {
    char text[32];
};
struct lesson_number lesson_gb(double bytes);     /* "112 GB", of 10^9 bytes */
struct lesson_number lesson_seconds(double s);    /* "1.23 s", "56.7 ms" */
struct lesson_number lesson_percent(double part); /* "84.2 %"; "-" of NaN */

/* ---- configurations --------------------------------------------------------------------------
 */

/* From keys as one writes them on a command line; resolved. */
int lesson_config(const char *keys, struct ls_config *config, struct ls_error *error);
/* LS_ELAYOUT where the cluster has fewer accelerators than the lesson has ranks. */
int lesson_room(const struct ls_cluster *cluster, const char *lesson, int64_t ranks,
                struct ls_error *error);
/* The forecast of such keys on the cluster. */
int lesson_forecast(const struct ls_cluster *cluster, const char *keys,
                    struct ls_forecast *forecast, struct ls_error *error);

/* ---- bars ------------------------------------------------------------------------------------
 */

enum { LESSON_PARTS_MAX = 5, LESSON_BARS_MAX = 12 };
struct lesson_bar {
    char label[64];
    double parts[LESSON_PARTS_MAX];
    char note[64]; /* behind the bar */
};
struct lesson_bars {
    const char *title, *axis;
    const char *legends[LESSON_PARTS_MAX];
    int part_count, count;
    struct lesson_bar bar[LESSON_BARS_MAX];
    double limit; /* a line across; 0: none */
    const char *limit_text;
};
/* Nothing where file is NULL. */
void lesson_bars_draw(const struct lesson_bars *bars, FILE *file);

#endif
