/* Two hosts made on this machine: each a network namespace and a UTS namespace with a name of its
 * own (Open MPI tells hosts apart by their names), joined by a virtual cable. They live as long as
 * the processes that hold them, which end with this one: nothing is left behind, and nothing of
 * them is seen outside. */
#ifndef TEST_HOSTS_HOSTS_H
#define TEST_HOSTS_HOSTS_H

#include "link_relay.h"

#include <stdbool.h>
#include <sys/types.h>

enum { HOSTS = 2, HOSTS_RANKS_MAX = 4 };

/* The names of the hosts. */
extern char hosts_name[HOSTS][32];

/* The directory of a test. */
extern char *hosts_directory;

/* cmocka group set-up and tear-down: the directory is empty but for a corpus for training. The
 * hosts are made where the system lets them be, else hosts_or_skip says why not. */
int hosts_setup(void **state);
int hosts_teardown(void **state);
void hosts_or_skip(void);
/* The core of a host, of those that this program may use: another one for each host if there are
 * two. */
int hosts_core(int host);
/* Puts the cable in or out. */
void hosts_link(bool up);
/* The cable goes out, and then all that runs on that host ends: nobody hears of it. */
void hosts_lose(const char *directory, int host);
/* Puts in another cable while no job runs: one with faults, or (NULL) a good one. Returns what the
 * faulty one counts; NULL: a good one is in, or this system has no TAP devices. */
const struct link_counts *hosts_cable(const struct link_faults *faults);
/* Lets the faulty cable lose everything, and lets no host reach the other, until it is false again.
 * Neither end sees that: nothing is refused, and no connection is closed. */
void hosts_silence(bool silent);
/* Lets the cable carry so many Mbit/s each way. False: this system cannot (Linux with
 * CONFIG_NET_SCH_TBF; Debian: iproute2). */
bool hosts_shape(int mbit_per_s);

/* Starts a command on `each` ranks of both hosts, in the directory; what it prints goes to
 * <out>.log. Returns the launcher. */
pid_t hosts_start(const char *directory, int each, const char *out, const char *command);
/* Starts `lockstep train` with the arguments on `each` ranks of both hosts, in the directory; what
 * it prints goes to <out>.log and the run to <out>. Returns the launcher. */
pid_t hosts_train(const char *directory, int each, const char *out, const char *arguments);
/* Starts `lockstep launch` with the arguments on host 0, over `each` slots of both, of which
 * `first` is named first. */
pid_t hosts_launch(const char *directory, int first, int each, const char *out,
                   const char *arguments);
/* A main for tools/soak.py: makes the hosts, prints the words that start `lockstep launch` on host
 * 0 over `each` slots of both, the program left out, and holds the hosts until its input ends.
 * Where there are none it says why; the exit code. */
int hosts_hold(int each);
/* Waits until the run has recorded a step; then the ranks' processes. */
void hosts_wait_steps(pid_t launcher, const char *directory, const char *out, int ranks,
                      pid_t *pids);
/* Waits for the run's first checkpoint. Both fail where the job ends before. */
void hosts_wait_checkpoint(pid_t launcher, const char *directory, const char *out);
/* The step of its newest checkpoint; 0 where it has none. */
int hosts_last_step(const char *directory, const char *out);
/* Waits for the end of the only job on the hosts, its launcher's daemons included; its exit code.
 */
int hosts_end(pid_t launcher);
/* What the job printed, to be freed. */
char *hosts_said(const char *directory, const char *out);

#endif
