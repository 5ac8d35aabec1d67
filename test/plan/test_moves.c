/* What layouts move, as the trainer records it: the formulas of the literature, and the proof that
 * ranks' lists fit together. */
#include "../support/extent.h"
#include "../support/suite.h"
#include "formulas.h"
#include "layouts.h"

#include <lockstep/compare.h>
#include <lockstep/plan/simulate.h>
#include <lockstep/train/recorded.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPT2                                                                                       \
    "model.arch=gpt2", "model.layers=6", "model.channels=96", "model.heads=12", "model.vocab=300", \
        "model.context=256", "batch.global=16"
#define LLAMA                                                                                      \
    "model.arch=llama", "model.layers=5", "model.channels=64", "model.heads=8",                    \
        "model.kv_heads=2", "model.ffn=192", "model.vocab=300", "model.context=512",               \
        "batch.global=16"

static const char *const *const layouts[] = {
    KEYS(GPT2, "batch.micro=2"),
    KEYS(GPT2, "parallel.dp=2", "comm.bucket_mb=1"),
    KEYS(GPT2, "parallel.dp=4", "parallel.zero=1", "numerics.precision=fp32"),
    KEYS(GPT2, "parallel.dp_replicate=2", "parallel.dp_shard=2", "parallel.zero=2",
         "batch.micro=1"),
    KEYS(GPT2, "parallel.dp_shard=4", "parallel.zero=3", "batch.micro=2", "parallel.persist=100"),
    KEYS(GPT2, "parallel.dp_shard=2", "parallel.zero=3", "parallel.reshard_after_forward=false"),
    KEYS(GPT2, "parallel.tp=4", "parallel.sp=false"),
    KEYS(GPT2, "parallel.tp=2", "batch.micro=4"),
    KEYS(GPT2, "parallel.pp=3", "batch.micro=1", "model.tied=true"),
    KEYS(GPT2, "parallel.pp=4", "batch.micro=1", "parallel.schedule=gpipe"),
    KEYS(GPT2, "parallel.pp=2", "batch.micro=2", "parallel.schedule=interleaved",
         "parallel.chunks=3"),
    KEYS(GPT2, "parallel.pp=2", "batch.micro=2", "parallel.schedule=zb-h1", "parallel.tp=2"),
    KEYS(GPT2, "parallel.pp=3", "batch.micro=1", "parallel.schedule=zbv", "model.tied=true"),
    KEYS(GPT2, "parallel.pp=2", "batch.micro=1", "parallel.schedule=dualpipev", "parallel.dp=2",
         "parallel.zero=2"),
    KEYS(LLAMA, "parallel.cp=2", "numerics.seq_tiles=4"),
    KEYS(LLAMA, "parallel.cp=4", "numerics.seq_tiles=4", "parallel.cp_method=ring", "parallel.dp=2",
         "parallel.zero=1"),
    KEYS(LLAMA, "parallel.tp=8"),
    KEYS(LLAMA, "parallel.tp=8", "parallel.cp=2", "numerics.seq_tiles=2"),
    KEYS(LLAMA, "parallel.tp=4", "parallel.cp=2", "numerics.seq_tiles=4",
         "parallel.cp_method=ring"),
    KEYS(LLAMA, "parallel.pp=2", "parallel.dp_replicate=2", "parallel.dp_shard=2", "parallel.cp=2",
         "parallel.tp=2", "parallel.zero=3", "numerics.seq_tiles=2", "parallel.schedule=zbv"),
    KEYS(GPT2, "numerics.mode=fast", "numerics.reduce=bf16", "parallel.dp=2", "parallel.zero=2"),
    KEYS(GPT2, "numerics.mode=fast", "parallel.tp=3", "parallel.dp=2", "batch.micro=3"),
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

/* ---- formulas -------------------------------------------------------------------------------- */

/* What a rank sends by account between the first step and the last, without the loss. */
static void sent_of(const struct ls_config *config, const struct ls_layout *layout, int64_t rank,
                    int64_t sent[LS_ACCOUNTS])
{
    const int64_t leaves[] = {layout->ramp.full, layout->ramp.full};
    int64_t begins[2];
    struct ls_recording recording;
    struct ls_error error = {0};
    ls_recording_init(&recording);
    assert_ok(ls_record_steps(config, layout, rank, 2, leaves, &recording, begins, &error), error);
    for (int a = 0; a < LS_ACCOUNTS; a++)
        sent[a] = 0;
    for (int64_t i = begins[1]; i < recording.count; i++) {
        const struct ls_recorded *move = &recording.list[i];
        if (!move->operation.label || strcmp(move->operation.label, "loss") != 0)
            sent[ls_account_of(layout, (enum ls_layout_group)move->group)] +=
                ls_move_bytes(layout, rank, move);
    }
    ls_recording_release(&recording);
}

static void check_formulas(const struct ls_config *config, const struct ls_layout *layout,
                           int which, int64_t rank)
{
    int64_t sent[LS_ACCOUNTS];
    struct formula_bytes bytes = formula_bytes(layout, layout->ramp.full, rank);
    sent_of(config, layout, rank, sent);
    const int64_t formula[LS_ACCOUNTS] = {
        [LS_ACCOUNT_TP] = bytes.tp,
        [LS_ACCOUNT_CP] = bytes.cp,
        [LS_ACCOUNT_PP] = bytes.pp,
        [LS_ACCOUNT_SHARD] = bytes.shard,
        [LS_ACCOUNT_REPLICATE] = bytes.replicate,
    };
    for (int a = 0; a < LS_ACCOUNTS; a++)
        if (formula[a] != sent[a])
            fail_msg("layout %d rank %ld %s: the formula gives %ld bytes, the record %ld", which,
                     (long)rank, ls_account_name((enum ls_account)a), (long)formula[a],
                     (long)sent[a]);
}

CASE(test_the_record_follows_the_formulas)
{
    for (int i = 0; i < LAYOUTS; i++) {
        struct ls_config config = config_of(layouts[i]);
        struct ls_layout layout = admitted(layouts[i]);
        for (int64_t rank = 0; rank < layout.ranks; rank++)
            check_formulas(&config, &layout, i, rank);
    }
}

static int64_t bytes_of(const char *const *keys, int64_t rank, enum ls_account account)
{
    struct ls_config config = config_of(keys);
    struct ls_layout layout = admitted(keys);
    int64_t sent[LS_ACCOUNTS];
    sent_of(&config, &layout, rank, sent);
    return sent[account];
}

/* The literature's figures, on shapes that divide evenly. */
CASE(test_figures_of_the_papers)
{
#define FP32 "parallel.dp=4", "numerics.precision=fp32", "numerics.leaf_sequences=4"
    struct ls_layout layout = admitted(KEYS(GPT2, FP32));
    struct ls_params params;
    struct ls_error error = {0};
    assert_int_equal(ls_params_init(&params, &layout.model, &layout.numerics, NULL, &error), LS_OK);
    int64_t gradients = 0;
    for (int i = 0; i < params.region_count; i++)
        gradients += 4 * params.regions[i].elements;
    /* Data parallel: 2 (d - 1) / d of the gradients. */
    assert_int_equal(bytes_of(KEYS(GPT2, FP32), 0, LS_ACCOUNT_REPLICATE), gradients / 4 * 2 * 3);
    /* ZeRO 1 and 2 (one micro-batch): the same of the parameters, which the tied table's second
     * gradient is none of; ZeRO 3: half as much again, but for the embedding, which its backward
     * does not read. */
    int64_t table = 4 * layout.model.vocab_padded * layout.model.channels;
    int64_t parameters = gradients - table;
    assert_int_equal(bytes_of(KEYS(GPT2, FP32, "parallel.zero=1"), 0, LS_ACCOUNT_SHARD),
                     parameters / 4 * 2 * 3 + table / 4 * 3);
    const char *const *zero3 = KEYS(GPT2, FP32, "parallel.zero=3", "model.tied=false");
    layout = admitted(zero3);
    ls_params_release(&params);
    assert_int_equal(ls_params_init(&params, &layout.model, &layout.numerics, NULL, &error), LS_OK);
    parameters = 4 * params.elements;
    int64_t embedding = 4 * params.units[0].elements;
    assert_int_equal(bytes_of(zero3, 0, LS_ACCOUNT_SHARD), (3 * parameters - embedding) / 4 * 3);
    ls_params_release(&params);
    /* Tensor parallel: 4 all-reduces of [M, C] a block; in float32 exactly that. */
    int64_t rows = 16 * 256, product = 4 * rows * 96;
    int64_t blocks = 6 * 4 * 2 * (product / 4 * 3), ends = 2 * 2 * (product / 4 * 3);
    assert_int_equal(bytes_of(KEYS(GPT2, "parallel.tp=4", "parallel.sp=false",
                                   "numerics.precision=fp32", "batch.micro=16"),
                              0, LS_ACCOUNT_TP),
                     blocks + ends + 3 * 2 * (4 * rows / 4 * 3));
    /* Pipeline: an activation each way a boundary and micro-batch. */
    const char *const *pp = KEYS(GPT2, "parallel.pp=3", "batch.micro=2", "model.tied=false");
    int64_t activation = 2 * (2 * 256 * 96);
    assert_int_equal(bytes_of(pp, 0, LS_ACCOUNT_PP), 8 * activation);
    assert_int_equal(bytes_of(pp, 1, LS_ACCOUNT_PP), 8 * 2 * activation);
}

/* ---- matrices that meet in the optimizer ----------------------------------------------------- */

static const char *const *const muon[] = {
    KEYS(GPT2, "optim.name=muon", "parallel.dp=4"),
    KEYS(GPT2, "optim.name=muon", "parallel.dp=4", "parallel.zero=1"),
    KEYS(GPT2, "optim.name=muon", "parallel.dp_replicate=2", "parallel.dp_shard=2",
         "parallel.zero=2", "parallel.pp=2"),
    KEYS(GPT2, "optim.name=muon", "parallel.dp_shard=4", "parallel.zero=3", "parallel.tp=2"),
    KEYS(LLAMA, "optim.name=muon", "parallel.tp=8"),
    KEYS(LLAMA, "optim.name=muon", "parallel.tp=4", "parallel.cp=2", "numerics.seq_tiles=2",
         "parallel.dp_shard=2", "parallel.zero=1"),
};
enum { MUON = sizeof muon / sizeof muon[0] };

/* What the ranks of a stage send of its matrices, where all parts of one are equal: each rank but
 * the owner sends its part once a copy, and gets its part of the result. */
static int64_t muon_formula(const struct ls_layout *layout, int64_t pp_rank)
{
    bool held[LS_LAYOUT_LAYERS_MAX + 2];
    struct ls_params params;
    struct ls_error error = {0};
    int64_t ranks = ls_mesh_ranks(&layout->sets[0].mesh), bytes = 0;
    ls_layout_layers(layout, pp_rank, held, NULL);
    assert_int_equal(ls_layout_params(layout, 0, held, &params, &error), LS_OK);
    for (int i = 0; i < params.count; i++) {
        const struct ls_param *param = &params.list[i];
        int64_t part = ls_dtensor_local_shape(&param->spec, 0, NULL);
        int64_t parts = param->global_rows * param->global_cols / part;
        if (param->hidden)
            bytes += 4 * part * (parts - 1 + ranks - 1);
    }
    ls_params_release(&params);
    return bytes;
}

CASE(test_matrices_meet_once)
{
    for (int i = 0; i < MUON; i++) {
        struct ls_config config = config_of(muon[i]);
        struct ls_layout layout = admitted(muon[i]);
        int64_t each = layout.ranks / layout.size[LS_AXIS_PP], most = 0, all = 0;
        for (int64_t rank = 0; rank < layout.ranks; rank++) {
            int64_t sent[LS_ACCOUNTS];
            sent_of(&config, &layout, rank, sent);
            most = ls_max(most, sent[LS_ACCOUNT_OPTIMIZER]);
            all += sent[LS_ACCOUNT_OPTIMIZER];
            if ((rank + 1) % each)
                continue;
            int64_t formula = muon_formula(&layout, rank / each);
            if (all != formula)
                fail_msg("layout %d, stage of rank %ld: %ld bytes, the formula gives %ld", i,
                         (long)rank, (long)all, (long)formula);
            /* Matrices come in sizes, so no share is exact. */
            if (most > formula / each * 2)
                fail_msg("layout %d: a rank sends %ld of %ld bytes", i, (long)most, (long)all);
            all = most = 0;
        }
    }
}

/* ---- proof ----------------------------------------------------------------------------------- */

CASE(test_layouts_are_proved)
{
    for (int i = 0; i < LAYOUTS; i++) {
        struct ls_config config = config_of(layouts[i]);
        struct ls_layout layout = admitted(layouts[i]);
        struct ls_layout_proof proof;
        struct ls_error error = {0};
        if (ls_layout_check(&config, &layout, false, &proof, &error))
            fail_msg("layout %d: %s", i, error.text);
        assert_int_equal(proof.ranks, layout.ranks);
        assert_true((proof.groups > 0) == (layout.ranks > 1));
        assert_true(proof.collectives + proof.messages > 0 || layout.ranks == 1);
    }
}

static bool lists_same(const struct ls_recording *a, const struct ls_recording *b)
{
    bool same = a->count == b->count;
    for (int64_t i = 0; i < a->count && same; i++) {
        const struct ls_recorded *x = &a->list[i], *y = &b->list[i];
        same = x->group == y->group && x->operation.name == y->operation.name &&
               x->operation.dtype == y->operation.dtype &&
               x->operation.count == y->operation.count &&
               x->operation.receive == y->operation.receive &&
               x->operation.peer == y->operation.peer && x->operation.tag == y->operation.tag &&
               x->until == y->until && !x->operation.label == !y->operation.label &&
               (!x->operation.label || strcmp(x->operation.label, y->operation.label) == 0);
    }
    return same;
}

/* Blocks that are run again in the backward move what their forward moved: the formulas know the
 * forward and the backward alone. */
static bool recomputes(const struct ls_layout *layout)
{
    bool some = false;
    for (int64_t i = 1; i <= layout->model.layers; i++)
        some |= layout->recompute[i] != LS_RECOMPUTE_NONE;
    return some;
}

/* The rank does what the one does that stands for it. */
static void check_alike(const struct ls_config *config, const struct ls_layout *layout, int which,
                        int64_t rank)
{
    struct ls_recording lists[2];
    struct ls_move_proof *proof;
    struct ls_error error = {0};
    int64_t leaves[] = {layout->ramp.full, layout->ramp.full}, begins[2];
    assert_int_equal(ls_move_proof_new(layout, true, &proof, &error), LS_OK);
    const int64_t ranks[] = {rank, ls_move_proof_alike(proof, rank)};
    for (int i = 0; i < 2; i++) {
        ls_recording_init(&lists[i]);
        assert_ok(ls_record_steps(config, layout, ranks[i], 2, leaves, &lists[i], begins, &error),
                  error);
    }
    if (!lists_same(&lists[0], &lists[1]))
        fail_msg("layout %d: ranks %ld and %ld are not alike", which, (long)ranks[0],
                 (long)ranks[1]);
    ls_recording_release(&lists[0]);
    ls_recording_release(&lists[1]);
    ls_move_proof_free(proof);
}

/* Layouts drawn at random: each is proved, its bytes are those of the formulas, and the ranks that
 * one stands for do as it does. */
CASE(test_random_layouts_are_proved)
{
    const char *const *const recipes[] = {
        KEYS(GPT2, "numerics.seq_tiles=2"),
        KEYS(LLAMA, "numerics.seq_tiles=4"),
        KEYS(LLAMA, "numerics.leaf_sequences=2", "model.tied=true"),
        KEYS(GPT2, "numerics.mode=fast"),
        KEYS(GPT2, "batch.global=12"),
        KEYS(GPT2, "batch.rampup_start=4", "batch.rampup_increment=4", "batch.rampup_samples=30")};
    static struct ls_layout layout;
    const int draws = check_all() ? 240 : 120;
    int found = 0;
    for (int i = 0; i < draws; i++) {
        struct ls_config config = config_of(recipes[i % 6]);
        struct ls_draw draw = {.seed = 7, .index = (uint64_t)i, .ranks_max = 32};
        struct ls_layout_proof proof;
        struct ls_error error = {0};
        struct ls_config drawn;
        if (!ls_draw_layout(&config, &draw, &drawn) || ls_config_layout(&drawn, 0, &layout, NULL))
            continue;
        found++;
        if (ls_layout_check(&drawn, &layout, false, &proof, &error))
            fail_msg("layout %d: %s", i, error.text);
        if (!recomputes(&layout))
            check_formulas(&drawn, &layout, i, i % layout.ranks);
        check_alike(&drawn, &layout, i, layout.ranks - 1 - i % 3 % layout.ranks);
    }
    assert_true(found > draws * 3 / 4);
}

/* Sums go from replica to replica while stages of a pipeline wait for each other: all small layouts
 * with both, of which some waited in a circle where few layers of a stage have gradients. */
CASE(test_pipelines_of_replicas_are_proved)
{
    static const char *const frozen[] = {"train.frozen=", "train.frozen=wte.*,h.0.*",
                                         "train.frozen=wte.*,wpe.*,h.0.*,h.1.*"};
    static const char *const schedules[] = {"1f1b",  "gpipe", "interleaved",
                                            "zb-h1", "zbv",   "dualpipev"};
    static struct ls_layout layout;
    int proved = 0;
    const int every = check_every(5, 5);
    for (int i = 0; i < 5 * 3 * 6 * 2 * 2 * 2 * 3; i++) {
        if (i / 5 % every != i % 5 % every)
            continue;
        char layers[32], words[200];
        int at = i;
        snprintf(layers, sizeof layers, "model.layers=%d", 2 + at % 5);
        struct ls_config config =
            config_of(KEYS(GPT2, layers, "batch.global=12", "numerics.leaf_sequences=1",
                           "model.tied=true", frozen[(at /= 5) % 3]));
        int schedule = (at /= 3) % 6, micro = (at /= 6) % 2, zero = (at /= 2) % 2;
        int replicas = (at /= 2) % 2, stages = (at /= 2) % 3;
        snprintf(words, sizeof words,
                 "parallel.schedule=%s batch.micro=%d parallel.zero=%d parallel.dp_replicate=%d "
                 "parallel.pp=%d parallel.dp_shard=2",
                 schedules[schedule], 1 + micro, 1 + 2 * zero, 2 + replicas, 2 + stages);
        struct ls_layout_proof proof;
        struct ls_error error = {0};
        for (char *save, *word = strtok_r(words, " ", &save); word;
             word = strtok_r(NULL, " ", &save))
            assert_int_equal(ls_config_set(&config, word, &error), LS_OK);
        if (ls_config_layout(&config, 0, &layout, NULL))
            continue;
        if (ls_layout_check(&config, &layout, false, &proof, &error))
            fail_msg("%s %s %s, %ld ranks: %s", layers, frozen[i / 5 % 3], schedules[schedule],
                     (long)layout.ranks, error.text);
        proved++;
    }
    printf("%d layouts of pipelines and replicas are proved\n", proved);
    assert_true(proved > 600 / every);
}

/* ---- lists that do not fit ------------------------------------------------------------------- */

/* Every rank's list of two steps. */
struct lists {
    struct ls_layout layout;
    struct ls_recording *of; /* [ranks] */
};

static void lists_init(struct lists *lists, const char *const *keys)
{
    struct ls_config config = config_of(keys);
    struct ls_error error = {0};
    lists->layout = admitted(keys);
    lists->of = calloc((size_t)lists->layout.ranks, sizeof *lists->of);
    const int64_t leaves[] = {lists->layout.ramp.full, lists->layout.ramp.full};
    int64_t begins[2];
    for (int64_t rank = 0; rank < lists->layout.ranks; rank++)
        assert_ok(ls_record_steps(&config, &lists->layout, rank, 2, leaves, &lists->of[rank],
                                  begins, &error),
                  error);
}

static void lists_release(struct lists *lists)
{
    for (int64_t rank = 0; rank < lists->layout.ranks; rank++)
        ls_recording_release(&lists->of[rank]);
    free(lists->of);
}

/* The ticks that `until` asks for. */
static void ticks_renew(struct ls_recording *list)
{
    int64_t *waits = calloc((size_t)list->count + 2, sizeof *waits); /* before so many starts */
    assert_non_null(waits);
    for (int64_t i = 0; i < list->count; i++)
        if (list->list[i].until >= 0)
            waits[list->list[i].until + 1]++;
    for (int64_t i = 0; i <= list->count; i++)
        waits[i + 1] += waits[i];
    list->clock = list->count + waits[list->count + 1];
    for (int64_t i = 0; i < list->count; i++)
        list->list[i].started_at = i + waits[i + 1];
    for (int64_t i = 0; i < list->count; i++)
        if (list->list[i].until >= 0)
            list->list[i].waited_at = list->list[i].until + waits[list->list[i].until]++;
    free(waits);
}

static struct ls_move_time no_time(void *user, int64_t rank, const struct ls_recorded *move)
{
    return (struct ls_move_time){.seconds = 0};
}

/* The same of lists of which none stands for another, against a clock. */
static int lists_simulate(const struct lists *lists, struct ls_error *error)
{
    const struct ls_pace pace = {.move = no_time};
    struct ls_simulation *simulation;
    assert_int_equal(ls_simulation_new(&lists->layout, &pace, &simulation, error), LS_OK);
    for (int64_t rank = 0; rank < lists->layout.ranks; rank++)
        assert_int_equal(ls_simulation_add(simulation, rank, &lists->of[rank], 0, error), LS_OK);
    int status = ls_simulation_run(simulation, error);
    ls_simulation_free(simulation);
    return status;
}

static int lists_prove(const struct lists *lists, struct ls_layout_proof *out,
                       struct ls_error *error)
{
    struct ls_move_proof *proof;
    assert_int_equal(ls_move_proof_new(&lists->layout, false, &proof, error), LS_OK);
    for (int64_t rank = 0; rank < lists->layout.ranks; rank++) {
        ticks_renew(&lists->of[rank]);
        assert_int_equal(ls_move_proof_add(proof, rank, &lists->of[rank], error), LS_OK);
    }
    int status = ls_move_proof_finish(proof, out, error);
    ls_move_proof_free(proof);
    return status;
}

/* Proves with another list in the place of who's; and simulates, where no rank stands for another:
 * *simulated. */
static int prove_with(struct lists *lists, int64_t who, const struct ls_recording *other,
                      int *simulated, struct ls_error *error)
{
    struct ls_layout_proof out;
    struct ls_error late;
    struct ls_recording own = lists->of[who];
    lists->of[who] = *other;
    int status = lists_prove(lists, &out, error);
    bool all = lists->layout.ranks == lists->layout.size[LS_AXIS_PP];
    *simulated = all ? lists_simulate(lists, &late) : status;
    lists->of[who] = own;
    return status;
}

enum twist { DROPS, REPEATS, OTHER_COUNT, OTHER_TYPE, OTHER_LABEL, TWISTS };

/* A copy of list with operation `at` changed. Texts stay the list's. */
static struct ls_recording twisted(const struct ls_recording *list, int64_t at, enum twist twist)
{
    struct ls_recording out = {.count = list->count};
    out.list = malloc((size_t)(list->count + 1) * sizeof *out.list);
    memcpy(out.list, list->list, (size_t)list->count * sizeof *out.list);
    struct ls_recorded *move = &out.list[at];
    int64_t by = twist == DROPS ? -1 : twist == REPEATS ? 1 : 0;
    for (int64_t i = 0; i < out.count; i++)
        out.list[i].until += out.list[i].until > at ? by : 0;
    if (twist == DROPS)
        memmove(move, move + 1, (size_t)(out.count - at - 1) * sizeof *move);
    if (twist == REPEATS)
        memmove(move + 1, move, (size_t)(out.count - at) * sizeof *move);
    out.count += by;
    move->operation.count += twist == OTHER_COUNT;
    if (twist == OTHER_TYPE)
        move->operation.dtype = LS_F64;
    if (twist == OTHER_LABEL)
        move->operation.label = "another tensor";
    return out;
}

/* Any change to any operation of one rank: of every group, messages of a ring and a pipeline, sums
 * among sharers. */
static void check_twists(const char *const *keys, int64_t who, int64_t stride)
{
    struct lists lists;
    struct ls_layout_proof proof;
    struct ls_error error = {0};
    lists_init(&lists, keys);
    assert_ok(lists_prove(&lists, &proof, &error), error);
    for (int twist = 0; twist < TWISTS; twist++)
        for (int64_t at = 0; at < lists.of[who].count; at += stride) {
            struct ls_recording other = twisted(&lists.of[who], at, (enum twist)twist);
            int simulated, status = prove_with(&lists, who, &other, &simulated, &error);
            free(other.list);
            /* No time depends on a label. */
            if (status != LS_ELAYOUT || (simulated != status && twist != OTHER_LABEL))
                fail_msg("twist %d of operation %ld, %s of %s, went unnoticed", twist, (long)at,
                         lists.of[who].list[at].operation.name,
                         ls_group_name((enum ls_layout_group)lists.of[who].list[at].group));
            if (!strstr(error.text, "rank"))
                fail_msg("no rank is named: %s", error.text);
        }
    lists_release(&lists);
}

CASE(test_a_rank_that_strays_is_caught)
{
    check_twists(KEYS(LLAMA, "parallel.pp=2", "parallel.dp=2", "parallel.cp=2", "parallel.tp=2",
                      "parallel.zero=2", "numerics.seq_tiles=2"),
                 5, 31);
    check_twists(KEYS(LLAMA, "parallel.tp=4", "parallel.cp=4", "numerics.seq_tiles=4",
                      "parallel.cp_method=ring", "model.layers=1", "batch.global=2"),
                 5, 7);
    check_twists(KEYS(GPT2, "parallel.pp=3", "batch.micro=4", "parallel.schedule=zbv"), 1, 1);
}

/* ---- waiting in a circle --------------------------------------------------------------------- */

/* The first two neighbouring operations of groups a and b that are waited for at once. */
static int64_t neighbours(const struct ls_recording *list, enum ls_layout_group a,
                          enum ls_layout_group b)
{
    for (int64_t i = 0; i + 1 < list->count; i++)
        if (list->list[i].group == (int)a && list->list[i + 1].group == (int)b &&
            list->list[i].until == i + 1 && list->list[i + 1].until == i + 2)
            return i;
    fail_msg("no such operations");
    return -1;
}

static void swap_with_next(struct ls_recording *list, int64_t at)
{
    struct ls_recorded first = list->list[at];
    list->list[at] = list->list[at + 1];
    list->list[at + 1] = first;
    list->list[at].until = at + 1;
    list->list[at + 1].until = at + 2;
}

/* Ranks 0 and 1, 2 and 3 are tp groups; 0 and 2, 1 and 3 cp groups. One rank that comes to its two
 * groups the other way round is waited for; where two do, at opposite corners, all four wait. */
CASE(test_groups_that_wait_for_each_other_are_caught)
{
    struct lists lists;
    struct ls_layout_proof proof;
    struct ls_error error = {0};
    lists_init(&lists, KEYS(LLAMA, "parallel.cp=2", "parallel.tp=2", "numerics.seq_tiles=2",
                            "model.kv_heads=8", "parallel.sp=false"));
    int64_t at = neighbours(&lists.of[0], LS_GROUP_CP, LS_GROUP_TP);
    swap_with_next(&lists.of[1], at);
    assert_ok(lists_prove(&lists, &proof, &error), error);
    swap_with_next(&lists.of[2], at);
    assert_int_equal(lists_prove(&lists, &proof, &error), LS_ELAYOUT);
    for (int rank = 0; rank < 4; rank++) {
        char name[16];
        snprintf(name, sizeof name, "rank %d", rank);
        if (!strstr(error.text, name) || !strstr(error.text, "and so on in a circle"))
            fail_msg("%s", error.text);
    }
    lists_release(&lists);
}

/* A ring in which everybody waits for its send before it receives: a send may wait for its receive.
 */
CASE(test_a_ring_of_waiting_senders_is_caught)
{
    struct lists lists;
    struct ls_layout_proof proof;
    struct ls_error error = {0};
    lists_init(&lists, KEYS(GPT2, "parallel.pp=2", "batch.micro=2", "parallel.schedule=interleaved",
                            "parallel.chunks=3"));
    for (int64_t rank = 0; rank < lists.layout.ranks; rank++)
        for (int64_t i = 0; i < lists.of[rank].count; i++) {
            struct ls_recorded *move = &lists.of[rank].list[i];
            if (move->operation.kind == LS_COMM_SEND && !move->operation.receive)
                move->until = i + 1;
        }
    assert_int_equal(lists_prove(&lists, &proof, &error), LS_ELAYOUT);
    assert_non_null(strstr(error.text, "deadlock: rank 0 waits in its operation"));
    assert_non_null(strstr(error.text, "; rank 1 waits in its operation"));
    assert_int_equal(lists_simulate(&lists, &error), LS_ELAYOUT);
    assert_non_null(strstr(error.text, "deadlock: rank"));
    assert_non_null(strstr(error.text, "and so on in a circle"));
    lists_release(&lists);
}

/* ---- ranks that are alike -------------------------------------------------------------------- */

/* Proves with the lists of those that stand for others alone. */
static int lists_prove_alike(const struct lists *lists, struct ls_layout_proof *out,
                             struct ls_error *error)
{
    struct ls_move_proof *proof;
    assert_int_equal(ls_move_proof_new(&lists->layout, true, &proof, error), LS_OK);
    for (int64_t rank = 0; rank < lists->layout.ranks; rank++)
        if (ls_move_proof_alike(proof, rank) == rank) {
            ticks_renew(&lists->of[rank]);
            assert_int_equal(ls_move_proof_add(proof, rank, &lists->of[rank], error), LS_OK);
        }
    int status = ls_move_proof_finish(proof, out, error);
    ls_move_proof_free(proof);
    return status;
}

/* One rank for all that are alike proves what all of them do, and counts it. */
CASE(test_alike_ranks_prove_for_all)
{
    for (int i = 0; i < LAYOUTS; i++) {
        struct lists lists;
        struct ls_layout_proof all, alike;
        struct ls_error error = {0};
        lists_init(&lists, layouts[i]);
        if (lists_prove(&lists, &all, &error) || lists_prove_alike(&lists, &alike, &error))
            fail_msg("layout %d: %s", i, error.text);
        assert_int_equal(all.recorded, lists.layout.ranks);
        assert_true(alike.recorded <= all.recorded);
        assert_int_equal(alike.ranks, all.ranks);
        assert_int_equal(alike.groups, all.groups);
        assert_int_equal(alike.collectives, all.collectives);
        assert_int_equal(alike.messages, all.messages);
        lists_release(&lists);
    }
}

/* Where matrices meet each rank does something else: that is proved apart, with all of them, and
 * what is proved and counted together is what all lists are. */
CASE(test_matrices_are_proved_apart)
{
    for (int i = 0; i < MUON; i++) {
        struct ls_config config = config_of(muon[i]);
        struct lists lists;
        struct ls_layout_proof all, apart, rest;
        struct ls_error error = {0};
        lists_init(&lists, muon[i]);
        if (lists_prove(&lists, &all, &error) || lists_prove_alike(&lists, &rest, &error) ||
            ls_layout_check(&config, &lists.layout, false, &apart, &error))
            fail_msg("layout %d: %s", i, error.text);
        assert_true(apart.recorded < all.recorded && rest.messages < all.messages);
        assert_int_equal(apart.ranks, all.ranks);
        assert_int_equal(apart.groups, all.groups);
        assert_int_equal(apart.collectives, all.collectives);
        assert_int_equal(apart.messages, all.messages);
        lists_release(&lists);
    }
}

/* Of two ranks that stand for others one does not come to where the matrices meet. */
CASE(test_a_rank_that_stays_away_is_caught)
{
    struct lists lists;
    struct ls_layout_proof proof;
    struct ls_error error = {0};
    lists_init(&lists, muon[MUON - 1]);
    for (int64_t i = lists.of[0].count; i-- > 0;) {
        struct ls_recorded *list = lists.of[0].list;
        if (list[i].group != LS_GROUP_MATRICES)
            continue;
        struct ls_recording without = twisted(&lists.of[0], i, DROPS);
        lists.of[0].list = without.list;
        lists.of[0].count = without.count;
        free(list);
    }
    assert_int_equal(lists_prove_alike(&lists, &proof, &error), LS_ELAYOUT);
    assert_text_contains(error.text, "the matrices' meeting");
    lists_release(&lists);
}

/* Of a step of very many micro-batches. Nothing of the list is read. */
CASE(test_a_list_that_is_too_long_is_refused)
{
    const struct ls_recording recording = {.count = 1 << 25};
    struct lists lists;
    struct ls_move_proof *proof;
    struct ls_error error = {0};
    lists_init(&lists, muon[0]);
    assert_int_equal(ls_move_proof_new(&lists.layout, false, &proof, &error), LS_OK);
    assert_int_equal(ls_move_proof_add(proof, 0, &recording, &error), LS_ENOTSUP);
    assert_text_contains(error.text, "rank 0 makes 33554432 operations");
    assert_text_contains(error.text, "batch.micro");
    ls_move_proof_free(proof);
    lists_release(&lists);
}

/* 16,384 ranks are proved by 256 of them, also with a ring's hundred million messages; an eighth of
 * them, with an eighth of the micro-batches, in `make check`. Counted, not timed. */
CASE(test_many_ranks_are_recorded_once)
{
    const int64_t part = check_every(8, 8);
    const char *const *const keys = KEYS(
        "model.preset=llama-405b", "data.sequence=131072",
        part > 1 ? "batch.global=16" : "batch.global=128", "batch.micro=1", "numerics.tp_tiles=8",
        "numerics.seq_tiles=16", part > 1 ? "parallel.pp=2" : "parallel.pp=16",
        "parallel.dp_shard=8", "parallel.cp=16", "parallel.tp=8", "parallel.zero=2",
        "parallel.schedule=zbv", "parallel.cp_method=ring");
    struct ls_config config = config_of(keys);
    struct ls_layout layout = admitted(keys);
    struct ls_layout_proof proof;
    struct ls_error error = {0};
    assert_ok(ls_layout_check(&config, &layout, false, &proof, &error), error);
    assert_int_equal(proof.ranks, 16384 / part);
    assert_int_equal(proof.recorded, 256 / part);
    assert_true(proof.messages > 100000000 / part / part);
}

/* Copies that rank 0 makes in a step of one sequence, of so many ranks that share what it keeps. */
static int64_t copies_of(const char *ranks, const char *batch, const char *stage)
{
    const char *const *keys =
        KEYS("model.arch=gpt2", "model.layers=2", "model.channels=128", "model.heads=4",
             "model.context=16", ranks, batch, stage, "numerics.leaf_sequences=1");
    struct ls_config config = config_of(keys);
    struct ls_layout layout = admitted(keys);
    struct ls_error error = {0};
    struct ls_recording recording;
    int64_t second_at, copies = 0;
    ls_recording_init(&recording);
    assert_ok(ls_record_works(&config, &layout, 0, &recording, &second_at, &error), error);
    for (int64_t i = 0; i < recording.done_count; i++)
        copies += recording.done[i].at >= second_at &&
                  recording.works[recording.done[i].work].kind == LS_WORK_COPY;
    ls_recording_release(&recording);
    return copies;
}

/* What travels packed is copied for all ranks at once, tensor by tensor: not once for each rank. */
CASE(test_copies_are_as_many_for_many_ranks)
{
    const char *const stages[] = {"parallel.zero=1", "parallel.zero=2", "parallel.zero=3"};
    for (int i = 0; i < 3; i++) {
        int64_t few = copies_of("parallel.dp_shard=4", "batch.global=4", stages[i]);
        int64_t many = copies_of("parallel.dp_shard=64", "batch.global=64", stages[i]);
        if (few == 0 || many > 2 * few)
            fail_msg("%s: %ld copies for 4 ranks, %ld for 64", stages[i], (long)few, (long)many);
    }
}

/* ---- groups ---------------------------------------------------------------------------------- */

CASE(test_groups_partition_the_ranks)
{
    for (int i = 0; i < LAYOUTS; i++) {
        struct ls_layout layout = admitted(layouts[i]);
        for (int g = 0; g < LS_GROUPS; g++) {
            enum ls_layout_group group = (enum ls_layout_group)g;
            int64_t size = ls_group_size(&layout, group);
            assert_int_equal(layout.ranks % size, 0);
            for (int64_t rank = 0; rank < layout.ranks; rank++)
                for (int64_t k = 0; k < size; k++) {
                    int64_t member = ls_group_member(&layout, group, rank, k);
                    assert_int_equal(ls_group_rank(&layout, group, member), k);
                    assert_int_equal(ls_group_member(&layout, group, member,
                                                     ls_group_rank(&layout, group, rank)),
                                     rank);
                }
        }
    }
}

SUITE_MAIN(NULL, NULL)
