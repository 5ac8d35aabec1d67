/* Parts of a model with several micro-batches on their way, as pipelines run them: the bits of the
 * whole model that takes one micro-batch after the other. */
#include "../support/suite.h"
#include "held.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 4, CHANNELS = 16, TOKENS = 8, SEQUENCES = 2, VOCAB = 24, MICRO = 3 };
enum { LAYER_COUNT = LAYERS + 2, ROWS = SEQUENCES * TOKENS, STREAM_BYTES = ROWS * CHANNELS * 4 };

static const struct ls_model_config config = {.arch = LS_GPT2,
                                              .vocab = VOCAB,
                                              .vocab_padded = VOCAB,
                                              .layers = LAYERS,
                                              .channels = CHANNELS,
                                              .heads = 2,
                                              .kv_heads = 2,
                                              .head_dim = 8,
                                              .ffn = 24,
                                              .context = TOKENS,
                                              .tied = true,
                                              .bias = true,
                                              .norm_epsilon = 1e-5f,
                                              .init_std = 0.3f,
                                              .seed = 9};

struct stage {
    struct ls_model_config config;
    struct ls_numerics numerics;
    struct ls_ops ops;
    struct held held;
    struct ls_arena arena;
    struct ls_model *model;
    bool layers[LAYER_COUNT], chunk_first[LAYER_COUNT];
};

static void model_take(struct stage *stage, struct ls_model_options *options,
                       struct ls_arena *arena)
{
    struct ls_error error = {0};
    options->config = &stage->config;
    options->numerics = &stage->numerics;
    options->params = &stage->held.params;
    options->weights = stage->held.weights;
    options->layers = stage->layers;
    options->chunk_first = stage->chunk_first;
    options->sequences = SEQUENCES;
    options->tokens = TOKENS;
    options->adding = true;
    assert_ok(ls_model_new(options, arena, &stage->model, &error), error);
}

/* held: one character a layer: '.' not here, '|' here and first of a chunk, '-' here. */
static void stage_open(struct stage *stage, const char *held, float dropout,
                       struct ls_model_options options)
{
    struct ls_error error = {0};
    *stage = (struct stage){
        .config = config,
        .numerics = {.act = LS_F32, .tp_tiles = 2, .seq_tiles = 1, .leaf_sequences = 1}};
    stage->config.dropout = dropout;
    for (int i = 0; i < LAYER_COUNT; i++) {
        stage->layers[i] = held[i] != '.';
        stage->chunk_first[i] = held[i] == '|';
    }
    struct ls_part part = {.tp = 1, .layers = stage->layers};
    held_open(&stage->held, &stage->config, &stage->numerics, &part);
    assert_int_equal(ls_ops_init(&stage->ops, 1, ls_isa_best(), &error), LS_OK);
    for (int i = 0; i < stage->held.params.count; i++) {
        const struct ls_param *p = &stage->held.params.list[i];
        ls_param_fill(p, 9, &stage->ops, 0, p->rows * p->cols, held_values(&stage->held, p));
    }
    struct ls_arena measure;
    ls_arena_measure(&measure);
    model_take(stage, &options, &measure);
    ls_model_free(stage->model);
    assert_int_equal(ls_arena_init(&stage->arena, measure.peak, &error), LS_OK);
    model_take(stage, &options, &stage->arena);
}

static void stage_close(struct stage *stage)
{
    ls_model_free(stage->model);
    ls_arena_release(&stage->arena);
    held_close(&stage->held);
    ls_ops_release(&stage->ops);
}

/* ---- micro-batches --------------------------------------------------------------------------- */

static int32_t ids[MICRO][ROWS], targets[MICRO][ROWS];

static void tokens_fill(void)
{
    for (int64_t i = 0; i < MICRO * ROWS; i++) {
        uint64_t draw = ls_hash64(&i, sizeof i, 1);
        ids[i / ROWS][i % ROWS] = (int32_t)(draw % VOCAB);
        targets[i / ROWS][i % ROWS] = (int32_t)(draw / 64 % VOCAB);
    }
}

static struct ls_micro_batch micro_batch(int m, int slot)
{
    return (struct ls_micro_batch){.sequences = SEQUENCES,
                                   .tokens = TOKENS,
                                   .ids = ids[m],
                                   .targets = targets[m],
                                   .first_sequence = m * SEQUENCES,
                                   .step = 2,
                                   .training = true,
                                   .gradient_scale = 1.0f / (MICRO * ROWS),
                                   .slot = slot};
}

