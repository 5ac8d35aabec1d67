/* The tables of byte-pair encoding: tokens by id and by text, and merges by pair. Every promise of
 * a file is checked while they are filled. */
#include "data/tokenizer_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Byte-level BPE writes every byte as a printable character: bytes 33-126, 161-172 and 174-255 as
 * the character of that number, the other 68 as U+0100 onwards in order. */
static bool byte_maps_to_itself(unsigned byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

void data_byte_map_init(struct data_byte_map *map)
{
    memset(map->byte_of, -1, sizeof map->byte_of);
    unsigned next = 256;
    for (unsigned byte = 0; byte < 256; byte++)
        map->byte_of[byte_maps_to_itself(byte) ? byte : next++] = (short)byte;
}

bool data_byte_map_read(const struct data_byte_map *map, struct data_string token,
                        unsigned char *out, size_t *count)
{
    size_t length;
    *count = 0;
    for (size_t at = 0; at < token.count; at += length) {
        uint32_t code = data_utf8_decode(token.bytes + at, &length);
        if (code >= sizeof map->byte_of / sizeof *map->byte_of || map->byte_of[code] < 0)
            return false;
        out[(*count)++] = (unsigned char)map->byte_of[code];
    }
    return true;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* A token that is not written in byte characters is one that was added: it is kept as it is, and
 * nothing merges to it. */
static int tokens_fill(struct data_bpe *bpe, const struct data_bpe_model *model,
                       struct ls_error *error)
{
    struct data_byte_map map;
    size_t used = 0, bytes;
    data_byte_map_init(&map);
    for (int32_t id = 0; id < model->vocabulary; id++) {
        struct data_string token = model->tokens[id];
        bpe->tokens.offset[id] = (uint32_t)used;
        if (!token.bytes)
            continue;
        bool written = model->form != DATA_BYTE_CHARACTERS;
        if (!written && data_byte_map_read(&map, token, bpe->tokens.bytes + used, &bytes)) {
            used += bytes;
            bpe->tokens.offset[id + 1] = (uint32_t)used;
            data_strings_index(&bpe->tokens, id);
            continue;
        }
        if (!written && !(model->is_added && model->is_added(model->user, id)))
            return ls_error_set(error, LS_EDATA,
                                "%s: token \"%.*s\" has a character that represents no byte; "
                                "expected byte-level BPE as GPT-2 writes it",
                                model->name, (int)ls_min((int64_t)token.count, 100), token.bytes);
        memcpy(bpe->tokens.bytes + used, token.bytes, token.count);
        used += token.count;
        bpe->tokens.offset[id + 1] = (uint32_t)used;
        if (written)
            data_strings_index(&bpe->tokens, id);
    }
    bpe->tokens.offset[model->vocabulary] = (uint32_t)used;
    return LS_OK;
}

/* ---- symbols: what a text begins as ---------------------------------------------------------- */

static int byte_symbols(struct data_bpe *bpe, const struct data_bpe_model *model,
                        struct ls_error *error)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        unsigned char text[8] = {(unsigned char)byte};
        struct data_string token = {text, 1};
        if (model->form == DATA_CHARACTERS)
            token.count = (size_t)snprintf((char *)text, sizeof text, "<0x%02X>", byte);
        bpe->byte_id[byte] = model->form == DATA_CHARACTERS && !model->byte_fallback
                                 ? -1
                                 : data_bpe_token(bpe, token);
        bool needed = model->byte_fallback || model->all_bytes;
        if (needed && bpe->byte_id[byte] < 0)
            return ls_error_set(error, LS_EDATA,
                                model->byte_fallback
                                    ? "%s: byte %u has no token \"<0x%02X>\"; model.byte_fallback "
                                      "needs all 256"
                                    : "%s: byte %u (\"\\x%02x\") has no token; byte-level BPE "
                                      "needs all 256",
                                model->name, byte, byte);
    }
    for (unsigned char c = 0; c < 128; c++)
        bpe->ascii_id[c] = model->form == DATA_CHARACTERS
                               ? data_bpe_token(bpe, (struct data_string){&c, 1})
                               : bpe->byte_id[c];
    return LS_OK;
}

/* True if no token goes on from another character to the meta space. */
static bool words_part(const struct data_bpe *bpe, int64_t vocabulary)
{
    static const unsigned char space[] = {0xe2, 0x96, 0x81};
    if (data_bpe_token(bpe, (struct data_string){space, sizeof space}) < 0)
        return false;
    for (int32_t id = 0; id < vocabulary; id++) {
        struct data_string token = data_string(&bpe->tokens, id);
        bool text = false; /* another character came before */
        for (size_t at = 0; at < token.count;) {
            bool here = token.count - at >= sizeof space &&
                        memcmp(token.bytes + at, space, sizeof space) == 0;
            if (here && text)
                return false;
            text = !here;
            at += here ? sizeof space : 1;
        }
    }
    return true;
}

