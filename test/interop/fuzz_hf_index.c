/* Any bytes as model.safetensors.index.json beside one small file of weights: nothing outside of
 * the folder is opened, and what is wrong is said. */
#include "../support/saved_tensors.h"

#include <lockstep/ckpt.h>
#include <lockstep/interop.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[64];

static void write_file(const char *name, const void *data, size_t size)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    LS_ASSERT(file && fwrite(data, 1, size, file) == size && fclose(file) == 0);
}

static void folder_make(void)
{
    static const char config[] = "{\"model_type\": \"gpt2\", \"n_layer\": 1, \"n_embd\": 8, "
                                 "\"n_head\": 1, \"n_positions\": 8, \"vocab_size\": 8}";
    static const float table[64];
    const struct ls_tensor_entry entry = {"wte.weight", LS_F32, 2, {8, 8}, table};
    char path[128];
    snprintf(folder, sizeof folder, "/tmp/fuzz-index-XXXXXX");
    LS_ASSERT(mkdtemp(folder));
    write_file("config.json", config, strlen(config));
    snprintf(path, sizeof path, "%s/a.safetensors", folder);
    LS_ASSERT(tensors_save(path, &entry, 1, NULL) == LS_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ls_error error = {0};
    struct ls_model_source *source;
    if (!folder[0])
        folder_make();
    write_file("model.safetensors.index.json", data, size);
    int status = ls_model_source_open(&source, folder, NULL, &error);
    LS_ASSERT(!status || error.text[0]);
    ls_model_source_close(source);
    return 0;
}
