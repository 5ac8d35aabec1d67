/* A contraction over the rows of some of a stack's matrices: of each, one section. */
#include "nn/model.h"

struct sections sections_of(const struct ls_model *model, const struct bound_step *s, int first,
                            int end)
{
    struct sections sections = {0};
    int64_t at = 0;
    for (int i = 0; i < end; i++) {
        const struct ls_param *w = &s->weight[i];
        int64_t sharers = w->rows * model->tp.size / w->global_rows, own = w->rows / sharers;
        if (i == first)
            sections.begin = at;
        if (i >= first) {
            int k = sections.count++;
            LS_ASSERT(k < LS_GEMM_SECTIONS_MAX);
            sections.width[k] = own;
            sections.first[k] = at + model->tp.rank % sharers * own;
            sections.own += own;
            sections.shared |= sharers > 1;
        }
        at += w->rows;
    }
    return sections;
}

struct packed packed_take(const struct ls_model *model, struct ls_arena *arena,
                          const struct sections *sections, int64_t cols)
{
    if (!sections->shared)
        return (struct packed){0};
    return (struct packed){model_take(model, arena, model->rows_max, sections->own),
                           model_take(model, arena, sections->own, cols)};
}

static void pack(const struct layer_run *run, const struct sections *sections,
                 const struct packed *to, const struct ls_gemm *gemm)
{
    size_t element = model_act_bytes(run->model);
    size_t row =
        gemm->b_blocks ? ls_blocks_row_bytes(gemm->b_blocks, gemm->n) : (size_t)gemm->n * element;
    char *dy = to->dy, *weight = to->weight;
    for (int i = 0; i < sections->count; i++) {
        size_t width = (size_t)sections->width[i] * element;
        int64_t first = sections->first[i];
        ls_copy(run->ops, (size_t)sections->width[i] * row,
                (const char *)gemm->b + (size_t)(first - sections->begin) * row, weight);
        ls_copy_rows(run->ops, run->rows->all, width,
                     (const char *)gemm->a + (size_t)first * element, (size_t)gemm->lda * element,
                     dy, (size_t)sections->own * element);
        weight += (size_t)sections->width[i] * row;
        dy += width;
    }
}

void sections_contract(const struct layer_run *run, const struct sections *sections,
                       const struct packed *packed, struct ls_gemm *gemm)
{
    gemm->sections = sections->count;
    for (int i = 0; i < sections->count; i++)
        gemm->k[i] = sections->width[i];
    if (sections->shared) {
        pack(run, sections, packed, gemm);
        gemm->a = packed->dy;
        gemm->b = packed->weight;
        gemm->lda = sections->own;
    } else {
        gemm->a = (const char *)gemm->a + (size_t)sections->begin * model_act_bytes(run->model);
    }
}
