/* lockstep diff: the first step, and the first tensor, in which two runs of a recipe differ. */
#include "cmd.h"
#include "rank_start.h"

#include <lockstep/base/words.h>
#include <lockstep/compare.h>

struct diff {
    struct ls_run_record a, b;
    struct ls_run_difference difference;
    bool same_recipe;
    struct ls_rerun *again_a, *again_b;
};

/* ---- what was recorded ----------------------------------------------------------------------- */

static void print_run(const char *name, const struct ls_run_record *run)
{
    char text[1024];
    ls_config_layout_text(&run->config, NULL, text, sizeof text);
    cmd_print("%s  %s: %s, steps to %ld\n", name, run->directory, text,
              (long)run->steps[run->count - 1].step);
}

static int recipes_compare(struct diff *d, bool force, struct ls_error *error)
{
    char keys[700];
    int count = ls_config_recipe_diff(&d->a.config, &d->b.config, keys, sizeof keys);
    d->same_recipe = count == 0;
    if (count && !force)
        return ls_error_set(error, LS_ECONFIG,
                            "the two runs have different recipes, so their numbers differ anyway "
                            "(%s; here is %s, there is %s); --force compares them",
                            keys, d->a.directory, d->b.directory);
    if (count)
        cmd_print("two recipes: %s\n", keys);
    return LS_OK;
}

static void print_step(const struct ls_run_record *run, const char *name, int64_t step)
{
    const struct ls_recorded_step *recorded = ls_run_record_at(run, step);
    printf("  %s ", name);
    if (recorded->has_loss)
        printf(" loss bits %08x", recorded->loss_bits);
    if (recorded->has_hash)
        printf(" hash %s", recorded->hash);
    putchar('\n');
}

/* Returns whether the records differ. */
static bool records_compare(struct diff *d, struct ls_error *error)
{
    struct ls_run_difference *found = &d->difference;
    ls_run_records_compare(&d->a, &d->b, found);
    if (found->compared == 0) {
        ls_error_set(error, LS_EDATA, "%s and %s recorded no step in common", d->a.directory,
                     d->b.directory);
        return false;
    }
    if (found->step == 0) {
        printf("equal up to step %ld (%s compared", (long)found->last,
               ls_counted(found->compared, "step").text);
        printf(found->equal ? ", the state's hash last at step %ld)\n" : ", no hash among them)\n",
               (long)found->equal);
        return false;
    }
    printf("the records differ at step %ld, in %s\n", (long)found->step,
           found->loss && found->hash ? "loss and hash"
           : found->loss              ? "the loss"
                                      : "the hash");
    print_step(&d->a, "A", found->step);
    print_step(&d->b, "B", found->step);
    return true;
}

/* ---- once more ------------------------------------------------------------------------------- */

/* Runs one of them again from where both are equal; of two recipes, from the start. */
static int run_again(const struct diff *d, const struct ls_run_record *run, const char *name,
                     struct ls_rerun **out, struct ls_error *error)
{
    const struct ls_run_difference *found = &d->difference;
    int64_t from = d->same_recipe ? found->checkpoint_step : 0;
    double bytes = 0;
    int status = ls_run_record_repeats(run, from, found->step, error);
    if (!status)
        status = ls_memory_here(&run->config, &bytes, error);
    if (status)
        return status;
    printf("%s again: steps %ld to %ld, %s, %s\n", name, (long)from + 1, (long)found->step,
           ls_counted(ls_config_ranks(&run->config), "rank thread").text, ls_bytes(bytes).text);
    fflush(stdout);
    return ls_rerun_new(&run->config, d->same_recipe ? found->checkpoint : NULL, from + 1,
                        found->step, out, error);
}

/* The fingerprint of a run's newest checkpoint, NULL without one. */
static const char *fingerprint_of(const struct ls_run_record *run)
{
    for (int64_t i = run->count; i > 0; i--)
        if (run->steps[i - 1].saved)
            return run->steps[i - 1].fingerprint;
    return NULL;
}

static void print_repetition(const struct diff *d, const struct ls_run_record *run,
                             const struct ls_rerun *again, const char *name)
{
    struct ls_rerun_check check;
    ls_rerun_check(again, run, 1, d->difference.step, &check);
    if (check.step)
        printf("  %s is not reproduced: step %ld gives other bits than the record\n", name,
               (long)check.step);
    else
        printf("  %s is reproduced bit for bit\n", name);
}

/* What the repetitions tell. */
static void verdict(const struct diff *d)
{
    char tensor[256];
    int64_t step = ls_rerun_differs(d->again_a, d->again_b, tensor, sizeof tensor);
    const char *one = fingerprint_of(&d->a), *other = fingerprint_of(&d->b);
    char differences[512];
    bool machines =
        one && other && ls_fingerprint_differs(one, other, differences, sizeof differences);
    if (step)
        printf("the repeated runs diverge at step %ld; first tensor: %s\n", (long)step, tensor);
    else
        printf("the repeated runs agree: the cause is a machine or the build, not the layouts\n");
    print_repetition(d, &d->a, d->again_a, "A");
    print_repetition(d, &d->b, d->again_b, "B");
    if (machines)
        cmd_print("  the runs were made by different versions, whose bits "
                  "differ:\n  A  %s\n  B  %s\n",
                  one, other);
    else if (!step)
        puts("  look for faulty memory or arithmetic in the machine of the run that is not "
             "reproduced (doc/verify.md)");
}

static int compare(struct diff *d, const struct cmd_args *args, bool *differ,
                   struct ls_error *error)
{
    *differ = false;
    int status = ls_run_record_read(&d->a, args->word[0], error);
    if (!status)
        status = ls_run_record_read(&d->b, args->word[1], error);
    if (!status)
        status = recipes_compare(d, cmd_args_given(args, "--force"), error);
    if (status)
        return status;
    print_run("A", &d->a);
    print_run("B", &d->b);
    *differ = records_compare(d, error);
    if (!*differ || cmd_args_given(args, "--no-rerun"))
        return error->code;
    status = run_again(d, &d->a, "A", &d->again_a, error);
    if (!status)
        status = run_again(d, &d->b, "B", &d->again_b, error);
    if (!status)
        verdict(d);
    return status;
}

int cmd_diff(const struct cmd_args *args, struct ls_error *error)
{
    static struct diff d;
    bool differ = false;
    if (args->words < 2)
        return ls_error_set(error, LS_ECONFIG, "expected the directories of two runs");
    if (ls_mpi_launched())
        return ls_error_set(error, LS_ECONFIG,
                            "ranks are threads of one process here: start it without mpirun");
    d = (struct diff){0};
    cmd_progress_begin();
    int status = compare(&d, args, &differ, error);
    ranks_end(status, error);
    ls_rerun_free(d.again_a);
    ls_rerun_free(d.again_b);
    ls_run_record_release(&d.a);
    ls_run_record_release(&d.b);
    return status ? status : differ;
}
