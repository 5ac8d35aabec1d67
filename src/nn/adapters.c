/* What is trained: adapters of low rank, which matrices have them, their names here and in PEFT's
 * files; and parameters that are frozen. lora.c computes with them. */
#include "nn/program.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The next of words with commas between, in place; NULL behind the last. */
static char *word_next(char *text, char **save)
{
    return strtok_r(text, ", ", save);
}

/* ---- matrices that have adapters ------------------------------------------------------------- */

static bool is_matrix(const struct parameter *p)
{
    return p->role && p->rows != SIZE_ONE;
}

static bool same_tensor(const struct parameter *p, const struct parameter *q)
{
    return p->elsewhere && q->elsewhere && !strcmp(p->elsewhere, q->elsewhere);
}

bool adapted_next(const struct ls_model_config *config, const struct program *block, int from,
                  struct adapted *out)
{
    const struct parameter *table = block->parameters;
    while (is_matrix(&table[from]) && !(config->lora.targets >> from & 1))
        from++;
    *out = (struct adapted){.place = from, .end = from};
    if (!is_matrix(&table[from]))
        return false;
    do
        out->matrices[out->count++] = &table[out->end++];
    while (out->count < 3 && is_matrix(&table[out->end]) &&
           same_tensor(&table[from], &table[out->end]));
    return true;
}

/* The word between two dots at the end of a name, without ".weight": "q_proj". */
static void module_of(const char *name, char module[LS_LORA_TARGET_BYTES])
{
    const char *end = strstr(name, ".weight"), *begin = end;
    while (begin > name && begin[-1] != '.')
        begin--;
    snprintf(module, LS_LORA_TARGET_BYTES, "%.*s", (int)(end - begin), begin);
}

static const char *target_name(const struct parameter *p)
{
    return p->elsewhere ? p->elsewhere : p->name;
}

static const struct parameter *matrices_of(enum ls_arch arch)
{
    const struct ls_model_config config = {.arch = arch, .layers = 1};
    return program_of(&config, 1)->parameters;
}

const char *ls_lora_target(enum ls_arch arch, int i, char name[LS_LORA_TARGET_BYTES])
{
    const struct parameter *table = matrices_of(arch);
    if (!is_matrix(&table[i]))
        return NULL;
    module_of(target_name(&table[i]), name);
    return name;
}

enum { TARGETS_MAX = 64 }; /* the bits of a mask */

static void targets_print(enum ls_arch arch, char text[TARGETS_MAX * (LS_LORA_TARGET_BYTES + 2)])
{
    char name[LS_LORA_TARGET_BYTES];
    *text = '\0';
    for (int i = 0; ls_lora_target(arch, i, name); i++)
        if (!strstr(text, name))
            sprintf(text + strlen(text), "%s%s", *text ? ", " : "", name);
}

/* Whether "self_attn.q_proj.weight" is that of a target "q_proj" or "self_attn.q_proj". */
static bool is_target(const struct parameter *p, const char *target)
{
    const char *name = target_name(p), *end = strstr(name, ".weight");
    size_t length = strlen(target), all = (size_t)(end - name);
    return length <= all && !strncmp(end - length, target, length) &&
           (length == all || end[-(long)length - 1] == '.');
}

int ls_lora_targets(enum ls_arch arch, const char *names, uint64_t *targets, struct ls_error *error)
{
    const struct parameter *table = matrices_of(arch);
    char known[TARGETS_MAX * (LS_LORA_TARGET_BYTES + 2)], *text = strdup(names), *save = NULL;
    int status = text ? LS_OK : ls_no_memory(error, "for names of matrices");
    *targets = 0;
    for (char *word = text ? word_next(text, &save) : NULL; word && !status;
         word = word_next(NULL, &save)) {
        uint64_t found = 0;
        bool all = !strcmp(word, "all") || !strcmp(word, "all-linear");
        for (int i = 0; is_matrix(&table[i]); i++)
            found |= (uint64_t)(all || is_target(&table[i], word)) << i;
        if (!found) {
            targets_print(arch, known);
            status = ls_error_set(error, LS_ECONFIG,
                                  "a block of %s has no matrix \"%.60s\": expected all, or some of "
                                  "%s, with commas between",
                                  ls_arch_name(arch), word, known);
        }
        *targets |= found;
    }
    free(text);
    return status || *targets
               ? status
               : ls_error_set(error, LS_ECONFIG, "it names no matrix: expected all, or names");
}

/* ---- names ----------------------------------------------------------------------------------- */

