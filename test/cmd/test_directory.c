/* A run's directory: one writer at a time; it may be moved, says what it goes on from, and keeps
 * the first and the best checkpoint. */
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
#include <sys/wait.h>
#include <unistd.h>

/* ---- one writer ------------------------------------------------------------------------------ */

/* Until the shell line succeeds. */
static void wait_for(const char *line)
{
    while (shell(line))
        await_pause();
}

/* Starts a run, and waits for its first records. */
static pid_t run_begin(const char *out, const char *keys)
{
    char metrics[128];
    pid_t child = run_start(out, keys);
    snprintf(metrics, sizeof metrics, "test $(wc -l < %s/metrics.jsonl || echo 0) -gt 3", out);
    wait_for(metrics);
    return child;
}

static void run_end(pid_t child, int signal)
{
    assert_int_equal(kill(child, signal), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void check_second_writer(const char *out, const char *keys)
{
    char line[512], who[64];
    pid_t child = run_begin(out, keys);
    snprintf(who, sizeof who, "process %ld on ", (long)child);
    snprintf(line, sizeof line, "$L train $C train.out=%s train.steps=5 train.resume=auto", out);
    expect(line, ls_exit_code(LS_EBUSY), who);
    assert_non_null(strstr(output, "train.out: "));
    snprintf(line, sizeof line, "$L train $C train.out=%s train.steps=5", out);
    expect(line, ls_exit_code(LS_EBUSY), who);
    /* Readers work beside it. */
    snprintf(line, sizeof line, "$L plot %s", out);
    expect(line, 0, "loss.svg");
    snprintf(line, sizeof line, "ls %s/checkpoints | grep -v tmp", out);
    wait_for(line);
    snprintf(line, sizeof line, "$L eval %s --samples 4", out);
    expect(line, 0, "nats per token");
    run_end(child, SIGKILL);
    /* Killed, it is no obstacle, and nothing that the second one did is in its records. */
    snprintf(line, sizeof line,
             "$L train $C train.out=%s train.resume=auto train.steps=$(ls %s/checkpoints | sed "
             "'s/step-0*//' | sort -n | tail -1 | awk '{print $1 + 3}')",
             out, out);
    expect(line, 0, who);
    free(metrics_read(out));
}

CASE(test_a_second_writer_is_refused)
{
    if (check_all())
        check_second_writer("busy", "train.save_every=3");
    check_second_writer("busy-threads", "train.save_every=3 parallel.dp=2 batch.micro=1");
}

/* Started in the same instant, one goes on; its records are those of a run that was alone. */
CASE(test_two_at_once)
{
    expect("$L train $C train.out=alone train.steps=4", 0, "hash");
    for (int round = 0; round < 3; round++) {
        char line[512];
        snprintf(
            line, sizeof line,
            "for i in 1 2 3 4; do { $L train $C train.out=race%d train.steps=4 > race$i.log "
            "2>&1; echo $? > race$i.code; } & done; wait; cat race?.code | sort | tr '\\n' ' '",
            round);
        assert_int_equal(shell(line), 0);
        /* The others meet the lock (23), or come late to a finished run (2). */
        if (strncmp(output, "0 ", 2) || strstr(output, "0 0"))
            fail_msg("exit codes: %s", output);
        for (const char *code = output + 2; *code; code++)
            assert_non_null(strchr("23 ", *code));
        snprintf(line, sizeof line, "race%d", round);
        expect_same_run("alone", line);
        snprintf(line, sizeof line, "race%d/lock", round);
        assert_false(exists(line));
    }
}

CASE(test_processes_hold_it_too)
{
    mpi_or_skip();
    pid_t child = run_begin("busy-mpi", "");
    expect(MPIRUN "$L train $C train.out=busy-mpi parallel.dp=2 train.steps=4",
           ls_exit_code(LS_EBUSY), "is held by process ");
    run_end(child, SIGTERM);
    expect(
        "{ " MPIRUN "$L train $C train.out=busy-mpi parallel.dp=2 train.steps=1000000000 "
        "train.resume=auto > /dev/null 2>&1 & "
        "until test -s busy-mpi/lock; do kill -0 $! || { cat full.log; exit 9; }; sleep 0.1; done; "
        "$L train $C train.out=busy-mpi train.resume=auto train.steps=1000000000; code=$?; "
        "kill -TERM $!; wait; exit $code; }",
        ls_exit_code(LS_EBUSY), "is held by process ");
}

/* ---- moved ----------------------------------------------------------------------------------- */

/* A folder's name may hold what parts a list elsewhere in a configuration. */
CASE(test_names_with_commas)
{
    expect("mkdir -p Q && $L train $C train.out=Q/plain train.steps=6", 0, "hash");
    expect("$L train $C train.out=Q/a,b train.steps=3", 0, "hash");
    expect("$L train Q/a,b/config.yaml train.resume=auto train.steps=4", 0,
           "saved Q/a,b/checkpoints/step-00000004");
    /* From another folder, and after all was moved together. */
    expect("cd / && $L train $OLDPWD/Q/a,b/config.yaml train.resume=auto train.steps=5", 0,
           "/Q/a,b/checkpoints/step-00000005");
    expect("mkdir -p T/Q && cp corpus_* T && mv Q/a,b T/Q/c,d && mkdir gone && mv corpus_* gone", 0,
           "");
    expect("cd T/Q && $L train c,d/config.yaml train.resume=auto train.steps=6", 0,
           "saved c,d/checkpoints/step-00000006");
    expect("mv gone/corpus_* . && rmdir gone && ls Q", 0, "plain");
    assert_string_equal(output, "plain\n");
    expect_same_run("Q/plain", "T/Q/c,d");
    /* Moved alone, from beside its data: their whole path parts a list, which is said. */
    expect("mkdir -p d,e M && cp corpus* d,e && cd d,e && $L train $C train.out=r train.steps=2", 0,
           "hash");
    expect("mv d,e/r M && $L eval M/r", 2, "/d,e/corpus_valid: the comma in its name");
    expect("$L train M/r/config.yaml train.resume=auto train.steps=3", 2,
           "/d,e/corpus_train: the comma in its name");
    expect("ln -s d,e l && $L train M/r/config.yaml train.resume=auto train.steps=3 "
           "data.train=l/corpus_train data.valid=l/corpus_valid",
           0, "hash");
}

/* Renamed, under another path, from another current folder: it goes on, evaluates and speaks; its
 * data is found where it was. */
CASE(test_a_run_is_moved)
{
    expect("$L train $C train.out=straight train.steps=9", 0, "hash");
    expect("$L train $C train.out=moving train.steps=3", 0, "hash");
    expect("mkdir -p far/away && mv moving far/away/moved", 0, "");
    expect("cd far && $L train away/moved/config.yaml train.steps=6 train.resume=auto", 0,
           "saved away/moved/checkpoints/step-00000006");
    expect("cd far/away/moved && $L train config.yaml train.steps=9 train.resume=auto", 0,
           "saved ./checkpoints/step-00000009");
    expect_same_run("straight", "far/away/moved");
    expect("cd / && $L eval $OLDPWD/far/away/moved", 0, "step 9 ");
    expect("cd / && $L generate $OLDPWD/far/away/moved --prompt 'in the' --tokens 5", 0, "in the");
    expect("cd far && $L diff away/moved ../straight", 0, "equal up to step 9");
    assert_false(exists("moving"));
}

static void expect_end(pid_t child, int code, const char *log, const char *words)
{
    int status;
    char line[128];
    assert_int_equal(waitpid(child, &status, 0), child);
    snprintf(line, sizeof line, "cat %s", log);
    expect(line, 0, words);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != code)
        fail_msg("ended with %#x, expected code %d:\n%s", status, code, output);
}

/* While it runs: it follows, saves there and ends. Nothing is made under the old name. */
CASE(test_a_run_is_moved_while_it_runs)
{
    pid_t child = run_begin("wander", "train.save_every=50 log.trace=true parallel.dp=2");
    expect("mkdir inn && mv wander inn/wanderer", 0, "");
    expect_end(child, ls_exit_code(LS_EIO), "wander.log", "is saved in ");
    assert_non_null(strstr(output, "wander was moved while the run writes to it, and is now "));
    assert_non_null(strstr(output, "inn/wanderer train.resume=auto"));
    assert_false(exists("wander"));
    assert_false(exists("inn/wanderer/lock"));
    assert_int_equal(matches("inn/wanderer/trace/rank-*.json"), 2);
    expect("$L train inn/wanderer/config.yaml train.resume=auto train.steps=1", 0,
           "nothing is left to do");
}

CASE(test_a_run_is_removed_while_it_runs)
{
    pid_t child = run_begin("erased", "");
    assert_int_equal(kill(child, SIGSTOP), 0);
    assert_true(await_stopped(child));
    expect("rm -r erased", 0, "");
    assert_int_equal(kill(child, SIGCONT), 0);
    expect_end(child, ls_exit_code(LS_EIO), "erased.log", "erased was removed while the run wrote");
    assert_false(exists("erased"));
}

/* With its data, to a place from which the old one is not seen. */
CASE(test_a_run_is_moved_with_its_data)
{
    expect("mkdir -p tree/data && cp corpus.* corpus_* tree/data && cd tree && "
           "$L train $C data.train=data/corpus_train data.valid=data/corpus_valid train.out=runs/a "
           "train.steps=2",
           0, "hash");
    expect("mv tree other && $L eval other/runs/a && cd other/runs && "
           "$L train a/config.yaml train.steps=4 train.resume=auto",
           0, "step 4  saved a/checkpoints");
    expect("rm other/data/corpus_valid.*; $L eval other/runs/a", ls_exit_code(LS_EIO),
           "data.valid: ");
    assert_non_null(strstr(output, "lockstep eval other/runs/a DATA"));
    expect("$L eval other/runs/a corpus_valid", 0, "step 4 ");
    expect("rm -r other/data; $L generate other/runs/a --prompt sum, --tokens 5", 0, "sum,");
    expect("$L eval other/runs/a corpus_valid", 0, "step 4 ");
}

/* The tokenizer's files lie in the run, and are known again. */
CASE(test_the_tokenizer_lies_in_the_run)
{
    expect("mkdir tok && cp $G/vocab.json $G/merges.txt tok && $L data prepare --input book.txt "
           "--output words --tokenizer tok --workers 1 && $L train $C data.train=words_train "
           "data.valid=words_valid train.out=spelled train.steps=3",
           0, "hash");
    expect("cp -r tok tok2 && mv tok gone && mv spelled spelt && rm words.tokenizer && "
           "$L generate spelt --prompt 'in the' --tokens 5",
           0, "in the");
    expect("$L eval spelt", 0, "bits per byte");
    expect("$L train spelt/config.yaml train.steps=5 train.resume=auto", 0, "saved spelt/");
    expect("$L generate spelt --prompt 'in the' --tokens 5", 0, "in the");
    expect("echo >> tok2/merges.txt; $L train spelt/config.yaml data.tokenizer=tok2 train.steps=7 "
           "train.resume=auto",
           ls_exit_code(LS_ECONFIG), "is not the tokenizer that this run began with");
    expect("$L train spelt/config.yaml data.tokenizer=tok2 train.steps=5 "
           "train.resume=spelt/checkpoints/step-00000003",
           ls_exit_code(LS_ECONFIG), "is not the tokenizer that this run began with");
    expect("ls spelt/checkpoints", 0, "step-00000003\nstep-00000005\n");
    expect("echo >> spelt/tokenizer/merges.txt; $L generate spelt --tokens 5",
           ls_exit_code(LS_EDATA), "spelt/tokenizer");
}

CASE(test_all_templates_lie_in_the_run)
{
    expect("$L data train-tokenizer --input book.txt --vocab 300 --output talk/ && "
           "mkdir talk/additional_chat_templates && echo '{{ messages[0].content }}' > "
           "talk/chat_template.jinja && echo 'seven{{ messages[0].content }}' > "
           "talk/additional_chat_templates/tool_use.jinja && echo '{{ 5 * 5 }}' > "
           "'talk/additional_chat_templates/rag é.jinja' && $L data prepare --input book.txt "
           "--output talk/of --tokenizer talk --workers 1 && $L train $C data.train=talk/of_train "
           "data.valid=talk/of_valid train.out=talks train.steps=1",
           0, "hash");
    expect("$L train $C data.train=corpus_train data.valid=talk/of_valid train.steps=1",
           ls_exit_code(LS_EDATA), "command line: data.valid: talk/of_valid: its tokenizer is");
    expect("rm -r talk && echo '{\"messages\": [{\"role\": \"user\", \"content\": \"~\"}], "
           "\"tools\": []}' > told.jsonl && $L generate talks --chat --prompts told.jsonl",
           0, "\"prompt_tokens\":6,");
    expect("$L generate talks --chat --prompts told.jsonl --chat-template "
           "'talks/tokenizer/additional_chat_templates/rag é.jinja'",
           0, "\"prompt_tokens\":2,");
    expect("echo >> 'talks/tokenizer/additional_chat_templates/rag é.jinja' && "
           "$L generate talks --chat --prompts told.jsonl",
           ls_exit_code(LS_EDATA), "talks/tokenizer: the files are not those");
}

/* Its files' names are parted by a comma, and their folder may have one too. */
CASE(test_a_tokenizer_and_a_comma)
{
    expect("mkdir x,y && cp $G/vocab.json $G/merges.txt x,y && $L data prepare --input book.txt "
           "--output parts --tokenizer x,y/vocab.json,x,y/merges.txt --workers 1 && "
           "$L train $C data.train=parts_train data.valid=parts_valid train.out=a,b train.steps=2",
           0, "hash");
    expect("$L train a,b/config.yaml train.steps=3 train.resume=auto", 0,
           "saved a,b/checkpoints/step-00000003");
    expect("$L generate a,b --prompt 'in the' --tokens 5", 0, "in the");
    expect("$L data prepare --input book.txt --output none --tokenizer x,y/none,x,y/merges.txt",
           ls_exit_code(LS_EIO), "tokenizer \"x,y/none,x,y/merges.txt\": vocabulary x: No such");
}

/* ---- what it goes on from -------------------------------------------------------------------- */

CASE(test_it_says_what_it_found)
{
    expect("$L train $C train.out=found train.steps=2 train.resume=auto", 0,
           "no checkpoint in found/checkpoints, starting at step 1");
    expect("$L train $C train.out=found train.steps=4 train.resume=auto", 0,
           "going on from found/checkpoints/step-00000002 (step 2)");
    /* Records without a checkpoint, as of a run that was killed early, are not thrown away. */
    expect("rm -r found/checkpoints; cp found/metrics.jsonl before; $L train $C train.out=found "
           "train.steps=1 train.resume=auto",
           0, "starts at step 1, and the old records are now found/metrics.jsonl.1");
    expect("cmp before found/metrics.jsonl.1 && grep -c loss_bits found/metrics.jsonl", 0, "1\n");
}

/* Whatever the directory is called, a run is not started over an older one. */
CASE(test_an_older_run_is_not_overwritten)
{
    static const char *const outs[] = {"older", "older[1]", "older*{a,b}?"};
    for (size_t i = 0; i < sizeof outs / sizeof *outs; i++) {
        char line[512];
        snprintf(line, sizeof line, "$L train $C 'train.out=%s' train.steps=1", outs[i]);
        expect(line, 0, "hash");
        expect(line, ls_exit_code(LS_ECONFIG), "this run already holds checkpoints");
        snprintf(line, sizeof line,
                 "echo damaged > '%s/checkpoints/step-00000001/manifest.json'; $L train $C "
                 "'train.out=%s' train.steps=1",
                 outs[i], outs[i]);
        expect(line, ls_exit_code(LS_ECONFIG), "this run already holds checkpoints");
    }
}

/* The recipe is often called config.yaml, and lies where its owner works. */
CASE(test_the_recipe_is_not_overwritten)
{
    static const char *const resumes[] = {"never", "auto"};
    expect(
        "mkdir mine && echo 'train: {keep: 3}' > mine/config.yaml && cp mine/config.yaml kept.yaml",
        0, "");
    for (size_t i = 0; i < sizeof resumes / sizeof *resumes; i++) {
        char line[200];
        snprintf(line, sizeof line,
                 "$L train mine/config.yaml $C train.out=mine train.steps=1 train.resume=%s",
                 resumes[i]);
        expect(line, ls_exit_code(LS_ECONFIG), "a config.yaml that is of no run");
        expect("cmp kept.yaml mine/config.yaml && ls mine", 0, "config.yaml\n");
        assert_string_equal(output, "config.yaml\n");
    }
    static const char *const roots[] = {"/", "//", "/tmp/.."};
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
        char line[200];
        snprintf(line, sizeof line, "$L train $C train.out=%s train.steps=1", roots[i]);
        expect(line, ls_exit_code(LS_ECONFIG), "the root of the file system");
        snprintf(line, sizeof line, "$L launch --ranks 2 $C parallel.dp=2 train.out=%s", roots[i]);
        expect(line, ls_exit_code(LS_ECONFIG), "the root of the file system");
    }
    /* A run's own is replaced, also one that was killed before it wrote more. */
    expect("$L train $C train.out=slashed// train.steps=1", 0, " saved slashed/checkpoints/");
    expect("$L train $C train.out=again train.steps=1 && rm -r again/checkpoints again/metrics* && "
           "$L train $C train.out=again train.steps=1",
           0, "hash");
}

