/* ZeRO 0 to 3 among thread ranks, on a model of awkward shapes whose gradients are numbers: in
 * every layout each rank reads, in each micro-batch of each step, the bits that one rank would
 * read, and moves the bytes that the formulas say. */
#include "../support/suite.h"

#include <lockstep/parallel.h>
#include <lockstep/parallel/zero.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNITS = 5, TENSORS = 12, REGIONS = 6, STEPS = 2, TIED = 9 };
enum { SEQUENCES_MAX = 64, INNER_MAX = 4 };

/* Direct and packed, rows that 2, 3, 4 or 5 ranks divide and rows that they do not, fewer rows than
 * ranks, one element, padding between tensors, a tied table, a unit without matrices, one without
 * vectors. */
static struct ls_unit units[UNITS] = {
    {.elements = 8240, .matrix_elements = 8235},
    {.elements = 4660, .matrix_elements = 4640},
    {.elements = 4384, .matrix_elements = 4320},
    {.elements = 4810, .matrix_elements = 4800},
    {.elements = 33},
};
#define TENSOR(unit, offset, rows, cols, region, place, second, at)                                \
    {                                                                                              \
        unit, offset, rows, cols, {region, place}, {second, at}, #unit "." #offset                 \
    }
static const struct {
    int unit;
    int64_t offset, rows, cols;
    struct ls_gradient_place gradient, second;
    const char *name;
} tensors[TENSORS] = {
    TENSOR(0, 0, 7, 5, 3, 0, LS_REGION_NONE, 0),
    TENSOR(0, 43, 128, 64, 3, 48, LS_REGION_NONE, 0),
    TENSOR(0, 8235, 5, 1, 3, 40, LS_REGION_NONE, 0),
    TENSOR(1, 0, 96, 48, 2, 0, LS_REGION_NONE, 0),
    TENSOR(1, 4612, 2, 9, 2, 4612, LS_REGION_NONE, 0),
    TENSOR(1, 4640, 1, 1, 2, 4640, LS_REGION_NONE, 0),
    TENSOR(1, 4647, 13, 1, 2, 4645, LS_REGION_NONE, 0),
    TENSOR(2, 0, 120, 36, 1, 64, LS_REGION_NONE, 0),
    TENSOR(2, 4320, 64, 1, 1, 0, LS_REGION_NONE, 0),
    TENSOR(3, 0, 60, 80, 0, 10, 4, 0),
    TENSOR(3, 4800, 10, 1, 0, 0, LS_REGION_NONE, 0),
    TENSOR(4, 0, 33, 1, 5, 0, LS_REGION_NONE, 0),
};
static struct ls_region regions[REGIONS] = {{.elements = 4810}, {.elements = 4384},
                                            {.elements = 4660}, {.elements = 8240},
                                            {.elements = 4800}, {.elements = 33}};
/* In the backward: the head, the blocks, the table. */
static const int region_order[REGIONS] = {5, 0, 1, 2, 3, 4};

enum twin { HONEST, BUCKET_DROPPED, COUNTED_TWICE, OFF_BY_ONE_ROW, TIED_ONCE };

/* The batch: leaves of `leaf` sequences, each of which `inner` ranks hold parts of. */
struct batch {
    int64_t leaves, leaf;
    int inner;
};

struct layout {
    int stage, replicas, shards; /* shards: with inner ranks a leaf */
    struct batch batch;
    int64_t micro; /* sequences */
    enum ls_dtype act;
    int ahead; /* forwards that run before a backward does, as in a pipeline */
    int prefetch;
    int64_t persistence, bucket_bytes;
    bool keep; /* not reshard_after_forward */
    bool fast;
    enum ls_dtype reduce; /* LS_BF16 with fast */
    bool one_region;      /* all regions in one, one after the other */
    enum twin twin;
};

/* ---- what one rank would compute ------------------------------------------------------------ */

struct reference {
    struct batch batch;
    float *gradient[STEPS][REGIONS];      /* the chain over leaves */
    float *parameter[STEPS + 1][TENSORS]; /* before each step and after the last */
};

static int64_t elements_of(int t)
{
    return tensors[t].rows * tensors[t].cols;
}

/* Elements of the largest part where d ranks share it by rows. */
static int64_t slice_of(int t, int d)
{
    return ls_ceil_div(tensors[t].rows, d) * tensors[t].cols;
}

static bool is_matrix(int t)
{
    return tensors[t].offset < units[tensors[t].unit].matrix_elements;
}

