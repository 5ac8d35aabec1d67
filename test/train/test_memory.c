/* The memory plan beside what a run takes, and beside the literature's formulas. Nothing but tiny
 * models is allocated: a plan is made by walking the trainer's own code. */
#include "../support/config_words.h"
#include "../support/scratch.h"
#include "tokens.h"
#include "train/trainer.h"

#include <lockstep/compare.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- recipes --------------------------------------------------------------------------------- */

/* The recipe in a layout, without data: plans need none. */
static struct ls_config config_of(const char *recipe, const char *layout)
{
    return config_of_words("%s %s", recipe, layout);
}

static struct ls_memory_plan plan_of(const char *recipe, const char *layout)
{
    struct ls_config config = config_of(recipe, layout);
    struct ls_memory_plan plan;
    struct ls_error error = {0};
    if (ls_plan(&config, &plan, &error))
        fail_msg("%s %s: %s", recipe, layout, error.text);
    return plan;
}

static void near(const char *what, double bytes, double formula, double within)
{
    if (bytes < formula * (1 - within) || bytes > formula * (1 + within))
        fail_msg("%s: the plan has %.0f bytes, the formula gives %.0f: %.4f of it", what, bytes,
                 formula, bytes / formula);
}

/* ---- ZeRO ------------------------------------------------------------------------------------ */

/* Figure 1 of Rajbhandari et al. 2020: 16 bytes a parameter (here 18: gradients are float32), of
 * which stage 1 shards 12, stage 2 also the gradients, stage 3 all. The table of the head is not
 * tied, which would have a second gradient. */
static void test_state_is_that_of_the_zero_paper(void **state)
{
    (void)state;
    static const char recipe[] = "model.preset=gpt2-124m model.vocab=50257 model.tied=false "
                                 "batch.global=64 batch.micro=1";
    const double n = 64;
    struct ls_config config = config_of(recipe, "");
    struct ls_numerics numerics = ls_config_numerics(&config);
    struct ls_params params;
    struct ls_error error = {0};
    assert_int_equal(ls_params_init(&params, &config.model, &numerics, NULL, &error), LS_OK);
    const double p = (double)params.elements;
    ls_params_release(&params);
    const struct {
        const char *layout;
        double parameters, gradients, optimizer; /* bytes a parameter */
    } stages[] = {
        {"parallel.dp_shard=64", 6, 4, 8},
        {"parallel.dp_shard=64 numerics.precision=fp32", 4, 4, 8},
        {"parallel.dp_shard=64 parallel.zero=1", 2 + 4 / n, 4 + 4 / n, 8 / n},
        {"parallel.dp_shard=64 parallel.zero=2", 2 + 4 / n, 4 / n, 8 / n},
        {"parallel.dp_shard=64 parallel.zero=3", 6 / n, 4 / n, 8 / n},
    };
    for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++) {
        struct ls_memory_plan plan = plan_of(recipe, stages[i].layout);
        near(stages[i].layout, (double)plan.bytes[LS_MEMORY_PARAMETERS], stages[i].parameters * p,
             0.02);
        near(stages[i].layout, (double)plan.bytes[LS_MEMORY_GRADIENTS], stages[i].gradients * p,
             0.02);
        near(stages[i].layout, (double)plan.bytes[LS_MEMORY_OPTIMIZER], stages[i].optimizer * p,
             0.02);
    }
}

/* Micro-batches are added in a binary counter: a buffer for each level of the tree, and in mode
 * fast one. */
static void test_gradients_have_a_buffer_for_each_level(void **state)
{
    (void)state;
    static const char recipe[] = "model.preset=gpt2-tiny model.vocab=257 batch.global=16";
    double one = (double)plan_of(recipe, "batch.micro=16").bytes[LS_MEMORY_GRADIENTS];
    near("16 micro-batches", (double)plan_of(recipe, "batch.micro=1").bytes[LS_MEMORY_GRADIENTS],
         one * ls_accumulation_buffers(16), 0.001);
    near("the same, fast",
         (double)plan_of(recipe, "batch.micro=1 numerics.mode=fast").bytes[LS_MEMORY_GRADIENTS],
         one, 0.001);
}

