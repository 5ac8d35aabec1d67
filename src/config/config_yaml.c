/* From YAML, event by event, to the keys of the table: nothing is built that could grow with a
 * hostile file, and every event knows its line and column. */
#include "config_private.h"

#include <lockstep/base/file.h>

#include <libfyaml.h>
#include <stdlib.h>
#include <string.h>

/* All keys with the longest texts take less than 100 KiB. */
enum { FILE_BYTES_MAX = 1 << 20, NAME_BYTES = 64 };

struct reader {
    struct ls_config *config;
    struct fy_parser *parser;
    struct fy_diag *diag;
    struct fy_event *event; /* the current one; NULL at the end or after an error */
    struct ls_config_origin seen[LS_CONFIG_KEYS_MAX];
    struct ls_config_origin seen_group[LS_CONFIG_KEYS_MAX]; /* at its first key's index */
    struct ls_error *error;
};

static int fail(struct reader *reader, struct ls_config_origin at, const char *what)
{
    return ls_error_set(reader->error, LS_ECONFIG, "%.200s:%d:%d: %s", reader->config->path,
                        at.line, at.column, what);
}

static struct ls_config_origin position(struct reader *reader)
{
    const struct fy_mark *mark = fy_event_start_mark(reader->event);
    if (!mark)
        return (struct ls_config_origin){1, 1};
    /* The mark of a scalar in quotes stands behind the opening one. */
    bool quoted = false;
    if (reader->event->type == FYET_SCALAR && reader->event->scalar.value) {
        enum fy_scalar_style style = fy_token_scalar_style(reader->event->scalar.value);
        quoted = style == FYSS_SINGLE_QUOTED || style == FYSS_DOUBLE_QUOTED;
    }
    return (struct ls_config_origin){mark->line + 1, mark->column + 1 - (quoted && mark->column)};
}

/* What libfyaml has to say about text that is not YAML. */
static int fail_syntax(struct reader *reader)
{
    void *iterator = NULL;
    struct fy_diag_error *first = fy_diag_errors_iterate(reader->diag, &iterator);
    char what[300];
    snprintf(what, sizeof what, "not YAML: %.250s",
             first && first->msg ? first->msg
                                 : "expected `group:` and indented `key: value` lines");
    struct ls_config_origin at = {1, 1};
    if (first && first->line > 0)
        at = (struct ls_config_origin){first->line, first->column > 0 ? first->column : 1};
    return fail(reader, at, what);
}

/* Moves to the next event; there must be one. */
static int next(struct reader *reader)
{
    fy_parser_event_free(reader->parser, reader->event);
    reader->event = fy_parser_parse(reader->parser);
    return reader->event ? LS_OK : fail_syntax(reader);
}

/* The current scalar as a terminated string in text; false where it is longer or holds a zero. */
static bool scalar_text(struct reader *reader, char *text, size_t bytes)
{
    size_t length = 0;
    struct fy_token *token = reader->event->scalar.value;
    const char *value = token ? fy_token_get_text(token, &length) : "";
    if (!value || length >= bytes || memchr(value, '\0', length))
        return false;
    memcpy(text, value, length);
    text[length] = '\0';
    return true;
}

static int unknown_key(struct reader *reader, struct ls_config_origin at, const char *name)
{
    char what[512];
    config_unknown(name, what, sizeof what);
    return fail(reader, at, what);
}

/* The index of the group's first key; -1 if name is no group. */
static int group_index(const char *name)
{
    const char *names[LS_CONFIG_KEYS_MAX];
    size_t count = config_names(names), length = strlen(name);
    for (size_t i = 0; i < count; i++)
        if (strncmp(names[i], name, length) == 0 && names[i][length] == '.')
            return (int)i;
    return -1;
}

