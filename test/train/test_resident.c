/* Resident memory beside the plan: what more layers add to the most that the process has in a step
 * is what they add to the plan, within 2 percent; a whole run takes at most what the fit says
 * beside the plan; and a save takes little more than a step, however large a tensor is. A program
 * of its own, so that no other test's memory is in the way. */
/* check: disk */
#include "../support/config_words.h"
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "tokens.h"

#include <lockstep/compare.h>
#include <lockstep/train.h>
#include <lockstep/train/fit.h>

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Bytes of a line of /proc/self/status. */
static double status_bytes(const char *name)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    double bytes = 0;
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name)))
            bytes = strtod(line + strlen(name), NULL) * 1024;
    fclose(file);
    assert_true(bytes > 0);
    return bytes;
}

/* VmHWM becomes what is resident now. */
static void peak_reset(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (!file)
        skip();
    fputs("5", file);
    if (fclose(file))
        skip();
}

static struct ls_config config_of(const char *directory, const char *keys)
{
    return config_of_words(
        "model.vocab=8192 data.sequence=256 model.context=256 %s data.train=u16:%s/tokens.bin",
        keys, directory);
}

static int steps_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct ls_trainer *t = NULL;
    struct ls_step_report report;
    int status = ls_trainer_new(user, world, NULL, &t, error);
    if (!status)
        status = ls_trainer_step(t, &report, error);
    /* The most is there when all ranks have used theirs: none gives back before. */
    if (!status)
        status = ls_barrier(world, error);
    ls_trainer_free(t);
    return status;
}

static void train(struct ls_config *config)
{
    struct ls_error error = {0};
    assert_ok(ls_world_run((int)ls_config_ranks(config), steps_body, config, &error), error);
}

static double planned(const struct ls_config *config)
{
    static struct ls_layout layout;
    struct ls_error error = {0};
    double total = 0;
    assert_int_equal(ls_config_layout(config, 0, &layout, &error), LS_OK);
    for (int64_t rank = 0; rank < layout.ranks; rank++) {
        struct ls_memory_plan plan;
        assert_int_equal(ls_plan_rank(config, &layout, rank, &plan, &error), LS_OK);
        total += (double)plan.total;
    }
    return total;
}

/* How much of its buffers a thread of several touches is by chance. */
#define ALONE "parallel.threads=1"

/* What more layers add to the plan and to what is resident. */
struct growth {
    double planned, resident;
    double beside; /* what is resident beside the plan of the smaller model */
};

/* As wide, and with as many ranks and threads: so it takes as much of libraries, stacks, records of
 * operations, and of the workspace of products, which grows with the width. With fewer layers than
 * four ZeRO 3 would gather fewer at once. */
static struct growth growth_of(const char *directory, const char *words)
{
    char keys[2][400];
    snprintf(keys[0], sizeof keys[0], "%s %s model.layers=4", words, ALONE);
    snprintf(keys[1], sizeof keys[1], "%s %s", words, ALONE);
    double plans[2], peaks[2];
    for (int big = 0; big < 2; big++) {
        struct ls_config config = config_of(directory, keys[big]);
        plans[big] = planned(&config);
        peak_reset();
        train(&config);
        peaks[big] = status_bytes("VmHWM:");
    }
    struct growth out = {plans[1] - plans[0], peaks[1] - peaks[0], peaks[0] - plans[0]};
    printf("%.1f MiB more planned, %.4f of it resident; %.1f MiB beside the smaller plan\n",
           out.planned / 0x1p20, out.resident / out.planned, out.beside / 0x1p20);
    return out;
}

static bool growth_is_planned(struct growth g)
{
    return g.beside >= 0 && g.resident >= 0.98 * g.planned && g.resident <= 1.02 * g.planned;
}

