/* What the launcher knows of its hosts, call by call: which are this machine, and what stays as it
 * was because nobody could be asked; and the layout that it chooses on them. */
#include "../support/config_words.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "launch/launch_private.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* No process can be started to ask a host with. */
static bool full;

WRAPPED(fork);
pid_t __wrap_fork(void)
{
    errno = EAGAIN;
    return full ? -1 : __real_fork();
}

/* This machine has one without an address, one of IPv6, and this one of IPv4. */
static struct sockaddr_in6 six = {.sin6_family = AF_INET6};
static struct sockaddr_in four = {.sin_family = AF_INET};
static struct ifaddrs interfaces[] = {{.ifa_next = &interfaces[1]},
                                      {.ifa_next = &interfaces[2], .ifa_addr = (void *)&six},
                                      {.ifa_addr = (void *)&four}};

WRAPPED(getifaddrs);
int __wrap_getifaddrs(struct ifaddrs **list)
{
    assert_int_equal(inet_pton(AF_INET, "192.0.2.7", &four.sin_addr), 1);
    *list = interfaces;
    return 0;
}

WRAPPED(freeifaddrs);
void __wrap_freeifaddrs(struct ifaddrs *list)
{
    assert_true(!list || list == interfaces);
}

/* mpirun starts ranks there without an agent. 192.0.2.0/24 is for documentation. */
CASE_WITH(test_addresses_of_this_machine, scratch_setup, scratch_teardown)
{
    static const char list[] =
        "127.0.0.1 slots=2\n127.1.2.3\nlocalhost\n192.0.2.7\n192.0.2.255\n127.0.0\n";
    struct launch_hosts hosts = {0};
    struct ls_error error = {0};
    const char *path = scratch_path(*state, "hosts");
    scratch_write(path, list, sizeof list - 1);
    assert_ok(launch_hosts_read(&hosts, path, &error), error);
    assert_int_equal(hosts.count, 6);
    for (int i = 0; i < hosts.count; i++)
        assert_int_equal(hosts.list[i].here, i < 4);
    launch_hosts_release(&hosts);
}

/* What has no room says so. */
CASE(test_hosts_of_a_start)
{
    struct launch_host list[] = {{.name = "node1", .slots = 8, .up = true},
                                 {.name = "node2", .slots = 8},
                                 {.name = "node3", .slots = 8, .up = true}};
    const struct launch_hosts hosts = {.list = list, .count = 3};
    char text[16];
    assert_true(launch_hosts_text(&hosts, 9, text, sizeof text));
    assert_string_equal(text, "node1:8,node3:1");
    assert_false(launch_hosts_text(&hosts, 16, text, sizeof text - 1));
    assert_string_equal(text, "node1:8,nod...");
}

/* Of two hosts the second is lost; both are tried, and neither changes. */
static void expect_no_change(enum launch_kind kind)
{
    struct launch_host list[] = {{.name = "node1", .slots = 1, .up = true, .used = true},
                                 {.name = "node2", .slots = 1}};
    struct launch_hosts hosts = {.kind = kind, .list = list, .count = 2, .limit_s = 1};
    for (int down = 0; down < 2; down++) {
        bool changed[2] = {false};
        assert_false(launch_hosts_try(&hosts, down, changed));
        assert_false(changed[0] || changed[1]);
        assert_true(list[0].up && !list[1].up);
    }
}

CASE(test_no_process_to_ask_with)
{
    full = true;
    expect_no_change(LAUNCH_HOSTFILE);
    full = false;
}

/* Nor to start the job with: nothing is left of that in memory. */
CASE_WITH(test_no_process_for_the_job, scratch_setup, scratch_teardown)
{
    struct launch_host list[] = {{.name = "localhost", .slots = 1, .here = true, .up = true}};
    const struct launch_hosts hosts = {.list = list, .count = 1, .open_mpi = true};
    const struct launch_output output = {.read_fd = -1, .write_fd = -1};
    const struct ls_config config =
        config_of_words("model.preset=gpt2-tiny model.vocab=50 train.out=%s", (char *)*state);
    const struct ls_launch launch = {.program = "lockstep", .config = &config};
    const struct launch_start start = {
        .launch = &launch, .hosts = &hosts, .output = &output, .ranks = 1, .keys = ""};
    static struct launch_job job;
    struct ls_error error = {0};
    unsetenv("OMPI_MCA_btl_vader_backing_directory");
    full = true;
    assert_int_equal(launch_job_start(&job, &start, &error), LS_EIO);
    full = false;
    assert_true(job.segments[0] && access(job.segments, F_OK) != 0);
}

/* squeue answers, and sinfo does not. */
CASE_WITH(test_slurm_does_not_answer, scratch_setup, scratch_teardown)
{
    static const char *const programs[][2] = {{"squeue", "#!/bin/sh\necho 7 node[1-2]\n"},
                                              {"sinfo", "#!/bin/sh\nexit 1\n"}};
    const char *paths = getenv("PATH");
    char *before = strdup(paths ? paths : "");
    for (int i = 0; i < 2; i++) {
        scratch_write(scratch_path(*state, programs[i][0]), programs[i][1], strlen(programs[i][1]));
        assert_int_equal(chmod(scratch_path(*state, programs[i][0]), 0755), 0);
    }
    setenv("PATH", *state, 1);
    setenv("SLURM_JOB_ID", "7", 1);
    expect_no_change(LAUNCH_SLURM);
    setenv("PATH", before, 1);
    unsetenv("SLURM_JOB_ID");
    free(before);
}

/* With parallel.auto keys of the command line are fixed, while there are ranks for them. */
CASE(test_keys_that_the_planner_leaves)
{
    struct launch_host list[] = {{.name = "localhost", .slots = 2, .here = true, .up = true}};
    const struct launch_hosts hosts = {.list = list, .count = 1};
    const struct launch_watch watch = {0};
    const struct ls_config config =
        config_of_words("model.preset=gpt2-tiny model.vocab=50 batch.global=8 parallel.tp=2 "
                        "parallel.auto=true");
    int asked = 0;
    const struct ls_launch launch = {.config = &config, .asked = &asked};
    char keys[LS_CONFIG_TEXT_BYTES];
    struct ls_error error = {0};
    int64_t ranks;
    assert_ok(launch_layout_choose(&launch, &hosts, &watch, 2, keys, &ranks, &error), error);
    assert_int_equal(ranks, 2);
    assert_null(strstr(keys, "parallel.tp="));
    list[0].slots = 1;
    assert_ok(launch_layout_choose(&launch, &hosts, &watch, 2, keys, &ranks, &error), error);
    assert_int_equal(ranks, 1);
    assert_non_null(strstr(keys, "parallel.tp=1"));
    asked = 1;
    list[0].slots = 2;
    assert_int_equal(launch_layout_choose(&launch, &hosts, &watch, 2, keys, &ranks, &error),
                     LS_ESTOPPED);
    assert_int_equal(ranks, 1);
}

SUITE_MAIN(NULL, NULL)
