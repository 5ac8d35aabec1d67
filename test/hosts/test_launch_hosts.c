/* `lockstep launch` over two hosts, of which one is cut off: the job goes on with fewer ranks in
 * another layout, and with all of them when the host is back; its end is that of one rank. */
/* check: network */
#include "../launch/launched.h"
#include "hosts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>

#define LONG                                                                                       \
    LAUNCHED_KEYS "train.steps=1000000 train.save_every=4 parallel.dp=2 parallel.tp=2 "            \
                  "comm.timeout_s=3 launch.pause_s=1 launch.retries=20 "

static char *directory;

static void test_a_host_that_is_cut_off(void **state)
{
    (void)state;
    hosts_or_skip();
    pid_t launcher = hosts_launch(directory, 2, "cut", LONG);
    launched_await_step(launcher, directory, "cut", 6);
    hosts_link(false);
    launched_await_event(launcher, directory, "cut", "layout", 1);
    launched_await_event(launcher, directory, "cut", "going_on", 1);
    assert_int_equal(launched_events(directory, "cut", "failed", "\"kind\": \"host\""), 1);
    assert_int_equal(launched_events(directory, "cut", "host_lost", hosts_name[1]), 1);
    assert_int_equal(launched_events(directory, "cut", "layout", "\"ranks\": 2,"), 1);
    hosts_link(true);
    launched_await_event(launcher, directory, "cut", "host_back", 1);
    launched_await_event(launcher, directory, "cut", "layout", 2);
    launched_await_event(launcher, directory, "cut", "going_on", 2);
    launched_stop(launcher, directory, "cut");
    assert_true(launched_events(directory, "cut", "layout", "\"ranks\": 4,") >= 1);
    launched_expect_same(directory, "cut");
}

static int setup(void **state)
{
    int status = hosts_setup(state);
    directory = *state;
    return status;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_host_that_is_cut_off)};
    return cmocka_run_group_tests_name("launch over hosts", tests, setup, hosts_teardown);
}
