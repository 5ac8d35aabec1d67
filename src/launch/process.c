/* Processes that the launcher starts, and those that they leave behind. */
#include "launch/launch_private.h"

#include <lockstep/base/file.h>
#include <lockstep/base/lock.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAUSE_MS = 5, SWEEP_S = 10 };

void process_clean(void)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    setpgid(0, 0);
}

/* The child's side of process_run. */
static _Noreturn void run_child(char *const argv[], int input, int output)
{
    process_clean();
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(input, STDIN_FILENO);
    dup2(output >= 0 ? output : nothing, STDOUT_FILENO);
    if (output < 0)
        dup2(nothing, STDERR_FILENO);
    execvp(argv[0], argv);
    _exit(127);
}

/* Reads what is there until the child and who holds its output have ended, or time is up. */
static void output_read(int fd, char *output, size_t bytes, double until_s)
{
    size_t used = 0;
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    for (ssize_t got = 1; got > 0 && ls_now_s() < until_s;) {
        char rest[1024];
        if (poll(&wait, 1, PAUSE_MS) <= 0)
            continue;
        bool room = used + 1 < bytes;
        got = read(fd, room ? output + used : rest, room ? bytes - 1 - used : sizeof rest);
        used += room && got > 0 ? (size_t)got : 0;
    }
    output[used] = '\0';
}

static int ended(pid_t child, double until_s)
{
    int status = 0;
    pid_t got;
    while ((got = waitpid(child, &status, WNOHANG)) == 0 && ls_now_s() < until_s)
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL);
    if (got < 0)
        return PROCESS_FAILED;
    if (got == 0) {
        kill(-child, SIGKILL);
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        return -1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A descriptor from which text is read: of a file in memory, so that a child that ends without
 * reading neither holds up its parent nor ends it by SIGPIPE; text NULL: there is none. -1 on
 * failure. */
static int input_open(const char *text)
{
    struct ls_atomic_file file;
    struct ls_file_maps *maps = NULL;
    int fd;
    if (!text)
        return open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (ls_memory_file_open(&file, "input", &maps, NULL, NULL))
        return -1;
    ls_atomic_file_write(&file, text, strlen(text));
    if (!ls_memory_file_take(&file, &fd, NULL))
        lseek(fd, 0, SEEK_SET);
    return fd;
}

int process_run(char *const argv[], const char *input, char *output, size_t bytes, double limit_s)
{
    double until_s = ls_now_s() + limit_s;
    int in = input_open(input), out[2] = {-1, -1};
    if (output)
        output[0] = '\0';
    if (in < 0)
        return PROCESS_FAILED;
    if (output && pipe2(out, O_CLOEXEC)) {
        close(in);
        return PROCESS_FAILED;
    }
    pid_t child = fork();
    int why = errno;
    if (child == 0)
        run_child(argv, in, out[1]);
    close(in);
    if (output) {
        close(out[1]);
        if (child > 0)
            output_read(out[0], output, bytes, until_s);
        close(out[0]);
    }
    errno = why;
    return child > 0 ? ended(child, until_s) : PROCESS_FAILED;
}

/* Its side: holds nothing of its parent's but the descriptor. */
static _Noreturn void guard(int pidfd, pid_t parent, int patience_ms)
{
    struct pollfd end = {.fd = pidfd, .events = POLLIN};
    sigset_t term;
    int got;
    process_clean();
    if (pidfd > STDERR_FILENO + 1)
        close_range(STDERR_FILENO + 1, (unsigned)pidfd - 1, 0);
    close_range((unsigned)pidfd + 1, ~0U, 0);
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, NULL);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    while (getppid() == parent)
        sigwait(&term, &got);
    if (poll(&end, 1, patience_ms) == 0)
        syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
    _exit(0);
}

void process_guard(pid_t child, double patience_s)
{
    pid_t self = getpid();
    int pidfd = (int)syscall(SYS_pidfd_open, child, 0);
    if (pidfd >= 0 && fork() == 0)
        guard(pidfd, self, (int)(1000 * patience_s));
    if (pidfd >= 0)
        close(pidfd);
}

bool process_children_are(pid_t parent, const char *states)
{
    int count = 0, others = 0;
    DIR *proc = opendir("/proc");
    for (struct dirent *entry; proc && (entry = readdir(proc));) {
        const struct ls_process child = ls_process_look(atol(entry->d_name));
        if (child.parent != parent)
            continue;
        count++;
        others += !strchr(states, child.state);
    }
    if (proc)
        closedir(proc);
    return count > 0 && others == 0;
}

bool process_is_stopped(pid_t pid)
{
    char state = ls_process_look(pid).state;
    return state == 'T' || state == 't';
}

/* Clock ticks since boot: who began by then is none of the job's. */
static unsigned long long others_until;

void process_begin(void)
{
    DIR *proc = opendir("/proc");
    others_until = 0;
    for (struct dirent *entry; proc && (entry = readdir(proc));)
        others_until = ls_max(others_until, ls_process_look(atol(entry->d_name)).started);
    if (proc)
        closedir(proc);
    nanosleep(&(struct timespec){.tv_nsec = 1000000000L / sysconf(_SC_CLK_TCK)}, NULL);
}

/* Kills and waits for those that there are now: how many there were; *left: and did not end yet. */
static int children_kill(pid_t self, int *left)
{
    int count = 0;
    DIR *proc = opendir("/proc");
    *left = 0;
    for (struct dirent *entry; proc && (entry = readdir(proc));) {
        pid_t pid = (pid_t)atol(entry->d_name);
        const struct ls_process child = ls_process_look(pid);
        if (child.parent != self)
            continue;
        if (child.started <= others_until) {
            waitpid(pid, NULL, WNOHANG);
            continue;
        }
        kill(pid, SIGKILL);
        *left += waitpid(pid, NULL, WNOHANG) == 0;
        count++;
    }
    if (proc)
        closedir(proc);
    return count;
}

int process_sweep(void)
{
    double until_s = ls_now_s() + SWEEP_S;
    int left = 0;
    while (children_kill(getpid(), &left) > 0 && ls_now_s() < until_s)
        if (left > 0)
            nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL);
    return left;
}
