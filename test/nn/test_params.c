/* The list of parameters: names, places, initial values, digests. */
#include <lockstep/config.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ls_numerics numerics = {.tp_tiles = 2, .seq_tiles = 1, .leaf_sequences = 1};

static struct ls_model_config small_model(enum ls_arch arch, bool tied)
{
    bool llama = arch == LS_LLAMA;
    return (struct ls_model_config){.arch = arch,
                                    .vocab = 37,
                                    .vocab_padded = 48,
                                    .layers = 3,
                                    .channels = 20,
                                    .heads = 4,
                                    .kv_heads = llama ? 2 : 4,
                                    .head_dim = 8,
                                    .ffn = 46,
                                    .context = 9,
                                    .tied = tied,
                                    .bias = !llama,
                                    .act = llama ? LS_ACT_SWIGLU : LS_ACT_GELU_TANH,
                                    .norm_epsilon = 1e-5f,
                                    .rope_theta = 10000,
                                    .init_std = 0.02f,
                                    .seed = 11};
}

static void params_open(struct ls_params *params, const struct ls_model_config *config)
{
    struct ls_error error = {0};
    if (ls_params_init(params, config, &numerics, &error))
        fail_msg("%s", error.text);
}

/* The parameter of that name and shape; fails where there is none. */
static const struct ls_param *expect(const struct ls_params *params, const char *name, int64_t rows,
                                     int64_t cols)
{
    const struct ls_param *p = ls_params_find(params, name);
    if (!p)
        fail_msg("%s is missing", name);
    if (p->rows != rows || p->cols != cols)
        fail_msg("%s is [%ld, %ld], expected [%ld, %ld]", name, (long)p->rows, (long)p->cols,
                 (long)rows, (long)cols);
    return p;
}

static int64_t end_of(const struct ls_param *p)
{
    return p->offset + p->rows * p->cols;
}

static void test_names_and_shapes(void **state)
{
    (void)state;
    struct ls_params gpt2, llama;
    struct ls_model_config config = small_model(LS_GPT2, true);
    params_open(&gpt2, &config);
    expect(&gpt2, "wte.weight", 48, 20);
    expect(&gpt2, "wpe.weight", 9, 20);
    expect(&gpt2, "h.0.ln_1.weight", 1, 20);
    expect(&gpt2, "h.2.ln_2.bias", 1, 20);
    expect(&gpt2, "h.1.attn.proj.weight", 20, 32);
    expect(&gpt2, "h.1.attn.proj.bias", 1, 20);
    expect(&gpt2, "h.2.mlp.up.weight", 46, 20);
    expect(&gpt2, "h.2.mlp.up.bias", 1, 46);
    expect(&gpt2, "h.2.mlp.down.weight", 20, 46);
    expect(&gpt2, "ln_f.bias", 1, 20);
    assert_null(ls_params_find(&gpt2, "head.weight"));
    assert_null(ls_params_find(&gpt2, "h.3.ln_1.weight"));
    config = small_model(LS_LLAMA, false);
    params_open(&llama, &config);
    expect(&llama, "wte.weight", 48, 20);
    expect(&llama, "head.weight", 48, 20);
    expect(&llama, "h.0.norm_1.weight", 1, 20);
    expect(&llama, "h.0.mlp.gate.weight", 46, 20);
    expect(&llama, "norm_f.weight", 1, 20);
    assert_null(ls_params_find(&llama, "wpe.weight"));
    for (int i = 0; i < llama.count; i++)
        if (strstr(llama.list[i].name, "bias"))
            fail_msg("llama has no biases, but %s", llama.list[i].name);
    ls_params_release(&gpt2);
    ls_params_release(&llama);
}

