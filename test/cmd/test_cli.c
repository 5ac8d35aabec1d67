/* The program's command line and its documents: what it prints, and what it exits with. */
#include "../support/mpirun.h"
#include "../support/suite.h"
#include "run_program.h"

#include <lockstep/base/version.h>

#include <lockstep/base.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

CASE(test_usage)
{
    program_expect("", 2, "Usage: lockstep COMMAND");
    program_expect("--help", 0, "Usage: lockstep COMMAND");
    program_expect("-h", 0, "Usage: lockstep COMMAND");
    program_expect("help", 0, "Usage: lockstep COMMAND");
    char line[128];
    snprintf(line, sizeof line, "lockstep %s (commit %s, numerics.version %d)\n", LS_VERSION,
             ls_commit(), LS_NUMERICS_VERSION);
    program_expect("--version", 0, line);
}

/* Commands and options of other programs. */
CASE(test_words_of_other_programs)
{
    program_expect("merge run", 2, "did you mean export, which merges adapters, or data merge?");
    program_expect("ckpt list run", 2, "unknown command ckpt list; did you mean ckpt inspect?");
    program_expect("data tokenize x", 2, "did you mean data prepare?");
    program_expect("generate run --temp 1", 2, "--temp; did you mean --temperature?");
    program_expect("generate run hello", 2, "; a text is --prompt TEXT, a file --prompts FILE");
    program_expect("plan x.yaml --gpus 8", 2, "--gpus; did you mean --accelerators?");
    program_expect("convert megatron x --gpus 8", 2, "--gpus; did you mean --ranks?");
    program_expect("export run --output x", 2, "--output; did you mean --out?");
    program_expect("report run -o x", 2, "-o; did you mean --output?");
}

CASE(test_what_is_unknown_is_named_with_the_nearest)
{
    program_expect("reshard run", 2, "unknown command reshard; did you mean ckpt reshard?");
    program_expect("trian", 2, "unknown command trian; did you mean train?");
    program_expect("zzzzzzzz", 2, "unknown command zzzzzzzz (lockstep help lists them)");
    program_expect("resume run", 2, "did you mean train CONFIG.yaml train.resume=auto?");
    program_expect("chat run", 2, "unknown command chat; did you mean generate --chat?");
    program_expect("generate run --max-tokens 5", 2, "--max-tokens; did you mean --tokens?");
    program_expect("generate run --max_tokens=5", 2, "; did you mean --tokens?");
    program_expect("''", 2, "unknown command");
    program_expect("bench", 2, "Usage: lockstep bench");
    program_expect("bench op", 2, "did you mean bench ops?");
    program_expect("bench tier mib=1", 2, "mib = 1: expected a whole number from 64");
    program_expect("bench tier folder=/nowhere", ls_exit_code(LS_EIO), "/nowhere: cannot open");
    program_expect("bench machine --outt x", 2, "unknown option --outt; did you mean --out?");
    program_expect("bench machine --threads 0", 2, "--threads = 0: expected numbers from 1");
    program_expect("bench machine --threads 1,,2", 2, "--threads = 1,,2: expected numbers");
    program_expect("bench machine --machine m.yaml", 2, "--machine: expected --check CONFIG");
    program_expect("bench machine --check a.yaml --out b.yaml", 2, "--out measures, --check");
    program_expect("bench machine --all configs/gpt2-tiny.yaml", 2, "--all adds a type");
    program_expect("bench machine configs/gpt2-tiny.yaml model.layer=2", 2, "model.layers");
    program_expect("bench machine --out /nowhere/m.yaml", ls_exit_code(LS_EIO), "/nowhere");
    program_expect("bench machine --check configs/gpt2-tiny.yaml model.vocab=64 parallel.dp=2", 2,
                   "a check takes one rank");
    program_expect("bench machine --check configs/gpt2-tiny.yaml --machine /nowhere.yaml",
                   ls_exit_code(LS_EIO), "/nowhere.yaml");
    program_expect("--verison", 2, "unknown command --verison");
    program_expect("help trian", 2, "no page trian; did you mean train?");
    program_expect("help --mann train", 2, "unknown option --mann; did you mean --man?");
    program_expect("help --man", 2, "--man: expected PAGE after it");
    program_expect("help --list=3", 2, "--list takes no value");
    program_expect("help a b c", 2, "c is one argument too many");
    program_expect("doctor now", 2, "now is one argument too many: expected none");
    program_expect("data", 2, "Usage: lockstep data");
    program_expect("data verfy x", 2, "did you mean data verify?");
    program_expect("data verify", 2, "STORE is missing");
    program_expect("data stats", 2, "STORE is missing");
    program_expect("data merge --output x", 2, "STORE is missing");
    program_expect("data merge x", 2, "--output PREFIX is missing");
    program_expect("data detokenize x", 2, "--output FILE is missing");
    program_expect("data split x --output y", 2, "--parts N is missing");
    program_expect("data merge x --output y/ --part-documents 0", 2, "--part-documents");
    program_expect("data detokenize x --output y --workers 0", 2, "--workers");
    program_expect("data merge x --output y --workers 2", 2, "--workers");
    program_expect("data split x --output y --parts 0", 2, "--parts: 0: expected the number");
    program_expect("data dedup --output x", 2, "--input PATH... is missing");
    program_expect("data filter --input x", 2, "--output FILE is missing");
    program_expect("data dedup --input x --output y --near 2", 2, "--near = 2: expected");
    program_expect("data dedup --input x --output y --hashes 64", 2, "need --near SIMILARITY");
    program_expect("data filter --input x --output y --rules gophr", 2, "did you mean gopher?");
    program_expect("data filter --list", 0, "duplicate-5-grams-max");
    program_expect("data filter --input doc --output /dev/full", ls_exit_code(LS_ENOSPC), "full");
    /* One value with commas: neither empty, nor a further input. */
    program_expect("data train-tokenizer --input doc/data.md --vocab 300 --output /nowhere/x/y "
                   "--special 'a,,b'",
                   2, "an empty token in the list");
    program_expect("data train-tokenizer --input doc/data.md --vocab 257 --output /nowhere/x/y "
                   "--special 'a,b'",
                   2, "a vocabulary of 257; expected 258 (256 bytes and the special tokens)");
    program_expect("data train-tokenizer --input doc/data.md --vocab 300 --output /nowhere/x/y "
                   "--special=a,b",
                   ls_exit_code(LS_EIO), "/nowhere/x: the folder to make");
    program_expect("data verify /nowhere/x", ls_exit_code(LS_EIO), "FAILED   /nowhere/x: neither");
}

