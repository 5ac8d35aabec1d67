/* Runs a tiny model cut over thread ranks beside the whole one. */
#include "cut.h"
#include "../support/testing.h"
#include "held.h"
#include "nn/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, CHANNELS = 32, HEADS = 8, HEAD_DIM = 8, FFN = 64, VOCAB = 53, PADDED = 64 };
enum { SHORT_TOKENS = 32, TILES = 8 };

/* ---- one rank's run -------------------------------------------------------------------------- */

struct side {
    const struct cut *cut;
    struct ls_model_config config;
    struct ls_numerics numerics;
    int64_t tokens;
    struct ls_ops ops;
    struct held held;
    struct ls_arena arena;
    struct ls_model *model;
    struct ls_tp tp;
    struct ls_cp cp;
    int32_t *ids, *targets; /* [B, T / cp] in the order of rows */
    int32_t *starts;        /* [B, T] by position; NULL: none */
};

static int64_t tokens_of(const struct cut *cut)
{
    if (cut->tokens)
        return cut->tokens;
    return cut->seq_tiles > 1 ? 2 * LS_ATTENTION_BLOCK * cut->seq_tiles : SHORT_TOKENS;
}

static void recipe_set(struct side *side)
{
    const struct cut *cut = side->cut;
    const struct ls_family *family = ls_family_of(cut->arch);
    side->tokens = tokens_of(cut);
    side->config = (struct ls_model_config){.arch = cut->arch,
                                            .vocab = VOCAB,
                                            .vocab_padded = PADDED,
                                            .layers = LAYERS,
                                            .channels = CHANNELS,
                                            .heads = HEADS,
                                            .kv_heads = cut->kv_heads,
                                            .head_dim = HEAD_DIM,
                                            .ffn = FFN,
                                            .context = side->tokens + 5,
                                            .tied = cut->tied,
                                            .bias = family->bias,
                                            .act = family->act,
                                            .norm_epsilon = 1e-5f,
                                            .rope_theta = 100,
                                            .window_layers = family->window_layers,
                                            .dropout = cut->dropout,
                                            .seed = 5};
    if (ls_family_reads(cut->arch, "window"))
        side->config.window = side->tokens * 2 / 5;
    if (ls_family_reads(cut->arch, "query_scale"))
        side->config.query_scale = 5;
    if (ls_family_reads(cut->arch, "attention_softcap"))
        side->config.attention_softcap = side->config.logit_softcap = 2;
    side->numerics = (struct ls_numerics){.act = cut->act,
                                          .tp_tiles = TILES,
                                          .seq_tiles = cut->seq_tiles,
                                          .leaf_sequences = cut->leaf_sequences,
                                          .fast = cut->fast};
    if (cut->fast)
        side->numerics.tp_tiles = 1;
}

/* Every parameter normal around its kind's usual value, by its place in the whole model. */
static void values_fill(struct side *side)
{
    for (int i = 0; i < side->held.params.count; i++) {
        const struct ls_param *p = &side->held.params.list[i];
        float *values = held_values(&side->held, p);
        for (int64_t r = 0; r < p->rows; r++) {
            float *row = values + r * p->cols;
            ls_normal_fill(ls_philox_key_of(8, p->name),
                           (p->first_row + r) * p->global_cols + p->first_col, p->cols,
                           p->init == LS_INIT_ONE ? 1 : 0, 0.25, row);
            if (p->first_row + r >= p->live_rows)
                memset(row, 0, (size_t)p->cols * sizeof *row);
        }
    }
    held_publish(&side->held, &side->ops);
}

/* Tokens by the row that they have on one rank: this rank's are one run a sequence. */
static void tokens_fill(struct side *side)
{
    int64_t local = side->tokens / side->cp.size, rows = side->cut->sequences * local;
    side->ids = calloc((size_t)rows, sizeof *side->ids);
    side->targets = calloc((size_t)rows, sizeof *side->targets);
    for (int64_t row = 0; row < rows; row++) {
        int64_t global = row / local * side->tokens + side->cp.rank * local + row % local;
        uint64_t draw = ls_hash64(&global, sizeof global, 3);
        side->ids[row] = (int32_t)(draw % VOCAB);
        side->targets[row] = draw % 11 == 0 ? -1 : (int32_t)(draw / 64 % VOCAB);
    }
}

