/* The list of parameters: names, places, slices of tensor and pipeline parallel, initial values,
 * digests. */
#include <lockstep/config.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/suite.h"

enum { LAYERS = 3, TP_MAX = 4, PARTS_MAX = 16 };

static const struct ls_numerics numerics = {.tp_tiles = 4, .seq_tiles = 1, .leaf_sequences = 1};

/* Sizes that are no multiples of a cache line; two key/value heads for tp 4 but in GPT-2. */
static struct ls_model_config small_model(enum ls_arch arch, bool tied)
{
    const struct ls_family *family = ls_family_of(arch);
    return (struct ls_model_config){.arch = arch,
                                    .vocab = 37,
                                    .vocab_padded = 48,
                                    .layers = LAYERS,
                                    .channels = 20,
                                    .heads = 4,
                                    .kv_heads = arch == LS_GPT2 ? 4 : 2,
                                    .head_dim = 8,
                                    .ffn = 44,
                                    .context = 9,
                                    .tied = tied,
                                    .bias = family->bias,
                                    .act = family->act,
                                    .norm_epsilon = 1e-5f,
                                    .rope_theta = 10000,
                                    .init_std = 0.02f,
                                    .seed = 11};
}

/* A model of every kind in turn. */
enum { MODELS = 4 * LS_ARCHES };
static struct ls_model_config model_of(int i)
{
    struct ls_model_config config = small_model((enum ls_arch)(i / 4), i & 1);
    if (i & 2)
        config.bias = false;
    return config;
}

static void params_open(struct ls_params *params, const struct ls_model_config *config,
                        const struct ls_part *part)
{
    struct ls_error error = {0};
    assert_ok(ls_params_init(params, config, &numerics, part, &error), error);
}

static int64_t elements_of(const struct ls_param *p)
{
    return p->rows * p->cols;
}

/* ---- locked ---------------------------------------------------------------------------------- */

/* What a list hands out cannot be written. A copy can: a pointer to one is not const. */
#define IS_CONST(pointer, type) _Generic((pointer), const type * : true, default : false)

CASE(test_a_list_is_locked)
{
    const struct ls_model_config config = model_of(0);
    struct ls_params params;
    params_open(&params, &config, NULL);
    assert_true(IS_CONST(&params.list[0], struct ls_param));
    assert_true(IS_CONST(params.units, struct ls_unit));
    assert_true(IS_CONST(params.regions, struct ls_region));
    struct ls_param copy = params.list[0];
    assert_false(IS_CONST(&copy, struct ls_param));
    ls_params_release(&params);
}

/* ---- names and places ------------------------------------------------------------------------ */

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

CASE(test_names_and_shapes)
{
    struct ls_params gpt2, llama;
    struct ls_model_config config = small_model(LS_GPT2, true);
    params_open(&gpt2, &config, NULL);
    expect(&gpt2, "wte.weight", 48, 20);
    expect(&gpt2, "wpe.weight", 9, 20);
    expect(&gpt2, "h.0.ln_1.weight", 1, 20);
    expect(&gpt2, "h.2.ln_2.bias", 1, 20);
    expect(&gpt2, "h.1.attn.proj.weight", 20, 32);
    expect(&gpt2, "h.1.attn.proj.bias", 1, 20);
    expect(&gpt2, "h.2.mlp.up.weight", 44, 20);
    expect(&gpt2, "h.2.mlp.up.bias", 1, 44);
    expect(&gpt2, "h.2.mlp.down.weight", 20, 44);
    expect(&gpt2, "ln_f.bias", 1, 20);
    assert_null(ls_params_find(&gpt2, "head.weight"));
    assert_null(ls_params_find(&gpt2, "h.3.ln_1.weight"));
    config = small_model(LS_LLAMA, false);
    params_open(&llama, &config, NULL);
    expect(&llama, "wte.weight", 48, 20);
    expect(&llama, "head.weight", 48, 20);
    expect(&llama, "h.0.norm_1.weight", 1, 20);
    expect(&llama, "h.0.mlp.gate.weight", 44, 20);
    expect(&llama, "norm_f.weight", 1, 20);
    assert_null(ls_params_find(&llama, "wpe.weight"));
    for (int i = 0; i < llama.count; i++)
        if (strstr(llama.list[i].name, "bias"))
            fail_msg("llama has no biases, but %s", llama.list[i].name);
    ls_params_release(&gpt2);
    ls_params_release(&llama);
}

