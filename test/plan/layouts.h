/* What the tests of plan share: layouts from configuration keys. */
#ifndef TEST_PLAN_LAYOUTS_H
#define TEST_PLAN_LAYOUTS_H

#include <lockstep/config.h>

#define KEYS(...)                                                                                  \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

/* A resolved configuration, vocabulary 257 where no preset says otherwise. Fails the test where a
 * key is refused. */
struct ls_config config_of(const char *const *keys);
/* The layout of such a configuration. Fails the test where it is refused. */
struct ls_layout admitted(const char *const *keys);

#endif
