/* Reading samples ahead. */
#include "data/data_private.h"

#include <lockstep/base/helper_thread.h>

#include <stdlib.h>

/* A request and the batch it becomes. */
struct slot {
    struct ls_sample_run *runs; /* [sequences_max], of which run_count are asked for */
    int64_t run_count;
    struct ls_sample_run batch; /* that they are of */
    int64_t *counted;           /* [sources] of its targets */
    int32_t *inputs, *targets;
    float *weights;           /* of the targets; NULL: no store has any */
    struct ls_exact_sum *sum; /* [sources] of those that count */
    int32_t *starts;          /* [sequences_max, sequence_tokens] of packed samples */
    int status;
    struct ls_error error;
};
/* The slots are a ring. Requests are numbered from 0; request n lives in slot n % slots_count:
 *
 *     taken <= filled <= posted <= taken + depth
 *
 * There is one slot more than depth: the one that the caller still reads. */
struct ls_loader {
    struct ls_loader_config config;
    bool weighted;        /* a store has weights */
    int32_t *whole;       /* [2, sequence_tokens] one sequence before it is cut into segments */
    float *whole_weights; /* [sequence_tokens] its weights */
    int64_t row;          /* tokens handed out of a sequence */
    struct slot *slots;
    int slots_count;
    bool elsewhere; /* what a store reads is */
    pthread_t thread;
    bool started;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int64_t posted, filled, taken; /* these and stop: under mutex */
    bool stop;
};

void ls_segments_copy(const struct ls_token_segment *segments, int segment_count, int64_t count,
                      int64_t tokens, const void *in, void *out)
{
    enum { BYTES = 4 };
    char *to = out;
    for (int64_t i = 0; i < count; i++)
        for (int s = 0; s < segment_count; s++) {
            size_t bytes = (size_t)segments[s].count * BYTES;
            memcpy(to, (const char *)in + (i * tokens + segments[s].first) * BYTES, bytes);
            to += bytes;
        }
}

/* The weights of a sample's targets, into row `at` of the slot, and to its source's sum. */
static int fill_weights(struct ls_loader *loader, struct slot *slot, int64_t at,
                        struct ls_blend_place place, const int32_t *targets)
{
    const struct ls_loader_config *config = &loader->config;
    float *row = slot->weights + at * loader->row;
    float *whole = config->segment_count > 0 ? loader->whole_weights : row;
    int status = ls_sample_weights(config->stores[place.source], place.sample,
                                   config->sequence_tokens, whole, &slot->error);
    for (int64_t t = 0; t < config->sequence_tokens && !status; t++)
        if (targets[t] >= 0)
            ls_exact_add(&slot->sum[place.source], (double)whole[t]);
    if (!status && config->segment_count > 0)
        ls_segments_copy(config->segments, config->segment_count, 1, config->sequence_tokens, whole,
                         row);
    return status;
}

/* Sample `number` of the run, into row `at` of the slot. */
static int fill_row(struct ls_loader *loader, struct slot *slot, int64_t at, int64_t number)
{
    const struct ls_loader_config *config = &loader->config;
    int64_t tokens = config->sequence_tokens;
    int32_t *inputs = slot->inputs + at * loader->row, *targets = slot->targets + at * loader->row;
    bool cut = config->segment_count > 0;
    struct ls_blend_place place = ls_blend_at(config->blend, number);
    const struct ls_token_store *store = config->stores[place.source];
    int status = ls_sample_read(store, place.sample, tokens, config->vocabulary,
                                cut ? loader->whole : inputs,
                                cut ? loader->whole + tokens : targets, &slot->error);
    if (!status && cut) {
        ls_segments_copy(config->segments, config->segment_count, 1, tokens, loader->whole, inputs);
        ls_segments_copy(config->segments, config->segment_count, 1, tokens, loader->whole + tokens,
                         targets);
    }
    if (!status && slot->weights)
        status = fill_weights(loader, slot, at, place, cut ? loader->whole + tokens : targets);
    if (!status && slot->starts)
        ls_sample_starts(store, place.sample, slot->starts + at * tokens);
    return status;
}

/* The blend may end before a batch that is read ahead; it is an error for who takes that. */
static int check_end(const struct ls_loader *loader, struct slot *slot)
{
    int64_t end = ls_blend_end(loader->config.blend);
    int64_t wanted = slot->batch.first + slot->batch.count;
    for (int64_t i = 0; i < slot->run_count; i++)
        wanted = ls_max(wanted, slot->runs[i].first + slot->runs[i].count);
    if (wanted <= end)
        return LS_OK;
    return ls_error_set(&slot->error, LS_EDATA,
                        "the data ends: its sources have %lld samples in all their epochs, and the "
                        "step needs %lld. Give a source more epochs, or take fewer steps",
                        (long long)end, (long long)wanted);
}

void ls_loader_prefetch(struct ls_loader *loader, const struct ls_sample_run *runs, int64_t count)
{
    const struct ls_loader_config *config = &loader->config;
    int64_t end = ls_blend_end(config->blend);
    for (int64_t i = 0; i < count && loader->elsewhere; i++)
        for (int64_t k = 0; k < runs[i].count && runs[i].first + k < end; k++) {
            struct ls_blend_place place = ls_blend_at(config->blend, runs[i].first + k);
            ls_sample_prefetch(config->stores[place.source], place.sample, config->sequence_tokens);
        }
}

