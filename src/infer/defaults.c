/* How a model's own folder says that its texts are drawn and end. */
#include "infer/infer_private.h"

#include <lockstep/base/file.h>
#include <lockstep/base/json.h>
#include <lockstep/ckpt.h>
#include <lockstep/config/inputs.h>
#include <lockstep/interop.h>

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

/* A file under work. */
struct reading {
    char path[PATH_MAX];
    json_t *object; /* NULL: there is none */
    struct ls_error *error;
};

static int reading_open(struct reading *r, const char *folder, const char *name,
                        struct ls_error *error)
{
    *r = (struct reading){.error = error};
    int status = ls_path_inside(r->path, folder, name, error);
    return status || access(r->path, F_OK) ? status
                                           : ls_json_read(r->path, LS_ECONFIG, &r->object, error);
}

/* The key's value; NULL if it is absent or null. */
static const json_t *value_of(const struct reading *r, const char *key)
{
    const json_t *value = json_object_get(r->object, key);
    return json_is_null(value) ? NULL : value;
}

static int real_read(const struct reading *r, const char *key, double most, double *out)
{
    const json_t *value = value_of(r, key);
    if (!value)
        return LS_OK;
    *out = json_is_number(value) ? json_number_value(value) : -1;
    return *out >= 0 && *out <= most
               ? LS_OK
               : ls_error_set(r->error, LS_ECONFIG, "%.300s: %s: expected a number from 0 to %g",
                              r->path, key, most);
}

static int sampling_read(const struct reading *r, struct ls_generation_defaults *out)
{
    double temperature = 1, top_k = 50, top_p = 1;
    const json_t *sampled = value_of(r, "do_sample");
    if (sampled && !json_is_boolean(sampled))
        return ls_error_set(r->error, LS_ECONFIG, "%.300s: do_sample: expected true or false",
                            r->path);
    int status = real_read(r, "temperature", 100, &temperature);
    if (!status)
        status = real_read(r, "top_k", 1e9, &top_k);
    if (!status && top_k != floor(top_k))
        status =
            ls_error_set(r->error, LS_ECONFIG,
                         "%.300s: top_k: expected a whole number, or 0 for all tokens", r->path);
    if (!status)
        status = real_read(r, "top_p", 1, &top_p);
    out->sampled = sampled != NULL;
    if (json_is_true(sampled))
        out->sampling = (struct ls_sampling){(float)temperature, (float)top_p, (int64_t)top_k};
    else if (sampled)
        out->sampling = (struct ls_sampling){.top_p = 1};
    return status;
}

static int length_read(const struct reading *r, const char *key, int64_t *out)
{
    const json_t *value = value_of(r, key);
    *out = json_integer_value(value);
    return !value || (json_is_integer(value) && *out > 0)
               ? LS_OK
               : ls_error_set(r->error, LS_ECONFIG,
                              "%.300s: %s: expected a whole number of 1 or more", r->path, key);
}

/* An id that the model has no row for cannot come. */
static int ends_read(const struct reading *r, int64_t vocabulary,
                     struct ls_generation_defaults *out)
{
    const json_t *value = value_of(r, "eos_token_id");
    size_t count = json_is_array(value) ? json_array_size(value) : value != NULL;
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_is_array(value) ? json_array_get(value, i) : value;
        if (!json_is_integer(id) || json_integer_value(id) < 0 || out->end_count == LS_ENDS_MAX)
            return ls_error_set(
                r->error, LS_ECONFIG,
                "%.300s: eos_token_id: expected a token id, or a list of at most %d", r->path,
                LS_ENDS_MAX);
        if (json_integer_value(id) < vocabulary)
            out->ends[out->end_count++] = (int32_t)json_integer_value(id);
    }
    return LS_OK;
}

/* Keys that change texts unless they have this value, an integer or real number or null. */
static void unsupported_find(const struct reading *r, struct ls_generation_defaults *out)
{
    static const struct {
        const char *key;
        double neutral;
    } keys[] = {{"repetition_penalty", 1},
                {"no_repeat_ngram_size", 0},
                {"encoder_no_repeat_ngram_size", 0},
                {"min_p", 0},
                {"top_h", -1},
                {"typical_p", 1},
                {"epsilon_cutoff", 0},
                {"eta_cutoff", 0},
                {"num_beams", 1},
                {"num_beam_groups", 1},
                {"diversity_penalty", 0},
                {"penalty_alpha", 0},
                {"encoder_repetition_penalty", 1},
                {"min_length", 0},
                {"min_new_tokens", 0},
                {"guidance_scale", 1},
                {"bad_words_ids", -1},
                {"force_words_ids", -1},
                {"forced_bos_token_id", -1},
                {"forced_eos_token_id", -1},
                {"suppress_tokens", -1},
                {"begin_suppress_tokens", -1},
                {"sequence_bias", -1},
                {"exponential_decay_length_penalty", -1},
                {"watermarking_config", -1},
                {"max_time", -1},
                {"stop_strings", -1}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *value = value_of(r, keys[i].key);
        if (!value || (json_is_number(value) && json_number_value(value) == keys[i].neutral))
            continue;
        char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
        ls_string_add(out->unsupported, sizeof out->unsupported, ", ", "%s = %.40s", keys[i].key,
                      text ? text : "...");
        free(text);
    }
}

int ls_generation_defaults_read(const char *folder, int64_t vocabulary,
                                struct ls_generation_defaults *out, struct ls_error *error)
{
    struct reading generation, model = {.object = NULL};
    *out = (struct ls_generation_defaults){0};
    int status = reading_open(&generation, folder, "generation_config.json", error);
    if (!status)
        status = reading_open(&model, folder, "config.json", error);
    if (!status)
        status = sampling_read(&generation, out);
    if (!status)
        status = length_read(&generation, "max_new_tokens", &out->tokens);
    if (!status && !out->tokens)
        status = length_read(&generation, "max_length", &out->length);
    if (!status)
        status = ends_read(value_of(&generation, "eos_token_id") ? &generation : &model, vocabulary,
                           out);
    unsupported_find(&generation, out);
    json_decref(generation.object);
    json_decref(model.object);
    return status;
}

static int model_read(const char *path, int64_t vocabulary, struct ls_generation_defaults *out,
                      struct ls_error *error)
{
    char run[PATH_MAX], folder[PATH_MAX];
    if (ls_model_is_foreign(path))
        return ls_generation_defaults_read(path, vocabulary, out, error);
    int status = ls_checkpoint_run(path, run, error);
    if (!status)
        status = ls_path_join(folder, run, ls_kept_hf_fits(run) ? "hf" : "tokenizer", error);
    return status ? status : ls_generation_defaults_read(folder, vocabulary, out, error);
}

int ls_generation_defaults_share(const char *path, int64_t vocabulary, struct ls_comm *world,
                                 struct ls_generation_defaults *out, struct ls_error *error)
{
    *out = (struct ls_generation_defaults){0};
    int status = ls_comm_rank(world) == 0 ? model_read(path, vocabulary, out, error) : LS_OK;
    status = ls_comm_agree(world, status, error);
    return status ? status : ls_broadcast(world, out, sizeof *out, LS_U8, 0, error);
}

void ls_generation_ends_add(struct ls_generation_defaults *defaults, int32_t id)
{
    bool known = id < 0 || defaults->end_count == LS_ENDS_MAX;
    for (int i = 0; i < defaults->end_count; i++)
        known |= defaults->ends[i] == id;
    if (!known)
        defaults->ends[defaults->end_count++] = id;
}