CASE(test_every_page_has_help_and_a_man_page)
{
    static char names[PROGRAM_OUTPUT_BYTES];
    assert_int_equal(program_run("", "help --list", names), 0);
    char *save = NULL;
    int count = 0;
    for (char *name = strtok_r(names, "\n", &save); name; name = strtok_r(NULL, "\n", &save)) {
        char arguments[128], words[128], spaced[64];
        snprintf(spaced, sizeof spaced, "%s", name);
        char *dash = strchr(spaced, '-'); /* behind the family: train-tokenizer has another */
        if (dash)
            *dash = ' ';
        snprintf(words, sizeof words, "Usage: lockstep %s", spaced);
        snprintf(arguments, sizeof arguments, "%s --help", spaced);
        program_expect(arguments, 0, words);
        snprintf(arguments, sizeof arguments, "help --man %s", name);
        program_expect(arguments, 0, ".SH EXIT STATUS");
        count++;
    }
    assert_true(count >= 10);
    program_expect("help --man lockstep", 0, ".SH COMMANDS");
    program_expect("help --man train", 0, "optim.lr");
    program_expect("help --config", 0, "optim.lr = 6e-4");
}

/* Families of commands, such as `bench`, are pages without a command of their own. */
CASE(test_every_page_has_a_command)
{
    static char names[PROGRAM_OUTPUT_BYTES], output[PROGRAM_OUTPUT_BYTES];
    assert_int_equal(program_run("", "help --list | sed 's/-/ /'", names), 0);
    char *save = NULL;
    for (char *name = strtok_r(names, "\n", &save); name; name = strtok_r(NULL, "\n", &save)) {
        char arguments[128];
        snprintf(arguments, sizeof arguments, "%s --no-such-option", name);
        int code = program_run("", arguments, output);
        if (code != 2 || strstr(output, "unknown command"))
            fail_msg("lockstep %s\nexited with %d and printed:\n%s", arguments, code, output);
    }
}

CASE(test_output_that_cannot_be_written)
{
    if (access("/dev/full", W_OK) != 0)
        skip();
    program_expect("help >/dev/full", ls_exit_code(LS_ENOSPC),
                   "cannot write the output: No space left");
}

/* A pipe whose reader had enough (lockstep help | head) is no error. */
CASE(test_output_that_nobody_reads)
{
    static const char pipe[] = "d=$(mktemp -d); mkfifo $d/p; exec 3<>$d/p 4>$d/p 3<&-; rm -r $d;";
    static char output[PROGRAM_OUTPUT_BYTES];
    static const char *const lines[] = {"help --config-markdown >&4", "help --list >&4"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        assert_int_equal(program_run(pipe, lines[i], output), 0);
        assert_string_equal(output, "");
    }
    program_expect_under(pipe, "help tarin >&4", 2, "no page tarin; did you mean train?");
}

CASE(test_doctor)
{
    static const char *const words[] = {"Training can run here", "instruction sets", "oneDNN",
                                        "\n  fp32 ", "\n  bf16 "};
    static char output[PROGRAM_OUTPUT_BYTES];
    assert_int_equal(program_run("LOCKSTEP_PEAK_FLOPS= LD_DEBUG=files", "doctor", output), 0);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        assert_non_null(strstr(output, words[i]));
    assert_non_null(strstr(output, "libdnnl"));
}

