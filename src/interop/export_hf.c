/* A folder that transformers' from_pretrained reads: config.json, weights in shards, and what came
 * with the model. */
#include "interop/export_private.h"

#include <lockstep/config/inputs.h>

#include <stdlib.h>
#include <string.h>

enum { GPT2_VOCABULARY = 50257 }; /* of GPT-2's own tokenizer: its last token ends a document */

/* ---- config.json ----------------------------------------------------------------------------- */

/* What the model came with says of text (which token ends it), and of what else has no effect here.
 * Without it, the run's tokenizer says what ends a document. */
static json_t *description_begin(const struct exporting *ex)
{
    /* No code is exported, so none is named: auto_map. */
    static const char *const ours[] = {"rope_theta",  "rope_scaling",        "rope_parameters",
                                       "torch_dtype", "quantization_config", "auto_map",
                                       NULL};
    const char *folder = ex->source->folder;
    const char *type = ls_family_of(ex->config.model.arch)->hf.model_type;
    char path[PATH_MAX];
    json_t *kept = NULL;
    if (folder && ls_path_join(path, folder, "config.json", NULL) == LS_OK &&
        ls_json_read(path, LS_EDATA, &kept, NULL) == LS_OK) {
        const char *there = json_string_value(json_object_get(kept, "model_type"));
        for (const char *const *name = ours; *name; name++)
            json_object_del(kept, *name);
        if (there && type && !strcmp(there, type))
            return kept;
        json_decref(kept);
    }
    struct ls_tokenizer *tokenizer = NULL;
    /* Left out, transformers takes its family's tokens, which may be beyond the vocabulary. */
    json_t *fresh = json_pack("{s:b, s:n, s:n, s:n}", "use_cache", 1, "pad_token_id",
                              "bos_token_id", "eos_token_id");
    const struct ls_hf_dropout *each = ls_family_of(ex->config.model.arch)->hf.dropouts;
    for (; each && each->name; each++)
        json_object_set_new(fresh, each->name,
                            json_real(each->ours ? (double)ex->config.model.dropout : 0));
    bool known = ls_config_tokenizer(&ex->config, &tokenizer, NULL) == LS_OK && tokenizer;
    bool gpt2 = type && !strcmp(type, "gpt2") && ex->config.model.vocab == GPT2_VOCABULARY;
    int64_t end = known ? ls_tokenizer_eod(tokenizer) : gpt2 ? GPT2_VOCABULARY - 1 : -1;
    if (end >= 0) {
        json_object_set_new(fresh, "bos_token_id", json_integer(end));
        json_object_set_new(fresh, "eos_token_id", json_integer(end));
    }
    ls_tokenizer_free(tokenizer);
    return fresh;
}

static int description_write(struct exporting *ex, const char *folder, struct ls_error *error)
{
    enum ls_dtype dtype = ex->export->dtype;
    const char *word = dtype == LS_F32 ? "float32" : dtype == LS_BF16 ? "bfloat16" : "float16";
    json_t *description = description_begin(ex);
    json_object_set_new(description, "dtype", json_string(word));
    int status = interop_keys_export(&ex->config, description, error);
    if (!status)
        interop_rope_tell(description, "config.json", ex->export->log);
    if (!status)
        return interop_json_write(description, folder, "config.json", ex->export->fault, error);
    json_decref(description);
    return status;
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Tensors [first, end) of the list are one file. */
struct shard {
    int64_t first, end;
};

static int64_t shards_cut(const struct exporting *ex, struct shard *shards)
{
    int64_t limit = ex->export->shard_bytes ? ex->export->shard_bytes : LS_SHARD_BYTES;
    int64_t count = 0, bytes = 0;
    shards[0] = (struct shard){0, 0};
    for (int64_t i = 0; i < ex->count; i++) {
        int64_t more = out_bytes(&ex->tensors[i]);
        if (bytes > 0 && bytes + more > limit) {
            shards[++count] = (struct shard){i, i};
            bytes = 0;
        }
        bytes += more;
        shards[count].end = i + 1;
    }
    return count + 1;
}

static int index_write(const struct exporting *ex, json_t *map, const char *folder,
                       struct ls_error *error)
{
    json_t *index = json_pack("{s:{s:I}, s:O}", "metadata", "total_size",
                              (json_int_t)ex->report.bytes, "weight_map", map);
    return interop_json_write(index, folder, "model.safetensors.index.json", ex->export->fault,
                              error);
}

static int weights_write(struct exporting *ex, const char *folder, struct ls_error *error)
{
    struct shard *shards = calloc((size_t)ex->count + 1, sizeof *shards);
    if (!shards)
        return ls_no_memory(error, "for a list of files");
    json_t *map = json_object();
    int64_t count = shards_cut(ex, shards);
    int status = LS_OK;
    for (int64_t s = 0; s < count && !status; s++) {
        char name[64], path[PATH_MAX];
        snprintf(name, sizeof name, "model-%05lld-of-%05lld.safetensors", (long long)s + 1,
                 (long long)count);
        status = ls_path_join(path, folder, count > 1 ? name : "model.safetensors", error);
        if (!status)
            status = out_safetensors(ex, shards[s].first, shards[s].end, path, error);
        for (int64_t i = shards[s].first; i < shards[s].end; i++)
            json_object_set_new(map, ex->tensors[i].name, json_string(name));
    }
    if (!status && count > 1)
        status = index_write(ex, map, folder, error);
    json_decref(map);
    free(shards);
    return status;
}

/* ---- the folder ------------------------------------------------------------------------------ */

/* Files of GPT-2's tokenizer alone need a word for what reads them. */
static int tokenizer_write(struct exporting *ex, const char *folder, struct ls_error *error)
{
    const char *from = ex->source->folder;
    if (from)
        interop_files_tell(from, ex->export->log);
    int status = from ? interop_files_copy(from, folder, false, ex->export->fault, error) : LS_OK;
    if (status || interop_exists(folder, "tokenizer_config.json") ||
        !interop_exists(folder, "merges.txt"))
        return status;
    json_t *words = json_pack("{s:s, s:I}", "tokenizer_class", "GPT2Tokenizer", "model_max_length",
                              (json_int_t)ex->config.model.context);
    return interop_json_write(words, folder, "tokenizer_config.json", ex->export->fault, error);
}

int export_hf(struct exporting *ex, struct ls_error *error)
{
    static out_file *const files[] = {description_write, tokenizer_write, weights_write, NULL};
    return out_folder(ex, files, error);
}
