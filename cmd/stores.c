/* A store, or the two that prepare made under one name. */
#include "stores.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

static bool has_index(const char *prefix, const char *suffix, char path[PATH_MAX])
{
    char index[PATH_MAX + 8];
    snprintf(path, PATH_MAX, "%s%s", prefix, suffix);
    snprintf(index, sizeof index, "%s.idx", path);
    return access(index, F_OK) == 0;
}

int stores_each(const char *path, int (*visit)(void *user, const char *store, struct ls_error *),
                void *user, struct ls_error *error)
{
    char store[PATH_MAX];
    if (has_index(path, "", store) || !has_index(path, "_train", store))
        return visit(user, path, error);
    int status = visit(user, store, error);
    if (!status && has_index(path, "_valid", store))
        status = visit(user, store, error);
    return status;
}
