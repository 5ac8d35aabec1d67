/* Arguments of a program, or a shell script that calls it, into entries. Quotes, comments, line
 * ends with a backslash, sums, and the variables and arrays that the script sets are understood;
 * here-documents are passed over. Of an if one branch is read, of commands between && and || those
 * that run, and a function where it is called. Nothing is run, and what only a run would know stays
 * as it is written. */
#include "convert/shell.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { HANDED_ON_MAX = 8, TEXT_BYTES_MAX = 1 << 20, CALLED_BYTES_MAX = 1 << 22 };

static void words_clear(struct convert_words *words)
{
    for (size_t i = 0; i < words->count; i++)
        free(words->at[i].text);
    words->count = 0;
}

/* NAME= or NAME+= at the start of a word: how long it is, 0 for none. */
static size_t assignment(const struct shell *s)
{
    size_t i = 0;
    if (s->any)
        return 0;
    for (size_t w = 0; w < s->command.count; w++)
        if (!convert_among(s->command.at[w].text, "export|local|declare|readonly|-a|-x"))
            return 0;
    while (isalnum((unsigned char)shell_peek(s, i)) || shell_peek(s, i) == '_')
        i++;
    if (i == 0 || i >= SHELL_NAME_BYTES || isdigit((unsigned char)shell_peek(s, 0)))
        return 0;
    char c = shell_peek(s, i);
    return c == '=' ? i + 1 : c == '+' && shell_peek(s, i + 1) == '=' ? i + 2 : 0;
}

static bool is_blank(const struct shell *s)
{
    char c = shell_peek(s, 0);
    return c == ' ' || c == '\t' || c == '\r' || (c == '\\' && shell_peek(s, 1) == '\n') ||
           (c == '\\' && shell_peek(s, 1) == '\r' && shell_peek(s, 2) == '\n');
}

/* Of a command. */
static bool is_end(const struct shell *s)
{
    return shell_peek(s, 0) && strchr("\n;&|", shell_peek(s, 0));
}

static void skip_blank(struct shell *s)
{
    if (shell_take(s) == '\\')
        while (shell_take(s) != '\n')
            ;
}

static void skip_comment(struct shell *s)
{
    while (s->at < s->bytes && shell_peek(s, 0) != '\n')
        shell_take(s);
}

/* Words up to the ")" of an array. */
static void array_words(struct shell *s)
{
    int line = s->line;
    while (s->at < s->bytes && shell_peek(s, 0) != ')' && !s->status) {
        bool blank = is_blank(s);
        if (blank || shell_peek(s, 0) == '\n')
            shell_flush(s);
        if (blank)
            skip_blank(s);
        else if (shell_peek(s, 0) == '\n')
            shell_take(s);
        else if (shell_peek(s, 0) == '#' && !s->any)
            skip_comment(s);
        else
            shell_word_part(s);
    }
    shell_flush(s);
    if (s->at >= s->bytes) {
        s->line = line;
        shell_fail(s, "an array without its )");
    }
    shell_take(s);
}

/* The words of the command from `from` on; append: behind those that it has, or joined to the last
 * of them. */
static void set_variable(struct shell *s, const char *name, bool append, bool joined, size_t from)
{
    const char *old = append ? shell_variable(s, name) : NULL;
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
    if (fclose(file) != 0 || bytes >= SHELL_WORD_BYTES)
        shell_fail(s, "a variable that is too long");
    shell_variable_becomes(s, name, text);
}

