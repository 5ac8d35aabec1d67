/* The nearest configuration that works: few keys changed, by small factors. */
#include "config/config_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A change of a key that is no axis costs FIX; each axis 1 and the binary logarithm of its factor.
 * VALUES: of a key, besides the one that was asked for. */
enum { AXIS_MAX = 65536, RANKS_MAX = 1 << 30, SIZES_MAX = 128, SIZES_NEAR = 6, SIZES_DENSE = 128 };
enum { VALUES = 4, TRIES_MAX = 4000 };
static const double FIX = 1.5;

/* A layout key that is not the default and no axis, with the values that are tried instead: those
 * nearest to it come first, the last is its default. */
struct loose {
    const struct ls_config_key *key;
    char value[VALUES][48];
    int values;
    int use; /* 0: as asked, i: value[i - 1] */
};

struct search {
    const struct config_refusal *refusal;
    int64_t world;         /* of refusal, in one group; 0: any */
    struct ls_config base; /* the refused one, with its recipe in order */
    int64_t asked[LS_AXES];
    int64_t sizes[LS_AXES][SIZES_MAX]; /* possible in a layout without other axes, nearest first */
    int count[LS_AXES];
    struct loose loose[LS_CONFIG_KEYS_MAX];
    int loose_count;
    struct ls_layout layout; /* room */
    struct ls_config tried, best;
    double best_cost;
    int64_t tries, weight; /* of a try: more if there are many sizes of batches */
};

/* ---- one candidate --------------------------------------------------------------------------- */

static bool has_axes(const struct ls_layout_keys *keys, const int64_t size[LS_AXES])
{
    int64_t now[LS_AXES];
    return !ls_layout_axes(keys, now, NULL) && !memcmp(now, size, sizeof now);
}

/* The axes by the keys that were given: data parallel by dp alone where that says it all. */
static void axes_put(struct ls_layout_keys *keys, const int64_t size[LS_AXES])
{
    int64_t replicate = size[LS_AXIS_DP_REPLICATE], shard = size[LS_AXIS_DP_SHARD];
    keys->pp = size[LS_AXIS_PP];
    keys->cp = size[LS_AXIS_CP];
    keys->tp = size[LS_AXIS_TP];
    if (has_axes(keys, size))
        return;
    bool given = keys->dp > 0, alone = keys->dp_replicate == 0 && keys->dp_shard == 0;
    keys->dp = given || alone ? replicate * shard : 0;
    if (has_axes(keys, size))
        return;
    keys->dp = given ? keys->dp : 0;
    if (replicate != ls_max(keys->dp_replicate, 1))
        keys->dp_replicate = replicate;
    if (shard != ls_max(keys->dp_shard, 1))
        keys->dp_shard = shard;
    LS_ASSERT(has_axes(keys, size));
}

/* Gives a loose key the value in use; false for one that is too large. */
static bool loose_put(const struct loose *loose, struct ls_config *config)
{
    char why[256];
    return loose->use == 0 || config_parse(config, loose->key, loose->value[loose->use - 1],
                                           config_is_text(loose->key), why, sizeof why);
}

/* Makes s->tried of these axes and the loose keys in use; whether its layout is admitted. */
static bool admits(struct search *s, const int64_t size[LS_AXES], int64_t world)
{
    bool good = true;
    s->tries += s->weight;
    s->tried = s->base;
    for (int i = 0; i < s->loose_count; i++)
        good = loose_put(&s->loose[i], &s->tried) && good;
    if (s->tried.parallel.schedule != LS_LAYOUT_CSV && s->refusal->table)
        s->tried.parallel.schedule_file[0] = '\0';
    axes_put(&s->tried.parallel, size);
    return good && s->tried.parallel.dp <= AXIS_MAX &&
           !config_admit(&s->tried, world * ls_config_groups(&s->tried), s->refusal->table,
                         &s->layout, NULL);
}

static void use_all(struct search *s, bool asked)
{
    for (int i = 0; i < s->loose_count; i++)
        s->loose[i].use = asked ? 0 : s->loose[i].values;
}

/* One loose key with another value, if that is enough. */
static bool one_fixes(struct search *s, const int64_t size[LS_AXES])
{
    use_all(s, true);
    for (int i = 0; i < s->loose_count; i++) {
        struct loose *loose = &s->loose[i];
        while (loose->use < loose->values) {
            loose->use++;
            if (admits(s, size, s->world))
                return true;
        }
        loose->use = 0;
    }
    return false;
}

/* From all by default, which is admitted: each as it was asked for, or near that, where it can be.
 * Returns how many are not as they were. */
