/* One holder at a time: in this process, in others, among many that start at once; after a kill;
 * on a file system without locks. */
#include <lockstep/base/lock.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/child.h"
#include "../support/scratch.h"
#include "../support/suite.h"

static void write_text(const char *path, const char *text)
{
    scratch_write(path, text, strlen(text));
}

CASE_WITH(test_one_holder, scratch_setup, scratch_teardown)
{
    struct ls_lock first, second;
    struct ls_error error = {0};
    char who[64];
    const char *run = scratch_path(*state, "run");
    assert_int_equal(ls_lock_take(&first, run, NULL, &error), LS_OK);
    assert_string_equal(ls_lock_former(&first), "");
    assert_int_equal(ls_lock_take(&second, run, NULL, &error), LS_EBUSY);
    snprintf(who, sizeof who, "process %ld on ", (long)getpid());
    if (!strstr(error.text, who) || !strstr(error.text, ", since 2"))
        fail_msg("%s", error.text);
    ls_lock_release(&second); /* does nothing */
    assert_int_equal(ls_lock_take(&second, run, NULL, &error), LS_EBUSY);
    ls_lock_release(&first);
    assert_int_equal(access(run, F_OK), -1); /* it was made for the lock, and nothing came */
    assert_int_equal(ls_lock_take(&second, run, NULL, &error), LS_OK);
    write_text(scratch_path(*state, "run/kept"), "x");
    ls_lock_release(&second);
    assert_int_equal(access(run, F_OK), 0);
    assert_int_equal(scratch_count(run), 1);
}

/* So are those above it, however the path is written, and what stood there stays. */
CASE_WITH(test_directories_above, scratch_setup, scratch_teardown)
{
    static const char *const paths[] = {"a/b/run", "a//b///run/", "a/./run", "here/run",
                                        "here/a/run"};
    struct ls_lock first, second;
    struct ls_error error = {0};
    assert_int_equal(mkdir(scratch_path(*state, "here"), 0777), 0);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        assert_ok(ls_lock_take(&first, scratch_path(*state, paths[i]), NULL, &error), error);
        assert_int_equal(ls_lock_take(&second, scratch_path(*state, paths[i]), NULL, &error),
                         LS_EBUSY);
        ls_lock_release(&first);
        assert_int_equal(scratch_count(*state), 1);
        assert_int_equal(scratch_count(scratch_path(*state, "here")), 0);
    }
    assert_ok(ls_lock_take(&first, scratch_path(*state, "a/b/run"), NULL, &error), error);
    write_text(scratch_path(*state, "a/kept"), "x");
    ls_lock_release(&first);
    assert_int_equal(scratch_count(scratch_path(*state, "a")), 1);
}

/* A directory that stood there before stays, also empty. */
CASE_WITH(test_the_users_directory_stays, scratch_setup, scratch_teardown)
{
    struct ls_lock lock;
    struct ls_error error = {0};
    assert_int_equal(ls_lock_take(&lock, *state, NULL, &error), LS_OK);
    ls_lock_release(&lock);
    assert_int_equal(scratch_count(*state), 0);
}

/* A directory that gets another name while it is locked: the holder sees it, and leaves alone what
 * stands under the old name by then. */
CASE_WITH(test_a_directory_that_moves, scratch_setup, scratch_teardown)
{
    struct ls_lock first, second;
    struct ls_error error = {0};
    char now[PATH_MAX], run[PATH_MAX], moved[PATH_MAX];
    snprintf(run, sizeof run, "%s", scratch_path(*state, "run"));
    snprintf(moved, sizeof moved, "%s", scratch_path(*state, "moved"));
    assert_int_equal(ls_lock_take(&first, run, NULL, &error), LS_OK);
    assert_true(ls_lock_in_place(&first, now));
    assert_string_equal(now, run);
    assert_int_equal(rename(run, moved), 0);
    assert_false(ls_lock_in_place(&first, now));
    assert_non_null(strstr(now, "/moved"));
    assert_int_equal(ls_lock_take(&second, run, NULL, &error), LS_OK);
    assert_false(ls_lock_in_place(&first, now));
    assert_non_null(strstr(now, "/moved"));
    ls_lock_release(&first);
    assert_int_equal(scratch_count(moved), 0);
    assert_int_equal(scratch_count(run), 1);
    assert_int_equal(remove(scratch_path(*state, "run/lock")), 0); /* no move */
    assert_true(ls_lock_in_place(&second, now));
    assert_int_equal(remove(run), 0);
    assert_false(ls_lock_in_place(&second, now));
    assert_string_equal(now, "");
    ls_lock_release(&second);
    assert_int_equal(scratch_count(*state), 1);
}

