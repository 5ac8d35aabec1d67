/* tiktoken's rank files: a line "BASE64 RANK" for each token. A rank is an id and an order: of all
 * neighbours whose text together is a token, those of the lowest rank merge first. */
#include "data/tokenizer_private.h"

#include <nettle/base64.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 1 << 24 };

/* ---- reading --------------------------------------------------------------------------------- */

/* Bytes of text[count] in base 64, into out; 0: it is none. */
static size_t base64_read(const char *text, size_t count, unsigned char *out)
{
    struct base64_decode_ctx decoding;
    size_t written;
    base64_decode_init(&decoding);
    return base64_decode_update(&decoding, &written, out, count, text) &&
                   base64_decode_final(&decoding)
               ? written
               : 0;
}

struct ranks {
    const char *name;
    struct data_string *tokens; /* [count]; bytes NULL: no token has this rank */
    unsigned char *bytes;       /* of all tokens */
    int64_t count;
    struct ls_error *error;
};

/* line[length] into the token of its rank, at *used of all bytes. */
static int line_read(struct ranks *r, const char *line, size_t length, long long number,
                     size_t *used)
{
    const char *space = memchr(line, ' ', length);
    char digits[16] = "", *end = digits;
    size_t rank_length = space ? (size_t)(line + length - space - 1) : 0;
    if (rank_length > 0 && rank_length < sizeof digits)
        memcpy(digits, space + 1, rank_length);
    long rank = strspn(digits, "0123456789") == rank_length ? strtol(digits, &end, 10) : -1;
    size_t bytes = space ? base64_read(line, (size_t)(space - line), r->bytes + *used) : 0;
    if (bytes == 0 || bytes > DATA_TOKEN_BYTES_MAX || end == digits || rank < 0 ||
        rank >= RANKS_MAX)
        return ls_error_line(r->error, LS_EDATA, r->name, number,
                             "expected a token in base 64, a space, and its rank, 0 to %d",
                             RANKS_MAX - 1);
    if (rank >= r->count)
        return ls_error_line(r->error, LS_EDATA, r->name, number,
                             "rank %ld in a file of %lld lines; ranks may leave out few numbers",
                             rank, (long long)r->count - RANKS_MAX / 1024);
    if (r->tokens[rank].bytes)
        return ls_error_line(r->error, LS_EDATA, r->name, number, "a second token of rank %ld",
                             rank);
    r->tokens[rank] = (struct data_string){r->bytes + *used, bytes};
    *used += bytes;
    return LS_OK;
}

static int ranks_read(struct ranks *r, struct data_named_text file)
{
    int64_t lines = 1;
    for (size_t i = 0; i < file.count; i++)
        lines += file.bytes[i] == '\n';
    r->count = lines + RANKS_MAX / 1024;
    r->tokens = calloc((size_t)r->count, sizeof *r->tokens);
    r->bytes = malloc(file.count + 1);
    if (!r->tokens || !r->bytes)
        return ls_error_set(r->error, LS_ENOMEM, "%s: no memory", r->name);
    const char *line = file.bytes, *end = file.bytes + file.count;
    long long number = 0;
    size_t used = 0;
    int status = LS_OK;
    while (line < end && !status) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        size_t length = (size_t)((stop ? stop : end) - line);
        number++;
        if (length > 0)
            status = line_read(r, line, length, number, &used);
        line = stop ? stop + 1 : end;
    }
    while (r->count > 0 && !r->tokens[r->count - 1].bytes)
        r->count--;
    return status;
}

/* ---- merges ---------------------------------------------------------------------------------- */

/* Every two tokens that together are a token; or only their number, where bpe has no room yet. */
static int64_t merges_put(struct data_bpe *bpe, const struct ranks *r, bool put)
{
    int64_t merges = 0;
    for (int32_t id = 0; id < r->count; id++)
        for (size_t cut = 1; cut < r->tokens[id].count; cut++) {
            struct data_string whole = r->tokens[id];
            int32_t left = data_bpe_token(bpe, (struct data_string){whole.bytes, cut});
            int32_t right = left < 0 ? -1
                                     : data_bpe_token(bpe, (struct data_string){whole.bytes + cut,
                                                                                whole.count - cut});
            if (right < 0)
                continue;
            merges++;
            if (put)
                data_bpe_merge_ids(bpe, left, right, id, id);
        }
    return merges;
}

static int bpe_make(struct data_bpe *bpe, const struct ranks *r)
{
    struct data_bpe_model model = {.name = r->name,
                                   .form = DATA_BYTES,
                                   .tokens = r->tokens,
                                   .vocabulary = r->count,
                                   .all_bytes = true,
                                   .whole_first = true};
    int status = data_bpe_init(bpe, &model, r->error);
    if (status)
        return status;
    for (int32_t id = 0; id < r->count; id++)
        if (r->tokens[id].bytes && data_bpe_token(bpe, r->tokens[id]) != id)
            return ls_error_set(r->error, LS_EDATA, "%s: ranks %d and %d have the same token",
                                r->name, data_bpe_token(bpe, r->tokens[id]), id);
    status = data_bpe_merges_init(bpe, merges_put(bpe, r, false), r->error);
    if (!status)
        merges_put(bpe, r, true);
    return status;
}

