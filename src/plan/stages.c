/* Which layers a pipeline rank holds, and what its schedule asks for. */
#include "plan.h"

#include <stdlib.h>

const char *ls_layout_schedule_name(enum ls_layout_schedule schedule)
{
    static const char *const names[] = {
        [LS_LAYOUT_GPIPE] = "gpipe",
        [LS_LAYOUT_1F1B] = "1f1b",
        [LS_LAYOUT_INTERLEAVED] = "interleaved",
        [LS_LAYOUT_ZB_H1] = "zb-h1",
        [LS_LAYOUT_ZBV] = "zbv",
        [LS_LAYOUT_DUALPIPEV] = "dualpipev",
        [LS_LAYOUT_CSV] = "csv",
    };
    return names[schedule];
}

bool ls_layout_schedule_is_v(enum ls_layout_schedule schedule)
{
    return schedule == LS_LAYOUT_ZBV || schedule == LS_LAYOUT_DUALPIPEV;
}

double ls_layer_cost(const struct ls_model_config *m, int64_t layer, int64_t tokens)
{
    double channels = (double)m->channels;
    if (layer == 0)
        return 2 * channels;
    if (layer == m->layers + 1)
        return 6 * channels * (double)m->vocab_padded;
    double q = (double)(m->heads * m->head_dim), kv = (double)(m->kv_heads * m->head_dim);
    double mlp = (double)m->ffn * (m->act == LS_ACT_SWIGLU ? 3 : 2);
    return 6 * channels * (2 * q + 2 * kv + mlp) + 12 * q * (double)tokens;
}

/* ---- chunks ------------------------------------------------------------------------------------
 */

static int check_chunks(const struct ls_layout_keys *keys, struct ls_layout *layout,
                        struct ls_error *error)
{
    bool v = ls_layout_schedule_is_v(layout->schedule);
    bool many = layout->schedule == LS_LAYOUT_INTERLEAVED || layout->schedule == LS_LAYOUT_CSV;
    layout->chunks = keys->chunks                                     ? keys->chunks
                     : v || layout->schedule == LS_LAYOUT_INTERLEAVED ? 2
                                                                      : 1;
    if (v && layout->chunks != 2)
        return plan_refuse(error, "parallel.chunks", keys->chunks,
                           "parallel.schedule = %s gives each pipeline rank 2 chunks",
                           ls_layout_schedule_name(layout->schedule));
    if (!v && !many && layout->chunks != 1)
        return plan_refuse(error, "parallel.chunks", keys->chunks,
                           "parallel.schedule = %s gives each pipeline rank 1 chunk: interleaved "
                           "takes any number",
                           ls_layout_schedule_name(layout->schedule));
    return LS_OK;
}

int plan_schedule_takes(const struct ls_layout *layout, int64_t micro_batches,
                        struct ls_error *error)
{
    int64_t pp = layout->size[LS_AXIS_PP];
    const char *name = ls_layout_schedule_name(layout->schedule);
    if (layout->schedule == LS_LAYOUT_INTERLEAVED && layout->chunks > 1 && micro_batches % pp)
        return plan_refuse(error, "parallel.pp", pp,
                           "parallel.schedule = %s takes a multiple of parallel.pp micro-batches, "
                           "and a step has %ld",
                           name, (long)micro_batches);
    if (layout->schedule == LS_LAYOUT_DUALPIPEV && pp > 1 && micro_batches < 2 * pp)
        return plan_refuse(
            error, "parallel.pp", pp,
            "parallel.schedule = %s takes at least %ld micro-batches, and a step has "
            "%ld",
            name, (long)(2 * pp), (long)micro_batches);
    return LS_OK;
}

/* ---- layers of stages ---------------------------------------------------------------------------
 */

/* Stages filled from the left as long as none exceeds limit and a layer is left for each that
 * follows. True where all layers found a place. */
static bool fill(const double *cost, int64_t layers, int64_t stages, double limit, int *first)
{
    int64_t at = 0;
    for (int64_t s = 0; s < stages; s++) {
        double sum = cost[at];
        first[s] = (int)at++;
        while (at < layers - (stages - 1 - s) && sum + cost[at] <= limit)
            sum += cost[at++];
        if (sum > limit)
            return false;
    }
    first[stages] = (int)at;
    return at == layers;
}

/* The split whose largest stage is least. The limit is bisected to where the next smaller double
 * fails, so the answer does not depend on where the search began. */
static void balance(struct ls_layout *layout)
{
    int64_t layers = layout->model.layers + 2;
    double cost[LS_LAYOUT_LAYERS_MAX + 2], low = 0, high = 0;
    for (int64_t l = 0; l < layers; l++)
        high += cost[l] = ls_layer_cost(&layout->model, l, layout->sequence);
    for (int i = 0; i < 64; i++) {
        double middle = low + (high - low) / 2;
        if (fill(cost, layers, layout->stages, middle, layout->stage_first))
            high = middle;
        else
            low = middle;
    }
    bool filled = fill(cost, layers, layout->stages, high, layout->stage_first);
    LS_ASSERT(filled);
}

/* "0-5,6,7-13": every layer once, in order, one item a stage. */
static int split_manual(const char *text, struct ls_layout *layout, struct ls_error *error)
{
    int64_t layers = layout->model.layers + 2, next = 0, stage = 0;
    for (const char *p = text;; stage++) {
        char *end;
        long first = strtol(p, &end, 10), last = first;
        bool good = end != p && *p >= '0' && *p <= '9';
        if (good && *end == '-') {
            p = end + 1;
            last = strtol(p, &end, 10);
            good = end != p && *p >= '0' && *p <= '9';
        }
        if (!good || (*end && *end != ','))
            return ls_error_set(error, LS_ELAYOUT,
                                "parallel.split = %.200s: expected layers of each stage, such as "
                                "0-5,6-%ld",
                                text, (long)(layers - 1));
        if (first != next || last < first || last >= layers || stage >= layout->stages)
            return ls_error_set(error, LS_ELAYOUT,
                                "parallel.split = %.200s: item %ld is %ld-%ld: expected %ld stages "
                                "that cover layers 0 (embedding) to %ld (head) in order, each once",
                                text, (long)stage + 1, first, last, (long)layout->stages,
                                (long)(layers - 1));
        layout->stage_first[stage] = (int)first;
        next = last + 1;
        if (!*end)
            break;
        p = end + 1;
    }
    if (next != layers || stage + 1 != layout->stages)
        return ls_error_set(error, LS_ELAYOUT,
                            "parallel.split = %.200s: it has %ld stages up to layer %ld: expected "
                            "%ld stages up to layer %ld (the head)",
                            text, (long)stage + 1, (long)next - 1, (long)layout->stages,
                            (long)(layers - 1));
    layout->stage_first[layout->stages] = (int)layers;
    return LS_OK;
}

int plan_stages(const struct ls_layout_keys *keys, struct ls_layout *layout, struct ls_error *error)
{
    int status = check_chunks(keys, layout, error);
    if (status)
        return status;
    int64_t pp = layout->size[LS_AXIS_PP], layers = layout->model.layers + 2;
    layout->stages = pp * layout->chunks;
    if (layout->stages > layers)
        return plan_refuse(
            error, "parallel.pp", pp,
            "%ld stages (%ld chunks a rank) need a layer each, and the model has %ld: "
            "embedding, %ld blocks and head",
            (long)layout->stages, (long)layout->chunks, (long)layers, (long)layout->model.layers);
    if (*keys->split)
        return split_manual(keys->split, layout, error);
    balance(layout);
    return LS_OK;
}
