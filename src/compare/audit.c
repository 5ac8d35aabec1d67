/* Steps of a run computed again, and compared with its records. */
#include <lockstep/compare/audit.h>

#include <lockstep/ckpt.h>
#include <lockstep/config/inputs.h>
#include <lockstep/device.h>
#include <lockstep/train/fit.h>

#include <stdio.h>
#include <string.h>

/* ---- which steps ----------------------------------------------------------------------------- */

/* The first and the last recorded step. Step 0 is a state that no step gave. */
static int64_t first_recorded(const struct ls_run_record *run)
{
    int64_t first = run->steps[0].step;
    return first == 0 && run->count > 1 ? run->steps[1].step : first;
}

/* The steps after the newest checkpoint but one; otherwise all. */
static int64_t default_from(const struct ls_run_record *run)
{
    int64_t saved = 0;
    for (int64_t i = run->count; i > 0; i--)
        if (run->steps[i - 1].saved && saved++ == 1)
            return run->steps[i - 1].step + 1;
    return first_recorded(run);
}

static int steps_choose(struct ls_audit *audit, const struct ls_audit_request *request,
                        struct ls_error *error)
{
    const struct ls_run_record *run = &audit->run;
    int64_t first = first_recorded(run), last = run->steps[run->count - 1].step;
    bool given = request->from || request->to;
    audit->from = given ? request->from : request->whole ? first : default_from(run);
    audit->to = given ? request->to : last;
    if (audit->from <= audit->to && audit->from >= ls_max(first, 1) && audit->to <= last)
        return LS_OK;
    return ls_error_set(error, LS_ECONFIG,
                        "steps %ld..%ld: expected a first and a last step among those that %s "
                        "recorded, %ld to %ld",
                        (long)audit->from, (long)audit->to, run->directory, (long)first,
                        (long)last);
}

/* ---- from where ------------------------------------------------------------------------------ */

struct beginning {
    struct ls_audit *audit;
    bool found, oldest; /* oldest: not the newest before the first step, but that */
};

static void checkpoint_visit(void *user, const char *directory,
                             const struct ls_checkpoint_state *state)
{
    struct beginning *b = user;
    struct ls_audit *audit = b->audit;
    if (b->found && (state->step < audit->checkpoint_step) != b->oldest)
        return;
    if (state->step >= (b->oldest ? audit->to : audit->from))
        return;
    b->found = true;
    audit->checkpoint_step = state->step;
    snprintf(audit->checkpoint, sizeof audit->checkpoint, "%s", directory);
}

/* A replay of a run whose beginning is gone. */
static int oldest_choose(struct ls_audit *audit, bool *found, struct ls_error *error)
{
    struct beginning b = {.audit = audit, .oldest = true};
    int status = ls_checkpoint_list(audit->run.directory, checkpoint_visit, &b, error);
    *found = !status && b.found;
    if (*found)
        audit->from = audit->checkpoint_step + 1;
    return status;
}

/* A checkpoint of the run; the one of another run that it went on from; or the seed. */
static int beginning_choose(struct ls_audit *audit, bool whole, struct ls_error *error)
{
    const struct ls_run_record *run = &audit->run;
    const char *resume = ls_config_resume_path(&run->config);
    struct beginning b = {.audit = audit};
    int status = ls_checkpoint_list(run->directory, checkpoint_visit, &b, error);
    if (status || b.found || !run->resumed)
        return status;
    if (resume)
        status = ls_checkpoint_visit(resume, checkpoint_visit, &b, whole ? NULL : error);
    if (whole && !b.found)
        status = oldest_choose(audit, &b.found, error);
    if (status || b.found)
        return status;
    return ls_error_set(error, LS_ECKPT,
                        "%s: the run went on from a checkpoint, and none from before step %ld is "
                        "left: expected steps after one that is",
                        run->directory, (long)audit->from);
}

/* ---- in which layout ------------------------------------------------------------------------- */

static bool is_layout_key(const char *word)
{
    char name[64];
    const struct ls_config_key *keys = ls_config_keys(NULL);
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    int index = ls_config_key_index(keys, name);
    return index >= 0 && keys[index].part == LS_CONFIG_LAYOUT;
}

static bool fits(const struct ls_config *config)
{
    struct ls_memory_fit fit;
    struct ls_layout layout;
    int64_t ranks = ls_config_ranks(config);
    return ranks * ls_rank_threads(config, (int)ranks) <= LS_AUDIT_THREADS_MAX &&
           !ls_config_layout(config, 0, &layout, NULL) &&
           !ls_memory_fit(config, &layout, NULL, &fit, NULL) && ls_memory_fits(&fit) == LS_FITS;
}

/* What another value of a row tells: which ranks compute which workers more than an axis, if
 * there are any; an axis more than all keys. */
static int weight(const struct ls_draw_row *rows, int row)
{
    bool workers = !strcmp(rows[row].name, "parallel.workers");
    return workers ? 2 * LS_DRAW_ROWS_MAX : row < LS_AXES ? LS_DRAW_ROWS_MAX : 1;
}

/* In how many axes, and then in how many keys, a layout is another one than the run's. */
static int distance(const int own[LS_DRAW_ROWS_MAX], const struct ls_config *config)
{
    int values[LS_DRAW_ROWS_MAX], count, all = 0;
    const struct ls_draw_row *rows = ls_draw_rows(&count);
    if (!ls_draw_values(config, values))
        return -1;
    for (int row = 0; row < count; row++)
        all += own[row] == values[row] ? 0 : weight(rows, row);
    return all;
}

