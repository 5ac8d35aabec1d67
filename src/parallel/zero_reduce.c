/* Gradients on their way to who updates with them.
 *
 * A region's micro-batch becomes a job when its reductions start. Jobs are joined (waited for over
 * `shard`, added to the sum over micro-batches, and, when that is complete, sent on over
 * `replicate`) in the order in which they were made, which is the same on all ranks. When a job is
 * joined depends on what has arrived; in which order operations start on a group does not. */
#include "parallel/zero_private.h"

static struct zero_job *job_at(struct ls_zero *zero, int64_t i)
{
    return &zero->jobs[i % ZERO_JOBS];
}

struct ls_accumulation zero_accumulation(const struct ls_zero *zero, int64_t m, int64_t M)
{
    if (zero->options.fast)
        return (struct ls_accumulation){.accumulate = m > 0};
    return ls_accumulation_of(m, M);
}

/* The region's part of buffer b of the binary counter, and its length. */
static float *counter_of(const struct ls_zero *zero, const struct zero_region *region, int b,
                         int64_t *elements)
{
    bool shards = zero->cut && zero->each;
    *elements = shards ? region->shard_elements : region->elements;
    return zero->buffer[b] + (shards ? region->shard : region->base);
}

static float *final_of(const struct ls_zero *zero, const struct zero_region *region,
                       int64_t *elements)
{
    *elements = zero->cut ? region->shard_elements : region->elements;
    return zero->final + (zero->cut ? region->shard : region->base);
}

static void counter_merge(struct ls_zero *zero, struct ls_ops *ops,
                          const struct zero_region *region, struct ls_accumulation step)
{
    for (int b = step.target; b > step.target - step.merges; b--) {
        int64_t elements;
        float *into = counter_of(zero, region, b - 1, &elements);
        const float *from = counter_of(zero, region, b, &elements);
        ls_tree_add(ops, elements, into, from);
    }
}

/* ---- jobs ----------------------------------------------------------------------------------- */

static int requests_wait(struct ls_zero *zero, struct ls_request *requests, int *count,
                         int *pending, struct ls_error *error)
{
    for (int i = 0; i < *count; i++) {
        int status = zero_wait(zero, &requests[i], error);
        if (status)
            return status;
    }
    *pending -= *count;
    *count = 0;
    return LS_OK;
}

static bool requests_test(struct ls_request *requests, int count)
{
    for (int i = 0; i < count; i++)
        if (!ls_test(&requests[i]))
            return false;
    return true;
}

/* The job at the head is joined: waits for the rest of it. */
static int job_finish(struct ls_zero *zero, struct ls_error *error)
{
    struct zero_job *job = job_at(zero, zero->head);
    int status = requests_wait(zero, job->reduce, &job->reduces, &zero->reduces_pending, error);
    if (!status)
        zero->head++;
    return status;
}

/* Starts the sum of values over the group in up to ZERO_BUCKETS pieces. */
static int sum_start(const struct ls_zero *zero, struct ls_comm *group, float *values,
                     int64_t elements, struct ls_request *requests, int *count, int *pending,
                     struct ls_error *error)
{
    int64_t bucket = zero->options.bucket_bytes / (int64_t)sizeof(float);
    if (bucket <= 0)
        bucket = ls_max(elements, 1);
    bucket = ls_round_up(ls_max(bucket, ls_ceil_div(elements, ZERO_BUCKETS)), ZERO_ALIGN);
    int status = LS_OK;
    for (int64_t at = 0; at < elements && !status; at += bucket) {
        status = ls_all_reduce_start(group, values + at, ls_min(bucket, elements - at),
                                     &requests[*count], LS_HERE, error);
        if (!status) {
            ++*count;
            ++*pending;
        }
    }
    return status;
}

static int job_send_on(struct ls_zero *zero, struct zero_job *job, struct ls_error *error)
{
    if (zero->options.replicate_ranks == 1)
        return LS_OK;
    int status = LS_OK;
    while (zero->reduces_pending + ZERO_BUCKETS > LS_COMM_PENDING_MAX && !status)
        status = job_finish(zero, error);
    int64_t elements;
    float *values = final_of(zero, &zero->regions[job->region], &elements);
    ls_comm_label(zero->options.replicate, zero->regions[job->region].name);
    if (!status)
        status = sum_start(zero, zero->options.replicate, values, elements, job->reduce,
                           &job->reduces, &zero->reduces_pending, error);
    return status;
}

