/* The search against exhaustive simulation on drawn small cases, laws that plans keep, and what is
 * refused. */
#include "../support/extent.h"
#include "../support/suite.h"
#include "../support/told.h"
#include "../support/wrapped.h"

#include <lockstep/base/words.h>
#include <lockstep/parallel/schedule.h>
#include <lockstep/planner.h>
#include <lockstep/train/recorded.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- cases ----------------------------------------------------------------------------------- */

static uint64_t drawn;

static int64_t draw(int64_t below)
{
    drawn = drawn * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((drawn >> 33) % (uint64_t)below);
}

static int64_t one_of(const int64_t *values, int count)
{
    return values[draw(count)];
}
#define ONE_OF(...)                                                                                \
    one_of((const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

/* Of accelerators whose figures are drawn, from a slow link to none that is felt; the fast ones'
 * collectives take units. */
static struct ls_cluster cluster_draw(void)
{
    struct ls_cluster cluster;
    struct ls_error error = {0};
    char text[1024];
    /* One by one: compilers evaluate arguments in orders of their own. */
    int64_t hosts = 2, each = ONE_OF(1, 2), far = ONE_OF(100, 2000), near = ONE_OF(1, 20);
    bool overlap = draw(2);
    int64_t launch_us = ONE_OF(0, 5), memory = ONE_OF(3, 8, 1000), peak = ONE_OF(100, 1000);
    snprintf(text, sizeof text,
             "name: drawn\nhosts: %ld\naccelerators: %ld\n"
             "accelerator: {name: x, peak: {bf16: %ld GFLOP/s}, memory: %ld MiB, bandwidth: 50 "
             "GB/s, launch: %ld us, unit_bandwidth: 1 GB/s, spread: 0.05}\n"
             "memory: 1 GiB\nhost_link: 1 GB/s\noverlap: %s\n"
             "links:\n  - {name: near, joins: %ld, latency: 2 us, bandwidth: %ld GB/s}\n"
             "  - {name: far, joins: %ld, latency: 10 us, bandwidth: %ld MB/s}\n",
             (long)hosts, (long)each, (long)peak, (long)memory, (long)launch_us,
             overlap ? "1" : "0", (long)each, (long)near, (long)(hosts * each), (long)far);
    if (ls_cluster_read_text("drawn", text, strlen(text), &cluster, &error))
        fail_msg("%s\n%s", error.text, text);
    cluster.accelerator.units = ls_cluster_peak(&cluster, LS_BF16) > 5e11 ? 8 : 0;
    return cluster;
}

static void set(struct ls_config *config, const char *format, ...)
{
    char word[2 * LS_CONFIG_TEXT_BYTES];
    struct ls_error error = {0};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(word, sizeof word, format, arguments);
    va_end(arguments);
    if (ls_config_set(config, word, &error))
        fail_msg("%s: %s", word, error.text);
}

static struct ls_config recipe_draw(void)
{
    struct ls_config config;
    struct ls_error error = {0};
    int64_t layers = ONE_OF(2, 3, 4);
    ls_config_defaults(&config);
    set(&config, "model.vocab=257");
    set(&config, "model.layers=%ld", (long)layers);
    set(&config, "model.channels=%ld", (long)ONE_OF(64, 128));
    set(&config, "model.heads=4");
    set(&config, "model.context=256");
    set(&config, "data.sequence=256");
    set(&config, "batch.global=%ld", (long)ONE_OF(4, 8));
    set(&config, "numerics.leaf_sequences=1");
    set(&config, "numerics.precision=%s", draw(2) ? "bf16" : "fp32");
    set(&config, "numerics.seq_tiles=%ld", (long)ONE_OF(1, 2));
    set(&config, "numerics.mode=%s", draw(4) ? "ordered" : "fast");
    assert_ok(ls_config_resolve(&config, 257, &error), error);
    return config;
}

/* The first case of a seed: its recipe, and its cluster. */
static struct ls_config case_draw(uint64_t seed, struct ls_cluster *cluster)
{
    drawn = seed;
    *cluster = cluster_draw();
    return recipe_draw();
}

/* ---- exhaustive ------------------------------------------------------------------------------ */

static double value_of(enum ls_goal goal, const struct ls_forecast *f)
{
    return goal == LS_GOAL_TIME   ? f->step_s
           : goal == LS_GOAL_COST ? f->step_s * (double)(f->ranks * f->accelerators)
                                  : f->device_bytes;
}

/* Most cases leave out what triples the space. */
static bool memory_pinned(const struct ls_config *config, const char *key)
{
    (void)config;
    return strncmp(key, "memory.", 7) == 0;
}

/* Against every layout of the space: none is better than the search's best, no kind is missing in
 * its list, and nothing waits for less than no time. */
static void lists_compare(int i, enum ls_goal goal, const struct ls_search *search,
                          const struct ls_search *all)
{
    if (search->count != all->count || search->unproven || search->unlisted)
        fail_msg("case %d: %d plans listed, of all %d", i, search->count, all->count);
    for (int at = 0; at < all->count; at++) {
        double value = value_of(goal, &search->plans[at].forecast);
        double least = value_of(goal, &all->plans[at].forecast);
        if (value > least * (1 + 1e-9))
            fail_msg("case %d, %s, place %d: the search has %g (%s), but %s takes %g", i,
                     ls_word_of(ls_goals, goal), at + 1, value, search->plans[at].keys,
                     all->plans[at].keys, least);
        for (int account = 0; account < LS_ACCOUNTS; account++)
            assert_true(search->plans[at].forecast.exposed_s[account] >= 0);
        for (int other = 0; other < at; other++)
            assert_true(search->plans[at].kind != search->plans[other].kind);
    }
    if (all->bound_share > 1 + 1e-9)
        fail_msg("case %d: a layout is bounded by %g times what it takes", i, all->bound_share);
}

/* The search of the case against that of every layout. */
static void both_compare(int i, struct ls_search_options options)
{
    struct ls_error error = {0};
    struct ls_search search, exhaustive;
    assert_ok(ls_search_run(&options, &search, &error), error);
    options.exhaustive = true;
    assert_ok(ls_search_run(&options, &exhaustive, &error), error);
    lists_compare(i, options.goal, &search, &exhaustive);
    ls_search_release(&search);
    ls_search_release(&exhaustive);
}

/* And it looks at fewer. */
CASE(test_the_best_is_the_best)
{
    int64_t looked = 0, all = 0, fitted = 0;
    const int cases = 200 / check_every(20, 20);
    drawn = 1;
    for (int i = 0; i < cases; i++) {
        struct ls_cluster cluster = cluster_draw();
        struct ls_config config = recipe_draw();
        struct ls_search_options options = {.config = &config,
                                            .cluster = &cluster,
                                            .goal = i % 10 == 0   ? LS_GOAL_MEMORY
                                                    : i % 10 == 1 ? LS_GOAL_COST
                                                                  : LS_GOAL_TIME,
                                            .top = 4,
                                            .pinned = i % 8 ? memory_pinned : NULL};
        struct ls_search search, exhaustive;
        struct ls_error error = {0};
        int status = ls_search_run(&options, &search, &error);
        options.exhaustive = true;
        int other = ls_search_run(&options, &exhaustive, &error);
        if (status != other)
            fail_msg("case %d: search %d, exhaustive %d: %s", i, status, other, error.text);
        if (!status) {
            lists_compare(i, options.goal, &search, &exhaustive);
            looked += search.simulated;
            all += exhaustive.simulated;
            fitted++;
        }
        ls_search_release(&search);
        ls_search_release(&exhaustive);
        ls_cluster_release(&cluster);
    }
    print_message("%ld cases fit; %ld layouts simulated of %ld\n", (long)fitted, (long)looked,
                  (long)all);
    assert_true(fitted > cases / 2 && fitted < cases && looked < all);
    told_expect("layouts", TOLD_SOME);
}

/* Blocks that are not alike, whichever takes most, and an update that multiplies: bounds hold. */
CASE(test_bounds_of_blocks_and_updates)
{
    static const char *const recipes[][2] = {
        {"model.arch=gemma2", "model.window=64"}, {"model.arch=gpt2", "train.frozen=h.0.*"},
        {"model.arch=gemma3", "model.window=64"}, {"model.arch=olmo3", "model.window=64"},
        {"model.arch=gpt2", "optim.name=muon"},   {"model.arch=gpt2", "train.frozen=h.2.*,h.3.*"}};
    static const char *const shape[] = {"model.vocab=257",        "model.layers=4",
                                        "model.channels=128",     "model.heads=4",
                                        "model.context=2048",     "data.sequence=2048",
                                        "batch.global=4",         "numerics.leaf_sequences=1",
                                        "numerics.precision=bf16"};
    drawn = 5;
    struct ls_cluster cluster = cluster_draw();
    cluster.accelerator.memory_bytes = 1e12;
    for (int i = 0; i < 6; i += check_every(4, 4)) {
        struct ls_config config;
        struct ls_error error = {0};
        ls_config_defaults(&config);
        for (size_t k = 0; k < sizeof shape / sizeof *shape; k++)
            set(&config, "%s", shape[k]);
        for (int k = 0; k < 2; k++)
            set(&config, "%s", recipes[i][k]);
        assert_ok(ls_config_resolve(&config, 257, &error), error);
        both_compare(
            i, (struct ls_search_options){
                   .config = &config, .cluster = &cluster, .top = 4, .pinned = memory_pinned});
    }
    ls_cluster_release(&cluster);
}

/* memory.recompute may list blocks, and have clauses of stages. */
CASE(test_blocks_that_recompute)
{
    static const char *const texts[] = {"2-3", "0-1", "full@0;selective@0", "sqrt", "0,1@0"};
    struct ls_cluster cluster;
    struct ls_config config = case_draw(5, &cluster);
    cluster.accelerator.memory_bytes = 1e12;
    set(&config, "model.layers=4");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct ls_error error = {0};
        struct ls_search search[2];
        set(&config, "memory.recompute=%s", texts[i]);
        assert_ok(ls_config_resolve(&config, 257, &error), error);
        for (int exhaustive = 0; exhaustive < 2; exhaustive++) {
            const struct ls_search_options options = {.config = &config,
                                                      .cluster = &cluster,
                                                      .accelerators = 2,
                                                      .top = 4,
                                                      .forecasts = check_all() ? 0 : 1,
                                                      .pinned = memory_pinned,
                                                      .exhaustive = check_all() && exhaustive};
            assert_ok(ls_search_run(&options, &search[exhaustive], &error), error);
        }
        if (check_all())
            lists_compare((int)i, LS_GOAL_TIME, &search[0], &search[1]);
        ls_search_release(&search[0]);
        ls_search_release(&search[1]);
    }
    ls_cluster_release(&cluster);
}

static bool stages_pinned(const struct ls_config *config, const char *key)
{
    return memory_pinned(config, key) || !strcmp(key, "parallel.pp") ||
           !strcmp(key, "parallel.split");
}

static bool shards_pinned(const struct ls_config *config, const char *key)
{
    return stages_pinned(config, key) || !strcmp(key, "parallel.zero") ||
           !strcmp(key, "parallel.tp");
}

/* Bounds where weights are frozen: of a first block that takes most, of a model of one block, of
 * more kinds of blocks than are told apart; on a slow link, of shards of which some are gathered in
 * the forward alone. */
CASE(test_bounds_of_frozen_blocks)
{
    static const struct {
        const char *keys[5];
        int pp; /* 1: shards on a slow link */
    } cases[] = {
        {{"train.frozen=h.[12345].*", "model.vocab=8192", "model.layers=6", "batch.global=64"}, 8},
        {{"train.frozen=h.0.*", "model.layers=1"}, 2},
        {{"train.frozen=h.0.*,h.2.*,h.3.*weight,h.4.attn*,h.5.mlp*,h.6.*bias,h.7.attn.k*,"
          "h.8.attn.q*,h.9.attn.v*",
          "model.layers=10"},
         4},
        {{"train.frozen=wte.*,wpe.*,h.[0123].*", "model.layers=6", "parallel.zero=3"}, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_config config;
        struct ls_error error = {0};
        struct ls_search search;
        drawn = 5;
        struct ls_cluster cluster = cluster_draw();
        const char *figures[] = {"accelerators", "link.near.bandwidth", "link.far.bandwidth"};
        for (int k = 0; k < (cases[i].pp == 1 ? 3 : 1); k++)
            assert_ok(ls_cluster_set(&cluster, figures[k], k ? "10 MB/s" : "4", &error), error);
        cluster.accelerator.memory_bytes = 1e12;
        ls_config_defaults(&config);
        set(&config, "model.vocab=257");
        set(&config, "model.channels=512");
        set(&config, "model.heads=4");
        set(&config, "model.context=256");
        set(&config, "data.sequence=256");
        set(&config, "batch.global=8");
        set(&config, "numerics.leaf_sequences=1");
        set(&config, "parallel.pp=%d", cases[i].pp);
        for (int k = 0; cases[i].keys[k]; k++)
            set(&config, "%s", cases[i].keys[k]);
        assert_ok(ls_config_resolve(&config, 257, &error), error);
        const struct ls_search_options options = {.config = &config,
                                                  .cluster = &cluster,
                                                  .accelerators = ls_max(cases[i].pp, 4),
                                                  .top = 1,
                                                  .pinned = cases[i].pp == 1 ? shards_pinned
                                                                             : stages_pinned,
                                                  .exhaustive = true};
        assert_ok(ls_search_run(&options, &search, &error), error);
        printf("%s: bounds are at most %.3f\n", cases[i].keys[0], search.bound_share);
        assert_true(search.bound_share > 0.2 && search.bound_share <= 1 + 1e-9);
        ls_search_release(&search);
        ls_cluster_release(&cluster);
    }
}

static double longer = 1; /* a schedule's time times this */

WRAPPED(ls_schedule_simulate);
int __wrap_ls_schedule_simulate(const struct ls_schedule *schedule,
                                const struct ls_schedule_costs *costs,
                                struct ls_schedule_figures *figures, struct ls_error *error)
{
    int status = __real_ls_schedule_simulate(schedule, costs, figures, error);
    figures->makespan *= longer;
    return status;
}

/* The broken twin: bounds of pipelines that are 10 % too high. */
CASE(test_a_bound_that_is_too_high_is_seen)
{
    double share[2] = {0};
    for (int broken = 0; broken < 2; broken++) {
        longer = broken ? 1.1 : 1;
        drawn = 1;
        for (int i = 0; i < 6; i++) {
            struct ls_cluster cluster = cluster_draw();
            struct ls_config config = recipe_draw();
            const struct ls_search_options options = {.config = &config,
                                                      .cluster = &cluster,
                                                      .top = 1,
                                                      .pinned = memory_pinned,
                                                      .exhaustive = true};
            struct ls_search search;
            if (!ls_search_run(&options, &search, NULL))
                share[broken] = fmax(share[broken], search.bound_share);
            ls_search_release(&search);
            ls_cluster_release(&cluster);
        }
    }
    longer = 1;
    printf("bounds are at most %.3f of what layouts take, broken ones %.3f\n", share[0], share[1]);
    assert_true(share[0] > 0.9 && share[0] <= 1 && share[1] > 1);
}

/* A model of today on hundreds of accelerators is proven by few simulations, in seconds. */
CASE(test_a_large_model_is_proven)
{
    struct ls_cluster cluster;
    struct ls_config config;
    struct ls_error error = {0};
    struct ls_search search;
    if (!check_all())
        return; /* 4 s */
    ls_config_defaults(&config);
    if (ls_cluster_read("clusters/h100-2048.yaml", &cluster, &error) ||
        ls_config_load_file(&config, "configs/llama-70b.yaml", &error) ||
        ls_config_resolve(&config, 128256, &error))
        fail_msg("%s", error.text);
    const struct ls_search_options options = {
        .config = &config, .cluster = &cluster, .accelerators = 256, .top = 1};
    assert_ok(ls_search_run(&options, &search, &error), error);
    print_message("%ld candidates, %ld simulated\n", (long)search.candidates,
                  (long)search.simulated);
    assert_int_equal(search.unproven, 0);
    assert_true(search.candidates > 5000 && search.simulated < 20);
    assert_true(search.plans[0].bound_s <= search.plans[0].forecast.step_s);
    ls_search_release(&search);
    ls_cluster_release(&cluster);
}

/* ---- limits --------------------------------------------------------------------------------- */

static bool turned; /* the clock shows how many ranks were recorded */
static double recorded_ranks;

WRAPPED(ls_now_s);
double __wrap_ls_now_s(void)
{
    return turned ? recorded_ranks : __real_ls_now_s();
}

static int64_t most = INT64_MAX;    /* layers times stages of a layout that can be simulated */
static int64_t threads_least;       /* of a rank that can be */
static int too_much;                /* so often there were more, */
static int too_much_most = INT_MAX; /* and so often are there at most */

WRAPPED(ls_record_works);
int __wrap_ls_record_works(const struct ls_config *config, const struct ls_layout *layout,
                           int64_t rank, struct ls_recording *recording, int64_t *second_at,
                           struct ls_error *error)
{
    recorded_ranks++;
    if (config->parallel.threads < threads_least)
        return ls_error_set(error, LS_ENOTSUP, "it has too few threads");
    if (layout->model.layers * layout->size[LS_AXIS_PP] > most && too_much < too_much_most) {
        too_much++;
        return ls_error_set(error, LS_ENOTSUP, "a rank does too much");
    }
    return __real_ls_record_works(config, layout, rank, recording, second_at, error);
}

/* A limit holds in the midst of a simulation, too. */
CASE(test_a_search_ends_in_time)
{
    int64_t early = 0;
    double all = 0;
    struct ls_cluster cluster;
    struct ls_config config = case_draw(3, &cluster);
    config.parallel.pp = 2;
    turned = true;
    for (int limit = 0; limit < 30; limit++) {
        const struct ls_search_options options = {.config = &config,
                                                  .cluster = &cluster,
                                                  .top = 1,
                                                  .pinned = stages_pinned,
                                                  .seconds = limit ? all - limit : 0};
        struct ls_search search;
        recorded_ranks = 0;
        assert_int_equal(ls_search_run(&options, &search, NULL), LS_OK);
        all = limit ? all : recorded_ranks;
        early += search.unproven > 0;
        ls_search_release(&search);
        if (limit && recorded_ranks > options.seconds + 1)
            fail_msg("of %g ranks at most %g were to be recorded, and %g were", all,
                     options.seconds, recorded_ranks);
    }
    turned = false;
    printf("%g ranks recorded, and the best unproven with %ld limits\n", all, (long)early);
    assert_in_range(early, 10, 29);
    ls_cluster_release(&cluster);
}

/* With more forecasts the best is no worse, and at last it is proven to be the best. */
CASE(test_a_search_ends_after_so_many_forecasts)
{
    struct ls_cluster cluster;
    struct ls_config config = case_draw(3, &cluster);
    double before_s = INFINITY;
    int64_t early = 0;
    bool proven = false;
    for (int limit = 1; !proven; limit *= 2) {
        const struct ls_search_options options = {.config = &config,
                                                  .cluster = &cluster,
                                                  .top = 1,
                                                  .pinned = stages_pinned,
                                                  .forecasts = limit};
        struct ls_search search;
        assert_int_equal(ls_search_run(&options, &search, NULL), LS_OK);
        double best_s = search.plans[0].forecast.step_s;
        if (search.simulated > limit || best_s > before_s)
            fail_msg("of at most %d layouts %ld were simulated: a step takes %g s, before %g s",
                     limit, (long)search.simulated, best_s, before_s);
        before_s = best_s;
        proven = !search.unproven;
        early += !proven;
        ls_search_release(&search);
    }
    assert_true(early > 0);
    ls_cluster_release(&cluster);
}

static bool stage_pinned(const struct ls_config *config, const char *key)
{
    return !strcmp(key, "parallel.pp");
}

/* Cores in hosts: a rank has as many as it has threads. */
static struct ls_cluster cores(int hosts, int each, const char *memory)
{
    char text[512];
    struct ls_cluster cluster;
    struct ls_error error = {0};
    snprintf(text, sizeof text,
             "name: cores\nhosts: %d\naccelerators: %d\naccelerator: {name: core, is_core: 1, "
             "peak: {bf16: 1 GFLOP/s}, memory: %s, bandwidth: 1 GB/s}\nlinks:\n"
             "  - {name: near, joins: %d, latency: 1 us, bandwidth: 1 GB/s}\n",
             hosts, each, memory, hosts * each);
    assert_ok(ls_cluster_read_text("cores", text, strlen(text), &cluster, &error), error);
    return cluster;
}

/* A plan's keys are the layout that was forecast, threads of its ranks with it. */
CASE(test_a_plan_has_its_threads)
{
    struct ls_cluster none, cluster = cores(2, 4, "1 GiB");
    struct ls_config config = case_draw(3, &none), applied;
    struct ls_error error = {0};
    struct ls_search search;
    struct ls_layout layout;
    struct ls_forecast f;
    for (int goal = LS_GOAL_TIME; goal <= LS_GOAL_COST; goal++) {
        const struct ls_search_options options = {.config = &config,
                                                  .cluster = &cluster,
                                                  .goal = (enum ls_goal)goal,
                                                  .accelerators = 4,
                                                  .top = 4,
                                                  .pinned = memory_pinned};
        const struct ls_forecast_ask ask = {
            .config = &applied, .layout = &layout, .cluster = &cluster, .extend = true};
        assert_ok(ls_search_run(&options, &search, &error), error);
        for (int i = 0; i < search.count; i++) {
            const struct ls_search_plan *plan = &search.plans[i];
            applied = config;
            assert_ok(ls_search_apply(plan, &applied, &error), error);
            assert_ok(ls_config_layout(&applied, 0, &layout, &error), error);
            assert_ok(ls_forecast_make(&ask, &f, &error), error);
            assert_true(plan->forecast.ranks * plan->forecast.accelerators <= 4);
            if (f.accelerators != plan->forecast.accelerators || f.step_s != plan->forecast.step_s)
                fail_msg("%s: %g s with %d threads, applied %g s with %d", plan->keys,
                         plan->forecast.step_s, plan->forecast.accelerators, f.step_s,
                         f.accelerators);
        }
        ls_search_release(&search);
    }
    ls_cluster_release(&none);
    ls_cluster_release(&cluster);
}

/* On a host with very many cores there are thousands of cuts: each number of threads, tp,
 * micro-batch and recomputation. The last ones are looked at too, which alone can be simulated. */
CASE(test_every_cut_is_looked_at)
{
    struct ls_cluster cluster = cores(1, 5040, "1 GiB");
    struct ls_config config;
    struct ls_error error = {0};
    struct ls_search search;
    ls_config_defaults(&config);
    set(&config, "model.vocab=257");
    set(&config, "model.layers=2");
    set(&config, "model.channels=576");
    set(&config, "model.heads=72");
    set(&config, "data.sequence=256");
    set(&config, "model.context=256");
    set(&config, "batch.global=80640");
    set(&config, "numerics.mode=fast");
    assert_ok(ls_config_resolve(&config, 257, &error), error);
    const struct ls_search_options options = {
        .config = &config, .cluster = &cluster, .forecasts = 1, .pinned = stage_pinned};
    recorded_ranks = 0;
    threads_least = 2520; /* a rank may have 4096 */
    int status = ls_search_run(&options, &search, &error);
    threads_least = 0;
    printf("%g samples, and layouts of two ranks\n", recorded_ranks);
    assert_ok(status, error);
    assert_int_equal(search.plans[0].forecast.accelerators, 2520);
    assert_true(recorded_ranks > 4096);
    ls_search_release(&search);
    ls_cluster_release(&cluster);
}

/* ---- laws ------------------------------------------------------------------------------------ */

static double best_of(const struct ls_config *config, const struct ls_cluster *cluster)
{
    const struct ls_search_options options = {.config = config, .cluster = cluster, .top = 1};
    struct ls_search search;
    double best =
        ls_search_run(&options, &search, NULL) ? INFINITY : search.plans[0].forecast.step_s;
    ls_search_release(&search);
    return best;
}

/* A better cluster never makes the best plan slower, and more memory never makes one infeasible. */
CASE(test_better_is_never_worse)
{
    static const char *const changes[][2] = {
        {"link.far.bandwidth", "1 TB/s"},    {"link.near.bandwidth", "1 TB/s"},
        {"link.far.latency", "0 s"},         {"accelerator.memory", "64 GiB"},
        {"accelerator.bandwidth", "1 TB/s"}, {"accelerator.peak.bf16", "1 PFLOP/s"}};
    drawn = 7;
    for (int i = 0; i < 12 / check_every(6, 6); i++) {
        struct ls_cluster cluster = cluster_draw();
        struct ls_config config = recipe_draw();
        double before = best_of(&config, &cluster);
        for (size_t c = 0; c < sizeof changes / sizeof *changes; c++) {
            struct ls_error error = {0};
            assert_ok(ls_cluster_set(&cluster, changes[c][0], changes[c][1], &error), error);
            double after = best_of(&config, &cluster);
            if (after > before * (1 + 1e-6))
                fail_msg("case %d: %s = %s: %g s, %g s before", i, changes[c][0], changes[c][1],
                         after, before);
            before = after;
        }
        ls_cluster_release(&cluster);
    }
}

/* ---- forecasts ------------------------------------------------------------------------------- */

static int64_t longest; /* micro-batches of a step that was simulated */

WRAPPED(ls_simulation_new);
int __wrap_ls_simulation_new(const struct ls_layout *layout, const struct ls_pace *pace,
                             struct ls_simulation **out, struct ls_error *error)
{
    longest = ls_max(longest, layout->micro_batches);
    return __real_ls_simulation_new(layout, pace, out, error);
}

/* The step of a drawn case whose head takes more time than a stage has otherwise, by its seed. */
static void step_forecast(int seed, const char *const keys[3], bool extend,
                          struct ls_forecast *forecast)
{
    struct ls_cluster cluster;
    struct ls_config config = case_draw((uint64_t)seed * 1000, &cluster);
    struct ls_error error = {0};
    struct ls_layout layout;
    assert_int_equal(ls_cluster_set(&cluster, "accelerators", "4", &error), LS_OK);
    set(&config, "model.layers=14");
    set(&config, "model.vocab=%d", 300 * seed);
    set(&config, "batch.global=96");
    set(&config, "batch.micro=1");
    for (int k = 0; k < 3; k++)
        set(&config, "%s", keys[k]);
    if (ls_config_resolve(&config, 257, &error) || ls_config_layout(&config, 0, &layout, &error))
        fail_msg("%s", error.text);
    struct ls_forecast_ask ask = {
        .config = &config, .layout = &layout, .cluster = &cluster, .extend = extend};
    assert_ok(ls_forecast_make(&ask, forecast, &error), error);
    double spent = forecast->compute_s, passes = 0;
    for (int account = 0; account < LS_ACCOUNTS; account++)
        spent += forecast->exposed_s[account];
    for (int pass = 0; pass < LS_WORK_PASSES; pass++)
        passes += forecast->pass_s[pass];
    assert_true(extend || fabs(passes / spent - 1) < 1e-9);
    ls_cluster_release(&cluster);
}

/* Steps of many micro-batches are forecast from shorter ones, most of those too whose first
 * micro-batches do not lie on the line. */
CASE(test_longer_steps_go_on_in_a_line)
{
    static const char *const layouts[][3] = {
        {"parallel.pp=1", "parallel.dp_shard=2", "parallel.zero=2"},
        {"parallel.pp=2", "parallel.dp_shard=1", "parallel.schedule=1f1b"},
        {"parallel.pp=2", "parallel.tp=2", "parallel.schedule=zb-h1"},
        {"parallel.pp=2", "parallel.chunks=2", "parallel.schedule=interleaved"},
        {"parallel.pp=4", "parallel.chunks=2", "parallel.schedule=interleaved"},
    };
    enum { LAYOUTS = sizeof layouts / sizeof *layouts, SEEDS = 24 };
    int near = 0, cases = 0, again = 0;
    double worst = 0;
    for (int i = 0; i < LAYOUTS * SEEDS; i += check_every(5, 5)) {
        struct ls_forecast whole, line;
        step_forecast(1 + i % SEEDS, layouts[i / SEEDS], false, &whole);
        int64_t all = longest;
        longest = 0;
        step_forecast(1 + i % SEEDS, layouts[i / SEEDS], true, &line);
        again += longest == all;
        longest = 0;
        double off =
            fmax(fabs(line.step_s / whole.step_s - 1), fabs(line.compute_s / whole.compute_s - 1));
        near += off < 0.005;
        cases++;
        worst = fmax(worst, off);
    }
    printf("%d of %d within 0.5 %%, the worst %.1f %% off; %d simulated whole\n", near, cases,
           100 * worst, again);
    if (near < cases * 98 / 100 || worst > 0.02)
        fail_msg("%d of %d are near, the worst is %g off", near, cases, worst);
    assert_in_range(again, 0, cases / 16);
}

/* All works take as long as on the slowest: of the layout's accelerators, or of as many as asked.
 */
CASE(test_the_slowest_sets_the_pace)
{
    double compute_s[3], slowest[3];
    struct ls_cluster cluster;
    struct ls_config config = case_draw(5, &cluster);
    struct ls_error error = {0};
    struct ls_layout layout;
    assert_ok(ls_config_layout(&config, 0, &layout, &error), error);
    for (int i = 0; i < 3; i++) {
        struct ls_forecast f;
        struct ls_forecast_ask ask = {
            .config = &config, .layout = &layout, .cluster = &cluster, .slowest_of = i ? 100 : 0};
        assert_ok(ls_cluster_set(&cluster, "accelerator.spread", i < 2 ? "0.1" : "0", &error),
                  error);
        assert_ok(ls_forecast_make(&ask, &f, &error), error);
        compute_s[i] = f.compute_s;
        slowest[i] = f.slowest;
    }
    assert_true(layout.ranks == 1 && slowest[0] == 1 && slowest[1] > 1.2 && slowest[2] == 1);
    assert_true(compute_s[0] == compute_s[2] && compute_s[0] > 0);
    assert_true(fabs(compute_s[1] / (compute_s[0] * slowest[1]) - 1) < 1e-9);
    ls_cluster_release(&cluster);
}

/* A budget does what accelerators of that much memory do, also if a file gives it. */
CASE(test_a_budget_is_a_limit_of_memory)
{
    struct ls_cluster cluster;
    struct ls_config config = case_draw(5, &cluster);
    struct ls_error error = {0};
    struct ls_search free_search, small, budget;
    struct ls_search_options options = {.config = &config, .cluster = &cluster, .top = 3};
    cluster.accelerator.memory_bytes = 1e12;
    assert_int_equal(ls_search_run(&options, &free_search, &error), LS_OK);
    config.memory.device_budget = (int64_t)free_search.plans[0].forecast.device_bytes - 1;
    assert_int_equal(ls_search_run(&options, &budget, &error), LS_OK);
    cluster.accelerator.memory_bytes = (double)config.memory.device_budget;
    config.memory.device_budget = 0;
    assert_int_equal(ls_search_run(&options, &small, &error), LS_OK);
    assert_int_equal(budget.count, small.count);
    for (int i = 0; i < budget.count; i++) {
        const struct ls_forecast *f = &budget.plans[i].forecast;
        assert_true(f->device_bytes < free_search.plans[0].forecast.device_bytes);
        assert_true(f->device_bytes == small.plans[i].forecast.device_bytes);
        assert_true(f->step_s == small.plans[i].forecast.step_s);
    }
    ls_search_release(&free_search);
    ls_search_release(&small);
    ls_search_release(&budget);
    ls_cluster_release(&cluster);
}

/* Of recipes with less state than all their parameters would have (optimizers, gradients and copies
 * in a tier, and adapters) the best that fits is found, where little fits. */
CASE(test_what_is_not_held_is_not_counted)
{
    static const char *const recipes[][3] = {
        {"memory.offload.optimizer=host"},
        {"memory.offload.optimizer=host", "numerics.precision=fp32"},
        {"memory.offload.optimizer=host", "memory.offload.parameters=host",
         "memory.offload.gradients=host"},
        {"lora.rank=2"},
        {"lora.rank=2", "lora.base=nf4"},
        {"lora.rank=2", "numerics.precision=fp32"}};
    static const char *const shape[] = {
        "model.vocab=257", "model.layers=2",   "model.channels=1024",
        "model.heads=4",   "model.context=64", "data.sequence=64",
        "batch.global=2",  "batch.micro=1",    "numerics.precision=bf16"};
    drawn = 5;
    struct ls_cluster cluster = cluster_draw();
    cluster.host_memory_bytes = 1e12;
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i += (size_t)check_every(2, 2)) {
        struct ls_config config;
        struct ls_error error = {0};
        struct ls_search search;
        ls_config_defaults(&config);
        for (size_t k = 0; k < sizeof shape / sizeof *shape; k++)
            set(&config, "%s", shape[k]);
        for (int k = 0; k < 3 && recipes[i][k]; k++)
            set(&config, "%s", recipes[i][k]);
        assert_ok(ls_config_resolve(&config, 257, &error), error);
        struct ls_search_options options = {.config = &config,
                                            .cluster = &cluster,
                                            .goal = LS_GOAL_MEMORY,
                                            .accelerators = 2,
                                            .top = 4,
                                            .pinned = memory_pinned};
        cluster.accelerator.memory_bytes = 1e12;
        assert_ok(ls_search_run(&options, &search, &error), error);
        cluster.accelerator.memory_bytes = 1.2 * search.plans[0].forecast.device_bytes;
        ls_search_release(&search);
        options.goal = LS_GOAL_TIME;
        both_compare((int)i, options);
    }
    ls_cluster_release(&cluster);
}

/* Stages of the user's with few blocks where most micro-batches are kept: what fits is found. */
CASE(test_stages_that_fit)
{
    struct ls_cluster cluster;
    struct ls_config config = case_draw(5, &cluster);
    struct ls_error error = {0};
    struct ls_layout layout;
    struct ls_forecast f;
    assert_ok(ls_cluster_set(&cluster, "accelerators", "2", &error), error);
    set(&config, "model.layers=12");
    set(&config, "model.context=1024");
    set(&config, "data.sequence=1024");
    set(&config, "batch.global=8");
    set(&config, "batch.micro=1");
    set(&config, "parallel.pp=4");
    set(&config, "parallel.tp=1");
    set(&config, "parallel.schedule=1f1b");
    set(&config, "parallel.split=0-1,2-3,4-6,7-13");
    assert_ok(ls_config_resolve(&config, 257, &error), error);
    assert_ok(ls_config_layout(&config, 0, &layout, &error), error);
    const struct ls_forecast_ask ask = {.config = &config, .layout = &layout, .cluster = &cluster};
    assert_ok(ls_forecast_make(&ask, &f, &error), error);
    cluster.accelerator.memory_bytes = f.device_bytes;
    both_compare(
        0, (struct ls_search_options){
               .config = &config, .cluster = &cluster, .top = 4, .pinned = ls_config_is_given});
    ls_cluster_release(&cluster);
}

/* ZeRO that is pinned is planned where a run takes it: none over shards or cp, some on one rank. */
CASE(test_zero_that_is_pinned)
{
    static const struct {
        const char *keys[3];
        int accelerators;
    } cases[] = {{{"parallel.zero=0", "parallel.dp_shard=2"}, 2},
                 {{"parallel.zero=0", "parallel.dp_shard=2", "parallel.dp_replicate=2"}, 4},
                 {{"parallel.zero=0", "parallel.cp=2"}, 4},
                 {{"parallel.zero=1", "parallel.tp=1"}, 1},
                 {{"parallel.zero=1", "parallel.dp_replicate=2", "parallel.dp_shard=1"}, 2}};
    enum { CASES = sizeof cases / sizeof *cases, SEEDS = 4 };
    for (int i = 0; i < CASES * SEEDS; i++) {
        struct ls_cluster cluster;
        struct ls_config config = case_draw((uint64_t)(1 + i / CASES), &cluster);
        struct ls_error error = {0};
        assert_ok(ls_cluster_set(&cluster, "accelerators", "2", &error), error);
        cluster.accelerator.memory_bytes = 1e12;
        set(&config, "memory.recompute=none");
        set(&config, "memory.offload.optimizer=none");
        set(&config, "numerics.mode=ordered");
        set(&config, "numerics.seq_tiles=2");
        for (int k = 0; k < 3 && cases[i % CASES].keys[k]; k++)
            set(&config, "%s", cases[i % CASES].keys[k]);
        assert_ok(ls_config_resolve(&config, 257, &error), error);
        both_compare(i, (struct ls_search_options){.config = &config,
                                                   .cluster = &cluster,
                                                   .accelerators = cases[i % CASES].accelerators,
                                                   .top = 4,
                                                   .pinned = ls_search_given});
        ls_cluster_release(&cluster);
    }
}

/* A host has room for what the ranks in it offload, fewer than its accelerators or as many: those
 * of all groups. */
CASE(test_a_host_holds_what_its_ranks_offload)
{
    static const int cases[][2] = {{1, 1}, {1, 2}, {1, 4}, {2, 1}, {4, 1}, {4, 2}}; /* groups, dp */
    struct ls_cluster cluster;
    struct ls_config config = case_draw(5, &cluster);
    struct ls_error error = {0};
    struct ls_layout layout;
    assert_ok(ls_cluster_set(&cluster, "accelerators", "4", &error), error);
    cluster.accelerator.memory_bytes = 1e12;
    set(&config, "memory.offload.optimizer=host");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_forecast f;
        int groups = cases[i][0], ranks = (int)ls_min(groups * cases[i][1], 4);
        if (groups > 1) {
            set(&config, "async.mode=diloco");
            set(&config, "async.workers=%d", groups);
            set(&config, "parallel.workers=%d", groups);
        }
        set(&config, "parallel.dp=%d", cases[i][1]);
        if (ls_config_resolve(&config, 257, &error) ||
            ls_config_layout(&config, 0, &layout, &error))
            fail_msg("%s", error.text);
        struct ls_forecast_ask ask = {.config = &config, .layout = &layout, .cluster = &cluster};
        assert_ok(ls_forecast_make(&ask, &f, &error), error);
        for (int more = 0; more < 2; more++) {
            cluster.host_memory_bytes = ranks * f.tier_bytes[LS_TIER_HOST] - 1 + more;
            struct ls_forecast again;
            assert_ok(ls_forecast_make(&ask, &again, &error), error);
            assert_true(again.fits == (more == 1));
        }
    }
    ls_cluster_release(&cluster);
}

