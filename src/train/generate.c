#include "trainer.h"

#include <stdlib.h>
#include <string.h>

/* Gives the bytes of one token to the caller. */
static int piece_out(const struct ls_generate *g, const struct ls_tokenizer *tokenizer,
                     struct ls_text *text, int32_t id, struct ls_error *error)
{
    text->count = 0;
    int status = ls_decode(tokenizer, &id, 1, text, error);
    if (!status && g->piece)
        g->piece(g->user, text->bytes, text->count);
    return status;
}

/* The prompt's tokens; an empty prompt begins with a new line. */
static int prompt_encode(const struct ls_tokenizer *tokenizer, const char *prompt,
                         struct ls_token_list *ids, struct ls_error *error)
{
    struct ls_encoder *encoder;
    int status = ls_encoder_new(tokenizer, &encoder, error);
    if (status)
        return status;
    prompt = prompt && prompt[0] ? prompt : "\n";
    status = ls_encode(encoder, prompt, strlen(prompt), ids, error);
    ls_encoder_free(encoder);
    return status;
}

/* Gives the decoder ids[count - 1]. When the model's context is full, it begins again with the
 * newer half of what it held, so that a text may be longer than the context. */
static int feed(struct ls_decoder *decoder, struct ls_ops *ops, const int32_t *ids, int64_t count,
                int64_t context, const float **logits, struct ls_error *error)
{
    int64_t first = count - 1;
    if (ls_decoder_room(decoder) == 0) {
        ls_decoder_reset(decoder);
        first = count - ls_max(context / 2, 1);
    }
    int status = LS_OK;
    for (int64_t i = first; i < count && !status; i++) {
        status = ls_decoder_next(decoder, ops, ids[i], logits, error);
        ls_progress();
    }
    return status;
}

int generate_text(struct ls_decoder *decoder, struct ls_ops *ops,
                  const struct ls_tokenizer *tokenizer, int64_t context,
                  const struct ls_generate *g, struct ls_error *error)
{
    int64_t vocabulary = ls_tokenizer_vocabulary(tokenizer);
    struct ls_token_list prompt = {0};
    struct ls_text text = {0};
    const float *logits = NULL;
    struct ls_philox_key key = ls_philox_key_of(g->seed, "generate");
    int status = prompt_encode(tokenizer, g->prompt, &prompt, error);
    int64_t count = prompt.count;
    int32_t *order = calloc((size_t)vocabulary, sizeof *order);
    int32_t *ids = calloc((size_t)(count + g->tokens + 1), sizeof *ids);
    if (!status && (!order || !ids))
        status = ls_error_set(error, LS_ENOMEM, "no memory for %ld tokens", (long)g->tokens);
    ls_decoder_reset(decoder);
    for (int64_t i = 0; i < count && !status; i++) {
        ids[i] = prompt.ids[i];
        status = piece_out(g, tokenizer, &text, ids[i], error);
        if (!status)
            status = feed(decoder, ops, ids, i + 1, context, &logits, error);
    }
    for (int64_t i = 0; i < g->tokens && !status; i++) {
        uint32_t counter[4] = {(uint32_t)i, 0, 0, 0}, bits[4];
        ls_philox(key, counter, bits);
        int32_t id = ls_sample(&g->sampling, logits, vocabulary, order, ls_uniform_of(bits[0]));
        if (id == ls_tokenizer_eod(tokenizer))
            break;
        ids[count++] = id;
        status = piece_out(g, tokenizer, &text, id, error);
        if (!status && i + 1 < g->tokens)
            status = feed(decoder, ops, ids, count, context, &logits, error);
    }
    ls_text_release(&text);
    ls_token_list_release(&prompt);
    free(order);
    free(ids);
    return status;
}

/* ---- a sample of the model in training ------------------------------------------------------- */

/* Whether every rank holds all weights as the decoder reads them. */
static bool holds_whole(const struct ls_trainer *t)
{
    return t->layout.size[LS_AXIS_PP] == 1 && t->layout.size[LS_AXIS_TP] == 1 &&
           t->layout.zero == 0;
}