/* q, k and v (and gate and up) are one stacked matrix each: no gap between them. */
static void test_stacks_are_contiguous(void **state)
{
    (void)state;
    for (int arch = LS_GPT2; arch <= LS_LLAMA; arch++) {
        struct ls_model_config config = small_model((enum ls_arch)arch, true);
        struct ls_params params;
        params_open(&params, &config);
        for (int layer = 0; layer < config.layers; layer++) {
            static const char *const stacks[][3] = {
                {"attn.q.weight", "attn.k.weight", "attn.v.weight"},
                {"attn.q.bias", "attn.k.bias", "attn.v.bias"},
                {"mlp.gate.weight", "mlp.up.weight", NULL}};
            for (int s = 0; s < 3; s++)
                for (int i = 0; i < 2 && stacks[s][i + 1]; i++) {
                    char name[2][64];
                    for (int j = 0; j < 2; j++)
                        snprintf(name[j], sizeof name[j], "h.%d.%s", layer, stacks[s][i + j]);
                    const struct ls_param *upper = ls_params_find(&params, name[0]);
                    const struct ls_param *lower = ls_params_find(&params, name[1]);
                    if (upper && lower)
                        assert_int_equal(lower->offset, end_of(upper));
                    else
                        assert_true(s > 0);
                }
        }
        ls_params_release(&params);
    }
}

static void check_places(const struct ls_model_config *config)
{
    struct ls_params params;
    params_open(&params, config);
    int64_t at = 0, weights = 0;
    for (int i = 0; i < params.count; i++) {
        const struct ls_param *p = &params.list[i];
        if (p->offset < at || p->offset >= at + 16)
            fail_msg("%s begins at %ld, the one before ends at %ld", p->name, (long)p->offset,
                     (long)at);
        assert_int_equal(p->cols % p->col_tiles, 0);
        assert_ptr_equal(ls_params_find(&params, p->name), p); /* names are unique */
        at = end_of(p);
        weights += p->rows * p->cols;
    }
    assert_true(params.elements >= at && params.elements < at + 16);
    assert_int_equal(params.weights, weights);
    assert_int_equal(params.gradient_elements, params.elements + params.tied_elements);
    if (config->tied) {
        assert_string_equal(params.list[params.tied_param].name, "wte.weight");
        assert_int_equal(params.tied_elements,
                         ls_round_up(config->vocab_padded * config->channels, 16));
    } else {
        assert_int_equal(params.tied_param, -1);
        assert_int_equal(params.tied_elements, 0);
    }
    ls_params_release(&params);
}

/* What the bucketed reduction stands on: from the head down to the embedding, the layers' ranges of
 * the gradient descend without a gap, cover all of it, and hold the layer's parameters. */
static void check_ranges(const struct ls_model_config *config)
{
    struct ls_params params;
    struct ls_error error = {0};
    struct ls_arena arena;
    struct ls_model *model;
    params_open(&params, config);
    ls_arena_measure(&arena);
    struct ls_model_options options = {.config = config,
                                       .numerics = &numerics,
                                       .params = &params,
                                       .sequences = 1,
                                       .tokens = config->context,
                                       .training = true};
    assert_int_equal(ls_model_new(&options, &arena, &model, &error), LS_OK);
    assert_int_equal(ls_model_layers(model), config->layers + 2);
    int64_t at = params.gradient_elements;
    for (int layer = ls_model_layers(model) - 1; layer >= 0; layer--) {
        int64_t begin, end;
        ls_layer_gradient_range(model, layer, &begin, &end);
        if (end != at || begin > end)
            fail_msg("layer %d: [%ld, %ld), expected it to end at %ld", layer, (long)begin,
                     (long)end, (long)at);
        at = begin;
        for (int i = 0; i < params.count; i++) {
            const struct ls_param *p = &params.list[i];
            int64_t place = params.tied_elements + p->offset;
            bool inside = place >= begin && place + p->rows * p->cols <= end;
            if (inside != (p->layer == layer))
                fail_msg("%s of layer %d is %s the range of layer %d", p->name, p->layer,
                         inside ? "in" : "not in", layer);
        }
        if (layer == 0)
            assert_true(end >= params.tied_elements); /* the table's own gradient */
    }
    assert_int_equal(at, 0);
    ls_model_free(model);
    ls_params_release(&params);
}

static void test_places_and_ranges(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        struct ls_model_config config = small_model(i & 1 ? LS_LLAMA : LS_GPT2, i & 2);
        if (i & 4) {
            config.bias = false;
            config.layers = 1;
        }
        check_places(&config);
        check_ranges(&config);
    }
}

