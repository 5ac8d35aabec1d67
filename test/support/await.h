/* A pause between two looks at what a test waits for. The wait itself has no limit:
 * tools/run-tests.py ends a program that gets nowhere. */
#ifndef TEST_SUPPORT_AWAIT_H
#define TEST_SUPPORT_AWAIT_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>
#include <time.h>

static inline void await_pause(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

/* Between looks that cost a process each. */
static inline void await_rest(void)
{
    for (int i = 0; i < 50; i++)
        await_pause();
}

/* Until the process, which was told to, has stopped; false if it has ended. */
static inline bool await_stopped(pid_t pid)
{
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    while (state != 'T') {
        await_pause();
        FILE *file = fopen(path, "re");
        bool read = file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1;
        if (file)
            fclose(file);
        if (!read || state == 'Z')
            return false;
    }
    return true;
}

#endif
