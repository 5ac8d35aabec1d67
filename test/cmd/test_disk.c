/* Saving on a bad disk: a rank that is slow and gets on is not late, however small the timeout; one
 * that is stuck is named. Over threads and over processes, of one host and of several
 * (test/hosts/test_hosts): under a launcher this program is one rank. The clock turns when rank 0
 * writes, which then waits until rank 1 has looked who is late. */
#include "../support/late.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/turned_clock.h"
#include "run_program.h"

#include <lockstep/train.h>

#include "train/trainer.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FOLDER "DISK_FOLDER"
#define KIND   "DISK_KIND"

enum { RANKS = 2, PIECES = 16, WRITES_SLOW = 20 };

static char *folder; /* of the corpus and of all runs */

/* ---- the disk -------------------------------------------------------------------------------- */

static _Atomic enum { DISK_GOOD, DISK_SLOW, DISK_STUCK } disk;
static atomic_int writes;  /* of tensors, so far */
static atomic_bool stands; /* one does not return */

WRAPPED(write);

/* A quarter of the timeout goes by. Rank 1 knows of what this rank did before. */
static void pause_long(void)
{
    struct ls_progress *own = ls_progress_keep(NULL);
    ls_progress_keep(own);
    atomic_store(&turned->heard_s, ls_progress_s(own) - turned_step_s / 2);
    turned_await(1, turned_turn(turned_step_s));
}

/* Rank 0's bad disk takes part of what is offered, after a while; a stuck one does so five times.
 */
ssize_t __wrap_write(int file, const void *data, size_t bytes)
{
    if (disk == DISK_GOOD || !strstr(path_of(file), "shard-00001-")) /* rank 1 looks */
        return __real_write(file, data, bytes);
    int count = ++writes;
    pause_long();
    for (; disk == DISK_STUCK && count > 5; pause_long())
        stands = true;
    return __real_write(file, data, ls_min((int64_t)bytes, 1 + (int64_t)bytes / PIECES + 4096));
}

/* Nobody else has to say who is late. */
WRAPPED(train_late_grace);
void __wrap_train_late_grace(double timeout_s) {}

/* ---- the run --------------------------------------------------------------------------------- */

/* One step, and its checkpoint. */
static int config_make(struct ls_config *config, const char *directory, const char *out,
                       struct ls_error *error)
{
    static const char *const keys[] = {
        "model.preset=gpt2-tiny", "batch.global=8", "parallel.dp=2",         "parallel.zero=1",
        "parallel.threads=1",     "train.steps=1",  "log.tensorboard=false", "model.vocab=320"};
    char key[PATH_MAX + 32];
    int status = 0;
    ls_config_defaults(config);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && !status; i++)
        status = ls_config_set(config, keys[i], error);
    snprintf(key, sizeof key, "comm.timeout_s=%g", turned_timeout_s);
    if (!status)
        status = ls_config_set(config, key, error);
    snprintf(key, sizeof key, "data.train=%s/corpus_train", directory);
    if (!status)
        status = ls_config_set(config, key, error);
    snprintf(key, sizeof key, "train.out=%s/%s", directory, out);
    if (!status)
        status = ls_config_set(config, key, error);
    return status ? status : ls_train_resolve(config, error);
}

static int body(struct ls_comm *world, void *user, struct ls_error *error)
{
    const struct ls_config *config = user;
    ls_comm_set_timeout(world, config->comm.timeout_s);
    return ls_run(config, world, NULL, NULL, error);
}

/* ---- threads --------------------------------------------------------------------------------- */

/* The config is never freed: a rank that was given up still reads it. */
static int threads_run(const char *out, struct ls_error *error)
{
    static struct ls_config configs[2];
    struct ls_config *config = &configs[disk == DISK_STUCK];
    turned_begin(0);
    writes = 0;
    stands = false;
    assert_ok(config_make(config, folder, out, error), *error);
    int status = ls_world_run(RANKS, body, config, error);
    return status;
}

