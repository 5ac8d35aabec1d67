/* A rank of one worker is killed before, in and behind an outer step, in a job whose ranks survive
 * that: the next start goes on from what the others kept, no step is computed again, and an audit
 * on one rank gives every step as RUN/members has it. Under a launcher this program is one rank; by
 * itself it starts itself under mpirun.
 *
 * With async.delay the rank dies before the deltas leave, or while they are on their way.
 *
 * Broken twins: a worker that was lost has a part in the mean; a loss that is not recorded; deltas
 * that are those of a later step. */
#include "../support/extent.h"
#include "../support/mpirun.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "tokens.h"
#include "train/membership.h"
#include "workers_run.h"

#include <lockstep/train/members.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORKERS = 3, INTERVAL = 2, STEPS = 8 };

static const char *program;

/* ---- one rank -------------------------------------------------------------------------------- */

/* "kill MOMENT GROUP OUTER RECIPE DIRECTORY": the group's first rank dies there; or "goon", and no
 * step before that outer step is to be computed. */
static struct {
    char what[16], moment[16], directory[512];
    int group, outer, recipe;
} mode;

/* Each meets every INTERVAL steps. */
enum { AT_ONCE, DELAYED, STREAMED, INT8 };
static const char *const recipes[] = {
    [AT_ONCE] = "async.sync_every=2",
    [DELAYED] = "async.sync_every=2 async.delay=1",
    [STREAMED] = ("async.sync_every=4 async.fragments=2 async.delay=1 async.mixing=0.5 "
                  "async.delta=bf16"),
    [INT8] = "async.sync_every=2 async.delay=1 async.delta=int8",
};

static int64_t outer_step(const struct ls_trainer *t)
{
    return t->workers->begin / INTERVAL + 1;
}

static void die_at(const struct ls_trainer *t, const char *moment)
{
    if (!strcmp(mode.what, "kill") && !strcmp(mode.moment, moment) &&
        t->workers->group == mode.group && outer_step(t) == mode.outer &&
        ls_comm_rank(t->world) == 0)
        raise(SIGKILL);
}

WRAPPED(members_next);
int __wrap_members_next(struct ls_trainer *t, struct ls_error *error)
{
    die_at(t, "next");
    return __real_members_next(t, error);
}

static const struct ls_trainer *trainer;

WRAPPED(step_once);
int __wrap_step_once(struct ls_trainer *t, struct ls_step_report *report, struct ls_error *error)
{
    trainer = t;
    die_at(t, "step");
    if (t->workers->ends) /* with a delay deltas are on their way */
        die_at(t, "behind");
    if (strcmp(mode.what, "kill") != 0 && outer_step(t) < mode.outer)
        return ls_error_set(error, LS_EINVAL, "a step of outer step %ld is computed again",
                            (long)outer_step(t));
    return __real_step_once(t, report, error);
}

WRAPPED(exchange_begin);
int __wrap_exchange_begin(struct ls_trainer *t, int status, struct ls_error *error)
{
    struct workers *w = t->workers;
    die_at(t, "begin");
    for (int i = 0; i < w->count && !strcmp(mode.what, "stale"); i++) {
        w->members += w->placed[i] && !w->member[i];
        w->member[i] = w->placed[i];
    }
    if (!strcmp(mode.what, "late"))
        exchange_deltas_drop(w);
    return __real_exchange_begin(t, status, error);
}

WRAPPED(exchange_wait);
int __wrap_exchange_wait(struct ls_trainer *t, struct ls_error *error)
{
    die_at(t, "wait");
    return __real_exchange_wait(t, error);
}

WRAPPED(exchange_end);
int __wrap_exchange_end(struct ls_trainer *t, struct ls_error *error)
{
    die_at(t, "end");
    return __real_exchange_end(t, error);
}

WRAPPED(workers_save);
int __wrap_workers_save(struct ls_trainer *t, struct ls_error *error)
{
    die_at(t, "save");
    return __real_workers_save(t, error);
}

