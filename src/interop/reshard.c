/* A run of the same training in the files of another layout. */
#include "interop/interop_private.h"
#include "interop/staging.h"

#include <lockstep/config/inputs.h>
#include <lockstep/state.h>

struct resharding {
    const struct ls_reshard *what;
    char run[PATH_MAX]; /* that it is of */
    struct ls_checkpoint *from;
    struct ls_config kept, config; /* the run's, and in the layout */
    struct ls_layout layout;
    struct ls_tokenizer *tokenizer;
    struct staging staging;
};

static int source_read(struct resharding *r, struct ls_error *error)
{
    const struct ls_reshard *what = r->what;
    int status = ls_checkpoint_run(what->from, r->run, error);
    if (!status)
        status = interop_run_check(what->from, r->run, error);
    if (!status)
        status = ls_kept_read(r->run, &r->kept, &r->tokenizer, error);
    return status ? status
                  : ls_checkpoint_choose(&r->from, what->from, what->which, what->log, error);
}

static int layout_set(struct resharding *r, struct ls_error *error)
{
    char differences[700];
    int status = LS_OK;
    r->config = r->kept;
    if (r->kept.async.mode != LS_CONFIG_SYNC)
        return ls_error_set(error, LS_ENOTSUP,
                            "%.300s is a run with workers, each with files of its own: any layout "
                            "goes on with them as they are (train.resume)",
                            r->what->from);
    ls_config_layout_reset(&r->config);
    for (int i = 0; i < r->what->count && !status; i++)
        status = ls_config_set(&r->config, r->what->keys[i], error);
    if (!status)
        status = ls_config_resolve(
            &r->config, ls_tokenizer_vocabulary_of(r->tokenizer, r->config.model_keys.vocab),
            error);
    if (!status && ls_config_recipe_diff(&r->kept, &r->config, differences, sizeof differences) > 0)
        return ls_error_set(error, LS_ECONFIG,
                            "a checkpoint keeps its recipe: expected keys of the layout alone (%s; "
                            "here is the run, there what was given)",
                            differences);
    return status ? status : ls_config_layout(&r->config, 0, &r->layout, error);
}

/* config.yaml, the tokenizer and RUN/hf. */
static int folder_write(struct resharding *r, struct ls_error *error)
{
    char hf[PATH_MAX], to[PATH_MAX];
    struct ls_config written = r->config;
    int status = interop_path_set(&written, "train.out", r->staging.temporary, "", error);
    if (!status)
        status = ls_config_set(&written, "train.resume=auto", error);
    if (!status)
        status = ls_kept_write(&written, r->tokenizer, false, error);
    if (status || !interop_exists(r->run, "hf"))
        return status;
    status = ls_path_join(hf, r->run, "hf", error);
    if (!status)
        status = ls_path_join(to, r->staging.temporary, "hf", error);
    return status ? status : interop_files_copy(hf, to, true, r->what->fault, error);
}

int ls_reshard(const struct ls_reshard *what, struct ls_reshard_report *report,
               struct ls_error *error)
{
    struct resharding r = {.what = what};
    int status = source_read(&r, error);
    if (!status)
        status = layout_set(&r, error);
    if (!status)
        status = staging_open(&r.staging, what->run, what->fault, error);
    if (!status)
        status = folder_write(&r, error);
    if (!status)
        status =
            ls_state_reshard(r.from, &r.config, &r.layout, r.staging.temporary, what->fault, error);
    if (!status)
        status = staging_commit(&r.staging, error);
    if (!status) {
        *report = (struct ls_reshard_report){.step = r.from->state.step, .ranks = r.layout.ranks};
        snprintf(report->hash, sizeof report->hash, "%s", r.from->state.hash);
        ls_config_layout_text(&r.config, NULL, report->layout, sizeof report->layout);
    }
    staging_close(&r.staging);
    ls_checkpoint_close(r.from);
    ls_tokenizer_free(r.tokenizer);
    return status;
}
