/* What commands of ops have in common, and kinds of work by name. */
#include "ops/share.h"

#include <string.h>

/* struct ls_queue is the first member of struct ls_ops, struct ls_op that of struct ops_op. */
static const struct ops_op *op_of(const struct ls_command *command)
{
    return (const struct ops_op *)command->op;
}

void ops_operands(const struct ls_queue *queue, const struct ls_command *command,
                  struct ls_operands *out)
{
    (void)queue;
    op_of(command)->operands(command->arguments, out);
}

int ops_run(struct ls_queue *queue, const struct ls_command *command, struct ls_error *error)
{
    struct ls_ops *ops = (struct ls_ops *)queue;
    const struct ops_op *op = op_of(command);
    if (ops->idle)
        return LS_OK;
    if (!op->run)
        return op->attempt(ops, command->arguments, error);
    op->run(ops, command->arguments);
    return LS_OK;
}

bool ls_command_work(const struct ls_command *command, struct ls_work *out)
{
    if (command->op->run != ops_run || !op_of(command)->work)
        return false;
    *out = op_of(command)->work(command->arguments);
    return true;
}

static const char *const names[LS_WORK_KINDS] = {
    [LS_WORK_PRODUCT] = "product",
    [LS_WORK_PRODUCT_BT] = "product_bt",
    [LS_WORK_PRODUCT_AT] = "product_at",
    [LS_WORK_ATTENTION] = "attention",
    [LS_WORK_ATTENTION_BACKWARD] = "attention_backward",
    [LS_WORK_NORM] = "norm",
    [LS_WORK_NORM_BACKWARD] = "norm_backward",
    [LS_WORK_COLUMN_SUM] = "column_sum",
    [LS_WORK_ACTIVATION] = "activation",
    [LS_WORK_ACTIVATION_BACKWARD] = "activation_backward",
    [LS_WORK_ADD] = "add",
    [LS_WORK_DROPOUT] = "dropout",
    [LS_WORK_ROPE] = "rope",
    [LS_WORK_EMBEDDING] = "embedding",
    [LS_WORK_EMBEDDING_BACKWARD] = "embedding_backward",
    [LS_WORK_LOSS] = "loss",
    [LS_WORK_UPDATE] = "update",
    [LS_WORK_SQUARES] = "squares",
    [LS_WORK_CAST] = "cast",
    [LS_WORK_COPY] = "copy",
    [LS_WORK_FILL] = "fill",
};

const char *ls_work_name(enum ls_work_kind kind)
{
    return names[kind];
}

int ls_work_of_name(const char *name)
{
    for (int kind = 0; kind < LS_WORK_KINDS; kind++)
        if (strcmp(names[kind], name) == 0)
            return kind;
    return -1;
}
