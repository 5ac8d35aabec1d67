/* Embedding: rows of the table looked up, and a row's gradient summed over the tokens that have it.
 * */
#include "ops/kernels.h"

#include "ops/kern/block.h"

/* The row's n values from `at` on in float32; +0 for -0, so that adding the zeros of ranks that do
 * not hold the row changes nothing. */
static void word_read(enum ls_dtype act, const void *table, int64_t at, int64_t n,
                      float *restrict out)
{
    float buffer[BLOCK];
    const float *word = block_read(act, table, at, n, buffer);
    for (int64_t i = 0; i < n; i++)
        out[i] = 0.0f + word[i];
}

static void position_add(enum ls_dtype act, const void *position, int64_t at, int64_t n,
                         float *restrict out)
{
    float buffer[BLOCK];
    const float *place = block_read(act, position, at, n, buffer);
    for (int64_t i = 0; i < n; i++)
        out[i] += place[i];
}

/* The two steps at once, from and to act. */
static void forward_row_f32(int64_t n, const float *word, const float *place, float *restrict y)
{
    if (place)
        for (int64_t i = 0; i < n; i++)
            y[i] = (0.0f + word[i]) + place[i];
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = 0.0f + word[i];
}

HALF_INLINE void forward_row_half(enum ls_dtype act, int64_t n, const ls_half *word,
                                  const ls_half *place, ls_half *restrict y)
{
    if (place)
        for (int64_t i = 0; i < n; i++)
            y[i] = half_rounded(act, (0.0f + ls_half_to_f32(act, word[i])) +
                                         ls_half_to_f32(act, place[i]));
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = half_rounded(act, 0.0f + ls_half_to_f32(act, word[i]));
}

static void forward(const struct embedding_call *c, int64_t begin, int64_t end)
{
    const struct ls_embedding *e = &c->embedding;
    void *y = c->y;
    const int32_t *ids = e->ids;
    const void *table = e->table, *position = e->position;
    const int64_t channels = e->channels;
    for (int64_t row = begin; row < end; row++) {
        int64_t word = ids[row] * channels, to = row * channels;
        int64_t place = (e->first_position + row % e->tokens) * channels;
        if (row + 1 < end) /* the next row lies where nothing foresees it */
            block_prefetch(e->act, table, ids[row + 1] * channels, channels);
        const ls_half *half = (const ls_half *)table + word;
        const ls_half *half_place = position ? (const ls_half *)position + place : NULL;
        if (e->act == LS_F32)
            forward_row_f32(channels, (const float *)table + word,
                            position ? (const float *)position + place : NULL, (float *)y + to);
        else if (e->act == LS_BF16)
            forward_row_half(LS_BF16, channels, half, half_place, (ls_half *)y + to);
        else
            forward_row_half(LS_F16, channels, half, half_place, (ls_half *)y + to);
    }
}

static void gather(const struct embedding_call *c, int64_t begin, int64_t end)
{
    const struct ls_embedding *e = &c->embedding;
    const int64_t channels = e->channels;
    for (int64_t row = begin; row < end; row++) {
        int64_t id = e->ids[row] - e->first_id;
        float *to = (float *)c->y + row * channels;
        if (id < 0 || id >= e->vocabulary) {
            memset(to, 0, (size_t)channels * sizeof *to);
            continue;
        }
        for (int64_t at = 0; at < channels; at += BLOCK)
            word_read(e->act, e->table, id * channels + at, block_length(at, channels), to + at);
    }
}

static void finish(const struct embedding_call *c, int64_t begin, int64_t end)
{
    const struct ls_embedding *e = &c->embedding;
    const int64_t channels = e->channels;
    float out[BLOCK];
    for (int64_t row = begin; row < end; row++)
        for (int64_t at = 0; at < channels; at += BLOCK) {
            int64_t n = block_length(at, channels);
            memcpy(out, c->x + row * channels + at, (size_t)n * sizeof *out);
            if (e->position)
                position_add(e->act, e->position,
                             (e->first_position + row % e->tokens) * channels + at, n, out);
            block_write(e->act, out, n, c->y, row * channels + at);
        }
}

/* The gradient rows of one vocabulary entry, and the columns under work. */
struct entry {
    enum ls_dtype act;
    int64_t channels, tile_rows, at, width;
    const void *dy;
    const int32_t *order; /* rows, ascending */
};

/* out += what rows order[begin..end) add, ascending. */
static void chain_add(const struct entry *entry, int64_t begin, int64_t end, float *restrict out)
{
    float buffer[BLOCK];
    for (int64_t k = begin; k < end; k++) {
        const float *row =
            block_read(entry->act, entry->dy, entry->order[k] * entry->channels + entry->at,
                       entry->width, buffer);
        for (int64_t i = 0; i < entry->width; i++)
            out[i] += row[i];
    }
}

/* The first of [begin, end) whose row is that one or later. */
static int64_t find_row(const struct entry *entry, int64_t begin, int64_t end, int64_t row)
{
    while (begin < end && entry->order[begin] < row)
        begin++;
    return begin;
}

/* out = the tree over tiles [tile, tile + tiles) of what rows order[begin..end) add to each. A tile
 * without a row is +0, and so is every sum of such tiles; no partial is ever -0 (all start from
 * +0), so adding +0 changes nothing and empty subtrees are skipped. */
