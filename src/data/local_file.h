/* A file of this machine, or of a file system that it has mounted. Functions as of data_file.h. */
#ifndef DATA_LOCAL_FILE_H
#define DATA_LOCAL_FILE_H

#include <lockstep/base.h>

struct local_file;
int local_file_open(const char *name, struct local_file **out, struct ls_error *error);
void local_file_close(struct local_file *file);
int64_t local_file_bytes(const struct local_file *file);
/* LS_EDATA where it is not what was opened any more. A read looks too, now and then. */
int local_file_look(struct local_file *file, struct ls_error *error);
int local_file_read(struct local_file *file, int64_t at, int64_t bytes, void *buffer,
                    struct ls_error *error);

#endif
