/* Byte-pair merging of one piece of text (Sennrich, Haddow, Birch: "Neural machine translation of
 * rare words with subword units", ACL 2016; on bytes as in GPT-2, or on characters). Text repeats
 * its words, so a cache from piece to ids answers most of the time; other short
 * pieces are merged in place on the stack, long ones by a heap in O(n log n). */
#include "data/tokenizer_private.h"

#include <stdlib.h>
#include <string.h>

enum {
    CACHE_SETS = 1 << 15,
    CACHE_WAYS = 2, /* of a set, the one that was used last is first */
    CACHE_BYTES_MAX = DATA_KEY_BYTES_MAX,
    CACHE_IDS_MAX = 9,
    SHORT_MAX = 48, /* up to here looking for the least rank costs less than a heap */
};

/* One cache line. */
struct data_piece {
    struct data_key key;
    uint8_t bytes_count; /* 0: empty */
    uint8_t ids_count;
    int32_t ids[CACHE_IDS_MAX];
};
_Static_assert(sizeof(struct data_piece) == 64, "a cached piece is one cache line");

/* The set of a key. */
static inline struct data_piece *set_of(const struct data_bpe_scratch *scratch,
                                        const struct data_key *key, size_t bytes)
{
    uint64_t hash = key->word[0] * 0x9e3779b97f4a7c15u ^ key->word[1] * 0xc2b2ae3d27d4eb4fu ^
                    key->word[2] * 0x165667b19e3779f9u ^ bytes;
    hash = (hash ^ hash >> 32) * 0xd6e8feb86659fd93u;
    return &scratch->cache[(hash >> 40) % CACHE_SETS * CACHE_WAYS];
}

static inline bool is_cached(const struct data_piece *slot, const struct data_key *key,
                             size_t bytes)
{
    return slot->bytes_count == bytes && slot->key.word[0] == key->word[0] &&
           slot->key.word[1] == key->word[1] && slot->key.word[2] == key->word[2];
}

int data_bpe_scratch_init(struct data_bpe_scratch *scratch, struct ls_error *error)
{
    *scratch = (struct data_bpe_scratch){0};
    const size_t bytes = CACHE_SETS * CACHE_WAYS * sizeof *scratch->cache;
    scratch->cache = aligned_alloc(64, bytes);
    if (!scratch->cache)
        return ls_no_memory(error, "for the tokenizer's cache");
    memset(scratch->cache, 0, bytes);
    return LS_OK;
}

void data_bpe_scratch_release(struct data_bpe_scratch *scratch)
{
    free(scratch->cache);
    free(scratch->nodes);
    *scratch = (struct data_bpe_scratch){0};
}

/* The merge of the neighbours left and right; NULL if they do not merge. */
static const struct data_merge *merge_find(const struct data_bpe *bpe, int32_t left, int32_t right)
{
    const struct data_merge *merge = data_merge_slot(bpe, left, right);
    return merge->rank < 0 ? NULL : merge;
}

/* ---- symbols --------------------------------------------------------------------------------- */

/* *id = the symbol of what has none; returns how many there are. *fuses: what is before it has none
 * either, which may be another token than that symbol. */
static int32_t put_unknown(const struct data_bpe *bpe, struct data_bpe_scratch *scratch,
                           int32_t *id, bool *fuses)
{
    bool fused = bpe->fuse_unknown && *fuses;
    scratch->unknown++;
    *fuses = true;
    if (bpe->unknown < 0 || fused)
        return 0;
    *id = bpe->unknown;
    return 1;
}

static int32_t put_byte(const struct data_bpe *bpe, struct data_bpe_scratch *scratch,
                        unsigned char byte, int32_t *id, bool *fuses)
{
    if (bpe->byte_id[byte] < 0)
        return put_unknown(bpe, scratch, id, fuses);
    *id = bpe->byte_id[byte];
    *fuses = false;
    return 1;
}

/* ids[at most bytes] = what a piece begins as; returns how many. */
static int32_t symbols(const struct data_bpe *bpe, struct data_bpe_scratch *scratch,
                       const unsigned char *piece, size_t bytes, int32_t *ids)
{
    int32_t count = 0;
    bool fuses = false;
    if (bpe->form != DATA_CHARACTERS) {
        for (size_t i = 0; i < bytes; i++)
            count += put_byte(bpe, scratch, piece[i], ids + count, &fuses);
        return count;
    }
    for (size_t i = 0, length; i < bytes; i += length) {
        data_utf8_decode(piece + i, &length);
        int32_t id = length == 1 ? bpe->ascii_id[piece[i]]
                                 : data_bpe_token(bpe, (struct data_string){piece + i, length});
        if (id < 0 && bpe->byte_id[piece[i]] < 0) {
            count += put_unknown(bpe, scratch, ids + count, &fuses);
            continue;
        }
        fuses = false;
        if (id >= 0) {
            ids[count++] = id;
        } else {
            for (size_t k = 0; k < length; k++)
                ids[count++] = bpe->byte_id[piece[i + k]];
        }
    }
    return count;
}

