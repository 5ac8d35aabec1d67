/* What the files of this module share: hosts, the job, its records, causes, events. All Local. */
#ifndef LAUNCH_LAUNCH_PRIVATE_H
#define LAUNCH_LAUNCH_PRIVATE_H

#include <lockstep/base/lock.h>
#include <lockstep/launch.h>
#include <lockstep/planner/search.h>
#include <lockstep/trace.h>

#include <sys/types.h>

/* ---- processes ------------------------------------------------------------------------------- */

/* In a child, before exec: signals as they were by default, and its own group, which no terminal
 * signals. */
void process_clean(void);
/* Runs a program of PATH, its stdin `input` (NULL: empty), what it prints in output[bytes] (NULL:
 * nobody reads it), for limit_s seconds at most. Its exit code; -1 if it did not end in time or
 * by itself, 127 if there is no such program, PROCESS_FAILED (and errno) if the system did not run
 * it, or does not say how it ended. */
enum { PROCESS_FAILED = -2 };
int process_run(char *const argv[], const char *input, char *output, size_t bytes, double limit_s);
/* Starts a process that kills this child if the caller dies and the child still lives so long
 * after. It ends with process_sweep. On kernels before 5.3 there is none. */
void process_guard(pid_t child, double patience_s);
/* Whether a process has children, and the states of all, as ps names them, are among these. */
bool process_children_are(pid_t parent, const char *states);
/* Whether it is stopped (SIGSTOP, or by a debugger). */
bool process_is_stopped(pid_t pid);
/* Before any is started: processes that are there already, such as what a script began before it
 * became this process, are no part of a job. */
void process_begin(void);
/* Kills all other children of this process, and theirs as they come to it, until there are none.
 * One that waits for a disk or a device does not die before it has that: after ten seconds, how
 * many are left. */
int process_sweep(void);

/* ---- hosts ----------------------------------------------------------------------------------- */

enum { LAUNCH_HOST_BYTES = 256, LAUNCH_HOSTS_TEXT = 1 << 17 };
enum launch_kind { LAUNCH_HERE, LAUNCH_HOSTFILE, LAUNCH_SLURM };
struct launch_host {
    char name[LAUNCH_HOST_BYTES];
    int slots;
    bool here, up;
    bool used;               /* it holds ranks of the newest start */
    bool tried, answers;     /* it is asked now; what it said */
    double pause_s, again_s; /* of one that is down: it is tried at again_s, then pause_s later */
    double back_s;           /* when it came back */
    pid_t trying;            /* the process that asks it; -1: it needs none; 0: it is not asked */
    double until_s;          /* and it is waited for so long */
    bool twice;              /* another one came back meanwhile: it is asked once more */
    /* Asked for once it was slow: on so many slots without it a start has so many ranks; 0: no
     * layout fits on them. */
    int64_t slots_without, ranks_without;
};
struct launch_hosts {
    enum launch_kind kind;
    struct launch_host *list; /* [count] */
    int count;
    double limit_s, pause_s; /* of a try; before the second one */
    bool open_mpi;           /* of mpirun: what launch_job_check found */
    char interface[16];      /* of srun --mpi; "": its default */
};
/* A hostfile: "HOST slots=N" lines, # begins a comment. LS_ECONFIG with file and line, LS_EIO. */
int launch_hosts_read(struct launch_hosts *hosts, const char *path, struct ls_error *error);
/* The nodes of the Slurm allocation that this process is in. LS_ECONFIG. */
int launch_hosts_slurm(struct launch_hosts *hosts, struct ls_error *error);
/* This machine. LS_ENOMEM. */
int launch_hosts_here(struct launch_hosts *hosts, int slots, struct ls_error *error);
void launch_hosts_release(struct launch_hosts *hosts);
/* Tries those that are up, or those that are down and due; tells by changed[count] (false before)
 * which are not as they were. Returns whether any is that matters: of those that were up, one that
 * holds ranks. */
