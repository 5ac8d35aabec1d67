/* A parameter server whose ranks add gradients as they come (async.order = clock): whatever came
 * first, the log replays it bit for bit on any number of ranks. A run goes on with its log, and
 * from an older checkpoint cuts it. One worker is late until the others have pushed, so that the
 * order is not that of equal workers.
 *
 * Broken twins that a replay must show: an event of the log changed, a worker that gets parameters
 * of a version too early, a batch that two workers compute on. */
#include "../support/await.h"
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "pushes.h"
#include "tokens.h"
#include "train/parameter_server.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLOCK                                                                                      \
    "async.mode=server async.order=clock async.sync_every=6 train.steps=12 train.save_every=6 "    \
    "log.hash_every=6 "
#define SERVED "parallel.workers=4 parallel.servers=1 "

/* ---- who is late, and twins ------------------------------------------------------------------ */

static enum { HONEST, EARLY, TWICE } twin;
enum { AT = 7, TICKET = 2 }; /* the push behind which, and the batch that */

static int late_worker = -1; /* until so many pushes were logged */
static _Atomic int logged, late_until;

WRAPPED(server_gradient);
int __wrap_server_gradient(struct ls_trainer *t, int worker, int64_t ticket, struct ls_error *error)
{
    if (t->workers->group == late_worker)
        while (logged < late_until)
            await_pause();
    return __real_server_gradient(t, worker,
                                  twin == TWICE && ticket == TICKET ? ticket - 1 : ticket, error);
}

WRAPPED(ls_arrival_log_add);
int __wrap_ls_arrival_log_add(struct ls_arrival_log *log, const struct ls_arrival *arrival,
                              struct ls_error *error)
{
    int status = __real_ls_arrival_log_add(log, arrival, error);
    logged++;
    return status;
}

/* So many pushes were logged when the log was last made durable. */
static _Atomic int durable;
WRAPPED(fdatasync);
int __wrap_fdatasync(int file)
{
    if (ls_path_ends(path_of(file), "/arrivals"))
        durable = logged;
    return __real_fdatasync(file);
}

/* What the server sent before. */
static float *kept;
WRAPPED(server_masters);
int __wrap_server_masters(struct ls_trainer *t, struct ls_state *unit, float *packed, bool writes,
                          struct ls_error *error)
{
    size_t bytes = (size_t)t->memory.exchange.masters * sizeof *packed;
    int status = __real_server_masters(t, unit, packed, writes, error);
    if (twin != EARLY || writes || unit != workers_outer(t))
        return status;
    float *now = malloc(bytes);
    assert_non_null(now);
    memcpy(now, packed, bytes);
    if (kept && logged == AT)
        memcpy(packed, kept, bytes);
    free(kept);
    kept = now;
    return status;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static const char *directory;

/* A run by the clock in the folder NAME of the test's; the worker is late for so many pushes. */
static struct workers_run clock_run(const char *name, const char *words, int late, int until)
{
    struct workers_run run = {
        .config = workers_config(directory, CLOCK "train.out=%s/%s %s", directory, name, words)};
    late_worker = late;
    late_until = until;
    logged = 0;
    return run;
}

static struct workers_run recorded(const char *name, const char *words, int late)
{
    char all[1024];
    snprintf(all, sizeof all, SERVED "%s", words);
    struct workers_run run = clock_run(name, all, late, 6);
    workers_run_well(&run);
    return run;
}

/* The same with the order of NAME's log. */
static struct workers_run replayed(const char *name, const char *words, const char *layout)
{
    char all[1024];
    snprintf(all, sizeof all, "async.follow=%s/%s %s %s", directory, name, words, layout);
    struct workers_run run = clock_run("again", all, -1, 0);
    workers_run_well(&run);
    return run;
}

static void expect_alike(const struct workers_run *a, const struct workers_run *b, const char *what)
{
    const char *difference = workers_difference(a, b);
    if (difference)
        fail_msg("%s: %s", what, difference);
}

static const char *log_of(const char *name)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s/%s/arrivals", directory, name);
    return path;
}

