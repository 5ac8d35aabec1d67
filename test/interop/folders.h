/* Folders as transformers writes them, made of the golden models. */
#ifndef TEST_INTEROP_FOLDERS_H
#define TEST_INTEROP_FOLDERS_H

#include <lockstep/ckpt.h>
#include <lockstep/interop.h>

/* The golden file of that name (test/golden), to be closed. */
struct ls_safetensors *golden_open(const char *name);
/* How a folder is made of one. */
struct folder_of {
    const char *golden; /* "gpt2_tiny" */
    enum ls_dtype dtype;
    const char *prefix; /* before each name, "" for none */
    int shards;         /* 0: one file, no index */
};
/* Makes DIRECTORY/NAME; the path lives until the fourth call after. */
const char *folder_make(const char *directory, const char *name, const struct folder_of *of);
/* A key of a JSON file becomes a value (as JSON), or goes (NULL). "a.b" is b in the object a. */
void json_edit(const char *path, const char *key, const char *value);
/* A tensor of FOLDER/model.safetensors goes to another name (NULL: away), and of its shape the
 * first dim is cut by so many. */
void tensor_edit(const char *folder, const char *name, const char *becomes, int cut);
/* Overwrites values of a tensor of FOLDER/model.safetensors (float32). */
void values_edit(const char *folder, const char *name, const size_t *at, const float *values,
                 int count);

/* The model DIRECTORY/FROM becomes the run DIRECTORY/RUN, or DIRECTORY/OUT; `what` says how. Fails
 * the test where it does not. */
void model_import(const char *directory, const char *from, const char *run, struct ls_import what);
struct ls_export_report model_export(const char *directory, const char *from, const char *out,
                                     struct ls_export what);

#endif
