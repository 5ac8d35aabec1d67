/* planner/cluster_private.h - the keys of a cluster file. */
#ifndef PLANNER_CLUSTER_PRIVATE_H
#define PLANNER_CLUSTER_PRIVATE_H

#include <lockstep/config.h>
#include <lockstep/planner/cluster.h>

enum { CLUSTER_NAME_BYTES = 64, CLUSTER_VALUE_BYTES = 256, CLUSTER_KEYS_MAX = 48 };

/* The keys of the file. Those of a link are named "links.KEY" and lie in a struct ls_cluster_link;
 * one without an initial is required. */
const struct ls_config_key *cluster_keys(void);
bool cluster_key_is_link(const struct ls_config_key *key);
/* "unknown key acelerator: did you mean accelerator?" */
void cluster_unknown(const char *name, char *what, size_t bytes);
/* Where the value lies, of a link in links[link]. */
void *cluster_slot(const struct ls_cluster *cluster, const struct ls_config_key *key, int link);
/* All keys of the cluster, or of one link, as they are where the file has none. */
void cluster_defaults(struct ls_cluster *cluster);
void cluster_link_defaults(struct ls_cluster_link *link);

/* "fp32", "bf16", "fp16", and of copies "u8". */
extern const struct ls_word cluster_dtypes[];

/* ---- what fits together: cluster.c ----------------------------------------------------------- */

/* Checks what several keys make. On failure *link is the link that is wrong, -1: none. */
int cluster_check(const struct ls_cluster *cluster, int *link, struct ls_error *error);

#endif
