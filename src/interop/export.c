/* A model goes out: its tensors by the names of others, in blocks. The formats are export_*.c. */
#include "export_private.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the tensors ----------------------------------------------------------------------------- */

static struct out_tensor *tensor_named(struct exporting *ex, const char *name)
{
    /* Parts of one tensor come one after the other. */
    struct out_tensor *last = ex->count ? &ex->tensors[ex->count - 1] : NULL;
    for (int64_t back = 0; last && back < 8 && back < ex->count; back++)
        if (!strcmp(last[-back].name, name))
            return &last[-back];
    return NULL;
}

static int tensor_add(struct exporting *ex, const struct ls_param *param, struct ls_error *error)
{
    struct ls_elsewhere there;
    const struct ls_model_source *source = ex->source;
    if (!ls_param_elsewhere(&source->params, &source->model, param, &there))
        return ls_error_set(error, LS_ECONFIG, "%s: Hugging Face's %s has no such parameter",
                            param->name, ls_family_of(source->model.arch)->hf.model_type);
    struct out_tensor *tensor = tensor_named(ex, there.name);
    if (!tensor) {
        if (!ls_list_grow(&ex->tensors, ex->count, &ex->room, sizeof *ex->tensors))
            return ls_error_set(error, LS_ENOMEM, "no memory for a list of tensors");
        tensor = &ex->tensors[ex->count++];
        *tensor = (struct out_tensor){.dtype = ex->export->dtype,
                                      .rows = there.transposed ? there.cols : there.rows,
                                      .cols = there.transposed ? there.rows : there.cols,
                                      .matrix = param->matrix,
                                      .transposed = there.transposed};
        memcpy(tensor->name, there.name, sizeof tensor->name);
    }
    LS_ASSERT(tensor->parts < OUT_PARTS_MAX);
    tensor->part[tensor->parts++] = param;
    return LS_OK;
}

int64_t out_elements(const struct out_tensor *tensor)
{
    return tensor->rows * tensor->cols;
}

