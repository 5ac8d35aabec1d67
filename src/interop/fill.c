/* Values of a parameter, of its part, from where a source has them. */
#include "interop/bitsandbytes.h"

#include <string.h>

/* Elements at, at + 1, ... of the source as float32. */
static int values_read(const struct source_view *view, int64_t at, int64_t count, float *values,
                       struct ls_error *error)
{
    enum { PIECE = 16 << 10 };
    ls_half piece[PIECE];
    int status = LS_OK;
    if (view->stored)
        return ls_checkpoint_read(view->checkpoint, view->stored, at, count, values, error);
    if (view->nf4.codes)
        return bnb_read(view->file, &view->nf4, at, count, values, error);
    if (view->dtype == LS_F32)
        return ls_stored_file_read(view->file, view->at + 4 * at, 4 * count, values, error);
    for (int64_t done = 0; done < count && !status; done += PIECE) {
        int64_t n = ls_min(PIECE, count - done);
        status = ls_stored_file_read(view->file, view->at + 2 * (at + done), 2 * n, piece, error);
        if (!status && view->dtype == LS_BF16)
            for (int64_t i = 0; i < n; i++)
                values[done + i] = ls_bf16_to_f32(piece[i]);
        else if (!status)
            for (int64_t i = 0; i < n; i++)
                values[done + i] = ls_f16_to_f32(piece[i]);
    }
    return status;
}

/* Columns [col, col + count) of `rows` rows of `all` columns each, as the source has them. Short
 * rows are read together with what is between them: that costs less than a call for each. */
static int rows_read(const struct source_view *view, int64_t row, int64_t rows, int64_t all,
                     int64_t col, int64_t count, float *values, struct ls_error *error)
{
    enum { SHORT = 2 << 10, TOGETHER = 16 << 10 };
    float room[TOGETHER];
    int status = LS_OK;
    if (count == all)
        return values_read(view, row * all, rows * all, values, error);
    if (all > SHORT) {
        for (int64_t r = 0; r < rows && !status; r++)
            status = values_read(view, (row + r) * all + col, count, values + r * count, error);
        return status;
    }
    for (int64_t done = 0, n; done < rows && !status; done += n) {
        n = ls_min(rows - done, TOGETHER / all);
        status = values_read(view, (row + done) * all, n * all, room, error);
        for (int64_t r = 0; r < n && !status; r++)
            memcpy(values + (done + r) * count, room + r * all + col,
                   (size_t)count * sizeof *values);
    }
    return status;
}

/* Rows [row, row + rows) and columns [col, col + cols) of a parameter; the first goes to values,
 * the next one `stride` values behind it. */
struct box {
    int64_t row, rows, col, cols, stride;
    float *values;
};

enum { COLUMNS = 16, COLUMN_ROWS = 1024 };

/* Of a matrix that is stored by columns; at most so large. */
static int columns_read(const struct source_view *view, const struct box *box,
                        struct ls_error *error)
{
    float room[COLUMNS * COLUMN_ROWS];
    int status = rows_read(view, box->col, box->cols, view->rows, view->first + box->row, box->rows,
                           room, error);
    for (int64_t r = 0; r < box->rows && !status; r++)
        for (int64_t c = 0; c < box->cols; c++)
            box->values[r * box->stride + c] = room[c * box->rows + r];
    return status;
}

static int box_read(const struct source_view *view, const struct box *box, struct ls_error *error)
{
    return view->transposed ? columns_read(view, box, error)
                            : rows_read(view, view->first + box->row, box->rows, view->cols,
                                        box->col, box->cols, box->values, error);
}

/* In tiles of rows, or of part of a few columns: neither the file's runs nor ours are short. */
static int tiles_read(const struct source_view *view, struct ls_ops *ops, const struct box *box,
                      struct ls_error *error)
{
    int64_t rows = view->transposed ? COLUMN_ROWS : 64;
    int64_t cols = view->transposed ? COLUMNS : box->cols;
    int64_t across = ls_ceil_div(box->cols, cols), tiles = ls_ceil_div(box->rows, rows) * across;
    int64_t first = tiles; /* of those that failed */
    int status = LS_OK;
#pragma omp parallel for num_threads(ls_ops_team(ops, box->rows * box->cols)) schedule(static)
    for (int64_t i = 0; i < tiles; i++) {
        struct ls_error why = {0};
        int64_t row = i / across * rows, col = i % across * cols;
        const struct box tile = {.row = box->row + row,
                                 .rows = ls_min(rows, box->rows - row),
                                 .col = box->col + col,
                                 .cols = ls_min(cols, box->cols - col),
                                 .stride = box->stride,
                                 .values = box->values + row * box->stride + col};
        int failed = box_read(view, &tile, &why);
#pragma omp critical
        if (failed && i < first) {
            first = i;
            status = ls_error_copy(error, failed, &why);
        }
    }
    return status;
}

/* The same where rows that are not trained are zero. */
static int live_read(const struct source_view *view, const struct ls_param *param,
                     struct ls_ops *ops, struct box box, struct ls_error *error)
{
    int64_t live = ls_max(ls_min(box.rows, param->live_rows - box.row), 0);
    memset(box.values + live * box.stride, 0,
           (size_t)((box.rows - live) * box.cols) * sizeof *box.values);
    box.rows = live;
    return live ? tiles_read(view, ops, &box, error) : LS_OK;
}

int interop_fill(const struct source_view *view, const struct ls_param *param, struct ls_ops *ops,
                 int64_t first, int64_t count, float *values, struct ls_error *error)
{
    int64_t cols = param->cols, end = first + count;
    int status = LS_OK;
    if (ops->idle)
        return LS_OK;
    if (!param->matrix)
        return values_read(view, view->first + param->first_col + first, count, values, error);
    while (first < end && !status) { /* the end of a row, whole rows, the beginning of one */
        int64_t in = first % cols, left = end - first;
        bool whole = in == 0 && left >= cols;
        struct box box = {.row = param->first_row + first / cols,
                          .rows = whole ? left / cols : 1,
                          .col = param->first_col + in,
                          .cols = whole ? cols : ls_min(cols - in, left),
                          .values = values};
        box.stride = box.cols;
        status = live_read(view, param, ops, box, error);
        first += box.rows * box.cols;
        values += box.rows * box.cols;
    }
    return status;
}
