/* The program on a small corpus, from text to text: a whole run, its files, signals, resumption,
 * MPI, and what goes wrong in the middle of it. */
#include "runs.h"

#include "../support/await.h"
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"

#include <lockstep/train.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- a whole run ----------------------------------------------------------------------------- */

CASE(test_a_run_and_its_files)
{
    expect("$L train $C train.out=whole train.steps=6 train.save_every=3 log.hash_every=2 "
           "eval.every=3 sample.every=6 sample.tokens=8 log.trace=true",
           0, "step 6/6");
    assert_non_null(strstr(output, "validation loss"));
    assert_non_null(strstr(output, "sample: "));
    struct metrics *metrics = metrics_read("whole");
    assert_int_equal(metrics->steps, 6);
    assert_int_equal(strlen(metrics->hash), 32);
    assert_non_null(strstr(output, metrics->hash));
    assert_true(metrics->validation_loss > 0);
    free(metrics);
    assert_int_equal(matches("whole/events.out.tfevents.*"), 1);
    assert_int_equal(matches("whole/trace/rank-*.json"), 1);
    assert_int_equal(matches("whole/checkpoints/step-0000000[36]"), 2);
    assert_int_equal(matches("whole/checkpoints/*"), 2);
    assert_int_equal(matches("whole/*.tmp*"), 0);
}

/* The resolved configuration is enough to repeat the run, in another layout too. */
CASE(test_the_configuration_repeats_the_run)
{
    expect("$L train $C train.out=first train.steps=5", 0, "step 5/5");
    expect("$L train first/config.yaml --dry-run", 0, "memory per rank");
    expect("$L train first/config.yaml train.out=second parallel.dp=2 batch.micro=1", 0, "2 ranks");
    expect_same_run("first", "second");
}

CASE(test_evaluation_and_generation)
{
    expect("$L train $C train.out=spoken train.steps=5 eval.every=5", 0, "validation loss");
    struct metrics *metrics = metrics_read("spoken");
    char words[64];
    snprintf(words, sizeof words, "loss %.5f", metrics->validation_loss);
    words[strlen(words) - 1] = '\0';
    free(metrics);
    expect("$L eval spoken --samples 8", 0, words);
    assert_non_null(strstr(output, "bits per byte"));
    expect("$L eval spoken corpus_train", 0, "nats per token");
    expect("$L eval spoken nowhere", ls_exit_code(LS_EIO), "nowhere");
    char *text[3];
    static const char *const seeds[] = {"7", "7", "8"};
    for (int i = 0; i < 3; i++) {
        char line[128];
        snprintf(line, sizeof line,
                 "$L generate spoken --prompt 'in the' --tokens 20 --temperature 1 --seed %s",
                 seeds[i]);
        expect(line, 0, "in the");
        text[i] = strdup(output);
    }
    assert_string_equal(text[0], text[1]);
    assert_string_not_equal(text[0], text[2]);
    for (int i = 0; i < 3; i++)
        free(text[i]);
    expect("$L generate nowhere", ls_exit_code(LS_EIO), "nowhere: expected a folder");
    /* Neither the prompt nor the text has to fit the model's context of 32. */
    expect("$L generate spoken --prompt 'this prompt is longer than the context is' --tokens 50", 0,
           "this prompt is longer than the context is");
}

/* ---- signals --------------------------------------------------------------------------------- */

