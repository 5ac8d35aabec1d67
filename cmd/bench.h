/* What the benchmarks share: words such as threads=2, and medians. */
#ifndef CMD_BENCH_H
#define CMD_BENCH_H

#include "cmd.h"

/* A word "name=VALUE": a number, or, where names are given, what of_name makes of one of these. */
struct bench_key {
    const char *name; /* NULL ends a list */
    int64_t *value;
    int64_t min, max;
    const char *names;
    int (*of_name)(const char *name); /* below 0: no such name */
    const char **text;                /* or the word as it is */
};
#define BENCH_ISA(value)                                                                           \
    {                                                                                              \
        "isa", value, 0, 0, "plain, avx2, avx512, avx512_bf16 or amx", ls_isa_of_name, NULL        \
    }
#define BENCH_ARITHMETIC(value)                                                                    \
    {                                                                                              \
        "arithmetic", value, 0, 0, "fma or bf16_pairs", bench_arithmetic_of_name, NULL             \
    }
#define BENCH_DTYPE(value)                                                                         \
    {                                                                                              \
        "dtype", value, 0, 0, "bf16, fp16 or fp32", bench_dtype_of_name, NULL                      \
    }
int bench_arithmetic_of_name(const char *name);
int bench_dtype_of_name(const char *name);
/* Reads the words behind the page's name. LS_ECONFIG. */
int bench_args(const char *page, int argc, char **argv, const struct bench_key *keys,
               struct ls_error *error);

/* Sorts values; 0 where there are none. */
double bench_median(double *values, int count);

/* Makes path, which ends with XXXXXX, a headerless uint16 file of count uniform tokens below
 * vocabulary. LS_EIO, LS_ENOSPC. */
int bench_tokens(char *path, int64_t count, int64_t vocabulary, struct ls_error *error);

#endif
