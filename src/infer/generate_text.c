/* Generation: of many prompts in a decoder that is as large as they need, and of one. */
#include "infer/writing.h"

#include <lockstep/base/words.h>

#include <stdlib.h>
#include <string.h>

enum { STEP_ROWS = 256 }; /* of prompts; with more, products are hardly faster */

const char *ls_finish_name(enum ls_finish finish)
{
    static const char *const names[] = {"length", "stop", "end", "context"};
    return names[finish];
}

/* In one piece of memory, at its ids. */
int ls_generated_copy(struct ls_generated *out, const struct ls_generated *text,
                      struct ls_error *error)
{
    size_t ids = (size_t)text->count * sizeof *text->ids, logprobs = text->logprobs ? ids : 0;
    char *at = malloc(ids + logprobs + text->bytes + 1);
    if (!at)
        return ls_no_memory(error, "for a text of %ld tokens", (long)text->count);
    *out = *text;
    out->ids = memcpy(at, text->ids, ids);
    if (text->logprobs)
        out->logprobs = memcpy(at + ids, text->logprobs, ids);
    out->text = memcpy(at + ids + logprobs, text->text, text->bytes);
    return LS_OK;
}

void ls_generated_release(struct ls_generated *copy)
{
    free((void *)copy->ids);
    *copy = (struct ls_generated){0};
}

/* ---- the decoder ----------------------------------------------------------------------------- */

/* Those of the longest text. */
static int64_t blocks_least(const struct ls_decoder_size *size)
{
    return ls_ceil_div(size->context, LS_ATTENTION_BLOCK);
}

static int64_t samples_of(const struct ls_generation *g)
{
    return ls_max(g->samples, 1);
}

/* Tokens that are fed of a prompt's text, if it becomes as long as it may. */
static int64_t fed_most(const struct ls_runner *r, const struct ls_generation *g, int64_t prompt)
{
    const struct ls_text_request *request = &g->prompts->list[prompt];
    int64_t most = request->tokens.count - 1 + prompt_added(request, g->tokens);
    return ls_min(most, r->parts.layout->model.context);
}

/* Blocks that all samples of a prompt share, and those of one of them alone. */
static int64_t blocks_shared(const struct ls_generation *g, int64_t prompt)
{
    bool several = samples_of(g) > 1;
    return several ? (g->prompts->list[prompt].tokens.count - 1) / LS_ATTENTION_BLOCK : 0;
}

static int64_t blocks_own(const struct ls_runner *r, const struct ls_generation *g, int64_t prompt)
{
    int64_t all = ls_ceil_div(fed_most(r, g, prompt), LS_ATTENTION_BLOCK);
    return ls_max(all - blocks_shared(g, prompt), 1);
}

/* What texts that follow each other, a batch of them, take at most. */
static int64_t blocks_wanted(const struct ls_runner *r, const struct ls_generation *g,
                             int64_t batch)
{
    int64_t samples = samples_of(g), all = g->prompts->count * samples, sum = 0, most = 0;
    for (int64_t begin = 0, end = 0; end < all; end++) {
        sum += blocks_own(r, g, end / samples);
        if (end % samples == 0 || begin == end)
            sum += blocks_shared(g, end / samples);
        most = ls_max(most, sum);
        if (end - begin + 1 < batch)
            continue;
        int64_t gone = begin++ / samples;
        sum -= blocks_own(r, g, gone);
        if (begin / samples != gone || begin > end)
            sum -= blocks_shared(g, gone);
    }
    return most;
}

/* Of as many texts at a time as there are, each as long as the longest may become. */
static int size_find(const struct ls_runner *r, const struct ls_generation *g,
                     struct ls_decoder_size *size, struct ls_error *error)
{
    const struct ls_text_requests *prompts = g->prompts;
    int64_t context = r->parts.layout->model.context, longest = 1, prompt = 0;
    for (int64_t i = 0; i < prompts->count; i++) {
        int64_t count = prompts->list[i].tokens.count;
        if (count > context && !g->slides)
            return ls_error_set(error, LS_EDATA,
                                "%s has %ld tokens: at most %ld fit the model's context%s",
                                ls_request_name(prompts, i).text, (long)count, (long)context,
                                prompts->listed ? "" : " (--truncate leaves out the first ones)");
        prompt = ls_max(prompt, count);
        longest = ls_max(longest, fed_most(r, g, i));
    }
    int64_t batch = ls_max(ls_min(g->batch, prompts->count * samples_of(g)), 1);
    *size = (struct ls_decoder_size){.sequences = batch, .context = longest};
    size->rows = ls_max(batch, ls_min(STEP_ROWS, ls_min(prompt, context) * batch));
    size->blocks = ls_max(blocks_wanted(r, g, batch), blocks_least(size));
    if (!g->cache_tokens)
        return LS_OK;
    size->blocks = ls_min(g->cache_tokens / LS_ATTENTION_BLOCK, batch * blocks_least(size));
    if (size->blocks < blocks_least(size))
        return ls_error_set(error, LS_ECONFIG,
                            "room for keys and values of %ld tokens: the longest text may come to "
                            "%ld: expected %ld or more",
                            (long)g->cache_tokens, (long)longest,
                            (long)(blocks_least(size) * LS_ATTENTION_BLOCK));
    return LS_OK;
}

