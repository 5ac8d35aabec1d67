/* A cluster from YAML, event by event: nothing is built that could grow with a hostile file but the
 * measured rows, which are bounded, and every event knows its line and column. */
#include "planner/cluster_private.h"

#include <lockstep/base/figure.h>
#include <lockstep/base/file.h>
#include <lockstep/base/yaml.h>

#include <dirent.h>
#include <libfyaml.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WANTED "expected `key: value` lines"
enum {
    FILE_BYTES_MAX = 16 << 20,
    ROWS_MAX = 1 << 18,
    CELLS_MAX = 9,
    SOURCES_MAX = 256,
    SECONDS_MAX = 1000000
};

/* A row of measured.works or measured.moves: a figure for each column, and where it stands. */
enum { COLUMNS_MAX = 7 };
struct row {
    int64_t figure[COLUMNS_MAX];
    double seconds;
    struct ls_yaml_place at;
};

/* Of whole numbers, or of words. */
struct column {
    int64_t least, most;
    int (*of_word)(const char *word); /* -1: none */
};

/* What is measured: rows of these columns and the seconds. */
struct list {
    const char *name, *wanted;
    struct column column[COLUMNS_MAX];
    int columns_min, columns;
};

static int dtype_of(const char *word)
{
    int dtype = -1;
    ls_word_read(cluster_dtypes, word, &dtype);
    return dtype;
}

static int comm_kind_of(const char *word)
{
    for (int i = 0; i < LS_COMM_KINDS; i++)
        if (strcmp(word, ls_comm_kind_name((enum ls_comm_kind)i)) == 0)
            return i;
    return -1;
}

enum { WORKS, MOVES, LISTS };
#define COUNT_MOST ((int64_t)1 << 20)
#define SIZE_MOST  ((int64_t)1 << 50)
static const struct list lists[LISTS] = {
    [WORKS] = {"measured.works",
               "measured.works: expected rows [kind, type, threads, m, n, k, bytes, seconds], such "
               "as [product_bt, fp32, 1, 4096, 768, 768, 17301504, 0.0123]; bytes may be left out, "
               "types are fp32, bf16, fp16 and u8, whole numbers from 1, and the time more than 0",
               {{.of_word = ls_work_of_name},
                {.of_word = dtype_of},
                {1, COUNT_MOST, NULL},
                {1, SIZE_MOST, NULL},
                {1, SIZE_MOST, NULL},
                {1, SIZE_MOST, NULL},
                {1, SIZE_MOST, NULL}},
               6,
               7},
    [MOVES] = {"measured.moves",
               "measured.moves: expected rows [kind, ranks, bytes, seconds], such as "
               "[all_reduce, 2, 1048576, 0.0011]; at least 2 ranks, and the time more than 0",
               {{.of_word = comm_kind_of}, {2, COUNT_MOST, NULL}, {1, SIZE_MOST, NULL}},
               3,
               3},
};

struct reader {
    struct ls_yaml yaml;
    struct ls_cluster *cluster;
    /* At a key's index; those of links are of the link that is read. */
    struct ls_yaml_place seen[CLUSTER_KEYS_MAX];
    struct ls_yaml_place links_at, link_at[LS_CLUSTER_LINKS_MAX];
    struct row *rows[LISTS];
    int64_t count[LISTS], room[LISTS];
};

static int fail(struct reader *reader, struct ls_yaml_place at, const char *what)
{
    return ls_yaml_fail(&reader->yaml, at, what);
}

static int fail_about(struct reader *reader, struct ls_yaml_place at, const char *key,
                      const char *what)
{
    return ls_yaml_about(&reader->yaml, at, key, what);
}

/* ---- events ---------------------------------------------------------------------------------- */

static bool is_at(const struct reader *reader, enum fy_event_type type)
{
    return reader->yaml.event->type == type;
}

static int next(struct reader *reader)
{
    return ls_yaml_next(&reader->yaml);
}

