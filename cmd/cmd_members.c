/* lockstep members RUN [WORKERS]: which workers of a run take part, and a request for others. */
#include "cmd.h"

#include <lockstep/base/file.h>
#include <lockstep/config/inputs.h>
#include <lockstep/train/members.h>

static int request_write(const struct ls_config *config, const char *run, const char *text,
                         struct ls_error *error)
{
    int workers = (int)ls_config_workers(config);
    char path[PATH_MAX];
    struct ls_atomic_file file;
    if (*config->async.follow)
        return ls_error_set(error, LS_ECONFIG,
                            "%s: its workers are those of async.follow = %s: ask that run", run,
                            config->async.follow);
    if (!ls_members_parse(text, workers, (bool[LS_MEMBERS_MAX]){false}))
        return ls_error_set(error, LS_ECONFIG,
                            "%.60s: expected workers by their numbers, below %d, such as 0-2,5, or "
                            "all",
                            text, workers);
    int status = ls_path_join(path, run, LS_MEMBERS_WANTED, error);
    if (!status)
        status = ls_atomic_file_open(&file, path, NULL, error);
    if (status)
        return status;
    ls_atomic_file_printf(&file, "%s\n", text);
    status = ls_atomic_file_commit(&file, error);
    if (!status)
        cmd_print("%s: asked for workers %s; they train once the workers have met\n", run, text);
    return status;
}

static void change_print(void *user, const struct ls_members_change *change)
{
    *(bool *)user = true;
    printf("from outer step %ld: workers %s", (long)change->outer_step, change->workers);
    if (*change->lost)
        printf("; in this one %s died, and gave nothing", change->lost);
    if (*change->renewed)
        printf("; behind this one %s died, and began anew", change->renewed);
    putchar('\n');
}

int cmd_members(const struct cmd_args *args, struct ls_error *error)
{
    struct ls_config config;
    struct ls_tokenizer *tokenizer = NULL;
    bool any = false;
    if (args->words == 0)
        return ls_error_set(error, LS_ECONFIG, "expected a run's folder: lockstep members RUN");
    const char *run = args->word[0];
    int status = ls_kept_read(run, &config, &tokenizer, error);
    ls_tokenizer_free(tokenizer);
    if (!status && config.async.mode != LS_CONFIG_DILOCO)
        status = ls_error_set(error, LS_ECONFIG,
                              "%s: its async.mode is not diloco, so all of it trains", run);
    if (status)
        return status;
    if (args->words > 1)
        return request_write(&config, run, args->word[1], error);
    status = ls_members_each(run, (int)ls_config_workers(&config), change_print, &any, error);
    if (!status && !any)
        printf("all %s take part\n", ls_counted(ls_config_workers(&config), "worker").text);
    return status;
}
