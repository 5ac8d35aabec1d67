/* Models go out and come back with every bit: folders in one file and in shards, llm.c's files;
 * what a format cannot say is refused, and nothing is left half-written. */
#include "../support/checkpoints.h"
#include "../support/config_words.h"
#include "../support/countdown.h"
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/tensor_data.h"
#include "../support/told.h"
#include "folders.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = 4400 };

static void path_in(char path[PATH], const char *directory, const char *name)
{
    snprintf(path, PATH, "%.4096s/%.200s", directory, name);
}

static void import(const char *directory, const char *from, const char *run)
{
    told_clear();
    model_import(directory, from, run, (struct ls_import){0});
    told_expect("tensors", TOLD_SOME);
}

static struct ls_export_report export(const char *directory, const char *from, const char *out,
                                      struct ls_export what)
{
    told_clear();
    struct ls_export_report report = model_export(directory, from, out, what);
    told_expect("tensors", report.tensors);
    return report;
}

static int train_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    return ls_run(user, world, NULL, NULL, error);
}

/* DIRECTORY/RUN: a small model before its first step. words: what it is besides. */
static void run_make(const char *directory, const char *run, const char *words)
{
    const uint16_t tokens[100] = {0};
    struct ls_error error = {0};
    scratch_write(scratch_path(directory, "tokens.bin"), tokens, sizeof tokens);
    struct ls_config config =
        config_of_words("model.layers=1 model.channels=32 model.heads=4 model.context=16 %s "
                        "data.train=u16:%s/tokens.bin batch.global=1 train.steps=0 train.out=%s/%s "
                        "log.progress=off numerics.precision=fp32",
                        words, directory, directory, run);
    assert_ok(ls_world_run(1, train_body, &config, &error), error);
}

/* Two runs have the same weights, to the byte. */
static void expect_same(const char *directory, const char *a, const char *b)
{
    char paths[2][PATH], name[256];
    snprintf(name, sizeof name, "%s/checkpoints/step-00000000", a);
    path_in(paths[0], directory, name);
    snprintf(name, sizeof name, "%s/checkpoints/step-00000000", b);
    path_in(paths[1], directory, name);
    expect_same_checkpoints(paths[0], paths[1], "a run and what came back");
}

static void check_round_trip(const char *directory, const char *golden)
{
    static const struct {
        enum ls_dtype dtype;
        int64_t shard_bytes;
    } ways[] = {{LS_F32, 0}, {LS_F32, 20000}, {LS_BF16, 0}, {LS_F16, 4000}};
    char name[3][128];
    snprintf(name[0], sizeof name[0], "%s-run", golden);
    folder_make(directory, golden, &(struct folder_of){.golden = golden});
    import(directory, golden, name[0]);
    for (int w = 0; w < 4; w++) {
        snprintf(name[1], sizeof name[1], "%s-out%d", golden, w);
        snprintf(name[2], sizeof name[2], "%s-again%d", golden, w);
        struct ls_export_report report =
            export(directory, name[0], name[1],
                   (struct ls_export){.dtype = ways[w].dtype, .shard_bytes = ways[w].shard_bytes});
        assert_true(ways[w].shard_bytes ? report.files > 2 : report.files == 1);
        import(directory, name[1], name[2]);
        if (ways[w].dtype == LS_F32) {
            expect_same(directory, name[0], name[2]);
            continue;
        }
        /* What was rounded stays as it is. */
        char out[128], once_more[128];
        snprintf(out, sizeof out, "%s-twice%d", golden, w);
        snprintf(once_more, sizeof once_more, "%s-third%d", golden, w);
        export(directory, name[2], out, (struct ls_export){.dtype = ways[w].dtype});
        import(directory, out, once_more);
        expect_same(directory, name[2], once_more);
    }
}

CASE_WITH(test_round_trips, scratch_setup, scratch_teardown)
{
    char golden[64];
    for (int arch = 0; arch < LS_ARCHES; arch++) {
        snprintf(golden, sizeof golden, "%s_tiny", ls_arch_name((enum ls_arch)arch));
        check_round_trip(*state, golden);
    }
    check_round_trip(*state, "llama3_tiny");
}

/* A folder becomes another one without a run. */
CASE_WITH(test_from_a_folder, scratch_setup, scratch_teardown)
{
    folder_make(*state, "in", &(struct folder_of){.golden = "gpt2_tiny", .dtype = LS_F16});
    export(*state, "in", "out", (struct ls_export){.dtype = LS_F32});
    import(*state, "in", "a");
    import(*state, "out", "b");
    expect_same(*state, "a", "b");
}

#define MORE_TEMPLATES "additional_chat_templates/"

/* Files that came with a model go with it. */
CASE_WITH(test_files_go_along, scratch_setup, scratch_teardown)
{
    char path[PATH];
    const char *folder = folder_make(*state, "in", &(struct folder_of){.golden = "llama_tiny"});
    json_edit(scratch_path(folder, "config.json"), "eos_token_id", "[7, 9]");
    json_edit(scratch_path(folder, "config.json"), "unheard_of", "1");
    json_edit(scratch_path(folder, "config.json"), "auto_map",
              "{\"AutoConfig\": \"configuration_own.OwnConfig\"}"); /* code, which stays behind */
    scratch_write(scratch_path(folder, "generation_config.json"), "{\"a\": 1}", 8);
    scratch_write(scratch_path(folder, "chat_template.jinja"), "hello", 5);
    assert_int_equal(mkdir(scratch_path(folder, "additional_chat_templates"), 0700), 0);
    scratch_write(scratch_path(folder, LS_CHAT_TOOLS_FILE), "tools", 5);
    scratch_write(scratch_path(folder, MORE_TEMPLATES "rag.jinja"), "rag", 3);
    import(*state, "in", "run");
    export(*state, "run", "out", (struct ls_export){.dtype = LS_BF16});
    path_in(path, *state, "out/generation_config.json");
    char *text = scratch_read(path, NULL);
    assert_string_equal(text, "{\"a\": 1}");
    free(text);
    path_in(path, *state, "out/chat_template.jinja");
    assert_int_equal(access(path, F_OK), 0);
    path_in(path, *state, "out/" LS_CHAT_TOOLS_FILE);
    assert_int_equal(access(path, F_OK), 0);
    path_in(path, *state, "out/" MORE_TEMPLATES "rag.jinja");
    assert_int_equal(access(path, F_OK), 0);
    path_in(path, *state, "out/config.json");
    text = scratch_read(path, NULL);
    assert_non_null(strstr(text, "\"unheard_of\": 1"));
    assert_non_null(strstr(text, "\"dtype\": \"bfloat16\""));
    assert_null(strstr(text, "float32"));
    assert_null(strstr(text, "auto_map"));
    assert_non_null(strstr(text, "7,\n    9"));
    free(text);
}

/* ---- llm.c ----------------------------------------------------------------------------------- */

