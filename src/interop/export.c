/* A model goes out: its tensors by the names of others, in blocks. The formats are export_*.c. */
#include "interop/gguf.h"
#include "interop/staging.h"

#include <lockstep/base/half_range.h>
#include <lockstep/base/meter.h>
#include <lockstep/base/temporary.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- blocks of GGUF -------------------------------------------------------------------------- */

/* To the nearest integer, halves away from zero, as C's roundf: of |x| < 2^31, in operations that
 * are exact and become vectors. */
static inline int32_t rounded(float x)
{
    int32_t whole = (int32_t)x;
    float rest = x - (float)whole;
    return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

/* False if the scale is more than fp16 has, or a value is not finite. */
static bool block_quantize(const float *x, unsigned char *out)
{
    uint32_t largest = 0; /* of |x|: as integers, floats have their own order, and NaN is above */
    for (int i = 0; i < GGUF_Q8_VALUES; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    float most;
    memcpy(&most, &largest, sizeof most);
    float scale = most / 127, inverse = 1 / scale;
    ls_f16 half = ls_f32_to_f16(scale);
    if (ls_f16_to_f32(half) > 65504.0f || largest > 0x7f800000u)
        return false;
    memcpy(out, &half, sizeof half);
    signed char *q = (signed char *)out + sizeof half;
    if (!isfinite(inverse)) /* of 0, and of what is far below the least fp16 */
        memset(q, 0, GGUF_Q8_VALUES);
    else
        for (int i = 0; i < GGUF_Q8_VALUES; i++)
            q[i] = (signed char)rounded(x[i] * inverse);
    return true;
}

/* What count values take. */
static int64_t gguf_q8_bytes(int64_t count)
{
    LS_ASSERT(count % GGUF_Q8_VALUES == 0);
    return count / GGUF_Q8_VALUES * (GGUF_Q8_VALUES + (int64_t)sizeof(ls_f16));
}

/* Returns count, or the first value of the first block that cannot be said. */
static int64_t gguf_q8_quantize(int64_t count, const float *values, void *out)
{
    unsigned char *bytes = out;
    for (int64_t at = 0; at < count; at += GGUF_Q8_VALUES)
        if (!block_quantize(values + at, bytes + gguf_q8_bytes(at)))
            return at;
    return count;
}

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
    bool apart = source->apart;
    if (apart && !ls_param_adapter(&source->params, &source->model, param, &there))
        return LS_OK;
    if (!apart && !ls_param_elsewhere(&source->params, &source->model, param, &there))
        return ls_error_set(error, LS_ECONFIG, "%s: Hugging Face's %s has no such parameter",
                            param->name, ls_family_of(source->model.arch)->hf.model_type);
    char name[OUT_NAME_BYTES];
    snprintf(name, sizeof name, "%s%s", apart ? PEFT_PREFIX : "", there.name);
    struct out_tensor *tensor = tensor_named(ex, name);
    if (!tensor) {
        if (!ls_list_grow(&ex->tensors, ex->count, &ex->room, sizeof *ex->tensors))
            return ls_no_memory(error, "for a list of tensors");
        tensor = &ex->tensors[ex->count++];
        *tensor = (struct out_tensor){.dtype = ex->export->dtype,
                                      .rows = there.transposed ? there.cols : there.rows,
                                      .cols = there.transposed ? there.rows : there.cols,
                                      .matrix = param->matrix,
                                      .transposed = there.transposed};
        /* A format may have it the other way round. */
        ex->block = ls_max(ls_max(ex->block, tensor->cols), there.transposed ? tensor->rows : 0);
        memcpy(tensor->name, name, sizeof tensor->name);
    }
    LS_ASSERT(tensor->parts < OUT_PARTS_MAX);
    tensor->part[tensor->parts++] = param;
    return LS_OK;
}

int64_t out_bytes(const struct out_tensor *tensor)
{
    int64_t elements = tensor->rows * tensor->cols;
    return tensor->dtype == LS_I8 ? gguf_q8_bytes(elements)
                                  : elements * (int64_t)ls_dtype_bytes(tensor->dtype);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Rows of a parameter that are trained; a vector's elements are rows. */
static int64_t part_rows(const struct ls_param *param)
{
    return param->matrix ? param->live_rows : param->global_cols;
}

/* Rows [row, row + rows) of the tensor's part, all of one head: there those of our two halves are
 * in turn. */
static int head_read(struct exporting *ex, const struct out_tensor *tensor,
                     const struct ls_param *param, int64_t row, int64_t rows, float *values,
                     struct ls_error *error)
{
    int64_t cols = tensor->cols, at = row % tensor->head_rows, ours = row - at;
    int status = LS_OK;
    for (int64_t half = 0; half < 2 && !status; half++, ours += tensor->head_rows / 2) {
        int64_t begin = (at + 1 - half) / 2, end = (at + rows + 1 - half) / 2;
        status = ls_model_source_fill(ex->source, param, &ex->ops, (ours + begin) * cols,
                                      (end - begin) * cols, ex->piece, error);
        for (int64_t i = begin; i < end && !status; i++)
            memcpy(values + (2 * i + half - at) * cols, ex->piece + (i - begin) * cols,
                   (size_t)cols * sizeof *values);
    }
    return status;
}

/* Rows [row, row + rows) of the tensor: those of its parts, one below the other. */
static int rows_read(struct exporting *ex, const struct out_tensor *tensor, int64_t row,
                     int64_t rows, float *values, struct ls_error *error)
{
    int64_t cols = tensor->cols, first = 0, d = tensor->head_rows;
    int status = LS_OK;
    for (int p = 0; p < tensor->parts && !status; p++) {
        const struct ls_param *param = tensor->part[p];
        int64_t begin = ls_max(row, first), end = ls_min(row + rows, first + part_rows(param));
        if (begin < end && !d)
            status =
                ls_model_source_fill(ex->source, param, &ex->ops, (begin - first) * cols,
                                     (end - begin) * cols, values + (begin - row) * cols, error);
        for (int64_t r = begin, n; r < end && d && !status; r += n) {
            n = ls_min(d - (r - first) % d, end - r);
            status = head_read(ex, tensor, param, r - first, n, values + (r - row) * cols, error);
        }
        first += part_rows(param);
    }
    int64_t padding = ls_min(row + rows - first, rows);
    if (padding > 0)
        memset(values + (rows - padding) * cols, 0, (size_t)(padding * cols) * sizeof *values);
    return status;
}

/* Rows of a tensor that is stored by our columns. */
static int columns_read(struct exporting *ex, const struct out_tensor *tensor, int64_t row,
                        int64_t rows, float *values, struct ls_error *error)
{
    int64_t first = 0;
    int status = LS_OK;
    for (int p = 0; p < tensor->parts; p++) {
        struct ls_param part = *tensor->part[p]; /* those columns of it */
        int64_t ours = part_rows(&part);
        int64_t step = ls_max(ls_min(ours, ex->block / rows), 1);
        part.first_col = row;
        part.cols = rows;
        for (int64_t at = 0; at < ours && !status; at += step) {
            int64_t count = ls_min(step, ours - at);
            status = ls_model_source_fill(ex->source, &part, &ex->ops, at * rows, count * rows,
                                          ex->piece, error);
            for (int64_t r = 0; r < rows; r++)
                for (int64_t i = 0; i < count; i++)
                    values[r * tensor->cols + first + at + i] = ex->piece[i * rows + r];
        }
        first += ours;
    }
    return status;
}

/* Returns count, or the first value that the type has no finite number for. */
static int64_t half_round(struct exporting *ex, enum ls_dtype half, int64_t count,
                          const float *values, void *out)
{
    bool overflows = false;
    int64_t first = 0;
    for (int64_t i = 0; i < count; i++)
        overflows |= ls_half_overflows(half, values[i]);
    ls_cast_to_half(&ex->ops, half, count, values, out);
    while (overflows && !ls_half_overflows(half, values[first]))
        first++;
    return overflows ? first : count;
}

static int too_large(const struct out_tensor *tensor, int64_t row, int64_t col, float value,
                     struct ls_error *error)
{
    bool half = tensor->dtype == LS_F16;
    return ls_error_set(error, LS_EDATA,
                        "%s: row %lld, column %lld: %.9g is beyond the numbers of %s, which end "
                        "at %s; choose %s",
                        tensor->name, (long long)row, (long long)col, (double)value,
                        half ? "fp16" : "bf16", half ? "65504" : "3.39e38",
                        half ? "bf16 or fp32" : "fp32");
}

/* values [rows, cols] of the tensor as the file has them. */
static int block_convert(struct exporting *ex, const struct out_tensor *tensor, int64_t row,
                         int64_t rows, const float *values, void *out, struct ls_error *error)
{
    int64_t count = rows * tensor->cols;
    int64_t good = tensor->dtype == LS_I8 ? gguf_q8_quantize(count, values, out)
                                          : half_round(ex, tensor->dtype, count, values, out);
    int64_t col = good % tensor->cols;
    row += good / tensor->cols;
    if (good == count)
        return LS_OK;
    return tensor->dtype != LS_I8
               ? too_large(tensor, row, col, values[good], error)
               : ls_error_set(error, LS_EDATA,
                              "%s: row %lld, from column %lld on: int8 cannot represent a "
                              "weight that is not finite, or more than 8e6; choose bf16 or fp32",
                              tensor->name, (long long)row, (long long)col);
}

/* Rows [row, row + rows) of the tensor into a block of the pump. */
static int block_make(struct exporting *ex, const struct out_tensor *tensor, int64_t row,
                      int64_t rows, struct ls_error *error)
{
    void *out = pump_take(&ex->pump);
    float *values = tensor->dtype == LS_F32 ? out : ex->values;
    int status = tensor->transposed ? columns_read(ex, tensor, row, rows, values, error)
                                    : rows_read(ex, tensor, row, rows, values, error);
    if (status)
        return status;
    for (int64_t i = 0; i < rows * tensor->cols && tensor->added != 0; i++)
        values[i] += tensor->added;
    return tensor->dtype == LS_F32 ? LS_OK
                                   : block_convert(ex, tensor, row, rows, values, out, error);
}

int out_write(struct exporting *ex, const struct out_tensor *tensor, pump_write *put, void *user,
              struct ls_error *error)
{
    int64_t step = ls_max(ex->block / tensor->cols, 1);
    int64_t bytes = out_bytes(tensor) / tensor->rows; /* of a row */
    int status = LS_OK;
    LS_ASSERT(tensor->cols <= ex->block);
    for (int64_t row = 0; row < tensor->rows && !status; row += step) {
        int64_t rows = ls_min(step, tensor->rows - row);
        status = block_make(ex, tensor, row, rows, error);
        if (!status)
            status = pump_put(&ex->pump, put, user, (size_t)(rows * bytes), error);
        ls_progress();
    }
    ex->report.tensors++;
    ex->report.bytes += out_bytes(tensor);
    ls_meter("tensors", ex->report.tensors, ex->count);
    return status;
}

/* ---- files ----------------------------------------------------------------------------------- */

int out_append(void *user, const void *data, size_t bytes, struct ls_error *error)
{
    struct ls_atomic_file *file = user;
    int status = ls_atomic_file_write(file, data, bytes);
    return status ? ls_error_copy(error, status, &file->error) : LS_OK;
}

int out_single(struct exporting *ex, out_write_file *write, struct ls_error *error)
{
    struct ls_atomic_file file;
    int status = ls_atomic_file_open(&file, ex->export->out, ex->export->fault, error);
    if (status)
        return status;
    ls_atomic_file_hold(&file);
    ex->report.files = 1;
    status = write(ex, &file, error);
    if (!status)
        return ls_atomic_file_commit(&file, error);
    ls_atomic_file_abort(&file);
    return status;
}

int out_safetensors(struct exporting *ex, int64_t first, int64_t end, const char *path,
                    struct ls_error *error)
{
    size_t count = (size_t)(end - first);
    const struct out_tensor *tensors = ex->tensors + first;
    struct ls_tensor_entry *entries = calloc(count, sizeof *entries);
    const struct ls_tensor_entry **order = calloc(count, sizeof *order);
    struct ls_safetensors_writer *writer = NULL;
    int status = entries && order ? LS_OK : ls_no_memory(error, "for a list of tensors");
    if (status)
        goto release;
    for (size_t i = 0; i < count; i++) {
        entries[i] = (struct ls_tensor_entry){
            .name = tensors[i].name, .dtype = tensors[i].dtype, .dims = tensors[i].matrix ? 2 : 1};
        entries[i].shape[0] = tensors[i].rows;
        entries[i].shape[1] = tensors[i].matrix ? tensors[i].cols : 0;
    }
    ls_safetensors_order(entries, count, order);
    status = ls_safetensors_writer_open(&writer, path, entries, count, NULL, 0, ex->export->fault,
                                        error);
    for (size_t i = 0; i < count && !status; i++)
        status = out_write(ex, &tensors[order[i] - entries], pump_safetensors, writer, error);
    status = pump_drain(&ex->pump, status, error);
    if (!status)
        status = ls_safetensors_writer_commit(writer, error);
    else
        ls_safetensors_writer_abort(writer);
    ex->report.files++;
release:
    free(order);
    free(entries);
    return status;
}

int out_folder(struct exporting *ex, out_file *const *files, struct ls_error *error)
{
    struct staging staging;
    int status = staging_open(&staging, ex->export->out, ex->export->fault, error);
    for (out_file *const *file = files; *file && !status; file++)
        status = (*file)(ex, staging.temporary, error);
    if (!status)
        status = staging_commit(&staging, error);
    staging_close(&staging);
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* The adapters of a run, as it has them. */
static int adapters_open(struct exporting *ex, struct ls_error *error)
{
    const struct ls_config *config = run_adapted(ex->source);
    if (!config)
        return ls_error_set(error, LS_ECONFIG,
                            "%.300s: has no adapters: expected a run that was trained with "
                            "lora.rank",
                            ex->export->from);
    ex->config = *config;
    ex->source->apart = true;
    return LS_OK;
}

static int model_open(struct exporting *ex, struct ls_error *error)
{
    const struct ls_export *export = ex->export;
    int status =
        ls_model_source_choose(&ex->source, export->from, export->which, export->log, error);
    if (!status)
        status = export->format == LS_EXPORT_PEFT
                     ? adapters_open(ex, error)
                     : ls_model_source_alone(ex->source, NULL, 0, NULL, &ex->config, error);
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
    size_t bytes = (size_t)ex->block * sizeof *ex->values;
    ex->values = malloc(bytes);
    ex->piece = malloc(bytes);
    return ex->values && ex->piece ? pump_open(&ex->pump, bytes, error)
                                   : ls_no_memory(error, "to export a model");
}

int ls_export(const struct ls_export *export, struct ls_export_report *report,
              struct ls_error *error)
{
    struct exporting ex = {.export = export, .block = EXPORT_BLOCK};
    int status = LS_OK;
    if (export->dtype == LS_I8 && export->format != LS_EXPORT_GGUF)
        status = ls_error_set(error, LS_ECONFIG,
                              "int8: only a GGUF file has it; choose fp32, bf16 or fp16");
    if (!status)
        status = model_open(&ex, error);
    if (!status && export->format != LS_EXPORT_HF && export->format != LS_EXPORT_PEFT &&
        access(export->out, F_OK) == 0)
        status = ls_error_set(error, LS_ECONFIG, "%.300s: already exists: name another file",
                              export->out);
    if (!status)
        status = buffers_take(&ex, error);
    if (!status)
        status = ls_ops_init(&ex.ops, 1, ls_isa_best(), error);
    if (!status) {
        status = export->format == LS_EXPORT_HF     ? export_hf(&ex, error)
                 : export->format == LS_EXPORT_PEFT ? export_peft(&ex, error)
                 : export->format == LS_EXPORT_LLMC ? export_llmc(&ex, error)
                                                    : export_gguf(&ex, error);
        ls_ops_release(&ex.ops);
        ls_model_source_tell(ex.source, export->log);
    }
    *report = ex.report;
    ls_model_source_close(ex.source);
    free(ex.tensors);
    pump_close(&ex.pump);
    free(ex.values);
    free(ex.piece);
    return status;
}
