/* Fills what is automatic of the model, from its preset and its family, and refuses what no model
 * of the family is. */
#include "config/config_private.h"

#include <string.h>

#define REJECT(name, ...) ls_config_reject(config, LS_ECONFIG, name, error, __VA_ARGS__)

/* A preset's keys, wherever the user gave none. */
static int apply_preset(struct ls_config *config, struct ls_error *error)
{
    struct ls_config_model *model = &config->model_keys;
    if (!*model->preset)
        return LS_OK;
    if (*model->from)
        return REJECT("model.preset", "model.from says what the model is: remove one of the two");
    enum ls_arch arch;
    const char *assignments = config_preset(model->preset, &arch);
    if (!assignments) {
        struct ls_error why = {0};
        ls_config_preset_check(model->preset, &why);
        return REJECT("model.preset", "%s", why.text);
    }
    char text[512], *save = NULL;
    snprintf(text, sizeof text, "arch=%s %s", ls_arch_name(arch), assignments);
    for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char *value = strchr(word, '='), name[64], why[256];
        *value++ = '\0';
        snprintf(name, sizeof name, "model.%s", word);
        int index = config_index(name);
        LS_ASSERT(index >= 0);
        if (config->origin[index].line == 0)
            LS_ASSERT(
                config_parse(config, &ls_config_keys(NULL)[index], value, false, why, sizeof why));
    }
    return LS_OK;
}

static int require_shape(const struct ls_config *config, struct ls_error *error)
{
    const struct ls_config_model *model = &config->model_keys;
    const struct {
        const char *name;
        int64_t value;
    } needed[] = {{"model.layers", model->layers},
                  {"model.channels", model->channels},
                  {"model.heads", model->heads},
                  {"model.context", model->context}};
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
        if (needed[i].value == 0)
            return REJECT(needed[i].name,
                          "expected at least 1; set it, or start from a model.preset such as "
                          "gpt2-124m");
    return LS_OK;
}

static int resolve_heads(struct ls_config *config, struct ls_error *error)
{
    struct ls_config_model *model = &config->model_keys;
    long long heads = model->heads, channels = model->channels;
    if (model->kv_heads == 0)
        model->kv_heads = model->heads;
    if (model->heads % model->kv_heads)
        return REJECT("model.kv_heads", "expected a divisor of model.heads = %lld", heads);
    if (model->head_dim == 0) {
        if (channels % heads)
            return REJECT("model.heads",
                          "expected a divisor of model.channels = %lld (or set model.head_dim)",
                          channels);
        model->head_dim = model->channels / model->heads;
        if (model->head_dim > 256) {
            model->head_dim = 0;
            return REJECT("model.heads",
                          "heads would be %lld wide: expected at least %lld heads "
                          "for model.channels = %lld, since a head is at most 256 wide",
                          channels / heads, (long long)ls_ceil_div(channels, 256), channels);
        }
    }
    if (model->head_dim % 8) {
        long long width = model->head_dim;
        return REJECT(width * heads == channels ? "model.heads" : "model.head_dim",
                      "heads would be %lld wide: expected a multiple of 8, such as %lld", width,
                      (long long)ls_round_up(width, 8));
    }
    return LS_OK;
}

/* A row that is normed as a whole is all channels of a token, or all of its queries. */
static int check_norms(const struct ls_config *config, struct ls_error *error)
{
    const struct ls_config_model *model = &config->model_keys;
    enum ls_arch arch = (enum ls_arch)model->arch;
    long long width = model->heads * model->head_dim;
    const char *step;
    bool biased;
    for (int i = 0; (step = ls_family_step(arch, i, &biased)); i++)
        if (!strcmp(step, "norm of q and k") && width > LS_NORM_CHANNELS_MAX)
            return REJECT("model.heads",
                          "model.arch = %s norms all heads together, and they would be %lld wide: "
                          "expected at most %lld heads of model.head_dim = %lld, since a norm is "
                          "at most %d wide",
                          ls_arch_name(arch), width,
                          (long long)(LS_NORM_CHANNELS_MAX / model->head_dim),
                          (long long)model->head_dim, LS_NORM_CHANNELS_MAX);
    return LS_OK;
}