/* A number whose sums depend on their order. */
static float value_of(uint64_t key)
{
    key = (key + 1) * 0x9e3779b97f4a7c15u;
    key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9u;
    key ^= key >> 27;
    return (ls_uniform_of((uint32_t)key) - 0.5f) * (float)(1 << (key >> 56 & 7));
}

/* The optimizer of this test. */
static float updated(float parameter, float gradient, float second)
{
    return parameter - 0.015625f * (gradient + second);
}

static float *floats(int64_t count)
{
    float *values = calloc((size_t)count, sizeof *values);
    assert_non_null(values);
    return values;
}

/* What a rank adds of one of its sequences. */
static float part_of(int step, int64_t sequence, int inner, int r, int64_t i)
{
    uint64_t key = (uint64_t)(step * SEQUENCES_MAX + sequence);
    return value_of(((key * INNER_MAX + (uint64_t)inner) * REGIONS + (uint64_t)r) << 20 |
                    (uint64_t)i);
}

/* Sequences of a leaf by the chain, on each rank that holds a part; parts by the tree; leaves by
 * the chain. */
static float element_reference(const struct batch *batch, int step, int r, int64_t i)
{
    float sum = 0;
    for (int64_t l = 0; l < batch->leaves; l++) {
        float parts[INNER_MAX];
        for (int c = 0; c < batch->inner; c++)
            for (int64_t s = 0; s < batch->leaf; s++) {
                float part = part_of(step, l * batch->leaf + s, c, r, i);
                parts[c] = s ? parts[c] + part : part;
            }
        float leaf = ls_tree_sum(parts, batch->inner);
        sum = l ? sum + leaf : leaf;
    }
    return sum;
}

static void reference_step(struct reference *ref, int step)
{
    for (int r = 0; r < REGIONS; r++) {
        ref->gradient[step][r] = floats(regions[r].elements);
        for (int64_t i = 0; i < regions[r].elements; i++)
            ref->gradient[step][r][i] = element_reference(&ref->batch, step, r, i);
    }
    for (int t = 0; t < TENSORS; t++) {
        const struct ls_gradient_place *first = &tensors[t].gradient, *second = &tensors[t].second;
        ref->parameter[step + 1][t] = floats(elements_of(t));
        for (int64_t i = 0; i < elements_of(t); i++) {
            float g = ref->gradient[step][first->region][first->offset + i];
            float s = t == TIED ? ref->gradient[step][second->region][second->offset + i] : 0;
            ref->parameter[step + 1][t][i] = updated(ref->parameter[step][t][i], g, s);
        }
    }
}

static struct reference *reference_new(int64_t leaves, int64_t leaf, int inner)
{
    struct reference *ref = calloc(1, sizeof *ref);
    assert_non_null(ref);
    ref->batch = (struct batch){leaves, leaf, inner};
    for (int t = 0; t < TENSORS; t++) {
        ref->parameter[0][t] = floats(elements_of(t));
        for (int64_t i = 0; i < elements_of(t); i++)
            ref->parameter[0][t][i] = value_of((uint64_t)(7777 + t) << 20 | (uint64_t)i);
    }
    for (int step = 0; step < STEPS; step++)
        reference_step(ref, step);
    return ref;
}

static void reference_free(struct reference *ref)
{
    for (int step = 0; step <= STEPS; step++)
        for (int t = 0; t < TENSORS; t++)
            free(ref->parameter[step][t]);
    for (int step = 0; step < STEPS; step++)
        for (int r = 0; r < REGIONS; r++)
            free(ref->gradient[step][r]);
    free(ref);
}

/* ---- a rank --------------------------------------------------------------------------------- */

struct job {
    const struct layout *layout;
    const struct reference *ref;
    /* Of rank 0. */
    int64_t shard_bytes, replicate_bytes;
    struct ls_dp_share share;
    struct ls_zero_sizes sizes;
};

struct rank {
    const struct job *job;
    const struct layout *layout;
    struct ls_comm *shard, *replicate;
    struct ls_zero *zero;
    struct ls_ops ops;
    struct ls_dp_share share;
    int index;
};

/* Bits; in fast mode sums of up to 24 values below 64, added in another order or rounded to bf16 on
 * the way. */
static bool same(const struct layout *layout, float got, float expected)
{
    float rounding = layout->reduce == LS_BF16 ? 0x1p-8f : 0x1p-20f;
    if (layout->fast)
        return fabsf(got - expected) <= 24 * 64 * rounding;
    return memcmp(&got, &expected, sizeof got) == 0;
}

