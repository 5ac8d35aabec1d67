/* The file of a memory tier: what is refused at the start, who may use it, and that nothing of it
 * stays. */
/* check: disk */
#include "../support/child.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "tiers.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 3 << 20 }; /* more than a piece */

static int open_status(const char *folder, size_t bytes, const struct ls_fault *fault,
                       struct ls_tier **tier, struct ls_error *error)
{
    struct ls_tier_options options = {
        .kind = LS_TIER_FILE, .bytes = bytes, .folder = folder, .rank = 3, .fault = fault};
    *error = (struct ls_error){0};
    return ls_tier_new(&options, tier, error);
}

/* The code and parts of the text with which a tier of this folder is refused. */
static void check_refused(const char *folder, size_t bytes, int code, const char *part)
{
    struct ls_tier *tier;
    struct ls_error error;
    int status = open_status(folder, bytes, NULL, &tier, &error);
    if (status != code || !strstr(error.text, part))
        fail_msg("%s: %s (expected %s, ...%s...)", ls_status_name(status), error.text,
                 ls_status_name(code), part);
    assert_null(tier);
}

/* One write and one read. */
static void check_works(struct ls_tier *tier)
{
    struct ls_transfer out = {0}, in = {0};
    struct ls_error error = {0};
    unsigned char *from = device_new(BYTES), *to = device_new(BYTES);
    pattern_fill(from, BYTES, 5);
    assert_int_equal(ls_tier_write(tier, 0, from, BYTES - 1, &out, &error), LS_OK);
    assert_int_equal(ls_tier_read(tier, 0, to, BYTES - 1, &in, &error), LS_OK);
    assert_int_equal(ls_transfer_wait(&out, &error), LS_OK);
    assert_int_equal(ls_transfer_wait(&in, &error), LS_OK);
    assert_int_equal(pattern_differs(to, BYTES - 1, 5), 0);
    free(from);
    free(to);
}

CASE_WITH(test_nothing_stays, scratch_setup, scratch_teardown)
{
    struct ls_tier *tier;
    struct ls_error error;
    struct stat status;
    const char *folder = scratch_path(*state, "tier");
    assert_int_equal(open_status(folder, BYTES, NULL, &tier, &error), LS_OK);
    assert_int_equal(stat(scratch_path(folder, "rank-00003.offload/data"), &status), 0);
    assert_int_equal(status.st_size, BYTES);
    assert_true(status.st_blocks * 512 >= BYTES);
    check_works(tier);
    ls_tier_free(tier);
    assert_int_equal(scratch_count(*state), 0);
    assert_int_equal(mkdir(folder, 0777), 0); /* who had it before keeps it */
    assert_int_equal(open_status(folder, BYTES, NULL, &tier, &error), LS_OK);
    ls_tier_free(tier);
    assert_int_equal(scratch_count(folder), 0);
}

CASE_WITH(test_refused_starts, scratch_setup, scratch_teardown)
{
    struct statvfs system;
    const char *folder = scratch_path(*state, "absent/tier");
    check_refused(folder, BYTES, LS_EIO, "absent/tier: the folder that should contain it");
    const char *file = scratch_path(*state, "file");
    scratch_write(file, "x", 1);
    check_refused(file, BYTES, LS_EIO, "file: cannot make the folder: Not a directory");
    assert_int_equal(unlink(file), 0);
    check_refused("/proc/self", BYTES, LS_EIO, "/proc/self/rank-00003.offload");
    char *long_path = calloc(1, 5000);
    memset(long_path, 'x', 4090);
    check_refused(long_path, BYTES, LS_EINVAL, "longer than");
    free(long_path);
    assert_int_equal(statvfs(*state, &system), 0);
    size_t too_much = (system.f_bavail * system.f_frsize / 4096 + 100000) * 4096;
    check_refused(*state, too_much, LS_ENOSPC, "GiB free; make room");
    assert_int_equal(scratch_count(*state), 0);
}

