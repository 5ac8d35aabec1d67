/* The state of a run: its hash, its checkpoints, and going on from one. */
#include "trainer.h"

#include <lockstep/ckpt.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the hash -------------------------------------------------------------------------------- */

static void digest_local(struct ls_trainer *t, struct ls_digest *digest)
{
    *digest = (struct ls_digest){0, 0};
    ls_params_digest(&t->params, &t->ops, "", t->memory.weights.master, digest);
    for (int i = 0; i < ls_optimizer_states(&t->optimizer.config); i++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "%s.", ls_optimizer_state_name(&t->optimizer.config, i));
        ls_params_digest(&t->params, &t->ops, prefix, t->optimizer.state[i], digest);
    }
    int64_t position[2] = {t->step, t->samples};
    ls_digest_piece(digest, "position", 0, 0, position, sizeof position);
}

int ls_trainer_hash(struct ls_trainer *t, struct ls_digest *digest, struct ls_error *error)
{
    digest_local(t, digest);
    int ranks = ls_comm_size(t->world);
    struct ls_digest *all = calloc((size_t)ranks, sizeof *all);
    int status = all ? LS_OK : ls_error_set(error, LS_ENOMEM, "no memory for %d digests", ranks);
    status = ls_comm_agree(t->world, status, error);
    if (!status)
        status = ls_all_gather(t->world, digest, all, 2, LS_U64, error);
    for (int i = 1; i < ranks && !status; i++)
        if (memcmp(&all[i], &all[0], sizeof all[0]))
            status = ls_error_set(error, LS_ENUMERIC,
                                  "after step %ld the state of rank %d differs from rank 0's: "
                                  "memory or arithmetic of one of them is faulty. Go on from the "
                                  "newest checkpoint on other hardware",
                                  (long)t->step, i);
    free(all);
    return status;
}

/* ---- saving ---------------------------------------------------------------------------------- */

struct tensor_list {
    struct ls_tensor_entry *entries;
    char (*names)[LS_PARAM_NAME_MAX + 32];
    size_t count;
};

static void list_release(struct tensor_list *list)
{
    free(list->entries);
    free(list->names);
}

static int list_init(struct tensor_list *list, size_t capacity, struct ls_error *error)
{
    *list = (struct tensor_list){.entries = calloc(capacity, sizeof *list->entries),
                                 .names = calloc(capacity, sizeof *list->names)};
    if (list->entries && list->names)
        return LS_OK;
    list_release(list);
    *list = (struct tensor_list){0};
    return ls_error_set(error, LS_ENOMEM, "no memory for a list of %zu tensors", capacity);
}

/* Every parameter-shaped part of values, which is laid out as the parameters. */
static void list_add(struct tensor_list *list, const struct ls_params *params, const char *prefix,
                     const float *values)
{
    for (int i = 0; i < params->count; i++) {
        const struct ls_param *param = &params->list[i];
        struct ls_tensor_entry *entry = &list->entries[list->count];
        char *name = list->names[list->count++];
        snprintf(name, sizeof list->names[0], "%s%s", prefix, param->name);
        *entry = (struct ls_tensor_entry){.name = name,
                                          .dtype = LS_F32,
                                          .dims = param->rows > 1 ? 2 : 1,
                                          .data = values + param->offset};
        entry->shape[0] = param->rows > 1 ? param->rows : param->cols;
        if (param->rows > 1)
            entry->shape[1] = param->cols;
    }
}

static int lists_make(const struct ls_trainer *t, struct tensor_list *model,
                      struct tensor_list *optimizer, struct ls_error *error)
{
    size_t count = (size_t)t->params.count;
    int states = ls_optimizer_states(&t->optimizer.config);
    *optimizer = (struct tensor_list){0};
    int status = list_init(model, count, error);
    if (!status)
        status = list_init(optimizer, count * (size_t)states + 1, error);
    if (status)
        return status;
    list_add(model, &t->params, "", t->memory.weights.master);
    for (int i = 0; i < states; i++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "%s.", ls_optimizer_state_name(&t->optimizer.config, i));
        list_add(optimizer, &t->params, prefix, t->optimizer.state[i]);
    }
    return LS_OK;
}

static char *config_text(const struct ls_config *config, struct ls_error *error)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    int status = file ? ls_config_write(config, file, error)
                      : ls_error_set(error, LS_ENOMEM, "no memory for the configuration's text");
    if (file)
        fclose(file);
    if (status) {
        free(text);
        return NULL;
    }
    return text;
}

static int save_local(struct ls_trainer *t, const struct ls_digest *digest, struct ls_error *error)
{
    char hash[33], recipe_digest[33], fingerprint[256];
    struct ls_digest recipe = {0, 0};
    ls_digest_hex(digest, hash);
    ls_config_recipe_digest(&t->config, &recipe);
    ls_digest_hex(&recipe, recipe_digest);
    ls_fingerprint(t->ops.isa, fingerprint, sizeof fingerprint);
    char *text = config_text(&t->config, error);
    if (!text)
        return LS_ENOMEM;
    struct ls_checkpoint_state state = {.step = t->step,
                                        .samples = t->samples,
                                        .tokens = t->samples * t->sizes.sequence_tokens,
                                        .loss_scale = 1,
                                        .recipe_digest = recipe_digest,
                                        .recipe = text,
                                        .fingerprint = fingerprint,
                                        .hash = hash};
    struct tensor_list model, optimizer;
    int status = lists_make(t, &model, &optimizer, error);
    if (!status)
        status = ls_checkpoint_save(t->config.train.out, &state, model.entries, model.count,
                                    optimizer.entries, optimizer.count, NULL, error);
    if (!status && t->config.train.keep > 0)
        status = ls_checkpoint_prune(t->config.train.out, (int)t->config.train.keep, error);
    list_release(&model);
    list_release(&optimizer);
    free(text);
    return status;
}

