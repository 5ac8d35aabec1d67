/* Recordings against a clock: schedules take the time that their tables say, laws of more and less
 * hold, and a clock that forgets to wait is seen. */
#include "../support/suite.h"
#include "layouts.h"

#include <lockstep/plan/simulate.h>
#include <lockstep/train/recorded.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a pace of whole seconds ----------------------------------------------------------------- */

/* Each product of a block takes as long as its kind says; all else takes no time, but moves of the
 * accounts. */
struct seconds {
    const struct ls_layout *layout;
    double product[3]; /* forward, input, weight */
    double move[LS_ACCOUNTS];
    double transfer; /* of a tier */
    double overlap, message_overlap;
    double units;  /* that a move takes */
    bool one_link; /* of all accounts; else each has its own */
};

static struct ls_work_time work_time(void *user, const struct ls_work *work)
{
    const struct seconds *seconds = user;
    int64_t vocabulary = seconds->layout->model.vocab_padded;
    if (work->m == vocabulary || work->n == vocabulary || work->k == vocabulary)
        return (struct ls_work_time){0};
    double s = work->kind == LS_WORK_PRODUCT_BT   ? seconds->product[0]
               : work->kind == LS_WORK_PRODUCT    ? seconds->product[1]
               : work->kind == LS_WORK_PRODUCT_AT ? seconds->product[2]
                                                  : 0;
    return (struct ls_work_time){.seconds = s, .units_s = s};
}

static struct ls_move_time move_time(void *user, int64_t rank, const struct ls_recorded *move)
{
    const struct seconds *seconds = user;
    int account = ls_account_of(seconds->layout, (enum ls_layout_group)move->group);
    return (struct ls_move_time){
        .seconds = move->operation.kind == LS_COMM_OTHER ? 0 : seconds->move[account],
        .units = seconds->units,
        .link = seconds->one_link ? 0 : account,
    };
}

static double transfer_s(void *user, const struct ls_recorded_transfer *transfer)
{
    const struct seconds *seconds = user;
    return seconds->transfer;
}

struct result {
    double step_s;
    int64_t alike;                 /* the rank that the last one is like */
    struct ls_simulated_rank rank; /* the last */
};

/* As if nobody waited for messages: a twin. */
static void forget_messages(struct ls_recording *recording)
{
    for (int64_t i = 0; i < recording->count; i++) {
        struct ls_recorded *move = &recording->list[i];
        if (move->operation.kind != LS_COMM_SEND || !move->operation.receive)
            continue;
        for (int64_t other = 0; other < recording->count; other++) {
            struct ls_recorded *later = &recording->list[other];
            later->started_at -= later->started_at > move->waited_at;
            later->waited_at -= later->waited_at > move->waited_at;
        }
        for (int64_t work = 0; work < recording->done_count; work++)
            recording->done[work].at -= recording->done[work].at > move->waited_at;
        recording->clock--;
        move->waited_at = LS_RECORDED_PENDING;
    }
}

static bool forgets;
static ls_simulated_visit *watch; /* NULL: nobody watches */
static void *watcher;

/* Seconds of rank 0's computing by pass, and where its last span ended. */
struct passes {
    double seconds[LS_WORK_PASSES], end_s;
};
static void span_visit(void *user, const struct ls_simulated_span *span)
{
    struct passes *passes = user;
    if (span->rank != 0 || span->account >= 0 || span->operation)
        return;
    assert_true(span->from_s >= passes->end_s && span->to_s > span->from_s);
    passes->end_s = span->to_s;
    passes->seconds[span->pass] += span->to_s - span->from_s;
}

