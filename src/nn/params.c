#include <lockstep/nn.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_PARAMS_MAX = 18, OTHER_PARAMS_MAX = 5 };

struct builder {
    struct ls_params *params;
    const struct ls_numerics *numerics;
    int capacity, layer;
};

/* The next parameter, right behind the one before it. */
static struct ls_param *param_add(struct builder *b, int64_t rows, int64_t cols,
                                  const char *name_format, int64_t layer)
{
    struct ls_params *params = b->params;
    LS_ASSERT(params->count < b->capacity);
    struct ls_param *param = &params->list[params->count++];
    *param = (struct ls_param){.rows = rows,
                               .cols = cols,
                               .col_tiles = 1,
                               .offset = params->elements,
                               .layer = b->layer,
                               .init = LS_INIT_ZERO};
    const char *number = strstr(name_format, "%ld");
    if (number)
        snprintf(param->name, sizeof param->name, "%.*s%ld%s", (int)(number - name_format),
                 name_format, (long)layer, number + 3);
    else
        snprintf(param->name, sizeof param->name, "%s", name_format);
    params->elements += rows * cols;
    params->weights += rows * cols;
    return param;
}

/* Matrices and vectors that stand alone begin on a cache line; stacked ones follow each other. */
static void align(struct builder *b)
{
    b->params->elements = ls_round_up(b->params->elements, 16);
}

static struct ls_param *weight_add(struct builder *b, int64_t rows, int64_t cols, float std,
                                   const char *name_format, int64_t layer)
{
    struct ls_param *param = param_add(b, rows, cols, name_format, layer);
    param->decay = true;
    param->init = LS_INIT_NORMAL;
    param->init_std = std;
    return param;
}

static void vector_add(struct builder *b, int64_t count, enum ls_init init, int64_t col_tiles,
                       const char *name_format, int64_t layer)
{
    struct ls_param *param = param_add(b, 1, count, name_format, layer);
    param->init = init;
    param->col_tiles = col_tiles;
}

static void norm_add(struct builder *b, const struct ls_model_config *config,
                     const char *weight_format, const char *bias_format, int64_t layer)
{
    align(b);
    vector_add(b, config->channels, LS_INIT_ONE, 1, weight_format, layer);
    if (config->arch == LS_GPT2 && config->bias) {
        align(b);
        vector_add(b, config->channels, LS_INIT_ZERO, 1, bias_format, layer);
    }
}

static void block_add(struct builder *b, const struct ls_model_config *config, int64_t i)
{
    bool gpt2 = config->arch == LS_GPT2;
    int64_t c = config->channels, q = config->heads * config->head_dim,
            kv = config->kv_heads * config->head_dim, tiles = b->numerics->tp_tiles;
    float std = config->init_std;
    float residual_std = gpt2 ? std / sqrtf(2.0f * (float)config->layers) : std;
    norm_add(b, config, gpt2 ? "h.%ld.ln_1.weight" : "h.%ld.norm_1.weight", "h.%ld.ln_1.bias", i);
    align(b);
    weight_add(b, q, c, std, "h.%ld.attn.q.weight", i);
    weight_add(b, kv, c, std, "h.%ld.attn.k.weight", i);
    weight_add(b, kv, c, std, "h.%ld.attn.v.weight", i);
    if (config->bias) {
        align(b);
        vector_add(b, q, LS_INIT_ZERO, tiles, "h.%ld.attn.q.bias", i);
        vector_add(b, kv, LS_INIT_ZERO, tiles, "h.%ld.attn.k.bias", i);
        vector_add(b, kv, LS_INIT_ZERO, tiles, "h.%ld.attn.v.bias", i);
    }
    align(b);
    weight_add(b, c, q, residual_std, "h.%ld.attn.proj.weight", i)->col_tiles = tiles;
    if (config->bias) {
        align(b);
        vector_add(b, c, LS_INIT_ZERO, 1, "h.%ld.attn.proj.bias", i);
    }
    norm_add(b, config, gpt2 ? "h.%ld.ln_2.weight" : "h.%ld.norm_2.weight", "h.%ld.ln_2.bias", i);
    align(b);
    if (config->act == LS_ACT_SWIGLU)
        weight_add(b, config->ffn, c, std, "h.%ld.mlp.gate.weight", i);
    weight_add(b, config->ffn, c, std, "h.%ld.mlp.up.weight", i);
    if (config->bias) {
        align(b);
        if (config->act == LS_ACT_SWIGLU)
            vector_add(b, config->ffn, LS_INIT_ZERO, tiles, "h.%ld.mlp.gate.bias", i);
        vector_add(b, config->ffn, LS_INIT_ZERO, tiles, "h.%ld.mlp.up.bias", i);
    }
    align(b);
    weight_add(b, c, config->ffn, residual_std, "h.%ld.mlp.down.weight", i)->col_tiles = tiles;
    if (config->bias) {
        align(b);
        vector_add(b, c, LS_INIT_ZERO, 1, "h.%ld.mlp.down.bias", i);
    }
    align(b);
}

