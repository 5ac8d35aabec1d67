/* Tensors made of parts and of wholes; gradients of redistributions; what is refused. */
#include "../support/suite.h"
#include "cases.h"

#include <stdlib.h>
#include <string.h>

static void run_ranks(int64_t n, int (*body)(struct ls_comm *, void *, struct ls_error *),
                      void *user)
{
    struct ls_error error = {0};
    if (ls_world_run((int)n, body, user, &error) != LS_OK)
        fail_msg("%d ranks: %s", (int)n, error.text);
}

struct layout {
    const char *shape, *mesh, *placements;
};

static int64_t ranks_of(const char *mesh)
{
    int64_t sizes[LS_MESH_AXES_MAX], ranks = 1;
    for (int axis = cases_sizes(mesh, sizes); axis-- > 0;)
        ranks *= sizes[axis];
    return ranks;
}

/* ---- wholes ---------------------------------------------------------------------------------- */

/* Rank 0's tensor goes out; the parts are right, a whole made of them is, and a copy from a replica
 * gives the same bytes. */
static int body_distribute(struct ls_comm *comm, void *user, struct ls_error *error)
{
    const struct layout *layout = user;
    struct ls_dtensor_spec spec = cases_spec(layout->shape, layout->mesh, layout->placements);
    struct ls_mesh_comms comms = {0};
    struct ls_dtensor sent = {0}, copied = {0};
    int64_t count = ls_dtensor_count(&spec);
    float *whole = malloc((size_t)(count + 1) * sizeof *whole);
    float *back = malloc((size_t)(count + 1) * sizeof *back);
    for (int64_t i = 0; i < count; i++)
        whole[i] = (float)i;
    int status = ls_mesh_comms_init(&comms, &spec.mesh, comm, error);
    if (status == LS_OK)
        status = ls_dtensor_init(&sent, &spec, comms.rank, NULL, error);
    if (status == LS_OK)
        status = ls_dtensor_init(&copied, &spec, comms.rank, NULL, error);
    if (status == LS_OK)
        status = ls_distribute(&sent, comms.rank == 0 ? whole : NULL, &comms, error);
    if (status == LS_OK)
        status = ls_distribute_replicated(&copied, whole, error);
    if (status == LS_OK &&
        memcmp(sent.data, copied.data, (size_t)sent.local_count * sizeof(float)) != 0)
        status = ls_error_set(error, LS_ENUMERIC, "rank %d got other bytes than a replica has",
                              (int)comms.rank);
    if (status == LS_OK)
        status = ls_full_tensor(&sent, back, &comms, error);
    if (status == LS_OK && memcmp(back, whole, (size_t)count * sizeof *whole) != 0)
        status =
            ls_error_set(error, LS_ENUMERIC, "the whole is another on rank %d", (int)comms.rank);
    free(back);
    free(whole);
    ls_dtensor_release(&copied);
    ls_dtensor_release(&sent);
    ls_mesh_comms_release(&comms);
    return status == LS_OK ? LS_OK
                           : ls_error_prefix(error, "%s on %s as %s", layout->shape, layout->mesh,
                                             layout->placements);
}

CASE(test_distribute)
{
    static const struct layout layouts[] = {{"888x12", "4", "S0"},
                                            {"7x5", "1", "S0"},
                                            {"7x5", "3", "R"},
                                            {"3x2", "5", "S0"},
                                            {"5x12", "11", "S1/2"},
                                            {"7x5", "6", "P"},
                                            {"7x5", "3", "Pmax"},
                                            {"11x7", "2x2", "S0,S0"},
                                            {"11x7", "2x3", "S0/3,S0"},
                                            {"11x7", "3x2", "R,S1"},
                                            {"11x7", "4x3", "S1,R"},
                                            {"11x7", "2x3", "P,S0"},
                                            {"11x7", "2x3", "S0,P"},
                                            {"11x7", "1x3", "S0,S1"},
                                            {"11x7", "3x1", "S0,S1"},
                                            {"11x7", "2x2", "P,Pavg"},
                                            {"-", "3", "R"},
                                            {"0x4", "3", "S0"},
                                            {"5x6", "2x3x2", "S0,S1,R"},
                                            {"5x6", "2x3x2", "S0/4,S0/2,S0"}};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        run_ranks(ranks_of(layouts[i].mesh), body_distribute, (void *)&layouts[i]);
}

