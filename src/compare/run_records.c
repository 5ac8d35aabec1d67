/* What two runs recorded, held against each other. */
#include <lockstep/base/formatted.h>
#include <lockstep/ckpt.h>
#include <lockstep/compare.h>
#include <lockstep/config/inputs.h>
#include <lockstep/trace.h>
#include <lockstep/train/chain.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading --------------------------------------------------------------------------------- */

/* Collects steps as they come: those of metrics.jsonl, then those of checkpoints. */
struct collector {
    struct ls_run_record *record;
    int64_t room;
    bool no_memory, begun;
    int64_t last; /* step of the record before; 0: there is none */
    char chain[LS_CHAIN_BYTES];
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

/* The first record of a step that does not fit those before it. */
static void chain_broken(struct collector *c, int64_t step, const char *format, ...)
{
    struct ls_chain_found *found = &c->record->chain;
    if (found->broken)
        return;
    found->broken = step;
    LS_FORMAT(found->why, format);
}

/* The next record of a step, in the file's order, with its chain (NULL: it has none). */
static void chain_follow(struct collector *c, const struct ls_recorded_step *recorded,
                         const char *chain)
{
    struct ls_chain_found *found = &c->record->chain;
    const struct ls_chain_link link = {recorded->step, recorded->loss_bits, recorded->grad_norm,
                                       recorded->hash, recorded->ledger};
    const long step = (long)recorded->step, last = (long)c->last;
    if (!chain && found->records == 0) {
        found->unchained++;
    } else if (!chain) {
        chain_broken(c, step,
                     "the record of step %ld has no chain, but those before it have: it "
                     "was added, or an older version wrote it",
                     step);
    } else {
        found->records++;
        ls_chain_add(c->chain, &link);
        if (step <= last)
            chain_broken(c, step,
                         "the record of step %ld comes behind that of step %ld: one was "
                         "added or moved",
                         step, last);
        else if (strcmp(chain, c->chain) != 0 && step > last + 1)
            chain_broken(c, step,
                         "the record of step %ld does not follow that of step %ld: those "
                         "between were removed or moved, or it was altered",
                         step, last);
        else if (strcmp(chain, c->chain) != 0)
            chain_broken(c, step, "the record of step %ld was altered or added", step);
        snprintf(c->chain, sizeof c->chain, "%s", chain);
    }
    c->last = recorded->step;
}

/* How the run began, and with which data. */
static void event_visit(struct collector *c, const char *event, const char *data)
{
    bool resume = strcmp(event, "resume") == 0;
    if (!resume && strcmp(event, "start") != 0)
        return;
    if (!c->begun)
        c->record->resumed = resume;
    c->begun = true;
    snprintf(c->record->data, sizeof c->record->data, "%s", data);
}

/* A float's decimal, read as a double, may be off by a rounding. What is not finite has null, read
 * as NaN. */
static bool is_of(double decimal, uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    if (!isfinite(value))
        return isnan(decimal);
    return fabs(decimal - (double)value) <= fabs((double)value) * 0x1p-23;
}

static void metrics_visit(void *user, const struct ls_record *record)
{
    const char *loss_bits = ls_record_text(record, "loss_bits");
    const char *hash = ls_record_text(record, "hash");
    const char *event = ls_record_text(record, "event");
    const int64_t step = ls_record_whole(record, "step", -1);
    double given, changed, loss;
    if (event)
        event_visit(user, event, ls_record_string(record, "data"));
    const bool other = event && ls_record_number(record, "changed", &changed);
    if (step < 0 || (!loss_bits && !hash && !other))
        return;
    struct ls_recorded_step *added = step_add(user, step);
    if (!added)
        return;
    added->has_loss = loss_bits != NULL;
    added->loss_bits = loss_bits ? (uint32_t)strtoul(loss_bits, NULL, 16) : 0;
    added->grad_norm = ls_record_value(record, "grad_norm");
    added->has_norm = isfinite(added->grad_norm);
    added->has_hash = hash != NULL;
    added->given = ls_record_number(record, "given", &given);
    added->changed = other;
    snprintf(added->hash, sizeof added->hash, "%s", hash ? hash : "");
    snprintf(added->ledger, sizeof added->ledger, "%s", ls_record_string(record, "ledger"));
    if (loss_bits)
        chain_follow(user, added, ls_record_text(record, "chain"));
    if (loss_bits && ls_record_number(record, "loss", &loss) && !is_of(loss, added->loss_bits))
        chain_broken(user, added->step,
                     "the record of step %ld was altered: its loss is not that of loss_bits",
                     (long)added->step);
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
    snprintf(added->saved_hash, sizeof added->saved_hash, "%s", state->hash);
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
        if (from->has_loss)
            memcpy(to->ledger, from->ledger, sizeof to->ledger);
        if (from->has_norm)
            to->grad_norm = from->grad_norm;
        if (from->has_hash && (from->has_loss || !to->has_hash))
            memcpy(to->hash, from->hash, sizeof to->hash);
        if (from->saved) {
            memcpy(to->fingerprint, from->fingerprint, sizeof to->fingerprint);
            memcpy(to->saved_hash, from->saved_hash, sizeof to->saved_hash);
        }
        to->given |= from->given;
        to->changed |= from->changed;
        to->has_loss |= from->has_loss;
        to->has_norm |= from->has_norm;
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

bool ls_recorded_step_strays(const struct ls_recorded_step *step)
{
    return step->saved && !step->changed && strcmp(step->saved_hash, step->hash) != 0;
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* The newest checkpoint of a run at or before the step up to which all is equal. A checkpoint
 * whose own run is equal there may stand for both. */
static void checkpoint_find(const struct ls_run_record *record, struct ls_run_difference *d)
{
    for (int64_t i = 0; i < record->count && record->steps[i].step <= d->equal; i++) {
        const struct ls_recorded_step *step = &record->steps[i];
        if (!step->saved || ls_recorded_step_strays(step) || step->step <= d->checkpoint_step)
            continue;
        d->checkpoint_step = step->step;
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
        if (!d->strays && (ls_recorded_step_strays(here) || ls_recorded_step_strays(there))) {
            d->strays = true;
            d->stray_step = here->step;
        }
        d->loss = losses && here->loss_bits != there->loss_bits;
        d->hash = hashes && strcmp(here->hash, there->hash) != 0;
        if (d->loss || d->hash)
            d->step = here->step;
        else if (hashes)
            d->equal = here->step;
    }
    checkpoint_find(a, d);
    checkpoint_find(b, d);
}

int ls_run_record_repeats(const struct ls_run_record *run, int64_t after, int64_t last,
                          struct ls_error *error)
{
    for (int64_t i = 0; i < run->count; i++) {
        const struct ls_recorded_step *step = &run->steps[i];
        if (step->given && step->step > after && step->step <= last)
            return ls_error_set(error, LS_ENOTSUP,
                                "step %ld of %s was taken on a batch that its program gave, which "
                                "is not in the run's data: it cannot be computed again. Audit "
                                "steps that follow a checkpoint without such a step between, or "
                                "compare the records alone (diff --no-rerun)",
                                (long)step->step, run->directory);
    }
    return LS_OK;
}
