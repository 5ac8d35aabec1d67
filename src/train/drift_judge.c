/* What drifts in a run: the samples of all ranks against each other and against a plan. */
#include <lockstep/base/formatted.h>
#include <lockstep/base/median.h>
#include <lockstep/base/words.h>
#include <lockstep/train/drift.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Thresholds; doc/planning.md has them too. */
#define RANK_ABOVE    0.15 /* of the median of its stage */
#define STAGE_ABOVE   0.15 /* of the plan's share */
#define STAGE_UNKNOWN 0.30 /* of the share of its operations, without a plan */
#define LINK_FACTOR   2.0  /* of the plan's waits, */
#define LINK_LEAST    0.05 /* and so much of a step beyond them */
#define LEAST         0.02 /* of a step: what is less is not worth a word */
#define INPUT_SHARE   0.05 /* of a step */

const char *ls_drift_name(enum ls_drift_kind kind)
{
    static const char *const names[LS_DRIFT_KINDS] = {"slow_rank", "unbalanced_stage", "slow_link",
                                                      "input_wait"};
    return names[kind];
}

struct judging {
    const struct ls_layout *layout;
    const struct ls_drift_sample *samples;
    const char (*hosts)[LS_DRIFT_HOST_BYTES];
    const struct ls_run_plan *plan;
    double step_s;     /* median over ranks */
    double *values;    /* [ranks] */
    double *stage_s;   /* [pipeline ranks] medians of what their ranks compute */
    double *low_s;     /* and of what three of four steps were above */
    double *planned_s; /* what a stage should compute, in any unit */
    struct ls_drift *drifts;
};

/* Of two values the lower, so that the slower rank shows. */
static double median(double *values, int64_t count)
{
    ls_sort(values, count);
    return values[(count - 1) / 2];
}

static int64_t stage_of(const struct judging *j, int64_t rank)
{
    int64_t coordinates[LS_AXES];
    ls_layout_coordinates(j->layout, rank, coordinates);
    return coordinates[LS_AXIS_PP];
}

