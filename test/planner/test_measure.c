/* Measuring a machine: what is replayed tells what was recorded, rows are sorted, and what was
 * measured can be written and read. */
#include "../support/config_words.h"
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"

#include <lockstep/base/file.h>
#include <lockstep/device/tier.h>
#include <lockstep/planner/cost.h>
#include <lockstep/planner/measure.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMALL                                                                                      \
    "model.vocab=100 model.layers=3 model.channels=64 model.heads=4 model.context=128 "            \
    "batch.global=8 parallel.threads=1 "
#define LLAMA SMALL "model.arch=llama model.kv_heads=2 model.ffn=128 "

/* ---- replays --------------------------------------------------------------------------------- */

struct told {
    struct ls_work work;
    int count;
};

static void tell(void *user, const struct ls_queue *queue, const struct ls_command *command)
{
    struct told *told = user;
    (void)queue;
    told->count += ls_command_work(command, &told->work);
}

/* What the last replay computes with. */
static struct ls_ops *replay_ops;
WRAPPED(ls_ops_init);
int __wrap_ls_ops_init(struct ls_ops *ops, int threads, enum ls_isa isa, struct ls_error *error)
{
    replay_ops = ops;
    return __real_ls_ops_init(ops, threads, isa, error);
}

static void assert_tells(struct ls_replay *replay, int64_t i, const struct ls_work *work)
{
    struct told told = {.count = 0};
    const struct ls_queue_watch watch = {.begin = tell, .user = &told};
    struct ls_error error = {0};
    double seconds = -1;
    replay_ops->queue.watch = &watch;
    assert_ok(ls_replay_run(replay, i, &seconds, &error), error);
    replay_ops->queue.watch = NULL;
    const struct ls_work *got = &told.work;
    if (told.count != 1 || got->kind != work->kind || got->dtype != work->dtype ||
        got->m != work->m || got->n != work->n || got->k != work->k || got->flops != work->flops ||
        got->bytes != work->bytes)
        fail_msg("%s %s [%ld, %ld, %ld] %.0f operations %.0f bytes was told %d times as %s %s "
                 "[%ld, %ld, %ld] %.0f operations %.0f bytes",
                 ls_work_name(work->kind), ls_dtype_name(work->dtype), (long)work->m, (long)work->n,
                 (long)work->k, work->flops, work->bytes, told.count, ls_work_name(got->kind),
                 ls_dtype_name(got->dtype), (long)got->m, (long)got->n, (long)got->k, got->flops,
                 got->bytes);
    assert_true(seconds >= 0);
}

/* Every command of every rank's step, run again. Returns how many. */
static int64_t replay_all(const char *words, bool kinds[LS_WORK_KINDS])
{
    struct ls_config config = config_of_words("%s", words);
    static struct ls_layout layout;
    struct ls_error error = {0};
    int64_t count = 0;
    if (ls_config_layout(&config, 0, &layout, &error))
        fail_msg("%s: %s", words, error.text);
    for (int64_t rank = 0; rank < layout.ranks; rank++) {
        struct ls_measure_list list;
        struct ls_replay *replay;
        if (ls_measure_list_record(&config, &layout, rank, 1, &list, &error) ||
            ls_replay_new(&list.options, &list.commands, &replay, &error))
            fail_msg("%s: %s", words, error.text);
        for (int64_t i = 0; i < list.commands.count; i++) {
            assert_tells(replay, i, &list.works[list.order[i]]);
            kinds[list.works[list.order[i]].kind] = true;
        }
        count += list.commands.count;
        ls_replay_free(replay);
        ls_measure_list_release(&list);
    }
    return count;
}

