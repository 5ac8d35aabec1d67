/* Runs `lockstep launch` as a user does, watches it by its records, and compares what it came to
 * with a run that nothing disturbed. */
#ifndef TEST_LAUNCH_LAUNCHED_H
#define TEST_LAUNCH_LAUNCHED_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The recipe; the learning rate, and so the bits, do not depend on the steps. */
#define LAUNCHED_KEYS                                                                              \
    "data.train=corpus_train model.preset=gpt2-tiny batch.global=8 parallel.threads=1 "            \
    "optim.decay_steps=1000 log.tensorboard=false log.progress=off log.drift_every=0 "             \
    "snapshot.folder=. "
enum { LAUNCHED_RANKS = 4 };

/* Starts `before lockstep launch arguments` in the folder, in a session of its own; the run goes to
 * <out>, what is printed to <out>.log. */
pid_t launched_start(const char *folder, const char *before, const char *out,
                     const char *arguments);
/* Waits until the run has recorded a step that is at least this one; the newest. */
int64_t launched_await_step(pid_t launcher, const char *folder, const char *out, int64_t step);
/* Waits until there are so many events of that name. */
void launched_await_event(pid_t launcher, const char *folder, const char *out, const char *event,
                          int count);
/* How many events of that name there are; with `words` in their lines (may be NULL). */
int launched_events(const char *folder, const char *out, const char *event, const char *words);
/* The ranks of the run; returns how many there are. */
int launched_ranks(const char *folder, const char *out, pid_t pids[LAUNCHED_RANKS]);
/* Its end: the exit code. */
int launched_end(pid_t launcher);
/* Asks the launcher to end: the exit code. */
int launched_ask(pid_t launcher);
/* The same, which must be 21. */
void launched_stop(pid_t launcher, const char *folder, const char *out);

/* What a run has recorded of its steps: the newest step and its hash, and the bits of each loss. */
struct launched_steps {
    int64_t last;
    char hash[33];       /* of the newest step; "" where it was not hashed */
    uint32_t *loss_bits; /* [last + 1], from 1 */
    int64_t room;
};
void launched_steps_read(struct launched_steps *steps, const char *folder, const char *out);
void launched_steps_release(struct launched_steps *steps);
/* Whether a has nothing but what b has, step by step, and, as far as both end with the same step,
 * its hash. */
bool launched_steps_agree(const struct launched_steps *a, const struct launched_steps *b);
/* Trains the same steps of a recipe with further keys on one rank, undisturbed. */
void launched_reference(struct launched_steps *steps, const char *folder, const char *keys,
                        int64_t last);
/* Fails the test if the run is not that of one rank, bit for bit; returns its last step. */
int64_t launched_expect_same(const char *folder, const char *out);
/* The same, of a recipe with further keys. */
int64_t launched_expect_same_of(const char *folder, const char *out, const char *keys);

#endif
