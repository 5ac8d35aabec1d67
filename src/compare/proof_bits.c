/* Two layouts of one recipe, step by step. */
#include <lockstep/compare.h>

#include <stdlib.h>
#include <string.h>

int ls_proof_make(const struct ls_config *config, struct ls_comm *world, int64_t steps,
                  struct ls_proof *proof, struct ls_error *error)
{
    struct ls_trainer *t;
    int status = ls_trainer_new(config, world, NULL, &t, error);
    if (status)
        return status;
    ls_trainer_record_nothing(t);
    for (int64_t i = 0; i < steps && !status; i++) {
        struct ls_step_report report;
        status = ls_trainer_step(t, &report, error);
        proof[i] = (struct ls_proof){.loss_bits = report.loss_bits, .grad_norm = report.grad_norm};
        if (!status)
            status = ls_trainer_hash(t, &proof[i].hash, error);
    }
    ls_trainer_free(t);
    return status;
}

/* On the heap, and all that ranks need is in it: one that is given up keeps it. */
struct proof_job {
    struct ls_config config;
    int64_t steps;
    struct ls_proof proof[]; /* [steps] */
};

static int proof_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct proof_job *job = user;
    if (ls_comm_rank(world) == 0)
        return ls_proof_make(&job->config, world, job->steps, job->proof, error);
    struct ls_proof *mine = calloc((size_t)job->steps, sizeof *mine);
    int status = mine ? LS_OK : ls_no_memory(error, "for a proof");
    if (!status)
        status = ls_proof_make(&job->config, world, job->steps, mine, error);
    free(mine);
    return status;
}

int ls_proof_threads(const struct ls_config *config, int64_t steps, struct ls_proof *proof,
                     struct ls_error *error)
{
    size_t bytes = (size_t)steps * sizeof *proof;
    struct proof_job *job = calloc(1, sizeof *job + bytes);
    struct ls_error why = {0};
    if (!job)
        return ls_no_memory(error, "for a proof");
    job->config = *config;
    job->steps = steps;
    int status = ls_world_run((int)ls_config_ranks(config), proof_body, job, &why);
    if (status)
        ls_error_copy(error, status, &why);
    else
        memcpy(proof, job->proof, bytes);
    if (why.cause != LS_CAUSE_GIVEN_UP)
        free(job);
    return status;
}

int64_t ls_proof_differs(const struct ls_proof *a, const struct ls_proof *b, int64_t steps)
{
    for (int64_t i = 0; i < steps; i++)
        if (a[i].loss_bits != b[i].loss_bits || a[i].hash.low != b[i].hash.low ||
            a[i].hash.high != b[i].hash.high)
            return i + 1;
    return 0;
}
