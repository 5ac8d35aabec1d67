/* `lockstep ckpt verify` finds every byte that was altered in a checkpoint, and names the file;
 * `lockstep ckpt inspect` shows what is in one. */
#include "../support/checkpoints.h"
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "runs.h"

#include <lockstep/ckpt.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Checkpoints of steps 2, 4 and 5. */
static int run_setup(void **state)
{
    if (corpus_setup(state))
        return -1;
    expect("$L train $C train.out=one train.steps=5 train.save_every=2 train.keep=9 parallel.dp=2 "
           "eval.every=0",
           0, "hash ");
    return 0;
}

CASE(test_whole_checkpoints)
{
    struct metrics *metrics = metrics_read("one");
    char last[200];
    snprintf(last, sizeof last, ", hash %s\n", metrics->hash);
    expect("$L ckpt verify one", 0, last);
    for (int step = 2; step < 6; step += step == 4 ? 1 : 2) {
        char words[64];
        snprintf(words, sizeof words, "step-%08d: step %d, ", step, step);
        assert_non_null(strstr(output, words));
    }
    assert_null(strstr(output, "DAMAGED"));
    expect("$L ckpt verify one > /dev/full", ls_exit_code(LS_ENOSPC),
           "lockstep: cannot write the output: No space left");
    expect("$L ckpt verify one/checkpoints/step-00000004 one/checkpoints/step-00000002", 0,
           "whole    one/checkpoints/step-00000004: step 4");
    expect("mkdir one/checkpoints/step-00000009.tmp && $L ckpt verify one; "
           "rmdir one/checkpoints/step-00000009.tmp",
           0, "whole");
    assert_null(strstr(output, "00000009"));
    /* One that was pruned after it was listed is gone, not damaged. */
    expect("ln -s nowhere one/checkpoints/step-00000009 && mkdir one/checkpoints/step-7 && "
           "$L ckpt verify one; rm one/checkpoints/step-00000009; rmdir one/checkpoints/step-7",
           0, "whole");
    assert_null(strstr(output, "DAMAGED"));
    free(metrics);
}

static void visit(void *user, const char *directory, const struct ls_checkpoint_state *state)
{
    *(int64_t *)user = state->step;
}

/* One byte anywhere in any of its files. The twin looks at sizes alone: it sees none of those in
 * the files of tensors. */
CASE(test_an_altered_byte)
{
    const int places = check_all() ? 64 : 8;
    int seen_by_sizes = 0, altered = 0;
    DIR *files = opendir(at("one/checkpoints/step-00000004"));
    assert_non_null(files);
    for (struct dirent *entry; (entry = readdir(files));) {
        char name[400], words[500];
        size_t bytes;
        if (entry->d_name[0] == '.')
            continue;
        snprintf(name, sizeof name, "one/checkpoints/step-00000004/%.255s", entry->d_name);
        char *data = scratch_read(at(name), &bytes);
        bool tensors = strstr(name, ".safetensors") != NULL;
        for (int i = 0; i < places; i++) {
            size_t place = (bytes - 1) * (size_t)i / (size_t)(places - 1);
            int64_t step = -1;
            if (!tensors && strchr(" \n\t", data[place])) /* means nothing in JSON */
                continue;
            data[place] ^= 1;
            scratch_write(at(name), data, bytes);
            data[place] ^= 1;
            int code = shell("$L ckpt verify one");
            snprintf(words, sizeof words,
                     "DAMAGED  one/checkpoints/step-00000004: one/checkpoints/"
                     "step-00000004/%.255s",
                     entry->d_name);
            if (code != 1 || !strstr(output, words) ||
                !strstr(output, "whole    one/checkpoints/step-00000005"))
                fail_msg("%s, byte %zu of %zu: exited with %d and printed:\n%s", name, place, bytes,
                         code, output);
            ls_checkpoint_visit(at("one/checkpoints/step-00000004"), visit, &step, NULL);
            seen_by_sizes += tensors && step < 0;
            altered += tensors;
        }
        scratch_write(at(name), data, bytes);
        free(data);
    }
    closedir(files);
    assert_true(altered > 0);
    assert_int_equal(seen_by_sizes, 0);
    expect("$L ckpt verify one", 0, "whole");
}

