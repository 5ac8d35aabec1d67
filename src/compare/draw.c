/* Layouts of a recipe, drawn at random. */
#include "compare/draw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ls_draw_row rows[] = {
    /* The axes in their order. */
    {"parallel.pp", {"1", "2", "3", "4"}},
    {"parallel.dp_replicate", {"1", "2", "3", "4"}},
    {"parallel.dp_shard", {"1", "2", "3", "4"}},
    {"parallel.cp", {"1", "2", "3", "4"}},
    {"parallel.tp", {"1", "2", "4", "3", "5"}},
    {"parallel.sp", {"auto", "true", "false"}},
    {"parallel.zero", {"0", "1", "2", "3"}},
    {"parallel.schedule", {"1f1b", "gpipe", "interleaved", "zb-h1", "zbv", "dualpipev", "csv"}},
    {"parallel.chunks", {"0", "1", "2", "3"}},
    {"parallel.cp_method", {"allgather", "ring"}},
    {"parallel.prefetch", {"1", "0", "2"}},
    {"parallel.persist", {"0", "100", "2000"}},
    {"parallel.reshard_after_forward", {"true", "false"}},
    {"parallel.tp_overlap", {"1", "2", "3"}},
    {"parallel.threads", {"0", "1", "2"}},
    {"numerics.isa", {"auto", "plain", "avx2", "avx512", "avx512_bf16", "amx"}},
    {"batch.micro", {"0", "1", "2", "3", "4", "6", "8"}},
    {"memory.recompute", {"none", "full", "selective", "every:2", "sqrt", "0"}},
    {"memory.partition_activations", {"false", "true"}},
    {"memory.check", {"false", "true"}},
    {"memory.device_budget", {"0", "64GiB"}},
    {"memory.offload.optimizer", {"none", "host", "file"}},
    {"memory.offload.optimizer_ratio", {"1", "0.5"}},
    {"memory.offload.gradients", {"none", "host", "file"}},
    {"memory.offload.gradients_ratio", {"1", "0.5"}},
    {"memory.offload.parameters", {"none", "host", "file"}},
    {"memory.offload.parameters_ratio", {"1", "0.5"}},
    {"memory.offload.activations", {"none", "host", "file"}},
    {"memory.offload.activations_ratio", {"1", "0.5"}},
    {"comm.transport", {"auto", "thread", "mpi"}},
    {"comm.bucket_mb", {"25", "1"}},
    {"comm.timeout_s", {"600", "60"}},
    {"comm.check", {"false", "true"}},
    /* Of recipes with workers. */
    {"parallel.workers", {"1", "2", "4", "3"}},
    {"parallel.servers", {"0", "1"}},
    /* Made for a layout that the keys above give. */
    {"parallel.dp", {"0", "given"}},
    {"parallel.split", {"", "given"}},
    {"parallel.schedule_file", {"", "given"}},
    {"memory.file", {"", "given"}},
    /* Corners. */
    {"last micro-batch smaller", {"no", "yes"}},
    {"leaf of several micro-batches", {"no", "yes"}},
    {"ramp-up", {"no", "yes"}},
};
enum {
    ROWS = sizeof rows / sizeof rows[0],
    WORKERS = ROWS - 9,
    SERVERS,
    DP,
    SPLIT,
    SCHEDULE_FILE,
    TIER_FILE,
    SMALLER,
    PARTS,
    RAMP_UP
};
enum { SCHEDULE = LS_AXES + 2, ISA = LS_AXES + 10 };
_Static_assert((int)ROWS <= (int)LS_DRAW_ROWS_MAX, "LS_DRAW_ROWS_MAX");

const struct ls_draw_row *ls_draw_rows(int *count)
{
    *count = ROWS;
    return rows;
}

/* ---- one rank -------------------------------------------------------------------------------- */

/* Everything of the layout as it is by default, except the threads of a rank. */
static void layout_clear(struct ls_config *config)
{
    struct ls_config *defaults = &(struct ls_config){0};
    ls_config_defaults(defaults);
    int64_t threads = config->parallel.threads;
    config->parallel = defaults->parallel;
    config->parallel.threads = threads;
    config->memory = defaults->memory;
    config->batch.micro = 0;
    config->numerics.isa = LS_CONFIG_AUTO;
}

