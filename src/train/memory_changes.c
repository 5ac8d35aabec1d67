/* What of a layout can be changed so that it takes less memory: the variants are planned, and those
 * that fit are named, the cheapest in time first. */
#include <lockstep/train/fit.h>

#include <stdio.h>
#include <string.h>

/* Assignments in the order of what they cost; "zero=1" stands for what gives that stage, "micro"
 * for the largest smaller micro-batch that fits, and "optimizer", "gradients", "activations" and
 * "parameters" for their offload, to file where that has a folder. Those with several words are
 * tried where none of a single one is enough. */
static const char *const candidates[] = {
    "zero=1",                     /* the same traffic */
    "zero=2",                     /* gradients are reduced at every micro-batch */
    "memory.recompute=selective", /* norms, attention and activations again */
    "optimizer",                  /* moves at each update, mostly while others are updated */
    "micro",                      /* smaller products, more passes over the weights */
    "memory.recompute=full",      /* a third more to compute */
    "zero=3",                     /* parameters travel twice a micro-batch */
    "optimizer gradients",
    "optimizer gradients activations",
    "optimizer memory.recompute=selective",
    "optimizer gradients memory.recompute=full",
    "optimizer gradients activations memory.recompute=full",
    "optimizer gradients activations parameters",
    "optimizer gradients activations parameters memory.recompute=full",
    "optimizer gradients micro",
    "optimizer gradients activations memory.recompute=full micro",
    "optimizer gradients activations parameters memory.recompute=full micro",
    "zero=2 memory.recompute=selective",
    "zero=2 memory.recompute=full",
    "zero=3 memory.recompute=selective",
    "zero=3 memory.recompute=full",
    "memory.recompute=selective micro",
    "memory.recompute=full micro",
    "zero=2 memory.recompute=full micro",
    "zero=3 memory.recompute=full micro",
};
enum { CANDIDATES = sizeof candidates / sizeof candidates[0] };

struct variants {
    const struct ls_config *config;
    const struct ls_layout *layout;
    const struct ls_comm *world;
    int64_t limit;
    struct ls_config changed;
};

/* Puts one assignment into the variant and its text. False if it changes nothing. */
static bool put(struct variants *v, const char *assignment, char *text, size_t bytes)
{
    char before[4 * LS_CONFIG_TEXT_BYTES], after[4 * LS_CONFIG_TEXT_BYTES], name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(assignment, "="), assignment);
    const struct ls_config_key *key = ls_config_key_of(name);
    ls_config_value(&v->changed, key, before, sizeof before);
    LS_ASSERT(!ls_config_set(&v->changed, assignment, NULL));
    ls_config_value(&v->changed, key, after, sizeof after);
    ls_string_add(text, bytes, " ", "%s", assignment);
    return strcmp(before, after) != 0;
}

/* A higher stage, over the data-parallel ranks that there are. */
static bool put_zero(struct variants *v, int stage, char *text, size_t bytes)
{
    const int64_t *size = v->layout->size;
    char word[64];
    int64_t ranks = size[LS_AXIS_DP_REPLICATE] * size[LS_AXIS_DP_SHARD];
    if (stage <= v->layout->zero || ranks == 1)
        return false;
    bool moves = v->config->parallel.dp_replicate > 1 && size[LS_AXIS_DP_SHARD] == 1;
    if (moves) {
        snprintf(word, sizeof word, "parallel.dp_shard=%ld", (long)ranks);
        put(v, word, text, bytes);
        put(v, "parallel.dp_replicate=1", text, bytes);
    }
    snprintf(word, sizeof word, "parallel.zero=%d", stage);
    return put(v, word, text, bytes);
}

/* More is given up than before. */
static bool put_recompute(struct variants *v, const char *assignment, char *text, size_t bytes)
{
    const char *now = v->config->parallel.recompute;
    bool more = !strcmp(now, "none") || (!strcmp(now, "selective") && strstr(assignment, "full"));
    return more && put(v, assignment, text, bytes);
}

static bool put_offload(struct variants *v, const char *what, char *text, size_t bytes)
{
    char word[96];
    int i = 0;
    while (strcmp(what, ls_offload_name((enum ls_offload)i)) != 0)
        i++;
    snprintf(word, sizeof word, "memory.offload.%s=%s", what,
             *v->config->memory.file ? "file" : "host");
    return ls_config_tier(v->config, (enum ls_offload)i) == LS_TIER_DEVICE &&
           put(v, word, text, bytes);
}

static bool is_enough(const struct variants *v, struct ls_memory_fit *fit)
{
    struct ls_layout layout;
    return !ls_config_layout(&v->changed, 0, &layout, NULL) &&
           !ls_memory_fit(&v->changed, &layout, v->world, fit, NULL) &&
           (v->limit == 0 || fit->bytes <= v->limit) && ls_memory_keeps_budget(v->config, fit);
}

static int64_t taken_of(const struct variants *v, const struct ls_memory_fit *fit)
{
    return v->config->memory.device_budget > 0 ? fit->rank_bytes : fit->bytes;
}

/* The largest smaller micro-batch that fits; false if none does. */
static bool micro_fits(struct variants *v, char *text, size_t bytes, int64_t *taken)
{
    size_t used = strlen(text);
    struct ls_memory_fit fit;
    for (int64_t micro = v->layout->micro_sequences / 2; micro >= 1; micro /= 2) {
        char word[64];
        text[used] = '\0';
        snprintf(word, sizeof word, "batch.micro=%ld", (long)micro);
        if (put(v, word, text, bytes) && is_enough(v, &fit)) {
            *taken = taken_of(v, &fit);
            return true;
        }
    }
    return false;
}

/* Whether the candidate changes something, is admitted, and fits. */
static bool candidate_fits(struct variants *v, const char *candidate,
                           struct ls_memory_change *change)
{
    char words[128], *save = NULL;
    *change = (struct ls_memory_change){0};
    v->changed = *v->config;
    snprintf(words, sizeof words, "%s", candidate);
    for (char *word = strtok_r(words, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        if (!strcmp(word, "micro"))
            return micro_fits(v, change->keys, sizeof change->keys, &change->bytes);
        bool changes = !strncmp(word, "zero=", 5)
                           ? put_zero(v, word[5] - '0', change->keys, sizeof change->keys)
                       : !strncmp(word, "memory.", 7)
                           ? put_recompute(v, word, change->keys, sizeof change->keys)
                           : put_offload(v, word, change->keys, sizeof change->keys);
        if (!changes)
            return false;
    }
    struct ls_memory_fit fit;
    if (!is_enough(v, &fit))
        return false;
    change->bytes = taken_of(v, &fit);
    return true;
}

int ls_memory_changes(const struct ls_config *config, const struct ls_layout *layout,
                      const struct ls_comm *world, int64_t limit,
                      struct ls_memory_change changes[LS_MEMORY_CHANGES_MAX])
{
    struct variants v = {.config = config, .layout = layout, .world = world, .limit = limit};
    int count = 0;
    for (int i = 0; i < CANDIDATES && count < LS_MEMORY_CHANGES_MAX; i++) {
        bool several = strchr(candidates[i], ' ') != NULL;
        if (several && count > 0)
            break;
        count += candidate_fits(&v, candidates[i], &changes[count]);
    }
    return count;
}
