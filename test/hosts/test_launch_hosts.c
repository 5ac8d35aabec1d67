/* `lockstep launch` over two hosts, of which one is cut off: the job goes on with fewer ranks in
 * another layout, from its copy of the other one's snapshots, and with all of them when the host is
 * back; or of which one is lost, and a spare takes over; or whose cable is bad; or whose launcher
 * loses its terminal. The end is that of one rank. With --hold it is the two hosts of
 * tools/soak.py. */
/* check: network disk */
#include "../cmd/run_program.h"
#include "../launch/launched.h"
#include "../support/await.h"
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/testing.h"
#include "hosts.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONG                                                                                       \
    LAUNCHED_KEYS "train.steps=1000000 train.save_every=4 "                                        \
                  "comm.timeout_s=3 launch.pause_s=1 launch.retries=20 "

static void test_a_host_that_is_cut_off(void **state)
{
    hosts_or_skip();
    pid_t launcher = hosts_launch(hosts_directory, 0, 2, "cut",
                                  LONG "parallel.dp=2 parallel.tp=2 train.save_every=0 "
                                       "snapshot.every=1 ");
    launched_await_step(launcher, hosts_directory, "cut", 6);
    int before = launched_events(hosts_directory, "cut", "going_on", NULL); /* of late ranks */
    int anew = launched_events(hosts_directory, "cut", "going_on", "\"from\": 0,");
    hosts_link(false);
    launched_await_event(launcher, hosts_directory, "cut", "layout", 1);
    launched_await_event(launcher, hosts_directory, "cut", "going_on", before + 1);
    assert_int_equal(launched_events(hosts_directory, "cut", "failed", "\"kind\": \"host\""), 1);
    assert_int_equal(launched_events(hosts_directory, "cut", "host_lost", hosts_name[1]), 1);
    assert_int_equal(launched_events(hosts_directory, "cut", "layout", "\"ranks\": 2,"), 1);
    assert_int_equal(launched_events(hosts_directory, "cut", "going_on", "\"from\": 0,"), anew);
    hosts_link(true);
    launched_await_event(launcher, hosts_directory, "cut", "host_back", 1);
    launched_await_event(launcher, hosts_directory, "cut", "layout", 2);
    launched_await_event(launcher, hosts_directory, "cut", "going_on", before + 2);
    launched_stop(launcher, hosts_directory, "cut");
    assert_true(launched_events(hosts_directory, "cut", "layout", "\"ranks\": 4,") >= 1);
    launched_expect_same(hosts_directory, "cut");
}

/* What is under way is lost each time, and TCP sends it again: nobody notices. */
static void test_a_link_that_comes_and_goes(void **state)
{
    hosts_or_skip();
    pid_t launcher =
        hosts_launch(hosts_directory, 0, 2, "flaps",
                     LONG "comm.timeout_s=600 parallel.dp=2 parallel.tp=2 snapshot.every=1 ");
    for (int times = check_all() ? 8 : 3; times > 0; times--) {
        int64_t step = launched_await_step(launcher, hosts_directory, "flaps", 1);
        hosts_link(false);
        hosts_link(true);
        launched_await_step(launcher, hosts_directory, "flaps", step + 2);
    }
    launched_stop(launcher, hosts_directory, "flaps");
    assert_int_equal(launched_events(hosts_directory, "flaps", "failed", NULL), 0);
    launched_expect_same(hosts_directory, "flaps");
}

/* What is lost, late, twice or out of order is TCP's to mend: nobody notices. */
static void test_a_link_that_is_bad(void **state)
{
    hosts_or_skip();
    const struct link_counts *counts =
        hosts_cable(&(struct link_faults){.lost = 20, .twice = 20, .late_ms = 4, .seed = 1});
    if (!counts) {
        print_message("SKIPPED: this system has no TAP devices (/dev/net/tun)\n");
        skip();
    }
    pid_t launcher =
        hosts_launch(hosts_directory, 0, 2, "bad",
                     LONG "comm.timeout_s=600 parallel.dp=2 parallel.tp=2 snapshot.every=1 ");
    int64_t step = launched_await_step(launcher, hosts_directory, "bad", 1);
    while (counts->lost < 20 || counts->twice < 20 || counts->overtaken < 20)
        step = launched_await_step(launcher, hosts_directory, "bad", step + 1);
    launched_stop(launcher, hosts_directory, "bad");
    print_message("frames: %lld carried, %lld lost, %lld twice, %lld overtaken\n", counts->carried,
                  counts->lost, counts->twice, counts->overtaken);
    hosts_cable(NULL);
    assert_int_equal(launched_events(hosts_directory, "bad", "failed", NULL), 0);
    launched_expect_same(hosts_directory, "bad");
}