/* q, k and v (and gate and up) are one stacked matrix each: no gap between them, in a slice too. */
static void check_stacks(const struct ls_params *params)
{
    static const char *const stacks[][3] = {{"attn.q.weight", "attn.k.weight", "attn.v.weight"},
                                            {"attn.q.bias", "attn.k.bias", "attn.v.bias"},
                                            {"mlp.gate.weight", "mlp.up.weight", NULL}};
    for (int layer = 0; layer < LAYERS; layer++)
        for (int s = 0; s < 3; s++)
            for (int i = 0; i < 2 && stacks[s][i + 1]; i++) {
                char name[2][64];
                for (int j = 0; j < 2; j++)
                    snprintf(name[j], sizeof name[j], "h.%d.%s", layer, stacks[s][i + j]);
                const struct ls_param *upper = ls_params_find(params, name[0]);
                const struct ls_param *lower = ls_params_find(params, name[1]);
                if (!upper || !lower)
                    continue;
                assert_int_equal(lower->offset, upper->offset + elements_of(upper));
                assert_int_equal(lower->gradient.offset,
                                 upper->gradient.offset + elements_of(upper));
            }
}

static void check_unit(const struct ls_params *params, int index)
{
    const struct ls_unit *unit = &params->units[index];
    int64_t at = 0;
    assert_int_equal(ls_params_unit(params, unit->layer), index);
    assert_true(unit->param_count > 0);
    assert_int_equal(unit->matrix_elements % 16, 0);
    for (int i = unit->first_param; i < unit->first_param + unit->param_count; i++) {
        const struct ls_param *p = &params->list[i];
        assert_int_equal(p->unit, index);
        if (p->offset < at || p->offset >= at + 16)
            fail_msg("%s begins at %ld, the one before ends at %ld", p->name, (long)p->offset,
                     (long)at);
        at = p->offset + elements_of(p);
        if (p->matrix ? at > unit->matrix_elements : p->offset < unit->matrix_elements)
            fail_msg("%s [%ld, %ld) lies on the wrong side of %ld", p->name, (long)p->offset,
                     (long)at, (long)unit->matrix_elements);
        assert_int_equal(p->matrix, p->decay);
        assert_ptr_equal(ls_params_find(params, p->name), p); /* names are unique */
    }
    assert_true(unit->elements >= at && unit->elements < at + 16);
}

/* Marks a gradient's place in its region; each element is one parameter's. */
static void mark(char *taken, const struct ls_region *region, const char *name, int64_t offset,
                 int64_t count)
{
    if (offset < 0 || offset + count > region->elements)
        fail_msg("%s: gradient [%ld, %ld) of a region of %ld", name, (long)offset,
                 (long)(offset + count), (long)region->elements);
    for (int64_t i = offset; i < offset + count; i++)
        if (taken[i]++)
            fail_msg("%s: element %ld of its region is another gradient's too", name, (long)i);
}

/* Where the embedding layer's gradient of a tied table goes, -1 where both are not held here. */
static int tied_region(const struct ls_params *params)
{
    return params->tied_param < 0 ? -1 : params->list[params->tied_param].second.region;
}

static void check_region(const struct ls_params *params, int index)
{
    const struct ls_region *region = &params->regions[index];
    char *taken = calloc((size_t)region->elements, 1);
    int64_t count = 0, all = 0;
    for (int i = 0; i < params->count; i++) {
        const struct ls_param *p = &params->list[i];
        if (p->gradient.region != index)
            continue;
        assert_int_equal(params->units[p->unit].layer, region->layer);
        mark(taken, region, p->name, p->gradient.offset, elements_of(p));
        count++;
    }
    if (index == tied_region(params)) {
        const struct ls_param *table = &params->list[params->tied_param];
        mark(taken, region, "the tied table's use", table->second.offset, elements_of(table));
        assert_int_equal(region->layer, 0);
        count++;
    }
    for (int64_t i = 0; i < region->elements; i++)
        all += taken[i];
    assert_true(count > 0);
    assert_int_equal(region->elements % 16, 0);
    assert_true(region->elements - all < 16 * (count + 1)); /* no hole but alignment */
    if (index == params->head_region)
        assert_int_equal(count, 1);
    else
        assert_int_equal(ls_params_region(params, region->layer), index);
    free(taken);
}

