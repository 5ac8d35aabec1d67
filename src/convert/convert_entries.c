/* The flat list of keys and values that every source is read into. */
#include "convert/convert_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { ENTRIES_MAX = 2048 };

/* Copies; what was there goes once they are made. */
static int entry_put(struct convert_entry *to, const struct convert_entry *from,
                     struct ls_error *error)
{
    char *key = strdup(from->key), *text = strdup(from->text ? from->text : "");
    if (!key || !text) {
        free(key);
        free(text);
        return ls_no_memory(error, "for a configuration's keys");
    }
    free(to->key);
    free(to->text);
    *to = *from;
    to->key = key;
    to->text = text;
    return LS_OK;
}

int convert_entries_add(struct convert_entries *entries, const struct convert_entry *entry,
                        struct ls_error *error)
{
    if (entries->count >= ENTRIES_MAX)
        return ls_error_set(error, LS_ECONFIG, "more than %d keys: expected a configuration",
                            ENTRIES_MAX);
    if (!ls_list_grow(&entries->at, (int64_t)entries->count, &entries->room, sizeof *entries->at))
        return ls_no_memory(error, "for a configuration's keys");
    if (!entries->places && !(entries->places = json_object()))
        return ls_no_memory(error, "for a configuration's keys");
    bool known = convert_entries_find(entries, entry->key);
    struct convert_entry *added = &entries->at[entries->count];
    *added = (struct convert_entry){0};
    int status = entry_put(added, entry, error);
    if (status)
        return status;
    entries->count++;
    if (!known && json_object_set_new_nocheck(entries->places, added->key,
                                              json_integer((json_int_t)entries->count - 1)))
        return ls_no_memory(error, "for a configuration's keys");
    return LS_OK;
}

int convert_entries_set(struct convert_entries *entries, const struct convert_entry *entry,
                        struct ls_error *error)
{
    struct convert_entry *found = convert_entries_find(entries, entry->key);
    return found ? entry_put(found, entry, error) : convert_entries_add(entries, entry, error);
}

void convert_entries_release(struct convert_entries *entries)
{
    for (size_t i = 0; i < entries->count; i++) {
        free(entries->at[i].key);
        free(entries->at[i].text);
    }
    free(entries->at);
    json_decref(entries->places);
    *entries = (struct convert_entries){0};
}

struct convert_entry *convert_entries_find(const struct convert_entries *entries, const char *key)
{
    const json_t *place = json_object_get(entries->places, key);
    return place ? &entries->at[json_integer_value(place)] : NULL;
}

/* ---- asking --------------------------------------------------------------------------------- */

const struct convert_entry *convert_find(const struct convert *c, const char *key)
{
    const struct convert_entry *found = convert_entries_find(&c->entries, key);
    return found && !found->hidden ? found : NULL;
}

bool convert_number(const char *text, double *out)
{
    char *end;
    if (!*text || strspn(text, "+-.0123456789eE") != strlen(text))
        return false;
    *out = strtod(text, &end);
    return !*end && isfinite(*out);
}

bool convert_int(struct convert *c, const char *key, int64_t min, int64_t *out)
{
    const struct convert_entry *entry = convert_find(c, key);
    double value;
    if (!entry)
        return false;
    if (!convert_number(entry->text, &value) || value != floor(value) || value < (double)min ||
        value > 0x1p53) {
        convert_fail(c, key, "expected a whole number of at least %lld", (long long)min);
        return false;
    }
    *out = (int64_t)value;
    return true;
}

bool convert_real(struct convert *c, const char *key, double *out)
{
    const struct convert_entry *entry = convert_find(c, key);
    if (!entry)
        return false;
    if (convert_number(entry->text, out))
        return true;
    convert_fail(c, key, "expected a number");
    return false;
}

bool convert_flag(struct convert *c, const char *key, bool initial)
{
    const struct convert_entry *entry = convert_find(c, key);
    if (!entry)
        return initial;
    if (convert_among(entry->text, "true|1"))
        return true;
    if (!convert_among(entry->text, "false|0"))
        convert_fail(c, key, "expected true or false");
    return false;
}

const char *convert_word(const struct convert *c, const char *key, const char *initial)
{
    const struct convert_entry *entry = convert_find(c, key);
    return entry ? entry->text : initial;
}

bool convert_element(const struct convert_entry *entry, int i, char *out, size_t bytes)
{
    const char *between = entry->kind == CONVERT_LIST ? " " : "";
    const char *at = entry->text + strspn(entry->text, between);
    for (; i > 0 && *at; i--) {
        at += strcspn(at, between);
        at += strspn(at, between);
    }
    size_t length = strcspn(at, between);
    snprintf(out, bytes, "%.*s", (int)ls_min((int64_t)length, 4096), at);
    for (char *c = out; *c; c++)
        *c = *c == CONVERT_BLANK ? ' ' : *c;
    return length > 0;
}

int64_t convert_share(double share, int64_t of)
{
    double product = share * (double)of;
    return product > 0x1p53 ? (int64_t)1 << 53 : product > 0 ? llround(product) : 0;
}

int64_t convert_times(int64_t a, int64_t b)
{
    return (double)a * (double)b > 0x1p53 ? (int64_t)1 << 53 : a * b;
}

bool convert_among(const char *word, const char *words)
{
    const char *one;
    size_t length;
    while (ls_word_next(&words, &one, &length))
        if (strncasecmp(one, word, length) == 0 && !word[length])
            return true;
    return false;
}
