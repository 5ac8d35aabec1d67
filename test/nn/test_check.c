/* options.check: it changes no bits, and its broken twins are caught: a lifetime that ends one step
 * early, and a place that is too short. */
#include "held.h"
#include "nn/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 3, TOKENS = 16, SEQUENCES = 2, VOCAB = 64, LAYER_COUNT = LAYERS + 2 };

struct checked {
    struct ls_model_config config;
    struct ls_numerics numerics;
    struct held held;
    struct ls_ops ops;
    struct ls_arena arena;
    struct ls_model *model;
    unsigned char recompute[LAYER_COUNT];
};

static void checked_open(struct checked *c, enum ls_arch arch, enum ls_recompute policy, bool check)
{
    struct ls_error error = {0};
    *c = (struct checked){
        .config = {.arch = arch,
                   .vocab = VOCAB,
                   .vocab_padded = VOCAB,
                   .layers = LAYERS,
                   .channels = 32,
                   .heads = 4,
                   .kv_heads = arch == LS_LLAMA ? 2 : 4,
                   .head_dim = 8,
                   .ffn = 64,
                   .context = TOKENS,
                   .bias = arch == LS_GPT2,
                   .act = arch == LS_LLAMA ? LS_ACT_SWIGLU : LS_ACT_GELU_TANH,
                   .norm_epsilon = 1e-5f,
                   .rope_theta = 10000,
                   .dropout = 0.1f,
                   .init_std = 0.2f,
                   .seed = 3},
        .numerics = {.act = LS_F32, .tp_tiles = 1, .seq_tiles = 1, .leaf_sequences = 1}};
    memset(c->recompute, policy, sizeof c->recompute);
    held_open(&c->held, &c->config, &c->numerics, NULL);
    assert_int_equal(ls_ops_init(&c->ops, 1, ls_isa_best(), &error), LS_OK);
    for (int i = 0; i < c->held.params.count; i++) {
        const struct ls_param *p = &c->held.params.list[i];
        ls_param_fill(p, 3, &c->ops, 0, p->rows * p->cols, held_values(&c->held, p));
    }
    held_publish(&c->held, &c->ops);
    struct ls_model_options options = {.config = &c->config,
                                       .numerics = &c->numerics,
                                       .params = &c->held.params,
                                       .weights = c->held.weights,
                                       .sequences = SEQUENCES,
                                       .tokens = TOKENS,
                                       .slots = 1,
                                       .training = true,
                                       .recompute = c->recompute,
                                       .check = check};
    struct ls_arena measuring;
    struct ls_model *model;
    ls_arena_measure(&measuring);
    assert_int_equal(ls_model_new(&options, &measuring, &model, &error), LS_OK);
    ls_model_free(model);
    assert_int_equal(ls_arena_init(&c->arena, measuring.peak, &error), LS_OK);
    assert_int_equal(ls_model_new(&options, &c->arena, &c->model, &error), LS_OK);
}

static void checked_close(struct checked *c)
{
    ls_model_free(c->model);
    ls_arena_release(&c->arena);
    ls_ops_release(&c->ops);
    held_close(&c->held);
}

/* Forward and backward of a micro-batch; what the first failing layer says. */
static int checked_run(struct checked *c, struct ls_error *error)
{
    int32_t ids[SEQUENCES * TOKENS], targets[SEQUENCES * TOKENS];
    for (int i = 0; i < SEQUENCES * TOKENS; i++) {
        ids[i] = i * 7 % VOCAB;
        targets[i] = i * 5 % VOCAB;
    }
    struct ls_micro_batch batch = {.sequences = SEQUENCES,
                                   .tokens = TOKENS,
                                   .ids = ids,
                                   .targets = targets,
                                   .step = 1,
                                   .training = true,
                                   .gradient_scale = 1.0f / (SEQUENCES * TOKENS)};
    struct ls_model *model = c->model;
    int status = LS_OK;
    for (int layer = 0; layer < LAYER_COUNT && !status; layer++) {
        struct ls_gradient gradient = held_target(&c->held, layer, true, false);
        status = ls_layer_forward(model, &c->ops, layer, &batch,
                                  layer == LAYER_COUNT - 1 ? &gradient : NULL, error);
    }
    for (int layer = LAYER_COUNT - 1; layer >= 0 && !status; layer--) {
        struct ls_gradient gradient = held_target(&c->held, layer, false, false);
        for (int i = ls_layer_again_first(model, layer); i <= layer && !status; i++)
            status = ls_layer_forward_again(model, &c->ops, i, &batch, error);
        if (!status)
            status = ls_layer_backward_input(model, &c->ops, layer, &batch, error);
        if (!status)
            status = ls_layer_backward_weight(model, &c->ops, layer, &batch, &gradient, error);
    }
    return status;
}

