/* Files appear whole or not at all, whichever call fails, and are read within bounds. */
/* check: waits disk */
#include <lockstep/base/file.h>
#include <lockstep/base/hub.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/countdown.h"
#include "../support/scratch.h"
#include "../support/suite.h"

static bool direct; /* files are written past the page cache */
static struct ls_file_maps *maps;
static bool maps_files; /* they are written by maps, */
static bool mapped;     /* and the last one was */

/* Writes bytes of 'a' + n % 26 in pieces of piece bytes. */
static int write_pattern(const char *path, size_t bytes, size_t piece, const struct ls_fault *fault,
                         struct ls_error *error)
{
    struct ls_atomic_file file;
    int code = ls_atomic_file_open(&file, path, fault, error);
    if (code)
        return code;
    if (direct)
        ls_atomic_file_direct(&file);
    if (maps_files)
        ls_atomic_file_map(&file, &maps);
    mapped = file.map != NULL;
    char *data = malloc(piece);
    for (size_t at = 0; at < bytes; at += piece) {
        size_t count = bytes - at < piece ? bytes - at : piece;
        for (size_t i = 0; i < count; i++)
            data[i] = (char)('a' + (at + i) % 26);
        ls_atomic_file_write(&file, data, count); /* a failure is kept for the commit */
    }
    free(data);
    return ls_atomic_file_commit(&file, error);
}

static void assert_pattern(const char *path, size_t bytes)
{
    size_t size;
    char *data = scratch_read(path, &size);
    assert_int_equal(size, bytes);
    for (size_t i = 0; i < size; i++)
        if (data[i] != (char)('a' + i % 26))
            fail_msg("byte %zu is %d, expected %d", i, data[i], (int)('a' + i % 26));
    free(data);
}

CASE_WITH(test_pieces_of_every_size, scratch_setup, scratch_teardown)
{
    static const size_t pieces[] = {1000, 4096, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 9 << 20};
    const char *path = scratch_path(*state, "file");
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        struct ls_error error = {0};
        size_t bytes = 2 * pieces[i] + 3000;
        assert_ok(write_pattern(path, bytes, pieces[i], NULL, &error), error);
        assert_pattern(path, bytes);
        assert_int_equal(scratch_count(*state), 1);
    }
}

static int second_write_fails;

static int fail_once(void *user, const char *call)
{
    return !strcmp(call, "write") && ++second_write_fails == 2 ? EINVAL : 0;
}

/* Past the page cache the last bytes, of less than a block, and a disk that refuses the rest after
 * the first write, are written as ever. */
CASE_WITH(test_past_the_page_cache, scratch_setup, scratch_teardown)
{
    static const size_t sizes[] = {0, 1, 4096, 4097, 4 << 20, (9 << 20) + 100};
    const char *path = scratch_path(*state, "file");
    direct = true;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (size_t piece = 1 << 20; piece <= (1 << 20) + 1; piece++) {
            const struct ls_fault refuses = {fail_once, NULL};
            struct ls_error error = {0};
            second_write_fails = 0;
            assert_ok(write_pattern(path, sizes[i], piece, i % 2 ? &refuses : NULL, &error), error);
            assert_pattern(path, sizes[i]);
        }
    direct = false;
}

/* How many of the file's pages the page cache holds. */
static int pages_cached(const char *path)
{
    enum { PAGES_MAX = 4096 };
    static unsigned char resident[PAGES_MAX];
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && !fstat(fd, &about));
    size_t bytes = (size_t)about.st_size;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (bytes + page - 1) / page;
    void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(pages > 0 && pages <= PAGES_MAX && map != MAP_FAILED);
    assert_int_equal(mincore(map, bytes, resident), 0);
    munmap(map, bytes);
    close(fd);
    int cached = 0;
    for (size_t i = 0; i < pages; i++)
        cached += resident[i] & 1;
    return cached;
}

