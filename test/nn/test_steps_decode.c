/* Each step of each family's layers in a decoder: it makes the bits of its forward over whole
 * sequences, token by token, in chunks, and beside another sequence. */
#include "../support/extent.h"
#include "../support/suite.h"
#include "nn/model.h"
#include "tiny.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 2, TOKENS = LS_ATTENTION_BLOCK + 6, ROWS = SEQUENCES * TOKENS, LAYERS = 1 };
enum { HEADS = 4, HEAD_DIM = 16, WIDTH_MAX = 3 * HEADS * HEAD_DIM };

/* A step of a model of whole sequences, and the same of a decoder, with values of their own. */
struct pair {
    struct tiny tiny;
    struct ls_ops threads; /* the decoder's: more than the forward's */
    struct ls_decoder *decoder;
    struct ls_micro_batch batch;
    int layer, index;
    const struct step *step;
    int32_t ids[ROWS], targets[ROWS];
    float input[2][ROWS * WIDTH_MAX]; /* act */
    float made[VALUES_MAX][ROWS * WIDTH_MAX], row[VALUES_MAX][ROWS * WIDTH_MAX];
    char name[96];
};

/* How the decoder is broken: it is so many positions too far; it is given the token before. */
struct twin {
    int ahead, late;
};

/* ---- a pair ---------------------------------------------------------------------------------- */

/* In what the pair computes: each type, and bf16 in either arithmetic. */
static const struct way {
    enum ls_dtype act;
    enum ls_arithmetic arithmetic;
} ways[] = {{LS_F32, LS_ARITHMETIC_FMA},
            {LS_BF16, LS_ARITHMETIC_FMA},
            {LS_BF16, LS_ARITHMETIC_BF16_PAIRS},
            {LS_F16, LS_ARITHMETIC_FMA}};
enum { WAYS = sizeof ways / sizeof ways[0] };

static struct pair *pair_open(enum ls_arch arch, enum ls_activation activation, struct way way)
{
    struct ls_error error = {0};
    struct pair *p = calloc(1, sizeof *p);
    p->tiny = tiny_of(arch);
    p->tiny.config.act = activation;
    p->tiny.config.heads = HEADS;
    p->tiny.config.kv_heads = arch == LS_GPT2 ? HEADS : HEADS / 2;
    p->tiny.config.head_dim = HEAD_DIM;
    p->tiny.config.context = TOKENS + 1;
    p->tiny.numerics.act = way.act;
    p->tiny.numerics.tp_tiles = 2;
    tiny_open(&p->tiny, 1);
    const struct ls_model_options options = {.config = &p->tiny.config,
                                             .numerics = &p->tiny.numerics,
                                             .params = &p->tiny.held.params,
                                             .weights = p->tiny.held.weights,
                                             .sequences = SEQUENCES,
                                             .tokens = TOKENS,
                                             .slots = 1};
    tiny_model(&p->tiny, options);
    assert_int_equal(ls_ops_init(&p->threads, 3, ls_isa_best(), &error), LS_OK);
    p->tiny.ops.arithmetic = p->threads.arithmetic = way.arithmetic;
    const struct ls_decoder_size size = {SEQUENCES, TOKENS + 1, ROWS, 0};
    assert_int_equal(ls_decoder_new(&options, &size, &p->decoder, &error), LS_OK);
    for (int i = 0; i < ROWS; i++) {
        p->ids[i] = (i * 5 + i / 3) % TINY_VOCAB;
        p->targets[i] = (i * 8 + 1) % TINY_VOCAB;
    }
    p->batch = (struct ls_micro_batch){
        .sequences = SEQUENCES, .tokens = TOKENS, .ids = p->ids, .targets = p->targets};
    return p;
}

static void pair_close(struct pair *p)
{
    ls_decoder_free(p->decoder);
    ls_ops_release(&p->threads);
    tiny_close(&p->tiny);
    free(p);
}

static bool is_act(const struct pair *p, int v)
{
    return !p->tiny.model->layers[p->layer].program->values[v].f32;
}

static int64_t width_of(const struct pair *p, int v)
{
    int64_t width =
        size_held(p->tiny.model, p->tiny.model->layers[p->layer].program->values[v].size);
    assert_true(width <= WIDTH_MAX);
    return width;
}

static size_t row_bytes(const struct pair *p, int v)
{
    size_t element = is_act(p, v) ? model_act_bytes(p->tiny.model) : sizeof(float);
    return (size_t)width_of(p, v) * element;
}

