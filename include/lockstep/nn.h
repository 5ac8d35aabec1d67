/* lockstep/nn.h - the Transformer: its parameters, and its layers forward and backward.
 *
 * There are families of models (LS_FAMILIES), such as GPT-2 (learned positions, LayerNorm, GELU,
 * biases) and Llama (rotary positions, RMSNorm, SwiGLU). A model is a list of layers:
 *
 *     layer 0            token (and position) embedding
 *     layers 1 .. L      blocks
 *     layer L + 1        final norm, head and loss
 *
 * Order of calls for a micro-batch: ls_layer_forward for the layers held, ascending, then
 * descending ls_layer_backward_input and ls_layer_backward_weight. The weight half of a layer may
 * be called any time before the next layer's input half, or later with options.split_backward. What
 * calls the layers knows nothing of attention or norms; what reduces gradients knows only flat
 * ranges. A rank may hold some of the layers, and of each a slice (struct ls_part): layers then
 * talk to the other ranks of their tensor- and context-parallel groups themselves.
 *
 * Parameters come in units, one a layer, gradients in regions (struct ls_params). A tied embedding
 * has two gradients (as the head, as the table), which are summed apart and added when the
 * optimizer reads them.
 *
 * Local unless said. B sequences, T tokens, M = B*T rows, C channels, H heads, G key/value
 * heads, D head dim, F ffn, V vocabulary (padded). */
#ifndef LOCKSTEP_NN_H
#define LOCKSTEP_NN_H

#include <lockstep/base/key.h>
#include <lockstep/device/tier.h>
#include <lockstep/dtensor.h>
#include <lockstep/ops.h>
#include <lockstep/parallel/context.h>
#include <lockstep/parallel/param.h>
#include <lockstep/parallel/tensor.h>

LS_C_BEGIN

/* The families, each with its name, which is the word for it in model.arch. What a family is, only
 * src/nn/family_<name>.c knows: no other code asks which one it has before it. */
/* clang-format off */
#define LS_FAMILIES(family)                                                                        \
    family(LS_GPT2, gpt2)                                                                          \
    family(LS_LLAMA, llama)                                                                        \
    family(LS_QWEN2, qwen2)                                                                        \
    family(LS_QWEN3, qwen3)                                                                        \
    family(LS_OLMO2, olmo2)                                                                        \
    family(LS_OLMO3, olmo3)                                                                        \
    family(LS_MISTRAL, mistral)                                                                    \
    family(LS_GEMMA2, gemma2)                                                                      \
    family(LS_GEMMA, gemma)                                                                        \
    family(LS_GEMMA3, gemma3)                                                                      \
    family(LS_PHI3, phi3)                                                                          \
    family(LS_SMOLLM3, smollm3)
/* clang-format on */
#define LS_FAMILY_ARCH(arch, name) arch,
enum ls_arch { LS_FAMILIES(LS_FAMILY_ARCH) LS_ARCHES /* their number */ };
enum ls_activation {
    LS_ACT_GELU_TANH,
    LS_ACT_GELU_ERF,
    LS_ACT_SWIGLU,
    LS_ACT_GEGLU,  /* its GELU in the tanh form */
    LS_ACTIVATIONS /* their number */
};

/* Some of the blocks: all, or all but the last of every so many. */
enum ls_layers {
    LS_LAYERS_ALL = 0,
    LS_LAYERS_EVEN = 2, /* blocks 0, 2, 4, ... */
    LS_LAYERS_THREE_OF_FOUR = 4,
    LS_LAYERS_FIVE_OF_SIX = 6,
};
/* Whether the block, from 0 on, is among them. */
static inline bool ls_layer_among(enum ls_layers layers, int64_t block)
{
    return layers == LS_LAYERS_ALL || (block + 1) % (int64_t)layers != 0;
}

/* Adapters of low rank beside matrices of the blocks (Hu et al. 2021, "LoRA"): y = x W^T + (alpha /
 * rank) (x A^T) B^T with A [rank, columns of W] and B [rows of W, rank]. Every other parameter is
 * frozen. Matrices that are one tensor in Hugging Face's files (GPT-2's c_attn) share an A, as in
 * PEFT. */
