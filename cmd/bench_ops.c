/* lockstep bench ops: the ops of a training step, each beside the machine's own limit. */
#include "bench.h"
#include "rank_start.h"

#include <lockstep/base/words.h>
#include <lockstep/planner/measure.h>

#include <stdlib.h>

/* Up to the last kind that is limited by products. */
static bool multiplies(const struct ls_work *work)
{
    return work->kind <= LS_WORK_ATTENTION_BACKWARD;
}

static void print(const struct ls_cluster *machine, const struct ls_measure_list *list,
                  const double *seconds)
{
    const int threads = list->options.threads;
    printf("%-20s %8s %8s %8s %6s %10s %9s %8s %6s\n", "", "m", "n", "k", "times", "ms", "GFLOP/s",
           "GB/s", "share");
    for (int64_t w = 0; w < list->count; w++) {
        const struct ls_work *work = &list->works[w];
        double flops = work->flops / seconds[w], bytes = work->bytes / seconds[w];
        double limit = multiplies(work) ? ls_cluster_peak(machine, work->dtype)
                                        : machine->accelerator.bytes_per_s;
        int64_t times = 0;
        for (int64_t i = 0; i < list->commands.count; i++)
            times += list->order[i] == w;
        if (times)
            printf("%-20s %8ld %8ld %8ld %6ld %10.3f %9.1f %8.2f %6.2f\n", ls_work_name(work->kind),
                   (long)work->m, (long)work->n, (long)work->k, (long)times, seconds[w] * 1e3,
                   flops * 1e-9, bytes * 1e-9,
                   (multiplies(work) ? flops : bytes) / (limit * threads));
    }
}

/* Of the layout's first rank. */
static int measure(const struct ls_config *config, const struct ls_layout *layout,
                   struct ls_error *error)
{
    struct ls_cluster machine = {.hosts = 1};
    struct ls_measure measure = {.effort = ls_measure_effort_quick(), .cluster = &machine};
    struct ls_measure_list list;
    int threads = ls_rank_threads(config, (int)layout->ranks);
    int status = ls_measure_list_record(config, layout, 0, threads, &list, error);
    if (status)
        return status;
    double *seconds = calloc((size_t)list.count + 1, sizeof *seconds);
    if (!seconds)
        status = ls_no_memory(error, "for %ld ops", (long)list.count);
    if (!status)
        status = ls_measure_machine(&measure, NULL, error);
    measure.effort = ls_measure_effort_full();
    if (!status)
        status = ls_measure_works(&measure, &list, seconds, error);
    if (!status) {
        printf("a step of %s, %s: rank 0 of %s, %s on %s, %s; while all cores compute.\n"
               "share: of the rate of one large product by %s, or of a copy\n",
               ls_arch_name(config->model.arch), ls_config_precision(config),
               ls_counted(layout->ranks, "rank").text, ls_arithmetic_name(list.options.arithmetic),
               ls_isa_name(list.options.isa), ls_counted(threads, "thread").text,
               ls_gemm_library());
        print(&machine, &list, seconds);
    }
    free(seconds);
    ls_measure_list_release(&list);
    ls_cluster_release(&machine);
    return status;
}

int cmd_bench_ops(const struct cmd_args *args, struct ls_error *error)
{
    static const char *const defaults[] = {"model.preset=gpt2-124m", "model.vocab=50257",
                                           "batch.global=4", NULL};
    static struct ls_config config;
    static struct ls_layout layout;
    int status = ranks_config(&config, defaults, args->word, args->words, error);
    if (!status)
        status = ls_config_layout(&config, 0, &layout, error);
    cmd_progress_begin();
    return status ? status : measure(&config, &layout, error);
}