CASE(test_files_cut_short_or_missing)
{
    expect("cp -r one cut && truncate -s -1 cut/checkpoints/step-00000002/" SHARD " && "
           "rm cut/checkpoints/step-00000004/shard-00002-optimizer-00001-of-00001.safetensors && "
           "rm cut/checkpoints/step-00000005/manifest.json && $L ckpt verify cut",
           1, "DAMAGED  cut/checkpoints/step-00000002: ");
    assert_non_null(strstr(output, "step-00000005: cut/checkpoints/step-00000005/manifest.json: "));
    assert_non_null(strstr(output, "DAMAGED  cut/checkpoints/step-00000004: "));
    assert_non_null(strstr(output, "DAMAGED  cut/checkpoints/step-00000005: "));
    assert_null(strstr(output, "whole"));
}

CASE(test_inspect)
{
    struct metrics *metrics = metrics_read("one");
    expect("$L ckpt inspect one", 0, "one/checkpoints/step-00000005\n");
    assert_non_null(strstr(output, "  step          5: 640 tokens in 20 samples\n"));
    assert_non_null(strstr(output, metrics->hash));
    assert_non_null(strstr(output, "  written by    pp=1 "));
    assert_non_null(strstr(output, "numerics.version"));
    assert_null(strstr(output, "exp_avg"));
    expect("$L ckpt inspect one --step 2 --tensors", 0, "step-00000002\n");
    assert_non_null(strstr(output, "  F32   [32, 32]  "));
    assert_non_null(strstr(output, "exp_avg"));
    expect("$L ckpt inspect one/checkpoints/step-00000004", 0, "step          4: ");
    expect("$L train $C model.arch=llama model.vocab_multiple=1 train.steps=0 train.out=llama "
           "eval.every=0 && $L ckpt inspect llama --tensors",
           0, "h.0.attn.q.weight (model.layers.0.self_attn.q_proj.weight)\n");
    free(metrics);
}

CASE(test_reshard)
{
    struct metrics *metrics = metrics_read("one");
    expect("$L ckpt reshard one --step 4 parallel.tp=2 --out two", 0,
           "two  step 4, 2 ranks (parallel.tp=2), hash ");
    expect("$L ckpt verify two", 0, "whole    two/checkpoints/step-00000004");
    expect("ls two/checkpoints/step-00000004/shard-00002-optimizer-00001-of-00001.safetensors", 0,
           "");
    /* It goes on by itself, to the hash of the run that it is of. */
    expect("$L train two/config.yaml train.save_every=0", 0, metrics->hash);
    expect("$L ckpt reshard one --out", 2, "--out");
    expect("$L ckpt reshard one", 2, "--out RUN is missing");
    expect("$L ckpt reshard parallel.tp=2 --out three", 2, "the run is missing");
    expect("$L ckpt reshard one --out two", 2, "two: already exists");
    free(metrics);
}

CASE(test_average)
{
    expect("$L ckpt average one one/checkpoints/step-00000002 --out mean", 0,
           "mean  the mean of 2 checkpoints, ");
    expect("$L ckpt verify mean", 0, "step 0, ");
    expect("$L eval mean corpus_valid", 0, "loss");
    expect("$L ckpt average one one --weights 1,0 --out same && "
           "$L eval same corpus_valid --samples 8 > same.txt && "
           "$L eval one corpus_valid --samples 8 | grep -o 'loss.*' > one.txt && "
           "grep -o 'loss.*' same.txt | diff - one.txt",
           0, "");
    expect("$L ckpt average one one --weights 1 --out three", 2, "expected 2 numbers");
    expect("$L ckpt average one one --weights 1,x --out three", 2, "expected 2 numbers");
    expect("$L ckpt average one one --weights 1,-1 --out three", 2,
           "expected a number of at least");
    expect("$L ckpt average one one --weights 0,0 --out three", 2, "expected a number above 0");
    expect("$L ckpt average one --out three", 2, "checkpoints are missing");
    expect("$L ckpt average one one", 2, "--out RUN is missing");
    assert_false(exists("three"));
}

/* The folder of a run's checkpoints stands for the run. */
CASE(test_the_folder_of_checkpoints)
{
    expect("$L ckpt inspect one/checkpoints", 0, "one/checkpoints/step-00000005");
    expect("$L ckpt inspect one/checkpoints/ --step 2", 0, "one/checkpoints/step-00000002");
    expect("cd one/checkpoints && $L ckpt inspect ../checkpoints", 0, "step-00000005");
    expect("$L ckpt verify one/checkpoints", 0, "whole    one/checkpoints/step-00000002");
    expect("mkdir -p other/step-00000001 && $L ckpt inspect other", ls_exit_code(LS_ECKPT),
           "other holds no checkpoint");
}

