/* A cluster: what its figures must be to fit together, and setting one of them. */
#include "planner/cluster_private.h"

#include <stdlib.h>
#include <string.h>

double ls_cluster_peak(const struct ls_cluster *cluster, enum ls_dtype dtype)
{
    return cluster->accelerator.peak[dtype == LS_BF16 ? 1 : dtype == LS_F16 ? 2 : 0];
}

void ls_cluster_release(struct ls_cluster *cluster)
{
    free(cluster->works);
    free(cluster->moves);
    cluster->works = NULL;
    cluster->moves = NULL;
    cluster->works_count = cluster->moves_count = 0;
}

/* ---- what fits together ---------------------------------------------------------------------- */

/* "8 of near": a figure as errors show it. */
struct of_link {
    char text[2 * LS_CLUSTER_NAME_BYTES + 64];
};
static struct of_link of_link(const struct ls_cluster_link *link, double figure, const char *more)
{
    struct of_link of;
    snprintf(of.text, sizeof of.text, "%.15g of %s%s", figure, link->name, more);
    return of;
}

static int check_link(const struct ls_cluster *cluster, int index, struct ls_error *error)
{
    const struct ls_cluster_link *link = &cluster->link[index];
    if (strcmp(link->name, "inter") == 0 || strcmp(link->name, "intra") == 0)
        return ls_error_refuse(error, LS_ECONFIG, "links.name", link->name,
                               "this is what `--what-if` calls the outermost or the innermost "
                               "link; expected another name");
    for (int i = 0; i < index; i++)
        if (strcmp(cluster->link[i].name, link->name) == 0)
            return ls_error_refuse(error, LS_ECONFIG, "links.name", link->name,
                                   "link %d has this name too; expected another", i + 1);
    int64_t below = index ? cluster->link[index - 1].joins : 1;
    bool outermost = index == cluster->links - 1; /* whose last domain may not be full */
    if (link->joins < below || (index && link->joins == below) ||
        (!outermost && link->joins % below))
        return ls_error_refuse(
            error, LS_ECONFIG, "links.joins", of_link(link, (double)link->joins, "").text,
            "expected %s than the %lld that %s joins%s", index ? "more" : "no less",
            (long long)below, index ? cluster->link[index - 1].name : "nothing",
            outermost ? "" : ", and a multiple of these");
    if (link->oversubscription > 1 && link->topology != LS_LINK_FAT_TREE)
        return ls_error_refuse(error, LS_ECONFIG, "links.oversubscription",
                               of_link(link, link->oversubscription, "").text,
                               "only a fat tree is oversubscribed; expected topology: fat-tree, or "
                               "1");
    return LS_OK;
}

int cluster_check(const struct ls_cluster *cluster, int *link, struct ls_error *error)
{
    int64_t all = cluster->hosts * cluster->accelerators;
    *link = -1;
    if (cluster->links == 0 && all > 1) {
        ls_error_set(error, LS_ECONFIG,
                     "links: there is none between %lld accelerators; expected at least one",
                     (long long)all);
        return ls_error_about(error, "links", strlen("links: "));
    }
    for (*link = 0; *link < cluster->links; ++*link) {
        int status = check_link(cluster, *link, error);
        if (status)
            return status;
    }
    *link = cluster->links - 1;
    if (cluster->links && cluster->link[*link].joins != all)
        return ls_error_refuse(
            error, LS_ECONFIG, "links.joins",
            of_link(&cluster->link[*link], (double)cluster->link[*link].joins, ", the outermost")
                .text,
            "expected all %lld accelerators (hosts %lld x accelerators %lld)", (long long)all,
            (long long)cluster->hosts, (long long)cluster->accelerators);
    return LS_OK;
}

/* ---- setting one ----------------------------------------------------------------------------- */