/* before: a signal that comes with it; 0: none. */
static void check_signal(int before, int signal, const char *name, const char *keys)
{
    char line[512], out[64], log[80], whole[80];
    snprintf(out, sizeof out, "stopped-%s", name);
    snprintf(log, sizeof log, "%s.log", out);
    snprintf(whole, sizeof whole, "%s-whole", out);
    pid_t child = run_start(out, keys);
    char metrics_name[128];
    snprintf(metrics_name, sizeof metrics_name, "%s/metrics.jsonl", out);
    struct stat found;
    while (stat(at(metrics_name), &found) || found.st_size <= 500)
        await_pause();
    int status;
    assert_int_equal(kill(child, SIGSTOP), 0); /* both are there when it goes on */
    assert_true(await_stopped(child));
    assert_true(before == 0 || kill(child, before) == 0);
    assert_int_equal(kill(child, signal), 0);
    assert_int_equal(kill(child, SIGCONT), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    char *text = scratch_read(at(log), NULL);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != ls_exit_code(LS_ESTOPPED) ||
        !strstr(text, "stopped by a signal after step "))
        fail_msg("SIG%s: status %#x, printed:\n%s", name, (unsigned)status, text);
    free(text);
    struct metrics *metrics = metrics_read(out);
    long done = (long)metrics->steps;
    free(metrics);
    snprintf(line, sizeof line, "%s/checkpoints/step-%08ld/manifest.json", out, done);
    if (!exists(line))
        fail_msg("%s is missing", line);
    snprintf(line, sizeof line, "$L train $C train.out=%s train.steps=%ld train.resume=auto", out,
             done + 5);
    expect(line, 0, "going on after step");
    snprintf(line, sizeof line, "$L train $C train.out=%s train.steps=%ld", whole, done + 5);
    expect(line, 0, "hash");
    expect_same_run(whole, out);
}

CASE(test_signals_save_and_the_run_goes_on)
{
    check_signal(0, SIGTERM, "TERM", "batch.micro=1 parallel.dp=2");
    signal(SIGHUP, SIG_DFL); /* the tests may run under nohup */
    check_signal(SIGHUP, SIGINT, "INT", "batch.micro=1");
    check_signal(SIGUSR1, SIGTERM, "USR1", "batch.micro=1");
    check_signal(0, SIGHUP, "HUP", "batch.micro=1");
}

/* ---- MPI ------------------------------------------------------------------------------------- */

/* libgomp tells what it was started with. */
#define UNCHOSEN "env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT OMP_DISPLAY_ENV=verbose "
#define SLEEPS   "GOMP_SPINCOUNT = '0'"

CASE(test_mpi_processes)
{
    mpi_or_skip();
    expect("$L train $C train.out=threads parallel.dp=2 train.steps=4", 0, "2 ranks");
    if (check_all()) {
        expect(MPIRUN "$L train $C train.out=processes parallel.dp=2 train.steps=4", 0, "2 ranks");
        expect_same_run("threads", "processes");
    }
    /* Processes without a layout are data parallel. With a thread each, nobody is told to sleep. */
    expect(UNCHOSEN MPIRUN "$L train $C train.out=spread-out train.steps=4", 0,
           "2 processes were started and no layout is given: parallel.dp=2");
    assert_null(strstr(output, SLEEPS));
    expect_same_run("threads", "spread-out");
    expect(MPIRUN "$L train $C train.out=alone train.steps=4 parallel.tp=1",
           ls_exit_code(LS_ELAYOUT), "2 were started");
}

/* Where processes have more threads than the machine has cores, those that wait sleep, but for the
 * process for which the user has chosen. */
CASE(test_waiting_threads_sleep)
{
    mpi_or_skip();
    char line[400];
    snprintf(line, sizeof line,
             UNCHOSEN MPIRUN "--bind-to none sh -c \"[ \\$OMPI_COMM_WORLD_RANK = 0 ] && "
                             "export GOMP_SPINCOUNT=1000; exec $L train $C train.out=sleepy "
                             "parallel.dp=2 train.steps=1 parallel.threads=%d\"",
             (int)ls_max(ls_device_cores_online(), 2));
    expect(line, 0, "step 1/1");
    if (!strstr(output, "GOMP_SPINCOUNT")) {
        print_message("skipped: another OpenMP than libgomp\n");
        skip();
    }
    const char *sleeps = strstr(output, SLEEPS), *chosen = strstr(output, "SPINCOUNT = '1000'");
    if (!sleeps || strstr(sleeps + 1, SLEEPS) || !chosen ||
        strstr(chosen + 1, "SPINCOUNT = '1000'"))
        fail_msg("%s\nprinted:\n%s", line, output);
}

/* The same words from one rank and from two processes, which a launcher may give a terminal. */
static void same_under_mpi(const char *command, const char *keys)
{
    char line[512];
    snprintf(line, sizeof line,
             "$L %s > one && " MPIRUN "sh -c \"$L %s %s | cat\" > two && cmp one two", command,
             command, keys);
    expect(line, 0, "");
}