/* The cheapest plan that is in time is the cheapest of all that are; if none is, that is told. */
CASE(test_plans_are_in_time)
{
    struct ls_cluster cluster;
    struct ls_config config = case_draw(3, &cluster);
    struct ls_error error = {0};
    struct ls_search_options options = {.config = &config,
                                        .cluster = &cluster,
                                        .goal = LS_GOAL_COST,
                                        .top = LS_SEARCH_TOP_MAX,
                                        .pinned = stages_pinned,
                                        .exhaustive = true};
    struct ls_search all, search;
    config.parallel.pp = 1;
    cluster.accelerator.memory_bytes = 1e12;
    assert_ok(ls_search_run(&options, &all, &error), error);
    options.exhaustive = false;
    double fastest_s = INFINITY, slowest_s = 0;
    for (int i = 0; i < all.count; i++) {
        fastest_s = fmin(fastest_s, 86400 * all.plans[i].forecast.run.days);
        slowest_s = fmax(slowest_s, 86400 * all.plans[i].forecast.run.days);
    }
    for (int i = 0; i < all.count; i += check_every(8, 8)) {
        int best = 0;
        options.within_s = 86400 * all.plans[i].forecast.run.days;
        while (86400 * all.plans[best].forecast.run.days > options.within_s)
            best++;
        assert_ok(ls_search_run(&options, &search, &error), error);
        assert_true(86400 * search.plans[0].forecast.run.days <= options.within_s);
        assert_true(value_of(LS_GOAL_COST, &search.plans[0].forecast) <=
                    value_of(LS_GOAL_COST, &all.plans[best].forecast) * (1 + 1e-9));
        ls_search_release(&search);
    }
    options.within_s = fastest_s / 2;
    assert_int_equal(ls_search_run(&options, &search, &error), LS_ELAYOUT);
    assert_text_contains(error.text, "no layout that fits ends the training within");
    assert_text_contains(error.text, ": it takes ");
    printf("%d plans, from %g to %g s\n", all.count, fastest_s, slowest_s);
    assert_true(all.count > 2 && slowest_s > fastest_s && search.least_s > options.within_s);
    ls_search_release(&search);
    ls_search_release(&all);
    ls_cluster_release(&cluster);
}

