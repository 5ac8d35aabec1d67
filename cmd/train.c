/* lockstep train: reads the configuration, starts the ranks, shows progress. */
#include "cmd.h"
#include "launch.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Set by SIGINT and SIGTERM, read between steps. */
static volatile int stop_asked;

static void on_signal(int signal)
{
    if (stop_asked)
        _exit(128 + signal);
    stop_asked = 1;
}

static void signals_catch(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL); /* Slurm's requeue signal */
}

/* ---- progress -------------------------------------------------------------------------------- */

struct progress {
    const struct ls_config *config;
    bool live, off;
    double begin_s, shown_s;
    int64_t first_step;
    bool open_line; /* a live line stands without its end */
};

static void line_end(struct progress *p)
{
    if (p->open_line)
        putchar('\n');
    p->open_line = false;
}

static void on_started(void *user, const struct ls_config *config,
                       const struct ls_memory_plan *plan, const struct ls_params *params,
                       int64_t first_step)
{
    struct progress *p = user;
    p->begin_s = ls_now_s();
    p->first_step = first_step;
    if (p->off)
        return;
    printf("%s %.1fM parameters, %ld ranks, %ld x %ld tokens a step in %ld micro-batches of %ld a "
           "rank, %s\n",
           config->model.arch == LS_GPT2 ? "gpt2" : "llama", (double)params->weights / 1e6,
           (long)ls_config_ranks(config), (long)config->batch.global, (long)config->data.sequence,
           (long)plan->micro_batches, (long)plan->micro_sequences,
           config->numerics.precision == LS_BF16 ? "bf16" : "fp32");
    printf("memory per rank: %.1f MiB parameters, %.1f gradients, %.1f optimizer, %.1f "
           "activations\n",
           (double)plan->parameters / 0x1p20, (double)plan->gradients / 0x1p20,
           (double)plan->optimizer / 0x1p20, (double)plan->activations / 0x1p20);
    if (first_step > 0)
        printf("going on after step %ld\n", (long)first_step);
    fflush(stdout);
}

static void on_stepped(void *user, const struct ls_step_report *r)
{
    struct progress *p = user;
    double now = ls_now_s();
    bool last = r->step == ls_config_steps(p->config), first = r->step == p->first_step + 1;
    /* Live lines at most ten a second, plain ones every five seconds. */
    bool due = last || first || r->skipped || now - p->shown_s >= (p->live ? 0.1 : 5.0);
    if (p->off || !due)
        return;
    p->shown_s = now;
    double left = (double)(ls_config_steps(p->config) - r->step) * (now - p->begin_s) /
                  (double)(r->step - p->first_step);
    printf("%sstep %ld/%ld  loss %.4f  grad norm %.3f  %.0f tokens/s  %.0f%% of peak  ETA "
           "%ld:%02ld%s",
           p->live ? "\r" : "", (long)r->step, (long)ls_config_steps(p->config), (double)r->loss,
           r->grad_norm, r->tokens_per_s, 100 * r->peak_share, (long)(left / 60), (long)left % 60,
           p->live ? "\033[K" : "\n");
    p->open_line = p->live;
    if (last)
        line_end(p);
    if (r->skipped) {
        line_end(p);
        printf("step %ld was skipped: it is not finite\n", (long)r->step);
    }
    if (last && r->hashed)
        printf("hash %s\n", r->hash);
    fflush(stdout);
}

static void on_evaluated(void *user, int64_t step, const struct ls_eval_report *r)
{
    struct progress *p = user;
    if (p->off)
        return;
    line_end(p);
    printf("step %ld  validation loss %.4f", (long)step, r->loss);
    if (r->bits_per_byte > 0)
        printf("  %.3f bits per byte", r->bits_per_byte);
    putchar('\n');
    fflush(stdout);
}

static void on_sampled(void *user, int64_t step, const char *text)
{
    struct progress *p = user;
    if (p->off)
        return;
    line_end(p);
    printf("step %ld  sample: %s\n", (long)step, text);
    fflush(stdout);
}

static void on_saved(void *user, int64_t step)
{
    struct progress *p = user;
    if (p->off)
        return;
    line_end(p);
    printf("step %ld  saved %s/checkpoints/step-%08ld\n", (long)step, p->config->train.out,
           (long)step);
    fflush(stdout);
}

static void on_log(void *user, enum ls_log_level level, const char *line)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    (void)user;
    fprintf(stderr, "lockstep: %s: %s\n", names[level], line);
}

/* ---- the ranks ------------------------------------------------------------------------------- */

struct job {
    const struct ls_config *config;
    struct progress progress;
};

static int rank_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    struct ls_log log = {.level_max = job->config->log.level, .write = on_log};
    struct ls_run_hooks hooks = {.user = &job->progress,
                                 .started = on_started,
                                 .stepped = on_stepped,
                                 .evaluated = on_evaluated,
                                 .sampled = on_sampled,
                                 .saved = on_saved,
                                 .stop = &stop_asked};
    return ls_run(job->config, world, &log, &hooks, error);
}

static int dry_run(const struct ls_config *config, struct ls_error *error)
{
    struct ls_memory_plan plan;
    struct ls_token_store *store = NULL;
    int64_t samples = 0;
    int status = ls_plan(config, &plan, error);
    if (!status)
        status = ls_config_require(config, "data.train", error);
    if (status)
        return status;
    status = ls_token_store_open(config->data.train, &store, error);
    if (!status)
        status = ls_token_store_samples(store, config->data.sequence, &samples, error);
    if (status)
        ls_config_blame(config, "data.train", error);
    ls_token_store_close(store);
    if (status)
        return status;
    status = ls_config_write(config, stdout, error);
    printf("# %ld samples of %ld tokens; a step takes %ld of them\n"
           "# each of %ld ranks: %ld micro-batches of %ld sequences, %d of them alive at once\n"
           "# memory per rank, at most: %zu bytes (parameters %zu, gradients %zu, optimizer %zu, "
           "in transit %zu, activations %zu)\n",
           (long)samples, (long)config->data.sequence, (long)config->batch.global,
           (long)ls_config_ranks(config), (long)plan.micro_batches, (long)plan.micro_sequences,
           plan.slots, plan.total, plan.parameters, plan.gradients, plan.optimizer, plan.transit,
           plan.activations);
    return status;
}

int cmd_train(int argc, char **argv)
{
    struct ls_error error = {0};
    struct cmd_args args;
    struct ls_config config;
    int status = cmd_args_read(&args, "train", argc, argv, CMD_WORDS_MAX, &error);
    if (status)
        return cmd_fail("train", status, &error);
    if (cmd_args_given(&args, "--help-config")) {
        ls_config_help(stdout);
        return 0;
    }
    status = launch_config(&config, NULL, args.word, args.words, &error);
    if (!status && cmd_args_given(&args, "--dry-run")) {
        status = dry_run(&config, &error);
        return status ? cmd_fail("train", status, &error) : 0;
    }
    if (!status)
        status = ls_config_require(&config, "data.train", &error);
    if (!status) {
        struct job job = {.config = &config, .progress = {.config = &config}};
        int shown = config.log.progress;
        job.progress.off = shown == LS_CONFIG_OFF;
        job.progress.live =
            shown == LS_CONFIG_LIVE || (shown == LS_CONFIG_AUTO && isatty(STDOUT_FILENO));
        signals_catch();
        status = launch_ranks(&config, rank_body, &job, &error);
        line_end(&job.progress);
    }
    int code = status ? cmd_fail("train", status, &error) : 0;
    if (status == LS_ECOMM)
        launch_end(status);
    return code;
}
