/* A process of an MPI job that is slow is named as a rank thread is, with its host; and the job's
 * bits are those of rank threads. Under a launcher this program is one rank; by itself it starts
 * itself under mpirun.
 */
#include "../support/config_words.h"
#include "../support/mpirun.h"
#include "../support/prom.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "slow_ranks.h"
#include "tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NONE = -1 };

static const char *program;

static struct ls_config config_of(const char *directory, const char *words)
{
    return config_of_words(SLOW_RANKS_RUN "parallel.dp=2 %s", directory, directory, words);
}

/* ---- one rank -------------------------------------------------------------------------------- */

/* The mode: the rank that is slow, by its update or by its samples, and the directory. */
static int rank_run(struct ls_comm *world, struct ls_error *error)
{
    char directory[512], how[16];
    int rank;
    if (sscanf(getenv(MPIRUN_MODE), "%d %15s %511s", &rank, how, directory) != 3)
        return ls_error_set(error, LS_EINVAL, "%s: expected a rank, how, a directory",
                            getenv(MPIRUN_MODE));
    struct ls_config config = config_of(directory, "");
    here = ls_comm_rank(world);
    slow(BASE_MS, NONE, 0);
    if (rank >= 0 && strcmp(how, "update") == 0)
        update_ms[rank] = 3 * BASE_MS;
    if (rank >= 0 && strcmp(how, "input") == 0)
        input_ms[rank] = BASE_MS / 2;
    return ls_run(&config, world, NULL, NULL, error);
}

/* ---- the launcher ---------------------------------------------------------------------------- */

/* The run's metrics.jsonl, to be freed. */
static char *job(const char *directory, int rank, const char *how)
{
    static char output[8192];
    char mode[640], path[640];
    snprintf(mode, sizeof mode, "%d %s %s", rank, how, directory);
    mpirun_or_skip();
    int status = mpirun(program, 2, mode, output, sizeof output);
    if (status)
        fail_msg("%s: the job ended with %d:\n%s", mode, status, output);
    snprintf(path, sizeof path, "%s/run/metrics.jsonl", directory);
    return scratch_read(path, NULL);
}

static void has(const char *text, const char *words)
{
    if (!strstr(text, words))
        fail_msg("%s is not in\n%s", words, text);
}

static void hash_of(const char *metrics, char hash[33])
{
    const char *found = strstr(metrics, "\"hash\": \"");
    assert_non_null(found);
    snprintf(hash, 33, "%s", found + 9);
}

static int thread_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    here = ls_comm_rank(world);
    return ls_run(user, world, NULL, NULL, error);
}

static void threads_hash(const char *directory, char hash[33])
{
    struct ls_config config = config_of(directory, "");
    struct ls_error error = {0};
    char path[640];
    snprintf(config.train.out + strlen(config.train.out), 16, "-threads");
    slow(0, NONE, 0);
    assert_ok(ls_world_run(2, thread_body, &config, &error), error);
    snprintf(path, sizeof path, "%s/metrics.jsonl", config.train.out);
    char *metrics = scratch_read(path, NULL);
    hash_of(metrics, hash);
    free(metrics);
}

CASE_WITH(test_a_slow_process_is_named, tokens_setup, scratch_teardown)
{
    char *metrics = job(*state, 1, "update"), *prom;
    char name[256], text[320], path[640], hash[33], threads[33];
    gethostname(name, sizeof name);
    has(metrics, "\"transport\": \"mpi\"");
    has(metrics, "\"kind\": \"slow_rank\", \"rank\": 1");
    snprintf(text, sizeof text, "\"text\": \"rank 1 on host %s is slow", name);
    has(metrics, text);
    assert_null(strstr(metrics, "\"rank\": 0, \"text\""));
    snprintf(path, sizeof path, "%s/run/metrics.prom", (const char *)*state);
    prom = scratch_read(path, NULL);
    assert_true(prom_value(prom, "lockstep_drift{run=\"run\",kind=\"slow_rank\"}") > 1);
    assert_true(prom_value(prom, "lockstep_drift{run=\"run\",kind=\"input_wait\"}") == 0);
    hash_of(metrics, hash);
    threads_hash(*state, threads);
    assert_string_equal(hash, threads);
    free(prom);
    free(metrics);
}

CASE_WITH(test_the_slow_process_may_be_the_first, tokens_setup, scratch_teardown)
{
    char *metrics = job(*state, 0, "update");
    has(metrics, "\"kind\": \"slow_rank\", \"rank\": 0");
    free(metrics);
}

CASE_WITH(test_a_process_that_waits_for_samples_is_named, tokens_setup, scratch_teardown)
{
    char *metrics = job(*state, 1, "input");
    has(metrics, "\"kind\": \"input_wait\"");
    assert_null(strstr(metrics, "slow_rank"));
    free(metrics);
}

/* The twin: where none is slowed, none is named. */
CASE_WITH(test_nothing_slowed_nothing_named, tokens_setup, scratch_teardown)
{
    char *metrics = job(*state, NONE, "none");
    if (strstr(metrics, "\"drift\""))
        fail_msg("%s", metrics);
    free(metrics);
}

int main(int argc, char **argv)
{
    program = argv[0];
    if (getenv(MPIRUN_MODE))
        return mpirun_rank(rank_run);
    return suite_run(NULL, NULL);
}
