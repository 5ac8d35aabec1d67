/* What the files of the program share: the sub-commands, their description, and the reading of
 * their arguments. A sub-command parses, calls the library and prints; it holds no algorithm. */
#ifndef CMD_CMD_H
#define CMD_CMD_H

#include <lockstep/base.h>

#include <stdio.h>

/* ---- sub-commands: argv[0] is the sub-command's name; the result is the exit code -------------
 */

int cmd_bench_attention(int argc, char **argv);
int cmd_bench_comm(int argc, char **argv);
int cmd_bench_gemm(int argc, char **argv);
int cmd_bench_int8(int argc, char **argv);
int cmd_bench_interop(int argc, char **argv);
int cmd_bench_machine(int argc, char **argv);
int cmd_bench_ops(int argc, char **argv);
int cmd_bench_pipeline(int argc, char **argv);
int cmd_bench_plan(int argc, char **argv);
int cmd_bench_step(int argc, char **argv);
int cmd_bench_sums(int argc, char **argv);
int cmd_bench_tokenizer(int argc, char **argv);
int cmd_bench_tier(int argc, char **argv);
int cmd_convert(int argc, char **argv);
int cmd_data(int argc, char **argv);
int cmd_diff(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_export(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_help(int argc, char **argv);
int cmd_import(int argc, char **argv);
int cmd_layout(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_plan_memory(int argc, char **argv);
int cmd_plot(int argc, char **argv);
int cmd_profile(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_train(int argc, char **argv);
int cmd_verify(int argc, char **argv);

/* ---- their descriptions --------------------------------------------------------------------- */

/* "--name" or "--name VALUE"; an option without a value is a switch. */
struct cmd_option {
    const char *name;  /* with its dashes; NULL ends the list */
    const char *value; /* what the value is called, NULL for a switch */
    const char *help;
};

/* One page of the manual. --help, the man page and the parser derive from it. */
struct cmd_page {
    const char *name;      /* "train", "data prepare" */
    const char *arguments; /* "[CONFIG.yaml] [key=value]..." */
    const char *summary;   /* one line, no full stop */
    const char *text;      /* paragraphs, separated by empty lines */
    const struct cmd_option *options;
    const char *examples; /* one a line; NULL for none */
};

/* All pages; *count of them. */
const struct cmd_page *cmd_pages(size_t *count);
/* The page of that name ("data prepare" or "data-prepare"), NULL if there is none. */
const struct cmd_page *cmd_page_of(const char *name);
/* The names, for suggestions; names holds CMD_PAGES_MAX. Returns how many. */
size_t cmd_page_names(const char **names);

enum { CMD_PAGES_MAX = 40, CMD_OPTIONS_MAX = 32, CMD_WORDS_MAX = 256 };

/* One row for each exit code; the last has a NULL meaning. */
struct cmd_exit_code {
    int status; /* enum ls_status; 1 for what has no status */
    const char *meaning;
};
const struct cmd_exit_code *cmd_exit_codes(void);

/* What `lockstep PAGE --help` shows. */
void cmd_print_page(FILE *file, const struct cmd_page *page);
void cmd_print_overview(FILE *file);
/* The page as troff, for man(1); NULL is the page of the program itself. */
void cmd_print_man(FILE *file, const struct cmd_page *page);

/* ---- reading arguments ---------------------------------------------------------------------- */

/* Arguments by the page's options; borrowed from argv. */
struct cmd_args {
    const struct cmd_page *page;
    const char
        *value[CMD_OPTIONS_MAX];     /* by option: its last value, "" for a switch, NULL absent */
    const char *word[CMD_WORDS_MAX]; /* what is no option, in order; all that follows "--" too */
    int words;
};

/* Reads argv[1] onwards. Both "--name VALUE" and "--name=VALUE" are read, options and words in any
 * order. LS_ECONFIG for an option that the page does not list (with the nearest), for a value that
 * is missing or not wanted, and for more than words_max words. */
int cmd_args_read(struct cmd_args *args, const char *page_name, int argc, char **argv,
                  int words_max, struct ls_error *error);
/* The option's value, NULL where it was not given. */
const char *cmd_args_value(const struct cmd_args *args, const char *option);
bool cmd_args_given(const struct cmd_args *args, const char *option);
/* *out = the value as a number within [min, max]; left as it is where the option was not given.
 * LS_ECONFIG names option, value and bounds. */
int cmd_args_int(const struct cmd_args *args, const char *option, int64_t min, int64_t max,
                 int64_t *out, struct ls_error *error);
int cmd_args_real(const struct cmd_args *args, const char *option, double min, double max,
                  double *out, struct ls_error *error);
/* The same of a large count from 1 to most, which may end in k, M, G (or B) or T. */
int cmd_args_amount(const struct cmd_args *args, const char *option, double most, double *out,
                    struct ls_error *error);

/* *output = what --output names; otherwise `name`, in the directory of the run that the only word
 * names. LS_ECONFIG: there is no word. */
int cmd_args_output(const struct cmd_args *args, const char *name, const char **output,
                    struct ls_error *error);

/* ---- text of others -------------------------------------------------------------------------- */

/* What a model writes, or a path, may command a terminal: there it is escaped, character by
 * character, though a piece may end within one. Files and pipes get its bytes as they are. */
struct cmd_text {
    bool terminal;
    char held[4];
    size_t count;
};
/* Text for stdout; after begin, put any number of times, then end. */
void cmd_text_begin(struct cmd_text *text);
void cmd_text_put(struct cmd_text *text, const char *bytes, size_t count);
void cmd_text_end(struct cmd_text *text);
/* printf of text that holds paths or other strings from outside, escaped in the same way. */
void cmd_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- progress -------------------------------------------------------------------------------- */

/* Whether LOCKSTEP_PROGRESS in the environment lets commands show how far they are: LS_ECONFIG if
 * it is neither on nor off. */
int cmd_progress_read(bool *shown, struct ls_error *error);
/* Standard error shows how far the command is from here on (lockstep/base/meter.h), and names it.
 * Nothing is shown with LOCKSTEP_PROGRESS=off. */
void cmd_progress_begin(const char *page_name);
/* Columns of the terminal now: it may have been resized since the last line. */
int cmd_terminal_columns(int fd);
/* Whether a line can be updated in place there. */
bool cmd_terminal_renews(int fd);

/* "1.50 GiB" */
struct cmd_size {
    char text[32];
};
struct cmd_size cmd_size(int64_t bytes);

/* Prints "lockstep <page>: <error>" to stderr and returns the exit code of status. */
int cmd_fail(const char *page_name, int status, const struct ls_error *error);

#endif
