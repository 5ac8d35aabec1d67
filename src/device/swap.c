/* Blocks of a tier in a few buffers on the device, the least recently used gives way. */
#include <lockstep/device/swap.h>

void ls_swap_init(struct ls_swap *swap, struct ls_tier *tier, int count, size_t bytes,
                  struct ls_arena *arena)
{
    LS_ASSERT(count <= LS_SWAP_BUFFERS_MAX);
    *swap = (struct ls_swap){.tier = tier, .count = count};
    for (int b = 0; b < count; b++) {
        size_t whole = (size_t)ls_round_up((int64_t)bytes, LS_TIER_ALIGN);
        swap->buffer[b].data = ls_arena_take_aligned(arena, whole, LS_TIER_ALIGN);
        swap->buffer[b].block = -1;
    }
}

int ls_swap_settle(struct ls_swap *swap, struct ls_error *error)
{
    int status = LS_OK;
    for (int b = 0; b < swap->count; b++) {
        int failed = ls_swap_wait(&swap->buffer[b], status ? NULL : error);
        status = status ? status : failed;
    }
    return status;
}

struct ls_swap_buffer *ls_swap_find(struct ls_swap *swap, int64_t number)
{
    for (int b = 0; b < swap->count; b++)
        if (swap->buffer[b].block == number)
            return &swap->buffer[b];
    return NULL;
}

static int oldest(const struct ls_swap *swap)
{
    int oldest = 0;
    for (int b = 1; b < swap->count; b++)
        if (swap->buffer[b].used < swap->buffer[oldest].used)
            oldest = b;
    return oldest;
}

int64_t ls_swap_next(const struct ls_swap *swap)
{
    return swap->buffer[oldest(swap)].block;
}

int ls_swap_get(struct ls_swap *swap, const struct ls_swap_block *block, bool reads,
                struct ls_swap_buffer **out, struct ls_error *error)
{
    struct ls_swap_buffer *buffer = ls_swap_find(swap, block->number);
    int status = LS_OK;
    bool here = buffer != NULL;
    if (!here) {
        buffer = &swap->buffer[oldest(swap)];
        buffer->block = -1;
    }
    if (!here || !reads)
        status = ls_swap_wait(buffer, error);
    if (!status && !here && reads && swap->tier)
        status = ls_tier_read(swap->tier, block->offset, buffer->data, block->bytes, &buffer->read,
                              error);
    buffer->used = ++swap->clock;
    if (!status)
        buffer->block = block->number;
    *out = buffer;
    return status;
}

int ls_swap_wait_read(struct ls_swap_buffer *buffer, struct ls_error *error)
{
    int status = ls_transfer_wait(&buffer->read, error);
    if (status)
        buffer->block = -1; /* it did not come */
    return status;
}

int ls_swap_wait(struct ls_swap_buffer *buffer, struct ls_error *error)
{
    int status = ls_swap_wait_read(buffer, error);
    int failed = ls_transfer_wait(&buffer->write, status ? NULL : error);
    return status ? status : failed;
}

int ls_swap_put(struct ls_swap *swap, struct ls_swap_buffer *buffer,
                const struct ls_swap_block *block, struct ls_error *error)
{
    if (!swap->tier)
        return LS_OK;
    int status = ls_transfer_wait(&buffer->write, error);
    return status ? status
                  : ls_tier_write(swap->tier, block->offset, buffer->data, block->bytes,
                                  &buffer->write, error);
}
