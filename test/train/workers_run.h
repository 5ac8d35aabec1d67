/* What the tests of workers share: a small recipe, and a run of it in steps. */
#ifndef TEST_TRAIN_WORKERS_RUN_H
#define TEST_TRAIN_WORKERS_RUN_H

#include <lockstep/compare/audit.h>
#include <lockstep/train.h>

enum { WORKERS_STEPS_MAX = 16 };

/* cmocka set-up: tokens_setup, and more.bin beside tokens.bin, for blends. */
int workers_setup(void **state);

/* Layouts of a worker; those from WORKERS_LAYOUTS_CP on cut a sequence, which few recipes admit. */
enum { WORKERS_LAYOUTS = 11, WORKERS_LAYOUTS_CP = 9 };
extern const char *const workers_layouts[WORKERS_LAYOUTS];

/* Four workers that meet every third step, six steps long, with "key=value" words, separated by
 * blanks, behind it. A first word "blend" mixes tokens.bin with itself as a second source.
 * train.out is DIRECTORY/run. Returns the status. */
int workers_config_try(struct ls_config *config, struct ls_error *error, const char *directory,
                       const char *words);
/* Fails the test if it is refused. */
struct ls_config workers_config(const char *directory, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A step as all ranks of a layout must tell it, in bits. */
struct workers_told {
    uint32_t loss;
    uint32_t source_losses[2];
    double grad_norm, outer_norm;
    double evaluation; /* where it is asked for */
    int64_t samples, sequences, counted;
    int64_t worker, clock, ticket, staleness; /* of a server's push */
    int fragment;
    char ledger[33];
};
struct workers_run {
    struct ls_config config;
    /* Called on each rank, once the trainer is there. */
    void (*made)(struct ls_trainer *trainer);
    bool whole;        /* as ls_run does it, with its records and checkpoints; saves and resumes */
    bool resume, save; /* first, last */
    bool evaluate;     /* at each meeting */
    int steps;         /* to run to; 0: train.steps. Of a whole run then: how far it came */
    /* Results, of rank 0. */
    int first; /* steps that were done when it began */
    struct workers_told told[WORKERS_STEPS_MAX];
    char hash[WORKERS_STEPS_MAX][33]; /* at a meeting, else "" */
    char said[4096];                  /* warnings */
    struct ls_error error;
};
/* Returns the status. */
int workers_run(struct workers_run *run);
/* The same, fails the test after a failure. */
void workers_run_well(struct workers_run *run);
/* Of the steps that both ran: the first difference, or NULL. The text lives until the next call. */
const char *workers_difference(const struct workers_run *a, const struct workers_run *b);
/* Fails the test, with `what` before it, if there is one. */
void workers_expect_alike(const struct workers_run *a, const struct workers_run *b,
                          const char *what);

/* DIRECTORY/run, all of its steps computed again on one rank. Fails the test if that cannot be. */
struct ls_audit_verdict workers_audit(const char *directory, int steps);
/* Fails the test if they are not the same, or not so many hashes were compared. */
void workers_expect_audit(const char *directory, int steps, int hashes);

#endif
