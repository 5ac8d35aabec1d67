/* Threads that the library starts, and conditions on its clock. */
#include <lockstep/base.h>
#include <lockstep/base/helper_thread.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <time.h>

static void *mask_main(void *mask)
{
    pthread_sigmask(SIG_SETMASK, NULL, mask);
    return mask;
}

/* No signal reaches the thread; who starts it takes signals as before. */
static void test_signals_are_blocked(void **state)
{
    (void)state;
    pthread_t thread;
    sigset_t mask, own;
    assert_int_equal(ls_helper_start(&thread, mask_main, &mask), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_sigmask(SIG_SETMASK, NULL, &own);
    static const int signals[] = {SIGINT, SIGTERM, SIGUSR1, SIGCHLD};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(sigismember(&mask, signals[i]), 1);
        assert_int_equal(sigismember(&own, signals[i]), 0);
    }
}

/* A wait until a time of ls_now_s ends there: on the clock of the day it would be over at once. */
static void test_conditions_have_our_clock(void **state)
{
    (void)state;
    pthread_cond_t condition;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    double until_s = ls_now_s() + 0.02;
    struct timespec until = {(time_t)until_s, (long)((until_s - (double)(time_t)until_s) * 1e9)};
    ls_condition_init(&condition);
    pthread_mutex_lock(&mutex);
    while (pthread_cond_timedwait(&condition, &mutex, &until) == 0)
        continue;
    pthread_mutex_unlock(&mutex);
    assert_true(ls_now_s() > until_s - 1e-6);
    pthread_cond_destroy(&condition);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signals_are_blocked),
        cmocka_unit_test(test_conditions_have_our_clock),
    };
    return cmocka_run_group_tests_name("helper threads", tests, NULL, NULL);
}