CASE(test_a_slow_disk_of_threads)
{
    struct ls_error error = {0};
    disk = DISK_SLOW;
    int status = threads_run("slow", &error);
    disk = DISK_GOOD;
    if (status || writes < WRITES_SLOW)
        fail_msg("status %d after %d writes: %s", status, (int)writes, error.text);
}

CASE(test_a_stuck_disk_of_threads)
{
    struct ls_error error = {0};
    disk = DISK_STUCK;
    int status = threads_run("stuck", &error);
    assert_true(stands);
    disk = DISK_GOOD;
    if (status != LS_ECOMM || !says_waited(error.text, turned_timeout_s) ||
        !strstr(error.text, "late is rank 0: it has left "))
        fail_msg("status %d: %s", status, error.text);
}

/* ---- processes ------------------------------------------------------------------------------- */

static int rank_main(const char *kind)
{
    struct ls_comm *world;
    struct ls_config config;
    struct ls_error error = {0};
    disk = strcmp(kind, "slow") == 0 ? DISK_SLOW : DISK_STUCK;
    turned_share(scratch_path(getenv(FOLDER), "clock"));
    int status = config_make(&config, getenv(FOLDER), kind, &error);
    if (!status)
        status = ls_comm_mpi_new(&world, &error);
    if (!status)
        status = body(world, &config, &error);
    if (status) {
        fprintf(stderr, "%s\n", error.text);
        ls_mpi_abort(ls_exit_code(status));
        return ls_exit_code(status);
    }
    printf("%d writes\n", (int)writes);
    ls_comm_free(world);
    ls_mpi_finish();
    return 0;
}

static void mpi_or_skip(void)
{
#ifdef LS_WITH_MPI
    if (system("mpirun --version 2>/dev/null | grep -q 'Open MPI'") == 0)
        return;
    print_message("no mpirun of Open MPI: skipped\n");
#else
    print_message("built without MPI: skipped\n");
#endif
    skip();
}

/* The exit code of the job; out is what it printed. */
static int processes_run(const char *kind, char out[PROGRAM_OUTPUT_BYTES])
{
    char self[PATH_MAX] = "", line[3 * PATH_MAX];
    mpi_or_skip();
    unlink(scratch_path(folder, "mpi/clock"));
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(line, sizeof line,
             "OMP_WAIT_POLICY=passive ASAN_OPTIONS=detect_leaks=0 OMPI_ALLOW_RUN_AS_ROOT=1 "
             "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " FOLDER "='%s/mpi' " KIND "=%s "
             "mpirun --oversubscribe -n %d '%s' 2>&1",
             folder, kind, RANKS, self);
    return program_shell(line, out);
}

CASE(test_a_slow_disk_of_processes)
{
    static char out[PROGRAM_OUTPUT_BYTES];
    int code = processes_run("slow", out);
    int count = 0; /* of both ranks, whose lines come in any order */
    for (char *line = out; (line = strstr(line, " writes\n")); line++) {
        char *digits = line;
        while (digits > out && isdigit((unsigned char)digits[-1]))
            digits--;
        count += atoi(digits);
    }
    if (code != 0 || count < WRITES_SLOW)
        fail_msg("exited with %d and printed:\n%s", code, out);
}

CASE(test_a_stuck_disk_of_processes)
{
    static char out[PROGRAM_OUTPUT_BYTES];
    int code = processes_run("stuck", out);
    if (code != ls_exit_code(LS_ECOMM) || !says_waited(out, turned_timeout_s) ||
        !strstr(out, "late is rank 0: it has left "))
        fail_msg("exited with %d and printed:\n%s", code, out);
}

static int folder_setup(void **state)
{
    int status = scratch_setup(state);
    char enter[PATH_MAX];
    folder = *state;
    program_corpus(folder);
    snprintf(enter, sizeof enter, "mkdir '%s/mpi' && cp '%s'/corpus_train.* '%s/mpi'", folder,
             folder, folder);
    return status ? status : system(enter);
}

int main(void)
{
    if (getenv(KIND))
        return rank_main(getenv(KIND));
    return suite_run(folder_setup, scratch_teardown);
}
