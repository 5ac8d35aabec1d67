/* options.check: it changes no bits, nor does recomputation, and its broken twins are caught: a
 * lifetime that ends one step early, and a place that is too short. */
#include "../support/suite.h"
#include "nn/model.h"
#include "tiny.h"

#include <lockstep/device/check.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 3, TOKENS = 16, SEQUENCES = 2, LAYER_COUNT = LAYERS + 2 };

struct checked {
    struct tiny tiny;
    struct ls_check check;
    unsigned char recompute[LAYER_COUNT];
};

static void checked_open(struct checked *c, enum ls_arch arch, enum ls_recompute policy, bool check)
{
    c->tiny = tiny_of(arch);
    c->tiny.config.layers = LAYERS;
    c->tiny.config.dropout = 0.1f;
    memset(c->recompute, policy, sizeof c->recompute);
    if (policy == LS_RECOMPUTE_JOIN)
        c->recompute[1] = LS_RECOMPUTE_FULL; /* what the others join */
    tiny_open(&c->tiny, 1);
    tiny_model(&c->tiny, (struct ls_model_options){.sequences = SEQUENCES,
                                                   .tokens = TOKENS,
                                                   .slots = 1,
                                                   .training = true,
                                                   .recompute = c->recompute,
                                                   .check = check});
    c->check = (struct ls_check){0};
    c->tiny.ops.queue.check = check ? &c->check : NULL;
}

/* Forward and backward of a micro-batch; what the first failing layer says. */
static int checked_run(struct checked *c, struct ls_error *error)
{
    int32_t ids[SEQUENCES * TOKENS], targets[SEQUENCES * TOKENS];
    for (int i = 0; i < SEQUENCES * TOKENS; i++) {
        ids[i] = i * 7 % TINY_VOCAB;
        targets[i] = i * 5 % TINY_VOCAB;
    }
    struct ls_micro_batch batch = {.sequences = SEQUENCES,
                                   .tokens = TOKENS,
                                   .ids = ids,
                                   .targets = targets,
                                   .step = 1,
                                   .training = true,
                                   .gradient_scale = 1.0f / (SEQUENCES * TOKENS)};
    struct ls_model *model = c->tiny.model;
    struct ls_ops *ops = &c->tiny.ops;
    int status = LS_OK;
    for (int layer = 0; layer < LAYER_COUNT && !status; layer++) {
        struct ls_gradient gradient = held_target(&c->tiny.held, layer, true, false);
        status = ls_layer_forward(model, ops, layer, &batch,
                                  layer == LAYER_COUNT - 1 ? &gradient : NULL, error);
    }
    for (int layer = LAYER_COUNT - 1; layer >= 0 && !status; layer--) {
        struct ls_gradient gradient = held_target(&c->tiny.held, layer, false, false);
        for (int i = ls_layer_again_first(model, layer); i <= layer && !status; i++)
            status = ls_layer_forward_again(model, ops, i, &batch, error);
        if (!status)
            status = ls_layer_backward_input(model, ops, layer, &batch, error);
        if (!status)
            status = ls_layer_backward_weight(model, ops, layer, &batch, &gradient, error);
    }
    return status;
}

enum { POLICIES = LS_RECOMPUTE_JOIN + 1 };

CASE(test_bits_are_those_without)
{
    float *none[LS_ARCHES] = {0};
    for (int i = 0; i < LS_ARCHES * POLICIES; i++) {
        struct checked plain, checked;
        struct ls_error error = {0};
        checked_open(&plain, (enum ls_arch)(i % LS_ARCHES), (enum ls_recompute)(i / LS_ARCHES),
                     false);
        checked_open(&checked, (enum ls_arch)(i % LS_ARCHES), (enum ls_recompute)(i / LS_ARCHES),
                     true);
        assert_true(checked.tiny.arena.size > plain.tiny.arena.size);
        for (int step = 0; step < 2; step++)
            if (checked_run(&plain, &error) || checked_run(&checked, &error))
                fail_msg("%s, policy %d: %s", ls_arch_name((enum ls_arch)(i % LS_ARCHES)),
                         i / LS_ARCHES, error.text);
        size_t bytes = (size_t)plain.tiny.held.gradient_elements * sizeof(float);
        assert_memory_equal(plain.tiny.held.gradient, checked.tiny.held.gradient, bytes);
        float **kept = &none[i % LS_ARCHES]; /* where all is kept */
        if (!*kept)
            *kept = memcpy(malloc(bytes), plain.tiny.held.gradient, bytes);
        if (memcmp(plain.tiny.held.gradient, *kept, bytes))
            fail_msg("%s: policy %d has other bits than none",
                     ls_arch_name((enum ls_arch)(i % LS_ARCHES)), i / LS_ARCHES);
        tiny_close(&checked.tiny);
        tiny_close(&plain.tiny);
    }
    for (int arch = 0; arch < LS_ARCHES; arch++)
        free(none[arch]);
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
                 ls_arch_name(c->tiny.config.arch), life->from, life->to, life->place->room, layer,
                 how, status ? error.text : "nothing");
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
    for (int i = 0; i < LS_ARCHES * POLICIES; i++) {
        struct checked c;
        struct ls_error error = {0};
        checked_open(&c, (enum ls_arch)(i % LS_ARCHES), (enum ls_recompute)(i / LS_ARCHES), true);
        for (int l = 0; l < LAYER_COUNT; l++) {
            struct layer *layer = &c.tiny.model->layers[l];
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
        tiny_close(&c.tiny);
    }
    return caught;
}

CASE(test_a_life_that_ends_early_is_caught)
{
    assert_true(lives_break(true) > 100);
}

CASE(test_a_place_that_is_too_short_is_caught)
{
    assert_true(lives_break(false) > 200);
}

SUITE_MAIN(NULL, NULL)
