/* Training over two hosts: the same hash; and a rank or a host that fails ends the job on both.
 * `make check` trains on two ranks and stops one of them; CHECK=all does all that stands here. */
/* check: network waits */
#include "../cmd/run_program.h"
#include "../support/extent.h"
#include "../support/late.h"
#include "../support/scratch.h"
#include "../support/testing.h"
#include "hosts.h"

#include <lockstep/train.h>

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECIPE                                                                                     \
    "model.preset=gpt2-tiny batch.global=8 parallel.threads=1 log.tensorboard=false "              \
    "optim.decay_steps=1000 "
#define SHORT RECIPE "train.steps=3 train.save_every=0 log.progress=plain "
#define LONG  RECIPE "comm.timeout_s=3 train.steps=1000000 train.save_every=0 log.progress=off "

enum { TIMEOUT_S = 3 }; /* comm.timeout_s of LONG */

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
    char hash[33], *said = hosts_said(hosts_directory, out);
    hash_find(said, hash);
    free(said);
    assert_string_equal(hash, expected);
}

/* The job ends, with this exit code. */
static void expect_end(pid_t job, const char *out, int expected)
{
    int code = hosts_end(job);
    if (code != expected)
        fail_msg("%s exited with %d, not %d:\n%s", out, code, expected,
                 hosts_said(hosts_directory, out));
}

/* Where a daemon of Open MPI's launcher could not reach the launcher, which happens on a busy
 * machine, no rank has begun: then once more. */
static void train_to_the_end(int each, const char *out, const char *arguments)
{
    for (bool again = true; again;) {
        int code = hosts_end(hosts_train(hosts_directory, each, out, arguments));
        char *said = hosts_said(hosts_directory, out);
        again = strstr(said, "unable to complete a TCP connection");
        if (code == 0)
            again = false;
        else if (again)
            print_message("the launcher did not start %s; once more\n", out);
        else
            fail_msg("%s exited with %d, not 0:\n%s", out, code, said);
        free(said);
    }
}

/* What one rank, here, comes to. */
static void hash_of_one_rank(const char *steps, char hash[33])
{
    static char output[PROGRAM_OUTPUT_BYTES];
    char enter[256], keys[512];
    snprintf(enter, sizeof enter, "rm -rf '%s/one'; cd '%s';", hosts_directory, hosts_directory);
    snprintf(keys, sizeof keys, "train " SHORT "data.train=corpus_train train.out=one %s", steps);
    assert_int_equal(program_run(enter, keys, output), 0);
    hash_find(output, hash);
}

static void test_the_hash_is_that_of_one_rank(void **state)
{
    char hash[33];
    hosts_or_skip();
    hash_of_one_rank("", hash);
    train_to_the_end(1, "two", SHORT "parallel.dp=2 parallel.zero=2");
    expect_hash("two", hash);
    if (check_all()) {
        train_to_the_end(2, "four", SHORT "parallel.pp=2 parallel.tp=2");
        expect_hash("four", hash);
    }
}

/* The exit code of a job over both hosts, of which the rank on the other one gets a signal. */
static int signal_to_the_other(const char *out, int signal)
{
    pid_t pids[HOSTS_RANKS_MAX], job = hosts_train(hosts_directory, 1, out, LONG "parallel.dp=2");
    hosts_wait_steps(job, hosts_directory, out, 2, pids);
    assert_int_equal(kill(pids[1], signal), 0);
    return hosts_end(job);
}

static void test_a_rank_that_is_killed(void **state)
{
    hosts_or_skip();
    int code = signal_to_the_other("killed", SIGKILL);
    if (code != 128 + SIGKILL && code != ls_exit_code(LS_ECOMM))
        fail_msg("exited with %d:\n%s", code, hosts_said(hosts_directory, "killed"));
}

/* What a rank left in the run's directory; "" where it left nothing. */
static const char *told(const char *out, int rank)
{
    static char text[2][4096];
    char name[64];
    snprintf(name, sizeof name, "%s/log/rank-%05d.txt", out, rank);
    text[rank % 2][0] = '\0';
    FILE *file = fopen(scratch_path(hosts_directory, name), "re");
    if (file) {
        text[rank % 2][fread(text[rank % 2], 1, sizeof text[0] - 1, file)] = '\0';
        fclose(file);
    }
    return text[rank % 2];
}

static void expect_told(const char *out, int rank, const char *words)
{
    if (!strstr(told(out, rank), words))
        fail_msg("rank %d told: %s\nexpected: %s\nthe job said:\n%s", rank, told(out, rank), words,
                 hosts_said(hosts_directory, out));
}

static void expect_waited(const char *out, int rank)
{
    if (!says_waited(told(out, rank), TIMEOUT_S))
        fail_msg("rank %d told: %s\nexpected a wait of %d s\nthe job said:\n%s", rank,
                 told(out, rank), TIMEOUT_S, hosts_said(hosts_directory, out));
}

/* "rank 1 on lsb123: " and so on. */
static const char *on(int rank, int host, const char *rest)
{
    static char text[200];
    snprintf(text, sizeof text, "rank %d on %s: %s", rank, hosts_name[host], rest);
    return text;
}

