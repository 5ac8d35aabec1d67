/* lockstep/base/json.h - JSON of a file or of memory, by jansson.
 *
 * Integers have any size, as in Python: one that int64 cannot hold is read as the nearest double.
 *
 * A file has at most LS_JSON_BYTES_MAX bytes, in UTF-8, and an object each key once. Errors are the
 * caller's code, "PATH:LINE:COLUMN: not JSON: why: what was expected"; LS_ENOMEM; and of a file
 * those of ls_file_read. Everything here is Local. */
#ifndef LOCKSTEP_BASE_JSON_H
#define LOCKSTEP_BASE_JSON_H

#include <lockstep/base.h>

#include <stdio.h>

LS_C_BEGIN

struct json_t; /* jansson.h */
struct json_error_t;

enum { LS_JSON_BYTES_MAX = 64 << 20 };

/* *out = the object, to be released with json_decref; NULL after an error. */
int ls_json_read(const char *path, int code, struct json_t **out, struct ls_error *error);
/* The same of text [bytes]; name stands for the file in errors. */
int ls_json_parse(const char *name, const char *text, size_t bytes, int code, struct json_t **out,
                  struct ls_error *error);
/* Any value of text [bytes], by json_loadb with its flags; NULL with *where filled. All JSON of the
 * library is read here. */
struct json_t *ls_json_load(const char *text, size_t bytes, size_t flags,
                            struct json_error_t *where);

/* Writes a string with its quotes; what is not UTF-8 becomes U+FFFD. Bytes may be 0. */
void ls_json_string(FILE *file, const char *bytes, size_t count);
/* Writes a number in at most so many digits, with a point whatever the locale; null if it is not
 * finite. */
void ls_json_number(FILE *file, double value, int digits);

LS_C_END
#endif
