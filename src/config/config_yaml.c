/* From YAML, event by event, to the keys of the table: nothing is built that could grow with a
 * hostile file, and every event knows its line and column. */
#include "config/config_private.h"

#include <lockstep/base/file.h>

#include <libfyaml.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* All keys with the longest texts take less than 100 KiB. */
enum { FILE_BYTES_MAX = 1 << 20, NAME_BYTES = 64 };

#define WANTED "expected `group:` and indented `key: value` lines"

struct reader {
    struct ls_config *config;
    struct ls_yaml yaml;
    struct ls_yaml_place seen[LS_CONFIG_KEYS_MAX];
    struct ls_yaml_place seen_group[LS_CONFIG_KEYS_MAX]; /* at its first key's index */
};

static int fail(struct reader *reader, struct ls_yaml_place at, const char *what)
{
    return ls_yaml_fail(&reader->yaml, at, what);
}

static int unknown_key(struct reader *reader, struct ls_yaml_place at, const char *name)
{
    config_unknown(name, reader->yaml.error);
    ls_error_at(reader->yaml.error, reader->yaml.name, at.line, at.column);
    return LS_ECONFIG;
}

static int group_index(const char *name)
{
    return ls_config_group_index(ls_config_keys(NULL), name);
}

/* A map under a name that is no group. */
static int unknown_group(struct reader *reader, struct ls_yaml_place at, const char *name)
{
    const char *names[LS_CONFIG_KEYS_MAX], *groups[LS_CONFIG_KEYS_MAX];
    char words[LS_CONFIG_KEYS_MAX][NAME_BYTES], what[512];
    size_t count = config_names(names), known = 0;
    if (strchr(name, '.'))
        return unknown_key(reader, at, name);
    for (size_t i = 0; i < count; i++) {
        size_t length = strcspn(names[i], ".");
        if (i && strncmp(names[i - 1], names[i], length + 1) == 0)
            continue;
        snprintf(words[known], NAME_BYTES, "%.*s", (int)length, names[i]);
        groups[known] = words[known];
        known++;
    }
    const char *near = ls_nearest(name, groups, known);
    snprintf(what, sizeof what, "unknown group %s%s: the groups are", name,
             ls_meant(near, "").text);
    for (size_t i = 0; i < known; i++)
        ls_string_add(what, sizeof what, i ? ", " : " ", "%s", words[i]);
    return ls_yaml_about(&reader->yaml, at, name, what);
}

static int read_scalar(struct reader *reader, struct ls_yaml_place key_at, const char *name)
{
    struct ls_yaml_place at = ls_yaml_at(&reader->yaml);
    int index = config_index(name);
    char what[900];
    if (index < 0 && group_index(name) >= 0) {
        snprintf(what, sizeof what, "%s is a group: expected indented keys under it", name);
        return ls_yaml_about(&reader->yaml, key_at, name, what);
    }
    if (index < 0)
        return unknown_key(reader, key_at, name);
    int status = ls_yaml_once(&reader->yaml, &reader->seen[index], key_at, name);
    if (status)
        return status;
    const struct ls_config_key *key = &ls_config_keys(NULL)[index];
    bool plain = !reader->yaml.event->scalar.value ||
                 fy_token_scalar_style(reader->yaml.event->scalar.value) == FYSS_PLAIN;
    char text[LS_CONFIG_TEXT_BYTES], why[256];
    if (!ls_yaml_text(&reader->yaml, text, sizeof text)) {
        ls_config_expected(key, why, sizeof why);
        snprintf(what, sizeof what, "%s: the value is too long or holds a zero byte: expected %s",
                 name, why);
        return ls_yaml_about(&reader->yaml, at, name, what);
    }
    bool null =
        plain && (strcmp(text, "") == 0 || strcmp(text, "~") == 0 || strcmp(text, "null") == 0);
    if (null && (config_is_text(key) || key->type == LS_CONFIG_BLEND))
        text[0] = '\0';
    if (!config_parse(reader->config, key, text, !plain, why, sizeof why))
        return ls_yaml_refuse(&reader->yaml, at, name, *text ? text : "(nothing)", why);
    if (config_is_path(key) && !config_here(reader->config->path, key->type == LS_CONFIG_PATHS,
                                            config_slot(reader->config, key))) {
        snprintf(what, sizeof what, "%s: the path is longer than %d bytes", name,
                 LS_CONFIG_TEXT_BYTES - 1);
        return ls_yaml_about(&reader->yaml, at, name, what);
    }
    reader->config->origin[index] = (struct ls_config_origin){at.line, at.column};
    return LS_OK;
}

