/* lockstep audit and lockstep replay: steps of a run, or all of them, computed again and compared
 * with its records. */
#include "cmd.h"
#include "rank_start.h"

#include <lockstep/base/words.h>
#include <lockstep/compare/audit.h>

#include <string.h>

struct audit {
    struct ls_audit audit;
    struct ls_rerun *again; /* in the audit's layout */
};

/* "1000..1200" or "1000". */
static int steps_read(const char *text, int64_t *from, int64_t *to, struct ls_error *error)
{
    char first[32];
    const char *dots = strstr(text, "..");
    int length = dots ? (int)(dots - text) : (int)strlen(text);
    snprintf(first, sizeof first, "%.*s", length, text);
    int status = length < (int)sizeof first
                     ? cmd_int_read("--steps", first, 1, INT64_MAX, from, NULL)
                     : LS_ECONFIG;
    if (!status)
        status = cmd_int_read("--steps", dots ? dots + 2 : first, 1, INT64_MAX, to, NULL);
    if (!status && *from <= *to)
        return LS_OK;
    return ls_error_set(error, LS_ECONFIG,
                        "--steps = %.100s: expected a first and a last step, such as 1000..1200",
                        text);
}

static int open_audit(struct audit *a, const struct cmd_args *args, bool whole,
                      struct ls_error *error)
{
    struct ls_audit_request request = {
        .keys = args->word + 1, .key_count = args->words - 1, .whole = whole};
    const char *steps = whole ? NULL : cmd_args_value(args, "--steps");
    if (args->words < 1 || strchr(args->word[0], '='))
        return ls_error_set(error, LS_ECONFIG, "expected the directory of a run");
    if (ls_mpi_launched())
        return ls_error_set(error, LS_ECONFIG,
                            "ranks are threads of one process here: start it without mpirun");
    request.run = args->word[0];
    int status = steps ? steps_read(steps, &request.from, &request.to, error) : LS_OK;
    return status ? status : ls_audit_open(&a->audit, &request, error);
}

struct steps {
    char text[64];
};
/* "step 7", "steps 5 to 7" */
static struct steps steps_text(int64_t from, int64_t to)
{
    struct steps steps;
    if (from == to)
        snprintf(steps.text, sizeof steps.text, "step %ld", (long)to);
    else
        snprintf(steps.text, sizeof steps.text, "steps %ld to %ld", (long)from, (long)to);
    return steps;
}

/* ---- what is computed ------------------------------------------------------------------------ */

static void layout_text(const struct ls_config *config, char *text, size_t bytes)
{
    struct ls_config one;
    ls_compare_one_rank(config, &one);
    ls_config_layout_text(config, &one, text, bytes);
}

static void print_run(const struct ls_run_record *run)
{
    char text[1024];
    const struct ls_chain_found *chain = &run->chain;
    layout_text(&run->config, text, sizeof text);
    cmd_print("%s: %s, steps to %ld\n", run->directory, text,
              (long)run->steps[run->count - 1].step);
    if (chain->records == 0)
        puts("the records have no chain: an older version wrote them");
    else if (chain->broken)
        printf("the chain of the records is broken at step %ld: %s\n", (long)chain->broken,
               chain->why);
    else
        printf("the chain of %s is whole\n", ls_counted(chain->records, "record").text);
    if (chain->records && chain->unchained)
        printf("%s before them: no chain, an older version wrote them\n",
               ls_counted(chain->unchained, "record").text);
}

/* Steps to `last` on thread ranks. */
static int compute(const struct ls_audit *audit, const struct ls_config *config, int64_t tensors,
                   int64_t last, struct ls_rerun **out, struct ls_error *error)
{
    double bytes;
    char text[1024], from[64] = "from the start";
    int status = ls_memory_here(config, &bytes, error);
    if (status)
        return status;
    layout_text(config, text, sizeof text);
    if (audit->checkpoint[0])
        snprintf(from, sizeof from, "from the checkpoint of step %ld",
                 (long)audit->checkpoint_step);
    printf("computing %s again %s, with %s: %s, %s\n",
           steps_text(audit->checkpoint_step + 1, last).text, from, text,
           ls_counted(ls_config_ranks(config), "rank thread").text, ls_bytes(bytes).text);
    cmd_flush();
    return ls_rerun_new(config, audit->checkpoint, tensors, last, out, error);
}

/* ---- the verdict ----------------------------------------------------------------------------- */

