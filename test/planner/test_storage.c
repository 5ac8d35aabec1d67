/* Samples and checkpoints in a forecast: bytes are those that a run leaves on the disk, a step
 * waits as the loader makes it wait, and a slower disk never makes anything faster. Where a run is
 * to be slow, what the linker puts in the place of the update and of the store's reads sleeps.
 */
/* check: cores */
#include "../support/config_words.h"
#include "../support/scratch.h"
#include "../support/wrapped.h"

#include <lockstep/planner.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define SMALL                                                                                      \
    "model.vocab=50 model.layers=2 model.channels=32 model.heads=2 model.context=16 "              \
    "batch.global=4 batch.micro=1 numerics.leaf_sequences=1 "

static const char machine[] = "name: small\n"
                              "hosts: 4\n"
                              "accelerators: 8\n"
                              "accelerator:\n"
                              "  name: A\n"
                              "  peak: {bf16: 1 TFLOP/s}\n"
                              "  memory: 80 GB\n"
                              "  bandwidth: 200 GB/s\n"
                              "disk: {read: 1 GB/s, write: 500 MB/s}\n"
                              "links:\n"
                              "  - {name: near, joins: 8, latency: 1 us, bandwidth: 40 GB/s}\n"
                              "  - {name: far, joins: 32, latency: 10 us, bandwidth: 5 GB/s}\n"
                              "failures: 0.001\n";

static struct ls_cluster cluster_of(const char *change, const char *value)
{
    struct ls_cluster cluster;
    struct ls_error error = {0};
    if (ls_cluster_read_text("test", machine, strlen(machine), &cluster, &error) ||
        (change && ls_cluster_set(&cluster, change, value, &error)))
        fail_msg("%s", error.text);
    return cluster;
}

static struct ls_layout layout_of(const struct ls_config *config)
{
    static struct ls_layout layout;
    struct ls_error error = {0};
    if (ls_config_layout(config, 0, &layout, &error))
        fail_msg("%s", error.text);
    return layout;
}

static struct ls_forecast forecast_of(const struct ls_config *config,
                                      const struct ls_cluster *cluster)
{
    const struct ls_layout layout = layout_of(config);
    const struct ls_forecast_ask ask = {.config = config, .layout = &layout, .cluster = cluster};
    struct ls_forecast forecast;
    struct ls_error error = {0};
    if (ls_forecast_make(&ask, &forecast, &error) || ls_forecast_run(&ask, &forecast, &error))
        fail_msg("%s", error.text);
    return forecast;
}

/* ---- runs that sleep ---------------------------------------------------------------------------
 */

static int update_ms, sample_ms;

static void sleep_ms(int ms)
{
    const struct timespec pause = {ms / 1000, 1000000L * (ms % 1000)};
    nanosleep(&pause, NULL);
}

WRAPPED(ls_optimizer_step);
int __wrap_ls_optimizer_step(struct ls_optimizer *optimizer, struct ls_ops *ops,
                             const struct ls_slice *slices, int count,
                             const struct ls_optim_step *step, struct ls_error *error)
{
    sleep_ms(update_ms);
    return __real_ls_optimizer_step(optimizer, ops, slices, count, step, error);
}

WRAPPED(ls_token_store_read);
int __wrap_ls_token_store_read(const struct ls_token_store *store, int64_t first, int64_t count,
                               int64_t vocabulary, int32_t *ids, struct ls_error *error)
{
    if (count > 1) /* the other read of a sample is its last target */
        sleep_ms(sample_ms);
    return __real_ls_token_store_read(store, first, count, vocabulary, ids, error);
}

enum { STEPS = 9 };

struct ran {
    const struct ls_config *config;
    double ended_s[STEPS];
    int steps;
};

static void on_stepped(void *user, const struct ls_step_report *report)
{
    struct ran *ran = user;
    (void)report;
    if (ran->steps < STEPS)
        ran->ended_s[ran->steps++] = ls_now_s();
}

static int body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct ran *ran = user;
    const struct ls_run_hooks hooks = {.user = ran, .stepped = on_stepped};
    return ls_run(ran->config, world, NULL, &hooks, error);
}

