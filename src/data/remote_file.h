/* A file on the web or in S3. Functions as of data_file.h. */
#ifndef DATA_REMOTE_FILE_H
#define DATA_REMOTE_FILE_H

#include "data/data_file.h"

struct remote_file;
/* *out NULL and LS_OK: the server has none. *bytes = how many it has. url outlives the file. */
int remote_file_open(const char *url, struct data_remote *remote, struct remote_file **out,
                     int64_t *bytes, struct ls_error *error);
void remote_file_close(struct remote_file *file);
int remote_file_read(struct remote_file *file, int64_t at, int64_t bytes, void *buffer,
                     struct ls_error *error);
int remote_file_peek(struct remote_file *file, int64_t at, int64_t bytes, void *buffer,
                     struct ls_error *error);
void remote_queue(struct remote_file *file, int64_t at, int64_t bytes); /* data_file_want */
int remote_file_tries(const struct remote_file *file);                  /* data_file_tries */
void remote_file_expect(struct remote_file *file, const struct ls_sums *sums, int which);

#endif
