/* Memory of templates and their values: blocks that are freed together, within a limit; and of
 * texts. */
#include "chat/chat_private.h"

#include <stdlib.h>

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

struct chat_arena_mark chat_arena_mark(const struct chat_arena *arena)
{
    return (struct chat_arena_mark){arena->blocks, arena->used,
                                    arena->blocks ? arena->blocks->used : 0};
}

void chat_arena_return(struct chat_arena *arena, const struct chat_arena_mark *mark)
{
    while (arena->blocks != mark->block) {
        struct chat_block *next = arena->blocks->next;
        free(arena->blocks);
        arena->blocks = next;
    }
    arena->used = mark->used;
    if (mark->block) {
        memset(mark->block->bytes + mark->block_used, 0, mark->block->used - mark->block_used);
        mark->block->used = mark->block_used;
    }
}

void chat_arena_release(struct chat_arena *arena)
{
    chat_arena_return(arena, &(struct chat_arena_mark){.block = NULL});
}

bool chat_text_put(struct ls_chat_text *text, const char *bytes, size_t count)
{
    if (!ls_bytes_grow(&text->bytes, text->count + count, &text->capacity))
        return false;
    if (count > 0)
        memcpy(text->bytes + text->count, bytes, count);
    text->count += count;
    return true;
}