/* A search that is to end at its first forecast or, by a clock that each recorded rank turns, soon.
 */
static int search_limited(struct ls_search_options options, bool by_time, struct ls_search *search,
                          struct ls_error *error)
{
    options.forecasts = by_time ? 0 : 1;
    options.seconds = by_time ? 0.5 : 0;
    recorded_ranks = 0;
    turned = true;
    int status = ls_search_run(&options, search, error);
    turned = false;
    return status;
}

/* A limit of the search counts once eight layouts were simulated that are not in time. Those that
 * are late by their bounds alone do not end it. */
CASE(test_limits_and_a_time)
{
    static const struct {
        double share; /* of the time that the fastest training takes */
        int64_t simulated;
        const char *says;
    } cases[] = {{0.1, 0, "no layout that fits ends the training within"},
                 {0.9, 8, "was found before the search reached its limit, with "},
                 {1.1, 1, NULL},
                 {4, 1, NULL}};
    struct ls_cluster cluster;
    struct ls_config config = case_draw(3, &cluster);
    struct ls_error error = {0};
    struct ls_search_options options = {
        .config = &config, .cluster = &cluster, .top = 1, .pinned = memory_pinned};
    struct ls_search best, search;
    cluster.accelerator.memory_bytes = 1e12;
    options.forecasts = 1;
    assert_ok(ls_search_run(&options, &best, &error), error);
    options.goal = LS_GOAL_COST;
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        options.within_s = 86400 * best.plans[0].forecast.run.days * cases[i / 2].share;
        int status = search_limited(options, i % 2, &search, &error);
        assert_int_equal(status, cases[i / 2].says ? LS_ELAYOUT : LS_OK);
        assert_int_equal(search.simulated, cases[i / 2].simulated);
        assert_true((search.unproven > 0) == (cases[i / 2].simulated > 0));
        if (status)
            assert_text_contains(error.text, cases[i / 2].says);
        ls_search_release(&search);
    }
    ls_search_release(&best);
    ls_cluster_release(&cluster);
}

