/* GGUF's names of tensors, and its metadata of a model. */
#include "interop/gguf.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ---------------------------------------------------------------------------------- */

void gguf_write_u32(FILE *stream, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        fputc((int)(value >> (8 * i) & 255), stream);
}

void gguf_write_u64(FILE *stream, uint64_t value)
{
    gguf_write_u32(stream, (uint32_t)value);
    gguf_write_u32(stream, (uint32_t)(value >> 32));
}

void gguf_write_f32(FILE *stream, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    gguf_write_u32(stream, bits);
}

void gguf_write_string(FILE *stream, const char *text, size_t bytes)
{
    gguf_write_u64(stream, bytes);
    fwrite(text, 1, bytes, stream);
}

static void key_write(struct gguf_metadata *metadata, const char *key, enum gguf_type type)
{
    const char *before = *key == '.' ? metadata->architecture : "";
    gguf_write_u64(metadata->stream, strlen(before) + strlen(key));
    fputs(before, metadata->stream);
    fputs(key, metadata->stream);
    gguf_write_u32(metadata->stream, type);
    metadata->count++;
}

void gguf_put_u32(struct gguf_metadata *metadata, const char *key, uint32_t value)
{
    key_write(metadata, key, GGUF_U32);
    gguf_write_u32(metadata->stream, value);
}

static void put_f32(struct gguf_metadata *metadata, const char *key, float value)
{
    key_write(metadata, key, GGUF_F32);
    gguf_write_f32(metadata->stream, value);
}

void gguf_put_bool(struct gguf_metadata *metadata, const char *key, bool value)
{
    key_write(metadata, key, GGUF_BOOL);
    fputc(value, metadata->stream);
}

void gguf_put_string(struct gguf_metadata *metadata, const char *key, const char *value)
{
    key_write(metadata, key, GGUF_STRING);
    gguf_write_string(metadata->stream, value, strlen(value));
}

void gguf_put_array(struct gguf_metadata *metadata, const char *key, enum gguf_type type,
                    uint64_t count)
{
    key_write(metadata, key, GGUF_ARRAY);
    gguf_write_u32(metadata->stream, type);
    gguf_write_u64(metadata->stream, count);
}

/* ---- names of tensors ------------------------------------------------------------------------ */

