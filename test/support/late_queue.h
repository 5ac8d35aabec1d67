/* A queue that runs its commands late: when the host waits for them (ls_queue_synchronise). While a
 * step runs, it checks (lockstep/device/check.h): the trainer's memory is open to commands alone,
 * and the host that touches it before it waited faults. One that reads a value of its own before it
 * waited has an old one. Included by the one file of such a test (Makefile, LATE). */
#ifndef TEST_SUPPORT_LATE_QUEUE_H
#define TEST_SUPPORT_LATE_QUEUE_H

#include "wrapped.h"

#include "train/trainer.h"

#include <lockstep/device/check.h>
#include <lockstep/device/tier.h>

#include <stdlib.h>

static bool late;      /* the test's wishes */
static bool late_open; /* the memory is, to the host too */
static bool late_deaf; /* a broken twin: behind a step the host does not wait for its ops */
/* Told of each command when it is submitted. */
static void (*late_watch)(struct ls_queue *queue, const struct ls_command *command);
static _Thread_local struct {
    struct ls_command_list list;
    struct ls_queue *queue; /* of the list */
    struct ls_arena *arena; /* the trainer's: the last that was taken, but for workspaces */
    struct ls_check check;  /* of queues that have none from the trainer */
    bool in_step, deaf;
    int64_t waits; /* of the host, while commands had not run */
} late_queue;
/* Of all ranks: steps, and how often the host waited in one for more than its own words. */
static _Atomic int64_t late_steps, late_step_waits;

static inline int late_run(struct ls_error *error)
{
    int status = LS_OK;
    if (late_queue.list.count == 0) /* the queue may be that of a trainer that is gone */
        return LS_OK;
    struct ls_check *check = late_queue.queue->check;
    if (check)
        ls_check_run_begin(check);
    for (int64_t i = 0; i < late_queue.list.count && !status; i++) {
        const struct ls_command command = ls_command_list_get(&late_queue.list, i);
        status = ls_command_run(late_queue.queue, &command, error);
    }
    if (check)
        ls_check_run_end(check);
    ls_command_list_release(&late_queue.list);
    return status;
}

static inline int late_submit(struct ls_queue *queue, const struct ls_command *command,
                              struct ls_error *error)
{
    int status = LS_OK;
    if (late_watch)
        late_watch(queue, command);
    if (!late)
        return ls_command_run(queue, command, error);
    if (late_queue.queue != queue)
        status = late_run(error);
    late_queue.queue = queue;
    return status ? status
           : !ls_command_list_add(&late_queue.list, command)
               ? ls_error_set(error, LS_ENOMEM, "no memory for a late command")
               : LS_OK;
}

/* Whether what was submitted last is of a communicator: words that the host exchanges. */
static inline bool late_words(void)
{
    struct ls_comm_told told;
    if (late_queue.list.count == 0)
        return false;
    const struct ls_command last = ls_command_list_get(&late_queue.list, late_queue.list.count - 1);
    return ls_comm_command(&last, &told);
}

static inline int late_synchronise(struct ls_queue *queue, struct ls_error *error)
{
    (void)queue;
    late_queue.waits += late_queue.list.count > 0;
    late_step_waits += late_queue.in_step && late_queue.list.count > late_words();
    return late_queue.deaf && !late_words() ? LS_OK : late_run(error);
}

/* A deaf host's commands run before what they are of changes or goes. */
static inline void late_hear(void)
{
    struct ls_error unheard;
    if (late_queue.deaf && late_run(&unheard))
        abort();
    late_queue.deaf = false;
}

WRAPPED(ls_ops_init);
int __wrap_ls_ops_init(struct ls_ops *ops, int threads, enum ls_isa isa, struct ls_error *error)
{
    int status = __real_ls_ops_init(ops, threads, isa, error);
    ops->queue.submit = late_submit;
    ops->queue.synchronise = late_synchronise;
    return status;
}

WRAPPED(ls_arena_init);
int __wrap_ls_arena_init(struct ls_arena *arena, size_t size, struct ls_error *error)
{
    if (size != ls_ops_workspace_bytes(1))
        late_queue.arena = arena;
    return __real_ls_arena_init(arena, size, error);
}

WRAPPED(ls_trainer_step);
int __wrap_ls_trainer_step(struct ls_trainer *t, struct ls_step_report *report,
                           struct ls_error *error)
{
    late_hear();
    struct ls_queue *queue = &t->ops.queue;
    struct ls_check *theirs = queue->check;
    late_queue.in_step = late;
    late_steps += late;
    if (late && !late_open) {
        queue->check = theirs ? theirs : &late_queue.check;
        ls_check_memory(queue->check, late_queue.arena->base, late_queue.arena->size);
    }
    int status = __real_ls_trainer_step(t, report, error);
    if (late && !late_open)
        ls_check_memory(queue->check, NULL, 0);
    queue->check = theirs;
    late_queue.in_step = false;
    late_queue.deaf = late_deaf;
    return status;
}

WRAPPED(ls_trainer_free);
void __wrap_ls_trainer_free(struct ls_trainer *t)
{
    late_hear();
    __real_ls_trainer_free(t);
}

#endif