struct ls_lora {
    int64_t rank; /* 0: there are none */
    double alpha;
    uint64_t targets; /* which have one: bits by their order in a block (ls_lora_targets) */
    /* What the matrices of the blocks are kept in, all of them, frozen as they are: QLoRA (Dettmers
     * et al. 2023). LS_BLOCKS_NONE: the compute type. */
    enum ls_blocks base;
};
/* Its words: "none", "int8", "nf4". */
extern const struct ls_word ls_lora_bases[];

enum { LS_FROZEN_BYTES = 256, LS_LORA_TARGET_BYTES = 32 };

struct ls_model_config {
    enum ls_arch arch;
    int64_t vocab; /* tokens that exist */
    int64_t
        vocab_padded; /* rows of the table and the head; padding rows take no part in the loss */
    int64_t layers, channels, heads, kv_heads, head_dim, ffn; /* head_dim: a multiple of 8 */
    int64_t context;                                          /* the longest sequence */
    bool tied;                                                /* the head is the embedding table */
    bool bias; /* biases in linear layers and LayerNorm */
    enum ls_activation act;
    float norm_epsilon;
    double rope_theta;
    struct ls_rope_scaling rope_scaling;
    double rope_local_theta;    /* of blocks with a window, unscaled; 0: they turn as the others */
    enum ls_layers rope_layers; /* the blocks whose positions are rotary; the others have none */
    int64_t window; /* tokens that a query sees, its own included; 0: all up to its own */
    enum ls_layers window_layers;           /* the blocks that have a window */
    float attention_softcap, logit_softcap; /* cap tanh(x / cap) of scores, of logits; 0: none */
    double query_scale;                     /* scores are divided by its square root; 0: head_dim */
    float dropout;                          /* after the embedding and on both residual branches */
    float init_std;
    uint64_t seed; /* of initial values and dropout */
    struct ls_lora lora;
    char frozen[LS_FROZEN_BYTES]; /* parameters that are not trained: patterns of their names as in
                                   * fnmatch(3), "wte.*,h.0.*", with commas between; "": none */
};

/* The part of the recipe that fixes the order of sums (ARCHITECTURE.md: the law of sums). */
enum { LS_SEQ_TILES_MAX = 1 << 15 };
struct ls_numerics {
    enum ls_dtype act; /* LS_F32, LS_BF16 or LS_F16: what forward and backward compute in */
    int64_t tp_tiles;  /* S2: divides heads, kv_heads * head_dim, ffn and vocab_padded; kv_heads
                        * is a multiple or a divisor of it */
    int64_t seq_tiles; /* S4: tiles of a sequence's tokens, at most LS_SEQ_TILES_MAX. Above 1:
                        * leaf_sequences is 1, T a multiple of 2 S LS_ATTENTION_BLOCK */
    int64_t leaf_sequences; /* S3 */
    bool fast;              /* lifts S2 to S4: bits depend on the micro-batching */
};

/* ---- families -------------------------------------------------------------------------------- */

/* A published shape to start from. */
struct ls_preset {
    const char *name; /* "gpt2-124m" */
    const char *keys; /* of the configuration's group `model`: "layers=12 channels=768" */
};

/* A key of a family's config.json (Hugging Face), beside those that all families have
 * (src/interop/hf_keys.c: sizes of Llama's names, positions, types, tokens). */
struct ls_hf_key {
    const char *name; /* "n_embd"; "": the file has no such key, and our default applies */
    const char *key;  /* of the configuration's group `model`, "channels"; NULL: none */
    /* Value if the key is absent (or null), as JSON. NULL: it must be there. "": our default. With
     * key NULL it is the only value that a model may have, or with "" any: then the key has no
     * effect, and name may be several with | between. A list stands for one value a layer, again
     * and again. */
    const char *absent;
    /* "gelu_new=gelu_tanh gelu=gelu_erf": values there and here; "?" behind one: versions of
     * transformers differ in it. "null=0 *": null is a value too, and what has no word is equal.
     * "1|0": a list, of the first for blocks of the key, else the second. NULL: all are equal. */
    const char *words;
};
/* What Hugging Face's folders call a family. */
struct ls_family_hf {
    const char *model_type;       /* "gpt2" */
    const char *architecture;     /* "GPT2LMHeadModel" */
    const char *prefix;           /* of tensors' names, which files have or leave out */
    const struct ls_hf_key *keys; /* to a NULL name; they go before those of all families */
    /* Keys of dropout that a file must have, because without them it is 0.1 there; ours: where
     * model.dropout is, and not 0. To a NULL name. */
    const struct ls_hf_dropout {
        const char *name;
        bool ours;
    } * dropouts;
    bool unscaled; /* rotary positions there are not scaled as ours can be */
    /* model.rope_theta where a file does not say it; NULL: 10000. What it calls
     * model.rope_local_theta; NULL: as the other. */
    const char *rope_theta, *rope_local_theta;
};

