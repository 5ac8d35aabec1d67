/* The launcher: starts the job, judges its end, and goes on. */
#include "launch/launch_private.h"

#include <lockstep/base/file.h>
#include <lockstep/base/words.h>
#include <lockstep/train.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum {
    TRY_S_MIN = 2,
    TRY_S_MAX = 30,
    WAIT_MS = 50,
    LOST_MS = 5,
    BUSY_S = 30,
    BUSY_PAUSE_S = 10,
    END_S = 60
};

struct launcher {
    const struct ls_launch *launch;
    struct ls_config *config; /* with the layout that `train` takes if none is given */
    struct launch_hosts hosts;
    struct launch_events events;
    struct launch_watch watch;
    struct launch_output output;
    struct launch_job job;
    struct launch_starting *starting; /* NULL once the job has recorded its start */
    char frozen[512]; /* who was stopped, for which this start was ended; "": nobody */
    bool lingers;     /* it was ended after it had recorded how the run ended */
    struct launch_prom prom;
    struct launch_deadline deadline;
    bool due;       /* it is time to save and end */
    double asked_s; /* since when the job is asked to; 0: it is not */
    struct ls_lock lock;
    bool *changed;                   /* [hosts.count] */
    int64_t wanted;                  /* ranks of the given layout */
    int64_t ranks;                   /* of this start */
    char keys[LS_SEARCH_KEYS_BYTES]; /* and its layout; "": the given one */
    int64_t starts, launched;        /* launched: those that got a process */
    int64_t too_few;                 /* slots: on so many no layout fits, and hosts may come back */
    int64_t reached, kept; /* the furthest step, and checkpoint or snapshot, of all starts so far */
    int64_t doubted;       /* the step before the newest one that was not finite; -1: none was */
    int64_t failures;      /* in a row, without getting further */
    bool full;             /* starts fail, because the disk takes nothing; that was said */
    double busy_s;         /* since when ranks of an earlier start hold the run; 0: none do */
    bool grows;            /* hosts came back while this start goes on */
    bool resized;          /* this start was asked to end, for another layout */
    struct launch_gain gain;   /* of leaving a slow host */
    struct launch_split split; /* because of a slow stage */
    bool cut_off;              /* this start was ended, because a host of it does not answer */
    double heard_s;            /* when this start last recorded something */
    double tried_s;            /* the same, or when its hosts were last tried */
    int halted;                /* since then rank 0 was found stopped so often */
    double end_s;              /* when this start was seen to have recorded its end; 0: not yet */
    double fault_s;            /* when the last failure was seen; 0: there is none to get over */
    int64_t fault_step;        /* what was recorded then */
    bool ended;                /* events.jsonl says so */
};

/* ---- events ---------------------------------------------------------------------------------- */

static struct ls_jsonl *event(struct launcher *l, const char *name)
{
    return launch_events_begin(&l->events, name, ls_max(l->reached, 0));
}

static void event_hosts(struct launcher *l)
{
    for (int i = 0; i < l->hosts.count; i++) {
        const struct launch_host *host = &l->hosts.list[i];
        if (!l->changed[i])
            continue;
        struct ls_jsonl *m = event(l, host->up ? "host_back" : "host_lost");
        ls_jsonl_string(m, "host", host->name);
        ls_jsonl_int(m, "slots", host->slots);
        launch_events_end(&l->events);
        ls_log(l->launch->log, LS_LOG_WARNING, "host %s %s", host->name,
               host->up ? "answers again" : "does not answer");
        l->changed[i] = false;
    }
}

static void event_layout(struct launcher *l, const char *name)
{
    enum { HOSTS_BYTES = 1 << 15 }; /* a record has twice as many */
    char hosts[HOSTS_BYTES], text[LS_SEARCH_KEYS_BYTES];
    launch_hosts_text(&l->hosts, l->ranks, hosts, sizeof hosts);
    ls_config_layout_text(l->config, NULL, text, sizeof text);
    struct ls_jsonl *m = event(l, name);
    ls_jsonl_int(m, "ranks", l->ranks);
    ls_jsonl_string(m, "hosts", hosts);
    ls_jsonl_string(m, "layout", l->keys[0] ? l->keys : text);
    launch_events_end(&l->events);
}

