/* What the files of interop share. */
#ifndef INTEROP_INTEROP_PRIVATE_H
#define INTEROP_INTEROP_PRIVATE_H

#include <lockstep/base/json.h>
#include <lockstep/base/key.h>
#include <lockstep/base/words.h>
#include <lockstep/ckpt.h>
#include <lockstep/interop.h>

#include <jansson.h>

/* ---- small files ----------------------------------------------------------------------------- */

/* A key of the configuration that takes a path becomes folder and what follows. */
int interop_path_set(struct ls_config *config, const char *key, const char *folder,
                     const char *more, struct ls_error *error);
bool interop_exists(const char *folder, const char *name);
/* "\"silu\"": a value as errors show it. */
struct interop_text {
    char text[128];
};
struct interop_text interop_json_text(const json_t *value);
/* Takes the object, and writes it as folder/name. */
int interop_json_write(json_t *object, const char *folder, const char *name,
                       const struct ls_fault *fault, struct ls_error *error);

/* ---- config.json ----------------------------------------------------------------------------- */

/* The family of a description; LS_ECONFIG says which there are. name: of the file. */
int interop_family(const json_t *description, const char *name, enum ls_arch *arch,
                   struct ls_error *error);
/* The keys of a description go into config, each by the tables. */
struct interop_keys {
    const char *name; /* of the file, for texts */
    const json_t *description;
    enum ls_arch arch;
    struct ls_config *config, *scratch; /* scratch: parses */
    struct ls_error *error;
};
int interop_keys_import(struct interop_keys *keys);
/* Warns of keys that no table has, and of doubtful values. name: of the file. */
void interop_keys_unknown(const json_t *description, enum ls_arch arch, const char *name,
                          const struct ls_log *log);
/* Whether both name the same blocks of the model. */
bool interop_layers_agree(const struct ls_model_config *model, enum ls_layers one,
                          enum ls_layers other);
/* "channels", "768": a key of group model, or "lora.rank" of another one, gets a value, which
 * `said` (a key there, or "") says. */
int interop_key_set(struct interop_keys *keys, const char *key, const char *value,
                    const char *said);
int interop_rope_import(struct interop_keys *keys);
/* Warns of positions that versions of transformers read differently. name: of the file. */
void interop_rope_tell(const json_t *description, const char *name, const struct ls_log *log);
/* The other way round, into description. */
int interop_keys_export(const struct ls_config *config, json_t *description,
                        struct ls_error *error);
void interop_rope_export(const struct ls_config *config, json_t *description);

/* ---- where a source's values lie ------------------------------------------------------------- */

/* A matrix in NF4 (bitsandbytes.h): two codes a byte, and the absmax of each 64 values, in float32
 * or, if nested_block is not 0, nested. Bytes of a file at which they begin. */
struct nf4_view {
    int64_t codes, absmax, nested_absmax, nested_block;
    float nested_map[256], offset;
};

/* A parameter of the whole model is rows [first, ...) of a matrix [rows, cols] in a file, stored as
 * [cols, rows] if transposed. A vector's elements are rows, of one column. */
struct source_view {
    struct ls_stored_file *file; /* from byte `at` on; or, of a run's checkpoint, what is stored: */
    int64_t at;
    struct ls_checkpoint *checkpoint;
    const struct ls_stored_tensor *stored;
    enum ls_dtype dtype;
    int64_t rows, cols, first;
    bool transposed;
    struct nf4_view nf4; /* instead of `at`; codes 0: it is not in NF4 */
};

enum { SOURCE_UNFINITE_MAX = 8 };
struct ls_model_source {
    const struct source_kind *kind;
    char path[PATH_MAX];
    const struct ls_log *log;
    const char *which;               /* of a run's checkpoints, while it is opened */
    void *data;                      /* of the kind */
    enum ls_dtype dtype;             /* of its matrices; this and what follows: set by open */
    int64_t step;                    /* that it is of; -1: of none */
    const char *tokenizer;           /* for ls_tokenizer_new; NULL: none */
    const char *folder;              /* of files that go with the model; NULL: none */
    struct ls_model_config model;    /* once it was checked */
    struct ls_params params;         /* of the whole model */
    bool apart;                      /* of a run: its adapters are read, and not merged */
    struct ls_safetensors *adapters; /* of PEFT's; NULL: random ones */
    char adapters_path[PATH_MAX];
    struct unfinite { /* values that were read and are NaN or infinite, by tensor */
        char name[LS_PARAM_NAME_MAX + 1];
        int64_t count, row, col; /* of the first of them */
        float value;
    } unfinite[SOURCE_UNFINITE_MAX];
    int unfinite_count;
    bool unfinite_more;                  /* further tensors have such values */
    int64_t changed_blocks;              /* of NF4 that a base in NF4 cannot keep as they are, */
    char changed[LS_PARAM_NAME_MAX + 1]; /* and the matrix of the first */
};
struct source_kind {
    size_t data_bytes; /* of source->data, which is zero at first */
    int (*open)(struct ls_model_source *source, struct ls_error *error);
    void (*close)(struct ls_model_source *source);
    int (*configure)(const struct ls_model_source *source, struct interop_keys *keys);
    /* What is left to check when every parameter is there; NULL: nothing. */
    int (*check)(const struct ls_model_source *source, struct ls_error *error);
    /* param: of source->params. */
    int (*locate)(const struct ls_model_source *source, const struct ls_param *param,
                  struct source_view *out, struct ls_error *error);
    /* Adds adapters to values of a matrix that has some: elements [first, first + count) of param's
     * part. NULL: there are none. */
    void (*merge)(const struct ls_model_source *source, const struct ls_param *param,
                  struct ls_ops *ops, int64_t first, int64_t count, float *values);
};
extern const struct source_kind source_hf, source_llmc, source_run;
/* LS_ECONFIG if path is a checkpoint that does not lie in a run's folder: it has no configuration.
 * run: where that would be. */
int interop_run_check(const char *path, const char *run, struct ls_error *error);
/* Of a run with adapters its own configuration; NULL: it is no such run. */
const struct ls_config *run_adapted(const struct ls_model_source *source);

/* ---- PEFT's adapters ------------------------------------------------------------------------- */

#define PEFT_PREFIX "base_model.model."
/* Group lora becomes what the folder lora.from says. scratch: parses. */
int peft_configure(struct ls_config *config, struct ls_config *scratch, const struct ls_log *log,
                   struct ls_error *error);
/* Where the values of an adapter's parameter lie. */
int peft_locate(const struct ls_model_source *source, const struct ls_param *param,
                struct source_view *out, struct ls_error *error);
/* Whether all tensors of the file are the model's. */
int peft_check(const struct ls_model_source *source, struct ls_error *error);
bool interop_has_tokenizer(const char *folder);
/* LS_EIO if a file that goes with a model is a link out of its folder, or to nothing. */
int interop_files_check(const char *folder, struct ls_error *error);
/* A warning for each of these that nothing reads here, and that other programs could not. */
void interop_files_tell(const char *folder, const struct ls_log *log);
/* The files that go with a model and are there, with config.json or without. */
int interop_files_copy(const char *from, const char *to, bool description,
                       const struct ls_fault *fault, struct ls_error *error);
/* Values of the part of a parameter, from a view of the whole one. */
int interop_fill(const struct source_view *view, const struct ls_param *param, struct ls_ops *ops,
                 int64_t first, int64_t count, float *values, struct ls_error *error);

#endif
