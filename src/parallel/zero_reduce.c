/* Gradients on their way to who updates with them.
 *
 * A region's leaf becomes a job when it is whole; with several replicas once the sum that it goes
 * on from has come. Jobs are joined (waited for over `shard`; the sum goes on to the next replica)
 * and finished in the order in which they were made, which is the same on all ranks. When that
 * happens depends on what has arrived; in which order operations start on a group does not.
 *
 * So a replica waits for jobs that come before its own, and the one after it gets to these without
 * it. Before a rank waits for another stage of a pipeline, which may wait for the next replica, its
 * jobs are joined (ls_zero_gradient_pass_on). What the last one sends around is for a leaf that
 * comes later: it is waited for region by region, when that leaf has come here too. */
#include "parallel/zero_private.h"

static struct zero_job *job_at(struct ls_zero *zero, int64_t i)
{
    return &zero->jobs[i % ZERO_JOBS];
}

struct zero_turn zero_turn(const struct ls_zero *zero, const struct ls_dp_micro *micro)
{
    bool first = micro->m == 0;
    if (zero->options.fast && zero->options.stage < 2)
        return (struct zero_turn){first, micro->last, true, micro->last};
    if (zero->options.fast)
        return (struct zero_turn){true, true, first, micro->last};
    return (struct zero_turn){micro->begins, micro->ends, micro->begins_sum, micro->last};
}

/* ---- jobs ----------------------------------------------------------------------------------- */

