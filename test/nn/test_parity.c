/* Whole tiny models and single blocks against PyTorch: loss, every gradient, ten optimizer steps.
 * The golden files hold float32 results together with their distance to the same computation in
 * float64 (at most 1e-6); ours may differ from them by the rounding of two float32 runs. */
#include "../support/suite.h"
#include "golden.h"
#include "held.h"
#include <lockstep/nn.h>

#include <lockstep/optim.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLICES_MAX = 128 };
static const double gradient_tolerance = 1e-5, step_tolerance = 2e-5;

/* A model with all its buffers, at one choice of tiles and micro-batch. */
struct fixture {
    struct ls_model_config config;
    struct ls_numerics numerics;
    struct ls_ops ops;
    struct held held;
    struct ls_arena arena;
    float *expected; /* [params.elements], parameter by parameter */
    struct ls_slice slices[SLICES_MAX];
    struct ls_zero_slice parts[SLICES_MAX];
    struct ls_optimizer optimizer;
    struct ls_model *model;
};

static const struct ls_optim_config golden_optim = {.kind = LS_ADAMW,
                                                    .lr = 1e-3f,
                                                    .beta1 = 0.9f,
                                                    .beta2 = 0.95f,
                                                    .epsilon = 1e-8f,
                                                    .weight_decay = 0.1f,
                                                    .clip = 1.0f};

/* Where a parameter's values are, and those expected. */
static int64_t first_of(const struct fixture *f, int i)
{
    return held_place(&f->held.params, &f->held.params.list[i]);
}

static void fixture_take(struct fixture *f, int64_t sequences, bool block, struct ls_arena *arena)
{
    static const bool alone[] = {false, true, false};
    struct ls_error error = {0};
    int64_t elements = f->held.params.elements;
    f->expected = ls_arena_take(arena, (size_t)elements * sizeof(float));
    ls_optimizer_init(&f->optimizer, &golden_optim, f->slices, f->held.params.count, NULL, arena);
    struct ls_model_options options = {.config = &f->config,
                                       .numerics = &f->numerics,
                                       .params = &f->held.params,
                                       .weights = f->held.weights,
                                       .layers = block ? alone : NULL,
                                       .chunk_first = block ? alone : NULL,
                                       .slots = 1,
                                       .sequences = sequences,
                                       .tokens = 16,
                                       .training = true,
                                       .adding = true};
    assert_ok(ls_model_new(&options, arena, &f->model, &error), error);
}

/* block: of layer 1 alone, whose input and whose output's gradient are the caller's. */
static void fixture_open(struct fixture *f, struct ls_model_config config, int64_t tp_tiles,
                         int64_t sequences, bool block)
{
    struct ls_error error = {0};
    memset(f, 0, sizeof *f);
    f->config = config;
    f->numerics = (struct ls_numerics){
        .act = LS_F32, .tp_tiles = tp_tiles, .seq_tiles = 1, .leaf_sequences = 1};
    assert_int_equal(ls_ops_init(&f->ops, 2, ls_isa_best(), &error), LS_OK);
    held_open(&f->held, &f->config, &f->numerics, NULL);
    for (int i = 0; i < f->held.params.count; i++) {
        const struct ls_param *param = &f->held.params.list[i];
        bool tied = i == f->held.params.tied_param;
        assert_true(i < SLICES_MAX);
        f->parts[i] =
            (struct ls_zero_slice){.count = param->rows * param->cols,
                                   .room = param->rows * param->cols,
                                   .gradient = held_gradient(&f->held, param) - f->held.gradient,
                                   .second = tied ? held_table(&f->held) - f->held.gradient : -1};
        f->slices[i] = (struct ls_slice){.param = param,
                                         .part = &f->parts[i],
                                         .lent = true,
                                         .master = f->held.values + first_of(f, i)};
    }
    struct ls_arena measure;
    ls_arena_measure(&measure);
    fixture_take(f, sequences, block, &measure);
    ls_model_free(f->model);
    assert_int_equal(ls_arena_init(&f->arena, measure.peak, &error), LS_OK);
    fixture_take(f, sequences, block, &f->arena);
}