/* Other types move, too; sums of them are refused on every rank. */
static int body_bytes(struct ls_comm *comm, void *user, struct ls_error *error)
{
    enum ls_dtype dtype = *(enum ls_dtype *)user;
    struct ls_dtensor_spec rows = cases_spec("7x3", "4", "S0"), columns, sum;
    struct ls_mesh_comms comms = {0};
    struct ls_dtensor a = {0}, b = {0}, c = {0};
    size_t bytes = ls_dtype_bytes(dtype);
    uint8_t whole[21 * 8], back[21 * 8];
    for (size_t i = 0; i < sizeof whole; i++)
        whole[i] = (uint8_t)(i * 7 + 1);
    rows.dtype = dtype;
    int status = ls_mesh_comms_init(&comms, &rows.mesh, comm, error);
    if (status != LS_OK)
        return status;
    ls_dtensor_spec_place(&columns, &rows, (struct ls_placement[]){ls_shard(1)}, error);
    ls_dtensor_spec_place(&sum, &rows, (struct ls_placement[]){ls_partial(LS_REDUCE_SUM)}, error);
    ls_dtensor_init(&a, &rows, comms.rank, NULL, error);
    ls_dtensor_init(&b, &columns, comms.rank, NULL, error);
    ls_dtensor_init(&c, &sum, comms.rank, NULL, error);
    status = ls_distribute(&a, whole, &comms, error);
    if (status == LS_OK)
        status = ls_redistribute(&a, &b, &comms, error);
    if (status == LS_OK)
        status = ls_full_tensor(&b, back, &comms, error);
    if (status == LS_OK && memcmp(whole, back, 21 * bytes) != 0)
        status = ls_error_set(error, LS_ENUMERIC, "%s did not come back", ls_dtype_name(dtype));
    struct ls_error got = {0};
    if (status == LS_OK && dtype != LS_F32 &&
        (ls_redistribute(&c, &b, &comms, &got) != LS_EINVAL || !strstr(got.text, "only F32")))
        status =
            ls_error_set(error, LS_ENUMERIC, "a sum of %s: %s", ls_dtype_name(dtype), got.text);
    ls_dtensor_release(&c);
    ls_dtensor_release(&b);
    ls_dtensor_release(&a);
    ls_mesh_comms_release(&comms);
    return status;
}

