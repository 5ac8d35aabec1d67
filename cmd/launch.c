#include "launch.h"

#include "doctor.h"

#include <lockstep/base/words.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void line_print(void *user, const char *text)
{
    fprintf(user, "%s\n", text);
}

/* The operations of the ranks, where no run directory took them. */
static void operations_print(struct ls_comm *world)
{
    if (ls_comm_size(world) > 1 && ls_comm_dump_claim(world))
        ls_comm_dump(world, line_print, stderr);
}

static int mpi_run(const struct ls_config *config, launch_body *body, void *user,
                   struct ls_error *error)
{
    struct ls_comm *world;
    int status = ls_comm_mpi_new(&world, error);
    if (status)
        return status;
    ls_comm_set_check(world, config->comm.check);
    ls_comm_set_timeout(world, config->comm.timeout_s);
    status = body(world, user, error);
    if (status == LS_ECOMM) {
        fprintf(stderr, "lockstep: rank %d: %s\n", ls_comm_rank(world), error->text);
        operations_print(world);
        fflush(stdout);
        fflush(stderr);
        ls_mpi_abort(ls_exit_code(status));
    }
    /* Ending MPI in good order waits for every process. After a failure the others may be stuck:
     * this one just exits, which makes the launcher end them. */
    if (status)
        return status;
    ls_comm_free(world);
    ls_mpi_finish();
    return LS_OK;
}

/* On the heap, and never freed after LS_ECOMM: a rank that was given up may still use it. */
struct thread_run {
    const struct ls_config *config;
    launch_body *body;
    void *user;
    struct ls_error errors[]; /* [ranks] */
};

static int thread_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct thread_run *run = user;
    ls_comm_set_check(world, run->config->comm.check);
    ls_comm_set_timeout(world, run->config->comm.timeout_s);
    int status = run->body(world, run->user, error);
    if (status == LS_ECOMM) {
        run->errors[ls_comm_rank(world)] = *error;
        operations_print(world);
    }
    return status;
}

/* Each rank's own words, as processes print them; what ls_world_run tells begins with one's. */
static void ranks_print(const struct thread_run *run, int ranks, const struct ls_error *told)
{
    for (int i = 0; i < ranks; i++)
        if (run->errors[i].code && atoi(told->text + strcspn(told->text, "0123456789")) != i)
            fprintf(stderr, "lockstep: rank %d: %s\n", i, run->errors[i].text);
}

int launch_ranks(const struct ls_config *config, launch_body *body, void *user,
                 struct ls_error *error)
{
    bool mpi = config->comm.transport == LS_TRANSPORT_MPI ||
               (config->comm.transport == LS_CONFIG_AUTO && ls_mpi_launched());
    if (mpi)
        return mpi_run(config, body, user, error);
    struct ls_layout layout; /* refused here, before a rank is there to refuse it */
    int status = ls_config_layout(config, 0, &layout, error);
    if (status)
        return status;
    int ranks = (int)layout.ranks;
    struct thread_run *run = calloc(1, sizeof *run + (size_t)ranks * sizeof run->errors[0]);
    if (!run)
        return ls_error_set(error, LS_ENOMEM, "no memory for %d ranks", ranks);
    run->config = config;
    run->body = body;
    run->user = user;
    status = ls_world_run(ranks, thread_body, run, error);
    if (status == LS_ECOMM)
        ranks_print(run, ranks, error);
    else
        free(run);
    return status;
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
    return ls_error_set(
        error, LS_ENOMEM,
        "%s on this machine would need %s of memory, but only %s is free: use fewer "
        "layers, a smaller batch.global or shorter data.sequence",
        ls_counted(ls_config_ranks(config), "rank").text, need, has);
}

void launch_end(int status)
{
    fflush(stdout);
    fflush(stderr);
    _exit(ls_exit_code(status));
}