/* Writes a log of its first line and these pushes, as they may come one after the other. */
static void log_write(const char *name, const int64_t *order, int count)
{
    char *text = scratch_read(log_of(name), NULL), *end = strchr(text, '\n');
    struct push_expected pushes[WORKERS_STEPS_MAX];
    FILE *file = fopen(log_of(name), "we");
    assert_true(end && file);
    pushes_expect(4, -1, order, count, pushes);
    fprintf(file, "%.*s\n", (int)(end - text), text);
    for (int e = 0; e < count; e++)
        fprintf(file, "{\"event\": %d, \"worker\": %d, \"clock\": %d}\n", e, (int)order[e],
                (int)pushes[e].clock);
    assert_int_equal(fclose(file), 0);
    free(text);
}

/* The log has exactly the run's pushes. */
static void expect_log(const char *name, const struct workers_run *run)
{
    char *text = scratch_read(log_of(name), NULL), *line = strchr(text, '\n');
    int events = 0;
    for (; line && line[1]; line = strchr(line + 1, '\n'), events++) {
        int event, worker, clock;
        assert_int_equal(sscanf(line, " {\"event\": %d, \"worker\": %d, \"clock\": %d}", &event,
                                &worker, &clock),
                         3);
        assert_int_equal(event, events);
        assert_int_equal(worker, run->told[event].worker);
        assert_int_equal(clock, run->told[event].clock);
    }
    assert_int_equal(events, run->steps);
    free(text);
}

/* ---- replays --------------------------------------------------------------------------------- */

CASE(test_a_log_replays_in_every_layout)
{
    static const struct {
        const char *recipe, *layout;
    } cases[] = {
        {"", "parallel.tp=2"},
        {"async.staleness=2 async.compensation=1", "parallel.dp_shard=2 parallel.zero=3"},
        {"async.staleness=0 async.compensation=0.04", ""},
        {"async.staleness=1 async.staleness_lr=inverse optim.name=muon", "parallel.pp=2"},
    };
    static const char *const layouts[] = {
        "parallel.workers=1",
        "parallel.workers=2 parallel.tp=2",
        "parallel.workers=4 parallel.dp=2",
        "parallel.workers=4 parallel.servers=1",
        "parallel.workers=2 parallel.pp=2 parallel.dp_shard=2 parallel.zero=1",
    };
    for (int i = 0; i < 4; i++) {
        char words[512];
        snprintf(words, sizeof words, "%s %s", cases[i].recipe, cases[i].layout);
        struct workers_run run = recorded("recorded", words, i == 2 ? -1 : 3);
        const char *wrong = pushes_wrong(&run);
        if (wrong)
            fail_msg("%s: %s", cases[i].recipe, wrong);
        expect_log("recorded", &run);
        for (int e = 0; e < 6 && i != 2; e++)
            assert_int_not_equal(run.told[e].worker, 3);
        for (int l = 0; l < 5; l++) {
            if (!check_all() && l % 4 != i)
                continue;
            struct workers_run again = replayed("recorded", cases[i].recipe, layouts[l]);
            expect_alike(&run, &again, layouts[l]);
        }
    }
}

/* A proof or a bench in the folder of a run is no part of it. */
CASE(test_a_log_stays_beside_a_bench)
{
    struct workers_run run = recorded("stays", "", 3);
    char *before = scratch_read(log_of("stays"), NULL);
    struct workers_run bench = clock_run("stays", SERVED, -1, 0);
    bench.made = ls_trainer_record_nothing;
    workers_run_well(&bench);
    char *after = scratch_read(log_of("stays"), NULL);
    assert_string_equal(after, before);
    free(before);
    free(after);
    expect_log("stays", &run);
}

/* ---- going on -------------------------------------------------------------------------------- */

