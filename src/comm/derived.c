/* Operations made of the transports' own, on values of the host: integer and exact sums, agreement,
 * splitting. Words are gathered and every rank combines them itself, which any order does alike. */
#include "comm/internal.h"

#include <stdlib.h>
#include <string.h>

/* Nobody else is there to tell this rank anything: what it says is the result. */
static bool alone(const struct ls_comm *comm)
{
    return comm->transport->kind == LS_TRANSPORT_ALONE;
}

/* comm->scratch[r * words + i] = word i of rank r; words <= COMM_SCRATCH_WORDS. */
static int gather_words(struct ls_comm *comm, const uint64_t *value, int64_t words,
                        const char *caller, struct ls_error *error)
{
    return ls_all_gather_start(comm, value, comm->scratch, words, LS_U64, NULL,
                               (struct ls_call_site){caller, 0}, error);
}

int ls_all_reduce_u64(struct ls_comm *comm, uint64_t *value, int64_t count, struct ls_error *error)
{
    for (int64_t first = 0; first < count; first += COMM_SCRATCH_WORDS) {
        int64_t words = ls_min(COMM_SCRATCH_WORDS, count - first);
        int status = gather_words(comm, value + first, words, "ls_all_reduce_u64", error);
        if (status != LS_OK)
            return status;
        for (int64_t i = 0; i < words && !alone(comm); i++) {
            uint64_t sum = 0;
            for (int r = 0; r < comm->size; r++)
                sum += comm->scratch[r * words + i];
            value[first + i] = sum;
        }
    }
    return LS_OK;
}

int ls_all_reduce_exact(struct ls_comm *comm, struct ls_exact_sum *sum, struct ls_error *error)
{
    enum { WORDS = sizeof *sum / sizeof(uint64_t) };
    _Static_assert(sizeof *sum % sizeof(uint64_t) == 0, "an exact sum is whole words");
    _Static_assert((int)WORDS <= (int)COMM_SCRATCH_WORDS, "an exact sum fits the scratch");
    uint64_t words[WORDS];
    memcpy(words, sum, sizeof words);
    int status = gather_words(comm, words, WORDS, "ls_all_reduce_exact", error);
    if (status != LS_OK || alone(comm))
        return status;
    ls_exact_clear(sum);
    for (int r = 0; r < comm->size; r++) {
        struct ls_exact_sum part;
        memcpy(&part, comm->scratch + (size_t)r * WORDS, sizeof part);
        ls_exact_merge(sum, &part);
    }
    return LS_OK;
}

int ls_all_reduce_max(struct ls_comm *comm, int64_t *value, struct ls_error *error)
{
    uint64_t word = (uint64_t)*value;
    int status = gather_words(comm, &word, 1, "ls_all_reduce_max", error);
    if (status != LS_OK || alone(comm))
        return status;
    for (int r = 0; r < comm->size; r++)
        *value = ls_max(*value, (int64_t)comm->scratch[r]);
    return LS_OK;
}

int ls_comm_machines(struct ls_comm *comm, int64_t *first, struct ls_error *error)
{
    int64_t mine = 0;
    while (!ls_comm_on_machine(comm, (int)mine))
        mine++;
    return ls_all_gather(comm, &mine, first, 1, LS_I64, error);
}

