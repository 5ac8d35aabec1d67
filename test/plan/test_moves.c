/* What layouts move: the list of each rank, the proof that ranks agree, and the formulas. */
#include "layouts.h"
#include "plan/walk.h"

#include <lockstep/plan/moves.h>
#include <lockstep/train/compare.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
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

/* ---- formulas ----------------------------------------------------------------------------------
 */

struct sums {
    const struct ls_layout *layout;
    int64_t rank, bytes[LS_GROUPS], moves;
};

static int add_bytes(void *user, const struct ls_move *move, struct ls_error *error)
{
    (void)error;
    struct sums *sums = user;
    if (strcmp(move->what, "loss") != 0)
        sums->bytes[move->group] += ls_move_bytes(sums->layout, sums->rank, move);
    sums->moves++;
    return LS_OK;
}

static void sum_up(const struct ls_layout *layout, int64_t rank, struct sums *sums)
{
    struct ls_error error = {0};
    *sums = (struct sums){.layout = layout, .rank = rank};
    if (ls_layout_moves(layout, layout->leaves, rank, add_bytes, sums, &error))
        fail_msg("%s", error.text);
}

static struct ls_layout_bytes bytes_of(const struct ls_layout *layout, int64_t rank)
{
    struct ls_layout_bytes bytes;
    struct ls_error error = {0};
    if (ls_layout_bytes(layout, layout->leaves, rank, &bytes, &error))
        fail_msg("%s", error.text);
    return bytes;
}

static void test_formulas_are_the_sums_of_moves(void **state)
{
    (void)state;
    for (int i = 0; i < LAYOUTS; i++) {
        struct ls_layout layout = admitted(layouts[i]);
        for (int64_t rank = 0; rank < layout.ranks; rank++) {
            struct sums sums;
            sum_up(&layout, rank, &sums);
            struct ls_layout_bytes bytes = bytes_of(&layout, rank);
            const int64_t pairs[][2] = {
                {bytes.tp, sums.bytes[LS_GROUP_TP] + sums.bytes[LS_GROUP_SHARERS]},
                {bytes.cp, sums.bytes[LS_GROUP_CP]},
                {bytes.pp, sums.bytes[LS_GROUP_PP]},
                {bytes.shard, sums.bytes[LS_GROUP_SHARD]},
                {bytes.replicate, sums.bytes[LS_GROUP_REPLICATE]},
            };
            static const char *const names[] = {"tp", "cp", "pp", "shard", "replicate"};
            for (int k = 0; k < 5; k++)
                if (pairs[k][0] != pairs[k][1])
                    fail_msg("layout %d rank %ld %s: the formula gives %ld bytes, the moves %ld", i,
                             (long)rank, names[k], (long)pairs[k][0], (long)pairs[k][1]);
        }
    }
}

/* The literature's figures, on shapes that divide evenly. */
static void test_figures_of_the_papers(void **state)
{
    (void)state;
    struct ls_layout layout = admitted(KEYS(GPT2, "parallel.dp=4", "numerics.precision=fp32"));
    struct ls_params params;
    struct ls_error error = {0};
    assert_int_equal(ls_params_init(&params, &layout.model, &layout.numerics, NULL, &error), LS_OK);
    int64_t gradients = 0;
    for (int i = 0; i < params.region_count; i++)
        gradients += 4 * params.regions[i].elements;
    /* Data parallel: 2 (d - 1) / d of the gradients. */
    assert_int_equal(bytes_of(&layout, 0).replicate, gradients / 4 * 2 * 3);
    /* ZeRO 1 and 2 (one micro-batch): the same of the parameters, which the tied table's second
     * gradient is none of; ZeRO 3: half as much again, but for the embedding, which its backward
     * does not read. */
    int64_t table = 4 * layout.model.vocab_padded * layout.model.channels;
    int64_t parameters = gradients - table;
    layout = admitted(KEYS(GPT2, "parallel.dp=4", "numerics.precision=fp32", "parallel.zero=1"));
    assert_int_equal(bytes_of(&layout, 0).shard, parameters / 4 * 2 * 3 + table / 4 * 3);
    layout = admitted(KEYS(GPT2, "parallel.dp=4", "numerics.precision=fp32", "parallel.zero=3",
                           "model.tied=false"));
    ls_params_release(&params);
    assert_int_equal(ls_params_init(&params, &layout.model, &layout.numerics, NULL, &error), LS_OK);
    parameters = 4 * params.elements;
    int64_t embedding = 4 * params.units[0].elements;
    assert_int_equal(bytes_of(&layout, 0).shard, (3 * parameters - embedding) / 4 * 3);
    ls_params_release(&params);
    /* Tensor parallel: 4 all-reduces of [M, C] a block; in float32 exactly that. */
    layout = admitted(KEYS(GPT2, "parallel.tp=4", "parallel.sp=false", "numerics.precision=fp32",
                           "batch.micro=16"));
    int64_t rows = 16 * 256, product = 4 * rows * 96;
    int64_t blocks = 6 * 4 * 2 * (product / 4 * 3), ends = 2 * 2 * (product / 4 * 3);
    assert_int_equal(bytes_of(&layout, 0).tp, blocks + ends + 3 * 2 * (4 * rows / 4 * 3));
    /* Pipeline: an activation each way a boundary and micro-batch. */
    layout = admitted(KEYS(GPT2, "parallel.pp=3", "batch.micro=2", "model.tied=false"));
    int64_t activation = 2 * (2 * 256 * 96);
    assert_int_equal(bytes_of(&layout, 0).pp, 8 * activation);
    assert_int_equal(bytes_of(&layout, 1).pp, 8 * 2 * activation);
}

