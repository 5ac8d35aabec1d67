/* Sources mixed by weight: exact proportions at every prefix, each sample once in an epoch, and the
 * same order after any stop, in any layout, when later weights change. */
#include "support.h"

#include <lockstep/data/blend.h>

#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 6 };

static uint64_t drawn_number(int index)
{
    return ls_hash64(&index, sizeof index, 1);
}

static struct ls_blend *make_of(const struct ls_blend_config *config)
{
    struct ls_blend *blend;
    struct ls_error error = {0};
    assert_ok(ls_blend_new(config, &blend, &error), error);
    return blend;
}

static struct ls_blend *make(const struct ls_blend_source *sources, int source_count,
                             const struct ls_blend_entry *entries, int entry_count)
{
    return make_of(&(struct ls_blend_config){sources, source_count, entries, entry_count, 3, true});
}

/* Endless sources, from the start on, each in its order. */
enum { LONG = 1000000007 };
static struct ls_blend *make_weighed(const double *weights, int count)
{
    struct ls_blend_source sources[MOST];
    struct ls_blend_entry entries[MOST];
    for (int i = 0; i < count; i++) {
        sources[i] = (struct ls_blend_source){"s", LONG, 0};
        entries[i] = (struct ls_blend_entry){i, weights[i], 0, INT64_MAX};
    }
    return make_of(&(struct ls_blend_config){sources, count, entries, count, 3, false});
}

/* How many of the samples before `number` are of a source. */
static int64_t count_before(const struct ls_blend *blend, int64_t number, int source)
{
    int64_t count = 0;
    for (int64_t n = 0; n < number; n++)
        count += ls_blend_source_at(blend, n) == source;
    return count;
}

/* ---- proportions ----------------------------------------------------------------------------- */

/* Whose sample a number is, by whatever is tried. */
typedef int choose(void *user, int64_t number);

static int blend_choose(void *user, int64_t number)
{
    int source = ls_blend_at(user, number).source;
    assert_int_equal(ls_blend_source_at(user, number), source);
    return source;
}

/* The first number at which a source is a whole sample or more off its share, -1: none. */
static int64_t first_off(choose *choose, void *user, const int64_t *parts, int count,
                         int64_t numbers)
{
    int64_t had[MOST] = {0}, all = 0;
    for (int i = 0; i < count; i++)
        all += parts[i];
    for (int64_t number = 0; number < numbers; number++) {
        had[choose(user, number)]++;
        for (int i = 0; i < count; i++)
            if (llabs(had[i] * all - (number + 1) * parts[i]) >= all)
                return number;
    }
    return -1;
}

/* All proportions of up to four sources with parts up to 5, over three periods. */
CASE(test_no_source_is_a_sample_off_its_share)
{
    int tried = 0;
    for (int code = 0; code < 6 * 6 * 6 * 6; code++) {
        int64_t parts[4], all = 0;
        double weights[4];
        int count = 0;
        for (int i = 0, rest = code; i < 4; i++, rest /= 6)
            if (rest % 6) {
                all += rest % 6;
                parts[count] = rest % 6;
                weights[count++] = 0.1 * (rest % 6);
            }
        if (count == 0)
            continue;
        for (int i = 0; i < count; i++) /* 0.1 * 3 is not what "0.3" reads as */
            weights[i] = (double)parts[i] / 10;
        struct ls_blend *blend = make_weighed(weights, count);
        assert_false(ls_blend_stage(blend, 0).rounded);
        assert_int_equal(all % ls_blend_stage(blend, 0).period, 0);
        int64_t off = first_off(blend_choose, blend, parts, count, 3 * all);
        if (off >= 0)
            fail_msg("case %d: off at sample %lld", code, (long long)off);
        ls_blend_free(blend);
        tried++;
    }
    assert_int_equal(tried, 6 * 6 * 6 * 6 - 1);
}