CASE_WITH(test_llmc, scratch_setup, scratch_teardown)
{
    char path[PATH];
    size_t bytes;
    folder_make(*state, "in", &(struct folder_of){.golden = "gpt2_tiny"});
    import(*state, "in", "run");
    for (int half = 0; half < 2; half++) {
        enum ls_dtype dtype = half ? LS_BF16 : LS_F32;
        const char *file = half ? "half.bin" : "full.bin", *folder = half ? "half" : "full";
        export(*state, "run", file, (struct ls_export){.format = LS_EXPORT_LLMC, .dtype = dtype});
        path_in(path, *state, file);
        char *data = scratch_read(path, &bytes);
        int32_t header[8];
        memcpy(header, data, sizeof header);
        const int32_t wanted[8] = {20240326, half ? 5 : 3, 16, 61, 2, 4, 32, 128};
        assert_memory_equal(header, wanted, sizeof header);
        /* 128 + 16 rows of 32; a block of 12 x 32 x 32 weights and 13 x 32 in vectors; the norm. */
        size_t values = 144 * 32 + 2 * (12 * 32 * 32 + 13 * 32) + 64;
        assert_int_equal(bytes, 1024 + values * (half ? 2 : 4));
        free(data);
        export(*state, "run", folder, (struct ls_export){.dtype = dtype});
        import(*state, file, half ? "bin-half" : "bin-full");
        import(*state, folder, half ? "hf-half" : "hf-full");
        expect_same(*state, half ? "bin-half" : "bin-full", half ? "hf-half" : "hf-full");
    }
    expect_same(*state, "bin-full", "run");
    /* No token ends a text: GPT-2's, which transformers would take, is none of 61. */
    export(*state, "bin-full", "named", (struct ls_export){.dtype = LS_F32});
    path_in(path, *state, "named/config.json");
    char *text = scratch_read(path, NULL);
    assert_non_null(strstr(text, "\"bos_token_id\": null"));
    assert_non_null(strstr(text, "\"eos_token_id\": null"));
    free(text);
}

static void expect_import_refused(const char *directory, const char *from, const char *words)
{
    struct ls_error error = {0};
    struct ls_import_report report;
    char paths[2][PATH];
    path_in(paths[0], directory, from);
    path_in(paths[1], directory, "never");
    int status = ls_import(&(struct ls_import){.from = paths[0], .run = paths[1]}, &report, &error);
    if (!status || !strstr(error.text, words))
        fail_msg("expected %s, found %d: %s", words, status, error.text);
    assert_int_not_equal(access(paths[1], F_OK), 0);
}