static int resolve_vocab(struct ls_config *config, int64_t tokenizer_vocab, struct ls_error *error)
{
    struct ls_config_model *model = &config->model_keys;
    if (model->vocab == 0)
        model->vocab = tokenizer_vocab;
    if (model->vocab == 0)
        return REJECT("model.vocab",
                      "no tokenizer to take it from: set it, or data.tokenizer, or data.train "
                      "to what `lockstep data prepare` wrote");
    if (model->vocab < tokenizer_vocab)
        return REJECT("model.vocab", "expected at least the tokenizer's %lld tokens",
                      (long long)tokenizer_vocab);
    return LS_OK;
}

static int check_activation(const struct ls_config *config, struct ls_error *error)
{
    const struct ls_config_model *model = &config->model_keys;
    enum ls_arch arch = (enum ls_arch)model->arch;
    unsigned can = ls_family_of(arch)->acts;
    char words[128] = "";
    if (can & 1u << model->activation)
        return LS_OK;
    for (const struct ls_word *word = ls_config_key_of("model.activation")->words; word->word;
         word++)
        if (word->value != LS_CONFIG_AUTO && can & 1u << word->value)
            ls_string_add(words, sizeof words, " or ", "%s", word->word);
    return REJECT("model.activation", "model.arch = %s takes %s", ls_arch_name(arch), words);
}

/* What the model's family says of keys that are not given, and of those that are. */
static int resolve_family(struct ls_config *config, struct ls_error *error)
{
    struct ls_config_model *model = &config->model_keys;
    enum ls_arch arch = (enum ls_arch)model->arch;
    const struct ls_family *family = ls_family_of(arch);
    if (model->ffn == 0)
        model->ffn = ls_round_up(model->channels * family->ffn.times / family->ffn.over,
                                 family->ffn.multiple);
    if (model->tied == LS_CONFIG_AUTO)
        model->tied = family->tied;
    if (model->bias == LS_CONFIG_AUTO)
        model->bias = family->bias;
    if (model->bias && !family->bias)
        return REJECT("model.bias", "model.arch = %s has no biases: expected false or auto",
                      ls_arch_name(arch));
    if (model->activation == LS_CONFIG_AUTO)
        model->activation = family->act;
    if (model->window_layers == LS_CONFIG_AUTO && ls_family_reads(arch, "window_layers"))
        model->window_layers = (int)family->window_layers;
    if (model->rope_layers == LS_CONFIG_AUTO && ls_family_reads(arch, "rope_layers"))
        model->rope_layers = (int)family->rope_layers;
    if (model->query_scale == 0 && ls_family_reads(arch, "query_scale"))
        model->query_scale = (double)model->head_dim;
    return check_activation(config, error);
}

static int check_rope(const struct ls_config *config, struct ls_error *error)
{
    const struct ls_config_model *model = &config->model_keys;
    if (model->rope_factor > 0 && model->rope_factor < 1)
        return REJECT("model.rope_factor", "expected 0 (no scaling), or at least 1");
    double scale = model->rope_attention_factor;
    if (model->rope_factor <= 1 && model->rope_scaling == LS_ROPE_YARN && scale > 0 && scale != 1)
        return REJECT("model.rope_attention_factor",
                      "expected 1, or 0, without a model.rope_factor above 1");
    if (model->rope_factor <= 1 || model->rope_scaling == LS_ROPE_LINEAR)
        return LS_OK;
    if (model->rope_original_context == 0)
        return REJECT("model.rope_original_context",
                      "model.rope_factor needs the context before the scaling, such as 8192");
    if (model->rope_scaling == LS_ROPE_YARN)
        return model->rope_beta_slow < model->rope_beta_fast
                   ? LS_OK
                   : REJECT("model.rope_beta_slow", "expected below model.rope_beta_fast = %g",
                            model->rope_beta_fast);
    if (!(model->rope_low_freq_factor > 0 &&
          model->rope_low_freq_factor < model->rope_high_freq_factor))
        return REJECT("model.rope_low_freq_factor",
                      "expected above 0 and below model.rope_high_freq_factor = %g",
                      model->rope_high_freq_factor);
    return LS_OK;
}

