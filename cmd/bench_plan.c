/* lockstep bench plan: a layout's step as it is forecast beside the step as it runs here, or as
 * ranks rehearse it that sleep for as long as their ops would take. */
#include "bench.h"
#include "rank_start.h"

#include <lockstep/base/json.h>
#include <lockstep/base/median.h>
#include <lockstep/planner.h>
#include <lockstep/train/recorded.h>

#include <math.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { WARM_UP = 2, STEPS_MAX = 256 };

struct bench {
    struct ls_config config;
    struct ls_cluster cluster;
    struct ls_layout layout;
    struct ls_forecast forecast;
    bool rehearse;
    bool silent; /* of an MPI job, rank 0 prints */
    double step_s[STEPS_MAX];
    int steps;
};

static void silence(struct bench *bench, const struct ls_comm *world)
{
    if (ls_comm_transport(world) == LS_TRANSPORT_MPI)
        bench->silent = ls_comm_rank(world) > 0;
}

/* ---- rehearsals ------------------------------------------------------------------------------ */

/* A rank that sleeps: what it owes of time, so that many short ops are slept for at once. */
struct sleeper {
    const struct ls_cluster *cluster;
    double owed_s;
};

static void sleep_for(void *user, const struct ls_queue *queue, const struct ls_command *command)
{
    struct sleeper *sleeper = user;
    struct ls_work work;
    (void)queue;
    if (ls_command_work(command, &work))
        sleeper->owed_s += ls_cost_work(sleeper->cluster, 1, &work);
    if (sleeper->owed_s < 0.5e-3)
        return;
    double begin = ls_now_s();
    struct timespec time = {.tv_sec = (time_t)sleeper->owed_s,
                            .tv_nsec = (long)(fmod(sleeper->owed_s, 1) * 1e9)};
    nanosleep(&time, NULL);
    sleeper->owed_s -= ls_now_s() - begin;
}

static int rehearse_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct bench *bench = user;
    silence(bench, world);
    struct sleeper sleeper = {.cluster = &bench->cluster};
    prctl(PR_SET_TIMERSLACK, 1UL); /* of this thread: it sleeps no longer than it is asked to */
    const struct ls_queue_watch watch = {.end = sleep_for, .user = &sleeper};
    double step_s[STEPS_MAX];
    int status = ls_rehearse_steps(&bench->config, &bench->layout, world, &watch,
                                   bench->steps + WARM_UP, step_s, error);
    if (!status && ls_comm_rank(world) == 0)
        memcpy(bench->step_s, step_s + WARM_UP, (size_t)bench->steps * sizeof *step_s);
    return status;
}

/* The cluster on which each rank has a core to itself that is so many times slower, and moves bytes
 * while it sleeps. */
static int cluster_slow(struct ls_cluster *cluster, double times, int64_t ranks,
                        struct ls_error *error)
{
    char text[32];
    int64_t cores = cluster->accelerators, wanted = ls_ceil_div(ranks, cluster->hosts);
    int status = LS_OK;
    snprintf(text, sizeof text, "%ld", (long)wanted);
    if (cores < wanted)
        status = ls_cluster_set(cluster, "accelerators", text, error);
    for (int l = 1; l < cluster->links && cores < wanted; l++) /* more share the host's card */
        cluster->link[l].bytes_per_s *= (double)cores / (double)wanted;
    for (int64_t i = 0; i < cluster->works_count; i++)
        cluster->works[i].seconds *= times;
    for (int i = 0; i < 3; i++)
        cluster->accelerator.peak[i] /= times;
    cluster->accelerator.bytes_per_s /= times;
    cluster->overlap = 1;
    return status;
}

/* ---- real steps ------------------------------------------------------------------------------ */

static int run_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct bench *bench = user;
    struct ls_trainer *trainer;
    silence(bench, world);
    int status = ls_trainer_new(&bench->config, world, NULL, &trainer, error);
    if (!status)
        ls_trainer_record_nothing(trainer);
    for (int i = 0; i < bench->steps + WARM_UP && !status; i++) {
        struct ls_step_report report;
        status = ls_trainer_step(trainer, &report, error);
        if (!status && ls_comm_rank(world) == 0 && i >= WARM_UP)
            bench->step_s[i - WARM_UP] = report.step_s - report.data_wait_s;
    }
    ls_trainer_free(trainer);
    return status;
}

static int run_real(struct bench *bench, struct ls_error *error)
{
    char path[BENCH_PATH_BYTES] = "";
    int status = bench_tokens(&bench->config, path, error);
    if (!status)
        status = ranks_run(&bench->config, run_body, bench, error);
    bench_tokens_remove(path);
    return status;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int asked_read(const struct cmd_args *args, struct bench *bench, struct ls_error *error)
{
    static const char *const defaults[] = {"log.progress=off", NULL};
    int64_t steps = 7;
    double slower = 1;
    const char *cluster = cmd_args_value(args, "--cluster");
    bench->rehearse = cmd_args_given(args, "--rehearse");
    int status = ranks_config(&bench->config, defaults, args->word, args->words, error);
    if (!status && !cluster)
        status = ls_error_set(error, LS_ECONFIG,
                              "--cluster FILE is missing: lockstep bench machine --out writes one");
    if (!status)
        status = cmd_args_int(args, "--steps", 1, STEPS_MAX - WARM_UP, &steps, error);
    if (!status)
        status = cmd_args_real(args, "--rehearse", 0.001, 1e9, &slower, error);
    if (!status)
        status = ls_cluster_read(cluster, &bench->cluster, error);
    if (!status)
        status = ls_config_layout(&bench->config, 0, &bench->layout, error);
    if (!status && bench->rehearse) {
        bench->config.parallel.threads = 1;
        status = cluster_slow(&bench->cluster, slower, bench->layout.ranks, error);
    }
    bench->steps = (int)steps;
    return status;
}

static void report_print(struct bench *bench)
{
    char keys[LS_CONFIG_TEXT_BYTES];
    const struct ls_forecast *f = &bench->forecast;
    double measured = ls_median(bench->step_s, bench->steps);
    ls_config_layout_text(&bench->config, NULL, keys, sizeof keys);
    printf("{\"ranks\": %ld, \"layout\": ", (long)f->ranks);
    ls_json_string(stdout, keys, strlen(keys));
    printf(", \"planned_s\": %.6f, \"measured_s\": %.6f, \"error\": %.4f, \"compute_s\": %.6f",
           f->step_s, measured, f->step_s / measured - 1, f->compute_s);
    for (int a = 0; a < LS_ACCOUNTS; a++)
        printf(", \"exposed_%s_s\": %.6f", ls_account_name((enum ls_account)a), f->exposed_s[a]);
    printf("}\n");
}

int cmd_bench_plan(const struct cmd_args *args, struct ls_error *error)
{
    static struct bench bench;
    const struct ls_forecast_ask ask = {
        .config = &bench.config, .layout = &bench.layout, .cluster = &bench.cluster};
    int status = asked_read(args, &bench, error);
    if (!status)
        status = ls_forecast_make(&ask, &bench.forecast, error);
    if (!status)
        status = bench.rehearse ? ranks_run(&bench.config, rehearse_body, &bench, error)
                                : run_real(&bench, error);
    ranks_end(status, error);
    if (!status && !bench.silent)
        report_print(&bench);
    ls_cluster_release(&bench.cluster);
    return status;
}
