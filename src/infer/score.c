/* Log-probabilities of given tokens by the forward of training: texts of like length go through the
 * stages together, in micro-batches as long as the longest of them. No row's bits depend on those
 * beside or behind it, so it does not matter which texts meet. */
#include "infer/infer_private.h"

#include <stdlib.h>
#include <string.h>

enum { SCORE_ROWS = 2048 }; /* of a micro-batch, if one text has no more */

/* A model of one shape, and its batches. */
struct shape {
    struct ls_model_config config;
    struct ls_numerics numerics;
    struct ls_tp tp;
    struct ls_arena arena;
    struct ls_model *model;
    struct ls_token_segment *segments;
    int segment_count;
    int64_t sequences, tokens;
    int32_t *ids;    /* [4, sequences, tokens]: ids, targets; those of this rank */
    int32_t *starts; /* [sequences, tokens] of documents; NULL: tokens fit the context */
};

struct scoring {
    struct ls_runner *r;
    struct ls_scored *texts;
    int64_t count;
    int64_t *order; /* texts, long ones first */
    int64_t *place; /* [count + 1] of each text's tokens in found */
    uint64_t *found;
    float *entropies; /* of the same tokens; NULL: no text wants them */
    struct shape shape;
    float temperature;
};

/* ---- shapes ---------------------------------------------------------------------------------- */

static int64_t context_of(const struct ls_runner *r)
{
    return r->parts.layout->model.context;
}

/* What lengths of a sequence are multiples of: context-parallel ranks share whole blocks. */
static int64_t length_unit(const struct ls_runner *r)
{
    int64_t cp = ls_comm_size(r->parts.groups[LS_GROUP_CP]);
    return cp > 1 ? 2 * cp * LS_ATTENTION_BLOCK : 1;
}

int64_t ls_runner_score_room(const struct ls_runner *r)
{
    return context_of(r) + 1;
}

/* Tokens of a sequence that holds a text's inputs: few shapes for many texts. Whole blocks may be
 * more than the context. */
static int64_t length_of(const struct ls_runner *r, const struct ls_scored *text)
{
    int64_t inputs = ls_max(text->count - 1, 1);
    int64_t tokens = ls_min(ls_round_up(inputs, LS_ATTENTION_BLOCK), context_of(r));
    return ls_round_up(tokens, length_unit(r));
}

static void shape_release(struct shape *shape)
{
    ls_model_free(shape->model);
    ls_arena_release(&shape->arena);
    free(shape->segments);
    free(shape->ids);
    free(shape->starts);
    *shape = (struct shape){0};
}

static int segments_make(const struct ls_runner *r, struct shape *shape, struct ls_error *error)
{
    struct ls_comm *cp = r->parts.groups[LS_GROUP_CP];
    int size = ls_comm_size(cp);
    shape->segment_count = ls_segments(size, size);
    shape->segments = calloc((size_t)shape->segment_count, sizeof *shape->segments);
    shape->ids = calloc((size_t)(4 * shape->sequences * shape->tokens), sizeof *shape->ids);
    if (!shape->segments || !shape->ids)
        return ls_no_memory(error, "for a batch of texts");
    for (int i = 0; i < shape->segment_count; i++)
        ls_segment(size, size, ls_comm_rank(cp), shape->tokens, i, &shape->segments[i].first,
                   &shape->segments[i].count);
    return LS_OK;
}

/* Padding that is beyond the context is documents of its own: a model has no other positions. */
static int starts_make(struct shape *shape, int64_t context, struct ls_error *error)
{
    int64_t all = shape->sequences * shape->tokens;
    if (shape->tokens <= context)
        return LS_OK;
    shape->starts = calloc((size_t)all, sizeof *shape->starts);
    if (!shape->starts)
        return ls_no_memory(error, "for a batch of texts");
    for (int64_t i = 0; i < all; i++)
        shape->starts[i] = (int32_t)(i % shape->tokens / context * context);
    return LS_OK;
}

/* The recipe's cuts of a batch are for sums of gradients: here each sequence is a leaf, and is cut
 * over context-parallel ranks alone. */
