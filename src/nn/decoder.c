/* Generation, one token at a time: a model of micro-batches of one row, with a key/value cache. */
#include "model.h"

#include <stdlib.h>

struct ls_decoder {
    struct ls_model *model;
    struct ls_arena model_arena, arena;
    struct decoding decoding;
    float *logits; /* [V] */
};

static void buffers_take(struct ls_decoder *d, struct ls_arena *arena)
{
    const struct ls_model *model = d->model;
    const struct ls_model_config *c = &model->config;
    for (int64_t block = 1; block <= c->layers; block++)
        if (model_held(model, block))
            d->decoding.cache[block] =
                model_take(model, arena, 2 * c->context, size_held(model, SIZE_KV));
    if (!model_held(model, c->layers + 1))
        return;
    d->decoding.logits = model_take(model, arena, 1, c->vocab_padded);
    d->logits = ls_arena_take(arena, (size_t)c->vocab_padded * sizeof(float));
}

/* One row is no tile of a sequence, and there is nothing to cut it into. */
static int row_model_new(const struct ls_model_options *given, struct ls_arena *arena,
                         struct ls_model **out, struct ls_error *error)
{
    struct ls_numerics numerics = *given->numerics;
    struct ls_tp tp = given->tp ? *given->tp : (struct ls_tp){0};
    numerics.seq_tiles = numerics.leaf_sequences = 1;
    tp.sequence = false;
    const struct ls_model_options options = {.config = given->config,
                                             .numerics = &numerics,
                                             .params = given->params,
                                             .weights = given->weights,
                                             .tp = given->tp ? &tp : NULL,
                                             .layers = given->layers,
                                             .chunk_first = given->chunk_first,
                                             .sequences = 1,
                                             .tokens = 1,
                                             .positions = given->config->context,
                                             .slots = 1};
    return ls_model_new(&options, arena, out, error);
}

static int buffers_open(struct ls_decoder *d, const struct ls_model_options *options,
                        struct ls_error *error)
{
    struct ls_arena measure;
    ls_arena_measure(&measure);
    int status = row_model_new(options, &measure, &d->model, error);
    if (status)
        return status;
    ls_model_free(d->model);
    d->model = NULL;
    status = ls_arena_init(&d->model_arena, measure.peak, error);
    if (!status)
        status = row_model_new(options, &d->model_arena, &d->model, error);
    if (status)
        return status;
    ls_arena_measure(&measure);
    buffers_take(d, &measure);
    status = ls_arena_init(&d->arena, measure.peak, error);
    if (!status)
        buffers_take(d, &d->arena);
    d->model->decoding = &d->decoding;
    return status;
}

int ls_decoder_new(const struct ls_model_options *options, struct ls_decoder **out,
                   struct ls_error *error)
{
    *out = NULL;
    struct ls_decoder *d = calloc(1, sizeof *d);
    if (d)
        d->decoding.cache = calloc((size_t)options->config->layers + 2, sizeof(char *));
    int status = d && d->decoding.cache
                     ? buffers_open(d, options, error)
                     : ls_error_set(error, LS_ENOMEM, "no memory for the decoder's tables");
    if (status) {
        ls_decoder_free(d);
        return status;
    }
    *out = d;
    return LS_OK;
}

void ls_decoder_free(struct ls_decoder *d)
{
    if (!d)
        return;
    ls_model_free(d->model);
    ls_arena_release(&d->model_arena);
    ls_arena_release(&d->arena);
    free(d->decoding.cache);
    free(d);
}

void ls_decoder_reset(struct ls_decoder *d)
{
    d->decoding.position = 0;
}

int64_t ls_decoder_room(const struct ls_decoder *d)
{
    return d->model->config.context - d->decoding.position;
}

struct ls_model *ls_decoder_model(struct ls_decoder *d)
{
    return d->model;
}

int ls_decoder_admits(const struct ls_decoder *d, int32_t token, struct ls_error *error)
{
    const struct ls_model_config *c = &d->model->config;
    if (ls_decoder_room(d) == 0)
        return ls_error_set(error, LS_EINVAL, "the model's context of %ld tokens is full",
                            (long)c->context);
    if (token < 0 || token >= c->vocab)
        return ls_error_set(error, LS_EINVAL, "token %d is not in the vocabulary of %ld", token,
                            (long)c->vocab);
    return LS_OK;
}

const float *ls_decoder_advance(struct ls_decoder *d, struct ls_ops *ops)
{
    int64_t vocab = d->model->config.vocab;
    d->decoding.position++;
    if (d->logits && d->model->numerics.act != LS_F32)
        ls_cast_from_half(ops, d->model->numerics.act, vocab, d->decoding.logits, d->logits);
    else if (d->logits)
        ls_copy(ops, (size_t)vocab * sizeof(float), d->decoding.logits, d->logits);
    return d->logits;
}
