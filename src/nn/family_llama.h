/* Private to nn: what Llama's layers share with those of other families. A family takes whole
 * programs, or writes its own from these rows. */
#ifndef NN_FAMILY_LLAMA_H
#define NN_FAMILY_LLAMA_H

#include "nn/program.h"

/* The whole programs. Blocks have biases of q, k and v where the model has biases. */
extern const struct program llama_embedding, llama_block, llama_head;
extern const struct parameter llama_embedding_parameters[];
/* With the norms behind attention and mlp, and norms of the whole rows of q and k. */
extern const struct program olmo2_block;
extern const struct ls_gguf_name olmo2_gguf_names[];
/* A family's layers, where its block alone is another one. */
#define LLAMA_LAYERS(program) .embedding = &llama_embedding, .block = &program, .head = &llama_head

/* How parameters of a block and of the rest are named, here and in Hugging Face's files. */
#define LLAMA_BLOCK_NAMES .prefix = "h.%ld.", .elsewhere_prefix = "model.layers.%ld."
#define LLAMA_NAMES       .prefix = "", .elsewhere_prefix = ""

/* The activation, and the width of the mlp where no key says it. */
#define LLAMA_SWIGLU                                                                               \
    .act = LS_ACT_SWIGLU, .acts = 1u << LS_ACT_SWIGLU,                                             \
    .ffn = {.times = 8, .over = 3, .multiple = 256}

/* What Hugging Face calls a family, whose hf_keys[] are keys of config.json. */
#define LLAMA_HF(type, class)                                                                      \
    .model_type = type, .architecture = class, .prefix = "model.", .keys = hf_keys
/* Such keys. */
#define LLAMA_HF_KEYS                                                                              \
    {"hidden_act", "activation", "\"silu\"", "silu=swiglu"},                                       \
    {                                                                                              \
        "rms_norm_eps", "norm_epsilon", "1e-6", NULL                                               \
    }
/* The kind of each block's attention. */
#define LLAMA_HF_LAYER_TYPES                                                                       \
    {                                                                                              \
        "layer_types", "window_layers", "", "\"sliding_attention\"|\"full_attention\""             \
    }
/* The last of every so many blocks is another one (0: none). */
#define LLAMA_PERIODS "0=all 2=even 4=three_of_four 6=five_of_six"

/* ---- rows of parameters ---------------------------------------------------------------------- */

/* clang-format off */
/* A block's matrices, which come first: those of q, k and v, and of gate and up, by their names
 * elsewhere. */
#define LLAMA_MATRICES_OF(q, k, v, gate, up)                                                       \
    PARAMETER_MATRIX("qkv", "attn.q.weight", SIZE_QUERY, SIZE_CHANNELS, CUT_ROWS, q),              \
        PARAMETER_MATRIX("qkv", "attn.k.weight", SIZE_KV, SIZE_CHANNELS, CUT_KV, k),               \
        PARAMETER_MATRIX("qkv", "attn.v.weight", SIZE_KV, SIZE_CHANNELS, CUT_KV, v),               \
        PARAMETER_MATRIX("proj", "attn.proj.weight", SIZE_CHANNELS, SIZE_QUERY, CUT_COLUMNS,       \
                         "self_attn.o_proj.weight"),                                               \
        PARAMETER_MATRIX("up", "mlp.gate.weight", SIZE_FFN, SIZE_CHANNELS, CUT_ROWS, gate),        \
        PARAMETER_MATRIX("up", "mlp.up.weight", SIZE_FFN, SIZE_CHANNELS, CUT_ROWS, up),            \
        PARAMETER_MATRIX("down", "mlp.down.weight", SIZE_CHANNELS, SIZE_FFN, CUT_COLUMNS,          \
                         "mlp.down_proj.weight")
#define LLAMA_MATRICES                                                                             \
    LLAMA_MATRICES_OF("self_attn.q_proj.weight", "self_attn.k_proj.weight",                        \
                      "self_attn.v_proj.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight")
/* clang-format on */

/* ---- rows of values -------------------------------------------------------------------------- */

/* By what they are: of the stream, of all rows, and the statistics of a norm of the stream. */
#define LLAMA_STREAM(name, again)                                                                  \
    {                                                                                              \
        name, ROWS_STREAM, SIZE_CHANNELS, again, false                                             \
    }
#define LLAMA_ALL(name, size, again)                                                               \
    {                                                                                              \
        name, ROWS_ALL, size, again, false                                                         \
    }
#define LLAMA_RSTD(name)                                                                           \
    {                                                                                              \
        name, ROWS_STREAM, SIZE_ONE, AGAIN_FULL, true                                              \
    }