/* Trained values of every preset; GPT-2's with the vocabulary padded from 50257 to 50304. */
static void test_presets(void **state)
{
    (void)state;
    static const struct {
        const char *preset;
        int64_t weights;
    } presets[] = {
        {"gpt2-124m", 124439808 + 47 * 768},
        {"gpt2-350m", 354823168 + 47 * 1024},
        {"gpt2-774m", 774030080 + 47 * 1280},
        {"gpt2-1558m", 1557611200 + 47 * 1600},
        {"llama-1b", 1235814400},
        {"llama-3b", 3212749824},
        {"llama-8b", 8030261248},
        {"llama-70b", 70553706496},
        {"llama-405b", 405853388800},
    };
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        struct ls_config config;
        struct ls_error error = {0};
        struct ls_params params;
        char key[64];
        ls_config_defaults(&config);
        snprintf(key, sizeof key, "model.preset=%s", presets[i].preset);
        if (ls_config_set(&config, key, &error) || ls_config_resolve(&config, 0, &error) ||
            ls_params_init(&params, &config.model,
                           &(struct ls_numerics){.tp_tiles = config.numerics.tp_tiles}, &error))
            fail_msg("%s: %s", presets[i].preset, error.text);
        if (params.weights != presets[i].weights)
            fail_msg("%s has %ld weights, expected %ld", presets[i].preset, (long)params.weights,
                     (long)presets[i].weights);
        ls_params_release(&params);
    }
}

/* ---- initial values -------------------------------------------------------------------------- */

/* Any shard filled on its own has the whole's values. */
static void check_shards(const struct ls_params *params, const struct ls_model_config *config,
                         const float *master)
{
    for (int i = 0; i < params->count; i++) {
        const struct ls_param *p = &params->list[i];
        if (p->init != LS_INIT_NORMAL)
            continue;
        char purpose[LS_PARAM_NAME_MAX + 8];
        snprintf(purpose, sizeof purpose, "init:%s", p->name);
        bool table = !strcmp(p->name, "wte.weight") || !strcmp(p->name, "head.weight");
        int64_t live = (table ? config->vocab : p->rows) * p->cols;
        for (int64_t at = 0, piece = 7; at < live; at += piece, piece += 3) {
            float shard[512];
            int64_t count = ls_min(ls_min(piece, live - at), 512);
            ls_normal_fill(ls_philox_key_of(config->seed, purpose), at, count, 0, p->init_std,
                           shard);
            if (memcmp(shard, master + p->offset + at, (size_t)count * sizeof *shard))
                fail_msg("%s: elements from %ld differ when they are filled alone", p->name,
                         (long)at);
            piece = count;
        }
        for (int64_t j = live; j < p->rows * p->cols; j++)
            if (master[p->offset + j] != 0)
                fail_msg("%s: padding element %ld is %g", p->name, (long)j,
                         (double)master[p->offset + j]);
    }
}

static double deviation(const struct ls_param *p, const float *master, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)master[p->offset + i] * (double)master[p->offset + i];
    return sqrt(sum / (double)count);
}

static void check_initial(enum ls_arch arch)
{
    struct ls_model_config config = small_model(arch, false);
    struct ls_params params;
    struct ls_ops ops;
    struct ls_error error = {0};
    params_open(&params, &config);
    size_t bytes = (size_t)params.elements * sizeof(float);
    float *one = malloc(bytes), *three = malloc(bytes);
    memset(one, 0x5a, bytes);
    memset(three, 0xa5, bytes);
    assert_int_equal(ls_ops_init(&ops, 1, LS_ISA_PLAIN, &error), LS_OK);
    ls_params_fill(&params, &config, &ops, one);
    ls_ops_release(&ops);
    assert_int_equal(ls_ops_init(&ops, 3, ls_isa_best(), &error), LS_OK);
    ls_params_fill(&params, &config, &ops, three);
    assert_memory_equal(one, three, bytes);
    check_shards(&params, &config, one);
    double std = (double)config.init_std;
    double residual = arch == LS_GPT2 ? std / sqrt(2.0 * (double)config.layers) : std;
    for (int i = 0; i < params.count; i++) {
        const struct ls_param *p = &params.list[i];
        int64_t count = p->init == LS_INIT_NORMAL && p->rows == config.vocab_padded
                            ? config.vocab * p->cols
                            : p->rows * p->cols;
        bool norm = strstr(p->name, "ln_") || strstr(p->name, "norm_");
        bool branch = strstr(p->name, "proj.weight") || strstr(p->name, "down.weight");
        double expected = strstr(p->name, "bias") ? 0 : norm ? 1 : branch ? residual : std;
        double got = deviation(p, one, count);
        /* The root mean square of n normal values scatters by 1 / sqrt(2 n). */
        double slack = norm ? 0 : expected * 5 / sqrt(2 * (double)count);
        if (!(fabs(got - expected) <= slack))
            fail_msg("%s: root mean square %g, expected %g +- %g", p->name, got, expected, slack);
    }
    free(one);
    free(three);
    ls_ops_release(&ops);
    ls_params_release(&params);
}

