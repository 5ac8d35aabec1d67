/* lockstep: finds the sub-command and hands over. */
#include "cmd.h"
#include "rank_start.h"

#include <lockstep/base/key.h>
#include <lockstep/base/version.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* "bench ops" of `lockstep bench ops ...`, "" if there is no second word. */
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

/* What other programs have a command for. */
static const struct {
    const char *theirs, *ours;
} elsewhere[] = {
    {"resume|continue", "train CONFIG.yaml train.resume=auto"},
    {"finetune|fine-tune|sft|lora", "train with model.from"},
    {"pretrain|run|fit", "train"},
    {"chat|talk", "generate --chat"},
    {"sample|infer|predict|complete", "generate"},
    {"evaluate|test|score", "eval"},
    {"tokenize|tokenise|preprocess|prepare|encode", "data prepare"},
    {"data tokenize|data tokenise|data preprocess|data encode", "data prepare"},
    {"data show|data info|data view|data head", "data inspect"},
    {"decode|detokenize|data decode", "data detokenize"},
    {"merge", "export, which merges adapters, or data merge"},
    {"compare", "diff"},
    {"inspect|info|show", "ckpt inspect, data inspect or status"},
    {"ckpt list|ckpt ls|ckpt show|ckpt info", "ckpt inspect"},
    {"logs|ps|progress", "status"},
    {"mpirun|mpiexec|torchrun|accelerate|deepspeed", "launch"},
    {"version|-v|-V", "--version"},
};

static int unknown_command(const char *name)
{
    const char *names[CMD_PAGES_MAX];
    const char *near = ls_nearest(name, names, cmd_page_names(names));
    static const char *const families[] = {"data", "ckpt", "bench", "plan"};
    char longer[64];
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        snprintf(longer, sizeof longer, "%s %.40s", families[i], name);
        near = cmd_page_of(longer) ? cmd_page_of(longer)->name : near;
    }
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        if (ls_word_among(elsewhere[i].theirs, name))
            near = elsewhere[i].ours;
    char train[128];
    snprintf(train, sizeof train, "lockstep train %.100s", name);
    if (ls_path_ends(name, ".yaml") || ls_path_ends(name, ".yml"))
        near = train;
    struct ls_error error;
    fputs("lockstep: ", stderr);
    ls_error_set(&error, LS_ECONFIG, "unknown command %.100s%s", name,
                 ls_meant(near, " (lockstep help lists them)").text);
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
    int status;
    if (cmd_run(both, argc - 2, argv + 2, &status) || cmd_run(first, argc - 1, argv + 1, &status))
        return status;
    const struct cmd_page *family = cmd_page_of(first);
    if (family && !*both) {
        cmd_print_page(stderr, family);
        return ls_exit_code(LS_ECONFIG);
    }
    return unknown_command(family ? both : first);
}

/* Where a standard stream is closed (>&-), the next file that is opened has its number, and what is
 * printed goes into that file. So the numbers are taken, in a mode in which they fail as before. */
static void closed_streams_take(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

/* Whether standard output is a pipe that nobody reads: its reader had enough. */
static bool reader_gone(void)
{
    struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&output, 1, 0) == 1 && output.revents & POLLERR;
}

int main(int argc, char **argv)
{
    closed_streams_take();
    /* A file that may not grow further (ulimit -f) is a failed write with a message, not a kill. */
    signal(SIGXFSZ, SIG_IGN);
    /* Whoever read the output is gone (lockstep train ... | head): the command goes on without
     * it, and says nothing of what was written in vain. One that makes records for a reader alone
     * (cmd_lines_end) ends there, as quietly. */
    signal(SIGPIPE, SIG_IGN);
    ranks_arguments(argv);
    struct ls_error error;
    bool shown;
    if (cmd_progress_read(&shown, &error)) {
        fprintf(stderr, "lockstep: %s\n", error.text);
        return ls_exit_code(error.code);
    }
    int code = dispatch(argc, argv);
    int failure = cmd_flush();
    if (failure && !reader_gone()) {
        int status = ls_error_errno(&error, failure, "lockstep: cannot write the output");
        fprintf(stderr, "%s\n", error.text);
        return code ? code : ls_exit_code(status);
    }
    return code;
}
