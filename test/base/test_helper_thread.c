/* Threads that the library starts, and conditions on its clock. */
#include "../support/suite.h"

#include <lockstep/base/helper_thread.h>

#include <signal.h>

static void *mask_main(void *mask)
{
    pthread_sigmask(SIG_SETMASK, NULL, mask);
    return mask;
}

/* No signal reaches the thread; who starts it takes signals as before. */
CASE(test_signals_are_blocked)
{
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
CASE(test_conditions_have_our_clock)
{
    pthread_cond_t condition;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    double until_s = ls_now_s() + 0.02;
    ls_condition_init(&condition);
    pthread_mutex_lock(&mutex);
    while (ls_condition_wait_until(&condition, &mutex, until_s) == 0)
        continue;
    pthread_mutex_unlock(&mutex);
    assert_true(ls_now_s() > until_s - 1e-6);
    pthread_cond_destroy(&condition);
}

struct helper {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct ls_progress progress;
    bool gets_on, done;
};

static void *helper_main(void *user)
{
    struct helper *helper = user;
    ls_progress_keep(&helper->progress);
    pthread_mutex_lock(&helper->lock); /* free once the other one waits */
    if (helper->gets_on)
        ls_progress();
    helper->done = true;
    pthread_cond_broadcast(&helper->changed);
    pthread_mutex_unlock(&helper->lock);
    return NULL;
}

/* Who waits for a thread gets on if that does, and only then. */
CASE(test_who_waits_gets_on_with_the_thread)
{
    for (int gets_on = 0; gets_on < 2; gets_on++) {
        struct helper helper = {.lock = PTHREAD_MUTEX_INITIALIZER, .gets_on = gets_on};
        struct ls_progress own = {0};
        struct ls_progress *before = ls_progress_keep(&own);
        pthread_t thread;
        ls_condition_init(&helper.changed);
        pthread_mutex_lock(&helper.lock);
        assert_int_equal(ls_helper_start(&thread, helper_main, &helper), 0);
        while (!helper.done)
            ls_helper_wait(&helper.changed, &helper.lock, &helper.progress);
        pthread_mutex_unlock(&helper.lock);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(ls_progress_s(&own) > 0, gets_on);
        ls_progress_keep(before);
        pthread_cond_destroy(&helper.changed);
    }
}

SUITE_MAIN(NULL, NULL)
