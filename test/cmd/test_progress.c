/* Commands that take long show how far they are: here the clock leaps by 11 seconds whenever one
 * tells, so that every part of its work is a line in a log. */
#include "../../cmd/cmd.h"

#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/told.h"
#include "../support/wrapped.h"

#include <lockstep/base/meter.h>

#include <fcntl.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdatomic.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run_program.h"

static atomic_int told; /* how often */
static char root[4096]; /* of the tree, from which it runs */

WRAPPED(ls_now_s);
double __wrap_ls_now_s(void)
{
    return __real_ls_now_s() + 11.0 * told;
}

WRAPPED(ls_meter);
static void leap_and_show(const char *what, int64_t done, int64_t all)
{
    told++;
    __real_ls_meter(what, done, all);
}

/* A product of the yardstick takes no time here. */
WRAPPED(dnnl_primitive_execute);
dnnl_status_t __wrap_dnnl_primitive_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream,
                                            int count, const dnnl_exec_arg_t *args)
{
    (void)primitive, (void)stream, (void)count, (void)args;
    return dnnl_success;
}

/* ---- a command in this process --------------------------------------------------------------- */

#define KEYS                                                                                       \
    "model.arch=gpt2", "model.layers=1", "model.channels=32", "model.heads=2", "model.vocab=60",   \
        "model.context=16", "batch.global=4", "parallel.threads=1", "comm.timeout_s=0",            \
        "numerics.arithmetic=fma", "data.train=u16:tokens.bin"

enum { WORDS_MAX = 32 };

static int setup(void **state)
{
    uint16_t tokens[2000];
    if (scratch_setup(state) || chdir(*state))
        return -1;
    for (uint32_t i = 0; i < 2000; i++)
        tokens[i] = (uint16_t)(i * 7 % 50);
    scratch_write("tokens.bin", tokens, sizeof tokens);
    return unsetenv("LOCKSTEP_PROGRESS");
}

static int teardown(void **state)
{
    return chdir("/") || scratch_teardown(state);
}

static int redirect(int fd, const char *path)
{
    int kept = dup(fd), file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_true(kept >= 0 && file >= 0 && dup2(file, fd) == fd);
    close(file);
    return kept;
}

static void restore(int fd, int kept)
{
    fflush(NULL);
    assert_true(dup2(kept, fd) == fd);
    close(kept);
}

/* Runs it; what it wrote to standard error, to be freed. */
static char *progress_of(const char *command, char *const *words)
{
    char *argv[WORDS_MAX] = {NULL};
    int argc = 0;
    while (words[argc]) {
        argv[argc] = words[argc];
        argc++;
    }
    fflush(NULL);
    int out = redirect(STDOUT_FILENO, "out.txt"), log = redirect(STDERR_FILENO, "log.txt");
    int code;
    bool known = cmd_run(command, argc, argv, &code);
    restore(STDOUT_FILENO, out);
    restore(STDERR_FILENO, log);
    ls_meter_show(NULL);
    char *text = scratch_read("log.txt", NULL);
    assert_true(known);
    if (code > 1) /* 1: what is compared differs */
        fail_msg("exit code %d: %s", code, text);
    return text;
}

/* It shows the line, and nothing with LOCKSTEP_PROGRESS=off. */
static void check_shown(const char *command, char *const *words, const char *line)
{
    char *text = progress_of(command, words);
    if (!strstr(text, line))
        fail_msg("no line \"%s\" in: %s", line, text);
    free(text);
    assert_int_equal(setenv("LOCKSTEP_PROGRESS", "off", 1), 0);
    text = progress_of(command, words);
    if (strstr(text, line))
        fail_msg("with LOCKSTEP_PROGRESS=off: %s", text);
    free(text);
    assert_int_equal(unsetenv("LOCKSTEP_PROGRESS"), 0);
}

CASE(test_doctor)
{
    char *words[] = {"doctor", NULL};
    unsetenv("LOCKSTEP_PEAK_FLOPS"); /* which is not measured where it is given */
    check_shown("doctor", words, "lockstep doctor: 1 of 4 products");
    setenv("LOCKSTEP_PEAK_FLOPS", "1e12", 1);
}

CASE(test_verify)
{
    char *words[] = {"verify", KEYS, "--layouts", "2", "--ranks", "2", "--steps", "1", NULL};
    check_shown("verify", words, "lockstep verify: 1 of 2 layouts\n");
}

CASE(test_bench_step)
{
    char *words[] = {"step", KEYS, "train.steps=4", NULL};
    check_shown("bench step", words, "lockstep bench step: 2 of 4 steps  ETA ");
}

CASE(test_layout_check)
{
    char *words[] = {"layout", KEYS, "parallel.dp=4", "--check", NULL};
    check_shown("layout", words, "lockstep layout: 1 of 4 ranks\n");
}

/* Of a layout that is forecast, and of the step that is drawn. */
CASE(test_plan_layout)
{
    char cluster[5000];
    snprintf(cluster, sizeof cluster, "%s/clusters/h100-2048.yaml", root);
    char *words[] = {"plan", "--layout", "--cluster", cluster, KEYS, "parallel.dp=4", NULL};
    check_shown("plan", words, "lockstep plan: 0 of 4 ranks\n");
    char *lesson[] = {"plan", "--lesson", "scaling", "--cluster", cluster, NULL};
    check_shown("plan", lesson, "lockstep plan: 0 of 64 ranks\n");
}

