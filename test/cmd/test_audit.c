/* `lockstep audit`: a run's steps are equal in every layout, whatever is altered in its history is
 * found and named, and an audit that compares nothing is no verdict. */
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "runs.h"

#include <lockstep/compare/audit.h>
#include <lockstep/train/chain.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Steps 1 to 8; hashes of 2, 3, 4, 6 and 8, checkpoints of 3, 6 and 8. */
static int run_setup(void **state)
{
    if (corpus_setup(state))
        return -1;
    expect("$L train $C model.layers=2 train.out=one train.steps=8 train.save_every=3 train.keep=9 "
           "log.hash_every=2 numerics.tp_tiles=4 parallel.dp=2",
           0, "hash ");
    return 0;
}

/* ---- an audit, and its twins ----------------------------------------------------------------- */

static enum { HONEST, COMPARES_NOTHING, NEVER_DIFFERS } twin;

WRAPPED(ls_rerun_check);
void __wrap_ls_rerun_check(const struct ls_rerun *rerun, const struct ls_run_record *record,
                           int64_t from, int64_t to, struct ls_rerun_check *check)
{
    __real_ls_rerun_check(rerun, record, from, to, check);
    if (twin == COMPARES_NOTHING)
        *check = (struct ls_rerun_check){0};
    if (twin == NEVER_DIFFERS) {
        check->step = 0;
        check->loss = check->norm = check->hash = false;
    }
}

/* Audits a run of the folder, on one rank. */
static int audit(const char *run, int64_t from, int64_t to, struct ls_audit_verdict *verdict,
                 int64_t *broken, struct ls_error *error)
{
    static const char *const keys[] = {"parallel.dp=1"};
    static struct ls_audit audit;
    const struct ls_audit_request request = {at(run), from, to, keys, 1, false};
    struct ls_rerun *again = NULL;
    audit = (struct ls_audit){0};
    *verdict = (struct ls_audit_verdict){0};
    int status = ls_audit_open(&audit, &request, error);
    *broken = audit.run.chain.broken;
    if (!status)
        status = ls_rerun_new(&audit.config, audit.checkpoint, INT64_MAX, to, &again, error);
    if (!status)
        status = ls_audit_judge(&audit, again, verdict, error);
    ls_rerun_free(again);
    ls_audit_release(&audit);
    return status;
}

/* ---- histories that were altered ------------------------------------------------------------- */

static bool is_step(const json_t *record, int64_t step)
{
    return json_object_get(record, "loss_bits") &&
           json_integer_value(json_object_get(record, "step")) == step;
}

static size_t place_of(const json_t *records, int64_t step)
{
    size_t i;
    const json_t *record;
    json_array_foreach(records, i, record) if (is_step(record, step)) return i;
    fail_msg("step %ld has no record", (long)step);
    return 0;
}

static json_t *record_of(const json_t *records, int64_t step)
{
    return json_array_get(records, place_of(records, step));
}

/* The first character of a text field becomes another digit. */
static void digit_alter(json_t *record, const char *key)
{
    char text[64];
    snprintf(text, sizeof text, "%s", json_string_value(json_object_get(record, key)));
    assert_int_not_equal(strlen(text), 0);
    text[7] = text[7] == '1' ? '2' : '1';
    json_object_set_new(record, key, json_string(text));
}

static void alter_loss(json_t *records)
{
    digit_alter(record_of(records, 5), "loss_bits");
}

/* What people read, where the program reads its bits. */
static void alter_decimal(json_t *records)
{
    json_t *record = record_of(records, 5);
    double loss = json_number_value(json_object_get(record, "loss"));
    json_object_set_new(record, "loss", json_real(loss * (1 - 0x1p-22)));
}

static void alter_norm(json_t *records)
{
    json_t *record = record_of(records, 5);
    double norm = json_number_value(json_object_get(record, "grad_norm"));
    json_object_set_new(record, "grad_norm", json_real(norm * (1 + 0x1p-52)));
}