static void assign(struct shell *s, size_t length)
{
    char name[SHELL_NAME_BYTES];
    bool append = shell_peek(s, length - 2) == '+';
    size_t before = s->command.count;
    snprintf(name, sizeof name, "%.*s", (int)length - (append ? 2 : 1), s->text + s->at);
    s->at += length;
    bool array = shell_peek(s, 0) == '(';
    if (array) {
        shell_take(s);
        array_words(s);
    } else {
        while (s->at < s->bytes && !is_blank(s) && !is_end(s) && !s->status)
            shell_word_part(s);
        shell_flush(s);
    }
    set_variable(s, name, append, !array, before);
    s->assigned = CONVERT_TRUE;
    for (size_t i = before; i < s->command.count; i++)
        if (strchr(s->command.at[i].text, '`') || strstr(s->command.at[i].text, "$("))
            s->assigned = CONVERT_OPEN;
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

/* Reads a text in place of the one that is read, as a command of it. Frees the text. */
static void read_text(struct shell *s, char *text, size_t bytes, int line)
{
    struct shell outer = *s;
    s->text = text;
    s->bytes = bytes;
    s->at = 0;
    s->line = line;
    s->handed_on++;
    s->documents = 0; /* those of the outer line come behind it */
    convert_branches_group(&s->branches, CONVERT_TRUE);
    read_script(s);
    memcpy(s->document, outer.document, sizeof s->document);
    s->documents = outer.documents;
    s->branches.depth = outer.branches.depth;
    s->handed_on--;
    s->text = outer.text;
    s->bytes = outer.bytes;
    s->at = outer.at;
    s->line = outer.line;
    s->assigned = CONVERT_OPEN;
    free(text);
}

/* Reads the words from `first` on as the shell does that they are handed to. */
static void read_handed_on(struct shell *s, size_t first)
{
    char *text = NULL;
    size_t bytes = 0, length;
    int line = s->command.at[first].line;
    FILE *file = open_memstream(&text, &length);
    for (size_t i = first; file && i < s->command.count && bytes < TEXT_BYTES_MAX; i++)
        bytes += (size_t)fprintf(file, "%s ", s->command.at[i].text);
    if (bytes >= TEXT_BYTES_MAX)
        shell_fail(s, "a command that is too long");
    words_clear(&s->command);
    if (file && fclose(file) == 0) {
        read_text(s, text, length, line);
        return;
    }
    s->status = ls_no_memory(s->error, "for a command of a script");
    free(text);
}

/* ---- functions ------------------------------------------------------------------------------ */

enum head { NO_HEAD, HEAD, HEAD_OPEN };

/* Whether the words are NAME() or function NAME, and the { behind that too. */
static enum head head_of(const struct convert_words *words, char name[SHELL_NAME_BYTES])
{
    char text[SHELL_NAME_BYTES + 4] = "";
    bool keyword = words->count > 0 && strcmp(words->at[0].text, "function") == 0;
    if (words->count > 3U + keyword)
        return NO_HEAD;
    for (size_t i = keyword; i < words->count; i++) {
        if (i > keyword && !strchr("({", words->at[i].text[0]))
            return NO_HEAD;
        ls_string_add(text, sizeof text, "", "%s", words->at[i].text);
    }
    size_t length = strcspn(text, "(){}");
    bool brackets = strncmp(text + length, "()", 2) == 0;
    const char *rest = text + length + (brackets ? 2 : 0);
    if (length == 0 || length >= SHELL_NAME_BYTES || text[0] == '-' || (!brackets && !keyword))
        return NO_HEAD;
    snprintf(name, SHELL_NAME_BYTES, "%.*s", (int)length, text);
    return strcmp(rest, "{") == 0 ? HEAD_OPEN : *rest ? NO_HEAD : HEAD;
}

/* Behind the { of a function: what follows does not run here. */
static void function_begins(struct shell *s, const char *name)
{
    bool runs = convert_branches_run(&s->branches, NULL) != CONVERT_FALSE;
    words_clear(&s->command);
    convert_branches_group(&s->branches, CONVERT_FALSE);
    if (s->body || !runs || s->branches.depth > CONVERT_BRANCHES) /* within one, or not followed */
        return;
    snprintf(s->function, sizeof s->function, "%s", name);
    s->body = s->at;
    s->body_line = s->line;
    s->body_depth = s->branches.depth;
}

static void function_ends(struct shell *s, size_t at)
{
    char *text = strndup(s->text + s->body, at - s->body);
    if (!text)
        s->status = ls_no_memory(s->error, "for a function of a script");
    if (!s->status)
        s->status = convert_entries_set(
            &s->functions,
            &(struct convert_entry){.key = s->function, .text = text, .line = s->body_line},
            s->error);
    s->body = 0;
    s->branches.depth = s->body_depth - 1;
    free(text);
}

/* Reads a function's body; the command that calls it stays. The sole call that trains is read as if
 * no condition were before it: without it the script gives no arguments. */
static void read_function(struct shell *s, const struct convert_entry *function)
{
    struct convert_words command = s->command;
    struct convert_branches outer = s->branches;
    char *text = strdup(function->text);
    size_t bytes = text ? strlen(text) : 0, call = ++s->calls;
    bool first = !s->trained;
    s->called += bytes + 1;
    if (!text)
        s->status = ls_no_memory(s->error, "for a function of a script");
    else if (s->called > CALLED_BYTES_MAX)
        shell_fail(s, "functions that are called more often than is followed");
    if (s->status) {
        free(text);
        return;
    }
    s->command = (struct convert_words){0};
    if (call == s->sole)
        s->branches = (struct convert_branches){0};
    bool open = convert_branches_run(&s->branches, NULL) == CONVERT_OPEN;
    read_text(s, text, bytes, function->line);
    s->branches = outer;
    if (open && first && s->trained)
        s->sole = call;
    words_clear(&s->command); /* a head without its body */
    free(s->command.at);
    s->command = command;
}

/* ---- the script ----------------------------------------------------------------------------- */

/* Whether the command is "case WORD in", behind which a pattern begins. */
static bool is_case(const struct convert_words *words)
{
    return words->count == 3 && strcmp(words->at[0].text, "case") == 0 &&
           strcmp(words->at[2].text, "in") == 0;
}

/* The word under way ends, and goes if it is one such as "then", or the { of a function. */
static void first_word(struct shell *s)
{
    char name[SHELL_NAME_BYTES];
    shell_flush(s);
    if (is_case(&s->command))
        words_clear(&s->command);
    if (head_of(&s->command, name) == HEAD_OPEN)
        function_begins(s, name);
    else if (s->command.count == 1 && convert_branches_word(&s->branches, s->command.at[0].text))
        words_clear(&s->command);
    if (s->body && s->branches.depth < s->body_depth)
        function_ends(s, s->at - 1);
}

/* What is behind the command that ends here: both characters of && and || are. */
static enum convert_joint joint_of(const struct shell *s)
{
    char c = shell_peek(s, 0), next = shell_peek(s, 1);
    return c == '&' && next == '&'   ? CONVERT_AND
           : c == '|' && next == '|' ? CONVERT_OR
           : c == '|'                ? CONVERT_PIPE
                                     : CONVERT_END;
}

/* A command that may set variables to what is not read here: source FILE, export $(cat FILE). It
 * becomes an entry without a value, so that the result names it. */
static void note_unread(struct shell *s)
{
    const struct convert_words *command = &s->command;
    const char *first = command->at[0].text;
    const char *second = command->count > 1 ? command->at[1].text : "";
    bool file = convert_among(first, "source|.") && *second;
    bool output = convert_among(first, "export|declare|local|readonly") &&
                  (second[0] == '`' || strncmp(second, "$(", 2) == 0);
    char *key = NULL;
    if ((!file && !output) || s->status)
        return;
    if (asprintf(&key, "%s %s", file ? "source" : first, second) < 0) {
        s->status = ls_no_memory(s->error, "for a command of a script");
        return;
    }
    s->status = convert_entries_set(
        s->entries,
        &(struct convert_entry){
            .key = key, .text = (char *)"", .kind = CONVERT_BOOL, .line = command->at[0].line},
        s->error);
    free(key);
}

/* A command ends; of those that run the one with the most --arguments is the one that is meant. */
static void end_command(struct shell *s, enum convert_joint joint)
{
    char name[SHELL_NAME_BYTES];
    first_word(s);
    if (head_of(&s->command, name) == HEAD) /* its { is on the next line */
        return;
    bool runs = convert_branches_run(&s->branches, NULL) != CONVERT_FALSE && !s->branches.testing;
    bool arguments = s->command.count > 0 && s->command.at[0].text[0] == '-';
    bool surely = convert_branches_run(&s->branches, NULL) == CONVERT_TRUE && runs && arguments &&
                  !strchr(s->command.at[0].text, CONVERT_DOUBTED);
    if (surely && s->called_program && joint != CONVERT_PIPE && !s->status)
        s->status =
            ls_error_line(s->error, LS_ECONFIG, s->name, s->command.at[0].line,
                          "%.200s: bash passes it to no program: the command before it ends "
                          "at a comment, or at a line without a backslash: mend that, or "
                          "delete these arguments",
                          s->command.at[0].text);
    bool followed = runs && s->command.count > 0 && s->handed_on < HANDED_ON_MAX && !s->status;
    if (runs && s->command.count > 0)
        note_unread(s);
    const struct convert_entry *function =
        followed ? convert_entries_find(&s->functions, s->command.at[0].text) : NULL;
    if (function)
        read_function(s, function);
    size_t other_command = followed && !s->status ? handed_on(&s->command) : 0;
    if (other_command)
        read_handed_on(s, other_command);
    convert_branches_command(&s->branches, &s->command, s->assigned, joint);
    if (runs && convert_is_training(&s->command)) {
        s->trained = true;
        s->called_program |= !arguments;
        s->sole = 0;
    }
    if (runs && convert_options_of(&s->command) > convert_options_of(&s->best)) {
        struct convert_words other = s->best;
        s->best = s->command;
        s->command = other;
    }
    words_clear(&s->command);
    s->assigned = CONVERT_FALSE;
}

/* Whether a line ends here and the next one goes on with the command. A list of arguments needs no
 * backslashes, and may have comments and empty lines; behind the arguments of a program bash ends
 * the command. */
static bool goes_on(const struct shell *s)
{
    const struct convert_words *command = &s->command;
    const char *first = command->count > 0 ? command->at[0].text : "";
    bool list = first[0] == '-';
    size_t next = 1;
    if (shell_peek(s, 0) != '\n' || convert_among(first, "source|.|export|set|cd|module|ulimit"))
        return false;
    while (shell_peek(s, next) == ' ' || shell_peek(s, next) == '\t' || shell_peek(s, next) == '\r')
        next++;
    if (list && (shell_peek(s, next) == '#' || shell_peek(s, next) == '\n'))
        return true;
    return (list || convert_options_of(command) == 0) && shell_peek(s, next) == '-' &&
           shell_peek(s, next + 1) == '-';
}

/* Behind "<<": the word that ends the lines of a document. */
static void document_begin(struct shell *s)
{
    struct shell_document *document = &s->document[s->documents];
    size_t used = 0;
    if (s->documents == SHELL_DOCUMENTS_MAX) {
        shell_fail(s, "more here-documents than a line has");
        return;
    }
    document->tabs = shell_peek(s, 0) == '-';
    s->at += document->tabs;
    while (shell_peek(s, 0) == ' ' || shell_peek(s, 0) == '\t')
        shell_take(s);
    for (char quote = '\0'; shell_peek(s, 0) && used + 1 < sizeof document->end;) {
        char c = shell_peek(s, 0);
        if (c == '\n' || (!quote && strchr(" \t\r;&|<>()", c)))
            break;
        shell_take(s);
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
        shell_fail(s, "<< without the word that ends its lines");
}

/* Whether this line is the document's last. */
static bool document_ends(const struct shell *s, const struct shell_document *document)
{
    size_t at = 0, length = strlen(document->end);
    while (document->tabs && shell_peek(s, at) == '\t')
        at++;
    if (s->bytes - s->at < at + length || strncmp(s->text + s->at + at, document->end, length) != 0)
        return false;
    at += length;
    at += shell_peek(s, at) == '\r';
    return s->at + at >= s->bytes || shell_peek(s, at) == '\n';
}

/* The lines of the documents that the line before began. They are some program's. */
static void documents_pass(struct shell *s)
{
    int line = s->line - 1;
    for (int i = 0; i < s->documents && !s->status; i++) {
        while (s->at < s->bytes && !document_ends(s, &s->document[i])) {
            skip_comment(s);
            shell_take(s);
        }
        if (s->at >= s->bytes) {
            s->line = line;
            shell_fail(s, "a here-document without the line that ends it");
        }
        skip_comment(s);
        shell_take(s);
    }
    s->passed_over |= s->documents > 0;
    s->documents = 0;
}

/* "<<END" of a document, or the "<<<" of a text. */
static void redirect(struct shell *s)
{
    bool document = shell_peek(s, 2) != '<';
    shell_flush(s);
    for (int i = document ? 2 : 3; i > 0; i--)
        shell_take(s);
    if (document)
        document_begin(s);
}

/* Whether ">", "2>" or "&>" is here; what it has before the > is a word under way. */
static bool is_output(const struct shell *s)
{
    size_t digits = 0;
    while (digits < s->used && isdigit((unsigned char)s->word[digits]))
        digits++;
    return (shell_peek(s, 0) == '>' && digits == s->used) ||
           (shell_peek(s, 0) == '&' && shell_peek(s, 1) == '>');
}

/* An output's name is no word of the command. */
static void skip_output(struct shell *s)
{
    if (shell_peek(s, 0) == '>')
        s->used = s->any = 0;
    shell_flush(s);
    size_t words = s->command.count;
    while (shell_peek(s, 0) && strchr("&>|", shell_peek(s, 0)))
        shell_take(s);
    while (shell_peek(s, 0) == ' ' || shell_peek(s, 0) == '\t')
        shell_take(s);
    while (s->at < s->bytes && !is_blank(s) && !is_end(s) && !s->status)
        shell_word_part(s);
    shell_flush(s);
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
        } else if (shell_peek(s, 0) == '<' && shell_peek(s, 1) == '<') {
            redirect(s);
        } else if (shell_peek(s, 0) == '\n' && s->documents) {
            end_command(s, CONVERT_END);
            shell_take(s);
            documents_pass(s);
        } else if (is_blank(s)) {
            first_word(s);
            skip_blank(s);
        } else if (is_end(s)) {
            enum convert_joint joint = joint_of(s);
            first_word(s);
            if (!goes_on(s))
                end_command(s, joint);
            shell_take(s);
            if (joint == CONVERT_AND || joint == CONVERT_OR)
                shell_take(s);
        } else if (shell_peek(s, 0) == '#' && !s->any) {
            skip_comment(s);
        } else {
            shell_word_part(s);
        }
    }
    end_command(s, CONVERT_END);
    if (s->body)
        function_ends(s, s->bytes);
}

