/* lockstep/data/blend.h - which sample of which source comes when, mixed by weight.
 *
 *     struct ls_blend_source sources[] = {{.name = "web", .samples = 1000000},
 *                                         {.name = "books", .samples = 2000, .epochs = 2}};
 *     struct ls_blend_entry entries[] = {{.source = 0, .weight = 0.9, .end = INT64_MAX},
 *                                        {.source = 1, .weight = 0.1, .end = INT64_MAX}};
 *     ls_blend_new(&(struct ls_blend_config){.sources = sources, .source_count = 2,
 *                  .entries = entries, .entry_count = 2, .seed = 1, .shuffle = true},
 *                  &blend, &error);
 *     struct ls_blend_place place = ls_blend_at(blend, 1234567);   // source, epoch, sample
 *
 * Samples of a run are numbered from 0. What number n is follows from n alone, so no list is kept
 * and no state saved: any rank, in any layout, after any resume, computes the same.
 *
 * Proportions are exact at every prefix: among the first n samples of a stage a source of share w
 * (its weight divided by the sum of the weights) has more than n w - 1 and fewer than n w + 1. The
 * weights become whole numbers in the same proportion (0.7, 0.2, 0.1: 7, 2, 1), which sum up to a
 * period, and each sample of the period goes to the source whose next one is due first: sample j of
 * a source with p of W may come from number floor((j - 1) W / p) on and is due by ceil(j W / p)
 * (Tijdeman, "The chairman assignment problem", Discrete Mathematics 32, 1980; Steiner and Yeomans,
 * "Level schedules for mixed-model, just-in-time processes", Management Science 39, 1993). Whole
 * numbers that would sum up to more than LS_BLEND_PERIOD_MAX are rounded to shares of that.
 *
 * A stage ends where an entry changes the proportions (one that repeats them changes nothing), and
 * where a source has had its epochs: then the others go on in the proportion of their weights. Each
 * source counts on through all stages, so it loses no sample and repeats none within an epoch.
 *
 * Immutable after it was made: any number of threads may use one. Everything here is Local.
 */
#ifndef LOCKSTEP_DATA_BLEND_H
#define LOCKSTEP_DATA_BLEND_H

#include <lockstep/base.h>

LS_C_BEGIN

enum { LS_BLEND_PERIOD_MAX = 1 << 20, LS_BLEND_SOURCES_MAX = 512 };

struct ls_blend_source {
    const char *name; /* for error texts and the ledger; borrowed while the blend is made */
    int64_t samples;  /* of one epoch, at least 1 */
    double epochs;    /* passes over them at most, as 2 or 0.5; 0: no limit */
};
/* A source takes part in samples [first, end) of the run. Entries of one source do not overlap. */
struct ls_blend_entry {
    int source;
    double weight; /* above 0 */
    int64_t first, end;
};
struct ls_blend_config {
    const struct ls_blend_source *sources;
    int source_count;
    const struct ls_blend_entry *entries;
    int entry_count;
    uint64_t seed; /* of the order within each source: struct ls_sample_order */
    bool shuffle;
};
struct ls_blend;

/* LS_EINVAL names the source or the samples that no source is for; LS_ENOMEM. */
int ls_blend_new(const struct ls_blend_config *config, struct ls_blend **out,
                 struct ls_error *error);
/* One source, all of it, for ever. */
int ls_blend_of_one(int64_t samples, uint64_t seed, bool shuffle, struct ls_blend **out,
                    struct ls_error *error);
/* blend may be NULL. */
void ls_blend_free(struct ls_blend *blend);

/* Samples that the blend has: all sources have had their epochs then, or no entry is left.
 * INT64_MAX: it never ends. */
int64_t ls_blend_end(const struct ls_blend *blend);
/* 0 <= number < ls_blend_end. */
struct ls_blend_place {
    int source;
    int64_t epoch, sample;
};
struct ls_blend_place ls_blend_at(const struct ls_blend *blend, int64_t number);
/* Its source alone, which takes no permutation. */
int ls_blend_source_at(const struct ls_blend *blend, int64_t number);

/* parts[source] of each `period` samples from `first` on, up to the next stage. Borrowed. */
struct ls_blend_stage {
    int64_t first, period;
    const int64_t *parts;
    bool rounded; /* the weights had more digits */
};
int ls_blend_stages(const struct ls_blend *blend);
struct ls_blend_stage ls_blend_stage(const struct ls_blend *blend, int index);
int ls_blend_sources(const struct ls_blend *blend);

/* The ledger: adds to digest what samples [first, first + count) of the run are: for each, the
 * piece (ls_digest_piece) named as its source, with row = samples of the source's epoch, tile =
 * number, and the int64 sample as bytes. So sums over parts of a step are the step's. */
void ls_blend_ledger(const struct ls_blend *blend, int64_t first, int64_t count,
                     struct ls_digest *digest);

LS_C_END
#endif
