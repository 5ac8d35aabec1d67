/* Samples that hold whole documents (data.packing=documents), one behind the other.
 *
 * A document of n tokens has n - 1 targets, each the token behind its input. One of more than T is
 * cut into pieces of T targets and a rest. A sample takes pieces in the order of the stream as long
 * as the next one fits; what is left of its T places is padding. So a sample follows from where it
 * begins, and the places of all samples are found in one pass over the index. */
#include "data/data_private.h"

#include <stdlib.h>
#include <string.h>

/* Where a piece begins: a token of a document. */
struct place {
    int64_t document, token;
};
struct data_packing {
    int64_t tokens; /* T */
    int64_t *ends;  /* of documents, in the stream */
    int64_t documents, room;
    struct place *samples;
    int64_t count, samples_room;
};
struct piece {
    int64_t first, count; /* inputs; the targets lie one token behind */
};

/* The piece at `at` of a sample in which `used` places are taken; false: it does not fit, or there
 * is none. at moves behind it, and in any case over documents without a target. */
static bool piece_next(const struct data_packing *p, struct place *at, int64_t used,
                       struct piece *out)
{
    while (at->document < p->documents && p->ends[at->document] - 1 - at->token <= 0)
        at->token = p->ends[at->document++];
    if (at->document == p->documents)
        return false;
    int64_t count = ls_min(p->ends[at->document] - 1 - at->token, p->tokens);
    if (used + count > p->tokens)
        return false;
    *out = (struct piece){at->token, count};
    at->token += count;
    return true;
}

static int samples_find(struct data_packing *p, struct ls_error *error)
{
    struct place at = {0, 0};
    struct piece piece;
    for (;;) {
        struct place begin = at;
        int64_t used = 0;
        for (; piece_next(p, &at, used, &piece); used += piece.count)
            if (used == 0)
                begin.token = piece.first;
        if (used == 0)
            return LS_OK;
        if (!ls_list_grow(&p->samples, p->count, &p->samples_room, sizeof *p->samples))
            return ls_error_set(error, LS_ENOMEM, "no memory for the places of %lld samples",
                                (long long)p->count);
        /* begin may lie on documents that were passed over: piece_next passes them again. */
        p->samples[p->count++] = begin;
    }
}

int data_packing_new(int64_t tokens, struct data_packing **out, struct ls_error *error)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return ls_error_set(error, LS_ENOMEM, "no memory to pack documents");
    (*out)->tokens = tokens;
    return LS_OK;
}

void data_packing_free(struct data_packing *p)
{
    if (!p)
        return;
    free(p->ends);
    free(p->samples);
    free(p);
}

static int document_add(struct data_packing *p, int64_t end, struct ls_error *error)
{
    if (!ls_list_grow(&p->ends, p->documents, &p->room, sizeof *p->ends))
        return ls_error_set(error, LS_ENOMEM, "no memory for the ends of %lld documents",
                            (long long)p->documents);
    p->ends[p->documents++] = end;
    return LS_OK;
}

int data_packing_add(struct data_packing *p, const struct data_idx *idx, int64_t first,
                     struct ls_error *error)
{
    int64_t sequence = 0, marked = idx->tokens.documents;
    int64_t documents = marked ? marked : idx->tokens.sequences; /* without marks: each is one */
    int status = LS_OK;
    for (int64_t i = 0; i < documents && !status; i++) {
        int64_t end = i + 1;
        int32_t length;
        if (marked)
            memcpy(&end, idx->documents + 8 * (i + 1), sizeof end);
        for (; sequence < end; sequence++) {
            memcpy(&length, idx->lengths + 4 * sequence, sizeof length);
            first += length;
        }
        status = document_add(p, first, error);
    }
    return status;
}

int data_packing_finish(struct data_packing *p, const char *name, struct ls_error *error)
{
    int status = samples_find(p, error);
    if (!status && p->count == 0)
        status =
            ls_error_set(error, LS_EDATA, "%s: no document has two tokens: nothing to learn", name);
    return status;
}

int64_t data_packing_samples(const struct data_packing *p)
{
    return p->count;
}

int data_packing_read(const struct data_packing *p, const struct ls_token_store *store,
                      int64_t sample, int64_t vocabulary, int32_t *inputs, int32_t *targets,
                      struct ls_error *error)
{
    struct place at = p->samples[sample];
    struct piece piece;
    int64_t used = 0;
    int status = LS_OK;
    for (; !status && piece_next(p, &at, used, &piece); used += piece.count) {
        status =
            ls_token_store_read(store, piece.first, piece.count, vocabulary, inputs + used, error);
        if (!status)
            status = ls_token_store_read(store, piece.first + 1, piece.count, vocabulary,
                                         targets + used, error);
        if (!status)
            status =
                ls_token_store_mask(store, piece.first + 1, piece.count, targets + used, error);
    }
    for (; !status && used < p->tokens; used++) {
        inputs[used] = 0;
        targets[used] = -1;
    }
    return status;
}

int data_packing_counted(const struct data_packing *p, const struct ls_token_store *store,
                         int64_t sample, int64_t *counted, struct ls_error *error)
{
    struct place at = p->samples[sample];
    struct piece piece;
    int64_t here;
    int status = LS_OK;
    *counted = 0;
    for (int64_t used = 0; !status && piece_next(p, &at, used, &piece); used += piece.count) {
        status = ls_token_store_counted(store, piece.first + 1, piece.count, &here, error);
        *counted += status ? 0 : here;
    }
    return status;
}

void data_packing_prefetch(const struct data_packing *p, const struct ls_token_store *store,
                           int64_t sample)
{
    struct place at = p->samples[sample];
    struct piece piece;
    for (int64_t used = 0; piece_next(p, &at, used, &piece); used += piece.count)
        ls_token_store_prefetch(store, piece.first, piece.count + 1);
}

void data_packing_starts(const struct data_packing *p, int64_t sample, int32_t *starts)
{
    struct place at = p->samples[sample];
    struct piece piece;
    int64_t used = 0;
    for (; piece_next(p, &at, used, &piece); used += piece.count)
        for (int64_t i = 0; i < piece.count; i++)
            starts[used + i] = (int32_t)used;
    for (int64_t i = used; i < p->tokens; i++)
        starts[i] = (int32_t)used;
}