/* Each candidate is refused, too large or simulated, once, also those that are not in time. */
CASE(test_each_candidate_is_judged_once)
{
    struct ls_cluster cluster;
    struct ls_config config = case_draw(3, &cluster);
    config.parallel.pp = 1;
    for (int i = 0; i < 8; i++) {
        bool fits = i & 1, exhaustive = i & 2, late = i & 4;
        const struct ls_search_options options = {.config = &config,
                                                  .cluster = &cluster,
                                                  .within_s = late ? 1e-6 : 0,
                                                  .top = 1,
                                                  .pinned = stages_pinned,
                                                  .exhaustive = exhaustive};
        struct ls_error error = {0};
        struct ls_search search;
        cluster.accelerator.memory_bytes = fits ? 1e12 : 1000;
        assert_int_equal(ls_search_run(&options, &search, &error),
                         fits && !late ? LS_OK : LS_ELAYOUT);
        if (exhaustive || !fits)
            assert_int_equal(search.refused + search.too_large + search.simulated,
                             search.candidates);
        if (!fits)
            assert_text_contains(error.text, "no layout fits: the one that takes least needs");
        else if (late)
            assert_text_contains(error.text, "no layout that fits ends the training within");
        ls_search_release(&search);
    }
    ls_cluster_release(&cluster);
}

