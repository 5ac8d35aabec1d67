/* Opens a tiny model with all that it reads. */
#include "tiny.h"
#include "../support/testing.h"

static void check(int status, const struct ls_error *error)
{
    if (status)
        fail_msg("%s", error->text);
}

struct tiny tiny_of(enum ls_arch arch)
{
    const struct ls_family *family = ls_family_of(arch);
    bool slides = ls_family_reads(arch, "window");
    bool caps = ls_family_reads(arch, "attention_softcap");
    return (struct tiny){
        .config = {.arch = arch,
                   .vocab = TINY_VOCAB,
                   .vocab_padded = TINY_PADDED,
                   .layers = 1,
                   .channels = TINY_CHANNELS,
                   .heads = 2,
                   .kv_heads = arch == LS_GPT2 ? 2 : 1,
                   .head_dim = 8,
                   .ffn = 12,
                   .context = 16,
                   .bias = family->bias,
                   .act = family->act,
                   .norm_epsilon = 1e-5f,
                   .rope_theta = 100,
                   .window = slides ? 5 : 0,
                   .window_layers = family->window_layers,
                   .attention_softcap = caps ? 2 : 0,
                   .logit_softcap = caps ? 3 : 0,
                   .query_scale = caps ? 5 : 0,
                   .seed = 3},
        .numerics = {.act = LS_F32, .tp_tiles = 1, .seq_tiles = 1, .leaf_sequences = 1}};
}

void tiny_open(struct tiny *tiny, int threads)
{
    struct ls_error error = {0};
    check(ls_ops_init(&tiny->ops, threads, ls_isa_best(), &error), &error);
    held_open(&tiny->held, &tiny->config, &tiny->numerics, NULL);
    for (int i = 0; i < tiny->held.params.count; i++) {
        const struct ls_param *p = &tiny->held.params.list[i];
        ls_normal_fill(ls_philox_key_of(4, p->name), 0, p->live_rows * p->cols,
                       p->init == LS_INIT_ONE, 0.3f, held_values(&tiny->held, p));
    }
    held_publish(&tiny->held, &tiny->ops);
}

void tiny_model(struct tiny *tiny, struct ls_model_options options)
{
    struct ls_error error = {0};
    struct ls_arena measure;
    options.config = &tiny->config;
    options.numerics = &tiny->numerics;
    options.params = &tiny->held.params;
    options.weights = tiny->held.weights;
    ls_arena_measure(&measure);
    check(ls_model_new(&options, &measure, &tiny->model, &error), &error);
    ls_model_free(tiny->model);
    check(ls_arena_init(&tiny->arena, measure.peak, &error), &error);
    check(ls_model_new(&options, &tiny->arena, &tiny->model, &error), &error);
}

void tiny_close(struct tiny *tiny)
{
    ls_model_free(tiny->model);
    ls_arena_release(&tiny->arena);
    held_close(&tiny->held);
    ls_ops_release(&tiny->ops);
}
