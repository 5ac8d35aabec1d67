/* Checkpoints of values in memory, and what one holds. */
#ifndef TEST_SUPPORT_CHECKPOINTS_H
#define TEST_SUPPORT_CHECKPOINTS_H

#include <lockstep/ckpt.h>

#include <jansson.h>

/* What a rank writes of a part; boxes NULL: whole tensors. */
struct checkpoint_tensors {
    const struct ls_tensor_entry *entries;
    const struct ls_tensor_box *boxes;
    size_t count;
};
/* Collective over comm; NULL: one rank. parts by enum ls_checkpoint_part. */
int checkpoint_write(const char *run, const struct ls_checkpoint_state *about, struct ls_comm *comm,
                     const struct checkpoint_tensors *parts, const struct ls_fault *fault,
                     struct ls_error *error);
/* As version 1 had it: two files of whole tensors and state.json. */
void old_checkpoint_write(const char *run, const struct ls_checkpoint_state *about,
                          const struct checkpoint_tensors *parts);
/* A checkpoint that is there as one of version 1, in another run. */
void old_checkpoint_copy(const char *directory, const char *run);

/* Opens it, or fails the test. */
struct ls_checkpoint *checkpoint_open(const char *directory);
/* The whole tensor, to be freed, or fails the test. tensor may be NULL. */
void *checkpoint_tensor(struct ls_checkpoint *checkpoint, enum ls_checkpoint_part part,
                        const char *name, const struct ls_stored_tensor **tensor);
size_t stored_tensor_bytes(const struct ls_stored_tensor *tensor);
/* Both have the same tensors, to the bit; what begins the text of a failure. */
void expect_same_checkpoints(const char *a, const char *b, const char *what);

/* Edits DIRECTORY/manifest.json and gives it its digest again. */
void manifest_edit(const char *directory, void (*edit)(json_t *manifest, void *user), void *user);

#endif
