/* lockstep/ops/command.h - an op with its arguments as a thing that can be kept, looked at and run
 * again. Included by lockstep/ops.h.
 *
 * Each function of the other headers that reads or writes buffers makes a command of its arguments
 * and submits it. struct ls_ops is what commands are submitted to: it runs each at once, or, idle,
 * touches nothing; and it tells whoever watches.
 *
 *   struct ls_ops_watch watch = {.begin = keep, .user = &list};
 *   ops->watch = &watch                        keep may copy op->bytes of arguments
 *   ls_command_operands(ops, &command, &out)   where its buffers are, and how large
 *   ls_submit(ops, &command, &error)           the same op again
 *
 * Arguments hold no pointer but those to operands, and to constants of the program: given a copy of
 * them with other operands, an op does the same on other memory.
 */
#ifndef LOCKSTEP_OPS_COMMAND_H
#define LOCKSTEP_OPS_COMMAND_H

struct ls_work;

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

/* One for each op, beside what it runs. */
struct ls_op {
    size_t bytes; /* of its arguments */
    /* What it computes, as lockstep/ops/work.h has it. NULL: so little that nobody is told. */
    struct ls_work (*work)(const struct ls_ops *ops, const void *arguments);
    /* Adds its operands to out; of those that are NULL and empty ones none. */
    void (*operands)(const struct ls_ops *ops, const void *arguments, struct ls_operands *out);
    int (*run)(struct ls_ops *ops, const void *arguments, struct ls_error *error);
};

struct ls_command {
    const struct ls_op *op;
    const void *arguments; /* [op->bytes] */
};

/* Local. Runs the command; what the functions of the other headers refuse is not looked for again.
 */
int ls_submit(struct ls_ops *ops, const struct ls_command *command, struct ls_error *error);
/* Local. Waits until every command has ended that was submitted. Only then may the host read what
 * they wrote, and give other values to memory of its own that they read: a device may be behind.
 * The CPU is not: it runs a command where it is submitted. */
int ls_ops_synchronise(struct ls_ops *ops, struct ls_error *error);
/* Local. The operands of a command when ops runs it (some are in the layout of an instruction
 * set). */
void ls_command_operands(const struct ls_ops *ops, const struct ls_command *command,
                         struct ls_operands *out);

/* Local. Where an operand of the command lies, and that it lies elsewhere: of a copy of its
 * arguments, which is changed. */
void *ls_operand_pointer(const struct ls_command *command, const struct ls_operand *operand);
void ls_operand_move(const struct ls_command *command, const struct ls_operand *operand,
                     const void *pointer);

/* Commands that were kept, with copies of their arguments. */
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
/* Local. False: there was no memory for it. */
bool ls_command_list_add(struct ls_command_list *list, const struct ls_command *command);
/* Local. Its arguments may be changed; they stay where they are until one is added. */
struct ls_command ls_command_list_get(const struct ls_command_list *list, int64_t i);
void ls_command_list_release(struct ls_command_list *list);

/* The pass of a training step that an op works for. Whoever calls ops knows, and says so in the
 * pass of struct ls_ops. */
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

/* Told before and after each command that has a work, idle or not; begin or end may be NULL. Called
 * by the thread that submits it. A command and its arguments live until end. */
struct ls_ops_watch {
    void (*begin)(void *user, const struct ls_command *command, const struct ls_work *work,
                  enum ls_work_pass pass);
    void (*end)(void *user, const struct ls_work *work);
    void *user;
};

#endif
