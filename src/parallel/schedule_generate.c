/* The generators: each writes one rank's list after the other, in closed form. */
#include "parallel/schedule_private.h"

#include <lockstep/base/words.h>
#include <lockstep/parallel/pipeline.h>

#include <stdlib.h>

/* The rank that is being written. */
struct writer {
    struct parallel_builder *builder;
    int p, rank;
    int64_t m;
    int stage[2];             /* of its first two chunks */
    int64_t f[2], i[2], w[2]; /* the next micro-batch of each part, by chunk */
};

static void put(struct writer *writer, enum ls_action_kind kind, int stage, int64_t micro_batch)
{
    parallel_builder_add(writer->builder, kind, stage, micro_batch, 0);
}

/* ---- gpipe, 1f1b, zb-h1 --------------------------------------------------------------------- */

static void write_gpipe(struct writer *writer)
{
    for (int64_t k = 0; k < writer->m; k++)
        put(writer, LS_ACTION_F, writer->rank, k);
    for (int64_t k = 0; k < writer->m; k++)
        put(writer, LS_ACTION_B, writer->rank, k);
}

/* In zb-h1 (halves) rank r is p - 1 - r forwards ahead and r weight halves behind: p micro-batches
 * live on each. */
static void write_1f1b(struct writer *writer, bool halves)
{
    int64_t ahead = ls_min(writer->p - 1 - writer->rank, writer->m);
    int64_t behind = halves ? ls_min(writer->rank, writer->m) : 0;
    for (int64_t k = 0; k < ahead; k++)
        put(writer, LS_ACTION_F, writer->rank, k);
    for (int64_t k = 0; k < writer->m; k++) {
        if (ahead + k < writer->m)
            put(writer, LS_ACTION_F, writer->rank, ahead + k);
        put(writer, halves ? LS_ACTION_I : LS_ACTION_B, writer->rank, k);
        if (halves && k >= behind)
            put(writer, LS_ACTION_W, writer->rank, k - behind);
    }
    for (int64_t k = writer->m - behind; k < writer->m; k++)
        put(writer, LS_ACTION_W, writer->rank, k);
}

/* ---- interleaved ---------------------------------------------------------------------------- */

/* The k-th forward of any rank: groups of micro-batches pass through all chunks one after the
 * other. The k-th backward is the same with the chunks from the last to the first. */
struct visit {
    int32_t chunk;
    int32_t micro_batch;
};

static struct visit *visits_new(int chunks, int64_t m, int64_t p, int64_t *group_max)
{
    struct visit *visit = malloc((size_t)(m * chunks) * sizeof *visit);
    if (!visit)
        return NULL;
    int64_t groups = ls_max(1, m / p), begin = 0, used = 0;
    *group_max = ls_ceil_div(m, groups);
    for (int64_t g = 0; g < groups; g++) {
        int64_t count = m / groups + (g < m % groups);
        for (int32_t c = 0; c < chunks; c++)
            for (int64_t k = begin; k < begin + count; k++)
                visit[used++] = (struct visit){c, (int32_t)k};
        begin += count;
    }
    return visit;
}

static void write_interleaved(struct writer *writer, int chunks, const struct visit *visit,
                              int64_t group_max)
{
    int64_t all = writer->m * chunks;
    int64_t ahead = ls_min((chunks - 1) * group_max + 2 * (writer->p - 1 - writer->rank), all);
    for (int64_t k = 0; k < all + ahead; k++) {
        if (k < all)
            put(writer, LS_ACTION_F, writer->rank + visit[k].chunk * writer->p,
                visit[k].micro_batch);
        if (k >= ahead) {
            const struct visit *back = &visit[k - ahead];
            put(writer, LS_ACTION_B, writer->rank + (chunks - 1 - back->chunk) * writer->p,
                back->micro_batch);
        }
    }
}

/* ---- the V: zbv, dualpipev ------------------------------------------------------------------ */

static int64_t *counter_of(struct writer *writer, enum ls_action_kind kind, int chunk)
{
    int64_t *counter = kind == LS_ACTION_F   ? writer->f
                       : kind == LS_ACTION_W ? writer->w
                                             : writer->i;
    return &counter[chunk];
}

/* The next micro-batch of a part. What lies past m is counted and not written: a table for fewer
 * micro-batches than the pattern needs is the pattern with the rest left out. */
static void next(struct writer *writer, enum ls_action_kind kind, int chunk)
{
    int64_t k = (*counter_of(writer, kind, chunk))++;
    if (kind == LS_ACTION_B)
        writer->w[chunk]++;
    if (k < writer->m)
        put(writer, kind, writer->stage[chunk], k);
}

