/* What is written down of a rank's operations: over thread ranks what they did, and alone the same,
 * with nothing moved. */
#include "../support/suite.h"

#include <lockstep/mesh.h>
#include <lockstep/plan/recording.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 6, COUNT = 12 };
enum { WORLD, ROW, SINGLE };

/* ---- a rank's part in something -------------------------------------------------------------- */

/* Every operation, blocking and not, on the world of 2 x 3 ranks and its rows. */
static int operations_run(struct ls_comm *world, struct ls_comm *row, struct ls_error *error)
{
    float a[3 * COUNT] = {0}, b[3 * COUNT] = {0};
    int rank = ls_comm_rank(row), next = (rank + 1) % 3, before = (rank + 2) % 3, status;
    struct ls_request request[4] = {{0}};
    char first[] = "first", second[] = "second"; /* gone when this returns */
    ls_comm_label(row, first);
    status = ls_all_reduce_start(row, a, COUNT, &request[0], LS_HERE, error);
    ls_comm_label(row, second);
    if (!status)
        status = ls_recv_start(row, b, 5, LS_F32, before, 7, &request[1], LS_HERE, error);
    if (!status)
        status = ls_send_start(row, a + COUNT, 5, LS_F32, next, 7, &request[2], LS_HERE, error);
    ls_comm_label(row, NULL);
    if (!status)
        status = ls_wait(&request[1], error);
    if (!status)
        status = ls_broadcast(row, b + COUNT, 3, LS_BF16, 2, error);
    if (!status)
        status = ls_wait(&request[0], error);
    if (!status)
        status = ls_reduce_scatter_bf16(row, a, b, COUNT, error);
    if (!status)
        status = ls_all_reduce_max_f32(world, a, 4, error);
    if (!status)
        status = ls_all_to_all(row, a, b, COUNT, LS_U8, error);
    if (!status)
        status = ls_barrier(world, error);
    uint64_t word = 7;
    if (!status)
        status = ls_all_reduce_u64(world, &word, 1, error);
    if (!status)
        status = ls_all_gather_start(row, b, a, COUNT, LS_F32, &request[3], LS_HERE, error);
    if (!status)
        status = ls_wait(&request[2], error);
    return status ? status : ls_wait(&request[3], error);
}

static int rank_run(struct ls_comm *world, struct ls_recording *recording, struct ls_error *error)
{
    struct ls_mesh mesh;
    struct ls_comm *row = NULL, *single = NULL;
    const char *const names[] = {"column", "row"};
    const int64_t sizes[] = {2, 3};
    const struct ls_queue_watch watch = ls_recording_watch(recording);
    struct ls_queue queue = {.watch = &watch};
    int status = ls_mesh_init(&mesh, 2, names, sizes, error);
    if (!status)
        status = ls_mesh_split(&mesh, world, 1 << 1, "row", &row, error);
    if (!status)
        status = ls_mesh_split(&mesh, world, 0, "single", &single, error);
    if (!status) {
        ls_recording_group(recording, world, WORLD);
        ls_recording_group(recording, row, ROW);
        ls_recording_group(recording, single, SINGLE);
        ls_comm_set_queue(world, &queue);
        ls_comm_set_queue(row, &queue);
        ls_comm_set_queue(single, &queue);
        status = ls_barrier(single, error);
    }
    if (!status)
        status = operations_run(world, row, error);
    ls_comm_set_queue(world, NULL);
    if (!status)
        status = ls_barrier(world, error);
    ls_comm_free(single);
    ls_comm_free(row);
    return status;
}

static int rank_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct ls_recording *recordings = user;
    return rank_run(world, &recordings[ls_comm_rank(world)], error);
}

/* What each of RANKS thread ranks does, to be released. */
static void ranks_record(struct ls_recording *recordings)
{
    struct ls_error error = {0};
    for (int r = 0; r < RANKS; r++)
        ls_recording_init(&recordings[r]);
    assert_ok(ls_world_run(RANKS, rank_body, recordings, &error), error);
}

/* ---- comparison ------------------------------------------------------------------------------ */