static void check_places(const struct ls_params *params)
{
    int64_t elements = 0, weights = 0;
    int next = 0;
    for (int u = 0; u < params->unit_count; u++) {
        assert_int_equal(params->units[u].first_param, next);
        assert_true(u == 0 || params->units[u].layer > params->units[u - 1].layer);
        check_unit(params, u);
        next += params->units[u].param_count;
        elements += params->units[u].elements;
    }
    assert_int_equal(next, params->count);
    assert_int_equal(params->elements, elements);
    for (int i = 0; i < params->count; i++) {
        assert_in_range(params->list[i].gradient.region, 0, params->region_count - 1);
        weights += elements_of(&params->list[i]);
    }
    assert_int_equal(params->weights, weights);
    for (int r = 0; r < params->region_count; r++)
        check_region(params, r);
    check_stacks(params);
}

/* ---- cuts of the model ----------------------------------------------------------------------- */

/* The parts of all ranks of a layout: tp slices of stages. */
struct cut {
    struct ls_model_config config;
    int tp, stages, count;
    bool layers[PARTS_MAX][LAYERS + 2];
    struct ls_params parts[PARTS_MAX]; /* [stages * tp] */
    struct ls_params whole;
};

/* stage_of [LAYERS + 2]: which stage holds a layer. */
static void cut_open(struct cut *cut, const struct ls_model_config *config, int tp,
                     const int *stage_of)
{
    memset(cut, 0, sizeof *cut);
    cut->config = *config;
    cut->tp = tp;
    for (int layer = 0; layer < LAYERS + 2; layer++)
        cut->stages = stage_of[layer] >= cut->stages ? stage_of[layer] + 1 : cut->stages;
    cut->count = cut->stages * tp;
    params_open(&cut->whole, config, NULL);
    for (int i = 0; i < cut->count; i++) {
        for (int layer = 0; layer < LAYERS + 2; layer++)
            cut->layers[i][layer] = stage_of[layer] == i / tp;
        struct ls_part part = {.tp = tp, .tp_rank = i % tp, .layers = cut->layers[i]};
        params_open(&cut->parts[i], config, &part);
    }
}

static void cut_close(struct cut *cut)
{
    for (int i = 0; i < cut->count; i++)
        ls_params_release(&cut->parts[i]);
    ls_params_release(&cut->whole);
}

/* Every way to cut a model that the tests go through: one stage, two, three, and one whose first
 * stage also holds the end (a V of chunks). */
enum { STAGINGS = 4 };
static const int stagings[STAGINGS][LAYERS + 2] = {
    {0, 0, 0, 0, 0}, {0, 0, 0, 1, 1}, {0, 1, 1, 1, 2}, {0, 0, 1, 0, 0}};

static void for_each_cut(void (*check)(struct cut *cut))
{
    for (int model = 0; model < MODELS; model++)
        for (int tp = 1; tp <= TP_MAX; tp *= 2)
            for (int s = 0; s < STAGINGS; s++) {
                struct ls_model_config config = model_of(model);
                struct cut cut;
                cut_open(&cut, &config, tp, stagings[s]);
                check(&cut);
                cut_close(&cut);
            }
}

/* Element i of a part of whole, row-major, in the whole. */
static int64_t global_index(const struct ls_param *p, int64_t i)
{
    return (p->first_row + i / p->cols) * p->global_cols + p->first_col + i % p->cols;
}

/* Which part holds element (0, 0) of the same slice and answers for it. */
static int answers_for(const struct cut *cut, const struct ls_param *p)
{
    int found = 0;
    for (int i = 0; i < cut->count; i++) {
        const struct ls_param *other = ls_params_find(&cut->parts[i], p->name);
        found += other && other->owned && other->first_row == p->first_row &&
                 other->first_col == p->first_col && other->rows == p->rows &&
                 other->cols == p->cols;
    }
    return found;
}

/* Owned slices tile every parameter exactly once; what is not owned somebody else answers for. */
static void check_tiling(struct cut *cut)
{
    for (int w = 0; w < cut->whole.count; w++) {
        const struct ls_param *whole = &cut->whole.list[w];
        char *times = calloc((size_t)elements_of(whole), 1);
        for (int i = 0; i < cut->count; i++) {
            const struct ls_param *p = ls_params_find(&cut->parts[i], whole->name);
            if (!p)
                continue;
            assert_int_equal(p->global_rows, whole->rows);
            assert_int_equal(p->global_cols, whole->cols);
            assert_int_equal(p->live_rows, whole->live_rows);
            if (answers_for(cut, p) != 1)
                fail_msg("%s of part %d: %d ranks answer for it", p->name, i, answers_for(cut, p));
            for (int64_t e = 0; e < elements_of(p) && p->owned; e++)
                times[global_index(p, e)]++;
        }
        for (int64_t e = 0; e < elements_of(whole); e++)
            if (times[e] != 1)
                fail_msg("tp %d, %d stages: %s[%ld] is owned %d times", cut->tp, cut->stages,
                         whole->name, (long)e, times[e]);
        free(times);
    }
}

