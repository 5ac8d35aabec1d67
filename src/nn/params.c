#include <lockstep/nn.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_PARAMS_MAX = 18, OTHER_PARAMS_MAX = 6 };

struct builder {
    struct ls_params *params;
    const struct ls_model_config *config;
    struct ls_part part;
    struct ls_unit *unit; /* the one being filled */
    int capacity;
    bool owned; /* what is added is this rank's to answer for, if tp rank 0 */
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
static struct cut cut_kv(const struct builder *b)
{
    const struct ls_model_config *c = b->config;
    if (b->part.tp <= c->kv_heads)
        return cut_even(b, c->kv_heads * c->head_dim);
    int64_t sharers = b->part.tp / c->kv_heads, head = b->part.tp_rank / sharers;
    return (struct cut){head * c->head_dim, c->head_dim, b->part.tp_rank % sharers == 0};
}

/* ---- units and parameters -------------------------------------------------------------------- */

static void unit_begin(struct builder *b, int layer)
{
    struct ls_params *params = b->params;
    struct ls_region *region = &params->regions[params->region_count++];
    b->unit = &params->units[params->unit_count++];
    *b->unit = (struct ls_unit){.layer = layer, .first_param = params->count};
    *region = (struct ls_region){.layer = layer};
}

/* A unit that stayed empty does not exist, nor does an empty region. */
static void unit_end(struct builder *b)
{
    struct ls_params *params = b->params;
    b->unit->elements = ls_round_up(b->unit->elements, 16);
    params->elements += b->unit->elements;
    if (b->unit->param_count == 0)
        params->unit_count--;
    if (params->regions[params->region_count - 1].elements == 0)
        params->region_count--;
}

/* The next parameter of the unit, right behind the one before it. */
static struct ls_param *param_add(struct builder *b, const char *name_format, int64_t layer)
{
    struct ls_params *params = b->params;
    LS_ASSERT(params->count < b->capacity);
    struct ls_param *param = &params->list[params->count++];
    b->unit->param_count++;
    *param = (struct ls_param){.unit = params->unit_count - 1, .region = params->region_count - 1};
    const char *number = strstr(name_format, "%ld");
    if (number)
        snprintf(param->name, sizeof param->name, "%.*s%ld%s", (int)(number - name_format),
                 name_format, (long)layer, number + 3);
    else
        snprintf(param->name, sizeof param->name, "%s", name_format);
    return param;
}

/* Gives the parameter its place behind what the unit and its region hold. */
static void param_place(struct builder *b, struct ls_param *param)
{
    struct ls_region *region = &b->params->regions[param->region];
    int64_t elements = param->rows * param->cols;
    param->offset = b->unit->elements;
    param->region_offset = region->elements;
    b->unit->elements += elements;
    region->elements += elements;
    b->params->weights += elements;
    if (param->matrix)
        b->unit->matrix_elements = b->unit->elements;
}

/* Matrices and vectors that stand alone begin on a cache line; stacked ones follow each other. */
static void align(struct builder *b)
{
    struct ls_region *region = &b->params->regions[b->params->region_count - 1];
    bool vectors = b->unit->elements > b->unit->matrix_elements;
    b->unit->elements = ls_round_up(b->unit->elements, 16);
    region->elements = ls_round_up(region->elements, 16);
    if (!vectors)
        b->unit->matrix_elements = b->unit->elements;
}

static struct ls_param *weight_add(struct builder *b, int64_t rows, int64_t cols, struct cut row,
                                   struct cut col, float std, const char *name_format,
                                   int64_t layer)
{
    struct ls_param *param = param_add(b, name_format, layer);
    param->rows = row.count;
    param->cols = col.count;
    param->global_rows = param->live_rows = rows;
    param->global_cols = cols;
    param->first_row = row.first;
    param->first_col = col.first;
    /* Where neither dim is cut both cuts say the same; where one is, it decides. */
    param->owned = b->owned && (row.count < rows ? row.owned : col.owned);
    param->matrix = true;
    param->decay = true;
    param->init = LS_INIT_NORMAL;
    param->init_std = std;
    param_place(b, param);
    return param;
}

static void vector_add(struct builder *b, int64_t count, struct cut cut, enum ls_init init,
                       const char *name_format, int64_t layer)
{
    struct ls_param *param = param_add(b, name_format, layer);
    param->rows = param->global_rows = param->live_rows = 1;
    param->cols = cut.count;
    param->global_cols = count;
    param->first_col = cut.first;
    param->owned = b->owned && cut.owned;
    param->init = init;
    param_place(b, param);
}

static void norm_add(struct builder *b, const char *weight_format, const char *bias_format,
                     int64_t layer)
{
    const struct ls_model_config *c = b->config;
    align(b);
    vector_add(b, c->channels, cut_none(b, c->channels), LS_INIT_ONE, weight_format, layer);
    if (c->arch == LS_GPT2 && c->bias) {
        align(b);
        vector_add(b, c->channels, cut_none(b, c->channels), LS_INIT_ZERO, bias_format, layer);
    }
}

static void block_matrices_add(struct builder *b, int64_t i)
{
    const struct ls_model_config *c = b->config;
    int64_t channels = c->channels, q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    float std = c->init_std;
    float residual_std = c->arch == LS_GPT2 ? std / sqrtf(2.0f * (float)c->layers) : std;
    struct cut whole = cut_none(b, channels);
    weight_add(b, q, channels, cut_even(b, q), whole, std, "h.%ld.attn.q.weight", i);
    weight_add(b, kv, channels, cut_kv(b), whole, std, "h.%ld.attn.k.weight", i);
    weight_add(b, kv, channels, cut_kv(b), whole, std, "h.%ld.attn.v.weight", i);
    align(b);
    weight_add(b, channels, q, whole, cut_even(b, q), residual_std, "h.%ld.attn.proj.weight", i);
    align(b);
    struct cut ffn = cut_even(b, c->ffn);
    if (c->act == LS_ACT_SWIGLU)
        weight_add(b, c->ffn, channels, ffn, whole, std, "h.%ld.mlp.gate.weight", i);
    weight_add(b, c->ffn, channels, ffn, whole, std, "h.%ld.mlp.up.weight", i);
    align(b);
    weight_add(b, channels, c->ffn, whole, ffn, residual_std, "h.%ld.mlp.down.weight", i);
    align(b);
}

static void block_vectors_add(struct builder *b, int64_t i)
{
    const struct ls_model_config *c = b->config;
    bool gpt2 = c->arch == LS_GPT2;
    int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    norm_add(b, gpt2 ? "h.%ld.ln_1.weight" : "h.%ld.norm_1.weight", "h.%ld.ln_1.bias", i);
    if (c->bias) {
        struct cut whole = cut_none(b, c->channels), ffn = cut_even(b, c->ffn);
        align(b);
        vector_add(b, q, cut_even(b, q), LS_INIT_ZERO, "h.%ld.attn.q.bias", i);
        vector_add(b, kv, cut_kv(b), LS_INIT_ZERO, "h.%ld.attn.k.bias", i);
        vector_add(b, kv, cut_kv(b), LS_INIT_ZERO, "h.%ld.attn.v.bias", i);
        align(b);
        vector_add(b, c->channels, whole, LS_INIT_ZERO, "h.%ld.attn.proj.bias", i);
        align(b);
        if (c->act == LS_ACT_SWIGLU)
            vector_add(b, c->ffn, ffn, LS_INIT_ZERO, "h.%ld.mlp.gate.bias", i);
        vector_add(b, c->ffn, ffn, LS_INIT_ZERO, "h.%ld.mlp.up.bias", i);
        align(b);
        vector_add(b, c->channels, whole, LS_INIT_ZERO, "h.%ld.mlp.down.bias", i);
    }
    norm_add(b, gpt2 ? "h.%ld.ln_2.weight" : "h.%ld.norm_2.weight", "h.%ld.ln_2.bias", i);
}

static void table_add(struct builder *b, const char *name)
{
    const struct ls_model_config *c = b->config;
    struct ls_param *table =
        weight_add(b, c->vocab_padded, c->channels, cut_even(b, c->vocab_padded),
                   cut_none(b, c->channels), c->init_std, name, 0);
    table->live_rows = c->vocab;
    align(b);
}

static bool held(const struct builder *b, int64_t layer)
{
    return !b->part.layers || b->part.layers[layer];
}

/* A tied table is the head's; where this rank does not hold the head, the last stage answers for
 * it, and where it does, the embedding layer's gradient of it has a place in that layer's region.
 */
static void embedding_add(struct builder *b)
{
    const struct ls_model_config *c = b->config;
    struct ls_params *params = b->params;
    unit_begin(b, 0);
    if (!c->tied) {
        table_add(b, "wte.weight");
    } else if (!held(b, c->layers + 1)) {
        params->shared_param = params->count;
        b->owned = false;
        table_add(b, "wte.weight");
        b->owned = true;
    }
    if (c->arch == LS_GPT2)
        weight_add(b, c->context, c->channels, cut_none(b, c->context), cut_none(b, c->channels),
                   c->init_std, "wpe.weight", 0);
    align(b);
    if (c->tied && held(b, c->layers + 1)) {
        struct ls_region *region = &params->regions[params->region_count - 1];
        params->tied_region = params->region_count - 1;
        params->tied_offset = region->elements;
        region->elements += c->vocab_padded / b->part.tp * c->channels;
    }
    unit_end(b);
}

/* The head's matrix is the unit's first parameter; its gradient is a region of its own. */
static void head_add(struct builder *b)
{
    struct ls_params *params = b->params;
    const struct ls_model_config *c = b->config;
    int layer = (int)c->layers + 1;
    unit_begin(b, layer);
    params->head_region = params->region_count - 1;
    if (c->tied && held(b, 0))
        params->tied_param = params->count;
    else if (c->tied)
        params->shared_param = params->count;
    table_add(b, c->tied ? "wte.weight" : "head.weight");
    params->regions[params->region_count++] = (struct ls_region){.layer = layer};
    norm_add(b, c->arch == LS_GPT2 ? "ln_f.weight" : "norm_f.weight", "ln_f.bias", 0);
    unit_end(b);
}

/* ---- all of it ------------------------------------------------------------------------------- */

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
    int64_t r = n->tp_tiles, tp = part->tp;
    if (!ls_is_pow2(r) || c->heads % r || c->kv_heads * c->head_dim % r || c->ffn % r ||
        c->vocab_padded % r || (c->kv_heads % r && r % c->kv_heads))
        return ls_error_set(error, LS_EINVAL,
                            "tp_tiles %ld must be a power of two that divides heads %ld, ffn %ld, "
                            "the padded vocabulary %ld and kv_heads * head_dim %ld, and that is a "
                            "multiple or a divisor of kv_heads %ld",
                            (long)r, (long)c->heads, (long)c->ffn, (long)c->vocab_padded,
                            (long)(c->kv_heads * c->head_dim), (long)c->kv_heads);
    if (tp < 1 || part->tp_rank < 0 || part->tp_rank >= tp ||
        (n->fast ? c->heads % tp || c->ffn % tp || c->vocab_padded % tp ||
                       (c->kv_heads % tp && tp % c->kv_heads)
                 : r % tp))
        return ls_error_set(error, LS_EINVAL,
                            "%ld tensor-parallel ranks cannot share this model: tp must divide "
                            "tp_tiles = %ld",
                            (long)tp, (long)r);
    return LS_OK;
}

