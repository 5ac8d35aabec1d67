/* The promise: for one recipe, every layout gives one sequence of losses and one final hash.
 *
 *   test_invariance [N [SEED]]     N layouts drawn at random, over four recipes
 *   test_invariance --child ...    one layout under mpirun, started by the above
 *
 * Four recipes (a small GPT-2 and a small Llama, each in fp32 and bf16) are trained for a few steps
 * on one rank; then every drawn layout (dp, micro-batch, threads, transport, an interruption with
 * resumption, bucket size) must repeat the losses of every step and the hash bit for bit. A
 * mismatch is traced: both runs are repeated up to the first step that differs, and the first
 * tensor (in the order of the backward) whose gradient differs is named.
 *
 * Broken twins prove that the comparison can fail: replicas that add a bucket in another order, a
 * rank whose leaves are shifted by one, and a rank with a flipped bit. */
#include "train/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = 4, RECIPES = 4, DEFAULT_N = 48, TOKENS = 20000 };

static const char *const common_keys[] = {
    "data.sequence=32",      "batch.global=16",  "train.steps=4",        "optim.decay_steps=4",
    "optim.lr=2e-3",         "optim.clip=0.5",   "optim.warmup_steps=2", "numerics.tp_tiles=2",
    "log.tensorboard=false", "log.progress=off", "model.vocab=300",      "model.layers=2",
    "model.channels=128",    "model.heads=4",    "model.context=32",
};
static const char *const recipe_keys[RECIPES][6] = {
    {"model.arch=gpt2", "numerics.precision=fp32", "model.dropout=0.1", NULL},
    {"model.arch=gpt2", "numerics.precision=bf16", "numerics.leaf_sequences=2", NULL},
    {"model.arch=llama", "numerics.precision=fp32", "model.kv_heads=2", "model.ffn=256", NULL},
    {"model.arch=llama", "numerics.precision=bf16", "model.kv_heads=2", "model.ffn=256",
     "model.tied=true", NULL},
};
static const char *const recipe_names[RECIPES] = {"gpt2 fp32", "gpt2 bf16", "llama fp32",
                                                  "llama bf16"};

struct layout {
    int dp, micro, threads, bucket_mb;
    int interrupt; /* save and begin anew after this step; 0: no */
    bool mpi;
};

struct result {
    uint32_t bits[STEPS];
    char hash[33];
};

/* What is broken on purpose. */
enum twin { TWIN_NONE, TWIN_BUCKET_ORDER, TWIN_SHIFTED_LEAF, TWIN_FLIPPED_BIT };

static char folder[256];    /* of this process's files */
static const char *program; /* argv[0] */

static void die(const char *what, const struct ls_error *error)
{
    fprintf(stderr, "%s: %s\n", what, error->text);
    exit(1);
}

static void data_make(void)
{
    char path[512];
    snprintf(path, sizeof path, "%s/tokens.bin", folder);
    FILE *file = fopen(path, "wb");
    struct ls_philox_key key = ls_philox_key_of(5, "tokens");
    for (uint32_t i = 0; i < TOKENS && file; i++) {
        uint32_t counter[4] = {i, 0, 0, 0}, bits[4];
        ls_philox(key, counter, bits);
        /* A skewed distribution, so that there is something to learn. */
        uint16_t token = (uint16_t)((bits[0] % 300) * (bits[1] % 300) / 300);
        fwrite(&token, sizeof token, 1, file);
    }
    if (!file || fclose(file))
        die("tokens", &(struct ls_error){.text = "cannot write the token file"});
}

static void config_make(struct ls_config *config, int recipe, const struct layout *layout,
                        const char *out)
{
    struct ls_error error = {0};
    char keys[8][600];
    ls_config_defaults(config);
    for (size_t i = 0; i < sizeof common_keys / sizeof *common_keys; i++)
        if (ls_config_set(config, common_keys[i], &error))
            die("recipe", &error);
    for (int i = 0; recipe_keys[recipe][i]; i++)
        if (ls_config_set(config, recipe_keys[recipe][i], &error))
            die("recipe", &error);
    int count = 0;
    snprintf(keys[count++], sizeof keys[0], "data.train=u16:%s/tokens.bin", folder);
    snprintf(keys[count++], sizeof keys[0], "train.out=%s/%s", folder, out);
    snprintf(keys[count++], sizeof keys[0], "parallel.dp=%d", layout->dp);
    snprintf(keys[count++], sizeof keys[0], "batch.micro=%d", layout->micro);
    snprintf(keys[count++], sizeof keys[0], "parallel.threads=%d", layout->threads);
    snprintf(keys[count++], sizeof keys[0], "comm.bucket_mb=%d", layout->bucket_mb);
    for (int i = 0; i < count; i++)
        if (ls_config_set(config, keys[i], &error))
            die("layout", &error);
    if (ls_train_resolve(config, &error))
        die("recipe", &error);
}