static int differs(const char *what, int step, int t, int64_t i, float got, float expected,
                   struct ls_error *error)
{
    return ls_error_set(error, LS_EINVAL, "step %d, %s, tensor %d, element %ld: %a differs from %a",
                        step, what, t, (long)i, (double)got, (double)expected);
}

static int unit_compare(struct rank *rank, int step, int u, struct ls_error *error)
{
    struct ls_zero_weights weights;
    int status = ls_zero_weights(rank->zero, &rank->ops, u, &weights, error);
    for (int t = 0; t < TENSORS && !status; t++) {
        if (tensors[t].unit != u)
            continue;
        const float *expected = rank->job->ref->parameter[step][t];
        for (int64_t i = 0; i < elements_of(t); i++) {
            int64_t at = tensors[t].offset + i;
            float got, want = expected[i];
            if (!is_matrix(t)) {
                got = weights.vectors[at - units[u].matrix_elements];
            } else if (rank->layout->act == LS_F32) {
                got = ((const float *)weights.matrices)[at];
            } else {
                got = ls_bf16_to_f32(((const ls_bf16 *)weights.matrices)[at]);
                want = ls_bf16_to_f32(ls_f32_to_bf16(want));
            }
            if (!same(rank->layout, got, want))
                return differs("weights", step, t, i, got, want, error);
        }
    }
    return status;
}

static int pass(struct rank *rank, int step, bool forward, struct ls_error *error)
{
    int status = LS_OK;
    for (int i = 0; i < UNITS && !status; i++) {
        int u = forward ? i : UNITS - 1 - i;
        status = unit_compare(rank, step, u, error);
        for (int k = 1; k <= rank->layout->prefetch && !status; k++) {
            int next = forward ? u + k : u - k;
            if (next >= 0 && next < UNITS)
                status = ls_zero_prefetch(rank->zero, next, error);
        }
        ls_zero_release(rank->zero, u);
    }
    return status;
}

/* Writes what a backward would: leaf after leaf, or on with the leaf that is there. */
static void region_write(const struct rank *rank, int step, int r, const struct ls_dp_micro *micro,
                         struct ls_zero_gradient gradient)
{
    int inner = rank->index % rank->layout->batch.inner;
    int64_t leaf_sequences = rank->share.leaf;
    enum twin twin = rank->layout->twin;
    for (int64_t i = 0; i < regions[r].elements; i++) {
        float sum = gradient.onto == LS_ONTO_NOTHING ? 0 : gradient.flat[i], leaf = 0;
        bool empty = gradient.onto == LS_ONTO_NOTHING;
        for (int64_t s = 0; s < micro->count; s++) {
            float part = part_of(step, micro->first + s, inner, r, i);
            if (twin == BUCKET_DROPPED && rank->index == 1 && r == 1 && i >= 64 && i < 128)
                part = 0;
            if (gradient.onto == LS_ONTO_CHAIN) {
                sum += part;
                continue;
            }
            leaf = s % leaf_sequences ? leaf + part : part;
            if ((s + 1) % leaf_sequences && s + 1 < micro->count)
                continue;
            sum = empty ? leaf : sum + leaf;
            empty = false;
        }
        if (twin == COUNTED_TWICE && r == 2 && micro->last)
            sum += sum;
        gradient.flat[i] = sum;
    }
}

static int64_t region_begin(int r)
{
    int64_t begin = 0;
    for (int i = 0; i < r; i++)
        begin += regions[i].elements;
    return begin;
}

static int region_backward(struct rank *rank, int step, int r, int64_t m, struct ls_error *error)
{
    struct ls_dp_micro micro = ls_dp_micro_batch(&rank->share, m);
    struct ls_zero_gradient gradient;
    int status = ls_zero_gradient(rank->zero, &rank->ops, r, &micro, &gradient, error);
    if (status)
        return status;
    if (!rank->layout->one_region)
        region_write(rank, step, r, &micro, gradient);
    for (int i = 0; i < REGIONS && rank->layout->one_region; i++) {
        struct ls_zero_gradient part = {gradient.flat + region_begin(i), gradient.onto};
        region_write(rank, step, i, &micro, part);
    }
    return ls_zero_gradient_done(rank->zero, &rank->ops, r, &micro, error);
}

