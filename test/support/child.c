/* Starts processes that end with the test program. */
#include "child.h"
#include "testing.h"

#include <errno.h>
#include <sys/prctl.h>
#include <unistd.h>

pid_t child_fork(int signal)
{
    pid_t parent = getpid(), child = fork();
    if (child < 0)
        fail_msg("no process: %s", strerror(errno));
    if (child > 0)
        return child;
    prctl(PR_SET_PDEATHSIG, signal);
    if (getppid() != parent) /* it has ended already */
        _exit(1);
    return 0;
}
