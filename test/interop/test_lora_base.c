/* LoRA over a base in few bits (QLoRA): a run over int8 or NF4 has the bits of one whose frozen
 * matrices are the values of its blocks, in every layout; files of bitsandbytes come as they are;
 * what cannot be kept is refused. */
#include "../support/checkpoints.h"
#include "../support/saved_tensors.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "folders.h"
#include "trained.h"

#include <lockstep/compare.h>
#include <lockstep/interop.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH = 4400, LAYERS = 2, TENSORS = 96, STEPS = 2, NESTED = 256 };

/* ---- a model, as it is, as values of blocks, in bitsandbytes' files -------------------------- */

static const char description[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 128, \"num_hidden_layers\": 2, "
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 1, \"head_dim\": 32, "
    "\"intermediate_size\": 128, \"vocab_size\": 64, \"max_position_embeddings\": 32, "
    "\"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false%s}";
static const char quantization[] =
    ", \"quantization_config\": {\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": true, "
    "\"bnb_4bit_quant_type\": \"nf4\", \"bnb_4bit_quant_storage\": \"%s\"}";

struct matrix {
    const char *name;
    int64_t rows, cols;
};
static const struct matrix matrices[] = {
    {"self_attn.q_proj", 128, 128}, {"self_attn.k_proj", 32, 128}, {"self_attn.v_proj", 32, 128},
    {"self_attn.o_proj", 128, 128}, {"mlp.gate_proj", 128, 128},   {"mlp.up_proj", 128, 128},
    {"mlp.down_proj", 128, 128}};
enum { MATRICES = sizeof matrices / sizeof *matrices };

/* What becomes of the matrices, and what is broken of it. */
enum kind { AS_IT_IS, VALUES, FILES };
struct model {
    enum kind kind;
    enum ls_blocks blocks;
    bool nested; /* absmax of NF4 */
    bool neighbour, swapped, unfinite;
    const char *state;                                 /* in the place of NF4's quant_state */
    enum { U8, BF16, F16, F32, I8, STORAGES } storage; /* of the codes */
};

static const struct {
    const char *name;
    enum ls_dtype dtype;
} storages[STORAGES] = {[U8] = {"uint8", LS_U8},
                        [BF16] = {"bfloat16", LS_BF16},
                        [F16] = {"float16", LS_F16},
                        [F32] = {"float32", LS_F32},
                        [I8] = {"int8", LS_U8}};

struct writing {
    struct ls_tensor_entry entries[TENSORS];
    char names[TENSORS][128];
    void *data[TENSORS];
    size_t count;
};

static void *tensor_add(struct writing *w, const char *name, const char *more, enum ls_dtype dtype,
                        int dims, const int64_t *shape)
{
    int64_t elements = 1;
    assert_true(w->count < TENSORS);
    snprintf(w->names[w->count], sizeof w->names[0], "%s%s", name, more);
    struct ls_tensor_entry *entry = &w->entries[w->count];
    *entry = (struct ls_tensor_entry){.name = w->names[w->count], .dtype = dtype, .dims = dims};
    for (int i = 0; i < dims; i++)
        elements *= entry->shape[i] = shape[i];
    void *data = calloc((size_t)elements, ls_dtype_bytes(dtype));
    assert_non_null(data);
    entry->data = w->data[w->count++] = data;
    return data;
}

static void *list_add(struct writing *w, const char *name, const char *more, enum ls_dtype dtype,
                      int64_t count)
{
    return tensor_add(w, name, more, dtype, 1, &count);
}

static float *floats_add(struct writing *w, const char *name, int64_t rows, int64_t cols, float std)
{
    const int64_t shape[2] = {rows, cols};
    float *values = tensor_add(w, name, "", LS_F32, 2, shape);
    ls_normal_fill(ls_philox_key_of(3, name), 0, rows * cols, 0, std, values);
    return values;
}

static void vector_add(struct writing *w, const char *name, int64_t count)
{
    float *values = list_add(w, name, "", LS_F32, count);
    for (int64_t i = 0; i < count; i++)
        values[i] = 1;
}

/* absmax as 8 bits: map[code] * scale + offset, with codes that round. */
static unsigned char nested_code(float *absmax, float scale, float offset)
{
    int code = (int)lrintf((*absmax - offset) / scale * 127) + 127;
    *absmax = (float)(code - 127) / 127 * scale + offset;
    return (unsigned char)code;
}

/* The blocks, nested if the model says so, and what bitsandbytes writes of them. */
static void files_add(struct writing *w, const struct model *model, const char *name,
                      const struct matrix *m, unsigned char *blocks)
{
    static const float scale = 0.1f, offset = 0.09f;
    static const char plain[] = "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": "
                                "\"float32\", \"shape\": [%d, %d]%s}";
    const enum ls_dtype storage = storages[model->storage].dtype;
    const int64_t shape[2] = {m->rows * m->cols / 2 / (int64_t)ls_dtype_bytes(storage), 1};
    const int64_t count = m->rows * m->cols / 64;
    char text[256], more[128] = "";
    unsigned char *codes = tensor_add(w, name, "", storage, 2, shape);
    float *map = list_add(w, name, ".quant_map", LS_F32, 16), *absmax = NULL;
    unsigned char *bytes = NULL;
    memcpy(map, ls_nf4_map(), 16 * sizeof *map);
    if (model->nested) {
        bytes = list_add(w, name, ".absmax", LS_U8, count);
        float *nested = list_add(w, name, ".nested_absmax", LS_F32, ls_ceil_div(count, NESTED));
        for (int64_t i = 0; i < ls_ceil_div(count, NESTED); i++)
            nested[i] = scale;
        map = list_add(w, name, ".nested_quant_map", LS_F32, 256);
        for (int i = 0; i < 256; i++)
            map[i] = (float)(i - 127) / 127;
        snprintf(more, sizeof more, ", \"nested_blocksize\": %d, \"nested_offset\": %.9g", NESTED,
                 (double)offset);
    } else {
        absmax = list_add(w, name, ".absmax", LS_F32, count);
    }
    for (int64_t b = 0; b < count; b++) {
        float most;
        memcpy(&most, blocks + 36 * b, sizeof most);
        if (bytes)
            bytes[b] = nested_code(&most, scale, offset);
        else
            absmax[b] = most;
        memcpy(blocks + 36 * b, &most, sizeof most);
        memcpy(codes + 32 * b, blocks + 36 * b + 4, 32);
    }
    int length = snprintf(text, sizeof text, model->state ? model->state : plain, (int)m->rows,
                          (int)m->cols, more);
    memcpy(list_add(w, name, ".quant_state.bitsandbytes__nf4", LS_U8, length), text,
           (size_t)length);
}

static void blocks_break(const struct model *model, unsigned char *blocks)
{
    size_t bytes = ls_block_bytes(model->blocks);
    if (model->neighbour)
        memcpy(blocks + bytes, blocks, sizeof(float));
    for (size_t i = 4; i < bytes && model->swapped; i++)
        blocks[i] = (unsigned char)(blocks[i] << 4 | blocks[i] >> 4);
}

static void matrix_add(struct writing *w, const struct model *model, const char *name,
                       const struct matrix *m)
{
    static unsigned char blocks[128 * 128 / 64 * 68];
    struct ls_error error = {0};
    int64_t count = m->rows * m->cols;
    float *values = floats_add(w, name, m->rows, m->cols, 0.04f);
    if (model->unfinite)
        values[5 * m->cols + 7] = NAN;
    if (model->kind == AS_IT_IS)
        return;
    assert_ok(ls_blocks_quantize(model->blocks, count, values, blocks, &error), error);
    blocks_break(model, blocks);
    w->count -= model->nested || model->kind == FILES;
    if (model->nested || model->kind == FILES) {
        size_t before = w->count;
        free(values);
        files_add(w, model, name, m, blocks);
        if (model->kind == FILES)
            return;
        while (w->count > before) /* of nested absmax the values */
            free(w->data[--w->count]);
        values = floats_add(w, name, m->rows, m->cols, 0);
    }
    ls_blocks_values(model->blocks, blocks, 0, count, values);
}

static void model_make(const char *directory, const char *folder, const struct model *model)
{
    static struct writing w;
    struct ls_error error = {0};
    char text[1024], quantized[256], path[PATH], name[128];
    w.count = 0;
    floats_add(&w, "model.embed_tokens.weight", 64, 128, 0.04f);
    floats_add(&w, "lm_head.weight", 64, 128, 0.04f);
    vector_add(&w, "model.norm.weight", 128);
    for (int layer = 0; layer < LAYERS; layer++) {
        for (int i = 0; i < MATRICES; i++) {
            snprintf(name, sizeof name, "model.layers.%d.%s.weight", layer, matrices[i].name);
            matrix_add(&w, model, name, &matrices[i]);
        }
        snprintf(name, sizeof name, "model.layers.%d.input_layernorm.weight", layer);
        vector_add(&w, name, 128);
        snprintf(name, sizeof name, "model.layers.%d.post_attention_layernorm.weight", layer);
        vector_add(&w, name, 128);
    }
    snprintf(path, sizeof path, "%s/%s", directory, folder);
    assert_ok(ls_directory_add(path, NULL, &error), error);
    snprintf(quantized, sizeof quantized, quantization, storages[model->storage].name);
    int length = snprintf(text, sizeof text, description, model->kind == FILES ? quantized : "");
    snprintf(path, sizeof path, "%s/%s/config.json", directory, folder);
    scratch_write(path, text, (size_t)length);
    snprintf(path, sizeof path, "%s/%s/model.safetensors", directory, folder);
    assert_ok(tensors_save(path, w.entries, w.count, &error), error);
    while (w.count > 0)
        free(w.data[--w.count]);
}

/* ---- bits ------------------------------------------------------------------------------------ */

static void prove(const char *directory, const char *words, struct ls_proof proof[STEPS])
{
    struct ls_config config;
    struct ls_error error = {0};
    char all[2 * PATH];
    snprintf(all, sizeof all,
             "train.out=%s/none train.steps=%d lora.rank=4 optim.lr=0.01 numerics.tp_tiles=2 %s",
             directory, STEPS, words);
    if (train_config(directory, all, &config, &error) ||
        ls_proof_threads(&config, STEPS, proof, &error))
        fail_msg("%s: %s", words, error.text);
}

static bool is_proved(const char *directory, const char *model, const char *words,
                      const struct ls_proof wanted[STEPS])
{
    struct ls_proof proof[STEPS];
    char all[PATH];
    snprintf(all, sizeof all, "model.from=%s/%s %s", directory, model, words);
    prove(directory, all, proof);
    return !memcmp(proof, wanted, sizeof proof);
}

static void expect(const char *directory, const char *model, const char *words,
                   const struct ls_proof wanted[STEPS])
{
    if (!is_proved(directory, model, words, wanted))
        fail_msg("%s: %s: other bits", model, words);
}

static void first_proof(const char *directory, const char *model, const char *words,
                        struct ls_proof proof[STEPS])
{
    char all[PATH];
    snprintf(all, sizeof all, "model.from=%s/%s %s", directory, model, words);
    prove(directory, all, proof);
}

static const char *const precisions[] = {"numerics.precision=fp32",
                                         "numerics.precision=bf16 numerics.arithmetic=fma",
                                         "numerics.precision=bf16 numerics.arithmetic=bf16_pairs"};

/* Losses, hashes of all that is held. */
CASE_WITH(test_the_bits_are_those_of_the_values, tokens_setup, scratch_teardown)
{
    static const enum ls_blocks forms[] = {LS_BLOCKS_INT8, LS_BLOCKS_NF4};
    struct ls_proof proof[STEPS];
    char words[256];
    model_make(*state, "base", &(struct model){.kind = AS_IT_IS});
    for (int f = 0; f < 2; f++) {
        struct model values = {.kind = VALUES, .blocks = forms[f]};
        model_make(*state, "values", &values);
        values.neighbour = true;
        model_make(*state, "twin", &values);
        for (int p = 0; p < 3; p += 2) {
            snprintf(words, sizeof words, "%s lora.base=%s", precisions[p],
                     ls_word_of(ls_lora_bases, (int)forms[f]));
            first_proof(*state, "values", precisions[p], proof);
            expect(*state, "base", words, proof);
            if (p == 0)
                expect(*state, "values", words, proof);
        }
        assert_false(is_proved(*state, "base", precisions[2], proof));
        assert_false(is_proved(*state, "twin", precisions[2], proof));
    }
}

CASE_WITH(test_layouts, tokens_setup, scratch_teardown)
{
    static const char *const layouts[] = {
        "parallel.tp=2 parallel.sp=true",
        "parallel.tp=2 parallel.dp=2 parallel.zero=3 parallel.sp=false",
        "parallel.dp=2 parallel.zero=1 parallel.pp=2",
        "parallel.dp_shard=4 parallel.zero=2",
        "parallel.dp_replicate=2 parallel.dp_shard=2 parallel.zero=3 parallel.persist=9000",
        "memory.recompute=full memory.offload.optimizer=host batch.micro=1",
    };
    struct ls_proof proof[STEPS];
    char words[256];
    model_make(*state, "base", &(struct model){.kind = AS_IT_IS});
    snprintf(words, sizeof words, "%s lora.base=nf4", precisions[1]);
    first_proof(*state, "base", words, proof);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        snprintf(words, sizeof words, "%s lora.base=nf4 %s", precisions[1], layouts[i]);
        expect(*state, "base", words, proof);
    }
}

