/* llm.c's model_*.bin: sixteen arrays, each over all layers, the table padded to whole 128 rows. */
#include "interop/export_private.h"
#include "interop/llmc_layout.h"

#include <string.h>

/* The GPT-2 that llm.c has, and nothing else. */
static int model_check(const struct exporting *ex, struct ls_error *error)
{
    const struct ls_config *config = &ex->config;
    const struct ls_model_config *model = &config->model;
    const char *type = ls_family_of(model->arch)->hf.model_type;
    const struct {
        bool good;
        const char *key, *expected;
    } demands[] = {
        {ex->export->dtype != LS_F16, "model.arch", "fp32 or bf16 as the type of its values"},
        {type && !strcmp(type, "gpt2"), "model.arch", "gpt2"},
        {model->kv_heads == model->heads, "model.kv_heads", "as many as model.heads"},
        {model->heads * model->head_dim == model->channels, "model.head_dim", "channels / heads"},
        {model->ffn == 4 * model->channels, "model.ffn", "4 times model.channels"},
        {model->tied, "model.tied", "true"},
        {model->bias, "model.bias", "true"},
        {model->act == LS_ACT_GELU_TANH, "model.activation", "gelu_tanh"},
        {model->norm_epsilon == 1e-5f, "model.norm_epsilon", "1e-5"},
    };
    for (size_t i = 0; i < sizeof demands / sizeof *demands; i++)
        if (!demands[i].good)
            return ls_config_reject(config, LS_ECONFIG, demands[i].key, error,
                                    "a file of llm.c has %s", demands[i].expected);
    return LS_OK;
}

static void header_fill(const struct exporting *ex, int32_t header[LLMC_HEADER_INTS])
{
    const struct ls_model_config *model = &ex->config.model;
    memset(header, 0, LLMC_HEADER_INTS * sizeof *header);
    header[0] = LLMC_MAGIC;
    header[1] = ex->export->dtype == LS_F32 ? LLMC_VERSION_F32 : LLMC_VERSION_BF16;
    header[LLMC_CONTEXT] = (int32_t)model->context;
    header[LLMC_VOCAB] = (int32_t)model->vocab;
    header[LLMC_LAYERS] = (int32_t)model->layers;
    header[LLMC_HEADS] = (int32_t)model->heads;
    header[LLMC_CHANNELS] = (int32_t)model->channels;
    header[LLMC_VOCAB_PADDED] = (int32_t)ls_round_up(model->vocab, LLMC_VOCAB_MULTIPLE);
}

/* The tensor of an array and a layer: by its name there, stored by our rows. */
static struct out_tensor tensor_of(const struct exporting *ex, const struct llmc_array *array,
                                   int64_t layer, const int32_t *header)
{
    char name[LS_PARAM_NAME_MAX + 1];
    int64_t i = 0;
    if (array->layers)
        snprintf(name, sizeof name, "h.%lld.%s", (long long)layer, array->name);
    else
        snprintf(name, sizeof name, "%s", array->name);
    while (strcmp(ex->tensors[i].name, name))
        LS_ASSERT(++i < ex->count);
    struct out_tensor tensor = ex->tensors[i];
    if (tensor.transposed) {
        tensor.rows = ex->tensors[i].cols;
        tensor.cols = ex->tensors[i].rows;
        tensor.transposed = false;
    }
    tensor.rows = llmc_elements(array, header) / tensor.cols;
    return tensor;
}

static int file_write(struct exporting *ex, struct ls_atomic_file *file, struct ls_error *error)
{
    int32_t header[LLMC_HEADER_INTS];
    header_fill(ex, header);
    int status = out_append(file, header, sizeof header, error);
    for (int a = 0; a < LLMC_ARRAYS; a++) {
        const struct llmc_array *array = &llmc_arrays[a];
        int64_t layers = array->layers ? ex->config.model.layers : 1;
        for (int64_t layer = 0; layer < layers && !status; layer++) {
            const struct out_tensor tensor = tensor_of(ex, array, layer, header);
            status = out_write(ex, &tensor, out_append, file, error);
        }
    }
    return pump_drain(&ex->pump, status, error);
}

int export_llmc(struct exporting *ex, struct ls_error *error)
{
    int status = model_check(ex, error);
    return status ? status : out_single(ex, file_write, error);
}
