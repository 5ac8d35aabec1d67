/* The arena counts what it gives; the cores of the process. */
#include "../support/suite.h"
#include "../support/wrapped.h"

#include <lockstep/device.h>

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
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

SUITE_MAIN(NULL, NULL)
