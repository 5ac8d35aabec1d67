/* A cable that is no good: two TAP devices, and a process that carries the frames of each to the
 * other late, in another order, twice, or not at all, as it draws. (Linux has netem for this, which
 * many kernels are built without.) */
#ifndef TEST_HOSTS_LINK_RELAY_H
#define TEST_HOSTS_LINK_RELAY_H

#include <stdatomic.h>
#include <sys/types.h>

struct link_faults {
    int lost, twice; /* of 1,000 frames */
    int late_ms;     /* each is up to so late, so that others overtake it */
    unsigned seed;
};

/* What was done, over both ways. While it is silent, every frame is lost. */
struct link_counts {
    atomic_llong carried, lost, twice, overtaken;
    atomic_bool silent;
};

/* Makes `device` in the networks of both processes, and carries frames between them until the
 * process that it returns is killed, with which the devices go. 0: this system makes none. The
 * counts are to be in memory that processes share. */
pid_t link_relay_start(const pid_t ends[2], const char *device, const struct link_faults *faults,
                       struct link_counts *counts);

#endif
