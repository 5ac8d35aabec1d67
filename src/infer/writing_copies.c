/* Texts shared out among the copies of a model, which data- and context-parallel ranks hold, and
 * what they wrote brought together: on rank 0 of the world, or on all ranks. */
#include "infer/writing.h"

#include <stdlib.h>
#include <string.h>

void writing_copies_init(struct writing *w)
{
    struct ls_comm *const *groups = w->r->parts.groups;
    int64_t cp = ls_comm_size(groups[LS_GROUP_CP]);
    w->copies = ls_comm_size(groups[LS_GROUP_DP]) * cp;
    w->copy = ls_comm_rank(groups[LS_GROUP_DP]) * cp + ls_comm_rank(groups[LS_GROUP_CP]);
    w->tells = ls_comm_rank(groups[LS_GROUP_TP]) == 0 && w->r->pp_rank == 0;
}

/* Samples of a prompt stay together where there are enough prompts. */
static int64_t copy_of(const struct writing *w, int64_t number)
{
    int64_t prompts = w->g->prompts->count;
    return prompts >= w->copies ? number / w->samples % w->copies
                                : number / ls_ceil_div(ls_max(w->all, 1), w->copies);
}

int64_t writing_next(const struct writing *w, int64_t number)
{
    while (number < w->all && copy_of(w, number) != w->copy)
        number++;
    return number;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

/* Copies that may be interrupted meet each round: all end with the first that was. */
int writing_goes_on(const struct writing *w, int status, bool *any, struct ls_error *error)
{
    struct ls_comm *world = w->r->parts.groups[LS_GROUP_WORLD];
    int64_t active = w->active;
    if ((w->r->parts.together || w->r->interrupt) && w->copies > 1) {
        status = ls_comm_agree(world, status, error);
        if (!status)
            status = ls_all_reduce_max(world, &active, error);
    }
    *any = active > 0;
    return status;
}

/* ---- texts in bytes -------------------------------------------------------------------------- */

/* A text on its way: its ids, log-probabilities and bytes follow. */
struct packed {
    int64_t prompt, sample, count, prompt_count, bytes;
    int32_t finish, logprobs;
};

static size_t packed_bytes(const struct packed *p)
{
    size_t all = sizeof *p + (size_t)p->count * (sizeof(int32_t) + (p->logprobs ? 4 : 0));
    return all + ((size_t)p->bytes + 7) / 8 * 8 + (size_t)(p->count % 2 && !p->logprobs ? 4 : 0);
}

int writing_keep(struct writing *w, const struct written *t, const struct ls_generated *text,
                 struct ls_error *error)
{
    const struct packed p = {t->prompt,
                             t->sample,
                             text->count,
                             text->prompt_count,
                             (int64_t)text->bytes,
                             (int32_t)text->finish,
                             text->logprobs != NULL};
    size_t bytes = packed_bytes(&p), ids = (size_t)text->count * sizeof *text->ids;
    if (!ls_bytes_grow(&w->box.at, w->box.used + bytes, &w->box.room))
        return ls_no_memory(error, "for a text of %ld tokens", (long)text->count);
    char *at = w->box.at + w->box.used;
    memset(at, 0, bytes);
    memcpy(at, &p, sizeof p);
    memcpy(at + sizeof p, text->ids, ids);
    if (p.logprobs)
        memcpy(at + sizeof p + ids, text->logprobs, ids);
    memcpy(at + sizeof p + ids * (p.logprobs ? 2 : 1), text->text, text->bytes);
    w->box.used += bytes;
    return LS_OK;
}

/* The caller hears of all texts of a box. */
static int box_tell(const struct writing *w, const char *at, size_t bytes, struct ls_error *error)
{
    int status = LS_OK;
    for (const char *end = at + bytes; at < end && !status;) {
        struct packed p;
        memcpy(&p, at, sizeof p);
        const char *ids = at + sizeof p, *behind = ids + p.count * (int64_t)sizeof(int32_t);
        const struct ls_generated text = {
            .ids = (const int32_t *)(const void *)ids,
            .count = p.count,
            .prompt_count = p.prompt_count,
            .logprobs = p.logprobs ? (const float *)(const void *)behind : NULL,
            .text = p.logprobs ? behind + p.count * (int64_t)sizeof(float) : behind,
            .bytes = (size_t)p.bytes,
            .finish = (enum ls_finish)p.finish};
        status = w->g->done(w->g->user, p.prompt, p.sample, &text, error);
        at += packed_bytes(&p);
    }
    return status;
}

/* ---- all copies ------------------------------------------------------------------------------ */

/* What copy `copy` kept comes to all ranks. */
static int box_share(struct writing *w, int64_t copy, struct text_box *out, struct ls_error *error)
{
    struct ls_comm *world = w->r->parts.groups[LS_GROUP_WORLD];
    bool mine = w->copy == copy && w->tells;
    int64_t root = mine ? ls_comm_rank(world) : -1, bytes = mine ? (int64_t)w->box.used : 0;
    int status = ls_all_reduce_max(world, &root, error);
    if (!status)
        status = ls_all_reduce_max(world, &bytes, error);
    if (status || !bytes)
        return status;
    out->at = mine ? w->box.at : malloc((size_t)bytes + 1);
    out->used = (size_t)bytes;
    if (!out->at)
        status = ls_no_memory(error, "for %ld bytes of texts", (long)bytes);
    status = ls_comm_agree(world, status, error);
    return status ? status : ls_broadcast(world, out->at, bytes, LS_U8, (int)root, error);
}

static int report_sum(struct writing *w, struct ls_error *error)
{
    struct ls_generation_report *report = w->report;
    struct ls_comm *world = w->r->parts.groups[LS_GROUP_WORLD];
    uint64_t sums[3] = {0};
    if (w->tells) {
        sums[0] = (uint64_t)report->read;
        sums[1] = (uint64_t)report->written;
        sums[2] = (uint64_t)report->put_back;
    }
    int status = ls_all_reduce_u64(world, sums, 3, error);
    report->read = (int64_t)sums[0];
    report->written = (int64_t)sums[1];
    report->put_back = (int64_t)sums[2];
    return status ? status : ls_all_reduce_max(world, &report->blocks_used, error);
}

int writing_gather(struct writing *w, struct ls_error *error)
{
    struct ls_comm *world = w->r->parts.groups[LS_GROUP_WORLD];
    bool everywhere = w->g->everywhere && ls_comm_size(world) > 1;
    int status = report_sum(w, error);
    for (int64_t copy = everywhere ? 0 : 1; copy < w->copies && !status; copy++) {
        struct text_box box = {0};
        status = box_share(w, copy, &box, error);
        bool hears = w->g->done && (w->first ? copy > 0 : everywhere);
        if (!status && hears)
            status = box_tell(w, box.at, box.used, error);
        status = ls_comm_agree(world, status, error);
        if (box.at != w->box.at)
            free(box.at);
    }
    return status;
}
