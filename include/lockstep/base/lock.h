/* lockstep/base/lock.h - a directory that one process writes at a time.
 *
 *   struct ls_lock lock;
 *   ls_lock_take(&lock, "runs/demo", NULL, &error)   makes the directory; refused while held
 *   ...
 *   ls_lock_release(&lock)
 *
 * The lock is flock(2) on DIRECTORY/lock: it ends with the process that holds it, however that
 * ends, so a process that was killed leaves nothing in the way. The file says who holds it. Readers
 * of the directory need no lock. Everything here is Local. */
#ifndef LOCKSTEP_BASE_LOCK_H
#define LOCKSTEP_BASE_LOCK_H

#include <lockstep/base.h>
#include <lockstep/base/file.h>

LS_C_BEGIN

/* Fields are private; a lock of zeros is not held. */
struct ls_lock {
    bool held;
    int fd, directory_fd;
    size_t made; /* bytes of the path of the first directory that ls_lock_take made; 0: of none */
    char directory[PATH_MAX], path[PATH_MAX];
    char former[256]; /* who left the lock behind; "" for nobody */
};

/* Makes the directory and those above it where they are absent, and takes its lock. LS_EBUSY while
 * another process, or another lock of this one, holds it: the text names host, process and since
 * when. A file system without locks: taken if the file names nobody, or a process of this host that
 * has ended; refused if it names one that runs or that of another host, with what to do. LS_EIO if
 * DIRECTORY/lock is a link or another thing than a regular file: it is neither followed nor
 * written. fault may be NULL; its calls are "flock". */
int ls_lock_take(struct ls_lock *lock, const char *directory, const struct ls_fault *fault,
                 struct ls_error *error);
enum ls_lock_state {
    LS_LOCK_FREE,      /* there is no such file, or it names nobody */
    LS_LOCK_HELD,      /* by a process of this host that runs */
    LS_LOCK_LEFT,      /* by a process of this host that has ended without a word */
    LS_LOCK_ELSEWHERE, /* by a process of another host, of which nothing more is known */
};
/* For readers: what the file of a directory's lock says, and *who as ls_lock_former has it. Neither
 * takes the lock nor stands in the way of who does. */
enum ls_lock_state ls_lock_look(const char *directory, char *who, size_t bytes);
/* Who held the lock before and did not release it ("process 4711 on node7, since ..."); "" if it
 * was released in good order. Borrowed. */
const char *ls_lock_former(const struct ls_lock *lock);
/* Whether the directory that is locked still has the name under which it was locked. now[PATH_MAX]
 * is its name as it is: another one where it was moved or renamed, "" if it was removed or moved
 * to where this process cannot see it. For who writes into it by its name: what is made under the
 * old one has no lock. */
bool ls_lock_in_place(const struct ls_lock *lock, char *now);
/* Removes the file, and the directories that ls_lock_take made if nothing was put there. Does
 * nothing if the lock is not held. */
void ls_lock_release(struct ls_lock *lock);

/* What proc(5) says of a process of this machine; zeros if there is none. */
struct ls_process {
    char state; /* Z or X: it has ended */
    long parent;
    unsigned long long
        started; /* clock ticks since boot: tells it from a later one of its number */
};
struct ls_process ls_process_look(long pid);

LS_C_END
#endif