static int shape_make(const struct ls_runner *r, struct shape *shape, int64_t tokens,
                      struct ls_error *error)
{
    struct ls_model_options options = r->parts.part;
    if (shape->tokens == tokens)
        return LS_OK;
    shape_release(shape);
    shape->sequences = ls_max(SCORE_ROWS / tokens, 1);
    shape->tokens = tokens;
    shape->numerics = *options.numerics;
    shape->numerics.leaf_sequences = 1;
    shape->numerics.seq_tiles = ls_comm_size(r->parts.groups[LS_GROUP_CP]);
    options.numerics = &shape->numerics;
    if (options.tp) {
        shape->tp = *options.tp;
        shape->tp.sequence = false;
        options.tp = &shape->tp;
    }
    shape->config = *options.config;
    shape->config.context = ls_max(tokens, shape->config.context);
    options.config = &shape->config;
    options.documents = tokens > context_of(r);
    options.sequences = shape->sequences;
    options.tokens = tokens;
    options.slots = 1;
    int status = runner_model_make(&options, &shape->arena, &shape->model, error);
    if (!status)
        status = starts_make(shape, context_of(r), error);
    return status ? status : segments_make(r, shape, error);
}

/* ---- one micro-batch ------------------------------------------------------------------------- */

/* Each sequence is a text's tokens but the last, then zeros; its targets are the text's tokens but
 * the first, those that count. */
static void batch_fill(const struct scoring *s, int64_t first, int64_t end)
{
    const struct shape *shape = &s->shape;
    int64_t tokens = shape->tokens, all = shape->sequences * tokens;
    int32_t *ids = shape->ids, *targets = ids + all;
    memset(ids, 0, (size_t)all * sizeof *ids);
    memset(targets, 0xff, (size_t)all * sizeof *targets);
    for (int64_t i = first; i < end; i++, ids += tokens, targets += tokens) {
        const struct ls_scored *text = &s->texts[s->order[i]];
        for (int64_t t = 0; t + 1 < text->count; t++) {
            ids[t] = text->ids[t];
            targets[t] = t + 1 >= text->first ? text->ids[t + 1] : -1;
        }
    }
    for (int half = 0; half < 2; half++)
        ls_segments_copy(shape->segments, shape->segment_count, shape->sequences, tokens,
                         shape->ids + half * all, shape->ids + (2 + half) * all);
}

static int batch_run(struct scoring *s, int64_t first, int64_t end, struct ls_error *error)
{
    struct shape *shape = &s->shape;
    int64_t all = shape->sequences * shape->tokens;
    batch_fill(s, first, end);
    struct ls_micro_batch batch = {.sequences = shape->sequences,
                                   .tokens = shape->tokens,
                                   .likeliest = true,
                                   .entropies = s->entropies != NULL,
                                   .temperature = s->temperature,
                                   .starts = shape->starts,
                                   .ids = shape->ids + 2 * all,
                                   .targets = shape->ids + 3 * all};
    int status = runner_forward(s->r, shape->model, &batch, error);
    if (status || !runner_answers(s->r))
        return status;
    struct found_rows rows = {shape->model, shape->segments, shape->segment_count};
    for (int64_t i = first; i < end; i++) {
        int64_t at = s->place[s->order[i]] + 1;
        found_take(&rows, &batch, i - first, s->found + at,
                   s->entropies ? s->entropies + at : NULL);
    }
    return LS_OK;
}

/* ---- all texts ------------------------------------------------------------------------------- */

static int texts_check(const struct scoring *s, struct ls_error *error)
{
    enum { VOCAB_MOST = (1 << 24) - 1 }; /* the likeliest token's number is a float in the head */
    int64_t room = ls_runner_score_room(s->r), vocabulary = s->r->parts.layout->model.vocab;
    if (vocabulary > VOCAB_MOST)
        return ls_error_set(error, LS_ECONFIG,
                            "model.vocab = %ld: texts are scored with at most %d tokens",
                            (long)vocabulary, VOCAB_MOST);
    for (int64_t i = 0; i < s->count; i++) {
        const struct ls_scored *text = &s->texts[i];
        if (text->count > room)
            return ls_error_set(error, LS_EDATA,
                                "text %ld has %ld tokens: at most %ld fit the model's context",
                                (long)i, (long)text->count, (long)room);
        for (int64_t t = 0; t < text->count; t++)
            if (text->ids[t] < 0 || text->ids[t] >= vocabulary)
                return ls_error_set(error, LS_EDATA,
                                    "text %ld: token %d is not in the model's vocabulary of %ld",
                                    (long)i, text->ids[t], (long)vocabulary);
    }
    return LS_OK;
}