/* ---- longer, earlier, best ------------------------------------------------------------------- */

#define COSINE "$C optim.schedule=cosine "

/* A finished run goes on at its last rate: the bits of a run whose schedule was so from the start.
 */
CASE(test_a_finished_run_is_extended)
{
    expect("$L train " COSINE "train.out=longer train.steps=12 optim.decay_steps=8", 0, "hash");
    expect("$L train " COSINE "train.out=planned train.steps=8", 0, "step 8/8");
    expect("$L train " COSINE "train.out=planned train.steps=12 train.resume=auto",
           ls_exit_code(LS_ECKPT), "Set optim.decay_steps=8 ");
    assert_non_null(strstr(output, "leave train.steps at 8 and add train.extend"));
    expect("$L train " COSINE "train.out=planned train.steps=8 train.extend=2 train.resume=auto", 0,
           "step 10/10");
    /* Started again with the same keys, as a job that was stopped, it does not go on for ever. */
    expect("$L train " COSINE "train.out=planned train.steps=8 train.extend=2 train.resume=auto && "
           "ls planned/checkpoints",
           0, "step-00000010");
    expect("$L train planned/config.yaml train.extend=4 train.resume=auto", 0, "step 12/12");
    expect_same_run("longer", "planned");
    expect("$L train " COSINE "train.out=keyed train.steps=8", 0, "hash");
    expect("$L train " COSINE "train.out=keyed train.steps=12 optim.decay_steps=8 "
           "train.resume=auto",
           0, "step 12/12");
    expect_same_run("longer", "keyed");
}

