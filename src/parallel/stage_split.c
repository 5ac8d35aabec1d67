/* Which layers a pipeline stage holds: by cost, or as the user says. */
#include <lockstep/parallel/stage_times.h>

#include <stdio.h>
#include <stdlib.h>

/* sum[n]: the cost of the first n layers. Sums of a range are differences of these, so "at most the
 * best maximum" is one comparison of the same numbers everywhere. */
struct split {
    int64_t layers, stages;
    const double *times; /* [stages] NULL: 1 */
    double *sum;         /* [layers + 1] */
    double *best;    /* [layers + 1] of the stages so far: the least maximum, or sum of squares */
    double *best_of; /* [layers + 1] the same for one stage more */
    int32_t *cut;    /* [stages * (layers + 1)]: where the last stage begins */
};

static double range(const struct split *split, int64_t stage, int64_t begin, int64_t end)
{
    double cost = split->sum[end] - split->sum[begin];
    return split->times ? cost * split->times[stage] : cost;
}

static void swap_rows(struct split *split)
{
    double *row = split->best;
    split->best = split->best_of;
    split->best_of = row;
}

/* The least maximum of n layers in s stages. The first s - 1 stages' maximum rises with where the
 * last begins, the last one's cost falls: the best is where they cross. */
static double least_crossing(const struct split *split, int64_t s, int64_t n)
{
    int64_t low = s - 1, high = n - 1; /* the first begin where the others cost as much */
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (split->best[middle] >= range(split, s - 1, middle, n))
            high = middle;
        else
            low = middle + 1;
    }
    double last = range(split, s - 1, low, n), others = split->best[low];
    double most = others > last ? others : last;
    double before = low > s - 1 ? range(split, s - 1, low - 1, n) : most;
    return before < most ? before : most;
}

/* The same of stages that do not compute alike: a layer more may then move others to a faster one,
 * so the maximum of the others does not only rise. */
static double least_of_all(const struct split *split, int64_t s, int64_t n)
{
    double least = -1;
    for (int64_t begin = s - 1; begin < n; begin++) {
        double last = range(split, s - 1, begin, n), others = split->best[begin];
        double most = others > last ? others : last;
        least = least < 0 || most < least ? most : least;
    }
    return least;
}

static double least_maximum(struct split *split)
{
    for (int64_t n = 1; n <= split->layers; n++)
        split->best[n] = range(split, 0, 0, n);
    for (int64_t s = 2; s <= split->stages; s++) {
        for (int64_t n = s; n <= split->layers; n++)
            split->best_of[n] =
                split->times ? least_of_all(split, s, n) : least_crossing(split, s, n);
        swap_rows(split);
    }
    return split->best[split->layers];
}

/* Among cuts whose stages all cost at most `most`: the least sum of squares. */
static void most_even(struct split *split, double most)
{
    for (int64_t n = 0; n <= split->layers; n++) {
        double cost = range(split, 0, 0, n);
        split->best[n] = n >= 1 && cost <= most ? cost * cost : -1;
    }
    for (int64_t s = 2; s <= split->stages; s++) {
        int32_t *cut = split->cut + (s - 1) * (split->layers + 1);
        for (int64_t n = 0; n <= split->layers; n++) {
            split->best_of[n] = -1;
            for (int64_t begin = n - 1; begin >= s - 1; begin--) {
                double cost = range(split, s - 1, begin, n);
                if (cost > most)
                    break;
                double total = split->best[begin] + cost * cost;
                if (split->best[begin] < 0 || (split->best_of[n] >= 0 && total > split->best_of[n]))
                    continue;
                split->best_of[n] = total;
                cut[n] = (int32_t)begin;
            }
        }
        swap_rows(split);
    }
}

int ls_stage_split(const double *layer_cost, int64_t layers, int64_t stages, int64_t *first,
                   struct ls_error *error)
{
    return ls_stage_split_timed(layer_cost, layers, NULL, stages, first, error);
}