/* Joins the oldest job that is not yet. */
static int job_join(struct ls_zero *zero, struct ls_ops *ops, struct ls_error *error)
{
    struct zero_job *job = job_at(zero, zero->joined);
    const struct zero_region *region = &zero->regions[job->region];
    int status = requests_wait(zero, job->scatter, &job->scatters, &zero->scatters_pending, error);
    if (status)
        return status;
    if (zero->each) {
        int64_t elements;
        float *target = counter_of(zero, region, job->accumulation.target, &elements);
        if (job->accumulation.accumulate)
            ls_tree_add(ops, elements, target, job->result);
        counter_merge(zero, ops, region, job->accumulation);
    }
    if (job->place >= 0)
        zero->places[job->place].busy = false;
    if (job->last)
        status = job_send_on(zero, job, error);
    if (!status)
        zero->joined++;
    return status;
}

/* What has arrived goes on, without waiting. */
static int jobs_progress(struct ls_zero *zero, struct ls_ops *ops, struct ls_error *error)
{
    int status = LS_OK;
    while (!status && zero->joined < zero->tail) {
        struct zero_job *job = job_at(zero, zero->joined);
        if (!requests_test(job->scatter, job->scatters))
            break;
        status = job_join(zero, ops, error);
    }
    while (!status && zero->head < zero->joined) {
        struct zero_job *job = job_at(zero, zero->head);
        if (!requests_test(job->reduce, job->reduces))
            break;
        status = job_finish(zero, error);
    }
    return status;
}

static int jobs_join(struct ls_zero *zero, struct ls_ops *ops, int64_t end, struct ls_error *error)
{
    int status = LS_OK;
    while (zero->joined < end && !status)
        status = job_join(zero, ops, error);
    return status;
}

/* Earlier micro-batches of the region are in the binary counter. */
static int region_join(struct ls_zero *zero, struct ls_ops *ops, int r, struct ls_error *error)
{
    int64_t end = zero->joined;
    for (int64_t i = zero->joined; i < zero->tail; i++)
        if (job_at(zero, i)->region == r)
            end = i + 1;
    return jobs_join(zero, ops, end, error);
}

/* Needs no ops: what was waited for here is added when it is joined. */
int zero_scatters_make_room(struct ls_zero *zero, int n, struct ls_error *error)
{
    int status = LS_OK;
    int64_t oldest = zero->joined;
    /* Two more for the persistent tensors. */
    while (!status && oldest < zero->tail &&
           zero->gathers_pending + zero->scatters_pending + n + 2 > LS_COMM_PENDING_MAX) {
        struct zero_job *job = job_at(zero, oldest++);
        status = requests_wait(zero, job->scatter, &job->scatters, &zero->scatters_pending, error);
    }
    return status;
}

static int job_new(struct ls_zero *zero, struct ls_ops *ops, const struct zero_job *job,
                   struct zero_job **out, struct ls_error *error)
{
    int status = jobs_join(zero, ops, zero->tail - ZERO_WINDOW, error);
    if (!status && zero->tail - zero->head == ZERO_JOBS)
        status = job_finish(zero, error);
    if (!status)
        status = zero_scatters_make_room(zero, zero->regions[job->region].operations, error);
    *out = job_at(zero, zero->tail);
    **out = *job;
    if (!status)
        zero->tail++;
    return status;
}

/* ---- places --------------------------------------------------------------------------------- */

