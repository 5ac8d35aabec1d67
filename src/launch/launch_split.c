/* Another split of layers over pipeline stages, because a stage was measured slow. */
#include "launch/launch_private.h"

#include <lockstep/base/words.h>
#include <lockstep/planner/rebalance.h>
#include <lockstep/train/drift.h>

#include <stdlib.h>
#include <string.h>

enum { STAYS_S = 600 /* a change, at least */ };

#define KEY "parallel.split="

static bool is_of(const struct launch_split *split, int64_t ranks, const char *keys)
{
    return split->text[0] && split->ranks == ranks && !strcmp(split->of, keys);
}

void launch_split_add(struct launch_split *split, int64_t ranks, char *keys)
{
    if (split->fails)
        memcpy(split->text, split->before, sizeof split->text);
    split->fails = false;
    if (is_of(split, ranks, keys))
        ls_string_add(keys, LS_SEARCH_KEYS_BYTES, *keys ? " " : "", "%s", split->text);
    else
        split->gain.expected_s = 0; /* a start without it cannot be judged */
}

/* The configuration of a start. False: a key is refused, of which the start knows more. */
static bool config_make(const struct ls_launch *launch, const char *keys, struct ls_config *config)
{
    *config = *launch->config;
    return ls_search_keys_set(config, keys, NULL) == LS_OK;
}

/* Of "0.3,0.1" the numbers; false: there are others than so many. */
static bool times_read(const char *text, int64_t stages, double *stage_s)
{
    int64_t count = 0;
    while (*text && count < stages) {
        char *end;
        stage_s[count++] = strtod(text, &end);
        if (end == text)
            return false;
        text = end + (*end == ',');
    }
    return count == stages && !*text;
}

/* Whether another split is worth it. */
static bool split_find(const struct launch_watch *watch, const struct ls_launch *launch,
                       int64_t slots, const char *keys, struct ls_rebalance *found)
{
    double stage_s[LS_DRIFT_STAGES_MAX];
    struct ls_config config;
    struct ls_error why = {0};
    if (!config_make(launch, keys, &config) || config.parallel.pp > LS_DRIFT_STAGES_MAX ||
        ls_config_groups(&config) > 1 || !times_read(watch->stages_s, config.parallel.pp, stage_s))
        return false;
    if (ls_rebalance_find(&config, stage_s, slots, found, &why)) {
        ls_log(launch->log, LS_LOG_WARNING, "stage %ld is slow, but its layers stay: %s",
               (long)watch->stage, why.text);
        return false;
    }
    return found->split[0] && found->above >= launch->config->launch.slow &&
           found->share <= LAUNCH_WORTH;
}

static void change_record(struct launch_split *split, const struct ls_rebalance *found,
                          const struct launch_watch *watch, const struct ls_launch *launch,
                          struct launch_events *events)
{
    struct ls_jsonl *m = launch_events_begin(events, "stage_slow", watch->step);
    ls_jsonl_int(m, "stage", found->stage);
    ls_jsonl_double(m, "above", found->above);
    ls_jsonl_string(m, "split", found->split);
    launch_gain_expect(&split->gain, watch, found->share, m);
    launch_events_end(events);
    ls_log(launch->log, LS_LOG_WARNING,
           "stage %ld computes %.0f %% longer than others for its layers; a step of %s should "
           "take %s with " KEY "%s",
           (long)found->stage, 100 * found->above, ls_duration(split->gain.before_s).text,
           ls_duration(split->gain.expected_s).text, found->split);
}

/* Takes the new split for the layout of keys, without the split that these end in. */
static void split_take(struct launch_split *split, const char *keys, const char *new)
{
    size_t length = strlen(keys), last = strlen(split->text);
    bool has = last > 0 && length >= last && !strcmp(keys + length - last, split->text);
    length -= has ? last : 0;
    length -= has && length > 0;
    snprintf(split->of, sizeof split->of, "%.*s", (int)length, keys);
    snprintf(split->before, sizeof split->before, "%s", has ? split->text : "");
    snprintf(split->text, sizeof split->text, KEY "%s", new);
}

bool launch_split_change(struct launch_split *split, const struct launch_watch *watch,
                         const struct ls_launch *launch, int64_t slots, int64_t ranks,
                         const char *keys, struct launch_events *events)
{
    double now_s = ls_now_s();
    struct ls_rebalance found;
    if (split->fails)
        return true;
    if (split->over || watch->stage < 0 || now_s < split->next_s ||
        !launch_slow_lasts(launch, watch->stage_since_s))
        return false;
    split->next_s = now_s + STAYS_S; /* what is not worth it now is looked at again then */
    if (!split_find(watch, launch, slots, keys, &found))
        return false;
    split_take(split, keys, found.split);
    split->ranks = ranks;
    split->gain.stage = found.stage;
    change_record(split, &found, watch, launch, events);
    return true;
}

void launch_split_gained(struct launch_split *split, const struct launch_watch *watch,
                         const struct ls_launch *launch, struct launch_events *events)
{
    char change[sizeof split->text + 8];
    snprintf(change, sizeof change, "with %s", split->text);
    if (!launch_gain_fails(&split->gain, change, watch, launch, events))
        return;
    ls_log(launch->log, LS_LOG_WARNING,
           "the job goes back to the split of layers before, and keeps that");
    split->fails = split->over = true;
}

bool launch_split_refused(struct launch_split *split, const struct launch_job *job,
                          const struct launch_watch *watch, const char *text,
                          const struct ls_launch *launch, struct launch_events *events)
{
    if (split->gain.expected_s <= 0 || watch->started || job->code != ls_exit_code(LS_ELAYOUT))
        return false;
    struct ls_jsonl *m = launch_events_begin(events, "split_refused", watch->step);
    ls_jsonl_string(m, "split", split->text + strlen(KEY));
    ls_jsonl_string(m, "text", text);
    launch_events_end(events);
    ls_log(launch->log, LS_LOG_WARNING, "%s: the job goes on with the split before", text);
    memcpy(split->text, split->before, sizeof split->text);
    split->gain.expected_s = 0;
    split->over = true;
    return true;
}