CASE(test_bench_tokenizer)
{
    char *words[] = {"tokenizer", "tokenizer=byte", "text=tokens.bin", "threads=2", NULL};
    check_shown("bench tokenizer", words,
                "lockstep bench tokenizer: 1 of 12 rounds of one thread\n");
    check_shown("bench tokenizer", words,
                "lockstep bench tokenizer: 1 of 6 rounds of all threads\n");
}

CASE(test_bench_ops)
{
    char *words[] = {"ops", KEYS, "parallel.threads=1", NULL};
    check_shown("bench ops", words, "lockstep bench ops: 1 of ");
}

CASE(test_diff)
{
    char *one[] = {"train", KEYS, "train.steps=3", "train.out=one", "log.progress=off", NULL};
    char *two[] = {"train",         KEYS, "train.steps=3", "train.out=two", "log.progress=off",
                   "optim.lr=2e-2", NULL};
    free(progress_of("train", one));
    free(progress_of("train", two));
    char *words[] = {"diff", "one", "two", "--force", NULL};
    check_shown("diff", words, "lockstep diff: 1 of 2 steps\n");
}

/* Whoever reads a run's records tells how much of them. */
CASE(test_records)
{
    char *run[] = {"train", KEYS, "train.steps=8", "train.out=read", "log.progress=off", NULL};
    char *words[] = {"command", "read", NULL}, *two[] = {"diff", "read", "read", NULL};
    free(progress_of("train", run));
    check_shown("plot", words, "lockstep plot: 0 of 1 MB of records\n");
    check_shown("report", words, "lockstep report: 0 of 1 MB of records\n");
    check_shown("profile", words, "lockstep profile: 0 of 1 MB of records\n");
    check_shown("diff", two, "lockstep diff: 0 of 1 MB of records\n");
}

/* Every command over a corpus or a store, one behind the other. */
CASE(test_data_commands)
{
    static char *const commands[][WORDS_MAX] = {
        {"prepare", "--input", "t.jsonl", "--output", "s", "--tokenizer", "byte", "--validation",
         "0"},
        {"train-tokenizer", "--input", "t.jsonl", "--vocab", "260", "--output", "words"},
        {"dedup", "--input", "t.jsonl", "--output", "unique.jsonl"},
        {"filter", "--input", "t.jsonl", "--output", "good.jsonl"},
        {"split", "t.jsonl", "--parts", "2", "--output", "lines"},
        {"split", "s_train", "--parts", "2", "--output", "half"},
        {"merge", "half_0", "half_1", "--output", "joined"},
        {"detokenize", "joined", "--output", "joined.jsonl"},
        {"verify", "s_train"},
        {"stats", "s_train"},
    };
    FILE *file = fopen("t.jsonl", "w");
    assert_non_null(file);
    for (int i = 0; i < 80; i++) /* more than verify reads at a time */
        fprintf(file, "{\"text\": \"%01000d\"}\n", i);
    assert_int_equal(fclose(file), 0);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char command[64], line[80];
        snprintf(command, sizeof command, "data %s", commands[i][0]);
        snprintf(line, sizeof line, "lockstep %s: ", command);
        check_shown(command, commands[i], line);
    }
    char *pack[] = {"pack", "s_train", "--sequence", "64", NULL};
    check_shown("data pack", pack, "lockstep data pack: 1 of 80 documents counted\n");
    check_shown("data pack", pack, "lockstep data pack: 1 of 80 documents sorted\n");
    check_shown("data pack", pack, "lockstep data pack: 1 of 80 documents packed\n");
    check_shown("data pack", pack, "lockstep data pack: 1 of 80 documents written\n");
}

/* Whoever reads all of a checkpoint, or computes with it. */
CASE(test_checkpoints)
{
    char *run[] = {"train", KEYS, "train.steps=2", "train.out=kept", "log.progress=off", NULL};
    char *words[] = {"verify", "kept", NULL}, *store[] = {"eval", "kept", "u16:tokens.bin", NULL};
    char *audit[] = {"audit", "kept", "--steps", "1..2", "parallel.tp=2", NULL};
    char *copy[] = {"reshard", "kept", "--out", "copy", "parallel.tp=2", NULL};
    free(progress_of("train", run));
    check_shown("ckpt verify", words, "lockstep ckpt verify: 1 of ");
    check_shown("eval", store, "lockstep eval: 1 of ");
    check_shown("audit", audit, "lockstep audit: 1 of 2 steps\n");
    char *text = progress_of("ckpt reshard", copy);
    assert_text_contains(text, "lockstep ckpt reshard: 1 of ");
    free(text);
}

/* What is no answer is refused before anything is done. */
CASE(test_other_values)
{
    char output[PROGRAM_OUTPUT_BYTES];
    assert_int_equal(program_run("LOCKSTEP_PROGRESS=never", "doctor", output),
                     ls_exit_code(LS_ECONFIG));
    assert_string_equal(output, "lockstep: LOCKSTEP_PROGRESS = never: expected on or off; unset it "
                                "for on\n");
    program_expect_under("LOCKSTEP_PROGRESS=on", "--version", 0, "numerics.version");
    program_expect_under("LOCKSTEP_PROGRESS=", "--version", 0, "numerics.version");
}

int main(void)
{
    told_also = leap_and_show;
    setenv("LOCKSTEP_PEAK_FLOPS", "1e12", 1);
    char path[4096];
    assert_non_null(getcwd(root, sizeof root));
    program_path(path, sizeof path);
    setenv("LOCKSTEP", path, 1);
    return suite_run(setup, teardown);
}
