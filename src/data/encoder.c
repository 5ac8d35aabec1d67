/* Text to ids: added tokens, normalizers, pre-tokenizers and byte-pair merging, one behind the
 * other. */
#include "data/tokenizer_private.h"

#include <stdlib.h>
#include <string.h>

/* Longer words are cut, so that positions fit 32 bits. */
enum { PIECE_BYTES_MAX = 1 << 30, META_SPACE_BYTES = sizeof DATA_META_SPACE - 1 };

struct ls_encoder {
    const struct ls_tokenizer *tokenizer;
    struct data_bpe_scratch scratch;
    struct data_normal_scratch normal;
    void *split[DATA_STEPS_MAX];           /* states of pre-tokenizers */
    struct ls_text spaced[DATA_STEPS_MAX]; /* what one makes of a text */
};

int ls_encoder_new(const struct ls_tokenizer *tokenizer, struct ls_encoder **out,
                   struct ls_error *error)
{
    *out = NULL;
    struct ls_encoder *encoder = calloc(1, sizeof *encoder);
    if (!encoder)
        return ls_no_memory(error, "for an encoder");
    encoder->tokenizer = tokenizer;
    int status = LS_OK;
    if (!tokenizer->is_byte) {
        status = data_bpe_scratch_init(&encoder->scratch, error);
        if (!status)
            status = data_normal_scratch_init(&encoder->normal, &tokenizer->normalizers, error);
        for (int i = 0; i < tokenizer->pre_count && !status; i++)
            if (tokenizer->pre[i].splitter)
                status =
                    data_split_state_new(tokenizer->pre[i].splitter, &encoder->split[i], error);
    }
    if (status) {
        ls_encoder_free(encoder);
        return status;
    }
    *out = encoder;
    return LS_OK;
}

void ls_encoder_free(struct ls_encoder *encoder)
{
    if (!encoder)
        return;
    for (int i = 0; i < DATA_STEPS_MAX; i++) {
        data_split_state_free(encoder->split[i]);
        ls_text_release(&encoder->spaced[i]);
    }
    data_normal_scratch_release(&encoder->normal);
    data_bpe_scratch_release(&encoder->scratch);
    free(encoder);
}

int64_t ls_encoder_unknown(const struct ls_encoder *encoder)
{
    return encoder->scratch.unknown;
}

/* A text under way. */
struct flow {
    struct ls_encoder *encoder;
    const struct ls_tokenizer *tokenizer;
    bool special; /* special tokens are found */
    struct ls_token_list *out;
    struct ls_error *error;
};
/* Where a part of it is. */
struct part_place {
    size_t first; /* bytes at its beginning, made of the text's first character */
    bool begins;  /* prefixes are put before it */
};

/* The part from byte `at` of one on. */
static struct part_place place_from(struct part_place place, size_t at)
{
    return (struct part_place){place.first > at ? place.first - at : 0, place.begins || at > 0};
}

static int put_id(const struct flow *flow, int32_t id)
{
    int status = data_ids_reserve(flow->out, 1, flow->error);
    if (!status)
        flow->out->ids[flow->out->count++] = id;
    return status;
}

/* ---- words ----------------------------------------------------------------------------------- */

/* Where the word that begins at `at` ends: before a meta space that other text comes before. */
static size_t word_end(struct data_string text, size_t at)
{
    while (text.count - at >= META_SPACE_BYTES &&
           memcmp(text.bytes + at, DATA_META_SPACE, META_SPACE_BYTES) == 0)
        at += META_SPACE_BYTES;
    const unsigned char *next =
        memmem(text.bytes + at, text.count - at, DATA_META_SPACE, META_SPACE_BYTES);
    return next ? (size_t)(next - text.bytes) : text.count;
}

static int encode_piece(const struct flow *flow, struct data_string text)
{
    const struct data_bpe *bpe = &flow->tokenizer->bpe;
    bool words = bpe->words_part && !bpe->whole_first;
    int status = LS_OK;
    for (size_t at = 0, end; at < text.count && !status; at = end) {
        end = words ? word_end(text, at) : text.count;
        if (end - at > PIECE_BYTES_MAX)
            end = at + PIECE_BYTES_MAX;
        while (end < text.count && (text.bytes[end] & 0xc0) == 0x80)
            end--;
        status = data_bpe_encode(bpe, &flow->encoder->scratch, text.bytes + at, end - at, flow->out,
                                 flow->error);
    }
    return status;
}

/* ---- pre-tokenizers -------------------------------------------------------------------------- */

static int pre_tokenize(const struct flow *flow, int step, struct data_string text,
                        struct part_place place);

/* A piece [begin, end) of text goes on to the next step. */
static int go_on(const struct flow *flow, int step, struct data_string text,
                 struct data_range piece, struct part_place place)
{
    if (piece.end <= piece.begin)
        return LS_OK;
    return pre_tokenize(flow, step + 1,
                        (struct data_string){text.bytes + piece.begin, piece.end - piece.begin},
                        place_from(place, piece.begin));
}