/* ---- merges ---------------------------------------------------------------------------------- */

int data_bpe_merges_init(struct data_bpe *bpe, int64_t count, struct ls_error *error)
{
    free(bpe->merges);
    uint64_t slots = 16;
    while (slots < 2 * (uint64_t)count)
        slots *= 2;
    bpe->merges = malloc(slots * sizeof *bpe->merges);
    if (!bpe->merges)
        return ls_no_memory(error, "for %lld merges", (long long)count);
    for (uint64_t i = 0; i < slots; i++)
        bpe->merges[i] = (struct data_merge){0, -1, -1};
    bpe->merges_mask = slots - 1;
    return LS_OK;
}

bool data_bpe_merge_ids(struct data_bpe *bpe, int32_t left, int32_t right, int32_t rank,
                        int32_t result)
{
    struct data_merge *merge = data_merge_slot(bpe, left, right);
    if (merge->rank >= 0)
        return false;
    *merge = (struct data_merge){(uint64_t)(uint32_t)left << 32 | (uint32_t)right, rank, result};
    return true;
}

/* The token that is written so; text has room for twice its bytes. */
static int32_t token_written(const struct data_bpe *bpe, const struct data_byte_map *map,
                             struct data_string token, unsigned char *text)
{
    size_t bytes;
    if (bpe->form != DATA_BYTE_CHARACTERS)
        return data_bpe_token(bpe, token);
    return data_byte_map_read(map, token, text, &bytes)
               ? data_bpe_token(bpe, (struct data_string){text, bytes})
               : -1;
}

int data_bpe_merge(struct data_bpe *bpe, const struct data_byte_map *map, struct data_string left,
                   struct data_string right, int32_t rank, struct ls_error *error)
{
    unsigned char text[2 * DATA_TOKEN_BYTES_MAX], joined[2 * DATA_TOKEN_BYTES_MAX];
    if (left.count > DATA_TOKEN_BYTES_MAX || right.count > DATA_TOKEN_BYTES_MAX)
        return ls_error_set(error, LS_EDATA, "a token of more than %d bytes", DATA_TOKEN_BYTES_MAX);
    int32_t left_id = token_written(bpe, map, left, text);
    int32_t right_id = token_written(bpe, map, right, text);
    if (left_id < 0 || right_id < 0) {
        struct data_string missing = left_id < 0 ? left : right;
        return ls_error_set(error, LS_EDATA,
                            "token \"%.*s\" is not in the vocabulary; vocabulary and merges must "
                            "belong together",
                            (int)ls_min((int64_t)missing.count, 100), missing.bytes);
    }
    memcpy(joined, left.bytes, left.count);
    memcpy(joined + left.count, right.bytes, right.count);
    struct data_string both = {joined, left.count + right.count};
    int32_t id = token_written(bpe, map, both, text);
    if (id < 0)
        return ls_error_set(error, LS_EDATA,
                            "the merged token \"%.*s\" is not in the vocabulary; vocabulary and "
                            "merges must belong together",
                            (int)ls_min((int64_t)both.count, 100), both.bytes);
    if (!data_bpe_merge_ids(bpe, left_id, right_id, rank, id))
        return ls_error_set(error, LS_EDATA, "this pair (of \"%.*s\") was merged above",
                            (int)ls_min((int64_t)both.count, 100), both.bytes);
    return LS_OK;
}

int data_bpe_init(struct data_bpe *bpe, const struct data_bpe_model *model, struct ls_error *error)
{
    *bpe = (struct data_bpe){.vocabulary = model->vocabulary,
                             .form = model->form,
                             .whole_first = model->whole_first,
                             .unknown = -1,
                             .fuse_unknown = model->fuse_unknown};
    size_t bytes = 0;
    for (int64_t id = 0; id < model->vocabulary; id++)
        bytes += model->tokens[id].bytes ? model->tokens[id].count : 0;
    int status = data_strings_init(&bpe->tokens, model->vocabulary, bytes, true, error);
    if (!status)
        status = tokens_fill(bpe, model, error);
    if (!status)
        status = byte_symbols(bpe, model, error);
    if (!status)
        status = data_bpe_merges_init(bpe, model->merges, error);
    if (!status)
        bpe->words_part = bpe->form == DATA_CHARACTERS && words_part(bpe, bpe->vocabulary);
    if (status)
        data_bpe_release(bpe);
    return status;
}

void data_bpe_release(struct data_bpe *bpe)
{
    data_strings_release(&bpe->tokens);
    free(bpe->merges);
    *bpe = (struct data_bpe){0};
}
