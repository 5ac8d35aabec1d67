/* Which stores a list of names is of. */
#ifndef DATA_STORE_NAMES_H
#define DATA_STORE_NAMES_H

#include <lockstep/base.h>

struct store_names {
    char **list; /* as ls_token_store_open takes each, "u16:" included */
    int count;
};
/* The members of spec, with folders and patterns expanded. LS_EINVAL for an empty name, LS_EDATA if
 * a folder or a pattern has no stores, LS_EIO if it cannot be read. Call the release whatever this
 * returns. */
int store_names_find(const char *spec, struct store_names *names, struct ls_error *error);
void store_names_release(struct store_names *names);
/* The file of bare tokens that "u16:FILE" names; NULL of another name. */
const char *store_name_bare(const char *name);

#endif
