/* Ids to text. What each token stands for is known ahead (data_decoding_init), but for what is
 * taken from the beginning of a text. */
#include "data/tokenizer_private.h"

#include <string.h>

/* ---- what tokens stand for ------------------------------------------------------------------- */

/* The byte of <0xXX>; -1: the token is none. */
static int byte_of(struct data_string token)
{
    const unsigned char *t = token.bytes;
    if (token.count != 6 || memcmp(t, "<0x", 3) != 0 || t[5] != '>')
        return -1;
    return data_hex_at((const char *)t + 3, 2);
}

/* Writes what a token stands for; returns its bytes, at most (1 + bytes of `with`) times its own.
 */
static size_t write_token(const struct data_decoding *decoding, struct data_string token,
                          unsigned char *out)
{
    int byte = decoding->byte_fallback ? byte_of(token) : -1;
    if (byte >= 0) {
        out[0] = (unsigned char)byte;
        return 1;
    }
    size_t replaced = decoding->replaced ? strlen(decoding->replaced) : 0, count = 0;
    size_t with = replaced ? strlen(decoding->with) : 0;
    for (size_t at = 0; at < token.count;) {
        if (replaced && token.count - at >= replaced &&
            memcmp(token.bytes + at, decoding->replaced, replaced) == 0) {
            memcpy(out + count, decoding->with, with);
            count += with;
            at += replaced;
        } else {
            out[count++] = token.bytes[at++];
        }
    }
    return count;
}

/* The token as its file writes it; an added one as a normalized text has it. */
static struct data_string token_of(const struct ls_tokenizer *tokenizer, int32_t id)
{
    const struct data_added_token *added = data_added_of_id(&tokenizer->added, id);
    if (added)
        return (struct data_string){(unsigned char *)added->matched, added->matched_bytes};
    return id < tokenizer->bpe.vocabulary ? data_string(&tokenizer->bpe.tokens, id)
                                          : (struct data_string){NULL, 0};
}

int data_decoding_init(struct ls_tokenizer *tokenizer, const struct data_decoding *decoding,
                       struct ls_error *error)
{
    size_t bytes = 0, used = 0, factor = decoding->with ? 1 + strlen(decoding->with) : 1;
    struct data_byte_map map;
    data_byte_map_init(&map);
    for (int32_t id = 0; id < tokenizer->vocabulary; id++)
        bytes += factor * token_of(tokenizer, id).count;
    int status = data_strings_init(&tokenizer->text, tokenizer->vocabulary, bytes, false, error);
    for (int32_t id = 0; id < tokenizer->vocabulary && !status; id++) {
        unsigned char *out = tokenizer->text.bytes + used;
        struct data_string token = token_of(tokenizer, id);
        /* The model's tokens are bytes already. */
        bool written = decoding->byte_level && data_added_of_id(&tokenizer->added, id);
        if (!written || !data_byte_map_read(&map, token, out, &bytes))
            bytes = write_token(decoding, token, out);
        used += bytes;
        tokenizer->text.offset[id + 1] = (uint32_t)used;
    }
    return status;
}

/* ---- a token at a time ----------------------------------------------------------------------- */

/* Bytes at the end of text[bytes] that begin a character without completing it. */
static size_t incomplete(const unsigned char *text, size_t bytes)
{
    for (size_t back = 1; back <= 3 && back <= bytes; back++) {
        const unsigned char *lead = text + bytes - back;
        size_t length = *lead >= 0xf0 ? 4 : *lead >= 0xe0 ? 3 : *lead >= 0xc0 ? 2 : 1;
        if ((*lead & 0xc0) == 0x80)
            continue;
        if (length <= back)
            return 0;
        /* What may follow: a complete character made of these bytes and continuations is valid. */
        for (int second = 0x80; second < 0xc0; second += 0x10) {
            unsigned char whole[4] = {0, (unsigned char)second, 0x80, 0x80};
            memcpy(whole, lead, back);
            if (ls_utf8_character((const char *)whole, length) == length)
                return back;
        }
        return 0;
    }
    return 0;
}