/* The last one. Signals so far do not end the wait for a slow reader. */
static void event_end(struct launcher *l)
{
    launch_output_pass(&l->output);
    launch_events_end(&l->events);
    launch_prom_write(&l->prom, true);
    l->ended = true;
}

static void event_gave_up(struct launcher *l, enum launch_cause cause, const char *text)
{
    struct ls_jsonl *m = event(l, "gave_up");
    ls_jsonl_string(m, "kind", launch_cause_name(cause));
    ls_jsonl_string(m, "text", text);
    event_end(l);
}

/* With what it says, if that is all that it has. */
static void event_text(struct launcher *l, const char *name, const char *text)
{
    ls_jsonl_string(event(l, name), "text", text);
    launch_events_end(&l->events);
}

/* A step that was not finite is now: its bits would repeat. */
static void event_not_repeated(struct launcher *l)
{
    char text[160];
    snprintf(text, sizeof text,
             "step %ld was not finite, and is when it is computed again: memory or arithmetic of "
             "a rank is faulty",
             (long)l->doubted + 1);
    event_text(l, "not_repeated", text);
    ls_log(l->launch->log, LS_LOG_WARNING, "%s", text);
    l->doubted = -1;
}

/* The first step is there that was not there before the failure. */
static void event_going_on(struct launcher *l)
{
    if (l->doubted >= 0 && l->watch.step > l->doubted)
        event_not_repeated(l);
    double took_s = ls_now_s() - l->fault_s;
    struct ls_jsonl *m = event(l, "going_on");
    ls_jsonl_int(m, "from", l->watch.from);
    ls_jsonl_int(m, "again", ls_max(l->fault_step - l->watch.from, 0));
    ls_jsonl_double(m, "seconds", took_s);
    launch_events_end(&l->events);
    ls_log(l->launch->log, LS_LOG_INFO,
           "going on: step %ld, %.2f s after the failure; %s computed again", (long)l->watch.step,
           took_s, ls_counted(ls_max(l->fault_step - l->watch.from, 0), "step").text);
    l->fault_s = 0;
    l->prom.recovery_s += took_s;
    l->prom.last_s = took_s;
    l->prom.again += ls_max(l->fault_step - l->watch.from, 0);
    launch_prom_write(&l->prom, true);
}

/* Whether a signal or the deadline asked for the end. */
static bool asked(struct launcher *l)
{
    if (l->due || !launch_deadline_due(&l->deadline, &l->watch))
        return l->due || *l->launch->asked;
    struct ls_jsonl *m = event(l, "deadline");
    ls_jsonl_double(m, "left", l->deadline.left_s);
    ls_jsonl_double(m, "needed", l->deadline.needed_s);
    launch_events_end(&l->events);
    ls_log(l->launch->log, LS_LOG_INFO,
           "%s are left, and to save may take %s: the job is asked to end",
           ls_duration(l->deadline.left_s).text, ls_duration(l->deadline.needed_s).text);
    return l->due = true;
}

/* Between starts, unless the end is asked for meanwhile. */
static void pause_for(struct launcher *l, double seconds)
{
    double until_s = ls_now_s() + seconds;
    while (ls_now_s() < until_s && !asked(l)) {
        nanosleep(&(struct timespec){.tv_nsec = WAIT_MS * 1000000L}, NULL);
        launch_output_pass(&l->output);
    }
}

/* ---- one start of the job -------------------------------------------------------------------- */

static void none_answers(const struct launcher *l)
{
    if (l->hosts.kind == LAUNCH_SLURM)
        ls_log(l->launch->log, LS_LOG_WARNING,
               "waiting for hosts: Slurm (squeue, sinfo) tells of none that responds");
    else
        ls_log(l->launch->log, LS_LOG_WARNING,
               "waiting for hosts: none answers to `%s HOST true`: make that work for one of them",
               launch_hosts_agent());
}

/* Waits until there are more slots than are too few: *over, it was asked to end meanwhile. */
static void hosts_await(struct launcher *l, bool *over)
{
    if (launch_hosts_slots(&l->hosts, false) == 0 && !asked(l))
        none_answers(l);
    while (launch_hosts_slots(&l->hosts, false) <= l->too_few && !asked(l)) {
        pause_for(l, 1e-3 * WAIT_MS);
        launch_prom_write(&l->prom, false);
        if (launch_hosts_look(&l->hosts, l->changed))
            event_hosts(l);
    }
    *over = asked(l);
}

