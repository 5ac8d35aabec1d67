/* Column sums in the order of ls_token_sum: each call owns its columns, so threads never meet. */
#include "ops/kernels.h"

#include "ops/kern/block.h"
#include "ops/tree.h"

/* Partial sums live on a stack of vectors: the sum of the leaves so far, that of the leaf's
 * sequences so far, and one entry per open node of the two nested trees (groups of tokens of a
 * tile, tiles of a sequence). 48 entries are enough for far more tokens than memory holds. */
enum { DEPTH = 48 };
struct partials {
    int top;
    float entry[DEPTH][2 * BLOCK];
};

static void merge(struct partials *partials, int merges, int64_t width)
{
    for (; merges > 0; merges--) {
        float *restrict left = partials->entry[partials->top - 2];
        const float *restrict right = partials->entry[partials->top - 1];
        for (int64_t i = 0; i < width; i++)
            left[i] += right[i];
        partials->top--;
    }
}

/* What a tile of rows adds to its partial. */
struct columns {
    const struct ls_norm *norm; /* NULL: plain column sums; else entry[width ... 2 width) sums dy */
    enum ls_dtype act;
    int64_t ld, begin, width; /* columns [begin, begin + width), width <= BLOCK */
    const void *h, *dy;
    int64_t rows;
    /* Of a row: so many heads, each head_width from the one before. */
    int64_t heads, head_width, statistics_ld;
};

static inline float element(enum ls_dtype act, const void *x, int64_t i)
{
    return act == LS_F32 ? ((const float *)x)[i] : ls_half_to_f32(act, ((const ls_half *)x)[i]);
}

/* n columns from columns->begin + at on, summed over a tile of rows (and each row's heads) from
 * zero, in registers; inlined for each act and for n == CHUNK. Rows are too far apart for the
 * hardware to foresee the next tile's, so they are fetched here. */
enum { CHUNK = 64 };
HALF_INLINE void add_chunk(enum ls_dtype act, bool normed, const struct columns *columns,
                           int64_t row, int64_t rows, int64_t at, int64_t n,
                           float *restrict partial)
{
    float weight[CHUNK] = {0}, bias[CHUNK] = {0};
    for (int64_t end = row + rows; row < end; row++)
        for (int64_t head = 0; head < columns->heads; head++) {
            int64_t from = row * columns->ld + head * columns->head_width + columns->begin + at;
            int64_t statistics = row * columns->statistics_ld + head;
            const char *h = (const char *)columns->h + from * (act == LS_F32 ? 4 : 2);
            const char *dy = (const char *)columns->dy + from * (act == LS_F32 ? 4 : 2);
            float mean = normed && columns->norm->mean ? columns->norm->mean[statistics] : 0.0f;
            float rstd = normed ? columns->norm->rstd[statistics] : 0.0f;
            if (row + LS_TOKEN_TILE < columns->rows) {
                int64_t ahead = LS_TOKEN_TILE * columns->ld;
                block_prefetch(act, dy, ahead, n);
                if (normed)
                    block_prefetch(act, h, ahead, n);
            }
            for (int64_t j = 0; j < n; j++) {
                float grad = element(act, dy, j);
                if (normed)
                    weight[j] += grad * ((element(act, h, j) - mean) * rstd);
                bias[j] += grad;
            }
        }
    if (normed)
        memcpy(partial + at, weight, (size_t)n * sizeof *weight);
    memcpy(partial + at + (normed ? columns->width : 0), bias, (size_t)n * sizeof *bias);
}

HALF_INLINE void add_chunks(enum ls_dtype act, bool normed, const struct columns *columns,
                            int64_t row, int64_t rows, float *partial)
{
    int64_t at = 0;
    for (; at + CHUNK <= columns->width; at += CHUNK)
        add_chunk(act, normed, columns, row, rows, at, CHUNK, partial);
    if (at < columns->width)
        add_chunk(act, normed, columns, row, rows, at, columns->width - at, partial);
}

HALF_INLINE void add_tile_of(enum ls_dtype act, const struct columns *columns, int64_t row,
                             int64_t rows, float *partial)
{
    if (columns->norm)
        add_chunks(act, true, columns, row, rows, partial);
    else
        add_chunks(act, false, columns, row, rows, partial);
}

