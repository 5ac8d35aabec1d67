/* Memory of templates and their values: blocks that are freed together, within a limit. */
#include "chat/chat_private.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 16 << 10, ALIGNMENT = 16 };

struct chat_block {
    struct chat_block *next;
    size_t used, room;
    _Alignas(ALIGNMENT) char bytes[];
};

void *chat_arena_take(struct chat_arena *arena, size_t bytes)
{
    if (bytes > arena->limit)
        return NULL;
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    struct chat_block *block = arena->blocks;
    if (!block || block->room - block->used < bytes) {
        size_t room = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        if (room > arena->limit - arena->used)
            return NULL;
        block = calloc(1, sizeof *block + room);
        if (!block)
            return NULL;
        block->room = room;
        block->next = arena->blocks;
        arena->blocks = block;
        arena->used += room;
    }
    void *at = block->bytes + block->used;
    block->used += bytes;
    return at;
}

void chat_arena_release(struct chat_arena *arena)
{
    while (arena->blocks) {
        struct chat_block *next = arena->blocks->next;
        free(arena->blocks);
        arena->blocks = next;
    }
    arena->used = 0;
}
