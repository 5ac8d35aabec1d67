/* Verbs of texts: what a model writes, and how likely it finds what is written. */
#include "session/session_private.h"

#include <lockstep/base/file.h>
#include <lockstep/base/words.h>
#include <lockstep/interop.h>

#include <float.h>
#include <stdlib.h>
#include <string.h>

/* ---- prompts --------------------------------------------------------------------------------- */

int rows_check(struct ls_session *s, struct ls_error *error)
{
    const struct order *order = &s->order;
    const struct ls_array *ids = order_array(order, "ids"),
                          *lengths = order_array(order, "lengths");
    int status = order_array_check(order, "ids", "i4", 2, error);
    if (!status)
        status = order_array_check(order, "lengths", "i4", 1, error);
    if (status)
        return status;
    if (!ids || !lengths || lengths->shape[0] != ids->shape[0])
        return ls_error_set(error, LS_EINVAL, "%s: expected ids [n, tokens] and lengths [n]",
                            order->verb->name);
    for (int64_t i = 0; i < ids->shape[0]; i++) {
        int32_t length = ((const int32_t *)lengths->data)[i];
        if (length < 1 || length > ids->shape[1])
            return ls_error_set(error, LS_EINVAL,
                                "%s: text %lld has %d tokens: expected from 1 to %lld",
                                order->verb->name, (long long)i, length, (long long)ids->shape[1]);
    }
    return LS_OK;
}

int prompts_check(struct ls_session *s, struct ls_error *error)
{
    const json_t *texts = NULL;
    const struct option options[] = {{"prompts", .list = &texts}, {0}};
    int status = options_read(&s->order, options, error);
    if (!status && texts && (order_array(&s->order, "ids") || order_array(&s->order, "lengths")))
        return ls_error_set(error, LS_EINVAL,
                            "%s: expected prompts, or ids and lengths in their place, not both",
                            s->order.verb->name);
    return status || texts ? status : rows_check(s, error);
}

/* One object a line, as in a file (lockstep/infer/requests.h). */
static int lines_write(const void *list, FILE *file, struct ls_error *error)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (json_dumpf(json_array_get(list, i), file, JSON_COMPACT | JSON_ENCODE_ANY))
            return ls_no_memory(error, "for texts");
        fputc('\n', file);
    }
    return LS_OK;
}

static int lines_parse(const char *name, const json_t *list, enum ls_request_kind kind,
                       const struct ls_text_reader *reader, struct ls_text_requests *out,
                       struct ls_error *error)
{
    char *text = NULL;
    size_t bytes = 0;
    int status = ls_text_write(lines_write, list, &text, &bytes, error);
    if (!status)
        status = ls_requests_parse(name, text, bytes, kind, reader, out, error);
    free(text);
    return status;
}

/* Each as an object. */
static int prompts_list(const struct order *order, json_t **out, struct ls_error *error)
{
    const struct ls_array *ids = order_array(order, "ids"),
                          *lengths = order_array(order, "lengths");
    const json_t *texts = NULL;
    const struct option options[] = {{"prompts", .list = &texts}, {0}};
    int status = options_read(order, options, error);
    size_t count = texts ? json_array_size(texts) : status ? 0 : (size_t)ids->shape[0];
    *out = json_array();
    for (size_t i = 0; i < count && !status; i++) {
        /* All ranks read the order's options at once: they take no reference to them. */
        json_t *prompt = texts ? json_deep_copy(json_array_get(texts, i))
                               : ids_json((const int32_t *)ids->data + (int64_t)i * ids->shape[1],
                                          ((const int32_t *)lengths->data)[i]);
        bool whole = json_is_object(prompt);
        json_array_append_new(*out, whole ? prompt : json_pack("{s:o}", "prompt", prompt));
    }
    if (!status && json_array_size(*out) < count)
        status = ls_no_memory(error, "for prompts");
    if (!status && count == 0)
        status = ls_error_set(error, LS_EINVAL, "generate: expected at least one prompt");
    return status;
}

static int prompts_read(struct rank *rank, struct ls_text_requests *out, struct ls_error *error)
{
    const struct order *order = &rank->session->order;
    bool special = true;
    json_t *list = NULL;
    const struct option options[] = {{"special_tokens", .flag = &special}, {0}};
    int status = options_read(order, options, error);
    if (!status)
        status = prompts_list(order, &list, error);
    const struct ls_text_reader reader = {.tokenizer = rank_tokenizer(rank),
                                          .vocabulary = rank_model(rank)->vocab,
                                          .encode = {.special = special, .around = special},
                                          .listed = true};
    if (!status)
        status = lines_parse("prompts", list, LS_PROMPTS, &reader, out, error);
    json_decref(list);
    return status;
}

