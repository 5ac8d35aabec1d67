/* What a rank computes with: its threads, and the instruction set of all. */
#include <lockstep/base/words.h>
#include <lockstep/config.h>
#include <lockstep/device.h>

int ls_rank_threads(const struct ls_config *config, enum ls_transport transport, int machine_ranks)
{
    if (config->parallel.threads > 0)
        return (int)config->parallel.threads;
    /* A launcher that binds has divided them. */
    bool divided = transport == LS_TRANSPORT_MPI && ls_device_bound();
    int cores = ls_device_cores() / (divided ? 1 : machine_ranks);
    return (int)ls_max(cores, 1);
}

int ls_config_threads(const struct ls_config *config, const struct ls_comm *world, int *threads,
                      struct ls_error *error)
{
    int most = ls_device_threads_max();
    *threads = ls_rank_threads(config, ls_comm_transport(world), ls_comm_machine_ranks(world));
    if (config->parallel.threads <= most)
        return LS_OK;
    return ls_config_reject(config, LS_ELAYOUT, "parallel.threads", error,
                            "this machine has %s: expected at most %d threads a rank, or 0 = "
                            "cores / ranks",
                            ls_counted(ls_device_cores_online(), "core").text, most);
}

int ls_config_isa(const struct ls_config *config, struct ls_comm *world, enum ls_isa *isa,
                  struct ls_error *error)
{
    int64_t mine = config->numerics.isa, best = ls_isa_best();
    int status = LS_OK;
    if (mine == LS_CONFIG_AUTO)
        mine = best;
    else if (mine > best)
        status = ls_config_reject(config, LS_ENOTSUP, "numerics.isa", error,
                                  "this machine offers at most %s", ls_isa_name((int)best));
    status = ls_comm_agree(world, status, error);
    if (status)
        return status;
    int64_t least = -mine, fastest = 0;
    status = ls_all_reduce_max(world, &least, error);
    *isa = (enum ls_isa) - least;
    if (status || config->numerics.isa != LS_CONFIG_AUTO)
        return status;
    if (ls_comm_rank(world) == 0)
        fastest = ls_isa_fastest(*isa, config->numerics.precision);
    status = ls_all_reduce_max(world, &fastest, error);
    *isa = (enum ls_isa)fastest;
    return status;
}
