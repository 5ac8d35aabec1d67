/* Context parallel's ring as a list: half chunks of a sequence, handed from rank to rank in
 * ascending order; in the backward each rank's sums go to the chunk's owner. The list follows from
 * the layout and the rank's place on cp alone, so it is made once and holds for every block,
 * sequence and micro-batch. */
#include "walk.h"

#include <stdlib.h>

enum { KEYS = 1, SUMS = 2 };

struct making {
    struct plan_ring *ring; /* items NULL: it is only counted */
    const struct ls_layout *layout;
    int64_t length, elements; /* tokens, and elements of keys and values, of a half chunk */
    int rank, size, chunks;
};

int64_t plan_kv_width(const struct ls_layout *l)
{
    return ls_max(l->model.kv_heads / l->size[LS_AXIS_TP], 1) * l->model.head_dim;
}

static void add(struct making *m, struct plan_ring_item item)
{
    if (m->ring->items)
        m->ring->items[m->ring->count] = item;
    m->ring->count++;
}

static int owner_of(const struct making *m, int chunk)
{
    int tile = chunk < m->chunks / 2 ? chunk : m->chunks - 1 - chunk;
    return tile / (m->chunks / 2 / m->size);
}

static void keys_pass(struct making *m, int chunk)
{
    int owner = owner_of(m, chunk);
    int left = (m->rank + m->size - 1) % m->size, right = (m->rank + 1) % m->size;
    struct plan_ring_item item = {.group = LS_GROUP_CP,
                                  .channel = KEYS,
                                  .dtype = m->layout->numerics.act,
                                  .count = m->elements,
                                  .what = "keys and values"};
    item.receive = true;
    item.peer = left;
    if (owner != m->rank)
        add(m, item);
    item.receive = false;
    item.peer = right;
    if (owner != right)
        add(m, item);
}

static void sums_send(struct making *m, int chunk)
{
    const struct ls_layout *l = m->layout;
    int owner = owner_of(m, chunk);
    int64_t tiles = l->numerics.seq_tiles;
    for (int i = 0; i < ls_segments(tiles, m->size); i++) {
        int64_t first, count;
        ls_segment(tiles, m->size, m->rank, l->sequence, i, &first, &count);
        for (int pair = 0; pair < 2 && chunk * m->length <= first; pair++)
            add(m, (struct plan_ring_item){.group = LS_GROUP_SHARERS,
                                           .dtype = LS_F32,
                                           .count = m->length * plan_kv_width(l),
                                           .what = "shared key/value gradients"});
    }
    struct plan_ring_item item = {.group = LS_GROUP_CP,
                                  .channel = SUMS,
                                  .dtype = LS_F32,
                                  .count = m->elements,
                                  .what = "key/value gradients"};
    item.peer = owner;
    if (owner != m->rank) {
        add(m, item);
        return;
    }
    item.receive = true;
    for (item.peer = 0; item.peer < m->size; item.peer++)
        if (item.peer != m->rank)
            add(m, item);
}

static void chunks_walk(struct making *m, bool backward)
{
    m->ring->count = 0;
    for (int chunk = 0; chunk < m->chunks; chunk++) {
        keys_pass(m, chunk);
        if (backward)
            sums_send(m, chunk);
    }
}

int plan_ring_init(const struct ls_layout *layout, int64_t cp_rank, bool backward,
                   struct plan_ring *ring, struct ls_error *error)
{
    int64_t tiles = layout->numerics.seq_tiles, length = layout->sequence / (2 * tiles);
    struct making m = {.ring = ring,
                       .layout = layout,
                       .length = length,
                       .elements = length * 2 * plan_kv_width(layout),
                       .rank = (int)cp_rank,
                       .size = (int)layout->size[LS_AXIS_CP],
                       .chunks = (int)(2 * tiles)};
    *ring = (struct plan_ring){.backward = backward};
    chunks_walk(&m, backward);
    ring->items = calloc((size_t)ring->count, sizeof *ring->items);
    if (!ring->items)
        return ls_error_set(error, LS_ENOMEM, "no memory for a ring of %d moves", ring->count);
    chunks_walk(&m, backward);
    return LS_OK;
}

void plan_ring_release(struct plan_ring *ring)
{
    free(ring->items);
    *ring = (struct plan_ring){0};
}
