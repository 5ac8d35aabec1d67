/* More files than a process holds open are read, whoever reads and however many: one that was
 * closed for another is opened again, and is an error where it is not the file that it was. */
#include <lockstep/base/stored_file.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../support/scratch.h"
#include "../support/suite.h"

enum { FILES = 130, OPEN_MAX = 128, VALUES = 16, VALUES_BYTES = VALUES * sizeof(int) };

static char *folder;
static struct ls_stored_file *files[FILES];

static int value_of(int file, int i)
{
    return 1000 * file + i;
}

static void values_write(const char *path, int file, int count)
{
    int values[2 * VALUES];
    for (int i = 0; i < count; i++)
        values[i] = value_of(file, i);
    scratch_write(path, values, (size_t)count * sizeof values[0]);
}

static int setup(void **state)
{
    int failure = scratch_setup(state);
    folder = *state;
    for (int f = 0; f < FILES && !failure; f++) {
        struct ls_error error;
        char name[16];
        snprintf(name, sizeof name, "file-%d", f);
        const char *path = scratch_path(folder, name);
        values_write(path, f, VALUES);
        failure = ls_stored_file_open(&files[f], path, LS_ECKPT, &error);
    }
    return failure;
}

static int teardown(void **state)
{
    for (int f = 0; f < FILES; f++)
        ls_stored_file_close(files[f]);
    return scratch_teardown(state);
}

/* Whether the last values of the file are its own. */
static bool is_read(int file)
{
    struct ls_error error;
    int values[2];
    int64_t at = VALUES_BYTES - (int64_t)sizeof values;
    return !ls_stored_file_read(files[file], at, sizeof values, values, &error) &&
           values[0] == value_of(file, VALUES - 2) && values[1] == value_of(file, VALUES - 1);
}

/* How many descriptors of this process are of the path, or of those below it. */
static int open_below(const char *path)
{
    DIR *descriptors = opendir("/proc/self/fd");
    int count = 0;
    assert_non_null(descriptors);
    for (struct dirent *entry; (entry = readdir(descriptors));) {
        const char *found = path_of(atoi(entry->d_name)), *rest = found + strlen(path);
        count += !strncmp(found, path, strlen(path)) && (*rest == '\0' || *rest == '/');
    }
    closedir(descriptors);
    return count;
}

/* The first file from that one on which is closed, as two of 130 are. */
static int closed_from(int file)
{
    while (file < FILES && open_below(ls_stored_file_name(files[file])))
        file++;
    assert_in_range(file, 0, FILES - 1);
    return file;
}

/* ---- all are read ---------------------------------------------------------------------------- */

CASE_WITH(test_more_files_than_descriptors, setup, teardown)
{
    for (int round = 0; round < 2; round++) {
        assert_int_equal(open_below(folder), OPEN_MAX);
        for (int f = 0; f < FILES; f++)
            if (!is_read(f))
                fail_msg("file %d is not read in round %d", f, round);
    }
    for (int f = 0; f < FILES; f++) {
        ls_stored_file_close(files[f]);
        files[f] = NULL;
    }
    assert_int_equal(open_below(folder), 0);
}

/* ---- one is changed while it is closed ------------------------------------------------------- */

