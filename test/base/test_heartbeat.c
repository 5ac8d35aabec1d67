/* A file that says that a process lives: it beats while the process runs, stands still while that
 * is stopped, and says when it is over. */
#include "../support/await.h"
#include "../support/child.h"
#include "../support/scratch.h"
#include "../support/suite.h"

#include <lockstep/base/heartbeat.h>

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const double interval_s = 0.001;

static void beats_await(const char *path, unsigned long long beats)
{
    struct ls_heartbeat_seen seen;
    while (!ls_heartbeat_read(path, &seen) || seen.beats < beats)
        await_pause();
}

CASE_WITH(test_it_beats_until_it_is_over, scratch_setup, scratch_teardown)
{
    const char *path = scratch_path(*state, "heart");
    struct ls_heartbeat *heart;
    struct ls_heartbeat_seen seen;
    struct ls_error error = {0};
    assert_false(ls_heartbeat_read(path, &seen));
    assert_int_equal(ls_heartbeat_start(&heart, path, interval_s, &error), LS_OK);
    assert_true(ls_heartbeat_read(path, &seen) && !seen.over); /* at once */
    beats_await(path, 3);
    ls_heartbeat_stop(heart);
    assert_true(ls_heartbeat_read(path, &seen) && seen.over);
    assert_int_equal(seen.pid, getpid());
    assert_true(seen.host[0] && seen.beats > 3);
    ls_heartbeat_stop(NULL);
}

/* A file that may neither grow nor shrink is one on a full disk. */
CASE(test_it_beats_in_the_room_that_is_kept_for_it)
{
    char path[64];
    struct ls_heartbeat *heart;
    struct ls_heartbeat_seen seen;
    struct ls_error error = {0};
    int full = memfd_create("heart", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(full >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", full);
    assert_int_equal(ls_heartbeat_reserve(path, &error), LS_OK);
    assert_false(ls_heartbeat_read(path, &seen));
    assert_int_equal(fcntl(full, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK), 0);
    assert_int_equal(ls_heartbeat_start(&heart, path, interval_s, &error), LS_OK);
    assert_true(ls_heartbeat_read(path, &seen) && !seen.over);
    ls_heartbeat_stop(heart);
    assert_true(ls_heartbeat_read(path, &seen) && seen.over);
    close(full);

    full = memfd_create("heart", MFD_CLOEXEC | MFD_ALLOW_SEALING); /* the twin: none was kept */
    snprintf(path, sizeof path, "/proc/self/fd/%d", full);
    assert_int_equal(fcntl(full, F_ADD_SEALS, F_SEAL_GROW), 0);
    assert_int_not_equal(ls_heartbeat_start(&heart, path, interval_s, &error), LS_OK);
    assert_int_not_equal(ls_heartbeat_reserve(path, &error), LS_OK);
    close(full);
}

/* What is read while the process is stopped is the same again and again. */
CASE_WITH(test_a_stopped_process_does_not_beat, scratch_setup, scratch_teardown)
{
    const char *path = scratch_path(*state, "heart");
    struct ls_heartbeat_seen seen, again;
    int status;
    pid_t child = child_fork(SIGKILL);
    if (child == 0) {
        struct ls_heartbeat *heart;
        ls_heartbeat_start(&heart, path, interval_s, NULL);
        for (;;)
            pause();
    }
    beats_await(path, 2);
    assert_int_equal(kill(child, SIGSTOP), 0);
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFSTOPPED(status) && ls_heartbeat_read(path, &seen));
    for (int i = 0; i < 5; i++) {
        await_pause();
        assert_true(ls_heartbeat_read(path, &again) && again.beats == seen.beats && !again.over);
    }
    assert_int_equal(again.pid, child);
    kill(child, SIGCONT);
    beats_await(path, seen.beats + 1);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
}

CASE_WITH(test_a_place_that_cannot_be_written, scratch_setup, scratch_teardown)
{
    struct ls_heartbeat *heart;
    struct ls_heartbeat_seen seen;
    struct ls_error error = {0};
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", scratch_path(*state, "nowhere/heart"));
    assert_int_equal(ls_heartbeat_start(&heart, path, 1, &error), LS_EIO);
    assert_null(heart);
    assert_non_null(strstr(error.text, "nowhere/heart: cannot write to it"));
    scratch_write(scratch_path(*state, "else"), "host", 4);
    assert_false(ls_heartbeat_read(scratch_path(*state, "else"), &seen));
}

SUITE_MAIN(NULL, NULL)
