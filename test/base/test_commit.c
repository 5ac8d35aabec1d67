/* tools/commit.sh: which commit a build says that it is. */
#include "../support/scratch.h"
#include "../support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GIT "git -c user.name=a -c user.email=a@b -c commit.gpgsign=false "

static char script[4096];

/* Runs a shell command in the directory, then the script; what it printed is in line. */
static void commit_of(const char *directory, const char *first, char line[128])
{
    char command[10000];
    snprintf(command, sizeof command, "cd '%s' && { %s; } >/dev/null 2>&1; '%s'", directory, first,
             script);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    if (!fgets(line, 128, pipe))
        line[0] = '\0';
    pclose(pipe);
    line[strcspn(line, "\n")] = '\0';
}

CASE_WITH(test_the_commit_is_told, scratch_setup, scratch_teardown)
{
    char clean[128], line[128], again[128];
    const char *root = *state;
    if (system("command -v git >/dev/null 2>&1") || access(script, X_OK)) {
        puts("SKIPPED: no git, or not the source tree");
        skip();
    }
    commit_of(root, "true", line);
    assert_string_equal(line, "unknown");
    commit_of(root, "git init -q . && echo 1 > a && git add a && " GIT "commit -qm one", clean);
    assert_int_equal(strlen(clean), 12);
    assert_int_equal(strspn(clean, "0123456789abcdef"), 12);
    commit_of(root, "echo 2 > a", line);
    assert_memory_equal(line, clean, 12);
    assert_string_equal(line + 12, "-dirty");
    commit_of(root, "git add a", line);
    assert_string_equal(line + 12, "-dirty");
    commit_of(root, GIT "commit -qm two", again);
    assert_int_equal(strlen(again), 12);
    assert_string_not_equal(again, clean);
    /* A build folder is no change; a touched file that holds the same neither. */
    commit_of(root, "mkdir build && echo 1 > build/x && touch a", line);
    assert_string_equal(line, again);
    /* A tarball that lies in another's work tree is not that one's commit. */
    commit_of(root, "mkdir inner && cd inner", line);
    assert_string_equal(line, "unknown");
}

int main(void)
{
    if (!getcwd(script, sizeof script - 32))
        return 1;
    strcat(script, "/tools/commit.sh");
    return suite_run(NULL, NULL);
}
