/* Embedding: forward by definition, backward by the recursive definition of its sum, bits. */
#include "../support/suite.h"
#include "gradient.h"

#include <stdlib.h>

enum { ACTS = 3 };
static const enum ls_dtype acts[ACTS] = {LS_F32, LS_BF16, LS_F16};

/* Ids with few values, many of them repeated, as text has them. */
static int32_t *ids_new(int64_t rows, int64_t vocabulary)
{
    int32_t *ids = values_new((size_t)rows * sizeof *ids);
    for (int64_t row = 0; row < rows; row++) {
        uint32_t out[4];
        ls_philox((struct ls_philox_key){{3, 4}}, (uint32_t[4]){(uint32_t)row, 0, 0, 0}, out);
        int64_t v = out[0] % vocabulary;
        ids[row] = (int32_t)(out[1] & 1 ? v : v * v / vocabulary);
    }
    return ids;
}

enum { VOCABULARY = 20, CHANNELS = 523, TOKENS = 7, ROWS = 14, FIRST = 3 };

static double value_at(enum ls_dtype act, const void *values, int64_t i)
{
    return act == LS_F32 ? ((const float *)values)[i]
                         : ls_half_to_f32(act, ((const ls_half *)values)[i]);
}

/* ROWS rows of TOKENS tokens from position FIRST on. */
static struct ls_embedding embedding_of(enum ls_dtype act, const int32_t *ids, const void *table,
                                        const void *position)
{
    return (struct ls_embedding){.act = act,
                                 .rows = ROWS,
                                 .channels = CHANNELS,
                                 .ids = ids,
                                 .vocabulary = VOCABULARY,
                                 .table = table,
                                 .first_position = FIRST,
                                 .tokens = TOKENS,
                                 .position = position};
}

CASE(test_forward)
{
    int32_t *ids = ids_new(ROWS, VOCABULARY);
    for (int a = 0; a < ACTS; a++)
        for (int with_position = 0; with_position < 2; with_position++) {
            void *table = values_normal(1, acts[a], VOCABULARY * CHANNELS, 1);
            void *position = values_normal(2, acts[a], (TOKENS + FIRST) * CHANNELS, 1);
            void *y = values_new(ROWS * CHANNELS * 4);
            struct ls_embedding e = embedding_of(acts[a], ids, table, position);
            if (!with_position)
                e.position = NULL;
            ls_embedding_forward(&ops_best, &e, y);
            for (int m = 0; m < ROWS; m++)
                for (int c = 0; c < CHANNELS; c++) {
                    float want = (float)value_at(acts[a], table, ids[m] * CHANNELS + c);
                    if (with_position)
                        want +=
                            (float)value_at(acts[a], position, (FIRST + m % TOKENS) * CHANNELS + c);
                    if (acts[a] != LS_F32)
                        want = ls_half_to_f32(acts[a], ls_f32_to_half(acts[a], want));
                    double got = value_at(acts[a], y, m * CHANNELS + c);
                    if (got != want)
                        fail_msg("row %d, channel %d: %.9g, expected %.9g", m, c, got,
                                 (double)want);
                }
            free(y), free(table), free(position);
        }
    free(ids);
}

/* Ranks of 9, 1 and 10 rows of the table (one of which has a -0), their parts added. */
CASE(test_split_vocabulary_gives_the_same_bits)
{
    static const int first[4] = {0, 9, 10, VOCABULARY};
    int32_t *ids = ids_new(ROWS, VOCABULARY);
    for (int a = 0; a < ACTS; a++)
        for (int with_position = 0; with_position < 2; with_position++) {
            const int64_t bytes = (int64_t)ls_dtype_bytes(acts[a]), count = ROWS * CHANNELS;
            char *table = values_normal(1, acts[a], VOCABULARY * CHANNELS, 1);
            char *position = values_normal(2, acts[a], (TOKENS + FIRST) * CHANNELS, 1);
            char *place = with_position ? position : NULL;
            void *want = values_new((size_t)(count * 4)), *got = values_new((size_t)(count * 4));
            float *sum = values_new((size_t)(count * 4)), *own = values_new((size_t)(count * 4));
            if (acts[a] == LS_F32)
                ((float *)table)[ids[1] * CHANNELS] = -0.0f;
            else
                ((ls_half *)table)[ids[1] * CHANNELS] = 0x8000;
            const struct ls_embedding whole = embedding_of(acts[a], ids, table, place);
            for (int rank = 0; rank < 3; rank++) {
                struct ls_embedding part = whole;
                part.first_id = first[rank];
                part.vocabulary = first[rank + 1] - first[rank];
                part.table = table + first[rank] * CHANNELS * bytes;
                ls_embedding_gather(&ops_best, &part, rank ? own : sum);
                if (rank)
                    ls_tree_add(&ops_best, count, sum, own);
            }
            ls_embedding_finish(&ops_best, &whole, sum, got);
            ls_embedding_forward(&ops_best, &whole, want);
            assert_memory_equal(got, want, (size_t)(count * bytes));
            free(want), free(got), free(sum), free(own), free(table), free(position);
        }
    free(ids);
}

