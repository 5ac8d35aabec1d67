/* Folders as transformers writes them. */
#include "folders.h"
#include "../support/saved_tensors.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/tensor_data.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { TENSORS_MAX = 128, NAME_BYTES = 160 };
#define PARAM "param."

struct ls_safetensors *golden_open(const char *name)
{
    char path[256];
    struct ls_safetensors *file;
    struct ls_error error = {0};
    snprintf(path, sizeof path, "test/golden/%s.safetensors", name);
    assert_ok(ls_safetensors_open(&file, path, &error), error);
    return file;
}

static void *converted(const struct ls_safetensors *file, const struct ls_tensor_view *view,
                       enum ls_dtype dtype)
{
    size_t count = view->bytes / sizeof(float);
    const float *from = tensor_data(file, view->name);
    float *floats = malloc(view->bytes);
    ls_half *halves = malloc(view->bytes);
    memcpy(floats, from, view->bytes);
    for (size_t i = 0; i < count; i++)
        halves[i] = ls_f32_to_half(dtype == LS_F32 ? LS_BF16 : dtype, from[i]);
    free(dtype == LS_F32 ? (void *)halves : floats);
    return dtype == LS_F32 ? (void *)floats : halves;
}

/* Tensors i, i + shards, ... of the list. */
static void shard_save(const char *folder, const char *name, const struct ls_tensor_entry *entries,
                       size_t count, int first, int shards)
{
    struct ls_tensor_entry mine[TENSORS_MAX];
    struct ls_error error = {0};
    size_t n = 0;
    for (size_t i = (size_t)first; i < count; i += (size_t)shards)
        mine[n++] = entries[i];
    assert_ok(tensors_save(scratch_path(folder, name), mine, n, &error), error);
}

static void save(const char *folder, const struct ls_tensor_entry *entries, size_t count,
                 int shards)
{
    if (shards == 0) {
        shard_save(folder, "model.safetensors", entries, count, 0, 1);
        return;
    }
    json_t *map = json_object();
    for (int s = 0; s < shards; s++) {
        char name[64];
        snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", s + 1, shards);
        shard_save(folder, name, entries, count, s, shards);
        for (size_t i = (size_t)s; i < count; i += (size_t)shards)
            json_object_set_new(map, entries[i].name, json_string(name));
    }
    json_t *index = json_pack("{s:{}, s:o}", "metadata", "weight_map", map);
    assert_int_equal(json_dump_file(index, scratch_path(folder, "model.safetensors.index.json"), 0),
                     0);
    json_decref(index);
}

const char *folder_make(const char *directory, const char *name, const struct folder_of *of)
{
    struct ls_safetensors *golden = golden_open(of->golden);
    struct ls_tensor_entry entries[TENSORS_MAX];
    char names[TENSORS_MAX][NAME_BYTES];
    size_t count = 0;
    static char folders[4][4096];
    static int turn;
    char *folder = folders[turn++ % 4];
    snprintf(folder, sizeof folders[0], "%s/%s", directory, name);
    assert_int_equal(mkdir(folder, 0777), 0);
    const char *config = ls_safetensors_metadata(golden, "config");
    scratch_write(scratch_path(folder, "config.json"), config, strlen(config));
    for (size_t i = 0; i < ls_safetensors_count(golden); i++) {
        const struct ls_tensor_view *view = ls_safetensors_at(golden, i);
        if (strncmp(view->name, PARAM, strlen(PARAM)))
            continue;
        snprintf(names[count], NAME_BYTES, "%s%s", of->prefix ? of->prefix : "",
                 view->name + strlen(PARAM));
        entries[count] = (struct ls_tensor_entry){.name = names[count],
                                                  .dtype = of->dtype,
                                                  .dims = view->dims,
                                                  .data = converted(golden, view, of->dtype)};
        memcpy(entries[count].shape, view->shape, sizeof view->shape);
        count++;
    }
    save(folder, entries, count, of->shards);
    for (size_t i = 0; i < count; i++)
        free((void *)entries[i].data);
    ls_safetensors_close(golden);
    return folder;
}

