/* lockstep status RUN: where a run stands. */
#include "cmd.h"

#include <lockstep/base/words.h>
#include <lockstep/launch.h>

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

static void age_print(const char *before, double then, double now)
{
    double age = ls_shown(now - then);
    printf("%s%s ago", before, age < 1 ? "less than 1 s" : ls_duration(age).text);
}

static void failures_print(const struct ls_run_status *s)
{
    printf("failures    ");
    for (int i = 0; i < s->kinds; i++)
        printf("%s%ld %s", i ? ", " : "", (long)s->failures[i].count, s->failures[i].kind);
    if (!s->kinds)
        printf("none that a launcher saw");
    if (s->lost_s > 0) {
        printf("; time lost %s, %s computed again", ls_duration(s->lost_s).text,
               ls_counted(s->again, "step").text);
    }
    putchar('\n');
}

/* What holds the run: of another host, that nothing is known but what it wrote. */
static void state_print(const struct ls_run_status *s, double now)
{
    cmd_print("state       %s%s%s%s%s", ls_run_state_name(s->state), s->who[0] ? ": " : "", s->who,
              s->text[0] ? ": " : "", s->text);
    if (s->elsewhere)
        printf("; seen from here only by its lock");
    if (s->elsewhere && !isnan(s->heard))
        age_print("; last record ", s->heard, now);
    putchar('\n');
}

static void newest_print(int64_t step, double time, double now)
{
    printf("of step %ld", (long)step);
    age_print(", ", time, now);
}

/* ---- one object ------------------------------------------------------------------------------ */

/* What is not known is null. */
static json_t *real(double value)
{
    return isnan(value) ? json_null() : json_real(value);
}

static const char *known(const char *text)
{
    return *text ? text : NULL;
}

static json_t *count(int64_t value)
{
    return value ? json_integer((json_int_t)value) : json_null();
}

/* {"step": 40, "time": 1796033396.8}; null: there is none. */
static json_t *newest(int64_t step, double time)
{
    return step < 0 ? json_null()
                    : json_pack("{s:I, s:o}", "step", (json_int_t)step, "time", real(time));
}

static int json_status(const struct ls_run_status *s, struct ls_error *error)
{
    json_t *failures = json_object();
    for (int i = 0; i < s->kinds; i++)
        json_object_set_new(failures, s->failures[i].kind,
                            json_integer((json_int_t)s->failures[i].count));
    json_t *object = json_pack(
        "{s:s, s:s?, s:b, s:s?, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:s?, s:o, s:o, s:f, s:I}",
        "state", ls_run_state_name(s->state), "who", known(s->who), "elsewhere", (int)s->elsewhere,
        "text", known(s->text), "heard", real(s->heard), "step", (json_int_t)s->step, "steps",
        count(s->steps), "loss", real(s->loss), "step_time", real(s->step_time), "checkpoint",
        newest(s->saved, s->saved_time), "snapshot", newest(s->snapshot, s->snapshot_time),
        "layout", known(s->layout), "ranks", count(s->ranks), "failures", failures, "lost_s",
        s->lost_s, "again", (json_int_t)s->again);
    char *text = object ? json_dumps(object, JSON_REAL_PRECISION(15)) : NULL;
    json_decref(object);
    if (!text)
        return ls_no_memory(error, "for an object of JSON");
    puts(text);
    free(text);
    return LS_OK;
}

int cmd_status(const struct cmd_args *args, struct ls_error *error)
{
    static struct ls_run_status s;
    double now = (double)time(NULL);
    if (!args->words)
        return ls_error_set(error, LS_ECONFIG, "expected a run's folder: lockstep status RUN");
    int status = ls_run_status_read(args->word[0], &s, error);
    if (status)
        return status;
    if (cmd_args_given(args, "--json"))
        return json_status(&s, error);
    state_print(&s, now);
    if (!s.steps && !s.layout[0]) { /* it has not even written its configuration */
        if (s.kinds)
            failures_print(&s);
        return LS_OK;
    }
    printf("step        %ld of %ld", (long)s.step, (long)s.steps);
    if (!isnan(s.loss))
        printf(", loss %.4f", s.loss);
    if (!isnan(s.step_time))
        age_print(", ", s.step_time, now);
    printf("\ncheckpoint  ");
    if (s.saved < 0)
        printf("none");
    else
        newest_print(s.saved, s.saved_time, now);
    if (s.snapshot >= 0) {
        printf("\nsnapshot    ");
        newest_print(s.snapshot, s.snapshot_time, now);
    }
    cmd_print("\nlayout      %s: %s\n", ls_counted(s.ranks, "rank").text, s.layout);
    failures_print(&s);
    return LS_OK;
}