static void alter_ledger(json_t *records)
{
    digit_alter(record_of(records, 5), "ledger");
}

static void alter_hash(json_t *records)
{
    digit_alter(record_of(records, 6), "hash");
}

static void alter_chain(json_t *records)
{
    digit_alter(record_of(records, 5), "chain");
}

static void drop_chain(json_t *records)
{
    json_object_del(record_of(records, 5), "chain");
}

static void drop_hash(json_t *records)
{
    json_object_del(record_of(records, 4), "hash");
}

static void drop_record(json_t *records)
{
    json_array_remove(records, place_of(records, 5));
}

static void drop_first(json_t *records)
{
    json_array_remove(records, place_of(records, 1));
}

static void add_record(json_t *records)
{
    json_t *added = json_deep_copy(record_of(records, 4));
    json_array_insert_new(records, place_of(records, 5) + 1, added);
}

static void swap_records(json_t *records)
{
    size_t here = place_of(records, 5), there = place_of(records, 6);
    json_t *one = json_incref(json_array_get(records, here));
    json_array_set(records, here, json_array_get(records, there));
    json_array_set_new(records, there, one);
}

/* As somebody does who wants the history to look whole. */
static void chain_again(json_t *records)
{
    char chain[LS_CHAIN_BYTES] = "";
    size_t i;
    json_t *record;
    json_array_foreach(records, i, record)
    {
        const char *bits = json_string_value(json_object_get(record, "loss_bits"));
        const char *hash = json_string_value(json_object_get(record, "hash"));
        if (!bits)
            continue;
        const struct ls_chain_link link = {
            json_integer_value(json_object_get(record, "step")), (uint32_t)strtoul(bits, NULL, 16),
            json_number_value(json_object_get(record, "grad_norm")), hash ? hash : "",
            json_string_value(json_object_get(record, "ledger"))};
        ls_chain_add(chain, &link);
        json_object_set_new(record, "chain", json_string(chain));
    }
}

static void alter_loss_and_chain(json_t *records)
{
    json_t *record = record_of(records, 5);
    alter_loss(records);
    uint32_t bits =
        (uint32_t)strtoul(json_string_value(json_object_get(record, "loss_bits")), NULL, 16);
    float loss;
    memcpy(&loss, &bits, sizeof loss);
    json_object_set_new(record, "loss", json_real((double)loss));
    chain_again(records);
}

static void alter_norm_and_chain(json_t *records)
{
    alter_norm(records);
    chain_again(records);
}

static void alter_ledger_and_chain(json_t *records)
{
    alter_ledger(records);
    chain_again(records);
}

static void alter_hash_and_chain(json_t *records)
{
    alter_hash(records);
    chain_again(records);
}

/* The state that the steps begin from. */
static void alter_start_and_chain(json_t *records)
{
    digit_alter(record_of(records, 3), "hash");
    chain_again(records);
}

static void unchain(json_t *records)
{
    size_t i;
    json_t *record;
    json_array_foreach(records, i, record) json_object_del(record, "chain");
}

static const struct altered {
    const char *what;
    void (*alter)(json_t *records);
    int64_t broken, step; /* where the chain breaks, and the step that gives something else */
    bool checkpoint;
} all_altered[] = {
    {"nothing", chain_again, 0, 0, false},
    {"a loss bit", alter_loss, 5, 5, false},
    {"a decimal loss", alter_decimal, 5, 0, false},
    {"a bit of a gradient norm", alter_norm, 5, 5, false},
    {"a hash", alter_hash, 6, 6, true},
    {"the ledger of the samples", alter_ledger, 5, 5, false},
    {"a chain", alter_chain, 5, 0, false},
    {"a chain removed", drop_chain, 5, 0, false},
    {"a hash removed", drop_hash, 4, 0, false},
    {"a record removed", drop_record, 6, 0, false},
    {"the first record removed", drop_first, 2, 0, false},
    {"a record added", add_record, 4, 0, false},
    {"two records swapped", swap_records, 6, 0, false},
    {"a loss bit, the chain computed again", alter_loss_and_chain, 0, 5, false},
    {"a norm, the chain computed again", alter_norm_and_chain, 0, 5, false},
    {"a ledger, the chain computed again", alter_ledger_and_chain, 0, 5, false},
    {"a hash, the chain computed again", alter_hash_and_chain, 0, 6, true},
    {"the hash of a checkpoint, the chain computed again", alter_start_and_chain, 0, 0, true},
};
enum { ALTERED = sizeof all_altered / sizeof all_altered[0] };

