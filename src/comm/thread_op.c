/* An operation's life: ranks post, blocks are done, ranks release. The world's mutex is held
 * throughout, except while blocks are done. */
#include "comm/thread.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As many operations as a rank may have pending have their memory from the start, so that later
 * steps allocate nothing. Most are never used, and untouched memory costs nothing. */
enum { GROUP_OPERATIONS = LS_COMM_PENDING_MAX };

/* An operation and its arrays are one piece of memory. */
static size_t op_slots(const struct thread_group *group)
{
    return group->size < 2 ? 2 : (size_t)group->size;
}

static size_t op_bytes(const struct thread_group *group)
{
    const struct thread_op *op = NULL;
    return sizeof *op + op_slots(group) * (sizeof *op->calls + sizeof *op->posts) +
           (size_t)group->size * (sizeof *op->work.inputs + sizeof *op->work.outputs);
}

static struct thread_op *op_init(struct thread_group *group, void *memory)
{
    size_t slots = op_slots(group);
    struct thread_op *op = memset(memory, 0, op_bytes(group));
    op->group = group;
    op->calls = (struct comm_call *)(op + 1);
    op->posts = (struct comm_post *)(op->calls + slots);
    op->work.inputs = (const void **)(op->posts + slots);
    op->work.outputs = (float **)(op->work.inputs + group->size);
    ls_condition_init(&op->changed);
    for (size_t i = 0; i < slots; i++)
        op->posts[i].op = op;
    return op;
}

bool comm_ops_new(struct thread_group *group)
{
    group->pool = malloc(GROUP_OPERATIONS * op_bytes(group));
    return group->pool;
}

static struct thread_op *op_new(struct thread_group *group)
{
    size_t bytes = op_bytes(group);
    if (group->pool_used < GROUP_OPERATIONS)
        return op_init(group, group->pool + bytes * (size_t)group->pool_used++);
    void *memory = malloc(bytes);
    return memory ? op_init(group, memory) : NULL;
}

static void list_free(struct thread_group *group, struct thread_op *list)
{
    const size_t pool_bytes = GROUP_OPERATIONS * op_bytes(group);
    while (list) {
        struct thread_op *op = list;
        list = op->next;
        pthread_cond_destroy(&op->changed);
        if ((char *)op < group->pool || (char *)op >= group->pool + pool_bytes)
            free(op);
    }
}

void comm_ops_free(struct thread_group *group)
{
    list_free(group, group->live);
    list_free(group, group->spare);
    free(group->pool);
}

/* A fresh operation at the end of the live ones: send and recv match in the order of calls. */
static struct thread_op *op_take(struct thread_group *group, int slots)
{
    struct thread_op *op = group->spare, **end = &group->live;
    if (op)
        group->spare = op->next;
    else if (!(op = op_new(group)))
        return NULL;
    while (*end)
        end = &(*end)->next;
    *end = op;
    op->next = NULL;
    op->state = OP_POSTING;
    op->by_leaving = op->by_timeout = false;
    op->cause = LS_CAUSE_OTHER;
    op->slots = op->holders = slots;
    op->posted = op->waiters = 0;
    op->blocks_done = 0;
    atomic_store_explicit(&op->next_block, 0, memory_order_relaxed);
    for (int i = 0; i < slots; i++)
        op->posts[i].state = POST_NONE;
    return op;
}

static void post_release(struct comm_post *post)
{
    struct thread_op *op = post->op, **at = &op->group->live;
    post->state = POST_RELEASED;
    if (--op->holders > 0)
        return;
    while (*at != op)
        at = &(*at)->next;
    *at = op->next;
    op->next = op->group->spare;
    op->group->spare = op;
}

/* ---- matching ------------------------------------------------------------------------------- */

static struct comm_rank_text rank_name(const struct thread_group *group, int rank)
{
    return comm_rank_text(rank, group->world_rank[rank]);
}

static void leaving_text(const struct thread_group *group, int rank, char *text, size_t bytes)
{
    const struct world_rank *who = &group->world->ranks[group->world_rank[rank]];
    snprintf(text, bytes, "%s has left the group: %s", rank_name(group, rank).text,
             who->left ? who->reason : "it freed its communicator");
}

static struct thread_op *find(struct thread_group *group, const struct comm_call *call,
                              uint64_t sequence, int source, int target)
{
    for (struct thread_op *op = group->live; op; op = op->next) {
        if (op->collective != comm_is_collective(call->op))
            continue;
        if (op->collective && op->sequence == sequence)
            return op;
        if (!op->collective && op->state == OP_POSTING && op->source == source &&
            op->target == target && op->tag == call->tag &&
            op->posts[call->op == COMM_RECV].state == POST_NONE)
            return op;
    }
    return NULL;
}

static bool posts_match(const struct thread_op *op, const struct comm_call *a,
                        const struct comm_call *b)
{
    if (op->collective)
        return comm_calls_match(a, b);
    return a->dtype == b->dtype && a->count == b->count;
}

static void op_fail(struct thread_op *op)
{
    op->state = OP_FAILED;
    pthread_cond_broadcast(&op->changed);
}

