/* What a terminal sees of a run, what a pipe does, and what --dry-run says without data. */
#include "../support/extent.h"
#include "../support/mpirun.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "run_program.h"

#include <lockstep/base.h>

#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define RECIPE                                                                                     \
    "model.arch=gpt2 model.layers=1 model.channels=32 model.heads=2 model.context=16 "             \
    "model.vocab=60 batch.global=4 train.steps=12 parallel.threads=1 "
#define DATA  "data.train=u16:tokens.bin "
#define KEYS  RECIPE DATA
#define RUN   "train " RECIPE
#define TRAIN RUN DATA

static char home[512];

static int setup(void **state)
{
    char path[4096];
    program_path(path, sizeof path);
    if (setenv("LOCKSTEP", path, 1) || scratch_setup(state) || chdir(*state) ||
        !getcwd(home, sizeof home))
        return -1;
    uint16_t tokens[2000];
    for (uint32_t i = 0; i < 2000; i++)
        tokens[i] = (uint16_t)(i * 7 % 50);
    scratch_write(scratch_path(*state, "tokens.bin"), tokens, sizeof tokens);
    return 0;
}

static int teardown(void **state)
{
    return chdir("/") || scratch_teardown(state);
}

/* Runs a command on a terminal of that many columns; what it printed, to be freed. */
static char *command_on_terminal(int columns, const char *command)
{
    struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    int terminal, status;
    size_t used = 0;
    char *text = calloc(1, PROGRAM_OUTPUT_BYTES);
    pid_t child = forkpty(&terminal, NULL, NULL, &size);
    assert_true(child >= 0);
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    ssize_t got;
    while ((got = read(terminal, text + used, PROGRAM_OUTPUT_BYTES - 1 - used)) > 0)
        used += (size_t)got;
    assert_int_equal(waitpid(child, &status, 0), child);
    close(terminal);
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        fail_msg("%s: %s", command, text);
    return text;
}

static char *on_terminal(int columns, const char *arguments)
{
    char path[4096], command[8192];
    program_path(path, sizeof path);
    snprintf(command, sizeof command, "TERM=xterm exec '%s' %s", path, arguments);
    return command_on_terminal(columns, command);
}

/* The longest line that renews itself: from a return to the code that clears what is behind. */
static size_t longest_live(const char *text, int *count)
{
    size_t longest = 0;
    *count = 0;
    for (const char *at = strstr(text, "\rstep "); at; at = strstr(at + 1, "\rstep ")) {
        const char *end = strstr(at, "\033[K");
        assert_non_null(end);
        size_t length = (size_t)(end - at) - 1;
        longest = length > longest ? length : longest;
        ++*count;
    }
    return longest;
}

CASE(test_the_live_line_fits)
{
    static const int columns[] = {20, 40, 200};
    for (size_t i = 0; i < 3; i++) {
        char arguments[512];
        int count;
        snprintf(arguments, sizeof arguments, TRAIN "train.out=live-%zu", i);
        char *text = on_terminal(columns[i], arguments);
        size_t longest = longest_live(text, &count);
        if (count < 1 || longest >= (size_t)columns[i] || (columns[i] == 20 && longest != 19))
            fail_msg("%d columns: %d lines, the longest of %zu: %s", columns[i], count, longest,
                     text);
        assert_non_null(strstr(text, "hash "));
        if (columns[i] >= 40) /* the rate first: what is needed least is cut off */
            assert_non_null(strstr(text, " tokens/s"));
        if (columns[i] == 40)
            assert_null(strstr(text, "grad norm"));
        free(text);
    }
}

CASE(test_no_codes_without_a_terminal)
{
    static char output[PROGRAM_OUTPUT_BYTES];
    static const char *const shown[] = {"auto", "live", "plain"};
    for (size_t i = 0; i < 3; i++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments, TRAIN "train.out=%s log.progress=%s", shown[i],
                 shown[i]);
        assert_int_equal(program_run("", arguments, output), 0);
        if (strchr(output, '\033') || strchr(output, '\r') || !strstr(output, "step 12/12"))
            fail_msg("log.progress=%s: %s", shown[i], output);
    }
}

