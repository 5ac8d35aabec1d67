/* Scores of requests and of multiple choices: each is texts for ls_runner_score. */
#include "infer/infer_private.h"

#include <stdlib.h>

/* ---- requests -------------------------------------------------------------------------------- */

/* Texts of all requests; request i's are list[place[i]] to list[place[i + 1]]. */
struct windows {
    struct ls_scored *list;
    int64_t count, room;
    int64_t *place;
};

/* Tokens [p, end) of a text are scored with as many before them as the context holds: the windows
 * of what is scored follow each other, and the last one begins early enough to be full. */
static int windows_add(struct windows *w, const struct ls_text_request *request, float *logprobs,
                       int64_t room, struct ls_error *error)
{
    int64_t count = request->tokens.count, first = ls_max(request->first, 1), end;
    for (int64_t p = first; p < count; p = end) {
        end = p < room ? ls_min(room, count) : ls_min(p + room - 1, count);
        int64_t begin = ls_max(end - room, 0);
        if (!ls_list_grow(&w->list, w->count, &w->room, sizeof *w->list))
            return ls_no_memory(error, "for %ld texts", (long)w->count);
        w->list[w->count++] = (struct ls_scored){.ids = request->tokens.ids + begin,
                                                 .count = end - begin,
                                                 .first = p - begin,
                                                 .logprobs = logprobs + begin};
    }
    return LS_OK;
}

/* One window of the last tokens: what is before is left out. */
static int request_check(const struct ls_text_requests *requests, int64_t i, int64_t room,
                         bool truncate, struct ls_error *error)
{
    const struct ls_text_request *request = &requests->list[i];
    int64_t count = request->tokens.count, scored = count - request->first;
    if (request->whole || count <= room || (truncate && scored < room))
        return LS_OK;
    return ls_error_set(error, LS_EDATA,
                        "%s has %ld tokens, %ld of them to be scored: at most %ld fit the "
                        "model's context%s",
                        ls_request_name(requests, i).text, (long)count, (long)scored, (long)room,
                        scored < room ? " (--truncate leaves out the first ones)" : "");
}

static int windows_make(struct windows *w, const struct ls_text_requests *requests,
                        const struct ls_request_score *scores, int64_t room, bool truncate,
                        struct ls_error *error)
{
    int status = LS_OK;
    w->place = calloc((size_t)requests->count + 1, sizeof *w->place);
    if (!w->place)
        return ls_no_memory(error, "for %ld requests", (long)requests->count);
    for (int64_t i = 0; i < requests->count && !status; i++) {
        struct ls_text_request request = requests->list[i];
        int64_t left_out = 0;
        status = request_check(requests, i, room, truncate, error);
        if (!request.whole && request.tokens.count > room)
            left_out = request.tokens.count - room;
        request.tokens.ids += left_out;
        request.tokens.count -= left_out;
        request.first -= left_out;
        w->place[i] = w->count;
        if (!status)
            status = windows_add(w, &request, scores[i].logprobs + left_out, room, error);
        w->place[i + 1] = w->count;
    }
    return status;
}

static void scores_sum(const struct windows *w, int64_t i, struct ls_request_score *score)
{
    score->loglikelihood = 0;
    score->likeliest = true;
    score->tokens = 0;
    for (int64_t k = w->place[i]; k < w->place[i + 1]; k++) {
        const struct ls_scored *text = &w->list[k];
        score->likeliest = score->likeliest && text->likeliest;
        for (int64_t t = text->first; t < text->count; t++, score->tokens++)
            score->loglikelihood += (double)text->logprobs[t];
    }
}

void ls_request_scores_free(struct ls_request_score *scores, int64_t count)
{
    for (int64_t i = 0; i < count && scores; i++)
        free(scores[i].logprobs);
    free(scores);
}

static int scores_new(const struct ls_text_requests *requests, struct ls_request_score **scores,
                      struct ls_error *error)
{
    *scores = calloc((size_t)requests->count + 1, sizeof **scores);
    bool whole = *scores != NULL;
    for (int64_t i = 0; i < requests->count && whole; i++) {
        (*scores)[i].logprobs = calloc((size_t)requests->list[i].tokens.count + 1, sizeof(float));
        whole = (*scores)[i].logprobs != NULL;
    }
    return whole ? LS_OK : ls_no_memory(error, "for %ld texts", (long)requests->count);
}

int ls_runner_score_requests(struct ls_runner *r, const struct ls_text_requests *requests,
                             bool truncate, struct ls_request_score **scores,
                             struct ls_error *error)
{
    struct windows w = {0};
    int status = scores_new(requests, scores, error);
    if (!status)
        status = windows_make(&w, requests, *scores, ls_runner_score_room(r), truncate, error);
    status = ls_comm_agree(r->parts.groups[LS_GROUP_WORLD], status, error);
    if (!status)
        status = ls_runner_score(r, w.list, w.count, error);
    for (int64_t i = 0; i < requests->count && !status; i++)
        scores_sum(&w, i, &(*scores)[i]);
    free(w.place);
    free(w.list);
    if (status) {
        ls_request_scores_free(*scores, requests->count);
        *scores = NULL;
    }
    return status;
}

/* ---- multiple choice ------------------------------------------------------------------------- */

/* The ending of the largest value, the first of equal ones. */
static int best_of(const double *values, int count)
{
    int best = 0;
    for (int i = 1; i < count; i++)
        if (values[i] > values[best])
            best = i;
    return best;
}

static int example_judge(const struct ls_choice *choice, const struct ls_scored *texts,
                         struct ls_choice_report *report, struct ls_error *error)
{
    double *values = calloc(2 * (size_t)choice->endings, sizeof *values);
    if (!values)
        return ls_no_memory(error, "for %d endings", choice->endings);
    double *means = values + choice->endings;
    for (int i = 0; i < choice->endings; i++) {
        const struct ls_scored *text = &texts[choice->text + i];
        for (int64_t t = text->first; t < text->count; t++)
            values[i] += (double)text->logprobs[t];
        means[i] = values[i] / (double)(text->count - text->first);
    }
    report->examples++;
    report->right += best_of(means, choice->endings) == choice->label;
    report->right_by_sum += best_of(values, choice->endings) == choice->label;
    free(values);
    return LS_OK;
}

int ls_runner_score_choices(struct ls_runner *r, const struct ls_choices *choices, int64_t examples,
                            struct ls_choice_report *report, struct ls_error *error)
{
    int64_t count = examples > 0 ? ls_min(examples, choices->count) : choices->count;
    int64_t texts_count =
        count ? choices->list[count - 1].text + choices->list[count - 1].endings : 0;
    struct ls_scored *texts = calloc((size_t)texts_count + 1, sizeof *texts);
    float *logprobs = calloc((size_t)choices->ids_count + 1, sizeof *logprobs);
    int status = texts && logprobs ? LS_OK : ls_no_memory(error, "for %ld examples", (long)count);
    *report = (struct ls_choice_report){0};
    for (int64_t i = 0; i < texts_count && !status; i++) {
        const struct ls_choice_text *text = &choices->texts[i];
        texts[i] = (struct ls_scored){.ids = text->ids,
                                      .count = text->count,
                                      .first = text->first,
                                      .logprobs = logprobs + (text->ids - choices->ids)};
    }
    status = ls_comm_agree(r->parts.groups[LS_GROUP_WORLD], status, error);
    if (!status)
        status = ls_runner_score(r, texts, texts_count, error);
    for (int64_t i = 0; i < count && !status; i++)
        status = example_judge(&choices->list[i], texts, report, error);
    free(texts);
    free(logprobs);
    return status;
}