CASE_WITH(test_bad_llmc, scratch_setup, scratch_teardown)
{
    char path[PATH];
    size_t bytes;
    folder_make(*state, "in", &(struct folder_of){.golden = "gpt2_tiny"});
    export(*state, "in", "a.bin", (struct ls_export){.format = LS_EXPORT_LLMC});
    path_in(path, *state, "a.bin");
    char *data = scratch_read(path, &bytes);
    int32_t *header = (int32_t *)(void *)data;
    scratch_write(path, data, bytes - 4);
    expect_import_refused(*state, "a.bin", "its header says");
    scratch_write(path, data, 1000);
    expect_import_refused(*state, "a.bin", "1000 bytes long");
    static const struct {
        int at;
        int32_t value;
        const char *words;
    } cases[] = {{0, 7, "a file, and no llm.c model: expected a run's folder"},
                 {1, 4, "version 4: expected 3 (fp32) or 5 (bf16)"},
                 {4, -1, "integer 4 is -1"},
                 {6, 1 << 22, "its header says"},
                 {3, 129, "129 tokens, padded to 128"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t before = header[cases[i].at];
        header[cases[i].at] = cases[i].value;
        scratch_write(path, data, bytes);
        expect_import_refused(*state, "a.bin", cases[i].words);
        header[cases[i].at] = before;
    }
    path_in(path, *state, "a.gguf");
    scratch_write(path, "GGUF", 4);
    expect_import_refused(*state, "a.gguf", "GGUF files are written, but not read");
    free(data);
}

/* ---- GGUF ------------------------------------------------------------------------------------ */

enum { F32 = 0, F16 = 1, Q8_0 = 8 };

/* What the list says of a tensor, behind its name; NULL where it has none of it. */
static const char *gguf_info(const char *data, size_t bytes, const char *name)
{
    uint64_t length = strlen(name);
    char named[128];
    memcpy(named, &length, sizeof length);
    snprintf(named + 8, sizeof named - 8, "%s", name);
    const char *at = memmem(data, bytes, named, 8 + length);
    return at ? at + 8 + length : NULL;
}

/* The bytes of that: the number of dims, dims, type, and the place of the data. */
static size_t gguf_info_read(const char *at, uint32_t *type, uint64_t *offset)
{
    uint32_t dims;
    memcpy(&dims, at, 4);
    memcpy(type, at + 4 + 8 * dims, 4);
    memcpy(offset, at + 8 + 8 * dims, 8);
    return 16 + 8 * dims;
}

/* A tensor of a file: the place of its data. The data begin behind the list, which ends with one
 * of two names. */
static const void *gguf_tensor(const char *data, size_t bytes, const char *name, uint32_t wanted)
{
    const char *at = gguf_info(data, bytes, name), *last = gguf_info(data, bytes, "output.weight");
    const char *norm = gguf_info(data, bytes, "output_norm.weight");
    uint32_t type, unused;
    uint64_t offset, place;
    assert_true(at && norm);
    last = last > norm ? last : norm;
    last += gguf_info_read(last, &unused, &place);
    gguf_info_read(at, &type, &offset);
    assert_int_equal(type, wanted);
    return data + ls_round_up(last - data, 32) + offset;
}

/* An id or a flag of the tokenizer; -1: the file has none of that name. */
static int64_t gguf_tokenizer_value(const char *data, size_t bytes, const char *name)
{
    enum { U32 = 4 };
    char key[64];
    uint32_t type, value = 0;
    snprintf(key, sizeof key, "tokenizer.ggml.%s", name);
    const char *at = gguf_info(data, bytes, key);
    if (!at)
        return -1;
    memcpy(&type, at, sizeof type);
    memcpy(&value, at + sizeof type, type == U32 ? 4 : 1);
    return value;
}

/* The model DIRECTORY/FROM as DIRECTORY/a.gguf; to be freed. */
static char *gguf_of(const char *directory, const char *from, size_t *bytes)
{
    unlink(scratch_path(directory, "a.gguf"));
    model_export(directory, from, "a.gguf", (struct ls_export){.format = LS_EXPORT_GGUF});
    return scratch_read(scratch_path(directory, "a.gguf"), bytes);
}

CASE_WITH(test_gguf, scratch_setup, scratch_teardown)
{
    char path[PATH];
    size_t bytes;
    folder_make(*state, "in", &(struct folder_of){.golden = "llama_tiny"});
    import(*state, "in", "run");
    export(*state, "run", "a.gguf", (struct ls_export){.format = LS_EXPORT_GGUF});
    path_in(path, *state, "a.gguf");
    char *data = scratch_read(path, &bytes);
    uint32_t head[2];
    memcpy(head, data, sizeof head);
    assert_memory_equal(data, "GGUF", 4);
    assert_int_equal(head[1], 3);
    assert_int_equal(bytes % 32, 0);
    struct ls_safetensors *golden = golden_open("llama_tiny");
    /* Rows of q: the halves of each head, 8 rows, take turns. */
    const float *theirs = tensor_data(golden, "param.model.layers.1.self_attn.q_proj.weight");
    const float *ours = gguf_tensor(data, bytes, "blk.1.attn_q.weight", F32);
    for (int r = 0; r < 32; r++) {
        int from = r / 8 * 8 + r % 2 * 4 + r % 8 / 2;
        assert_memory_equal(ours + r * 32, theirs + from * 32, 32 * sizeof(float));
    }
    theirs = tensor_data(golden, "param.model.layers.0.mlp.down_proj.weight");
    ours = gguf_tensor(data, bytes, "blk.0.ffn_down.weight", F32);
    assert_memory_equal(ours, theirs, (size_t)32 * 48 * sizeof(float));
    theirs = tensor_data(golden, "param.model.norm.weight");
    assert_memory_equal(gguf_tensor(data, bytes, "output_norm.weight", F32), theirs, 128);
    ls_safetensors_close(golden);
    free(data);
}

/* OLMo 2 has a head there, even where it is the table. */
CASE_WITH(test_gguf_head, scratch_setup, scratch_teardown)
{
    char path[PATH];
    size_t bytes;
    const char *folder = folder_make(*state, "in", &(struct folder_of){.golden = "olmo2_tiny"});
    json_edit(scratch_path(folder, "config.json"), "tie_word_embeddings", "true");
    tensor_edit(folder, "lm_head.weight", NULL, 0);
    export(*state, "in", "a.gguf", (struct ls_export){.format = LS_EXPORT_GGUF});
    path_in(path, *state, "a.gguf");
    char *data = scratch_read(path, &bytes);
    struct ls_safetensors *golden = golden_open("olmo2_tiny");
    const struct ls_tensor_view *table =
        ls_safetensors_find(golden, "param.model.embed_tokens.weight");
    const void *rows = tensor_data(golden, table->name);
    assert_memory_equal(gguf_tensor(data, bytes, "token_embd.weight", F32), rows, table->bytes);
    assert_memory_equal(gguf_tensor(data, bytes, "output.weight", F32), rows, table->bytes);
    ls_safetensors_close(golden);
    free(data);
}

static void on_log(void *user, enum ls_log_level level, const char *line)
{
    size_t used = strlen(user);
    snprintf((char *)user + used, 512 - used, "%s\n", line);
}

/* ---- GGUF in int8 ---------------------------------------------------------------------------- */

/* A block beside its 32 values: the scale is the nearest that fp16 has, and integers are C's roundf
 * of what ggml's reference rounds. What comes back is at most half a step off, and the error of 127
 * steps whose scale has 11 bits. */
static void expect_q8_block(const char *block, const float *x)
{
    float most = 0;
    ls_f16 half;
    for (int i = 0; i < 32; i++)
        most = fmaxf(most, fabsf(x[i]));
    float d = most / 127, inverse = 1 / d;
    memcpy(&half, block, sizeof half);
    double off = fabs((double)ls_f16_to_f32(half) - d);
    assert_true(off <= fabs((double)ls_f16_to_f32((ls_f16)(half + 1)) - d));
    assert_true(off <= fabs((double)ls_f16_to_f32((ls_f16)(half - 1)) - d));
    for (int i = 0; i < 32; i++) {
        signed char q;
        memcpy(&q, block + 2 + i, 1);
        assert_int_equal(q, (int)roundf(x[i] * inverse));
        double error = fabs((double)q * ls_f16_to_f32(half) - x[i]) / d;
        assert_true(error <= 0.5 + 127.0 / 2048 + 1e-4);
    }
}

/* Row `row` of a tensor [.., 32] in FOLDER/model.safetensors becomes values. */
static void row_edit(const char *folder, const char *name, int row, const float values[32])
{
    struct ls_safetensors *file;
    struct ls_error error = {0};
    const char *path = scratch_path(folder, "model.safetensors");
    size_t bytes, row_bytes = 32 * sizeof(float);
    char *data = scratch_read(path, &bytes);
    assert_int_equal(ls_safetensors_open(&file, path, &error), LS_OK);
    const float *tensor = tensor_data(file, name);
    char *place = memmem(data, bytes, tensor + (ptrdiff_t)row * 32, row_bytes);
    assert_non_null(place); /* random numbers are there once */
    memcpy(place, values, row_bytes);
    ls_safetensors_close(file);
    scratch_write(path, data, bytes);
    free(data);
}

#define UP "model.layers.1.mlp.up_proj.weight"

CASE_WITH(test_gguf_int8, scratch_setup, scratch_teardown)
{
    static const float ties[32] = {127,    0.5f, -0.5f, 1.5f,        2.5f,         -2.5f,
                                   126.5f, 3.0f, -3.4f, 0.49999997f, -0.49999997f, -126.6f};
    static const signed char rounded[32] = {127, 1, -1, 2, 3, -3, 127, 3, -3, 0, 0, -127};
    static const float zeros[32], tiny[32] = {1e-40f, -1e-40f};
    char path[PATH], said[512] = "";
    size_t bytes;
    const char *folder = folder_make(*state, "in", &(struct folder_of){.golden = "llama_tiny"});
    row_edit(folder, UP, 5, ties);
    row_edit(folder, UP, 6, zeros);
    row_edit(folder, UP, 7, tiny);
    path_in(path, *state, "a.gguf");
    const struct ls_log log = {.level_max = LS_LOG_WARNING, .write = on_log, .user = said};
    model_export(*state, "in", "a.gguf",
                 (struct ls_export){.format = LS_EXPORT_GGUF, .dtype = LS_I8, .log = &log});
    char *data = scratch_read(path, &bytes);
    struct ls_safetensors *golden = golden_open("llama_tiny");
    const float *theirs = tensor_data(golden, "param." UP);
    const char *ours = gguf_tensor(data, bytes, "blk.1.ffn_up.weight", Q8_0);
    for (int r = 0; r < 48; r++)
        if (r < 5 || r > 7)
            expect_q8_block(ours + (ptrdiff_t)r * 34, theirs + (ptrdiff_t)r * 32);
    assert_memory_equal(ours + 5 * 34, "\0\x3c", 2); /* one */
    assert_memory_equal(ours + 5 * 34 + 2, rounded, 32);
    for (int i = 6 * 34; i < 8 * 34; i++)
        assert_int_equal(ours[i], 0);
    theirs = tensor_data(golden, "param.model.layers.1.self_attn.q_proj.weight");
    ours = gguf_tensor(data, bytes, "blk.1.attn_q.weight", Q8_0);
    for (int r = 0; r < 32; r++)
        expect_q8_block(ours + (ptrdiff_t)r * 34,
                        theirs + (r / 8 * 8 + r % 2 * 4 + r % 8 / 2) * 32);
    gguf_tensor(data, bytes, "token_embd.weight", Q8_0);
    /* Rows of 48 are no whole blocks. */
    theirs = tensor_data(golden, "param.model.layers.0.mlp.down_proj.weight");
    const ls_f16 *halves = gguf_tensor(data, bytes, "blk.0.ffn_down.weight", F16);
    for (int i = 0; i < 32 * 48; i++)
        assert_int_equal(halves[i], ls_f32_to_f16(theirs[i]));
    assert_non_null(strstr(said, "2 of 21 tensors are fp16"));
    assert_non_null(strstr(said, "a row of blk.0.ffn_down.weight has 48"));
    theirs = tensor_data(golden, "param.model.norm.weight");
    assert_memory_equal(gguf_tensor(data, bytes, "output_norm.weight", F32), theirs, 128);
    static const char file_type[] = "general.file_type\4\0\0\0\7\0\0\0";
    assert_non_null(memmem(data, bytes, file_type, sizeof file_type - 1));
    ls_safetensors_close(golden);
    free(data);
}

/* A tokenizer that puts these around a text T. */
#define AROUND(single)                                                                             \
    "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"<s>\": 2, \"</s>\": 3}, "   \
    "\"merges\": []}, \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, " \
    "\"decoder\": {\"type\": \"ByteLevel\"}, \"post_processor\": {\"type\": "                      \
    "\"TemplateProcessing\", \"single\": [" single                                                 \
    "], \"special_tokens\": {\"<s>\": {\"ids\": [2]}, "                                            \
    "\"</s>\": {\"ids\": [3]}}}}"
#define SPECIAL(token) "{\"SpecialToken\": {\"id\": \"" token "\"}}"
#define T              "{\"Sequence\": {\"id\": \"A\"}}"

/* Tokenizers with these steps: of bytes, and of pieces. */
#define BYTES(normalizer, pre_tokenizers)                                                          \
    "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}, "                     \
    "\"normalizer\": " normalizer                                                                  \
    ", \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [" pre_tokenizers            \
    "]}, \"decoder\": {\"type\": \"ByteLevel\"}}"
#define BYTE_LEVEL(space, regex)                                                                   \
    "{\"type\": \"ByteLevel\", \"add_prefix_space\": " space ", \"use_regex\": " regex "}"
#define SPLIT(behavior)                                                                            \
    "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"(?i:'s|'t|'re|'ve|'m|'ll|'d)|"               \
    "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|"   \
    "\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}, \"behavior\": \"" behavior                     \
    "\", \"invert\": false}"
#define PIECES(normalizer, pre_tokenizer)                                                          \
    "{\"model\": {\"type\": \"BPE\", \"byte_fallback\": true, \"vocab\": {@}, "                    \
    "\"merges\": []}, \"normalizer\": " normalizer ", \"pre_tokenizer\": " pre_tokenizer           \
    ", \"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": " \
    "{\"String\": \"\\u2581\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, "               \
    "{\"type\": \"Fuse\"}]}}"
#define SPACES                                                                                     \
    "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, "                                   \
    "\"content\": \"\\u2581\"}"
#define METASPACE(scheme)                                                                          \
    "{\"type\": \"Metaspace\", \"replacement\": \"\\u2581\", " scheme ", \"split\": false}"
#define DIGITS     "{\"type\": \"Digits\", \"individual_digits\": true}"
#define TYPE(type) "{\"type\": \"" type "\"}"

/* folder = DIRECTORY/in: a model of more tokens than there are bytes, without a tokenizer. */
static void wide_make(const char *directory, char folder[PATH])
{
    run_make(directory, "run", "data.tokenizer=byte");
    model_export(directory, "run", "in", (struct ls_export){.format = LS_EXPORT_HF});
    path_in(folder, directory, "in");
}

/* In the place of @ stand the tokens of all bytes. */
static void tokenizer_write(const char *folder, const char *json)
{
    enum { ROOM = 8192 };
    char text[ROOM];
    size_t used = 0;
    for (const char *c = json; *c; c++) {
        if (*c != '@')
            text[used++] = *c;
        for (int byte = 0; byte < 256 && *c == '@'; byte++)
            used += (size_t)snprintf(text + used, ROOM - used, "%s\"<0x%02X>\": %d",
                                     byte ? ", " : "", byte, byte);
        assert_true(used < ROOM);
    }
    scratch_write(scratch_path(folder, "tokenizer.json"), text, used);
}

/* What came with the model is of its own tokenizer: a run with another one exports that. */
CASE_WITH(test_a_run_of_another_tokenizer, scratch_setup, scratch_teardown)
{
    char folder[PATH], other[PATH], words[3 * PATH];
    wide_make(*state, folder);
    tokenizer_write(folder, BYTES("null", BYTE_LEVEL("false", "true")));
    scratch_write(scratch_path(folder, "generation_config.json"), "{\"eos_token_id\": 1}", 19);
    path_in(other, *state, "other");
    assert_int_equal(mkdir(other, 0700), 0);
    tokenizer_write(other, PIECES(SPACES, "null"));
    for (int same = 0; same < 2; same++) {
        const char *out = same ? "same" : "out";
        snprintf(words, sizeof words, "model.from=%s data.tokenizer=%s", folder,
                 same ? folder : other);
        run_make(*state, same ? "theirs" : "tuned", words);
        model_export(*state, same ? "theirs" : "tuned", out,
                     (struct ls_export){.format = LS_EXPORT_HF});
        snprintf(words, sizeof words, "cmp -s %s/tokenizer.json %s/%s/tokenizer.json",
                 same ? folder : other, (const char *)*state, out);
        assert_int_equal(system(words), 0);
        snprintf(words, sizeof words, "%s/%s/generation_config.json", (const char *)*state, out);
        assert_int_equal(access(words, F_OK), same ? 0 : -1);
    }
    /* One that came without a tokenizer is of no other one. */
    assert_int_equal(unlink(scratch_path(folder, "tokenizer.json")), 0);
    snprintf(words, sizeof words, "model.from=%s data.tokenizer=%s", folder, other);
    run_make(*state, "bare", words);
    model_export(*state, "bare", "b", (struct ls_export){.format = LS_EXPORT_HF});
    assert_int_equal(access(scratch_path(*state, "b/generation_config.json"), F_OK), 0);
}

/* What a text goes through has one name in GGUF. */
CASE_WITH(test_gguf_steps, scratch_setup, scratch_teardown)
{
    static const struct {
        const char *json, *pre;
    } cases[] = {
        {BYTES("null", BYTE_LEVEL("false", "true")), "gpt-2"},
        {BYTES("null", DIGITS ", " BYTE_LEVEL("false", "true")), "smollm"},
        {BYTES(TYPE("NFC"), SPLIT("Isolated") ", " BYTE_LEVEL("false", "false")), "qwen2"},
        {PIECES(SPACES, "null"), "default"},
    };
    char folder[PATH];
    wide_make(*state, folder);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t bytes;
        tokenizer_write(folder, cases[i].json);
        char *data = gguf_of(*state, "in", &bytes);
        const char *at = gguf_info(data, bytes, "tokenizer.ggml.pre");
        assert_non_null(at); /* a type, and a length */
        assert_memory_equal(at + 12, cases[i].pre, strlen(cases[i].pre));
        free(data);
    }
}

/* Of pieces llama.cpp puts a space in front of a text unless the file says otherwise: Llama's
 * tokenizers put one there too, and Gemma's do not. */
CASE_WITH(test_gguf_space_in_front, scratch_setup, scratch_teardown)
{
    static const struct {
        const char *json;
        int space;
    } cases[] = {
        {PIECES(SPACES, "{\"type\": \"Split\", \"pattern\": {\"String\": \" \"}, \"behavior\": "
                        "\"MergedWithPrevious\", \"invert\": false}"),
         0},
        {PIECES("{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", \"prepend\": "
                "\"\\u2581\"}, " SPACES "]}",
                "null"),
         1},
        {PIECES("null", METASPACE("\"prepend_scheme\": \"never\"")), 0},
        {PIECES("null", METASPACE("\"prepend_scheme\": \"first\"")), 1},
        {PIECES("null", METASPACE("\"add_prefix_space\": false")), 0},
        {BYTES("null", BYTE_LEVEL("false", "true")), -1},
    };
    char folder[PATH];
    wide_make(*state, folder);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t bytes;
        tokenizer_write(folder, cases[i].json);
        char *data = gguf_of(*state, "in", &bytes);
        assert_int_equal(gguf_tokenizer_value(data, bytes, "add_space_prefix"), cases[i].space);
        free(data);
    }
}

/* Whatever stands where a tokenizer should: a file without one, and words for it. */
CASE_WITH(test_gguf_tokenizers, scratch_setup, scratch_teardown)
{
    static const struct {
        const char *json, *words;
    } cases[] = {
        {"{\"model\": {\"vocab\": {\"a\": 0, \"b\": 99, \"c\": -1, \"d\": \"x\"}, "
         "\"merges\": [\"a b\", [\"a\"], 7]}, \"pre_tokenizer\": {\"type\": \"ByteLevel\"}, "
         "\"added_tokens\": [{}, {\"id\": 1}, 5]}",
         "in/tokenizer.json: added_tokens[0]: its id: expected"},
        {"{\"model\": {\"vocab\": {}, \"merges\": [], \"byte_fallback\": true}}",
         "in/tokenizer.json: "},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}, "
         "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\", "
         "\"individual_digits\": false}, {\"type\": \"ByteLevel\", \"add_prefix_space\": false}]}, "
         "\"decoder\": {\"type\": \"ByteLevel\"}}",
         "nothing like the step Digits of tokenizer.json"},
        {BYTES(TYPE("Lowercase"), BYTE_LEVEL("false", "true")), "nothing like the step Lowercase"},
        {BYTES(TYPE("NFKC"), SPLIT("Isolated") ", " BYTE_LEVEL("false", "false")), "step NFKC"},
        {BYTES("null", BYTE_LEVEL("true", "true")), "puts a space in front of a text"},
        {BYTES("null", BYTE_LEVEL("false", "false")), "no name for the way"},
        {BYTES("null", SPLIT("Isolated") ", " BYTE_LEVEL("false", "true")), "no name for the way"},
        {BYTES("null", DIGITS ", " SPLIT("Isolated") ", " BYTE_LEVEL("false", "false")),
         "no name for the way"},
        {BYTES("null", SPLIT("Isolated") ", " DIGITS ", " BYTE_LEVEL("false", "false")),
         "nothing like the step Digits"},
        {BYTES("null", SPLIT("MergedWithNext") ", " BYTE_LEVEL("false", "false")),
         "no name for the way"},
        {PIECES("{\"type\": \"Sequence\", \"normalizers\": [" TYPE("NFKC") ", " SPACES "]}",
                "null"),
         "nothing like the step NFKC"},
        {PIECES("null", "null"), "no name for the way"},
        {"{\"model\": {\"vocab\": []}}", "no tokenizer"},
        {"{}", "no tokenizer"},
        {"[", "in/tokenizer.json:1:1: not JSON"},
        {AROUND(SPECIAL("<s>") ", " SPECIAL("<s>") ", " T), "puts several tokens in front of"},
    };
    char folder[PATH], out[PATH];
    wide_make(*state, folder);
    path_in(out, *state, "out.gguf");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char said[512] = "";
        const struct ls_log log = {.level_max = LS_LOG_WARNING, .write = on_log, .user = said};
        struct ls_error error = {0};
        struct ls_export_report report;
        tokenizer_write(folder, cases[i].json);
        const struct ls_export what = {
            .from = folder, .format = LS_EXPORT_GGUF, .out = out, .log = &log};
        unlink(out);
        assert_ok(ls_export(&what, &report, &error), error);
        const char *words = cases[i].words;
        if (!strstr(said, "the file has no tokenizer: ") || !strstr(said, words))
            fail_msg("%s: %s", cases[i].json, said);
    }
}