void ls_compare_one_rank(const struct ls_config *config, struct ls_config *one)
{
    *one = *config;
    layout_clear(one);
}

/* ---- what a layout has ----------------------------------------------------------------------- */

/* Whether a step of the recipe has a micro-batch that is smaller than the one before it. */
static bool has_smaller(const struct ls_layout *layout)
{
    static const int64_t origin[LS_AXES];
    struct ls_dp_share share;
    for (int64_t leaves = 0; (leaves = ls_ramp_next(&layout->ramp, leaves));) {
        ls_layout_share(layout, leaves, origin, &share);
        if (ls_min(share.micro, share.leaf) == share.leaf ? share.count * share.leaf % share.micro
                                                          : share.leaf % share.micro)
            return true;
    }
    return false;
}

static void row_text(const struct ls_config *config, const struct ls_layout *layout, int row,
                     char *text, size_t bytes)
{
    if (row < LS_AXES)
        snprintf(text, bytes, "%ld", (long)layout->size[row]);
    else if (row == SMALLER)
        snprintf(text, bytes, "%s", has_smaller(layout) ? "yes" : "no");
    else if (row == PARTS)
        snprintf(text, bytes, "%s",
                 layout->micro_sequences < layout->numerics.leaf_sequences ? "yes" : "no");
    else if (row == RAMP_UP)
        snprintf(text, bytes, "%s", layout->ramp.increment ? "yes" : "no");
    else if (row == DP)
        snprintf(text, bytes, "%s", config->parallel.dp ? "given" : "0");
    else if (row == SPLIT)
        snprintf(text, bytes, "%s", *config->parallel.split ? "given" : "");
    else if (row == SCHEDULE_FILE)
        snprintf(text, bytes, "%s", *config->parallel.schedule_file ? "given" : "");
    else if (row == TIER_FILE)
        snprintf(text, bytes, "%s", *config->memory.file ? "given" : "");
    else if (!strcmp(rows[row].name, "memory.recompute"))
        snprintf(text, bytes, "%s", config->parallel.recompute);
    else
        ls_config_value(config, ls_config_key_of(rows[row].name), text, bytes);
}

/* Of a row; -1: none of its values. */
static int value_of(const struct ls_config *config, const struct ls_layout *layout, int row)
{
    char text[4 * LS_CONFIG_TEXT_BYTES];
    int value = -1;
    row_text(config, layout, row, text, sizeof text);
    for (int v = 0; rows[row].values[v]; v++)
        if (!strcmp(text, rows[row].values[v]))
            value = v;
    return value;
}

static bool gives_up_inputs(const struct ls_layout *layout)
{
    for (int64_t layer = 1; layer <= layout->model.layers; layer++)
        if (layout->recompute[layer] >= LS_RECOMPUTE_FULL)
            return true;
    return false;
}

/* Keys that mean nothing in this layout take their defaults, so that equal layouts look equal. */
static void settle(const struct ls_layout *layout, struct ls_config *config)
{
    struct ls_config *defaults = &(struct ls_config){0};
    struct ls_layout_keys *keys = &config->parallel;
    ls_config_defaults(defaults);
    const struct ls_layout_keys *initial = &defaults->parallel;
    if (layout->stages == 1) {
        keys->schedule = initial->schedule;
        keys->chunks = initial->chunks;
    }
    if (layout->size[LS_AXIS_CP] == 1)
        keys->cp_method = initial->cp_method;
    if (layout->size[LS_AXIS_TP] == 1) {
        keys->tp_overlap = initial->tp_overlap;
        keys->sp = initial->sp;
    }
    if (layout->zero > 0 && layout->sets[0].shard_ranks == 1)
        keys->zero = initial->zero;
    if (keys->zero < 1 && ls_config_tier(config, LS_OFFLOAD_PARAMETERS) == LS_TIER_DEVICE)
        keys->prefetch = initial->prefetch;
    if (keys->zero < 3) {
        keys->persist = initial->persist;
        keys->reshard_after_forward = initial->reshard_after_forward;
    }
    if (layout->size[LS_AXIS_TP] == 1 || layout->sp || !gives_up_inputs(layout))
        keys->partition_activations = initial->partition_activations;
    for (int what = 0; what < LS_OFFLOADS; what++)
        if (ls_config_tier(config, (enum ls_offload)what) == LS_TIER_DEVICE)
            config->memory.offload[what] = defaults->memory.offload[what];
    if (keys->dp_replicate == 1)
        keys->dp_replicate = initial->dp_replicate;
    if (keys->dp_shard == 1)
        keys->dp_shard = initial->dp_shard;
}