static void fixture_close(struct fixture *f)
{
    ls_model_free(f->model);
    ls_arena_release(&f->arena);
    held_close(&f->held);
    ls_ops_release(&f->ops);
}

/* Forward and backward of the golden batch in micro-batches; returns the mean loss. */
static double batch_run(struct fixture *f, const struct ls_safetensors *file, int64_t micro)
{
    const int32_t *ids = golden_data(file, "input_ids"), *targets = golden_data(file, "targets");
    double loss = 0;
    for (int64_t first = 0; first < 4; first += micro) {
        struct ls_micro_batch batch = {.sequences = micro,
                                       .tokens = 16,
                                       .ids = ids + first * 16,
                                       .targets = targets + first * 16,
                                       .first_sequence = first,
                                       .training = true,
                                       .gradient_scale = 1.0f / 64};
        int layers = ls_model_layers(f->model);
        held_forward(&f->held, f->model, &f->ops, 0, layers, &batch, first > 0);
        held_backward(&f->held, f->model, &f->ops, 0, layers, &batch, first > 0);
        for (int64_t i = 0; i < micro; i++)
            loss += (double)ls_model_losses(f->model)[i];
    }
    return loss / 64;
}

/* Our gradient of a parameter, a tied table's two parts added. */
static void gradient_of(const struct fixture *f, int index, float *out)
{
    const struct ls_param *param = &f->held.params.list[index];
    const float *gradient = held_gradient(&f->held, param);
    const float *table = index == f->held.params.tied_param ? held_table(&f->held) : NULL;
    for (int64_t i = 0; i < param->rows * param->cols; i++)
        out[i] = gradient[i] + (table ? table[i] : 0);
}

/* Clipping and one update of all parameters; returns the gradient's norm. */
static double optimizer_step(struct fixture *f, int step)
{
    const struct ls_params *params = &f->held.params;
    struct ls_exact_sum square;
    ls_exact_clear(&square);
    struct ls_error error = {0};
    assert_ok(ls_gradient_square(&f->optimizer, f->slices, params->count, f->held.gradient, &f->ops,
                                 &square, &error),
              error);
    double norm = sqrt(ls_exact_value(&square));
    const struct ls_optim_step update = {step, golden_optim.lr, f->held.gradient,
                                         ls_clip_factor(&golden_optim, norm)};
    assert_ok(ls_optimizer_step(&f->optimizer, &f->ops, f->slices, params->count, &update, &error),
              error);
    return norm;
}

/* Without rotary positions a key's bias has gradient zero but for rounding. */
static bool is_rounding(const struct fixture *f, const struct ls_param *param)
{
    return !ls_family_reads(f->config.arch, "rope_theta") && strstr(param->name, "attn.k.bias");
}

static void compare(const struct fixture *f, const char *what, bool gradients, double tolerance)
{
    float *mine = calloc((size_t)f->held.params.elements, sizeof *mine);
    for (int i = 0; i < f->held.params.count; i++) {
        const struct ls_param *param = &f->held.params.list[i];
        int64_t count = param->rows * param->cols;
        if (gradients)
            gradient_of(f, i, mine);
        else
            memcpy(mine, held_values(&f->held, param), (size_t)count * sizeof *mine);
        double distance = golden_distance(mine, f->expected + first_of(f, i), count);
        bool vanishes = gradients && is_rounding(f, param);
        if (!(distance <= tolerance) && !vanishes)
            fail_msg("%s of %s: relative distance %g, at most %g is rounding", what, param->name,
                     distance, tolerance);
    }
    free(mine);
}

