/* Blocks of files elsewhere in a local directory, shared by the processes and jobs of a host.
 *
 * A block is a file DIR/<file's id>-<number>.block: a header with its own digest, the digest of
 * each 64 KiB, and the bytes. It is written under a temporary name and renamed. What is read back
 * is held against its digests: a damaged block is removed, and is as absent. DIR/used counts the
 * bytes of all blocks; before a new one exceeds the size, those that were used longest ago are
 * removed.
 *
 * All functions are Local; any number of threads may use one cache. */
#ifndef DATA_BLOCK_CACHE_H
#define DATA_BLOCK_CACHE_H

#include <lockstep/base/file.h>

struct block_cache;
/* Which block: of the file whose URL, size and version have this digest. */
struct block_id {
    uint64_t file[2];
    int64_t number;
    int64_t bytes; /* of the block */
};

/* Makes the directory if it is absent. fault may be NULL; borrowed. */
int block_cache_open(const char *directory, int64_t bytes, const struct ls_fault *fault,
                     struct block_cache **out, struct ls_error *error);
/* cache may be NULL. */
void block_cache_close(struct block_cache *cache);
enum block_found { BLOCK_ABSENT, BLOCK_READ, BLOCK_DAMAGED };
/* buffer[bytes] = those from `at` on in the block. A damaged one is removed. */
enum block_found block_cache_read(struct block_cache *cache, const struct block_id *id, int64_t at,
                                  int64_t bytes, void *buffer);
/* Whether it is there, sound or not. */
bool block_cache_has(const struct block_cache *cache, const struct block_id *id);
/* Who holds the lock of a block fetches it. Ends with its holder, however that ends. Waits until
 * `ends` (of user) says so. A descriptor to be closed; -1: there is none, or it has ended. */
int block_cache_lock(const struct block_cache *cache, const struct block_id *id,
                     bool (*ends)(void *user), void *user);
/* Keeps the block. LS_ENOSPC and LS_EIO leave nothing. LS_OK also if it is larger than the cache.
 */
int block_cache_write(struct block_cache *cache, const struct block_id *id, const void *data,
                      struct ls_error *error);

#endif