CASE(test_the_initial_weights)
{
    expect("$L train " COSINE "train.out=all train.steps=4 train.save_first=true train.keep=9", 0,
           "step 0  saved all/checkpoints/step-00000000");
    expect("$L train " COSINE "train.out=only train.steps=0 eval.every=1", 0, "step 0  validation");
    expect("cmp all/checkpoints/step-00000000/$M only/checkpoints/step-00000000/$M && "
           "$L eval only --samples 4",
           0, "step 0 ");
    /* From them any schedule may begin. */
    expect("$L train " COSINE "train.out=only train.steps=4 train.resume=auto", 0,
           "going on from only/checkpoints/step-00000000 (step 0)");
    expect_same_run("all", "only");
    expect("$L train " COSINE "train.out=fast optim.lr=1e-3 train.steps=0 && $L train " COSINE
           "train.out=fast train.steps=4 train.resume=auto",
           ls_exit_code(LS_ECKPT), "optim.lr: 0.003 here, 0.001 there");
}

/* The step of the lowest validation loss in metrics.jsonl, up to a step. */
static long best_of(const char *run, long last)
{
    char line[512];
    snprintf(line, sizeof line,
             "sed -n 's/.*\"step\": \\([0-9]*\\).*validation_loss\": \\([0-9.]*\\).*/\\2 \\1/p' "
             "%s/metrics.jsonl | awk '$2 <= %ld' | sort -g | head -1 | cut -d' ' -f2",
             run, last);
    assert_int_equal(shell(line), 0);
    return atol(output);
}

