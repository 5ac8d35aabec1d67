/* Worlds, groups and handles of the transports self and thread. */
#include "comm/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int thread_split(struct ls_comm *comm, const int *members, int size, int rank,
                        struct ls_comm **out, struct ls_error *error);
static void thread_free(struct ls_comm *comm);

static const struct comm_transport thread_transport = {LS_TRANSPORT_THREAD, comm_thread_start,
                                                       comm_thread_wait,    comm_thread_test,
                                                       thread_split,        thread_free};
static const struct comm_transport self_transport = {LS_TRANSPORT_SELF, comm_thread_start,
                                                     comm_thread_wait,  comm_thread_test,
                                                     thread_split,      thread_free};

/* ---- groups --------------------------------------------------------------------------------- */

static void group_free(struct thread_group *group)
{
    comm_ops_free(group);
    free(group->left);
    free(group->taken);
    free(group->world_rank);
    free(group);
}

/* members[size] are ranks of parent, NULL for the whole world. The mutex is held, or nobody knows
 * the world yet. */
static struct thread_group *group_new(struct ls_world *world, const struct thread_group *parent,
                                      const int *members, int size)
{
    struct thread_group *group = calloc(1, sizeof *group);
    if (!group)
        return NULL;
    group->world = world;
    group->size = group->handles = size;
    group->left_first = -1;
    group->world_rank = calloc((size_t)size, sizeof *group->world_rank);
    group->taken = calloc((size_t)size, sizeof *group->taken);
    group->left = calloc((size_t)size, sizeof *group->left);
    if (!group->world_rank || !group->taken || !group->left || !comm_ops_new(group)) {
        group_free(group);
        return NULL;
    }
    for (int i = 0; i < size; i++)
        group->world_rank[i] = members ? parent->world_rank[members[i]] : i;
    group->next = world->groups;
    world->groups = group;
    return group;
}

static int handle_new(struct thread_group *group, const struct comm_transport *transport, int rank,
                      struct ls_comm **out, struct ls_error *error)
{
    struct thread_comm *comm = calloc(1, sizeof *comm);
    if (!comm)
        return ls_no_memory(error, "for a communicator");
    int status = comm_init(&comm->base, transport, rank, group->size, error);
    if (status != LS_OK) {
        comm_release(&comm->base);
        free(comm);
        return status;
    }
    comm->group = group;
    comm->spin_s = COMM_SPIN_MAX_S;
    comm->base.world_ranks = group->world_rank;
    comm->base.board = &group->world->board;
    comm->base.record = comm->base.board->records[group->world_rank[rank]];
    *out = &comm->base;
    return LS_OK;
}

/* Rank has no handle of the group any more. */
static void handle_drop(struct thread_group *group, int rank)
{
    struct ls_world *world = group->world;
    pthread_mutex_lock(&world->lock);
    comm_group_leave(group, rank);
    bool last = --group->handles == 0;
    if (last) {
        struct thread_group **at = &world->groups;
        while (*at != group)
            at = &(*at)->next;
        *at = group->next;
    }
    pthread_mutex_unlock(&world->lock);
    if (last)
        group_free(group);
}

static void thread_free(struct ls_comm *comm)
{
    struct thread_comm *self = (struct thread_comm *)comm;
    if (self->group == self->group->world->all)
        flight_progress_end(comm->record);
    handle_drop(self->group, comm->rank);
    if (self->own_world)
        ls_world_free(self->own_world);
    comm_release(comm);
    free(self);
}

/* The new group's first rank makes it; the others learn its address from a gather on the parent. */
static int thread_split(struct ls_comm *comm, const int *members, int size, int rank,
                        struct ls_comm **out, struct ls_error *error)
{
    struct thread_comm *self = (struct thread_comm *)comm;
    struct ls_world *world = self->group->world;
    struct thread_group *group = NULL;
    if (rank == 0) {
        pthread_mutex_lock(&world->lock);
        group = group_new(world, self->group, members, size);
        pthread_mutex_unlock(&world->lock);
    }
    uint64_t address = (uint64_t)(uintptr_t)group;
    int status = ls_all_gather_start(comm, &address, comm->scratch, 1, LS_U64, NULL,
                                     (struct ls_call_site){"ls_comm_split", 0}, error);
    if (status != LS_OK)
        return status; /* the world frees the group */
    group = (struct thread_group *)(uintptr_t)comm->scratch[members[0]];
    if (!group)
        return ls_no_memory(error, "for a group of %d ranks", size);
    status = handle_new(group, comm->transport, rank, out, error);
    if (status != LS_OK)
        handle_drop(group, rank);
    return status;
}

