/* Saving while the state goes on: a thread of each rank copies its share to memory, as a snapshot
 * or for the checkpoint alone, and from there to the run's folder. */
#include "state/state_private.h"

#include <lockstep/base/helper_thread.h>
#include <lockstep/state/unit_snapshots.h>

#include <stdio.h>
#include <stdlib.h>

struct ls_saving {
    struct ls_state *state;
    struct ls_comm *comm; /* who writes it together */
    bool holds;           /* this rank has a share of the state */
    struct state_about about;
    char folder[PATH_MAX];       /* where older ones go: of the first rank of a machine, else "" */
    int64_t newest;              /* the step of the one that stays */
    struct ls_progress progress; /* of the thread */
    struct state_held held;      /* of which the hash is made when it gets its name, */
    bool hashed;                 /* if that was not given */
    struct ls_checkpoint_writer *memory, *disk; /* NULL once named, and what is not asked for */
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool copied, done;          /* the state is read; nothing more is written */
    double waited_s, copying_s; /* the rank; of a core, its thread until then */
    int copy_status, store_status;
    struct ls_error copy_error, store_error;
};

/* Whether all of the rank's slices are where another thread may read them: what lies in a tier
 * comes through windows and queues of the rank's own. */
static bool is_near(const struct ls_state *state)
{
    bool near = true;
    for (int i = 0; i < state->params->count && near; i++)
        near = !state->slices[i].away;
    return near;
}

