/* lockstep/base/file.h - files: written complete or not at all, read within bounds.
 *
 *   struct ls_atomic_file file;
 *   ls_atomic_file_open(&file, path, NULL, error)    writes to "<path>.tmp-<pid>"
 *   ls_atomic_file_write(&file, data, bytes)         as often as needed
 *   ls_atomic_file_commit(&file, error)              flush, fsync, rename, fsync of the directory
 *   or ls_atomic_file_abort(&file)                   removes the temporary file
 *
 * A regular file at path is replaced. A symbolic link stays, and its target is written. A pipe or a
 * device is written to; a pipe waits LS_FILE_WAIT_S for a reader. "-" is standard output; where its
 * reader had enough, and SIGPIPE is ignored, what nobody reads is dropped. A folder is LS_EIO.
 *
 * The first failure is kept in the file: later writes do nothing and commit reports it, after
 * removing the temporary, so a caller may check only the commit. Everything here is Local. */
#ifndef LOCKSTEP_BASE_FILE_H
#define LOCKSTEP_BASE_FILE_H

#include <lockstep/base.h>

#include <limits.h>
#include <stdio.h>

LS_C_BEGIN

/* Makes system calls fail on demand, so that tests can fail the n-th of them for every n. before()
 * runs ahead of each call that changes the disk (open, write, fsync, rename, mkdir); a result other
 * than 0 is the errno that the call is to fail with, without being made. */
struct ls_fault {
    int (*before)(void *user, const char *call);
    void *user;
};

/* The errno to fail with, 0 to go on. fault may be NULL. */
static inline int ls_fault_check(const struct ls_fault *fault, const char *call)
{
    return fault ? fault->before(fault->user, call) : 0;
}

/* Fields are private. */
struct ls_atomic_file {
    int fd; /* -1 once closed */
    const struct ls_fault *fault;
    struct ls_error error; /* the first failure; code LS_OK while there is none */
    unsigned char *buffer; /* gathers small writes */
    size_t buffered, room;
    bool direct;        /* past the page cache */
    uint64_t size;      /* bytes accepted so far */
    uint64_t on_disk;   /* of these, handed to the system */
    uint64_t started;   /* of these, asked to be written back */
    unsigned char *map; /* in memory, of ls_file_maps: where its first map_bytes are */
    uint64_t map_bytes;
    char path[PATH_MAX], temporary[PATH_MAX];
};

/* Creates "<path>.tmp-<pid>" beside path (an older one is written over). fault may be NULL and is
 * borrowed. On failure the file needs no abort. Errors: LS_EIO, LS_ENOSPC, LS_ENOMEM, and LS_EINVAL
 * for a path that is too long. */
int ls_atomic_file_open(struct ls_atomic_file *file, const char *path, const struct ls_fault *fault,
                        struct ls_error *error);
/* The file at path, which nobody reads any more, loses its name: this process's next
 * ls_atomic_file_open of path writes over its bytes. A file system in memory then takes no new
 * pages. A file that is not there, or has another name too, stays as it is. */
void ls_atomic_file_reuse(const char *path);
/* Maps of the files in memory that one writer writes over in turn: the last ones that
 * ls_atomic_file_map was given. They hold the files' memory, also of those that have lost their
 * names, until a file is not written over but new, or _free. */
struct ls_file_maps;
void ls_file_maps_free(struct ls_file_maps *maps);
/* A file of ls_memory_file_take, which is theirs from here on: the next _open writes over it. Of
 * several the first one comes first. */
void ls_file_maps_keep(struct ls_file_maps **maps, int fd);
/* Its *bytes, as they are in memory until it is written over; NULL: it cannot be mapped. */
const unsigned char *ls_file_maps_memory(struct ls_file_maps **maps, int fd, int64_t *bytes);
/* A hint, after ls_atomic_file_reuse and open: bytes go straight to the memory of the file, past
 * this core's caches and without the system, which takes a fifth of the CPU time. *maps (NULL at
 * first) keeps the map for the next time. Nothing happens to a file on a disk, or to one that has
 * not all of its memory yet. */
