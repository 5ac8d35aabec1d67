/* The order of arrivals at a parameter server: a table of times against a simulation tick by tick,
 * far events, and what a bound promises. */
#include "../support/suite.h"

#include <lockstep/parallel/arrivals.h>

#include <string.h>

enum { WORKERS = 4, TIMES = 4, EVENTS = 60 };

/* ---- a simulation, tick by tick -------------------------------------------------------------- */

struct event {
    struct ls_arrival arrival;
    int64_t waited; /* for others since the gradient before, in ticks */
};

struct worker {
    bool waits;
    int64_t clock, pulled, begun, pushed; /* the last two in ticks */
};

struct world {
    int workers, bound;
    const int64_t *times;
    struct worker worker[WORKERS];
    int64_t version, now;
};

static int64_t slowest_of(const struct world *world)
{
    int64_t least = INT64_MAX;
    for (int w = 0; w < world->workers; w++)
        least = ls_min(least, world->worker[w].clock);
    return least;
}

static bool all_are_done(const struct world *world, int64_t clock)
{
    for (int w = 0; w < world->workers; w++) {
        const struct worker *worker = &world->worker[w];
        bool computes = worker->begun + world->times[w] > world->now;
        if (worker->clock == clock && (worker->waits || computes))
            return false;
    }
    return true;
}

static bool pushes_now(const struct world *world, int w)
{
    const struct worker *worker = &world->worker[w];
    if (world->bound == 0) /* all together */
        return !worker->waits && worker->clock == slowest_of(world) &&
               all_are_done(world, worker->clock);
    return !worker->waits && worker->begun + world->times[w] == world->now;
}

/* slack: a twin lets workers go so many clocks further than the bound says. */
static void let_go(struct world *world, int slack)
{
    for (int w = 0; w < world->workers; w++) {
        struct worker *worker = &world->worker[w];
        bool may = world->bound < 0 || worker->clock <= slowest_of(world) + world->bound + slack;
        if (!worker->waits || !may)
            continue;
        worker->waits = false;
        worker->pulled = world->version;
        worker->begun = world->now;
    }
}

static void simulate(int workers, const int64_t *times, int bound, int slack,
                     struct event events[EVENTS])
{
    struct world world = {.workers = workers, .bound = bound, .times = times};
    for (world.now = 1; world.version < EVENTS; world.now++)
        for (int w = 0; w < workers && world.version < EVENTS; w++) {
            struct worker *worker = &world.worker[w];
            if (!pushes_now(&world, w))
                continue;
            events[world.version] = (struct event){
                {world.version, w, worker->clock, worker->pulled},
                world.now - worker->pushed - times[w],
            };
            world.version++;
            worker->clock++;
            worker->pushed = world.now;
            worker->waits = true;
            let_go(&world, slack);
        }
}

/* ---- every small table ----------------------------------------------------------------------- */

/* Visits all tables of 1 to WORKERS workers, with every bound. */
typedef void visitor(int workers, const int64_t *times, int bound, void *user);
static void each_table(visitor *visit, void *user)
{
    for (int workers = 1, tables = TIMES; workers <= WORKERS; workers++, tables *= TIMES)
        for (int table = 0; table < tables; table++)
            for (int bound = LS_BOUND_FREE; bound <= 3; bound++) {
                int64_t times[WORKERS];
                for (int w = 0, rest = table; w < workers; w++, rest /= TIMES)
                    times[w] = 1 + rest % TIMES;
                visit(workers, times, bound, user);
            }
}

static struct ls_arrivals *order_of(struct ls_arrival_rule rule, const int64_t *times)
{
    struct ls_arrivals *arrivals;
    struct ls_error error = {0};
    assert_ok(ls_arrivals_of_times(rule, times, &arrivals, &error), error);
    assert_int_equal(ls_arrivals_rule(arrivals).workers, rule.workers);
    return arrivals;
}