/* What a tensor's name in Hugging Face's files, between the layer's prefix and ".weight" or
 * ".bias", is in GGUF files. */
struct ls_gguf_name {
    const char *elsewhere, *name;
};
/* Metadata of a GGUF file, behind "ARCHITECTURE.", and the key of group `model` that it has. */
struct ls_gguf_key {
    const char *name, *key; /* "attention.sliding_window", "window" */
};
/* What GGUF files (ggml, llama.cpp) call a family. */
struct ls_family_gguf {
    const char *architecture; /* "llama"; NULL: they know none */
    bool interleaved;   /* a head's rows of q and k are there in the order of interleaved RoPE */
    bool norm_plus_one; /* norm weights are there as 1 + w */
    bool head;          /* there is a head there, even where it is the table */
    bool tied;          /* there is none there: it is the table */
    bool frequencies;   /* rope_freqs.weight may be there, for llama3's scaling */
    int64_t layers_by_width; /* with so many blocks, scores are divided by the square root of
                              * channels / heads, not of head_dim; 0: with no number */
    const struct ls_gguf_name *names; /* to a NULL name, before those of all families
                                       * (src/interop/gguf.c); NULL: none */
    const struct ls_gguf_key *keys;   /* to a NULL name, after those of all families; NULL: none */
};

/* What a family says to those who configure a model of it. */
struct ls_family {
    const char *what;       /* what tells it from others, in a few words, for help texts */
    bool tied;              /* the head is the embedding table, unless said otherwise */
    bool bias;              /* there are biases, unless said otherwise; false: there cannot be */
    enum ls_activation act; /* unless said otherwise */
    unsigned acts;          /* those that it can have: bits 1 << enum ls_activation */
    enum ls_layers window_layers, rope_layers; /* unless said otherwise */
    struct {
        int64_t times, over, multiple;
    } ffn; /* unless said: channels * times / over, rounded up to a multiple */
    const struct ls_preset *presets; /* to a NULL name */
    struct ls_family_hf hf;
    struct ls_family_gguf gguf;
};
/* Local. Valid for the life of the program. */
const struct ls_family *ls_family_of(enum ls_arch arch);
const char *ls_arch_name(enum ls_arch arch); /* "gpt2" */
/* Local. The end of an error about a model of this name that no family has: what it needs that is
 * not here, "; models with experts are not supported", or "". */
const char *ls_family_lacks(const char *name);
/* Local. Whether a key of the configuration's group `model`, such as "rope_theta", means something
 * to the family: false if it belongs to a kind of step that the family has none of, or to others
 * that name it as theirs. */
bool ls_family_reads(enum ls_arch arch, const char *key);
/* Local. What layers of the family are made of: the name of step i of its embedding, block and
 * head, such as "rope" or "norm of heads"; NULL behind the last. *biased: it adds a bias where the
 * model has biases. */
const char *ls_family_step(enum ls_arch arch, int i, bool *biased);

/* Local. The matrices of a block that have adapters, by what Hugging Face's files call them
 * ("q_proj,v_proj", "c_attn"), with commas between; "all": each of them. LS_ECONFIG if there is
 * none of a name, with those that there are. */
int ls_lora_targets(enum ls_arch arch, const char *names, uint64_t *targets,
                    struct ls_error *error);
/* The name of target i of the family, "q_proj"; NULL behind the last. Some have the same. */
const char *ls_lora_target(enum ls_arch arch, int i, char name[LS_LORA_TARGET_BYTES]);
/* Local. LS_ECONFIG if a pattern of config->frozen matches no parameter, or nothing is left to
 * train. */