/* The scalars of the list whose start is the current event; on success, its end. */
static int read_cells(struct reader *reader, const char *key, char cells[][CLUSTER_NAME_BYTES],
                      int most, int *count)
{
    int status;
    *count = 0;
    while ((status = next(reader)) == LS_OK && !is_at(reader, FYET_SEQUENCE_END)) {
        if (!is_at(reader, FYET_SCALAR) || *count == most ||
            !ls_yaml_text(&reader->yaml, cells[*count], CLUSTER_NAME_BYTES)) {
            char what[160];
            snprintf(what, sizeof what, "%s: expected a list of at most %d plain values", key,
                     most);
            return fail_about(reader, ls_yaml_at(&reader->yaml), key, what);
        }
        ++*count;
    }
    return status;
}

/* ---- figures --------------------------------------------------------------------------------- */

/* The value of keys[index] is the current event; on success, its end. */
static int read_figure(struct reader *reader, struct ls_yaml_place key_at, int index)
{
    const struct ls_config_key *key = &cluster_keys()[index];
    struct ls_yaml_place at =
        fy_event_start_mark(reader->yaml.event) ? ls_yaml_at(&reader->yaml) : key_at;
    char text[CLUSTER_VALUE_BYTES] = "", why[CLUSTER_VALUE_BYTES];
    int status = ls_yaml_once(&reader->yaml, &reader->seen[index], key_at, key->name);
    bool good = is_at(reader, FYET_SCALAR) && ls_yaml_text(&reader->yaml, text, sizeof text);
    if (!status && is_at(reader, FYET_SEQUENCE_START) && key->type == LS_CONFIG_PAIR) {
        char cells[2][CLUSTER_NAME_BYTES];
        int cells_count;
        status = read_cells(reader, key->name, cells, 2, &cells_count);
        good = !status && cells_count == 2;
        if (good)
            snprintf(text, sizeof text, "[%s, %s]", cells[0], cells[1]);
    }
    if (status)
        return status;
    void *slot = cluster_slot(reader->cluster, key, reader->cluster->links - 1);
    if (good && ls_config_parse(key, slot, text, false, why, sizeof why))
        return LS_OK;
    ls_config_expected(key, why, sizeof why);
    return ls_yaml_refuse(&reader->yaml, at, key->name,
                          *text                        ? text
                          : is_at(reader, FYET_SCALAR) ? "(nothing)"
                                                       : "(not one value)",
                          why);
}

/* Every required key of the cluster, or of the link that was read, was seen. */
static int check_required(struct reader *reader, bool of_link, struct ls_yaml_place at)
{
    const struct ls_config_key *keys = cluster_keys();
    char what[2 * CLUSTER_VALUE_BYTES + 80], why[CLUSTER_VALUE_BYTES];
    for (size_t i = 0; keys[i].name; i++) {
        if (cluster_key_is_link(&keys[i]) != of_link || keys[i].initial || reader->seen[i].line)
            continue;
        ls_config_expected(&keys[i], why, sizeof why);
        snprintf(what, sizeof what, "%s is missing: expected %s", keys[i].name, why);
        return fail_about(reader, at, keys[i].name, what);
    }
    return LS_OK;
}

/* ---- measured rows --------------------------------------------------------------------------- */

static bool column_read(const struct column *column, const char *cell, int64_t *out)
{
    const struct ls_config_key whole = {.name = "",
                                        .type = LS_CONFIG_INT,
                                        .min = (double)column->least,
                                        .max = (double)column->most};
    char why[CLUSTER_VALUE_BYTES];
    if (!column->of_word)
        return ls_config_parse(&whole, out, cell, false, why, sizeof why);
    *out = column->of_word(cell);
    return *out >= 0;
}