/* The rate rises until the loss does. */
#define WILD                                                                                       \
    "$C optim.lr=2 optim.warmup_steps=20 eval.every=2 train.save_every=3 train.keep=1 "            \
    "train.keep_best=true parallel.dp=2 "

CASE(test_the_best_is_kept)
{
    char line[256];
    expect("$L train " WILD "train.out=best train.steps=20", 0, "hash");
    long step = best_of("best", 20);
    if (step <= 0 || step >= 20)
        fail_msg("best %ld of: %s", step, (shell("grep validation best/metrics.jsonl"), output));
    snprintf(line, sizeof line, "grep -q '\"step\": %ld,' best/checkpoints/best", step);
    expect(line, 0, "");
    assert_int_equal(matches("best/checkpoints/step-*"), 2);
    snprintf(line, sizeof line, "best/checkpoints/step-%08ld/manifest.json", step);
    assert_true(exists(line));
    /* Also through a resumption. */
    expect("$L train " WILD "train.out=halves train.steps=8", 0, "hash");
    expect("mv halves half; $L train half/config.yaml train.steps=20 train.resume=auto", 0, "hash");
    expect("cmp best/checkpoints/best half/checkpoints/best", 0, "");
    assert_int_equal(matches("half/checkpoints/step-*"), 2);
    expect_same_run("best", "half");
    /* It can be gone on from. */
    snprintf(line, sizeof line,
             "$L train " WILD "train.out=fork train.steps=%ld "
             "train.resume=half/checkpoints/best",
             step + 1);
    expect(line, 0, "hash");
    snprintf(line, sizeof line, "going on from half/checkpoints/step-%08ld", step);
    assert_non_null(strstr(output, line));
    expect("$L train $C train.keep_best=true train.out=none", ls_exit_code(LS_ECONFIG),
           "train.keep_best");
}

