/* A pause between two looks at what a test waits for. The wait itself has no limit:
 * tools/run-tests.py ends a program that gets nowhere. */
#ifndef SUPPORT_AWAIT_H
#define SUPPORT_AWAIT_H

#include <time.h>

static inline void await_pause(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

#endif
