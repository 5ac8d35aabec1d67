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

/* The prompt's tokens; an empty prompt begins as a document does, after an end of document. */
static int prompt_encode(const struct ls_tokenizer *tokenizer, const struct ls_generate *g,
                         int64_t context, struct ls_token_list *ids, struct ls_error *error)
{
    struct ls_encoder *encoder;
    int status = ls_encoder_new(tokenizer, &encoder, error);
    if (status)
        return status;
    const char *prompt = g->prompt && g->prompt[0] ? g->prompt : "\n";
    status = ls_encode(encoder, prompt, strlen(prompt), ids, error);
    ls_encoder_free(encoder);
    if (!status && ids->count >= context)
        return ls_error_set(error, LS_EINVAL,
                            "the prompt has %ld tokens, the model's context is %ld: shorten it to "
                            "leave room for at least one more",
                            (long)ids->count, (long)context);
    return status;
}

int generate_text(struct ls_decoder *decoder, struct ls_ops *ops,
                  const struct ls_tokenizer *tokenizer, int64_t context,
                  const struct ls_generate *g, struct ls_error *error)
{
    int64_t vocabulary = ls_tokenizer_vocabulary(tokenizer);
    struct ls_token_list ids = {0};
    struct ls_text text = {0};
    const float *logits = NULL;
    struct ls_philox_key key = ls_philox_key_of(g->seed, "generate");
    int32_t *order = calloc((size_t)vocabulary, sizeof *order);
    int status = order ? prompt_encode(tokenizer, g, context, &ids, error)
                       : ls_error_set(error, LS_ENOMEM, "no memory for sampling");
    ls_decoder_reset(decoder);
    for (int64_t i = 0; i < ids.count && !status; i++) {
        status = piece_out(g, tokenizer, &text, ids.ids[i], error);
        if (!status)
            status = ls_decoder_next(decoder, ops, ids.ids[i], &logits, error);
    }
    int64_t room = context - ids.count;
    for (int64_t i = 0; i < ls_min(g->tokens, room) && !status; i++) {
        uint32_t counter[4] = {(uint32_t)i, 0, 0, 0}, bits[4];
        ls_philox(key, counter, bits);
        int32_t id = ls_sample(&g->sampling, logits, vocabulary, order, ls_uniform_of(bits[0]));
        if (id == ls_tokenizer_eod(tokenizer))
            break;
        status = piece_out(g, tokenizer, &text, id, error);
        if (!status && i + 1 < ls_min(g->tokens, room))
            status = ls_decoder_next(decoder, ops, id, &logits, error);
    }
    ls_text_release(&text);
    ls_token_list_release(&ids);
    free(order);
    return status;
}

/* ---- a sample of the model in training ------------------------------------------------------- */

static void text_append(void *user, const char *bytes, size_t count)
{
    FILE *file = user;
    fwrite(bytes, 1, count, file);
}

int ls_trainer_sample(struct ls_trainer *t, const char *prompt, char **text, struct ls_error *error)
{
    *text = NULL;
    if (!t->tokenizer)
        return ls_config_reject(&t->config, LS_ECONFIG, "data.tokenizer", error,
                                "samples need the tokenizer that made the data");
    struct ls_model_options options = {.config = &t->config.model,
                                       .numerics = &t->numerics,
                                       .params = &t->params,
                                       .weights = t->memory.weights};
    int status = t->decoder ? LS_OK : ls_decoder_new(&options, &t->decoder, error);
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
