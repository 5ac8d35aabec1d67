/* Layouts from configuration keys. */
#include "layouts.h"
#include "../support/suite.h"

struct ls_config config_of(const char *const *keys)
{
    struct ls_config config;
    struct ls_error error = {0};
    ls_config_defaults(&config);
    for (; *keys; keys++)
        if (ls_config_set(&config, *keys, &error))
            fail_msg("%s: %s", *keys, error.text);
    assert_ok(ls_config_resolve(&config, 257, &error), error);
    return config;
}

struct ls_layout admitted(const char *const *keys)
{
    struct ls_config config = config_of(keys);
    static struct ls_layout layout;
    struct ls_error error = {0};
    if (ls_config_layout(&config, 0, &layout, &error))
        fail_msg("refused: %s", error.text);
    return layout;
}