int data_bpe_encode_byte(const struct data_bpe *bpe, struct data_bpe_scratch *scratch,
                         unsigned char byte, struct ls_token_list *out, struct ls_error *error)
{
    int status = data_ids_reserve(out, 1, error);
    if (!status)
        out->count += put_byte(bpe, scratch, byte, out->ids + out->count, &(bool){false});
    return status;
}

/* ---- short pieces ---------------------------------------------------------------------------- */

/* ids[n] are merged in place; returns how many are left. */
static int merge_short(const struct data_bpe *bpe, int32_t *ids, int n)
{
    const struct data_merge *merge[SHORT_MAX]; /* of ids[i] and ids[i + 1] */
    for (int i = 0; i + 1 < n; i++)
        merge[i] = merge_find(bpe, ids[i], ids[i + 1]);
    for (;;) {
        int best = -1;
        for (int i = 0; i + 1 < n; i++)
            if (merge[i] && (best < 0 || merge[i]->rank < merge[best]->rank))
                best = i;
        if (best < 0)
            return n;
        ids[best] = merge[best]->id;
        n--;
        for (int i = best + 1; i < n; i++) {
            ids[i] = ids[i + 1];
            merge[i - 1] = merge[i];
        }
        if (best > 0)
            merge[best - 1] = merge_find(bpe, ids[best - 1], ids[best]);
        if (best + 1 < n)
            merge[best] = merge_find(bpe, ids[best], ids[best + 1]);
    }
}

/* ---- long pieces ---------------------------------------------------------------------------- */

/* A doubly linked list of ids over positions 0 to n - 1; a merged-away node has id -1. */
struct node {
    int32_t id, previous, next; /* -1: none */
};
/* A merge that was possible when it was pushed; stale once either id has changed. */
struct candidate {
    uint64_t order; /* rank << 32 | position of the left id */
    int32_t left, right, merged;
};
struct heap {
    struct candidate *items;
    size_t count;
};

static void sift_down(struct heap *heap, size_t at)
{
    struct candidate item = heap->items[at];
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= heap->count)
            break;
        if (child + 1 < heap->count && heap->items[child + 1].order < heap->items[child].order)
            child++;
        if (heap->items[child].order >= item.order)
            break;
        heap->items[at] = heap->items[child];
        at = child;
    }
    heap->items[at] = item;
}