/* Where no layout fits, that is told, also if all that nearly fit are late by their bounds. */
CASE(test_what_fits_in_no_time)
{
    struct ls_cluster cluster;
    struct ls_config config = case_draw(3, &cluster);
    struct ls_error error = {0};
    struct ls_search_options options = {.config = &config,
                                        .cluster = &cluster,
                                        .goal = LS_GOAL_MEMORY,
                                        .top = 1,
                                        .pinned = memory_pinned};
    struct ls_search search;
    cluster.accelerator.memory_bytes = 1e12;
    assert_ok(ls_search_run(&options, &search, &error), error);
    double least = search.plans[0].forecast.device_bytes;
    ls_search_release(&search);
    options.goal = LS_GOAL_TIME;
    options.within_s = 1e-6;
    for (int more = 0; more < 2; more++) {
        cluster.accelerator.memory_bytes = least - 1 + more;
        assert_int_equal(ls_search_run(&options, &search, &error), LS_ELAYOUT);
        assert_text_contains(error.text, more ? "no layout that fits ends the training within"
                                              : "no layout fits: the one that takes least needs");
        assert_true(search.simulated == 0 && (search.least_s > 0) == more);
        ls_search_release(&search);
    }
    ls_cluster_release(&cluster);
}

/* ---- refusals -------------------------------------------------------------------------------- */

