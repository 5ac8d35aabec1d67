/* A library to preload: threads pause at drawn calls by which they meet others or become seen by
 * them (locks, semaphores, starts, writes, names of files, signals), for 10 us to 0.3 s. Orders
 * that happen once in a thousand runs, where cores are busy elsewhere, happen in a few. It takes
 * hardly any CPU time, so that many programs can run side by side. Each run draws other pauses.
 *
 *     cc -shared -fPIC -O2 -o pauses.so tools/pauses.c */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { RARE = 25, SOME = 20, LENGTHS = 15, SHORTEST_NS = 10000, PROCESS_MS = 20000 };

static _Thread_local uint64_t state;
static _Thread_local unsigned calls;
static _Atomic unsigned paused_ms; /* by all threads of the process */

static uint64_t draw(void)
{
    if (!state) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        state = ((uint64_t)gettid() << 32 ^ (uint64_t)now.tv_nsec) * 0x9e3779b97f4a7c15u | 1;
    }
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* A thread's first calls pause often, its later ones ever more seldom: loops that look for
 * something get on. So do processes that have paused for long. */
static void may_pause(void)
{
    unsigned one_of = calls++ / SOME, rarer = paused_ms / PROCESS_MS;
    one_of = (one_of > RARE ? one_of : RARE) << (rarer < 8 ? rarer : 8);
    if (draw() % one_of)
        return;
    int error = errno;
    uint64_t ns = (uint64_t)SHORTEST_NS << draw() % LENGTHS;
    const struct timespec time = {0, (long)(ns + draw() % ns)};
    paused_ms += (unsigned)(time.tv_nsec / 1000000);
    nanosleep(&time, NULL);
    errno = error;
}

#define REAL(name)                                                                                 \
    static __typeof__(&name) real;                                                                 \
    if (!real)                                                                                     \
    real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define PAUSES(type, name, parameters, ...)                                                        \
    type name parameters                                                                           \
    {                                                                                              \
        REAL(name);                                                                                \
        may_pause();                                                                               \
        type result = real(__VA_ARGS__);                                                           \
        may_pause();                                                                               \
        return result;                                                                             \
    }

PAUSES(int, pthread_mutex_lock, (pthread_mutex_t * lock), lock)
PAUSES(int, pthread_mutex_unlock, (pthread_mutex_t * lock), lock)
PAUSES(int, sem_post, (sem_t * semaphore), semaphore)
PAUSES(int, sem_wait, (sem_t * semaphore), semaphore)
PAUSES(int, sched_yield, (void), )
PAUSES(ssize_t, write, (int file, const void *data, size_t bytes), file, data, bytes)
PAUSES(ssize_t, pwrite, (int file, const void *data, size_t bytes, off_t at), file, data, bytes, at)
PAUSES(int, fsync, (int file), file)
PAUSES(int, rename, (const char *from, const char *to), from, to)
PAUSES(int, renameat2,
       (int old_folder, const char *from, int folder, const char *to, unsigned flags), old_folder,
       from, folder, to, flags)
PAUSES(int, unlink, (const char *path), path)
PAUSES(int, kill, (pid_t process, int number), process, number)
PAUSES(int, close, (int file), file)

struct start {
    void *(*main)(void *);
    void *argument;
};

static void *begin(void *argument)
{
    struct start start = *(struct start *)argument;
    munmap(argument, sizeof start);
    may_pause();
    void *result = start.main(start.argument);
    may_pause();
    return result;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *),
                   void *argument)
{
    REAL(pthread_create);
    /* Tests count what malloc gives, and make it fail. */
    struct start *start =
        mmap(NULL, sizeof *start, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return EAGAIN;
    *start = (struct start){function, argument};
    int status = real(thread, attributes, begin, start);
    if (status)
        munmap(start, sizeof *start);
    may_pause();
    return status;
}
