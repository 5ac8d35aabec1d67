/* lockstep bench step: whole training steps on made-up tokens, one JSON object. */
#include "cmd.h"
#include "launch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { WARM_UP_STEPS = 2, STEPS_MAX = 1024 };

struct bench {
    const struct ls_config *config;
    double step_s[STEPS_MAX], comm_wait_s[STEPS_MAX], data_wait_s[STEPS_MAX];
    struct ls_step_report last;
    int count;
    double first_step_s; /* from the start of the program's work to the end of the first step */
    double begin_s;
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return count ? values[count / 2] : 0;
}

static int bench_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct bench *bench = user;
    struct ls_trainer *trainer;
    int status = ls_trainer_new(bench->config, world, NULL, &trainer, error);
    if (status)
        return status;
    bool writer = ls_comm_rank(world) == 0;
    status = ls_trainer_measure_peak(trainer, error);
    for (int64_t i = 0; i < bench->config->train.steps && !status; i++) {
        struct ls_step_report report;
        status = ls_trainer_step(trainer, &report, error);
        if (!writer || status)
            continue;
        if (i == 0)
            bench->first_step_s = ls_now_s() - bench->begin_s;
        bench->last = report;
        if (i >= WARM_UP_STEPS && bench->count < STEPS_MAX) {
            bench->step_s[bench->count] = report.step_s;
            bench->data_wait_s[bench->count] = report.data_wait_s;
            bench->comm_wait_s[bench->count++] = report.comm_wait_s;
        }
    }
    ls_trainer_free(trainer);
    return status;
}

/* A headerless uint16 file of uniform tokens below vocabulary. */
static int tokens_make(char *path, int64_t count, int64_t vocabulary, struct ls_error *error)
{
    int descriptor = mkstemp(path);
    FILE *file = descriptor >= 0 ? fdopen(descriptor, "wb") : NULL;
    if (!file)
        return ls_error_set(error, LS_EIO, "cannot make the token file %s", path);
    struct ls_philox_key key = ls_philox_key_of(1, "bench");
    for (int64_t i = 0; i < count; i++) {
        uint32_t counter[4] = {(uint32_t)i, 0, 0, 0}, bits[4];
        ls_philox(key, counter, bits);
        uint16_t token = (uint16_t)(bits[0] % (uint32_t)ls_min(vocabulary, 65536));
        fwrite(&token, sizeof token, 1, file);
    }
    return fclose(file) ? ls_error_set(error, LS_ENOSPC, "cannot write %s", path) : LS_OK;
}

static void report_print(struct bench *bench)
{
    const struct ls_config *config = bench->config;
    double tokens = (double)(config->batch.global * config->data.sequence);
    double step = median(bench->step_s, bench->count);
    double comm = median(bench->comm_wait_s, bench->count);
    double wait = median(bench->data_wait_s, bench->count);
    double flops = ls_model_flops_per_token(&config->model, config->data.sequence) * tokens;
    double peak =
        bench->last.peak_share > 0 ? flops / bench->last.step_s / bench->last.peak_share : 0;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"tokens_per_s\": %.2f, \"step_s\": %.5f, \"model_flops_per_s\": %.4g, "
           "\"gemm_flops_per_s\": %.4g, \"peak_share\": %.4f, \"comm_wait_s\": %.5f, "
           "\"data_wait_s\": %.6f, \"first_step_s\": %.3f, \"peak_rss_bytes\": %ld, "
           "\"loss\": %.6f}\n",
           tokens / step, step, flops / step, peak, peak > 0 ? flops / step / peak : 0, comm, wait,
           bench->first_step_s, usage.ru_maxrss * 1024L, (double)bench->last.loss);
}

int cmd_bench_step(int argc, char **argv)
{
    static const char *const defaults[] = {"model.preset=gpt2-124m", "model.vocab=50257",
                                           "batch.global=4",         "train.steps=7",
                                           "log.progress=off",       NULL};
    struct ls_error error = {0};
    struct cmd_args args;
    struct ls_config config;
    static struct bench bench;
    char path[] = "/tmp/lockstep-bench-XXXXXX";
    bench.begin_s = ls_now_s();
    bench.config = &config;
    int status = cmd_args_read(&args, "bench step", argc, argv, CMD_WORDS_MAX, &error);
    if (!status)
        status = launch_config(&config, defaults, args.word, args.words, &error);
    bool made = false;
    if (!status && !config.data.train[0]) {
        int64_t samples = 4 * config.batch.global;
        status = tokens_make(path, samples * config.data.sequence + 1, config.model.vocab, &error);
        made = true;
        snprintf(config.data.train, sizeof config.data.train, "u16:%s", path);
    }
    if (!status)
        status = launch_ranks(&config, bench_body, &bench, &error);
    if (made)
        unlink(path);
    if (status) {
        int code = cmd_fail("bench step", status, &error);
        if (status == LS_ECOMM)
            launch_end(status);
        return code;
    }
    if (bench.count)
        report_print(&bench);
    return 0;
}
