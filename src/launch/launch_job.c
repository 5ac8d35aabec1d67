/* The job: `lockstep train` under mpirun or srun, what it says, and its end. */
#include "launch/launch_private.h"

#include <lockstep/base/file.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LOOK_MS = 10,
    TURNS_MAX = 64, /* in a look: a job that never stops talking is watched too */
    COMMAND_S = 30,
    DOOMED_S = 2,
    OVER_S = 5,
    CANCEL_S = 10,
    PARTING_S = 30,
    PARTED_TIMEOUTS = 10,
    ROOM_MIB = 8 /* Open MPI 4.1 does not start with 6 */
};

/* ---- its command line ------------------------------------------------------------------------ */

enum { WORDS_MAX = 640, TEXT_BYTES = 1 << 19 };
struct line {
    char *word[WORDS_MAX];
    char text[TEXT_BYTES];
    size_t used;
    int count;
    bool cut; /* there was no room for all of it */
};

static void word_add(struct line *line, const char *word, size_t length)
{
    line->cut |= line->count >= WORDS_MAX - 1 || line->used + length + 1 > TEXT_BYTES;
    if (line->cut)
        return;
    line->word[line->count++] = line->text + line->used;
    memcpy(line->text + line->used, word, length);
    line->used += length + 1;
}

static void add(struct line *line, const char *word)
{
    word_add(line, word, strlen(word));
}

/* Words with spaces between them. */
static void add_all(struct line *line, const char *words)
{
    while (*words) {
        size_t length = strcspn(words, " ");
        if (length)
            word_add(line, words, length);
        words += length + (words[length] == ' ');
    }
}

static void add_keys(struct line *line, const char *keys)
{
    char word[LS_SEARCH_WORD_BYTES];
    while (!ls_search_word(&keys, word, NULL) && *word)
        add(line, word);
    line->cut |= *keys != '\0';
}

static void add_number(struct line *line, const char *option, int64_t number)
{
    char text[32];
    snprintf(text, sizeof text, "%ld", (long)number);
    add_all(line, option);
    add(line, text);
}

/* Open MPI waits two seconds between SIGTERM and SIGKILL: a job of which a rank is dead has nothing
 * to save. It starts nothing as root, and no more ranks than cores, unless it is told to. */
static void add_mpirun(struct line *line, const struct launch_start *start,
                       const struct launch_job *job)
{
    const char *segments = job->segments;
    char hosts[LAUNCH_HOSTS_TEXT];
    bool here = start->hosts->kind == LAUNCH_HERE, alone = launch_hosts_here_alone(start->hosts);
    line->cut |= !launch_hosts_text(start->hosts, start->ranks, hosts, sizeof hosts);
    add(line, "mpirun");
    if (start->hosts->open_mpi) {
        add_all(line, "--mca odls_base_sigkill_timeout 0 --oversubscribe");
        if (job->survives)
            add_all(line, "--mca orte_enable_recovery 1");
        if (geteuid() == 0)
            add(line, "--allow-run-as-root");
        if (!getenv("OMPI_MCA_hwloc_base_binding_policy") &&
            !getenv("OMPI_MCA_rmaps_base_mapping_policy"))
            add_all(line, "--bind-to none");  /* by itself it binds two to a core each */
        if (alone && !getenv("OMPI_MCA_pml")) /* the one of a machine alone: no search for others */
            add_all(line, "--mca pml ob1");
        if (segments[0]) {
            add_all(line, "--mca btl_vader_backing_directory");
            add(line, segments);
        }
        if (here && !getenv("OMPI_MCA_ras")) /* by itself it takes the nodes of an allocation */
            add_all(line, "--mca ras ^slurm,tm,lsf,gridengine,alps");
        if (!here)
            add_all(line, "-x " LAUNCH_VARIABLE);
        if (!here && getenv("LOCKSTEP_PEAK_FLOPS"))
            add_all(line, "-x LOCKSTEP_PEAK_FLOPS");
    }
    if (!here) {
        add(line, start->hosts->open_mpi ? "--host" : "-hosts");
        add(line, hosts);
    }
    add_number(line, "-n", start->ranks);
}

/* "a:2,b:2" without the numbers. srun is to leave the others alone when a task ends badly: it would
 * send them SIGTERM, with which they save, and for KillWait nothing else could end the step. */