/* Ranks of the other places have the hashes of their workers, and those of this place wait for
 * them.
 */
WRAPPED(ls_all_gather_start);
int __wrap_ls_all_gather_start(struct ls_comm *comm, const void *input, void *output, int64_t count,
                               enum ls_dtype dtype, struct ls_request *request,
                               struct ls_call_site site, struct ls_error *error)
{
    if (!strcmp(mode.moment, "hash") && trainer && input == trainer->workers->hashes)
        die_at(trainer, "hash");
    return __real_ls_all_gather_start(comm, input, output, count, dtype, request, site, error);
}

static void say(void *user, enum ls_log_level level, const char *line)
{
    (void)user;
    if (level <= LS_LOG_INFO)
        fprintf(stderr, "%s\n", line);
}

static int rank_run(struct ls_comm *world, struct ls_error *error)
{
    const struct ls_log log = {.level_max = LS_LOG_INFO, .write = say};
    if (sscanf(getenv(MPIRUN_MODE), "%15s %15s %d %d %d %511s", mode.what, mode.moment, &mode.group,
               &mode.outer, &mode.recipe, mode.directory) != 6)
        return ls_error_set(error, LS_EINVAL, "%s: expected what to do, and where",
                            getenv(MPIRUN_MODE));
    int tp = ls_comm_size(world) / WORKERS;
    struct ls_config config =
        workers_config(mode.directory,
                       "async.workers=%d %s train.steps=%d train.save_every=4 log.hash_every=%d "
                       "parallel.workers=%d parallel.tp=%d train.resume=auto",
                       WORKERS, recipes[mode.recipe], STEPS, INTERVAL, WORKERS, tp);
    int status = ls_run(&config, world, &log, NULL, error);
    if (status != LS_ECOMM)
        return status;
    fprintf(stderr, "%s\n", error->text);
    _exit(0); /* nobody ends MPI in good order without the one that died */
}

/* ---- the launcher ---------------------------------------------------------------------------- */

static char output[16384];

static int recipe;

static void job(const char *directory, int tp, const char *what, const char *moment, int group,
                int outer)
{
    char line[700];
    snprintf(line, sizeof line, "%s %s %d %d %d %s", what, moment, group, outer, recipe, directory);
    int code = mpirun(program, WORKERS * tp, line, output, sizeof output);
    if (code)
        fail_msg("%s at %s: the job ended with %d:\n%s", what, moment, code, output);
}

/* A rank of that group dies there; the next start may compute steps from outer step `from` on, and
 * RUN/members has that line ("": none). */
