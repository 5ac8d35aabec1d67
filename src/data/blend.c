/* Sources mixed by weight: stages, and in each a period that repeats. */
#include <lockstep/base/words.h>
#include <lockstep/data.h>
#include <lockstep/data/blend.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct source {
    char *name;
    struct ls_sample_order order;
    int64_t limit; /* samples that it has in all its epochs; INT64_MAX: no limit */
};
/* Between two marks samples are counted: few enough to do so each time one is asked for. */
enum { MARK = 1024 };
/* Samples [first, end) of the run. Of a period that it does not reach the end of, what is behind
 * its own end is not there. */
struct stage {
    int64_t first, end, period;
    int64_t *parts;   /* [sources] of a period */
    int64_t *before;  /* [sources] samples that each had before the stage */
    uint16_t *source; /* [period] whose a sample is */
    int32_t *marks;   /* [marks, sources] how many each had before its sample 0, MARK, ... */
    bool rounded;
};
struct ls_blend {
    struct source *sources;
    int source_count;
    struct stage *stages;
    int64_t stage_count, stage_room;
};

/* ---- weights to whole numbers ---------------------------------------------------------------- */

/* The weights times a power of ten, where that gives whole numbers: those that were written with
 * so many digits. */
static bool parts_exact(const double *weights, int count, int64_t *parts)
{
    enum { DIGITS = 15 };
    double scale = 1;
    for (int digits = 0; digits <= DIGITS; digits++, scale *= 10) {
        int whole = 0;
        for (int i = 0; i < count; i++) {
            double part = nearbyint(weights[i] * scale);
            if (part > 0x1p53 || part / scale != weights[i])
                break;
            parts[i] = (int64_t)part;
            whole++;
        }
        if (whole == count)
            return true;
    }
    return false;
}

static int64_t parts_reduce(int64_t *parts, int count)
{
    int64_t common = 0, sum = 0;
    for (int i = 0; i < count; i++)
        common = ls_gcd(parts[i], common);
    for (int i = 0; i < count; i++)
        sum += parts[i] /= common;
    return sum;
}

/* Shares of LS_BLEND_PERIOD_MAX: rounded down, and what is left goes to the largest rests. */
static int64_t parts_round(const double *weights, int count, int64_t *parts)
{
    double all = 0;
    int64_t sum = 0;
    for (int i = 0; i < count; i++)
        all += weights[i];
    for (int i = 0; i < count; i++)
        sum += parts[i] =
            weights[i] > 0 ? ls_max(1, (int64_t)(weights[i] / all * LS_BLEND_PERIOD_MAX)) : 0;
    while (sum < LS_BLEND_PERIOD_MAX) {
        int most = 0;
        double rest_most = -INFINITY;
        for (int i = 0; i < count; i++) {
            double rest = weights[i] / all * LS_BLEND_PERIOD_MAX - (double)parts[i];
            if (rest > rest_most) {
                most = i;
                rest_most = rest;
            }
        }
        parts[most]++;
        sum++;
    }
    return sum;
}

/* weights[i] 0: the source takes no part. */
static void stage_weigh(struct stage *stage, const double *weights, int count)
{
    bool exact = parts_exact(weights, count, stage->parts);
    stage->period = exact ? parts_reduce(stage->parts, count) : 0;
    stage->rounded = !exact || stage->period > LS_BLEND_PERIOD_MAX;
    if (stage->rounded) {
        parts_round(weights, count, stage->parts);
        stage->period = parts_reduce(stage->parts, count);
    }
}

/* ---- the period ------------------------------------------------------------------------------ */

/* A source's next sample in the period. */
struct due {
    int64_t part, whole, over; /* of a period: its samples; period / part, and what is left */
    int64_t count;             /* samples that it had before */
    int64_t released, rest;    /* count * period / part, and what is left */
    int after;                 /* released at the same number; -1: none */
};
static void due_next(struct due *due)
{
    due->count++;
    due->released += due->whole;
    due->rest += due->over;
    if (due->rest >= due->part) {
        due->released++;
        due->rest -= due->part;
    }
}

/* Sources whose next sample may come, a heap by the number before which it is due: of several the
 * first source. */
struct ready {
    uint64_t *keys; /* [sources]: that number << 16 | source */
    int count;
};
_Static_assert(LS_BLEND_SOURCES_MAX <= 1 << 16, "a key holds a source");

