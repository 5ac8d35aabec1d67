/* Private to zero*.c: how units and regions are cut over the shard group (d ranks), and what is in
 * transit. "whole" offsets count elements of a unit's matrices, a unit's vectors or a region;
 * "shard" offsets those of one rank's part. */
#ifndef PARALLEL_ZERO_PRIVATE_H
#define PARALLEL_ZERO_PRIVATE_H

#include <lockstep/parallel.h>
#include <lockstep/parallel/zero.h>

enum {
    ZERO_DIRECT_MAX = 20,        /* tensors of a unit or region with a collective of their own */
    ZERO_DIRECT_ELEMENTS = 4096, /* smaller ones travel packed, one collective for all */
    ZERO_GATHER_OPS = ZERO_DIRECT_MAX + 2,
    ZERO_SCATTER_OPS = ZERO_DIRECT_MAX + 1,
    ZERO_BUCKETS = 8,
    ZERO_JOBS = 64,
    /* Jobs over `shard` at most. Fewer than the jobs whose sums over `replicate` may be pending (64
     * operations, ZERO_BUCKETS each): so who waits for such a sum, because there are too many,
     * waits for one that every other rank has started or starts before it waits itself. */
    ZERO_WINDOW = 5,
    ZERO_PLACES = 4,
    ZERO_ALIGN = 16, /* elements */
};
enum zero_kind { ZERO_MATRIX, ZERO_VECTOR };

/* One tensor on its way. Rank j's part is whole [j chunk, (j + 1) chunk) of it, the last ones short
 * of their chunk where rows do not divide. */
struct zero_piece {
    int64_t whole, shard; /* of its first element */
    int64_t chunk, elements;
    const char *name;
};
/* What one gather or scatter moves: pieces that go straight between whole and shard, and pieces
 * that go through a staging buffer [d, packed], because their parts are of unequal length or too
 * small for an operation each. Packed shards lie side by side. */
struct zero_parcel {
    struct zero_piece *pieces; /* [count], the direct ones first */
    int direct, count;
    int64_t packed_shard, packed; /* first element, elements of one rank */
};

enum zero_state { ZERO_ABSENT, ZERO_COMING, ZERO_HERE };

struct zero_unit {
    int64_t elements[2]; /* by kind */
    int64_t base[2];     /* in the whole layout of all units, by kind */
    struct zero_parcel moved[2];
    struct zero_parcel kept[2]; /* stage 3: the persistent tensors, within the store of all units */
    int64_t send_base;          /* stages 1, 2 in a half type: of its packed matrices in `send` */
    size_t staging_bytes[2];
    int operations; /* of one gather */
    int size_class, slot;
    enum zero_state state;
    bool pinned;
    bool used; /* since ls_zero_publish */
};

/* A gather's buffers. Where working copies have a fixed place, only staging. */
struct zero_slot {
    unsigned char *whole[2];
    unsigned char *staging[2];
    int size_class, unit; /* unit: -1 where it is free */
    int64_t stamp;        /* order of gathers */
    int pending;
    struct ls_request request[ZERO_GATHER_OPS];
};

struct zero_region {
    int64_t elements, base;        /* of the whole; in a buffer of all regions */
    int64_t shard, shard_elements; /* in a buffer of all regions' shards */
    struct zero_parcel scattered;
    const char *name; /* of its first tensor */
    int operations;   /* of its reduction over `shard` at most */
    bool small;       /* fits the small places */
    bool reported;    /* its last micro-batch was, in this step */
    int64_t next;     /* micro-batch */
};

/* Buffers of a reduction over `shard`: the region as one micro-batch wrote it, its reduced part
 * before that is added, and staging. Which of them there are depends on stage. */
struct zero_place {
    float *whole, *shard, *staging;
    bool small, busy;
};

/* One region's micro-batch between ls_zero_gradient_done and the end of its reductions. */
struct zero_job {
    int region, place; /* place: -1 where it has none */
    struct ls_accumulation accumulation;
    bool last;
    float *result; /* of the reduction over `shard` */
    int scatters, reduces;
    struct ls_request scatter[ZERO_SCATTER_OPS], reduce[ZERO_BUCKETS];
};

struct ls_zero {
    struct ls_zero_options options; /* with arrays of its own */
    bool cut;                       /* over `shard`: stages 1 to 3 */
    bool each;                      /* micro-batches are reduced one by one over `shard` */
    bool keeps_whole;               /* working copies of all units have a place of their own */
    bool ahead;                     /* stages 1, 2: ls_zero_publish starts to gather units again */
    int ranks, rank;                /* d and this rank in it */
    struct zero_unit *units;
    struct zero_region *regions;
    struct ls_zero_slice *slices;
    struct zero_piece *pieces; /* of all parcels */

    int64_t kind_elements[2];                       /* whole, all units, by kind */
    int64_t shard_begin[2], shard_end;              /* the master: matrices, then vectors */
    struct zero_parcel kept[2];                     /* of all units */
    int64_t region_elements, region_shard_elements; /* of all regions */
    int64_t gradient_elements, send_elements;

    float *master;                /* [shard_end] */
    ls_half *compute;             /* stage 0: all matrices; stage 3: this rank's shard */
    ls_half *send;                /* packed matrices in a half type, stages 1 and 2 */
    unsigned char *working[2];    /* whole copies by kind; NULL where there are none */
    unsigned char *kept_store[2]; /* [d, kept.packed] */
    struct ls_request kept_request[2];
    int buffers;       /* of the binary counter */
    float *buffer[64]; /* whole regions or shards */
    float *final;
    struct ls_zero_sizes sizes;

    struct zero_slot *slots;
    int slot_count, gathers_pending; /* operations */
    int gather_limit;                /* of gathers_pending: leaves room for a scatter */
    /* ahead: units in the order in which the last step first used them; this step's so far. */
    int *order, *used;
    int next, used_count; /* of order: the next to be gathered; of used */
    int64_t stamp;

    struct zero_place places[ZERO_PLACES];
    int place_count;
    int open_place;             /* between ls_zero_gradient and _done, -1: none */
    struct zero_job *jobs;      /* a ring of ZERO_JOBS */
    int64_t head, joined, tail; /* [head, joined) reduce over `replicate`, [joined, tail) over
                                 * `shard` */
    int scatters_pending, reduces_pending;
    double wait_s;
};

/* zero_layout.c */
int zero_check(const struct ls_zero_options *options, struct ls_error *error);
void zero_layout(struct ls_zero *zero);
bool zero_is_matrix(const struct ls_zero_options *options, const struct ls_zero_tensor *tensor);

/* What the operations that follow on `shard` move. */
void zero_label(struct ls_zero *zero, const struct zero_parcel *parcel, int piece);

/* zero_gather.c */
/* Nothing is gathered from masters any more: they may be written. */
int zero_gathers_end(struct ls_zero *zero, struct ls_ops *ops, struct ls_error *error);

/* zero_reduce.c */
struct ls_accumulation zero_accumulation(const struct ls_zero *zero, int64_t m, int64_t M);
/* Waits for scatters until n more operations may be started on `shard`. */
int zero_scatters_make_room(struct ls_zero *zero, int n, struct ls_error *error);

/* ls_wait with the time in zero->wait_s. */
int zero_wait(struct ls_zero *zero, struct ls_request *request, struct ls_error *error);

#endif
