/* Which text has which block of key/value memory; see nn/text_blocks.h. */
#include "nn/text_blocks.h"

#include <lockstep/ops.h>

#include <stdlib.h>
#include <string.h>

enum { BLOCK = LS_ATTENTION_BLOCK };

bool text_blocks_init(struct text_blocks *b, int64_t texts, int64_t width, int64_t count)
{
    *b = (struct text_blocks){.texts = texts, .width = width, .count = count};
    b->table = calloc((size_t)(texts * width), sizeof *b->table);
    b->held = calloc((size_t)texts, sizeof *b->held);
    b->position = calloc((size_t)texts, sizeof *b->position);
    b->users = calloc((size_t)count, sizeof *b->users);
    b->free = calloc((size_t)count, sizeof *b->free);
    b->copies = calloc((size_t)texts, sizeof *b->copies);
    if (!b->table || !b->held || !b->position || !b->users || !b->free || !b->copies)
        return false;
    for (int64_t i = count - 1; i >= 0; i--)
        b->free[b->free_count++] = (int32_t)i;
    return true;
}

void text_blocks_release(struct text_blocks *b)
{
    free(b->table);
    free(b->held);
    free(b->position);
    free(b->users);
    free(b->free);
    free(b->copies);
}

/* ---- a block --------------------------------------------------------------------------------- */

static int32_t block_take(struct text_blocks *b)
{
    int32_t block = b->free[--b->free_count];
    b->users[block] = 1;
    return block;
}

static void block_leave(struct text_blocks *b, int32_t block)
{
    if (--b->users[block] == 0)
        b->free[b->free_count++] = block;
}

/* The text keeps its first blocks. */
static void blocks_keep(struct text_blocks *b, int64_t text, int64_t kept)
{
    int32_t *table = b->table + text * b->width;
    while (b->held[text] > kept) {
        int32_t *last = &table[--b->held[text]];
        block_leave(b, *last);
        *last = 0;
    }
}

/* ---- a text ---------------------------------------------------------------------------------- */

void text_blocks_clear(struct text_blocks *b, int64_t text)
{
    blocks_keep(b, text, 0);
    b->position[text] = 0;
}

void text_blocks_share(struct text_blocks *b, int64_t from, int64_t to, int64_t tokens)
{
    int64_t count = ls_ceil_div(tokens, BLOCK);
    const int32_t *blocks = b->table + from * b->width;
    LS_ASSERT(tokens <= b->position[from]);
    if (from == to) {
        blocks_keep(b, to, count);
    } else {
        text_blocks_clear(b, to);
        memcpy(b->table + to * b->width, blocks, (size_t)count * sizeof *blocks);
        for (int64_t i = 0; i < count; i++)
            b->users[blocks[i]]++;
        b->held[to] = count;
    }
    b->position[to] = tokens;
}

bool text_blocks_reserve(struct text_blocks *b, int64_t text, int64_t tokens)
{
    int64_t position = b->position[text], last = position / BLOCK;
    int32_t *table = b->table + text * b->width;
    int64_t more = ls_max(0, ls_ceil_div(position + tokens, BLOCK) - b->held[text]);
    bool copied = position % BLOCK && b->users[table[last]] > 1;
    if (more + copied > b->free_count || (copied && b->copy_count == b->texts))
        return false;
    if (copied) {
        int32_t mine = block_take(b);
        b->copies[b->copy_count++] = (struct block_copy){table[last], mine, position % BLOCK};
        block_leave(b, table[last]);
        table[last] = mine;
    }
    for (int64_t i = 0; i < more; i++)
        table[b->held[text]++] = block_take(b);
    return true;
}