bool launch_hosts_try(struct launch_hosts *hosts, bool down, bool *changed);
/* The same of those that are down, and waits for none: a host that says nothing is asked until its
 * time is up, and told of then. Once one is back, all others are asked that were lost. */
bool launch_hosts_look(struct launch_hosts *hosts, bool *changed);
/* Whether one is being asked. */
bool launch_hosts_trying(const struct launch_hosts *hosts);
/* Those that were being asked are to be asked again: process_sweep has ended the processes. */
void launch_hosts_forget(struct launch_hosts *hosts);
/* The job does without this host for ten minutes. */
void launch_hosts_leave(struct launch_host *host);
/* Slots of hosts that are up, or of all. */
int launch_hosts_slots(const struct launch_hosts *hosts, bool all);
/* Slots of the host that is up and has most, at least 1. */
int launch_hosts_most(const struct launch_hosts *hosts);
/* The first hosts that are up with `ranks` slots together hold the ranks of a start. */
void launch_hosts_use(struct launch_hosts *hosts, int64_t ranks);
/* Whether those are this machine alone. */
bool launch_hosts_here_alone(const struct launch_hosts *hosts);
/* "a:2,b:1": those hosts. False: it is longer, and ends with "...". */
bool launch_hosts_text(const struct launch_hosts *hosts, int64_t ranks, char *text, size_t bytes);
/* Of those that hold ranks, the one that calls itself so; NULL: none. */
struct launch_host *launch_hosts_named(const struct launch_hosts *hosts, const char *name);
/* What mpirun reaches other hosts by. */
const char *launch_hosts_agent(void);
/* Runs "sh -c words" by the agent that mpirun uses, or by srun, on the host that calls itself
 * `name`: the list may have another name for it. (If none is like it, on that of rank 0, which is
 * the first.) */
int launch_hosts_run(const struct launch_hosts *hosts, const char *name, const char *words);

/* ---- memory that ranks share ----------------------------------------------------------------- */

enum { LAUNCH_SEGMENTS_BYTES = 128 };
/* The folder in /dev/shm for those of the run's ranks. here: all are on this machine, where it is
 * made, and is empty. Otherwise it is another one of each start, and each machine's ranks make it
 * (ls_launch_segments_enter). "": Open MPI's own place is taken, because the user names one, or
 * there is none. */
void launch_segments_open(const char *run, bool here, char folder[LAUNCH_SEGMENTS_BYTES]);
/* With what ranks left in it. Nothing if there is no such folder of this user, or a link to one. */
void launch_segments_remove(const char *folder);

/* ---- what it prints -------------------------------------------------------------------------- */

/* Of all starts of a job. */
struct launch_output {
    int read_fd, write_fd; /* of jobs: their standard output; -1: they have the launcher's own */
    const volatile int *asked; /* of struct ls_launch, and what it was at the last _pass */
    int seen;
};
void launch_output_open(struct launch_output *output, const volatile int *asked);
/* Hands on what the reader of this process has room for, and waits for nothing. */
void launch_output_pass(struct launch_output *output);
/* Hands on the rest, if there is any. Waits until the reader has room for it, or a signal has come
 * since the last _pass; after a second signal not at all. */
void launch_output_close(struct launch_output *output);

/* ---- the job --------------------------------------------------------------------------------- */

/* What ranks handed out as they ended (ls_launch_end_tell). */
enum launch_end { LAUNCH_GAVE_UP, LAUNCH_PARTED, LAUNCH_ENDED, LAUNCH_ENDS };
struct launch_ends {
    int code; /* the first that is not 0, else 0; -1: none has handed out any */
    bool late, faulty, read_only;
    char host[64]; /* that is faulty; "": not known */
    /* Of each kind the text that says most: of one who waits for the culprit itself, or has kept
     * something. weight 0: there is none. */
    struct {
        int weight;
        char text[1100];
    } told[LAUNCH_ENDS];
};
/* Takes a line of ls_launch_end_tell: what kind it is; LAUNCH_ENDS: it is another one. */
enum launch_end launch_end_take(struct launch_ends *ends, const char *line, size_t length);
/* Of a child, before exec, and what mpirun hands on to other hosts: that ranks have a launcher. */
#define LAUNCH_VARIABLE "LOCKSTEP_LAUNCHED"

