/* From a configuration to a layout. */
#include "config/config_private.h"

#include <lockstep/base/words.h>

#include <math.h>
#include <string.h>

struct ls_numerics ls_config_numerics(const struct ls_config *config)
{
    const struct ls_config_numerics *n = &config->numerics;
    bool fast = n->mode == LS_CONFIG_FAST;
    return (struct ls_numerics){.act = n->precision,
                                .tp_tiles = fast ? 1 : n->tp_tiles,
                                .seq_tiles = fast ? 1 : n->seq_tiles,
                                .leaf_sequences = n->leaf_sequences,
                                .fast = fast};
}

const char *ls_offload_name(enum ls_offload what)
{
    static const char *const names[LS_OFFLOADS] = {"optimizer", "gradients", "parameters",
                                                   "activations"};
    return names[what];
}

enum ls_tier_kind ls_config_tier(const struct ls_config *config, enum ls_offload what)
{
    return (enum ls_tier_kind)config->memory.offload[what].to;
}

bool ls_config_uses_tier(const struct ls_config *config, enum ls_tier_kind kind)
{
    for (int what = 0; what < LS_OFFLOADS; what++)
        if (ls_config_tier(config, (enum ls_offload)what) == kind)
            return true;
    return false;
}

int64_t ls_config_groups(const struct ls_config *config)
{
    return config->parallel.workers + config->parallel.servers;
}

int64_t ls_config_ranks(const struct ls_config *config)
{
    const struct ls_layout_keys *keys = &config->parallel;
    int64_t dp = ls_max(keys->dp_replicate, 1) * ls_max(keys->dp_shard, 1);
    return ls_config_groups(config) * keys->pp * ls_max(keys->dp, dp) * keys->cp * keys->tp;
}

/* ---- admission ------------------------------------------------------------------------------ */

#define REJECT(code, name, ...) ls_config_reject(config, code, name, error, __VA_ARGS__)

/* Keys that need each other. */
static int keys_check(const struct ls_config *config, struct ls_error *error)
{
    const struct ls_layout_keys *keys = &config->parallel;
    bool csv = keys->schedule == LS_LAYOUT_CSV;
    if (csv && !*keys->schedule_file)
        return REJECT(LS_ECONFIG, "parallel.schedule_file",
                      "parallel.schedule = csv reads it: set it to the table's path");
    if (!csv && *keys->schedule_file)
        return REJECT(LS_ECONFIG, "parallel.schedule_file",
                      "has no meaning without parallel.schedule = csv: remove it");
    for (int what = 0; what < LS_OFFLOADS; what++) {
        char key[64];
        snprintf(key, sizeof key, "memory.offload.%s", ls_offload_name((enum ls_offload)what));
        if (ls_config_tier(config, (enum ls_offload)what) == LS_TIER_FILE && !*config->memory.file)
            return REJECT(LS_ECONFIG, key,
                          "file needs memory.file, a folder on a local disk with room for it");
        if (config->async.mode == LS_CONFIG_SERVER && what == LS_OFFLOAD_GRADIENTS &&
            ls_config_tier(config, (enum ls_offload)what) != LS_TIER_DEVICE)
            return REJECT(LS_ELAYOUT, key,
                          "a worker's gradient leaves as soon as it is computed: expected none "
                          "with async.mode = server");
    }
    if (ls_config_workers(config) % keys->workers)
        return REJECT(LS_ELAYOUT, "parallel.workers", "expected a divisor of async.workers = %lld",
                      (long long)ls_config_workers(config));
    if (keys->servers > 0 && config->async.mode != LS_CONFIG_SERVER)
        return REJECT(LS_ELAYOUT, "parallel.servers", "expected 0 without async.mode = server");
    if (keys->servers > 0 && keys->workers != config->async.workers)
        return REJECT(LS_ELAYOUT, "parallel.servers",
                      "beside server ranks each worker has ranks of its own: expected "
                      "parallel.workers = async.workers = %lld",
                      (long long)config->async.workers);
    if (keys->servers > 0 && config->check.replay > 0)
        return REJECT(LS_ECONFIG, "check.replay",
                      "with parallel.servers the clock decides the order of updates (async.order), "
                      "and a second time it would decide otherwise: use 0; `lockstep audit` "
                      "computes steps again from the log");
    if (config->batch.micro > config->batch.global)
        return REJECT(LS_ELAYOUT, "batch.micro", "expected at most batch.global = %lld",
                      (long long)config->batch.global);
    return LS_OK;
}