/* ---- activations ----------------------------------------------------------------------------- */

/* What a block keeps: the difference that twelve more make. */
static double block_kept(const char *layout)
{
    size_t kept[2];
    for (int i = 0; i < 2; i++) {
        char recipe[200];
        snprintf(recipe, sizeof recipe,
                 "model.preset=gpt2-124m model.layers=%d model.vocab=50257 batch.global=64",
                 12 + 12 * i);
        kept[i] = plan_of(recipe, layout).bytes[LS_MEMORY_ACTIVATIONS];
    }
    return (double)(kept[1] - kept[0]) / 12;
}

/* Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models": with
 * flash attention 34 s b h bytes a layer, of which tensor parallel without sequence parallel cuts
 * 24. Ours are 32: dropout masks (2 s b h) are drawn again. What statistics of norms and of
 * attention take is added here. */
static void test_activations_are_korthikantis_less_the_masks(void **state)
{
    (void)state;
    const double s = 1024, h = 768, heads = 12;
    static const struct {
        const char *layout;
        double b, whole, cut, slots; /* bytes a token and channel: whole, cut by tp */
        double tp, stream;           /* ranks that share heads, rows of the stream */
    } cases[] = {
        {"batch.micro=1", 1, 8, 24, 1, 1, 1},
        {"batch.micro=4", 4, 8, 24, 1, 1, 1},
        {"batch.micro=4 model.dropout=0.1", 4, 8, 24, 1, 1, 1},
        {"batch.micro=4 numerics.precision=fp32", 4, 16, 48, 1, 1, 1},
        {"batch.micro=4 parallel.tp=4 parallel.sp=false", 4, 8, 24, 1, 4, 1},
        {"batch.micro=4 parallel.tp=4 parallel.sp=true", 4, 8, 24, 1, 4, 4},
        {"batch.micro=1 parallel.pp=4", 1, 2, 6, 4, 1, 1},
        {"batch.micro=1 parallel.pp=4 parallel.schedule=gpipe", 1, 2, 6, 64, 1, 1},
        {"batch.micro=1 parallel.cp=2 numerics.seq_tiles=2", 1, 4, 12, 1, 1, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double sbh = s * cases[i].b * h * cases[i].slots;
        double share = (cases[i].whole + cases[i].cut) /
                       (strstr(cases[i].layout, "fp32") ? 64 : 32); /* of a sequence or stage */
        double statistics = 4 * s * cases[i].b * cases[i].slots * share *
                            (4 / cases[i].stream + heads / cases[i].tp);
        near(cases[i].layout, block_kept(cases[i].layout),
             sbh * (cases[i].whole / cases[i].stream + cases[i].cut / cases[i].tp) + statistics,
             0.005);
    }
}

static void test_live_micro_batches(void **state)
{
    (void)state;
    static const char recipe[] = "model.preset=gpt2-124m model.vocab=50257 batch.global=16 "
                                 "batch.micro=1";
    assert_int_equal(plan_of(recipe, "parallel.pp=4").live, 4);
    assert_int_equal(plan_of(recipe, "parallel.pp=4 parallel.schedule=gpipe").live, 16);
    assert_int_equal(plan_of(recipe, "").live, 1);
}

/* ---- what is taken --------------------------------------------------------------------------- */

static void drawing_recipes(const char *directory, struct ls_config recipes[3])
{
    static const char *const texts[3] = {
        "model.arch=gpt2 model.layers=4 model.channels=64 model.heads=4 model.context=64 "
        "model.dropout=0.1 data.sequence=64 batch.global=24 numerics.precision=bf16",
        "model.arch=llama model.layers=3 model.channels=64 model.heads=8 model.kv_heads=2 "
        "model.ffn=128 model.context=64 data.sequence=64 batch.global=16 numerics.precision=fp32 "
        "model.tied=true optim.name=lion",
        "model.arch=gpt2 model.layers=4 model.channels=64 model.heads=4 model.context=512 "
        "data.sequence=512 numerics.seq_tiles=4 batch.global=8 optim.name=sgd",
    };
    for (int i = 0; i < 3; i++)
        recipes[i] = config_of_words(
            "%s model.vocab=300 log.progress=off parallel.threads=1 data.train=u16:%s/tokens.bin",
            texts[i], directory);
}

struct taken {
    const struct ls_config *config;
    const struct ls_layout *layout;
};

/* Each rank's arena is full to the byte, and is what anybody can plan for that rank. */
static int taken_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    const struct taken *taken = user;
    struct ls_trainer *t = NULL;
    struct ls_memory_plan plan;
    int status = ls_trainer_new(taken->config, world, NULL, &t, error);
    if (!status)
        status = ls_plan_rank(taken->config, taken->layout, ls_comm_rank(world), &plan, error);
    if (!status) {
        size_t sum = 0;
        for (int kind = 0; kind < LS_MEMORY_KINDS; kind++)
            sum += plan.bytes[kind];
        const struct ls_arena *arena = &t->memory.arena;
        if (sum != plan.total || arena->used != sum || arena->size != sum || arena->peak != sum)
            status = ls_error_set(error, LS_EINVAL,
                                  "planned %zu bytes, their sum is %zu; taken %zu of %zu, at most "
                                  "%zu",
                                  plan.total, sum, arena->used, arena->size, arena->peak);
    }
    ls_trainer_free(t);
    return status;
}

