/* Text continued from a prompt, token by token. */
#include "infer_private.h"

#include <stdlib.h>
#include <string.h>

/* A text under work, the same on all ranks that work on it. */
struct writing {
    struct ls_runner *r;
    const struct ls_generate *g;
    struct ls_detokenizer detokenizer;
    struct ls_text piece;
    int32_t *ids, *order; /* [prompt and tokens], [vocabulary] */
    int64_t count;        /* of ids */
    const float *logits;  /* of the next token, on the last stage */
};

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

static int writing_open(struct writing *w, struct ls_token_list *prompt, struct ls_error *error)
{
    const struct ls_runner_parts *parts = &w->r->parts;
    if (!parts->tokenizer)
        return ls_config_reject(parts->config, LS_ECONFIG, "data.tokenizer", error,
                                "text needs the tokenizer that made the data");
    int status = prompt_encode(parts->tokenizer, w->g->prompt, prompt, error);
    w->detokenizer = (struct ls_detokenizer){.tokenizer = parts->tokenizer};
    w->order = calloc((size_t)ls_tokenizer_vocabulary(parts->tokenizer), sizeof *w->order);
    w->ids = calloc((size_t)(prompt->count + w->g->tokens + 1), sizeof *w->ids);
    if (!status && (!w->order || !w->ids))
        status = ls_error_set(error, LS_ENOMEM, "no memory for %ld tokens", (long)w->g->tokens);
    return status;
}

/* The caller hears of it. */
static int append(struct writing *w, int32_t id, struct ls_error *error)
{
    const struct ls_runner_parts *parts = &w->r->parts;
    w->ids[w->count++] = id;
    if (!w->g->piece || ls_comm_rank(parts->groups[LS_GROUP_WORLD]) > 0)
        return LS_OK;
    w->piece.count = 0;
    int status = ls_detokenizer_next(&w->detokenizer, id, &w->piece, error);
    if (!status && w->piece.count > 0)
        w->g->piece(w->g->user, w->piece.bytes, w->piece.count);
    return status;
}

/* What was held back of a character that no token completed. */
static int finish(struct writing *w, struct ls_error *error)
{
    if (!w->g->piece || ls_comm_rank(w->r->parts.groups[LS_GROUP_WORLD]) > 0)
        return LS_OK;
    w->piece.count = 0;
    int status = ls_detokenizer_end(&w->detokenizer, &w->piece, error);
    if (!status && w->piece.count > 0)
        w->g->piece(w->g->user, w->piece.bytes, w->piece.count);
    return status;
}

/* Gives the decoder the last token. When the model's context is full, it begins again with the
 * newer half of what it held, so that a text may be longer than the context. */
static int feed(struct writing *w, struct ls_error *error)
{
    int64_t first = w->count - 1;
    if (ls_decoder_room(w->r->decoder) == 0) {
        ls_decoder_reset(w->r->decoder);
        first = w->count - ls_max(w->r->parts.config->model.context / 2, 1);
    }
    int status = LS_OK;
    for (int64_t i = first; i < w->count && !status; i++)
        status = ls_runner_next(w->r, w->ids[i], &w->logits, error);
    return status;
}

/* The last stage draws, and its token comes to the others. */
static int draw(const struct writing *w, int64_t i, int32_t *id, struct ls_error *error)
{
    const struct ls_runner_parts *parts = &w->r->parts;
    uint32_t counter[4] = {(uint32_t)i, 0, 0, 0}, bits[4];
    int64_t token = -1;
    ls_philox(ls_philox_key_of(w->g->seed, "generate"), counter, bits);
    if (w->logits)
        token = ls_sample(&w->g->sampling, w->logits, ls_tokenizer_vocabulary(parts->tokenizer),
                          w->order, ls_uniform_of(bits[0]));
    int status = ls_all_reduce_max(parts->groups[LS_GROUP_PP], &token, error);
    *id = (int32_t)token;
    return status;
}

static int text_write(struct writing *w, const struct ls_token_list *prompt, struct ls_error *error)
{
    int status = LS_OK;
    for (int64_t i = 0; i < prompt->count && !status; i++) {
        status = append(w, prompt->ids[i], error);
        if (!status)
            status = feed(w, error);
    }
    for (int64_t i = 0; i < w->g->tokens && !status; i++) {
        int32_t id;
        status = draw(w, i, &id, error);
        if (!status && id == ls_tokenizer_eod(w->r->parts.tokenizer))
            break;
        if (!status)
            status = append(w, id, error);
        if (!status && i + 1 < w->g->tokens)
            status = feed(w, error);
    }
    return status ? status : finish(w, error);
}

/* Copies would all do the same. */
static bool works(const struct ls_runner *r)
{
    struct ls_comm *const *groups = r->parts.groups;
    return r->parts.together ||
           (ls_comm_rank(groups[LS_GROUP_DP]) == 0 && ls_comm_rank(groups[LS_GROUP_CP]) == 0);
}

int ls_runner_generate(struct ls_runner *r, const struct ls_generate *g, struct ls_error *error)
{
    struct writing w = {.r = r, .g = g};
    struct ls_token_list prompt = {0};
    int status = writing_open(&w, &prompt, error);
    status = ls_comm_agree(r->parts.groups[LS_GROUP_WORLD], status, error);
    if (!status)
        status = ls_runner_restart(r, error);
    if (!status && works(r))
        status = text_write(&w, &prompt, error);
    status = ls_comm_agree(r->parts.groups[LS_GROUP_WORLD], status, error);
    ls_text_release(&w.piece);
    ls_token_list_release(&prompt);
    free(w.order);
    free(w.ids);
    return status;
}

/* ---- into memory ----------------------------------------------------------------------------- */

static void text_append(void *user, const char *bytes, size_t count)
{
    FILE *file = user;
    fwrite(bytes, 1, count, file);
}

int ls_runner_sample(struct ls_runner *r, const char *prompt, char **text, struct ls_error *error)
{
    const struct ls_config *config = r->parts.config;
    struct ls_comm *world = r->parts.groups[LS_GROUP_WORLD];
    size_t bytes = 0;
    *text = NULL;
    FILE *file = ls_comm_rank(world) == 0 ? open_memstream(text, &bytes) : NULL;
    int status = LS_OK;
    if (ls_comm_rank(world) == 0 && !file)
        status = ls_error_set(error, LS_ENOMEM, "no memory for a sample's text");
    struct ls_generate generate = {.prompt = prompt,
                                   .tokens = config->sample.tokens,
                                   .sampling = {.temperature = (float)config->sample.temperature,
                                                .top_p = (float)config->sample.top_p,
                                                .top_k = config->sample.top_k},
                                   .seed = (uint64_t)config->data.seed,
                                   .piece = text_append,
                                   .user = file};
    status = ls_comm_agree(world, status, error);
    if (!status)
        status = ls_runner_generate(r, &generate, error);
    if (file)
        fclose(file);
    if (status) {
        free(*text);
        *text = NULL;
    }
    return status;
}
