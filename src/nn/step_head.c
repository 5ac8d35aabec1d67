/* Head and loss. In training the forward makes the gradients at once, group of units by group of
 * units, because logits are too large to keep: a group's logits become their own gradient in place,
 * which gives the rows' input gradient and the group's part of the weight gradient. A unit is a
 * tile of a sequence; a group is some leaves, or some units of one leaf (S3, S4). The vocabulary is
 * cut over tp: nobody has whole rows of logits. A frozen table has no weight gradient. in: the
 * final norm's output. */
#include "nn/model.h"

/* ---- buffers --------------------------------------------------------------------------------- */

enum { PARTIALS_MAX = __builtin_ctz(LS_SEQ_TILES_MAX) };
struct head_buffers {
    struct exchange gather, reduce;
    void *logits;      /* [group_units * unit rows, V] */
    float *max, *sums; /* [group rows], [3, group rows]: of exponentials, targets, products */
    float *partial[PARTIALS_MAX]; /* [V, C] each: subtrees of the weight gradient */
    int partials;
};

static int64_t unit_rows(const struct ls_model *model)
{
    return model->options.tokens / model->numerics.seq_tiles;
}

/* Tiles of a sequence, here. */
static int64_t tiles_of(const struct ls_model *model)
{
    return model->numerics.seq_tiles / model->cp.size;
}

/* Units whose logits fit: whole leaves; or of a leaf sequences, where those have one tile; or a
 * power of two of tiles. */
static int64_t group_of(const struct ls_model *model, const struct ls_param *weight)
{
    int64_t given = model->options.logits_bytes, sequences = model->options.sequences;
    int64_t leaf = ls_min(sequences, model->numerics.leaf_sequences) * tiles_of(model), group = 1;
    double most = given > 0 ? (double)given : (double)LS_LOGITS_BYTES;
    double unit_bytes =
        (double)unit_rows(model) * (double)weight->rows * (double)model_act_bytes(model);
    int64_t fit =
        (int64_t)ls_max(1, ls_min((int64_t)(most / unit_bytes), sequences * tiles_of(model)));
    if (fit >= leaf)
        return fit / leaf * leaf;
    if (tiles_of(model) == 1)
        return fit;
    while (2 * group <= fit)
        group *= 2;
    return group;
}

/* Where a leaf is more than a group it may need a place to be whole in before it is added, and each
 * level of the tree over its tiles but the two lowest another. */
static void partials_take(const struct ls_model *model, const struct ls_param *weight,
                          struct ls_arena *arena, struct head_buffers *b)
{
    int64_t group = group_of(model, weight), tiles = tiles_of(model),
            sequences = model->options.sequences;
    size_t bytes = (size_t)(weight->rows * model->config.channels) * sizeof(float);
    int64_t leaf = ls_min(sequences, model->numerics.leaf_sequences) * tiles;
    bool adds = model->options.adding || sequences > model->numerics.leaf_sequences;
    if (model->numerics.fast || group >= leaf || weight->gradient.region < 0)
        return;
    int64_t levels = adds;
    for (int64_t span = 2 * group; span < tiles; span *= 2)
        levels++;
    LS_ASSERT(levels <= PARTIALS_MAX);
    while (b->partials < levels)
        b->partial[b->partials++] = ls_arena_take(arena, bytes);
}

static struct head_buffers buffers_take(const struct ls_model *model, const struct bound_step *s,
                                        struct ls_arena *arena)
{
    int64_t rows = group_of(model, s->weight) * unit_rows(model);
    struct head_buffers b = {.gather = exchange_gather(model, arena),
                             .logits = model_take(model, arena, rows, s->weight->rows)};
    b.max = ls_arena_take(arena, (size_t)rows * sizeof(float));
    b.sums = ls_arena_take(arena, (size_t)(3 * rows) * sizeof(float));
    if (!model->options.training)
        return b;
    b.reduce = exchange_reduce(model, arena);
    partials_take(model, s->weight, arena, &b);
    return b;
}

static void head_work(const struct ls_model *model, const struct bound_step *s, enum phase phase,
                      struct ls_arena *arena)
{
    if (phase == PHASE_FORWARD)
        buffers_take(model, s, arena);
}

/* Losses are read after the forward. */
static void head_constants(struct ls_model *model, struct ls_arena *arena,
                           const struct bound_step *s)
{
    struct head_losses *losses = &model->losses;
    losses->rows = ls_arena_take(arena, (size_t)model->rows_max * sizeof(float));
    losses->sequences = ls_arena_take(arena, (size_t)model->options.sequences * sizeof(float));
    losses->entropies = ls_arena_take(arena, (size_t)model->rows_max * sizeof(float));
    losses->group_units = group_of(model, s->weight);
    if (!model->options.training)
        losses->likeliest = ls_arena_take(arena, (size_t)model->rows_max * sizeof(float));
}

