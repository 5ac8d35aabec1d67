/* The tables of all projects, and how a key is found in one. */
#include "convert/convert_private.h"

#include <stdlib.h>
#include <string.h>

static const struct convert_project *const projects[] = {
    [LS_CONVERT_DEEPSPEED] = &convert_deepspeed,
    [LS_CONVERT_MEGATRON] = &convert_megatron,
    [LS_CONVERT_TORCHTITAN] = &convert_torchtitan,
};
enum { PROJECTS = sizeof projects / sizeof *projects, KEYS_MAX = 1024 };

const struct convert_project *convert_project_of(enum ls_convert_project project)
{
    return projects[project];
}

const char *ls_convert_project_name(int project)
{
    return project >= 0 && project < PROJECTS ? projects[project]->name : NULL;
}

const char *ls_convert_project_title(enum ls_convert_project project)
{
    return projects[project]->title;
}

const struct ls_convert_rule *ls_convert_rules(enum ls_convert_project project)
{
    return projects[project]->rules;
}

bool ls_convert_rule_key(const struct ls_convert_rule *rule, int i, char key[LS_CONVERT_KEY_BYTES])
{
    const char *list = rule->theirs, *word;
    size_t length = 0;
    while (ls_word_next(&list, &word, &length) && i > 0)
        i--;
    LS_ASSERT(length < LS_CONVERT_KEY_BYTES);
    memcpy(key, word, length);
    key[length] = '\0';
    return length > 0;
}

const struct ls_convert_rule *convert_rule_of(const struct convert_project *project,
                                              const char *key)
{
    const struct ls_convert_rule *found = NULL;
    size_t longest = 0, bytes = strlen(key), length;
    const char *at;
    for (const struct ls_convert_rule *rule = project->rules; rule->theirs; rule++)
        for (const char *list = rule->theirs; ls_word_next(&list, &at, &length);) {
            if (length == bytes && memcmp(at, key, bytes) == 0)
                return rule;
            if (length > longest && at[length - 1] == '*' && strncmp(at, key, length - 1) == 0) {
                longest = length;
                found = rule;
            }
        }
    return found;
}

/* The part behind the last dot. */
static const char *leaf_of(const char *key)
{
    const char *dot = strrchr(key, '.');
    return dot ? dot + 1 : key;
}

/* Every key of the project but those with a *; each begins in text, which holds them all. */
static size_t known_keys(const struct convert_project *project, char *text, const char **names,
                         const char **leaves)
{
    size_t count = 0;
    for (const struct ls_convert_rule *rule = project->rules; rule->theirs; rule++)
        for (int i = 0; ls_convert_rule_key(rule, i, text); i++) {
            size_t length = strlen(text);
            if (text[length - 1] == '*')
                continue;
            LS_ASSERT(count < KEYS_MAX);
            names[count] = text;
            leaves[count++] = leaf_of(text);
            text += length + 1;
        }
    return count;
}

static const char *nearest(const char *key, const char *const *names, const char *const *leaves,
                           size_t count)
{
    for (size_t i = 0; i < count; i++) /* another section, or none */
        if (strcmp(leaf_of(key), leaves[i]) == 0)
            return names[i];
    const char *near = ls_nearest(key, names, count);
    if (near)
        return near;
    near = ls_nearest(leaf_of(key), leaves, count);
    for (size_t i = 0; near && i < count; i++)
        if (leaves[i] == near)
            return names[i];
    return NULL;
}

bool convert_nearest(const struct convert_project *project, const char *key,
                     char near[LS_CONVERT_KEY_BYTES])
{
    static const size_t bytes = KEYS_MAX * LS_CONVERT_KEY_BYTES;
    const char *names[KEYS_MAX], *leaves[KEYS_MAX];
    char *text = malloc(bytes);
    size_t count = text ? known_keys(project, text, names, leaves) : 0;
    const char *found = nearest(key, names, leaves, count);
    if (found)
        snprintf(near, LS_CONVERT_KEY_BYTES, "%s", found);
    free(text);
    return found;
}
