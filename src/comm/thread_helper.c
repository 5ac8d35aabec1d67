/* Helper threads, which work on operations while ranks compute. */
#include "comm/thread.h"

static void withdraw(struct ls_world *world, struct thread_op *op)
{
    if (!op->queued)
        return;
    struct thread_op *before = NULL, *at = world->queue_head;
    while (at != op) {
        before = at;
        at = at->queue_next;
    }
    if (before)
        before->queue_next = op->queue_next;
    else
        world->queue_head = op->queue_next;
    if (world->queue_tail == op)
        world->queue_tail = before;
    op->queued = false;
}

void comm_op_work(struct thread_op *op)
{
    struct ls_world *world = op->group->world;
    op->workers++;
    pthread_mutex_unlock(&world->lock);
    int64_t done = 0, index;
    while ((index = atomic_fetch_add_explicit(&op->next_block, 1, memory_order_relaxed)) <
           op->work.blocks) {
        comm_work_run(&op->work, index);
        done++;
    }
    pthread_mutex_lock(&world->lock);
    op->workers--;
    op->blocks_done += done;
    /* Done means that no thread looks at the operation any more: it may be used again. */
    if (op->blocks_done == op->work.blocks && op->workers == 0) {
        op->state = OP_DONE;
        withdraw(world, op);
        pthread_cond_broadcast(&op->changed);
    }
}

static void *helper_main(void *argument)
{
    struct ls_world *world = argument;
    pthread_mutex_lock(&world->lock);
    while (!world->stopping) {
        struct thread_op *op = world->queue_head;
        if (!op)
            pthread_cond_wait(&world->queue_filled, &world->lock);
        else if (atomic_load_explicit(&op->next_block, memory_order_relaxed) < op->work.blocks)
            comm_op_work(op);
        else
            withdraw(world, op);
    }
    pthread_mutex_unlock(&world->lock);
    return NULL;
}

/* Fewer helpers than asked for, or none, cost overlap only: who waits does the blocks. */
static void helpers_start(struct ls_world *world)
{
    world->helpers_started = true;
    while (world->helpers_count < world->helpers_max &&
           ls_helper_start(&world->helpers[world->helpers_count], helper_main, world) == 0)
        world->helpers_count++;
}

void comm_helper_offer(struct ls_world *world, struct thread_op *op)
{
    if (!world->helpers_started)
        helpers_start(world);
    if (world->queue_tail)
        world->queue_tail->queue_next = op;
    else
        world->queue_head = op;
    world->queue_tail = op;
    op->queue_next = NULL;
    op->queued = true;
    for (int64_t i = 0; i < ls_min(world->helpers_count, op->work.blocks); i++)
        pthread_cond_signal(&world->queue_filled);
}

void comm_helpers_stop(struct ls_world *world)
{
    pthread_mutex_lock(&world->lock);
    world->stopping = true;
    pthread_cond_broadcast(&world->queue_filled);
    pthread_mutex_unlock(&world->lock);
    for (int i = 0; i < world->helpers_count; i++)
        pthread_join(world->helpers[i], NULL);
}
