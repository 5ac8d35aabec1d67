/* Each op of the headers with arguments that it takes. */
#include "every_op.h"

void *(*every_op_at)(void);

enum { N = EVERY_OP_N };
#define AT every_op_at()

static const struct ls_token_sum sum = {1, 1, 1, N, LS_ONTO_NOTHING};
static const int32_t length = N;
static const struct ls_token_sum one_row = {1, 1, 1, 1, LS_ONTO_NOTHING};
static const struct ls_cross_entropy loss = {N, N, N, 1, LS_F32, 1, 0, 0, NULL, NULL, NULL};

static struct ls_attention attention(void)
{
    return (struct ls_attention){1,  N,  1,  1,  8,  1, LS_F32, AT, AT, AT, 8, 8,    8, AT,
                                 AT, AT, AT, AT, AT, N, 0,      AT, AT, 0,  0, NULL, 0, {0}};
}

#define OP(name, arguments)                                                                        \
    static int run_##name(struct ls_ops *ops)                                                      \
    {                                                                                              \
        name arguments;                                                                            \
        return LS_OK;                                                                              \
    }
#define CHECKED_OP(name, arguments)                                                                \
    static int run_##name(struct ls_ops *ops)                                                      \
    {                                                                                              \
        const struct ls_attention a = attention();                                                 \
        (void)a;                                                                                   \
        return name arguments;                                                                     \
    }
#define NORM      (&(struct ls_norm){1, N, LS_F32, 1e-5f, AT, AT, AT, AT, 0, 0, 0, false})
#define HEAD_NORM (&(struct ls_norm){1, N, LS_F32, 1e-5f, AT, NULL, NULL, AT, 1, N, 1, false})
#define LOSS_SUM  (&(struct ls_loss_sum){1, 1, N, AT, NULL, NULL, NULL})
#define NORM_CUT  (&(struct ls_norm_cut){N, 0, N, 1})
#define EMBEDDING (&(struct ls_embedding){LS_F32, 1, N, AT, 0, N, AT, 0, 1, AT})
#define UPDATE    (&(struct ls_update){N, AT, AT, LS_F16, AT, AT, 1, 1, 1, LS_F32, {.step = 1}})

OP(ls_gelu_forward, (ops, LS_GELU_TANH, LS_F32, N, AT, AT))
OP(ls_gelu_backward, (ops, LS_GELU_TANH, LS_F32, N, AT, AT, AT))
OP(ls_glu_forward, (ops, LS_SWIGLU, LS_F32, 1, N, AT, AT))
OP(ls_glu_backward, (ops, LS_SWIGLU, LS_F32, 1, N, AT, AT, AT))
OP(ls_softcap, (ops, LS_F32, N, 1, AT, AT))
OP(ls_scale, (ops, LS_F32, N, 1, AT, AT))
OP(ls_bias_backward, (ops, LS_F32, 1, 1, AT, &sum, AT))
OP(ls_add, (ops, LS_F32, N, AT, AT, AT))
OP(ls_bias_round, (ops, LS_F32, 1, N, AT, AT, AT))
OP(ls_dropout, (ops, LS_F32, &(struct ls_dropout){{{1, 2}}, 0.5f, 1, N, 0}, AT, AT))
OP(ls_cast_to_half, (ops, LS_F16, N, AT, AT))
OP(ls_cast_from_half, (ops, LS_F16, N, AT, AT))
OP(ls_tree_add, (ops, N, AT, AT))
OP(ls_rank_sum_run, (ops, &(struct ls_rank_sum){LS_RANK_SUM_F32, 3, 3, true, N, {AT, AT, AT}, AT}))
OP(ls_fill_zero, (ops, N, AT))
OP(ls_copy, (ops, N, AT, AT))
OP(ls_copy_rows, (ops, N, 4, AT, 8, AT, 8))
OP(ls_embedding_forward, (ops, EMBEDDING, AT))
OP(ls_embedding_gather, (ops, EMBEDDING, AT))
OP(ls_embedding_finish, (ops, EMBEDDING, AT, AT))
OP(ls_iota, (ops, N, 3, AT))
OP(ls_embedding_backward, (ops, EMBEDDING, AT, &one_row, (struct ls_embedding_scratch){AT, AT}, AT))
OP(ls_position_backward, (ops, LS_F32, N, AT, &sum, 0, N, AT))
OP(ls_cross_entropy, (ops, &loss, AT, AT, AT))
OP(ls_cross_entropy_max, (ops, &loss, AT, AT))
OP(ls_cross_entropy_sum, (ops, &loss, AT, AT, AT, AT, AT, AT))
OP(ls_cross_entropy_finish, (ops, &loss, AT, AT, AT, AT, AT, AT))
OP(ls_cross_entropy_place, (ops, &loss, AT, AT, AT))
OP(ls_entropy, (ops, &loss, AT, AT, AT))
OP(ls_loss_sum, (ops, LOSS_SUM, AT))
OP(ls_layernorm_forward, (ops, NORM, AT, AT, AT, AT))
OP(ls_rmsnorm_forward, (ops, NORM, AT, AT, AT, AT))
OP(ls_layernorm_backward_input, (ops, NORM, AT, AT, AT, AT))
OP(ls_rmsnorm_backward_input, (ops, NORM, AT, AT, AT, AT))
OP(ls_layernorm_backward_weight,
   (ops, NORM, AT, AT, &(struct ls_token_sum){1, 1, 1, 1, LS_ONTO_NOTHING}, AT, AT))
