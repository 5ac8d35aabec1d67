/* GPT-2's vocab.json and merges.txt: every promise of the files is checked before it is used. */
#include "data/data_private.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char eod_token[] = "<|endoftext|>";

/* Byte-level BPE writes every byte as a printable character: bytes 33-126, 161-172 and 174-255 as
 * the character of that number, the other 68 as U+0100 onwards in order. */
static bool byte_maps_to_itself(unsigned byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

struct byte_map {
    unsigned character_of[256];
    short byte_of[256 + 68]; /* -1: stands for no byte */
};

static void byte_map_init(struct byte_map *map)
{
    memset(map->byte_of, -1, sizeof map->byte_of);
    unsigned next = 256;
    for (unsigned byte = 0; byte < 256; byte++) {
        unsigned character = byte_maps_to_itself(byte) ? byte : next++;
        map->character_of[byte] = character;
        map->byte_of[character] = (short)byte;
    }
}

/* Appends the bytes that the characters of token stand for; false where one stands for none. All
 * characters of the map are below U+0800, so at most two bytes of UTF-8. */
static bool token_to_bytes(const struct byte_map *map, const char *token, unsigned char *out,
                           size_t *count)
{
    const unsigned char *at = (const unsigned char *)token;
    while (*at) {
        unsigned character = *at++;
        if (character >= 0x80) {
            if (character >= 0xe0)
                return false;
            character = (character & 0x1f) << 6 | (*at++ & 0x3f);
        }
        if (character >= 256 + 68 || map->byte_of[character] < 0)
            return false;
        out[(*count)++] = (unsigned char)map->byte_of[character];
    }
    return true;
}

/* tokens[i] = the token of id i, borrowed from root. */
static int tokens_by_id(json_t *root, const char *name, const char **tokens, size_t *bytes_max,
                        struct ls_error *error)
{
    long long count = (long long)json_object_size(root);
    const char *token;
    json_t *value;
    *bytes_max = 0;
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
        if (tokens[id])
            return ls_error_set(error, LS_EDATA,
                                "%s: id %lld belongs to \"%.100s\" and to \"%.100s\"; ids are "
                                "unique",
                                name, id, tokens[id], token);
        if (!*token)
            return ls_error_set(error, LS_EDATA, "%s: id %lld is the empty token", name, id);
        tokens[id] = token;
        *bytes_max += strlen(token);
    }
    return LS_OK;
}

static int vocab_read(struct data_bpe *bpe, json_t *root, const char *name,
                      const struct byte_map *map, struct ls_error *error)
{
    int64_t count = (int64_t)json_object_size(root);
    const char **tokens = calloc((size_t)count + 1, sizeof *tokens);
    size_t bytes_max, used = 0;
    int rc = tokens ? LS_OK : ls_error_set(error, LS_ENOMEM, "%s: no memory", name);
    if (!rc)
        rc = tokens_by_id(root, name, tokens, &bytes_max, error);
    if (rc)
        goto out;
    bpe->offset = malloc(((size_t)count + 1) * sizeof *bpe->offset);
    bpe->bytes = malloc(bytes_max + 1);
    if (!bpe->offset || !bpe->bytes) {
        rc = ls_error_set(error, LS_ENOMEM, "%s: no memory", name);
        goto out;
    }
    for (int64_t id = 0; id < count; id++) {
        bpe->offset[id] = (uint32_t)used;
        if (!token_to_bytes(map, tokens[id], bpe->bytes, &used) || used > UINT32_MAX) {
            rc = ls_error_set(
                error, LS_EDATA,
                "%s: token \"%.100s\" holds a character that does not stand for a byte; "
                "expected byte-level BPE as GPT-2 writes it",
                name, tokens[id]);
            goto out;
        }
    }
    bpe->offset[count] = (uint32_t)used;
    bpe->vocabulary = count;
out:
    free(tokens);
    return rc;
}

/* id of a token, -1 where the vocabulary lacks it. */
static int32_t id_of(const json_t *root, const char *token)
{
    json_t *value = json_object_get(root, token);
    return value ? (int32_t)json_integer_value(value) : -1;
}

static int special_ids(struct data_bpe *bpe, const json_t *root, const char *name,
                       const struct byte_map *map, struct ls_error *error)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        unsigned c = map->character_of[byte];
        char token[3] = {(char)c, 0, 0};
        if (c >= 0x80) {
            token[0] = (char)(0xc0 | c >> 6);
            token[1] = (char)(0x80 | (c & 0x3f));
        }
        bpe->byte_id[byte] = id_of(root, token);
        if (bpe->byte_id[byte] < 0)
            return ls_error_set(error, LS_EDATA,
                                "%s: byte %u (\"%s\") has no token; byte-level BPE needs all 256",
                                name, byte, token);
    }
    bpe->eod = id_of(root, eod_token);
    if (bpe->eod < 0)
        return ls_error_set(error, LS_EDATA,
                            "%s: no token \"%s\", which ends a document; add it to the vocabulary",
                            name, eod_token);
    return LS_OK;
}

