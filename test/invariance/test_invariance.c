/* The promise: for one recipe, every layout gives one sequence of losses and one sequence of
 * hashes.
 *
 *   test_invariance [N [SEED [STEPS]]]   N layouts drawn at random, over four recipes
 *   test_invariance --only INDEX [SEED [STEPS]]   one of them again
 *   test_invariance --child ...          one layout under mpirun, started by the above
 *
 * Four recipes (a small GPT-2 and a small Llama with grouped queries, each in fp32 and bf16) are
 * trained on one rank; then every drawn layout (dp_replicate, dp_shard, ZeRO 0 to 3, tp, sp, cp,
 * pp, schedule, chunks, micro-batches, threads, transport) must repeat the loss and the hash of the
 * state after every step, bit for bit. Some runs are stopped half way, and another layout goes on
 * from the checkpoint. A mismatch is traced to the first tensor that differs.
 *
 * Broken twins prove that the comparison can fail (twins.c). */
#include "recipes.h"
#include "twins.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEFAULT_STEPS = 5 };

static const char *program; /* argv[0] */

struct session {
    char folder[256];
    uint64_t seed;
    int64_t steps;
    bool mpi;
    struct ls_proof reference[RECIPES][RECIPE_STEPS_MAX];
};

static void config_of(const struct session *s, int recipe, const struct drawn *drawn,
                      struct ls_config *config)
{
    struct recipe_run run = {.recipe = recipe, .steps = s->steps, .folder = s->folder};
    if (drawn) {
        run.keys = &drawn->keys;
        run.micro_sequences = drawn->micro_sequences;
        run.threads = drawn->threads;
    }
    recipe_config(&run, config);
}

/* The layout of that number, and the recipe that it is for: the next in turn that admits what the
 * layout must have. */
static int recipe_draw(const struct session *s, uint64_t index, struct drawn *drawn)
{
    for (int i = 0; i < RECIPES; i++) {
        int recipe = (int)((index + (uint64_t)i) % RECIPES);
        struct ls_config config;
        config_of(s, recipe, NULL, &config);
        if (layout_draw(&config, s->seed, index, s->mpi, drawn))
            return recipe;
    }
    fprintf(stderr, "no recipe admits layout %llu\n", (unsigned long long)index);
    exit(1);
}

/* ---- under MPI ------------------------------------------------------------------------------- */

