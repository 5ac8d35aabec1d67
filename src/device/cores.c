/* The cores that this process may use. */
#include <lockstep/device.h>

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A cpu_set_t has 1,024 bits: the call fails on a machine of more cores. */
bool ls_device_core_set(struct ls_core_set *set)
{
    *set = (struct ls_core_set){0};
    return sched_getaffinity(0, sizeof *set, (cpu_set_t *)set) == 0;
}

int ls_device_cores_of(const struct ls_core_set *set)
{
    int cores = CPU_COUNT_S(sizeof *set, (const cpu_set_t *)set);
    return cores > 0 ? cores : ls_device_cores_online();
}

int ls_device_cores(void)
{
    struct ls_core_set set;
    ls_device_core_set(&set);
    return ls_device_cores_of(&set);
}

int ls_device_cores_online(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores > 0 ? (int)cores : 1;
}

int ls_device_threads_max(void)
{
    enum { THREADS_OF_A_CORE = 4 };
    return THREADS_OF_A_CORE * ls_device_cores_online();
}

bool ls_device_processor(char *name, size_t bytes)
{
    char line[8192];
    bool found = false;
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && !found && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", strlen("model name")) != 0 || !colon)
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        snprintf(name, bytes, "%.*s", (int)strcspn(colon, "\n"), colon);
        found = true;
    }
    if (file)
        fclose(file);
    return found;
}