static int backward(struct rank *rank, int step, int64_t m, struct ls_error *error)
{
    int status = pass(rank, step, false, error);
    if (!status && rank->layout->one_region)
        return region_backward(rank, step, 0, m, error);
    for (int i = 0; i < REGIONS && !status; i++)
        status = region_backward(rank, step, region_order[i], m, error);
    return status;
}

/* Compares the gradient with the reference's and updates the masters with it. */
static int update(struct rank *rank, int step, const float *gradient, struct ls_error *error)
{
    const struct ls_zero_slice *slices = ls_zero_slices(rank->zero);
    for (int t = 0; t < TENSORS; t++) {
        const struct ls_zero_slice *s = &slices[t];
        const struct ls_gradient_place *place = &tensors[t].gradient, *second = &tensors[t].second;
        float *const *whole = rank->job->ref->gradient[step];
        float *master = ls_zero_master(rank->zero, t);
        ls_bf16 *compute = ls_zero_compute(rank->zero, t);
        /* The twin takes its rows one too early. */
        int64_t shift = rank->layout->twin == OFF_BY_ONE_ROW && s->first > 0 ? tensors[t].cols : 0;
        for (int64_t i = 0; i < s->count; i++) {
            float got = gradient[s->gradient + i - shift];
            float want = whole[place->region][place->offset + s->first + i];
            if (!same(rank->layout, got, want))
                return differs("gradient", step, t, s->first + i, got, want, error);
            float other = 0;
            if (s->second >= 0 && rank->layout->twin != TIED_ONCE) {
                other = gradient[s->second + i];
                want = whole[second->region][second->offset + s->first + i];
                if (!same(rank->layout, other, want))
                    return differs("second gradient", step, t, s->first + i, other, want, error);
            }
            master[i] = updated(master[i], got, other);
            if (compute)
                compute[i] = ls_f32_to_bf16(master[i]);
        }
    }
    return LS_OK;
}

static int step_run(struct rank *rank, int step, struct ls_error *error)
{
    int status = LS_OK;
    int64_t M = rank->share.micro_batches, ahead = rank->layout->ahead;
    for (int64_t m = 0; m < M + ahead && !status; m++) {
        if (m < M)
            status = pass(rank, step, true, error);
        if (!status && m >= ahead)
            status = backward(rank, step, m - ahead, error);
    }
    float *gradient;
    if (!status)
        status = ls_zero_gradient_finish(rank->zero, &rank->ops, &gradient, error);
    if (!status)
        status = update(rank, step, gradient, error);
    return status ? status : ls_zero_publish(rank->zero, &rank->ops, error);
}

static void masters_fill(struct rank *rank)
{
    const struct ls_zero_slice *slices = ls_zero_slices(rank->zero);
    for (int t = 0; t < TENSORS; t++) {
        float *master = ls_zero_master(rank->zero, t);
        ls_bf16 *compute = ls_zero_compute(rank->zero, t);
        memcpy(master, rank->job->ref->parameter[0][t] + slices[t].first,
               (size_t)slices[t].count * sizeof(float));
        for (int64_t i = 0; compute && i < slices[t].count; i++)
            compute[i] = ls_f32_to_bf16(master[i]);
    }
}

static struct ls_zero_options options_of(const struct layout *layout, int index,
                                         const struct ls_dp_share *share,
                                         const struct ls_params *params)
{
    return (struct ls_zero_options){.stage = layout->stage,
                                    .params = params,
                                    .shard_ranks = layout->shards,
                                    .shard_rank = index % layout->shards,
                                    .replicate_ranks = layout->replicas,
                                    .replicate_rank = index / layout->shards,
                                    .inner = layout->batch.inner,
                                    .leaves_max = share->count,
                                    .micro_batches_max = share->micro_batches,
                                    .parts = share->micro < share->leaf,
                                    .fast = layout->fast,
                                    .act = layout->act,
                                    .reduce = layout->reduce,
                                    .bucket_bytes = layout->bucket_bytes,
                                    .prefetch = layout->prefetch,
                                    .persistence_elements = layout->persistence,
                                    .reshard_after_forward = !layout->keep};
}

static int steps_run(struct rank *rank, struct ls_error *error)
{
    masters_fill(rank);
    int status = ls_zero_publish(rank->zero, &rank->ops, error);
    for (int step = 0; step < STEPS && !status; step++)
        status = step_run(rank, step, error);
    return status ? status : pass(rank, STEPS, true, error);
}