int ls_trainer_save(struct ls_trainer *t, struct ls_error *error)
{
    struct ls_digest digest;
    int status = ls_trainer_hash(t, &digest, error);
    if (status)
        return status;
    if (ls_comm_rank(t->world) == 0)
        status = save_local(t, &digest, error);
    status = ls_comm_agree(t->world, status, error);
    if (!status)
        t->saved_step = t->step;
    return status;
}

/* ---- going on -------------------------------------------------------------------------------- */

static int recipe_check(const struct ls_trainer *t, const struct ls_checkpoint *checkpoint,
                        struct ls_error *error)
{
    struct ls_digest mine = {0, 0};
    char hex[33], differences[512];
    ls_config_recipe_digest(&t->config, &mine);
    ls_digest_hex(&mine, hex);
    if (!strcmp(hex, checkpoint->state.recipe_digest))
        return LS_OK;
    struct ls_config other;
    ls_config_defaults(&other);
    struct ls_error ignored = {0};
    const char *text = checkpoint->state.recipe;
    if (ls_config_load_text(&other, checkpoint->directory, text, strlen(text), &ignored) ||
        ls_config_resolve(&other, t->config.model.vocab, &ignored))
        return ls_error_set(error, LS_ECKPT, "%.300s: it belongs to another recipe",
                            checkpoint->directory);
    ls_config_recipe_diff(&t->config, &other, differences, sizeof differences);
    return ls_error_set(error, LS_ECKPT,
                        "%.300s: it belongs to another recipe (%s). Use that recipe, another "
                        "train.out, or train.resume=never",
                        checkpoint->directory, differences);
}

static int list_load(const struct ls_safetensors *file, const struct tensor_list *list,
                     struct ls_error *error)
{
    for (size_t i = 0; i < list->count; i++) {
        const struct ls_tensor_entry *entry = &list->entries[i];
        const struct ls_tensor_view *view;
        int status = ls_safetensors_require(file, entry->name, LS_F32, entry->dims, entry->shape,
                                            &view, error);
        if (status)
            return status;
        memcpy((void *)entry->data, view->data, view->bytes);
    }
    return LS_OK;
}

static int checkpoint_apply(struct ls_trainer *t, const struct ls_checkpoint *checkpoint,
                            struct ls_error *error)
{
    int status = recipe_check(t, checkpoint, error);
    if (status)
        return status;
    char fingerprint[256];
    ls_fingerprint(t->ops.isa, fingerprint, sizeof fingerprint);
    if (strcmp(fingerprint, checkpoint->state.fingerprint) && ls_comm_rank(t->world) == 0)
        ls_log(t->log, LS_LOG_WARNING,
               "the checkpoint was written under \"%s\", this is \"%s\": bits will differ from "
               "here on from a run that was not interrupted",
               checkpoint->state.fingerprint, fingerprint);
    struct tensor_list model, optimizer;
    status = lists_make(t, &model, &optimizer, error);
    if (!status)
        status = list_load(checkpoint->model, &model, error);
    if (!status)
        status = list_load(checkpoint->optimizer, &optimizer, error);
    list_release(&model);
    list_release(&optimizer);
    if (status)
        return status;
    weights_refresh(&t->memory.weights, &t->params, &t->ops);
    t->step = checkpoint->state.step;
    t->samples = checkpoint->state.samples;
    t->saved_step = t->step;
    struct ls_digest digest;
    char hex[33];
    digest_local(t, &digest);
    ls_digest_hex(&digest, hex);
    if (strcmp(hex, checkpoint->state.hash))
        return ls_error_set(error, LS_ECKPT,
                            "%.300s: the state's hash is %s, but %s was saved; the files are "
                            "damaged or were written by another version",
                            checkpoint->directory, hex, checkpoint->state.hash);
    return LS_OK;
}

int ls_trainer_resume(struct ls_trainer *t, bool *resumed, struct ls_error *error)
{
    const char *from = t->config.train.resume;
    struct ls_checkpoint *checkpoint = NULL;
    bool automatic = !strcmp(from, "auto");
    *resumed = false;
    if (!strcmp(from, "never"))
        return LS_OK;
    LS_ASSERT(!t->posted); /* before the first step */
    int status = automatic
                     ? ls_checkpoint_find_latest(&checkpoint, t->config.train.out,
                                                 ls_comm_rank(t->world) == 0 ? t->log : NULL, error)
                     : ls_checkpoint_open(&checkpoint, from, error);
    if (!status && checkpoint)
        status = checkpoint_apply(t, checkpoint, error);
    *resumed = checkpoint != NULL && !status;
    ls_checkpoint_close(checkpoint);
    return ls_comm_agree(t->world, status, error);
}
