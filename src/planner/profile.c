/* Where a run's time went: the parts of its steps as medians, and the plan beside them. */
#include "planner/profile_private.h"

#include <lockstep/base/median.h>
#include <lockstep/ckpt.h>
#include <lockstep/trace.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    STEPS_MAX = 16384, /* the newest so many count */
    WARM_UP_STEPS = 2, /* after each start */
};

const char *ls_profile_part_name(int part)
{
    static const char *const waits[LS_ACCOUNTS] = {
        [LS_ACCOUNT_TP] = "waits for tp",
        [LS_ACCOUNT_CP] = "waits for cp",
        [LS_ACCOUNT_PP] = "waits for stages (pp)",
        [LS_ACCOUNT_SHARD] = "waits for dp_shard",
        [LS_ACCOUNT_REPLICATE] = "waits for dp_replicate",
        [LS_ACCOUNT_OPTIMIZER] = "waits for matrices (Muon)",
        [LS_ACCOUNT_OTHER] = "waits for the slowest rank"};
    static const char *const names[LS_PROFILE_WAIT] = {[LS_PROFILE_COMPUTE] = "computing",
                                                       [LS_PROFILE_OPTIMIZER] = "the optimizer",
                                                       [LS_PROFILE_DATA] = "waits for samples"};
    return part < LS_PROFILE_WAIT ? names[part] : waits[part - LS_PROFILE_WAIT];
}

const char *ls_profile_work_name(int work)
{
    static const char *const names[] = {"products", "attention", "passes over memory", "update"};
    return names[work];
}

