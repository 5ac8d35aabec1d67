/* A model in files, whatever kind they are: what model.from, import and finished models read. */
#include "interop/interop_private.h"
#include "interop/staging.h"

#include <lockstep/base/hub.h>
#include <lockstep/config/inputs.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- opening --------------------------------------------------------------------------------- */

/* Other trainers leave a config.yaml beside config.json too: a run has checkpoints. */
static bool is_hf(const char *path)
{
    bool run = interop_exists(path, "config.yaml") && interop_exists(path, "checkpoints");
    return interop_exists(path, "config.json") && !run;
}

bool ls_model_is_foreign(const char *path)
{
    struct stat found;
    return is_hf(path) ||
           (ls_path_ends(path, ".bin") && stat(path, &found) == 0 && S_ISREG(found.st_mode));
}

int interop_run_check(const char *path, const char *run, struct ls_error *error)
{
    if (!ls_checkpoint_is_one(path) || interop_exists(run, "config.yaml"))
        return LS_OK;
    return ls_error_set(error, LS_ECONFIG,
                        "%.300s: a checkpoint apart from its run, whose config.yaml is needed: "
                        "expected one in RUN/checkpoints. Copy it there, or make a run of it: "
                        "lockstep train with train.resume=%.300s",
                        path, path);
}

static int kind_of(struct ls_model_source *source, struct ls_error *error)
{
    char run[PATH_MAX], hint[1024] = "", hub[LS_HUB_HINT_BYTES];
    struct stat found;
    if (stat(source->path, &found)) {
        ls_hub_hint(source->path, hub);
        if (!*hub)
            ls_path_hint(source->path, NULL, hint, sizeof hint);
        return ls_error_set(error, LS_EIO,
                            "%.300s: expected a folder with config.json, an llm.c model or a run; "
                            "there is no such folder or file%.600s%s",
                            source->path, hint, hub);
    }
    bool folder = S_ISDIR(found.st_mode);
    int status = ls_checkpoint_run(source->path, run, error);
    if (status && status != LS_EDATA) /* of a file that is not a run's checkpoints/best */
        return status;
    bool ours = !status && (!folder || (interop_exists(run, "config.yaml") && !is_hf(run)));
    source->kind = ours ? &source_run : folder ? &source_hf : &source_llmc;
    if (source->kind == &source_hf && !is_hf(source->path) &&
        interop_exists(source->path, "adapter_config.json"))
        return ls_error_set(error, LS_ECONFIG,
                            "%.300s: holds adapters (adapter_config.json) and not their model: "
                            "expected a run of both, which lockstep import MODEL --out RUN "
                            "lora.from=%.300s makes",
                            source->path, source->path);
    if (source->kind == &source_hf && !is_hf(source->path) &&
        interop_run_check(source->path, run, error))
        return LS_ECONFIG;
    if (source->kind == &source_hf && !is_hf(source->path) &&
        ls_path_inside(run, source->path, "config.json", error))
        return LS_EIO; /* a link to nothing */
    if (source->kind == &source_hf && !is_hf(source->path))
        return ls_error_set(error, LS_ECONFIG,
                            "%.300s: holds neither config.json (of a model of Hugging Face's) nor "
                            "config.yaml (of a run)",
                            source->path);
    return LS_OK;
}

static int no_memory(const char *path, struct ls_error *error)
{
    return ls_error_set(error, LS_ENOMEM, "%.300s: no memory to open it", path);
}

int ls_model_source_open(struct ls_model_source **out, const char *path, const struct ls_log *log,
                         struct ls_error *error)
{
    return ls_model_source_choose(out, path, NULL, log, error);
}

int ls_model_source_choose(struct ls_model_source **out, const char *path, const char *which,
                           const struct ls_log *log, struct ls_error *error)
{
    *out = NULL;
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    struct ls_model_source *source = calloc(1, sizeof *source);
    if (!source)
        return no_memory(path, error);
    int status = length < PATH_MAX
                     ? LS_OK
                     : ls_error_set(error, LS_EINVAL, "%.200s...: the path is too long", path);
    if (!status) {
        snprintf(source->path, PATH_MAX, "%.*s", (int)length, path);
        source->which = which;
        source->step = -1;
        source->log = log;
        status = kind_of(source, error);
    }
    if (!status) {
        source->data = calloc(1, source->kind->data_bytes);
        status = source->data ? source->kind->open(source, error) : no_memory(path, error);
    }
    if (status)
        ls_model_source_close(source);
    else
        *out = source;
    return status;
}

