/* Carries frames between two TAP devices, badly. */
#include "link_relay.h"
#include "../support/child.h"

#include <lockstep/base.h>

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FRAME_BYTES = 2048, FRAMES = 4096 };

/* A frame on its way to end `to`; free where length is 0. */
struct frame {
    double due_s;
    long long number; /* of those that came from the other end */
    int to, length;
    uint8_t bytes[FRAME_BYTES];
};

struct relay {
    int device[2];
    long long came[2], last[2]; /* for each end: frames for it, and the newest it has got */
    struct link_faults faults;
    struct link_counts *counts;
    struct frame frames[FRAMES];
};

/* A TAP device in the network of a process; -1 where it cannot be made. */
static int tap_open(pid_t end, const char *device)
{
    char path[64];
    struct ifreq wish = {.ifr_flags = IFF_TAP | IFF_NO_PI};
    snprintf(path, sizeof path, "/proc/%ld/ns/net", (long)end);
    int network = open(path, O_RDONLY | O_CLOEXEC);
    if (network < 0 || setns(network, CLONE_NEWNET) != 0)
        return -1;
    close(network);
    int tap = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    snprintf(wish.ifr_name, sizeof wish.ifr_name, "%s", device);
    return tap < 0 || ioctl(tap, TUNSETIFF, &wish) != 0 ? -1 : tap;
}

static bool drawn(struct relay *relay, int of_1000)
{
    return rand_r(&relay->faults.seed) % 1000 < of_1000;
}

/* Takes a frame from the other end of `to`; false where there is none. */
static bool frame_take(struct relay *relay, int to)
{
    struct frame taken = {.to = to};
    taken.length = (int)read(relay->device[!to], taken.bytes, sizeof taken.bytes);
    if (taken.length <= 0)
        return false;
    taken.number = ++relay->came[to];
    bool lost = drawn(relay, relay->faults.lost) || relay->counts->silent;
    int copies = lost ? 0 : 1 + drawn(relay, relay->faults.twice);
    relay->counts->lost += copies == 0;
    relay->counts->twice += copies == 2;
    for (int i = 0; i < FRAMES && copies; i++) {
        if (relay->frames[i].length)
            continue;
        taken.due_s =
            ls_now_s() + rand_r(&relay->faults.seed) % 1000 * 1e-6 * relay->faults.late_ms;
        relay->frames[i] = taken;
        copies--;
    }
    relay->counts->lost += copies != 0; /* no room, as in a switch */
    return true;
}

/* A device that is down takes nothing: the frame is lost. */
static void frame_give(struct relay *relay, struct frame *frame)
{
    bool given = write(relay->device[frame->to], frame->bytes, (size_t)frame->length) > 0;
    (*(given ? &relay->counts->carried : &relay->counts->lost))++;
    if (frame->number < relay->last[frame->to])
        relay->counts->overtaken++;
    else
        relay->last[frame->to] = frame->number;
    frame->length = 0;
}

static struct frame *frame_next(struct relay *relay)
{
    struct frame *next = NULL;
    for (int i = 0; i < FRAMES; i++)
        if (relay->frames[i].length && (!next || relay->frames[i].due_s < next->due_s))
            next = &relay->frames[i];
    return next;
}

static void relay_run(struct relay *relay)
{
    struct pollfd ready[2] = {{relay->device[0], POLLIN, 0}, {relay->device[1], POLLIN, 0}};
    for (;;) {
        struct frame *next = frame_next(relay);
        double left_s = next ? next->due_s - ls_now_s() : 0;
        if (next && left_s <= 0) {
            frame_give(relay, next);
            continue;
        }
        struct timespec left = {.tv_nsec = (long)(left_s * 1e9)};
        ppoll(ready, 2, next ? &left : NULL, NULL);
        for (int end = 0; end < 2; end++)
            while (frame_take(relay, !end))
                continue;
    }
}

pid_t link_relay_start(const pid_t ends[2], const char *device, const struct link_faults *faults,
                       struct link_counts *counts)
{
    int told[2];
    char made = 0;
    if (pipe(told) != 0)
        return 0;
    pid_t child = child_fork(SIGKILL);
    if (child == 0) {
        struct relay *relay = calloc(1, sizeof *relay);
        int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
        for (int end = 0; relay && end < 2; end++)
            relay->device[end] = tap_open(ends[end], device);
        made = relay && relay->device[0] >= 0 && relay->device[1] >= 0 && setns(home, 0) == 0;
        if (write(told[1], &made, 1) != 1 || !made)
            _exit(1);
        relay->faults = *faults;
        relay->counts = counts;
        relay_run(relay);
    }
    close(told[1]);
    bool there = read(told[0], &made, 1) == 1 && made;
    close(told[0]);
    if (there)
        return child;
    waitpid(child, NULL, 0);
    return 0;
}