/* A child process of mpirun: draws the same layout, and rank 0 leaves its proof in a file. */
static int child_main(char **argv)
{
    struct session s = {.seed = strtoull(argv[1], NULL, 10), .steps = atoll(argv[2]), .mpi = true};
    uint64_t index = strtoull(argv[0], NULL, 10);
    snprintf(s.folder, sizeof s.folder, "%s", argv[3]);
    struct ls_config config;
    static struct drawn drawn;
    struct ls_error error = {0};
    struct ls_proof proof[RECIPE_STEPS_MAX];
    struct ls_comm *world;
    config_of(&s, recipe_draw(&s, index, &drawn), &drawn, &config);
    if (ls_comm_mpi_new(&world, &error) || ls_proof_make(&config, world, s.steps, proof, &error)) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    char path[600];
    snprintf(path, sizeof path, "%s/mpi-%s.proof", s.folder, argv[0]);
    FILE *file = ls_comm_rank(world) == 0 ? fopen(path, "wb") : NULL;
    if (file) {
        fwrite(proof, sizeof *proof, (size_t)s.steps, file);
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

static int proof_mpi(const struct session *s, uint64_t index, int64_t ranks, struct ls_proof *proof,
                     struct ls_error *error)
{
    char command[2048], path[600];
    snprintf(command, sizeof command,
             "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
             "timeout 120 mpirun --oversubscribe -n %ld '%s' --child %llu %llu %ld '%s'",
             (long)ranks, program, (unsigned long long)index, (unsigned long long)s->seed,
             (long)s->steps, s->folder);
    snprintf(path, sizeof path, "%s/mpi-%llu.proof", s->folder, (unsigned long long)index);
    int code = system(command);
    FILE *file = fopen(path, "rb");
    bool read = file && fread(proof, sizeof *proof, (size_t)s->steps, file) == (size_t)s->steps;
    if (file)
        fclose(file);
    if (code == 0 && read)
        return LS_OK;
    return ls_error_set(error, LS_ECOMM, "mpirun ended with %d", code);
}

/* ---- one layout, and then another -------------------------------------------------------------
 */

struct half {
    const struct ls_config *config;
    int64_t until;
    struct ls_proof *proof;
};

static int half_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    const struct half *half = user;
    struct ls_trainer *t;
    bool resumed;
    int status = ls_trainer_new(half->config, world, NULL, &t, error);
    if (status)
        return status;
    status = ls_trainer_resume(t, &resumed, error);
    while (!status && ls_trainer_steps(t) < half->until) {
        struct ls_step_report report;
        struct ls_digest hash = {0, 0};
        status = ls_trainer_step(t, &report, error);
        if (!status)
            status = ls_trainer_hash(t, &hash, error);
        if (ls_comm_rank(world) == 0)
            half->proof[report.step - 1] = (struct ls_proof){report.loss_bits, hash};
    }
    if (!status)
        status = ls_trainer_save(t, error);
    ls_trainer_free(t);
    return status;
}

/* The first half of the steps in one layout, the rest from its checkpoint in the next that is
 * drawn. */
static int proof_halves(const struct session *s, int recipe, const struct drawn *first,
                        uint64_t index, struct ls_proof *proof, struct ls_error *error)
{
    char out[64];
    struct ls_config config;
    static struct drawn second;
    snprintf(out, sizeof out, "halves-%llu", (unsigned long long)index);
    struct recipe_run run = {.recipe = recipe,
                             .steps = s->steps,
                             .folder = s->folder,
                             .keys = &first->keys,
                             .micro_sequences = first->micro_sequences,
                             .threads = first->threads,
                             .out = out,
                             .resume = true};
    recipe_config(&run, &config);
    struct half half = {&config, s->steps / 2, proof};
    int status = ls_world_run((int)first->layout.ranks, half_body, &half, error);
    if (status)
        return status;
    /* This recipe may not admit what the next number asks for: then the one after it. */
    for (uint64_t next = index + 100000; !layout_draw(&config, s->seed, next, false, &second);)
        next++;
    run.keys = &second.keys;
    run.micro_sequences = second.micro_sequences;
    recipe_config(&run, &config);
    half.until = s->steps;
    return ls_world_run((int)second.layout.ranks, half_body, &half, error);
}

static int layout_check(struct session *s, uint64_t index, struct coverage *coverage)
{
    struct ls_config one, config;
    static struct drawn drawn;
    struct ls_proof proof[RECIPE_STEPS_MAX] = {{0}};
    struct ls_error error = {0};
    char text[400], tensor[200];
    int recipe = recipe_draw(s, index, &drawn);
    config_of(s, recipe, NULL, &one);
    coverage_add(coverage, &drawn);
    config_of(s, recipe, &drawn, &config);
    layout_text(&drawn, text, sizeof text);
    double begin_s = ls_now_s();
    bool halves = !drawn.mpi && index % 6 == 5 && s->steps > 1;
    int status = drawn.mpi ? proof_mpi(s, index, drawn.layout.ranks, proof, &error)
                 : halves  ? proof_halves(s, recipe, &drawn, index, proof, &error)
                           : ls_proof_threads(&config, s->steps, proof, &error);
    if (getenv("INVARIANCE_VERBOSE"))
        printf("%llu %s: %s%s, %.1f s\n", (unsigned long long)index, recipe_names[recipe], text,
               halves ? ", and another" : "", ls_now_s() - begin_s);
    if (status) {
        printf("%llu %s: %s: %s\n", (unsigned long long)index, recipe_names[recipe], text,
               error.text);
        return 1;
    }
    int64_t step = ls_proof_differs(s->reference[recipe], proof, s->steps);
    if (step == 0)
        return 0;
    printf("%llu %s: %s: differs from one rank at step %ld\n", (unsigned long long)index,
           recipe_names[recipe], text, (long)step);
    if (ls_proof_trace(&one, &config, step, tensor, sizeof tensor, &error))
        printf("  not traced: %s\n", error.text);
    else
        printf("  first tensor: %s\n", tensor);
    return 1;
}

/* ---- the broken twins ------------------------------------------------------------------------ */

static int twins_check(struct session *s)
{
    int missed = 0;
    for (int i = 0; i < TWINS; i++) {
        struct ls_proof proof[RECIPE_STEPS_MAX];
        struct ls_config config;
        struct ls_error error = {0};
        config_of(s, 0, NULL, &config);
        for (int k = 0; k < 6 && twins[i].keys[k]; k++)
            if (ls_config_set(&config, twins[i].keys[k], &error))
                exit(fprintf(stderr, "twin: %s\n", error.text) > 0);
        twin_set(i);
        int status = ls_train_resolve(&config, &error);
        if (!status)
            status = ls_proof_threads(&config, 2, proof, &error);
        twin_set(-1);
        /* A fault may also be found by the trainer itself: replicas that differ. */
        bool caught =
            status ? status == LS_ENUMERIC : ls_proof_differs(s->reference[0], proof, 2) > 0;
        printf("broken twin (%s): %s%s\n", twins[i].name, caught ? "caught" : "MISSED",
               status && status != LS_ENUMERIC ? error.text : "");
        missed += !caught;
    }
    return missed;
}

/* ---- mode fast ------------------------------------------------------------------------------- */

/* numerics.mode fast adds in whatever order is fastest: its losses agree within rounding only. */
static const double fast_tolerance[RECIPES] = {1e-6, 1e-4, 1e-6, 1e-4};

static int fast_check(struct session *s)
{
    static const char *const layouts[][4] = {
        {"numerics.mode=fast"},
        {"numerics.mode=fast", "parallel.tp=4", "parallel.sp=true"},
        {"numerics.mode=fast", "parallel.tp=2", "parallel.pp=2", "parallel.dp_shard=2"},
    };
    int failed = 0;
    for (int recipe = 0; recipe < RECIPES; recipe++) {
        double worst = 0;
        for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
            struct ls_proof proof[RECIPE_STEPS_MAX];
            struct ls_config config;
            struct ls_error error = {0};
            config_of(s, recipe, NULL, &config);
            for (int k = 0; k < 4 && layouts[i][k]; k++)
                if (ls_config_set(&config, layouts[i][k], &error))
                    exit(fprintf(stderr, "fast: %s\n", error.text) > 0);
            if (ls_train_resolve(&config, &error) ||
                ls_proof_threads(&config, s->steps, proof, &error)) {
                printf("%s, fast: %s\n", recipe_names[recipe], error.text);
                failed++;
                continue;
            }
            for (int64_t step = 0; step < s->steps; step++) {
                float a, b;
                memcpy(&a, &proof[step].loss_bits, sizeof a);
                memcpy(&b, &s->reference[recipe][step].loss_bits, sizeof b);
                double distance = (double)(a > b ? a - b : b - a) / (double)b;
                worst = distance > worst || distance != distance ? distance : worst;
            }
        }
        printf("%s: losses of mode fast within %.1e of the default's (tolerance %.0e)\n",
               recipe_names[recipe], worst, fast_tolerance[recipe]);
        failed += !(worst <= fast_tolerance[recipe]);
    }
    return failed;
}