int ls_frozen_check(const struct ls_model_config *config, struct ls_error *error);
/* Local. The lowest layer, 0 .. layers + 1, that has something to train: no gradient is needed
 * below it, and the backward ends there. */
int ls_model_lowest_trained(const struct ls_model_config *config);

/* ---- what tensor parallel may cut ------------------------------------------------------------ */

/* Local. Whether sums over heads, feed-forward width and vocabulary can be cut in that many tiles:
 * LS_ELAYOUT with the reason. */
int ls_model_admits_tiles(const struct ls_model_config *config, int64_t tp_tiles,
                          struct ls_error *error);
/* Local. Whether a base in few bits (ls_lora.base) has whole blocks on each of tp ranks: LS_ELAYOUT
 * with the widths that are none. */
int ls_lora_base_check(const struct ls_model_config *config, int64_t tp, struct ls_error *error);
/* Local. Whether tp ranks can share the model: each has a subtree of the tiles (a power of two of
 * them) and, of a key/value head that it shares, a subtree of the query heads; a base in few bits
 * has whole blocks. LS_ELAYOUT with the reason. */
int ls_model_admits_tp(const struct ls_model_config *config, const struct ls_numerics *numerics,
                       int64_t tp, struct ls_error *error);

/* ---- what a rank holds ----------------------------------------------------------------------- */

/* A part of the model: some of the layers (pipeline parallel), and of each a tensor-parallel slice:
 * heads, columns of the ffn and rows of the vocabulary in tp equal parts. A zero struct is not
 * valid; {.tp = 1} is the whole model. */
struct ls_part {
    int64_t tp, tp_rank;
    const bool *layers; /* [layers + 2]: which are held; NULL: all */
    /* Of a layout (ls_layout_params): the set of each layer's parameters, and what gives one its
     * spec. NULL: set 0, and no specs. */
    const unsigned char *layer_set;
    int (*spec)(const void *layout, int set, struct ls_param *param, struct ls_error *error);
    const void *layout;
};

/* ---- parameters ------------------------------------------------------------------------------ */

/* struct ls_params and what is in it: lockstep/parallel/param.h. */

/* part NULL: the whole model. LS_ELAYOUT if tp does not share the model (ls_model_admits_tp). */
int ls_params_init(struct ls_params *params, const struct ls_model_config *config,
                   const struct ls_numerics *numerics, const struct ls_part *part,
                   struct ls_error *error);
void ls_params_release(struct ls_params *params);
/* NULL if there is none of that name. */
const struct ls_param *ls_params_find(const struct ls_params *params, const char *name);
/* Where Hugging Face's files hold a parameter: rows [first, first + its rows) of a tensor of [rows,
 * cols], which is stored as [cols, rows] if transposed. A vector's elements count as rows, and cols
 * is 1. The files have no padding of the vocabulary. */
struct ls_elsewhere {
    char name[LS_PARAM_NAME_MAX + 1]; /* "h.0.attn.c_attn.weight" */
    int64_t rows, cols, first;        /* of the whole model's */
    bool transposed;
};
/* Local. param: of params. False if the family's files have no such parameter. */
bool ls_param_elsewhere(const struct ls_params *params, const struct ls_model_config *config,
                        const struct ls_param *param, struct ls_elsewhere *out);
/* Local. The name of a parameter in the files of a checkpoint: the one in Hugging Face's files
 * where each parameter of the model is a tensor there by itself, of the same shape and order of
 * elements (a vocabulary without padding, no adapters); otherwise its own. */
void ls_param_fqn(const struct ls_params *params, const struct ls_model_config *config,
                  const struct ls_param *param, char fqn[LS_PARAM_NAME_MAX + 1]);
/* The same of an adapter, in PEFT's files behind "base_model.model.":
 * "model.layers.0.self_attn.q_proj.lora_A.weight". False if it is not an adapter. */
bool ls_param_adapter(const struct ls_params *params, const struct ls_model_config *config,
                      const struct ls_param *param, struct ls_elsewhere *out);
/* Elements of the largest parameter of a layer, 0 .. layers + 1, that one of tp ranks holds. */
int64_t ls_layer_param_elements_max(const struct ls_model_config *config, int64_t layer,
                                    int64_t tp);