struct launch_job {
    pid_t pid; /* of mpirun or srun; 0: none */
    struct launch_output *output;
    int stderr_fd;
    char line[8192]; /* what it wrote to stderr: the line that has no end yet */
    size_t held;
    char said[32768]; /* and the end of what was passed on: half of that, or more */
    size_t length;
    struct launch_ends ends;
    double doomed_s; /* since when a rank has said that the job cannot go on; 0: none has */
    double over_s;   /* since when mpirun or srun has said that a process ended the job; 0: never */
    double broken_s; /* when a step is ended of which a task ended badly; 0: none has */
    char former[256]; /* who the run's lock named before */
    int code;         /* once it has ended: 128 + n for a signal */
    int left;         /* and processes of it that do not end */
    char step[64];    /* Slurm's name of it; "": it is no step of Slurm */
    char segments[LAUNCH_SEGMENTS_BYTES];
    bool killed, stopped; /* stopped: by SIGSTOP, and not continued */
    bool survives;        /* its ranks live on when one dies, and say themselves how they ended */
    const char *run;
    double parted_s;   /* when a rank last said that it leaves; 0: none has */
    double patience_s; /* with those that do not leave then */
};
struct launch_start {
    const struct ls_launch *launch;
    const struct launch_hosts *hosts;
    struct launch_output *output;
    int64_t ranks;
    const char *keys; /* of the layout, as plans have them; "": the given one */
    bool begun;       /* an earlier start has: the run is this job's */
};
/* Whether there is an mpirun (or srun) to start with. LS_ENOTSUP. */
int launch_job_check(struct launch_hosts *hosts, struct ls_error *error);
/* LS_EIO, LS_ENOSPC, LS_ENOMEM: the system refuses what it needs, which may pass. LS_ENOTSUP. */
int launch_job_start(struct launch_job *job, const struct launch_start *start,
                     struct ls_error *error);
/* Waits some milliseconds for something to happen and passes on what the job says. False: it has
 * ended, and nothing of it is left on this machine, but for `left`. */
bool launch_job_look(struct launch_job *job);
/* Asks it to save and end: SIGUSR1 to rank 0, which the lock of the run's folder names. False: it
 * is not there yet, so ask again. */
bool launch_job_ask(const struct launch_job *job, const struct launch_hosts *hosts);
/* Whether the ranks are all on this machine and stopped, or, once it was asked to end, wait for a
 * disk: nobody is left who could say so. */
bool launch_job_stuck(const struct launch_job *job, bool asked);
/* Whether rank 0 is stopped, wherever it runs: which process, and where. False too if it is not
 * known. */
bool launch_job_halted(const struct launch_job *job, const struct launch_hosts *hosts, char *text,
                       size_t bytes);
/* False: mpirun, which failed before the run began, has no room for its own files, as text says. */
bool launch_job_has_room(const struct launch_hosts *hosts, char *text, size_t bytes);
/* "mpirun (process 4711)". */
void launch_job_name(const struct launch_job *job, char *text, size_t bytes);
/* Ends it at once, and a step of Slurm on all of its nodes. */
void launch_job_kill(struct launch_job *job);

/* ---- ranks while MPI starts ------------------------------------------------------------------ */

/* Makes the folder of ls_launch_sign_path, with room for all ranks' signs. NULL: that cannot be,
 * such as on a full disk, and nobody shows life. */