/* ---- proof --------------------------------------------------------------------------------------
 */

static void test_layouts_are_proved(void **state)
{
    (void)state;
    for (int i = 0; i < LAYOUTS; i++) {
        struct ls_layout layout = admitted(layouts[i]);
        struct ls_layout_proof proof;
        struct ls_error error = {0};
        if (ls_layout_check(&layout, &proof, &error))
            fail_msg("layout %d: %s", i, error.text);
        assert_int_equal(proof.ranks, layout.ranks);
        assert_true((proof.groups > 0) == (layout.ranks > 1));
        assert_true(proof.collectives + proof.messages > 0 || layout.ranks == 1);
    }
}

/* Layouts drawn at random: each is proved, and its bytes are those of the formulas. */
static void test_random_layouts_are_proved(void **state)
{
    (void)state;
    const char *const *const recipes[] = {
        KEYS(GPT2, "numerics.seq_tiles=2"), KEYS(LLAMA, "numerics.seq_tiles=4"),
        KEYS(LLAMA, "numerics.leaf_sequences=2", "model.tied=true"),
        KEYS(GPT2, "numerics.mode=fast"), KEYS(GPT2, "batch.global=12")};
    static struct ls_layout layout;
    int found = 0;
    for (int i = 0; i < 200; i++) {
        struct ls_config config = config_of(recipes[i % 5]);
        struct ls_draw draw = {.seed = 7, .index = (uint64_t)i, .ranks_max = 32};
        struct ls_layout_proof proof;
        struct ls_error error = {0};
        struct ls_config drawn;
        if (!ls_draw_layout(&config, &draw, &drawn) || ls_config_layout(&drawn, 0, &layout, NULL))
            continue;
        found++;
        if (ls_layout_check(&layout, &proof, &error))
            fail_msg("layout %d: %s", i, error.text);
        int64_t rank = i % layout.ranks;
        struct sums sums;
        sum_up(&layout, rank, &sums);
        struct ls_layout_bytes b = bytes_of(&layout, rank);
        int64_t formula = b.tp + b.cp + b.pp + b.shard + b.replicate, moved = 0;
        for (int group = 0; group < LS_GROUPS; group++)
            moved += sums.bytes[group];
        if (formula != moved)
            fail_msg("layout %d: the formulas give %ld bytes, the moves %ld", i, (long)formula,
                     (long)moved);
    }
    assert_true(found > 150);
}

/* A rank that does something else than what was derived for it. */
enum twist { HONEST, DROPS, REPEATS, OTHER_COUNT, OTHER_TYPE, SWAPS };
struct twisted {
    struct ls_move_proof *proof;
    int64_t rank, at, seen;
    enum twist twist;
    struct ls_move held;
};

static int twisted_move(void *user, const struct ls_move *given, struct ls_error *error)
{
    struct twisted *t = user;
    struct ls_move move = *given;
    bool here = t->seen == t->at, next = t->seen == t->at + 1;
    t->seen++;
    if (here && t->twist == OTHER_COUNT)
        move.count++;
    if (here && t->twist == OTHER_TYPE)
        move.dtype = LS_F64;
    if (here && t->twist == DROPS)
        return LS_OK;
    if (here && t->twist == SWAPS) {
        t->held = move;
        return LS_OK;
    }
    int status = ls_move_proof_add(t->proof, t->rank, &move, error);
    if (!status && here && t->twist == REPEATS)
        status = ls_move_proof_add(t->proof, t->rank, &move, error);
    if (!status && next && t->twist == SWAPS)
        status = ls_move_proof_add(t->proof, t->rank, &t->held, error);
    return status;
}

