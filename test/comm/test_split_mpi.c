/* A process that is stopped, or dies, within MPI's own calls that make a communicator, or dies
 * while the others wait for its messages: they name it, and do not call MPI beside the thread that
 * is left there. If one lacks memory, or MPI fails there, all fail together. What comes after a
 * wait has failed is not written to its buffer, which may be freed by then.
 * Under a launcher this program is one rank; by itself it starts itself under mpirun. */
/* check: waits */
#include "../support/extent.h"
#include "../support/mpirun.h"
#include "../support/suite.h"
#include "../support/wrapped.h"

#include <lockstep/comm.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef LS_WITH_MPI
#include <mpi.h>
#endif

#define WITHOUT_MEMORY "memory"
#define TOO_LATE       "late"
enum { EXIT_LATE = 19, RANKS = 3, LATE = 64 };

static const char *program;

/* ---- one rank -------------------------------------------------------------------------------- */

static enum { NOWHERE, IN_SPLIT, IN_DUP, BEHIND } where = NOWHERE; /* this rank gets the signal */
static int signal_number;

static int memory_left = -1; /* blocks until one is not there; below 0: all are */
WRAPPED(calloc);
void *__wrap_calloc(size_t count, size_t bytes)
{
    return memory_left >= 0 && memory_left-- == 0 ? NULL : __real_calloc(count, bytes);
}

#ifdef LS_WITH_MPI
int MPI_Comm_split(MPI_Comm parent, int color, int key, MPI_Comm *group)
{
    if (where == IN_SPLIT)
        raise(signal_number);
    return PMPI_Comm_split(parent, color, key, group);
}

static bool mpi_fails;

static int made_here(int code, MPI_Comm *out)
{
    return mpi_fails && !code ? PMPI_Comm_free(out), MPI_ERR_INTERN : code;
}

int MPI_Comm_dup(MPI_Comm from, MPI_Comm *out)
{
    if (where == IN_DUP)
        raise(signal_number);
    return made_here(PMPI_Comm_dup(from, out), out);
}

int MPI_Comm_split_type(MPI_Comm from, int type, int key, MPI_Info info, MPI_Comm *out)
{
    return made_here(PMPI_Comm_split_type(from, type, key, info, out), out);
}
#endif

/* ---- a rank that makes none ------------------------------------------------------------------ */

static struct ls_comm *whole; /* the world, once it is made */

static int group_make(struct ls_comm **out, struct ls_error *error)
{
    return ls_comm_split(whole, 0, ls_comm_rank(whole), out, error);
}

/* What the ranks' statuses are together: fails unless they are the same, none or this one, and name
 * rank 1 of the world as `whole` does. more: of rank 1. */
