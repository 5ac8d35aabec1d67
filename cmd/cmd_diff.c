/* lockstep diff: the first step, and the first tensor, in which two runs of a recipe differ. */
#include "cmd.h"
#include "rank_start.h"

#include <lockstep/base/words.h>
#include <lockstep/compare/diff.h>

static const char *const names[] = {"A", "B"};

/* ---- what was recorded ----------------------------------------------------------------------- */

static void print_run(const struct ls_diff *d, int i)
{
    char text[1024];
    const struct ls_run_record *run = &d->run[i].record;
    ls_config_layout_text(&run->config, NULL, text, sizeof text);
    cmd_print("%s  %s: %s, steps to %ld\n", names[i], run->directory, text,
              (long)run->steps[run->count - 1].step);
}

static void print_step(const struct ls_diff *d, int i)
{
    const struct ls_recorded_step *recorded = ls_run_record_at(&d->run[i].record, d->found.step);
    printf("  %s ", names[i]);
    if (recorded->has_loss)
        printf(" loss bits %08x", recorded->loss_bits);
    if (recorded->has_hash)
        printf(" hash %s", recorded->hash);
    putchar('\n');
}

/* The first checkpoint that is not what its run recorded. */
static void print_stray(const struct ls_diff *d, int i)
{
    const struct ls_recorded_step *recorded =
        ls_run_record_at(&d->run[i].record, d->found.stray_step);
    if (d->found.strays && ls_recorded_step_strays(recorded))
        printf("the checkpoint of step %ld of %s is not the state that was recorded: its hash is "
               "%s, recorded is %s\n",
               (long)recorded->step, names[i], recorded->saved_hash, recorded->hash);
}

static void print_records(const struct ls_diff *d)
{
    const struct ls_run_difference *found = &d->found;
    if (*d->recipe)
        cmd_print("two recipes: %s\n", d->recipe);
    print_run(d, 0);
    print_run(d, 1);
    print_stray(d, 0);
    print_stray(d, 1);
    if (found->step == 0) {
        printf("equal up to step %ld (%s compared", (long)found->last,
               ls_counted(found->compared, "step").text);
        printf(found->equal ? ", the state's hash last at step %ld)\n" : ", no hash among them)\n",
               (long)found->equal);
        return;
    }
    printf("the records differ at step %ld, in %s\n", (long)found->step,
           found->loss && found->hash ? "loss and hash"
           : found->loss              ? "the loss"
                                      : "the hash");
    print_step(d, 0);
    print_step(d, 1);
}

/* ---- once more ------------------------------------------------------------------------------- */

static void begin_print(void *user, const struct ls_diff *d, int i, double bytes)
{
    (void)user;
    printf("%s again: steps %ld to %ld, %s, %s\n", names[i], (long)d->run[i].from + 1,
           (long)d->found.step,
           ls_counted(ls_config_ranks(&d->run[i].record.config), "rank thread").text,
           ls_bytes(bytes).text);
    cmd_flush();
}

/* The fingerprint of a run's newest checkpoint, NULL without one. */
static const char *fingerprint_of(const struct ls_run_record *run)
{
    for (int64_t i = run->count; i > 0; i--)
        if (run->steps[i - 1].saved)
            return run->steps[i - 1].fingerprint;
    return NULL;
}

static void print_repetition(const struct ls_diff *d, int i)
{
    int64_t step = d->run[i].check.step;
    if (step)
        printf("  %s is not reproduced: step %ld gives other bits than the record\n", names[i],
               (long)step);
    else
        printf("  %s is reproduced bit for bit\n", names[i]);
}

/* What the repetitions tell. */
static void verdict(const struct ls_diff *d)
{
    const char *one = fingerprint_of(&d->run[0].record), *other = fingerprint_of(&d->run[1].record);
    char differences[512];
    bool machines =
        one && other && ls_fingerprint_differs(one, other, differences, sizeof differences);
    if (d->step)
        printf("the repeated runs diverge at step %ld%s%s\n", (long)d->step,
               *d->tensor ? "; first tensor: " : "", d->tensor);
    else
        printf("the repeated runs agree: the cause is a machine or the build, not the layouts\n");
    print_repetition(d, 0);
    print_repetition(d, 1);
    if (machines)
        cmd_print("  the runs were made by different versions, whose bits "
                  "differ:\n  A  %s\n  B  %s\n",
                  one, other);
    else if (!d->step)
        puts("  look for faulty memory or arithmetic in the machine of the run that is not "
             "reproduced (doc/verify.md)");
}

int cmd_diff(const struct cmd_args *args, struct ls_error *error)
{
    static struct ls_diff d;
    if (args->words < 2)
        return ls_error_set(error, LS_ECONFIG, "expected the directories of two runs");
    if (ls_mpi_launched())
        return ls_error_set(error, LS_ECONFIG,
                            "ranks are threads of one process here: start it without mpirun");
    d = (struct ls_diff){0};
    cmd_progress_begin();
    int status =
        ls_diff_open(&d, args->word[0], args->word[1], cmd_args_given(args, "--force"), error);
    if (!status)
        print_records(&d);
    bool differ = d.found.step > 0;
    if (!status && differ && !cmd_args_given(args, "--no-rerun")) {
        status = ls_diff_rerun(&d, begin_print, NULL, error);
        if (!status)
            verdict(&d);
    }
    ranks_end(status, error);
    ls_diff_release(&d);
    return status ? status : differ || d.found.strays;
}
