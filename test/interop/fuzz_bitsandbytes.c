/* Any bytes as the quant_state of a matrix in NF4, and the first of them as sizes of what lies
 * beside it: it is read within its file, or what is wrong is said. */
#include "../support/saved_tensors.h"

#include <lockstep/ckpt.h>
#include <lockstep/config.h>
#include <lockstep/interop.h>

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WIDTH = 64, ENTRIES = 32 };
static char folder[64];

static const char *inside(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void folder_make(void)
{
    static const char config[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_hidden_layers\": 1, "
        "\"num_attention_heads\": 1, \"intermediate_size\": 64, \"vocab_size\": 8, "
        "\"max_position_embeddings\": 8, \"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\", "
        "\"quantization_config\": {\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": true}}";
    snprintf(folder, sizeof folder, "/tmp/fuzz-nf4-XXXXXX");
    LS_ASSERT(mkdtemp(folder));
    FILE *file = fopen(inside("config.json"), "wb");
    LS_ASSERT(file && fputs(config, file) >= 0 && fclose(file) == 0);
}

/* The matrix is the first of the block; the others are plain. */
static void weights_make(const uint8_t *data, size_t size)
{
    static const float zeros[WIDTH * WIDTH];
    static const char *const plain[] = {"k_proj", "v_proj", "o_proj"};
    static const char *const mlp[] = {"gate_proj", "up_proj", "down_proj"};
    static char names[ENTRIES][96];
    const int64_t sizes[4] = {data[0], data[1], data[2], data[3]};
    struct ls_tensor_entry e[ENTRIES];
    size_t count = 0;
#define ADD(...) (snprintf(names[count], sizeof names[0], __VA_ARGS__), names[count])
#define AT       "model.layers.0.self_attn.q_proj.weight"
    e[count] = (struct ls_tensor_entry){ADD(AT), LS_U8, 2, {WIDTH * WIDTH / 2, 1}, zeros};
    count++;
    e[count] = (struct ls_tensor_entry){
        ADD(AT ".absmax"), data[4] % 2 ? LS_U8 : LS_F32, 1, {sizes[0]}, zeros};
    count++;
    e[count] = (struct ls_tensor_entry){ADD(AT ".quant_map"), LS_F32, 1, {16}, ls_nf4_map()};
    count++;
    e[count] = (struct ls_tensor_entry){ADD(AT ".nested_absmax"), LS_F32, 1, {sizes[1]}, zeros};
    count++;
    e[count] =
        (struct ls_tensor_entry){ADD(AT ".nested_quant_map"), LS_F32, 1, {sizes[2] + 1}, zeros};
    count++;
    e[count] = (struct ls_tensor_entry){
        ADD(AT ".quant_state.bitsandbytes__nf4"), LS_U8, 1, {(int64_t)size - 5}, data + 5};
    count++;
    for (int i = 0; i < 3; i++) {
        e[count] = (struct ls_tensor_entry){
            ADD("model.layers.0.self_attn.%s.weight", plain[i]), LS_F32, 2, {WIDTH, WIDTH}, zeros};
        count++;
        e[count] = (struct ls_tensor_entry){
            ADD("model.layers.0.mlp.%s.weight", mlp[i]), LS_F32, 2, {WIDTH, WIDTH}, zeros};
        count++;
    }
    static const char *const vectors[] = {"model.norm", "model.layers.0.input_layernorm",
                                          "model.layers.0.post_attention_layernorm"};
    for (int i = 0; i < 3; i++) {
        e[count] =
            (struct ls_tensor_entry){ADD("%s.weight", vectors[i]), LS_F32, 1, {WIDTH}, zeros};
        count++;
    }
    e[count] =
        (struct ls_tensor_entry){ADD("model.embed_tokens.weight"), LS_F32, 2, {8, WIDTH}, zeros};
    count++;
    e[count] = (struct ls_tensor_entry){ADD("lm_head.weight"), LS_F32, 2, {8, WIDTH}, zeros};
    count++;
    LS_ASSERT(tensors_save(inside("model.safetensors"), e, count, NULL) == LS_OK);
}

static int values_read(struct ls_model_source *source, struct ls_error *error)
{
    static struct ls_config config;
    static float values[WIDTH * WIDTH];
    struct ls_ops ops = {.threads = 1};
    int status = ls_model_source_alone(source, NULL, 0, NULL, &config, error);
    struct ls_numerics numerics = status ? (struct ls_numerics){0} : ls_config_numerics(&config);
    if (!status)
        status = ls_model_source_check(source, &config.model, &numerics, error);
    struct ls_params params;
    if (status || ls_params_init(&params, &config.model, &numerics, NULL, error))
        return status;
    const struct ls_param *q = ls_params_find(&params, "h.0.attn.q.weight");
    LS_ASSERT(q && ls_param_elements(q) == WIDTH * WIDTH);
    status = ls_model_source_fill(source, q, &ops, 0, WIDTH * WIDTH, values, error);
    ls_params_release(&params);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ls_error error = {0};
    struct ls_model_source *source;
    if (size < 6 || size > 4096)
        return 0;
    if (!folder[0])
        folder_make();
    weights_make(data, size);
    int status = ls_model_source_open(&source, folder, NULL, &error);
    if (!status)
        status = values_read(source, &error);
    LS_ASSERT(!status || error.text[0]);
    ls_model_source_close(source);
    return 0;
}