/* oneDNN is loaded to measure, as above, never at a start. */
CASE(test_without_onednn)
{
    static const char before[] = "d=$(mktemp -d); trap 'rm -r $d' EXIT; touch $d/libdnnl.so.2;"
                                 "LD_LIBRARY_PATH=$d LOCKSTEP_PEAK_FLOPS=";
    static char output[PROGRAM_OUTPUT_BYTES];
    program_expect_under(before, "--version", 0, "numerics.version");
    program_expect_under(before, "doctor", ls_exit_code(LS_ENOTSUP),
                         "cannot be loaded: install libdnnl2, or set LOCKSTEP_PEAK_FLOPS");
    assert_int_equal(program_run("LOCKSTEP_PEAK_FLOPS=1e12 LD_DEBUG=files", "doctor", output), 0);
    assert_null(strstr(output, "libdnnl"));
}

CASE(test_doctor_sees_what_is_wrong)
{
    static char output[PROGRAM_OUTPUT_BYTES];
    assert_int_equal(
        program_run("ulimit -n 64; LOCKSTEP_PEAK_FLOPS=2e11 PATH=/nowhere LOCKSTEP_IO_URING=0",
                    "doctor", output),
        ls_exit_code(LS_ENOTSUP));
    assert_non_null(strstr(output, "200 GFLOP/s by LOCKSTEP_PEAK_FLOPS"));
    assert_non_null(strstr(output, "to fix: ulimit -n 1024"));
    assert_non_null(strstr(output, "to improve: sudo apt-get install"));
    assert_non_null(strstr(output, "not allowed: threads take its place"));
    program_expect_under("LOCKSTEP_PEAK_FLOPS=fast", "doctor", ls_exit_code(LS_ENOTSUP),
                         "to fix: unset LOCKSTEP_PEAK_FLOPS");
}

/* What is offloaded is the part of the optimizer that belongs to matrices: master and two moments,
 * out and back. */
CASE(test_bench_step_counts_what_is_offloaded)
{
    enum { LAYERS = 2, CHANNELS = 64, VOCABULARY = 256, TOKENS = 64 };
    int matrices = LAYERS * 12 * CHANNELS * CHANNELS + (VOCABULARY + TOKENS) * CHANNELS;
    char arguments[512], words[64];
    snprintf(arguments, sizeof arguments,
             "bench step model.arch=gpt2 model.layers=%d model.heads=4 model.channels=%d "
             "model.vocab=%d model.context=%d data.sequence=%d batch.global=2 parallel.threads=1 "
             "numerics.precision=bf16 train.steps=3 memory.offload.optimizer=host",
             LAYERS, CHANNELS, VOCABULARY, TOKENS, TOKENS);
    snprintf(words, sizeof words, "\"offload_bytes\": %d,", 2 * 3 * (int)sizeof(float) * matrices);
    program_expect(arguments, 0, words);
}

/* The processes of a job name their own files of tokens alike. */
CASE(test_bench_over_processes)
{
    mpirun_or_skip();
    program_expect_under("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                         "mpirun --oversubscribe -n 2",
                         "bench plan --cluster clusters/cpu-2core.yaml --steps 1 model.arch=gpt2 "
                         "model.layers=1 model.channels=64 model.heads=2 model.context=32 "
                         "model.vocab=256 batch.global=2 numerics.leaf_sequences=1 batch.micro=1 "
                         "parallel.dp=2 parallel.threads=1",
                         0, "{\"ranks\": 2, ");
}

/* ---- the documents -------------------------------------------------------------------------- */

static void expect_document(const char *path, const char *arguments)
{
    static char document[PROGRAM_OUTPUT_BYTES], output[PROGRAM_OUTPUT_BYTES];
    FILE *file = fopen(path, "r");
    if (!file) {
        print_message("skipped: no %s here; run from the root of the tree\n", path);
        skip();
    }
    document[fread(document, 1, sizeof document - 1, file)] = '\0';
    fclose(file);
    assert_int_equal(program_run("", arguments, output), 0);
    if (strcmp(document, output) != 0)
        fail_msg("%s is not what the program says; run: lockstep %s > %s", path, arguments, path);
}

CASE(test_configuration_document_is_up_to_date)
{
    expect_document("doc/configuration.md", "help --config-markdown");
}

CASE(test_exit_code_document_has_every_status)
{
    expect_document("doc/exit-codes.md", "help --exit-codes");
    static char output[PROGRAM_OUTPUT_BYTES];
    assert_int_equal(program_run("", "help --exit-codes", output), 0);
    for (int status = LS_OK; status >= LS_EBUSY; status--) {
        char row[64];
        if (status == LS_EINVAL)
            snprintf(row, sizeof row, "| %d | `LS_ECONFIG`, `LS_EINVAL` |", ls_exit_code(status));
        else if (status == LS_ECONFIG)
            snprintf(row, sizeof row, "| 2 | `LS_ECONFIG`");
        else
            snprintf(row, sizeof row, "| %d | `%s` |", ls_exit_code(status),
                     ls_status_name(status));
        if (!strstr(output, row))
            fail_msg("the table of exit codes lacks: %s", row);
    }
}

SUITE_MAIN(NULL, NULL)
