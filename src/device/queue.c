/* Commands: submitting them, their operands, and lists of those that were kept. */
#include <lockstep/device/check.h>

#include <stdlib.h>
#include <string.h>

/* ---- submitting ------------------------------------------------------------------------------ */

int ls_submit(struct ls_queue *queue, const struct ls_command *command, struct ls_error *error)
{
    const struct ls_queue_watch *watch = queue->watch;
    if (watch && watch->begin)
        watch->begin(watch->user, queue, command);
    if (queue->check)
        ls_check_submit(queue, command);
    int status = queue->submit ? queue->submit(queue, command, error)
                               : ls_command_run(queue, command, error);
    if (watch && watch->end)
        watch->end(watch->user, queue, command);
    return status;
}

int ls_command_run(struct ls_queue *queue, const struct ls_command *command, struct ls_error *error)
{
    if (queue->check)
        ls_check_run_begin(queue->check);
    int status = command->op->run(queue, command, error);
    if (queue->check)
        ls_check_run_end(queue->check);
    return status;
}

int ls_queue_synchronise(struct ls_queue *queue, struct ls_error *error)
{
    int status = queue->synchronise ? queue->synchronise(queue, error) : LS_OK;
    if (queue->check)
        ls_check_waited(queue->check);
    return status;
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

/* ---- operands -------------------------------------------------------------------------------- */

void ls_command_operands(const struct ls_queue *queue, const struct ls_command *command,
                         struct ls_operands *out)
{
    out->count = 0;
    if (command->op->operands)
        command->op->operands(queue, command, out);
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

struct ls_operand *ls_operand_add(struct ls_operands *out, const void *arguments, const void *field,
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

bool ls_command_list_add(struct ls_command_list *list, const struct ls_command *command)
{
    size_t bytes = (size_t)ls_round_up((int64_t)command->op->bytes, ARGUMENTS_ALIGN);
    if (!ls_bytes_grow(&list->arguments, list->used + bytes, &list->bytes) ||
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
