/* What of a configuration may change the bits of the result. */
#include "config/config_private.h"

#include <string.h>

enum { LONG_BYTES = 200, BEFORE_BYTES = 60, SHOWN_BYTES = LONG_BYTES + 16 }; /* of a value */

/* Of each path in a list, the last component; a slash behind it adds none. */
static void paths_cut(char *names, bool list)
{
    char *kept = names, *name = names; /* name: where the last component of a path will begin */
    for (const char *p = names; *p; p++) {
        bool bare = *p == ':' && kept - name == 3 && !strncmp(name, "u16", 3);
        const char *next = p + strspn(p, "/");
        if (next > p && (!*next || (list && *next == ',')))
            continue;
        if (*p == '/' || bare) {
            kept = name;
            continue;
        }
        *kept++ = *p;
        if (*p == ',' && list)
            name = kept;
    }
    *kept = '\0';
}

void ls_config_source_name(char source[LS_CONFIG_TEXT_BYTES])
{
    paths_cut(source, true);
}

static void source_cut(void *user, char *source)
{
    (void)user;
    ls_config_source_name(source);
}

void ls_config_compared_value(const struct ls_config *config, const struct ls_config_key *key,
                              char *text, size_t bytes)
{
    char names[LS_CONFIG_BLEND_BYTES];
    snprintf(names, sizeof names, "%s",
             config_is_path(key) || key->type == LS_CONFIG_BLEND
                 ? (const char *)config_slot(config, key)
                 : "");
    if (config_is_path(key)) {
        paths_cut(names, key->type == LS_CONFIG_PATHS);
        config_quote(names, text, bytes);
    } else if (*names && config_blend_map(names, source_cut, NULL)) {
        snprintf(text, bytes, "%s", names);
    } else {
        ls_config_value(config, key, text, bytes);
    }
}

void ls_config_recipe_digest(const struct ls_config *config, struct ls_digest *digest)
{
    *digest = (struct ls_digest){0, 0};
    for (const struct ls_config_key *key = ls_config_keys(NULL); key->name; key++) {
        char value[LS_CONFIG_VALUE_BYTES];
        if (key->part != LS_CONFIG_RECIPE)
            continue;
        ls_config_compared_value(config, key, value, sizeof value);
        ls_digest_piece(digest, key->name, 0, 0, value, strlen(value));
    }
}

static size_t rune_begin(const char *text, size_t at)
{
    while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80)
        at--;
    return at;
}

/* A long value from a little before `same` on, where it begins to differ from another one. */
static void shown_of(const char *value, size_t same, char shown[SHOWN_BYTES])
{
    size_t begin = same > BEFORE_BYTES ? rune_begin(value, same - BEFORE_BYTES) : 0;
    size_t end = strlen(value);
    if (end < LONG_BYTES)
        begin = 0;
    bool cut = end - begin >= LONG_BYTES;
    if (cut)
        end = rune_begin(value, begin + LONG_BYTES);
    snprintf(shown, SHOWN_BYTES, "%s%.*s%s", begin ? "... " : "", (int)(end - begin), value + begin,
             cut ? " ..." : "");
}

static size_t same_bytes(const char *a, const char *b)
{
    size_t same = 0;
    while (a[same] && a[same] == b[same])
        same++;
    return same;
}

int ls_config_recipe_diff(const struct ls_config *a, const struct ls_config *b, char *text,
                          size_t bytes)
{
    int differing = 0;
    if (bytes)
        text[0] = '\0';
    for (const struct ls_config_key *key = ls_config_keys(NULL); key->name; key++) {
        char here[LS_CONFIG_VALUE_BYTES], there[LS_CONFIG_VALUE_BYTES];
        if (key->part != LS_CONFIG_RECIPE)
            continue;
        ls_config_compared_value(a, key, here, sizeof here);
        ls_config_compared_value(b, key, there, sizeof there);
        if (strcmp(here, there) == 0)
            continue;
        differing++;
        if (!bytes)
            continue;
        char shown[2][SHOWN_BYTES];
        size_t same = same_bytes(here, there);
        shown_of(here, same, shown[0]);
        shown_of(there, same, shown[1]);
        ls_string_add(text, bytes, "; ", "%s: %s here, %s there", key->name, shown[0], shown[1]);
    }
    return differing;
}
