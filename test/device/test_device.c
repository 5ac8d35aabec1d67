/* The arena counts what it gives; the cores of the process, and its memory. */
#include "../support/suite.h"
#include "../support/wrapped.h"

#include <lockstep/device.h>

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

CASE(test_arena_measures_what_it_gives)
{
    struct ls_arena arena;
    ls_arena_measure(&arena);
    assert_null(ls_arena_take(&arena, 100));
    assert_null(ls_arena_take(&arena, 1));
    size_t need = arena.peak;
    assert_int_equal(need, 192);
    struct ls_error error = {0};
    assert_int_equal(ls_arena_init(&arena, need, &error), LS_OK);
    unsigned char *first = ls_arena_take(&arena, 100), *second = ls_arena_take(&arena, 1);
    assert_int_equal(second - first, 128);
    assert_int_equal((uintptr_t)first % 64, 0);
    ls_arena_release(&arena);
}

CASE(test_aligned_pieces_are_measured_the_same)
{
    struct ls_arena arena;
    struct ls_error error = {0};
    ls_arena_measure(&arena);
    ls_arena_take(&arena, 100);
    ls_arena_take_aligned(&arena, 5000, 4096);
    ls_arena_take(&arena, 1);
    assert_int_equal(arena.peak, 4096 + 5056 + 64);
    size_t need = arena.peak;
    assert_int_equal(ls_arena_init(&arena, need, &error), LS_OK);
    unsigned char *first = ls_arena_take(&arena, 100);
    unsigned char *second = ls_arena_take_aligned(&arena, 5000, 4096);
    assert_int_equal(second - first, 4096);
    assert_int_equal((uintptr_t)second % 4096, 0);
    ls_arena_take(&arena, 1);
    assert_int_equal(arena.peak, need);
    ls_arena_release(&arena);
}

CASE(test_arena_reset_frees_what_came_after)
{
    struct ls_arena arena;
    struct ls_error error = {0};
    assert_int_equal(ls_arena_init(&arena, 1024, &error), LS_OK);
    ls_arena_take(&arena, 64);
    size_t mark = arena.used;
    void *first = ls_arena_take(&arena, 512);
    ls_arena_reset(&arena, mark);
    assert_ptr_equal(ls_arena_take(&arena, 128), first);
    assert_int_equal(arena.peak, 576);
    ls_arena_release(&arena);
    assert_null(arena.base);
}

CASE(test_memory_that_cannot_be_had_is_an_error)
{
    struct ls_arena arena;
    struct ls_error error = {0};
    assert_int_equal(ls_arena_init(&arena, (size_t)1 << 62, &error), LS_ENOMEM);
    assert_int_equal(error.code, LS_ENOMEM);
    ls_arena_release(&arena);
}

/* More than any machine has, at no cost; a touch ends the process. */
CASE(test_reserved_memory_cannot_be_touched)
{
    struct ls_arena arena;
    struct ls_error error = {0};
    int status;
    assert_int_equal(ls_arena_reserve(&arena, (size_t)1 << 44, &error), LS_OK);
    volatile char *first = ls_arena_take(&arena, 100);
    volatile char *second = ls_arena_take(&arena, ((size_t)1 << 44) - 128);
    assert_non_null(first);
    assert_ptr_equal(second, first + 128);
    assert_true(arena.measuring);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* not cmocka's */
        signal(SIGBUS, SIG_DFL);
        _exit(second[0] != 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ls_arena_release(&arena);
}

WRAPPED(sched_getaffinity);
WRAPPED(sysconf);
enum { MANY = 2048, OWN = 8 }; /* more than a cpu_set_t has bits; the process may use the last */
static enum { THIS, LARGE, SILENT } machine;

int __wrap_sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set)
{
    if (machine == THIS)
        return __real_sched_getaffinity(pid, bytes, set);
    errno = EINVAL;
    if (machine == SILENT || 8 * bytes < MANY)
        return -1;
    CPU_ZERO_S(bytes, set);
    for (int i = 1; i <= OWN; i++)
        CPU_SET_S(MANY - i, bytes, set);
    return 0;
}

