/* Snapshots of workers: at a meeting each worker and the global parameters get a checkpoint in the
 * memory of their machines, in FOLDER/workers/0003/checkpoints and FOLDER/checkpoints, where FOLDER
 * is that of snapshots.h. The ranks of all groups write and read each of them together
 * (lockstep/state/unit_snapshots.h). The global one is named last, so that all are there with it.
 * From those that are stored threads write the checkpoints of the run's folder while steps go on;
 * these, too, get their names at a meeting, the global one last. */
#include "train/workers_private.h"

#include <lockstep/base/file.h>
#include <lockstep/state/unit_snapshots.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- a unit ---------------------------------------------------------------------------------- */

/* A unit, as this rank has part in its snapshots. */
struct unit {
    struct ls_state *state; /* of a worker of another group: the global parameters' */
    struct ls_unit_snapshots of;
    char folder[PATH_MAX];
    bool outer;
    int k; /* of this group's workers */
};

static int folder_path(const char *snapshots, int worker, char path[PATH_MAX],
                       struct ls_error *error)
{
    char name[32];
    snprintf(name, sizeof name, "workers/%04d", worker);
    return ls_path_join(path, snapshots, name, error);
}

static int folder_make(const char *snapshots, int worker, char path[PATH_MAX],
                       struct ls_error *error)
{
    int status = folder_path(snapshots, worker, path, error);
    return status ? status : ls_directory_make(path, NULL, error);
}

/* Collective over t->whole. Of the group: its ranks are the first ones. */
static int group_comm(struct ls_trainer *t, int group, struct ls_comm **comm,
                      struct ls_error *error)
{
    struct workers *w = t->workers;
    int place = (w->group - group + w->all) % w->all;
    *comm = w->from[group];
    if (*comm)
        return LS_OK;
    int status = ls_comm_split(t->whole, 0, place * ls_comm_size(t->world) + ls_comm_rank(t->world),
                               &w->from[group], error);
    *comm = w->from[group];
    return status;
}

/* Collective over t->whole. Units 0 to count - 1 are workers, the last the global parameters. */
static int unit_of(struct ls_trainer *t, const char *snapshots, int i, struct unit *unit,
                   struct ls_error *error)
{
    struct workers *w = t->workers;
    struct ls_state *outer = workers_outer(t);
    bool is_outer = i == w->count;
    int group = is_outer ? w->owner : i / w->each;
    bool holds = w->group == group;
    *unit = (struct unit){.state = holds && !is_outer ? &t->units[i % w->each] : outer,
                          .of = {.holds = holds, .start = outer->start},
                          .outer = is_outer,
                          .k = i % w->each};
    int status = LS_OK;
    if (is_outer)
        snprintf(unit->folder, sizeof unit->folder, "%s", snapshots);
    else
        status = folder_path(snapshots, i, unit->folder, error);
    status = ls_comm_agree(t->whole, status, error);
    return status ? status : group_comm(t, group, &unit->of.comm, error);
}

int workers_snapshots_comms(struct ls_trainer *t, struct ls_error *error)
{
    struct ls_comm *comm;
    int status = LS_OK;
    for (int group = 0; group < t->workers->all && !status; group++)
        status = group_comm(t, group, &comm, error);
    return status;
}

/* ---- taking ---------------------------------------------------------------------------------- */

int workers_snapshots_open(const struct ls_trainer *t, const char *snapshots, int64_t named,
                           const struct ls_run_token *token, struct ls_error *error)
{
    char path[PATH_MAX];
    int status = LS_OK;
    for (int i = 0; i < t->workers->count && !status; i++) {
        status = folder_make(snapshots, i, path, error);
        if (!status)
            status = ls_run_token_write(path, token, error);
        if (!status)
            status = ls_checkpoint_retain(path, &named, named >= 0, error);
    }
    return status;
}

/* What one is taken of. */
struct taking {
    const char *snapshots;
    int64_t newest, spare;
    bool stored;
    struct ls_saving **savings; /* [count + 1] */
};

