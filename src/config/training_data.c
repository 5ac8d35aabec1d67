/* What a run is trained on: the stores of data.train or data.blend, and which sample comes when. */
#include <lockstep/config/inputs.h>

#include <lockstep/base/words.h>
#include <lockstep/parallel.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *ls_config_data_key(const struct ls_config *config)
{
    return config->data.blend[0] ? "data.blend" : "data.train";
}

/* ---- sources --------------------------------------------------------------------------------- */

int ls_config_source_count(const struct ls_config *config)
{
    struct ls_config_source *entries;
    int count, sources = 1;
    if (ls_config_sources(config, &entries, &count, NULL))
        return 1;
    for (int i = 0; i < count; i++)
        sources = ls_max(sources, entries[i].index + 1);
    free(entries);
    return sources;
}

/* What has the tokenizer that all stores are compared with. */
struct run_tokenizer {
    const struct ls_tokenizer *tokenizer; /* NULL: they are with each other alone */
    const char *from, *remedy;            /* its key, and what to do */
};

static int stores_check(const struct run_tokenizer *run, const struct ls_config_source *entries,
                        int count, const char *valid, struct ls_error *error)
{
    size_t bytes = (size_t)(count + 1) * (LS_CONFIG_TEXT_BYTES + 1);
    char *all = calloc(1, bytes);
    if (!all)
        return ls_no_memory(error, "for the names of stores");
    for (int i = 0; i < count; i++)
        ls_string_add(all, bytes, ",", "%s", entries[i].source);
    ls_string_add(all, bytes, valid[0] ? "," : "", "%s", valid);
    int status = ls_tokenizer_stores_fit(run->tokenizer, run->from, all, error);
    free(all);
    return status;
}

/* The tokenizers of all stores are one; *key is the one to blame. */
static int tokenizers_check(const struct ls_config *config, const struct run_tokenizer *run,
                            const struct ls_config_source *entries, int count, const char **key,
                            struct ls_error *error)
{
    int status = stores_check(run, entries, count, config->data.valid, error);
    if (status && stores_check(run, entries, count, "", NULL) == LS_OK)
        *key = "data.valid";
    if (status == LS_ECONFIG)
        ls_error_suffix(error, ". %s", run->remedy);
    return status;
}

int ls_config_model_tokenizer_check(const struct ls_config *config,
                                    const struct ls_tokenizer *tokenizer, struct ls_error *error)
{
    const struct run_tokenizer run = {tokenizer, "model.from",
                                      "Prepare the data with the model's tokenizer, or set "
                                      "data.tokenizer to theirs to train with it all the same"};
    struct ls_config_source *entries = NULL;
    struct ls_error why = {0};
    const char *key = ls_config_data_key(config);
    int count = 0, status = ls_config_sources(config, &entries, &count, error);
    if (!status && tokenizers_check(config, &run, entries, count, &key, &why) == LS_ECONFIG) {
        status = ls_error_copy(error, LS_ECONFIG, &why);
        ls_config_blame(config, key, error);
    }
    free(entries);
    return status;
}

void ls_config_source_named(const struct ls_config_source *entries, int entry,
                            char name[LS_CONFIG_TEXT_BYTES])
{
    char own[LS_CONFIG_TEXT_BYTES], other[LS_CONFIG_TEXT_BYTES];
    int alike = 1, seen = 0;
    memcpy(own, entries[entry].source, sizeof own);
    ls_config_source_name(own);
    for (int i = 0; seen < entries[entry].index; i++) { /* the first entry of each source before */
        if (entries[i].index < seen)
            continue;
        memcpy(other, entries[i].source, sizeof other);
        ls_config_source_name(other);
        alike += strcmp(own, other) == 0;
        seen++;
    }
    if (alike > 1)
        snprintf(name, LS_CONFIG_TEXT_BYTES, "%.*s (%d)", LS_CONFIG_TEXT_BYTES - 16, own, alike);
    else
        memcpy(name, own, sizeof own);
}

