/* Paths, JSON that is written, and values as errors show them. */
#include "interop/interop_private.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int interop_path_set(struct ls_config *config, const char *key, const char *folder,
                     const char *more, struct ls_error *error)
{
    char assignment[PATH_MAX + 64];
    snprintf(assignment, sizeof assignment, "%s=%s%s", key, folder, more);
    return ls_config_set(config, assignment, error);
}

bool interop_exists(const char *folder, const char *name)
{
    char path[PATH_MAX];
    return ls_path_join(path, folder, name, NULL) == LS_OK && access(path, F_OK) == 0;
}

struct interop_text interop_json_text(const json_t *value)
{
    struct interop_text out = {"nothing"};
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS) : NULL;
    if (text)
        snprintf(out.text, sizeof out.text, "%.100s%s", text, strlen(text) > 100 ? "..." : "");
    free(text);
    return out;
}

int interop_json_write(json_t *object, const char *folder, const char *name,
                       const struct ls_fault *fault, struct ls_error *error)
{
    struct ls_atomic_file file;
    char path[PATH_MAX], *text = json_dumps(object, JSON_INDENT(2) | JSON_SORT_KEYS);
    json_decref(object);
    int status =
        text ? ls_path_join(path, folder, name, error)
             : ls_error_set(error, LS_ENOMEM, "%.300s/%s: no memory to write it", folder, name);
    if (!status)
        status = ls_atomic_file_open(&file, path, fault, error);
    if (!status) {
        ls_atomic_file_write(&file, text, strlen(text));
        ls_atomic_file_write(&file, "\n", 1);
        status = ls_atomic_file_commit(&file, error);
    }
    free(text);
    return status;
}
