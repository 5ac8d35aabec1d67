/* Options and words of a command line, by the page that describes them. */
#include "cmd.h"

#include <lockstep/base/figure.h>
#include <lockstep/base/file.h>
#include <lockstep/base/meter.h>
#include <lockstep/ckpt.h>
#include <lockstep/config.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static int option_index(const struct cmd_page *page, const char *name, size_t length)
{
    for (int i = 0; page->options[i].name; i++)
        if (strncmp(page->options[i].name, name, length) == 0 &&
            page->options[i].name[length] == '\0')
            return i;
    return -1;
}

/* What other programs call an option. */
static const struct {
    const char *theirs, *ours;
} elsewhere[] = {
    {"--gpus|--num-gpus|--num_gpus|--ranks|--devices|--world-size", "--accelerators"},
    {"-n|-np|--np|--nproc|--nproc-per-node|--nproc_per_node|--gpus|--world-size", "--ranks"},
    {"-o|--output|--output-dir|--output_dir|--to", "--out"},
    {"-o|--out|--file", "--output"},
    {"-i|--file|--text", "--input"},
    {"-p|--text|--message", "--prompt"},
    {"--file|--input|--messages|--conversations", "--prompts"},
    {"--messages|--conversations", "--chat"},
    {"--outtype|--quantization", "--quantize"},
};

/* The option that goes by the given name elsewhere, the shortest that it is the beginning of, or
 * the one with the nearest spelling. */
static const char *nearest_option(const struct cmd_page *page, const char *given)
{
    const char *names[CMD_OPTIONS_MAX + 1], *longer = NULL;
    size_t count = 0, length = strcspn(given, "=");
    char word[64];
    snprintf(word, sizeof word, "%.*s", length < 60 ? (int)length : 60, given);
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        if (ls_word_among(elsewhere[i].theirs, word) &&
            option_index(page, elsewhere[i].ours, strlen(elsewhere[i].ours)) >= 0)
            return elsewhere[i].ours;
    for (; page->options[count].name; count++)
        names[count] = page->options[count].name;
    names[count++] = "--help";
    for (size_t i = 0; i < count && length > 3; i++)
        if (strncmp(names[i], given, length) == 0 && (!longer || strlen(names[i]) < strlen(longer)))
            longer = names[i];
    if (longer)
        return longer;
    for (size_t i = 0; i < count; i++) { /* --max-tokens, --max_tokens: --tokens */
        size_t tail = strlen(names[i]) - 2;
        const char *end = given + length - tail;
        if (length > tail + 2 && !strncmp(end, names[i] + 2, tail) && strchr("-_", end[-1]))
            return names[i];
    }
    return ls_nearest(word, names, count);
}

/* Whether the word, with hyphens for underscores or not, is that name. */
static bool is_name(const char *name, const char *word, size_t length)
{
    size_t same = 0;
    while (same < length && (name[same] == word[same] || (name[same] == '_' && word[same] == '-')))
        same++;
    return same == length && !name[same];
}

/* The key of the configuration that `--lr`, `--weight-decay` or `--optim.lr` means, on a page that
 * takes keys. */
static const struct ls_config_key *key_meant(const struct cmd_page *page, const char *given)
{
    const char *word = given + strspn(given, "-");
    size_t length = strcspn(word, "=");
    for (const struct ls_config_key *key = ls_config_keys(NULL);
         key->name && page->arguments && strstr(page->arguments, "key=value"); key++)
        if (is_name(key->name, word, length) || is_name(strchr(key->name, '.') + 1, word, length))
            return key;
    return NULL;
}

/* What the configuration says of `--train-iters` as a key, if it says more than that there is none:
 * "unknown key train-iters; did you mean train.steps?" */
static bool key_absent(const struct cmd_page *page, const char *given, struct ls_error *error)
{
    static struct ls_config config;
    char assignment[80];
    const char *word = given + strspn(given, "-");
    if (!page->arguments || !strstr(page->arguments, "key=value"))
        return false;
    ls_config_defaults(&config);
    snprintf(assignment, sizeof assignment, "%.*s=", (int)ls_min((int64_t)strcspn(word, "="), 70),
             word);
    ls_config_set(&config, assignment, error);
    ls_error_unplace(error);
    return error->key[0] && !strstr(error->text, "--help-config");
}