int ls_comm_agree(struct ls_comm *comm, int status, struct ls_error *error)
{
    struct ls_call_site site = {"ls_comm_agree", 0};
    struct ls_error local = {0};
    if (status == LS_OK) /* nobody waits for a rank whose commands failed */
        status = ls_queue_synchronise(comm->queue, error);
    uint64_t word = (uint64_t)(int64_t)status;
    int outcome = gather_words(comm, &word, 1, site.file, &local);
    if (outcome != LS_OK)
        return ls_error_copy(error, outcome, &local);
    if (alone(comm))
        return status;
    int failing = 0;
    while (failing < comm->size && (int64_t)comm->scratch[failing] == LS_OK)
        failing++;
    if (failing == comm->size)
        return LS_OK;
    int agreed = (int)(int64_t)comm->scratch[failing];
    struct ls_error theirs = failing == comm->rank && error ? *error : local;
    outcome = ls_broadcast_start(comm, &theirs, sizeof theirs, LS_U8, failing, NULL, site, &local);
    if (outcome != LS_OK)
        return ls_error_copy(error, outcome, &local);
    if (failing != comm->rank && status != agreed && error) { /* else its own text says what it
                                                                 knows */
        ls_error_copy(error, agreed, &theirs);
        ls_error_prefix(error, "rank %d", failing);
    }
    return agreed;
}

struct member {
    int color, key, rank;
};

static int member_compare(const void *left, const void *right)
{
    const struct member *a = left, *b = right;
    if (a->color != b->color)
        return a->color < b->color ? -1 : 1;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->rank - b->rank;
}

/* This rank becomes `rank` of the group of members[size], and all of them know it by one id. */
static int group_make(struct ls_comm *comm, const int *members, int size, int rank,
                      struct ls_comm **out, struct ls_error *error)
{
    const uint64_t made_by[] = {comm->id, comm->sequence, (uint64_t)members[0]};
    int status = comm->transport->split(comm, members, size, rank, out, error);
    if (status)
        return status;
    (*out)->id = ls_hash64(made_by, sizeof made_by, 0);
    (*out)->check = comm->check;
    (*out)->timeout_s = comm->timeout_s;
    ls_comm_set_name(*out, "group");
    return LS_OK;
}

int ls_comm_group(struct ls_comm *comm, const int *members, int size, struct ls_comm **out,
                  struct ls_error *error)
{
    int rank = 0, status = LS_OK;
    *out = NULL;
    while (rank < size && members[rank] != comm->rank)
        rank++;
    if (rank >= size)
        status =
            ls_error_set(error, LS_EINVAL, "rank %d is not in the group that it names", comm->rank);
    status = ls_comm_agree(comm, status, error);
    return status ? status : group_make(comm, members, size, rank, out, error);
}

/* members[returned]: the ranks whose color is this one's, in the order of the new group, in which
 * this one is *rank. From the words that all ranks brought. */
static int members_sort(const struct ls_comm *comm, int color, struct member *all, int *members,
                        int *rank)
{
    int size = 0;
    for (int r = 0; r < comm->size; r++)
        all[r] = (struct member){(int)(uint32_t)(comm->scratch[r] >> 32),
                                 (int)(uint32_t)comm->scratch[r], r};
    qsort(all, (size_t)comm->size, sizeof *all, member_compare);
    for (int i = 0; i < comm->size; i++) {
        if (all[i].color != color)
            continue;
        if (all[i].rank == comm->rank)
            *rank = size;
        members[size++] = all[i].rank;
    }
    return size;
}

int ls_comm_split(struct ls_comm *comm, int color, int key, struct ls_comm **out,
                  struct ls_error *error)
{
    *out = NULL;
    int n = comm->size, rank = 0, status = LS_OK;
    if (alone(comm))
        return ls_error_set(error, LS_ENOTSUP, "a rank that is alone knows no others' colors");
    struct member *all = calloc((size_t)n, sizeof *all);
    int *members = calloc((size_t)n, sizeof *members);
    if (!all || !members)
        status = ls_no_memory(error, "to split %d ranks", n);
    status = ls_comm_agree(comm, status, error);
    uint64_t word = (uint64_t)(uint32_t)color << 32 | (uint32_t)key;
    if (status == LS_OK)
        status = gather_words(comm, &word, 1, "ls_comm_split", error);
    if (status == LS_OK) {
        int size = members_sort(comm, color, all, members, &rank);
        status = group_make(comm, members, size, rank, out, error);
    }
    free(members);
    free(all);
    return status;
}
