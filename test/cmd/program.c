#include "program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

int program_run(const char *before, const char *arguments, char output[PROGRAM_OUTPUT_BYTES])
{
    char path[PATH_MAX], command[2 * PATH_MAX];
    program_path(path, sizeof path);
    snprintf(command, sizeof command, "{ %s '%s' %s ; } 2>&1", before, path, arguments);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t length = fread(output, 1, PROGRAM_OUTPUT_BYTES - 1, pipe);
    output[length] = '\0';
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
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