/* ---- backward -------------------------------------------------------------------------------- */

struct data {
    enum ls_dtype act;
    int64_t vocabulary, channels;
    struct ls_token_sum sum;
    int32_t *ids;
    void *dy;
};

/* A tile's tokens with the id v, on from `from`. */
static float tile_reference(const struct data *data, const double *dy, int64_t tile, int64_t v,
                            int64_t c, float from)
{
    int64_t rows = data->sum.sequences * data->sum.tokens;
    for (int64_t m = tile * rows; m < (tile + 1) * rows; m++)
        if (data->ids[m] == v)
            from += (float)dy[m * data->channels + c];
    return from;
}

/* Tiles of a leaf by the tree, leaves by the chain, absent ones zero. */
static void table_reference(const struct data *data, float *d_table)
{
    const struct ls_token_sum *sum = &data->sum;
    double *dy = values_in_double(data->act, data->dy, ls_token_rows(sum) * data->channels);
    for (int64_t v = 0; v < data->vocabulary; v++)
        for (int64_t c = 0; c < data->channels; c++) {
            float *to = &d_table[v * data->channels + c], tiles[8];
            if (sum->onto == LS_ONTO_CHAIN)
                *to = tile_reference(data, dy, 0, v, c, *to);
            for (int64_t leaf = 0; sum->onto != LS_ONTO_CHAIN && leaf < sum->leaves; leaf++) {
                for (int64_t tile = 0; tile < sum->tiles; tile++)
                    tiles[tile] = tile_reference(data, dy, leaf * sum->tiles + tile, v, c, 0);
                float value = ls_tree_sum(tiles, sum->tiles);
                *to = leaf || sum->onto == LS_ONTO_SUM ? *to + value : value;
            }
        }
    free(dy);
}

static void position_reference(const struct data *data, float *d_position)
{
    const struct ls_token_sum *sum = &data->sum;
    double *dy = values_in_double(data->act, data->dy, ls_token_rows(sum) * data->channels);
    for (int64_t t = 0; t < sum->tokens; t++)
        for (int64_t c = 0; c < data->channels; c++) {
            float *to = &d_position[t * data->channels + c];
            for (int64_t leaf = 0; leaf < sum->leaves; leaf++) {
                float value = 0;
                for (int64_t s = 0; s < sum->sequences; s++) {
                    int64_t m = (leaf * sum->sequences + s) * sum->tokens + t;
                    float next = (float)dy[m * data->channels + c];
                    value = s ? value + next : next;
                    if (sum->onto == LS_ONTO_CHAIN)
                        *to += next;
                }
                if (sum->onto != LS_ONTO_CHAIN)
                    *to = leaf || sum->onto == LS_ONTO_SUM ? *to + value : value;
            }
        }
    free(dy);
}

static struct data data_new(enum ls_dtype act, int64_t vocabulary, int64_t channels,
                            struct ls_token_sum sum)
{
    int64_t rows = ls_token_rows(&sum);
    return (struct data){act,
                         vocabulary,
                         channels,
                         sum,
                         ids_new(rows, vocabulary),
                         values_normal(6, act, rows * channels, 1)};
}

/* d_table of ids [first, first + count). */
static void run_backward_of(struct ls_ops *ops, const struct data *data, int64_t first,
                            int64_t count, float *d_table)
{
    int64_t rows = ls_token_rows(&data->sum);
    struct ls_embedding_scratch scratch = {values_new((size_t)rows * 4),
                                           values_new((size_t)(count + 1) * 4)};
    struct ls_embedding part = {.act = data->act,
                                .rows = rows,
                                .channels = data->channels,
                                .ids = data->ids,
                                .first_id = first,
                                .vocabulary = count};
    ls_embedding_backward(ops, &part, data->dy, &data->sum, scratch, d_table);
    free(scratch.order), free(scratch.start);
}

static void run_backward(struct ls_ops *ops, const struct data *data, float *d_table)
{
    run_backward_of(ops, data, 0, data->vocabulary, d_table);
}