static struct ls_config config_in(const char *directory, const char *words)
{
    uint16_t values[2048];
    for (int i = 0; i < 2048; i++)
        values[i] = (uint16_t)(i * 7 % 50);
    scratch_write(scratch_path(directory, "tokens.bin"), values, sizeof values);
    return config_of_words(SMALL "data.train=u16:%s/tokens.bin train.out=%s/run "
                                 "log.tensorboard=false %s",
                           directory, directory, words);
}

static void run(const struct ls_config *config, struct ran *ran)
{
    struct ls_error error = {0};
    *ran = (struct ran){.config = config};
    if (ls_world_run((int)ls_config_ranks(config), body, ran, &error))
        fail_msg("%s", error.text);
}

/* ---- checkpoints on the disk -------------------------------------------------------------------
 */

static int64_t bytes_of(const struct ls_config *config, const char *name)
{
    char path[1200];
    struct stat found;
    snprintf(path, sizeof path, "%s/checkpoints/step-%08ld/%s", config->train.out, 1L, name);
    if (stat(path, &found))
        fail_msg("%s is not there", path);
    return (int64_t)found.st_size;
}

static void test_bytes_are_those_on_the_disk(void **state)
{
    static const char *const recipes[] = {
        "parallel.dp=1",
        "parallel.dp_shard=2 parallel.tp=2 parallel.zero=3",
        "parallel.pp=2 optim.name=muon",
        "optim.name=sgd optim.momentum=0 model.tied=false",
        "optim.name=lion optim.moments=bf16 parallel.dp_shard=4 parallel.zero=1",
        "model.arch=llama model.kv_heads=1 model.ffn=96 numerics.precision=bf16",
    };
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        char words[256];
        snprintf(words, sizeof words, "train.steps=1 %s", recipes[i]);
        struct ls_config config = config_in(*state, words);
        struct ls_layout layout = layout_of(&config);
        struct ls_state_files files;
        struct ls_error error = {0};
        struct ran ran;
        run(&config, &ran);
        assert_int_equal(ls_state_file_bytes(&config, &layout, &files, &error), LS_OK);
        assert_int_equal(files.model, bytes_of(&config, "model.safetensors"));
        assert_int_equal(files.optimizer, bytes_of(&config, "optimizer.safetensors"));
        struct ls_cluster cluster = cluster_of(NULL, NULL);
        assert_true(forecast_of(&config, &cluster).run.save.bytes ==
                    (double)(files.model + files.optimizer));
        ls_cluster_release(&cluster);
        char command[1200];
        snprintf(command, sizeof command, "rm -r %s", config.train.out);
        assert_int_equal(system(command), 0);
    }
}

/* Its broken twin: a recipe of which one key is another has other bytes. */
static void test_another_recipe_has_other_bytes(void **state)
{
    static const char *const others[] = {"optim.moments=bf16", "optim.name=lion", "optim.name=muon",
                                         "model.bias=false", "model.tied=false"};
    struct ls_config config = config_in(*state, "train.steps=1");
    struct ran ran;
    run(&config, &ran);
    int64_t there =
        bytes_of(&config, "model.safetensors") + bytes_of(&config, "optimizer.safetensors");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct ls_config other = config_in(*state, others[i]);
        struct ls_layout layout = layout_of(&other);
        struct ls_state_files files;
        struct ls_error error = {0};
        assert_int_equal(ls_state_file_bytes(&other, &layout, &files, &error), LS_OK);
        assert_int_not_equal(files.model + files.optimizer, there);
    }
}

/* ---- samples -----------------------------------------------------------------------------------
 */

/* Samples that the ranks of each host read, rank by rank: the most of a host. */
static double bytes_counted(const struct ls_config *config, const struct ls_layout *layout,
                            int64_t ranks_of_host)
{
    int64_t dp = layout->size[LS_AXIS_DP_REPLICATE] * layout->size[LS_AXIS_DP_SHARD], most = 0;
    for (int64_t first = 0; first < layout->ranks; first += ranks_of_host) {
        bool reads[64] = {false};
        int64_t rows = 0;
        for (int64_t rank = first; rank < ls_min(first + ranks_of_host, layout->ranks); rank++) {
            int64_t at[LS_AXES];
            ls_layout_coordinates(layout, rank, at);
            int64_t row =
                at[LS_AXIS_DP_REPLICATE] * layout->size[LS_AXIS_DP_SHARD] + at[LS_AXIS_DP_SHARD];
            rows += !reads[row];
            reads[row] = true;
        }
        most = ls_max(most, rows);
    }
    return (double)(most * config->batch.global / dp * (config->data.sequence + 1) * 2);
}