static const struct loss {
    const char *moment;
    int group, outer, tp, from;
    const char *line;
    int recipe;
} losses[] = {
    {"wait", 0, 3, 1, 4, "{\"outer_step\": 3, \"workers\": \"0-2\", \"lost\": \"0\"}\n", AT_ONCE},
    {"hash", 1, 2, 2, 3, "{\"outer_step\": 2, \"workers\": \"0-2\", \"renewed\": \"1\"}\n",
     AT_ONCE},
    {"end", 2, 2, 1, 3, "{\"outer_step\": 2, \"workers\": \"0-2\", \"renewed\": \"2\"}\n", AT_ONCE},
    {"step", 1, 1, 2, 2, "{\"outer_step\": 1, \"workers\": \"0-2\", \"lost\": \"1\"}\n", AT_ONCE},
    {"begin", 2, 4, 1, 5, "{\"outer_step\": 4, \"workers\": \"0-2\", \"lost\": \"2\"}\n", AT_ONCE},
    {"save", 1, 2, 1, 3, "{\"outer_step\": 2, \"workers\": \"0-2\", \"renewed\": \"1\"}\n",
     AT_ONCE},
    {"next", 1, 2, 1, 2, "{\"outer_step\": 1, \"workers\": \"0-2\", \"renewed\": \"1\"}\n",
     AT_ONCE},
    {"next", 0, 3, 1, 3, "", AT_ONCE}, /* behind a checkpoint: nothing is lost */
};
/* The same with a delay. */
static const struct loss late_losses[] = {
    {"behind", 1, 2, 1, 3, "{\"outer_step\": 2, \"workers\": \"0-2\", \"lost\": \"1\"}\n",
     STREAMED},
    {"step", 0, 3, 1, 4, "{\"outer_step\": 3, \"workers\": \"0-2\", \"lost\": \"0\"}\n", DELAYED},
    {"begin", 2, 1, 1, 2, "{\"outer_step\": 1, \"workers\": \"0-2\", \"lost\": \"2\"}\n", STREAMED},
    {"behind", 0, 4, 2, 5, "{\"outer_step\": 4, \"workers\": \"0-2\", \"lost\": \"0\"}\n", DELAYED},
    {"wait", 1, 3, 2, 4, "{\"outer_step\": 3, \"workers\": \"0-2\", \"lost\": \"1\"}\n", STREAMED},
    {"end", 2, 2, 1, 3, "{\"outer_step\": 2, \"workers\": \"0-2\", \"renewed\": \"2\"}\n", DELAYED},
};
enum { LOSSES = sizeof losses / sizeof *losses, LOSSES_FEW = 2 };
enum { LATE = sizeof late_losses / sizeof *late_losses, LATE_FEW = 1 };

static void run_remove(const char *directory)
{
    char line[700];
    snprintf(line, sizeof line, "rm -rf '%s'", scratch_path(directory, "run"));
    assert_int_equal(system(line), 0);
}

/* The job in which a rank dies; what it leaves of the first loss is there again the next time. */
static void lose_rank(const char *directory, const struct loss *loss)
{
    static bool left;
    char line[700];
    run_remove(directory);
    snprintf(line, sizeof line, "cd '%s' && %s", directory,
             left ? "cp -a left run" : "cp -a run left");
    if (loss == losses && left) {
        assert_int_equal(system(line), 0);
        return;
    }
    job(directory, loss->tp, "kill", loss->moment, loss->group, loss->outer);
    int kept = 0;
    for (const char *at = output; (at = strstr(at, "the state kept is of ")); at++)
        kept++;
    if (kept != (WORKERS - 1) * loss->tp)
        fail_msg("%s: %d ranks kept something, not those of all other workers:\n%s", loss->moment,
                 kept, output);
    if (loss == losses) {
        assert_int_equal(system(line), 0);
        left = true;
    }
}

static void lose(const char *directory, const struct loss *loss, const char *then)
{
    recipe = loss->recipe;
    lose_rank(directory, loss);
    job(directory, loss->tp, then, loss->moment, -1, loss->from);
    const char *told = strstr(output, "going on from ");
    if (!told || strstr(told + 1, "going on from "))
        fail_msg("%s: expected one rank to tell where the run goes on:\n%s", loss->moment, output);
    assert_int_not_equal(access(scratch_path(directory, "run/rescue"), F_OK), 0);
}

static void expect_members(const char *directory, const char *expected)
{
    const char *path = scratch_path(directory, "run/" LS_MEMBERS_FILE);
    if (!*expected) {
        assert_int_not_equal(access(path, F_OK), 0);
        return;
    }
    char *text = scratch_read(path, NULL);
    assert_string_equal(text, expected);
    free(text);
}

CASE(test_steps_of_the_others_stay)
{
    mpirun_or_skip();
    for (int i = 0; i < (check_all() ? LOSSES : LOSSES_FEW); i++) {
        lose(*state, &losses[i], "goon");
        expect_members(*state, losses[i].line);
        workers_expect_audit(*state, STEPS, STEPS / INTERVAL);
    }
}