/* One checkpoint is known by what describes it, in any version and under any name, by the file that
 * names the best one, and by its name where its description is lost. */
CASE(test_one_checkpoint)
{
    static const char *const apart[] = {
        "$L ckpt reshard place/copy --out four", "$L ckpt average place/copy one --out four",
        "$L export place/copy --out four", "$L eval place/copy corpus_valid"};
    const struct ls_checkpoint_best best = {.step = 4, .loss = 1, .sequences = 8};
    struct ls_error error = {0};
    char old[4096];
    assert_ok(ls_checkpoint_best_write(at("one"), &best, &error), error);
    expect("$L ckpt verify one/checkpoints/best one/checkpoints/step-00000002; c=$?; "
           "rm one/checkpoints/best; exit $c",
           0, "whole    one/checkpoints/best: step 4, ");
    assert_non_null(strstr(output, "whole    one/checkpoints/step-00000002: step 2, "));
    snprintf(old, sizeof old, "%s", at("old"));
    old_checkpoint_copy(at("one/checkpoints/step-00000005"), old);
    expect("mv old/checkpoints/step-00000005 copy && $L ckpt verify copy", 0,
           "whole    copy: step 5, ");
    assert_int_equal(shell("mkdir place && mv copy place"), 0);
    for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
        expect(apart[i], 2, "place/copy: a checkpoint apart from its run, ");
    expect("mkdir step-00000003 && $L ckpt verify step-00000003/", 1, "DAMAGED  step-00000003/: ");
}

CASE(test_ckpt_refuses)
{
    expect("$L ckpt verify", 2, "expected runs, or checkpoints");
    expect("$L ckpt verify nowhere", ls_exit_code(LS_EIO), "nowhere");
    expect("$L export one --out model > made && $L ckpt verify model", 2,
           "model is a model of another program, without digests");
    expect("mkdir -p bare/checkpoints && $L ckpt verify bare", ls_exit_code(LS_ECKPT),
           "bare holds no checkpoint");
    expect("$L ckpt verify bare/checkpoints/", ls_exit_code(LS_ECKPT),
           "bare/checkpoints/ holds no checkpoint");
    expect("$L ckpt inspect", 2, "expected a run, or one of its checkpoints");
    expect("$L ckpt inspect one two", 2, "expected");
    expect("$L ckpt inspect bare", ls_exit_code(LS_ECKPT), "bare holds no checkpoint");
    expect("$L ckpt inspect one --step 3", ls_exit_code(LS_ECKPT), "those of the steps 5, 4, 2");
}

/* Each worker has a checkpoint of each step, too. */
CASE(test_workers)
{
    expect("$L train $C train.out=diloco train.steps=4 train.save_every=2 async.mode=diloco "
           "async.workers=2 async.sync_every=2 && $L ckpt verify diloco",
           0, "whole    diloco/workers/0001/checkpoints/step-00000004");
    expect("printf x | dd of=diloco/workers/0001/checkpoints/step-00000004/$M bs=1 seek=900 "
           "conv=notrunc && rm -r diloco/workers/0000/checkpoints/step-00000002; "
           "$L ckpt verify diloco",
           1, "DAMAGED  diloco/workers/0001/checkpoints/step-00000004: ");
    assert_text_contains(output,
                         "DAMAGED  diloco/workers/0000/checkpoints/step-00000002: it is missing\n");
    assert_text_contains(output, "whole    diloco/checkpoints/step-00000004: ");
    expect("rm -r diloco/workers && $L ckpt verify diloco", 1,
           "DAMAGED  diloco/workers/0001/checkpoints/step-00000004: it is missing\n");
    /* Begun anew, without workers. */
    expect("mkdir diloco/workers diloco/workers/0000 && rm -r diloco/checkpoints && "
           "$L train $C train.out=diloco train.steps=1 && $L ckpt verify diloco",
           0, "whole    diloco/checkpoints/step-00000001: ");
}

SUITE_MAIN(run_setup, scratch_teardown)