/* Compares the call just posted in slot with one that was there. */
static void op_check(struct thread_op *op, int slot)
{
    int other = 0;
    while (other < op->slots && (other == slot || op->posts[other].state == POST_NONE))
        other++;
    if (other == op->slots || posts_match(op, &op->calls[other], &op->calls[slot]))
        return;
    int low = other < slot ? other : slot, high = other < slot ? slot : other;
    int low_rank = op->collective ? low : op->source,
        high_rank = op->collective ? high : op->target;
    snprintf(op->text, sizeof op->text, "mismatch: %s calls %s, %s calls %s; nothing was moved",
             rank_name(op->group, low_rank).text, comm_describe(&op->calls[low]).text,
             rank_name(op->group, high_rank).text, comm_describe(&op->calls[high]).text);
    op_fail(op);
}

/* The last rank has posted; a blocking one works itself. As many of those that wait as cores can
 * use are woken to share the work, and if nobody waits the helpers are called. */
static void op_ready(struct thread_op *op, bool blocking)
{
    struct work *work = &op->work;
    op->state = OP_READY;
    work->calls = op->calls;
    work->ops = &op->group->world->ops;
    work->n = op->group->size;
    work->fine = op->group->world->spins && op->waiters > 0;
    comm_work_plan(work);
    int64_t hands = ls_min(work->blocks, op->group->world->helpers_max) - blocking;
    if (work->blocks == 0) {
        op->state = OP_DONE;
        pthread_cond_broadcast(&op->changed);
    } else if (work->blocks == 1 || op->group->size == 1) {
        comm_op_work(op);
    } else if (op->waiters > 0) {
        for (int64_t i = 0; i < hands; i++)
            pthread_cond_signal(&op->changed);
    } else if (!blocking) {
        comm_helper_offer(op->group->world, op);
    }
}

/* ---- the vtable's functions ----------------------------------------------------------------- */

/* Posts the call; the mutex is held. */
static int post(struct thread_comm *self, const struct comm_call *call, void **operation,
                struct ls_error *error)
{
    struct thread_group *group = self->group;
    struct ls_world *world = group->world;
    bool collective = comm_is_collective(call->op);
    int rank = self->base.rank, slot = collective ? rank : call->op == COMM_RECV;
    int source = call->op == COMM_SEND ? rank : call->peer;
    int target = call->op == COMM_SEND ? call->peer : rank;
    uint64_t sequence = call->sequence;
    struct thread_op *op = find(group, call, sequence, source, target);
    if (self->base.timeout_s > world->timeout_s)
        world->timeout_s = self->base.timeout_s;
    int left = collective ? group->left_first : group->left[call->peer] ? call->peer : -1;
    if (!op && left >= 0) {
        char text[sizeof op->text];
        leaving_text(group, left, text, sizeof text);
        world->ranks[group->world_rank[rank]].was_left_alone = true;
        return ls_error_set(error, LS_ECOMM, "%s: %s", comm_describe(call).text, text);
    }
    if (!op) {
        op = op_take(group, collective ? group->size : 2);
        if (!op)
            return ls_error_set(error, LS_ENOMEM, "%s: no memory to start it",
                                comm_describe(call).text);
        op->collective = collective;
        op->sequence = sequence;
        op->source = source;
        op->target = target;
        op->tag = call->tag;
    }
    op->calls[slot] = *call;
    op->posts[slot].state = POST_HELD;
    op->posted++;
    if (op->state == OP_POSTING)
        op_check(op, slot);
    if (op->state == OP_POSTING && op->posted == op->slots)
        op_ready(op, call->blocking);
    *operation = &op->posts[slot];
    return LS_OK;
}

int comm_thread_start(struct ls_comm *comm, const struct comm_call *call, void **operation,
                      struct ls_error *error)
{
    struct thread_comm *self = (struct thread_comm *)comm;
    pthread_mutex_lock(&self->group->world->lock);
    int status = post(self, call, operation, error);
    pthread_mutex_unlock(&self->group->world->lock);
    return status;
}

static void relax(void)
{
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
}

/* Waits for another state, awake and without the mutex, as long as is likely to be of use; true
 * if it came. */
static bool op_spin(struct thread_op *op, double *patience_s)
{
    enum { LOOKS = 16 };
    int seen = op->state;
    bool changed = false;
    pthread_mutex_unlock(&op->group->world->lock);
    double until_s = ls_now_s() + *patience_s;
    while (!changed && ls_now_s() < until_s)
        for (int i = 0; i < LOOKS && !changed; i++) {
            relax();
            changed = atomic_load_explicit(&op->state, memory_order_relaxed) != seen;
        }
    pthread_mutex_lock(&op->group->world->lock);
    double next_s = changed ? 2 * *patience_s : *patience_s / 2;
    *patience_s = fmin(fmax(next_s, COMM_SPIN_MIN_S), COMM_SPIN_MAX_S);
    return changed;
}

static void op_late(const struct thread_op *op, const struct ls_comm *comm,
                    struct flight_late *late)
{
    *late = (struct flight_late){0};
    for (int i = 0; i < op->slots; i++)
        if (op->posts[i].state == POST_NONE)
            flight_late_add(late, comm, op->collective ? i : i ? op->target : op->source);
}

