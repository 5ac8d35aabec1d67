/* lockstep bench step: whole training steps on made-up tokens, one JSON object. */
#include "bench.h"
#include "rank_start.h"

#include <lockstep/base/median.h>
#include <lockstep/base/meter.h>
#include <lockstep/train/recorded.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { WARM_UP_STEPS = 2, STEPS_MAX = 1024 };

/* Of one rank. It travels as words, so every member has 64 bits. */
struct account {
    int64_t moved[LS_ACCOUNTS];    /* bytes sent in the last step */
    int64_t recorded[LS_ACCOUNTS]; /* the same by ls_record_bytes */
    double wait_s[LS_ACCOUNTS];    /* a step, mean over the steps after warm-up */
    int64_t gradient_bytes;        /* of the part it computes; a tied table has two gradients */
    int64_t activation_bytes, workspace_bytes, device_bytes; /* of its memory plan */
};
enum { ACCOUNT_WORDS = sizeof(struct account) / sizeof(uint64_t) };

struct bench {
    const struct ls_config *config;
    double step_s[STEPS_MAX], comm_wait_s[STEPS_MAX], data_wait_s[STEPS_MAX];
    double optimizer_s[STEPS_MAX], offload_busy_s[STEPS_MAX], offload_wait_s[STEPS_MAX];
    struct ls_step_report last;
    int count;
    double timed_s;      /* of the steps after warm-up together */
    double first_step_s; /* from the start of the program's work to the end of the first step */
    double begin_s;
    struct account *accounts; /* [ranks] */
    int ranks;
};

/* ---- what moved ------------------------------------------------------------------------------ */

/* Adds sign times what was moved and waited for so far. */
static void account_add(struct account *account, const struct ls_trainer *trainer, int sign,
                        bool moved, bool waited)
{
    struct ls_comm_stats stats[LS_GROUPS];
    ls_trainer_stats(trainer, stats);
    for (int g = 0; g < LS_GROUPS; g++) {
        enum ls_account axis = ls_account_of(ls_trainer_layout(trainer), (enum ls_layout_group)g);
        int64_t bytes = stats[g].sent_bytes - stats[g].kind[LS_COMM_OTHER].sent_bytes;
        account->moved[axis] += moved ? sign * bytes : 0;
        account->wait_s[axis] += waited ? sign * stats[g].wait_s : 0;
    }
}

/* What the last step should have moved, what memory is for, and every rank's account to all. */
static int account_close(struct bench *bench, const struct ls_trainer *trainer,
                         struct ls_comm *world, struct account *account, struct ls_error *error)
{
    const struct ls_layout *layout = ls_trainer_layout(trainer);
    int ranks = ls_comm_size(world);
    int status =
        ls_record_bytes(bench->config, layout, ls_comm_rank(world), account->recorded, error);
    struct ls_memory_plan plan = {.total = 0};
    if (!status)
        status = ls_plan_rank(bench->config, layout, ls_comm_rank(world), &plan, error);
    account->activation_bytes = (int64_t)plan.bytes[LS_MEMORY_ACTIVATIONS];
    account->workspace_bytes = (int64_t)plan.bytes[LS_MEMORY_WORKSPACE];
    account->device_bytes = (int64_t)plan.total;
    const struct ls_params *params = ls_trainer_params(trainer);
    for (int i = 0; i < params->region_count; i++)
        account->gradient_bytes += (int64_t)sizeof(float) * params->regions[i].elements;
    struct account *all = calloc((size_t)ranks, sizeof *all);
    if (!all && !status)
        status = ls_no_memory(error, "for the accounts of %d ranks", ranks);
    status = ls_comm_agree(world, status, error);
    if (!status)
        status = ls_all_gather(world, account, all, ACCOUNT_WORDS, LS_U64, error);
    if (status || ls_comm_rank(world) != 0) {
        free(all);
        return status;
    }
    bench->accounts = all;
    bench->ranks = ranks;
    return LS_OK;
}

/* ---- the steps ------------------------------------------------------------------------------- */

static void note_step(struct bench *bench, int64_t step, const struct ls_step_report *report)
{
    if (step == 0)
        bench->first_step_s = ls_now_s() - bench->begin_s;
    bench->last = *report;
    if (step < WARM_UP_STEPS || bench->count >= STEPS_MAX)
        return;
    bench->timed_s += report->step_s;
    bench->step_s[bench->count] = report->step_s;
    bench->data_wait_s[bench->count] = report->data_wait_s;
    bench->optimizer_s[bench->count] = report->optimizer_s;
    bench->offload_busy_s[bench->count] = report->offload_busy_s;
    bench->offload_wait_s[bench->count] = report->offload_wait_s;
    bench->comm_wait_s[bench->count++] = report->comm_wait_s;
}

static int bench_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct bench *bench = user;
    struct ls_trainer *trainer;
    struct account account = {.moved = {0}};
    int64_t steps = bench->config->train.steps;
    int status = ls_trainer_new(bench->config, world, NULL, &trainer, error);
    if (status)
        return status;
    ls_trainer_record_nothing(trainer);
    bool writer = ls_comm_rank(world) == 0;
    status = ls_trainer_measure_peak(trainer, error);
    for (int64_t i = 0; i < steps && !status; i++) {
        struct ls_step_report report;
        account_add(&account, trainer, -1, i == steps - 1, i == WARM_UP_STEPS);
        status = ls_trainer_step(trainer, &report, error);
        if (writer && !status)
            note_step(bench, i, &report);
        if (writer)
            ls_meter("steps", i + 1, steps);
    }
    if (!status)
        account_add(&account, trainer, 1, true, steps > WARM_UP_STEPS);
    for (int axis = 0; axis < LS_ACCOUNTS && steps > WARM_UP_STEPS; axis++)
        account.wait_s[axis] /= (double)(steps - WARM_UP_STEPS);
    if (!status)
        status = account_close(bench, trainer, world, &account, error);
    ls_trainer_free(trainer);
    return status;
}

