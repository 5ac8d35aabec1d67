/* Fetching parts of files elsewhere: each once, several at a time, kept in a cache or in memory. */
#include "data/block_cache.h"
#include "data/remote_file.h"

#include <lockstep/base/helper_thread.h>
#include <lockstep/data/sums.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    ANSWER_BYTES = 4096,
    REQUESTS_DEFAULT = 8,
    HELD_LEAST = 4,
    PIECE_BYTES = 1 << 16,
    SERVERS_IDLE = 32,
    QUEUE = 1024,
    AHEAD_PIECES = 16, /* that are fetched for who reads one behind the other */
    AHEAD_BLOCKS = 2,
};

/* Immutable after it was opened, but for `last`. */
struct remote_file {
    struct data_remote *remote;
    const char *url; /* as it was given; borrowed */
    char *origin;    /* scheme and host, or bucket: where servers are opened */
    char *key;       /* below it */
    int64_t bytes;
    char etag[128], modified[64];
    bool named;                 /* one of the two is there: its version can be told from others */
    struct block_id id;         /* of its blocks */
    const struct ls_sums *sums; /* borrowed; NULL: none are known */
    int sums_file;
    int64_t last; /* unit that was read last; under the lock */
};

/* A part of a file that is fetched at once: a block where a cache keeps it or sums can check it,
 * otherwise a piece, which moves fewer bytes. */
struct unit {
    struct remote_file *file;
    int64_t number, size; /* it begins at number * size */
};
/* A unit in memory. */
struct held {
    struct unit what; /* file NULL: it is free */
    char *data;
    int64_t used; /* when: a count of uses */
    bool unread;  /* fetched ahead */
};
struct data_remote {
    struct ls_store_options options;
    const volatile int *stop_on; /* NULL: nobody's */
    struct block_cache *cache;   /* NULL: units in memory */
    pthread_mutex_t lock;        /* of all below */
    pthread_cond_t changed;
    bool keeps; /* atomic: the cache takes blocks; otherwise those that it has are read */
    struct idle_server {
        char *origin;
        struct ls_server *server;
    } idle[SERVERS_IDLE];
    int idle_count;
    struct held *held;
    int64_t held_room, held_bytes, unread_bytes, uses;
    struct unit *flying; /* being fetched */
    int64_t flying_count, flying_room;
    struct unit queue[QUEUE]; /* to be fetched: a ring */
    int queue_first, queue_count;
    pthread_t *threads; /* that take from the queue */
    int threads_count;
    bool stop;
    struct ls_store_traffic traffic;
    char warning[512]; /* "" for none that is new */
    bool warned_full, warned_damaged, warned_unnamed;
};

/* Asked by requests and waits. */
static bool ends(void *user)
{
    struct data_remote *remote = user;
    const volatile int *asked = remote->stop_on;
    return __atomic_load_n(&remote->stop, __ATOMIC_RELAXED) ||
           (asked && __atomic_load_n(asked, __ATOMIC_RELAXED)) || data_stopped() ||
           ls_net_ends(&remote->options.net);
}

void data_remote_stop_on(struct data_remote *remote, const volatile int *stop)
{
    remote->stop_on = stop;
}

static void warn_once(struct data_remote *remote, bool *warned, const char *what, const char *why)
{
    pthread_mutex_lock(&remote->lock);
    if (!*warned)
        snprintf(remote->warning, sizeof remote->warning, "data.cache: %s%s%.350s", what,
                 *why ? ": " : "", why);
    *warned = true;
    pthread_mutex_unlock(&remote->lock);
}

/* ---- servers --------------------------------------------------------------------------------- */

static int server_take(struct remote_file *file, struct ls_server **out, struct ls_error *error)
{
    struct data_remote *remote = file->remote;
    struct ls_net_options net = remote->options.net;
    *out = NULL;
    pthread_mutex_lock(&remote->lock);
    for (int i = 0; i < remote->idle_count && !*out; i++)
        if (!strcmp(remote->idle[i].origin, file->origin)) {
            *out = remote->idle[i].server;
            free(remote->idle[i].origin);
            remote->idle[i] = remote->idle[--remote->idle_count];
        }
    pthread_mutex_unlock(&remote->lock);
    net.ends = ends;
    net.user = remote;
    return *out ? LS_OK : ls_server_open(out, file->origin, &net, error);
}