/* ---- one run --------------------------------------------------------------------------------- */

struct job {
    const struct ls_config *config;
    const struct layout *layout;
    struct result *result;
    enum twin twin;
    int steps;       /* to stop after; STEPS unless a mismatch is traced */
    float *gradient; /* of the last step, when traced: [gradient_elements], by rank 0 */
};

static int twin_break(struct ls_trainer *t, struct ls_comm *world, enum twin twin,
                      struct ls_comm **permuted, struct ls_error *error)
{
    int rank = ls_comm_rank(world), size = ls_comm_size(world);
    if (twin == TWIN_SHIFTED_LEAF && rank == size - 1)
        t->samples++;
    if (twin == TWIN_FLIPPED_BIT && rank == size - 1) {
        uint32_t word;
        memcpy(&word, &t->memory.weights.master[17], sizeof word);
        word ^= 1;
        memcpy(&t->memory.weights.master[17], &word, sizeof word);
    }
    if (twin != TWIN_BUCKET_ORDER)
        return LS_OK;
    /* The same ranks in another order: 0 2 1 3, whose tree pairs other leaves. */
    int key = rank == 1 ? 2 : rank == 2 ? 1 : rank;
    int status = ls_comm_split(world, 0, key, permuted, error);
    if (status)
        return status;
    ls_dp_free(t->dp);
    return ls_dp_new(*permuted, t->params.gradient_elements, t->config.comm.bucket_mb << 20, &t->dp,
                     error);
}

static int steps_run(struct job *job, struct ls_comm *world, struct ls_trainer *t, int until,
                     struct ls_error *error)
{
    while (ls_trainer_steps(t) < until) {
        struct ls_step_report report;
        int status = ls_trainer_step(t, &report, error);
        if (status)
            return status;
        if (ls_comm_rank(world) == 0)
            job->result->bits[report.step - 1] = report.loss_bits;
    }
    return LS_OK;
}

static int job_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    struct ls_trainer *t = NULL;
    struct ls_comm *permuted = NULL;
    bool resumed;
    int status = ls_trainer_new(job->config, world, NULL, &t, error);
    if (!status && job->twin)
        status = twin_break(t, world, job->twin, &permuted, error);
    if (!status && job->layout->interrupt && job->layout->interrupt < job->steps) {
        status = steps_run(job, world, t, job->layout->interrupt, error);
        if (!status)
            status = ls_trainer_save(t, error);
        ls_trainer_free(t);
        t = NULL;
        if (!status)
            status = ls_trainer_new(job->config, world, NULL, &t, error);
        if (!status)
            status = ls_trainer_resume(t, &resumed, error);
        if (!status && !resumed)
            status = ls_error_set(error, LS_ECKPT, "nothing to resume from");
    }
    if (!status)
        status = steps_run(job, world, t, job->steps, error);
    struct ls_digest digest = {0, 0};
    if (!status)
        status = ls_trainer_hash(t, &digest, error);
    if (!status && ls_comm_rank(world) == 0) {
        ls_digest_hex(&digest, job->result->hash);
        if (job->gradient)
            memcpy(job->gradient, ls_trainer_gradient(t),
                   (size_t)ls_trainer_params(t)->gradient_elements * sizeof(float));
    }
    ls_trainer_free(t);
    ls_comm_free(permuted);
    return status;
}

static int run_threads(int recipe, const struct layout *layout, enum twin twin, int steps,
                       float *gradient, struct result *result, struct ls_error *error)
{
    static int number;
    struct ls_config config;
    char out[64];
    snprintf(out, sizeof out, "run-%d", number++);
    config_make(&config, recipe, layout, out);
    if (layout->interrupt && !ls_config_set(&config, "train.resume=auto", error))
        ls_train_resolve(&config, error);
    struct job job = {&config, layout, result, twin, steps, gradient};
    return ls_world_run(layout->dp, job_body, &job, error);
}

/* ---- under MPI ------------------------------------------------------------------------------- */