/* The run `altered`: one, with other records. */
static void altered_make(void (*alter)(json_t *records))
{
    assert_int_equal(shell("rm -rf altered && cp -r one altered"), 0);
    char *text = scratch_read(at("one/metrics.jsonl"), NULL), *save = NULL;
    json_t *records = json_array(), *record;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        json_array_append_new(records, json_loads(line, 0, NULL));
    alter(records);
    FILE *file = fopen(at("altered/metrics.jsonl"), "w");
    assert_non_null(file);
    size_t i;
    json_array_foreach(records, i, record)
    {
        json_dumpf(record, file, JSON_REAL_PRECISION(17));
        fputc('\n', file);
    }
    assert_int_equal(fclose(file), 0);
    json_decref(records);
    free(text);
}

/* Whether an audit of steps 4 to 8 tells of the alteration what it is. */
static bool is_noticed(const struct altered *altered)
{
    struct ls_audit_verdict verdict;
    struct ls_error error = {0};
    int64_t broken;
    altered_make(altered->alter);
    int status = audit("altered", 4, 8, &verdict, &broken, &error);
    if (status)
        fail_msg("%s: %s", altered->what, error.text);
    bool whole = !altered->broken && !altered->step && !altered->checkpoint;
    bool noticed = verdict.equal == whole && broken == altered->broken &&
                   verdict.check.step == altered->step &&
                   verdict.checkpoint_differs == altered->checkpoint;
    if (!noticed && twin == HONEST)
        print_error("%s: equal %d, chain broken at %ld, step %ld differs, checkpoint %d\n",
                    altered->what, verdict.equal, (long)broken, (long)verdict.check.step,
                    verdict.checkpoint_differs);
    return noticed;
}

static int unnoticed(void)
{
    int count = 0;
    for (int i = 0; i < ALTERED; i++)
        count += !is_noticed(&all_altered[i]);
    return count;
}

CASE(test_what_was_altered_is_found)
{
    assert_int_equal(unnoticed(), 0);
}

/* The same cases, each with a step that differs, pass unseen where nothing is compared in earnest.
 */
CASE(test_an_audit_that_never_differs_is_caught)
{
    int steps = 0;
    for (int i = 0; i < ALTERED; i++)
        steps += all_altered[i].step != 0;
    twin = NEVER_DIFFERS;
    int count = unnoticed();
    twin = HONEST;
    assert_int_equal(count, steps);
}

CASE(test_an_audit_that_compares_nothing_is_no_verdict)
{
    struct ls_audit_verdict verdict;
    struct ls_error error = {0};
    int64_t broken;
    twin = COMPARES_NOTHING;
    int status = audit("one", 4, 8, &verdict, &broken, &error);
    twin = HONEST;
    assert_int_equal(status, LS_EDATA);
    assert_non_null(strstr(error.text, "nothing was compared"));
    assert_false(verdict.equal);
}

/* A loss that is not finite is null in its record. */
CASE(test_losses_that_are_not_finite)
{
    expect("$L train $C train.out=lost train.steps=4 train.save_every=2 train.on_nonfinite=skip "
           "optim.lr=1000 optim.warmup_steps=0 numerics.precision=fp16",
           0, "skipped");
    expect("$L audit lost --steps 3..4 parallel.threads=1", 0, "equal; compared: 2 losses");
    expect("sed -i '/\"step\": 3,/s/\"loss\": null/\"loss\": 1.5/' lost/metrics.jsonl && "
           "$L audit lost --steps 3..4 parallel.threads=1",
           1, "its loss is not that of loss_bits");
}