static void server_give(struct remote_file *file, struct ls_server *server)
{
    struct data_remote *remote = file->remote;
    char *origin = strdup(file->origin);
    pthread_mutex_lock(&remote->lock);
    bool kept = origin && remote->idle_count < SERVERS_IDLE;
    if (kept)
        remote->idle[remote->idle_count++] = (struct idle_server){origin, server};
    pthread_mutex_unlock(&remote->lock);
    if (!kept) {
        free(origin);
        ls_server_close(server);
    }
}

/* The request is to be released, whatever became of it. */
static int ask(struct remote_file *file, struct ls_http_request *request, struct ls_error *error)
{
    struct ls_server *server;
    int status = server_take(file, &server, error);
    if (status)
        return status;
    request->key = file->key;
    status = ls_http_send(server, request, error);
    server_give(file, server);
    return status;
}

/* The file's length and version. *there: the server has it. */
static int look(struct remote_file *file, bool *there, struct ls_error *error)
{
    struct ls_http_request head = {.method = "HEAD", .limit = ANSWER_BYTES, .absent_is_fine = true};
    int status = ask(file, &head, error);
    *there = !status && head.code != 404;
    if (*there && !head.has_length)
        status = ls_error_set(error, LS_EIO,
                              "%.300s: the server does not say how long it is (HEAD has no "
                              "Content-Length)",
                              file->url);
    if (*there) {
        file->bytes = (int64_t)head.length;
        strcpy(file->etag, head.etag);
        strcpy(file->modified, head.modified);
        file->named = head.etag[0] || head.modified[0];
    }
    ls_http_request_release(&head);
    return status;
}

/* The answer is of the version that was opened. */
static int version_check(const struct remote_file *file, const struct ls_http_request *get,
                         struct ls_error *error)
{
    bool same = get->whole == 0 || (int64_t)get->whole == file->bytes;
    if (file->etag[0] && get->etag[0])
        same &= !strcmp(file->etag, get->etag);
    else
        same &= !strcmp(file->modified, get->modified);
    return same ? LS_OK
                : ls_error_set(error, LS_EDATA,
                               "%.300s: changed since it was opened: ETag %.60s, last modified "
                               "%.40s, %lld bytes; it had ETag %.60s, last modified %.40s, %lld "
                               "bytes. Put back the file that the run began with, or begin another "
                               "run",
                               file->url, get->etag[0] ? get->etag : "none",
                               get->modified[0] ? get->modified : "unknown", (long long)get->whole,
                               file->etag[0] ? file->etag : "none",
                               file->modified[0] ? file->modified : "unknown",
                               (long long)file->bytes);
}

/* What a request at once brings: data[bytes], to be freed. LS_EDATA: the file changed. */
static int fetch(struct remote_file *file, int64_t at, int64_t bytes, char **data,
                 struct ls_error *error)
{
    struct ls_http_request get = {.method = "GET",
                                  .range_first = (uint64_t)at,
                                  .range_bytes = (uint64_t)bytes,
                                  .limit = (size_t)bytes};
    int status = ask(file, &get, error);
    status = status ? status : version_check(file, &get, error);
    *data = NULL;
    if (!status) {
        *data = get.text;
        get.text = NULL;
        __atomic_fetch_add(&file->remote->traffic.fetched_bytes, bytes, __ATOMIC_RELAXED);
        __atomic_fetch_add(&file->remote->traffic.requests, 1, __ATOMIC_RELAXED);
    }
    ls_http_request_release(&get);
    return status;
}

/* ---- who fetches ----------------------------------------------------------------------------- */

static bool same(struct unit a, struct unit b)
{
    return a.file == b.file && a.number == b.number && a.size == b.size;
}

/* The last one of a file may be shorter. */
static int64_t unit_bytes(struct unit unit)
{
    return ls_min(unit.size, unit.file->bytes - unit.number * unit.size);
}

