/* Arguments of a program, or a shell script that calls it, into entries. Quotes, comments, line
 * ends with a backslash, sums, and the variables and arrays that the script sets are understood;
 * here-documents are passed over. Of an if one branch is read. Nothing is run, and what only a run
 * would know stays as it is written. */
#include "convert/convert_private.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_BYTES = 1 << 16, WORDS_MAX = 4096, NAME_BYTES = 128, DOCUMENTS_MAX = 4 };
enum { TEST_WORDS = 8, HANDED_ON_MAX = 4, TEXT_BYTES_MAX = 1 << 20 };
#define BETWEEN '\1' /* the words of a variable */
#define MARK    '\2' /* on both sides of a word's line, ahead of it */
static const char marks[] = {BETWEEN, MARK, CONVERT_DOUBTED, '\0'};
static const char control[] = "expected text: a control character";

/* A here-document whose lines begin behind this one. */
struct document {
    char end[64]; /* the line that ends it */
    bool tabs;    /* that line may begin with them */
};

struct shell {
    struct convert_entries variables;   /* words with MARK and BETWEEN */
    struct convert_words command, best; /* that is read, and with the most --arguments so far */
    const char *name, *text;
    size_t at, bytes;
    int line;
    struct document document[DOCUMENTS_MAX]; /* that this line begins */
    int documents;
    bool passed_over; /* some document was */
    char *word;       /* [WORD_BYTES], under way */
    size_t used;
    bool any;      /* a word is under way, though it may be empty */
    int handed_on; /* how many shells hand this text on */
    struct convert_branches branches;
    int mark; /* its line in the variable that it comes from; 0 for none */
    const struct ls_convert_options *options;
    struct ls_error *error;
    int status;
};

static void fail(struct shell *s, const char *what)
{
    if (!s->status)
        s->status = ls_error_line(s->error, LS_ECONFIG, s->name, s->line, "%s", what);
}

static void words_clear(struct convert_words *words)
{
    for (size_t i = 0; i < words->count; i++)
        free(words->at[i].text);
    words->count = 0;
}

static void words_add(struct shell *s, struct convert_words *words, const char *text, int line)
{
    if (words->count >= WORDS_MAX)
        fail(s, "more words than a command has");
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

/* ---- words ---------------------------------------------------------------------------------- */

static char peek(const struct shell *s, size_t ahead)
{
    return s->at + ahead < s->bytes ? s->text[s->at + ahead] : '\0';
}

static char take(struct shell *s)
{
    char c = peek(s, 0);
    s->at += s->at < s->bytes;
    s->line += c == '\n';
    if (c == CONVERT_DOUBTED && !s->handed_on)
        fail(s, control);
    return c;
}

static void put(struct shell *s, char c)
{
    s->any = true;
    if (c == '\0' || c == BETWEEN || c == MARK)
        fail(s, control);
    else if (s->used + 1 >= WORD_BYTES)
        fail(s, "a word that is too long");
    else
        s->word[s->used++] = c;
}

/* The word under way ends. */
static void flush(struct shell *s)
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

static const char *variable(const struct shell *s, const char *name)
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

/* A variable's text into the word under way. Outside of quotes blanks end words, but for those of a
 * $(command), as do the ends of an array's words in either. A word that begins ahead of the text
 * keeps its own line. */
static void expand(struct shell *s, const char *text, bool quoted)
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
            flush(s);
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
        char c = take(s);
        depth += c == open && (open != close || depth == 0) ? 1 : c == close ? -1 : 0;
        put(s, c == '\n' ? ' ' : c);
        if (s->at >= s->bytes && depth > 0)
            fail(s, "a $(command) without its end");
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
    const char *old = variable(s, name);
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

/* The variable has the text from here on, as far as this runs. Frees the text. */
static void variable_becomes(struct shell *s, const char *name, char *text)
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
        variable_becomes(s, name, line);
}

/* Behind "${": NAME, NAME[@], NAME with a default or an error behind :- - := = :? or ?, and others,
 * which stay. */
