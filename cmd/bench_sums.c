/* lockstep bench sums: ways to add the gradients of a batch's leaves on one rank so that no layout
 * changes a bit, with what each keeps, moves and takes (doc/adr/0023-leaves-in-turn.md). */
#include "bench.h"

#include <lockstep/device/swap.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 5, LEVELS_MAX = 16 };

struct bench {
    int64_t elements, leaves, threads;
    struct ls_ops ops;
    struct ls_arena arena;
    float *leaf;              /* [elements] */
    float *level[LEVELS_MAX]; /* [elements] of the tree; level[0] is the chain's sum too */
    double *exact;            /* [elements] */
    float grid;               /* a power of two */
    struct ls_tier *tier;     /* of levels above the first */
    struct ls_swap swap;
    const struct way *ways;
    bool upper_in_tier;
    double disagree; /* elements of the exact sums that two orders give differently */
};

/* A leaf's gradient: of another size each, as gradients are. */
static void leaf_make(struct bench *b, int64_t leaf)
{
    ls_normal_fill(ls_philox_key_of((uint64_t)leaf, "leaf"), 0, b->elements, 0, 1e-3, b->leaf);
}

/* ---- the chain ------------------------------------------------------------------------------- */

static int chain_add(struct bench *b, int64_t leaf, struct ls_error *error)
{
    (void)error;
    if (leaf == 0)
        ls_copy(&b->ops, (size_t)b->elements * sizeof(float), b->leaf, b->level[0]);
    else
        ls_tree_add(&b->ops, b->elements, b->level[0], b->leaf);
    return LS_OK;
}

/* ---- the tree, by a binary counter ----------------------------------------------------------- */

static struct ls_swap_block block_of(const struct bench *b, int level)
{
    size_t bytes = (size_t)b->elements * sizeof(float);
    size_t room = (size_t)ls_round_up((int64_t)bytes, LS_TIER_ALIGN);
    return (struct ls_swap_block){level, (size_t)level * room, bytes};
}

/* Where a level is on the device. */
static int level_get(struct bench *b, int level, bool reads, float **values, struct ls_error *error)
{
    struct ls_swap_buffer *buffer;
    *values = b->level[level];
    if (!b->upper_in_tier || level == 0)
        return LS_OK;
    const struct ls_swap_block block = block_of(b, level);
    int status = ls_swap_get(&b->swap, &block, reads, &buffer, error);
    *values = (float *)(void *)buffer->data;
    return status ? status : ls_swap_wait(buffer, error);
}

static int level_put(struct bench *b, int level, struct ls_error *error)
{
    if (!b->upper_in_tier || level == 0)
        return LS_OK;
    const struct ls_swap_block block = block_of(b, level);
    return ls_swap_put(&b->swap, ls_swap_find(&b->swap, level), &block, error);
}

/* Full levels below join the leaf, which then fills the next one. */
static int tree_add(struct bench *b, int64_t leaf, struct ls_error *error)
{
    int level = 0, status = LS_OK;
    float *values;
    for (; leaf >> level & 1 && !status; level++) {
        status = level_get(b, level, true, &values, error);
        if (!status)
            ls_tree_add(&b->ops, b->elements, b->leaf, values);
    }
    if (!status && (level == 0 || !b->upper_in_tier)) { /* the leaf's memory becomes the level's */
        values = b->level[level];
        b->level[level] = b->leaf;
        b->leaf = values;
        return LS_OK;
    }
    if (!status)
        status = level_get(b, level, false, &values, error);
    if (!status)
        ls_copy(&b->ops, (size_t)b->elements * sizeof(float), b->leaf, values);
    return status ? status : level_put(b, level, error);
}

/* ---- exact sums on a grid -------------------------------------------------------------------- */

/* Rounded to a multiple of the grid a leaf adds exactly in a double, in any order, while sums stay
 * below 2^53 grids. */
static void exact_leaf(struct bench *b, bool first)
{
    const double grid = (double)b->grid, inverse = 1 / grid;
    const float *leaf = b->leaf;
    double *sum = b->exact;
#pragma omp parallel for simd num_threads((int)b->threads) schedule(static)
    for (int64_t i = 0; i < b->elements; i++) {
        double on_grid = rint((double)leaf[i] * inverse) * grid;
        sum[i] = first ? on_grid : sum[i] + on_grid;
    }
}

static int exact_add(struct bench *b, int64_t leaf, struct ls_error *error)
{
    (void)error;
    exact_leaf(b, leaf == 0);
    return LS_OK;
}

/* The same leaves from the last to the first. */
static int exact_check(struct bench *b, struct ls_error *error)
{
    size_t bytes = (size_t)b->elements * sizeof *b->exact;
    double *forwards = malloc(bytes);
    if (!forwards)
        return ls_error_set(error, LS_ENOMEM, "no memory for a second sum");
    memcpy(forwards, b->exact, bytes);
    for (int64_t leaf = b->leaves - 1; leaf >= 0; leaf--) {
        leaf_make(b, leaf);
        exact_leaf(b, leaf == b->leaves - 1);
    }
    b->disagree = 0;
    for (int64_t i = 0; i < b->elements; i++)
        b->disagree += memcmp(&forwards[i], &b->exact[i], sizeof *forwards) != 0;
    free(forwards);
    return LS_OK;
}

