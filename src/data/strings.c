/* Byte strings one behind the other, found by their numbers and by their bytes. */
#include "data/tokenizer_private.h"

#include <stdlib.h>
#include <string.h>

int data_strings_init(struct data_strings *strings, int64_t most, size_t bytes, bool found,
                      struct ls_error *error)
{
    uint64_t slots = 16;
    *strings = (struct data_strings){.room = most, .bytes_room = bytes + 1};
    if (bytes > UINT32_MAX)
        return ls_error_set(error, LS_EDATA, "tokens of more than 4 GiB");
    while (slots < 2 * (uint64_t)most)
        slots *= 2;
    strings->offset = calloc((size_t)most + 1, sizeof *strings->offset);
    strings->bytes = malloc(strings->bytes_room);
    strings->slots = found ? malloc(slots * sizeof *strings->slots) : NULL;
    if (!strings->offset || !strings->bytes || (found && !strings->slots))
        return ls_no_memory(error, "for a vocabulary");
    strings->mask = slots - 1;
    if (found)
        memset(strings->slots, -1, slots * sizeof *strings->slots);
    return LS_OK;
}

void data_strings_release(struct data_strings *strings)
{
    free(strings->offset);
    free(strings->bytes);
    free(strings->slots);
    *strings = (struct data_strings){0};
}

/* The slot of a string, or the empty one where it belongs. */
static int32_t *slot_of(const struct data_strings *strings, struct data_string string)
{
    uint64_t at = ls_hash64(string.bytes, string.count, 0) & strings->mask;
    for (;; at = (at + 1) & strings->mask) {
        int32_t *slot = &strings->slots[at];
        if (*slot < 0)
            return slot;
        struct data_string other = data_string(strings, *slot);
        if (other.count == string.count && memcmp(other.bytes, string.bytes, string.count) == 0)
            return slot;
    }
}

int32_t data_strings_find(const struct data_strings *strings, struct data_string string)
{
    return strings->slots ? *slot_of(strings, string) : -1;
}

void data_strings_index(struct data_strings *strings, int32_t i)
{
    int32_t *slot = slot_of(strings, data_string(strings, i));
    *slot = *slot < 0 ? i : *slot;
}

int data_strings_add(struct data_strings *strings, struct data_string string, int32_t *i,
                     struct ls_error *error)
{
    const size_t begin = strings->offset[strings->count], end = begin + string.count;
    *i = string.count > 0 ? data_strings_find(strings, string) : -1;
    if (*i >= 0)
        return LS_OK;
    LS_ASSERT(strings->count < strings->room);
    if (!ls_bytes_grow(&strings->bytes, end, &strings->bytes_room))
        return ls_no_memory(error, "for %zu bytes of tokens", end);
    memcpy(strings->bytes + begin, string.bytes, string.count);
    *i = (int32_t)strings->count++;
    strings->offset[strings->count] = (uint32_t)end;
    if (string.count > 0)
        data_strings_index(strings, *i);
    return LS_OK;
}
