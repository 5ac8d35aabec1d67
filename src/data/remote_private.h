/* What remote.c and remote_file.c share: how blocks of files elsewhere are fetched and kept. */
#ifndef DATA_REMOTE_PRIVATE_H
#define DATA_REMOTE_PRIVATE_H

#include "data/block_cache.h"
#include "data/remote_file.h"

#include <pthread.h>

enum { REMOTE_PIECE_BYTES = 1 << 16 };

/* Immutable after it was opened, but for `last`. */
struct remote_file {
    struct data_remote *remote;
    char *url;    /* as it was given */
    char *origin; /* scheme and host, or bucket: where servers are opened */
    char *key;    /* below it */
    int64_t bytes;
    char etag[128], modified[64];
    struct block_id id;         /* of its blocks */
    const struct ls_sums *sums; /* borrowed; NULL: none are known */
    int sums_file;
    int64_t last; /* unit that was read last; under the lock */
};

/* A part of a file that is fetched at once: a block where a cache keeps it or sums can check it,
 * otherwise a piece, which moves fewer bytes. */
struct remote_unit {
    struct remote_file *file;
    int64_t number, size; /* it begins at number * size */
};
/* A unit in memory. */
struct remote_held {
    struct remote_unit what; /* file NULL: it is free */
    char *data;
    int64_t used; /* when: a count of uses */
    bool unread;  /* fetched ahead */
};
enum { REMOTE_SERVERS_IDLE = 32, REMOTE_QUEUE = 1024 };
struct data_remote {
    struct ls_store_options options;
    const volatile int *stop_on; /* NULL: nobody's */
    struct block_cache *cache;   /* NULL: units in memory */
    pthread_mutex_t lock;        /* of all below */
    pthread_cond_t changed;
    bool keeps; /* the cache takes blocks; otherwise those that it has are read */
    struct remote_idle {
        char *origin;
        struct ls_server *server;
    } idle[REMOTE_SERVERS_IDLE];
    int idle_count;
    struct remote_held *held;
    int64_t held_room, held_bytes, unread_bytes, uses;
    struct remote_unit *flying; /* being fetched */
    int64_t flying_count, flying_room;
    struct remote_unit queue[REMOTE_QUEUE]; /* to be fetched: a ring */
    int queue_first, queue_count;
    pthread_t *threads; /* that take from the queue */
    int threads_count;
    bool stop;
    struct ls_store_traffic traffic;
    char warning[512]; /* "" for none that is new */
    bool warned_full, warned_damaged;
};

/* What a request at once brings of a file: data[bytes], to be freed. LS_EDATA: the file changed. */
int remote_fetch(struct remote_file *file, int64_t at, int64_t bytes, char **data,
                 struct ls_error *error);
/* The file's length and version. *there: the server has it. */
int remote_look(struct remote_file *file, bool *there, struct ls_error *error);
/* Some of the bytes [at, at + bytes), which do not cross a unit's end: *did of them. 0 and LS_OK:
 * another thread or process had it; ask again. */
int remote_some(struct remote_file *file, int64_t at, int64_t bytes, char *buffer, int64_t *did,
                struct ls_error *error);
/* Of its units of today. */
int64_t remote_unit_size(struct remote_file *file);
/* Nobody fetches it any more, and nothing of it is in memory. */
void remote_forget(struct remote_file *file);

#endif