int ls_params_init(struct ls_params *params, const struct ls_model_config *config,
                   const struct ls_numerics *numerics, const struct ls_part *part,
                   struct ls_error *error)
{
    struct builder b = {.params = params, .config = config, .part = {.tp = 1}, .owned = true};
    if (part)
        b.part = *part;
    *params = (struct ls_params){
        .tied_param = -1, .shared_param = -1, .head_region = -1, .tied_region = -1};
    int status = config_check(config, numerics, &b.part, error);
    if (status)
        return status;
    b.capacity = (int)config->layers * BLOCK_PARAMS_MAX + OTHER_PARAMS_MAX;
    params->list = calloc((size_t)b.capacity, sizeof *params->list);
    params->units = calloc((size_t)config->layers + 2, sizeof *params->units);
    params->regions = calloc((size_t)config->layers + 4, sizeof *params->regions);
    if (!params->list || !params->units || !params->regions) {
        ls_params_release(params);
        return ls_error_set(error, LS_ENOMEM, "no memory for the list of parameters");
    }
    if (held(&b, 0))
        embedding_add(&b);
    for (int64_t i = 0; i < config->layers; i++) {
        if (!held(&b, i + 1))
            continue;
        unit_begin(&b, (int)i + 1);
        block_matrices_add(&b, i);
        block_vectors_add(&b, i);
        unit_end(&b);
    }
    if (held(&b, config->layers + 1))
        head_add(&b);
    for (int i = 0; i < params->region_count; i++)
        params->regions[i].elements = ls_round_up(params->regions[i].elements, 16);
    return LS_OK;
}

