/* lockstep ckpt: what checkpoints hold, and whether every byte of them is as it was written. */
#include "cmd.h"

#include <lockstep/base/meter.h>
#include <lockstep/base/words.h>
#include <lockstep/ckpt.h>
#include <lockstep/interop.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- tensors --------------------------------------------------------------------------------- */

static const char *const part_names[] = {
    [LS_CKPT_MODEL] = "model", [LS_CKPT_OPTIMIZER] = "optimizer"};

/* What a part's tensors take; *count of them, in *pieces. */
static double part_bytes(const struct ls_checkpoint *checkpoint, enum ls_checkpoint_part part,
                         size_t *count, size_t *pieces)
{
    const struct ls_stored_tensor *list;
    double all = 0;
    *count = ls_checkpoint_tensors(checkpoint, part, &list);
    *pieces = 0;
    for (size_t i = 0; i < *count; i++) {
        double bytes = (double)ls_dtype_bytes(list[i].dtype);
        for (int dim = 0; dim < list[i].dims; dim++)
            bytes *= (double)list[i].shape[dim];
        *pieces += list[i].count;
        all += bytes;
    }
    return all;
}

static void tensors_print(const struct ls_checkpoint *checkpoint, enum ls_checkpoint_part part)
{
    const struct ls_stored_tensor *list;
    size_t count = ls_checkpoint_tensors(checkpoint, part, &list);
    for (size_t i = 0; i < count; i++) {
        char shape[LS_TENSOR_DIMS_MAX * 24] = "";
        for (int dim = 0; dim < list[i].dims; dim++)
            ls_string_add(shape, sizeof shape, ", ", "%lld", (long long)list[i].shape[dim]);
        bool same = !strcmp(list[i].name, list[i].fqn);
        cmd_print("  %-4s  [%s]  %s%s%s%s\n", ls_dtype_name(list[i].dtype), shape, list[i].name,
                  same ? "" : " (", same ? "" : list[i].fqn, same ? "" : ")");
    }
}

/* ---- inspect --------------------------------------------------------------------------------- */

int cmd_ckpt_inspect(const struct cmd_args *args, struct ls_error *error)
{
    struct ls_checkpoint *checkpoint;
    if (args->words != 1)
        return ls_error_set(error, LS_ECONFIG, "expected a run, or one of its checkpoints");
    cmd_progress_begin();
    int status = ls_checkpoint_choose(&checkpoint, args->word[0], cmd_args_value(args, "--step"),
                                      &cmd_warnings, error);
    if (status)
        return status;
    const struct ls_checkpoint_state *state = &checkpoint->state;
    cmd_print("%s\n", checkpoint->directory);
    printf("  step          %lld: %lld tokens in %lld samples%s\n", (long long)state->step,
           (long long)state->tokens, (long long)state->samples,
           state->fresh ? "; weights from elsewhere, no optimizer state" : "");
    printf("  state's hash  %s\n", state->hash[0] ? state->hash : "none");
    printf("  recipe        %s\n", state->recipe_digest);
    if (state->layout && *state->layout)
        cmd_print("  written by    %s\n", state->layout);
    cmd_print("  with          %s\n", state->fingerprint);
    if (state->loss_scale != 1)
        printf("  loss scale    %g\n", state->loss_scale);
    for (int i = LS_CKPT_MODEL; i <= LS_CKPT_OPTIMIZER; i++) {
        enum ls_checkpoint_part part = (enum ls_checkpoint_part)i;
        size_t count, pieces;
        double bytes = part_bytes(checkpoint, part, &count, &pieces);
        printf("  %-12s  %s in %s, %s\n", part_names[part],
               ls_counted((int64_t)count, "tensor").text, ls_counted((int64_t)pieces, "piece").text,
               ls_bytes(bytes).text);
        if (cmd_args_given(args, "--tensors"))
            tensors_print(checkpoint, part);
    }
    ls_checkpoint_close(checkpoint);
    return LS_OK;
}

/* ---- verify ---------------------------------------------------------------------------------- */

struct verified {
    int whole, damaged;
};

static int verify_one(struct verified *verified, const char *directory, struct ls_error *error)
{
    struct ls_checkpoint *checkpoint;
    struct ls_error found = {0};
    int status = ls_checkpoint_open(&checkpoint, directory, &found);
    for (int part = LS_CKPT_MODEL; part <= LS_CKPT_OPTIMIZER && !status; part++)
        status = ls_checkpoint_verify(checkpoint, (enum ls_checkpoint_part)part, &found);
    ls_meter_clear();
    if (status) {
        /* A run that goes on may have pruned it. */
        bool gone = access(directory, F_OK) != 0 && errno == ENOENT;
        if (gone || status != LS_ECKPT) {
            ls_checkpoint_close(checkpoint);
            return gone ? LS_OK : ls_error_copy(error, status, &found);
        }
    }
    if (status) {
        cmd_print("DAMAGED  %s: %s\n", directory, found.text);
        verified->damaged++;
    } else {
        size_t count, pieces;
        double bytes = part_bytes(checkpoint, LS_CKPT_MODEL, &count, &pieces) +
                       part_bytes(checkpoint, LS_CKPT_OPTIMIZER, &count, &pieces);
        cmd_print("whole    %s: step %lld, %s, hash %s\n", directory,
                  (long long)checkpoint->state.step, ls_bytes(bytes).text,
                  checkpoint->state.hash[0] ? checkpoint->state.hash : "none");
        verified->whole++;
    }
    cmd_flush();
    ls_checkpoint_close(checkpoint);
    return LS_OK;
}