int ls_model_source_agree(struct ls_model_source **source, struct ls_comm *world, int status,
                          struct ls_error *error)
{
    status = ls_comm_agree(world, status, error);
    if (status)
        return status;
    struct ls_model_source *mine = *source;
    int64_t chosen = ls_comm_rank(world) == 0 ? mine->step : -1;
    status = ls_all_reduce_max(world, &chosen, error);
    if (!status && mine->step != chosen) {
        char which[32];
        snprintf(which, sizeof which, "%lld", (long long)chosen);
        status = ls_model_source_choose(source, mine->path, which, mine->log, error);
        ls_model_source_close(mine);
    }
    return ls_comm_agree(world, status, error);
}

void ls_model_source_close(struct ls_model_source *source)
{
    if (!source)
        return;
    if (source->data)
        source->kind->close(source);
    free(source->data);
    ls_safetensors_close(source->adapters);
    ls_params_release(&source->params);
    free(source);
}

/* Where the values of a parameter lie; false if they are random. */
static bool is_somewhere(const struct ls_model_source *source, const struct ls_param *param)
{
    return !param->adapts || source->adapters || source->apart;
}

static int locate(const struct ls_model_source *source, const struct ls_param *param,
                  struct source_view *out, struct ls_error *error)
{
    return param->adapts && source->adapters ? peft_locate(source, param, out, error)
                                             : source->kind->locate(source, param, out, error);
}

int ls_model_source_check(struct ls_model_source *source, const struct ls_model_config *model,
                          const struct ls_numerics *numerics, struct ls_error *error)
{
    struct source_view view;
    source->model = *model;
    ls_params_release(&source->params);
    int status = ls_params_init(&source->params, model, numerics, NULL, error);
    for (int i = 0; i < source->params.count && !status; i++)
        if (is_somewhere(source, &source->params.list[i]))
            status = locate(source, &source->params.list[i], &view, error);
    if (!status && source->adapters)
        status = peft_check(source, error);
    return status || !source->kind->check ? status : source->kind->check(source, error);
}

/* An exponent of ones. */
static bool is_finite(float value)
{
    return fabsf(value) <= FLT_MAX;
}

static void unfinite_note(struct ls_model_source *source, const struct ls_param *param,
                          int64_t first, int64_t count, const float *values, int64_t found)
{
    int at = 0; /* tensors may be read in turns */
    while (at < source->unfinite_count && strcmp(source->unfinite[at].name, param->name) != 0)
        at++;
    if (at == SOURCE_UNFINITE_MAX) {
        source->unfinite_more = true;
        return;
    }
    struct unfinite *one = &source->unfinite[at];
    if (at == source->unfinite_count) {
        int64_t i = 0;
        while (i < count && is_finite(values[i]))
            i++;
        source->unfinite_count++;
        *one = (struct unfinite){.row = param->first_row + (first + i) / param->cols,
                                 .col = param->first_col + (first + i) % param->cols,
                                 .value = values[i]};
        snprintf(one->name, sizeof one->name, "%s", param->name);
    }
    one->count += found;
}

static void values_check(struct ls_model_source *source, const struct ls_param *param,
                         struct ls_ops *ops, int64_t first, int64_t count, const float *values)
{
    int64_t found = 0;
    if (ops->idle)
        return;
#pragma omp parallel for simd num_threads(ls_ops_team(ops, count)) reduction(+ : found)
    for (int64_t i = 0; i < count; i++)
        found += !is_finite(values[i]);
    if (found)
        unfinite_note(source, param, first, count, values, found);
}

/* Blocks of a file that come as others into a base in NF4: none that bitsandbytes writes. */
static void blocks_check(struct ls_model_source *source, const struct ls_param *param,
                         int64_t count, const float *values)
{
    unsigned char block[64];
    float again[LS_BLOCK_VALUES];
    for (int64_t at = 0; at + LS_BLOCK_VALUES <= count; at += LS_BLOCK_VALUES) {
        const float *from = values + at;
        bool same = !ls_blocks_quantize(LS_BLOCKS_NF4, LS_BLOCK_VALUES, from, block, NULL);
        ls_blocks_values(LS_BLOCKS_NF4, block, 0, LS_BLOCK_VALUES, again);
        for (int i = 0; i < LS_BLOCK_VALUES && same; i++)
            same = again[i] == from[i];
        if (!same && source->changed_blocks++ == 0)
            snprintf(source->changed, sizeof source->changed, "%s", param->name);
    }
}