/* What a pattern repeats; each step as next(). */
struct step {
    enum ls_action_kind kind;
    int chunk;
};

/* Repeats the steps. Where each of them is past m already, only the counters move: a table for few
 * micro-batches on many ranks takes time for its own actions only. */
static void repeat(struct writer *writer, int64_t times, const struct step *step, int steps)
{
    for (; times > 0; times--) {
        bool past = true;
        for (int s = 0; s < steps; s++)
            past = past && *counter_of(writer, step[s].kind, step[s].chunk) >= writer->m;
        if (past)
            break;
        for (int s = 0; s < steps; s++)
            next(writer, step[s].kind, step[s].chunk);
    }
    for (int s = 0; s < steps; s++) {
        *counter_of(writer, step[s].kind, step[s].chunk) += times;
        if (step[s].kind == LS_ACTION_B)
            writer->w[step[s].chunk] += times;
    }
}
#define REPEAT(writer, times, ...)                                                                 \
    repeat(writer, times, (const struct step[]){__VA_ARGS__},                                      \
           (int)(sizeof((const struct step[]){__VA_ARGS__}) / sizeof(struct step)))

static const struct step F0 = {LS_ACTION_F, 0}, F1 = {LS_ACTION_F, 1}, I0 = {LS_ACTION_I, 0},
                         I1 = {LS_ACTION_I, 1}, W0 = {LS_ACTION_W, 0}, W1 = {LS_ACTION_W, 1};

/* The pattern for n >= 2p - 1 micro-batches: forwards fill the V, then each chunk in turn does F, I
 * and W, and the weight halves that were put off fill the end. */
static void write_zbv(struct writer *writer)
{
    int64_t p = writer->p, r = writer->rank, n = ls_max(writer->m, 2 * p - 1);
    REPEAT(writer, 2 * (p - r) - 1, F0);
    REPEAT(writer, r, F1, F0);
    REPEAT(writer, p - r, F1, I1, W1);
    REPEAT(writer, n - (2 * p - 1 - r), F0, I0, W0, F1, I1, W1);
    REPEAT(writer, p - 1 - r, I0, W0, F1, I1, W1);
    REPEAT(writer, r, I0, I1);
    REPEAT(writer, p - r, I0, W0);
    REPEAT(writer, n - writer->w[1], W1);
    REPEAT(writer, n - writer->w[0], W0);
}

/* W of what was split, oldest first; chunks of the split I in their order. */
struct split_queue {
    int8_t *chunk;
    int64_t head, tail;
};

static void dualpipev_ending(struct writer *writer, struct split_queue *queue)
{
    int64_t p = writer->p, r = writer->rank, both = r + 1;
    bool split = false;
    for (int64_t k = 0; k < both; k++) {
        for (int turn = 0; turn < 2; turn++) {
            /* The second half of these is split; where that begins alternates between ranks. */
            if (k == both / 2 && turn == (r % 2 == 0))
                split = true;
            int chunk = 1 - turn;
            next(writer, split ? LS_ACTION_I : LS_ACTION_B, chunk);
            if (split)
                queue->chunk[queue->tail++] = (int8_t)chunk;
        }
    }
    for (int64_t k = 0; k < p - r - 1; k++) {
        if (queue->head < queue->tail)
            next(writer, LS_ACTION_W, queue->chunk[queue->head++]);
        next(writer, LS_ACTION_I, 0);
        queue->chunk[queue->tail++] = 0;
    }
    while (queue->head < queue->tail)
        next(writer, LS_ACTION_W, queue->chunk[queue->head++]);
}

static void write_dualpipev(struct writer *writer, int8_t *queue)
{
    const struct step b0 = {LS_ACTION_B, 0}, b1 = {LS_ACTION_B, 1};
    int64_t p = writer->p, r = writer->rank;
    REPEAT(writer, 2 * (p - r - 1), F0);
    REPEAT(writer, r + 1, F0, F1);
    REPEAT(writer, p - r - 1, I1, W1, F1);
    REPEAT(writer, writer->m - 2 * p + r + 1, F0, b1, F1, b0);
    REPEAT(writer, p - r - 1, b1, F1, b0);
    dualpipev_ending(writer, &(struct split_queue){.chunk = queue});
}

/* ---- the choice ----------------------------------------------------------------------------- */