static void braces(struct shell *s, bool quoted)
{
    char inside[NAME_BYTES * 2], name[NAME_BYTES];
    size_t used = 0;
    for (int depth = 1; s->at < s->bytes && used + 1 < sizeof inside;) {
        depth += peek(s, 0) == '$' && peek(s, 1) == '{';
        depth -= peek(s, 0) == '}';
        if (depth == 0)
            break;
        inside[used++] = take(s);
    }
    inside[used] = '\0';
    if (take(s) != '}')
        fail(s, "a ${name} without its end");
    if (strpbrk(inside, marks))
        fail(s, control);
    if (s->status)
        return;
    size_t length = 0;
    while (isalnum((unsigned char)inside[length]) || inside[length] == '_')
        length++;
    snprintf(name, sizeof name, "%.*s", (int)ls_min((int64_t)length, NAME_BYTES - 1), inside);
    char *rest = inside + length;
    const char *value = variable(s, name);
    bool all = !*rest || strcmp(rest, "[@]") == 0 || strcmp(rest, "[*]") == 0;
    bool filled = *rest == ':'; /* an empty text is none */
    char how = length > 0 && rest[filled] ? rest[filled] : ' ', *text = rest + filled + 1;
    if (value && (all || (strchr("-=?", how) && (!filled || *plain(value))))) {
        expand(s, value, quoted);
    } else if (strchr("-=", how) && !strchr(rest, '$')) {
        unquote(text);
        if (how == '=')
            set_default(s, name, text);
        expand(s, text, quoted);
    } else {
        expand(s, "${", true);
        expand(s, inside, true);
        put(s, '}');
    }
}

/* The text of a variable of one word. */
static const char *word_of(const void *user, const char *name)
{
    const char *text = variable(user, name);
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
        take(s);
    snprintf(digits, sizeof digits, "%lld", (long long)value);
    expand(s, digits, true);
    return true;
}

static void dollar(struct shell *s, bool quoted)
{
    char name[NAME_BYTES];
    size_t used = 0;
    if (put_sum(s))
        return;
    take(s);
    if (peek(s, 0) == '(') {
        put(s, '$');
        put_verbatim(s, '(', ')');
        return;
    }
    if (peek(s, 0) == '{') {
        take(s);
        braces(s, quoted);
        return;
    }
    while ((isalnum((unsigned char)peek(s, 0)) || peek(s, 0) == '_') && used + 1 < sizeof name)
        name[used++] = take(s);
    name[used] = '\0';
    const char *value = used ? variable(s, name) : NULL;
    if (value) {
        expand(s, value, quoted);
        return;
    }
    put(s, '$');
    expand(s, name, true);
}

/* Whether the quotes hold "${NAME[@]}" alone: as many words as there are, which may be none. */
static bool all_words(const struct shell *s)
{
    size_t i = 2;
    while (isalnum((unsigned char)peek(s, i)) || peek(s, i) == '_')
        i++;
    return s->bytes - s->at > i + 4 && strncmp(s->text + s->at, "${", 2) == 0 &&
           strncmp(s->text + s->at + i, "[@]}\"", 5) == 0;
}

static void quoted(struct shell *s)
{
    char quote = take(s);
    int line = s->line;
    s->any |= quote != '"' || !all_words(s);
    while (s->at < s->bytes && peek(s, 0) != quote && !s->status) {
        if (quote == '"' && peek(s, 0) == '$') {
            dollar(s, true);
        } else if (quote == '"' && peek(s, 0) == '`') {
            put_verbatim(s, '`', '`');
        } else if (quote == '"' && peek(s, 0) == '\\' && peek(s, 1) &&
                   strchr("$`\"\\\n", peek(s, 1))) {
            take(s);
            char c = take(s);
            if (c != '\n')
                put(s, c);
        } else {
            put(s, take(s));
        }
    }
    if (s->at >= s->bytes) {
        s->line = line;
        fail(s, "a quote without its end");
    }
    take(s);
}

/* One character, or what it begins, of a word outside of quotes. */
static void word_part(struct shell *s)
{
    char c = peek(s, 0);
    if (!s->any)
        s->mark = 0;
    if (c == '"' || c == '\'') {
        quoted(s);
    } else if (c == '$') {
        dollar(s, false);
    } else if (c == '`') {
        put_verbatim(s, '`', '`');
    } else if (c == '\\') {
        take(s);
        if (s->at < s->bytes)
            put(s, take(s));
    } else {
        put(s, take(s));
    }
}

/* ---- commands ------------------------------------------------------------------------------- */

