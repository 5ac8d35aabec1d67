/* JSON: what is the same for every object that is read whole. */
#include <lockstep/base/file.h>
#include <lockstep/base/json.h>

#include <jansson.h>
#include <stdlib.h>

#define WANTED "expected an object, {\"key\": value}"

int ls_json_parse(const char *name, const char *text, size_t bytes, int code, json_t **out,
                  struct ls_error *error)
{
    json_error_t where;
    *out = json_loadb(text ? text : "", bytes, JSON_REJECT_DUPLICATES, &where);
    if (!*out && json_error_code(&where) == json_error_out_of_memory)
        return ls_error_set(error, LS_ENOMEM, "%.300s: no memory to read it", name);
    if (!*out)
        return ls_error_set(error, code, "%.300s:%d:%d: not JSON: %s: " WANTED, name, where.line,
                            where.column, where.text);
    if (json_is_object(*out))
        return LS_OK;
    json_decref(*out);
    *out = NULL;
    return ls_error_set(error, code, "%.300s:1: " WANTED, name);
}

int ls_json_read(const char *path, int code, json_t **out, struct ls_error *error)
{
    char *text;
    size_t bytes;
    *out = NULL;
    int status = ls_file_read(path, LS_JSON_BYTES_MAX, code, &text, &bytes, error);
    if (!status)
        status = ls_json_parse(path, text, bytes, code, out, error);
    free(text);
    return status;
}
