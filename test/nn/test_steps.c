/* Each step of each family's layers alone: its gradients against central differences, and what it
 * declares to read of the forward; and again the steps that have adapters. The families' tables
 * name the kinds, so a new kind is tested as soon as a family uses it. */
#include "../support/suite.h"
#include "nn/model.h"
#include "tiny.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 2, TOKENS = 8, ROWS = SEQUENCES * TOKENS, LAYERS = 1 };
enum { VALUE_MAX = ROWS * 64, FLAT_MAX = 1 << 13 };

/* A model's step, with values, gradients and inputs of its own. */
struct alone {
    struct tiny tiny;
    struct ls_micro_batch batch;
    struct ls_gradient gradient;
    struct rows rows;
    struct ls_request gathering;
    struct layer_run run;
    struct bound_step step;
    int32_t ids[ROWS], targets[ROWS];
    float input[2][VALUE_MAX], dy[VALUE_MAX], residual[VALUE_MAX];
    float value[VALUES_MAX][VALUE_MAX], made[VALUES_MAX][VALUE_MAX]; /* made by the forward */
    float delta[VALUES_MAX][VALUE_MAX], above[VALUE_MAX], below[VALUE_MAX];
    float flat[FLAT_MAX]; /* gradients of parameters */
    char name[64];
};

/* ---- a step ---------------------------------------------------------------------------------- */

static void normal_fill(float *values, int64_t count, const char *what, float mean, float std)
{
    ls_normal_fill(ls_philox_key_of(4, what), 0, count, mean, std, values);
}

static struct alone *alone_open(enum ls_arch arch, enum ls_activation act,
                                const struct ls_lora *lora)
{
    struct alone *a = calloc(1, sizeof *a);
    a->tiny = tiny_of(arch);
    a->tiny.config.kv_heads = lora->rank == 1 ? a->tiny.config.heads : 1; /* an A may be shared */
    a->tiny.config.act = act;
    a->tiny.config.dropout = 0.25f;
    a->tiny.config.lora = *lora;
    tiny_open(&a->tiny, 1);
    tiny_model(&a->tiny,
               (struct ls_model_options){
                   .sequences = SEQUENCES, .tokens = TOKENS, .slots = 1, .training = true});
    for (int i = 0; i < ROWS; i++) {
        a->ids[i] = (i * 5 + i / 3) % TINY_VOCAB;
        a->targets[i] = i % 7 == 3 ? -1 : (i * 8 + 1) % TINY_VOCAB;
    }
    a->batch = (struct ls_micro_batch){.sequences = SEQUENCES,
                                       .tokens = TOKENS,
                                       .ids = a->ids,
                                       .targets = a->targets,
                                       .training = true,
                                       .gradient_scale = 0.5f};
    a->gradient.flat = a->flat;
    a->rows = rows_of(a->tiny.model, &a->batch);
    return a;
}

static void alone_close(struct alone *a)
{
    tiny_close(&a->tiny);
    free(a);
}

static int64_t elements_of(const struct alone *a, int v)
{
    int64_t count = ROWS * size_held(a->tiny.model, a->run.layer->program->values[v].size);
    assert_true(count <= VALUE_MAX);
    return count;
}

static void poison(void *values, size_t bytes)
{
    memset(values, 0xff, bytes); /* not a number */
}

static void step_take(struct alone *a, int layer, int i)
{
    a->step = a->tiny.model->layers[layer].steps[i];
    a->run = (struct layer_run){.model = a->tiny.model,
                                .ops = &a->tiny.ops,
                                .layer = &a->tiny.model->layers[layer],
                                .batch = &a->batch,
                                .gradient = &a->gradient,
                                .rows = &a->rows,
                                .gathering = &a->gathering,
                                .above = a->above,
                                .below = a->below};
    for (int v = 0; v < a->run.layer->value_count; v++) {
        a->run.value[v] = a->value[v];
        a->run.delta[v] = a->delta[v];
    }
    snprintf(a->name, sizeof a->name, "%s: %s %d of layer %d", ls_arch_name(a->tiny.config.arch),
             a->step.step->kind->name, i, layer);
    normal_fill(a->input[0], VALUE_MAX, "input 0", 0, 1);
    normal_fill(a->input[1], VALUE_MAX, "input 1", 0, 1);
    normal_fill(a->dy, VALUE_MAX, "dy", 0, 1);
    normal_fill(a->residual, VALUE_MAX, "residual", 0, 1);
}