/* Those of a run with async.mode: of each step that the run has every worker has one, too. */
static int verify_workers(const char *run, const int64_t *steps, int64_t count,
                          struct verified *verified, struct ls_error *error)
{
    static struct ls_config config;
    char folder[PATH_MAX], of_run[PATH_MAX], directory[PATH_MAX];
    int workers = 0;
    ls_config_defaults(&config);
    int status = ls_path_join(folder, run, "config.yaml", error);
    /* Without it the run does not go on, nor says how many workers it has. */
    if (!status && !ls_config_load_file(&config, folder, NULL) &&
        config.async.mode != LS_CONFIG_SYNC)
        workers = (int)config.async.workers;
    for (int worker = 0; worker < workers && !status; worker++) {
        int length = snprintf(folder, sizeof folder, "%s/workers/%04d", run, worker);
        if (length >= (int)sizeof folder)
            status = ls_error_set(error, LS_ECONFIG, "%.200s...: the path is too long", folder);
        for (int64_t i = 0; i < count && !status; i++) {
            status = ls_checkpoint_path(directory, folder, steps[i], error);
            if (!status)
                status = ls_checkpoint_path(of_run, run, steps[i], error);
            if (!status && access(directory, F_OK) == 0)
                status = verify_one(verified, directory, error);
            else if (!status && access(of_run, F_OK) == 0) { /* a run that goes on removed none */
                cmd_print("DAMAGED  %s: it is missing\n", directory);
                verified->damaged++;
            }
        }
    }
    return status;
}

/* A checkpoint, or all of a run: the damaged ones too. */
static int verify_path(const char *path, struct verified *verified, struct ls_error *error)
{
    char directory[PATH_MAX], run[PATH_MAX];
    int64_t *steps = NULL, count = 0;
    if (access(path, F_OK) != 0)
        return ls_error_errno(error, errno, "%.500s", path);
    if (ls_model_is_foreign(path))
        return ls_error_set(error, LS_ECONFIG,
                            "%.500s is a model of another program, without digests: expected a "
                            "run, or one of its checkpoints",
                            path);
    if (ls_checkpoint_is_one(path))
        return verify_one(verified, path, error);
    int status = ls_checkpoint_run(path, run, error);
    if (!status)
        status = ls_checkpoint_steps(run, &steps, &count, error);
    if (!status && count == 0)
        status = ls_error_set(error, LS_ECKPT,
                              "%.500s holds no checkpoint: expected a run, or one of its "
                              "checkpoints",
                              path);
    for (int64_t i = 0; i < count && !status; i++) {
        status = ls_checkpoint_path(directory, run, steps[i], error);
        if (!status)
            status = verify_one(verified, directory, error);
    }
    if (!status)
        status = verify_workers(run, steps, count, verified, error);
    free(steps);
    return status;
}

int cmd_ckpt_verify(const struct cmd_args *args, struct ls_error *error)
{
    struct verified verified = {0};
    int status = LS_OK;
    if (args->words < 1)
        return ls_error_set(error, LS_ECONFIG, "expected runs, or checkpoints");
    cmd_progress_begin();
    for (int i = 0; i < args->words && !status; i++)
        status = verify_path(args->word[i], &verified, error);
    return status ? status : verified.damaged > 0;
}

/* ---- reshard --------------------------------------------------------------------------------- */

int cmd_ckpt_reshard(const struct cmd_args *args, struct ls_error *error)
{
    struct ls_reshard_report report;
    const char *out = cmd_args_value(args, "--out");
    if (args->words < 1 || strchr(args->word[0], '=') || !out)
        return ls_error_set(error, LS_ECONFIG, "%s is missing: expected %s",
                            out ? "the run" : "--out RUN", args->page->arguments);
    const struct ls_reshard what = {.from = args->word[0],
                                    .which = cmd_args_value(args, "--step"),
                                    .run = out,
                                    .keys = args->word + 1,
                                    .count = args->words - 1,
                                    .log = &cmd_warnings};
    cmd_progress_begin();
    int status = ls_reshard(&what, &report, error);
    if (!status)
        cmd_print("%s  step %lld, %s (%s), hash %s\n", out, (long long)report.step,
                  ls_counted(report.ranks, "rank").text, report.layout,
                  report.hash[0] ? report.hash : "none");
    return status;
}

/* ---- average --------------------------------------------------------------------------------- */

/* "3,1,0.5": as many as there are models. */
static int weights_read(const char *text, int count, double *weights, struct ls_error *error)
{
    const char *at = text;
    for (int i = 0; i < count; i++) {
        char *end;
        weights[i] = strtod(at, &end);
        if (end == at || *end != (i + 1 < count ? ',' : '\0'))
            return ls_error_set(error, LS_ECONFIG,
                                "--weights = %.100s: expected %d numbers with commas between, one "
                                "for each checkpoint",
                                text, count);
        at = end + 1;
    }
    return LS_OK;
}

int cmd_ckpt_average(const struct cmd_args *args, struct ls_error *error)
{
    double weights[CMD_WORDS_MAX];
    struct ls_import_report report;
    const char *out = cmd_args_value(args, "--out"), *text = cmd_args_value(args, "--weights");
    if (args->words < 2 || !out)
        return ls_error_set(error, LS_ECONFIG, "%s missing: expected %s",
                            out ? "checkpoints are" : "--out RUN is", args->page->arguments);
    int status = text ? weights_read(text, args->words, weights, error) : LS_OK;
    const struct ls_import import = {.from = args->word[0],
                                     .run = out,
                                     .others = args->word + 1,
                                     .other_count = args->words - 1,
                                     .weights = text ? weights : NULL,
                                     .log = &cmd_warnings};
    cmd_progress_begin();
    if (!status)
        status = ls_import(&import, &report, error);
    if (!status)
        cmd_print("%s  the mean of %s, %lld parameters\n", out,
                  ls_counted(args->words, "checkpoint").text, (long long)report.parameters);
    return status;
}
