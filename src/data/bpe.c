/* Byte-pair merging of one piece of text (Sennrich, Haddow, Birch: "Neural machine translation of
 * rare words with subword units", ACL 2016; on bytes as in GPT-2). Text repeats its words, so a
 * direct-mapped cache from piece to ids answers most of the time; other short pieces are merged in
 * place on the stack, long ones by a heap in O(n log n). */
#include "data/data_private.h"

#include <stdlib.h>
#include <string.h>

enum {
    CACHE_SLOTS = 1 << 15,
    CACHE_BYTES_MAX = 22,
    CACHE_IDS_MAX = 10,
    SHORT_MAX = 48, /* up to here looking for the least rank costs less than a heap */
};

/* One cache line. */
struct data_piece {
    uint8_t bytes_count; /* 0: empty */
    uint8_t ids_count;
    unsigned char bytes[CACHE_BYTES_MAX];
    int32_t ids[CACHE_IDS_MAX];
};
_Static_assert(sizeof(struct data_piece) == 64, "a cached piece is one cache line");

int data_bpe_scratch_init(struct data_bpe_scratch *scratch, struct ls_error *error)
{
    *scratch = (struct data_bpe_scratch){0};
    scratch->cache = aligned_alloc(64, CACHE_SLOTS * sizeof *scratch->cache);
    if (!scratch->cache)
        return ls_error_set(error, LS_ENOMEM, "no memory for the tokenizer's cache");
    memset(scratch->cache, 0, CACHE_SLOTS * sizeof *scratch->cache);
    return LS_OK;
}

void data_bpe_scratch_release(struct data_bpe_scratch *scratch)
{
    free(scratch->cache);
    free(scratch->nodes);
    *scratch = (struct data_bpe_scratch){0};
}

/* The merge of the neighbours left and right; NULL where they do not merge. */
static const struct data_merge *merge_find(const struct data_bpe *bpe, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t slot = ls_hash64(&pair, sizeof pair, 0) & bpe->merges_mask;
    while (bpe->merges[slot].rank >= 0) {
        if (bpe->merges[slot].pair == pair)
            return &bpe->merges[slot];
        slot = (slot + 1) & bpe->merges_mask;
    }
    return NULL;
}

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

int data_bpe_encode_long(const struct data_bpe *bpe, struct data_bpe_scratch *scratch,
                         const unsigned char *piece, size_t bytes, struct ls_token_list *out,
                         struct ls_error *error)
{
    LS_ASSERT(bytes > 0 && bytes <= INT32_MAX);
    int32_t n = (int32_t)bytes;
    /* Each merge takes one candidate and may push two, and there are at most n - 1 merges. */
    size_t nodes_bytes = (size_t)ls_round_up((int64_t)(bytes * sizeof(struct node)), 16);
    size_t need = nodes_bytes + 3 * bytes * sizeof(struct candidate);
    if (scratch->nodes_bytes < need) {
        free(scratch->nodes);
        scratch->nodes = malloc(need);
        scratch->nodes_bytes = scratch->nodes ? need : 0;
        if (!scratch->nodes)
            return ls_error_set(error, LS_ENOMEM, "no memory to encode a word of %zu bytes", bytes);
    }
    int rc = data_ids_reserve(out, n, error);
    if (rc)
        return rc;
    struct node *nodes = scratch->nodes;
    struct heap heap = {(struct candidate *)((char *)scratch->nodes + nodes_bytes), 0};
    for (int32_t i = 0; i < n; i++)
        nodes[i] = (struct node){bpe->byte_id[piece[i]], i - 1, i + 1 < n ? i + 1 : -1};
    merge_long(bpe, nodes, &heap, n);
    for (int32_t i = 0; i >= 0; i = nodes[i].next)
        out->ids[out->count++] = nodes[i].id;
    return LS_OK;
}

int data_bpe_encode(const struct data_bpe *bpe, struct data_bpe_scratch *scratch,
                    const unsigned char *piece, size_t bytes, struct ls_token_list *out,
                    struct ls_error *error)
{
    if (bytes > SHORT_MAX)
        return data_bpe_encode_long(bpe, scratch, piece, bytes, out, error);
    int rc = data_ids_reserve(out, (int64_t)bytes, error);
    if (rc)
        return rc;
    struct data_piece *slot = NULL;
    if (bytes <= CACHE_BYTES_MAX) {
        slot = &scratch->cache[ls_hash64(piece, bytes, 0) % CACHE_SLOTS];
        if (slot->bytes_count == bytes && memcmp(slot->bytes, piece, bytes) == 0) {
            memcpy(out->ids + out->count, slot->ids, slot->ids_count * sizeof *slot->ids);
            out->count += slot->ids_count;
            return LS_OK;
        }
    }
    int32_t ids[SHORT_MAX];
    for (size_t i = 0; i < bytes; i++)
        ids[i] = bpe->byte_id[piece[i]];
    int count = merge_short(bpe, ids, (int)bytes);
    memcpy(out->ids + out->count, ids, (size_t)count * sizeof *ids);
    out->count += count;
    if (slot && count <= CACHE_IDS_MAX) {
        slot->bytes_count = (uint8_t)bytes;
        slot->ids_count = (uint8_t)count;
        memcpy(slot->bytes, piece, bytes);
        memcpy(slot->ids, ids, (size_t)count * sizeof *ids);
    }
    return LS_OK;
}
