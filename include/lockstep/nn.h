/* lockstep/nn.h - the shape of a Transformer. */
#ifndef LOCKSTEP_NN_H
#define LOCKSTEP_NN_H

#include <lockstep/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

enum ls_arch { LS_GPT2, LS_LLAMA };
enum ls_activation { LS_ACT_GELU_TANH, LS_ACT_GELU_ERF, LS_ACT_SWIGLU };

struct ls_model_config {
    enum ls_arch arch;
    int64_t vocab, vocab_padded, layers, channels, heads, kv_heads, head_dim, ffn, context;
    bool tied, bias;
    enum ls_activation act;
    float norm_epsilon;
    double rope_theta;
    struct ls_rope_scaling rope_scaling;
    float dropout, init_std;
    uint64_t seed;
};

#ifdef __cplusplus
}
#endif
#endif
