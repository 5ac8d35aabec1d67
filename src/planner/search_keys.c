/* Keys of a plan, as it has them in text, and the configuration that they make. */
#include <lockstep/planner/search.h>

#include <stdio.h>
#include <string.h>

enum { WORD_BYTES = 5 * LS_CONFIG_TEXT_BYTES }; /* of a key with its value */

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
static int word_set(struct ls_config *config, const char *text, size_t length,
                    struct ls_error *error)
{
    char word[WORD_BYTES + sizeof "parallel."] = "";
    size_t used = 0;
    bool quoted = false;
    if (length >= WORD_BYTES)
        return ls_error_set(error, LS_ECONFIG,
                            "%.64s...: expected a key with its value of at most %d bytes in all",
                            text, WORD_BYTES - 1);
    if (!memchr(text, '.', strcspn(text, "=")))
        used = (size_t)snprintf(word, sizeof word, "parallel.");
    for (size_t i = 0; i < length; i++)
        if (text[i] == '"')
            quoted = !quoted;
        else
            word[used++] = char_read(text, &i, quoted);
    word[used] = '\0';
    return ls_config_set(config, word, error);
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

int ls_search_keys_set(struct ls_config *config, const char *text, struct ls_error *error)
{
    int status = LS_OK;
    while (*text && !status) {
        size_t length = word_length(text);
        if (length > 0)
            status = word_set(config, text, length, error);
        text += length + (text[length] != '\0');
    }
    return status;
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
        char word[WORD_BYTES];
        if (keys[i].part != LS_CONFIG_LAYOUT || before.origin[i].line != LS_CONFIG_FROM_OVERRIDE)
            continue;
        int used = snprintf(word, sizeof word, "%s=", keys[i].name);
        ls_config_value(&before, &keys[i], word + used, sizeof word - (size_t)used);
        status = word_set(config, word, strlen(word), error);
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