/* What bitsandbytes wrote, with and without nested absmax: the same blocks, and the same values
 * where the base is none. The twin swaps the codes of each byte. */
CASE_WITH(test_files_of_bitsandbytes, tokens_setup, scratch_teardown)
{
    struct ls_proof proof[STEPS];
    char words[256];
    for (int nested = 0; nested < 2; nested++) {
        struct model model = {.kind = VALUES, .blocks = LS_BLOCKS_NF4, .nested = nested};
        model_make(*state, "values", &model);
        model.kind = FILES;
        model_make(*state, "files", &model);
        snprintf(words, sizeof words, "%s lora.base=nf4", precisions[nested]);
        first_proof(*state, "values", precisions[nested], proof);
        expect(*state, "files", precisions[nested], proof);
        for (int storage = BF16; storage < I8; storage++) {
            struct model stored = model;
            stored.storage = storage;
            model_make(*state, "stored", &stored);
            expect(*state, "stored", words, proof);
        }
        expect(*state, "files", words, proof);
        model.swapped = true;
        model_make(*state, "twin", &model);
        assert_false(is_proved(*state, "twin", words, proof));
        snprintf(words, sizeof words, "%s lora.base=nf4 parallel.tp=2", precisions[nested]);
        expect(*state, "files", words, proof);
    }
}