/* Index of layer's unit or of the region its backward writes, -1 if there is none. */
int ls_params_unit(const struct ls_params *params, int layer);
int ls_params_region(const struct ls_params *params, int layer);

/* Initial values of elements [first, first + count) of param (row-major over the part held), each a
 * function of (seed, name, element of the whole model's parameter): GPT-2's normal(0, std) with
 * residual projections scaled by 1/sqrt(2 L) (Radford et al. 2019); Llama's normal(0, std)
 * throughout; of adapters A normal(0, 1/sqrt(3 columns)), which has the variance of PEFT's uniform
 * values, and B zero. Padding rows of the vocabulary are zero. values [count]. */
void ls_param_fill(const struct ls_param *param, uint64_t seed, struct ls_ops *ops, int64_t first,
                   int64_t count, float *values);
/* Adds elements [first, first + count) of the part held to digest, each keyed by prefix, name and
 * its place in the whole parameter: digests of any cut add up to that of the whole. values [count]
 * are LS_F32, LS_BF16 or LS_F16; a half has the digest of its value as float32. */
void ls_param_digest(const struct ls_param *param, struct ls_ops *ops, const char *prefix,
                     int64_t first, int64_t count, enum ls_dtype dtype, const void *values,
                     struct ls_digest *digest);
/* Where elements first, first + 1, ... of the part held, row-major, lie in the whole parameter. */
struct ls_places ls_param_places(const struct ls_param *param, int64_t first);

/* "embedding", "block" or "head": layer 0, 1 .. layers, layers + 1. */
const char *ls_layer_name(const struct ls_model_config *config, int64_t layer);

/* Floating-point operations of one token's forward and backward, all tp ranks together: 6 per
 * weight that multiplies plus 12 H D T for attention (of a window what it sees), as PaLM's and
 * Megatron's model flops count them. Of a layer, 0 .. layers + 1 (the embedding layer: 2 C, for its
 * rows), which stages are balanced by; and of the model, where the embedding table counts once, as
 * the head. */
double ls_layer_flops_per_token(const struct ls_model_config *config, int64_t layer,
                                int64_t tokens);
double ls_model_flops_per_token(const struct ls_model_config *config, int64_t tokens);

/* ---- the model ------------------------------------------------------------------------------- */

/* Where a unit's values lie. ZeRO 3 changes it as units are gathered. */
struct ls_weights {
    const void *matrices; /* [matrix_elements] in the compute type, index = offset */
    const float *vectors; /* float32, index = offset - matrix_elements */
    /* To infer: hidden matrices in int8 (lockstep/ops/int8.h), which `matrices` then lacks. NULL:
     * none are. */
    const int8_t *int8;       /* [matrix_elements], index = offset */
    const float *int8_scales; /* [scales] */
    bool int8_alone;          /* activations stay in the compute type */
};

struct ls_micro_batch {
    int64_t sequences; /* B: whole leaves, at most the model's */
    int64_t tokens;    /* T of a whole sequence, at most config.context */
    /* [B, T / cp]: the tokens held here, in the order of rows (ls_segment). */
    const int32_t *ids;
    const int32_t *targets; /* -1: no loss */
    const float *weights;   /* of the losses, the same; finite, of any sign. NULL: each is 1 */
    /* In training: of the entropies of the rows' distributions, the same, 0 if there is no
     * target; these are added to the losses, and the head makes ls_model_entropies. NULL: none. */
    const float *entropy_weights;
    /* Documents that are packed in a sequence, with options.documents: starts[b * T + t] is where
     * the one begins that holds token t of sequence b (as struct ls_attention has it). A token
     * attends to its own document, and its position is t - starts. [B, T] by position in the whole
     * sequence, the same on all ranks of tp and cp and in all stages, also in the backward. NULL:
     * each sequence is one document; idle ops are given NULL. */
    const int32_t *starts;
    int64_t first_sequence; /* of the global batch: which one row 0 belongs to (dropout) */
    int64_t step;           /* dropout */
    bool training;          /* dropout on, gradients of the head made */
    bool likeliest;         /* not training: the head makes ls_model_likeliest */
    bool entropies;         /* not training: the head makes ls_model_entropies */
    float temperature;      /* logits are divided by it before all that is made of them; 0: by 1 */
    float gradient_scale;   /* of every token's loss: 1 / tokens of the global batch, or / the sum
                             * of their weights */
    int slot;               /* which set of saved activations, below options.slots */
    /* Where a layer's neighbour is held elsewhere: the first layer of a chunk reads input in its
     * forward and in both halves of its backward, from the same place; the last one d_output in its
     * backward's input half (and without split_backward in its weight half, from the same place).
     * [N, C] act, N = ls_model_stream_rows. */
    const void *input;
    const void *d_output;
};

