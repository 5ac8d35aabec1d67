/* Hosts that the job is better off without: one that is slow, and one that computes wrongly. */
#include "launch/launch_private.h"

#include <lockstep/base/words.h>

/* The ranks of the start that follows if the job leaves the host, which is `what`; 0: no layout
 * fits. They are searched for once, and said to be none once, for as many slots. */
static int64_t ranks_without(const struct launch_hosts *hosts, struct launch_host *host,
                             const char *what, int64_t wanted, const struct launch_watch *watch,
                             const struct ls_launch *launch)
{
    char keys[LS_SEARCH_KEYS_BYTES];
    struct ls_error why = {0};
    host->up = false;
    int64_t slots = launch_hosts_slots(hosts, false);
    if (slots != host->slots_without) {
        host->slots_without = slots;
        int status =
            launch_layout_choose(launch, hosts, watch, wanted, keys, &host->ranks_without, &why);
        host->ranks_without = status ? 0 : host->ranks_without;
        if (status && status != LS_ESTOPPED)
            ls_log(launch->log, LS_LOG_WARNING, "host %s is %s, but stays: without it, %s",
                   host->name, what, why.text);
    }
    host->up = true;
    return host->ranks_without;
}

/* What a step takes on so many ranks without the slow one, as a share of what it takes now. */
static double share(int64_t ranks, int64_t without, const struct launch_watch *watch)
{
    return (double)ranks / (double)ls_min(without, ranks) / (1 + watch->slow_above);
}

/* That of the slow rank, if steps are faster without it: on spares, or on fewer ranks. NULL: it
 * stays. */
static struct launch_host *host_slow(const struct launch_hosts *hosts, int64_t ranks,
                                     int64_t wanted, const struct launch_watch *watch,
                                     const struct ls_launch *launch, double *expected)
{
    struct launch_host *host = launch_hosts_named(hosts, watch->slow_host);
    int64_t left = host && host->up ? launch_hosts_slots(hosts, false) - host->slots : 0;
    if (left <= 0 || share(ranks, left, watch) > LAUNCH_WORTH)
        return NULL;
    left = ranks_without(hosts, host, "slow", wanted, watch, launch);
    if (left <= 0)
        return NULL;
    *expected = share(ranks, left, watch);
    return *expected <= LAUNCH_WORTH ? host : NULL;
}

bool launch_slow_leave(struct launch_hosts *hosts, int64_t ranks, int64_t wanted,
                       const struct launch_watch *watch, const struct ls_launch *launch,
                       struct launch_events *events, struct launch_gain *gain)
{
    double expected;
    if (watch->slow_rank < 0 || watch->slow_above < launch->config->launch.slow ||
        !launch_slow_lasts(launch, watch->slow_s))
        return false;
    struct launch_host *host = host_slow(hosts, ranks, wanted, watch, launch, &expected);
    if (!host)
        return false;
    launch_hosts_leave(host);
    snprintf(gain->host, sizeof gain->host, "%s", host->name);
    struct ls_jsonl *m = launch_events_begin(events, "host_slow", watch->step);
    ls_jsonl_string(m, "host", host->name);
    ls_jsonl_int(m, "rank", watch->slow_rank);
    ls_jsonl_double(m, "above", watch->slow_above);
    launch_gain_expect(gain, watch, expected, m);
    launch_events_end(events);
    ls_log(launch->log, LS_LOG_WARNING,
           "host %s is left: its rank %ld computes %.0f %% longer than others; a step of %s "
           "should take %s without it",
           host->name, (long)watch->slow_rank, 100 * watch->slow_above,
           ls_duration(gain->before_s).text, ls_duration(gain->expected_s).text);
    return true;
}

void launch_slow_gained(struct launch_gain *gain, const struct launch_watch *watch,
                        const struct ls_launch *launch, struct launch_events *events)
{
    char change[LAUNCH_HOST_BYTES + 32];
    snprintf(change, sizeof change, "without host %s", gain->host);
    launch_gain_fails(gain, change, watch, launch, events);
}

void launch_suspect_leave(struct launch_hosts *hosts, const char *name, int64_t wanted,
                          const struct launch_watch *watch, const struct ls_launch *launch,
                          struct launch_events *events)
{
    struct launch_host *host = launch_hosts_named(hosts, name);
    bool others = host && host->up && launch_hosts_slots(hosts, false) > host->slots;
    if (!others || ranks_without(hosts, host, "suspect", wanted, watch, launch) <= 0)
        return;
    launch_hosts_leave(host);
    struct ls_jsonl *m = launch_events_begin(events, "host_suspect", watch->step);
    ls_jsonl_string(m, "host", host->name);
    launch_events_end(events);
    ls_log(launch->log, LS_LOG_WARNING, "host %s is left: its memory or arithmetic is faulty",
           host->name);
}