static int layout_choose(struct launcher *l, struct ls_error *error)
{
    char before[LS_SEARCH_KEYS_BYTES];
    int64_t ranks = l->ranks;
    memcpy(before, l->keys, sizeof before);
    int status =
        launch_layout_choose(l->launch, &l->hosts, &l->watch, l->wanted, l->keys, &l->ranks, error);
    if (!status)
        launch_split_add(&l->split, l->ranks, l->keys);
    if (status || (l->starts > 0 && ranks == l->ranks && !strcmp(before, l->keys)))
        return status;
    if (l->starts > 0 || l->keys[0]) {
        event_layout(l, "layout");
        ls_log(l->launch->log, LS_LOG_INFO, "%s: %s", ls_counted(l->ranks, "rank").text,
               l->keys[0] ? l->keys : "the given layout");
    }
    return LS_OK;
}

static void starting_end(struct launcher *l)
{
    launch_starting_close(l->starting);
    l->starting = NULL;
}

static int start(struct launcher *l, struct ls_error *error)
{
    struct launch_start how = {.launch = l->launch,
                               .hosts = &l->hosts,
                               .output = &l->output,
                               .ranks = l->ranks,
                               .keys = l->keys,
                               .begun = l->watch.begun};
    launch_watch_begin(&l->watch);
    l->reached = ls_max(l->reached, l->watch.step);
    l->resized = l->cut_off = l->lingers = l->grows = false;
    l->end_s = l->halted = 0;
    l->frozen[0] = '\0';
    launch_hosts_use(&l->hosts, l->ranks);
    l->heard_s = l->tried_s = ls_now_s();
    event_layout(l, "start");
    l->prom.ranks = l->ranks;
    l->prom.starts = ++l->starts;
    launch_prom_write(&l->prom, true);
    l->starting = launch_starting_open(l->config->train.out, l->ranks);
    int status = launch_job_start(&l->job, &how, error);
    if (status)
        starting_end(l);
    l->launched += !status;
    return status;
}

static bool slots_are_down(const struct launcher *l)
{
    return launch_hosts_slots(&l->hosts, false) < launch_hosts_slots(&l->hosts, true);
}

/* Whether hosts came back that make a larger layout possible. Those that come back together are
 * taken together. */
static bool may_grow(struct launcher *l)
{
    if (slots_are_down(l) && launch_hosts_look(&l->hosts, l->changed)) {
        l->grows = true;
        event_hosts(l);
    }
    return l->grows && l->ranks < l->wanted && !launch_hosts_trying(&l->hosts);
}

/* Whether this start is to end for another layout: with hosts that are back, without a slow one, or
 * with fewer layers in a slow stage. */
static bool resize(struct launcher *l)
{
    if (may_grow(l)) {
        l->gain.expected_s = l->split.gain.expected_s = 0;
        return true;
    }
    if (launch_slow_leave(&l->hosts, l->ranks, l->wanted, &l->watch, l->launch, &l->events,
                          &l->gain))
        return true;
    int64_t slots = ls_min(launch_hosts_most(&l->hosts), l->ranks);
    return launch_split_change(&l->split, &l->watch, l->launch, slots, l->ranks, l->keys,
                               &l->events);
}

/* Whether it was worth it. */
static void gained(struct launcher *l)
{
    launch_slow_gained(&l->gain, &l->watch, l->launch, &l->events);
    launch_split_gained(&l->split, &l->watch, l->launch, &l->events);
}

/* Whether this start has recorded how the run ended. Of workers that live on when others fail, a
 * failure is not the last word. */
static bool is_over(const struct launcher *l)
{
    return launch_watch_code(&l->watch) >= 0 || (l->watch.end[0] && !l->job.survives);
}

static void stopped_text(struct launcher *l, const char *who, const char *how)
{
    snprintf(l->frozen, sizeof l->frozen, "nothing was recorded for %.2f s, and %s %s",
             ls_now_s() - l->heard_s, who, how);
}

