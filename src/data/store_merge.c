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

void data_split_job(const struct ls_shares *shares, int part, char text[DATA_SPLIT_JOB_BYTES])
{
    snprintf(text, DATA_SPLIT_JOB_BYTES, "split: part %d of", part);
    for (int i = 0; i < shares->count; i++)
        ls_string_add(text, DATA_SPLIT_JOB_BYTES, " ", "%lld", (long long)shares->weight[i]);
}

/* ---- what is made of them -------------------------------------------------------------------- */

static int64_t part_documents(const struct ls_store_job *job)
{
    return job->part_documents ? job->part_documents : LS_PART_DOCUMENTS;
}

static bool is_narrow(const struct data_stored *from)
{
    return from->file.dtype == LS_U16 || from->file.dtype == LS_U8;
}

static enum ls_dtype dtype_of(const struct ls_tokenizer *tokenizer, bool narrow)
{
    if (tokenizer)
        return ls_token_dtype(ls_tokenizer_vocabulary(tokenizer));
    return narrow ? LS_U16 : LS_I32;
}

/* ---- merge ----------------------------------------------------------------------------------- */

struct merge {
    struct data_stored *from; /* [count] */
    int count;
    int64_t tokens;
    struct data_making making;
    struct data_output output;
};

static int merge_open(struct merge *merge, const char *const *stores, int count,
                      struct ls_error *error)
{
    struct data_making *making = &merge->making;
    int status = LS_OK;
    bool narrow = true;
    merge->from = calloc((size_t)count, sizeof *merge->from);
    if (!merge->from)
        return ls_no_memory(error, "to merge %d stores", count);
    for (int i = 0; i < count && !status; i++) {
        struct data_stored *from = &merge->from[merge->count++];
        status = data_stored_open(from, stores[i], NULL, error);
        if (!status)
            status = data_stored_index(from, error);
        if (status)
            break;
        if (!making->tokenizer)
            making->tokenizer = from->tokenizer;
        if (from->tokenizer)
            status = ls_tokenizer_stores_check(making->tokenizer, stores[i], error);
        making->masked |= from->file.masked;
        making->weighted |= from->file.weighted;
        narrow &= is_narrow(from);
        merge->tokens += from->file.tokens;
    }
    making->dtype = dtype_of(making->tokenizer, narrow);
    if (!status && merge->tokens == 0)
        status = ls_error_set(error, LS_EDATA, "the stores hold no token: nothing was written");
    return status;
}

static int merge_copy(struct merge *merge, const volatile int *stop, struct ls_error *error)
{
    const char *stopped = data_folder_stopped(&merge->output.folder);
    int64_t first, count, done = 0;
    int status = LS_OK;
    for (int i = 0; i < merge->count && !status; i++) {
        struct data_stored *from = &merge->from[i];
        if (merge->making.tokenizer)
            from->vocabulary = ls_tokenizer_vocabulary(merge->making.tokenizer);
        while (!status && data_stored_next(from, &first, &count, &status, error)) {
            status = data_output_copy(&merge->output, from, first, count, error);
            if (!status)
                status =
                    data_tool_step(stop, stopped, "tokens", done += count, merge->tokens, error);
        }
    }
    return status;
}

int ls_store_merge(const char *const *stores, int count, const struct ls_store_job *job,
                   struct ls_store_part *out, struct ls_error *error)
{
    struct merge merge = {.making = {.what = "merge",
                                     .stores = {stores, count},
                                     .part_documents = part_documents(job)}};
    if (count < 1)
        return ls_error_set(error, LS_EINVAL, "merge: no store");
    int status = merge_open(&merge, stores, count, error);
    if (!status)
        status = data_output_open(&merge.output, job->output, &merge.making, error);
    if (!status)
        status = merge_copy(&merge, job->stop, error);
    if (!status)
        status = data_output_finish(&merge.output, error);
    if (!status)
        status = data_output_publish(&merge.output, error);
    *out = merge.output.done;
    data_output_release(&merge.output);
    for (int i = 0; i < merge.count; i++)
        data_stored_release(&merge.from[i]);
    free(merge.from);
    return status;
}