static void heap_push(struct heap *heap, struct candidate item)
{
    size_t at = heap->count++;
    while (at > 0 && heap->items[(at - 1) / 2].order > item.order) {
        heap->items[at] = heap->items[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap->items[at] = item;
}

static struct candidate heap_pop(struct heap *heap)
{
    struct candidate top = heap->items[0];
    heap->items[0] = heap->items[--heap->count];
    if (heap->count > 0)
        sift_down(heap, 0);
    return top;
}

static bool candidate_of(const struct data_bpe *bpe, const struct node *nodes, int32_t position,
                         struct candidate *out)
{
    int32_t next = nodes[position].next;
    if (next < 0)
        return false;
    const struct data_merge *merge = merge_find(bpe, nodes[position].id, nodes[next].id);
    if (!merge)
        return false;
    *out = (struct candidate){(uint64_t)merge->rank << 32 | (uint32_t)position, nodes[position].id,
                              nodes[next].id, merge->id};
    return true;
}

static void merge_long(const struct data_bpe *bpe, struct node *nodes, struct heap *heap, int32_t n)
{
    struct candidate candidate;
    for (int32_t i = 0; i + 1 < n; i++)
        if (candidate_of(bpe, nodes, i, &candidate))
            heap->items[heap->count++] = candidate;
    for (size_t i = heap->count / 2; i-- > 0;)
        sift_down(heap, i);
    while (heap->count > 0) {
        struct candidate top = heap_pop(heap);
        int32_t at = (int32_t)(uint32_t)top.order, gone = nodes[at].next;
        if (nodes[at].id != top.left || gone < 0 || nodes[gone].id != top.right)
            continue;
        nodes[at].id = top.merged;
        nodes[at].next = nodes[gone].next;
        nodes[gone].id = -1;
        if (nodes[at].next >= 0)
            nodes[nodes[at].next].previous = at;
        if (candidate_of(bpe, nodes, at, &candidate))
            heap_push(heap, candidate);
        if (nodes[at].previous >= 0 && candidate_of(bpe, nodes, nodes[at].previous, &candidate))
            heap_push(heap, candidate);
    }
}

/* Room for a piece of n bytes: nodes, candidates and symbols. */
static int long_room(struct data_bpe_scratch *scratch, size_t n, struct ls_error *error)
{
    /* Each merge takes one candidate and may push two, and there are at most n - 1 merges. */
    size_t need = n * (sizeof(struct node) + 3 * sizeof(struct candidate) + sizeof(int32_t)) + 16;
    if (scratch->nodes_bytes >= need)
        return LS_OK;
    free(scratch->nodes);
    scratch->nodes = malloc(need);
    scratch->nodes_bytes = scratch->nodes ? need : 0;
    return scratch->nodes ? LS_OK : ls_no_memory(error, "to encode a word of %zu bytes", n);
}

int data_bpe_encode_long(const struct data_bpe *bpe, struct data_bpe_scratch *scratch,
                         const unsigned char *piece, size_t bytes, struct ls_token_list *out,
                         struct ls_error *error)
{
    LS_ASSERT(bytes > 0 && bytes <= INT32_MAX);
    int status = long_room(scratch, bytes, error);
    if (!status)
        status = data_ids_reserve(out, (int64_t)bytes, error);
    if (status)
        return status;
    struct heap heap = {scratch->nodes, 0};
    struct node *nodes = (struct node *)(heap.items + 3 * bytes);
    int32_t *ids = (int32_t *)(nodes + bytes), n = symbols(bpe, scratch, piece, bytes, ids);
    for (int32_t i = 0; i < n; i++)
        nodes[i] = (struct node){ids[i], i - 1, i + 1 < n ? i + 1 : -1};
    merge_long(bpe, nodes, &heap, n);
    for (int32_t i = 0; n > 0 && i >= 0; i = nodes[i].next)
        out->ids[out->count++] = nodes[i].id;
    return LS_OK;
}

/* A piece that is not cached, or cannot be. set: where it will be; NULL: nowhere. */
static int encode_new(const struct data_bpe *bpe, struct data_bpe_scratch *scratch,
                      struct data_string piece, struct data_piece *set, struct ls_token_list *out,
                      struct ls_error *error)
{
    int32_t whole = bpe->whole_first ? data_bpe_token(bpe, piece) : -1;
    if (whole < 0 && piece.count > SHORT_MAX)
        return data_bpe_encode_long(bpe, scratch, piece.bytes, piece.count, out, error);
    int32_t *ids = out->ids + out->count;
    int64_t unknown = scratch->unknown;
    int count = 1;
    if (whole >= 0)
        ids[0] = whole;
    else
        count = merge_short(bpe, ids, symbols(bpe, scratch, piece.bytes, piece.count, ids));
    out->count += count;
    if (set && count <= CACHE_IDS_MAX && unknown == scratch->unknown) {
        memmove(set + 1, set, (CACHE_WAYS - 1) * sizeof *set);
        set->key = data_key_of(piece.bytes, piece.count);
        set->bytes_count = (uint8_t)piece.count;
        set->ids_count = (uint8_t)count;
        memcpy(set->ids, ids, (size_t)count * sizeof *ids);
    }
    return LS_OK;
}

int data_bpe_encode(const struct data_bpe *bpe, struct data_bpe_scratch *scratch,
                    const unsigned char *piece, size_t bytes, struct ls_token_list *out,
                    struct ls_error *error)
{
    int64_t room = ls_max((int64_t)bytes, CACHE_IDS_MAX);
    int status = out->capacity - out->count < room ? data_ids_reserve(out, room, error) : LS_OK;
    if (status)
        return status;
    struct data_piece *set = NULL;
    if (bytes <= CACHE_BYTES_MAX) {
        const struct data_key key = data_key_of(piece, bytes);
        set = set_of(scratch, &key, bytes);
        for (int way = 0; way < CACHE_WAYS; way++)
            if (is_cached(&set[way], &key, bytes)) {
                memcpy(out->ids + out->count, set[way].ids, sizeof set[way].ids);
                out->count += set[way].ids_count;
                if (way > 0) {
                    struct data_piece used = set[way];
                    memmove(set + 1, set, (size_t)way * sizeof *set);
                    set[0] = used;
                }
                return LS_OK;
            }
    }
    return encode_new(bpe, scratch, (struct data_string){piece, bytes}, set, out, error);
}