/* Whether the cache takes its blocks. */
static bool keeps(const struct remote_file *file)
{
    return __atomic_load_n(&file->remote->keeps, __ATOMIC_RELAXED) && file->named;
}

/* Under the lock. */
static int64_t unit_size(const struct remote_file *file)
{
    return keeps(file) || file->sums ? file->remote->options.block_bytes : PIECE_BYTES;
}

static int64_t flying_find(const struct data_remote *remote, struct unit unit)
{
    for (int64_t i = 0; i < remote->flying_count; i++)
        if (same(remote->flying[i], unit))
            return i;
    return -1;
}

/* A wait for what other threads fetch, under the lock; a sign of life if they get on. */
static void others_await(struct data_remote *remote)
{
    const double look_s = 0.2;
    int64_t before = __atomic_load_n(&remote->traffic.fetched_bytes, __ATOMIC_RELAXED);
    ls_condition_wait_until(&remote->changed, &remote->lock, ls_now_s() + look_s);
    if (__atomic_load_n(&remote->traffic.fetched_bytes, __ATOMIC_RELAXED) != before)
        ls_progress();
}

static int given_up(const struct remote_file *file, struct ls_error *error)
{
    return ls_error_set(error, LS_ESTOPPED, "%.300s: given up", file->url);
}

/* Under the lock: the caller fetches the unit from here on. *mine false: others did meanwhile. */
static int claim(struct data_remote *remote, struct unit unit, bool *mine, struct ls_error *error)
{
    *mine = flying_find(remote, unit) < 0;
    while (!*mine && flying_find(remote, unit) >= 0 && !ends(remote))
        others_await(remote);
    if (ends(remote))
        return given_up(unit.file, error);
    if (*mine && !ls_list_grow(&remote->flying, remote->flying_count, &remote->flying_room,
                               sizeof *remote->flying))
        return ls_error_set(error, LS_ENOMEM, "%.300s: no memory to fetch it", unit.file->url);
    if (*mine)
        remote->flying[remote->flying_count++] = unit;
    return LS_OK;
}

/* Under the lock. */
static void claim_end(struct data_remote *remote, struct unit unit)
{
    remote->flying[flying_find(remote, unit)] = remote->flying[remote->flying_count - 1];
    remote->flying_count--;
    pthread_cond_broadcast(&remote->changed);
}

/* ---- checked --------------------------------------------------------------------------------- */

int remote_file_tries(const struct remote_file *file)
{
    int tries = file->remote->options.net.tries;
    return tries ? tries : 6;
}

/* A unit whose bytes, if sums of its store are there, are those that they know. */
static int unit_fetch(struct unit unit, char **data, struct ls_error *error)
{
    struct remote_file *file = unit.file;
    int tries = remote_file_tries(file);
    int64_t bytes = unit_bytes(unit);
    for (int i = 1;; i++) {
        struct ls_error wrong = {0};
        int status = fetch(file, unit.number * unit.size, bytes, data, error);
        if (status || !file->sums ||
            !ls_sums_check(file->sums, (enum ls_sums_file)file->sums_file, unit.number, *data,
                           (size_t)bytes, &wrong))
            return status;
        free(*data);
        *data = NULL;
        if (ends(file->remote))
            return given_up(file, error);
        if (i == tries)
            return ls_error_set(error, LS_EDATA,
                                "%.300s: the server sends other bytes than the store has, %d "
                                "times: %.300s",
                                file->url, i, wrong.text);
    }
}

/* ---- in memory ------------------------------------------------------------------------------- */

/* All under the lock. */
static struct held *held_find(struct data_remote *remote, struct unit unit)
{
    for (int64_t i = 0; i < remote->held_room; i++)
        if (same(remote->held[i].what, unit))
            return &remote->held[i];
    return NULL;
}

static void held_drop(struct data_remote *remote, struct held *held)
{
    int64_t bytes = unit_bytes(held->what);
    remote->held_bytes -= bytes;
    remote->unread_bytes -= held->unread ? bytes : 0;
    free(held->data);
    *held = (struct held){0};
}

