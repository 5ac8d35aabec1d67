/* Flight records in a window of shared memory, so that those of a process that is stopped or has
 * died can be read by the others of its machine. */
#ifdef LS_WITH_MPI
#include "comm/inquire.h"
#include "comm/mpi.h"

#include <lockstep/base/file.h>
#include <lockstep/device.h>

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* Whether Open MPI's folder for windows takes one. It does not say so itself: where one process
 * cannot make the file, the others wait for it for ever. */
static bool window_fits(int ranks)
{
    enum { PAGE = 4096 };
    const char *given = getenv("OMPI_MCA_osc_sm_backing_directory");
    return ls_directory_has_room(given ? given : "/dev/shm",
                                 ranks * (int64_t)(sizeof(struct flight_record) + PAGE) + PAGE);
}

static bool window_new(struct mpi_board *board, MPI_Comm machine)
{
    struct flight_record *own = NULL;
    int rank, ranks, fits = 0;
    MPI_Comm_rank(machine, &rank);
    MPI_Comm_size(machine, &ranks);
    if (rank == 0)
        fits = window_fits(ranks);
    MPI_Bcast(&fits, 1, MPI_INT, 0, machine);
    if (!fits)
        return false;
    MPI_Comm_set_errhandler(machine, MPI_ERRORS_RETURN);
    board->shared = MPI_Win_allocate_shared(sizeof *own, 1, MPI_INFO_NULL, machine, (void *)&own,
                                            &board->window) == MPI_SUCCESS;
    return board->shared;
}

/* here[world rank] of all ranks of this machine. */
static void here_find(struct mpi_board *board, MPI_Comm machine, int size)
{
    MPI_Group group, world;
    MPI_Comm_group(machine, &group);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    for (int r = 0; r < size; r++) {
        int rank;
        MPI_Group_translate_ranks(group, 1, &r, world, &rank);
        board->base.here[rank] = true;
    }
    MPI_Group_free(&world);
    MPI_Group_free(&group);
}

/* records[world rank] of all ranks of this machine, which are in it in the world's order. */
static bool records_find(struct mpi_board *board)
{
    bool found = true;
    for (int rank = 0, r = 0; rank < board->base.count && found; rank++) {
        struct flight_record *record = NULL;
        MPI_Aint bytes;
        int unit;
        if (!board->base.here[rank])
            continue;
        found =
            MPI_Win_shared_query(board->window, r, &bytes, &unit, (void *)&record) == MPI_SUCCESS;
        if (found)
            board->base.records[rank] = record;
        if (found && r++ == 0)
            board->base.claimed = &record->claimed;
    }
    return found;
}

/* Without shared memory a rank knows its own record only, and asks all others. */
static bool record_alone(struct mpi_board *board, int rank)
{
    struct flight_record *own = calloc(1, sizeof *own);
    for (int r = 0; r < board->base.count; r++)
        board->base.records[r] = r == rank ? own : NULL;
    if (own)
        board->base.claimed = &own->claimed;
    return own != NULL;
}

/* Collective. Ranks that share no memory learn how to ask each other. A rank that cannot open a
 * socket neither asks nor answers. */