CASE(test_replays_tell_what_was_recorded)
{
    static const char *const cases[] = {
        SMALL "numerics.precision=fp32",
        SMALL "numerics.precision=bf16 model.dropout=0.1",
        SMALL "numerics.precision=fp16 model.bias=false optim.name=sgd optim.momentum=0.9",
        SMALL "numerics.precision=bf16 model.tied=false optim.name=lion batch.micro=2",
        SMALL "numerics.precision=bf16 optim.moments=bf16 parallel.tp=2 parallel.dp=2",
        SMALL "numerics.precision=fp32 parallel.tp=4 parallel.sp=false optim.name=sgd",
        SMALL "numerics.precision=bf16 parallel.pp=3 parallel.schedule=zb-h1 batch.micro=1",
        SMALL "numerics.precision=bf16 parallel.dp=2 parallel.zero=3 memory.recompute=full",
        SMALL "numerics.precision=fp32 numerics.leaf_sequences=4 batch.micro=2",
        SMALL "numerics.precision=bf16 model.context=256 numerics.seq_tiles=2 parallel.cp=2",
        SMALL "numerics.precision=fp32 model.context=256 numerics.seq_tiles=2 parallel.cp=2 "
              "parallel.cp_method=ring",
        LLAMA "numerics.precision=bf16",
        LLAMA "numerics.precision=fp32 parallel.tp=2",
        LLAMA "numerics.precision=bf16 parallel.tp=4 parallel.pp=3",
        LLAMA "numerics.precision=bf16 model.context=256 numerics.seq_tiles=2 parallel.cp=2 "
              "parallel.cp_method=ring memory.recompute=selective",
        SMALL "optim.name=muon",
        SMALL "optim.name=muon parallel.dp=2 parallel.zero=1 optim.moments=bf16",
        "model.arch=gemma2 model.head_dim=16 model.window=64 model.kv_heads=2 model.ffn=128 " SMALL,
        "model.arch=qwen3 model.head_dim=16 model.kv_heads=2 model.ffn=128 " SMALL "parallel.tp=2",
        "model.arch=olmo2 model.kv_heads=2 model.ffn=128 " SMALL "parallel.tp=2",
        SMALL "data.packing=documents",
        LLAMA "data.packing=documents parallel.tp=2",
    };
    bool kinds[LS_WORK_KINDS] = {false};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_true(replay_all(cases[i], kinds) > 10);
    for (int kind = 0; kind < LS_WORK_KINDS; kind++)
        if (!kinds[kind])
            fail_msg("no case computes %s", ls_work_name((enum ls_work_kind)kind));
}

/* ---- rows ------------------------------------------------------------------------------------ */

CASE(test_rows_are_sorted_and_replaced)
{
    static const struct ls_measured_work works[] = {
        {LS_WORK_ADD, LS_F32, 2, 8, 1, 1, 0, 2},  {LS_WORK_NORM, LS_F32, 1, 8, 4, 1, 0, 1},
        {LS_WORK_ADD, LS_F32, 1, 8, 1, 1, 96, 3}, {LS_WORK_ADD, LS_F32, 1, 4, 1, 1, 0, 4},
        {LS_WORK_ADD, LS_F32, 1, 8, 1, 1, 96, 5}, {LS_WORK_ADD, LS_F32, 1, 8, 1, 1, 64, 6},
    };
    static const struct ls_measured_move moves[] = {
        {LS_COMM_SEND, 2, 8, 1},
        {LS_COMM_ALL_REDUCE, 4, 8, 2},
        {LS_COMM_ALL_REDUCE, 2, 64, 3},
        {LS_COMM_ALL_REDUCE, 4, 8, 4},
    };
    struct ls_cluster cluster = {.hosts = 1};
    struct ls_error error = {0};
    for (size_t i = 0; i < sizeof works / sizeof *works; i++)
        assert_int_equal(ls_measure_add_work(&cluster, &works[i], &error), LS_OK);
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++)
        assert_int_equal(ls_measure_add_move(&cluster, &moves[i], &error), LS_OK);
    const double work_s[] = {1, 4, 6, 5, 2}, move_s[] = {3, 4, 1};
    assert_int_equal(cluster.works_count, 5);
    assert_int_equal(cluster.moves_count, 3);
    for (int i = 0; i < 5; i++)
        assert_true(cluster.works[i].seconds == work_s[i]);
    for (int i = 0; i < 3; i++)
        assert_true(cluster.moves[i].seconds == move_s[i]);
    ls_cluster_release(&cluster);
}

