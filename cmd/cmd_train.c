/* lockstep train: reads the configuration, starts the ranks, shows progress. */
#include "cmd.h"
#include "planned_run.h"
#include "rank_start.h"

#include <lockstep/base/heartbeat.h>
#include <lockstep/base/words.h>
#include <lockstep/config/inputs.h>
#include <lockstep/launch.h>

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* Set by signals, read between steps. */
static volatile int stop_asked;

/* SIGUSR1 and SIGHUP only ask. A launcher sends SIGUSR1; a batch system may send others with it, or
 * at the end of the time in which the run saves. Shell and system both send SIGHUP. */
static void on_signal(int signal)
{
    static volatile sig_atomic_t insisted;
    bool insists = signal != SIGUSR1 && signal != SIGHUP;
    if (insists && insisted)
        _exit(128 + signal);
    insisted |= insists;
    stop_asked = 1;
}

/* ---- progress -------------------------------------------------------------------------------- */

struct progress {
    const struct ls_config *config; /* the run's: train.out is where it is now */
    bool live, off;
    double begin_s, shown_s;
    int64_t first_step;
    bool saved;     /* a line tells where */
    bool open_line; /* a live line stands without its end */
    struct planned_run planned;
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
    p->config = config;
    p->begin_s = ls_now_s();
    p->first_step = first_step;
    if (p->off)
        return;
    printf("%s %.1fM parameters, ", ls_arch_name(config->model.arch),
           (double)params->weights / 1e6);
    bool million = params->trained >= 1000000;
    if (params->trained < params->weights)
        printf("%.3g%s of them trained, ", (double)params->trained / (million ? 1e6 : 1e3),
               million ? "M" : "k");
    printf("%s, ", ls_counted(ls_config_ranks(config), "rank").text);
    if (ls_config_workers(config) > 1)
        printf("%s, each ", ls_counted(ls_config_workers(config), "worker").text);
    printf("%ld x %ld tokens a step in %s a rank, %s\n", (long)config->batch.global,
           (long)config->data.sequence, plan->batches.text, ls_config_precision(config));
    printf("memory per rank: %.1f MiB parameters, %.1f gradients, %.1f optimizer, %.1f "
           "activations\n",
           (double)plan->bytes[LS_MEMORY_PARAMETERS] / 0x1p20,
           (double)plan->bytes[LS_MEMORY_GRADIENTS] / 0x1p20,
           (double)plan->bytes[LS_MEMORY_OPTIMIZER] / 0x1p20,
           (double)plan->bytes[LS_MEMORY_ACTIVATIONS] / 0x1p20);
    if (first_step > 0)
        printf("going on after step %ld\n", (long)first_step);
    cmd_flush();
}

/* What a narrow terminal cuts off is what is needed least. */
static void step_line(struct progress *p, const struct ls_step_report *r, double now)
{
    char line[256], weight[48] = "";
    double left = (double)(ls_config_steps(p->config) - r->step) * (now - p->begin_s) /
                  (double)(r->step - p->first_step);
    if (r->weighted)
        snprintf(weight, sizeof weight, " over a weight of %.6g", r->weight);
    snprintf(line, sizeof line,
             "step %ld/%ld  loss %.4f%s  %.0f tokens/s  ETA %ld:%02ld  grad norm %.3f  %.0f%% of "
             "peak",
             (long)r->step, (long)ls_config_steps(p->config), ls_shown((double)r->loss), weight,
             r->tokens_per_s, (long)(left / 60), (long)left % 60, ls_shown(r->grad_norm),
             100 * r->peak_share);
    if (!p->live) {
        puts(line);
        return;
    }
    /* One column less than there are: a terminal that is full breaks the line by itself. */
    int fit = (int)ls_columns_fit(line, cmd_terminal_columns(STDOUT_FILENO) - 1);
    printf("\r%.*s\033[K", fit, line);
    p->open_line = true;
}

static void skipped_line(const struct ls_config *config, const struct ls_step_report *r)
{
    printf("step %ld was skipped: it is not finite", (long)r->step);
    if (config->numerics.precision == LS_F16)
        printf(" at a loss scale of %g", r->loss_scale);
    printf("\n");
}

static void on_stepped(void *user, const struct ls_step_report *r)
{
    struct progress *p = user;
    double now = ls_now_s();
    bool last = r->step == ls_config_steps(p->config), first = r->step == p->first_step + 1;
    /* Live lines at most ten a second, plain ones every five seconds. */
    bool due = last || first || r->skipped || now - p->shown_s >= (p->live ? 0.1 : 5.0);
    if (!p->off && due) {
        p->shown_s = now;
        step_line(p, r, now);
        if (last || r->skipped)
            line_end(p);
        if (r->skipped)
            skipped_line(p->config, r);
    }
    if (last && r->hashed)
        printf("hash %s\n", r->hash);
    cmd_flush();
}