static int place_get(struct ls_zero *zero, struct ls_ops *ops, int r, int *place,
                     struct ls_error *error)
{
    *place = -1;
    if (zero->place_count == 0)
        return LS_OK;
    for (;;) {
        /* Small places first: the large one is for who needs it. */
        for (int i = zero->place_count - 1; i >= 0; i--) {
            if (zero->places[i].busy || (zero->places[i].small && !zero->regions[r].small))
                continue;
            zero->places[i].busy = true;
            *place = i;
            return LS_OK;
        }
        if (zero->joined == zero->tail)
            return ls_error_set(error, LS_EINVAL,
                                "there is no buffer for the gradient of region %d: report the one "
                                "before it as done first",
                                r);
        int status = job_join(zero, ops, error);
        if (status)
            return status;
    }
}

/* Cuts packed pieces of a whole region into a block for each rank. */
static void region_pack(const struct ls_zero *zero, struct ls_ops *ops,
                        const struct zero_parcel *parcel, const float *whole, float *staging)
{
    for (int i = parcel->direct; i < parcel->count; i++) {
        const struct zero_piece *piece = &parcel->pieces[i];
        for (int j = 0; j < zero->ranks; j++) {
            float *to = staging + j * parcel->packed + (piece->shard - parcel->packed_shard);
            int64_t first = ls_min(j * piece->chunk, piece->elements);
            int64_t count = ls_min(piece->chunk, piece->elements - first);
            ls_copy(ops, (size_t)count * sizeof *to, whole + piece->whole + first, to);
            ls_fill_zero(ops, (size_t)(piece->chunk - count) * sizeof *to, to + count);
        }
    }
}

/* One reduce-scatter of the job's, of what lies at input to `shard` of the region's shard. */
static int piece_scatter(struct ls_zero *zero, struct zero_job *job, const float *input,
                         int64_t shard, int64_t chunk, struct ls_error *error)
{
    float *output = job->result + (shard - zero->regions[job->region].shard);
    struct ls_request *request = &job->scatter[job->scatters];
    int status = zero->options.reduce == LS_BF16
                     ? ls_reduce_scatter_bf16_start(zero->options.shard, input, output, chunk,
                                                    request, LS_HERE, error)
                     : ls_reduce_scatter_start(zero->options.shard, input, output, chunk, request,
                                               LS_HERE, error);
    if (status)
        return status;
    job->scatters++;
    zero->scatters_pending++;
    return LS_OK;
}

/* The job's result becomes the sum over `shard` of this rank's rows of the region. */
static int scatter_start(struct ls_zero *zero, struct ls_ops *ops, struct zero_job *job,
                         const float *whole, struct ls_error *error)
{
    const struct zero_parcel *parcel = &zero->regions[job->region].scattered;
    int status = LS_OK;
    for (int i = 0; i < parcel->direct && !status; i++) {
        const struct zero_piece *piece = &parcel->pieces[i];
        zero_label(zero, parcel, i);
        status = piece_scatter(zero, job, whole + piece->whole, piece->shard, piece->chunk, error);
    }
    if (status || parcel->packed == 0)
        return status;
    float *staging = zero->places[job->place].staging;
    region_pack(zero, ops, parcel, whole, staging);
    zero_label(zero, parcel, parcel->direct);
    return piece_scatter(zero, job, staging, parcel->packed_shard, parcel->packed, error);
}

/* ---- calls ---------------------------------------------------------------------------------- */

static int order_check(const struct ls_zero *zero, int r, int64_t m, int64_t M,
                       struct ls_error *error)
{
    LS_ASSERT(r >= 0 && r < zero->options.region_count);
    LS_ASSERT(m >= 0 && m < M && M <= zero->options.micro_batches_max);
    if (m != zero->regions[r].next)
        return ls_error_set(error, LS_EINVAL,
                            "the gradient of region %d comes for micro-batch %ld, but %ld is next: "
                            "each comes once, in ascending order",
                            r, (long)m, (long)zero->regions[r].next);
    return LS_OK;
}