static void ready_put(struct ready *ready, struct due due, int source)
{
    due_next(&due);
    const uint64_t key = (uint64_t)(due.released + (due.rest > 0)) << 16 | (uint64_t)source;
    int at = ready->count++;
    for (; at > 0 && ready->keys[(at - 1) / 2] > key; at = (at - 1) / 2)
        ready->keys[at] = ready->keys[(at - 1) / 2];
    ready->keys[at] = key;
}

static uint64_t ready_take(struct ready *ready)
{
    uint64_t *keys = ready->keys, first = keys[0], last = keys[--ready->count];
    int at = 0;
    for (int child; (child = 2 * at + 1) < ready->count; at = child) {
        child += child + 1 < ready->count && keys[child + 1] < keys[child];
        if (keys[child] >= last)
            break;
        keys[at] = keys[child];
    }
    keys[at] = last;
    return first;
}

/* What fills a period: heads[number] is a source that is released there, -1: none is. */
struct filling {
    struct due *due; /* [sources] */
    struct ready ready;
    int *heads;
};

/* Numbers are of the period, from 0; earliest deadline first. There always is a sample, and none is
 * late: the theorem in the header. Ends with the stage, which ends where a source has had its
 * epochs. */
static void period_fill(struct stage *stage, struct filling *f, const struct source *sources,
                        int count)
{
    int64_t length = ls_min(stage->period, stage->end - stage->first);
    for (int64_t number = 0; number < length; number++)
        f->heads[number] = -1;
    for (int i = 0; i < count; i++) {
        const int64_t part = stage->parts[i];
        if (part == 0)
            continue;
        f->due[i] =
            (struct due){.part = part, .whole = stage->period / part, .over = stage->period % part};
        ready_put(&f->ready, f->due[i], i);
    }
    for (int64_t number = 0; number < length; number++) {
        for (int i = 0; i < count && number % MARK == 0; i++)
            stage->marks[number / MARK * count + i] = (int32_t)f->due[i].count;
        for (int i = f->heads[number]; i >= 0; i = f->due[i].after)
            ready_put(&f->ready, f->due[i], i);
        LS_ASSERT(f->ready.count > 0);
        const uint64_t key = ready_take(&f->ready);
        const int first = (int)(key & 0xffff);
        struct due *due = &f->due[first];
        LS_ASSERT((int64_t)(key >> 16) > number);
        stage->source[number] = (uint16_t)first;
        due_next(due);
        if (due->count < due->part && due->released <= number) {
            ready_put(&f->ready, *due, first);
        } else if (due->count < due->part && due->released < length) {
            due->after = f->heads[due->released];
            f->heads[due->released] = first;
        }
        if (stage->before[first] + due->count == sources[first].limit)
            stage->end = stage->first + (length = number + 1);
    }
}

/* How many of the first `count` samples of a period are of a source. */
static int64_t period_before(const struct ls_blend *blend, const struct stage *stage, int64_t count,
                             int source)
{
    int64_t mark = ls_max(count - 1, 0) / MARK; /* that of sample `count` may not be there */
    const uint16_t *from = stage->source + mark * MARK, sought = (uint16_t)source;
    uint16_t more = 0; /* MARK at most: in 16 bits, the loop becomes short vectors */
    for (int64_t at = 0; at < count - mark * MARK; at++)
        more = (uint16_t)(more + (from[at] == sought));
    return stage->marks[mark * blend->source_count + source] + more;
}

static int64_t stage_before(const struct ls_blend *blend, const struct stage *stage, int64_t number,
                            int source)
{
    int64_t count = number - stage->first;
    return stage->before[source] + count / stage->period * stage->parts[source] +
           period_before(blend, stage, count % stage->period, source);
}

/* The number behind the sample of a source that is its `count`-th in the stage, from 1. */
static int64_t stage_number_behind(const struct ls_blend *blend, const struct stage *stage,
                                   int source, int64_t count)
{
    int64_t periods = (count - 1) / stage->parts[source], behind;
    int64_t rank = (count - 1) % stage->parts[source];
    int64_t at = rank * stage->period / stage->parts[source]; /* not before it is released */
    for (rank -= period_before(blend, stage, at, source); stage->source[at] != source || rank; at++)
        rank -= stage->source[at] == source;
    if (__builtin_mul_overflow(periods, stage->period, &behind) ||
        __builtin_add_overflow(behind, stage->first + at + 1, &behind))
        return INT64_MAX;
    return behind;
}

