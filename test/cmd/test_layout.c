/* `lockstep layout`: what it shows, what it proves and what it refuses. Runs from the root of the
 * tree, where configs/ is. */
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/svg.h"
#include "../support/xml.h"
#include "run_program.h"

#include <lockstep/base.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TINY "layout configs/gpt2-tiny.yaml batch.global=8 batch.micro=1 model.vocab=257 "

CASE(test_shows_every_part)
{
    static const char *const words[] = {
        "8 ranks = pp 2 x dp_replicate 1 x dp_shard 2 x cp 1 x tp 2",
        "zero 2",
        "sequence parallel on",
        "each rank 4 micro-batches of 1",
        "      7   1             0         1   0   1",
        "tp             4 x 2     ranks 0 1",
        "h.0.attn.q.weight        [64, 64]         [32, 64]         16 of 32",
        "stages (layer 0 is the embedding, 3 the head)",
        "schedule 1f1b: bubble",
        "0F0",
        "bytes that a rank sends in a step",
        "memory of a rank",
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        program_expect(TINY "parallel.pp=2 parallel.tp=2 parallel.dp=2 parallel.zero=2", 0,
                       words[i]);
}

/* Without ZeRO data parallel is dp_replicate in ranks, groups and bytes. */
CASE(test_copies_have_one_name)
{
    static const char *const words[] = {
        "dp_replicate 4 x dp_shard 1",
        "replicate      1 x 4     ranks 0 1 2 3   (gradients are added here)",
        "dp_shard   dp_replicate\n     0          0 B          0 B          0 B            0 B   "};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        program_expect(TINY "parallel.dp=4", 0, words[i]);
}

CASE_WITH(test_draws_the_schedule, scratch_setup, scratch_teardown)
{
    const char *path = scratch_path(*state, "schedule.svg");
    char arguments[1024];
    size_t bytes;
    snprintf(arguments, sizeof arguments, TINY "parallel.pp=2 --svg '%s'", path);
    program_expect(arguments, 0, "stages");
    char *text = scratch_read(path, &bytes);
    assert_true(bytes > 500);
    assert_xml(text);
    assert_svg_texts(text);
    assert_svg_legend(text);
    assert_non_null(strstr(text, ">idle<"));
    assert_non_null(strstr(text, "1f1b: 2 ranks, 8 micro-batches"));
    /* The bubble that is printed is the one that is drawn, of stages as they are. */
    static char printed[PROGRAM_OUTPUT_BYTES];
    char bubble[64];
    assert_int_equal(program_run("", arguments, printed), 0);
    const char *said = strstr(printed, "schedule 1f1b: bubble ");
    assert_non_null(said);
    snprintf(bubble, sizeof bubble, "Bubble: %.5s", said + strlen("schedule 1f1b: bubble "));
    assert_non_null(strstr(text, bubble));
    free(text);
    snprintf(arguments, sizeof arguments, TINY "--svg '%s'", path); /* nothing to wait for */
    program_expect(arguments, 0, "stages");
    text = scratch_read(path, NULL);
    assert_svg_texts(text);
    assert_svg_legend(text);
    assert_null(strstr(text, "idle<"));
    free(text);
    program_expect(TINY "parallel.pp=2 --svg /no/such/folder/s.svg", ls_exit_code(LS_EIO),
                   "/no/such/folder/s.svg");
}

/* The pictures of doc/parallel/pipeline-parallel.md are what its command draws. */
CASE_WITH(test_pictures_of_the_docs, scratch_setup, scratch_teardown)
{
    static const char *const cases[][2] = {
        {"model.layers=6 parallel.schedule=1f1b", "doc/parallel/pipeline-1f1b.svg"},
        {"model.layers=14 parallel.schedule=zbv", "doc/parallel/pipeline-zbv.svg"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *path = scratch_path(*state, "drawn.svg");
        char arguments[1024];
        snprintf(arguments, sizeof arguments,
                 "layout configs/gpt2-tiny.yaml data.tokenizer=byte batch.micro=1 parallel.pp=4 %s "
                 "--svg '%s'",
                 cases[i][0], path);
        program_expect(arguments, 0, "stages");
        char *drawn = scratch_read(path, NULL), *kept = scratch_read(cases[i][1], NULL);
        if (strcmp(drawn, kept) != 0)
            fail_msg("%s is not what its command draws; draw it again", cases[i][1]);
        free(drawn);
        free(kept);
    }
}

CASE(test_proves)
{
    program_expect(TINY "--check", 0, "proved: 1 rank in 0 groups");
    program_expect(TINY "--check parallel.pp=4 parallel.tp=2 parallel.dp=2 parallel.zero=3", 0,
                   "proved: 16 ranks");
    /* The least memory first: of all programs so far the most counts. Each rank does something else
     * where matrices meet, and is recorded there alone. */
    program_expect_within("layout --check configs/llama-8b.yaml optim.name=muon batch.global=16 "
                          "parallel.dp_shard=16 parallel.tp=8 parallel.zero=1",
                          "proved: 128 ranks in ", (size_t)1 << 27);
    if (!check_all())
        return;
    program_expect_within("layout --check configs/llama-8b.yaml optim.name=muon batch.global=64 "
                          "parallel.dp_shard=64 parallel.tp=8 parallel.zero=1",
                          "proved: 512 ranks in ", (size_t)1 << 29);
    program_expect_within("layout --check configs/llama-405b-16k.yaml", "proved: 16384 ranks",
                          (size_t)1 << 30);
    program_expect_within("layout --check configs/llama-8b.yaml optim.name=muon batch.global=512 "
                          "parallel.dp_shard=512 parallel.tp=8 parallel.zero=1",
                          "proved: 4096 ranks in 539 groups; 5419008 collectives agree, 2751872",
                          (size_t)1 << 30);
}

/* Buffers for every level of the largest tree over tiles of a sequence. */
CASE(test_has_room_for_the_most_tiles)
{
    program_expect("plan memory configs/gpt2-tiny.yaml batch.global=16 batch.micro=2 "
                   "model.vocab=1073741824 model.context=4194304 numerics.seq_tiles=32768 "
                   "numerics.leaf_sequences=1",
                   0, "would take 5.4 TiB of memory");
    program_expect(TINY "numerics.seq_tiles=65536", ls_exit_code(LS_ECONFIG),
                   "numerics.seq_tiles = 65536: expected a whole number from 1 to 32768");
}

CASE_WITH(test_refuses, scratch_setup, scratch_teardown)
{
    int code = ls_exit_code(LS_ELAYOUT);
    program_expect(TINY "parallel.tp=3", code,
                   "command line: parallel.tp = 3: it does not divide the model's query heads, 4; "
                   "the nearest that works is parallel.tp = ");
    program_expect(TINY "parallel.pp=5", code, "the nearest that works is parallel.pp = 4");
    program_expect(TINY "parallel.cp=2", code, "numerics.seq_tiles = 1");
    program_expect(TINY "batch.global=134217728 batch.micro=67108864", code,
                   "batch.micro = 67108864: expected at most 33554431 sequences of 64 tokens");
    program_expect("layout configs/gpt2-tiny.yaml model.vocab=257 model.context=256 "
                   "batch.global=65536 batch.micro=65536 numerics.seq_tiles=2",
                   code, "command line: batch.micro = 65536: expected at most 32768 leaves");
    program_expect(TINY "parallel.pp=2 parallel.split=0-3", code, "parallel.split = 0-3");
    program_expect(TINY "parallel.schedule=csv", ls_exit_code(LS_ECONFIG),
                   "parallel.schedule_file");
    program_expect(TINY "parallel.schedule=csv parallel.schedule_file=/no/such.csv",
                   ls_exit_code(LS_EIO), "/no/such.csv");
    program_expect(TINY "parallel.schedule=2f2b", ls_exit_code(LS_ECONFIG), "parallel.schedule");
    /* Rank 0 waits for a gradient that rank 1 makes after what rank 0 sends next. */
    const char *path = scratch_path(*state, "stuck.csv"),
               *stuck = "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n";
    char arguments[1024];
    scratch_write(path, stuck, strlen(stuck));
    snprintf(arguments, sizeof arguments,
             TINY "batch.global=2 parallel.pp=2 parallel.schedule=csv parallel.schedule_file='%s'",
             path);
    program_expect(arguments, code, "parallel.schedule_file = ");
    program_expect(arguments, code, "0B0");
    const char *twice = "0F0,0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n";
    scratch_write(path, twice, strlen(twice));
    program_expect(arguments, code, "line 1");
    const char *good = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
    scratch_write(path, good, strlen(good));
    program_expect(arguments, 0, "stuck.csv: bubble");
    snprintf(arguments, sizeof arguments,
             TINY "batch.global=8 parallel.pp=2 parallel.schedule=csv parallel.schedule_file='%s'",
             path);
    program_expect(arguments, code, "it has 2 micro-batches, and a step has 8");
}

SUITE_MAIN(NULL, NULL)
