/* Verbs of a run: open, steps, what is read of it, close. */
#include "session/tools.h"

#include <lockstep/config/inputs.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- open and close -------------------------------------------------------------------------- */

static int configure_alone(struct ls_session *s, struct ls_error *error)
{
    struct ls_config config;
    char *yaml = NULL;
    int status = tool_config(s, false, &config, error);
    if (!status)
        status = ls_config_text(&config, &yaml, error);
    if (!status) {
        answer_set(s, "yaml", json_string(yaml));
        answer_set(s, "ranks", json_integer(ls_config_ranks(&config)));
    }
    free(yaml);
    return status;
}

static int open_alone(struct ls_session *s, struct ls_error *error)
{
    s->model = false;
    int status = tool_config(s, false, &s->config, error);
    if (!status)
        ls_config_anchor(&s->config); /* the program may change its working directory */
    return status;
}

static int open_run(struct rank *rank, struct ls_error *error)
{
    struct ls_config *config = &rank->session->config;
    int status = LS_OK;
    if (rank->first || ls_comm_transport(rank->world) == LS_TRANSPORT_MPI)
        status = ls_train_spread(config, rank->world, NULL, error);
    if (!status)
        status = ls_config_rollout_check(config, ls_comm_size(rank->world), NULL, error);
    if (status)
        ls_error_unplace(error);                        /* before the rank's number stands there */
    status = ls_comm_agree(rank->world, status, error); /* each process has its own keys */
    if (!status)
        status = ls_run_open(config, rank->world, &rank->log, &rank->hooks, &rank->run, error);
    if (status)
        return status;
    rank->trainer = ls_run_trainer(rank->run);
    describe(rank);
    return LS_OK;
}

static int close_run(struct rank *rank, struct ls_error *error)
{
    int64_t step = rank->trainer ? ls_trainer_steps(rank->trainer) : 0;
    int status = rank->run ? ls_run_close(rank->run, LS_OK, error) : LS_OK;
    bool stopped = status == LS_ESTOPPED; /* by ls_session_stop: that it has saved is no failure */
    status = stopped ? LS_OK : status;
    rank->run = NULL;
    rank->trainer = NULL;
    if (rank->speaks)
        answer_set(rank->session, "step", json_integer(step));
    if (rank->speaks)
        answer_set(rank->session, "stopped", json_boolean(stopped));
    return status;
}

/* ---- a step ---------------------------------------------------------------------------------- */

static void report_answer(struct rank *rank, const struct ls_step_report *r)
{
    struct ls_session *s = rank->session;
    if (!rank->speaks)
        return;
    s->report = (struct ls_session_report){
        .step = r->step,
        .samples = r->samples,
        .tokens = r->tokens,
        .sequences = r->sequences,
        .loss = (double)r->loss,
        .grad_norm = r->grad_norm,
        .loss_scale = r->loss_scale,
        .lr = (double)r->lr,
        .step_s = r->step_s,
        .tokens_per_s = r->tokens_per_s,
        .peak_share = r->peak_share,
        .weight = r->weighted ? r->weight : (double)NAN,
        .counted = r->counted,
        .skipped = r->skipped,
        .ended = ls_run_ended(rank->run),
    };
    if (r->hashed)
        memcpy(s->report.hash, r->hash, sizeof s->report.hash);
    s->reported = true;
}

/* inputs and targets [sequences, tokens], weights of the targets and of entropies, and "sum". */
static int batch_check(struct ls_session *s, struct ls_error *error)
{
    const struct order *order = &s->order;
    const struct ls_array *inputs = order_array(order, "inputs");
    static const struct {
        const char *name, *dtype;
    } others[] = {{"targets", "i4"}, {"weights", "f4"}, {"entropy_weights", "f4"}};
    bool sum = false;
    const struct option options[] = {{"sum", .flag = &sum}, {0}};
    int status = options_read(order, options, error);
    if (!status && sum && !inputs)
        status = ls_error_set(error, LS_EINVAL,
                              "%s: sum: expected a batch with it: it says how the batch's losses "
                              "are added",
                              order->verb->name);
    if (!status)
        status = order_array_check(order, "inputs", "i4", 2, error);
    for (size_t i = 0; i < sizeof others / sizeof *others && !status; i++) {
        const struct ls_array *array = order_array(order, others[i].name);
        status = order_array_check(order, others[i].name, others[i].dtype, 2, error);
        if (!status && array &&
            (!inputs || array->shape[0] != inputs->shape[0] || array->shape[1] != inputs->shape[1]))
            status = ls_error_set(error, LS_EINVAL, "%s: %s: expected the shape of inputs",
                                  order->verb->name, others[i].name);
    }
    if (!status && inputs && !order_array(order, "targets"))
        status = ls_error_set(error, LS_EINVAL, "%s: targets: expected those of the inputs",
                              order->verb->name);
    return status;
}

static int backward_check(struct ls_session *s, struct ls_error *error)
{
    return order_array(&s->order, "inputs")
               ? batch_check(s, error)
               : ls_error_set(error, LS_EINVAL, "backward: inputs: expected a batch");
}

/* False: none was given. */
static bool batch_read(const struct order *order, struct ls_given_batch *batch)
{
    const struct ls_array *inputs = order_array(order, "inputs"),
                          *weights = order_array(order, "weights"),
                          *entropy_weights = order_array(order, "entropy_weights");
    *batch = (struct ls_given_batch){0};
    if (!inputs)
        return false;
    batch->sequences = inputs->shape[0];
    batch->tokens = inputs->shape[1];
    batch->inputs = inputs->data;
    batch->targets = order_array(order, "targets")->data;
    batch->weights = weights ? weights->data : NULL;
    batch->entropy_weights = entropy_weights ? entropy_weights->data : NULL;
    return true;
}

