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
    struct ls_stored_file *file;
    json_t *header;
    size_t count;
    struct ls_tensor_view *views; /* by place in the file */
    struct ls_tensor_view **by_name;
};

/* Validates an open file, which is *out's from here on, after a failure too. */
int ckpt_parse(struct ls_safetensors **out, struct ls_stored_file *file, struct ls_error *error);

/* Whether a tensor that was found (dtype_name NULL: none was) is what is required: LS_ECKPT. */
int ckpt_expect(const char *name, const char *dtype_name, int dims, const int64_t *shape,
                enum ls_dtype dtype, int dims_expected, const int64_t *shape_expected,
                struct ls_error *error);

/* ---- checkpoint directories ---- */

enum { CKPT_PARTS = 2, CKPT_MANIFEST_BYTES_MAX = 1 << 30 };
#define CKPT_FORMAT_NAME "lockstep checkpoint"
#define CKPT_DIRECTORY   "checkpoints"
#define CKPT_BEST_FILE   "best"
#define CKPT_STEP_FORMAT "step-%08lld" /* a checkpoint's name */
/* What describes a checkpoint, and the field that is the digest of the rest. */
struct ckpt_version {
    int oldest, version; /* those that are read */
    const char *file, *digest;
};
extern const struct ckpt_version
    ckpt_versions[]; /* the one that is written first; file NULL ends */
/* Whether a file of that name describes a checkpoint. */
bool ckpt_describes(const char *name);
/* "model", "optimizer", by enum ls_checkpoint_part. */
extern const char *const ckpt_part_names[CKPT_PARTS];

/* A file of tensors. */
struct ckpt_file {
    const char *name;
    char *path; /* where it was found */
    uint64_t size;
    uint64_t covered; /* its first bytes, of which this is the digest */
    const char *digest;
    struct ls_safetensors *tensors; /* NULL before it is touched */
};
/* Elements [offset, offset + shape) of a tensor. */
struct ckpt_piece {
    int64_t offset[LS_TENSOR_DIMS_MAX], shape[LS_TENSOR_DIMS_MAX];
    size_t file;
    const char *digest; /* NULL: the file's is of all of it */
    int64_t at;         /* the byte of the file where it begins; 0 before it is verified */
    bool expected;      /* the system reads it, or has it */
    uint64_t ahead;     /* its number there (ckpt/read_ahead.h); 0: not there */
};
/* What ls_checkpoint_open hands out, and what its strings live in. */
struct ckpt_opened {
    struct ls_checkpoint checkpoint; /* first: a pointer to it is a pointer to this */
    json_t *manifest;
    struct ckpt_file *files;
    size_t file_count;
    struct ls_stored_tensor *tensors[CKPT_PARTS]; /* by name */
    size_t tensor_count[CKPT_PARTS];
    struct read_ahead *ahead; /* NULL: nothing is read so yet */
    /* Of ckpt_older: the run, "" of a checkpoint that was named; what was wrong with the newest
     * one. */
    char run[PATH_MAX];
    struct ls_error newest;
};
/* The step of the newest in RUN/checkpoints that is below, by its name; -1: there is none. */
int64_t ckpt_newest_below(const char *run_directory, int64_t below);
/* The description alone, and whether all files are there in one of folders; count -1: no file is
 * looked for, and each is expected in directory. */
int ckpt_describe(struct ckpt_opened **out, const char *directory, const char *const *folders,
                  int count, struct ls_error *error);
void ckpt_opened_free(struct ckpt_opened *opened);
/* A file's size. LS_ECKPT if no regular file is there, which is damage; LS_EIO or LS_ENOMEM
 * if the system refuses to say. */
int ckpt_file_size(const char *path, uint64_t *size, struct ls_error *error);
/* Opens the file and compares its header with its digest. */
int ckpt_file_touch(struct ckpt_file *file, struct ls_error *error);

/* A read of *checkpoint failed: damage says how. Closes it and opens the next older one of its run,
 * with a warning; LS_ECKPT and NULL if there is none. */
int ckpt_older(struct ls_checkpoint **checkpoint, const struct ls_error *damage,
               const struct ls_log *log, struct ls_error *error);

/* ls_safetensors_writer_open of a file that is open, which is the writer's, after a failure too. */
int ckpt_tensors_begin(struct ls_safetensors_writer **out, struct ls_atomic_file *file,
                       const struct ls_tensor_entry *entries, size_t count,
                       const struct ls_metadata *metadata, size_t metadata_count,
                       struct ls_error *error);
/* The commit of a finished one whose file is in memory (ls_memory_file_take). */
int ckpt_tensors_take(struct ls_safetensors_writer *writer, int *fd, struct ls_error *error);

/* XXH3_128bits_update, in the widest vectors that the machine has if the library has code for them:
 * Debian's XXH3_128bits_update takes those that every machine has. */
struct XXH3_state_s;
void ckpt_digest_add(struct XXH3_state_s *digest, const void *data, size_t bytes);
/* The XXH3-128 of an object without that field itself, in hexadecimal; false without memory. */
bool ckpt_object_digest(json_t *object, const char *field, char text[33]);
/* The checkpoint that a file as RUN/checkpoints/best names; false if path is no such file. */
bool ckpt_best_follow(const char *path, char directory[PATH_MAX]);
/* LS_EBUSY if start is not 0, and not the newest of the directory. */
int ckpt_token_check(const char *directory, int64_t start, struct ls_error *error);
/* Removes a directory that holds files only; what cannot be removed is an error. An absent one is
 * success. All names are gone then, and a thread gives the files' blocks back to the disk. */
int ckpt_remove_directory(const char *directory, struct ls_error *error);
/* What was removed so far has given its blocks back: before a large file is written. */
void ckpt_room_wait(void);
/* Removes a checkpoint in a way that an interruption leaves nothing that looks like one. */
int ckpt_remove_checkpoint(const char *directory, struct ls_error *error);
/* Gives the directory temporary its name in parent, in place of an older one, and syncs parent.
 * What is under the name of temporary afterwards is to be removed. */
int ckpt_give_name(const char *temporary, const char *directory, const char *parent,
                   const struct ls_fault *fault, struct ls_error *error);
/* The step of "step-%08d", -1 for other names. */
int64_t ckpt_step_of(const char *name);
/* "step-%08d.tmp" */
bool ckpt_is_leftover(const char *name);

#endif