static int prove_twisted(const struct ls_layout *layout, int64_t who, int64_t at, enum twist twist,
                         struct ls_error *error)
{
    struct ls_move_proof *proof;
    assert_int_equal(ls_move_proof_new(layout, &proof, error), LS_OK);
    for (int64_t rank = 0; rank < layout->ranks; rank++) {
        struct twisted t = {
            .proof = proof, .rank = rank, .at = at, .twist = rank == who ? twist : HONEST};
        assert_int_equal(ls_layout_moves(layout, layout->leaves, rank, twisted_move, &t, error),
                         LS_OK);
    }
    int status = ls_move_proof_finish(proof, error);
    ls_move_proof_free(proof);
    return status;
}

static void test_a_rank_that_strays_is_caught(void **state)
{
    (void)state;
    struct ls_layout layout =
        admitted(KEYS(LLAMA, "parallel.pp=2", "parallel.dp=2", "parallel.cp=2", "parallel.tp=2",
                      "parallel.zero=2", "numerics.seq_tiles=2"));
    struct ls_error error = {0};
    if (prove_twisted(&layout, 5, 0, HONEST, &error))
        fail_msg("%s", error.text);
    struct sums sums;
    sum_up(&layout, 5, &sums);
    for (int twist = DROPS; twist <= OTHER_TYPE; twist++)
        for (int64_t at = 0; at < sums.moves; at += 1 + sums.moves / 37) {
            int status = prove_twisted(&layout, 5, at, (enum twist)twist, &error);
            if (status != LS_ELAYOUT)
                fail_msg("twist %d at move %ld went unnoticed", twist, (long)at);
            if (!strstr(error.text, "rank"))
                fail_msg("no rank is named: %s", error.text);
        }
}

struct find {
    int64_t seen, at;
    struct ls_move last;
};
/* The first two neighbouring collectives of different groups. */
static int find_pair(void *user, const struct ls_move *move, struct ls_error *error)
{
    (void)error;
    struct find *find = user;
    bool both = move->kind != LS_COMM_SEND && find->seen && find->last.kind != LS_COMM_SEND;
    if (find->at < 0 && both && move->group != find->last.group)
        find->at = find->seen - 1;
    find->last = *move;
    find->seen++;
    return LS_OK;
}

/* Each group for itself is in order, but two ranks come to two groups the other way round. */
static void test_groups_that_wait_for_each_other_are_caught(void **state)
{
    (void)state;
    struct ls_layout layout =
        admitted(KEYS(LLAMA, "parallel.dp=2", "parallel.cp=2", "parallel.tp=2", "parallel.zero=2",
                      "numerics.seq_tiles=2"));
    struct ls_error error = {0};
    struct find find = {.at = -1};
    assert_int_equal(ls_layout_moves(&layout, layout.leaves, 3, find_pair, &find, &error), LS_OK);
    assert_true(find.at >= 0);
    assert_int_equal(prove_twisted(&layout, 3, find.at, SWAPS, &error), LS_ELAYOUT);
    assert_non_null(strstr(error.text, "different orders"));
}

/* ---- rings ------------------------------------------------------------------------------------
 */

/* A fault in the list of a ring, on the ranks of one place on cp. */
enum fault { SOUND, ITEM_DROPPED, ITEM_ADDED, ITEM_OF_OTHER_COUNT, ITEM_OF_OTHER_TYPE, FAULTS };
static struct {
    enum fault fault;
    int at;
} ring_fault;

int __real_plan_ring_init(const struct ls_layout *layout, int64_t cp_rank, bool backward,
                          struct plan_ring *ring, struct ls_error *error);
int __wrap_plan_ring_init(const struct ls_layout *layout, int64_t cp_rank, bool backward,
                          struct plan_ring *ring, struct ls_error *error);