/* Documents of one token and of many, by sequence and position. */
static void starts_fill(struct side *side)
{
    int64_t all = side->cut->sequences * side->tokens;
    if (!side->cut->documents)
        return;
    side->starts = calloc((size_t)all, sizeof *side->starts);
    for (int64_t i = 0; i < all; i++) {
        int64_t token = i % side->tokens;
        bool first = token == 0 || ls_hash64(&i, sizeof i, 4) % 23 == 0;
        side->starts[i] = first ? (int32_t)token : side->starts[i - 1];
    }
}

static int model_open(struct side *side, struct ls_error *error)
{
    struct ls_model_options options = {.config = &side->config,
                                       .numerics = &side->numerics,
                                       .params = &side->held.params,
                                       .weights = side->held.weights,
                                       .tp = &side->tp,
                                       .cp = &side->cp,
                                       .sequences = side->cut->sequences,
                                       .tokens = side->tokens,
                                       .slots = 1,
                                       .training = !side->cut->forward,
                                       .documents = side->cut->documents,
                                       .adding = side->cut->accumulate,
                                       .split_backward = side->cut->split,
                                       .logits_bytes = 20000};
    struct ls_arena measure;
    ls_arena_measure(&measure);
    int status = ls_model_new(&options, &measure, &side->model, error);
    if (status)
        return status;
    ls_model_free(side->model);
    side->model = NULL;
    status = ls_arena_init(&side->arena, measure.peak, error);
    return status ? status : ls_model_new(&options, &side->arena, &side->model, error);
}

static int backward_split(struct side *side, const struct ls_micro_batch *batch, enum ls_onto onto,
                          struct ls_error *error)
{
    int status = LS_OK;
    for (int layer = LAYERS + 1; layer >= 0 && !status; layer--)
        status = ls_layer_backward_input(side->model, &side->ops, layer, batch, error);
    for (int layer = LAYERS + 1; layer >= 0 && !status; layer--) {
        struct ls_gradient target = held_target(&side->held, layer, false, onto);
        status = ls_layer_backward_weight(side->model, &side->ops, layer, batch, &target, error);
    }
    return status;
}

/* A buffer that the head keeps in slot 0: of the value of that name, or of its gradient. */
static void *head_kept(const struct side *side, const char *name, bool gradient)
{
    const struct layer *head = &side->model->layers[LAYERS + 1];
    int v = 0;
    while (strcmp(head->program->values[v].name, name))
        v++;
    const struct place *place = gradient ? &head->gradient[v] : &head->value[v];
    LS_ASSERT(place->room == ROOM_KEPT);
    return head->kept[0] + place->offset;
}

/* The broken twin: the final norm's weight gradient from this rank's rows alone. */
static void own_norm(struct side *side, const struct ls_micro_batch *batch)
{
    struct rows rows = rows_of(side->model, batch);
    struct ls_norm op = {.rows = rows.count,
                         .channels = CHANNELS,
                         .act = side->numerics.act,
                         .mean = head_kept(side, "mean", false),
                         .rstd = head_kept(side, "rstd", false)};
    struct ls_token_sum sum = {1, 1, 1, rows.count, LS_ONTO_NOTHING};
    ls_layernorm_backward_weight(
        &side->ops, &op, ls_model_output(side->model, LAYERS, 0), head_kept(side, "a", true), &sum,
        held_gradient(&side->held, ls_params_find(&side->held.params, "ln_f.weight")), NULL);
}

static int side_run(struct side *side, struct ls_error *error)
{
    struct ls_micro_batch batch = {.sequences = side->cut->sequences,
                                   .tokens = side->tokens,
                                   .ids = side->ids,
                                   .targets = side->targets,
                                   .starts = side->starts,
                                   .first_sequence = 6,
                                   .step = 4,
                                   .training = !side->cut->forward,
                                   .gradient_scale = 1.0f / 64};
    for (int pass = 0; pass <= side->cut->accumulate; pass++) {
        int status = LS_OK;
        for (int layer = 0; layer < LAYERS + 2 && !status; layer++) {
            struct ls_gradient target = held_target(&side->held, layer, true, pass > 0);
            status = ls_layer_forward(side->model, &side->ops, layer, &batch, &target, error);
        }
        if (status)
            return status;
        if (side->cut->split && !side->cut->forward)
            status = backward_split(side, &batch, pass > 0, error);
        else if (!side->cut->forward)
            held_backward(&side->held, side->model, &side->ops, 0, LAYERS + 2, &batch, pass > 0);
        if (status)
            return status;
    }
    if (side->cut->own_norm && side->tp.size > 1)
        own_norm(side, &batch);
    return LS_OK;
}

