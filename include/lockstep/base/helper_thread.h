/* lockstep/base/helper_thread.h - threads that the library starts for itself. */
#ifndef LOCKSTEP_BASE_HELPER_THREAD_H
#define LOCKSTEP_BASE_HELPER_THREAD_H

#include <pthread.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Local. As pthread_create, whose result it returns: 0, or the number of an error. All signals are
 * blocked in the thread: they belong to the threads of the program, which know what to do with
 * them. */
int ls_helper_start(pthread_t *thread, void *(*main)(void *), void *argument);
/* Local. A condition whose waits end at times of ls_now_s. */
void ls_condition_init(pthread_cond_t *condition);

#ifdef __cplusplus
}
#endif
#endif
