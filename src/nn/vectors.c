/* Gradients of vectors whose sums ranks cut: each unit of tokens (a tile of a sequence) has a
 * vector of its own until all ranks' parts are in it; then units are added in the order of token
 * sums. */
#include "nn/model.h"

int64_t vectors_units(const struct ls_model *model, const struct rows *rows)
{
    return model->numerics.fast ? 1 : rows->leaves * rows->sequences * rows->tiles;
}

size_t vectors_bytes(const struct ls_model *model, int64_t width)
{
    const struct rows rows = rows_most(model);
    return (size_t)(vectors_units(model, &rows) * width) * sizeof(float);
}

int64_t vectors_add(const struct layer_run *run, float *vectors, int64_t width, int64_t *stride)
{
    const struct rows *rows = run->rows;
    int64_t sequence = rows->tiles * width, sequences = rows->leaves * rows->sequences;
    *stride = sequence;
    if (run->model->numerics.fast)
        return 1;
    for (int64_t i = 0; i < sequences; i++)
        parts_tree(run->ops, vectors + i * sequence, rows->tiles, width);
    if (run->gradient->onto == LS_ONTO_CHAIN)
        return sequences;
    for (int64_t i = 0; i < sequences; i++)
        if (i % rows->sequences)
            ls_tree_add(run->ops, width, vectors + i / rows->sequences * rows->sequences * sequence,
                        vectors + i * sequence);
    *stride = rows->sequences * sequence;
    return rows->leaves;
}

void vector_deliver(const struct layer_run *run, const struct ls_param *param, const float *from,
                    int64_t count, int64_t stride)
{
    float *to = run_gradient(run, param);
    bool onto = run->gradient->onto != LS_ONTO_NOTHING;
    if (!onto)
        ls_copy(run->ops, (size_t)param->cols * sizeof *to, from, to);
    for (int64_t i = !onto; i < count; i++)
        ls_tree_add(run->ops, param->cols, to, from + i * stride);
}
