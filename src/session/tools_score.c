/* The verb score: how likely a model finds texts, and continuations of contexts. */
#include "session/tools.h"

#include <stdlib.h>

/* ---- requests -------------------------------------------------------------------------------- */

/* One object a line, as in a file of texts to score (lockstep/infer/requests.h). */
static int lines_write(const json_t *list, char **text, size_t *bytes, struct ls_error *error)
{
    FILE *file = open_memstream(text, bytes);
    if (!file)
        return ls_error_set(error, LS_ENOMEM, "no memory for requests");
    int failed = 0;
    for (size_t i = 0; i < json_array_size(list) && !failed; i++) {
        failed = json_dumpf(json_array_get(list, i), file, JSON_COMPACT | JSON_ENCODE_ANY);
        fputc('\n', file);
    }
    if (fclose(file) || failed)
        return ls_error_set(error, LS_ENOMEM, "no memory for requests");
    return LS_OK;
}

static int requests_read(struct rank *rank, struct ls_text_requests *out, struct ls_error *error)
{
    const json_t *list = NULL;
    const struct option options[] = {{"requests", .list = &list}, {0}};
    const struct ls_text_reader reader = {.tokenizer = rank_tokenizer(rank),
                                          .vocabulary = rank_model(rank)->vocab};
    char *text = NULL;
    size_t bytes = 0;
    int status = options_read(&rank->session->order, options, error);
    if (!status && json_array_size(list) == 0)
        status = ls_error_set(error, LS_EINVAL,
                              "score: requests: expected a list of objects, such as {\"context\": "
                              "..., \"continuation\": ...}");
    if (!status)
        status = lines_write(list, &text, &bytes, error);
    if (!status)
        status = ls_requests_parse("requests", text, bytes, LS_SCORES, &reader, out, error);
    free(text);
    return status;
}

/* ---- scores ---------------------------------------------------------------------------------- */

static struct ls_request_score *scores_new(const struct ls_text_requests *requests)
{
    struct ls_request_score *scores = calloc((size_t)requests->count + 1, sizeof *scores);
    for (int64_t i = 0; i < requests->count && scores; i++)
        scores[i].logprobs = calloc((size_t)requests->list[i].tokens.count + 1, sizeof(float));
    return scores;
}

static bool scores_whole(const struct ls_request_score *scores, int64_t count)
{
    bool whole = scores != NULL;
    for (int64_t i = 0; i < count && whole; i++)
        whole = scores[i].logprobs != NULL;
    return whole;
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

static int score_run(struct rank *rank, struct ls_error *error)
{
    bool truncate = false;
    const struct option options[] = {{"truncate", .flag = &truncate}, {0}};
    struct ls_text_requests requests = {0};
    struct ls_request_score *scores = NULL;
    int status = options_read(&rank->session->order, options, error);
    if (!status)
        status = requests_read(rank, &requests, error);
    if (!status)
        scores = scores_new(&requests);
    if (!status && !scores_whole(scores, requests.count))
        status = ls_error_set(error, LS_ENOMEM, "no memory for %ld texts", (long)requests.count);
    status = ls_comm_agree(rank->world, status, error);
    if (!status)
        status = ls_runner_score_requests(rank_runner(rank), &requests, truncate, scores, error);
    if (!status && rank->speaks)
        scores_answer(rank, &requests, scores);
    for (int64_t i = 0; i < requests.count && scores; i++)
        free(scores[i].logprobs);
    free(scores);
    ls_requests_release(&requests);
    return status;
}

const struct verb verbs_score[] = {{"score", "requests|truncate", "", VERB_RANKS, .one_model = true,
                                    .interrupted = true, .run = score_run},
                                   {0}};
