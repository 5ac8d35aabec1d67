/* lockstep/device/swap.h - blocks of a tier that are on the device in turn, in a few buffers.
 *
 *   ls_swap_get   a block gets a buffer: the one that was asked for longest ago; what the tier has
 *                 of it is on its way there
 *   ls_swap_wait  it has come
 *   ls_swap_put   the buffer's bytes go to the tier; the block stays readable meanwhile
 *
 * Blocks are numbered by the caller. Everything here is Local. */
#ifndef LOCKSTEP_DEVICE_SWAP_H
#define LOCKSTEP_DEVICE_SWAP_H

#include <lockstep/device/tier.h>

LS_C_BEGIN

enum { LS_SWAP_BUFFERS_MAX = 8 };

struct ls_swap_buffer {
    unsigned char *data;
    int64_t block, used; /* block -1: nobody's; used: when it was asked for last */
    struct ls_transfer read, write;
};
/* A plain value; it stays where it is while transfers are under way. */
struct ls_swap {
    struct ls_tier *tier; /* NULL: nothing moves (planning, recording) */
    int count;
    int64_t clock;
    struct ls_swap_buffer buffer[LS_SWAP_BUFFERS_MAX];
};
/* Where a block lies. */
struct ls_swap_block {
    int64_t number;
    size_t offset, bytes; /* in the tier */
};

/* Takes count buffers of that many bytes from arena, which may be measuring. */
void ls_swap_init(struct ls_swap *swap, struct ls_tier *tier, int count, size_t bytes,
                  struct ls_arena *arena);
/* Nothing moves any more. The first error of what did: what is in the tier then is not all that was
 * put there. */
int ls_swap_settle(struct ls_swap *swap, struct ls_error *error);

/* The block's buffer; NULL if it has none. */
struct ls_swap_buffer *ls_swap_find(struct ls_swap *swap, int64_t number);
/* The block that ls_swap_get of a block without a buffer would take one from; -1: none. */
int64_t ls_swap_next(const struct ls_swap *swap);
/* reads: what the tier has of the block is wanted. Otherwise its bytes are undefined, and may be
 * written at once. Errors of the tier's disk, of earlier transfers too. */
int ls_swap_get(struct ls_swap *swap, const struct ls_swap_block *block, bool reads,
                struct ls_swap_buffer **out, struct ls_error *error);
/* The bytes are there and nothing moves: they may be written until ls_swap_put. A block that could
 * not be read has no buffer any more. */
int ls_swap_wait(struct ls_swap_buffer *buffer, struct ls_error *error);
/* They may be read, while they are being written perhaps. */
int ls_swap_wait_read(struct ls_swap_buffer *buffer, struct ls_error *error);
int ls_swap_put(struct ls_swap *swap, struct ls_swap_buffer *buffer,
                const struct ls_swap_block *block, struct ls_error *error);

LS_C_END
#endif