/* What was used longest ago; NULL: there is none. */
static struct held *held_oldest(struct data_remote *remote)
{
    struct held *oldest = NULL;
    for (int64_t i = 0; i < remote->held_room; i++)
        if (remote->held[i].what.file && (!oldest || remote->held[i].used < oldest->used))
            oldest = &remote->held[i];
    return oldest;
}

/* The memory has room for some units of any size. */
static int64_t held_limit(const struct data_remote *remote, int64_t size)
{
    return ls_max(remote->options.memory_bytes, HELD_LEAST * size);
}

/* Takes data. */
static void held_keep(struct data_remote *remote, struct unit unit, char *data, bool ahead)
{
    const struct unit none = {NULL, 0, 0};
    int64_t bytes = unit_bytes(unit), limit = held_limit(remote, unit.size);
    while (remote->held_bytes > 0 && remote->held_bytes + bytes > limit)
        held_drop(remote, held_oldest(remote));
    if (!held_find(remote, none))
        held_drop(remote, held_oldest(remote));
    *held_find(remote, none) = (struct held){unit, data, ++remote->uses, ahead};
    remote->held_bytes += bytes;
    remote->unread_bytes += ahead ? bytes : 0;
}

static bool held_read(struct data_remote *remote, struct unit unit, int64_t at, int64_t bytes,
                      char *buffer)
{
    struct held *held = held_find(remote, unit);
    if (!held)
        return false;
    memcpy(buffer, held->data + at, (size_t)bytes);
    held->used = ++remote->uses;
    remote->unread_bytes -= held->unread ? unit_bytes(unit) : 0;
    held->unread = false;
    return true;
}

/* ---- blocks in the cache --------------------------------------------------------------------- */

static struct block_id block_of(struct unit unit)
{
    struct block_id id = unit.file->id;
    id.number = unit.number;
    id.bytes = unit_bytes(unit);
    return id;
}

/* The cache is full, or its disk fails: what it has is still read. */
static void cache_failed(struct data_remote *remote, const struct ls_error *why)
{
    __atomic_store_n(&remote->keeps, false, __ATOMIC_RELAXED);
    warn_once(remote, &remote->warned_full, "nothing more is kept, data is read from its source",
              why->text);
}

/* The block that the caller claimed, of which buffer, unless it is NULL, is to have bytes. *data
 * NULL: another process has brought it, and buffer has them. A block that is there and cannot be
 * read is fetched. */
static int block_bring(struct unit unit, int64_t at, int64_t bytes, char *buffer, char **data,
                       struct ls_error *error)
{
    struct data_remote *remote = unit.file->remote;
    struct block_id id = block_of(unit);
    struct ls_error why = {0};
    *data = NULL;
    int lock = block_cache_lock(remote->cache, &id, ends, remote), status = LS_OK;
    bool there = buffer ? block_cache_read(remote->cache, &id, at, bytes, buffer) == BLOCK_READ
                        : block_cache_has(remote->cache, &id);
    if (!there) {
        status = unit_fetch(unit, data, error);
        if (!status && block_cache_write(remote->cache, &id, *data, &why))
            cache_failed(remote, &why);
    }
    if (lock >= 0)
        close(lock);
    return status;
}

/* ---- a unit ---------------------------------------------------------------------------------- */

/* Fetches the claimed unit, into the cache or into memory, and ends the claim. buffer[bytes], which
 * may be NULL, = those from `at` on in it; *did of them. */
static int unit_bring(struct unit unit, bool cached, int64_t at, int64_t bytes, char *buffer,
                      int64_t *did, struct ls_error *error)
{
    struct data_remote *remote = unit.file->remote;
    char *data = NULL;
    int status = cached ? block_bring(unit, at, bytes, buffer, &data, error)
                        : unit_fetch(unit, &data, error);
    if (!status && data && buffer)
        memcpy(buffer, data + at, (size_t)bytes);
    *did = status || !buffer ? 0 : bytes;
    pthread_mutex_lock(&remote->lock);
    if (!status && !cached)
        held_keep(remote, unit, data, !buffer);
    claim_end(remote, unit);
    pthread_mutex_unlock(&remote->lock);
    if (cached)
        free(data);
    return status;
}

