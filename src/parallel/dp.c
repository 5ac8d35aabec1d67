#include <lockstep/parallel.h>

#include <stdlib.h>

struct bucket {
    int64_t begin, end;
    struct ls_request request;
};

struct ls_dp {
    struct ls_comm *group;
    int64_t elements;
    int count, started;     /* buckets, from the end of the buffer downwards */
    struct bucket *buckets; /* [count] */
};

int ls_dp_new(struct ls_comm *group, int64_t elements, int64_t bucket_bytes, struct ls_dp **out,
              struct ls_error *error)
{
    int64_t bucket = ls_max(bucket_bytes / (int64_t)sizeof(float), 1);
    bucket = ls_max(bucket, ls_ceil_div(elements, LS_COMM_PENDING_MAX / 4));
    bucket = ls_round_up(bucket, 16);
    struct ls_dp *dp = calloc(1, sizeof *dp);
    int count = (int)ls_ceil_div(elements, bucket);
    struct bucket *buckets = calloc((size_t)ls_max(count, 1), sizeof *buckets);
    if (!dp || !buckets) {
        free(dp);
        free(buckets);
        return ls_error_set(error, LS_ENOMEM, "no memory for %d gradient buckets", count);
    }
    *dp = (struct ls_dp){.group = group, .elements = elements, .count = count, .buckets = buckets};
    int64_t end = elements;
    for (int i = 0; i < count; i++) {
        buckets[i].end = end;
        buckets[i].begin = ls_max(end - bucket, 0);
        end = buckets[i].begin;
    }
    *out = dp;
    return LS_OK;
}

void ls_dp_free(struct ls_dp *dp)
{
    if (!dp)
        return;
    free(dp->buckets);
    free(dp);
}

int ls_dp_ready(struct ls_dp *dp, float *gradient, int64_t begin, struct ls_error *error)
{
    if (ls_comm_size(dp->group) == 1)
        return LS_OK;
    while (dp->started < dp->count && dp->buckets[dp->started].begin >= begin) {
        struct bucket *bucket = &dp->buckets[dp->started++];
        int status =
            ls_all_reduce_start(dp->group, gradient + bucket->begin, bucket->end - bucket->begin,
                                &bucket->request, LS_HERE, error);
        if (status)
            return status;
    }
    return LS_OK;
}

int ls_dp_finish(struct ls_dp *dp, double *wait_s, struct ls_error *error)
{
    if (ls_comm_size(dp->group) == 1)
        return LS_OK;
    double before = ls_now_s();
    int started = dp->started;
    int status = LS_OK;
    for (int i = 0; i < dp->started; i++) {
        struct ls_error late = {0};
        int result = ls_wait(&dp->buckets[i].request, status ? &late : error);
        if (!status)
            status = result;
    }
    dp->started = 0;
    if (wait_s)
        *wait_s += ls_now_s() - before;
    if (!status && started < dp->count)
        status =
            ls_error_set(error, LS_ECOMM,
                         "%d of %d gradient buckets were never reduced: elements [0, %ld) were "
                         "not reported as ready",
                         dp->count - started, dp->count, (long)dp->buckets[started].end);
    return status;
}