static bool has_input(const struct pair *p, int k)
{
    return k < p->step->kind->ins && (k == 0 || p->step->in[k] > 0);
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static void input_set(struct pair *p, int k, const float *values)
{
    if (p->tiny.numerics.act != LS_F32)
        ls_cast_to_half(&p->tiny.ops, p->tiny.numerics.act, ROWS * width_of(p, p->step->in[k]),
                        values, (ls_half *)p->input[k]);
    else
        memcpy(p->input[k], values, sizeof p->input[k]);
}

static void input_normal(struct pair *p)
{
    static float values[ROWS * WIDTH_MAX];
    for (int k = 0; k < 2; k++) {
        ls_normal_fill(ls_philox_key_of(7, k ? "y" : "x"), 0, ROWS * WIDTH_MAX, 0, 1, values);
        if (has_input(p, k))
            input_set(p, k, values);
    }
}

/* ---- runs ------------------------------------------------------------------------------------ */

static struct layer_run run_of(const struct pair *p, struct ls_model *model, struct ls_ops *ops,
                               const struct ls_micro_batch *batch, const struct rows *rows)
{
    return (struct layer_run){.model = model,
                              .ops = ops,
                              .layer = &model->layers[p->layer],
                              .batch = batch,
                              .rows = rows};
}

static void forward_run(struct pair *p)
{
    struct rows rows = rows_of(p->tiny.model, &p->batch);
    struct layer_run run = run_of(p, p->tiny.model, &p->tiny.ops, &p->batch, &rows);
    for (int v = 0; v < VALUES_MAX; v++)
        run.value[v] = p->made[v];
    for (int k = 0; k < 2; k++)
        if (has_input(p, k))
            memcpy(p->made[p->step->in[k]], p->input[k], sizeof p->input[k]);
    assert_int_equal(p->step->kind->forward(&run, &run.layer->steps[p->index]), LS_OK);
}

/* What a decoder takes at a time: so many tokens of one sequence, or of each. */
struct cutting {
    int64_t tokens;
    bool together;
};

/* Whether the rows of a step of the decoder have the bits of the forward; rows[] says which. */
static bool rows_same(struct pair *p, const int64_t *rows, int64_t count,
                      const struct ls_decoder_run *runs, int run_count)
{
    struct ls_model *model = ls_decoder_model(p->decoder);
    const struct head_losses *want = &p->tiny.model->losses;
    int32_t ends[SEQUENCES];
    float losses[SEQUENCES];
    bool same = true;
    for (int i = 0; i < p->step->kind->outs && p->step->kind != &step_head; i++) {
        int v = p->step->out[i];
        size_t bytes = row_bytes(p, v);
        if (p->step->kind == &step_attention && i == 1) /* lse: only the backward reads it */
            continue;
        for (int64_t r = 0; r < count; r++)
            same &= !memcmp((char *)p->row[v] + (size_t)r * bytes,
                            (char *)p->made[v] + (size_t)rows[r] * bytes, bytes);
    }
    if (p->step->kind != &step_head)
        return same;
    for (int64_t r = 0; r < count; r++) /* the forward keeps no logits: theirs are the losses */
        same &= !memcmp(&model->losses.rows[r], &want->rows[rows[r]], sizeof(float));
    for (int64_t i = 0, r = -1; i < run_count; i++) {
        r += runs[i].count;
        ends[i] = p->targets[rows[r]];
    }
    ls_decoder_losses(p->decoder, &p->threads, ends, losses);
    for (int64_t i = 0, r = -1; i < run_count; i++) {
        r += runs[i].count;
        same &= !memcmp(&losses[i], &want->rows[rows[r]], sizeof(float));
    }
    return same;
}

/* The first rows of every value hold no numbers. */
static void rows_forget(struct pair *p, int64_t count)
{
    for (int v = 0; v < VALUES_MAX; v++)
        memset(p->row[v], 0xff, (size_t)(count * WIDTH_MAX) * sizeof(float));
}

/* A step over the next rows of some sequences, with what the decoder keeps of those before. */
static bool step_same(struct pair *p, const struct ls_decoder_run *runs, int run_count, int64_t at,
                      int late)
{
    struct ls_error error = {0};
    struct ls_model *model = ls_decoder_model(p->decoder);
    const struct step_kind *kind = p->step->kind;
    struct ls_micro_batch batch;
    int32_t ids[ROWS], targets[ROWS];
    int64_t rows[ROWS], count = 0;
    for (int i = 0; i < run_count; i++)
        for (int64_t k = 0; k < runs[i].count; k++)
            rows[count++] = runs[i].sequence * TOKENS + at + k;
    for (int64_t r = 0; r < count; r++) {
        int64_t given = ls_max(rows[r] - late, 0);
        ids[r] = p->ids[given];
        targets[r] = p->targets[rows[r]];
        for (int k = 0; k < 2; k++)
            if (has_input(p, k)) {
                size_t bytes = row_bytes(p, p->step->in[k]);
                memcpy((char *)p->row[p->step->in[k]] + (size_t)r * bytes,
                       (char *)p->input[k] + (size_t)given * bytes, bytes);
            }
    }
    assert_int_equal(ls_decoder_begin(p->decoder, runs, run_count, ids, &batch, &error), LS_OK);
    batch.targets = targets;
    struct rows all = rows_of(model, &batch);
    struct layer_run run = run_of(p, model, &p->threads, &batch, &all);
    for (int v = 0; v < VALUES_MAX; v++)
        run.value[v] = p->row[v];
    assert_int_equal(
        (kind->decode ? kind->decode : kind->forward)(&run, &run.layer->steps[p->index]), LS_OK);
    ls_decoder_end(p->decoder, &p->threads);
    bool same = rows_same(p, rows, count, runs, run_count);
    rows_forget(p, count);
    return same;
}

/* Positions go on without anything there. */
static void go_ahead(struct pair *p, int64_t sequence, int tokens)
{
    struct ls_error error = {0};
    struct ls_decoder_run run = {.sequence = sequence, .count = tokens};
    struct ls_micro_batch batch;
    int32_t ids[ROWS] = {0};
    if (tokens == 0)
        return;
    assert_int_equal(ls_decoder_begin(p->decoder, &run, 1, ids, &batch, &error), LS_OK);
    run.count = 0;
    ls_decoder_end(p->decoder, &p->threads);
}

/* Whether a decoder, broken as twin says, has the bits of the forward. */
static bool same_bits(struct pair *p, struct cutting cut, struct twin twin)
{
    bool same = true;
    for (int64_t s = 0; s < SEQUENCES; s++) {
        ls_decoder_reset(p->decoder, s);
        go_ahead(p, s, twin.ahead);
    }
    for (int64_t s = 0; s < (cut.together ? 1 : SEQUENCES); s++)
        for (int64_t t = 0; t < TOKENS; t += cut.tokens) {
            int64_t tokens = ls_min(cut.tokens, TOKENS - t);
            struct ls_decoder_run runs[SEQUENCES];
            for (int i = 0; i < SEQUENCES; i++)
                runs[i] = (struct ls_decoder_run){cut.together ? i : s, tokens, true};
            same &= step_same(p, runs, cut.together ? SEQUENCES : 1, t, twin.late);
        }
    return same;
}

/* ---- bits ------------------------------------------------------------------------------------ */

static bool reads_position(const struct step *step)
{
    return step->kind == &step_attention || step->kind == &step_rope ||
           (step->kind == &step_embedding && step->bias && !strcmp(step->bias, "position"));
}

static void check_bits(struct pair *p)
{
    static const struct cutting cuttings[] = {{1, false},      {1, true},      {7, true},
                                              {TOKENS, false}, {TOKENS, true}, {33, true}};
    input_normal(p);
    forward_run(p);
    rows_forget(p, ROWS);
    for (size_t i = 0; i < sizeof cuttings / sizeof cuttings[0]; i++) {
        struct cutting cut = cuttings[i];
        if (!same_bits(p, cut, (struct twin){0}))
            fail_msg("%s: %ld tokens at a time, %s: other bits than in the forward", p->name,
                     (long)cut.tokens, cut.together ? "two sequences" : "one sequence");
        if (!check_pair((int)i, p->index + p->layer, 3))
            continue;
        if (same_bits(p, cut, (struct twin){.late = 1}))
            fail_msg("%s: it is given the token before, and nobody sees it", p->name);
        if (same_bits(p, cut, (struct twin){.ahead = 1}) == reads_position(p->step))
            fail_msg("%s: one position too far, which %s seen", p->name,
                     reads_position(p->step) ? "is not" : "should not be");
    }
}

/* ---- all steps ------------------------------------------------------------------------------- */

static void step_visit(struct pair *p, int layer, int index, void (*visit)(struct pair *p))
{
    p->layer = layer;
    p->index = index;
    p->step = p->tiny.model->layers[layer].steps[index].step;
    snprintf(p->name, sizeof p->name, "%s, activation %d, %s %s: %s %d of layer %d",
             ls_arch_name(p->tiny.config.arch), p->tiny.config.act,
             ls_dtype_name(p->tiny.numerics.act), ls_arithmetic_name(p->tiny.ops.arithmetic),
             p->step->kind->name, index, layer);
    visit(p);
}

static void for_each_step(void (*visit)(struct pair *p))
{
    for (int i = 0; i < WAYS * LS_ARCHES * LS_ACTIVATIONS; i++) {
        enum ls_arch arch = (enum ls_arch)(i / WAYS % LS_ARCHES);
        enum ls_activation activation = (enum ls_activation)(i / WAYS / LS_ARCHES);
        if (!(ls_family_of(arch)->acts & 1u << activation) ||
            !check_pair(i % WAYS, (int)arch + (int)activation, 2))
            continue;
        struct pair *p = pair_open(arch, activation, ways[i % WAYS]);
        for (int layer = 0; layer < LAYERS + 2; layer++)
            for (int k = 0; k < p->tiny.model->layers[layer].step_count; k++)
                step_visit(p, layer, k, visit);
        pair_close(p);
    }
}

CASE(test_a_token_has_the_bits_of_the_forward)
{
    for_each_step(check_bits);
}

SUITE_MAIN(NULL, NULL)
