/* A finished run, opened for evaluation and generation. */
#include "trainer.h"

#include <lockstep/ckpt.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EVAL_ROWS = 2048 };

struct ls_loaded {
    struct ls_config config;
    struct ls_numerics numerics;
    struct ls_ops ops;
    struct ls_params params;
    struct ls_arena arena;
    struct ls_weights weights;
    struct ls_tokenizer *tokenizer;
    int64_t step;
};

static int config_load(const char *run_directory, struct ls_loaded *l, struct ls_error *error)
{
    char path[LS_CONFIG_TEXT_BYTES + 32];
    snprintf(path, sizeof path, "%s/config.yaml", run_directory);
    ls_config_defaults(&l->config);
    int status = ls_config_load_file(&l->config, path, error);
    if (!status)
        status = ls_train_resolve(&l->config, error);
    if (!status)
        status = tokenizer_find(&l->config, &l->tokenizer, error);
    return status;
}

static int parameters_load(struct ls_loaded *l, const struct ls_safetensors *file,
                           struct ls_error *error)
{
    for (int i = 0; i < l->params.count; i++) {
        const struct ls_param *param = &l->params.list[i];
        int64_t matrix[2] = {param->rows, param->cols};
        const struct ls_tensor_view *view;
        bool vector = param->rows == 1;
        int status = ls_safetensors_require(file, param->name, LS_F32, vector ? 1 : 2,
                                            vector ? &param->cols : matrix, &view, error);
        if (status)
            return status;
        memcpy(l->weights.master + param->offset, view->data, view->bytes);
    }
    weights_refresh(&l->weights, &l->params, &l->ops);
    return LS_OK;
}

static void weights_take(struct ls_loaded *l, struct ls_arena *arena)
{
    size_t elements = (size_t)l->params.elements;
    l->weights.master = ls_arena_take(arena, elements * sizeof(float));
    if (l->numerics.act == LS_BF16)
        l->weights.compute = ls_arena_take(arena, elements * sizeof(ls_bf16));
}

static int weights_open(struct ls_loaded *l, int threads, struct ls_error *error)
{
    l->numerics = numerics_of(&l->config);
    int isa = l->config.numerics.isa;
    enum ls_isa best = ls_isa_best();
    if (isa == LS_CONFIG_AUTO || isa > (int)best)
        isa = (int)best;
    int status = ls_ops_init(&l->ops, threads, (enum ls_isa)isa, error);
    if (!status)
        status = ls_params_init(&l->params, &l->config.model, &l->numerics, error);
    if (status)
        return status;
    struct ls_arena measure;
    ls_arena_measure(&measure);
    weights_take(l, &measure);
    status = ls_arena_init(&l->arena, measure.peak, error);
    if (!status)
        weights_take(l, &l->arena);
    return status;
}

int ls_loaded_new(const char *run_directory, int threads, const struct ls_log *log,
                  struct ls_loaded **out, struct ls_error *error)
{
    *out = NULL;
    struct ls_checkpoint *checkpoint = NULL;
    struct ls_loaded *l = calloc(1, sizeof *l);
    if (!l)
        return ls_error_set(error, LS_ENOMEM, "no memory to open a run");
    int status = config_load(run_directory, l, error);
    if (!status)
        status = ls_checkpoint_find_latest(&checkpoint, run_directory, log, error);
    if (!status && !checkpoint)
        status =
            ls_error_set(error, LS_ECKPT, "%s holds no checkpoint: train it first (lockstep train)",
                         run_directory);
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
    ls_arena_release(&l->arena);
    ls_params_release(&l->params);
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
                                     .params = &l->params,
                                     .weights = l->weights,
                                     .sequences = sequences,
                                     .tokens = l->config.data.sequence};
}

/* Buffers for a forward of `sequences`, and the evaluation in them. */
static int evaluate_store(struct ls_loaded *l, const struct ls_token_store *store,
                          int64_t sequences, struct ls_eval_report *report, struct ls_error *error)
{
    int64_t tokens = l->config.data.sequence, leaf = l->config.numerics.leaf_sequences, samples;
    int status = ls_token_store_samples(store, tokens, &samples, error);
    if (status)
        return status;
    int64_t count = sequences > 0 ? ls_min(sequences, samples) : samples;
    int64_t micro = ls_round_up(ls_max(EVAL_ROWS / tokens, 1), leaf);
    struct ls_model_options options = options_of(l, micro);
    struct ls_arena arena;
    struct ls_model *model;
    ls_arena_measure(&arena);
    status = ls_model_new(&options, &arena, &model, error);
    if (status)
        return status;
    ls_model_free(model);
    status = ls_arena_init(&arena, arena.peak, error);
    if (status)
        return status;
    struct eval_sum sum = {0};
    int32_t *ids = calloc((size_t)(2 * micro * tokens), sizeof *ids);
    status = ids ? ls_model_new(&options, &arena, &model, error)
                 : ls_error_set(error, LS_ENOMEM, "no memory for a batch of tokens");
    if (!status) {
        struct eval_task task = {.model = model,
                                 .ops = &l->ops,
                                 .store = store,
                                 .tokenizer = l->tokenizer,
                                 .sequence_tokens = tokens,
                                 .micro_sequences = micro,
                                 .leaf_sequences = leaf,
                                 .vocabulary = l->config.model.vocab,
                                 .ids = ids};
        status = eval_range(&task, 0, count, &sum, error);
        ls_model_free(model);
    }
    eval_report_of(&sum, report);
    free(ids);
    ls_arena_release(&arena);
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
