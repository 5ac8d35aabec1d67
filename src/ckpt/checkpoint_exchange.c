/* Files of a checkpoint that lies in the memory of several machines, brought to where they are
 * needed: copies on other machines when it is written, what ranks lack when it is read. */
#include "ckpt/exchange.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PORTION_BYTES = 16 << 20 };

/* ---- a file from one rank to another --------------------------------------------------------- */

/* room[PORTION_BYTES]. A sender that cannot read sends what is in its room: the other one waits for
 * as many bytes, and hears of it when all agree. */
static int file_send(const char *path, const struct ckpt_move *move, unsigned char *room,
                     struct ls_comm *comm, struct ls_error *error)
{
    struct ls_stored_file *file;
    int status = ls_stored_file_open(&file, path, LS_ECKPT, error), failed = LS_OK;
    if (!status && ls_stored_file_bytes(file) != move->size)
        status = ls_error_set(error, LS_ECKPT, "%s: %lld bytes long, expected %lld", path,
                              (long long)ls_stored_file_bytes(file), (long long)move->size);
    for (int64_t at = 0; at < move->size && !failed; at += PORTION_BYTES) {
        int64_t count = ls_min(PORTION_BYTES, move->size - at);
        status = status ? status : ls_stored_file_read(file, at, count, room, error);
        failed = ls_send(comm, room, count, LS_U8, move->to, 0, error);
    }
    ls_stored_file_close(file);
    return failed ? failed : status;
}

/* The same room. A receiver that cannot write takes all the same. */
static int file_receive(const char *path, const struct ckpt_move *move, unsigned char *room,
                        struct ls_comm *comm, struct ls_error *error)
{
    struct ls_atomic_file file;
    ls_atomic_file_reuse(path);
    int status = ls_atomic_file_open(&file, path, NULL, error), failed = LS_OK;
    for (int64_t at = 0; at < move->size && !failed; at += PORTION_BYTES) {
        int64_t count = ls_min(PORTION_BYTES, move->size - at);
        failed = ls_recv(comm, room, count, LS_U8, move->from, 0, error);
        if (!status && !failed)
            ls_atomic_file_write(&file, room, (size_t)count);
    }
    if (status || failed) {
        if (!status)
            ls_atomic_file_abort(&file);
        return failed ? failed : status;
    }
    return ls_atomic_file_commit(&file, error);
}

static bool is_mine(const struct ckpt_move *move, int rank)
{
    return move->from == rank || move->to == rank;
}

/* room is NULL where no move is this rank's. */
static int files_move(const char *directory, unsigned char *room, struct ls_comm *comm,
                      const struct ckpt_move *moves, size_t count, struct ls_error *error)
{
    char path[PATH_MAX];
    int rank = ls_comm_rank(comm), status = LS_OK;
    for (size_t i = 0; i < count; i++) {
        struct ls_error why = {0};
        const struct ckpt_move *move = &moves[i];
        if (!is_mine(move, rank))
            continue;
        ls_progress();
        int moved = ls_path_join(path, directory, move->name, &why);
        if (!moved)
            moved = move->from == rank ? file_send(path, move, room, comm, &why)
                                       : file_receive(path, move, room, comm, &why);
        if (moved && !status && error)
            *error = why;
        status = status ? status : moved;
        if (moved == LS_ECOMM)
            return moved;
    }
    return ls_comm_agree(comm, status, error);
}

int ckpt_files_move(const char *directory, struct ls_comm *comm, const struct ckpt_move *moves,
                    size_t count, struct ls_error *error)
{
    bool mine = false;
    for (size_t i = 0; i < count; i++)
        mine |= is_mine(&moves[i], ls_comm_rank(comm));
    unsigned char *room = mine ? calloc(1, PORTION_BYTES) : NULL;
    int status = mine && !room ? ls_no_memory(error, "to move files of a checkpoint") : LS_OK;
    status = ls_comm_agree(comm, status, error); /* else one would wait for what is never sent */
    if (!status)
        status = files_move(directory, room, comm, moves, count, error);
    free(room);
    return status;
}

/* ---- what the machines have together --------------------------------------------------------- */

enum { NEEDS = 1, HAS = 2 };

struct collecting {
    struct ls_comm *comm;
    const struct ls_log *log;
    const char *folder;       /* of this machine */
    int64_t since;            /* no earlier start's */
    char directory[PATH_MAX]; /* of the checkpoint in it */
    bool first;               /* this rank is the first of its machine */
    struct ckpt_opened *opened;
    int64_t *machine; /* [ranks]: the first rank of its machine */
    int64_t *words;   /* [ranks, files]: NEEDS, HAS */
    struct ckpt_move *moves;
    size_t move_count;
};

