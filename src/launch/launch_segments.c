/* The memory that ranks of Open MPI on one machine share: files named vader_segment.*, which ranks
 * that are killed leave behind. The job gets folders for them, whose file .run names the run. Who
 * uses a folder holds that file: what nobody holds is left. To look for the run would not do, since
 * it may lie where only its own processes see it (in a container, or another mount namespace). */
#include "launch/launch_private.h"

#include <lockstep/base/file.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MEMORY   "/dev/shm"
#define VARIABLE "OMPI_MCA_btl_vader_backing_directory"
static const char owner[] = ".run";

/* The beginning of this user's folders. */
static const char *prefix(char text[64])
{
    snprintf(text, 64, "lockstep-launch-%ld-", (long)geteuid());
    return text;
}

static bool is_own(const char *folder)
{
    struct stat of;
    return !lstat(folder, &of) && S_ISDIR(of.st_mode) && of.st_uid == geteuid();
}

/* Whether nothing but .run is in it. */
static bool is_empty(const char *folder)
{
    DIR *stream = opendir(folder);
    bool empty = stream != NULL;
    for (struct dirent *entry; stream && (entry = readdir(stream));)
        empty &= entry->d_name[0] == '.';
    if (stream)
        closedir(stream);
    return empty;
}

void launch_segments_remove(const char *folder)
{
    static const char name[] = "vader_segment.";
    DIR *stream = is_own(folder) ? opendir(folder) : NULL;
    if (!stream)
        return;
    for (struct dirent *entry; (entry = readdir(stream));)
        if (!strncmp(entry->d_name, name, sizeof name - 1))
            unlinkat(dirfd(stream), entry->d_name, 0);
    unlinkat(dirfd(stream), owner, 0);
    closedir(stream);
    rmdir(folder);
}

/* ---- those that were left -------------------------------------------------------------------- */

/* One that names no run may be about to. */
static bool is_left(const char *folder)
{
    enum { DAY_S = 24 * 3600 };
    char path[PATH_MAX];
    struct stat about;
    int file = ls_path_join(path, folder, owner, NULL)
                   ? -1
                   : open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    bool named = file >= 0 && !fstat(file, &about) && about.st_size > 0;
    bool left = named ? !flock(file, LOCK_EX | LOCK_NB)
                      : !stat(folder, &about) && time(NULL) - about.st_mtime > DAY_S;
    if (file >= 0)
        close(file);
    return left;
}

static void sweep(const char *folder)
{
    char mine[64], path[PATH_MAX];
    DIR *stream = opendir(MEMORY);
    prefix(mine);
    for (struct dirent *entry; stream && (entry = readdir(stream));)
        if (!strncmp(entry->d_name, mine, strlen(mine)) &&
            !ls_path_join(path, MEMORY, entry->d_name, NULL) && strcmp(path, folder) != 0 &&
            is_own(path) && is_left(path))
            launch_segments_remove(path);
    if (stream)
        closedir(stream);
}

/* ---- those of this start --------------------------------------------------------------------- */

static int held = -1; /* the folder's file, which processes that a launcher forks hold, too */

/* Until this process ends, or holds another. False: it is not there. */
static bool hold(const char *folder, int flags)
{
    char path[PATH_MAX];
    int file = ls_path_join(path, folder, owner, NULL)
                   ? -1
                   : open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | flags, S_IRUSR | S_IWUSR);
    if (file < 0)
        return false;
    flock(file, LOCK_SH);
    if (held >= 0)
        close(held);
    held = file;
    return true;
}

/* False: there is no such folder of this user. */
static bool enter(const char *folder, const char *run)
{
    char absolute[PATH_MAX];
    if (mkdir(folder, S_IRWXU)) {
        bool own = errno == EEXIST && is_own(folder);
        if (own)
            hold(folder, 0);
        return own;
    }
    if (!ls_path_absolute(run, absolute))
        snprintf(absolute, sizeof absolute, "%s", run);
    if (hold(folder, O_CREAT)) /* before it has a name, by which it may be left */
        (void)!write(held, absolute, strlen(absolute));
    sweep(folder);
    return true;
}

void launch_segments_open(const char *run, bool here, char folder[LAUNCH_SEGMENTS_BYTES])
{
    static int number;
    struct stat of;
    char mine[64], start[48] = "";
    folder[0] = '\0';
    if (getenv(VARIABLE) || stat(run, &of))
        return;
    if (!here)
        snprintf(start, sizeof start, "-%ld-%d", (long)getpid(), ++number);
    snprintf(folder, LAUNCH_SEGMENTS_BYTES, MEMORY "/%s%llx-%llx%s", prefix(mine),
             (unsigned long long)of.st_dev, (unsigned long long)of.st_ino, start);
    if (!here)
        return;
    launch_segments_remove(folder); /* of a launcher that was killed */
    if (!enter(folder, run))
        folder[0] = '\0';
}

/* The folder that the launcher names; NULL: there is none, or the user's. */
static const char *named(void)
{
    char mine[64], begin[96];
    const char *folder = getenv(VARIABLE);
    snprintf(begin, sizeof begin, MEMORY "/%s", prefix(mine));
    return folder && !strncmp(folder, begin, strlen(begin)) && !strchr(folder + strlen(begin), '/')
               ? folder
               : NULL;
}

void ls_launch_segments_enter(const char *run)
{
    if (named())
        enter(named(), run);
}

void ls_launch_segments_leave(void)
{
    if (named() && is_empty(named()))
        launch_segments_remove(named());
}