static bool has_input(const struct alone *a, int k)
{
    const struct step *step = a->step.step;
    return k < step->kind->ins && (k == 0 || step->in[k] > 0);
}

static void forward_again(struct alone *a)
{
    for (int k = 0; k < 2; k++)
        if (has_input(a, k))
            memcpy(a->value[a->step.step->in[k]], a->input[k], sizeof a->input[k]);
    a->run.phase = PHASE_FORWARD;
    assert_int_equal(a->step.step->kind->forward(&a->run, &a->step), LS_OK);
}

/* From its inputs alone. */
static void forward_run(struct alone *a)
{
    poison(a->value, sizeof a->value);
    poison(a->delta, sizeof a->delta);
    poison(a->flat, sizeof a->flat);
    forward_again(a);
}

/* Both halves of the backward, each of the values that reads allows it. */
static void backward_run(struct alone *a, const bool reads[2][VALUES_MAX])
{
    const struct step_kind *kind = a->step.step->kind;
    const struct bound_step *steps[] = {&a->step};
    if (kind->flow == FLOW_FORWARD)
        return;
    poison(a->delta, sizeof a->delta);
    poison(a->above, sizeof a->above);
    poison(a->below, sizeof a->below);
    memcpy((void *)run_dy(&a->run, &a->step), a->dy, sizeof a->dy);
    if (run_residual(&a->run, &a->step))
        memcpy((void *)run_residual(&a->run, &a->step), a->residual, sizeof a->residual);
    for (int half = 0; half < 2; half++) {
        a->run.phase = half ? PHASE_WEIGHT : PHASE_INPUT;
        for (int v = 0; v < VALUES_MAX; v++)
            if (reads[half][v])
                memcpy(a->value[v], a->made[v], sizeof a->made[v]);
            else
                poison(a->value[v], sizeof a->value[v]);
        if (!half && kind->input)
            assert_int_equal(kind->input(&a->run, &a->step), LS_OK);
        if (half && kind->weight && a->step.trains)
            assert_int_equal(kind->weight(&a->run, &a->step), LS_OK);
        if (half && kind->weights)
            assert_int_equal(kind->weights(&a->run, steps, 1), LS_OK);
    }
}

static void declared(const struct alone *a, bool reads[2][VALUES_MAX])
{
    const struct step *step = a->step.step;
    const int values[] = {step->in[0],  step->in[1],  step->out[0],
                          step->out[1], step->out[2], step->out[3]};
    memset(reads, 0, 2 * sizeof *reads);
    for (int bit = 0; bit < 6; bit++) {
        unsigned adapters = a->step.adapted ? READS_IN0 : 0;
        reads[0][values[bit]] |= (step->kind->input_reads | adapters) >> bit & 1;
        reads[1][values[bit]] |= step->kind->weight_reads >> bit & 1;
    }
}

static void step_run(struct alone *a)
{
    bool reads[2][VALUES_MAX];
    declared(a, reads);
    forward_run(a);
    memcpy(a->made, a->value, sizeof a->made);
    backward_run(a, reads);
}

/* ---- central differences --------------------------------------------------------------------- */

/* What the step makes, and the gradient that comes to it. */
static int64_t outcome(const struct alone *a, float *made, float *gradient)
{
    const struct step *step = a->step.step;
    int64_t count = 0;
    for (; step->kind->flow == FLOW_FORWARD && count < ROWS; count++) {
        made[count] = a->tiny.model->losses.rows[count];
        gradient[count] = a->batch.gradient_scale;
    }
    if (count > 0)
        return count;
    count = elements_of(a, step->out[0]);
    memcpy(made, a->value[step->out[0]], (size_t)count * sizeof *made);
    memcpy(gradient, a->dy, (size_t)count * sizeof *gradient);
    if (a->step.residual == GRADIENT_NONE || a->step.joins)
        return count;
    int64_t sums = elements_of(a, step->out[3]);
    memcpy(made + count, a->value[step->out[3]], (size_t)sums * sizeof *made);
    memcpy(gradient + count, a->residual, (size_t)sums * sizeof *gradient);
    return count + sums;
}