/* A plan's keys are whole, however long: texts have up to 511 bytes each. */
CASE(test_a_plan_of_many_stages_is_whole)
{
    char split[LS_CONFIG_TEXT_BYTES] = "", recompute[LS_CONFIG_TEXT_BYTES] = "";
    struct ls_cluster cluster;
    struct ls_config config = case_draw(5, &cluster), applied;
    struct ls_error error = {0};
    struct ls_search search;
    for (int layer = 0; layer < 128; layer++)
        ls_string_add(split, sizeof split, ",", "%d", layer);
    for (int stage = 0; stage < 40; stage++)
        ls_string_add(recompute, sizeof recompute, ";", "full@%d", stage);
    assert_ok(ls_cluster_set(&cluster, "accelerators", "8", &error), error);
    cluster.accelerator.memory_bytes = 1e12;
    set(&config, "model.layers=126");
    set(&config, "batch.global=16");
    set(&config, "parallel.pp=16");
    set(&config, "parallel.chunks=8");
    set(&config, "parallel.schedule=interleaved");
    set(&config, "parallel.split=%s", split);
    set(&config, "memory.recompute=%s", recompute);
    assert_ok(ls_config_resolve(&config, 257, &error), error);
    const struct ls_search_options options = {
        .config = &config, .cluster = &cluster, .forecasts = 1, .pinned = ls_config_is_given};
    assert_ok(ls_search_run(&options, &search, &error), error);
    applied = config;
    assert_ok(ls_search_apply(&search.plans[0], &applied, &error), error);
    assert_string_equal(applied.parallel.split, split);
    assert_string_equal(applied.parallel.recompute, recompute);
    ls_search_release(&search);
    ls_cluster_release(&cluster);
}

