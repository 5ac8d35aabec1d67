/* A parameter server by the clock, in a job whose ranks survive the death of one: a worker that
 * dies leaves, the log says so, the others push on to the meeting, and the next start of the job
 * goes on behind it, with that worker begun anew. If a rank of the server dies, the next start goes
 * on behind the last meeting, of which workers have what the server had. No step before that is
 * computed again, no batch is lost or taken twice, and an audit on one rank gives every step as the
 * log has it. Under a launcher this program is one rank; by itself it starts itself under mpirun.
 *
 * Broken twins: a worker that begins anew with other parameters; workers that do not have the
 * optimizer's state; a rank that leaves because another died, and is taken for the dead one. */
#include "../support/await.h"
#include "../support/extent.h"
#include "../support/mpirun.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "tokens.h"
#include "train/parameter_server.h"
#include "workers_run.h"

#include <lockstep/train/members.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORKERS = 4, LAST = 1, VICTIM = 3, STEPS = 24, MEETING = STEPS / 2 };

static const char *program;

/* ---- one rank -------------------------------------------------------------------------------- */

/* "kill MOMENT BOUND RANKS DIRECTORY": a rank dies there, of RANKS a worker; or "goon", and no step
 * of the first interval is to be computed; or "again", and they are; or "stray", where the worker
 * begins anew with parameters that are not those of the run. "kill-stale": workers have another
 * state of the optimizer than the server that dies. "kill-mute": who leaves does not say so. */
static struct {
    char what[16], moment[16], directory[512];
    int bound, ranks;
} mode;

static void die_at(const struct ls_trainer *t, const char *moment, int group, int rank)
{
    if (!strncmp(mode.what, "kill", 4) && !strcmp(mode.moment, moment) &&
        t->workers->group == group && ls_comm_rank(t->world) == rank)
        raise(SIGKILL);
}

WRAPPED(server_gradient);
int __wrap_server_gradient(struct ls_trainer *t, int worker, int64_t ticket, struct ls_error *error)
{
    static int gradients;
    if (gradients++ == 1)
        die_at(t, "gradient", VICTIM, 0);
    if (!strcmp(mode.what, "goon") && workers_outer(t)->step < MEETING)
        return ls_error_set(error, LS_EINVAL, "a step of the first interval is computed again");
    return __real_server_gradient(t, worker, ticket, error);
}

/* Asked for its gradient: of two ranks one sends its part. */
WRAPPED(server_pack);
void __wrap_server_pack(struct ls_trainer *t, int worker)
{
    static int packed;
    if (packed++ == 1)
        die_at(t, "pack", VICTIM, mode.ranks - 1);
    __real_server_pack(t, worker);
}

/* A batch counts when its gradient was added. */
WRAPPED(server_add);
int __wrap_server_add(struct ls_trainer *t, const double *note, struct ls_step_report *report,
                      struct ls_error *error)
{
    if (report->step == MEETING / 2)
        die_at(t, "server", WORKERS, 0);
    if (report->step == MEETING + MEETING / 2)
        die_at(t, "served", WORKERS, 0);
    int status = __real_server_add(t, note, report, error);
    FILE *file = ls_comm_rank(t->world) ? NULL : fopen(scratch_path(mode.directory, "added"), "a");
    if (file && !status)
        fprintf(file, "%d %d\n", (int)report->step, (int)report->push.ticket);
    if (file)
        fclose(file);
    return status;
}

/* In the second meeting, of two server ranks one sends its part. */
WRAPPED(server_states);
int __wrap_server_states(struct ls_trainer *t, bool takes, struct ls_error *error)
{
    if (workers_outer(t)->step == STEPS)
        die_at(t, "meet", WORKERS, mode.ranks - 1);
    bool stale = takes && !strcmp(mode.what, "kill-stale");
    return stale ? LS_OK : __real_server_states(t, takes, error);
}

WRAPPED(workers_save);
int __wrap_workers_save(struct ls_trainer *t, struct ls_error *error)
{
    die_at(t, "save", VICTIM, 0);
    die_at(t, "server-save", WORKERS, 0);
    return __real_workers_save(t, error);
}

/* This group is the last to look who died: rank 0 has left by then. */
WRAPPED(workers_rescue);
bool __wrap_workers_rescue(struct ls_trainer *t, struct ls_error *error)
{
    bool last = t->workers->group == LAST && !strncmp(mode.what, "kill", 4);
    while (last && ls_comm_lost(t->whole, 0, 1) < 0)
        await_pause();
    return __real_workers_rescue(t, error);
}

WRAPPED(ls_comm_leave);
void __wrap_ls_comm_leave(struct ls_comm *comm, int lost)
{
    if (strcmp(mode.what, "kill-mute") != 0)
        __real_ls_comm_leave(comm, lost);
}

WRAPPED(server_pulled);
int __wrap_server_pulled(struct ls_trainer *t, int worker, double scale, struct ls_error *error)
{
    int status = __real_server_pulled(t, worker, scale, error);
    if (!strcmp(mode.what, "stray") && t->workers->group == VICTIM)
        t->units[worker].slices[0].master[0] += 1;
    return status;
}

