/* GPT-2's vocab.json and merges.txt: every promise of the files is checked before it is used. */
#include "data/tokenizer_private.h"

#include <lockstep/base/json.h>

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* tokens[i] = the token of id i, borrowed from root. */
static int tokens_by_id(json_t *root, const char *name, struct data_string *tokens,
                        struct ls_error *error)
{
    long long count = (long long)json_object_size(root);
    const char *token;
    json_t *value;
    json_object_foreach(root, token, value)
    {
        if (!json_is_integer(value))
            return ls_error_set(error, LS_EDATA,
                                "%s: token \"%.100s\": its id is not an integer; vocab.json maps "
                                "each token to its id",
                                name, token);
        long long id = json_integer_value(value);
        if (id < 0 || id >= count)
            return ls_error_set(error, LS_EDATA,
                                "%s: token \"%.100s\" has id %lld; %lld tokens need the ids 0 to "
                                "%lld without holes",
                                name, token, id, count, count - 1);
        if (tokens[id].bytes)
            return ls_error_set(error, LS_EDATA,
                                "%s: id %lld belongs to \"%.100s\" and to \"%.100s\"; ids are "
                                "unique",
                                name, id, (const char *)tokens[id].bytes, token);
        if (!*token)
            return ls_error_set(error, LS_EDATA, "%s: id %lld is the empty token", name, id);
        tokens[id] = (struct data_string){(const unsigned char *)token, strlen(token)};
    }
    return LS_OK;
}

static int vocab_read(struct data_bpe *bpe, json_t *root, const char *name, int64_t merges,
                      int32_t *eod, struct ls_error *error)
{
    int64_t count = (int64_t)json_object_size(root);
    struct data_string *tokens = calloc((size_t)count + 1, sizeof *tokens);
    int status = tokens ? LS_OK : ls_error_set(error, LS_ENOMEM, "%s: no memory", name);
    if (!status)
        status = tokens_by_id(root, name, tokens, error);
    struct data_bpe_model model = {.name = name,
                                   .form = DATA_BYTE_CHARACTERS,
                                   .tokens = tokens,
                                   .vocabulary = count,
                                   .merges = merges,
                                   .all_bytes = true};
    if (!status)
        status = data_bpe_init(bpe, &model, error);
    if (!status) {
        *eod = data_bpe_token(
            bpe, (struct data_string){(const unsigned char *)DATA_PAIR_EOD, strlen(DATA_PAIR_EOD)});
        if (*eod < 0)
            status = ls_error_set(error, LS_EDATA,
                                  "%s: no token \"%s\", which ends a document; add it to the "
                                  "vocabulary",
                                  name, DATA_PAIR_EOD);
    }
    free(tokens);
    return status;
}

/* line[length] is "LEFT RIGHT". */
static int merge_line(struct data_bpe *bpe, const struct data_byte_map *map,
                      struct data_string line, int32_t rank, struct ls_error *error)
{
    const unsigned char *end = line.bytes + line.count,
                        *space = memchr(line.bytes, ' ', line.count);
    if (!space || space == line.bytes || space == end - 1 ||
        memchr(space + 1, ' ', (size_t)(end - space - 1)) || memchr(line.bytes, 0, line.count) ||
        ls_utf8_valid(line.bytes, line.count) < line.count)
        return ls_error_set(error, LS_EDATA,
                            "\"%.*s\" is not a merge; expected two tokens with one space between",
                            (int)ls_min((int64_t)line.count, 100), line.bytes);
    struct data_string left = {line.bytes, (size_t)(space - line.bytes)};
    struct data_string right = {space + 1, (size_t)(end - space - 1)};
    return data_bpe_merge(bpe, map, left, right, rank, error);
}

static int merges_read(struct data_bpe *bpe, struct data_named_text merges, struct ls_error *error)
{
    struct data_byte_map map;
    const char *end = merges.bytes + merges.count;
    int status = LS_OK;
    int32_t rank = 0;
    long long number = 0;
    data_byte_map_init(&map);
    for (const char *line = merges.bytes; !status && line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        const char *next = stop ? stop + 1 : end;
        size_t length = (size_t)((stop ? stop : end) - line);
        if (length > 0 && line[length - 1] == '\r')
            length--;
        number++;
        bool version = number == 1 && length >= 8 && strncmp(line, "#version", 8) == 0;
        bool last_blank = length == 0 && next == end;
        if (!version && !last_blank)
            status =
                merge_line(bpe, &map, (struct data_string){(const unsigned char *)line, length},
                           rank++, error);
        if (status == LS_EDATA)
            ls_error_at(error, merges.name, number, 0);
        line = next;
    }
    return status;
}

static int64_t lines_of(struct data_named_text text)
{
    int64_t lines = 1;
    for (size_t i = 0; i < text.count; i++)
        lines += text.bytes[i] == '\n';
    return lines;
}

int data_bpe_parse(struct data_bpe *bpe, struct data_named_text vocab,
                   struct data_named_text merges, int32_t *eod, struct ls_error *error)
{
    *bpe = (struct data_bpe){0};
    json_t *root;
    int status = ls_json_parse(vocab.name, vocab.bytes, vocab.count, LS_EDATA, &root, error);
    if (!status && json_object_size(root) > INT32_MAX)
        status =
            ls_error_set(error, LS_EDATA, "%s: expected at most %d tokens", vocab.name, INT32_MAX);
    if (!status)
        status = vocab_read(bpe, root, vocab.name, lines_of(merges), eod, error);
    json_decref(root);
    if (!status)
        status = merges_read(bpe, merges, error);
    if (status)
        data_bpe_release(bpe);
    return status;
}
