/* JSON as people write it, with comments, into entries. jansson reads it; the lines of keys, which
 * jansson does not keep, are found beside it. */
#include "convert/convert_private.h"

#include <lockstep/base/json.h>

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 1024, DEPTH_MAX = 16 };

struct reading {
    struct convert_entries *entries;
    const char *name;
    const char *text; /* without comments */
    size_t at;        /* keys before it have been met */
    int line;         /* of `at` */
    struct ls_error *error;
};

/* Past the string that begins at text[i], terminated or not. */
static size_t string_end(const char *text, size_t i, size_t bytes)
{
    for (i++; i < bytes && text[i] != '"'; i++)
        if (text[i] == '\\')
            i++;
    return i < bytes ? i + 1 : bytes;
}

/* Comments become spaces, lines stay. */
static void strip_comments(char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes;) {
        bool line = text[i] == '#' || (text[i] == '/' && i + 1 < bytes && text[i + 1] == '/');
        bool block = text[i] == '/' && i + 1 < bytes && text[i + 1] == '*';
        if (text[i] == '"') {
            i = string_end(text, i, bytes);
        } else if (line) {
            while (i < bytes && text[i] != '\n')
                text[i++] = ' ';
        } else if (block) {
            size_t from = i + 2;
            while (i < bytes && !(i >= from + 1 && text[i] == '/' && text[i - 1] == '*'))
                i++;
            i = i < bytes ? i + 1 : bytes;
            for (size_t j = from - 2; j < i; j++)
                text[j] = text[j] == '\n' ? '\n' : ' ';
        } else {
            i++;
        }
    }
}

/* The line of the next key: keys come in the order of the text. */
static int next_key_line(struct reading *reading, size_t bytes)
{
    const char *text = reading->text;
    size_t i = reading->at;
    while (i < bytes) {
        if (text[i] != '"') {
            reading->line += text[i++] == '\n';
            continue;
        }
        i = string_end(text, i, bytes);
        size_t colon = i + strspn(text + i, " \t\r\n");
        if (text[colon] == ':') {
            reading->at = i;
            return reading->line;
        }
    }
    reading->at = i;
    return reading->line;
}