CASE(test_mpi_evaluates_and_generates)
{
    mpi_or_skip();
    expect("$L train $C train.out=told train.steps=4", 0, "");
    same_under_mpi("eval told --samples 5 --threads 1", "parallel.tp=2");
    if (check_all())
        same_under_mpi("eval told --samples 5 --threads 1", "parallel.dp=2");
    same_under_mpi("generate told --tokens 40 --threads 1", "parallel.tp=2");
    expect(MPIRUN "$L eval told --threads 1", ls_exit_code(LS_ELAYOUT), "2 were started");
}

/* ---- what is refused ------------------------------------------------------------------------- */

/* A run that is refused before anything is written. */
static void refuse(const char *keys, int code, const char *words)
{
    char line[1024];
    snprintf(line, sizeof line, "$L train $C train.out=refused train.steps=4 %s", keys);
    expect(line, code, words);
    if (exists("refused"))
        fail_msg("%s: refused, but a run directory was made", keys);
}

CASE(test_refusals_leave_nothing)
{
    int config = ls_exit_code(LS_ECONFIG);
    refuse("batch.global=0", config, "batch.global = 0");
    refuse("train.steps=soon", config, "train.steps = soon");
    refuse("optim.lr=1e30", config, "optim.lr = 1e30");
    refuse("numerics.arithmetic=bf16_pairs", config, "numerics.arithmetic = bf16_pairs");
    refuse("model.heads=8", config, "heads would be 4 wide: expected a multiple of 8");
    refuse("model.vocab=100", config, "at least the tokenizer's 257 tokens");
    refuse("parallel.dp=3", ls_exit_code(LS_ELAYOUT), "the nearest that works is parallel.dp = ");
#if defined(LS_WITH_MPI)
    refuse("comm.transport=mpi parallel.dp=2", ls_exit_code(LS_ELAYOUT),
           "needs 2 ranks, but 1 was started");
#else
    refuse("comm.transport=mpi", ls_exit_code(LS_ENOTSUP), "MPI");
#endif
    refuse("data.train=nowhere", ls_exit_code(LS_EIO), "nowhere");
    refuse("data.valid=nowhere", ls_exit_code(LS_EIO), "nowhere");
}

CASE(test_an_older_run_is_not_overwritten)
{
    expect("$L train $C train.out=older train.steps=2", 0, "hash");
    expect("$L train $C train.out=older train.steps=2", ls_exit_code(LS_ECONFIG),
           "train.resume=auto");
    assert_int_equal(matches("older/checkpoints/*"), 1);
}

/* Another store by the name of the corpus. */
static void other_make(void)
{
    expect("mkdir -p other && cp corpus.tokenizer other && for e in bin idx sums; do "
           "cp corpus_valid.$e other/corpus_train.$e; done",
           0, "");
}

/* Of a start that is refused nothing stays but that it was one. */
CASE(test_a_refused_start_changes_nothing)
{
    static const struct {
        const char *keys, *says;
        enum ls_status status;
    } starts[] = {
        {"train.resume=intact/checkpoints/step-00000004 data.train=other/corpus_train",
         "corpus_train has other tokens, masks or weights than the run was trained on", LS_EDATA},
        {"train.resume=auto train.extend=2 data.train=other/corpus_train",
         "corpus_train has other tokens, masks or weights than the run was trained on", LS_EDATA},
        {"train.resume=intact/checkpoints/step-00000002 train.plan=nosuch.yaml",
         "train.plan: cluster: nosuch.yaml", LS_EIO},
        {"train.resume=foreign/checkpoints/step-00000004 model.seed=7",
         "train.out = \"intact\": this run has done other steps than foreign/checkpoints/step-0000",
         LS_ECONFIG},
        {"train.resume=foreign train.steps=8 model.seed=7",
         "this run has done other steps than foreign/checkpoints/step-00000008", LS_ECONFIG}};
    other_make();
    expect("$L train $C train.out=foreign train.steps=8 train.save_every=4 train.keep=9 "
           "model.seed=7",
           0, "hash");
    expect("$L train $C train.out=intact train.steps=6 train.save_every=2 train.keep=9 && "
           "cp -r intact before",
           0, "hash");
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        char line[512];
        snprintf(line, sizeof line, "$L train $C train.out=intact train.steps=6 %s",
                 starts[i].keys);
        expect(line, ls_exit_code(starts[i].status), starts[i].says);
        expect("diff -r --exclude=start --exclude=lock before intact", 0, "");
    }
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

