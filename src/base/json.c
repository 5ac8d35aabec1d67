/* JSON: what is the same for every object that is read whole. */
#include <lockstep/base/file.h>
#include <lockstep/base/hub.h>
#include <lockstep/base/json.h>

#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Each integer of 19 digits or more as a real number, in as many characters: its last digits give
 * way to an exponent. An error keeps its place. */
static void integers_to_reals(char *text, size_t bytes)
{
    enum { INT64_DIGITS = 19, DOUBLE_DIGITS = 308 };
    for (size_t i = 0, digits; i < bytes; i += digits ? digits : 1) {
        if (text[i] == '"')
            for (i++; i < bytes && text[i] != '"'; i++)
                i += text[i] == '\\' && i + 1 < bytes;
        for (digits = 0; i + digits < bytes && isdigit((unsigned char)text[i + digits]);)
            digits++;
        char *number = text + i, behind = i + digits < bytes ? number[digits] : ' ';
        bool power = i > 1 && strchr("+-", number[-1]) && strchr("eE", number[-2]);
        bool fraction = i > 0 && (power || strchr(".eE", number[-1]));
        if (digits < INT64_DIGITS || fraction || strchr(".eE", behind))
            continue;
        if (digits <= DOUBLE_DIGITS) {
            memcpy(number + digits - 2, "e2", 2);
        } else {
            memset(number + 1, '0', digits - 1);
            memcpy(number, "1e", 2);
            memcpy(number + digits - 3, "308", 3);
        }
    }
}

json_t *ls_json_load(const char *text, size_t bytes, size_t flags, json_error_t *where)
{
    json_t *value = json_loadb(text, bytes, flags, where);
    if (value || json_error_code(where) != json_error_numeric_overflow)
        return value;
    char *copy = malloc(bytes);
    if (!copy)
        return json_loadb(text, bytes, flags, where);
    memcpy(copy, text, bytes);
    integers_to_reals(copy, bytes);
    value = json_loadb(copy, bytes, flags, where);
    free(copy);
    return value;
}

#define WANTED "expected an object, {\"key\": value}"

int ls_json_parse(const char *name, const char *text, size_t bytes, int code, json_t **out,
                  struct ls_error *error)
{
    static const char mark[] = "\xef\xbb\xbf";
    const char *pointer = ls_lfs_pointer(text, bytes);
    json_error_t where;
    *out = NULL;
    if (pointer)
        return ls_error_set(error, code, "%.300s: %s", name, pointer);
    if (bytes >= strlen(mark) && !memcmp(text, mark, strlen(mark)))
        return ls_error_line(error, code, name, 1,
                             "begins with a byte order mark (U+FEFF), which JSON does not allow: "
                             "save it as UTF-8 without one");
    *out = ls_json_load(text ? text : "", bytes, JSON_REJECT_DUPLICATES, &where);
    if (!*out && json_error_code(&where) == json_error_out_of_memory)
        return ls_error_set(error, LS_ENOMEM, "%.300s: no memory to read it", name);
    if (!*out) {
        ls_error_set(error, code, "not JSON: %s: " WANTED, where.text);
        ls_error_at(error, name, where.line, where.column);
        return code;
    }
    if (json_is_object(*out))
        return LS_OK;
    json_decref(*out);
    *out = NULL;
    return ls_error_line(error, code, name, 1, WANTED);
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

/* Bytes from the start that a JSON string holds as they are. */
static size_t plain_bytes(const char *bytes, size_t count)
{
    size_t length = 0;
    for (size_t more = 1; length < count && more > 0; length += more) {
        unsigned char c = (unsigned char)bytes[length];
        if (c < 0x80)
            more = c >= 0x20 && c != '"' && c != '\\' ? 1 : 0;
        else
            more = ls_utf8_character(bytes + length, count - length);
    }
    return length;
}

void ls_json_string(FILE *file, const char *bytes, size_t count)
{
    fputc('"', file);
    for (size_t i = 0; i < count;) {
        size_t plain = plain_bytes(bytes + i, count - i);
        fwrite(bytes + i, 1, plain, file);
        i += plain;
        if (i == count)
            break;
        unsigned char c = (unsigned char)bytes[i++];
        if (c >= 0x80)
            fputs("\xef\xbf\xbd", file); /* U+FFFD */
        else if (c == '"' || c == '\\')
            fprintf(file, "\\%c", c);
        else if (c == '\n' || c == '\r' || c == '\t')
            fputs(c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t", file);
        else
            fprintf(file, "\\u%04x", c);
    }
    fputc('"', file);
}

void ls_json_number(FILE *file, double value, int digits)
{
    char number[40] = "null";
    if (isfinite(value))
        snprintf(number, sizeof number, "%.*g", digits, value);
    char *comma = strchr(number, ',');
    if (comma)
        *comma = '.';
    fputs(number, file);
}