/* Whether a file system writes past the page cache, asked by hand. */
static bool past_cache_possible(const char *path)
{
    enum { BYTES = 64 << 10 };
    int fd = open(path, O_WRONLY | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
    void *zeros = aligned_alloc(4096, BYTES);
    assert_non_null(zeros);
    memset(zeros, 0, BYTES);
    bool possible = fd >= 0 && write(fd, zeros, BYTES) == BYTES && !pages_cached(path);
    free(zeros);
    if (fd >= 0)
        close(fd);
    unlink(path);
    return possible;
}

/* The twin writes through it, as a file does that nobody asked for more. */
CASE_WITH(test_the_page_cache_holds_none_of_it, scratch_setup, scratch_teardown)
{
    enum { BYTES = 9 << 20 };
    const char *path = scratch_path(*state, "file");
    if (!past_cache_possible(path)) {
        print_message("SKIPPED: the file system of %s keeps what O_DIRECT writes in memory, or "
                      "does not take O_DIRECT\n",
                      path);
        skip();
    }
    for (int twin = 0; twin < 2; twin++)
        for (size_t piece = 1 << 20; piece <= (1 << 20) + 1; piece++) {
            struct ls_error error = {0};
            direct = !twin;
            assert_ok(write_pattern(path, BYTES, piece, NULL, &error), error);
            assert_int_equal(pages_cached(path) == 0, !twin);
            assert_int_equal(unlink(path), 0);
        }
    direct = false;
}

CASE_WITH(test_abort_and_empty, scratch_setup, scratch_teardown)
{
    const char *path = scratch_path(*state, "file");
    struct ls_error error = {0};
    struct ls_atomic_file file;
    assert_int_equal(ls_atomic_file_open(&file, path, NULL, &error), LS_OK);
    ls_atomic_file_printf(&file, "%d", 42);
    assert_int_equal(access(path, F_OK), -1);
    ls_atomic_file_abort(&file);
    ls_atomic_file_abort(&file);
    assert_int_equal(scratch_count(*state), 0);
    assert_int_equal(write_pattern(path, 0, 1, NULL, &error), LS_OK);
    assert_pattern(path, 0);
}

/* Its bytes are written over, and what they were is not there before the end; a file that has
 * another name is not touched. */
CASE_WITH(test_an_unwanted_file_is_written_over, scratch_setup, scratch_teardown)
{
    enum { LONG = 5 << 20, SHORT = 3 << 20 };
    char path[PATH_MAX], other[PATH_MAX];
    struct ls_error error = {0};
    struct stat before, after;
    snprintf(path, sizeof path, "%s", scratch_path(*state, "file"));
    snprintf(other, sizeof other, "%s", scratch_path(*state, "other"));
    for (int named_twice = 0; named_twice < 2; named_twice++) {
        assert_int_equal(write_pattern(path, LONG, 1 << 20, NULL, &error), LS_OK);
        int held = open(path, O_RDONLY); /* so that no other file gets its number */
        assert_true(held >= 0 && !fstat(held, &before));
        assert_int_equal(named_twice ? link(path, other) : 0, 0);
        ls_atomic_file_reuse(path);
        assert_int_equal(access(path, F_OK), named_twice ? 0 : -1);
        assert_int_equal(write_pattern(path, SHORT, 1000, NULL, &error), LS_OK);
        assert_pattern(path, SHORT);
        assert_int_equal(stat(path, &after), 0);
        assert_int_equal(after.st_ino == before.st_ino, !named_twice);
        close(held);
    }
    assert_pattern(other, LONG);
    assert_int_equal(unlink(other), 0);
    ls_atomic_file_reuse(other);
    assert_int_equal(scratch_count(*state), 1);
}

static int write_refuse(void *user, const char *call)
{
    (void)user;
    return strcmp(call, "write") ? 0 : EIO;
}

/* A file that has all of its memory is written over by a map, which the next write finds again:
 * shorter, longer than the map, in pieces that begin anywhere, and not at all if it is to fail. One
 * with a hole, or a new one of the same name, is written as ever. */
CASE(test_a_file_in_memory_is_written_over_by_a_map)
{
    enum { LONG = 700001, SHORT = 300007 };
    static const struct {
        size_t bytes, piece;
        bool mapped, gone, hollow;
    } writes[] = {
        {LONG, 1000, false, false, false},
        {LONG, 1000, true, false, false},
        {SHORT, 4099, true, false, false},
        {LONG, 300 << 10, true, false, false},
        {LONG, 1 << 20, true, false, false},
        {LONG, 1000, false, true, false},
        {LONG, (256 << 10) + 1, true, false, false},
        {LONG, 1000, false, false, true},
        {LONG, 7, true, false, false},
    };
    char folder[] = "/dev/shm/lockstep-test-XXXXXX", path[PATH_MAX];
    struct ls_error error = {0};
    struct stat before, after;
    if (!mkdtemp(folder))
        skip();
    snprintf(path, sizeof path, "%s/file", folder);
    maps_files = true;
    for (size_t i = 0; i < sizeof writes / sizeof *writes; i++) {
        int held = open(path, O_RDWR); /* so that no other file gets its number */
        bool there = held >= 0 && !fstat(held, &before);
        if (there && writes[i].hollow)
            assert_true(!ftruncate(held, 0) && !ftruncate(held, LONG));
        if (writes[i].gone)
            unlink(path);
        ls_atomic_file_reuse(path);
        assert_int_equal(write_pattern(path, writes[i].bytes, writes[i].piece, NULL, &error),
                         LS_OK);
        assert_pattern(path, writes[i].bytes);
        assert_int_equal(mapped, writes[i].mapped);
        assert_int_equal(maps != NULL, writes[i].mapped);
        assert_int_equal(stat(path, &after), 0);
        assert_int_equal(there && after.st_ino == before.st_ino, there && !writes[i].gone);
        if (there)
            close(held);
    }
    const struct ls_fault fails = {write_refuse, NULL};
    ls_atomic_file_reuse(path);
    assert_int_equal(write_pattern(path, LONG, 1000, &fails, &error), LS_EIO);
    assert_true(mapped && access(path, F_OK));
    ls_file_maps_free(maps);
    maps = NULL;
    maps_files = false;
    assert_int_equal(rmdir(folder), 0);
}

static int write_count(void *user, const char *call)
{
    *(int *)user += !strcmp(call, "write");
    return 0;
}

/* Behind a small piece they are not copied either. */
CASE_WITH(test_large_pieces_go_to_the_system_as_they_are, scratch_setup, scratch_teardown)
{
    enum { HEAD = 100, PIECE = 2 * LS_FILE_STRAIGHT_BYTES };
    int writes = 0;
    const struct ls_fault counts = {write_count, &writes};
    struct ls_atomic_file file;
    struct ls_error error = {0};
    char *data = calloc(1, PIECE);
    int status = ls_atomic_file_open(&file, scratch_path(*state, "file"), &counts, &error);
    assert_int_equal(status, LS_OK);
    ls_atomic_file_write(&file, data, HEAD);
    for (int i = 0; i < 3; i++)
        ls_atomic_file_write(&file, data, PIECE);
    assert_int_equal(ls_atomic_file_commit(&file, &error), LS_OK);
    assert_int_equal(writes, 4);
    free(data);
}

static int put_word(const void *word, FILE *file, struct ls_error *error)
{
    fputs(word, file);
    return LS_OK;
}

/* What stands there decides: a link stays, whether its target is there or not, and so do pipes and
 * devices. */
CASE_WITH(test_what_is_no_file_stays, scratch_setup, scratch_teardown)
{
    char target[PATH_MAX], link[PATH_MAX], pipe[PATH_MAX], read_back[10] = "";
    struct ls_error error = {0};
    struct stat found;
    size_t bytes;
    snprintf(target, sizeof target, "%s", scratch_path(*state, "target"));
    snprintf(link, sizeof link, "%s", scratch_path(*state, "link"));
    snprintf(pipe, sizeof pipe, "%s", scratch_path(*state, "pipe"));
    assert_int_equal(symlink("target", link), 0);
    for (int there = 0; there < 2; there++) {
        const char *word = there ? "again" : "first";
        assert_int_equal(ls_file_write(link, put_word, word, &error), LS_OK);
        assert_true(!lstat(link, &found) && S_ISLNK(found.st_mode));
        assert_true(!lstat(target, &found) && S_ISREG(found.st_mode));
        char *text = scratch_read(target, &bytes);
        assert_string_equal(text, word);
        free(text);
    }
    assert_int_equal(mkfifo(pipe, 0600), 0);
    int reader = open(pipe, O_RDONLY | O_NONBLOCK);
    assert_int_equal(ls_file_write(pipe, put_word, "through", &error), LS_OK);
    assert_int_equal(read(reader, read_back, sizeof read_back), 7);
    assert_string_equal(read_back, "through");
    close(reader);
    assert_true(!lstat(pipe, &found) && S_ISFIFO(found.st_mode));
    /* A pipe without a name, as of "lockstep ... --output /dev/stdout | less". */
    int ends[2];
    memset(read_back, 0, sizeof read_back);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    snprintf(pipe, sizeof pipe, "/proc/self/fd/%d", ends[1]);
    assert_int_equal(ls_file_write(pipe, put_word, "nameless", &error), LS_OK);
    assert_int_equal(read(ends[0], read_back, sizeof read_back), 8);
    assert_string_equal(read_back, "nameless");
    close(ends[0]);
    close(ends[1]);
    /* A link: what would replace the device replaces the link. */
    assert_int_equal(unlink(link), 0);
    assert_int_equal(symlink("/dev/full", link), 0);
    assert_int_equal(ls_file_write(link, put_word, "lost", &error), LS_ENOSPC);
    assert_true(!lstat(link, &found) && S_ISLNK(found.st_mode));
    assert_true(!stat(link, &found) && S_ISCHR(found.st_mode));
    assert_int_equal(unlink(link), 0);
    assert_int_equal(symlink("link", link), 0);
    assert_int_equal(ls_file_write(link, put_word, "lost", &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "found links without an end"));
    assert_int_equal(ls_file_write(*state, put_word, "lost", &error), LS_EIO);
    assert_non_null(strstr(error.text, "expected a file, found a folder"));
    assert_int_equal(scratch_count(*state), 3); /* and nothing beside them */
}

static void check_every_failing_call(const char *folder, int at_least)
{
    enum { OLD = 100, NEW = 5 << 20 };
    const char *path = scratch_path(folder, "file");
    bool failed = true;
    int n = 0;
    for (; failed; n++) {
        struct ls_error error = {0};
        struct countdown countdown = {.left = n};
        struct ls_fault fault = {countdown_before, &countdown};
        assert_int_equal(write_pattern(path, OLD, OLD, NULL, &error), LS_OK);
        int code = write_pattern(path, NEW, 700000, &fault, &error);
        failed = countdown.call[0] != '\0';
        assert_int_equal(code, failed ? LS_ENOSPC : LS_OK);
        if (failed && (!strstr(error.text, "No space left") || !strstr(error.text, folder)))
            fail_msg("call %d (%s): \"%s\"", n, countdown.call, error.text);
        assert_int_equal(scratch_count(folder), 1);
        /* The last call that can fail syncs the directory, when the new file has the name. */
        bool is_last = failed && !strcmp(countdown.behind, "rename");
        assert_pattern(path, failed && !is_last ? OLD : NEW);
    }
    assert_in_range(n, at_least, 20);
}

CASE_WITH(test_a_failing_call_keeps_the_older_file, scratch_setup, scratch_teardown)
{
    check_every_failing_call(*state, 10);
    direct = true;
    check_every_failing_call(*state, 6);
    direct = false;
}

/* ---- descriptors ----------------------------------------------------------------------------- */

/* The system reads at most piece bytes at once (0: as many as it is asked for), and of the calls
 * one in two is interrupted. */
static size_t piece;
static int calls;

ssize_t pread(int fd, void *buffer, size_t bytes, off_t at)
{
    if (piece && calls++ % 2 == 0) {
        errno = EINTR;
        return -1;
    }
    return syscall(SYS_pread64, fd, buffer, piece && piece < bytes ? piece : bytes, at);
}

CASE_WITH(test_descriptors_read_all_there_is, scratch_setup, scratch_teardown)
{
    const char *path = scratch_path(*state, "file");
    struct ls_error error = {0};
    char bytes[100];
    size_t done;
    assert_int_equal(write_pattern(path, 100, 10, NULL, &error), LS_OK);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (piece = 0; piece <= 101; piece++) {
        memset(bytes, 0, sizeof bytes);
        assert_int_equal(ls_fd_read(fd, 26, bytes, 52, &done), 0);
        assert_int_equal(done, 52);
        assert_memory_equal(bytes, "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz\0", 53);
        assert_int_equal(ls_fd_read(fd, 78, bytes, 52, &done), 0);
        assert_int_equal(done, 22);
        assert_int_equal(ls_fd_read(fd, 100, bytes, 52, &done), 0);
        assert_int_equal(done, 0);
    }
    piece = 0;
    close(fd);
    assert_int_equal(ls_fd_read(fd, 0, bytes, 1, &done), EBADF);
    assert_int_equal(done, 0);
}

static int interrupted(void *user, const char *call)
{
    assert_string_equal(call, "write");
    return calls++ % 2 == 0 ? EINTR : 0;
}

/* What the system takes in part counts, and so does what it took before it failed. */
CASE_WITH(test_descriptors_write_all_or_say_how_much, scratch_setup, scratch_teardown)
{
    const char *path = scratch_path(*state, "file");
    struct countdown countdown = {.left = 0, .errno_value = EIO};
    const struct ls_fault signals = {interrupted, NULL}, fails = {countdown_before, &countdown};
    struct rlimit whole, limit;
    char bytes[3000];
    size_t done;
    memset(bytes, 'x', sizeof bytes);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    assert_int_equal(ls_fd_write(fd, bytes, 100, &signals, &done), 0);
    assert_int_equal(done, 100);
    assert_int_equal(ls_fd_write(fd, bytes, 100, NULL, NULL), 0);
    assert_int_equal(ls_fd_write(fd, bytes, 100, &fails, &done), EIO);
    assert_int_equal(done, 0);
    getrlimit(RLIMIT_FSIZE, &whole);
    limit = (struct rlimit){.rlim_cur = 1000, .rlim_max = whole.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    signal(SIGXFSZ, SIG_IGN);
    int failure = ls_fd_write(fd, bytes, sizeof bytes, NULL, &done);
    setrlimit(RLIMIT_FSIZE, &whole);
    assert_int_equal(failure, EFBIG);
    assert_int_equal(done, 800);
    assert_int_equal(lseek(fd, 0, SEEK_CUR), 1000);
    close(fd);
}

/* ---- folders --------------------------------------------------------------------------------- */

CASE_WITH(test_directories, scratch_setup, scratch_teardown)
{
    struct ls_error error = {0};
    const char *deep = scratch_path(*state, "a/b//c/");
    assert_int_equal(ls_directory_make(deep, NULL, &error), LS_OK);
    assert_int_equal(ls_directory_make(deep, NULL, &error), LS_OK);
    assert_int_equal(ls_directory_sync(deep, NULL, &error), LS_OK);
    const char *file = scratch_path(*state, "a/file");
    scratch_write(file, "x", 1);
    assert_int_equal(ls_directory_make(scratch_path(file, "d"), NULL, &error), LS_EIO);
    assert_non_null(strstr(error.text, "a/file: cannot create the directory: Not a directory"));
    struct ls_atomic_file atomic;
    assert_int_equal(
        ls_atomic_file_open(&atomic, scratch_path(*state, "absent/file"), NULL, &error), LS_EIO);
    assert_non_null(strstr(error.text, "; there is no folder "));
    char *long_path = malloc(5001);
    memset(long_path, 'x', 5000);
    long_path[5000] = '\0';
    assert_int_equal(ls_atomic_file_open(&atomic, long_path, NULL, &error), LS_EINVAL);
    assert_int_equal(ls_directory_make(long_path, NULL, &error), LS_EINVAL);
    free(long_path);
}

/* ---- reading -------------------------------------------------------------------------------- */

static void expect_unread(const char *path, size_t limit, int code, const char *words)
{
    struct ls_error error = {0};
    char *text;
    size_t bytes;
    int got = ls_file_read(path, limit, LS_EDATA, &text, &bytes, &error);
    if (got != code || !strstr(error.text, words) || text || bytes)
        fail_msg("%s gave %s: %s\nexpected %s: %s", path, ls_status_name(got), error.text,
                 ls_status_name(code), words);
}

/* What links lead to stays, and so does what cannot be removed. */
CASE_WITH(test_a_folder_is_removed_with_all_that_is_in_it, scratch_setup, scratch_teardown)
{
    char folder[PATH_MAX], outside[PATH_MAX], itself[PATH_MAX];
    struct ls_error error = {0};
    snprintf(outside, sizeof outside, "%s", scratch_path(*state, "outside"));
    snprintf(folder, sizeof folder, "%s", scratch_path(*state, "folder"));
    snprintf(itself, sizeof itself, "%s", scratch_path(folder, "."));
    assert_int_equal(mkdir(outside, 0700), 0);
    scratch_write(scratch_path(outside, "file"), "x", 1);
    for (int last = 0; last < 2; last++) {
        assert_int_equal(ls_directory_make(scratch_path(folder, "a/b"), NULL, &error), LS_OK);
        scratch_write(scratch_path(folder, "a/b/file"), "x", 1);
        assert_int_equal(symlink(outside, scratch_path(folder, "a/link")), 0);
        assert_int_equal(symlink("nowhere", scratch_path(folder, "dangling")), 0);
        assert_int_equal(ls_directory_remove(last ? folder : itself), last);
        assert_int_equal(scratch_count(last ? *state : folder), last);
    }
    assert_int_equal(scratch_count(outside), 1);
    assert_true(ls_directory_remove(folder)); /* is gone already */
}

CASE_WITH(test_files_are_read_within_bounds, scratch_setup, scratch_teardown)
{
    static const size_t sizes[] = {0, 1, 65535, 65536, 65537, 300000};
    const char *path = scratch_path(*state, "file");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct ls_error error = {0};
        char *text;
        size_t bytes;
        assert_int_equal(write_pattern(path, sizes[i] ? 300000 : 0, 1000, NULL, &error), LS_OK);
        assert_int_equal(truncate(path, (off_t)sizes[i]), 0);
        assert_ok(ls_file_read(path, sizes[i], LS_EDATA, &text, &bytes, &error), error);
        assert_int_equal(bytes, sizes[i]);
        assert_int_equal(text[bytes], 0);
        assert_true(bytes == 0 || text[bytes - 1] == (char)('a' + (bytes - 1) % 26));
        free(text);
        if (sizes[i] > 0)
            expect_unread(path, sizes[i] - 1, LS_EDATA, "bytes: expected at most");
    }
    expect_unread("/dev/zero", 1000, LS_EDATA, "does not end: expected at most 1000 bytes");
    expect_unread("/dev/zero", (size_t)1 << 30, LS_EDATA, "expected at most 1048576 bytes");
    expect_unread("/dev/urandom", 1 << 20, LS_EDATA, "expected at most 1048576 bytes");
    expect_unread(*state, 1000, LS_EDATA, "a folder: expected a regular file");
    expect_unread("/proc/self/maps", 100, LS_EDATA, "expected at most 100 bytes");
}

/* As much as there is room for, and terminated. */
CASE_WITH(test_the_head_of_a_file, scratch_setup, scratch_teardown)
{
    static const char *const whole[] = {"", "short", "0123456789"};
    static const char *const head[] = {"", "short", "0123456"};
    char text[8] = "before";
    const char *path = scratch_path(*state, "file");
    assert_false(ls_file_head(path, text, sizeof text));
    assert_string_equal(text, "before");
    for (int i = 0; i < 3; i++) {
        scratch_write(path, whole[i], strlen(whole[i]));
        assert_true(ls_file_head(path, text, sizeof text));
        assert_string_equal(text, head[i]);
    }
}

/* Opens files to read and to write until the system refuses; *error says why. Returns how often the
 * limit grew. */
static int open_all(const char *path, struct rlimit *limit, struct ls_error *error)
{
    int status = LS_OK, grew = 0;
    for (int i = 0; !status; i++) {
        struct ls_atomic_file file;
        int64_t size;
        int fd;
        rlim_t before = limit->rlim_cur;
        status = i % 2 ? ls_atomic_file_open(&file, path, NULL, error)
                       : ls_file_open(path, 0, LS_EDATA, &fd, &size, error);
        getrlimit(RLIMIT_NOFILE, limit);
        grew += limit->rlim_cur != before;
    }
    return grew;
}

/* More files than the soft limit: it doubles, up to the hard one, and what is refused there says
 * what to do. In a process of its own: a hard limit is not raised again. */
CASE_WITH(test_many_files_are_open, scratch_setup, scratch_teardown)
{
    int ended = -1, next = dup(0);
    close(next);
    const rlim_t soft = (rlim_t)next + 8, hard = 3 * soft;
    struct rlimit now;
    getrlimit(RLIMIT_NOFILE, &now);
    if (now.rlim_max < hard)
        skip();
    const char *path = scratch_path(*state, "file");
    scratch_write(path, "x", 1);
    pid_t child = fork();
    if (child == 0) {
        struct ls_error error = {0};
        now = (struct rlimit){soft, hard};
        setrlimit(RLIMIT_NOFILE, &now);
        int grew = open_all(path, &now, &error);
        bool good = grew == 2 && now.rlim_cur == hard &&
                    strstr(error.text, "Too many open files (raise ulimit -n)");
        if (!good)
            fprintf(stderr, "grew %d times to %d of %d: %s\n", grew, (int)now.rlim_cur, (int)hard,
                    error.text);
        _exit(!good);
    }
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(ended, 0);
}

/* A pipe into which nobody writes, or somebody who says nothing: both end after LS_FILE_WAIT_S. */
CASE_WITH(test_silent_pipes_end, scratch_setup, scratch_teardown)
{
    const char *path = scratch_path(*state, "pipe");
    int fd;
    int64_t size;
    struct ls_error error = {0};
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(ls_file_open(path, 0, LS_EDATA, &fd, &size, &error), LS_EDATA);
    assert_non_null(strstr(error.text, "a pipe: expected a regular file"));
    expect_unread(path, 1000, LS_EDATA, "no data came through it in 5 seconds");
    int silent = open(path, O_RDWR);
    assert_true(silent >= 0);
    expect_unread(path, 1000, LS_EDATA, "no data came through it in 5 seconds");
    char *text;
    size_t bytes;
    assert_int_equal(write(silent, "hello", 5), 5);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    close(silent); /* the bytes live as long as somebody has the pipe open */
    assert_ok(ls_file_read(path, 1000, LS_EDATA, &text, &bytes, &error), error);
    assert_string_equal(text, "hello");
    free(text);
    close(reader);
}

CASE(test_the_folder_of_a_path)
{
    static const char *const cases[][2] = {
        {"x", "."},   {"x/", "."}, {"a/x", "a"}, {"a/x/", "a"}, {"a/b/x//", "a/b"}, {"/x", "/"},
        {"/x/", "/"}, {"/", "/"},  {"//", "/"},  {"./x/", "."}, {"../x", ".."}};
    char parent[PATH_MAX], here[PATH_MAX], whole[PATH_MAX];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ls_path_parent(cases[i][0], parent);
        assert_string_equal(parent, cases[i][1]);
    }
    assert_non_null(realpath(".", here));
    assert_true(ls_path_absolute("x", whole));
    assert_string_equal(whole + strlen(here), "/x");
    assert_true(ls_path_absolute("./x", whole));
    assert_string_equal(whole + strlen(here), "/x");
    assert_true(ls_path_absolute("/x", whole));
    assert_string_equal(whole, "/x");
}

