/* lockstep bench machine: measures this machine, or the hosts of a job, for the planner. */
#include "bench.h"
#include "rank_start.h"

#include <lockstep/base/file.h>
#include <lockstep/base/words.h>
#include <lockstep/planner/cost.h>
#include <lockstep/planner/measure.h>

#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct bench {
    const struct cmd_args *args;
    struct ls_measure measure;
    struct ls_cluster cluster;
    int64_t threads[16];
    int thread_counts;
    bool widened; /* from what the launcher bound this process to */
    struct ls_core_set bound;
    struct ls_measured_hosts hosts;
    struct ls_atomic_file out; /* of --out, open from the start */
    double begin_s, seconds;
    bool silent; /* another rank tells how far it is */
    int host_count;
};

/* How far it is. */
__attribute__((format(printf, 2, 3))) static void tell(const struct bench *bench,
                                                       const char *format, ...)
{
    va_list values;
    if (bench->silent)
        return;
    fprintf(stderr, "%5.0f s  measuring ", ls_now_s() - bench->begin_s);
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
}

/* ---- the check ------------------------------------------------------------------------------- */

static void check_print(const struct ls_measure_check *check, int threads, const char *type)
{
    printf("%s, %s a rank\n%-20s %6s %11s %11s\n", type, ls_counted(threads, "thread").text, "",
           "works", "replayed, s", "by file, s");
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
        printf("; file over step: %.3f (%lld works interpolated)",
               check->file_total_s / check->step_s, (long long)check->missing);
    printf("\n");
    cmd_flush();
}

static int check_run(struct bench *bench, struct ls_error *error)
{
    static const char *const defaults[] = {"log.progress=off", NULL};
    static struct ls_config config;
    const char *words[CMD_WORDS_MAX + 1] = {cmd_args_value(bench->args, "--check")};
    char path[BENCH_PATH_BYTES] = "";
    memcpy(words + 1, bench->args->word, (size_t)bench->args->words * sizeof *words);
    int status = ranks_config(&config, defaults, words, bench->args->words + 1, error);
    if (!status && !ls_config_has_data(&config))
        status = bench_tokens(&config, path, error);
    for (int i = 0; i < bench->thread_counts && !status; i++) {
        struct ls_measure_check check;
        int threads = (int)bench->threads[i];
        status = ls_measure_check(&bench->measure, &config, threads, 9, &check, error);
        if (!status)
            check_print(&check, threads, ls_config_precision(&config));
    }
    bench_tokens_remove(path);
    return status;
}

/* ---- what is measured ------------------------------------------------------------------------ */

/* Whether some row of the list is not there yet. */
static bool list_is_new(const struct ls_cluster *cluster, const struct ls_measure_list *list)
{
    for (int64_t i = 0; i < list->count; i++)
        if (!ls_cost_row(cluster, list->options.threads, &list->works[i]))
            return true;
    return false;
}

/* One rank of each pipeline rank: the others compute the same shapes. */
static int measure_layout(struct bench *bench, const struct ls_config *config, int threads,
                          struct ls_error *error)
{
    static struct ls_layout layout;
    struct ls_error refused;
    int status = LS_OK;
    if (ls_config_layout(config, 0, &layout, &refused)) /* not of this recipe */
        return LS_OK;
    for (int64_t p = 0; p < layout.size[LS_AXIS_PP] && !status; p++) {
        struct ls_measure_list list;
        int64_t rank = ls_layout_first_rank(&layout, p);
        status = ls_measure_list_record(config, &layout, rank, threads, &list, error);
        if (!status && list_is_new(&bench->cluster, &list)) {
            char keys[LS_CONFIG_TEXT_BYTES];
            ls_config_layout_text(config, NULL, keys, sizeof keys);
            tell(bench, "the ops of rank %lld: %s", (long long)rank, keys);
            status = ls_measure_list_add(&bench->measure, &list, error);
        }
        ls_measure_list_release(&list);
    }
    return status;
}

