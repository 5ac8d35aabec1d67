/* Drawing the next token from logits. */
#include <lockstep/nn.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The likeliest token; -1 if a logit is NaN, or that token's is infinite. */
static int32_t greedy(const float *logits, int64_t vocab)
{
    int32_t best = 0;
    bool numbers = true;
    for (int64_t i = 0; i < vocab; i++) {
        numbers &= !isnan(logits[i]);
        if (logits[i] > logits[best])
            best = (int32_t)i;
    }
    return numbers && isfinite(logits[best]) ? best : -1;
}

/* Ascends as logits descend; 0 and -0 are equal. */
static uint32_t key_of(float logit)
{
    uint32_t bits;
    logit += 0.0F;
    memcpy(&bits, &logit, sizeof bits);
    return bits >> 31 ? bits : ~bits & 0x7fffffff;
}

static int by_logit(const void *a, const void *b, void *logits)
{
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    uint32_t left = key_of(((const float *)logits)[i]), right = key_of(((const float *)logits)[j]);
    return left != right ? (left > right) - (left < right) : (i > j) - (i < j);
}

/* order [vocab] = tokens by descending logit, of equal ones the smaller first: four passes of a
 * radix sort, between it and another one. Without memory for that, by comparisons. */
static void tokens_sort(const float *logits, int64_t vocab, int32_t *order)
{
    enum { PASSES = 4, BINS = 256 };
    int32_t *other = malloc((size_t)vocab * sizeof *other);
    int64_t starts[PASSES][BINS] = {0};
    for (int64_t i = 0; i < vocab; i++) {
        uint32_t key = key_of(logits[i]);
        for (int pass = 0; pass < PASSES; pass++)
            starts[pass][key >> 8 * pass & 255]++;
        order[i] = (int32_t)i;
    }
    int32_t *from = order, *to = other;
    for (int pass = 0; pass < PASSES && other; pass++) {
        int64_t *start = starts[pass], before = 0;
        for (int bin = 0; bin < BINS; bin++) {
            int64_t count = start[bin];
            start[bin] = before;
            before += count;
        }
        for (int64_t i = 0; i < vocab; i++)
            to[start[key_of(logits[from[i]]) >> 8 * pass & 255]++] = from[i];
        int32_t *swapped = from;
        from = to;
        to = swapped;
    }
    if (!other)
        qsort_r(order, (size_t)vocab, sizeof *order, by_logit, (void *)(uintptr_t)logits);
    free(other);
}

/* Of a token by its logit, where the greatest is top. */
static double exponent(const struct ls_sampling *sampling, float logit, double top)
{
    return (logit - top) / sampling->temperature;
}

/* The token in which target falls when the first kept of order are added up, from the first on. */
static int32_t reached(const struct ls_sampling *sampling, const float *logits,
                       const int32_t *order, int64_t kept, double target)
{
    double top = logits[order[0]], reach = 0;
    for (int64_t i = 0; i < kept; i++) {
        reach += exp(exponent(sampling, logits[order[i]], top));
        if (target < reach)
            return order[i];
    }
    return order[kept - 1];
}

static int32_t drawn_sorted(const struct ls_sampling *sampling, const float *logits, int64_t vocab,
                            int32_t *order, float u)
{
    tokens_sort(logits, vocab, order);
    int64_t kept = sampling->top_k > 0 ? ls_min(sampling->top_k, vocab) : vocab;
    double top = logits[order[0]], total = 0;
    for (int64_t i = 0; i < kept; i++)
        total += exp(exponent(sampling, logits[order[i]], top));
    if (sampling->top_p < 1) {
        double reach = 0;
        for (int64_t i = 0; i < kept; i++) {
            reach += exp(exponent(sampling, logits[order[i]], top));
            if (reach >= sampling->top_p * total) {
                kept = i + 1;
                total = reach;
            }
        }
    }
    return reached(sampling, logits, order, kept, u * total);
}

/* Bins of equal width by exponent, the last one without an end: a token of a lower logit is in no
 * earlier bin. */
enum { BINS = 4096, BINS_A_NAT = 128 };

static int32_t bin_of(double exponent)
{
    double at = exponent * -BINS_A_NAT;
    return at < BINS - 1 ? (int32_t)at : BINS - 1;
}

/* What drawn_sorted draws from the whole vocabulary, or -1 if that is not certain. Only the bin in
 * which the target falls is sorted. Sums by bins differ from those in descending order by rounding,
 * at most by a part of (vocab + BINS) / 2^52: so the token is certain if the target is further than
 * that from both its ends. */
static int32_t drawn_of_bins(const struct ls_sampling *sampling, const float *logits, int64_t vocab,
                             double top, int32_t *order, float u)
{
    double sums[BINS] = {0}, total = 0, before = 0;
    for (int64_t i = 0; i < vocab; i++) {
        double x = exponent(sampling, logits[i], top);
        order[i] = bin_of(x);
        sums[order[i]] += exp(x);
    }
    for (int bin = 0; bin < BINS; bin++)
        total += sums[bin];
    double target = u * total, margin = total * 8 * (double)(vocab + BINS) * 0x1p-53;
    int bin = 0;
    while (bin < BINS - 1 && before + sums[bin] <= target)
        before += sums[bin++];
    int64_t count = 0;
    for (int64_t i = 0; i < vocab; i++)
        if (order[i] == bin)
            order[count++] = (int32_t)i;
    qsort_r(order, (size_t)count, sizeof *order, by_logit, (void *)(uintptr_t)logits);
    for (int64_t i = 0; i < count; i++) {
        double reach = before + exp(exponent(sampling, logits[order[i]], top));
        if (target < reach)
            return reach - target > margin && (before <= 0 || target - before > margin) ? order[i]
                                                                                        : -1;
        before = reach;
    }
    return -1;
}

int32_t ls_sample(const struct ls_sampling *sampling, const float *logits, int64_t vocab,
                  int32_t *order, float u)
{
    int32_t best = greedy(logits, vocab), token = -1;
    if (best < 0 || sampling->temperature <= 0)
        return best;
    if (sampling->top_k <= 0 && sampling->top_p >= 1)
        token = drawn_of_bins(sampling, logits, vocab, logits[best], order, u);
    return token < 0 ? drawn_sorted(sampling, logits, vocab, order, u) : token;
}
