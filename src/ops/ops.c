/* What a rank computes with: threads, kernels, workspace. */

#include "ops/kernels.h"

#include <stdlib.h>

/* Enough for the packed operands of the matrix product and for attention's blocks; pages that no
 * op touches cost nothing. */
enum { WORKSPACE_BYTES = 16 << 20, THREADS_MAX = 4096 };

size_t ls_ops_workspace_bytes(int threads)
{
    return (size_t)threads * WORKSPACE_BYTES;
}

int ls_ops_init(struct ls_ops *ops, int threads, enum ls_isa isa, struct ls_error *error)
{
    *ops = (struct ls_ops){0};
    if (threads < 1 || threads > THREADS_MAX)
        return ls_error_set(error, LS_EINVAL, "threads is %d: expected 1 to %d", threads,
                            THREADS_MAX);
    enum ls_isa best = ls_isa_best(), limit;
    if (ls_isa_limit(&limit))
        return ls_error_set(error, LS_EINVAL,
                            "the environment has " LS_ISA_VARIABLE "=%s: expected plain, avx2, "
                            "avx512, avx512_bf16 or amx",
                            getenv(LS_ISA_VARIABLE));
    if (isa > best)
        return ls_error_set(error, LS_ENOTSUP,
                            "this machine does not have instruction set %s%s: the best here is %s; "
                            "choose that or a lower one",
                            ls_isa_name(isa),
                            isa <= limit ? "" : " while " LS_ISA_VARIABLE " limits it",
                            ls_isa_name(best));
    struct ls_arena arena;
    int status = ls_arena_init(&arena, ls_ops_workspace_bytes(threads), error);
    if (status != LS_OK)
        return status;
    *ops = (struct ls_ops){.threads = threads,
                           .isa = isa,
                           .kernels = kernels_of(isa),
                           .workspace = arena.base,
                           .workspace_bytes = WORKSPACE_BYTES};
    return LS_OK;
}

void ls_ops_init_idle(struct ls_ops *ops, enum ls_isa isa)
{
    *ops = (struct ls_ops){.threads = 1, .isa = isa, .kernels = kernels_of(isa), .idle = true};
}

void ls_ops_init_shared(struct ls_ops *ops)
{
    enum ls_isa isa = ls_isa_best();
    *ops = (struct ls_ops){.threads = 1, .isa = isa, .kernels = kernels_of(isa)};
}

void ls_ops_release(struct ls_ops *ops)
{
    struct ls_arena workspace = {.base = ops->workspace,
                                 .size = (size_t)ops->threads * ops->workspace_bytes};
    ls_arena_release(&workspace);
    *ops = (struct ls_ops){0};
}
