/* What the tests of data share: temporary folders, golden files, and system calls that fail. */
#ifndef TEST_DATA_SUPPORT_H
#define TEST_DATA_SUPPORT_H

#include <lockstep/data.h>

#include "../support/scratch.h"
#include "../support/suite.h"

/* cmocka set-up and tear-down: a fresh folder under $TMPDIR or /tmp, and its end with all that is
 * in it. Both return 0, or fail the test. */
int support_setup(void **state);
int support_teardown(void **state);
extern char support_folder[256];
/* "support_folder/name", valid until three further calls were made. */
const char *support_path(const char *name);
/* A whole file, terminated behind count bytes; fails the test where it cannot be read. */
struct ls_text support_read(const char *path);
/* Asserts that they are the same, and releases both. */
void support_same(struct ls_text found, struct ls_text expected);
/* Names of the entries of a folder, sorted, with a space behind each. */
void support_list(const char *folder, char names[2048]);
/* Folder with GPT-2's files and a text ($LS_TEST_DATA or ../shared/data); NULL, with a message,
 * where there is none. */
const char *support_gpt2(void);

/* The n-th (from 0) call from now of write, fsync or rename fails with errno_value, all after it
 * too; of 0 it ends the process, as kill -9 does. n < 0: none. */
void support_fail_output(long n, int errno_value);
/* The n-th allocation from now fails; n < 0: none. */
void support_fail_allocation(long n);
/* True where allocations are counted and can fail: not under a sanitizer, which has its own. */
bool support_counts_allocations(void);
/* Allocations made, blocks not yet freed and their bytes, since the program began. */
long support_allocations(void);
long support_live(void);
long support_live_bytes(void);
/* Calls make with each of its allocations failing in turn, and then with none: it returns
 * LS_OK or LS_ENOMEM, and leaves no block. Returns how many calls failed. Skips the test where
 * allocations are not counted. */
int support_fail_each_allocation(int (*make)(void *user, struct ls_error *error), void *user);

/* Of which nothing here can fail: ls_token_store_counted, ls_token_store_mask, ls_sample_counted.
 */
int64_t support_counted(const struct ls_token_store *store, int64_t first, int64_t count);
void support_mask(const struct ls_token_store *store, int64_t first, int64_t count,
                  int32_t *targets);
int64_t support_sample_counted(const struct ls_token_store *store, int64_t sample, int64_t tokens);

#endif