/* Ascending by shape from the longest: texts of one shape stay in their order. */
static void order_make(struct scoring *s)
{
    int64_t longest = 0, at = 0, unit = ls_max(length_unit(s->r), LS_ATTENTION_BLOCK);
    for (int64_t i = 0; i < s->count; i++) {
        longest = ls_max(longest, length_of(s->r, &s->texts[i]));
        s->place[i + 1] = s->place[i] + s->texts[i].count;
    }
    for (int64_t shape = ls_round_up(longest, unit); shape > 0; shape -= unit)
        for (int64_t i = 0; i < s->count; i++)
            if (ls_round_up(length_of(s->r, &s->texts[i]), unit) == shape)
                s->order[at++] = i;
}

static int scoring_open(struct scoring *s, struct ls_error *error)
{
    bool entropies = false;
    int status = texts_check(s, error);
    if (status)
        return status;
    s->order = calloc((size_t)s->count + 1, sizeof *s->order);
    s->place = calloc((size_t)s->count + 1, sizeof *s->place);
    if (s->order && s->place)
        order_make(s);
    if (s->place)
        s->found = calloc((size_t)s->place[s->count] + 1, sizeof *s->found);
    for (int64_t i = 0; i < s->count; i++)
        entropies |= s->texts[i].entropies != NULL;
    if (entropies && s->place)
        s->entropies = calloc((size_t)s->place[s->count] + 1, sizeof *s->entropies);
    return s->found && s->order && (s->entropies || !entropies)
               ? LS_OK
               : ls_no_memory(error, "for %ld texts", (long)s->count);
}

/* All ranks cut the order in the same micro-batches; each data-parallel copy takes its own. */
static int rounds_run(struct scoring *s, struct ls_error *error)
{
    struct ls_comm *const *groups = s->r->parts.groups;
    int64_t copies = ls_comm_size(groups[LS_GROUP_DP]), copy = ls_comm_rank(groups[LS_GROUP_DP]);
    int status = LS_OK;
    for (int64_t at = 0; at < s->count && !status; at += copies * s->shape.sequences) {
        status = shape_make(s->r, &s->shape, length_of(s->r, &s->texts[s->order[at]]), error);
        status = runner_interrupted(s->r, status, error);
        status = ls_comm_agree(groups[LS_GROUP_WORLD], status, error);
        int64_t first = ls_min(at + copy * s->shape.sequences, s->count);
        if (!status)
            status = batch_run(s, first, ls_min(first + s->shape.sequences, s->count), error);
        runner_tell(s->r, "windows of texts", at + copies * s->shape.sequences, s->count);
    }
    return status;
}

static void results_give(const struct scoring *s)
{
    for (int64_t i = 0; i < s->count; i++) {
        struct ls_scored *text = &s->texts[i];
        const uint64_t *found = s->found + s->place[i];
        text->likeliest = true;
        for (int64_t t = ls_max(text->first, 1); t < text->count; t++) {
            text->logprobs[t] = found_logprob(found[t]);
            if (text->entropies)
                text->entropies[t] = s->entropies[s->place[i] + t];
            text->likeliest = text->likeliest && found[t] & FOUND_LIKELIEST;
        }
    }
}

int ls_runner_score(struct ls_runner *r, struct ls_scored *texts, int64_t count,
                    struct ls_error *error)
{
    return ls_runner_score_at(r, texts, count, 1, error);
}

int ls_runner_score_at(struct ls_runner *r, struct ls_scored *texts, int64_t count,
                       float temperature, struct ls_error *error)
{
    struct scoring s = {.r = r, .texts = texts, .count = count, .temperature = temperature};
    struct ls_comm *world = r->parts.groups[LS_GROUP_WORLD];
    int status = scoring_open(&s, error);
    status = ls_comm_agree(world, status, error);
    if (!status)
        status = rounds_run(&s, error);
    if (!status)
        status = ls_all_reduce_u64(world, s.found, s.place[count], error);
    if (!status && s.entropies) /* known to one rank, and zero on the others: nothing is rounded */
        status = ls_all_reduce(world, s.entropies, s.place[count], error);
    if (!status)
        results_give(&s);
    shape_release(&s.shape);
    free(s.order);
    free(s.place);
    free(s.found);
    free(s.entropies);
    return status;
}
