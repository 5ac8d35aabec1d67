/* Threads of the library, and conditions on the monotonic clock. */
#include <lockstep/base/helper_thread.h>

#include <math.h>
#include <signal.h>

int ls_helper_start(pthread_t *thread, void *(*main)(void *), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(thread, NULL, main, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure;
}

void ls_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

int ls_condition_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, double until_s)
{
    double whole_s = floor(until_s);
    struct timespec until = {(time_t)whole_s, (long)(1e9 * (until_s - whole_s))};
    return pthread_cond_timedwait(condition, lock, &until);
}

void ls_helper_wait(pthread_cond_t *changed, pthread_mutex_t *lock,
                    const struct ls_progress *progress)
{
    const double look_s = 0.2;
    double before_s = ls_progress_s(progress);
    ls_condition_wait_until(changed, lock, ls_now_s() + look_s);
    if (ls_progress_s(progress) != before_s)
        ls_progress();
}
