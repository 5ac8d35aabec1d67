/* How much memory there is: of the machine, and what control groups grant. */
#include <lockstep/base/file.h>
#include <lockstep/device.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A field of /proc/meminfo in bytes. */
static int64_t meminfo(const char *name)
{
    char line[256];
    int64_t bytes = 0;
    size_t length = strlen(name);
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && !bytes && fgets(line, sizeof line, file))
        if (strncmp(line, name, length) == 0 && line[length] == ':')
            bytes = strtoll(line + length + 1, NULL, 10) * 1024;
    if (file)
        fclose(file);
    return bytes;
}

/* The number in a file; INT64_MAX if there is none ("max"). */
static int64_t bound_read(const char *path)
{
    char text[64], *end;
    if (!ls_file_head(path, text, sizeof text))
        return INT64_MAX;
    long long value = strtoll(text, &end, 10);
    return end == text || value < 0 ? INT64_MAX : value;
}

/* The least bound of a group and of those around it; path is cut apart. In a container the path may
 * be one of the host, which is not there: its root is. */
static int64_t bounds_walk(const char *root, char *path, const char *name)
{
    char file[PATH_MAX];
    int64_t least = INT64_MAX;
    path[strcspn(path, "\n")] = '\0';
    for (char *end = path + strlen(path); end; end = strrchr(path, '/')) {
        *end = '\0';
        if (snprintf(file, sizeof file, "%s%s/%s", root, path, name) < (int)sizeof file)
            least = ls_min(least, bound_read(file));
    }
    return least;
}

/* cgroups(7): "0::PATH" of version 2, "N:memory:PATH" of version 1. */
static int64_t group_bound(void)
{
    char line[PATH_MAX];
    int64_t least = INT64_MAX;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && fgets(line, sizeof line, file)) {
        char *memory = strstr(line, ":memory:");
        if (strncmp(line, "0::", 3) == 0)
            least = ls_min(least, bounds_walk("/sys/fs/cgroup", line + 3, "memory.max"));
        else if (memory)
            least = ls_min(
                least, bounds_walk("/sys/fs/cgroup/memory", memory + 8, "memory.limit_in_bytes"));
    }
    if (file)
        fclose(file);
    return least < INT64_C(1) << 60 ? least : 0;
}

struct ls_device_memory ls_device_memory(void)
{
    struct ls_device_memory memory = {.installed = meminfo("MemTotal"),
                                      .available = meminfo("MemAvailable"),
                                      .group = group_bound()};
    bool bound = memory.group > 0;
    memory.total = bound ? ls_min(memory.installed, memory.group) : memory.installed;
    memory.free = bound ? ls_min(memory.available, memory.group) : memory.available;
    return memory;
}