void ls_atomic_file_map(struct ls_atomic_file *file, struct ls_file_maps **maps);
/* Appends. Pieces of LS_FILE_STRAIGHT_BYTES or more go to the system straight from data, others by
 * a buffer; O(1) memory. Returns the code of the first failure so far. */
enum { LS_FILE_STRAIGHT_BYTES = 256 << 10 };
int ls_atomic_file_write(struct ls_atomic_file *file, const void *data, size_t bytes);
/* A large file that is written beside other work: its bytes go from a buffer to the disk, past the
 * page cache, which takes less CPU time (compare dd with and without oflag=direct) and no memory;
 * who reads it soon reads the disk. Data at a multiple of LS_FILE_BLOCK_BYTES needs no copy on the
 * way. A hint, after open: file systems that cannot do it write as ever. */
enum { LS_FILE_BLOCK_BYTES = 4096 };
void ls_atomic_file_direct(struct ls_atomic_file *file);
/* Appends formatted text of less than 4096 bytes. */
int ls_atomic_file_printf(struct ls_atomic_file *file, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* All of it is there: the system begins to put it on the disk, and commit has less to wait for. A
 * failure is kept. */
void ls_atomic_file_start(struct ls_atomic_file *file);
/* Makes the file durable and gives it its name, in place of an older one. After a failure, of this
 * call or an earlier write, whose code and text are returned, the temporary is gone and the older
 * file stays, unless only the directory could not be synced. The file is closed either way. */
int ls_atomic_file_commit(struct ls_atomic_file *file, struct ls_error *error);
/* Closes and removes the temporary. Does nothing after a commit or abort. */
void ls_atomic_file_abort(struct ls_atomic_file *file);
/* A file in memory that no folder has and no limit of a file system bounds: write, then _take in
 * the place of commit, or abort. Its bytes go with *fd, the caller's to close, and with the
 * process. It is one that *maps keeps, if there is one. path is what errors name. */
int ls_memory_file_open(struct ls_atomic_file *file, const char *path, struct ls_file_maps **maps,
                        const struct ls_fault *fault, struct ls_error *error);
int ls_memory_file_take(struct ls_atomic_file *file, int *fd, struct ls_error *error);

/* Puts a text into file, which takes it all: a lack of memory shows when it is closed. */
typedef int ls_writer(const void *context, FILE *file, struct ls_error *error);
/* *text[*bytes] = what write writes, terminated, to be freed; NULL on failure. LS_ENOMEM. */
int ls_text_write(ls_writer *write, const void *context, char **text, size_t *bytes,
                  struct ls_error *error);
/* The same as a file: open, write, commit. */
int ls_file_write(const char *path, ls_writer *write, const void *context, struct ls_error *error);
/* The same with data[bytes]. fault may be NULL. */
int ls_file_put(const char *path, const void *data, size_t bytes, const struct ls_fault *fault,
                struct ls_error *error);

/* ---- paths ---------------------------------------------------------------------------------- */

/* The directory that holds path: "." for a bare name. Slashes at its end do not count. */
void ls_path_parent(const char *path, char parent[PATH_MAX]);
/* Replaces path by what is written through it: the end of its links, which need not be there.
 * *special: a pipe or a device stands there, and path stays. LS_EIO for a folder, LS_EINVAL for
 * links without an end. */
int ls_path_follow(char path[PATH_MAX], bool *special, struct ls_error *error);
/* out = the absolute path, the links of its folders followed, its own not. False: the folder is not
 * there. */
bool ls_path_absolute(const char *path, char out[PATH_MAX]);
/* Whether both paths lead to one file or folder that is there, whatever links they take. */
bool ls_path_same(const char *a, const char *b);

/* out = folder/name. LS_EINVAL if that is too long. */
int ls_path_join(char out[PATH_MAX], const char *folder, const char *name, struct ls_error *error);
/* Whether the path ends in it: ".json". */
bool ls_path_ends(const char *path, const char *ending);
/* out = folder/name, a file that is read because it lies in a folder. LS_EIO if links lead out of
 * the folder: what a stranger's folder points to is not its own. Into the files of a cache they
 * may: of MODEL/snapshots/REVISION, MODEL is the tree. LS_EIO for a link to nothing; a file that is
 * not there is LS_OK. */
int ls_path_inside(char out[PATH_MAX], const char *folder, const char *name,
                   struct ls_error *error);

/* ---- reading -------------------------------------------------------------------------------- */

enum {
    LS_FILE_PIPE = 1,   /* a pipe is taken too: /dev/stdin, <(command), mkfifo */
    LS_FILE_DEVICE = 2, /* and /dev/null and its like, of which a reader must bound what it takes */
    LS_FILE_WAIT_S = 5, /* how long a pipe is waited for, if it is silent or nobody reads it */
};

/* Opens for reading. *size = bytes of a regular file, 0 of others. Never waits for ever: a pipe is
 * waited for LS_FILE_WAIT_S seconds, and ends at once if nobody writes into it by then. A file of
 * another kind than kinds allow (a folder, always) is `code`, the caller's for a file that is not
 * what was expected. LS_EIO has the system's reason, and of a name that is not there the nearest
 * that is. */
int ls_file_open(const char *path, unsigned kinds, int code, int *fd, int64_t *size,
                 struct ls_error *error);
/* *text[*bytes] = the whole file, terminated, to be freed. A file of more than limit bytes is
 * `code`, with its size and the limit: no file is read without a bound, so that /dev/zero, or a
 * wrong name, costs no more memory than the limit. */
int ls_file_read(const char *path, size_t limit, int code, char **text, size_t *bytes,
                 struct ls_error *error);
/* text = what a small file of the system begins with, at most bytes - 1 of it, terminated. False:
 * it cannot be opened. */
bool ls_file_head(const char *path, char *text, size_t bytes);
/* "; did you mean runs/code_train?", "; there is no folder run; did you mean runs/code_train?",
 * "; runs/code is a link to nothing" or "": what a path that is not there may have meant. endings
 * (NULL, or ended by NULL) are cut off the names that are there, such as ".bin". */
void ls_path_hint(const char *path, const char *const *endings, char *text, size_t bytes);

/* ---- descriptors ---------------------------------------------------------------------------- */

/* fd was opened and stays open for long. If it is near the process's limit of open files, the limit
 * doubles, up to the hard one: the usual 1,024 are fewer than a checkpoint of many ranks has.
 * ls_atomic_file_open, ls_memory_file_open and ls_file_open do this. */
void ls_fd_opened(int fd);

/* Reads bytes of a file from offset at on, whatever its own place is, and goes on after a signal.
 * *done = how many are there: fewer only if the file ends before. 0 or errno, with what came before
 * it in *done. */
int ls_fd_read(int fd, int64_t at, void *buffer, size_t bytes, size_t *done);
/* Writes all of data[bytes] at the descriptor's place, and goes on after a signal. *done (may be
 * NULL) = how many were written. fault may be NULL. 0 or errno. */
int ls_fd_write(int fd, const void *data, size_t bytes, const struct ls_fault *fault, size_t *done);

/* ---- directories ---------------------------------------------------------------------------- */

/* Removes what processes that were killed left in a directory: files "<name>.tmp-<pid>" whose name
 * begins with prefix. The caller knows that nobody writes those names now. Returns how many went;
 * what cannot be removed stays. */
int ls_atomic_file_sweep(const char *directory, const char *prefix);

/* fsync of a directory, so that names created or renamed in it survive a power cut. */
int ls_directory_sync(const char *path, const struct ls_fault *fault, struct ls_error *error);
/* mkdir -p: creates path and its missing parents; an existing directory is success. */
int ls_directory_make(const char *path, const struct ls_fault *fault, struct ls_error *error);
/* mkdir: creates path in a directory that exists; an existing path is success. For folders of a
 * run: if the run was moved, its old name is not made again (lock.h). */
int ls_directory_add(const char *path, const struct ls_fault *fault, struct ls_error *error);
/* rm -rf --one-file-system: removes path with all that is in it. Links are removed, and not
 * followed. What cannot be removed stays, and the rest goes. Whether path is gone. */
bool ls_directory_remove(const char *path);
/* Local. False: the file system of that directory has no room, or no inode, for a file of so many
 * bytes. True if there is, or if that cannot be tried. */
bool ls_directory_has_room(const char *path, int64_t bytes);

LS_C_END
#endif
