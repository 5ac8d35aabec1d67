/* The promise: for one recipe, every layout gives one sequence of losses and one sequence of
 * hashes.
 *
 *   test_invariance [N [SEED [STEPS]]]   N layouts drawn at random, over nineteen recipes: some of
 *                                        each
 *   test_invariance --only INDEX [SEED [STEPS]]   one of them again; without a seed, of those that
 *                                        `make check` draws
 *   test_invariance --child ...          one layout under mpirun, started by the above
 *
 * The recipes (a small GPT-2 and a small Llama with grouped queries, each in fp32 and bf16, a GPT-2
 * in fp16, a Llama whose moments are bf16, one with Muon, one of each other family, two
 * with adapters and one with frozen parameters, two with workers, two over a base in few bits; some
 * of them on examples, of which the completions count, packed or as a stream) are trained on one
 * rank; then every drawn layout (all keys of ls_draw_rows) must repeat the loss and the hash of the
 * state after every step, bit for bit. Some runs are stopped half way, and another layout goes on
 * from the checkpoint. A mismatch is traced to the first tensor that differs.
 *
 * Layouts are asked for what the ones before them did not have: first every value of every key that
 * any of the recipes admits, then every pair of keys. 120 cover the pairs. `make check` draws
 * smaller layouts until each recipe had its turn and the values are covered, 40 at most. What was
 * covered is printed, and a gap fails.
 *
 * Broken twins prove that the comparison can fail (twins.c). */
/* check: threads */
#include "../support/cover.h"
#include "../support/extent.h"
#include "fast.h"
#include "recipes.h"
#include "twins.h"

#include <lockstep/compare.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ALL_STEPS = 5, USUAL_STEPS = 2, ALL_LAYOUTS = 120, USUAL_LAYOUTS = 40 };
enum { USUAL_SEED = 7 }; /* whose layouts, of those that cover the values, cost least */

static const char *program; /* argv[0] */

struct session {
    char folder[256];
    uint64_t seed;
    int64_t steps;
    bool mpi;
    bool usual;                       /* what `make check` draws */
    int isas;                         /* of this machine */
    struct ls_config recipe[RECIPES]; /* on one rank */
    struct ls_proof reference[RECIPES][RECIPE_STEPS_MAX];
    struct ls_draw_cover cover;
};

/* The recipe on one rank. */
static void config_of(const struct session *s, int recipe, struct ls_config *config)
{
    recipe_config(recipe, s->folder, config);
}

/* Layout number `index`, after those before it were drawn. Every fifth may be of processes. */
static int next_draw(struct session *s, uint64_t index, struct ls_config *drawn)
{
    bool mpi = s->mpi && index % 5 == 4;
    struct ls_draw draw = {.seed = s->seed,
                           .index = index,
                           .ranks_max = (mpi ? 8 : 16) / (s->usual ? 2 : 1),
                           .mpi = mpi,
                           .isas = s->isas,
                           .folder = s->folder};
    int recipe = ls_compare_draw(s->recipe, RECIPES, &draw, &s->cover, drawn);
    if (recipe < 0) {
        fprintf(stderr, "no recipe admits layout %llu\n", (unsigned long long)index);
        exit(1);
    }
    return recipe;
}

/* ---- under MPI ------------------------------------------------------------------------------- */

/* A child process of mpirun: trains a configuration, and rank 0 leaves its proof in a file. */
static int child_main(char **argv)
{
    int64_t steps = atoll(argv[1]);
    struct ls_config config;
    struct ls_error error = {0};
    struct ls_proof proof[RECIPE_STEPS_MAX];
    struct ls_comm *world;
    ls_config_defaults(&config);
    if (ls_config_load_file(&config, argv[0], &error) || ls_train_resolve(&config, &error) ||
        ls_comm_mpi_new(&world, &error) || ls_proof_make(&config, world, steps, proof, &error)) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    FILE *file = ls_comm_rank(world) == 0 ? fopen(argv[2], "wb") : NULL;
    if (file) {
        fwrite(proof, sizeof *proof, (size_t)steps, file);
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

static int proof_mpi(const struct session *s, const struct ls_config *config,
                     struct ls_proof *proof, struct ls_error *error)
{
    char command[2048], path[600], keys[600];
    snprintf(keys, sizeof keys, "%s/mpi.yaml", s->folder);
    snprintf(path, sizeof path, "%s/mpi.proof", s->folder);
    /* Threads that wait by spinning stand in the way of those that they wait for, where there are
     * more than cores. */
    snprintf(command, sizeof command,
             "OMP_WAIT_POLICY=passive OMPI_ALLOW_RUN_AS_ROOT=1 "
             "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
             "mpirun --oversubscribe -n %ld '%s' --child '%s' %ld '%s'",
             (long)ls_config_ranks(config), program, keys, (long)s->steps, path);
    unlink(path);
    int status = ls_config_save(config, keys, error);
    if (status)
        return status;
    int code = system(command);
    FILE *file = fopen(path, "rb");
    bool read = file && fread(proof, sizeof *proof, (size_t)s->steps, file) == (size_t)s->steps;
    if (file)
        fclose(file);
    if (code == 0 && read)
        return LS_OK;
    return ls_error_set(error, LS_ECOMM, "mpirun ended with %d", code);
}

/* ---- one layout, and then another ------------------------------------------------------------ */

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
            half->proof[report.step - 1] =

                (struct ls_proof){report.loss_bits, hash, report.grad_norm, ""};
    }
    if (!status)
        status = ls_trainer_save(t, error);
    ls_trainer_free(t);
    return status;
}