/* ---- stages ---------------------------------------------------------------------------------- */

static void stage_release(struct stage *stage)
{
    free(stage->parts);
    free(stage->before);
    free(stage->source);
    free(stage->marks);
}

static int stage_memory(struct stage *stage, int sources, struct ls_error *error)
{
    stage->parts = calloc((size_t)sources, sizeof *stage->parts);
    stage->before = calloc((size_t)sources, sizeof *stage->before);
    return stage->parts && stage->before
               ? LS_OK
               : ls_no_memory(error, "for a blend of %d sources", sources);
}

/* How many numbers the marks of so many samples are. */
static size_t marks_count(size_t samples, int sources)
{
    return (samples + MARK - 1) / MARK * (size_t)sources;
}

/* Of a table for the whole period, the part that the stage uses. */
static void *table_shrink(void *table, size_t bytes)
{
    void *shrunk = realloc(table, bytes);
    return shrunk ? shrunk : table;
}

static int period_make(struct stage *stage, const struct source *sources, int count,
                       struct ls_error *error)
{
    const size_t most = (size_t)ls_min(stage->period, stage->end - stage->first);
    struct filling filling = {.due = calloc((size_t)count, sizeof *filling.due),
                              .ready.keys = calloc((size_t)count, sizeof *filling.ready.keys),
                              .heads = malloc(most * sizeof *filling.heads)};
    stage->source = malloc(most * sizeof *stage->source);
    stage->marks = malloc(marks_count(most, count) * sizeof *stage->marks);
    bool good = filling.due && filling.ready.keys && filling.heads && stage->source && stage->marks;
    if (good)
        period_fill(stage, &filling, sources, count);
    if (good && stage->end - stage->first < stage->period) {
        size_t length = (size_t)(stage->end - stage->first);
        stage->source = table_shrink(stage->source, length * sizeof *stage->source);
        stage->marks =
            table_shrink(stage->marks, marks_count(length, count) * sizeof *stage->marks);
    }
    free(filling.due);
    free(filling.ready.keys);
    free(filling.heads);
    return good ? LS_OK
                : ls_no_memory(error, "for a blend of period %lld", (long long)stage->period);
}

/* The weight of each source from sample `first` on, and how long nothing is said of a change. */
static int weights_at(const struct ls_blend_config *config, const struct ls_blend *blend,
                      int64_t first, const int64_t *before, double *weights, int64_t *end,
                      struct ls_error *error)
{
    memset(weights, 0, (size_t)config->source_count * sizeof *weights);
    *end = INT64_MAX;
    for (int i = 0; i < config->entry_count; i++) {
        const struct ls_blend_entry *entry = &config->entries[i];
        if (entry->first > first)
            *end = ls_min(*end, entry->first);
        if (entry->first > first || entry->end <= first)
            continue;
        *end = ls_min(*end, entry->end);
        if (weights[entry->source] > 0)
            return ls_error_set(error, LS_EINVAL, "%.300s: two of its weights hold at sample %lld",
                                config->sources[entry->source].name, (long long)first);
        if (before[entry->source] < blend->sources[entry->source].limit)
            weights[entry->source] = entry->weight;
    }
    return LS_OK;
}

static bool any(const double *weights, int count)
{
    for (int i = 0; i < count; i++)
        if (weights[i] > 0)
            return true;
    return false;
}

/* The stage goes on over entries that leave its proportions as they are. Overwrites weights. */
static int stage_end_entries(const struct ls_blend *blend, const struct ls_blend_config *config,
                             struct stage *stage, double *weights, struct ls_error *error)
{
    size_t bytes = (size_t)blend->source_count * sizeof *stage->parts;
    struct stage next = {.parts = malloc(bytes)};
    int status =
        next.parts ? LS_OK : ls_no_memory(error, "for a blend of %d sources", blend->source_count);
    while (!status && stage->end < INT64_MAX) {
        status = weights_at(config, blend, stage->end, stage->before, weights, &next.end, error);
        if (status || !any(weights, blend->source_count))
            break;
        stage_weigh(&next, weights, blend->source_count);
        if (memcmp(next.parts, stage->parts, bytes) != 0)
            break;
        stage->end = next.end;
    }
    free(next.parts);
    return status;
}

