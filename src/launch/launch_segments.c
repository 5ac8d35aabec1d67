/* The memory that ranks of Open MPI on one machine share: files named vader_segment.*, which ranks
 * that are killed leave behind. The job gets folders for them, whose file .run names the run. */
#include "launch/launch_private.h"

#include <lockstep/base/file.h>

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static bool is_held(const char *directory)
{
    char who[256];
    enum ls_lock_state state = ls_lock_look(directory, who, sizeof who);
    return state == LS_LOCK_HELD || state == LS_LOCK_ELSEWHERE;
}

/* Of an earlier start of this run, or of a run that neither a launcher nor ranks hold. One that
 * names no run may be about to. */
static bool is_left(const char *folder, const char *run)
{
    enum { DAY_S = 24 * 3600 };
    char path[PATH_MAX], launcher[PATH_MAX], *of = NULL;
    struct stat about;
    size_t bytes;
    bool left;
    if (ls_path_join(path, folder, owner, NULL) ||
        ls_file_read(path, PATH_MAX, LS_EIO, &of, &bytes, NULL)) {
        left = !stat(folder, &about) && time(NULL) - about.st_mtime > DAY_S;
    } else {
        left = !strcmp(of, run) ||
               (!ls_path_join(launcher, of, "launch", NULL) && !is_held(launcher) && !is_held(of));
    }
    free(of);
    return left;
}

static void sweep(const char *folder, const char *run)
{
    char mine[64], path[PATH_MAX];
    DIR *stream = opendir(MEMORY);
    prefix(mine);
    for (struct dirent *entry; stream && (entry = readdir(stream));)
        if (!strncmp(entry->d_name, mine, strlen(mine)) &&
            !ls_path_join(path, MEMORY, entry->d_name, NULL) && strcmp(path, folder) != 0 &&
            is_own(path) && is_left(path, run))
            launch_segments_remove(path);
    if (stream)
        closedir(stream);
}

/* ---- those of this start --------------------------------------------------------------------- */

/* False: there is no such folder of this user. */
static bool enter(const char *folder, const char *run)
{
    char path[PATH_MAX], absolute[PATH_MAX];
    if (mkdir(folder, S_IRWXU))
        return errno == EEXIST && is_own(folder);
    if (!ls_path_absolute(run, absolute))
        snprintf(absolute, sizeof absolute, "%s", run);
    if (!ls_path_join(path, folder, owner, NULL))
        ls_file_put(path, absolute, strlen(absolute), NULL, NULL);
    sweep(folder, absolute);
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