void ls_model_source_tell(const struct ls_model_source *source, const struct ls_log *log)
{
    for (int i = 0; i < source->unfinite_count; i++) {
        const struct unfinite *one = &source->unfinite[i];
        ls_log(log, LS_LOG_WARNING, "%s: %s: %s not finite, the first at [%ld, %ld]: %g",
               source->path, one->name, ls_counted(one->count, "value").text, (long)one->row,
               (long)one->col, (double)one->value);
    }
    if (source->changed_blocks)
        ls_log(log, LS_LOG_WARNING,
               "%s: %s of NF4, the first in %s, without a code of -1 or 1, unlike those of "
               "bitsandbytes: quantised again",
               source->path, ls_counted(source->changed_blocks, "block").text, source->changed);
    if (source->unfinite_more)
        ls_log(log, LS_LOG_WARNING, "%s: further tensors have values that are not finite",
               source->path);
}

int ls_model_source_fill(struct ls_model_source *source, const struct ls_param *param,
                         struct ls_ops *ops, int64_t first, int64_t count, float *values,
                         struct ls_error *error)
{
    struct source_view view;
    const struct ls_param *whole = ls_params_find(&source->params, param->name);
    LS_ASSERT(whole);
    if (!is_somewhere(source, whole)) {
        ls_param_fill(param, source->model.seed, ops, first, count, values);
        return LS_OK;
    }
    int status = locate(source, whole, &view, error);
    status = status ? status : interop_fill(&view, param, ops, first, count, values, error);
    if (status)
        return status;
    if (source->kind->merge && !source->apart && !param->adapts)
        source->kind->merge(source, param, ops, first, count, values);
    values_check(source, param, ops, first, count, values);
    if (view.nf4.codes && param->blocks == LS_BLOCKS_NF4 && !ops->idle)
        blocks_check(source, param, count, values);
    return LS_OK;
}

/* ---- its configuration ----------------------------------------------------------------------- */

/* The keys of group model become those of the source; with lora, those of that group become what
 * the adapters of lora.from say, if it is set. */
static int keys_take(const struct ls_model_source *source, bool lora, const struct ls_log *log,
                     struct ls_config *config, struct ls_error *error)
{
    struct ls_config scratch;
    ls_config_defaults(&scratch);
    struct interop_keys keys = {.config = config, .scratch = &scratch, .error = error};
    int status = source->kind->configure(source, &keys);
    if (!status && lora && config->lora.from[0])
        status = peft_configure(config, &scratch, log, error);
    return status;
}

/* The run that would go on: of train.out, or of the checkpoint that train.resume names; false if
 * none would. */
static bool resumed_run(struct ls_config *config, char run[PATH_MAX])
{
    int count = 0;
    const char *resume = config->train.resume;
    if (!strcmp(resume, "never"))
        return false;
    if (strcmp(resume, "auto"))
        return ls_checkpoint_run(resume, run, NULL) == LS_OK && interop_exists(run, "config.yaml");
    ls_config_name_out(config);
    snprintf(run, PATH_MAX, "%s", config->train.out);
    return ls_checkpoint_count(run, &count, NULL) == LS_OK && count > 0 &&
           interop_exists(run, "config.yaml");
}

static int run_check(const struct ls_config *config, const struct ls_config *kept,
                     struct ls_error *error)
{
    char ours[LS_CONFIG_TEXT_BYTES], theirs[LS_CONFIG_TEXT_BYTES];
    const struct ls_config_key *key = ls_config_key_of("model.from");
    ls_config_compared_value(config, key, ours, sizeof ours);
    ls_config_compared_value(kept, key, theirs, sizeof theirs);
    return !kept->model_keys.from[0] || !strcmp(ours, theirs)
               ? LS_OK
               : ls_config_reject(config, LS_ECONFIG, "model.from", error,
                                  "the run that train.resume continues began from %.200s",
                                  kept->model_keys.from);
}

/* Group lora of a run that goes on. */
static void lora_recall(struct ls_config *config, const struct ls_config *kept)
{
    struct ls_config_lora lora = kept->lora;
    memcpy(lora.from, config->lora.from, sizeof lora.from);
    config->lora = lora;
}

/* A run without data, which would have a tokenizer, gets the model's, if that is known here and the
 * model has its tokens; data are of the same one. */