static void on_evaluated(void *user, int64_t step, const struct ls_eval_report *r)
{
    struct progress *p = user;
    if (p->off)
        return;
    line_end(p);
    printf("step %ld  validation loss %.4f", (long)step, ls_shown(r->loss));
    if (r->bits_per_byte > 0)
        printf("  %.3f bits per byte", r->bits_per_byte);
    putchar('\n');
    cmd_flush();
}

static void on_sampled(void *user, int64_t step, const char *text)
{
    struct progress *p = user;
    if (p->off)
        return;
    struct cmd_text shown;
    line_end(p);
    printf("step %ld  sample: ", (long)step);
    cmd_text_begin(&shown);
    cmd_text_put(&shown, text, strlen(text));
    cmd_text_end(&shown);
    putchar('\n');
    cmd_flush();
}

static void on_saved(void *user, int64_t step)
{
    struct progress *p = user;
    p->saved = true;
    line_end(p);
    cmd_print("step %ld  saved %s/checkpoints/step-%08ld\n", (long)step, p->config->train.out,
              (long)step);
}

static void on_idle(void *user, int64_t step, const char *hash)
{
    struct progress *p = user;
    const struct ls_config *config = p->config;
    printf("nothing is left to do: the run is at step %ld of %ld; to train on, set train.extend "
           "(steps after train.steps, now %ld) and train.resume=auto\nhash %s\n",
           (long)step, (long)ls_config_steps(config), (long)config->train.extend, hash);
    if (!p->saved) /* by an earlier start */
        on_saved(user, step);
    cmd_flush();
}

static int on_plan(void *user, const struct ls_config *config, int threads,
                   struct ls_run_plan *plan, struct ls_error *error)
{
    struct progress *p = user;
    return planned_run_plan(&p->planned, config, threads, plan, error);
}

static void on_drifted(void *user, const struct ls_drift *drift)
{
    struct progress *p = user;
    planned_run_drifted(&p->planned, drift);
}

static bool on_advice(void *user, char *text, size_t bytes)
{
    struct progress *p = user;
    return planned_run_advice(&p->planned, text, bytes);
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
    struct ls_heartbeat *heart; /* until the ranks know each other; or NULL */
};

static int processes_spread(struct ls_config *config, struct ls_comm *world, struct ls_error *error)
{
    bool spread;
    int status = ls_train_spread(config, world, &spread, error);
    if (!status && spread && ls_comm_rank(world) == 0)
        printf("%d processes were started and no layout is given: parallel.dp=%d\n",
               ls_comm_size(world), ls_comm_size(world));
    return status;
}

/* While MPI starts, a rank that is stopped holds up all others: the launcher finds it by these. */
static struct ls_heartbeat *heartbeat_start(const struct ls_config *config)
{
    const double most_s = 1;
    char path[PATH_MAX], folder[PATH_MAX];
    struct ls_heartbeat *heart = NULL;
    int rank = ls_mpi_launched_rank();
    double interval_s = fmin(config->comm.timeout_s / 8, most_s);
    if (rank >= 0 && interval_s > 0 && !ls_launch_sign_path(folder, config->train.out, -1, NULL) &&
        !access(folder, W_OK) && !ls_launch_sign_path(path, config->train.out, rank, NULL))
        ls_heartbeat_start(&heart, path, interval_s, NULL);
    return heart;
}

static int rank_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    ls_heartbeat_stop(__atomic_exchange_n(&job->heart, NULL, __ATOMIC_RELAXED));
    struct ls_log log = {.level_max = job->config->log.level, .write = on_log};
    struct ls_run_hooks hooks = {.user = &job->progress,
                                 .started = on_started,
                                 .stepped = on_stepped,
                                 .evaluated = on_evaluated,
                                 .sampled = on_sampled,
                                 .saved = on_saved,
                                 .idle = on_idle,
                                 .plan = on_plan,
                                 .drifted = on_drifted,
                                 .advice = on_advice,
                                 .stop = &stop_asked};
    struct ls_config config = *job->config;
    int status = processes_spread(&config, world, error);
    return status ? status : ls_run(&config, world, &log, &hooks, error);
}

/* Who gives how much of each stage of a blend. */
static void blend_print(const struct ls_training_data *data)
{
    for (int i = 0; i < ls_blend_stages(data->blend) && data->count > 1; i++) {
        struct ls_blend_stage stage = ls_blend_stage(data->blend, i);
        printf("# from sample %" PRId64 " on, of each %" PRId64 ":", stage.first, stage.period);
        const char *between = "";
        for (int s = 0; s < data->count; s++)
            if (stage.parts[s] > 0) {
                printf("%s %" PRId64 " of %s", between, stage.parts[s], data->sources[s].name);
                between = ",";
            }
        puts(stage.rounded ? " (weights rounded)" : "");
    }
}

