/* What a job prints on standard output. mpirun ends a job that writes to a pipe which nobody reads
 * any more. So a launcher whose own output is a pipe gives its jobs one that it reads itself. */
#include "launch/launch_private.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TURNS_MAX = 64, WAIT_MS = 50 };

void launch_output_open(struct launch_output *output, const volatile int *asked)
{
    struct stat own;
    int ends[2];
    *output = (struct launch_output){.read_fd = -1, .write_fd = -1, .asked = asked};
    if (fstat(STDOUT_FILENO, &own) || !(S_ISFIFO(own.st_mode) || S_ISSOCK(own.st_mode)) ||
        pipe2(ends, O_CLOEXEC))
        return;
    output->read_fd = ends[0];
    output->write_fd = ends[1];
    fcntl(output->read_fd, F_SETFL, O_NONBLOCK);
}

/* False for fd -1. */
static bool is_ready(int fd, short events, int wait_ms)
{
    struct pollfd end = {.fd = fd, .events = events};
    return poll(&end, 1, wait_ms) > 0;
}

/* Whether a job printed something that is still here. */
static bool is_held(const struct launch_output *output)
{
    return is_ready(output->read_fd, POLLIN, 0);
}

/* False: there is nothing to hand on, or the reader has no room for it in wait_ms. */
static bool piece_pass(const struct launch_output *output, int wait_ms)
{
    char text[PIPE_BUF];
    if (!is_held(output) || !is_ready(STDOUT_FILENO, POLLOUT, wait_ms))
        return false;
    ssize_t got = read(output->read_fd, text, sizeof text);
    if (got > 0)
        (void)!write(STDOUT_FILENO, text, (size_t)got); /* to a reader who is gone, in vain */
    return got > 0;
}

void launch_output_pass(struct launch_output *output)
{
    output->seen = *output->asked;
    for (int turn = 0; turn < TURNS_MAX && piece_pass(output, 0); turn++)
        continue;
}

void launch_output_close(struct launch_output *output)
{
    bool waits;
    do
        waits = *output->asked == output->seen && *output->asked <= 1;
    while (piece_pass(output, waits ? WAIT_MS : 0) || (waits && is_held(output)));
    if (output->read_fd >= 0) {
        close(output->read_fd);
        close(output->write_fd);
    }
    *output = (struct launch_output){.read_fd = -1, .write_fd = -1, .asked = output->asked};
}