#define BESIDE_STRING(length, text) length "\0\0\0\0\0\0\0" text
static const char byte_level[] =
    "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": []}, "
    "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, "
    "\"decoder\": {\"type\": \"ByteLevel\"}}";

/* Tokens and a template that only the files beside tokenizer.json have, with ids of transformers.
 */
CASE_WITH(test_gguf_files_beside, scratch_setup, scratch_teardown)
{
    static const char *const files[][2] = {
        {"tokenizer.json", byte_level},
        {"tokenizer_config.json", "{\"pad_token\": \"<pad>\", \"chat_template\": \"old\"}"},
        {"special_tokens_map.json", "{\"eos_token\": {\"content\": \"<end>\"}}"},
        {"added_tokens.json", "{\"<new>\": 2}"},
        {"chat_template.jinja", "{{ 'newer' }}"},
    };
    static const char tokens[] = BESIDE_STRING("\1", "a") BESIDE_STRING("\1", "b")
        BESIDE_STRING("\5", "<new>") BESIDE_STRING("\5", "<end>") BESIDE_STRING("\5", "<pad>");
    static const char types[] = "\1\0\0\0\1\0\0\0\4\0\0\0\3\0\0\0\3\0\0\0\5\0\0\0";
    static const char template[] = BESIDE_STRING("\015", "{{ 'newer' }}");
    const char *folder = folder_make(*state, "in", &(struct folder_of){.golden = "gpt2_tiny"});
    char path[PATH];
    size_t bytes;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        path_in(path, folder, files[i][0]);
        scratch_write(path, files[i][1], strlen(files[i][1]));
    }
    path_in(path, *state, "a.gguf");
    model_export(*state, "in", "a.gguf", (struct ls_export){.format = LS_EXPORT_GGUF});
    char *data = scratch_read(path, &bytes);
    assert_non_null(memmem(data, bytes, tokens, sizeof tokens - 1));
    assert_non_null(memmem(data, bytes, types, sizeof types - 1));
    assert_non_null(memmem(data, bytes, template, sizeof template - 1));
    free(data);
}

