/* What the tests of workers share. */
#include "workers_run.h"
#include "../support/testing.h"

#include "../support/scratch.h"
#include "tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char common[] =
    "model.vocab=50 model.vocab_multiple=16 model.layers=3 model.channels=16 model.heads=2 "
    "model.context=8 data.sequence=8 batch.global=2 numerics.leaf_sequences=1 numerics.tp_tiles=2 "
    "numerics.precision=fp32 numerics.arithmetic=fma optim.lr=3e-3 optim.warmup_steps=0 "
    "train.steps=6 async.mode=diloco async.workers=4 async.sync_every=3 parallel.threads=1 "
    "log.tensorboard=false eval.samples=2 log.drift_every=0 train.save_every=3 log.hash_every=3";

int workers_setup(void **state)
{
    size_t bytes;
    if (tokens_setup(state))
        return -1;
    char *tokens = scratch_read(scratch_path(*state, "tokens.bin"), &bytes);
    scratch_write(scratch_path(*state, "more.bin"), tokens, bytes / 2);
    free(tokens);
    return 0;
}

const char *const workers_layouts[WORKERS_LAYOUTS] = {
    "",
    "parallel.dp=2",
    "parallel.tp=2",
    "parallel.pp=2",
    "parallel.dp_shard=2 parallel.zero=1",
    "parallel.dp_shard=2 parallel.zero=2",
    "parallel.dp_shard=2 parallel.zero=3",
    "parallel.tp=2 parallel.dp=2",
    "parallel.pp=2 parallel.dp_shard=2 parallel.zero=1",
    "parallel.cp=2",
    "parallel.cp=2 parallel.cp_method=ring parallel.zero=1",
};

static int words_set(struct ls_config *config, struct ls_error *error, const char *words)
{
    char text[2048], *save = NULL;
    int status = LS_OK;
    assert_true(snprintf(text, sizeof text, "%s", words) < (int)sizeof text);
    for (char *word = strtok_r(text, " ", &save); word && !status;
         word = strtok_r(NULL, " ", &save))
        status = ls_config_set(config, word, error);
    return status;
}

int workers_config_try(struct ls_config *config, struct ls_error *error, const char *directory,
                       const char *words)
{
    bool blend = !strncmp(words, "blend ", 6);
    char data[1024], valid[600], out[600];
    snprintf(out, sizeof out, "train.out=%s/run", directory);
    snprintf(valid, sizeof valid, "data.valid=u16:%s/valid.bin", directory);
    if (blend)
        snprintf(data, sizeof data, "data.blend=0.7 u16:%s/tokens.bin 0.3 u16:%s/more.bin",
                 directory, directory);
    else
        snprintf(data, sizeof data, "data.train=u16:%s/tokens.bin", directory);
    ls_config_defaults(config);
    int status = words_set(config, error, common);
    if (!status)
        status = ls_config_set(config, data, error);
    if (!status)
        status = ls_config_set(config, valid, error);
    if (!status)
        status = ls_config_set(config, out, error);
    if (!status)
        status = words_set(config, error, blend ? words + 6 : words);
    return status ? status : ls_train_resolve(config, error);
}

struct ls_config workers_config(const char *directory, const char *format, ...)
{
    struct ls_config config;
    struct ls_error error = {0};
    char words[2048];
    va_list arguments;
    va_start(arguments, format);
    assert_true(vsnprintf(words, sizeof words, format, arguments) < (int)sizeof words);
    va_end(arguments);
    assert_ok(workers_config_try(&config, &error, directory, words), error);
    return config;
}

/* ---- a run ----------------------------------------------------------------------------------- */

static void say(void *user, enum ls_log_level level, const char *line)
{
    struct workers_run *run = user;
    size_t used = strlen(run->said);
    if (level <= LS_LOG_WARNING)
        snprintf(run->said + used, sizeof run->said - used, "%s\n", line);
}

static struct workers_told told_of(const struct ls_step_report *r)
{
    struct workers_told told = {.loss = r->loss_bits,
                                .grad_norm = r->grad_norm,
                                .outer_norm = r->outer.norm,
                                .samples = r->samples,
                                .sequences = r->sequences,
                                .counted = r->counted,
                                .worker = r->push.worker,
                                .clock = r->push.clock,
                                .ticket = r->push.ticket,
                                .staleness = r->push.staleness,
                                .fragment = r->outer.fragment};
    if (r->source_losses)
        memcpy(told.source_losses, r->source_losses, sizeof told.source_losses);
    memcpy(told.ledger, r->ledger, sizeof told.ledger);
    return told;
}