/* "axes": bytes summed over ranks, waits as their mean and as the longest. */
static void axes_print(const struct bench *bench)
{
    printf("\"axes\": {");
    for (int axis = 0; axis < LS_ACCOUNTS; axis++) {
        int64_t moved = 0, recorded = 0;
        double wait = 0, longest = 0;
        for (int r = 0; r < bench->ranks; r++) {
            const struct account *a = &bench->accounts[r];
            moved += a->moved[axis];
            recorded += a->recorded[axis];
            wait += a->wait_s[axis] / bench->ranks;
            longest = a->wait_s[axis] > longest ? a->wait_s[axis] : longest;
        }
        printf("%s\"%s\": {\"sent_bytes\": %ld, \"recorded_bytes\": %ld, "
               "\"wait_s\": %.5f, \"wait_max_s\": %.5f}",
               axis ? ", " : "", ls_account_name((enum ls_account)axis), (long)moved,
               (long)recorded, wait, longest);
    }
    printf("}");
}

/* Ranks of which an axis moved other bytes than were recorded. */
static int ranks_that_differ(const struct bench *bench)
{
    int count = 0;
    for (int r = 0; r < bench->ranks; r++)
        count += memcmp(bench->accounts[r].moved, bench->accounts[r].recorded,
                        sizeof bench->accounts[r].moved) != 0;
    return count;
}

/* What all ranks allocated together. */
static void memory_print(const struct bench *bench)
{
    int64_t activations = 0, workspace = 0, device = 0;
    for (int r = 0; r < bench->ranks; r++) {
        activations += bench->accounts[r].activation_bytes;
        workspace += bench->accounts[r].workspace_bytes;
        device += bench->accounts[r].device_bytes;
    }
    printf("\"activation_bytes\": %ld, \"workspace_bytes\": %ld, \"device_bytes\": %ld, ",
           (long)activations, (long)workspace, (long)device);
}

/* Of rank 0's memory tiers: bytes of the last step, and medians of seconds. */
static void offload_print(struct bench *bench)
{
    printf("\"offload_bytes\": %.0f, \"offload_busy_s\": %.5f, \"offload_wait_s\": %.5f, ",
           bench->last.offload_bytes, ls_median(bench->offload_busy_s, bench->count),
           ls_median(bench->offload_wait_s, bench->count));
}

static void report_print(struct bench *bench)
{
    const struct ls_config *config = bench->config;
    double tokens = (double)(config->batch.global * config->data.sequence);
    double step = ls_median(bench->step_s, bench->count);
    double comm = ls_median(bench->comm_wait_s, bench->count);
    double wait = ls_median(bench->data_wait_s, bench->count);
    double optimizer = ls_median(bench->optimizer_s, bench->count);
    double flops = ls_model_flops_per_token(&config->model, config->data.sequence) * tokens;
    double peak =
        bench->last.peak_share > 0 ? flops / bench->last.step_s / bench->last.peak_share : 0;
    struct rusage usage;
    char loss[32] = "null"; /* JSON has no word for what is not finite */
    if (isfinite(bench->last.loss))
        snprintf(loss, sizeof loss, "%.6f", (double)bench->last.loss);
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"tokens_per_s\": %.2f, \"step_s\": %.5f, \"model_flops_per_s\": %.4g, "
           "\"gemm_flops_per_s\": %.4g, \"peak_share\": %.4f, \"comm_wait_s\": %.5f, "
           "\"data_wait_s\": %.6f, \"optimizer_s\": %.5f, \"first_step_s\": %.3f, "
           "\"peak_rss_bytes\": %ld, \"loss\": %s, \"ranks\": %d, \"mean_step_s\": %.5f, "
           "\"gradient_bytes\": %ld, \"ranks_that_moved_other_bytes\": %d, ",
           tokens / step, step, flops / step, peak, peak > 0 ? flops / step / peak : 0, comm, wait,
           optimizer, bench->first_step_s, usage.ru_maxrss * 1024L, loss, bench->ranks,
           bench->timed_s / bench->count, (long)bench->accounts[0].gradient_bytes,
           ranks_that_differ(bench));
    memory_print(bench);
    if (bench->last.offload_bytes > 0)
        offload_print(bench);
    axes_print(bench);
    printf("}\n");
}

int cmd_bench_step(const struct cmd_args *args, struct ls_error *error)
{
    static const char *const defaults[] = {"model.preset=gpt2-124m", "model.vocab=50257",
                                           "batch.global=4",         "train.steps=7",
                                           "log.progress=off",       NULL};
    static struct ls_config config;
    static struct bench bench;
    char path[BENCH_PATH_BYTES] = "";
    bench = (struct bench){.begin_s = ls_now_s(), .config = &config};
    int status = ranks_config(&config, defaults, args->word, args->words, error);
    if (!status && !ls_config_has_data(&config))
        status = bench_tokens(&config, path, error);
    cmd_progress_begin();
    if (!status)
        status = ranks_run(&config, bench_body, &bench, error);
    bench_tokens_remove(path);
    ranks_end(status, error);
    if (!status && bench.count)
        report_print(&bench);
    free(bench.accounts);
    return status;
}
