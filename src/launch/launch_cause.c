/* What a job's end means: by its exit code, what ranks handed out, and what mpirun or srun said. */
#include "launch/launch_private.h"

#include <stdio.h>
#include <string.h>

static const char *const names[LAUNCH_CAUSES] = {
    [LAUNCH_DONE] = "done",
    [LAUNCH_STOPPED] = "stopped",
    [LAUNCH_KILLED] = "killed",
    [LAUNCH_WORKER] = "worker",
    [LAUNCH_LATE] = "late",
    [LAUNCH_HOST] = "host",
    [LAUNCH_MISMATCH] = "mismatch",
    [LAUNCH_COMMUNICATION] = "communication",
    [LAUNCH_MEMORY] = "memory",
    [LAUNCH_OTHER] = "other",
    [LAUNCH_DISK] = "disk",
    [LAUNCH_NONFINITE] = "nonfinite",
    [LAUNCH_CHECKPOINT] = "checkpoint",
    [LAUNCH_CONFIGURATION] = "configuration",
};

const char *launch_cause_name(enum launch_cause cause)
{
    return names[cause];
}

/* Codes of doc/exit-codes.md that say it all. */
static const struct {
    int status;
    enum launch_cause cause;
} codes[] = {
    {LS_OK, LAUNCH_DONE},
    {LS_ESTOPPED, LAUNCH_STOPPED},
    {LS_EIO, LAUNCH_DISK},
    {LS_ENOSPC, LAUNCH_DISK},
    {LS_ENUMERIC, LAUNCH_NONFINITE},
    {LS_ECKPT, LAUNCH_CHECKPOINT},
    {LS_ECONFIG, LAUNCH_CONFIGURATION},
    {LS_ELAYOUT, LAUNCH_CONFIGURATION},
    {LS_EDATA, LAUNCH_CONFIGURATION},
    {LS_ENOTSUP, LAUNCH_CONFIGURATION},
    {LS_EBUSY, LAUNCH_CONFIGURATION},
    {LS_ENOMEM, LAUNCH_MEMORY},
    {LS_ECOMM, LAUNCH_COMMUNICATION},
};

/* The rest of the line that begins with `from`. */
static void line_copy(const char *from, char *text, size_t bytes)
{
    size_t length = strcspn(from, "\r\n");
    snprintf(text, bytes, "%.*s", (int)ls_min((int64_t)length, (int64_t)bytes - 1), from);
}

/* "process rank 2 with PID 0 on node vm exited on signal 9 (Killed)." is mpirun's sentence about
 * the first process that died. */
static bool killed_text(const char *said, char *text, size_t bytes)
{
    const char *at = strstr(said, "mpirun noticed that process ");
    int rank, signal;
    char host[128];
    if (!at || sscanf(at,
                      "mpirun noticed that process rank %d with PID %*d on node %127s exited on "
                      "signal %d",
                      &rank, host, &signal) != 3)
        return false;
    snprintf(text, bytes, "rank %d on %s was ended by signal %d (%s)", rank, host, signal,
             strsignal(signal));
    return true;
}

enum launch_cause launch_cause_of(const struct launch_job *job, const struct launch_watch *watch,
                                  bool first, char *text, size_t bytes)
{
    const struct launch_ends *ends = &job->ends;
    enum launch_cause cause = LAUNCH_CAUSES;
    const char *srun = job->step[0] ? strstr(job->said, "srun: error: ") : NULL;
    snprintf(text, bytes, "the job ended with %d", job->code);
    if (srun)
        line_copy(srun, text, bytes);
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (job->code == ls_exit_code(codes[i].status))
            cause = codes[i].cause;
    /* srun ends with 0 if a node did not start its tasks. */
    if (cause == LAUNCH_DONE && srun && !watch->started)
        return LAUNCH_OTHER;
    /* Ranks of the start before may still hold the run on a host that is cut off. */
    if (job->code == ls_exit_code(LS_EBUSY) && !first)
        cause = LAUNCH_OTHER;
    /* Copies, or repeated steps, that differ are a faulty machine; another try may do. */
    if (cause == LAUNCH_NONFINITE && ends->faulty)
        cause = LAUNCH_MISMATCH;
    if (job->doomed_s > 0 && cause == LAUNCH_CAUSES)
        cause = LAUNCH_COMMUNICATION;
    if (job->doomed_s == 0 && ends->told[LAUNCH_PARTED].weight) {
        cause = LAUNCH_WORKER;
        snprintf(text, bytes, "%s", ends->told[LAUNCH_PARTED].text);
    } else if (cause == LAUNCH_COMMUNICATION) {
        cause = ends->late ? LAUNCH_LATE : LAUNCH_COMMUNICATION;
        if (ends->told[LAUNCH_GAVE_UP].weight)
            snprintf(text, bytes, "%s", ends->told[LAUNCH_GAVE_UP].text);
    } else if (killed_text(job->said, text, bytes) || (cause == LAUNCH_CAUSES && job->code > 128)) {
        cause = LAUNCH_KILLED;
    } else if (watch->end_text[0]) {
        snprintf(text, bytes, "%s", watch->end_text);
    } else if (ends->told[LAUNCH_ENDED].weight) {
        snprintf(text, bytes, "%s", ends->told[LAUNCH_ENDED].text);
    }
    return cause == LAUNCH_CAUSES ? LAUNCH_OTHER : cause;
}
