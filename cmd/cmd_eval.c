/* lockstep eval: what a finished run makes of data, a text, requests or multiple choices. */
#include "finished.h"
#include "lines.h"

#include <lockstep/base/words.h>
#include <lockstep/config/inputs.h>

#include <math.h>
#include <stdlib.h>

/* What was asked, and on the process of rank 0 what came out. */
struct evaluated {
    struct ls_encode_options encode; /* of --text and --requests */
    int64_t samples;
    const char *text, *ids, *requests, *choices, *logprobs, *output;
    bool truncate;
    bool here;
    int64_t step;
    struct ls_eval_report report;
    struct ls_choice_report chosen;
};

/* One rank's view of it. */
struct evaluating {
    struct finished_job *job;
    struct evaluated *asked;
    struct ls_finished *finished;
    struct ls_runner *runner;
    struct ls_comm *world;
    bool first;
    struct cmd_lines lines; /* of the first rank: of tokens */
};

static int agreed(const struct evaluating *e, int status, struct ls_error *error)
{
    return ls_comm_agree(e->world, status, error);
}

/* ---- a token store --------------------------------------------------------------------------- */

/* Samples of whole documents: the one that was read last. */
struct packed {
    const struct ls_token_store *store;
    int64_t tokens, vocabulary;
    int32_t *ids; /* [2, tokens]: inputs, targets */
};

static int packed_open(struct packed *p, const struct ls_token_store *store, int64_t tokens,
                       int64_t vocabulary, struct ls_error *error)
{
    *p = (struct packed){.store = store, .tokens = tokens, .vocabulary = vocabulary};
    p->ids = calloc((size_t)tokens, 2 * sizeof *p->ids);
    if (!p->ids)
        return ls_no_memory(error, "for a sequence of %ld tokens", (long)tokens);
    return LS_OK;
}

/* Target i of all samples; -1: it does not count, or is padding. Asked for in ascending order. */
static int packed_target(struct packed *p, int64_t i, int32_t *id, struct ls_error *error)
{
    int32_t *targets = p->ids + p->tokens;
    int status = i % p->tokens == 0 ? ls_sample_read(p->store, i / p->tokens, p->tokens,
                                                     p->vocabulary, p->ids, targets, error)
                                    : LS_OK;
    *id = targets[i % p->tokens];
    return status;
}

static int store_lines(struct evaluating *e, const struct ls_token_store *store,
                       const struct ls_eval_report *report, const float *logprobs,
                       struct ls_error *error)
{
    int64_t tokens = e->job->config.data.sequence,
            vocabulary = ls_finished_model(e->finished)->vocab;
    int status = LS_OK;
    struct packed packed = {0};
    if (ls_token_store_packed(store))
        status = packed_open(&packed, store, tokens, vocabulary, error);
    for (int64_t i = 0; i < report->sequences * tokens && !status; i++) {
        int32_t id;
        if (packed.tokens)
            status = packed_target(&packed, i, &id, error);
        else
            status = ls_token_store_read(store, i + 1, 1, vocabulary, &id, error);
        if (!status && id < 0)
            continue;
        if (status)
            break;
        cmd_lines_begin(&e->lines);
        cmd_lines_int(&e->lines, "sequence", i / tokens);
        cmd_lines_int(&e->lines, "position", i % tokens + 1);
        cmd_lines_token(&e->lines, ls_finished_tokenizer(e->finished), id, !isnan(logprobs[i]),
                        logprobs[i]);
        status = cmd_lines_end(&e->lines, error);
    }
    free(packed.ids);
    return status;
}

