/* Private to zero*.c: how units and regions are cut over the shard group (d ranks), and what is in
 * transit. "whole" offsets count elements of a unit's matrices, a unit's vectors or a region;
 * "shard" offsets those of one rank's part. */
#ifndef PARALLEL_ZERO_PRIVATE_H
#define PARALLEL_ZERO_PRIVATE_H

#include <lockstep/device/swap.h>
#include <lockstep/parallel.h>
#include <lockstep/parallel/zero.h>

enum {
    ZERO_DIRECT_MAX = 20,        /* tensors of a unit or region with a collective of their own */
    ZERO_DIRECT_ELEMENTS = 4096, /* smaller ones travel packed, one collective for all */
    ZERO_GATHER_OPS = ZERO_DIRECT_MAX + 2,
    ZERO_SCATTER_OPS = ZERO_DIRECT_MAX + 1,
    ZERO_BUCKETS = 8,
    ZERO_JOBS = 64,
    /* Jobs over `shard` at most, if there are replicas. Fewer than the jobs whose sums over
     * `replicate` may be pending (64 operations, ZERO_BUCKETS each): so who waits for such a sum,
     * because there are too many, waits for one that every other rank has started or starts before
     * it waits itself. */
    ZERO_WINDOW = 5,
    ZERO_PLACES = 4,        /* at least, where only staging lies there */
    ZERO_PLACES_SHARE = 64, /* of gradients: more places take at most this part of them */
    /* Regions whose sum the last replica sends at once, for the first one's next leaf: fewer than
     * operations may be pending. That of others is sent when it gets that leaf itself. */
    ZERO_AROUND = 32,
    ZERO_ALIGN = 16, /* elements */
};
enum zero_kind { ZERO_MATRIX, ZERO_VECTOR };
/* A region's sum over leaves, and its leaf that lasts several micro-batches and grows beside it. */
enum zero_part { ZERO_SUM, ZERO_LEAF };

/* One tensor on its way. Rank j's part is whole [j chunk, (j + 1) chunk) of it, the last ones short
 * of their chunk where rows do not divide. */
struct zero_piece {
    int64_t whole, shard; /* of its first element */
    int64_t chunk;
    const struct ls_param *param;
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
    int64_t send_base;          /* of its packed matrices in `send` */
    /* Of what this rank keeps of its matrices as they are computed with: the range in all units'
     * (stage 3: of shards), and where it lies, on the device or in a tier. */
    int64_t copy_begin, copy_elements, copy_near;
    bool away;
    size_t place;
    bool written;  /* since ls_zero_publish */
    bool expected; /* was asked for ahead, and not used yet */
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
    int size_class, unit; /* unit: -1 if it is free */
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
    bool due;         /* its sum is not yet sent around */
    struct ls_request around;
    bool reported; /* its last micro-batch was, in this step */
    bool away;     /* its gradients lie in the tier */
    /* By enum zero_part: where among those on the device, in elements, and where in the tier. */
    int64_t near[2];
    size_t place[2];
    int64_t next; /* micro-batch */
};

/* Buffers of a reduction over `shard`: the region's leaf as one micro-batch wrote it, its reduced
 * part where that is added afterwards, and staging. Which of them there are depends on stage. */
struct zero_place {
    float *whole, *shard, *staging;
    bool small, busy;
};

/* What a micro-batch is to the sum. In fast mode all of a rank's, or each alone, pass for
 * a leaf. */
struct zero_turn {
    bool begins, ends; /* of its leaf */
    bool first, last;  /* no leaf comes before; none after */
};

/* One region's leaf between ls_zero_gradient_done and the end of its reductions. */
struct zero_job {
    int region, place; /* place: -1 if it has none */
    struct zero_turn turn;
    const float *leaf;
    float *result; /* of the reduction over `shard` */
    float *sum;    /* the region's */
    bool onto;     /* the sum so far */
    int scatters, reduces;
    struct ls_request scatter[ZERO_SCATTER_OPS], reduce[ZERO_BUCKETS];
};

struct ls_zero {
    struct ls_zero_options options; /* with arrays of its own */
    bool cut;                       /* over `shard`: stages 1 to 3 */
    bool alone;                     /* nobody to reduce with */
    bool parts;                     /* a leaf may last several micro-batches */
    bool in_place;                  /* one leaf, which is reduced where it is */
    bool ring;                      /* the sum goes from replica to replica */
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

    float *master;                /* elements [master_begin, shard_end) of the shard */
    int64_t master_begin;         /* 0, or where vectors begin */
    bool copies;                  /* matrices are computed with as copies of their masters */
    unsigned char *compute;       /* of all matrices (stage 0), of this rank's shard (stage 3), of
                                   * units that are not away */
    int64_t kept_near;            /* in it, of the persistent tensors' */
    struct ls_swap *copies_swap;  /* of units that are; its blocks are units. NULL: none are */
    int open_unit;                /* whose copies are being written; -1: none */
    unsigned char *send;          /* copies of packed matrices, stages 1 and 2 */
    unsigned char *working[2];    /* whole copies by kind; NULL if there are none */
    unsigned char *kept_store[2]; /* [d, kept.packed] */
    struct ls_request kept_request[2];
    bool grows; /* a leaf that lasts several micro-batches has a place beside the sum */
    /* By enum zero_part, of regions on the device: sums, of shards or of whole regions; leaves, of
     * whole regions. */
    float *part[2];
    float *gradient_base; /* what slices' places of gradients are counted from */
    struct ls_swap *swap; /* of those that are; its blocks are regions. NULL: none are */
    size_t swap_bytes;
    struct ls_zero_sizes sizes;

