#include <lockstep/device.h>

#include <sched.h>
#include <unistd.h>

int ls_device_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

bool ls_device_bound(void)
{
    return ls_device_cores() < sysconf(_SC_NPROCESSORS_ONLN);
}
