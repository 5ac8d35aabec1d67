/* A cluster from YAML, event by event: nothing is built that could grow with a hostile file but the
 * measured rows, which are bounded, and every event knows its line and column. */
#include "cluster_private.h"

#include <lockstep/base/file.h>
#include <lockstep/base/yaml.h>

#include <libfyaml.h>
#include <stdlib.h>
#include <string.h>

#define WANTED "expected `key: value` lines"
enum { FILE_BYTES_MAX = 16 << 20, ROWS_MAX = 1 << 18, CELLS_MAX = 9, SOURCES_MAX = 256 };

/* Rows of measured.works or measured.moves, with where they stand. */
struct work_row {
    struct ls_measured_work work;
    struct ls_yaml_place at;
};
struct move_row {
    struct ls_measured_move move;
    struct ls_yaml_place at;
};

struct reader {
    struct ls_yaml yaml;
    struct ls_cluster *cluster;
    /* At a key's index; those of links are of the link that is read. */
    struct ls_yaml_place seen[CLUSTER_KEYS_MAX];
    struct ls_yaml_place links_at, link_at[LS_CLUSTER_LINKS_MAX];
    struct work_row *works;
    struct move_row *moves;
    int64_t works_count, works_room, moves_count, moves_room;
    struct ls_error *error;
};

static int fail(struct reader *reader, struct ls_yaml_place at, const char *what)
{
    return ls_yaml_fail(&reader->yaml, at, what);
}

/* ---- events -----------------------------------------------------------------------------------
 */

static bool is_at(const struct reader *reader, enum fy_event_type type)
{
    return reader->yaml.event->type == type;
}

static struct ls_yaml_place position(const struct reader *reader)
{
    return ls_yaml_at(&reader->yaml);
}

/* The current event is none that changes what a value means. */
static int check_plain(struct reader *reader)
{
    const struct fy_event *event = reader->yaml.event;
    bool scalar = event->type == FYET_SCALAR, map = event->type == FYET_MAPPING_START;
    bool list = event->type == FYET_SEQUENCE_START;
    if (event->type == FYET_ALIAS)
        return fail(reader, position(reader), "aliases are not supported: write the value");
    if ((scalar && event->scalar.tag) || (map && event->mapping_start.tag) ||
        (list && event->sequence_start.tag))
        return fail(reader, position(reader), "tags are not supported: remove it");
    return LS_OK;
}

static int next(struct reader *reader)
{
    int status = ls_yaml_next(&reader->yaml);
    return status ? status : check_plain(reader);
}

/* The scalars of the list whose start is the current event; on success, its end. */
static int read_cells(struct reader *reader, char cells[][CLUSTER_NAME_BYTES], int most, int *count)
{
    int status;
    *count = 0;
    while ((status = next(reader)) == LS_OK && !is_at(reader, FYET_SEQUENCE_END)) {
        if (!is_at(reader, FYET_SCALAR) || *count == most ||
            !ls_yaml_text(&reader->yaml, cells[*count], CLUSTER_NAME_BYTES)) {
            char what[80];
            snprintf(what, sizeof what, "expected a list of at most %d plain values", most);
            return fail(reader, position(reader), what);
        }
        ++*count;
    }
    return status;
}

/* ---- figures ----------------------------------------------------------------------------------
 */

/* YAML 1.2 has each name once in a map. */
static int see_once(struct reader *reader, struct ls_yaml_place *seen, struct ls_yaml_place at,
                    const char *name)
{
    char what[CLUSTER_NAME_BYTES + 80];
    if (seen->line) {
        snprintf(what, sizeof what, "%s is given twice (first on line %d): remove one", name,
                 seen->line);
        return fail(reader, at, what);
    }
    *seen = at;
    return LS_OK;
}

/* The value of keys[index] is the current event; on success, its end. */
static int read_figure(struct reader *reader, struct ls_yaml_place key_at, int index)
{
    size_t count;
    const struct cluster_key *key = &cluster_keys(&count)[index];
    struct ls_yaml_place at = fy_event_start_mark(reader->yaml.event) ? position(reader) : key_at;
    char text[CLUSTER_VALUE_BYTES] = "", why[CLUSTER_VALUE_BYTES], what[900];
    int status = see_once(reader, &reader->seen[index], key_at, key->name);
    bool good = is_at(reader, FYET_SCALAR) && ls_yaml_text(&reader->yaml, text, sizeof text);
    if (!status && is_at(reader, FYET_SEQUENCE_START) && key->kind == CLUSTER_PAIR) {
        char cells[2][CLUSTER_NAME_BYTES];
        int cells_count;
        status = read_cells(reader, cells, 2, &cells_count);
        good = !status && cells_count == 2;
        if (good)
            snprintf(text, sizeof text, "[%s, %s]", cells[0], cells[1]);
    }
    if (status)
        return status;
    void *slot = cluster_slot(reader->cluster, key, reader->cluster->links - 1);
    if (good && cluster_parse(key, text, slot, why, sizeof why))
        return LS_OK;
    cluster_expected(key, why, sizeof why);
    snprintf(what, sizeof what, "%s = %.150s: expected %s", key->name,
             *text                        ? text
             : is_at(reader, FYET_SCALAR) ? "(nothing)"
                                          : "(not one value)",
             why);
    return fail(reader, at, what);
}