/* Collective over t->whole. */
static int unit_begin(struct ls_trainer *t, const struct taking *taking, int i,
                      struct ls_error *error)
{
    const struct workers *w = t->workers;
    struct unit unit;
    int status = unit_of(t, taking->snapshots, i, &unit, error);
    if (status)
        return status;
    unit.of.folder = unit.folder;
    if (taking->stored && unit.of.holds && !unit.outer)
        status = unit_saves(t, unit.k, error);
    status = ls_comm_agree(t->whole, status, error);
    if (!status)
        status = ls_saving_begin_among(&taking->savings[i], unit.state, &unit.of, taking->newest,
                                       taking->spare, taking->stored,
                                       unit.outer ? &w->hash : &w->hashes[unit.k], error);
    unit.state->config = &t->config;
    return status;
}

/* Collective over t->whole. Those of units [from, to), which are copied at the same time. */
static int units_take(struct ls_trainer *t, const struct taking *taking, int from, int to,
                      struct ls_error *error)
{
    struct ls_saving **savings = taking->savings;
    struct ls_error why = {0};
    int status = LS_OK;
    for (int i = from; i < to && !status; i++)
        status = unit_begin(t, taking, i, &why);
    for (int i = from; i < to && savings[i]; i++) {
        int kept = status == LS_ECOMM ? status : ls_saving_keep(savings[i], status ? NULL : &why);
        status = status ? status : kept;
    }
    if (status && error)
        *error = why;
    return status;
}

static void savings_free(struct ls_saving **savings, int units)
{
    for (int i = 0; i < units; i++) {
        ls_saving_free(savings[i]);
        savings[i] = NULL;
    }
}

int workers_snapshot(struct ls_trainer *t, const char *snapshots, int64_t newest, int64_t spare,
                     bool stored, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct ls_digest ignored;
    struct ls_saving *named[WORKERS_MAX + 1] = {NULL};
    const struct taking taking = {snapshots, newest, spare, stored, stored ? w->storing : named};
    LS_ASSERT(!stored || workers_storing(t) < 0);
    int status =
        w->hashed_step == workers_outer(t)->step ? LS_OK : workers_hash(t, &ignored, error);
    if (!status)
        status = units_take(t, &taking, 0, w->count, error);
    if (!status)
        status = units_take(t, &taking, w->count, w->count + 1, error);
    if (status || !stored)
        savings_free(taking.savings, w->count + 1);
    return status;
}

/* ---- on the way to the disk ------------------------------------------------------------------ */

int64_t workers_storing(const struct ls_trainer *t)
{
    const struct ls_saving *outer = t->workers->storing[t->workers->count];
    return outer ? ls_saving_step(outer) : -1;
}

bool workers_stored(const struct ls_trainer *t)
{
    const struct workers *w = t->workers;
    bool done = true;
    for (int i = 0; i <= w->count && done; i++)
        done = ls_saving_done(w->storing[i]);
    return done;
}

void workers_store_cancel(struct ls_trainer *t)
{
    for (int i = 0; i <= t->workers->count; i++)
        ls_saving_cancel(t->workers->storing[i]);
}

void workers_store_drop(struct ls_trainer *t)
{
    savings_free(t->workers->storing, t->workers->count + 1);
}

static int outer_store(struct ls_trainer *t, int status, struct ls_error *error)
{
    return ls_saving_store_among(t->workers->storing[t->workers->count], status, error);
}

int workers_store(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    int status = LS_OK;
    for (int k = 0; k < w->held && status != LS_ECOMM; k++)
        status = ls_saving_store_among(w->storing[w->group * w->each + k], status, error);
    status = units_saved(t, workers_storing(t), status, outer_store, error);
    workers_store_drop(t);
    return status;
}

/* ---- going on -------------------------------------------------------------------------------- */

