/* What the readers of tokenizer.json share: a file under way, and how its parts are asked. */
#ifndef DATA_TOKENIZER_JSON_H
#define DATA_TOKENIZER_JSON_H

#include "data/tokenizer_private.h"

#include <lockstep/base/json.h>

#include <jansson.h>

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
    int status;                     /* the first failure; later ones are not heard of */
    struct data_pre_tokenizer none; /* what is filled in if there is no step, after a failure */
};

/* LS_ENOTSUP "PATH: WHERE: ... is not supported". */
void data_json_refuse(struct data_json *j, const char *where, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* LS_EDATA "PATH: WHERE: ...". */
void data_json_wrong(struct data_json *j, const char *where, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* LS_ENOMEM. */
void data_json_no_memory(struct data_json *j);
/* Refuses an object that has another key than these (NULL ends the list). */
void data_json_keys(struct data_json *j, const char *where, const json_t *object,
                    const char *const *known);
#define KEYS(...) ((const char *const[]){__VA_ARGS__, NULL})
/* A boolean; as it was where the key is absent or null. */
void data_json_flag(struct data_json *j, const char *where, const json_t *object, const char *key,
                    bool *out);
/* A text; as it was after a failure. */
void data_json_text(struct data_json *j, const char *where, const json_t *object, const char *key,
                    const char **out);
/* Flags of an added token; what is absent is as tokenizers has it. */
void data_json_added_flags(struct data_json *j, const char *where, const json_t *object,
                           struct data_added_token *token);
/* Its "type"; "" if it has none. */
const char *data_json_type(const json_t *object);

/* Adds the tokens that only the files beside it name (tokenizer_added.c), to those of j->root. */
void data_json_settings_tokens(struct data_json *j, struct data_settings settings);
/* What each added token matches: its text, normalized where the text is. */
void data_json_added_match(struct data_json *j);

/* The parts of a file (tokenizer_steps.c), into j->tokenizer. */
void data_json_normalizers(struct data_json *j);
void data_json_pre_tokenizers(struct data_json *j);
void data_json_post_processors(struct data_json *j);
void data_json_decoders(struct data_json *j);

#endif