static int unknown_option(const struct cmd_page *page, const char *given, struct ls_error *error)
{
    const char *near = nearest_option(page, given);
    const struct ls_config_key *key = near ? NULL : key_meant(page, given);
    struct ls_error unknown = {0};
    bool file = ls_word_among("--config|-c|--config-file|--config_file|--cfg|--yaml", given);
    if (file && page->arguments && strstr(page->arguments, "CONFIG.yaml"))
        return ls_error_set(error, LS_ECONFIG,
                            "unknown option %s; the file needs none: lockstep %s RUN.yaml", given,
                            page->name);
    if (key)
        return ls_error_set(error, LS_ECONFIG,
                            "unknown option %.100s; a key is written without dashes: %s=VALUE",
                            given, key->name);
    if (!near && key_absent(page, given, &unknown))
        return ls_error_set(error, LS_ECONFIG,
                            "unknown option %.100s; keys are written without dashes: %s", given,
                            unknown.text);
    return ls_error_set(error, LS_ECONFIG, "unknown option %.100s%s", given,
                        ls_meant(near, " (--help lists them)").text);
}

static int word_add(struct cmd_args *args, const char *word, struct ls_error *error)
{
    int most = args->page->words_max, words_max = most ? (int)ls_max(most, 0) : CMD_WORDS_MAX;
    const char *arguments = args->page->arguments;
    bool list = strstr(arguments, "...") != NULL; /* "RUN...", which reads as any number */
    if (args->words == words_max && list)
        return ls_error_set(error, LS_ECONFIG,
                            "%.200s is one argument too many: at most %d are taken (%s)", word,
                            words_max, arguments);
    if (args->words == words_max)
        return ls_error_set(error, LS_ECONFIG, "%.200s is one argument too many: expected %s", word,
                            *arguments ? arguments : "none");
    args->word[args->words++] = word;
    return LS_OK;
}

/* "PATH..." stands for all words behind it; the dots within "TOKEN[,TOKEN...]" are of one value. */
static bool takes_words(const struct cmd_option *option)
{
    size_t length = strlen(option->value);
    return length >= 3 && strcmp(option->value + length - 3, "...") == 0;
}

/* One option at argv[i]; *used is how many arguments it took. */
static int read_option(struct cmd_args *args, int argc, char **argv, int i, int *used,
                       struct ls_error *error)
{
    const char *equals = strchr(argv[i], '=');
    size_t length = equals ? (size_t)(equals - argv[i]) : strlen(argv[i]);
    int index = option_index(args->page, argv[i], length);
    if (index < 0)
        return unknown_option(args->page, argv[i], error);
    const struct cmd_option *option = &args->page->options[index];
    *used = 1;
    if (!option->value) {
        args->value[index] = "";
        return equals ? ls_error_set(error, LS_ECONFIG, "%s takes no value", option->name) : LS_OK;
    }
    if (takes_words(option)) {
        args->value[index] = "";
        return equals ? word_add(args, equals + 1, error) : LS_OK;
    }
    if (equals) {
        args->value[index] = equals + 1;
        return LS_OK;
    }
    if (i + 1 >= argc)
        return ls_error_set(error, LS_ECONFIG, "%s: expected %s after it", option->name,
                            option->value);
    args->value[index] = argv[i + 1];
    *used = 2;
    return LS_OK;
}

/* On a page that takes the ARGUMENTS of another program, which look like options: one text that
 * holds several. */
static bool is_text(const struct cmd_page *page, const char *given)
{
    char end = given[strcspn(given, "= \t\n")];
    return strstr(page->arguments, "|ARGUMENTS") && end && end != '=';
}