static void test_the_plan_is_what_is_taken(void **state)
{
    enum { DRAWN = 120 };
    struct ls_config recipes[3], drawn;
    struct ls_layout *layout = malloc(sizeof *layout);
    int made = 0;
    assert_non_null(layout);
    drawing_recipes(*state, recipes);
    for (int i = 0; i < DRAWN; i++) {
        const struct ls_draw draw = {.seed = 5, .index = (uint64_t)i, .ranks_max = 8};
        struct ls_error error = {0};
        char text[600];
        if (!ls_draw_layout(&recipes[i % 3], &draw, &drawn))
            continue;
        ls_config_layout_text(&drawn, NULL, text, sizeof text);
        struct taken taken = {.config = &drawn, .layout = layout};
        if (ls_config_layout(&drawn, 0, layout, &error) ||
            ls_world_run((int)layout->ranks, taken_body, &taken, &error))
            fail_msg("recipe %d, %s: %s", i % 3, text, error.text);
        made++;
    }
    free(layout);
    assert_true(made >= 100);
}

/* Every rank of a pipeline rank takes the same, so that one plan speaks for all. */
static void test_ranks_of_a_pipeline_rank_take_the_same(void **state)
{
    struct ls_config recipes[3], drawn;
    struct ls_layout *layout = malloc(sizeof *layout);
    assert_non_null(layout);
    drawing_recipes(*state, recipes);
    for (int i = 0; i < 60; i++) {
        const struct ls_draw draw = {.seed = 6, .index = (uint64_t)i, .ranks_max = 16};
        struct ls_error error = {0};
        if (!ls_draw_layout(&recipes[i % 3], &draw, &drawn) ||
            ls_config_layout(&drawn, 0, layout, &error))
            continue;
        struct ls_memory_plan first, plan;
        for (int64_t rank = 0; rank < layout->ranks; rank++) {
            assert_int_equal(ls_plan_rank(&drawn, layout, rank, &plan, &error), LS_OK);
            if (rank % (layout->ranks / layout->size[LS_AXIS_PP]) == 0)
                first = plan;
            assert_memory_equal(plan.bytes, first.bytes, sizeof plan.bytes);
        }
    }
    free(layout);
}

/* ---- when -------------------------------------------------------------------------------------
 */

struct seen {
    const struct ls_memory_plan *plan;
    size_t most[LS_MEMORY_KINDS];
    int64_t moments;
    enum ls_memory_phase last;
};

