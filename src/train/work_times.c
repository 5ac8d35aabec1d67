/* How long ops took, by kind. */
#include "train/work_times.h"

#include <lockstep/base.h>

#include <string.h>

static void on_begin(void *user, const struct ls_queue *queue, const struct ls_command *command)
{
    struct work_times *times = user;
    (void)queue, (void)command;
    times->begin_s = ls_now_s();
}

static void on_end(void *user, const struct ls_queue *queue, const struct ls_command *command)
{
    struct work_times *times = user;
    const double end_s = ls_now_s();
    struct ls_work work;
    if (!ls_command_work(queue, command, &work))
        return;
    times->work_s[work.kind] += end_s - times->begin_s;
    times->works[work.kind]++;
}

struct ls_queue_watch work_times_watch(struct work_times *times)
{
    work_times_clear(times);
    return (struct ls_queue_watch){on_begin, on_end, times};
}

void work_times_clear(struct work_times *times)
{
    memset(times, 0, sizeof *times);
}