static void test_a_host_reads_what_its_ranks_need(void **state)
{
    (void)state;
    static const char *const layouts[] = {
        "",
        "parallel.tp=2",
        "parallel.dp_shard=2 parallel.dp_replicate=2",
        "parallel.pp=2 parallel.dp_shard=4 parallel.zero=1",
        "parallel.pp=2 parallel.dp_shard=2 parallel.tp=2",
        "parallel.dp_shard=4 parallel.cp=2 numerics.seq_tiles=2 parallel.tp=2 model.context=256",
    };
    static const int64_t hosts[] = {1, 2, 3, 4, 5, 7, 8};
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++)
        for (size_t h = 0; h < sizeof hosts / sizeof *hosts; h++) {
            struct ls_config config = config_of_words(SMALL "%s", layouts[l]);
            struct ls_layout layout = layout_of(&config);
            struct ls_cluster cluster = cluster_of(NULL, NULL);
            cluster.accelerators = hosts[h];
            double counted = bytes_counted(&config, &layout, hosts[h]);
            double bytes = ls_cost_samples(&cluster, &config, &layout, 1).bytes;
            /* Where a host may begin anywhere in a row, it may read one more than it does here. */
            bool even = hosts[h] % 2 == 0 || hosts[h] == 1;
            if (even ? bytes != counted : bytes < counted)
                fail_msg("%s, %ld ranks on a host: %g bytes, counted %g", layouts[l],
                         (long)hosts[h], bytes, counted);
            ls_cluster_release(&cluster);
        }
}

static void test_a_step_waits_for_what_is_longer(void **state)
{
    (void)state;
    struct ls_config config = config_of_words(SMALL);
    struct ls_cluster fast = cluster_of(NULL, NULL), slow = cluster_of("disk.read", "1 kB/s");
    struct ls_cluster none = cluster_of("disk.read", "0");
    struct ls_forecast hidden = forecast_of(&config, &fast), seen = forecast_of(&config, &slow);
    struct ls_forecast unknown = forecast_of(&config, &none);
    assert_true(hidden.samples.bytes == 4 * 17 * 2 && hidden.samples.seconds > 0);
    assert_true(hidden.samples_exposed_s == 0 && hidden.step_s == unknown.step_s);
    assert_true(seen.samples.seconds == 4 * 17 * 2 / 1e3);
    assert_true(seen.step_s == seen.samples.seconds);
    assert_true(fabs(seen.samples_exposed_s + hidden.step_s - seen.step_s) < 1e-12);
    struct ls_reason reason = ls_search_reason(&hidden, &seen);
    assert_non_null(strstr(reason.text, "waiting for samples"));
    ls_cluster_release(&fast);
    ls_cluster_release(&slow);
    ls_cluster_release(&none);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median seconds between the ends of steps, after the first ones. */
static double step_took(const char *directory, int own_ms, int read_ms)
{
    struct ls_config config = config_in(directory, "train.steps=9 parallel.threads=1");
    struct ran ran;
    double between[STEPS];
    update_ms = own_ms;
    sample_ms = read_ms / 4;
    run(&config, &ran);
    update_ms = sample_ms = 0;
    for (int i = 3; i < STEPS; i++)
        between[i - 3] = ran.ended_s[i] - ran.ended_s[i - 1];
    qsort(between, STEPS - 3, sizeof *between, by_value);
    char command[1200];
    snprintf(command, sizeof command, "rm -r %s", config.train.out);
    assert_int_equal(system(command), 0);
    return between[(STEPS - 3) / 2];
}

/* The loader hides what the forecast says it does: a step lasts as long as the longer of both, and
 * not as long as their sum. */
static void test_the_loader_hides_a_step(void **state)
{
    double reads = step_took(*state, 100, 160), computes = step_took(*state, 160, 100);
    if (reads < 0.159 || reads > 0.22)
        fail_msg("100 ms of computing and 160 ms of reading: a step takes %.0f ms", 1e3 * reads);
    if (computes < 0.159 || computes > 0.22)
        fail_msg("160 ms of computing and 100 ms of reading: a step takes %.0f ms", 1e3 * computes);
}

/* ---- laws --------------------------------------------------------------------------------------
 */

/* Whether nothing takes less on b than on a. (Goodput may: where train.save_every counts steps,
 * longer ones are saved less often.) */
static bool never_faster(const struct ls_forecast *a, const struct ls_forecast *b)
{
    return b->step_s >= a->step_s && b->run.save.seconds >= a->run.save.seconds &&
           b->run.days >= a->run.days;
}

static void test_a_slower_disk_is_never_faster(void **state)
{
    (void)state;
    static const char *const changes[][3] = {{"disk.read", "1 GB/s", "2 kB/s"},
                                             {"disk.read", "30 GB/s", "1 GB/s"},
                                             {"disk.write", "500 MB/s", "1 MB/s"},
                                             {"disk.write", "500 MB/s", "499 MB/s"},
                                             {"link.near.bandwidth", "40 GB/s", "1 MB/s"},
                                             {"link.far.latency", "10 us", "10 ms"},
                                             {"accelerator.bandwidth", "200 GB/s", "1 GB/s"}};
    static const char *const layouts[] = {
        "", "parallel.pp=2 parallel.dp_shard=2", "parallel.dp_shard=4 parallel.zero=3",
        "parallel.dp_shard=4 parallel.tp=2 parallel.pp=2 train.save_every=3"};
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
        struct ls_config config = config_of_words(SMALL "%s", layouts[l]);
        int slower = 0;
        for (size_t c = 0; c < sizeof changes / sizeof *changes; c++) {
            struct ls_cluster a = cluster_of(changes[c][0], changes[c][1]);
            struct ls_cluster b = cluster_of(changes[c][0], changes[c][2]);
            struct ls_forecast x = forecast_of(&config, &a), y = forecast_of(&config, &b);
            if (!never_faster(&x, &y))
                fail_msg("%s: %s = %s is faster than %s", layouts[l], changes[c][0], changes[c][2],
                         changes[c][1]);
            slower += !never_faster(&y, &x); /* the twin: seen the wrong way round */
            ls_cluster_release(&a);
            ls_cluster_release(&b);
        }
        assert_true(slower >= 3);
    }
}