static int several_fix(struct search *s, const int64_t size[LS_AXES])
{
    int fixes = 0;
    use_all(s, false);
    for (int i = 0; i < s->loose_count; i++) {
        struct loose *loose = &s->loose[i];
        for (loose->use = 0; loose->use < loose->values && !admits(s, size, s->world);)
            loose->use++;
        fixes += loose->use > 0;
    }
    admits(s, size, s->world);
    return fixes;
}

/* These axes, with the fewest other changes that are found. */
static void consider(struct search *s, const int64_t size[LS_AXES], double cost)
{
    int fixes = 0;
    if (s->tries > TRIES_MAX)
        return;
    use_all(s, true);
    if (!admits(s, size, s->world)) {
        use_all(s, false);
        if (cost + FIX >= s->best_cost || !admits(s, size, s->world))
            return;
        fixes = one_fixes(s, size) ? 1 : several_fix(s, size);
    }
    cost += FIX * fixes;
    if (cost >= s->best_cost || !config_works(s->refusal, &s->tried))
        return;
    s->best = s->tried;
    s->best_cost = cost;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static double distance(int64_t size, int64_t asked)
{
    return fabs(log2((double)size / (double)asked));
}

static void value_add(struct loose *loose, size_t length, const char *text)
{
    if (length < sizeof loose->value[0])
        snprintf(loose->value[loose->values++], sizeof loose->value[0], "%.*s", (int)length, text);
}

static void swap(int64_t *a, int64_t *b)
{
    int64_t kept = *a;
    *a = *b;
    *b = kept;
}

/* A leaf, and the powers of two on both sides, the nearest first. */
static void micro_add(struct loose *loose, int64_t asked, int64_t leaf)
{
    int64_t near[] = {1, 2, leaf};
    char text[32];
    for (; near[1] <= asked; near[1] *= 2)
        near[0] = near[1];
    for (int i = 0; i < 3; i++) {
        for (int j = i + 1; j < 3; j++)
            if (distance(near[j], asked) < distance(near[i], asked))
                swap(&near[i], &near[j]);
        value_add(loose, (size_t)snprintf(text, sizeof text, "%ld", (long)near[i]), text);
    }
}

static void loose_add(struct search *s, const struct ls_config_key *key)
{
    const char *recompute = s->base.parallel.recompute;
    struct loose *loose = &s->loose[s->loose_count++];
    *loose = (struct loose){.key = key};
    if (!strcmp(key->name, "batch.micro"))
        micro_add(loose, s->base.batch.micro, s->base.numerics.leaf_sequences);
    if (!strcmp(key->name, "memory.recompute")) { /* the first policy, of all stages */
        value_add(loose, strcspn(recompute, "@;"), recompute);
        value_add(loose, 4, "full");
    }
    if (!strncmp(key->name, "memory.offload.", 15) && key->type == LS_CONFIG_WORD)
        value_add(loose, 4, "host");
    value_add(loose, strlen(key->initial), key->initial);
}

static void loose_find(struct search *s)
{
    static const char axes[] = "parallel.workers|parallel.servers|parallel.pp|parallel.dp|"
                               "parallel.zero|parallel.dp_shard|parallel.cp|parallel.tp|"
                               "parallel.dp_replicate";
    for (const struct ls_config_key *key = ls_config_keys(NULL); key->name; key++) {
        bool axis = ls_word_among(axes, key->name) ||
                    (s->refusal->table && !strcmp(key->name, "parallel.schedule_file"));
        if (key->part == LS_CONFIG_LAYOUT && !axis && !config_is_initial(&s->base, key))
            loose_add(s, key);
    }
}

/* Of the two axes of data parallel, the one that parallel.dp means costs less. */
static double axis_cost(const struct search *s, int axis, int64_t size)
{
    int64_t asked = s->asked[axis];
    int other = s->base.parallel.zero ? LS_AXIS_DP_REPLICATE : LS_AXIS_DP_SHARD;
    double cost = 1 + distance(size, asked);
    return size == asked ? 0 : axis == other ? cost + 0.01 : cost;
}

static bool is_possible(struct search *s, int axis, int64_t n)
{
    int64_t size[LS_AXES] = {1, 1, 1, 1, 1};
    if (s->world ? s->world % n : llabs(n - s->asked[axis]) > SIZES_DENSE && !ls_is_pow2(n))
        return false;
    size[axis] = n;
    return n == 1 || admits(s, size, 0);
}

/* Of one axis: divisors of the world; without one the next ones, and 1. */
static void sizes_find(struct search *s, int axis)
{
    int64_t asked = s->asked[axis], low = asked, high = asked + 1;
    int64_t end = ls_min(s->world ? s->world : 2 * asked, AXIS_MAX);
    int *count = &s->count[axis], most = s->world ? SIZES_MAX : SIZES_NEAR;
    while ((low >= 1 || high <= end) && *count < most - 1 && s->tries < TRIES_MAX / 2) {
        bool down = low >= 1 && (high > end || (double)asked * asked <= (double)low * high);
        int64_t n = down ? low-- : high++;
        if (is_possible(s, axis, n))
            s->sizes[axis][(*count)++] = n;
    }
    if (low >= 1)
        s->sizes[axis][(*count)++] = 1;
}

static void axes_walk(struct search *s, int axis, int64_t ranks, double cost, int64_t size[LS_AXES])
{
    if (axis == LS_AXES) {
        if (s->world == 0 || s->world == ranks)
            consider(s, size, cost);
        return;
    }
    for (int i = 0; i < s->count[axis] && s->tries <= TRIES_MAX; i++) {
        size[axis] = s->sizes[axis][i];
        double with = cost + axis_cost(s, axis, size[axis]);
        bool room = ranks * size[axis] <= RANKS_MAX;
        if (with < s->best_cost && room && (!s->world || s->world % (ranks * size[axis]) == 0))
            axes_walk(s, axis + 1, ranks * size[axis], with, size);
    }
}

/* Layouts of the groups that base has, which costs that much. */
static void group_find(struct search *s, double groups_cost)
{
    int64_t one[LS_AXES] = {1, 1, 1, 1, 1}, size[LS_AXES];
    double cost = groups_cost;
    s->tries = 0;
    for (int axis = 0; axis < LS_AXES; axis++) {
        s->count[axis] = 0;
        cost += axis_cost(s, axis, 1);
    }
    if (s->world <= 1)
        consider(s, one, cost);
    use_all(s, false);
    for (int axis = 0; axis < LS_AXES; axis++)
        sizes_find(s, axis);
    axes_walk(s, 0, 1, groups_cost, size);
}

static void groups_try(struct search *s, int64_t workers, int64_t servers)
{
    const struct ls_layout_keys *asked = &s->refusal->refused->parallel;
    int64_t groups = workers + servers, world = s->refusal->world;
    double cost = servers == asked->servers ? 0 : FIX;
    if (workers != asked->workers)
        cost += 1 + distance(workers, asked->workers);
    s->base.parallel.workers = workers;
    s->base.parallel.servers = servers;
    s->world = world / groups;
    if (world % groups == 0 && cost < s->best_cost)
        group_find(s, cost);
}

/* Those that are asked for, then all others: each group trains as many workers. */
static void nearest_find(struct search *s)
{
    const struct ls_layout_keys *asked = &s->refusal->refused->parallel;
    int64_t workers = ls_config_workers(&s->base);
    if (workers % asked->workers == 0)
        groups_try(s, asked->workers, asked->servers);
    for (int64_t n = 1; n <= workers; n++)
        if (workers % n == 0 && (n != asked->workers || asked->servers))
            groups_try(s, n, 0);
    if (asked->servers && workers != asked->workers)
        groups_try(s, workers, asked->servers);
}

static void search_init(struct search *s, const struct config_refusal *refusal,
                        const struct ls_config *mended)
{
    const struct ls_config_batch *batch = &mended->batch;
    struct ls_layout_keys *keys = &s->base.parallel;
    memset(s, 0, sizeof *s);
    s->refusal = refusal;
    s->base = *mended;
    s->best_cost = HUGE_VAL;
    s->weight = 1;
    if (batch->rampup_increment)
        s->weight += (batch->global - batch->rampup_start) / batch->rampup_increment / 64;
    if (keys->schedule == LS_LAYOUT_CSV && !refusal->table) { /* no candidate has that table */
        keys->schedule = LS_SCHEDULE_1F1B;
        keys->schedule_file[0] = '\0';
    }
    struct ls_layout_keys asked = *keys;
    if (!ls_layout_axes(&asked, s->asked, NULL))
        return;
    asked.dp = 0; /* it follows the other two */
    LS_ASSERT(!ls_layout_axes(&asked, s->asked, NULL));
}

bool config_nearest(const struct config_refusal *refusal, const struct ls_config *mended,
                    struct ls_config *nearest)
{
    struct search s;
    search_init(&s, refusal, mended);
    loose_find(&s);
    nearest_find(&s);
    bool found = isfinite(s.best_cost);
    if (found)
        *nearest = s.best;
    return found;
}