/* Where the machine is new to the run there is no folder yet. */
static int manifest_put(const struct collecting *c, const char *path, const char *text,
                        size_t bytes, struct ls_error *error)
{
    char parent[PATH_MAX];
    if (mkdir(c->folder, S_IRWXU) && errno != EEXIST)
        return ls_error_errno(error, errno, "%s: cannot create", c->folder);
    ls_path_parent(c->directory, parent);
    int status = ls_directory_add(parent, NULL, error);
    if (!status)
        status = ls_directory_add(c->directory, NULL, error);
    return status ? status : ls_file_put(path, text, bytes, NULL, error);
}

/* Local. The manifest that this machine has, if it is sound; *text is to be freed. */
static bool manifest_read(struct collecting *c, const char *path, char **text, size_t *bytes)
{
    struct ls_error why = {0};
    struct stat about;
    *text = NULL;
    *bytes = 0;
    int status = ckpt_describe(&c->opened, c->directory, NULL, -1, &why);
    if (!status)
        status = ls_file_read(path, CKPT_MANIFEST_BYTES_MAX, LS_ECKPT, text, bytes, &why);
    if (status && stat(c->directory, &about) == 0)
        ls_log(c->log, LS_LOG_WARNING, "skipping a damaged snapshot: %s", why.text);
    return !status;
}

/* Collective. The manifest of the machine with the latest start becomes that of all; *there: one
 * has it. Others may have one of the same step that an earlier start wrote, in another layout. */
static int manifest_collect(struct collecting *c, bool *there, struct ls_error *error)
{
    enum { RANKS_MAX = 1 << 20 };
    char path[PATH_MAX], *mine, *text = NULL;
    size_t bytes = 0;
    int status = ls_path_join(path, c->directory, ckpt_versions[0].file, error);
    if (status)
        return status;
    bool sound = manifest_read(c, path, &mine, &bytes);
    int64_t start = sound ? c->opened->checkpoint.state.start : -1, length = (int64_t)bytes;
    int64_t best = start * RANKS_MAX + RANKS_MAX - 1 - ls_comm_rank(c->comm);
    status = ls_all_reduce_max(c->comm, &best, error);
    int from = (int)(RANKS_MAX - 1 - (best & (RANKS_MAX - 1)));
    *there = best >= 0 && best / RANKS_MAX >= c->since;
    if (best >= 0 && !*there)
        ls_log(c->log, LS_LOG_WARNING,
               "skipping a snapshot: %s: start %ld of the run took it, and start %ld has saved a "
               "checkpoint since",
               c->directory, (long)(best / RANKS_MAX), (long)c->since);
    if (!status && *there)
        status = ls_broadcast(c->comm, &length, 1, LS_I64, from, error);
    if (status || !*there) {
        free(mine);
        return status;
    }
    text = ls_comm_rank(c->comm) == from ? mine : malloc((size_t)length + 1);
    if (!text)
        status = ls_no_memory(error, "for %s", path);
    status = ls_comm_agree(c->comm, status, error);
    if (!status)
        status = ls_broadcast(c->comm, text, length, LS_U8, from, error);
    bool other = status || !sound || (int64_t)bytes != length || memcmp(mine, text, bytes) != 0;
    if (!status && other && c->first)
        status = manifest_put(c, path, text, (size_t)length, error);
    if (text != mine)
        free(text);
    free(mine);
    status = ls_comm_agree(c->comm, status, error);
    if (!status && other) {
        ckpt_opened_free(c->opened);
        status = ckpt_describe(&c->opened, c->directory, NULL, -1, error);
    }
    return ls_comm_agree(c->comm, status, error);
}

static bool has(const struct collecting *c, const struct ckpt_file *file)
{
    char path[PATH_MAX];
    struct stat about;
    return !ls_path_join(path, c->directory, file->name, NULL) && stat(path, &about) == 0 &&
           (uint64_t)about.st_size == file->size;
}

/* Collective. What each rank needs, and each machine has. */
static int words_gather(struct collecting *c, ls_checkpoint_needs *needs, void *user,
                        struct ls_error *error)
{
    size_t files = c->opened->file_count, ranks = (size_t)ls_comm_size(c->comm);
    bool *needed = calloc(files + 1, sizeof *needed);
    int64_t *mine = calloc(files + 1, sizeof *mine);
    c->machine = calloc(ranks, sizeof *c->machine);
    c->words = calloc(ranks * files + 1, sizeof *c->words);
    c->moves = calloc(ranks * files + 1, sizeof *c->moves);
    int status = needed && mine && c->machine && c->words && c->moves
                     ? needs(user, &c->opened->checkpoint, needed, error)
                     : ls_no_memory(error, "for a list of %zu files", files);
    for (size_t f = 0; f < files && !status; f++)
        mine[f] = (needed[f] ? NEEDS : 0) | (c->first && has(c, &c->opened->files[f]) ? HAS : 0);
    status = ls_comm_agree(c->comm, status, error);
    if (!status)
        status = ls_all_gather(c->comm, mine, c->words, (int64_t)files, LS_I64, error);
    if (!status)
        status = ls_comm_machines(c->comm, c->machine, error);
    free(needed);
    free(mine);
    return status;
}