static int tokenizer_take(const struct ls_model_source *source, struct ls_config *config,
                          struct ls_error *error)
{
    const char *spec = source->tokenizer;
    const int64_t vocabulary = config->model_keys.vocab;
    struct ls_tokenizer *tokenizer = NULL;
    int status = LS_OK;
    if (!spec || config->data.tokenizer[0] || ls_tokenizer_new(spec, &tokenizer, NULL))
        return LS_OK;
    if (ls_config_has_data(config))
        status = ls_config_model_tokenizer_check(config, tokenizer, error);
    else if (ls_tokenizer_vocabulary_of(tokenizer, vocabulary) <= vocabulary)
        status = interop_path_set(config, "data.tokenizer", spec, "", error);
    ls_tokenizer_free(tokenizer);
    return status;
}

/* The keys of the model, and of its adapters, from where they are. kept: of the run that goes on;
 * NULL: none does. */
static int keys_set(struct ls_config *config, const char *from, const struct ls_config *kept,
                    const struct ls_log *log, struct ls_error *error)
{
    struct ls_model_source *source = NULL;
    int status = ls_model_source_open(&source, from, log, error);
    if (!status)
        status = keys_take(source, !kept, log, config, error);
    else if (!kept)
        ls_config_blame(config, "model.from", error);
    if (!status)
        status = tokenizer_take(source, config, error);
    ls_model_source_close(source);
    if (!status && kept && config->lora.from[0])
        lora_recall(config, kept);
    return status;
}

int ls_model_from(struct ls_config *config, const struct ls_log *log, struct ls_error *error)
{
    char run[PATH_MAX];
    struct ls_config resumed, *kept = NULL;
    const char *from = config->model_keys.from;
    int status = LS_OK;
    if (!*from && config->lora.from[0])
        return ls_config_reject(config, LS_ECONFIG, "lora.from", error,
                                "needs model.from: the model that the adapters were trained with");
    if (!*from)
        return LS_OK;
    if (resumed_run(config, run)) {
        struct ls_tokenizer *tokenizer;
        kept = &resumed;
        status = ls_kept_read(run, kept, &tokenizer, error);
        ls_tokenizer_free(tokenizer);
        if (!status)
            status = run_check(config, kept, error);
        from = run;
    }
    if (!status)
        status = keys_set(config, from, kept, log, error);
    else if (!kept)
        ls_config_blame(config, "model.from", error);
    return status;
}

bool interop_has_tokenizer(const char *folder)
{
    char path[PATH_MAX];
    return interop_exists(folder, "tokenizer.json") || interop_exists(folder, "vocab.json") ||
           interop_exists(folder, "tokenizer.model") ||
           ls_path_inside(path, folder, "tokenizer.json", NULL); /* a link to nothing */
}

/* data.tokenizer is the source's; not one that is not known here. *vocabulary: its tokens. */
static int tokenizer_set(const struct ls_model_source *source, const struct ls_log *log,
                         struct ls_config *config, int64_t *vocabulary, struct ls_error *error)
{
    const char *spec = source->tokenizer;
    struct ls_tokenizer *tokenizer = NULL;
    struct ls_error why = {0};
    int status = LS_OK;
    if (config->data.tokenizer[0])
        status = ls_config_tokenizer(config, &tokenizer, error);
    else if (spec && ls_tokenizer_new(spec, &tokenizer, &why))
        ls_log(log, LS_LOG_WARNING, "the model's tokenizer is not used: %s", why.text);
    else if (tokenizer)
        status = interop_path_set(config, "data.tokenizer", spec, "", error);
    *vocabulary = ls_tokenizer_vocabulary_of(tokenizer, config->model_keys.vocab);
    ls_tokenizer_free(tokenizer);
    return status;
}

int ls_model_source_alone(const struct ls_model_source *source, const char *const *words, int count,
                          const struct ls_log *log, struct ls_config *config,
                          struct ls_error *error)
{
    enum { SEQUENCE = 1024 };
    int64_t vocabulary = 0;
    int status = LS_OK;
    ls_config_defaults(config);
    config->numerics.precision = source->dtype;
    snprintf(config->model_keys.from, sizeof config->model_keys.from, "%.*s",
             (int)sizeof config->model_keys.from - 1, source->path);
    for (int i = 0; i < count && !status; i++)
        status = ls_config_set(config, words[i], error);
    if (!status)
        status = keys_take(source, true, log, config, error);
    if (!status)
        status = tokenizer_set(source, log, config, &vocabulary, error);
    if (!status && config->data.sequence == 0)
        config->data.sequence = ls_min(config->model_keys.context, SEQUENCE);
    if (!status)
        status = ls_config_resolve(config, vocabulary, error);
    config->model_keys.from[0] = '\0'; /* it was for errors; the model is by itself */
    return status;
}

