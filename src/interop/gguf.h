/* GGUF files (ggml): metadata as keys with typed values, a list of tensors, and their data. */
#ifndef INTEROP_GGUF_H
#define INTEROP_GGUF_H

#include "interop/export_private.h"

enum { GGUF_VERSION = 3, GGUF_ALIGNMENT = 32, GGUF_KEY_BYTES_MAX = 1 << 16 };
/* Types of values. */
enum gguf_type {
    GGUF_U32 = 4,
    GGUF_I32 = 5,
    GGUF_F32 = 6,
    GGUF_BOOL = 7,
    GGUF_STRING = 8,
    GGUF_ARRAY = 9
};
/* Types of tokens. */
enum gguf_token {
    GGUF_NORMAL = 1,
    GGUF_UNKNOWN = 2,
    GGUF_CONTROL = 3,
    GGUF_USER_DEFINED = 4,
    GGUF_UNUSED = 5,
    GGUF_BYTE = 6
};

/* Metadata that grows; keys are counted. A lack of memory shows when the stream is closed. Before a
 * key that begins with a dot the architecture is written. */
struct gguf_metadata {
    FILE *stream;
    const char *architecture;
    uint64_t count;
};
void gguf_put_u32(struct gguf_metadata *metadata, const char *key, uint32_t value);
void gguf_put_bool(struct gguf_metadata *metadata, const char *key, bool value);
void gguf_put_string(struct gguf_metadata *metadata, const char *key, const char *value);
/* The head of an array; its values follow, by the functions below. */
void gguf_put_array(struct gguf_metadata *metadata, const char *key, enum gguf_type type,
                    uint64_t count);
void gguf_write_string(FILE *stream, const char *text, size_t bytes);
void gguf_write_u32(FILE *stream, uint32_t value);
void gguf_write_u64(FILE *stream, uint64_t value);
void gguf_write_f32(FILE *stream, float value);

/* Q8_0, of a tensor whose dtype is LS_I8: each 32 values of a row are a scale d = max |x| / 127 in
 * fp16 (rounded to even), then 32 int8 q = x * (1 / d), d and 1 / d in float32, halves away from
 * zero. These are the bytes of ggml's reference, on any machine; where 1 / d is infinite, q is 0.
 * A block cannot be said where a value is not finite, or d is beyond fp16. 32 divides the columns.
 */
enum { GGUF_Q8_VALUES = 32 };

/* The name of a tensor of Hugging Face's there; false if there is none. */
bool gguf_name(enum ls_arch arch, const char *elsewhere, char name[LS_PARAM_NAME_MAX + 1]);
/* general.* and what the architecture says of its model. */
void gguf_put_model(struct gguf_metadata *metadata, const struct exporting *ex);
/* tokenizer.*: of what came with the model, if GGUF has a word for it; otherwise a warning, and the
 * file has none. */
int gguf_put_tokenizer(struct gguf_metadata *metadata, const struct exporting *ex,
                       struct ls_error *error);

#endif