/* A picture is SVG and a report HTML, whatever the name ends in. Another kind is a slip. */
static int kind_check(const struct cmd_args *args, const char *option, const char *kind,
                      struct ls_error *error)
{
    int index = option_index(args->page, option, strlen(option));
    const char *path = index < 0 ? NULL : args->value[index];
    const char *end = path ? strrchr(path, '.') : NULL;
    if (!end || !ls_word_among("png|jpg|jpeg|gif|pdf|ps|eps|svg|html", end + 1) ||
        !strcmp(end + 1, kind))
        return LS_OK;
    return ls_error_set(error, LS_ECONFIG, "%s = %.200s: expected a name that ends in .%s", option,
                        path, kind);
}

static const char *running = ""; /* the page that was read last */

int cmd_args_read(struct cmd_args *args, const struct cmd_page *page, int argc, char **argv,
                  struct ls_error *error)
{
    static const char **words;
    free(words);
    words = calloc((size_t)argc, sizeof *words);
    *args = (struct cmd_args){.page = page, .given = argc - 1, .word = words};
    running = page->name;
    if (!words)
        return ls_no_memory(error, "to read %d arguments", argc);
    bool options = true;
    for (int i = 1, used; i < argc; i += used) {
        int status = LS_OK;
        used = 1;
        if (options && strcmp(argv[i], "--") == 0)
            options = false;
        else if (options && argv[i][0] == '-' && argv[i][1] && !is_text(args->page, argv[i]))
            status = read_option(args, argc, argv, i, &used, error);
        else
            status = word_add(args, argv[i], error);
        if (status)
            return status;
    }
    int status = kind_check(args, "--svg", "svg", error);
    if (!status && !strcmp(page->name, "plot"))
        status = kind_check(args, "--output", "svg", error);
    if (!status && !strcmp(page->name, "report"))
        status = kind_check(args, "--output", "html", error);
    return status;
}

const char *cmd_args_value(const struct cmd_args *args, const char *option)
{
    int index = option_index(args->page, option, strlen(option));
    LS_ASSERT(index >= 0);
    return args->value[index];
}

bool cmd_args_given(const struct cmd_args *args, const char *option)
{
    return cmd_args_value(args, option) != NULL;
}

int cmd_int_read(const char *name, const char *text, int64_t min, int64_t max, int64_t *out,
                 struct ls_error *error)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < min || value > max) {
        char bounds[64];
        snprintf(bounds, sizeof bounds, "from %lld to %lld", (long long)min, (long long)max);
        if (max == INT64_MAX)
            snprintf(bounds, sizeof bounds, "of at least %lld", (long long)min);
        return ls_error_set(error, LS_ECONFIG, "%s = %.100s: expected a whole number %s", name,
                            text, bounds);
    }
    *out = value;
    return LS_OK;
}

int cmd_args_int(const struct cmd_args *args, const char *option, int64_t min, int64_t max,
                 int64_t *out, struct ls_error *error)
{
    const char *text = cmd_args_value(args, option);
    return text ? cmd_int_read(option, text, min, max, out, error) : LS_OK;
}

int cmd_word_read(const char *name, const char *text, const struct ls_word *words, int *out,
                  struct ls_error *error)
{
    char expected[256];
    if (ls_word_read(words, text, out))
        return LS_OK;
    ls_words_expected(words, text, expected, sizeof expected);
    return ls_error_set(error, LS_ECONFIG, "%s = %.100s: expected %s", name, text, expected);
}

int cmd_args_word(const struct cmd_args *args, const char *option, const struct ls_word *words,
                  int *out, struct ls_error *error)
{
    const char *text = cmd_args_value(args, option);
    return text ? cmd_word_read(option, text, words, out, error) : LS_OK;
}

/* such: the end of what is expected. */
static int figure_read(const struct cmd_args *args, const char *option, enum ls_figure kind,
                       double min, double max, double *out, const char *such,
                       struct ls_error *error)
{
    const char *text = cmd_args_value(args, option);
    double value;
    if (!text)
        return LS_OK;
    char *end;
    double percent = strtod(text, &end);
    if (end > text && !strcmp(end, "%"))
        return ls_error_set(error, LS_ECONFIG, "%s = %.100s: expected a number: %.100s is %g",
                            option, text, text, percent / 100);
    if (!ls_figure_read(kind, text, &value) || value < min || value > max)
        return ls_error_set(error, LS_ECONFIG, "%s = %.100s: expected a number from %g to %g%s",
                            option, text, min, max, such);
    *out = value;
    return LS_OK;
}