/* A link to the directory is a name of it. */
CASE_WITH(test_a_link_to_the_directory, scratch_setup, scratch_teardown)
{
    struct ls_lock lock;
    struct ls_error error = {0};
    char now[PATH_MAX], link[PATH_MAX];
    const char *run = scratch_path(*state, "run");
    snprintf(link, sizeof link, "%s", scratch_path(*state, "link"));
    assert_int_equal(mkdir(run, 0777), 0);
    assert_int_equal(symlink("run", link), 0);
    assert_int_equal(ls_lock_take(&lock, link, NULL, &error), LS_OK);
    assert_true(ls_lock_in_place(&lock, now));
    assert_int_equal(remove(link), 0);
    assert_false(ls_lock_in_place(&lock, now));
    assert_non_null(strstr(now, "/run"));
    ls_lock_release(&lock);
    assert_int_equal(scratch_count(run), 0);
}

/* A child takes the lock, says so and sleeps. */
static pid_t child_holds(const char *run)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t child = child_fork(SIGKILL);
    if (child == 0) {
        struct ls_lock lock;
        byte = ls_lock_take(&lock, run, NULL, NULL) ? 'n' : 'y';
        (void)!write(ready[1], &byte, 1);
        pause();
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    close(ready[0]);
    close(ready[1]);
    return child;
}

CASE_WITH(test_a_killed_holder_is_no_obstacle, scratch_setup, scratch_teardown)
{
    struct ls_lock lock;
    struct ls_error error = {0};
    char who[64];
    const char *run = scratch_path(*state, "run");
    pid_t child = child_holds(run);
    snprintf(who, sizeof who, "process %ld on ", (long)child);
    assert_int_equal(ls_lock_take(&lock, run, NULL, &error), LS_EBUSY);
    assert_non_null(strstr(error.text, who));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_int_equal(ls_lock_take(&lock, run, NULL, &error), LS_OK);
    if (!strstr(ls_lock_former(&lock), who))
        fail_msg("%s", ls_lock_former(&lock));
    ls_lock_release(&lock);
}

/* Many processes take, count alone and release, as fast as they can: two at once would lose a
 * count. The directory comes and goes under them. */
enum { CHILDREN = 8, ROUNDS = 60 };

static void child_counts(const char *run, const char *total)
{
    for (int done = 0; done < ROUNDS;) {
        struct ls_lock lock;
        int code = ls_lock_take(&lock, run, NULL, NULL);
        if (code == LS_EBUSY)
            continue;
        if (code)
            _exit(1);
        size_t bytes;
        char *text = scratch_read(total, &bytes), more[32];
        snprintf(more, sizeof more, "%d", atoi(text) + 1);
        write_text(total, more);
        free(text);
        ls_lock_release(&lock);
        done++;
    }
    _exit(0);
}

CASE_WITH(test_many_at_once, scratch_setup, scratch_teardown)
{
    char run[512], total[512];
    snprintf(run, sizeof run, "%s", scratch_path(*state, "run"));
    snprintf(total, sizeof total, "%s", scratch_path(*state, "total"));
    write_text(total, "0");
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            child_counts(run, total);
    }
    for (int i = 0; i < CHILDREN; i++) {
        int status;
        wait(&status);
        assert_int_equal(status, 0);
    }
    char *text = scratch_read(total, NULL);
    assert_int_equal(atoi(text), CHILDREN * ROUNDS);
    free(text);
}

/* ---- a file system without locks ------------------------------------------------------------- */

static int no_locks(void *user, const char *call)
{
    return strcmp(call, "flock") ? 0 : ENOLCK;
}
static const struct ls_fault without = {.before = no_locks};