/* ---- what is written ------------------------------------------------------------------------- */

struct texts {
    struct ls_generated *list; /* [prompts x samples], of ranks that speak */
    int64_t count, samples, longest;
};

static void texts_release(struct texts *texts)
{
    for (int64_t i = 0; i < texts->count && texts->list; i++)
        ls_generated_release(&texts->list[i]);
    free(texts->list);
}

static int on_done(void *user, int64_t prompt, int64_t sample, const struct ls_generated *made,
                   struct ls_error *error)
{
    struct texts *texts = user;
    texts->longest = ls_max(texts->longest, made->count);
    return ls_generated_copy(&texts->list[prompt * texts->samples + sample], made, error);
}

/* The answer's arrays. */
static int arrays_answer(struct ls_session *s, const struct texts *texts, struct ls_error *error)
{
    void *data[4] = {0};
    const int64_t shape[] = {texts->count, texts->longest};
    int status = answer_array(s, "ids", "i4", 2, shape, &data[0], true, error);
    if (!status)
        status = answer_array(s, "logprobs", "f4", 2, shape, &data[1], true, error);
    if (!status)
        status = answer_array(s, "lengths", "i4", 1, shape, &data[2], true, error);
    if (!status)
        status = answer_array(s, "prompt_lengths", "i4", 1, shape, &data[3], true, error);
    for (int64_t i = 0; i < texts->count && !status; i++) {
        const struct ls_generated *text = &texts->list[i];
        int32_t *ids = (int32_t *)data[0] + i * texts->longest;
        memcpy(ids, text->ids, (size_t)text->count * sizeof *ids);
        for (int64_t t = text->count; t < texts->longest; t++)
            ids[t] = -1;
        memcpy((float *)data[1] + i * texts->longest, text->logprobs,
               (size_t)text->count * sizeof(float));
        ((float *)data[1])[i * texts->longest] = 0; /* nothing stands before the first one */
        ((int32_t *)data[2])[i] = (int32_t)text->count;
        ((int32_t *)data[3])[i] = (int32_t)text->prompt_count;
    }
    return status;
}

static void texts_answer(struct ls_session *s, const struct texts *texts)
{
    json_t *words = json_array(), *ends = json_array();
    for (int64_t i = 0; i < texts->count; i++) {
        const struct ls_generated *text = &texts->list[i];
        json_array_append_new(words, text_json(text->text, text->bytes));
        json_array_append_new(ends, json_string(ls_finish_name(text->finish)));
    }
    answer_set(s, "texts", words);
    answer_set(s, "finish", ends);
}

/* ---- generate -------------------------------------------------------------------------------- */

struct asked {
    struct ls_generation generation;
    const char *stops[16];
    int32_t ends[LS_ENDS_MAX];
    bool truncate, ends_given;
};

static int stops_read(const struct order *order, struct asked *asked, struct ls_error *error)
{
    const json_t *stops = NULL;
    enum { MOST = sizeof asked->stops / sizeof *asked->stops };
    const struct option options[] = {{"stop", .list = &stops}, {0}};
    int status = options_read(order, options, error);
    if (status || !stops)
        return status;
    int *count = &asked->generation.stop_count;
    for (size_t i = 0; i < json_array_size(stops) && i < MOST; i++)
        asked->stops[(*count)++] = json_string_value(json_array_get(stops, i));
    for (int i = 0; i < *count && !status; i++)
        if (!asked->stops[i] || !*asked->stops[i] || json_array_size(stops) > MOST)
            status =
                ls_error_set(error, LS_EINVAL,
                             "generate: stop: expected at most %d texts that are not empty", MOST);
    return status;
}

static int ends_read(struct rank *rank, struct asked *asked, struct ls_error *error)
{
    const json_t *ends = NULL;
    int *count = &asked->generation.end_count;
    const struct option options[] = {{"ends", .list = &ends}, {0}};
    int64_t vocabulary = rank_model(rank)->vocab;
    int status = options_read(&rank->session->order, options, error);
    asked->ends_given = ends != NULL;
    for (size_t i = 0; i < json_array_size(ends) && !status; i++) {
        const json_t *id = json_array_get(ends, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) >= vocabulary || i >= LS_ENDS_MAX)
            status = ls_error_set(error, LS_EINVAL,
                                  "generate: ends: expected at most %d token ids below %lld",
                                  LS_ENDS_MAX, (long long)vocabulary);
        else
            asked->ends[(*count)++] = (int32_t)json_integer_value(id);
    }
    return status;
}

