/* Drawing the next token from logits. */
#include <lockstep/nn.h>

#include <math.h>
#include <stdlib.h>

static int32_t greedy(const float *logits, int64_t vocab)
{
    int32_t best = 0;
    for (int64_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best])
            best = (int32_t)i;
    return best;
}

static int by_logit(const void *a, const void *b, void *user)
{
    const float *logits = user;
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    if (logits[i] != logits[j])
        return logits[i] > logits[j] ? -1 : 1;
    return i < j ? -1 : i > j; /* ties: the smaller token first */
}

int32_t ls_sample(const struct ls_sampling *sampling, const float *logits, int64_t vocab,
                  int32_t *order, float u)
{
    if (sampling->temperature <= 0)
        return greedy(logits, vocab);
    for (int64_t i = 0; i < vocab; i++)
        order[i] = (int32_t)i;
    qsort_r(order, (size_t)vocab, sizeof *order, by_logit, (void *)logits);
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
