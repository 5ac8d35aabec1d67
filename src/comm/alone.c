/* The transport of a rank that is alone. */
#include "comm/flight.h"

#include <stdlib.h>

struct alone_comm {
    struct ls_comm base;
    int *world_ranks;           /* [n] */
    struct flight_board *board; /* the world's own; NULL in a group */
};

static int alone_start(struct ls_comm *comm, const struct comm_call *call, void **operation,
                       struct ls_error *error)
{
    (void)comm, (void)call, (void)error;
    *operation = NULL;
    return LS_OK;
}

static int alone_wait(struct ls_comm *comm, void *operation, struct ls_error *error)
{
    (void)comm, (void)operation, (void)error;
    return LS_OK;
}

static bool alone_test(struct ls_comm *comm, void *operation)
{
    (void)comm, (void)operation;
    return false;
}

static void alone_free(struct ls_comm *comm)
{
    struct alone_comm *self = (struct alone_comm *)comm;
    if (self->board) {
        free(self->board->records[0]);
        free(self->board->records);
        free(self->board);
    }
    free(self->world_ranks);
    comm_release(comm);
    free(self);
}

static int alone_split(struct ls_comm *comm, const int *members, int size, int rank,
                       struct ls_comm **out, struct ls_error *error);

static const struct comm_transport alone_transport = {LS_TRANSPORT_ALONE, alone_start, alone_wait,
                                                      alone_test,         alone_split, alone_free};

/* members[size] are ranks of parent, NULL for a new world. */
static int alone_new(const struct ls_comm *parent, const int *members, int size, int rank,
                     struct alone_comm **out, struct ls_error *error)
{
    struct alone_comm *self = calloc(1, sizeof *self);
    *out = NULL;
    if (!self)
        return ls_no_memory(error, "for a communicator");
    int status = comm_init(&self->base, &alone_transport, rank, size, error);
    self->world_ranks = calloc((size_t)size, sizeof *self->world_ranks);
    if (!status && !self->world_ranks)
        status = ls_no_memory(error, "for a group of %d ranks", size);
    if (status) {
        alone_free(&self->base);
        return status;
    }
    for (int i = 0; i < size; i++)
        self->world_ranks[i] = parent ? parent->world_ranks[members[i]] : i;
    self->base.world_ranks = self->world_ranks;
    if (parent) {
        self->base.board = parent->board;
        self->base.record = parent->record;
    }
    *out = self;
    return LS_OK;
}

static int alone_split(struct ls_comm *comm, const int *members, int size, int rank,
                       struct ls_comm **out, struct ls_error *error)
{
    struct alone_comm *self;
    int status = alone_new(comm, members, size, rank, &self, error);
    *out = status ? NULL : &self->base;
    return status;
}

/* A board on which this rank is all there is. */
static struct flight_board *board_new(void)
{
    struct flight_board *board = calloc(1, sizeof *board);
    struct flight_record **records = calloc(1, sizeof *records);
    struct flight_record *record = calloc(1, sizeof *record);
    if (!board || !records || !record) {
        free(record);
        free(records);
        free(board);
        return NULL;
    }
    records[0] = record;
    *board = (struct flight_board){.count = 1,
                                   .machine_ranks = 1,
                                   .core_ranks = 1,
                                   .records = records,
                                   .claimed = &record->claimed};
    return board;
}

int ls_comm_alone_new(int rank, int size, struct ls_comm **out, struct ls_error *error)
{
    *out = NULL;
    if (size < 1 || rank < 0 || rank >= size)
        return ls_error_set(error, LS_EINVAL, "rank %d of a world with ranks 0 to %d", rank,
                            size - 1);
    struct alone_comm *self;
    int status = alone_new(NULL, NULL, size, rank, &self, error);
    if (status)
        return status;
    self->base.board = self->board = board_new();
    if (!self->board) {
        alone_free(&self->base);
        return ls_no_memory(error, "for a communicator");
    }
    self->base.record = self->board->records[0];
    *out = &self->base;
    return LS_OK;
}
