/* Pairs of neighbours: how often each occurs and where, and a queue of the most frequent ones.
 *
 * Counts only fall once a pair is added. An entry of the queue keeps the count that it had, and is
 * looked at again when it comes to the front (data_pairs_top), so until then a count that falls
 * costs nothing. */
#include "data/train_private.h"

#include <stdlib.h>

enum { SLOTS_FIRST = 1 << 16, BLOCK_BYTES = 1 << 20 };

int data_pairs_init(struct data_pairs *pairs, int64_t frequency_min, struct ls_error *error)
{
    *pairs = (struct data_pairs){.frequency_min = frequency_min, .mask = SLOTS_FIRST - 1};
    pairs->slots = calloc(SLOTS_FIRST, sizeof *pairs->slots);
    return pairs->slots ? LS_OK : ls_no_memory(error, "for pairs of tokens");
}

void data_pairs_release(struct data_pairs *pairs)
{
    for (struct data_block *block = pairs->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    free(pairs->slots);
    free(pairs->queue);
    *pairs = (struct data_pairs){0};
}

/* Its slot, or the empty one where it belongs. */
static struct data_pair *find(const struct data_pairs *pairs, uint64_t key)
{
    uint64_t hash = (key ^ key >> 29) * 0x9e3779b97f4a7c15u;
    for (uint64_t at = hash >> 24 & pairs->mask;; at = (at + 1) & pairs->mask)
        if (!pairs->slots[at].list || pairs->slots[at].key == key)
            return &pairs->slots[at];
}

static int grow(struct data_pairs *pairs, struct ls_error *error)
{
    struct data_pairs more = *pairs;
    more.mask = 2 * pairs->mask + 1;
    more.slots = calloc(more.mask + 1, sizeof *more.slots);
    if (!more.slots)
        return ls_no_memory(error, "for %lld pairs of tokens", (long long)pairs->count);
    for (uint64_t i = 0; i <= pairs->mask; i++)
        if (pairs->slots[i].list)
            *find(&more, pairs->slots[i].key) = pairs->slots[i];
    free(pairs->slots);
    *pairs = more;
    return LS_OK;
}

struct data_pair *data_pairs_find(const struct data_pairs *pairs, uint64_t key)
{
    struct data_pair *pair = find(pairs, key);
    LS_ASSERT(pair->list);
    return pair;
}

/* ---- where pairs are ------------------------------------------------------------------------- */

static struct data_occurrence *list_new(struct data_pairs *pairs, int64_t places,
                                        struct ls_error *error)
{
    size_t bytes = (size_t)places * sizeof(struct data_occurrence);
    struct data_block *block = pairs->blocks;
    if (!block || block->bytes - block->used < bytes) {
        size_t room = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        block = malloc(sizeof *block + room);
        if (!block) {
            ls_no_memory(error, "for the places of %lld pairs of tokens", (long long)pairs->count);
            return NULL;
        }
        *block = (struct data_block){pairs->blocks, 0, room};
        pairs->blocks = block;
    }
    block->used += bytes;
    return (struct data_occurrence *)(void *)((char *)(block + 1) + block->used - bytes);
}

/* ---- the queue ------------------------------------------------------------------------------- */

/* More frequent pairs first, then those of lower ids. */
static bool goes_before(const struct data_queued *a, const struct data_queued *b)
{
    return a->count > b->count || (a->count == b->count && a->key < b->key);
}

static void sift_down(struct data_pairs *pairs, int64_t at)
{
    struct data_queued *queue = pairs->queue, moving = queue[at];
    for (int64_t child; (child = 2 * at + 1) < pairs->queued; at = child) {
        child += child + 1 < pairs->queued && goes_before(&queue[child + 1], &queue[child]);
        if (!goes_before(&queue[child], &moving))
            break;
        queue[at] = queue[child];
    }
    queue[at] = moving;
}

static int queue_put(struct data_pairs *pairs, const struct data_pair *pair, struct ls_error *error)
{
    const struct data_queued moving = {pair->count, pair->key};
    if (!ls_list_grow(&pairs->queue, pairs->queued, &pairs->queue_room, sizeof *pairs->queue))
        return ls_no_memory(error, "for a queue of %lld pairs", (long long)pairs->queued);
    int64_t at = pairs->queued++;
    for (int64_t parent; at > 0; at = parent) {
        parent = (at - 1) / 2;
        if (!goes_before(&moving, &pairs->queue[parent]))
            break;
        pairs->queue[at] = pairs->queue[parent];
    }
    pairs->queue[at] = moving;
    return LS_OK;
}

struct data_pair *data_pairs_top(struct data_pairs *pairs)
{
    while (pairs->queued > 0) {
        struct data_queued *top = &pairs->queue[0];
        struct data_pair *pair = data_pairs_find(pairs, top->key);
        bool current = pair->count == top->count;
        if (current || pair->count < pairs->frequency_min)
            *top = pairs->queue[--pairs->queued];
        else
            top->count = pair->count;
        if (pairs->queued > 0)
            sift_down(pairs, 0);
        if (current)
            return pair;
    }
    return NULL;
}

/* ---- adding ---------------------------------------------------------------------------------- */

int data_pairs_add(struct data_pairs *pairs, uint64_t key, int64_t count, int64_t places,
                   struct data_occurrence **list, struct ls_error *error)
{
    int status = (uint64_t)pairs->count * 2 > pairs->mask ? grow(pairs, error) : LS_OK;
    *list = status ? NULL : list_new(pairs, places, error);
    if (!*list)
        return LS_ENOMEM;
    struct data_pair *pair = find(pairs, key);
    LS_ASSERT(!pair->list);
    *pair = (struct data_pair){key, count, *list, places};
    pairs->count++;
    return count >= pairs->frequency_min ? queue_put(pairs, pair, error) : LS_OK;
}
