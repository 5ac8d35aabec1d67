/* lockstep generate: text that a finished run continues. */
#include "finished.h"

static void on_piece(void *user, const char *bytes, size_t count)
{
    cmd_text_put(user, bytes, count);
}

static int generate_run(struct finished_job *job, struct ls_finished *finished,
                        struct ls_comm *world, struct ls_error *error)
{
    bool first = ls_comm_rank(world) == 0;
    struct cmd_text text;
    struct ls_generate generate = *(const struct ls_generate *)job->user;
    if (first) {
        cmd_text_begin(&text);
        generate.piece = on_piece;
        generate.user = &text;
    }
    int status = ls_runner_generate(ls_finished_runner(finished), &generate, error);
    if (first)
        cmd_text_end(&text);
    if (first && !status)
        putchar('\n');
    return status;
}

int cmd_generate(int argc, char **argv)
{
    struct ls_error error = {0};
    int64_t tokens = 128, top_k = 0, seed = 1234;
    double temperature = 0.8, top_p = 1;
    struct finished_job job = {.command = "generate", .use = LS_TO_GENERATE, .act = generate_run};
    int status = cmd_args_read(&job.args, "generate", argc, argv, CMD_WORDS_MAX, &error);
    if (!status)
        status = cmd_args_int(&job.args, "--tokens", 1, 1 << 30, &tokens, &error);
    if (!status)
        status = cmd_args_int(&job.args, "--top-k", 0, INT64_MAX, &top_k, &error);
    if (!status)
        status = cmd_args_int(&job.args, "--seed", 0, INT64_MAX, &seed, &error);
    if (!status)
        status = cmd_args_real(&job.args, "--temperature", 0, 100, &temperature, &error);
    if (!status)
        status = cmd_args_real(&job.args, "--top-p", 0, 1, &top_p, &error);
    if (!status)
        status = finished_words(&job, &error);
    if (!status) {
        struct ls_generate generate = {
            .prompt = cmd_args_value(&job.args, "--prompt"),
            .tokens = tokens,
            .sampling = {.temperature = (float)temperature, .top_p = (float)top_p, .top_k = top_k},
            .seed = (uint64_t)seed};
        job.user = &generate;
        status = finished_run(&job, &error);
    }
    return finished_end(&job, status, &error);
}