void ls_params_release(struct ls_params *params)
{
    free(params->list);
    free(params->units);
    free(params->regions);
    *params = (struct ls_params){
        .tied_param = -1, .shared_param = -1, .head_region = -1, .tied_region = -1};
}

const struct ls_param *ls_params_find(const struct ls_params *params, const char *name)
{
    for (int i = 0; i < params->count; i++)
        if (!strcmp(params->list[i].name, name))
            return &params->list[i];
    return NULL;
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

/* Element i of the part held, row-major, as the piece of one row that begins there: where it lies
 * in the whole parameter, and how many elements of [i, end) follow in the same row. */
struct run {
    int64_t row, index, count;
};

static struct run run_at(const struct ls_param *param, int64_t i, int64_t end)
{
    int64_t row = i / param->cols, col = i % param->cols;
    return (struct run){.row = param->first_row + row,
                        .index =
                            (param->first_row + row) * param->global_cols + param->first_col + col,
                        .count = ls_min(param->cols - col, end - i)};
}

void ls_param_fill(const struct ls_param *param, uint64_t seed, struct ls_ops *ops, int64_t first,
                   int64_t count, float *values)
{
    char purpose[LS_PARAM_NAME_MAX + 16];
    snprintf(purpose, sizeof purpose, "init:%s", param->name);
    struct ls_philox_key key = ls_philox_key_of(seed, purpose);
    int64_t end = first + count, first_row = first / param->cols;
    int64_t rows = count > 0 ? (end - 1) / param->cols - first_row + 1 : 0;
#pragma omp parallel for num_threads(ops->threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        int64_t begin = ls_max((first_row + r) * param->cols, first);
        struct run run = run_at(param, begin, end);
        float *row = values + (begin - first);
        if (param->init == LS_INIT_NORMAL && run.row < param->live_rows)
            ls_normal_fill(key, run.index, run.count, 0, param->init_std, row);
        else
            for (int64_t i = 0; i < run.count; i++)
                row[i] = param->init == LS_INIT_ONE ? 1.0f : 0.0f;
    }
}