/* Nothing is in use that was not planned. */
static int within_visit(void *user, const struct ls_memory_moment *moment, struct ls_error *error)
{
    struct seen *seen = user;
    size_t sum = 0;
    for (int kind = 0; kind < LS_MEMORY_KINDS; kind++) {
        size_t bytes = moment->bytes[kind];
        sum += bytes;
        seen->most[kind] = bytes > seen->most[kind] ? bytes : seen->most[kind];
        if (bytes > seen->plan->bytes[kind])
            return ls_error_set(error, LS_EINVAL, "%s: %s, %zu bytes in use of %zu",
                                ls_memory_moment_text(moment).text,
                                ls_memory_name((enum ls_memory_kind)kind), bytes,
                                seen->plan->bytes[kind]);
    }
    assert_int_equal(sum, moment->all);
    seen->moments++;
    seen->last = moment->phase;
    return LS_OK;
}

static struct seen seen_of(const struct ls_config *config, int64_t rank,
                           struct ls_memory_plan *plan)
{
    static struct ls_layout layout;
    struct seen seen = {.plan = plan};
    struct ls_error error = {0};
    char text[600];
    ls_config_layout_text(config, NULL, text, sizeof text);
    if (ls_config_layout(config, 0, &layout, &error) ||
        ls_plan_rank(config, &layout, rank % layout.ranks, plan, &error) ||
        ls_memory_timeline(config, &layout, rank % layout.ranks, within_visit, &seen, &error))
        fail_msg("%s: %s", text, error.text);
    assert_int_equal(seen.last, LS_MEMORY_UPDATE);
    return seen;
}

static void test_what_is_in_use_was_planned(void **state)
{
    struct ls_config recipes[3], drawn;
    drawing_recipes(*state, recipes);
    for (int i = 0; i < 120; i++) {
        const struct ls_draw draw = {.seed = 7, .index = (uint64_t)i, .ranks_max = 8};
        struct ls_memory_plan plan;
        if (ls_draw_layout(&recipes[i % 3], &draw, &drawn))
            seen_of(&drawn, i, &plan);
    }
    /* The head's gradient and the table's are the two largest, and neighbours in time. */
    static const char *const tied[] = {"parallel.zero=1", "parallel.zero=2", "parallel.zero=3"};
    for (size_t i = 0; i < sizeof tied / sizeof tied[0]; i++) {
        struct ls_memory_plan plan;
        drawn = config_of("model.preset=gpt2-124m model.vocab=50257 batch.global=64 batch.micro=4 "
                          "parallel.dp=4",
                          tied[i]);
        seen_of(&drawn, 0, &plan);
    }
}

/* On one rank all that is kept is in use before the first backward, all buffers of gradients when
 * the tree is deepest, and the workspace in the layer that needs most. */
static void test_all_that_is_planned_is_used(void **state)
{
    struct ls_config recipes[3];
    drawing_recipes(*state, recipes);
    for (int i = 0; i < 2; i++) {
        struct ls_memory_plan plan;
        struct ls_config config = recipes[i];
        config.batch.micro = 1;
        config.batch.global = 16;
        struct seen seen = seen_of(&config, 0, &plan);
        assert_int_equal(seen.most[LS_MEMORY_ACTIVATIONS], plan.bytes[LS_MEMORY_ACTIVATIONS]);
        near("gradients", (double)seen.most[LS_MEMORY_GRADIENTS],
             (double)plan.bytes[LS_MEMORY_GRADIENTS], 0.001);
        near("workspace", (double)seen.most[LS_MEMORY_WORKSPACE],
             (double)plan.bytes[LS_MEMORY_WORKSPACE], 0.05);
        int64_t layers = config.model.layers + 2;
        assert_true(seen.moments >= 16 * 3 * (layers - 1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_state_is_that_of_the_zero_paper),
        cmocka_unit_test(test_gradients_have_a_buffer_for_each_level),
        cmocka_unit_test(test_activations_are_korthikantis_less_the_masks),
        cmocka_unit_test(test_live_micro_batches),
        cmocka_unit_test(test_the_plan_is_what_is_taken),
        cmocka_unit_test(test_ranks_of_a_pipeline_rank_take_the_same),
        cmocka_unit_test(test_what_is_in_use_was_planned),
        cmocka_unit_test(test_all_that_is_planned_is_used),
    };
    return cmocka_run_group_tests(tests, tokens_setup, scratch_teardown);
}
