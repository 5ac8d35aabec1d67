/* Two layouts of one recipe, step by step and tensor by tensor. */
#include "trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int ls_proof_make(const struct ls_config *config, struct ls_comm *world, int64_t steps,
                  struct ls_proof *proof, struct ls_error *error)
{
    struct ls_trainer *t;
    int status = ls_trainer_new(config, world, NULL, &t, error);
    if (status)
        return status;
    for (int64_t i = 0; i < steps && !status; i++) {
        struct ls_step_report report;
        status = ls_trainer_step(t, &report, error);
        proof[i] = (struct ls_proof){.loss_bits = report.loss_bits};
        if (!status)
            status = ls_trainer_hash(t, &proof[i].hash, error);
    }
    ls_trainer_free(t);
    return status;
}

struct proof_job {
    const struct ls_config *config;
    int64_t steps;
    struct ls_proof *proof;
};

static int proof_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    const struct proof_job *job = user;
    if (ls_comm_rank(world) == 0)
        return ls_proof_make(job->config, world, job->steps, job->proof, error);
    struct ls_proof *mine = calloc((size_t)job->steps, sizeof *mine);
    int status = mine ? LS_OK : ls_error_set(error, LS_ENOMEM, "no memory for a proof");
    if (!status)
        status = ls_proof_make(job->config, world, job->steps, mine, error);
    free(mine);
    return status;
}

int ls_proof_threads(const struct ls_config *config, int64_t steps, struct ls_proof *proof,
                     struct ls_error *error)
{
    struct proof_job job = {config, steps, proof};
    return ls_world_run((int)ls_config_ranks(config), proof_body, &job, error);
}

int64_t ls_proof_differs(const struct ls_proof *a, const struct ls_proof *b, int64_t steps)
{
    for (int64_t i = 0; i < steps; i++)
        if (a[i].loss_bits != b[i].loss_bits || a[i].hash.low != b[i].hash.low ||
            a[i].hash.high != b[i].hash.high)
            return i + 1;
    return 0;
}

/* ---- tensor by tensor ------------------------------------------------------------------------ */

enum { TENSOR_NAME_MAX = 128 };
struct tensor_list {
    int count;
    struct ls_digest *digests;
    char (*names)[TENSOR_NAME_MAX];
};

struct trace_job {
    const struct ls_config *config;
    int64_t step;
    struct tensor_list *list; /* filled by rank 0 */
};

static int list_fill(const struct ls_trainer *t, struct tensor_list *list, struct ls_error *error)
{
    list->count = ls_trainer_tensors(t);
    list->digests = calloc((size_t)list->count, sizeof *list->digests);
    list->names = calloc((size_t)list->count, sizeof *list->names);
    if (!list->digests || !list->names)
        return ls_error_set(error, LS_ENOMEM, "no memory for tensor digests");
    for (int i = 0; i < list->count; i++)
        ls_trainer_tensor(t, i, list->names[i], TENSOR_NAME_MAX, &list->digests[i]);
    return LS_OK;
}

static int trace_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    const struct trace_job *job = user;
    struct ls_trainer *t;
    struct ls_step_report report;
    int status = ls_trainer_new(job->config, world, NULL, &t, error);
    if (status)
        return status;
    for (int64_t i = 1; i < job->step && !status; i++)
        status = ls_trainer_step(t, &report, error);
    if (!status)
        status = ls_trainer_tensors_enable(t, error);
    if (!status)
        status = ls_trainer_step(t, &report, error);
    if (!status && ls_comm_rank(world) == 0)
        status = list_fill(t, job->list, error);
    ls_trainer_free(t);
    return status;
}

static int trace_run(const struct ls_config *config, int64_t step, struct tensor_list *list,
                     struct ls_error *error)
{
    struct trace_job job = {config, step, list};
    return ls_world_run((int)ls_config_ranks(config), trace_body, &job, error);
}

int ls_proof_trace(const struct ls_config *a, const struct ls_config *b, int64_t step, char *name,
                   size_t bytes, struct ls_error *error)
{
    struct tensor_list list_a = {0}, list_b = {0};
    int status = trace_run(a, step, &list_a, error);
    if (!status)
        status = trace_run(b, step, &list_b, error);
    snprintf(name, bytes, "the update");
    for (int i = 0; !status && i < list_a.count && i < list_b.count; i++) {
        if (!memcmp(&list_a.digests[i], &list_b.digests[i], sizeof list_a.digests[i]))
            continue;
        bool same = !strcmp(list_a.names[i], list_b.names[i]);
        snprintf(name, bytes, same ? "%s" : "%s (in the other layout: %s)", list_a.names[i],
                 list_b.names[i]);
        break;
    }
    free(list_a.digests);
    free(list_a.names);
    free(list_b.digests);
    free(list_b.names);
    return status;
}