/* The stage ends earlier where a source has had its epochs. */
static void stage_end_epochs(const struct ls_blend *blend, struct stage *stage)
{
    if (stage->end - stage->first <= stage->period)
        return; /* in its first period, if none had them before */
    for (int i = 0; i < blend->source_count; i++)
        if (stage->parts[i] > 0 && blend->sources[i].limit < INT64_MAX)
            stage->end =
                ls_min(stage->end, stage_number_behind(blend, stage, i,
                                                       blend->sources[i].limit - stage->before[i]));
}

/* One stage more, from where the last one ended; *going is false if none is left. */
static int stage_add(struct ls_blend *blend, const struct ls_blend_config *config, double *weights,
                     bool *going, struct ls_error *error)
{
    const struct stage *last =
        blend->stage_count > 0 ? &blend->stages[blend->stage_count - 1] : NULL;
    struct stage stage = {.first = last ? last->end : 0};
    int status = stage_memory(&stage, blend->source_count, error);
    for (int i = 0; i < blend->source_count && !status && last; i++)
        stage.before[i] = stage_before(blend, last, last->end, i);
    if (!status)
        status = weights_at(config, blend, stage.first, stage.before, weights, &stage.end, error);
    *going = !status && any(weights, blend->source_count);
    if (*going) {
        stage_weigh(&stage, weights, blend->source_count);
        status = stage_end_entries(blend, config, &stage, weights, error);
    }
    if (*going && !status)
        status = period_make(&stage, blend->sources, blend->source_count, error);
    if (*going && !status) {
        stage_end_epochs(blend, &stage);
        if (!ls_list_grow(&blend->stages, blend->stage_count, &blend->stage_room, sizeof stage))
            status = ls_no_memory(error, "for the stages of a blend");
    }
    if (*going && !status)
        blend->stages[blend->stage_count++] = stage;
    else
        stage_release(&stage);
    *going = *going && !status && stage.end < INT64_MAX;
    return status;
}

/* ---- making ---------------------------------------------------------------------------------- */

/* Whole samples in so many epochs: 0.29 of 100 are 29, though the product falls short of it. */
static double samples_of(const struct ls_blend_source *source)
{
    double samples = source->epochs * (double)source->samples, near = nearbyint(samples);
    return near / (double)source->samples == source->epochs ? near : floor(samples);
}

static int sources_take(struct ls_blend *blend, const struct ls_blend_config *config,
                        struct ls_error *error)
{
    for (int i = 0; i < config->source_count; i++) {
        const struct ls_blend_source *source = &config->sources[i];
        double limit = samples_of(source);
        if (source->samples < 1 || !(source->epochs >= 0) || (source->epochs > 0 && limit < 1))
            return ls_error_set(error, LS_EINVAL,
                                "%.300s: epochs %g of %s; expected 1 sample or more", source->name,
                                source->epochs, ls_counted(source->samples, "sample").text);
        blend->sources[i] = (struct source){
            strdup(source->name),
            {source->samples, config->seed, config->shuffle},
            source->epochs > 0 && limit < 0x1p62 ? (int64_t)limit : INT64_MAX,
        };
        if (!blend->sources[i].name)
            return ls_no_memory(error, "for the sources of a blend");
    }
    return LS_OK;
}

static int entries_check(const struct ls_blend_config *config, struct ls_error *error)
{
    if (config->source_count < 1 || config->source_count > LS_BLEND_SOURCES_MAX)
        return ls_error_set(error, LS_EINVAL, "a blend of %d sources; expected 1 to %d",
                            config->source_count, LS_BLEND_SOURCES_MAX);
    for (int i = 0; i < config->entry_count; i++) {
        const struct ls_blend_entry *entry = &config->entries[i];
        LS_ASSERT(entry->source >= 0 && entry->source < config->source_count);
        const char *name = config->sources[entry->source].name;
        if (!(entry->weight > 0 && isfinite(entry->weight)))
            return ls_error_set(error, LS_EINVAL, "%.300s: weight %g; expected a number above 0",
                                name, entry->weight);
        if (entry->first < 0 || entry->end <= entry->first)
            return ls_error_set(error, LS_EINVAL, "%.300s: from sample %lld to %lld there is none",
                                name, (long long)entry->first, (long long)entry->end);
    }
    return LS_OK;
}

