/* The transport mpi. Under a launcher this program is one rank and runs the checks; by itself it
 * starts itself under mpirun for 2 and 3 ranks, with CHECK=all for 4 too. */
#include "../support/extent.h"
#include "../support/mpirun.h"
#include "../support/suite.h"
#include "checks.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *program;

/* ---- one rank -------------------------------------------------------------------------------- */

/* Rank 1 sends more, then less, than rank 0 expects; the next message is unharmed. */
static int rank_lengths(struct ls_comm *comm, struct ls_error *error)
{
    float buffer[8] = {0};
    int rank = ls_comm_rank(comm);
    const int64_t sent[3] = {8, 3, 4};
    for (int i = 0; i < 3 && rank == 1; i++)
        if (ls_send(comm, buffer, sent[i], LS_F32, 0, i, error) != LS_OK)
            return LS_ECOMM;
    for (int i = 0; i < 3 && rank == 0; i++) {
        struct ls_error got = {0};
        int status = ls_recv(comm, buffer, 4, LS_F32, 1, i, &got);
        if (i == 2 ? status != LS_OK : status != LS_ECOMM || !strstr(got.text, "rank 1 sends"))
            return ls_error_set(error, LS_ENUMERIC, "recv of 4 where %lld were sent: %d, %.300s",
                                (long long)sent[i], status, got.text);
    }
    return ls_barrier(comm, error);
}

static int rank_run(struct ls_comm *comm, struct ls_error *error)
{
    int status = check_comm(comm, error);
    if (status == LS_OK)
        status = check_operations(comm, 1000000, error);
    /* The same with each call agreed beforehand. */
    ls_comm_set_check(comm, true);
    if (status == LS_OK)
        status = check_operations(comm, 4097, error);
    if (status == LS_OK)
        status = check_many_pending(comm, error);
    if (status == LS_OK)
        status = check_splits(comm, error);
    if (status == LS_OK)
        status = rank_lengths(comm, error);
    return status;
}

/* Ranks 0 and 1 on one core, the others on the next, if there is one. */
static bool core_take(int rank)
{
    cpu_set_t own, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof own, &own))
        return false;
    for (int core = 0, n = 0; core < CPU_SETSIZE && n <= (rank > 1); core++)
        if (CPU_ISSET(core, &own)) {
            CPU_ZERO(&one);
            CPU_SET(core, &one);
            n++;
        }
    return !sched_setaffinity(0, sizeof one, &one);
}

static int rank_cores(struct ls_comm *comm, struct ls_error *error)
{
    cpu_set_t all = {0}, own;
    int64_t core = -1, apart;
    sched_getaffinity(0, sizeof own, &own);
    while (!CPU_ISSET(++core, &own))
        continue;
    for (int rank = 0; rank < ls_comm_size(comm); rank++) {
        int64_t other = core;
        int status = ls_broadcast(comm, &other, 1, LS_I64, rank, error);
        if (status)
            return status;
        CPU_SET(other, &all);
    }
    apart = CPU_COUNT(&all) > 1; /* else the machine has one core */
    int expected = !apart ? ls_comm_size(comm) : ls_comm_rank(comm) < 2 ? 2 : 1;
    return ls_comm_core_ranks(comm) == expected
               ? LS_OK
               : ls_error_set(error, LS_ENUMERIC, "%d ranks on its cores, expected %d",
                              ls_comm_core_ranks(comm), expected);
}

/* ---- the launcher ---------------------------------------------------------------------------- */

static void ranks_check(int ranks)
{
#ifndef LS_WITH_MPI
    struct ls_comm *comm;
    struct ls_error error = {0};
    assert_int_equal(ls_comm_mpi_new(&comm, &error), LS_ENOTSUP);
    assert_non_null(strstr(error.text, "make MPI=1"));
#endif
    mpirun_checks(program, ranks);
}

CASE(test_worlds)
{
    for (int ranks = check_all() ? 2 : 3; ranks <= (check_all() ? 4 : 3); ranks++)
        ranks_check(ranks);
}

CASE(test_ranks_that_share_cores)
{
    static char output[8192];
    mpirun_or_skip();
    if (mpirun(program, 3, "cores", output, sizeof output))
        fail_msg("%s", output);
}

CASE(test_ranks_of_a_machine)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
                                        "SLURM_STEP_TASKS_PER_NODE"};
    static const struct {
        const char *text;
        int ranks;
    } lists[] = {{"4", 4}, {"4(x2),3", 4}, {"2(x16),7(x3)", 7}, {"", 0}, {"x", 0}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    assert_int_equal(ls_mpi_machine_ranks(), 0);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        setenv(names[2], lists[i].text, 1);
        assert_int_equal(ls_mpi_machine_ranks(), lists[i].ranks);
    }
    setenv(names[2], "9", 1); /* mpirun in a job of Slurm */
    setenv(names[0], "3", 1);
    assert_int_equal(ls_mpi_machine_ranks(), 3);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

CASE(test_who_am_i)
{
    const char *const names[] = {
        "OMPI_COMM_WORLD_SIZE", "PMIX_RANK",           "PMI_RANK", "PMI_SIZE", "SLURM_PROCID",
        "SLURM_NTASKS",         "SLURM_STEP_NUM_TASKS"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    assert_false(ls_mpi_launched());
    setenv("RANK", "0", 1); /* torchrun's are not MPI's */
    setenv("WORLD_SIZE", "2", 1);
    assert_false(ls_mpi_launched());
    setenv("SLURM_PROCID", "0", 1);
    setenv("SLURM_NTASKS", "2", 1); /* a batch script has it too */
    assert_false(ls_mpi_launched());
    setenv("SLURM_STEP_NUM_TASKS", "1", 1);
    assert_false(ls_mpi_launched());
    setenv("SLURM_STEP_NUM_TASKS", "2", 1);
    assert_true(ls_mpi_launched());
    unsetenv("SLURM_PROCID");
    setenv("PMIX_RANK", "0", 1);
    assert_true(ls_mpi_launched());
    unsetenv("PMIX_RANK");
    setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
    assert_true(ls_mpi_launched());
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
}

/* As if the mpirun of another MPI had started this program: it names its number of processes, and
 * this MPI sees one. */
CASE(test_a_launcher_of_another_mpi)
{
    static const char *const says[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    mpirun_or_skip();
    for (size_t i = 0; i < sizeof says / sizeof *says; i++) {
        char command[512], text[1024] = "";
        snprintf(command, sizeof command, "env -u OMPI_COMM_WORLD_SIZE %s=2 '%s' 2>&1", says[i],
                 program);
        FILE *out = popen(command, "r");
        assert_non_null(out);
        assert_true(fread(text, 1, sizeof text - 1, out) > 0);
        assert_int_equal(WEXITSTATUS(pclose(out)), 1);
        assert_non_null(strstr(text, says[i]));
        assert_non_null(strstr(text, "=2, but MPI sees one process"));
    }
}

int main(int argc, char **argv)
{
    const char *mode = getenv(MPIRUN_MODE);
    program = argv[0];
    if (mode && !strcmp(mode, "cores"))
        return core_take(ls_mpi_launched_rank()) ? mpirun_rank(rank_cores) : 1;
    if (mode || ls_mpi_launched())
        return mpirun_rank(rank_run);
    return suite_run(NULL, NULL);
}