/* Quotes keep what is in them together, and are none of it. */
CASE(test_keys_are_set)
{
    char word[LS_CONFIG_TEXT_BYTES * 6];
    struct ls_config config;
    struct ls_error error = {0};
    ls_config_defaults(&config);
    assert_ok(ls_search_keys_set(
                  &config, "pp=2,split=0-4,5-9 parallel.schedule_file=\"a b,c=d\",tp=4", &error),
              error);
    assert_int_equal(config.parallel.pp, 2);
    assert_string_equal(config.parallel.split, "0-4,5-9");
    assert_string_equal(config.parallel.schedule_file, "a b,c=d");
    assert_int_equal(config.parallel.tp, 4);
    /* In quotes a backslash escapes, as a plan's keys have it. */
    static const char path[] = "/a \\b\\\\u0041\"c, d=e\tf\\";
    const struct ls_search_plan plan = {.keys = "one rank"};
    assert_ok(ls_search_keys_set(&config,
                                 "memory.file=\"/a \\\\b\\\\\\\\u0041\\\"c, d=e\\u0009f\\\\\",tp=2",
                                 &error),
              error);
    assert_string_equal(config.memory.file, path);
    assert_int_equal(config.parallel.tp, 2);
    assert_ok(ls_search_apply(&plan, &config, &error), error);
    assert_string_equal(config.memory.file, path);
    /* Words, as a program gets them. */
    const char *keys =
        " memory.recompute=\"full@0;selective@1\"  memory.file=\"a b\" parallel.tp=2";
    static const char *const words[] = {"memory.recompute=full@0;selective@1", "memory.file=a b",
                                        "parallel.tp=2", "", ""};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        assert_ok(ls_search_word(&keys, word, &error), error);
        assert_string_equal(word, words[i]);
    }
    snprintf(word, sizeof word, "zero=%0*d", (int)sizeof word - 6, 3); /* it is not cut to 0 */
    assert_int_equal(ls_search_keys_set(&config, word, &error), LS_ECONFIG);
    assert_non_null(strstr(error.text, "zero=000"));
    assert_non_null(strstr(error.text, "expected a key with its value of at most 2559 bytes"));
}

static bool axes_pinned(const struct ls_config *config, const char *key)
{
    (void)config;
    return ls_word_among("parallel.pp|parallel.cp|parallel.tp", key);
}

static bool all_pinned(const struct ls_config *config, const char *key)
{
    (void)config;
    return strncmp(key, "parallel.", 9) == 0;
}

/* A rank is on one host: it has at most the cores of that, and their memory. */
CASE(test_a_rank_is_on_one_host)
{
    /* dp, threads, what a rank has */
    static const int cases[][3] = {{1, 0, 4}, {2, 0, 4}, {3, 0, 2}, {4, 0, 2},
                                   {8, 0, 1}, {1, 3, 3}, {2, 3, 3}, {1, 5, 0}};
    struct ls_cluster none, cluster = cores(2, 4, "1 GiB");
    struct ls_config config = case_draw(3, &none);
    struct ls_error error = {0};
    struct ls_layout layout;
    struct ls_search search;
    set(&config, "batch.global=24");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_forecast f;
        const struct ls_forecast_ask ask = {
            .config = &config, .layout = &layout, .cluster = &cluster};
        set(&config, "parallel.dp=%d", cases[i][0]);
        set(&config, "parallel.threads=%d", cases[i][1]);
        assert_ok(ls_config_layout(&config, 0, &layout, &error), error);
        int status = ls_forecast_make(&ask, &f, &error);
        assert_int_equal(status, cases[i][2] ? LS_OK : LS_ELAYOUT);
        if (!status && (f.accelerators != cases[i][2] || f.capacity_bytes != 0x1p30 * cases[i][2]))
            fail_msg("%d ranks have %d cores each and %g bytes", cases[i][0], f.accelerators,
                     f.capacity_bytes);
    }
    assert_text_contains(error.text, "parallel.threads = 5: a host has 4 cores and 1 rank; ");
    set(&config, "parallel.dp=1");
    const struct ls_search_options options = {
        .config = &config, .cluster = &cluster, .accelerators = 5, .pinned = all_pinned};
    assert_int_equal(ls_search_run(&options, &search, &error), LS_ELAYOUT);
    assert_text_contains(error.text, "with parallel.threads=5: a rank is on one host, which has 4 "
                                     "cores; expected 1");
    ls_search_release(&search);
    ls_cluster_release(&none);
    ls_cluster_release(&cluster);
}

/* What threads leave of a host's cores, no rank takes. */
CASE(test_threads_that_do_not_divide_a_host)
{
    struct ls_cluster none, cluster = cores(4, 6, "1 GiB");
    struct ls_config config = case_draw(3, &none);
    struct ls_error error = {0};
    struct ls_layout layout;
    struct ls_search search;
    struct ls_forecast f;
    const struct ls_forecast_ask ask = {.config = &config, .layout = &layout, .cluster = &cluster};
    struct ls_search_options options = {
        .config = &config, .cluster = &cluster, .pinned = ls_search_given};
    set(&config, "batch.global=24");
    set(&config, "parallel.threads=4");
    assert_int_equal(ls_search_run(&options, &search, &error), LS_ELAYOUT);
    assert_text_contains(error.text,
                         "for 24 accelerators with parallel.threads=4: a rank is on one "
                         "host, which has 6 cores, so there can be 4 such ranks, on 16 "
                         "cores; expected 1, 2, 3 or 6");
    ls_search_release(&search);
    options.accelerators = 16;
    assert_ok(ls_search_run(&options, &search, &error), error);
    assert_int_equal(search.plans[0].forecast.ranks, 4);
    ls_search_release(&search);
    set(&config, "parallel.dp=6");
    assert_ok(ls_config_layout(&config, 0, &layout, &error), error);
    assert_int_equal(ls_forecast_make(&ask, &f, &error), LS_ELAYOUT);
    assert_text_contains(error.text, "parallel.threads = 4: a host has 6 cores and 2 ranks; "
                                     "expected at most 3, or 0, ");
    ls_cluster_release(&none);
    ls_cluster_release(&cluster);
}

/* Where ranks have an accelerator each, parallel.threads are of their hosts' cores. */
CASE(test_threads_of_a_rank_with_an_accelerator)
{
    struct ls_cluster cluster;
    struct ls_config config = case_draw(3, &cluster);
    const struct ls_search_options options = {
        .config = &config, .cluster = &cluster, .pinned = ls_search_given};
    for (int threads = 0; threads <= 3; threads++) {
        struct ls_error error = {0};
        struct ls_search search;
        set(&config, "parallel.threads=%d", threads);
        assert_ok(ls_search_run(&options, &search, &error), error);
        assert_int_equal(search.plans[0].forecast.ranks, cluster.hosts * cluster.accelerators);
        ls_search_release(&search);
    }
    ls_cluster_release(&cluster);
}

