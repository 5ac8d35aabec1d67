/* Names of parameters: in a model, and in Hugging Face's files. */
#include "nn/program.h"

#include <stdio.h>
#include <string.h>

bool parameter_is_table(const struct parameter *p)
{
    return p->rows == SIZE_VOCABULARY;
}

/* The layer and the entry that name a parameter: its own, but of a tied head's table, which is the
 * embedding's. */
static const struct parameter *named_by(const struct ls_model_config *config, int *layer,
                                        const struct parameter *p)
{
    if (*layer == 0 || !config->tied || !parameter_is_table(p))
        return p;
    *layer = 0;
    for (p = program_of(config, 0)->parameters; !parameter_is_table(p);)
        p++;
    return p;
}

/* "h.%ld." with the block's number, and the name behind it. */
static void name_of(const char *prefix, int layer, const char *name,
                    char text[LS_PARAM_NAME_MAX + 1])
{
    const char *number = strstr(prefix, "%ld");
    if (number)
        snprintf(text, LS_PARAM_NAME_MAX + 1, "%.*s%d%s%s", (int)(number - prefix), prefix,
                 layer - 1, number + 3, name);
    else
        snprintf(text, LS_PARAM_NAME_MAX + 1, "%s%s", prefix, name);
}

void parameter_name(const struct ls_model_config *config, int layer, const struct parameter *p,
                    char text[LS_PARAM_NAME_MAX + 1])
{
    const struct parameter *named = named_by(config, &layer, p);
    name_of(program_of(config, layer)->prefix, layer, named->name, text);
}

const struct ls_param *ls_params_find(const struct ls_params *params, const char *name)
{
    for (int i = 0; i < params->count; i++)
        if (!strcmp(params->list[i].name, name))
            return &params->list[i];
    return NULL;
}

/* In the layer's own unit first, so that a model of many layers is not searched for each. */
const struct ls_param *parameter_find(const struct ls_params *params,
                                      const struct ls_model_config *config, int layer,
                                      const struct parameter *p)
{
    char name[LS_PARAM_NAME_MAX + 1];
    int unit = ls_params_unit(params, layer);
    parameter_name(config, layer, p, name);
    for (int i = 0; unit >= 0 && i < params->units[unit].param_count; i++) {
        const struct ls_param *param = &params->list[params->units[unit].first_param + i];
        if (!strcmp(param->name, name))
            return param;
    }
    /* A table that embedding and head share is in the unit of one of them. */
    bool elsewhere = p->rows == SIZE_VOCABULARY || unit < 0;
    return elsewhere ? ls_params_find(params, name) : NULL;
}

/* ---- Hugging Face's files -------------------------------------------------------------------- */

static const struct parameter *entry_of(const struct ls_params *params,
                                        const struct ls_model_config *config, int layer,
                                        const struct ls_param *param)
{
    const struct parameter *p = program_of(config, layer)->parameters;
    while (!parameter_present(p, config) || parameter_find(params, config, layer, p) != param) {
        p++;
        LS_ASSERT(p->role);
    }
    return p;
}

bool ls_param_elsewhere(const struct ls_params *params, const struct ls_model_config *config,
                        const struct ls_param *param, struct ls_elsewhere *out)
{
    int layer = params->units[param->unit].layer;
    if (param->adapts)
        return false;
    const struct parameter *entry = entry_of(params, config, layer, param);
    const struct parameter *named = named_by(config, &layer, entry);
    const struct program *program = program_of(config, layer);
    if (!named->elsewhere)
        return false;
    *out = (struct ls_elsewhere){.cols = param->matrix ? size_whole(config, named->columns) : 1,
                                 .transposed = param->matrix && program->elsewhere_transposed};
    name_of(program->elsewhere_prefix, layer, named->elsewhere, out->name);
    for (const struct parameter *p = program->parameters; p->role; p++) {
        if (!parameter_present(p, config) || !p->elsewhere ||
            strcmp(p->elsewhere, named->elsewhere))
            continue;
        if (p == named)
            out->first = out->rows;
        out->rows += parameter_is_table(p)
                         ? config->vocab
                         : size_whole(config, param->matrix ? p->rows : p->columns);
    }
    return true;
}

/* Is each parameter of the layer a tensor there, and no part of one? */
static bool layer_is_alike(const struct ls_model_config *config, int64_t layer)
{
    const struct program *program = program_of(config, layer);
    for (const struct parameter *p = program->parameters; p->role; p++) {
        if (!parameter_present(p, config))
            continue;
        if (!p->elsewhere)
            return false;
        for (const struct parameter *q = program->parameters; q < p; q++)
            if (parameter_present(q, config) && !strcmp(q->elsewhere, p->elsewhere))
                return false;
    }
    return !program->elsewhere_transposed;
}

void ls_param_fqn(const struct ls_params *params, const struct ls_model_config *config,
                  const struct ls_param *param, char fqn[LS_PARAM_NAME_MAX + 1])
{
    struct ls_elsewhere there;
    bool alike = config->vocab == config->vocab_padded && config->lora.rank == 0 &&
                 layer_is_alike(config, 0) && layer_is_alike(config, 1) &&
                 layer_is_alike(config, config->layers + 1);
    bool found = alike && ls_param_elsewhere(params, config, param, &there);
    memcpy(fqn, found ? there.name : param->name, LS_PARAM_NAME_MAX + 1);
}