/* ---- a machine ------------------------------------------------------------------------------- */

/* The machine's peak takes seconds: test/train/test_trainer measures it. */
WRAPPED(ls_gemm_peak);
int __wrap_ls_gemm_peak(struct ls_ops *ops, enum ls_dtype dtype, double *flops_per_s,
                        struct ls_error *error)
{
    *flops_per_s = 1e12;
    return check_all() ? __real_ls_gemm_peak(ops, dtype, flops_per_s, error) : LS_OK;
}

/* What goes to a tier and comes from it takes seconds: the first pieces of each pass do. */
enum { MOVED = 32 << 20 };
static bool moved(size_t offset)
{
    return offset < MOVED || check_all();
}

WRAPPED(ls_tier_write);
int __wrap_ls_tier_write(struct ls_tier *tier, size_t offset, const void *device, size_t bytes,
                         struct ls_transfer *transfer, struct ls_error *error)
{
    return moved(offset) ? __real_ls_tier_write(tier, offset, device, bytes, transfer, error)
                         : LS_OK;
}

WRAPPED(ls_tier_read);
int __wrap_ls_tier_read(struct ls_tier *tier, size_t offset, void *device, size_t bytes,
                        struct ls_transfer *transfer, struct ls_error *error)
{
    return moved(offset) ? __real_ls_tier_read(tier, offset, device, bytes, transfer, error)
                         : LS_OK;
}

static int write_cluster(const void *context, FILE *file, struct ls_error *error)
{
    return ls_cluster_write(context, file, error);
}

static struct ls_measure tiny_of(struct ls_cluster *cluster)
{
    struct ls_measure measure = {.effort = ls_measure_effort_quick(), .cluster = cluster};
    measure.effort.cores = 2;
    measure.effort.works_s = 0.002;
    measure.effort.bytes_max = 4096;
    measure.effort.elements = 1 << 16;
    return measure;
}

static void assert_reads_back(const struct ls_cluster *cluster, const char *path)
{
    struct ls_cluster read;
    struct ls_error error = {0};
    if (ls_file_write(path, write_cluster, cluster, &error) || ls_cluster_read(path, &read, &error))
        fail_msg("%s", error.text);
    assert_int_equal(read.accelerators, 2);
    assert_int_equal(read.works_count, cluster->works_count);
    assert_int_equal(read.moves_count, cluster->moves_count);
    for (int64_t i = 0; i < read.works_count; i++) {
        const struct ls_measured_work *a = &read.works[i], *b = &cluster->works[i];
        assert_true(a->kind == b->kind && a->dtype == b->dtype && a->threads == b->threads);
        assert_true(a->m == b->m && a->n == b->n && a->k == b->k && a->bytes == b->bytes);
        assert_true(a->seconds == b->seconds && a->seconds > 0);
    }
    for (int64_t i = 0; i < read.moves_count; i++)
        assert_true(read.moves[i].seconds == cluster->moves[i].seconds &&
                    read.moves[i].seconds > 0);
    ls_cluster_release(&read);
}

