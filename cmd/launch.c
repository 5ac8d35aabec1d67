#include "launch.h"

#include "doctor.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int mpi_run(const struct ls_config *config, launch_body *body, void *user,
                   struct ls_error *error)
{
    struct ls_comm *world;
    int status = ls_comm_mpi_new(&world, error);
    if (status)
        return status;
    ls_comm_set_check(world, config->comm.check);
    status = body(world, user, error);
    /* Ending MPI in good order waits for every process. After a failure the others may be stuck:
     * this one just exits, which makes the launcher end them. */
    if (status)
        return status;
    ls_comm_free(world);
    ls_mpi_finish();
    return LS_OK;
}

struct thread_run {
    const struct ls_config *config;
    launch_body *body;
    void *user;
};

static int thread_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    const struct thread_run *run = user;
    ls_comm_set_check(world, run->config->comm.check);
    return run->body(world, run->user, error);
}

int launch_ranks(const struct ls_config *config, launch_body *body, void *user,
                 struct ls_error *error)
{
    bool mpi = config->comm.transport == LS_TRANSPORT_MPI ||
               (config->comm.transport == LS_CONFIG_AUTO && ls_mpi_launched());
    if (mpi)
        return mpi_run(config, body, user, error);
    struct thread_run run = {config, body, user};
    return ls_world_run((int)ls_config_ranks(config), thread_body, &run, error);
}

int launch_config(struct ls_config *config, const char *const *defaults, const char *const *words,
                  int count, struct ls_error *error)
{
    ls_config_defaults(config);
    int status = LS_OK, files = 0;
    for (; defaults && *defaults && !status; defaults++)
        status = ls_config_set(config, *defaults, error);
    for (int i = 0; i < count && !status; i++) {
        if (strchr(words[i], '='))
            continue;
        if (files++)
            return ls_error_set(error, LS_ECONFIG,
                                "%s: one configuration file is expected; overrides are written "
                                "key=value",
                                words[i]);
        status = ls_config_load_file(config, words[i], error);
    }
    for (int i = 0; i < count && !status; i++)
        if (strchr(words[i], '='))
            status = ls_config_set(config, words[i], error);
    return status ? status : ls_train_resolve(config, error);
}

int launch_memory(const struct ls_config *config, double *bytes, struct ls_error *error)
{
    struct ls_memory_plan plan;
    char need[32], has[32];
    int status = ls_plan(config, &plan, error);
    if (status)
        return status;
    *bytes = (double)plan.total * (double)ls_config_ranks(config);
    double most = doctor_memory_free();
    if (most <= 0 || *bytes <= most)
        return LS_OK;
    doctor_bytes(*bytes, need);
    doctor_bytes(most, has);
    return ls_error_set(error, LS_ENOMEM,
                        "%ld ranks on this machine would take %s of memory, %s is free: use fewer "
                        "layers, a smaller batch.global or shorter data.sequence",
                        (long)ls_config_ranks(config), need, has);
}

void launch_end(int status)
{
    fflush(stdout);
    fflush(stderr);
    _exit(ls_exit_code(status));
}
