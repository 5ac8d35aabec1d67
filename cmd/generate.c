/* lockstep generate */
#include "cmd.h"
#include "launch.h"

static void on_piece(void *user, const char *bytes, size_t count)
{
    cmd_text_put(user, bytes, count);
}

static void on_log(void *user, enum ls_log_level level, const char *line)
{
    (void)user;
    (void)level;
    fprintf(stderr, "lockstep generate: %s\n", line);
}

int cmd_generate(int argc, char **argv)
{
    struct ls_error error = {0};
    struct cmd_args args;
    int64_t tokens = 128, top_k = 0, seed = 1234, threads = ls_device_cores();
    double temperature = 0.8, top_p = 1;
    struct ls_log log = {.level_max = LS_LOG_WARNING, .write = on_log};
    struct ls_loaded *loaded = NULL;
    struct cmd_text text;
    cmd_text_begin(&text);
    int status = cmd_args_read(&args, "generate", argc, argv, 1, &error);
    if (!status && args.words < 1)
        status = ls_error_set(&error, LS_ECONFIG, "the run's directory is missing");
    if (!status)
        status = cmd_args_int(&args, "--tokens", 1, 1 << 30, &tokens, &error);
    if (!status)
        status = cmd_args_int(&args, "--top-k", 0, INT64_MAX, &top_k, &error);
    if (!status)
        status = cmd_args_int(&args, "--seed", 0, INT64_MAX, &seed, &error);
    if (!status)
        status = cmd_args_int(&args, "--threads", 1, 4096, &threads, &error);
    if (!status)
        status = cmd_args_real(&args, "--temperature", 0, 100, &temperature, &error);
    if (!status)
        status = cmd_args_real(&args, "--top-p", 0, 1, &top_p, &error);
    if (!status)
        status = ls_loaded_new(args.word[0], cmd_args_value(&args, "--step"), (int)threads, &log,
                               &loaded, &error);
    if (!status) {
        struct ls_generate generate = {
            .prompt = cmd_args_value(&args, "--prompt"),
            .tokens = tokens,
            .sampling = {.temperature = (float)temperature, .top_p = (float)top_p, .top_k = top_k},
            .seed = (uint64_t)seed,
            .piece = on_piece,
            .user = &text};
        status = ls_loaded_generate(loaded, &generate, &error);
        cmd_text_end(&text);
        if (!status)
            putchar('\n');
    }
    ls_loaded_free(loaded);
    return status ? cmd_fail("generate", status, &error) : 0;
}