/* What a splitter finds, joined as its behavior says. */
struct joining {
    struct data_range held; /* not yet gone on */
    bool held_match, previous_match;
};

/* The next part of a text: a match, or what lies between matches. */
static int join(const struct flow *flow, int step, struct data_string text, struct part_place place,
                struct joining *j, struct data_range part, bool match)
{
    const struct data_pre_tokenizer *pre = &flow->tokenizer->pre[step];
    bool joined = false;
    if (part.end <= part.begin)
        return LS_OK;
    switch (pre->behavior) {
    case DATA_ISOLATED:
        break;
    case DATA_REMOVED:
        if (match)
            return LS_OK;
        break;
    case DATA_CONTIGUOUS:
        joined = match == j->held_match;
        break;
    case DATA_WITH_PREVIOUS:
        joined = match && !j->previous_match;
        break;
    case DATA_WITH_NEXT:
        joined = !match && j->held_match;
        break;
    }
    joined = joined && j->held.end > j->held.begin;
    int status = LS_OK;
    if (joined) {
        j->held.end = part.end;
    } else {
        status = go_on(flow, step, text, j->held, place);
        j->held = part;
    }
    j->held_match = match && (pre->behavior != DATA_WITH_PREVIOUS || !joined);
    j->previous_match = match;
    return status;
}

/* The last step, whose pieces have nothing between them. */
static int split_all(const struct flow *flow, int step, struct data_string text)
{
    const struct data_splitter *splitter = flow->tokenizer->pre[step].splitter;
    int status = LS_OK;
    for (size_t at = 0, end; at < text.count && !status; at = end) {
        end = data_split_end(splitter, text.bytes, text.count, at);
        if (end - at > PIECE_BYTES_MAX)
            status = encode_piece(flow, (struct data_string){text.bytes + at, end - at});
        else
            status = data_bpe_encode(&flow->tokenizer->bpe, &flow->encoder->scratch,
                                     text.bytes + at, end - at, flow->out, flow->error);
    }
    return status;
}

static int split(const struct flow *flow, int step, struct data_string text,
                 struct part_place place)
{
    const struct data_pre_tokenizer *pre = &flow->tokenizer->pre[step];
    struct joining joining = {0};
    struct data_range found;
    int status = LS_OK;
    if (pre->parts && step + 1 == flow->tokenizer->pre_count && !flow->tokenizer->bpe.words_part)
        return split_all(flow, step, text);
    for (size_t at = 0; at < text.count && !status; at = found.end) {
        status = data_split_find(pre->splitter, flow->encoder->split[step], text.bytes, text.count,
                                 at, &found, flow->error);
        if (!status)
            status = join(flow, step, text, place, &joining, (struct data_range){at, found.begin},
                          pre->invert);
        if (!status)
            status = join(flow, step, text, place, &joining, found, !pre->invert);
    }
    return status ? status : go_on(flow, step, text, joining.held, place);
}

/* Spaces become meta spaces, and one may be put in front. */
static int meta_spaces(const struct flow *flow, int step, struct data_string text,
                       struct part_place place)
{
    const struct data_pre_tokenizer *pre = &flow->tokenizer->pre[step];
    struct ls_text *out = &flow->encoder->spaced[step];
    bool has = text.bytes[0] == ' ' || (text.count >= META_SPACE_BYTES &&
                                        memcmp(text.bytes, DATA_META_SPACE, META_SPACE_BYTES) == 0);
    bool wanted =
        pre->prepend == DATA_ALWAYS ? place.begins : pre->prepend == DATA_FIRST && place.first > 0;
    bool put = wanted && !has;
    out->count = 0;
    int status = put ? data_text_put(out, DATA_META_SPACE, META_SPACE_BYTES, flow->error) : LS_OK;
    for (size_t at = 0, end; at < text.count && !status; at = end + 1) {
        const unsigned char *space = memchr(text.bytes + at, ' ', text.count - at);
        end = space ? (size_t)(space - text.bytes) : text.count;
        status = data_text_put(out, text.bytes + at, end - at, flow->error);
        if (!status && space)
            status = data_text_put(out, DATA_META_SPACE, META_SPACE_BYTES, flow->error);
    }
    const struct data_string spaced = {(unsigned char *)out->bytes, out->count};
    place.first = place.first > 0; /* what begins there */
    struct data_range piece = {0, 0};
    for (; piece.begin < spaced.count && !status; piece.begin = piece.end) {
        const unsigned char *next =
            pre->parts && spaced.count - piece.begin > META_SPACE_BYTES
                ? memmem(spaced.bytes + piece.begin + 1, spaced.count - piece.begin - 1,
                         DATA_META_SPACE, META_SPACE_BYTES)
                : NULL;
        piece.end = next ? (size_t)(next - spaced.bytes) : spaced.count;
        status = go_on(flow, step, spaced, piece, place);
    }
    return status;
}