static struct result simulate(const char *const *keys, struct seconds seconds)
{
    struct ls_config config = config_of(keys);
    struct ls_layout layout = admitted(keys);
    struct ls_error error = {0};
    struct ls_simulation *simulation;
    seconds.layout = &layout;
    struct ls_pace pace = {work_time, move_time, transfer_s, &seconds, seconds.overlap, {0}};
    for (int link = 0; link < LS_PACE_LINKS_MAX; link++)
        pace.message_overlap[link] = seconds.message_overlap;
    assert_ok(ls_simulation_new(&layout, &pace, &simulation, &error), error);
    if (watch)
        ls_simulation_watch(simulation, watch, watcher);
    for (int64_t rank = 0; rank < layout.ranks; rank++) {
        struct ls_recording recording;
        int64_t second_at;
        if (ls_simulation_alike(simulation, rank) != rank)
            continue;
        ls_recording_init(&recording);
        assert_ok(ls_record_works(&config, &layout, rank, &recording, &second_at, &error), error);
        if (forgets)
            forget_messages(&recording);
        second_at = forgets ? 0 : second_at;
        assert_ok(ls_simulation_add(simulation, rank, &recording, second_at, &error), error);
        ls_recording_release(&recording);
    }
    assert_ok(ls_simulation_run(simulation, &error), error);
    struct result result = {ls_simulation_step_s(simulation),
                            ls_simulation_alike(simulation, layout.ranks - 1),
                            *ls_simulation_rank(simulation, layout.ranks - 1)};
    ls_simulation_free(simulation);
    return result;
}

/* ---- schedules ------------------------------------------------------------------------------- */

/* GPT-2's block has four products in each third. */
enum { PRODUCTS = 4 };

/* What the table says of stages that cost what their blocks do. */
static double makespan_of(const struct ls_layout *layout, const struct seconds *seconds)
{
    struct ls_stage_cost costs[64] = {{0}};
    struct ls_schedule table;
    struct ls_schedule_figures figures;
    struct ls_error error = {0};
    for (int64_t s = 0; s < layout->stages; s++) {
        int64_t first = ls_max(layout->stage_first[s], 1);
        int64_t end = ls_min(layout->stage_first[s + 1], layout->model.layers + 1);
        double blocks = PRODUCTS * (double)ls_max(end - first, 0);
        costs[s] =
            (struct ls_stage_cost){blocks * seconds->product[0], blocks * seconds->product[1],
                                   blocks * seconds->product[2]};
    }
    if (ls_layout_table(layout, layout->micro_batches, &table, &error) ||
        ls_schedule_simulate(&table, &(struct ls_schedule_costs){.stage = costs}, &figures, &error))
        fail_msg("%s", error.text);
    double makespan = figures.makespan;
    ls_schedule_figures_release(&figures);
    ls_schedule_release(&table);
    return makespan;
}

#define TINY                                                                                       \
    "model.layers=8", "model.context=64", "model.channels=64", "model.heads=4",                    \
        "data.sequence=64", "numerics.leaf_sequences=1", "batch.micro=1"