/* NAME= or NAME+= at the start of a word: how long it is, 0 for none. */
static size_t assignment(const struct shell *s)
{
    size_t i = 0;
    if (s->any)
        return 0;
    for (size_t w = 0; w < s->command.count; w++)
        if (!convert_among(s->command.at[w].text, "export|local|declare|readonly|-a|-x"))
            return 0;
    while (isalnum((unsigned char)peek(s, i)) || peek(s, i) == '_')
        i++;
    if (i == 0 || i >= NAME_BYTES || isdigit((unsigned char)peek(s, 0)))
        return 0;
    return peek(s, i) == '=' ? i + 1 : peek(s, i) == '+' && peek(s, i + 1) == '=' ? i + 2 : 0;
}

static bool is_blank(const struct shell *s)
{
    char c = peek(s, 0);
    return c == ' ' || c == '\t' || c == '\r' || (c == '\\' && peek(s, 1) == '\n') ||
           (c == '\\' && peek(s, 1) == '\r' && peek(s, 2) == '\n');
}

/* Of a command. */
static bool is_end(const struct shell *s)
{
    return peek(s, 0) && strchr("\n;&|", peek(s, 0));
}

static void skip_blank(struct shell *s)
{
    if (take(s) == '\\')
        while (take(s) != '\n')
            ;
}

static void skip_comment(struct shell *s)
{
    while (s->at < s->bytes && peek(s, 0) != '\n')
        take(s);
}

/* Words up to the ")" of an array. */
static void array_words(struct shell *s)
{
    int line = s->line;
    while (s->at < s->bytes && peek(s, 0) != ')' && !s->status) {
        bool blank = is_blank(s);
        if (blank || peek(s, 0) == '\n')
            flush(s);
        if (blank)
            skip_blank(s);
        else if (peek(s, 0) == '\n')
            take(s);
        else if (peek(s, 0) == '#' && !s->any)
            skip_comment(s);
        else
            word_part(s);
    }
    flush(s);
    if (s->at >= s->bytes) {
        s->line = line;
        fail(s, "an array without its )");
    }
    take(s);
}

/* The words of the command from `from` on; append: behind those that it has, or joined to the last
 * of them. */
static void set_variable(struct shell *s, const char *name, bool append, bool joined, size_t from)
{
    const char *old = append ? variable(s, name) : NULL;
    char *text = NULL;
    size_t bytes;
    FILE *file = s->status ? NULL : open_memstream(&text, &bytes);
    if (!file)
        return;
    if (old && *old)
        fputs(old, file);
    for (size_t i = from; i < s->command.count; i++)
        fprintf(file, "%s\2%d\2%s", i > from || (old && *old && !joined) ? "\1" : "",
                s->command.at[i].line, s->command.at[i].text);
    if (fclose(file) != 0 || bytes >= WORD_BYTES)
        fail(s, "a variable that is too long");
    variable_becomes(s, name, text);
}

static void assign(struct shell *s, size_t length)
{
    char name[NAME_BYTES];
    bool append = peek(s, length - 2) == '+';
    size_t before = s->command.count;
    snprintf(name, sizeof name, "%.*s", (int)length - (append ? 2 : 1), s->text + s->at);
    s->at += length;
    bool array = peek(s, 0) == '(';
    if (array) {
        take(s);
        array_words(s);
    } else {
        while (s->at < s->bytes && !is_blank(s) && !is_end(s) && !s->status)
            word_part(s);
        flush(s);
    }
    set_variable(s, name, append, !array, before);
    while (s->command.count > before)
        free(s->command.at[--s->command.count].text);
}

static void read_script(struct shell *s);

/* Where the words of another command begin that this one hands to a shell: sh -c "COMMAND", or eval
 * COMMAND; 0 for nowhere. */
static size_t handed_on(const struct convert_words *words)
{
    for (size_t i = 0; i + 1 < words->count; i++) {
        const char *word = words->at[i].text, *slash = strrchr(word, '/');
        bool shell = convert_among(slash ? slash + 1 : word, "sh|bash|dash|zsh|ksh");
        size_t option = i + 1;
        if (i == 0 && strcmp(word, "eval") == 0)
            return 1;
        while (shell && option < words->count && words->at[option].text[0] == '-')
            if (strchr(words->at[option++].text, 'c'))
                return option < words->count ? option : 0;
    }
    return 0;
}

