/* Lists of stores: names, folders and patterns. A folder stands for all stores in it, a pattern for
 * all whose names match, in the byte order of their names. */
#include "data/store_names.h"

#include <lockstep/base/file.h>

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char bare[] = "u16:"; /* before a file of bare tokens */

const char *store_name_bare(const char *name)
{
    return strncmp(name, bare, sizeof bare - 1) ? NULL : name + sizeof bare - 1;
}

static int no_memory(struct ls_error *error)
{
    return ls_error_set(error, LS_ENOMEM, "no memory for the names of stores");
}

int store_names_add(struct store_names *names, const char *before, const char *name,
                    struct ls_error *error)
{
    char **more = realloc(names->list, ((size_t)names->count + 1) * sizeof *more);
    names->list = more ? more : names->list;
    if (!more || asprintf(&names->list[names->count], "%s%s", before, name) < 0)
        return no_memory(error);
    names->count++;
    return LS_OK;
}

/* A store that a folder has, of the name of one of its files: PREFIX of PREFIX.idx, or NAME.bin
 * that has no index. */
static int found_add(struct store_names *names, const char *before, const char *path,
                     struct ls_error *error)
{
    char name[PATH_MAX + 8];
    size_t stem = strlen(path) - strlen(".bin");
    bool is_idx = ls_path_ends(path, ".idx"), is_bin = ls_path_ends(path, ".bin");
    if ((!is_idx && !is_bin) || strlen(path) >= PATH_MAX || (*before && is_idx))
        return LS_OK;
    snprintf(name, sizeof name, "%.*s.idx", (int)stem, path);
    bool pair = !*before && access(name, F_OK) == 0; /* both of its files lead to it */
    name[stem] = '\0';
    return store_names_add(names, before, pair ? name : path, error);
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int store_names_tidy(struct store_names *names, int first, const char *name, bool pattern,
                     struct ls_error *error)
{
    int kept = first;
    if (names->count > first)
        qsort(names->list + first, (size_t)(names->count - first), sizeof *names->list, by_bytes);
    for (int i = first; i < names->count; i++)
        if (i > first && !strcmp(names->list[i], names->list[kept - 1]))
            free(names->list[i]);
        else
            names->list[kept++] = names->list[i];
    names->count = kept;
    if (kept > first)
        return LS_OK;
    return pattern ? ls_error_set(error, LS_EDATA, "%.300s: no store has a name like this", name)
                   : ls_error_set(error, LS_EDATA,
                                  "%.300s: a folder without stores: expected files NAME.bin with "
                                  "NAME.idx, or llm.c files NAME.bin",
                                  name);
}

static int folder_add(struct store_names *names, const char *before, const char *folder,
                      struct ls_error *error)
{
    char path[PATH_MAX];
    int status = LS_OK, first = names->count;
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/')
        length--;
    DIR *stream = opendir(folder);
    if (!stream)
        return ls_error_errno(error, errno, "%.300s: the folder cannot be read", folder);
    for (struct dirent *entry; !status && (entry = readdir(stream));) {
        if (entry->d_name[0] == '.')
            continue;
        if (snprintf(path, sizeof path, "%.*s/%s", (int)length, folder, entry->d_name) <
            (int)sizeof path)
            status = found_add(names, before, path, error);
    }
    closedir(stream);
    return status ? status : store_names_tidy(names, first, folder, false, error);
}

/* The pattern may be of prefixes, or of files. */
static int pattern_add(struct store_names *names, const char *before, const char *pattern,
                       struct ls_error *error)
{
    static const char *const endings[] = {"", ".idx", ".bin"};
    int status = LS_OK, first = names->count;
    for (size_t e = 0; e < sizeof endings / sizeof *endings && !status; e++) {
        char path[PATH_MAX + 8];
        glob_t found;
        snprintf(path, sizeof path, "%.4000s%s", pattern, endings[e]);
        int failure = glob(path, GLOB_NOSORT, NULL, &found);
        if (failure == GLOB_NOSPACE)
            status = no_memory(error);
        for (size_t i = 0; !failure && i < found.gl_pathc && !status; i++)
            status = found_add(names, before, found.gl_pathv[i], error);
        if (!failure)
            globfree(&found);
    }
    return status ? status : store_names_tidy(names, first, pattern, true, error);
}

static bool exists(const char *name)
{
    static const char *const endings[] = {"", ".idx", ".bin"};
    char path[PATH_MAX + 8];
    bool found = false;
    for (size_t e = 0; e < sizeof endings / sizeof *endings; e++) {
        snprintf(path, sizeof path, "%.4000s%s", name, endings[e]);
        found |= access(path, F_OK) == 0;
    }
    return found;
}

static bool is_folder(const char *name)
{
    char index[PATH_MAX + 8];
    struct stat status;
    snprintf(index, sizeof index, "%.4000s.idx", name);
    return stat(name, &status) == 0 && S_ISDIR(status.st_mode) && access(index, F_OK) != 0;
}

/* Under one spelling, whatever the given one. */
static int url_add(struct store_names *names, const char *before, const char *given,
                   const struct ls_net_options *net, struct ls_error *error)
{
    char url[PATH_MAX];
    snprintf(url, sizeof url, "%s", given);
    ls_url_normalize(url);
    return bucket_names_is(url) ? bucket_names_add(names, before, url, net, error)
                                : store_names_add(names, before, url, error);
}

static int member_add(struct store_names *names, const char *member,
                      const struct ls_net_options *net, struct ls_error *error)
{
    const char *file = store_name_bare(member), *name = file ? file : member;
    const char *before = file ? bare : "";
    if (!*name || strlen(name) >= PATH_MAX)
        return ls_error_set(error, LS_EINVAL,
                            "token store: a name of %zu bytes in the list; expected PATH[,PATH...]",
                            strlen(name));
    if (ls_url_is(name))
        return url_add(names, before, name, net, error);
    if (is_folder(name))
        return folder_add(names, before, name, error);
    if (strpbrk(name, "*?[") && !exists(name))
        return pattern_add(names, before, name, error);
    return store_names_add(names, before, name, error);
}

/* Looks from the beginning of each member on, over one comma and more. */
int store_names_comma_check(const char *spec, struct ls_error *error)
{
    for (const char *from = spec, *comma; (comma = strchr(from, ',')); from = comma + 1) {
        const char *file = store_name_bare(from), *name = file ? file : from;
        for (const char *end = comma; *end;) {
            char path[PATH_MAX];
            end += 1 + strcspn(end + 1, ",");
            snprintf(path, sizeof path, "%.*s", (int)(end - name), name);
            if (exists(path))
                return ls_error_set(error, LS_EINVAL,
                                    "%.300s: the comma in its name would part it in a list of "
                                    "stores: rename it, or name it by a link without a comma",
                                    path);
        }
    }
    return LS_OK;
}

static bool member_there(const char *member)
{
    const char *file = store_name_bare(member), *name = file ? file : member;
    return ls_url_is(name) || exists(name);
}

int store_names_find(const char *spec, const struct ls_net_options *net, struct store_names *names,
                     struct ls_error *error)
{
    char *copy = strdup(spec), *rest = copy;
    int status = copy ? LS_OK : no_memory(error);
    bool all_there = true;
    *names = (struct store_names){0};
    for (char *member; !status && (member = strsep(&rest, ","));) {
        all_there &= member_there(member);
        status = member_add(names, member, net, error);
    }
    free(copy);
    if (status == LS_ENOMEM || (status == LS_OK && all_there))
        return status;
    int parted = store_names_comma_check(spec, error);
    return parted ? parted : status;
}

void store_names_release(struct store_names *names)
{
    for (int i = 0; i < names->count; i++)
        free(names->list[i]);
    free(names->list);
    *names = (struct store_names){0};
}