static int prefix_space(const struct flow *flow, int step, struct data_string text,
                        struct part_place place)
{
    struct ls_text *out = &flow->encoder->spaced[step];
    if (text.bytes[0] == ' ' || !place.begins)
        return pre_tokenize(flow, step + 1, text, place);
    out->count = 0;
    int status = data_text_put(out, " ", 1, flow->error);
    if (!status)
        status = data_text_put(out, text.bytes, text.count, flow->error);
    place.first += place.first > 0;
    return status
               ? status
               : pre_tokenize(flow, step + 1,
                              (struct data_string){(unsigned char *)out->bytes, out->count}, place);
}

/* text[>= 1 byte] through the steps from `step` on. */
static int pre_tokenize(const struct flow *flow, int step, struct data_string text,
                        struct part_place place)
{
    if (step == flow->tokenizer->pre_count)
        return encode_piece(flow, text);
    switch (flow->tokenizer->pre[step].kind) {
    case DATA_SPLIT:
        return split(flow, step, text, place);
    case DATA_METASPACE:
        return meta_spaces(flow, step, text, place);
    default:
        return prefix_space(flow, step, text, place);
    }
}

/* ---- added tokens ---------------------------------------------------------------------------- */

/* What becomes of text between the tokens of a set. */
typedef int between(const struct flow *flow, struct data_string text, struct part_place place);

static int part_by(const struct flow *flow, const struct data_added_set *set,
                   struct data_string text, struct part_place place, between *go)
{
    struct data_added_cursor cursor = {0};
    size_t at = 0;
    int status = LS_OK;
    bool found = true;
    while (!status && found) {
        found = data_added_next(set, text.bytes, text.count, flow->special, &cursor);
        size_t end = found ? cursor.begin : text.count;
        if (end > at)
            status =
                go(flow, (struct data_string){text.bytes + at, end - at}, place_from(place, at));
        if (!status && found)
            status = put_id(flow, cursor.token->id);
        at = cursor.end;
    }
    return status;
}

static int encode_normalized(const struct flow *flow, struct data_string text,
                             struct part_place place)
{
    return pre_tokenize(flow, 0, text, place);
}

static int encode_part(const struct flow *flow, struct data_string text, struct part_place place)
{
    int status = data_normalize(&flow->tokenizer->normalizers, &flow->encoder->normal, text,
                                place.begins, &text, &place.first, flow->error);
    return status
               ? status
               : part_by(flow, &flow->tokenizer->added.normalized, text, place, encode_normalized);
}

/* ---- texts ----------------------------------------------------------------------------------- */

static int encode_bytes(const unsigned char *text, size_t bytes, struct ls_token_list *out,
                        struct ls_error *error)
{
    int status = data_ids_reserve(out, (int64_t)bytes, error);
    for (size_t i = 0; i < bytes && !status; i++)
        out->ids[out->count++] = text[i];
    return status;
}

int ls_encode_with(struct ls_encoder *encoder, const void *text, size_t bytes,
                   const struct ls_encode_options *options, struct ls_token_list *out,
                   struct ls_error *error)
{
    const struct ls_tokenizer *tokenizer = encoder->tokenizer;
    const bool special = options->special && !tokenizer->split_special;
    const struct flow flow = {encoder, tokenizer, special, out, error};
    const unsigned char *at = text, *end = at + bytes;
    int status = LS_OK;
    if (tokenizer->is_byte)
        return encode_bytes(at, bytes, out, error);
    bool before = options->around && !options->continued;
    bool after = options->around && !options->unfinished;
    for (int i = 0; i < tokenizer->before_count && before && !status; i++)
        status = put_id(&flow, tokenizer->before[i]);
    while (at < end && !status) {
        bool first = at == text && !options->continued;
        size_t valid = ls_utf8_valid(at, (size_t)(end - at)), length = 0;
        if (valid)
            data_utf8_decode(at, &length);
        if (valid)
            status = part_by(&flow, &tokenizer->added.raw, (struct data_string){at, valid},
                             (struct part_place){first ? length : 0, first}, encode_part);
        at += valid;
        if (at < end && !status)
            status = data_bpe_encode_byte(&tokenizer->bpe, &encoder->scratch, *at++, out, error);
    }
    for (int i = 0; i < tokenizer->after_count && after && !status; i++)
        status = put_id(&flow, tokenizer->after[i]);
    return status;
}

int ls_encode(struct ls_encoder *encoder, const void *text, size_t bytes, struct ls_token_list *out,
              struct ls_error *error)
{
    return ls_encode_with(encoder, text, bytes, &(struct ls_encode_options){0}, out, error);
}

size_t data_last_cut(const struct ls_tokenizer *tokenizer, const unsigned char *text, size_t bytes)
{
    /* A prefix is put where no space begins, so that a space tells whether it is. */
    bool lines = tokenizer->bpe.form != DATA_CHARACTERS;
    if (tokenizer->is_byte)
        return bytes;
    for (int i = 0; i < tokenizer->pre_count; i++)
        lines = lines && tokenizer->pre[i].kind != DATA_PREFIX_SPACE;
    return tokenizer->may_cut ? data_split_last_cut(text, bytes, lines) : 0;
}
