/* A file on the web or in S3: its version, and what is read of it. */
#include "data/remote_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { AHEAD_PIECES = 16, AHEAD_BLOCKS = 2 };

/* The URL up to the path: "http://host:port", "s3://bucket". */
static size_t origin_bytes(const char *url)
{
    const char *host = strstr(url, "://") + 3;
    return (size_t)(host - url) + strcspn(host, "/");
}

/* Which of its versions: every block's name in the cache holds this. */
static void id_make(struct remote_file *file)
{
    char text[8192];
    int bytes = snprintf(text, sizeof text, "%s\n%s\n%lld\n%s\n%s", file->origin, file->key,
                         (long long)file->bytes, file->etag, file->modified);
    XXH128_hash_t hash = XXH3_128bits(text, (size_t)ls_min(bytes, (int64_t)sizeof text - 1));
    file->id = (struct block_id){.file = {hash.high64, hash.low64}};
}

static void file_free(struct remote_file *file)
{
    free(file->url);
    free(file->origin);
    free(file->key);
    free(file);
}

int remote_file_open(const char *url, struct data_remote *remote, struct remote_file **out,
                     int64_t *bytes, struct ls_error *error)
{
    bool there = false;
    *out = NULL;
    int status = ls_url_check(url, error);
    if (status)
        return status;
    struct remote_file *file = calloc(1, sizeof *file);
    if (!file)
        return ls_error_set(error, LS_ENOMEM, "no memory to open %.300s", url);
    size_t origin = origin_bytes(url);
    *file = (struct remote_file){.remote = remote,
                                 .url = strdup(url),
                                 .origin = strndup(url, origin),
                                 .key = strdup(url + origin + strspn(url + origin, "/")),
                                 .last = -1};
    if (file->origin)
        ls_url_normalize(file->origin);
    if (!file->url || !file->origin || !file->key)
        status = ls_error_set(error, LS_ENOMEM, "no memory to open %.300s", url);
    else if (!*file->key) /* an ending behind the host would name another one */
        status = ls_error_set(error, LS_ECONFIG,
                              "a store's URL needs a path: http://host/path or s3://bucket/path");
    if (!status)
        status = remote_look(file, &there, error);
    if (status || !there) {
        file_free(file);
        return status;
    }
    id_make(file);
    *bytes = file->bytes;
    *out = file;
    return LS_OK;
}

void remote_file_close(struct remote_file *file)
{
    if (!file)
        return;
    remote_forget(file);
    file_free(file);
}

void remote_file_expect(struct remote_file *file, const struct ls_sums *sums, int which)
{
    bool alike = file->remote->options.block_bytes == LS_SUMS_BLOCK_BYTES;
    file->sums = alike ? sums : NULL;
    file->sums_file = which;
}

/* Whoever reads one unit behind the other will soon read what follows. */
static void look_ahead(struct remote_file *file, int64_t at)
{
    struct data_remote *remote = file->remote;
    int64_t size = remote_unit_size(file), unit = at / size;
    pthread_mutex_lock(&remote->lock);
    bool on = unit == file->last + 1 && unit > 0;
    file->last = unit;
    pthread_mutex_unlock(&remote->lock);
    int64_t first = (unit + 1) * size;
    int64_t units = size > REMOTE_PIECE_BYTES ? AHEAD_BLOCKS : AHEAD_PIECES;
    if (on && first < file->bytes)
        remote_queue(file, first, ls_min(units * size, file->bytes - first));
}

int remote_file_read(struct remote_file *file, int64_t at, int64_t bytes, void *buffer,
                     struct ls_error *error)
{
    int status = LS_OK;
    __atomic_fetch_add(&file->remote->traffic.read_bytes, bytes, __ATOMIC_RELAXED);
    for (int64_t done = 0, did = 0; done < bytes && !status; done += did) {
        look_ahead(file, at + done);
        status = remote_some(file, at + done, bytes - done, (char *)buffer + done, &did, error);
    }
    return status;
}

int remote_file_peek(struct remote_file *file, int64_t at, int64_t bytes, void *buffer,
                     struct ls_error *error)
{
    char *data;
    if (bytes == 0)
        return LS_OK;
    int status = remote_fetch(file, at, bytes, &data, error);
    if (!status)
        memcpy(buffer, data, (size_t)bytes);
    if (!status)
        free(data);
    return status;
}