static void copy(struct ls_saving *saving, bool beside)
{
    struct ls_error error = {0};
    struct timespec used;
    int status = saving->folder[0]
                     ? ls_checkpoint_remove_others(saving->folder, saving->newest, &error)
                     : LS_OK;
    if (!status && saving->holds)
        status = state_parts_write(saving->state, saving->memory ? saving->memory : saving->disk,
                                   beside, saving->hashed ? NULL : &saving->held, &error);
    if (!status && saving->memory)
        status = ls_checkpoint_writer_sync(saving->memory, &error);
    if (!status && saving->memory && saving->disk)
        status = ls_checkpoint_writer_take(saving->disk, saving->memory, &error);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    pthread_mutex_lock(&saving->lock);
    if (beside) /* else the rank waited for it */
        saving->copying_s = (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
    saving->copy_status = saving->store_status = status;
    saving->copy_error = saving->store_error = error;
    saving->copied = true;
    pthread_cond_broadcast(&saving->changed);
    pthread_mutex_unlock(&saving->lock);
}

static void *thread_main(void *argument)
{
    struct ls_saving *saving = argument;
    struct ls_error error = {0};
    int status = LS_OK;
    ls_progress_keep(&saving->progress);
    if (!saving->copied)
        copy(saving, true);
    if (!saving->store_status && saving->disk)
        status = ls_checkpoint_writer_copy(saving->disk, &error);
    pthread_mutex_lock(&saving->lock);
    if (status) {
        saving->store_status = status;
        saving->store_error = error;
    }
    saving->done = true;
    pthread_cond_broadcast(&saving->changed);
    pthread_mutex_unlock(&saving->lock);
    return NULL;
}

/* Collective. Opens the writers that are asked for, or none: that of the disk on the ranks that
 * have a share. */
static int writers_open(struct ls_saving *saving, const char *folder, int64_t spare, bool stored,
                        struct ls_error *error)
{
    const struct ls_state *state = saving->state;
    int status = LS_OK;
    if (folder)
        status = ls_checkpoint_writer_open(&saving->memory, folder, &saving->about.state, spare,
                                           LS_CKPT_EACH_MACHINE, saving->comm, NULL, error);
    if (saving->memory)
        ls_checkpoint_writer_map(saving->memory, &saving->state->maps);
    if (status || !stored)
        return status;
    if (saving->holds)
        status =
            ls_checkpoint_writer_open(&saving->disk, state->config->train.out, &saving->about.state,
                                      -1, LS_CKPT_SHARED, ls_state_world(state), NULL, error);
    if (saving->disk && !folder)
        ls_checkpoint_writer_stage(saving->disk, &saving->state->maps);
    status = ls_comm_agree(saving->comm, status, error);
    if (status && folder) {
        ls_checkpoint_writer_commit(saving->memory, status, NULL);
        saving->memory = NULL;
    }
    return status;
}

int ls_saving_begin_among(struct ls_saving **out, struct ls_state *state,
                          const struct ls_unit_snapshots *of, int64_t newest, int64_t spare,
                          bool stored, const struct ls_digest *hash, struct ls_error *error)
{
    double start_s = ls_now_s();
    struct ls_saving *saving = calloc(1, sizeof *saving);
    struct ls_digest position;
    int status = saving ? state_about(state, hash, &saving->about, error)
                        : ls_no_memory(error, "to save the state");
    LS_ASSERT(!(of->holds && state->saving) && (hash || !stored) && (of->folder || stored));
    *out = NULL;
    if (saving) {
        saving->state = state;
        saving->comm = of->comm;
        saving->holds = of->holds;
        saving->about.state.start = of->start;
        saving->newest = newest;
        saving->hashed = hash != NULL;
        position = state_position(state);
        saving->held = (struct state_held){0};
        state_held_place(state, &position, &saving->held);
        if (of->folder && ls_comm_first_on_machine(of->comm))
            snprintf(saving->folder, sizeof saving->folder, "%s", of->folder);
        pthread_mutex_init(&saving->lock, NULL);
        ls_condition_init(&saving->changed);
    }
    status = ls_comm_agree(of->comm, status, error);
    if (!status)
        status = writers_open(saving, of->folder, spare, stored, error);
    if (status) {
        ls_saving_free(saving);
        return status;
    }
    status = ls_queue_synchronise(&state->ops->queue, error);
    if (!status && of->holds && !is_near(state))
        copy(saving, false);
    if (!status && ls_helper_start(&saving->thread, thread_main, saving))
        status = ls_error_set(error, LS_ENOMEM, "no thread to save the state");
    saving->started = !status;
    if (status) { /* told when it is to be named */
        struct ls_error why = error ? *error : (struct ls_error){0};
        if (!saving->copied) {
            saving->copy_status = status;
            saving->copy_error = why;
        }
        saving->store_status = saving->store_status ? saving->store_status : status;
        saving->store_error = why;
        saving->copied = saving->done = true;
    }
    if (of->holds)
        state->saving = saving;
    saving->waited_s = ls_now_s() - start_s;
    *out = saving;
    return LS_OK;
}

int ls_saving_begin(struct ls_saving **out, struct ls_state *state, const char *folder,
                    int64_t newest, int64_t spare, bool stored, const struct ls_digest *hash,
                    struct ls_error *error)
{
    const struct ls_unit_snapshots of = {ls_state_world(state), true, folder, state->start};
    return ls_saving_begin_among(out, state, &of, newest, spare, stored, hash, error);
}

static void wait_for(struct ls_saving *saving, const bool *what)
{
    pthread_mutex_lock(&saving->lock);
    while (!*what)
        ls_helper_wait(&saving->changed, &saving->lock, &saving->progress);
    pthread_mutex_unlock(&saving->lock);
}

void state_copied(struct ls_state *state)
{
    if (!state->saving)
        return;
    double start_s = ls_now_s();
    wait_for(state->saving, &state->saving->copied);
    double waited_s = ls_now_s() - start_s;
    state->saving_wait_s += waited_s;
    state->saving->waited_s += waited_s;
    state->saving = NULL;
}

int64_t ls_saving_step(const struct ls_saving *saving)
{
    return saving->about.state.step;
}

bool ls_saving_done(struct ls_saving *saving)
{
    pthread_mutex_lock(&saving->lock);
    bool done = saving->done;
    pthread_mutex_unlock(&saving->lock);
    return done;
}

/* Collective. The manifest is not written yet. */
static int hash_make(struct ls_saving *saving, struct ls_error *error)
{
    struct ls_digest hash;
    int status = state_hash_agree(saving->state, saving->about.state.step, &saving->held, LS_OK,
                                  &hash, error);
    if (!status)
        ls_digest_hex(&hash, saving->about.hash);
    return status;
}

int ls_saving_keep(struct ls_saving *saving, struct ls_error *error)
{
    double start_s = ls_now_s();
    struct ls_checkpoint_writer *memory = saving->memory;
    wait_for(saving, &saving->copied);
    if (saving->state->saving == saving)
        saving->state->saving = NULL;
    saving->memory = NULL;
    if (saving->copy_status && error)
        *error = saving->copy_error;
    int status = ls_comm_agree(saving->comm, saving->copy_status, error);
    if (!status && !saving->hashed)
        status = hash_make(saving, error);
    if (!memory) {
        saving->waited_s += ls_now_s() - start_s;
        return status;
    }
    if (!status)
        status =
            ls_checkpoint_writer_replicate(memory, saving->state->config->snapshot.replicas, error);
    status = ls_checkpoint_writer_commit(memory, status, error);
    saving->waited_s += ls_now_s() - start_s;
    return status;
}

double ls_saving_cost_s(const struct ls_saving *saving)
{
    return saving->waited_s + saving->copying_s / saving->state->ops->threads;
}

int ls_saving_store_among(struct ls_saving *saving, int status, struct ls_error *error)
{
    struct ls_checkpoint_writer *disk = saving->disk;
    if (status)
        ls_saving_cancel(saving);
    wait_for(saving, &saving->done);
    saving->disk = NULL;
    if (!status && saving->store_status && error)
        *error = saving->store_error;
    status = ls_checkpoint_writer_commit(disk, status ? status : saving->store_status, error);
    if (!status)
        state_saved(saving->state, saving->about.state.step);
    return status;
}

int ls_saving_store(struct ls_saving *saving, struct ls_error *error)
{
    return ls_saving_store_among(saving, LS_OK, error);
}

void ls_saving_cancel(struct ls_saving *saving)
{
    if (saving->disk)
        ls_checkpoint_writer_cancel(saving->disk);
}

void ls_saving_free(struct ls_saving *saving)
{
    if (!saving)
        return;
    ls_saving_cancel(saving);
    if (saving->started)
        pthread_join(saving->thread, NULL);
    if (saving->state->saving == saving)
        saving->state->saving = NULL;
    ls_checkpoint_writer_drop(saving->memory);
    ls_checkpoint_writer_drop(saving->disk);
    pthread_mutex_destroy(&saving->lock);
    pthread_cond_destroy(&saving->changed);
    free(saving->about.recipe);
    free(saving);
}
