/* The words of a shell script: quotes, and what the variables that the script or the caller sets
 * become within them. What only a run would know stays as it is written. */
#include "convert/shell.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS_MAX = 4096, NAME_BYTES = SHELL_NAME_BYTES };
#define BETWEEN SHELL_BETWEEN
#define MARK    SHELL_MARK

void shell_fail(struct shell *s, const char *what)
{
    if (!s->status)
        s->status = ls_error_line(s->error, LS_ECONFIG, s->name, s->line, "%s", what);
}

static void words_add(struct shell *s, struct convert_words *words, const char *text, int line)
{
    if (words->count >= WORDS_MAX)
        shell_fail(s, "more words than a command has");
    if (s->status)
        return;
    if (!ls_list_grow(&words->at, (int64_t)words->count, &words->room, sizeof *words->at))
        goto out;
    words->at[words->count] = (struct convert_word){strdup(text), line};
    if (words->at[words->count].text) {
        words->count++;
        return;
    }
out:
    s->status = ls_error_set(s->error, LS_ENOMEM, "%.200s: no memory to read it", s->name);
}

char shell_peek(const struct shell *s, size_t ahead)
{
    return s->at + ahead < s->bytes ? s->text[s->at + ahead] : '\0';
}

char shell_take(struct shell *s)
{
    char c = shell_peek(s, 0);
    s->at += s->at < s->bytes;
    s->line += c == '\n';
    if (c == CONVERT_DOUBTED && !s->handed_on)
        shell_fail(s, shell_control);
    return c;
}

static void put(struct shell *s, char c)
{
    s->any = true;
    if (c == '\0' || c == BETWEEN || c == MARK)
        shell_fail(s, shell_control);
    else if (s->used + 1 >= SHELL_WORD_BYTES)
        shell_fail(s, "a word that is too long");
    else
        s->word[s->used++] = c;
}

void shell_flush(struct shell *s)
{
    if (!s->any)
        return;
    s->word[s->used] = '\0';
    words_add(s, &s->command, s->word, s->mark ? s->mark : s->line);
    s->used = 0;
    s->any = false;
}

/* The value that the caller gives a variable, which wins; NULL for none. */
static const char *variable_given(const struct shell *s, const char *name)
{
    for (size_t i = 0; i < s->options->variable_count; i++) {
        const char *given = s->options->variables[i];
        if (strncmp(given, name, strlen(name)) == 0 && given[strlen(name)] == '=')
            return given + strlen(name) + 1;
    }
    return NULL;
}

const char *shell_variable(const struct shell *s, const char *name)
{
    const char *given = variable_given(s, name);
    if (given)
        return given;
    const struct convert_entry *entry = convert_entries_find(&s->variables, name);
    return entry ? entry->text : NULL;
}

/* How long the $(command) or `command` is that text begins with; 0 for none. */
static size_t command_length(const char *text)
{
    const char *end = *text == '`' ? strchr(text + 1, '`') : NULL;
    int depth = 0;
    for (size_t i = 1; strncmp(text, "$(", 2) == 0 && text[i]; i++) {
        depth += (text[i] == '(') - (text[i] == ')');
        if (depth == 0)
            return i + 1;
    }
    return end ? (size_t)(end - text) + 1 : 0;
}

void shell_expand(struct shell *s, const char *text, bool quoted)
{
    const char *command = text; /* up to here */
    int mark = s->mark;
    for (; *text && !s->status; text++)
        if (text >= command && command_length(text) > 0) {
            command = text + command_length(text);
            put(s, *text);
        } else if (text < command) {
            put(s, *text);
        } else if (*text == MARK) {
            mark = (int)strtol(text + 1, (char **)&text, 10);
            s->mark = s->used > 0 ? s->mark : mark;
            s->any |= quoted; /* a word, though it may be empty */
        } else if (*text == BETWEEN || (!quoted && isspace((unsigned char)*text))) {
            shell_flush(s);
            s->mark = mark;
        } else {
            put(s, *text);
        }
}