/* The weights of a large corpus, with six digits, at drawn prefixes. */
CASE(test_long_weights)
{
    const double weights[] = {0.671234, 0.150001, 0.1, 0.045, 0.033765};
    const int64_t parts[] = {671234, 150001, 100000, 45000, 33765};
    struct ls_blend *blend = make_weighed(weights, 5);
    const struct ls_blend_stage stage = ls_blend_stage(blend, 0);
    assert_false(stage.rounded);
    assert_int_equal(stage.period, 1000000);
    assert_int_equal(first_off(blend_choose, blend, parts, 5, 1000000), -1);
    for (int draw = 0; draw < 1000; draw++) {
        int64_t number = (int64_t)(drawn_number(draw) % 1000000000000);
        for (int i = 0; i < 5; i++) {
            int64_t next = number;
            while (ls_blend_source_at(blend, next) != i)
                next++;
            const struct ls_blend_place place = ls_blend_at(blend, next);
            int64_t had = place.epoch * LONG + place.sample;
            int64_t off =
                (had - number / 1000000 * parts[i]) * 1000000 - number % 1000000 * parts[i];
            assert_in_range(off + 999999, 0, 2 * 999999);
        }
    }
    ls_blend_free(blend);
    /* Token counts that have no small common measure are rounded, and said to be. */
    blend = make_weighed((const double[]){1234567891, 987654323, 1}, 3);
    assert_true(ls_blend_stage(blend, 0).rounded);
    assert_in_range(ls_blend_stage(blend, 0).parts[2], 1, 1);
    assert_in_range(ls_blend_stage(blend, 0).period, 1, LS_BLEND_PERIOD_MAX + 3);
    ls_blend_free(blend);
}

/* The order by its definition: of all that may come, the source whose sample is due first. */
CASE(test_the_earliest_deadline_comes_first)
{
    for (int draw = 0; draw < 40; draw++) {
        const int count = 1 + draw % MOST;
        int64_t had[MOST] = {0}, all = 0;
        double weights[MOST];
        for (int i = 0; i < count; i++) {
            weights[i] = (double)(1 + drawn_number(MOST * draw + i) % 50);
            all += (int64_t)weights[i];
        }
        struct ls_blend *blend = make_weighed(weights, count);
        for (int64_t number = 0; number < all; number++) {
            int64_t least = INT64_MAX;
            int first = -1;
            for (int i = 0; i < count; i++) {
                const int64_t part = (int64_t)weights[i];
                const int64_t deadline = ls_ceil_div((had[i] + 1) * all, part);
                if (had[i] < part && had[i] * all / part <= number && deadline < least) {
                    first = i;
                    least = deadline;
                }
            }
            assert_int_equal(ls_blend_source_at(blend, number), first);
            had[first]++;
        }
        ls_blend_free(blend);
    }
}

/* What other programs do: one source after the other in each period; the source that lags behind
 * most, without a look at who else will be due. */
static int one_after_the_other(void *user, int64_t number)
{
    const int64_t *parts = user;
    int64_t at = number % (parts[0] + parts[1] + parts[2]);
    return at < parts[0] ? 0 : at < parts[0] + parts[1] ? 1 : 2;
}

static int drawn(void *user, int64_t number)
{
    const int64_t *parts = user;
    int64_t at = (int64_t)(drawn_number((int)number) % (uint64_t)(parts[0] + parts[1] + parts[2]));
    return at < parts[0] ? 0 : at < parts[0] + parts[1] ? 1 : 2;
}

CASE(test_worse_orders_are_caught)
{
    int64_t parts[] = {7, 2, 1};
    assert_in_range(first_off(one_after_the_other, parts, parts, 3, 10), 0, 9);
    assert_in_range(first_off(drawn, parts, parts, 3, 1000), 0, 999);
}

/* ---- exactly once ---------------------------------------------------------------------------- */

enum { SOURCES = 4, RUN = 100000 };

/* A run whose weights change at drawn numbers; sources end by their epochs. */
struct history {
    struct ls_blend_source sources[SOURCES];
    struct ls_blend_entry entries[64];
    int count;
};