/* ---- files of a run -------------------------------------------------------------------------- */

static void expect_same_files(const char *directory, const char *a, const char *b)
{
    size_t sizes[2];
    char *one = scratch_read(scratch_path(directory, a), &sizes[0]);
    char *other = scratch_read(scratch_path(directory, b), &sizes[1]);
    assert_int_equal(sizes[0], sizes[1]);
    assert_memory_equal(one, other, sizes[0]);
    free(one);
    free(other);
}

/* Stopped and gone on with in another layout; adapters and the merged model as of the values. */
CASE_WITH(test_a_run_goes_on_and_is_exported, tokens_setup, scratch_teardown)
{
    char words[2 * PATH], hash[33];
    const char *directory = *state;
    const struct model values = {.kind = VALUES, .blocks = LS_BLOCKS_NF4};
    model_make(directory, "base", &(struct model){.kind = AS_IT_IS});
    model_make(directory, "values", &values);
    snprintf(words, sizeof words,
             "model.from=%s/values lora.rank=4 optim.lr=0.01 numerics.tp_tiles=2", directory);
    snprintf(hash, sizeof hash, "%s", trained(directory, "of-values", "%s train.steps=4", words));
    snprintf(words, sizeof words,
             "model.from=%s/base lora.rank=4 optim.lr=0.01 numerics.tp_tiles=2 lora.base=nf4",
             directory);
    assert_string_equal(hash, trained(directory, "whole", "%s train.steps=4", words));
    trained(directory, "stopped", "%s train.steps=2", words);
    assert_string_equal(hash, trained(directory, "stopped",
                                      "%s train.steps=4 train.resume=auto parallel.tp=2", words));
    model_export(directory, "of-values", "peft-a", (struct ls_export){.format = LS_EXPORT_PEFT});
    model_export(directory, "stopped", "peft-b", (struct ls_export){.format = LS_EXPORT_PEFT});
    expect_same_files(directory, "peft-a/adapter_model.safetensors",
                      "peft-b/adapter_model.safetensors");
    model_export(directory, "of-values", "hf-a", (struct ls_export){.format = LS_EXPORT_HF});
    model_export(directory, "stopped", "hf-b", (struct ls_export){.format = LS_EXPORT_HF});
    expect_same_files(directory, "hf-a/model.safetensors", "hf-b/model.safetensors");
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void expect_refused(const char *directory, const char *words, const char *text)
{
    char all[2 * PATH];
    snprintf(all, sizeof all, "lora.rank=4 lora.base=nf4 numerics.tp_tiles=2 %s", words);
    train_refused(directory, all, text);
}

CASE_WITH(test_what_cannot_be_kept_is_refused, tokens_setup, scratch_teardown)
{
#define SMALL "model.vocab=64 model.arch=llama model.layers=1 model.context=32 "
    static const char *const bad[][2] = {
        {SMALL "model.channels=96 model.heads=2", "model.channels = 96, and lora.base = nf4 needs"},
        {SMALL "model.channels=64 model.heads=2 model.ffn=96", "model.ffn = 96"},
        {SMALL "model.channels=128 model.heads=4 model.ffn=128 lora.rank=0", "lora.base"},
        {SMALL "model.channels=128 model.heads=4 model.ffn=192 parallel.tp=2",
         "model.ffn = 192 is cut, and lora.base = nf4 needs a multiple of 64"},
        {SMALL "model.channels=128 model.heads=4 model.ffn=128 memory.offload.parameters=host",
         "memory.offload.parameters = host: matrices in few bits"},
        {SMALL "model.channels=128 model.heads=4 lora.base=nf3", "expected none, int8 or nf4"},
    };
    char words[PATH];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_refused(*state, bad[i][0], bad[i][1]);
    model_make(*state, "unfinite", &(struct model){.kind = AS_IT_IS, .unfinite = true});
    snprintf(words, sizeof words, "model.from=%s/unfinite", (const char *)*state);
    expect_refused(*state, words, "h.0.attn.q.weight: the weight at [5, 7] is nan");
    snprintf(words, sizeof words, "model.from=%s/unfinite parallel.dp=2 parallel.zero=3",
             (const char *)*state);
    expect_refused(*state, words, "the weight at [5, 7] is nan");
}

CASE_WITH(test_bad_files, tokens_setup, scratch_teardown)
{
    const struct model other = {.kind = FILES, .blocks = LS_BLOCKS_NF4, .storage = I8};
    static const char *const bad[][2] = {
        {"{", "not JSON"},
        {"{\"quant_type\": \"fp4\", \"blocksize\": 64, \"shape\": [%d, %d]}",
         "expected quant_type"},
        {"{\"quant_type\": \"nf4\", \"blocksize\": 128, \"shape\": [%d, %d]}", "blocksize 64"},
        {"{\"quant_type\": \"nf4\", \"blocksize\": 64, \"shape\": [1%d, %d]}",
         "config.json makes its shape [128, 128]"},
        {"{\"quant_type\": \"nf4\", \"blocksize\": 64, \"shape\": [%d, %d], "
         "\"nested_blocksize\": 256, \"nested_offset\": 0.1}",
         "absmax: expected U8"},
        {"{\"quant_type\": \"nf4\", \"blocksize\": 64, \"shape\": [%d, %d], "
         "\"nested_blocksize\": 0}",
         "expected nested_blocksize and nested_offset"},
    };
    char words[PATH];
    model_make(*state, "files", &other);
    snprintf(words, sizeof words, "model.from=%s/files", (const char *)*state);
    expect_refused(*state, words, "bnb_4bit_quant_storage = \"int8\": expected \"uint8\"");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct model model = {.kind = FILES, .blocks = LS_BLOCKS_NF4, .state = bad[i][0]};
        model_make(*state, "files", &model);
        snprintf(words, sizeof words, "model.from=%s/files", (const char *)*state);
        expect_refused(*state, words, bad[i][1]);
    }
}

SUITE_MAIN(NULL, NULL)
