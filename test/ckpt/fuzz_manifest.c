/* libFuzzer: a manifest with any bytes in it changed, and the digest that it then has, beside the
 * files that it was of. What is wrong is said; what is read lies inside the files. */
#include "ckpt/format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char run[64], directory[128], path[160], *text;
static size_t bytes;

static void part_write(struct ls_checkpoint_writer *writer, enum ls_checkpoint_part part,
                       const char *name)
{
    static const float values[64];
    const struct ls_tensor_entry entry = {name, LS_F32, 2, {4, 8}, values};
    const struct ls_tensor_box box = {{4, 8}, {0, 0}, "weight"};
    struct ls_safetensors_writer *file;
    LS_ASSERT(!ls_checkpoint_writer_begin(writer, part, &entry, &box, 1, &file, NULL));
    LS_ASSERT(!ls_safetensors_writer_append(file, values, 32 * sizeof *values, NULL));
    LS_ASSERT(!ls_checkpoint_writer_end(writer, NULL));
}

static void checkpoint_make(void)
{
    const struct ls_checkpoint_state state = {.step = 1,
                                              .loss_scale = 1,
                                              .recipe_digest = "",
                                              .recipe = "",
                                              .fingerprint = "",
                                              .hash = ""};
    struct ls_checkpoint_writer *writer;
    snprintf(run, sizeof run, "/tmp/fuzz-manifest-XXXXXX");
    LS_ASSERT(mkdtemp(run));
    LS_ASSERT(
        !ls_checkpoint_writer_open(&writer, run, &state, -1, LS_CKPT_SHARED, NULL, NULL, NULL));
    part_write(writer, LS_CKPT_MODEL, "w");
    part_write(writer, LS_CKPT_OPTIMIZER, "exp_avg.w");
    LS_ASSERT(!ls_checkpoint_writer_commit(writer, LS_OK, NULL));
    snprintf(directory, sizeof directory, "%s/checkpoints/step-00000001", run);
    snprintf(path, sizeof path, "%s/manifest.json", directory);
    LS_ASSERT(!ls_file_read(path, 1 << 20, LS_ECKPT, &text, &bytes, NULL));
}

static void manifest_write(const char *changed)
{
    char digest[33];
    json_t *object = json_loads(changed, 0, NULL);
    FILE *file = fopen(path, "wb");
    LS_ASSERT(file);
    if (json_is_object(object) && ckpt_object_digest(object, ckpt_versions[0].digest, digest)) {
        json_object_set_new(object, ckpt_versions[0].digest, json_string(digest));
        LS_ASSERT(json_dumpf(object, file, 0) == 0);
    } else {
        fputs(changed, file);
    }
    LS_ASSERT(fclose(file) == 0);
    json_decref(object);
}

/* Each three bytes of the input: where, and what stands there. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ls_error error = {0};
    struct ls_checkpoint *checkpoint;
    if (!text)
        checkpoint_make();
    char *changed = strdup(text);
    LS_ASSERT(changed);
    for (size_t i = 0; i + 3 <= size; i += 3)
        changed[((size_t)data[i] << 8 | data[i + 1]) % bytes] = (char)data[i + 2];
    manifest_write(changed);
    free(changed);
    int status = ls_checkpoint_open(&checkpoint, directory, &error);
    for (int part = 0; part < CKPT_PARTS && !status; part++)
        status = ls_checkpoint_verify(checkpoint, (enum ls_checkpoint_part)part, &error);
    LS_ASSERT(status == LS_OK || (status == error.code && error.text[0]));
    ls_checkpoint_close(checkpoint);
    return 0;
}