static void history_begin(struct history *h)
{
    static const struct ls_blend_source sources[SOURCES] = {
        {"web", 997, 0}, {"code", 211, 3}, {"books", 64, 0.5}, {"wiki", 50, 0}};
    memcpy(h->sources, sources, sizeof sources);
    h->count = 0;
    for (int i = 0; i < SOURCES; i++)
        h->entries[h->count++] = (struct ls_blend_entry){i, 1 + i % 3, 0, INT64_MAX};
}

/* New weights from `number` on, of all sources but perhaps one. */
static void history_change(struct history *h, int64_t number, int draw)
{
    int kept = 0;
    for (int i = 0; i < h->count; i++) {
        if (h->entries[i].first >= number) /* a change that did not come to pass */
            continue;
        h->entries[kept] = h->entries[i];
        h->entries[kept].end = ls_min(h->entries[kept].end, number);
        kept++;
    }
    h->count = kept;
    for (int i = 0; i < SOURCES; i++)
        if (i == 0 || drawn_number(draw * 7 + i) % 4)
            h->entries[h->count++] = (struct ls_blend_entry){
                i, (double)(1 + drawn_number(draw + i) % 9) / 10, number, INT64_MAX};
}

/* The order by the definition alone, number by number: no period, no table, no jump. */
struct walk {
    int64_t had[SOURCES], before[SOURCES], first, parts[SOURCES];
};
static int walk_next(struct walk *w, const struct history *h, int64_t number)
{
    int64_t parts[SOURCES] = {0}, all = 0, common = 0;
    int best = -1;
    for (int i = 0; i < h->count; i++) {
        const struct ls_blend_entry *entry = &h->entries[i];
        const struct ls_blend_source *source = &h->sources[entry->source];
        bool ended = source->epochs > 0 &&
                     (double)w->had[entry->source] >= (double)source->samples * source->epochs;
        if (entry->first <= number && number < entry->end && !ended)
            parts[entry->source] = (int64_t)(entry->weight * 10 + 0.5);
    }
    for (int i = 0; i < SOURCES; i++)
        common = ls_gcd(parts[i], common);
    for (int i = 0; i < SOURCES; i++)
        parts[i] /= common;
    if (memcmp(parts, w->parts, sizeof parts)) { /* another stage begins */
        memcpy(w->parts, parts, sizeof parts);
        memcpy(w->before, w->had, sizeof w->had);
        w->first = number;
    }
    for (int i = 0; i < SOURCES; i++)
        all += parts[i];
    int64_t at = number - w->first, due = 0;
    for (int i = 0; i < SOURCES; i++) {
        int64_t had = w->had[i] - w->before[i];
        if (!parts[i] || had * all >= (at + 1) * parts[i]) /* the next one may not come yet */
            continue;
        int64_t deadline = ((had + 1) * all + parts[i] - 1) / parts[i];
        if (best < 0 || deadline < due) {
            best = i;
            due = deadline;
        }
    }
    assert_true(best >= 0);
    w->had[best]++;
    return best;
}

static void check_walk(const struct history *h, const struct ls_blend *blend, int64_t numbers)
{
    struct walk walk = {.parts = {-1}};
    for (int64_t number = 0; number < numbers; number++) {
        int source = walk_next(&walk, h, number);
        const struct ls_blend_place place = ls_blend_at(blend, number);
        int64_t position = walk.had[source] - 1, samples = h->sources[source].samples;
        const struct ls_sample_order order = {samples, 3, true};
        assert_int_equal(place.source, source);
        assert_int_equal(place.epoch, position / samples);
        assert_int_equal(place.sample, ls_sample_at(&order, position));
    }
}

/* How often each sample of each epoch was taken. */
struct taken {
    unsigned char *of[SOURCES];
};
static void take(struct taken *taken, const struct history *h, const struct ls_blend *blend,
                 int64_t number, int by)
{
    const struct ls_blend_place place = ls_blend_at(blend, number);
    unsigned char *count =
        &taken->of[place.source][place.epoch * h->sources[place.source].samples + place.sample];
    *count = (unsigned char)(*count + by);
}