/* llama.cpp puts around a text what the tokenizer puts there, and nothing else. */
CASE_WITH(test_gguf_tokens_around, scratch_setup, scratch_teardown)
{
    static const struct {
        const char *json, *settings, *bos; /* bos: of config.json */
        int add_bos, bos_id, add_eos, eos_id;
    } cases[] = {
        {AROUND(SPECIAL("<s>") ", " T), "{}", "1", 1, 2, 0, 1},
        {AROUND(T), "{\"bos_token\": \"<s>\"}", "1", 0, 1, 0, 1},
        {AROUND(T ", " SPECIAL("</s>")), "{}", "2", 0, 2, 1, 3},
        {AROUND(T), "{\"bos_token\": \"<s>\", \"add_bos_token\": true}", "1", 1, 2, 0, 1},
        {AROUND(SPECIAL("<s>") ", " T), "{\"bos_token\": \"<s>\", \"add_bos_token\": false}", "1",
         0, 1, 0, 1},
    };
    const char *folder = folder_make(*state, "in", &(struct folder_of){.golden = "gpt2_tiny"});
    json_edit(scratch_path(folder, "config.json"), "eos_token_id", "1");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t bytes;
        scratch_write(scratch_path(folder, "tokenizer.json"), cases[i].json, strlen(cases[i].json));
        scratch_write(scratch_path(folder, "tokenizer_config.json"), cases[i].settings,
                      strlen(cases[i].settings));
        json_edit(scratch_path(folder, "config.json"), "bos_token_id", cases[i].bos);
        char *data = gguf_of(*state, "in", &bytes);
        assert_int_equal(gguf_tokenizer_value(data, bytes, "add_bos_token"), cases[i].add_bos);
        assert_int_equal(gguf_tokenizer_value(data, bytes, "bos_token_id"), cases[i].bos_id);
        assert_int_equal(gguf_tokenizer_value(data, bytes, "add_eos_token"), cases[i].add_eos);
        assert_int_equal(gguf_tokenizer_value(data, bytes, "eos_token_id"), cases[i].eos_id);
        free(data);
    }
}

/* If config.json names no tokens, those that the tokenizer itself begins and ends a text with: of
 * its settings, or what lies between documents. A run that was trained from scratch has no
 * config.json, but keeps its tokenizer. */
