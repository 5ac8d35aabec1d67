/* Folders, files, and system calls that fail, for the tests of data. */
#include "support.h"

#include <lockstep/base/file.h>

#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

char support_folder[256];

int support_setup(void **state)
{
    assert_int_equal(scratch_setup(state), 0);
    assert_true(strlen(*state) < sizeof support_folder);
    strcpy(support_folder, *state);
    return 0;
}

int support_teardown(void **state)
{
    assert_int_equal(scratch_teardown(state), 0);
    return 0;
}

struct ls_text support_read(const char *path)
{
    struct ls_text text = {0};
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s: %s (tests run in the root of the source tree)", path, strerror(errno));
    fseek(file, 0, SEEK_END);
    text.capacity = (size_t)ftell(file) + 1;
    rewind(file);
    text.bytes = malloc(text.capacity);
    text.count = fread(text.bytes, 1, text.capacity - 1, file);
    text.bytes[text.count] = 0;
    fclose(file);
    return text;
}

void support_same(struct ls_text found, struct ls_text expected)
{
    assert_int_equal(found.count, expected.count);
    if (found.count > 0)
        assert_memory_equal(found.bytes, expected.bytes, found.count);
    ls_text_release(&found);
    ls_text_release(&expected);
}

void support_list(const char *folder, char names[2048])
{
    struct dirent **entries;
    int count = scandir(folder, &entries, NULL, alphasort);
    size_t used = 0;
    names[0] = 0;
    for (int i = 0; i < count; i++) {
        if (entries[i]->d_name[0] != '.')
            used += (size_t)snprintf(names + used, 2048 - used, "%s ", entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
}

const char *support_gpt2(void)
{
    const char *folder = getenv("LS_TEST_DATA");
    if (!folder)
        folder = "../shared/data";
    char path[600];
    snprintf(path, sizeof path, "%s/gpt2-vocab.json", folder);
    if (access(path, R_OK) == 0)
        return folder;
    print_message("skipped: %s is not there; LS_TEST_DATA names a folder with gpt2-vocab.json, "
                  "gpt2-merges.txt and tinyshakespeare.txt\n",
                  path);
    return NULL;
}

/* ---- output that fails ---------------------------------------------------------------------- */

static atomic_long output_left = -1;
static atomic_int output_errno;

void support_fail_output(long n, int errno_value)
{
    output_errno = errno_value;
    output_left = n;
}

static bool output_fails(void)
{
    if (output_left < 0)
        return false;
    if (output_left > 0) {
        output_left--;
        return false;
    }
    if (output_errno == 0)
        raise(SIGKILL);
    errno = output_errno;
    return true;
}

/* These take the place of the C library's. */
ssize_t write(int fd, const void *bytes, size_t count)
{
    return output_fails() ? -1 : syscall(SYS_write, fd, bytes, count);
}

/* No test looks at the disk after a power cut, and syncing takes most of a test's time. */
int fsync(int fd)
{
    (void)fd;
    return output_fails() ? -1 : 0;
}

int rename(const char *from, const char *to)
{
    return output_fails() ? -1 : (int)syscall(SYS_renameat2, -100, from, -100, to, 0);
}

/* ---- allocations that fail ------------------------------------------------------------------ */

static atomic_long allocation_left = -1, allocations, live, live_bytes;

void support_fail_allocation(long n)
{
    allocation_left = n;
}
long support_allocations(void)
{
    return allocations;
}
long support_live(void)
{
    return live;
}
long support_live_bytes(void)
{
    return live_bytes;
}

int support_fail_each_allocation(int (*make)(void *user, struct ls_error *error), void *user)
{
    struct ls_error error = {0};
    int failed = 0;
    if (!support_counts_allocations())
        skip();
    long before = support_allocations();
    assert_ok(make(user, &error), error);
    long total = support_allocations() - before;
    for (long n = 0; n <= total; n++) { /* in the last one none */
        long whole = support_live();
        support_fail_allocation(n);
        int status = make(user, &error);
        support_fail_allocation(-1);
        assert_true(status == LS_OK || status == LS_ENOMEM);
        failed += status != LS_OK;
        if (support_live() != whole)
            fail_msg("allocation %ld of %ld failed: %ld blocks leaked", n, total,
                     support_live() - whole);
    }
    return failed;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifdef SANITIZED
bool support_counts_allocations(void)
{
    return false;
}
#else
bool support_counts_allocations(void)
{
    return true;
}

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *block);

/* Only the one allocation fails: what comes after it shows how well the code goes on. */
static bool allocation_fails(void)
{
    allocations++;
    if (allocation_left < 0 || allocation_left-- > 0)
        return false;
    errno = ENOMEM;
    return true;
}

static void *counted(void *block)
{
    live += block != NULL;
    live_bytes += (long)malloc_usable_size(block);
    return block;
}

void *malloc(size_t bytes)
{
    return allocation_fails() ? NULL : counted(__libc_malloc(bytes));
}

void *calloc(size_t count, size_t bytes)
{
    return allocation_fails() ? NULL : counted(__libc_calloc(count, bytes));
}

void *realloc(void *block, size_t bytes)
{
    if (allocation_fails())
        return NULL;
    const long before = (long)malloc_usable_size(block);
    void *moved = __libc_realloc(block, bytes);
    live += !block && moved;
    live_bytes += moved ? (long)malloc_usable_size(moved) - before : 0;
    return moved;
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return allocation_fails() ? NULL : counted(__libc_memalign(alignment, bytes));
}

void free(void *block)
{
    live -= block != NULL;
    live_bytes -= (long)malloc_usable_size(block);
    __libc_free(block);
}
#endif

const char *support_path(const char *name)
{
    return scratch_path(support_folder, name);
}

int64_t support_counted(const struct ls_token_store *store, int64_t first, int64_t count)
{
    struct ls_error error = {0};
    int64_t counted;
    assert_ok(ls_token_store_counted(store, first, count, &counted, &error), error);
    return counted;
}

void support_mask(const struct ls_token_store *store, int64_t first, int64_t count,
                  int32_t *targets)
{
    struct ls_error error = {0};
    assert_ok(ls_token_store_mask(store, first, count, targets, &error), error);
}

int64_t support_sample_counted(const struct ls_token_store *store, int64_t sample, int64_t tokens)
{
    struct ls_error error = {0};
    int64_t counted;
    assert_ok(ls_sample_counted(store, sample, tokens, &counted, &error), error);
    return counted;
}