int ls_zero_gradient(struct ls_zero *zero, struct ls_ops *ops, int r, int64_t m, int64_t M,
                     struct ls_zero_gradient *out, struct ls_error *error)
{
    int status = order_check(zero, r, m, M, error);
    if (!status)
        status = jobs_progress(zero, ops, error);
    if (status)
        return status;
    struct ls_accumulation step = zero_accumulation(zero, m, M);
    const struct zero_region *region = &zero->regions[r];
    if (!zero->each) {
        *out = (struct ls_zero_gradient){zero->buffer[step.target] + region->base, step.accumulate};
        return LS_OK;
    }
    if (zero->open_place >= 0)
        return ls_error_set(error, LS_EINVAL,
                            "the gradient of region %d is asked for before the one that was asked "
                            "for last is done",
                            r);
    status = region_join(zero, ops, r, error);
    if (!status && (zero->cut || step.accumulate))
        status = place_get(zero, ops, r, &zero->open_place, error);
    if (status)
        return status;
    int64_t elements;
    float *flat = zero->open_place >= 0 ? zero->places[zero->open_place].whole
                                        : counter_of(zero, region, step.target, &elements);
    *out = (struct ls_zero_gradient){flat, false};
    return LS_OK;
}

/* The sum over this rank's micro-batches is complete, or still grows: nothing moves before it is.
 */
static int local_done(struct ls_zero *zero, struct ls_ops *ops, int r, struct zero_job *job,
                      struct ls_error *error)
{
    const struct zero_region *region = &zero->regions[r];
    counter_merge(zero, ops, region, job->accumulation);
    if (!job->last)
        return LS_OK;
    int status = LS_OK;
    if (zero->cut && region->scattered.packed > 0)
        status = place_get(zero, ops, r, &job->place, error);
    if (!status)
        status = job_new(zero, ops, job, &job, error);
    int64_t elements;
    job->result = final_of(zero, region, &elements);
    if (!status && zero->cut)
        status = scatter_start(zero, ops, job, zero->buffer[0] + region->base, error);
    return status;
}

static int each_done(struct ls_zero *zero, struct ls_ops *ops, int r, struct zero_job *job,
                     struct ls_error *error)
{
    const struct zero_region *region = &zero->regions[r];
    job->place = zero->open_place;
    zero->open_place = -1;
    int status = job_new(zero, ops, job, &job, error);
    if (status)
        return status;
    struct zero_place *place = job->place >= 0 ? &zero->places[job->place] : NULL;
    int64_t elements;
    float *target = counter_of(zero, region, job->accumulation.target, &elements);
    if (zero->cut) {
        job->result = job->accumulation.accumulate ? place->shard : target;
        return scatter_start(zero, ops, job, place->whole, error);
    }
    job->result = place ? place->whole : target;
    ls_comm_label(zero->options.shard, region->name);
    return sum_start(zero, zero->options.shard, job->result, elements, job->scatter, &job->scatters,
                     &zero->scatters_pending, error);
}

int ls_zero_gradient_done(struct ls_zero *zero, struct ls_ops *ops, int r, int64_t m, int64_t M,
                          struct ls_error *error)
{
    int status = order_check(zero, r, m, M, error);
    if (status)
        return status;
    struct zero_region *region = &zero->regions[r];
    struct zero_job job = {.region = r,
                           .place = -1,
                           .accumulation = zero_accumulation(zero, m, M),
                           .last = m == M - 1};
    region->next++;
    region->reported = job.last;
    status =
        zero->each ? each_done(zero, ops, r, &job, error) : local_done(zero, ops, r, &job, error);
    if (!status)
        status = jobs_progress(zero, ops, error);
    return status;
}

int ls_zero_gradient_finish(struct ls_zero *zero, struct ls_ops *ops, float **gradient,
                            double *wait_s, struct ls_error *error)
{
    int status = jobs_join(zero, ops, zero->tail, error);
    while (!status && zero->head < zero->tail)
        status = job_finish(zero, error);
    if (!status)
        status = zero_gathers_end(zero, ops, error);
    if (wait_s)
        *wait_s += zero->wait_s;
    zero->wait_s = 0;
    for (int r = 0; r < zero->options.region_count; r++) {
        struct zero_region *region = &zero->regions[r];
        if (!status && !region->reported)
            status = ls_error_set(error, LS_ECOMM,
                                  "the gradient of region %d was never reduced: micro-batch %ld "
                                  "was not reported as done",
                                  r, (long)region->next);
        region->reported = false;
        region->next = 0;
    }
    *gradient = zero->final;
    return status;
}