static void add_srun(struct line *line, const struct launch_start *start, const char *step)
{
    char hosts[LAUNCH_HOSTS_TEXT], word[LAUNCH_HOSTS_TEXT + 32], *to = hosts;
    int nodes = 0;
    line->cut |= !launch_hosts_text(start->hosts, start->ranks, hosts, sizeof hosts);
    for (const char *from = hosts; *from; nodes++) {
        while (*from && *from != ':')
            *to++ = *from++;
        from += strcspn(from, ",");
        if (*from)
            *to++ = *from++;
    }
    *to = '\0';
    add_all(line, "srun --overlap --overcommit --kill-on-bad-exit=0 --wait=0");
    if (start->hosts->interface[0]) {
        snprintf(word, sizeof word, "--mpi=%s", start->hosts->interface);
        add(line, word);
    }
    snprintf(word, sizeof word, "--job-name=%s", step);
    add(line, word);
    snprintf(word, sizeof word, "--nodelist=%s", hosts);
    add(line, word);
    add_number(line, "--nodes", nodes);
    add_number(line, "-n", start->ranks);
}

/* Of the command line; files that runs keep have train.resume=never, too. */
static bool asks_anew(const struct ls_config *config)
{
    return !strcmp(config->train.resume, "never") && ls_search_given(config, "train.resume");
}

static void line_make(struct line *line, const struct launch_start *start,
                      const struct launch_job *job)
{
    const struct ls_launch *launch = start->launch;
    char word[LS_CONFIG_TEXT_BYTES + 32];
    if (start->hosts->kind == LAUNCH_SLURM)
        add_srun(line, start, job->step);
    else
        add_mpirun(line, start, job);
    add(line, launch->program);
    add_all(line, "train --");
    for (int i = 0; i < launch->count; i++)
        add(line, launch->words[i]);
    if (!ls_config_is_given(launch->config, "snapshot.every"))
        add(line, "snapshot.every=auto");
    add_keys(line, start->keys);
    const char *first = ls_config_resume_path(launch->config);
    if (first &&
        strcmp(launch->config->train.resume, "auto")) { /* for a run with none of its own */
        snprintf(word, sizeof word, "train.resume_else=%s", first);
        add(line, word);
    }
    bool anew = !start->begun && asks_anew(launch->config);
    add(line, anew ? "train.resume=never" : "train.resume=auto");
}

/* ---- its beginning --------------------------------------------------------------------------- */

int launch_job_check(struct launch_hosts *hosts, struct ls_error *error)
{
    bool slurm = hosts->kind == LAUNCH_SLURM;
    char said[8192];
    char *const version[] = {slurm ? "srun" : "mpirun", "--version", NULL};
    char *const interfaces[] = {"sh", "-c", "srun --mpi=list 2>&1", NULL};
#ifndef LS_WITH_MPI
    return ls_error_set(error, LS_ENOTSUP,
                        "this build has no MPI, so there is no job to launch: install "
                        "libopenmpi-dev (or libmpich-dev) and build with make MPI=1; lockstep "
                        "train runs ranks as threads");
#endif
    int code = process_run(version, NULL, said, sizeof said, COMMAND_S);
    if (code == PROCESS_FAILED)
        return ls_error_errno(error, errno, "cannot run %s --version, to find out which it is",
                              version[0]);
    if (code == 127 || (code && slurm))
        return ls_error_set(error, LS_ENOTSUP,
                            "%s was not found in PATH: install %s; without it, lockstep train runs "
                            "the ranks as threads of one process",
                            version[0],
                            slurm ? "Slurm's programs (Debian: slurm-client)"
                                  : "Open MPI (Debian: openmpi-bin) or MPICH (mpich)");
    if (code)
        return ls_error_set(error, LS_ENOTSUP, "%s --version failed (%d): %.300s", version[0], code,
                            said);
    hosts->open_mpi = !slurm && strstr(said, "Open MPI");
    if (slurm && !getenv("SLURM_MPI_TYPE") &&
        !process_run(interfaces, NULL, said, sizeof said, COMMAND_S) && strstr(said, "pmix"))
        snprintf(hosts->interface, sizeof hosts->interface, "pmix");
    return LS_OK;
}

/* The child's side: mpirun, which ends with the launcher, however that ends; and with it the ranks.
 * One that is signalled while it starts may kill them and then hang: process_guard ends it. */
