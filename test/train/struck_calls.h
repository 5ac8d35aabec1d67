/* System calls of snapshots that are struck: the process is killed before one of them, or it fails.
 * What the linker puts in the place of open, fsync, mkdir, rename, unlinkat and rmdir (Makefile,
 * "wrap"), of which the last two do not fail; the test's own write and renameat2 begin with
 * FAIL_BEFORE. Included by the one file of such a test.
 */
#ifndef TEST_TRAIN_STRUCK_CALLS_H
#define TEST_TRAIN_STRUCK_CALLS_H

#include "../support/scratch.h"
#include "../support/wrapped.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char watched[PATH_MAX]; /* calls below this folder count */
static _Atomic int calls;      /* of all ranks */
static int strikes_at;         /* of these, from 1; 0: never */
static int strike;             /* an errno; 0: SIGKILL */
static _Atomic bool lasts;     /* all of them fail, not that one alone */

/* Before a call: the errno that it is to fail with. */
static int before(const char *path)
{
    size_t length = strlen(watched);
    if (!length || strncmp(path, watched, length))
        return 0;
    if (++calls != strikes_at && !lasts)
        return 0;
    if (strike == 0)
        raise(SIGKILL);
    return strike;
}

#define FAIL_BEFORE(path)                                                                          \
    do {                                                                                           \
        int failure = before(path);                                                                \
        if (failure) {                                                                             \
            errno = failure;                                                                       \
            return -1;                                                                             \
        }                                                                                          \
    } while (0)

WRAPPED(open);
int __wrap_open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if (flags & O_CREAT)
        FAIL_BEFORE(path);
    return __real_open(path, flags, mode);
}

WRAPPED(fsync);
int __wrap_fsync(int file)
{
    FAIL_BEFORE(path_of(file));
    return 0; /* nothing here outlasts the machine */
}

WRAPPED(mkdir);
int __wrap_mkdir(const char *path, mode_t mode)
{
    FAIL_BEFORE(path);
    return __real_mkdir(path, mode);
}

WRAPPED(rename);
int __wrap_rename(const char *from, const char *to)
{
    FAIL_BEFORE(from);
    return __real_rename(from, to);
}

WRAPPED(unlinkat);
int __wrap_unlinkat(int folder, const char *name, int flags)
{
    if (strike == 0)
        before(path_of(folder));
    return __real_unlinkat(folder, name, flags);
}

WRAPPED(rmdir);
int __wrap_rmdir(const char *path)
{
    if (strike == 0)
        before(path);
    return __real_rmdir(path);
}

/* The step of a checkpoint that a rename gives its name; -1: of no checkpoint. */
static int64_t step_named(const char *to)
{
    static const char mark[] = "/checkpoints/step-";
    const char *step = strstr(to, mark);
    return step ? strtol(step + strlen(mark), NULL, 10) : -1;
}

#endif