/* A map under a name that is no group. */
static int unknown_group(struct reader *reader, struct ls_config_origin at, const char *name)
{
    const char *names[LS_CONFIG_KEYS_MAX], *groups[LS_CONFIG_KEYS_MAX];
    char words[LS_CONFIG_KEYS_MAX][NAME_BYTES], what[512];
    size_t count = config_names(names), known = 0;
    if (strchr(name, '.'))
        return unknown_key(reader, at, name);
    for (size_t i = 0; i < count; i++) {
        size_t length = strcspn(names[i], ".");
        if (i && strncmp(names[i - 1], names[i], length + 1) == 0)
            continue;
        snprintf(words[known], NAME_BYTES, "%.*s", (int)length, names[i]);
        groups[known] = words[known];
        known++;
    }
    const char *near = ls_nearest(name, groups, known);
    size_t used =
        (size_t)snprintf(what, sizeof what, "unknown group %s%s%s%s: the groups are", name,
                         near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    for (size_t i = 0; i < known; i++)
        used += (size_t)snprintf(what + used, sizeof what - used, "%s%s", i ? ", " : " ", words[i]);
    return fail(reader, at, what);
}

/* YAML 1.2 has each name once in a map. */
static int see_once(struct reader *reader, struct ls_config_origin *seen,
                    struct ls_config_origin at, const char *name)
{
    char what[2 * NAME_BYTES + 64];
    if (seen->line) {
        snprintf(what, sizeof what, "%s is given twice (first on line %d): remove one", name,
                 seen->line);
        return fail(reader, at, what);
    }
    *seen = at;
    return LS_OK;
}

static int read_scalar(struct reader *reader, struct ls_config_origin key_at, const char *name)
{
    struct ls_config_origin at = position(reader);
    int index = config_index(name);
    char what[900];
    if (index < 0 && group_index(name) >= 0) {
        snprintf(what, sizeof what, "%s is a group: expected indented keys under it", name);
        return fail(reader, key_at, what);
    }
    if (index < 0)
        return unknown_key(reader, key_at, name);
    int status = see_once(reader, &reader->seen[index], key_at, name);
    if (status)
        return status;
    size_t count;
    const struct ls_config_key *key = &ls_config_keys(&count)[index];
    bool plain = !reader->event->scalar.value ||
                 fy_token_scalar_style(reader->event->scalar.value) == FYSS_PLAIN;
    char text[LS_CONFIG_TEXT_BYTES], why[256];
    if (!scalar_text(reader, text, sizeof text)) {
        config_expected(key, why, sizeof why);
        snprintf(what, sizeof what, "%s: the value is too long or holds a zero byte: expected %s",
                 name, why);
        return fail(reader, at, what);
    }
    bool null =
        plain && (strcmp(text, "") == 0 || strcmp(text, "~") == 0 || strcmp(text, "null") == 0);
    if (null && config_is_text(key))
        text[0] = '\0';
    if (!config_parse(reader->config, key, text, !plain, why, sizeof why)) {
        snprintf(what, sizeof what, "%s = %.200s: expected %s", name, *text ? text : "(nothing)",
                 why);
        return fail(reader, at, what);
    }
    if (config_is_path(key) && !config_here(reader->config->path, key->type == LS_CONFIG_PATHS,
                                            config_slot(reader->config, key))) {
        snprintf(what, sizeof what, "%s: the path is longer than %d bytes", name,
                 LS_CONFIG_TEXT_BYTES - 1);
        return fail(reader, at, what);
    }
    reader->config->origin[index] = at;
    return LS_OK;
}

/* Tags would change what a value means and aliases where it comes from: neither is honoured. */
static int refuse_decoration(struct reader *reader)
{
    struct fy_event *event = reader->event;
    if (event->type == FYET_ALIAS)
        return fail(reader, position(reader), "aliases are not supported: write the value");
    bool tagged = (event->type == FYET_SCALAR && event->scalar.tag) ||
                  (event->type == FYET_MAPPING_START && event->mapping_start.tag);
    return tagged ? fail(reader, position(reader), "tags are not supported: remove it") : LS_OK;
}

/* The current event is the map's start; on success, its end. prefix is "" or "group.". */
static int read_map(struct reader *reader, const char *prefix)
{
    int status;
    while ((status = next(reader)) == LS_OK && reader->event->type != FYET_MAPPING_END) {
        struct ls_config_origin at = position(reader);
        char word[NAME_BYTES], name[2 * NAME_BYTES];
        status = refuse_decoration(reader);
        if (status)
            return status;
        if (reader->event->type != FYET_SCALAR)
            return fail(reader, at, "expected a key");
        if (!scalar_text(reader, word, sizeof word))
            return fail(reader, at, "unknown key (too long)");
        snprintf(name, sizeof name, "%s%s", prefix, word);
        status = next(reader);
        if (!status)
            status = refuse_decoration(reader);
        if (status)
            return status;
        if (reader->event->type == FYET_SCALAR) {
            status = read_scalar(reader, at, name);
        } else if (reader->event->type == FYET_MAPPING_START && group_index(name) >= 0) {
            status = see_once(reader, &reader->seen_group[group_index(name)], at, name);
            strcat(name, "."); /* a group's name is short */
            status = status ? status : read_map(reader, name);
        } else if (config_index(name) < 0) {
            status = unknown_group(reader, at, name);
        } else {
            status = fail(reader, position(reader), "expected one value, not a list or a map");
        }
        if (status)
            return status;
    }
    return status;
}

static int read_document(struct reader *reader)
{
    int status = next(reader);
    if (!status && reader->event->type == FYET_STREAM_START)
        status = next(reader);
    if (status || reader->event->type == FYET_STREAM_END)
        return status; /* nothing but comments: all defaults */
    if (reader->event->type == FYET_DOCUMENT_START)
        status = next(reader);
    if (!status)
        status = refuse_decoration(reader);
    if (status)
        return status;
    if (reader->event->type == FYET_MAPPING_START)
        status = read_map(reader, "");
    else if (reader->event->type != FYET_SCALAR || reader->event->scalar.value)
        return fail(reader, position(reader), "expected `group:` and indented `key: value` lines");
    if (!status)
        status = next(reader); /* the document's end */
    if (!status)
        status = next(reader);
    if (!status && reader->event->type != FYET_STREAM_END)
        status = fail(reader, position(reader), "a second document: expected one");
    return status;
}

/* YAML may also be UTF-16; configurations are UTF-8, so that a value's bytes are what the file
 * holds. */
static int check_bytes(struct reader *reader, const char *text, size_t bytes)
{
    size_t good = config_utf8_prefix(text, bytes);
    if (good == bytes)
        return LS_OK;
    struct ls_config_origin at = {1, 1};
    for (size_t i = 0; i < good; i++) {
        at.line += text[i] == '\n';
        at.column = text[i] == '\n' ? 1 : at.column + 1;
    }
    return fail(reader, at, "expected UTF-8 text: re-encode the file");
}

int ls_config_load_text(struct ls_config *config, const char *name, const char *text, size_t bytes,
                        struct ls_error *error)
{
    struct fy_diag_cfg diag_config;
    fy_diag_cfg_default(&diag_config);
    diag_config.fp = NULL;
    struct reader reader = {.config = config, .error = error};
    snprintf(config->path, sizeof config->path, "%s", name);
    int status = check_bytes(&reader, text, bytes);
    if (status)
        return status;
    status = LS_ENOMEM;
    reader.diag = fy_diag_create(&diag_config);
    if (!reader.diag)
        goto out;
    fy_diag_set_collect_errors(reader.diag, true);
    struct fy_parse_cfg parse_config = {
        .flags = FYPCF_QUIET | FYPCF_COLLECT_DIAG | FYPCF_DEFAULT_VERSION_1_2 | FYPCF_JSON_NONE,
        .diag = reader.diag,
    };
    reader.parser = fy_parser_create(&parse_config);
    if (!reader.parser || fy_parser_set_string(reader.parser, text, bytes) != 0)
        goto out;
    status = read_document(&reader);
out:
    if (status == LS_ENOMEM)
        ls_error_set(error, LS_ENOMEM, "%.200s: no memory for the YAML parser", name);
    if (reader.parser) {
        fy_parser_event_free(reader.parser, reader.event);
        fy_parser_destroy(reader.parser);
    }
    if (reader.diag)
        fy_diag_destroy(reader.diag);
    return status;
}

int ls_config_load_file(struct ls_config *config, const char *path, struct ls_error *error)
{
    char *text;
    size_t bytes;
    int status = ls_file_read(path, FILE_BYTES_MAX, LS_ECONFIG, &text, &bytes, error);
    if (status)
        ls_error_prefix(error, "configuration");
    else
        status = ls_config_load_text(config, path, text, bytes, error);
    free(text);
    return status;
}
