/* What a job prints on standard output. mpirun ends a job that writes to a pipe which nobody reads
 * any more. So a launcher whose own output is a pipe gives its jobs one that it reads itself. */
#include "launch/launch_private.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TURNS_MAX = 64 };

void launch_output_open(struct launch_output *output)
{
    struct stat own;
    int ends[2];
    *output = (struct launch_output){.read_fd = -1, .write_fd = -1};
    if (fstat(STDOUT_FILENO, &own) || !(S_ISFIFO(own.st_mode) || S_ISSOCK(own.st_mode)) ||
        pipe2(ends, O_CLOEXEC))
        return;
    output->read_fd = ends[0];
    output->write_fd = ends[1];
    fcntl(output->read_fd, F_SETFL, O_NONBLOCK);
}

/* Takes a piece once the reader has room for it. False: there is none, or no room in wait_ms. */
static bool piece_pass(const struct launch_output *output, int wait_ms)
{
    char text[PIPE_BUF];
    struct pollfd reader = {.fd = STDOUT_FILENO, .events = POLLOUT};
    if (output->read_fd < 0 || poll(&reader, 1, wait_ms) <= 0)
        return false;
    ssize_t got = read(output->read_fd, text, sizeof text);
    if (got > 0)
        (void)!write(STDOUT_FILENO, text, (size_t)got); /* to a reader who is gone, in vain */
    return got > 0;
}

void launch_output_pass(const struct launch_output *output)
{
    for (int turn = 0; turn < TURNS_MAX && piece_pass(output, 0); turn++)
        continue;
}

void launch_output_close(struct launch_output *output)
{
    while (piece_pass(output, -1))
        continue;
    if (output->read_fd >= 0) {
        close(output->read_fd);
        close(output->write_fd);
    }
    *output = (struct launch_output){.read_fd = -1, .write_fd = -1};
}
