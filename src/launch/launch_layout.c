/* The layout for the hosts that are left: the planner's best for ranks that it knows little of. */
#include "launch/launch_private.h"

#include <lockstep/base/words.h>
#include <lockstep/device.h>

#include <stdio.h>
#include <string.h>

enum { SEARCH_S = 2, CLUSTER_BYTES = 2048 };

/* Keys that the search leaves as the user has them. */
static bool stays(const char *key)
{
    return !strncmp(key, "comm.", 5) || !strncmp(key, "memory.offload.", 15) ||
           !strncmp(key, "numerics.", 9) ||
           ls_word_among("memory.file|memory.device_budget|memory.check|parallel.threads", key);
}

/* Keys for which there may be too few ranks once a host is lost. */
static bool takes_ranks(const char *key)
{
    return !strncmp(key, "parallel.", 9) &&
           ls_word_among("pp|dp|dp_replicate|dp_shard|cp|tp|split", key + 9);
}

/* What stays of a layout that was given beside the file: all, what takes no ranks, or nothing. */
enum kept { KEPT_ALL, KEPT_WITHOUT_RANKS, KEPT_NOTHING };

static bool is_kept(const struct ls_config *config, const char *key, enum kept kept)
{
    if (stays(key))
        return ls_config_is_given(config, key);
    return ls_search_given(config, key) &&
           (kept == KEPT_ALL || (kept == KEPT_WITHOUT_RANKS && !takes_ranks(key)));
}

/* Layouts are only compared with each other, so usual rates are enough; memory is this machine's,
 * of which each rank of a host has its share. */
static int cluster_make(const struct launch_hosts *hosts, int64_t slots, double flops,
                        struct ls_cluster *cluster, struct ls_error *error)
{
    char text[CLUSTER_BYTES];
    int64_t up = 0, most = launch_hosts_most(hosts);
    for (int i = 0; i < hosts->count; i++)
        up += hosts->list[i].up;
    bool even = up > 1 && slots % up == 0 && slots / up <= most;
    int64_t each = even ? slots / up : slots;
    double memory = (double)ls_device_memory().total / (double)ls_min(each, most);
    snprintf(text, sizeof text,
             "name: what is left\nhosts: %ld\naccelerators: %ld\naccelerator: {name: a rank, peak: "
             "{fp32: %.0f, bf16: %.0f, fp16: %.0f}, memory: %.0f, bandwidth: 10 GB/s}\nlinks:\n"
             "  - {name: memory, joins: %ld, latency: 5 us, bandwidth: 4 GB/s}\n",
             even ? (long)up : 1L, (long)each, flops, flops, flops, memory > 0 ? memory : 0x1p40,
             (long)each);
    if (even)
        ls_string_add(text, sizeof text, "",
                      "  - {name: network, joins: %ld, latency: 50 us, bandwidth: 1 GB/s}\n",
                      (long)slots);
    return ls_cluster_read_text("what is left", text, strlen(text), cluster, error);
}

/* Here an accelerator is a rank, however many threads that has. */
static bool pinned(const struct ls_config *config, const char *key)
{
    return strcmp(key, "parallel.threads") != 0 && ls_search_given(config, key);
}

/* A layout that has too many operations to be simulated runs as well as others. */
static int search(const struct ls_launch *launch, const struct ls_config *start,
                  const struct ls_cluster *cluster, struct ls_config *best, struct ls_error *error)
{
    struct ls_search found = {0};
    struct ls_search_plan plan = {.keys = ""};
    const struct ls_search_options options = {
        .config = start, .cluster = cluster, .top = 1, .seconds = SEARCH_S, .pinned = pinned};
    int status = ls_search_run(&options, &found, error);
    if (!status)
        plan = found.plans[0];
    if (status == LS_ELAYOUT && *found.unsimulated) {
        int64_t ranks = cluster->hosts * cluster->accelerators;
        ls_log(launch->log, LS_LOG_WARNING, "the layout for %s is the first by its estimate: %s",
               ls_counted(ranks, "rank").text, error->text);
        memcpy(plan.keys, found.unsimulated, sizeof plan.keys);
        status = LS_OK;
    }
    *best = *start;
    if (!status)
        status = ls_search_apply(&plan, best, error);
    ls_search_release(&found);
    return status;
}