/* Every call of a start fails once, with every n: the tier is refused, or gets by without it. */
CASE_WITH(test_every_call_of_a_start_fails, scratch_setup, scratch_teardown)
{
    static const int errnos[] = {EIO, ENOSPC, EROFS, EOPNOTSUPP, EINTR};
    const char *folder = scratch_path(*state, "tier");
    for (size_t e = 0; e < sizeof errnos / sizeof *errnos; e++) {
        int refused = 0, started = 0;
        for (int64_t n = 0;; n++) {
            struct ls_tier *tier;
            struct ls_error error;
            struct failing failing;
            failing_init(&failing, NULL, n, errnos[e]);
            int status = open_status(folder, BYTES, &failing.fault, &tier, &error);
            refused += status != LS_OK;
            started += status == LS_OK;
            int64_t calls = failing.seen;
            failing.first = -1;
            if (status)
                assert_int_equal(status, errnos[e] == ENOSPC ? LS_ENOSPC : LS_EIO);
            else
                check_works(tier);
            ls_tier_free(tier);
            assert_int_equal(scratch_count(*state), 0);
            if (calls <= n)
                break;
        }
        assert_true(refused >= 2 && started >= 2);
    }
}

/* Without O_DIRECT, fallocate or io_uring the same comes back. */
CASE_WITH(test_what_a_file_system_lacks, scratch_setup, scratch_teardown)
{
    static const struct {
        const char *call;
        int errno_value;
        const char *text;
    } cases[] = {{"fcntl", EINVAL, "(buffered: no O_DIRECT here: Invalid argument, "},
                 {"fallocate", EOPNOTSUPP, "(O_DIRECT, "},
                 {"fallocate", EINTR, "(O_DIRECT, "},
                 {"io_uring_setup", ENOSYS, "threads: io_uring_setup: Function not implemented)"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_tier *tier;
        struct ls_error error;
        struct failing failing;
        failing_init(&failing, cases[i].call, 0, cases[i].errno_value);
        assert_int_equal(open_status(*state, BYTES, &failing.fault, &tier, &error), LS_OK);
        check_works(tier);
        if (!strstr(ls_tier_text(tier), cases[i].text) && ls_io_uring_allowed(NULL))
            fail_msg("%s: expected %s", ls_tier_text(tier), cases[i].text);
        ls_tier_free(tier);
        assert_int_equal(scratch_count(*state), 0);
    }
}

/* As containers do: the system call is not allowed. */
static int forbid_io_uring(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &program);
}

static int without_io_uring(const char *folder)
{
    struct ls_tier *tier;
    struct ls_error error;
    if (forbid_io_uring())
        return 2;
    if (ls_io_uring_allowed(&error) || open_status(folder, BYTES, NULL, &tier, &error))
        return 1;
    check_works(tier);
    bool told = strstr(ls_tier_text(tier), "threads: io_uring_setup: Operation not permitted");
    ls_tier_free(tier);
    return !told;
}

static int child_status(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

CASE_WITH(test_a_container_that_forbids_io_uring, scratch_setup, scratch_teardown)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(without_io_uring(*state));
    int status = child_status(child);
    if (status == 2)
        print_message("skipped: no seccomp here\n");
    else
        assert_int_equal(status, 0);
    assert_int_equal(scratch_count(*state), 0);
    setenv("LOCKSTEP_IO_URING", "0", 1);
    struct ls_error error = {0};
    assert_false(ls_io_uring_allowed(&error));
    assert_string_equal(error.text, "LOCKSTEP_IO_URING=0");
    unsetenv("LOCKSTEP_IO_URING");
}

/* ---- who uses it ---------------------------------------------------------------------------- */

/* A process that has a tier open until it is killed. */
static pid_t start_holder(const char *folder)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t child = child_fork(SIGKILL);
    if (child == 0) {
        struct ls_tier *tier;
        struct ls_error error;
        if (open_status(folder, BYTES, NULL, &tier, &error))
            _exit(1);
        check_works(tier);
        if (write(ready[1], "x", 1) == 1)
            pause();
        _exit(1);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return child;
}