/* Where the weight gradients of one micro-batch go. */
struct ls_gradient {
    float *flat;       /* of the region, index = gradient.offset of a parameter */
    float *table;      /* embedding layer: of a tied table, index 0 at its second.offset; NULL
                        * if it has none */
    enum ls_onto onto; /* what is there: nothing yet, leaves before this micro-batch's, or (SUM's
                        * and CHAIN's difference) an earlier part of its one leaf */
};

/* What a block keeps of a micro-batch for its backward; the rest is made again in front of it
 * (Chen et al. 2016; Korthikanti et al. 2022). The bits are the same. */
enum ls_recompute {
    LS_RECOMPUTE_NONE,      /* keeps all that its backward reads */
    LS_RECOMPUTE_SELECTIVE, /* gives up what costs little: norms, attention, the activation */
    LS_RECOMPUTE_FULL,      /* keeps its input */
    LS_RECOMPUTE_JOIN       /* keeps nothing: made again from the input of the layers below it, to
                             * the first that is LS_RECOMPUTE_FULL or begins a chunk */
};

struct ls_model; /* buffers for a number of micro-batches */

/* Takes the model's buffers for micro-batches of up to sequences x tokens from arena (which may be
 * measuring: then only counts; *out may not run). All pointers are borrowed. training false: only
 * forward and decoding. */
struct ls_model_options {
    const struct ls_model_config *config;
    const struct ls_numerics *numerics;
    const struct ls_params *params;
    const struct ls_weights *weights; /* [params.unit_count], read at each call */
    const struct ls_tp *tp;           /* NULL: size 1 */
    const struct ls_cp *cp;           /* NULL: size 1 */
    const bool *chunk_first; /* [layers + 2]: layers whose input is micro_batch.input; NULL: none */
    const bool *layers;      /* as in struct ls_part; NULL: all */
    int64_t sequences, tokens;
    int64_t positions; /* that rotary angles are there for, where more than tokens */
    int slots;         /* micro-batches between their forward and the end of their backward */
    bool training;
    bool documents;      /* micro-batches may have starts */
    bool adding;         /* struct ls_gradient's onto may be LS_ONTO_SUM */
    bool split_backward; /* weight halves may come after other layers' and micro-batches' input
                          * halves: what they need is kept in the slot */
    /* What layers give up between forward and backward: [layers + 2]; NULL: nothing. */
    const unsigned char *recompute; /* enum ls_recompute */
    bool partition_activations;     /* the inputs that they keep are cut over tp */
    /* What blocks keep lies in a tier between their forward and their backward: NULL for none.
     * tier NULL while room counts, and if nothing moves. */
    struct ls_tier *offload_tier;
    struct ls_tier_room *offload_room;
    double offload_ratio; /* of the blocks, at least */
    bool check;           /* room for red zones, and lists of what lives when: a queue that checks
                           * (lockstep/device/check.h) names who breaks them, and LS_EINVAL.
                           * Slower; changes no bits */
    int64_t logits_bytes; /* of the head that exist at once, though at least one leaf's do; 0:
                           * LS_LOGITS_BYTES. Changes no bits. */
};
enum { LS_LOGITS_BYTES = 256 << 20 };
/* Local. LS_EINVAL if sequences are not whole leaves or do not fit the context, or sequence
 * parallel would cut a sum where it cannot be cut (ls_tp_admits); LS_ELAYOUT if seq_tiles do not
 * divide sequences (ls_seq_tiles_admit), or cp not seq_tiles (ls_cp_admits). */
int ls_model_new(const struct ls_model_options *options, struct ls_arena *arena,
                 struct ls_model **out, struct ls_error *error);
