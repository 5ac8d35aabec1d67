/* Parameters: the tables of a family's programs, cut for a rank, in units and regions; their
 * initial values and digests. param_names.c has their names. */
#include "nn/program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct builder {
    struct ls_params *params;
    struct ls_param *list; /* those of params, while they may be changed */
    struct ls_unit *units;
    struct ls_region *regions;
    const struct ls_model_config *config;
    const struct ls_numerics *numerics;
    struct ls_part part;
    struct ls_unit *unit;          /* the one being filled, */
    const struct program *program; /* of its layer */
    const char *role;              /* of the parameter before */
    int capacity;
    bool owned;                    /* what is added is this rank's to answer for, if tp rank 0 */
    struct ls_gradient_place tied; /* the embedding layer's gradient of the head's table */
};

/* ---- what tensor parallel gives to a rank ---------------------------------------------------- */

/* Part of `size` rows or columns: [first, first + count). */
struct cut {
    int64_t first, count;
    bool owned;
};

static struct cut cut_none(const struct builder *b, int64_t size)
{
    return (struct cut){0, size, b->part.tp_rank == 0};
}

static struct cut cut_even(const struct builder *b, int64_t size)
{
    int64_t count = size / b->part.tp;
    return (struct cut){b->part.tp_rank * count, count, true};
}

/* Key/value heads: an equal share, or one that tp / kv_heads neighbouring ranks share. */
static struct cut cut_kv(const struct builder *b, int64_t size)
{
    const struct ls_model_config *c = b->config;
    if (b->part.tp <= c->kv_heads)
        return cut_even(b, size);
    int64_t sharers = b->part.tp / c->kv_heads, head = b->part.tp_rank / sharers;
    return (struct cut){head * c->head_dim, c->head_dim, b->part.tp_rank % sharers == 0};
}

/* ---- what is trained ------------------------------------------------------------------------- */

static bool is_frozen(const struct builder *b, const struct parameter *p)
{
    return parameter_frozen(b->config, b->unit->layer, p);
}

/* Whether a gradient has room: also that of a matrix whose product makes others' too, and of
 * vectors beside others of their layer. */
static bool takes_gradient(const struct builder *b, const struct parameter *p)
{
    bool vector = p->rows == SIZE_ONE, takes = !is_frozen(b, p);
    for (const struct parameter *q = b->program->parameters; q->role && !takes; q++)
        takes = (vector ? q->rows == SIZE_ONE : !strcmp(q->role, p->role)) &&
                parameter_present(q, b->config) && !is_frozen(b, q);
    return takes;
}

/* ---- units and parameters -------------------------------------------------------------------- */

static void unit_begin(struct builder *b, int layer)
{
    struct ls_params *params = b->params;
    struct ls_region *region = &b->regions[params->region_count++];
    b->unit = &b->units[params->unit_count++];
    b->program = program_of(b->config, layer);
    b->role = NULL;
    *b->unit = (struct ls_unit){.layer = layer, .first_param = params->count};
    *region = (struct ls_region){.layer = layer};
}

/* Matrices and vectors that stand alone begin on a cache line; stacked ones follow each other. */
static void align(struct builder *b)
{
    struct ls_region *region = &b->regions[b->params->region_count - 1];
    bool vectors = b->unit->elements > b->unit->matrix_elements;
    b->unit->elements = ls_round_up(b->unit->elements, 16);
    region->elements = ls_round_up(region->elements, 16);
    if (!vectors)
        b->unit->matrix_elements = b->unit->elements;
}

/* A unit that stayed empty does not exist, nor does an empty region. */
static void unit_end(struct builder *b)
{
    struct ls_params *params = b->params;
    align(b);
    params->elements += b->unit->elements;
    if (b->unit->param_count == 0)
        params->unit_count--;
    if (params->regions[params->region_count - 1].elements == 0)
        params->region_count--;
}

/* Gives the parameter its place behind what the unit and its region hold. */
static void param_place(struct builder *b, struct ls_param *param)
{
    int r = param->gradient.region;
    struct ls_region *region = r < 0 ? NULL : &b->regions[r];
    int64_t elements = ls_param_elements(param);
    param->offset = b->unit->elements;
    b->unit->elements += ls_param_room(param, elements);
    if (region) {
        param->gradient.offset = region->elements;
        region->elements += elements;
    }
    b->params->weights += elements;
    b->params->trained += param->frozen ? 0 : elements;
    if (param->matrix)
        b->unit->matrix_elements = b->unit->elements;
    if (param->hidden) {
        param->first_scale = b->unit->scales;
        b->unit->scales += param->rows * param->tiles;
    }
}