/* Whoever is stopped never says how the job ended: mpirun, or all ranks. A rank that is not stopped
 * waits for the others for comm.timeout_s and then names them, so rank 0 is believed to be
 * one of all only if it is found so twice. */
static void stopped_judge(struct launcher *l)
{
    char who[LAUNCH_HOST_BYTES + 64];
    bool asks = l->due || *l->launch->asked;
    launch_job_name(&l->job, who, sizeof who);
    if (l->job.stopped)
        stopped_text(l, who, "is stopped (SIGSTOP)");
    else if (launch_job_stuck(&l->job, asks))
        stopped_text(l, "all ranks", "are stopped (SIGSTOP) or wait for a disk");
    else if (!launch_job_halted(&l->job, &l->hosts, who, sizeof who))
        l->halted = 0;
    else if (l->halted++ > 0)
        stopped_text(l, who, "is stopped (SIGSTOP)");
}

/* A job that records nothing for comm.timeout_s may be slow, or mpirun waits for a host that is no
 * more there: it does not notice by itself before TCP gives up. */
static void silence_judge(struct launcher *l, bool heard)
{
    double patience_s = l->config->comm.timeout_s, now_s = ls_now_s();
    if (heard) {
        l->heard_s = l->tried_s = now_s;
        l->halted = 0;
    }
    if (patience_s <= 0 || l->cut_off || l->frozen[0] || now_s - l->tried_s < patience_s)
        return;
    l->cut_off = launch_hosts_try(&l->hosts, false, l->changed);
    if (!l->cut_off && !is_over(l))
        stopped_judge(l);
    l->tried_s = ls_now_s();
    event_hosts(l); /* spares too */
    if (l->cut_off || l->frozen[0])
        launch_job_kill(&l->job);
}

/* A run that has recorded its end has nothing left to lose: an mpirun that is stopped then, or
 * hangs, is not waited for. */
static void end_judge(struct launcher *l)
{
    double now_s = ls_now_s(), timeout_s = l->config->comm.timeout_s;
    double patience_s = timeout_s > 0 ? fmin(timeout_s, END_S) : END_S;
    char name[64];
    l->end_s = !is_over(l) ? 0 : l->end_s > 0 ? l->end_s : now_s;
    if (l->end_s == 0 || l->lingers || now_s - l->end_s < patience_s)
        return;
    launch_job_name(&l->job, name, sizeof name);
    snprintf(l->frozen, sizeof l->frozen,
             "the run has recorded its end (%s), and %s did not end within %.3g s", l->watch.end,
             name, patience_s);
    ls_log(l->launch->log, LS_LOG_WARNING, "%s: it is killed", l->frozen);
    l->lingers = true;
    launch_job_kill(&l->job);
}

/* A job that was asked to save may hang. It has until its time is over, and comm.timeout_s at
 * least: a clock that leaps (a machine that slept) may leave it no time. */
static void deadline_judge(struct launcher *l)
{
    if (l->frozen[0] || !asked(l))
        return;
    double now_s = ls_now_s();
    l->asked_s = l->asked_s > 0 ? l->asked_s : now_s;
    if (!launch_deadline_over(&l->deadline) || now_s < l->asked_s + l->config->comm.timeout_s)
        return;
    snprintf(l->frozen, sizeof l->frozen, "the job has not ended when its time was over");
    ls_log(l->launch->log, LS_LOG_WARNING, "%s: it is killed", l->frozen);
    launch_job_kill(&l->job);
}

/* Until a start is recorded, ranks that wait in MPI for one that is stopped cannot say so. */
static void start_judge(struct launcher *l)
{
    if (l->watch.started)
        starting_end(l);
    if (!l->frozen[0] &&
        launch_starting_frozen(l->starting, l->config->comm.timeout_s, l->frozen, sizeof l->frozen))
        launch_job_kill(&l->job);
}

static void reached_take(struct launcher *l)
{
    if (l->watch.stepped && l->watch.step > l->reached)
        launch_prom_further(&l->prom);
    l->reached = ls_max(l->reached, l->watch.step);
}