/* ---- main ------------------------------------------------------------------------------------ */

static void references_make(struct session *s)
{
    for (int recipe = 0; recipe < RECIPES; recipe++) {
        struct ls_config config;
        struct ls_error error = {0};
        config_of(s, recipe, NULL, &config);
        if (ls_proof_threads(&config, s->steps, s->reference[recipe], &error))
            exit(fprintf(stderr, "%s: %s\n", recipe_names[recipe], error.text) > 0);
    }
}

static int all_check(struct session *s, int n)
{
    struct coverage coverage = {0};
    int failed = 0;
    for (int i = 0; i < n; i++)
        failed += layout_check(s, (uint64_t)i, &coverage);
    for (int recipe = 0; recipe < RECIPES; recipe++) {
        char hex[33];
        ls_digest_hex(&s->reference[recipe][s->steps - 1].hash, hex);
        printf("%s: hash %s\n", recipe_names[recipe], hex);
    }
    printf("%d configurations (seed %llu, %ld steps%s), %s\n", coverage.count,
           (unsigned long long)s->seed, (long)s->steps,
           s->mpi ? "" : ", without MPI: mpirun is absent",
           failed ? "NOT one hash for each recipe" : "1 hash for each recipe");
    int missing = coverage_print(&coverage, s->mpi);
    if (missing && n >= INDEX_COVER)
        printf("%d of what layouts are made of never ran\n", missing);
    failed += fast_check(s);
    int missed = twins_check(s);
    printf("%d passed, %d failed\n", coverage.count + RECIPES + TWINS - failed - missed,
           failed + missed);
    return failed || missed || (missing && n >= INDEX_COVER);
}

int main(int argc, char **argv)
{
    program = argv[0];
    if (argc > 5 && !strcmp(argv[1], "--child"))
        return child_main(argv + 2);
    bool only = argc > 2 && !strcmp(argv[1], "--only");
    const char *preset = getenv("INVARIANCE_N");
    int n = argc > 1 && !only ? atoi(argv[1]) : preset ? atoi(preset) : INDEX_COVER;
    int rest = only ? 3 : 2;
    struct session *s = calloc(1, sizeof *s);
    char pattern[] = "/tmp/lockstep-invariance-XXXXXX", command[300];
    if (!s || !mkdtemp(pattern))
        return 1;
    s->seed = argc > rest ? strtoull(argv[rest], NULL, 10) : 1;
    s->steps = argc > rest + 1 ? atoll(argv[rest + 1]) : DEFAULT_STEPS;
    if (s->steps < 2 || s->steps > RECIPE_STEPS_MAX)
        s->steps = DEFAULT_STEPS;
    s->mpi = mpi_available();
    snprintf(s->folder, sizeof s->folder, "%s", pattern);
    recipe_tokens_write(s->folder);
    references_make(s);
    struct coverage ignored = {0};
    int failed = only ? layout_check(s, strtoull(argv[2], NULL, 10), &ignored) : all_check(s, n);
    snprintf(command, sizeof command, "rm -rf '%s'", s->folder);
    if (system(command))
        fprintf(stderr, "%s was left behind\n", s->folder);
    free(s);
    return failed;
}
