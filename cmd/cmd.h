/* What the files of the program share: the sub-commands, their description, and the reading of
 * their arguments. A sub-command parses, calls the library and prints; it holds no algorithm. */
#ifndef CMD_CMD_H
#define CMD_CMD_H

#include <lockstep/base.h>
#include <lockstep/base/key.h>

#include <limits.h>
#include <stdio.h>

/* ---- their descriptions --------------------------------------------------------------------- */

/* "--name" or "--name VALUE"; an option without a value is a switch. */
struct cmd_option {
    const char *name;  /* with its dashes; NULL ends the list */
    const char *value; /* what the value is called, NULL for a switch */
    const char *help;
};

/* One page of the manual. --help, the man page and the parser derive from it. */
struct cmd_args;
typedef int cmd_command(const struct cmd_args *args, struct ls_error *error);
struct cmd_page {
    const char *name;      /* "train", "data prepare" */
    const char *arguments; /* "[CONFIG.yaml] [key=value]..." */
    const char *summary;   /* one line, no full stop */
    const char *text;      /* paragraphs, separated by empty lines */
    const struct cmd_option *options;
    cmd_command *run;     /* NULL: a page alone */
    int words_max;        /* that it takes; 0: CMD_WORDS_MAX; or one of the words below */
    const char *examples; /* one a line; NULL for none */
};

/* All pages; *count of them. */
const struct cmd_page *cmd_pages(size_t *count);
/* Those of pages_data.c; the last has a NULL name. */
extern const struct cmd_page cmd_data_pages[];
/* The page of that name ("data prepare" or "data-prepare"), NULL if there is none. */
const struct cmd_page *cmd_page_of(const char *name);
/* The names, for suggestions; names holds CMD_PAGES_MAX. Returns how many. */
size_t cmd_page_names(const char **names);

enum { CMD_PAGES_MAX = 64, CMD_OPTIONS_MAX = 32, CMD_WORDS_MAX = 256 };
enum { CMD_NO_WORDS = -1, CMD_ANY_WORDS = INT_MAX }; /* any: files, which a shell's pattern names */

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

/* Arguments by the page's options; borrowed from argv. Valid until others are read. */
struct cmd_args {
    const struct cmd_page *page;
    int given; /* arguments */
    const char
        *value[CMD_OPTIONS_MAX]; /* by option: its last value, "" for a switch, NULL absent */
    const char **word;           /* what is no option, in order; all that follows "--" too */
    int words;
};

/* Reads argv[1] onwards. Both "--name VALUE" and "--name=VALUE" are read, options and words in any
 * order; the values of an option that takes "NAME..." are words. LS_ECONFIG for an option that the
 * page does not list (with the nearest), for a value that is missing or not wanted, and for more
 * than its words_max words. */
int cmd_args_read(struct cmd_args *args, const struct cmd_page *page, int argc, char **argv,
                  struct ls_error *error);
/* The option's value, NULL if it was not given. */
const char *cmd_args_value(const struct cmd_args *args, const char *option);
bool cmd_args_given(const struct cmd_args *args, const char *option);
/* *out = the value as a number within [min, max]; left as it is where the option was not given.
 * LS_ECONFIG names option, value and bounds. */
int cmd_args_int(const struct cmd_args *args, const char *option, int64_t min, int64_t max,
                 int64_t *out, struct ls_error *error);
int cmd_args_real(const struct cmd_args *args, const char *option, double min, double max,
                  double *out, struct ls_error *error);
/* The same of one of some words. */
int cmd_args_word(const struct cmd_args *args, const char *option, const struct ls_word *words,
                  int *out, struct ls_error *error);
/* What cmd_args_int and cmd_args_word read, of a text by itself. */
int cmd_int_read(const char *name, const char *text, int64_t min, int64_t max, int64_t *out,
                 struct ls_error *error);
int cmd_word_read(const char *name, const char *text, const struct ls_word *words, int *out,
                  struct ls_error *error);
/* The same of a large count from 1 to most, which may end in k, M, G (or B) or T. */
int cmd_args_amount(const struct cmd_args *args, const char *option, double most, double *out,
                    struct ls_error *error);

/* A time above 0: 30d, "12 h", 90min. */
int cmd_args_time(const struct cmd_args *args, const char *option, double *seconds,
                  struct ls_error *error);

/* *output = what --output names; otherwise `name`, in the directory of the run that the only word
 * names. LS_ECONFIG: there is no word. */
int cmd_args_output(const struct cmd_args *args, const char *name, const char **output,
                    struct ls_error *error);

/* ---- standard output ------------------------------------------------------------------------- */

/* Flushes standard output: 0, or the errno of the first write to it that failed, which the end of
 * the program reports. */
int cmd_flush(void);

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
void cmd_progress_begin(void);
/* The same; and SIGINT, SIGTERM, and SIGHUP unless nohup ignores it, make it nonzero, for the
 * library to see; a second SIGINT or SIGTERM ends the program. */
const volatile int *cmd_stop_begin(void);
/* Of a job that saves before it ends: SIGINT, SIGTERM, SIGUSR1 (Slurm's requeue), and SIGHUP of a
 * terminal that is closed, unless nohup ignores it. alone: one is handled after the other. */
void cmd_signals_catch(void (*handler)(int signal), bool alone);
/* Columns of the terminal now: it may have been resized since the last line. */
int cmd_terminal_columns(int fd);
/* Whether a line can be updated in place there. */
bool cmd_terminal_renews(int fd);
/* Whether it is a terminal that Open MPI made for a rank, while mpirun itself writes to none. */
bool cmd_terminal_of_mpirun(int fd);

/* "1.50 GiB" */
struct cmd_size {
    char text[32];
};
struct cmd_size cmd_size(int64_t bytes);

/* Prints "lockstep <page>: <error>" to stderr, with the page that was read last, and returns the
 * exit code of status. */
int cmd_fail(int status, const struct ls_error *error);
/* "bench step": that page. */
const char *cmd_name(void);
/* Prints what the library warns of as "lockstep <page>: <line>". */
extern const struct ls_log cmd_warnings;

/* ---- sub-commands ---------------------------------------------------------------------------- */

/* What a page's command does. It returns LS_OK, a status whose error cmd_run prints, or an exit
 * code above 0. */
cmd_command cmd_audit, cmd_bench_checkpoint, cmd_bench_comm, cmd_bench_data, cmd_bench_int8,
    cmd_bench_interop, cmd_bench_machine, cmd_bench_ops, cmd_bench_pipeline, cmd_bench_plan,
    cmd_bench_step, cmd_bench_tier, cmd_bench_tokenizer, cmd_ckpt_average, cmd_ckpt_inspect,
    cmd_ckpt_reshard, cmd_ckpt_verify, cmd_convert, cmd_data_dedup, cmd_data_detokenize,
    cmd_data_filter, cmd_data_inspect, cmd_data_merge, cmd_data_order, cmd_data_pack,
    cmd_data_prepare, cmd_data_split, cmd_data_stats, cmd_data_train_tokenizer, cmd_data_verify,
    cmd_diff, cmd_doctor, cmd_eval, cmd_export, cmd_generate, cmd_help, cmd_import, cmd_launch,
    cmd_layout, cmd_plan, cmd_plan_memory, cmd_plot, cmd_profile, cmd_replay, cmd_report,
    cmd_members, cmd_status, cmd_train, cmd_verify;

/* Runs the command of that name, whose arguments are argv[1] onwards; *code is the exit code.
 * False: there is none. */
bool cmd_run(const char *name, int argc, char **argv, int *code);

#endif