/* Bytes that the decoders of this machine's ranks take, if they are like this one, and whether they
 * are free. */
static int machine_bytes(const struct ls_runner *r, const struct ls_decoder_size *size,
                         double *bytes, bool *fits, struct ls_error *error)
{
    size_t mine = 0;
    double free_bytes = (double)ls_device_memory().free;
    int status = ls_decoder_bytes(&r->parts.part, size, &mine, error);
    *bytes = (double)mine * ls_comm_machine_ranks(r->parts.groups[LS_GROUP_WORLD]);
    *fits = free_bytes <= 0 || *bytes <= free_bytes;
    return status;
}

/* The most of *value, a member of size, that fits; 0 if none does. */
static int fitting_find(const struct ls_runner *r, const struct ls_decoder_size *size,
                        int64_t *value, int64_t least, struct ls_error *error)
{
    int64_t good = least - 1, bad = *value + 1;
    int status = LS_OK;
    for (*value = bad - 1; good + 1 < bad && !status; *value = (good + bad) / 2) {
        double bytes;
        bool fits;
        status = machine_bytes(r, size, &bytes, &fits, error);
        if (fits)
            good = *value;
        else
            bad = *value;
    }
    *value = good < least ? 0 : good;
    return status;
}

/* Refused before anything is taken, with the batch that fits. */
static int memory_check(const struct ls_runner *r, const struct ls_decoder_size *size,
                        struct ls_error *error)
{
    double bytes;
    bool fits;
    struct ls_decoder_size tried = *size;
    int status = machine_bytes(r, size, &bytes, &fits, error);
    if (status || fits)
        return status;
    tried.blocks = blocks_least(size);
    status = fitting_find(r, &tried, &tried.sequences, 1, error);
    if (status)
        return status;
    char hint[80] = "fewer tokens need less";
    if (tried.sequences > 0)
        snprintf(hint, sizeof hint, "a batch of %ld would fit", (long)tried.sequences);
    return ls_error_set(
        error, LS_ENOMEM,
        "%ld texts with room for keys and values of %ld tokens take %s on this machine, and %s "
        "is free: %s",
        (long)size->sequences, (long)(size->blocks * LS_ATTENTION_BLOCK), ls_bytes(bytes).text,
        ls_bytes((double)ls_device_memory().free).text, hint);
}

static bool same_size(const struct ls_decoder_size *a, const struct ls_decoder_size *b)
{
    return a->sequences == b->sequences && a->context == b->context && a->rows == b->rows &&
           a->blocks == b->blocks;
}

/* Whether the runner has it; another one's memory is free then. */
static bool decoder_there(struct ls_runner *r, const struct ls_decoder_size *size)
{
    if (r->decoder && same_size(ls_decoder_size(r->decoder), size))
        return true;
    ls_decoder_free(r->decoder);
    r->decoder = NULL;
    return false;
}

static int decoder_make(struct ls_runner *r, const struct ls_decoder_size *size,
                        struct ls_error *error)
{
    return decoder_there(r, size) ? LS_OK
                                  : ls_decoder_new(&r->parts.part, size, &r->decoder, error);
}

int runner_decoder(struct ls_runner *r, const struct ls_decoder_size *size, struct ls_error *error)
{
    int status = decoder_there(r, size) ? LS_OK : memory_check(r, size, error);
    return status ? status : decoder_make(r, size, error);
}

/* Blocks that fit here; refused where not even those of one text do. */
static int blocks_find(struct ls_runner *r, struct ls_decoder_size *size, struct ls_error *error)
{
    int64_t least = blocks_least(size);
    int status =
        decoder_there(r, size) ? LS_OK : fitting_find(r, size, &size->blocks, least, error);
    if (status || size->blocks)
        return status;
    size->blocks = least;
    return memory_check(r, size, error);
}

/* Collective over the world: blocks for which every rank has room. Memory that is taken elsewhere
 * meanwhile is not looked for again. */
static int blocks_agree(struct ls_runner *r, struct ls_decoder_size *size, struct ls_error *error)
{
    struct ls_comm *world = r->parts.groups[LS_GROUP_WORLD];
    int64_t wanted = size->blocks;
    int status = ls_comm_agree(world, blocks_find(r, size, error), error);
    int64_t missing = wanted - size->blocks;
    if (!status)
        status = ls_all_reduce_max(world, &missing, error);
    size->blocks = wanted - missing;
    return status ? status : decoder_make(r, size, error);
}

/* ---- many prompts ---------------------------------------------------------------------------- */

static bool stops_any(const struct ls_generation *g)
{
    bool any = g->stop_count > 0;
    for (int64_t i = 0; i < g->prompts->count; i++)
        any = any || g->prompts->list[i].stop_count > 0;
    return any;
}

