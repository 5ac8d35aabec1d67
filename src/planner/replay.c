/* Replays: recorded commands, submitted again on memory of their own. What lay side by side when
 * they were recorded does so again, so that a step's commands find in caches what they found there.
 */
#include <lockstep/planner/measure.h>

#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096 };

/* Addresses of recorded operands, and where they are now. */
struct place {
    uintptr_t from, end;
    size_t at;
};

struct ls_replay {
    struct ls_ops ops;
    struct ls_command_list commands;
    struct ls_arena memory;
    struct place *places; /* [count], ascending, none touches the next */
    int64_t count;
    size_t numbers; /* bytes of operands that are whole numbers, which have places of their own */
};

static size_t room_of(size_t bytes)
{
    return (size_t)ls_round_up((int64_t)bytes, 64);
}

/* ---- places ---------------------------------------------------------------------------------- */

static int by_address(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return (x->from > y->from) - (x->from < y->from);
}

static int places_find(struct ls_replay *r, struct ls_error *error)
{
    struct ls_operands operands;
    int64_t room = r->commands.count * LS_OPERANDS_MAX + 1;
    r->places = malloc((size_t)room * sizeof *r->places);
    if (!r->places)
        return ls_no_memory(error, "for a replay of %lld commands", (long long)r->commands.count);
    for (int64_t i = 0; i < r->commands.count; i++) {
        const struct ls_command command = ls_command_list_get(&r->commands, i);
        ls_command_operands(&r->ops.queue, &command, &operands);
        for (int o = 0; o < operands.count; o++) {
            uintptr_t from = (uintptr_t)ls_operand_pointer(&command, &operands.list[o]);
            if (operands.list[o].below)
                r->numbers += room_of(operands.list[o].bytes);
            else
                r->places[r->count++] = (struct place){from, from + operands.list[o].bytes, 0};
        }
    }
    return LS_OK;
}

/* Those that overlap or touch become one; each keeps its place in its page. Returns the bytes of
 * all of them. */
static size_t places_join(struct ls_replay *r)
{
    int64_t count = 0;
    size_t at = 0;
    qsort(r->places, (size_t)r->count, sizeof *r->places, by_address);
    for (int64_t i = 0; i < r->count; i++) {
        struct place *last = &r->places[count - 1];
        if (count > 0 && r->places[i].from <= last->end)
            last->end = r->places[i].end > last->end ? r->places[i].end : last->end;
        else
            r->places[count++] = r->places[i];
    }
    r->count = count;
    for (int64_t i = 0; i < count; i++) {
        struct place *place = &r->places[i];
        place->at = at + place->from % PAGE;
        at = (size_t)ls_round_up((int64_t)(place->at + (place->end - place->from)), PAGE);
    }
    return at;
}

static void *place_of(const struct ls_replay *r, uintptr_t address)
{
    int64_t low = 0, high = r->count - 1;
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (r->places[middle].from <= address)
            low = middle;
        else
            high = middle - 1;
    }
    return r->memory.base + r->places[low].at + (address - r->places[low].from);
}

static void numbers_fill(int32_t *at, const struct ls_operand *operand)
{
    uint64_t span = (uint64_t)((int64_t)operand->below - operand->least);
    for (size_t i = 0; i < operand->bytes / sizeof *at; i++)
        at[i] = operand->least + (int32_t)((uint64_t)i * 2654435761u % span);
}

/* Commands get their own places in the place of the recorded ones. */
static void commands_place(struct ls_replay *r, size_t numbers_at)
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
                ls_operand_move(&command, operand,
                                place_of(r, (uintptr_t)ls_operand_pointer(&command, operand)));
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
    size_t values = 0;
    *out = NULL;
    if (!r)
        return ls_no_memory(error, "for a replay");
    int status = ls_ops_init(&r->ops, options->threads, options->isa, error);
    r->ops.arithmetic = options->arithmetic;
    if (!status)
        status = commands_copy(r, commands, error);
    if (!status)
        status = places_find(r, error);
    if (!status) {
        values = places_join(r);
        status = ls_arena_init(&r->memory, values + r->numbers + PAGE, error);
    }
    if (status) {
        ls_replay_free(r);
        return status;
    }
    values_fill(r, options->act);
    commands_place(r, values);
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
    free(r->places);
    free(r);
}

struct ls_ops *ls_replay_ops(struct ls_replay *r)
{
    return &r->ops;
}

int ls_replay_run(struct ls_replay *r, int64_t i, double *seconds, struct ls_error *error)
{
    const struct ls_command command = ls_command_list_get(&r->commands, i);
    double begin = ls_now_s();
    int status = ls_submit(&r->ops.queue, &command, error);
    *seconds = ls_now_s() - begin;
    return status;
}
