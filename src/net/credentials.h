/* Who asks S3. */
#ifndef NET_CREDENTIALS_H
#define NET_CREDENTIALS_H

#include <lockstep/net.h>

/* The value of the first variable, or of the second (NULL: there is none), "" for none. */
const char *net_environment(const char *first, const char *second);
/* LS_ECONFIG: there are none, and where they are expected. */
int net_credentials(struct ls_credentials *out, struct ls_error *error);

#endif
