/* What the readers and writers of this folder share. */
#ifndef CKPT_FORMAT_H
#define CKPT_FORMAT_H

#include <lockstep/ckpt.h>

#include <jansson.h>

/* ---- safetensors ---- */

#define CKPT_METADATA_KEY "__metadata__"
enum { CKPT_HEADER_BYTES_MAX = 100000000, CKPT_LENGTH_BYTES = 8, CKPT_ALIGNMENT = 8 };

/* The format's types; a greater index comes first in a file. */
struct ckpt_dtype {
    const char *name;
    unsigned bits;
    bool known; /* dtype is valid */
    enum ls_dtype dtype;
};
const struct ckpt_dtype *ckpt_dtype_named(const char *name);
const struct ckpt_dtype *ckpt_dtype_of(enum ls_dtype dtype);

struct ls_safetensors {
    const unsigned char *bytes; /* the whole file */
    size_t size;
    bool mapped; /* bytes is ours to unmap */
    json_t *header;
    size_t count;
    struct ls_tensor_view *views; /* by place in the file */
    struct ls_tensor_view **by_name;
};

/* Maps path without looking into it. */
int ckpt_map(struct ls_safetensors **out, const char *path, struct ls_error *error);
/* Validates file->bytes and fills the rest; label names the file in errors. After a failure the
 * file is only good for closing. */
int ckpt_parse(struct ls_safetensors *file, const char *label, struct ls_error *error);

/* Appends every tensor that the writer still expects from its entry's data. */
int ckpt_write_all(struct ls_safetensors_writer *writer, struct ls_error *error);

/* ---- checkpoint directories ---- */

enum { CKPT_PARTS = 2, CKPT_STATE_VERSION = 1 };
#define CKPT_FORMAT_NAME "lockstep checkpoint"
#define CKPT_DIRECTORY   "checkpoints"
#define CKPT_STATE_FILE  "state.json"
#define CKPT_BEST_FILE   "best"
#define CKPT_STEP_FORMAT "step-%08lld" /* a checkpoint's name */

/* File names by enum ls_checkpoint_part. */
extern const char *const ckpt_part_files[CKPT_PARTS];

/* XXH3-128, as 32 hexadecimal digits. */
void ckpt_digest_hex(uint64_t high, uint64_t low, char text[33]);
/* The digest of state.json's object without the field of that name itself; false without memory. */
#define CKPT_STATE_DIGEST "state_xxh3_128"
bool ckpt_state_digest(json_t *object, char text[33]);
/* The checkpoint that a file as RUN/checkpoints/best names; false where path is no such file. */
bool ckpt_best_follow(const char *path, char directory[PATH_MAX]);
/* Removes a directory that holds files only; what cannot be removed is an error. An absent one is
 * success. */
int ckpt_remove_directory(const char *directory, struct ls_error *error);

#endif