/* The layout as it is written, and where that is one rank, the model over as many ranks as the
 * cores of all hosts are enough for, along each axis. */
static int measure_config(struct bench *bench, const struct ls_config *config,
                          struct ls_error *error)
{
    static const char *const axes[] = {"dp", "tp", "pp", "cp"};
    static struct ls_config own;
    static struct ls_layout layout;
    int status = ls_config_layout(config, 0, &layout, error);
    int64_t ranks = status ? 1 : layout.ranks, cores = ls_device_cores() * bench->host_count;
    for (int i = 0; i < bench->thread_counts && !status; i++) {
        int64_t threads = bench->threads[i], most = cores / threads;
        if (ranks > 1 && ranks <= cores && threads > cores / ranks)
            continue;
        own = *config;
        own.parallel.threads = threads;
        status = measure_layout(bench, &own, (int)threads, error);
        for (int64_t r = 2; ranks == 1 && r <= most && !status; r *= 2)
            for (size_t a = 0; a < sizeof axes / sizeof *axes && !status; a++) {
                char word[64];
                own = *config;
                own.parallel.threads = threads;
                snprintf(word, sizeof word, "parallel.%s=%lld", axes[a], (long long)r);
                status = ls_config_set(&own, word, error);
                if (!status)
                    status = measure_layout(bench, &own, (int)threads, error);
            }
    }
    return status;
}

static int measure_grid(struct bench *bench, struct ls_error *error)
{
    static const enum ls_dtype types[] = {LS_F32, LS_BF16, LS_F16};
    static const char *const words[] = {"fp32", "bf16", "fp16"};
    int count = cmd_args_given(bench->args, "--all") ? 3 : 2, status = LS_OK;
    for (int type = 0; type < count && !status; type++)
        for (int i = 0; i < bench->thread_counts && !status; i++) {
            tell(bench, "ops in %s, %s a rank (%d of %d)", words[type],
                 ls_counted(bench->threads[i], "thread").text, type * bench->thread_counts + i + 1,
                 count * bench->thread_counts);
            status = ls_measure_grid(&bench->measure, types[type], (int)bench->threads[i], error);
        }
    return status;
}

/* All of one host: the ops of the configuration, or of the grid. */
static int measure_host(struct bench *bench, struct ls_error *error)
{
    static struct ls_config config;
    const struct cmd_args *args = bench->args;
    const char *disk = cmd_args_value(args, "--disk");
    struct ls_error missing;
    int status =
        args->words ? ranks_plan_config(&config, args->word, args->words, &missing, error) : LS_OK;
    if (!status) {
        tell(bench, "peaks, memory and copies%s", disk ? ", and the disk" : "");
        status = ls_measure_machine(&bench->measure, disk, error);
    }
    if (!status)
        status = args->words ? measure_config(bench, &config, error) : measure_grid(bench, error);
    if (!status) {
        tell(bench, "collectives of threads");
        status = ls_measure_moves(&bench->measure, error);
    }
    if (!status)
        ls_measure_finish(&bench->cluster);
    return status;
}

/* Launchers bind a process to some cores of its host: a host is measured on all that it may have,
 * but for --bound. True: before has what it was bound to. */
static bool bound_widen(struct ls_core_set *before)
{
    struct ls_core_set all;
    memset(&all, 0xff, sizeof all);
    return ls_mpi_launched() && ls_device_core_set(before) &&
           sched_setaffinity(0, sizeof all, (const cpu_set_t *)&all) == 0;
}

/* One rank of each host measures it while the others wait; then all meet. */
static int measure_job(struct bench *bench, struct ls_comm *world, struct ls_error *error)
{
    int rank = ls_comm_rank(world), first = 0;
    while (!ls_comm_on_machine(world, first))
        first++;
    bench->silent = rank > 0;
    bench->host_count = ls_comm_size(world) / ls_comm_machine_ranks(world);
    int status = first == rank ? measure_host(bench, error) : LS_OK;
    if (bench->widened) /* collectives as runs have them */
        sched_setaffinity(0, sizeof bench->bound, (const cpu_set_t *)&bench->bound);
    status = ls_comm_agree(world, status, error);
    if (!status && ls_comm_size(world) > 1)
        tell(bench, "collectives of processes, and links between hosts");
    return status ? status : ls_measure_hosts(&bench->measure, world, &bench->hosts, error);
}

