/* What a rank computes with: its threads, and the arithmetic and the instruction set of all. */
#include <lockstep/base/words.h>
#include <lockstep/config.h>
#include <lockstep/device.h>

int ls_rank_threads(const struct ls_config *config, int core_ranks)
{
    if (config->parallel.threads > 0)
        return (int)config->parallel.threads;
    return ls_max(ls_device_cores() / core_ranks, 1);
}

int ls_config_threads(const struct ls_config *config, const struct ls_comm *world, int *threads,
                      struct ls_error *error)
{
    int most = ls_device_threads_max();
    *threads = ls_rank_threads(config, ls_comm_core_ranks(world));
    if (config->parallel.threads <= most)
        return LS_OK;
    return ls_config_reject(config, LS_ELAYOUT, "parallel.threads", error,
                            "this machine has %s: expected at most %d threads a rank, or 0 = "
                            "cores / ranks",
                            ls_counted(ls_device_cores_online(), "core").text, most);
}

/* The best instruction set that all ranks have. */
static int isa_common(struct ls_comm *world, enum ls_isa *isa, struct ls_error *error)
{
    int64_t least = -(int64_t)ls_isa_best();
    int status = ls_all_reduce_max(world, &least, error);
    *isa = (enum ls_isa) - least;
    return status;
}

int ls_config_settle(struct ls_config *config, struct ls_comm *world, struct ls_error *error)
{
    struct ls_config_numerics *numerics = &config->numerics;
    int64_t chosen = 0;
    enum ls_isa isa;
    if (numerics->arithmetic != LS_CONFIG_AUTO)
        return LS_OK;
    int status = isa_common(world, &isa, error);
    if (!status && ls_comm_rank(world) == 0)
        chosen = ls_arithmetic_fastest(isa, numerics->precision);
    if (!status)
        status = ls_all_reduce_max(world, &chosen, error);
    if (!status)
        numerics->arithmetic = (int)chosen;
    return status;
}

static int isa_fastest(const struct ls_config *config, struct ls_comm *world, enum ls_isa *isa,
                       struct ls_error *error)
{
    const struct ls_config_numerics *numerics = &config->numerics;
    int64_t fastest = 0;
    int status = isa_common(world, isa, error);
    if (!status && ls_comm_rank(world) == 0)
        fastest =
            ls_isa_fastest(*isa, (enum ls_arithmetic)numerics->arithmetic, numerics->precision);
    if (!status)
        status = ls_all_reduce_max(world, &fastest, error);
    *isa = (enum ls_isa)fastest;
    return status;
}

int ls_config_ops(const struct ls_config *config, struct ls_comm *world, int threads,
                  struct ls_ops *ops, struct ls_error *error)
{
    int status = LS_OK, asked = config->numerics.isa;
    enum ls_isa isa = (enum ls_isa)asked, best = ls_isa_best();
    LS_ASSERT(config->numerics.arithmetic != LS_CONFIG_AUTO);
    if (asked == LS_CONFIG_AUTO)
        status = isa_fastest(config, world, &isa, error);
    else if (isa > best)
        status = ls_config_reject(config, LS_ENOTSUP, "numerics.isa", error,
                                  "this machine offers at most %s", ls_isa_name(best));
    if (!status)
        status = ls_ops_init(ops, threads, isa, error);
    if (!status)
        ops->arithmetic = (enum ls_arithmetic)config->numerics.arithmetic;
    return ls_comm_agree(world, status, error);
}