/* Only the chain tells of records that were removed: without one they are missing, no more. */
CASE(test_records_without_a_chain)
{
    altered_make(unchain);
    expect("$L audit altered --steps 4..8", 0, "the records have no chain: an older version");
    assert_non_null(strstr(output, "steps 4 to 8: equal; compared: 5 losses"));
    assert_int_equal(shell("sed -i '/\"step\": 5,/d' altered/metrics.jsonl"), 0);
    expect("$L audit altered --steps 4..8", 0, "steps 4 to 8: equal; compared: 4 losses");
}

/* ---- runs that are whole --------------------------------------------------------------------- */

CASE(test_equal_in_drawn_layouts)
{
    struct ls_run_record run = {0};
    struct ls_config drawn, one;
    struct ls_error error = {0};
    assert_ok(ls_run_record_read(&run, at("one"), &error), error);
    for (uint64_t i = 0; i < 3; i++) {
        char keys[1024], line[1200];
        const struct ls_draw draw = {.seed = 7, .index = i, .ranks_max = 4};
        assert_true(ls_draw_layout(&run.config, &draw, &drawn));
        ls_compare_one_rank(&drawn, &one);
        ls_config_layout_text(&drawn, &one, keys, sizeof keys);
        snprintf(line, sizeof line, "$L audit one --steps 1..8 %s", keys);
        expect(line, 0,
               "steps 1 to 8: equal; compared: 8 losses, 8 gradient norms, 5 hashes, 8 ledgers of "
               "samples; hash at step "
               "8: ");
        assert_non_null(strstr(output, "the chain of 8 records is whole"));
        assert_non_null(strstr(output, "computing steps 1 to 8 again from the start, with "));
    }
    ls_run_record_release(&run);
}

/* Ranks have as many threads as the run's, unless they are told otherwise. */
CASE(test_threads_are_the_runs)
{
    static const char *const words[] = {"parallel.dp=2", "parallel.threads=2"};
    for (int threads = 1; threads <= 2; threads++) {
        const char *const keys[] = {words[threads - 1]};
        const struct ls_audit_request request = {at("one"), 1, 1, keys, 1, false};
        struct ls_audit audit;
        struct ls_error error = {0};
        assert_ok(ls_audit_open(&audit, &request, &error), error);
        assert_int_equal(audit.config.parallel.threads, threads);
        ls_audit_release(&audit);
    }
}

/* By default another layout than the run's, and the steps after the newest checkpoint but one. */
CASE(test_defaults)
{
    expect("$L audit one", 0,
           "steps 7 to 8: equal; compared: 2 losses, 2 gradient norms, 1 hash, 2 ledgers of "
           "samples;");
    assert_non_null(strstr(output, "from the checkpoint of step 6"));
    char *with = strstr(output, "again");
    assert_non_null(with);
    assert_null(strstr(with, "with parallel.dp=2:"));
    char *first = strdup(output);
    expect("$L audit one", 0, "equal");
    assert_string_equal(first, output);
    free(first);
    expect("$L audit one --steps 5", 0, "step 5: equal; compared: 1 loss, 1 gradient norm, 0 hash");
}

/* A run that was interrupted has one chain; so has one that goes on from another's checkpoint. */
CASE(test_resumed_runs)
{
    expect("cp -r one more && $L train $C model.layers=2 train.out=more train.steps=8 "
           "train.extend=2 train.save_every=3 log.hash_every=2 numerics.tp_tiles=4 parallel.tp=2 "
           "train.resume=auto",
           0, "hash ");
    expect("$L audit more --steps 7..10", 0, "the chain of 10 records is whole");
    assert_non_null(strstr(output, "steps 7 to 10: equal; compared: 4 losses"));
    expect("$L train $C model.layers=2 train.out=fork train.steps=8 numerics.tp_tiles=4 "
           "train.resume=one/checkpoints/step-00000006",
           0, "hash ");
    expect("$L audit fork", 0, "from the checkpoint of step 6");
    assert_non_null(strstr(output, "steps 7 to 8: equal; compared: 2 losses"));
    expect("sed -i 's/resume: .*/resume: auto/' fork/config.yaml && $L audit fork", 15,
           "the run went on from a checkpoint, and none from before step 7 is left");
}

