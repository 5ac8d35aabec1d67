/* A run of another program's model: configuration, weights as a checkpoint of step 0, and what goes
 * with them. */
#include "interop/interop_private.h"
#include "interop/pump.h"
#include "interop/staging.h"

#include <lockstep/base/meter.h>
#include <lockstep/state.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct importing {
    const struct ls_import *import;
    struct ls_model_source **sources; /* [count]; the first says what goes with the model */
    int count;
    double *sums; /* [PIECE]; NULL: of one source */
    struct ls_config config;
    const struct ls_params *params; /* the source's */
    struct ls_ops ops;
    struct staging staging;
    struct ls_tensor_entry *entries; /* [params.count] */
    struct ls_tensor_box *boxes;
    char (*fqns)[LS_PARAM_NAME_MAX + 1];
    struct pump pump; /* its blocks take PIECE float32 */
};
/* Small, so that what is read is still in the cache when it is written. */
enum { PIECE = 512 << 10 };

/* ---- the checkpoint -------------------------------------------------------------------------- */

static int entries_make(struct importing *im, struct ls_error *error)
{
    size_t count = (size_t)im->params->count;
    im->entries = calloc(count, sizeof *im->entries);
    im->boxes = calloc(count, sizeof *im->boxes);
    im->fqns = calloc(count, sizeof *im->fqns);
    if (!im->entries || !im->boxes || !im->fqns)
        return ls_no_memory(error, "to import a model");
    for (int i = 0; i < im->params->count; i++) {
        const struct ls_param *param = &im->params->list[i];
        struct ls_tensor_entry *entry = &im->entries[i];
        ls_param_fqn(im->params, &im->config.model, param, im->fqns[i]);
        *entry = (struct ls_tensor_entry){.name = im->fqns[i], .dtype = LS_F32};
        if (param->matrix)
            entry->shape[entry->dims++] = param->global_rows;
        entry->shape[entry->dims++] = param->global_cols;
        memcpy(im->boxes[i].whole, entry->shape, sizeof entry->shape);
        im->boxes[i].name = param->name;
    }
    return LS_OK;
}

static double weight_of(const struct importing *im, int m)
{
    return im->import->weights ? im->import->weights[m] : 1;
}

/* Elements [at, at + count) of a parameter, of the source or the mean of several; `values` and the
 * sums have room for them. */
static int piece_fill(struct importing *im, const struct ls_param *param, int64_t at, int64_t count,
                      float *values, struct ls_error *error)
{
    double all = 0, *sums = im->sums;
    int status = LS_OK;
    for (int64_t i = 0; i < count && sums; i++)
        sums[i] = 0;
    for (int m = 0; m < im->count && !status; m++) {
        double weight = weight_of(im, m);
        status = ls_model_source_fill(im->sources[m], param, &im->ops, at, count, values, error);
        for (int64_t i = 0; i < count && sums; i++)
            sums[i] = fma(weight, values[i], sums[i]);
        all += weight;
    }
    for (int64_t i = 0; i < count && sums; i++)
        values[i] = (float)(sums[i] / all);
    return status;
}

static int tensor_write(struct importing *im, struct ls_safetensors_writer *writer,
                        const struct ls_param *param, struct ls_error *error)
{
    int64_t elements = param->global_rows * param->global_cols;
    /* Whole rows, so that a transposed matrix is read in blocks. */
    int64_t step = ls_max(PIECE / param->global_cols, 1) * param->global_cols;
    step = ls_min(step, PIECE);
    int status = LS_OK;
    for (int64_t at = 0; at < elements && !status; at += step) {
        int64_t count = ls_min(step, elements - at);
        float *piece = pump_take(&im->pump);
        status = piece_fill(im, param, at, count, piece, error);
        if (!status)
            status =
                pump_put(&im->pump, pump_safetensors, writer, (size_t)count * sizeof *piece, error);
        ls_progress();
    }
    return status;
}

static int weights_write(struct importing *im, struct ls_checkpoint_writer *checkpoint,
                         struct ls_error *error)
{
    struct ls_safetensors_writer *writer;
    size_t count = (size_t)im->params->count;
    const struct ls_tensor_entry **order = calloc(count, sizeof *order);
    if (!order)
        return ls_no_memory(error, "to import a model");
    ls_safetensors_order(im->entries, count, order);
    int status = ls_checkpoint_writer_begin(checkpoint, LS_CKPT_MODEL, im->entries, im->boxes,
                                            count, &writer, error);
    for (size_t i = 0; i < count && !status; i++) {
        status = tensor_write(im, writer, &im->params->list[order[i] - im->entries], error);
        ls_meter("tensors", (int64_t)i + 1, (int64_t)count);
    }
    free(order);
    status = pump_drain(&im->pump, status, error);
    return status ? status : ls_checkpoint_writer_end(checkpoint, error);
}

static int checkpoint_write(struct importing *im, struct ls_error *error)
{
    struct ls_checkpoint_writer *writer;
    struct ls_digest recipe = {0, 0};
    char digest[33], fingerprint[256], *text;
    ls_config_recipe_digest(&im->config, &recipe);
    ls_digest_hex(&recipe, digest);
    ls_fingerprint(&im->ops, fingerprint, sizeof fingerprint);
    int status = ls_config_text(&im->config, &text, error);
    if (status)
        return status;
    const struct ls_checkpoint_state state = {.fresh = true,
                                              .loss_scale = 1,
                                              .recipe_digest = digest,
                                              .recipe = text,
                                              .fingerprint = fingerprint,
                                              .hash = ""};
    status = ls_checkpoint_writer_open(&writer, im->staging.temporary, &state, -1, LS_CKPT_SHARED,
                                       NULL, im->import->fault, error);
    if (!status)
        status = ls_checkpoint_writer_commit(writer, weights_write(im, writer, error), error);
    free(text);
    return status;
}