CASE(test_damaged_checkpoints)
{
    expect("$L train $C train.out=sound train.steps=6", 0, "hash");
    expect("$L train $C train.out=torn train.steps=4 train.save_every=2", 0, "hash");
    assert_int_equal(matches("torn/checkpoints/step-0000000[24]"), 2);
    assert_int_equal(shell("truncate -s -1000 torn/checkpoints/step-00000004/$M"), 0);
    expect("$L train $C train.out=torn train.steps=6 train.resume=auto", 0,
           "going on after step 2");
    expect_same_run("sound", "torn");
    assert_int_equal(
        shell("for file in torn/checkpoints/*/*.safetensors; do truncate -s 100 $file; done"), 0);
    expect("$L train $C train.out=torn train.steps=8 train.resume=auto", ls_exit_code(LS_ECKPT),
           "step-00000006");
    expect("$L eval torn", ls_exit_code(LS_ECKPT), "step-00000006");
}

static void expect_arithmetic(const char *run, const char *want)
{
    char line[256], words[64];
    snprintf(line, sizeof line, "grep 'arithmetic: ' %s/config.yaml", run);
    snprintf(words, sizeof words, "arithmetic: %s\n", want);
    expect(line, 0, words);
}

/* Goes on without a warning, to that step. */
static void go_on(const char *run, const char *before, const char *keys, int step)
{
    char line[512];
    snprintf(line, sizeof line,
             "%s $L train $C $B train.out=%s train.resume=auto train.steps=%d %s", before, run,
             step, keys);
    expect(line, 0, "going on after step ");
    if (strstr(output, "warning"))
        fail_msg("%s\nprinted:\n%s", line, output);
}

/* LOCKSTEP_ISA is a machine that has no more: it chooses fma. Where there is more, and on whatever
 * instruction set, the run goes on in that. */
CASE(test_the_arithmetic_is_kept)
{
    setenv("B", "numerics.precision=bf16", 1);
    expect("export LOCKSTEP_ISA=plain; $L train $C $B train.out=begun train.steps=2", 0, "hash");
    expect_arithmetic("begun", "fma");
    go_on("begun", "", "", 3);
    expect_arithmetic("begun", "fma");
    go_on("begun", "", "numerics.isa=plain", 4);
    go_on("begun", "", "numerics.arithmetic=fma parallel.dp=2 batch.micro=1", 5);
    expect("$L train $C $B train.out=whole-fma train.steps=5 numerics.arithmetic=fma", 0, "hash");
    expect_same_run("begun", "whole-fma");
    expect("$L train $C $B train.out=begun train.steps=6 train.resume=auto "
           "numerics.arithmetic=bf16_pairs",
           ls_exit_code(LS_ECKPT), "numerics.arithmetic: bf16_pairs here, fma there");
    expect("$L train $C $B train.out=other train.steps=6 "
           "train.resume=begun/checkpoints/step-00000004",
           0, "going on after step 4");
    expect_arithmetic("other", "fma");
}

/* The same from a machine that chose pairs to one that would not. */
CASE(test_pairs_are_kept)
{
    setenv("B", "numerics.precision=bf16", 1);
    expect("$L train $C $B train.out=pairs train.steps=2 numerics.arithmetic=bf16_pairs", 0,
           "hash");
    go_on("pairs", "LOCKSTEP_ISA=plain", "", 4);
    expect_arithmetic("pairs", "bf16_pairs");
    expect("$L train $C $B train.out=whole-pairs train.steps=4 numerics.arithmetic=bf16_pairs", 0,
           "hash");
    expect_same_run("pairs", "whole-pairs");
    expect("$L eval pairs", 0, "nats per token");
    expect("$L verify pairs/config.yaml --layouts 2 --ranks 2 --steps 1", 0, "1 hash");
}