/* Moves what is not complete at the end of out, from `begin` on, into the detokenizer. */
static void hold(struct ls_detokenizer *d, struct ls_text *out, size_t begin)
{
    size_t held = incomplete((unsigned char *)out->bytes + begin, out->count - begin);
    memcpy(d->held, out->bytes + out->count - held, held);
    d->held_count = (int)held;
    out->count -= held;
}

/* The first token of a text whose decoder takes all meta spaces from it. */
static int put_stripped(const struct ls_tokenizer *tokenizer, int32_t id, struct ls_text *out,
                        struct ls_error *error)
{
    const struct data_decoding decoding = {.replaced = DATA_META_SPACE, .with = ""};
    struct data_string token = token_of(tokenizer, id);
    int status = data_text_reserve(out, token.count, error);
    if (!status)
        out->count += write_token(&decoding, token, (unsigned char *)out->bytes + out->count);
    return status;
}

static int put_token(struct ls_detokenizer *d, int32_t id, struct ls_text *out,
                     struct ls_error *error)
{
    const struct ls_tokenizer *tokenizer = d->tokenizer;
    if (tokenizer->is_byte && id == DATA_BYTE_EOD)
        return data_text_put(out, DATA_PAIR_EOD, strlen(DATA_PAIR_EOD), error);
    if (tokenizer->is_byte)
        return data_text_put(out, &(unsigned char){(unsigned char)id}, 1, error);
    struct data_string text = data_string(&tokenizer->text, id);
    if (!d->begun && tokenizer->strip_meta) {
        d->begun = text.count > 0;
        return put_stripped(tokenizer, id, out, error);
    }
    while (!d->begun && text.count > 0) {
        if (d->stripped >= tokenizer->strip_count || text.bytes[0] != tokenizer->strip) {
            d->begun = true;
            break;
        }
        d->stripped++;
        text.bytes++;
        text.count--;
    }
    return data_text_put(out, text.bytes, text.count, error);
}

int ls_detokenizer_next(struct ls_detokenizer *d, int32_t id, struct ls_text *out,
                        struct ls_error *error)
{
    int64_t vocabulary = ls_tokenizer_vocabulary(d->tokenizer);
    if (id < 0 || id >= vocabulary)
        return ls_error_set(error, LS_EDATA, "id %d; the %s tokenizer has the ids 0 to %lld", id,
                            ls_tokenizer_name(d->tokenizer), (long long)vocabulary - 1);
    if (d->skip_special && ls_tokenizer_is_special(d->tokenizer, id))
        return LS_OK;
    size_t begin = out->count;
    int status = data_text_put(out, d->held, (size_t)d->held_count, error);
    if (!status)
        status = put_token(d, id, out, error);
    if (status)
        out->count = begin;
    else if (out->count > begin)
        hold(d, out, begin);
    return status;
}

int ls_detokenizer_end(struct ls_detokenizer *d, struct ls_text *out, struct ls_error *error)
{
    int status = data_text_put(out, d->held, (size_t)d->held_count, error);
    *d = (struct ls_detokenizer){.tokenizer = d->tokenizer, .skip_special = d->skip_special};
    return status;
}

int ls_decode(const struct ls_tokenizer *tokenizer, const int32_t *ids, int64_t count,
              struct ls_text *out, struct ls_error *error)
{
    struct ls_detokenizer d = {.tokenizer = tokenizer};
    int status = LS_OK;
    for (int64_t i = 0; i < count && !status; i++) {
        status = ls_detokenizer_next(&d, ids[i], out, error);
        if (status)
            ls_error_prefix(error, "token %lld", (long long)i);
    }
    return status ? status : ls_detokenizer_end(&d, out, error);
}

bool data_token_ends_line(const struct ls_tokenizer *tokenizer, int64_t id)
{
    if (id < 0 || id >= ls_tokenizer_vocabulary(tokenizer))
        return false;
    if (tokenizer->is_byte)
        return id == '\n';
    struct data_string text = data_string(&tokenizer->text, id);
    return text.count > 0 && text.bytes[text.count - 1] == '\n';
}
