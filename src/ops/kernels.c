/* The kernels of each instruction set. */
#include "ops/kernels.h"

#include <stddef.h>

/* Each kind of kernels, as the field of struct ls_kernels that points to it. */
#define KINDS(row, isa)                                                                            \
    row(pointwise, isa) row(norm, isa) row(sum, isa) row(embedding, isa) row(loss, isa)            \
        row(update, isa) row(delta, isa) row(muon, isa) row(int8, isa) row(few, isa)               \
            row(blocks, isa)
#define DECLARED(kind, isa) extern const struct kind##_kernels kind##_kernels_##isa;
#define FIELD(kind, isa)    .kind = &kind##_kernels_##isa,
#define TABLE(isa)                                                                                 \
    KINDS(DECLARED, isa) static const struct ls_kernels kernels_##isa = {KINDS(FIELD, isa)}

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
