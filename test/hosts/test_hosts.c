/* Training over two hosts: the same hash; and a rank or a host that fails ends the job on both, in
 * a time that is known. */
#include "../cmd/program.h"
#include "../support/scratch.h"
#include "hosts.h"

#include <lockstep/train.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECIPE                                                                                     \
    "model.preset=gpt2-tiny batch.global=8 parallel.threads=1 log.tensorboard=false "              \
    "comm.timeout_s=4 "
#define SHORT RECIPE "train.steps=3 train.save_every=0 log.progress=plain "
#define LONG  RECIPE "train.steps=1000000 train.save_every=0 log.progress=off "

static char *directory;

/* The last hash that the text tells. */
static void hash_find(const char *text, char hash[33])
{
    const char *at = NULL;
    for (const char *next = text; (next = strstr(next, "\nhash ")); next++)
        at = next;
    if (!at)
        fail_msg("no hash in:\n%s", text);
    snprintf(hash, 33, "%.32s", at + 6);
}

static void expect_hash(const char *out, const char *expected)
{
    char hash[33], *said = hosts_said(directory, out);
    hash_find(said, hash);
    free(said);
    assert_string_equal(hash, expected);
}

/* What one rank, here, comes to. */
static void hash_of_one_rank(const char *steps, char hash[33])
{
    static char output[PROGRAM_OUTPUT_BYTES];
    char enter[256], keys[512];
    snprintf(enter, sizeof enter, "rm -rf '%s/one'; cd '%s';", directory, directory);
    snprintf(keys, sizeof keys, "train " SHORT "data.train=corpus_train train.out=one %s", steps);
    assert_int_equal(program_run(enter, keys, output), 0);
    hash_find(output, hash);
}

static void test_the_hash_is_that_of_one_rank(void **state)
{
    char hash[33];
    (void)state;
    hosts_or_skip();
    hash_of_one_rank("", hash);
    pid_t job = hosts_train(directory, 1, "two", SHORT "parallel.dp=2 parallel.zero=2");
    assert_int_equal(hosts_end(job, directory, "two", 60), 0);
    expect_hash("two", hash);
    job = hosts_train(directory, 2, "four", SHORT "parallel.pp=2 parallel.tp=2");
    assert_int_equal(hosts_end(job, directory, "four", 60), 0);
    expect_hash("four", hash);
}

static void test_a_rank_that_is_killed(void **state)
{
    pid_t pids[HOSTS_RANKS_MAX];
    (void)state;
    hosts_or_skip();
    pid_t job = hosts_train(directory, 1, "killed", LONG "parallel.dp=2");
    hosts_wait_steps(directory, "killed", 2, pids);
    assert_int_equal(kill(pids[1], SIGKILL), 0);
    int code = hosts_end(job, directory, "killed", 30);
    if (code != 128 + SIGKILL && code != ls_exit_code(LS_ECOMM))
        fail_msg("exited with %d:\n%s", code, hosts_said(directory, "killed"));
}

static int setup(void **state)
{
    int status = hosts_setup(state);
    directory = *state;
    return status;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_hash_is_that_of_one_rank),
        cmocka_unit_test(test_a_rank_that_is_killed),
    };
    return cmocka_run_group_tests_name("hosts", tests, setup, hosts_teardown);
}
