/* A folder that appears complete or not at all: made under another name beside its own, renamed. */
#ifndef INTEROP_STAGING_H
#define INTEROP_STAGING_H

#include <lockstep/base.h>
#include <lockstep/base/file.h>

struct staging {
    const struct ls_fault *fault;
    char path[PATH_MAX];
    char temporary[PATH_MAX]; /* where it is made; "": it is not */
    int fd;                   /* of it, if it is made; -1: it cannot be opened */
};
/* path must not exist, or be an empty folder that a rename replaces (no link, no mount point, not
 * "."): LS_ECONFIG. fault may be NULL. */
int staging_open(struct staging *staging, const char *path, const struct ls_fault *fault,
                 struct ls_error *error);
int staging_commit(struct staging *staging, struct ls_error *error);
/* In each case; removes what was not committed. */
void staging_close(struct staging *staging);
/* A whole file; `to` appears complete or not at all. */
int file_copy(const char *from, const char *to, const struct ls_fault *fault,
              struct ls_error *error);

#endif
