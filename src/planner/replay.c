/* Replays: recorded commands, submitted again on copies of the memory that they were recorded with.
 * Each operand has the same place there, so commands find in caches what they found in the step. */
#include <lockstep/planner/measure.h>

#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096 };

struct ls_replay {
    struct ls_ops ops;
    struct ls_command_list commands;
    struct ls_arena memory;
    size_t at[LS_RECORDED_MEMORIES]; /* where in it a recorded memory's copy begins */
};

static size_t room_of(size_t bytes)
{
    return (size_t)ls_round_up((int64_t)bytes, 64);
}

/* ---- places ---------------------------------------------------------------------------------- */

/* Each memory begins at the place in its page where it was recorded. Returns the bytes of all. */
static size_t memories_place(struct ls_replay *r, const struct ls_recorded_memory *memories)
{
    size_t end = 0;
    for (int m = 0; m < LS_RECORDED_MEMORIES; m++) {
        r->at[m] = end + (uintptr_t)memories[m].base % PAGE;
        end = (size_t)ls_round_up((int64_t)(r->at[m] + memories[m].bytes), PAGE);
    }
    return end;
}

/* Bytes of operands that are whole numbers, which have places of their own. */
static size_t numbers_room(const struct ls_replay *r)
{
    struct ls_operands operands;
    size_t room = 0;
    for (int64_t i = 0; i < r->commands.count; i++) {
        const struct ls_command command = ls_command_list_get(&r->commands, i);
        ls_command_operands(&r->ops.queue, &command, &operands);
        for (int o = 0; o < operands.count; o++)
            room += operands.list[o].below ? room_of(operands.list[o].bytes) : 0;
    }
    return room;
}

static void *place_of(const struct ls_replay *r, const struct ls_recorded_memory *memories,
                      const void *recorded, size_t bytes)
{
    int m = 0;
    size_t offset = 0;
    for (; m < LS_RECORDED_MEMORIES; m++) {
        offset = (uintptr_t)recorded - (uintptr_t)memories[m].base;
        if (offset < memories[m].bytes)
            break;
    }
    LS_ASSERT(m < LS_RECORDED_MEMORIES && bytes <= memories[m].bytes - offset);
    return r->memory.base + r->at[m] + offset;
}

static void numbers_fill(int32_t *at, const struct ls_operand *operand)
{
    uint64_t span = (uint64_t)((int64_t)operand->below - operand->least);
    for (size_t i = 0; i < operand->bytes / sizeof *at; i++)
        at[i] = operand->least + (int32_t)((uint64_t)i * 2654435761u % span);
}

/* Commands get their own places in the place of the recorded ones. */
static void commands_place(struct ls_replay *r, const struct ls_recorded_memory *memories,
                           size_t numbers_at)
{
    struct ls_operands operands;
    unsigned char *numbers = r->memory.base + numbers_at;
    for (int64_t i = 0; i < r->commands.count; i++) {
        const struct ls_command command = ls_command_list_get(&r->commands, i);
        ls_command_operands(&r->ops.queue, &command, &operands);
        for (int o = 0; o < operands.count; o++) {
            const struct ls_operand *operand = &operands.list[o];
            if (operand->below) {
                numbers_fill((int32_t *)(void *)numbers, operand);
                ls_operand_move(&command, operand, numbers);
                numbers += room_of(operand->bytes);
            } else {
                ls_operand_move(
                    &command, operand,
                    place_of(r, memories, ls_operand_pointer(&command, operand), operand->bytes));
            }
        }
    }
}

/* Between -0.05 and 0.05 in float32, and in 16 bits near that: sums stay of that order. */
static void values_fill(const struct ls_replay *r, enum ls_dtype act)
{
    float *values = (float *)(void *)r->memory.base;
    const int64_t count = (int64_t)(r->memory.size / sizeof *values);
    const bool half = act != LS_F32;
#pragma omp parallel for num_threads(r->ops.threads) schedule(static)
    for (int64_t i = 0; i < count; i++) {
        float x = ((float)((uint64_t)i * 2654435761u >> 7 & 4095) / 2048 - 1) * 0.05f;
        uint32_t pair = ls_f32_to_half(half ? act : LS_BF16, x);
        if (half)
            memcpy(&values[i], &(uint32_t){pair << 16 | pair}, sizeof pair);
        else
            values[i] = x;
    }
}

/* ---- a replay -------------------------------------------------------------------------------- */

static int commands_copy(struct ls_replay *r, const struct ls_command_list *commands,
                         struct ls_error *error)
{
    for (int64_t i = 0; i < commands->count; i++) {
        const struct ls_command command = ls_command_list_get(commands, i);
        if (!ls_command_list_add(&r->commands, &command))
            return ls_no_memory(error, "for a replay of %lld commands", (long long)commands->count);
    }
    return LS_OK;
}

int ls_replay_new(const struct ls_replay_options *options, const struct ls_command_list *commands,
                  struct ls_replay **out, struct ls_error *error)
{
    struct ls_replay *r = calloc(1, sizeof *r);
    *out = NULL;
    if (!r)
        return ls_no_memory(error, "for a replay");
    const size_t values = memories_place(r, options->memories);
    int status = ls_ops_init(&r->ops, options->threads, options->isa, error);
    r->ops.arithmetic = options->arithmetic;
    if (!status)
        status = commands_copy(r, commands, error);
    if (!status)
        status = ls_arena_init(&r->memory, values + numbers_room(r), error);
    if (status) {
        ls_replay_free(r);
        return status;
    }
    values_fill(r, options->act);
    commands_place(r, options->memories, values);
    *out = r;
    return LS_OK;
}

void ls_replay_free(struct ls_replay *r)
{
    if (!r)
        return;
    ls_command_list_release(&r->commands);
    ls_arena_release(&r->memory);
    ls_ops_release(&r->ops);
    free(r);
}

int ls_replay_run(struct ls_replay *r, int64_t i, double *seconds, struct ls_error *error)
{
    const struct ls_command command = ls_command_list_get(&r->commands, i);
    double begin = ls_now_s();
    int status = ls_submit(&r->ops.queue, &command, error);
    *seconds = ls_now_s() - begin;
    return status;
}