static void tile_tree(const struct entry *entry, int64_t tile, int64_t tiles, int64_t begin,
                      int64_t end, float *restrict out)
{
    float buffer[BLOCK];
    if (entry->order[begin] / entry->tile_rows == entry->order[end - 1] / entry->tile_rows) {
        memset(out, 0, (size_t)entry->width * sizeof *out);
        chain_add(entry, begin, end, out);
        return;
    }
    int64_t split = ls_tree_split(tiles);
    int64_t middle = find_row(entry, begin, end, (tile + split) * entry->tile_rows);
    if (middle == begin) {
        tile_tree(entry, tile + split, tiles - split, begin, end, out);
    } else if (middle == end) {
        tile_tree(entry, tile, split, begin, end, out);
    } else {
        tile_tree(entry, tile, split, begin, middle, out);
        tile_tree(entry, tile + split, tiles - split, middle, end, buffer);
        for (int64_t i = 0; i < entry->width; i++)
            out[i] += buffer[i];
    }
}

/* total += each leaf that rows order[begin..end) belong to, ascending. */
static void leaves_add(const struct entry *entry, const struct ls_token_sum *sum, int64_t begin,
                       int64_t end, float *restrict total)
{
    float value[BLOCK];
    int64_t leaf_rows = entry->tile_rows * sum->tiles;
    while (begin < end) {
        int64_t leaf = entry->order[begin] / leaf_rows;
        int64_t next = find_row(entry, begin, end, (leaf + 1) * leaf_rows);
        tile_tree(entry, leaf * sum->tiles, sum->tiles, begin, next, value);
        for (int64_t i = 0; i < entry->width; i++)
            total[i] += value[i];
        begin = next;
    }
}

static void backward(const struct ls_embedding *e, const void *dy, const struct ls_token_sum *sum,
                     struct ls_embedding_scratch scratch, float *d_table, int64_t begin,
                     int64_t end)
{
    const int64_t channels = e->channels;
    for (int64_t v = begin; v < end; v++) {
        float *d_row = d_table + v * channels;
        int64_t from = scratch.start[v], to = scratch.start[v + 1];
        if (sum->onto == LS_ONTO_NOTHING)
            memset(d_row, 0, (size_t)channels * sizeof *d_row);
        for (int64_t at = 0; from < to && at < channels; at += BLOCK) {
            struct entry entry = {
                e->act, channels,     sum->sequences * sum->tokens, at, block_length(at, channels),
                dy,     scratch.order};
            if (sum->onto == LS_ONTO_CHAIN)
                chain_add(&entry, from, to, d_row + at);
            else
                leaves_add(&entry, sum, from, to, d_row + at);
        }
    }
}

static void row_add(enum ls_dtype act, const void *dy, int64_t at, int64_t n, float *restrict to)
{
    float buffer[BLOCK];
    const float *row = block_read(act, dy, at, n, buffer);
    for (int64_t i = 0; i < n; i++)
        to[i] += row[i];
}

/* The chain over sequences of a leaf begins with the first one, so it may be -0. */
static void leaf_rows(enum ls_dtype act, const void *dy, const struct ls_token_sum *sum, int64_t at,
                      int64_t stride, int64_t n, float *restrict leaf)
{
    float buffer[BLOCK];
    memcpy(leaf, block_read(act, dy, at, n, buffer), (size_t)n * sizeof *leaf);
    for (int64_t sequence = 1; sequence < sum->sequences; sequence++)
        row_add(act, dy, at + sequence * stride, n, leaf);
}

static void position_backward(enum ls_dtype act, int64_t channels, const void *dy,
                              const struct ls_token_sum *sum, int64_t row_first, float *d_position,
                              int64_t begin, int64_t end)
{
    float value[BLOCK];
    int64_t stride = sum->tokens * channels;
    for (int64_t token = begin; token < end; token++)
        for (int64_t at = 0; at < channels; at += BLOCK) {
            int64_t n = block_length(at, channels), first = (row_first + token) * channels + at;
            float *to = d_position + token * channels + at;
            if (sum->onto == LS_ONTO_NOTHING && sum->leaves == 0)
                memset(to, 0, (size_t)n * sizeof *to);
            for (int64_t i = 0; sum->onto == LS_ONTO_CHAIN && i < sum->sequences; i++)
                row_add(act, dy, first + i * stride, n, to);
            for (int64_t leaf = 0; sum->onto != LS_ONTO_CHAIN && leaf < sum->leaves; leaf++) {
                leaf_rows(act, dy, sum, first + leaf * sum->sequences * stride, stride, n, value);
                if (leaf == 0 && sum->onto == LS_ONTO_NOTHING)
                    memcpy(to, value, (size_t)n * sizeof *to);
                for (int64_t i = 0; (leaf || sum->onto == LS_ONTO_SUM) && i < n; i++)
                    to[i] += value[i];
            }
        }
}

extern const struct embedding_kernels KERNEL(embedding_kernels);
const struct embedding_kernels KERNEL(embedding_kernels) = {
    .of = {[EMBEDDING_FORWARD] = forward, [EMBEDDING_GATHER] = gather, [EMBEDDING_FINISH] = finish},
    .backward = backward,
    .position_backward = position_backward,
};
