/* The order of samples, and PyTorch's way of dealing it out to replicas. */
#include <lockstep/data.h>

/* With 8 rounds of a strong round function the network is far from the few rounds that can be told
 * from a random permutation (4: Luby and Rackoff, 1988), also on the smallest domains. */
enum { ROUNDS = 8 };

/* One pass over [0, 4^half_bits): a bijection, whatever the round function. */
static uint64_t feistel(struct ls_philox_key key, uint64_t epoch, int half_bits, uint64_t value)
{
    uint64_t mask = (UINT64_C(1) << half_bits) - 1;
    uint64_t left = value >> half_bits, right = value & mask;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t counter[4] = {(uint32_t)right, round, (uint32_t)epoch, (uint32_t)(epoch >> 32)};
        uint32_t random[4];
        ls_philox(key, counter, random);
        uint64_t next = left ^ (random[0] & mask);
        left = right;
        right = next;
    }
    return left << half_bits | right;
}

int64_t ls_sample_permuted(const struct ls_sample_order *order, int64_t epoch, int64_t index)
{
    LS_ASSERT(epoch >= 0 && index >= 0 && index < order->samples);
    if (!order->shuffle || order->samples == 1)
        return index;
    /* The halves fit the 32 bits of a Philox word up to 2^64 samples. */
    int half_bits = 1;
    while (half_bits < 32 && (UINT64_C(1) << 2 * half_bits) < (uint64_t)order->samples)
        half_bits++;
    struct ls_philox_key key = ls_philox_key_of(order->seed, "data:order");
    uint64_t value = (uint64_t)index;
    do
        value = feistel(key, (uint64_t)epoch, half_bits, value);
    while (value >= (uint64_t)order->samples);
    return (int64_t)value;
}

int64_t ls_sample_at(const struct ls_sample_order *order, int64_t number)
{
    return ls_sample_permuted(order, number / order->samples, number % order->samples);
}

/* ---- distributed sampler -------------------------------------------------------------------- */

int ls_distributed_sampler_init(struct ls_distributed_sampler *sampler, int64_t samples,
                                int64_t num_replicas, int64_t rank, bool shuffle, uint64_t seed,
                                bool drop_last, struct ls_error *error)
{
    if (samples < 1)
        return ls_error_set(error, LS_EINVAL,
                            "distributed sampler: %lld samples; expected 1 or more",
                            (long long)samples);
    if (num_replicas < 1 || rank < 0 || rank >= num_replicas)
        return ls_error_set(error, LS_EINVAL,
                            "distributed sampler: rank %lld of %lld replicas; expected a rank "
                            "from 0 to replicas - 1",
                            (long long)rank, (long long)num_replicas);
    int64_t num_samples = drop_last ? samples / num_replicas : ls_ceil_div(samples, num_replicas);
    *sampler = (struct ls_distributed_sampler){.order = {samples, seed, shuffle},
                                               .num_replicas = num_replicas,
                                               .rank = rank,
                                               .num_samples = num_samples,
                                               .total_size = num_samples * num_replicas,
                                               .epoch = 0};
    return LS_OK;
}

void ls_distributed_sampler_set_epoch(struct ls_distributed_sampler *sampler, int64_t epoch)
{
    LS_ASSERT(epoch >= 0);
    sampler->epoch = epoch;
}

int64_t ls_distributed_sampler_at(const struct ls_distributed_sampler *sampler, int64_t i)
{
    LS_ASSERT(i >= 0 && i < sampler->num_samples);
    int64_t position = sampler->rank + i * sampler->num_replicas;
    return ls_sample_permuted(&sampler->order, sampler->epoch, position % sampler->order.samples);
}
