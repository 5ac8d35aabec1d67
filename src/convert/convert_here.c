/* What is here: the names that a reason of a refusal is held against. The table of the
 * configuration and the families have them, so what is added there is known at once. */
#include "convert/convert_private.h"

#include <fnmatch.h>
#include <string.h>

enum { PATTERNS_MAX = 16 };
struct names {
    char pattern[PATTERNS_MAX][64];
    bool says[PATTERNS_MAX]; /* it has ": ", and so have the texts that it is held against */
    int count;
    char *found;
};

static void patterns_split(struct names *names, const char *patterns)
{
    const char *at;
    size_t length;
    while (ls_word_next(&patterns, &at, &length)) {
        char *pattern = names->pattern[names->count];
        LS_ASSERT(names->count < PATTERNS_MAX && length < sizeof names->pattern[0]);
        memcpy(pattern, at, length);
        pattern[length] = '\0';
        names->says[names->count++] = strstr(pattern, ": ") != NULL;
    }
}

/* Whether a pattern is that text. */
static bool matches(const struct names *names, const char *text)
{
    bool says = strstr(text, ": ");
    for (int i = 0; i < names->count; i++)
        if (says == names->says[i] && fnmatch(names->pattern[i], text, FNM_CASEFOLD) == 0)
            return true;
    return false;
}

/* name, joint, rest: "optim.name", "=", "lion". */
static bool is_named(const struct names *names, const char *name, const char *joint,
                     const char *rest)
{
    char text[1024];
    LS_ASSERT(strlen(name) + strlen(joint) + strlen(rest) < sizeof text);
    stpcpy(stpcpy(stpcpy(text, name), joint), rest);
    if (!matches(names, text))
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
    struct names names = {.found = found};
    size_t count;
    const struct ls_config_key *keys = ls_config_keys(&count);
    patterns_split(&names, patterns);
    for (size_t i = 0; i < count; i++)
        if (key_is_named(&names, &keys[i]))
            return true;
    for (int arch = 0; arch < LS_ARCHES; arch++)
        if (family_is_named(&names, (enum ls_arch)arch))
            return true;
    return false;
}