/* What the cache has of the block. */
static bool cached_read(struct unit unit, int64_t at, int64_t bytes, char *buffer)
{
    struct data_remote *remote = unit.file->remote;
    struct block_id id = block_of(unit);
    enum block_found found = block_cache_read(remote->cache, &id, at, bytes, buffer);
    if (found == BLOCK_DAMAGED)
        warn_once(remote, &remote->warned_damaged, "a block was damaged, and is fetched again", "");
    return found == BLOCK_READ;
}

/* The unit of that size that has byte `at`; *within it, *part of the bytes from there on. */
static struct unit unit_at(struct remote_file *file, int64_t size, int64_t at, int64_t bytes,
                           int64_t *within, int64_t *part)
{
    *within = at % size;
    *part = ls_min(bytes, size - *within);
    return (struct unit){file, at / size, size};
}

/* Some of the bytes [at, at + bytes), which do not cross a unit's end: *did of them. 0 and LS_OK:
 * another thread or process had it; ask again. */
static int read_some(struct remote_file *file, int64_t at, int64_t bytes, char *buffer,
                     int64_t *did, struct ls_error *error)
{
    struct data_remote *remote = file->remote;
    bool mine = false, cached = keeps(file);
    int64_t within;
    struct unit unit = unit_at(file, remote->options.block_bytes, at, bytes, &within, did);
    if (remote->cache && file->named && cached_read(unit, within, *did, buffer))
        return LS_OK;
    if (!cached && !file->sums)
        unit = unit_at(file, PIECE_BYTES, at, bytes, &within, did);
    int64_t part = *did;
    pthread_mutex_lock(&remote->lock);
    bool there = !cached && held_read(remote, unit, within, part, buffer);
    int status = there ? LS_OK : claim(remote, unit, &mine, error);
    pthread_mutex_unlock(&remote->lock);
    if (there)
        return LS_OK;
    *did = 0;
    return status || !mine ? status : unit_bring(unit, cached, within, part, buffer, did, error);
}

/* ---- ahead of use ---------------------------------------------------------------------------- */

static bool unit_there(struct data_remote *remote, struct unit unit)
{
    struct block_id id = block_of(unit);
    return keeps(unit.file) ? block_cache_has(remote->cache, &id) : held_find(remote, unit) != NULL;
}

/* The next unit of the queue, claimed; false: the threads are to end. Under the lock. */
static bool queue_take(struct data_remote *remote, struct unit *unit)
{
    bool mine = false;
    while (!mine) {
        while (remote->queue_count == 0 && !remote->stop)
            pthread_cond_wait(&remote->changed, &remote->lock);
        if (remote->stop)
            return false;
        *unit = remote->queue[remote->queue_first];
        remote->queue_first = (remote->queue_first + 1) % QUEUE;
        remote->queue_count--;
        mine = unit->file && flying_find(remote, *unit) < 0 && !unit_there(remote, *unit) &&
               !claim(remote, *unit, &mine, NULL) && mine;
    }
    return true;
}

static void *fetch_ahead(void *user)
{
    struct data_remote *remote = user;
    struct unit unit;
    int64_t did;
    pthread_mutex_lock(&remote->lock);
    while (queue_take(remote, &unit)) {
        bool cached = keeps(unit.file);
        pthread_mutex_unlock(&remote->lock);
        unit_bring(unit, cached, 0, 0, NULL, &did, NULL); /* who reads it meets the error */
        pthread_mutex_lock(&remote->lock);
    }
    pthread_mutex_unlock(&remote->lock);
    return NULL;
}

/* Under the lock. Without threads nothing is fetched ahead. */
static void threads_start(struct data_remote *remote)
{
    int count = remote->options.requests;
    if (remote->threads)
        return;
    remote->threads = calloc((size_t)count, sizeof *remote->threads);
    while (remote->threads && remote->threads_count < count &&
           !ls_helper_start(&remote->threads[remote->threads_count], fetch_ahead, remote))
        remote->threads_count++;
}

static bool queued(const struct data_remote *remote, struct unit unit)
{
    for (int i = 0; i < remote->queue_count; i++)
        if (same(remote->queue[(remote->queue_first + i) % QUEUE], unit))
            return true;
    return false;
}