static int config_check(const struct ls_model_config *c, const struct ls_numerics *n,
                        struct ls_error *error)
{
    if (c->layers < 1 || c->channels < 1 || c->heads < 1 || c->kv_heads < 1 || c->head_dim < 1 ||
        c->ffn < 1 || c->context < 1 || c->vocab < 1 || c->vocab_padded < c->vocab)
        return ls_error_set(error, LS_EINVAL,
                            "every size of the model must be at least 1 and the "
                            "padded vocabulary at least the vocabulary");
    if (c->heads % c->kv_heads)
        return ls_error_set(error, LS_EINVAL, "kv_heads %ld does not divide heads %ld",
                            (long)c->kv_heads, (long)c->heads);
    int64_t r = n->tp_tiles;
    if (!ls_is_pow2(r) || c->heads % r || c->kv_heads * c->head_dim % r || c->ffn % r ||
        c->vocab_padded % r || (c->kv_heads % r && r % c->kv_heads))
        return ls_error_set(error, LS_EINVAL,
                            "tp_tiles %ld must be a power of two that divides heads %ld, ffn %ld, "
                            "the padded vocabulary %ld and kv_heads * head_dim %ld, and that is a "
                            "multiple or a divisor of kv_heads %ld",
                            (long)r, (long)c->heads, (long)c->ffn, (long)c->vocab_padded,
                            (long)(c->kv_heads * c->head_dim), (long)c->kv_heads);
    return LS_OK;
}

int ls_params_init(struct ls_params *params, const struct ls_model_config *config,
                   const struct ls_numerics *numerics, struct ls_error *error)
{
    *params = (struct ls_params){.tied_param = -1};
    int status = config_check(config, numerics, error);
    if (status)
        return status;
    struct builder b = {.params = params, .numerics = numerics};
    b.capacity = (int)config->layers * BLOCK_PARAMS_MAX + OTHER_PARAMS_MAX;
    params->list = calloc((size_t)b.capacity, sizeof *params->list);
    if (!params->list)
        return ls_error_set(error, LS_ENOMEM, "no memory for the list of parameters");
    int64_t v = config->vocab_padded, c = config->channels;
    float std = config->init_std;
    int head_layer = (int)config->layers + 1;
    if (!config->tied)
        weight_add(&b, v, c, std, "wte.weight", 0);
    align(&b);
    if (config->arch == LS_GPT2)
        weight_add(&b, config->context, c, std, "wpe.weight", 0);
    for (int64_t i = 0; i < config->layers; i++) {
        b.layer = (int)i + 1;
        block_add(&b, config, i);
    }
    b.layer = head_layer;
    norm_add(&b, config, config->arch == LS_GPT2 ? "ln_f.weight" : "norm_f.weight", "ln_f.bias", 0);
    align(&b);
    if (config->tied) {
        params->tied_param = params->count;
        params->tied_elements = ls_round_up(v * c, 16);
        weight_add(&b, v, c, std, "wte.weight", 0);
    } else {
        weight_add(&b, v, c, std, "head.weight", 0);
    }
    align(&b);
    params->gradient_elements = params->elements + params->tied_elements;
    return LS_OK;
}

void ls_params_release(struct ls_params *params)
{
    free(params->list);
    *params = (struct ls_params){.tied_param = -1};
}

const struct ls_param *ls_params_find(const struct ls_params *params, const char *name)
{
    for (int i = 0; i < params->count; i++)
        if (!strcmp(params->list[i].name, name))
            return &params->list[i];
    return NULL;
}

/* Rows that take part: the vocabulary's padding does not. */
static int64_t live_rows(const struct ls_param *param, const struct ls_model_config *config)
{
    bool vocabulary = !strcmp(param->name, "wte.weight") || !strcmp(param->name, "head.weight");
    return vocabulary ? config->vocab : param->rows;
}

void ls_params_fill(const struct ls_params *params, const struct ls_model_config *config,
                    struct ls_ops *ops, float *master)
{
    ls_fill_zero(ops, (size_t)params->elements * sizeof *master, master);
    for (int i = 0; i < params->count; i++) {
        const struct ls_param *param = &params->list[i];
        float *values = master + param->offset;
        int64_t rows = live_rows(param, config), cols = param->cols;
        if (param->init == LS_INIT_ONE)
            for (int64_t j = 0; j < rows * cols; j++)
                values[j] = 1.0f;
        if (param->init != LS_INIT_NORMAL)
            continue;
        char purpose[LS_PARAM_NAME_MAX + 16];
        snprintf(purpose, sizeof purpose, "init:%s", param->name);
        struct ls_philox_key key = ls_philox_key_of(config->seed, purpose);
#pragma omp parallel for num_threads(ops->threads) schedule(static)
        for (int64_t row = 0; row < rows; row++)
            ls_normal_fill(key, row * cols, cols, 0, param->init_std, values + row * cols);
    }
}

void ls_params_digest(const struct ls_params *params, struct ls_ops *ops, const char *prefix,
                      const float *values, struct ls_digest *digest)
{
    for (int i = 0; i < params->count; i++) {
        const struct ls_param *param = &params->list[i];
        char name[LS_PARAM_NAME_MAX + 32];
        snprintf(name, sizeof name, "%s%s", prefix, param->name);
        int64_t width = param->cols / param->col_tiles;
        uint64_t low = 0, high = 0;
#pragma omp parallel for num_threads(ops->threads) schedule(static) reduction(+ : low, high)
        for (int64_t row = 0; row < param->rows; row++) {
            struct ls_digest part = {0, 0};
            for (int64_t tile = 0; tile < param->col_tiles; tile++)
                ls_digest_piece(&part, name, row, tile,
                                values + param->offset + row * param->cols + tile * width,
                                (size_t)width * sizeof *values);
            low += part.low;
            high += part.high;
        }
        ls_digest_merge(digest, &(struct ls_digest){low, high});
    }
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
