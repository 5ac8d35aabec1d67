/* RMSNorm of each head of q and of k alone (Dehghani et al. 2023), by weights that all heads share
 * and that may be kept as their distance from one; v goes on as it is. The gradients of the weights
 * are sums over heads, which tensor parallel cuts: over each unit of tokens they are made in tiles
 * of heads, and added over tiles by the tree (S2). in: qkv; out: the same normalised, rstd. weight:
 * q's, bias: k's. */
#include "nn/model.h"

/* The heads of q or of k that this rank holds, and their tiles. */
struct group {
    const struct ls_param *weight;
    int64_t at, heads, first; /* elements of a row before them; heads of the row before them */
    int64_t tiles, own_tiles, first_tile; /* of all ranks, of this one */
    int64_t sums;                         /* where the tiles' begin in a unit's */
    bool counts; /* of those that hold the same key heads, the first brings their sums */
};

/* One tile a rank where the order of sums is free. */
static int64_t tiles_of(const struct ls_model *model, int64_t heads)
{
    return ls_min(model->numerics.fast ? model->tp.size : model->numerics.tp_tiles, heads);
}

static struct group queries_of(const struct ls_model *model, const struct bound_step *s)
{
    const struct ls_model_config *c = &model->config;
    int64_t tiles = tiles_of(model, c->heads), own = tiles / model->tp.size;
    return (struct group){.weight = s->weight,
                          .heads = model->heads,
                          .tiles = tiles,
                          .own_tiles = own,
                          .first_tile = model->tp.rank * own,
                          .counts = true};
}

static struct group keys_of(const struct ls_model *model, const struct bound_step *s)
{
    const struct ls_model_config *c = &model->config;
    int64_t tiles = tiles_of(model, c->kv_heads), own = tiles * model->kv_heads / c->kv_heads;
    return (struct group){.weight = s->bias,
                          .at = size_held(model, SIZE_QUERY),
                          .heads = model->kv_heads,
                          .first = model->heads,
                          .tiles = tiles,
                          .own_tiles = own,
                          .first_tile = model->tp.rank / model->tp.sharers * own,
                          .sums = tiles_of(model, c->heads) * c->head_dim,
                          .counts = model->tp.rank % model->tp.sharers == 0};
}

/* What a unit's sums take, of all tiles. */
static int64_t sums_width(const struct ls_model *model)
{
    const struct ls_model_config *c = &model->config;
    return (tiles_of(model, c->heads) + tiles_of(model, c->kv_heads)) * c->head_dim;
}

static struct ls_norm norm_of(const struct layer_run *run, const struct bound_step *s,
                              const struct group *group)
{
    const struct ls_model *model = run->model;
    return (struct ls_norm){.rows = run->rows->all * group->heads,
                            .channels = model->config.head_dim,
                            .act = model->numerics.act,
                            .epsilon = model->config.norm_epsilon,
                            .weight = model_vector(model, group->weight),
                            .rstd = (float *)run_out(run, s, 1) + group->first,
                            .heads = group->heads,
                            .ld = size_held(model, SIZE_QKV),
                            .statistics_ld = size_held(model, SIZE_QK_HEADS),
                            .plus_one = s->step->kind == &step_headnorm_plus_one};
}

/* ---- forward --------------------------------------------------------------------------------- */

static int headnorm_forward(const struct layer_run *run, const struct bound_step *s)
{
    const struct ls_model *model = run->model;
    size_t element = model_act_bytes(model), ld = (size_t)size_held(model, SIZE_QKV) * element;
    size_t values = (size_t)size_held(model, SIZE_KV) * element;
    const struct group groups[] = {queries_of(model, s), keys_of(model, s)};
    const char *x = run_in(run, s, 0);
    char *y = run_out(run, s, 0);
    for (int i = 0; i < 2; i++) {
        struct ls_norm norm = norm_of(run, s, &groups[i]);
        size_t at = (size_t)groups[i].at * element;
        ls_rmsnorm_forward(run->ops, &norm, x + at, NULL, NULL, y + at);
    }
    ls_copy_rows(run->ops, run->rows->all, values, x + ld - values, ld, y + ld - values, ld);
    return LS_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

static size_t headnorm_own(const struct ls_model *model, const struct bound_step *s)
{
    return s->trains ? vectors_bytes(model, sums_width(model)) : 0;
}

/* The sums of the weights too, before the gradient takes the place of what it comes from. */
static int headnorm_input(const struct layer_run *run, const struct bound_step *s)
{
    const struct ls_model *model = run->model;
    size_t element = model_act_bytes(model);
    int64_t units = vectors_units(model, run->rows), width = sums_width(model);
    const struct group groups[] = {queries_of(model, s), keys_of(model, s)};
    const char *x = run_in(run, s, 0);
    char *d = run_dx(run, s);
    float *sums = run_own(run, s);
    LS_ASSERT(d == run_dy(run, s));
    if (sums)
        ls_fill_zero(run->ops, (size_t)(units * width) * sizeof *sums, sums);
    for (int i = 0; i < 2; i++) {
        const struct group *group = &groups[i];
        struct ls_norm norm = norm_of(run, s, group);
        size_t at = (size_t)group->at * element;
        int64_t first = group->sums + group->first_tile * norm.channels;
        const struct ls_norm_parts parts = {.units = units,
                                            .tokens = run->rows->all / units,
                                            .tiles = group->own_tiles,
                                            .sums_ld = width,
                                            .sums = sums ? sums + first : NULL};
        if (group->counts && sums)
            ls_rmsnorm_heads_weight(run->ops, &norm, x + at, d + at, &parts);
        ls_rmsnorm_backward_input(run->ops, &norm, x + at, d + at, NULL, d + at);
    }
    return LS_OK;
}

/* Tiles that other ranks have are zero here: no sum that starts from zero is ever -0, so adding
 * them changes nothing. */
static int weights_add(const struct layer_run *run, const struct bound_step *s)
{
    struct ls_model *model = run->model;
    int64_t units = vectors_units(model, run->rows), width = sums_width(model), stride;
    const struct group groups[] = {queries_of(model, s), keys_of(model, s)};
    float *sums = run_own(run, s);
    int status = LS_OK;
    model_label(model, s->weight);
    if (model->tp.size > 1)
        status = ls_all_reduce_start(model->tp.comm, sums, units * width, LS_QUEUED, LS_HERE,
                                     run->error);
    if (status)
        return status;
    for (int64_t unit = 0; unit < units; unit++)
        for (int i = 0; i < 2; i++)
            parts_tree(run->ops, sums + unit * width + groups[i].sums, groups[i].tiles,
                       model->config.head_dim);
    int64_t count = vectors_add(run, sums, width, &stride);
    for (int i = 0; i < 2; i++)
        vector_deliver(run, groups[i].weight, sums + groups[i].sums, count, stride);
    return LS_OK;
}

static int headnorm_weights(const struct layer_run *run, const struct bound_step *const *steps,
                            int count)
{
    int status = LS_OK;
    for (int i = 0; i < count && !status; i++)
        status = weights_add(run, steps[i]);
    return status;
}

#define HEADNORM_KIND(said)                                                                        \
    {                                                                                              \
        .name = said, .ins = 1, .outs = 2, .input_reads = READS_IN0 | READS_OUT1,                  \
        .flow = FLOW_IN_PLACE, .forward = headnorm_forward, .input = headnorm_input,               \
        .weights = headnorm_weights, .own = headnorm_own,                                          \
    }
const struct step_kind step_headnorm = HEADNORM_KIND("norm of heads");
const struct step_kind step_headnorm_plus_one = HEADNORM_KIND("norm of heads by 1 + weight");