/* Until the job has ended. */
static void watch(struct launcher *l)
{
    bool asks = false, told = false;
    while (launch_job_look(&l->job)) {
        silence_judge(l, launch_watch_look(&l->watch));
        end_judge(l);
        deadline_judge(l);
        start_judge(l);
        reached_take(l);
        launch_prom_write(&l->prom, false);
        l->busy_s = l->watch.started ? 0 : l->busy_s;
        l->full &= !l->watch.started;
        if (l->watch.stepped && l->fault_s > 0 && l->watch.step > l->fault_step)
            event_going_on(l);
        if (*l->launch->asked > 1)
            launch_job_kill(&l->job);
        if (!l->resized)
            gained(l);
        if (!asks && !l->resized && l->watch.stepped)
            l->resized = resize(l);
        asks = asked(l) || l->resized;
        if (asks && !told)
            told = launch_job_ask(&l->job, &l->hosts);
    }
    launch_hosts_forget(&l->hosts);
    launch_watch_look(&l->watch);
    if (!l->resized)
        gained(l);
    int code = launch_watch_code(&l->watch);
    if (l->lingers && code >= 0) {
        l->job.code = code;
        l->frozen[0] = '\0';
    }
    starting_end(l);
    reached_take(l);
    l->prom.stands = true;
    if (l->job.left)
        ls_log(l->launch->log, LS_LOG_WARNING,
               "%s of the job did not die of SIGKILL: they wait for a disk or a device; not "
               "waiting for them",
               ls_counted(l->job.left, "process").text);
}

/* ---- its end --------------------------------------------------------------------------------- */

static int64_t newest_saved(const struct launcher *l)
{
    double time;
    return launch_newest(l->config->train.out, &time);
}

/* Steps are not recorded on a full disk: a newer snapshot says that the job got further, too. */
static int64_t newest_kept(const struct launcher *l, int64_t saved)
{
    char folder[PATH_MAX];
    double time;
    return ls_run_has_snapshot(l->config, folder) ? ls_max(saved, launch_newest(folder, &time))
                                                  : saved;
}

/* A step that is not finite is so whenever it is computed, unless a machine is faulty: it is
 * computed once more. */
static bool doubt(struct launcher *l, enum launch_cause cause)
{
    if (cause != LAUNCH_NONFINITE)
        return false;
    bool again = l->config->numerics.mode != LS_CONFIG_FAST && l->doubted != l->reached;
    l->doubted = l->reached;
    return again;
}

/* The job failed: *over, and so does the launcher. before: the furthest step at its start. */
static void failed(struct launcher *l, enum launch_cause cause, const char *text, int64_t before,
                   bool *over)
{
    char folder[PATH_MAX];
    int64_t saved = newest_saved(l), kept = newest_kept(l, saved);
    bool further = l->reached > before || kept > l->kept;
    l->kept = ls_max(l->kept, kept);
    l->failures = further ? 1 : l->failures + 1;
    bool doubted = doubt(l, cause);
    *over = (cause >= LAUNCH_DISK && !doubted) || l->failures > l->config->launch.retries;
    l->fault_s = l->fault_s > 0 ? l->fault_s : ls_now_s();
    l->fault_step = ls_max(l->fault_step, l->reached);
    l->prom.failures[cause]++;
    struct ls_jsonl *m = event(l, "failed");
    ls_jsonl_string(m, "kind", launch_cause_name(cause));
    ls_jsonl_string(m, "text", text);
    ls_jsonl_int(m, "code", l->job.code);
    ls_jsonl_int(m, "failures", l->failures);
    ls_jsonl_int(m, "saved", saved);
    launch_events_end(&l->events);
    ls_log(l->launch->log, LS_LOG_WARNING, "%s, after step %ld: %s", launch_cause_name(cause),
           (long)l->reached, text);
    if (doubted && !*over)
        ls_log(l->launch->log, LS_LOG_INFO,
               "the step is computed again: if it is finite then, a machine is faulty");
    if (!*over)
        return;
    event_gave_up(l, cause, text);
    if (cause < LAUNCH_DISK)
        ls_log(l->launch->log, LS_LOG_ERROR,
               "the job failed %s in a row without getting further than step %ld "
               "(launch.retries = %ld): mend the cause, then start again; it goes on from %s",
               ls_counted(l->failures, "time").text, (long)l->reached,
               (long)l->config->launch.retries,
               ls_run_has_snapshot(l->config, folder) ? "the newest snapshot or checkpoint"
               : saved < 0                            ? "the beginning"
                                                      : "the newest checkpoint");
}