/* Within each source all epochs but the last are complete, and nothing came twice. */
static bool once(const struct taken *taken, const struct history *h, const struct ls_blend *blend,
                 int64_t numbers)
{
    for (int s = 0; s < SOURCES; s++) {
        int64_t samples = h->sources[s].samples, whole = count_before(blend, numbers, s);
        for (int64_t i = 0; i < RUN + samples; i++) {
            bool complete = i < whole / samples * samples;
            bool any = i < ls_ceil_div(whole, samples) * samples;
            if (taken->of[s][i] > any || (complete && taken->of[s][i] != 1))
                return false;
        }
        int64_t sum = 0;
        for (int64_t i = 0; i < RUN + samples; i++)
            sum += taken->of[s][i];
        if (sum != whole)
            return false;
    }
    return true;
}

/* The run goes on from a step at most as far as it came; what it took behind that is no part of the
 * history any more. Each start makes the blend anew, and deals the numbers of a step out to some
 * ranks. forgets: the twin, which resumes one sample late. */
static bool run_in_pieces(int stops, bool forgets)
{
    struct history h;
    struct taken taken;
    history_begin(&h);
    for (int s = 0; s < SOURCES; s++)
        assert_non_null(taken.of[s] = calloc((size_t)(RUN + h.sources[s].samples), 1));
    struct ls_blend *blend = make(h.sources, SOURCES, h.entries, h.count);
    struct ls_digest ledger = {0, 0}, whole = {0, 0};
    int64_t at = 0;
    for (int stop = 0; stop < stops; stop++) {
        int64_t steps = (int64_t)(drawn_number(3 * stop) % 9), goes_back = 0;
        int64_t from = at, ranks = 1 + (int64_t)(drawn_number(3 * stop + 1) % 5);
        int64_t count = ls_min(steps * 5, RUN - at);
        for (int64_t rank = 0; rank < ranks; rank++) /* of each the numbers that are its */
            for (int64_t n = from + rank; n < from + count; n += ranks)
                take(&taken, &h, blend, n, 1);
        at += count;
        goes_back = ls_min(count, (int64_t)(drawn_number(3 * stop + 2) % 4) * 5);
        for (int64_t n = at - goes_back; n < at; n++)
            take(&taken, &h, blend, n, -1);
        at -= goes_back;
        ls_blend_ledger(blend, from, at - from, &ledger);
        if (stop % 601 == 11 && h.count < 60)
            history_change(&h, at + (int64_t)(drawn_number(stop) % 50), stop);
        ls_blend_free(blend);
        blend = make(h.sources, SOURCES, h.entries, h.count);
        at += forgets && stop == stops / 2;
    }
    ls_blend_ledger(blend, 0, at, &whole);
    bool good = once(&taken, &h, blend, at) && ledger.low == whole.low && ledger.high == whole.high;
    if (good && !forgets)
        check_walk(&h, blend, at);
    if (!forgets)
        assert_true(ls_blend_stages(blend) > 5);
    ls_blend_free(blend);
    for (int s = 0; s < SOURCES; s++)
        free(taken.of[s]);
    return good;
}

CASE(test_stops_resumes_layouts_and_stages)
{
    assert_true(run_in_pieces(10000, false));
}

/* Weights that are said again, or all at half the size, are the weights that held: among any first
 * numbers no source is a sample off its share, and no stage begins. */
