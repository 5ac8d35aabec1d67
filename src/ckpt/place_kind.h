/* What the two kinds of places share. */
#ifndef CKPT_PLACE_KIND_H
#define CKPT_PLACE_KIND_H

#include <lockstep/ckpt/place.h>

struct held_file {
    char name[NAME_MAX + 1];
    int fd;
    uint64_t size;
};
struct ls_held {
    char directory[PATH_MAX];
    int64_t step;
    int64_t count, room;
    struct held_file *files; /* what describes the checkpoint is the last */
};
/* buffer[bytes] = those of the file from offset on. LS_EIO. */
int held_read(const struct ls_held *held, const struct held_file *file, uint64_t offset,
              void *buffer, size_t bytes, struct ls_error *error);

/* Steps that are found one by one. */
struct steps_found {
    int64_t *steps;
    int64_t count, room;
};
int steps_add(struct steps_found *found, int64_t step, struct ls_error *error);

/* The file that says whose the copies are, by two lines: the run's name and its folder. */
#define PLACE_OWNER "owner"
enum { PLACE_OWNER_BYTES = LS_PLACE_OWNER_BYTES + PATH_MAX + 1 };

/* Functions as of lockstep/ckpt/place.h; get fills the directory `to`, and verifies nothing. found
 * in any order. */
struct place_kind {
    int (*list)(struct ls_place *place, struct steps_found *found, struct ls_error *error);
    int (*put)(struct ls_place *place, const struct ls_held *held, uint64_t *bytes,
               struct ls_error *error);
    int (*get)(struct ls_place *place, int64_t step, const char *to, struct ls_error *error);
    int (*remove)(struct ls_place *place, int64_t step, struct ls_error *error);
    int (*sweep)(struct ls_place *place, struct ls_error *error);
    int (*owner)(struct ls_place *place, char text[PLACE_OWNER_BYTES], struct ls_error *error);
    int (*own)(struct ls_place *place, const char *text, struct ls_error *error);
};
struct ls_place {
    const struct place_kind *kind;
    struct ls_place_options options;
    char where[PATH_MAX];
    struct s3 *s3; /* of a bucket */
};
int place_directory_open(struct ls_place *place, struct ls_error *error);
int place_s3_open(struct ls_place *place, struct ls_error *error);
void place_s3_close(struct s3 *s3);

/* A copied file, written complete or not at all. */
struct place_read {
    int (*read)(void *user, uint64_t offset, void *buffer, size_t bytes, struct ls_error *error);
    void *user;
    uint64_t size;
    bool beside_steps; /* and nobody reads it soon */
};
int place_file_write(const struct ls_place *place, const char *folder, const char *name,
                     const struct place_read *from, struct ls_error *error);

#endif