static _Noreturn void job_child(struct line *line, int printed, int said, pid_t parent)
{
    process_clean();
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(1);
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(nothing, STDIN_FILENO);
    if (printed >= 0)
        dup2(printed, STDOUT_FILENO);
    dup2(said, STDERR_FILENO);
    setenv(LAUNCH_VARIABLE, "1", 1);
    execvp(line->word[0], line->word);
    _exit(127);
}

/* Workers that meet now and then, or push when they are ready, need not end when one dies: what the
 * others did is kept. Where the order of pushes is given, nobody can go on without it. */
static bool survives(const struct launch_start *start)
{
    const struct ls_config *config = start->launch->config;
    bool served = config->async.mode == LS_CONFIG_SERVER && config->parallel.servers > 0 &&
                  config->async.order == LS_CONFIG_BY_CLOCK && !*config->async.follow;
    return start->hosts->open_mpi && (config->async.mode == LS_CONFIG_DILOCO || served) &&
           config->comm.timeout_s > 0;
}

static int job_fork(struct launch_job *job, const struct launch_start *start, struct line *line,
                    struct ls_error *error)
{
    int ends[2];
    ls_lock_look(start->launch->config->train.out, job->former, sizeof job->former);
    if (pipe2(ends, O_CLOEXEC))
        return ls_error_errno(error, errno, "no pipe for the job's messages");
    fflush(NULL);
    pid_t parent = getpid();
    job->pid = fork();
    if (job->pid == 0)
        job_child(line, start->output->write_fd, ends[1], parent);
    int failure = errno;
    close(ends[1]);
    if (job->pid < 0) {
        job->pid = 0;
        close(ends[0]);
        return ls_error_errno(error, failure,
                              "the job cannot be started, because the system gives it no process%s",
                              failure == EAGAIN ? " (ulimit -u, or pids.max of the cgroup)" : "");
    }
    if (!job->step[0]) /* tasks of Slurm may be saving */
        process_guard(job->pid, OVER_S);
    job->stderr_fd = ends[0];
    fcntl(job->stderr_fd, F_SETFL, O_NONBLOCK);
    return LS_OK;
}

int launch_job_start(struct launch_job *job, const struct launch_start *start,
                     struct ls_error *error)
{
    static int number;
    struct line *line = calloc(1, sizeof *line);
    *job = (struct launch_job){.stderr_fd = -1, .ends.code = -1};
    if (start->hosts->kind == LAUNCH_SLURM)
        snprintf(job->step, sizeof job->step, "lockstep-%ld-%d", (long)getpid(), ++number);
    if (!line)
        return ls_no_memory(error, "for a command line");
    job->output = start->output;
    job->run = start->launch->config->train.out;
    job->survives = survives(start);
    job->patience_s = PARTED_TIMEOUTS * start->launch->config->comm.timeout_s;
    if (start->hosts->open_mpi)
        launch_segments_open(start->launch->config->train.out,
                             launch_hosts_here_alone(start->hosts), job->segments);
    line_make(line, start, job);
    int status = line->cut ? ls_error_set(error, LS_ENOTSUP,
                                          "the command that starts the job is too long: use fewer "
                                          "hosts, or put keys into the configuration's file")
                           : job_fork(job, start, line, error);
    if (status)
        launch_segments_remove(job->segments);
    free(line);
    return status;
}

/* ---- its life -------------------------------------------------------------------------------- */

/* Of tasks that ended badly, which srun names, a signal leaves the others waiting for ever. Those
 * that ended by themselves do so together. */
static void task_look(struct launch_job *job, const char *line, size_t length)
{
    static const char mark[] = "srun: error: ", exited[] = "Exited with exit code";
    const char *at = memmem(line, length, mark, sizeof mark - 1);
    size_t rest = at ? length - (size_t)(at - line) : 0;
    if (!at || line[length - 1] != '\n' || !memmem(at, rest, ": task", 6))
        return;
    bool itself = memmem(at, rest, exited, sizeof exited - 1) != NULL;
    double until_s = ls_now_s() + (itself ? PARTING_S : 0);
    job->broken_s = job->broken_s > 0 ? fmin(job->broken_s, until_s) : until_s;
}