/* Twin: RUN/members does not say that a worker was lost, or that one began anew. */
CASE(test_a_loss_that_is_not_recorded_is_seen)
{
    mpirun_or_skip();
    if (check_all()) /* otherwise this was the last one above */
        lose(*state, &losses[LOSSES_FEW - 1], "goon");
    assert_int_equal(remove(scratch_path(*state, "run/" LS_MEMBERS_FILE)), 0);
    assert_false(workers_audit(*state, STEPS).equal);
}

/* Twin: the mean is over a worker that was lost too, with what its next rank has of it. */
CASE(test_a_lost_worker_in_the_mean_is_seen)
{
    mpirun_or_skip();
    lose(*state, &losses[0], "stale");
    expect_members(*state, losses[0].line);
    assert_false(workers_audit(*state, STEPS).equal);
}

CASE(test_deltas_on_their_way_stay)
{
    mpirun_or_skip();
    for (int i = 0; i < (check_all() ? LATE : LATE_FEW); i++) {
        lose(*state, &late_losses[i], "goon");
        expect_members(*state, late_losses[i].line);
        workers_expect_audit(*state, STEPS, STEPS / INTERVAL);
    }
}

/* Twin: deltas are taken where the steps behind them are done. */
CASE(test_deltas_of_a_later_step_are_seen)
{
    mpirun_or_skip();
    if (!check_all())
        skip();
    lose(*state, &late_losses[0], "late");
    expect_members(*state, late_losses[0].line);
    assert_false(workers_audit(*state, STEPS).equal);
}

/* The scale of int8 deltas is of all workers: the run goes on from the newest checkpoint, of which
 * there is none. */
CASE(test_int8_deltas_on_their_way_are_not_kept)
{
    mpirun_or_skip();
    if (!check_all())
        skip();
    recipe = INT8;
    for (int tp = 1; tp <= 2; tp++) {
        run_remove(*state);
        job(*state, tp, "kill", "behind", 1, 2);
        assert_null(strstr(output, "the state kept is of "));
        job(*state, tp, "goon", "-", -1, 1);
        expect_members(*state, "");
        workers_expect_audit(*state, STEPS, STEPS / INTERVAL);
    }
}

/* Two deaths, of which the second comes before a checkpoint makes RUN/rescue needless. */
CASE(test_a_second_death)
{
    mpirun_or_skip();
    if (!check_all())
        skip();
    run_remove(*state);
    recipe = AT_ONCE;
    job(*state, 1, "kill", "wait", 0, 1);
    job(*state, 1, "kill", "step", 2, 2);
    job(*state, 1, "goon", "-", -1, 3);
    expect_members(*state, "{\"outer_step\": 1, \"workers\": \"0-2\", \"lost\": \"0\"}\n"
                           "{\"outer_step\": 2, \"workers\": \"0-2\", \"lost\": \"2\"}\n");
    workers_expect_audit(*state, STEPS, STEPS / INTERVAL);
}

/* A worker that lives and cannot be written is not taken for one that died: all of them go on from
 * the newest checkpoint, of which there is none yet. */
CASE(test_a_worker_that_cannot_be_kept)
{
    mpirun_or_skip();
    run_remove(*state);
    recipe = AT_ONCE;
    char line[700];
    snprintf(line, sizeof line, "mkdir -p '%s' && touch '%s/0002'",
             scratch_path(*state, "run/rescue/workers"),
             scratch_path(*state, "run/rescue/workers"));
    assert_int_equal(system(line), 0);
    job(*state, 1, "kill", "wait", 0, 2);
    assert_non_null(strstr(output, "worker 2 cannot be kept: "));
    assert_non_null(strstr(output, "the state kept is of worker 1, behind step 4"));
    job(*state, 1, "goon", "-", -1, 1);
    assert_non_null(strstr(output, "worker 2 could not be kept when a rank died"));
    expect_members(*state, "");
    workers_expect_audit(*state, STEPS, STEPS / INTERVAL);
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