/* True if there is reason to wait on, until wait->look_s. */
static bool op_look(const struct thread_op *op, const struct ls_comm *comm,
                    struct flight_wait *wait)
{
    struct flight_late late;
    double now_s = ls_now_s();
    if (now_s < wait->look_s)
        return true;
    op_late(op, comm, &late);
    return flight_wait_look(wait, comm, &late, now_s);
}

/* Until the operation is over; does blocks of it meanwhile. False if some rank does not come:
 * comm is who waits, NULL for ever. patience_s: NULL to sleep at once. The mutex is held. */
static bool op_finish(struct thread_op *op, double *patience_s, const struct ls_comm *comm,
                      struct flight_wait *wait)
{
    pthread_mutex_t *lock = &op->group->world->lock;
    bool came = true, spun = !patience_s;
    op->waiters++;
    while (came && (op->state == OP_POSTING || op->state == OP_READY)) {
        if (op->state == OP_READY &&
            atomic_load_explicit(&op->next_block, memory_order_relaxed) < op->work.blocks)
            comm_op_work(op);
        else if (!spun)
            spun = !op_spin(op, patience_s);
        else if (op->state == OP_READY || !comm)
            pthread_cond_wait(&op->changed, lock);
        else if (op_look(op, comm, wait))
            ls_condition_wait_until(&op->changed, lock, wait->look_s);
        else
            came = false;
    }
    op->waiters--;
    return came;
}

/* Fails the operation for all that wait for it, or will. */
static void op_time_out(struct thread_op *op, const struct ls_comm *comm, int slot, double waited_s)
{
    struct flight_late late;
    op_late(op, comm, &late);
    flight_late_text(comm, &op->calls[slot], waited_s, &late, op->text, sizeof op->text);
    op->cause = flight_late_cause(&late);
    op->by_timeout = true;
    op_fail(op);
}

int comm_thread_wait(struct ls_comm *comm, void *operation, struct ls_error *error)
{
    struct thread_comm *self = (struct thread_comm *)comm;
    struct thread_group *group = self->group;
    struct comm_post *post = operation;
    struct thread_op *op = post->op;
    int slot = (int)(post - op->posts), status = LS_OK;
    bool limited = comm->timeout_s > 0;
    struct flight_wait wait;
    if (limited)
        flight_wait_begin(&wait, comm, ls_now_s());
    pthread_mutex_lock(&group->world->lock);
    if (!op_finish(op, group->world->spins ? &self->spin_s : NULL, limited ? comm : NULL, &wait))
        op_time_out(op, comm, slot, ls_now_s() - wait.begin_s);
    if (op->state == OP_FAILED) {
        status =
            ls_error_set(error, LS_ECOMM, "%s: %s", comm_describe(&op->calls[slot]).text, op->text);
        ls_error_blame(error, op->cause, "");
        if (op->by_leaving)
            group->world->ranks[group->world_rank[comm->rank]].was_left_alone = true;
    }
    /* Who comes late with the other half of a send or recv starts afresh. */
    if (op->by_timeout && !op->collective && op->posts[!slot].state == POST_NONE)
        post_release(&op->posts[!slot]);
    post_release(post);
    pthread_mutex_unlock(&group->world->lock);
    return status;
}

bool comm_thread_test(struct ls_comm *comm, void *operation)
{
    struct thread_comm *self = (struct thread_comm *)comm;
    struct comm_post *post = operation;
    pthread_mutex_lock(&self->group->world->lock);
    bool over = post->op->state == OP_DONE || post->op->state == OP_FAILED;
    pthread_mutex_unlock(&self->group->world->lock);
    return over;
}

/* ---- leaving -------------------------------------------------------------------------------- */

/* Takes rank out of the operation's slot; true if that was still to do. */
static bool op_leave(struct thread_op *op, int slot, int rank)
{
    struct comm_post *post = &op->posts[slot];
    if (post->state == POST_RELEASED)
        return false;
    if (op->state == OP_POSTING) {
        leaving_text(op->group, rank, op->text, sizeof op->text);
        op->by_leaving = true;
        op_fail(op);
    }
    op_finish(op, NULL, NULL, NULL);
    /* Nobody will look for the other half of a send or recv that this rank posted. */
    struct comm_post *half = op->collective ? NULL : &op->posts[!slot];
    if (half && half->state == POST_NONE)
        post_release(half);
    post_release(post);
    return true;
}

void comm_group_leave(struct thread_group *group, int rank)
{
    if (group->left[rank])
        return;
    group->left[rank] = true;
    if (group->left_first < 0)
        group->left_first = rank;
    bool changed;
    do {
        changed = false;
        for (struct thread_op *op = group->live; op && !changed; op = op->next) {
            if (op->collective)
                changed = op_leave(op, rank, rank);
            else if (op->source == rank)
                changed = op_leave(op, 0, rank);
            if (!op->collective && !changed && op->target == rank)
                changed = op_leave(op, 1, rank);
        }
    } while (changed);
}
