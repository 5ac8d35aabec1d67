/* Samples and checkpoints in a forecast: bytes are those that a run leaves on the disk, a step
 * waits as the loader makes it wait, and a slower disk never makes anything faster. Where a run is
 * to be slow, updates and reads of samples take what the test says, by clocks that it turns.
 */
#include "../support/await.h"
#include "../support/config_words.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"

#include <lockstep/ckpt/interval.h>
#include <lockstep/planner.h>

#include <glob.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    assert_ok(ls_config_layout(config, 0, &layout, &error), error);
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

/* ---- slow runs ------------------------------------------------------------------------------- */

enum { STEPS = 5, STEP_SAMPLES = 4 };

/* A run of one rank, whose trainer and whose loader have a clock each: updates turn the one, reads
 * the other, and a take turns the trainer's to where the samples are read. The samples of a step
 * are read during the update of the step before it: each waits for the other, so a loader that does
 * not read ahead never comes to an end. The broken twin reads them by the clock after it. */
static struct slow {
    bool on, reads_after;
    int update_ms, sample_ms;
    int64_t trainer_ms, loader_ms;
    int64_t update_ms_at[STEPS];        /* when the samples of the next step may be read */
    int64_t read_ms_at[STEPS];          /* when those of a step were */
    atomic_int updates, samples, takes; /* so far */
} slow;

static void wait_for(atomic_int *count, int least)
{
    while (atomic_load(count) < least)
        await_pause();
}

static void update(void)
{
    int step = atomic_load(&slow.updates);
    slow.update_ms_at[step] = slow.trainer_ms + (slow.reads_after ? slow.update_ms : 0);
    atomic_fetch_add(&slow.updates, 1);
    if (step + 1 < STEPS)
        wait_for(&slow.samples, (step + 2) * STEP_SAMPLES);
    slow.trainer_ms += slow.update_ms;
}

WRAPPED(ls_optimizer_step);
int __wrap_ls_optimizer_step(struct ls_optimizer *optimizer, struct ls_ops *ops,
                             const struct ls_slice *slices, int count,
                             const struct ls_optim_step *step, struct ls_error *error)
{
    if (slow.on)
        update();
    return __real_ls_optimizer_step(optimizer, ops, slices, count, step, error);
}

static void read_sample(void)
{
    int sample = atomic_load(&slow.samples), step = sample / STEP_SAMPLES;
    if (step > 0 && step < STEPS) {
        wait_for(&slow.updates, step);
        slow.loader_ms = ls_max(slow.loader_ms, slow.update_ms_at[step - 1]);
    }
    slow.loader_ms += slow.sample_ms;
    if (step < STEPS)
        slow.read_ms_at[step] = slow.loader_ms;
    atomic_fetch_add(&slow.samples, 1);
}

WRAPPED(ls_token_store_read);
int __wrap_ls_token_store_read(const struct ls_token_store *store, int64_t first, int64_t count,
                               int64_t vocabulary, int32_t *ids, struct ls_error *error)
{
    if (slow.on && count > 1) /* the other read of a sample is its last target */
        read_sample();
    return __real_ls_token_store_read(store, first, count, vocabulary, ids, error);
}

WRAPPED(ls_loader_take);
int __wrap_ls_loader_take(struct ls_loader *loader, const int32_t **inputs, const int32_t **targets,
                          double *wait_s, struct ls_error *error)
{
    int status = __real_ls_loader_take(loader, inputs, targets, wait_s, error);
    int step = slow.on ? atomic_fetch_add(&slow.takes, 1) : STEPS;
    if (step < STEPS)
        slow.trainer_ms = ls_max(slow.trainer_ms, slow.read_ms_at[step]);
    return status;
}

struct ran {
    const struct ls_config *config;
    int64_t ended_ms[STEPS];
    int steps;
};

static void on_stepped(void *user, const struct ls_step_report *report)
{
    struct ran *ran = user;
    if (ran->steps < STEPS)
        ran->ended_ms[ran->steps++] = slow.trainer_ms;
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
    assert_ok(ls_world_run((int)ls_config_ranks(config), body, ran, &error), error);
}

/* ---- checkpoints on the disk ----------------------------------------------------------------- */

/* Bytes of a part's tensors: of its files, what is behind their headers. */
static int64_t bytes_of(const struct ls_config *config, const char *part)
{
    char pattern[1200];
    glob_t found;
    int64_t sum = 0;
    snprintf(pattern, sizeof pattern, "%s/checkpoints/step-%08ld/shard-*-%s-*.safetensors",
             config->train.out, 1L, part);
    if (glob(pattern, 0, NULL, &found))
        return 0;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        size_t size;
        uint64_t header;
        char *bytes = scratch_read(found.gl_pathv[i], &size);
        memcpy(&header, bytes, sizeof header);
        sum += (int64_t)size - 8 - (int64_t)header;
        free(bytes);
    }
    globfree(&found);
    return sum;
}