static int write_cluster(const void *context, FILE *file, struct ls_error *error)
{
    const struct bench *bench = context;
    fprintf(file, "source:\n  - \"lockstep bench machine, %.0f s\"\n", bench->seconds);
    for (int i = 0; i < bench->hosts.count; i++) {
        const struct ls_measured_host *host = &bench->hosts.host[i];
        fprintf(file,
                "  - \"%s: %lld cores, fp32 %.1f, bf16 %.1f GFLOP/s and memory %.1f GB/s each; its "
                "works take %.2f of the median\"\n",
                host->name, (long long)host->cores, host->flops[0] * 1e-9, host->flops[1] * 1e-9,
                host->bytes_per_s * 1e-9, host->slower);
    }
    return ls_cluster_write(&bench->cluster, file, error);
}

static void print_hosts(const struct bench *bench)
{
    const struct ls_cluster *cluster = &bench->cluster;
    const struct ls_measured_hosts *hosts = &bench->hosts;
    for (int i = 0; i < hosts->count && hosts->count > 1; i++) {
        const struct ls_measured_host *host = &hosts->host[i];
        printf("%-20s fp32 %.1f, bf16 %.1f GFLOP/s, memory %.1f GB/s each, %s\n", host->name,
               host->flops[0] * 1e-9, host->flops[1] * 1e-9, host->bytes_per_s * 1e-9,
               ls_counted(host->processes, "process").text);
    }
    for (int l = 0; l < cluster->links; l++)
        printf("link %-15s joins %lld, latency %.1f us, %.4g MB/s of a core\n",
               cluster->link[l].name, (long long)cluster->link[l].joins,
               cluster->link[l].latency_s * 1e6, cluster->link[l].bytes_per_s * 1e-6);
    for (int i = 0; i < hosts->count; i++)
        if (ls_measured_host_slow(&hosts->host[i]))
            printf("note: %s takes %.0f %% longer than the median of the hosts: a job over all of "
                   "them goes at its pace\n",
                   hosts->host[i].name, (hosts->host[i].slower - 1) * 100);
}

static int finish(struct bench *bench, struct ls_error *error)
{
    const struct ls_cluster *cluster = &bench->cluster;
    const struct ls_cluster_accelerator *core = &cluster->accelerator;
    const char *path = cmd_args_value(bench->args, "--out");
    char *text = NULL;
    size_t bytes;
    int status = path ? ls_text_write(write_cluster, bench, &text, &bytes, error) : LS_OK;
    if (path && !status) {
        ls_atomic_file_write(&bench->out, text, bytes);
        status = ls_atomic_file_commit(&bench->out, error);
    }
    free(text);
    if (status)
        return status;
    printf("%s\n%lld x %lld cores: fp32 %.1f, bf16 %.1f GFLOP/s, memory %.1f GB/s each\n",
           cluster->name, (long long)cluster->hosts, (long long)cluster->accelerators,
           core->peak[0] * 1e-9, core->peak[1] * 1e-9, core->bytes_per_s * 1e-9);
    print_hosts(bench);
    printf("%lld works and %lld moves in %.0f s%s%s\n", (long long)cluster->works_count,
           (long long)cluster->moves_count, bench->seconds,
           path ? ": " : " (--out FILE writes them)", path ? path : "");
    return LS_OK;
}

