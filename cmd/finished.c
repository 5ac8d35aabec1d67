/* A finished run, opened in a layout: what evaluation and generation have in common. */
#include "finished.h"
#include "launch.h"

#include <lockstep/base/meter.h>

#include <string.h>

static const char *log_command;

static void on_log(void *user, enum ls_log_level level, const char *line)
{
    (void)user;
    (void)level;
    ls_meter_clear();
    fprintf(stderr, "lockstep %s: %s\n", log_command, line);
}

static int rank_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct finished_job *job = user;
    struct ls_log log = {.level_max = LS_LOG_WARNING, .write = on_log};
    struct ls_finished *finished;
    const struct ls_finished_choice choice = {.which = cmd_args_value(&job->args, "--step"),
                                              .quantize = job->quantize};
    int status =
        ls_finished_new(&job->config, job->args.word[0], &choice, world, &log, &finished, error);
    if (!status)
        status = job->act(job, finished, world, error);
    ls_finished_free(finished);
    return status;
}

/* "group.key=value", and no path with such a name. */
static bool is_key(const char *word)
{
    size_t name = strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789_.");
    return name > 0 && word[name] == '=';
}

int finished_encode(const struct cmd_args *args, struct ls_encode_options *encode,
                    struct ls_error *error)
{
    const char *special = cmd_args_value(args, "--special-tokens");
    bool text = special && !strcmp(special, "text");
    *encode = (struct ls_encode_options){.special = !text,
                                         .around = !cmd_args_given(args, "--no-special-tokens")};
    return !special || text || !strcmp(special, "ids")
               ? LS_OK
               : ls_error_set(error, LS_ECONFIG, "--special-tokens = %.100s: expected ids or text",
                              special);
}

int finished_words(struct finished_job *job, struct ls_error *error)
{
    if (job->args.words < 1)
        return ls_error_set(error, LS_ECONFIG, "the run's directory is missing");
    for (int i = 1; i < job->args.words; i++) {
        const char *word = job->args.word[i];
        if (is_key(word))
            job->keys[job->key_count++] = word;
        else if (job->data || job->use == LS_TO_GENERATE)
            return ls_error_set(error, LS_ECONFIG, "%.200s is one argument too many: expected %s",
                                word, job->args.page->arguments);
        else
            job->data = word;
    }
    return LS_OK;
}

static int quantize_read(struct finished_job *job, struct ls_error *error)
{
    const char *word = cmd_args_value(&job->args, "--quantize");
    int quantize = word ? ls_quantize_of_name(word) : LS_QUANTIZE_NONE;
    if (quantize < 0)
        return ls_error_set(error, LS_ECONFIG,
                            "--quantize %.100s: expected none, int8 or int8-weights", word);
    job->quantize = (enum ls_quantize)quantize;
    return LS_OK;
}

int finished_run(struct finished_job *job, struct ls_error *error)
{
    char threads[64];
    int64_t given = 0;
    int count = job->key_count;
    log_command = job->command;
    cmd_progress_begin(job->command);
    int status = cmd_args_int(&job->args, "--threads", 1, ls_device_threads_max(), &given, error);
    if (!status)
        status = quantize_read(job, error);
    snprintf(threads, sizeof threads, "parallel.threads=%ld", (long)given);
    if (given > 0)
        job->keys[count++] = threads;
    if (!status)
        status = ls_finished_configure(job->args.word[0], job->use, job->keys, count, &job->config,
                                       error);
    return status ? status : launch_ranks(&job->config, rank_body, job, error);
}

int finished_end(const struct finished_job *job, int status, const struct ls_error *error)
{
    int code = status ? cmd_fail(job->command, status, error) : 0;
    if (status == LS_ECOMM)
        launch_end(status);
    return code;
}