/* What no reader knows stays: $(command), `command`, a $((sum)) of unknown, up to its end. */
static void put_verbatim(struct shell *s, char open, char close)
{
    int depth = 0;
    do {
        char c = shell_take(s);
        depth += c == open && (open != close || depth == 0) ? 1 : c == close ? -1 : 0;
        put(s, c == '\n' ? ' ' : c);
        if (s->at >= s->bytes && depth > 0)
            shell_fail(s, "a $(command) without its end");
    } while (depth > 0 && !s->status);
}

/* The text without the quotes around it. */
static void unquote(char *text)
{
    size_t bytes = strlen(text);
    bool one = bytes >= 2 && strchr("\"'", *text) && strchr(text + 1, *text) == text + bytes - 1;
    if (one) {
        text[bytes - 1] = '\0';
        memmove(text, text + 1, bytes - 1);
    }
}

/* A variable's text without the line of its first word. */
static const char *plain(const char *text)
{
    const char *mark = *text == MARK ? strchr(text + 1, MARK) : NULL;
    return mark ? mark + 1 : text;
}

/* What a variable has behind a branch that may have set it: the variable that the condition asks
 * for, or its own name; and behind the arguments that it had, one that no table knows. Frees the
 * text. */
static char *doubted(struct shell *s, const char *name, const char *cause, char *text)
{
    char key[NAME_BYTES + 80], *other = NULL;
    const char *old = shell_variable(s, name);
    int length;
    snprintf(key, sizeof key, "--$%s=%c%s", name, CONVERT_DOUBTED, cause);
    if (old && (strcmp(plain(old), plain(text)) == 0 || strstr(old, key)))
        length = asprintf(&other, "%s", old);
    else if (strstr(text, "--"))
        length = asprintf(&other, "%s\1\2%d\2%s", old ? old : "", s->line, key);
    else
        length = asprintf(&other, "%s%s", *cause ? "" : "$", *cause ? cause : name);
    free(text);
    if (length < 0)
        s->status = ls_no_memory(s->error, "for a variable of a script");
    return length < 0 ? NULL : other;
}

void shell_variable_becomes(struct shell *s, const char *name, char *text)
{
    const char *cause;
    enum convert_truth run = convert_branches_run(&s->branches, &cause);
    if (!s->status && run == CONVERT_OPEN)
        text = doubted(s, name, cause, text);
    if (!s->status && run != CONVERT_FALSE)
        s->status = convert_entries_set(
            &s->variables,
            &(struct convert_entry){.key = (char *)name, .text = text, .line = s->line}, s->error);
    free(text);
}

/* The text, which a := gives a variable that has none. */
static void set_default(struct shell *s, const char *name, const char *text)
{
    char *line;
    if (asprintf(&line, "\2%d\2%s", s->line, text) < 0)
        s->status = ls_no_memory(s->error, "for a variable of a script");
    else
        shell_variable_becomes(s, name, line);
}

/* Behind "${": NAME, NAME[@], NAME with a default or an error behind :- - := = :? or ?, and others,
 * which stay. */
static void braces(struct shell *s, bool quoted)
{
    char inside[NAME_BYTES * 2], name[NAME_BYTES];
    size_t used = 0;
    for (int depth = 1; s->at < s->bytes && used + 1 < sizeof inside;) {
        depth += shell_peek(s, 0) == '$' && shell_peek(s, 1) == '{';
        depth -= shell_peek(s, 0) == '}';
        if (depth == 0)
            break;
        inside[used++] = shell_take(s);
    }
    inside[used] = '\0';
    if (shell_take(s) != '}')
        shell_fail(s, "a ${name} without its end");
    if (strpbrk(inside, shell_marks))
        shell_fail(s, shell_control);
    if (s->status)
        return;
    size_t length = 0;
    while (isalnum((unsigned char)inside[length]) || inside[length] == '_')
        length++;
    snprintf(name, sizeof name, "%.*s", (int)ls_min((int64_t)length, NAME_BYTES - 1), inside);
    char *rest = inside + length;
    const char *value = shell_variable(s, name);
    bool all = !*rest || strcmp(rest, "[@]") == 0 || strcmp(rest, "[*]") == 0;
    bool filled = *rest == ':'; /* an empty text is none */
    char how = length > 0 && rest[filled] ? rest[filled] : ' ', *text = rest + filled + 1;
    if (value && (all || (strchr("-=?", how) && (!filled || *plain(value))))) {
        shell_expand(s, value, quoted);
    } else if (strchr("-=", how) && !strchr(rest, '$')) {
        unquote(text);
        if (how == '=')
            set_default(s, name, text);
        shell_expand(s, text, quoted);
    } else {
        shell_expand(s, "${", true);
        shell_expand(s, inside, true);
        put(s, '}');
    }
}