CASE_WITH(test_a_second_process_is_refused_until_the_first_is_killed, scratch_setup,
          scratch_teardown)
{
    char who[64], host[128];
    struct ls_tier *tier;
    struct ls_error error;
    struct stat status;
    const char *folder = scratch_path(*state, "tier");
    pid_t child = start_holder(folder);
    gethostname(host, sizeof host);
    snprintf(who, sizeof who, "held by process %d on %.30s", (int)child, host);
    check_refused(folder, BYTES, LS_EBUSY, who);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(child_status(child), 128 + SIGKILL);
    const char *data = scratch_path(folder, "rank-00003.offload/data");
    assert_int_equal(stat(data, &status), 0); /* it had no time to remove it */
    assert_int_equal(open_status(folder, BYTES / 2, NULL, &tier, &error), LS_OK);
    assert_int_equal(stat(data, &status), 0);
    assert_int_equal(status.st_size, BYTES / 2);
    ls_tier_free(tier);
    assert_int_equal(scratch_count(folder), 0);
}

/* Of any rank, what nobody holds goes: what is in use, and what is something else, stays. */
CASE_WITH(test_what_killed_processes_left_is_swept, scratch_setup, scratch_teardown)
{
    struct stat status;
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", scratch_path(*state, "tier"));
    pid_t child = start_holder(folder);
    assert_int_equal(ls_tier_sweep(folder), 0); /* it is in use */
    assert_int_equal(stat(scratch_path(folder, "rank-00003.offload/data"), &status), 0);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(child_status(child), 128 + SIGKILL);
    scratch_write(scratch_path(folder, "rank-00003.offload.txt"), "x", 1);
    assert_int_equal(mkdir(scratch_path(folder, "rank-00007.offload"), 0700), 0);
    assert_int_equal(ls_tier_sweep(folder), 1);
    assert_int_not_equal(stat(scratch_path(folder, "rank-00003.offload"), &status), 0);
    assert_int_equal(scratch_count(folder), 2);
    child = start_holder(folder);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(child_status(child), 128 + SIGKILL);
    assert_int_equal(rename(scratch_path(folder, "rank-00003.offload"),
                            scratch_path(folder, "rank-131071.offload")),
                     0);
    assert_int_equal(ls_tier_sweep(folder), 1);
    assert_int_equal(scratch_count(folder), 2);
    assert_int_equal(ls_tier_sweep(scratch_path(*state, "none")), 0);
}

CASE_WITH(test_a_second_tier_of_this_process_is_refused, scratch_setup, scratch_teardown)
{
    struct ls_tier *tier, *other;
    struct ls_error error;
    assert_int_equal(open_status(*state, BYTES, NULL, &tier, &error), LS_OK);
    check_refused(*state, BYTES, LS_EBUSY, "held by process");
    check_works(tier);
    struct ls_tier_options another = {
        .kind = LS_TIER_FILE, .bytes = BYTES, .folder = *state, .rank = 4};
    assert_int_equal(ls_tier_new(&another, &other, &error), LS_OK);
    check_works(other);
    ls_tier_free(tier);
    check_works(other);
    ls_tier_free(other);
    assert_int_equal(scratch_count(*state), 0);
}

/* What lies under the name is removed, and never written through. */
CASE_WITH(test_a_link_is_not_followed, scratch_setup, scratch_teardown)
{
    struct ls_tier *tier;
    struct ls_error error;
    const char *precious = scratch_path(*state, "precious");
    const char *home = scratch_path(*state, "rank-00003.offload");
    scratch_write(precious, "precious", 8);
    assert_int_equal(mkdir(home, 0777), 0);
    assert_int_equal(symlink(precious, scratch_path(home, "data")), 0);
    assert_int_equal(open_status(*state, BYTES, NULL, &tier, &error), LS_OK);
    check_works(tier);
    ls_tier_free(tier);
    char *text = scratch_read(precious, NULL);
    assert_string_equal(text, "precious");
    free(text);
    assert_int_equal(scratch_count(*state), 1);
}

SUITE_MAIN(NULL, NULL)
