/* lockstep/base/json.h - an object of JSON, of a file or of memory, by jansson.
 *
 * A file has at most LS_JSON_BYTES_MAX bytes, in UTF-8, and an object each key once. Errors are the
 * caller's code, "PATH:LINE:COLUMN: not JSON: why: what was expected"; LS_ENOMEM; and of a file
 * those of ls_file_read. Everything here is Local.
 */
#ifndef LOCKSTEP_BASE_JSON_H
#define LOCKSTEP_BASE_JSON_H

#include <lockstep/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct json_t; /* jansson.h */

enum { LS_JSON_BYTES_MAX = 64 << 20 };

/* *out = the object, to be released with json_decref; NULL after an error. */
int ls_json_read(const char *path, int code, struct json_t **out, struct ls_error *error);
/* The same of text [bytes]; name stands for the file in errors. */
int ls_json_parse(const char *name, const char *text, size_t bytes, int code, struct json_t **out,
                  struct ls_error *error);

#ifdef __cplusplus
}
#endif
#endif