/* The first half of the steps in one layout, the rest from its checkpoint in the next that is
 * drawn. */
static int proof_halves(const struct session *s, const struct ls_config *first, uint64_t index,
                        struct ls_proof *proof, struct ls_error *error)
{
    struct ls_config config = *first, second;
    snprintf(config.train.out, sizeof config.train.out, "%s/halves-%llu", s->folder,
             (unsigned long long)index);
    snprintf(config.train.resume, sizeof config.train.resume, "auto");
    struct half half = {&config, s->steps / 2, proof};
    int status = ls_world_run((int)ls_config_ranks(&config), half_body, &half, error);
    if (status)
        return status;
    struct ls_draw draw = {
        .seed = s->seed, .index = index + 100000, .ranks_max = s->usual ? 8 : 16, .isas = s->isas};
    if (!ls_draw_layout(&config, &draw, &second))
        return ls_error_set(error, LS_ELAYOUT, "no second layout was found");
    half = (struct half){&second, s->steps, proof};
    return ls_world_run((int)ls_config_ranks(&second), half_body, &half, error);
}

static int layout_check(struct session *s, uint64_t index, int recipe,
                        const struct ls_config *config)
{
    const struct ls_config *one = &s->recipe[recipe];
    struct ls_proof proof[RECIPE_STEPS_MAX] = {{0}};
    struct ls_error error = {0};
    char text[1024], tensor[200];
    ls_config_layout_text(config, one, text, sizeof text);
    bool mpi = config->comm.transport == LS_TRANSPORT_MPI;
    /* Plain C is slow, and in `make check` the first step says what a second would. */
    int64_t steps = s->usual && !mpi && config->numerics.isa == LS_ISA_PLAIN ? 1 : s->steps;
    bool halves = !mpi && index % 6 == 5 && steps > 1;
    int status = mpi      ? proof_mpi(s, config, proof, &error)
                 : halves ? proof_halves(s, config, index, proof, &error)
                          : ls_proof_threads(config, steps, proof, &error);
    if (getenv("INVARIANCE_VERBOSE"))
        printf("%llu %s: %s%s\n", (unsigned long long)index, recipe_names[recipe], text,
               halves ? ", and another" : "");
    if (status) {
        printf("%llu %s: %s: %s\n", (unsigned long long)index, recipe_names[recipe], text,
               error.text);
        return 1;
    }
    int64_t step = ls_proof_differs(s->reference[recipe], proof, steps);
    if (step == 0)
        return 0;
    printf("%llu %s: %s: differs from one rank at step %ld\n", (unsigned long long)index,
           recipe_names[recipe], text, (long)step);
    if (ls_proof_trace(one, config, step, tensor, sizeof tensor, &error))
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
        config_of(s, twins[i].recipe, &config);
        for (int k = 0; k < 6 && twins[i].keys[k]; k++)
            if (ls_config_set(&config, twins[i].keys[k], &error))
                exit(fprintf(stderr, "twin: %s\n", error.text) > 0);
        twin_set(i);
        int status = ls_train_resolve(&config, &error);
        bool caught = false;
        /* The first step shows most of them. */
        for (int64_t steps = 1; steps <= 2 && !status && !caught; steps++) {
            status = ls_proof_threads(&config, steps, proof, &error);
            /* A fault may also be found by the trainer itself: replicas that differ. */
            caught = status ? status == LS_ENUMERIC
                            : ls_proof_differs(s->reference[twins[i].recipe], proof, steps) > 0;
        }
        twin_set(-1);
        printf("broken twin (%s): %s%s\n", twins[i].name, caught ? "caught" : "MISSED",
               status && status != LS_ENUMERIC ? error.text : "");
        missed += !caught;
    }
    return missed;
}

/* ---- main ------------------------------------------------------------------------------------ */

static void reference_make(struct session *s, int recipe)
{
    struct ls_error error = {0};
    if (ls_proof_threads(&s->recipe[recipe], s->steps, s->reference[recipe], &error))
        exit(fprintf(stderr, "%s: %s\n", recipe_names[recipe], error.text) > 0);
}

