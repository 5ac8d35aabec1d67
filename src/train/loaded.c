/* A finished run, opened for evaluation and generation. */
#include "trainer.h"

#include <lockstep/ckpt.h>

#include <stdlib.h>
#include <string.h>

enum { EVAL_ROWS = 2048 };

struct ls_loaded {
    struct ls_config config;
    struct ls_numerics numerics;
    struct ls_ops ops;
    struct whole_model whole;
    struct ls_tokenizer *tokenizer;
    int64_t step;
};

static int parameters_load(struct ls_loaded *l, const struct ls_safetensors *file,
                           struct ls_error *error)
{
    for (int i = 0; i < l->whole.params.count; i++) {
        const struct ls_param *param = &l->whole.params.list[i];
        int64_t matrix[2] = {param->rows, param->cols};
        const struct ls_tensor_view *view;
        bool vector = !param->matrix;
        int status = ls_safetensors_require(file, param->name, LS_F32, vector ? 1 : 2,
                                            vector ? &param->cols : matrix, &view, error);
        if (status)
            return status;
        whole_set(&l->whole, &l->ops, i, view->data);
    }
    return LS_OK;
}

static int weights_open(struct ls_loaded *l, int threads, struct ls_error *error)
{
    l->numerics = ls_config_numerics(&l->config);
    int isa = l->config.numerics.isa;
    enum ls_isa best = ls_isa_best();
    if (isa == LS_CONFIG_AUTO || isa > (int)best)
        isa = (int)best;
    int status = ls_ops_init(&l->ops, threads, (enum ls_isa)isa, error);
    if (!status)
        status = whole_init(&l->whole, &l->config.model, &l->numerics, error);
    return status;
}

int ls_loaded_new(const char *path, const char *which, int threads, const struct ls_log *log,
                  struct ls_loaded **out, struct ls_error *error)
{
    *out = NULL;
    struct ls_checkpoint *checkpoint = NULL;
    struct ls_loaded *l = calloc(1, sizeof *l);
    if (!l)
        return ls_error_set(error, LS_ENOMEM, "no memory to open a run");
    char run[PATH_MAX];
    int status = ls_checkpoint_run(path, run, error);
    if (!status)
        status = kept_read(run, &l->config, &l->tokenizer, error);
    if (!status)
        status = ls_checkpoint_choose(&checkpoint, path, which, log, error);
    if (!status)
        status = weights_open(l, threads, error);
    if (!status)
        status = parameters_load(l, checkpoint->model, error);
    if (!status)
        l->step = checkpoint->state.step;
    ls_checkpoint_close(checkpoint);
    if (status) {
        ls_loaded_free(l);
        return status;
    }
    *out = l;
    return LS_OK;
}

void ls_loaded_free(struct ls_loaded *l)
{
    if (!l)
        return;
    ls_tokenizer_free(l->tokenizer);
    whole_release(&l->whole);
    ls_ops_release(&l->ops);
    free(l);
}

const struct ls_config *ls_loaded_config(const struct ls_loaded *l)
{
    return &l->config;
}
int64_t ls_loaded_step(const struct ls_loaded *l)
{
    return l->step;
}

static struct ls_model_options options_of(const struct ls_loaded *l, int64_t sequences)
{
    return (struct ls_model_options){.config = &l->config.model,
                                     .numerics = &l->numerics,
                                     .params = &l->whole.params,
                                     .weights = l->whole.weights,
                                     .sequences = sequences,
                                     .tokens = l->config.data.sequence,
                                     .slots = 1};
}

/* An evaluation and what it takes. */
struct evaluation {
    struct ls_loaded *l;
    const struct ls_token_store *store;
    int64_t micro; /* sequences that go through the model at once: whole leaves */
    struct ls_arena arena;
    struct ls_model *model;
    struct ls_token_segment *segments; /* the order of a sequence's rows */
    int segment_count;
    int32_t *buffers[4]; /* [micro, T]: ids and targets as in the store, then in the rows' order */
};