static struct workers_run part(const char *name, const char *layout, int late, int to, bool resume,
                               bool save)
{
    struct workers_run run = clock_run(name, layout, late, resume ? 3 : 6);
    run.steps = to;
    run.resume = resume;
    run.save = save;
    workers_run_well(&run);
    return run;
}

/* A run that ended between two checkpoints does its last steps again, as workers come then: the log
 * has what the run has. */
CASE(test_a_run_goes_on_with_its_log)
{
    struct workers_run first = part("parts", SERVED "parallel.tp=2", 3, 6, false, true);
    struct workers_run lost = part("parts", SERVED "train.resume=auto", 2, 12, true, false);
    memcpy(lost.told, first.told, 6 * sizeof *lost.told);
    expect_log("parts", &lost);
    struct workers_run last = part(
        "parts", SERVED "train.resume=auto parallel.dp_shard=2 parallel.zero=2", 1, 12, true, true);
    assert_int_equal(last.first, 6);
    memcpy(last.told, first.told, 6 * sizeof *last.told);
    expect_log("parts", &last);
    assert_null(pushes_wrong(&last));
    last.first = 0;
    memcpy(last.hash, first.hash, 6 * sizeof *last.hash);
    struct workers_run again = replayed("parts", "", "parallel.workers=2");
    expect_alike(&last, &again, "the whole log");
}

/* Behind a checkpoint, without ranks of a server, a run follows its own log. */
CASE(test_a_run_goes_on_as_it_went)
{
    durable = 0;
    struct workers_run first = part("went", SERVED, 3, 6, false, true);
    assert_int_equal(durable, logged); /* with the checkpoint, which is worth nothing without it */
    struct workers_run last = part("went", SERVED "train.resume=auto", 1, 12, true, false);
    struct workers_run again =
        part("went", "parallel.workers=2 train.resume=auto", -1, 12, true, false);
    assert_int_equal(first.steps, again.first);
    expect_alike(&last, &again, "its own log");
}

/* From a checkpoint of another run, in a folder of its own: the log begins with what came before.
 */
CASE(test_a_run_goes_on_from_another_one)
{
    char words[1024];
    struct workers_run first = part("first", SERVED, 3, 6, false, true);
    struct workers_run whole = part("first", SERVED "train.resume=auto", 1, 12, true, false);
    memcpy(whole.told, first.told, 6 * sizeof *whole.told);
    snprintf(words, sizeof words, "train.resume=%s/first/checkpoints/step-00000006 %s", directory,
             SERVED);
    struct workers_run second = part("second", words, 2, 12, true, true);
    memcpy(second.told, first.told, 6 * sizeof *second.told);
    expect_log("second", &second);
    struct workers_run again = replayed("second", "", "parallel.workers=2");
    expect_alike(&second, &again, "another run, by the clock");
    snprintf(words, sizeof words, "train.resume=%s/first/checkpoints/step-00000006", directory);
    struct workers_run third = part("third", words, -1, 12, true, true);
    expect_alike(&whole, &third, "another run, as that went on");
    expect_log("third", &whole);
}

/* ---- twins ----------------------------------------------------------------------------------- */

static void expect_differs(const struct workers_run *run, const char *name, const char *words)
{
    twin = HONEST;
    free(kept);
    kept = NULL;
    struct workers_run again = replayed(name, words, "parallel.workers=1");
    assert_non_null(workers_difference(run, &again));
}

CASE(test_an_event_of_another_worker_is_found)
{
    struct workers_run run = recorded("changed", "", -1);
    int64_t order[12];
    for (int e = 0; e < 12; e++)
        order[e] = run.told[e].worker;
    log_write("changed", order, 12);
    struct workers_run again = replayed("changed", "", "parallel.workers=1");
    expect_alike(&run, &again, "the log as it was");
    order[AT] = (order[AT] + 1) % 4;
    log_write("changed", order, 12);
    expect_differs(&run, "changed", "");
}

CASE(test_parameters_too_early_are_found)
{
    twin = EARLY;
    struct workers_run run = recorded("early", "", -1);
    expect_differs(&run, "early", "");
}