CASE_WITH(test_gguf_ids_without_config_json, scratch_setup, scratch_teardown)
{
    static const char json[] =
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"<|endoftext|>\": 2, "
        "\"</s>\": 3}, \"merges\": []}, \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
        "\"add_prefix_space\": false}, \"decoder\": {\"type\": \"ByteLevel\"}}";
    static const char settings[] = "{\"bos_token\": \"b\", \"eos_token\": \"</s>\"}";
    const char *directory = *state,
               *folder = folder_make(*state, "in", &(struct folder_of){.golden = "gpt2_tiny"});
    char words[PATH];
    size_t bytes;
    scratch_write(scratch_path(folder, "tokenizer.json"), json, sizeof json - 1);
    snprintf(words, sizeof words, "data.tokenizer=%s", folder);
    run_make(directory, "run", words);
    for (int settled = 0; settled < 2; settled++) {
        if (settled)
            scratch_write(scratch_path(folder, "tokenizer_config.json"), settings,
                          sizeof settings - 1);
        char *data = gguf_of(directory, settled ? "in" : "run", &bytes);
        assert_int_equal(gguf_tokenizer_value(data, bytes, "bos_token_id"), settled ? 1 : 2);
        assert_int_equal(gguf_tokenizer_value(data, bytes, "eos_token_id"), settled ? 3 : 2);
        assert_int_equal(gguf_tokenizer_value(data, bytes, "add_bos_token"), false);
        free(data);
    }
    /* Of a list that config.json has, the settings say which one ends a text. */
    static const char *const lists[][2] = {{"[2, 3]", "3"}, {"[2, 1]", "3"}, {"1", "1"}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        json_edit(scratch_path(folder, "config.json"), "eos_token_id", lists[i][0]);
        char *data = gguf_of(directory, "in", &bytes);
        assert_int_equal(gguf_tokenizer_value(data, bytes, "eos_token_id"), atoi(lists[i][1]));
        free(data);
    }
    scratch_write(scratch_path(folder, "tokenizer_config.json"), "{}", 2);
    json_edit(scratch_path(folder, "config.json"), "eos_token_id", "[1, 0]");
    char *data = gguf_of(directory, "in", &bytes);
    assert_int_equal(gguf_tokenizer_value(data, bytes, "eos_token_id"), 1);
    free(data);
}

/* A merge of two pieces is written whole however long, and an id that no token has is not. */
CASE_WITH(test_gguf_merges_and_ids, scratch_setup, scratch_teardown)
{
    enum { LONG = 900 };
    char a[LONG + 1], json[6 * LONG], merge[2 * LONG + 16];
    memset(a, 'a', LONG);
    a[LONG] = 0;
    int length =
        snprintf(json, sizeof json,
                 "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"%s\": 0, \"%s%s\": 1}, "
                 "\"merges\": [[\"%s\", \"%s\"]]}, \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
                 "\"add_prefix_space\": false}, \"decoder\": {\"type\": \"ByteLevel\"}}",
                 a, a, a, a, a);
    assert_true(length > 0 && (size_t)length < sizeof json);
    const uint64_t bytes_of_merge = 2 * LONG + 1;
    memcpy(merge, &bytes_of_merge, 8);
    snprintf(merge + 8, sizeof merge - 8, "%s %s", a, a);
    const char *folder = folder_make(*state, "in", &(struct folder_of){.golden = "gpt2_tiny"});
    scratch_write(scratch_path(folder, "tokenizer.json"), json, (size_t)length);
    json_edit(scratch_path(folder, "config.json"), "bos_token_id", "1");
    json_edit(scratch_path(folder, "config.json"), "eos_token_id", "4294967297");
    model_export(*state, "in", "a.gguf", (struct ls_export){.format = LS_EXPORT_GGUF});
    size_t bytes;
    char *data = scratch_read(scratch_path(*state, "a.gguf"), &bytes);
    assert_non_null(memmem(data, bytes, merge, 8 + bytes_of_merge));
    assert_non_null(memmem(data, bytes, "ggml.bos_token_id", 17));
    assert_null(memmem(data, bytes, "ggml.eos_token_id", 17));
    free(data);
}

/* As llama.cpp's converter writes several chat templates, in a list or as transformers' object; of
 * two of one name the last counts. */
CASE_WITH(test_gguf_templates, scratch_setup, scratch_teardown)
{
/* A name longer than any buffer of a path, with a letter of two bytes, and what it becomes. */
#define LONG_PART "0123456789012345678901234567890123456789012345678901234567890123456789"
#define LONG      LONG_PART LONG_PART LONG_PART "é"
#define LONG_KEY  ".chat_template." LONG_PART LONG_PART LONG_PART "_"

#define KEY(length, name) BESIDE_STRING(length, "tokenizer.chat_template" name) "\10\0\0\0"
#define NAMES                                                                                      \
    "tokenizer.chat_templates"                                                                     \
    "\11\0\0\0\10\0\0\0"
    static const char list[] = "{\"chat_template\": [{\"name\": \"rag-2\", \"template\": \"old\"}, "
                               "{\"name\": \"tool_use\", \"template\": \"tools\"}, "
                               "{\"name\": \"rag-2\", \"template\": \"rag\"}, {\"name\": \"x\"}, "
                               "{\"name\": \"default\", \"template\": \"all\"}]}";
    static const char object[] = "{\"chat_template\": {\"rag-2\": \"rag\", \"x\": null, "
                                 "\"tool_use\": \"tools\", \"default\": \"all\"}}";
    static const char of_list[] = KEY("\27", "") BESIDE_STRING("\3", "all") KEY("\35", ".rag_2")
        BESIDE_STRING("\3", "rag") KEY("\40", ".tool_use") BESIDE_STRING("\5", "tools")
            BESIDE_STRING("\30", NAMES) BESIDE_STRING("\2", "") BESIDE_STRING("\5", "rag_2")
                BESIDE_STRING("\10", "tool_use");
    static const char of_files[] = KEY("\27", "") BESIDE_STRING("\5", "newer") KEY("\35", ".rag_2")
        BESIDE_STRING("\5", "older") KEY("\40", ".tool_use") BESIDE_STRING("\4", "file")
            BESIDE_STRING("\30", NAMES) BESIDE_STRING("\2", "") BESIDE_STRING("\5", "rag_2")
                BESIDE_STRING("\10", "tool_use");
    const char *folder = folder_make(*state, "in", &(struct folder_of){.golden = "gpt2_tiny"});
    scratch_write(scratch_path(folder, "tokenizer.json"), byte_level, sizeof byte_level - 1);
    scratch_write(scratch_path(folder, "tokenizer_config.json"), list, sizeof list - 1);
    for (int files = 0; files < 4; files++) {
        size_t bytes;
        if (files == 1)
            scratch_write(scratch_path(folder, "tokenizer_config.json"), object, sizeof object - 1);
        if (files == 2) {
            scratch_write(scratch_path(folder, "chat_template.jinja"), "newer", 5);
            assert_int_equal(mkdir(scratch_path(folder, "additional_chat_templates"), 0700), 0);
            scratch_write(scratch_path(folder, LS_CHAT_TOOLS_FILE), "file", 4);
            scratch_write(scratch_path(folder, MORE_TEMPLATES "rag-2.jinja"), "older", 5);
            scratch_write(scratch_path(folder, MORE_TEMPLATES "notes.txt"), "none", 4);
            scratch_write(scratch_path(folder, MORE_TEMPLATES ".jinja"), "none", 4);
        }
        if (files == 3) {
            scratch_write(scratch_path(folder, MORE_TEMPLATES LONG ".jinja"), "long", 4);
        }
        const char *name = (const char *[]){"a.gguf", "b.gguf", "c.gguf", "d.gguf"}[files];
        model_export(*state, "in", name, (struct ls_export){.format = LS_EXPORT_GGUF});
        char *data = scratch_read(scratch_path(*state, name), &bytes);
        assert_non_null(files == 3   ? memmem(data, bytes, LONG_KEY "\10", sizeof LONG_KEY)
                        : files == 2 ? memmem(data, bytes, of_files, sizeof of_files - 1)
                                     : memmem(data, bytes, of_list, sizeof of_list - 1));
        free(data);
    }
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void expect_refused(const char *directory, const char *run, struct ls_export what,
                           const char *words)
{
    struct ls_error error = {0};
    struct ls_export_report report;
    char paths[2][PATH];
    path_in(paths[0], directory, run);
    path_in(paths[1], directory, "never");
    what.from = paths[0];
    what.out = paths[1];
    int status = ls_export(&what, &report, &error);
    if (!status || !strstr(error.text, words))
        fail_msg("expected %s, found %d: %s", words, status, error.text);
    assert_int_not_equal(access(paths[1], F_OK), 0);
}

/* A template that a link brings from elsewhere is no part of the model. */
CASE_WITH(test_no_link_goes_into_a_file, scratch_setup, scratch_teardown)
{
    const char *folder = folder_make(*state, "in", &(struct folder_of){.golden = "gpt2_tiny"});
    scratch_write(scratch_path(folder, "tokenizer.json"), byte_level, sizeof byte_level - 1);
    assert_int_equal(symlink("/etc/hostname", scratch_path(folder, "chat_template.jinja")), 0);
    expect_refused(*state, "in", (struct ls_export){.format = LS_EXPORT_GGUF},
                   "chat_template.jinja: links to /etc/hostname, which is not in the folder");
}

/* Weights that int8 cannot represent are named, and nothing is left. */
CASE_WITH(test_bad_int8, scratch_setup, scratch_teardown)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY, 8.4e6f};
    const char *folder = folder_make(*state, "in", &(struct folder_of){.golden = "llama_tiny"});
    int before = scratch_count(*state);
    float row[32] = {1};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        row[9] = bad[i];
        row_edit(folder, UP, 40, row);
        expect_refused(*state, "in", (struct ls_export){.format = LS_EXPORT_GGUF, .dtype = LS_I8},
                       "blk.1.ffn_up.weight: row 40, from column 0 on");
        row_edit(folder, UP, 40, (float[32]){(float)i});
    }
    expect_refused(*state, "in", (struct ls_export){.format = LS_EXPORT_HF, .dtype = LS_I8},
                   "int8: only a GGUF file has it");
    expect_refused(*state, "in", (struct ls_export){.format = LS_EXPORT_LLMC, .dtype = LS_I8},
                   "int8: only a GGUF file has it");
    assert_int_equal(scratch_count(*state), before);
}