static int buffers_make(struct evaluation *e, struct ls_error *error)
{
    int64_t tokens = e->l->config.data.sequence, tiles = e->l->numerics.seq_tiles;
    int32_t *ids = calloc((size_t)(4 * e->micro * tokens), sizeof *ids);
    e->buffers[0] = ids;
    e->segment_count = ls_segments(tiles, 1);
    e->segments = calloc((size_t)e->segment_count, sizeof *e->segments);
    if (!ids || !e->segments)
        return ls_error_set(error, LS_ENOMEM, "no memory for a batch of tokens");
    for (int i = 1; i < 4; i++)
        e->buffers[i] = ids + i * e->micro * tokens;
    for (int i = 0; i < e->segment_count; i++)
        ls_segment(tiles, 1, 0, tokens, i, &e->segments[i].first, &e->segments[i].count);
    return LS_OK;
}

static int model_make(struct evaluation *e, struct ls_error *error)
{
    struct ls_model_options options = options_of(e->l, e->micro);
    struct ls_arena measure;
    struct ls_model *model;
    ls_arena_measure(&measure);
    int status = ls_model_new(&options, &measure, &model, error);
    if (status)
        return status;
    ls_model_free(model);
    status = ls_arena_init(&e->arena, measure.peak, error);
    if (!status)
        status = ls_model_new(&options, &e->arena, &e->model, error);
    return status;
}

static void evaluation_release(struct evaluation *e)
{
    ls_model_free(e->model);
    ls_arena_release(&e->arena);
    free(e->segments);
    free(e->buffers[0]);
}

/* Sequences [first, first + count), at most micro of them. */
static int evaluate_batch(struct evaluation *e, int64_t first, int64_t count, struct eval_sum *sum,
                          struct ls_error *error)
{
    struct ls_loaded *l = e->l;
    int64_t tokens = l->config.data.sequence, padded;
    int status = eval_read(e->store, l->tokenizer, &l->config, first, count, e->buffers[0],
                           e->buffers[1], &padded, sum, error);
    if (status)
        return status;
    for (int i = 0; i < 2; i++)
        ls_segments_copy(e->segments, e->segment_count, padded, tokens, e->buffers[i],
                         e->buffers[2 + i]);
    struct ls_micro_batch batch = {
        .sequences = padded, .tokens = tokens, .ids = e->buffers[2], .targets = e->buffers[3]};
    for (int layer = 0; layer < ls_model_layers(e->model) && !status; layer++)
        status = ls_layer_forward(e->model, &l->ops, layer, &batch, NULL, error);
    const float *loss = ls_model_leaf_losses(e->model);
    for (int64_t leaf = 0; leaf < padded / l->numerics.leaf_sequences && !status; leaf++)
        ls_exact_add(&sum->loss, loss[leaf]);
    return status;
}

static int evaluate_store(struct ls_loaded *l, const struct ls_token_store *store,
                          int64_t sequences, struct ls_eval_report *report, struct ls_error *error)
{
    int64_t tokens = l->config.data.sequence, leaf = l->numerics.leaf_sequences, samples;
    int status = ls_token_store_samples(store, tokens, &samples, error);
    if (status)
        return status;
    int64_t count = sequences > 0 ? ls_min(sequences, samples) : samples;
    struct evaluation e = {
        .l = l, .store = store, .micro = ls_round_up(ls_max(EVAL_ROWS / tokens, 1), leaf)};
    struct eval_sum sum = {0};
    status = buffers_make(&e, error);
    if (!status)
        status = model_make(&e, error);
    for (int64_t first = 0; first < count && !status; first += e.micro)
        status = evaluate_batch(&e, first, ls_min(e.micro, count - first), &sum, error);
    evaluation_release(&e);
    eval_report_of(&sum, report);
    return status;
}

int ls_loaded_evaluate(struct ls_loaded *l, const char *data, int64_t sequences,
                       struct ls_eval_report *report, struct ls_error *error)
{
    struct ls_token_store *store;
    int status = ls_token_store_open(data, &store, error);
    if (status)
        return status;
    status = evaluate_store(l, store, sequences, report, error);
    ls_token_store_close(store);
    return status;
}

int ls_loaded_generate(struct ls_loaded *l, const struct ls_generate *generate,
                       struct ls_error *error)
{
    if (!l->tokenizer)
        return ls_config_reject(&l->config, LS_ECONFIG, "data.tokenizer", error,
                                "generation needs the tokenizer that made the data");
    struct ls_model_options options = options_of(l, 1);
    struct ls_decoder *decoder;
    int status = ls_decoder_new(&options, &decoder, error);
    if (status)
        return status;
    status =
        generate_text(decoder, &l->ops, l->tokenizer, l->config.model.context, generate, error);
    ls_decoder_free(decoder);
    return status;
}