/* Local where they are whole (nothing moves): the weights that this rank holds, for the decoder. */
static int own_weights(struct ls_trainer *t, struct ls_error *error)
{
    int status = LS_OK;
    for (int u = 0; u < t->params.unit_count && !status; u++) {
        struct ls_zero_weights weights;
        status = ls_zero_weights(t->memory.zero, u, &weights, error);
        if (!status)
            t->memory.weights[u] =
                (struct ls_weights){.matrices = weights.matrices, .vectors = weights.vectors};
    }
    return status;
}

/* Rank 0's buffers: the whole model, and one tensor of it. */
static int gather_open(struct ls_trainer *t, const struct ls_params *all, float **values,
                       struct ls_error *error)
{
    *values = malloc((size_t)(state_largest(all) + STATE_MESSAGE) * sizeof **values);
    struct whole_model *made = t->sampled ? NULL : malloc(sizeof *made);
    if (!*values || (!made && !t->sampled)) {
        free(made);
        return ls_error_set(error, LS_ENOMEM, "no memory to gather the model for a sample");
    }
    if (t->sampled)
        return LS_OK;
    int status = whole_init(made, &t->config.model, &t->numerics, error);
    if (status)
        free(made);
    else
        t->sampled = made;
    return status;
}

/* Collective. The parameters of all ranks come together on rank 0. */
static int sampled_gather(struct ls_trainer *t, struct ls_error *error)
{
    bool writes = ls_comm_rank(t->world) == 0;
    struct ls_params all;
    float *values = NULL;
    int status = state_params(t, &all, error);
    if (!status && writes)
        status = gather_open(t, &all, &values, error);
    status = ls_comm_agree(t->world, status, error);
    for (int i = 0; i < all.count && !status; i++) {
        status = state_collect(t, &all, i, -1, values, error);
        if (!status && writes)
            whole_set(t->sampled, &t->ops, i, values);
    }
    free(values);
    ls_params_release(&all);
    return ls_comm_agree(t->world, status, error);
}

static void text_append(void *user, const char *bytes, size_t count)
{
    FILE *file = user;
    fwrite(bytes, 1, count, file);
}

/* Local: on rank 0. */
static int sample_make(struct ls_trainer *t, const char *prompt, char **text,
                       struct ls_error *error)
{
    const struct whole_model *gathered = t->sampled;
    struct ls_model_options options = {.config = &t->config.model,
                                       .numerics = &t->numerics,
                                       .params = gathered ? &gathered->params : &t->params,
                                       .weights = gathered ? gathered->weights : t->memory.weights};
    int status = gathered ? LS_OK : own_weights(t, error);
    if (!status && !t->decoder)
        status = ls_decoder_new(&options, &t->decoder, error);
    if (status)
        return status;
    size_t bytes = 0;
    FILE *file = open_memstream(text, &bytes);
    if (!file)
        return ls_error_set(error, LS_ENOMEM, "no memory for a sample's text");
    const struct ls_config_sample *sample = &t->config.sample;
    struct ls_generate generate = {.prompt = prompt,
                                   .tokens = sample->tokens,
                                   .sampling = {.temperature = (float)sample->temperature,
                                                .top_p = (float)sample->top_p,
                                                .top_k = sample->top_k},
                                   .seed = (uint64_t)t->config.data.seed,
                                   .piece = text_append,
                                   .user = file};
    status =
        generate_text(t->decoder, &t->ops, t->tokenizer, t->config.model.context, &generate, error);
    fclose(file);
    return status;
}

int ls_trainer_sample(struct ls_trainer *t, const char *prompt, char **text, struct ls_error *error)
{
    *text = NULL;
    int status = LS_OK;
    if (!t->tokenizer)
        status = ls_config_reject(&t->config, LS_ECONFIG, "data.tokenizer", error,
                                  "samples need the tokenizer that made the data");
    status = ls_comm_agree(t->world, status, error);
    if (!status && !holds_whole(t))
        status = sampled_gather(t, error);
    if (!status && ls_comm_rank(t->world) == 0)
        status = sample_make(t, prompt, text, error);
    status = ls_comm_agree(t->world, status, error);
    if (status) {
        free(*text);
        *text = NULL;
    }
    return status;
}