/* As a run leaves it that was killed before its first checkpoint. */
CASE(test_a_start_without_a_checkpoint_keeps_its_arithmetic)
{
    setenv("B", "numerics.precision=bf16 train.out=killed train.steps=1", 1);
    expect("$L train $C $B numerics.arithmetic=bf16_pairs", 0, "hash");
    assert_int_equal(shell("rm -r killed/checkpoints"), 0);
    expect("export LOCKSTEP_ISA=plain; $L train $C $B train.resume=auto", 0, "step 1/1");
    expect_arithmetic("killed", "bf16_pairs");
    assert_int_equal(shell("rm -r killed/checkpoints"), 0);
    expect("export LOCKSTEP_ISA=plain; $L train $C $B", 0, "step 1/1");
    expect_arithmetic("killed", "fma");
}

/* A run goes back: no later start takes a checkpoint of the steps that it left, nor a copy. */
CASE(test_it_goes_back)
{
    static const char *const modes[] = {"",
                                        "async.mode=diloco async.workers=2 async.sync_every=2 "};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        setenv("B", modes[i], 1);
        expect("rm -rf back also; $L train $C $B train.out=back train.steps=6 train.save_every=2 "
               "train.keep=9 checkpoint.also=also && cp -r back straight",
               0, "hash");
        expect("$L launch --ranks 1 $C $B train.out=back train.steps=6 "
               "train.resume=straight/../back/checkpoints/step-00000002",
               2, "back/checkpoints/step-00000006, from which a job goes on");
        expect("$L train $C $B train.out=back train.steps=4 train.save_every=2 train.keep=9 "
               "train.resume=back/checkpoints/step-00000002 checkpoint.also=also",
               0, "2 checkpoints of steps behind 2 set aside");
        expect("for d in back also; do find $d -name 'step-*0[46]*' | sort; done", 0,
               *modes[i] ? "back/checkpoints/step-00000004\n"
                           "back/checkpoints/step-00000004.old\n"
                           "back/checkpoints/step-00000006.old\n"
                           "back/workers/0000/checkpoints/step-00000004\n"
                         : "back/checkpoints/step-00000004\n"
                           "back/checkpoints/step-00000004.old\n"
                           "back/checkpoints/step-00000006.old\n"
                           "also/step-00000004\n");
        assert_null(strstr(output, "step-00000006\n"));
        expect("$L train $C $B train.out=back train.steps=6 train.save_every=2 train.resume=auto "
               "train.keep=9 checkpoint.also=also && $L diff straight back",
               0, "(step 4)");
        expect("for s in 1 2 3 4 5 6; do grep -c \"\\\"step\\\": $s, .*loss_bits\" "
               "back/metrics.jsonl; done | tr -d '\n'; rm -r straight",
               0, "111111");
    }
}

/* In a folder of its own too a run goes on with the data that its checkpoint was trained on. */
CASE(test_it_goes_on_elsewhere_with_its_data)
{
    static const char *const resumes[] = {"train.resume=", "train.resume=auto train.resume_else="};
    other_make();
    expect("$L train $C train.out=source train.steps=4 train.save_every=2 train.keep=9", 0, "hash");
    for (size_t i = 0; i < sizeof resumes / sizeof *resumes; i++) {
        char line[512];
        const char *put = "rm -rf there && $L train $C train.out=there train.steps=4 "
                          "%ssource/checkpoints/step-00000002 data.train=other/corpus_train %s";
        snprintf(line, sizeof line, put, resumes[i], "");
        expect(line, ls_exit_code(LS_EDATA),
               "corpus_train has other tokens, masks or weights than the run was trained on");
        assert_false(exists("there/checkpoints"));
        snprintf(line, sizeof line, put, resumes[i], "data.changed=true");
        expect(line, 0, "hash");
        expect("$L train there/config.yaml train.steps=5 train.resume=auto", 0, "step 5/5");
    }
    expect("mkdir -p by/itself && cp -r source/checkpoints/step-00000002 by/itself && $L train $C "
           "train.out=past train.steps=4 train.resume=by/itself/step-00000002 "
           "data.train=other/corpus_train",
           0, "hash");
    expect("echo '[]' >source/metrics.jsonl && $L train $C train.out=torn-past train.steps=4 "
           "train.resume=source/checkpoints/step-00000002",
           0, "whether the data are those that");
}