/* Every required key of the cluster, or of the link that was read, was seen. */
static int check_required(struct reader *reader, bool of_link, struct ls_yaml_place at)
{
    size_t count;
    const struct cluster_key *keys = cluster_keys(&count);
    char what[2 * CLUSTER_VALUE_BYTES + 80], why[CLUSTER_VALUE_BYTES];
    for (size_t i = 0; i < count; i++) {
        if (cluster_key_is_link(&keys[i]) != of_link || !keys[i].required || reader->seen[i].line)
            continue;
        cluster_expected(&keys[i], why, sizeof why);
        snprintf(what, sizeof what, "%s is missing: expected %s", keys[i].name, why);
        return fail(reader, at, what);
    }
    return LS_OK;
}

/* ---- measured rows ----------------------------------------------------------------------------
 */

/* Room for one more row of `size` bytes. */
static int grow(struct reader *reader, void **rows, size_t size, int64_t count, int64_t *room)
{
    if (count >= ROWS_MAX)
        return fail(reader, position(reader), "too many measured rows: remove some");
    if (ls_list_grow(rows, count, room, size))
        return LS_OK;
    return ls_error_set(reader->error, LS_ENOMEM, "%.200s: no memory for the measured rows",
                        reader->yaml.name);
}

static bool parse_positive(const char *text, int64_t most, int64_t *out)
{
    return cluster_parse_whole(text, out) && *out >= 1 && *out <= most;
}

static int read_work(struct reader *reader, char cells[][CLUSTER_NAME_BYTES], int count,
                     struct ls_yaml_place at)
{
    struct ls_measured_work work = {0};
    int64_t threads = 0, most = (int64_t)1 << 50;
    bool has_bytes = count == 8, whole = count == 7 || has_bytes;
    int kind = whole ? ls_work_of_name(cells[0]) : -1;
    int dtype = whole ? cluster_dtype_of(cells[1]) : -1;
    if (kind < 0 || dtype < 0 || !parse_positive(cells[2], 1 << 20, &threads) ||
        !parse_positive(cells[3], most, &work.m) || !parse_positive(cells[4], most, &work.n) ||
        !parse_positive(cells[5], most, &work.k) ||
        (has_bytes && !parse_positive(cells[6], (int64_t)1 << 50, &work.bytes)) ||
        !cluster_parse_seconds(cells[count - 1], &work.seconds))
        return fail(reader, at,
                    "measured.works: expected rows [kind, type, threads, m, n, k, bytes, seconds], "
                    "such as [product_bt, fp32, 1, 4096, 768, 768, 17301504, 0.0123]; bytes may be "
                    "left out, types are fp32, bf16, fp16 and u8, whole numbers from 1, and the "
                    "time more than 0");
    work.kind = (enum ls_work_kind)kind;
    work.dtype = (enum ls_dtype)dtype;
    work.threads = (int)threads;
    int status = grow(reader, (void **)&reader->works, sizeof *reader->works, reader->works_count,
                      &reader->works_room);
    if (!status)
        reader->works[reader->works_count++] = (struct work_row){work, at};
    return status;
}

static int read_move(struct reader *reader, char cells[][CLUSTER_NAME_BYTES], int count,
                     struct ls_yaml_place at)
{
    struct ls_measured_move move = {0};
    int64_t ranks = 0;
    int kind = -1;
    for (int i = 0; i < LS_COMM_KINDS && count == 4; i++)
        if (strcmp(cells[0], ls_comm_kind_name((enum ls_comm_kind)i)) == 0)
            kind = i;
    if (kind < 0 || !parse_positive(cells[1], 1 << 20, &ranks) || ranks < 2 ||
        !parse_positive(cells[2], (int64_t)1 << 50, &move.bytes) ||
        !cluster_parse_seconds(cells[3], &move.seconds))
        return fail(reader, at,
                    "measured.moves: expected rows [kind, ranks, bytes, seconds], such as "
                    "[all_reduce, 2, 1048576, 0.0011]; at least 2 ranks, and the time more than 0");
    move.kind = (enum ls_comm_kind)kind;
    move.ranks = (int)ranks;
    int status = grow(reader, (void **)&reader->moves, sizeof *reader->moves, reader->moves_count,
                      &reader->moves_room);
    if (!status)
        reader->moves[reader->moves_count++] = (struct move_row){move, at};
    return status;
}