static void check_model(const char *name, int64_t tp_tiles, int64_t micro)
{
    struct fixture f;
    struct ls_safetensors *file = golden_open(name);
    struct ls_model_config config = golden_config(file);
    fixture_open(&f, config, tp_tiles, micro, false);
    const float *losses = golden_data(file, "losses"), *norms = golden_data(file, "grad_norms");
    golden_gather(file, "param.", &config, &f.held.params, false, f.held.values);
    for (int step = 1; step <= 10; step++) {
        double loss = batch_run(&f, file, micro);
        if (step == 1) {
            golden_gather(file, "grad.", &config, &f.held.params, false, f.expected);
            compare(&f, "gradient", true, gradient_tolerance);
        }
        double norm = optimizer_step(&f, step);
        if (fabs(loss - losses[step - 1]) > 2e-6 * losses[step - 1])
            fail_msg("%s step %d: loss %.8f, PyTorch %.8f", name, step, loss, losses[step - 1]);
        if (fabs(norm - norms[step - 1]) > step_tolerance * norms[step - 1])
            fail_msg("%s step %d: norm %.8f, PyTorch %.8f", name, step, norm, norms[step - 1]);
    }
    golden_gather(file, "final.", &config, &f.held.params, false, f.expected);
    /* Where a gradient is all rounding (keys' biases), AdamW moves by lr times its sign: left out
     * by comparing with the tolerance of ten steps. */
    for (int i = 0; i < f.held.params.count; i++)
        if (is_rounding(&f, &f.held.params.list[i])) {
            const struct ls_param *param = &f.held.params.list[i];
            memcpy(f.expected + first_of(&f, i), held_values(&f.held, param),
                   (size_t)param->cols * sizeof(float));
        }
    compare(&f, "value after ten steps", false, step_tolerance);
    ls_safetensors_close(file);
    fixture_close(&f);
}

/* Each family's model "<name>_tiny". */
CASE(test_families)
{
    for (int arch = 0; arch < LS_ARCHES; arch++) {
        char name[64];
        snprintf(name, sizeof name, "%s_tiny", ls_arch_name((enum ls_arch)arch));
        check_model(name, 1, 4);
        check_model(name, 2, 2);
        check_model(name, 2, 1);
    }
    check_model("gpt2_tiny", 4, 2);
}

CASE(test_llama3_tied)
{
    check_model("llama3_tiny", 2, 4);
}

/* One block alone: its output, its input gradient and all its weight gradients. */
static void check_block(const char *name)
{
    struct fixture f;
    struct ls_error error = {0};
    struct ls_safetensors *file = golden_open(name);
    struct ls_model_config config = golden_config(file);
    fixture_open(&f, config, 2, 2, true);
    golden_gather(file, "param.", &config, &f.held.params, true, f.held.values);
    struct ls_micro_batch batch = {.sequences = 2,
                                   .tokens = 16,
                                   .training = true,
                                   .input = golden_data(file, "x"),
                                   .d_output = golden_data(file, "dy")};
    struct ls_gradient gradient = held_target(&f.held, 1, false, false);
    assert_int_equal(ls_layer_forward(f.model, &f.ops, 1, &batch, NULL, &error), LS_OK);
    assert_int_equal(ls_layer_backward_input(f.model, &f.ops, 1, &batch, &error), LS_OK);
    assert_int_equal(ls_layer_backward_weight(f.model, &f.ops, 1, &batch, &gradient, &error),
                     LS_OK);
    double y_distance =
        golden_distance(ls_model_output(f.model, 1, 0), golden_data(file, "y"), 2 * 16 * 32);
    double dx_distance =
        golden_distance(ls_model_input_gradient(f.model, 1), golden_data(file, "dx"), 2 * 16 * 32);
    if (!(y_distance < 2e-6 && dx_distance < 5e-6))
        fail_msg("%s: y differs by %g, dx by %g", name, y_distance, dx_distance);
    /* Parameters outside the block have no golden gradient: ours take their place. */
    for (int i = 0; i < f.held.params.count; i++)
        gradient_of(&f, i, f.expected + first_of(&f, i));
    golden_gather(file, "grad.", &config, &f.held.params, true, f.expected);
    compare(&f, name, true, gradient_tolerance);
    ls_safetensors_close(file);
    fixture_close(&f);
}

CASE(test_blocks)
{
    check_block("gpt2_block");
    check_block("llama_block");
}