/* Local, alike on all ranks: who sends what to whom. Returns a file that is needed and nowhere,
 * NULL if there is none. */
static const struct ckpt_file *moves_plan(struct collecting *c)
{
    size_t files = c->opened->file_count;
    int ranks = ls_comm_size(c->comm);
    for (size_t f = 0; f < files; f++) {
        const struct ckpt_file *file = &c->opened->files[f];
        int from = 0;
        while (from < ranks && !(c->words[(size_t)from * files + f] & HAS))
            from++;
        for (int to = 0; to < ranks; to++) {
            bool needs = false;
            for (int rank = to; rank < ranks && c->machine[to] == to; rank++)
                needs |= c->machine[rank] == to && c->words[(size_t)rank * files + f] & NEEDS;
            if (!needs || c->words[(size_t)to * files + f] & HAS)
                continue;
            if (from == ranks)
                return file;
            c->moves[c->move_count++] =
                (struct ckpt_move){file->name, (int64_t)file->size, from, to};
        }
    }
    return NULL;
}

/* Collective. What every rank needs is as it was written: nothing is loaded of a snapshot before.
 */
static int verify(struct collecting *c, ls_checkpoint_needs *needs, void *user, bool *whole,
                  struct ls_error *error)
{
    struct ls_error why = {0};
    int status = needs(user, &c->opened->checkpoint, NULL, &why);
    int64_t damaged = c->opened->checkpoint.damaged;
    int failed = ls_all_reduce_max(c->comm, &damaged, error);
    if (failed)
        return failed;
    *whole = !damaged;
    if (!damaged && status && error)
        *error = why;
    status = ls_comm_agree(c->comm, damaged ? LS_OK : status, error);
    if (damaged) {
        char text[sizeof why.text] = "";
        memcpy(text, why.text, sizeof text);
        int64_t teller =
            c->opened->checkpoint.damaged ? -(int64_t)ls_comm_rank(c->comm) : INT64_MIN;
        failed = ls_all_reduce_max(c->comm, &teller, error);
        if (!failed)
            failed = ls_broadcast(c->comm, text, sizeof text, LS_U8, (int)-teller, error);
        ls_log(c->log, LS_LOG_WARNING, "skipping a damaged snapshot: %s", text);
        return failed;
    }
    return status;
}

static int collect(struct collecting *c, ls_checkpoint_needs *needs, void *user, bool *whole,
                   struct ls_error *error)
{
    int status = manifest_collect(c, whole, error);
    if (status || !*whole)
        return status;
    status = words_gather(c, needs, user, error);
    if (status)
        return status;
    const struct ckpt_file *missing = moves_plan(c);
    if (missing)
        ls_log(c->log, LS_LOG_WARNING,
               "skipping a snapshot that is not whole: %s: %s is on no machine with %llu bytes",
               c->directory, missing->name, (unsigned long long)missing->size);
    *whole = !missing;
    if (missing)
        return LS_OK;
    status = ckpt_files_move(c->directory, c->comm, c->moves, c->move_count, error);
    return status ? status : verify(c, needs, user, whole, error);
}

int ls_checkpoint_collect(struct ls_checkpoint **out, const char *folder,
                          struct ls_checkpoint_saved than, struct ls_comm *comm,
                          ls_checkpoint_needs *needs, void *user, const struct ls_log *log,
                          struct ls_error *error)
{
    int64_t below = INT64_MAX;
    char name[40];
    *out = NULL;
    for (;;) {
        struct collecting c = {.comm = comm,
                               .log = log,
                               .folder = folder,
                               .since = than.start,
                               .first = ls_comm_first_on_machine(comm)};
        int64_t step = ckpt_newest_below(folder, below);
        bool whole;
        int status = ls_all_reduce_max(comm, &step, error);
        if (status || step <= than.step)
            return status;
        snprintf(name, sizeof name, CKPT_DIRECTORY "/" CKPT_STEP_FORMAT, (long long)step);
        status = ls_path_join(c.directory, folder, name, error);
        if (!status)
            status = collect(&c, needs, user, &whole, error);
        free(c.machine);
        free(c.words);
        free(c.moves);
        if (!status && whole) {
            *out = &c.opened->checkpoint;
            return LS_OK;
        }
        ckpt_opened_free(c.opened);
        if (status)
            return status;
        below = step;
    }
}