static int rank_run(struct ls_comm *world, struct ls_error *error)
{
    if (sscanf(getenv(MPIRUN_MODE), "%15s %15s %d %d %511s", mode.what, mode.moment, &mode.bound,
               &mode.ranks, mode.directory) != 5)
        return ls_error_set(error, LS_EINVAL, "%s: expected what to do, and where",
                            getenv(MPIRUN_MODE));
    /* Without a checkpoint of the first meeting there is only what workers have. */
    bool saves = strcmp(mode.moment, "served") != 0 && strcmp(mode.moment, "meet") != 0;
    struct ls_config config = workers_config(
        mode.directory,
        "async.mode=server async.order=clock async.staleness=%d async.sync_every=%d train.steps=%d "
        "train.save_every=%d log.hash_every=%d parallel.workers=4 parallel.servers=1 "
        "parallel.tp=%d train.keep=9 train.resume=auto",
        mode.bound, MEETING, STEPS, saves ? MEETING : STEPS, MEETING, mode.ranks);
    int status = ls_run(&config, world, NULL, NULL, error);
    if (status != LS_ECOMM)
        return status;
    fprintf(stderr, "%s\n", error->text);
    _exit(0); /* nobody ends MPI in good order without the one that died */
}

/* ---- the launcher ---------------------------------------------------------------------------- */

static char output[32768];

/* That rank dies at that moment. `then`: how the job goes on; kept: what so many ranks of it have.
 */
static const struct loss {
    const char *moment, *then;
    int dead, bound, ranks, kept;
    bool left; /* the log has it */
    int most;  /* workers that begin anew */
} losses[] = {
    {"gradient", "goon", 3, 1, 1, WORKERS, true, 1},
    {"served", "goon", 4, 1, 1, WORKERS, false, WORKERS},
    {"server", "again", 4, 1, 1, 0, false, 0},
    {"pack", "goon", 7, 1, 2, 2 * WORKERS, true, 1},
    {"gradient", "goon", 3, 0, 1, WORKERS, true, 1},
    {"save", "goon", 3, 1, 1, WORKERS, false, 1},
    {"served", "goon", 8, 0, 2, 2 * WORKERS, false, WORKERS},
    {"meet", "goon", 9, 1, 2, 2 * WORKERS, false, WORKERS},
    {"server-save", "goon", 4, 1, 1, WORKERS, false, 0},
};
enum { LOSSES = sizeof losses / sizeof *losses, LOSSES_FEW = 2, SERVED = 1 };

static void job(const char *directory, const struct loss *loss, const char *what)
{
    char line[700];
    snprintf(line, sizeof line, "%s %s %d %d %s", what, loss->moment, loss->bound, loss->ranks,
             directory);
    int code = mpirun(program, (WORKERS + 1) * loss->ranks, line, output, sizeof output);
    if (code)
        fail_msg("%s at %s: the job ended with %d:\n%s", what, loss->moment, code, output);
}

static int count_of(const char *text, const char *mark)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, mark)); at++)
        count++;
    return count;
}

/* The records say where the run goes on, by which the launcher counts what is computed again. */
static void expect_rescued(const char *directory, const struct loss *loss)
{
    char *text = scratch_read(scratch_path(directory, "run/metrics.jsonl"), NULL), word[32];
    snprintf(word, sizeof word, "\"rescued\": %d,", MEETING);
    if (count_of(text, word) != 1)
        fail_msg("%s: expected one start with %s", loss->moment, word);
    free(text);
}

/* Whether all that live name the rank that died, whoever else has ended by then. */
static bool is_named(const struct loss *loss)
{
    char named[32];
    snprintf(named, sizeof named, "rank %d, of ", loss->dead);
    int told = count_of(output, ", has ended; ");
    return told > 0 && count_of(output, named) == told;
}

/* The job in which a rank dies; what it leaves of the first loss is there again the next time. */
static void lose_rank(const char *directory, const struct loss *loss, const char *kills)
{
    static bool left;
    bool first = loss == losses && !strcmp(kills, "kill");
    char line[700];
    snprintf(line, sizeof line, "cd '%s' && rm -rf run added%s", directory,
             first && left ? " && cp -a left/* ." : "");
    assert_int_equal(system(line), 0);
    if (first && left)
        return;
    job(directory, loss, kills);
    int kept = count_of(output, "the state kept is of ");
    if (kept != loss->kept)
        fail_msg("%s: %d ranks kept something, expected %d:\n%s", loss->moment, kept, loss->kept,
                 output);
    if (is_named(loss) == !strcmp(kills, "kill-mute"))
        fail_msg("%s: expected rank %d to be named:\n%s", loss->moment, loss->dead, output);
    snprintf(line, sizeof line, "cd '%s' && mkdir left && cp -a run added left", directory);
    if (first)
        assert_int_equal(system(line), 0);
    left |= first;
}