/* ---- replays --------------------------------------------------------------------------------- */

/* An audit from the beginning; of a run that began with another one's checkpoint, from there. */
CASE(test_replays)
{
    expect("$L replay one parallel.tp=2", 0,
           "steps 1 to 8: equal; compared: 8 losses, 8 gradient norms, 5 hashes, 8 ledgers of");
    assert_non_null(strstr(output, "computing steps 1 to 8 again from the start, with parallel."));
    altered_make(alter_loss_and_chain);
    expect("$L replay altered parallel.dp=1", 1, "\nstep 5 differs: loss bits ");
    expect("$L train $C model.layers=2 train.out=branch train.steps=8 train.save_every=1 "
           "numerics.tp_tiles=4 train.resume=one/checkpoints/step-00000006",
           0, "hash ");
    expect("$L replay branch", 0, "steps 7 to 8: equal; compared: 2 losses");
    expect("sed -i 's/resume: .*/resume: auto/' branch/config.yaml && $L replay branch", 0,
           "step 8: equal; compared: 1 loss");
    assert_non_null(strstr(output, "computing step 8 again from the checkpoint of step 7"));
    expect("rm -r branch/checkpoints/step-00000007 && $L replay branch", 15,
           "the run went on from a checkpoint, and none from before step 7 is left");
    expect("$L replay one --steps 2..3", 2, "unknown option --steps");
    expect("$L replay", 2, "the directory of a run");
}

/* Gradients in the order in which they came, which the run's log has. */
CASE(test_replays_of_a_server_by_the_clock)
{
    expect("$L train $C train.out=server train.steps=8 async.mode=server async.workers=2 "
           "async.sync_every=4 async.order=clock parallel.workers=2 parallel.servers=1",
           0, "hash ");
    expect("mv server served && $L replay served parallel.workers=1", 0,
           "steps 1 to 8: equal; compared: 8 losses, 8 gradient norms, 1 hash, 8 ledgers");
    expect("$L replay served parallel.workers=2 parallel.tp=2", 0, "steps 1 to 8: equal");
    expect("sed -i 4d served/arrivals && $L replay served", ls_exit_code(LS_EDATA),
           "served/arrivals:4: event is 3: expected events without a gap, so 2");
    expect("rm served/arrivals && $L replay served", ls_exit_code(LS_EIO),
           "served/arrivals: cannot be opened");
}

/* ---- a step that differs --------------------------------------------------------------------- */

CASE(test_the_record_is_what_differs)
{
    altered_make(alter_loss);
    expect("$L audit altered --steps 4..8", 1,
           "the chain of the records is broken at step 5: the record of step 5 was altered");
    assert_non_null(strstr(output, "\nstep 5 differs: loss bits "));
    assert_non_null(strstr(output, "the run's own layout gives what was computed: the record, not "
                                   "the layout, is what differs\n"));
    altered_make(drop_record);
    expect("$L audit altered --steps 7..8", 1,
           "steps 7 to 8: computed as recorded, but the history "
           "is not whole; compared: 2 losses");
    altered_make(alter_start_and_chain);
    expect("$L audit altered --steps 4..8", 1,
           "the checkpoint of step 3 is not the state that was recorded: its hash is ");
}

