/* Drawing the next token from logits. */
#include <lockstep/nn.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int32_t greedy(const float *logits, int64_t vocab)
{
    int32_t best = 0;
    for (int64_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best])
            best = (int32_t)i;
    return best;
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

int32_t ls_sample(const struct ls_sampling *sampling, const float *logits, int64_t vocab,
                  int32_t *order, float u)
{
    if (sampling->temperature <= 0)
        return greedy(logits, vocab);
    tokens_sort(logits, vocab, order);
    int64_t kept = sampling->top_k > 0 ? ls_min(sampling->top_k, vocab) : vocab;
    double top = logits[order[0]], total = 0;
    for (int64_t i = 0; i < kept; i++)
        total += exp((logits[order[i]] - top) / sampling->temperature);
    if (sampling->top_p < 1) {
        double reach = 0;
        for (int64_t i = 0; i < kept; i++) {
            reach += exp((logits[order[i]] - top) / sampling->temperature);
            if (reach >= sampling->top_p * total) {
                kept = i + 1;
                total = reach;
            }
        }
    }
    double target = u * total, reach = 0;
    for (int64_t i = 0; i < kept; i++) {
        reach += exp((logits[order[i]] - top) / sampling->temperature);
        if (target < reach)
            return order[i];
    }
    return order[kept - 1];
}