/* Its own checkpoints may lie elsewhere, and a run that began from another one's may do so again.
 */
CASE(test_it_goes_back_to_what_it_was)
{
    expect("$L train $C train.out=moved train.steps=4 train.save_every=2 train.keep=9 && "
           "cp -r moved/checkpoints/step-00000002 stored && "
           "$L train $C train.out=moved train.steps=4 train.resume=stored",
           0, "1 checkpoint of steps behind 2 set aside");
    for (int i = 0; i < 2; i++)
        expect("$L train $C train.out=branch train.steps=4 train.save_every=1 "
               "train.resume=moved/checkpoints/step-00000002",
               0, "going on from moved/checkpoints/step-00000002");
}

/* A run begins from another's checkpoint once, and then goes on from its own. */
CASE(test_it_begins_from_another)
{
    expect("$L train $C train.out=origin train.steps=6 train.save_every=2 train.keep=9", 0, "hash");
    expect("$L train $C train.out=warm train.resume=auto train.save_every=4 train.steps=4 "
           "train.resume_else=origin/checkpoints/step-00000002",
           0, "going on from origin/checkpoints/step-00000002");
    expect("$L train $C train.out=warm train.resume=auto train.save_every=4 train.steps=6 "
           "train.resume_else=origin/checkpoints/step-00000002",
           0, "going on from warm/checkpoints/step-00000004");
    expect("grep -h '\"step\": 6' origin/metrics.jsonl warm/metrics.jsonl | grep -o 'hash[^,]*' | "
           "uniq | wc -l | grep -x 1",
           0, "1");
    expect("$L train $C train.out=cold train.resume=auto train.resume_else=nowhere", 16,
           "train.resume_else");
    /* A run stands for its newest checkpoint, as it was when this one began. */
    expect("$L train $C train.out=after train.resume=origin/ train.steps=7", 0,
           "going on from origin/checkpoints/step-00000006 (step 6)");
    expect("grep 'resume: ' after/config.yaml", 0, "origin/checkpoints/step-00000006");
    expect("$L train $C train.out=later train.resume=auto train.resume_else=origin train.steps=7",
           0, "going on from origin/checkpoints/step-00000006 (step 6)");
    /* If no step is left to do it has that checkpoint, as after steps of its own. */
    expect("$L train $C train.out=ended train.resume=origin train.steps=6", 0,
           "saved ended/checkpoints/step-00000006\nnothing is left to do");
    expect("$L ckpt inspect ended | grep hash >ended.txt && $L ckpt inspect origin | grep hash | "
           "diff - ended.txt",
           0, "");
    expect("$L status ended", 0, "step        6 of 6");
    expect("$L train $C train.out=ended train.resume=origin train.steps=6", 0,
           "nothing is left"); /* again */
    expect("$L train $C train.out=ended train.resume=auto train.steps=6", 0,
           "saved ended/checkpoints/step-00000006");
    expect("mkdir begun-only && touch begun-only/config.yaml && $L train $C train.out=none "
           "train.resume=begun-only",
           ls_exit_code(LS_ECKPT), "train.resume: begun-only holds no checkpoint: train it first");
}

CASE(test_the_fall_back_is_a_warning)
{
    expect("$L train $C train.out=warned train.steps=2 train.save_every=1", 0, "hash");
    assert_int_equal(shell("truncate -s 10 warned/checkpoints/step-00000002/manifest.json"), 0);
    expect("$L train $C train.out=warned train.steps=3 train.resume=auto", 0, "warning: ");
    assert_non_null(strstr(output, "step-00000002"));
}

/* ---- the machine and the numbers ------------------------------------------------------------- */

CASE(test_a_place_that_cannot_be_written)
{
    expect("$L train $C train.out=/proc/nowhere/run train.steps=2", ls_exit_code(LS_EIO),
           "/proc/nowhere");
}