/* With that bound each worker pushes its first gradient within 12 steps. */
CASE(test_a_batch_taken_twice_is_found)
{
    twin = TWICE;
    struct workers_run run = recorded("twice", "async.staleness=1", -1);
    expect_differs(&run, "twice", "async.staleness=1");
}

/* ---- logs that are refused ------------------------------------------------------------------- */

static void shell(const char *words)
{
    char line[2048];
    assert_true(snprintf(line, sizeof line, "cd '%s' && %s", directory, words) < (int)sizeof line);
    assert_int_equal(system(line), 0);
}

CASE(test_logs_that_are_refused)
{
    static const struct {
        const char *command, *words;
        int status;
        const char *says[3];
    } cases[] = {
        {"rm bad/arrivals", "", LS_EIO, {"async.order", "bad/arrivals", "parallel.servers = 1"}},
        {"true", "async.follow=nowhere", LS_EIO, {"async.follow = ", "nowhere", "arrivals"}},
        {"true",
         "optim.lr=1e-2",
         LS_ECONFIG,
         {"bad/arrivals:1", "another recipe", "configuration of the run that wrote it"}},
        {"true", "async.staleness=3", LS_ECONFIG, {"bad/arrivals:1", "another recipe", ""}},
        {"sed -i 5d bad/arrivals", "", LS_EDATA, {"bad/arrivals:5", "event is 4", "without a gap"}},
        {"sed -i 's/\"worker\": ./\"worker\": 7/' bad/arrivals",
         "",
         LS_EDATA,
         {"bad/arrivals:2", "worker is 7", "0 to 3"}},
        {"sed -i '4s/.*/what/' bad/arrivals", "", LS_EDATA, {"bad/arrivals", "4", ""}},
        {"sed -i 9,13d bad/arrivals",
         "",
         LS_EDATA,
         {"ends with 7 events, and step 8", "parallel.servers = 1", "async.order"}},
        {"truncate -s -5 bad/arrivals", "", LS_EDATA, {"ends with 11 events, and step 12", "", ""}},
        {"truncate -s 0 bad/arrivals", "", LS_EDATA, {"bad/arrivals", "is empty", ""}},
    };
    struct workers_run good = recorded("good", "", -1);
    assert_int_equal(good.steps, 12);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[512];
        shell("rm -rf bad && cp -r good bad");
        shell(cases[i].command);
        snprintf(words, sizeof words, "parallel.workers=2 %s", cases[i].words);
        struct workers_run run = clock_run("bad", words, -1, 0);
        int status = workers_run(&run);
        for (int k = 0; k < 3; k++)
            if (status != cases[i].status || !strstr(run.error.text, cases[i].says[k]))
                fail_msg("%s %s: status %d: %s", cases[i].command, cases[i].words, status,
                         run.error.text);
    }
}

/* A run cannot go on behind what its log has. */
CASE(test_a_log_that_ends_before_the_checkpoint)
{
    static const char *const keys[] = {"async.order = ", "async.order = ", "async.follow = "};
    part("short", SERVED, 3, 6, false, true);
    shell("sed -i 6,7d short/arrivals");
    for (int i = 0; i < 3; i++) {
        char words[1024];
        snprintf(words, sizeof words, "train.resume=auto async.follow=%s%s %s",
                 i == 2 ? directory : "", i == 2 ? "/short" : "", i == 1 ? SERVED : "");
        struct workers_run run = clock_run("short", words, -1, 0);
        run.resume = true;
        int status = workers_run(&run);
        if (status != LS_EDATA || !strstr(run.error.text, keys[i]) ||
            !strstr(run.error.text, "short/arrivals has 4 events: expected at least the 6"))
            fail_msg("%s: status %d: %s", words, status, run.error.text);
    }
}

static int group_setup(void **state)
{
    int status = tokens_setup(state);
    directory = *state;
    return status;
}

SUITE_MAIN(group_setup, scratch_teardown)
