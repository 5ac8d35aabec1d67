/* lockstep/device.h - what a rank computes on: the cores and the memory of a CPU.
 *
 *   ls_device_cores    how many cores there are to share
 *   ls_device_memory   how much memory
 *   struct ls_arena    a device's memory: one allocation, cut front to back before the first step
 *   device/tier.h      memory tiers: host memory and files, for what does not fit into a device's
 *
 * Everything here is Local. */
#ifndef LOCKSTEP_DEVICE_H
#define LOCKSTEP_DEVICE_H

#include <lockstep/base.h>

LS_C_BEGIN

/* ---- cores ---------------------------------------------------------------------------------- */

/* Cores by their numbers on the machine: core i is bit i % 64 of bits[i / 64], as the system has
 * it. Linux runs on at most 8,192. */
enum { LS_CORES_MAX = 1 << 14 };
struct ls_core_set {
    uint64_t bits[LS_CORES_MAX / 64];
};
/* Those that this process may run on (its affinity mask). False, and none, if the system does not
 * tell. */
bool ls_device_core_set(struct ls_core_set *set);
/* How many it has; those of the machine if it has none. */
int ls_device_cores_of(const struct ls_core_set *set);
/* Cores that this process may run on, at least 1. */
int ls_device_cores(void);
/* Cores of the machine, whoever may run on them. */
int ls_device_cores_online(void);
/* Threads of a process that it makes sense to start, at most: four for each core of the machine,
 * also where the process may not run on all of them. */
int ls_device_threads_max(void);
/* The processor's name; false if the system does not tell: then name stays as it is. */
bool ls_device_processor(char *name, size_t bytes);

/* ---- memory --------------------------------------------------------------------------------- */

/* In bytes; 0 for what is not known. */
struct ls_device_memory {
    int64_t installed, available; /* of the machine; of that, what processes may still take */
    int64_t group;                /* that the control groups of this process grant; 0: no bound */
    int64_t total, free;          /* the less of these, and of group and what is left of it */
};
struct ls_device_memory ls_device_memory(void);

/* What is done to bytes of a device. */
enum ls_access { LS_READS = 1, LS_WRITES = 2, LS_READS_WRITES = 3 };

/* An arena hands out 64-byte aligned pieces of one block, front to back. In measuring mode
 * (ls_arena_measure) it has no block, returns NULL for every piece and only counts: running the
 * same code first on a measuring arena gives the exact size that the real one needs. */
struct ls_arena {
    unsigned char *base; /* NULL while measuring */
    size_t size, used, peak;
    bool measuring; /* its pieces are not to be touched */
};
void ls_arena_measure(struct ls_arena *arena);
/* Takes size bytes of addresses and no memory: it hands out pieces, and who touches one faults. For
 * going through the motions (ls_ops_init_idle); measuring, too. */
int ls_arena_reserve(struct ls_arena *arena, size_t size, struct ls_error *error);
/* Takes size bytes from the system, zeroed. */
int ls_arena_init(struct ls_arena *arena, size_t size, struct ls_error *error);
void ls_arena_release(struct ls_arena *arena);
/* A piece of bytes (0 allowed). Past the end is a broken invariant and aborts. Not zeroed again
 * after a reset. */
void *ls_arena_take(struct ls_arena *arena, size_t bytes);
/* The same, at a multiple of align bytes: a power of two from 64 to 4096, for an arena that has its
 * block from the system. */
void *ls_arena_take_aligned(struct ls_arena *arena, size_t bytes, size_t align);
/* What was taken after mark is free again. mark = arena->used at some earlier moment. */
void ls_arena_reset(struct ls_arena *arena, size_t mark);

LS_C_END
#endif
