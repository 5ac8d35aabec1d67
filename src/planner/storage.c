/* How long samples take to be read, and checkpoints to be written. */
#include <lockstep/planner/storage.h>

#include <lockstep/data.h>
#include <lockstep/data/sums.h>

#include <math.h>

static int64_t ranks_of_host(const struct ls_cluster *cluster, const struct ls_layout *layout,
                             int accelerators)
{
    return ls_min(ls_max(cluster->accelerators / accelerators, 1), layout->ranks);
}

/* ---- samples --------------------------------------------------------------------------------- */

/* Ranks lie in rows of `alike` that read the same samples. The most rows of which a host has a
 * rank: hosts begin at multiples of the common divisor in them. */
static int64_t rows_of_host(int64_t ranks, int64_t alike)
{
    int64_t latest = alike - ls_gcd(ranks, alike);
    return (latest + ranks + alike - 1) / alike;
}

/* Of no rate nothing is known. */
static double transfer_s(double bytes, double bytes_per_s)
{
    return bytes_per_s > 0 ? bytes / bytes_per_s : 0;
}

struct ls_samples_cost ls_cost_samples(const struct ls_cluster *cluster,
                                       const struct ls_config *config,
                                       const struct ls_layout *layout, int accelerators)
{
    int64_t ranks = ranks_of_host(cluster, layout, accelerators);
    int64_t alike = layout->size[LS_AXIS_CP] * layout->size[LS_AXIS_TP];
    int64_t dp = layout->size[LS_AXIS_DP_REPLICATE] * layout->size[LS_AXIS_DP_SHARD];
    double read = (double)ls_min(rows_of_host(ranks, alike), dp);
    double sequences = (double)(layout->ramp.full * layout->numerics.leaf_sequences) / (double)dp;
    double each = (double)(layout->sequence + 1) *
                  (double)ls_dtype_bytes(ls_token_dtype(config->model.vocab));
    double share = ls_config_elsewhere(config), samples = read * sequences;
    double unit = config->data.shuffle ? fmax(each, LS_SUMS_BLOCK_BYTES) : each;
    struct ls_samples_cost cost = {.bytes = samples * each,
                                   .elsewhere = samples * each * share,
                                   .hosts = (double)ls_ceil_div(layout->ranks, ranks),
                                   .cold_bytes = samples * unit * share};
    /* Each way at once. */
    cost.seconds = fmax(transfer_s(cost.bytes - cost.elsewhere, cluster->disk_read_bytes_per_s),
                        transfer_s(cost.elsewhere, cluster->storage_host_bytes_per_s));
    cost.seconds =
        fmax(cost.seconds, transfer_s(cost.elsewhere * cost.hosts, cluster->storage_bytes_per_s));
    return cost;
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

static double pass_s(const struct ls_cluster *cluster, int accelerators, enum ls_work_kind kind,
                     enum ls_dtype dtype, double elements, double bytes)
{
    const struct ls_work work = {.kind = kind,
                                 .dtype = dtype,
                                 .m = (int64_t)elements,
                                 .n = 1,
                                 .k = 1,
                                 .flops = 2 * elements,
                                 .bytes = bytes};
    return ls_cost_work(cluster, accelerators, &work);
}

int ls_cost_save(const struct ls_cluster *cluster, const struct ls_config *config,
                 const struct ls_layout *layout, int accelerators, struct ls_save_cost *save,
                 struct ls_error *error)
{
    struct ls_state_files files;
    *save = (struct ls_save_cost){0};
    int status = ls_state_file_bytes(config, layout, &files, error);
    if (status)
        return status;
    save->bytes = (double)(files.model + files.optimizer);
    double own = save->bytes / (double)ls_group_size(layout, LS_GROUP_OWNERS);
    double elements = own / (double)ls_dtype_bytes(LS_F32);
    double share = (double)files.stage / (double)(layout->ranks / layout->size[LS_AXIS_PP]);
    save->share = share;
    save->hash_s = pass_s(cluster, accelerators, LS_WORK_SQUARES, LS_F32, elements, own);
    save->copy_s = 2 * pass_s(cluster, 1, LS_WORK_COPY, LS_U8, share, 2 * share); /* one thread */
    if (cluster->disk_write_bytes_per_s > 0)
        save->write_s = share * (double)ranks_of_host(cluster, layout, accelerators) /
                        cluster->disk_write_bytes_per_s;
    save->seconds = save->hash_s + fmax(save->copy_s, save->write_s);
    return LS_OK;
}

struct ls_snapshot_cost ls_cost_snapshot(const struct ls_cluster *cluster,
                                         const struct ls_config *config,
                                         const struct ls_layout *layout, int accelerators,
                                         const struct ls_save_cost *save, double step_s)
{
    int64_t host = ranks_of_host(cluster, layout, accelerators);
    int64_t replicas = ls_min(config->snapshot.replicas, (layout->ranks - 1) / host);
    double host_s = ls_cost_tier(cluster, LS_TIER_HOST, true, save->share / accelerators);
    struct ls_snapshot_cost cost = {.copy_s =
                                        isinf(host_s) ? save->copy_s : fmax(save->copy_s, host_s)};
    if (replicas > 0) {
        struct ls_cost_group group = ls_cost_group_of(cluster, accelerators, 0, 2, host);
        group.shift = (double)(host * accelerators);
        cost.send_s = ls_cost_move(cluster, &group, LS_COMM_SEND, (double)replicas * save->share);
    }
    cost.seconds = cost.send_s + fmax(save->hash_s + cost.copy_s - step_s, 0);
    return cost;
}
