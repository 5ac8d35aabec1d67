/* A stretch of a run again, with the digests of its tensors. */
#include <lockstep/compare.h>

#include <lockstep/base/meter.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TENSOR_NAME_MAX = 128 };

/* Steps are counted from `first`. */
/* Filled by rank 0. */
struct ls_rerun {
    struct ls_config config;
    int64_t first, last, tensors_from;
    struct ls_proof *proofs;        /* [last - first + 1] */
    int tensors;                    /* of a step; 0: none kept */
    struct ls_digest *digests;      /* [last - tensors_from + 1, tensors] */
    char (*names)[TENSOR_NAME_MAX]; /* [tensors] */
};

static int proofs_take(struct ls_rerun *rerun, int64_t done, struct ls_error *error)
{
    if (done >= rerun->last)
        return ls_error_set(error, LS_EINVAL,
                            "step %ld cannot be run again from the state after step %ld",
                            (long)rerun->last, (long)done);
    rerun->first = done + 1;
    rerun->tensors_from = ls_max(rerun->tensors_from, rerun->first);
    rerun->proofs = calloc((size_t)(rerun->last - done), sizeof *rerun->proofs);
    return rerun->proofs ? LS_OK : ls_no_memory(error, "for a rerun");
}

static int digests_take(struct ls_rerun *rerun, const struct ls_trainer *t, struct ls_error *error)
{
    int count = ls_trainer_digest_count(t);
    int64_t steps = rerun->last - rerun->tensors_from + 1;
    rerun->names = calloc((size_t)count, sizeof *rerun->names);
    rerun->digests = calloc((size_t)steps * (size_t)count, sizeof *rerun->digests);
    if (!rerun->names || !rerun->digests)
        return ls_no_memory(error, "for digests of %d tensors", count);
    rerun->tensors = count;
    return LS_OK;
}

static int step_note(struct ls_rerun *rerun, const struct ls_trainer *t,
                     const struct ls_proof *proof, struct ls_error *error)
{
    int64_t step = ls_trainer_steps(t);
    rerun->proofs[step - rerun->first] = *proof;
    if (step < rerun->tensors_from)
        return LS_OK;
    int status = rerun->tensors ? LS_OK : digests_take(rerun, t, error);
    for (int i = 0; i < rerun->tensors; i++)
        ls_trainer_digest(t, i, rerun->names[i], TENSOR_NAME_MAX,
                          &rerun->digests[(step - rerun->tensors_from) * rerun->tensors + i]);
    return status;
}

/* Collective. One step with its hash; rank 0 keeps what it gave. */
static int step_run(struct ls_trainer *t, struct ls_comm *world, struct ls_rerun *rerun,
                    struct ls_error *error)
{
    struct ls_step_report report;
    struct ls_proof proof = {0};
    int status = ls_trainer_step(t, &report, error);
    if (!status && ls_trainer_meets(t))
        status = ls_trainer_hash(t, &proof.hash, error);
    if (status)
        return status;
    proof.loss_bits = report.loss_bits;
    proof.grad_norm = report.grad_norm;
    memcpy(proof.ledger, report.ledger, sizeof proof.ledger);
    if (ls_comm_rank(world) == 0)
        status = step_note(rerun, t, &proof, error);
    return ls_comm_agree(world, status, error);
}

static int rerun_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct ls_rerun *rerun = user;
    const int64_t last = rerun->last, tensors_from = rerun->tensors_from;
    struct ls_trainer *t;
    bool resumed;
    int status = ls_trainer_new(&rerun->config, world, NULL, &t, error);
    if (status)
        return status;
    status = ls_trainer_resume(t, &resumed, error);
    if (!status) {
        int local = ls_comm_rank(world) ? LS_OK : proofs_take(rerun, ls_trainer_steps(t), error);
        status = ls_comm_agree(world, local, error);
    }
    bool digests = false;
    while (!status && ls_trainer_steps(t) < last) {
        if (!digests && ls_trainer_steps(t) + 1 >= tensors_from) {
            status = ls_trainer_digests_enable(t, error);
            digests = true;
        }
        if (!status)
            status = step_run(t, world, rerun, error);
        if (!status && ls_comm_rank(world) == 0)
            ls_meter("steps", ls_trainer_steps(t) - rerun->first + 1, last - rerun->first + 1);
    }
    ls_trainer_free(t);
    return status;
}

int ls_rerun_new(const struct ls_config *config, const char *checkpoint, int64_t tensors_from,
                 int64_t last, struct ls_rerun **out, struct ls_error *error)
{
    *out = NULL;
    struct ls_rerun *rerun = calloc(1, sizeof *rerun);
    if (!rerun)
        return ls_no_memory(error, "for a rerun");
    struct ls_config *again = &rerun->config;
    *again = *config;
    again->log.trace = false;
    bool workers = again->async.mode != LS_CONFIG_SYNC;
    if (workers) /* whose tensors have no digests */
        tensors_from = last + 1;
    bool follows = again->async.mode == LS_CONFIG_SERVER || access(again->train.out, F_OK) == 0;
    if (workers && follows && !*again->async.follow)
        memcpy(again->async.follow, again->train.out, sizeof again->async.follow);
    bool from = checkpoint && checkpoint[0];
    int status = LS_OK;
    if (from && strlen(checkpoint) >= sizeof again->train.resume)
        status = ls_error_set(error, LS_EINVAL, "%.200s...: the path is too long", checkpoint);
    snprintf(again->train.resume, sizeof again->train.resume, "%s", from ? checkpoint : "never");
    rerun->last = last;
    rerun->tensors_from = tensors_from;
    struct ls_error why = {0};
    if (!status)
        status = ls_world_run((int)ls_config_ranks(again), rerun_body, rerun, &why);
    if (why.code)
        ls_error_copy(error, status, &why);
    if (!status)
        *out = rerun;
    else if (why.cause != LS_CAUSE_GIVEN_UP) /* that rank still uses it */
        ls_rerun_free(rerun);
    return status;
}