struct launch_starting *launch_starting_open(const char *run, int64_t ranks);
/* Looks now and then. Whether a rank has shown no life for so long while others have: which, and
 * where; or all of them have not; or MPI takes ten times as long to start, and a minute at most if
 * that is longer than patience_s. starting NULL: never. */
bool launch_starting_frozen(struct launch_starting *starting, double patience_s, char *text,
                            size_t bytes);
/* Removes the folder. NULL is allowed. */
void launch_starting_close(struct launch_starting *starting);

/* ---- the run's records ----------------------------------------------------------------------- */

/* A count; 0: the record has none. */
static inline int64_t launch_count(const struct ls_record *record, const char *key)
{
    return ls_max(ls_record_whole(record, key, 0), 0);
}

enum { LAUNCH_RECENT = 9 };
struct launch_watch {
    char path[PATH_MAX];
    char mark[512]; /* the newest "start" or "resume" of any start of the job */
    bool known;     /* what was there before the first one was looked for */
    bool started;   /* this start of the job has recorded one */
    bool begun;     /* or an earlier one */
    int64_t from;   /* the step that it goes on from */
    int64_t step;   /* the newest that is recorded, of any start; 0: none */
    bool stepped;   /* this start has recorded a step */
    int64_t ranks;  /* of the newest start, and its rate; 0: not known */
    double peak_flops;
    double save_s, eval_s, step_s; /* the longest two, and the newest step; 0: not known */
    char slow_host[64];
    int64_t slow_rank;              /* of this start, that drifts; -1: none */
    double slow;                    /* launch.slow */
    double slow_above, slow_s;      /* how far above others it is, and since when beyond slow */
    int64_t stage;                  /* of this start, that is unbalanced; -1: none */
    double stage_since_s;           /* since when */
    char stages_s[4096];            /* what ranks of each stage compute: "0.3,0.1" */
    double recent_s[LAUNCH_RECENT]; /* newest steps of this start, but the first: what they took */
    int64_t recent;                 /* how many there were */
    char end[32], end_text[1024];   /* how and why this start ended, as it says; "" before */
    off_t size;
    struct timespec changed;
};
/* slow: launch.slow. */
void launch_watch_open(struct launch_watch *watch, const char *run, double slow);
/* A new start of the job is about to begin. */
void launch_watch_begin(struct launch_watch *watch);
/* Whether the file is another than at the last look. */
bool launch_watch_look(struct launch_watch *watch);
/* What a step of this start takes: the median of the recent ones; 0: not known. */
double launch_watch_step_s(const struct launch_watch *watch);
/* The exit code of an end that all ranks came to together, as it is recorded; -1: there is none. */
int launch_watch_code(const struct launch_watch *watch);

/* ---- the deadline ---------------------------------------------------------------------------- */

struct launch_deadline {
    bool slurm; /* the allocation ends */
    /* launch.deadline_s; the allocation's end, as last known; the first of them. INFINITY: none */
    double given_s, end_s, until_s;
    double next_s;           /* when Slurm is asked again: a limit may be changed */
    double unknown_s;        /* what a save takes while none is recorded */
    double left_s, needed_s; /* at the last look */
};
/* seconds: launch.deadline_s. */
void launch_deadline_open(struct launch_deadline *deadline, double seconds, bool slurm);
/* Whether no more time is left than two of the longest saves, a step, and the longest evaluation
 * take: one that has begun ends before the step after which the job saves. While no save is
 * recorded, a tenth of the time that there was, at most five minutes, stands for saves and step. */
bool launch_deadline_due(struct launch_deadline *deadline, const struct launch_watch *watch);
/* Whether none is left. */
bool launch_deadline_over(const struct launch_deadline *deadline);

/* ---- what happened --------------------------------------------------------------------------- */