/* running: NULL, or that of the trainer. */
static int step(struct ls_trainer *t, struct ls_running *running, struct workers_run *run,
                bool first, struct ls_error *error)
{
    struct ls_step_report report;
    struct ls_digest digest;
    int status =
        running ? ls_run_step(running, NULL, &report, error) : ls_trainer_step(t, &report, error);
    struct ls_eval_report evaluation = {0};
    bool meets = ls_trainer_meets(t);
    if (!status && meets)
        status = ls_trainer_hash(t, &digest, error);
    if (!status && meets && run->evaluate)
        status = ls_trainer_evaluate(t, &evaluation, error);
    if (status || !first)
        return status;
    run->told[report.step - 1] = told_of(&report);
    run->told[report.step - 1].evaluation = (double)evaluation.loss;
    if (meets)
        ls_digest_hex(&digest, run->hash[report.step - 1]);
    return LS_OK;
}

static int body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct workers_run *run = user;
    struct ls_trainer *t = NULL;
    bool first = ls_comm_rank(world) == 0, resumed = false;
    const struct ls_log log = {.level_max = LS_LOG_WARNING, .write = say, .user = run};
    int status = ls_trainer_new(&run->config, world, first ? &log : NULL, &t, error);
    if (!status && run->made)
        run->made(t);
    if (!status && run->resume)
        status = ls_trainer_resume(t, &resumed, error);
    if (!status && run->resume && !resumed)
        status = ls_error_set(error, LS_ECKPT, "nothing to go on from");
    if (!status && first)
        run->first = (int)ls_trainer_steps(t);
    while (!status && ls_trainer_steps(t) < run->steps)
        status = step(t, NULL, run, first, error);
    if (!status && run->save)
        status = ls_trainer_save(t, error);
    ls_trainer_free(t);
    return status;
}

static int whole_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct workers_run *run = user;
    struct ls_running *running = NULL;
    bool first = ls_comm_rank(world) == 0;
    const struct ls_log log = {.level_max = LS_LOG_WARNING, .write = say, .user = run};
    int status = ls_run_open(&run->config, world, first ? &log : NULL, NULL, &running, error);
    struct ls_trainer *t = running ? ls_run_trainer(running) : NULL;
    if (!status && first)
        run->first = (int)ls_trainer_steps(t);
    while (!status && !ls_run_ended(running) && ls_trainer_steps(t) < run->steps)
        status = step(t, running, run, first, error);
    if (!status && first)
        run->steps = (int)ls_trainer_steps(t);
    return ls_run_close(running, status, error);
}

int workers_run(struct workers_run *run)
{
    if (run->steps == 0)
        run->steps = (int)run->config.train.steps;
    assert_true(run->steps <= WORKERS_STEPS_MAX);
    return ls_world_run((int)ls_config_ranks(&run->config), run->whole ? whole_body : body, run,
                        &run->error);
}

void workers_run_well(struct workers_run *run)
{
    if (workers_run(run))
        fail_msg("%s", run->error.text);
}

const char *workers_difference(const struct workers_run *a, const struct workers_run *b)
{
    static _Thread_local char text[200];
    int from = a->first > b->first ? a->first : b->first;
    int to = a->steps < b->steps ? a->steps : b->steps;
    for (int i = from; i < to; i++) {
        const struct workers_told *x = &a->told[i], *y = &b->told[i];
        if (x->loss != y->loss)
            snprintf(text, sizeof text, "step %d: loss %08x, expected %08x", i + 1, y->loss,
                     x->loss);
        else if (memcmp(x, y, sizeof *x))
            snprintf(text, sizeof text,
                     "step %d: norms, samples, sources, ledger or "
                     "evaluation differ",
                     i + 1);
        else if (strcmp(a->hash[i], b->hash[i]))
            snprintf(text, sizeof text, "step %d: hash %s, expected %s", i + 1, b->hash[i],
                     a->hash[i]);
        else
            continue;
        return text;
    }
    return NULL;
}

void workers_expect_alike(const struct workers_run *a, const struct workers_run *b,
                          const char *what)
{
    const char *difference = workers_difference(a, b);
    if (difference)
        fail_msg("%s: %s", what, difference);
}

/* ---- the same again -------------------------------------------------------------------------- */

struct ls_audit_verdict workers_audit(const char *directory, int steps)
{
    static const char *const keys[] = {"parallel.workers=1"};
    static struct ls_audit audit;
    struct ls_audit_request request = {scratch_path(directory, "run"), 0, 0, keys, 1, true};
    struct ls_audit_verdict verdict = {0};
    struct ls_rerun *again = NULL;
    struct ls_error error = {0};
    audit = (struct ls_audit){0};
    int status = ls_audit_open(&audit, &request, &error);
    if (!status)
        status = ls_rerun_new(&audit.config, audit.checkpoint, INT64_MAX, steps, &again, &error);
    if (!status)
        status = ls_audit_judge(&audit, again, &verdict, &error);
    if (status)
        fail_msg("%s", error.text);
    ls_rerun_free(again);
    ls_audit_release(&audit);
    return verdict;
}

void workers_expect_audit(const char *directory, int steps, int hashes)
{
    struct ls_audit_verdict verdict = workers_audit(directory, steps);
    assert_true(verdict.equal);
    assert_int_equal(verdict.check.losses, steps);
    assert_int_equal(verdict.check.hashes, hashes);
}
