/* The keys of a cluster file: one table from which files are read and written, figures are set, and
 * the documentation is made. */
#include "cluster_private.h"

#include <stddef.h>
#include <string.h>

#define AT(field)          offsetof(struct ls_cluster, field)
#define OF_LINK(field)     offsetof(struct ls_cluster_link, field)
#define ACCELERATOR(field) AT(accelerator.field)

/* Bounds that leave any machine in, and keep sums and quotients finite. */
#define FLOPS 1.0, 1e21
#define BYTES 1.0, 1e18
#define RATE  1.0, 1e18
#define SHARE 1e-6, 1.0

static const struct cluster_key keys[] = {
    {"name", CLUSTER_TEXT, true, AT(name), 0, 0, 0, "name of the cluster"},
    {"hosts", CLUSTER_COUNT, true, AT(hosts), 0, 1, 1e6, "machines"},
    {"accelerators", CLUSTER_COUNT, true, AT(accelerators), 0, 1, 1e5,
     "GPUs of each host, or cores of a CPU"},
    {"accelerator.name", CLUSTER_TEXT, true, ACCELERATOR(name), 0, 0, 0, "its name"},
    {"accelerator.peak.fp32", CLUSTER_FLOPS, false, ACCELERATOR(peak[0]), 0, FLOPS,
     "operations a second in float32, dense; default: that of bf16"},
    {"accelerator.peak.bf16", CLUSTER_FLOPS, true, ACCELERATOR(peak[1]), 0, FLOPS,
     "operations a second in bf16, dense (not the figure with sparsity)"},
    {"accelerator.peak.fp16", CLUSTER_FLOPS, false, ACCELERATOR(peak[2]), 0, FLOPS,
     "operations a second in fp16, dense; default: that of bf16"},
    {"accelerator.memory", CLUSTER_BYTES, true, ACCELERATOR(memory_bytes), 0, BYTES,
     "its own memory; for a core, its share of the host's"},
    {"accelerator.bandwidth", CLUSTER_RATE, true, ACCELERATOR(bytes_per_s), 0, RATE,
     "of that memory; for a core, its share while all cores work"},
    {"accelerator.product_share", CLUSTER_NUMBER, false, ACCELERATOR(product_share), 0.75, SHARE,
     "share of the peak that large products reach"},
    {"accelerator.attention_share", CLUSTER_NUMBER, false, ACCELERATOR(attention_share), 0.5, SHARE,
     "share of the peak that attention reaches"},
    {"accelerator.pass_share", CLUSTER_NUMBER, false, ACCELERATOR(pass_share), 0.85, SHARE,
     "share of the bandwidth that elementwise passes reach"},
    {"accelerator.tile", CLUSTER_PAIR, false, ACCELERATOR(tile_m), 128, 1, 65536,
     "rows and columns of a large product that one unit computes at once; small products use "
     "smaller tiles"},
    {"accelerator.units", CLUSTER_COUNT, false, ACCELERATOR(units), 0, 0, 1e6,
     "units that compute tiles in parallel; 0: a product loses nothing at its last tiles"},
    {"accelerator.unit_bandwidth", CLUSTER_RATE, false, ACCELERATOR(unit_bytes_per_s), 0, 0, 1e18,
     "rate at which one unit moves a collective, which takes as many units as it needs from "
     "computation; 0: none"},
    {"accelerator.launch", CLUSTER_SECONDS, false, ACCELERATOR(launch_s), 0, 0, 1,
     "delay before each op begins"},
    {"accelerator.is_core", CLUSTER_COUNT, false, ACCELERATOR(is_core), 0, 0, 1,
     "1: a core of a CPU; a rank uses one per thread"},
    {"accelerator.power", CLUSTER_WATTS, false, ACCELERATOR(power_w), 0, 0, 1e6,
     "power while it computes"},
    {"memory", CLUSTER_BYTES, false, AT(host_memory_bytes), 0, 0, 1e18,
     "memory of a host; 0: nothing can be offloaded to it"},
    {"host_link", CLUSTER_RATE, false, AT(host_link_bytes_per_s), 0, 0, 1e18,
     "rate of an accelerator to its host's memory, each way, while all accelerators use theirs; "
     "0: none"},
    {"disk.read", CLUSTER_RATE, false, AT(disk_read_bytes_per_s), 0, 0, 1e18,
     "read rate of a host's local disks; 0: there are none"},
    {"disk.write", CLUSTER_RATE, false, AT(disk_write_bytes_per_s), 0, 0, 1e18,
     "write rate of a host's local disks; 0: there are none"},
    {"disk.size", CLUSTER_BYTES, false, AT(disk_bytes), 0, 0, 1e18, "size of a host's local disks"},
    {"links.name", CLUSTER_TEXT, true, OF_LINK(name), 0, 0, 0, "its name, also for `--what-if`"},
    {"links.joins", CLUSTER_COUNT, true, OF_LINK(joins), 0, 1, 1e11,
     "neighbouring accelerators that one domain of it joins"},
    {"links.latency", CLUSTER_SECONDS, true, OF_LINK(latency_s), 0, 0, 10,
     "latency of a small message, end to end"},
    {"links.bandwidth", CLUSTER_RATE, true, OF_LINK(bytes_per_s), 0, RATE,
     "rate of one accelerator, each way; if several share a network card, its share"},
    {"links.topology", CLUSTER_TOPOLOGY, false, OF_LINK(topology), LS_LINK_FULL, 0, 0,
     "full: one switch, or all to all; ring: only to the neighbours; fat-tree: a tree of switches"},
    {"links.oversubscription", CLUSTER_NUMBER, false, OF_LINK(oversubscription), 1, 1, 1e4,
     "of a fat tree: links down per link up; divides the rate if all ranks send at once"},
    {"links.overlap", CLUSTER_NUMBER, false, OF_LINK(overlap), 0, 0, 1,
     "share of a message over this link that overlaps with computation; used if it is more than "
     "`overlap`"},
    {"overlap", CLUSTER_NUMBER, false, AT(overlap), 1, 0, 1,
     "share of communication that overlaps with concurrent computation"},
    {"power.host", CLUSTER_WATTS, false, AT(host_power_w), 0, 0, 1e7,
     "power of a host without its accelerators"},
    {"power.overhead", CLUSTER_NUMBER, false, AT(power_overhead), 1, 1, 10,
     "PUE: the power of the building as a multiple of that of the hosts"},
    {"price", CLUSTER_NUMBER, false, AT(price_per_hour), 0, 0, 1e6,
     "dollars an hour of an accelerator with its share of the host"},
    {"failures", CLUSTER_NUMBER, false, AT(failures_per_hour), 0, 0, 1e3,
     "failures an hour of an accelerator with its share of the host"},
    {"restart", CLUSTER_SECONDS, false, AT(restart_s), 300, 0, 1e7,
     "time from a failure to the next step, without lost work"},
};
enum { KEYS = sizeof keys / sizeof *keys };
_Static_assert((int)KEYS <= (int)CLUSTER_KEYS_MAX, "raise CLUSTER_KEYS_MAX");