static int share_of(struct rank *rank, struct ls_error *error)
{
    const struct layout *layout = rank->layout;
    int inner = layout->batch.inner, ranks = layout->replicas * layout->shards / inner;
    struct ls_dp_cut cut = {ranks, rank->index / inner, !layout->fast};
    return ls_dp_share_init(&rank->share, &cut, layout->batch.leaves, layout->batch.leaf,
                            layout->micro, error);
}

/* The model as one rank holds it. */
struct model {
    struct ls_param list[TENSORS];
    struct ls_region one_region;
    struct ls_params params;
};

static int spec_make(const struct layout *layout, struct ls_param *param, struct ls_error *error)
{
    struct ls_mesh mesh;
    const int64_t sizes[] = {layout->replicas, layout->shards};
    const char *const names[] = {"dp_replicate", "shard"};
    const struct ls_placement placements[] = {ls_replicate(),
                                              layout->stage ? ls_shard(0) : ls_replicate()};
    const int64_t shape[] = {param->rows, param->cols};
    int status = ls_mesh_init(&mesh, 2, names, sizes, error);
    return status ? status
                  : ls_dtensor_spec_init(&param->spec, LS_F32, 2, shape, &mesh, placements, error);
}

static int model_make(const struct layout *layout, struct model *model, struct ls_error *error)
{
    int status = LS_OK;
    *model = (struct model){.one_region = {.elements = region_begin(REGIONS)}};
    model->params = (struct ls_params){.list = model->list,
                                       .count = TENSORS,
                                       .units = units,
                                       .unit_count = UNITS,
                                       .regions = layout->one_region ? &model->one_region : regions,
                                       .region_count = layout->one_region ? 1 : REGIONS};
    for (int t = 0; t < TENSORS && !status; t++) {
        struct ls_param *param = &model->list[t];
        struct ls_gradient_place *places[2] = {&param->gradient, &param->second};
        *param = (struct ls_param){.unit = tensors[t].unit,
                                   .offset = tensors[t].offset,
                                   .rows = tensors[t].rows,
                                   .cols = tensors[t].cols,
                                   .matrix = is_matrix(t),
                                   .gradient = tensors[t].gradient,
                                   .second = tensors[t].second};
        snprintf(param->name, sizeof param->name, "%s", tensors[t].name);
        for (int p = 0; p < 2 && layout->one_region && places[p]->region >= 0; p++) {
            places[p]->offset += region_begin(places[p]->region);
            places[p]->region = 0;
        }
        status = spec_make(layout, param, error);
    }
    return status;
}

static int rank_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    const struct layout *layout = job->layout;
    struct rank rank = {.job = job, .layout = layout, .index = ls_comm_rank(world)};
    struct ls_arena arena = {0}, measure;
    ls_arena_measure(&measure);
    int status = ls_ops_init(&rank.ops, 1, ls_isa_best(), error);
    if (!status)
        status = share_of(&rank, error);
    if (!status)
        status = ls_comm_split(world, rank.index / layout->shards, rank.index, &rank.shard, error);
    if (!status)
        status =
            ls_comm_split(world, rank.index % layout->shards, rank.index, &rank.replicate, error);
    struct model model;
    if (!status)
        status = model_make(layout, &model, error);
    struct ls_zero_options options = options_of(layout, rank.index, &rank.share, &model.params);
    struct ls_zero *plan = NULL;
    if (!status)
        status = ls_zero_new(&options, &measure, &plan, error);
    ls_zero_free(plan);
    if (!status)
        status = ls_arena_init(&arena, measure.used, error);
    options.shard = layout->shards > 1 ? rank.shard : NULL;
    options.replicate = layout->replicas > 1 ? rank.replicate : NULL;
    if (!status)
        status = ls_zero_new(&options, &arena, &rank.zero, error);
    struct ls_comm_stats before[2] = {0}, after[2] = {0};
    if (!status) {
        ls_comm_get_stats(rank.shard, &before[0]);
        ls_comm_get_stats(rank.replicate, &before[1]);
        status = steps_run(&rank, error);
        ls_comm_get_stats(rank.shard, &after[0]);
        ls_comm_get_stats(rank.replicate, &after[1]);
    }
    if (rank.index == 0 && !status) {
        job->shard_bytes = after[0].sent_bytes - before[0].sent_bytes;
        job->replicate_bytes = after[1].sent_bytes - before[1].sent_bytes;
        job->share = rank.share;
        ls_zero_get_sizes(rank.zero, &job->sizes);
        if (arena.used != measure.used)
            status = ls_error_set(error, LS_EINVAL, "planned %zu bytes, took %zu", measure.used,
                                  arena.used);
    }
    /* The groups first: a failed rank's peers may be waiting for its buffers. */
    ls_comm_free(rank.shard);
    ls_comm_free(rank.replicate);
    ls_zero_free(rank.zero);
    ls_arena_release(&arena);
    ls_ops_release(&rank.ops);
    return status;
}