/* Killed between two writes: each state that a kill can leave is made by hand from a run that
 * ended, and going on gives what the whole run has. */
CASE(test_the_best_after_a_kill)
{
    char line[512];
    expect("$L train " WILD "train.out=killed train.steps=12 eval.every=3 train.keep=9", 0, "hash");
    long best = best_of("killed", 12);
    if (best < 3 || best >= 12)
        fail_msg("best %ld of: %s", best, (shell("grep validation killed/metrics.jsonl"), output));
    /* Saved and evaluated; the file still names another one. */
    snprintf(
        line, sizeof line,
        "cp -r killed stale && sed -i 's/\"step\": [0-9]*/\"step\": 12/' stale/checkpoints/best && "
        "$L train stale/config.yaml train.steps=13 train.keep=1 train.resume=auto && "
        "ls stale/checkpoints && cat stale/checkpoints/best");
    expect(line, 0, "hash");
    snprintf(line, sizeof line, "\"step\": %ld,", best);
    assert_non_null(strstr(output, line));
    snprintf(line, sizeof line, "step-%08ld\n", best);
    assert_non_null(strstr(output, line)); /* and was not pruned */
    /* The same without the file. */
    expect("cp -r killed none && rm none/checkpoints/best && "
           "$L train none/config.yaml train.steps=13 train.keep=1 train.resume=auto && "
           "cmp none/checkpoints/best killed/checkpoints/best",
           0, "hash");
    /* The last step is saved and not evaluated. */
    expect(
        "cp -r killed cut && sed -i '/\"step\": 12, .*validation_loss/,$d' cut/metrics.jsonl && "
        "! grep -q '\"step\": 12, .*validation' cut/metrics.jsonl && "
        "$L train cut/config.yaml train.resume=auto && "
        "for r in killed cut; do grep -o '\"validation_loss\": [^,]*' $r/metrics.jsonl > $r.said; "
        "done && cmp killed.said cut.said && grep -c . cut.said",
        0, "4\n");
    /* A run that goes on from another's checkpoint has not computed its step, and evaluates none.
     */
    expect("$L train " WILD "train.out=heir train.steps=12 train.extend=1 eval.every=3 "
           "train.resume=killed/checkpoints/step-00000012 && "
           "! grep -q '\"step\": 12, .*validation' heir/metrics.jsonl && "
           "grep -c '\"step\": 13, .*validation' heir/metrics.jsonl",
           0, "1\n");
}

