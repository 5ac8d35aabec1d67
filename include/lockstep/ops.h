/* lockstep/ops.h - the arithmetic of a Transformer on local buffers.
 *
 * An op is a forward and a backward side by side. Ops do not communicate, do not allocate (they use
 * the workspace of struct ls_ops) and touch no globals. Each header below gives, per op: formula,
 * source, shapes, what is saved, whether outputs are assigned (=) or added to (+=), and the order
 * of its sums, which never depends on the number of threads nor on how rows are cut into calls.
 *
 *   lockstep/ops/gemm.h          matrix product in ordered tiles
 *   lockstep/ops/blocks.h        weights in blocks of few bits, as QLoRA keeps a frozen model
 *   lockstep/ops/int8.h          products with weights of int8, for inference
 *   lockstep/ops/attention.h     causal attention, multi-head and grouped-query, T x T never stored
 *   lockstep/ops/norm.h          LayerNorm, RMSNorm (with fused residual)
 *   lockstep/ops/pointwise.h     GELU, SwiGLU, bias, dropout, casts, tree add
 *   lockstep/ops/rank_sum.h      sums over ranks, in their order
 *   lockstep/ops/position.h      RoPE (with Llama-3 scaling)
 *   lockstep/ops/embedding.h     token and position embedding
 *   lockstep/ops/loss.h          softmax cross-entropy
 *   lockstep/ops/update.h        AdamW, SGD with momentum, Lion; squared norms
 *   lockstep/ops/delta.h         outer deltas of workers: encoded, summed, decoded; mixing
 *   lockstep/ops/muon.h          Muon: momentum, Newton-Schulz, the step
 *   lockstep/ops/work.h          what each of them computes
 *
 * Each function that reads or writes buffers makes a command of its arguments and submits it to the
 * queue of struct ls_ops (lockstep/device/queue.h).
 *
 * Legend for shapes: B batch (sequences), T tokens of a sequence, M = B*T rows, C channels, H
 * heads, G key/value heads, D head dim, F ffn width, V vocabulary. Matrices are row-major; ld is
 * the distance between rows in elements. "act" is the activation dtype: LS_F32, LS_BF16 or
 * LS_F16 (ls_is_act); statistics, gradients of parameters and parameters of norms and biases are
 * always float32. */
#ifndef LOCKSTEP_OPS_H
#define LOCKSTEP_OPS_H

#include <lockstep/device/queue.h>

LS_C_BEGIN

/* Instruction sets, ascending. Ranks agree on one. */
enum ls_isa {
    LS_ISA_PLAIN,       /* portable C; on AArch64 its vectors are NEON's */
    LS_ISA_AVX2,        /* AVX2 + FMA */
    LS_ISA_AVX512,      /* F, BW, DQ, VL */
    LS_ISA_AVX512_BF16, /* + AVX512_BF16 */
    LS_ISA_AMX,         /* + AMX-TILE, AMX-BF16 (and the kernel's permission to use them) */
};
enum { LS_ISA_COUNT = 5 };
/* Local. The best that this machine (CPU and kernel) and this build offer, and the environment
 * variable LOCKSTEP_ISA allows: it names one, to run as a lesser machine would, which is how the
 * tests run on each. */
enum ls_isa ls_isa_best(void);
#define LS_ISA_VARIABLE "LOCKSTEP_ISA"
/* Local. What the variable allows; the highest where it is not set. LS_EINVAL, and PLAIN, where it
 * names none. */
int ls_isa_limit(enum ls_isa *limit);
/* "plain", "avx2", "avx512", "avx512_bf16", "amx". */
const char *ls_isa_name(enum ls_isa isa);
/* -1 if the name is none of them. */
int ls_isa_of_name(const char *name);

/* What the bits of a result depend on, never on the machine: every instruction set computes each of
 * them, with the same bits. Only products of bf16, and attention on bf16, tell them apart. */
