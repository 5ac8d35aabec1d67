/* Generation: a model of micro-batches of rows of several texts, with a key/value cache in blocks.
 * Rows of a text follow each other, where it stands; no row's bits depend on what is beside it. */
#include "nn/model.h"

#include <stdlib.h>
#include <string.h>

enum { DECODER_LOGITS_BYTES = 32 << 20 }; /* of a prompt's rows at once */

struct ls_decoder {
    struct ls_model *model;
    struct ls_arena model_arena, arena;
    struct decoding decoding;
    float *logits;      /* [sequences, padded vocabulary]; NULL if there is no head */
    int64_t vocabulary; /* of the model, padding too */
};

/* ---- buffers --------------------------------------------------------------------------------- */

static void buffers_take(struct ls_decoder *d, struct ls_arena *arena)
{
    const struct ls_model *model = d->model;
    const struct ls_model_config *c = &model->config;
    struct decoding *decoding = &d->decoding;
    int64_t sequences = decoding->size.sequences;
    for (int64_t block = 1; block <= c->layers; block++)
        if (model_held(model, block))
            decoding->cache[block] =
                model_take(model, arena, 2 * decoding->size.blocks * LS_ATTENTION_BLOCK,
                           size_held(model, SIZE_KV));
    if (!model_held(model, c->layers + 1))
        return;
    decoding->rows = model_take(model, arena, sequences, c->channels);
    decoding->logits = model_take(model, arena, sequences, d->vocabulary);
    d->logits = ls_arena_take(arena, (size_t)(sequences * d->vocabulary) * sizeof(float));
}

/* Rows of one token: nothing of a sequence is there to be cut. */
static int rows_model_new(const struct ls_model_options *given, const struct ls_decoder_size *size,
                          struct ls_arena *arena, struct ls_model **out, struct ls_error *error)
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
                                             .sequences = size->rows,
                                             .tokens = 1,
                                             .positions = size->context,
                                             .slots = 1,
                                             .logits_bytes = DECODER_LOGITS_BYTES};
    return ls_model_new(&options, arena, out, error);
}

/* Both arenas are measured, and taken unless that is all. */
static int buffers_open(struct ls_decoder *d, const struct ls_model_options *options,
                        size_t *measured, struct ls_error *error)
{
    const struct ls_decoder_size *size = &d->decoding.size;
    struct ls_arena measure;
    ls_arena_measure(&measure);
    int status = rows_model_new(options, size, &measure, &d->model, error);
    if (status)
        return status;
    size_t model_bytes = measure.peak;
    ls_arena_measure(&measure);
    buffers_take(d, &measure);
    size_t bytes = measure.peak;
    if (measured) {
        *measured = model_bytes + bytes;
        return LS_OK;
    }
    ls_model_free(d->model);
    d->model = NULL;
    status = ls_arena_init(&d->model_arena, model_bytes, error);
    if (!status)
        status = rows_model_new(options, size, &d->model_arena, &d->model, error);
    if (!status)
        status = ls_arena_init(&d->arena, bytes, error);
    if (status)
        return status;
    buffers_take(d, &d->arena);
    d->model->decoding = &d->decoding;
    return LS_OK;
}

static int decoder_new(const struct ls_model_options *options, const struct ls_decoder_size *size,
                       size_t *measured, struct ls_decoder **out, struct ls_error *error)
{
    LS_ASSERT(size->sequences > 0 && size->rows > 0 && size->context > 0 &&
              size->context <= options->config->context);
    struct ls_decoder *d = calloc(1, sizeof *d);
    *out = d;
    if (!d)
        return ls_no_memory(error, "for the decoder's tables");
    struct decoding *decoding = &d->decoding;
    int64_t width = ls_ceil_div(size->context, LS_ATTENTION_BLOCK);
    decoding->size = *size;
    if (!size->blocks)
        decoding->size.blocks = size->sequences * width;
    LS_ASSERT(decoding->size.blocks >= width);
    d->vocabulary = options->config->vocab_padded;
    size_t texts = (size_t)size->sequences;
    decoding->cache = calloc((size_t)options->config->layers + 2, sizeof(char *));
    decoding->runs = calloc(texts, sizeof *decoding->runs);
    decoding->lengths = calloc(texts, sizeof *decoding->lengths);
    decoding->tables = calloc(texts * (size_t)width, sizeof *decoding->tables);
    if (!text_blocks_init(&decoding->blocks, size->sequences, width, decoding->size.blocks) ||
        !decoding->cache || !decoding->runs || !decoding->lengths || !decoding->tables)
        return ls_no_memory(error, "for the decoder's tables");
    return buffers_open(d, options, measured, error);
}

int ls_decoder_new(const struct ls_model_options *options, const struct ls_decoder_size *size,
                   struct ls_decoder **out, struct ls_error *error)
{
    int status = decoder_new(options, size, NULL, out, error);
    if (status) {
        ls_decoder_free(*out);
        *out = NULL;
    }
    return status;
}

int ls_decoder_bytes(const struct ls_model_options *options, const struct ls_decoder_size *size,
                     size_t *bytes, struct ls_error *error)
{
    struct ls_decoder *d;
    int status = decoder_new(options, size, bytes, &d, error);
    ls_decoder_free(d);
    return status;
}

void ls_decoder_free(struct ls_decoder *d)
{
    if (!d)
        return;
    ls_model_free(d->model);
    ls_arena_release(&d->model_arena);
    ls_arena_release(&d->arena);
    free(d->decoding.cache);
    free(d->decoding.runs);
    free(d->decoding.lengths);
    free(d->decoding.tables);
    text_blocks_release(&d->decoding.blocks);
    free(d);
}