static void param_cut(const struct builder *b, enum tp_cut cut, struct ls_param *param)
{
    bool vector = param->global_rows == 1 && !param->matrix;
    struct cut row = cut_none(b, param->global_rows), col = cut_none(b, param->global_cols);
    if (cut == CUT_ROWS)
        row = cut_even(b, param->global_rows);
    if (cut == CUT_COLUMNS)
        col = cut_even(b, param->global_cols);
    if (cut == CUT_KV && vector)
        col = cut_kv(b, param->global_cols);
    else if (cut == CUT_KV)
        row = cut_kv(b, param->global_rows);
    param->rows = row.count;
    param->cols = col.count;
    param->first_row = row.first;
    param->first_col = col.first;
    /* Where neither dim is cut both cuts say the same; if one is, it decides. */
    param->owned = b->owned && (row.count < param->global_rows ? row.owned : col.owned);
}

/* The shape of p: of the whole model's, and of what is held here. */
static void param_shape(const struct builder *b, const struct parameter *p, struct ls_param *param)
{
    const struct ls_model_config *c = b->config;
    param->matrix = p->rows != SIZE_ONE;
    param->global_rows = param->live_rows = size_whole(c, p->rows);
    param->global_cols = size_whole(c, p->columns);
    if (parameter_is_table(p))
        param->live_rows = c->vocab;
    param_cut(b, p->cut, param);
}

static float std_of(const struct ls_model_config *c, enum start start, int64_t columns)
{
    float std = c->init_std;
    if (start == START_ADAPTER)
        return 1 / sqrtf(3.0f * (float)columns);
    return start == START_RESIDUAL ? std / sqrtf(2.0f * (float)c->layers) : std;
}

/* A frozen matrix of a block in few bits. */
static void param_base(const struct builder *b, struct ls_param *param)
{
    param->blocks = param->hidden ? b->config->lora.base : LS_BLOCKS_NONE;
    if (param->blocks)
        param->row_room = (int64_t)(ls_blocks_row_bytes(param->blocks, param->cols) /
                                    ls_dtype_bytes(b->numerics->act));
}

/* The next parameter of the unit. */
static void param_add(struct builder *b, const struct parameter *p)
{
    struct ls_params *params = b->params;
    LS_ASSERT(params->count < b->capacity);
    struct ls_param *param = &b->list[params->count++];
    if (!b->role || strcmp(b->role, p->role))
        align(b);
    b->role = p->role;
    b->unit->param_count++;
    *param = (struct ls_param){.unit = params->unit_count - 1,
                               .gradient.region =
                                   takes_gradient(b, p) ? params->region_count - 1 : LS_REGION_NONE,
                               .second.region = LS_REGION_NONE,
                               .frozen = is_frozen(b, p),
                               .adapts = parameter_adapts(p)};
    parameter_name(b->config, b->unit->layer, p, param->name);
    param_shape(b, p, param);
    param->decay = param->matrix;
    param->hidden = param->matrix && b->unit->layer >= 1 && b->unit->layer <= b->config->layers &&
                    !param->adapts;
    bool tiled = param->hidden && p->cut == CUT_COLUMNS;
    param->tiles = tiled ? tiles_held(b->numerics, b->part.tp) : 1;
    param->init = p->start == START_ONE    ? LS_INIT_ONE
                  : p->start == START_ZERO ? LS_INIT_ZERO
                                           : LS_INIT_NORMAL;
    param->init_std = param->matrix ? std_of(b->config, p->start, param->global_cols) : 0;
    param_base(b, param);
    param_place(b, param);
}

static bool held(const struct builder *b, int64_t layer)
{
    return !b->part.layers || b->part.layers[layer];
}

/* ---- the tables of embedding and head, which may be one -------------------------------------- */

/* The table that was added last is tied to one of another stage. */
static void table_share(struct builder *b)
{
    struct ls_params *params = b->params;
    params->shared_param = params->count - 1;
    if (!b->list[params->shared_param].frozen)
        b->list[params->shared_param].second.region = LS_REGION_OUTSIDE;
}

