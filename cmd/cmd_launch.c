/* lockstep launch: trains over MPI, and goes on when ranks or hosts fail. */
#include "cmd.h"
#include "rank_start.h"

#include <lockstep/launch.h>

#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static volatile int asked; /* signals so far */

static void on_signal(int signal)
{
    (void)signal;
    asked++;
}

static void signals_catch(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigfillset(&action.sa_mask); /* one is counted after the other */
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
}

static void on_log(void *user, enum ls_log_level level, const char *line)
{
    (void)user;
    (void)level;
    fprintf(stderr, "lockstep launch: %s\n", line);
}

/* Each start of the job reads the configuration again. */
static int words_check(const struct cmd_args *args, struct ls_error *error)
{
    struct stat file;
    for (int i = 0; i < args->words; i++)
        if (!strchr(args->word[i], '=') && !stat(args->word[i], &file) && !S_ISREG(file.st_mode))
            return ls_error_set(error, LS_ECONFIG,
                                "%s is no regular file: every start of the job reads the "
                                "configuration again, so put it into a file",
                                args->word[i]);
    if (args->words)
        return LS_OK;
    return ls_error_set(error, LS_ECONFIG,
                        "expected a configuration: lockstep launch RUN.yaml, or keys such as "
                        "model.preset=gpt2-124m data.train=PREFIX");
}

int cmd_launch(const struct cmd_args *args, struct ls_error *error)
{
    enum { RANKS_MAX = 65536 };
    static struct ls_config config;
    const struct ls_log log = {.level_max = LS_LOG_INFO, .write = on_log};
    char program[PATH_MAX] = "";
    struct ls_launch launch = {.program = program,
                               .words = args->word,
                               .count = args->words,
                               .config = &config,
                               .hosts = cmd_args_value(args, "--hosts"),
                               .log = &log,
                               .asked = &asked};
    int code = 0;
    int status = cmd_args_int(args, "--ranks", 1, RANKS_MAX, &launch.ranks, error);
    if (!status && launch.hosts && launch.ranks)
        status = ls_error_set(error, LS_ECONFIG,
                              "--ranks is for this machine, and --hosts for several: give one of "
                              "them (the slots of the hosts say how many ranks each takes)");
    if (!status)
        status = words_check(args, error);
    if (!status)
        status = ranks_config(&config, NULL, args->word, args->words, error);
    if (!status)
        status = ls_config_require(&config, "data.train", error);
    if (!status && readlink("/proc/self/exe", program, sizeof program - 1) <= 0)
        status = ls_error_set(error, LS_EIO, "/proc/self/exe cannot be read: is /proc mounted?");
    if (status)
        return status;
    signals_catch();
    status = ls_launch(&launch, &code, error);
    return status ? status : code;
}
