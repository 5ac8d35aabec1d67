/* Which stores a list of names is of. */
#ifndef DATA_STORE_NAMES_H
#define DATA_STORE_NAMES_H

#include <lockstep/net.h>

struct store_names {
    char **list; /* as ls_token_store_open takes each, "u16:" included */
    int count;
};
/* The members of spec, with folders and patterns expanded; those of S3 by the options (NULL: the
 * usual ones). LS_EINVAL for an empty name, LS_ECONFIG for a folder of a web server, LS_EDATA if a
 * folder or a pattern has no stores, LS_EIO if it cannot be read. Errors of
 * store_names_comma_check, if a member is not there. Call the release whatever this returns. */
int store_names_find(const char *spec, const struct ls_net_options *net, struct store_names *names,
                     struct ls_error *error);
void store_names_release(struct store_names *names);
/* LS_EINVAL if a store that is there has a comma in its path, which parts it in spec. */
int store_names_comma_check(const char *spec, struct ls_error *error);
/* Whether `data prepare` made stores under that name: hint = "; did you mean NAME_train?". */
bool store_name_prepared(const char *name, char *hint, size_t bytes);
/* The file of bare tokens that "u16:FILE" names; NULL of another name. */
const char *store_name_bare(const char *name);

#endif