static double difference(struct alone *a, float *x)
{
    static float high[2 * VALUE_MAX], low[2 * VALUE_MAX], gradient[2 * VALUE_MAX];
    float was = *x;
    double sum = 0;
    *x = was + 0x1p-7f;
    double span = (double)*x;
    forward_again(a);
    outcome(a, high, gradient);
    *x = was - 0x1p-7f;
    span -= (double)*x;
    forward_again(a);
    int64_t count = outcome(a, low, gradient);
    *x = was;
    for (int64_t i = 0; i < count; i++)
        sum += (double)gradient[i] * ((double)high[i] - (double)low[i]);
    return sum / span;
}

/* Norms and direction agree. */
static bool near(const float *got, const double *want, int64_t count)
{
    double gg = 0, ww = 0, gw = 0, tolerance = 2e-3;
    for (int64_t i = 0; i < count; i++) {
        gg += (double)got[i] * (double)got[i];
        ww += want[i] * want[i];
        gw += (double)got[i] * want[i];
    }
    return fabs(sqrt(gg / ww) - 1) < tolerance && 1 - gw / sqrt(gg * ww) < tolerance * tolerance;
}

/* got against the differences over x [count]; and the broken twin, which misses one element. */
static void check(struct alone *a, const char *what, float *x, const float *from, int64_t count)
{
    static double want[FLAT_MAX];
    static float got[FLAT_MAX];
    int64_t largest = 0;
    memcpy(got, from, (size_t)count * sizeof *got);
    for (int64_t i = 0; i < count; i++) {
        want[i] = difference(a, &x[i]);
        largest = fabs(want[i]) > fabs(want[largest]) ? i : largest;
    }
    if (!near(got, want, count))
        fail_msg("%s: the gradient of %s is not that of central differences", a->name, what);
    got[largest] = 0;
    if (near(got, want, count))
        fail_msg("%s: element %ld of the gradient of %s is missing, and nobody sees it", a->name,
                 (long)largest, what);
}

static void check_role(struct alone *a, const char *role, const float *flat)
{
    const struct parameter *p = a->run.layer->program->parameters;
    for (; role && p->role; p++) {
        if (strcmp(p->role, role) || !parameter_present(p, &a->tiny.config))
            continue;
        const struct ls_param *param =
            parameter_find(&a->tiny.held.params, &a->tiny.config, a->run.layer->index, p);
        check(a, param->name, held_values(&a->tiny.held, param), flat + param->gradient.offset,
              param->rows * param->cols);
    }
}

/* Of the adapters of the step's matrices, each once. */
static void check_adapters(struct alone *a, const float *flat)
{
    const struct ls_param *list = a->tiny.held.params.list;
    int last = 0;
    for (int i = 0; i < a->step.stacked && a->step.adapted; i++) {
        const int parts[] = {a->step.weight[i].lora_a, a->step.weight[i].lora_b};
        for (int k = 0; k < 2 && parts[0] > 0; k++) {
            const struct ls_param *param = &list[parts[k]];
            if (parts[k] != last)
                check(a, param->name, held_values(&a->tiny.held, param),
                      flat + param->gradient.offset, param->rows * param->cols);
        }
        last = parts[0];
    }
}

static void check_gradients(struct alone *a)
{
    const struct step *step = a->step.step;
    const struct step_kind *kind = step->kind;
    static float dx[VALUE_MAX], flat[FLAT_MAX];
    step_run(a);
    memcpy(flat, a->flat, sizeof flat);
    if (kind->flow != FLOW_NONE)
        memcpy(dx, run_dx(&a->run, &a->step), sizeof dx);
    for (int k = 0; k < 2 && kind->flow != FLOW_NONE; k++)
        if (has_input(a, k))
            check(a, k ? "the second input" : "the input", a->input[k], dx,
                  elements_of(a, step->in[k]));
    if ((kind->weight || kind->weights || kind->flow == FLOW_FORWARD) && !a->step.adapted) {
        check_role(a, step->weight, flat);
        check_role(a, step->bias, flat);
    }
    check_adapters(a, flat);
}

/* ---- declarations ---------------------------------------------------------------------------- */