long __wrap_sysconf(int name)
{
    return machine != THIS && name == _SC_NPROCESSORS_ONLN ? MANY : __real_sysconf(name);
}

CASE(test_cores)
{
    assert_true(ls_device_cores() >= 1);
    machine = LARGE;
    int own = ls_device_cores();
    machine = SILENT;
    int all = ls_device_cores();
    machine = THIS;
    assert_int_equal(own, OWN);
    assert_int_equal(all, MANY);
}

/* ---- what control groups grant --------------------------------------------------------------- */

/* A machine of 1,000 MiB, and the groups of a process there. */
struct small_file {
    const char *path, *text;
};
#define MACHINE                                                                                    \
    {                                                                                              \
        "/proc/meminfo", "MemTotal: 1024000 kB\nMemFree: 1 kB\nMemAvailable: 921600 kB\n"          \
    }
static const struct small_file none[] = {MACHINE, {NULL, NULL}};
/* 400 of the job's 500 MiB are taken, 100 of them by files; its step has no bound. */
static const struct small_file unified[] = {
    MACHINE,
    {"/proc/self/cgroup", "0::/job/step\n"},
    {"/sys/fs/cgroup/job/step/memory.max", "max\n"},
    {"/sys/fs/cgroup/job/step/memory.current", "20971520\n"},
    {"/sys/fs/cgroup/job/memory.max", "524288000\n"},
    {"/sys/fs/cgroup/job/memory.current", "419430400\n"},
    {"/sys/fs/cgroup/job/memory.stat", "anon 9\nfile 9\nshmem 9\ninactive_file 52428800\n"
                                       "active_file 41943040\nslab_reclaimable 10485760\n"},
    {NULL, NULL}};
static const struct small_file version_1[] = {
    MACHINE,
    {"/proc/self/cgroup", "5:devices:/\n4:memory:/job\n0::/\n"},
    {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
    {"/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "524288000\n"},
    {"/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "419430400\n"},
    {"/sys/fs/cgroup/memory/job/memory.stat",
     "inactive_file 1\ntotal_inactive_file 52428800\ntotal_active_file 52428800\n"},
    {NULL, NULL}};
static const struct small_file full[] = {MACHINE,
                                         {"/proc/self/cgroup", "0::/\n"},
                                         {"/sys/fs/cgroup/memory.max", "524288000\n"},
                                         {"/sys/fs/cgroup/memory.current", "524288000\n"},
                                         {NULL, NULL}};
static const struct small_file *files; /* NULL: what is there */

WRAPPED(fopen);
FILE *__wrap_fopen(const char *path, const char *mode)
{
    for (const struct small_file *file = files; file && file->path; file++)
        if (strcmp(file->path, path) == 0)
            return fmemopen((void *)file->text, strlen(file->text), "r");
    return files ? NULL : __real_fopen(path, mode);
}

CASE(test_free_memory_is_what_is_left_of_a_group)
{
    static const struct {
        const struct small_file *files;
        int64_t group, total, free; /* MiB */
    } cases[] = {{none, 0, 1000, 900}, {unified, 500, 500, 200}, {version_1, 500, 500, 200}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        files = cases[i].files;
        struct ls_device_memory memory = ls_device_memory();
        files = NULL;
        assert_int_equal(memory.installed, INT64_C(1000) << 20);
        assert_int_equal(memory.available, INT64_C(900) << 20);
        assert_int_equal(memory.group, cases[i].group << 20);
        assert_int_equal(memory.total, cases[i].total << 20);
        assert_int_equal(memory.free, cases[i].free << 20);
    }
    files = full;
    struct ls_device_memory memory = ls_device_memory();
    files = NULL;
    assert_int_equal(memory.free, 1); /* 0 would be unknown */
}

SUITE_MAIN(NULL, NULL)
