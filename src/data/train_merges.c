/* Byte-pair merging of all words at once: the most frequent pair of neighbours becomes a symbol,
 * again and again. Each merge visits the places of its pair alone and corrects the counts of the
 * pairs beside them, so all merges together visit each place a few times.
 *
 * Words lie one behind the other in `symbol`, a place for each byte and NONE between words. A
 * symbol of n bytes takes n places: its id stands in the first and in the last, and INSIDE between.
 * So both neighbours of a symbol are found from its place.
 *
 * Two merges never make one symbol. Where a string becomes a symbol, no merge before crossed its
 * ends, so those within it are the same in every place: places of a b do not overlap if a is not b;
 * places of a a are taken from the left of a row, which crosses neither end and so falls within the
 * string as it would by itself. Hence all places of a symbol come into being in one merge, and a
 * pair, once merged, never occurs again: all its places are found when the later one of its two
 * symbols is made. */
#include "data/train_private.h"

#include <lockstep/base/meter.h>

#include <stdlib.h>
#include <string.h>

enum { NONE = -1, INSIDE = -2, PREFETCH = 16, METER_MERGES = 32 };

/* What a merge changes for one symbol on one side of its places. */
struct tally {
    int64_t lost, gained;         /* of the old pair, of the new one */
    int64_t places;               /* of the new one */
    struct data_occurrence *list; /* where these go */
};
struct side {
    struct tally *tally; /* [symbols] */
    int32_t *touched;    /* symbols whose tallies are not 0 */
    int64_t touched_count;
};
struct trainer {
    struct data_vocabulary *vocabulary;
    struct data_pairs pairs;
    int32_t *symbol;
    uint32_t *length;    /* [symbols]: bytes of each */
    int64_t *word_count; /* [words] */
    struct side left, right;
    struct data_occurrence *found; /* places of the pair that is merged */
    int64_t found_room;
};
struct merge {
    int32_t a, b, id; /* a b becomes id */
};

/* ---- the words as bytes ---------------------------------------------------------------------- */

static int words_place(struct trainer *t, const struct data_words *words, struct ls_error *error)
{
    size_t places = words->bytes.count + (size_t)words->count + 1;
    if (places > UINT32_MAX)
        return ls_error_set(error, LS_ENOTSUP,
                            "the distinct words of the text have %zu bytes, and at most 2^32 are "
                            "supported: train on a part of the text",
                            words->bytes.count);
    t->symbol = malloc(places * sizeof *t->symbol);
    t->word_count = malloc(((size_t)words->count + 1) * sizeof *t->word_count);
    if (!t->symbol || !t->word_count)
        return ls_no_memory(error, "for %zu bytes of words", words->bytes.count);
    size_t at = 0, word = 0;
    for (uint64_t i = 0; words->slots && i <= words->mask; i++) {
        const struct data_word *from = &words->slots[i];
        if (from->count == 0)
            continue;
        t->symbol[at++] = NONE;
        t->word_count[word++] = from->count;
        const unsigned char *bytes = (unsigned char *)words->bytes.bytes + from->at;
        for (uint32_t k = 0; k < from->count_bytes; k++)
            t->symbol[at++] = t->vocabulary->byte_id[bytes[k]];
    }
    t->symbol[at] = NONE;
    return LS_OK;
}

/* Visits the pairs of bytes: counts them in the tallies of [256 x 256], or puts them into lists. */
static void bytes_visit(const struct trainer *t, const int *byte_of, size_t places,
                        struct tally *tally, bool puts)
{
    int64_t word = -1;
    for (size_t at = 0; at + 1 < places; at++) {
        word += t->symbol[at] == NONE;
        if (t->symbol[at] == NONE || t->symbol[at + 1] == NONE)
            continue;
        struct tally *pair = &tally[byte_of[t->symbol[at]] << 8 | byte_of[t->symbol[at + 1]]];
        if (puts)
            *pair->list++ = (struct data_occurrence){(uint32_t)at, (uint32_t)word};
        pair->places += !puts;
        pair->gained += puts ? 0 : t->word_count[word];
    }
}

static int bytes_pair(struct trainer *t, size_t places, struct ls_error *error)
{
    const int32_t *id = t->vocabulary->byte_id;
    struct tally *tally = calloc(1 << 16, sizeof *tally);
    int *byte_of = calloc((size_t)t->vocabulary->tokens.count, sizeof *byte_of);
    int status = LS_OK;
    if (!tally || !byte_of)
        status = ls_no_memory(error, "for pairs of bytes");
    for (int i = 0; i < 256 && !status; i++)
        byte_of[id[i]] = i;
    if (!status)
        bytes_visit(t, byte_of, places, tally, false);
    for (int i = 0; i < 1 << 16 && !status; i++)
        if (tally[i].places > 0)
            status = data_pairs_add(&t->pairs, data_pair_key(id[i >> 8], id[i & 255]),
                                    tally[i].gained, tally[i].places, &tally[i].list, error);
    if (!status)
        bytes_visit(t, byte_of, places, tally, true);
    free(tally);
    free(byte_of);
    return status;
}