static void machines_meet(struct flight_board *board, int rank)
{
    struct inquire_peer own = {0};
    unsigned char token[INQUIRE_TOKEN];
    struct inquirer *inquirer = inquire_open(&own);
    struct inquire_peer *peers = calloc((size_t)board->count, sizeof *peers);
    int have = peers && (rank || getrandom(token, sizeof token, 0) == (ssize_t)sizeof token), all;
    while (!board->records[own.machine])
        own.machine++;
    MPI_Allreduce(&have, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (all) {
        MPI_Bcast(token, sizeof token, MPI_BYTE, 0, MPI_COMM_WORLD);
        MPI_Allgather(&own, sizeof own, MPI_BYTE, peers, sizeof own, MPI_BYTE, MPI_COMM_WORLD);
    }
    if (all && inquirer && inquire_start(inquirer, board, rank, peers, token)) {
        board->inquirer = inquirer;
    } else {
        inquire_close(inquirer);
        free(peers);
    }
}

/* Whether there is a core that both may run on; it may be any for one whose cores the system does
 * not tell. Adds those of b to all. */
static bool cores_meet(const struct ls_core_set *a, const struct ls_core_set *b,
                       struct ls_core_set *all)
{
    uint64_t of_a = 0, of_b = 0, both = 0;
    for (int i = 0; i < LS_CORES_MAX / 64; i++) {
        of_a |= a->bits[i];
        of_b |= b->bits[i];
        both |= a->bits[i] & b->bits[i];
        all->bits[i] |= b->bits[i];
    }
    return both || !of_a || !of_b;
}

/* Collective over the machine's processes: each says where it may run. True if they are more than
 * the cores that they may use together. */
static bool cores_compare(struct flight_board *board, MPI_Comm machine)
{
    struct ls_core_set own, all = {0};
    ls_device_core_set(&own);
    board->core_ranks = 0;
    for (int rank = 0; rank < board->machine_ranks; rank++) {
        struct ls_core_set set = own;
        MPI_Bcast(&set, sizeof set, MPI_BYTE, rank, machine);
        board->core_ranks += cores_meet(&own, &set, &all);
    }
    return board->machine_ranks > ls_device_cores_of(&all);
}

/* Collective over the machine's processes. */
static void board_drop(struct mpi_board *board, int rank)
{
    if (board->shared)
        MPI_Win_free(&board->window);
    if (!board->in_window && board->base.records)
        free(board->base.records[rank]);
    free(board->base.records);
    free(board->base.here);
    *board = (struct mpi_board){0};
}

/* Collective. machine: of this machine's processes. */
static int board_fill(struct mpi_board *board, MPI_Comm machine, int rank, struct ls_error *error)
{
    struct flight_record *own;
    here_find(board, machine, board->base.machine_ranks);
    board->in_window = window_new(board, machine) && records_find(board);
    int status = board->in_window || record_alone(board, rank)
                     ? LS_OK
                     : ls_no_memory(error, "for the flight record of an MPI process");
    own = board->base.records[rank];
    if (own && board->in_window)
        memset(own, 0, sizeof *own);
    if (own)
        atomic_store(&own->pid, (int)getpid());
    return comm_mpi_agree(MPI_COMM_WORLD, status, error); /* all records are valid from here on */
}

int comm_mpi_board_new(struct mpi_board *board, bool *shares_cores, struct ls_error *error)
{
    MPI_Comm machine = MPI_COMM_NULL;
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &board->base.count);
    board->base.records = calloc((size_t)board->base.count, sizeof *board->base.records);
    board->base.here = calloc((size_t)board->base.count, sizeof *board->base.here);
    int status = comm_mpi_made(
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine),
        error);
    if (!status && !(board->base.records && board->base.here))
        status = ls_no_memory(error, "for the flight records of MPI processes");
    status = comm_mpi_agree(MPI_COMM_WORLD, status, error);
    if (!status) {
        MPI_Comm_size(machine, &board->base.machine_ranks);
        *shares_cores = cores_compare(&board->base, machine);
        status = board_fill(board, machine, rank, error);
    }
    if (machine != MPI_COMM_NULL)
        MPI_Comm_free(&machine);
    if (status) {
        board_drop(board, rank);
        return status;
    }
    int apart = board->base.machine_ranks < board->base.count || !board->in_window;
    MPI_Allreduce(MPI_IN_PLACE, &apart, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (apart)
        machines_meet(&board->base, rank);
    return LS_OK;
}

void comm_mpi_board_free(struct mpi_board *board)
{
    int rank = 0;
    if (!board->base.records)
        return;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    inquire_close(board->base.inquirer);
    flight_progress_end(board->base.records[rank]);
    board_drop(board, rank);
}
#else
/* Built without MPI: mpi.c says so to the caller. */
typedef int comm_mpi_board_is_empty;
#endif