CASE(test_backward_is_the_ordered_sum)
{
    const struct ls_token_sum sums[] = {
        {1, 1, 1, 1, LS_ONTO_NOTHING},  {1, 2, 1, 9, LS_ONTO_SUM},
        {6, 1, 1, 40, LS_ONTO_NOTHING}, {7, 3, 1, 13, LS_ONTO_SUM},
        {13, 2, 1, 5, LS_ONTO_NOTHING}, {3, 1, 4, 17, LS_ONTO_SUM},
        {2, 1, 8, 9, LS_ONTO_NOTHING},  {1, 3, 1, 20, LS_ONTO_CHAIN}};
    for (size_t s = 0; s < sizeof sums / sizeof *sums; s++)
        for (int a = 0; a < ACTS; a++) {
            struct data data = data_new(acts[a], 61, 17, sums[s]);
            size_t table_bytes = (size_t)(data.vocabulary * data.channels) * 4;
            float *got = values_normal(8, LS_F32, data.vocabulary * data.channels, 1);
            float *want = values_normal(8, LS_F32, data.vocabulary * data.channels, 1);
            run_backward(&ops_best, &data, got);
            table_reference(&data, want);
            assert_memory_equal(got, want, table_bytes);
            free(got), free(want);
            got = values_normal(9, LS_F32, data.sum.tokens * data.channels, 1);
            want = values_normal(9, LS_F32, data.sum.tokens * data.channels, 1);
            data.sum.sequences *= data.sum.tiles;
            data.sum.tiles = 1;
            ls_position_backward(&ops_best, acts[a], data.channels, data.dy, &data.sum, 0,
                                 data.sum.tokens, got);
            position_reference(&data, want);
            assert_memory_equal(got, want, (size_t)(data.sum.tokens * data.channels) * 4);
            free(got), free(want), free(data.ids), free(data.dy);
        }
}

/* Slices of the vocabulary and of a sequence's tokens are slices of the whole gradients. */
CASE(test_backward_of_slices)
{
    for (int i = 0; i < 2; i++) {
        enum ls_onto onto = i ? LS_ONTO_SUM : LS_ONTO_NOTHING;
        struct data data = data_new(LS_BF16, 61, 17, (struct ls_token_sum){3, 2, 1, 13, onto});
        const int64_t cut[4] = {0, 20, 21, 61}, row[4] = {0, 1, 8, 13};
        float *want = values_normal(8, LS_F32, 61 * 17, 1),
              *got = values_normal(8, LS_F32, 61 * 17, 1);
        run_backward(&ops_best, &data, want);
        for (int s = 0; s < 3; s++)
            run_backward_of(&ops_best, &data, cut[s], cut[s + 1] - cut[s], got + cut[s] * 17);
        assert_memory_equal(got, want, 61 * 17 * sizeof *got);
        ls_position_backward(&ops_best, LS_BF16, 17, data.dy, &data.sum, 0, 13, want);
        for (int s = 0; s < 3; s++)
            ls_position_backward(&ops_best, LS_BF16, 17, data.dy, &data.sum, row[s],
                                 row[s + 1] - row[s], got + row[s] * 17);
        assert_memory_equal(got, want, 61 * 17 * sizeof *got);
        free(want), free(got), free(data.ids), free(data.dy);
    }
}

/* Both backwards, then the forward from what they left, taken as matrices of act. */
static void run_bits(struct ls_ops *ops, int pieces, void *context, void *out)
{
    struct data *data = context;
    float *to = out;
    run_backward(ops, data, to);
    to += data->vocabulary * data->channels;
    ls_position_backward(ops, data->act, data->channels, data->dy, &data->sum, 0, data->sum.tokens,
                         to);
    to += data->sum.tokens * data->channels;
    int64_t rows = ls_token_rows(&data->sum);
    void *table = values_normal(1, data->act, data->vocabulary * data->channels, 1);
    struct ls_embedding whole = {.act = data->act,
                                 .rows = rows,
                                 .channels = data->channels,
                                 .ids = data->ids,
                                 .vocabulary = data->vocabulary,
                                 .table = table,
                                 .tokens = data->sum.tokens,
                                 .position = table};
    ls_embedding_forward(ops, &whole, to);
    free(table);
}

CASE(test_bits)
{
    for (int a = 0; a < ACTS; a++) {
        struct data data =
            data_new(acts[a], 300, 601, (struct ls_token_sum){5, 1, 1, 33, LS_ONTO_NOTHING});
        int64_t rows = 5 * 33;
        struct bits_case bits = {"embedding",
                                 (size_t)((300 + 33) * 601) * 4 +
                                     (size_t)(rows * 601) * ls_dtype_bytes(acts[a]),
                                 false, run_bits, &data};
        assert_bits_same(&bits);
        free(data.ids), free(data.dy);
    }
}

CASE(test_no_rows)
{
    struct data data = {LS_F32, 3, 5, {0, 1, 1, 4, LS_ONTO_NOTHING}, NULL, NULL};
    float table[15], position[20], guard = 7;
    run_backward(&ops_best, &data, table);
    ls_position_backward(&ops_best, LS_F32, 5, NULL, &data.sum, 0, 4, position);
    for (int i = 0; i < 20; i++)
        assert_true((i >= 15 || table[i] == 0) && position[i] == 0);
    struct ls_embedding none = {
        .act = LS_F32, .channels = 5, .table = table, .tokens = 4, .position = position};
    ls_embedding_forward(&ops_best, &none, &guard);
    assert_true(guard == 7);
}

SUITE_MAIN(ops_best_setup, ops_best_teardown)