/* ---- formulas ------------------------------------------------------------------------------- */

/* Elements that one rank of d keeps of all tensors of a kind: ceil(rows/d) rows of each. */
static int64_t kept_by_one(int d, bool matrix, int64_t at_least)
{
    int64_t sum = 0;
    for (int t = 0; t < TENSORS; t++)
        if (is_matrix(t) == matrix && elements_of(t) > at_least)
            sum += slice_of(t, d);
    return sum;
}

/* What rank 0 of n sends in an all-reduce of count floats. */
static int64_t all_reduce_bytes(int64_t count, int n)
{
    int64_t own = ls_ceil_div(count, n);
    return 4 * (count - own + own * (n - 1));
}

/* The same of a region's count, in buckets. */
static int64_t region_bytes(const struct layout *l, int64_t count, int n)
{
    int64_t sum = 0, bucket = l->bucket_bytes ? l->bucket_bytes / 4 : count;
    bucket = ls_round_up(ls_max(bucket, ls_ceil_div(count, 8)), 16);
    for (int64_t at = 0; at < count; at += bucket)
        sum += all_reduce_bytes(ls_min(bucket, count - at), n);
    return sum;
}

/* Gradients of a region, or of this rank's shard of it, and the sum of all. */
static int64_t gradient_elements(const struct layout *l, int r)
{
    int64_t count = 0;
    for (int t = 0; t < TENSORS; t++)
        for (int p = 0; p < 2; p++)
            if ((p ? tensors[t].second.region : tensors[t].gradient.region) == r)
                count += slice_of(t, l->shards);
    return l->stage == 0 || l->shards == 1 ? regions[r].elements : count;
}

/* What each leaf's reduction is counted as: in fast mode, a micro-batch's or the step's. */
static int64_t reductions(const struct layout *l, const struct ls_dp_share *share)
{
    return !l->fast ? share->count : l->stage >= 2 ? share->micro_batches : 1;
}

/* Rank 0 sends the sum so far to the next replica, and gets it from the last in the end; in fast
 * mode one all-reduce of each region. */
static int64_t replicate_bytes(const struct layout *l, const struct ls_dp_share *share)
{
    int64_t sum = 0;
    for (int r = 0; r < REGIONS && l->replicas > 1; r++) {
        int64_t count = gradient_elements(l, r);
        sum += l->fast ? region_bytes(l, count, l->replicas) : 4 * count * share->count;
    }
    return STEPS * sum;
}

static int64_t shard_bytes(const struct layout *l, const struct ls_dp_share *share)
{
    int d = l->shards;
    if (d == 1)
        return 0;
    int64_t sum = 0, act = (int64_t)ls_dtype_bytes(l->act), times = reductions(l, share);
    if (l->stage == 0) {
        for (int r = 0; r < REGIONS && !l->one_region; r++)
            sum += region_bytes(l, regions[r].elements, d);
        if (l->one_region)
            sum = region_bytes(l, region_begin(REGIONS), d);
        return STEPS * times * sum;
    }
    /* Reduce-scatter; the tied table travels twice. */
    int64_t scatter = (int64_t)ls_dtype_bytes(l->reduce) *
                      (kept_by_one(d, true, 0) + kept_by_one(d, false, 0) + slice_of(TIED, d));
    int64_t all = act * kept_by_one(d, true, 0) + 4 * kept_by_one(d, false, 0);
    int64_t scatters = STEPS * times;
    if (l->stage < 3 || l->keep) /* gathered once a step, and for the last comparison */
        return (d - 1) * (scatters * scatter + (STEPS + 1) * all);
    int64_t sharded =
        act * kept_by_one(d, true, l->persistence) + 4 * kept_by_one(d, false, l->persistence);
    int64_t gathers = 2 * STEPS * share->micro_batches + 1;
    return (d - 1) * (scatters * scatter + gathers * sharded + (STEPS + 1) * (all - sharded));
}

static void check_near(const char *what, size_t bytes, int64_t formula)
{
    /* Each of the things that a buffer holds may be followed by 63 bytes of padding. */
    int64_t padding = 64 * 4 * (TENSORS + UNITS + REGIONS);
    if ((int64_t)bytes < formula || (int64_t)bytes > formula + padding)
        fail_msg("%s: %zu bytes, the formula says %ld", what, bytes, (long)formula);
}