/* Among layouts on at most `slots` ranks. LS_ELAYOUT: why there is none on all of them. */
static int planners_best(const struct ls_launch *launch, const struct launch_hosts *hosts,
                         int64_t slots, enum kept kept, double peak_flops, char *keys,
                         int64_t *ranks, struct ls_error *error)
{
    const struct ls_config *config = launch->config;
    struct ls_config start = *config, best;
    start.parallel.workers = 1;
    start.parallel.servers = 0;
    for (const struct ls_config_key *key = ls_config_keys(NULL); key->name; key++) {
        int *line = &start.origin[key - ls_config_keys(NULL)].line;
        if (key->part == LS_CONFIG_LAYOUT)
            *line = is_kept(config, key->name, kept) ? LS_CONFIG_FROM_OVERRIDE : 0;
    }
    int status = ls_error_set(error, LS_ELAYOUT, "no layout for %ld ranks", (long)slots);
    for (int64_t n = slots; n > 0 && status == LS_ELAYOUT; n--) {
        struct ls_cluster cluster = {0};
        struct ls_error why = {0};
        status = cluster_make(hosts, n, peak_flops > 0 ? peak_flops : 1e11, &cluster, &why);
        if (!status)
            status = search(launch, &start, &cluster, &best, &why);
        ls_cluster_release(&cluster);
        if (*launch->asked)
            status = ls_error_set(&why, LS_ESTOPPED, "asked to end while a layout was searched");
        if (status && (n == slots || status != LS_ELAYOUT))
            ls_error_copy(error, status, &why);
        if (!status)
            *ranks = n;
    }
    if (!status) /* what must be set in the configuration as it was given */
        ls_config_layout_text(&best, config, keys, LS_SEARCH_KEYS_BYTES);
    if (!status && !strchr(keys, '='))
        keys[0] = '\0';
    return status;
}

/* Groups of workers are cut to as many as there is room for: each computes more of them. False: not
 * even one of them has room, or who comes first decides and each worker needs ranks of its own. */
static bool groups_fewer(const struct ls_config *config, int64_t slots, char *keys, int64_t *ranks)
{
    int64_t workers = ls_config_workers(config);
    int64_t each = ls_config_ranks(config) / ls_config_groups(config);
    bool clock = config->parallel.servers > 0 && config->async.order == LS_CONFIG_BY_CLOCK;
    int64_t groups = ls_min(workers, slots / each);
    while (groups > 0 && workers % groups)
        groups--;
    if (workers == 1 || clock || groups == 0)
        return false;
    snprintf(keys, LS_SEARCH_KEYS_BYTES, "parallel.workers=%ld%s", (long)groups,
             config->parallel.servers ? " parallel.servers=0" : "");
    *ranks = groups * each;
    return true;
}

/* check.replay has a step computed again by other ranks, of which one rank has none. */
static void keys_of_one_rank(const struct ls_config *config, char *keys)
{
    if (config->check.replay > 0)
        ls_string_add(keys, LS_SEARCH_KEYS_BYTES, *keys ? " " : "", "check.replay=0");
}

int launch_layout_choose(const struct ls_launch *launch, const struct launch_hosts *hosts,
                         const struct launch_watch *watch, int64_t wanted, char *keys,
                         int64_t *ranks, struct ls_error *error)
{
    bool planned = launch->config->train.auto_layout;
    int64_t slots = launch_hosts_slots(hosts, false);
    if (slots >= wanted && !planned) {
        *ranks = wanted;
        keys[0] = '\0';
        return LS_OK;
    }
    if (groups_fewer(launch->config, ls_min(slots, wanted), keys, ranks)) {
        if (*ranks == 1)
            keys_of_one_rank(launch->config, keys);
        return LS_OK;
    }
    if (launch->config->parallel.servers > 0 && launch->config->async.order == LS_CONFIG_BY_CLOCK)
        return ls_error_set(error, LS_ELAYOUT,
                            "workers of a server that takes who comes first need all %ld ranks, "
                            "and there are %ld",
                            (long)wanted, (long)slots);
    double peak_flops = watch->peak_flops / (double)ls_max(watch->ranks, 1);
    int status = LS_ELAYOUT, kept = planned ? KEPT_ALL : KEPT_NOTHING;
    for (int least = slots < wanted ? KEPT_NOTHING : kept; kept <= least && status == LS_ELAYOUT;
         kept++)
        status = planners_best(launch, hosts, ls_min(slots, wanted), (enum kept)kept, peak_flops,
                               keys, ranks, error);
    if (!status && planned)
        ls_string_add(keys, LS_SEARCH_KEYS_BYTES, " ", "parallel.auto=false");
    if (!status && *ranks == 1)
        keys_of_one_rank(launch->config, keys);
    return status;
}
