/* Two runs held against each other: their records, then both computed again. */
#include <lockstep/ckpt.h>
#include <lockstep/compare/diff.h>
#include <lockstep/train/fit.h>

#include <stdio.h>
#include <string.h>

int ls_diff_open(struct ls_diff *d, const char *a, const char *b, bool forced,
                 struct ls_error *error)
{
    struct ls_run_record *one = &d->run[0].record, *other = &d->run[1].record;
    int status = ls_run_record_read(one, a, error);
    if (!status)
        status = ls_run_record_read(other, b, error);
    if (status)
        return status;
    int keys = ls_config_recipe_diff(&one->config, &other->config, d->recipe, sizeof d->recipe);
    if (keys && !forced)
        return ls_error_set(error, LS_ECONFIG,
                            "the two runs have different recipes, so their numbers differ anyway "
                            "(%s; here is %s, there is %s); --force (in Python: force=True) "
                            "compares them",
                            d->recipe, one->directory, other->directory);
    ls_run_records_compare(one, other, &d->found);
    return d->found.compared ? LS_OK
                             : ls_error_set(error, LS_EDATA, "%s and %s recorded no step in common",
                                            one->directory, other->directory);
}

static void checkpoint_visit(void *user, const char *directory,
                             const struct ls_checkpoint_state *state)
{
    struct ls_diff_run *run = user;
    run->from = state->step;
    snprintf(run->checkpoint, sizeof run->checkpoint, "%s", directory);
}

/* The checkpoint of another run that it went on from, or the seed. */
static int beginning_choose(struct ls_diff_run *run, int64_t last, struct ls_error *error)
{
    const char *resume = ls_config_resume_path(&run->record.config);
    if (!run->record.resumed)
        return LS_OK;
    if (resume && !ls_checkpoint_visit(resume, checkpoint_visit, run, NULL) && run->from < last)
        return LS_OK;
    return ls_error_set(error, LS_ECKPT,
                        "%s: the run went on from %.600s, which is not there any more, so its "
                        "steps cannot be computed again. Put it back, or compare the records alone "
                        "(diff --no-rerun)",
                        run->record.directory, resume ? resume : "a checkpoint");
}

static int from_choose(const struct ls_diff *d, struct ls_diff_run *run, struct ls_error *error)
{
    const struct ls_run_difference *found = &d->found;
    if (*d->recipe || !*found->checkpoint)
        return beginning_choose(run, found->step, error);
    run->from = found->checkpoint_step;
    memcpy(run->checkpoint, found->checkpoint, sizeof run->checkpoint);
    return LS_OK;
}

int ls_diff_rerun(struct ls_diff *d,
                  void (*told)(void *user, const struct ls_diff *diff, int run, double bytes),
                  void *user, struct ls_error *error)
{
    int64_t last = d->found.step;
    double bytes = 0;
    int status = from_choose(d, &d->run[0], error);
    if (!status)
        status = from_choose(d, &d->run[1], error);
    for (int i = 0; i < 2 && !status; i++) {
        struct ls_diff_run *run = &d->run[i];
        status = ls_run_record_repeats(&run->record, run->from, last, error);
        if (!status)
            status = ls_memory_here(&run->record.config, &bytes, error);
        if (!status && told)
            told(user, d, i, bytes);
        if (!status)
            status = ls_rerun_new(&run->record.config, run->checkpoint, run->from + 1, last,
                                  &run->again, error);
        if (!status)
            ls_rerun_check(run->again, &run->record, 1, last, &run->check);
    }
    if (!status)
        d->step = ls_rerun_differs(d->run[0].again, d->run[1].again, d->tensor, sizeof d->tensor);
    return status;
}

void ls_diff_release(struct ls_diff *d)
{
    for (int i = 0; i < 2; i++) {
        ls_rerun_free(d->run[i].again);
        ls_run_record_release(&d->run[i].record);
    }
}