static const struct ls_gguf_name common[] = {
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
    {"input_layernorm", "attn_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {0},
};

static const char *name_find(const struct ls_gguf_name *names, const char *core)
{
    for (; names && names->elsewhere; names++)
        if (!strcmp(names->elsewhere, core))
            return names->name;
    return NULL;
}

/* What stands behind "model.layers.3." or "h.3.", and the 3; all of it, and -1, elsewhere. */
static const char *behind_layer(const char *name, long *layer)
{
    *layer = -1;
    for (const char *at = name; (at = strchr(at, '.')); at++)
        if (isdigit((unsigned char)at[1])) {
            char *end;
            *layer = strtol(at + 1, &end, 10);
            return *end == '.' ? end + 1 : end;
        }
    return name;
}

bool gguf_name(enum ls_arch arch, const char *elsewhere, char name[LS_PARAM_NAME_MAX + 1])
{
    long layer;
    char core[LS_PARAM_NAME_MAX + 1];
    const char *rest = behind_layer(elsewhere, &layer), *dot = strrchr(rest, '.');
    snprintf(core, sizeof core, "%.*s", dot ? (int)(dot - rest) : 0, rest);
    const char *there = name_find(ls_family_of(arch)->gguf.names, core);
    there = there ? there : name_find(common, core);
    if (!there || !dot)
        return false;
    if (layer < 0)
        snprintf(name, LS_PARAM_NAME_MAX + 1, "%s%s", there, dot);
    else
        snprintf(name, LS_PARAM_NAME_MAX + 1, "blk.%ld.%s%s", layer, there, dot);
    return true;
}

/* ---- the model ------------------------------------------------------------------------------- */

/* Keys of all architectures, behind "llama.". */
static const struct ls_gguf_key keys[] = {
    {"context_length", "context"},     {"embedding_length", "channels"},
    {"block_count", "layers"},         {"feed_forward_length", "ffn"},
    {"attention.head_count", "heads"}, {"attention.head_count_kv", "kv_heads"},
    {"vocab_size", "vocab"},           {0},
};
/* Those with rotary positions, which all have RMSNorm, and the others. */
static const struct ls_gguf_key rotary_keys[] = {
    {"attention.layer_norm_rms_epsilon", "norm_epsilon"},
    {"attention.key_length", "head_dim"},
    {"attention.value_length", "head_dim"},
    {"rope.dimension_count", "head_dim"},
    {"rope.freq_base", "rope_theta"},
    {0},
};
static const struct ls_gguf_key other_keys[] = {
    {"attention.layer_norm_epsilon", "norm_epsilon"},
    {0},
};

static void keys_put(struct gguf_metadata *metadata, const struct exporting *ex,
                     const struct ls_gguf_key *rows)
{
    for (; rows && rows->name; rows++) {
        char name[96], ours[64], text[LS_CONFIG_VALUE_BYTES];
        snprintf(name, sizeof name, ".%s", rows->name);
        snprintf(ours, sizeof ours, "model.%s", rows->key);
        const struct ls_config_key *key = ls_config_key_of(ours);
        ls_config_value(&ex->config, key, text, sizeof text);
        if (key->type == LS_CONFIG_INT)
            gguf_put_u32(metadata, name, (uint32_t)strtoul(text, NULL, 10));
        else
            put_f32(metadata, name, strtof(text, NULL));
    }
}

/* llama3's scaling is a tensor there (rope_freqs.weight). */
static void scaling_put(struct gguf_metadata *metadata, const struct ls_rope_scaling *scaling)
{
    bool linear = scaling->kind == LS_ROPE_LINEAR;
    if (scaling->factor <= 1 || scaling->kind == LS_ROPE_LLAMA3)
        return;
    gguf_put_string(metadata, ".rope.scaling.type", linear ? "linear" : "yarn");
    put_f32(metadata, ".rope.scaling.factor", scaling->factor);
    if (linear)
        return;
    gguf_put_u32(metadata, ".rope.scaling.original_context_length",
                 (uint32_t)scaling->original_context);
    put_f32(metadata, ".rope.scaling.yarn_beta_fast", scaling->beta_fast);
    put_f32(metadata, ".rope.scaling.yarn_beta_slow", scaling->beta_slow);
    double usual = 0.1 * log(scaling->factor) + 1; /* is there already */
    if (scaling->attention_factor > 0)
        put_f32(metadata, ".rope.scaling.attn_factor", (float)(scaling->attention_factor / usual));
}

void gguf_put_model(struct gguf_metadata *metadata, const struct exporting *ex)
{
    enum { ALL_F32 = 0, MOSTLY_F16 = 1, MOSTLY_Q8_0 = 7, MOSTLY_BF16 = 32, QUANTIZATION = 2 };
    enum ls_arch arch = ex->config.model.arch;
    const struct ls_family_gguf *family = &ls_family_of(arch)->gguf;
    enum ls_dtype dtype = ex->export->dtype;
    const char *slash = strrchr(ex->source->path, '/');
    metadata->architecture = family->architecture;
    gguf_put_string(metadata, "general.architecture", family->architecture);
    gguf_put_string(metadata, "general.type", "model");
    gguf_put_string(metadata, "general.name", slash && slash[1] ? slash + 1 : ex->source->path);
    gguf_put_u32(metadata, "general.file_type",
                 dtype == LS_F32   ? ALL_F32
                 : dtype == LS_F16 ? MOSTLY_F16
                 : dtype == LS_I8  ? MOSTLY_Q8_0
                                   : MOSTLY_BF16);
    gguf_put_u32(metadata, "general.quantization_version", QUANTIZATION);
    gguf_put_u32(metadata, "general.alignment", GGUF_ALIGNMENT);
    keys_put(metadata, ex, keys);
    bool rotary = ls_family_reads(arch, "rope_theta");
    keys_put(metadata, ex, rotary ? rotary_keys : other_keys);
    keys_put(metadata, ex, family->keys);
    if (rotary)
        scaling_put(metadata, &ex->config.model.rope_scaling);
}