static void statuses_meet(int status, int one, int *more, const char *text)
{
    const bool turned = whole && ls_comm_rank(whole) != ls_mpi_launched_rank();
    const char *who = turned ? "rank 2 (of the world: 1) failed" : "rank 1 failed";
    int worst = status;
    (void)more;
#ifdef LS_WITH_MPI
    MPI_Allreduce(&status, &worst, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    MPI_Bcast(more, 1, MPI_INT, 1, MPI_COMM_WORLD);
#endif
    bool told = !status || strstr(text, "no memory") ||
                strstr(text, ls_mpi_launched_rank() == 1 ? "cannot make" : who);
    if (status == worst && (!status || status == one) && told)
        return;
    fprintf(stderr, "%d: %s; expected %d, as on other ranks, and who it is\n", status, text, worst);
    ls_mpi_abort(1);
}

/* Rank 1 lacks one block of memory, the first to the last that it takes for a communicator. */
static struct ls_comm *make_without(int (*make)(struct ls_comm **out, struct ls_error *error),
                                    bool lacks)
{
    enum { EACH = 16, EVERY = 13 };
    for (int n = 0;; n += n < EACH ? 1 : EVERY) {
        struct ls_comm *made = NULL;
        struct ls_error error = {0};
        memory_left = lacks ? n : -1;
        int status = make(&made, &error), more = memory_left < 0;
        memory_left = -1;
        statuses_meet(status, LS_ENOMEM, &more, error.text);
        if (!more)
            return made;
        ls_comm_free(made);
    }
}

/* MPI fails on rank 1 alone. */
static int fail_in_mpi(int (*make)(struct ls_comm **out, struct ls_error *error), bool here)
{
    struct ls_comm *comm = NULL;
    struct ls_error error = {0};
#ifdef LS_WITH_MPI
    mpi_fails = here;
#endif
    int status = make(&comm, &error), more = 0;
#ifdef LS_WITH_MPI
    mpi_fails = false;
#endif
    statuses_meet(status, LS_ECOMM, &more, error.text);
    ls_comm_free(comm);
    return comm ? LS_EINVAL : LS_OK;
}

static int memory_main(void)
{
    const double long_s = 60;
    struct ls_error error = {0};
    const bool lacks = ls_mpi_launched_rank() == 1;
    int status = fail_in_mpi(ls_comm_mpi_new, lacks);
    if (status)
        return 1;
    whole = make_without(ls_comm_mpi_new, lacks);
    ls_comm_set_timeout(whole, long_s);
    /* The ranks' order turned, with rank 1 of the world last. */
    struct ls_comm *world = whole;
    int key = (ls_comm_rank(world) + 1) % RANKS;
    status = ls_comm_split(world, 0, key, &whole, &error);
    struct ls_comm *group = status ? NULL : make_without(group_make, lacks);
    status = status ? status : fail_in_mpi(group_make, lacks);
    status = status ? status : ls_barrier(group, &error);
    ls_comm_free(group);
    ls_comm_free(whole);
    ls_comm_free(world);
    ls_mpi_finish();
    return status ? 1 : 0;
}

/* ---- a message that comes too late ----------------------------------------------------------- */

/* Rank 0 waits in vain; the others call the same once it has given up. *got: what it then has. */
static int late_get(bool collective, float got[LATE], struct ls_error *error)
{
    const double short_s = 0.05;
    struct ls_comm *group = NULL;
    int rank = ls_comm_rank(whole), status = group_make(&group, error);
    if (status)
        return status;
    ls_comm_set_check(group, false);
    ls_comm_set_timeout(group, short_s);
    if (rank > 0)
        status = ls_barrier(whole, error);
    for (int i = 0; i < LATE; i++)
        got[i] = (float)rank;
    int came = collective  ? ls_broadcast(group, got, LATE, LS_F32, 1, NULL)
               : rank == 0 ? ls_recv(group, got, LATE, LS_F32, 1, 0, NULL)
               : rank == 1 ? ls_send(group, got, LATE, LS_F32, 0, 0, NULL)
                           : LS_OK;
    if (rank == 0)
        status = came == LS_ECOMM ? ls_barrier(whole, error)
                                  : ls_error_set(error, LS_EINVAL, "rank 0 got %d", came);
    if (!status)
        status = ls_barrier(whole, error); /* what was sent is there */
    for (int i = 0; i < LATE && rank == 0 && !status; i++)
        if (got[i] != 0)
            status = ls_error_set(error, LS_EINVAL, "%s: element %d is %g: expected none",
                                  collective ? "broadcast" : "recv", i, (double)got[i]);
    return status;
}

static int late_main(void)
{
    static float got[2][LATE];
    struct ls_error error = {0};
    int status = ls_comm_mpi_new(&whole, &error);
    for (int i = 0; i < 2 && !status; i++)
        status = late_get(i, got[i], &error);
    fprintf(stderr, "rank %d says: %s\n", ls_mpi_launched_rank(), status ? error.text : "kept");
    if (status || ls_comm_rank(whole) == 0)
        ls_mpi_abort(status ? 1 : EXIT_LATE);
    ls_barrier(whole, &error); /* is ended in there */
    return 1;
}

/* ---------------------------------------------------------------------------------------------- */

/* The mode: which rank gets which signal, where; and the others' timeout, in seconds. */
static int rank_main(const char *mode)
{
    struct ls_comm *world, *group = NULL;
    struct ls_error error = {0};
    int rank = -1, place = NOWHERE, timeout_s = 0;
    if (!strcmp(mode, WITHOUT_MEMORY))
        return memory_main();
    if (!strcmp(mode, TOO_LATE))
        return late_main();
    sscanf(mode, "%d %d %d %d", &rank, &place, &signal_number, &timeout_s);
    int status = ls_comm_mpi_new(&world, &error);
    if (!status) {
        ls_comm_set_timeout(world, timeout_s);
        where = ls_comm_rank(world) == rank ? place : NOWHERE;
        status = ls_comm_split(world, 0, ls_comm_rank(world), &group, &error);
    }
    if (!status && place == BEHIND) /* nobody is in MPI's own calls any more */
        status = ls_barrier(group, &error);
    if (where == BEHIND)
        raise(signal_number);
    if (!status && !ls_barrier(group, &error)) {
        ls_comm_free(group);
        ls_comm_free(world);
        ls_mpi_finish();
        return 0;
    }
    fprintf(stderr, "rank %d says: %s\n", ls_comm_rank(world), error.text);
    if (!ls_barrier(world, &error)) /* of no use after that */
        return 1;
    if (place != BEHIND) { /* a thread is left within MPI */
        where = IN_SPLIT, signal_number = SIGABRT;
        if (ls_comm_mpi_new(&group, &error) != LS_ECOMM || !strstr(error.text, "left within MPI"))
            return 1;
        fprintf(stderr, "rank %d does not call MPI again\n", ls_comm_rank(world));
    }
    ls_comm_free(world);
    ls_mpi_abort(EXIT_LATE);
    return 1;
}

/* ---- the job --------------------------------------------------------------------------------- */

static char output[65536];

static int job_run(int rank, int place, int number, int timeout_s)
{
    char mode[64];
    snprintf(mode, sizeof mode, "%d %d %d %d", rank, place, number, timeout_s);
    return mpirun(program, RANKS, mode, output, sizeof output);
}

CASE(test_a_process_that_is_stopped_within_mpi_is_named)
{
    mpirun_or_skip();
    int status = job_run(1, IN_SPLIT, SIGSTOP, 1);
    if (status != EXIT_LATE ||
        !strstr(output, " says: a group of 3 ranks is not made: timed out ") ||
        !strstr(output, "; late is rank 1: its process ") || !strstr(output, " is stopped; ") ||
        !strstr(output, " does not call MPI again"))
        fail_msg("the job ended with %d; it said:\n%s", status, output);
}

/* Nothing is timed out. Told that a rank may die, mpirun may end with 0, and does not always say
 * that another called MPI_Abort. */
static void survives_or_skip(void)
{
    mpirun_or_skip();
    if (system("mpirun --version | grep -q 'Open MPI'")) {
        print_message("another MPI than Open MPI ends all ranks: skipped\n");
        skip();
    }
    mpirun_survives();
}

CASE(test_who_outlives_a_rank_does_not_wait_for_it_within_mpi)
{
    char text[64];
    survives_or_skip();
    for (int rank = 0; rank < RANKS; rank++)
        for (int place = IN_SPLIT; place <= IN_DUP; place++) {
            int status = job_run(rank, place, SIGKILL, 0);
            snprintf(text, sizeof text, "is not made: the process of rank %d", rank);
            if (!strstr(output, text))
                fail_msg("rank %d, place %d: the job ended with %d; it said:\n%s", rank, place,
                         status, output);
        }
    assert_int_equal(job_run(-1, NOWHERE, SIGKILL, 0), 0);
    assert_null(strstr(output, " says: "));
}

CASE(test_who_outlives_a_rank_does_not_wait_for_its_messages)
{
    if (!check_all())
        return; /* 2 s */
    survives_or_skip();
    int status = job_run(1, BEHIND, SIGKILL, 0);
    if (!strstr(output, " says: barrier (") ||
        !strstr(output, "): the process of rank 1 has ended\n"))
        fail_msg("the job ended with %d; it said:\n%s", status, output);
}

CASE(test_a_rank_that_lacks_memory_fails_with_all)
{
    if (!check_all())
        return; /* 0.3 s */
    mpirun_or_skip();
    int status = mpirun(program, RANKS, WITHOUT_MEMORY, output, sizeof output);
    if (status)
        fail_msg("the job ended with %d; it said:\n%s", status, output);
}

CASE(test_a_message_that_comes_too_late_is_not_written)
{
    if (!check_all())
        return; /* 0.3 s */
    mpirun_or_skip();
    int status = mpirun(program, RANKS, TOO_LATE, output, sizeof output);
    if (!strstr(output, "rank 0 says: kept"))
        fail_msg("the job ended with %d; it said:\n%s", status, output);
}

int main(int argc, char **argv)
{
    (void)argc;
    program = argv[0];
    return getenv(MPIRUN_MODE) ? rank_main(getenv(MPIRUN_MODE)) : suite_run(NULL, NULL);
}