/* ---- one merge ------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
    const struct data_occurrence *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* found[places] = where the pair was put. In a row of equal symbols the first two are merged, so
 * they come in order. */
static int places_find(struct trainer *t, const struct data_pair *pair, bool equal,
                       struct ls_error *error)
{
    if (pair->places > t->found_room) {
        free(t->found);
        t->found_room = 2 * pair->places;
        t->found = malloc((size_t)t->found_room * sizeof *t->found);
        if (!t->found)
            return ls_no_memory(error, "for %lld places of a pair", (long long)pair->places);
    }
    memcpy(t->found, pair->list, (size_t)pair->places * sizeof *t->found);
    if (equal)
        qsort(t->found, (size_t)pair->places, sizeof *t->found, by_place);
    return LS_OK;
}

static inline struct tally *touch(struct side *side, int32_t symbol)
{
    struct tally *tally = &side->tally[symbol];
    if (tally->lost == 0 && tally->places == 0)
        side->touched[side->touched_count++] = symbol;
    return tally;
}

/* Joins the pair wherever it still is, and keeps these places. The pairs beside them are lost, each
 * once: one between two places with the one of them that is joined first. */
static int64_t places_join(struct trainer *t, const struct merge *m, int64_t count)
{
    const uint32_t a_bytes = t->length[m->a], b_bytes = t->length[m->b];
    int32_t *symbol = t->symbol;
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++) {
        const struct data_occurrence place = t->found[i];
        if (i + PREFETCH < count) {
            __builtin_prefetch(&symbol[t->found[i + PREFETCH].at]);
            __builtin_prefetch(&t->word_count[t->found[i + PREFETCH].word]);
        }
        uint32_t middle = place.at + a_bytes, end = middle + b_bytes;
        if (symbol[place.at] != m->a || symbol[middle] != m->b)
            continue;
        int32_t before = symbol[place.at - 1], behind = symbol[end];
        if (before >= 0 && before != m->id)
            touch(&t->left, before)->lost += t->word_count[place.word];
        if (behind >= 0 && behind != m->id)
            touch(&t->right, behind)->lost += t->word_count[place.word];
        symbol[middle - 1] = symbol[middle] = INSIDE;
        symbol[place.at] = symbol[end - 1] = m->id;
        t->found[kept++] = place;
    }
    return kept;
}

/* The neighbours of a joined place: NONE if there is none, and where the pair with it is that of
 * the place before. */
static inline void neighbours(const struct trainer *t, const struct merge *m, uint32_t at,
                              int32_t *before, int32_t *behind)
{
    *before = t->symbol[at - 1];
    if (*before == m->id)
        *before = NONE;
    *behind = t->symbol[at + t->length[m->id]];
}

static void gains_count(struct trainer *t, const struct merge *m, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        int32_t before, behind;
        const int64_t times = t->word_count[t->found[i].word];
        neighbours(t, m, t->found[i].at, &before, &behind);
        if (before >= 0) {
            struct tally *tally = touch(&t->left, before);
            tally->gained += times;
            tally->places++;
        }
        if (behind >= 0) {
            struct tally *tally = touch(&t->right, behind);
            tally->gained += times;
            tally->places++;
        }
    }
}

static void gains_put(struct trainer *t, const struct merge *m, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        int32_t before, behind;
        const struct data_occurrence place = t->found[i];
        neighbours(t, m, place.at, &before, &behind);
        if (before >= 0)
            *t->left.tally[before].list++ =
                (struct data_occurrence){place.at - t->length[before], place.word};
        if (behind >= 0)
            *t->right.tally[behind].list++ = place;
    }
}

/* The tallies of one side become counts of pairs. */
static int tallies_take(struct trainer *t, const struct merge *m, bool left, struct ls_error *error)
{
    struct side *side = left ? &t->left : &t->right;
    int status = LS_OK;
    for (int64_t i = 0; i < side->touched_count && !status; i++) {
        int32_t other = side->touched[i];
        struct tally *tally = &side->tally[other];
        if (tally->lost > 0)
            data_pairs_find(&t->pairs,
                            left ? data_pair_key(other, m->a) : data_pair_key(m->b, other))
                ->count -= tally->lost;
        if (tally->places > 0)
            status = data_pairs_add(
                &t->pairs, left ? data_pair_key(other, m->id) : data_pair_key(m->id, other),
                tally->gained, tally->places, &tally->list, error);
    }
    return status;
}