static int row_read(struct reader *reader, int which, char cells[][CLUSTER_NAME_BYTES], int count,
                    struct ls_yaml_place at)
{
    const struct list *list = &lists[which];
    struct row row = {.at = at};
    int columns = count - 1;
    bool good = columns >= list->columns_min && columns <= list->columns;
    for (int i = 0; i < columns && good; i++)
        good = column_read(&list->column[i], cells[i], &row.figure[i]);
    if (!good || !ls_figure_read(LS_FIGURE_SECONDS, cells[columns], &row.seconds) ||
        row.seconds <= 0 || row.seconds > SECONDS_MAX)
        return fail_about(reader, at, list->name, list->wanted);
    if (reader->count[which] >= ROWS_MAX)
        return fail_about(reader, ls_yaml_at(&reader->yaml), list->name,
                          "too many measured rows: remove some");
    if (!ls_list_grow(&reader->rows[which], reader->count[which], &reader->room[which], sizeof row))
        return ls_error_set(reader->yaml.error, LS_ENOMEM,
                            "%.200s: no memory for the measured rows", reader->yaml.name);
    reader->rows[which][reader->count[which]++] = row;
    return LS_OK;
}

static int rows_compare(const void *left, const void *right)
{
    const struct row *a = left, *b = right;
    for (int i = 0; i < COLUMNS_MAX; i++)
        if (a->figure[i] != b->figure[i])
            return a->figure[i] < b->figure[i] ? -1 : 1;
    return 0;
}

/* In order, each thing once. */
static int rows_sort(struct reader *reader, int which)
{
    struct row *rows = reader->rows[which];
    char text[100];
    if (reader->count[which])
        qsort(rows, (size_t)reader->count[which], sizeof *rows, rows_compare);
    for (int64_t i = 1; i < reader->count[which]; i++) {
        struct ls_yaml_place a = rows[i - 1].at, b = rows[i].at;
        if (rows_compare(&rows[i - 1], &rows[i]))
            continue;
        snprintf(text, sizeof text, "%s: the same is measured on line %d: remove one",
                 lists[which].name, (int)ls_min(a.line, b.line));
        return fail_about(reader, a.line <= b.line ? b : a, lists[which].name, text);
    }
    return LS_OK;
}

/* Hands the rows over to the cluster. */
static int finish_rows(struct reader *reader)
{
    struct ls_cluster *cluster = reader->cluster;
    int status = rows_sort(reader, WORKS);
    if (!status)
        status = rows_sort(reader, MOVES);
    if (status)
        return status;
    cluster->works = calloc((size_t)reader->count[WORKS] + 1, sizeof *cluster->works);
    cluster->moves = calloc((size_t)reader->count[MOVES] + 1, sizeof *cluster->moves);
    if (!cluster->works || !cluster->moves)
        return ls_error_set(reader->yaml.error, LS_ENOMEM,
                            "%.200s: no memory for the measured rows", reader->yaml.name);
    for (int64_t i = 0; i < reader->count[WORKS]; i++) {
        const struct row *row = &reader->rows[WORKS][i];
        const int64_t *f = row->figure;
        cluster->works[cluster->works_count++] =
            (struct ls_measured_work){.kind = (enum ls_work_kind)f[0],
                                      .dtype = (enum ls_dtype)f[1],
                                      .threads = (int)f[2],
                                      .m = f[3],
                                      .n = f[4],
                                      .k = f[5],
                                      .bytes = f[6],
                                      .seconds = row->seconds};
    }
    for (int64_t i = 0; i < reader->count[MOVES]; i++) {
        const struct row *row = &reader->rows[MOVES][i];
        const int64_t *f = row->figure;
        cluster->moves[cluster->moves_count++] =
            (struct ls_measured_move){(enum ls_comm_kind)f[0], (int)f[1], f[2], row->seconds};
    }
    return LS_OK;
}

/* ---- maps ------------------------------------------------------------------------------------ */