static void check_cut(struct cut *cut)
{
    int64_t held = 0;
    for (int i = 0; i < cut->count; i++) {
        check_places(&cut->parts[i]);
        held += cut->parts[i].weights;
    }
    assert_true(held >= cut->whole.weights);
    check_places(&cut->whole);
    check_tiling(cut);
}

CASE(test_every_cut_tiles_the_model)
{
    for_each_cut(check_cut);
}

CASE(test_slices_of_tensor_parallel)
{
    struct ls_model_config config = small_model(LS_LLAMA, false);
    for (int rank = 0; rank < 4; rank++) {
        struct ls_params params;
        params_open(&params, &config, &(struct ls_part){.tp = 4, .tp_rank = rank});
        const struct ls_param *p = expect(&params, "h.1.attn.q.weight", 8, 20);
        assert_int_equal(p->first_row, rank * 8);
        assert_true(p->owned);
        p = expect(&params, "h.1.attn.k.weight", 8, 20); /* two ranks share a head */
        assert_int_equal(p->first_row, rank / 2 * 8);
        assert_int_equal(p->owned, rank % 2 == 0);
        p = expect(&params, "h.1.attn.proj.weight", 20, 8);
        assert_int_equal(p->first_col, rank * 8);
        p = expect(&params, "h.1.mlp.gate.weight", 11, 20);
        assert_int_equal(p->first_row, rank * 11);
        p = expect(&params, "h.1.mlp.down.weight", 20, 11);
        assert_int_equal(p->first_col, rank * 11);
        p = expect(&params, "head.weight", 12, 20);
        assert_int_equal(p->first_row, rank * 12);
        p = expect(&params, "h.1.norm_1.weight", 1, 20); /* all hold it, the first answers */
        assert_int_equal(p->owned, rank == 0);
        ls_params_release(&params);
    }
    config = small_model(LS_GPT2, true);
    struct ls_params params;
    params_open(&params, &config, &(struct ls_part){.tp = 2, .tp_rank = 1});
    const struct ls_param *p = expect(&params, "h.0.attn.k.bias", 1, 16);
    assert_int_equal(p->first_col, 16);
    assert_true(p->owned);
    p = expect(&params, "h.0.attn.proj.bias", 1, 20);
    assert_false(p->owned);
    p = expect(&params, "wpe.weight", 9, 20);
    assert_false(p->owned);
    ls_params_release(&params);
}

/* What a plan asks before there are parameters, against them. */
CASE(test_the_largest_parameter_of_a_layer)
{
    for (int i = 0; i < MODELS * (LAYERS + 2); i++) {
        struct ls_model_config config = model_of(i % MODELS);
        bool layers[LAYERS + 2] = {0};
        int layer = i / MODELS;
        layers[layer] = true;
        for (int tp = 1; tp <= TP_MAX; tp *= 2) {
            struct ls_params params;
            int64_t most = 0;
            params_open(&params, &config, &(struct ls_part){.tp = tp, .layers = layers});
            for (int p = 0; p < params.count; p++)
                most = ls_max(most, elements_of(&params.list[p]));
            assert_int_equal(ls_layer_param_elements_max(&config, layer, tp), most);
            ls_params_release(&params);
        }
    }
}