/* ---- groups of units ------------------------------------------------------------------------- */

/* What the walk over groups of units needs. */
struct walk {
    const struct layer_run *run;
    const struct ls_param *weight;
    struct head_buffers buffers;
    const char *a; /* [M, C] */
    char *d_a;     /* where the input gradient of all rows goes: d_a, or partial sums of it */
    bool partial_sums, training;
};

/* What logits, after the cap, are multiplied by. */
static float logit_scale(const struct layer_run *run)
{
    float temperature = run->batch->temperature;
    return temperature > 0 ? 1 / temperature : 1;
}

/* The derivative of scale * cap * tanh(x / cap) is scale * that of a cap of scale * cap. */
static struct ls_cross_entropy loss_of(const struct walk *walk, int64_t first_row, int64_t rows)
{
    const struct ls_model *model = walk->run->model;
    const struct ls_micro_batch *batch = walk->run->batch;
    const float *weights = batch->weights, *entropies = batch->entropy_weights;
    float scale = logit_scale(walk->run);
    return (struct ls_cross_entropy){.rows = rows,
                                     .vocabulary = model->config.vocab,
                                     .padded = walk->weight->rows,
                                     .tiles = model->tiles,
                                     .act = model->numerics.act,
                                     .scale = walk->training ? batch->gradient_scale * scale : 0,
                                     .first = walk->weight->first_row,
                                     .softcap = model->config.logit_softcap * scale,
                                     .weight = weights ? weights + first_row : NULL,
                                     .entropy_weight = entropies ? entropies + first_row : NULL,
                                     .product = entropies ? walk->buffers.sums + 2 * rows : NULL};
}

/* The largest logit of each row, over all ranks' parts of the vocabulary. */
static int group_max(struct walk *walk, const struct ls_cross_entropy *op)
{
    const struct layer_run *run = walk->run;
    struct head_buffers *b = &walk->buffers;
    ls_cross_entropy_max(run->ops, op, b->logits, b->max);
    return run->model->tp.size == 1
               ? LS_OK
               : ls_all_reduce_max_f32_start(run->model->tp.comm, b->max, op->rows, LS_QUEUED,
                                             LS_HERE, run->error);
}

/* And the first token that has it: a smaller number is a larger negative one. */
static int group_likeliest(struct walk *walk, int64_t first_row, int64_t rows)
{
    const struct layer_run *run = walk->run;
    const struct ls_model *model = run->model;
    struct head_buffers *b = &walk->buffers;
    struct ls_cross_entropy op = loss_of(walk, first_row, rows);
    float *likeliest = model->losses.likeliest + first_row;
    LS_ASSERT(likeliest && model->config.vocab < 1 << 24);
    int status = group_max(walk, &op);
    if (!status)
        ls_cross_entropy_place(run->ops, &op, b->logits, b->max, likeliest);
    if (!status && model->tp.size > 1)
        status = ls_all_reduce_max_f32_start(model->tp.comm, likeliest, rows, LS_QUEUED, LS_HERE,
                                             run->error);
    return status;
}

/* Of rows of a [rows, C], capped where the model says so, at the batch's temperature. */
static int logits_make(const struct layer_run *run, const struct ls_param *weight, int64_t rows,
                       const void *a, void *logits)
{
    const struct ls_model *model = run->model;
    float cap = model->config.logit_softcap, scale = logit_scale(run);
    struct ls_gemm product = model_linear(model, rows, weight->rows, 1, weight, NULL, a, logits);
    int status = ls_gemm_run(run->ops, &product, run->error);
    if (!status && cap > 0)
        ls_softcap(run->ops, model->numerics.act, rows * weight->rows, cap, logits, logits);
    if (!status && scale != 1)
        ls_scale(run->ops, model->numerics.act, rows * weight->rows, scale, logits, logits);
    return status;
}

/* Loss of a group's rows, their entropies where these are asked for, and their logits' gradient in
 * place. */
static int group_loss(struct walk *walk, int64_t first_row, int64_t rows)
{
    const struct layer_run *run = walk->run;
    struct ls_model *model = run->model;
    struct head_buffers *b = &walk->buffers;
    const int32_t *target = run->batch->targets + first_row;
    float *loss = model->losses.rows + first_row;
    struct ls_cross_entropy op = loss_of(walk, first_row, rows);
    bool entropies = run->batch->entropies || op.entropy_weight;
    if (model->tp.size == 1 && !entropies) {
        ls_cross_entropy(run->ops, &op, b->logits, target, loss);
        return LS_OK;
    }
    float *sum = b->sums, *target_logit = b->sums + rows, *product = b->sums + 2 * rows;
    int status = group_max(walk, &op);
    if (status)
        return status;
    ls_cross_entropy_sum(run->ops, &op, b->logits, target, b->max, sum, target_logit,
                         entropies ? product : NULL);
    if (model->tp.size > 1)
        status = ls_all_reduce_start(model->tp.comm, b->sums, (entropies ? 3 : 2) * rows, LS_QUEUED,
                                     LS_HERE, run->error);
    if (status)
        return status;
    if (entropies)
        ls_entropy(run->ops, &op, sum, product, model->losses.entropies + first_row);
    ls_cross_entropy_finish(run->ops, &op, b->logits, target, b->max, sum, target_logit, loss);
    return LS_OK;
}