static void layout_draw(struct ls_audit *audit)
{
    enum { DRAWS = 40, ATTEMPTS = 3000 };
    const struct ls_config *run = &audit->run.config;
    struct ls_config drawn, one;
    int own[LS_DRAW_ROWS_MAX], best = 0;
    if (!ls_draw_values(run, own)) /* made for other machines: all differs */
        memset(own, -1, sizeof own);
    ls_compare_one_rank(run, &one);
    if (fits(&one) && distance(own, &one) > best) {
        best = distance(own, &one);
        audit->config = one;
    }
    for (uint64_t i = 0; i < DRAWS; i++) {
        const struct ls_draw draw = {.seed = 1,
                                     .index = i,
                                     .ranks_max = LS_AUDIT_THREADS_MAX,
                                     .file = *run->memory.file ? run->memory.file : NULL,
                                     .attempts = ATTEMPTS};
        if (!ls_draw_layout(run, &draw, &drawn))
            break;
        drawn.comm = run->comm;
        if (distance(own, &drawn) > best && fits(&drawn)) {
            best = distance(own, &drawn);
            audit->config = drawn;
        }
    }
}

static int layout_choose(struct ls_audit *audit, const struct ls_audit_request *request,
                         struct ls_error *error)
{
    char keys[700];
    struct ls_layout layout;
    bool given = false;
    int status = LS_OK;
    audit->config = audit->run.config;
    for (int i = 0; i < request->key_count; i++)
        given |= is_layout_key(request->keys[i]);
    if (given) {
        ls_config_layout_reset(&audit->config);
        audit->config.parallel.threads =
            ls_min(audit->run.config.parallel.threads, ls_device_threads_max());
    } else {
        layout_draw(audit);
    }
    for (int i = 0; i < request->key_count && !status; i++)
        status = ls_config_set(&audit->config, request->keys[i], error);
    if (!status)
        status = ls_config_resolve(&audit->config, 0, error);
    if (status)
        return status;
    if (ls_config_recipe_diff(&audit->run.config, &audit->config, keys, sizeof keys))
        return ls_error_set(error, LS_ECONFIG,
                            "an audit computes the run's own recipe: expected keys of the layout "
                            "alone, or data.train where the same data lie elsewhere (%s; here is "
                            "the run, there what was given)",
                            keys);
    return ls_config_layout(&audit->config, 0, &layout, error);
}

/* ---- with which data ------------------------------------------------------------------------- */

static int data_check(const struct ls_audit *audit, struct ls_error *error)
{
    const struct ls_config *config = &audit->config;
    const char *key = ls_config_data_key(config);
    struct ls_training_data data;
    char remedy[64];
    int status = ls_training_data_open(config, NULL, &data, error);
    if (status) {
        ls_error_suffix(error, "; if the run's data lie elsewhere now, give %s=PATH", key);
        return status;
    }
    snprintf(remedy, sizeof remedy, "Give %s=PATH where those are", key);
    status = ls_training_data_check(&data, config, audit->run.data, NULL, remedy, error);
    ls_training_data_close(&data);
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

int ls_audit_open(struct ls_audit *audit, const struct ls_audit_request *request,
                  struct ls_error *error)
{
    int status = ls_run_record_read(&audit->run, request->run, error);
    if (!status)
        status = steps_choose(audit, request, error);
    if (!status)
        status = beginning_choose(audit, request->whole, error);
    if (!status)
        status = ls_run_record_repeats(&audit->run, audit->checkpoint_step, audit->to, error);
    if (!status && audit->run.config.numerics.mode == LS_CONFIG_FAST)
        status = ls_config_reject(&audit->run.config, LS_ECONFIG, "numerics.mode", error,
                                  "in this mode the bits depend on the layout, so no other one "
                                  "computes them again");
    if (!status)
        status = layout_choose(audit, request, error);
    return status ? status : data_check(audit, error);
}

void ls_audit_release(struct ls_audit *audit)
{
    ls_run_record_release(&audit->run);
}

/* The first checkpoint from the start of the computation on that strays; NULL: none does. */
static const struct ls_recorded_step *stray_find(const struct ls_audit *audit)
{
    const struct ls_run_record *run = &audit->run;
    for (int64_t i = 0; i < run->count && run->steps[i].step <= audit->to; i++)
        if (run->steps[i].step >= audit->checkpoint_step && ls_recorded_step_strays(&run->steps[i]))
            return &run->steps[i];
    return NULL;
}

int ls_audit_judge(const struct ls_audit *audit, const struct ls_rerun *again,
                   struct ls_audit_verdict *verdict, struct ls_error *error)
{
    const struct ls_recorded_step *stray = stray_find(audit);
    struct ls_rerun_check *check = &verdict->check;
    *verdict = (struct ls_audit_verdict){0};
    ls_rerun_check(again, &audit->run, audit->from, audit->to, check);
    if (check->losses + check->norms + check->hashes == 0)
        return ls_error_set(error, LS_EDATA,
                            "steps %ld to %ld: nothing was compared: the run recorded neither a "
                            "loss nor a hash of them. Choose steps with records",
                            (long)audit->from, (long)audit->to);
    verdict->checkpoint_differs = stray != NULL;
    verdict->checkpoint_step = stray ? stray->step : 0;
    verdict->equal = !check->step && !verdict->checkpoint_differs && !audit->run.chain.broken;
    return LS_OK;
}
