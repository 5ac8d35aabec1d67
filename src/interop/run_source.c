/* A run of Lockstep as a source: the parameters of one of its checkpoints. */
#include "interop/interop_private.h"

#include <lockstep/config/inputs.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct finished {
    char run[PATH_MAX], kept[PATH_MAX]; /* kept: RUN/hf or RUN/tokenizer, "" for none */
    struct ls_config config;
    struct ls_checkpoint *checkpoint;
    struct ls_params params; /* with adapters; of a run that has none, empty */
    float **adapters;        /* [params.count]: the values of those, NULL of others */
};

static void run_close(struct ls_model_source *source)
{
    struct finished *f = source->data;
    for (int i = 0; i < f->params.count && f->adapters; i++)
        free(f->adapters[i]);
    free(f->adapters);
    ls_checkpoint_close(f->checkpoint);
    ls_params_release(&f->params);
}

static int parameters_verify(void *user, struct ls_checkpoint *checkpoint, struct ls_error *error)
{
    (void)user;
    return ls_checkpoint_verify(checkpoint, LS_CKPT_MODEL, error);
}

static int run_open(struct ls_model_source *source, struct ls_error *error)
{
    struct finished *f = source->data;
    struct ls_tokenizer *tokenizer = NULL;
    int status = ls_checkpoint_run(source->path, f->run, error);
    if (!status)
        status = ls_kept_read(f->run, &f->config, &tokenizer, error);
    ls_tokenizer_free(tokenizer);
    if (!status)
        status =
            ls_checkpoint_choose(&f->checkpoint, source->path, source->which, source->log, error);
    status = ls_checkpoint_load(&f->checkpoint, NULL, status, parameters_verify, NULL, source->log,
                                error);
    struct ls_numerics numerics = ls_config_numerics(&f->config);
    if (!status && f->config.model.lora.rank > 0)
        status = ls_params_init(&f->params, &f->config.model, &numerics, NULL, error);
    bool hf = interop_exists(f->run, "hf"), fits = ls_kept_hf_fits(f->run);
    const char *kept = hf && fits ? "hf" : "tokenizer";
    if (!status && hf && !fits)
        ls_log(source->log, LS_LOG_WARNING,
               "%s/hf is left out: the run has another tokenizer, which is in %s/tokenizer", f->run,
               f->run);
    if (!status && interop_exists(f->run, kept))
        status = ls_path_join(f->kept, f->run, kept, error);
    if (status)
        return status;
    source->dtype = f->config.numerics.precision;
    source->step = f->checkpoint->state.step;
    source->tokenizer = f->config.data.tokenizer[0] ? f->config.data.tokenizer : NULL;
    source->folder = f->kept[0] ? f->kept : NULL;
    return LS_OK;
}

/* The keys of group model, as the run has them; the vocabulary's padding is the reader's. */
static int run_configure(const struct ls_model_source *source, struct interop_keys *keys)
{
    static const char others[] = "preset|from|vocab_multiple|seed|dropout";
    const struct finished *f = source->data;
    size_t prefix = strlen("model.");
    int status = LS_OK;
    keys->name = f->run;
    keys->arch = f->config.model.arch;
    for (const struct ls_config_key *key = ls_config_keys(NULL); key->name && !status; key++) {
        char value[LS_CONFIG_VALUE_BYTES];
        const char *leaf = key->name + prefix;
        if (strncmp(key->name, "model.", prefix) || ls_word_among(others, leaf) ||
            !ls_family_reads(keys->arch, leaf))
            continue;
        ls_config_value(&f->config, key, value, sizeof value);
        status = interop_key_set(keys, leaf, value, key->name);
    }
    return status;
}

/* A tensor of the checkpoint, in that shape; of one dim the first is left out. */
static int stored_find(const struct finished *f, const char *name, int dims, const int64_t shape[2],
                       const struct ls_stored_tensor **stored, struct ls_error *error)
{
    int status = ls_checkpoint_require(f->checkpoint, LS_CKPT_MODEL, name, LS_F32, dims,
                                       shape + 2 - dims, stored, error);
    return status ? ls_error_prefix(error, "%.300s", f->checkpoint->directory) : LS_OK;
}

