/* `lockstep launch` over two hosts, of which one is cut off: the job goes on with fewer ranks in
 * another layout, from its copy of the other one's snapshots, and with all of them when the host is
 * back; or of which one is lost, and a spare takes over. The end is that of one rank. */
/* check: network */
#include "../launch/launched.h"
#include "../support/extent.h"
#include "hosts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>

#define LONG                                                                                       \
    LAUNCHED_KEYS "train.steps=1000000 train.save_every=4 "                                        \
                  "comm.timeout_s=3 launch.pause_s=1 launch.retries=20 "

static void test_a_host_that_is_cut_off(void **state)
{
    (void)state;
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

/* All ranks are on the other host, which is gone without a word: mpirun waits for it, the launcher
 * does not. The spare takes over, in the given layout. */
static void test_a_host_that_is_lost(void **state)
{
    (void)state;
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

int main(void)
{
    const struct CMUnitTest usual[] = {
        cmocka_unit_test(test_a_host_that_is_cut_off),
    };
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_a_host_that_is_cut_off),
        cmocka_unit_test(test_a_host_that_is_lost),
    };
    return check_all()
               ? cmocka_run_group_tests_name("launched", all, hosts_setup, hosts_teardown)
               : cmocka_run_group_tests_name("launched", usual, hosts_setup, hosts_teardown);
}