/* What waits to be read may have half of the memory. */
static bool has_room(const struct remote_file *file, int64_t size)
{
    const struct data_remote *remote = file->remote;
    int64_t coming = (remote->queue_count + remote->flying_count) * size;
    return remote->queue_count < QUEUE &&
           (keeps(file) || remote->unread_bytes + coming < held_limit(remote, size) / 2);
}

void remote_queue(struct remote_file *file, int64_t at, int64_t bytes)
{
    struct data_remote *remote = file->remote;
    pthread_mutex_lock(&remote->lock);
    int64_t size = unit_size(file);
    struct unit unit = {file, at / size, size};
    threads_start(remote);
    for (; unit.number * size < at + bytes && has_room(file, size); unit.number++)
        if (!unit_there(remote, unit) && flying_find(remote, unit) < 0 && !queued(remote, unit))
            remote->queue[(remote->queue_first + remote->queue_count++) % QUEUE] = unit;
    pthread_cond_broadcast(&remote->changed);
    pthread_mutex_unlock(&remote->lock);
}

/* Nobody fetches it any more, and nothing of it is in memory. */
static void forget(struct remote_file *file)
{
    struct data_remote *remote = file->remote;
    pthread_mutex_lock(&remote->lock);
    for (int i = 0; i < remote->queue_count; i++) {
        struct unit *one = &remote->queue[(remote->queue_first + i) % QUEUE];
        one->file = one->file == file ? NULL : one->file;
    }
    for (int64_t i = 0; i < remote->flying_count;)
        if (remote->flying[i].file == file) {
            others_await(remote);
            i = 0;
        } else {
            i++;
        }
    for (int64_t i = 0; i < remote->held_room; i++)
        if (remote->held[i].what.file == file)
            held_drop(remote, &remote->held[i]);
    pthread_mutex_unlock(&remote->lock);
}

/* ---- a file ---------------------------------------------------------------------------------- */

/* Which of its versions: every block's name in the cache holds this. */
static void id_make(struct remote_file *file)
{
    char text[8192];
    int bytes = snprintf(text, sizeof text, "%s\n%s\n%lld\n%s\n%s", file->origin, file->key,
                         (long long)file->bytes, file->etag, file->modified);
    XXH128_hash_t hash = XXH3_128bits(text, (size_t)ls_min(bytes, (int64_t)sizeof text - 1));
    file->id = (struct block_id){.file = {hash.high64, hash.low64}};
}

void remote_file_close(struct remote_file *file)
{
    if (!file)
        return;
    forget(file);
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
        return ls_no_memory(error, "to open %.300s", url);
    const char *host = strstr(url, "://") + 3;
    size_t origin = (size_t)(host - url) + strcspn(host, "/");
    *file = (struct remote_file){.remote = remote,
                                 .url = url,
                                 .origin = strndup(url, origin),
                                 .key = strdup(url + origin + strspn(url + origin, "/")),
                                 .last = -1};
    if (file->origin)
        ls_url_normalize(file->origin);
    if (!file->origin || !file->key)
        status = ls_no_memory(error, "to open %.300s", url);
    else if (!*file->key) /* an ending behind the host would name another one */
        status = ls_error_set(error, LS_ECONFIG,
                              "a store's URL needs a path: http://host/path or s3://bucket/path");
    if (!status)
        status = look(file, &there, error);
    if (status || !there) {
        remote_file_close(file);
        return status;
    }
    id_make(file);
    if (remote->cache && !file->named) /* blocks of an older version could be taken for its own */
        warn_once(remote, &remote->warned_unnamed,
                  "a file is not kept, as the server names neither ETag nor Last-Modified",
                  file->url);
    *bytes = file->bytes;
    *out = file;
    return LS_OK;
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
    pthread_mutex_lock(&remote->lock);
    int64_t size = unit_size(file), unit = at / size;
    bool on = unit == file->last + 1 && unit > 0;
    file->last = unit;
    pthread_mutex_unlock(&remote->lock);
    int64_t first = (unit + 1) * size;
    int64_t units = size > PIECE_BYTES ? AHEAD_BLOCKS : AHEAD_PIECES;
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
        status = read_some(file, at + done, bytes - done, (char *)buffer + done, &did, error);
    }
    return status;
}