int ls_stage_split_timed(const double *layer_cost, int64_t layers, const double *times,
                         int64_t stages, int64_t *first, struct ls_error *error)
{
    LS_ASSERT(layers >= 0 && layers < INT32_MAX && stages >= 1);
    if (layers < stages)
        return ls_error_set(error, LS_ELAYOUT,
                            "%lld layers are too few for %lld pipeline stages: each needs at least "
                            "one; the nearest that works is %lld stages",
                            (long long)layers, (long long)stages, (long long)layers);
    size_t row = (size_t)layers + 1;
    struct split split = {.layers = layers,
                          .stages = stages,
                          .times = times,
                          .sum = calloc(row, sizeof *split.sum),
                          .best = calloc(row, sizeof *split.best),
                          .best_of = calloc(row, sizeof *split.best_of),
                          .cut = calloc(row * (size_t)stages, sizeof *split.cut)};
    int status = LS_OK;
    if (!split.sum || !split.best || !split.best_of || !split.cut)
        status = ls_no_memory(error, "to split %lld layers", (long long)layers);
    if (status == LS_OK) {
        for (int64_t i = 0; i < layers; i++)
            split.sum[i + 1] = split.sum[i] + layer_cost[i];
        most_even(&split, least_maximum(&split));
        first[stages] = layers;
        for (int64_t s = stages - 1; s >= 1; s--)
            first[s] = split.cut[s * (layers + 1) + first[s + 1]];
        first[0] = 0;
    }
    free(split.cut);
    free(split.best_of);
    free(split.best);
    free(split.sum);
    return status;
}

/* ---- by hand -------------------------------------------------------------------------------- */

bool ls_stage_split_text(const int64_t *first, int64_t stages, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int64_t s = 0; s < stages && used < bytes; s++) {
        long from = (long)first[s], to = (long)first[s + 1] - 1;
        used += (size_t)snprintf(text + used, bytes - used, from == to ? "%s%ld" : "%s%ld-%ld",
                                 s ? "," : "", from, to);
    }
    return used < bytes;
}

/* A number below limit at *at, which moves behind it. */
static bool take_layer(const char **at, int64_t limit, int64_t *out)
{
    const char *c = *at;
    while (*c == ' ')
        c++;
    const char *begin = c;
    for (*out = 0; *c >= '0' && *c <= '9'; c++) {
        *out = *out * 10 + (*c - '0');
        if (*out >= limit)
            return false;
    }
    bool any = c > begin;
    while (*c == ' ')
        c++;
    *at = c;
    return any;
}

int ls_stage_split_parse(const char *text, int64_t layers, int64_t stages, int64_t *first,
                         struct ls_error *error)
{
    const char *at = text;
    int64_t next = 0;
    for (int64_t s = 0; s < stages; s++) {
        const char *part = at;
        int64_t begin, end;
        bool ok = take_layer(&at, layers, &begin);
        end = begin;
        if (ok && *at == '-') {
            at++;
            ok = take_layer(&at, layers, &end);
        }
        if (!ok || end < begin || (*at && *at != ','))
            return ls_error_set(error, LS_ELAYOUT,
                                "part %lld, \"%.40s\": expected the first and the last layer of a "
                                "stage, such as 0-5, of layers 0 to %lld",
                                (long long)s + 1, part, (long long)layers - 1);
        if (begin != next)
            return ls_error_set(error, LS_ELAYOUT,
                                "part %lld begins at layer %lld, expected %lld: stages follow each "
                                "other without gap or overlap",
                                (long long)s + 1, (long long)begin, (long long)next);
        first[s] = begin;
        next = end + 1;
        bool last = s + 1 == stages;
        if (last != (*at == '\0'))
            return ls_error_set(error, LS_ELAYOUT,
                                "it has %s than %lld parts, which is one for each stage",
                                last ? "more" : "fewer", (long long)stages);
        at += !last;
    }
    first[stages] = next;
    if (next != layers)
        return ls_error_set(error, LS_ELAYOUT, "it ends at layer %lld, and the last is %lld",
                            (long long)next - 1, (long long)layers - 1);
    return LS_OK;
}
