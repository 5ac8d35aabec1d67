/* The stores of a folder of a bucket, and those whose names match a pattern: as store_names.c finds
 * them on a file system, by the list of the bucket's objects. */
#include "data/data_file.h"
#include "data/store_names.h"

#include <lockstep/base/file.h>

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char scheme[] = "s3://", wild[] = "*?[", only_in_patterns[] = "*?[]!^";

static bool is_s3(const char *url)
{
    return !strncasecmp(url, scheme, sizeof scheme - 1);
}

bool bucket_names_is(const char *url)
{
    size_t length = strlen(url);
    /* The question mark of a web server begins a query, which ls_url_check refuses. */
    return url[length - 1] == '/' || strpbrk(url, is_s3(url) ? wild : "*[");
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

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* As of a file system: a name that begins with a dot is not in its folder, nor does a wildcard
 * match the dot. */
static bool asked_for(const struct bucket_folder *f, const char *key)
{
    static const char *const endings[] = {"", ".idx", ".bin"};
    char pattern[PATH_MAX + 8];
    bool matches = !f->pattern[0] && key[strlen(f->prefix)] != '.';
    for (size_t e = 0; e < sizeof endings / sizeof *endings && f->pattern[0]; e++) {
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
    return status ? status : store_names_add(names, f->before, url, error);
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
    return status ? status : store_names_tidy(names, first, f->url, f->pattern[0] != '\0', error);
}

int bucket_names_add(struct store_names *names, const char *before, const char *url,
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
