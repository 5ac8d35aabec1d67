/* What the files of tokenizer training share: words and how often they occur (train_words.c,
 * train_count.c), and the merges that these give (train_merges.c). */
#ifndef DATA_TRAIN_PRIVATE_H
#define DATA_TRAIN_PRIVATE_H

#include "data/tokenizer_private.h"

#include <lockstep/data/train_tokenizer.h>

/* ---- words (train_words.c) ------------------------------------------------------------------- */

struct data_word {
    uint64_t hash;
    size_t at; /* in bytes */
    uint32_t count_bytes;
    int64_t count; /* how often it occurs; 0: an empty slot */
};
/* Distinct byte strings with a count each. Start from {0}. */
struct data_words {
    struct data_word *slots; /* [mask + 1]: open addressing, linear probing, at most half full */
    uint64_t mask;
    int64_t count;
    struct ls_text bytes; /* of all words, one behind the other */
};
/* The word occurs `count` times more. LS_ENOMEM. */
int data_words_add(struct data_words *words, const unsigned char *bytes, size_t count_bytes,
                   int64_t count, struct ls_error *error);
/* All of `more` too. */
int data_words_join(struct data_words *words, const struct data_words *more,
                    struct ls_error *error);
void data_words_release(struct data_words *words);

/* ---- counting (train_count.c) ---------------------------------------------------------------- */

/* The words of a corpus of two bytes or more; fills what report says of the corpus. *words must be
 * released in any case. */
int data_words_count(const struct ls_train_tokenizer_config *config, struct data_corpus *corpus,
                     const struct data_splitter *splitter, struct data_words *words,
                     struct ls_train_tokenizer_report *report, struct ls_error *error);

/* ---- tokens ---------------------------------------------------------------------------------- */

/* Tokens by their ids, and which two of them each merge joins. */
struct data_vocabulary {
    struct data_strings tokens;
    int32_t byte_id[256];
    struct data_joined {
        int32_t left, right;
    } * merges;
    int64_t merges_count, merges_room;
};

/* ---- pairs (train_pairs.c) ------------------------------------------------------------------- */

/* A place in the symbols of all words, and the word that it is in. */
struct data_occurrence {
    uint32_t at, word;
};
struct data_pair {
    uint64_t key;  /* left id << 32 | right id */
    int64_t count; /* how often it occurs */
    /* Where it was put: it may be elsewhere by now, so who reads a place looks what is there.
     * NULL: an empty slot. */
    struct data_occurrence *list;
    int64_t places;
};
struct data_pairs {
    struct data_pair *slots; /* open addressing, linear probing, at most half full */
    uint64_t mask;
    int64_t count, frequency_min;
    struct data_queued {
        int64_t count;
        uint64_t key;
    } * queue; /* a binary heap */
    int64_t queued, queue_room;
    struct data_block {
        struct data_block *next;
        size_t used, bytes;
    } * blocks; /* memory of lists */
};
static inline uint64_t data_pair_key(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}
int data_pairs_init(struct data_pairs *pairs, int64_t frequency_min, struct ls_error *error);
void data_pairs_release(struct data_pairs *pairs);
/* A pair that is there, valid until the next one is added. */
struct data_pair *data_pairs_find(const struct data_pairs *pairs, uint64_t key);
/* A pair that was not there. The caller writes its places to (*list)[places]. */
int data_pairs_add(struct data_pairs *pairs, uint64_t key, int64_t count, int64_t places,
                   struct data_occurrence **list, struct ls_error *error);
/* Takes the next pair to merge from the queue, which is not put there again; NULL: there is none.
 */
struct data_pair *data_pairs_top(struct data_pairs *pairs);

/* ---- merging (train_merges.c) ---------------------------------------------------------------- */

struct data_merging {
    int64_t vocabulary, frequency_min;
    const volatile int *stop;
};
/* Merges until the vocabulary has so many tokens, or no pair is left. The tokens of bytes must be
 * in it. */
int data_vocabulary_train(struct data_vocabulary *vocabulary, const struct data_words *words,
                          const struct data_merging *how, struct ls_error *error);

#endif