void ls_model_free(struct ls_model *model);
int ls_model_layers(const struct ls_model *model);
/* Bytes that the layers keep between forward and backward, of all slots: the rest of what
 * ls_model_new takes is what they work in. */
size_t ls_model_kept_bytes(const struct ls_model *model);
/* Of these, the buffers through which what is offloaded passes. */
size_t ls_model_passing_bytes(const struct ls_model *model);
/* What a layer that is held takes of a model's memory, and when. */
struct ls_layer_bytes {
    size_t kept;     /* of a micro-batch: from its forward to the end of its backward; 0 if it
                      * is offloaded */
    size_t held;     /* of a micro-batch: from its input half to a weight half that comes later */
    size_t again;    /* of what is made again, to the end of its backward */
    size_t forward;  /* while its forward is under work */
    size_t backward; /* while another of its walks is */
};
void ls_model_layer_bytes(const struct ls_model *model, int layer, struct ls_layer_bytes *out);
/* Tables that are there for good. */
size_t ls_model_table_bytes(const struct ls_model *model);

/* Rows of the residual stream of a micro-batch of that many sequences on this rank: M = B T / cp,
 * or M / tp under sequence parallel. */
int64_t ls_model_stream_rows(const struct ls_model *model, int64_t sequences, int64_t tokens);

/* layer: 0 .. layers + 1, one that is held. Collective over tp and cp. The head's forward computes
 * the loss and, when training, its gradients too (logits are never kept): leaf by leaf, so that its
 * input and weight halves are done there; gradient is where its weight gradient goes (head_region;
 * NULL when not training, and if there is none). */
int ls_layer_forward(struct ls_model *model, struct ls_ops *ops, int layer,
                     const struct ls_micro_batch *batch, const struct ls_gradient *gradient,
                     struct ls_error *error);
/* Before layer's input half, for each of the layers [ls_layer_again_first(model, layer), layer],
 * ascending: makes again what it gave up. Collective over tp and cp. */
int ls_layer_again_first(const struct ls_model *model, int layer);
int ls_layer_forward_again(struct ls_model *model, struct ls_ops *ops, int layer,
                           const struct ls_micro_batch *batch, struct ls_error *error);
int ls_layer_backward_input(struct ls_model *model, struct ls_ops *ops, int layer,
                            const struct ls_micro_batch *batch, struct ls_error *error);
/* gradient: of the layer's region (and the table's). */
int ls_layer_backward_weight(struct ls_model *model, struct ls_ops *ops, int layer,
                             const struct ls_micro_batch *batch, const struct ls_gradient *gradient,
                             struct ls_error *error);

/* After layer's forward: its output [N, C] act, until its slot is used again; when not training,
 * that of a layer which is not the last of its chunk only until the next layer's but one. */
const void *ls_model_output(const struct ls_model *model, int layer, int slot);
/* After the head's forward: loss, times weights, and entropy, times entropy_weights, summed over
 * each sequence's tokens held here, [sequences]; the same on all tp ranks. */
const float *ls_model_losses(const struct ls_model *model);
/* The loss of each row, not weighted: minus the log-probability of its target, 0 if that is -1,
 * [M]. */
const float *ls_model_row_losses(const struct ls_model *model);
/* And with batch->likeliest minus the token of the largest logit, the lowest of equal ones, [M];
 * -inf if no logit is a number. */
const float *ls_model_likeliest(const struct ls_model *model);
/* And with batch->entropies, or with entropy_weights, the entropy of each row's distribution, in
 * nats (ls_entropy), [M]. */
const float *ls_model_entropies(const struct ls_model *model);
/* The gradient of layer's input after its backward_input (layer >= 1), [N, C] act, until the next
 * layer's but one. */
const void *ls_model_input_gradient(const struct ls_model *model, int layer);

/* ---- generation ------------------------------------------------------------------------------ */