/* ---- the run --------------------------------------------------------------------------------- */

/* The folder's own paths while it is made; they are written as seen from config.yaml. */
static int configuration_write(struct importing *im, struct ls_error *error)
{
    const char *spec = im->sources[0]->tokenizer;
    char path[PATH_MAX];
    struct ls_config written = im->config;
    bool kept = spec && !strcmp(written.data.tokenizer, spec) &&
                interop_exists(im->staging.temporary, "hf");
    int status = interop_path_set(&written, "train.out", im->staging.temporary, "", error);
    if (!status)
        status = ls_config_set(&written, "train.resume=auto", error);
    if (!status && kept)
        status = interop_path_set(&written, "data.tokenizer", im->staging.temporary, "/hf", error);
    if (!status)
        status = ls_path_join(path, im->staging.temporary, "config.yaml", error);
    return status ? status : ls_config_save_portable(&written, path, error);
}

static int run_write(struct importing *im, struct ls_error *error)
{
    const struct ls_import *import = im->import;
    int status = staging_open(&im->staging, import->run, import->fault, error);
    if (!status)
        status = ls_model_source_keep(im->sources[0], im->staging.temporary, import->fault, error);
    if (!status)
        status = entries_make(im, error);
    if (!status)
        status = pump_open(&im->pump, PIECE * sizeof(float), error);
    if (!status)
        status = checkpoint_write(im, error);
    if (!status)
        status = configuration_write(im, error);
    return status ? status : staging_commit(&im->staging, error);
}

static const char *path_of(const struct importing *im, int m)
{
    return m == 0 ? im->import->from : im->import->others[m - 1];
}

/* What source m runs as, which the first one's config becomes and the others' has to be. */
static int source_open(struct importing *im, int m, struct ls_error *error)
{
    const struct ls_import *import = im->import;
    char differences[512];
    struct ls_config other, *config = m == 0 ? &im->config : &other;
    int status = ls_model_source_open(&im->sources[m], path_of(im, m), import->log, error);
    if (!status)
        status = ls_model_source_alone(im->sources[m], import->words, import->count, import->log,
                                       config, error);
    if (!status && m > 0 &&
        ls_config_recipe_diff(&im->config, config, differences, sizeof differences) > 0)
        status =
            ls_error_set(error, LS_ECONFIG,
                         "%.300s is another model than %.300s (%s; here is the first): expected "
                         "models of one kind",
                         path_of(im, m), path_of(im, 0), differences);
    if (status)
        return status;
    struct ls_numerics numerics = ls_config_numerics(&im->config);
    if (im->config.lora.from[0])
        status = ls_model_source_adapt(im->sources[m], im->config.lora.from, error);
    return status ? status
                  : ls_model_source_check(im->sources[m], &im->config.model, &numerics, error);
}

static int weights_check(const struct importing *im, struct ls_error *error)
{
    double all = 0;
    for (int m = 0; m < im->count; m++) {
        double weight = weight_of(im, m);
        if (!(weight >= 0) || !isfinite(weight))
            return ls_error_set(error, LS_ECONFIG,
                                "the weight of %.300s is %g: expected a number of at least 0",
                                path_of(im, m), weight);
        all += weight;
    }
    return all > 0 && isfinite(all)
               ? LS_OK
               : ls_error_set(error, LS_ECONFIG,
                              "the sum of the weights is %g: expected a number above 0", all);
}

static int sources_open(struct importing *im, struct ls_error *error)
{
    im->count = 1 + im->import->other_count;
    im->sources = calloc((size_t)im->count, sizeof *im->sources);
    if (im->count > 1)
        im->sums = malloc(PIECE * sizeof *im->sums);
    if (!im->sources || (im->count > 1 && !im->sums))
        return ls_no_memory(error, "to import %d models", im->count);
    int status = weights_check(im, error);
    for (int m = 0; m < im->count && !status; m++)
        status = source_open(im, m, error);
    im->params = status ? NULL : &im->sources[0]->params;
    return status;
}

static void importing_release(struct importing *im)
{
    staging_close(&im->staging);
    for (int m = 0; m < im->count && im->sources; m++)
        ls_model_source_close(im->sources[m]);
    free(im->sources);
    free(im->sums);
    free(im->entries);
    free(im->boxes);
    free(im->fqns);
    pump_close(&im->pump);
}

int ls_import(const struct ls_import *import, struct ls_import_report *report,
              struct ls_error *error)
{
    struct importing im = {.import = import};
    int status = sources_open(&im, error);
    if (!status)
        status = ls_ops_init(&im.ops, 1, ls_isa_best(), error);
    if (!status) {
        report->model = im.config.model;
        report->parameters = im.params->weights;
        status = run_write(&im, error);
        for (int m = 0; m < im.count; m++)
            ls_model_source_tell(im.sources[m], import->log);
        ls_ops_release(&im.ops);
    }
    importing_release(&im);
    return status;
}