int64_t out_bytes(const struct out_tensor *tensor)
{
    return out_elements(tensor) * (int64_t)ls_dtype_bytes(tensor->dtype);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Rows of a parameter that are trained; a vector's elements are rows. */
static int64_t part_rows(const struct ls_param *param)
{
    return param->matrix ? param->live_rows : param->global_cols;
}

/* Row r of the tensor's part, as ours. */
static int64_t row_here(const struct out_tensor *tensor, int64_t r)
{
    int64_t d = tensor->head_rows;
    return d ? r / d * d + r % 2 * (d / 2) + r % d / 2 : r;
}

/* Rows [row, row + rows) of the tensor: those of its parts, one below the other. */
static void rows_read(struct exporting *ex, const struct out_tensor *tensor, int64_t row,
                      int64_t rows, float *values)
{
    int64_t cols = tensor->cols, first = 0;
    memset(values, 0, (size_t)(rows * cols) * sizeof *values);
    for (int p = 0; p < tensor->parts; p++) {
        const struct ls_param *param = tensor->part[p];
        int64_t begin = ls_max(row, first), end = ls_min(row + rows, first + part_rows(param));
        float *place = values + (begin - row) * cols;
        if (begin < end && !tensor->head_rows)
            ls_model_source_fill(ex->source, param, &ex->ops, (begin - first) * cols,
                                 (end - begin) * cols, place);
        for (int64_t r = begin; r < end && tensor->head_rows; r++)
            ls_model_source_fill(ex->source, param, &ex->ops, row_here(tensor, r - first) * cols,
                                 cols, values + (r - row) * cols);
        first += part_rows(param);
    }
}

/* Rows of a tensor that is stored by our columns. */
static void columns_read(struct exporting *ex, const struct out_tensor *tensor, int64_t row,
                         int64_t rows, float *values)
{
    int64_t first = 0;
    for (int p = 0; p < tensor->parts; p++) {
        struct ls_param part = *tensor->part[p]; /* those columns of it */
        int64_t ours = part_rows(&part);
        int64_t step = ls_max(ls_min(ours, EXPORT_BLOCK / rows), 1);
        part.first_col = row;
        part.cols = rows;
        for (int64_t at = 0; at < ours; at += step) {
            int64_t count = ls_min(step, ours - at);
            ls_model_source_fill(ex->source, &part, &ex->ops, at * rows, count * rows, ex->block);
#pragma omp parallel for num_threads(ex->ops.threads) schedule(static)
            for (int64_t r = 0; r < rows; r++)
                for (int64_t i = 0; i < count; i++)
                    values[r * tensor->cols + first + at + i] = ex->block[i * rows + r];
        }
        first += ours;
    }
}

static int block_put(struct exporting *ex, const struct out_tensor *tensor, int64_t count,
                     out_put *put, void *user, struct ls_error *error)
{
    size_t bytes = (size_t)count * ls_dtype_bytes(tensor->dtype);
    for (int64_t i = 0; i < count && tensor->added != 0; i++)
        ex->values[i] += tensor->added;
    if (tensor->dtype == LS_F32)
        return put(user, ex->values, bytes, error);
    ls_cast_to_half(&ex->ops, tensor->dtype, count, ex->values, ex->halves);
    return put(user, ex->halves, bytes, error);
}

int out_write(struct exporting *ex, const struct out_tensor *tensor, out_put *put, void *user,
              struct ls_error *error)
{
    int64_t step = ls_max(EXPORT_BLOCK / tensor->cols, 1);
    int status = LS_OK;
    LS_ASSERT(tensor->cols <= EXPORT_BLOCK);
    for (int64_t row = 0; row < tensor->rows && !status; row += step) {
        int64_t rows = ls_min(step, tensor->rows - row);
        if (tensor->transposed)
            columns_read(ex, tensor, row, rows, ex->values);
        else
            rows_read(ex, tensor, row, rows, ex->values);
        status = block_put(ex, tensor, rows * tensor->cols, put, user, error);
        ls_progress();
    }
    ex->report.tensors++;
    ex->report.bytes += out_bytes(tensor);
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int model_open(struct exporting *ex, struct ls_error *error)
{
    const struct ls_export *export = ex->export;
    int status =
        ls_model_source_choose(&ex->source, export->from, export->which, export->log, error);
    if (!status)
        status = ls_model_source_alone(ex->source, NULL, 0, NULL, &ex->config, error);
    struct ls_numerics numerics;
    if (!status) {
        numerics = ls_config_numerics(&ex->config);
        status = ls_model_source_check(ex->source, &ex->config.model, &numerics, error);
    }
    for (int i = 0; !status && i < ex->source->params.count; i++)
        status = tensor_add(ex, &ex->source->params.list[i], error);
    return status;
}

static int buffers_take(struct exporting *ex, struct ls_error *error)
{
    ex->values = malloc(EXPORT_BLOCK * sizeof *ex->values);
    ex->block = malloc(EXPORT_BLOCK * sizeof *ex->block);
    ex->halves = malloc(EXPORT_BLOCK * sizeof *ex->halves);
    return ex->values && ex->block && ex->halves
               ? LS_OK
               : ls_error_set(error, LS_ENOMEM, "no memory to export a model");
}

int ls_export(const struct ls_export *export, struct ls_export_report *report,
              struct ls_error *error)
{
    struct exporting *ex = calloc(1, sizeof *ex);
    if (!ex)
        return ls_error_set(error, LS_ENOMEM, "no memory to export a model");
    ex->export = export;
    int status = model_open(ex, error);
    if (!status && export->format != LS_EXPORT_HF && access(export->out, F_OK) == 0)
        status = ls_error_set(error, LS_ECONFIG, "%.300s: is there already: name another file",
                              export->out);
    if (!status)
        status = buffers_take(ex, error);
    if (!status)
        status = ls_ops_init(&ex->ops, ls_device_cores(), ls_isa_best(), error);
    if (!status) {
        status = export->format == LS_EXPORT_HF     ? export_hf(ex, error)
                 : export->format == LS_EXPORT_LLMC ? export_llmc(ex, error)
                                                    : export_gguf(ex, error);
        ls_ops_release(&ex->ops);
    }
    *report = ex->report;
    ls_model_source_close(ex->source);
    free(ex->tensors);
    free(ex->values);
    free(ex->block);
    free(ex->halves);
    free(ex);
    return status;
}