/* For a moment: nobody notices. For longer than ranks wait: as a host that is cut off, though no
 * end of the cable goes down. */
static void test_a_link_that_falls_silent(void **state)
{
    static const char out[] = "silent";
    hosts_or_skip();
    const struct link_counts *counts = hosts_cable(&(struct link_faults){.seed = 1});
    if (!counts) {
        print_message("SKIPPED: this system has no TAP devices (/dev/net/tun)\n");
        skip();
    }
    pid_t launcher = hosts_launch(hosts_directory, 0, 2, out,
                                  LONG "parallel.dp=2 parallel.tp=2 train.save_every=0 "
                                       "snapshot.every=1 ");
    int64_t step = launched_await_step(launcher, hosts_directory, out, 6);
    hosts_silence(true);
    while (counts->lost == 0)
        program_await_job(launcher, scratch_path(hosts_directory, "silent.log"));
    hosts_silence(false);
    launched_await_step(launcher, hosts_directory, out, step + 4);
    int before = launched_events(hosts_directory, out, "going_on", NULL); /* of late ranks */
    hosts_silence(true);
    launched_await_event(launcher, hosts_directory, out, "layout", 1);
    launched_await_event(launcher, hosts_directory, out, "going_on", before + 1);
    assert_int_equal(launched_events(hosts_directory, out, "host_lost", hosts_name[1]), 1);
    assert_int_equal(launched_events(hosts_directory, out, "layout", "\"ranks\": 2,"), 1);
    hosts_silence(false);
    launched_await_event(launcher, hosts_directory, out, "layout", 2);
    launched_await_event(launcher, hosts_directory, out, "going_on", before + 2);
    launched_stop(launcher, hosts_directory, out);
    hosts_cable(NULL);
    launched_expect_same(hosts_directory, out);
}

/* The launcher's: every rank finishes its step, and the state is saved. */
static void test_a_terminal_that_is_closed(void **state)
{
    hosts_or_skip();
    pid_t launcher = hosts_launch(hosts_directory, 0, 2, "closed",
                                  LONG "parallel.dp=2 parallel.tp=2 train.save_every=0 "
                                       "snapshot.every=1 ");
    int64_t step = launched_await_step(launcher, hosts_directory, "closed", 3);
    assert_int_equal(kill(launcher, SIGHUP), 0);
    assert_int_equal(hosts_end(launcher), ls_exit_code(LS_ESTOPPED));
    assert_true(hosts_last_step(hosts_directory, "closed") >= step);
    launched_expect_same(hosts_directory, "closed");
}

/* All ranks are on the other host, which is gone without a word: mpirun waits for it, the launcher
 * does not. The spare takes over, in the given layout. */
static void test_a_host_that_is_lost(void **state)
{
    hosts_or_skip();
    pid_t launcher = hosts_launch(hosts_directory, 1, 2, "lost", LONG "parallel.dp=2 ");
    launched_await_step(launcher, hosts_directory, "lost", 6);
    int before = launched_events(hosts_directory, "lost", "going_on", NULL);
    hosts_lose(hosts_directory, 1);
    launched_await_event(launcher, hosts_directory, "lost", "going_on", before + 1);
    launched_stop(launcher, hosts_directory, "lost");
    hosts_link(true);
    assert_int_equal(launched_events(hosts_directory, "lost", "host_lost", hosts_name[1]), 1);
    assert_int_equal(launched_events(hosts_directory, "lost", "failed", "\"kind\": \"host\""), 1);
    assert_int_equal(launched_events(hosts_directory, "lost", "layout", NULL), 0);
    launched_expect_same(hosts_directory, "lost");
}