/* The key/value caches of some texts, and a model of some rows that reads them: this rank's layers,
 * and heads of them. A step takes the next tokens of one text or of several, one or many of each:
 *
 *     ls_decoder_begin(decoder, runs, ...)      which texts go on, by how many tokens
 *     ls_layer_forward(ls_decoder_model(decoder), ...) of all layers, ascending, over *batch
 *     ls_decoder_end                            the logits behind the runs that asked for them
 *
 * Each token has the bits of the forward over its whole text, however it is cut in steps and
 * whatever is beside it. A text takes blocks of key/value memory as it grows, and texts that begin
 * alike may share them (ls_decoder_share); where a text goes on in a block that it shares, it takes
 * a copy. */
struct ls_decoder;
struct ls_decoder_size {
    int64_t sequences; /* texts at a time */
    int64_t context;   /* tokens of each, at most config.context */
    int64_t rows;      /* tokens of a step, all texts together */
    int64_t blocks;    /* of LS_ATTENTION_BLOCK tokens of keys and values, all texts together, and
                        * no fewer than one text's; 0: as many as all need when they are full */
};
/* Local. Of options it takes what the model is and which part of it is here: not cp, nor what is
 * said of micro-batches and training. */
int ls_decoder_new(const struct ls_model_options *options, const struct ls_decoder_size *size,
                   struct ls_decoder **out, struct ls_error *error);
/* Local. What ls_decoder_new would take. */
int ls_decoder_bytes(const struct ls_model_options *options, const struct ls_decoder_size *size,
                     size_t *bytes, struct ls_error *error);
void ls_decoder_free(struct ls_decoder *decoder);
const struct ls_decoder_size *ls_decoder_size(const struct ls_decoder *decoder);
/* The text in that place begins anew; the blocks that it alone had are free. */
void ls_decoder_reset(struct ls_decoder *decoder, int64_t sequence);
/* Tokens that still fit its context. */
int64_t ls_decoder_room(const struct ls_decoder *decoder, int64_t sequence);
/* The text in place `to` becomes the first tokens of that in place `from`, in the same memory;
 * where they are one place, it loses those behind. The texts go on as they like. */
void ls_decoder_share(struct ls_decoder *decoder, int64_t from, int64_t to, int64_t tokens);
/* Takes blocks for the next tokens of a text, which a step then finds there. False, and nothing is
 * taken, where too few are free. */
bool ls_decoder_reserve(struct ls_decoder *decoder, int64_t sequence, int64_t tokens);
/* Blocks that no text has. */
int64_t ls_decoder_blocks_free(const struct ls_decoder *decoder);
/* Borrowed. Rows are the same on all ranks of tp: the stream is not cut. */
struct ls_model *ls_decoder_model(struct ls_decoder *decoder);

/* The next tokens of a text. */
struct ls_decoder_run {
    int64_t sequence, count;
    bool ends; /* the logits behind its last token are asked for */
};
/* Local. runs ascend by sequence; ids has all their tokens, one run behind the other, borrowed
 * until the end. *batch is what to run; with its targets (of each row, or -1) set, the head makes
 * ls_model_row_losses too. LS_EINVAL past the context, and outside of the vocabulary: then the
 * decoder is as before. LS_ENOMEM if too few blocks are free. */
int ls_decoder_begin(struct ls_decoder *decoder, const struct ls_decoder_run *runs, int count,
                     const int32_t *ids, struct ls_micro_batch *batch, struct ls_error *error);
/* Local. The tokens are part of their texts. Where the head is held, float32 logits [runs that
 * asked, vocab_padded], owned by the decoder and the same on all ranks of tp; NULL elsewhere. */
const float *ls_decoder_end(struct ls_decoder *decoder, struct ls_ops *ops);
/* Local. After the end, where the head is held: the loss of a token behind each run that asked, as
 * training has it. tokens, losses [runs that asked]. */
void ls_decoder_losses(const struct ls_decoder *decoder, struct ls_ops *ops, const int32_t *tokens,
                       float *losses);

/* Temperature (0 = greedy), then top-k (0 = off), then nucleus top-p (1 = off), then a draw with
 * the uniform number u. logits [vocab]; order [vocab] is scratch. -1 if a logit is NaN or the
 * greatest one is infinite; a token of -infinity is never drawn. */
struct ls_sampling {
    float temperature, top_p;
    int64_t top_k;
};
int32_t ls_sample(const struct ls_sampling *sampling, const float *logits, int64_t vocab,
                  int32_t *order, float u);

LS_C_END
#endif
