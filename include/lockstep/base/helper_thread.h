/* lockstep/base/helper_thread.h - threads that the library starts for itself. */
#ifndef LOCKSTEP_BASE_HELPER_THREAD_H
#define LOCKSTEP_BASE_HELPER_THREAD_H

#include <lockstep/base.h>

#include <pthread.h>

LS_C_BEGIN

/* Local. As pthread_create, whose result it returns: 0, or the number of an error. All signals are
 * blocked in the thread: they belong to the threads of the program, which know what to do with
 * them. */
int ls_helper_start(pthread_t *thread, void *(*main)(void *), void *argument);
/* Local. A condition whose waits end at times of ls_now_s. */
void ls_condition_init(pthread_cond_t *condition);
/* Local. As pthread_cond_timedwait, whose result it returns. */
int ls_condition_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, double until_s);
/* Local. A wait of a fraction of a second for a thread that keeps its progress there and signals
 * changed: if the thread gets on meanwhile, so does the caller, who waits again until he finds what
 * he waits for. */
void ls_helper_wait(pthread_cond_t *changed, pthread_mutex_t *lock,
                    const struct ls_progress *progress);

LS_C_END
#endif
