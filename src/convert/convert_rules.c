/* The tables of all projects, and how a key is found in one. */
#include "convert_private.h"

#include <string.h>

static const struct convert_project *const projects[] = {
    [LS_CONVERT_DEEPSPEED] = &convert_deepspeed,
    [LS_CONVERT_MEGATRON] = &convert_megatron,
    [LS_CONVERT_TORCHTITAN] = &convert_torchtitan,
};
enum { PROJECTS = sizeof projects / sizeof *projects, NEAREST_MAX = 2048 };

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

const struct ls_convert_rule *convert_rule_of(const struct convert_project *project,
                                              const char *key)
{
    const struct ls_convert_rule *found = NULL;
    size_t longest = 0;
    for (const struct ls_convert_rule *rule = project->rules; rule->theirs; rule++) {
        size_t length = strlen(rule->theirs);
        if (strcmp(rule->theirs, key) == 0)
            return rule;
        if (rule->theirs[length - 1] != '*' || strncmp(rule->theirs, key, length - 1) != 0)
            continue;
        if (length > longest) {
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

const char *convert_nearest(const struct convert_project *project, const char *key)
{
    const char *names[NEAREST_MAX], *leaves[NEAREST_MAX];
    size_t count = 0;
    for (const struct ls_convert_rule *rule = project->rules; rule->theirs; rule++) {
        const char *name = rule->theirs;
        if (name[strlen(name) - 1] == '*')
            continue;
        LS_ASSERT(count < NEAREST_MAX);
        names[count] = name;
        leaves[count++] = leaf_of(name);
    }
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
