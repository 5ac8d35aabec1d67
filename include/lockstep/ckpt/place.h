/* lockstep/ckpt/place.h - a place for copies of checkpoints: a directory, or a bucket of S3.
 *
 *   struct ls_place *place;
 *   struct ls_held *held;
 *   ls_place_open(&place, "s3://bucket/runs/demo", NULL, error)
 *   ls_held_open(&held, "runs/demo/checkpoints/step-00000300", error)
 *   ls_place_put(place, held, &bytes, error)          the copy, whole or absent
 *   ls_place_get(place, 300, "runs/other", error)     back, into runs/other/checkpoints
 *   ls_held_close(held), ls_place_close(place)
 *
 * A place holds step-%08d/ with the files of a checkpoint. In a directory the copy is written as
 * step-%08d.tmp and renamed, as a run does. A bucket has no rename: the files of tensors are put
 * first and manifest.json last, so a copy without a manifest is no copy.
 *
 * S3, or whatever speaks it, by the requests of lockstep/net.h, which says where credentials come
 * from. Files above part_bytes are uploaded in parts.
 *
 * Everything here is Local. One thread at a time uses a place. Errors: LS_EIO, LS_ENOSPC and
 * LS_ENOMEM if the place or the network refuses; LS_ECKPT for a copy that is damaged.
 */
#ifndef LOCKSTEP_CKPT_PLACE_H
#define LOCKSTEP_CKPT_PLACE_H

#include <lockstep/base.h>
#include <lockstep/base/file.h>
#include <lockstep/net.h>

LS_C_BEGIN

struct ls_place;
enum { LS_PLACE_OWNER_BYTES = 65 };
/* 0 stands for the default. */
struct ls_place_options {
    const struct ls_fault *fault; /* of the calls that write files; borrowed, may be NULL */
    struct ls_net_options net;    /* of requests; its end ends copies to directories too */
    size_t part_bytes; /* of a file, in one request: 16 MiB, more for files of over 10,000 parts */
};

/* Opens the place that where names: s3://bucket/prefix, or a directory, which is made if it is
 * absent; its parent must be there. A small file is written and removed, so that a place that
 * cannot be written is found here. LS_ECONFIG: the name is malformed, or credentials are missing.
 * options may be NULL. */
int ls_place_open(struct ls_place **out, const char *where, const struct ls_place_options *options,
                  struct ls_error *error);
/* place may be NULL. */
void ls_place_close(struct ls_place *place);
/* Whose copies these are: a word of at most 64 bytes, and the folder where that run was. Each is ""
 * if nobody has said so. */
int ls_place_owner(struct ls_place *place, char owner[LS_PLACE_OWNER_BYTES], char folder[PATH_MAX],
                   struct ls_error *error);
int ls_place_own(struct ls_place *place, const char *owner, const char *folder,
                 struct ls_error *error);
/* (*steps)[*count] = the steps of whole copies, newest first; to be freed. */
int ls_place_list(struct ls_place *place, int64_t **steps, size_t *count, struct ls_error *error);

/* A checkpoint's files, open: they can be read until ls_held_close, whoever removes them. */
struct ls_held;
/* Opens all files of a checkpoint that is complete: one descriptor for each. */
int ls_held_open(struct ls_held **out, const char *directory, struct ls_error *error);
/* held may be NULL. */
void ls_held_close(struct ls_held *held);

/* Copies a checkpoint; one of the same step is replaced, unless its manifest is the same. *bytes:
 * what was copied, 0 if the same was there. After a failure nothing is there that looks whole, and
 * other copies are as they were; in a bucket an older copy of the same step may be gone. */
int ls_place_put(struct ls_place *place, const struct ls_held *held, uint64_t *bytes,
                 struct ls_error *error);
/* Copies it back to RUN/checkpoints, as temporary directory, which gets its name once every byte
 * agrees with its digest. LS_ECKPT if one does not, or where it has files that no checkpoint
 * has; then nothing is left. */
int ls_place_get(struct ls_place *place, int64_t step, const char *run_directory,
                 struct ls_error *error);
/* Removes what copies left that were interrupted. Nobody else writes to the place meanwhile. */
int ls_place_sweep(struct ls_place *place, struct ls_error *error);
/* Removes a copy, manifest first; one that is not there is success. */
int ls_place_remove(struct ls_place *place, int64_t step, struct ls_error *error);

LS_C_END
#endif