static const enum ls_arch archs[] = {LS_GPT2, LS_LLAMA};
enum { POLICIES = LS_RECOMPUTE_JOIN + 1 };

static void test_bits_are_those_without(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * POLICIES; i++) {
        struct checked plain, checked;
        struct ls_error error = {0};
        checked_open(&plain, archs[i % 2], (enum ls_recompute)(i / 2), false);
        checked_open(&checked, archs[i % 2], (enum ls_recompute)(i / 2), true);
        assert_true(checked.arena.size > plain.arena.size);
        for (int step = 0; step < 2; step++)
            if (checked_run(&plain, &error) || checked_run(&checked, &error))
                fail_msg("%s, policy %d: %s", ls_arch_name(archs[i % 2]), i / 2, error.text);
        assert_memory_equal(plain.held.gradient, checked.held.gradient,
                            (size_t)plain.held.gradient_elements * sizeof(float));
        checked_close(&checked);
        checked_close(&plain);
    }
}

/* Runs with one life of one layer changed: it has to be caught, and that layer named. */
static void expect_caught(struct checked *c, int layer, const char *how, const struct life *life)
{
    struct ls_error error = {0};
    char name[64];
    snprintf(name, sizeof name, "memory.check: layer %d, step ", layer);
    int status = checked_run(c, &error);
    if (status != LS_EINVAL || !strstr(error.text, name))
        fail_msg("%s, life [%d, %d] of room %d in layer %d: %s, not caught but: %s",
                 ls_arch_name(c->config.arch), life->from, life->to, life->place->room, layer, how,
                 status ? error.text : "nothing");
}

/* Whether what lies there is a value or a gradient, which is written as a whole. */
static bool is_tensor(const struct layer *layer, const struct place *place)
{
    return (place >= layer->value && place < layer->value + VALUES_MAX) ||
           (place >= layer->backward && place < layer->backward + VALUES_MAX) ||
           (place >= layer->gradient && place < layer->gradient + VALUES_MAX);
}

/* Each life of a tensor in turn ends one step early, or has a place that is too short: it has to be
 * caught. What is kept in a slot ends with the backward, whoever read it last. Returns how many. */
static int lives_break(bool early)
{
    int caught = 0;
    size_t bytes = early ? 0 : 4;
    for (int i = 0; i < 2 * POLICIES; i++) {
        struct checked c;
        struct ls_error error = {0};
        checked_open(&c, archs[i % 2], (enum ls_recompute)(i / 2), true);
        for (int l = 0; l < LAYER_COUNT; l++) {
            struct layer *layer = &c.model->layers[l];
            for (int k = 0; k < layer->life_count; k++) {
                struct life *life = &layer->lives[k];
                struct place *place = (struct place *)life->place;
                if (!is_tensor(layer, place) ||
                    (early ? place->room != ROOM_WORK : place->bytes < 8))
                    continue;
                life->to -= early;
                place->bytes -= bytes;
                expect_caught(&c, l, early ? "ends one step early" : "is four bytes short", life);
                life->to += early;
                place->bytes += bytes;
                caught++;
            }
        }
        assert_int_equal(checked_run(&c, &error), LS_OK);
        checked_close(&c);
    }
    return caught;
}

static void test_a_life_that_ends_early_is_caught(void **state)
{
    (void)state;
    assert_true(lives_break(true) > 100);
}

static void test_a_place_that_is_too_short_is_caught(void **state)
{
    (void)state;
    assert_true(lives_break(false) > 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_are_those_without),
        cmocka_unit_test(test_a_life_that_ends_early_is_caught),
        cmocka_unit_test(test_a_place_that_is_too_short_is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
