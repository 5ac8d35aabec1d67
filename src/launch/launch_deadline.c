/* The time at which a job must have saved and ended. */
#include "launch/launch_private.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COMMAND_S = 10, LOOK_S = 300, UNKNOWN_S_MAX = 300 };

/* "1-02:03:04", "02:03:04" or "03:04"; negative: no such time, as of a job without a limit. */
static double slurm_seconds(const char *text)
{
    long part[4] = {0}, parts = 0;
    const char *dash = strchr(text, '-');
    char *end = NULL;
    long days = dash ? strtol(text, &end, 10) : 0;
    if (dash && end != dash)
        return -1;
    for (const char *at = dash ? dash + 1 : text; parts < 4; at = end + 1) {
        part[parts++] = strtol(at, &end, 10);
        if (end == at)
            return -1;
        if (*end != ':')
            break;
    }
    double seconds = 0;
    for (int i = 0; i < parts; i++)
        seconds = 60 * seconds + (double)part[i];
    return 86400 * (double)days + seconds;
}

/* Seconds until the allocation ends, by its controller, or by what it said at the beginning;
 * INFINITY: it does not end. */
static double slurm_left(void)
{
    char text[256], *job = getenv("SLURM_JOB_ID"), *end = getenv("SLURM_JOB_END_TIME");
    char *const argv[] = {"squeue", "--noheader", "--jobs", job, "--format=%L", NULL};
    double left_s = -1;
    if (job && !process_run(argv, NULL, text, sizeof text, COMMAND_S))
        left_s = slurm_seconds(text);
    else if (end && atoll(end) > 0)
        left_s = fmax((double)(atoll(end) - (long long)time(NULL)), 0);
    return left_s < 0 ? INFINITY : left_s;
}

static void look(struct launch_deadline *deadline)
{
    double now_s = ls_now_s();
    deadline->next_s = now_s + LOOK_S;
    deadline->until_s = deadline->given_s;
    if (deadline->slurm)
        deadline->until_s = fmin(deadline->until_s, now_s + slurm_left());
}

void launch_deadline_open(struct launch_deadline *deadline, double seconds, bool slurm)
{
    double now_s = ls_now_s();
    *deadline = (struct launch_deadline){.given_s = seconds > 0 ? now_s + seconds : INFINITY,
                                         .slurm = slurm};
    look(deadline);
    deadline->unknown_s = fmin((deadline->until_s - now_s) / 10, UNKNOWN_S_MAX);
}

bool launch_deadline_due(struct launch_deadline *deadline, const struct launch_watch *watch)
{
    double now_s = ls_now_s();
    if (deadline->slurm && now_s >= deadline->next_s)
        look(deadline);
    deadline->left_s = deadline->until_s - now_s;
    deadline->needed_s =
        watch->save_s > 0 ? 2 * watch->save_s + watch->step_s : deadline->unknown_s;
    return deadline->left_s <= deadline->needed_s;
}