static int sources_open(struct ls_training_data *data, const struct ls_config *config,
                        const struct ls_config_source *entries, int count, struct ls_error *error)
{
    int status = LS_OK;
    data->stores = calloc((size_t)count, sizeof *data->stores);
    data->sources = calloc((size_t)count, sizeof *data->sources);
    if (!data->stores || !data->sources)
        return ls_no_memory(error, "for %d sources", count);
    for (int i = 0; i < count && !status; i++) {
        int at = entries[i].index;
        struct ls_training_source *source = &data->sources[at];
        if (at == data->count) {
            data->count++;
            ls_config_source_named(entries, i, source->name);
            status = ls_config_store(config, entries[i].source, &data->stores[at], error);
            if (!status)
                status = ls_token_store_samples(data->stores[at], config->data.sequence,
                                                &source->samples, error);
        }
        if (!status && source->epochs > 0 && entries[i].epochs > 0 &&
            source->epochs != entries[i].epochs)
            status = ls_error_set(error, LS_ECONFIG,
                                  "%.200s has epochs %g and, in another entry, %g: expected one "
                                  "number for all of its entries",
                                  source->name, source->epochs, entries[i].epochs);
        source->epochs = fmax(source->epochs, entries[i].epochs);
    }
    return status;
}

/* ---- the blend ------------------------------------------------------------------------------- */

int64_t ls_config_samples(const struct ls_config *config, int64_t steps)
{
    const struct ls_config_batch *batch = &config->batch;
    int64_t leaf = config->numerics.leaf_sequences, samples = 0, step = 0, all;
    const struct ls_ramp ramp = {batch->global / leaf, batch->rampup_start / leaf,
                                 batch->rampup_increment / leaf, batch->rampup_samples};
    int64_t size;
    for (; step < steps && (size = ls_ramp_at(&ramp, samples)) < ramp.full; step++)
        samples += size * leaf;
    if (__builtin_mul_overflow(steps - step, batch->global, &all) ||
        __builtin_add_overflow(all, samples, &all) ||
        __builtin_mul_overflow(all, ls_config_batches(config), &all))
        return INT64_MAX;
    return all;
}

/* Each entry ends where the next one of its source begins; those of weight 0 only end others. */
static int blend_make(struct ls_training_data *data, const struct ls_config *config,
                      const struct ls_config_source *entries, int count, struct ls_error *error)
{
    struct ls_blend_entry made[LS_CONFIG_SOURCES_MAX];
    struct ls_blend_source sources[LS_CONFIG_SOURCES_MAX];
    int kept = 0;
    for (int i = 0; i < data->count; i++)
        sources[i] = (struct ls_blend_source){data->sources[i].name, data->sources[i].samples,
                                              data->sources[i].epochs};
    for (int i = 0; i < count; i++) {
        int at = entries[i].index;
        int64_t end = INT64_MAX;
        for (int k = 0; k < count; k++) {
            if (k == i || entries[k].index != at)
                continue;
            if (entries[k].from_step == entries[i].from_step)
                return ls_error_set(error, LS_ECONFIG,
                                    "%.200s has two entries from step %lld on: expected one",
                                    data->sources[at].name, (long long)entries[i].from_step);
            if (entries[k].from_step > entries[i].from_step)
                end = ls_min(end, ls_config_samples(config, entries[k].from_step));
        }
        if (entries[i].weight > 0)
            made[kept++] = (struct ls_blend_entry){
                at, entries[i].weight, ls_config_samples(config, entries[i].from_step), end};
    }
    if (kept == 0)
        return ls_error_set(error, LS_ECONFIG, "the weights sum up to 0");
    const struct ls_blend_config blend = {
        sources, data->count, made, kept, (uint64_t)config->data.seed, config->data.shuffle};
    int status = ls_blend_new(&blend, &data->blend, error);
    if (status == LS_EINVAL && error) /* the user's numbers */
        status = error->code = LS_ECONFIG;
    return status;
}

