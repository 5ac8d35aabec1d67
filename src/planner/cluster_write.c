/* A cluster as a file: every key of the table, then what was measured. */
#include "planner/cluster_private.h"

#include <lockstep/base/figure.h>

#include <string.h>

/* Begins the groups of `name` that are not open; `open` is then its group, "" for none. */
static void move_to_group(FILE *file, char *open, const char *name)
{
    const char *dot = strrchr(name, '.');
    char group[CLUSTER_NAME_BYTES];
    snprintf(group, sizeof group, "%.*s", dot ? (int)(dot - name) : 0, name);
    const char *was = open, *is = group;
    int depth = 0;
    while (*is) {
        size_t length = strcspn(is, ".");
        if (strcspn(was, ".") != length || strncmp(was, is, length) != 0)
            break;
        was += length + (was[length] == '.');
        is += length + (is[length] == '.');
        depth++;
    }
    while (*is) {
        int length = (int)strcspn(is, ".");
        fprintf(file, "%*s%.*s:\n", 2 * depth++, "", length, is);
        is += length + (is[length] == '.');
    }
    strcpy(open, group);
}

static void write_keys(const struct ls_cluster *cluster, FILE *file)
{
    char open[CLUSTER_NAME_BYTES] = "", value[CLUSTER_VALUE_BYTES];
    for (const struct ls_config_key *key = cluster_keys(); key->name; key++) {
        if (cluster_key_is_link(key))
            continue;
        move_to_group(file, open, key->name);
        int depth = 0;
        for (const char *p = key->name; (p = strchr(p, '.')); p++)
            depth++;
        const char *word = strrchr(key->name, '.');
        ls_config_format(key, cluster_slot(cluster, key, 0), value, sizeof value);
        fprintf(file, "%*s%s: %s\n", 2 * depth, "", word ? word + 1 : key->name, value);
    }
}

static void write_links(const struct ls_cluster *cluster, FILE *file)
{
    char value[CLUSTER_VALUE_BYTES];
    if (cluster->links)
        fprintf(file, "links:\n");
    for (int l = 0; l < cluster->links; l++) {
        const char *before = "  - ";
        for (const struct ls_config_key *key = cluster_keys(); key->name; key++) {
            if (!cluster_key_is_link(key))
                continue;
            ls_config_format(key, cluster_slot(cluster, key, l), value, sizeof value);
            fprintf(file, "%s%s: %s\n", before, strchr(key->name, '.') + 1, value);
            before = "    ";
        }
    }
}

static void write_measured(const struct ls_cluster *cluster, FILE *file)
{
    if (cluster->works_count || cluster->moves_count)
        fprintf(file, "measured:\n");
    if (cluster->works_count)
        fprintf(file, "  works: # kind, type, threads, m, n, k, bytes, seconds\n");
    char seconds[LS_FIGURE_BYTES_MAX];
    for (int64_t i = 0; i < cluster->works_count; i++) {
        const struct ls_measured_work *work = &cluster->works[i];
        ls_figure_text(LS_FIGURE_NUMBER, work->seconds, seconds);
        fprintf(file, "    - [%s, %s, %d, %lld, %lld, %lld, ", ls_work_name(work->kind),
                ls_word_of(cluster_dtypes, (int)work->dtype), work->threads, (long long)work->m,
                (long long)work->n, (long long)work->k);
        if (work->bytes)
            fprintf(file, "%lld, ", (long long)work->bytes);
        fprintf(file, "%s]\n", seconds);
    }
    if (cluster->moves_count)
        fprintf(file, "  moves: # kind, ranks, bytes, seconds\n");
    for (int64_t i = 0; i < cluster->moves_count; i++) {
        const struct ls_measured_move *move = &cluster->moves[i];
        ls_figure_text(LS_FIGURE_NUMBER, move->seconds, seconds);
        fprintf(file, "    - [%s, %d, %lld, %s]\n", ls_comm_kind_name(move->kind), move->ranks,
                (long long)move->bytes, seconds);
    }
}

int ls_cluster_write(const struct ls_cluster *cluster, FILE *file, struct ls_error *error)
{
    write_keys(cluster, file);
    write_links(cluster, file);
    write_measured(cluster, file);
    if (ferror(file))
        return ls_error_set(error, LS_EIO, "the cluster %.60s cannot be written", cluster->name);
    return LS_OK;
}
