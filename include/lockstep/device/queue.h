/* lockstep/device/queue.h - commands, and the queue of a device that they are submitted to.
 *
 * A command is a kind and its arguments: an op (lockstep/ops.h), the start of a collective or the
 * wait for one (lockstep/comm.h), a transfer of a memory tier (lockstep/device/tier.h). The
 * functions of these headers make commands and submit them. They take effect in the order in which
 * they were submitted, and a function that returned has only submitted: whoever reads on the host
 * what a command wrote calls ls_queue_synchronise first.
 *
 * Collectives and transfers run beside the queue. Their start is a command: what was submitted
 * before it has ended. So is the wait for them: what is submitted behind it begins when they have
 * ended. No host waits in between.
 *
 *   struct ls_queue queue = {0};               runs each command where it is submitted
 *   queue.watch = &watch                       who is told of each: records, times, traces
 *   queue.check = &check                       who finds what commands and host may not touch
 *   ls_submit(&queue, &command, &error)
 *   ls_queue_synchronise(&queue, &error)       the host may read now
 *
 * Arguments hold no pointer but those to operands, to objects that outlive the command, and to
 * constants of the program: given a copy of them with other operands, a command does the same on
 * other memory. Everything here is Local. */
#ifndef LOCKSTEP_DEVICE_QUEUE_H
#define LOCKSTEP_DEVICE_QUEUE_H

#include <lockstep/device.h>

LS_C_BEGIN

struct ls_queue;
struct ls_command;
struct ls_check;

/* ---- what a command touches ------------------------------------------------------------------ */

/* What lies behind one pointer of a command's arguments: from its first byte to its last, with what
 * lies between rows. */
struct ls_operand {
    size_t field; /* where in the arguments the pointer is */
    size_t bytes;
    enum ls_access access;
    int32_t least, below; /* of whole numbers (int32): all in [least, below); below is 0: values */
};
enum { LS_OPERANDS_MAX = 16 };
struct ls_operands {
    struct ls_operand list[LS_OPERANDS_MAX];
    int count;
};

/* ---- a command ------------------------------------------------------------------------------- */

/* What commands of one kind have in common; one for each kind, beside what it runs. */
struct ls_op {
    size_t bytes; /* of its arguments */
    /* Adds its operands to out; of those that are NULL and empty ones none. NULL: it has none. */
    void (*operands)(const struct ls_queue *queue, const struct ls_command *command,
                     struct ls_operands *out);
    int (*run)(struct ls_queue *queue, const struct ls_command *command, struct ls_error *error);
};

struct ls_command {
    const struct ls_op *op;
    const void *arguments; /* [op->bytes] */
};

/* The operands of a command when queue runs it (some are in the layout of an instruction set). */
void ls_command_operands(const struct ls_queue *queue, const struct ls_command *command,
                         struct ls_operands *out);
/* Adds to out that the pointer at `field`, a member of arguments, has so many bytes behind it; adds
 * none if it is NULL or there are none. Returns the operand, to say more of it, or NULL. */
struct ls_operand *ls_operand_add(struct ls_operands *out, const void *arguments, const void *field,
                                  size_t bytes, enum ls_access access);
/* Where an operand of the command lies, and that it lies elsewhere: of a copy of its arguments,
 * which is changed. */
void *ls_operand_pointer(const struct ls_command *command, const struct ls_operand *operand);
void ls_operand_move(const struct ls_command *command, const struct ls_operand *operand,
                     const void *pointer);

/* ---- a queue --------------------------------------------------------------------------------- */

/* The pass of a training step that a command works for. Whoever submits knows, and says so in the
 * pass of the queue. */
enum ls_work_pass {
    LS_WORK_PASS_NONE,
    LS_WORK_PASS_FORWARD,
    LS_WORK_PASS_RECOMPUTE, /* what was not kept of the forward is made again */
    LS_WORK_PASS_BACKWARD,  /* both halves */
    LS_WORK_PASS_INPUT,     /* the backward's halves, where a schedule separates them */
    LS_WORK_PASS_WEIGHTS,
    LS_WORK_PASS_REDUCE, /* gradients become final, and their norm is taken */
    LS_WORK_PASS_UPDATE, /* of the parameters */
    LS_WORK_PASSES
};
/* "other", "forward", "recompute", "backward", "backward, input", "backward, weights", ... */
const char *ls_work_pass_name(enum ls_work_pass pass);

/* Told before and after each command by the thread that submits it; begin or end may be NULL. A
 * command and its arguments live until end. */
struct ls_queue_watch {
    void (*begin)(void *user, const struct ls_queue *queue, const struct ls_command *command);
    void (*end)(void *user, const struct ls_queue *queue, const struct ls_command *command);
    void *user;
};

/* A plain value; {0} runs each command where it is submitted, on the caller's thread. */
struct ls_queue {
    const struct ls_queue_watch *watch; /* borrowed; NULL: nobody */
    enum ls_work_pass pass;             /* for who watches */
    struct ls_check *check;             /* borrowed; NULL: off (lockstep/device/check.h) */
    /* Of a device that is behind the host: keeps the command, whose arguments it copies, and runs
     * it later by ls_command_run; synchronise runs all that were kept. Both or none. */
    int (*submit)(struct ls_queue *queue, const struct ls_command *command, struct ls_error *error);
    int (*synchronise)(struct ls_queue *queue, struct ls_error *error);
};

/* Submits the command; what the functions that make commands refuse is not looked for again. An
 * error of a queue that runs commands later may be that of an earlier one. */
int ls_submit(struct ls_queue *queue, const struct ls_command *command, struct ls_error *error);
/* Waits until every command that was submitted has ended. Only then may the host read what they
 * wrote, and give other values to memory of its own that they read. */
int ls_queue_synchronise(struct ls_queue *queue, struct ls_error *error);
/* Whether all that was submitted has run, so far as the host can tell without waiting: true of a
 * queue that runs each command where it is submitted. */
static inline bool ls_queue_is_prompt(const struct ls_queue *queue)
{
    return !queue->submit;
}
/* What a queue does with a command when its turn has come. */
int ls_command_run(struct ls_queue *queue, const struct ls_command *command,
                   struct ls_error *error);

/* ---- commands that were kept ----------------------------------------------------------------- */

/* With copies of their arguments. */
struct ls_kept_command {
    const struct ls_op *op;
    size_t at; /* where its arguments begin */
};
struct ls_command_list {
    struct ls_kept_command *list; /* [count] */
    int64_t count, room;
    unsigned char *arguments;
    size_t used, bytes;
};
/* False: there was no memory for it. */
bool ls_command_list_add(struct ls_command_list *list, const struct ls_command *command);
/* Its arguments may be changed; they stay where they are until one is added. */
struct ls_command ls_command_list_get(const struct ls_command_list *list, int64_t i);
void ls_command_list_release(struct ls_command_list *list);

LS_C_END
#endif