/* A tied table is the head's; where this rank does not hold the head, the last stage answers for
 * it. */
static void embedding_table_add(struct builder *b, const struct parameter *p)
{
    bool tied = b->config->tied, head = held(b, b->config->layers + 1);
    if (tied && head)
        return;
    b->owned = !tied;
    param_add(b, p);
    b->owned = true;
    if (tied)
        table_share(b);
}

/* Where this rank holds the head too, the embedding layer's gradient of a tied table has a place in
 * that layer's region. */
static void tied_region_add(struct builder *b)
{
    const struct ls_model_config *c = b->config;
    struct ls_params *params = b->params;
    const struct parameter *table = b->program->parameters;
    while (!parameter_is_table(table))
        table++;
    if (!c->tied || !held(b, c->layers + 1) || is_frozen(b, table))
        return;
    align(b);
    struct ls_region *region = &b->regions[params->region_count - 1];
    b->tied = (struct ls_gradient_place){params->region_count - 1, region->elements};
    region->elements += c->vocab_padded / b->part.tp * c->channels;
}

/* The head's table, whose gradient is a region of its own. */
static void head_table_add(struct builder *b, const struct parameter *p)
{
    struct ls_params *params = b->params;
    int layer = b->unit->layer;
    param_add(b, p);
    if (b->config->tied && held(b, 0)) {
        params->tied_param = params->count - 1;
        b->list[params->tied_param].second = b->tied;
    } else if (b->config->tied) {
        table_share(b);
    }
    align(b);
    if (is_frozen(b, p))
        return;
    params->head_region = params->region_count - 1;
    b->regions[params->region_count++] = (struct ls_region){.layer = layer};
}

/* ---- adapters -------------------------------------------------------------------------------- */

/* Behind the matrices that they adapt: an A, and the B of each matrix that shares it. first: where
 * the unit's parameters begin. */