/* Open MPI gives the first rank a terminal, whatever its own output is; that counts. */
CASE(test_no_codes_behind_mpirun)
{
    static char output[PROGRAM_OUTPUT_BYTES];
    static const char *const starts[] = {"mpirun -n 1 '%s' train ", "'%s' launch --ranks 1 "};
    char path[4096];
    mpirun_or_skip();
    program_path(path, sizeof path);
    for (size_t i = 0; i < 4; i++) {
        bool terminal = i >= 2;
        char start[4200], command[8192], *shown = output;
        if (terminal && !check_all())
            continue;
        snprintf(start, sizeof start, starts[i % 2], path);
        snprintf(command, sizeof command,
                 "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TERM=xterm "
                 "%s" KEYS "train.out=job%zu snapshot.every=0",
                 start, i);
        if (terminal)
            shown = command_on_terminal(80, command);
        else
            assert_int_equal(program_shell(command, output), 0);
        if (!strstr(shown, "step 12/12") || (strchr(shown, '\033') != NULL) != terminal)
            fail_msg("%s: %s", command, shown);
        if (terminal)
            free(shown);
    }
}

/* A path that would colour a terminal, in all that names it there; a pipe gets its bytes. */
CASE(test_paths_command_no_terminal)
{
    static char output[PROGRAM_OUTPUT_BYTES];
    static const char *const lines[][2] = {
        {TRAIN "log.progress=plain train.out=\"$(printf 'red\\033[31m')\"",
         "saved red\\x1b[31m/checkpoints/step-00000012"},
        {"plot red*", "red\\x1b[31m/loss.svg"},
        {"report red*", "red\\x1b[31m/report.html"},
        {"diff red* red*", "A  red\\x1b[31m: "},
        {"data prepare --input red*/config.yaml --tokenizer byte --output "
         "\"$(printf 'blue\\033[34m')\"",
         "blue\\x1b[34m_train  "},
        {"data inspect \"$(printf 'blue\\033[34m_train')\"", "blue\\x1b[34m_train"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char *text = on_terminal(200, lines[i][0]);
        if (strchr(text, '\033') || !strstr(text, lines[i][1]))
            fail_msg("%s: %s", lines[i][0], text);
        free(text);
    }
    assert_int_equal(program_run("", "plot red*", output), 0);
    assert_non_null(strstr(output, "red\033[31m/loss.svg\n"));
}

/* What a script wants of a run that is otherwise quiet. */
CASE(test_off_still_tells_hash_and_paths)
{
    static char output[PROGRAM_OUTPUT_BYTES];
    assert_int_equal(program_run("", TRAIN "train.out=off log.progress=off", output), 0);
    assert_non_null(strstr(output, "hash "));
    assert_non_null(strstr(output, "saved off/checkpoints/step-00000012"));
    if (strstr(output, "loss") || strstr(output, "memory"))
        fail_msg("%s", output);
}

/* A run that was at its last step says so, and how it goes on; hash and path are as before. */
CASE(test_nothing_is_left_to_do)
{
    static char output[PROGRAM_OUTPUT_BYTES];
    static const struct {
        const char *keys, *says, *saved;
        bool idle, same; /* as the line before: the hash */
    } lines[] = {
        {"train.out=done", "step 12/12", "done/checkpoints/step-00000012\n", false, false},
        {"train.out=done train.resume=auto", "step 12 of 12; to train on, set train.extend",
         "done/checkpoints/step-00000012\n", true, true},
        {"train.out=done train.resume=auto parallel.dp=2 log.progress=off", "step 12 of 12",
         "done/checkpoints/step-00000012\n", true, true},
        {"train.out=other train.resume=done/checkpoints/step-00000012", "step 12 of 12",
         "other/checkpoints/step-00000012\n", true, true},
        {"train.out=done train.resume=done/checkpoints/step-00000012", "step 12 of 12",
         "done/checkpoints/step-00000012\n", true, true},
        {"train.out=done train.resume=auto train.extend=3", "step 15/15",
         "done/checkpoints/step-00000015\n", false, false},
        {"train.out=done train.resume=auto train.extend=3", "(steps after train.steps, now 3)",
         "done/checkpoints/step-00000015\n", true, true},
        {"train.out=first train.steps=0", "step 0 of 0", "first/checkpoints/step-00000000\n", true,
         false},
    };
    char hash[64] = "";
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char arguments[1024];
        snprintf(arguments, sizeof arguments, TRAIN "%s", lines[i].keys);
        int code = program_run("", arguments, output);
        bool idle = strstr(output, "nothing is left to do: ");
        const char *told = strstr(output, "hash "), *saved = strstr(output, "  saved ");
        if (code || idle != lines[i].idle || !strstr(output, lines[i].says) || !told || !saved ||
            strncmp(saved + 8, lines[i].saved, strlen(lines[i].saved)) ||
            strstr(saved + 8, "saved"))
            fail_msg("%s: %d %s", arguments, code, output);
        if (lines[i].same)
            assert_memory_equal(told, hash, 5 + 32);
        memcpy(hash, told, 5 + 32);
    }
}

