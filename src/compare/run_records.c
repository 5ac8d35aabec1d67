/* What two runs recorded, held against each other. */
#include <lockstep/ckpt.h>
#include <lockstep/compare.h>
#include <lockstep/config/inputs.h>
#include <lockstep/trace.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading --------------------------------------------------------------------------------- */

/* Collects steps as they come: those of metrics.jsonl, then those of checkpoints. */
struct collector {
    struct ls_run_record *record;
    int64_t room;
    bool no_memory;
};

static struct ls_recorded_step *step_add(struct collector *c, int64_t step)
{
    struct ls_run_record *record = c->record;
    if (!ls_list_grow(&record->steps, record->count, &c->room, sizeof *record->steps)) {
        c->no_memory = true;
        return NULL;
    }
    struct ls_recorded_step *added = &record->steps[record->count++];
    *added = (struct ls_recorded_step){.step = step};
    return added;
}

static void metrics_visit(void *user, const struct ls_record *record)
{
    const char *loss_bits = ls_record_text(record, "loss_bits");
    const char *hash = ls_record_text(record, "hash");
    double step;
    ls_record_number(record, "step", &step);
    if (isnan(step) || (!loss_bits && !hash))
        return;
    struct ls_recorded_step *added = step_add(user, (int64_t)step);
    if (!added)
        return;
    added->has_loss = loss_bits != NULL;
    added->loss_bits = loss_bits ? (uint32_t)strtoul(loss_bits, NULL, 16) : 0;
    added->has_hash = hash != NULL;
    snprintf(added->hash, sizeof added->hash, "%s", hash ? hash : "");
}

static void checkpoint_visit(void *user, const char *directory,
                             const struct ls_checkpoint_state *state)
{
    (void)directory;
    struct ls_recorded_step *added = state->hash[0] ? step_add(user, state->step) : NULL;
    if (!added)
        return;
    added->has_hash = added->saved = true;
    snprintf(added->hash, sizeof added->hash, "%s", state->hash);
    snprintf(added->fingerprint, sizeof added->fingerprint, "%s", state->fingerprint);
}

static int by_step(const void *a, const void *b)
{
    int64_t x = ((const struct ls_recorded_step *)a)->step;
    int64_t y = ((const struct ls_recorded_step *)b)->step;
    return (x > y) - (x < y);
}

/* One entry for each step; of a hash, what metrics.jsonl says. */
static void steps_merge(struct ls_run_record *record)
{
    int64_t kept = 0;
    qsort(record->steps, (size_t)record->count, sizeof *record->steps, by_step);
    for (int64_t i = 0; i < record->count; i++) {
        const struct ls_recorded_step *from = &record->steps[i];
        struct ls_recorded_step *to = kept ? &record->steps[kept - 1] : NULL;
        if (!to || to->step != from->step) {
            record->steps[kept++] = *from;
            continue;
        }
        if (from->has_loss)
            to->loss_bits = from->loss_bits;
        if (from->has_hash && (from->has_loss || !to->has_hash))
            memcpy(to->hash, from->hash, sizeof to->hash);
        if (from->saved)
            memcpy(to->fingerprint, from->fingerprint, sizeof to->fingerprint);
        to->has_loss |= from->has_loss;
        to->has_hash |= from->has_hash;
        to->saved |= from->saved;
    }
    record->count = kept;
}

int ls_run_record_read(struct ls_run_record *record, const char *run_directory,
                       struct ls_error *error)
{
    char path[PATH_MAX + 32];
    struct collector collector = {.record = record};
    struct ls_tokenizer *tokenizer;
    bool torn;
    if (strlen(run_directory) >= sizeof record->directory - 64)
        return ls_error_set(error, LS_EINVAL, "%.200s...: the path is too long", run_directory);
    int status = ls_checkpoint_run(run_directory, record->directory, error);
    if (status)
        return status;
    status = ls_kept_read(record->directory, &record->config, &tokenizer, error);
    ls_tokenizer_free(tokenizer);
    snprintf(path, sizeof path, "%s/metrics.jsonl", record->directory);
    if (!status)
        status = ls_jsonl_each(path, metrics_visit, &collector, &torn, error);
    if (!status)
        status = ls_checkpoint_list(record->directory, checkpoint_visit, &collector, error);
    if (!status && collector.no_memory)
        status = ls_error_set(error, LS_ENOMEM, "%s: no memory for its records", run_directory);
    if (!status && record->count == 0)
        status = ls_error_set(error, LS_EDATA,
                              "%s: no step has a loss_bits or a hash: nothing to compare", path);
    if (!status)
        steps_merge(record);
    return status;
}

void ls_run_record_release(struct ls_run_record *record)
{
    free(record->steps);
    record->steps = NULL;
    record->count = 0;
}

const struct ls_recorded_step *ls_run_record_at(const struct ls_run_record *record, int64_t step)
{
    const struct ls_recorded_step key = {.step = step};
    if (record->count == 0)
        return NULL;
    return bsearch(&key, record->steps, (size_t)record->count, sizeof key, by_step);
}

/* ---- comparing ------------------------------------------------------------------------------- */

static bool same_hash(const struct ls_recorded_step *a, const struct ls_recorded_step *b)
{
    return !strcmp(a->hash, b->hash);
}

/* The newest checkpoint of a run at or before the step up to which all is equal. A checkpoint
 * whose own run is equal there may stand for both. */
static void checkpoint_find(const struct ls_run_record *record, struct ls_run_difference *d)
{
    for (int64_t i = 0; i < record->count && record->steps[i].step <= d->equal; i++) {
        if (!record->steps[i].saved || record->steps[i].step <= d->checkpoint_step)
            continue;
        d->checkpoint_step = record->steps[i].step;
        snprintf(d->checkpoint, sizeof d->checkpoint, "%.*s/checkpoints/step-%08ld",
                 (int)(sizeof d->checkpoint - 64), record->directory, (long)d->checkpoint_step);
    }
}

void ls_run_records_compare(const struct ls_run_record *a, const struct ls_run_record *b,
                            struct ls_run_difference *d)
{
    *d = (struct ls_run_difference){0};
    for (int64_t i = 0; i < a->count; i++) {
        const struct ls_recorded_step *here = &a->steps[i];
        const struct ls_recorded_step *there = ls_run_record_at(b, here->step);
        if (!there)
            continue;
        bool losses = here->has_loss && there->has_loss;
        bool hashes = here->has_hash && there->has_hash;
        if (!losses && !hashes)
            continue;
        d->compared++;
        d->last = here->step;
        if (d->step)
            continue;
        d->loss = losses && here->loss_bits != there->loss_bits;
        d->hash = hashes && !same_hash(here, there);
        if (d->loss || d->hash)
            d->step = here->step;
        else if (hashes)
            d->equal = here->step;
    }
    checkpoint_find(a, d);
    checkpoint_find(b, d);
}
