/* Lists of stores: names, folders and patterns. A folder stands for all stores in it, a pattern for
 * all whose names match, in the byte order of their names. */
#include "data/store_names.h"
#include "data/data_file.h"

#include <lockstep/base/file.h>

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of the names that a pattern, or a name, may be of. */
enum { ENDINGS = 3 };
static const char *const endings[ENDINGS] = {"", ".idx", ".bin"};

/* ---- the list -------------------------------------------------------------------------------- */

static int no_memory(struct ls_error *error)
{
    return ls_no_memory(error, "for the names of stores");
}

static int name_add(struct store_names *names, const char *before, const char *name,
                    struct ls_error *error)
{
    char **more = realloc(names->list, ((size_t)names->count + 1) * sizeof *more);
    names->list = more ? more : names->list;
    if (!more || asprintf(&names->list[names->count], "%s%s", before, name) < 0)
        return no_memory(error);
    names->count++;
    return LS_OK;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

bool store_name_prepared(const char *name, char *hint, size_t bytes)
{
    char prepared[PATH_MAX];
    snprintf(prepared, sizeof prepared, "%.3000s_train.idx", name);
    if (access(prepared, F_OK) != 0)
        return false;
    snprintf(hint, bytes, "; did you mean %.300s_train?", name);
    return true;
}

/* Sorts those from `first` on by their bytes and drops repetitions. name: for what has none. */
static int names_tidy(struct store_names *names, int first, const char *name, bool pattern,
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
    char hint[400] = "";
    store_name_prepared(name, hint, sizeof hint);
    return pattern ? ls_error_set(error, LS_EDATA, "%.300s: no store has a name like this", name)
                   : ls_error_set(error, LS_EDATA,
                                  "%.300s: a folder without stores: expected files NAME.bin with "
                                  "NAME.idx, or llm.c files NAME.bin%s",
                                  name, hint);
}

/* ---- a bucket: as of a file system, by the list of its objects ------------------------------- */

static const char scheme[] = "s3://", wild[] = "*?[", only_in_patterns[] = "*?[]!^";

static bool is_s3(const char *url)
{
    return !strncasecmp(url, scheme, sizeof scheme - 1);
}

/* Whether a URL is that of a folder or of a pattern. */
static bool bucket_names_is(const char *url)
{
    size_t length = strlen(url);
    if (url[length - 1] == '/')
        return true;
    if (is_s3(url))
        return strpbrk(url, wild);
    /* The question mark of a web server begins a query, which ls_url_check refuses, and brackets
     * are around the address of a host. */
    const char *host = strstr(url, "://") + 3;
    return strpbrk(host + strcspn(host, "/"), "*[");
}

/* ---- what is asked for ----------------------------------------------------------------------- */

struct bucket_folder {
    char url[PATH_MAX];     /* as it was given */
    char bucket[PATH_MAX];  /* "s3://bucket" */
    char pattern[PATH_MAX]; /* that keys match, as they are or with an ending; "" for a folder */
    char prefix[PATH_MAX];  /* of the keys that are listed */
    bool flat;              /* no key of a folder below it is asked for */
    char before[8];
    char **keys; /* [count], in their order: NAME.bin and NAME.idx */
    int64_t count, room;
};

/* A pattern is as good as a name with a letter in the place of each of its signs. */
static int pattern_check(const char *url, struct ls_error *error)
{
    char plain[PATH_MAX];
    snprintf(plain, sizeof plain, "%s", url);
    for (char *at = plain; (at = strpbrk(at, only_in_patterns));)
        *at = 'x';
    return ls_url_check(plain, error);
}

/* A store's index must be in the list if its tokens are, so a pattern that begins an ending is cut
 * before it. */
static void prefix_make(struct bucket_folder *f, const char *path)
{
    size_t length = strcspn(path, wild);
    snprintf(f->prefix, sizeof f->prefix, "%.*s", (int)length, path);
    char *slash = strrchr(f->prefix, '/'), *dot = strrchr(f->prefix, '.');
    if (f->pattern[0] && dot && (!slash || dot > slash))
        *dot = '\0';
    f->flat = !strchr(path + length, '/');
}

static int folder_begin(struct bucket_folder *f, const char *before, const char *url,
                        struct ls_error *error)
{
    const char *path = url + sizeof scheme - 1;
    int status = pattern_check(url, error);
    if (status)
        return status;
    path += strcspn(path, "/");
    snprintf(f->url, sizeof f->url, "%s", url);
    snprintf(f->bucket, sizeof f->bucket, "%.*s", (int)(path - url), url);
    ls_url_normalize(f->bucket);
    snprintf(f->before, sizeof f->before, "%s", before);
    path += strspn(path, "/");
    if (strpbrk(path, wild))
        snprintf(f->pattern, sizeof f->pattern, "%s", path);
    prefix_make(f, path);
    return LS_OK;
}

/* ---- what is there --------------------------------------------------------------------------- */

static int key_take(void *user, const char *key, uint64_t bytes, struct ls_error *error)
{
    struct bucket_folder *f = user;
    (void)bytes;
    if (!ls_path_ends(key, ".bin") && !ls_path_ends(key, ".idx"))
        return LS_OK;
    char *copy = ls_list_grow(&f->keys, f->count, &f->room, sizeof *f->keys) ? strdup(key) : NULL;
    if (!copy)
        return ls_error_set(error, LS_ENOMEM, "%.300s: no memory for its names", f->url);
    f->keys[f->count++] = copy;
    return LS_OK;
}

/* As of a file system: a name that begins with a dot is not in its folder, nor does a wildcard
 * match the dot. */
static bool asked_for(const struct bucket_folder *f, const char *key)
{
    char pattern[PATH_MAX + 8];
    bool matches = !f->pattern[0] && key[strlen(f->prefix)] != '.';
    for (int e = 0; e < ENDINGS && f->pattern[0]; e++) {
        snprintf(pattern, sizeof pattern, "%s%s", f->pattern, endings[e]);
        matches |= fnmatch(pattern, key, FNM_PATHNAME | FNM_PERIOD) == 0;
    }
    return matches;
}

static int store_add(struct store_names *names, const struct bucket_folder *f, const char *key,
                     struct ls_error *error)
{
    char url[2 * PATH_MAX], index[PATH_MAX];
    const char *wanted = index;
    int stem = (int)strlen(key) - 4;
    bool is_idx = ls_path_ends(key, ".idx");
    if (f->before[0] && is_idx)
        return LS_OK;
    if (strlen(f->bucket) + strlen(key) + 2 > PATH_MAX)
        return ls_error_set(error, LS_EDATA, "%.300s: the key %.300s... is too long", f->url, key);
    snprintf(index, sizeof index, "%.*s.idx", stem, key);
    bool pair = !f->before[0] &&
                (is_idx || bsearch(&wanted, f->keys, (size_t)f->count, sizeof *f->keys, by_bytes));
    snprintf(url, sizeof url, "%s/%.*s", f->bucket, pair ? stem : stem + 4, key);
    int status = ls_url_check(url, error);
    if (status)
        ls_error_prefix(error, "%.300s: the object %.300s, which is found there", f->url, key);
    return status ? status : name_add(names, f->before, url, error);
}

static int stores_list(struct bucket_folder *f, struct store_names *names,
                       const struct ls_net_options *net, struct ls_error *error)
{
    struct ls_server *server;
    int first = names->count;
    const struct ls_net_options until = data_net(net);
    int status = ls_server_open(&server, f->bucket, &until, error);
    if (status)
        return status;
    status = ls_bucket_list(server, f->prefix, f->flat, key_take, f, error);
    ls_server_close(server);
    if (f->count > 0)
        qsort(f->keys, (size_t)f->count, sizeof *f->keys, by_bytes);
    for (int64_t i = 0; i < f->count && !status; i++)
        if (asked_for(f, f->keys[i]))
            status = store_add(names, f, f->keys[i], error);
    return status ? status : names_tidy(names, first, f->url, f->pattern[0] != '\0', error);
}

/* The stores that it stands for. */
static int bucket_names_add(struct store_names *names, const char *before, const char *url,
                            const struct ls_net_options *net, struct ls_error *error)
{
    struct bucket_folder f = {.count = 0};
    if (!is_s3(url)) {
        int status = ls_url_check(url, error);
        return status ? status
                      : ls_error_set(error, LS_ECONFIG,
                                     "%.300s: a web server does not list its folders. Name the "
                                     "stores, with commas between them: http://host/a,"
                                     "http://host/b",
                                     url);
    }
    int status = folder_begin(&f, before, url, error);
    if (!status)
        status = stores_list(&f, names, net, error);
    for (int64_t i = 0; i < f.count; i++)
        free(f.keys[i]);
    free(f.keys);
    return status;
}

static const char bare[] = "u16:"; /* before a file of bare tokens */

const char *store_name_bare(const char *name)
{
    return strncmp(name, bare, sizeof bare - 1) ? NULL : name + sizeof bare - 1;
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
    return name_add(names, before, pair ? name : path, error);
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
    return status ? status : names_tidy(names, first, folder, false, error);
}

/* The pattern may be of prefixes, or of files. */
static int pattern_add(struct store_names *names, const char *before, const char *pattern,
                       struct ls_error *error)
{
    int status = LS_OK, first = names->count;
    for (int e = 0; e < ENDINGS && !status; e++) {
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
    return status ? status : names_tidy(names, first, pattern, true, error);
}

static bool exists(const char *name)
{
    char path[PATH_MAX + 8];
    bool found = false;
    for (int e = 0; e < ENDINGS; e++) {
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
                                : name_add(names, before, url, error);
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
    return name_add(names, before, name, error);
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