/* ---- special tokens, which are not in the file ----------------------------------------------- */

/* Ids of special tokens, counted from the first one behind the ranks. */
struct special {
    const char *name;
    int offset;
};
static const struct published {
    const char *pattern;
    struct special special[12];
    const char *numbered; /* further ones, "NAME%d" */
    int first, count, number;
} published[] = {
    {"gpt2", {{"<|endoftext|>", 0}}, NULL, 0, 0, 0},
    {"r50k_base", {{"<|endoftext|>", 0}}, NULL, 0, 0, 0},
    {"cl100k_base",
     {{"<|endoftext|>", 1},
      {"<|fim_prefix|>", 2},
      {"<|fim_middle|>", 3},
      {"<|fim_suffix|>", 4},
      {"<|endofprompt|>", 20}},
     NULL,
     0,
     0,
     0},
    {"o200k_base", {{"<|endoftext|>", 1}, {"<|endofprompt|>", 20}}, NULL, 0, 0, 0},
    {"llama3",
     {{"<|begin_of_text|>", 0},
      {"<|end_of_text|>", 1},
      {"<|reserved_special_token_0|>", 2},
      {"<|reserved_special_token_1|>", 3},
      {"<|finetune_right_pad_id|>", 4},
      {"<|reserved_special_token_2|>", 5},
      {"<|start_header_id|>", 6},
      {"<|end_header_id|>", 7},
      {"<|eom_id|>", 8},
      {"<|eot_id|>", 9},
      {"<|python_tag|>", 10}},
     "<|reserved_special_token_%d|>",
     11,
     245,
     3},
    {"qwen",
     {{"<|endoftext|>", 0}, {"<|im_start|>", 1}, {"<|im_end|>", 2}},
     "<|extra_%d|>",
     3,
     205,
     0},
};

static int special_put(struct ls_tokenizer *t, const char *name, const char *text, int32_t id,
                       struct ls_error *error)
{
    struct data_added_token token = {.content = (char *)(uintptr_t)text,
                                     .content_bytes = strlen(text),
                                     .id = id,
                                     .special = true};
    int status = data_added_put(&t->added, name, &token, error);
    t->vocabulary = ls_max(t->vocabulary, (int64_t)id + 1);
    if (status)
        return status;
    struct data_added_token *put = &t->added.tokens[t->added.count - 1];
    put->matched = strdup(text);
    put->matched_bytes = put->content_bytes;
    return put->matched ? LS_OK : ls_error_set(error, LS_ENOMEM, "%s: no memory", name);
}

static int specials_put(struct ls_tokenizer *t, const char *pattern, const char *name,
                        struct ls_error *error)
{
    const struct published *p = published;
    const struct published *end = p + sizeof published / sizeof *published;
    int32_t base = (int32_t)t->bpe.vocabulary;
    int status = LS_OK;
    while (p < end && strcmp(p->pattern, pattern) != 0)
        p++;
    if (p == end)
        return LS_OK;
    for (size_t i = 0; i < sizeof p->special / sizeof *p->special && p->special[i].name && !status;
         i++)
        status = special_put(t, name, p->special[i].name, base + p->special[i].offset, error);
    for (int i = 0; i < p->count && !status; i++) {
        char text[64];
        snprintf(text, sizeof text, p->numbered, p->number + i);
        status = special_put(t, name, text, base + p->first + i, error);
    }
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

int data_tokenizer_parse_ranks(struct ls_tokenizer *t, const char *pattern,
                               struct data_named_text file, struct ls_error *error)
{
    struct ranks ranks = {.name = file.name, .error = error};
    const char *text = data_pattern_named(pattern);
    int status = ranks_read(&ranks, file);
    if (!status)
        status = bpe_make(&t->bpe, &ranks);
    t->vocabulary = t->bpe.vocabulary;
    if (!status)
        status = specials_put(t, pattern, file.name, error);
    if (!status)
        status = data_added_index(&t->added, file.name, error);
    if (!status)
        status = data_added_finish(&t->added, file.name, error);
    if (!status)
        status = data_tokenizer_configure(t, (struct data_settings){0}, error);
    if (!status)
        status = data_decoding_init(t, &(struct data_decoding){0}, error);
    if (!status) {
        t->pre_count = 1;
        t->pre[0].parts = true;
        t->may_cut = true;
        status = data_splitter_new(text, DATA_FANCY, true, &t->pre[0].splitter, error);
    }
    free(ranks.tokens);
    free(ranks.bytes);
    return status;
}
