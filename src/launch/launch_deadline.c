/* The time at which a job must have saved and ended. */
#include "launch/launch_private.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COMMAND_S = 10, LOOK_S = 300, UNKNOWN_S_MAX = 300 };

/* "1-02:03:04", "02:03:04" or "03:04"; 0 of "INVALID", which Slurm says of less than none;
 * negative: no such time, as "UNLIMITED". */
static double slurm_seconds(const char *text)
{
    long part[4] = {0}, parts = 0;
    const char *dash = strchr(text, '-');
    char *end = NULL;
    long days = dash ? strtol(text, &end, 10) : 0;
    if (!strcmp(text, "INVALID"))
        return 0;
    if (dash && end != dash)
        return -1;
    for (const char *at = dash ? dash + 1 : text; parts < 4; at = end + 1) {
        part[parts++] = strtol(at, &end, 10);
        if (end == at)
            return -1;
        if (*end != ':')
            break;
    }
    if (*end)
        return -1;
    double seconds = 0;
    for (int i = 0; i < parts; i++)
        seconds = 60 * seconds + (double)part[i];
    return 86400 * (double)days + seconds;
}

/* When the allocation ends, by its controller; as it was known where that does not answer.
 * INFINITY: it does not end. */
static double slurm_end(double known_s, double now_s)
{
    char text[65536], id[64], left[64], *save = NULL, *job = getenv("SLURM_JOB_ID");
    char *const argv[] = {"squeue", "--noheader", "--jobs", job, "--format=%A %L", NULL};
    if (!job || process_run(argv, NULL, text, sizeof text, COMMAND_S))
        return known_s;
    /* Of a job array all tasks are listed. */
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (sscanf(line, "%63s %63s", id, left) != 2 || strcmp(id, job) != 0)
            continue;
        double left_s = slurm_seconds(left);
        return left_s < 0 ? INFINITY : now_s + left_s;
    }
    return known_s;
}

static void look(struct launch_deadline *deadline)
{
    double now_s = ls_now_s();
    deadline->next_s = now_s + LOOK_S;
    if (deadline->slurm)
        deadline->end_s = slurm_end(deadline->end_s, now_s);
    deadline->until_s = fmin(deadline->given_s, deadline->end_s);
}

void launch_deadline_open(struct launch_deadline *deadline, double seconds, bool slurm)
{
    double now_s = ls_now_s();
    const char *end = slurm ? getenv("SLURM_JOB_END_TIME") : NULL; /* as it was at the beginning */
    long long end_at = end ? atoll(end) : 0, left_s = ls_max(end_at - (long long)time(NULL), 0);
    *deadline = (struct launch_deadline){.given_s = seconds > 0 ? now_s + seconds : INFINITY,
                                         .end_s = end_at > 0 ? now_s + (double)left_s : INFINITY,
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
    deadline->needed_s = watch->eval_s + (watch->save_s > 0 ? 2 * watch->save_s + watch->step_s
                                                            : deadline->unknown_s);
    return deadline->left_s <= deadline->needed_s;
}

bool launch_deadline_over(const struct launch_deadline *deadline)
{
    return ls_now_s() >= deadline->until_s;
}
