/* What is drawn of layouts: every key of the configuration's layout part, every word of it, and
 * every pair that a recipe admits. */
#include "../support/config_words.h"
#include "../support/cover.h"
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"

#include <lockstep/compare.h>

#include <stdlib.h>
#include <string.h>

static const struct ls_draw_row *row_of(const char *name)
{
    int count;
    const struct ls_draw_row *rows = ls_draw_rows(&count);
    for (int i = 0; i < count; i++)
        if (!strcmp(rows[i].name, name))
            return &rows[i];
    return NULL;
}

static bool row_has(const struct ls_draw_row *row, const char *value)
{
    for (int v = 0; row->values[v]; v++)
        if (!strcmp(row->values[v], value))
            return true;
    return false;
}

/* A layout key that is added to the configuration and not drawn fails here, and so does a word. */
CASE(test_every_layout_key_is_drawn)
{
    size_t count;
    const struct ls_config_key *keys = ls_config_keys(&count);
    for (size_t i = 0; i < count; i++) {
        const struct ls_draw_row *row = row_of(keys[i].name);
        if ((row != NULL) != (keys[i].part == LS_CONFIG_LAYOUT))
            fail_msg("%s is %s part of the layout and is %s drawn: src/compare/draw.c",
                     keys[i].name, keys[i].part == LS_CONFIG_LAYOUT ? "a" : "no", row ? "" : "not");
        if (!row)
            continue;
        for (const struct ls_word *w = keys[i].words; w && w->word; w++)
            if (!row_has(row, w->word))
                fail_msg("%s = %s is never drawn: src/compare/draw.c", keys[i].name, w->word);
        if (keys[i].type == LS_CONFIG_BOOL && !(row_has(row, "true") && row_has(row, "false")))
            fail_msg("%s is not drawn both ways", keys[i].name);
        if (!row->values[0] || !row->values[1])
            fail_msg("%s is drawn with one value only", keys[i].name);
    }
}

/* Each value is one that the configuration takes, and the first is that of a layout without it. */
CASE(test_values_are_the_configurations)
{
    int count;
    const struct ls_draw_row *rows = ls_draw_rows(&count);
    for (int i = 0; i < count; i++) {
        struct ls_config config;
        struct ls_error error = {0};
        char assignment[128];
        bool key = strchr(rows[i].name, '.') != NULL;
        ls_config_defaults(&config);
        for (int v = 0; key && rows[i].values[v]; v++) {
            snprintf(assignment, sizeof assignment, "%s=%s", rows[i].name, rows[i].values[v]);
            if (strcmp(rows[i].values[v], "given") && ls_config_set(&config, assignment, &error))
                fail_msg("%s", error.text);
        }
    }
}

/* 120 layouts have every value and every pair that can be had; what they lack is not to be had:
 * another search, with other numbers, does not find it either. */
CASE_WITH(test_120_layouts_cover_all, scratch_setup, scratch_teardown)
{
#define SMALL                                                                                      \
    "model.vocab=257 model.layers=6 model.channels=64 model.heads=4 model.context=256 "            \
    "numerics.seq_tiles=2 numerics.tp_tiles=4 "
    const struct ls_config recipes[3] = {
        config_of_words(SMALL "batch.global=12 batch.rampup_start=4 batch.rampup_increment=4 "
                              "batch.rampup_samples=12"),
        config_of_words(SMALL "model.context=512 numerics.seq_tiles=4 batch.global=8"),
        config_of_words(SMALL "numerics.seq_tiles=1 numerics.leaf_sequences=3 batch.global=24")};
    static struct ls_draw_cover covers[4], cover;
    uint64_t first = check_all() ? 1 : 4;
    struct ls_config drawn;
    for (uint64_t seed = first; seed <= 4; seed++)
        for (uint64_t i = 0; i < 120; i++) {
            struct ls_draw draw = {.seed = seed,
                                   .index = i,
                                   .ranks_max = 16,
                                   .mpi = true,
                                   .isas = LS_ISA_COUNT,
                                   .folder = *state};
            assert_in_range(ls_compare_draw(recipes, 3, &draw, &covers[seed - 1], &drawn), 0, 2);
        }
    for (int i = (int)first - 1; i < 4; i++) {
        cover = covers[i];
        if (cover_missing(&cover, true) == 0)
            continue;
        cover_print(&cover);
        fail_msg("seed %d: %d values and pairs are missing", i + 1, cover_missing(&cover, true));
    }
    int count, searched = 0;
    const struct ls_draw_row *rows = ls_draw_rows(&count);
    for (int a = 0; a < count; a++)
        for (int b = 0; b < a; b++) {
            struct ls_draw draw = {.seed = 99,
                                   .index = 7,
                                   .ranks_max = 16,
                                   .mpi = true,
                                   .isas = LS_ISA_COUNT,
                                   .folder = *state,
                                   .attempts = 1000,
                                   .asks = {{a, 0}, {b, 0}},
                                   .ask_count = 2};
            if (!cover.pair_impossible[a][b])
                continue;
            searched++;
            for (int recipe = 0; recipe < 3; recipe++)
                if (ls_draw_layout(&recipes[recipe], &draw, &drawn))
                    fail_msg("%s with %s was given up, but there is one", rows[a].name,
                             rows[b].name);
        }
    assert_true(searched < 10);
}

SUITE_MAIN(NULL, NULL)
