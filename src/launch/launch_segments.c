/* The memory that ranks of Open MPI on one machine share: files named vader_segment.*, which ranks
 * that are killed leave behind. The job gets a folder of the run's own for them. */
#include "launch/launch_private.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void launch_segments_remove(const char *folder)
{
    static const char name[] = "vader_segment.";
    DIR *stream = folder[0] ? opendir(folder) : NULL;
    if (!stream)
        return;
    for (struct dirent *entry; (entry = readdir(stream));)
        if (!strncmp(entry->d_name, name, sizeof name - 1))
            unlinkat(dirfd(stream), entry->d_name, 0);
    closedir(stream);
    rmdir(folder);
}

void launch_segments_open(const char *run, char folder[LAUNCH_SEGMENTS_BYTES])
{
    struct stat of;
    folder[0] = '\0';
    if (getenv("OMPI_MCA_btl_vader_backing_directory") || stat(run, &of))
        return;
    snprintf(folder, LAUNCH_SEGMENTS_BYTES, "/dev/shm/lockstep-launch-%ld-%llx-%llx",
             (long)geteuid(), (unsigned long long)of.st_dev, (unsigned long long)of.st_ino);
    launch_segments_remove(folder); /* of a launcher that was killed */
    if (mkdir(folder, S_IRWXU) &&
        (lstat(folder, &of) || !S_ISDIR(of.st_mode) || of.st_uid != geteuid()))
        folder[0] = '\0';
}