static int compare_works(const void *left, const void *right)
{
    return cluster_compare_works(&((const struct work_row *)left)->work,
                                 &((const struct work_row *)right)->work);
}

static int compare_moves(const void *left, const void *right)
{
    return cluster_compare_moves(&((const struct move_row *)left)->move,
                                 &((const struct move_row *)right)->move);
}

static int fail_twice(struct reader *reader, struct ls_yaml_place a, struct ls_yaml_place b,
                      const char *what)
{
    char text[100];
    struct ls_yaml_place first = a.line <= b.line ? a : b, second = a.line <= b.line ? b : a;
    snprintf(text, sizeof text, "%s: the same is measured on line %d: remove one", what,
             first.line);
    return fail(reader, second, text);
}

/* Hands the rows over to the cluster, in order. */
static int finish_rows(struct reader *reader)
{
    struct ls_cluster *cluster = reader->cluster;
    if (reader->works_count)
        qsort(reader->works, (size_t)reader->works_count, sizeof *reader->works, compare_works);
    if (reader->moves_count)
        qsort(reader->moves, (size_t)reader->moves_count, sizeof *reader->moves, compare_moves);
    for (int64_t i = 1; i < reader->works_count; i++)
        if (compare_works(&reader->works[i - 1], &reader->works[i]) == 0)
            return fail_twice(reader, reader->works[i - 1].at, reader->works[i].at,
                              "measured.works");
    for (int64_t i = 1; i < reader->moves_count; i++)
        if (compare_moves(&reader->moves[i - 1], &reader->moves[i]) == 0)
            return fail_twice(reader, reader->moves[i - 1].at, reader->moves[i].at,
                              "measured.moves");
    cluster->works = calloc((size_t)reader->works_count + 1, sizeof *cluster->works);
    cluster->moves = calloc((size_t)reader->moves_count + 1, sizeof *cluster->moves);
    if (!cluster->works || !cluster->moves)
        return ls_error_set(reader->error, LS_ENOMEM, "%.200s: no memory for the measured rows",
                            reader->yaml.name);
    for (; cluster->works_count < reader->works_count; cluster->works_count++)
        cluster->works[cluster->works_count] = reader->works[cluster->works_count].work;
    for (; cluster->moves_count < reader->moves_count; cluster->moves_count++)
        cluster->moves[cluster->moves_count] = reader->moves[cluster->moves_count].move;
    return LS_OK;
}

/* ---- maps -------------------------------------------------------------------------------------
 */

