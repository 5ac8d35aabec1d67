/* lockstep/base/heartbeat.h - a file that says again and again that a process lives, for those who
 * cannot ask it: a rank while MPI starts, of which nothing else is heard.
 *
 *   struct ls_heartbeat *heart;
 *   ls_heartbeat_start(&heart, path, interval_s, error)    a thread writes the file
 *   ls_heartbeat_stop(heart)                               the file says that it is over
 *
 * A process that is stopped, or whose host is, leaves the file as it is. Times of several hosts
 * differ: a reader counts the beats, by its own clock. Everything here is Local. */
#ifndef LOCKSTEP_BASE_HEARTBEAT_H
#define LOCKSTEP_BASE_HEARTBEAT_H

#include <lockstep/base.h>

LS_C_BEGIN

/* Takes the room on the disk that a file of beats needs, for one who starts them later: a file that
 * says nothing yet. LS_EIO, LS_ENOSPC. */
int ls_heartbeat_reserve(const char *path, struct ls_error *error);

/* Writes path now, and every interval_s seconds. The folder must be there. LS_EIO, LS_ENOSPC,
 * LS_ENOMEM; *out is NULL then. */
struct ls_heartbeat;
int ls_heartbeat_start(struct ls_heartbeat **out, const char *path, double interval_s,
                       struct ls_error *error);
/* Frees it. NULL is allowed. */
void ls_heartbeat_stop(struct ls_heartbeat *heart);

struct ls_heartbeat_seen {
    char host[64];
    long pid;
    unsigned long long beats; /* so far; another number is another beat */
    bool over;                /* it was stopped in good order */
};
/* False: there is no such file, or it says nothing yet. */
bool ls_heartbeat_read(const char *path, struct ls_heartbeat_seen *seen);

LS_C_END
#endif