/* ---- workers --------------------------------------------------------------------------------- */

#define DILOCO "async.mode=diloco async.workers=4 async.sync_every=2 "
#define BY_TIMES                                                                                   \
    "async.mode=server async.workers=2 async.order=times async.times=1,3 async.staleness=2 "       \
    "optim.name=sgd "
#define BY_CLOCK "async.mode=server async.workers=2 async.order=clock optim.name=sgd "

/* A host of workers is cut off: the rest computes all of them, in fewer groups. */
static void fewer_groups(const char *out, const char *recipe, const char *layout, const char *left)
{
    char keys[1024];
    hosts_or_skip();
    snprintf(keys, sizeof keys, LONG "%s %s", recipe, layout);
    pid_t launcher = hosts_launch(hosts_directory, 0, 2, out, keys);
    launched_await_step(launcher, hosts_directory, out, 6);
    int before = launched_events(hosts_directory, out, "going_on", NULL); /* of late ranks */
    hosts_link(false);
    launched_await_event(launcher, hosts_directory, out, "layout", 1);
    launched_await_event(launcher, hosts_directory, out, "going_on", before + 1);
    launched_stop(launcher, hosts_directory, out);
    hosts_link(true);
    assert_int_equal(launched_events(hosts_directory, out, "layout", left), 1);
    launched_expect_same_of(hosts_directory, out, recipe);
}

static void test_workers_of_a_host_that_is_cut_off(void **state)
{
    fewer_groups("diloco", DILOCO, "parallel.workers=4", "parallel.workers=2");
}

/* The order of a table of times is the same wherever workers are computed: it needs no server. */
static void test_a_server_by_times_whose_host_is_cut_off(void **state)
{
    fewer_groups("times", BY_TIMES, "parallel.workers=2 parallel.servers=1",
                 "parallel.workers=2 parallel.servers=0");
}

/* Who comes first is known of ranks of their own alone: it waits until the host is back. */
static void test_a_server_by_the_clock_waits_for_its_host(void **state)
{
    static const char says[] = "waiting for hosts: workers of a server that takes who comes first "
                               "need all 3 ranks, and there are 2";
    hosts_or_skip();
    pid_t launcher = hosts_launch(hosts_directory, 0, 2, "clock",
                                  LONG BY_CLOCK "parallel.workers=2 parallel.servers=1");
    launched_await_step(launcher, hosts_directory, "clock", 6);
    int before = launched_events(hosts_directory, "clock", "going_on", NULL);
    hosts_link(false);
    launched_await_event(launcher, hosts_directory, "clock", "host_lost", 1);
    for (char *said = NULL; !said || !strstr(said, says);) {
        free(said);
        said = hosts_said(hosts_directory, "clock");
        await_pause();
    }
    hosts_link(true);
    launched_await_event(launcher, hosts_directory, "clock", "going_on", before + 1);
    launched_stop(launcher, hosts_directory, "clock");
    assert_int_equal(launched_events(hosts_directory, "clock", "layout", NULL), 0);
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--hold"))
        return hosts_hold(2);
    const struct CMUnitTest usual[] = {
        cmocka_unit_test(test_a_link_that_comes_and_goes),
        cmocka_unit_test(test_a_host_that_is_cut_off),
    };
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_workers_of_a_host_that_is_cut_off),
        cmocka_unit_test(test_a_server_by_times_whose_host_is_cut_off),
        cmocka_unit_test(test_a_server_by_the_clock_waits_for_its_host),
        cmocka_unit_test(test_a_link_that_comes_and_goes),
        cmocka_unit_test(test_a_link_that_is_bad),
        cmocka_unit_test(test_a_link_that_falls_silent),
        cmocka_unit_test(test_a_host_that_is_cut_off),
        cmocka_unit_test(test_a_terminal_that_is_closed),
        cmocka_unit_test(test_a_host_that_is_lost), /* the last: that host ends */
    };
    return check_all()
               ? cmocka_run_group_tests_name("launched", all, hosts_setup, hosts_teardown)
               : cmocka_run_group_tests_name("launched", usual, hosts_setup, hosts_teardown);
}