/* Goodput is Daly's of the checkpoint's own time, at the interval that the run has, else at the
 * best one; one host writes, so more hosts do not write faster. */
static void test_the_interval_is_the_runs_or_the_best(void **state)
{
    (void)state;
    struct ls_config best = config_of_words(SMALL "parallel.dp_shard=4 parallel.zero=1");
    struct ls_config often =
        config_of_words(SMALL "parallel.dp_shard=4 parallel.zero=1 train.save_every=2");
    struct ls_cluster cluster = cluster_of("disk.write", "100 kB/s");
    double mtbf_s = 3600 / (0.001 * 4);
    struct ls_forecast f = forecast_of(&best, &cluster), g = forecast_of(&often, &cluster);
    assert_true(f.run.save.seconds == f.run.save.hash_s + f.run.save.bytes / 1e5);
    assert_true(f.run.best_every_s == ls_daly_interval(f.run.save.seconds, mtbf_s));
    assert_true(f.run.save_every_s == f.run.best_every_s);
    assert_true(g.run.save_every_s == 2 * g.step_s && g.run.best_every_s == f.run.best_every_s);
    assert_true(g.run.goodput == ls_goodput(2 * g.step_s, g.run.save.seconds, 300, mtbf_s));
    assert_true(f.run.goodput > g.run.goodput);
    struct ls_cluster lasting = cluster_of("failures", "0");
    struct ls_forecast once = forecast_of(&best, &lasting), some = forecast_of(&often, &lasting);
    assert_true(once.run.goodput == 1 && once.run.save_every_s == 0 && once.run.best_every_s == 0);
    assert_true(some.run.goodput ==
                ls_goodput(2 * some.step_s, some.run.save.seconds, 0, INFINITY));
    assert_true(some.run.goodput < 1 && some.run.days > once.run.days);
    ls_cluster_release(&cluster);
    ls_cluster_release(&lasting);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_bytes_are_those_on_the_disk, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_another_recipe_has_other_bytes, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test(test_a_host_reads_what_its_ranks_need),
        cmocka_unit_test(test_a_step_waits_for_what_is_longer),
        cmocka_unit_test_setup_teardown(test_the_loader_hides_a_step, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test(test_a_slower_disk_is_never_faster),
        cmocka_unit_test(test_the_interval_is_the_runs_or_the_best),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