static void lose(const char *directory, const struct loss *loss, const char *kills,
                 const char *then)
{
    lose_rank(directory, loss, kills);
    job(directory, loss, then);
    if (!strcmp(then, "goon"))
        expect_rescued(directory, loss);
    if (strncmp(then, "kill", 4) != 0)
        assert_int_not_equal(access(scratch_path(directory, "run/rescue"), F_OK), 0);
}

/* What was added last for each step: batches from the first on, each once, but those that workers
 * have and did not push. */
static void expect_each_batch_once(const char *directory)
{
    int ticket[STEPS + 1], times[STEPS + WORKERS] = {0}, step, last, read = 0;
    char *text = scratch_read(scratch_path(directory, "added"), NULL), *at = text;
    for (int n; sscanf(at, "%d %d%n", &step, &last, &n) == 2; at += n, read++)
        ticket[step] = last;
    free(text);
    assert_true(read >= STEPS);
    for (step = 1; step <= STEPS; step++) {
        assert_in_range(ticket[step], 0, STEPS + WORKERS - 1);
        if (times[ticket[step]]++)
            fail_msg("the batch %d is taken twice, last in step %d", ticket[step], step);
    }
}

static void expect_log(const char *directory, const struct loss *loss)
{
    char *text = scratch_read(scratch_path(directory, "run/arrivals"), NULL), line[64];
    int left = count_of(text, "\"left\": ");
    if (left != loss->left || count_of(text, "\"left\": 3") != left)
        fail_msg("%s: expected %d workers that left:\n%s", loss->moment, loss->left, text);
    bool server = loss->most == WORKERS;
    snprintf(line, sizeof line,
             server ? "{\"event\": %d, \"renewed\": " : "{\"event\": %d, \"renewed\": %d}", MEETING,
             VICTIM);
    /* One that had the newest parameters has them without a word. */
    int renewed = count_of(text, "\"renewed\": "), least = loss->left;
    if (renewed < least || renewed > loss->most || count_of(text, line) != renewed)
        fail_msg("%s: expected %d to %d workers that begin anew:\n%s", loss->moment, least,
                 loss->most, text);
    assert_int_equal(count_of(text, "\"clock\": "), STEPS);
    free(text);
}

/* A run that goes on from a checkpoint of it takes its log, with who left and began anew. */
static void expect_taken(const char *directory, const struct loss *loss)
{
    struct workers_run other = {
        .config = workers_config(
            directory,
            "async.mode=server async.order=clock async.staleness=%d async.sync_every=%d "
            "train.steps=%d train.resume=%s/run/checkpoints/step-%08d train.out=%s/other",
            loss->bound, MEETING, STEPS, directory, MEETING, directory),
        .resume = true,
        .steps = MEETING};
    workers_run_well(&other);
    char *own = scratch_read(scratch_path(directory, "run/arrivals"), NULL);
    char *copy = scratch_read(scratch_path(directory, "other/arrivals"), NULL);
    assert_string_equal(copy, own);
    free(copy);
    free(own);
}

CASE(test_a_worker_that_dies_does_not_stop_the_others)
{
    mpirun_or_skip();
    for (int i = 0; i < (check_all() ? LOSSES : LOSSES_FEW); i++) {
        lose(*state, &losses[i], "kill", losses[i].then);
        expect_log(*state, &losses[i]);
        expect_each_batch_once(*state);
        workers_expect_audit(*state, STEPS, 2);
        if (i == 0)
            expect_taken(*state, &losses[i]);
    }
}

/* Two deaths, each in an interval of its own, of which the last one has no steps behind it. */
CASE(test_a_second_death)
{
    mpirun_or_skip();
    if (!check_all())
        skip();
    lose(*state, &losses[0], "kill", "kill");
    job(*state, &losses[0], "goon");
    char *text = scratch_read(scratch_path(*state, "run/arrivals"), NULL);
    assert_int_equal(count_of(text, "\"left\": 3"), 2);
    assert_int_equal(count_of(text, "\"renewed\": 3"), 2);
    free(text);
    expect_each_batch_once(*state);
    workers_expect_audit(*state, STEPS, 2);
}

/* Twin: it begins anew with something else than the log says. */
CASE(test_a_worker_that_begins_anew_elsewhere_is_seen)
{
    mpirun_or_skip();
    lose(*state, &losses[0], "kill", "stray");
    assert_false(workers_audit(*state, STEPS).equal);
}

/* Twin: what a worker has of the server is not all of it. */
CASE(test_a_forgotten_optimizer_is_seen)
{
    mpirun_or_skip();
    lose(*state, &losses[SERVED], "kill-stale", "goon");
    assert_false(workers_audit(*state, STEPS).equal);
}

/* Twin: who has left is taken for the one that died. */
CASE(test_a_rank_that_left_is_not_the_dead_one)
{
    mpirun_or_skip();
    if (!check_all())
        skip();
    lose(*state, &losses[SERVED], "kill-mute", "goon");
}

int main(int argc, char **argv)
{
    (void)argc;
    program = argv[0];
    if (getenv(MPIRUN_MODE))
        return mpirun_rank(rank_run);
    mpirun_survives();
    return suite_run(tokens_setup, scratch_teardown);
}
