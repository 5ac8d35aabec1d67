/* How much memory there is: of the machine, and what control groups grant. */
#include <lockstep/base/file.h>
#include <lockstep/device.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number behind name in a file of lines; 0: there is none. */
static int64_t field_read(const char *path, const char *name)
{
    char line[256];
    int64_t value = 0;
    size_t length = strlen(name);
    FILE *file = fopen(path, "re");
    while (file && !value && fgets(line, sizeof line, file))
        if (strncmp(line, name, length) == 0)
            value = strtoll(line + length, NULL, 10);
    if (file)
        fclose(file);
    return value;
}

static int64_t meminfo(const char *name)
{
    return field_read("/proc/meminfo", name) * 1024;
}

/* The number in a file; INT64_MAX if there is none ("max"). */
static int64_t number_read(const char *path)
{
    char text[64], *end;
    if (!ls_file_head(path, text, sizeof text))
        return INT64_MAX;
    long long value = strtoll(text, &end, 10);
    return end == text || value < 0 ? INT64_MAX : value;
}

/* The files of a version of cgroups(7), and the fields of memory.stat that give way to others. */
struct groups {
    const char *root, *bound, *used, *gives_way[3];
};
static const struct groups version_2 = {"/sys/fs/cgroup",
                                        "memory.max",
                                        "memory.current",
                                        {"inactive_file ", "active_file ", "slab_reclaimable "}};
static const struct groups version_1 = {"/sys/fs/cgroup/memory",
                                        "memory.limit_in_bytes",
                                        "memory.usage_in_bytes",
                                        {"total_inactive_file ", "total_active_file "}};

/* What the bounds of groups grant, and what of that nobody has taken. */
struct grant {
    int64_t bytes, free;
};

static void group_read(const struct groups *groups, const char *group, struct grant *least)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s%s/%s", groups->root, group, groups->bound);
    int64_t bound = number_read(path);
    if (bound >= INT64_C(1) << 60)
        return;
    snprintf(path, sizeof path, "%s%s/%s", groups->root, group, groups->used);
    int64_t used = number_read(path);
    snprintf(path, sizeof path, "%s%s/memory.stat", groups->root, group);
    if (used == INT64_MAX)
        used = 0;
    for (int i = 0; i < 3 && groups->gives_way[i]; i++)
        used -= field_read(path, groups->gives_way[i]);
    least->bytes = ls_min(least->bytes, bound);
    least->free = ls_min(least->free, bound - ls_min(ls_max(used, 0), bound - 1));
}

/* A group and those around it; path is cut apart. In a container the path may be one of the host,
 * which is not there: its root is. */
static void groups_walk(const struct groups *groups, char *path, struct grant *least)
{
    path[strcspn(path, "\n")] = '\0';
    for (char *end = path + strlen(path); end; end = strrchr(path, '/')) {
        *end = '\0';
        group_read(groups, path, least);
    }
}

/* cgroups(7): "0::PATH" of version 2, "N:memory:PATH" of version 1. */
static struct grant grant_read(void)
{
    char line[PATH_MAX];
    struct grant least = {INT64_MAX, INT64_MAX};
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && fgets(line, sizeof line, file)) {
        char *memory = strstr(line, ":memory:");
        if (strncmp(line, "0::", 3) == 0)
            groups_walk(&version_2, line + 3, &least);
        else if (memory)
            groups_walk(&version_1, memory + 8, &least);
    }
    if (file)
        fclose(file);
    return least;
}

struct ls_device_memory ls_device_memory(void)
{
    struct grant grant = grant_read();
    struct ls_device_memory memory = {.installed = meminfo("MemTotal:"),
                                      .available = meminfo("MemAvailable:"),
                                      .group = grant.bytes < INT64_MAX ? grant.bytes : 0};
    memory.total = ls_min(memory.installed, grant.bytes);
    memory.free = ls_min(memory.available, grant.free);
    return memory;
}
