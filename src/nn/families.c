/* The families of models, and what their tables mean for a configuration. */
#include "nn/model.h"

#include <string.h>

static const struct {
    const char *name;
    const struct family *family;
} families[] = {
#define FAMILY(arch, name) [arch] = {#name, &family_##name},
    LS_FAMILIES(FAMILY)};

const struct ls_family *ls_family_of(enum ls_arch arch)
{
    return &families[arch].family->about;
}

const char *ls_arch_name(enum ls_arch arch)
{
    return families[arch].name;
}

const char *ls_family_lacks(const char *name)
{
    static const char *const experts[] = {"mixtral", "moe",     "deepseek_v", "deepseek-v",
                                          "gpt_oss", "gpt-oss", "llama4",     "dbrx"};
    for (size_t i = 0; i < sizeof experts / sizeof *experts; i++)
        if (strcasestr(name, experts[i]))
            return "; models with experts are not supported";
    return "";
}

const struct program *program_of(const struct ls_model_config *config, int64_t layer)
{
    const struct family *family = families[config->arch].family;
    if (layer == 0)
        return family->embedding;
    return layer <= config->layers ? family->block : family->head;
}

int program_steps(const struct program *program)
{
    int count = 0;
    while (count < STEPS_MAX && program->steps[count].kind)
        count++;
    return count;
}

const char *ls_family_step(enum ls_arch arch, int i, bool *biased)
{
    const struct family *family = families[arch].family;
    const struct program *programs[] = {family->embedding, family->block, family->head};
    for (int p = 0; p < 3; i -= program_steps(programs[p++])) {
        if (i >= program_steps(programs[p]))
            continue;
        const struct step *step = &programs[p]->steps[i];
        *biased = step->bias && family->about.bias;
        return step->kind->name;
    }
    return NULL;
}

int program_values(const struct program *program)
{
    int count = 0;
    while (count < VALUES_MAX && program->values[count].name)
        count++;
    return count;
}

/* ---- keys of the configuration --------------------------------------------------------------- */

static bool has(const char *keys, const char *key)
{
    return keys && ls_word_among(keys, key);
}

static bool program_reads(const struct program *program, const char *key)
{
    for (int i = 0, count = program_steps(program); i < count; i++)
        if (has(program->steps[i].kind->keys, key))
            return true;
    return false;
}

static bool names(enum ls_arch arch, const char *key)
{
    const struct family *family = families[arch].family;
    return has(family->keys, key) || program_reads(family->embedding, key) ||
           program_reads(family->block, key) || program_reads(family->head, key);
}

bool ls_family_reads(enum ls_arch arch, const char *key)
{
    bool others = false;
    for (int other = 0; other < LS_ARCHES; other++)
        others |= names((enum ls_arch)other, key);
    return !others || names(arch, key);
}

/* ---- parameters ------------------------------------------------------------------------------ */

bool parameter_present(const struct parameter *parameter, const struct ls_model_config *config)
{
    return parameter->when != WHEN_BIAS || config->bias;
}

static bool is_gated(enum ls_activation act)
{
    return act == LS_ACT_SWIGLU || act == LS_ACT_GEGLU;
}

/* What the whole model or a rank's part of it holds. */
struct held {
    int64_t heads, kv_heads, ffn;
};

static int64_t size_of(const struct ls_model_config *c, const struct held *held, enum size size)
{
    switch (size) {
    case SIZE_ONE:
        return 1;
    case SIZE_PAIR:
        return 2;
    case SIZE_CHANNELS:
        return c->channels;
    case SIZE_HEADS:
        return held->heads;
    case SIZE_QK_HEADS:
        return held->heads + held->kv_heads;
    case SIZE_HEAD:
        return c->head_dim;
    case SIZE_QUERY:
        return held->heads * c->head_dim;
    case SIZE_KV:
        return held->kv_heads * c->head_dim;
    case SIZE_QKV:
        return (held->heads + 2 * held->kv_heads) * c->head_dim;
    case SIZE_FFN:
        return held->ffn;
    case SIZE_UP:
        return (is_gated(c->act) ? 2 : 1) * held->ffn;
    case SIZE_VOCABULARY:
        return c->vocab_padded;
    case SIZE_CONTEXT:
        return c->context;
    case SIZE_RANK:
        return c->lora.rank;
    }
    return 0;
}

int64_t size_whole(const struct ls_model_config *config, enum size size)
{
    return size_of(config, &(struct held){config->heads, config->kv_heads, config->ffn}, size);
}

int64_t size_held(const struct ls_model *model, enum size size)
{
    return size_of(&model->config, &(struct held){model->heads, model->kv_heads, model->ffn}, size);
}

/* ---- operations ------------------------------------------------------------------------------ */

static double role_elements(const struct ls_model_config *config, const struct program *program,
                            const char *role)
{
    double elements = 0;
    for (const struct parameter *p = program->parameters; role && p->role; p++)
        if (!strcmp(p->role, role) && parameter_present(p, config))
            elements +=
                (double)size_whole(config, p->rows) * (double)size_whole(config, p->columns);
    return elements;
}

double ls_layer_flops_per_token(const struct ls_model_config *config, int64_t layer, int64_t tokens)
{
    const struct program *program = program_of(config, layer);
    double sum = 0;
    for (int i = 0, count = program_steps(program); i < count; i++) {
        const struct step *step = &program->steps[i];
        if (step->kind->multiplies)
            sum += 6 * role_elements(config, program, step->weight);
        if (step->kind->flops)
            sum += step->kind->flops(config, layer, tokens);
    }
    return sum;
}

double ls_model_flops_per_token(const struct ls_model_config *config, int64_t tokens)
{
    double sum = 0;
    for (int64_t layer = 1; layer <= config->layers + 1; layer++)
        sum += ls_layer_flops_per_token(config, layer, tokens);
    return sum;
}
