/* The kernels of each instruction set. */
#include "ops/kernels.h"

#include <stddef.h>

#define TABLE(isa)                                                                                 \
    extern const struct pointwise_kernels pointwise_kernels_##isa;                                 \
    extern const struct norm_kernels norm_kernels_##isa;                                           \
    extern const struct sum_kernels sum_kernels_##isa;                                             \
    extern const struct embedding_kernels embedding_kernels_##isa;                                 \
    extern const struct loss_kernels loss_kernels_##isa;                                           \
    extern const struct update_kernels update_kernels_##isa;                                       \
    extern const struct delta_kernels delta_kernels_##isa;                                         \
    extern const struct muon_kernels muon_kernels_##isa;                                           \
    extern const struct int8_kernels int8_kernels_##isa;                                           \
    extern const struct few_kernels few_kernels_##isa;                                             \
    extern const struct blocks_kernels blocks_kernels_##isa;                                       \
    static const struct ls_kernels kernels_##isa = {                                               \
        .pointwise = &pointwise_kernels_##isa,                                                     \
        .norm = &norm_kernels_##isa,                                                               \
        .sum = &sum_kernels_##isa,                                                                 \
        .embedding = &embedding_kernels_##isa,                                                     \
        .loss = &loss_kernels_##isa,                                                               \
        .update = &update_kernels_##isa,                                                           \
        .delta = &delta_kernels_##isa,                                                             \
        .muon = &muon_kernels_##isa,                                                               \
        .int8 = &int8_kernels_##isa,                                                               \
        .few = &few_kernels_##isa,                                                                 \
        .blocks = &blocks_kernels_##isa,                                                           \
    }

TABLE(plain);
#ifdef __x86_64__
TABLE(avx2);
TABLE(avx512);
#endif

const struct ls_kernels *kernels_of(enum ls_isa isa)
{
#ifdef __x86_64__
    if (isa >= LS_ISA_AVX512)
        return &kernels_avx512;
    if (isa == LS_ISA_AVX2)
        return &kernels_avx2;
#endif
    return isa == LS_ISA_PLAIN ? &kernels_plain : NULL;
}
