/* planner/lesson_private.h - lessons.txt: pages with formulas in them. Private to src/planner.
 *
 * A line that begins with two spaces goes on with the one before, after a space, or with a bar at
 * once. The beginning of a line says what it is:
 *
 *   keys KEY=VALUE...          what all cases of the lesson have
 *   case NAME: KEY=VALUE...    a configuration, of whose forecast and memory formulas ask
 *   let P(z) = EXPRESSION      a function of one variable, or of none
 *   def row {gb P(z)}|...      text that {row} stands for
 *   = Given                    the name of a part
 *   (four spaces)              printed as it is: formulas, commands
 *   |      |    a|    b|       the head of a table: its columns are as wide as they are here, and
 *                              what comes after the last bar is not padded
 *   _      |     |     |       the same, not printed
 *   >ZeRO {z}|{gb P(z)}        a row
 *   @z 0 1 2:LINE              the line with z as 0, 1 and 2; 1~9 are all from 1 to 9
 *   ?CONDITION:LINE            the line if the condition is not 0
 *   ~4                         1F1B of 4 stages and 4 micro-batches, drawn with letters
 *   !bars TITLE|AXIS|PART...   the picture; its lines are in lesson_picture.c
 *   ; ...                      a comment
 *   anything else              a paragraph, which is wrapped
 *
 * In braces stands a form and an expression: {gb N} is "112 GB". Forms are in lesson_page.c,
 * the functions that expressions call in lesson_values.c. Expressions have numbers, + - * / < and
 * parentheses, lower-case letters as variables, and names. */
#ifndef PLANNER_LESSON_PRIVATE_H
#define PLANNER_LESSON_PRIVATE_H

#include <lockstep/planner/cost.h>
#include <lockstep/planner/lesson.h>
#include <lockstep/planner/search.h>

struct lesson_result {
    const char *name;
    double parameters, flops, ranks, tp, pp, dp, zero, fits;
    double held[LS_MEMORY_KINDS], taken;
    struct ls_forecast forecast;
};

enum {
    LESSON_LETTERS = 26,
    LESSON_NAMES_MAX = 24,
    LESSON_CASES_MAX = 16,
    LESSON_ARGUMENTS_MAX = 3
};
struct lesson_picture;
struct lesson_page {
    const struct ls_lesson *lesson;
    const struct ls_cluster *cluster; /* NULL: the lesson has none */
    bool own;                         /* these are the lesson's own figures */
    FILE *text;
    struct lesson_picture *picture; /* NULL: none */
    struct lesson_result results[LESSON_CASES_MAX];
    int result_count;
    double variables[LESSON_LETTERS];
    const char *names[LESSON_NAMES_MAX]; /* what follows "let ", "def " and "keys " */
    int name_count;
    const char *head; /* of the table */
    int status;       /* the first failure; what follows computes nothing new */
    struct ls_error *error;
};

struct lesson_text {
    char text[2048];
};

/* Prints a line of the page. */
void lesson_line(struct lesson_page *page, const char *line);
/* The text, with what stands in braces computed. */
struct lesson_text lesson_expand(struct lesson_page *page, const char *text);
/* What follows the name where it was given a meaning; NULL: it was not. */
const char *lesson_name(const struct lesson_page *page, const char *name, int length);

/* The expression that begins there; moves on behind it. */
double lesson_expression(struct lesson_page *page, const char **at);
/* A function of the code that plans. */
double lesson_call(struct lesson_page *page, const char *name, const double *a);
/* "NAME: KEYS" */
void lesson_case(struct lesson_page *page, const char *line);
/* Why case i is not the best one. */
struct ls_reason lesson_reason(const struct lesson_page *page, int i);
void lesson_schedule(struct lesson_page *page, int stages);
int lesson_config(const char *keys, struct ls_config *config, struct ls_error *error);

int lesson_picture_new(struct lesson_picture **picture, struct ls_error *error);
/* A line of the page that begins with "!". */
void lesson_picture_line(struct lesson_page *page, const char *line);
int lesson_picture_draw(const struct lesson_picture *picture, FILE *file, struct ls_error *error);

#endif