int ls_schedule_admits(enum ls_schedule_kind kind, int64_t ranks, int64_t chunks,
                       int64_t micro_batches, struct ls_error *error)
{
    const char *name = ls_schedule_name(kind);
    int wanted = ls_schedule_chunks(kind);
    if (ranks < 1 || ranks > LS_SCHEDULE_RANKS_MAX || chunks < 1 ||
        chunks > LS_SCHEDULE_CHUNKS_MAX || ranks * chunks > LS_SCHEDULE_STAGES_MAX ||
        micro_batches < 1 || micro_batches > LS_SCHEDULE_MICRO_BATCHES_MAX)
        return ls_error_set(error, LS_ELAYOUT,
                            "schedule %s: %ld ranks, %ld chunks and %ld micro-batches are not from "
                            "1 to %d, %d and %d, with at most %d stages in all",
                            name, (long)ranks, (long)chunks, (long)micro_batches,
                            LS_SCHEDULE_RANKS_MAX, LS_SCHEDULE_CHUNKS_MAX,
                            LS_SCHEDULE_MICRO_BATCHES_MAX, LS_SCHEDULE_STAGES_MAX);
    if (wanted && chunks != wanted)
        return ls_error_set(error, LS_ELAYOUT, "schedule %s puts %s on each rank, not %ld%s", name,
                            ls_counted(wanted, "chunk").text, (long)chunks,
                            wanted == 1 ? ": interleaved takes any number" : "");
    if (ls_schedule_placement(kind) == LS_PLACEMENT_V && ranks > LS_PIPELINE_V_RANKS_MAX &&
        micro_batches > LS_PIPELINE_SENDS)
        return ls_error_set(error, LS_ELAYOUT,
                            "schedule %s takes at most %d ranks, or %d micro-batches, whose "
                            "activations are all under way at once, not %ld and %ld: interleaved "
                            "takes any number",
                            name, LS_PIPELINE_V_RANKS_MAX, LS_PIPELINE_SENDS, (long)ranks,
                            (long)micro_batches);
    if (kind == LS_SCHEDULE_DUALPIPEV && micro_batches < 2 * ranks)
        return ls_error_set(error, LS_ELAYOUT,
                            "schedule dualpipev takes at least %ld micro-batches, and a step has "
                            "%ld: zbv takes any number",
                            (long)(2 * ranks), (long)micro_batches);
    return LS_OK;
}

static void write_rank(struct writer *writer, enum ls_schedule_kind kind, int chunks,
                       const struct visit *visit, int64_t group_max, int8_t *queue)
{
    switch (kind) {
    case LS_SCHEDULE_GPIPE:
        writer->p == 1 ? write_1f1b(writer, false) : write_gpipe(writer);
        break;
    case LS_SCHEDULE_ZB_H1:
        write_1f1b(writer, writer->p > 1);
        break;
    case LS_SCHEDULE_INTERLEAVED:
        chunks == 1 ? write_1f1b(writer, false)
                    : write_interleaved(writer, chunks, visit, group_max);
        break;
    case LS_SCHEDULE_ZBV:
        write_zbv(writer);
        break;
    case LS_SCHEDULE_DUALPIPEV:
        write_dualpipev(writer, queue);
        break;
    case LS_SCHEDULE_1F1B:
    case LS_SCHEDULE_KINDS:
        write_1f1b(writer, false);
        break;
    }
}

int ls_schedule_generate(struct ls_schedule *schedule, enum ls_schedule_kind kind, int ranks,
                         int chunks, int64_t micro_batches, struct ls_error *error)
{
    *schedule = (struct ls_schedule){0};
    int status = ls_schedule_admits(kind, ranks, chunks, micro_batches, error);
    if (!status)
        status = parallel_schedule_init(schedule, ranks, chunks, micro_batches,
                                        ls_schedule_placement(kind), error);
    if (status)
        return status;
    struct parallel_builder builder = {.schedule = schedule};
    int64_t group_max = 0;
    struct visit *visit = NULL;
    int8_t *queue = NULL;
    if (kind == LS_SCHEDULE_INTERLEAVED)
        builder.failed = !(visit = visits_new(chunks, micro_batches, ranks, &group_max));
    if (kind == LS_SCHEDULE_DUALPIPEV)
        builder.failed = !(queue = malloc((size_t)(2 * micro_batches)));
    for (int rank = 0; rank < ranks && !builder.failed; rank++) {
        struct writer writer = {.builder = &builder, .p = ranks, .rank = rank, .m = micro_batches};
        writer.stage[0] = ls_schedule_stage(schedule, rank, 0);
        writer.stage[1] = chunks > 1 ? ls_schedule_stage(schedule, rank, 1) : -1;
        schedule->first[rank] = schedule->first[ranks];
        write_rank(&writer, kind, chunks, visit, group_max, queue);
    }
    free(queue);
    free(visit);
    if (builder.failed) {
        ls_schedule_release(schedule);
        return ls_no_memory(error, "for the schedule of %d ranks", ranks);
    }
    return LS_OK;
}