CASE(test_one_is_no_plural)
{
    static char output[PROGRAM_OUTPUT_BYTES];
    assert_int_equal(program_run("", TRAIN "train.out=one", output), 0);
    if (!strstr(output, "1 rank, 4 x 16 tokens a step in 1 micro-batch of 4 sequences a rank"))
        fail_msg("%s", output);
}

/* Of 6 sequences and micro-batches of 4 the last has 2. */
CASE(test_a_smaller_last_micro_batch)
{
    static const char *const lines[] = {TRAIN "train.out=smaller batch.global=6 batch.micro=4",
                                        RUN "--dry-run batch.global=6 batch.micro=4"};
    for (size_t i = 0; i < 2; i++)
        program_expect(lines[i], 0, "2 micro-batches of up to 4 sequences");
    program_expect("layout model.arch=gpt2 model.layers=1 model.channels=32 model.heads=2 "
                   "model.context=16 model.vocab=60 batch.global=6 batch.micro=4",
                   0, "each rank 2 micro-batches of up to 4 sequences");
    program_expect("report smaller --output smaller.html && cat smaller.html", 0,
                   "each rank computes 2 micro-batches of up to 4 sequences.");
}

CASE(test_dry_run_needs_no_data)
{
    static char output[PROGRAM_OUTPUT_BYTES];
    static const char *const data[] = {"", "data.train=nowhere/corpus", "data.train=u16:tokens.bin",
                                       "data.train=nowhere/corpus data.valid=nowhere/v"};
    static const char *const says[] = {"data.train is not set", "nowhere/corpus",
                                       "124 samples of 16 tokens", "cannot be read"};
    for (size_t i = 0; i < sizeof data / sizeof *data; i++) {
        char arguments[600];
        snprintf(arguments, sizeof arguments, RUN "--dry-run parallel.dp=2 %s", data[i]);
        int code = program_run("", arguments, output);
        if (code || !strstr(output, says[i]) ||
            !strstr(output, "2 ranks on this machine alone would take ") ||
            !strstr(output, "is free: fits") || !strstr(output, "memory per rank, at most: ") ||
            strstr(output, "bytes"))
            fail_msg("%s: %d %s", data[i], code, output);
    }
    program_expect(RUN
                   "--dry-run model.channels=16384 model.heads=128 model.layers=200 parallel.dp=4",
                   ls_exit_code(LS_ELAYOUT), "is free: DOES NOT FIT: ");
    program_expect(RUN "--dry-run memory.device_budget=10KiB", ls_exit_code(LS_ELAYOUT),
                   "training would be refused here");
    /* Training itself does need it. */
    program_expect(RUN "data.train=nowhere/corpus", ls_exit_code(LS_EIO), "nowhere/corpus");
}

SUITE_MAIN(setup, teardown)