CASE_WITH(test_bytes_are_those_on_the_disk, scratch_setup, scratch_teardown)
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
        assert_int_equal(files.model, bytes_of(&config, "model"));
        assert_int_equal(files.optimizer, bytes_of(&config, "optimizer"));
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
CASE_WITH(test_another_recipe_has_other_bytes, scratch_setup, scratch_teardown)
{
    static const char *const others[] = {"optim.moments=bf16", "optim.name=lion", "optim.name=muon",
                                         "model.bias=false", "model.tied=false"};
    struct ls_config config = config_in(*state, "train.steps=1");
    struct ran ran;
    run(&config, &ran);
    int64_t there = bytes_of(&config, "model") + bytes_of(&config, "optimizer");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct ls_config other = config_in(*state, others[i]);
        struct ls_layout layout = layout_of(&other);
        struct ls_state_files files;
        struct ls_error error = {0};
        assert_int_equal(ls_state_file_bytes(&other, &layout, &files, &error), LS_OK);
        assert_int_not_equal(files.model + files.optimizer, there);
    }
}

/* ---- samples --------------------------------------------------------------------------------- */

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

CASE(test_a_host_reads_what_its_ranks_need)
{
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

CASE(test_a_step_waits_for_what_is_longer)
{
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

#define BLEND "[{\"source\":\"a,s3://bucket/b\",\"weight\":1},{\"source\":\"c\",\"weight\":3}"

/* Nobody asks the servers: they are named after the configuration was resolved. */
static struct ls_config config_with(const char *train, const char *blend)
{
    struct ls_config config = config_of_words(SMALL);
    strcpy(config.data.train, train);
    strcpy(config.data.blend, blend);
    return config;
}

/* Shares of a blend: of the stage that has most from elsewhere. */
CASE(test_what_lies_elsewhere)
{
    static const struct {
        const char *train, *blend;
        double share;
    } cases[] = {
        {"", "", 0},
        {"a,b/c", "", 0},
        {"s3://bucket/a", "", 1},
        {"a,u16:http://host/b", "", 1},
        {"", BLEND "]", 0.25},
        {"", BLEND ",{\"source\":\"c\",\"weight\":1,\"from_step\":5}]", 0.5},
        {"", BLEND ",{\"source\":\"https://host/d\",\"weight\":4,\"from_step\":9}]", 0.625},
        {"", BLEND ",{\"source\":\"a,s3://bucket/b\",\"weight\":0,\"from_step\":9}]", 0.25},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_config config = config_with(cases[i].train, cases[i].blend);
        if (ls_config_elsewhere(&config) != cases[i].share)
            fail_msg("%s%s: %g, expected %g", cases[i].train, cases[i].blend,
                     ls_config_elsewhere(&config), cases[i].share);
    }
}

/* The disk's samples and the network's come at once; the slower of them holds a step up. */
CASE(test_a_step_waits_for_the_storage)
{
    enum { ALL = 4 * 17 * 2 };
    struct ls_config half = config_with("", "1 a 1 s3://bucket/b");
    struct ls_config whole = config_of_words(SMALL "parallel.dp=2 data.shuffle=false");
    strcpy(whole.data.train, "s3://bucket/b");
    struct ls_cluster fast = cluster_of("storage.host", "1 TB/s");
    struct ls_cluster slow = cluster_of("storage.host", "100 B/s");
    struct ls_forecast hidden = forecast_of(&half, &fast), seen = forecast_of(&half, &slow);
    assert_true(hidden.samples_exposed_s == 0);
    assert_true(hidden.samples.elsewhere == ALL / 2 && hidden.samples.hosts == 1);
    assert_true(hidden.samples.cold_bytes == 2 * (4 << 20));
    assert_true(seen.samples.seconds == ALL / 2 / 100. && seen.step_s == seen.samples.seconds);
    assert_true(fabs(seen.samples_exposed_s + hidden.step_s - seen.step_s) < 1e-12);
    /* Two hosts of one rank each read a half, and share what all of them get. */
    slow.hosts = 2;
    slow.accelerators = 1;
    const struct ls_layout layout = layout_of(&whole);
    struct ls_samples_cost cost = ls_cost_samples(&slow, &whole, &layout, 1);
    assert_true(cost.elsewhere == ALL / 2 && cost.hosts == 2 && cost.cold_bytes == ALL / 2);
    assert_true(cost.seconds == ALL / 2 / 100.);
    slow.storage_bytes_per_s = 100;
    assert_true(ls_cost_samples(&slow, &whole, &layout, 1).seconds == ALL / 100.);
    /* Nobody reads at a rate that is not known. */
    slow.storage_bytes_per_s = slow.storage_host_bytes_per_s = 0;
    assert_true(ls_cost_samples(&slow, &whole, &layout, 1).seconds == 0);
    ls_cluster_release(&fast);
    ls_cluster_release(&slow);
}

/* Milliseconds between the ends of steps, from one to the next the same. */
static int64_t step_took(const char *directory, int own_ms, int read_ms, bool reads_after)
{
    struct ls_config config = config_in(directory, "train.steps=5 parallel.threads=1");
    struct ran ran;
    slow = (struct slow){.on = true,
                         .reads_after = reads_after,
                         .update_ms = own_ms,
                         .sample_ms = read_ms / STEP_SAMPLES};
    run(&config, &ran);
    slow.on = false;
    const int64_t took_ms = ran.ended_ms[1] - ran.ended_ms[0];
    for (int i = 2; i < STEPS; i++)
        assert_int_equal(ran.ended_ms[i] - ran.ended_ms[i - 1], took_ms);
    char command[1200];
    snprintf(command, sizeof command, "rm -r %s", config.train.out);
    assert_int_equal(system(command), 0);
    return took_ms;
}

/* The loader hides what the forecast says it does: a step lasts as long as the longer of both, and
 * not as long as their sum. */
CASE_WITH(test_the_loader_hides_a_step, scratch_setup, scratch_teardown)
{
    assert_int_equal(step_took(*state, 100, 160, false), 160);
    assert_int_equal(step_took(*state, 160, 100, false), 160);
    /* The broken twin. */
    assert_int_equal(step_took(*state, 100, 160, true), 260);
}

/* ---- laws ------------------------------------------------------------------------------------ */

/* Whether nothing takes less on b than on a. (Goodput may: where train.save_every counts steps,
 * longer ones are saved less often.) */
static bool never_faster(const struct ls_forecast *a, const struct ls_forecast *b)
{
    return b->step_s >= a->step_s && b->run.save.seconds >= a->run.save.seconds &&
           b->run.days >= a->run.days;
}

CASE(test_a_slower_disk_is_never_faster)
{
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

/* A stage's ranks write equal shares, and hosts write beside each other. */
CASE(test_hosts_write_together)
{
    static const struct {
        const char *layout, *accelerators;
        double part; /* of the bytes, that a host writes */
    } cases[] = {
        {"parallel.dp_shard=4 parallel.zero=1", "8", 1},
        {"parallel.dp_shard=4 parallel.zero=1", "2", 0.5},
        {"parallel.dp=4", "1", 0.25},
        {"parallel.tp=2 parallel.dp_shard=2 parallel.zero=3", "2", 0.5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_config config = config_of_words(SMALL "%s", cases[i].layout);
        struct ls_cluster cluster = cluster_of("disk.write", "100 kB/s");
        assert_int_equal(ls_cluster_set(&cluster, "accelerators", cases[i].accelerators, NULL),
                         LS_OK);
        struct ls_forecast f = forecast_of(&config, &cluster);
        assert_true(fabs(f.run.save.write_s - cases[i].part * f.run.save.bytes / 1e5) <
                    1e-9 * f.run.save.write_s);
        ls_cluster_release(&cluster);
    }
}

/* Goodput is Daly's of the checkpoint's own time, at the interval that the run has, else at the
 * best one. */
CASE(test_the_interval_is_the_runs_or_the_best)
{
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

/* Goodput with snapshots is that of what steps wait for, at their interval; copies on other hosts
 * are sent by all ranks of a host at once. Without them a lost host goes back to a checkpoint. */
CASE(test_snapshots)
{
    static const char keys[] = SMALL "parallel.dp_shard=4 parallel.zero=1 train.save_every=50 ";
    struct ls_config often = config_of_words("%ssnapshot.every=2", keys);
    struct ls_config automatic = config_of_words("%ssnapshot.every=auto", keys);
    struct ls_config alone = config_of_words("%ssnapshot.every=2 snapshot.replicas=0", keys);
    struct ls_config none = config_of_words("%s", keys);
    struct ls_cluster one = cluster_of("disk.write", "100 kB/s"),
                      two = cluster_of("disk.write", "100 kB/s");
    double mtbf_s = 3600 / (0.001 * 4);
    assert_int_equal(ls_cluster_set(&two, "accelerators", "2", NULL), LS_OK);
    struct ls_forecast f = forecast_of(&often, &one), g = forecast_of(&automatic, &one);
    const struct ls_snapshot_cost *cost = &f.run.snapshot;
    assert_true(cost->send_s == 0 && cost->copy_s == f.run.save.copy_s);
    assert_true(cost->seconds == fmax(f.run.save.hash_s + cost->copy_s - f.step_s, 0));
    assert_true(f.run.snapshot_every_s == 2 * f.step_s);
    assert_true(f.run.goodput == ls_goodput(2 * f.step_s, cost->seconds, 300, mtbf_s));
    cost = &g.run.snapshot;
    assert_true(g.run.snapshot_every_s ==
                fmax(ls_snapshot_interval(cost->seconds + g.run.save.hash_s + cost->copy_s, mtbf_s),
                     g.step_s));
    assert_true(f.run.goodput > forecast_of(&none, &one).run.goodput);

    struct ls_forecast copied = forecast_of(&often, &two), lost = forecast_of(&alone, &two);
    assert_true(copied.run.snapshot.send_s > 0 && lost.run.snapshot.send_s == 0);
    assert_true(copied.run.snapshot.seconds > lost.run.snapshot.seconds);
    assert_true(lost.run.goodput == forecast_of(&none, &two).run.goodput);
    assert_true(copied.run.goodput > lost.run.goodput);
    ls_cluster_release(&one);
    ls_cluster_release(&two);
}

SUITE_MAIN(NULL, NULL)