/* Row 40 of the model that was written begins with these. */
static void expect_halves(const char *folder, enum ls_dtype dtype, const uint16_t expected[3])
{
    struct ls_safetensors *file;
    struct ls_error error = {0};
    assert_ok(ls_safetensors_open(&file, scratch_path(folder, "model.safetensors"), &error), error);
    const struct ls_tensor_view *view = ls_safetensors_find(file, UP);
    assert_int_equal(view->dtype, dtype);
    const uint16_t *row = (const uint16_t *)tensor_data(file, UP) + (ptrdiff_t)40 * 32;
    for (int i = 0; i < 3; i++)
        if (row[i] != expected[i])
            fail_msg("column %d: %04x, expected %04x", i, row[i], expected[i]);
    ls_safetensors_close(file);
}

/* A weight that a smaller type would make infinite is named, and nothing is left. The largest that
 * is rounded to a finite one goes out, and what is not finite stays so. */
CASE_WITH(test_weights_beyond_a_type, scratch_setup, scratch_teardown)
{
    static const float least[] = {65520, -65520, 3.3961775e38f, -FLT_MAX};
    const char *folder = folder_make(*state, "in", &(struct folder_of){.golden = "llama_tiny"});
    const struct ls_export gguf = {.format = LS_EXPORT_GGUF, .dtype = LS_F16};
    int before = scratch_count(*state);
    float row[32] = {1};
    for (int i = 0; i < 4; i++) {
        struct ls_export hf = {.dtype = i < 2 ? LS_F16 : LS_BF16};
        row[9] = least[i];
        row[10] = i < 2 ? 1e30f : FLT_MAX;
        row_edit(folder, UP, 40, row);
        expect_refused(*state, "in", hf,
                       i == 0   ? UP ": row 40, column 9: 65520 is beyond the numbers of fp16, "
                                     "which end at 65504; choose bf16 or fp32"
                       : i == 1 ? ": -65520 is beyond"
                       : i == 2 ? UP ": row 40, column 9: 3.39617753e+38 is beyond the numbers of "
                                     "bf16, which end at 3.39e38; choose fp32"
                                : ": -3.40282347e+38 is beyond");
    }
    expect_refused(*state, "in", gguf, "blk.1.ffn_up.weight: row 40, column 9: -3.4");
    assert_int_equal(scratch_count(*state), before);
    row[1] = -INFINITY;
    row[2] = NAN;
    row[9] = row[10] = 0;
    row[0] = nextafterf(least[2], 0);
    row_edit(folder, UP, 40, row);
    model_export(*state, "in", "bf16", (struct ls_export){.dtype = LS_BF16});
    expect_halves(scratch_path(*state, "bf16"), LS_BF16, (uint16_t[]){0x7f7f, 0xff80, 0x7fc0});
    row[0] = nextafterf(least[0], 0);
    row_edit(folder, UP, 40, row);
    model_export(*state, "in", "fp16", (struct ls_export){.dtype = LS_F16});
    expect_halves(scratch_path(*state, "fp16"), LS_F16, (uint16_t[]){0x7bff, 0xfc00, 0x7e00});
}

#define GEMMA "model.arch=gemma2 model.attention_softcap=5 model.logit_softcap=5 model.window=8 "

CASE_WITH(test_models_that_a_format_cannot_say, scratch_setup, scratch_teardown)
{
    static const struct {
        const char *keys;
        enum ls_export_format format;
        const char *words;
    } cases[] = {
        {"model.kv_heads=2", LS_EXPORT_HF, "model.kv_heads = 2: Hugging Face's gpt2"},
        {"model.head_dim=16", LS_EXPORT_HF, "model.head_dim = 16: Hugging Face's gpt2"},
        {"model.bias=false", LS_EXPORT_HF, "model.bias = false: Hugging Face's gpt2"},
        {"model.arch=phi3 model.rope_scaling=linear model.rope_factor=2", LS_EXPORT_HF,
         "model.rope_factor = 2: Hugging Face's phi3 has no such scaling"},
        {"model.ffn=64", LS_EXPORT_LLMC, "model.ffn = 64: a file of llm.c has 4 times"},
        {"model.tied=false", LS_EXPORT_LLMC, "model.tied = false"},
        {"model.activation=gelu_erf", LS_EXPORT_GGUF,
         "model.activation = gelu_erf: GGUF's gpt2 has"},
        {GEMMA "model.query_scale=24", LS_EXPORT_GGUF, "model.query_scale = 24: GGUF's gemma2"},
        {"model.arch=gemma3 model.window_layers=even model.window=8 model.layers=2", LS_EXPORT_GGUF,
         "model.window_layers = even: GGUF's gemma3 has"},
        {"model.arch=olmo3 model.window=8 model.rope_local_theta=20", LS_EXPORT_GGUF,
         "model.rope_local_theta = 20: GGUF's olmo2 has model.rope_theta"},
        {"model.arch=smollm3 model.rope_layers=even model.layers=2", LS_EXPORT_GGUF,
         "model.rope_layers = even: GGUF's smollm3 has"},
        {"model.arch=qwen2 model.rope_scaling=llama3 model.rope_factor=2 "
         "model.rope_original_context=8",
         LS_EXPORT_GGUF, "model.rope_scaling = llama3: GGUF's qwen2 has default, linear or yarn"},
        {GEMMA "model.tied=false", LS_EXPORT_GGUF, "model.tied = false: GGUF's gemma2 has"},
        {"model.arch=llama", LS_EXPORT_LLMC, "model.arch = llama: a file of llm.c has gpt2"},
    };
    const char *directory = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char run[32], words[512];
        snprintf(run, sizeof run, "run%zu", i);
        snprintf(words, sizeof words, "%s data.tokenizer=byte", cases[i].keys);
        run_make(directory, run, words);
        expect_refused(directory, run, (struct ls_export){.format = cases[i].format},
                       cases[i].words);
    }
    expect_refused(directory, "run0", (struct ls_export){.which = "7"}, "no such checkpoint");
    expect_refused(directory, "run3", (struct ls_export){.format = LS_EXPORT_LLMC, .dtype = LS_F16},
                   "fp32 or bf16");
    mkdir(scratch_path(directory, "full"), 0777);
    scratch_write(scratch_path(directory, "full/x"), "x", 1);
    struct ls_error error = {0};
    struct ls_export_report report;
    char paths[2][PATH];
    path_in(paths[0], directory, "run3");
    path_in(paths[1], directory, "full");
    assert_int_equal(
        ls_export(&(struct ls_export){.from = paths[0], .out = paths[1]}, &report, &error),
        LS_ECONFIG);
    assert_non_null(strstr(error.text, "already exists"));
    const struct ls_export file = {
        .from = paths[0], .out = scratch_path(directory, "full/x"), .format = LS_EXPORT_GGUF};
    assert_int_equal(ls_export(&file, &report, &error), LS_ECONFIG);
    assert_non_null(strstr(error.text, "already exists"));
}