/* A child process of mpirun: the layout from the arguments, the result into a file. */
static int child_main(char **argv)
{
    struct ls_error error = {0};
    struct result result = {{0}, ""};
    int recipe = atoi(argv[0]);
    struct layout layout = {.dp = atoi(argv[1]),
                            .micro = atoi(argv[2]),
                            .threads = atoi(argv[3]),
                            .bucket_mb = atoi(argv[4]),
                            .interrupt = atoi(argv[5])};
    snprintf(folder, sizeof folder, "%s", argv[6]);
    struct ls_config config;
    config_make(&config, recipe, &layout, argv[7]);
    if (layout.interrupt && !ls_config_set(&config, "train.resume=auto", &error))
        ls_train_resolve(&config, &error);
    struct job job = {&config, &layout, &result, TWIN_NONE, STEPS, NULL};
    struct ls_comm *world;
    if (ls_comm_mpi_new(&world, &error) || job_body(world, &job, &error))
        die("mpi child", &error);
    char path[600];
    snprintf(path, sizeof path, "%s/%s.result", folder, argv[7]);
    FILE *file = ls_comm_rank(world) == 0 ? fopen(path, "wb") : NULL;
    if (file) {
        fwrite(&result, sizeof result, 1, file);
        fclose(file);
    }
    ls_comm_free(world);
    ls_mpi_finish();
    return 0;
}

static bool mpi_available(void)
{
#if defined(LS_WITH_MPI)
    return system("command -v mpirun > /dev/null 2>&1") == 0;
#else
    return false;
#endif
}

static int run_mpi(int recipe, const struct layout *layout, struct result *result,
                   struct ls_error *error)
{
    static int number;
    char command[2048], path[600];
    number++;
    snprintf(command, sizeof command,
             "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
             "timeout 120 mpirun --oversubscribe -n %d '%s' --child %d %d %d %d %d %d '%s' mpi-%d",
             layout->dp, program, recipe, layout->dp, layout->micro, layout->threads,
             layout->bucket_mb, layout->interrupt, folder, number);
    snprintf(path, sizeof path, "%s/mpi-%d.result", folder, number);
    int code = system(command);
    FILE *file = fopen(path, "rb");
    bool read = file && fread(result, sizeof *result, 1, file) == 1;
    if (file)
        fclose(file);
    if (code == 0 && read)
        return LS_OK;
    return ls_error_set(error, LS_ECOMM, "mpirun ended with %d", code);
}

/* ---- comparison ------------------------------------------------------------------------------ */

static void layout_text(const struct layout *l, char *text, size_t bytes)
{
    snprintf(text, bytes, "dp %d, micro %d, threads %d, %s, bucket %d MiB, interrupted after %d",
             l->dp, l->micro, l->threads, l->mpi ? "mpi" : "thread", l->bucket_mb, l->interrupt);
}

/* First step that differs, STEPS where only the hash does, -1 where all is equal. */
static int first_difference(const struct result *a, const struct result *b)
{
    for (int i = 0; i < STEPS; i++)
        if (a->bits[i] != b->bits[i])
            return i;
    return strcmp(a->hash, b->hash) ? STEPS : -1;
}

/* Repeats both layouts up to the step before the first differing loss (whose update made it differ;
 * the step itself when it is the first) and names the first tensor, in the order of the backward,
 * whose gradient differs. */
static void trace_difference(int recipe, const struct layout *reference,
                             const struct layout *layout, int step)
{
    struct ls_config config;
    struct ls_params params;
    struct ls_error error = {0};
    config_make(&config, recipe, reference, "trace");
    struct ls_numerics numerics = numerics_of(&config);
    if (ls_params_init(&params, &config.model, &numerics, &error))
        die("trace", &error);
    size_t count = (size_t)params.gradient_elements;
    float *a = calloc(count, sizeof *a), *b = calloc(count, sizeof *b);
    struct result ignored;
    struct layout whole = *layout;
    whole.interrupt = 0;
    whole.mpi = false;
    int steps = step > 0 ? step : 1;
    const char *found = "no gradient of a rerun over threads differs";
    if (a && b && !run_threads(recipe, reference, TWIN_NONE, steps, a, &ignored, &error) &&
        !run_threads(recipe, &whole, TWIN_NONE, steps, b, &ignored, &error))
        for (int i = 0; i < params.count; i++) { /* the last hit is the first in the backward */
            const struct ls_param *p = &params.list[i];
            size_t at = (size_t)(params.tied_elements + p->offset);
            if (memcmp(a + at, b + at, (size_t)(p->rows * p->cols) * sizeof *a))
                found = p->name;
        }
    printf("  first tensor: %s (gradient of step %d)\n", found, steps);
    free(a);
    free(b);
    ls_params_release(&params);
}

/* ---- drawing layouts ------------------------------------------------------------------------- */

static uint32_t draw(uint64_t seed, uint32_t index, uint32_t what, uint32_t below)
{
    uint32_t bits[4];
    ls_philox(ls_philox_key_of(seed, "layouts"), (uint32_t[4]){index, what, 0, 0}, bits);
    return bits[0] % below;
}

