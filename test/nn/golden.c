/* Reads golden files of Hugging Face's layout as our parameters. */
#include "golden.h"
#include "../support/tensor_data.h"
#include "held.h"

#include <lockstep/config.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ls_safetensors *golden_open(const char *name)
{
    const char *root = getenv("LS_TEST_DIR");
    char path[1024];
    snprintf(path, sizeof path, "%s/golden/%s.safetensors", root ? root : "test", name);
    struct ls_safetensors *file;
    struct ls_error error = {0};
    if (ls_safetensors_open(&file, path, &error)) {
        fprintf(stderr, "%s\n", error.text);
        exit(1);
    }
    return file;
}

struct ls_model_config golden_config(const struct ls_safetensors *file)
{
    const char *keys = ls_safetensors_metadata(file, "keys");
    static struct ls_config config;
    struct ls_error error = {0};
    char text[1024], *save = NULL;
    ls_config_defaults(&config);
    snprintf(text, sizeof text, "%s", keys ? keys : "");
    for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char assignment[128];
        snprintf(assignment, sizeof assignment, "model.%s", word);
        if (ls_config_set(&config, assignment, &error))
            break;
    }
    if (error.code || ls_config_resolve(&config, 0, &error)) {
        fprintf(stderr, "the golden file's keys: %s\n", error.text);
        exit(1);
    }
    return config.model;
}

const void *golden_data(const struct ls_safetensors *file, const char *name)
{
    const struct ls_tensor_view *view = ls_safetensors_find(file, name);
    if (!view) {
        fprintf(stderr, "the golden file has no tensor %s\n", name);
        exit(1);
    }
    return tensor_data(file, name);
}

/* The tensor that holds a parameter, under the names of a whole model or of a block alone. */
static const struct ls_tensor_view *tensor_of(const struct ls_safetensors *file, const char *prefix,
                                              const struct ls_elsewhere *place, bool block_only)
{
    int layer, used = 0;
    char name[160];
    if (block_only && sscanf(place->name, "h.%d.%n", &layer, &used) < 1)
        sscanf(place->name, "model.layers.%d.%n", &layer, &used);
    snprintf(name, sizeof name, "%s%s", prefix, place->name + used);
    const struct ls_tensor_view *view = ls_safetensors_find(file, name);
    int64_t slow = place->transposed ? place->cols : place->rows;
    int64_t fast = place->transposed ? place->rows : place->cols;
    if (view && view->shape[0] == slow && (view->dims == 1 ? 1 : view->shape[1]) == fast)
        return view;
    fprintf(stderr, "the golden file has no tensor %s of [%ld, %ld]\n", name, (long)slow,
            (long)fast);
    exit(1);
}

void golden_gather(const struct ls_safetensors *file, const char *prefix,
                   const struct ls_model_config *config, const struct ls_params *params,
                   bool block_only, float *values)
{
    for (int i = 0; i < params->count; i++) {
        const struct ls_param *param = &params->list[i];
        struct ls_elsewhere place;
        if (block_only && params->units[param->unit].layer != 1)
            continue;
        if (!ls_param_elsewhere(params, config, param, &place)) {
            fprintf(stderr, "no place for parameter %s\n", param->name);
            exit(1);
        }
        const float *data = tensor_data(file, tensor_of(file, prefix, &place, block_only)->name);
        int64_t rows = param->matrix ? param->live_rows : param->cols;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < place.cols; c++)
                values[held_place(params, param) + r * place.cols + c] =
                    place.transposed ? data[c * place.rows + place.first + r]
                                     : data[(place.first + r) * place.cols + c];
    }
}

double golden_distance(const float *a, const float *b, int64_t count)
{
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += (double)b[i] * b[i];
    }
    return norm > 0 ? sqrt(difference / norm) : sqrt(difference);
}