static void check_table(int workers, const int64_t *times, int bound, void *user)
{
    const struct ls_arrival_rule rule = {workers, bound};
    struct ls_arrivals *arrivals = order_of(rule, times);
    struct ls_clocks clocks;
    struct event want[EVENTS];
    assert_int_equal(ls_clocks_init(&clocks, rule, NULL), LS_OK);
    simulate(workers, times, bound, 0, want);
    for (int e = 0; e < EVENTS; e++) {
        struct ls_arrival got, expected = want[e].arrival;
        assert_true(ls_arrivals_next(arrivals, &clocks, &got));
        if (got.event != e || got.worker != expected.worker || got.clock != expected.clock ||
            got.pulled != expected.pulled)
            fail_msg("%d workers of %d %d %d %d, bound %d: event %d is of worker %d, clock %d, "
                     "version %d: expected %d, %d, %d",
                     workers, (int)times[0], (int)times[1 % workers], (int)times[2 % workers],
                     (int)times[3 % workers], bound, e, got.worker, (int)got.clock, (int)got.pulled,
                     expected.worker, (int)expected.clock, (int)expected.pulled);
    }
    ls_clocks_release(&clocks);
    ls_arrivals_free(arrivals);
}

CASE(test_every_small_table)
{
    each_table(check_table, NULL);
}

/* A simulation that lets workers go one clock too far is seen, wherever the bound is felt. */
static void count_seen(int workers, const int64_t *times, int bound, void *user)
{
    struct event right[EVENTS], wrong[EVENTS];
    int *seen = user, waited = 0, differ = 0;
    if (bound <= 0)
        return;
    simulate(workers, times, bound, 0, right);
    simulate(workers, times, bound, 1, wrong);
    for (int e = 0; e < EVENTS; e++) {
        waited += right[e].waited > 0;
        differ += right[e].arrival.worker != wrong[e].arrival.worker ||
                  right[e].arrival.pulled != wrong[e].arrival.pulled;
    }
    assert_int_equal(waited > 0, differ > 0);
    *seen += differ > 0;
}

CASE(test_a_wider_bound_is_seen)
{
    int seen = 0;
    each_table(count_seen, &seen);
    assert_in_range(seen, 500, 1020);
}

/* ---- what a bound promises ------------------------------------------------------------------- */

static uint32_t drawn(uint32_t number, uint32_t below)
{
    uint32_t bits[4];
    ls_philox((struct ls_philox_key){{11, 5}}, (uint32_t[4]){number}, bits);
    return bits[0] % below;
}

static void check_promise(const struct ls_clocks *clocks, const struct ls_arrival *arrival)
{
    const int64_t bound = clocks->rule.bound;
    int64_t most = 0, versions = (2 * bound + 1) * (clocks->rule.workers - 1);
    for (int w = 0; w < clocks->rule.workers; w++)
        most = ls_max(most, clocks->clock[w]);
    if (bound != LS_BOUND_FREE && most - clocks->slowest > bound + 1)
        fail_msg("clocks %lld and %lld with bound %lld", (long long)clocks->slowest,
                 (long long)most, (long long)bound);
    if (bound != LS_BOUND_FREE && ls_arrival_staleness(arrival) > versions)
        fail_msg("staleness %lld: expected at most %lld", (long long)ls_arrival_staleness(arrival),
                 (long long)versions);
    assert_true(arrival->pulled >= 0 && arrival->pulled <= arrival->event);
    assert_int_equal(arrival->event, clocks->version - 1);
}

/* Drawn tables: each worker pushes each of its clocks once; with bound 0 they take turns, however
 * far the event is. */
CASE(test_drawn_tables)
{
    enum { MANY = 40, STEPS = 400, TRIALS = 120 };
    static const int64_t firsts[] = {0, 12345, 1000000007, LS_ARRIVAL_EVENTS_MAX - STEPS};
    for (uint32_t trial = 0; trial < TRIALS; trial++) {
        int64_t times[MANY], clock[MANY];
        struct ls_arrival_rule rule = {1 + (int)drawn(trial, MANY),
                                       (int)drawn(1000 + trial, 12) - 1};
        const int64_t most = trial % 2 ? 9 : LS_ARRIVAL_TIME_MAX;
        struct ls_clocks clocks;
        struct ls_arrival arrival;
        for (int w = 0; w < rule.workers; w++)
            times[w] = 1 + drawn(5000 + trial * MANY + (uint32_t)w, (uint32_t)most);
        struct ls_arrivals *arrivals = order_of(rule, times);
        assert_int_equal(ls_clocks_init(&clocks, rule, NULL), LS_OK);
        memcpy(clock, clocks.clock, (size_t)rule.workers * sizeof *clock);
        for (int e = 0; e < STEPS; e++) {
            assert_true(ls_arrivals_next(arrivals, &clocks, &arrival));
            assert_int_equal(arrival.clock, clock[arrival.worker]++);
            check_promise(&clocks, &arrival);
        }
        for (int64_t e = firsts[trial % 4]; e < firsts[trial % 4] + STEPS; e++) {
            int worker = ls_arrivals_worker(arrivals, e);
            assert_in_range(worker, 0, rule.workers - 1);
            if (rule.bound == 0)
                assert_int_equal(worker, e % rule.workers);
        }
        ls_clocks_release(&clocks);
        ls_arrivals_free(arrivals);
    }
}