/* ---- measuring ------------------------------------------------------------------------------- */

struct way {
    const char *name;
    int (*add)(struct bench *, int64_t leaf, struct ls_error *);
    bool upper_in_tier;
    double device, tier, moved; /* bytes an element: kept on the device, in the host tier; sent by a
                                 * rank for each leaf when ranks meet */
};

/* *seconds of a leaf. */
static int way_run(void *user, int w, double *seconds, struct ls_error *error)
{
    struct bench *b = user;
    const struct way *way = &b->ways[w];
    int status = LS_OK;
    b->upper_in_tier = way->upper_in_tier;
    *seconds = 0;
    for (int64_t leaf = 0; leaf < b->leaves && !status; leaf++) {
        leaf_make(b, leaf);
        double begin = ls_now_s();
        status = way->add(b, leaf, error);
        *seconds += (ls_now_s() - begin) / (double)b->leaves;
    }
    return status;
}

static void print(const struct bench *b, const struct bench_turns *turns)
{
    double chain = bench_seconds(turns, 0);
    printf("%lld leaves of %.1fM parameters, %lld threads, median of %d\n%-28s %8s %8s %10s %9s\n",
           (long long)b->leaves, (double)b->elements / 1e6, (long long)b->threads, ROUNDS,
           "bytes a parameter", "device", "host", "moved", "time");
    for (int w = 0; w < turns->ways; w++) {
        const struct way *way = &b->ways[w];
        printf("%-28s %8.0f %8.0f %10.0f %9.2f\n", way->name, way->device, way->tier, way->moved,
               bench_seconds(turns, w) / chain);
    }
    printf("moved: by a rank for each leaf, when several meet; time: of adding a leaf, to the "
           "chain's %.2f ns a parameter\nexact sums in the other order: %.0f elements differ\n",
           1e9 * chain / (double)b->elements, b->disagree);
}

/* Of the tree: a level for each bit of the number of leaves. */
static int levels_of(int64_t leaves)
{
    int levels = 0;
    while (leaves >> levels)
        levels++;
    return levels;
}

static int buffers_open(struct bench *b, int levels, struct ls_error *error)
{
    size_t floats = (size_t)b->elements * sizeof(float);
    size_t room = (size_t)ls_round_up((int64_t)floats, LS_TIER_ALIGN);
    const struct ls_tier_options options = {.kind = LS_TIER_HOST, .bytes = (size_t)levels * room};
    int status = ls_arena_init(&b->arena, (size_t)(levels + 6) * room + 16 * LS_TIER_ALIGN, error);
    if (!status)
        status = ls_tier_new(&options, &b->tier, error);
    if (status)
        return status;
    b->leaf = ls_arena_take(&b->arena, floats);
    b->exact = ls_arena_take(&b->arena, (size_t)b->elements * sizeof *b->exact);
    for (int level = 0; level < levels; level++)
        b->level[level] = ls_arena_take(&b->arena, floats);
    ls_swap_init(&b->swap, b->tier, 2, floats, &b->arena);
    /* 2^-40 of the largest value of any leaf: 2^13 such leaves still add exactly. */
    b->grid = ldexpf(1, ilogbf(8e-3f) - 40);
    return LS_OK;
}

int cmd_bench_sums(const struct cmd_args *args, struct ls_error *error)
{
    struct bench b = {.elements = 16 << 20, .leaves = 32, .threads = ls_device_cores()};
    const struct bench_key keys[] = {
        {.name = "parameters", .number = &b.elements, .min = 1, .max = INT64_C(1) << 32},
        {.name = "leaves", .number = &b.leaves, .min = 1, .max = 1 << (LEVELS_MAX - 1)},
        BENCH_THREADS(&b.threads),
        {0}};
    int status = bench_args(args, keys, error);
    cmd_progress_begin();
    int levels = levels_of(b.leaves);
    const struct way ways[] = {
        {.name = "chain of leaves", .add = chain_add, .device = 4, .moved = 4},
        {.name = "tree", .add = tree_add, .device = 4.0 * levels, .moved = 4},
        {.name = "tree, upper levels in host",
         .add = tree_add,
         .upper_in_tier = true,
         .device = 12,
         .tier = 4.0 * (levels - 1),
         .moved = 4},
        {.name = "exact, on a grid", .add = exact_add, .device = 8, .moved = 8}};
    struct bench_turns turns = {.ways = sizeof ways / sizeof *ways,
                                .rounds = ROUNDS,
                                .meter = "sums",
                                .run = way_run,
                                .user = &b};
    b.ways = ways;
    if (!status)
        status = ls_ops_init(&b.ops, (int)b.threads, ls_isa_best(), error);
    if (!status)
        status = buffers_open(&b, levels, error);
    if (!status)
        status = bench_turns(&turns, error);
    if (!status)
        status = exact_check(&b, error);
    if (!status)
        print(&b, &turns);
    if (b.swap.count)
        ls_swap_settle(&b.swap, NULL);
    ls_tier_free(b.tier);
    ls_arena_release(&b.arena);
    ls_ops_release(&b.ops);
    return status;
}
