/* Blocks of key/value memory: whatever texts begin, grow, share and end, each finds its own tokens,
 * and no block is lost. */
#include "../support/suite.h"
#include "nn/text_blocks.h"

#include <lockstep/ops.h>

#include <stdlib.h>
#include <string.h>

enum { BLOCK = LS_ATTENTION_BLOCK, TEXTS = 5, WIDTH = 4, COUNT = 9, LONG = WIDTH * BLOCK };

/* What each text should hold, and memory as a step leaves it. */
struct world {
    struct text_blocks blocks;
    int32_t want[TEXTS][LONG], memory[COUNT][BLOCK];
    int32_t next;  /* value of the next token */
    uint64_t seed; /* of what is drawn */
};

static void world_open(struct world *w)
{
    memset(w, 0, sizeof *w);
    assert_true(text_blocks_init(&w->blocks, TEXTS, WIDTH, COUNT));
}

static int64_t draw(struct world *w, int64_t below)
{
    w->seed = w->seed * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)(w->seed >> 33) % below;
}

static int32_t *place(struct world *w, int64_t text, int64_t at)
{
    int32_t block = w->blocks.table[text * WIDTH + at / BLOCK];
    return &w->memory[block][at % BLOCK];
}

/* A step: copies, then new tokens, as attention makes them. */
static bool grow(struct world *w, int64_t text, int64_t tokens)
{
    struct text_blocks *b = &w->blocks;
    if (b->position[text] + tokens > LONG || !text_blocks_reserve(b, text, tokens))
        return false;
    for (int i = 0; i < b->copy_count; i++)
        memcpy(w->memory[b->copies[i].to], w->memory[b->copies[i].from],
               (size_t)b->copies[i].rows * sizeof(int32_t));
    b->copy_count = 0;
    for (int64_t at = b->position[text]; at < b->position[text] + tokens; at++)
        *place(w, text, at) = w->want[text][at] = ++w->next;
    b->position[text] += tokens;
    return true;
}

static void share(struct world *w, int64_t from, int64_t to, int64_t tokens)
{
    text_blocks_share(&w->blocks, from, to, tokens);
    if (from != to)
        memcpy(w->want[to], w->want[from], (size_t)tokens * sizeof(int32_t));
}

static bool good(struct world *w)
{
    for (int64_t text = 0; text < TEXTS; text++)
        for (int64_t at = 0; at < w->blocks.position[text]; at++)
            if (*place(w, text, at) != w->want[text][at])
                return false;
    return true;
}

/* Blocks are free, or have as many users as tables name them. */
static void expect_whole(const struct text_blocks *b)
{
    int64_t named[COUNT] = {0}, free = 0;
    for (int64_t text = 0; text < TEXTS; text++)
        for (int64_t i = 0; i < b->held[text]; i++)
            named[b->table[text * WIDTH + i]]++;
    for (int64_t i = 0; i < COUNT; i++) {
        assert_int_equal(b->users[i], named[i]);
        free += named[i] == 0;
    }
    assert_int_equal(b->free_count, free);
}

CASE(test_each_text_finds_its_own_tokens)
{
    static struct world w;
    int64_t grown = 0, refused = 0;
    world_open(&w);
    for (int i = 0; i < 20000; i++) {
        int64_t text = draw(&w, TEXTS), other = draw(&w, TEXTS);
        switch (draw(&w, 8)) {
        case 0:
            text_blocks_clear(&w.blocks, text);
            break;
        case 1:
            share(&w, other, text, draw(&w, w.blocks.position[other] + 1));
            break;
        default:
            if (grow(&w, text, 1 + draw(&w, 50)))
                grown++;
            else
                refused++;
        }
        assert_true(good(&w));
        expect_whole(&w.blocks);
    }
    assert_true(grown > 1000 && refused > 1000);
    text_blocks_release(&w.blocks);
}

/* Two texts of 70 tokens share two blocks; what each adds is its own. */
static void begin_alike(struct world *w)
{
    world_open(w);
    assert_true(grow(w, 0, 70));
    share(w, 0, 1, 70);
    assert_int_equal(w->blocks.free_count, COUNT - 2);
}

CASE(test_a_block_is_copied_when_it_is_written)
{
    static struct world w;
    begin_alike(&w);
    assert_true(grow(&w, 1, 1) && grow(&w, 0, 1));
    assert_true(good(&w));
    assert_int_equal(w.blocks.free_count, COUNT - 3); /* one copy for both */
    text_blocks_release(&w.blocks);
    /* the twin writes without a copy */
    begin_alike(&w);
    w.blocks.users[w.blocks.table[1]] = 1;
    assert_true(grow(&w, 1, 1) && grow(&w, 0, 1));
    assert_false(good(&w));
    text_blocks_release(&w.blocks);
}

CASE(test_a_block_is_free_when_nobody_has_it)
{
    static struct world w;
    for (int twin = 0; twin < 2; twin++) {
        begin_alike(&w);
        if (twin) /* it forgets that text 1 has them too */
            w.blocks.users[w.blocks.table[0]] = w.blocks.users[w.blocks.table[1]] = 1;
        text_blocks_clear(&w.blocks, 0);
        assert_true(grow(&w, 2, 128));
        assert_int_equal(good(&w), !twin);
        text_blocks_release(&w.blocks);
    }
}

CASE(test_too_few_blocks_take_nothing)
{
    static struct world w;
    begin_alike(&w);
    assert_true(grow(&w, 2, LONG) && grow(&w, 3, 3 * BLOCK));
    assert_int_equal(w.blocks.free_count, 0);
    assert_false(grow(&w, 1, 1)); /* there is none for the copy */
    assert_int_equal(w.blocks.copy_count, 0);
    expect_whole(&w.blocks);
    text_blocks_clear(&w.blocks, 0);
    assert_true(grow(&w, 1, 1)); /* it is alone now */
    assert_true(good(&w));
    text_blocks_release(&w.blocks);
}

SUITE_MAIN(NULL, NULL)