CASE(test_proportions_that_are_repeated_change_nothing)
{
    const struct ls_blend_source sources[] = {{"web", 1009, 0}, {"code", 37, 3}};
    const struct ls_blend_entry once[] = {{0, 0.7, 0, INT64_MAX}, {1, 0.3, 0, INT64_MAX}};
    const struct ls_blend_entry again[] = {
        {0, 0.7, 0, 4},      {0, 0.7, 4, 11},         {0, 3.5, 11, 250},
        {0, 0.7, 250, 1300}, {0, 9, 1300, INT64_MAX}, {1, 0.3, 0, 11},
        {1, 1.5, 11, 250},   {1, 0.3, 250, 251},      {1, 0.3, 251, INT64_MAX},
    };
    struct ls_blend *blends[] = {make(sources, 2, once, 2), make(sources, 2, again, 9)};
    assert_int_equal(first_off(blend_choose, blends[1], (const int64_t[]){7, 3}, 2, 300), -1);
    for (int64_t number = 0; number < 3000; number++) {
        struct ls_blend_place a = ls_blend_at(blends[0], number);
        struct ls_blend_place b = ls_blend_at(blends[1], number);
        assert_int_equal(a.source, b.source);
        assert_int_equal(a.epoch, b.epoch);
        assert_int_equal(a.sample, b.sample);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ls_blend_stages(blends[i]), 2); /* code has had its epochs */
        ls_blend_free(blends[i]);
    }
    const struct ls_blend_entry changed[] = {
        {0, 0.7, 0, 4}, {0, 0.6, 4, INT64_MAX}, {1, 0.3, 0, INT64_MAX}};
    struct ls_blend *blend = make(sources, 2, changed, 3);
    assert_int_equal(ls_blend_stage(blend, 1).first, 4);
    ls_blend_free(blend);
}

CASE(test_a_lost_sample_is_caught)
{
    assert_false(run_in_pieces(300, true));
}

/* ---- ends and refusals ----------------------------------------------------------------------- */

CASE(test_epochs_end_a_source)
{
    const struct ls_blend_source sources[] = {{"a", 10, 2}, {"b", 7, 1}};
    const struct ls_blend_entry entries[] = {{0, 0.5, 0, INT64_MAX}, {1, 0.5, 0, INT64_MAX}};
    struct ls_blend *blend = make(sources, 2, entries, 2);
    assert_int_equal(ls_blend_end(blend), 27);
    assert_int_equal(ls_blend_stages(blend), 2);
    assert_int_equal(count_before(blend, 27, 0), 20);
    assert_int_equal(count_before(blend, 27, 1), 7);
    assert_int_equal(count_before(blend, 14, 1), 7);
    for (int64_t n = 14; n < 27; n++)
        assert_int_equal(ls_blend_at(blend, n).source, 0);
    ls_blend_free(blend);
    blend = NULL;
    struct ls_error error = {0};
    assert_ok(ls_blend_of_one(5, 9, true, &blend, &error), error);
    const struct ls_sample_order order = {5, 9, true};
    for (int64_t n = 0; n < 50; n++)
        assert_int_equal(ls_blend_at(blend, n).sample, ls_sample_at(&order, n));
    assert_true(ls_blend_end(blend) == INT64_MAX);
    assert_in_range(ls_blend_at(blend, INT64_MAX - 1).sample, 0, 4);
    ls_blend_free(blend);
}

/* Shares of an epoch that are no binary fractions. */
CASE(test_epochs_of_hundredths)
{
    for (int i = 1; i <= 300; i++) {
        const struct ls_blend_source source = {"s", 100, i / 100.0};
        const struct ls_blend_entry entry = {0, 1, 0, INT64_MAX};
        struct ls_blend *blend = make(&source, 1, &entry, 1);
        assert_int_equal(ls_blend_end(blend), i);
        ls_blend_free(blend);
    }
}

/* 0: another allocator is in place of the C library's, as under sanitizers. */
static size_t allocated_bytes(void)
{
    const struct mallinfo2 now = mallinfo2();
    return now.uordblks + now.hblkhd;
}

/* Sources that end long before a period does: a stage holds no more of its order than it uses, some
 * 6 KiB here. In full the orders below would be 256 times 2^20 samples: minutes, and more than half
 * a gigabyte; and their marks a quarter of one. */
