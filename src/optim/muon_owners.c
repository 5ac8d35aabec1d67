/* Who orthogonalises which matrix: the largest goes first, to the rank with least to compute. */
#include "optim/muon_matrices.h"

#include <stdlib.h>

/* Products of an iteration, with half of those that are symmetric. */
static double cost_of(const struct ls_param *param)
{
    double small = (double)ls_min(param->global_rows, param->global_cols);
    double large = (double)ls_max(param->global_rows, param->global_cols);
    return small * small * (3 * large + small);
}

static int larger_first(const void *a, const void *b)
{
    const struct muon_matrix *x = a, *y = b;
    double cost_x = cost_of(x->param), cost_y = cost_of(y->param);
    return cost_x != cost_y ? (cost_x < cost_y ? 1 : -1) : x->index - y->index;
}

static int by_round(const void *a, const void *b)
{
    const struct muon_matrix *x = a, *y = b;
    return x->round != y->round ? x->round - y->round : x->owner - y->owner;
}

/* Rank number i in the order in which ranks are taken: the outermost axis fastest, so that few
 * matrices are spread over copies and machines. */
static int nth_rank(const struct ls_mesh *mesh, int i)
{
    int64_t coordinate[LS_MESH_AXES_MAX];
    for (int axis = 0; axis < mesh->axis_count; axis++) {
        coordinate[axis] = i % mesh->size[axis];
        i /= (int)mesh->size[axis];
    }
    return (int)ls_mesh_rank(mesh, coordinate);
}

/* What a rank was given so far. */
struct burden {
    double cost;
    int matrices;
};

static void owners_choose(struct muon_owners *owners, const struct ls_mesh *mesh,
                          struct burden *burden)
{
    for (int m = 0; m < owners->count; m++) {
        struct muon_matrix *matrix = &owners->list[m];
        int least = 0;
        for (int i = 1; i < owners->ranks; i++)
            if (burden[i].cost < burden[least].cost)
                least = i;
        burden[least].cost += cost_of(matrix->param);
        matrix->owner = nth_rank(mesh, least);
        matrix->round = burden[least].matrices++;
        owners->rounds = (int)ls_max(owners->rounds, matrix->round + 1);
    }
}

static int rounds_make(struct muon_owners *owners, struct ls_error *error)
{
    size_t entries = (size_t)owners->rounds * (size_t)owners->ranks;
    owners->of_rank = malloc((entries + 1) * sizeof *owners->of_rank);
    if (!owners->of_rank)
        return ls_no_memory(error, "for the owners of matrices");
    for (size_t i = 0; i < entries; i++)
        owners->of_rank[i] = -1;
    qsort(owners->list, (size_t)owners->count, sizeof *owners->list, by_round);
    for (int m = 0; m < owners->count; m++)
        owners->of_rank[owners->list[m].round * owners->ranks + owners->list[m].owner] = m;
    return LS_OK;
}

int muon_owners_init(struct muon_owners *owners, const struct ls_params *params,
                     struct ls_error *error)
{
    *owners = (struct muon_owners){.ranks = 1};
    owners->list = calloc((size_t)params->count + 1, sizeof *owners->list);
    for (int i = 0; i < params->count && owners->list; i++)
        if (params->list[i].hidden && !params->list[i].frozen)
            owners->list[owners->count++] =
                (struct muon_matrix){.param = &params->list[i], .index = i};
    const struct ls_mesh *mesh = owners->count ? &owners->list[0].param->spec.mesh : NULL;
    if (mesh)
        owners->ranks = (int)ls_mesh_ranks(mesh);
    struct burden *burden = calloc((size_t)owners->ranks, sizeof *burden);
    int status = owners->list && burden ? LS_OK : ls_no_memory(error, "for the owners of matrices");
    if (!status && mesh) {
        qsort(owners->list, (size_t)owners->count, sizeof *owners->list, larger_first);
        owners_choose(owners, mesh, burden);
    }
    if (!status)
        status = rounds_make(owners, error);
    free(burden);
    return status;
}

void muon_owners_release(struct muon_owners *owners)
{
    free(owners->list);
    free(owners->of_rank);
    *owners = (struct muon_owners){0};
}

int muon_source(const struct muon_matrix *matrix, int rank)
{
    const struct ls_dtensor_spec *spec = &matrix->param->spec;
    int64_t at[LS_MESH_AXES_MAX], owner[LS_MESH_AXES_MAX];
    ls_mesh_coordinates(&spec->mesh, rank, at);
    ls_mesh_coordinates(&spec->mesh, matrix->owner, owner);
    for (int axis = 0; axis < spec->mesh.axis_count; axis++)
        if (!ls_placement_cuts(spec->placement[axis]))
            at[axis] = owner[axis];
    return (int)ls_mesh_rank(&spec->mesh, at);
}
