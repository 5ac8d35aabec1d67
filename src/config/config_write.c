/* The configuration and its table, written for machines and for readers. */
#include "config/config_private.h"

#include <lockstep/base/file.h>
#include <lockstep/base/words.h>

#include <errno.h>
#include <string.h>

enum { WIDTH = 78 };

static size_t group_length(const struct ls_config_key *key)
{
    return strcspn(key->name, ".");
}

static bool begins_group(const struct ls_config_key *key)
{
    return key == ls_config_keys(NULL) || group_length(key) != group_length(key - 1) ||
           strncmp(key->name, key[-1].name, group_length(key)) != 0;
}

int ls_config_write(const struct ls_config *config, FILE *file, struct ls_error *error)
{
    errno = 0;
    for (const struct ls_config_key *key = ls_config_keys(NULL); key->name; key++) {
        char value[LS_CONFIG_VALUE_BYTES];
        if (begins_group(key))
            fprintf(file, "%.*s:\n", (int)group_length(key), key->name);
        ls_config_value(config, key, value, sizeof value);
        fprintf(file, "  %s: %s\n", key->name + group_length(key) + 1, value);
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

void ls_config_help(FILE *file)
{
    fputs("Keys of the configuration, with their defaults. In a file they are grouped:\n\n"
          "  optim:\n    lr: 3e-4\n\nand on the command line they are written optim.lr=3e-4.\n"
          "recipe: may change the bits of the result; layout: may not; run: how long, where to.\n",
          file);
    for (const struct ls_config_key *key = ls_config_keys(NULL); key->name; key++) {
        char expected[256], line[320], help[LS_CONFIG_HELP_BYTES];
        if (begins_group(key))
            fprintf(file, "\n%.*s:\n", (int)group_length(key), key->name);
        fprintf(file, "  %s = %s\n", key->name, initial_text(key));
        ls_config_key_help(key, help);
        ls_print_wrapped(file, help, 6, WIDTH);
        ls_config_expected(key, expected, sizeof expected);
        snprintf(line, sizeof line, "(%s; %s)", part_name(key->part), expected);
        ls_print_wrapped(file, line, 6, WIDTH);
    }
}

void ls_config_man(FILE *file)
{
    for (const struct ls_config_key *key = ls_config_keys(NULL); key->name; key++) {
        char expected[256], help[LS_CONFIG_HELP_BYTES];
        if (begins_group(key))
            fprintf(file, ".SS %.*s\n", (int)group_length(key), key->name);
        fputs(".TP\n\\fB", file);
        ls_print_troff(file, key->name);
        fputs("\\fR = ", file);
        ls_print_troff(file, initial_text(key));
        fputc('\n', file);
        ls_config_key_help(key, help);
        ls_print_troff(file, help);
        ls_config_expected(key, expected, sizeof expected);
        fprintf(file, " (%s; ", part_name(key->part));
        ls_print_troff(file, expected);
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
    fputs("# Configuration\n\n"
          "A run is described by one YAML file (JSON is YAML too) and by `key=value` overrides on\n"
          "the command line, which win over the file. `optim: {lr: 3e-4}` in the file and\n"
          "`optim.lr=3e-4` on the command line are the same key. This page is generated from the\n"
          "table in `src/config/config_table.c` by `lockstep help --config-markdown`.\n\n"
          "Each key belongs to the *recipe* (may change the bits of the result), to the *layout*\n"
          "(how the work is cut: may not) or to the *run* (how long, where to, what to show).\n",
          file);
    for (const struct ls_config_key *key = ls_config_keys(NULL); key->name; key++) {
        char expected[256], help[LS_CONFIG_HELP_BYTES];
        if (begins_group(key))
            fprintf(file,
                    "\n## %.*s\n\n| key | default | part | takes | meaning |\n"
                    "|---|---|---|---|---|\n",
                    (int)group_length(key), key->name);
        fprintf(file, "| `%s` | `%s` | %s | ", key->name, initial_text(key), part_name(key->part));
        ls_config_expected(key, expected, sizeof expected);
        print_cell(file, expected);
        fputs(" | ", file);
        ls_config_key_help(key, help);
        print_cell(file, help);
        fputs(" |\n", file);
    }
}