/* tp_comm, cp_comm: NULL for groups of one. */
static int side_open(struct side *side, const struct cut *cut, struct ls_comm *tp_comm,
                     struct ls_comm *cp_comm, struct ls_error *error)
{
    *side = (struct side){.cut = cut};
    recipe_set(side);
    int size = tp_comm ? ls_comm_size(tp_comm) : 1;
    int status = ls_ops_init(&side->ops, 1, ls_isa_best(), error);
    int sharers = ls_tp_sharers(size, cut->kv_heads);
    struct ls_comm *sharers_comm = NULL;
    if (!status && sharers > 1)
        status = ls_comm_split(tp_comm, ls_comm_rank(tp_comm) / sharers, ls_comm_rank(tp_comm),
                               &sharers_comm, error);
    if (status)
        return status;
    ls_tp_init(&side->tp, tp_comm, sharers_comm, cut->sequence, cut->chunks ? cut->chunks : 1);
    ls_cp_init(&side->cp, cp_comm, cut->method);
    struct ls_part part = {.tp = side->tp.size, .tp_rank = side->tp.rank};
    held_open(&side->held, &side->config, &side->numerics, &part);
    values_fill(side);
    tokens_fill(side);
    starts_fill(side);
    return model_open(side, error);
}

static void side_close(struct side *side)
{
    ls_model_free(side->model);
    ls_arena_release(&side->arena);
    held_close(&side->held);
    ls_comm_free(side->tp.sharers_comm);
    ls_ops_release(&side->ops);
    free(side->ids);
    free(side->targets);
    free(side->starts);
}

/* ---- comparison ------------------------------------------------------------------------------ */

/* Rows of the stream, [N, C] act, against the one rank's [M, C]. */
static int stream_compare(const struct side *one, const struct side *mine, const char *what,
                          const void *want, const void *got, struct ls_error *error)
{
    struct ls_micro_batch batch = {.sequences = mine->cut->sequences, .tokens = mine->tokens};
    struct rows rows = rows_of(mine->model, &batch);
    size_t bytes = CHANNELS * ls_dtype_bytes(one->numerics.act);
    for (int64_t row = 0; row < rows.count; row++) {
        int64_t all = rows.first + row;
        int64_t global =
            all / rows.tokens * one->tokens + mine->cp.rank * rows.tokens + all % rows.tokens;
        if (memcmp((const char *)want + (size_t)global * bytes,
                   (const char *)got + (size_t)row * bytes, bytes))
            return ls_error_set(error, LS_EINVAL, "%s: row %ld (%ld here) has other bits", what,
                                (long)global, (long)row);
    }
    return LS_OK;
}

static int floats_compare(const char *what, int64_t row, const float *want, const float *got,
                          int64_t count, struct ls_error *error)
{
    for (int64_t i = 0; i < count; i++)
        if (memcmp(&want[i], &got[i], sizeof *got))
            return ls_error_set(error, LS_EINVAL, "%s [%ld, %ld]: %a, one rank has %a", what,
                                (long)row, (long)i, (double)got[i], (double)want[i]);
    return LS_OK;
}

/* The distance of `count` values, as a share of their norm. */
static int near_compare(const char *what, const float *want, const float *got, int64_t count,
                        struct ls_error *error)
{
    enum { PER_MILLION = 20 };
    double distance = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        distance += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        norm += (double)want[i] * want[i];
    }
    if (sqrt(distance) <= PER_MILLION * 1e-6 * sqrt(norm))
        return LS_OK;
    return ls_error_set(error, LS_EINVAL,
                        "%s differs by %g of its norm, at most %d millionths are "
                        "rounding",
                        what, sqrt(distance / norm), PER_MILLION);
}

static int gradients_compare(const struct side *one, const struct side *mine,
                             struct ls_error *error)
{
    int status = LS_OK;
    for (int i = 0; i < mine->held.params.count && !status; i++) {
        const struct ls_param *p = &mine->held.params.list[i];
        const struct ls_param *whole = ls_params_find(&one->held.params, p->name);
        const float *want = held_gradient(&one->held, whole), *got = held_gradient(&mine->held, p);
        /* A key's bias has gradient zero but for rounding. */
        if (one->cut->fast && strstr(p->name, "attn.k.bias"))
            continue;
        if (one->cut->fast && p->first_col == 0 && p->cols == p->global_cols) {
            status = near_compare(p->name, want + p->first_row * p->global_cols, got,
                                  p->rows * p->cols, error);
            continue;
        }
        if (one->cut->fast)
            continue;
        for (int64_t r = 0; r < p->rows && !status; r++)
            status = floats_compare(p->name, p->first_row + r,
                                    want + (p->first_row + r) * p->global_cols + p->first_col,
                                    got + r * p->cols, p->cols, error);
    }
    const float *table = held_table(&mine->held);
    if (table && !status && !one->cut->fast) {
        int64_t first = mine->held.params.list[mine->held.params.tied_param].first_row;
        status =
            floats_compare("the table's gradient", first, held_table(&one->held) + first * CHANNELS,
                           table, PADDED / mine->tp.size * CHANNELS, error);
    }
    return status;
}

