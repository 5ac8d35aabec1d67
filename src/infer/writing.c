/* Texts continued from prompts, many at a time: each has a place in the decoder, and a step feeds
 * the next tokens of all of them (writing_plan.c). When one ends, the next takes its place. */
#include "infer/writing.h"

#include <stdlib.h>
#include <string.h>

static int64_t context_of(const struct writing *w)
{
    return w->r->parts.layout->model.context;
}

/* ---- a text ---------------------------------------------------------------------------------- */

static int id_append(struct written *t, int32_t id, float logprob, struct ls_error *error)
{
    if (!ls_list_grow(&t->ids, t->count, &t->room, sizeof *t->ids) ||
        !ls_list_grow(&t->logprobs, t->count, &t->logprob_room, sizeof *t->logprobs))
        return ls_no_memory(error, "for a text of %ld tokens", (long)t->count);
    t->ids[t->count] = id;
    t->logprobs[t->count++] = logprob;
    return LS_OK;
}

int writing_begin(struct writing *w, struct written *t, int64_t number, struct ls_error *error)
{
    const struct ls_generation *g = w->g;
    const struct ls_text_request *request = &g->prompts->list[number / w->samples];
    bool same = t->request == request; /* its log-probabilities are known */
    int status = LS_OK;
    t->prompt = number / w->samples;
    t->sample = number % w->samples;
    t->request = request;
    t->count = t->base = t->fed = 0;
    t->text.count = t->told = 0;
    t->detokenizer = (struct ls_detokenizer){.tokenizer = w->r->parts.tokenizer};
    for (int64_t i = 0; i < request->tokens.count && !status; i++) {
        status = id_append(t, request->tokens.ids[i], same ? t->logprobs[i] : 0, error);
        if (!status && w->r->parts.tokenizer &&
            t->ids[i] < w->vocabulary) /* what is drawn goes on with its text */
            status = ls_detokenizer_next(&t->detokenizer, t->ids[i], &t->text, error);
    }
    t->text.count = 0;
    t->most = t->count + prompt_added(request, g->tokens);
    if (t->count > context_of(w))
        t->base = t->count - ls_max(context_of(w) / 2, 1);
    w->report->read += t->sample == 0 ? t->count : 0;
    return status;
}

/* Where the first of the texts to stop at begins, if it ends behind `from`; else count. */
static size_t stop_find(const struct writing *w, const struct written *t, size_t from)
{
    size_t at = t->text.count;
    for (int i = 0; i < w->g->stop_count + t->request->stop_count; i++) {
        const char *stop =
            i < w->g->stop_count ? w->g->stops[i] : t->request->stops[i - w->g->stop_count];
        size_t length = strlen(stop), begin = from > length - 1 ? from - (length - 1) : 0;
        const char *found = memmem(t->text.bytes + begin, t->text.count - begin, stop, length);
        if (found && (size_t)(found - t->text.bytes) < at)
            at = (size_t)(found - t->text.bytes);
    }
    return at;
}

/* Bytes at the end that may be the beginning of a text to stop at. */
static size_t stop_may_begin(const struct writing *w, const struct written *t)
{
    size_t most = 0;
    for (int i = 0; i < w->g->stop_count; i++)
        most = (size_t)ls_max((int64_t)most, (int64_t)strlen(w->g->stops[i]) - 1);
    return (size_t)ls_min((int64_t)most, (int64_t)(t->text.count - t->told));
}

/* The caller hears of what is sure to stay. */
static void text_tell(const struct writing *w, struct written *t, bool whole)
{
    size_t end = t->text.count - (whole ? 0 : stop_may_begin(w, t));
    if (w->g->piece && w->first && end > t->told)
        w->g->piece(w->g->user, t->text.bytes + t->told, end - t->told);
    t->told = end;
}

static bool is_end(const struct writing *w, int32_t id)
{
    for (int i = 0; i < w->g->end_count; i++)
        if (w->g->ends[i] == id)
            return true;
    return false;
}

/* Takes a token that was drawn, or -1, which all ranks see; whether the text ends, and why. */
static int text_append(struct writing *w, struct written *t, int32_t id, float logprob, bool *ended,
                       struct ls_error *error)
{
    size_t before = t->text.count;
    if (id < 0)
        return ls_error_set(error, LS_ENUMERIC,
                            "prompt %ld, token %ld: the model's logits are not finite; its weights "
                            "are damaged, or too large for numerics.precision (fp16 ends at 65504)",
                            (long)t->prompt, (long)t->count);
    int status = id_append(t, id, logprob, error);
    w->report->written++;
    *ended = true;
    t->finish = LS_FINISH_END;
    if (status || is_end(w, id))
        return status;
    if (w->r->parts.tokenizer)
        status = ls_detokenizer_next(&t->detokenizer, id, &t->text, error);
    size_t stop = status ? before : stop_find(w, t, before);
    t->finish = LS_FINISH_STOP;
    if (stop < t->text.count) {
        t->text.count = stop;
        return status;
    }
    t->finish = t->count == t->most ? LS_FINISH_LENGTH : LS_FINISH_CONTEXT;
    if (t->count == t->most || (!w->g->slides && t->count > context_of(w)))
        return status;
    *ended = false;
    text_tell(w, t, false);
    return status;
}