/* Keeps the end of what was said, of a line of at most sizeof job->line. */
static void said_add(struct launch_job *job, const char *line, size_t length)
{
    static const char last[] = "noticed that process rank "; /* by mpirun, once none is left */
    enum { KEPT = sizeof job->said / 2 };
    if (job->length + length >= sizeof job->said) {
        memmove(job->said, job->said + job->length - KEPT, KEPT);
        job->length = KEPT;
    }
    memcpy(job->said + job->length, line, length);
    job->length += length;
    job->said[job->length] = '\0';
    if (job->over_s == 0 && memmem(line, length, last, sizeof last - 1))
        job->over_s = ls_now_s();
    if (job->step[0])
        task_look(job, line, length);
}

/* What ranks hand out stays here; all else is passed on. */
static void line_take(struct launch_job *job, const char *line, size_t length)
{
    enum launch_end end = launch_end_take(&job->ends, line, length);
    if (end == LAUNCH_ENDS) {
        (void)!write(STDERR_FILENO, line, length);
        said_add(job, line, length);
    } else if (end == LAUNCH_PARTED) {
        job->parted_s = ls_now_s();
    } else if (end == LAUNCH_GAVE_UP && job->doomed_s == 0) {
        job->doomed_s = ls_now_s();
    }
}

/* Takes whole lines, and one that is too long, or the last, as it is. */
static void lines_take(struct launch_job *job, bool last)
{
    size_t at = 0;
    for (const char *end; (end = memchr(job->line + at, '\n', job->held - at));) {
        size_t length = (size_t)(end + 1 - job->line) - at;
        line_take(job, job->line + at, length);
        at += length;
    }
    if (at < job->held && (last || (at == 0 && job->held == sizeof job->line))) {
        line_take(job, job->line + at, job->held - at);
        at = job->held;
    }
    job->held -= at;
    memmove(job->line, job->line + at, job->held);
}

/* False: there is nothing, now or for ever. */
static bool said_pass(struct launch_job *job)
{
    ssize_t got = job->stderr_fd < 0
                      ? -1
                      : read(job->stderr_fd, job->line + job->held, sizeof job->line - job->held);
    if (got > 0)
        job->held += (size_t)got;
    if (got >= 0)
        lines_take(job, got == 0);
    if (got > 0)
        return true;
    if (got == 0) {
        close(job->stderr_fd);
        job->stderr_fd = -1;
    }
    return false;
}

