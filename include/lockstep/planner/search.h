/* lockstep/planner/search.h - the layouts of a recipe on a cluster, from the best.
 *
 * Every combination of the keys below is a candidate. Its time is bounded from below by what a
 * block of each kind takes in that cut (recorded once for each cut, so with its true products), and
 * estimated by the schedule's formula. Candidates are taken in the order of their estimates:
 * admitted by the recipe or not, bounded by their schedule with the least that their stages take,
 * held against memory to the byte, then simulated (lockstep/planner/forecast.h). Where no candidate
 * that is left has a bound below the best, that is proven; if none could come into the list, the
 * list is. A limit may end the search before, and the result says so. The list has the best of each
 * kind: those of one kind have the same axes, ZeRO and schedule. Then the best few are varied in
 * what hides moves (prefetch, buckets, tp_overlap) and in the split of layers by their times.
 *
 * What is chosen: parallel.{pp, dp_replicate, dp_shard, cp, tp, zero, schedule, chunks, split,
 * prefetch, tp_overlap}, batch.micro, memory.recompute, memory.offload.optimizer, comm.bucket_mb;
 * of cores also parallel.threads. A key that is pinned stays as it is. Everything here is Local. */
#ifndef LOCKSTEP_PLANNER_SEARCH_H
#define LOCKSTEP_PLANNER_SEARCH_H

#include <lockstep/planner/forecast.h>

LS_C_BEGIN

enum ls_goal {
    LS_GOAL_TIME,   /* of a step */
    LS_GOAL_COST,   /* accelerators times time: fewer ranks may be cheaper */
    LS_GOAL_MEMORY, /* bytes of the rank that takes most */
    LS_GOALS
};
extern const struct ls_word ls_goals[];

struct ls_search_options {
    const struct ls_config *config; /* resolved */
    const struct ls_cluster *cluster;
    enum ls_goal goal;
    int64_t accelerators; /* to be used; 0: all of the cluster */
    double tokens;        /* of the training, 0: config's steps */
    double within_s;      /* the most that it takes, failures included; 0: no limit */
    int top;              /* at most LS_SEARCH_TOP_MAX */
    /* Limits, 0: none. They count once a layout is found, or once eight layouts cannot be simulated
     * or, simulated, are not in time. */
    double seconds;    /* of search */
    int64_t forecasts; /* layouts that are held against memory or simulated */
    /* Keys that stay; NULL: none. */
    bool (*pinned)(const struct ls_config *config, const char *key);
    const char *first; /* keys of a plan that is tried before all; NULL: none */
    bool exhaustive;   /* simulate every candidate that is admitted and fits */
};
enum { LS_SEARCH_TOP_MAX = 64 };
/* For pinned: those that were given beside config's file. A file's are where a search begins. */
bool ls_search_given(const struct ls_config *config, const char *key);

enum {
    LS_SEARCH_KEYS_BYTES = 24 * LS_CONFIG_TEXT_BYTES, /* four texts of these, and others */
    LS_SEARCH_WORD_BYTES = 5 * LS_CONFIG_TEXT_BYTES,  /* a key with its value */
};

struct ls_search_plan {
    char keys[LS_SEARCH_KEYS_BYTES]; /* as one writes them on a command line */
    struct ls_forecast forecast;
    double bound_s; /* of the step */
    int64_t kind;   /* for the search itself: no two of a list have the same */
};

struct ls_search {
    struct ls_search_plan *plans; /* [count], the best first */
    int count;
    int64_t candidates, refused, too_large, simulated;
    double bound_share; /* the most that a bound was of its time, of those simulated: at most 1 */
    /* Where a limit was reached: candidates whose bound is below the best, and others that might
     * still come into the list. */
    int64_t unproven, unlisted;
    /* Where nothing fits: the candidate that takes least, and what it takes. */
    char least_keys[LS_SEARCH_KEYS_BYTES];
    double least_bytes, capacity_bytes;
    int64_t least_accelerators; /* a multiple of those asked for on which one would fit; 0: none */
    double least_s;             /* where no layout is in time: what the training takes at least */
    /* Keys of the first layout that fits and cannot be simulated, by estimates; "": there was none.
     */
    char unsimulated[LS_SEARCH_KEYS_BYTES];
};

/* LS_OK if at least one layout fits and is in time; LS_ELAYOUT if none does, with the least that is
 * lacking, or if a limit ended the search before one was found (unproven > 0); search is filled but
 * for plans. LS_ENOMEM. Release it in each case. */
int ls_search_run(const struct ls_search_options *options, struct ls_search *search,
                  struct ls_error *error);
void ls_search_release(struct ls_search *search);
/* The plan's layout in config: its keys, those that the command line gave, and the defaults.
 * LS_ECONFIG, LS_ENOMEM. */
int ls_search_apply(const struct ls_search_plan *plan, struct ls_config *config,
                    struct ls_error *error);

/* Sets keys of a layout, written as a plan has them, with their quotes or without, or shorter:
 * "pp=8,tp=8", with commas, and without "parallel.". LS_ECONFIG. */
int ls_search_keys_set(struct ls_config *config, const char *text, struct ls_error *error);
/* word[LS_SEARCH_WORD_BYTES] = the first of such keys, as a program gets it from a shell, "": there
 * is none; *text goes behind it. LS_ECONFIG: it is too long. */
int ls_search_word(const char **text, char *word, struct ls_error *error);

/* What the goal makes small, by which a list is ordered: seconds of a step, accelerator seconds of
 * a step, or bytes. */
double ls_search_value(const struct ls_search_options *options, const struct ls_forecast *forecast);
/* Why `other` is slower than `best`: "12 % slower: 0.31 s more waits for tp, 0.1 s more bubble". */
struct ls_reason {
    char text[256];
};
struct ls_reason ls_search_reason(const struct ls_forecast *best, const struct ls_forecast *other);

LS_C_END
#endif