/* ---- a step ---------------------------------------------------------------------------------- */

static bool targets_any(const struct writing *w)
{
    for (int64_t i = 0; i < w->row_count; i++)
        if (w->targets[i] >= 0)
            return true;
    return false;
}

/* The uniform number depends on the prompt, the sample and the place in its text alone. */
static int32_t token_draw(const struct writing *w, const struct written *t, const float *logits)
{
    uint64_t at = (uint64_t)(t->count - t->request->tokens.count), prompt = (uint64_t)t->prompt;
    uint32_t counter[4] = {(uint32_t)at, (uint32_t)prompt, (uint32_t)(prompt >> 32),
                           (uint32_t)t->sample};
    uint32_t bits[4];
    ls_philox(ls_philox_key_of(w->g->seed, "generate"), counter, bits);
    struct ls_sampling sampling = w->g->sampling;
    sampling.temperature = w->g->scaled ? 1 : sampling.temperature; /* logits are divided already */
    return ls_sample(&sampling, logits, w->vocabulary, w->order, ls_uniform_of(bits[0]));
}

/* found[i] = the token behind the i-th run that ends, above the bits of its log-probability. */
static int tokens_draw(struct writing *w, const float *logits, struct ls_error *error)
{
    struct ls_ops *ops = w->r->parts.ops;
    int status = ls_queue_synchronise(&ops->queue, error);
    int64_t padded = w->r->parts.layout->model.vocab_padded, count = 0;
    for (int i = 0; i < w->run_count && !status; i++)
        if (w->runs[i].ends) {
            w->drawn[count] =
                token_draw(w, &w->texts[w->runs[i].sequence], logits + count * padded);
            count++;
        }
    if (w->g->logprobs && count) {
        ls_decoder_losses(w->r->decoder, ops, w->drawn, w->losses);
        status = ls_queue_synchronise(&ops->queue, error);
    }
    for (int64_t i = 0; i < count; i++)
        w->found[i] = (uint64_t)w->drawn[i] << 32 |
                      (w->g->logprobs ? found_of(w->losses[i], false) & 0xffffffffu : 0);
    return status;
}

/* Behind those of the drawn tokens stand those of the rows' targets. */
static int step_run(struct writing *w, int64_t *ending, struct ls_error *error)
{
    struct ls_runner *r = w->r;
    struct ls_model *model = ls_decoder_model(r->decoder);
    struct ls_micro_batch batch;
    int status = ls_decoder_begin(r->decoder, w->runs, w->run_count, w->ids, &batch, error);
    batch.targets = status || !targets_any(w) ? NULL : w->targets;
    batch.temperature = w->g->scaled ? w->g->sampling.temperature : 1;
    bool scored = batch.targets != NULL;
    *ending = 0;
    for (int i = 0; i < w->run_count; i++)
        *ending += w->runs[i].ends;
    if (!status)
        status = runner_forward(r, model, &batch, error);
    const float *logits = status ? NULL : ls_decoder_end(r->decoder, r->parts.ops);
    memset(w->found, 0, (size_t)(*ending + w->row_count) * sizeof *w->found);
    if (logits)
        status = tokens_draw(w, logits, error);
    for (int64_t i = 0; logits && scored && i < w->row_count; i++)
        if (w->targets[i] >= 0)
            w->found[*ending + i] = found_of(ls_model_row_losses(model)[i], false);
    int64_t words = *ending + (scored ? w->row_count : 0);
    return status ? status
                  : ls_all_reduce_u64(r->parts.groups[LS_GROUP_PP], w->found, words, error);
}

/* ---- results --------------------------------------------------------------------------------- */

/* Rank 0 may fail to write what it is given: then all end. */
static int text_done(struct writing *w, struct written *t, struct ls_error *error)
{
    struct ls_comm *const *groups = w->r->parts.groups;
    struct ls_generated result = {.ids = t->ids,
                                  .count = t->count,
                                  .prompt_count = t->request->tokens.count,
                                  .logprobs = w->g->logprobs ? t->logprobs : NULL,
                                  .finish = t->finish};
    /* Bytes of a character that no token completed. */
    int status = LS_OK;
    if (w->r->parts.tokenizer && t->finish != LS_FINISH_STOP)
        status = ls_detokenizer_end(&t->detokenizer, &t->text, error);
    result.text = t->text.bytes ? t->text.bytes : "";
    result.bytes = t->text.count;
    text_tell(w, t, true);
    if (!status && w->tells && (w->copy > 0 || w->g->everywhere))
        status = writing_keep(w, t, &result, error);
    if (!status && w->first && w->g->done)
        status = w->g->done(w->g->user, t->prompt, t->sample, &result, error);
    writing_leave(w, t);
    status = ls_comm_agree(groups[LS_GROUP_TP], status, error);
    return ls_comm_agree(groups[LS_GROUP_PP], status, error);
}