/* Ranks of an earlier start, on a host that is cut off, hold the run until they give up themselves.
 * Waits a while; false: they should have by now. */
static bool busy_await(struct launcher *l)
{
    double now_s = ls_now_s(), pause_s = fmin(fmax(l->config->launch.pause_s, 1), BUSY_PAUSE_S);
    if (l->busy_s == 0) {
        l->busy_s = now_s;
        ls_log(l->launch->log, LS_LOG_WARNING,
               "ranks that were lost still hold the run: waiting until they end, at most %.0f s",
               l->config->comm.timeout_s + BUSY_S);
    }
    if (now_s - l->busy_s > l->config->comm.timeout_s + BUSY_S)
        return false;
    pause_for(l, pause_s);
    return true;
}

/* What a person does about a disk that refuses to be written to; NULL: that is not why it failed.
 */
static const char *disk_mend(const struct launch_job *job)
{
    if (job->code == ls_exit_code(LS_ENOSPC))
        return "make room; until there is";
    bool read_only = job->code == ls_exit_code(LS_EIO) && job->ends.read_only;
    return read_only ? "mount it for writing; until it is" : NULL;
}

/* A run goes on while its disk is full or read-only, but each start has to write to it first. One
 * that comes after a failure waits for that. False: the disk is not why it failed. */
static bool disk_await(struct launcher *l, const char *text)
{
    const char *mend = disk_mend(&l->job);
    if (l->launched == 1 || l->watch.started || !mend)
        return false;
    if (!l->full) {
        event_text(l, l->job.code == ls_exit_code(LS_ENOSPC) ? "disk_full" : "disk_read_only",
                   text);
        ls_log(l->launch->log, LS_LOG_WARNING,
               "%s: %s, the job is started again every %g s (launch.pause_s), and then goes on "
               "from the newest snapshot or checkpoint",
               text, mend, l->config->launch.pause_s);
    }
    l->full = true;
    pause_for(l, l->config->launch.pause_s);
    return true;
}

/* Ranks of a launcher that was killed end by themselves: those of this host are waited for before
 * the first start, which they would make fail. */
static void lost_await(struct launcher *l)
{
    char who[256];
    double until_s = ls_now_s() + BUSY_S;
    while (*ls_lock_former(&l->lock) && ls_now_s() < until_s && !asked(l) &&
           ls_lock_look(l->config->train.out, who, sizeof who) == LS_LOCK_HELD)
        nanosleep(&(struct timespec){.tv_nsec = LOST_MS * 1000000L}, NULL);
}

/* The host of ranks that does not answer, before what the job said as it ended. */
static void host_blame(const struct launcher *l, char *text, size_t bytes)
{
    char said[1024];
    snprintf(said, sizeof said, "%s", l->cut_off ? "nothing was recorded" : text);
    for (int i = l->hosts.count - 1; i >= 0; i--)
        if (l->hosts.list[i].used && !l->hosts.list[i].up)
            snprintf(text, bytes, "host %s does not answer: %.700s", l->hosts.list[i].name, said);
}

