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

/* json_dumps with as few digits as give the same numbers again: 1e-5 has 15, and 17 show it as
 * 1.0000000000000001e-5. */
static char *short_dumps(const json_t *value, size_t flags)
{
    char *text = NULL;
    bool same = false;
    for (int digits = 15; digits <= 17 && !same; digits++) {
        free(text);
        text = json_dumps(value, flags | JSON_SORT_KEYS | JSON_REAL_PRECISION(digits));
        json_t *again = text ? json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
        same = !text || json_equal(value, again);
        json_decref(again);
    }
    return text;
}

struct interop_text interop_json_text(const json_t *value)
{
    struct interop_text out = {"nothing"};
    char *text = value ? short_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    if (text)
        snprintf(out.text, sizeof out.text, "%.100s%s", text, strlen(text) > 100 ? "..." : "");
    free(text);
    return out;
}

int interop_json_write(json_t *object, const char *folder, const char *name,
                       const struct ls_fault *fault, struct ls_error *error)
{
    struct ls_atomic_file file;
    char path[PATH_MAX], *text = short_dumps(object, JSON_INDENT(2));
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
