/* A file that loses its end before the n-th read of a program. The program wraps ls_fd_read
 * (Makefile, "wrap"). */
#ifndef TEST_SUPPORT_CUT_BEFORE_READ_H
#define TEST_SUPPORT_CUT_BEFORE_READ_H

#include "suite.h"
#include "wrapped.h"

#include <lockstep/base/file.h>

#include <stdatomic.h>
#include <unistd.h>

/* Before the n-th read from now (from 0) that file loses its end; n < 0: none does. */
static struct {
    _Atomic long n;
    const char *path;
    off_t bytes;
} cut = {.n = -1};

WRAPPED(ls_fd_read);
int __wrap_ls_fd_read(int fd, int64_t at, void *buffer, size_t bytes, size_t *done)
{
    if (atomic_load(&cut.n) >= 0 && atomic_fetch_sub(&cut.n, 1) == 0)
        assert_int_equal(truncate(cut.path, cut.bytes), 0);
    return __real_ls_fd_read(fd, at, buffer, bytes, done);
}

#endif