static struct layout layout_draw(uint64_t seed, uint32_t index, int recipe, bool mpi)
{
    int leaf = recipe == 1 ? 2 : 1; /* numerics.leaf_sequences */
    struct layout l = {.mpi = mpi && draw(seed, index, 0, 4) == 0};
    l.dp = 1 << draw(seed, index, 1, l.mpi ? 3 : 4);
    l.threads = 1 + (int)draw(seed, index, 2, 2);
    /* Any power of two of leaves up to the rank's share. */
    int share_leaves = 16 / leaf / l.dp;
    l.micro = leaf << draw(seed, index, 3, (uint32_t)__builtin_ctz((unsigned)share_leaves) + 1);
    l.bucket_mb = 1 + (int)draw(seed, index, 4, 3);
    l.interrupt = draw(seed, index, 5, 3) == 0 ? 1 + (int)draw(seed, index, 6, STEPS - 1) : 0;
    return l;
}

/* ---- the broken twins ------------------------------------------------------------------------ */

static int twins_check(const struct result *reference)
{
    static const struct {
        enum twin twin;
        const char *name;
    } twins[] = {{TWIN_BUCKET_ORDER, "buckets added in another order"},
                 {TWIN_SHIFTED_LEAF, "one rank's leaves shifted by one"},
                 {TWIN_FLIPPED_BIT, "one bit of one replica flipped"}};
    struct layout layout = {.dp = 4, .micro = 2, .threads = 1, .bucket_mb = 1};
    int missed = 0;
    for (size_t i = 0; i < sizeof twins / sizeof *twins; i++) {
        struct result result = {{0}, ""};
        struct ls_error error = {0};
        int status = run_threads(0, &layout, twins[i].twin, STEPS, NULL, &result, &error);
        bool caught = status ? status == LS_ENUMERIC : first_difference(reference, &result) >= 0;
        printf("broken twin (%s): %s\n", twins[i].name, caught ? "caught" : "MISSED");
        missed += !caught;
    }
    return missed;
}

/* ---- main ------------------------------------------------------------------------------------ */

static int layout_check(int recipe, const struct layout *reference, const struct result *expected,
                        const struct layout *layout)
{
    struct result result = {{0}, ""};
    struct ls_error error = {0};
    char text[160];
    layout_text(layout, text, sizeof text);
    int status = layout->mpi ? run_mpi(recipe, layout, &result, &error)
                             : run_threads(recipe, layout, TWIN_NONE, STEPS, NULL, &result, &error);
    if (status) {
        printf("%s: %s: %s\n", recipe_names[recipe], text, error.text);
        return 1;
    }
    int step = first_difference(expected, &result);
    if (step < 0)
        return 0;
    printf("%s: %s: differs from one rank at %s %d\n", recipe_names[recipe], text,
           step < STEPS ? "step" : "the hash after step", step < STEPS ? step + 1 : STEPS);
    trace_difference(recipe, reference, layout, step);
    return 1;
}

int main(int argc, char **argv)
{
    program = argv[0];
    if (argc > 9 && !strcmp(argv[1], "--child"))
        return child_main(argv + 2);
    const char *preset = getenv("INVARIANCE_N");
    int n = argc > 1 ? atoi(argv[1]) : preset ? atoi(preset) : DEFAULT_N, failed = 0;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    char pattern[] = "/tmp/lockstep-invariance-XXXXXX", command[300];
    snprintf(folder, sizeof folder, "%s", mkdtemp(pattern) ? pattern : ".");
    data_make();
    bool mpi = mpi_available();
    const struct layout one = {.dp = 1, .micro = 16, .threads = 1, .bucket_mb = 1};
    struct result reference[RECIPES];
    for (int recipe = 0; recipe < RECIPES; recipe++) {
        struct ls_error error = {0};
        if (run_threads(recipe, &one, TWIN_NONE, STEPS, NULL, &reference[recipe], &error))
            die(recipe_names[recipe], &error);
    }
    for (int i = 0; i < n; i++) {
        int recipe = i % RECIPES;
        struct layout layout = layout_draw(seed, (uint32_t)i, recipe, mpi);
        failed += layout_check(recipe, &one, &reference[recipe], &layout);
    }
    for (int recipe = 0; recipe < RECIPES; recipe++)
        printf("%s: hash %s\n", recipe_names[recipe], reference[recipe].hash);
    printf("%d configurations (seed %llu%s), %s\n", n, (unsigned long long)seed,
           mpi ? "" : ", without MPI: mpirun is absent",
           failed ? "NOT one hash for each recipe" : "1 hash for each recipe");
    int missed = twins_check(&reference[0]);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command))
        fprintf(stderr, "%s was left behind\n", folder);
    printf("%d passed, %d failed\n", n + 3 - failed - missed, failed + missed);
    return failed || missed;
}