/* Collective. If none were given, those that the model's files name, and of a run also the token
 * that ends a document of its data. */
static int ends_default(struct rank *rank, struct asked *asked, struct ls_error *error)
{
    const struct ls_session *s = rank->session;
    const char *path = rank->run ? ls_run_folder(rank->run) : s->path;
    const struct ls_tokenizer *tokenizer = rank_tokenizer(rank);
    struct ls_generation_defaults there;
    if (asked->ends_given)
        return LS_OK;
    int status =
        ls_generation_defaults_share(path, rank_model(rank)->vocab, rank->world, &there, error);
    if (status)
        return status;
    bool own = s->model && ls_model_is_foreign(s->path) && there.end_count > 0;
    if (tokenizer && !own)
        ls_generation_ends_add(&there, ls_tokenizer_eod(tokenizer));
    memcpy(asked->ends, there.ends, sizeof there.ends);
    asked->generation.end_count = there.end_count;
    return LS_OK;
}

static int asked_read(struct rank *rank, struct asked *asked, struct ls_error *error)
{
    const struct order *order = &rank->session->order;
    const int64_t most = INT32_MAX;
    int64_t seed = 0;
    double temperature = 1, top_p = 1;
    *asked =
        (struct asked){.generation = {.samples = 1, .tokens = 128, .batch = 64, .logprobs = true}};
    struct ls_generation *g = &asked->generation;
    g->ends = asked->ends;
    g->stops = asked->stops;
    const struct option options[] = {{"samples", .whole = &g->samples, .least = 1, .most = most},
                                     {"max_tokens", .whole = &g->tokens, .least = 1, .most = most},
                                     {"batch", .whole = &g->batch, .least = 1, .most = most},
                                     {"seed", .whole = &seed, .most = INT64_MAX},
                                     {"top_k", .whole = &g->sampling.top_k, .most = most},
                                     {"temperature", .real = &temperature},
                                     {"top_p", .real = &top_p},
                                     {"truncate", .flag = &asked->truncate},
                                     {"scaled", .flag = &g->scaled},
                                     {0}};
    int status = options_read(order, options, error);
    g->seed = (uint64_t)seed;
    g->sampling.temperature = (float)temperature;
    g->sampling.top_p = (float)top_p;
    if (!status && !(temperature >= 0))
        status = ls_error_set(error, LS_EINVAL, "generate: temperature: expected 0 or more");
    if (!status && !(top_p > 0 && top_p <= 1))
        status = ls_error_set(error, LS_EINVAL, "generate: top_p: expected above 0, at most 1");
    if (!status && g->scaled && !((float)temperature >= FLT_MIN))
        status = ls_error_set(error, LS_EINVAL,
                              "generate: scaled: there are no log-probabilities at temperature %g: "
                              "expected at least %g",
                              ls_shown(temperature), (double)FLT_MIN);
    if (!status)
        status = stops_read(order, asked, error);
    return status ? status : ends_read(rank, asked, error);
}

/* Collective. The runner that writes and scores, once all ranks are ready: of a run in the layout
 * of its rollouts. */
static int runner_ready(struct rank *rank, int status, struct ls_runner **runner,
                        struct ls_error *error)
{
    status = ls_comm_agree(rank->world, status, error);
    *runner = status ? NULL : rank_runner(rank);
    return status || !rank->trainer ? status : ls_trainer_rollout(rank->trainer, runner, error);
}

int generate_run(struct rank *rank, struct ls_error *error)
{
    struct ls_runner *runner;
    struct asked asked;
    struct ls_text_requests prompts = {0};
    struct ls_generation_report report;
    struct texts texts = {0};
    int status = asked_read(rank, &asked, error);
    if (!status)
        status = prompts_read(rank, &prompts, error);
    struct ls_generation *g = &asked.generation;
    int64_t cut;
    if (!status && asked.truncate)
        status = ls_prompts_truncate(&prompts, rank_model(rank)->context, g->tokens, &cut, error);
    texts.samples = g->samples;
    texts.count = prompts.count * g->samples;
    texts.list = status ? NULL : calloc((size_t)texts.count, sizeof *texts.list);
    if (!status && !texts.list)
        status = ls_no_memory(error, "for texts");
    status = ls_comm_agree(rank->world, status, error);
    if (!status)
        status = ends_default(rank, &asked, error);
    g->prompts = &prompts;
    g->done = on_done;
    g->user = &texts;
    g->everywhere = ls_comm_transport(rank->world) == LS_TRANSPORT_MPI;
    status = runner_ready(rank, status, &runner, error);
    if (!status)
        status = ls_runner_continue(runner, g, &report, error);
    if (!status && rank->speaks)
        status = arrays_answer(rank->session, &texts, error);
    if (!status && rank->speaks) {
        texts_answer(rank->session, &texts);
        answer_set(rank->session, "seconds", real_json(report.seconds));
        answer_set(rank->session, "written", json_integer(report.written));
    }
    texts_release(&texts);
    ls_requests_release(&prompts);
    return status;
}

