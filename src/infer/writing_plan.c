/* What each text does in a step: which goes on, by how many tokens, and who waits.
 *
 * Texts are ordered by number. An older one that finds no free block of key/value memory puts back
 * the youngest: that one loses its blocks, keeps what it has written, and is fed again, all of it,
 * when there is room. A text that finds none younger waits with what it has. So the oldest always
 * goes on. Samples wait for their prompt, which the first of them feeds, and share its blocks. */
#include "infer/writing.h"

#include <string.h>

static int64_t place_of(const struct writing *w, const struct written *t)
{
    return t - w->texts;
}

static int64_t prompt_count(const struct written *t)
{
    return t->request->tokens.count;
}

/* ---- what samples share ---------------------------------------------------------------------- */

/* The prompt but for its last token, whose row draws the sample's first. */
static int64_t shareable(const struct written *t)
{
    return t->base == 0 ? prompt_count(t) - 1 : 0;
}

/* A place that holds this text's prompt, of a text that goes on or has just ended; NULL: none. */
static const struct written *donor_find(const struct writing *w, const struct written *t)
{
    for (int64_t i = 0; i < w->places; i++) {
        const struct written *other = &w->texts[i];
        if (other->request == t->request && other->base == 0 && other->fed >= shareable(t))
            return other;
    }
    return NULL;
}