/* ---- a full disk ----------------------------------------------------------------------------- */

/* The line runs with a file system of that many KiB at disk, which it alone sees. What it waits for
 * in full.log is its own: none is there before. */
static bool on_small_disk(int kib, const char *line, int code, const char *words)
{
    char command[4096];
    if (shell("mkdir -p disk && rm -f full.log && "
              "unshare -m sh -c 'mount -t tmpfs -o size=100k none disk'")) {
        print_message("skipped: no small file system can be mounted here (needs root)\n");
        return false;
    }
    scratch_write(at("small.sh"), line, strlen(line));
    snprintf(command, sizeof command,
             "export L C; unshare -m sh -c 'mount -t tmpfs -o size=%dk none disk && . ./small.sh'",
             kib);
    expect(command, code, words);
    return true;
}

#define AWAIT                                                                                      \
    "until_so() { until eval \"$1\"; do kill -0 $! || { tail full.log; exit 9; }; sleep 0.1; "     \
    "done; }\n"                                                                                    \
    "await() { until_so \"grep -qs '$1' full.log\"; }\n"                                           \
    "fill() { dd if=/dev/zero of=disk/ballast bs=4k 2> /dev/null; "                                \
    "dd if=/dev/zero of=disk/ballast bs=1 oflag=append conv=notrunc 2> /dev/null; }\n"

/* Fills the disk under a run, waits until that is said, and makes room again. */
#define FULL_AND_ROOM                                                                              \
    AWAIT                                                                                          \
    "await 'step 1/'; fill\n"                                                                      \
    "await 'without records in metrics.jsonl'\n"                                                   \
    "await 'without records in the TensorBoard events'\n"                                          \
    "await 'no checkpoint of step'\n"                                                              \
    "rm disk/ballast; await 'metrics.jsonl is written again'; await 'events is written again'\n"

CASE(test_records_on_a_full_disk)
{
    if (!on_small_disk(24000,
                       "$L train $C train.out=disk/run train.steps=1000000 train.save_every=20 "
                       "model.channels=64 batch.global=64 eval.every=10 eval.samples=1 > full.log "
                       "2>&1 &\n" FULL_AND_ROOM
                       "kill -TERM $!; wait $!; code=$?; cat full.log; cp -r disk/run kept; "
                       "exit $code\n",
                       ls_exit_code(LS_ESTOPPED), "stopped by a signal"))
        skip();
    /* Said once each time, if the run filled the disk anew too; and what is there is whole. */
    expect("grep -q 'without records in metrics.jsonl' full.log && "
           "! grep -o 'without records in metrics.jsonl\\|metrics.jsonl is written again' full.log "
           "| uniq -d | grep .",
           0, "");
    expect(
        "grep -q 'tries again when the next one is due' full.log && $L plot kept && $L eval kept "
        "--samples 4",
        0, "step ");
    expect("last=$(grep loss_bits kept/metrics.jsonl | tail -1 | sed 's/.*\"step\": //; s/,.*//'); "
           "count=$(grep -c loss_bits kept/metrics.jsonl); echo $count of $last; "
           "test $count -gt 3 && test $last -eq $count",
           0, " of ");
    expect("grep -q 'with the records that waited for it' kept/metrics.jsonl", 0, "");
    assert_int_equal(matches("kept/checkpoints/*.tmp"), 0);
}

/* A rank of a job is killed on a full disk: the next start goes on from memory, in other ranks than
 * have begun the run, and gets further each time, though that is not recorded. Once there is room,
 * the run has the records and bits of one that lost nothing.
 */
#define RANK_KILLED                                                                                \
    "for p in $(grep -lszx OMPI_COMM_WORLD_RANK=1 /proc/[0-9]*/environ); do p=${p%/environ}; "     \
    "[ \"$(readlink $p/cwd)\" = \"$PWD\" ] && kill -9 ${p#/proc/}; done\n"

/* A start that prints that has not taken a snapshot yet: one that is killed then got no further. */
#define FURTHER                                                                                    \
    "newest() { ls memory/*/checkpoints | grep 'step-[0-9]*$' | tail -1; }\n"                      \
    "further() { seen=$(newest); until_so 'test \"$(newest)\" != \"$seen\"'; }\n"