bool ls_draw_values(const struct ls_config *config, int values[LS_DRAW_ROWS_MAX])
{
    struct ls_layout layout;
    struct ls_config settled = *config;
    if (ls_config_layout(config, 0, &layout, NULL))
        return false;
    settle(&layout, &settled);
    for (int row = 0; row < ROWS; row++)
        values[row] = value_of(&settled, &layout, row);
    return true;
}

/* ---- drawing --------------------------------------------------------------------------------- */

/* A stream of random numbers for one (seed, index, attempt). */
struct draws {
    struct ls_philox_key key;
    uint32_t counter[4], words[4];
    int used;
};

static struct draws draws_begin(uint64_t seed, uint64_t index, uint32_t attempt)
{
    return (struct draws){.key = ls_philox_key_of(seed, "layout"),
                          .counter = {0, attempt, (uint32_t)index, (uint32_t)(index >> 32)},
                          .used = 4};
}

static int pick(struct draws *d, int below)
{
    if (d->used == 4) {
        ls_philox(d->key, d->counter, d->words);
        d->counter[0]++;
        d->used = 0;
    }
    return (int)(d->words[d->used++] % (uint32_t)below);
}

/* The value asked of a row: -1 for none, 0 for any but the first. */
static int asked(const struct ls_draw *draw, int row)
{
    for (int i = 0; i < draw->ask_count; i++)
        if (draw->asks[i].row == row)
            return draw->asks[i].value;
    return -1;
}

static bool kept(const struct ls_draw *draw, int row)
{
    return draw->kept >> row & 1;
}

/* Whether a value can be had at all under these conditions. */
bool draw_offers(const struct ls_draw *draw, int row, int value)
{
    const char *text = rows[row].values[value];
    if (row == ISA)
        return value <= draw->isas;
    bool table = strcmp(text, "csv") == 0 || (row == SCHEDULE_FILE && value > 0);
    bool tier = strcmp(text, "file") == 0 || (row == TIER_FILE && value > 0);
    return (draw->mpi || strcmp(text, "mpi") != 0) && (draw->folder || !table) &&
           (draw->folder || draw->file || !tier);
}

/* Of the keys whose values are the table's, how many there are to draw from. */
static void counts_make(const struct ls_draw *draw, int counts[DP])
{
    for (int row = 0; row < DP; row++) {
        counts[row] = 0;
        while (rows[row].values[counts[row]] && strcmp(rows[row].values[counts[row]], "csv") != 0 &&
               draw_offers(draw, row, counts[row]))
            counts[row]++;
    }
}

/* The keys whose values are the table's. A schedule's file comes with its table, later. False: the
 * axes, which come first, make too many ranks already, whatever comes behind them. */
static bool plain_draw(struct draws *d, const struct ls_draw *draw, const int counts[DP],
                       struct ls_config *config)
{
    for (int row = 0; row < DP; row++) {
        char assignment[128];
        int value = asked(draw, row), count = counts[row];
        if (row == LS_AXES && !draw->kept && ls_config_ranks(config) > draw->ranks_max)
            return false;
        if (row >= WORKERS && config->async.mode == LS_CONFIG_SYNC)
            break;
        if (value < 0)
            value = pick(d, 2) ? pick(d, count) : 0;
        else if (value == 0 || value >= count)
            value = 1 + pick(d, count - 1);
        if (value == 0 || kept(draw, row))
            continue;
        snprintf(assignment, sizeof assignment, "%s=%s", rows[row].name, rows[row].values[value]);
        ls_config_set(config, assignment, NULL);
    }
    char *file = config->memory.file;
    if (ls_config_uses_tier(config, LS_TIER_FILE) && draw->file)
        snprintf(file, sizeof config->memory.file, "%s", draw->file);
    else if (ls_config_uses_tier(config, LS_TIER_FILE) && draw->folder)
        snprintf(file, sizeof config->memory.file, "%s/offload", draw->folder);
    return true;
}

