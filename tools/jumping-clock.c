/* A library to preload: the time of day leaps by 100 seconds, ahead or back, every third second, as
 * where somebody sets a machine's clock. What counts seconds from some start (CLOCK_MONOTONIC) goes
 * on, as it does there.
 *
 *     cc -shared -fPIC -O2 -o jumping-clock.so tools/jumping-clock.c */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t leap(time_t seconds)
{
    return seconds / 3 % 2 ? 100 : -100;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    int status = (int)syscall(SYS_clock_gettime, clock, time);
    if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        time->tv_sec += leap(time->tv_sec);
    return status;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    struct timespec now;
    int status = clock_gettime(CLOCK_REALTIME, &now);
    (void)zone;
    *time = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return status;
}

time_t time(time_t *seconds)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (seconds)
        *seconds = now.tv_sec;
    return now.tv_sec;
}