/* The list whose start is the current event: a row each. */
static int read_rows(struct reader *reader, int which)
{
    int status = LS_OK;
    if (!is_at(reader, FYET_SEQUENCE_START))
        return fail_about(reader, ls_yaml_at(&reader->yaml), lists[which].name,
                          "expected a list of measured rows");
    while (!status && (status = next(reader)) == LS_OK && !is_at(reader, FYET_SEQUENCE_END)) {
        char cells[CELLS_MAX][CLUSTER_NAME_BYTES];
        struct ls_yaml_place at = ls_yaml_at(&reader->yaml);
        int count = 0;
        if (!is_at(reader, FYET_SEQUENCE_START))
            return fail_about(reader, at, lists[which].name, "expected a measured row in brackets");
        status = read_cells(reader, lists[which].name, cells, CELLS_MAX, &count);
        if (!status)
            status = row_read(reader, which, cells, count, at);
    }
    return status;
}

/* Words for people. */
static int read_source(struct reader *reader)
{
    int status = LS_OK, count = 0;
    if (is_at(reader, FYET_SCALAR))
        return LS_OK;
    if (!is_at(reader, FYET_SEQUENCE_START))
        return fail_about(reader, ls_yaml_at(&reader->yaml), "source",
                          "source: expected a text, or a list of texts");
    while ((status = next(reader)) == LS_OK && !is_at(reader, FYET_SEQUENCE_END))
        if (!is_at(reader, FYET_SCALAR) || ++count > SOURCES_MAX)
            return fail_about(reader, ls_yaml_at(&reader->yaml), "source",
                              "source: expected a text, or a list of texts");
    return status;
}

static int read_value(void *user, struct ls_yaml_place at, const char *name, const char *key);

/* The list whose start is the current event: a map each. */
static int read_links(struct reader *reader)
{
    struct ls_cluster *cluster = reader->cluster;
    const struct ls_config_key *keys = cluster_keys();
    int status = LS_OK;
    if (!is_at(reader, FYET_SEQUENCE_START))
        return fail_about(reader, ls_yaml_at(&reader->yaml), "links",
                          "links: expected a list, from the innermost link");
    while (!status && (status = next(reader)) == LS_OK && !is_at(reader, FYET_SEQUENCE_END)) {
        struct ls_yaml_place at = ls_yaml_at(&reader->yaml);
        char what[80];
        snprintf(what, sizeof what, "links: expected at most %d of them, a map each",
                 (int)LS_CLUSTER_LINKS_MAX);
        if (cluster->links == LS_CLUSTER_LINKS_MAX || !is_at(reader, FYET_MAPPING_START))
            return fail_about(reader, at, "links", what);
        for (size_t i = 0; keys[i].name; i++)
            if (cluster_key_is_link(&keys[i]))
                reader->seen[i] = (struct ls_yaml_place){0, 0};
        cluster_link_defaults(&cluster->link[cluster->links]);
        reader->link_at[cluster->links++] = at;
        status = ls_yaml_map(&reader->yaml, "links.", read_value, reader);
        if (!status)
            status = check_required(reader, true, at);
    }
    return status;
}

static int read_group(struct reader *reader, struct ls_yaml_place at, const char *name)
{
    char what[512], prefix[LS_YAML_NAME_BYTES + 2];
    if (strcmp(name, "measured") != 0 && ls_config_group_index(cluster_keys(), name) < 0) {
        cluster_unknown(name, what, sizeof what);
        return fail_about(reader, at, name, what);
    }
    if (!is_at(reader, FYET_MAPPING_START)) {
        snprintf(what, sizeof what, "%s is a group: expected indented keys under it", name);
        return fail_about(reader, at, name, what);
    }
    snprintf(prefix, sizeof prefix, "%s.", name);
    return ls_yaml_map(&reader->yaml, prefix, read_value, reader);
}