/* Calls of read(2) and its like that this process has made; -1: the system does not count them. */
static long reads_made(void)
{
    char text[512];
    const char *line =
        ls_file_head("/proc/self/io", text, sizeof text) ? strstr(text, "syscr:") : 0;
    return line ? strtol(line + strlen("syscr:"), NULL, 10) : -1;
}

/* Rows of 6144 values, of which a block takes 85: a head of 128 rows is cut behind an odd one. Its
 * halves are read in pieces, not row by row. */
CASE_WITH(test_a_head_of_gguf_in_blocks, scratch_setup, scratch_teardown)
{
    enum { ROWS = 128, COLS = 6144 };
    static const char *const names[] = {"q", "k"};
    uint16_t tokens[100] = {0};
    char paths[2][PATH], name[64];
    struct ls_error error = {0};
    size_t bytes;
    if (!check_all())
        skip();
    scratch_write(scratch_path(*state, "tokens.bin"), tokens, sizeof tokens);
    struct ls_config config = config_of_words(
        "model.arch=llama model.layers=1 model.channels=6144 model.heads=1 model.head_dim=128 "
        "model.ffn=32 model.context=16 data.train=u16:%s/tokens.bin data.tokenizer=byte "
        "batch.global=1 train.steps=0 train.out=%s/run log.progress=off numerics.precision=fp32",
        (const char *)*state, (const char *)*state);
    assert_ok(ls_world_run(1, train_body, &config, &error), error);
    export(*state, "run", "hf", (struct ls_export){.format = LS_EXPORT_HF});
    long at = reads_made();
    export(*state, "hf", "again", (struct ls_export){.format = LS_EXPORT_HF});
    long plain = reads_made() - at;
    export(*state, "hf", "a.gguf", (struct ls_export){.format = LS_EXPORT_GGUF});
    long heads = reads_made() - at - 2 * plain; /* more than of rows as they are */
    if (at >= 0 && heads >= ROWS)
        fail_msg("%ld more reads, expected fewer than q has rows", heads);
    path_in(paths[0], *state, "hf/model.safetensors");
    path_in(paths[1], *state, "a.gguf");
    struct ls_safetensors *file;
    assert_ok(ls_safetensors_open(&file, paths[0], &error), error);
    char *data = scratch_read(paths[1], &bytes);
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "model.layers.0.self_attn.%s_proj.weight", names[i]);
        const float *theirs = tensor_data(file, name);
        snprintf(name, sizeof name, "blk.0.attn_%s.weight", names[i]);
        const float *ours = gguf_tensor(data, bytes, name, F32);
        for (int r = 0; r < ROWS; r++)
            assert_memory_equal(ours + r * COLS, theirs + (r % 2 * (ROWS / 2) + r / 2) * COLS,
                                COLS * sizeof(float));
    }
    ls_safetensors_close(file);
    free(data);
}

/* A rename puts no folder there: it is told before anything is written. */
CASE_WITH(test_empty_folders_that_cannot_be_replaced, scratch_setup, scratch_teardown)
{
    static const struct {
        const char *name, *words;
    } cases[] = {{"link", "link: a link, in whose place no finished folder can be put"},
                 {"link/", "such as"},
                 {"empty/.", "empty/.: a folder under no name of its own"}};
    const char *folder = folder_make(*state, "in", &(struct folder_of){.golden = "gpt2_tiny"});
    assert_int_equal(mkdir(scratch_path(*state, "empty"), 0777), 0);
    assert_int_equal(symlink("empty", scratch_path(*state, "link")), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_error error = {0};
        struct ls_export_report report;
        char out[PATH];
        path_in(out, *state, cases[i].name);
        int status = ls_export(&(struct ls_export){.from = folder, .out = out}, &report, &error);
        if (status != LS_ECONFIG || !strstr(error.text, cases[i].words))
            fail_msg("expected %s, found %d: %s", cases[i].words, status, error.text);
        assert_int_equal(scratch_count(scratch_path(*state, "empty")), 0);
    }
}

/* ---- nothing half-written -------------------------------------------------------------------- */

static void check_faults(const char *directory, enum ls_export_format format, int failures_min)
{
    char paths[2][PATH];
    int failures = 0, status = LS_ENOSPC;
    path_in(paths[0], directory, "in");
    path_in(paths[1], directory,
            format == LS_EXPORT_HF     ? "out"
            : format == LS_EXPORT_LLMC ? "out.bin"
                                       : "out.gguf");
    int before = scratch_count(directory);
    for (int n = 0; status; n++) {
        struct countdown countdown = {.left = n};
        struct ls_fault fault = {countdown_before, &countdown};
        struct ls_error error = {0};
        struct ls_export_report report;
        const struct ls_export what = {.from = paths[0],
                                       .format = format,
                                       .out = paths[1],
                                       .shard_bytes = 30000,
                                       .fault = &fault};
        status = ls_export(&what, &report, &error);
        failures += status != LS_OK;
        if (status && status != LS_ENOSPC)
            fail_msg("call %d: %d: %s", n, status, error.text);
        if (status && access(paths[1], F_OK) == 0)
            break; /* all but the last sync was done */
        if (status)
            assert_int_equal(scratch_count(directory), before); /* no temporary stays */
    }
    assert_true(failures >= failures_min);
    assert_int_equal(access(paths[1], F_OK), 0);
}

CASE_WITH(test_every_call_that_fails, scratch_setup, scratch_teardown)
{
    folder_make(*state, "in", &(struct folder_of){.golden = "gpt2_tiny"});
    check_faults(*state, LS_EXPORT_HF, 20);
    check_faults(*state, LS_EXPORT_LLMC, 3);
    check_faults(*state, LS_EXPORT_GGUF, 3);
}

SUITE_MAIN(NULL, NULL)
