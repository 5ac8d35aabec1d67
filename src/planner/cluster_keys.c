/* The keys of a cluster file: one table from which files are read and written, figures are set, and
 * the documentation is made. */
#include "planner/cluster_private.h"

#include <stddef.h>
#include <string.h>

#define AT(field)          offsetof(struct ls_cluster, field)
#define OF_LINK(field)     offsetof(struct ls_cluster_link, field)
#define ACCELERATOR(field) AT(accelerator.field)
#define REQUIRED           NULL
#define KEY(name, type, initial, low, high, words, at, help)                                       \
    {                                                                                              \
        name, LS_CONFIG_##type, LS_CONFIG_RUN, initial, low, high, false, false, words, help, at   \
    }

/* Bounds that leave any machine in, and keep sums and quotients finite. */
#define LARGE       1e18
#define LEAST_SHARE 1e-6

static const struct ls_word topologies[] = {
    {"full", LS_LINK_FULL}, {"ring", LS_LINK_RING}, {"fat-tree", LS_LINK_FAT_TREE}, {NULL, 0}};

/* Of a link, "links.KEY". An initial of "" is that of bf16. */
static const struct ls_config_key keys[] = {
    KEY("name", NAME, REQUIRED, 1, LS_CLUSTER_NAME_BYTES, NULL, AT(name), "name of the cluster"),
    KEY("hosts", INT, REQUIRED, 1, 1e6, NULL, AT(hosts), "machines"),
    KEY("accelerators", INT, REQUIRED, 1, 1e5, NULL, AT(accelerators),
        "GPUs of each host, or cores of a CPU"),
    KEY("accelerator.name", NAME, REQUIRED, 1, LS_CLUSTER_NAME_BYTES, NULL, ACCELERATOR(name),
        "its name"),
    KEY("accelerator.peak.fp32", FLOPS, "", 1, 1e21, NULL, ACCELERATOR(peak[0]),
        "operations a second in float32, dense; default: that of bf16"),
    KEY("accelerator.peak.bf16", FLOPS, REQUIRED, 1, 1e21, NULL, ACCELERATOR(peak[1]),
        "operations a second in bf16, dense (not the figure with sparsity)"),
    KEY("accelerator.peak.fp16", FLOPS, "", 1, 1e21, NULL, ACCELERATOR(peak[2]),
        "operations a second in fp16, dense; default: that of bf16"),
    KEY("accelerator.memory", SIZE, REQUIRED, 1, LARGE, NULL, ACCELERATOR(memory_bytes),
        "its own memory; for a core, its share of the host's"),
    KEY("accelerator.bandwidth", RATE, REQUIRED, 1, LARGE, NULL, ACCELERATOR(bytes_per_s),
        "of that memory; for a core, its share while all cores work"),
    KEY("accelerator.product_share", REAL, "0.75", LEAST_SHARE, 1, NULL, ACCELERATOR(product_share),
        "share of the peak that large products reach"),
    KEY("accelerator.attention_share", REAL, "0.5", LEAST_SHARE, 1, NULL,
        ACCELERATOR(attention_share),
        "share of the peak that attention's forward reaches on long sequences"),
    KEY("accelerator.attention_backward_share", REAL, "0", 0, 1, NULL,
        ACCELERATOR(attention_backward_share), "the same of its backward; 0: as the forward"),
    KEY("accelerator.attention_edge", REAL, "0", 0, 65536, NULL, ACCELERATOR(attention_edge),
        "keys whose time each query takes beyond those that it sees: tiles that a causal mask "
        "cuts, and the beginning and end of each row of tiles"),
    KEY("accelerator.pass_share", REAL, "0.85", LEAST_SHARE, 1, NULL, ACCELERATOR(pass_share),
        "share of the bandwidth that elementwise passes reach"),
    KEY("accelerator.tile", PAIR, "[128, 256]", 1, 65536, NULL, ACCELERATOR(tile_m),
        "rows and columns of a large product that one unit computes at once; small products "
        "use smaller tiles"),
    KEY("accelerator.units", INT, "0", 0, 1e6, NULL, ACCELERATOR(units),
        "units that compute tiles in parallel; 0: a product loses nothing at its last tiles"),
    KEY("accelerator.unit_bandwidth", RATE, "0", 0, LARGE, NULL, ACCELERATOR(unit_bytes_per_s),
        "rate at which one unit moves a collective, which takes as many units as it needs from "
        "computation; 0: none"),
    KEY("accelerator.launch", SECONDS, "0", 0, 1, NULL, ACCELERATOR(launch_s),
        "delay before each op begins"),
    KEY("accelerator.collective_launch", SECONDS, "0", 0, 1, NULL, ACCELERATOR(collective_launch_s),
        "delay before each collective or message begins"),
    KEY("accelerator.spread", REAL, "0", 0, 1, NULL, ACCELERATOR(spread),
        "standard deviation of the times that equal accelerators take for the same work, as a "
        "share of their mean; a step goes at the pace of the slowest"),
    KEY("accelerator.is_core", INT, "0", 0, 1, NULL, ACCELERATOR(is_core),
        "1: a core of a CPU; a rank uses one per thread"),
    KEY("accelerator.power", WATTS, "0", 0, 1e6, NULL, ACCELERATOR(power_w),
        "power while it computes"),
    KEY("memory", SIZE, "0", 0, LARGE, NULL, AT(host_memory_bytes),
        "memory of a host; 0: nothing can be offloaded to it"),
    KEY("host_link", RATE, "0", 0, LARGE, NULL, AT(host_link_bytes_per_s),
        "rate of an accelerator to its host's memory, each way, while all accelerators use "
        "theirs; 0: none"),
    KEY("disk.read", RATE, "0", 0, LARGE, NULL, AT(disk_read_bytes_per_s),
        "read rate of a host's local disks; 0: there are none"),
    KEY("disk.write", RATE, "0", 0, LARGE, NULL, AT(disk_write_bytes_per_s),
        "write rate of a host's local disks; 0: there are none"),
    KEY("disk.size", SIZE, "0", 0, LARGE, NULL, AT(disk_bytes), "size of a host's local disks"),
    KEY("storage.host", RATE, "0", 0, LARGE, NULL, AT(storage_host_bytes_per_s),
        "rate at which data from elsewhere (http://, https://, s3://) come to one host; 0: "
        "unknown"),
    KEY("storage.all", RATE, "0", 0, LARGE, NULL, AT(storage_bytes_per_s),
        "rate at which they come to all hosts together; 0: unknown"),
    KEY("links.name", NAME, REQUIRED, 1, LS_CLUSTER_NAME_BYTES, NULL, OF_LINK(name),
        "its name, also for `--what-if`"),
    KEY("links.joins", INT, REQUIRED, 1, 1e11, NULL, OF_LINK(joins),
        "neighbouring accelerators that one domain of it joins"),
    KEY("links.latency", SECONDS, REQUIRED, 0, 10, NULL, OF_LINK(latency_s),
        "latency of a small message, end to end"),
    KEY("links.bandwidth", RATE, REQUIRED, 1, LARGE, NULL, OF_LINK(bytes_per_s),
        "rate of one accelerator, each way; if several share a network card, its share"),
    KEY("links.share", REAL, "1", LEAST_SHARE, 1, NULL, OF_LINK(share),
        "share of that rate which large collectives and messages reach; 1 if it was measured"),
    KEY("links.topology", WORD, "full", 0, 0, topologies, OF_LINK(topology),
        "full: one switch, or all to all; ring: only to the neighbours; fat-tree: a tree of "
        "switches"),
    KEY("links.oversubscription", REAL, "1", 1, 1e4, NULL, OF_LINK(oversubscription),
        "of a fat tree: links down per link up; divides the rate if all ranks send at once"),
    KEY("links.overlap", REAL, "0", 0, 1, NULL, OF_LINK(overlap),
        "share of a message over this link that overlaps with computation; used if it is "
        "more than `overlap`"),
    KEY("overlap", REAL, "1", 0, 1, NULL, AT(overlap),
        "share of communication that overlaps with concurrent computation"),
    KEY("power.host", WATTS, "0", 0, 1e7, NULL, AT(host_power_w),
        "power of a host without its accelerators"),
    KEY("power.overhead", REAL, "1", 1, 10, NULL, AT(power_overhead),
        "PUE: the power of the building as a multiple of that of the hosts"),
    KEY("price", REAL, "0", 0, 1e6, NULL, AT(price_per_hour),
        "dollars an hour of an accelerator with its share of the host"),
    KEY("failures", REAL, "0", 0, 1e3, NULL, AT(failures_per_hour),
        "failures an hour of an accelerator with its share of the host"),
    KEY("restart", SECONDS, "300", 0, 1e7, NULL, AT(restart_s),
        "time from a failure to the next step, without lost work"),
    {.name = NULL},
};
enum { KEYS = sizeof keys / sizeof *keys - 1 };
_Static_assert((int)KEYS <= (int)CLUSTER_KEYS_MAX, "raise CLUSTER_KEYS_MAX");

