/* The tokens that training has made so far, found by their bytes. */
#include "data/train_private.h"

#include <stdlib.h>
#include <string.h>

int data_vocabulary_init(struct data_vocabulary *vocabulary, int64_t most, struct ls_error *error)
{
    uint64_t slots = 2;
    while (slots < 2 * (uint64_t)most)
        slots *= 2;
    *vocabulary = (struct data_vocabulary){.room = most, .slots_mask = slots - 1};
    vocabulary->offset = calloc((size_t)most + 1, sizeof *vocabulary->offset);
    vocabulary->slots = malloc(slots * sizeof *vocabulary->slots);
    if (!vocabulary->offset || !vocabulary->slots)
        return ls_no_memory(error, "for %lld tokens", (long long)most);
    memset(vocabulary->slots, -1, slots * sizeof *vocabulary->slots);
    return LS_OK;
}

void data_vocabulary_release(struct data_vocabulary *vocabulary)
{
    ls_text_release(&vocabulary->bytes);
    free(vocabulary->offset);
    free(vocabulary->slots);
    free(vocabulary->merges);
    *vocabulary = (struct data_vocabulary){0};
}

struct data_string data_vocabulary_token(const struct data_vocabulary *vocabulary, int64_t id)
{
    size_t begin = vocabulary->offset[id];
    return (struct data_string){(unsigned char *)vocabulary->bytes.bytes + begin,
                                vocabulary->offset[id + 1] - begin};
}

/* The slot of a token, or the empty one where it belongs. */
static int32_t *find(const struct data_vocabulary *vocabulary, struct data_string token)
{
    uint64_t at = ls_hash64(token.bytes, token.count, 0) & vocabulary->slots_mask;
    for (;; at = (at + 1) & vocabulary->slots_mask) {
        int32_t *slot = &vocabulary->slots[at];
        if (*slot < 0)
            return slot;
        struct data_string other = data_vocabulary_token(vocabulary, *slot);
        if (other.count == token.count && memcmp(other.bytes, token.bytes, token.count) == 0)
            return slot;
    }
}

int data_vocabulary_add(struct data_vocabulary *vocabulary, struct data_string token, int32_t *id,
                        struct ls_error *error)
{
    int32_t *slot = token.count > 0 ? find(vocabulary, token) : NULL;
    if (slot && *slot >= 0) {
        *id = *slot;
        return LS_OK;
    }
    LS_ASSERT(vocabulary->count < vocabulary->room);
    int status = data_text_put(&vocabulary->bytes, token.bytes, token.count, error);
    if (status)
        return status;
    *id = (int32_t)vocabulary->count++;
    vocabulary->offset[vocabulary->count] = vocabulary->bytes.count;
    if (slot)
        *slot = *id;
    return LS_OK;
}
