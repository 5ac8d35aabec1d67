/* Ranks while MPI starts, of which nothing is recorded yet: each shows life in a file of its own,
 * and one that is stopped, or does not begin, is found by the others' signs. */
#include "launch/launch_private.h"

#include <lockstep/base/file.h>
#include <lockstep/base/heartbeat.h>

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOOKS = 8, LOOK_S_MAX = 1 };   /* within the patience */
enum { TIMEOUTS = 10, START_S = 60 }; /* with a start in which all show life */

struct launch_starting {
    char folder[PATH_MAX];
    double begun_s, next_s;   /* when this began; when the files are read again */
    double first_s, newest_s; /* when a beat of any rank was seen; 0: none was */
    int64_t ranks;
    struct sign {
        struct ls_heartbeat_seen last;
        double at_s; /* when it was seen; 0: never */
    } sign[];        /* [ranks] */
};

int ls_launch_sign_path(char path[PATH_MAX], const char *run, int64_t rank, struct ls_error *error)
{
    char name[64] = "starting";
    if (rank >= 0)
        snprintf(name, sizeof name, "starting/rank-%05lld", (long long)rank);
    return ls_path_join(path, run, name, error);
}

/* A rank that finds no room for its sign would seem to hang. Where there is room for some hundreds,
 * there is for the rest. */
static int signs_reserve(const char *run, int64_t ranks)
{
    enum { ENOUGH = 256 };
    char path[PATH_MAX];
    int status = LS_OK;
    for (int64_t rank = 0; rank < ls_min(ranks, ENOUGH) && !status; rank++) {
        status = ls_launch_sign_path(path, run, rank, NULL);
        status = status ? status : ls_heartbeat_reserve(path, NULL);
    }
    return status;
}

struct launch_starting *launch_starting_open(const char *run, int64_t ranks)
{
    struct launch_starting *starting =
        calloc(1, sizeof *starting + (size_t)ranks * sizeof starting->sign[0]);
    if (!starting || ls_launch_sign_path(starting->folder, run, -1, NULL)) {
        free(starting);
        return NULL;
    }
    starting->ranks = ranks;
    starting->begun_s = ls_now_s();
    ls_directory_remove(starting->folder); /* of a launcher that was killed */
    if (!ls_directory_add(starting->folder, NULL, NULL) && !signs_reserve(run, ranks))
        return starting;
    launch_starting_close(starting);
    return NULL;
}

void launch_starting_close(struct launch_starting *starting)
{
    if (starting)
        ls_directory_remove(starting->folder);
    free(starting);
}

/* A beat counts from when it is seen: clocks of hosts differ. */
static void sign_look(struct launch_starting *starting, int64_t rank, double now_s)
{
    struct sign *sign = &starting->sign[rank];
    struct ls_heartbeat_seen seen;
    char path[PATH_MAX], run[PATH_MAX];
    ls_path_parent(starting->folder, run);
    if (sign->last.over || ls_launch_sign_path(path, run, rank, NULL) ||
        !ls_heartbeat_read(path, &seen))
        return;
    if (seen.beats != sign->last.beats || seen.pid != sign->last.pid)
        sign->at_s = starting->newest_s = now_s;
    sign->last = seen;
    if (starting->first_s == 0)
        starting->first_s = now_s;
}

/* Of this host: where mpirun lets the others live, they would wait for it. */
static bool process_gone(const char *host, long pid)
{
    char own[256] = "";
    gethostname(own, sizeof own - 1);
    return !strcmp(own, host) && kill((pid_t)pid, 0) && errno == ESRCH;
}

/* Ranks that all wait, for each other or for mpirun, name nobody. */
static bool nobody_begins(const struct launch_starting *starting, double patience_s, char *text,
                          size_t bytes)
{
    double now_s = ls_now_s(), took_s = now_s - starting->begun_s;
    int64_t came = 0;
    for (int64_t rank = 0; rank < starting->ranks; rank++) {
        if (starting->sign[rank].last.over)
            return false;
        came += starting->sign[rank].at_s > 0;
    }
    if (starting->first_s > 0 && now_s - starting->newest_s >= patience_s)
        snprintf(text, bytes,
                 "no rank has shown life for %.2f s while MPI starts: all are stopped, or cannot "
                 "write to %.300s",
                 now_s - starting->newest_s, starting->folder);
    else if (took_s >= fmax(patience_s, fmin(TIMEOUTS * patience_s, START_S)))
        snprintf(text, bytes,
                 "MPI has not started within %.2f s: %ld of %s began, and none got through it",
                 took_s, (long)came, ls_counted(starting->ranks, "rank").text);
    else
        return false;
    return true;
}

bool launch_starting_frozen(struct launch_starting *starting, double patience_s, char *text,
                            size_t bytes)
{
    double now_s = ls_now_s();
    if (!starting || patience_s <= 0 || now_s < starting->next_s)
        return false;
    starting->next_s = now_s + fmin(patience_s / LOOKS, LOOK_S_MAX);
    for (int64_t rank = 0; rank < starting->ranks; rank++)
        sign_look(starting, rank, now_s);
    for (int64_t rank = 0; rank < starting->ranks; rank++) {
        const struct sign *sign = &starting->sign[rank];
        if (sign->at_s > 0 && !sign->last.over && process_gone(sign->last.host, sign->last.pid)) {
            snprintf(text, bytes, "rank %ld on %s (process %ld) has ended while MPI starts",
                     (long)rank, sign->last.host, sign->last.pid);
            return true;
        }
        double silent_s = starting->newest_s - (sign->at_s > 0 ? sign->at_s : starting->first_s);
        if (sign->last.over || silent_s < patience_s)
            continue;
        if (sign->at_s > 0)
            snprintf(text, bytes,
                     "rank %ld on %s (process %ld) has shown no life for %.2f s while MPI starts, "
                     "and others have: it is stopped, or its host hangs",
                     (long)rank, sign->last.host, sign->last.pid, silent_s);
        else
            snprintf(text, bytes,
                     "rank %ld has not begun, and others wait for it since %.2f s in the start of "
                     "MPI",
                     (long)rank, silent_s);
        return true;
    }
    return nobody_begins(starting, patience_s, text, bytes);
}