/* The link that text names, which ends there or at a dot: *rest is what follows. -1: none. */
static int link_named(const struct ls_cluster *cluster, const char *text, const char **rest)
{
    for (int i = -2; i < cluster->links; i++) {
        const char *name = i == -2 ? "inter" : i == -1 ? "intra" : cluster->link[i].name;
        size_t length = strlen(name);
        if (strncmp(text, name, length) != 0 || (text[length] && text[length] != '.'))
            continue;
        *rest = text + length + (text[length] == '.');
        return i == -2 ? cluster->links - 1 : i == -1 ? 0 : i;
    }
    return -1;
}

/* Turns "link.NAME.KEY" into "links.KEY" and the index of the link. */
static int resolve_link(const struct ls_cluster *cluster, const char *path, char *name,
                        size_t bytes, int *link, struct ls_error *error)
{
    const char *rest, *text = strchr(path, '.') + 1;
    *link = cluster->links ? link_named(cluster, text, &rest) : -1;
    if (*link >= 0) {
        snprintf(name, bytes, "links.%.40s", *rest ? rest : "bandwidth");
        return LS_OK;
    }
    char names[LS_CLUSTER_LINKS_MAX * (LS_CLUSTER_NAME_BYTES + 2) + 1] = "";
    for (int i = 0; i < cluster->links; i++)
        ls_string_add(names, sizeof names, "", ", %s", cluster->link[i].name);
    return ls_error_set(error, LS_ECONFIG,
                        "%.80s: no such link: expected link.NAME.KEY with inter, intra%s", path,
                        names);
}

/* Links that joined all, or all of a host, still do; none joins more than there are; and the
 * outermost goes if it joins no more than the one inside it, as on one host. */
static void links_follow(struct ls_cluster *cluster, const struct ls_cluster *before)
{
    int64_t all = before->hosts * before->accelerators;
    int64_t now = cluster->hosts * cluster->accelerators;
    for (int i = 0; i < cluster->links; i++) {
        if (before->link[i].joins == all)
            cluster->link[i].joins = now;
        else if (before->link[i].joins == before->accelerators)
            cluster->link[i].joins = cluster->accelerators;
        cluster->link[i].joins = ls_min(cluster->link[i].joins, now);
    }
    while (cluster->links > 1 &&
           cluster->link[cluster->links - 1].joins <= cluster->link[cluster->links - 2].joins)
        cluster->links--;
}

int ls_cluster_set(struct ls_cluster *cluster, const char *path, const char *value,
                   struct ls_error *error)
{
    char name[CLUSTER_NAME_BYTES], why[CLUSTER_VALUE_BYTES], what[512];
    struct ls_cluster changed = *cluster;
    int link = 0, status = LS_OK;
    snprintf(name, sizeof name, "%s", path);
    if (strncmp(path, "link.", 5) == 0 || strncmp(path, "links.", 6) == 0)
        status = resolve_link(cluster, path, name, sizeof name, &link, error);
    if (status)
        return status;
    int index = strlen(path) < sizeof name + LS_CLUSTER_NAME_BYTES
                    ? ls_config_key_index(cluster_keys(), name)
                    : -1;
    if (index < 0) {
        int member = ls_config_group_index(cluster_keys(), name);
        if (member >= 0)
            snprintf(what, sizeof what, "%s is a group: expected a key of it, such as %s", name,
                     cluster_keys()[member].name);
        else
            cluster_unknown(name, what, sizeof what);
        ls_error_set(error, LS_ECONFIG, "%s", what);
        return ls_error_about(error, name, 0);
    }
    const struct ls_config_key *key = &cluster_keys()[index];
    if (!ls_config_parse(key, cluster_slot(&changed, key, link), value, false, why, sizeof why))
        return ls_error_refuse(error, LS_ECONFIG, path, *value ? value : "(nothing)", "expected %s",
                               why);
    if (changed.hosts != cluster->hosts || changed.accelerators != cluster->accelerators)
        links_follow(&changed, cluster);
    status = cluster_check(&changed, &link, error);
    if (status)
        return ls_error_prefix(error, "%.150s = %.80s", path, value);
    *cluster = changed;
    return LS_OK;
}