void ls_rerun_free(struct ls_rerun *rerun)
{
    if (!rerun)
        return;
    free(rerun->proofs);
    free(rerun->digests);
    free(rerun->names);
    free(rerun);
}

const struct ls_proof *ls_rerun_proof(const struct ls_rerun *rerun, int64_t step)
{
    bool run = step >= rerun->first && step <= rerun->last;
    return run ? &rerun->proofs[step - rerun->first] : NULL;
}

/* ---- comparing ------------------------------------------------------------------------------- */

void ls_rerun_check(const struct ls_rerun *rerun, const struct ls_run_record *record, int64_t from,
                    int64_t to, struct ls_rerun_check *check)
{
    *check = (struct ls_rerun_check){0};
    for (int64_t i = 0; i < record->count && record->steps[i].step <= to; i++) {
        const struct ls_recorded_step *recorded = &record->steps[i];
        const struct ls_proof *proof = ls_rerun_proof(rerun, recorded->step);
        char hash[33];
        if (recorded->step < from || !proof)
            continue;
        ls_digest_hex(&proof->hash, hash);
        check->losses += recorded->has_loss;
        check->norms += recorded->has_norm;
        check->hashes += recorded->has_hash;
        check->ledgers += recorded->ledger[0] != 0;
        check->hashed = recorded->has_hash ? recorded->step : check->hashed;
        if (check->step)
            continue;
        check->loss = recorded->has_loss && recorded->loss_bits != proof->loss_bits;
        check->norm = recorded->has_norm &&
                      memcmp(&recorded->grad_norm, &proof->grad_norm, sizeof proof->grad_norm) != 0;
        check->hash = recorded->has_hash && strcmp(recorded->hash, hash) != 0;
        check->ledger = recorded->ledger[0] && strcmp(recorded->ledger, proof->ledger) != 0;
        if (check->loss || check->norm || check->hash || check->ledger)
            check->step = recorded->step;
    }
}

static bool is_same(const struct ls_digest *a, const struct ls_digest *b)
{
    return a->low == b->low && a->high == b->high;
}

/* The digests of a step, NULL if none were kept. */
static const struct ls_digest *digests_of(const struct ls_rerun *rerun, int64_t step)
{
    if (rerun->tensors == 0 || step < rerun->tensors_from || step > rerun->last)
        return NULL;
    return rerun->digests + (step - rerun->tensors_from) * rerun->tensors;
}

/* True if a tensor of the step differs. */
static bool tensor_differs(const struct ls_rerun *a, const struct ls_rerun *b, int64_t step,
                           char *name, size_t bytes)
{
    const struct ls_digest *here = digests_of(a, step), *there = digests_of(b, step);
    for (int i = 0; here && there && i < a->tensors && i < b->tensors; i++) {
        if (is_same(&here[i], &there[i]))
            continue;
        bool same = !strcmp(a->names[i], b->names[i]);
        snprintf(name, bytes, same ? "%s" : "%s (in the other layout: %s)", a->names[i],
                 b->names[i]);
        return true;
    }
    return false;
}

int64_t ls_rerun_differs(const struct ls_rerun *a, const struct ls_rerun *b, char *name,
                         size_t bytes)
{
    snprintf(name, bytes, "%s", "");
    for (int64_t step = ls_max(a->first, b->first); step <= ls_min(a->last, b->last); step++) {
        const struct ls_proof *here = ls_rerun_proof(a, step), *there = ls_rerun_proof(b, step);
        if (tensor_differs(a, b, step, name, bytes))
            return step;
        bool loss = here->loss_bits != there->loss_bits;
        if (!loss && is_same(&here->hash, &there->hash))
            continue;
        if (digests_of(a, step) && digests_of(b, step))
            snprintf(name, bytes, "%s", loss ? "the loss" : "the update");
        return step;
    }
    return 0;
}

int ls_proof_trace(const struct ls_config *a, const struct ls_config *b, int64_t step, char *name,
                   size_t bytes, struct ls_error *error)
{
    struct ls_rerun *first, *second = NULL;
    int status = ls_rerun_new(a, NULL, step, step, &first, error);
    if (!status)
        status = ls_rerun_new(b, NULL, step, step, &second, error);
    if (!status && !tensor_differs(first, second, step, name, bytes))
        snprintf(name, bytes, "the update");
    ls_rerun_free(first);
    ls_rerun_free(second);
    return status;
}
