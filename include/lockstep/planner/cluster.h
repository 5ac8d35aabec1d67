/* lockstep/planner/cluster.h - what a layout is planned for: hosts, accelerators, links, prices.
 *
 *   ls_cluster_read(path, &cluster, error)      a file in YAML; clusters/ holds some
 *   ... lockstep/planner/cost.h says how long things take on it ...
 *   ls_cluster_release(&cluster)
 *
 * An accelerator is what a rank computes with: a GPU, or, of a CPU machine, one core: there a rank
 * has as many as it has threads. Accelerators are numbered host by host, and ranks lie on them in
 * their order. Everything here is Local.
 *
 * The file, whose keys doc/planning.md lists (src/planner/cluster_keys.c has them):
 *
 *   name: H100 SXM x 2048
 *   source: where the figures are from         for people; may be a list; not kept
 *   hosts: 256
 *   accelerators: 8                            of a host
 *   accelerator: {name: H100 SXM5 80GB, peak: {bf16: 989 TFLOP/s}, memory: 80 GiB, ...}
 *   links:                                     from the innermost
 *     - {name: NVLink, joins: 8, latency: 3 us, bandwidth: 450 GB/s}
 *     - {name: InfiniBand, joins: 2048, latency: 8 us, bandwidth: 50 GB/s, topology: fat-tree}
 *   measured:                                  `lockstep bench machine` writes these
 *     works: [[product_bt, fp32, 1 (threads), 4096, 768, 768, 17301504 (bytes, may be left out),
 *              0.0123 (seconds)], ...]
 *     moves: [[all_reduce, 2 (ranks), 1048576 (bytes), 0.0011 (seconds)], ...]
 *
 * Figures take units (k, M, G, T, P; Ki, Mi, Gi, Ti; B, B/s, bit/s, bps, FLOP/s, W, kW, s, ms, us,
 * ns, min, h) or are plain numbers in bytes, bytes/s, operations/s, watts, seconds. Of types there
 * are fp32, bf16, fp16, and of copies and fills u8. */
#ifndef LOCKSTEP_PLANNER_CLUSTER_H
#define LOCKSTEP_PLANNER_CLUSTER_H

#include <lockstep/comm.h>
#include <lockstep/ops.h>

LS_C_BEGIN

enum { LS_CLUSTER_NAME_BYTES = 96, LS_CLUSTER_LINKS_MAX = 6 };

enum ls_link_topology { LS_LINK_FULL, LS_LINK_RING, LS_LINK_FAT_TREE };

/* One level of links. Domains of `joins` neighbouring accelerators are joined by it; joins of a
 * level is a multiple of the one below, and the outermost joins all (of the domains below it the
 * last one need not be full). */
struct ls_cluster_link {
    char name[LS_CLUSTER_NAME_BYTES];
    int64_t joins;
    double latency_s;   /* of a message, end to end */
    double bytes_per_s; /* of one accelerator, each way: its share of the host's card, say */
    double share;       /* of it that collectives and messages reach, in (0, 1] */
    enum ls_link_topology topology;
    double oversubscription; /* of a fat tree, at least 1: by it the rate falls where all talk */
    double overlap;          /* share of a message that hides, where more than the cluster's */
};

struct ls_cluster_accelerator {
    char name[LS_CLUSTER_NAME_BYTES];
    double peak[3]; /* operations/s, by ls_cluster_peak */
    double memory_bytes, bytes_per_s;
    double product_share, attention_share, pass_share; /* in (0, 1] */
    double attention_backward_share;                   /* 0: as attention_share */
    double attention_edge; /* keys whose time each query takes beyond those that it sees */
    int64_t tile_m, tile_n, units;
    double unit_bytes_per_s; /* that one of them moves in a collective; 0: others move */
    double launch_s, collective_launch_s;
    double spread;   /* standard deviation of what equal ones take for the same work, of its mean */
    int64_t is_core; /* 1: ranks have as many as they have threads */
    double power_w;
};

struct ls_measured_work {
    enum ls_work_kind kind;
    enum ls_dtype dtype;
    int threads; /* of each rank, while the other cores did the same */
    int64_t m, n, k;
    int64_t bytes; /* that the op reads and writes; 0: a row of all ops of that shape */
    double seconds;
};
struct ls_measured_move {
    enum ls_comm_kind kind; /* LS_COMM_SEND: one message; LS_COMM_OTHER: a few words */
    int ranks;
    int64_t bytes; /* of the whole array that is reduced or gathered; of the message */
    double seconds;
};

struct ls_cluster {
    char name[LS_CLUSTER_NAME_BYTES];
    int64_t hosts, accelerators; /* accelerators of each host */
    struct ls_cluster_accelerator accelerator;
    double host_memory_bytes, host_link_bytes_per_s;
    double disk_read_bytes_per_s, disk_write_bytes_per_s, disk_bytes;
    double storage_host_bytes_per_s, storage_bytes_per_s;
    struct ls_cluster_link link[LS_CLUSTER_LINKS_MAX];
    int links;
    double overlap;
    double host_power_w, power_overhead;
    double price_per_hour, failures_per_hour, restart_s;
    struct ls_measured_work *works; /* sorted by kind, type, threads, m, n, k, bytes */
    int64_t works_count;
    struct ls_measured_move *moves; /* sorted by kind, ranks, bytes */
    int64_t moves_count;
};

/* Operations a second of one accelerator in products of that type. */
double ls_cluster_peak(const struct ls_cluster *cluster, enum ls_dtype dtype);

/* Reads and checks a file of at most 16 MiB. Unknown keys, figures that are impossible (no
 * accelerator, a share above 1, a link that joins less than the one below, an outermost one that
 * does not join all): LS_ECONFIG, with file, line, what was expected, and the nearest key.
 * LS_EIO, LS_ENOMEM. After a failure there is nothing to release. */
int ls_cluster_read(const char *path, struct ls_cluster *cluster, struct ls_error *error);
/* The same from text[bytes], which errors call `name`. */
int ls_cluster_read_text(const char *name, const char *text, size_t bytes,
                         struct ls_cluster *cluster, struct ls_error *error);
/* Sets one figure, as in the file, by its path: "hosts", "link.InfiniBand.bandwidth",
 * "link.inter.bandwidth" (the outermost), "link.intra.latency" (the innermost), "link.inter" (its
 * bandwidth), "accelerator.memory", ... `lockstep plan --what-if` uses it. With hosts and
 * accelerators the links grow that joined all of a host, or all. LS_ECONFIG; cluster is as it was
 * then. */
int ls_cluster_set(struct ls_cluster *cluster, const char *path, const char *value,
                   struct ls_error *error);
/* Writes it as such a file, without source: read again it is the same. LS_EIO. */
int ls_cluster_write(const struct ls_cluster *cluster, FILE *file, struct ls_error *error);
void ls_cluster_release(struct ls_cluster *cluster);

LS_C_END
#endif
