/* Pages for the terminal and for man(1). */
#include "cmd.h"

#include <lockstep/base/words.h>
#include <lockstep/config.h>

#include <string.h>

enum { WIDTH = 80 };

/* ---- the terminal --------------------------------------------------------------------------- */

static void print_option(FILE *file, const char *name, const char *value, const char *help)
{
    fprintf(file, "  %s%s%s\n", name, value ? " " : "", value ? value : "");
    ls_print_wrapped(file, help, 6, WIDTH);
}

static void print_examples(FILE *file, const char *examples)
{
    fputs("\nExamples:\n", file);
    while (*examples) {
        int length = (int)strcspn(examples, "\n");
        fprintf(file, "  %.*s\n", length, examples);
        examples += length + (examples[length] == '\n');
    }
}

void cmd_print_page(FILE *file, const struct cmd_page *page)
{
    fprintf(file, "Usage: lockstep %s%s%s%s\n\n", page->name,
            page->options[0].name ? " [option]..." : "", *page->arguments ? " " : "",
            page->arguments);
    ls_print_wrapped(file, page->text, 0, WIDTH);
    fputs("\nOptions:\n", file);
    for (const struct cmd_option *option = page->options; option->name; option++)
        print_option(file, option->name, option->value, option->help);
    print_option(file, "--help", NULL, "show this page");
    if (page->examples)
        print_examples(file, page->examples);
}

void cmd_print_overview(FILE *file)
{
    size_t count, longest = 0;
    const struct cmd_page *pages = cmd_pages(&count);
    for (size_t i = 0; i < count; i++)
        longest = strlen(pages[i].name) > longest ? strlen(pages[i].name) : longest;
    fputs("Usage: lockstep COMMAND ...\n\n"
          "Lockstep trains large language models. However the work is cut, the answer is\n"
          "the same, bit for bit.\n\nCommands:\n",
          file);
    for (size_t i = 0; i < count; i++)
        fprintf(file, "  %-*s  %s\n", (int)longest, pages[i].name, pages[i].summary);
    fputs("\n`lockstep help COMMAND` shows a command's page, `lockstep --version` the\nversion. "
          "`lockstep doctor` shows whether this machine can train.\n"
          "Commands that take long show how far they are on standard error;\n"
          "LOCKSTEP_PROGRESS=off in the environment turns that off.\n",
          file);
}

/* ---- man(1) --------------------------------------------------------------------------------- */

static void print_man_option(FILE *file, const char *name, const char *value, const char *help)
{
    fputs(".TP\n\\fB", file);
    ls_print_troff(file, name);
    fputs("\\fR", file);
    if (value) {
        fputs(" \\fI", file);
        ls_print_troff(file, value);
        fputs("\\fR", file);
    }
    fputc('\n', file);
    ls_print_troff(file, help);
    fputc('\n', file);
}

/* "data prepare" is lockstep-data-prepare(1). */
static void print_man_name(FILE *file, const struct cmd_page *page)
{
    fputs("lockstep", file);
    if (!page)
        return;
    fputs("\\-", file);
    for (const char *p = page->name; *p; p++)
        fputc(*p == ' ' ? '-' : *p, file);
}

static void print_man_exit_codes(FILE *file)
{
    fputs(".SH EXIT STATUS\n", file);
    for (const struct cmd_exit_code *code = cmd_exit_codes(); code->meaning; code++) {
        fprintf(file, ".TP\n\\fB%d\\fR\n", code->status == 1 ? 1 : ls_exit_code(code->status));
        ls_print_troff(file, code->meaning);
        fputs(".\n", file);
    }
}

static void print_man_overview(FILE *file)
{
    size_t count;
    const struct cmd_page *pages = cmd_pages(&count);
    fputs(
        ".SH SYNOPSIS\n\\fBlockstep\\fR \\fICOMMAND\\fR ...\n.SH DESCRIPTION\n"
        "Lockstep trains large language models across many ranks. However the work is cut \\- data "
        "parallel ranks, micro\\-batches, threads, transport \\- the answer is the same, bit for "
        "bit.\n.SH COMMANDS\n",
        file);
    for (size_t i = 0; i < count; i++) {
        fputs(".TP\n\\fB", file);
        print_man_name(file, &pages[i]);
        fputs("\\fR(1)\n", file);
        ls_print_troff(file, pages[i].summary);
        fputc('\n', file);
    }
}

static void print_man_command(FILE *file, const struct cmd_page *page)
{
    fprintf(file, ".SH SYNOPSIS\n\\fBlockstep %s\\fR%s ", page->name,
            page->options[0].name ? " [\\fIoption\\fR]..." : "");
    ls_print_troff(file, page->arguments);
    fputs("\n.SH DESCRIPTION\n", file);
    ls_print_troff(file, page->text);
    fputs("\n.SH OPTIONS\n", file);
    for (const struct cmd_option *option = page->options; option->name; option++)
        print_man_option(file, option->name, option->value, option->help);
    print_man_option(file, "--help", NULL, "show a summary of this page");
    if (strcmp(page->name, "train") == 0) {
        fputs(".SH CONFIGURATION\nA YAML file holds the keys in groups; on the command line they "
              "are written \\fIgroup.key=value\\fR and win over the file.\n",
              file);
        ls_config_man(file);
    }
    if (page->examples) {
        fputs(".SH EXAMPLES\n.nf\n", file);
        ls_print_troff(file, page->examples);
        fputs(".fi\n", file);
    }
}

void cmd_print_man(FILE *file, const struct cmd_page *page)
{
    fputs(".TH \"", file);
    print_man_name(file, page);
    fprintf(file, "\" 1 \"\" \"Lockstep %s\" \"User Commands\"\n.SH NAME\n", LS_VERSION);
    print_man_name(file, page);
    fputs(" \\- ", file);
    ls_print_troff(file, page ? page->summary
                              : "train large language models, the same bits in any layout");
    fputc('\n', file);
    if (page)
        print_man_command(file, page);
    else
        print_man_overview(file);
    print_man_exit_codes(file);
    fputs(".SH SEE ALSO\n\\fBlockstep\\fR(1), \\fBlockstep\\-train\\fR(1), "
          "\\fBlockstep\\-doctor\\fR(1)\n",
          file);
}