CASE_WITH(test_a_machine_is_measured, scratch_setup, scratch_teardown)
{
    struct ls_cluster cluster = {.hosts = 1};
    struct ls_measure measure = tiny_of(&cluster);
    struct ls_error error = {0};
    if (ls_measure_machine(&measure, *state, &error) ||
        ls_measure_grid(&measure, LS_F32, 1, &error) || ls_measure_moves(&measure, &error))
        fail_msg("%s", error.text);
    ls_measure_finish(&cluster);
    bool works[LS_WORK_KINDS] = {false}, moves[LS_COMM_KINDS] = {false};
    for (int64_t i = 0; i < cluster.works_count; i++)
        works[cluster.works[i].kind] = true;
    for (int64_t i = 0; i < cluster.moves_count; i++)
        moves[cluster.moves[i].kind] = true;
    for (int kind = 0; kind < LS_WORK_KINDS; kind++)
        if (!works[kind])
            fail_msg("the grid lacks %s", ls_work_name((enum ls_work_kind)kind));
    for (int kind = 0; kind < LS_COMM_KINDS; kind++)
        if (!moves[kind])
            fail_msg("no %s was measured", ls_comm_kind_name((enum ls_comm_kind)kind));
    assert_true(cluster.accelerator.peak[0] > 0 && cluster.accelerator.bytes_per_s > 0);
    assert_true(cluster.disk_read_bytes_per_s > 0 && cluster.disk_bytes > 0);
    assert_true(cluster.accelerator.product_share > 0 && cluster.accelerator.product_share <= 1);
    assert_reads_back(&cluster, scratch_path(*state, "machine.yaml"));
    ls_cluster_release(&cluster);
}

static bool same_shape(const struct ls_work *a, const struct ls_work *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->m == b->m && a->n == b->n &&
           a->k == b->k;
}

/* Each work has a row of its own bytes. Returns how many have another of their shape. */
static int64_t rows_apart(const struct ls_cluster *cluster, const struct ls_measure_list *list)
{
    int64_t apart = 0;
    for (int64_t i = 0; i < list->count; i++) {
        const struct ls_work *work = &list->works[i];
        if (work->m == 0 || work->n == 0)
            continue;
        const struct ls_measured_work *row = ls_cost_row(cluster, list->options.threads, work);
        assert_true(row && row->bytes == (int64_t)work->bytes);
        for (int64_t j = 0; j < i; j++)
            apart += same_shape(work, &list->works[j]) && work->bytes != list->works[j].bytes;
    }
    return apart;
}

/* A configuration's rows are exactly those of its step; the check finds all of them. */
CASE_WITH(test_a_configuration_is_measured, scratch_setup, scratch_teardown)
{
    const char *tokens = scratch_path(*state, "tokens.bin");
    static uint16_t values[4096];
    for (int i = 0; i < 4096; i++)
        values[i] = (uint16_t)(i * 7 % 100);
    scratch_write(tokens, values, sizeof values);
    struct ls_config config = config_of_words(SMALL "model.context=64 data.train=u16:%s", tokens);
    static struct ls_layout layout;
    struct ls_cluster cluster = {.hosts = 1};
    struct ls_measure measure = tiny_of(&cluster);
    struct ls_measure_list list;
    struct ls_measure_check check;
    struct ls_error error = {0};
    cluster.accelerators = 2;
    if (ls_config_layout(&config, 0, &layout, &error) ||
        ls_measure_list_record(&config, &layout, 0, 1, &list, &error) ||
        ls_measure_list_add(&measure, &list, &error) ||
        ls_measure_check(&measure, &config, 1, 3, &check, &error))
        fail_msg("%s", error.text);
    assert_in_range(cluster.works_count, 10, list.count);
    assert_true(rows_apart(&cluster, &list) > 0);
    int64_t works = 0;
    for (int kind = 0; kind < LS_WORK_KINDS; kind++)
        works += check.kind_count[kind];
    assert_int_equal(works, list.commands.count);
    assert_int_equal(check.missing, 0);
    assert_true(check.step_s > 0 && check.replay_s > 0 && check.ratio > 0);
    assert_true(check.file_total_s > 0);
    ls_measure_list_release(&list);
    ls_cluster_release(&cluster);
}

CASE(test_a_check_takes_one_rank)
{
    struct ls_config config = config_of_words(SMALL "parallel.dp=2");
    struct ls_measure measure = tiny_of(NULL);
    struct ls_measure_check check;
    struct ls_error error = {0};
    assert_int_equal(ls_measure_check(&measure, &config, 1, 3, &check, &error), LS_ECONFIG);
    assert_non_null(strstr(error.text, "2 ranks"));
}

SUITE_MAIN(NULL, NULL)