/* A batch that is refused leaves all as it was. */
static bool refused(const struct ls_given_batch *batch, int status)
{
    return batch && (status == LS_EINVAL || status == LS_EDATA || status == LS_ECONFIG);
}

static int run_over(const struct rank *rank, struct ls_error *error)
{
    const long long done = ls_trainer_steps(rank->trainer);
    const long long steps = ls_config_steps(&rank->session->config);
    if (done < steps)
        return ls_error_set(
            error, LS_EINVAL,
            "the run was stopped after step %lld of %lld: close it, and open it with "
            "train.resume=auto to go on",
            done, steps);
    return ls_error_set(error, LS_EINVAL,
                        "the run has ended at step %lld: no step follows; train.extend adds more",
                        done);
}

static int step_run(struct rank *rank, struct ls_error *error)
{
    struct ls_step_report report = {0};
    struct ls_given_batch given, *batch = NULL;
    if (ls_run_ended(rank->run))
        return run_over(rank, error);
    const struct option options[] = {{"sum", .flag = &given.sum}, {0}};
    if (batch_read(&rank->session->order, &given))
        batch = &given;
    int status = options_read(&rank->session->order, options, error);
    if (status)
        return status;
    if (!batch && !ls_run_waits(rank->run) && !ls_config_has_data(&rank->session->config))
        return ls_config_require_data(&rank->session->config, error);
    status = ls_run_step(rank->run, batch, &report, error);
    rank->lost = status && status != LS_ESTOPPED && !refused(batch, status);
    if (!status)
        report_answer(rank, &report);
    return status;
}

static int backward_run(struct rank *rank, struct ls_error *error)
{
    struct ls_session *s = rank->session;
    struct ls_step_report report = {0};
    struct ls_given_batch batch;
    void *logprobs = NULL, *entropies = NULL;
    if (ls_run_ended(rank->run))
        return run_over(rank, error);
    batch_read(&s->order, &batch);
    double temperature = 1;
    const struct option options[] = {{"sum", .flag = &batch.sum}, {0}};
    int status = options_read(&s->order, options, error);
    if (!status)
        status = option_temperature(&s->order, &temperature, error);
    batch.temperature = (float)temperature;
    const int64_t *shape = order_array(&s->order, "inputs")->shape;
    if (!status && rank->speaks)
        status = answer_array(s, "logprobs", "f4", 2, shape, &logprobs, true, error);
    if (!status && rank->speaks && batch.entropy_weights)
        status = answer_array(s, "entropies", "f4", 2, shape, &entropies, true, error);
    status = ls_comm_agree(rank->world, status, error);
    if (status)
        return status;
    batch.logprobs = logprobs;
    batch.entropies = entropies;
    status = ls_trainer_backward(rank->trainer, &batch, &report, error);
    rank->lost = status && !refused(&batch, status);
    if (!status)
        report_answer(rank, &report);
    return status;
}

static int discard_run(struct rank *rank, struct ls_error *error)
{
    (void)error;
    ls_trainer_discard(rank->trainer);
    return LS_OK;
}

/* ---- what is read of it ---------------------------------------------------------------------- */

static int hash_run(struct rank *rank, struct ls_error *error)
{
    struct ls_digest digest;
    char hash[33];
    int status = ls_trainer_hash(rank->trainer, &digest, error);
    ls_digest_hex(&digest, hash);
    if (!status && rank->speaks)
        answer_set(rank->session, "hash", json_string(hash));
    return status;
}

static int save_run(struct rank *rank, struct ls_error *error)
{
    int status = ls_run_save(rank->run, error);
    if (!status && rank->speaks)
        answer_set(rank->session, "step", json_integer(ls_trainer_steps(rank->trainer)));
    return status;
}

static int evaluate_run(struct rank *rank, struct ls_error *error)
{
    struct ls_eval_report r;
    int status = ls_trainer_evaluate(rank->trainer, &r, error);
    if (status || !rank->speaks)
        return status;
    answer_set(rank->session, "loss", real_json(r.loss));
    answer_set(rank->session, "bits_per_byte", real_json(r.bits_per_byte));
    answer_set(rank->session, "sequences", json_integer(r.sequences));
    answer_set(rank->session, "tokens", json_integer(r.tokens));
    return LS_OK;
}

static int load_run(struct rank *rank, struct ls_error *error)
{
    const char *from = NULL;
    const struct option options[] = {{"from", .text = &from, .needs = "a model's folder"}, {0}};
    int status = options_read(&rank->session->order, options, error);
    return status ? status : ls_trainer_load(rank->trainer, from, error);
}

const struct verb verbs_run[] = {
    {"configure", "config|keys", "", VERB_ALONE, .alone = configure_alone},
    {"open", "config|keys", "", VERB_STARTS, .alone = open_alone, .run = open_run},
    {"step", "sum", "inputs|targets|weights", VERB_RANKS, true, .check = batch_check,
     .run = step_run},
    {"backward", "sum|temperature", "inputs|targets|weights|entropy_weights", VERB_RANKS, true,
     .check = backward_check, .run = backward_run},
    {"discard", "", "", VERB_RANKS, true, .run = discard_run},
    {"hash", "", "", VERB_RANKS, true, .run = hash_run},
    {"save", "", "", VERB_RANKS, true, .run = save_run},
    {"evaluate", "", "", VERB_RANKS, true, .interrupted = true, .run = evaluate_run},
    {"load", "from", "", VERB_RANKS, true, .one_model = true, .run = load_run},
    {"close", "", "", VERB_ENDS, .run = close_run},
    {0}};