CASE(test_what_is_refused)
{
    struct ls_cluster cluster;
    struct ls_config config = case_draw(5, &cluster);
    struct ls_error error = {0};
    struct ls_search search;
    struct ls_search_options options = {.config = &config, .cluster = &cluster, .top = 3};
    cluster.accelerator.memory_bytes = 1000; /* nothing fits */
    assert_int_equal(ls_search_run(&options, &search, &error), LS_ELAYOUT);
    assert_non_null(strstr(error.text, "no layout fits: the one that takes least needs"));
    assert_true(search.least_bytes > 1000 && search.capacity_bytes == 1000);
    ls_search_release(&search);
    cluster.accelerator.memory_bytes = 1e12;
    config.memory.device_budget = 1000;
    assert_int_equal(ls_search_run(&options, &search, &error), LS_ELAYOUT);
    assert_non_null(strstr(error.text, "raise memory.device_budget"));
    assert_true(search.capacity_bytes == 1000);
    ls_search_release(&search);
    config.memory.device_budget = 0;
    options.accelerators = 1 + cluster.hosts * cluster.accelerators;
    assert_int_equal(ls_search_run(&options, &search, &error), LS_ELAYOUT);
    assert_non_null(strstr(error.text, "the cluster has"));
    ls_search_release(&search);
    options.accelerators = 0;
    options.pinned = all_pinned;
    config.parallel.tp = 3;
    assert_int_equal(ls_search_run(&options, &search, &error), LS_ELAYOUT);
    assert_non_null(strstr(error.text, "admits no layout"));
    ls_search_release(&search);
    cluster.hosts = INT64_C(1) << 40; /* not all of their numbers are tried */
    options.accelerators = 16;
    options.pinned = axes_pinned;
    config.parallel.tp = 1;
    config.batch.global = 8;
    assert_int_equal(ls_search_run(&options, &search, &error), LS_ELAYOUT);
    assert_text_contains(error.text, "admits no layout for 16 accelerators, but for 8: ");
    ls_search_release(&search);
    ls_cluster_release(&cluster);
}

/* Where the axes have layouts and the recipe admits none, what it says of the plainest is told. */
CASE(test_what_the_recipe_does_not_admit)
{
    static const char *const cases[][2] = {
        {"parallel.split=0-1,2", "refused: command line: parallel.split = 0-1,2: it ends at "},
        {"parallel.schedule=csv", "refused: default: parallel.schedule_file = \"\": "},
        {"memory.offload.gradients=file", "file needs memory.file"}, /* of each block */
        {"memory.recompute=99", "there is no block 99"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_cluster cluster;
        struct ls_config config = case_draw(3, &cluster);
        struct ls_error error = {0};
        struct ls_search search;
        set(&config, "parallel.pp=2");
        set(&config, "%s", cases[i][0]);
        const struct ls_search_options options = {
            .config = &config, .cluster = &cluster, .pinned = ls_search_given};
        assert_int_equal(ls_search_run(&options, &search, &error), LS_ELAYOUT);
        assert_text_contains(error.text, cases[i][1]);
        ls_search_release(&search);
        ls_cluster_release(&cluster);
    }
}

/* Stages are as many as parallel.split has parts, where nobody says how many. */
CASE(test_a_split_has_the_stages)
{
    static const struct {
        const char *split;
        int accelerators, stages;
        const char *why;
    } cases[] = {{"0-1,2-3,4-5", 3, 3, NULL},
                 {"0-1,2-3,4-5", 6, 3, NULL},
                 {"0-1,2,3,4-5", 2, 4, NULL}, /* of two chunks */
                 {"0-1,2-3,4-5", 4, 0,
                  "for 4 accelerators, but for 3 and 6: their number has to "
                  "be a product of stages (parallel.split has 3), "},
                 {"0-1,2-3,4", 3, 0, "parallel.split = 0-1,2-3,4: it ends at layer 4, and the "},
                 {"0-4", 4, 0, "parallel.split = 0-4: it ends at layer 4, and the last is 5"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_cluster none, cluster = cores(1, 8, "1 GiB");
        struct ls_config config = case_draw(3, &none), applied;
        struct ls_error error = {0};
        struct ls_search search;
        struct ls_layout layout;
        set(&config, "model.layers=4");
        set(&config, "batch.global=24");
        set(&config, "parallel.threads=1");
        set(&config, "parallel.split=%s", cases[i].split);
        applied = config;
        const struct ls_search_options options = {.config = &config,
                                                  .cluster = &cluster,
                                                  .accelerators = cases[i].accelerators,
                                                  .pinned = ls_search_given};
        int status = ls_search_run(&options, &search, &error);
        assert_int_equal(status, cases[i].why ? LS_ELAYOUT : LS_OK);
        if (cases[i].why) {
            assert_text_contains(error.text, cases[i].why);
        } else {
            assert_ok(ls_search_apply(&search.plans[0], &applied, &error), error);
            assert_ok(ls_config_layout(&applied, 0, &layout, &error), error);
            assert_int_equal(layout.stages, cases[i].stages);
        }
        ls_search_release(&search);
        ls_cluster_release(&none);
        ls_cluster_release(&cluster);
    }
}

/* A layout that cannot be simulated is passed over; the samples of its blocks can be. */
CASE(test_what_cannot_be_simulated)
{
    struct ls_cluster cluster;
    struct ls_config config = case_draw(3, &cluster);
    const struct ls_search_options options = {.config = &config,
                                              .cluster = &cluster,
                                              .top = 3,
                                              .pinned = memory_pinned,
                                              .exhaustive = true};
    struct ls_error error = {0};
    struct ls_search some, none;
    config.model.layers = 4;
    most = 4; /* one stage */
    assert_ok(ls_search_run(&options, &some, &error), error);
    most = 3;
    assert_int_equal(ls_search_run(&options, &none, &error), LS_ELAYOUT);
    most = INT64_MAX;
    assert_text_contains(error.text, "no layout can be simulated: a rank does too much");
    assert_true(some.simulated > 0 && some.refused > 0 && none.simulated == 0);
    assert_int_equal(some.simulated + some.refused, none.refused);
    ls_search_release(&some);
    ls_search_release(&none);
    cluster.host_memory_bytes = 0; /* there are others then, that do not fit */
    most = 3;
    const struct ls_search_options larger = {.config = &config, .cluster = &cluster};
    assert_int_equal(ls_search_run(&larger, &none, &error), LS_ELAYOUT);
    most = INT64_MAX;
    assert_true(none.too_large > 0);
    assert_text_contains(error.text, "no layout that fits can be simulated: a rank does too much");
    ls_search_release(&none);
    ls_cluster_release(&cluster);
}

/* Limits hold although nothing is found, by forecasts and by time, but not before eight layouts
 * could not be simulated: the one behind seven is found. */
CASE(test_limits_where_nothing_can_be_simulated)
{
    struct ls_cluster cluster;
    struct ls_config config = case_draw(3, &cluster);
    config.model.layers = 4;
    const struct ls_search_options options = {
        .config = &config, .cluster = &cluster, .top = 3, .pinned = memory_pinned};
    for (int i = 0; i < 4; i++) {
        bool found = i / 2;
        struct ls_error error = {0};
        struct ls_search search;
        too_much = 0;
        most = 3;
        too_much_most = found ? 7 : INT_MAX;
        int status = search_limited(options, i % 2, &search, &error);
        most = INT64_MAX;
        too_much_most = INT_MAX;
        assert_int_equal(status, found ? LS_OK : LS_ELAYOUT);
        assert_int_equal(search.simulated, found);
        assert_int_equal(too_much, found ? 7 : 8);
        assert_true(search.unproven > 0);
        if (!found)
            assert_text_contains(error.text, "left: 8 cannot be simulated, the last as a rank does "
                                             "too much");
        ls_search_release(&search);
    }
    ls_cluster_release(&cluster);
}

SUITE_MAIN(NULL, NULL)
