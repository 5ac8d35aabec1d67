/* A finished run, opened in a layout: what evaluation and generation have in common. */
#include "finished.h"
#include "rank_start.h"

#include <string.h>

static int rank_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct finished_job *job = user;
    struct ls_finished *finished;
    const struct ls_finished_choice choice = {.which = cmd_args_value(job->args, "--step"),
                                              .quantize = job->quantize};
    int status = ls_finished_new(&job->config, job->args->word[0], &choice, world, &cmd_warnings,
                                 &finished, error);
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
    static const struct ls_word specials[] = {{"ids", 1}, {"text", 0}, {0}};
    int special = 1;
    int status = cmd_args_word(args, "--special-tokens", specials, &special, error);
    *encode = (struct ls_encode_options){.special = special,
                                         .around = !cmd_args_given(args, "--no-special-tokens")};
    return status;
}

int finished_words(struct finished_job *job, struct ls_error *error)
{
    if (job->args->words < 1)
        return ls_error_set(error, LS_ECONFIG, "the run's directory is missing");
    for (int i = 1; i < job->args->words; i++) {
        const char *word = job->args->word[i];
        if (is_key(word))
            job->keys[job->key_count++] = word;
        else if (job->data || job->use == LS_TO_GENERATE)
            return ls_error_set(error, LS_ECONFIG, "%.200s is one argument too many: expected %s%s",
                                word, job->args->page->arguments,
                                job->data ? ""
                                          : "; a text is --prompt TEXT, a file --prompts FILE");
        else
            job->data = word;
    }
    return LS_OK;
}

int finished_run(struct finished_job *job, struct ls_error *error)
{
    char threads[64];
    int64_t given = 0;
    int count = job->key_count, quantize = LS_QUANTIZE_NONE;
    cmd_progress_begin();
    int status = cmd_args_int(job->args, "--threads", 1, ls_device_threads_max(), &given, error);
    if (!status)
        status = cmd_args_word(job->args, "--quantize", ls_quantizes, &quantize, error);
    job->quantize = (enum ls_quantize)quantize;
    snprintf(threads, sizeof threads, "parallel.threads=%ld", (long)given);
    if (given > 0)
        job->keys[count++] = threads;
    if (!status)
        status = ls_finished_configure(job->args->word[0], job->use, job->keys, count, &job->config,
                                       error);
    if (!status)
        status = ranks_run(&job->config, rank_body, job, error);
    ranks_end(status, error);
    return status;
}
