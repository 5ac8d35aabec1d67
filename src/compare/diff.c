/* Two runs held against each other: their records, then both computed again. */
#include <lockstep/compare/diff.h>
#include <lockstep/train/fit.h>

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
    d->from = keys ? 0 : d->found.checkpoint_step;
    d->checkpoint = keys ? "" : d->found.checkpoint;
    return d->found.compared ? LS_OK
                             : ls_error_set(error, LS_EDATA, "%s and %s recorded no step in common",
                                            one->directory, other->directory);
}

int ls_diff_rerun(struct ls_diff *d,
                  void (*told)(void *user, const struct ls_diff *diff, int run, double bytes),
                  void *user, struct ls_error *error)
{
    int64_t last = d->found.step;
    double bytes = 0;
    int status = LS_OK;
    for (int i = 0; i < 2 && !status; i++) {
        struct ls_diff_run *run = &d->run[i];
        status = ls_run_record_repeats(&run->record, d->from, last, error);
        if (!status)
            status = ls_memory_here(&run->record.config, &bytes, error);
        if (!status && told)
            told(user, d, i, bytes);
        if (!status)
            status = ls_rerun_new(&run->record.config, d->checkpoint, d->from + 1, last,
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
