/* What schedules idle when they run: thread ranks carry out their tables, beside the papers'
 * formulas. Stages take what they cost by clocks that the test turns, one for each rank: a sleep
 * turns that of who sleeps, and a message that of who waits for it to where both ends have come.
 * So nothing but the order of actions and messages decides, and idle time is exact. What schedules
 * idle by their tables alone is plan/test_simulate's. */
#include "../support/suite.h"
#include "../support/wrapped.h"

#include <lockstep/parallel/pipeline.h>
#include <lockstep/planner/closed_forms.h>

#include <math.h>
#include <string.h>
#include <time.h>

enum { RANKS = 4, CHUNKS_MAX = 2, MICRO_BATCHES = 8, TAGS = 2 * CHUNKS_MAX };
static const double work_s = 3.0 / 32; /* of a rank and micro-batch, all chunks: sums are exact */

/* ---- clocks ---------------------------------------------------------------------------------- */

/* When its ends were begun, by the clocks of their ranks. The mutex of the transport orders who
 * writes and who reads. */
struct message {
    double sent_s, posted_s;
};

/* By sender, receiver, and tag, in the order of calls. */
static struct message messages[RANKS][RANKS][TAGS][MICRO_BATCHES];

/* Of the thread's rank. */
static _Thread_local struct {
    int rank;
    double clock_s;
    int sent[RANKS][TAGS], posted[RANKS][TAGS];
    struct pending {
        const struct ls_request *request;
        const struct message *message;
    } pending[2 * MICRO_BATCHES * TAGS];
} here;

WRAPPED(ls_now_s);
double __wrap_ls_now_s(void)
{
    return here.clock_s;
}

WRAPPED(nanosleep);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
    here.clock_s += (double)time->tv_sec + (double)time->tv_nsec / 1e9;
    return 0;
}

static struct pending *pending_of(const struct ls_request *request)
{
    const int room = (int)(sizeof here.pending / sizeof *here.pending);
    int i = 0;
    while (i < room && here.pending[i].request != request)
        i++;
    return i < room ? &here.pending[i] : NULL;
}

WRAPPED(ls_send_start);
int __wrap_ls_send_start(struct ls_comm *comm, const void *buffer, int64_t count,
                         enum ls_dtype dtype, int peer, int tag, struct ls_request *request,
                         struct ls_call_site site, struct ls_error *error)
{
    struct message *message = &messages[here.rank][peer][tag][here.sent[peer][tag]++];
    message->sent_s = here.clock_s;
    *pending_of(NULL) = (struct pending){request, message};
    return __real_ls_send_start(comm, buffer, count, dtype, peer, tag, request, site, error);
}

WRAPPED(ls_recv_start);
int __wrap_ls_recv_start(struct ls_comm *comm, void *buffer, int64_t count, enum ls_dtype dtype,
                         int peer, int tag, struct ls_request *request, struct ls_call_site site,
                         struct ls_error *error)
{
    struct message *message = &messages[peer][here.rank][tag][here.posted[peer][tag]++];
    message->posted_s = here.clock_s;
    *pending_of(NULL) = (struct pending){request, message};
    return __real_ls_recv_start(comm, buffer, count, dtype, peer, tag, request, site, error);
}

WRAPPED(ls_wait);
int __wrap_ls_wait(struct ls_request *request, struct ls_error *error)
{
    int status = __real_ls_wait(request, error);
    struct pending *pending = pending_of(request);
    if (status == LS_OK && pending) {
        const struct message *message = pending->message;
        here.clock_s = fmax(here.clock_s, fmax(message->sent_s, message->posted_s));
        *pending = (struct pending){0};
    }
    return status;
}

/* ---- runs ------------------------------------------------------------------------------------ */

struct trial {
    const struct ls_schedule *schedule;
    const struct ls_schedule_costs *costs;
    struct ls_rehearsal result;
};

static int rehearse(struct ls_comm *comm, void *user, struct ls_error *error)
{
    struct trial *trial = user;
    struct ls_rehearsal result;
    memset(&here, 0, sizeof here);
    here.rank = ls_comm_rank(comm);
    int status = ls_pipeline_rehearse(comm, trial->schedule, trial->costs, 1000, &result, error);
    if (status == LS_OK && ls_comm_rank(comm) == 0)
        trial->result = result;
    return status;
}

static struct ls_rehearsal measure(enum ls_schedule_kind kind, int chunks,
                                   const struct ls_stage_cost *stage)
{
    struct ls_schedule schedule;
    struct ls_error error = {0};
    double third = work_s / 3 / chunks;
    struct ls_schedule_costs costs = {.stage = stage, .all = {third, third, third}};
    struct trial trial = {.schedule = &schedule, .costs = &costs};
    if (ls_schedule_generate(&schedule, kind, RANKS, chunks, MICRO_BATCHES, &error) ||
        ls_world_run(RANKS, rehearse, &trial, &error))
        fail_msg("%s", error.text);
    ls_schedule_release(&schedule);
    return trial.result;
}

/* Shares are quotients of exact sums. */
static bool is_near(double measured, double theory)
{
    return fabs(measured - theory) <= 1e-12;
}

static void check(enum ls_schedule_kind kind, int chunks, bool of_rank, double theory)
{
    struct ls_rehearsal result = measure(kind, chunks, NULL);
    double idle = of_rank ? result.bubble_rank : result.bubble;
    if (!is_near(idle, theory))
        fail_msg("%s: %.15f idle, expected %.15f", ls_schedule_name(kind), idle, theory);
}

CASE(test_idle_share)
{
    const double far = RANKS - 1, m = MICRO_BATCHES;
    static const enum ls_schedule_kind kinds[] = {LS_SCHEDULE_GPIPE, LS_SCHEDULE_1F1B,
                                                  LS_SCHEDULE_INTERLEAVED, LS_SCHEDULE_ZB_H1};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        int chunks = kinds[k] == LS_SCHEDULE_INTERLEAVED ? 2 : 1;
        check(kinds[k], chunks, false,
              ls_bubble_share(kinds[k], RANKS, chunks, MICRO_BATCHES,
                              (struct ls_pass_times){1, 1, 1}));
    }
    /* No rank idles between its first and its last action. */
    check(LS_SCHEDULE_ZBV, 2, true, 0);
    /* As long as ZBV, with one rank busy from the first action to the last. */
    check(LS_SCHEDULE_DUALPIPEV, 2, false, far / (6 * m + far));
}

/* The twin: stages that are not balanced idle more, and it is seen. */
CASE(test_an_unbalanced_stage_is_seen)
{
    double third = work_s / 3;
    const struct ls_stage_cost stage[RANKS] = {{third, third, third},
                                               {third, third, third},
                                               {third * 1.25, third * 1.25, third * 1.25},
                                               {third, third, third}};
    struct ls_rehearsal result = measure(LS_SCHEDULE_1F1B, 1, stage);
    assert_true(!is_near(result.bubble, 3 / 11.0));
}

SUITE_MAIN(NULL, NULL)
