/* A directory of its own for each test. */
#ifndef TEST_SUPPORT_SCRATCH_H
#define TEST_SUPPORT_SCRATCH_H

#include <stddef.h>

/* cmocka set-up and tear-down: *state is the path of an empty directory. */
int scratch_setup(void **state);
int scratch_teardown(void **state);
/* "<directory>/<name>"; the result lives until the fourth call after. */
const char *scratch_path(const char *directory, const char *name);
/* Writes a file; its directory must be there. */
void scratch_write(const char *path, const void *data, size_t bytes);
/* The file's bytes, to be freed; *bytes may be NULL. Terminated. */
char *scratch_read(const char *path, size_t *bytes);
/* The path of an open file; the result lives until the thread's next call. */
const char *path_of(int file);
/* How many entries a directory has. */
int scratch_count(const char *directory);

#endif