/* The text of a variable of one word. */
static const char *word_of(const void *user, const char *name)
{
    const char *text = shell_variable(user, name);
    text = text ? plain(text) : NULL;
    return text && !strchr(text, BETWEEN) ? text : NULL;
}

/* Whether a $((sum)) begins here whose value is known: then that is put. */
static bool put_sum(struct shell *s)
{
    int64_t value;
    char digits[32];
    size_t length = convert_arithmetic(s->text + s->at, word_of, s, &value);
    if (length == 0)
        return false;
    for (size_t i = 0; i < length; i++)
        shell_take(s);
    snprintf(digits, sizeof digits, "%lld", (long long)value);
    shell_expand(s, digits, true);
    return true;
}

static void dollar(struct shell *s, bool quoted)
{
    char name[NAME_BYTES];
    size_t used = 0;
    if (put_sum(s))
        return;
    shell_take(s);
    if (shell_peek(s, 0) == '(') {
        put(s, '$');
        put_verbatim(s, '(', ')');
        return;
    }
    if (shell_peek(s, 0) == '{') {
        shell_take(s);
        braces(s, quoted);
        return;
    }
    while ((isalnum((unsigned char)shell_peek(s, 0)) || shell_peek(s, 0) == '_') &&
           used + 1 < sizeof name)
        name[used++] = shell_take(s);
    name[used] = '\0';
    const char *value = used ? shell_variable(s, name) : NULL;
    if (value) {
        shell_expand(s, value, quoted);
        return;
    }
    put(s, '$');
    shell_expand(s, name, true);
}

/* Whether the quotes hold "${NAME[@]}" alone: as many words as there are, which may be none. */
static bool all_words(const struct shell *s)
{
    size_t i = 2;
    while (isalnum((unsigned char)shell_peek(s, i)) || shell_peek(s, i) == '_')
        i++;
    return s->bytes - s->at > i + 4 && strncmp(s->text + s->at, "${", 2) == 0 &&
           strncmp(s->text + s->at + i, "[@]}\"", 5) == 0;
}

static void quoted(struct shell *s)
{
    char quote = shell_take(s);
    int line = s->line;
    s->any |= quote != '"' || !all_words(s);
    while (s->at < s->bytes && shell_peek(s, 0) != quote && !s->status) {
        if (quote == '"' && shell_peek(s, 0) == '$') {
            dollar(s, true);
        } else if (quote == '"' && shell_peek(s, 0) == '`') {
            put_verbatim(s, '`', '`');
        } else if (quote == '"' && shell_peek(s, 0) == '\\' && shell_peek(s, 1) &&
                   strchr("$`\"\\\n", shell_peek(s, 1))) {
            shell_take(s);
            char c = shell_take(s);
            if (c != '\n')
                put(s, c);
        } else {
            put(s, shell_take(s));
        }
    }
    if (s->at >= s->bytes) {
        s->line = line;
        shell_fail(s, "a quote without its end");
    }
    shell_take(s);
}

void shell_word_part(struct shell *s)
{
    char c = shell_peek(s, 0);
    if (!s->any)
        s->mark = 0;
    if (c == '"' || c == '\'') {
        quoted(s);
    } else if (c == '$') {
        dollar(s, false);
    } else if (c == '`') {
        put_verbatim(s, '`', '`');
    } else if (c == '\\') {
        shell_take(s);
        if (s->at < s->bytes)
            put(s, shell_take(s));
    } else {
        put(s, shell_take(s));
    }
}