static int read_value(void *user, struct ls_yaml_place at, const char *name, const char *key)
{
    struct reader *reader = user;
    int index = ls_config_key_index(cluster_keys(), name);
    /* A dot in a key would say twice which group it is in. */
    if (strchr(key, '.') || !*key)
        return fail_about(reader, at, name,
                          "expected a key without dots: write a group, and keys in it");
    if (index >= 0)
        return read_figure(reader, at, index);
    if (strcmp(name, "source") == 0)
        return read_source(reader);
    if (strcmp(name, "links") == 0) {
        int status = ls_yaml_once(&reader->yaml, &reader->links_at, at, name);
        return status ? status : read_links(reader);
    }
    for (int which = 0; which < LISTS; which++)
        if (strcmp(name, lists[which].name) == 0)
            return read_rows(reader, which);
    return read_group(reader, at, name);
}

static int read_document(struct reader *reader)
{
    struct ls_cluster *cluster = reader->cluster;
    int link, status = ls_yaml_begin(&reader->yaml);
    if (status)
        return status;
    if (!is_at(reader, FYET_MAPPING_START))
        return fail(reader, ls_yaml_at(&reader->yaml), WANTED);
    status = ls_yaml_map(&reader->yaml, "", read_value, reader);
    if (!status)
        status = ls_yaml_end(&reader->yaml);
    if (!status)
        status = check_required(reader, false, (struct ls_yaml_place){1, 1});
    if (status)
        return status;
    double *peak = cluster->accelerator.peak;
    for (int i = 0; i < 3; i++)
        peak[i] = peak[i] > 0 ? peak[i] : peak[1];
    status = cluster_check(cluster, &link, reader->yaml.error);
    if (status) {
        struct ls_yaml_place at = link >= 0               ? reader->link_at[link]
                                  : reader->links_at.line ? reader->links_at
                                                          : (struct ls_yaml_place){1, 1};
        return ls_error_at(reader->yaml.error, reader->yaml.name, at.line, at.column);
    }
    return finish_rows(reader);
}

int ls_cluster_read_text(const char *name, const char *text, size_t bytes,
                         struct ls_cluster *cluster, struct ls_error *error)
{
    struct reader reader = {.cluster = cluster};
    cluster_defaults(cluster);
    int status = ls_yaml_open(&reader.yaml, name, text, bytes, WANTED, error);
    if (!status)
        status = read_document(&reader);
    ls_yaml_close(&reader.yaml);
    free(reader.rows[WORKS]);
    free(reader.rows[MOVES]);
    if (status)
        ls_cluster_release(cluster);
    return status;
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* "; there are clusters/a.yaml, clusters/b.yaml": those of the word that stands for a file, or all.
 */
static void files_hint(const char *path, struct ls_error *error)
{
    const char *slash = strrchr(path, '/'), *word = slash ? slash + 1 : path;
    char near[400] = "", all[400] = "", part[NAME_MAX + 1];
    struct dirent **entries;
    int count = scandir("clusters", &entries, NULL, by_bytes);
    snprintf(part, sizeof part, "%.*s", (int)(strlen(word) - 5 * ls_path_ends(word, ".yaml")),
             word);
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        if (ls_path_ends(name, ".yaml") && *part && strcasestr(name, part))
            ls_string_add(near, sizeof near, ", ", "clusters/%s", name);
        if (ls_path_ends(name, ".yaml"))
            ls_string_add(all, sizeof all, ", ", "clusters/%s", name);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    if (*all)
        ls_error_suffix(error, "; there are %s", *near ? near : all);
    else
        ls_error_suffix(error, "; the folder clusters/ of Lockstep's sources has some");
}

int ls_cluster_read(const char *path, struct ls_cluster *cluster, struct ls_error *error)
{
    char *text;
    size_t bytes;
    int status = ls_file_read(path, FILE_BYTES_MAX, LS_ECONFIG, &text, &bytes, error);
    if (status)
        ls_error_prefix(error, "cluster");
    if (status == LS_EIO && access(path, F_OK) != 0)
        files_hint(path, error);
    if (!status)
        status = ls_cluster_read_text(path, text, bytes, cluster, error);
    free(text);
    return status;
}
