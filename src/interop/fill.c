/* Values of a parameter, of its part, from where a source has them. */
#include "interop/bitsandbytes.h"

#include <string.h>

/* Elements at, at + 1, ... of the source as float32. */
static void values_read(const struct source_view *view, int64_t at, int64_t count, float *values)
{
    if (view->stored) {
        int status = ls_checkpoint_read(view->checkpoint, view->stored, at, count, values, NULL);
        LS_ASSERT(status == LS_OK);
        return;
    }
    if (view->nf4.codes) {
        bnb_read(&view->nf4, at, count, values);
        return;
    }
    const char *from = (const char *)view->data + (size_t)at * ls_dtype_bytes(view->dtype);
    if (view->dtype == LS_F32) {
        memcpy(values, from, (size_t)count * sizeof *values);
        return;
    }
    enum { PIECE = 512 };
    ls_half piece[PIECE]; /* a file need not be aligned */
    for (int64_t done = 0; done < count; done += PIECE) {
        int64_t n = ls_min(PIECE, count - done);
        memcpy(piece, from + (size_t)done * sizeof *piece, (size_t)n * sizeof *piece);
        if (view->dtype == LS_BF16)
            for (int64_t i = 0; i < n; i++)
                values[done + i] = ls_bf16_to_f32(piece[i]);
        else
            for (int64_t i = 0; i < n; i++)
                values[done + i] = ls_f16_to_f32(piece[i]);
    }
}

/* Columns [col, col + count) of `rows` rows, row after row in values, of a matrix that is stored by
 * columns: a few rows at once, so that what one column has of them is read together. */
enum { TOGETHER = 64 };
static void columns_read(const struct source_view *view, int64_t row, int64_t rows, int64_t col,
                         int64_t count, float *values)
{
    float piece[TOGETHER];
    for (int64_t c = 0; c < count; c++) {
        values_read(view, (col + c) * view->rows + view->first + row, rows, piece);
        for (int64_t r = 0; r < rows; r++)
            values[r * count + c] = piece[r];
    }
}

/* A piece of `rows` whole rows of the part, or of a part of one row: rows from row, columns [col,
 * col + count) of the whole parameter. What is not trained is zero. */
static void rows_read(const struct source_view *view, const struct ls_param *param, int64_t row,
                      int64_t rows, int64_t col, int64_t count, float *values)
{
    int64_t live = ls_max(ls_min(rows, param->live_rows - row), 0);
    bool vector = !param->matrix;
    if (vector)
        values_read(view, view->first + col, count, values);
    else if (view->transposed)
        columns_read(view, row, live, col, count, values);
    else
        for (int64_t r = 0; r < live; r++)
            values_read(view, (view->first + row + r) * view->cols + col, count,
                        values + r * count);
    if (!vector && live < rows)
        memset(values + live * count, 0, (size_t)((rows - live) * count) * sizeof *values);
}

void interop_fill(const struct source_view *view, const struct ls_param *param, struct ls_ops *ops,
                  int64_t first, int64_t count, float *values)
{
    if (ops->idle || count == 0)
        return;
    int64_t end = first + count, cols = param->cols;
    int64_t from = first / cols / TOGETHER, blocks = (end - 1) / cols / TOGETHER - from + 1;
#pragma omp parallel for num_threads(ls_ops_team(ops, count)) schedule(static)
    for (int64_t b = 0; b < blocks; b++)
        for (int64_t row = (from + b) * TOGETHER, last = row + TOGETHER; row < last;) {
            int64_t begin = ls_max(row * cols, first), stop = ls_min(last * cols, end);
            int64_t at = begin / cols, in = begin % cols, rows = 1;
            int64_t columns = ls_min(cols - in, stop - begin);
            if (begin >= stop)
                break;
            if (in == 0 && stop - begin >= cols)
                rows = (stop - begin) / cols;
            rows_read(view, param, param->first_row + at, rows, param->first_col + in, columns,
                      values + (begin - first));
            row = at + rows;
            if (in + columns < cols || begin + rows * columns >= stop)
                break;
        }
}