/* What the layout needs on the device. */
static int offload_check(const struct ls_config *config, const struct ls_layout *layout,
                         struct ls_error *error)
{
    enum ls_tier_kind gradients = ls_config_tier(config, LS_OFFLOAD_GRADIENTS),
                      parameters = ls_config_tier(config, LS_OFFLOAD_PARAMETERS);
    if (gradients != LS_TIER_DEVICE && layout->sets[0].replicate_ranks > 1)
        return ls_error_refuse(error, LS_ELAYOUT, "memory.offload.gradients",
                               ls_tier_name(gradients),
                               "there are %ld replicas of shards, whose gradients go from one to "
                               "the next and stay on the device",
                               (long)layout->sets[0].replicate_ranks);
    if (parameters != LS_TIER_DEVICE && config->model.lora.base != LS_BLOCKS_NONE)
        return ls_error_refuse(error, LS_ELAYOUT, "memory.offload.parameters",
                               ls_tier_name(parameters),
                               "matrices in few bits (lora.base = %s) stay on the device; set it "
                               "to none, or lora.base to none",
                               ls_word_of(ls_lora_bases, config->lora.base));
    bool whole = layout->zero > 0 && layout->zero < 3 && layout->sets[0].shard_ranks > 1;
    if (parameters != LS_TIER_DEVICE && whole)
        return ls_error_refuse(error, LS_ELAYOUT, "memory.offload.parameters",
                               ls_tier_name(parameters),
                               "with parallel.zero = %d each of %ld ranks has whole parameters on "
                               "its device; with 0 and 3 it need not",
                               (int)layout->zero, (long)layout->sets[0].shard_ranks);
    return LS_OK;
}

int config_admit(const struct ls_config *config, int64_t world, const struct ls_schedule *table,
                 struct ls_layout *layout, struct ls_error *error)
{
    const struct ls_config_batch *batch = &config->batch;
    int64_t leaf = config->numerics.leaf_sequences, groups = ls_config_groups(config);
    const struct ls_layout_request request = {
        .model = &config->model,
        .numerics = ls_config_numerics(config),
        .keys = &config->parallel,
        .world = groups > 1 ? 0 : world, /* of one group: below, all are counted */
        .sequence = config->data.sequence,
        .ramp = {.full = batch->global / leaf,
                 .start = batch->rampup_start / leaf,
                 .increment = batch->rampup_increment / leaf,
                 .samples = batch->rampup_samples},
        .micro_sequences = batch->micro,
        .bucket_bytes = config->comm.bucket_mb << 20,
        .reduce = config->numerics.reduce,
        .matrices_meet = config->optim.name == LS_MUON,
        .table = config->parallel.schedule == LS_LAYOUT_CSV ? table : NULL,
    };
    int status = keys_check(config, error);
    if (!status)
        status = config_locate(config, ls_layout_resolve(&request, layout, error), error);
    if (!status && groups > 1 && world && world != groups * layout->ranks)
        status = REJECT(LS_ELAYOUT, "parallel.workers",
                        "%ld groups of %s each need %ld, but %ld were started", (long)groups,
                        ls_counted(layout->ranks, "rank").text, (long)(groups * layout->ranks),
                        (long)world);
    return status ? status : config_locate(config, offload_check(config, layout, error), error);
}

/* ---- rollouts -------------------------------------------------------------------------------- */

enum { FORWARD_ROWS = 2048 };

void ls_config_forward(struct ls_config *config)
{
    struct ls_config_batch *batch = &config->batch;
    const struct ls_layout_keys *keys = &config->parallel;
    int64_t leaf = config->numerics.leaf_sequences, leaves = 1;
    while (keys->cp == 1 && 2 * leaves * leaf * config->data.sequence <= FORWARD_ROWS)
        leaves *= 2;
    batch->micro = leaves * leaf;
    batch->global = batch->micro * ls_max(keys->dp, 1);
    batch->rampup_start = batch->rampup_increment = batch->rampup_samples = 0;
}

bool ls_config_rollout(const struct ls_config *config, struct ls_config *out)
{
    const struct ls_config_rollout *r = &config->rollout;
    int64_t pp = ls_max(r->pp, 1), tp = ls_max(r->tp, 1);
    if (!r->pp && !r->dp && !r->tp)
        return false;
    if (!out)
        return true;
    *out = *config;
    ls_config_layout_reset(out);
    out->rollout = (struct ls_config_rollout){0};
    out->parallel.pp = pp;
    out->parallel.tp = tp;
    out->parallel.dp = r->dp ? r->dp : ls_max(ls_config_ranks(config) / (pp * tp), 1);
    ls_config_forward(out);
    return true;
}

static int rollout_admit(const struct ls_config *config, int64_t ranks, struct ls_layout *layout,
                         struct ls_error *error)
{
    const struct ls_config_rollout *r = &config->rollout;
    const char *name = r->tp ? "rollout.tp" : r->pp ? "rollout.pp" : "rollout.dp";
    struct ls_config own;
    struct ls_error why = {0};
    if (!ls_config_rollout(config, &own))
        return LS_OK;
    if (config->async.mode != LS_CONFIG_SYNC)
        return REJECT(LS_ELAYOUT, name,
                      "with async.mode each worker trains a model of its own, and none generates: "
                      "remove it");
    if (own.parallel.pp * own.parallel.tp * own.parallel.dp != ranks)
        return REJECT(LS_ELAYOUT, name,
                      "pp %ld x dp %ld x tp %ld of group rollout: expected the run's %s",
                      (long)own.parallel.pp, (long)own.parallel.dp, (long)own.parallel.tp,
                      ls_counted(ranks, "rank").text);
    int status = config_admit(&own, 0, NULL, layout, &why);
    if (!status)
        return LS_OK;
    if (!strcmp(why.key, "parallel.pp"))
        name = "rollout.pp";
    return REJECT(status, name, "%s", why.text + why.reason);
}

