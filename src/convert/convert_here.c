/* What is here: the names that a reason of a refusal is held against. The table of the
 * configuration and the families have them, so what is added there is known at once. */
#include "convert_private.h"

#include <fnmatch.h>
#include <string.h>

struct names {
    const char *patterns;
    char *found;
};

/* Whether a pattern is that text: of the patterns those count that have ": " where the text does.
 */
static bool matches(const char *patterns, const char *text)
{
    bool says = strstr(text, ": ");
    for (const char *at = patterns; *at; at += *at == '|') {
        char one[64];
        size_t length = strcspn(at, "|");
        LS_ASSERT(length < sizeof one);
        snprintf(one, sizeof one, "%.*s", (int)length, at);
        at += length;
        if (says == (strstr(one, ": ") != NULL) && fnmatch(one, text, FNM_CASEFOLD) == 0)
            return true;
    }
    return false;
}

/* name, joint, rest: "optim.name", "=", "lion". */
static bool is_named(const struct names *names, const char *name, const char *joint,
                     const char *rest)
{
    char text[1024];
    snprintf(text, sizeof text, "%s%s%s", name, joint, rest);
    if (!matches(names->patterns, text))
        return false;
    bool help = strcmp(joint, ": ") == 0 && strchr(name, '.');
    snprintf(names->found, LS_CONVERT_HERE_BYTES, "%.120s", help ? name : text);
    return true;
}

static bool key_is_named(const struct names *names, const struct ls_config_key *key)
{
    bool is = is_named(names, key->name, "", "") || is_named(names, key->name, ": ", key->help);
    for (const struct ls_word *word = key->words; word && word->word && !is; word++)
        is = is_named(names, key->name, "=", word->word);
    return is;
}

static bool family_is_named(const struct names *names, enum ls_arch arch)
{
    const char *step;
    bool biased;
    for (const struct ls_preset *preset = ls_family_of(arch)->presets; preset->name; preset++)
        if (is_named(names, "model.preset", "=", preset->name))
            return true;
    for (int i = 0; (step = ls_family_step(arch, i, &biased)); i++)
        if (is_named(names, ls_arch_name(arch), ": ", step))
            return true;
    return false;
}

bool ls_convert_here(const char *patterns, char found[LS_CONVERT_HERE_BYTES])
{
    const struct names names = {patterns, found};
    size_t count;
    const struct ls_config_key *keys = ls_config_keys(&count);
    for (size_t i = 0; i < count; i++)
        if (key_is_named(&names, &keys[i]))
            return true;
    for (int arch = 0; arch < LS_ARCHES; arch++)
        if (family_is_named(&names, (enum ls_arch)arch))
            return true;
    return false;
}