/* What the step's record says and what it gives, in what differs. */
static void print_bits(const struct audit *a, const struct ls_rerun_check *check)
{
    const struct ls_recorded_step *recorded = ls_run_record_at(&a->audit.run, check->step);
    const struct ls_proof *proof = ls_rerun_proof(a->again, check->step);
    char hash[33];
    ls_digest_hex(&proof->hash, hash);
    printf("step %ld differs: ", (long)check->step);
    if (check->loss)
        printf("loss bits %08x recorded, %08x computed; ", recorded->loss_bits, proof->loss_bits);
    if (check->norm)
        printf("gradient norm %.17g recorded, %.17g computed; ", recorded->grad_norm,
               proof->grad_norm);
    if (check->hash)
        printf("hash %s recorded, %s computed; ", recorded->hash, hash);
    if (check->ledger)
        printf("ledger of samples %s recorded, %s computed; ", recorded->ledger, proof->ledger);
}

/* Why a step differs: it is computed in the run's own layout too, and again here with the digests
 * of all tensors. */
static int cause_print(const struct audit *a, const struct ls_rerun_check *check,
                       struct ls_error *error)
{
    const struct ls_audit *audit = &a->audit;
    struct ls_rerun *own = NULL, *here = NULL;
    struct ls_rerun_check own_check;
    char tensor[256];
    struct ls_error refused = {0};
    int64_t first = audit->checkpoint_step + 1, step;
    int status = compute(audit, &audit->run.config, first, check->step, &own, &refused);
    if (ranks_are_left(status, &refused)) {
        *error = refused;
        return status;
    }
    if (!status)
        status = compute(audit, &audit->config, first, check->step, &here, error);
    print_bits(a, check);
    if (refused.code) {
        cmd_print("not computed in the run's own layout (%s)\n", refused.text);
    } else if (!status) {
        ls_rerun_check(own, &audit->run, check->step, check->step, &own_check);
        step = ls_rerun_differs(own, here, tensor, sizeof tensor);
        if (step)
            printf("the run's own layout gives other bits too, from step %ld on%s%s. Please report "
                   "it; the record is %s\n",
                   (long)step, *tensor ? "; first tensor: " : "", tensor,
                   own_check.step ? "neither's" : "the own layout's");
        else
            puts("the run's own layout gives what was computed: the record, not the layout, is "
                 "what differs");
    }
    ls_rerun_free(own);
    ls_rerun_free(here);
    return refused.code ? LS_OK : status;
}

static int verdict_print(const struct audit *a, const struct ls_audit_verdict *verdict,
                         struct ls_error *error)
{
    const struct ls_audit *audit = &a->audit;
    const struct ls_rerun_check *check = &verdict->check;
    const struct ls_recorded_step *saved = ls_run_record_at(&audit->run, verdict->checkpoint_step);
    if (verdict->checkpoint_differs)
        printf("the checkpoint of step %ld is not the state that was recorded: its hash is %s, "
               "recorded is %s\n",
               (long)saved->step, saved->saved_hash, saved->hash);
    if (check->step)
        return cause_print(a, check, error);
    printf("%s: %s; compared: ", steps_text(audit->from, audit->to).text,
           verdict->equal ? "equal" : "computed as recorded, but the history is not whole");
    printf("%s, ", ls_counted(check->losses, "loss").text);
    printf("%s, %s", ls_counted(check->norms, "gradient norm").text,
           ls_counted(check->hashes, "hash").text);
    if (check->ledgers)
        printf(", %s of samples", ls_counted(check->ledgers, "ledger").text);
    if (check->hashed)
        printf("; hash at step %ld: %s", (long)check->hashed,
               ls_run_record_at(&audit->run, check->hashed)->hash);
    putchar('\n');
    return LS_OK;
}

static int audit_run(const struct cmd_args *args, bool whole, struct ls_error *error)
{
    static struct audit a;
    struct ls_audit_verdict verdict = {0};
    a = (struct audit){0};
    cmd_progress_begin();
    int status = open_audit(&a, args, whole, error);
    if (!status) {
        print_run(&a.audit.run);
        status = compute(&a.audit, &a.audit.config, INT64_MAX, a.audit.to, &a.again, error);
    }
    if (!status)
        status = ls_audit_judge(&a.audit, a.again, &verdict, error);
    if (!status)
        status = verdict_print(&a, &verdict, error);
    ranks_end(status, error);
    ls_rerun_free(a.again);
    ls_audit_release(&a.audit);
    return status ? status : !verdict.equal;
}

int cmd_audit(const struct cmd_args *args, struct ls_error *error)
{
    return audit_run(args, false, error);
}

int cmd_replay(const struct cmd_args *args, struct ls_error *error)
{
    return audit_run(args, true, error);
}