static bool text_same(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool recorded_same(const struct ls_recorded *a, const struct ls_recorded *b)
{
    const struct ls_operation *x = &a->operation, *y = &b->operation;
    return a->group == b->group && text_same(x->name, y->name) && x->kind == y->kind &&
           x->dtype == y->dtype && x->count == y->count && x->receive == y->receive &&
           x->peer == y->peer && x->tag == y->tag && text_same(x->label, y->label) &&
           x->site.line == y->site.line && a->until == b->until;
}

/* What rank 4 did. */
static const struct ls_recorded want[] = {
    {.group = ROW,
     .operation = {"all_reduce", .count = COUNT, .peer = -1, .label = "first"},
     .until = 4},
    {.group = ROW,
     .operation = {"recv", .kind = LS_COMM_SEND, .count = 5, .receive = true, .peer = 0, .tag = 7,
                   .label = "second"},
     .until = 3},
    {.group = ROW,
     .operation = {"send", .kind = LS_COMM_SEND, .count = 5, .peer = 2, .tag = 7,
                   .label = "second"},
     .until = 10},
    {.group = ROW,
     .operation = {"broadcast", .kind = LS_COMM_BROADCAST, .dtype = LS_BF16, .count = 3, .peer = 2},
     .until = 4},
    {.group = ROW,
     .operation = {"reduce_scatter_bf16", .kind = LS_COMM_REDUCE_SCATTER, .dtype = LS_BF16,
                   .count = COUNT, .peer = -1},
     .until = 5},
    {.group = WORLD, .operation = {"all_reduce_max", .count = 4, .peer = -1}, .until = 6},
    {.group = ROW,
     .operation = {"all_to_all", .kind = LS_COMM_ALL_TO_ALL, .dtype = LS_U8, .count = COUNT,
                   .peer = -1},
     .until = 7},
    {.group = WORLD,
     .operation = {"barrier", .kind = LS_COMM_OTHER, .dtype = LS_U8, .peer = -1},
     .until = 8},
    {.group = WORLD,
     .operation = {"all_gather", .kind = LS_COMM_OTHER, .dtype = LS_U64, .count = 1, .peer = -1},
     .until = 9},
    {.group = ROW,
     .operation = {"all_gather", .kind = LS_COMM_ALL_GATHER, .count = COUNT, .peer = -1},
     .until = 10},
};

CASE(test_what_is_recorded)
{
    struct ls_recording recordings[RANKS];
    ranks_record(recordings);
    const int64_t count = sizeof want / sizeof *want;
    assert_int_equal(recordings[4].count, count);
    for (int64_t i = 0; i < count; i++) {
        struct ls_recorded expected = want[i];
        expected.operation.site = recordings[4].list[i].operation.site;
        if (!recorded_same(&recordings[4].list[i], &expected))
            fail_msg("operation %ld: %s on %d", (long)i, recordings[4].list[i].operation.name,
                     recordings[4].list[i].group);
    }
    for (int r = 0; r < RANKS; r++)
        ls_recording_release(&recordings[r]);
}

/* A rank alone does the same, in a world of any size. */
CASE(test_alone_is_as_among_others)
{
    struct ls_recording recordings[RANKS];
    struct ls_error error = {0};
    ranks_record(recordings);
    for (int r = 0; r < RANKS; r++) {
        struct ls_recording alone;
        struct ls_comm *world;
        ls_recording_init(&alone);
        assert_int_equal(ls_comm_alone_new(r, RANKS, &world, &error), LS_OK);
        assert_string_equal(ls_transport_name(ls_comm_transport(world)), "alone");
        assert_ok(rank_run(world, &alone, &error), error);
        ls_comm_free(world);
        assert_int_equal(alone.count, recordings[r].count);
        for (int64_t i = 0; i < alone.count; i++)
            if (!recorded_same(&alone.list[i], &recordings[r].list[i]))
                fail_msg("rank %d, operation %ld: alone %s, among others %s", r, (long)i,
                         alone.list[i].operation.name, recordings[r].list[i].operation.name);
        ls_recording_release(&alone);
        ls_recording_release(&recordings[r]);
    }
}

/* ---- alone ----------------------------------------------------------------------------------- */

CASE(test_alone_moves_nothing)
{
    struct ls_comm *world, *group;
    struct ls_error error = {0};
    struct ls_request request;
    float *nowhere = (float *)64; /* is not read, nor written */
    assert_int_equal(ls_comm_alone_new(70000, 100000, &world, &error), LS_OK);
    assert_int_equal(ls_comm_size(world), 100000);
    assert_int_equal(ls_comm_rank(world), 70000);
    assert_int_equal(ls_all_reduce(world, nowhere, 1 << 20, &error), LS_OK);
    assert_int_equal(
        ls_all_gather_start(world, nowhere, nowhere, 9, LS_F32, &request, LS_HERE, &error), LS_OK);
    assert_false(ls_test(&request));
    assert_int_equal(ls_wait(&request, &error), LS_OK);
    assert_int_equal(ls_comm_split(world, 0, 0, &group, &error), LS_ENOTSUP);
    const int others[] = {3, 4};
    assert_int_equal(ls_comm_group(world, others, 2, &group, &error), LS_EINVAL);
    const int members[] = {99999, 70000, 5};
    assert_int_equal(ls_comm_group(world, members, 3, &group, &error), LS_OK);
    assert_int_equal(ls_comm_rank(group), 1);
    assert_int_equal(ls_comm_size(group), 3);
    ls_comm_free(group);
    ls_comm_free(world);
    assert_int_equal(ls_comm_alone_new(3, 3, &world, &error), LS_EINVAL);
}

/* What it would be told is what it says. */
CASE(test_alone_hears_itself)
{
    struct ls_comm *world;
    struct ls_error error = {0};
    struct ls_exact_sum sum;
    uint64_t words[200];
    int64_t largest = -5;
    assert_int_equal(ls_comm_alone_new(2, 9, &world, &error), LS_OK);
    for (int i = 0; i < 200; i++)
        words[i] = (uint64_t)i;
    assert_int_equal(ls_all_reduce_u64(world, words, 200, &error), LS_OK);
    for (int i = 0; i < 200; i++)
        assert_int_equal(words[i], i);
    ls_exact_clear(&sum);
    ls_exact_add(&sum, 2.5);
    assert_int_equal(ls_all_reduce_exact(world, &sum, &error), LS_OK);
    assert_true(ls_exact_value(&sum) == 2.5);
    assert_int_equal(ls_all_reduce_max(world, &largest, &error), LS_OK);
    assert_int_equal(largest, -5);
    assert_int_equal(ls_comm_agree(world, LS_OK, &error), LS_OK);
    assert_int_equal(ls_comm_agree(world, LS_EIO, &error), LS_EIO);
    ls_comm_free(world);
}

/* Thousands of texts and operations are all kept. */
CASE(test_long_recordings)
{
    struct ls_comm *world;
    struct ls_error error = {0};
    struct ls_recording recording;
    char label[32];
    float value = 0;
    ls_recording_init(&recording);
    assert_int_equal(ls_comm_alone_new(0, 2, &world, &error), LS_OK);
    const struct ls_queue_watch watch = ls_recording_watch(&recording);
    struct ls_queue queue = {.watch = &watch};
    ls_comm_set_queue(world, &queue);
    ls_recording_group(&recording, world, WORLD);
    ls_comm_label(world, label);
    for (int i = 0; i < 5000; i++) {
        snprintf(label, sizeof label, "tensor %d", i / 2);
        assert_int_equal(ls_all_reduce(world, &value, 1, &error), LS_OK);
    }
    ls_comm_free(world);
    assert_int_equal(recording.count, 5000);
    for (int i = 0; i < 5000; i++) {
        snprintf(label, sizeof label, "tensor %d", i / 2);
        assert_string_equal(recording.list[i].operation.label, label);
        assert_int_equal(recording.list[i].until, i + 1);
    }
    assert_int_equal(recording.texts_count, 2500);
    ls_recording_release(&recording);
}

SUITE_MAIN(NULL, NULL)