CASE(test_a_full_disk)
{
    if (shell("mkdir -p disk && unshare -m sh -c 'mount -t tmpfs -o size=200k none disk'")) {
        print_message("skipped: no small file system can be mounted here\n");
        skip();
    }
    char line[1024];
    snprintf(line, sizeof line,
             "unshare -m sh -c \"mount -t tmpfs -o size=200k none disk && $L train $C "
             "train.out=disk/run train.steps=2; code=\\$?; ls disk/run/checkpoints | wc -l; "
             "exit \\$code\"");
    expect(line, ls_exit_code(LS_ENOSPC), "No space left on device");
    assert_non_null(strstr(output, "\n0\n"));
}

/* A learning rate and a decay that throw the parameters out of float32's range in a few steps. */
CASE(test_a_loss_that_is_not_finite)
{
    static const char wild[] = "optim.lr=1 optim.weight_decay=10 train.steps=40 ";
    char line[512];
    snprintf(line, sizeof line, "$L train $C train.out=wild train.save_every=2 %s", wild);
    expect(line, ls_exit_code(LS_ENUMERIC), "the loss is ");
    struct metrics *metrics = metrics_read("wild");
    char words[128];
    snprintf(words, sizeof words, "step %ld: the loss is ", (long)metrics->steps + 1);
    assert_non_null(strstr(output, words));
    snprintf(words, sizeof words, "wild/checkpoints/step-%08ld", (long)(metrics->steps / 2 * 2));
    if (!strstr(output, words) || !exists(words))
        fail_msg("%s is not the last good checkpoint:\n%s", words, output);
    free(metrics);
    /* That of another run, until there is one of its own. */
    snprintf(line, sizeof line, "$L train $C train.out=wilder train.resume=%s %s", words, wild);
    expect(line, ls_exit_code(LS_ENUMERIC), "The last good checkpoint is wild/checkpoints/step-");
    assert_non_null(strstr(output, words));
    snprintf(line, sizeof line, "$L train $C train.out=passed train.on_nonfinite=skip %s", wild);
    expect(line, 0, "was skipped: it is not finite");
    metrics = metrics_read("passed");
    assert_int_equal(metrics->steps, 40);
    free(metrics);
}

/* The machine's rate, of which a step has a share: measured, or what the environment says. */
CASE(test_the_rate_is_measured_or_given)
{
    expect("LOCKSTEP_PEAK_FLOPS= $L train $C train.out=measured train.steps=1 "
           "numerics.precision=bf16",
           0, "hash ");
    expect("grep -o '\"peak_flops\": [1-9]' measured/metrics.jsonl", 0, "peak_flops");
    expect("LOCKSTEP_PEAK_FLOPS=2.5e10 $L train $C train.out=given train.steps=1", 0, "hash ");
    /* A run that goes on takes what it measured before, of the same threads alone. */
    expect("cp -r measured again && sed -i 's/\"peak_flops\": [0-9.e+]*/\"peak_flops\": "
           "7000000000000000/' "
           "again/metrics.jsonl && cp -r again of_two && sed -i 's/\"peak_of\": \"/&two /' "
           "of_two/metrics.jsonl && export LOCKSTEP_PEAK_FLOPS= && for run in again of_two; do "
           "$L train $C train.out=$run train.steps=1 train.extend=1 train.resume=auto "
           "numerics.precision=bf16 || exit 1; "
           "done",
           0, "hash ");
    expect("grep -c '\"peak_flops\": 7000000000000000' again/metrics.jsonl", 0, "2");
    expect("grep -c '\"peak_flops\": 7000000000000000' of_two/metrics.jsonl", 0, "1");
    expect("grep -o '\"peak_flops\": 25000000000}' given/metrics.jsonl", 0, "peak_flops");
    static const char *const wrong[] = {"fast", "-1", "0", "inf", "2e11x"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char line[160];
        snprintf(line, sizeof line,
                 "LOCKSTEP_PEAK_FLOPS=%s $L train $C train.out=bad train.steps=1", wrong[i]);
        expect(line, ls_exit_code(LS_ECONFIG), "expected the rate of this machine in FLOP/s");
    }
}

SUITE_MAIN(corpus_setup, scratch_teardown)