struct result {
    float losses[MICRO][SEQUENCES];
    struct stage stage; /* with the gradients of all layers */
};

/* The whole model, one micro-batch after the other. */
static void one_after_the_other(struct result *result, float dropout)
{
    stage_open(&result->stage, "------", dropout,
               (struct ls_model_options){.slots = 1, .training = true});
    struct stage *s = &result->stage;
    for (int m = 0; m < MICRO; m++) {
        struct ls_micro_batch batch = micro_batch(m, 0);
        held_forward(&s->held, s->model, &s->ops, 0, LAYER_COUNT, &batch, m > 0);
        memcpy(result->losses[m], ls_model_losses(s->model), sizeof result->losses[m]);
        held_backward(&s->held, s->model, &s->ops, 0, LAYER_COUNT, &batch, m > 0);
    }
}

static void compare_floats(const char *what, const float *want, const float *got, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (memcmp(&want[i], &got[i], sizeof *got))
            fail_msg("%s, element %ld: %a, expected %a", what, (long)i, (double)got[i],
                     (double)want[i]);
}

static void compare_gradients(const struct result *result, const struct stage *part)
{
    const struct held *want = &result->stage.held, *got = &part->held;
    bool table_only = part->layers[0] && !part->layers[LAYER_COUNT - 1];
    for (int i = 0; i < got->params.count; i++) {
        const struct ls_param *p = &got->params.list[i];
        const struct ls_param *whole = ls_params_find(&want->params, p->name);
        bool table = table_only && !strcmp(p->name, "wte.weight");
        compare_floats(p->name, table ? held_table(want) : held_gradient(want, whole),
                       held_gradient(got, p), p->rows * p->cols);
    }
    if (held_table(got))
        compare_floats("the table", held_table(want), held_table(got), VOCAB * CHANNELS);
}

/* ---- two stages ------------------------------------------------------------------------------ */

/* All forwards, then all backwards; with split, all weight halves after that, the layers in
 * ascending order. */
static void check_stages(float dropout, bool split)
{
    struct result one;
    struct stage first, last;
    static float activations[MICRO][ROWS * CHANNELS], gradients[MICRO][ROWS * CHANNELS];
    struct ls_model_options options = {.slots = MICRO, .training = true, .split_backward = split};
    one_after_the_other(&one, dropout);
    stage_open(&first, "|--...", dropout, options);
    stage_open(&last, "...|--", dropout, options);
    for (int m = 0; m < MICRO; m++) {
        struct ls_micro_batch batch = micro_batch(m, m);
        held_forward(&first.held, first.model, &first.ops, 0, 3, &batch, m > 0);
        memcpy(activations[m], ls_model_output(first.model, 2, m), STREAM_BYTES);
        batch.input = activations[m];
        held_forward(&last.held, last.model, &last.ops, 3, 6, &batch, m > 0);
        compare_floats("losses", one.losses[m], ls_model_losses(last.model), SEQUENCES);
    }
    for (int m = 0; m < MICRO; m++) {
        struct ls_micro_batch batch = micro_batch(m, m);
        struct ls_error error = {0};
        batch.input = activations[m];
        batch.d_output = gradients[m];
        if (!split)
            held_backward(&last.held, last.model, &last.ops, 3, 6, &batch, m > 0);
        for (int layer = 5; layer >= 3 && split; layer--)
            ls_layer_backward_input(last.model, &last.ops, layer, &batch, &error);
        memcpy(gradients[m], ls_model_input_gradient(last.model, 3), STREAM_BYTES);
        if (!split)
            held_backward(&first.held, first.model, &first.ops, 0, 3, &batch, m > 0);
        for (int layer = 2; layer >= 0 && split; layer--)
            ls_layer_backward_input(first.model, &first.ops, layer, &batch, &error);
        if (split)
            memset(gradients[m], 0xff, STREAM_BYTES); /* no weight half may need it */
    }
    for (int m = 0; m < MICRO && split; m++)
        for (int layer = 0; layer < 6; layer++) {
            struct stage *stage = layer < 3 ? &first : &last;
            struct ls_micro_batch batch = micro_batch(m, m);
            struct ls_gradient target = held_target(&stage->held, layer, false, m > 0);
            struct ls_error error = {0};
            batch.input = activations[m];
            ls_layer_backward_weight(stage->model, &stage->ops, layer, &batch, &target, &error);
        }
    compare_gradients(&one, &first);
    compare_gradients(&one, &last);
    stage_close(&first);
    stage_close(&last);
    stage_close(&one.stage);
}

