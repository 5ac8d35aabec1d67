/* lockstep convert: another trainer's configuration as ours, with a fate for each of its keys. */
#include "cmd.h"

#include <lockstep/base/file.h>
#include <lockstep/convert.h>

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The trainer that has such files. */
static const char *whose(const char *file)
{
    static const struct {
        const char *end, *name;
    } trainers[] = {{".json", "deepspeed"}, {".toml", "torchtitan"}, {".sh", "megatron"}};
    const char *end = strrchr(file, '.');
    for (size_t i = 0; end && i < sizeof trainers / sizeof *trainers; i++)
        if (strcmp(end, trainers[i].end) == 0)
            return trainers[i].name;
    return "deepspeed|megatron|torchtitan";
}

/* The page for users of a trainer whose files are not read; NULL for none. */
static const char *page_for(const char *name)
{
    static const char *const pages[][2] = {
        {"nanogpt|nanoGPT|llm.c|llmc", "nanogpt-llmc"},
        {"hf|huggingface|transformers|trainer|trl|peft|accelerate", "hf-trainer"}};
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
        if (ls_word_among(pages[i][0], name))
            return pages[i][1];
    return NULL;
}

static int project_of(const char *name, enum ls_convert_project *project, struct ls_error *error)
{
    const char *names[8], *one;
    size_t count = 0;
    while ((one = ls_convert_project_name((int)count))) {
        if (strcmp(one, name) == 0) {
            *project = (enum ls_convert_project)count;
            return LS_OK;
        }
        names[count++] = one;
    }
    if (access(name, F_OK) == 0)
        return ls_error_set(error, LS_ECONFIG,
                            "%.100s: expected the trainer's name before the file: lockstep "
                            "convert %s %.100s",
                            name, whose(name), name);
    const char *near = ls_nearest(name, names, count);
    if (page_for(name))
        return ls_error_set(error, LS_ECONFIG,
                            "%.100s: expected deepspeed, megatron or torchtitan; "
                            "doc/coming-from/%s.md has our key for each of its own",
                            name, page_for(name));
    return ls_error_set(error, LS_ECONFIG, "%.100s: expected deepspeed, megatron or torchtitan%s",
                        name, ls_meant(near, "").text);
}

/* ---- the command line ----------------------------------------------------------------------- */

/* "optim.lr=1e-4": one of our keys. Arguments begin with a hyphen, and few files hold a '='. */
static bool is_assignment(const char *word)
{
    size_t key = strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789_.");
    return key > 0 && word[key] == '=' && memchr(word, '.', key);
}

/* "TP=8": a variable of a script. */
static bool is_variable(const char *word)
{
    size_t name = strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    return name > 0 && word[name] == '=';
}

/* The words that are not assignments, quoted as a shell would read them. */
static int join(const struct cmd_args *args, char **text, struct ls_error *error)
{
    size_t bytes;
    FILE *file = open_memstream(text, &bytes);
    if (!file)
        return ls_no_memory(error, "for the arguments");
    for (int i = 1; i < args->words; i++) {
        const char *word = args->word[i];
        bool several = strpbrk(word, " \t\n") && word[strspn(word, " ")] == '-';
        if (is_assignment(word) || is_variable(word))
            continue;
        if (several) {
            fprintf(file, "%s ", word);
            continue;
        }
        fputc('\'', file);
        for (; *word; word++)
            fputs(*word == '\'' ? "'\\''" : (char[2]){*word, '\0'}, file);
        fputs("' ", file);
    }
    fclose(file);
    return LS_OK;
}

/* ---- the result ----------------------------------------------------------------------------- */

static void print_losses(const struct ls_convert *result, const char *name)
{
    for (size_t i = 0; i < result->count; i++) {
        const struct ls_convert_item *item = &result->items[i];
        struct ls_error line = {0};
        if (item->fate != LS_CONVERT_LOST && item->fate != LS_CONVERT_UNKNOWN)
            continue;
        if (item->line)
            ls_error_set(&line, 0, "%.200s:%d: %.200s: %.500s", name, item->line, item->theirs,
                         item->why);
        else
            ls_error_set(&line, 0, "%.200s: %.200s: %.500s", name, item->theirs, item->why);
        fprintf(stderr, "%s\n", line.text);
    }
}

