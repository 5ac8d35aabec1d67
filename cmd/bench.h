/* The frame of the benchmarks: words such as threads=2, tokens, and runs in turns with their
 * medians. A benchmark is its keys, a body that runs once, and a print. */
#ifndef CMD_BENCH_H
#define CMD_BENCH_H

#include "cmd.h"

#include <lockstep/config.h>
#include <lockstep/device.h>
#include <lockstep/ops.h>

/* ---- words ----------------------------------------------------------------------------------- */

/* A word "name=VALUE" of one of three kinds: a number, one of some words, or a text as it is. */
struct bench_key {
    const char *name; /* NULL ends a list */
    int64_t *number, min, max;
    int *word;
    const struct ls_word *words;
    const char **text;
};
#define BENCH_THREADS(value)                                                                       \
    {                                                                                              \
        .name = "threads", .number = value, .min = 1, .max = ls_device_threads_max()               \
    }
/* Reads the words. LS_ECONFIG. */
int bench_args(const struct cmd_args *args, const struct bench_key *keys, struct ls_error *error);

/* ---- data ------------------------------------------------------------------------------------ */

/* Makes a file of uniform tokens, enough for some steps, which data.train then names, in a folder
 * of its own: all processes of a job have to name it alike. path: to be removed, "" until it is
 * made. LS_EIO, LS_ENOSPC. */
enum { BENCH_PATH_BYTES = 40 };
int bench_tokens(struct ls_config *config, char path[BENCH_PATH_BYTES], struct ls_error *error);
void bench_tokens_remove(char path[BENCH_PATH_BYTES]);

/* ---- turns ----------------------------------------------------------------------------------- */

enum { BENCH_WAYS_MAX = 8, BENCH_ROUNDS_MAX = 99 };
struct bench_turns {
    int ways, rounds;
    bool cold;         /* without a round before that warms up */
    const char *meter; /* what the meter counts; NULL: it does not */
    /* Runs once. It may set *seconds to what counts of the time, which then is not taken. */
    int (*run)(void *user, int way, double *seconds, struct ls_error *error);
    void *user;
    double s[BENCH_WAYS_MAX][BENCH_ROUNDS_MAX]; /* of each round */
};
/* Every way in turn, round after round, so that all see the machine in the same moods. */
int bench_turns(struct bench_turns *turns, struct ls_error *error);
/* Seconds of a way: the median of the rounds. */
double bench_seconds(const struct bench_turns *turns, int way);
/* How many times as long as way `to` it took: the median over rounds. */
double bench_ratio(const struct bench_turns *turns, int way, int to);

#endif
