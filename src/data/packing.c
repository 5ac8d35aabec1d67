/* What a sample is: a stretch of the stream, or whole documents, one behind the other, in the order
 * of the stream (data.packing=documents) or as a file says (data.packing=best_fit, pack_file.c).
 *
 * A document of n tokens has n - 1 targets, each the token behind its input. One of more than T is
 * cut into pieces of T targets and a rest. A sample takes pieces in the order of the stream as long
 * as the next one fits; what is left of its T places is padding. So in the order of the stream a
 * sample follows from where it begins, and the places of all samples are found in one pass over the
 * index. */
#include "data/data_private.h"

#include <stdlib.h>

/* Where a piece begins: a token of a document. */
struct pack_place {
    int64_t document, token;
};
/* The packing of one store of the stream. */
struct packed {
    unsigned char *file;
    struct data_pack pack;       /* in the file */
    int64_t first, first_sample; /* of the stream */
};
struct data_packing {
    int64_t tokens; /* T */
    int64_t *ends;  /* of documents, in the stream */
    int64_t documents, room;
    struct pack_place *samples;
    int64_t count, samples_room;
    struct packed *packed; /* instead of documents and samples */
    int64_t packed_count, packed_room;
};
struct piece {
    int64_t first, count; /* inputs; the targets lie one token behind */
    int64_t start;        /* where it begins in its sample */
};

/* The piece at `at` of a sample in which `used` places are taken; false: it does not fit, or there
 * is none. at moves behind it, and in any case over documents without a target. */
static bool piece_next(const struct data_packing *p, struct pack_place *at, int64_t used,
                       struct piece *out)
{
    while (at->document < p->documents && p->ends[at->document] - 1 - at->token <= 0)
        at->token = p->ends[at->document++];
    if (at->document == p->documents)
        return false;
    int64_t count = ls_min(p->ends[at->document] - 1 - at->token, p->tokens);
    if (used + count > p->tokens)
        return false;
    *out = (struct piece){at->token, count, used};
    at->token += count;
    return true;
}

static int samples_find(struct data_packing *p, struct ls_error *error)
{
    struct pack_place at = {0, 0};
    struct piece piece;
    for (;;) {
        struct pack_place begin = at;
        int64_t used = 0;
        for (; piece_next(p, &at, used, &piece); used += piece.count)
            if (used == 0)
                begin.token = piece.first;
        if (used == 0)
            return LS_OK;
        if (!ls_list_grow(&p->samples, p->count, &p->samples_room, sizeof *p->samples))
            return ls_no_memory(error, "for the places of %lld samples", (long long)p->count);
        /* begin may lie on documents that were passed over: piece_next passes them again. */
        p->samples[p->count++] = begin;
    }
}

int data_packing_new(int64_t tokens, struct data_packing **out, struct ls_error *error)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return ls_no_memory(error, "to pack documents");
    (*out)->tokens = tokens;
    return LS_OK;
}

void data_packing_free(struct data_packing *p)
{
    if (!p)
        return;
    for (int64_t i = 0; i < p->packed_count; i++)
        free(p->packed[i].file);
    free(p->packed);
    free(p->ends);
    free(p->samples);
    free(p);
}

int data_packing_add(struct data_packing *p, const struct data_idx *idx, int64_t first,
                     struct ls_error *error)
{
    struct data_idx_walk walk = {0};
    for (int64_t begin, count; data_idx_next(idx, &walk, &begin, &count);) {
        if (!ls_list_grow(&p->ends, p->documents, &p->room, sizeof *p->ends))
            return ls_no_memory(error, "for the ends of %lld documents", (long long)p->documents);
        p->ends[p->documents++] = first + walk.token;
    }
    return LS_OK;
}

int data_packing_add_pack(struct data_packing *p, const char *name, unsigned char *file,
                          size_t bytes, const struct data_ends *ends, int64_t first,
                          struct ls_error *error)
{
    if (!ls_list_grow(&p->packed, p->packed_count, &p->packed_room, sizeof *p->packed)) {
        free(file);
        return ls_no_memory(error, "to open %s", name);
    }
    struct packed *packed = &p->packed[p->packed_count++];
    *packed = (struct packed){.file = file, .first = first, .first_sample = p->count};
    int status = data_pack_parse(name, file, bytes, ends, p->tokens, &packed->pack, error);
    p->count += packed->pack.samples;
    return status;
}

int data_packing_finish(struct data_packing *p, const char *name, struct ls_error *error)
{
    int status = p->packed_count > 0 ? LS_OK : samples_find(p, error);
    if (!status && p->count == 0)
        status =
            ls_error_set(error, LS_EDATA, "%s: no document has two tokens: nothing to learn", name);
    return status;
}

int64_t data_packing_samples(const struct data_packing *p)
{
    return p->count;
}

/* ---- samples --------------------------------------------------------------------------------- */

/* The pieces of one sample, one after the other; of the stream it is one piece. */
struct walk {
    const struct data_packing *packing; /* NULL: of the stream */
    int64_t tokens;                     /* T */
    struct pack_place at;
    const struct packed *packed; /* of the file that it is in: */
    int64_t piece, end;
    int64_t used; /* places that its pieces take so far */
};