/* Whether there are samples for all steps. */
static int end_check(const struct ls_training_data *data, const struct ls_config *config,
                     struct ls_error *error)
{
    int64_t steps = ls_config_steps(config), wanted = ls_config_samples(config, steps);
    /* What a server's other workers compute when the last step is done. */
    int64_t ahead = config->async.mode == LS_CONFIG_SERVER ? config->async.workers - 1 : 0;
    int64_t end = ls_blend_end(data->blend), last = 0, past = steps;
    ahead *= config->batch.global;
    if (end - ahead >= wanted)
        return LS_OK;
    while (past - last > 1) { /* there are samples for `last` steps, and not for `past` */
        int64_t middle = last + (past - last) / 2;
        if (ls_config_samples(config, middle) <= end - ahead)
            last = middle;
        else
            past = middle;
    }
    return ls_error_set(error, LS_ECONFIG,
                        "the data ends behind step %lld: all sources have had their epochs, or "
                        "none has a weight, after %s%s, and train.steps is %lld. Give a source "
                        "more epochs or a weight there, or take fewer steps",
                        (long long)last, ls_counted(end, "sample").text,
                        ahead ? ", of which other workers have the last in hand" : "",
                        (long long)steps);
}

int ls_training_data_open(const struct ls_config *config, const struct ls_tokenizer *tokenizer,
                          struct ls_training_data *data, struct ls_error *error)
{
    const struct run_tokenizer run = {config->data.tokenizer[0] ? tokenizer : NULL,
                                      "data.tokenizer",
                                      "Leave data.tokenizer out, or prepare the data with it"};
    struct ls_config_source *entries = NULL;
    int count = 0;
    const char *key = ls_config_data_key(config);
    *data = (struct ls_training_data){0};
    int status = ls_config_require_data(config, error);
    if (status)
        return status;
    status = ls_config_sources(config, &entries, &count, error);
    if (!status)
        status = tokenizers_check(config, &run, entries, count, &key, error);
    if (!status)
        status = sources_open(data, config, entries, count, error);
    if (!status)
        status = blend_make(data, config, entries, count, error);
    if (!status && config->data.blend[0])
        status = end_check(data, config, error);
    free(entries);
    if (status) {
        ls_config_blame(config, key, error);
        ls_training_data_close(data);
    }
    return status;
}

void ls_training_data_close(struct ls_training_data *data)
{
    for (int i = 0; i < data->count; i++)
        ls_token_store_close(data->stores[i]);
    ls_blend_free(data->blend);
    free(data->stores);
    free(data->sources);
    *data = (struct ls_training_data){0};
}

int ls_training_data_digest(const struct ls_training_data *data, char text[33],
                            struct ls_error *error)
{
    struct ls_digest digest = {0, 0};
    int status = LS_OK;
    for (int i = 0; i < data->count && !status; i++) {
        struct ls_training_source *source = &data->sources[i];
        if (!source->digest[0]) /* once: of what is elsewhere it takes requests */
            status = ls_token_store_digest(data->stores[i], source->digest, error);
        ls_digest_piece(&digest, source->name, i, 0, source->digest, 32);
    }
    if (data->count == 1)
        memcpy(text, data->sources[0].digest, 33);
    else
        ls_digest_hex(&digest, text);
    return status;
}

static int others_say(const struct ls_config *config, const char *name, const char *digest,
                      const char *recorded, const char *remedy, struct ls_error *error)
{
    return ls_config_reject(config, LS_EDATA, ls_config_data_key(config), error,
                            "%.200s has other tokens, masks or weights than the run was trained "
                            "on: its digest is %s, and the run recorded %s. %s",
                            name, digest, recorded, remedy);
}

int ls_training_data_check(const struct ls_training_data *data, const struct ls_config *config,
                           const char *all, char (*each)[33], const char *remedy,
                           struct ls_error *error)
{
    char digest[33];
    int status = ls_training_data_digest(data, digest, error);
    for (int i = 0; i < data->count && each && !status; i++)
        if (each[i][0] && strcmp(each[i], data->sources[i].digest) != 0)
            status = others_say(config, data->sources[i].name, data->sources[i].digest, each[i],
                                remedy, error);
    if (!status && all && all[0] && strcmp(all, digest) != 0)
        status = others_say(config, data->count > 1 ? "the blend" : data->sources[0].name, digest,
                            all, remedy, error);
    return status;
}
