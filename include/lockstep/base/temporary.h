/* lockstep/base/temporary.h - "<path>.tmp-<pid>": what is written beside path until it is whole.
 *
 * A process that is killed leaves it. The next one that writes the same path takes it away, if it
 * sees that nobody writes it any more. Everything here is Local. */
#ifndef LOCKSTEP_BASE_TEMPORARY_H
#define LOCKSTEP_BASE_TEMPORARY_H

#include <lockstep/base/file.h>

LS_C_BEGIN

#define LS_TEMPORARY_MARK ".tmp-"
/* The temporary of path in this process; false: that is too long, so path has more than
 * LS_TEMPORARY_PATH_MAX bytes. */
enum { LS_TEMPORARY_PATH_MAX = PATH_MAX - 32 };
bool ls_temporary_name(const char *path, char temporary[PATH_MAX]);

/* fd is this process's own temporary, a file or a folder, and stays open until that has its name:
 * it is locked (flock) meanwhile. Removes the temporaries of other processes of the same path if
 * they have no lock, and the process is none of this host. What cannot be locked, such as on a file
 * system without locks, stays. */
void ls_temporary_hold(const char *temporary, int fd);
/* The same of a file that is open; of a pipe or a device nothing. */
void ls_atomic_file_hold(const struct ls_atomic_file *file);

LS_C_END

#endif