/* ---- split ----------------------------------------------------------------------------------- */

struct split {
    struct data_stored from;
    struct ls_shares shares;
    struct data_making making;
    char what[DATA_SPLIT_JOB_BYTES];
    struct data_output *outputs; /* [shares.count] */
};

/* Every part has a document. */
static int split_check(struct split *split, struct ls_error *error)
{
    struct ls_shares shares = split->shares;
    struct data_idx_walk begin = split->from.walk;
    int64_t first, count;
    int empty = 0, status = LS_OK;
    while (empty < shares.count && data_stored_next(&split->from, &first, &count, &status, error)) {
        ls_shares_next(&shares);
        while (empty < shares.count && shares.given[empty] > 0)
            empty++;
    }
    split->from.walk = begin;
    if (status)
        return status;
    return empty < shares.count
               ? ls_error_set(error, LS_EDATA,
                              "%s: no document for part %d of %d: the store has %lld. Nothing "
                              "was written: use fewer parts",
                              split->from.name, empty, shares.count,
                              (long long)split->from.file.documents)
               : LS_OK;
}

static int split_open(struct split *split, const char *output, struct ls_error *error)
{
    const struct data_stored *from = &split->from;
    struct data_making *making = &split->making;
    const int count = split->shares.count;
    bool folder = ls_path_ends(output, "/");
    char prefix[PATH_MAX];
    making->what = split->what;
    making->tokenizer = from->tokenizer;
    making->dtype = dtype_of(from->tokenizer, is_narrow(from));
    making->masked = from->file.masked;
    making->weighted = from->file.weighted;
    split->outputs = calloc((size_t)count, sizeof *split->outputs);
    int status = split->outputs ? LS_OK : ls_no_memory(error, "to split %s", from->name);
    for (int i = 0; i < count && !status; i++) {
        data_split_job(&split->shares, i, split->what);
        if (snprintf(prefix, sizeof prefix, folder ? "%s%d/" : "%s_%d", output, i) >= PATH_MAX)
            status = ls_error_set(error, LS_EINVAL, "%.200s...: the path is too long", output);
        else
            status = data_output_open(&split->outputs[i], prefix, making, error);
    }
    return status;
}

static int split_copy(struct split *split, const volatile int *stop, struct ls_error *error)
{
    const char *stopped = data_folder_stopped(&split->outputs[0].folder);
    struct data_stored *from = &split->from;
    int64_t first, count;
    int status = LS_OK;
    while (!status && data_stored_next(from, &first, &count, &status, error)) {
        struct data_output *output = &split->outputs[ls_shares_next(&split->shares)];
        status = data_output_copy(output, from, first, count, error);
        if (!status)
            status =
                data_tool_step(stop, stopped, "tokens", first + count, from->file.tokens, error);
    }
    return status;
}

int ls_store_split(const char *store, const struct ls_shares *shares,
                   const struct ls_store_job *job, struct ls_store_part *parts,
                   struct ls_error *error)
{
    struct split split = {.shares = *shares,
                          .making = {.stores = {&store, 1}, .part_documents = part_documents(job)}};
    const int count = shares->count;
    LS_ASSERT(count >= 1 && count <= LS_PARTS_MAX);
    int status = data_stored_open(&split.from, store, NULL, error);
    if (!status)
        status = data_stored_index(&split.from, error);
    if (!status)
        status = split_check(&split, error);
    if (!status)
        status = split_open(&split, job->output, error);
    if (!status)
        status = split_copy(&split, job->stop, error);
    for (int i = 0; i < count && !status; i++)
        status = data_output_finish(&split.outputs[i], error);
    for (int i = 0; i < count && !status; i++)
        status = data_output_publish(&split.outputs[i], error);
    for (int i = 0; split.outputs && i < count; i++) {
        parts[i] = split.outputs[i].done;
        data_output_release(&split.outputs[i]);
    }
    free(split.outputs);
    data_stored_release(&split.from);
    return status;
}
