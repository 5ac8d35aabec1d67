#include "ops/gemm.h"

#include <stdlib.h>

struct ls_gemm_cache {
    int count;
};
struct ls_gemm_cache *gemm_cache_new(void) { return calloc(1, sizeof(struct ls_gemm_cache)); }
void gemm_cache_free(struct ls_gemm_cache *cache) { free(cache); }