static int measure_all(struct bench *bench, struct ls_error *error)
{
    struct ls_comm *world = NULL;
    bool writes = true;
    int status = LS_OK;
    bench->begin_s = ls_now_s();
    bench->host_count = 1;
    if (ls_mpi_launched()) {
        status = ls_comm_mpi_new(&world, error);
        if (!status)
            status = measure_job(bench, world, error);
        writes = !status && ls_comm_rank(world) == 0;
    } else {
        status = measure_host(bench, error);
        if (!status)
            status = ls_measure_host(&bench->measure, &bench->hosts, error);
    }
    bench->seconds = ls_now_s() - bench->begin_s;
    if (!status && writes)
        status = finish(bench, error);
    ls_measured_hosts_release(&bench->hosts);
    if (!status && world) { /* after a failure the launcher ends the others */
        ls_comm_free(world);
        ls_mpi_finish();
    }
    return status;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* "1,2,4"; by default 1, all cores, and powers of two between; of a quick one, the ends. */
static int threads_read(struct bench *bench, struct ls_error *error)
{
    enum { MOST = sizeof bench->threads / sizeof *bench->threads };
    const char *text = cmd_args_value(bench->args, "--threads");
    int64_t cores = ls_device_cores(), t = 1;
    for (; !text && t < cores && bench->thread_counts < MOST - 1; t *= 2)
        if (t == 1 || !cmd_args_given(bench->args, "--quick"))
            bench->threads[bench->thread_counts++] = t;
    if (!text)
        bench->threads[bench->thread_counts++] = cores;
    for (char *end = NULL; text; text = *end ? end + 1 : NULL) {
        t = strtoll(text, &end, 10);
        if (end == text || (*end && *end != ',') || t < 1 || t > cores ||
            bench->thread_counts == MOST)
            return ls_error_set(
                error, LS_ECONFIG,
                "--threads = %.80s: expected numbers from 1 to %lld (the cores here), with commas "
                "between",
                cmd_args_value(bench->args, "--threads"), (long long)cores);
        bench->threads[bench->thread_counts++] = t;
    }
    return LS_OK;
}

/* Options that contradict each other, and what cannot be written. */
static int options_check(struct bench *bench, struct ls_error *error)
{
    const struct cmd_args *args = bench->args;
    bool check = cmd_args_given(args, "--check");
    static const char *const measuring[] = {"--out", "--all", "--disk", "--quick"};
    for (size_t i = 0; i < sizeof measuring / sizeof *measuring && check; i++)
        if (cmd_args_given(args, measuring[i]))
            return ls_error_set(error, LS_ECONFIG,
                                "%s measures, --check compares: expected one of them",
                                measuring[i]);
    if (!check && cmd_args_given(args, "--machine"))
        return ls_error_set(error, LS_ECONFIG, "--machine: expected --check CONFIG beside it");
    if (cmd_args_given(args, "--all") && args->words)
        return ls_error_set(error, LS_ECONFIG,
                            "--all adds a type to the grid: expected no configuration, which has "
                            "its own");
    const char *path = cmd_args_value(args, "--out"); /* known before a minute is spent */
    return path ? ls_atomic_file_open(&bench->out, path, NULL, error) : LS_OK;
}

int cmd_bench_machine(const struct cmd_args *args, struct ls_error *error)
{
    static struct bench bench;
    const char *file = cmd_args_value(args, "--machine");
    bench = (struct bench){.args = args, .out = {.fd = -1}};
    int status = options_check(&bench, error);
    bench.widened = !cmd_args_given(args, "--bound") && bound_widen(&bench.bound);
    if (!status)
        status = threads_read(&bench, error);
    bench.measure.effort =
        cmd_args_given(args, "--quick") ? ls_measure_effort_quick() : ls_measure_effort_full();
    bench.measure.cluster = &bench.cluster;
    if (!status && file)
        status = ls_cluster_read(file, &bench.cluster, error);
    if (!status)
        status =
            cmd_args_given(args, "--check") ? check_run(&bench, error) : measure_all(&bench, error);
    ls_cluster_release(&bench.cluster);
    ls_atomic_file_abort(&bench.out);
    return status;
}