static void found(struct judging *j, struct ls_drift drift, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void found(struct judging *j, struct ls_drift drift, const char *format, ...)
{
    struct ls_drift *to = &j->drifts[drift.kind];
    if (to->found && to->above >= drift.above)
        return;
    drift.found = true;
    *to = drift;
    LS_FORMAT(to->text, format);
}

/* ---- the kinds ------------------------------------------------------------------------------- */

struct host_words {
    char text[LS_DRIFT_HOST_BYTES + 16];
};
static struct host_words on_host(const struct judging *j, int64_t rank)
{
    struct host_words words = {""};
    if (j->hosts && j->hosts[rank][0])
        snprintf(words.text, sizeof words.text, " on host %.63s", j->hosts[rank]);
    return words;
}

static void ranks_judge(struct judging *j)
{
    for (int64_t rank = 0; rank < j->layout->ranks; rank++) {
        double usual = j->stage_s[stage_of(j, rank)];
        double low = (double)j->samples[rank].own_low_s, own = (double)j->samples[rank].own_s;
        if (low <= (1 + RANK_ABOVE) * usual || low - usual <= LEAST * j->step_s)
            continue;
        struct ls_drift drift = {.kind = LS_DRIFT_SLOW_RANK,
                                 .subject = rank,
                                 .took_s = own,
                                 .expected_s = usual,
                                 .above = own / usual - 1};
        if (j->hosts)
            memcpy(drift.host, j->hosts[rank], sizeof drift.host);
        found(j, drift,
              "rank %ld%s is slow: it computes %s a step, where the ranks of its stage take %s "
              "(+%.0f %%)",
              (long)rank, on_host(j, rank).text, ls_duration(own).text, ls_duration(usual).text,
              100 * drift.above);
    }
}

static void stages_judge(struct judging *j)
{
    int64_t stages = j->layout->size[LS_AXIS_PP], each = j->layout->ranks / stages;
    double limit = j->plan ? STAGE_ABOVE : STAGE_UNKNOWN, all = 0, planned = 0;
    for (int64_t pp = 0; pp < stages; pp++) {
        all += j->stage_s[pp];
        planned += j->planned_s[pp];
    }
    for (int64_t pp = 0; pp < stages && stages > 1 && planned > 0; pp++) {
        double due = all * j->planned_s[pp] / planned, took = j->stage_s[pp];
        if (j->low_s[pp] <= (1 + limit) * due || j->low_s[pp] - due <= LEAST * j->step_s)
            continue;
        const struct ls_drift drift = {.kind = LS_DRIFT_STAGE,
                                       .subject = pp,
                                       .took_s = took,
                                       .expected_s = due,
                                       .above = took / due - 1};
        char ranks[64];
        snprintf(ranks, sizeof ranks, each > 1 ? "ranks %ld to %ld" : "rank %ld", (long)(pp * each),
                 (long)(pp * each + each - 1));
        found(j, drift,
              "stage %ld (%s%s) is unbalanced: it computes %s a step, where its share by %s is %s "
              "(+%.0f %%)",
              (long)pp, ranks, each > 1 ? "" : on_host(j, pp).text, ls_duration(took).text,
              j->plan ? "the plan" : "its layers", ls_duration(due).text, 100 * drift.above);
    }
}

static void links_judge(struct judging *j)
{
    for (int a = 0; a < LS_ACCOUNT_OTHER && j->plan; a++) {
        double least = (double)j->samples[0].wait_s[a], planned = j->plan->exposed_s[a];
        if (!ls_account_used(j->layout, (enum ls_account)a))
            continue;
        for (int64_t rank = 1; rank < j->layout->ranks; rank++) {
            double waits = (double)j->samples[rank].wait_s[a];
            least = waits < least ? waits : least;
        }
        if (least <= LINK_FACTOR * planned || least - planned <= LINK_LEAST * j->step_s)
            continue;
        const struct ls_drift drift = {.kind = LS_DRIFT_LINK,
                                       .subject = a,
                                       .took_s = least,
                                       .expected_s = planned,
                                       .above = (least - planned) / j->step_s};
        found(j, drift,
              "the link of %s is slow: every rank waits at least %s a step for it, where the "
              "plan has %s",
              ls_account_name((enum ls_account)a), ls_duration(least).text,
              ls_duration(planned).text);
    }
}

static void input_judge(struct judging *j)
{
    for (int64_t rank = 0; rank < j->layout->ranks; rank++) {
        double waits = (double)j->samples[rank].data_s;
        if (waits <= INPUT_SHARE * j->step_s)
            continue;
        const struct ls_drift drift = {
            .kind = LS_DRIFT_INPUT, .subject = rank, .took_s = waits, .above = waits / j->step_s};
        found(j, drift, "input is slow: rank %ld%s waits %s of a step for samples (%.0f %%)",
              (long)rank, on_host(j, rank).text, ls_duration(waits).text, 100 * drift.above);
    }
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* Medians over ranks and stages; a stage's ranks are neighbours. */
static void medians_set(struct judging *j)
{
    int64_t stages = j->layout->size[LS_AXIS_PP], each = j->layout->ranks / stages;
    for (int64_t rank = 0; rank < j->layout->ranks; rank++)
        j->values[rank] = (double)j->samples[rank].step_s;
    j->step_s = median(j->values, j->layout->ranks);
    for (int64_t pp = 0; pp < stages; pp++) {
        const struct ls_drift_sample *ranks = j->samples + pp * each;
        for (int64_t i = 0; i < each; i++)
            j->values[i] = (double)ranks[i].own_s;
        j->stage_s[pp] = median(j->values, each);
        for (int64_t i = 0; i < each; i++)
            j->values[i] = (double)ranks[i].own_low_s;
        j->low_s[pp] = median(j->values, each);
    }
}

/* By the plan, or else by the operations of the layers. */
static int planned_set(struct judging *j, struct ls_error *error)
{
    int64_t stages = j->layout->size[LS_AXIS_PP];
    for (int64_t pp = 0; pp < stages && j->plan; pp++)
        j->planned_s[pp] = j->plan->stage_s[pp];
    if (j->plan)
        return LS_OK;
    struct ls_stage_cost *costs = calloc((size_t)j->layout->stages, sizeof *costs);
    if (!costs)
        return ls_no_memory(error, "for the costs of stages");
    ls_layout_stage_costs(j->layout, costs);
    for (int64_t s = 0; s < j->layout->stages; s++)
        j->planned_s[j->layout->stage_rank[s]] +=
            costs[s].forward + costs[s].input + costs[s].weight;
    free(costs);
    return LS_OK;
}

int ls_drift_judge(const struct ls_layout *layout, const struct ls_drift_sample *samples,
                   const char (*hosts)[LS_DRIFT_HOST_BYTES], const struct ls_run_plan *plan,
                   double *stage_s, struct ls_drift drifts[LS_DRIFT_KINDS], struct ls_error *error)
{
    int64_t stages = layout->size[LS_AXIS_PP];
    double *room = calloc((size_t)(layout->ranks + 2 * stages), sizeof *room);
    struct judging j = {.layout = layout,
                        .samples = samples,
                        .hosts = hosts,
                        .plan = plan,
                        .values = room,
                        .stage_s = stage_s,
                        .drifts = drifts};
    memset(drifts, 0, LS_DRIFT_KINDS * sizeof *drifts);
    if (!room)
        return ls_no_memory(error, "to compare ranks");
    j.low_s = room + layout->ranks;
    j.planned_s = j.low_s + stages;
    medians_set(&j);
    int status = planned_set(&j, error);
    if (!status) {
        ranks_judge(&j);
        stages_judge(&j);
        links_judge(&j);
        input_judge(&j);
    }
    free(room);
    return status;
}
