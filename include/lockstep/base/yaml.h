/* lockstep/base/yaml.h - YAML 1.2 text event by event, by libfyaml: nothing is built that could
 * grow with a hostile file, and every event knows its line and column.
 *
 *   struct ls_yaml yaml;
 *   ls_yaml_open(&yaml, name, text, bytes, "expected `key: value` lines", error)
 *   ls_yaml_begin(&yaml)          the current event is the document's first one
 *   ... yaml.event (libfyaml.h), ls_yaml_text, ls_yaml_next ...
 *   ls_yaml_end(&yaml)            nothing stands behind the document
 *   ls_yaml_close(&yaml)          in each case
 *
 * Errors are LS_ECONFIG, "NAME:LINE:COLUMN: what", and LS_ENOMEM. Everything here is Local. */
#ifndef LOCKSTEP_BASE_YAML_H
#define LOCKSTEP_BASE_YAML_H

#include <lockstep/base.h>

LS_C_BEGIN

struct fy_parser;
struct fy_diag;
struct fy_event;

/* From 1. */
struct ls_yaml_place {
    int line, column;
};

struct ls_yaml {
    const char *name;       /* of the file, for texts */
    const char *wanted;     /* what is said of text that libfyaml says nothing of */
    struct fy_event *event; /* the current one; NULL at the end or after an error */
    struct fy_parser *parser;
    struct fy_diag *diag;
    struct ls_error *error;
};

/* LS_ECONFIG unless text is UTF-8 without zeros. name, text, wanted and error are borrowed until
 * ls_yaml_close. */
int ls_yaml_open(struct ls_yaml *yaml, const char *name, const char *text, size_t bytes,
                 const char *wanted, struct ls_error *error);
void ls_yaml_close(struct ls_yaml *yaml);
/* To the document's first event, or to the end of a text without one (FYET_STREAM_END). */
int ls_yaml_begin(struct ls_yaml *yaml);
/* From the document's last event past its end: LS_ECONFIG if another document follows. */
int ls_yaml_end(struct ls_yaml *yaml);
/* To the next event; there must be one. Tags would change what a value means and aliases where it
 * comes from: neither is honoured. */
int ls_yaml_next(struct ls_yaml *yaml);
/* Where the current event stands. */
struct ls_yaml_place ls_yaml_at(const struct ls_yaml *yaml);
/* The current scalar as a terminated string in text; false if it is longer or holds a zero. */
bool ls_yaml_text(const struct ls_yaml *yaml, char *text, size_t bytes);
/* Reads the map whose start is the current event, to its end: value is called behind each key, with
 * its name, which is prefix ("" or "group.") and the key, at the first event of its value, and goes
 * to the last one. */
typedef int ls_yaml_value(void *user, struct ls_yaml_place at, const char *name, const char *key);
int ls_yaml_map(struct ls_yaml *yaml, const char *prefix, ls_yaml_value *value, void *user);
enum { LS_YAML_NAME_BYTES = 128 }; /* of a name with its prefix, half of it for each */
/* YAML 1.2 has each name once in a map: *seen is where, 0 at first. */
int ls_yaml_once(struct ls_yaml *yaml, struct ls_yaml_place *seen, struct ls_yaml_place at,
                 const char *name);
/* Sets the error "NAME:LINE:COLUMN: what" and returns LS_ECONFIG. */
int ls_yaml_fail(struct ls_yaml *yaml, struct ls_yaml_place at, const char *what);
/* The same of what is said about a key. */
int ls_yaml_about(struct ls_yaml *yaml, struct ls_yaml_place at, const char *key, const char *what);
/* "NAME:LINE:COLUMN: KEY = VALUE: expected WHY", as ls_error_refuse. */
int ls_yaml_refuse(struct ls_yaml *yaml, struct ls_yaml_place at, const char *key,
                   const char *value, const char *why);

LS_C_END
#endif