CASE(test_two_stages)
{
    check_stages(0, false);
    check_stages(0.2f, false);
}

CASE(test_weights_last)
{
    check_stages(0, true);
    check_stages(0.2f, true);
}

/* ---- two chunks of a stage ------------------------------------------------------------------- */

/* One rank holds layers 0, 1 and 4, 5; another 2 and 3. Chunks of different micro-batches follow
 * each other. */
CASE(test_chunks_of_a_stage)
{
    struct result one;
    struct stage outer, inner;
    static float in[MICRO][2][ROWS * CHANNELS], d_out[MICRO][2][ROWS * CHANNELS];
    struct ls_model_options options = {.slots = MICRO, .training = true};
    one_after_the_other(&one, 0.1f);
    stage_open(&outer, "--..|-", 0.1f, options);
    stage_open(&inner, "..|-..", 0.1f, options);
    struct ls_micro_batch batch;
    for (int m = 0; m < MICRO; m++) {
        batch = micro_batch(m, m);
        held_forward(&outer.held, outer.model, &outer.ops, 0, 2, &batch, m > 0);
        memcpy(in[m][0], ls_model_output(outer.model, 1, m), STREAM_BYTES);
    }
    for (int m = 0; m < MICRO; m++) {
        batch = micro_batch(m, m);
        batch.input = in[m][0];
        held_forward(&inner.held, inner.model, &inner.ops, 2, 4, &batch, m > 0);
        memcpy(in[m][1], ls_model_output(inner.model, 3, m), STREAM_BYTES);
        batch.input = in[m][1];
        held_forward(&outer.held, outer.model, &outer.ops, 4, 6, &batch, m > 0);
    }
    for (int m = 0; m < MICRO; m++) {
        batch = micro_batch(m, m);
        batch.input = in[m][1];
        held_backward(&outer.held, outer.model, &outer.ops, 4, 6, &batch, m > 0);
        memcpy(d_out[m][1], ls_model_input_gradient(outer.model, 4), STREAM_BYTES);
    }
    for (int m = 0; m < MICRO; m++) {
        batch = micro_batch(m, m);
        batch.input = in[m][0];
        batch.d_output = d_out[m][1];
        held_backward(&inner.held, inner.model, &inner.ops, 2, 4, &batch, m > 0);
        memcpy(d_out[m][0], ls_model_input_gradient(inner.model, 2), STREAM_BYTES);
        batch.d_output = d_out[m][0];
        held_backward(&outer.held, outer.model, &outer.ops, 0, 2, &batch, m > 0);
    }
    compare_gradients(&one, &outer);
    compare_gradients(&one, &inner);
    stage_close(&outer);
    stage_close(&inner);
    stage_close(&one.stage);
}

/* What leaves a chunk outlives other slots' forwards, when nothing is kept for a backward too. */
CASE(test_forward_only)
{
    struct stage outer, whole;
    stage_open(&whole, "------", 0, (struct ls_model_options){.slots = 1});
    stage_open(&outer, "---|..", 0, (struct ls_model_options){.slots = 2});
    struct ls_micro_batch batches[2] = {micro_batch(0, 0), micro_batch(1, 1)};
    for (int m = 0; m < 2; m++) {
        batches[m].training = false;
        held_forward(&outer.held, outer.model, &outer.ops, 0, 3, &batches[m], false);
    }
    for (int m = 0; m < 2; m++) {
        batches[m].input = ls_model_output(outer.model, 2, m);
        held_forward(&outer.held, outer.model, &outer.ops, 3, 4, &batches[m], false);
    }
    for (int m = 0; m < 2; m++) {
        batches[m].slot = 0;
        held_forward(&whole.held, whole.model, &whole.ops, 0, 4, &batches[m], false);
        compare_floats("output", ls_model_output(whole.model, 3, 0),
                       ls_model_output(outer.model, 3, m), ROWS * CHANNELS);
    }
    stage_close(&whole);
    stage_close(&outer);
}

int main(void)
{
    tokens_fill();
    return suite_run(NULL, NULL);
}