static void add_tile(const struct columns *columns, int64_t row, int64_t rows, float *partial)
{
    if (columns->act == LS_F32)
        add_tile_of(LS_F32, columns, row, rows, partial);
    else if (columns->act == LS_BF16)
        add_tile_of(LS_BF16, columns, row, rows, partial);
    else
        add_tile_of(LS_F16, columns, row, rows, partial);
}

/* Pushes the next sequence's sum, whose first row is `row`. */
static void push_sequence(const struct columns *columns, const struct ls_token_sum *sum,
                          int64_t width, int64_t row, struct partials *partials)
{
    int64_t groups = ls_ceil_div(sum->tokens, LS_TOKEN_TILE);
    for (int64_t tile = 0; tile < sum->tiles; tile++) {
        for (int64_t group = 0; group < groups; group++) {
            int64_t rows = ls_min(LS_TOKEN_TILE, sum->tokens - group * LS_TOKEN_TILE);
            LS_ASSERT(partials->top < DEPTH);
            add_tile(columns, row, rows, partials->entry[partials->top++]);
            merge(partials, ops_tree_merges(group, groups), width);
            row += rows;
        }
        merge(partials, ops_tree_merges(tile, sum->tiles), width);
    }
}

/* The whole sum over rows for these columns, onto what is there: partials->entry[0]. */
static void sum_columns(const struct columns *columns, const struct ls_token_sum *sum,
                        int64_t width, struct partials *partials)
{
    int64_t sequence_rows = sum->tiles * sum->tokens, row = 0;
    bool onto = sum->onto != LS_ONTO_NOTHING;
    partials->top = onto;
    for (int64_t leaf = 0; leaf < sum->leaves; leaf++) {
        for (int64_t i = 0; i < sum->sequences; i++, row += sequence_rows) {
            push_sequence(columns, sum, width, row, partials);
            merge(partials, i > 0 || sum->onto == LS_ONTO_CHAIN, width);
        }
        merge(partials, sum->onto != LS_ONTO_CHAIN && (leaf > 0 || onto), width);
    }
    if (partials->top == 0)
        memset(partials->entry[0], 0, (size_t)width * sizeof(float));
}

/* d_weight's and d_bias's (NULL: none) columns of `sum`. */
static void sum_into(const struct columns *columns, const struct ls_token_sum *sum, float *d_weight,
                     float *d_bias)
{
    struct partials partials;
    size_t bytes = (size_t)columns->width * sizeof(float);
    float *second = partials.entry[0] + columns->width;
    if (sum->onto != LS_ONTO_NOTHING) {
        memcpy(partials.entry[0], d_weight, bytes);
        if (d_bias)
            memcpy(second, d_bias, bytes);
    }
    sum_columns(columns, sum, d_bias ? 2 * columns->width : columns->width, &partials);
    memcpy(d_weight, partials.entry[0], bytes);
    if (d_bias)
        memcpy(d_bias, second, bytes);
}

static void norm_weight(const struct ls_norm *norm, const void *h, const void *dy,
                        const struct ls_token_sum *sum, float *d_weight, float *d_bias,
                        int64_t begin, int64_t end)
{
    for (int64_t at = begin; at < end; at += BLOCK) {
        struct columns columns = {.norm = norm,
                                  .act = norm->act,
                                  .ld = norm->heads ? norm->ld : norm->channels,
                                  .begin = at,
                                  .width = block_length(at, end),
                                  .h = h,
                                  .dy = dy,
                                  .rows = norm->rows,
                                  .heads = norm->heads ? norm->heads : 1,
                                  .head_width = norm->channels,
                                  .statistics_ld = norm->heads ? norm->statistics_ld : 1};
        sum_into(&columns, sum, d_weight + at, d_bias ? d_bias + at : NULL);
    }
}

static void bias(enum ls_dtype act, int64_t ld, const void *dy, const struct ls_token_sum *sum,
                 float *d_bias, int64_t begin, int64_t end)
{
    int64_t rows = ls_token_rows(sum);
    for (int64_t at = begin; at < end; at += BLOCK) {
        struct columns columns = {.act = act,
                                  .ld = ld,
                                  .begin = at,
                                  .width = block_length(at, end),
                                  .dy = dy,
                                  .rows = rows,
                                  .heads = 1};
        sum_into(&columns, sum, d_bias + at, NULL);
    }
}

extern const struct sum_kernels KERNEL(sum_kernels);
const struct sum_kernels KERNEL(sum_kernels) = {.norm_weight = norm_weight, .bias = bias};