int ls_blend_new(const struct ls_blend_config *config, struct ls_blend **out,
                 struct ls_error *error)
{
    *out = NULL;
    int status = entries_check(config, error);
    if (status)
        return status;
    size_t count = (size_t)config->source_count;
    struct ls_blend *blend = calloc(1, sizeof *blend);
    double *weights = calloc(count, sizeof *weights);
    if (blend)
        blend->sources = calloc(count, sizeof *blend->sources);
    if (!blend || !weights || !blend->sources) {
        status = ls_no_memory(error, "for a blend of %zu sources", count);
    } else {
        blend->source_count = config->source_count;
        status = sources_take(blend, config, error);
    }
    for (bool going = true; going && !status;)
        status = stage_add(blend, config, weights, &going, error);
    if (!status && blend->stage_count == 0)
        status = ls_error_set(error, LS_EINVAL, "no source of the blend has a weight at sample 0");
    free(weights);
    if (status) {
        ls_blend_free(blend);
        return status;
    }
    *out = blend;
    return LS_OK;
}

int ls_blend_of_one(int64_t samples, uint64_t seed, bool shuffle, struct ls_blend **out,
                    struct ls_error *error)
{
    const struct ls_blend_source source = {.name = "", .samples = samples};
    const struct ls_blend_entry entry = {.weight = 1, .end = INT64_MAX};
    return ls_blend_new(&(struct ls_blend_config){&source, 1, &entry, 1, seed, shuffle}, out,
                        error);
}

void ls_blend_free(struct ls_blend *blend)
{
    if (!blend)
        return;
    for (int64_t i = 0; i < blend->stage_count; i++)
        stage_release(&blend->stages[i]);
    for (int i = 0; blend->sources && i < blend->source_count; i++)
        free(blend->sources[i].name);
    free(blend->stages);
    free(blend->sources);
    free(blend);
}

/* ---- asking ---------------------------------------------------------------------------------- */

int64_t ls_blend_end(const struct ls_blend *blend)
{
    return blend->stages[blend->stage_count - 1].end;
}

/* The last stage that begins at or before number. */
static const struct stage *stage_of(const struct ls_blend *blend, int64_t number)
{
    int64_t low = 0, high = blend->stage_count - 1;
    while (low < high) {
        int64_t middle = high - (high - low) / 2;
        if (blend->stages[middle].first <= number)
            low = middle;
        else
            high = middle - 1;
    }
    return &blend->stages[low];
}

struct ls_blend_place ls_blend_at(const struct ls_blend *blend, int64_t number)
{
    const struct stage *stage = stage_of(blend, number);
    LS_ASSERT(number >= 0 && number < stage->end);
    int64_t at = (number - stage->first) % stage->period;
    int source = stage->source[at];
    int64_t position = stage_before(blend, stage, number, source);
    const struct ls_sample_order *order = &blend->sources[source].order;
    return (struct ls_blend_place){source, position / order->samples,
                                   ls_sample_at(order, position)};
}

int ls_blend_source_at(const struct ls_blend *blend, int64_t number)
{
    const struct stage *stage = stage_of(blend, number);
    LS_ASSERT(number >= 0 && number < stage->end);
    return stage->source[(number - stage->first) % stage->period];
}

int ls_blend_stages(const struct ls_blend *blend)
{
    return (int)blend->stage_count;
}

struct ls_blend_stage ls_blend_stage(const struct ls_blend *blend, int index)
{
    LS_ASSERT(index >= 0 && index < blend->stage_count);
    const struct stage *stage = &blend->stages[index];
    return (struct ls_blend_stage){stage->first, stage->period, stage->parts, stage->rounded};
}

int ls_blend_sources(const struct ls_blend *blend)
{
    return blend->source_count;
}

void ls_blend_ledger(const struct ls_blend *blend, int64_t first, int64_t count,
                     struct ls_digest *digest)
{
    for (int64_t number = first; number < first + count; number++) {
        struct ls_blend_place place = ls_blend_at(blend, number);
        const struct source *source = &blend->sources[place.source];
        ls_digest_piece(digest, source->name, source->order.samples, number, &place.sample,
                        sizeof place.sample);
    }
}
