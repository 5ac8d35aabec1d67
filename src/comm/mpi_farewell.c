/* What a process tells that leaves its job while others may go on: a message to each of them, on a
 * communicator of its own. */
#ifdef LS_WITH_MPI
#include "comm/mpi.h"

#include <stdio.h>
#include <stdlib.h>

int comm_mpi_farewells_new(struct mpi_farewells *f, struct ls_error *error)
{
    MPI_Comm_rank(MPI_COMM_WORLD, &f->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &f->size);
    f->from = calloc((size_t)f->size, sizeof *f->from);
    f->sends = calloc((size_t)f->size, sizeof *f->sends);
    bool room = f->from && f->sends;
    f->opened = MPI_Comm_dup(MPI_COMM_WORLD, &f->comm) == MPI_SUCCESS;
    int status = !f->opened ? ls_error_set(error, LS_ECOMM, "MPI_Comm_dup failed")
                 : room     ? LS_OK
                            : ls_no_memory(error, "for a job of MPI");
    status = comm_mpi_agree(MPI_COMM_WORLD, status, error);
    if (status) {
        comm_mpi_farewells_free(f);
        return status;
    }
    MPI_Comm_set_errhandler(f->comm, MPI_ERRORS_RETURN);
    return LS_OK;
}

void comm_mpi_farewells_free(struct mpi_farewells *f)
{
    if (f->opened)
        MPI_Comm_free(&f->comm);
    free(f->from);
    free(f->sends);
    *f = (struct mpi_farewells){0};
}

void comm_mpi_farewells_take(struct mpi_farewells *f, double now_s)
{
    MPI_Status status;
    int found = f->opened;
    while (found && MPI_Iprobe(MPI_ANY_SOURCE, 0, f->comm, &found, &status) == MPI_SUCCESS &&
           found) {
        struct mpi_farewell *from = &f->from[status.MPI_SOURCE];
        if (MPI_Recv(&from->said, sizeof from->said, MPI_BYTE, status.MPI_SOURCE, 0, f->comm,
                     &status) != MPI_SUCCESS)
            return;
        from->said.why[sizeof from->said.why - 1] = '\0';
        from->times++;
        from->heard_s = now_s;
    }
}

void comm_mpi_farewells_send(struct mpi_farewells *f, const char *why, bool whole)
{
    f->own.whole = whole;
    snprintf(f->own.why, sizeof f->own.why, "%s", why);
    for (int r = 0; r < f->size; r++)
        if (r == f->rank ||
            MPI_Isend(&f->own, sizeof f->own, MPI_BYTE, r, 0, f->comm, &f->sends[r]) != MPI_SUCCESS)
            f->sends[r] = MPI_REQUEST_NULL;
}

static bool has_left(const struct mpi_farewells *f, int rank)
{
    return f->from[rank].times > f->together;
}

bool comm_mpi_farewells_all(struct mpi_farewells *f, bool *whole)
{
    *whole = f->own.whole;
    for (int r = 0; r < f->size; r++) {
        int sent = 1;
        MPI_Status status;
        MPI_Test(&f->sends[r], &sent, &status);
        if (!sent || (r != f->rank && !has_left(f, r)))
            return false;
        *whole = *whole && (r == f->rank || f->from[r].said.whole);
    }
    f->together += *whole;
    return true;
}

const char *comm_mpi_farewells_of(const struct mpi_farewells *f, const int *ranks, int count,
                                  double before_s, int *rank)
{
    for (int i = 0; i < count && f->opened; i++)
        if (has_left(f, ranks[i]) && f->from[ranks[i]].heard_s < before_s) {
            *rank = ranks[i];
            return f->from[ranks[i]].said.why;
        }
    return NULL;
}
#else
/* Built without MPI: mpi.c says so to the caller. */
typedef int comm_mpi_farewell_is_empty;
#endif