/* Slurm ends the tasks on all nodes, by the step's name: an srun that is killed leaves them. */
static void step_cancel(const struct launch_job *job)
{
    char steps[65536], name[64], id[64], *save = NULL, *allocation = getenv("SLURM_JOB_ID");
    char jobs[128];
    char *const list[] = {"squeue", "--noheader", "--steps", jobs, "--format=%i %j", NULL};
    char *const cancel[] = {"scancel", "--signal=KILL", id, NULL};
    if (!allocation)
        return;
    snprintf(jobs, sizeof jobs, "--jobs=%s", allocation);
    if (process_run(list, NULL, steps, sizeof steps, CANCEL_S))
        return;
    size_t length = strlen(allocation);
    for (char *line = strtok_r(steps, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        if (sscanf(line, "%63s %63s", id, name) == 2 && !strcmp(name, job->step) &&
            !strncmp(id, allocation, length) && id[length] == '.')
            process_run(cancel, NULL, NULL, 0, CANCEL_S);
}

bool launch_job_look(struct launch_job *job)
{
    int status;
    struct pollfd wait = {.fd = job->stderr_fd, .events = POLLIN};
    poll(&wait, 1, LOOK_MS);
    for (int turn = 0; turn < TURNS_MAX && said_pass(job); turn++)
        continue;
    launch_output_pass(job->output);
    pid_t changed = waitpid(job->pid, &status, WNOHANG | WUNTRACED | WCONTINUED);
    bool ended = changed == job->pid && !WIFSTOPPED(status) && !WIFCONTINUED(status);
    if (changed == job->pid)
        job->stopped = WIFSTOPPED(status);
    if (ended) {
        job->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        job->left = process_sweep();
        launch_output_pass(job->output);
        launch_segments_remove(job->segments);
        while (said_pass(job))
            continue;
        lines_take(job, true);
        /* mpirun ends with 0 then, whatever its ranks ended with: -1, all of them died. */
        if (job->survives && job->code == 0)
            job->code = job->ends.code >= 0 ? job->ends.code : 128 + SIGKILL;
        if (job->stderr_fd >= 0)
            close(job->stderr_fd);
        job->stderr_fd = -1;
        job->pid = 0;
        return false;
    }
    /* mpirun cannot tell a host that is cut off from one that is slow, and waits for it. */
    if (job->doomed_s > 0 && ls_now_s() - job->doomed_s > DOOMED_S)
        launch_job_kill(job);
    /* Those that live on leave where they would meet: one that is stopped never does. */
    if (job->parted_s > 0 && ls_now_s() - job->parted_s > job->patience_s)
        launch_job_kill(job);
    if (job->broken_s > 0 && job->over_s == 0 && ls_now_s() >= job->broken_s) {
        step_cancel(job);
        job->over_s = ls_now_s();
    }
    /* An mpirun whose ranks were killed as they connected to it may wait for a lock of its own. */
    if (job->over_s > 0 && ls_now_s() - job->over_s > OVER_S)
        launch_job_kill(job);
    return true;
}

bool launch_job_stuck(const struct launch_job *job, bool asked)
{
    return process_children_are(job->pid, asked ? "TtD" : "Tt");
}

bool launch_job_has_room(const struct launch_hosts *hosts, char *text, size_t bytes)
{
    static const char *const names[] = {"OMPI_MCA_orte_tmpdir_base", "TMPDIR", "TEMP", "TMP"};
    const char *folder = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !folder; i++)
        folder = getenv(names[i]);
    folder = folder ? folder : "/tmp";
    if (!hosts->open_mpi || ls_directory_has_room(folder, ROOM_MIB << 20))
        return true;
    snprintf(text, bytes,
             "MPI did not start: %.500s, where mpirun keeps its files, has no room for %d MiB "
             "(TMPDIR names another place)",
             folder, ROOM_MIB);
    return false;
}

/* Rank 0, by the lock of the run's folder; where it is. LS_LOCK_FREE: it is not there yet. */
static enum ls_lock_state rank0_find(const struct launch_job *job, long *pid,
                                     char host[LAUNCH_HOST_BYTES])
{
    char who[256];
    enum ls_lock_state state = ls_lock_look(job->run, who, sizeof who);
    bool known =
        state == LS_LOCK_HELD || (state == LS_LOCK_ELSEWHERE && strcmp(who, job->former) != 0);
    return known && sscanf(who, "process %ld on %255[^,]", pid, host) == 2 ? state : LS_LOCK_FREE;
}

bool launch_job_ask(const struct launch_job *job, const struct launch_hosts *hosts)
{
    char host[LAUNCH_HOST_BYTES], words[64];
    long pid;
    enum ls_lock_state state = rank0_find(job, &pid, host);
    if (state == LS_LOCK_FREE)
        return false;
    if (state == LS_LOCK_HELD)
        return kill((pid_t)pid, SIGUSR1) == 0;
    if (hosts->kind == LAUNCH_SLURM)
        return kill(job->pid, SIGUSR1) == 0;
    snprintf(words, sizeof words, "kill -USR1 %ld", pid);
    return launch_hosts_run(hosts, host, words) == 0;
}

bool launch_job_halted(const struct launch_job *job, const struct launch_hosts *hosts, char *text,
                       size_t bytes)
{
    char host[LAUNCH_HOST_BYTES], words[64];
    long pid;
    enum ls_lock_state state = rank0_find(job, &pid, host);
    if (state == LS_LOCK_FREE)
        return false;
    snprintf(words, sizeof words, "grep -qi ^state:.t /proc/%ld/status", pid);
    snprintf(text, bytes, "rank 0 on %s (process %ld)", host, pid);
    return state == LS_LOCK_HELD ? process_is_stopped((pid_t)pid)
                                 : launch_hosts_run(hosts, host, words) == 0;
}

void launch_job_name(const struct launch_job *job, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s (process %ld)", job->step[0] ? "srun" : "mpirun", (long)job->pid);
}

void launch_job_kill(struct launch_job *job)
{
    if (!job->killed && job->step[0])
        step_cancel(job);
    job->killed = true;
    kill(-job->pid, SIGKILL);
    kill(job->pid, SIGKILL);
}