/* An A that several matrices share has the name of what they are together: "attn.qkv.lora_a". */
void adapter_name(const struct adapted *pair, int i, char name[LS_PARAM_NAME_MAX + 1])
{
    const struct parameter *p = pair->matrices[i < 0 ? 0 : i];
    const char *end = strstr(p->name, ".weight");
    int length = (int)(end - p->name);
    if (i >= 0 || pair->count == 1) {
        snprintf(name, LS_PARAM_NAME_MAX + 1, "%.*s.lora_%c", length, p->name, i < 0 ? 'a' : 'b');
        return;
    }
    while (length > 0 && p->name[length - 1] != '.')
        length--;
    snprintf(name, LS_PARAM_NAME_MAX + 1, "%.*s%s.lora_a", length, p->name, p->role);
}

bool ls_param_adapter(const struct ls_params *params, const struct ls_model_config *config,
                      const struct ls_param *param, struct ls_elsewhere *out)
{
    const int index = (int)(param - params->list);
    const char *prefix = ls_family_of(config->arch)->hf.prefix;
    const struct ls_param *matrix = params->list;
    const struct ls_param *end = params->list + params->count;
    struct ls_elsewhere whole;
    while (param->adapts && matrix < end && matrix->lora_a != index && matrix->lora_b != index)
        matrix++;
    if (!param->adapts || matrix == end || !ls_param_elsewhere(params, config, matrix, &whole))
        return false;
    bool down = matrix->lora_a == index;
    char module[LS_PARAM_NAME_MAX + 1];
    const char *lacks = strncmp(whole.name, prefix, strlen(prefix)) ? prefix : "";
    snprintf(module, sizeof module, "%.*s", (int)(strstr(whole.name, ".weight") - whole.name),
             whole.name);
    *out = (struct ls_elsewhere){.rows = down ? config->lora.rank : whole.rows,
                                 .cols = param->global_cols,
                                 .first = down ? 0 : whole.first};
    int used = snprintf(out->name, sizeof out->name, "%s%s.lora_%c.weight", lacks, module,
                        down ? 'A' : 'B');
    LS_ASSERT(used < (int)sizeof out->name);
    return true;
}

/* ---- what is frozen -------------------------------------------------------------------------- */

bool parameter_adapts(const struct parameter *p)
{
    return p->rows == SIZE_RANK || p->columns == SIZE_RANK;
}

bool parameter_frozen(const struct ls_model_config *config, int layer, const struct parameter *p)
{
    char name[LS_PARAM_NAME_MAX + 1], text[LS_FROZEN_BYTES], *save = NULL;
    if (config->lora.rank > 0 && !parameter_adapts(p))
        return true;
    if (!*config->frozen)
        return false;
    parameter_name(config, layer, p, name);
    snprintf(text, sizeof text, "%s", config->frozen);
    for (char *word = word_next(text, &save); word; word = word_next(NULL, &save))
        if (!fnmatch(word, name, 0))
            return true;
    return false;
}

int ls_model_lowest_trained(const struct ls_model_config *config)
{
    if (config->lora.rank > 0)
        return 1;
    for (int layer = 0; layer <= config->layers; layer++)
        for (const struct parameter *p = program_of(config, layer)->parameters; p->role; p++)
            if (parameter_present(p, config) && !parameter_frozen(config, layer, p))
                return layer;
    return (int)config->layers + 1;
}

/* The pattern alone, over all parameters: how many it freezes, of how many. */
static int64_t count_frozen(const struct ls_model_config *config, const char *pattern, int64_t *all)
{
    struct ls_model_config one = *config;
    int64_t count = 0;
    one.lora.rank = 0;
    *all = 0;
    snprintf(one.frozen, sizeof one.frozen, "%s", pattern);
    for (int layer = 0; layer <= config->layers + 1; layer++)
        for (const struct parameter *p = program_of(config, layer)->parameters; p->role; p++) {
            *all += parameter_present(p, config);
            count += parameter_present(p, config) && parameter_frozen(&one, layer, p);
        }
    return count;
}

int ls_frozen_check(const struct ls_model_config *config, struct ls_error *error)
{
    char text[LS_FROZEN_BYTES], name[LS_PARAM_NAME_MAX + 1], *save = NULL;
    int64_t all;
    snprintf(text, sizeof text, "%s", config->frozen);
    parameter_name(config, 1, program_of(config, 1)->parameters, name);
    for (char *word = word_next(text, &save); word; word = word_next(NULL, &save))
        if (count_frozen(config, word, &all) == 0)
            return ls_error_set(error, LS_ECONFIG,
                                "\"%.60s\" matches no parameter: expected patterns of names such "
                                "as %s, with commas between",
                                word, name);
    if (*config->frozen && count_frozen(config, config->frozen, &all) == all)
        return ls_error_set(error, LS_ECONFIG, "it leaves no parameter to train");
    return LS_OK;
}
