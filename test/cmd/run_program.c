/* Runs the program by the shell, and checks its exit code and what it prints. */
#include "run_program.h"

#include "../support/await.h"
#include "../support/child.h"
#include "../support/scratch.h"
#include "../support/suite.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

void program_path(char *path, size_t bytes)
{
    const char *given = getenv("LOCKSTEP");
    if (given) {
        char *absolute = realpath(given, NULL);
        snprintf(path, bytes, "%s", absolute ? absolute : given);
        free(absolute);
        return;
    }
    char self[PATH_MAX / 2] = "";
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    for (int up = 0; up < 3; up++)
        *strrchr(self, '/') = '\0';
    snprintf(path, bytes, "%s/lockstep", self);
    if (access(path, X_OK) != 0)
        fail_msg("%s is missing: build it, or set LOCKSTEP", path);
}

int program_shell(const char *line, char output[PROGRAM_OUTPUT_BYTES])
{
    FILE *pipe = popen(line, "r");
    assert_non_null(pipe);
    size_t length = fread(output, 1, PROGRAM_OUTPUT_BYTES - 1, pipe);
    output[length] = '\0';
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int program_run(const char *before, const char *arguments, char output[PROGRAM_OUTPUT_BYTES])
{
    char path[PATH_MAX], command[2 * PATH_MAX];
    program_path(path, sizeof path);
    snprintf(command, sizeof command, "{ %s '%s' %s ; } 2>&1", before, path, arguments);
    return program_shell(command, output);
}

void program_expect_under(const char *before, const char *arguments, int code, const char *words)
{
    static char output[PROGRAM_OUTPUT_BYTES];
    int got = program_run(before, arguments, output);
    if (got != code || !strstr(output, words))
        fail_msg("lockstep %s\nexited with %d and printed:\n%s\nexpected %d and: %s", arguments,
                 got, output, code, words);
}

void program_expect(const char *arguments, int code, const char *words)
{
    program_expect_under("", arguments, code, words);
}

pid_t program_start(const char *line, int signal)
{
    pid_t child = child_fork(signal);
    if (child != 0)
        return child;
    setsid();
    for (char **variable = environ; *variable;) {
        char name[128];
        size_t length = strcspn(*variable, "=");
        snprintf(name, sizeof name, "%.*s", (int)length, *variable);
        if (strncmp(name, "SLURM_", 6) || unsetenv(name))
            variable++;
    }
    execl("/bin/sh", "sh", "-c", line, (char *)NULL);
    _exit(127);
}

void program_expect_within(const char *arguments, const char *words, size_t bytes)
{
    struct rusage usage;
    program_expect(arguments, 0, words);
    getrusage(RUSAGE_CHILDREN, &usage);
#ifdef NDEBUG
    if ((size_t)usage.ru_maxrss * 1024 > bytes)
        fail_msg("lockstep %s\ntook %ld KiB: expected at most %zu KiB", arguments, usage.ru_maxrss,
                 bytes / 1024);
#else
    print_message("SKIPPED: memory of %s: sanitizers need more (%ld KiB, bound %zu KiB)\n",
                  arguments, usage.ru_maxrss, bytes / 1024);
#endif
}

void program_corpus(const char *folder)
{
    char text[40000], enter[PATH_MAX];
    size_t length = 0;
    for (int i = 0; length < sizeof text - 64; i++)
        length += (size_t)sprintf(text + length, "%d bottles of beer on the wall,\n", i % 100);
    scratch_write(scratch_path(folder, "text.txt"), text, length);
    snprintf(enter, sizeof enter, "cd '%s';", folder);
    program_expect_under(enter, "data prepare --input text.txt --output corpus --tokenizer byte", 0,
                         "corpus_train");
}

/* ---- processes ------------------------------------------------------------------------------- */

/* A file of /proc, zeros as line ends; "" where it is gone. */
static void proc_read(const char *pid, const char *name, char *text, size_t bytes)
{
    char path[300];
    snprintf(path, sizeof path, "/proc/%s/%s", pid, name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, text, bytes - 1);
    length = length < 0 ? 0 : length;
    if (file >= 0)
        close(file);
    text[length] = '\0';
    for (ssize_t i = 0; i < length; i++)
        text[i] = text[i] ? text[i] : '\n';
}

/* Another test of the same name may run beside this one. */
static bool runs_in(const char *pid, const char *folder)
{
    char path[300];
    struct stat at, of;
    snprintf(path, sizeof path, "/proc/%s/cwd", pid);
    return !folder || (!stat(path, &at) && !stat(folder, &of) && at.st_dev == of.st_dev &&
                       at.st_ino == of.st_ino);
}

int program_ranks(const char *folder, const char *const *words, int word_count, pid_t *pids,
                  int ranks)
{
    static char text[1 << 17];
    int found = 0;
    DIR *proc = opendir("/proc");
    memset(pids, 0, (size_t)ranks * sizeof *pids);
    for (struct dirent *entry; proc && (entry = readdir(proc));) {
        if (atoi(entry->d_name) <= 0)
            continue;
        proc_read(entry->d_name, "cmdline", text, sizeof text);
        bool all = true;
        for (int i = 0; i < word_count; i++) {
            char line[2 * PATH_MAX];
            snprintf(line, sizeof line, "\n%s\n", words[i]);
            all = all && strstr(text, line);
        }
        if (!all || !runs_in(entry->d_name, folder))
            continue;
        proc_read(entry->d_name, "environ", text, sizeof text);
        const char *rank = strstr(text, "\nOMPI_COMM_WORLD_RANK=");
        rank = rank ? rank : strstr(text, "\nPMIX_RANK="); /* of srun */
        int at = rank ? atoi(strchr(rank, '=') + 1) : -1;
        if (at < 0 || at >= ranks)
            continue;
        pids[at] = (pid_t)atoi(entry->d_name);
        found++;
    }
    closedir(proc);
    return found;
}

void program_await_job(pid_t launcher, const char *log)
{
    siginfo_t info = {0};
    await_pause();
    assert_int_equal(waitid(P_PID, (id_t)launcher, &info, WEXITED | WNOHANG | WNOWAIT), 0);
    if (info.si_pid == launcher)
        fail_msg("the job ended early:\n%s", scratch_read(log, NULL));
}