OP(ls_rmsnorm_backward_weight,
   (ops, NORM, AT, AT, &(struct ls_token_sum){1, 1, 1, 1, LS_ONTO_NOTHING}, AT))
OP(ls_rmsnorm_heads_weight, (ops, HEAD_NORM, AT, AT, &(struct ls_norm_parts){1, 1, 1, N, AT}))
OP(ls_rmsnorm_cut_sum, (ops, HEAD_NORM, NORM_CUT, AT, NULL, AT))
OP(ls_rmsnorm_cut_finish, (ops, HEAD_NORM, NORM_CUT, AT, NULL, AT, AT))
OP(ls_rope_apply, (ops, LS_F32, &(struct ls_rope){1, 1, 1, 8, 8, 0, AT, AT}, AT, false))
OP(ls_adamw_update, (ops, UPDATE, &(struct ls_adamw){0.9f, 0.9f, 1e-8f, 1}, AT, AT))
OP(ls_sgd_update, (ops, UPDATE, &(struct ls_sgd){0.9f, false, 1}, AT))
OP(ls_lion_update, (ops, UPDATE, &(struct ls_lion){0.9f, 0.9f}, AT))
OP(ls_squared_norm, (ops, N, AT, AT, AT))
OP(ls_delta_amax, (ops, AT, AT, N, AT))
OP(ls_delta_encode, (ops, LS_DELTA_INT8, AT, AT, N, 0.01f, AT))
OP(ls_delta_sum, (ops, LS_DELTA_INT8, AT, N + 8, 3, N, AT))
OP(ls_delta_decode, (ops, LS_DELTA_INT8, AT, N, 0.01f, AT))
OP(ls_mix, (ops, AT, AT, N, 0.5f))
OP(ls_compensate, (ops, AT, AT, AT, N, 0.5f))
OP(ls_muon_momentum, (ops, UPDATE, &(struct ls_muon_momentum){0.9f, true}, AT, AT))
OP(ls_muon_update, (ops, UPDATE, 1, AT))
CHECKED_OP(ls_newton_schulz,
           (ops, &(struct ls_newton_schulz){8, 8, 5}, AT, AT, &(float *){NULL}, NULL))
