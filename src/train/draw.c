/* Layouts of a recipe, drawn at random. */
#include "config_private.h"

#include <lockstep/train/compare.h>

#include <stdio.h>
#include <string.h>

/* Everything of group `parallel` as it is by default, except the threads of a rank. */
static void layout_clear(struct ls_config *config)
{
    struct ls_config *defaults = &(struct ls_config){0};
    ls_config_defaults(defaults);
    int64_t threads = config->parallel.threads;
    config->parallel = defaults->parallel;
    config->parallel.threads = threads;
    config->batch.micro = 0;
}

void ls_compare_one_rank(const struct ls_config *config, struct ls_config *one)
{
    *one = *config;
    layout_clear(one);
}

/* What layout number `index` is asked for: the ten pairs of axes, then six schedules, then three
 * stages of ZeRO, and so on from the front. */
static void ask(struct ls_layout_sample *sample, uint64_t index)
{
    enum { PAIRS = 10, STAGES = 3, ALL = PAIRS + LS_SCHEDULE_KINDS + STAGES };
    int which = (int)(index % ALL);
    for (int a = 0, n = 0; a < LS_AXES; a++)
        for (int b = a + 1; b < LS_AXES; b++, n++)
            if (n == which)
                sample->least[a] = sample->least[b] = 2;
    if (which >= PAIRS + LS_SCHEDULE_KINDS) {
        sample->zero = 1 + which - PAIRS - LS_SCHEDULE_KINDS;
        sample->least[LS_AXIS_DP_SHARD] = 2;
    } else if (which >= PAIRS) {
        sample->schedule = which - PAIRS;
        sample->least[LS_AXIS_PP] = 2;
    }
}

/* Keys that mean nothing in this layout take their defaults, so that equal layouts look equal. */
static void keys_settle(const struct ls_layout *layout, struct ls_config *config)
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
    if (layout->zero > 0 && layout->shard_ranks == 1)
        keys->zero = initial->zero;
    if (keys->zero < 3) {
        keys->prefetch = initial->prefetch;
        keys->persist = initial->persist;
        keys->reshard_after_forward = initial->reshard_after_forward;
    }
    if (keys->dp_replicate == 1)
        keys->dp_replicate = initial->dp_replicate;
    if (keys->dp_shard == 1 && keys->zero == 0)
        keys->dp_shard = initial->dp_shard;
}

static void settle(struct ls_layout *layout, struct ls_config *config)
{
    struct ls_config settled = *config;
    keys_settle(layout, &settled);
    settled.batch.micro = layout->micro_sequences;
    if (!ls_config_layout(&settled, 0, layout, NULL))
        *config = settled;
}

bool ls_compare_draw(const struct ls_config *config, uint64_t seed, uint64_t index,
                     int64_t ranks_max, struct ls_config *drawn)
{
    /* Few: what is rare is passed over, and what is impossible is soon found to be. */
    enum { ATTEMPTS = 1000 };
    struct ls_layout_request request;
    struct ls_layout layout;
    struct ls_layout_sample sample = {.seed = seed,
                                      .index = index,
                                      .ranks_max = ranks_max,
                                      .zero = -1,
                                      .schedule = -1,
                                      .attempts = ATTEMPTS};
    *drawn = *config;
    layout_clear(drawn);
    ls_config_layout_request(drawn, 0, &request);
    int64_t threads = drawn->parallel.threads;
    struct ls_layout_keys keys;
    ask(&sample, index);
    bool found = ls_layout_sample(&request, &sample, &keys, &drawn->batch.micro, &layout);
    if (!found || layout.ranks == 1) {
        /* What was asked for is not to be had: any layout of several ranks. */
        for (int axis = LS_AXES - 1; axis >= 0; axis--) {
            memset(sample.least, 0, sizeof sample.least);
            sample.zero = sample.schedule = -1;
            sample.least[(index + (uint64_t)axis) % LS_AXES] = 2;
            found = ls_layout_sample(&request, &sample, &keys, &drawn->batch.micro, &layout);
            if (found)
                break;
        }
    }
    if (!found)
        return false;
    drawn->parallel = keys;
    drawn->parallel.threads = threads;
    settle(&layout, drawn);
    return true;
}

void ls_compare_text(const struct ls_config *config, char *text, size_t bytes)
{
    struct ls_config *defaults = &(struct ls_config){0};
    size_t count, used = 0;
    const struct ls_config_key *keys = ls_config_keys(&count);
    ls_config_defaults(defaults);
    snprintf(text, bytes, "one rank");
    for (size_t i = 0; i < count; i++) {
        char value[4 * LS_CONFIG_TEXT_BYTES], initial[4 * LS_CONFIG_TEXT_BYTES];
        bool shown = !strncmp(keys[i].name, "parallel.", 9) || !strcmp(keys[i].name, "batch.micro");
        if (!shown || !strcmp(keys[i].name, "parallel.threads"))
            continue;
        ls_config_value(config, &keys[i], value, sizeof value);
        ls_config_value(defaults, &keys[i], initial, sizeof initial);
        if (strcmp(value, initial) && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s=%s", used ? " " : "",
                                     keys[i].name, value);
    }
}