static void check_sizes(const struct layout *l, const struct job *job)
{
    bool cut = l->stage > 0 && l->shards > 1, bf16 = l->act == LS_BF16;
    int64_t matrices = kept_by_one(1, true, 0), vectors = kept_by_one(1, false, 0);
    int64_t tied = elements_of(TIED), d = l->shards;
    int64_t own_matrices = cut ? kept_by_one(l->shards, true, 0) : matrices;
    int64_t own = own_matrices + (cut ? kept_by_one(l->shards, false, 0) : vectors);
    int64_t own_gradient = own + (cut ? slice_of(TIED, d) : tied);
    check_near("masters", job->sizes.master, 4 * own);
    int64_t whole = matrices + vectors + tied;
    bool once = l->fast ? l->stage < 2 : job->share.count == 1;
    bool parts =
        l->fast ? once && job->share.micro_batches > 1 : job->share.micro < job->share.leaf;
    bool in_place = !cut && once && (l->fast || l->replicas == 1);
    int64_t gradients = 4 * (cut ? own_gradient : whole) + (parts && !in_place ? 4 * whole : 0);
    check_near("gradients", job->sizes.gradients, gradients);
    if (!cut)
        check_near("parameters", job->sizes.parameters, bf16 ? 2 * matrices : 0);
    else if (l->stage == 3 && !l->keep && l->persistence == 0)
        check_near("parameters", job->sizes.parameters, bf16 ? 2 * own_matrices : 0);
    else if (l->stage < 3)
        /* In bf16 also what is packed, at most everything. */
        assert_in_range(job->sizes.parameters, (bf16 ? 2 : 4) * matrices + 4 * vectors,
                        (bf16 ? 2 : 4) * matrices + 4 * vectors + (bf16 ? 2 * own_matrices : 0) +
                            4096);
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void text_of(const struct layout *l, char text[200])
{
    snprintf(text, 200,
             "stage %d, %d x %d ranks, %ld leaves of %ld, of which %d ranks hold parts, micro %ld, "
             "%s, ahead %d, prefetch %d, persistence %ld, bucket %ld%s%s",
             l->stage, l->replicas, l->shards, (long)l->batch.leaves, (long)l->batch.leaf,
             l->batch.inner, (long)l->micro, ls_dtype_name(l->act), l->ahead, l->prefetch,
             (long)l->persistence, (long)l->bucket_bytes, l->keep ? ", keep" : "",
             l->fast ? ", fast" : "");
}

static void check(const struct layout *l, const struct reference *ref)
{
    struct job job = {.layout = l, .ref = ref};
    struct ls_error error = {0};
    char text[200];
    text_of(l, text);
    if (ls_world_run(l->replicas * l->shards, rank_body, &job, &error))
        fail_msg("%s: %s", text, error.text);
    int64_t expected = shard_bytes(l, &job.share);
    if (job.shard_bytes != expected)
        fail_msg("%s: %ld bytes over shard, the formula says %ld", text, (long)job.shard_bytes,
                 (long)expected);
    expected = replicate_bytes(l, &job.share);
    if (job.replicate_bytes != expected)
        fail_msg("%s: %ld bytes over replicate, the formula says %ld", text,
                 (long)job.replicate_bytes, (long)expected);
    check_sizes(l, &job);
}

/* Every stage, micro-batching and type on one shape of ranks. */
static void check_stages(int replicas, int shards, int inner, int64_t leaves, int64_t leaf)
{
    struct reference *ref = reference_new(leaves, leaf, inner);
    int64_t ranks = replicas * shards / inner, share = leaves / ranks * leaf;
    for (int stage = 0; stage <= 3; stage++)
        for (int64_t micro = 1; micro <= (ranks > 1 || inner > 1 ? leaf : share); micro++) {
            struct layout l = {.stage = stage,
                               .replicas = replicas,
                               .shards = shards,
                               .batch = ref->batch,
                               .micro = micro,
                               .act = (stage + micro) % 2 ? LS_BF16 : LS_F32,
                               .prefetch = (int)((stage + micro) % 3),
                               .persistence = stage == 3 && micro == 2 ? 64 : 0,
                               .bucket_bytes = micro % 2 ? 0 : 4096};
            if (micro > leaf && micro % leaf)
                continue;
            if (stage == 0) { /* all ranks are shards */
                l.shards = replicas * shards;
                l.replicas = 1;
            }
            check(&l, ref);
        }
    reference_free(ref);
}

CASE(test_one_rank)
{
    check_stages(1, 1, 1, 8, 1);
    check_stages(1, 1, 1, 5, 3);
}

CASE(test_shards)
{
    check_stages(1, 2, 1, 4, 3);
    check_stages(1, 3, 1, 6, 2);
    check_stages(1, 4, 1, 4, 4);
    check_stages(1, 5, 1, 15, 1);
}

CASE(test_replicas_of_shards)
{
    check_stages(2, 2, 1, 8, 2);
    check_stages(3, 2, 1, 6, 1);
    check_stages(4, 2, 1, 16, 1);
    check_stages(2, 1, 1, 6, 2);
}

CASE(test_parts_of_leaves)
{
    check_stages(1, 2, 2, 3, 1);
    check_stages(1, 4, 2, 6, 1);
    check_stages(2, 4, 4, 4, 1);
}

/* A last part that is smaller; forwards that run ahead; stage 3's ways to keep weights. */
CASE(test_ways_of_working)
{
    struct reference *ref = reference_new(4, 5, 1);
    for (int stage = 0; stage <= 3; stage++) {
        struct layout l = {.stage = stage, .replicas = 1, .shards = 2, .batch = ref->batch};
        l.micro = 2; /* 2, 2 and 1 sequences of each leaf */
        l.prefetch = 3;
        check(&l, ref);
        l.micro = 1;
        l.ahead = 3;
        l.act = LS_BF16;
        check(&l, ref);
        l.persistence = 100;
        l.prefetch = 1;
        check(&l, ref);
        l.persistence = 4700;
        check(&l, ref);
        l.keep = true;
        check(&l, ref);
        l.prefetch = 0;
        l.persistence = 0;
        check(&l, ref);
    }
    reference_free(ref);
}

/* A region's next leaf comes while its last one is still on its way. */
CASE(test_one_region)
{
    struct reference *ref = reference_new(16, 1, 1);
    for (int stage = 0; stage <= 3; stage++) {
        struct layout l = {
            .stage = stage, .replicas = 1, .shards = 2, .batch = ref->batch, .micro = 1};
        l.one_region = true;
        check(&l, ref);
    }
    reference_free(ref);
}

static void check_fast(int64_t leaves, int64_t leaf, int64_t micro)
{
    struct reference *ref = reference_new(leaves, leaf, 1);
    for (int stage = 0; stage <= 3; stage++)
        for (int replicas = 1; replicas <= (stage ? 2 : 1); replicas++) {
            struct layout l = {.stage = stage, .shards = 2, .batch = ref->batch, .fast = true};
            l.replicas = replicas;
            l.micro = micro;
            check(&l, ref);
            l.reduce = LS_BF16;
            check(&l, ref);
        }
    reference_free(ref);
}

CASE(test_fast_is_near)
{
    check_fast(16, 1, 2);
    check_fast(4, 4, 1); /* several micro-batches of one leaf */
}

static void check_caught(struct layout l, const char *where, const struct reference *ref)
{
    for (l.stage = 0; l.stage <= 3; l.stage++) {
        struct layout run = l;
        struct job job = {.layout = &run, .ref = ref};
        struct ls_error error = {0};
        if (run.twin == OFF_BY_ONE_ROW && l.stage == 0)
            continue; /* nothing is cut */
        int status = ls_world_run(2, rank_body, &job, &error);
        if (status != LS_EINVAL || !strstr(error.text, "differs from") ||
            !strstr(error.text, where))
            fail_msg("twin %d in stage %d: status %d, %s", l.twin, l.stage, status, error.text);
    }
}

/* The broken twins: what each compares finds it. */
CASE(test_broken_twins)
{
    struct reference *ref = reference_new(4, 2, 1);
    struct layout l = {.replicas = 1, .shards = 2, .batch = ref->batch, .micro = 2};
    l.twin = BUCKET_DROPPED;
    check_caught(l, "gradient, tensor 7, element 0", ref);
    l.twin = COUNTED_TWICE;
    check_caught(l, "gradient, tensor 3, element 0", ref);
    l.twin = OFF_BY_ONE_ROW;
    check_caught(l, "gradient, tensor", ref);
    l.twin = TIED_ONCE;
    check_caught(l, "weights, tensor 9", ref);
    reference_free(ref);
}

SUITE_MAIN(NULL, NULL)