/* Where the layers of a tied table are: together, apart, or elsewhere. */
CASE(test_tied_table)
{
    static const struct {
        bool layers[LAYERS + 2];
        bool together, shared, owned, head;
    } stages[] = {
        {{1, 1, 1, 1, 1}, .together = true, .owned = true, .head = true},
        {{1, 0, 0, 0, 1}, .together = true, .owned = true, .head = true},
        {{1, 1, 0, 0, 0}, .shared = true},
        {{0, 0, 1, 1, 1}, .shared = true, .owned = true, .head = true},
        {{0, 1, 1, 0, 0}, .shared = false},
    };
    struct ls_model_config config = small_model(LS_GPT2, true);
    for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++) {
        struct ls_params params;
        params_open(&params, &config, &(struct ls_part){.tp = 1, .layers = stages[i].layers});
        const struct ls_param *table = ls_params_find(&params, "wte.weight");
        int index = table ? (int)(table - params.list) : -1;
        assert_int_equal(table != NULL, stages[i].together || stages[i].shared);
        assert_int_equal(params.tied_param, stages[i].together ? index : -1);
        assert_int_equal(params.shared_param, stages[i].shared ? index : -1);
        assert_int_equal(tied_region(&params) >= 0, stages[i].together);
        assert_int_equal(params.head_region >= 0, stages[i].head);
        for (int p = 0; p < params.count; p++)
            assert_int_equal(params.list[p].second.region == LS_REGION_OUTSIDE,
                             p == params.shared_param);
        if (table)
            assert_int_equal(table->owned, stages[i].owned);
        if (stages[i].head) /* its gradient is final before the norm's behind it */
            assert_int_equal(table->gradient.region, params.head_region);
        ls_params_release(&params);
    }
    /* Untied: two matrices that know nothing of each other. */
    config.tied = false;
    struct ls_params params;
    params_open(&params, &config, NULL);
    assert_int_equal(params.tied_param, -1);
    assert_int_equal(params.shared_param, -1);
    assert_int_equal(tied_region(&params), -1);
    assert_true(params.head_region >= 0);
    ls_params_release(&params);
}

static int64_t preset_weights(const char *name)
{
    struct ls_config config;
    struct ls_error error = {0};
    struct ls_params params;
    char key[64];
    ls_config_defaults(&config);
    snprintf(key, sizeof key, "model.preset=%s", name);
    if (ls_config_set(&config, key, &error) || ls_config_resolve(&config, 257, &error) ||
        ls_params_init(&params, &config.model,
                       &(struct ls_numerics){.tp_tiles = config.numerics.tp_tiles}, NULL, &error))
        fail_msg("%s: %s", name, error.text);
    int64_t weights = params.weights;
    /* The vocabulary's padding is not published. */
    for (int i = 0; i < params.count; i++)
        weights -= (params.list[i].rows - params.list[i].live_rows) * params.list[i].cols;
    ls_params_release(&params);
    return weights;
}

/* Every published shape has as many weights as its publisher says: test/golden/presets.txt. */
CASE(test_presets)
{
    const char *root = getenv("LS_TEST_DIR"), *name;
    char path[1024], line[256], listed[64];
    long weights;
    int published = 0, found = 0;
    snprintf(path, sizeof path, "%s/golden/presets.txt", root ? root : "test");
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (*line == '#')
            continue;
        assert_int_equal(sscanf(line, "%63s %ld", listed, &weights), 2);
        found++;
        if (preset_weights(listed) != weights)
            fail_msg("%s has %ld weights, expected %ld", listed, (long)preset_weights(listed),
                     weights);
    }
    fclose(file);
    for (int i = 0; (name = ls_config_preset_name(i)); i++)
        published += !strstr(name, "-tiny");
    assert_int_equal(found, published);
}

/* ---- Hugging Face's files -------------------------------------------------------------------- */

static void expect_elsewhere(const struct ls_model_config *config, const char *ours,
                             const struct ls_elsewhere *expected)
{
    struct ls_params params;
    struct ls_elsewhere place = {0};
    params_open(&params, config, NULL);
    const struct ls_param *param = ls_params_find(&params, ours);
    if (!param || ls_param_elsewhere(&params, config, param, &place) != (expected != NULL))
        fail_msg("%s: %s", ours, param ? place.name : "is no parameter");
    if (expected && (strcmp(place.name, expected->name) || place.rows != expected->rows ||
                     place.cols != expected->cols || place.first != expected->first ||
                     place.transposed != expected->transposed))
        fail_msg("%s is in %s [%ld, %ld] from %ld%s", ours, place.name, (long)place.rows,
                 (long)place.cols, (long)place.first, place.transposed ? ", transposed" : "");
    ls_params_release(&params);
}

/* Beside those that the golden files prove (test_parity.c). */
CASE(test_elsewhere)
{
    struct ls_model_config config = small_model(LS_GPT2, true);
    expect_elsewhere(&config, "wte.weight", &(struct ls_elsewhere){"wte.weight", 37, 20, 0, false});
    expect_elsewhere(&config, "h.2.attn.v.weight",
                     &(struct ls_elsewhere){"h.2.attn.c_attn.weight", 96, 20, 64, true});
    expect_elsewhere(&config, "h.0.attn.k.bias",
                     &(struct ls_elsewhere){"h.0.attn.c_attn.bias", 96, 1, 32, false});
    config.tied = false;
    expect_elsewhere(&config, "head.weight",
                     &(struct ls_elsewhere){"lm_head.weight", 37, 20, 0, false});
    config = small_model(LS_LLAMA, true);
    expect_elsewhere(&config, "wte.weight",
                     &(struct ls_elsewhere){"model.embed_tokens.weight", 37, 20, 0, false});
    config.bias = true;
    expect_elsewhere(
        &config, "h.1.attn.v.bias",
        &(struct ls_elsewhere){"model.layers.1.self_attn.v_proj.bias", 16, 1, 0, false});
}

