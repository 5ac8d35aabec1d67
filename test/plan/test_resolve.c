/* Layouts: which are admitted, what is derived from them, and what the refusals of the others say.
 */
#include "../support/suite.h"
#include "layouts.h"

#include <stdlib.h>
#include <string.h>

/* 12 heads, ffn 3072, tp_tiles 4, 12 blocks, a batch of 16 leaves, T = 1024. */
#define GPT2 "model.preset=gpt2-124m", "batch.global=16"
/* 32 heads, 8 key/value heads, tp_tiles 8, 32 blocks. */
#define LLAMA "model.preset=llama-8b", "batch.global=16", "data.sequence=8192"
/* What follows "the nearest that works is ", set over keys, must be admitted. */
static void nearest_works(const char *const *keys, int64_t world, const char *text)
{
    struct ls_config config = config_of(keys);
    const char *nearest = strstr(text, "; the nearest that works is ");
    if (!nearest)
        fail_msg("no nearest layout in: %s", text);
    char rest[512], *save = NULL;
    nearest += strlen("; the nearest that works is ");
    snprintf(rest, sizeof rest, "%.*s", (int)strcspn(nearest, ";"), nearest);
    for (char *word = strtok_r(rest, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
        char key[64], value[64], assignment[130];
        struct ls_error error = {0};
        assert_int_equal(sscanf(word, " %63s = %63s", key, value), 2);
        bool quoted = *value == '"';
        snprintf(assignment, sizeof assignment, "%s=%.*s", key, (int)strcspn(value + quoted, "\""),
                 value + quoted);
        if (ls_config_set(&config, assignment, &error))
            fail_msg("%s: %s", assignment, error.text);
    }
    struct ls_layout layout;
    struct ls_error error = {0};
    if (ls_config_layout(&config, world, &layout, &error))
        fail_msg("%s\nbut that gives: %s", text, error.text);
}

/* Refused as a layout, in words that include all of the list, and with a nearest one that works. */
static void refused(const char *const *keys, int64_t world, ...)
{
    struct ls_config config = config_of(keys);
    struct ls_layout layout;
    struct ls_error error = {0};
    int status = ls_config_layout(&config, world, &layout, &error);
    if (status != LS_ELAYOUT && status != LS_ECONFIG)
        fail_msg("gave %s, expected LS_ELAYOUT or LS_ECONFIG: %s", ls_status_name(status),
                 error.text);
    va_list words;
    va_start(words, world);
    for (const char *word; (word = va_arg(words, const char *));)
        if (!strstr(error.text, word))
            fail_msg("refused with: %s\nwhich lacks: %s", error.text, word);
    va_end(words);
    nearest_works(keys, world, error.text);
}

/* ---- what is admitted ------------------------------------------------------------------------ */

CASE(test_axes_and_coordinates)
{
    struct ls_layout layout =
        admitted(KEYS(LLAMA, "parallel.pp=2", "parallel.dp_replicate=2", "parallel.dp_shard=4",
                      "parallel.cp=2", "parallel.tp=4", "numerics.seq_tiles=2", "parallel.zero=2"));
    assert_int_equal(layout.ranks, 128);
    assert_int_equal(layout.sets[0].shard_ranks, 8);
    assert_int_equal(layout.sets[0].replicate_ranks, 2);
    assert_true(layout.sp);
    for (int64_t rank = 0; rank < layout.ranks; rank++) {
        int64_t at[LS_AXES];
        ls_layout_coordinates(&layout, rank, at);
        assert_int_equal(ls_layout_rank(&layout, at), rank);
        assert_int_equal(at[LS_AXIS_TP], rank % 4);
        assert_int_equal(at[LS_AXIS_CP], rank / 4 % 2);
        assert_int_equal(at[LS_AXIS_PP], rank / 64);
    }
    assert_int_equal(ls_mesh_ranks(&layout.mesh), 128);
    assert_int_equal(ls_mesh_axis(&layout.mesh, "tp"), LS_AXIS_TP);
    assert_int_equal(ls_mesh_axis(&layout.mesh, "pp"), LS_AXIS_PP);
}

CASE(test_dp_is_shorthand)
{
    struct ls_layout layout = admitted(KEYS(GPT2, "parallel.dp=4"));
    assert_int_equal(layout.size[LS_AXIS_DP_REPLICATE], 4);
    assert_int_equal(layout.size[LS_AXIS_DP_SHARD], 1);
    layout = admitted(KEYS(GPT2, "parallel.dp=4", "parallel.zero=1"));
    assert_int_equal(layout.size[LS_AXIS_DP_REPLICATE], 1);
    assert_int_equal(layout.size[LS_AXIS_DP_SHARD], 4);
    layout = admitted(KEYS(GPT2, "parallel.dp=8", "parallel.zero=3", "parallel.dp_shard=2"));
    assert_int_equal(layout.size[LS_AXIS_DP_REPLICATE], 4);
    layout = admitted(KEYS(GPT2, "parallel.zero=3"));
    assert_int_equal(layout.sets[0].shard_ranks, 1);
}

CASE(test_every_leaf_once)
{
    static const char *const keys[][5] = {
        {"parallel.dp=4", "batch.micro=2", "numerics.leaf_sequences=4"},
        {"parallel.dp_replicate=2", "parallel.dp_shard=2", "parallel.zero=1", "batch.micro=1"},
        {"parallel.dp_replicate=2", "parallel.dp_shard=4", "parallel.zero=2", "batch.micro=1"},
        {"parallel.dp_shard=4", "parallel.zero=3", "batch.micro=2", "numerics.leaf_sequences=2"},
        {"parallel.dp_shard=2", "parallel.zero=1", "parallel.cp=2", "numerics.seq_tiles=2"},
        {"numerics.mode=fast", "parallel.dp_shard=2", "parallel.zero=2", "batch.micro=3"},
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        struct ls_layout layout = admitted(
            KEYS(GPT2, keys[i][0], keys[i][1], keys[i][2] ? keys[i][2] : "data.seed=1",
                 keys[i][3] ? keys[i][3] : "data.seed=1", keys[i][4] ? keys[i][4] : "data.seed=1"));
        int seen[16] = {0};
        for (int64_t rank = 0; rank < layout.ranks; rank++) {
            int64_t at[LS_AXES];
            struct ls_dp_share share;
            ls_layout_coordinates(&layout, rank, at);
            ls_layout_share(&layout, layout.ramp.full, at, &share);
            for (int64_t m = 0; m < share.micro_batches; m++) {
                struct ls_dp_micro micro = ls_dp_micro_batch(&share, m);
                for (int64_t l = micro.first; l < micro.first + micro.count; l++)
                    seen[l]++;
            }
        }
        for (int l = 0; l < 16; l++)
            if (seen[l] != layout.size[LS_AXIS_CP])
                fail_msg("case %zu: leaf %d is computed %d times", i, l, seen[l]);
    }
}

CASE(test_stages_cover_the_model)
{
    static const char *const schedules[] = {"gpipe", "1f1b", "interleaved",
                                            "zb-h1", "zbv",  "dualpipev"};
    for (size_t i = 0; i < sizeof schedules / sizeof schedules[0]; i++)
        for (int pp = 1; pp <= 7; pp++) {
            char key[64], many[32];
            snprintf(key, sizeof key, "parallel.schedule=%s", schedules[i]);
            snprintf(many, sizeof many, "parallel.pp=%d", pp);
            struct ls_layout layout = admitted(
                KEYS("model.preset=gpt2-124m", "batch.global=420", "batch.micro=1", key, many));
            int held[14] = {0};
            bool on[14], first[14];
            for (int64_t rank = 0; rank < pp; rank++) {
                ls_layout_layers(&layout, rank, on, first);
                for (int l = 0; l < 14; l++) {
                    held[l] += on[l];
                    assert_true(!first[l] || on[l]);
                }
                for (int64_t chunk = 0; chunk < layout.chunks; chunk++)
                    assert_int_equal(
                        layout.stage_rank[layout.rank_stage[rank * layout.chunks + chunk]], rank);
            }
            for (int l = 0; l < 14; l++)
                assert_int_equal(held[l], 1);
            for (int64_t s = 0; s < layout.stages; s++)
                assert_true(layout.stage_first[s] < layout.stage_first[s + 1]);
        }
}

/* The head of a 124M GPT-2 weighs as much as 5 blocks, so the last stage has few of them. */
CASE(test_stages_are_balanced)
{
    struct ls_layout layout = admitted(KEYS(GPT2, "parallel.pp=3"));
    double cost[3] = {0}, total = 0;
    for (int s = 0; s < 3; s++)
        for (int l = layout.stage_first[s]; l < layout.stage_first[s + 1]; l++) {
            cost[s] += ls_layer_flops_per_token(&layout.model, l, 1024);
            total += ls_layer_flops_per_token(&layout.model, l, 1024);
        }
    for (int s = 0; s < 3; s++)
        if (cost[s] > total / 3 * 1.2)
            fail_msg("stage %d has %.2f of the work", s, cost[s] / total);
    layout = admitted(KEYS(GPT2, "parallel.pp=3", "parallel.split=0-4,5-9,10-13"));
    assert_int_equal(layout.stage_first[1], 5);
    assert_int_equal(layout.stage_first[2], 10);
    assert_int_equal(layout.stage_first[3], 14);
}

/* A micro-batch is as large as asked, or as leaves allow, which is said. */
CASE(test_micro_batches_end_with_leaves)
{
    static const struct {
        const char *keys[4];
        int64_t micro, micro_batches;
        const char *note;
    } cases[] = {
        {{"batch.micro=8"}, 8, 2, ""},
        {{"batch.micro=5", "numerics.leaf_sequences=2"}, 4, 4, ""},
        {{"batch.micro=16", "parallel.dp=2", "numerics.mode=fast"}, 8, 1, ""},
        {{"batch.micro=8", "parallel.dp=2", "numerics.leaf_sequences=4"},
         4,
         2,
         "a micro-batch has 4 sequences and not batch.micro = 8: ranks take leaves in turn, of "
         "numerics.leaf_sequences = 4"},
        {{"batch.micro=3", "parallel.dp=2", "numerics.leaf_sequences=4"}, 3, 4, ""},
        {{"batch.micro=2", "parallel.cp=2", "numerics.seq_tiles=4"},
         1,
         16,
         "a micro-batch has 1 sequence and not batch.micro = 2: ranks take leaves in turn, of "
         "numerics.leaf_sequences = 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const *k = cases[i].keys;
        struct ls_layout layout =
            admitted(KEYS(GPT2, k[0], k[1] ? k[1] : "data.seed=1", k[2] ? k[2] : "data.seed=1"));
        assert_int_equal(layout.micro_sequences, cases[i].micro);
        assert_int_equal(layout.micro_batches, cases[i].micro_batches);
        assert_string_equal(layout.note, cases[i].note);
    }
}

CASE(test_sequence_parallel_where_it_can_be)
{
    struct ls_layout layout = admitted(KEYS(GPT2, "parallel.tp=4"));
    assert_true(layout.sp);
    layout = admitted(KEYS(GPT2, "parallel.tp=4", "parallel.sp=false"));
    assert_false(layout.sp);
    /* 48 tokens are 3 tiles of 16: no subtrees for 4 ranks in one sequence, but 4 sequences are. */
    layout = admitted(KEYS(GPT2, "parallel.tp=4", "data.sequence=48", "batch.micro=1"));
    assert_false(layout.sp);
    assert_non_null(strstr(layout.note, "sequence parallel is off"));
    layout = admitted(KEYS(GPT2, "parallel.tp=4", "data.sequence=48", "batch.micro=4"));
    assert_true(layout.sp);
    assert_string_equal(layout.note, "");
}

CASE(test_key_value_heads_are_shared)
{
    admitted(KEYS("model.preset=llama-tiny", "parallel.tp=4"));
    /* 12 heads on 2 key/value heads: 4 ranks would have 3 query heads each of a shared one. */
    refused(KEYS("model.preset=llama-tiny", "model.channels=96", "model.heads=12",
                 "model.kv_heads=2", "model.ffn=256", "numerics.tp_tiles=4", "parallel.tp=4"),
            0, "parallel.tp = 4", "3 query heads", NULL);
}

/* ---- what is refused ------------------------------------------------------------------------- */

CASE(test_refused_axes)
{
    refused(KEYS(GPT2, "parallel.dp=4"), 2, "needs 4 ranks, but 2 were started",
            "nearest that works is parallel.dp = 2", NULL);
    refused(KEYS(GPT2, "parallel.tp=2", "parallel.pp=2"), 8, "needs 4 ranks, but 8", NULL);
    refused(KEYS(GPT2, "parallel.tp=2"), 3, "needs 2 ranks, but 3", NULL);
    refused(KEYS(GPT2, "parallel.tp=3"), 0, "command line: parallel.tp = 3", "numerics.tp_tiles, 4",
            NULL);
    refused(KEYS(GPT2, "parallel.tp=8"), 0, "parallel.tp = 8", "query heads, 12",
            "nearest that works is parallel.tp = 4", NULL);
    refused(KEYS("model.preset=gpt2-tiny", "model.ffn=250", "batch.global=8", "parallel.tp=4"), 0,
            "feed-forward width, 250", NULL);
    refused(KEYS("model.preset=gpt2-tiny", "model.vocab_multiple=2", "model.vocab=258",
                 "numerics.mode=fast", "parallel.tp=4"),
            0, "padded vocabulary, 258", NULL);
    refused(KEYS(GPT2, "parallel.cp=2"), 0, "parallel.cp = 2", "numerics.seq_tiles = 1",
            "nearest that works is parallel.cp = 1", NULL);
    refused(
        KEYS(GPT2, "parallel.cp=2", "data.sequence=64"), 0, "nearest that works is parallel.cp",
        "numerics.seq_tiles = 2 would need another sequence: data.sequence = 64 is not a multiple",
        NULL);
    refused(KEYS(GPT2, "parallel.cp=3", "numerics.seq_tiles=4"), 0, "parallel.cp = 3",
            "numerics.seq_tiles = 4", NULL);
    refused(KEYS(GPT2, "parallel.cp=16", "numerics.mode=fast"), 0, "whole blocks of 64", NULL);
}

CASE(test_refused_dp)
{
    refused(KEYS(GPT2, "parallel.dp=3"), 0, "parallel.dp = 3", "batch of 16 leaves", NULL);
    refused(KEYS(GPT2, "parallel.dp=4", "parallel.dp_replicate=2", "parallel.dp_shard=4"), 0,
            "parallel.dp = 4", "is 8", NULL);
    refused(KEYS(GPT2, "parallel.dp=4", "parallel.dp_shard=3"), 0, "not a multiple of",
            "dp_shard = 3", NULL);
    /* No powers of two. */
    admitted(KEYS("model.preset=gpt2-tiny", "batch.global=12", "parallel.dp=6"));
    admitted(KEYS("model.preset=gpt2-tiny", "batch.global=24", "parallel.dp_replicate=2",
                  "parallel.dp_shard=3", "parallel.zero=2", "batch.micro=1"));
    /* Of two keys, the one that does not fit. */
    refused(KEYS(GPT2, "parallel.dp_replicate=2", "parallel.dp_shard=3", "parallel.zero=1"), 0,
            "command line: parallel.dp_shard = 3: it does not divide a batch of 16 leaves", NULL);
    refused(KEYS(GPT2, "parallel.dp_replicate=3", "parallel.dp_shard=2", "parallel.zero=1"), 0,
            "command line: parallel.dp_replicate = 3: it does not divide", NULL);
    refused(KEYS(GPT2, "parallel.dp=6", "parallel.dp_shard=3", "parallel.zero=1"), 0,
            "command line: parallel.dp_shard = 3: it does not divide", NULL);
    refused(KEYS(GPT2, "parallel.dp=6", "parallel.dp_shard=2", "parallel.zero=1"), 0,
            "parallel.dp = 6: it leaves parallel.dp_replicate = 3: it does not divide", NULL);
    refused(KEYS("model.preset=gpt2-tiny", "batch.global=12", "parallel.dp_replicate=4",
                 "parallel.dp_shard=2", "parallel.zero=1"),
            0, "parallel.dp_replicate = 4: with parallel.dp_shard = 2", "8 ranks", NULL);
    refused(KEYS(GPT2, "parallel.dp=8", "numerics.leaf_sequences=4"), 0,
            "command line: parallel.dp = 8: it does not divide a batch of 4 leaves of 4 sequences",
            "a smaller numerics.leaf_sequences makes more", NULL);
    /* More leaves than a product has tiles. */
    const char *many = "batch.global=131072", *one = "numerics.leaf_sequences=1";
    admitted(KEYS("model.preset=gpt2-tiny", many, "batch.micro=65536", one));
    refused(KEYS("model.preset=gpt2-tiny", many, "batch.micro=131072", one), 0,
            "command line: batch.micro = 131072: expected at most 65536 leaves", NULL);
    refused(KEYS("model.preset=gpt2-tiny", many, "batch.micro=65536", one, "numerics.seq_tiles=2",
                 "model.context=256"),
            0, "command line: batch.micro = 65536: expected at most 32768 leaves", "has 2", NULL);
    /* A part of a leaf. */
    refused(KEYS(GPT2, "numerics.leaf_sequences=4", "data.sequence=24", "batch.micro=3"), 0,
            "batch.micro = 3", "a multiple of 32 tokens", NULL);
    admitted(KEYS(GPT2, "numerics.leaf_sequences=4", "parallel.dp=2", "batch.micro=3"));
    admitted(KEYS("model.preset=gpt2-tiny", "batch.global=12", "batch.micro=5"));
}

CASE(test_refused_pipelines)
{
    refused(KEYS("model.preset=gpt2-tiny", "parallel.pp=5", "batch.global=8"), 0, "parallel.pp = 5",
            "model has 4", "parallel.pp = 4", NULL);
    refused(
        KEYS("model.preset=gpt2-tiny", "parallel.pp=3", "parallel.schedule=zbv", "batch.global=8"),
        0, "6 stages (2 chunks a rank)", NULL);
    refused(KEYS(GPT2, "parallel.pp=2", "parallel.chunks=2"), 0, "parallel.chunks = 2",
            "1f1b gives each pipeline rank 1", NULL);
    refused(KEYS(GPT2, "parallel.pp=2", "parallel.schedule=dualpipev", "parallel.chunks=3"), 0,
            "dualpipev gives each pipeline rank 2", NULL);
    refused(KEYS(GPT2, "parallel.pp=4", "parallel.schedule=dualpipev", "batch.micro=4"), 0,
            "at least 8 micro-batches", "has 4", NULL);
    static const char *const splits[] = {"0-6",         "0-6,8-13",  "0-7,7-13", "0-6,7-14",
                                         "0-6,7-12,13", "6-0,7-13",  "0-6;7-13", "a",
                                         "0-6,",        "-1-6,7-13", "0-,7-13"};
    for (size_t i = 0; i < sizeof splits / sizeof splits[0]; i++) {
        char key[64];
        snprintf(key, sizeof key, "parallel.split=%s", splits[i]);
        refused(KEYS(GPT2, "parallel.pp=2", key), 0, "parallel.split = ", NULL);
    }
}

CASE(test_refused_sp_and_zero)
{
    refused(KEYS(GPT2, "parallel.sp=true"), 0, "parallel.sp = true", "parallel.tp is 1", NULL);
    refused(KEYS(GPT2, "parallel.sp=true", "parallel.tp=4", "data.sequence=48", "batch.micro=1"), 0,
            "parallel.sp = true", "whole subtrees", NULL);
    refused(KEYS(GPT2, "parallel.zero=3", "parallel.dp=2", "parallel.persist=100000000"), 0,
            "parallel.persist = 100000000", "shard nothing", "the largest has 38633472", NULL);
    admitted(KEYS(GPT2, "parallel.zero=3", "parallel.dp=2", "parallel.persist=100000"));
}

/* Keys of group memory, and keys that need each other, are of the layout too. */
CASE(test_refused_memory_and_files)
{
    refused(KEYS(GPT2, "parallel.dp=15", "parallel.zero=1", "memory.offload.parameters=host"), 0,
            "parallel.dp = 15", "is parallel.dp = 16, memory.offload.parameters = none", NULL);
    refused(KEYS(GPT2, "parallel.dp=4", "parallel.zero=2", "memory.offload.parameters=host"), 0,
            "command line: memory.offload.parameters = host: with parallel.zero = 2 each of 4",
            "nearest that works is memory.offload.parameters = none", NULL);
    refused(KEYS(GPT2, "parallel.dp_replicate=2", "parallel.dp_shard=2", "parallel.zero=1",
                 "memory.offload.gradients=host"),
            0, "memory.offload.gradients = host: there are 2 replicas",
            "nearest that works is memory.offload.gradients = none", NULL);
    refused(KEYS(GPT2, "parallel.pp=16", "memory.recompute=full@0;none@14-15"), 0,
            "parallel.pp = 16", "is parallel.pp = 14, memory.recompute = \"full\"", NULL);
    refused(KEYS(GPT2, "memory.offload.optimizer=file"), 0, "file needs memory.file",
            "nearest that works is memory.offload.optimizer = host", NULL);
    refused(KEYS(GPT2, "batch.micro=17"), 0, "batch.micro = 17: expected at most batch.global = 16",
            "nearest that works is batch.micro = 16", NULL);
    refused(KEYS(GPT2, "parallel.schedule=csv"), 0,
            "parallel.schedule_file = ", "nearest that works is parallel.schedule = 1f1b", NULL);
    refused(KEYS(GPT2, "parallel.schedule_file=a.csv"), 0, "parallel.schedule = csv",
            "nearest that works is parallel.schedule_file = \"\"", NULL);
}

/* A refusal that names no layout says so, and why. Other ranks and another recipe are offered if
 * they work. */
CASE(test_what_else_is_offered)
{
    struct ls_config config = config_of(KEYS(GPT2, "parallel.tp=2", "memory.recompute=all"));
    struct ls_layout layout;
    struct ls_error error = {0};
    assert_int_equal(ls_config_layout(&config, 17, &layout, &error), LS_ELAYOUT);
    assert_null(strstr(error.text, "start 2"));
    assert_null(strstr(error.text, "nearest"));
    assert_non_null(strstr(error.text, "; no layout of 17 ranks was found that works: "
                                       "parallel.dp = 17: it does not divide a batch of 16"));
    refused(KEYS(GPT2, "parallel.tp=2"), 3, "but 3 were started: start 2; the nearest", NULL);
    refused(KEYS(GPT2, "parallel.cp=2"), 0,
            "; what works too, before the first step, is numerics.seq_tiles = 2", NULL);
    config = config_of(KEYS(GPT2, "parallel.cp=2", "parallel.dp=3"));
    assert_int_equal(ls_config_layout(&config, 0, &layout, &error), LS_ELAYOUT);
    assert_null(strstr(error.text, "before the first step"));
}

/* Every batch of a ramp-up has to be admissible. */
CASE(test_refused_rampup)
{
    admitted(KEYS(GPT2, "batch.rampup_start=4", "batch.rampup_increment=4",
                  "batch.rampup_samples=100", "parallel.dp=1"));
    refused(KEYS(GPT2, "batch.rampup_start=4", "batch.rampup_increment=4",
                 "batch.rampup_samples=100", "parallel.dp=8"),
            0, "does not divide a batch of 4 leaves",
            "(the ramp-up's first batch: ", "batch.rampup_start = 4)", NULL);
    refused(KEYS(GPT2, "batch.rampup_start=8", "batch.rampup_increment=4",
                 "batch.rampup_samples=100", "parallel.dp=8"),
            0, "does not divide a batch of 12 leaves", "(the ramp-up's batch of 12 sequences: ",
            "batch.rampup_start = 8, batch.rampup_increment = 4)", NULL);
    refused(KEYS("model.preset=gpt2-tiny", "batch.global=12", "batch.rampup_start=2",
                 "batch.rampup_increment=5", "batch.rampup_samples=9", "parallel.dp=3"),
            0, "parallel.dp = 3: it does not divide a batch of 2 leaves",
            "(the ramp-up's first batch: batch.rampup_start = 2)", NULL);
    refused(KEYS("model.preset=gpt2-tiny", "batch.global=12", "batch.rampup_start=4",
                 "batch.rampup_increment=4", "batch.rampup_samples=9", "parallel.dp=3",
                 "numerics.leaf_sequences=4"),
            0, "a batch of 1 leaf of 4 sequences", "batch.rampup_start = 4)", NULL);
    /* The last batch, of four sequences, can be shared by token rows; one of one sequence cannot.
     */
    refused(KEYS(GPT2, "data.sequence=48", "batch.global=4", "batch.micro=4", "parallel.tp=4",
                 "parallel.sp=true", "batch.rampup_start=1", "batch.rampup_increment=1",
                 "batch.rampup_samples=9"),
            0, "parallel.sp = true: 4 tp ranks", "a micro-batch of 1 sequence by",
            "(the ramp-up's first batch: batch.rampup_start = 1)", NULL);
    struct ls_layout layout = admitted(
        KEYS(GPT2, "data.sequence=48", "batch.global=8", "batch.micro=4", "parallel.tp=4",
             "batch.rampup_start=4", "batch.rampup_increment=2", "batch.rampup_samples=9"));
    assert_non_null(strstr(layout.note, "micro-batch of 2 sequences by"));
    assert_non_null(strstr(layout.note, "(the ramp-up's batch of 6 sequences: batch.rampup_start "
                                        "= 4, batch.rampup_increment = 2)"));
}

CASE(test_fast_lifts_the_trees)
{
    admitted(KEYS("model.preset=gpt2-124m", "numerics.mode=fast", "batch.global=18",
                  "parallel.dp=3", "parallel.tp=3", "batch.micro=3"));
    struct ls_layout layout = admitted(KEYS(GPT2, "numerics.mode=fast", "parallel.cp=4"));
    assert_int_equal(layout.numerics.seq_tiles, 4);
}

SUITE_MAIN(NULL, NULL)