static int side_compare(const struct side *one, const struct side *mine, const float *losses,
                        struct ls_error *error)
{
    int status = LS_OK;
    if (one->cut->fast)
        status = near_compare("losses", ls_model_losses(one->model), losses, mine->cut->sequences,
                              error);
    if (one->cut->fast)
        return status ? status : gradients_compare(one, mine, error);
    for (int layer = 0; layer <= LAYERS && !status && !mine->cut->forward; layer++) {
        char what[32];
        snprintf(what, sizeof what, "output of layer %d", layer);
        status = stream_compare(one, mine, what, ls_model_output(one->model, layer, 0),
                                ls_model_output(mine->model, layer, 0), error);
    }
    if (!status)
        status = floats_compare("losses", 0, ls_model_losses(one->model), losses,
                                mine->cut->sequences, error);
    for (int layer = 2; layer >= 1 && !status && !mine->cut->forward; layer--)
        status =
            stream_compare(one, mine, "input gradient", ls_model_input_gradient(one->model, layer),
                           ls_model_input_gradient(mine->model, layer), error);
    return status || mine->cut->forward ? status : gradients_compare(one, mine, error);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static int kind_compare(const char *group, const struct ls_comm_stats *stats,
                        enum ls_comm_kind kind, int64_t want, struct ls_error *error)
{
    if (stats->kind[kind].sent_bytes == want)
        return LS_OK;
    return ls_error_set(error, LS_EINVAL, "%s: %s sent %ld bytes, the formula says %ld", group,
                        ls_comm_kind_name(kind), (long)stats->kind[kind].sent_bytes, (long)want);
}

/* One forward and backward of GPT-2, as doc/parallel/ counts them, in units of a (size - 1) / size
 * part of M x C or of T x K elements. */
static int bytes_compare(const struct side *side, struct ls_comm *tp_comm, struct ls_comm *cp_comm,
                         struct ls_error *error)
{
    const struct cut *cut = side->cut;
    struct ls_comm_stats tp, cp;
    ls_comm_get_stats(tp_comm, &tp);
    ls_comm_get_stats(cp_comm, &cp);
    struct ls_micro_batch batch = {.sequences = cut->sequences, .tokens = side->tokens};
    struct rows rows = rows_of(side->model, &batch);
    int64_t e = (int64_t)ls_dtype_bytes(cut->act),
            norms = rows.all / rows.tile_tokens * (4 * LAYERS + 2) * CHANNELS;
    int64_t stream = rows.all * CHANNELS * (cut->tp - 1) / cut->tp;
    int64_t keys = cut->sequences * side->tokens * 2 * size_held(side->model, SIZE_KV) * LAYERS *
                   (cut->cp - 1) / cut->cp;
    int64_t gathers = cut->sequence ? 6 * LAYERS + 2 : 4 * LAYERS + 2;
    int64_t sums = 3 * rows.all + (cut->sequence ? norms : 0);
    bool ring = cut->method == LS_CP_RING;
    int status =
        kind_compare("tp", &tp, LS_COMM_REDUCE_SCATTER, (4 * LAYERS + 2) * 4 * stream, error);
    if (!status)
        status = kind_compare("tp", &tp, LS_COMM_ALL_GATHER, gathers * e * stream, error);
    if (!status)
        status = kind_compare("tp", &tp, LS_COMM_ALL_REDUCE, 2 * sums * 4 * (cut->tp - 1) / cut->tp,
                              error);
    if (!status)
        status = kind_compare("cp", &cp, LS_COMM_ALL_GATHER, ring ? 0 : 2 * e * keys, error);
    if (!status)
        status = kind_compare("cp", &cp, LS_COMM_REDUCE_SCATTER, ring ? 0 : 4 * keys, error);
    if (!status)
        status = kind_compare("cp", &cp, LS_COMM_SEND, ring ? (2 * e + 4) * keys : 0, error);
    return status;
}

/* ---- the ranks ------------------------------------------------------------------------------- */

struct ranks {
    const struct cut *cut;
    const struct side *one;
};

/* What reduces gradients: the top of the trees over cp. */
static int cp_reduce(struct side *side, struct ls_comm *cp_comm, float *losses,
                     struct ls_error *error)
{
    int64_t sequences = side->cut->sequences;
    memcpy(losses, ls_model_losses(side->model), (size_t)sequences * sizeof *losses);
    int status = ls_all_reduce(cp_comm, losses, sequences, error);
    if (!status && !side->cut->forward)
        status = ls_all_reduce(cp_comm, side->held.gradient, side->held.gradient_elements, error);
    return status;
}

static int rank_run(struct ls_comm *world, void *user, struct ls_error *error)
{
    const struct ranks *ranks = user;
    const struct cut *cut = ranks->cut;
    struct ls_comm *tp_comm = NULL, *cp_comm = NULL;
    struct side side;
    float losses[16];
    int rank = ls_comm_rank(world);
    int status = ls_comm_split(world, rank / cut->tp, rank, &tp_comm, error);
    if (!status)
        status = ls_comm_split(world, rank % cut->tp, rank, &cp_comm, error);
    if (!status)
        status = side_open(&side, cut, tp_comm, cp_comm, error);
    if (!status)
        status = side_run(&side, error);
    if (!status && cut->counted)
        status = bytes_compare(&side, tp_comm, cp_comm, error);
    if (!status)
        status = cp_reduce(&side, cp_comm, losses, error);
    if (!status)
        status = side_compare(ranks->one, &side, losses, error);
    status = ls_comm_agree(world, status, error);
    side_close(&side);
    ls_comm_free(tp_comm);
    ls_comm_free(cp_comm);
    return status;
}

int cut_run(const struct cut *cut, char *text, size_t bytes)
{
    struct ls_error error = {0};
    struct side one;
    int status = side_open(&one, cut, NULL, NULL, &error);
    if (!status)
        status = side_run(&one, &error);
    if (!status)
        status = ls_world_run(cut->tp * cut->cp, rank_run, &(struct ranks){.cut = cut, .one = &one},
                              &error);
    side_close(&one);
    snprintf(text, bytes, "%s", error.text);
    return status;
}

void cut_check(struct cut cut)
{
    char text[1024];
    if (cut_run(&cut, text, sizeof text))
        fail_msg("%s %s, %ld kv heads, seq_tiles %ld, %ld sequences; tp %d%s, cp %d, chunks %d: %s",
                 ls_arch_name(cut.arch), ls_dtype_name(cut.act), (long)cut.kv_heads,
                 (long)cut.seq_tiles, (long)cut.sequences, cut.tp,
                 cut.sequence ? " with sequence parallel" : "", cut.cp, cut.chunks, text);
}

/* ---- cuts of every family -------------------------------------------------------------------- */

static struct cut recipe_of(enum ls_arch arch, int i)
{
    static const enum ls_dtype acts[] = {LS_F32, LS_BF16, LS_F16};
    return (struct cut){.arch = arch,
                        .act = acts[i % 3],
                        .kv_heads = arch == LS_GPT2 ? 8 : 8 >> i % 4,
                        .seq_tiles = 1,
                        .sequences = 4,
                        .leaf_sequences = 1 + i % 2,
                        .dropout = i % 5 ? 0 : 0.1f,
                        .tied = i % 2,
                        .tp = 1,
                        .cp = 1,
                        .chunks = 1 + i % 2,
                        .split = i / 2 % 2,
                        .accumulate = i % 3 == 0};
}

struct cut cut_tensor(enum ls_arch arch, int i)
{
    struct cut cut = recipe_of(arch, i);
    cut.tp = 2 << i % 3;
    cut.sequence = i / 3 % 2;
    return cut;
}

struct cut cut_context(enum ls_arch arch, int i)
{
    struct cut cut = recipe_of(arch, i);
    cut.cp = 2;
    cut.tp = 1 << i % 3;
    cut.seq_tiles = 2 << i % 2;
    cut.method = i / 2 % 2 ? LS_CP_RING : LS_CP_ALL_GATHER;
    cut.sequence = (i / 2 + i / 3) % 2;
    cut.sequences = cut.leaf_sequences = 1;
    return cut;
}