/* Every parameter that a configuration of a family can have is in its files. */
CASE(test_every_parameter_is_elsewhere)
{
    for (int i = 0; i < MODELS; i++) {
        struct ls_model_config config = model_of(i);
        struct ls_params params;
        struct ls_elsewhere place;
        params_open(&params, &config, NULL);
        for (int p = 0; p < params.count; p++)
            if (!ls_param_elsewhere(&params, &config, &params.list[p], &place))
                fail_msg("%s is not in Hugging Face's files", params.list[p].name);
        ls_params_release(&params);
    }
}

/* ---- initial values -------------------------------------------------------------------------- */

/* All of a parameter, filled at once. */
static float *filled(const struct ls_param *p, uint64_t seed, struct ls_ops *ops)
{
    float *values = malloc((size_t)elements_of(p) * sizeof *values);
    memset(values, 0x5a, (size_t)elements_of(p) * sizeof *values);
    ls_param_fill(p, seed, ops, 0, elements_of(p), values);
    return values;
}

/* Pieces of a part, filled alone, have the whole's values. */
static void check_fill(struct cut *cut)
{
    struct ls_ops ops;
    struct ls_error error = {0};
    assert_int_equal(ls_ops_init(&ops, 1, ls_isa_best(), &error), LS_OK);
    for (int w = 0; w < cut->whole.count; w++) {
        float *whole = filled(&cut->whole.list[w], cut->config.seed, &ops);
        for (int i = 0; i < cut->count; i++) {
            const struct ls_param *p = ls_params_find(&cut->parts[i], cut->whole.list[w].name);
            for (int64_t at = 0, piece = 7; p && at < elements_of(p); at += piece, piece += 13) {
                float values[1024];
                piece = ls_min(ls_min(piece, 1024), elements_of(p) - at);
                ls_param_fill(p, cut->config.seed, &ops, at, piece, values);
                for (int64_t j = 0; j < piece; j++) {
                    float want = whole[global_index(p, at + j)];
                    if (memcmp(&values[j], &want, sizeof want))
                        fail_msg("%s of part %d: element %ld is %g, in the whole %g", p->name, i,
                                 (long)(at + j), (double)values[j], (double)want);
                }
            }
        }
        free(whole);
    }
    ls_ops_release(&ops);
}

CASE(test_slices_have_the_wholes_values)
{
    for_each_cut(check_fill);
}

static double deviation(const float *values, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)values[i] * (double)values[i];
    return sqrt(sum / (double)count);
}

static void check_distribution(const struct ls_param *p, const struct ls_model_config *config,
                               const float *values)
{
    double std = (double)config->init_std;
    double residual = config->arch == LS_GPT2 ? std / sqrt(2.0 * (double)config->layers) : std;
    int64_t live = p->live_rows * p->cols;
    bool norm = strstr(p->name, "ln_") || strstr(p->name, "norm");
    bool branch = strstr(p->name, "proj.weight") || strstr(p->name, "down.weight");
    bool table = !strcmp(p->name, "wte.weight") || !strcmp(p->name, "head.weight");
    assert_int_equal(p->live_rows, table ? config->vocab : p->rows);
    double expected = strstr(p->name, "bias") ? 0
                      : norm                  ? !ls_family_of(config->arch)->gguf.norm_plus_one
                      : branch                ? residual
                                              : std;
    double got = deviation(values, live);
    /* The root mean square of n normal values scatters by 1 / sqrt(2 n). */
    double slack = norm ? 0 : expected * 5 / sqrt(2 * (double)live);
    if (!(fabs(got - expected) <= slack))
        fail_msg("%s: root mean square %g, expected %g +- %g", p->name, got, expected, slack);
    for (int64_t i = live; i < elements_of(p); i++)
        if (values[i] != 0)
            fail_msg("%s: padding element %ld is %g", p->name, (long)i, (double)values[i]);
}