/* What the end of a start means. *over: the launcher's too, with *code. */
static void judge(struct launcher *l, int64_t before, bool *over, int *code)
{
    char text[1024];
    bool first = l->launched == 1 && !*ls_lock_former(&l->lock); /* no launcher was killed before */
    enum launch_cause cause = launch_cause_of(&l->job, &l->watch, first, text, sizeof text);
    if (l->frozen[0]) {
        cause = LAUNCH_LATE;
        snprintf(text, sizeof text, "%s", l->frozen);
    }
    if (cause == LAUNCH_OTHER && !l->watch.started &&
        !launch_job_has_room(&l->hosts, text, sizeof text)) {
        cause = LAUNCH_DISK;
        l->job.code = ls_exit_code(LS_ENOSPC);
    }
    *code = l->job.code ? l->job.code : cause != LAUNCH_DONE;
    *over = true;
    if (cause == LAUNCH_STOPPED && l->resized && !asked(l)) {
        l->fault_s = ls_now_s();
        l->fault_step = l->reached;
        *over = false;
    } else if (cause == LAUNCH_DONE || cause == LAUNCH_STOPPED) {
        event(l, launch_cause_name(cause));
        event_end(l);
    } else if (*l->launch->asked > 1) {
        *code = 128 + SIGTERM;
    } else if (l->job.code == ls_exit_code(LS_EBUSY) && !first && busy_await(l)) {
        *code = ls_exit_code(LS_ESTOPPED);
        *over = false;
    } else if (launch_split_refused(&l->split, &l->job, &l->watch, text, l->launch, &l->events)) {
        *code = ls_exit_code(LS_ESTOPPED);
        *over = false;
    } else if (disk_await(l, text)) {
        *code = ls_exit_code(LS_ESTOPPED);
        *over = false;
    } else {
        if (l->cut_off || (cause < LAUNCH_DISK && launch_hosts_try(&l->hosts, false, l->changed)))
            cause = LAUNCH_HOST;
        if (cause == LAUNCH_HOST)
            host_blame(l, text, sizeof text);
        failed(l, cause, text, before, over);
        event_hosts(l);
        if (cause == LAUNCH_MISMATCH && !*over)
            launch_suspect_leave(&l->hosts, l->job.ends.host, l->wanted, &l->watch, l->launch,
                                 &l->events);
    }
    if (asked(l)) { /* there is nothing more to save than what is saved: the next one goes on */
        *over = true;
        bool insists = l->watch.started && *l->launch->asked > 1;
        if (cause < LAUNCH_DISK && !l->ended && !l->frozen[0] && !insists)
            *code = ls_exit_code(LS_ESTOPPED);
    }
}

/* The system has no process, file or memory for this start; another one may get it. *over and *code
 * as of judge. */
static void refused(struct launcher *l, int status, const char *text, bool *over, int *code)
{
    *code = l->job.code = ls_exit_code(status);
    failed(l, LAUNCH_OTHER, text, l->reached, over);
    if (!*over && asked(l)) {
        *over = true;
        *code = ls_exit_code(LS_ESTOPPED);
    }
}

static int run(struct launcher *l, int *code, struct ls_error *error)
{
    bool over = false;
    int status = LS_OK;
    lost_await(l);
    while (!over && !status) {
        struct ls_error why = {0};
        if (launch_hosts_slots(&l->hosts, false) < l->wanted &&
            launch_hosts_try(&l->hosts, true, l->changed))
            event_hosts(l);
        hosts_await(l, &over);
        if (over) {
            *code = ls_exit_code(LS_ESTOPPED);
            break;
        }
        status = layout_choose(l, &why);
        if (status == LS_ESTOPPED) {
            *code = ls_exit_code(status);
            status = LS_OK;
            break;
        }
        if (status == LS_ELAYOUT && slots_are_down(l)) {
            l->too_few = launch_hosts_slots(&l->hosts, false);
            ls_log(l->launch->log, LS_LOG_WARNING, "waiting for hosts: %s", why.text);
            status = LS_OK;
            continue;
        }
        l->too_few = 0;
        int started = status ? status : start(l, &why);
        if (status || started == LS_ENOTSUP) {
            event_gave_up(l, LAUNCH_CONFIGURATION, why.text);
            return ls_error_copy(error, started, &why);
        }
        int64_t before = l->reached;
        if (!started) {
            watch(l);
            judge(l, before, &over, code);
        } else {
            refused(l, started, why.text, &over, code);
        }
        if (!over && !l->watch.started && l->failures > 1) /* what makes starts fail may pass */
            pause_for(l, l->config->launch.pause_s);
    }
    if (!l->ended) { /* while it waited, or before the job had ended well */
        event(l, "stopped");
        event_end(l);
    }
    return status;
}

/* ---- the beginning --------------------------------------------------------------------------- */

