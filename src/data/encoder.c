/* Text to ids. */
#include "data/data_private.h"

#include <stdlib.h>

/* Longer words are cut, so that positions fit 32 bits. */
enum { PIECE_BYTES_MAX = 1 << 30 };

struct ls_encoder {
    const struct ls_tokenizer *tokenizer;
    struct data_split_state *split; /* NULL for the byte tokenizer */
    struct data_bpe_scratch scratch;
};

int ls_encoder_new(const struct ls_tokenizer *tokenizer, struct ls_encoder **out,
                   struct ls_error *error)
{
    *out = NULL;
    struct ls_encoder *encoder = calloc(1, sizeof *encoder);
    if (!encoder)
        return ls_error_set(error, LS_ENOMEM, "no memory for an encoder");
    encoder->tokenizer = tokenizer;
    int rc = LS_OK;
    if (!tokenizer->is_byte) {
        rc = data_bpe_scratch_init(&encoder->scratch, error);
        if (!rc)
            rc = data_split_state_new(tokenizer->splitter, &encoder->split, error);
    }
    if (rc) {
        ls_encoder_free(encoder);
        return rc;
    }
    *out = encoder;
    return LS_OK;
}

void ls_encoder_free(struct ls_encoder *encoder)
{
    if (!encoder)
        return;
    data_split_state_free(encoder->split);
    data_bpe_scratch_release(&encoder->scratch);
    free(encoder);
}

static int encode_bytes(const unsigned char *text, size_t bytes, struct ls_token_list *out,
                        struct ls_error *error)
{
    int rc = data_ids_reserve(out, (int64_t)bytes, error);
    for (size_t i = 0; i < bytes && !rc; i++)
        out->ids[out->count++] = text[i];
    return rc;
}

/* text[bytes] is well-formed UTF-8. */
static int encode_run(struct ls_encoder *encoder, const unsigned char *text, size_t bytes,
                      struct ls_token_list *out, struct ls_error *error)
{
    const struct ls_tokenizer *tokenizer = encoder->tokenizer;
    for (size_t at = 0; at < bytes;) {
        size_t end = data_split_next(tokenizer->splitter, encoder->split, text, bytes, at);
        if (end <= at)
            return ls_error_set(error, LS_ENOMEM, "no memory to match a word of up to %zu bytes",
                                bytes - at);
        while (at < end) {
            size_t piece = (size_t)ls_min((int64_t)(end - at), PIECE_BYTES_MAX);
            int rc =
                data_bpe_encode(&tokenizer->bpe, &encoder->scratch, text + at, piece, out, error);
            if (rc)
                return rc;
            at += piece;
        }
    }
    return LS_OK;
}

int ls_encode(struct ls_encoder *encoder, const void *text, size_t bytes, struct ls_token_list *out,
              struct ls_error *error)
{
    const unsigned char *at = text, *end = at + bytes;
    if (encoder->tokenizer->is_byte)
        return encode_bytes(at, bytes, out, error);
    while (at < end) {
        size_t valid = data_utf8_valid(at, (size_t)(end - at));
        int rc = encode_run(encoder, at, valid, out, error);
        if (rc)
            return rc;
        at += valid;
        if (at < end) {
            rc = data_ids_reserve(out, 1, error);
            if (rc)
                return rc;
            out->ids[out->count++] = encoder->tokenizer->bpe.byte_id[*at++];
        }
    }
    return LS_OK;
}

size_t data_last_cut(const struct ls_tokenizer *tokenizer, const unsigned char *text, size_t bytes)
{
    return tokenizer->is_byte ? bytes : data_split_last_cut(text, bytes);
}
