/* How long ops took, by kind. */
#include "train/work_times.h"

#include <lockstep/base.h>

#include <string.h>

static void on_begin(void *user, const struct ls_command *command, const struct ls_work *work,
                     enum ls_work_pass pass)
{
    struct work_times *times = user;
    (void)command, (void)work, (void)pass;
    times->begin_s = ls_now_s();
}

static void on_end(void *user, const struct ls_work *work)
{
    struct work_times *times = user;
    times->work_s[work->kind] += ls_now_s() - times->begin_s;
    times->works[work->kind]++;
}

struct ls_ops_watch work_times_watch(struct work_times *times)
{
    work_times_clear(times);
    return (struct ls_ops_watch){on_begin, on_end, times};
}

void work_times_clear(struct work_times *times)
{
    memset(times, 0, sizeof *times);
}