/* Reads the words from `first` on as the shell does that they are handed to. */
static void read_handed_on(struct shell *s, size_t first)
{
    struct shell outer = *s;
    char *text = NULL;
    FILE *file = open_memstream(&text, &s->bytes);
    s->line = s->command.at[first].line;
    size_t bytes = 0;
    for (size_t i = first; file && i < s->command.count && bytes < TEXT_BYTES_MAX; i++)
        bytes += (size_t)fprintf(file, "%s ", s->command.at[i].text);
    if (bytes >= TEXT_BYTES_MAX)
        fail(s, "a command that is too long");
    words_clear(&s->command);
    if (!file || fclose(file) != 0) {
        s->status = ls_no_memory(s->error, "for a command of a script");
    } else {
        s->text = text;
        s->at = 0;
        s->handed_on++;
        read_script(s);
        s->handed_on--;
    }
    s->text = outer.text;
    s->bytes = outer.bytes;
    s->at = outer.at;
    s->line = outer.line;
    free(text);
}

/* The word under way ends, and goes if it is one such as "then". */
static void first_word(struct shell *s)
{
    flush(s);
    if (s->command.count == 1 && convert_branches_word(&s->branches, s->command.at[0].text))
        words_clear(&s->command);
}

/* The command is the condition of an if, or a part of one. */
static void test(struct shell *s)
{
    const char *words[TEST_WORDS]; /* of more, the last one is the last here */
    size_t count = 0;
    for (size_t i = 0; i < s->command.count; i++) {
        count += count < TEST_WORDS;
        words[count - 1] = s->command.at[i].text;
    }
    char joined = peek(s, 0) == peek(s, 1) && strchr("&|", peek(s, 0)) ? peek(s, 0) : '\0';
    convert_branches_test(&s->branches, words, count, joined);
    words_clear(&s->command);
}

/* A command ends; the one with the most --arguments is the one that is meant. */
static void end_command(struct shell *s)
{
    first_word(s);
    if (s->branches.testing && s->command.count > 0)
        test(s);
    if (convert_branches_run(&s->branches, NULL) == CONVERT_FALSE)
        words_clear(&s->command);
    size_t other_command = handed_on(&s->command);
    if (other_command && s->handed_on < HANDED_ON_MAX && !s->status) {
        read_handed_on(s, other_command);
        return;
    }
    if (convert_options_of(&s->command) > convert_options_of(&s->best)) {
        struct convert_words other = s->best;
        s->best = s->command;
        s->command = other;
    }
    words_clear(&s->command);
}

/* Whether the next line begins with an argument: a list of arguments needs no backslashes. */
static bool goes_on(const struct shell *s)
{
    size_t next = 1;
    while (peek(s, next) == ' ' || peek(s, next) == '\t' || peek(s, next) == '\r')
        next++;
    return peek(s, next) == '-' && peek(s, next + 1) == '-';
}

/* Behind "<<": the word that ends the lines of a document. */
static void document_begin(struct shell *s)
{
    struct document *document = &s->document[s->documents];
    size_t used = 0;
    if (s->documents == DOCUMENTS_MAX) {
        fail(s, "more here-documents than a line has");
        return;
    }
    document->tabs = peek(s, 0) == '-';
    s->at += document->tabs;
    while (peek(s, 0) == ' ' || peek(s, 0) == '\t')
        take(s);
    for (char quote = '\0'; peek(s, 0) && used + 1 < sizeof document->end;) {
        char c = peek(s, 0);
        if (c == '\n' || (!quote && strchr(" \t\r;&|<>()", c)))
            break;
        take(s);
        if (c == quote)
            quote = '\0';
        else if (!quote && (c == '\'' || c == '"'))
            quote = c;
        else if (quote || c != '\\')
            document->end[used++] = c;
    }
    document->end[used] = '\0';
    s->documents++;
    if (used == 0 || used + 1 == sizeof document->end)
        fail(s, "<< without the word that ends its lines");
}

/* Whether this line is the document's last. */
static bool document_ends(const struct shell *s, const struct document *document)
{
    size_t at = 0, length = strlen(document->end);
    while (document->tabs && peek(s, at) == '\t')
        at++;
    if (s->bytes - s->at < at + length || strncmp(s->text + s->at + at, document->end, length) != 0)
        return false;
    at += length;
    at += peek(s, at) == '\r';
    return s->at + at >= s->bytes || peek(s, at) == '\n';
}

