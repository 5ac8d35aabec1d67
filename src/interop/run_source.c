/* A run of Lockstep as a source: the parameters of one of its checkpoints. */
#include "interop_private.h"

#include <lockstep/config/inputs.h>

#include <stdlib.h>
#include <string.h>

struct finished {
    char run[PATH_MAX], kept[PATH_MAX]; /* kept: RUN/hf or RUN/tokenizer, "" for none */
    struct ls_config config;
    struct ls_checkpoint *checkpoint;
};

static void run_close(struct ls_model_source *source)
{
    struct finished *f = source->data;
    if (f)
        ls_checkpoint_close(f->checkpoint);
    free(f);
}

static int run_open(struct ls_model_source *source, struct ls_error *error)
{
    struct finished *f = calloc(1, sizeof *f);
    struct ls_tokenizer *tokenizer = NULL;
    if (!f)
        return ls_error_set(error, LS_ENOMEM, "%.300s: no memory to open it", source->path);
    source->data = f;
    int status = ls_checkpoint_run(source->path, f->run, error);
    if (!status)
        status = ls_kept_read(f->run, &f->config, &tokenizer, error);
    ls_tokenizer_free(tokenizer);
    if (!status)
        status =
            ls_checkpoint_choose(&f->checkpoint, source->path, source->which, source->log, error);
    const char *kept = interop_exists(f->run, "hf") ? "hf" : "tokenizer";
    if (!status && interop_exists(f->run, kept))
        status = interop_path(f->kept, f->run, kept, error);
    return status;
}

/* The keys of group model, as the run has them; the vocabulary's padding is the reader's. */
static int run_configure(const struct ls_model_source *source, struct interop_keys *keys)
{
    static const char *const others[] = {"preset", "from",    "vocab_multiple",
                                         "seed",   "dropout", NULL};
    const struct finished *f = source->data;
    size_t count, prefix = strlen("model.");
    const struct ls_config_key *all = ls_config_keys(&count);
    int status = LS_OK;
    keys->name = f->run;
    keys->arch = f->config.model.arch;
    for (size_t i = 0; i < count && !status; i++) {
        char value[4 * LS_CONFIG_TEXT_BYTES];
        const char *key = all[i].name + prefix, *const *other = others;
        if (strncmp(all[i].name, "model.", prefix))
            continue;
        while (*other && strcmp(*other, key))
            other++;
        ls_config_value(&f->config, &all[i], value, sizeof value);
        if (!*other && ls_family_reads(keys->arch, key))
            status = interop_key_set(keys, key, value, all[i].name);
    }
    return status;
}

static int run_locate(const struct ls_model_source *source, const struct ls_param *param,
                      struct source_view *out, struct ls_error *error)
{
    const struct finished *f = source->data;
    const struct ls_tensor_view *view;
    const struct ls_model_config *model = &source->model;
    bool table = param->live_rows == model->vocab && param->matrix &&
                 param->global_rows == model->vocab_padded;
    int64_t padded = f->config.model.vocab_padded;
    int64_t shape[2] = {param->global_rows, param->global_cols};
    if (table && model->vocab_padded != padded) /* another model.vocab_multiple */
        shape[0] = padded;
    bool matrix = param->matrix;
    int status = ls_safetensors_require(f->checkpoint->model, param->name, LS_F32, matrix ? 2 : 1,
                                        matrix ? shape : shape + 1, &view, error);
    if (status) {
        ls_error_prefix(error, "%.300s", f->checkpoint->directory);
        return status;
    }
    *out = (struct source_view){.data = view->data,
                                .dtype = LS_F32,
                                .rows = matrix ? shape[0] : shape[1],
                                .cols = matrix ? shape[1] : 1};
    return LS_OK;
}

static enum ls_dtype run_dtype(const struct ls_model_source *source)
{
    return ((const struct finished *)source->data)->config.numerics.precision;
}

static const char *run_tokenizer(const struct ls_model_source *source)
{
    const struct finished *f = source->data;
    return f->config.data.tokenizer[0] ? f->config.data.tokenizer : NULL;
}

static const char *run_folder(const struct ls_model_source *source)
{
    const struct finished *f = source->data;
    return f->kept[0] ? f->kept : NULL;
}

const struct source_kind source_run = {.open = run_open,
                                       .close = run_close,
                                       .configure = run_configure,
                                       .locate = run_locate,
                                       .dtype = run_dtype,
                                       .tokenizer = run_tokenizer,
                                       .folder = run_folder};