CASE(test_a_rank_that_dies_on_a_full_disk)
{
    mpi_or_skip();
    if (!on_small_disk(
            24000,
            "mkdir memory; $L launch --ranks 2 $C train.out=disk/run parallel.dp=2 "
            "train.steps=1000000 log.hash_every=1 snapshot.every=1 snapshot.folder=memory "
            "launch.pause_s=600 launch.retries=1 > full.log 2>&1 &\n" AWAIT FURTHER
            "until_so 'grep -qs loss_bits disk/run/metrics.jsonl'\n"
            "fill; await 'without records in metrics.jsonl'; further\n" RANK_KILLED
            "starts() { grep -c 'without records in metrics.jsonl' full.log; }\n"
            "until_so 'test $(starts) -gt 1'; further\n" RANK_KILLED
            "until_so 'test $(starts) -gt 2'\n"
            "rm disk/ballast; await 'lockstep launch: going on: '\n"
            "kill -TERM $!; wait $!; code=$?; cat full.log; cp -r disk/run kept2; "
            "exit $code\n",
            ls_exit_code(LS_ESTOPPED), "lockstep launch: going on: "))
        skip();
    assert_null(strstr(output, "make room"));
    assert_non_null(strstr(output, "config.yaml stays that of the start before"));
    expect("$L train $C train.out=same log.hash_every=1 train.steps=$(sed -n 's/.*\"step\": "
           "\\([0-9]*\\),.*loss_bits.*/\\1/p' kept2/metrics.jsonl | tail -1) && $L diff kept2 same",
           0, "equal up to step ");
}

/* Folders of workers belong to a start that had no room for their configuration, too: it saves once
 * there is room. The start before ends by itself: what a killed one leaves half-written is removed,
 * which would make room. */
CASE(test_workers_begin_again_on_a_full_disk)
{
    if (!on_small_disk(
            24000,
            "D='train.out=disk/run train.steps=1000000 train.save_every=2 async.mode=diloco "
            "async.workers=2 async.sync_every=2 log.tensorboard=false'\n"
            "$L train $C $D > full.log 2>&1 &\n" AWAIT "await ' saved '\n"
            "kill -TERM $!; wait $!; rm full.log; fill\n"
            "$L train $C $D train.resume=auto > full.log 2>&1 &\n"
            "await 'no checkpoint of step'; rm disk/ballast; await ' saved '\n"
            "kill -TERM $!; wait $!; code=$?; cat full.log; exit $code\n",
            ls_exit_code(LS_ESTOPPED), "stopped by a signal"))
        skip();
    assert_non_null(strstr(output, "config.yaml stays that of the start before"));
}

/* At its end there is no later occasion: the code says that the state is not saved. */
CASE(test_the_last_checkpoint_on_a_full_disk)
{
    if (!on_small_disk(
            400,
            "$L train $C train.out=disk/run train.steps=12 train.save_every=3 "
            "train.keep=9 log.tensorboard=false; code=$?; ls disk/run/checkpoints; exit $code",
            ls_exit_code(LS_ENOSPC), "no checkpoint of step 12 (the newest is that of "))
        skip();
    assert_non_null(strstr(output, "No space left on device"));
    assert_null(strstr(output, ".tmp\n"));
    assert_non_null(strstr(output, "\nstep-00000003\n"));
    /* A run that has saved none itself names the one that it began from. */
    assert_true(on_small_disk(
        200,
        "$L train $C train.out=ancestor train.steps=2 && "
        "$L train $C train.out=disk/run train.steps=3 log.tensorboard=false "
        "train.resume=ancestor",
        ls_exit_code(LS_ENOSPC),
        "no checkpoint of step 3 (the newest is ancestor/checkpoints/step-00000002): "));
}

/* A server by the clock logs each update before it is made: without room there is none. */
CASE(test_a_server_on_a_full_disk)
{
    if (!check_all())
        skip();
    mpi_or_skip();
    if (!on_small_disk(
            8000,
            "$L launch --ranks 3 $C train.out=disk/run async.mode=server async.workers=2 "
            "async.sync_every=4 async.order=clock parallel.workers=2 parallel.servers=1 "
            "train.steps=1000000 train.save_every=40 launch.pause_s=1 > full.log 2>&1 &\n" AWAIT
            "await 'saved disk/run'; fill; await 'make room; until there is'\n"
            "rm disk/ballast; await 'going on: step'\n"
            "kill -TERM $!; wait $!; code=$?; cat full.log; exit $code\n",
            ls_exit_code(LS_ESTOPPED), "disk/run/arrivals: cannot append: No space left"))
        skip();
}

/* Open MPI's processes wait for ever for one that has no room for a window of shared memory. Ranks
 * without one know all the same that they are on one machine, and keep one snapshot. */
CASE(test_shared_memory_that_is_full)
{
    if (!check_all())
        skip();
    mpi_or_skip();
    if (!on_small_disk(64,
                       "dd if=/dev/zero of=disk/ballast bs=1k 2> /dev/null\n"
                       "mount --bind disk /dev/shm; mkdir memory\n"
                       "$L launch --ranks 2 $C train.out=shared parallel.dp=2 train.steps=4 "
                       "snapshot.every=1 snapshot.folder=memory comm.timeout_s=30 launch.retries=0",
                       0, "hash "))
        skip();
    assert_null(strstr(output, "lockstep: warning: "));
    expect("$L train $C train.out=alone train.steps=4 && $L diff shared alone", 0,
           "equal up to step 4");
}