static void side_clear(struct side *side)
{
    for (int64_t i = 0; i < side->touched_count; i++)
        side->tally[side->touched[i]] = (struct tally){0};
    side->touched_count = 0;
}

/* Merges a pair everywhere. */
static int merge_all(struct trainer *t, struct data_pair *pair, const struct merge *m,
                     struct ls_error *error)
{
    int status = places_find(t, pair, m->a == m->b, error);
    if (status)
        return status;
    int64_t count = places_join(t, m, pair->places);
    gains_count(t, m, count);
    status = tallies_take(t, m, true, error);
    if (!status)
        status = tallies_take(t, m, false, error);
    if (!status)
        gains_put(t, m, count);
    side_clear(&t->left);
    side_clear(&t->right);
    return status;
}

/* ---- all merges ------------------------------------------------------------------------------ */

/* The token of a pair. One that is there already is a special one, which no word holds. */
static int token_of(struct trainer *t, struct merge *m, struct ls_error *error)
{
    unsigned char bytes[LS_TRAIN_TOKEN_BYTES_MAX];
    struct data_string left = data_string(&t->vocabulary->tokens, m->a);
    struct data_string right = data_string(&t->vocabulary->tokens, m->b);
    memcpy(bytes, left.bytes, left.count);
    memcpy(bytes + left.count, right.bytes, right.count);
    int status =
        data_strings_add(&t->vocabulary->tokens,
                         (struct data_string){bytes, left.count + right.count}, &m->id, error);
    if (!status)
        t->length[m->id] = (uint32_t)(left.count + right.count);
    return status;
}

static int merge_next(struct trainer *t, struct data_pair *pair, struct ls_error *error)
{
    struct data_vocabulary *vocabulary = t->vocabulary;
    struct merge m = {.a = (int32_t)(pair->key >> 32), .b = (int32_t)(uint32_t)pair->key};
    if (t->length[m.a] + t->length[m.b] > LS_TRAIN_TOKEN_BYTES_MAX)
        return LS_OK;
    if (!ls_list_grow(&vocabulary->merges, vocabulary->merges_count, &vocabulary->merges_room,
                      sizeof *vocabulary->merges))
        return ls_no_memory(error, "for merges");
    int status = token_of(t, &m, error);
    if (status)
        return status;
    vocabulary->merges[vocabulary->merges_count++] = (struct data_joined){m.a, m.b};
    return merge_all(t, pair, &m, error);
}

static int merge_many(struct trainer *t, const struct data_merging *how, struct ls_error *error)
{
    struct data_pair *pair;
    int status = LS_OK;
    for (int64_t i = 0; !status && t->vocabulary->tokens.count < how->vocabulary; i++) {
        if (how->stop && *how->stop)
            return ls_error_set(error, LS_ESTOPPED, "stopped by a signal; nothing was written");
        if (!(pair = data_pairs_top(&t->pairs)))
            break;
        status = merge_next(t, pair, error);
        if (i % METER_MERGES == 0)
            ls_meter("tokens", t->vocabulary->tokens.count, how->vocabulary);
    }
    return status;
}

static int side_init(struct side *side, size_t symbols, struct ls_error *error)
{
    side->tally = calloc(symbols, sizeof *side->tally);
    side->touched = malloc(symbols * sizeof *side->touched);
    return side->tally && side->touched ? LS_OK : ls_no_memory(error, "for %zu tokens", symbols);
}

static int trainer_init(struct trainer *t, const struct data_words *words,
                        const struct data_merging *how, struct ls_error *error)
{
    const size_t symbols = (size_t)t->vocabulary->tokens.room;
    t->length = calloc(symbols, sizeof *t->length);
    if (!t->length)
        return ls_no_memory(error, "for %zu tokens", symbols);
    for (int i = 0; i < 256; i++)
        t->length[t->vocabulary->byte_id[i]] = 1;
    int status = side_init(&t->left, symbols, error);
    if (!status)
        status = side_init(&t->right, symbols, error);
    if (!status)
        status = data_pairs_init(&t->pairs, how->frequency_min, error);
    if (!status)
        status = words_place(t, words, error);
    return status ? status : bytes_pair(t, words->bytes.count + (size_t)words->count + 1, error);
}

static void trainer_release(struct trainer *t)
{
    data_pairs_release(&t->pairs);
    free(t->symbol);
    free(t->length);
    free(t->word_count);
    free(t->left.tally);
    free(t->left.touched);
    free(t->right.tally);
    free(t->right.touched);
    free(t->found);
}

int data_vocabulary_train(struct data_vocabulary *vocabulary, const struct data_words *words,
                          const struct data_merging *how, struct ls_error *error)
{
    struct trainer trainer = {.vocabulary = vocabulary};
    int status = trainer_init(&trainer, words, how, error);
    if (!status)
        status = merge_many(&trainer, how, error);
    trainer_release(&trainer);
    return status;
}