static int store_evaluate(struct evaluating *e, struct ls_error *error)
{
    struct finished_job *job = e->job;
    const char *own = job->config.data.valid, *data = job->data ? job->data : own;
    struct ls_token_store *store = NULL;
    float *logprobs = NULL;
    struct ls_eval_report *report = &e->asked->report, mine;
    int status = data[0]
                     ? ls_tokenizer_stores_check(ls_finished_tokenizer(e->finished), data, error)
                     : ls_error_set(error, LS_ECONFIG,
                                    job->data ? "DATA is empty: expected a token store"
                                              : "the run has no data.valid: name a token store "
                                                "behind it, or give --text FILE");
    if (!status)
        status = ls_config_store(&job->config, data, &store, error);
    status = agreed(e, status, error);
    if (!status)
        status = ls_runner_evaluate(e->runner, store, e->asked->samples, &mine,
                                    e->asked->logprobs ? &logprobs : NULL, error);
    if (data == own && (status == LS_EIO || status == LS_EDATA))
        ls_config_blame(&job->config, "data.valid", error);
    else if (status == LS_EIO || status == LS_EDATA)
        ls_error_prefix(error, "DATA");
    if (data != own && status == LS_EDATA && !store)
        ls_error_suffix(error, "; a text as it is: --text FILE");
    if (data == own && status == LS_EIO)
        ls_error_suffix(error, ". If the data was moved, name it: lockstep eval %s DATA",
                        job->args->word[0]);
    if (!status && e->first)
        *report = mine;
    if (!status && logprobs && e->first)
        status = store_lines(e, store, &mine, logprobs, error);
    ls_token_store_close(store);
    free(logprobs);
    return status;
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* A text's tokens and what is found of them. */
struct texts {
    struct ls_text_requests requests;
    struct ls_request_score *scores;
};

static int texts_score(struct evaluating *e, struct texts *t, struct ls_error *error)
{
    return ls_runner_score_requests(e->runner, &t->requests, e->asked->truncate, &t->scores, error);
}

static void texts_release(struct texts *t)
{
    ls_request_scores_free(t->scores, t->requests.count);
    ls_requests_release(&t->requests);
}

/* The tokens of request i: a text's first one has none before it. */
static int token_lines(struct evaluating *e, const struct texts *t, int64_t i, bool numbered,
                       struct ls_error *error)
{
    const struct ls_text_request *request = &t->requests.list[i];
    int status = LS_OK;
    for (int64_t k = 0; k < request->tokens.count && !status; k++) {
        bool known = k >= request->first;
        cmd_lines_begin(&e->lines);
        if (numbered)
            cmd_lines_int(&e->lines, "index", i);
        cmd_lines_int(&e->lines, "position", k);
        cmd_lines_token(&e->lines, ls_finished_tokenizer(e->finished), request->tokens.ids[k],
                        known, known ? t->scores[i].logprobs[k] : 0);
        status = cmd_lines_end(&e->lines, error);
    }
    return status;
}

/* The one text of a file, as its tokens stand there. */
static int text_read(const struct evaluating *e, struct ls_text_requests *out,
                     struct ls_error *error)
{
    const struct evaluated *asked = e->asked;
    int64_t vocabulary = ls_finished_model(e->finished)->vocab;
    const struct ls_text_reader reader = {.tokenizer = ls_finished_tokenizer(e->finished),
                                          .vocabulary = vocabulary,
                                          .encode = asked->encode};
    struct ls_token_list tokens;
    int status = asked->ids ? ls_token_lines_read(asked->ids, vocabulary, &tokens, error)
                            : ls_token_text_read(asked->text, &reader, &tokens, error);
    if (status)
        return status;
    out->list = calloc(1, sizeof *out->list);
    if (!out->list) {
        ls_token_list_release(&tokens);
        return ls_no_memory(error, "for a text");
    }
    out->count = 1;
    out->list[0] = (struct ls_text_request){.line = 1, .tokens = tokens, .first = 1, .whole = true};
    return LS_OK;
}

static void text_report(const struct evaluating *e, const struct texts *t)
{
    const struct ls_request_score *score = &t->scores[0];
    const struct ls_token_list *tokens = &t->requests.list[0].tokens;
    const struct ls_tokenizer *tokenizer = ls_finished_tokenizer(e->finished);
    struct ls_eval_report *report = &e->asked->report;
    struct ls_error ignored = {0};
    struct ls_text text = {0};
    *report = (struct ls_eval_report){.loss = -score->loglikelihood / (double)score->tokens,
                                      .sequences = 1,
                                      .tokens = score->tokens};
    if (tokenizer && !ls_decode(tokenizer, tokens->ids + 1, tokens->count - 1, &text, &ignored) &&
        text.count)
        report->bits_per_byte = -score->loglikelihood / log(2) / (double)text.count;
    ls_text_release(&text);
}

static int text_evaluate(struct evaluating *e, struct ls_error *error)
{
    struct texts t = {0};
    int status = agreed(e, text_read(e, &t.requests, error), error);
    if (!status)
        status = texts_score(e, &t, error);
    if (!status && e->first) {
        text_report(e, &t);
        if (e->asked->logprobs)
            status = token_lines(e, &t, 0, false, error);
    }
    texts_release(&t);
    return status;
}

static int request_lines(struct evaluating *e, const struct texts *t, struct ls_error *error)
{
    struct cmd_lines out;
    int status = cmd_lines_open(&out, e->asked->output, error);
    for (int64_t i = 0; i < t->requests.count && !status; i++) {
        cmd_lines_begin(&out);
        cmd_lines_int(&out, "index", i);
        cmd_lines_double(&out, "loglikelihood", t->scores[i].loglikelihood);
        cmd_lines_bool(&out, "is_greedy", t->scores[i].likeliest);
        cmd_lines_int(&out, "tokens", t->scores[i].tokens);
        status = cmd_lines_end(&out, error);
        if (!status && e->asked->logprobs)
            status = token_lines(e, t, i, true, error);
    }
    if (!status)
        status = cmd_lines_close(&out, error);
    cmd_lines_abort(&out);
    return status;
}

static int requests_evaluate(struct evaluating *e, struct ls_error *error)
{
    struct texts t = {0};
    const char *path = e->asked->requests;
    const struct ls_text_reader reader = {.tokenizer = ls_finished_tokenizer(e->finished),
                                          .vocabulary = ls_finished_model(e->finished)->vocab,
                                          .encode = e->asked->encode};
    int status = ls_requests_read(path, LS_SCORES, &reader, &t.requests, error);
    status = agreed(e, status, error);
    if (!status) {
        status = texts_score(e, &t, error);
        if (status == LS_EDATA)
            ls_error_prefix(error, "%.300s", path);
    }
    if (!status && e->first)
        status = request_lines(e, &t, error);
    texts_release(&t);
    return status;
}

/* ---- multiple choice ------------------------------------------------------------------------- */

static int choices_evaluate(struct evaluating *e, struct ls_error *error)
{
    struct ls_choices choices;
    struct ls_choice_report report;
    int status = ls_choices_read(e->asked->choices, &choices, error);
    status = agreed(e, status, error);
    if (!status) {
        status = ls_runner_score_choices(e->runner, &choices, e->asked->samples, &report, error);
        if (status == LS_EDATA)
            ls_error_prefix(error, "%.300s", e->asked->choices);
    }
    if (!status && e->first)
        e->asked->chosen = report;
    ls_choices_release(&choices);
    return status;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int evaluate(struct finished_job *job, struct ls_finished *finished, struct ls_comm *world,
                    struct ls_error *error)
{
    struct evaluated *asked = job->user;
    struct evaluating e = {.job = job,
                           .asked = asked,
                           .finished = finished,
                           .runner = ls_finished_runner(finished),
                           .world = world,
                           .first = ls_comm_rank(world) == 0};
    int status =
        e.first && asked->logprobs ? cmd_lines_open(&e.lines, asked->logprobs, error) : LS_OK;
    status = agreed(&e, status, error);
    if (!status)
        status = asked->requests             ? requests_evaluate(&e, error)
                 : asked->choices            ? choices_evaluate(&e, error)
                 : asked->text || asked->ids ? text_evaluate(&e, error)
                                             : store_evaluate(&e, error);
    if (!status && e.first && asked->logprobs)
        status = cmd_lines_close(&e.lines, error);
    cmd_lines_abort(&e.lines);
    if (!status && e.first) {
        asked->here = true;
        asked->step = ls_finished_step(finished);
    }
    return status;
}

static void report_print(const struct evaluated *out)
{
    const struct ls_eval_report *report = &out->report;
    printf("step %ld  ", (long)out->step);
    if (out->choices) {
        double examples = (double)out->chosen.examples;
        printf("%s  accuracy %.4f by mean log-probability (%ld right)  %.4f by sum (%ld right)\n",
               ls_counted(out->chosen.examples, "example").text,
               (double)out->chosen.right / examples, (long)out->chosen.right,
               (double)out->chosen.right_by_sum / examples, (long)out->chosen.right_by_sum);
        return;
    }
    printf("%s  %s  loss %.6f nats per token  perplexity %.3f",
           ls_counted(report->sequences, out->text || out->ids ? "text" : "sequence").text,
           ls_counted(report->tokens, "token").text, ls_shown(report->loss),
           ls_shown(__builtin_exp(report->loss)));
    if (report->bits_per_byte > 0)
        printf("  %.4f bits per byte", report->bits_per_byte);
    putchar('\n');
}

/* One thing is evaluated at a time. */
static int asked_check(const struct finished_job *job, const struct evaluated *asked,
                       struct ls_error *error)
{
    const char *const given[] = {asked->text ? "--text" : NULL, asked->ids ? "--ids" : NULL,
                                 asked->requests ? "--requests" : NULL,
                                 asked->choices ? "--choices" : NULL};
    const char *encoding = cmd_args_given(job->args, "--no-special-tokens") ? "--no-special-tokens"
                           : cmd_args_value(job->args, "--special-tokens")  ? "--special-tokens"
                                                                            : NULL;
    const char *one = NULL;
    for (int i = 0; i < 4; i++) {
        if (one && given[i])
            return ls_error_set(error, LS_ECONFIG, "%s and %s: expected one of them", one,
                                given[i]);
        one = given[i] ? given[i] : one;
    }
    if (one && job->data)
        return ls_error_set(error, LS_ECONFIG, "%s and DATA (%.200s): expected one of them", one,
                            job->data);
    if (asked->samples && one && !asked->choices)
        return ls_error_set(error, LS_ECONFIG, "--samples goes with DATA and with --choices");
    if ((asked->output || asked->truncate) && !asked->requests)
        return ls_error_set(error, LS_ECONFIG, "%s goes with --requests FILE alone",
                            asked->output ? "--output" : "--truncate");
    if (encoding && !asked->text && !asked->requests)
        return ls_error_set(error, LS_ECONFIG, "%s goes with --text FILE and --requests FILE",
                            encoding);
    if (asked->logprobs && asked->choices)
        return ls_error_set(error, LS_ECONFIG, "--choices has no --logprobs");
    return LS_OK;
}

int cmd_eval(const struct cmd_args *args, struct ls_error *error)
{
    static struct finished_job job;
    struct evaluated out = {.text = cmd_args_value(args, "--text"),
                            .ids = cmd_args_value(args, "--ids"),
                            .requests = cmd_args_value(args, "--requests"),
                            .choices = cmd_args_value(args, "--choices"),
                            .logprobs = cmd_args_value(args, "--logprobs"),
                            .output = cmd_args_value(args, "--output"),
                            .truncate = cmd_args_given(args, "--truncate")};
    job = (struct finished_job){.args = args, .use = LS_TO_EVALUATE, .act = evaluate, .user = &out};
    int status = cmd_args_int(args, "--samples", 1, INT64_MAX, &out.samples, error);
    if (!status)
        status = finished_encode(args, &out.encode, error);
    if (!status)
        status = finished_words(&job, error);
    if (!status)
        status = asked_check(&job, &out, error);
    if (!status)
        status = finished_run(&job, error);
    if (!status && out.here && !out.requests)
        report_print(&out);
    return status;
}