/* The store whose packing holds the sample. */
static const struct packed *packed_of(const struct data_packing *p, int64_t sample)
{
    int64_t low = 0, high = p->packed_count;
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        *(p->packed[middle].first_sample <= sample ? &low : &high) = middle;
    }
    return &p->packed[low];
}

static struct walk walk_begin(const struct ls_token_store *store, int64_t sample, int64_t tokens)
{
    const struct data_packing *p = data_store_packing(store);
    struct walk walk = {.packing = p, .tokens = tokens};
    if (!p) {
        walk.at.token = sample * tokens;
        return walk;
    }
    LS_ASSERT(sample >= 0 && sample < p->count);
    if (p->packed_count == 0) {
        walk.at = p->samples[sample];
        return walk;
    }
    walk.packed = packed_of(p, sample);
    sample -= walk.packed->first_sample;
    walk.piece = data_pack_before(&walk.packed->pack, sample);
    walk.end = data_pack_before(&walk.packed->pack, sample + 1);
    return walk;
}

static bool walk_next(struct walk *walk, struct piece *out)
{
    bool found = true;
    if (!walk->packing) {
        found = walk->used == 0;
        *out = (struct piece){walk->at.token, walk->tokens, 0};
    } else if (!walk->packed) {
        found = piece_next(walk->packing, &walk->at, walk->used, out);
    } else if ((found = walk->piece < walk->end)) {
        data_pack_piece(&walk->packed->pack, walk->piece++, &out->first, &out->count);
        out->first += walk->packed->first;
    }
    out->start = walk->used;
    walk->used += found ? out->count : 0;
    return found;
}

/* Inputs and targets overlap in all but one token, so the store is read once. */
int ls_sample_read(const struct ls_token_store *store, int64_t sample, int64_t sequence_tokens,
                   int64_t vocabulary, int32_t *inputs, int32_t *targets, struct ls_error *error)
{
    if (sample < 0 || sequence_tokens < 1 || sample > INT64_MAX / sequence_tokens - 1)
        return ls_error_set(error, LS_EINVAL, "sample %lld of %lld tokens: cannot be read",
                            (long long)sample, (long long)sequence_tokens);
    struct walk walk = walk_begin(store, sample, sequence_tokens);
    struct piece piece;
    int status = LS_OK;
    while (!status && walk_next(&walk, &piece)) {
        int32_t *in = inputs + piece.start, *out = targets + piece.start;
        int64_t last = piece.count - 1;
        status = ls_token_store_read(store, piece.first, piece.count, vocabulary, in, error);
        if (status)
            break;
        memcpy(out, in + 1, (size_t)last * sizeof *out);
        status =
            ls_token_store_read(store, piece.first + piece.count, 1, vocabulary, out + last, error);
        if (!status)
            status = ls_token_store_mask(store, piece.first + 1, piece.count, out, error);
    }
    for (int64_t i = walk.used; !status && i < sequence_tokens; i++) {
        inputs[i] = 0;
        targets[i] = -1;
    }
    return status;
}

int ls_sample_weights(const struct ls_token_store *store, int64_t sample, int64_t sequence_tokens,
                      float *weights, struct ls_error *error)
{
    struct walk walk = walk_begin(store, sample, sequence_tokens);
    struct piece piece;
    int status = LS_OK;
    while (!status && walk_next(&walk, &piece))
        status = ls_token_store_weights(store, piece.first + 1, piece.count, weights + piece.start,
                                        error);
    for (int64_t i = walk.used; !status && i < sequence_tokens; i++)
        weights[i] = 0;
    return status;
}

int ls_sample_counted(const struct ls_token_store *store, int64_t sample, int64_t sequence_tokens,
                      int64_t *counted, struct ls_error *error)
{
    struct walk walk = walk_begin(store, sample, sequence_tokens);
    struct piece piece;
    int64_t here;
    int status = LS_OK;
    *counted = 0;
    while (!status && walk_next(&walk, &piece)) {
        status = ls_token_store_counted(store, piece.first + 1, piece.count, &here, error);
        *counted += status ? 0 : here;
    }
    return status;
}

void ls_sample_prefetch(const struct ls_token_store *store, int64_t sample, int64_t sequence_tokens)
{
    struct walk walk = walk_begin(store, sample, sequence_tokens);
    struct piece piece;
    while (walk_next(&walk, &piece))
        ls_token_store_prefetch(store, piece.first, piece.count + 1);
}

void ls_sample_starts(const struct ls_token_store *store, int64_t sample, int32_t *starts)
{
    struct walk walk = walk_begin(store, sample, data_store_packing(store)->tokens);
    struct piece piece;
    while (walk_next(&walk, &piece))
        for (int64_t i = 0; i < piece.count; i++)
            starts[piece.start + i] = (int32_t)piece.start;
    for (int64_t i = walk.used; i < walk.tokens; i++)
        starts[i] = (int32_t)walk.used;
}