CASE(test_every_type_moves)
{
    for (enum ls_dtype dtype = LS_F32; dtype <= LS_U64; dtype++)
        run_ranks(4, body_bytes, &dtype);
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* Shapes are inferred from the parts, uneven ones too. Case 1: a part one row short. */
static int body_from_local(struct ls_comm *comm, void *user, struct ls_error *error)
{
    int broken = *(int *)user;
    struct ls_dtensor_spec spec = cases_spec("11x7", "2x3", "S0/3,S0");
    struct ls_mesh_comms comms = {0};
    struct ls_dtensor mine = {0}, tensor = {0};
    int status = ls_mesh_comms_init(&comms, &spec.mesh, comm, error);
    if (status == LS_OK)
        status = ls_dtensor_init(&mine, &spec, comms.rank, NULL, error);
    if (status != LS_OK)
        goto out;
    cases_fill(&mine);
    int64_t shape[2] = {mine.local_shape[0] - (broken && comms.rank == 1), mine.local_shape[1]};
    status = ls_from_local(&tensor, LS_F32, 2, shape, mine.data, spec.placement, &comms, error);
    if (!broken && status == LS_OK && (tensor.spec.shape[0] != 11 || tensor.spec.shape[1] != 7))
        status = ls_error_set(error, LS_ENUMERIC, "shape %dx%d", (int)tensor.spec.shape[0],
                              (int)tensor.spec.shape[1]);
    if (!broken && status == LS_OK && ls_to_local(&tensor) != mine.data)
        status = ls_error_set(error, LS_ENUMERIC, "the part was copied");
    if (!broken && status == LS_OK)
        status = cases_check(&tensor, 1, error);
    if (broken)
        status = status == LS_EINVAL && strstr(error->text, "rank ") &&
                         strstr(error->text, "the parts make a tensor of shape [10, 7]")
                     ? LS_OK
                     : ls_error_set(error, LS_ENUMERIC, "got %d: %.300s", status, error->text);
out:
    ls_dtensor_release(&tensor);
    ls_dtensor_release(&mine);
    ls_mesh_comms_release(&comms);
    return status;
}

CASE(test_from_local)
{
    for (int broken = 0; broken < 2; broken++)
        run_ranks(6, body_from_local, &broken);
}

/* ---- gradients ------------------------------------------------------------------------------- */

struct backward {
    const char *mesh, *input, *output, *gradient, *expected;
};

/* Inner products agree: <redistribute(x), g> = <x, backward(g)> for the global values, which are
 * small integers: element i of x is i, of g factor * i. */
static int body_backward(struct ls_comm *comm, void *user, struct ls_error *error)
{
    const struct backward *b = user;
    struct ls_dtensor_spec input = cases_spec("5x6", b->mesh, b->input);
    struct ls_dtensor_spec gradient_spec = cases_spec("5x6", b->mesh, b->gradient);
    struct ls_dtensor_spec expected = cases_spec("5x6", b->mesh, b->expected), back_spec;
    struct ls_placement placements[LS_MESH_AXES_MAX];
    struct ls_mesh_comms comms = {0};
    struct ls_dtensor gradient = {0}, back = {0};
    float whole[30], sent[30];
    int status = ls_mesh_comms_init(&comms, &input.mesh, comm, error);
    if (status == LS_OK)
        status = ls_redistribute_backward_placements(&input, &gradient_spec, placements, error);
    for (int axis = 0; status == LS_OK && axis < input.mesh.axis_count; axis++)
        if (!ls_placement_equal(placements[axis], expected.placement[axis]))
            status = ls_error_set(error, LS_ENUMERIC, "axis %d has another placement", axis);
    if (status == LS_OK)
        status = ls_dtensor_spec_place(&back_spec, &input, placements, error);
    if (status == LS_OK)
        status = ls_dtensor_init(&gradient, &gradient_spec, comms.rank, NULL, error);
    if (status == LS_OK)
        status = ls_dtensor_init(&back, &back_spec, comms.rank, NULL, error);
    if (status == LS_OK) {
        cases_fill(&gradient);
        status = ls_redistribute_backward(&gradient, &input, &back, &comms, error);
    }
    if (status == LS_OK)
        status = ls_full_tensor(&gradient, sent, &comms, error);
    if (status == LS_OK)
        status = ls_full_tensor(&back, whole, &comms, error);
    if (status == LS_OK && memcmp(whole, sent, sizeof whole) != 0)
        status = ls_error_set(error, LS_ENUMERIC, "element 1 of the gradient was %g and became %g",
                              (double)sent[1], (double)whole[1]);
    ls_dtensor_release(&back);
    ls_dtensor_release(&gradient);
    ls_mesh_comms_release(&comms);
    return status == LS_OK ? LS_OK
                           : ls_error_prefix(error, "%s: %s to %s, gradient %s", b->mesh, b->input,
                                             b->output, b->gradient);
}

CASE(test_backward)
{
    static const struct backward cases[] = {
        {"3", "S0", "R", "P", "S0"},   /* all-gather: reduce-scatter */
        {"3", "S0", "R", "R", "S0"},   /* a slice where the gradient is a replica */
        {"3", "R", "S1", "S1", "R"},   /* slice: all-gather */
        {"3", "P", "R", "R", "R"},     /* all-reduce: nothing */
        {"3", "P", "S0", "S0", "R"},   /* reduce-scatter: all-gather */
        {"3", "S0", "S1", "S1", "S0"}, /* all-to-all: all-to-all */
        {"3", "R", "P", "R", "R"},
        {"3", "R", "P", "P", "R"},
        {"3", "P", "P", "P", "P"},                     /* stays pending */
        {"2x3", "S0/3,S0", "R,S0", "P,S0", "S0/3,S0"}, /* FSDP over TP */
        {"2x3", "P,S1", "S0,S1", "S0,S1", "R,S1"},
        {"2x2", "Pavg,P", "R,R", "R,R", "R,R"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_ranks(ranks_of(cases[i].mesh), body_backward, (void *)&cases[i]);
}

/* ---- refusals -------------------------------------------------------------------------------- */

CASE(test_refused_plans)
{
    struct ls_redistribute_step steps[LS_REDISTRIBUTE_STEPS_MAX];
    struct ls_placement placements[LS_MESH_AXES_MAX];
    struct ls_dtensor_spec a = cases_spec("4x6", "2", "S0"), b = cases_spec("4x5", "2", "S0");
    struct ls_dtensor_spec c = cases_spec("4x6", "3", "S0"), max = cases_spec("4x6", "2", "Pmax");
    struct ls_error error = {0};
    assert_int_equal(ls_redistribute_plan(&a, &b, 0, steps, &error), LS_EINVAL);
    assert_string_equal(error.text, "a tensor cannot be redistributed to another type or shape "
                                    "(F32, 2 dims to F32, 2 dims)");
    assert_int_equal(ls_redistribute_plan(&a, &c, 0, steps, &error), LS_EINVAL);
    assert_string_equal(error.text, "a tensor cannot be redistributed to another mesh; use "
                                    "ls_overlap between meshes");
    assert_int_equal(ls_redistribute_backward_placements(&max, &a, placements, &error), LS_EINVAL);
    assert_string_equal(error.text, "Partial(max) on axis a cannot be redistributed backward: the "
                                    "gradient belongs to the rank whose value was taken");
}

/* One rank has no tensor to send, or two with one buffer: every rank hears of it. */
static int body_refused(struct ls_comm *comm, void *user, struct ls_error *error)
{
    struct ls_dtensor_spec spec = cases_spec("4x6", "3", "S0");
    struct ls_mesh_comms comms = {0};
    struct ls_dtensor a = {0}, b = {0};
    struct ls_dtensor_spec other = cases_spec("4x6", "1x3", "R,S0");
    struct ls_dtensor c = {0};
    struct ls_error none = {0}, same = {0}, mesh = {0};
    int status = ls_mesh_comms_init(&comms, &spec.mesh, comm, error);
    if (status != LS_OK)
        return status;
    ls_dtensor_init(&a, &spec, comms.rank, NULL, error);
    ls_dtensor_init(&b, &spec, comms.rank, comms.rank == 1 ? a.data : NULL, error);
    if (ls_distribute(&a, NULL, &comms, &none) != LS_EINVAL ||
        ls_redistribute(&a, &b, &comms, &same) != LS_EINVAL ||
        !strstr(none.text, "distribute: rank 0 passed no tensor") ||
        !strstr(same.text, "redistribute: both tensors use the same buffer"))
        status =
            ls_error_set(error, LS_ENUMERIC, "got \"%.200s\" and \"%.200s\"", none.text, same.text);
    ls_dtensor_init(&c, &other, comms.rank, NULL, error);
    if (ls_distribute(&c, c.data, &comms, &mesh) != LS_EINVAL ||
        !strstr(mesh.text, "distribute: the tensor's mesh (2 axes, 3 ranks) is not that of the "
                           "communicators (1 axes, 3 ranks)"))
        status = ls_error_set(error, LS_ENUMERIC, "got \"%.200s\"", mesh.text);
    if (ls_full_tensor(&a, NULL, &comms, &none) != LS_EINVAL ||
        !strstr(none.text, "redistribute: a tensor has no buffer"))
        status = ls_error_set(error, LS_ENUMERIC, "got \"%.200s\"", none.text);
    ls_dtensor_release(&c);
    ls_dtensor_release(&b);
    ls_dtensor_release(&a);
    ls_mesh_comms_release(&comms);
    return status;
}

CASE(test_one_rank_refused_is_all)
{
    run_ranks(3, body_refused, NULL);
}

/* Blocks of more bytes than there are: every rank hears of it, and no value is touched. */
static int body_memory(struct ls_comm *comm, void *user, struct ls_error *error)
{
    struct ls_dtensor_spec rows = cases_spec("1x1152921504606846976", "5", "S0"), whole;
    struct ls_mesh_comms comms = {0};
    struct ls_dtensor a = {0}, b = {0};
    struct ls_error got = {0};
    float none[2] = {0};
    int status = ls_mesh_comms_init(&comms, &rows.mesh, comm, error);
    if (status != LS_OK)
        return status;
    ls_dtensor_spec_place(&whole, &rows, (struct ls_placement[]){ls_replicate()}, error);
    ls_dtensor_init(&a, &rows, comms.rank, &none[0], error);
    ls_dtensor_init(&b, &whole, comms.rank, &none[1], error);
    if (ls_redistribute(&a, &b, &comms, &got) != LS_ENOMEM || !strstr(got.text, "no memory for"))
        status = ls_error_set(error, LS_ENUMERIC, "got \"%.200s\"", got.text);
    ls_mesh_comms_release(&comms);
    return status;
}

CASE(test_no_memory_on_the_way)
{
    run_ranks(5, body_memory, NULL);
}

SUITE_MAIN(NULL, NULL)
