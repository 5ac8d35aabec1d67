/* lockstep bench machine: measures this machine, or the hosts of a job, for the planner. */
#include "bench.h"
#include "launch.h"

#include <lockstep/planner/measure.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct bench {
    struct cmd_args args;
    struct ls_measure measure;
    struct ls_cluster cluster;
    int64_t threads[16];
    int thread_counts;
};

/* ---- the check ------------------------------------------------------------------------------- */

static void check_print(const struct ls_measure_check *check, int threads, const char *type)
{
    printf("%s, %d thread%s a rank\n%-20s %6s %11s %11s\n", type, threads, threads > 1 ? "s" : "",
           "", "works", "replayed, s", "by file, s");
    double sum = 0;
    for (int kind = 0; kind < LS_WORK_KINDS; kind++) {
        if (!check->kind_count[kind])
            continue;
        sum += check->kind_s[kind];
        printf("%-20s %6lld %11.5f %11.5f\n", ls_work_name((enum ls_work_kind)kind),
               (long long)check->kind_count[kind], check->kind_s[kind], check->file_s[kind]);
    }
    printf("%-20s %6s %11.5f %11.5f\n%-20s %6s %11.5f\n", "sum", "", sum, check->file_total_s,
           "the step", "", check->step_s);
    printf("replay over step, turn by turn: %.3f", check->ratio);
    if (check->file_total_s > 0)
        printf("; file over step: %.3f (%lld works without a row)",
               check->file_total_s / check->step_s, (long long)check->missing);
    printf("\n");
    fflush(stdout);
}

static int check_config(struct bench *bench, struct ls_config *config, char *path, bool *made,
                        struct ls_error *error)
{
    static const char *const defaults[] = {"log.progress=off", NULL};
    const char *words[CMD_WORDS_MAX];
    int count = 0;
    words[count++] = cmd_args_value(&bench->args, "--check");
    for (int i = 0; i < bench->args.words && count < CMD_WORDS_MAX; i++)
        words[count++] = bench->args.word[i];
    int status = launch_config(config, defaults, words, count, error);
    if (status || config->data.train[0])
        return status;
    int64_t samples = 4 * config->batch.global;
    status = bench_tokens(path, samples * config->data.sequence + 1, config->model.vocab, error);
    *made = true;
    snprintf(config->data.train, sizeof config->data.train, "u16:%s", path);
    return status;
}

static int check_run(struct bench *bench, struct ls_error *error)
{
    char path[] = "/tmp/lockstep-bench-XXXXXX";
    struct ls_config *config = malloc(sizeof *config);
    bool made = false;
    int status = config ? check_config(bench, config, path, &made, error) : LS_ENOMEM;
    for (int i = 0; i < bench->thread_counts && !status; i++) {
        struct ls_measure_check check;
        int threads = (int)bench->threads[i];
        status = ls_measure_check(&bench->measure, config, threads, 9, &check, error);
        if (!status)
            check_print(&check, threads, ls_config_precision(config));
    }
    if (made)
        unlink(path);
    free(config);
    return status;
}

int cmd_bench_machine(int argc, char **argv)
{
    static struct bench bench;
    struct ls_error error = {0};
    int status = cmd_args_read(&bench.args, "bench machine", argc, argv, CMD_WORDS_MAX, &error);
    bench.measure.effort = ls_measure_effort_full();
    for (int t = 1; t <= ls_device_cores(); t *= 2)
        bench.threads[bench.thread_counts++] = t;
    if (!status)
        status = check_run(&bench, &error);
    return status ? cmd_fail("bench machine", status, &error) : 0;
}