CASE(test_a_bit_of_a_checkpoint)
{
    altered_make(chain_again);
    const char *name = at("altered/checkpoints/step-00000003/" SHARD);
    size_t bytes;
    char *data = scratch_read(name, &bytes);
    data[bytes - 5] ^= 1;
    scratch_write(name, data, bytes);
    free(data);
    expect("$L audit altered --steps 4..8", 15, "step-00000003/" SHARD);
    expect("$L audit altered --steps 7..8", 0, "equal");
}

/* The run `altered`: one, with an intact checkpoint of another run, which it has as its step 8. */
static void stray_make(void)
{
    expect("rm -rf elsewhere && $L train $C model.layers=2 train.out=elsewhere train.steps=8 "
           "model.seed=7 numerics.tp_tiles=4",
           0, "hash ");
    altered_make(chain_again);
    assert_int_equal(shell("rm -r altered/checkpoints/step-00000008 && "
                           "cp -r elsewhere/checkpoints/step-00000008 altered/checkpoints"),
                     0);
}

CASE(test_a_checkpoint_of_another_run)
{
    static const char stray[] = "is not the state that was recorded: its hash is ";
    stray_make();
    expect("$L audit altered --steps 7..8", 1, "the checkpoint of step 8 is not the state ");
    assert_non_null(strstr(output, "steps 7 to 8: computed as recorded, but the history is not"));
    expect("$L audit altered --steps 5..7", 0, "steps 5 to 7: equal");
    expect("$L diff one altered", 1, "the checkpoint of step 8 of B is not the state ");
    assert_non_null(strstr(output, stray));
    assert_null(strstr(output, "the records differ"));
    assert_null(strstr(output, "again"));
    expect("$L report one altered --output page.html && grep -c 'checkpoint of step 8 is not' "
           "page.html",
           0, "1");
    expect("rm -rf both && cp -r altered both && "
           "sed -i '/\"step\": 7,/s/\"loss_bits\": \"[^\"]*\"/\"loss_bits\": \"3f800000\"/' "
           "both/metrics.jsonl && rm -r both/checkpoints/step-00000004 && "
           "cp -r both/checkpoints/step-00000008 both/checkpoints/step-00000004; "
           "$L diff one both --no-rerun",
           1, "the records differ at step 7, in the loss");
    expect("echo '{\"step\": 8, \"event\": \"save\", \"changed\": 1}' >> altered/metrics.jsonl; "
           "$L diff one altered", /* what its program made of the state */
           0, "equal up to step 8");
}

/* ---- bad input ------------------------------------------------------------------------------- */

CASE(test_audit_refuses)
{
    expect("$L audit", 2, "the directory of a run");
    expect("$L audit nowhere", ls_exit_code(LS_EIO), "nowhere/config.yaml");
    expect("$L audit one --steps 9..12", 2,
           "steps 9..12: expected a first and a last step among "
           "those that one recorded, 1 to 8");
    expect("$L audit one --steps 0..3", 2, "--steps = 0..3");
    expect("$L audit one --steps 5..4", 2, "--steps = 5..4");
    expect("$L audit one --steps some", 2, "--steps = some");
    expect("$L audit one --steps 1...3", 2, "--steps = 1...3");
    expect("$L audit one parallel.tp=3", ls_exit_code(LS_ELAYOUT), "parallel.tp = 3");
    expect("$L audit one optim.lr=1", 2, "optim.lr: 0.003 here, 1 there");
    expect("$L audit one parallel.tb=3", 2, "parallel.tb");
    expect("mkdir -p away && mv corpus_train.* away && $L audit one", ls_exit_code(LS_EIO),
           "if the run's data lie elsewhere now, give data.train=PATH");
    expect("$L audit one data.train=away/corpus_train", 0, "steps 7 to 8: equal");
    expect("cp corpus_valid.bin corpus_train.bin; cp corpus_valid.idx corpus_train.idx; "
           "$L audit one",
           ls_exit_code(LS_EDATA),
           "corpus_train has other tokens, masks or weights than the run was trained on");
    expect("mv away/* .", 0, "");
}

SUITE_MAIN(run_setup, scratch_teardown)