/* Without mpirun, what it would run is no gap; nor are instruction sets that are not here. */
static void absent_forgive(struct session *s)
{
    int count;
    const struct ls_draw_row *rows = ls_draw_rows(&count);
    for (int row = 0; row < count; row++)
        for (int v = 0; rows[row].values[v]; v++)
            if ((!strcmp(rows[row].values[v], "mpi") && !s->mpi) ||
                (!strcmp(rows[row].name, "numerics.isa") && v > s->isas))
                s->cover.value_impossible[row][v] = true;
}

/* n layouts; if these are enough for all pairs of settings, or nearly so, also those that lack;
 * what `make check` draws ends where all values were had. */
static int all_check(struct session *s, int n)
{
    struct ls_config drawn;
    int failed = 0, i = 0;
    bool pairs = n >= ALL_LAYOUTS;
    for (int recipe = 0; recipe < RECIPES; recipe++)
        reference_make(s, recipe);
    absent_forgive(s);
    for (; i < n || (pairs && i < 2 * n && cover_missing(&s->cover, true)); i++) {
        if (s->usual && i >= RECIPES && !cover_missing(&s->cover, false))
            break;
        int recipe = next_draw(s, (uint64_t)i, &drawn);
        failed += layout_check(s, (uint64_t)i, recipe, &drawn);
    }
    n = i;
    for (int recipe = 0; recipe < RECIPES; recipe++) {
        char hex[33];
        ls_digest_hex(&s->reference[recipe][s->steps - 1].hash, hex);
        printf("%s: hash %s\n", recipe_names[recipe], hex);
    }
    printf("%d configurations (seed %llu, %ld steps%s), %s\n", n, (unsigned long long)s->seed,
           (long)s->steps, s->mpi ? "" : ", without MPI: mpirun is absent",
           failed ? "NOT one hash for each recipe" : "1 hash for each recipe");
    cover_print(&s->cover);
    ls_draw_cover_line(&s->cover, true, stdout);
    int missing = s->usual || n >= USUAL_LAYOUTS ? cover_missing(&s->cover, pairs) : 0;
    if (missing)
        printf("%d values%s that the recipes admit were never drawn\n", missing,
               pairs ? " and pairs" : "");
    failed += fast_check(s->folder, s->steps);
    int missed = twins_check(s);
    printf("%d passed, %d failed\n", n + RECIPES + TWINS - failed - missed,
           failed + missed + missing);
    return failed || missed || missing;
}

/* Layout number `only`, which depends on what those before it had. */
static int one_check(struct session *s, uint64_t only)
{
    struct ls_config drawn;
    int recipe = 0;
    for (uint64_t i = 0; i <= only; i++)
        recipe = next_draw(s, i, &drawn);
    reference_make(s, recipe);
    return layout_check(s, only, recipe, &drawn);
}

int main(int argc, char **argv)
{
    program = argv[0];
    if (argc > 4 && !strcmp(argv[1], "--child"))
        return child_main(argv + 2);
    bool only = argc > 2 && !strcmp(argv[1], "--only");
    int n = argc > 1 && !only ? atoi(argv[1]) : check_all() ? ALL_LAYOUTS : USUAL_LAYOUTS;
    int rest = only ? 3 : 2;
    struct session *s = calloc(1, sizeof *s);
    const char *base = getenv("TMPDIR");
    char pattern[200], command[300];
    snprintf(pattern, sizeof pattern, "%.150s/lockstep-invariance-XXXXXX",
             base && *base ? base : "/tmp");
    if (!s || !mkdtemp(pattern))
        return 1;
    s->steps = argc > rest + 1 ? atoll(argv[rest + 1]) : check_all() ? ALL_STEPS : USUAL_STEPS;
    if (s->steps < 2 || s->steps > RECIPE_STEPS_MAX)
        s->steps = ALL_STEPS;
    s->usual = !check_all() && argc == (only ? 3 : 1);
    s->seed = argc > rest ? strtoull(argv[rest], NULL, 10) : s->usual ? USUAL_SEED : 1;
    s->mpi = mpi_available();
    s->isas = ls_isa_best() + 1;
    snprintf(s->folder, sizeof s->folder, "%s", pattern);
    recipe_tokens_write(s->folder);
    for (int recipe = 0; recipe < RECIPES; recipe++)
        config_of(s, recipe, &s->recipe[recipe]);
    int failed = only ? one_check(s, strtoull(argv[2], NULL, 10)) : all_check(s, n);
    snprintf(command, sizeof command, "rm -rf '%s'", s->folder);
    if (system(command))
        fprintf(stderr, "%s was left behind\n", s->folder);
    free(s);
    return failed;
}