void json_edit(const char *path, const char *key, const char *value)
{
    json_error_t why;
    json_t *root = json_load_file(path, 0, &why), *object = root;
    const char *dot = strchr(key, '.');
    char group[64];
    assert_non_null(root);
    /* Tensors' names have dots too: only the index's map is gone into. */
    if (!strncmp(key, "weight_map.", strlen("weight_map.")) || !strncmp(key, "rope_", 5)) {
        snprintf(group, sizeof group, "%.*s", dot ? (int)(dot - key) : 63, key);
        if (dot && json_object_get(root, group)) {
            object = json_object_get(root, group);
            key = dot + 1;
        }
    }
    if (value)
        assert_int_equal(json_object_set_new(object, key, json_loads(value, JSON_DECODE_ANY, &why)),
                         0);
    else
        json_object_del(object, key);
    assert_int_equal(json_dump_file(root, path, 0), 0);
    json_decref(root);
}

void values_edit(const char *folder, const char *name, const size_t *at, const float *values,
                 int count)
{
    size_t bytes;
    const char *path = scratch_path(folder, "model.safetensors");
    char *file = scratch_read(path, &bytes), quoted[200];
    uint64_t header;
    memcpy(&header, file, sizeof header);
    snprintf(quoted, sizeof quoted, "\"%s\"", name);
    char *entry = memmem(file + 8, header, quoted, strlen(quoted));
    assert_non_null(entry);
    size_t begin = strtoull(strchr(strstr(entry, "data_offsets"), '[') + 1, NULL, 10);
    for (int i = 0; i < count; i++)
        memcpy(file + 8 + header + begin + 4 * at[i], &values[i], sizeof *values);
    scratch_write(path, file, bytes);
    free(file);
}

void tensor_edit(const char *folder, const char *name, const char *becomes, int cut)
{
    struct ls_tensor_entry entries[TENSORS_MAX];
    struct ls_safetensors *file;
    struct ls_error error = {0};
    const char *path = scratch_path(folder, "model.safetensors");
    size_t count = 0;
    assert_int_equal(ls_safetensors_open(&file, path, &error), LS_OK);
    for (size_t i = 0; i < ls_safetensors_count(file); i++) {
        const struct ls_tensor_view *view = ls_safetensors_at(file, i);
        bool it = !strcmp(view->name, name);
        if (it && !becomes)
            continue;
        entries[count] = (struct ls_tensor_entry){.name = it ? becomes : view->name,
                                                  .dtype = view->dtype,
                                                  .dims = view->dims,
                                                  .data = tensor_data(file, view->name)};
        memcpy(entries[count].shape, view->shape, sizeof view->shape);
        entries[count++].shape[0] -= it ? cut : 0;
    }
    assert_ok(tensors_save(path, entries, count, &error), error);
    ls_safetensors_close(file);
}

enum { PATH_BYTES = 4400 };

static const char *path_in(const char *directory, const char *name, char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%.4096s/%.200s", directory, name);
    return path;
}

void model_import(const char *directory, const char *from, const char *run, struct ls_import what)
{
    struct ls_error error = {0};
    struct ls_import_report report;
    char paths[2][PATH_BYTES];
    what.from = path_in(directory, from, paths[0]);
    what.run = path_in(directory, run, paths[1]);
    if (ls_import(&what, &report, &error))
        fail_msg("%s: %s", from, error.text);
}

struct ls_export_report model_export(const char *directory, const char *from, const char *out,
                                     struct ls_export what)
{
    struct ls_error error = {0};
    struct ls_export_report report;
    char paths[2][PATH_BYTES];
    what.from = path_in(directory, from, paths[0]);
    what.out = path_in(directory, out, paths[1]);
    if (ls_export(&what, &report, &error))
        fail_msg("%s: %s", out, error.text);
    return report;
}