/* ---- a disk that is read only ---------------------------------------------------------------- */

#define MADE_READ_ONLY "until_so 'mount -o remount,ro,bind $c 2> /dev/null'\n"

/* The system refuses checkpoints, takes them again, and refuses the last one. However long a step
 * of this takes, the run's records fill no disk: they are beside the small one. */
#define READ_ONLY_TWICE                                                                            \
    AWAIT                                                                                          \
    "await 'saved under/run/checkpoints'\n"                                                        \
    "c=under/run/checkpoints; mount --bind $c $c\n" MADE_READ_ONLY                                 \
    "await 'no checkpoint of step'\n"                                                              \
    "$L ckpt verify under/run > verified 2>&1 || exit 8\n"                                         \
    "mount -o remount,rw,bind $c\n"                                                                \
    "until_so \"sed '1,/no checkpoint of step/d' full.log | grep -q ' saved "                      \
    "under/run'\"\n" MADE_READ_ONLY "kill -TERM $!; wait $!; code=$?; tail -1 full.log\n"          \
    "$L ckpt verify under/run > verified 2>&1 || exit 6\n"                                         \
    "exit $code\n"

CASE(test_a_disk_that_becomes_read_only)
{
    if (!on_small_disk(100,
                       "$L train $C train.out=under/run train.steps=1000000 train.save_every=20 "
                       "> full.log 2>&1 &\n" READ_ONLY_TWICE,
                       ls_exit_code(LS_EIO), "no checkpoint of step "))
        skip();
    expect("grep 'no checkpoint of step' full.log | head -1", 0,
           "The run continues and tries again when the next one is due");
    assert_non_null(strstr(output, "(the newest is that of step "));
    assert_non_null(strstr(output, "under/run/checkpoints/step-"));
    assert_non_null(strstr(output, "Read-only file system"));
}

/* A run that is read where nothing can be written; one that would write there ends, with a reason.
 */
CASE(test_a_run_on_a_read_only_disk)
{
    static const char made[] = "mkdir disk/memory; $L train $C train.out=disk/run train.steps=2 "
                               "> /dev/null 2>&1 || exit 9\nmount -o remount,ro disk\n";
    static const struct {
        const char *line, *words;
        int status;
    } cases[] = {
        {"$L eval disk/run --samples 4 && $L ckpt verify disk/run", "step 2", LS_OK},
        {"$L train $C train.out=disk/run train.resume=auto train.steps=3", "disk/run", LS_EIO},
        {"$L train $C train.out=disk/new train.steps=2", "disk/new", LS_EIO},
        {"LOCKSTEP_LAUNCHED=1 $L train $C train.out=disk/run train.resume=auto train.steps=3",
         "\"cause\":\"read_only\"", LS_EIO},
        {"$L train $C train.out=other train.steps=2 snapshot.every=1 snapshot.folder=disk/memory",
         "no snapshots are taken: disk/memory", LS_OK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[1024];
        snprintf(line, sizeof line, "%s%s", made, cases[i].line);
        if (!on_small_disk(4000, line, cases[i].status ? ls_exit_code(cases[i].status) : 0,
                           cases[i].words))
            skip();
        if (i > 0)
            assert_non_null(strstr(output, "Read-only file system"));
    }
}

/* ---- what a killed run leaves ---------------------------------------------------------------- */

CASE(test_leftovers_are_removed)
{
    expect("$L train $C train.out=left train.steps=2", 0, "hash");
    expect("cd left && mkdir -p checkpoints/step-00000009.tmp trace && touch "
           "checkpoints/step-00000009.tmp/model.safetensors.tmp-7 config.yaml.tmp-12 "
           "metrics.prom.tmp-3 checkpoints/best.tmp-4 trace/rank-00000.json.tmp-5 "
           "loss.svg.tmp-6 mine.tmp config.yaml.tmp-old metrics.prom.mine",
           0, "");
    /* Not by a run that is refused, and not by one that reads. */
    expect("$L train $C train.out=left train.steps=2", ls_exit_code(LS_ECONFIG), "train.out");
    expect("$L eval left --samples 4", 0, "step 2");
    assert_int_equal(matches("left/*.tmp-[0-9]*"), 3);
    expect("$L train $C train.out=left train.steps=3 train.resume=auto", 0,
           "removed 4 files that a killed run left half-written");
    assert_int_equal(matches("left/checkpoints/*"), 2);
    assert_int_equal(matches("left/trace/*"), 0);
    assert_true(exists("left/loss.svg.tmp-6") && exists("left/mine.tmp") &&
                exists("left/config.yaml.tmp-old") && exists("left/metrics.prom.mine"));
    assert_int_equal(matches("left/*.tmp-[0-9]*"), 1);
}

SUITE_MAIN(corpus_setup, scratch_teardown)