CASE_WITH(test_two_paths_of_one_folder, scratch_setup, scratch_teardown)
{
    char folder[600], link[600], around[700], other[600];
    snprintf(folder, sizeof folder, "%s", scratch_path(*state, "a"));
    snprintf(link, sizeof link, "%s", scratch_path(*state, "link"));
    snprintf(other, sizeof other, "%s", scratch_path(*state, "b"));
    snprintf(around, sizeof around, "%s/../a/", folder);
    assert_false(ls_path_same(folder, folder)); /* not there */
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(mkdir(other, 0700), 0);
    assert_int_equal(symlink("a", link), 0);
    assert_true(ls_path_same(folder, link));
    assert_true(ls_path_same(around, link));
    assert_false(ls_path_same(folder, other));
    assert_false(ls_path_same(folder, ""));
}

CASE_WITH(test_names_that_are_not_there, scratch_setup, scratch_teardown)
{
    static const char *const endings[] = {".bin", ".idx", NULL};
    char path[512], hint[1024], expected[1024];
    snprintf(path, sizeof path, "%s/runs", (char *)*state);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/runs/code_train.bin", (char *)*state);
    scratch_write(path, "", 0);
    snprintf(path, sizeof path, "%s/runs/code_trian", (char *)*state);
    ls_path_hint(path, endings, hint, sizeof hint);
    snprintf(expected, sizeof expected, "; did you mean %s/runs/code_train?", (char *)*state);
    assert_string_equal(hint, expected);
    snprintf(path, sizeof path, "%s/run/code_train", (char *)*state);
    ls_path_hint(path, endings, hint, sizeof hint);
    snprintf(expected, sizeof expected,
             "; there is no folder %s/run; did you mean %s/runs/code_train?", (char *)*state,
             (char *)*state);
    assert_string_equal(hint, expected);
    snprintf(path, sizeof path, "%s/run/none", (char *)*state);
    ls_path_hint(path, endings, hint, sizeof hint);
    snprintf(expected, sizeof expected, "; there is no folder %s/run; did you mean %s/runs?",
             (char *)*state, (char *)*state);
    assert_string_equal(hint, expected);
    snprintf(path, sizeof path, "%s/runs/quite_different", (char *)*state);
    ls_path_hint(path, endings, hint, sizeof hint);
    assert_string_equal(hint, "");
    snprintf(path, sizeof path, "%s/runs/link", (char *)*state);
    assert_int_equal(symlink("nothing", path), 0);
    ls_path_hint(path, NULL, hint, sizeof hint);
    assert_text_contains(hint, "/runs/link is a link to nothing");
    ls_path_hint("", endings, hint, sizeof hint);
    assert_string_equal(hint, "");
    ls_path_hint("///", NULL, hint, sizeof hint);
    assert_string_equal(hint, "");
}

/* Of a folder that is there, and of other paths, nothing is said. */
CASE(test_names_of_the_hub)
{
    static const char *const others[] = {"test/base", "model", "a/b/c", "/a/b",      "./a",
                                         "../a",      "some/", "/some", "some/ name"};
    char hint[LS_HUB_HINT_BYTES];
    ls_hub_hint("some-one/Model-1.5B", hint);
    assert_string_equal(hint, "; a model of the Hugging Face hub must be downloaded first: hf "
                              "download some-one/Model-1.5B --local-dir Model-1.5B");
    ls_hub_hint("gpt2", hint);
    assert_string_equal(hint, "; a model of the Hugging Face hub must be downloaded first: hf "
                              "download gpt2 --local-dir gpt2");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        ls_hub_hint(others[i], hint);
        assert_string_equal(hint, "");
    }
}

SUITE_MAIN(NULL, NULL)
