/* What the files of interop share. */
#ifndef INTEROP_PRIVATE_H
#define INTEROP_PRIVATE_H

#include <lockstep/ckpt.h>
#include <lockstep/interop.h>

#include <jansson.h>

/* ---- small files ----------------------------------------------------------------------------- */

int interop_path(char out[PATH_MAX], const char *folder, const char *name, struct ls_error *error);
/* A key of the configuration that takes a path becomes folder and what follows. */
int interop_path_set(struct ls_config *config, const char *key, const char *folder,
                     const char *more, struct ls_error *error);
bool interop_exists(const char *folder, const char *name);
/* A JSON object; code where it is none. */
int interop_json_read(json_t **out, const char *path, int code, struct ls_error *error);
/* "[2, 3]", "\"silu\"": a value as errors show it. */
struct interop_text {
    char text[128];
};
struct interop_text interop_json_text(const json_t *value);
int interop_json_write(const json_t *object, const char *path, const struct ls_fault *fault,
                       struct ls_error *error);

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
/* Warns of keys that no table has. name: of the file. */
void interop_keys_unknown(const json_t *description, enum ls_arch arch, const char *name,
                          const struct ls_log *log);
/* "channels", "768": a key of group model gets a value, which `said` (a key there, or "") says. */
int interop_key_set(struct interop_keys *keys, const char *key, const char *value,
                    const char *said);
int interop_rope_import(struct interop_keys *keys);
/* The other way round, into description. */
int interop_keys_export(const struct ls_config *config, json_t *description,
                        struct ls_error *error);
void interop_rope_export(const struct ls_config *config, json_t *description);

/* ---- where a source's values lie ------------------------------------------------------------- */

/* A parameter of the whole model is rows [first, ...) of a matrix [rows, cols] in a file, stored as
 * [cols, rows] if transposed. A vector's elements are rows, of one column. */
struct source_view {
    const void *data;
    enum ls_dtype dtype;
    int64_t rows, cols, first;
    bool transposed;
};

struct ls_model_source {
    const struct source_kind *kind;
    char path[PATH_MAX];
    const struct ls_log *log;
    const char *which;            /* of a run's checkpoints, while it is opened */
    void *data;                   /* of the kind */
    struct ls_model_config model; /* once it was checked */
    struct ls_params params;      /* of the whole model */
};
struct source_kind {
    int (*open)(struct ls_model_source *source, struct ls_error *error);
    void (*close)(struct ls_model_source *source);
    int (*configure)(const struct ls_model_source *source, struct interop_keys *keys);
    /* What is left to check when every parameter is there; NULL: nothing. */
    int (*check)(const struct ls_model_source *source, struct ls_error *error);
    /* param: of source->params. */
    int (*locate)(const struct ls_model_source *source, const struct ls_param *param,
                  struct source_view *out, struct ls_error *error);
    enum ls_dtype (*dtype)(const struct ls_model_source *source);
    /* What the tokenizer is for ls_tokenizer_new, and where files lie that go with the model; NULL:
     * none. */
    const char *(*tokenizer)(const struct ls_model_source *source);
    const char *(*folder)(const struct ls_model_source *source);
};
extern const struct source_kind source_hf, source_llmc, source_run;
bool interop_has_tokenizer(const char *folder);
/* The files that go with a model and are there, with config.json or without. */
int interop_files_copy(const char *from, const char *to, bool description,
                       const struct ls_fault *fault, struct ls_error *error);
/* Values of the part of a parameter, from a view of the whole one. */
void interop_fill(const struct source_view *view, const struct ls_param *param, struct ls_ops *ops,
                  int64_t first, int64_t count, float *values);
/* "F32 [2, 3]" of a tensor. */
struct interop_text interop_shape_text(int dims, const int64_t *shape);

#endif