static int requests_wait(struct ls_request *requests, int *count, int *pending,
                         struct ls_error *error)
{
    for (int i = 0; i < *count; i++) {
        int status = ls_wait(&requests[i], error);
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
    int status = requests_wait(job->reduce, &job->reduces, &zero->reduces_pending, error);
    if (!status)
        zero->head++;
    return status;
}

static int scatters_wait(struct ls_zero *zero, struct zero_job *job, struct ls_error *error)
{
    return requests_wait(job->scatter, &job->scatters, &zero->scatters_pending, error);
}

/* Elements of one of up to ZERO_BUCKETS pieces. */
static int64_t bucket_of(const struct ls_zero *zero, int64_t elements)
{
    int64_t bucket = zero->options.bucket_bytes / (int64_t)sizeof(float);
    if (bucket <= 0)
        bucket = ls_max(elements, 1);
    return ls_round_up(ls_max(bucket, ls_ceil_div(elements, ZERO_BUCKETS)), ZERO_ALIGN);
}

/* The job's sum of leaves over `shard`, if that is not cut. */
static int leaves_sum_start(struct ls_zero *zero, struct zero_job *job, int64_t elements,
                            struct ls_error *error)
{
    struct ls_comm_leaves leaves = {zero->options.inner, job->onto};
    int64_t bucket = bucket_of(zero, elements);
    int status = LS_OK;
    for (int64_t at = 0; at < elements && !status; at += bucket) {
        status = ls_all_reduce_leaves_start(zero->options.shard, job->leaf + at, job->result + at,
                                            ls_min(bucket, elements - at), leaves,
                                            &job->scatter[job->scatters], LS_HERE, error);
        job->scatters += status == LS_OK;
    }
    zero->scatters_pending += job->scatters;
    return status;
}

/* Mode fast: the sum over replicas, in any order. */
static int replicas_sum_start(struct ls_zero *zero, struct zero_job *job, float *sum,
                              int64_t elements, struct ls_error *error)
{
    int64_t bucket = bucket_of(zero, elements);
    int status = LS_OK;
    for (int64_t at = 0; at < elements && !status; at += bucket) {
        status =
            ls_all_reduce_start(zero->options.replicate, sum + at, ls_min(bucket, elements - at),
                                &job->reduce[job->reduces], LS_HERE, error);
        job->reduces += status == LS_OK;
    }
    return status;
}

static int neighbour(const struct ls_zero *zero, int step)
{
    int ranks = zero->options.replicate_ranks;
    return (zero->options.replicate_rank + step + ranks) % ranks;
}

/* Whether the sum so far comes from the replica before. The last one has the whole of it in the
 * end. */
static bool job_receives(const struct ls_zero *zero, const struct zero_job *job)
{
    return zero->ring && !(job->turn.first && zero->options.replicate_rank == 0);
}
static bool last_replica(const struct ls_zero *zero)
{
    return zero->options.replicate_rank == zero->options.replicate_ranks - 1;
}

static int sum_send(struct ls_zero *zero, int r, struct ls_request *request, struct ls_error *error)
{
    const struct zero_region *region = &zero->regions[r];
    int64_t elements = zero_sum_elements(zero, region);
    float *sum = zero->part[ZERO_SUM] + region->near[ZERO_SUM];
    ls_comm_label(zero->options.replicate, region->name);
    return ls_send_start(zero->options.replicate, sum, elements, LS_F32, neighbour(zero, 1),
                         r % LS_COMM_TAG_MAX, request, LS_HERE, error);
}

/* The last replica's sum, for the first one's next leaf. */
static int sum_send_around(struct ls_zero *zero, int r, struct ls_error *error)
{
    zero->regions[r].due = r >= ZERO_AROUND;
    return zero->regions[r].due ? LS_OK : sum_send(zero, r, &zero->regions[r].around, error);
}

/* It has arrived: the sum may be written. */
static int around_wait(struct ls_zero *zero, int r, struct ls_error *error)
{
    struct zero_region *region = &zero->regions[r];
    int status = region->due ? sum_send(zero, r, &region->around, error) : LS_OK;
    region->due = false;
    return status ? status : ls_wait(&region->around, error);
}

static int job_send_on(struct ls_zero *zero, struct zero_job *job, struct ls_error *error)
{
    bool reduces = zero->options.replicate_ranks > 1 && !zero->ring && job->turn.last;
    int status = LS_OK;
    if (zero->ring && last_replica(zero))
        return job->turn.last ? LS_OK : sum_send_around(zero, job->region, error);
    if (!reduces && !zero->ring)
        return LS_OK;
    while (zero->reduces_pending + 2 * ZERO_BUCKETS > LS_COMM_PENDING_MAX && !status)
        status = job_finish(zero, error);
    if (!status && !reduces) {
        status = sum_send(zero, job->region, &job->reduce[0], error);
        job->reduces += status == LS_OK;
    } else if (!status) {
        const struct zero_region *region = &zero->regions[job->region];
        ls_comm_label(zero->options.replicate, region->name);
        status = replicas_sum_start(zero, job, job->sum, zero_sum_elements(zero, region), error);
    }
    zero->reduces_pending += job->reduces;
    return status;
}

/* Joins the oldest job that is not yet. */
static int job_join(struct ls_zero *zero, struct ls_ops *ops, struct ls_error *error)
{
    struct zero_job *job = job_at(zero, zero->joined);
    const struct zero_region *region = &zero->regions[job->region];
    int status = scatters_wait(zero, job, error);
    if (status)
        return status;
    if (job->result != job->sum)
        ls_tree_add(ops, zero_sum_elements(zero, region), job->sum, job->result);
    if (job->place >= 0)
        zero->places[job->place].busy = false;
    status = job_send_on(zero, job, error);
    if (!status)
        status = zero_part_put(zero, job->region, ZERO_SUM, error);
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

/* Earlier leaves of the region are in the sum, which has gone on: it may be written. */
static int region_join(struct ls_zero *zero, struct ls_ops *ops, int r, struct ls_error *error)
{
    int64_t end = zero->head;
    for (int64_t i = zero->head; i < zero->tail; i++)
        if (job_at(zero, i)->region == r)
            end = i + 1;
    int status = jobs_join(zero, ops, end, error);
    while (zero->head < end && zero->ring && !status)
        status = job_finish(zero, error);
    return status;
}

/* Needs no ops: what was waited for here is added when it is joined. */
int zero_scatters_make_room(struct ls_zero *zero, int n, struct ls_error *error)
{
    int status = LS_OK;
    int64_t oldest = zero->joined;
    /* Two more for the persistent tensors. */
    while (!status && oldest < zero->tail &&
           zero->gathers_pending + zero->scatters_pending + n + 2 > LS_COMM_PENDING_MAX)
        status = scatters_wait(zero, job_at(zero, oldest++), error);
    return status;
}

/* Replica after replica: nothing that the next one waits for stays behind while this one waits. */
static int job_receive(struct ls_zero *zero, struct ls_ops *ops, const struct zero_job *job,
                       struct ls_error *error)
{
    int64_t elements = zero_sum_elements(zero, &zero->regions[job->region]);
    struct ls_request receive = {0};
    if (!job_receives(zero, job))
        return LS_OK;
    int status = jobs_join(zero, ops, zero->tail, error);
    if (!status && last_replica(zero))
        status = around_wait(zero, job->region, error);
    ls_comm_label(zero->options.replicate, zero->regions[job->region].name);
    if (!status)
        status =
            ls_recv_start(zero->options.replicate, job->sum, elements, LS_F32, neighbour(zero, -1),
                          job->region % LS_COMM_TAG_MAX, &receive, LS_HERE, error);
    return status ? status : ls_wait(&receive, error);
}

static int job_new(struct ls_zero *zero, struct ls_ops *ops, const struct zero_job *job,
                   struct zero_job **out, struct ls_error *error)
{
    const int window = zero->options.replicate_ranks > 1 ? ZERO_WINDOW : ZERO_JOBS - 1;
    int status = jobs_join(zero, ops, zero->tail - window, error);
    if (!status)
        status = job_receive(zero, ops, job, error);
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
    const size_t block = (size_t)parcel->packed * sizeof *staging;
    for (int i = parcel->direct; i < parcel->count; i++) {
        const struct zero_piece *piece = &parcel->pieces[i];
        const int64_t elements = ls_param_elements(piece->param), full = elements / piece->chunk;
        const size_t part = (size_t)piece->chunk * sizeof *staging;
        float *to = staging + (piece->shard - parcel->packed_shard);
        if (full > 0)
            ls_copy_rows(ops, full, part, whole + piece->whole, part, to, block);
        for (int64_t j = full; j < zero->ranks; j++) {
            int64_t first = j * piece->chunk, count = ls_max(elements - first, 0);
            float *at = to + j * parcel->packed;
            if (count > 0)
                ls_copy(ops, (size_t)count * sizeof *at, whole + piece->whole + first, at);
            ls_fill_zero(ops, (size_t)(piece->chunk - count) * sizeof *at, at + count);
        }
    }
}

/* One reduce-scatter of the job's, of what lies at input to `shard` of the region's shard. */
static int piece_scatter(struct ls_zero *zero, struct zero_job *job, const float *input,
                         int64_t shard, int64_t chunk, struct ls_error *error)
{
    float *output = job->result + (shard - zero->regions[job->region].shard);
    struct ls_request *request = &job->scatter[job->scatters];
    struct ls_comm *group = zero->options.shard;
    struct ls_comm_leaves leaves = {zero->options.inner, job->onto};
    int status =
        zero->options.reduce == LS_BF16
            ? ls_reduce_scatter_bf16_start(group, input, output, chunk, request, LS_HERE, error)
            : ls_reduce_scatter_leaves_start(group, input, output, chunk, leaves, request, LS_HERE,
                                             error);
    if (status)
        return status;
    job->scatters++;
    zero->scatters_pending++;
    return LS_OK;
}

/* The job's result becomes, or goes on with, the sum over `shard` of this rank's rows. */
static int scatter_start(struct ls_zero *zero, struct ls_ops *ops, struct zero_job *job,
                         struct ls_error *error)
{
    const struct zero_parcel *parcel = &zero->regions[job->region].scattered;
    int status = LS_OK;
    for (int i = 0; i < parcel->direct && !status; i++) {
        const struct zero_piece *piece = &parcel->pieces[i];
        zero_label(zero, parcel, i);
        status =
            piece_scatter(zero, job, job->leaf + piece->whole, piece->shard, piece->chunk, error);
    }
    if (status || parcel->packed == 0)
        return status;
    float *staging = zero->places[job->place].staging;
    region_pack(zero, ops, parcel, job->leaf, staging);
    zero_label(zero, parcel, parcel->direct);
    return piece_scatter(zero, job, staging, parcel->packed_shard, parcel->packed, error);
}

/* The job's reduction over `shard`. */
static int job_start(struct ls_zero *zero, struct ls_ops *ops, struct zero_job *job,
                     struct ls_error *error)
{
    const struct zero_region *region = &zero->regions[job->region];
    if (zero->cut)
        return scatter_start(zero, ops, job, error);
    if (zero->ranks == 1 && job->onto)
        ls_tree_add(ops, region->elements, job->result, job->leaf);
    else if (zero->ranks == 1 && job->leaf != job->result)
        ls_copy(ops, (size_t)region->elements * sizeof(float), job->leaf, job->result);
    if (zero->ranks == 1)
        return LS_OK;
    ls_comm_label(zero->options.shard, region->name);
    return leaves_sum_start(zero, job, region->elements, error);
}

/* The region's sum, or leaf, on the device. Jobs of the region that gives way are through first. */
static int part_get(struct ls_zero *zero, struct ls_ops *ops, int r, enum zero_part part,
                    bool reads, float **values, struct ls_error *error)
{
    int victim = zero_victim(zero, r, part);
    int status = victim >= 0 ? region_join(zero, ops, victim, error) : LS_OK;
    return status ? status : zero_part_get(zero, r, part, reads, values, error);
}

/* ---- calls ---------------------------------------------------------------------------------- */

static int order_check(const struct ls_zero *zero, int r, const struct ls_dp_micro *micro,
                       struct ls_error *error)
{
    int64_t m = micro->m;
    LS_ASSERT(r >= 0 && r < zero->options.params->region_count &&
              zero_has_region(&zero->options, r));
    LS_ASSERT(m >= 0 && m < zero->options.micro_batches_max);
    LS_ASSERT(zero->options.fast || zero->parts || (micro->begins && micro->ends));
    if (m != zero->regions[r].next)
        return ls_error_set(error, LS_EINVAL,
                            "the gradient of region %d comes for micro-batch %ld, but %ld is next: "
                            "each comes once, in ascending order",
                            r, (long)m, (long)zero->regions[r].next);
    return LS_OK;
}

/* What a part of a leaf is added to where it grows. */
static enum ls_onto part_onto(const struct ls_zero *zero, const struct zero_turn *turn)
{
    if (turn->begins)
        return LS_ONTO_NOTHING;
    return zero->options.fast ? LS_ONTO_SUM : LS_ONTO_CHAIN;
}

/* Whether the micro-batch's gradient goes straight into the sum. */
static bool is_in_sum(const struct ls_zero *zero, const struct zero_turn *turn)
{
    return zero->alone ? turn->first || (turn->begins && turn->ends) : zero->in_place;
}

int ls_zero_gradient(struct ls_zero *zero, struct ls_ops *ops, int r,
                     const struct ls_dp_micro *micro, struct ls_zero_gradient *out,
                     struct ls_error *error)
{
    struct zero_turn turn = zero_turn(zero, micro);
    int status = order_check(zero, r, micro, error);
    if (!status)
        status = jobs_progress(zero, ops, error);
    if (status)
        return status;
    if (is_in_sum(zero, &turn)) {
        bool adds = !turn.first && zero->alone;
        out->onto = adds ? LS_ONTO_SUM : part_onto(zero, &turn);
        return part_get(zero, ops, r, ZERO_SUM, out->onto != LS_ONTO_NOTHING, &out->flat, error);
    }
    if (zero->open_place >= 0)
        return ls_error_set(error, LS_EINVAL,
                            "the gradient of region %d is asked for before the one that was asked "
                            "for last is done",
                            r);
    if (turn.begins)
        status = region_join(zero, ops, r, error);
    out->onto = part_onto(zero, &turn);
    if (!status && zero->grows)
        return part_get(zero, ops, r, ZERO_LEAF, !turn.begins, &out->flat, error);
    if (!status)
        status = place_get(zero, ops, r, &zero->open_place, error);
    if (!status && zero->open_place >= 0)
        out->flat = zero->places[zero->open_place].whole;
    return status;
}

/* Nobody to reduce with: a leaf that grew beside the sum is added when it is whole. The sum that is
 * wanted next comes while the layer below computes. */
static int alone_done(struct ls_zero *zero, struct ls_ops *ops, int r, const struct zero_turn *turn,
                      struct ls_error *error)
{
    bool in_sum = is_in_sum(zero, turn);
    float *sum, *leaf;
    int status = LS_OK;
    if (!in_sum && turn->ends) {
        status = part_get(zero, ops, r, ZERO_LEAF, true, &leaf, error);
        if (!status)
            status = part_get(zero, ops, r, ZERO_SUM, true, &sum, error);
        if (!status)
            ls_tree_add(ops, zero->regions[r].elements, sum, leaf);
    }
    if (!status)
        status = zero_part_put(zero, r, in_sum || turn->ends ? ZERO_SUM : ZERO_LEAF, error);
    bool more = !turn->first && turn->begins && turn->ends;
    return status || !more ? status : zero_sum_prefetch(zero, r + 1, error);
}

/* A leaf is whole: its reductions start. */
static int leaf_done(struct ls_zero *zero, struct ls_ops *ops, int r, const struct zero_turn *turn,
                     struct ls_error *error)
{
    const struct zero_region *region = &zero->regions[r];
    struct zero_job job = {.region = r, .place = zero->open_place, .turn = *turn};
    zero->open_place = -1;
    job.onto = !turn->first || job_receives(zero, &job);
    float *leaf = NULL;
    int status = zero->grows ? part_get(zero, ops, r, ZERO_LEAF, true, &leaf, error) : LS_OK;
    if (!status)
        status = part_get(zero, ops, r, ZERO_SUM, zero->in_place || job.onto, &job.sum, error);
    job.result = job.sum;
    if (!status && job.place < 0 && zero->cut && region->scattered.packed > 0)
        status = place_get(zero, ops, r, &job.place, error);
    job.leaf = zero->in_place ? job.result : zero->grows ? leaf : zero->places[job.place].whole;
    if (zero->options.reduce == LS_BF16 && zero->cut && job.onto)
        job.result = zero->places[job.place].shard;
    struct zero_job *made = NULL;
    if (!status)
        status = job_new(zero, ops, &job, &made, error);
    return status ? status : job_start(zero, ops, made, error);
}

int ls_zero_gradient_done(struct ls_zero *zero, struct ls_ops *ops, int r,
                          const struct ls_dp_micro *micro, struct ls_error *error)
{
    struct zero_turn turn = zero_turn(zero, micro);
    int status = order_check(zero, r, micro, error);
    if (status)
        return status;
    zero->regions[r].next++;
    zero->regions[r].reported = micro->last;
    if (zero->alone)
        status = alone_done(zero, ops, r, &turn, error);
    else if (turn.ends)
        status = leaf_done(zero, ops, r, &turn, error);
    else
        status = zero_part_put(zero, r, zero->in_place ? ZERO_SUM : ZERO_LEAF, error);
    return status ? status : jobs_progress(zero, ops, error);
}

int ls_zero_gradient_pass_on(struct ls_zero *zero, struct ls_ops *ops, struct ls_error *error)
{
    return zero->ring ? jobs_join(zero, ops, zero->tail, error) : LS_OK;
}

int ls_zero_gradient_finish(struct ls_zero *zero, struct ls_ops *ops, float **gradient,
                            struct ls_error *error)
{
    int status = jobs_join(zero, ops, zero->tail, error);
    while (!status && zero->head < zero->tail)
        status = job_finish(zero, error);
    for (int r = 0; r < zero->options.params->region_count && zero->ring && !status; r++) {
        const struct zero_region *region = &zero->regions[r];
        if (!zero_has_region(&zero->options, r))
            continue;
        ls_comm_label(zero->options.replicate, region->name);
        status = ls_broadcast_start(zero->options.replicate,
                                    zero->part[ZERO_SUM] + region->near[ZERO_SUM],
                                    zero_sum_elements(zero, region), LS_F32,
                                    zero->options.replicate_ranks - 1, LS_QUEUED, LS_HERE, error);
    }
    if (!status)
        status = zero_sums_settle(zero, error);
    if (!status)
        status = ls_zero_settle(zero, ops, error);
    for (int r = 0; r < zero->options.params->region_count; r++) {
        struct zero_region *region = &zero->regions[r];
        if (!status && !region->reported && zero_has_region(&zero->options, r))
            status = ls_error_set(error, LS_ECOMM,
                                  "the gradient of region %d was never reduced: micro-batch %ld "
                                  "was not reported as done",
                                  r, (long)region->next);
        region->reported = false;
        region->next = 0;
    }
    *gradient = zero->gradient_base;
    return status;
}