static int write_text(const void *context, FILE *file, struct ls_error *error)
{
    (void)error;
    fputs(context, file);
    return LS_OK;
}

/* Words that `between` parts, each as code, with `joint` between. */
static void print_words(const char *list, char between, const char *joint)
{
    for (const char *at = list; *at; at++) {
        if (at == list)
            putchar('`');
        if (*at == between)
            printf("`%s`", joint);
        else
            putchar(*at);
        if (!at[1])
            putchar('`');
    }
}

/* One row for each key, as Markdown. */
static void print_keys(enum ls_convert_project project)
{
    static const char *const kinds[] = {[LS_RULE_COPY] = "copied",
                                        [LS_RULE_READ] = "translated",
                                        [LS_RULE_DROP] = "left out",
                                        [LS_RULE_LOSE] = "refused"};
    printf("| %s | fate | Lockstep | |\n|---|---|---|---|\n", ls_convert_project_title(project));
    for (const struct ls_convert_rule *rule = ls_convert_rules(project); rule->theirs; rule++) {
        printf("| ");
        print_words(rule->theirs, '|', ", ");
        printf(" | %s | ", kinds[rule->kind]);
        print_words(rule->ours, ',', ", ");
        printf(" | %s%s", rule->why, *rule->off ? "; fine with " : "");
        print_words(rule->off, '|', " or ");
        puts(" |");
    }
}

/* A file, if there is one of that name; of Megatron else the arguments themselves. */
static int convert(struct ls_convert *result, enum ls_convert_project project,
                   const struct cmd_args *args, const char *source,
                   const struct ls_convert_options *options, struct ls_error *error)
{
    struct stat file;
    bool there = stat(source, &file) == 0;
    if (project != LS_CONVERT_MEGATRON || there || source[strspn(source, " ")] != '-')
        return ls_convert_file(result, project, source, options, error);
    char *text = NULL;
    int status = join(args, &text, error);
    if (!status)
        status = ls_convert_text(result, project, "arguments", text, strlen(text), options, error);
    free(text);
    return status;
}

int cmd_convert(const struct cmd_args *args, struct ls_error *error)
{
    const char *words[CMD_WORDS_MAX], *variables[CMD_WORDS_MAX], *source = NULL;
    struct ls_convert_options options = {.words = words,
                                         .variables = variables,
                                         .allow_loss = cmd_args_given(args, "--allow-loss"),
                                         .preset = cmd_args_value(args, "--model")};
    enum ls_convert_project project = LS_CONVERT_DEEPSPEED;
    struct ls_convert result = {0};
    const char *out = cmd_args_value(args, "--out");
    if (args->words == 0)
        return ls_error_set(error, LS_ECONFIG, "expected %s", args->page->arguments);
    int status = project_of(args->word[0], &project, error);
    if (!status && cmd_args_given(args, "--keys")) {
        print_keys(project);
        return LS_OK;
    }
    if (!status)
        status = cmd_args_int(args, "--ranks", 1, INT32_MAX, &options.ranks, error);
    for (int i = 1; i < args->words && !status; i++) {
        if (is_assignment(args->word[i]))
            words[options.word_count++] = args->word[i];
        else if (project == LS_CONVERT_MEGATRON && is_variable(args->word[i]))
            variables[options.variable_count++] = args->word[i];
        else if (!source)
            source = args->word[i];
        else if (project != LS_CONVERT_MEGATRON || source[strspn(source, " ")] != '-')
            return ls_error_set(error, LS_ECONFIG,
                                "%.200s: one file is expected, and %.200s is one", args->word[i],
                                source);
    }
    if (!status && !source)
        return ls_error_set(error, LS_ECONFIG, "expected %s", args->page->arguments);
    if (!status)
        status = convert(&result, project, args, source, &options, error);
    if (!status)
        status = ls_file_write(out ? out : "-", write_text, result.text, error);
    bool arguments = source && source[strspn(source, " ")] == '-';
    if ((status && ls_convert_losses(&result) > 1) || (!status && options.allow_loss))
        print_losses(&result, arguments ? "arguments" : source);
    ls_convert_release(&result);
    return status;
}
