/* Reads the cases of test/golden/dtensor.txt. */
#include "cases.h"
#include "../support/suite.h"

#include <stdlib.h>
#include <string.h>

FILE *cases_open(void)
{
    FILE *file = fopen("test/golden/dtensor.txt", "r");
    if (!file)
        fail_msg("test/golden/dtensor.txt is not there: run from the repository's root");
    return file;
}

char *cases_next(FILE *file, const char *kind, char **line, size_t *capacity)
{
    while (getline(line, capacity, file) >= 0) {
        (*line)[strcspn(*line, "\n")] = 0;
        if (strncmp(*line, kind, strlen(kind)) == 0)
            return *line + strlen(kind) + 1;
    }
    return NULL;
}

char *cases_word(char **text)
{
    char *word = strsep(text, " ");
    return word && *word ? word : NULL;
}

int cases_sizes(const char *word, int64_t *sizes)
{
    int count = 0;
    if (*word == '-')
        return 0;
    do {
        char *end;
        sizes[count++] = strtoll(word, &end, 10);
        word = end;
    } while (*word++ == 'x');
    return count;
}

void cases_mesh(const char *word, struct ls_mesh *mesh)
{
    const char *const names[] = {"a", "b", "c"};
    int64_t sizes[LS_MESH_AXES_MAX];
    struct ls_error error = {0};
    int count = cases_sizes(word, sizes);
    if (ls_mesh_init(mesh, count, names, sizes, &error) != LS_OK)
        fail_msg("mesh %s: %s", word, error.text);
}

int cases_placements(const char *word, struct ls_placement *placements)
{
    int count = 0;
    do {
        if (*word == 'R')
            placements[count++] = ls_replicate();
        else if (*word == 'P')
            placements[count++] = ls_partial(word[1] == 'a'   ? LS_REDUCE_AVG
                                             : word[1] != 'm' ? LS_REDUCE_SUM
                                             : word[2] == 'a' ? LS_REDUCE_MAX
                                                              : LS_REDUCE_MIN);
        else if (word[2] == '/')
            placements[count++] = ls_strided_shard(word[1] - '0', atoi(word + 3));
        else
            placements[count++] = ls_shard(word[1] - '0');
        word += strcspn(word, ",");
    } while (*word++ == ',');
    return count;
}

struct ls_dtensor_spec cases_spec(const char *shape_word, const char *mesh_word,
                                  const char *placement_words)
{
    struct ls_dtensor_spec spec;
    struct ls_mesh mesh;
    struct ls_error error = {0};
    struct ls_placement placements[LS_MESH_AXES_MAX];
    int64_t shape[LS_DTENSOR_DIMS_MAX];
    int dims = cases_sizes(shape_word, shape);
    cases_mesh(mesh_word, &mesh);
    assert_int_equal(cases_placements(placement_words, placements), mesh.axis_count);
    if (ls_dtensor_spec_init(&spec, LS_F32, dims, shape, &mesh, placements, &error) != LS_OK)
        fail_msg("%s on %s as %s: %s", shape_word, mesh_word, placement_words, error.text);
    return spec;
}

void cases_fill(struct ls_dtensor *tensor)
{
    int64_t coordinates[LS_MESH_AXES_MAX];
    float factor = 1;
    struct ls_runs runs;
    struct ls_run run;
    ls_mesh_coordinates(&tensor->spec.mesh, tensor->rank, coordinates);
    for (int axis = 0; axis < tensor->spec.mesh.axis_count; axis++)
        if (tensor->spec.placement[axis].kind == LS_PARTIAL)
            factor *= (float)(coordinates[axis] + 1);
    ls_runs_init(&runs, &tensor->spec, tensor->rank);
    while (ls_runs_next(&runs, &run))
        for (int64_t i = 0; i < run.count; i++)
            ((float *)tensor->data)[run.local + i] = factor * (float)(run.global + i);
}

int cases_check(const struct ls_dtensor *tensor, double factor, struct ls_error *error)
{
    struct ls_runs runs;
    struct ls_run run;
    ls_runs_init(&runs, &tensor->spec, tensor->rank);
    while (ls_runs_next(&runs, &run))
        for (int64_t i = 0; i < run.count; i++) {
            double got = (double)((float *)tensor->data)[run.local + i];
            double expected = factor * (double)(run.global + i);
            if (got != expected)
                return ls_error_set(error, LS_ENUMERIC, "element %lld is %g, expected %g",
                                    (long long)(run.global + i), got, expected);
        }
    return LS_OK;
}