const struct ls_word cluster_dtypes[] = {
    {"fp32", LS_F32}, {"bf16", LS_BF16}, {"fp16", LS_F16}, {"u8", LS_U8}, {NULL, 0}};

const struct ls_config_key *cluster_keys(void)
{
    return keys;
}

bool cluster_key_is_link(const struct ls_config_key *key)
{
    return strncmp(key->name, "links.", 6) == 0;
}

/* What people and other programs call them. */
static const struct {
    const char *theirs, *ours;
} elsewhere[] = {
    {"nodes|num_nodes|nnodes|machines|servers", "hosts"},
    {"gpus|devices|gpus_per_node|gpus_per_host|accelerators_per_host|cores", "accelerators"},
    {"gpu|device", "accelerator"},
    {"network|networks|interconnect|link", "links"},
    {"accelerator.flops|accelerator.tflops", "accelerator.peak.bf16"},
    {"accelerator.memory_bandwidth|accelerator.mem_bw", "accelerator.bandwidth"},
    {"accelerator.hbm|accelerator.vram|accelerator.memory_size", "accelerator.memory"},
    {"cost|price_per_hour", "price"},
};

void cluster_unknown(const char *name, char *what, size_t bytes)
{
    if (ls_word_among("model|data|batch|optim|train|parallel", name)) {
        snprintf(what, bytes, "%s is a group of a run's configuration: expected a cluster file",
                 name);
        return;
    }
    /* Names as they stand in the file, groups, and what no figure is. */
    const char *names[KEYS + 7] = {"source", "measured",    "measured.works",  "measured.moves",
                                   "links",  "accelerator", "accelerator.peak"};
    size_t count = 7;
    for (size_t i = 0; i < KEYS; i++)
        names[count++] = keys[i].name;
    if (ls_word_among("accelerator.peak.fp8|accelerator.peak.fp4|accelerator.peak.int8", name)) {
        snprintf(what, bytes, "unknown key %s: training is in fp32, bf16 or fp16", name);
        return;
    }
    const char *near = ls_nearest(name, names, count);
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        if (ls_word_among(elsewhere[i].theirs, name))
            near = elsewhere[i].ours;
    /* The name as that of another group. */
    const char *word = strrchr(name, '.') ? strrchr(name, '.') + 1 : name;
    for (size_t i = 0; i < KEYS && !near; i++) {
        const char *last = strrchr(keys[i].name, '.');
        if (last && strcmp(last + 1, word) == 0)
            near = keys[i].name;
    }
    if (near)
        snprintf(what, bytes, "unknown key %.80s; did you mean %s?", name, near);
    else
        snprintf(what, bytes, "unknown key %.80s (doc/planning.md lists all)", name);
}

void *cluster_slot(const struct ls_cluster *cluster, const struct ls_config_key *key, int link)
{
    const void *base = cluster_key_is_link(key) ? (const void *)&cluster->link[link] : cluster;
    return (char *)base + key->offset;
}

static void defaults_set(unsigned char *base, bool of_link)
{
    char why[CLUSTER_VALUE_BYTES];
    for (size_t i = 0; i < KEYS; i++)
        if (cluster_key_is_link(&keys[i]) == of_link && keys[i].initial && *keys[i].initial)
            LS_ASSERT(ls_config_parse(&keys[i], base + keys[i].offset, keys[i].initial, false, why,
                                      sizeof why));
}

void cluster_defaults(struct ls_cluster *cluster)
{
    memset(cluster, 0, sizeof *cluster);
    defaults_set((unsigned char *)cluster, false);
}

void cluster_link_defaults(struct ls_cluster_link *link)
{
    memset(link, 0, sizeof *link);
    defaults_set((unsigned char *)link, true);
}
