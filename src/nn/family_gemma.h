/* Private to nn: what the layers of the Gemma families share beside Llama's: norms by weights kept
 * as their distance from one, and a scaled embedding. */
#ifndef NN_FAMILY_GEMMA_H
#define NN_FAMILY_GEMMA_H

#include "nn/family_llama.h"

/* The whole programs. */
extern const struct program gemma_embedding, gemma_head;

#define GEMMA_NORM_OF(size, role, name, elsewhere)                                                 \
    {                                                                                              \
        role, name, SIZE_ONE, size, CUT_NONE, START_ZERO, WHEN_ALWAYS, elsewhere                   \
    }
#define GEMMA_NORM(role, name, elsewhere) GEMMA_NORM_OF(SIZE_CHANNELS, role, name, elsewhere)

/* The activation and the head's table. */
#define GEMMA_GEGLU .tied = true, .act = LS_ACT_GEGLU, .acts = 1u << LS_ACT_GEGLU

/* clang-format off */
/* What Gemma 2 and those after it have besides: norms behind attention and mlp, by the enumerators
 * P1, POST1, P2 and POST2; enumerators from the output of attention on. */
#define GEMMA_BEHIND_ENUMERATORS O, LSE, Y1, P1, POST1, H1, A2, RSTD2, F, G, Y2, P2, POST2, OUT
#define GEMMA_BEHIND_PARAMETERS                                                                    \
    GEMMA_NORM("norm1", "norm_1.weight", "input_layernorm.weight"),                                \
    GEMMA_NORM("post1", "post_norm_1.weight", "post_attention_layernorm.weight"),                  \
    GEMMA_NORM("norm2", "norm_2.weight", "pre_feedforward_layernorm.weight"),                      \
    GEMMA_NORM("post2", "post_norm_2.weight", "post_feedforward_layernorm.weight")
#define GEMMA_BEHIND_VALUES                                                                        \
    [P1] = LLAMA_STREAM("p1", AGAIN_SELECTIVE), [POST1] = LLAMA_RSTD("post1"),                     \
    [P2] = LLAMA_STREAM("p2", AGAIN_SELECTIVE), [POST2] = LLAMA_RSTD("post2")
/* From the residual y1 of attention to the block's end. */
#define GEMMA_BEHIND_STEPS                                                                         \
    LLAMA_RMSNORM(step_rmsnorm_plus_one, Y1, 0, P1, POST1, Y1, "post1"),                           \
    LLAMA_RMSNORM(step_rmsnorm_plus_one, X, P1, A2, RSTD2, H1, "norm2"), LLAMA_FEED(A2),           \
    LLAMA_RMSNORM(step_rmsnorm_plus_one, Y2, 0, P2, POST2, Y2, "post2"), LLAMA_ADD(H1, P2, OUT)
#define GEMMA_BEHIND_HF_KEYS                                                                       \
    {"rms_norm_eps", "norm_epsilon", "1e-6", NULL},                                                \
    {"num_key_value_heads", "kv_heads", "4", NULL},                                                \
    {"head_dim", "head_dim", "256", NULL},                                                         \
    {"sliding_window", "window", "4096", NULL},                                                    \
    {"query_pre_attn_scalar", "query_scale", "256", NULL}
#define GEMMA_BEHIND_GGUF_NAMES                                                                    \
    {"post_attention_layernorm", "post_attention_norm"},                                           \
    {"pre_feedforward_layernorm", "ffn_norm"},                                                     \
    {"post_feedforward_layernorm", "post_ffw_norm"}
/* clang-format on */

#endif
