/* lockstep/launch.h - a job that loses ranks or hosts and goes on.
 *
 *   ls_launch            starts `lockstep train` under MPI, watches it, and starts it again
 *   ls_run_status_read   where a run stands, by its records: of any run, with or without a launcher
 *
 * The launcher is a process outside of MPI. It starts the ranks by mpirun, or by srun inside a
 * Slurm allocation, and reads what the run records. When the job ends with anything but success or
 * a request to stop, it finds out what happened and which hosts are left, chooses a layout for
 * them, and goes on from the newest checkpoint. Every layout gives the same bits, so the end is
 * that of a run that lost nothing. doc/launch.md has each kind of failure. Everything here is
 * Local.
 *
 * RUN/events.jsonl is its record: one JSON object a line with "time" (seconds since 1970), "event"
 * and "step" (the newest that is recorded). Events: start, failed, host_lost, host_back,
 * host_slow, stage_slow, split_refused, gained, host_suspect, disk_full, disk_read_only, layout,
 * going_on, not_repeated, deadline, stopped, done, gave_up. */
#ifndef LOCKSTEP_LAUNCH_H
#define LOCKSTEP_LAUNCH_H

#include <lockstep/base.h>
#include <lockstep/config.h>

#include <limits.h>

LS_C_BEGIN

struct ls_launch {
    const char *program;      /* `lockstep` itself, absolute */
    const char *const *words; /* [count]: what `train` gets, a file and keys */
    int count;
    const struct ls_config *config; /* of these words, resolved */
    const char *hosts;              /* a hostfile; NULL: this machine, or the Slurm allocation */
    int64_t ranks;                  /* on this machine; 0: as many as the layout has */
    const struct ls_log *log;
    /* Signals that asked for the end so far. 1 is handed on: the job saves and ends. 2 ends it at
     * once. -1 is handed on too, and does not count: the next signal makes it 1. */
    const volatile int *asked;
};
/* Runs the job to its end, or asks it to save and end before launch.deadline_s, or the time of the
 * Slurm allocation, is over; *code is the exit code to end with, that of the last `lockstep train`.
 * Errors are those of a job that never began: LS_ECONFIG (hostfile, ranks), LS_ELAYOUT, LS_ENOTSUP
 * (no mpirun), LS_EBUSY (another launcher has this run), LS_EIO, LS_ENOMEM. Children that this
 * process has already live on; it must start no others, and gets those that its children leave
 * behind. */
int ls_launch(const struct ls_launch *launch, int *code, struct ls_error *error);

/* Where a rank of a launched job shows life until it is heard otherwise (base/heartbeat.h): in
 * RUN/starting, which is there from the start of the job until that is recorded. rank -1: that
 * folder. LS_EINVAL if the path is too long. */
int ls_launch_sign_path(char path[PATH_MAX], const char *run, int64_t rank, struct ls_error *error);

/* Of a rank of a launched job, before MPI begins: makes the folder that the launcher names for the
 * memory that Open MPI's ranks of one machine share, holds it until it ends, and removes those that
 * nobody holds. Without such a name, nothing. run: its folder. */
void ls_launch_segments_enter(const char *run);
/* After MPI has ended: the last rank of a machine removes it. */
void ls_launch_segments_leave(void);

/* Of a rank of a launched job, as it ends: hands the launcher the status, and the error's text,
 * cause (enum ls_error_cause: a disk that is read-only is known by it) and host, in a line of JSON
 * on stderr that nobody else sees. Only the first call counts. lives: another rank
 * has ended, and this one ends by itself; otherwise after LS_ECOMM no rank can go on. Without a
 * launcher, nothing. */
void ls_launch_end_tell(int status, bool lives, const struct ls_error *error);

/* ---- where a run stands ---------------------------------------------------------------------- */

enum ls_run_state {
    LS_RUN_STARTING, /* held, and nothing is recorded yet */
    LS_RUN_RUNNING,
    LS_RUN_WAITING, /* its launcher is between two starts, or waits for hosts */
    LS_RUN_DONE,
    LS_RUN_STOPPED,
    LS_RUN_FAILED,
    LS_RUN_KILLED, /* it ended without a word */
};
/* "running", ... */
const char *ls_run_state_name(enum ls_run_state state);

enum { LS_FAILURE_KINDS_MAX = 16 };
struct ls_run_status {
    enum ls_run_state state;
    char who[256];       /* of a run under way: "process 4711 on node7, since ..." */
    bool elsewhere;      /* that is another host: its lock is all that is known of it from here */
    char text[1024];     /* why it ended, if that is recorded */
    double heard;        /* time of the newest record; NaN: there is none */
    int64_t step, steps; /* 0 steps: not known yet */
    double loss, step_time; /* of the last step; when it was recorded; NaN: there is none */
    int64_t saved;          /* step of the newest checkpoint, -1: none */
    double saved_time;      /* when it was written */
    int64_t snapshot;       /* the same of the newest snapshot on this machine */
    double snapshot_time;
    char layout[LS_CONFIG_TEXT_BYTES];
    int64_t ranks;
    struct {
        char kind[32];
        int64_t count;
    } failures[LS_FAILURE_KINDS_MAX]; /* that a launcher saw, by kind */
    int kinds;
    int64_t again; /* steps that were computed again */
    double lost_s; /* from each failure to the first new step after it */
};
/* Reads the records of the run's folder. LS_EIO if there is no run, LS_EDATA for damaged
 * records. */
int ls_run_status_read(const char *run, struct ls_run_status *status, struct ls_error *error);

LS_C_END
#endif