static enum ls_layers layers_of(int key)
{
    return key == LS_CONFIG_AUTO ? LS_LAYERS_ALL : (enum ls_layers)key;
}

static void fill_model(struct ls_config *config)
{
    const struct ls_config_model *keys = &config->model_keys;
    config->model = (struct ls_model_config){
        .arch = (enum ls_arch)keys->arch,
        .vocab = keys->vocab,
        .vocab_padded = ls_round_up(keys->vocab, keys->vocab_multiple),
        .layers = keys->layers,
        .channels = keys->channels,
        .heads = keys->heads,
        .kv_heads = keys->kv_heads,
        .head_dim = keys->head_dim,
        .ffn = keys->ffn,
        .context = keys->context,
        .tied = keys->tied,
        .bias = keys->bias,
        .act = (enum ls_activation)keys->activation,
        .norm_epsilon = (float)keys->norm_epsilon,
        .rope_theta = keys->rope_theta,
        .rope_scaling = {.factor = (float)keys->rope_factor,
                         .low_freq_factor = (float)keys->rope_low_freq_factor,
                         .high_freq_factor = (float)keys->rope_high_freq_factor,
                         .original_context = keys->rope_original_context,
                         .kind = (enum ls_rope_kind)keys->rope_scaling,
                         .beta_fast = (float)keys->rope_beta_fast,
                         .beta_slow = (float)keys->rope_beta_slow,
                         .attention_factor = (float)keys->rope_attention_factor},
        .rope_local_theta = ls_family_reads((enum ls_arch)keys->arch, "rope_local_theta")
                                ? keys->rope_local_theta
                                : 0,
        .window = keys->window,
        .window_layers = layers_of(keys->window_layers),
        .rope_layers = layers_of(keys->rope_layers),
        .attention_softcap = (float)keys->attention_softcap,
        .logit_softcap = (float)keys->logit_softcap,
        .query_scale = keys->query_scale,
        .dropout = (float)keys->dropout,
        .init_std = (float)keys->init_std,
        .seed = (uint64_t)keys->seed,
    };
}

/* What of the model is trained. */
static int resolve_trained(struct ls_config *config, struct ls_error *error)
{
    struct ls_model_config *model = &config->model;
    const struct ls_config_lora *lora = &config->lora;
    const char *frozen = config->train.frozen;
    if (strlen(frozen) >= sizeof model->frozen)
        return REJECT("train.frozen", "expected at most %zu characters", sizeof model->frozen - 1);
    snprintf(model->frozen, sizeof model->frozen, "%s", frozen);
    struct ls_error why = {0};
    if (ls_frozen_check(model, &why))
        return REJECT("train.frozen", "%s", why.text);
    if (lora->rank == 0)
        return LS_OK;
    model->lora.rank = lora->rank;
    model->lora.alpha = lora->alpha > 0 ? lora->alpha : (double)lora->rank;
    model->lora.base = (enum ls_blocks)lora->base;
    if (ls_lora_targets(model->arch, lora->targets, &model->lora.targets, &why))
        return ls_config_reject(config, why.code, "lora.targets", error, "%s", why.text);
    return ls_lora_base_check(model, 1, &why)
               ? ls_config_reject(config, why.code, "lora.base", error, "%s", why.text)
               : LS_OK;
}

int config_resolve_model(struct ls_config *config, int64_t tokenizer_vocab, struct ls_error *error)
{
    int status = apply_preset(config, error);
    if (!status)
        status = require_shape(config, error);
    if (!status)
        status = resolve_heads(config, error);
    if (!status)
        status = check_norms(config, error);
    if (!status)
        status = resolve_family(config, error);
    if (!status)
        status = resolve_vocab(config, tokenizer_vocab, error);
    if (!status)
        status = check_rope(config, error);
    if (!status)
        fill_model(config);
    return status ? status : resolve_trained(config, error);
}