/* The broken twin: a gradient that misses one token must not pass for PyTorch's. */
CASE(test_a_dropped_token_is_seen)
{
    struct fixture f;
    struct ls_safetensors *file = golden_open("gpt2_tiny");
    struct ls_model_config config = golden_config(file);
    fixture_open(&f, config, 1, 4, false);
    golden_gather(file, "param.", &config, &f.held.params, false, f.held.values);
    golden_gather(file, "grad.", &config, &f.held.params, false, f.expected);
    int32_t targets[64];
    memcpy(targets, golden_data(file, "targets"), sizeof targets);
    targets[37] = -1;
    struct ls_micro_batch batch = {.sequences = 4,
                                   .tokens = 16,
                                   .ids = golden_data(file, "input_ids"),
                                   .targets = targets,
                                   .training = true,
                                   .gradient_scale = 1.0f / 64};
    held_forward(&f.held, f.model, &f.ops, 0, 4, &batch, false);
    held_backward(&f.held, f.model, &f.ops, 0, 4, &batch, false);
    float *mine = calloc((size_t)f.held.params.elements, sizeof *mine);
    for (int i = 0; i < f.held.params.count; i++) {
        const struct ls_param *param = &f.held.params.list[i];
        gradient_of(&f, i, mine);
        double distance =
            golden_distance(mine, f.expected + first_of(&f, i), param->rows * param->cols);
        if (distance <= gradient_tolerance)
            fail_msg("%s does not see a dropped token: distance %g", param->name, distance);
    }
    free(mine);
    ls_safetensors_close(file);
    fixture_close(&f);
}

static int decode(struct fixture *f, struct ls_decoder *decoder, int32_t token,
                  const float **logits)
{
    struct ls_error error = {0};
    struct ls_model *model = ls_decoder_model(decoder);
    const struct ls_decoder_run run = {.count = 1, .ends = true};
    struct ls_micro_batch batch;
    int status = ls_decoder_begin(decoder, &run, 1, &token, &batch, &error);
    for (int layer = 0; layer < ls_model_layers(model) && !status; layer++)
        status = ls_layer_forward(model, &f->ops, layer, &batch, NULL, &error);
    if (!status)
        *logits = ls_decoder_end(decoder, &f->ops);
    return status;
}

/* Generation: greedy continuation equals Hugging Face's, and the decoder's logits the model's. */
CASE(test_greedy_generation)
{
    struct fixture f;
    struct ls_error error = {0};
    struct ls_safetensors *file = golden_open("gpt2_tiny");
    struct ls_model_config config = golden_config(file);
    fixture_open(&f, config, 2, 4, false);
    golden_gather(file, "param.", &config, &f.held.params, false, f.held.values);
    const int32_t *prompt = golden_data(file, "generate.prompt");
    const int32_t *expected = golden_data(file, "generate.tokens");
    struct ls_model_options options = {.config = &f.config,
                                       .numerics = &f.numerics,
                                       .params = &f.held.params,
                                       .weights = f.held.weights};
    struct ls_decoder *decoder;
    const struct ls_decoder_size size = {1, config.context, 1, 0};
    assert_int_equal(ls_decoder_new(&options, &size, &decoder, &error), LS_OK);
    const float *logits = NULL;
    int32_t order[64], token = 0;
    struct ls_sampling greedy = {.temperature = 0};
    for (int i = 0; i < 8; i++)
        assert_int_equal(decode(&f, decoder, prompt[i], &logits), LS_OK);
    for (int i = 0; i < 8; i++) {
        token = ls_sample(&greedy, logits, config.vocab, order, 0);
        assert_int_equal(token, expected[i]);
        assert_int_equal(decode(&f, decoder, token, &logits), LS_OK);
    }
    assert_int_equal(decode(&f, decoder, token, &logits), LS_EINVAL);
    ls_decoder_free(decoder);
    ls_safetensors_close(file);
    fixture_close(&f);
}

SUITE_MAIN(NULL, NULL)