/* The lines of the documents that the line before began. They are some program's. */
static void documents_pass(struct shell *s)
{
    int line = s->line - 1;
    for (int i = 0; i < s->documents && !s->status; i++) {
        while (s->at < s->bytes && !document_ends(s, &s->document[i])) {
            skip_comment(s);
            take(s);
        }
        if (s->at >= s->bytes) {
            s->line = line;
            fail(s, "a here-document without the line that ends it");
        }
        skip_comment(s);
        take(s);
    }
    s->passed_over |= s->documents > 0;
    s->documents = 0;
}

/* "<<END" of a document, or the "<<<" of a text. */
static void redirect(struct shell *s)
{
    bool document = peek(s, 2) != '<';
    flush(s);
    for (int i = document ? 2 : 3; i > 0; i--)
        take(s);
    if (document)
        document_begin(s);
}

/* Whether ">", "2>" or "&>" is here; what it has before the > is a word under way. */
static bool is_output(const struct shell *s)
{
    size_t digits = 0;
    while (digits < s->used && isdigit((unsigned char)s->word[digits]))
        digits++;
    return (peek(s, 0) == '>' && digits == s->used) || (peek(s, 0) == '&' && peek(s, 1) == '>');
}

/* An output's name is no word of the command. */
static void skip_output(struct shell *s)
{
    if (peek(s, 0) == '>')
        s->used = s->any = 0;
    flush(s);
    size_t words = s->command.count;
    while (peek(s, 0) && strchr("&>|", peek(s, 0)))
        take(s);
    while (peek(s, 0) == ' ' || peek(s, 0) == '\t')
        take(s);
    while (s->at < s->bytes && !is_blank(s) && !is_end(s) && !s->status)
        word_part(s);
    flush(s);
    while (s->command.count > words)
        free(s->command.at[--s->command.count].text);
}

static void read_script(struct shell *s)
{
    while (s->at < s->bytes && !s->status) {
        size_t assigned = assignment(s);
        if (assigned) {
            assign(s, assigned);
        } else if (is_output(s)) {
            skip_output(s);
        } else if (peek(s, 0) == '<' && peek(s, 1) == '<') {
            redirect(s);
        } else if (peek(s, 0) == '\n' && s->documents) {
            end_command(s);
            take(s);
            documents_pass(s);
        } else if (is_blank(s)) {
            first_word(s);
            skip_blank(s);
        } else if (peek(s, 0) == '\n' && goes_on(s)) {
            flush(s);
            take(s);
        } else if (is_end(s)) {
            end_command(s);
            take(s);
        } else if (peek(s, 0) == '#' && !s->any) {
            skip_comment(s);
        } else {
            word_part(s);
        }
    }
    end_command(s);
}

/* A file that sets variables and calls nothing: their words. */
static void take_variables(struct shell *s)
{
    for (size_t i = 0; i < s->variables.count && !s->status; i++) {
        if (!strstr(s->variables.at[i].text, "--"))
            continue;
        s->line = s->variables.at[i].line;
        expand(s, s->variables.at[i].text, false);
        flush(s);
    }
    end_command(s);
}

int convert_shell_read(struct convert_entries *entries, const char *name, const char *text,
                       size_t bytes, const struct ls_convert_options *options,
                       struct ls_error *error)
{
    struct shell s = {
        .name = name, .text = text, .bytes = bytes, .line = 1, .options = options, .error = error};
    for (size_t i = 0; i < options->variable_count; i++)
        if (strpbrk(options->variables[i], marks))
            return ls_error_set(error, LS_ECONFIG, "%.*s: %s",
                                (int)strcspn(options->variables[i], "="), options->variables[i],
                                control);
    s.word = malloc(WORD_BYTES);
    if (!s.word)
        return ls_error_set(error, LS_ENOMEM, "%.200s: no memory to read it", name);
    read_script(&s);
    if (!s.status && convert_options_of(&s.best) == 0)
        take_variables(&s);
    if (!s.status && !convert_is_training(&s.best))
        s.status = ls_error_set(error, LS_ECONFIG,
                                "%.200s: expected arguments such as --num-layers 12, or a script "
                                "that gives them to a program%s",
                                name,
                                s.passed_over ? "; the lines of a here-document (<<) are not read: "
                                                "give them as a file of their own"
                                              : "");
    if (!s.status)
        s.status = convert_options_add(entries, &s.best, name, error);
    words_clear(&s.command);
    words_clear(&s.best);
    free(s.command.at);
    free(s.best.at);
    free(s.word);
    convert_entries_release(&s.variables);
    return s.status;
}