/* The samples of what is trained on. */
static void samples_print(const struct ls_config *config, const struct ls_error *missing)
{
    struct ls_training_data data = {0};
    struct ls_tokenizer *tokenizer = NULL;
    struct ls_error error = *missing;
    if (!ls_config_has_data(config) && !missing->code) {
        puts("# data.train is not set: its samples are not counted");
        return;
    }
    int status = missing->code;
    if (!status)
        status = ls_config_tokenizer(config, &tokenizer, &error);
    if (!status)
        status = ls_training_data_open(config, tokenizer, &data, &error);
    ls_tokenizer_free(tokenizer);
    if (status) {
        printf("# %s cannot be read, its samples are not counted: %s\n", ls_config_data_key(config),
               error.text);
        return;
    }
    for (int i = 0; i < data.count; i++)
        printf("# %s of %s%s%s; a step takes %ld%s\n",
               ls_counted(data.sources[i].samples, "sample").text,
               ls_counted(config->data.sequence, "token").text, data.count > 1 ? " in " : "",
               data.count > 1 ? data.sources[i].name : "",
               (long)(config->batch.global * ls_config_batches(config)),
               data.count > 1 ? " of all" : " of them");
    blend_print(&data);
    ls_training_data_close(&data);
}

/* One rank's memory by kind. */
static void memory_print(const struct ls_memory_plan *plan)
{
    printf("# memory per rank, at most: %s", ls_bytes((double)plan->total).text);
    for (int kind = 0; kind < LS_MEMORY_KINDS; kind++)
        printf("%s%s %s", kind ? ", " : " (", ls_memory_name((enum ls_memory_kind)kind),
               ls_bytes((double)plan->bytes[kind]).text);
    puts(")");
    const struct ls_tiers_text tiers = ls_memory_tiers_text(plan);
    if (*tiers.text)
        printf("# besides: %s\n", tiers.text);
}

static int dry_run(const struct cmd_args *args, struct ls_error *error)
{
    struct ls_config config;
    struct ls_memory_plan plan;
    struct ls_layout layout;
    struct ls_error missing = {0};
    bool starts;
    int status = ranks_plan_config(&config, args->word, args->words, &missing, error);
    if (!status)
        status = ls_plan(&config, &plan, error);
    if (!status)
        status = ls_config_layout(&config, 0, &layout, error);
    if (!status)
        status = ls_config_write(&config, stdout, error);
    if (status)
        return status;
    samples_print(&config, &missing);
    printf("# %s, each: %s, %d of them alive at once\n",
           ls_counted(ls_config_ranks(&config), "rank").text, plan.batches.text, plan.slots);
    memory_print(&plan);
    status = ranks_fit_print("# ", &config, &layout, &starts, error);
    return status || starts
               ? status
               : ls_error_set(error, LS_ELAYOUT,
                              "it does not fit on this machine: training would be refused here");
}

static int train(const struct cmd_args *args, struct ls_error *error)
{
    static struct ls_config config;
    if (cmd_args_given(args, "--help-config")) {
        ls_config_help(stdout);
        return LS_OK;
    }
    if (cmd_args_given(args, "--dry-run"))
        return dry_run(args, error);
    int status = ranks_config(&config, NULL, args->word, args->words, error);
    if (!status)
        status = ls_config_require_data(&config, error);
    if (!status)
        status = planned_auto(&config, config.log.progress != LS_CONFIG_OFF, error);
    if (status)
        return status;
    struct job job = {.config = &config, .progress = {.config = &config}};
    int shown = config.log.progress;
    job.progress.off = shown == LS_CONFIG_OFF;
    /* A line updated in place is for a terminal; elsewhere its codes would be in the way. */
    bool renews = cmd_terminal_renews(STDOUT_FILENO);
    bool live = shown == LS_CONFIG_AUTO && !cmd_terminal_of_mpirun(STDOUT_FILENO);
    job.progress.live = renews && (live || shown == LS_CONFIG_LIVE);
    cmd_signals_catch(on_signal, false);
    ls_data_stop_on(&stop_asked);
    job.heart = heartbeat_start(&config);
    ls_launch_segments_enter(config.train.out);
    status = ranks_run(&config, rank_body, &job, error);
    ls_heartbeat_stop(job.heart);
    ls_launch_segments_leave();
    line_end(&job.progress);
    ls_launch_end_tell(status, false, error);
    ranks_end(status, error);
    planned_run_close(&job.progress.planned);
    return status;
}

int cmd_train(const struct cmd_args *args, struct ls_error *error)
{
    int status = train(args, error);
    ls_launch_end_tell(status, false, error);
    return status;
}