int __wrap_plan_ring_init(const struct ls_layout *layout, int64_t cp_rank, bool backward,
                          struct plan_ring *ring, struct ls_error *error)
{
    int status = __real_plan_ring_init(layout, cp_rank, backward, ring, error);
    if (status || ring_fault.fault == SOUND || cp_rank != 1 || !backward)
        return status;
    struct plan_ring_item *item = &ring->items[ring_fault.at];
    switch (ring_fault.fault) {
    case ITEM_DROPPED:
        memmove(item, item + 1, (size_t)(ring->count - ring_fault.at - 1) * sizeof *item);
        ring->count--;
        break;
    case ITEM_ADDED: /* in place of the one behind it */
        item[1] = item[0];
        break;
    case ITEM_OF_OTHER_COUNT:
        item->count++;
        break;
    default:
        item->dtype = LS_F64;
        break;
    }
    return status;
}

/* ls_layout_check takes a ring's list as a whole: any fault in it is seen as if its moves had come
 * one by one; a message and a sharers' all-reduce alike. */
static void test_a_ring_that_strays_is_caught(void **state)
{
    (void)state;
    struct ls_layout layout =
        admitted(KEYS(LLAMA, "parallel.tp=4", "parallel.cp=4", "numerics.seq_tiles=4",
                      "parallel.cp_method=ring", "parallel.pp=2"));
    struct ls_layout_proof proof;
    struct ls_error error = {0};
    struct plan_ring ring;
    assert_int_equal(__real_plan_ring_init(&layout, 1, true, &ring, &error), LS_OK);
    int count = ring.count, shared = 0;
    for (int i = 0; i < count; i++)
        shared += ring.items[i].group == LS_GROUP_SHARERS;
    assert_true(shared > 0 && shared < count);
    if (ls_layout_check(&layout, &proof, &error))
        fail_msg("%s", error.text);
    for (int fault = SOUND + 1; fault < FAULTS; fault++)
        for (int at = 0; at + 1 < count; at++) {
            const struct plan_ring_item *a = &ring.items[at], *b = &ring.items[at + 1];
            bool alike = a->group == b->group && a->receive == b->receive && a->peer == b->peer;
            /* Each rank of the sharers has the same fault: they agree on it. */
            bool agreed = a->group == LS_GROUP_SHARERS &&
                          (fault != ITEM_ADDED || b->group == LS_GROUP_SHARERS);
            if (agreed || (fault == ITEM_ADDED && alike))
                continue;
            ring_fault.fault = (enum fault)fault;
            ring_fault.at = at;
            int status = ls_layout_check(&layout, &proof, &error);
            ring_fault.fault = SOUND;
            if (status != LS_ELAYOUT || !strstr(error.text, "rank"))
                fail_msg("fault %d at item %d went unnoticed: %s", fault, at, error.text);
        }
    plan_ring_release(&ring);
}

struct total {
    int64_t collectives, messages;
};
static int total_move(void *user, const struct ls_move *move, struct ls_error *error)
{
    (void)error;
    struct total *total = user;
    total->collectives += move->kind != LS_COMM_SEND;
    total->messages += move->kind == LS_COMM_SEND && !move->receive;
    return LS_OK;
}

/* Nothing is left out: what is proved is what the ranks' lists have. */
static void test_a_rings_moves_are_all_proved(void **state)
{
    (void)state;
    struct ls_layout layout =
        admitted(KEYS(LLAMA, "parallel.tp=4", "parallel.cp=4", "numerics.seq_tiles=4",
                      "parallel.cp_method=ring", "parallel.pp=2"));
    struct ls_layout_proof proof;
    struct ls_error error = {0};
    struct total total = {0};
    for (int64_t rank = 0; rank < layout.ranks; rank++)
        assert_int_equal(ls_layout_moves(&layout, layout.leaves, rank, total_move, &total, &error),
                         LS_OK);
    assert_int_equal(ls_layout_check(&layout, &proof, &error), LS_OK);
    assert_int_equal(proof.collectives, total.collectives);
    assert_int_equal(proof.messages, total.messages);
}

/* The proof of a ring over 16,384 ranks takes about as many steps as that of the other method,
 * however many messages it has. Counted, not timed. */