    struct zero_slot *slots;
    int slot_count, gathers_pending; /* operations */
    int gather_limit;                /* of gathers_pending: leaves room for a scatter */
    /* ahead: units in the order in which the last step first used them; this step's so far. */
    int *order, *used;
    int order_count;      /* units of the set */
    int next, used_count; /* of order: the next to be gathered; of used */
    int64_t stamp;

    struct zero_place places[ZERO_JOBS];
    int place_count;
    int open_place;             /* between ls_zero_gradient and _done, -1: none */
    struct zero_job *jobs;      /* a ring of ZERO_JOBS */
    int64_t head, joined, tail; /* [head, joined) go on to replicas, [joined, tail) reduce over
                                 * `shard` */
    int scatters_pending, reduces_pending;
};

static inline float *zero_master(const struct ls_zero *zero, int64_t element)
{
    LS_ASSERT(element >= zero->master_begin);
    return zero->master ? zero->master + (element - zero->master_begin) : NULL;
}

/* zero_layout.c */
int zero_check(const struct ls_zero_options *options, struct ls_error *error);
void zero_layout(struct ls_zero *zero);
/* Which units, regions and parameters are of the set. */
static inline bool zero_has_unit(const struct ls_zero_options *options, int u)
{
    return options->params->units[u].set == options->set;
}
static inline bool zero_has_region(const struct ls_zero_options *options, int r)
{
    return options->params->regions[r].set == options->set;
}
static inline bool zero_has(const struct ls_zero_options *options, int i)
{
    return zero_has_unit(options, options->params->list[i].unit);
}

/* Where the parameter's gradient goes; one that is frozen has none, also where it has room. */
static inline struct ls_gradient_place zero_gradient_of(const struct ls_param *param)
{
    struct ls_gradient_place none = {.region = LS_REGION_NONE};
    return param->frozen ? none : param->gradient;
}

static inline enum ls_dtype zero_kind_dtype(const struct ls_zero *zero, int kind)
{
    return kind == ZERO_MATRIX ? zero->options.act : LS_F32;
}
static inline size_t zero_kind_bytes(const struct ls_zero *zero, int kind)
{
    return ls_dtype_bytes(zero_kind_dtype(zero, kind));
}

/* What the operations that follow on `shard` move. */
void zero_label(struct ls_zero *zero, const struct zero_parcel *parcel, int piece);

/* zero_gather.c */
/* The unit's gather, if one is under way, has ended. */
int zero_gather_end(struct ls_zero *zero, struct ls_ops *ops, int u, struct ls_error *error);

/* zero_copies.c */
/* Takes room for the copies of `compute`. */
int zero_copies_take(struct ls_zero *zero, struct ls_arena *arena, struct ls_error *error);
/* Or has that of one of the same options. */
void zero_copies_borrow(struct ls_zero *zero, const struct ls_zero *lender);
void zero_copies_release(struct ls_zero *zero);
/* Element `shard` of this rank's matrices, where it is on the device. */
unsigned char *zero_copy_at(const struct ls_zero *zero, const struct zero_unit *unit,
                            int64_t shard);
/* A unit that is away comes, and is waited for. Gathers from a buffer that it takes end first. */
int zero_copies_need(struct ls_zero *zero, struct ls_ops *ops, int u, struct ls_error *error);
/* It starts to come, unless somebody needs the buffer that it takes. *came false: it is there. */
int zero_copies_prefetch(struct ls_zero *zero, int u, bool *came, struct ls_error *error);
/* What was written goes to the tier. */
int zero_copies_close(struct ls_zero *zero, struct ls_error *error);

/* zero_sums.c */
/* Takes room for sums over leaves, and for leaves that grow beside them. */
int zero_sums_take(struct ls_zero *zero, struct ls_arena *arena, struct ls_error *error);
void zero_sums_release(struct ls_zero *zero);
/* The tier has all sums that were put: others may read them there. Errors of its disk. */
int zero_sums_settle(struct ls_zero *zero, struct ls_error *error);
int64_t zero_sum_elements(const struct ls_zero *zero, const struct zero_region *region);
/* The region's sum, or leaf, on the device; reads: with what is there so far. It stays there until
 * another one is asked for that takes its buffer: zero_victim says of which region, -1: of none. */
int zero_victim(const struct ls_zero *zero, int r, enum zero_part part);
int zero_part_get(struct ls_zero *zero, int r, enum zero_part part, bool reads, float **values,
                  struct ls_error *error);
/* The sum starts to come, where it lies in the tier and there is such a region. */
int zero_sum_prefetch(struct ls_zero *zero, int r, struct ls_error *error);
/* The value is final until the next zero_part_get of it: it may go. */
int zero_part_put(struct ls_zero *zero, int r, enum zero_part part, struct ls_error *error);

/* zero_reduce.c */
struct zero_turn zero_turn(const struct ls_zero *zero, const struct ls_dp_micro *micro);
/* Waits for scatters until n more operations may be started on `shard`. */
int zero_scatters_make_room(struct ls_zero *zero, int n, struct ls_error *error);

#endif