/* Rows' log-probabilities go to their prompts, drawn tokens behind their texts. */
static int found_take_all(struct writing *w, int64_t ending, struct ls_error *error)
{
    int64_t row = 0, drawn = 0;
    int status = LS_OK;
    for (int i = 0; i < w->run_count && !status; i++) {
        const struct ls_decoder_run *run = &w->runs[i];
        struct written *t = &w->texts[run->sequence];
        for (int64_t k = 0; k < run->count; k++, row++)
            if (w->targets[row] >= 0)
                t->logprobs[t->base + t->fed + k + 1] = found_logprob(w->found[ending + row]);
        t->fed += run->count;
        if (!run->ends)
            continue;
        bool ended = false;
        uint64_t found = w->found[drawn++];
        status = text_append(w, t, (int32_t)(found >> 32), found_logprob(found), &ended, error);
        if (!status && ended)
            status = text_done(w, t, error);
    }
    return status;
}

/* ---- all texts ------------------------------------------------------------------------------- */

static int round_run(struct writing *w, int64_t *ended, struct ls_error *error)
{
    int64_t ending = 0, before = w->active;
    writing_plan(w);
    int status = step_run(w, &ending, error);
    if (!status)
        status = found_take_all(w, ending, error);
    *ended += before - w->active;
    return status ? status : writing_fill(w, error);
}

/* Layers whose weights come from several ranks take all of them, with texts or without. */
static int round_run_empty(struct writing *w, struct ls_error *error)
{
    return w->r->parts.together ? runner_forward(w->r, ls_decoder_model(w->r->decoder), NULL, error)
                                : LS_OK;
}

/* Collective over those who work on the same texts; over the world writing_goes_on agrees. */
static int interruption(const struct writing *w, int status, struct ls_error *error)
{
    struct ls_comm *const *groups = w->r->parts.groups;
    if (!w->r->interrupt)
        return status;
    status = runner_interrupted(w->r, status, error);
    status = ls_comm_agree(groups[LS_GROUP_TP], status, error);
    return ls_comm_agree(groups[LS_GROUP_PP], status, error);
}

int writing_run(struct writing *w, struct ls_error *error)
{
    int64_t ended = 0, mine = 0;
    bool any;
    for (int64_t i = writing_next(w, 0); i < w->all; i = writing_next(w, i + 1))
        mine++;
    w->next = writing_next(w, 0);
    int status = writing_goes_on(w, writing_fill(w, error), &any, error);
    while (any && !status) {
        status = w->active > 0 ? round_run(w, &ended, error) : round_run_empty(w, error);
        if (mine > 1 && w->first) /* one shows its text */
            runner_tell(w->r, "texts", ended, mine);
        status = writing_goes_on(w, interruption(w, status, error), &any, error);
    }
    return status;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static bool taken(const struct writing *w)
{
    return w->texts && w->runs && w->ids && w->targets && w->found && w->drawn && w->losses &&
           w->order && w->by_age && w->counts;
}

int writing_open(struct writing *w, const struct ls_decoder_size *size, struct ls_error *error)
{
    size_t places = (size_t)size->sequences, rows = (size_t)size->rows;
    w->places = size->sequences;
    w->texts = calloc(places, sizeof *w->texts);
    w->runs = calloc(places, sizeof *w->runs);
    w->ids = calloc(rows, sizeof *w->ids);
    w->targets = calloc(rows, sizeof *w->targets);
    w->found = calloc(rows + places, sizeof *w->found);
    w->drawn = calloc(places, sizeof *w->drawn);
    w->losses = calloc(places, sizeof *w->losses);
    w->by_age = calloc(places, sizeof *w->by_age);
    w->counts = calloc(places, sizeof *w->counts);
    w->order = calloc((size_t)w->vocabulary, sizeof *w->order);
    if (!taken(w))
        return ls_no_memory(error, "for %zu texts", places);
    for (size_t i = 0; i < places; i++) {
        w->texts[i].prompt = -1;
        ls_decoder_reset(w->r->decoder, (int64_t)i);
    }
    return LS_OK;
}

void writing_release(struct writing *w)
{
    for (int64_t i = 0; i < w->places && w->texts; i++) {
        free(w->texts[i].ids);
        free(w->texts[i].logprobs);
        ls_text_release(&w->texts[i].text);
    }
    free(w->texts);
    free(w->runs);
    free(w->ids);
    free(w->targets);
    free(w->found);
    free(w->drawn);
    free(w->losses);
    free(w->order);
    free(w->by_age);
    free(w->box.at);
    free(w->counts);
}
