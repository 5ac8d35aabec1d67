/* Which stores a path means to the commands of `lockstep data`. */
#ifndef CMD_STORES_H
#define CMD_STORES_H

#include <lockstep/base.h>

/* Calls visit for the store; or, if path is what `data prepare` was told as --output, for
 * PATH_train and PATH_valid (if it is there). The first failure ends it. */
int stores_each(const char *path, int (*visit)(void *user, const char *store, struct ls_error *),
                void *user, struct ls_error *error);

#endif
