/* lockstep: finds the sub-command and hands over. */
#include "cmd.h"
#include "launch.h"

#include <lockstep/base/version.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name; /* one word, or two: "bench gemm" */
    int (*run)(int argc, char **argv);
} commands[] = {
    {"bench attention", cmd_bench_attention},
    {"bench comm", cmd_bench_comm},
    {"bench gemm", cmd_bench_gemm},
    {"bench int8", cmd_bench_int8},
    {"bench interop", cmd_bench_interop},
    {"bench machine", cmd_bench_machine},
    {"bench ops", cmd_bench_ops},
    {"bench pipeline", cmd_bench_pipeline},
    {"bench plan", cmd_bench_plan},
    {"bench step", cmd_bench_step},
    {"bench sums", cmd_bench_sums},
    {"bench tier", cmd_bench_tier},
    {"bench tokenizer", cmd_bench_tokenizer},
    {"convert", cmd_convert},
    {"data", cmd_data},
    {"diff", cmd_diff},
    {"doctor", cmd_doctor},
    {"eval", cmd_eval},
    {"export", cmd_export},
    {"generate", cmd_generate},
    {"help", cmd_help},
    {"import", cmd_import},
    {"layout", cmd_layout},
    {"plan", cmd_plan},
    {"plan memory", cmd_plan_memory},
    {"plot", cmd_plot},
    {"profile", cmd_profile},
    {"report", cmd_report},
    {"train", cmd_train},
    {"verify", cmd_verify},
};

enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

static int command_index(const char *name)
{
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(commands[i].name, name) == 0)
            return i;
    return -1;
}

/* "bench gemm" of `lockstep bench gemm ...`, "" where there is no second word. */
static void two_words(int argc, char **argv, char *name, size_t bytes)
{
    name[0] = '\0';
    if (argc > 2 && argv[2][0] != '-')
        snprintf(name, bytes, "%s %s", argv[1], argv[2]);
}

/* `--help` or `-h` before "--" shows the page of the command, whatever else is there. */
static bool wants_help(int argc, char **argv)
{
    for (int i = 2; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

static int unknown_command(const char *name)
{
    const char *names[CMD_PAGES_MAX];
    const char *near = ls_nearest(name, names, cmd_page_names(names));
    struct ls_error error;
    fputs("lockstep: ", stderr);
    ls_error_set(&error, LS_ECONFIG, "unknown command %.100s%s%s%s", name,
                 near ? "; did you mean " : "", near ? near : "",
                 near ? "?" : " (lockstep help lists them)");
    fprintf(stderr, "%s\n", error.text);
    return ls_exit_code(LS_ECONFIG);
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        cmd_print_overview(stderr);
        return ls_exit_code(LS_ECONFIG);
    }
    const char *first = argv[1];
    if (strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0) {
        cmd_print_overview(stdout);
        return 0;
    }
    if (strcmp(first, "--version") == 0) {
        printf("lockstep %s (commit %s, numerics.version %d)\n", ls_version(), ls_commit(),
               LS_NUMERICS_VERSION);
        return 0;
    }
    char both[64];
    two_words(argc, argv, both, sizeof both);
    if (wants_help(argc, argv)) {
        const struct cmd_page *page = cmd_page_of(both);
        page = page ? page : cmd_page_of(first);
        if (page) {
            cmd_print_page(stdout, page);
            return 0;
        }
    }
    int index = command_index(both), skip = 2;
    if (index < 0) {
        index = command_index(first);
        skip = 1;
    }
    if (index >= 0)
        return commands[index].run(argc - skip, argv + skip);
    const struct cmd_page *family = cmd_page_of(first);
    if (family && !*both) {
        cmd_print_page(stderr, family);
        return ls_exit_code(LS_ECONFIG);
    }
    return unknown_command(family ? both : first);
}

int main(int argc, char **argv)
{
    /* A file that may not grow further (ulimit -f) is a failed write with a message, not a kill. */
    signal(SIGXFSZ, SIG_IGN);
    /* Whoever read the output is gone (lockstep train ... | head): a run goes on without it, and
     * what was written in vain is an error at the end. */
    signal(SIGPIPE, SIG_IGN);
    launch_arguments(argv);
    struct ls_error error;
    bool shown;
    if (cmd_progress_read(&shown, &error)) {
        fprintf(stderr, "lockstep: %s\n", error.text);
        return ls_exit_code(error.code);
    }
    int code = dispatch(argc, argv);
    errno = 0;
    if (fflush(stdout) != 0 || ferror(stdout)) {
        int status =
            ls_error_errno(&error, errno ? errno : EIO, "lockstep: cannot write the output");
        fprintf(stderr, "%s\n", error.text);
        return code ? code : ls_exit_code(status);
    }
    return code;
}
