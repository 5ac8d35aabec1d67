/* lockstep/planner/storage.h - what a run reads and writes beside its steps, and how long that
 * takes on a cluster: samples from the disk, checkpoints to it. Everything here is Local.
 *
 * Samples. Each rank's loader reads the samples of the next step on a thread of its own while a
 * step computes (lockstep/data.h), so a step waits only for what is longer than itself. Ranks of a
 * host that share sequences read them once: the others find them in memory. Counted is what the
 * host with most reads for one step, at the rate of its disks: one pass over a corpus that no
 * memory keeps.
 *
 * Samples from elsewhere come over the network: to each host at storage.host, to all of them at
 * storage.all. Counted are their own bytes, which is what a step takes where they are read in the
 * file's order, or lie in caches. Shuffled samples whose blocks nobody has fetched yet take a whole
 * block each (cold_bytes), which no forecast of a step counts.
 *
 * Checkpoints. Without snapshots they hold the job up, as ls_state_save takes them: every rank
 * reads its part of the state for the state's hash, as long as the exact norm takes over as many
 * elements; then each reads its share for the digests and hands it to the disks of its host, which
 * write meanwhile. Counted is the pipeline stage that has most of the state.
 *
 * Snapshots. Steps wait for the copies on other hosts; threads hash and copy beside the next step,
 * which waits for what is longer than itself. */
#ifndef LOCKSTEP_PLANNER_STORAGE_H
#define LOCKSTEP_PLANNER_STORAGE_H

#include <lockstep/planner/cost.h>
#include <lockstep/state.h>

LS_C_BEGIN

struct ls_samples_cost {
    double bytes;      /* that the host with most reads for a step */
    double elsewhere;  /* of these, from elsewhere */
    double hosts;      /* that read as much */
    double cold_bytes; /* from elsewhere for a step, to a host whose cache is empty */
    double seconds;    /* 0 if the cluster names no rate to read them at */
};
/* config is resolved, layout its own; each rank has so many accelerators. */
struct ls_samples_cost ls_cost_samples(const struct ls_cluster *cluster,
                                       const struct ls_config *config,
                                       const struct ls_layout *layout, int accelerators);

struct ls_save_cost {
    double bytes;   /* of all tensors */
    double share;   /* of them, a rank's */
    double hash_s;  /* of the state */
    double copy_s;  /* of a rank's share, with its digests, to the system */
    double write_s; /* by the disks of a host, of its ranks' shares; 0 if the cluster names none */
    double seconds; /* hash_s, and the longer of the other two */
};
struct ls_snapshot_cost {
    double copy_s;  /* of a rank's share, to the memory of its host */
    double send_s;  /* of that to as many hosts as snapshot.replicas says, all ranks at once */
    double seconds; /* that a step waits: send_s, and what a step does not hide of the rest */
};
/* Of what save was found to take, beside steps of step_s. */
struct ls_snapshot_cost ls_cost_snapshot(const struct ls_cluster *cluster,
                                         const struct ls_config *config,
                                         const struct ls_layout *layout, int accelerators,
                                         const struct ls_save_cost *save, double step_s);
/* LS_ENOMEM. */
int ls_cost_save(const struct ls_cluster *cluster, const struct ls_config *config,
                 const struct ls_layout *layout, int accelerators, struct ls_save_cost *save,
                 struct ls_error *error);

LS_C_END
#endif