static int run_locate(const struct ls_model_source *source, const struct ls_param *param,
                      struct source_view *out, struct ls_error *error)
{
    const struct finished *f = source->data;
    const struct ls_stored_tensor *stored;
    const struct ls_model_config *model = &source->model;
    bool table = param->live_rows == model->vocab && param->matrix &&
                 param->global_rows == model->vocab_padded;
    int64_t padded = f->config.model.vocab_padded;
    int64_t shape[2] = {param->global_rows, param->global_cols};
    if (table && model->vocab_padded != padded) /* another model.vocab_multiple */
        shape[0] = padded;
    bool matrix = param->matrix;
    int status = stored_find(f, param->name, matrix ? 2 : 1, shape, &stored, error);
    if (status)
        return status;
    *out = (struct source_view){.checkpoint = f->checkpoint,
                                .stored = stored,
                                .dtype = LS_F32,
                                .rows = matrix ? shape[0] : shape[1],
                                .cols = matrix ? shape[1] : 1};
    return LS_OK;
}

/* ---- adapters -------------------------------------------------------------------------------- */

const struct ls_config *run_adapted(const struct ls_model_source *source)
{
    const struct finished *f = source->data;
    return source->kind == &source_run && f->params.count > 0 ? &f->config : NULL;
}

/* Columns [col, col + count) of a row of W: += scale times that of B A, summed in ascending order.
 */
static void row_merge(const float *b, const float *a, int64_t rank, int64_t ld, float scale,
                      int64_t col, int64_t count, float *values)
{
    enum { PIECE = 512 };
    for (int64_t at = 0; at < count; at += PIECE) {
        float sum[PIECE] = {0};
        int64_t n = ls_min(PIECE, count - at);
        for (int64_t k = 0; k < rank; k++)
            for (int64_t c = 0; c < n; c++)
                sum[c] = fmaf(b[k], a[k * ld + col + at + c], sum[c]);
        for (int64_t c = 0; c < n; c++)
            values[at + c] = fmaf(scale, sum[c], values[at + c]);
    }
}

static void run_merge(const struct ls_model_source *source, const struct ls_param *param,
                      struct ls_ops *ops, int64_t first, int64_t count, float *values)
{
    const struct finished *f = source->data;
    const struct ls_lora *lora = &f->config.model.lora;
    const struct ls_param *own = f->params.count ? ls_params_find(&f->params, param->name) : NULL;
    if (!own || !own->lora_a || count == 0)
        return;
    const float *a = f->adapters[own->lora_a], *b = f->adapters[own->lora_b];
    float scale = (float)(lora->alpha / (double)lora->rank);
    int64_t cols = param->cols, end = first + count;
    int team = ls_ops_team(ops, count * lora->rank);
#pragma omp parallel for num_threads(team) schedule(static)
    for (int64_t row = first / cols; row <= (end - 1) / cols; row++) {
        int64_t begin = ls_max(row * cols, first), stop = ls_min((row + 1) * cols, end);
        row_merge(b + (param->first_row + row) * lora->rank, a, lora->rank, own->global_cols, scale,
                  param->first_col + begin % cols, stop - begin, values + (begin - first));
    }
}

static int adapter_load(struct finished *f, int i, struct ls_error *error)
{
    const struct ls_param *param = &f->params.list[i];
    const int64_t shape[2] = {param->global_rows, param->global_cols};
    const struct ls_stored_tensor *stored;
    int status = stored_find(f, param->name, 2, shape, &stored, error);
    if (status)
        return status;
    int64_t count = shape[0] * shape[1];
    f->adapters[i] = malloc((size_t)count * sizeof(float));
    return f->adapters[i]
               ? ls_checkpoint_read(f->checkpoint, stored, 0, count, f->adapters[i], error)
               : ls_no_memory(error, "for adapter %s", param->name);
}

/* Each adapter is in the checkpoint, in its shape. They are small, and are kept. */
static int run_check(const struct ls_model_source *source, struct ls_error *error)
{
    struct finished *f = source->data;
    int status = LS_OK;
    if (!f->adapters && f->params.count > 0)
        f->adapters = calloc((size_t)f->params.count, sizeof *f->adapters);
    if (!f->adapters && f->params.count > 0)
        return ls_no_memory(error, "for a list of adapters");
    for (int i = 0; i < f->params.count && !status; i++)
        if (f->params.list[i].adapts && !f->adapters[i])
            status = adapter_load(f, i, error);
    return status;
}

const struct source_kind source_run = {.data_bytes = sizeof(struct finished),
                                       .open = run_open,
                                       .close = run_close,
                                       .configure = run_configure,
                                       .check = run_check,
                                       .locate = run_locate,
                                       .merge = run_merge};
