/* Words and how often each occurs: a hash table whose keys lie one behind the other. */
#include "data/train_private.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS_FIRST = 1 << 12 };

/* Most words have few bytes. */
static inline uint64_t hash_of(const unsigned char *bytes, size_t count)
{
    if (count > 16)
        return ls_hash64(bytes, count, 0);
    const struct data_key key = data_key_of(bytes, count);
    uint64_t a = (key.word[0] ^ count) * 0x9e3779b97f4a7c15u;
    uint64_t b = (key.word[1] ^ a >> 29) * 0xd6e8feb86659fd93u;
    a ^= b;
    return (a ^ a >> 32) * 0xc2b2ae3d27d4eb4fu;
}

/* Its slot, or the empty one where it belongs. */
static struct data_word *find(const struct data_words *words, const unsigned char *bytes,
                              size_t count, uint64_t hash)
{
    for (uint64_t at = hash >> 20 & words->mask;; at = (at + 1) & words->mask) {
        struct data_word *word = &words->slots[at];
        if (word->count == 0 ||
            (word->hash == hash && word->count_bytes == count &&
             memcmp((unsigned char *)words->bytes.bytes + word->at, bytes, count) == 0))
            return word;
    }
}

static int grow(struct data_words *words, struct ls_error *error)
{
    struct data_words more = *words;
    uint64_t slots = words->slots ? 2 * (words->mask + 1) : SLOTS_FIRST;
    more.mask = slots - 1;
    more.slots = calloc(slots, sizeof *more.slots);
    if (!more.slots)
        return ls_no_memory(error, "for %lld words", (long long)words->count);
    for (uint64_t i = 0; words->slots && i <= words->mask; i++) {
        const struct data_word *word = &words->slots[i];
        uint64_t at = word->hash >> 20 & more.mask;
        while (word->count && more.slots[at].count)
            at = (at + 1) & more.mask;
        if (word->count)
            more.slots[at] = *word;
    }
    free(words->slots);
    *words = more;
    return LS_OK;
}

int data_words_add(struct data_words *words, const unsigned char *bytes, size_t count_bytes,
                   int64_t count, struct ls_error *error)
{
    int status = LS_OK;
    if (!words->slots || (uint64_t)words->count * 2 > words->mask)
        status = grow(words, error);
    if (status)
        return status;
    uint64_t hash = hash_of(bytes, count_bytes);
    struct data_word *word = find(words, bytes, count_bytes, hash);
    if (word->count == 0) {
        size_t at = words->bytes.count;
        status = data_text_put(&words->bytes, bytes, count_bytes, error);
        if (status)
            return status;
        *word = (struct data_word){hash, at, (uint32_t)count_bytes, 0};
        words->count++;
    }
    word->count += count;
    return LS_OK;
}

int data_words_join(struct data_words *words, const struct data_words *more, struct ls_error *error)
{
    int status = LS_OK;
    for (uint64_t i = 0; more->slots && i <= more->mask && !status; i++) {
        const struct data_word *word = &more->slots[i];
        if (word->count > 0)
            status = data_words_add(words, (unsigned char *)more->bytes.bytes + word->at,
                                    word->count_bytes, word->count, error);
    }
    return status;
}

void data_words_release(struct data_words *words)
{
    free(words->slots);
    ls_text_release(&words->bytes);
    *words = (struct data_words){0};
}