/* The admitted one whose factors of tp and pp are least. */
static void rollout_suggest(const struct ls_config *config, int64_t ranks, struct ls_error *error)
{
    const struct ls_config_rollout *r = &config->rollout;
    struct ls_config tried = *config;
    struct ls_config_rollout best = {0};
    struct ls_layout layout;
    double best_cost = HUGE_VAL;
    for (int64_t pp = 1; pp <= ranks && config->async.mode == LS_CONFIG_SYNC; pp++)
        for (int64_t tp = 1; tp <= ranks / pp; tp++) {
            double cost = fabs(log2((double)tp / (double)ls_max(r->tp, 1))) +
                          fabs(log2((double)pp / (double)ls_max(r->pp, 1)));
            if (ranks % (pp * tp) || cost >= best_cost)
                continue;
            tried.rollout = (struct ls_config_rollout){pp, ranks / (pp * tp), tp};
            if (rollout_admit(&tried, ranks, &layout, NULL))
                continue;
            best = tried.rollout;
            best_cost = cost;
        }
    if (best.tp)
        ls_error_suffix(error,
                        "; the nearest that works is rollout.pp = %ld, rollout.dp = %ld, "
                        "rollout.tp = %ld",
                        (long)best.pp, (long)best.dp, (long)best.tp);
}

int ls_config_rollout_check(const struct ls_config *config, int64_t ranks, struct ls_layout *layout,
                            struct ls_error *error)
{
    struct ls_layout unused;
    int status = rollout_admit(config, ranks, layout ? layout : &unused, error);
    if (status && error)
        rollout_suggest(config, ranks, error);
    return status;
}

int ls_config_layout(const struct ls_config *config, int64_t world, struct ls_layout *layout,
                     struct ls_error *error)
{
    struct ls_schedule table;
    const struct ls_layout_keys *keys = &config->parallel;
    bool reads = keys->schedule == LS_LAYOUT_CSV && *keys->schedule_file;
    int status = reads ? config_locate(config, ls_layout_file(keys, &table, error), error) : LS_OK;
    reads = reads && !status;
    if (!status)
        status = config_admit(config, world, reads ? &table : NULL, layout, error);
    if (error && (status == LS_ELAYOUT || status == LS_ECONFIG))
        config_suggest(config, config, world, error);
    if (reads)
        ls_schedule_release(&table);
    return status;
}

bool ls_config_axis_given(const struct ls_config *config)
{
    static const char *const axes[] = {
        "parallel.workers",      "parallel.servers",  "parallel.pp", "parallel.dp",
        "parallel.dp_replicate", "parallel.dp_shard", "parallel.cp", "parallel.tp"};
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
        if (ls_config_is_given(config, axes[i]))
            return true;
    return false;
}

void ls_config_layout_reset(struct ls_config *config)
{
    for (const struct ls_config_key *key = ls_config_keys(NULL); key->name; key++) {
        char why[256];
        if (key->part != LS_CONFIG_LAYOUT)
            continue;
        LS_ASSERT(config_parse(config, key, key->initial, false, why, sizeof why));
        config->origin[key - ls_config_keys(NULL)] = (struct ls_config_origin){0};
    }
}

void ls_config_layout_text(const struct ls_config *config, const struct ls_config *one, char *text,
                           size_t bytes)
{
    struct ls_config *defaults = &(struct ls_config){0};
    ls_config_defaults(defaults);
    text[0] = '\0';
    for (const struct ls_config_key *key = ls_config_keys(NULL); key->name; key++) {
        char value[4 * LS_CONFIG_TEXT_BYTES], initial[4 * LS_CONFIG_TEXT_BYTES];
        bool cuts =
            !strncmp(key->name, "memory.", 7) ||
            (!strncmp(key->name, "parallel.", 9) && strcmp(key->name, "parallel.threads") != 0) ||
            !strcmp(key->name, "batch.micro");
        if (one ? key->part != LS_CONFIG_LAYOUT : !cuts)
            continue;
        ls_config_value(config, key, value, sizeof value);
        ls_config_value(one ? one : defaults, key, initial, sizeof initial);
        if (strcmp(value, initial))
            ls_string_add(text, bytes, " ", "%s=%s", key->name, value);
    }
    if (!*text)
        snprintf(text, bytes, "one rank");
}