void ls_param_digest(const struct ls_param *param, struct ls_ops *ops, const char *prefix,
                     int64_t first, int64_t count, const float *values, struct ls_digest *digest)
{
    char name[LS_PARAM_NAME_MAX + 32];
    snprintf(name, sizeof name, "%s%s", prefix, param->name);
    int64_t end = first + count, first_row = first / param->cols;
    int64_t rows = count > 0 ? (end - 1) / param->cols - first_row + 1 : 0;
    uint64_t low = 0, high = 0;
#pragma omp parallel for num_threads(ops->threads) schedule(static) reduction(+ : low, high)
    for (int64_t r = 0; r < rows; r++) {
        int64_t begin = ls_max((first_row + r) * param->cols, first);
        struct run run = run_at(param, begin, end);
        struct ls_digest part = {0, 0};
        ls_digest_floats(&part, name, run.index, run.count, values + (begin - first));
        low += part.low;
        high += part.high;
    }
    ls_digest_merge(digest, &(struct ls_digest){low, high});
}

double ls_model_flops_per_token(const struct ls_model_config *c, int64_t tokens)
{
    double q = (double)(c->heads * c->head_dim), kv = (double)(c->kv_heads * c->head_dim);
    double channels = (double)c->channels, ffn = (double)c->ffn;
    double attention = channels * (2 * q + 2 * kv);
    double mlp = channels * ffn * (c->act == LS_ACT_SWIGLU ? 3 : 2);
    double weights = (double)c->layers * (attention + mlp) + channels * (double)c->vocab_padded;
    return 6 * weights + 12 * (double)c->layers * q * (double)tokens;
}