const struct cluster_key *cluster_keys(size_t *count)
{
    *count = KEYS;
    return keys;
}

int cluster_key_index(const char *name)
{
    for (int i = 0; i < (int)KEYS; i++)
        if (strcmp(keys[i].name, name) == 0)
            return i;
    return -1;
}

bool cluster_key_is_link(const struct cluster_key *key)
{
    return strncmp(key->name, "links.", 6) == 0;
}

bool cluster_is_group(const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < KEYS; i++)
        if (strncmp(keys[i].name, name, length) == 0 && keys[i].name[length] == '.')
            return true;
    return false;
}

void cluster_unknown(const char *name, char *what, size_t bytes)
{
    /* Names as they stand in the file, groups, and what no figure is. */
    const char *names[KEYS + 7] = {"source", "measured",    "measured.works",  "measured.moves",
                                   "links",  "accelerator", "accelerator.peak"};
    size_t count = 7;
    for (size_t i = 0; i < KEYS; i++)
        names[count++] = keys[i].name;
    const char *near = ls_nearest(name, names, count);
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
        snprintf(what, bytes, "unknown key %.80s: doc/planning.md has those that there are", name);
}

void *cluster_slot(struct ls_cluster *cluster, const struct cluster_key *key, int link)
{
    unsigned char *base =
        cluster_key_is_link(key) ? (unsigned char *)&cluster->link[link] : (unsigned char *)cluster;
    return base + key->offset;
}

const void *cluster_slot_const(const struct ls_cluster *cluster, const struct cluster_key *key,
                               int link)
{
    const unsigned char *base = cluster_key_is_link(key)
                                    ? (const unsigned char *)&cluster->link[link]
                                    : (const unsigned char *)cluster;
    return base + key->offset;
}

static void default_set(const struct cluster_key *key, void *slot)
{
    switch (key->kind) {
    case CLUSTER_TEXT:
        break;
    case CLUSTER_COUNT:
        *(int64_t *)slot = (int64_t)key->fallback;
        break;
    case CLUSTER_PAIR:
        ((int64_t *)slot)[0] = (int64_t)key->fallback;
        ((int64_t *)slot)[1] = 2 * (int64_t)key->fallback;
        break;
    case CLUSTER_TOPOLOGY:
        *(enum ls_link_topology *)slot = LS_LINK_FULL;
        break;
    default:
        *(double *)slot = key->fallback;
    }
}

void cluster_defaults(struct ls_cluster *cluster)
{
    memset(cluster, 0, sizeof *cluster);
    for (size_t i = 0; i < KEYS; i++)
        if (!cluster_key_is_link(&keys[i]))
            default_set(&keys[i], cluster_slot(cluster, &keys[i], 0));
}

void cluster_link_defaults(struct ls_cluster_link *link)
{
    memset(link, 0, sizeof *link);
    for (size_t i = 0; i < KEYS; i++)
        if (cluster_key_is_link(&keys[i]))
            default_set(&keys[i], (unsigned char *)link + keys[i].offset);
}

/* "required", "0.75", "[128, 256]", "" where the help says it. */
static void fallback_text(const struct cluster_key *key, char *text, size_t bytes)
{
    struct ls_cluster cluster;
    cluster_defaults(&cluster);
    cluster_link_defaults(&cluster.link[0]);
    bool as_bf16 = key->offset == ACCELERATOR(peak[0]) || key->offset == ACCELERATOR(peak[2]);
    if (key->required)
        snprintf(text, bytes, "required");
    else if (as_bf16 && !cluster_key_is_link(key))
        snprintf(text, bytes, "as bf16");
    else
        cluster_format(key, cluster_slot(&cluster, key, 0), text, bytes);
}

void ls_cluster_keys_write(FILE *file)
{
    char value[CLUSTER_VALUE_BYTES], fallback[CLUSTER_VALUE_BYTES];
    fprintf(file, "| key | value | default | what it is |\n|---|---|---|---|\n");
    for (size_t i = 0; i < KEYS; i++) {
        cluster_expected(&keys[i], value, sizeof value);
        fallback_text(&keys[i], fallback, sizeof fallback);
        fprintf(file, "| `%s` | %s | %s | %s |\n", keys[i].name, value, fallback, keys[i].help);
    }
}