/* Alone on its host: that nobody answers there is what is known, and where it was before. */
static void test_a_rank_that_is_stopped_alone(void **state)
{
    pid_t pids[HOSTS_RANKS_MAX];
    hosts_or_skip();
    pid_t job = hosts_train(hosts_directory, 1, "alone", LONG "parallel.dp=2");
    hosts_wait_steps(job, hosts_directory, "alone", 2, pids);
    assert_int_equal(kill(pids[1], SIGSTOP), 0);
    expect_end(job, "alone", ls_exit_code(LS_ECOMM));
    expect_waited("alone", 0);
    expect_told("alone", 0, on(1, 1, "neither it nor its machine has answered for "));
}

/* Beside another one of its host, which tells of it: over tp on its own machine, over dp on the
 * other. */
static void test_a_rank_that_is_stopped(void **state)
{
    pid_t pids[HOSTS_RANKS_MAX];
    char process[64];
    bool named = false;
    hosts_or_skip();
    pid_t job = hosts_train(hosts_directory, 2, "stopped", LONG "parallel.dp=2 parallel.tp=2");
    hosts_wait_steps(job, hosts_directory, "stopped", 4, pids);
    assert_int_equal(kill(pids[3], SIGSTOP), 0);
    expect_end(job, "stopped", ls_exit_code(LS_ECOMM));
    snprintf(process, sizeof process, "its process %ld is stopped; it ", (long)pids[3]);
    for (int rank = 0; rank < 2; rank++) {
        expect_waited("stopped", rank);
        named |=
            strstr(told("stopped", rank), process) && strstr(told("stopped", rank), hosts_name[1]);
    }
    if (!named)
        fail_msg("told: %s and: %s", told("stopped", 0), told("stopped", 1));
}

/* The other host's rank hears that rank 0, on its slow disk, gets on. test/cmd/test_disk is the
 * program of both. */
static void test_a_slow_save_is_waited_for(void **state)
{
    char program[PATH_MAX], command[3 * PATH_MAX];
    hosts_or_skip();
    program_path(program, sizeof program);
    *strrchr(program, '/') = '\0';
    snprintf(command, sizeof command, "env DISK_FOLDER='%s' DISK_KIND=slow '%s/test/cmd/test_disk'",
             hosts_directory, program);
    int code = hosts_end(hosts_start(hosts_directory, 1, "slow", command));
    if (code)
        fail_msg("exited with %d:\n%s", code, hosts_said(hosts_directory, "slow"));
}

/* One rank is told to stop, on the host that has not started the job. */
static void test_a_signal_to_one_rank(void **state)
{
    hosts_or_skip();
    int code = signal_to_the_other("signal", SIGUSR1);
    if (code != ls_exit_code(LS_ESTOPPED) || !hosts_last_step(hosts_directory, "signal"))
        fail_msg("exited with %d:\n%s", code, hosts_said(hosts_directory, "signal"));
}

/* Each side names the other: a rank that waits for one there, and its neighbour too unless it waits
 * for that rank. Both end; the run goes on when the cable is in again. */
static void test_a_host_that_is_cut_off(void **state)
{
    pid_t pids[HOSTS_RANKS_MAX];
    char hash[33], steps[64];
    hosts_or_skip();
    pid_t job = hosts_train(hosts_directory, 2, "cut",
                            LONG "parallel.dp=2 parallel.tp=2 train.save_every=2");
    hosts_wait_steps(job, hosts_directory, "cut", 4, pids);
    hosts_wait_checkpoint(job, hosts_directory, "cut");
    hosts_link(false);
    int code = hosts_end(job);
    hosts_link(true);
    assert_int_not_equal(code, 0);
    static const char gone[] = "neither it nor its machine has answered for ";
    bool named[2] = {false, false};
    for (int rank = 0; rank < 4; rank++) {
        expect_waited("cut", rank);
        bool other = strstr(told("cut", rank), gone) != NULL;
        named[rank / 2] |= other;
        expect_told("cut", rank, hosts_name[other ? rank < 2 : rank / 2]);
        /* The cable may go while all ranks agree. */
        if (!strstr(told("cut", rank), " of world "))
            expect_told("cut", rank, other ? " of shard " : " of tp ");
    }
    assert_true(named[0] && named[1]);
    int last = hosts_last_step(hosts_directory, "cut") + 2;
    snprintf(steps, sizeof steps, "train.steps=%d", last);
    hash_of_one_rank(steps, hash);
    char keys[400];
    snprintf(keys, sizeof keys, SHORT "parallel.dp=2 parallel.tp=2 train.resume=auto %s", steps);
    train_to_the_end(2, "cut", keys);
    expect_hash("cut", hash);
    char *said = hosts_said(hosts_directory, "cut");
    if (!strstr(said, "going on after step "))
        fail_msg("it began anew:\n%s", said);
    free(said);
}

int main(void)
{
    const struct CMUnitTest usual[] = {
        cmocka_unit_test(test_the_hash_is_that_of_one_rank),
        cmocka_unit_test(test_a_rank_that_is_stopped_alone),
    };
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_the_hash_is_that_of_one_rank),
        cmocka_unit_test(test_a_rank_that_is_killed),
        cmocka_unit_test(test_a_rank_that_is_stopped_alone),
        cmocka_unit_test(test_a_rank_that_is_stopped),
        cmocka_unit_test(test_a_slow_save_is_waited_for),
        cmocka_unit_test(test_a_signal_to_one_rank),
        cmocka_unit_test(test_a_host_that_is_cut_off),
    };
    return check_all() ? cmocka_run_group_tests_name("hosts", all, hosts_setup, hosts_teardown)
                       : cmocka_run_group_tests_name("hosts", usual, hosts_setup, hosts_teardown);
}
