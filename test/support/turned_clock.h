/* A clock that the ranks of a test share, in the place of the machine's (Makefile, TURNED): of rank
 * threads, or of processes that map the same file. It stands still, but for a
 * microsecond at each look at it: who waits awake for a while gets on. It turns when the test turns
 * it, and by itself while each of turned->ranks waits (it has begun to, or has looked who is late,
 * since the clock turned last) or is away. So nobody is late because it had no core. Included by
 * the one file of such a test.
 */
#ifndef TEST_SUPPORT_TURNED_CLOCK_H
#define TEST_SUPPORT_TURNED_CLOCK_H

#include "await.h"
#include "wrapped.h"

#include "comm/flight.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { TURNED_RANKS = 4 };

/* The timeout of the ranks, and how far the clock turns at once: whoever waits looks each time, and
 * no turn is so long that it counts as one in which the rank did not run (comm/flight.c). */
static const double turned_timeout_s = 2, turned_step_s = 0.5;

/* Zeros at first. */
struct turned_clock {
    atomic_int ranks, said;  /* of the world, if it turns by itself; that found somebody late */
    atomic_bool gave_up;     /* one that waited */
    atomic_llong now_ns;     /* how far it is */
    _Atomic double turned_s; /* when it turned last */
    _Atomic double heard_s;  /* who looks shall know of progress until then, or looks again */
    struct {
        _Atomic double looked_s, knows_s; /* when the rank looked last; of progress until when */
        atomic_int away;                  /* it is, until so many have said who is late */
    } rank[TURNED_RANKS];
};
static struct turned_clock turned_own, *turned = &turned_own;

/* A rank may be ahead of the clock; what it does before it begins to wait. */
static _Thread_local int64_t turned_ahead_ns;
static void (*turned_before_wait)(void);

/* As at first, with so many ranks. A rank that an earlier world left behind may still look. */
static inline void turned_begin(int ranks)
{
    atomic_store(&turned->said, 0);
    atomic_store(&turned->gave_up, false);
    atomic_store(&turned->now_ns, 0);
    atomic_store(&turned->turned_s, 0);
    atomic_store(&turned->heard_s, 0);
    for (int rank = 0; rank < TURNED_RANKS; rank++) {
        atomic_store(&turned->rank[rank].looked_s, 0);
        atomic_store(&turned->rank[rank].knows_s, 0);
        atomic_store(&turned->rank[rank].away, 0);
    }
    atomic_store(&turned->ranks, ranks);
}

/* From here on the clock is that of all processes which name this file. */
static inline void turned_share(const char *path)
{
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, sizeof *turned))
        abort();
    turned = mmap(NULL, sizeof *turned, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (turned == MAP_FAILED)
        abort();
    close(file);
}

static inline double turned_time(int64_t ns)
{
    return 1000 + 1e-9 * (double)ns;
}

/* Returns the time after. */
static inline double turned_turn(double seconds)
{
    int64_t ns = llround(1e9 * seconds);
    double now_s = turned_time(atomic_fetch_add(&turned->now_ns, ns) + ns);
    atomic_store(&turned->turned_s, now_s);
    return now_s;
}

static inline bool turned_waits(int rank, double since_s)
{
    return atomic_load(&turned->rank[rank].looked_s) > since_s ||
           atomic_load(&turned->said) < atomic_load(&turned->rank[rank].away);
}

static inline void turned_by_itself(void)
{
    double last_s = atomic_load(&turned->turned_s);
    int ranks = atomic_load(&turned->ranks), waiting = 0;
    while (waiting < ranks && turned_waits(waiting, last_s))
        waiting++;
    if (ranks && waiting == ranks &&
        atomic_compare_exchange_strong(&turned->turned_s, &last_s, INFINITY))
        turned_turn(turned_step_s);
}

/* A rank that waits has looked since then, and knows what it shall hear; or one gave up. */
static inline void turned_await(int rank, double since_s)
{
    do
        await_pause();
    while ((atomic_load(&turned->rank[rank].looked_s) <= since_s ||
            atomic_load(&turned->rank[rank].knows_s) < atomic_load(&turned->heard_s)) &&
           !atomic_load(&turned->gave_up));
}

static inline void turned_say(void)
{
    atomic_fetch_add(&turned->said, 1);
}

/* The rank does nothing until so many have said who is late. */
static inline void turned_stay(int rank, int said)
{
    atomic_store(&turned->rank[rank].away, said);
    while (atomic_load(&turned->said) < said)
        await_pause();
}

WRAPPED(ls_now_s);
double __wrap_ls_now_s(void)
{
    enum { LOOK_NS = 1000 };
    turned_by_itself();
    return turned_time(atomic_fetch_add(&turned->now_ns, LOOK_NS) + LOOK_NS + turned_ahead_ns);
}

static void turned_looked(const struct ls_comm *comm, double now_s, double knows_s)
{
    int rank = comm->world_ranks[comm->rank];
    atomic_store(&turned->rank[rank].knows_s, knows_s);
    atomic_store(&turned->rank[rank].looked_s, now_s);
}

WRAPPED(flight_wait_begin);
void __wrap_flight_wait_begin(struct flight_wait *wait, const struct ls_comm *comm, double now_s)
{
    if (turned_before_wait)
        turned_before_wait();
    __real_flight_wait_begin(wait, comm, now_s);
    turned_looked(comm, now_s, now_s);
}

WRAPPED(flight_wait_moved);
void __wrap_flight_wait_moved(struct flight_wait *wait, const struct ls_comm *comm, double now_s)
{
    __real_flight_wait_moved(wait, comm, now_s);
    turned_looked(comm, now_s, now_s);
}

static int turned_polls; /* how often a wait has said that it ran */

/* A turn of the clock is longer than one of a wait that polls. */
WRAPPED(flight_wait_seen);
void __wrap_flight_wait_seen(struct flight_wait *wait, double now_s)
{
    (void)wait, (void)now_s;
    turned_polls++;
}

WRAPPED(flight_wait_look);
bool __wrap_flight_wait_look(struct flight_wait *wait, const struct ls_comm *comm,
                             const struct flight_late *late, double now_s)
{
    double knows_s = fmax(wait->begin_s, late->known ? late->progress_s : 0);
    bool waits = __real_flight_wait_look(wait, comm, late, now_s);
    if (!waits)
        atomic_store(&turned->gave_up, true);
    else if (knows_s < atomic_load(&turned->heard_s))
        wait->look_s = now_s;
    turned_looked(comm, now_s, knows_s);
    return waits;
}

/* A short sleep, whatever the time is. */
WRAPPED(pthread_cond_timedwait);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *until)
{
    double soon_s = __real_ls_now_s() + 0.002;
    const struct timespec soon = {(time_t)soon_s, (long)(fmod(soon_s, 1) * 1e9)};
    (void)until;
    return __real_pthread_cond_timedwait(cond, mutex, &soon);
}

/* Ranks share one core, so who waits leaves it to the others, and sleeps. */
WRAPPED(sysconf);
long __wrap_sysconf(int name)
{
    return name == _SC_NPROCESSORS_ONLN ? 1 : __real_sysconf(name);
}

WRAPPED(sched_yield);
int __wrap_sched_yield(void)
{
    await_pause();
    return 0;
}

#endif
