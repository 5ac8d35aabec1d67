/* The distributed sampler: what torch.utils.data.DistributedSampler gives each replica, in C.
 *
 *     build/examples/sampler
 */
#include <lockstep/data.h>

#include <stdio.h>

int main(void)
{
    enum { SAMPLES = 10, REPLICAS = 4, EPOCHS = 2 };
    struct ls_error error = {0};
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++)
        for (int64_t rank = 0; rank < REPLICAS; rank++) {
            struct ls_distributed_sampler sampler;
            if (ls_distributed_sampler_init(&sampler, SAMPLES, REPLICAS, rank, /* shuffle */ true,
                                            /* seed */ 0, /* drop_last */ false, &error)) {
                fprintf(stderr, "%s\n", error.text);
                return 1;
            }
            ls_distributed_sampler_set_epoch(&sampler, epoch);
            printf("epoch %d  replica %d:", (int)epoch, (int)rank);
            for (int64_t i = 0; i < sampler.num_samples; i++)
                printf(" %d", (int)ls_distributed_sampler_at(&sampler, i));
            putchar('\n');
        }
    return 0;
}
