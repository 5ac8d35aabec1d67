/* The words of a script's command as entries: each --argument, with what follows it. */
#include "convert/convert_private.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 256 };

size_t convert_options_of(const struct convert_words *words)
{
    size_t count = 0;
    for (size_t i = 0; i < words->count; i++)
        count += strncmp(words->at[i].text, "--", 2) == 0;
    return count;
}

static bool is_option(const char *word)
{
    return word[0] == '-' && (word[1] == '-' ? word[2] != '\0' : isalpha((unsigned char)word[1]));
}

/* Whether the word is all arguments that the script is called with, or those from one on. */
static bool is_called_with(const char *word)
{
    return convert_among(word, "$@|$*|${@}|${*}") || strncmp(word, "${@:", 4) == 0;
}

/* Underscores are hyphens, but for those of a variable: launchers take both. */
static void option_name(const char *word, char name[NAME_BYTES])
{
    bool variable = false;
    size_t i = 0;
    for (; word[i] && word[i] != '=' && i + 1 < NAME_BYTES; i++) {
        variable |= word[i] == '$';
        name[i] = word[i] == '_' && !variable ? '-' : word[i];
    }
    name[i] = '\0';
}

static int add_option(struct convert_entries *entries, const char *name, const char *text,
                      int count, int line, struct ls_error *error)
{
    double ignored;
    struct convert_entry entry = {.key = (char *)name, .text = (char *)text, .line = line};
    entry.kind = count > 1                        ? CONVERT_LIST
                 : convert_number(text, &ignored) ? CONVERT_NUMBER
                                                  : CONVERT_TEXT;
    if (count == 0) {
        entry.kind = CONVERT_BOOL;
        entry.text = (char *)"true";
    }
    return convert_entries_set(entries, &entry, error);
}

/* ---- the program ---------------------------------------------------------------------------- */

/* The first word behind the launcher's, which the program's name ends; 0 if there is no program. */
static size_t program_of(const struct convert_words *words)
{
    for (size_t i = 0; i < words->count; i++) {
        size_t length = strlen(words->at[i].text);
        if (length > 3 && strcmp(words->at[i].text + length - 3, ".py") == 0)
            return i + 1;
    }
    return 0;
}

/* The program's name, if the table has a row for it. */
static int add_program(struct convert_entries *entries, const struct convert_word *word,
                       struct ls_error *error)
{
    const char *slash = strrchr(word->text, '/'), *name = slash ? slash + 1 : word->text;
    if (!convert_rule_of(&convert_megatron, name))
        return LS_OK;
    return add_option(entries, name, "", 0, word->line, error);
}

/* ---- values --------------------------------------------------------------------------------- */

/* 6_000_000, as Python takes it. */
static bool has_groups(const char *text)
{
    size_t digits = 0;
    for (; isdigit((unsigned char)*text) || (*text == '_' && digits > 0); text++)
        digits = *text == '_' ? 0 : digits + 1;
    return !*text && digits > 0;
}

/* Whether the argument is no text here: of a folder 2024_11_30 every character counts. */
static bool takes_number(const char *key)
{
    const struct ls_convert_rule *rule = convert_rule_of(&convert_megatron, key);
    char ours[NAME_BYTES];
    if (!rule || !*rule->ours)
        return false;
    snprintf(ours, sizeof ours, "%.*s", (int)strcspn(rule->ours, ","), rule->ours);
    enum ls_config_type type = ls_config_key_of(ours)->type;
    return type < LS_CONFIG_STRING || type > LS_CONFIG_NAME;
}

/* Quotes of either kind that a script keeps for another shell go, and what is between the digits
 * of a number. */
static void put_value(FILE *file, const char *text, bool number)
{
    size_t length = strlen(text);
    bool quotes = length > 1 && strchr("\"'", text[0]) && text[length - 1] == text[0];
    bool groups = number && has_groups(text);
    for (size_t i = quotes; i < length - quotes; i++)
        if (!groups || text[i] != '_')
            fputc(text[i] == ' ' ? CONVERT_BLANK : text[i], file);
}

/* What follows argument i, or what is behind its =, in one text; *next is the word behind that. */
static char *values_of(const struct convert_words *words, size_t i, size_t behind, const char *key,
                       int *count, size_t *next)
{
    bool number = takes_number(key);
    const char *equals = strchr(words->at[i].text, '=');
    char *text = NULL;
    size_t bytes, at = i + 1;
    FILE *file = open_memstream(&text, &bytes);
    if (!file)
        return NULL;
    *count = equals != NULL;
    if (equals)
        put_value(file, equals + 1, number);
    for (; !equals && at < words->count && at + 1 != behind; at++) {
        if (is_option(words->at[at].text) || is_called_with(words->at[at].text))
            break;
        if ((*count)++)
            fputc(' ', file);
        put_value(file, words->at[at].text, number);
    }
    *next = at;
    if (fclose(file) != 0) {
        free(text);
        return NULL;
    }
    for (char *c = text; *count < 2 && *c; c++)
        *c = *c == CONVERT_BLANK ? ' ' : *c;
    return text;
}

/* ---- arguments ------------------------------------------------------------------------------ */

int convert_options_add(struct convert_entries *entries, const struct convert_words *words,
                        const char *name, struct ls_error *error)
{
    size_t behind = program_of(words);
    int status = behind ? add_program(entries, &words->at[behind - 1], error) : LS_OK;
    for (size_t i = 0, next; i < words->count && !status; i = next) {
        char key[NAME_BYTES];
        int count = 0;
        next = i + 1;
        if (i >= behind && is_called_with(words->at[i].text))
            status = add_option(entries, words->at[i].text, "", 0, words->at[i].line, error);
        if (!is_option(words->at[i].text) || words->at[i].text[1] != '-')
            continue;
        option_name(words->at[i].text, key);
        char *text = values_of(words, i, i < behind ? behind : 0, key, &count, &next);
        if (!text)
            status = ls_no_memory(error, "for an argument");
        else if (i >= behind || convert_rule_of(&convert_megatron, key))
            status = add_option(entries, key, text, count, words->at[i].line, error);
        free(text);
    }
    return status == LS_ECONFIG ? ls_error_prefix(error, "%.200s", name) : status;
}

bool convert_is_training(const struct convert_words *words)
{
    char name[NAME_BYTES];
    for (size_t i = 0; i < words->count; i++) {
        option_name(words->at[i].text, name);
        if (strncmp(name, "--", 2) == 0 && convert_rule_of(&convert_megatron, name))
            return true;
    }
    return convert_options_of(words) > 0 && (words->at[0].text[0] == '-' || program_of(words));
}
