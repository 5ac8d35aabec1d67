/* Stores into one, and one into several, document by document. */
#include "data/data_private.h"

#include <lockstep/data/store_tools.h>

#include <stdio.h>
#include <stdlib.h>

enum { WEIGHT_UNIT = 1000000, WEIGHTS_MAX = INT32_MAX };

/* ---- shares ---------------------------------------------------------------------------------- */

static int bad_shares(const char *text, struct ls_error *error)
{
    return ls_error_set(error, LS_ECONFIG,
                        "%.200s: expected the number of parts, 2 to %d, or a weight above 0 for "
                        "each with commas between, such as 0.9,0.1, of %d in all at most",
                        text, LS_PARTS_MAX, WEIGHTS_MAX / WEIGHT_UNIT);
}

/* A decimal number as millionths; its end. NULL: it is none, or too large. */
static const char *read_weight(const char *at, int64_t *out)
{
    int64_t unit = WEIGHT_UNIT;
    bool point = false, digits = false;
    *out = 0;
    for (; (*at >= '0' && *at <= '9') || (*at == '.' && !point); at++) {
        if (*at == '.') {
            point = true;
            continue;
        }
        digits = true;
        if (point) {
            unit /= 10;
            *out += (*at - '0') * unit;
        } else {
            *out = *out * 10 + (int64_t)(*at - '0') * WEIGHT_UNIT;
        }
        if (*out > WEIGHTS_MAX)
            return NULL;
    }
    return digits ? at : NULL;
}

int ls_shares_parse(const char *text, struct ls_shares *out, struct ls_error *error)
{
    int64_t all = 0, weight = 0;
    *out = (struct ls_shares){0};
    for (const char *at = text;; at++) {
        at = read_weight(at, &weight);
        if (!at || weight == 0 || (*at && *at != ',') || out->count == LS_PARTS_MAX)
            return bad_shares(text, error);
        out->weight[out->count++] = weight;
        all += weight;
        if (!*at)
            break;
    }
    if (out->count == 1) { /* so many equal parts */
        if (weight % WEIGHT_UNIT != 0 || weight / WEIGHT_UNIT > LS_PARTS_MAX)
            return bad_shares(text, error);
        out->count = (int)(weight / WEIGHT_UNIT);
        for (int i = 0; i < out->count; i++)
            out->weight[i] = 1;
    }
    return out->count < 2 || all > WEIGHTS_MAX ? bad_shares(text, error) : LS_OK;
}

int ls_shares_next(struct ls_shares *shares)
{
    int64_t items = 1, all = 0, most = 0;
    int next = -1;
    for (int i = 0; i < shares->count; i++) {
        items += shares->given[i];
        all += shares->weight[i];
    }
    for (int i = 0; i < shares->count; i++) {
        int64_t lag = items * shares->weight[i] - all * shares->given[i];
        if (next < 0 || lag > most) {
            next = i;
            most = lag;
        }
    }
    shares->given[next]++;
    return next;
}

/* ---- merge ----------------------------------------------------------------------------------- */

struct merge {
    struct data_stored *from; /* [count] */
    int count;
    const struct ls_tokenizer *tokenizer; /* borrowed from one of them */
    bool masked, weighted, narrow;
    int64_t tokens;
    struct data_output output;
};

static int merge_open(struct merge *merge, const char *const *stores, int count,
                      struct ls_error *error)
{
    int status = LS_OK;
    merge->from = calloc((size_t)count, sizeof *merge->from);
    merge->narrow = true;
    if (!merge->from)
        return ls_no_memory(error, "to merge %d stores", count);
    for (int i = 0; i < count && !status; i++) {
        struct data_stored *from = &merge->from[merge->count++];
        status = data_stored_open(from, stores[i], NULL, error);
        if (!status)
            status = data_stored_index(from, error);
        if (status)
            break;
        if (!merge->tokenizer)
            merge->tokenizer = from->tokenizer;
        if (from->tokenizer)
            status = ls_tokenizer_stores_check(merge->tokenizer, stores[i], error);
        merge->masked |= from->file.masked;
        merge->weighted |= from->file.weighted;
        merge->narrow &= from->file.dtype == LS_U16 || from->file.dtype == LS_U8;
        merge->tokens += from->file.tokens;
    }
    return status;
}

static enum ls_dtype dtype_of(const struct ls_tokenizer *tokenizer, bool narrow)
{
    if (tokenizer)
        return ls_token_dtype(ls_tokenizer_vocabulary(tokenizer));
    return narrow ? LS_U16 : LS_I32;
}