/* The list whose start is the current event: a row each. */
static int read_rows(struct reader *reader, bool works)
{
    int status = LS_OK;
    if (!is_at(reader, FYET_SEQUENCE_START))
        return fail(reader, position(reader), "expected a list of measured rows");
    while (!status && (status = next(reader)) == LS_OK && !is_at(reader, FYET_SEQUENCE_END)) {
        char cells[CELLS_MAX][CLUSTER_NAME_BYTES];
        struct ls_yaml_place at = position(reader);
        int count = 0;
        if (!is_at(reader, FYET_SEQUENCE_START))
            return fail(reader, at, "expected a measured row in brackets");
        status = read_cells(reader, cells, CELLS_MAX, &count);
        if (!status)
            status =
                works ? read_work(reader, cells, count, at) : read_move(reader, cells, count, at);
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
        return fail(reader, position(reader), "source: expected a text, or a list of texts");
    while ((status = next(reader)) == LS_OK && !is_at(reader, FYET_SEQUENCE_END))
        if (!is_at(reader, FYET_SCALAR) || ++count > SOURCES_MAX)
            return fail(reader, position(reader), "source: expected a text, or a list of texts");
    return status;
}

static int read_map(struct reader *reader, const char *prefix);

/* The list whose start is the current event: a map each. */
static int read_links(struct reader *reader)
{
    struct ls_cluster *cluster = reader->cluster;
    size_t keys;
    const struct cluster_key *key = cluster_keys(&keys);
    int status = LS_OK;
    if (!is_at(reader, FYET_SEQUENCE_START))
        return fail(reader, position(reader), "links: expected a list, from the innermost link");
    while (!status && (status = next(reader)) == LS_OK && !is_at(reader, FYET_SEQUENCE_END)) {
        struct ls_yaml_place at = position(reader);
        char what[80];
        snprintf(what, sizeof what, "links: expected at most %d of them, a map each",
                 (int)LS_CLUSTER_LINKS_MAX);
        if (cluster->links == LS_CLUSTER_LINKS_MAX || !is_at(reader, FYET_MAPPING_START))
            return fail(reader, at, what);
        for (size_t i = 0; i < keys; i++)
            if (cluster_key_is_link(&key[i]))
                reader->seen[i] = (struct ls_yaml_place){0, 0};
        cluster_link_defaults(&cluster->link[cluster->links]);
        reader->link_at[cluster->links++] = at;
        status = read_map(reader, "links.");
        if (!status)
            status = check_required(reader, true, at);
    }
    return status;
}

/* The value of `name` is the current event; on success, its end. */
static int read_value(struct reader *reader, struct ls_yaml_place at, const char *name)
{
    char what[512], prefix[CLUSTER_NAME_BYTES + 2];
    int index = cluster_key_index(name);
    if (index >= 0)
        return read_figure(reader, at, index);
    if (strcmp(name, "source") == 0)
        return read_source(reader);
    if (strcmp(name, "links") == 0) {
        int status = see_once(reader, &reader->links_at, at, name);
        return status ? status : read_links(reader);
    }
    if (strcmp(name, "measured.works") == 0 || strcmp(name, "measured.moves") == 0)
        return read_rows(reader, strcmp(name, "measured.works") == 0);
    if (strcmp(name, "measured") != 0 && !cluster_is_group(name)) {
        cluster_unknown(name, what, sizeof what);
        return fail(reader, at, what);
    }
    if (!is_at(reader, FYET_MAPPING_START)) {
        snprintf(what, sizeof what, "%s is a group: expected indented keys under it", name);
        return fail(reader, at, what);
    }
    snprintf(prefix, sizeof prefix, "%s.", name);
    return read_map(reader, prefix);
}

/* The current event is the map's start; on success, its end. prefix is "" or "group.". */
static int read_map(struct reader *reader, const char *prefix)
{
    int status;
    while ((status = next(reader)) == LS_OK && !is_at(reader, FYET_MAPPING_END)) {
        struct ls_yaml_place at = position(reader);
        char word[CLUSTER_NAME_BYTES / 2], name[CLUSTER_NAME_BYTES];
        if (!is_at(reader, FYET_SCALAR))
            return fail(reader, at, "expected a key");
        if (!ls_yaml_text(&reader->yaml, word, sizeof word) || strlen(prefix) > sizeof name / 2 - 1)
            return fail(reader, at, "unknown key (too long)");
        snprintf(name, sizeof name, "%s%s", prefix, word);
        /* A dot in a key would say twice which group it is in. */
        if (strchr(word, '.') || !*word)
            return fail(reader, at, "expected a key without dots: write a group, and keys in it");
        status = next(reader);
        if (!status)
            status = read_value(reader, at, name);
        if (status)
            return status;
    }
    return status;
}

static int read_document(struct reader *reader)
{
    struct ls_cluster *cluster = reader->cluster;
    int link, status = ls_yaml_begin(&reader->yaml);
    if (!status)
        status = check_plain(reader);
    if (status)
        return status;
    if (!is_at(reader, FYET_MAPPING_START))
        return fail(reader, position(reader), WANTED);
    status = read_map(reader, "");
    if (!status)
        status = ls_yaml_end(&reader->yaml);
    if (!status)
        status = check_required(reader, false, (struct ls_yaml_place){1, 1});
    if (status)
        return status;
    double *peak = cluster->accelerator.peak;
    for (int i = 0; i < 3; i++)
        peak[i] = peak[i] > 0 ? peak[i] : peak[1];
    status = cluster_check(cluster, &link, reader->error);
    if (status) {
        struct ls_yaml_place at = link >= 0               ? reader->link_at[link]
                                  : reader->links_at.line ? reader->links_at
                                                          : (struct ls_yaml_place){1, 1};
        return ls_error_prefix(reader->error, "%.200s:%d:%d", reader->yaml.name, at.line,
                               at.column);
    }
    return finish_rows(reader);
}

int ls_cluster_read_text(const char *name, const char *text, size_t bytes,
                         struct ls_cluster *cluster, struct ls_error *error)
{
    struct reader reader = {.cluster = cluster, .error = error};
    cluster_defaults(cluster);
    int status = ls_yaml_open(&reader.yaml, name, text, bytes, WANTED, error);
    if (!status)
        status = read_document(&reader);
    ls_yaml_close(&reader.yaml);
    free(reader.works);
    free(reader.moves);
    if (status)
        ls_cluster_release(cluster);
    return status;
}

int ls_cluster_read(const char *path, struct ls_cluster *cluster, struct ls_error *error)
{
    char *text;
    size_t bytes;
    int status = ls_file_read(path, FILE_BYTES_MAX, LS_ECONFIG, &text, &bytes, error);
    if (status)
        ls_error_prefix(error, "cluster");
    else
        status = ls_cluster_read_text(path, text, bytes, cluster, error);
    free(text);
    return status;
}
