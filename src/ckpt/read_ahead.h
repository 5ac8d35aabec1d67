/* Reads pieces of files ahead of who takes them, past the system's page cache: no page of it is
 * made for them, and the requests are as large as the disk takes them. One thread of its own reads
 * into a ring of blocks, in the order in which pieces were added; one thread adds and takes. What
 * cannot be read this way is left to the caller. */
#ifndef CKPT_READ_AHEAD_H
#define CKPT_READ_AHEAD_H

#include <stdbool.h>
#include <stdint.h>

enum { READ_AHEAD_BYTES_MIN = 256 << 10 }; /* of a piece that is worth it */

struct read_ahead;
/* NULL without memory or a thread. */
struct read_ahead *read_ahead_new(void);
/* NULL is allowed. Waits for the read that is under way. */
void read_ahead_free(struct read_ahead *ahead);
/* Bytes [offset, offset + bytes) of the file; path is borrowed until read_ahead_free. Returns the
 * piece's number, from 1; 0: it is not read, because the file system does not admit it or enough is
 * on the list. */
uint64_t read_ahead_add(struct read_ahead *ahead, const char *path, int64_t offset, int64_t bytes);
/* That piece is taken next; those before it are passed over. False if it was passed over. */
bool read_ahead_begin(struct read_ahead *ahead, uint64_t number);
/* The piece's next bytes, at most so many and at least one. *from has them until the next
 * call; NULL: they could not be read, and the caller reads them. */
int64_t read_ahead_take(struct read_ahead *ahead, int64_t most, const unsigned char **from);

#endif
