/* The processor and the memory. */
#include "cmd.h"
#include "doctor.h"

#include <lockstep/base/words.h>
#include <lockstep/device.h>
#include <lockstep/ops.h>

#include <hwloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* The first line of a file, without its end. */
static bool file_line(const char *path, char *value, size_t bytes)
{
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    bool found = fgets(value, (int)bytes, file) != NULL;
    if (found)
        value[strcspn(value, "\n")] = '\0';
    fclose(file);
    return found;
}

/* ---- the processor -------------------------------------------------------------------------- */

#if defined(__aarch64__)
enum { PLAIN_IS_NEON = 1 };
#else
enum { PLAIN_IS_NEON = 0 };
#endif

static void print_computing(void)
{
    enum ls_isa best = ls_isa_best();
    char text[128] = "";
    for (int isa = LS_ISA_PLAIN; isa <= (int)best; isa++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s", isa ? ", " : "",
                 ls_isa_name((enum ls_isa)isa));
    }
    doctor_row("instruction sets", "%s", text);
    enum ls_arithmetic fastest = ls_arithmetic_fastest(best, LS_BF16);
    doctor_row("bf16 here", "numerics.arithmetic: auto takes %s, numerics.isa: auto takes %s",
               ls_arithmetic_name(fastest), ls_isa_name(ls_isa_fastest(best, fastest, LS_BF16)));
}

static void print_caches(hwloc_topology_t topology)
{
    static const struct {
        hwloc_obj_type_t type;
        const char *name;
    } levels[] = {{HWLOC_OBJ_L1CACHE, "L1 data cache"},
                  {HWLOC_OBJ_L2CACHE, "L2 cache"},
                  {HWLOC_OBJ_L3CACHE, "L3 cache"}};
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        hwloc_obj_t cache = hwloc_get_obj_by_type(topology, levels[i].type, 0);
        if (!cache || !cache->attr)
            continue;
        doctor_row(levels[i].name, "%d x %s", hwloc_get_nbobjs_by_type(topology, levels[i].type),
                   ls_bytes((double)cache->attr->cache.size).text);
    }
}

/* The CPU time that a control group grants, in cores; 0 where there is no bound. */
static double quota_cores(void)
{
    char line[128];
    double quota = 0, period = 0;
    if (file_line("/sys/fs/cgroup/cpu.max", line, sizeof line))
        return sscanf(line, "%lf %lf", &quota, &period) == 2 && period > 0 ? quota / period : 0;
    if (!file_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", line, sizeof line))
        return 0;
    quota = atof(line);
    if (quota <= 0 || !file_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us", line, sizeof line))
        return 0;
    period = atof(line);
    return period > 0 ? quota / period : 0;
}

void doctor_processor(struct doctor *doctor)
{
    puts("\nProcessor");
    char model[256];
    if (ls_device_processor(model, sizeof model))
        doctor_row("model", "%s", model);
    print_computing();
    if (ls_isa_best() == LS_ISA_PLAIN && !PLAIN_IS_NEON)
        doctor_advice(doctor, "no AVX2: kernels run in portable C",
                      "use an x86-64 machine with AVX2 or better");
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0)
        return;
    if (hwloc_topology_load(topology) == 0) {
        hwloc_const_bitmap_t allowed = hwloc_topology_get_allowed_cpuset(topology);
        doctor_row("cores", "%d in %d package(s), %d hardware thread(s), %d usable here",
                   hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE),
                   hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE),
                   hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU), hwloc_bitmap_weight(allowed));
        doctor_row("NUMA nodes", "%d", hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE));
        print_caches(topology);
    }
    hwloc_topology_destroy(topology);
    double quota = quota_cores();
    if (quota > 0)
        doctor_row("control group", "at most %.1f cores of CPU time", quota);
}

/* ---- memory --------------------------------------------------------------------------------- */

static void print_limit(const char *name, int resource, bool bytes)
{
    struct rlimit limit;
    if (getrlimit((__rlimit_resource_t)resource, &limit) != 0)
        return;
    if (limit.rlim_cur == RLIM_INFINITY)
        doctor_row(name, "unlimited");
    else if (bytes)
        doctor_row(name, "%s", ls_bytes((double)limit.rlim_cur).text);
    else
        doctor_row(name, "%llu", (unsigned long long)limit.rlim_cur);
}

static void check_available(struct doctor *doctor, int64_t available)
{
    enum { NEEDED = 512 << 20 };
    struct rlimit space;
    if (available > 0 && available < NEEDED)
        doctor_problem(doctor, "less than 512 MiB of memory is free",
                       "end other programs, or raise the control group's bound");
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY &&
        space.rlim_cur < (rlim_t)NEEDED * 4)
        doctor_problem(doctor, "the address space is limited to less than 2 GiB",
                       "ulimit -v unlimited");
    if (getrlimit(RLIMIT_NOFILE, &space) == 0 && space.rlim_cur < 256)
        doctor_problem(doctor, "fewer than 256 files may be open at once", "ulimit -n 1024");
}

void doctor_memory(struct doctor *doctor)
{
    puts("\nMemory");
    struct ls_device_memory memory = ls_device_memory();
    doctor_row("installed", "%s, %s free", ls_bytes((double)memory.installed).text,
               ls_bytes((double)memory.available).text);
    if (memory.group > 0)
        doctor_row("control group", "at most %s", ls_bytes((double)memory.group).text);
    print_limit("address space (-v)", RLIMIT_AS, true);
    print_limit("locked memory (-l)", RLIMIT_MEMLOCK, true);
    print_limit("open files (-n)", RLIMIT_NOFILE, false);
    struct statvfs shared;
    if (statvfs("/dev/shm", &shared) == 0)
        doctor_row("/dev/shm", "%s free",
                   ls_bytes((double)shared.f_bavail * (double)shared.f_frsize).text);
    char huge[128];
    if (file_line("/sys/kernel/mm/transparent_hugepage/enabled", huge, sizeof huge)) {
        doctor_row("huge pages", "%s", huge);
        if (strstr(huge, "[never]"))
            doctor_advice(doctor, "huge pages are off: large buffers cost more address translation",
                          "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled");
    }
    check_available(doctor, memory.free);
}
