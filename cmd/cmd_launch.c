/* lockstep launch: trains over MPI, and goes on when ranks or hosts fail. */
#include "cmd.h"
#include "rank_start.h"

#include <lockstep/launch.h>

#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static volatile int asked; /* signals so far but SIGHUP; -1: that alone */

/* Who signals a process and its group, as GNU timeout does, means one signal. A terminal that is
 * closed may send SIGHUP more than once, and systemd sends SIGTERM beside it. */
static void on_signal(int signal)
{
    static int last, others;
    static struct timespec then;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t ms = (now.tv_sec - then.tv_sec) * 1000 + (now.tv_nsec - then.tv_nsec) / 1000000;
    if (signal != SIGHUP) {
        others += !(others && signal == last && ms < 500);
        last = signal;
        then = now;
    }
    asked = others ? others : -1;
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
    if (args->words && strcmp(args->word[0], "train") == 0 && stat("train", &file))
        return ls_error_set(error, LS_ECONFIG,
                            "launch trains already: leave the word train out, as in `lockstep "
                            "launch --ranks 2 RUN.yaml`");
    for (int i = 0; i < args->words; i++)
        if (!strchr(args->word[i], '=') && !stat(args->word[i], &file) && !S_ISREG(file.st_mode))
            return ls_error_set(error, LS_ECONFIG,
                                "%s is no regular file: every start of the job reads the "
                                "configuration again, so put it into a file",
                                args->word[i]);
    return LS_OK;
}

/* It starts mpirun itself. (A batch script of Slurm has PMI's variables too: they do not count.) */
static int outside_check(struct ls_error *error)
{
    static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        if (getenv(ranks[i]))
            return ls_error_set(error, LS_ECONFIG,
                                "%s is set: this is a rank of a job. lockstep launch starts mpirun "
                                "or srun itself: call it once, outside of them",
                                ranks[i]);
    return LS_OK;
}

int cmd_launch(const struct cmd_args *args, struct ls_error *error)
{
    enum { RANKS_MAX = 65536 };
    static struct ls_config config;
    const struct ls_log log = {.level_max = LS_LOG_INFO, .write = on_log};
    char program[PATH_MAX] = "";
    struct ls_launch launch = {.program = program,
                               .config = &config,
                               .words = args->word,
                               .count = args->words,
                               .hosts = cmd_args_value(args, "--hosts"),
                               .log = &log,
                               .asked = &asked};
    int code = 0;
    int status = outside_check(error);
    if (!status)
        status = cmd_args_int(args, "--ranks", 1, RANKS_MAX, &launch.ranks, error);
    if (!status && launch.hosts && launch.ranks)
        status = ls_error_set(error, LS_ECONFIG,
                              "--ranks is for this machine, and --hosts for several: give one of "
                              "them (the slots of the hosts say how many ranks each takes)");
    if (!status)
        status = words_check(args, error);
    if (!status)
        status = ranks_config(&config, NULL, args->word, args->words, error);
    if (!status)
        status = ls_config_require_data(&config, error);
    if (!status && readlink("/proc/self/exe", program, sizeof program - 1) <= 0)
        status = ls_error_set(error, LS_EIO, "/proc/self/exe cannot be read: is /proc mounted?");
    if (status)
        return status;
    cmd_signals_catch(on_signal, true);
    status = ls_launch(&launch, &code, error);
    return status ? status : code;
}