static enum ls_profile_work work_of(enum ls_work_kind kind)
{
    switch (kind) {
    case LS_WORK_PRODUCT:
    case LS_WORK_PRODUCT_BT:
    case LS_WORK_PRODUCT_AT:
        return LS_PROFILE_PRODUCTS;
    case LS_WORK_ATTENTION:
    case LS_WORK_ATTENTION_BACKWARD:
        return LS_PROFILE_ATTENTION;
    case LS_WORK_UPDATE:
        return LS_PROFILE_UPDATE;
    default:
        return LS_PROFILE_PASSES;
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Seconds of one step, in the order of struct ls_profile; NaN: not recorded. */
enum {
    VALUE_STEP,
    VALUE_PART,
    VALUE_WORK = VALUE_PART + LS_PROFILE_PARTS,
    VALUE_OFFLOAD = VALUE_WORK + LS_PROFILE_WORKS,
    VALUE_BETWEEN,
    VALUE_PHASE, /* of traces */
    VALUE_RANK = VALUE_PHASE + LS_PROFILE_PHASES,
    VALUES = VALUE_RANK + LS_PROFILE_TRACES_MAX
};

struct reading {
    struct ls_profile *profile;
    double steps[STEPS_MAX][VALUES]; /* the newest of them: a ring */
    int64_t count, seen;             /* that were kept, also over others; step records */
    int64_t numbers[STEPS_MAX];
    double sorted[STEPS_MAX]; /* room */
    int64_t since;            /* steps since the start before */
    double batches;           /* of the steps that count: one of each worker */
    double began;             /* time of the newest start */
    double ended;             /* when the record before was made; NaN after a start */
    char layout[1024];
    char drift_kind[32];
};

/* A run that goes on in another layout begins to count anew. */
static void start_read(struct reading *r, const struct ls_record *record)
{
    const char *layout = ls_record_string(record, "layout");
    const char *transport = ls_record_string(record, "transport");
    const int64_t threads = ls_record_whole(record, "threads", 0);
    char now[sizeof r->layout];
    snprintf(now, sizeof now, "%.900s %.20s %ld", layout, transport, (long)threads);
    if (strcmp(now, r->layout) != 0) {
        r->count = 0;
        *r->profile->drift = '\0';
    }
    snprintf(r->layout, sizeof r->layout, "%s", now);
    snprintf(r->profile->transport, sizeof r->profile->transport, "%.15s", transport);
    r->profile->threads = ls_max(threads, 0);
    r->since = 0;
    r->began = ls_record_value(record, "time");
    r->ended = NAN;
}

/* What drifts no more is not told. */
static void drift_read(struct reading *r, const struct ls_record *record, bool begins)
{
    const char *kind = ls_record_text(record, "kind"), *text = ls_record_text(record, "text");
    struct ls_profile *p = r->profile;
    if (begins && kind && text) {
        snprintf(r->drift_kind, sizeof r->drift_kind, "%s", kind);
        snprintf(p->drift, sizeof p->drift, "%s", text);
        p->drift_step = ls_record_whole(record, "step", 0);
    } else if (kind && !strcmp(kind, r->drift_kind)) {
        *p->drift = '\0';
    }
}

static void event_read(struct reading *r, const struct ls_record *record, const char *event)
{
    if (!strcmp(event, "start") || !strcmp(event, "resume"))
        start_read(r, record);
    else if (!strcmp(event, "drift") || !strcmp(event, "drift_over"))
        drift_read(r, record, !event[5]);
}

static void works_read(const struct ls_record *record, double *values)
{
    for (int kind = 0; kind < LS_WORK_KINDS; kind++) {
        char key[64];
        snprintf(key, sizeof key, "op_%s_s", ls_work_name((enum ls_work_kind)kind));
        double s = ls_record_value(record, key);
        if (!isfinite(s))
            continue;
        double *value = &values[VALUE_WORK + (int)work_of((enum ls_work_kind)kind)];
        *value = isnan(*value) ? s : *value + s;
    }
}

static void values_read(struct reading *r, const struct ls_record *record, double *values)
{
    double time = ls_record_value(record, "time");
    for (int i = 0; i < VALUES; i++)
        values[i] = NAN;
    values[VALUE_STEP] = ls_record_value(record, "step_s");
    values[VALUE_PART + LS_PROFILE_COMPUTE] = ls_record_value(record, "compute_s");
    values[VALUE_PART + LS_PROFILE_OPTIMIZER] = ls_record_value(record, "optimizer_s");
    values[VALUE_PART + LS_PROFILE_DATA] = ls_record_value(record, "wait_data_s");
    for (int a = 0; a < LS_ACCOUNTS; a++) {
        char key[32];
        snprintf(key, sizeof key, "wait_%s_s", ls_account_name((enum ls_account)a));
        values[VALUE_PART + LS_PROFILE_WAIT + a] = ls_record_value(record, key);
    }
    works_read(record, values);
    values[VALUE_OFFLOAD] = ls_record_value(record, "offload_wait_s");
    /* Records are made right behind their step. */
    values[VALUE_BETWEEN] = fmax(time - r->ended - values[VALUE_STEP], 0);
    if (isnan(r->ended))
        values[VALUE_BETWEEN] = NAN;
    r->ended = time;
}

/* Of whole batches, not skipped, and with its parts. With another number of batches, as members
 * that come and go make, it begins to count anew. */
static bool counts(struct reading *r, const struct ls_record *record, const double *values)
{
    const struct ls_config *config = &r->profile->config;
    double tokens = ls_record_value(record, "tokens_per_s") * values[VALUE_STEP];
    double whole = tokens / (double)(config->batch.global * config->data.sequence);
    double batches = nearbyint(whole);
    if (r->since <= WARM_UP_STEPS || !(values[VALUE_STEP] > 0) ||
        !isfinite(values[VALUE_PART + LS_PROFILE_COMPUTE]) ||
        ls_record_value(record, "skipped") > 0 || !(fabs(whole - batches) < 0.01) || batches < 1 ||
        batches > (double)ls_config_workers(config))
        return false;
    if (batches != r->batches)
        r->count = 0;
    r->batches = batches;
    return true;
}

static void record_visit(void *user, const struct ls_record *record)
{
    struct reading *r = user;
    double values[VALUES];
    const int64_t step = ls_record_whole(record, "step", -1);
    const char *event = ls_record_text(record, "event");
    if (event)
        event_read(r, record, event);
    if (event || !isfinite(ls_record_value(record, "step_s")) || step < 0)
        return;
    r->since++;
    r->seen++;
    values_read(r, record, values);
    if (!counts(r, record, values))
        return;
    memcpy(r->steps[r->count % STEPS_MAX], values, sizeof values);
    r->numbers[r->count % STEPS_MAX] = step;
    r->count++;
}

/* ---- medians --------------------------------------------------------------------------------- */

static void row_set(struct reading *r, int value, struct ls_profile_row *row)
{
    int64_t kept = ls_min(r->count, STEPS_MAX), count = 0;
    for (int64_t i = 0; i < kept; i++)
        if (isfinite(r->steps[i][value]))
            r->sorted[count++] = r->steps[i][value];
    row->measured = count > 0;
    if (!count)
        return;
    ls_sort(r->sorted, count);
    row->median_s = ls_quantile(r->sorted, count, 0.5);
    row->low_s = ls_quantile(r->sorted, count, 0.05);
    row->high_s = ls_quantile(r->sorted, count, 0.95);
}

/* ---- traces ---------------------------------------------------------------------------------- */

static int by_step(const void *key, const void *step)
{
    int64_t a = *(const int64_t *)key, b = ((const struct profile_step *)step)->step;
    return (a > b) - (a < b);
}

static void values_trace(const struct profile_step *step, double *values)
{
    values[VALUE_STEP] = step->step_s;
    for (int i = 0; i < LS_PROFILE_PARTS; i++) /* what no rank does is no part */
        values[VALUE_PART + i] = i < LS_PROFILE_WAIT || step->part_s[i] > 0 ? step->part_s[i] : NAN;
    for (int i = 0; i < LS_PROFILE_PHASES; i++)
        values[VALUE_PHASE + i] = step->phase_s[i];
    for (int64_t i = 0; i < step->ranks; i++)
        values[VALUE_RANK + i] = step->compute_s[i];
}

/* Of the steps that count those of the traces, if there are some, with their parts. */
static int traces_take(struct reading *r, struct ls_error *error)
{
    struct profile_steps steps;
    int status = profile_traces_read(r->profile, r->began, &steps, error);
    int64_t all = ls_min(r->count, STEPS_MAX), oldest = r->count - all, kept = 0;
    double(*taken)[VALUES] = steps.count ? calloc((size_t)all, sizeof *taken) : NULL;
    int64_t *numbers = taken ? calloc((size_t)all, sizeof *numbers) : NULL;
    if (!status && steps.count && !numbers)
        status = ls_no_memory(error, "for the traces' steps");
    for (int64_t i = oldest; i < r->count && !status && numbers; i++) {
        int64_t at = i % STEPS_MAX;
        const struct profile_step *step =
            bsearch(&r->numbers[at], steps.list, (size_t)steps.count, sizeof *steps.list, by_step);
        if (!step)
            continue;
        memcpy(taken[kept], r->steps[at], sizeof *taken);
        values_trace(step, taken[kept]);
        numbers[kept++] = r->numbers[at];
    }
    if (kept) {
        memcpy(r->steps, taken, (size_t)kept * sizeof *taken);
        memcpy(r->numbers, numbers, (size_t)kept * sizeof *numbers);
        r->count = kept;
    } else {
        r->profile->trace.ranks = 0;
    }
    free(steps.list);
    free(taken);
    free(numbers);
    return status;
}

/* Of the traced ranks, which computes longest. */
static void slowest_set(struct reading *r)
{
    struct ls_profile_trace *trace = &r->profile->trace;
    double medians[LS_PROFILE_TRACES_MAX];
    for (int64_t i = 0; i < trace->ranks; i++) {
        struct ls_profile_row row = {0};
        row_set(r, VALUE_RANK + (int)i, &row);
        medians[i] = row.median_s;
        if (i == 0 || row.median_s > trace->slowest_s) {
            trace->slowest_s = row.median_s;
            trace->slowest = trace->rank[i];
        }
    }
    trace->middle_s = ls_median(medians, trace->ranks);
}

static void rows_set(struct reading *r)
{
    struct ls_profile *p = r->profile;
    int64_t kept = ls_min(r->count, STEPS_MAX), oldest = r->count > STEPS_MAX ? r->count : 0;
    p->steps = kept;
    p->left_out = r->seen - kept;
    p->first = r->numbers[oldest % STEPS_MAX];
    p->last = r->numbers[(r->count - 1) % STEPS_MAX];
    row_set(r, VALUE_STEP, &p->step);
    for (int i = 0; i < LS_PROFILE_PARTS; i++)
        row_set(r, VALUE_PART + i, &p->part[i]);
    for (int i = 0; i < LS_PROFILE_WORKS; i++) {
        row_set(r, VALUE_WORK + i, &p->work[i]);
        p->profiled |= p->work[i].measured;
    }
    row_set(r, VALUE_OFFLOAD, &p->offload);
    row_set(r, VALUE_BETWEEN, &p->between);
    for (int i = 0; i < LS_PROFILE_PHASES && p->trace.ranks; i++)
        row_set(r, VALUE_PHASE + i, &p->trace.phase[i]);
    slowest_set(r);
}

/* ---- a run ----------------------------------------------------------------------------------- */

static int config_read(struct ls_profile *p, struct ls_error *error)
{
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/config.yaml", p->directory);
    ls_config_defaults(&p->config);
    int status = ls_config_load_file(&p->config, path, error);
    if (!status) /* the vocabulary was filled in when the run began: the data need not be here */
        status = ls_config_resolve(&p->config, p->config.model_keys.vocab, error);
    return status ? status : ls_config_layout(&p->config, 0, &p->layout, error);
}

static int metrics_read(struct reading *r, struct ls_error *error)
{
    char path[PATH_MAX + 32];
    bool torn;
    struct ls_profile *p = r->profile;
    snprintf(path, sizeof path, "%s/metrics.jsonl", p->directory);
    int status = ls_jsonl_each(path, record_visit, r, &torn, error);
    if (status || r->count)
        return status;
    return ls_error_set(error, LS_EDATA,
                        "%s: of %ld steps none counts: expected some of a whole batch in the run's "
                        "newest layout, after the first %d since its start, with compute_s (older "
                        "versions did not record it)",
                        path, (long)r->seen, WARM_UP_STEPS);
}

int ls_profile_read(struct ls_profile *p, const char *path, struct ls_error *error)
{
    *p = (struct ls_profile){0};
    if (strlen(path) >= sizeof p->directory - 64)
        return ls_error_set(error, LS_EINVAL, "%.200s...: the path is too long", path);
    int status = ls_checkpoint_run(path, p->directory, error);
    if (!status)
        status = config_read(p, error);
    if (status)
        return status;
    struct reading *r = calloc(1, sizeof *r);
    if (!r)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory for its records", p->directory);
    r->profile = p;
    r->ended = NAN;
    status = metrics_read(r, error);
    if (!status)
        status = traces_take(r, error);
    if (!status)
        rows_set(r);
    free(r);
    return status;
}

/* ---- the plan -------------------------------------------------------------------------------- */

static void plan_set(struct ls_profile *p)
{
    const struct ls_forecast *f = &p->forecast;
    double update = f->work_s[LS_WORK_UPDATE];
    bool at_update = ls_config_tier(&p->config, LS_OFFLOAD_OPTIMIZER) != LS_TIER_DEVICE;
    p->step.planned_s = f->step_s;
    for (int kind = 0; kind < LS_WORK_KINDS; kind++)
        p->work[work_of((enum ls_work_kind)kind)].planned_s += f->work_s[kind];
    /* Where states are offloaded the update waits for them, else forward and backward do. */
    p->part[LS_PROFILE_OPTIMIZER].planned_s = update + (at_update ? f->offload_exposed_s : 0);
    p->part[LS_PROFILE_COMPUTE].planned_s =
        f->compute_s - update + (at_update ? 0 : f->offload_exposed_s);
    p->part[LS_PROFILE_DATA].planned_s = f->samples_exposed_s;
    p->offload.planned_s = f->offload_exposed_s;
    for (int a = 0; a < LS_ACCOUNTS; a++)
        p->part[LS_PROFILE_WAIT + a].planned_s = f->exposed_s[a];
    p->part[LS_PROFILE_WAIT + LS_ACCOUNT_OTHER].planned_s += f->idle_s;
    p->planned = true;
}

int ls_profile_plan(struct ls_profile *p, const struct ls_cluster *cluster, struct ls_error *error)
{
    struct ls_config config = p->config;
    if (p->threads > 0)
        config.parallel.threads = p->threads;
    const struct ls_forecast_ask ask = {
        .config = &config, .layout = &p->layout, .cluster = cluster};
    int status = ls_forecast_make(&ask, &p->forecast, error);
    if (!status)
        plan_set(p);
    return status;
}

/* ---- the sentence ---------------------------------------------------------------------------- */

/* What stands behind a part, and what to do about it. */
static const char *part_means(int part)
{
    static const char *const means[LS_PROFILE_PARTS] = {
        [LS_PROFILE_COMPUTE] = "computing",
        [LS_PROFILE_OPTIMIZER] = "the update, which is a pass over memory",
        [LS_PROFILE_DATA] = "input: ranks wait for samples",
        [LS_PROFILE_WAIT + LS_ACCOUNT_TP] = "the link of tp",
        [LS_PROFILE_WAIT + LS_ACCOUNT_CP] = "the link of cp",
        [LS_PROFILE_WAIT + LS_ACCOUNT_PP] =
            "the pipeline: ranks wait for other stages (its bubble, or stages that are not equal)",
        [LS_PROFILE_WAIT + LS_ACCOUNT_SHARD] = "the link of dp_shard",
        [LS_PROFILE_WAIT + LS_ACCOUNT_REPLICATE] = "the link of dp_replicate",
        [LS_PROFILE_WAIT + LS_ACCOUNT_OPTIMIZER] = "the link over which matrices meet (Muon)",
        [LS_PROFILE_WAIT + LS_ACCOUNT_OTHER] =
            "imbalance: ranks wait for the slowest one at a step's end"};
    return means[part];
}

static const char *work_means(int work)
{
    static const char *const means[] = {"products: the peak of the cores or accelerators",
                                        "attention", "passes over memory: its bandwidth",
                                        "the update, which is a pass over memory"};
    return means[work];
}

/* Seconds of what a step spends most on; *what says it. */
static double most_of(const struct ls_profile *p, const char **what)
{
    double most = -1;
    for (int i = 0; i < LS_PROFILE_PARTS; i++)
        if (p->part[i].measured && p->part[i].median_s > most &&
            !(p->profiled && (i == LS_PROFILE_COMPUTE || i == LS_PROFILE_OPTIMIZER))) {
            most = p->part[i].median_s;
            *what = part_means(i);
        }
    for (int i = 0; i < LS_PROFILE_WORKS; i++)
        if (p->work[i].measured && p->work[i].median_s > most) {
            most = p->work[i].median_s;
            *what = work_means(i);
        }
    if (p->offload.measured && p->offload.median_s > most) {
        bool disk = false;
        for (int i = 0; i < LS_OFFLOADS; i++)
            disk |= ls_config_tier(&p->config, (enum ls_offload)i) == LS_TIER_FILE;
        most = p->offload.median_s;
        *what = disk ? "the disk of a memory tier" : "the link to host memory";
    }
    return most;
}

/* Of computing: the kind that the plan has most of; NULL if nobody knows. */
static const char *planned_most(const struct ls_profile *p)
{
    int most = 0;
    for (int i = 1; i < LS_PROFILE_UPDATE; i++)
        if (p->work[i].planned_s > p->work[most].planned_s)
            most = i;
    return p->planned ? ls_profile_work_name(most) : NULL;
}

/* The part that is most above the plan, -1: none is by 2 % of a step. */
static int most_above(const struct ls_profile *p)
{
    int most = -1;
    double above = 0.02 * p->step.median_s;
    for (int i = 0; i < LS_PROFILE_PARTS && p->planned; i++)
        if (p->part[i].measured && p->part[i].median_s - p->part[i].planned_s > above) {
            above = p->part[i].median_s - p->part[i].planned_s;
            most = i;
        }
    return most;
}

struct ls_profile_verdict ls_profile_bottleneck(const struct ls_profile *p)
{
    struct ls_profile_verdict verdict = {""};
    const char *what = "";
    double most = most_of(p, &what);
    int above = most_above(p);
    ls_string_add(verdict.text, sizeof verdict.text, "", "The bottleneck is %s, %.0f %% of a step",
                  what, 100 * most / p->step.median_s);
    if (what == part_means(LS_PROFILE_COMPUTE) && planned_most(p))
        ls_string_add(verdict.text, sizeof verdict.text, "", ", by the plan %s most of all",
                      planned_most(p));
    else if (what == part_means(LS_PROFILE_COMPUTE))
        ls_string_add(verdict.text, sizeof verdict.text, "",
                      " (log.profile=true would tell products from passes over memory)");
    if (above >= 0)
        ls_string_add(verdict.text, sizeof verdict.text, "",
                      "; most above the plan: %s, by %.3g ms", ls_profile_part_name(above),
                      1e3 * (p->part[above].median_s - p->part[above].planned_s));
    ls_string_add(verdict.text, sizeof verdict.text, "", ".");
    if (*p->drift)
        ls_string_add(verdict.text, sizeof verdict.text, "", " Since step %ld the run names: %s.",
                      (long)p->drift_step, p->drift);
    return verdict;
}