static void test_a_ring_costs_no_more_than_what_it_repeats(void **state)
{
    (void)state;
#define LARGE                                                                                      \
    "model.preset=llama-405b", "data.sequence=131072", "batch.global=128", "batch.micro=1",        \
        "numerics.tp_tiles=8", "numerics.seq_tiles=16", "parallel.pp=16", "parallel.dp_shard=8",   \
        "parallel.cp=16", "parallel.tp=8", "parallel.zero=2", "parallel.schedule=zbv"
    struct ls_error error = {0};
    struct ls_layout_proof gathered, ring;
    struct ls_layout layout = admitted(KEYS(LARGE));
    if (ls_layout_check(&layout, &gathered, &error))
        fail_msg("%s", error.text);
    layout = admitted(KEYS(LARGE, "parallel.cp_method=ring"));
    if (ls_layout_check(&layout, &ring, &error))
        fail_msg("%s", error.text);
    assert_int_equal(ring.ranks, 16384);
    assert_int_equal(gathered.folds, gathered.collectives + 2 * gathered.messages);
    if (ring.messages < 100 * gathered.messages || ring.folds > 4 * gathered.folds)
        fail_msg("%ld messages in %ld folds, and %ld in %ld without a ring", (long)ring.messages,
                 (long)ring.folds, (long)gathered.messages, (long)gathered.folds);
}

/* ---- groups -------------------------------------------------------------------------------------
 */

static void test_groups_partition_the_ranks(void **state)
{
    (void)state;
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

/* ---- memory -------------------------------------------------------------------------------------
 */

static struct ls_layout_memory memory_of(const char *const *keys)
{
    struct ls_layout layout = admitted(keys);
    struct ls_layout_memory memory;
    struct ls_error error = {0};
    if (ls_layout_memory(&layout, 0, 2, &memory, &error))
        fail_msg("%s", error.text);
    return memory;
}

static void near(double value, double expected, const char *what)
{
    if (value < expected * 0.98 || value > expected * 1.02)
        fail_msg("%s: %g, expected %g", what, value, expected);
}

/* Figure 1 of the ZeRO paper: 16 bytes a parameter (here 18: two of them a rounded copy), of which
 * stage 1 shards 12, stage 2 also the gradients, stage 3 all. */
static void test_memory_of_zero(void **state)
{
    (void)state;
#define ZERO(stage)                                                                                \
    KEYS("model.preset=gpt2-124m", "batch.global=64", "batch.micro=1", "parallel.dp_shard=64",     \
         "model.tied=false", "parallel.zero=" stage)
    struct ls_layout layout = admitted(ZERO("0"));
    struct ls_params params;
    struct ls_error error = {0};
    assert_int_equal(ls_params_init(&params, &layout.model, &layout.numerics, NULL, &error), LS_OK);
    double p = (double)params.elements;
    ls_params_release(&params);
    struct ls_layout_memory m = memory_of(ZERO("0"));
    near((double)m.parameters, 6 * p, "zero 0, parameters");
    near((double)m.gradients, 4 * p, "zero 0, gradients");
    near((double)m.optimizer, 8 * p, "zero 0, optimizer");
    m = memory_of(ZERO("1"));
    near((double)m.parameters, 2 * p + 4 * p / 64, "zero 1, parameters");
    near((double)m.gradients, 4 * p + 4 * p / 64, "zero 1, gradients");
    near((double)m.optimizer, 8 * p / 64, "zero 1, optimizer");
    m = memory_of(ZERO("2"));
    near((double)m.gradients, 4 * p / 64, "zero 2, gradients");
    m = memory_of(ZERO("3"));
    near((double)(m.parameters + m.gradients + m.optimizer), 18 * p / 64, "zero 3");
}

static void test_live_micro_batches(void **state)
{
    (void)state;
    assert_int_equal(memory_of(KEYS(GPT2, "parallel.pp=4", "batch.micro=1")).live, 4);
    assert_int_equal(
        memory_of(KEYS(GPT2, "parallel.pp=4", "batch.micro=1", "parallel.schedule=gpipe")).live,
        16);
    assert_int_equal(memory_of(KEYS(GPT2, "batch.micro=1")).live, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formulas_are_the_sums_of_moves),
        cmocka_unit_test(test_figures_of_the_papers),
        cmocka_unit_test(test_layouts_are_proved),
        cmocka_unit_test(test_random_layouts_are_proved),
        cmocka_unit_test(test_a_rank_that_strays_is_caught),
        cmocka_unit_test(test_groups_that_wait_for_each_other_are_caught),
        cmocka_unit_test(test_a_ring_that_strays_is_caught),
        cmocka_unit_test(test_a_rings_moves_are_all_proved),
        cmocka_unit_test(test_a_ring_costs_no_more_than_what_it_repeats),
        cmocka_unit_test(test_groups_partition_the_ranks),
        cmocka_unit_test(test_memory_of_zero),
        cmocka_unit_test(test_live_micro_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