enum launch_cause {
    LAUNCH_DONE,
    LAUNCH_STOPPED,
    LAUNCH_KILLED,
    LAUNCH_WORKER, /* and what the others had done was kept */
    LAUNCH_LATE,
    LAUNCH_HOST,
    LAUNCH_MISMATCH,
    LAUNCH_COMMUNICATION,
    LAUNCH_MEMORY,
    LAUNCH_OTHER,
    /* These end the job at once, the second of them if it is so again: */
    LAUNCH_DISK,
    LAUNCH_NONFINITE,
    LAUNCH_CHECKPOINT,
    LAUNCH_CONFIGURATION,
    LAUNCH_CAUSES
};
const char *launch_cause_name(enum launch_cause cause);
/* By the exit code, and by what ranks handed out. text: in a sentence, what is known of it. first:
 * no start was before of which ranks may be left. */
enum launch_cause launch_cause_of(const struct launch_job *job, const struct launch_watch *watch,
                                  bool first, char *text, size_t bytes);

/* ---- the next layout ------------------------------------------------------------------------- */

/* The given layout if hosts that are up have its `wanted` ranks, else the planner's best on what
 * there is: keys[LS_SEARCH_KEYS_BYTES] = what is to be set for it beside the words of the launch,
 * and *ranks = its ranks; both stay after an error. LS_ELAYOUT: none fits. LS_ESTOPPED: the
 * launcher was asked to end meanwhile. */
int launch_layout_choose(const struct ls_launch *launch, const struct launch_hosts *hosts,
                         const struct launch_watch *watch, int64_t wanted, char *keys,
                         int64_t *ranks, struct ls_error *error);

/* ---- figures --------------------------------------------------------------------------------- */

/* RUN/launch.prom. Goodput is the share of the time in which new steps were computed, saves among
 * them: not that before the first one, nor that from the last one before a failure to the first new
 * one after it. */
struct launch_prom {
    char path[PATH_MAX];
    const struct ls_log *log;
    const char *out;
    double began_s, further_s; /* the launcher began; the newest new step came */
    bool stands;               /* since then there are no new ones, but starts and failures */
    double lost_s;             /* of such times before */
    int64_t starts, again, ranks, failures[LAUNCH_CAUSES];
    double recovery_s, last_s;
    double next_s;
    bool failed; /* to write it */
};
void launch_prom_open(struct launch_prom *prom, const struct ls_launch *launch);
/* A step is there that no start had before. */
void launch_prom_further(struct launch_prom *prom);
/* Writes the file: now, or where the last time is some seconds ago. A warning where that fails. */
void launch_prom_write(struct launch_prom *prom, bool now);
/* The step of the run's newest checkpoint, and *time when it was written, seconds since 1970; -1:
 * there is none. */
int64_t launch_newest(const char *run, double *time);
/* A job that is started again goes on from the run's newest checkpoint: LS_ECONFIG where
 * train.resume names an older one of the run, since it would not go back. */
int launch_resume_check(const struct ls_config *config, struct ls_error *error);
/* A warning where train.resume names a checkpoint elsewhere that is not used, because the run has
 * its own. kept: the step of its newest checkpoint or snapshot; -1: there is none. */
void launch_resume_tell(const struct ls_config *config, int64_t kept, const struct ls_log *log);

/* ---- events ---------------------------------------------------------------------------------- */

struct launch_events {
    struct ls_jsonl *file;
    char path[PATH_MAX];
    const char *command; /* launch.on_event */
    const struct ls_log *log;
};
/* LS_EIO, LS_ENOSPC. */
int launch_events_open(struct launch_events *events, const struct ls_launch *launch,
                       struct ls_error *error);
/* Begins an event; its fields may follow by ls_jsonl_*, then launch_events_end. */
struct ls_jsonl *launch_events_begin(struct launch_events *events, const char *event, int64_t step);
void launch_events_end(struct launch_events *events);

/* ---- what is slow ---------------------------------------------------------------------------- */