static void fill(struct ls_loader *loader, struct slot *slot)
{
    const struct ls_loader_config *config = &loader->config;
    int64_t at = 0;
    slot->status = check_end(loader, slot);
    if (!slot->status)
        ls_loader_prefetch(loader, slot->runs, slot->run_count);
    for (int i = 0; i < ls_blend_sources(config->blend) && slot->weights; i++)
        ls_exact_clear(&slot->sum[i]);
    for (int64_t i = 0; i < slot->run_count && !slot->status; i++)
        for (int64_t k = 0; k < slot->runs[i].count && !slot->status; k++)
            slot->status = fill_row(loader, slot, at++, slot->runs[i].first + k);
    memset(slot->counted, 0, (size_t)ls_blend_sources(config->blend) * sizeof *slot->counted);
    for (int64_t k = 0; k < slot->batch.count && !slot->status; k++) {
        struct ls_blend_place place = ls_blend_at(config->blend, slot->batch.first + k);
        int64_t counted = 0;
        slot->status = ls_sample_counted(config->stores[place.source], place.sample,
                                         config->sequence_tokens, &counted, &slot->error);
        slot->counted[place.source] += counted;
    }
}

static void *prefetch(void *user)
{
    struct ls_loader *loader = user;
    pthread_mutex_lock(&loader->mutex);
    for (;;) {
        while (!loader->stop && loader->filled == loader->posted)
            pthread_cond_wait(&loader->changed, &loader->mutex);
        if (loader->stop)
            break;
        struct slot *slot = &loader->slots[loader->filled % loader->slots_count];
        pthread_mutex_unlock(&loader->mutex);
        fill(loader, slot);
        pthread_mutex_lock(&loader->mutex);
        loader->filled++;
        pthread_cond_broadcast(&loader->changed);
    }
    pthread_mutex_unlock(&loader->mutex);
    return NULL;
}

static int start_thread(struct ls_loader *loader, struct ls_error *error)
{
    int failure = ls_helper_start(&loader->thread, prefetch, loader);
    if (failure)
        return ls_error_errno(error, failure, "the loader's thread cannot be started");
    loader->started = true;
    return LS_OK;
}

/* batch: the tokens of one. */
static bool slot_memory(const struct ls_loader *loader, struct slot *slot, size_t batch)
{
    const struct ls_loader_config *config = &loader->config;
    size_t sequences = (size_t)config->sequences_max, tokens = (size_t)config->sequence_tokens;
    size_t sources = (size_t)ls_blend_sources(config->blend);
    bool packed = ls_token_store_packed(config->stores[0]);
    slot->runs = malloc(sequences * sizeof *slot->runs);
    slot->counted = calloc(sources, sizeof *slot->counted);
    slot->inputs = calloc(2 * batch, sizeof *slot->inputs);
    slot->targets = slot->inputs ? slot->inputs + batch : NULL;
    if (loader->weighted) {
        slot->weights = calloc(batch, sizeof *slot->weights);
        slot->sum = calloc(sources, sizeof *slot->sum);
    }
    if (packed)
        slot->starts = calloc(sequences * tokens, sizeof *slot->starts);
    return slot->runs && slot->counted && slot->inputs && (slot->starts || !packed) &&
           ((slot->weights && slot->sum) || !loader->weighted);
}

static int take_memory(struct ls_loader *loader, struct ls_error *error)
{
    const struct ls_loader_config *config = &loader->config;
    size_t batch, all, runs, tokens = (size_t)config->sequence_tokens;
    size_t slots = (size_t)config->depth + 1;
    loader->row = config->segment_count ? 0 : config->sequence_tokens;
    for (int i = 0; i < config->segment_count; i++)
        loader->row += config->segments[i].count;
    if (!ls_size_mul((size_t)config->sequences_max, (size_t)loader->row, &batch) ||
        !ls_size_mul(batch, 2 * slots * sizeof(int32_t), &all) ||
        !ls_size_mul((size_t)config->sequences_max, slots * sizeof(struct ls_sample_run), &runs))
        return ls_error_set(error, LS_EINVAL, "loader: %d batches of %lld x %lld tokens",
                            config->depth, (long long)config->sequences_max,
                            (long long)loader->row);
    loader->slots = calloc(slots, sizeof *loader->slots);
    loader->whole = calloc(2 * tokens, sizeof *loader->whole);
    loader->whole_weights = calloc(tokens, sizeof *loader->whole_weights);
    bool there = loader->slots && loader->whole && loader->whole_weights;
    loader->slots_count = loader->slots ? (int)slots : 0;
    for (size_t i = 0; i < slots && there; i++)
        there = slot_memory(loader, &loader->slots[i], batch);
    return there ? LS_OK : ls_no_memory(error, "for the loader's %zu bytes", all + runs);
}

