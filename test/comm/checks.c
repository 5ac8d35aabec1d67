/* Checks of every operation, for any transport. */
#include "checks.h"

#include "../support/await.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRY(call)                                                                                  \
    do {                                                                                           \
        int try_status = (call);                                                                   \
        if (try_status != LS_OK)                                                                   \
            return try_status;                                                                     \
    } while (0)

/* Values of many magnitudes and both signs: float sums of them depend on the order. Millions are
 * made, so the bits are mixed here (splitmix64). */
static inline float value(int64_t salt, int rank, int64_t i)
{
    static const float magnitude[] = {1e-3f, 1, 1e3f, 1e6f};
    uint64_t mixed = (uint64_t)(salt * 1000 + rank) * 0xd1342543de82ef95u + (uint64_t)i;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    uint32_t bits = (uint32_t)(mixed >> 32);
    return ((float)(bits >> 8) * 0x1p-24f - 0.5f) * magnitude[bits % 4];
}

static float tree_value(int64_t salt, int n, int64_t i)
{
    float leaves[64];
    for (int r = 0; r < n; r++)
        leaves[r] = value(salt, r, i);
    return ls_tree_sum(leaves, n);
}

/* What the tree gives where every leaf was rounded to bf16 before. */
static float tree_value_bf16(int64_t salt, int n, int64_t i)
{
    float leaves[64];
    for (int r = 0; r < n; r++)
        leaves[r] = ls_bf16_to_f32(ls_f32_to_bf16(value(salt, r, i)));
    return ls_tree_sum(leaves, n);
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static int differ(struct ls_error *error, const char *what, int64_t i, float actual, float expected)
{
    return ls_error_set(error, LS_ENUMERIC, "%s: element %lld is %a (%08x), expected %a (%08x)",
                        what, (long long)i, (double)actual, bits_of(actual), (double)expected,
                        bits_of(expected));
}

/* Long buffers are looked at in steps of a prime, and at the ends. */
static int64_t stride(int64_t count)
{
    return count <= 5000 ? 1 : count / 997;
}

static int expect_sum(const float *actual, int64_t salt, int n, int64_t first, int64_t count,
                      const char *what, struct ls_error *error)
{
    for (int64_t i = 0; i < count;
         i = i == count - 1 ? count : ls_min(i + stride(count), count - 1)) {
        float expected = tree_value(salt, n, first + i);
        if (bits_of(actual[i]) != bits_of(expected))
            return differ(error, what, i, actual[i], expected);
    }
    return LS_OK;
}

static int expect_values(const float *actual, int64_t salt, int rank, int64_t first, int64_t count,
                         const char *what, struct ls_error *error)
{
    for (int64_t i = 0; i < count;
         i = i == count - 1 ? count : ls_min(i + stride(count), count - 1))
        if (bits_of(actual[i]) != bits_of(value(salt, rank, first + i)))
            return differ(error, what, i, actual[i], value(salt, rank, first + i));
    return LS_OK;
}

static void fill(float *buffer, int64_t salt, int rank, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        buffer[i] = value(salt, rank, i);
}

/* What the checks of one count work on; input and output hold n * count. */
struct bench {
    struct ls_comm *comm;
    int n, rank;
    int64_t count;
    float *input, *output;
};

static int check_reductions(struct bench *b, struct ls_error *error)
{
    struct ls_request request;
    int64_t all = b->n * b->count;
    fill(b->output, 1, b->rank, b->count);
    TRY(ls_all_reduce(b->comm, b->output, b->count, error));
    TRY(expect_sum(b->output, 1, b->n, 0, b->count, "all_reduce", error));
    fill(b->output, 2, b->rank, b->count);
    TRY(ls_all_reduce_start(b->comm, b->output, b->count, &request, LS_HERE, error));
    TRY(ls_wait(&request, error));
    TRY(expect_sum(b->output, 2, b->n, 0, b->count, "all_reduce_start", error));
    TRY(ls_wait(&request, error)); /* an empty request is done */

    fill(b->input, 3, b->rank, all);
    TRY(ls_reduce_scatter(b->comm, b->input, b->output, b->count, error));
    TRY(expect_sum(b->output, 3, b->n, b->rank * b->count, b->count, "reduce_scatter", error));
    TRY(expect_values(b->input, 3, b->rank, 0, all, "reduce_scatter's input", error));
    memset(b->output, 0, (size_t)b->count * sizeof *b->output);
    TRY(ls_reduce_scatter_start(b->comm, b->input, b->output, b->count, &request, LS_HERE, error));
    TRY(ls_wait(&request, error));
    return expect_sum(b->output, 3, b->n, b->rank * b->count, b->count, "reduce_scatter_start",
                      error);
}

/* What leaves on `inner` ranks each give, behind `prior` where there is one. */
static float chain_value(int64_t salt, int n, int inner, const float *prior, int64_t i)
{
    float sum = prior ? *prior : 0;
    for (int r = 0; r < n; r += inner) {
        float parts[64];
        for (int j = 0; j < inner; j++)
            parts[j] = value(salt, r + j, i);
        float leaf = ls_tree_sum(parts, inner);
        sum = r || prior ? sum + leaf : leaf;
    }
    return sum;
}

/* One sum of leaves; *unlike_trees counts the elements that the tree over ranks has otherwise. */
static int check_leaves(struct bench *b, struct ls_comm_leaves leaves, bool scatter, bool blocking,
                        bool in_place, int *unlike_trees, struct ls_error *error)
{
    struct ls_request request = {0};
    int64_t count = b->count, first = scatter ? b->rank * count : 0;
    int owner = scatter ? b->rank : 0; /* of what was there before */
    const char *what = scatter ? "reduce_scatter_leaves" : "all_reduce_leaves";
    fill(b->input, 12, b->rank, scatter ? b->n * count : count);
    fill(b->output, in_place ? 12 : 13, in_place ? b->rank : owner, count);
    TRY((scatter ? ls_reduce_scatter_leaves_start : ls_all_reduce_leaves_start)(
        b->comm, in_place ? b->output : b->input, b->output, count, leaves,
        blocking ? NULL : &request, LS_HERE, error));
    TRY(ls_wait(&request, error));
    for (int64_t i = 0; i < count;
         i = i == count - 1 ? count : ls_min(i + stride(count), count - 1)) {
        float prior = value(13, owner, i);
        float expected =
            chain_value(12, b->n, leaves.inner, leaves.onto ? &prior : NULL, first + i);
        *unlike_trees += bits_of(expected) != bits_of(tree_value(12, b->n, first + i));
        if (bits_of(b->output[i]) != bits_of(expected))
            return differ(error, what, i, b->output[i], expected);
    }
    return expect_values(b->input, 12, b->rank, 0, scatter ? b->n * count : count, what, error);
}

static int check_sums_of_leaves(struct bench *b, struct ls_error *error)
{
    int unlike_trees = 0;
    for (int inner = 1; inner <= b->n; inner++)
        for (int form = 0; form < 10 && b->n % inner == 0; form++)
            TRY(form < 8 ? check_leaves(b, (struct ls_comm_leaves){inner, form & 1}, form & 2,
                                        form & 4, false, &unlike_trees, error)
                         : check_leaves(b, (struct ls_comm_leaves){inner, false}, false, form & 1,
                                        true, &unlike_trees, error));
    if (unlike_trees == 0 && b->count >= 64)
        return ls_error_set(error, LS_ENUMERIC, "chains over leaves are all as the tree's sums");
    return LS_OK;
}

/* The maximum, with zeros of both signs and NaN among the values; sums of rounded values. */
static int check_other_reductions(struct bench *b, struct ls_error *error)
{
    struct ls_request request;
    int64_t count = b->count;
    fill(b->output, 10, b->rank, count);
    for (int64_t i = 0; i < count; i += 5)
        b->output[i] = i % 2 && b->rank == b->n - 1 ? NAN : b->rank % 2 ? 0.0f : -0.0f;
    TRY(ls_all_reduce_max_f32(b->comm, b->output, count, error));
    for (int64_t i = 0; i < count; i += stride(count)) {
        float expected = value(10, 0, i);
        for (int r = 1; r < b->n; r++)
            expected = fmaxf(expected, value(10, r, i));
        if (i % 5 == 0 && i % 2 && b->n > 1)
            expected = NAN;
        else if (i % 5 == 0 && i % 2 == 0)
            expected = b->n > 1 ? 0.0f : -0.0f;
        else if (i % 5 == 0)
            continue; /* one rank's NaN comes back as it is */
        if (bits_of(b->output[i]) != bits_of(expected))
            return differ(error, "all_reduce_max", i, b->output[i], expected);
    }
    fill(b->input, 11, b->rank, b->n * count);
    for (int form = 0; form < 2; form++) {
        memset(b->output, 0, (size_t)count * sizeof *b->output);
        TRY(form ? ls_reduce_scatter_bf16(b->comm, b->input, b->output, count, error)
                 : ls_reduce_scatter_bf16_start(b->comm, b->input, b->output, count, &request,
                                                LS_HERE, error));
        TRY(ls_wait(&request, error));
        for (int64_t i = 0; i < count; i += stride(count)) {
            float expected = tree_value_bf16(11, b->n, b->rank * count + i);
            if (bits_of(b->output[i]) != bits_of(expected))
                return differ(error, "reduce_scatter_bf16", i, b->output[i], expected);
        }
    }
    return LS_OK;
}

static int expect_gathered(const struct bench *b, int64_t salt, const char *what,
                           struct ls_error *error)
{
    for (int r = 0; r < b->n; r++)
        TRY(expect_values(b->output + r * b->count, salt, r, 0, b->count, what, error));
    return LS_OK;
}

static int check_gathers(struct bench *b, struct ls_error *error)
{
    struct ls_request request;
    int64_t all = b->n * b->count;
    fill(b->input, 4, b->rank, b->count);
    TRY(ls_all_gather(b->comm, b->input, b->output, b->count, LS_F32, error));
    TRY(expect_gathered(b, 4, "all_gather", error));
    /* In place, as bytes and not blocking. */
    float *own = b->output + b->rank * b->count;
    memset(b->output, 0, (size_t)all * sizeof *b->output);
    fill(own, 5, b->rank, b->count);
    TRY(ls_all_gather_start(b->comm, own, b->output, b->count * 4, LS_U8, &request, LS_HERE,
                            error));
    TRY(ls_wait(&request, error));
    TRY(expect_gathered(b, 5, "all_gather in place", error));

    fill(b->input, 6, b->rank, all);
    for (int form = 0; form < 2; form++) {
        memset(b->output, 0, (size_t)all * sizeof *b->output);
        TRY(form ? ls_all_to_all(b->comm, b->input, b->output, b->count, LS_F32, error)
                 : ls_all_to_all_start(b->comm, b->input, b->output, b->count, LS_F32, &request,
                                       LS_HERE, error));
        TRY(ls_wait(&request, error));
        for (int r = 0; r < b->n; r++)
            TRY(expect_values(b->output + r * b->count, 6, r, b->rank * b->count, b->count,
                              form ? "all_to_all" : "all_to_all_start", error));
    }
    return LS_OK;
}

static int check_broadcasts(struct bench *b, struct ls_error *error)
{
    struct ls_request request;
    for (int root = 0; root < b->n; root += ls_max(1, b->n - 1)) {
        fill(b->output, 7, b->rank, b->count);
        TRY(ls_broadcast(b->comm, b->output, b->count, LS_F32, root, error));
        TRY(expect_values(b->output, 7, root, 0, b->count, "broadcast", error));
        fill(b->output, 8, b->rank, b->count);
        TRY(ls_broadcast_start(b->comm, b->output, b->count, LS_F32, root, &request, LS_HERE,
                               error));
        TRY(ls_wait(&request, error));
        TRY(expect_values(b->output, 8, root, 0, b->count, "broadcast_start", error));
    }
    return LS_OK;
}

/* Around a ring with two messages of one tag and one of another in flight; and to oneself. */
static int check_pairs(struct bench *b, struct ls_error *error)
{
    struct ls_request requests[6];
    int next = (b->rank + 1) % b->n, previous = (b->rank + b->n - 1) % b->n;
    int64_t count = b->count;
    float *spare = calloc((size_t)ls_max(1, count * 6), sizeof *spare);
    if (!spare)
        return ls_error_set(error, LS_ENOMEM, "no memory for a check");
    const int tags[3] = {5, 5, 32767};
    int status = LS_OK;
    for (int i = 0; i < 3 && status == LS_OK; i++) {
        fill(spare + i * count, 20 + i, b->rank, count);
        status = ls_send_start(b->comm, spare + i * count, count, LS_F32, next, tags[i],
                               &requests[i], LS_HERE, error);
    }
    const int order[3] = {2, 0, 1}; /* the other tag first */
    for (int i = 0; i < 3 && status == LS_OK; i++)
        status = ls_recv_start(b->comm, spare + (3 + order[i]) * count, count, LS_F32, previous,
                               tags[order[i]], &requests[3 + i], LS_HERE, error);
    for (int i = 0; i < 6 && status == LS_OK; i++)
        status = ls_wait(&requests[i], error);
    for (int i = 0; i < 3 && status == LS_OK; i++)
        status = expect_values(spare + (3 + i) * count, 20 + i, previous, 0, count, "recv", error);
    free(spare);
    TRY(status);

    /* Blocking, along the line of ranks. */
    fill(b->input, 9, 0, count);
    if (b->rank > 0)
        TRY(ls_recv(b->comm, b->output, count, LS_F32, b->rank - 1, 1, error));
    if (b->rank + 1 < b->n)
        TRY(ls_send(b->comm, b->rank ? b->output : b->input, count, LS_F32, b->rank + 1, 1, error));
    return b->rank ? expect_values(b->output, 9, 0, 0, count, "relay", error) : LS_OK;
}

int check_operations(struct ls_comm *comm, int64_t count, struct ls_error *error)
{
    struct bench b = {.comm = comm, .n = ls_comm_size(comm), .rank = ls_comm_rank(comm)};
    b.count = count;
    size_t all = (size_t)ls_max(1, b.n * count);
    b.input = calloc(all, sizeof *b.input);
    b.output = calloc(all, sizeof *b.output);
    int status = b.input && b.output ? LS_OK : ls_error_set(error, LS_ENOMEM, "no memory");
    status = ls_comm_agree(comm, status, error);
    if (status == LS_OK)
        status = check_reductions(&b, error);
    if (status == LS_OK)
        status = check_other_reductions(&b, error);
    if (!status)
        status = check_sums_of_leaves(&b, error);
    if (status == LS_OK)
        status = check_gathers(&b, error);
    if (status == LS_OK)
        status = check_broadcasts(&b, error);
    if (status == LS_OK)
        status = check_pairs(&b, error);
    if (status == LS_OK)
        status = ls_barrier(comm, error);
    if (status != LS_OK)
        ls_error_prefix(error, "%lld elements", (long long)count);
    free(b.output);
    free(b.input);
    return status;
}

int check_many_pending(struct ls_comm *comm, struct ls_error *error)
{
    enum { MANY = LS_COMM_PENDING_MAX, COUNT = 3000 };
    int n = ls_comm_size(comm), rank = ls_comm_rank(comm), status = LS_OK;
    float *buffers = malloc((size_t)MANY * COUNT * sizeof *buffers);
    struct ls_request requests[MANY], extra;
    if (!buffers)
        return ls_error_set(error, LS_ENOMEM, "no memory for a check");
    for (int k = 0; k < MANY && status == LS_OK; k++) {
        fill(buffers + k * COUNT, 30 + k, rank, COUNT);
        status =
            ls_all_reduce_start(comm, buffers + k * COUNT, COUNT - k, &requests[k], LS_HERE, error);
    }
    struct ls_error refused = {0};
    if (status == LS_OK &&
        ls_all_reduce_start(comm, buffers, 1, &extra, LS_HERE, &refused) != LS_EINVAL)
        status = ls_error_set(error, LS_ENUMERIC, "one more than LS_COMM_PENDING_MAX was accepted");
    /* Waits in an order of each rank's own; a blocking operation passes by meanwhile. */
    if (status == LS_OK)
        status = ls_barrier(comm, error);
    for (int i = 0; i < MANY && status == LS_OK; i++) {
        int k = (i * 13 + rank * 7) % MANY;
        status = ls_wait(&requests[k], error);
        if (status == LS_OK)
            status = expect_sum(buffers + k * COUNT, 30 + k, n, 0, COUNT - k, "pending", error);
    }
    free(buffers);
    return status;
}

int check_agreement(struct ls_comm *comm, struct ls_error *error)
{
    int n = ls_comm_size(comm), rank = ls_comm_rank(comm);
    uint64_t words[200];
    for (int i = 0; i < 200; i++)
        words[i] = (uint64_t)(i + 1) * (uint64_t)(rank + 1) + (1ull << 63);
    TRY(ls_all_reduce_u64(comm, words, 200, error));
    for (int i = 0; i < 200; i++) {
        uint64_t expected = (uint64_t)(i + 1) * (uint64_t)(n * (n + 1) / 2) + ((uint64_t)n << 63);
        if (words[i] != expected)
            return ls_error_set(error, LS_ENUMERIC, "u64 sum %d is %llu, expected %llu", i,
                                (unsigned long long)words[i], (unsigned long long)expected);
    }
    struct ls_exact_sum sum = {{0}, 0};
    ls_exact_add(&sum, 1e300);
    ls_exact_add(&sum, rank % 2 ? -2e300 : 0);
    ls_exact_add(&sum, 0x1p-60 * (rank + 1));
    TRY(ls_all_reduce_exact(comm, &sum, error));
    ls_exact_add(&sum, n % 2 ? -1e300 : 0);
    double tiny = 0x1p-60 * n * (n + 1) / 2;
    if (ls_exact_value(&sum) != tiny)
        return ls_error_set(error, LS_ENUMERIC, "exact sum is %a, expected %a",
                            ls_exact_value(&sum), tiny);
    int64_t greatest = -10 - (rank + 1) % n;
    TRY(ls_all_reduce_max(comm, &greatest, error));
    if (greatest != -10)
        return ls_error_set(error, LS_ENUMERIC, "maximum is %lld, expected -10",
                            (long long)greatest);

    TRY(ls_comm_agree(comm, LS_OK, error));
    struct ls_error local = {0};
    int status = LS_OK, failing = n > 2 ? 1 : n - 1;
    if (rank >= failing)
        status = ls_error_set(&local, LS_EDATA - (rank - failing), "shard %d is damaged", rank);
    status = ls_comm_agree(comm, status, &local);
    char expected[64];
    snprintf(expected, sizeof expected,
             rank == failing ? "shard %d is damaged" : "rank %d: shard %d is damaged", failing,
             failing);
    if (status != LS_EDATA || strcmp(local.text, expected) != 0)
        return ls_error_set(error, LS_ENUMERIC, "agreed on %d '%.300s', expected %d '%s'", status,
                            local.text, LS_EDATA, expected);
    /* All know it already: it is said as before. */
    status = ls_comm_agree(comm, status, &local);
    if (status != LS_EDATA || strcmp(local.text, expected) != 0)
        return ls_error_set(error, LS_ENUMERIC, "agreed again on %d '%.300s', expected '%s'",
                            status, local.text, expected);
    return LS_OK;
}

/* Rank among members and size, of ranks 0..n-1 with r % parts == color, in reverse order. */
static int check_group(struct ls_comm *group, int n, int rank, int parts, struct ls_error *error)
{
    int color = rank % parts, size = 0, above = 0;
    for (int r = color; r < n; r += parts) {
        size++;
        above += r > rank;
    }
    if (ls_comm_size(group) != size || ls_comm_rank(group) != above)
        return ls_error_set(error, LS_ENUMERIC,
                            "rank %d is %d of %d in its group, expected %d of %d", rank,
                            ls_comm_rank(group), ls_comm_size(group), above, size);
    return LS_OK;
}

int check_splits(struct ls_comm *comm, struct ls_error *error)
{
    int n = ls_comm_size(comm), rank = ls_comm_rank(comm);
    struct ls_comm *thirds, *pairs, *nested = NULL;
    struct ls_request request;
    float sum[1000], world_sum[1000];
    TRY(ls_comm_split(comm, rank % 3 - 1, -rank, &thirds, error));
    int pair[] = {rank / 2 * 2, rank / 2 * 2 + 1};
    int status = ls_comm_group(comm, pair, pair[1] < n ? 2 : 1, &pairs, error);
    if (status == LS_OK)
        status = check_group(thirds, n, rank, 3, error);
    /* All three groups of all ranks at once. */
    fill(world_sum, 40, rank, 1000);
    if (status == LS_OK)
        status = ls_all_reduce_start(comm, world_sum, 1000, &request, LS_HERE, error);
    if (status == LS_OK)
        status = check_operations(thirds, 777, error);
    if (status == LS_OK)
        status = check_operations(pairs, 555, error);
    if (status == LS_OK)
        status = ls_wait(&request, error);
    if (status == LS_OK)
        status = expect_sum(world_sum, 40, n, 0, 1000, "all_reduce beside splits", error);
    if (status == LS_OK)
        status = ls_comm_split(thirds, 0, ls_comm_rank(thirds), &nested, error);
    fill(sum, 41, nested ? ls_comm_rank(nested) : 0, 1000);
    if (status == LS_OK)
        status = ls_all_reduce(nested, sum, 1000, error);
    if (status == LS_OK)
        status = expect_sum(sum, 41, ls_comm_size(nested), 0, 1000, "nested split", error);
    ls_comm_free(nested);
    ls_comm_free(pairs);
    ls_comm_free(thirds);
    return status;
}

/* The error must hold every one of the texts. */
static int expect_mismatch(int status, const struct ls_error *got, const char *const *texts,
                           struct ls_error *error)
{
    if (status != LS_ECOMM)
        return ls_error_set(error, LS_ENUMERIC, "a mismatch gave %s, expected LS_ECOMM",
                            ls_status_name(status));
    for (; *texts; texts++)
        if (!strstr(got->text, *texts))
            return ls_error_set(error, LS_ENUMERIC, "'%s' is not in '%.600s'", *texts, got->text);
    return LS_OK;
}

int check_mismatch(struct ls_comm *comm, struct ls_error *error)
{
    int n = ls_comm_size(comm), rank = ls_comm_rank(comm);
    bool odd = rank == n - 1;
    float input[64] = {0}, output[64 * 64] = {0};
    struct ls_error got;
    struct ls_call_site here = {"left.c", 11}, there = {"right.c", 22};
    char odd_name[32];
    if (n == 1)
        return LS_OK;
    ls_comm_set_check(comm, true);
    snprintf(odd_name, sizeof odd_name, "rank %d calls", n - 1);

    /* Another operation; both ranks compare against rank 0, whoever comes first. */
    got = (struct ls_error){0};
    int status = odd ? ls_all_gather_start(comm, input, output, 64, LS_F32, NULL, there, &got)
                     : ls_all_reduce_start(comm, input, 64, NULL, here, &got);
    TRY(expect_mismatch(status, &got,
                        (const char *[]){"all_reduce", "all_gather", "left.c:11", "right.c:22",
                                         odd_name, "mismatch", NULL},
                        error));
    /* Another count, not blocking. */
    struct ls_request request;
    got = (struct ls_error){0};
    status = ls_all_reduce_start(comm, input, odd ? 63 : 64, &request, odd ? there : here, &got);
    if (status == LS_OK)
        status = ls_wait(&request, &got);
    TRY(expect_mismatch(
        status, &got,
        (const char *[]){"of 64 F32 (left.c:11)", "of 63 F32 (right.c:22)", odd_name, NULL},
        error));
    /* Another dtype, another root. */
    got = (struct ls_error){0};
    status = ls_all_gather_start(comm, input, output, 16, odd ? LS_BF16 : LS_F16, NULL,
                                 odd ? there : here, &got);
    TRY(expect_mismatch(status, &got, (const char *[]){"16 BF16", "16 F16", odd_name, NULL},
                        error));
    got = (struct ls_error){0};
    status =
        ls_broadcast_start(comm, input, 16, LS_F32, odd ? 0 : 1, NULL, odd ? there : here, &got);
    TRY(expect_mismatch(status, &got, (const char *[]){"root 0", "root 1", odd_name, NULL}, error));
    /* A barrier against something else. */
    got = (struct ls_error){0};
    status = odd ? ls_barrier_at(comm, there, &got)
                 : ls_all_reduce_start(comm, input, 1, NULL, here, &got);
    TRY(expect_mismatch(status, &got, (const char *[]){"barrier (right.c:22)", odd_name, NULL},
                        error));
    /* Leaves that go onto a sum, and that do not. */
    got = (struct ls_error){0};
    status = ls_all_reduce_leaves_start(comm, input, output, 16, (struct ls_comm_leaves){1, odd},
                                        NULL, odd ? there : here, &got);
    TRY(expect_mismatch(status, &got,
                        (const char *[]){"16 F32, a leaf on each 1 (left.c:11)",
                                         "16 F32, a leaf on each 1, onto a sum (right.c:22)",
                                         odd_name, NULL},
                        error));
    /* The group is still of use. */
    status = check_operations(comm, 100, error);
    ls_comm_set_check(comm, false);
    return status;
}

int check_overlap(struct ls_comm *comm, struct ls_error *error)
{
    enum { COUNT = 1 << 18 };
    int n = ls_comm_size(comm), rank = ls_comm_rank(comm), status;
    float *buffer = malloc(COUNT * sizeof *buffer);
    struct ls_request request;
    if (!buffer)
        return ls_error_set(error, LS_ENOMEM, "no memory for a check");
    fill(buffer, 50, rank, COUNT);
    status = ls_barrier(comm, error);
    if (status == LS_OK)
        status = ls_all_reduce_start(comm, buffer, COUNT, &request, LS_HERE, error);
    /* No rank calls anything but sleep and ls_test: whatever moves, moves by itself. */
    while (status == LS_OK && !ls_test(&request))
        await_pause();
    /* Only now may peers come to their waits. */
    if (status == LS_OK)
        status = ls_wait(&request, error);
    if (status == LS_OK)
        status = expect_sum(buffer, 50, n, 0, COUNT, "overlap", error);
    free(buffer);
    return status;
}

/* Until none of the requests would block: only sleep and ls_test. */
static void sleep_until_over(struct ls_request *requests, int count)
{
    for (int i = 0; i < count; i++)
        while (!ls_test(&requests[i]))
            await_pause();
}

int check_many_pairs(struct ls_comm *comm, struct ls_error *error)
{
    enum { MANY = LS_COMM_PENDING_MAX / 2, LONG = 5000 };
    int n = ls_comm_size(comm), rank = ls_comm_rank(comm), status = LS_OK;
    float *sent = malloc((size_t)MANY * LONG * sizeof *sent);
    float *received = calloc((size_t)MANY * LONG, sizeof *received);
    struct ls_request requests[2 * MANY] = {{0}};
    if (!sent || !received)
        status = ls_error_set(error, LS_ENOMEM, "no memory for a check");
    status = ls_comm_agree(comm, status, error);
    /* Message i goes i ranks ahead. */
    for (int i = 0; i < MANY && status == LS_OK; i++)
        status = ls_recv_start(comm, received + i * LONG, i % 2 ? LONG : 10, LS_F32,
                               (rank + n - i % n) % n, i, &requests[i], LS_HERE, error);
    for (int i = 0; i < MANY && status == LS_OK; i++) {
        fill(sent + i * LONG, 60 + i, rank, LONG);
        status = ls_send_start(comm, sent + i * LONG, i % 2 ? LONG : 10, LS_F32, (rank + i) % n, i,
                               &requests[MANY + i], LS_HERE, error);
    }
    if (status == LS_OK)
        sleep_until_over(requests, 2 * MANY);
    for (int i = 0; i < 2 * MANY && status == LS_OK; i++)
        status = ls_wait(&requests[i], error);
    for (int i = 0; i < MANY && status == LS_OK; i++)
        status = expect_values(received + i * LONG, 60 + i, (rank + n - i % n) % n, 0,
                               i % 2 ? LONG : 10, "many pairs", error);
    /* After a failure the buffers stay with what is pending. */
    if (status == LS_OK) {
        free(received);
        free(sent);
    }
    return status;
}

static int expect_stats(const struct ls_comm_stats *before, const struct ls_comm_stats *after,
                        const int64_t expected[LS_COMM_KINDS][2], struct ls_error *error)
{
    int64_t bytes = 0, operations = 0;
    for (int k = 0; k < LS_COMM_KINDS; k++) {
        int64_t kind_bytes = after->kind[k].sent_bytes - before->kind[k].sent_bytes;
        int64_t kind_operations = after->kind[k].operations - before->kind[k].operations;
        if (kind_bytes != expected[k][0] || kind_operations != expected[k][1])
            return ls_error_set(
                error, LS_ENUMERIC, "%s: %lld bytes in %lld operations, expected %lld in %lld",
                ls_comm_kind_name(k), (long long)kind_bytes, (long long)kind_operations,
                (long long)expected[k][0], (long long)expected[k][1]);
        bytes += kind_bytes;
        operations += kind_operations;
    }
    if (bytes != after->sent_bytes - before->sent_bytes ||
        operations != after->operations - before->operations || after->wait_s <= before->wait_s)
        return ls_error_set(
            error, LS_ENUMERIC, "%lld bytes, %lld operations in %g s, expected %lld, %lld",
            (long long)(after->sent_bytes - before->sent_bytes),
            (long long)(after->operations - before->operations), after->wait_s - before->wait_s,
            (long long)bytes, (long long)operations);
    return LS_OK;
}

int check_stats(struct ls_comm *comm, struct ls_error *error)
{
    struct ls_comm_stats before, after;
    int n = ls_comm_size(comm), rank = ls_comm_rank(comm);
    int64_t count = 10 * n, greatest = rank;
    float *input = calloc((size_t)(count * n), sizeof *input);
    float *output = calloc((size_t)(count * n), sizeof *output);
    int status = input && output ? LS_OK : ls_error_set(error, LS_ENOMEM, "no memory");
    ls_comm_get_stats(comm, &before);
    if (status == LS_OK)
        status = ls_all_reduce(comm, input, count, error);
    if (status == LS_OK)
        status = ls_all_reduce_max_f32(comm, input, count, error);
    if (status == LS_OK)
        status = ls_reduce_scatter(comm, input, output, count, error);
    if (status == LS_OK)
        status = ls_reduce_scatter_bf16(comm, input, output, count, error);
    if (status == LS_OK)
        status = ls_all_gather(comm, input, output, count, LS_F32, error);
    if (status == LS_OK)
        status = ls_all_to_all(comm, input, output, count, LS_F32, error);
    if (status == LS_OK)
        status = ls_broadcast(comm, output, count, LS_F32, n - 1, error);
    if (status == LS_OK)
        status = ls_all_reduce_max(comm, &greatest, error);
    ls_comm_get_stats(comm, &after);
    free(output);
    free(input);
    TRY(status);
    int64_t bytes = count * 4;
    const int64_t expected[LS_COMM_KINDS][2] = {
        [LS_COMM_ALL_REDUCE] = {4 * bytes / n * (n - 1), 2},
        [LS_COMM_REDUCE_SCATTER] = {bytes * (n - 1) * 3 / 2, 2},
        [LS_COMM_ALL_GATHER] = {bytes * (n - 1), 1},
        [LS_COMM_ALL_TO_ALL] = {bytes * (n - 1), 1},
        [LS_COMM_BROADCAST] = {rank == n - 1 ? bytes * (n - 1) : 0, 1},
        [LS_COMM_OTHER] = {8 * (n - 1), 1},
    };
    return expect_stats(&before, &after, expected, error);
}

int check_comm(struct ls_comm *comm, struct ls_error *error)
{
    int64_t n = ls_comm_size(comm);
    int64_t counts[] = {0, 1, n - 1, n + 1, 1000, n <= 8 ? 65537 : 8209};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        TRY(check_operations(comm, counts[i], error));
    if (ls_comm_machine_ranks(comm) != n)
        return ls_error_set(error, LS_ENUMERIC, "%d of %d ranks are on this machine, not all",
                            ls_comm_machine_ranks(comm), (int)n);
    TRY(check_many_pending(comm, error));
    TRY(check_agreement(comm, error));
    TRY(check_splits(comm, error));
    TRY(check_mismatch(comm, error));
    TRY(check_overlap(comm, error));
    TRY(check_many_pairs(comm, error));
    return check_stats(comm, error);
}
