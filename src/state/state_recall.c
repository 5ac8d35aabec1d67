/* The arithmetic that a run goes on in is the one that it began with. */
#include "state/state_private.h"

#include <stdio.h>
#include <string.h>

int state_recipe_read(const char *directory, const struct ls_checkpoint_state *state,
                      int64_t vocabulary, struct ls_config *recipe, struct ls_error *error)
{
    int *arithmetic = &recipe->numerics.arithmetic;
    ls_config_defaults(recipe);
    int status =
        ls_config_load_text(recipe, directory, state->recipe, strlen(state->recipe), error);
    if (!status)
        status = ls_config_resolve(recipe, vocabulary, error);
    /* Written before it was a key. */
    if (!status && *arithmetic == LS_CONFIG_AUTO)
        *arithmetic = strstr(state->fingerprint, "arithmetic amx") ? LS_ARITHMETIC_BF16_PAIRS
                                                                   : LS_ARITHMETIC_FMA;
    return status;
}

struct recall {
    int64_t vocabulary;
    int arithmetic; /* LS_CONFIG_AUTO: not known yet */
};

static void recall_state(void *user, const char *directory, const struct ls_checkpoint_state *state)
{
    struct recall *recall = user;
    struct ls_config recipe;
    if (recall->arithmetic == LS_CONFIG_AUTO && !state->fresh &&
        !state_recipe_read(directory, state, recall->vocabulary, &recipe, NULL))
        recall->arithmetic = recipe.numerics.arithmetic;
}

/* What a run wrote that was killed before its first checkpoint. */
static int recall_start(const struct ls_config *config)
{
    struct ls_config kept;
    char path[LS_CONFIG_TEXT_BYTES + 16];
    snprintf(path, sizeof path, "%s/config.yaml", config->train.out);
    ls_config_defaults(&kept);
    if (ls_config_load_file(&kept, path, NULL) ||
        kept.numerics.precision != config->numerics.precision)
        return LS_CONFIG_AUTO;
    return kept.numerics.arithmetic;
}

/* What cannot be read is left to ls_state_resume, which says so. */
static int recall(const struct ls_config *config)
{
    struct recall recall = {config->model.vocab, LS_CONFIG_AUTO};
    const char *path = ls_config_resume_path(config);
    bool own = !strcmp(config->train.resume, "auto");
    if (own)
        ls_checkpoint_list(config->train.out, recall_state, &recall, NULL);
    if (own && recall.arithmetic == LS_CONFIG_AUTO)
        recall.arithmetic = recall_start(config);
    if (path && recall.arithmetic == LS_CONFIG_AUTO)
        ls_checkpoint_visit(path, recall_state, &recall, NULL);
    return recall.arithmetic;
}

int ls_state_recall(struct ls_config *config, struct ls_comm *world, struct ls_error *error)
{
    int64_t found = LS_CONFIG_AUTO;
    if (config->numerics.arithmetic != LS_CONFIG_AUTO || !strcmp(config->train.resume, "never"))
        return LS_OK;
    if (ls_comm_rank(world) == 0)
        found = recall(config);
    int status = ls_all_reduce_max(world, &found, error);
    if (!status)
        config->numerics.arithmetic = (int)found;
    return status;
}