/* clang-format off */
/* Those of every block, by its own enumerators, of which OUT is the last. */
#define LLAMA_VALUES                                                                               \
    [X] = LLAMA_STREAM("x", AGAIN_FULL),                                                           \
    [QKV] = LLAMA_ALL("qkv", SIZE_QKV, AGAIN_FULL),                                                \
    [O] = LLAMA_ALL("o", SIZE_QUERY, AGAIN_SELECTIVE),                                             \
    [LSE] = {"lse", ROWS_ALL, SIZE_HEADS, AGAIN_SELECTIVE, true},                                  \
    [Y1] = LLAMA_STREAM("y1", AGAIN_FULL),                                                         \
    [H1] = LLAMA_STREAM("h1", AGAIN_FULL),                                                         \
    [F] = LLAMA_ALL("f", SIZE_UP, AGAIN_FULL),                                                     \
    [G] = LLAMA_ALL("g", SIZE_FFN, AGAIN_SELECTIVE),                                               \
    [Y2] = LLAMA_STREAM("y2", AGAIN_FULL),                                                         \
    [OUT] = LLAMA_STREAM("out", AGAIN_FULL)
/* Those of the norms in front of attention and mlp. */
#define LLAMA_PRENORM_VALUES                                                                       \
    [A1] = LLAMA_STREAM("a1", AGAIN_SELECTIVE),                                                    \
    [RSTD1] = LLAMA_RSTD("rstd1"),                                                                 \
    [A2] = LLAMA_STREAM("a2", AGAIN_SELECTIVE),                                                    \
    [RSTD2] = LLAMA_RSTD("rstd2")
/* Those of the norms behind them. */
#define LLAMA_POSTNORM_VALUES                                                                      \
    [P1] = LLAMA_STREAM("p1", AGAIN_SELECTIVE),                                                    \
    [RSTD1] = LLAMA_RSTD("rstd1"),                                                                 \
    [P2] = LLAMA_STREAM("p2", AGAIN_SELECTIVE),                                                    \
    [RSTD2] = LLAMA_RSTD("rstd2")
/* clang-format on */

/* ---- rows of steps --------------------------------------------------------------------------- */

/* A norm of a kind, of x, or of x + y into h. */
#define LLAMA_RMSNORM(kind, x, y, a, rstd, h, role)                                                \
    {                                                                                              \
        &kind, {x, y}, {a, rstd, rstd, h}, role, NULL, NULL                                        \
    }
/* clang-format off */
/* From what attention reads to what it adds to the stream. */
#define LLAMA_PROJECT(a) {&step_column, {a}, {QKV}, "qkv", "qkv bias", NULL}
#define LLAMA_ATTEND(qkv)                                                                          \
    {&step_rope, {qkv}, {qkv}, NULL, NULL, NULL},                                                  \
    {&step_attention, {qkv}, {O, LSE}, "qkv", NULL, NULL},                                         \
    {&step_row, {O}, {Y1}, "proj", NULL, "attention"}
/* The same of the mlp. */
#define LLAMA_FEED(a)                                                                              \
    {&step_column, {a}, {F}, "up", NULL, NULL},                                                    \
    {&step_activation, {F}, {G}, NULL, NULL, NULL},                                                \
    {&step_row, {G}, {Y2}, "down", NULL, "mlp"}
#define LLAMA_ADD(x, y, sum) {&step_add, {x, y}, {sum}, NULL, NULL, NULL}

/* The whole block where norms of a kind stand in front of attention and mlp; its enumerators. */
#define LLAMA_PRENORM_ENUMERATORS X, A1, RSTD1, QKV, O, LSE, Y1, H1, A2, RSTD2, F, G, Y2, OUT
#define LLAMA_PRENORM_BLOCK(kind)                                                                  \
    LLAMA_BLOCK_NAMES, .values = {LLAMA_VALUES, LLAMA_PRENORM_VALUES},                             \
    .steps = {LLAMA_RMSNORM(kind, X, 0, A1, RSTD1, X, "norm1"), LLAMA_PROJECT(A1),                 \
              LLAMA_ATTEND(QKV), LLAMA_RMSNORM(kind, X, Y1, A2, RSTD2, H1, "norm2"),               \
              LLAMA_FEED(A2), LLAMA_ADD(H1, Y2, OUT)}

/* The whole head with a norm of a kind; its enumerators are HEAD_X, HEAD_A and HEAD_RSTD. */
#define LLAMA_HEAD(kind)                                                                           \
    LLAMA_NAMES,                                                                                   \
    .values = {[HEAD_X] = LLAMA_STREAM("x", AGAIN_FULL), [HEAD_A] = LLAMA_STREAM("a", AGAIN_FULL), \
               [HEAD_RSTD] = LLAMA_RSTD("rstd")},                                                  \
    .steps = {LLAMA_RMSNORM(kind, HEAD_X, 0, HEAD_A, HEAD_RSTD, HEAD_X, "norm"),                   \
              {&step_head, {HEAD_A}, {0}, "table", NULL, NULL}}
/* clang-format on */

#endif