CASE_WITH(test_resident_is_planned, tokens_setup, scratch_teardown)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    skip(); /* their shadow is resident too */
#endif
    static const char *const cases[] = {
        "model.vocab=1024 model.layers=12 model.channels=256 model.heads=4 batch.global=4 "
        "batch.micro=4",
        "model.layers=12 model.channels=256 model.heads=4 batch.global=8 batch.micro=2",
        "model.layers=12 model.channels=256 model.heads=4 batch.global=8 batch.micro=4 "
        "numerics.precision=fp32 optim.name=lion",
        "model.arch=llama model.layers=12 model.channels=256 model.heads=4 model.kv_heads=2 "
        "batch.global=8 batch.micro=4 parallel.dp_shard=2 parallel.zero=1",
        "model.layers=12 model.channels=256 model.heads=4 batch.global=8 batch.micro=2 "
        "parallel.dp_shard=2 parallel.zero=3",
        "model.layers=12 model.channels=256 model.heads=4 batch.global=8 batch.micro=2 "
        "parallel.tp=2",
        "model.layers=12 model.channels=256 model.heads=4 batch.global=4 batch.micro=1 "
        "parallel.pp=2 parallel.schedule=zb-h1",
    };
    /* What is freed goes back to the system: otherwise a run may find what another one freed, or
     * not, by which thread's arena it lies in. */
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    mallopt(M_TRIM_THRESHOLD, 128 << 10);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i += check_every(7, 7)) {
        /* What a plan forgets is in every run. What the system maps for a reason of its own (it
         * was 4 MiB once in hundreds of runs) is not in three. */
        struct growth g = growth_of(*state, cases[i]);
        for (int again = 0; again < 2 && !growth_is_planned(g); again++)
            g = growth_of(*state, cases[i]);
        if (!growth_is_planned(g))
            fail_msg("%s\n%.2f MiB more planned than with 4 layers, %.2f MiB more resident, "
                     "three times",
                     cases[i], g.planned / 0x1p20, g.resident / 0x1p20);
    }
}

static int run_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    return ls_run(user, world, NULL, NULL, error);
}

/* What the child process of a run tells: the run's failure, and the most that was resident. */
struct told {
    int status;
    struct ls_error error;
    double peak;
};

/* A process of its own, in which no earlier run has left anything. Nothing before it may have begun
 * threads of OpenMP: they are not in a child. */
static struct told run_alone(struct ls_config *config, int ranks)
{
    struct told *told =
        mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(told != MAP_FAILED);
    pid_t child = fork();
    if (child == 0) {
        told->status = ls_world_run(ranks, run_body, config, &told->error);
        told->peak = status_bytes("VmHWM:");
        _exit(0);
    }
    int ended;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(ended, 0);
    struct told out = *told;
    munmap(told, sizeof *told);
    return out;
}

/* Steps, evaluations and checkpoints, and the measuring before them, take at most what the fit
 * says, and more than the plan alone. The copy of a checkpoint that is written beside steps is in
 * no map of the process (test_async_saves.c measures it). */
static void run_check(struct ls_config *config)
{
    static struct ls_layout layout;
    struct ls_error error = {0};
    struct ls_memory_fit fit;
    char keys[400];
    ls_config_layout_text(config, NULL, keys, sizeof keys);
    assert_int_equal(ls_config_layout(config, 0, &layout, &error), LS_OK);
    assert_int_equal(ls_memory_fit(config, &layout, NULL, &fit, &error), LS_OK);
    struct told told = run_alone(config, (int)layout.ranks);
    if (told.status)
        fail_msg("%s: %s", keys, told.error.text);
    double peak = told.peak / 0x1p20, plan = (double)(fit.bytes - fit.saves) / 0x1p20,
           beside = (double)fit.beside / 0x1p20;
    printf("%.1f MiB planned, %.1f beside it, of at most %.1f: %s\n", plan, peak - plan, beside,
           keys);
    if (peak < plan || peak > plan + beside)
        fail_msg("%s\nresident %.1f MiB, planned %.1f and at most %.1f beside it", keys, peak, plan,
                 beside);
}