int ls_loader_new(const struct ls_loader_config *config, struct ls_loader **out,
                  struct ls_error *error)
{
    *out = NULL;
    if (config->sequences_max < 1 || config->depth < 1 || config->depth > 1 << 16)
        return ls_error_set(error, LS_EINVAL,
                            "loader: sequences_max %lld, depth %d; expected at least 1 of each",
                            (long long)config->sequences_max, config->depth);
    struct ls_loader *loader = calloc(1, sizeof *loader);
    if (!loader)
        return ls_no_memory(error, "for the loader");
    loader->config = *config;
    for (int i = 0; i < ls_blend_sources(config->blend); i++) {
        loader->elsewhere |= data_store_elsewhere(config->stores[i]);
        loader->weighted |= ls_token_store_weighted(config->stores[i]);
    }
    pthread_mutex_init(&loader->mutex, NULL);
    pthread_cond_init(&loader->changed, NULL);
    int status = take_memory(loader, error);
    if (!status)
        status = start_thread(loader, error);
    if (status) {
        ls_loader_free(loader);
        return status;
    }
    *out = loader;
    return LS_OK;
}

void ls_loader_free(struct ls_loader *loader)
{
    if (!loader)
        return;
    if (loader->started) {
        pthread_mutex_lock(&loader->mutex);
        loader->stop = true;
        pthread_cond_broadcast(&loader->changed);
        pthread_mutex_unlock(&loader->mutex);
        pthread_join(loader->thread, NULL);
    }
    pthread_cond_destroy(&loader->changed);
    pthread_mutex_destroy(&loader->mutex);
    for (int i = 0; i < loader->slots_count; i++) {
        struct slot *slot = &loader->slots[i];
        free(slot->runs);
        free(slot->counted);
        free(slot->inputs);
        free(slot->weights);
        free(slot->sum);
        free(slot->starts);
    }
    free(loader->whole);
    free(loader->whole_weights);
    free(loader->slots);
    free(loader);
}

int ls_loader_post(struct ls_loader *loader, int64_t first, int64_t count)
{
    struct ls_sample_run run = {first, count};
    return ls_loader_post_runs(loader, &run, 1, run);
}

/* Whether the runs are of samples that exist, and not of more than a request may have. */
static bool runs_admitted(const struct ls_sample_run *runs, int64_t count, int64_t room)
{
    bool fit = count >= 0 && count <= room;
    for (int64_t i = 0; i < count && fit; i++) {
        fit = runs[i].first >= 0 && runs[i].count >= 0 && runs[i].count <= room &&
              runs[i].first <= INT64_MAX - runs[i].count;
        room -= runs[i].count;
    }
    return fit;
}

int ls_loader_post_runs(struct ls_loader *loader, const struct ls_sample_run *runs, int64_t count,
                        struct ls_sample_run batch)
{
    if (!runs_admitted(runs, count, loader->config.sequences_max) ||
        !runs_admitted(&batch, 1, INT64_MAX))
        return LS_EINVAL;
    pthread_mutex_lock(&loader->mutex);
    int status = loader->posted - loader->taken < loader->config.depth ? LS_OK : LS_EINVAL;
    if (!status) {
        struct slot *slot = &loader->slots[loader->posted % loader->slots_count];
        memcpy(slot->runs, runs, (size_t)count * sizeof *runs);
        slot->run_count = count;
        slot->batch = batch;
        loader->posted++;
        pthread_cond_broadcast(&loader->changed);
    }
    pthread_mutex_unlock(&loader->mutex);
    return status;
}

int ls_loader_take(struct ls_loader *loader, const int32_t **inputs, const int32_t **targets,
                   double *wait_s, struct ls_error *error)
{
    double waited_s = 0;
    struct slot *slot = NULL;
    pthread_mutex_lock(&loader->mutex);
    if (loader->taken < loader->posted) {
        if (loader->filled == loader->taken) {
            double began_s = ls_now_s();
            while (loader->filled == loader->taken)
                pthread_cond_wait(&loader->changed, &loader->mutex);
            waited_s = ls_now_s() - began_s;
        }
        slot = &loader->slots[loader->taken % loader->slots_count];
        loader->taken++;
    }
    pthread_mutex_unlock(&loader->mutex);
    if (wait_s)
        *wait_s = waited_s;
    if (!slot)
        return ls_error_set(error, LS_EINVAL, "loader: nothing was posted to take");
    *inputs = slot->inputs;
    *targets = slot->targets;
    if (slot->status)
        return ls_error_copy(error, slot->status, &slot->error);
    return LS_OK;
}

static const struct slot *taken_slot(const struct ls_loader *loader)
{
    LS_ASSERT(loader->taken > 0);
    return &loader->slots[(loader->taken - 1) % loader->slots_count];
}

const int64_t *ls_loader_counted(const struct ls_loader *loader)
{
    return taken_slot(loader)->counted;
}

const float *ls_loader_weights(const struct ls_loader *loader)
{
    return taken_slot(loader)->weights;
}

const struct ls_exact_sum *ls_loader_weight_sums(const struct ls_loader *loader)
{
    return taken_slot(loader)->sum;
}

const int32_t *ls_loader_starts(const struct ls_loader *loader)
{
    return taken_slot(loader)->starts;
}