/* Which hosts there are. */
static int hosts_open(struct launcher *l, struct ls_error *error)
{
    const struct ls_launch *launch = l->launch;
    int64_t ranks = launch->ranks ? launch->ranks : ls_config_ranks(l->config);
    double limit_s = l->config->comm.timeout_s;
    int status;
    if (launch->hosts)
        status = launch_hosts_read(&l->hosts, launch->hosts, error);
    else if (!launch->ranks && getenv("SLURM_JOB_NODELIST"))
        status = launch_hosts_slurm(&l->hosts, error);
    else
        status = launch_hosts_here(&l->hosts, (int)ranks, error);
    l->hosts.limit_s = limit_s > 0 ? fmax(TRY_S_MIN, fmin(limit_s, TRY_S_MAX)) : TRY_S_MAX;
    l->hosts.pause_s = l->config->launch.pause_s;
    l->changed = calloc((size_t)ls_max(l->hosts.count, 1), sizeof *l->changed);
    return status || l->changed ? status : ls_no_memory(error, "for hosts");
}

/* How many ranks are wanted of them, and whether the recipe admits that. */
static int wanted_find(struct launcher *l, struct ls_error *error)
{
    char word[48];
    int64_t slots = launch_hosts_slots(&l->hosts, true);
    struct ls_layout layout;
    int status = LS_OK;
    bool planned = l->config->train.auto_layout; /* even these ranks are laid out by the planner */
    snprintf(word, sizeof word, "parallel.dp=%ld", (long)slots);
    if (!planned && !ls_config_axis_given(l->config))
        status = ls_config_set(l->config, word, error); /* as `train` does under mpirun */
    l->wanted = planned ? slots : ls_config_ranks(l->config);
    if (!status && l->launch->ranks && l->launch->ranks != l->wanted)
        status = ls_error_set(error, LS_ELAYOUT,
                              "--ranks %ld, but the layout has %s: leave out --ranks, or change "
                              "the keys of `parallel`",
                              (long)l->launch->ranks, ls_counted(l->wanted, "rank").text);
    if (!status && !planned)
        status = ls_config_layout(l->config, 0, &layout, error);
    return status;
}

/* Nobody else launches this run, and its records are open. */
static int folder_open(struct launcher *l, struct ls_error *error)
{
    char folder[LS_CONFIG_TEXT_BYTES + 16];
    snprintf(folder, sizeof folder, "%s/launch", l->config->train.out);
    int status = ls_lock_take(&l->lock, folder, NULL, error);
    if (status)
        return ls_config_blame(l->config, "train.out", error), status;
    ls_atomic_file_sweep(l->config->train.out, "launch.prom"); /* of a launcher that was killed */
    status = launch_events_open(&l->events, l->launch, error);
    launch_watch_open(&l->watch, l->config->train.out, l->config->launch.slow);
    launch_prom_open(&l->prom, l->launch);
    launch_deadline_open(&l->deadline, l->config->launch.deadline_s, l->hosts.kind == LAUNCH_SLURM);
    l->kept = newest_kept(l, newest_saved(l));
    launch_resume_tell(l->config, l->kept, l->launch->log);
    l->doubted = -1;
    return status;
}

int ls_launch(const struct ls_launch *launch, int *code, struct ls_error *error)
{
    struct ls_config config = *launch->config;
    struct launcher l = {.launch = launch, .config = &config};
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    process_begin();
    launch_output_open(&l.output, launch->asked);
    int status = launch_resume_check(&config, error);
    if (!status)
        status = hosts_open(&l, error);
    if (!status)
        status = wanted_find(&l, error);
    if (!status)
        status = launch_job_check(&l.hosts, error);
    if (!status)
        status = folder_open(&l, error);
    if (!status && config.comm.timeout_s <= 0)
        ls_log(launch->log, LS_LOG_WARNING,
               "comm.timeout_s = 0: a rank that hangs is waited for until a second signal or "
               "launch.deadline_s ends the job");
    if (!status) {
        launch_hosts_try(&l.hosts, false, l.changed);
        event_hosts(&l);
    }
    if (!status)
        status = run(&l, code, error);
    if (l.events.file)
        ls_jsonl_close(l.events.file, NULL);
    ls_lock_release(&l.lock);
    if (status != LS_EBUSY)
        rmdir(l.lock.directory); /* a launcher that was killed left it */
    launch_hosts_release(&l.hosts);
    free(l.changed);
    launch_output_close(&l.output); /* may wait for the reader: nothing is held meanwhile */
    return status;
}