CASE(test_many_short_sources)
{
    enum { COUNT = 256 };
    struct ls_blend_source sources[COUNT];
    struct ls_blend_entry entries[COUNT];
    int64_t had[COUNT] = {0}, all = 0;
    for (int i = 0; i < COUNT; i++) {
        sources[i] = (struct ls_blend_source){"s", 3 + i, 1};
        entries[i] = (struct ls_blend_entry){i, sqrt(COUNT - i), 0, INT64_MAX};
        all += 3 + i;
    }
    const size_t before = allocated_bytes();
    struct ls_blend *blend = make(sources, COUNT, entries, COUNT);
    const size_t with = allocated_bytes();
    assert_true(ls_blend_stages(blend) > COUNT / 2);
    assert_true(before == 0 || with < before + COUNT * (size_t)(16 << 10));
    assert_int_equal(ls_blend_end(blend), all);
    for (int64_t number = 0; number < all; number++)
        had[ls_blend_source_at(blend, number)]++;
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(had[i], 3 + i);
    ls_blend_free(blend);
}

/* A stage whose period is as long as any: some 2 bytes for each of its samples. */
CASE(test_tables_are_small)
{
    enum { COUNT = 50 };
    struct ls_blend_source sources[COUNT];
    struct ls_blend_entry entries[COUNT];
    for (int i = 0; i < COUNT; i++) {
        sources[i] = (struct ls_blend_source){"s", LONG, 1};
        entries[i] = (struct ls_blend_entry){i, sqrt(i + 1), 0, 1 << 21};
    }
    const size_t before = allocated_bytes();
    if (before == 0)
        skip();
    struct ls_blend *blend = make(sources, COUNT, entries, COUNT);
    const size_t with = allocated_bytes();
    assert_true(ls_blend_stage(blend, 0).period > LS_BLEND_PERIOD_MAX / 2);
    assert_in_range(with - before, LS_BLEND_PERIOD_MAX, 5 << 19);
    ls_blend_free(blend);
}

CASE(test_refused)
{
    static const struct {
        struct ls_blend_source source;
        struct ls_blend_entry entries[2];
        int count;
        const char *text;
    } cases[] = {
        {{"web", 5, 0}, {{0, 0, 0, INT64_MAX}}, 1, "web: weight 0; expected a number above 0"},
        {{"web", 5, 0}, {{0, -1, 0, INT64_MAX}}, 1, "expected a number above 0"},
        {{"web", 5, 0}, {{0, NAN, 0, INT64_MAX}}, 1, "expected a number above 0"},
        {{"web", 0, 0}, {{0, 1, 0, INT64_MAX}}, 1, "web: epochs 0 of 0 samples"},
        {{"web", 5, 0.1}, {{0, 1, 0, INT64_MAX}}, 1, "web: epochs 0.1 of 5 samples"},
        {{"web", 5, 0}, {{0, 1, 3, 3}}, 1, "from sample 3 to 3 there is none"},
        {{"web", 5, 0}, {{0, 1, 9, 12}}, 1, "no source of the blend has a weight at sample 0"},
        {{"web", 5, 0}, {{0, 1, 0, 12}, {0, 1, 9, 12}}, 2, "two of its weights hold at sample 9"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_error error = {0};
        struct ls_blend *blend;
        const struct ls_blend_config config = {&cases[i].source, 1, cases[i].entries,
                                               cases[i].count,   0, false};
        assert_int_equal(ls_blend_new(&config, &blend, &error), LS_EINVAL);
        assert_null(blend);
        assert_text_contains(error.text, cases[i].text);
    }
}

static int make_and_free(void *user, struct ls_error *error)
{
    struct ls_blend *blend = NULL;
    int status = ls_blend_new(user, &blend, error);
    ls_blend_free(blend);
    return status;
}

CASE(test_every_allocation_may_fail)
{
    const struct ls_blend_source sources[] = {{"a", 10, 2}, {"b", 7, 1}};
    const struct ls_blend_entry entries[] = {{0, 0.5, 0, INT64_MAX}, {1, 0.5, 0, INT64_MAX}};
    struct ls_blend_config config = {sources, 2, entries, 2, 0, false};
    assert_in_range(support_fail_each_allocation(make_and_free, &config), 10, 39);
}

SUITE_MAIN(NULL, NULL)