/* The same data-parallel ranks by their product, with the part left out that follows from it. */
static void dp_give(const struct ls_layout *layout, struct ls_config *config)
{
    struct ls_layout_keys *keys = &config->parallel;
    int64_t replicate = layout->size[LS_AXIS_DP_REPLICATE], shard = layout->size[LS_AXIS_DP_SHARD];
    if (replicate * shard == 1)
        return;
    keys->dp = replicate * shard;
    keys->dp_replicate = keys->zero == 0 && shard == 1 ? 0 : replicate;
    keys->dp_shard = keys->zero > 0 && replicate == 1 ? 0 : shard;
}

/* Layers dealt out to the stages by chance, each at least one. */
static void split_give(struct draws *d, const struct ls_layout *layout, struct ls_config *config)
{
    char *text = config->parallel.split;
    size_t bytes = sizeof config->parallel.split, used = 0;
    int64_t layers = layout->model.layers + 2, first = 0;
    for (int64_t stage = 0; stage < layout->stages && used < bytes; stage++) {
        int64_t left = layout->stages - stage - 1, room = layers - first - left;
        int64_t count = left ? 1 + pick(d, (int)room) % room : room;
        used += (size_t)snprintf(text + used, bytes - used, count > 1 ? "%s%ld-%ld" : "%s%ld",
                                 stage ? "," : "", (long)first, (long)(first + count - 1));
        first += count;
    }
    if (used >= bytes)
        *text = '\0';
}

/* The schedule's table as a file. */
static bool file_give(const struct ls_draw *draw, const struct ls_layout *layout,
                      struct ls_config *config)
{
    struct ls_schedule table;
    struct ls_layout_keys *keys = &config->parallel;
    int written =
        snprintf(keys->schedule_file, sizeof keys->schedule_file, "%s/%s-%ldx%ld-%ld.csv",
                 draw->folder, ls_schedule_name((enum ls_schedule_kind)layout->schedule),
                 (long)layout->size[LS_AXIS_PP], (long)layout->chunks, (long)layout->micro_batches);
    if (written >= (int)sizeof keys->schedule_file ||
        ls_layout_table(layout, layout->micro_batches, &table, NULL))
        return false;
    FILE *file = fopen(keys->schedule_file, "w");
    bool good = file && !ls_schedule_write(&table, file, NULL);
    good = file && fclose(file) == 0 && good;
    ls_schedule_release(&table);
    keys->schedule = LS_LAYOUT_CSV;
    return good;
}

/* The keys that are made for a layout: each by chance, or because it is asked for. */
static void made_draw(struct draws *d, const struct ls_draw *draw, const struct ls_layout *layout,
                      struct ls_config *config)
{
    bool dp = pick(d, 4) == 0, split = pick(d, 4) == 0, file = pick(d, 4) == 0;
    if (!kept(draw, DP) && (dp || asked(draw, DP) >= 0))
        dp_give(layout, config);
    if (layout->stages == 1)
        return;
    if (!kept(draw, SPLIT) && (split || asked(draw, SPLIT) >= 0))
        split_give(d, layout, config);
    int schedule = asked(draw, SCHEDULE);
    bool csv = schedule > 0 && !strcmp(rows[SCHEDULE].values[schedule], "csv");
    if (!kept(draw, SCHEDULE_FILE) && draw->folder &&
        (file || csv || asked(draw, SCHEDULE_FILE) >= 0)) {
        struct ls_config with = *config;
        struct ls_layout room;
        if (file_give(draw, layout, &with) && !ls_config_layout(&with, 0, &room, NULL))
            *config = with;
    }
}

/* Whether the layout is admitted; where it is but for what is offloaded, that stays. */
static bool is_admitted(struct ls_config *drawn, struct ls_layout *layout)
{
    if (!ls_config_layout(drawn, 0, layout, NULL))
        return true;
    struct ls_config_memory given = drawn->memory;
    for (int what = 0; what < LS_OFFLOADS; what++) {
        drawn->memory.offload[what].to = LS_TIER_DEVICE;
        if (!ls_config_layout(drawn, 0, layout, NULL))
            return true;
        drawn->memory = given;
    }
    return false;
}

