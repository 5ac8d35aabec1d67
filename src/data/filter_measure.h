/* What the rules of the filter measure (filter_measure.c, filter_repetition.c). */
#ifndef DATA_FILTER_MEASURE_H
#define DATA_FILTER_MEASURE_H

#include "data/corpus_private.h"

/* One for each rule; the table in filter.c has the same order. */
enum filter_measure {
    FILTER_CHARACTERS_MIN,
    FILTER_CHARACTERS_MAX,
    FILTER_WORDS_MIN,
    FILTER_WORDS_MAX,
    FILTER_WORD_LENGTH_MIN,
    FILTER_WORD_LENGTH_MAX,
    FILTER_HASHES,
    FILTER_ELLIPSES,
    FILTER_BULLET_LINES,
    FILTER_ELLIPSIS_LINES,
    FILTER_ALPHABETIC,
    FILTER_STOP_WORDS,
    FILTER_DUPLICATE_LINES,
    FILTER_DUPLICATE_PARAGRAPHS,
    FILTER_DUPLICATE_LINE_CHARACTERS,
    FILTER_DUPLICATE_PARAGRAPH_CHARACTERS,
    FILTER_TOP_2_GRAM,
    FILTER_TOP_3_GRAM,
    FILTER_TOP_4_GRAM,
    FILTER_DUPLICATE_5_GRAMS,
    FILTER_DUPLICATE_6_GRAMS,
    FILTER_DUPLICATE_7_GRAMS,
    FILTER_DUPLICATE_8_GRAMS,
    FILTER_DUPLICATE_9_GRAMS,
    FILTER_DUPLICATE_10_GRAMS,
    FILTER_SENTENCES,
    FILTER_LOREM_IPSUM,
    FILTER_BRACES,
    FILTER_RULES
};

/* A thread's memory, used again for each document. */
struct filter_scratch {
    struct filter_piece { /* a word, a line, a paragraph */
        uint64_t hash;
        int64_t characters;
    } * pieces;
    int64_t count, room;
    struct filter_slot {
        uint64_t hash; /* of a piece or an n-gram; count 0: the slot is free */
        int64_t count;
    } * slots;
    int64_t slots_count, slots_room; /* in use: a power of two, at least twice the count */
};
void filter_scratch_release(struct filter_scratch *scratch);
int filter_piece_add(struct filter_scratch *scratch, uint64_t hash, int64_t characters,
                     struct ls_error *error);
/* Of the pieces: the share that repeats an earlier one, and the share of characters in these. */
int filter_repeats(struct filter_scratch *scratch, double *share, double *characters,
                   struct ls_error *error);
/* Of the words: the share of their characters that the most frequent n-gram covers, which occurs
 * twice at least (of several the longest): its characters times how often it occurs. */
int filter_top_gram(struct filter_scratch *scratch, int n, double *out, struct ls_error *error);
/* The share of characters in n-grams that repeat an earlier one; none counts twice: behind one that
 * repeats, the next n-gram begins. */
int filter_duplicate_grams(struct filter_scratch *scratch, int n, double *out,
                           struct ls_error *error);

/* value[FILTER_RULES] of a text, of the rules that are used. */
int filter_measure(struct filter_scratch *scratch, const bool *used, const struct ls_text *text,
                   double *value, struct ls_error *error);

#endif