CASE_WITH(test_without_locks_the_file_is_read, scratch_setup, scratch_teardown)
{
    struct ls_lock lock, second;
    struct ls_error error = {0};
    char host[128] = "", text[512], path[512];
    snprintf(path, sizeof path, "%s", scratch_path(*state, "lock"));
    gethostname(host, sizeof host - 1);
    assert_int_equal(ls_lock_take(&lock, *state, &without, &error), LS_OK);
    assert_int_equal(ls_lock_take(&second, *state, &without, &error), LS_EBUSY);
    ls_lock_release(&lock);
    /* A process of this host that has ended, though another has its number now. */
    snprintf(text, sizeof text, "host %s\npid %ld\nstarted 1\nsince 2026-01-01T00:00:00Z\n", host,
             (long)getpid());
    write_text(path, text);
    assert_int_equal(ls_lock_take(&lock, *state, &without, &error), LS_OK);
    assert_non_null(strstr(ls_lock_former(&lock), host));
    ls_lock_release(&lock);
    /* One that has ended, and whose parent has not asked how. */
    pid_t child = fork();
    if (child == 0)
        _exit(ls_lock_take(&lock, *state, &without, NULL));
    siginfo_t ended;
    assert_int_equal(waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT), 0);
    assert_int_equal(ended.si_status, LS_OK);
    assert_int_equal(ls_lock_look(*state, text, sizeof text), LS_LOCK_LEFT);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(ls_lock_take(&lock, *state, &without, &error), LS_OK);
    ls_lock_release(&lock);
    /* Of another host nothing is known: the file to remove is named. */
    write_text(path, "host elsewhere\npid 17\nstarted 9\nsince 2026-01-01T00:00:00Z\n");
    assert_int_equal(ls_lock_take(&lock, *state, &without, &error), LS_EBUSY);
    if (!strstr(error.text, "process 17 on elsewhere") || !strstr(error.text, "remove ") ||
        !strstr(error.text, path))
        fail_msg("%s", error.text);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(ls_lock_take(&lock, *state, &without, &error), LS_OK);
    ls_lock_release(&lock);
}

/* Whatever the file holds, it is no obstacle where locks work. */
CASE_WITH(test_any_content, scratch_setup, scratch_teardown)
{
    static const char *const texts[] = {"",
                                        "\n",
                                        "host",
                                        "host a\npid -3\n",
                                        "\xff\xfe junk",
                                        "host elsewhere\npid 17\nstarted 9\nsince now\n"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct ls_lock lock;
        struct ls_error error = {0};
        write_text(scratch_path(*state, "lock"), texts[i]);
        assert_int_equal(ls_lock_take(&lock, *state, NULL, &error), LS_OK);
        ls_lock_release(&lock);
    }
}

static void expect_no_lock(const char *run)
{
    struct ls_lock lock;
    struct ls_error error = {0};
    char who[64];
    assert_int_equal(ls_lock_look(run, who, sizeof who), LS_LOCK_FREE);
    assert_int_equal(ls_lock_take(&lock, run, NULL, &error), LS_EIO);
    if (!strstr(error.text, "/lock is no regular file") || !strstr(error.text, "remove it"))
        fail_msg("%s", error.text);
    ls_lock_release(&lock); /* does nothing */
}

/* What a link names is kept, and nothing waits for a pipe's other end. */
CASE_WITH(test_only_a_regular_file, scratch_setup, scratch_teardown)
{
    char path[512], kept[512], absent[512];
    snprintf(path, sizeof path, "%s", scratch_path(*state, "lock"));
    snprintf(kept, sizeof kept, "%s", scratch_path(*state, "kept"));
    snprintf(absent, sizeof absent, "%s", scratch_path(*state, "absent"));
    write_text(kept, "precious");
    assert_int_equal(symlink(kept, path), 0);
    expect_no_lock(*state);
    char *text = scratch_read(kept, NULL);
    assert_string_equal(text, "precious");
    free(text);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(absent, path), 0);
    expect_no_lock(*state);
    assert_int_equal(access(absent, F_OK), -1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_no_lock(*state);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    expect_no_lock(*state);
    assert_int_equal(rmdir(path), 0);
}

SUITE_MAIN(NULL, NULL)