static bool has_what_is_asked(const struct ls_draw *draw, const struct ls_config *config,
                              const struct ls_layout *layout)
{
    for (int i = 0; i < draw->ask_count; i++) {
        int value = value_of(config, layout, draw->asks[i].row), wanted = draw->asks[i].value;
        if (wanted ? value != wanted : value == 0)
            return false;
    }
    return true;
}

/* Whether a row is asked to have a value, any but the first or one that does not divide `count`. */
static bool asked_beyond(const struct ls_draw *draw, int row, int64_t count)
{
    int value = asked(draw, row);
    return value == 0 ? count == 1 : value > 0 && count % atoll(rows[row].values[value]) != 0;
}

/* What a recipe rules out whatever else is drawn: it is not worth the attempts. */
static bool is_ruled_out(const struct ls_config *config, const struct ls_draw *draw)
{
    int64_t workers = config->async.mode == LS_CONFIG_SYNC ? 1 : config->async.workers;
    bool tiled = config->numerics.mode != LS_CONFIG_FAST;
    return (asked(draw, RAMP_UP) >= 0 && config->batch.rampup_start == 0) ||
           (asked(draw, SERVERS) >= 0 && config->async.mode != LS_CONFIG_SERVER) ||
           asked_beyond(draw, WORKERS, workers) ||
           (tiled && asked_beyond(draw, LS_AXIS_TP, config->numerics.tp_tiles)) ||
           (tiled && asked_beyond(draw, LS_AXIS_CP, config->numerics.seq_tiles));
}

bool ls_draw_layout(const struct ls_config *config, const struct ls_draw *draw,
                    struct ls_config *drawn)
{
    enum { ATTEMPTS_MAX = 20000 };
    struct ls_layout layout;
    struct ls_config start = *config;
    int counts[DP];
    uint32_t attempts = draw->attempts > 0 ? (uint32_t)draw->attempts : ATTEMPTS_MAX;
    if (!draw->kept)
        layout_clear(&start);
    if (is_ruled_out(config, draw))
        return false;
    counts_make(draw, counts);
    for (uint32_t attempt = 0; attempt < attempts; attempt++) {
        struct draws d = draws_begin(draw->seed, draw->index, attempt);
        *drawn = start;
        if (!plain_draw(&d, draw, counts, drawn))
            continue;
        int64_t ranks = ls_config_ranks(drawn);
        bool room = ranks <= draw->ranks_max && (ranks > 1 || draw->kept);
        /* Without a text: the search for the nearest that works would take most of the time. */
        if (!room || !is_admitted(drawn, &layout))
            continue;
        if (!draw->kept)
            settle(&layout, drawn);
        made_draw(&d, draw, &layout, drawn);
        if (!ls_config_layout(drawn, 0, &layout, NULL) && has_what_is_asked(draw, drawn, &layout))
            return true;
    }
    return false;
}

/* The next recipe in turn that admits what is drawn; -1: none. */
static int recipe_draw(const struct ls_config *recipes, int count, const struct ls_draw *draw,
                       struct ls_config *drawn)
{
    for (int i = 0; i < count; i++) {
        int recipe = (int)((draw->index + (uint64_t)i) % (uint64_t)count);
        if (ls_draw_layout(&recipes[recipe], draw, drawn))
            return recipe;
    }
    return -1;
}

int ls_compare_draw(const struct ls_config *recipes, int count, const struct ls_draw *draw,
                    struct ls_draw_cover *cover, struct ls_config *drawn)
{
    /* What is rare is passed over, and what is impossible is soon found to be. */
    enum { ATTEMPTS = 3000 };
    struct ls_draw next = *draw;
    int values[LS_DRAW_ROWS_MAX], recipe = -1;
    next.attempts = ATTEMPTS;
    while (recipe < 0 && ls_draw_cover_ask(cover, &next)) {
        recipe = recipe_draw(recipes, count, &next, drawn);
        if (recipe < 0)
            ls_draw_cover_impossible(cover, &next);
    }
    if (recipe < 0)
        recipe = recipe_draw(recipes, count, draw, drawn);
    if (recipe >= 0 && ls_draw_values(drawn, values))
        ls_draw_cover_add(cover, values);
    return recipe;
}