CASE_WITH(test_a_run_takes_what_the_fit_says, tokens_setup, scratch_teardown)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    skip(); /* their shadow is resident too */
#endif
    static const char *const recipes[] = {
        "model.layers=4 model.channels=64 model.heads=4 batch.global=8",
        "model.layers=2 model.channels=128 model.heads=4 batch.global=16 numerics.precision=fp32",
        ("model.arch=llama model.layers=4 model.channels=64 model.heads=4 model.kv_heads=2 "
         "batch.global=8 optim.name=muon"),
    };
    /* One block of each tier, of which a single buffer is ever in use. */
    static const char few[] = "parallel.dp_replicate=4 memory.offload.gradients=host "
                              "memory.offload.gradients_ratio=0.5 memory.offload.parameters=host";
    enum { FEW = 1, RUNS = 48 };
    for (int i = 0; i < RUNS; i += i < 2 ? 1 : check_every(23, 23)) {
        char keys[600];
        snprintf(keys, sizeof keys,
                 "%s train.steps=2 train.save_every=1 eval.every=1 data.valid=u16:%s/tokens.bin "
                 "data.sequence=32 model.vocab=50 train.out=%s/run%d %s",
                 recipes[i % 3], (const char *)*state, (const char *)*state, i,
                 i == FEW ? few : "");
        struct ls_config config = config_of(*state, keys), drawn;
        const struct ls_draw draw = {
            .seed = 17, .index = (uint64_t)i, .ranks_max = 8, .folder = *state};
        run_check(i > 2 && ls_draw_layout(&config, &draw, &drawn) ? &drawn : &config);
    }
}

/* The most while a save goes on, and before it. */
struct save_peaks {
    struct ls_config config;
    double step, save;
};

static int save_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct save_peaks *peaks = user;
    struct ls_trainer *t = NULL;
    struct ls_step_report report;
    int status = ls_trainer_new(&peaks->config, world, NULL, &t, error);
    if (!status)
        status = ls_trainer_step(t, &report, error);
    if (!status)
        status = ls_barrier(world, error);
    if (ls_comm_rank(world) == 0)
        peaks->step = status_bytes("VmHWM:");
    if (!status)
        status = ls_trainer_save(t, error);
    if (ls_comm_rank(world) == 0)
        peaks->save = status_bytes("VmHWM:");
    ls_trainer_free(t);
    return status;
}

/* A table of 120,000 x 128 is 59 MiB in fp32. It lies on the device, in bf16 alone, in a tier. */
CASE_WITH(test_a_save_takes_no_whole_tensor, tokens_setup, scratch_teardown)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    skip(); /* their shadow is resident too */
#endif
    static const char *const cases[] = {
        "parallel.dp_shard=2 parallel.zero=1",
        "parallel.tp=2 train.frozen=wte.*",
        "memory.offload.optimizer=host",
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i += check_every(3, 3)) {
        char keys[400];
        struct ls_error error = {0};
        snprintf(keys, sizeof keys,
                 "%s model.vocab=120000 model.layers=1 model.channels=128 model.heads=2 "
                 "data.sequence=32 batch.global=2 train.out=%s/run",
                 cases[i], (const char *)*state);
        struct save_peaks peaks = {.config = config_of(*state, keys)};
        peak_reset();
        if (ls_world_run((int)ls_config_ranks(&peaks.config), save_body, &peaks, &error))
            fail_msg("%s: %s", cases[i], error.text);
        printf("%.1f MiB in a step, %.1f in a save\n", peaks.step / 0x1p20, peaks.save / 0x1p20);
        if (peaks.save > peaks.step + 16 * 0x1p20)
            fail_msg("%s: %.1f MiB in a step, %.1f in a save", cases[i], peaks.step / 0x1p20,
                     peaks.save / 0x1p20);
    }
}

/* A page that is touched is resident, and not what lies around it where the system has a huge page
 * to give just then. */
static int huge_pages_off(void **state)
{
    (void)state;
    return prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
}

SUITE_MAIN(huge_pages_off, NULL)