/* The gradients that a backward makes of these values, as bits. */
static bool same_gradients(struct alone *a, const bool reads[2][VALUES_MAX], const float *dx,
                           const float *flat)
{
    bool moves = a->step.step->kind->flow != FLOW_NONE;
    size_t bytes = moves ? (size_t)elements_of(a, a->step.step->in[0]) * sizeof *dx : 0;
    poison(a->flat, sizeof a->flat);
    backward_run(a, reads);
    return (!moves || !memcmp(run_dx(&a->run, &a->step), dx, bytes)) &&
           !memcmp(a->flat, flat, sizeof a->flat);
}

/* What is not declared is not read; and the broken twin, a declaration that misses a value. */
static void check_reads(struct alone *a)
{
    const struct step_kind *kind = a->step.step->kind;
    static float dx[VALUE_MAX], flat[FLAT_MAX];
    bool reads[2][VALUES_MAX], all[2][VALUES_MAX];
    declared(a, reads);
    memset(all, true, sizeof all);
    if (kind->flow == FLOW_FORWARD)
        return;
    step_run(a);
    poison(a->flat, sizeof a->flat);
    backward_run(a, all);
    if (kind->flow != FLOW_NONE)
        memcpy(dx, run_dx(&a->run, &a->step), sizeof dx);
    memcpy(flat, a->flat, sizeof flat);
    if (!same_gradients(a, reads, dx, flat))
        fail_msg("%s: the backward reads a value that it does not declare", a->name);
    for (int half = 0; half < 2; half++)
        for (int v = 0; v < VALUES_MAX; v++) {
            if (!reads[half][v])
                continue;
            reads[half][v] = false;
            if (same_gradients(a, reads, dx, flat))
                fail_msg("%s: the %s half declares to read %s and does not", a->name,
                         half ? "weight" : "input", a->run.layer->program->values[v].name);
            reads[half][v] = true;
        }
}

/* A kind that restarts makes all of out[3] again, and reads nothing else. */
static void check_restart(struct alone *a)
{
    const struct step *step = a->step.step;
    if (!step->kind->restarts)
        return;
    forward_run(a);
    memcpy(a->made, a->value, sizeof a->made);
    poison(a->value, sizeof a->value);
    memcpy(a->value[step->out[3]], a->made[step->out[3]], sizeof a->made[0]);
    a->run.phase = PHASE_AGAIN;
    a->step.restart = true;
    assert_int_equal(step->kind->forward(&a->run, &a->step), LS_OK);
    for (int i = 0; i < 4; i++)
        assert_memory_equal(a->value[step->out[i]], a->made[step->out[i]],
                            (size_t)elements_of(a, step->out[i]) * sizeof(float));
}

/* ---- all steps ------------------------------------------------------------------------------- */

/* Those that have adapters, or with rank 0 each. */
static void steps_visit(const struct ls_lora *lora, void (*visit)(struct alone *a))
{
    for (int arch = 0; arch < LS_ARCHES; arch++)
        for (int act = 0; act < LS_ACTIVATIONS; act++) {
            if (!(ls_family_of((enum ls_arch)arch)->acts & 1u << act))
                continue;
            struct alone *a = alone_open((enum ls_arch)arch, (enum ls_activation)act, lora);
            for (int layer = 0; layer < LAYERS + 2; layer++)
                for (int i = 0; i < a->tiny.model->layers[layer].step_count; i++) {
                    step_take(a, layer, i);
                    if (a->step.adapted == (lora->rank > 0))
                        visit(a);
                }
            alone_close(a);
        }
}

/* All matrices have adapters, or every second one. */
static void for_each_step(void (*visit)(struct alone *a))
{
    const uint64_t all = ~(uint64_t)0, some = all / 3;
    steps_visit(&(struct ls_lora){0}, visit);
    steps_visit(&(struct ls_lora){.rank = 3, .alpha = 6, .targets = all}, visit);
    steps_visit(&(struct ls_lora){.rank = 1, .alpha = 0.5, .targets = some}, visit);
}

CASE(test_gradients)
{
    for_each_step(check_gradients);
}

CASE(test_reads)
{
    for_each_step(check_reads);
}

CASE(test_restarts)
{
    for_each_step(check_restart);
}

SUITE_MAIN(NULL, NULL)
