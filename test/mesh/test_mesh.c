/* Meshes: coordinates, groups and splits, on awkward sizes. */
#include "../support/suite.h"

#include <lockstep/mesh.h>

#include <string.h>

static const char *const axes5[] = {"pp", "dp_replicate", "dp_shard", "cp", "tp"};

CASE(test_coordinates_and_back)
{
    const int64_t sizes[] = {2, 1, 3, 2, 4};
    int64_t at[LS_MESH_AXES_MAX];
    struct ls_mesh mesh;
    struct ls_error error = {0};
    assert_int_equal(ls_mesh_init(&mesh, 5, axes5, sizes, &error), LS_OK);
    assert_int_equal(ls_mesh_ranks(&mesh), 48);
    assert_int_equal(ls_mesh_axis(&mesh, "cp"), 3);
    assert_int_equal(ls_mesh_axis(&mesh, "ep"), -1);
    ls_mesh_coordinates(&mesh, 1, at); /* the last axis varies fastest */
    assert_int_equal(at[4], 1);
    assert_int_equal(at[3], 0);
    ls_mesh_coordinates(&mesh, 47, at);
    const int64_t last[] = {1, 0, 2, 1, 3};
    assert_memory_equal(at, last, sizeof last);
    for (int64_t rank = 0; rank < 48; rank++) {
        ls_mesh_coordinates(&mesh, rank, at);
        assert_int_equal(ls_mesh_rank(&mesh, at), rank);
    }
}

CASE(test_a_mesh_of_no_axes_is_one_rank)
{
    struct ls_mesh mesh;
    assert_int_equal(ls_mesh_init(&mesh, 0, NULL, NULL, NULL), LS_OK);
    assert_int_equal(ls_mesh_ranks(&mesh), 1);
    assert_int_equal(ls_mesh_group_size(&mesh, 0), 1);
    assert_int_equal(ls_mesh_group_member(&mesh, 0, 0, 0), 0);
}

static void check_group(const struct ls_mesh *mesh, unsigned axes, int64_t size,
                        const int64_t *members)
{
    assert_int_equal(ls_mesh_group_size(mesh, axes), size);
    for (int64_t i = 0; i < size; i++) {
        assert_int_equal(ls_mesh_group_member(mesh, 9, axes, i), members[i]);
        assert_int_equal(ls_mesh_group_rank(mesh, members[i], axes), i);
    }
}

CASE(test_groups)
{
    const int64_t sizes[] = {2, 1, 3, 1, 2};
    struct ls_mesh mesh;
    assert_int_equal(ls_mesh_init(&mesh, 5, axes5, sizes, NULL), LS_OK);
    const unsigned tp = 1 << 4, dp = 1 << 1 | 1 << 2, pp_and_tp = 1 << 4 | 1 << 0;
    const int64_t with_tp[] = {8, 9}, with_dp[] = {7, 9, 11}, with_both[] = {2, 3, 8, 9}, alone = 9;
    check_group(&mesh, tp, 2, with_tp);
    check_group(&mesh, dp, 3, with_dp);
    check_group(&mesh, pp_and_tp, 4, with_both);
    check_group(&mesh, 0, 1, &alone);
}

/* Whatever the axes, a rank is the member of its group that it says it is. */
CASE(test_members)
{
    const int64_t sizes[] = {2, 3, 1, 2, 2};
    struct ls_mesh mesh;
    struct ls_error error = {0};
    assert_int_equal(ls_mesh_init(&mesh, 5, axes5, sizes, &error), LS_OK);
    for (unsigned set = 0; set < 1 << 5; set++)
        for (int64_t rank = 0; rank < 24; rank++) {
            int64_t self = ls_mesh_group_rank(&mesh, rank, set);
            assert_int_equal(ls_mesh_group_member(&mesh, rank, set, self), rank);
        }
}

CASE(test_bad_meshes)
{
    struct ls_mesh mesh;
    struct ls_error error = {0};
    const int64_t sizes[] = {2, 0}, huge[] = {INT64_MAX, 3}, fine[] = {1, 1};
    const char *const names[] = {"dp", "tp"}, *const twice[] = {"dp", "dp"};
    const char *const empty[] = {"dp", ""}, *const longer[] = {"dp", "sixteen_is_a_lot"};
    assert_int_equal(ls_mesh_init(&mesh, 2, names, sizes, &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "axis tp has size 0"));
    assert_int_equal(ls_mesh_init(&mesh, 2, names, huge, &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "axis tp"));
    assert_int_equal(ls_mesh_init(&mesh, 2, twice, fine, &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "that of axis 0"));
    assert_int_equal(ls_mesh_init(&mesh, 2, empty, fine, &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "axis 1 has no name"));
    assert_int_equal(ls_mesh_init(&mesh, 2, longer, fine, &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "sixteen_is_a_lot"));
    assert_int_equal(ls_mesh_init(&mesh, LS_MESH_AXES_MAX + 1, names, fine, &error), LS_EINVAL);
}

/* Every group over every set of axes: its members are ls_mesh_group_member's. */
static int split_every_way(struct ls_comm *world, void *user, struct ls_error *error)
{
    const struct ls_mesh *mesh = user;
    int64_t gathered[16], rank = ls_comm_rank(world);
    for (unsigned set = 0; set < 1u << mesh->axis_count; set++) {
        struct ls_comm *comm;
        int status = ls_mesh_split(mesh, world, set, "some axes", &comm, error);
        if (status != LS_OK)
            return status;
        int64_t size = ls_mesh_group_size(mesh, set);
        if (size != ls_comm_size(comm))
            status = ls_error_set(error, LS_ENUMERIC, "axes %#x: %d ranks, expected %lld", set,
                                  ls_comm_size(comm), (long long)size);
        else
            status = ls_all_gather(comm, &rank, gathered, 1, LS_I64, error);
        ls_comm_free(comm);
        for (int64_t i = 0; i < size && status == LS_OK; i++) {
            int64_t member = ls_mesh_group_member(mesh, rank, set, i);
            if (gathered[i] != member)
                status =
                    ls_error_set(error, LS_ENUMERIC, "axes %#x, member %lld: %lld, expected %lld",
                                 set, (long long)i, (long long)gathered[i], (long long)member);
        }
        if (status != LS_OK)
            return status;
    }
    struct ls_mesh other = {.axis_count = 1, .name = {"dp"}, .size = {3}};
    struct ls_comm *comm;
    struct ls_error refused = {0};
    if (ls_mesh_split(&other, world, 0, "none", &comm, &refused) != LS_EINVAL)
        return ls_error_set(error, LS_ENUMERIC, "a mesh of another size was accepted");
    return LS_OK;
}

CASE(test_split)
{
    const int64_t sizes[] = {2, 1, 3, 2};
    struct ls_mesh mesh;
    struct ls_error error = {0};
    assert_int_equal(ls_mesh_init(&mesh, 4, axes5, sizes, &error), LS_OK);
    assert_ok(ls_world_run(12, split_every_way, &mesh, &error), error);
}

SUITE_MAIN(NULL, NULL)