/* Local. Those of that step and behind it go. */
static int newer_remove(const char *folder, int64_t step, struct ls_error *error)
{
    int64_t *steps, count, newer = 0;
    int status = ls_checkpoint_steps(folder, &steps, &count, error);
    while (newer < count && steps[newer] >= step)
        newer++;
    if (!status)
        status = ls_checkpoint_retain(folder, steps + newer, count - newer, error);
    free(steps);
    return status;
}

/* Local. The newest one of the global parameters; -1: there is none. */
static int64_t newest_in(const char *folder)
{
    int64_t *steps, count;
    int status = ls_checkpoint_steps(folder, &steps, &count, NULL);
    int64_t step = !status && count ? steps[0] : -1;
    free(steps);
    return step;
}

/* Local, of the first rank of a machine, which may be new to the run. What is newer than the global
 * parameters of that step was not finished. */
static int folders_make(const struct ls_trainer *t, const char *snapshots, int64_t step,
                        struct ls_error *error)
{
    char path[PATH_MAX];
    if (mkdir(snapshots, S_IRWXU) && errno != EEXIST)
        return ls_error_errno(error, errno, "%s: cannot create", snapshots);
    int status = LS_OK;
    for (int i = 0; i < t->workers->count && !status; i++) {
        status = folder_make(snapshots, i, path, error);
        if (!status)
            status = newer_remove(path, step + 1, error);
    }
    return status;
}

/* Collective over t->whole. All units of that step, opened; *whole: they are there. */
static int units_collect(struct ls_trainer *t, const char *snapshots, int64_t step, int64_t start,
                         const struct ls_log *log, struct ls_checkpoint **opened, bool *whole,
                         struct ls_error *error)
{
    const struct workers *w = t->workers;
    const struct ls_checkpoint_saved than = {step - 1, start};
    bool first = ls_comm_first_on_machine(t->whole);
    int status = first ? folders_make(t, snapshots, step, error) : LS_OK;
    status = ls_comm_agree(t->whole, status, error);
    *whole = true;
    for (int i = w->count; i >= 0 && !status && *whole; i--) {
        struct unit unit;
        status = unit_of(t, snapshots, i, &unit, error);
        unit.of.folder = unit.folder;
        unit.of.holds |= unit.outer; /* each group loads it, and one has written it */
        if (!status)
            status = ls_state_collect(&opened[i], unit.state, &unit.of, than, log, error);
        *whole = opened[i] && opened[i]->state.step == step;
    }
    return status;
}

/* Local. */
static void opened_close(struct ls_checkpoint **opened, int count)
{
    for (int i = 0; i < count; i++) {
        ls_checkpoint_close(opened[i]);
        opened[i] = NULL;
    }
}

int workers_snapshot_remove(struct ls_trainer *t, const char *snapshots, int64_t step,
                            struct ls_error *error)
{
    bool first = ls_comm_first_on_machine(t->whole);
    return ls_comm_agree(t->whole, first ? newer_remove(snapshots, step, error) : LS_OK, error);
}

int workers_snapshot_collect(struct ls_trainer *t, const char *snapshots,
                             struct ls_checkpoint_saved than, int64_t *step,
                             struct ls_checkpoint *opened[WORKERS_MAX + 1], struct ls_error *error)
{
    const struct ls_log *log = ls_comm_rank(t->whole) == 0 ? t->log : NULL;
    const int units = t->workers->count + 1;
    bool whole = false;
    int status = LS_OK;
    memset(opened, 0, (WORKERS_MAX + 1) * sizeof *opened);
    while (!status && !whole) {
        *step = newest_in(snapshots);
        status = ls_all_reduce_max(t->whole, step, error);
        if (!status && *step <= than.step) {
            *step = -1;
            return LS_OK;
        }
        if (!status)
            status = units_collect(t, snapshots, *step, than.start, log, opened, &whole, error);
        if (status || !whole)
            opened_close(opened, units);
        if (!status && !whole)
            status = workers_snapshot_remove(t, snapshots, *step, error);
    }
    return status;
}

void workers_snapshot_close(const struct workers *w, struct ls_checkpoint *opened[WORKERS_MAX + 1])
{
    opened_close(opened, w->count + 1);
}
