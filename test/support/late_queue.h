/* A queue that runs its commands late: when the host waits for them (ls_ops_synchronise), or when
 * what is not a command yet begins, a collective or a transfer of a tier. While a step runs, the
 * trainer's memory is open to commands alone: the host that touches it faults, and one that reads a
 * value before it waited has an old one. One rank; included by the one file of such a test
 * (Makefile, LATE). */
#ifndef TEST_SUPPORT_LATE_QUEUE_H
#define TEST_SUPPORT_LATE_QUEUE_H

#include "wrapped.h"

#include <lockstep/device/tier.h>
#include <lockstep/train.h>

#include <stdlib.h>
#include <sys/mman.h>

static bool late; /* the test's wish */
/* Told of each command when it is submitted. */
static void (*late_watch)(const struct ls_ops *ops, const struct ls_command *command);
static struct {
    struct ls_command_list list;
    struct ls_ops *ops;     /* of the list */
    struct ls_arena *arena; /* the trainer's: the last that was taken, but for workspaces */
    bool open;              /* the memory is, to the host too */
    bool deaf;              /* a broken twin: the host does not wait */
    bool in_step, running;
    int64_t waits; /* of the host, while commands had not run */
} late_queue;

/* Debug builds look at the values of each step of a layer on the host. */
#ifdef LS_MEMORY_CHECK
enum { LATE_CHECKED = 1 };
#else
enum { LATE_CHECKED = 0 };
#endif

static inline void late_memory_open(bool open)
{
    if (late_queue.in_step && !late_queue.open && !LATE_CHECKED &&
        mprotect(late_queue.arena->base, late_queue.arena->size,
                 open ? PROT_READ | PROT_WRITE : PROT_NONE))
        abort();
}

WRAPPED(ls_submit);
static inline int late_run(struct ls_error *error)
{
    int status = LS_OK;
    late_memory_open(true);
    late_queue.running = true;
    for (int64_t i = 0; i < late_queue.list.count && !status; i++) {
        const struct ls_command command = ls_command_list_get(&late_queue.list, i);
        status = __real_ls_submit(late_queue.ops, &command, error);
    }
    late_queue.running = false;
    late_memory_open(false);
    ls_command_list_release(&late_queue.list);
    return status;
}

int __wrap_ls_submit(struct ls_ops *ops, const struct ls_command *command, struct ls_error *error)
{
    int status = LS_OK;
    if (late_watch && !late_queue.running)
        late_watch(ops, command);
    if (!late || late_queue.running || ops->idle)
        return __real_ls_submit(ops, command, error);
    if (late_queue.ops != ops)
        status = late_run(error);
    late_queue.ops = ops;
    return status ? status
           : !ls_command_list_add(&late_queue.list, command)
               ? ls_error_set(error, LS_ENOMEM, "no memory for a late command")
               : LS_OK;
}

WRAPPED(ls_ops_synchronise);
int __wrap_ls_ops_synchronise(struct ls_ops *ops, struct ls_error *error)
{
    late_queue.waits += late_queue.list.count > 0;
    int status = late_queue.deaf ? LS_OK : late_run(error);
    return status ? status : __real_ls_ops_synchronise(ops, error);
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
    late_queue.in_step = late;
    late_memory_open(false);
    int status = __real_ls_trainer_step(t, report, error);
    late_memory_open(true);
    late_queue.in_step = false;
    return status;
}

#endif