/* One group, rows [first_row, ...) in the order of sum: logits, loss, and when training the two
 * gradients. */
static int group_run(struct walk *walk, int64_t first_row, const struct ls_token_sum *sum,
                     float *d_weight)
{
    const struct layer_run *run = walk->run;
    struct ls_model *model = run->model;
    int64_t channels = model->config.channels, vocabulary = walk->weight->rows;
    int64_t rows = ls_token_rows(sum);
    const void *a = walk->a + (size_t)(first_row * channels) * model_act_bytes(model);
    void *logits = walk->buffers.logits;
    int status = logits_make(run, walk->weight, rows, a, logits);
    if (!status && run->batch->likeliest)
        status = group_likeliest(walk, first_row, rows);
    if (!status)
        status = group_loss(walk, first_row, rows);
    if (status || !walk->training)
        return status;
    enum ls_dtype out = walk->partial_sums ? LS_F32 : model->numerics.act;
    char *d_a = walk->d_a + (size_t)(first_row * channels) * ls_dtype_bytes(out);
    struct ls_gemm input =
        model_input_gradient(model, rows, vocabulary, model->tiles, walk->weight, logits, d_a);
    input.out = out;
    status = ls_gemm_run(run->ops, &input, run->error);
    if (status || !d_weight)
        return status;
    struct ls_gemm weight =
        model_weight_gradient(model, sum, vocabulary, walk->weight, logits, a, d_weight);
    return ls_gemm_run(run->ops, &weight, run->error);
}

/* The subtree of `tiles` tiles of one sequence from first_row on: d_weight = it, or += it where the
 * place beside it was left for that. */
static int subtree_run(struct walk *walk, int64_t first_row, int64_t tiles, float *d_weight,
                       bool add, int partials_used)
{
    struct ls_model *model = walk->run->model;
    int64_t tokens = walk->run->rows->tile_tokens;
    if (tiles <= model->losses.group_units) {
        struct ls_token_sum sum = {1, 1, tiles, tokens, add ? LS_ONTO_SUM : LS_ONTO_NOTHING};
        return group_run(walk, first_row, &sum, d_weight);
    }
    bool aside = add && d_weight && !model->numerics.fast;
    float *sum = d_weight;
    if (aside) {
        LS_ASSERT(partials_used < walk->buffers.partials);
        sum = walk->buffers.partial[partials_used++];
    }
    int64_t split = ls_tree_split(tiles);
    int status = subtree_run(walk, first_row, split, sum, add && !aside, partials_used);
    if (!status)
        status =
            subtree_run(walk, first_row + split * tokens, tiles - split, sum, true, partials_used);
    if (!status && aside)
        ls_tree_add(walk->run->ops, walk->weight->rows * model->config.channels, d_weight, sum);
    return status;
}

/* One leaf, or a part of one, that is more than a group: sequences in turn go on with its chain. */
static int chain_run(struct walk *walk, int64_t first_row, float *d_weight, enum ls_onto onto)
{
    const struct rows *rows = walk->run->rows;
    int64_t group = walk->run->model->losses.group_units;
    int status = LS_OK;
    for (int64_t i = 0; i < rows->sequences && !status; i += group) {
        struct ls_token_sum sum = {1, ls_min(group, rows->sequences - i), 1, rows->tile_tokens,
                                   i ? LS_ONTO_CHAIN : onto};
        status = group_run(walk, first_row + i * rows->tile_tokens, &sum, d_weight);
    }
    return status;
}

static int leaf_run(struct walk *walk, int64_t first_row, float *d_weight, enum ls_onto onto)
{
    struct ls_model *model = walk->run->model;
    const struct rows *rows = walk->run->rows;
    if (rows->tiles > 1)
        return subtree_run(walk, first_row, rows->tiles, d_weight, onto != LS_ONTO_NOTHING, 0);
    if (onto != LS_ONTO_SUM || !d_weight || model->numerics.fast)
        return chain_run(walk, first_row, d_weight, onto);
    LS_ASSERT(walk->buffers.partials > 0);
    int status = chain_run(walk, first_row, walk->buffers.partial[0], LS_ONTO_NOTHING);
    if (!status)
        ls_tree_add(walk->run->ops, walk->weight->rows * model->config.channels, d_weight,
                    walk->buffers.partial[0]);
    return status;
}

