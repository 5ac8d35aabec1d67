/* How many documents a store has, and how long they are: quantiles, and a picture of bars. */
#include "data/data_private.h"

#include <lockstep/data/store_tools.h>
#include <lockstep/trace/picture.h>

#include <stdlib.h>

const double ls_stats_share[LS_STATS_QUANTILES] = {0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99};

static int by_length(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int bin_of(int64_t length)
{
    return 63 - __builtin_clzll((unsigned long long)length);
}

static void summarize(int64_t *lengths, struct ls_store_stats *out)
{
    qsort(lengths, (size_t)out->documents, sizeof *lengths, by_length);
    out->shortest = lengths[0];
    out->longest = lengths[out->documents - 1];
    for (int i = 0; i < LS_STATS_QUANTILES; i++) {
        int64_t percent = (int64_t)(ls_stats_share[i] * 100 + 0.5);
        int64_t rank = ls_ceil_div(out->documents * percent, 100);
        out->quantile[i] = lengths[ls_max(rank, 1) - 1];
    }
}

/* Lengths of all documents, to be freed; text_bytes if a tokenizer is known. */
static int measure(struct data_stored *stored, const volatile int *stop, int64_t **lengths,
                   struct ls_store_stats *out, struct ls_error *error)
{
    struct ls_text text = {0};
    int64_t first, count, room = 0;
    int status = LS_OK;
    while (!status && data_stored_next(stored, &first, &count, &status, error)) {
        if (!ls_list_grow(lengths, out->documents, &room, sizeof **lengths))
            status = ls_no_memory(error, "for the lengths of documents");
        if (status)
            break;
        (*lengths)[out->documents++] = count;
        out->bin[bin_of(count)]++;
        if (stored->tokenizer)
            status = data_stored_text(stored, first, count, &text, error);
        out->text_bytes += (int64_t)text.count;
        if (!status)
            status = data_tool_step(stop, "", "tokens", first + count, stored->file.tokens, error);
    }
    ls_text_release(&text);
    return status;
}

int ls_store_stats(const char *store, const char *tokenizer, const volatile int *stop,
                   struct ls_store_stats *out, struct ls_error *error)
{
    struct data_stored stored;
    int64_t *lengths = NULL;
    *out = (struct ls_store_stats){0};
    int status = data_stored_open(&stored, store, tokenizer, error);
    if (!status)
        status = data_stored_index(&stored, error);
    if (!status) {
        out->tokens = stored.file.tokens;
        out->counted = stored.file.counted;
        status = measure(&stored, stop, &lengths, out, error);
    }
    if (!status && out->documents == 0)
        status = ls_error_set(error, LS_EDATA, "%s: the store holds no document", store);
    if (!status)
        summarize(lengths, out);
    if (!stored.tokenizer)
        out->text_bytes = -1;
    free(lengths);
    data_stored_release(&stored);
    return status;
}

/* ---- the picture ----------------------------------------------------------------------------- */

enum { WIDTH = 880, HEIGHT = 320, RIGHT = 70, BOTTOM = HEIGHT - 44, LETTER_WIDTH = 8 };

int ls_store_stats_draw(const struct ls_store_stats *stats, const char *title, FILE *file,
                        struct ls_error *error)
{
    int first = bin_of(stats->shortest), last = bin_of(stats->longest);
    int64_t most = 0;
    (void)error;
    for (int i = first; i <= last; i++)
        most = ls_max(most, stats->bin[i]);
    ls_picture_begin(file, WIDTH, HEIGHT, title);
    double top = ls_picture_title(file, WIDTH, title);
    struct ls_scale y = {
        .high = (double)most, .from = BOTTOM, .to = top + 24, .whole = true, .rounded = true};
    ls_scale_fit(&y, 5);
    size_t letters = strlen(ls_scale_label(&y, y.tick[y.ticks - 1]).text);
    struct ls_scale x = {.low = (double)((int64_t)1 << first),
                         .high = 2 * (double)((int64_t)1 << last),
                         .from = 32 + LETTER_WIDTH * (double)letters,
                         .to = WIDTH - RIGHT,
                         .log = true,
                         .whole = true};
    /* As many ticks as their labels leave room for: some 0.3 digits and 0.1 commas for each bit. */
    double label = LETTER_WIDTH * (4 + 0.4 * last);
    ls_scale_fit(&x, (int)ls_max(2, (int64_t)((x.to - x.from) / (2 * label))));
    ls_scale_axes(file, &x, &y, "tokens of a document", "documents");
    for (int i = first; i <= last; i++) {
        double low = (double)((int64_t)1 << i), from = ls_scale_place(&x, low);
        double up = ls_scale_place(&y, (double)stats->bin[i]);
        char tip[128];
        snprintf(tip, sizeof tip, "%lld documents of %.0f to %.0f tokens", (long long)stats->bin[i],
                 low, 2 * low - 1);
        ls_picture_rect(file, "ls-f0", from + 1, up, ls_scale_place(&x, 2 * low) - from - 2,
                        BOTTOM - up, tip);
    }
    ls_picture_end(file);
    return LS_OK;
}