int cmd_args_real(const struct cmd_args *args, const char *option, double min, double max,
                  double *out, struct ls_error *error)
{
    return figure_read(args, option, LS_FIGURE_NUMBER, min, max, out, "", error);
}

int cmd_args_amount(const struct cmd_args *args, const char *option, double most, double *out,
                    struct ls_error *error)
{
    return figure_read(args, option, LS_FIGURE_COUNT, 1, most, out, ", such as 300B or 2T", error);
}

int cmd_args_time(const struct cmd_args *args, const char *option, double *seconds,
                  struct ls_error *error)
{
    const char *text = cmd_args_value(args, option);
    if (!text)
        return LS_OK;
    size_t length = ls_figure_length(text);
    const char *unit = text + length + strspn(text + length, " ");
    bool days = !strcmp(unit, "d") || !strcmp(unit, "day") || !strcmp(unit, "days");
    double value = days ? 86400 * strtod(text, NULL) : 0;
    if (!length || !*unit || (!days && !ls_figure_read(LS_FIGURE_SECONDS, text, &value)) ||
        !(value > 0) || !isfinite(value))
        return ls_error_set(error, LS_ECONFIG,
                            "%s = %.100s: expected a time with its unit, such as 30d or 12h",
                            option, text);
    *seconds = value;
    return LS_OK;
}

int cmd_args_output(const struct cmd_args *args, const char *name, const char **output,
                    struct ls_error *error)
{
    static char beside[2 * PATH_MAX];
    char run[PATH_MAX];
    *output = cmd_args_value(args, "--output");
    if (args->words == 0)
        return ls_error_set(error, LS_ECONFIG, "expected the directory of a run");
    if (*output || args->words > 1) {
        *output = *output ? *output : name;
        return LS_OK;
    }
    *output = beside;
    int status = ls_checkpoint_run(args->word[0], run, error);
    if (!status)
        snprintf(beside, sizeof beside, "%s/%s", run, name);
    return status;
}

/* ---- what fails, and what is warned of ------------------------------------------------------- */

static void line_print(const char *line)
{
    ls_meter_clear();
    cmd_flush();
    fprintf(stderr, "lockstep %s: %s\n", running, line);
}

/* mpirun's own folder on this machine, which it removes when the job ends, has a file of what its
 * processes failed with. The first of them tells, under a lock: mpirun ends the others once one has
 * ended. Without such a folder each tells. */
static int told_open(void)
{
    char path[PATH_MAX];
    const char *folder = getenv("PMIX_SERVER_TMPDIR");
    if (!folder || ls_mpi_launched_rank() < 0 || ls_path_join(path, folder, "lockstep-told", NULL))
        return -1;
    int file = open(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file >= 0 && flock(file, LOCK_EX)) {
        close(file);
        return -1;
    }
    return file;
}

static bool told_has(int file, const char *line)
{
    char text[65536];
    ssize_t bytes = pread(file, text, sizeof text - 1, 0);
    text[bytes > 0 ? bytes : 0] = '\0';
    return strstr(text, line);
}

int cmd_fail(int status, const struct ls_error *error)
{
    const char *line = error->text[0] ? error->text : ls_status_name(status);
    int told = told_open();
    if (told < 0 || !told_has(told, line)) {
        line_print(line);
        if (told >= 0)
            dprintf(told, "%s\n", line);
    }
    if (told >= 0)
        close(told);
    return ls_exit_code(status);
}

static void on_log(void *user, enum ls_log_level level, const char *line)
{
    (void)user, (void)level;
    line_print(line);
}

const struct ls_log cmd_warnings = {.level_max = LS_LOG_WARNING, .write = on_log};

const char *cmd_name(void)
{
    return running;
}