CASE(test_schedules_take_what_their_tables_say)
{
    static const struct {
        const char *pp, *schedule, *chunks, *batch;
    } cases[] = {
        {"parallel.pp=1", "parallel.schedule=1f1b", "parallel.chunks=1", "batch.global=4"},
        {"parallel.pp=2", "parallel.schedule=gpipe", "parallel.chunks=1", "batch.global=4"},
        {"parallel.pp=4", "parallel.schedule=gpipe", "parallel.chunks=1", "batch.global=8"},
        {"parallel.pp=4", "parallel.schedule=1f1b", "parallel.chunks=1", "batch.global=8"},
        {"parallel.pp=4", "parallel.schedule=1f1b", "parallel.chunks=1", "batch.global=3"},
        {"parallel.pp=4", "parallel.schedule=interleaved", "parallel.chunks=2", "batch.global=8"},
        {"parallel.pp=2", "parallel.schedule=interleaved", "parallel.chunks=4", "batch.global=8"},
        {"parallel.pp=4", "parallel.schedule=zb-h1", "parallel.chunks=1", "batch.global=8"},
        {"parallel.pp=4", "parallel.schedule=zbv", "parallel.chunks=2", "batch.global=8"},
        {"parallel.pp=4", "parallel.schedule=dualpipev", "parallel.chunks=2", "batch.global=8"},
    };
    const struct seconds each[] = {{.product = {1, 1, 1}}, {.product = {2, 3, 1}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t c = 0; c < 2; c++) {
            const char *const *keys =
                KEYS(TINY, cases[i].pp, cases[i].schedule, cases[i].chunks, cases[i].batch);
            struct ls_layout layout = admitted(keys);
            double expected = makespan_of(&layout, &each[c]);
            double simulated = simulate(keys, each[c]).step_s;
            if (fabs(simulated - expected) > 1e-6 * expected)
                fail_msg("%s %s: simulated %g, the table takes %g", cases[i].pp, cases[i].schedule,
                         simulated, expected);
        }
}

/* GPipe and 1F1B: (m + p - 1) (f + b) of a stage (Huang et al. 2019; Narayanan et al. 2021);
 * interleaved: m v + p - 1 of its chunks. */
CASE(test_closed_forms)
{
    const struct seconds seconds = {.product = {1, 1, 1}};
    const char *const names[] = {"parallel.schedule=gpipe", "parallel.schedule=1f1b"};
    for (int i = 0; i < 2; i++) {
        double step = simulate(KEYS(TINY, "parallel.pp=4", names[i], "batch.global=8",
                                    "parallel.split=0-2,3-4,5-6,7-9"),
                               seconds)
                          .step_s;
        assert_true(fabs(step - (8 + 4 - 1) * 2 * 3 * PRODUCTS) < 1e-9);
    }
    double step =
        simulate(KEYS(TINY, "parallel.pp=4", "parallel.schedule=interleaved", "parallel.chunks=2",
                      "batch.global=8", "parallel.split=0-1,2,3,4,5,6,7,8-9"),
                 seconds)
            .step_s;
    assert_true(fabs(step - (8 * 2 + 4 - 1) * 3 * PRODUCTS) < 1e-9);
}

/* A clock that does not wait for messages gives other times. */
CASE(test_a_rank_that_does_not_wait_is_seen)
{
    const struct seconds seconds = {.product = {1, 1, 1}};
    const char *const *keys = KEYS(TINY, "parallel.pp=4", "batch.global=8");
    struct ls_layout layout = admitted(keys);
    forgets = true;
    double step = simulate(keys, seconds).step_s; /* both steps */
    forgets = false;
    assert_true(step < 2 * 0.9 * makespan_of(&layout, &seconds));
}

/* ---- passes ---------------------------------------------------------------------------------- */

static struct passes passes_of(const char *const *keys)
{
    const struct seconds seconds = {.product = {1, 2, 4}};
    struct passes passes = {.end_s = 0};
    watch = span_visit;
    watcher = &passes;
    simulate(keys, seconds);
    watch = NULL;
    return passes;
}

static void takes(const struct passes *passes, enum ls_work_pass pass, double expected)
{
    if (passes->seconds[pass] != expected)
        fail_msg("%s takes %g s: expected %g", ls_work_pass_name(pass), passes->seconds[pass],
                 expected);
}

/* Spans say what a rank computes for, as the trainer does: 8 blocks of 4 products for each of 4
 * micro-batches. A product made again is one of a forward in all but its pass. */
CASE(test_spans_have_their_pass)
{
    const double each = 8 * PRODUCTS * 4;
    struct passes whole = passes_of(KEYS(TINY, "batch.global=4", "memory.recompute=none"));
    takes(&whole, LS_WORK_PASS_FORWARD, each);
    takes(&whole, LS_WORK_PASS_BACKWARD, each * (2 + 4));
    takes(&whole, LS_WORK_PASS_RECOMPUTE, 0);
    struct passes again = passes_of(KEYS(TINY, "batch.global=4", "memory.recompute=full"));
    takes(&again, LS_WORK_PASS_FORWARD, each);
    takes(&again, LS_WORK_PASS_BACKWARD, each * (2 + 4));
    assert_true(again.seconds[LS_WORK_PASS_RECOMPUTE] > 0.5 * each);
    struct passes halves = passes_of(KEYS(TINY, "batch.global=4", "memory.recompute=none",
                                          "parallel.pp=2", "parallel.schedule=zb-h1"));
    assert_true(halves.seconds[LS_WORK_PASS_WEIGHTS] > 0);
    assert_true(halves.seconds[LS_WORK_PASS_INPUT] + halves.seconds[LS_WORK_PASS_WEIGHTS] +
                    halves.seconds[LS_WORK_PASS_BACKWARD] ==
                6 * halves.seconds[LS_WORK_PASS_FORWARD]);
    for (int pass = 0; pass < LS_WORK_PASSES; pass++)
        assert_true(strlen(ls_work_pass_name((enum ls_work_pass)pass)) > 0);
}

/* ---- moves ----------------------------------------------------------------------------------- */

/* Two tensor-parallel all-reduces in a block's forward and two in its backward, that nothing hides.
 */
CASE(test_tensor_parallel_is_exposed)
{
    struct seconds seconds = {.product = {1, 1, 1}};
    const char *const *keys = KEYS(TINY, "parallel.tp=2", "batch.global=4", "parallel.sp=false");
    double without = simulate(keys, seconds).step_s;
    seconds.move[LS_ACCOUNT_TP] = 0.25;
    struct result with = simulate(keys, seconds);
    assert_true(with.rank.exposed_s[LS_ACCOUNT_TP] > 0);
    assert_true(fabs(with.step_s - without - with.rank.exposed_s[LS_ACCOUNT_TP]) < 1e-6);
    assert_true(with.rank.moving_s[LS_ACCOUNT_TP] >= 4 * 8 * 4 * 0.25);
}

/* On one link sums of gradients do not hold messages up: behind the pipeline's end are at most
 * those of one stage, not those of each stage after the other. */
CASE(test_messages_pass_gradients)
{
    struct seconds seconds = {.product = {1, 1, 1}, .overlap = 1, .one_link = true};
    const char *const *keys =
        KEYS(TINY, "model.channels=256", "parallel.pp=4", "parallel.dp_replicate=2",
             "batch.global=16", "numerics.mode=fast", "comm.bucket_mb=1");
    double without = simulate(keys, seconds).step_s;
    seconds.move[LS_ACCOUNT_REPLICATE] = seconds.move[LS_ACCOUNT_SHARD] = 3;
    struct result with = simulate(keys, seconds);
    double moved = with.rank.moving_s[LS_ACCOUNT_REPLICATE] + with.rank.moving_s[LS_ACCOUNT_SHARD];
    assert_true(moved > 0);
    if (with.step_s > without + 1.2 * moved)
        fail_msg("%g: %g without sums, which take %g", with.step_s, without, moved);
}

static double moving_of(const struct result *result)
{
    return result->rank.moving_s[LS_ACCOUNT_REPLICATE] + result->rank.moving_s[LS_ACCOUNT_SHARD];
}

/* Sums of a leaf hide behind the backward that makes them and the micro-batch that comes next,
 * however many there are: of four leaves the last one's alone are waited for (with zero 1 gathers
 * too). */
CASE(test_sums_of_leaves_hide)
{
    const char *const zero[] = {"parallel.zero=0", "parallel.zero=1"};
    const double most[] = {0.2, 0.3};
    for (int i = 0; i < 2; i++) {
        struct seconds seconds = {.product = {1, 1, 1}, .overlap = 1};
        const char *const *keys =
            KEYS("model.layers=16", "model.context=64", "model.channels=256", "model.heads=4",
                 "data.sequence=64", "batch.micro=1", "batch.global=64",
                 "numerics.leaf_sequences=8", "parallel.dp=2", zero[i]);
        seconds.move[LS_ACCOUNT_REPLICATE] = seconds.move[LS_ACCOUNT_SHARD] = 1;
        struct result with = simulate(keys, seconds);
        double without = with.rank.compute_s;
        double each = 0.19 * without / moving_of(&with);
        seconds.move[LS_ACCOUNT_REPLICATE] = seconds.move[LS_ACCOUNT_SHARD] = each;
        with = simulate(keys, seconds);
        double share = (with.step_s - without) / moving_of(&with);
        if (share > most[i])
            fail_msg("%s: %g of the sums is waited for", zero[i], share);
    }
}

/* ZeRO 3: gathers that take no longer than a layer hide behind it, but for the first; those that
 * take longer are what the step takes. */
CASE(test_gathers_are_prefetched)
{
    struct seconds seconds = {.product = {1, 1, 1}, .overlap = 1};
    const char *const *ahead =
        KEYS(TINY, "parallel.dp=2", "parallel.zero=3", "batch.global=4", "parallel.prefetch=1");
    const char *const *none =
        KEYS(TINY, "parallel.dp=2", "parallel.zero=3", "batch.global=4", "parallel.prefetch=0");
    double without = simulate(ahead, seconds).step_s;
    seconds.move[LS_ACCOUNT_SHARD] = 0.125;
    struct result hidden = simulate(ahead, seconds), exposed = simulate(none, seconds);
    assert_true(hidden.step_s < exposed.step_s);
    assert_true(hidden.rank.exposed_s[LS_ACCOUNT_SHARD] <
                0.2 * hidden.rank.moving_s[LS_ACCOUNT_SHARD]);
    seconds.move[LS_ACCOUNT_SHARD] = 100;
    struct result bound = simulate(ahead, seconds);
    assert_true(bound.rank.exposed_s[LS_ACCOUNT_SHARD] > 0.9 * (bound.step_s - without));
    seconds.move[LS_ACCOUNT_SHARD] = 0.125;
    seconds.overlap = 0; /* the ranks' own cores move the bytes */
    assert_true(simulate(ahead, seconds).step_s >=
                without + 0.99 * hidden.rank.moving_s[LS_ACCOUNT_SHARD]);
}

/* Over a network messages hide where the ranks' own cores make the sums, which do not. */
CASE(test_messages_hide_by_themselves)
{
    const char *const *stages = KEYS(TINY, "parallel.pp=2", "batch.global=8", "batch.micro=1");
    const char *const *sums = KEYS(TINY, "parallel.dp=2", "parallel.zero=3", "batch.global=4");
    struct seconds seconds = {.product = {1, 1, 1}};
    seconds.move[LS_ACCOUNT_PP] = 0.125;
    seconds.move[LS_ACCOUNT_SHARD] = 0.125;
    double step_s[3], sums_s[3];
    for (int i = 0; i < 3; i++) {
        seconds.message_overlap = 0.5 * i;
        step_s[i] = simulate(stages, seconds).step_s;
        sums_s[i] = simulate(sums, seconds).step_s;
    }
    assert_true(step_s[0] > step_s[1] && step_s[1] > step_s[2]);
    assert_true(sums_s[0] == sums_s[1] && sums_s[1] == sums_s[2]);
    seconds.overlap = 1; /* the larger counts */
    seconds.message_overlap = 0;
    assert_true(simulate(stages, seconds).step_s == step_s[2]);
}

/* What is offloaded moves while others compute, as far as there is something to compute. */
CASE(test_transfers_hide)
{
    const char *const *keys =
        KEYS(TINY, "batch.global=4", "memory.offload.activations=host", "memory.recompute=none");
    struct seconds seconds = {.product = {1, 1, 1}, .overlap = 1};
    double without = simulate(keys, seconds).step_s;
    seconds.transfer = 0.5;
    struct result hidden = simulate(keys, seconds);
    assert_true(hidden.rank.offload_s > 0);
#ifdef NDEBUG
    assert_true(hidden.rank.offload_exposed_s < 0.5 * hidden.rank.offload_s);
#else /* memory.check waits before it poisons what moves */
    assert_true(hidden.rank.offload_exposed_s < hidden.rank.offload_s);
#endif
    seconds.transfer = 50;
    struct result bound = simulate(keys, seconds);
    assert_true(bound.rank.offload_exposed_s > 0.9 * (bound.step_s - without));
}

static const char *const layouts[][4] = {
    {"parallel.pp=2", "parallel.dp=2", "parallel.zero=2", "parallel.schedule=1f1b"},
    {"parallel.tp=2", "parallel.dp=2", "parallel.zero=3", "parallel.tp_overlap=2"},
    {"parallel.pp=4", "parallel.dp=1", "parallel.schedule=zb-h1", "parallel.tp=2"},
    {"parallel.cp=2", "parallel.dp_shard=2", "parallel.zero=1", "parallel.cp_method=ring"},
    {"parallel.dp_replicate=2", "parallel.dp_shard=2", "parallel.zero=2", "parallel.pp=2"},
    {"parallel.dp_shard=2", "optim.name=muon", "parallel.zero=1", "parallel.tp=2"},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };
#define KEYS_OF(layout)                                                                            \
    KEYS(TINY, (layout)[0], (layout)[1], (layout)[2], (layout)[3], "batch.global=8",               \
         "numerics.seq_tiles=2", "numerics.tp_tiles=4", "data.sequence=256", "model.context=256")

/* Spans of all ranks. */
struct spans {
    struct ls_simulated_span list[1 << 16];
    int count;
};
static void spans_visit(void *user, const struct ls_simulated_span *span)
{
    struct spans *spans = user;
    assert_in_range(spans->count, 0, sizeof spans->list / sizeof *spans->list - 1);
    spans->list[spans->count++] = *span;
}

static int by_beginning(const void *a, const void *b)
{
    const struct ls_simulated_span *x = a, *y = b;
    return (x->from_s > y->from_s) - (x->from_s < y->from_s);
}

/* Seconds that the rank computes while an operation of its own runs. */
static double beside_s(struct spans *spans, int64_t rank)
{
    double sum = 0;
    qsort(spans->list, (size_t)spans->count, sizeof *spans->list, by_beginning);
    for (int i = 0; i < spans->count; i++) {
        const struct ls_simulated_span *work = &spans->list[i];
        double at = work->from_s;
        if (work->rank != rank || work->operation)
            continue;
        for (int k = 0; k < spans->count; k++) {
            const struct ls_simulated_span *move = &spans->list[k];
            double from = fmax(at, move->from_s), to = fmin(work->to_s, move->to_s);
            if (move->rank != rank || move->account < 0 || to <= from)
                continue;
            sum += to - from;
            at = to;
        }
    }
    return sum;
}

/* What an operation takes of the units, works lose as long as it runs beside them, also where it
 * begins while they do; and nothing else changes their time. */
CASE(test_operations_slow_what_is_beside_them)
{
    static struct spans spans;
    int slowed = 0;
    for (int i = 0; i < LAYOUTS; i++) {
        struct seconds seconds = {.product = {1, 1, 1}, .overlap = 1};
        for (int account = 0; account < LS_ACCOUNTS; account++)
            seconds.move[account] = 0.3;
        struct result alone = simulate(KEYS_OF(layouts[i]), seconds);
        seconds.units = 0.25;
        spans.count = 0;
        watch = spans_visit;
        watcher = &spans;
        struct result beside = simulate(KEYS_OF(layouts[i]), seconds);
        watch = NULL;
        double lost = 0.25 * beside_s(&spans, beside.alike);
        if (fabs(beside.rank.contended_s - lost) > 1e-6)
            fail_msg("layout %d: works lose %.9g s, %.9g beside operations", i,
                     beside.rank.contended_s, lost);
        assert_true(alone.rank.contended_s == 0 && beside.step_s >= alone.step_s);
        assert_true(fabs(beside.rank.compute_s - alone.rank.compute_s - lost) < 1e-6);
        slowed += beside.step_s > alone.step_s && lost > 0;
    }
    assert_in_range(slowed, LAYOUTS / 2, LAYOUTS);
}

/* Whatever takes longer never makes a step shorter. */
CASE(test_slower_is_never_faster)
{
    for (size_t i = 0; i < LAYOUTS; i++) {
        const char *const *keys = KEYS_OF(layouts[i]);
        struct seconds seconds = {.product = {1, 1, 1}, .overlap = 1};
        double before = simulate(keys, seconds).step_s;
        for (int account = 0; account < LS_ACCOUNTS; account++)
            for (int grow = 0; grow < 3; grow++) {
                seconds.move[account] += 0.5;
                double after = simulate(keys, seconds).step_s;
                if (after < before - 1e-6)
                    fail_msg("layout %zu: %s slower, the step faster: %g, %g before", i,
                             ls_account_name((enum ls_account)account), after, before);
                before = after;
            }
    }
}

SUITE_MAIN(NULL, NULL)
