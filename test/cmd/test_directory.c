/* A run's directory: one writer at a time. */
#include "runs.h"

#include "../support/scratch.h"

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
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- one writer ------------------------------------------------------------------------------ */

/* Starts a run of many steps, without a shell in between, and waits for its first records. */
static pid_t run_start(const char *out, const char *keys)
{
    char command[3 * PATH_MAX], metrics[128];
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        snprintf(command, sizeof command,
                 "cd '%s' && exec '%s' train %s train.out=%s train.steps=60000 %s > %s.log 2>&1",
                 folder, program, common, out, keys, out);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    snprintf(metrics, sizeof metrics, "test $(wc -l < %s/metrics.jsonl || echo 0) -gt 3", out);
    for (int tries = 0; shell(metrics); tries++) {
        assert_true(tries < 3000);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return child;
}

static void run_end(pid_t child, int signal)
{
    assert_int_equal(kill(child, signal), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void check_second_writer(const char *out, const char *keys)
{
    char line[512], who[64];
    pid_t child = run_start(out, keys);
    snprintf(who, sizeof who, "process %ld on ", (long)child);
    snprintf(line, sizeof line, "$L train $C train.out=%s train.steps=5 train.resume=auto", out);
    expect(line, ls_exit_code(LS_EBUSY), who);
    assert_non_null(strstr(output, "train.out = "));
    snprintf(line, sizeof line, "$L train $C train.out=%s train.steps=5", out);
    expect(line, ls_exit_code(LS_EBUSY), who);
    /* Readers work beside it. */
    snprintf(line, sizeof line, "$L plot %s", out);
    expect(line, 0, "loss.svg");
    snprintf(line, sizeof line, "$L eval %s --samples 4", out);
    expect(line, 0, "nats per token");
    run_end(child, SIGKILL);
    /* Killed, it is no obstacle, and nothing that the second one did is in its records. */
    snprintf(line, sizeof line,
             "$L train $C train.out=%s train.resume=auto train.steps=$(ls %s/checkpoints | sed "
             "'s/step-0*//' | sort -n | tail -1 | awk '{print $1 + 3}')",
             out, out);
    expect(line, 0, who);
    free(metrics_read(out));
}

static void test_a_second_writer_is_refused(void **state)
{
    (void)state;
    check_second_writer("busy", "train.save_every=3");
    check_second_writer("busy-threads", "train.save_every=3 parallel.dp=2 batch.micro=1");
}

/* Started in the same instant, one goes on; its records are those of a run that was alone. */
static void test_two_at_once(void **state)
{
    (void)state;
    expect("$L train $C train.out=alone train.steps=4", 0, "hash");
    for (int round = 0; round < 3; round++) {
        char line[512];
        snprintf(
            line, sizeof line,
            "for i in 1 2 3 4; do { $L train $C train.out=race%d train.steps=4 > race$i.log "
            "2>&1; echo $? > race$i.code; } & done; wait; cat race?.code | sort | tr '\\n' ' '",
            round);
        assert_int_equal(shell(line), 0);
        /* The others meet the lock (23), or come late to a finished run (2). */
        if (strncmp(output, "0 ", 2) || strstr(output, "0 0"))
            fail_msg("exit codes: %s", output);
        for (const char *code = output + 2; *code; code++)
            assert_non_null(strchr("23 ", *code));
        snprintf(line, sizeof line, "race%d", round);
        expect_same_run("alone", line);
        snprintf(line, sizeof line, "race%d/lock", round);
        assert_false(exists(line));
    }
}

#define MPIRUN                                                                                     \
    "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 2 "

static void test_processes_hold_it_too(void **state)
{
    (void)state;
#if !defined(LS_WITH_MPI)
    skip();
#endif
    if (shell("command -v mpirun")) {
        print_message("skipped: mpirun is absent\n");
        skip();
    }
    pid_t child = run_start("busy-mpi", "");
    expect(MPIRUN "$L train $C train.out=busy-mpi parallel.dp=2 train.steps=4",
           ls_exit_code(LS_EBUSY), "is held by process ");
    run_end(child, SIGTERM);
    expect("{ " MPIRUN "$L train $C train.out=busy-mpi parallel.dp=2 train.steps=60000 "
           "train.resume=auto > /dev/null 2>&1 & "
           "for i in $(seq 300); do test -s busy-mpi/lock && break; sleep 0.1; done; "
           "$L train $C train.out=busy-mpi train.resume=auto train.steps=60000; code=$?; "
           "kill -TERM $!; wait; exit $code; }",
           ls_exit_code(LS_EBUSY), "is held by process ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_second_writer_is_refused),
        cmocka_unit_test(test_two_at_once),
        cmocka_unit_test(test_processes_hold_it_too),
    };
    return cmocka_run_group_tests_name("directory", tests, corpus_setup, scratch_teardown);
}