OP(ls_attention_kv_finish, (ops, &(struct ls_kv_gradient){LS_F32, 1, 8, 8, 1, AT, AT, AT, AT}))
CHECKED_OP(ls_attention_forward, (ops, &a, NULL))
CHECKED_OP(ls_attention_forward_part, (ops, &a, 0, N, AT, NULL))
CHECKED_OP(ls_attention_forward_finish, (ops, &a, AT, NULL))
CHECKED_OP(ls_attention_backward, (ops, &a, NULL))
CHECKED_OP(ls_attention_backward_part, (ops, &a, 0, N, AT, NULL))
CHECKED_OP(ls_attention_backward_finish, (ops, &a, AT, NULL))
CHECKED_OP(ls_attention_decode,
           (ops,
            &(struct ls_attention_decode){
                1, N, 1, 1, 8, 1, LS_F32, &length, AT, AT, AT, 8, 8, AT, 0, 0, NULL, {0}},
            NULL))
CHECKED_OP(ls_int8_quantize, (ops, 1, N, 1, AT, AT, AT, NULL))
CHECKED_OP(ls_gemm_run, (ops,
                         &(struct ls_gemm){.m = 8,
                                           .n = 8,
                                           .sections = 1,
                                           .k = {8},
                                           .tiles = 1,
                                           .a = AT,
                                           .b = AT,
                                           .c = AT,
                                           .lda = 8,
                                           .ldb = 8,
                                           .ldc = 8},
                         NULL))

#define ENTRY(name)                                                                                \
    {                                                                                              \
#name, run_##name                                                                          \
    }
const struct every_op every_op[] = {
    ENTRY(ls_gelu_forward),
    ENTRY(ls_gelu_backward),
    ENTRY(ls_glu_forward),
    ENTRY(ls_glu_backward),
    ENTRY(ls_softcap),
    ENTRY(ls_scale),
    ENTRY(ls_bias_backward),
    ENTRY(ls_add),
    ENTRY(ls_bias_round),
    ENTRY(ls_dropout),
    ENTRY(ls_cast_to_half),
    ENTRY(ls_cast_from_half),
    ENTRY(ls_tree_add),
    ENTRY(ls_rank_sum_run),
    ENTRY(ls_fill_zero),
    ENTRY(ls_copy),
    ENTRY(ls_copy_rows),
    ENTRY(ls_embedding_forward),
    ENTRY(ls_embedding_gather),
    ENTRY(ls_embedding_finish),
    ENTRY(ls_iota),
    ENTRY(ls_embedding_backward),
    ENTRY(ls_position_backward),
    ENTRY(ls_cross_entropy),
    ENTRY(ls_cross_entropy_max),
    ENTRY(ls_cross_entropy_sum),
    ENTRY(ls_cross_entropy_finish),
    ENTRY(ls_cross_entropy_place),
    ENTRY(ls_entropy),
    ENTRY(ls_loss_sum),
    ENTRY(ls_layernorm_forward),
    ENTRY(ls_rmsnorm_forward),
    ENTRY(ls_layernorm_backward_input),
    ENTRY(ls_rmsnorm_backward_input),
    ENTRY(ls_layernorm_backward_weight),
    ENTRY(ls_rmsnorm_backward_weight),
    ENTRY(ls_rmsnorm_heads_weight),
    ENTRY(ls_rmsnorm_cut_sum),
    ENTRY(ls_rmsnorm_cut_finish),
    ENTRY(ls_rope_apply),
    ENTRY(ls_adamw_update),
    ENTRY(ls_sgd_update),
    ENTRY(ls_lion_update),
    ENTRY(ls_squared_norm),
    ENTRY(ls_delta_amax),
    ENTRY(ls_delta_encode),
    ENTRY(ls_delta_sum),
    ENTRY(ls_delta_decode),
    ENTRY(ls_mix),
    ENTRY(ls_compensate),
    ENTRY(ls_muon_momentum),
    ENTRY(ls_muon_update),
    ENTRY(ls_newton_schulz),
    ENTRY(ls_attention_kv_finish),
    ENTRY(ls_attention_forward),
    ENTRY(ls_attention_forward_part),
    ENTRY(ls_attention_forward_finish),
    ENTRY(ls_attention_backward),
    ENTRY(ls_attention_backward_part),
    ENTRY(ls_attention_backward_finish),
    ENTRY(ls_attention_decode),
    ENTRY(ls_gemm_run),
    ENTRY(ls_int8_quantize),
};
const int every_op_count = sizeof every_op / sizeof *every_op;