/* The rank takes part in nothing any more, in any group. */
void comm_world_leave(struct ls_world *world, int rank, int status, const struct ls_error *error)
{
    pthread_mutex_lock(&world->lock);
    struct world_rank *self = &world->ranks[rank];
    self->left = true;
    if (status == LS_OK)
        snprintf(self->reason, sizeof self->reason, "it has returned");
    else
        snprintf(self->reason, sizeof self->reason, "it failed with %s: %.640s",
                 ls_status_name(status), error->text);
    /* Groups come and go while a ready operation is finished without the mutex: look again from
     * the start after each one that is left. */
    struct thread_group *group = world->groups;
    while (group) {
        int member = 0;
        while (member < group->size && (group->world_rank[member] != rank || group->left[member]))
            member++;
        if (member < group->size)
            comm_group_leave(group, member);
        group = member < group->size ? world->groups : group->next;
    }
    pthread_mutex_unlock(&world->lock);
}

/* ---- worlds --------------------------------------------------------------------------------- */

static bool board_new(struct flight_board *board, int size)
{
    board->count = board->machine_ranks = board->core_ranks = size;
    board->records = calloc((size_t)size, sizeof *board->records);
    struct flight_record *all = calloc((size_t)size, sizeof *all);
    if (!board->records || !all) {
        free(all);
        free(board->records);
        board->records = NULL;
        return false;
    }
    for (int i = 0; i < size; i++) {
        board->records[i] = &all[i];
        atomic_store(&all[i].pid, (int)getpid());
    }
    board->claimed = &all->claimed;
    return true;
}

int ls_world_new(int size, struct ls_world **out, struct ls_error *error)
{
    *out = NULL;
    if (size < 1)
        return ls_error_set(error, LS_EINVAL, "a world of %d ranks: at least 1 is needed", size);
    struct ls_world *world = calloc(1, sizeof *world);
    if (!world)
        return ls_no_memory(error, "for a world of %d ranks", size);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    world->size = size;
    ls_ops_init_shared(&world->ops);
    world->helpers_max = (int)ls_max(1, ls_min(size, cores));
    world->spins = size > 1 && size <= cores;
    pthread_mutex_init(&world->lock, NULL);
    pthread_cond_init(&world->queue_filled, NULL);
    world->ranks = calloc((size_t)size, sizeof *world->ranks);
    world->helpers = calloc((size_t)world->helpers_max, sizeof *world->helpers);
    if (board_new(&world->board, size) && world->ranks && world->helpers)
        world->all = group_new(world, NULL, NULL, size);
    if (!world->all) {
        ls_world_free(world);
        return ls_no_memory(error, "for a world of %d ranks", size);
    }
    *out = world;
    return LS_OK;
}

void ls_world_free(struct ls_world *world)
{
    if (!world)
        return;
    comm_helpers_stop(world);
    while (world->groups) {
        struct thread_group *group = world->groups;
        world->groups = group->next;
        group_free(group);
    }
    if (world->board.records)
        free(world->board.records[0]);
    free(world->board.records);
    free(world->helpers);
    free(world->ranks);
    pthread_cond_destroy(&world->queue_filled);
    pthread_mutex_destroy(&world->lock);
    free(world);
}

int ls_comm_thread_new(struct ls_world *world, int rank, struct ls_comm **out,
                       struct ls_error *error)
{
    *out = NULL;
    if (rank < 0 || rank >= world->size)
        return ls_error_set(error, LS_EINVAL, "rank %d of a world with ranks 0 to %d", rank,
                            world->size - 1);
    pthread_mutex_lock(&world->lock);
    bool taken = world->all->taken[rank];
    world->all->taken[rank] = true;
    pthread_mutex_unlock(&world->lock);
    if (taken)
        return ls_error_set(error, LS_EINVAL, "rank %d of the world already has its communicator",
                            rank);
    int status = handle_new(world->all, &thread_transport, rank, out, error);
    if (status == LS_OK)
        flight_progress_begin((*out)->record);
    return status;
}

int ls_comm_self_new(struct ls_comm **out, struct ls_error *error)
{
    struct ls_world *world;
    *out = NULL;
    int status = ls_world_new(1, &world, error);
    if (status != LS_OK)
        return status;
    status = handle_new(world->all, &self_transport, 0, out, error);
    if (status != LS_OK)
        ls_world_free(world);
    else
        ((struct thread_comm *)*out)->own_world = world;
    return status;
}