static void adapters_add(struct builder *b, int first)
{
    struct ls_params *params = b->params;
    struct adapted pair;
    for (int from = 0; adapted_next(b->config, b->program, from, &pair); from = pair.end) {
        char name[LS_PARAM_NAME_MAX + 1];
        const struct parameter *w = pair.matrices[0];
        bool cut_in = w->cut == CUT_COLUMNS;
        int a = params->count;
        adapter_name(&pair, -1, name);
        const struct parameter down = {.role = "lora a",
                                       .name = name,
                                       .rows = SIZE_RANK,
                                       .columns = w->columns,
                                       .cut = cut_in ? CUT_COLUMNS : CUT_NONE,
                                       .start = START_ADAPTER};
        param_add(b, &down);
        for (int i = 0; i < pair.count; i++) {
            w = pair.matrices[i];
            struct ls_param *matrix = &b->list[first + pair.place + i];
            adapter_name(&pair, i, name);
            matrix->lora_a = a;
            matrix->lora_b = params->count;
            const struct parameter up = {.role = "lora b",
                                         .name = name,
                                         .rows = w->rows,
                                         .columns = SIZE_RANK,
                                         .cut = cut_in ? CUT_NONE : w->cut,
                                         .start = START_ZERO};
            param_add(b, &up);
        }
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void layer_add(struct builder *b, int layer)
{
    int first = b->params->count;
    bool adapts = b->config->lora.rank > 0 && layer > 0 && layer <= b->config->layers;
    unit_begin(b, layer);
    for (const struct parameter *p = b->program->parameters;; p++) {
        if (adapts && (!p->role || p->rows == SIZE_ONE)) { /* the matrices are there */
            adapters_add(b, first);
            adapts = false;
        }
        if (!p->role)
            break;
        if (!parameter_present(p, b->config))
            continue;
        if (parameter_is_table(p) && layer == 0)
            embedding_table_add(b, p);
        else if (parameter_is_table(p))
            head_table_add(b, p);
        else
            param_add(b, p);
    }
    if (layer == 0)
        tied_region_add(b);
    unit_end(b);
}

/* What a layout says of them. */
static int layout_join(const struct builder *b, struct ls_error *error)
{
    const struct ls_part *part = &b->part;
    int status = LS_OK;
    for (int u = 0; u < b->params->unit_count && part->layer_set; u++)
        b->units[u].set = part->layer_set[b->units[u].layer];
    for (int r = 0; r < b->params->region_count && part->layer_set; r++)
        b->regions[r].set = part->layer_set[b->regions[r].layer];
    for (int i = 0; i < b->params->count && part->spec && !status; i++)
        status = part->spec(part->layout, b->units[b->list[i].unit].set, &b->list[i], error);
    return status;
}

static int parameters_most(const struct ls_model_config *config)
{
    int count = 0;
    for (int64_t layer = 0; layer <= config->layers + 1; layer++)
        for (const struct parameter *p = program_of(config, layer)->parameters; p->role; p++)
            count += config->lora.rank > 0 ? 3 : 1; /* with adapters */
    return count;
}

static int config_check(const struct ls_model_config *c, const struct ls_numerics *n,
                        const struct ls_part *part, struct ls_error *error)
{
    if (c->layers < 1 || c->channels < 1 || c->heads < 1 || c->kv_heads < 1 || c->head_dim < 1 ||
        c->ffn < 1 || c->context < 1 || c->vocab < 1 || c->vocab_padded < c->vocab)
        return ls_error_set(error, LS_EINVAL,
                            "every size of the model must be at least 1 and the "
                            "padded vocabulary at least the vocabulary");
    if (c->heads % c->kv_heads)
        return ls_error_set(error, LS_EINVAL, "kv_heads %ld does not divide heads %ld",
                            (long)c->kv_heads, (long)c->heads);
    if (part->tp < 1 || part->tp_rank < 0 || part->tp_rank >= part->tp)
        return ls_error_set(error, LS_EINVAL, "there is no rank %ld of %ld tensor-parallel ones",
                            (long)part->tp_rank, (long)part->tp);
    int status = ls_model_admits_tiles(c, n->tp_tiles, error);
    if (status) {
        ls_error_prefix(error, "tp_tiles %ld", (long)n->tp_tiles);
        return status;
    }
    status = ls_model_admits_tp(c, n, part->tp, error);
    if (status)
        ls_error_prefix(error, "%ld tensor-parallel ranks", (long)part->tp);
    return status;
}

int ls_params_init(struct ls_params *params, const struct ls_model_config *config,
                   const struct ls_numerics *numerics, const struct ls_part *part,
                   struct ls_error *error)
{
    struct builder b = {.params = params,
                        .config = config,
                        .numerics = numerics,
                        .part = {.tp = 1},
                        .owned = true,
                        .tied.region = LS_REGION_NONE};
    if (part)
        b.part = *part;
    *params = (struct ls_params){.tied_param = -1, .shared_param = -1, .head_region = -1};
    int status = config_check(config, numerics, &b.part, error);
    if (status)
        return status;
    b.capacity = parameters_most(config);
    params->list = b.list = calloc((size_t)b.capacity, sizeof *b.list);
    params->units = b.units = calloc((size_t)config->layers + 2, sizeof *b.units);
    params->regions = b.regions = calloc((size_t)config->layers + 4, sizeof *b.regions);
    if (!params->list || !params->units || !params->regions) {
        ls_params_release(params);
        return ls_no_memory(error, "for the list of parameters");
    }
    for (int layer = 0; layer <= config->layers + 1; layer++)
        if (held(&b, layer))
            layer_add(&b, layer);
    for (int i = 0; i < params->region_count; i++)
        b.regions[i].elements = ls_round_up(b.regions[i].elements, 16);
    status = layout_join(&b, error);
    if (status)
        ls_params_release(params);
    return status;
}

void ls_params_release(struct ls_params *params)
{
    free((void *)params->list);
    free((void *)params->units);
    free((void *)params->regions);
    *params = (struct ls_params){.tied_param = -1, .shared_param = -1, .head_region = -1};
}

int64_t ls_layer_param_elements_max(const struct ls_model_config *config, int64_t layer, int64_t tp)
{
    struct builder b = {.config = config, .part = {.tp = tp}};
    int64_t most = 0;
    for (const struct parameter *p = program_of(config, layer)->parameters; p->role; p++) {
        struct ls_param param = {0};
        param_shape(&b, p, &param);
        if (parameter_present(p, config))
            most = ls_max(most, param.rows * ls_max(param.cols, config->lora.rank));
    }
    return most;
}

int ls_params_unit(const struct ls_params *params, int layer)
{
    for (int i = 0; i < params->unit_count; i++)
        if (params->units[i].layer == layer)
            return i;
    return -1;
}

int ls_params_region(const struct ls_params *params, int layer)
{
    for (int i = 0; i < params->region_count; i++)
        if (params->regions[i].layer == layer && i != params->head_region)
            return i;
    return -1;
}

/* ---- values ---------------------------------------------------------------------------------- */

struct ls_places ls_param_places(const struct ls_param *param, int64_t first)
{
    return (struct ls_places){.first = first,
                              .cols = param->cols,
                              .corner = param->first_row * param->global_cols + param->first_col,
                              .whole_cols = param->global_cols};
}

/* Element i of the part held, row-major, as the piece of one row that begins there: where it lies
 * in the whole parameter, and how many elements of [i, end) follow in the same row. */
struct row_piece {
    int64_t row, index, count;
};

static struct row_piece run_at(const struct ls_param *param, int64_t i, int64_t end)
{
    struct ls_places places = ls_param_places(param, i);
    return (struct row_piece){.row = param->first_row + i / param->cols,
                              .index = ls_place(&places, 0),
                              .count = ls_min(param->cols - i % param->cols, end - i)};
}

void ls_param_fill(const struct ls_param *param, uint64_t seed, struct ls_ops *ops, int64_t first,
                   int64_t count, float *values)
{
    char purpose[LS_PARAM_NAME_MAX + 16];
    snprintf(purpose, sizeof purpose, "init:%s", param->name);
    struct ls_philox_key key = ls_philox_key_of(seed, purpose);
    int64_t end = first + count, first_row = first / param->cols;
    int64_t rows = count > 0 ? (end - 1) / param->cols - first_row + 1 : 0;
    int team = ls_ops_team(ops, count);
#pragma omp parallel for num_threads(team) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        int64_t begin = ls_max((first_row + r) * param->cols, first);
        struct row_piece run = run_at(param, begin, end);
        float *row = values + (begin - first);
        if (param->init == LS_INIT_NORMAL && run.row < param->live_rows)
            ls_normal_fill(key, run.index, run.count, 0, param->init_std, row);
        else
            for (int64_t i = 0; i < run.count; i++)
                row[i] = param->init == LS_INIT_ONE ? 1.0f : 0.0f;
    }
}

static void digest_run(const char *name, const struct row_piece *run, enum ls_dtype dtype,
                       const void *values, struct ls_digest *digest)
{
    enum { PIECE = 512 };
    float wide[PIECE];
    if (dtype == LS_F32) {
        ls_digest_floats(digest, name, run->index, run->count, values);
        return;
    }
    for (int64_t at = 0; at < run->count; at += PIECE) {
        int64_t n = ls_min(PIECE, run->count - at);
        for (int64_t i = 0; i < n; i++)
            wide[i] = ls_half_to_f32(dtype, ((const ls_half *)values)[at + i]);
        ls_digest_floats(digest, name, run->index + at, n, wide);
    }
}

void ls_param_digest(const struct ls_param *param, struct ls_ops *ops, const char *prefix,
                     int64_t first, int64_t count, enum ls_dtype dtype, const void *values,
                     struct ls_digest *digest)
{
    char name[LS_PARAM_NAME_MAX + 32];
    snprintf(name, sizeof name, "%s%s", prefix, param->name);
    int64_t end = first + count, first_row = first / param->cols;
    int64_t rows = count > 0 ? (end - 1) / param->cols - first_row + 1 : 0;
    uint64_t low = 0, high = 0;
    int team = ls_ops_team(ops, count);
#pragma omp parallel for num_threads(team) schedule(static) reduction(+ : low, high)
    for (int64_t r = 0; r < rows; r++) {
        int64_t begin = ls_max((first_row + r) * param->cols, first);
        struct row_piece run = run_at(param, begin, end);
        struct ls_digest part = {0, 0};
        digest_run(name, &run, dtype,
                   (const char *)values + (size_t)(begin - first) * ls_dtype_bytes(dtype), &part);
        low += part.low;
        high += part.high;
    }
    ls_digest_merge(digest, &(struct ls_digest){low, high});
}
