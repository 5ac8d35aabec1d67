/* The bytes of a file of tokens, wherever it lies: on a file system (lockstep/base/stored_file.h),
 * on the web or in S3. A file that changed after it was opened is LS_EDATA. Any number of threads
 * may read one. */
#ifndef DATA_DATA_FILE_H
#define DATA_DATA_FILE_H

#include <lockstep/data.h>
#include <lockstep/data/sums.h>

/* Where files elsewhere are fetched by, and kept: remote.c. */
struct data_remote;
/* options may be NULL. Nothing is opened until a file is. */
int data_remote_new(const struct ls_store_options *options, struct data_remote **out,
                    struct ls_error *error);
/* Ends what is fetched ahead: nothing is read from here on. Both take NULL. */
void data_remote_stop(struct data_remote *remote);
/* Its files are closed before. */
void data_remote_free(struct data_remote *remote);
/* As of ls_token_store_traffic, ls_token_store_warning and ls_token_store_stop_on. */
void data_remote_stop_on(struct data_remote *remote, const volatile int *stop);
struct ls_store_traffic data_remote_traffic(struct data_remote *remote);
bool data_remote_warning(struct data_remote *remote, char *text, size_t bytes);

/* Whether ls_data_stop_on's flag is up; and a caller's options, which may be NULL, with that to end
 * their requests unless they have an end of their own. */
bool data_stopped(void);
struct ls_net_options data_net(const struct ls_net_options *given);

struct data_file;
/* *out = NULL and LS_OK if there is no such file. name is a path or a URL. */
int data_file_open(const char *name, struct data_remote *remote, struct data_file **out,
                   struct ls_error *error);
/* file may be NULL. */
void data_file_close(struct data_file *file);
const char *data_file_name(const struct data_file *file);
int64_t data_file_bytes(const struct data_file *file);
bool data_file_is_remote(const struct data_file *file);
/* LS_EDATA if it is not what was opened any more: every answer of a server says so by itself, a
 * local file is looked at here, and by every 256th read. */
int data_file_look(struct data_file *file, struct ls_error *error);
/* buffer[bytes] = those from `at` on, which lie inside. Peek: of a few bytes beside which nothing
 * else will be read; of a file elsewhere nothing more is fetched, and nothing kept. */
typedef int data_file_reader(struct data_file *file, int64_t at, int64_t bytes, void *buffer,
                             struct ls_error *error);
data_file_reader data_file_read, data_file_peek;
/* How often bytes that are not what they must be are asked for: of a local file once. */
int data_file_tries(const struct data_file *file);
/* Bytes [at, at + bytes) will be read soon: what is elsewhere is fetched meanwhile. Does not wait,
 * and may do nothing. */
void data_file_want(struct data_file *file, int64_t at, int64_t bytes);
/* The sums of its blocks: what is fetched is held against them. Borrowed. Before it is read. */
void data_file_expect(struct data_file *file, const struct ls_sums *sums, int which);

/* *text[*bytes] = a whole small file, terminated, to be freed. *there (and LS_OK): if there is one.
 */
int data_small_read(const char *name, const struct ls_net_options *net, size_t limit, bool *there,
                    char **text, size_t *bytes, struct ls_error *error);

#endif