enum ls_arithmetic {
    LS_ARITHMETIC_FMA,        /* a chain of fused multiply-adds of float32, each rounded once */
    LS_ARITHMETIC_BF16_PAIRS, /* steps of 32 products, as one TDPBF16PS of AMX adds them: the even
                               * and the odd ones are a chain of fused multiply-adds from zero each,
                               * the sum of both is added to what was before */
};
enum { LS_ARITHMETIC_COUNT = 2, LS_PAIRS_STEP = 32 };
/* "fma", "bf16_pairs". */
const char *ls_arithmetic_name(enum ls_arithmetic arithmetic);
/* Local, pure. The one whose products of this type are faster on this instruction set: BF16_PAIRS
 * for bf16 on AMX, which is several times as fast in it, otherwise FMA. Not measured: bits must not
 * hang on what else a machine does. */
enum ls_arithmetic ls_arithmetic_fastest(enum ls_isa isa, enum ls_dtype act);

/* Token sums inside a sequence (norm weights, biases, losses) are cut in tiles of this many tokens,
 * each added from zero in ascending order, tiles by the tree (law of sums, S4). The last tile of a
 * sequence may be shorter. */
enum { LS_TOKEN_TILE = 16 };

/* Local. Of the sets up to `most`, which this machine has, the fastest in this arithmetic. Only for
 * bf16 in FMA, from AVX512_BF16 on, is that a question: its products are measured beside AVX-512's,
 * some milliseconds, once a process. Where LS_ISA_VARIABLE is set: most. */
enum ls_isa ls_isa_fastest(enum ls_isa most, enum ls_arithmetic arithmetic, enum ls_dtype act);

/* Whether activations may be of this type. */
static inline bool ls_is_act(enum ls_dtype dtype)
{
    return dtype == LS_F32 || dtype == LS_BF16 || dtype == LS_F16;
}

struct ls_kernels; /* private: table of functions for one instruction set */

/* What a rank computes with. Used by one caller at a time; it runs `threads` OpenMP threads. */
struct ls_ops {
    struct ls_queue queue; /* what its commands are submitted to */
    int threads;
    enum ls_isa isa;
    enum ls_arithmetic arithmetic; /* FMA, until another is set */
    const struct ls_kernels *kernels;
    unsigned char *workspace; /* threads x workspace_bytes */
    size_t workspace_bytes;   /* per thread, a multiple of 64 */
    bool idle;                /* see ls_ops_init_idle */
};
/* Local. threads >= 1. isa must be at most ls_isa_best() (LS_ENOTSUP). LS_EINVAL if
 * LOCKSTEP_ISA names no instruction set. */
int ls_ops_init(struct ls_ops *ops, int threads, enum ls_isa isa, struct ls_error *error);
/* Local. The workspace that ls_ops_init takes: at most so much becomes resident, and in large
 * products does. A small model touches 2 to 4 MiB a thread. */
size_t ls_ops_workspace_bytes(int threads);
/* The same as ls_ops_init, to go through the motions: no op that is given it reads or writes a
 * buffer; what an op refuses, it refuses still. Has no workspace, and needs no machine that has
 * isa. */
void ls_ops_init_idle(struct ls_ops *ops, enum ls_isa isa);
/* Local. One thread, ls_isa_best() and no workspace: for the ops of pointwise.h and rank_sum.h,
 * which change nothing in it, so that threads may share it. There is nothing to release. */
void ls_ops_init_shared(struct ls_ops *ops);
void ls_ops_release(struct ls_ops *ops);

/* Below this many elements a team of threads costs more than it saves. */
enum { LS_TEAM_MIN = 16384 };
/* Local. As many threads as a loop over so many elements is worth. */
static inline int ls_ops_team(const struct ls_ops *ops, int64_t elements)
{
    return elements < LS_TEAM_MIN ? 1 : ops->threads;
}

#include <lockstep/ops/attention.h>
#include <lockstep/ops/blocks.h>
#include <lockstep/ops/delta.h>
#include <lockstep/ops/embedding.h>
#include <lockstep/ops/gemm.h>
#include <lockstep/ops/int8.h>
#include <lockstep/ops/loss.h>
#include <lockstep/ops/muon.h>
#include <lockstep/ops/norm.h>
#include <lockstep/ops/pointwise.h>
#include <lockstep/ops/position.h>
#include <lockstep/ops/rank_sum.h>
#include <lockstep/ops/update.h>
#include <lockstep/ops/work.h>

LS_C_END
#endif