static const char *scalar_text(const json_t *value, char *number, size_t bytes)
{
    if (json_is_string(value))
        return json_string_value(value);
    if (json_is_integer(value))
        snprintf(number, bytes, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(number, bytes, "%.15g", json_real_value(value));
    else
        snprintf(number, bytes, "%s",
                 json_is_true(value)    ? "true"
                 : json_is_false(value) ? "false"
                                        : "null");
    return number;
}

static enum convert_kind kind_of(const json_t *value)
{
    return json_is_string(value)    ? CONVERT_TEXT
           : json_is_number(value)  ? CONVERT_NUMBER
           : json_is_boolean(value) ? CONVERT_BOOL
                                    : CONVERT_NULL;
}

/* Elements with spaces between; one that is a table or a list is written as JSON. */
static char *list_text(const json_t *list)
{
    char *text = NULL;
    size_t bytes, index;
    json_t *value;
    FILE *file = open_memstream(&text, &bytes);
    if (!file)
        return NULL;
    json_array_foreach(list, index, value)
    {
        char number[64];
        if (index)
            fputc(' ', file);
        if (json_is_object(value) || json_is_array(value))
            json_dumpf(value, file, JSON_COMPACT);
        else
            fputs(scalar_text(value, number, sizeof number), file);
    }
    return fclose(file) == 0 ? text : NULL;
}

/* Keys inside a list count as met. */
static void skip_keys(struct reading *reading, const json_t *value, size_t bytes)
{
    const char *key;
    json_t *member;
    size_t index;
    json_array_foreach(value, index, member) skip_keys(reading, member, bytes);
    json_object_foreach((json_t *)value, key, member)
    {
        next_key_line(reading, bytes);
        skip_keys(reading, member, bytes);
    }
}

static int add_leaf(struct reading *reading, const char *path, int line, const json_t *value)
{
    char number[64];
    struct convert_entry entry = {.key = (char *)path, .line = line, .kind = kind_of(value)};
    char *list = NULL;
    if (json_is_object(value)) {
        entry.kind = CONVERT_EMPTY;
    } else if (json_is_array(value)) {
        entry.kind = CONVERT_LIST;
        entry.text = list = list_text(value);
        if (!list)
            return ls_no_memory(reading->error, "for a list");
    } else {
        entry.text = (char *)scalar_text(value, number, sizeof number);
    }
    int status = convert_entries_add(reading->entries, &entry, reading->error);
    free(list);
    return status;
}

static int add_object(struct reading *reading, const char *prefix, const json_t *object,
                      size_t bytes, int depth)
{
    const char *key;
    json_t *value;
    int status = LS_OK;
    json_object_foreach((json_t *)object, key, value)
    {
        char path[PATH_BYTES];
        int line = next_key_line(reading, bytes);
        bool plain = *key && !strchr(key, '.');
        int length = snprintf(path, sizeof path, "%s%s%s%s%s", prefix, *prefix ? "." : "",
                              plain ? "" : "\"", key, plain ? "" : "\"");
        if (length >= PATH_BYTES || depth > DEPTH_MAX)
            return ls_error_line(reading->error, LS_ECONFIG, reading->name, line,
                                 "%.100s...: expected a shorter key, and fewer levels", path);
        if (json_object_size(value) > 0) {
            status = add_object(reading, path, value, bytes, depth + 1);
        } else {
            status = add_leaf(reading, path, line, value);
            skip_keys(reading, value, bytes);
        }
        if (status)
            return status;
    }
    return status;
}

/* How long the NAME, $NAME or ${NAME} at text is, which a script fills in; 0 for none. */
static size_t placeholder(const char *text)
{
    size_t open = strncmp(text, "${", 2) == 0 ? 2 : *text == '$', length = open;
    if (open == 0 && (!isupper((unsigned char)text[0]) || islower((unsigned char)text[1])))
        return 0; /* or it is a word such as NaN */
    while (isalnum((unsigned char)text[length]) || text[length] == '_')
        length++;
    return length + (open == 2 && text[length] == '}');
}

/* A template is told apart from a file that is no JSON. */
static int refuse_template(const struct reading *reading, size_t bytes)
{
    int line = 1;
    for (size_t i = 0; i < bytes; i++) {
        const char *at = reading->text + i;
        size_t length = i > 0 && isalnum((unsigned char)at[-1]) ? 0 : placeholder(at);
        line += *at == '\n';
        if (*at == '"')
            i = string_end(reading->text, i, bytes) - 1;
        else if (length > 1)
            return ls_error_line(reading->error, LS_ECONFIG, reading->name, line,
                                 "%.*s is no value: a script fills in this template; write the "
                                 "value, or give the file that the script makes",
                                 (int)ls_min((int64_t)length, 100), at);
    }
    return LS_OK;
}

int convert_json_read(struct convert_entries *entries, const char *name, const char *text,
                      size_t bytes, const struct ls_convert_options *options,
                      struct ls_error *error)
{
    (void)options;
    json_t *root = NULL;
    char *copy = malloc(bytes + 1);
    if (!copy)
        return ls_error_set(error, LS_ENOMEM, "%.200s: no memory to read it", name);
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    strip_comments(copy, bytes);
    struct reading reading = {
        .entries = entries, .name = name, .text = copy, .line = 1, .error = error};
    int status = refuse_template(&reading, bytes);
    if (!status)
        status = ls_json_parse(name, copy, bytes, LS_ECONFIG, &root, error);
    if (!status)
        status = add_object(&reading, "", root, bytes, 0);
    json_decref(root);
    free(copy);
    return status;
}
