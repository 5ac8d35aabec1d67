/* Version and commit, as the build gives them. */
#include <lockstep/base/version.h>

/* The Makefile gives both. */
#ifndef LS_COMMIT
#define LS_COMMIT "unknown"
#endif

const char *ls_version(void)
{
    return LS_VERSION;
}

const char *ls_commit(void)
{
    return LS_COMMIT;
}
