/* How long ops took, by kind, and one by one. */
#include "train/trainer.h"

#include <lockstep/base.h>

static void on_begin(void *user, const struct ls_queue *queue, const struct ls_command *command)
{
    struct work_times *times = user;
    struct ls_work work;
    (void)queue;
    if (times->trace && ls_command_work(command, &work))
        ls_trace_op(times->trace,
                    &(struct ls_trace_op){ls_work_name(work.kind), ls_dtype_name(work.dtype),
                                          work.m, work.n, work.k, work.flops, work.bytes});
    times->begin_s = ls_now_s();
}

static void on_end(void *user, const struct ls_queue *queue, const struct ls_command *command)
{
    struct work_times *times = user;
    const double end_s = ls_now_s();
    struct ls_work work;
    (void)queue;
    if (!ls_command_work(command, &work))
        return;
    ls_trace_end(times->trace);
    times->work_s[work.kind] += end_s - times->begin_s;
    times->works[work.kind]++;
}

struct ls_queue_watch work_times_watch(struct work_times *times, struct ls_trace *trace)
{
    times->trace = trace;
    work_times_clear(times);
    return (struct ls_queue_watch){on_begin, on_end, times};
}

void work_times_clear(struct work_times *times)
{
    *times = (struct work_times){.trace = times->trace};
}