static void check_initial(enum ls_arch arch)
{
    struct ls_model_config config = small_model(arch, false);
    struct ls_params params;
    struct ls_ops one, three;
    struct ls_error error = {0};
    params_open(&params, &config, NULL);
    assert_int_equal(ls_ops_init(&one, 1, LS_ISA_PLAIN, &error), LS_OK);
    assert_int_equal(ls_ops_init(&three, 3, ls_isa_best(), &error), LS_OK);
    for (int i = 0; i < params.count; i++) {
        const struct ls_param *p = &params.list[i];
        float *values = filled(p, config.seed, &one), *again = filled(p, config.seed, &three);
        assert_memory_equal(values, again, (size_t)elements_of(p) * sizeof *values);
        check_distribution(p, &config, values);
        free(values);
        free(again);
    }
    ls_ops_release(&one);
    ls_ops_release(&three);
    ls_params_release(&params);
}

CASE(test_initial_values)
{
    for (int arch = 0; arch < LS_ARCHES; arch++)
        check_initial((enum ls_arch)arch);
}

/* ---- digests --------------------------------------------------------------------------------- */

static bool same(struct ls_digest a, struct ls_digest b)
{
    return a.low == b.low && a.high == b.high;
}

/* Of all of a parameter. */
static struct ls_digest digest_of(const struct ls_param *p, struct ls_ops *ops, const char *prefix,
                                  const float *values)
{
    struct ls_digest digest = {0, 0};
    ls_param_digest(p, ops, prefix, 0, elements_of(p), LS_F32, values, &digest);
    return digest;
}

/* The part cut by rows among `ranks` (the last have fewer, or none), from the last to the first. */
static void digest_shards(const struct ls_param *p, struct ls_ops *ops, int ranks,
                          const float *values, struct ls_digest *digest)
{
    int64_t rows = p->rows > 1 ? p->rows : p->cols, width = elements_of(p) / rows;
    int64_t share = ls_ceil_div(rows, ranks);
    for (int rank = ranks - 1; rank >= 0; rank--) {
        int64_t first = ls_min(rank * share, rows), end = ls_min(first + share, rows);
        ls_param_digest(p, ops, "", first * width, (end - first) * width, LS_F32,
                        values + first * width, digest);
    }
}

/* Parts of any layout, each cut in shards, add up to the whole; a slice that is left out or counted
 * twice does not. */
static void check_digest(struct cut *cut)
{
    struct ls_ops ops;
    struct ls_error error = {0};
    assert_int_equal(ls_ops_init(&ops, 1, ls_isa_best(), &error), LS_OK);
    struct ls_digest whole = {0, 0}, parts = {0, 0}, held = {0, 0};
    for (int w = 0; w < cut->whole.count; w++) {
        const struct ls_param *p = &cut->whole.list[w];
        float *values = filled(p, cut->config.seed, &ops);
        struct ls_digest digest = digest_of(p, &ops, "", values);
        ls_digest_merge(&whole, &digest);
        free(values);
    }
    bool all_owned = true;
    for (int i = 0; i < cut->count; i++)
        for (int j = 0; j < cut->parts[i].count; j++) {
            const struct ls_param *p = &cut->parts[i].list[j];
            float *values = filled(p, cut->config.seed, &ops);
            struct ls_digest shards = {0, 0};
            digest_shards(p, &ops, 1 + (i + j) % 5, values, &shards);
            ls_digest_merge(&held, &shards);
            if (p->owned)
                ls_digest_merge(&parts, &shards);
            all_owned = all_owned && p->owned;
            free(values);
        }
    if (!same(whole, parts))
        fail_msg("tp %d, %d stages: parts add up to %016lx, the whole is %016lx", cut->tp,
                 cut->stages, (unsigned long)parts.low, (unsigned long)whole.low);
    assert_int_equal(same(whole, held), all_owned);
    ls_ops_release(&ops);
}

CASE(test_digests_of_any_cut_add_up)
{
    for_each_cut(check_digest);
}

static void check_every_element(const struct ls_param *p, struct ls_ops *ops, uint32_t *words)
{
    const float *values = (const float *)words;
    ops->threads = 2;
    struct ls_digest whole = digest_of(p, ops, "", values);
    ops->threads = 1;
    assert_true(same(digest_of(p, ops, "", values), whole));
    for (int64_t i = 0; i < elements_of(p); i++) {
        words[i] ^= 1u << (i % 32);
        bool unseen = same(digest_of(p, ops, "", values), whole);
        words[i] ^= 1u << (i % 32);
        if (unseen)
            fail_msg("%s: a flipped bit of element %ld is not seen", p->name, (long)i);
    }
    assert_true(same(digest_of(p, ops, "", values), whole));
    assert_false(same(digest_of(p, ops, "exp_avg.", values), whole));
}