/* A file that sets variables and calls nothing: their words. */
static void take_variables(struct shell *s)
{
    for (size_t i = 0; i < s->variables.count && !s->status; i++) {
        if (!strstr(s->variables.at[i].text, "--"))
            continue;
        s->line = s->variables.at[i].line;
        shell_expand(s, s->variables.at[i].text, false);
        shell_flush(s);
    }
    end_command(s, CONVERT_END);
}

static void release(struct shell *s)
{
    words_clear(&s->command);
    words_clear(&s->best);
    free(s->command.at);
    free(s->best.at);
    convert_entries_release(&s->variables);
    convert_entries_release(&s->functions);
}

int convert_shell_read(struct convert_entries *entries, const char *name, const char *text,
                       size_t bytes, const struct ls_convert_options *options,
                       struct ls_error *error)
{
    struct shell s = {.entries = entries,
                      .name = name,
                      .text = text,
                      .bytes = bytes,
                      .line = 1,
                      .options = options,
                      .error = error};
    for (size_t i = 0; i < options->variable_count; i++)
        if (strpbrk(options->variables[i], shell_marks))
            return ls_error_set(error, LS_ECONFIG, "%.*s: %s",
                                (int)strcspn(options->variables[i], "="), options->variables[i],
                                shell_control);
    s.word = malloc(SHELL_WORD_BYTES);
    if (!s.word)
        return ls_error_set(error, LS_ENOMEM, "%.200s: no memory to read it", name);
    struct shell again = s;
    read_script(&s);
    if (!s.status && s.sole) { /* known only now */
        again.sole = s.sole;
        release(&s);
        s = again;
        read_script(&s);
    }
    for (size_t i = 0; i < s.functions.count && !s.status && !convert_is_training(&s.best); i++)
        read_function(&s, &s.functions.at[i]); /* a trap may call them, or what is not read */
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
    release(&s);
    free(s.word);
    return s.status;
}
