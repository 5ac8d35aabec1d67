/* How much of a document repeats itself: lines, paragraphs, n-grams of words. Rae et al., "Scaling
 * Language Models: Methods, Analysis & Insights from Training Gopher", 2021, A.1.1, table A1. */
#include "data/filter_measure.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { GRAM_MAX = 10 };

void filter_scratch_release(struct filter_scratch *scratch)
{
    free(scratch->pieces);
    free(scratch->slots);
    *scratch = (struct filter_scratch){0};
}

int filter_piece_add(struct filter_scratch *scratch, uint64_t hash, int64_t characters,
                     struct ls_error *error)
{
    if (!ls_list_grow(&scratch->pieces, scratch->count, &scratch->room, sizeof *scratch->pieces))
        return ls_no_memory(error, "to measure a document");
    scratch->pieces[scratch->count++] = (struct filter_piece){hash, characters};
    return LS_OK;
}

/* All slots are free, and enough for the pieces. A document before this one may have left many
 * more, which it does not pay for. */
static int slots_clear(struct filter_scratch *scratch, struct ls_error *error)
{
    int64_t count = 64;
    while (count < 2 * scratch->count)
        count *= 2;
    if (count > scratch->slots_room) {
        free(scratch->slots);
        scratch->slots_room = 0;
        scratch->slots = malloc((size_t)count * sizeof *scratch->slots);
        if (!scratch->slots)
            return ls_no_memory(error, "to measure a document");
        scratch->slots_room = count;
    }
    scratch->slots_count = count;
    memset(scratch->slots, 0, (size_t)count * sizeof *scratch->slots);
    return LS_OK;
}

/* How often the hash was counted before; it is counted once more. */
static int64_t slot_count(struct filter_scratch *scratch, uint64_t hash)
{
    uint64_t mask = (uint64_t)scratch->slots_count - 1, at = hash & mask;
    while (scratch->slots[at].count > 0 && scratch->slots[at].hash != hash)
        at = (at + 1) & mask;
    scratch->slots[at].hash = hash;
    return scratch->slots[at].count++;
}

static int64_t all_characters(const struct filter_scratch *scratch)
{
    int64_t all = 0;
    for (int64_t i = 0; i < scratch->count; i++)
        all += scratch->pieces[i].characters;
    return all;
}

int filter_repeats(struct filter_scratch *scratch, double *share, double *characters,
                   struct ls_error *error)
{
    int64_t repeats = 0, within = 0, all = all_characters(scratch);
    int status = slots_clear(scratch, error);
    for (int64_t i = 0; i < scratch->count && !status; i++)
        if (slot_count(scratch, scratch->pieces[i].hash) > 0) {
            repeats++;
            within += scratch->pieces[i].characters;
        }
    *share = scratch->count > 0 ? (double)repeats / (double)scratch->count : 0;
    *characters = all > 0 ? (double)within / (double)all : 0;
    return status;
}

/* The n-gram that begins at a word. */
static uint64_t gram_at(const struct filter_scratch *scratch, int64_t first, int n,
                        int64_t *characters)
{
    uint64_t hashes[GRAM_MAX];
    *characters = 0;
    for (int i = 0; i < n; i++) {
        hashes[i] = scratch->pieces[first + i].hash;
        *characters += scratch->pieces[first + i].characters;
    }
    return XXH3_64bits(hashes, (size_t)n * sizeof *hashes);
}

int filter_top_gram(struct filter_scratch *scratch, int n, double *out, struct ls_error *error)
{
    int64_t most = 1, longest = 0, characters, all = all_characters(scratch);
    int status = slots_clear(scratch, error);
    for (int64_t i = 0; i + n <= scratch->count && !status; i++) {
        int64_t times = slot_count(scratch, gram_at(scratch, i, n, &characters)) + 1;
        if (times > most || (times == most && times > 1 && characters > longest)) {
            most = times;
            longest = characters;
        }
    }
    *out = longest > 0 ? (double)(most * longest) / (double)all : 0;
    return status;
}

int filter_duplicate_grams(struct filter_scratch *scratch, int n, double *out,
                           struct ls_error *error)
{
    int64_t within = 0, characters, all = all_characters(scratch);
    int status = slots_clear(scratch, error);
    for (int64_t i = 0; i + n <= scratch->count && !status;) {
        bool repeats = slot_count(scratch, gram_at(scratch, i, n, &characters)) > 0;
        within += repeats ? characters : 0;
        i += repeats ? n : 1;
    }
    *out = all > 0 ? (double)within / (double)all : 0;
    return status;
}