static int read_blend(struct reader *reader, struct ls_yaml_place key_at, int index)
{
    const struct ls_config_key *key = &ls_config_keys(NULL)[index];
    struct ls_yaml_place at = ls_yaml_at(&reader->yaml);
    int status = ls_yaml_once(&reader->yaml, &reader->seen[index], key_at, key->name);
    if (!status)
        status = config_blend_read(&reader->yaml, reader->config->path,
                                   config_slot(reader->config, key));
    reader->config->origin[index] = (struct ls_config_origin){at.line, at.column};
    return status;
}

static int no_value(struct reader *reader, int index)
{
    const struct ls_config_key *key = &ls_config_keys(NULL)[index];
    char what[200];
    snprintf(what, sizeof what, "%s: expected one value, not a list or a map%s", key->name,
             config_is_text(key) ? "; a list is a text with commas between: a,b" : "");
    return ls_yaml_about(&reader->yaml, ls_yaml_at(&reader->yaml), key->name, what);
}

static int read_value(void *user, struct ls_yaml_place at, const char *name, const char *key)
{
    struct reader *reader = user;
    (void)key;
    int group = group_index(name);
    char prefix[LS_YAML_NAME_BYTES + 2];
    int index = config_index(name);
    if (reader->yaml.event->type == FYET_SCALAR)
        return read_scalar(reader, at, name);
    if (reader->yaml.event->type == FYET_SEQUENCE_START && index >= 0 &&
        ls_config_keys(NULL)[index].type == LS_CONFIG_BLEND)
        return read_blend(reader, at, index);
    if (reader->yaml.event->type != FYET_MAPPING_START || group < 0)
        return index < 0 ? unknown_group(reader, at, name) : no_value(reader, index);
    snprintf(prefix, sizeof prefix, "%s.", name);
    int status = ls_yaml_once(&reader->yaml, &reader->seen_group[group], at, name);
    return status ? status : ls_yaml_map(&reader->yaml, prefix, read_value, reader);
}

static int read_document(struct reader *reader)
{
    int status = ls_yaml_begin(&reader->yaml);
    if (status || reader->yaml.event->type == FYET_STREAM_END)
        return status; /* nothing but comments: all defaults */
    if (reader->yaml.event->type == FYET_MAPPING_START)
        status = ls_yaml_map(&reader->yaml, "", read_value, reader);
    else if (reader->yaml.event->type != FYET_SCALAR || reader->yaml.event->scalar.value)
        return fail(reader, ls_yaml_at(&reader->yaml), WANTED);
    return status ? status : ls_yaml_end(&reader->yaml);
}

int ls_config_load_text(struct ls_config *config, const char *name, const char *text, size_t bytes,
                        struct ls_error *error)
{
    struct reader reader = {.config = config};
    snprintf(config->path, sizeof config->path, "%s", name);
    int status = ls_yaml_open(&reader.yaml, config->path, text, bytes, WANTED, error);
    if (!status)
        status = read_document(&reader);
    ls_yaml_close(&reader.yaml);
    return status;
}

/* What a file or folder is that was taken for a configuration. text: what it holds, NULL if it
 * cannot be read. */
static void instead_say(const char *path, const char *text, struct ls_error *error)
{
    static const char *const theirs[][2] = {
        {".toml", "torchtitan"}, {".sh", "megatron"}, {".json", "deepspeed"}};
    char name[PATH_MAX];
    struct ls_error ignored;
    if (!ls_path_join(name, path, "config.yaml", NULL) && !access(name, F_OK))
        ls_error_suffix(error, "; a run's is %.400s", name);
    else if (!ls_path_join(name, path, "config.json", NULL) && !access(name, F_OK))
        ls_error_suffix(error, "; a model's folder is given as model.from=%.300s", path);
    else if (!text && access(path, F_OK) && !ls_config_preset_check(path, &ignored))
        ls_error_suffix(error, "; did you mean model.preset=%.100s?", path);
    if (!text)
        return;
    if (strstr(text, "\nhosts:") && strstr(text, "\naccelerators:"))
        ls_error_suffix(error, "; a cluster is given as --cluster %.300s", path);
    else if (strstr(text, "\"model_type\":"))
        ls_error_suffix(error, "; a model's folder is given as model.from=FOLDER");
    else
        for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++)
            if (ls_path_ends(path, theirs[i][0]) &&
                (i < 2 || strstr(text, "\"zero_optimization\"") ||
                 strstr(text, "train_batch_size")))
                ls_error_suffix(error, "; lockstep convert %s %.300s makes one of it", theirs[i][1],
                                path);
}

int ls_config_load_file(struct ls_config *config, const char *path, struct ls_error *error)
{
    char *text = NULL;
    size_t bytes;
    int status = ls_file_read(path, FILE_BYTES_MAX, LS_ECONFIG, &text, &bytes, error);
    if (status)
        ls_error_prefix(error, "configuration");
    else
        status = ls_config_load_text(config, path, text, bytes, error);
    if (status)
        instead_say(path, text, error);
    free(text);
    return status;
}
