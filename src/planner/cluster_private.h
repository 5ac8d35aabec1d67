/* planner/cluster_private.h - the keys of a cluster file, and figures with units. */
#ifndef PLANNER_CLUSTER_PRIVATE_H
#define PLANNER_CLUSTER_PRIVATE_H

#include <lockstep/planner/cluster.h>

enum cluster_kind {
    CLUSTER_TEXT,
    CLUSTER_COUNT,    /* int64_t */
    CLUSTER_PAIR,     /* two int64_t, one behind the other: [128, 256] */
    CLUSTER_TOPOLOGY, /* enum ls_link_topology */
    /* The rest are double. */
    CLUSTER_NUMBER,
    CLUSTER_FLOPS,
    CLUSTER_BYTES,
    CLUSTER_RATE,
    CLUSTER_SECONDS,
    CLUSTER_WATTS
};

enum { CLUSTER_NAME_BYTES = 64, CLUSTER_VALUE_BYTES = 256, CLUSTER_KEYS_MAX = 48 };

/* A key of the file. Those of a link are named "links.KEY" and lie in a struct ls_cluster_link. */
struct cluster_key {
    const char *name;
    enum cluster_kind kind;
    bool required;
    size_t offset;
    double fallback, least, most;
    const char *help;
};
const struct cluster_key *cluster_keys(size_t *count);
/* -1: there is none of that name. */
int cluster_key_index(const char *name);
bool cluster_key_is_link(const struct cluster_key *key);
/* Some key is "name.KEY". */
bool cluster_is_group(const char *name);
/* "unknown key acelerator: did you mean accelerator?" */
void cluster_unknown(const char *name, char *what, size_t bytes);
/* Where the value lies, of a link in links[link]. */
void *cluster_slot(struct ls_cluster *cluster, const struct cluster_key *key, int link);
const void *cluster_slot_const(const struct ls_cluster *cluster, const struct cluster_key *key,
                               int link);
/* All keys of the cluster, or of one link, as they are where the file has none. */
void cluster_defaults(struct ls_cluster *cluster);
void cluster_link_defaults(struct ls_cluster_link *link);

/* ---- values: cluster_value.c ------------------------------------------------------------------
 */

/* From text to slot; false where it is none that the key takes, with what was expected in why. */
bool cluster_parse(const struct cluster_key *key, const char *text, void *slot, char *why,
                   size_t bytes);
/* The shortest text that cluster_parse reads as the same value; texts are in quotes. */
void cluster_format(const struct cluster_key *key, const void *slot, char *text, size_t bytes);
/* "a rate from 1 B/s to 1 EB/s, such as 450 GB/s". */
void cluster_expected(const struct cluster_key *key, char *text, size_t bytes);
/* A whole number, or one of seconds, of a measured row. */
bool cluster_parse_whole(const char *text, int64_t *out);
bool cluster_parse_seconds(const char *text, double *out);
/* "fp32", "bf16", "fp16", and of copies "u8"; -1: none of them. */
int cluster_dtype_of(const char *word);
const char *cluster_dtype_word(enum ls_dtype dtype);

/* ---- what fits together: cluster.c ------------------------------------------------------------
 */

/* The order of measured rows; 0: both are of the same thing. */
int cluster_compare_works(const struct ls_measured_work *a, const struct ls_measured_work *b);
int cluster_compare_moves(const struct ls_measured_move *a, const struct ls_measured_move *b);
/* Checks what several keys make. On failure *link is the link that is wrong, -1: none. */
int cluster_check(const struct ls_cluster *cluster, int *link, struct ls_error *error);

#endif