static int samples_check(const struct writing *w, struct ls_error *error)
{
    const struct ls_generation *g = w->g;
    if (w->samples > (int64_t)1 << 32 || g->samples < 0)
        return ls_error_set(error, LS_EINVAL, "%ld samples of a prompt: expected 1 to 2^32",
                            (long)g->samples);
    if (g->piece && w->samples > 1)
        return ls_error_set(error, LS_EINVAL,
                            "pieces of %ld samples: expected one sample, or what is done alone",
                            (long)w->samples);
    for (int64_t i = 0; i < g->prompts->count; i++)
        if (prompt_added(&g->prompts->list[i], g->tokens) < 1)
            return ls_error_set(error, LS_EINVAL, "%ld tokens to add to %s: expected at least 1",
                                (long)g->tokens, ls_request_name(g->prompts, i).text);
    return LS_OK;
}

static int prepare(struct writing *w, struct ls_decoder_size *size, struct ls_error *error)
{
    struct ls_runner *r = w->r;
    const struct ls_tokenizer *tokenizer = r->parts.tokenizer;
    if (!tokenizer && stops_any(w->g))
        return ls_config_reject(r->parts.config, LS_ECONFIG, "data.tokenizer", error,
                                "a text to stop at: " NO_TOKENIZER);
    w->samples = samples_of(w->g);
    w->all = w->g->prompts->count * w->samples;
    writing_copies_init(w);
    w->vocabulary = r->parts.layout->model.vocab;
    if (tokenizer)
        w->vocabulary = ls_min(w->vocabulary, ls_tokenizer_vocabulary(tokenizer));
    int status = samples_check(w, error);
    return status ? status : size_find(r, w->g, size, error);
}

/* Collective over the world. */
static int decoder_prepare(struct writing *w, struct ls_decoder_size *size, struct ls_error *error)
{
    struct ls_comm *world = w->r->parts.groups[LS_GROUP_WORLD];
    int status =
        w->g->cache_tokens ? runner_decoder(w->r, size, error) : blocks_agree(w->r, size, error);
    if (!status)
        status = writing_open(w, size, error);
    return ls_comm_agree(world, status, error);
}

int ls_runner_continue(struct ls_runner *r, const struct ls_generation *g,
                       struct ls_generation_report *report, struct ls_error *error)
{
    struct ls_comm *world = r->parts.groups[LS_GROUP_WORLD];
    struct ls_decoder_size size = {0};
    struct writing w = {.r = r, .g = g, .report = report, .first = ls_comm_rank(world) == 0};
    *report = (struct ls_generation_report){0};
    int status = prepare(&w, &size, error);
    status = ls_comm_agree(world, status, error);
    if (!status)
        status = decoder_prepare(&w, &size, error);
    double start = ls_now_s();
    if (!status && g->piece && g->echo && w.first)
        g->piece(g->user, g->echo, strlen(g->echo));
    if (!status)
        status = writing_run(&w, error);
    status = ls_comm_agree(world, status, error);
    if (!status)
        status = writing_gather(&w, error);
    report->seconds = ls_now_s() - start;
    report->batch = size.sequences;
    report->context = size.context;
    report->blocks = size.blocks;
    if (!status)
        status = ls_decoder_bytes(&r->parts.part, &size, &report->bytes, error);
    writing_release(&w);
    return status;
}

/* ---- one prompt ------------------------------------------------------------------------------ */

static void text_append(void *user, const char *bytes, size_t count)
{
    FILE *file = user;
    fwrite(bytes, 1, count, file);
}

int ls_runner_sample(struct ls_runner *r, const char *prompt, char **text, struct ls_error *error)
{
    const struct ls_config *config = r->parts.config;
    const struct ls_tokenizer *tokenizer = r->parts.tokenizer;
    struct ls_comm *world = r->parts.groups[LS_GROUP_WORLD];
    struct ls_text_requests prompts = {0};
    struct ls_generation_report report;
    size_t bytes = 0;
    *text = NULL;
    const int32_t end = tokenizer ? ls_tokenizer_eod(tokenizer) : 0;
    const struct ls_text_reader reader = {.tokenizer = tokenizer,
                                          .vocabulary = r->parts.layout->model.vocab,
                                          .encode = {.special = true, .around = true}};
    prompt = prompt && prompt[0] ? prompt : "\n";
    FILE *file = ls_comm_rank(world) == 0 ? open_memstream(text, &bytes) : NULL;
    int status = ls_comm_rank(world) == 0 && !file
                     ? ls_no_memory(error, "for a sample's text")
                     : ls_prompt_encode(prompt, &reader, &prompts, error);
    const struct ls_generation generation = {
        .prompts = &prompts,
        .tokens = config->sample.tokens,
        .sampling = {.temperature = (float)config->sample.temperature,
                     .top_p = (float)config->sample.top_p,
                     .top_k = config->sample.top_k},
        .seed = (uint64_t)config->data.seed,
        .batch = 1,
        .ends = &end,
        .end_count = 1,
        .slides = true,
        .piece = text_append,
        .echo = prompt,
        .user = file};
    status = ls_comm_agree(world, status, error);
    if (!status)
        status = ls_runner_continue(r, &generation, &report, error);
    ls_requests_release(&prompts);
    if (file)
        fclose(file);
    if (status) {
        free(*text);
        *text = NULL;
    }
    return status;
}