CASE(test_digest_sees_every_element)
{
    struct ls_model_config config = small_model(LS_GPT2, true);
    struct ls_params params;
    struct ls_ops ops, two;
    struct ls_error error = {0};
    params_open(&params, &config, NULL);
    assert_int_equal(ls_ops_init(&ops, 1, ls_isa_best(), &error), LS_OK);
    assert_int_equal(ls_ops_init(&two, 2, ls_isa_best(), &error), LS_OK);
    static const char *const names[] = {"wte.weight", "wpe.weight", "h.1.attn.proj.weight",
                                        "h.2.ln_1.bias"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct ls_param *p = ls_params_find(&params, names[i]);
        float *values = filled(p, config.seed, &ops);
        uint32_t *words = malloc((size_t)elements_of(p) * sizeof *words);
        memcpy(words, values, (size_t)elements_of(p) * sizeof *words);
        assert_true(same(digest_of(p, &two, "", values), digest_of(p, &ops, "", values)));
        check_every_element(p, &ops, words);
        free(values);
        free(words);
    }
    /* Two rows that change places are another state, though the elements' sum commutes. */
    const struct ls_param *table = ls_params_find(&params, "wpe.weight");
    float row[64], *first = filled(table, config.seed, &ops);
    struct ls_digest before = digest_of(table, &ops, "", first);
    memcpy(row, first, (size_t)table->cols * sizeof *row);
    memcpy(first, first + table->cols, (size_t)table->cols * sizeof *row);
    memcpy(first + table->cols, row, (size_t)table->cols * sizeof *row);
    assert_false(same(digest_of(table, &ops, "", first), before));
    free(first);
    ls_ops_release(&ops);
    ls_ops_release(&two);
    ls_params_release(&params);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void refused(const struct ls_model_config *config, const struct ls_numerics *n,
                    const struct ls_part *part, int code, const char *text)
{
    struct ls_params params;
    struct ls_error error = {0};
    assert_int_equal(ls_params_init(&params, config, n, part, &error), code);
    if (!strstr(error.text, text))
        fail_msg("\"%s\" does not say \"%s\"", error.text, text);
    ls_params_release(&params);
}

CASE(test_refused_sizes)
{
    struct ls_model_config config = small_model(LS_LLAMA, false);
    config.kv_heads = 3;
    refused(&config, &numerics, NULL, LS_EINVAL, "kv_heads 3");
    config = small_model(LS_LLAMA, false);
    refused(&config, &(struct ls_numerics){.tp_tiles = 3}, NULL, LS_ELAYOUT,
            "tp_tiles 3: it does not divide the model's query heads");
    refused(&config, &(struct ls_numerics){.tp_tiles = 8}, NULL, LS_ELAYOUT, "query heads, 4");
    config.ffn = 42;
    refused(&config, &numerics, NULL, LS_ELAYOUT, "feed-forward width, 42");
    config = small_model(LS_LLAMA, false);
    refused(&config, &(struct ls_numerics){.tp_tiles = 2}, &(struct ls_part){.tp = 4}, LS_ELAYOUT,
            "4 tensor");
    refused(&config, &numerics, &(struct ls_part){.tp = 2, .tp_rank = 2}, LS_EINVAL,
            "rank 2 of 2 tensor");
    refused(&config, &numerics, &(struct ls_part){.tp = 0}, LS_EINVAL, "0 tensor");
    config.layers = 0;
    refused(&config, &numerics, NULL, LS_EINVAL, "at least 1");
}

/* Steps of all three layers in their order; a bias is told only where there can be one. */
CASE(test_steps_of_families)
{
    for (int arch = 0; arch < LS_ARCHES; arch++) {
        const char *step, *first = NULL, *last = NULL;
        bool biased = false, any = false, normed = false;
        for (int i = 0; (step = ls_family_step((enum ls_arch)arch, i, &biased)); i++) {
            first = first ? first : step;
            last = step;
            any |= biased;
            normed |= strcmp(step, "norm of heads") == 0;
        }
        assert_string_equal(first, "embedding");
        assert_string_equal(last, "head and loss");
        assert_int_equal(any, ls_family_of((enum ls_arch)arch)->bias);
        assert_int_equal(normed, arch == LS_QWEN3);
    }
}

SUITE_MAIN(NULL, NULL)
