/* lockstep data order: which samples a run's steps take. */
#include "cmd.h"
#include "rank_start.h"

#include <lockstep/base/file.h>
#include <lockstep/config/inputs.h>

#include <inttypes.h>
#include <limits.h>
#include <unistd.h>

/* One line for each sample of the step that begins at `first`. */
static void step_print(const struct ls_training_data *data, int64_t step, int64_t first,
                       int64_t count)
{
    for (int64_t number = first; number < first + count; number++) {
        struct ls_blend_place place = ls_blend_at(data->blend, number);
        cmd_print("%" PRId64 " %" PRId64 " %s %" PRId64 " %" PRId64 "\n", step, number,
                  data->sources[place.source].name, place.epoch, place.sample);
    }
}

static int order_print(const struct ls_config *config, int64_t from, int64_t steps,
                       struct ls_error *error)
{
    struct ls_training_data data;
    int status = ls_training_data_open(config, NULL, &data, error);
    if (status)
        return status;
    puts("step number source epoch sample");
    for (int64_t step = from; step < from + steps && !ferror(stdout); step++) {
        int64_t first = ls_config_samples(config, step - 1), end = ls_config_samples(config, step);
        if (end > ls_blend_end(data.blend))
            break;
        step_print(&data, step, first, end - first);
    }
    ls_training_data_close(&data);
    return LS_OK;
}

/* What the configuration alone does not tell: who pushes when, and who takes part. */
static int order_known(const struct ls_config *config, struct ls_error *error)
{
    char members[PATH_MAX];
    if (config->async.mode == LS_CONFIG_SERVER && config->async.workers > 1)
        return ls_config_reject(config, LS_ECONFIG, "async.mode", error,
                                "a step takes the samples of the worker that pushes, which is not "
                                "computed here: expected none or diloco");
    if (config->async.mode == LS_CONFIG_DILOCO &&
        !ls_path_join(members, config->train.out, "members", NULL) && access(members, F_OK) == 0)
        ls_log(&cmd_warnings, LS_LOG_WARNING,
               "the samples are those of all %ld workers: of steps in which others took part, as "
               "%s says, they are other ones",
               (long)config->async.workers, members);
    return LS_OK;
}

int cmd_data_order(const struct cmd_args *args, struct ls_error *error)
{
    static struct ls_config config;
    int64_t from = 1, steps = 1;
    if (!args->words)
        return ls_error_set(error, LS_ECONFIG,
                            "expected a configuration: lockstep data order RUN.yaml, or a run's "
                            "config.yaml");
    int status = cmd_args_int(args, "--from", 1, INT64_C(1) << 60, &from, error);
    if (!status)
        status = cmd_args_int(args, "--steps", 1, INT64_C(1) << 30, &steps, error);
    if (!status)
        status = ranks_config(&config, NULL, args->word, args->words, error);
    if (!status)
        status = order_known(&config, error);
    return status ? status : order_print(&config, from, steps, error);
}
