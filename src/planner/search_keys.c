/* Keys of a plan, as it has them in text, and the configuration that they make. */
#include <lockstep/planner/search.h>

#include <stdio.h>
#include <string.h>

/* The character at *at of a word, which a backslash escapes in quotes, as ls_config_value writes
 * it; *at goes to its last byte. */
static char char_read(const char *text, size_t *at, bool quoted)
{
    unsigned code;
    if (!quoted || text[*at] != '\\' || !text[*at + 1])
        return text[*at];
    if (sscanf(text + *at, "\\u%4x", &code) != 1)
        return text[++*at];
    *at += strlen("u0000");
    return (char)code;
}

/* A word as a shell reads it: without its quotes. */
static int word_read(const char *text, size_t length, char *word, struct ls_error *error)
{
    size_t used = 0;
    bool quoted = false;
    if (length >= LS_SEARCH_WORD_BYTES)
        return ls_error_set(error, LS_ECONFIG,
                            "%.64s...: expected a key with its value of at most %d bytes in all",
                            text, LS_SEARCH_WORD_BYTES - 1);
    for (size_t i = 0; i < length; i++)
        if (text[i] == '"')
            quoted = !quoted;
        else
            word[used++] = char_read(text, &i, quoted);
    word[used] = '\0';
    return LS_OK;
}

/* Whether another key is behind the comma, or nothing: a split has commas of its own. */
static bool comma_ends(const char *comma)
{
    size_t next = strcspn(comma + 1, ", ");
    return next == 0 || memchr(comma + 1, '=', next);
}

/* How long the first word is: up to a blank or such a comma that is not in quotes. */
static size_t word_length(const char *text)
{
    bool quoted = false;
    size_t end = 0;
    for (; text[end] && (quoted || text[end] != ' '); end++) {
        if (text[end] == ',' && !quoted && comma_ends(text + end))
            break;
        quoted ^= text[end] == '"';
        end += quoted && text[end] == '\\' && text[end + 1];
    }
    return end;
}

int ls_search_word(const char **text, char *word, struct ls_error *error)
{
    size_t length = 0;
    word[0] = '\0';
    while (**text && (length = word_length(*text)) == 0)
        ++*text;
    int status = word_read(*text, length, word, error);
    if (!status)
        *text += length;
    return status;
}

int ls_search_keys_set(struct ls_config *config, const char *text, struct ls_error *error)
{
    static const char section[] = "parallel.";
    enum { SECTION = sizeof section - 1 };
    char word[SECTION + LS_SEARCH_WORD_BYTES];
    memcpy(word, section, SECTION);
    for (;;) {
        int status = ls_search_word(&text, word + SECTION, error);
        if (status || !word[SECTION])
            return status;
        bool whole = memchr(word + SECTION, '.', strcspn(word + SECTION, "="));
        if ((status = ls_config_set(config, whole ? word + SECTION : word, error)))
            return status;
    }
}

/* Keys of the layout become their defaults, but those of the command line, and the budget, which is
 * a limit and not a choice. */
static int layout_forget(struct ls_config *config, struct ls_error *error)
{
    size_t count;
    const struct ls_config_key *keys = ls_config_keys(&count);
    const struct ls_config before = *config;
    ls_config_layout_reset(config);
    config->memory.device_budget = before.memory.device_budget;
    int status = LS_OK;
    for (size_t i = 0; i < count && !status; i++) {
        char text[LS_SEARCH_WORD_BYTES], word[LS_SEARCH_WORD_BYTES];
        if (keys[i].part != LS_CONFIG_LAYOUT || before.origin[i].line != LS_CONFIG_FROM_OVERRIDE)
            continue;
        int used = snprintf(text, sizeof text, "%s=", keys[i].name);
        ls_config_value(&before, &keys[i], text + used, sizeof text - (size_t)used);
        status = word_read(text, strlen(text), word, error);
        if (!status)
            status = ls_config_set(config, word, error);
    }
    return status;
}

int ls_search_apply(const struct ls_search_plan *plan, struct ls_config *config,
                    struct ls_error *error)
{
    int status = layout_forget(config, error);
    if (status || !strcmp(plan->keys, "one rank"))
        return status;
    return ls_search_keys_set(config, plan->keys, error);
}
