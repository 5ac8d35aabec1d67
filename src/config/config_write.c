/* The configuration and its table, written for machines and for readers. */
#include "config_private.h"

#include <lockstep/base/file.h>

#include <errno.h>
#include <string.h>

static size_t group_length(const struct ls_config_key *key)
{
    return strcspn(key->name, ".");
}

static bool begins_group(const struct ls_config_key *keys, size_t i)
{
    return i == 0 || group_length(&keys[i]) != group_length(&keys[i - 1]) ||
           strncmp(keys[i].name, keys[i - 1].name, group_length(&keys[i])) != 0;
}

int ls_config_write(const struct ls_config *config, FILE *file, struct ls_error *error)
{
    size_t count;
    const struct ls_config_key *keys = ls_config_keys(&count);
    errno = 0;
    for (size_t i = 0; i < count; i++) {
        char value[4 * LS_CONFIG_TEXT_BYTES];
        if (begins_group(keys, i))
            fprintf(file, "%.*s:\n", (int)group_length(&keys[i]), keys[i].name);
        ls_config_value(config, &keys[i], value, sizeof value);
        fprintf(file, "  %s: %s\n", keys[i].name + group_length(&keys[i]) + 1, value);
    }
    if (fflush(file) == 0 && !ferror(file))
        return LS_OK;
    return ls_error_errno(error, errno ? errno : EIO, "cannot write the configuration");
}

static int write_to(const void *config, FILE *file, struct ls_error *error)
{
    return ls_config_write(config, file, error);
}

int ls_config_text(const struct ls_config *config, char **text, struct ls_error *error)
{
    size_t bytes;
    return ls_text_write(write_to, config, text, &bytes, error);
}

int ls_config_save(const struct ls_config *config, const char *path, struct ls_error *error)
{
    return ls_file_write(path, write_to, config, error);
}

/* ---- for readers ---------------------------------------------------------------------------- */

static const char *part_name(enum ls_config_part part)
{
    return part == LS_CONFIG_RECIPE ? "recipe" : part == LS_CONFIG_LAYOUT ? "layout" : "run";
}

static const char *initial_text(const struct ls_config_key *key)
{
    return *key->initial ? key->initial : "\"\"";
}

/* Words of text, wrapped at column 78 behind an indent. */
static void print_wrapped(FILE *file, const char *text, int indent)
{
    int column = 0;
    while (*text) {
        int length = (int)strcspn(text, " ");
        if (column + length + 1 > 78) {
            fputc('\n', file);
            column = 0;
        }
        column += column ? fprintf(file, " %.*s", length, text)
                         : fprintf(file, "%*s%.*s", indent, "", length, text);
        text += length;
        text += strspn(text, " ");
    }
    fputc('\n', file);
}

void ls_config_help(FILE *file)
{
    size_t count;
    const struct ls_config_key *keys = ls_config_keys(&count);
    fputs("Keys of the configuration, with their defaults. In a file they are grouped:\n\n"
          "  optim:\n    lr: 3e-4\n\nand on the command line they are written optim.lr=3e-4.\n"
          "recipe: may change the bits of the result; layout: may not; run: how long, where to.\n",
          file);
    for (size_t i = 0; i < count; i++) {
        char expected[256], line[320], help[LS_CONFIG_HELP_BYTES];
        if (begins_group(keys, i))
            fprintf(file, "\n%.*s:\n", (int)group_length(&keys[i]), keys[i].name);
        fprintf(file, "  %s = %s\n", keys[i].name, initial_text(&keys[i]));
        ls_config_key_help(&keys[i], help);
        print_wrapped(file, help, 6);
        ls_config_expected(&keys[i], expected, sizeof expected);
        snprintf(line, sizeof line, "(%s; %s)", part_name(keys[i].part), expected);
        print_wrapped(file, line, 6);
    }
}

/* Troff reads a leading dot or quote, a backslash and a hyphen as its own. */
static void print_troff(FILE *file, const char *text)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", file);
    for (; *text; text++) {
        if (*text == '\\')
            fputs("\\e", file);
        else if (*text == '-')
            fputs("\\-", file);
        else
            fputc(*text, file);
    }
}

void ls_config_man(FILE *file)
{
    size_t count;
    const struct ls_config_key *keys = ls_config_keys(&count);
    for (size_t i = 0; i < count; i++) {
        char expected[256], help[LS_CONFIG_HELP_BYTES];
        if (begins_group(keys, i))
            fprintf(file, ".SS %.*s\n", (int)group_length(&keys[i]), keys[i].name);
        fputs(".TP\n\\fB", file);
        print_troff(file, keys[i].name);
        fputs("\\fR = ", file);
        print_troff(file, initial_text(&keys[i]));
        fputc('\n', file);
        ls_config_key_help(&keys[i], help);
        print_troff(file, help);
        ls_config_expected(&keys[i], expected, sizeof expected);
        fprintf(file, " (%s; ", part_name(keys[i].part));
        print_troff(file, expected);
        fputs(").\n", file);
    }
}

static void print_cell(FILE *file, const char *text)
{
    for (; *text; text++) {
        if (*text == '|')
            fputc('\\', file);
        fputc(*text, file);
    }
}

void ls_config_markdown(FILE *file)
{
    size_t count;
    const struct ls_config_key *keys = ls_config_keys(&count);
    fputs("# Configuration\n\n"
          "A run is described by one YAML file (JSON is YAML too) and by `key=value` overrides on\n"
          "the command line, which win over the file. `optim: {lr: 3e-4}` in the file and\n"
          "`optim.lr=3e-4` on the command line are the same key. This page is generated from the\n"
          "table in `src/config/config_table.c` by `lockstep help --config-markdown`.\n\n"
          "Each key belongs to the *recipe* (may change the bits of the result), to the *layout*\n"
          "(how the work is cut: may not) or to the *run* (how long, where to, what to show).\n",
          file);
    for (size_t i = 0; i < count; i++) {
        char expected[256], help[LS_CONFIG_HELP_BYTES];
        if (begins_group(keys, i))
            fprintf(file,
                    "\n## %.*s\n\n| key | default | part | takes | meaning |\n"
                    "|---|---|---|---|---|\n",
                    (int)group_length(&keys[i]), keys[i].name);
        fprintf(file, "| `%s` | `%s` | %s | ", keys[i].name, initial_text(&keys[i]),
                part_name(keys[i].part));
        ls_config_expected(&keys[i], expected, sizeof expected);
        print_cell(file, expected);
        fputs(" | ", file);
        ls_config_key_help(&keys[i], help);
        print_cell(file, help);
        fputs(" |\n", file);
    }
}
