/* Commands: submitting them, their operands, and kinds of work by name. */
#include "ops/share.h"

#include <stdlib.h>
#include <string.h>

int ls_submit(struct ls_ops *ops, const struct ls_command *command, struct ls_error *error)
{
    const struct ls_op *op = command->op;
    const struct ls_ops_watch *watch = ops->watch;
    if (!watch || !op->work)
        return ops->idle ? LS_OK : op->run(ops, command->arguments, error);
    const struct ls_work work = op->work(ops, command->arguments);
    if (watch->begin)
        watch->begin(watch->user, command, &work, (enum ls_work_pass)ops->pass);
    int status = ops->idle ? LS_OK : op->run(ops, command->arguments, error);
    if (watch->end)
        watch->end(watch->user, &work);
    return status;
}

int ls_ops_synchronise(struct ls_ops *ops, struct ls_error *error)
{
    (void)ops, (void)error;
    return LS_OK;
}

void ls_command_operands(const struct ls_ops *ops, const struct ls_command *command,
                         struct ls_operands *out)
{
    out->count = 0;
    command->op->operands(ops, command->arguments, out);
}

void *ls_operand_pointer(const struct ls_command *command, const struct ls_operand *operand)
{
    void *pointer;
    memcpy(&pointer, (const char *)command->arguments + operand->field, sizeof pointer);
    return pointer;
}

void ls_operand_move(const struct ls_command *command, const struct ls_operand *operand,
                     const void *pointer)
{
    char *arguments = (char *)(uintptr_t)command->arguments;
    memcpy(arguments + operand->field, &pointer, sizeof pointer);
}

struct ls_operand *ops_operand(struct ls_operands *out, const void *arguments, const void *field,
                               size_t bytes, enum ls_access access)
{
    const void *pointer;
    memcpy(&pointer, field, sizeof pointer);
    if (!pointer || bytes == 0)
        return NULL;
    LS_ASSERT(out->count < LS_OPERANDS_MAX);
    struct ls_operand *operand = &out->list[out->count++];
    *operand = (struct ls_operand){
        .field = (size_t)((const char *)field - (const char *)arguments),
        .bytes = bytes,
        .access = access,
    };
    return operand;
}

/* ---- lists ----------------------------------------------------------------------------------- */

enum { ARGUMENTS_ALIGN = 16 };

static bool arguments_grow(struct ls_command_list *list, size_t bytes)
{
    if (list->used + bytes <= list->bytes)
        return true;
    size_t room = 2 * list->bytes + bytes;
    unsigned char *arguments = realloc(list->arguments, room);
    if (!arguments)
        return false;
    list->arguments = arguments;
    list->bytes = room;
    return true;
}

bool ls_command_list_add(struct ls_command_list *list, const struct ls_command *command)
{
    size_t bytes = (size_t)ls_round_up((int64_t)command->op->bytes, ARGUMENTS_ALIGN);
    if (!arguments_grow(list, bytes) ||
        !ls_list_grow(&list->list, list->count, &list->room, sizeof *list->list))
        return false;
    memcpy(list->arguments + list->used, command->arguments, command->op->bytes);
    list->list[list->count++] = (struct ls_kept_command){command->op, list->used};
    list->used += bytes;
    return true;
}

struct ls_command ls_command_list_get(const struct ls_command_list *list, int64_t i)
{
    return (struct ls_command){list->list[i].op, list->arguments + list->list[i].at};
}

void ls_command_list_release(struct ls_command_list *list)
{
    free(list->list);
    free(list->arguments);
    *list = (struct ls_command_list){0};
}

/* ---- names ----------------------------------------------------------------------------------- */

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

const char *ls_work_pass_name(enum ls_work_pass pass)
{
    static const char *const passes[LS_WORK_PASSES] = {[LS_WORK_PASS_NONE] = "other",
                                                       [LS_WORK_PASS_FORWARD] = "forward",
                                                       [LS_WORK_PASS_RECOMPUTE] = "recompute",
                                                       [LS_WORK_PASS_BACKWARD] = "backward",
                                                       [LS_WORK_PASS_INPUT] = "backward, input",
                                                       [LS_WORK_PASS_WEIGHTS] = "backward, weights",
                                                       [LS_WORK_PASS_REDUCE] = "reduce",
                                                       [LS_WORK_PASS_UPDATE] = "update"};
    return passes[pass];
}

int ls_work_of_name(const char *name)
{
    for (int kind = 0; kind < LS_WORK_KINDS; kind++)
        if (strcmp(names[kind], name) == 0)
            return kind;
    return -1;
}