static void test_initial_values(void **state)
{
    (void)state;
    check_initial(LS_GPT2);
    check_initial(LS_LLAMA);
}

/* ---- digests --------------------------------------------------------------------------------- */

static struct ls_digest digest_of(const struct ls_params *params, struct ls_ops *ops,
                                  const char *prefix, const float *values)
{
    struct ls_digest digest = {0, 0};
    ls_params_digest(params, ops, prefix, values, &digest);
    return digest;
}

static bool same(struct ls_digest a, struct ls_digest b)
{
    return a.low == b.low && a.high == b.high;
}

static void test_digest_sees_every_element(void **state)
{
    (void)state;
    struct ls_model_config config = small_model(LS_GPT2, true);
    config.layers = 1;
    struct ls_params params;
    struct ls_ops ops;
    struct ls_error error = {0};
    params_open(&params, &config);
    assert_int_equal(ls_ops_init(&ops, 2, ls_isa_best(), &error), LS_OK);
    uint32_t *words = calloc((size_t)params.elements, sizeof *words);
    float *values = (float *)words;
    ls_params_fill(&params, &config, &ops, values);
    struct ls_digest whole = digest_of(&params, &ops, "", values);
    ops.threads = 1;
    assert_true(same(digest_of(&params, &ops, "", values), whole));
    for (int i = 0; i < params.count; i++) {
        const struct ls_param *p = &params.list[i];
        for (int64_t j = p->offset; j < end_of(p); j++) {
            words[j] ^= 1u << (j % 32);
            bool unseen = same(digest_of(&params, &ops, "", values), whole);
            words[j] ^= 1u << (j % 32);
            if (unseen)
                fail_msg("%s: a flipped bit of element %ld is not seen", p->name,
                         (long)(j - p->offset));
        }
    }
    assert_true(same(digest_of(&params, &ops, "", values), whole));
    assert_false(same(digest_of(&params, &ops, "exp_avg.", values), whole));
    /* Two rows that change places are another state, though the pieces' sum commutes. */
    const struct ls_param *table = ls_params_find(&params, "wpe.weight");
    float row[64], *first = values + table->offset;
    memcpy(row, first, (size_t)table->cols * sizeof *row);
    memcpy(first, first + table->cols, (size_t)table->cols * sizeof *row);
    memcpy(first + table->cols, row, (size_t)table->cols * sizeof *row);
    assert_false(same(digest_of(&params, &ops, "", values), whole));
    free(words);
    ls_ops_release(&ops);
    ls_params_release(&params);
}

static void test_refused_sizes(void **state)
{
    (void)state;
    struct ls_model_config config = small_model(LS_LLAMA, false);
    struct ls_params params;
    struct ls_error error = {0};
    config.kv_heads = 3;
    assert_int_equal(ls_params_init(&params, &config, &numerics, &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "kv_heads 3"));
    config = small_model(LS_LLAMA, false);
    struct ls_numerics four = {.tp_tiles = 4};
    assert_int_equal(ls_params_init(&params, &config, &four, &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "tp_tiles 4"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_and_shapes),  cmocka_unit_test(test_stacks_are_contiguous),
        cmocka_unit_test(test_places_and_ranges), cmocka_unit_test(test_presets),
        cmocka_unit_test(test_initial_values),    cmocka_unit_test(test_digest_sees_every_element),
        cmocka_unit_test(test_refused_sizes),
    };
    return cmocka_run_group_tests_name("params", tests, NULL, NULL);
}