/* One of three takes four times as long; the first events by hand. */
CASE(test_a_slow_worker)
{
    static const int64_t times[] = {1, 1, 4};
    static const int worker[2][9] = {{0, 1, 0, 1, 0, 1, 0, 1, 2}, {0, 1, 0, 1, 2, 0, 1, 2, 0}};
    static const int pulled[2][9] = {{0, 0, 1, 2, 3, 4, 5, 6, 0}, {0, 0, 1, 2, 0, 5, 5, 5, 8}};
    for (int turn = 0; turn < 2; turn++) {
        struct ls_arrival_rule rule = {3, turn ? 1 : LS_BOUND_FREE};
        struct ls_arrivals *arrivals = order_of(rule, times);
        struct ls_clocks clocks;
        struct ls_arrival arrival;
        assert_int_equal(ls_clocks_init(&clocks, rule, NULL), LS_OK);
        for (int e = 0; e < 9; e++) {
            assert_true(ls_arrivals_next(arrivals, &clocks, &arrival));
            assert_int_equal(arrival.worker, worker[turn][e]);
            assert_int_equal(arrival.pulled, pulled[turn][e]);
        }
        ls_clocks_release(&clocks);
        ls_arrivals_free(arrivals);
    }
}

/* ---- clocks alone ---------------------------------------------------------------------------- */

/* Whoever is admitted pushes, in an order that is drawn. */
CASE(test_any_order_that_is_admitted)
{
    for (int bound = LS_BOUND_FREE; bound <= 3; bound++) {
        struct ls_clocks clocks;
        int64_t waits = 0;
        assert_int_equal(ls_clocks_init(&clocks, (struct ls_arrival_rule){5, bound}, NULL), LS_OK);
        for (uint32_t i = 0; clocks.version < 1000; i++) {
            int worker = (int)drawn(i, 5);
            if (ls_clocks_admit(&clocks, worker)) {
                struct ls_arrival arrival = ls_clocks_push(&clocks, worker);
                check_promise(&clocks, &arrival);
                if (bound == 0)
                    assert_int_equal(arrival.pulled, arrival.event / 5 * 5);
            } else
                waits++;
        }
        assert_int_equal(waits > 0, bound != LS_BOUND_FREE);
        assert_false(ls_clocks_admit(&clocks, -1));
        assert_false(ls_clocks_admit(&clocks, 5));
        ls_clocks_release(&clocks);
    }
}

CASE(test_bad_tables)
{
    static const struct {
        struct ls_arrival_rule rule;
        int64_t times[2];
        const char *text;
    } cases[] = {
        {{0, 1}, {1, 1}, "0 workers: expected 1 to 4096"},
        {{4097, 1}, {1, 1}, "4097 workers"},
        {{2, -2}, {1, 1}, "a bound of -2 clocks: expected 0 to 1073741824, or -1"},
        {{2, INT32_MAX}, {1, 1}, "a bound of 2147483647 clocks: expected 0 to 1073741824, or -1"},
        {{2, 1}, {1, 0}, "the time of worker 1 is 0: expected 1 to 1048576"},
        {{2, 1}, {1048577, 1}, "the time of worker 0 is 1048577"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_arrivals *arrivals;
        struct ls_error error = {0};
        int status = ls_arrivals_of_times(cases[i].rule, cases[i].times, &arrivals, &error);
        assert_int_equal(status, LS_EINVAL);
        assert_null(arrivals);
        if (!strstr(error.text, cases[i].text))
            fail_msg("%s: expected %s", error.text, cases[i].text);
    }
}

SUITE_MAIN(NULL, NULL)