static int merge_insert(struct data_bpe *bpe, uint64_t pair, int32_t rank, int32_t id)
{
    uint64_t slot = ls_hash64(&pair, sizeof pair, 0) & bpe->merges_mask;
    while (bpe->merges[slot].rank >= 0) {
        if (bpe->merges[slot].pair == pair)
            return -1;
        slot = (slot + 1) & bpe->merges_mask;
    }
    bpe->merges[slot] = (struct data_merge){pair, rank, id};
    return 0;
}

/* line is "LEFT RIGHT", terminated, length bytes; joined has room for length. */
static int merge_line(struct data_bpe *bpe, const json_t *root, const char *name,
                      long long line_number, char *line, size_t length, int32_t rank,
                      struct ls_error *error)
{
    char *space = memchr(line, ' ', length);
    if (!space || space == line || space == line + length - 1 ||
        memchr(space + 1, ' ', (size_t)(line + length - space - 1)) || memchr(line, 0, length))
        return ls_error_set(error, LS_EDATA,
                            "%s:%lld: \"%.100s\" is not a merge; expected two tokens with one "
                            "space between",
                            name, line_number, line);
    *space = 0;
    const char *right = space + 1;
    int32_t left_id = id_of(root, line), right_id = id_of(root, right);
    if (left_id < 0 || right_id < 0)
        return ls_error_set(error, LS_EDATA,
                            "%s:%lld: token \"%.100s\" is not in the vocabulary; vocab.json and "
                            "merges.txt must belong together",
                            name, line_number, left_id < 0 ? line : right);
    /* Closing the gap of the space makes the merged token in place. */
    memmove(space, right, length - (size_t)(right - line) + 1);
    int32_t id = id_of(root, line);
    if (id < 0)
        return ls_error_set(error, LS_EDATA,
                            "%s:%lld: the merged token \"%.100s\" is not in the vocabulary; "
                            "vocab.json and merges.txt must belong together",
                            name, line_number, line);
    if (merge_insert(bpe, (uint64_t)left_id << 32 | (uint32_t)right_id, rank, id))
        return ls_error_set(error, LS_EDATA, "%s:%lld: this pair (of \"%.100s\") was merged above",
                            name, line_number, line);
    return LS_OK;
}

static int merges_read(struct data_bpe *bpe, const json_t *root, struct data_named_text merges,
                       struct ls_error *error)
{
    uint64_t lines = 1;
    for (size_t i = 0; i < merges.count; i++)
        lines += merges.bytes[i] == '\n';
    uint64_t slots = 16;
    while (slots < 2 * lines)
        slots *= 2;
    char *text = malloc(merges.count + 1);
    bpe->merges = malloc(slots * sizeof *bpe->merges);
    if (!text || !bpe->merges) {
        free(text);
        return ls_error_set(error, LS_ENOMEM, "%s: no memory", merges.name);
    }
    for (uint64_t i = 0; i < slots; i++)
        bpe->merges[i] = (struct data_merge){0, -1, -1};
    bpe->merges_mask = slots - 1;
    if (merges.count)
        memcpy(text, merges.bytes, merges.count);
    text[merges.count] = 0;

    int rc = LS_OK;
    int32_t rank = 0;
    long long number = 0;
    for (char *line = text, *end = text + merges.count; !rc && line < end;) {
        char *stop = memchr(line, '\n', (size_t)(end - line));
        char *next = stop ? stop + 1 : end;
        size_t length = (size_t)((stop ? stop : end) - line);
        if (length > 0 && line[length - 1] == '\r')
            length--;
        line[length] = 0;
        number++;
        bool version = number == 1 && strncmp(line, "#version", 8) == 0;
        bool last_blank = length == 0 && next == end;
        if (!version && !last_blank)
            rc = merge_line(bpe, root, merges.name, number, line, length, rank++, error);
        line = next;
    }
    free(text);
    return rc;
}

int data_bpe_parse(struct data_bpe *bpe, struct data_named_text vocab,
                   struct data_named_text merges, struct ls_error *error)
{
    *bpe = (struct data_bpe){0};
    json_error_t where;
    json_t *root =
        json_loadb(vocab.bytes ? vocab.bytes : "", vocab.count, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        return ls_error_set(error, LS_EDATA, "%s:%d:%d: not a JSON vocabulary: %s", vocab.name,
                            where.line, where.column, where.text);
    struct byte_map map;
    byte_map_init(&map);
    int rc = LS_OK;
    if (!json_is_object(root) || json_object_size(root) > INT32_MAX)
        rc = ls_error_set(error, LS_EDATA, "%s: expected one JSON object that maps tokens to ids",
                          vocab.name);
    if (!rc)
        rc = vocab_read(bpe, root, vocab.name, &map, error);
    if (!rc)
        rc = special_ids(bpe, root, vocab.name, &map, error);
    if (!rc)
        rc = merges_read(bpe, root, merges, error);
    json_decref(root);
    if (rc)
        data_bpe_release(bpe);
    return rc;
}

void data_bpe_release(struct data_bpe *bpe)
{
    free(bpe->offset);
    free(bpe->bytes);
    free(bpe->merges);
    *bpe = (struct data_bpe){0};
}