int remote_file_peek(struct remote_file *file, int64_t at, int64_t bytes, void *buffer,
                     struct ls_error *error)
{
    char *data;
    int status = bytes ? fetch(file, at, bytes, &data, error) : LS_OK;
    if (bytes && !status) {
        memcpy(buffer, data, (size_t)bytes);
        free(data);
    }
    return status;
}

/* ---- making it ------------------------------------------------------------------------------- */

static void options_fill(struct ls_store_options *options)
{
    options->cache_bytes = options->cache_bytes ? options->cache_bytes : INT64_C(64) << 30;
    options->memory_bytes = options->memory_bytes ? options->memory_bytes : 64 << 20;
    options->block_bytes = options->block_bytes ? options->block_bytes : LS_SUMS_BLOCK_BYTES;
    options->requests = options->requests ? options->requests : REQUESTS_DEFAULT;
}

int data_remote_new(const struct ls_store_options *options, struct data_remote **out,
                    struct ls_error *error)
{
    struct ls_error why = {0};
    *out = NULL;
    struct data_remote *remote = calloc(1, sizeof *remote);
    if (!remote)
        return ls_no_memory(error, "to read files elsewhere");
    if (options)
        remote->options = *options;
    options_fill(&remote->options);
    pthread_mutex_init(&remote->lock, NULL);
    ls_condition_init(&remote->changed);
    remote->held_room = held_limit(remote, PIECE_BYTES) / PIECE_BYTES;
    remote->held = calloc((size_t)remote->held_room, sizeof *remote->held);
    if (!remote->held) {
        data_remote_free(remote);
        return ls_no_memory(error, "to read files elsewhere");
    }
    const char *directory = remote->options.cache;
    if (directory && *directory &&
        block_cache_open(directory, remote->options.cache_bytes, remote->options.fault,
                         &remote->cache, &why))
        warn_once(remote, &(bool){false}, "cannot be used, data is read from its source", why.text);
    remote->options.cache = NULL; /* borrowed */
    remote->keeps = remote->cache != NULL;
    *out = remote;
    return LS_OK;
}

void data_remote_stop(struct data_remote *remote)
{
    if (!remote)
        return;
    pthread_mutex_lock(&remote->lock);
    __atomic_store_n(&remote->stop, true, __ATOMIC_RELAXED);
    pthread_cond_broadcast(&remote->changed);
    pthread_mutex_unlock(&remote->lock);
    for (int i = 0; i < remote->threads_count; i++)
        pthread_join(remote->threads[i], NULL);
    remote->threads_count = 0;
}

void data_remote_free(struct data_remote *remote)
{
    if (!remote)
        return;
    data_remote_stop(remote);
    for (int i = 0; i < remote->idle_count; i++) {
        ls_server_close(remote->idle[i].server);
        free(remote->idle[i].origin);
    }
    for (int64_t i = 0; remote->held && i < remote->held_room; i++)
        free(remote->held[i].data);
    block_cache_close(remote->cache);
    pthread_cond_destroy(&remote->changed);
    pthread_mutex_destroy(&remote->lock);
    free(remote->held);
    free(remote->flying);
    free(remote->threads);
    free(remote);
}

struct ls_store_traffic data_remote_traffic(struct data_remote *remote)
{
    return (struct ls_store_traffic){
        __atomic_load_n(&remote->traffic.read_bytes, __ATOMIC_RELAXED),
        __atomic_load_n(&remote->traffic.fetched_bytes, __ATOMIC_RELAXED),
        __atomic_load_n(&remote->traffic.requests, __ATOMIC_RELAXED)};
}

bool data_remote_warning(struct data_remote *remote, char *text, size_t bytes)
{
    pthread_mutex_lock(&remote->lock);
    bool found = remote->warning[0] != '\0';
    snprintf(text, bytes, "%s", remote->warning);
    remote->warning[0] = '\0';
    pthread_mutex_unlock(&remote->lock);
    return found;
}