static void times_set(const char *path, struct timespec time)
{
    const struct timespec times[2] = {time, time};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void write_to(const char *path, struct timespec time)
{
    values_write(path, FILES, VALUES);
    time.tv_sec++;
    times_set(path, time);
}

static void lengthen(const char *path, struct timespec time)
{
    values_write(path, FILES, 2 * VALUES);
    times_set(path, time);
}

static void cut(const char *path, struct timespec time)
{
    assert_int_equal(truncate(path, VALUES_BYTES - 1), 0);
    times_set(path, time);
}

/* By a file of its size and time. */
static void replace(const char *path, struct timespec time)
{
    const char *other = scratch_path(folder, "other");
    values_write(other, FILES, VALUES);
    times_set(other, time);
    assert_int_equal(rename(other, path), 0);
}

static void take_away(const char *path, struct timespec time)
{
    assert_int_equal(unlink(path), 0);
}

static void change_and_read(void (*change)(const char *path, struct timespec time),
                            const char *words)
{
    struct ls_error error = {0};
    struct stat before;
    int values[VALUES];
    int changed = closed_from(0), twin = closed_from(changed + 1);
    const char *path = ls_stored_file_name(files[changed]);
    assert_int_equal(stat(path, &before), 0);
    change(path, before.st_mtim);
    for (int again = 0; again < 2; again++) { /* a failure does not pass by itself */
        assert_int_equal(ls_stored_file_read(files[changed], 0, sizeof values, values, &error),
                         LS_ECKPT);
        assert_text_contains(error.text, path);
        assert_text_contains(error.text, words);
    }
    assert_true(is_read(twin));
}

CASE_WITH(test_written_to, setup, teardown)
{
    change_and_read(write_to, "and was written to");
}

CASE_WITH(test_longer, setup, teardown)
{
    change_and_read(lengthen, "it has 128 bytes and had 64");
}

CASE_WITH(test_cut, setup, teardown)
{
    change_and_read(cut, "it has 63 bytes and had 64");
}

CASE_WITH(test_replaced, setup, teardown)
{
    change_and_read(replace, "and is another file");
}

CASE_WITH(test_removed, setup, teardown)
{
    change_and_read(take_away, "");
}

/* ---- many readers ---------------------------------------------------------------------------- */

enum { READERS = 4, ROUNDS = 5 };
static int steps[READERS] = {1, 7, 77, 129}; /* to a reader's next file: it comes to all */
static pthread_barrier_t together;

/* How many reads were wrong. */
static void *reader_main(void *argument)
{
    const int *step = argument;
    intptr_t wrong = 0;
    pthread_barrier_wait(&together);
    for (int n = 0; n < ROUNDS * FILES; n++)
        wrong += !is_read(n * *step % FILES);
    return (void *)wrong;
}

CASE_WITH(test_readers_while_files_are_closed, setup, teardown)
{
    pthread_t readers[READERS];
    void *wrong;
    assert_int_equal(pthread_barrier_init(&together, NULL, READERS), 0);
    for (int r = 0; r < READERS; r++)
        assert_int_equal(pthread_create(&readers[r], NULL, reader_main, &steps[r]), 0);
    for (int r = 0; r < READERS; r++) {
        assert_int_equal(pthread_join(readers[r], &wrong), 0);
        assert_ptr_equal(wrong, NULL);
    }
    pthread_barrier_destroy(&together);
}

/* ---- what is in memory ----------------------------------------------------------------------- */

enum { PAGES = 64, PAGE_BYTES_MAX = 64 << 10 };

/* The first bit of there[i]: the system has page i in memory. */
static void pages_look(int fd, size_t page, unsigned char there[PAGES])
{
    void *map = mmap(NULL, PAGES * page, PROT_NONE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    assert_int_equal(mincore(map, PAGES * page, there), 0);
    assert_int_equal(munmap(map, PAGES * page), 0);
}

static int pages_there(int fd, size_t page)
{
    unsigned char there[PAGES];
    int count = 0;
    pages_look(fd, page, there);
    for (int i = 0; i < PAGES; i++)
        count += there[i] & 1;
    return count;
}

/* A written file that is on the disk, and not in memory; -1: this file system keeps it there. */
static int file_evicted(const char *path, size_t page)
{
    static const char bytes[PAGE_BYTES_MAX];
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && page <= sizeof bytes);
    for (int i = 0; i < PAGES; i++)
        assert_int_equal(write(fd, bytes, page), page);
    assert_int_equal(fsync(fd), 0);
    assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM), 0); /* nothing is read ahead */
    if (pages_there(fd, page) == 0)
        return fd;
    close(fd);
    return -1;
}

/* What it says with the first, the middle and the last page there: the system may take one back at
 * any time, so they are read until all three are still there behind the answer. */
static bool answer_with_all(struct ls_stored_file *file, int fd, size_t page)
{
    static const int asked[] = {0, PAGES / 2 - 1, PAGES - 1};
    unsigned char there[PAGES];
    bool cached, all;
    do {
        char byte;
        all = true;
        for (int i = 0; i < 3; i++)
            assert_int_equal(pread(fd, &byte, 1, asked[i] * (off_t)page), 1);
        cached = ls_stored_file_cached(file, 0, (int64_t)(PAGES * page));
        pages_look(fd, page, there);
        for (int i = 0; i < 3; i++)
            all &= there[asked[i]] & 1;
    } while (!all);
    return cached;
}

/* By the first, the middle and the last byte; to ask brings nothing to memory. With CHECK=all the
 * scratch folder is on a disk. */
CASE_WITH(test_what_is_in_memory, scratch_setup, scratch_teardown)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const int64_t bytes = (int64_t)(PAGES * page);
    char path[4096], byte;
    snprintf(path, sizeof path, "%s", scratch_path(*state, "file"));
    int fd = file_evicted(path, page);
    if (fd < 0)
        skip();
    struct ls_stored_file *file;
    struct ls_error error;
    assert_ok(ls_stored_file_open(&file, path, LS_ECKPT, &error), error);
    assert_false(ls_stored_file_cached(file, 0, bytes));
    assert_int_equal(pages_there(fd, page), 0);
    assert_int_equal(pread(fd, &byte, 1, 0), 1);
    assert_int_equal(pread(fd, &byte, 1, bytes - 1), 1);
    assert_false(ls_stored_file_cached(file, 0, bytes));
    assert_true(answer_with_all(file, fd, page));
    int there = pages_there(fd, page);
    assert_false(ls_stored_file_cached(file, 1, bytes - 2 * (int64_t)page)); /* another last one */
    assert_true(pages_there(fd, page) <= there);
    close(fd);
    ls_stored_file_close(file);
}

SUITE_MAIN(NULL, NULL)
