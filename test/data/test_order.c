/* The order of samples is a permutation of each epoch; the sampler is PyTorch's. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

CASE(test_every_epoch_is_a_permutation)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 1000, 4097, 100003};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        struct ls_sample_order order = {sizes[s], 42, true};
        unsigned char *seen = malloc((size_t)sizes[s]);
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            memset(seen, 0, (size_t)sizes[s]);
            for (int64_t i = 0; i < sizes[s]; i++) {
                int64_t sample = ls_sample_permuted(&order, epoch, i);
                if (sample < 0 || sample >= sizes[s] || seen[sample]++)
                    fail_msg("%lld samples, epoch %lld: position %lld gives %lld again or outside",
                             (long long)sizes[s], (long long)epoch, (long long)i,
                             (long long)sample);
            }
        }
        free(seen);
    }
}

/* A run is resumed by another build or machine: the order may never change. */
CASE(test_order_is_frozen)
{
    static const int64_t expected[2][10] = {{1, 8, 7, 6, 2, 9, 4, 3, 5, 0},
                                            {8, 4, 3, 2, 7, 9, 0, 5, 1, 6}};
    for (int64_t epoch = 0; epoch < 2; epoch++)
        for (int64_t i = 0; i < 10; i++) {
            struct ls_sample_order order = {10, 1234, true};
            assert_int_equal(ls_sample_permuted(&order, epoch, i), expected[epoch][i]);
            assert_int_equal(ls_sample_at(&order, epoch * 10 + i), expected[epoch][i]);
        }
    struct ls_sample_order large = {INT64_C(1) << 62, 7, true};
    assert_int_equal(ls_sample_permuted(&large, 5, 123456789), INT64_C(3865043466029869717));
}

CASE(test_without_shuffle_and_seeds)
{
    struct ls_sample_order plain = {100, 1, false}, one = {1000, 1, true}, two = {1000, 2, true};
    for (int64_t g = 0; g < 300; g++)
        assert_int_equal(ls_sample_at(&plain, g), g % 100);
    int same_seed = 0, same_epoch = 0, fixed = 0;
    for (int64_t i = 0; i < 1000; i++) {
        same_seed += ls_sample_at(&one, i) == ls_sample_at(&two, i);
        same_epoch += ls_sample_at(&one, i) == ls_sample_at(&one, 1000 + i);
        fixed += ls_sample_at(&one, i) == i;
    }
    /* Each has expectation 1. */
    assert_in_range(same_seed, 0, 10);
    assert_in_range(same_epoch, 0, 10);
    assert_in_range(fixed, 0, 10);
}

/* Where position i goes over many epochs: every sample as often, by chi-squared. */
static void check_uniform(int64_t samples)
{
    enum { EPOCHS = 20000 };
    struct ls_sample_order order = {samples, 99, true};
    long count[16][16] = {{0}};
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++)
        for (int64_t i = 0; i < samples; i++)
            count[i][ls_sample_permuted(&order, epoch, i)]++;
    double expected = (double)EPOCHS / (double)samples, chi_squared = 0;
    for (int64_t i = 0; i < samples; i++)
        for (int64_t k = 0; k < samples; k++) {
            double difference = (double)count[i][k] - expected;
            chi_squared += difference * difference / expected;
        }
    /* (n - 1)^2 degrees of freedom; their mean and 6 standard deviations. */
    double freedom = (double)((samples - 1) * (samples - 1));
    double limit = freedom + 6 * __builtin_sqrt(2 * freedom);
    if (chi_squared > limit)
        fail_msg("%lld samples: chi-squared %g, limit %g", (long long)samples, chi_squared, limit);
}

CASE(test_positions_are_uniform)
{
    check_uniform(2);
    check_uniform(3);
    check_uniform(5);
    check_uniform(11);
    check_uniform(16);
}

/* ---- distributed sampler -------------------------------------------------------------------- */

/* list(DistributedSampler(range(samples), replicas, rank, shuffle=False, drop_last=drop_last)) of
 * PyTorch. */
CASE(test_sampler_equals_pytorch)
{
    static const struct {
        int64_t samples, replicas, rank;
        bool drop_last;
        int64_t count, expected[4];
    } cases[] = {
        {10, 4, 0, false, 3, {0, 4, 8}},  {10, 4, 1, false, 3, {1, 5, 9}},
        {10, 4, 2, false, 3, {2, 6, 0}},  {10, 4, 3, false, 3, {3, 7, 1}},
        {10, 4, 0, true, 2, {0, 4}},      {10, 4, 3, true, 2, {3, 7}},
        {8, 4, 3, false, 2, {3, 7}},      {8, 4, 3, true, 2, {3, 7}},
        {3, 8, 0, false, 1, {0}},         {3, 8, 2, false, 1, {2}},
        {3, 8, 3, false, 1, {0}},         {3, 8, 7, false, 1, {1}},
        {3, 8, 7, true, 0, {0}},          {1, 3, 2, false, 1, {0}},
        {7, 1, 0, true, 7, {0, 1, 2, 3}},
    };
    struct ls_error error = {0};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct ls_distributed_sampler sampler;
        assert_ok(ls_distributed_sampler_init(&sampler, cases[c].samples, cases[c].replicas,
                                              cases[c].rank, false, 0, cases[c].drop_last, &error),
                  error);
        assert_int_equal(sampler.num_samples, cases[c].count);
        assert_int_equal(sampler.total_size, cases[c].count * cases[c].replicas);
        for (int64_t i = 0; i < cases[c].count && i < 4; i++)
            assert_int_equal(ls_distributed_sampler_at(&sampler, i), cases[c].expected[i]);
    }
}

/* Shuffled: together the replicas see every sample, as often as PyTorch's would. */
CASE(test_shuffled_sampler_covers_all)
{
    struct ls_error error = {0};
    for (int64_t samples = 1; samples < 40; samples++)
        for (int64_t replicas = 1; replicas <= 9; replicas++)
            for (int64_t epoch = 0; epoch < 2; epoch++) {
                int seen[40] = {0};
                for (int64_t rank = 0; rank < replicas; rank++) {
                    struct ls_distributed_sampler sampler;
                    assert_ok(ls_distributed_sampler_init(&sampler, samples, replicas, rank, true,
                                                          3, false, &error),
                              error);
                    ls_distributed_sampler_set_epoch(&sampler, epoch);
                    for (int64_t i = 0; i < sampler.num_samples; i++)
                        seen[ls_distributed_sampler_at(&sampler, i)]++;
                }
                int64_t total = ls_round_up(samples, replicas);
                for (int64_t i = 0; i < samples; i++)
                    assert_in_range(seen[i], total / samples, ls_ceil_div(total, samples));
            }
}

CASE(test_sampler_arguments)
{
    struct ls_error error = {0};
    struct ls_distributed_sampler s;
    assert_int_equal(ls_distributed_sampler_init(&s, 0, 1, 0, true, 0, false, &error), LS_EINVAL);
    assert_int_equal(ls_distributed_sampler_init(&s, 5, 2, 2, true, 0, false, &error), LS_EINVAL);
    assert_text_contains(error.text, "rank 2 of 2 replicas");
    assert_int_equal(ls_distributed_sampler_init(&s, 5, 2, -1, true, 0, false, &error), LS_EINVAL);
    assert_int_equal(ls_distributed_sampler_init(&s, 5, 0, 0, true, 0, false, &error), LS_EINVAL);
}

SUITE_MAIN(NULL, NULL)