static int groups_run(struct walk *walk, float *d_weight, enum ls_onto onto)
{
    const struct rows *rows = walk->run->rows;
    int64_t leaf = rows->sequences * rows->tiles,
            at_once = walk->run->model->losses.group_units / leaf;
    int status = LS_OK;
    for (int64_t i = 0; i < rows->leaves && !status; i += ls_max(at_once, 1)) {
        int64_t first_row = i * leaf * rows->tile_tokens;
        struct ls_token_sum sum = rows_sum(rows, i ? LS_ONTO_SUM : onto);
        sum.leaves = ls_min(at_once, rows->leaves - i);
        status = at_once ? group_run(walk, first_row, &sum, d_weight)
                         : leaf_run(walk, first_row, d_weight, sum.onto);
    }
    return status;
}

/* ---- the step -------------------------------------------------------------------------------- */

static int head_forward(const struct layer_run *run, const struct bound_step *s)
{
    struct ls_model *model = run->model;
    const struct ls_gradient *gradient = run->gradient;
    struct ls_arena work = run_work(run, s);
    struct walk walk = {.run = run,
                        .weight = s->weight,
                        .buffers = buffers_take(model, s, &work),
                        .partial_sums = model->tp.size > 1,
                        .training = run->batch->training};
    LS_ASSERT(!walk.training || model->options.training);
    walk.d_a = walk.training ? run_dx(run, s) : NULL;
    if (walk.partial_sums)
        walk.d_a = (char *)walk.buffers.reduce.scratch.partial;
    const void *a;
    model_label(model, s->weight);
    int status = model_gather(model, run->rows, run_in(run, s, 0), walk.buffers.gather.gathered, &a,
                              run->error);
    if (status)
        return status;
    walk.a = a;
    float *d_weight = walk.training ? run_gradient(run, s->weight) : NULL;
    status = groups_run(&walk, d_weight, d_weight ? gradient->onto : LS_ONTO_NOTHING);
    if (!status && walk.training && walk.partial_sums)
        status = ls_tp_reduce_round(&model->tp, run->ops, model->numerics.act, run->rows->all,
                                    model->config.channels, &walk.buffers.reduce.scratch,
                                    run_dx(run, s), run->error);
    struct ls_loss_sum sum = {.sequences = run->batch->sequences,
                              .tiles = run->rows->tiles,
                              .tokens = run->rows->tile_tokens,
                              .loss = model->losses.rows,
                              .weight = run->batch->weights,
                              .entropy_weight = run->batch->entropy_weights};
    sum.entropy = sum.entropy_weight ? model->losses.entropies : NULL;
    if (!status)
        ls_loss_sum(run->ops, &sum, model->losses.sequences);
    return status;
}

/* The last rows of the runs whose logits are asked for. */
static const void *ending_rows(const struct layer_run *run, const struct bound_step *s)
{
    const struct decoding *decoding = run->model->decoding;
    size_t bytes = (size_t)run->model->config.channels * model_act_bytes(run->model);
    const char *rows = run_in(run, s, 0);
    int64_t count = 0;
    if (decoding->ending == run->rows->all)
        return rows;
    for (int i = 0; i < decoding->run_count; i++) {
        const struct decoding_run *one = &decoding->runs[i];
        if (one->ends)
            ls_copy(run->ops, bytes, rows + (size_t)(one->row + one->count - 1) * bytes,
                    decoding->rows + (size_t)count++ * bytes);
    }
    return decoding->rows;
}

/* Logits are kept of some rows, of which each rank makes its part of the vocabulary, and the parts
 * are gathered. Losses are made of all rows with targets, as in training. */
static int head_decode(const struct layer_run *run, const struct bound_step *s)
{
    const struct ls_model *model = run->model;
    const struct decoding *decoding = model->decoding;
    int64_t vocabulary = s->weight->rows, part = decoding->ending * vocabulary;
    int status = run->batch->targets ? head_forward(run, s) : LS_OK;
    if (status || part == 0)
        return status;
    char *own = decoding->logits + (size_t)(model->tp.rank * part) * model_act_bytes(model);
    status = logits_make(run, s->weight, decoding->ending, ending_rows(run, s), own);
    if (status || model->tp.size == 1)
        return status;
    model_label(model, s->weight);
    return ls_all_gather_start(model->tp.comm, own, decoding->logits, part, model->numerics.act,
                               LS_QUEUED, LS_HERE, run->error);
}

const struct step_kind step_head = {
    .name = "head and loss",
    .ins = 1,
    .flow = FLOW_FORWARD,
    .forward = head_forward,
    .decode = head_decode,
    .work = head_work,
    .constants = head_constants,
    .multiplies = true,
};
