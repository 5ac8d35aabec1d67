/* Paths in a configuration file that go with the file. As elsewhere a relative path is looked up
 * from the current folder; ${here} in it stands for the folder of the file, and A|B is the first of
 * the two that exists. A run's config.yaml is written so: a run that was moved alone still finds
 * its data, and so does one that was moved together with it. */
#include "config/config_private.h"

#include <lockstep/config/inputs.h>
#include <lockstep/net.h>

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char here[] = "${here}";
static const char headerless[] = "u16:"; /* before the name of a file of bare tokens */
enum { HERE = sizeof here - 1, HEADERLESS = sizeof headerless - 1 };

/* A text that grows to a limit. */
struct text {
    char *data;
    size_t used, size;
    bool over;
};

static void put(struct text *text, const char *bytes, size_t count)
{
    text->over |= count >= text->size - text->used;
    if (text->over)
        return;
    memcpy(text->data + text->used, bytes, count);
    text->used += count;
    text->data[text->used] = '\0';
}

static void put_string(struct text *text, const char *string)
{
    put(text, string, strlen(string));
}

/* The folder of a file: "." for a bare name. */
static void folder_of(const char *file, char folder[PATH_MAX])
{
    const char *slash = strrchr(file, '/');
    if (!slash)
        snprintf(folder, PATH_MAX, ".");
    else
        snprintf(folder, PATH_MAX, "%.*s", slash == file ? 1 : (int)(slash - file), file);
}

/* An absolute path; what it names need not exist, its folder must. */
static bool absolute_of(const char *path, char absolute[PATH_MAX])
{
    char folder[PATH_MAX], real[PATH_MAX];
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    if (!*name || !strcmp(name, ".") || !strcmp(name, ".."))
        return realpath(path, absolute) != NULL;
    folder_of(path, folder);
    if (!realpath(folder, real))
        return false;
    return snprintf(absolute, PATH_MAX, "%s/%s", strcmp(real, "/") ? real : "", name) < PATH_MAX;
}

static void anchor(const char *folder, char path[LS_CONFIG_TEXT_BYTES])
{
    char absolute[LS_CONFIG_TEXT_BYTES];
    bool relative = *path && *path != '/' && !config_path_word(path) && !ls_url_is(path);
    bool text = ls_utf8_valid(folder, strlen(folder)) == strlen(folder); /* as all values are */
    if (relative && text &&
        snprintf(absolute, sizeof absolute, "%s/%s", folder, path) < LS_CONFIG_TEXT_BYTES)
        memcpy(path, absolute, strlen(absolute) + 1);
}

void ls_config_anchor(struct ls_config *config)
{
    char *folder = get_current_dir_name(); /* by the links that the caller knows */
    for (const struct ls_config_key *key = ls_config_keys(NULL); key->name && folder; key++)
        if (key->type == LS_CONFIG_PATH)
            anchor(folder, config_slot(config, key));
    if (folder)
        anchor(folder, config->checkpoint.also);
    free(folder);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* A file, a folder, or the prefix of a pair of token files. */
static bool exists(const char *path)
{
    static const char *const ends[] = {"", ".bin", ".idx"};
    char name[PATH_MAX + 8];
    if (ls_url_is(path))
        return true; /* as far as a configuration can know */
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        snprintf(name, sizeof name, "%s%s", path, ends[i]);
        if (access(name, F_OK) == 0)
            return true;
    }
    return false;
}

/* The first path of a list, and how long it is there, up to its comma. *bare: "u16:" stood before
 * it. What is no list is one path, commas and all; so is the folder of a tokenizer that is there.
 * Of a URL nobody knows, so its comma parts it from the next one, as where the value is used. */
static size_t first_path(const char *rest, bool list, bool *bare, char path[LS_CONFIG_TEXT_BYTES])
{
    *bare = list && !strncmp(rest, headerless, HEADERLESS);
    const char *from = rest + (*bare ? HEADERLESS : 0);
    size_t length = list && (ls_url_is(from) || !exists(from)) ? strcspn(rest, ",") : strlen(rest);
    snprintf(path, LS_CONFIG_TEXT_BYTES, "%.*s", (int)(rest + length - from), from);
    return length;
}

/* Behind a path: passes its comma, and writes it. */
static const char *put_comma(struct text *text, const char *rest)
{
    put(text, rest, *rest == ',');
    return rest + (*rest == ',');
}

/* Writes the folder for each ${here}. */
static void put_expanded(struct text *text, const char *path, const char *folder)
{
    for (const char *at; (at = strstr(path, here)); path = at + HERE) {
        put(text, path, (size_t)(at - path));
        put_string(text, folder);
    }
    put_string(text, path);
}

/* One of the alternatives, with the folder put in; *found: each of its paths exists. The list is
 * parted before, so a comma in the folder's name parts nothing here. It would where the value is
 * used: there the absolute path stands for it, which has lost the name if "/.." follows. If it has
 * not, whoever opens the store refuses it (data/store_names.h). */
static bool expand(const char *one, bool list, const char *folder, char value[LS_CONFIG_TEXT_BYTES],
                   bool *found)
{
    struct text all = {.data = value, .size = LS_CONFIG_TEXT_BYTES};
    value[0] = '\0';
    *found = true;
    for (const char *rest = one; *rest;) {
        char given[LS_CONFIG_TEXT_BYTES], path[LS_CONFIG_TEXT_BYTES] = "", absolute[PATH_MAX];
        struct text text = {.data = path, .size = sizeof path};
        bool bare;
        rest += first_path(rest, list, &bare, given);
        put_expanded(&text, given, folder);
        all.over |= text.over;
        *found &= !text.over && exists(path);
        put_string(&all, bare ? headerless : "");
        bool parted = list && strchr(path, ',') && absolute_of(path, absolute);
        put_string(&all, parted ? absolute : path);
        rest = put_comma(&all, rest);
    }
    return !all.over;
}

