/* Whole runs of the program on a small corpus, in a folder of their own. Each test is a program
 * with corpus_setup and scratch_teardown around it; the program is the `lockstep` of the build that
 * the test belongs to, or $LOCKSTEP. */
#ifndef TEST_CMD_RUNS_H
#define TEST_CMD_RUNS_H

#include "run_program.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { OUTPUT_BYTES = PROGRAM_OUTPUT_BYTES };

extern char program[PATH_MAX];
extern const char *folder; /* of all files of the test */
extern char output[OUTPUT_BYTES];
/* What every run has in common; a tiny model for a tiny corpus. */
extern const char common[];

/* Makes the folder, and the corpus in it. */
int corpus_setup(void **state);

/* What one rank writes of the parameters to a checkpoint. */
#define SHARD "shard-00001-model-00001-of-00001.safetensors"

/* Runs a shell line in the folder, with $L for the program, $C for the common keys, $G for a folder
 * with a tokenizer and $M for SHARD; output receives both streams. Returns its exit code. */
int shell(const char *line);
/* Fails unless the line exits with code and prints words. */
void expect(const char *line, int code, const char *words);

/* Starts a run that goes on for ever, if the keys do not say otherwise, without a shell in between;
 * what it prints goes to <out>.log. */
pid_t run_start(const char *out, const char *keys);
/* Put before "$L ...": two processes under MPI. */
#define MPIRUN                                                                                     \
    "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 2 "
/* Skips the test if this build has no MPI or the machine no mpirun. */
void mpi_or_skip(void);

/* A name in the folder, its existence, and how many match a pattern. */
const char *at(const char *name);
bool exists(const char *name);
size_t matches(const char *pattern);

/* metrics.jsonl of a run: its steps' loss bits and the last hash. */
struct metrics {
    int64_t steps, room; /* they are numbered 1 to steps */
    char hash[33];
    double validation_loss;
    uint32_t bits[];
};
/* To be freed. Fails where a line is no record or a step is missing. */
struct metrics *metrics_read(const char *run);
void expect_same_run(const char *a, const char *b);

#endif