/* ---- log-probabilities ----------------------------------------------------------------------- */

int logprobs_run(struct rank *rank, struct ls_error *error)
{
    struct ls_session *s = rank->session;
    struct ls_runner *runner;
    const struct ls_array *ids = order_array(&s->order, "ids");
    bool entropy = false;
    double temperature = 1;
    const struct option options[] = {{"entropy", .flag = &entropy}, {0}};
    int status = option_temperature(&s->order, &temperature, error);
    if (!status)
        status = options_read(&s->order, options, error);
    int64_t count = status ? 0 : ids->shape[0], tokens = status ? 0 : ids->shape[1];
    void *out[2] = {0};
    struct ls_scored *texts = calloc((size_t)count + 1, sizeof *texts);
    float *logprobs = calloc((size_t)(2 * count * tokens) + 1, sizeof *logprobs);
    if (!status && (!texts || !logprobs))
        status = ls_no_memory(error, "for %lld texts", (long long)count);
    for (int64_t i = 0; i < count && !status; i++)
        texts[i] = (struct ls_scored){
            .ids = (const int32_t *)ids->data + i * tokens,
            .count = ((const int32_t *)order_array(&s->order, "lengths")->data)[i],
            .first = 1,
            .logprobs = logprobs + i * tokens,
            .entropies = entropy ? logprobs + (count + i) * tokens : NULL};
    if (!status && rank->speaks)
        status = answer_array(s, "logprobs", "f4", 2, ids->shape, &out[0], true, error);
    if (!status && rank->speaks && entropy)
        status = answer_array(s, "entropy", "f4", 2, ids->shape, &out[1], true, error);
    status = runner_ready(rank, status, &runner, error);
    if (!status)
        status = ls_runner_score_at(runner, texts, count, (float)temperature, error);
    if (!status && rank->speaks)
        memcpy(out[0], logprobs, (size_t)(count * tokens) * sizeof *logprobs);
    if (!status && out[1])
        memcpy(out[1], logprobs + count * tokens, (size_t)(count * tokens) * sizeof *logprobs);
    free(texts);
    free(logprobs);
    return status;
}

/* ---- scores: requests ------------------------------------------------------------------------ */

static int requests_read(struct rank *rank, struct ls_text_requests *out, struct ls_error *error)
{
    const json_t *list = NULL;
    const struct option options[] = {{"requests", .list = &list}, {0}};
    const struct ls_text_reader reader = {.tokenizer = rank_tokenizer(rank),
                                          .vocabulary = rank_model(rank)->vocab,
                                          .encode = {.special = true, .around = true},
                                          .listed = true};
    int status = options_read(&rank->session->order, options, error);
    if (!status && json_array_size(list) == 0)
        status = ls_error_set(error, LS_EINVAL,
                              "score: requests: expected a list of objects, such as {\"context\": "
                              "..., \"continuation\": ...}");
    return status ? status : lines_parse("requests", list, LS_SCORES, &reader, out, error);
}

static void scores_answer(struct rank *rank, const struct ls_text_requests *requests,
                          const struct ls_request_score *scores)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < requests->count; i++)
        json_array_append_new(
            list, json_pack("{s:o,s:b,s:I}", "loglikelihood", real_json(scores[i].loglikelihood),
                            "greedy", scores[i].likeliest, "tokens", (json_int_t)scores[i].tokens));
    answer_set(rank->session, "scores", list);
}

int score_run(struct rank *rank, struct ls_error *error)
{
    bool truncate = false;
    struct ls_runner *runner;
    const struct option options[] = {{"truncate", .flag = &truncate}, {0}};
    struct ls_text_requests requests = {0};
    struct ls_request_score *scores = NULL;
    int status = options_read(&rank->session->order, options, error);
    if (!status)
        status = requests_read(rank, &requests, error);
    status = runner_ready(rank, status, &runner, error);
    if (!status)
        status = ls_runner_score_requests(runner, &requests, truncate, &scores, error);
    if (!status && rank->speaks)
        scores_answer(rank, &requests, scores);
    ls_request_scores_free(scores, requests.count);
    ls_requests_release(&requests);
    return status;
}