/* ---- what goes with it ----------------------------------------------------------------------- */

static const char *const kept_files[] = {"config.json",
                                         "generation_config.json",
                                         "tokenizer.json",
                                         "tokenizer_config.json",
                                         "special_tokens_map.json",
                                         "added_tokens.json",
                                         "vocab.json",
                                         "merges.txt",
                                         "tokenizer.model",
                                         "chat_template.jinja",
                                         "chat_template.json",
                                         NULL};

static int folder_add(const char *path, const struct ls_fault *fault, struct ls_error *error)
{
    char folder[PATH_MAX];
    ls_path_parent(path, folder);
    return ls_directory_add(folder, fault, error);
}

static int file_keep(const char *from, const char *to, const char *name,
                     const struct ls_fault *fault, struct ls_error *error)
{
    char source[PATH_MAX], target[PATH_MAX];
    int status = ls_path_inside(source, from, name, error);
    if (!status)
        status = ls_directory_add(to, fault, error);
    if (!status)
        status = ls_path_join(target, to, name, error);
    if (!status && strchr(name, '/'))
        status = folder_add(target, fault, error);
    return status ? status : file_copy(source, target, fault, error);
}

int interop_files_check(const char *folder, struct ls_error *error)
{
    char path[PATH_MAX];
    json_t *templates = ls_chat_files(folder), *each;
    size_t i;
    int status = LS_OK;
    for (const char *const *name = kept_files; *name && !status; name++)
        status = ls_path_inside(path, folder, *name, error);
    json_array_foreach(templates, i, each)
    {
        if (!status)
            status = ls_path_inside(path, folder, json_string_value(each), error);
    }
    json_decref(templates);
    return status;
}

int interop_files_copy(const char *from, const char *to, bool description,
                       const struct ls_fault *fault, struct ls_error *error)
{
    json_t *templates = ls_chat_files(from), *each;
    size_t i;
    int status = interop_files_check(from, error);
    for (const char *const *name = kept_files + !description; *name && !status; name++)
        if (interop_exists(from, *name))
            status = file_keep(from, to, *name, fault, error);
    json_array_foreach(templates, i, each)
    {
        if (!status)
            status = file_keep(from, to, json_string_value(each), fault, error);
    }
    json_decref(templates);
    return status;
}

void interop_files_tell(const char *folder, const struct ls_log *log)
{
    static const char *const names[] = {"generation_config.json", "special_tokens_map.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[PATH_MAX];
        struct ls_error why = {0};
        json_t *value = NULL;
        int status = LS_OK;
        if (interop_exists(folder, names[i]) && !ls_path_inside(path, folder, names[i], NULL))
            status = ls_json_read(path, LS_EDATA, &value, &why);
        if (status)
            ls_log(log, LS_LOG_WARNING, "copied as it is: %s", why.text);
        json_decref(value);
    }
}

static void file_drop(const char *from, const char *to, const char *name)
{
    char path[PATH_MAX];
    if (!(from && interop_exists(from, name)) && ls_path_join(path, to, name, NULL) == LS_OK)
        unlink(path);
}

/* What an earlier start kept of another model. from: NULL: this one has no files. */
static void files_drop(const char *from, const char *to)
{
    char path[PATH_MAX];
    json_t *templates = ls_chat_files(to), *each;
    size_t i;
    for (const char *const *name = kept_files; *name; name++)
        file_drop(from, to, *name);
    json_array_foreach(templates, i, each) file_drop(from, to, json_string_value(each));
    json_decref(templates);
    if (!from && ls_path_join(path, to, LS_CHAT_FOLDER, NULL) == LS_OK)
        rmdir(path);
    if (!from)
        rmdir(to);
}

int ls_model_source_keep(const struct ls_model_source *source, const char *run,
                         const struct ls_fault *fault, struct ls_error *error)
{
    char to[PATH_MAX];
    const char *from = source ? source->folder : NULL;
    int status = ls_path_join(to, run, "hf", error);
    if (status)
        return status;
    files_drop(from, to);
    if (!from)
        return LS_OK;
    interop_files_tell(from, source->log);
    return interop_files_copy(from, to, true, fault, error);
}