/* A change for which steps would take more of their time is not worth it. */
#define LAUNCH_WORTH 0.9
/* Whether what has been slow since then has been so long enough for a change (launch.slow). */
bool launch_slow_lasts(const struct ls_launch *launch, double since_s);

/* What a step took before a change, and was expected to take with it. Zero it first. */
struct launch_gain {
    char host[LAUNCH_HOST_BYTES]; /* that was left; "": a stage got other layers */
    int64_t stage;
    double before_s, expected_s; /* expected_s 0: nothing is to be judged */
};
/* A change is made with which a step should take that share of its time: two fields of the event.
 */
void launch_gain_expect(struct launch_gain *gain, const struct launch_watch *watch, double share,
                        struct ls_jsonl *event);
/* In the start with the change, such as "without host b": records what a step takes, once some are
 * done. Whether that is known now, and no less than before. */
bool launch_gain_fails(struct launch_gain *gain, const char *change,
                       const struct launch_watch *watch, const struct ls_launch *launch,
                       struct launch_events *events);

/* ---- a slow stage ---------------------------------------------------------------------------- */

/* Another split of layers over stages, because a stage was measured slow. Zero it first. */
struct launch_split {
    char text[LS_CONFIG_TEXT_BYTES + 16];   /* "parallel.split=0-2,3"; "": none */
    char of[LS_SEARCH_KEYS_BYTES];          /* keys of the layout that it is for */
    char before[LS_CONFIG_TEXT_BYTES + 16]; /* the split before; "": that of the layout */
    int64_t ranks;                          /* of that layout */
    struct launch_gain gain;
    double next_s; /* no other change before */
    bool fails;    /* the newest change gained nothing: the next start
                    * undoes it, and no other is made */
    bool over;
};
/* Adds the split to keys[LS_SEARCH_KEYS_BYTES], the layout of the next start, if it is for that;
 * if the newest gained nothing, the one before. What a start without it takes is not judged. */
void launch_split_add(struct launch_split *split, int64_t ranks, char *keys);
/* Whether this start is to end for another split: launch.slow says so, a stage has been slow for
 * some time, and steps should take less with the split, which is recorded; or the newest change
 * gained nothing. keys: of this start; slots: how many of its ranks a host holds at most. */
bool launch_split_change(struct launch_split *split, const struct launch_watch *watch,
                         const struct ls_launch *launch, int64_t slots, int64_t ranks,
                         const char *keys, struct launch_events *events);
/* In the start with the split: records what a step takes, once some are done. */
void launch_split_gained(struct launch_split *split, const struct launch_watch *watch,
                         const struct ls_launch *launch, struct launch_events *events);
/* The start with the split, which has recorded nothing yet, ended because its layout was refused.
 * False: that is not why. */
bool launch_split_refused(struct launch_split *split, const struct launch_job *job,
                          const struct launch_watch *watch, const char *text,
                          const struct ls_launch *launch, struct launch_events *events);

/* ---- a host that is left --------------------------------------------------------------------- */

/* Leaves the host of the slow rank, and records that, if launch.slow says so, the rank has been
 * slow for some time, a layout fits on the others, and steps are faster in that: the job, of
 * `ranks`, is to save, and to begin again on those that are left. */
bool launch_slow_leave(struct launch_hosts *hosts, int64_t ranks, int64_t wanted,
                       const struct launch_watch *watch, const struct ls_launch *launch,
                       struct launch_events *events, struct launch_gain *gain);
/* In a start without the host: records what a step takes, once some are done. */
void launch_slow_gained(struct launch_gain *gain, const struct launch_watch *watch,
                        const struct ls_launch *launch, struct launch_events *events);
/* Leaves the host whose rank computed or kept something wrongly, as text says, and records that, if
 * it says which and a layout fits on the others. */
void launch_suspect_leave(struct launch_hosts *hosts, const char *text, int64_t wanted,
                          const struct launch_watch *watch, const struct ls_launch *launch,
                          struct launch_events *events);

#endif
