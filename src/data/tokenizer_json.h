/* What the readers of tokenizer.json share: a file under way, and how its parts are asked. */
#ifndef DATA_TOKENIZER_JSON_H
#define DATA_TOKENIZER_JSON_H

#include "data/tokenizer_private.h"

#include <lockstep/base/json.h>

#include <jansson.h>
#include <limits.h>

struct data_json {
    const char *path;
    json_t *root;
    struct ls_tokenizer *tokenizer;
    bool byte_level; /* a ByteLevel pre-tokenizer makes bytes of the text */
    int templates;   /* post-processors that put ids around a text */
    struct data_decoding decoding;
    int decoders; /* so far; of them there was a Fuse, a ByteLevel */
    bool fused, bytes_decoded;
    struct ls_error *error;
};

/* LS_ENOTSUP "PATH: WHERE: ... is not supported". */
int data_json_refuse(const struct data_json *j, const char *where, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* LS_EDATA "PATH: WHERE: ...". */
int data_json_wrong(const struct data_json *j, const char *where, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Refuses an object that has another key than these (NULL ends the list). */
int data_json_keys(const struct data_json *j, const char *where, const json_t *object,
                   const char *const *known);
/* A boolean; as it was where the key is absent or null. */
int data_json_flag(const struct data_json *j, const char *where, const json_t *object,
                   const char *key, bool *out);
int data_json_text(const struct data_json *j, const char *where, const json_t *object,
                   const char *key, const char **out);
/* Its "type"; "" where it has none. */
const char *data_json_type(const json_t *object);

/* The parts of a file (tokenizer_steps.c), into j->tokenizer. */
int data_json_normalizers(struct data_json *j);
int data_json_pre_tokenizers(struct data_json *j);
int data_json_post_processors(struct data_json *j);
int data_json_decoders(struct data_json *j);

#endif
