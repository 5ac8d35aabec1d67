/* ops/kernels.h - the table of vector kernels of one instruction set. */
#ifndef OPS_KERNELS_H
#define OPS_KERNELS_H

#include <lockstep/ops.h>

/* plain -> kernels_plain, avx2 -> kernels_avx2, avx512 and above -> kernels_avx512. */
const struct ls_kernels *kernels_of(enum ls_isa isa);

#endif