bool config_here(const char *file, bool list, char value[LS_CONFIG_TEXT_BYTES])
{
    char folder[PATH_MAX], given[LS_CONFIG_TEXT_BYTES], *save = NULL;
    bool found = false;
    if (!strstr(value, here))
        return true;
    folder_of(file, folder);
    snprintf(given, sizeof given, "%s", value);
    for (char *one = strtok_r(given, "|", &save); one && !found; one = strtok_r(NULL, "|", &save))
        if (!expand(one, list, folder, value, &found))
            return false;
    return true;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* ${here}/../x for the absolute path of x, seen from the folder; x has its name even if the folder
 * lies in it, because a recipe has the name. */
static void put_seen_from(struct text *text, const char *folder, const char *absolute)
{
    size_t common = 0; /* up to where both have the same components */
    for (size_t i = 0;; i++) {
        bool end_a = folder[i] == '/' || !folder[i], end_b = absolute[i] == '/' || !absolute[i];
        if (end_a && end_b)
            common = i;
        if (folder[i] != absolute[i] || !folder[i])
            break;
    }
    bool above = !absolute[common] && folder[common];
    while (above && common > 0 && absolute[--common] != '/')
        ;
    put_string(text, here);
    for (const char *up = folder + common; *up; up++)
        if (*up == '/' && up[1])
            put_string(text, "/..");
    if (absolute[common] && absolute[common + (absolute[common] == '/')]) {
        put_string(text, "/");
        put_string(text, absolute + common + (absolute[common] == '/'));
    }
}

/* Whether the last component is ".". */
static bool is_here(const char *path)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    return length > 0 && path[length - 1] == '.' && (length == 1 || path[length - 2] == '/');
}

/* A path, or a list of them, in one of two ways; *outside: one lies outside of the folder. */
static bool put_paths(struct text *text, const char *folder, const char *value, bool list,
                      bool relative, bool *outside)
{
    for (const char *rest = value; *rest;) {
        char path[LS_CONFIG_TEXT_BYTES], absolute[PATH_MAX];
        bool bare;
        size_t length = first_path(rest, list, &bare, path);
        bool url = ls_url_is(path);
        if (!url && !absolute_of(path, absolute))
            return false;
        put_string(text, bare ? headerless : "");
        if (url) {
            put_string(text, path);
            rest = put_comma(text, rest + length);
            continue;
        }
        if (relative)
            put_seen_from(text, folder, absolute);
        else
            put_string(text, absolute);
        put_string(text, is_here(path) ? "/." : ""); /* which is its name */
        size_t within = strlen(folder);
        *outside |= strncmp(absolute, folder, within) ||
                    (absolute[within] != '/' && absolute[within] != '\0');
        rest = put_comma(text, rest + length);
    }
    return true;
}

/* A path's value as it is written into a file of the folder. What is no path (such as the word
 * "auto"), or does not fit, is written as it is. */
static void portable(const char *folder, const char *value, bool list,
                     char out[LS_CONFIG_TEXT_BYTES])
{
    char relative[LS_CONFIG_TEXT_BYTES] = "", absolute[LS_CONFIG_TEXT_BYTES] = "";
    struct text first = {.data = relative, .size = sizeof relative};
    struct text second = {.data = absolute, .size = sizeof absolute};
    bool outside = false;
    snprintf(out, LS_CONFIG_TEXT_BYTES, "%s", value);
    if (strchr(value, '|') || !put_paths(&first, folder, value, list, true, &outside) ||
        !put_paths(&second, folder, value, list, false, &outside))
        return;
    if (!outside && !first.over)
        snprintf(out, LS_CONFIG_TEXT_BYTES, "%s", relative);
    else if (!first.over && !second.over && first.used + second.used + 2 < LS_CONFIG_TEXT_BYTES)
        snprintf(out, LS_CONFIG_TEXT_BYTES, "%s|%s", relative, absolute);
    else if (!second.over)
        snprintf(out, LS_CONFIG_TEXT_BYTES, "%s", absolute);
}

static void source_portable(void *user, char *source)
{
    char given[LS_CONFIG_TEXT_BYTES];
    snprintf(given, sizeof given, "%s", source);
    portable(user, given, true, source);
}

int ls_config_save_portable(const struct ls_config *config, const char *path,
                            struct ls_error *error)
{
    struct ls_config written = *config;
    char folder[PATH_MAX], real[PATH_MAX];
    folder_of(path, folder);
    if (!realpath(folder, real))
        return ls_error_errno(error, errno, "%.300s: cannot be found", folder);
    for (const struct ls_config_key *key = ls_config_keys(NULL); key->name; key++) {
        const char *value = config_slot(config, key);
        bool is_path = config_is_path(key) && *value && !config_path_word(value);
        if (is_path && (*value != '/' || !config_is_initial(config, key)))
            portable(real, value, key->type == LS_CONFIG_PATHS, config_slot(&written, key));
        if (key->type == LS_CONFIG_BLEND && *value &&
            !config_blend_map(config_slot(&written, key), source_portable, real))
            return ls_error_set(error, LS_ECONFIG, "data.blend: too long to be written to %.200s",
                                path);
    }
    return ls_config_save(&written, path, error);
}