/* ---- steps ----------------------------------------------------------------------------------- */

void ls_decoder_reset(struct ls_decoder *d, int64_t sequence)
{
    text_blocks_clear(&d->decoding.blocks, sequence);
}

const struct ls_decoder_size *ls_decoder_size(const struct ls_decoder *d)
{
    return &d->decoding.size;
}

int64_t ls_decoder_room(const struct ls_decoder *d, int64_t sequence)
{
    return d->decoding.size.context - d->decoding.blocks.position[sequence];
}

void ls_decoder_share(struct ls_decoder *d, int64_t from, int64_t to, int64_t tokens)
{
    text_blocks_share(&d->decoding.blocks, from, to, tokens);
}

bool ls_decoder_reserve(struct ls_decoder *d, int64_t sequence, int64_t tokens)
{
    LS_ASSERT(tokens <= ls_decoder_room(d, sequence));
    return text_blocks_reserve(&d->decoding.blocks, sequence, tokens);
}

int64_t ls_decoder_blocks_free(const struct ls_decoder *d)
{
    return d->decoding.blocks.free_count;
}

struct ls_model *ls_decoder_model(struct ls_decoder *d)
{
    return d->model;
}

static int ids_check(const struct ls_decoder *d, const int32_t *ids, int64_t count,
                     struct ls_error *error)
{
    int64_t vocabulary = d->model->config.vocab;
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= vocabulary)
            return ls_error_set(error, LS_EINVAL, "token %d is not in the vocabulary of %ld",
                                ids[i], (long)vocabulary);
    return LS_OK;
}

/* What a step reads of the texts' blocks, which may change behind it. */
static int blocks_begin(struct decoding *decoding, struct ls_error *error)
{
    struct text_blocks *blocks = &decoding->blocks;
    for (int i = 0; i < decoding->run_count; i++) {
        const struct decoding_run *run = &decoding->runs[i];
        if (!text_blocks_reserve(blocks, run->sequence, run->count))
            return ls_error_set(error, LS_ENOMEM,
                                "all %ld blocks of key/value memory are taken, of %d tokens each",
                                (long)blocks->count, LS_ATTENTION_BLOCK);
        decoding->lengths[i] = (int32_t)(run->position + run->count);
        memcpy(decoding->tables + i * blocks->width, blocks->table + run->sequence * blocks->width,
               (size_t)blocks->width * sizeof *blocks->table);
    }
    return LS_OK;
}

int ls_decoder_begin(struct ls_decoder *d, const struct ls_decoder_run *runs, int count,
                     const int32_t *ids, struct ls_micro_batch *batch, struct ls_error *error)
{
    struct decoding *decoding = &d->decoding;
    int64_t row = 0;
    decoding->run_count = decoding->ending = 0;
    LS_ASSERT(count > 0 && count <= decoding->size.sequences);
    for (int i = 0; i < count; i++) {
        const struct ls_decoder_run *run = &runs[i];
        LS_ASSERT(run->count > 0 && run->sequence < decoding->size.sequences &&
                  (i == 0 || run->sequence > runs[i - 1].sequence));
        if (run->count > ls_decoder_room(d, run->sequence))
            return ls_error_set(error, LS_EINVAL, "the model's context of %ld tokens is full",
                                (long)decoding->size.context);
        decoding->runs[i] =
            (struct decoding_run){.row = row,
                                  .count = run->count,
                                  .sequence = run->sequence,
                                  .position = decoding->blocks.position[run->sequence],
                                  .ends = run->ends};
        decoding->ending += run->ends;
        row += run->count;
    }
    LS_ASSERT(row <= decoding->size.rows);
    int status = ids_check(d, ids, row, error);
    if (status)
        return status;
    decoding->run_count = count;
    status = blocks_begin(decoding, error);
    if (status)
        return status;
    *batch = (struct ls_micro_batch){.sequences = row, .tokens = 1, .ids = ids};
    return LS_OK;
}

/* Each rank of tp gave its columns of all rows, one rank's behind the other's. */
const float *ls_decoder_end(struct ls_decoder *d, struct ls_ops *ops)
{
    struct decoding *decoding = &d->decoding;
    enum ls_dtype act = d->model->numerics.act;
    int64_t rows = decoding->ending, parts = d->model->tp.size, width = d->vocabulary / parts;
    for (int i = 0; i < decoding->run_count; i++)
        decoding->blocks.position[decoding->runs[i].sequence] += decoding->runs[i].count;
    decoding->blocks.copy_count = 0;
    for (int64_t i = 0; i < parts * rows && d->logits; i++) {
        const void *from = decoding->logits + (size_t)(i * width) * ls_dtype_bytes(act);
        float *to = d->logits + i % rows * d->vocabulary + i / rows * width;
        if (act != LS_F32)
            ls_cast_from_half(ops, act, width, from, to);
        else
            ls_copy(ops, (size_t)width * sizeof *to, from, to);
    }
    return d->logits;
}

void ls_decoder_losses(const struct ls_decoder *d, struct ls_ops *ops, const int32_t *tokens,
                       float *losses)
{
    const struct ls_model *model = d->model;
    struct ls_cross_entropy op = {.rows = d->decoding.ending,
                                  .vocabulary = model->config.vocab,
                                  .padded = d->vocabulary,
                                  .tiles = model->tiles * model->tp.size,
                                  .act = LS_F32};
    ls_cross_entropy(ops, &op, d->logits, tokens, losses);
}