static void prompt_share(struct writing *w, const struct written *from, struct written *t)
{
    ls_decoder_share(w->r->decoder, place_of(w, from), place_of(w, t), shareable(t));
    if (from != t)
        memcpy(t->logprobs, from->logprobs, (size_t)prompt_count(t) * sizeof *t->logprobs);
    t->fed = shareable(t);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* The youngest text behind w->order[i] that has any blocks gives them back. */
static bool put_back_youngest(struct writing *w, int64_t i)
{
    for (int64_t k = w->active - 1; k > i; k--) {
        struct written *t = &w->texts[w->by_age[k]];
        if (t->fed == 0)
            continue;
        ls_decoder_reset(w->r->decoder, place_of(w, t));
        t->fed = 0;
        w->report->put_back++;
        return true;
    }
    return false;
}

/* The whole of it, and a block to grow into if it may come to more. */
static int64_t blocks_to_start(const struct writing *w, const struct written *t)
{
    int64_t context = w->r->parts.layout->model.context;
    int64_t fed_most = ls_min(t->most - 1 - t->base, context); /* the last token drawn is not fed */
    int64_t now = ls_ceil_div(t->count - t->base, LS_ATTENTION_BLOCK);
    return ls_max(now, ls_min(now + 1, ls_ceil_div(fed_most, LS_ATTENTION_BLOCK)));
}

/* Whether text i, of which nothing is in memory, begins in this step: the oldest in any case,
 * others where the whole of it finds room. */
static bool text_start(struct writing *w, int64_t i)
{
    struct written *t = &w->texts[w->by_age[i]];
    const struct written *donor = shareable(t) > 0 ? donor_find(w, t) : NULL;
    for (int64_t k = 0; k < i && !donor && shareable(t) > 0; k++)
        if (w->texts[w->by_age[k]].request == t->request && w->texts[w->by_age[k]].base == 0)
            return false; /* that one feeds it */
    int64_t shared = donor ? shareable(t) / LS_ATTENTION_BLOCK : 0;
    if (i > 0 && ls_decoder_blocks_free(w->r->decoder) < blocks_to_start(w, t) - shared)
        return false;
    if (donor)
        prompt_share(w, donor, t);
    return true;
}

/* When the model's context is full, a text begins again with the newer half of what it held, so
 * that it may be longer than the context. */
static void text_slide(struct writing *w, struct written *t)
{
    if (t->base + t->fed == t->count || ls_decoder_room(w->r->decoder, place_of(w, t)) > 0)
        return;
    ls_decoder_reset(w->r->decoder, place_of(w, t));
    t->base = t->count - ls_max(w->r->parts.layout->model.context / 2, 1);
    t->fed = 0;
}

/* Tokens of text i in this step, `most` at most: as many as find blocks. */
static int64_t text_reserve(struct writing *w, int64_t i, int64_t most)
{
    struct written *t = &w->texts[w->by_age[i]];
    struct ls_decoder *decoder = w->r->decoder;
    text_slide(w, t);
    if (t->fed == 0 && !text_start(w, i))
        return 0;
    int64_t count = ls_min(most, t->count - t->base - t->fed);
    while (count > 1 && !ls_decoder_reserve(decoder, place_of(w, t), count))
        count = ls_max(count - LS_ATTENTION_BLOCK, 1);
    while (!ls_decoder_reserve(decoder, place_of(w, t), count))
        if (!put_back_youngest(w, i))
            return 0;
    return count;
}

/* ---- a step ---------------------------------------------------------------------------------- */

static void run_add(struct writing *w, const struct written *t, int64_t count)
{
    int64_t waiting = t->count - t->base - t->fed;
    w->runs[w->run_count++] = (struct ls_decoder_run){place_of(w, t), count, count == waiting};
    for (int64_t k = 0; k < count; k++) {
        int64_t at = t->base + t->fed + k;
        bool known = w->g->logprobs && at + 1 < prompt_count(t);
        w->ids[w->row_count] = t->ids[at];
        w->targets[w->row_count++] = known ? t->ids[at + 1] : -1;
    }
}

void writing_plan(struct writing *w)
{
    int64_t rows = ls_decoder_size(w->r->decoder)->rows - w->active;
    w->run_count = 0;
    w->row_count = 0;
    for (int64_t i = 0; i < w->active; i++) {
        int64_t count = text_reserve(w, i, 1 + rows);
        w->counts[w->by_age[i]] = count;
        rows -= ls_max(count - 1, 0);
    }
    for (int64_t i = 0; i < w->places; i++)
        if (w->texts[i].prompt >= 0 && w->counts[i] > 0)
            run_add(w, &w->texts[i], w->counts[i]);
    int64_t used = ls_decoder_size(w->r->decoder)->blocks - ls_decoder_blocks_free(w->r->decoder);
    w->report->blocks_used = ls_max(w->report->blocks_used, used);
}

/* ---- places ---------------------------------------------------------------------------------- */

void writing_leave(struct writing *w, struct written *t)
{
    int64_t k = 0;
    t->prompt = -1;
    while (w->by_age[k] != place_of(w, t))
        k++;
    w->active--;
    memmove(w->by_age + k, w->by_age + k + 1, (size_t)(w->active - k) * sizeof *w->by_age);
}

/* What has ended keeps its blocks until those who may share its prompt have begun. */
static void places_clear(struct writing *w)
{
    for (int64_t i = 0; i < w->places; i++) {
        struct written *t = &w->texts[i];
        if (t->prompt >= 0 || !t->request)
            continue;
        ls_decoder_reset(w->r->decoder, i);
        t->request = NULL;
        t->fed = 0;
    }
}

int writing_fill(struct writing *w, struct ls_error *error)
{
    int status = LS_OK;
    for (int64_t i = 0; i < w->places && !status && w->next < w->all; i++) {
        struct written *t = &w->texts[i];
        if (t->prompt >= 0)
            continue;
        struct written was = *t;
        int64_t number = w->next;
        w->next = writing_next(w, number + 1);
        status = writing_begin(w, t, number, error);
        if (was.request == t->request && was.base == 0 && was.fed >= shareable(t))
            prompt_share(w, t, t);
        else
            ls_decoder_reset(w->r->decoder, i);
        const struct written *donor = t->fed || shareable(t) < 1 ? NULL : donor_find(w, t);
        if (donor && !status)
            prompt_share(w, donor, t);
        w->by_age[w->active++] = i;
    }
    places_clear(w);
    return status;
}