static int merge_copy(struct merge *merge, const volatile int *stop, struct ls_error *error)
{
    int64_t first, count;
    int status = LS_OK;
    merge->output.masked = merge->masked;
    merge->output.weighted = merge->weighted;
    for (int i = 0; i < merge->count && !status; i++) {
        struct data_stored *from = &merge->from[i];
        if (merge->tokenizer)
            from->vocabulary = ls_tokenizer_vocabulary(merge->tokenizer);
        while (!status && data_stored_next(from, &first, &count)) {
            status = data_output_copy(&merge->output, from, first, count, error);
            if (!status)
                status = data_tool_step(stop, merge->output.writer.tokens, merge->tokens, error);
        }
    }
    if (!status && merge->output.writer.tokens == 0)
        status = ls_error_set(error, LS_EDATA, "the stores hold no token: nothing was written");
    return status;
}

static struct ls_store_part part_of(const struct data_output *output)
{
    return (struct ls_store_part){output->writer.documents_count, output->writer.tokens,
                                  data_writer_counted(&output->writer)};
}

int ls_store_merge(const char *const *stores, int count, const char *output,
                   const volatile int *stop, struct ls_store_part *out, struct ls_error *error)
{
    struct merge merge = {.output = {.writer = {.fd = -1}}};
    if (count < 1)
        return ls_error_set(error, LS_EINVAL, "merge: no store");
    int status = merge_open(&merge, stores, count, error);
    if (!status)
        status = data_output_init(&merge.output, output, dtype_of(merge.tokenizer, merge.narrow),
                                  merge.tokenizer, stores, count, error);
    if (!status)
        status = merge_copy(&merge, stop, error);
    if (!status)
        status = data_output_finish(&merge.output, error);
    if (!status)
        status = data_output_publish(&merge.output, error);
    *out = part_of(&merge.output);
    data_output_release(&merge.output);
    for (int i = 0; i < merge.count; i++)
        data_stored_release(&merge.from[i]);
    free(merge.from);
    return status;
}

/* ---- split ----------------------------------------------------------------------------------- */

static int split_open(struct data_output *outputs, const struct data_stored *from, int count,
                      const char *output, struct ls_error *error)
{
    bool narrow = from->file.dtype == LS_U16 || from->file.dtype == LS_U8;
    char prefix[PATH_MAX];
    int status = LS_OK;
    for (int i = 0; i < count && !status; i++) {
        if (snprintf(prefix, sizeof prefix, "%s_%d", output, i) >= (int)sizeof prefix)
            status = ls_error_set(error, LS_EINVAL, "%.200s...: the path is too long", output);
        else
            status = data_output_init(&outputs[i], prefix, dtype_of(from->tokenizer, narrow),
                                      from->tokenizer, &from->name, 1, error);
    }
    return status;
}

static int split_copy(struct data_output *outputs, struct data_stored *from,
                      struct ls_shares shares, const volatile int *stop, struct ls_error *error)
{
    int64_t first, count;
    int status = LS_OK;
    while (!status && data_stored_next(from, &first, &count)) {
        struct data_output *output = &outputs[ls_shares_next(&shares)];
        output->masked = from->file.masked;
        output->weighted = from->file.weighted;
        status = data_output_copy(output, from, first, count, error);
        if (!status)
            status = data_tool_step(stop, first + count, from->file.tokens, error);
    }
    for (int i = 0; i < shares.count && !status; i++)
        if (shares.given[i] == 0)
            status = ls_error_set(error, LS_EDATA,
                                  "%s: no document for part %d of %d: the store has %lld. Nothing "
                                  "was written: use fewer parts",
                                  from->name, i, shares.count, (long long)from->file.documents);
    return status;
}

int ls_store_split(const char *store, const struct ls_shares *shares, const char *output,
                   const volatile int *stop, struct ls_store_part *parts, struct ls_error *error)
{
    struct data_output outputs[LS_PARTS_MAX];
    struct data_stored from;
    int status = data_stored_open(&from, store, NULL, error), count = shares->count;
    LS_ASSERT(count >= 1 && count <= LS_PARTS_MAX);
    for (int i = 0; i < count; i++)
        outputs[i] = (struct data_output){.writer = {.fd = -1}};
    if (!status)
        status = data_stored_index(&from, error);
    if (!status)
        status = split_open(outputs, &from, count, output, error);
    if (!status)
        status = split_copy(outputs, &from, *shares, stop, error);
    for (int i = 0; i < count && !status; i++)
        status = data_output_finish(&outputs[i], error);
    for (int i = 0; i < count && !status; i++)
        status = data_output_publish(&outputs[i], error);
    for (int i = 0; i < count; i++) {
        parts[i] = part_of(&outputs[i]);
        data_output_release(&outputs[i]);
    }
    data_stored_release(&from);
    return status;
}
