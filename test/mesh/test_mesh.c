#include <lockstep/mesh.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

static const char *const axes5[] = {"pp", "dp_replicate", "dp_shard", "cp", "tp"};

static void test_coordinates_and_back(void **state)
{
    (void)state;
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

static void test_a_mesh_of_no_axes_is_one_rank(void **state)
{
    (void)state;
    struct ls_mesh mesh;
    int64_t group[1];
    assert_int_equal(ls_mesh_init(&mesh, 0, NULL, NULL, NULL), LS_OK);
    assert_int_equal(ls_mesh_ranks(&mesh), 1);
    assert_int_equal(ls_mesh_group(&mesh, 0, NULL, 0, group), 1);
    assert_int_equal(group[0], 0);
}

static void test_groups(void **state)
{
    (void)state;
    const int64_t sizes[] = {2, 1, 3, 1, 2};
    int64_t group[12];
    struct ls_mesh mesh;
    assert_int_equal(ls_mesh_init(&mesh, 5, axes5, sizes, NULL), LS_OK);
    const int tp[] = {4}, dp[] = {1, 2}, pp_and_tp[] = {4, 0}; /* in any order */
    const int64_t with_tp[] = {8, 9}, with_dp[] = {7, 9, 11}, with_both[] = {2, 3, 8, 9};
    assert_int_equal(ls_mesh_group(&mesh, 9, tp, 1, group), 2);
    assert_memory_equal(group, with_tp, sizeof with_tp);
    assert_int_equal(ls_mesh_group(&mesh, 9, dp, 2, group), 3);
    assert_memory_equal(group, with_dp, sizeof with_dp);
    assert_int_equal(ls_mesh_group(&mesh, 9, pp_and_tp, 2, group), 4);
    assert_memory_equal(group, with_both, sizeof with_both);
    assert_int_equal(ls_mesh_group(&mesh, 9, NULL, 0, group), 1);
    assert_int_equal(group[0], 9);
}

/* A slice lays its ranks out as the groups over the same axes do. */
static void test_slices(void **state)
{
    (void)state;
    const int64_t sizes[] = {2, 3, 1, 2, 2};
    int64_t group[24], at[LS_MESH_AXES_MAX], within[LS_MESH_AXES_MAX];
    struct ls_mesh mesh, slice;
    struct ls_error error = {0};
    assert_int_equal(ls_mesh_init(&mesh, 5, axes5, sizes, &error), LS_OK);
    for (int set = 0; set < 1 << 5; set++) {
        const char *names[5];
        int axes[5], count = 0;
        for (int axis = 4; axis >= 0; axis--) { /* in any order */
            if (set >> axis & 1) {
                axes[count] = axis;
                names[count++] = axes5[axis];
            }
        }
        assert_int_equal(ls_mesh_slice(&mesh, count, names, &slice, &error), LS_OK);
        assert_int_equal(slice.axis_count, count);
        for (int64_t rank = 0; rank < 24; rank++) {
            int64_t members = ls_mesh_group(&mesh, rank, axes, count, group);
            int64_t self = ls_mesh_group_rank(&mesh, rank, axes, count);
            assert_int_equal(ls_mesh_ranks(&slice), members);
            assert_int_equal(group[self], rank);
            ls_mesh_coordinates(&mesh, rank, at);
            ls_mesh_coordinates(&slice, self, within);
            for (int i = 0; i < count; i++)
                assert_int_equal(within[ls_mesh_axis(&slice, names[i])], at[axes[i]]);
        }
    }
    const char *const twice[] = {"tp", "tp"}, *const unknown[] = {"tp", "ep"};
    assert_int_equal(ls_mesh_slice(&mesh, 2, twice, &slice, &error), LS_EINVAL);
    assert_string_equal(error.text, "mesh axis tp is named twice");
    assert_int_equal(ls_mesh_slice(&mesh, 2, unknown, &slice, &error), LS_EINVAL);
    assert_string_equal(error.text, "the mesh has no axis ep");
}

static void test_bad_meshes(void **state)
{
    (void)state;
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

/* Every group over every set of axes: its members are ls_mesh_group's, in that order. */
static int split_every_way(struct ls_comm *world, void *user, struct ls_error *error)
{
    const struct ls_mesh *mesh = user;
    int64_t group[16], gathered[16], rank = ls_comm_rank(world);
    for (int set = 0; set < 1 << mesh->axis_count; set++) {
        int axes[LS_MESH_AXES_MAX], count = 0;
        for (int axis = 0; axis < mesh->axis_count; axis++)
            if (set >> axis & 1)
                axes[count++] = axis;
        struct ls_comm *comm;
        int status = ls_mesh_split(mesh, world, axes, count, &comm, error);
        if (status != LS_OK)
            return status;
        int64_t size = ls_mesh_group(mesh, rank, axes, count, group);
        if (size != ls_comm_size(comm))
            status = ls_error_set(error, LS_ENUMERIC, "axes %#x: %d ranks, expected %lld", set,
                                  ls_comm_size(comm), (long long)size);
        else
            status = ls_all_gather(comm, &rank, gathered, 1, LS_I64, error);
        ls_comm_free(comm);
        for (int64_t i = 0; i < size && status == LS_OK; i++)
            if (gathered[i] != group[i])
                status =
                    ls_error_set(error, LS_ENUMERIC, "axes %#x, member %lld: %lld, expected %lld",
                                 set, (long long)i, (long long)gathered[i], (long long)group[i]);
        if (status != LS_OK)
            return status;
    }
    struct ls_mesh other = {.axis_count = 1, .name = {"dp"}, .size = {3}};
    struct ls_comm *comm;
    struct ls_error refused = {0};
    if (ls_mesh_split(&other, world, NULL, 0, &comm, &refused) != LS_EINVAL)
        return ls_error_set(error, LS_ENUMERIC, "a mesh of another size was accepted");
    return LS_OK;
}

static void test_split(void **state)
{
    (void)state;
    const int64_t sizes[] = {2, 1, 3, 2};
    struct ls_mesh mesh;
    struct ls_error error = {0};
    assert_int_equal(ls_mesh_init(&mesh, 4, axes5, sizes, &error), LS_OK);
    if (ls_world_run(12, split_every_way, &mesh, &error) != LS_OK)
        fail_msg("%s", error.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_coordinates_and_back),
        cmocka_unit_test(test_a_mesh_of_no_axes_is_one_rank),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_bad_meshes),
        cmocka_unit_test(test_split),
    };
    return cmocka_run_group_tests_name("mesh", tests, NULL, NULL);
}
