/* Private to nn: a model's buffers, and what kinds of steps share.
 *
 * Widths are of this rank's slice: H, G, F and V count what it holds. M is all rows of a
 * micro-batch on this context-parallel rank, N the rows of the residual stream (program.h). */
#ifndef NN_MODEL_H
#define NN_MODEL_H

#include "nn/program.h"
#include "nn/text_blocks.h"

/* Of the head: losses outlive its step. */
struct head_losses {
    float *rows;         /* [M] */
    float *sequences;    /* [sequences] */
    float *likeliest;    /* [M] of a batch that asks for them; NULL in training */
    float *entropies;    /* [M] of a batch that asks for them */
    int64_t group_units; /* units whose logits exist at once */
};

struct ls_model {
    struct ls_model_options options;
    struct ls_model_config config;
    struct ls_numerics numerics;
    struct ls_tp tp;
    struct ls_cp cp;
    int64_t tiles;                           /* of a contraction that is cut: tp_tiles / tp */
    int64_t heads, kv_heads, ffn;            /* held here */
    int64_t rows_max, rows_room, stream_max; /* M, as a buffer of all rows has it, N */
    struct layer *layers;                    /* [layers + 2]; program NULL: not held */
    struct layer_slots *slots;               /* of layers that are offloaded; NULL: none is */
    void *d_stream[2]; /* [N, C] gradient of layer l's input is d_stream[l & 1] */
    char *pass[2];     /* [N, C] output of layer l is pass[l & 1] where it is not kept */
    char *segment;     /* places of layers that are recomputed together, segment_bytes each */
    size_t segment_bytes;
    char *work[2];      /* of the forward, of the rest: they lie over each other */
    size_t table_bytes; /* there for good */
    size_t kept_bytes;  /* of all layers and slots */
    struct head_losses losses;
    bool rope_taken;
    struct rope_table {
        float *cosine, *sine;        /* [T, D/2]; in a decoder of all positions */
    } rope, rope_local;              /* of blocks with a window, where they turn by another base */
    const struct decoding *decoding; /* in a decoder: NULL otherwise */
};

int64_t size_held(const struct ls_model *model, enum size size);

/* ---- rows.c: where rows lie ------------------------------------------------------------------ */

/* The rows of one micro-batch on this rank. */
struct rows {
    int64_t all;                    /* M */
    int64_t first, count;           /* the stream's: [first, first + count) of all */
    int64_t tokens;                 /* of each sequence, here: T / cp */
    const int32_t *starts;          /* of documents, [B, whole]; NULL: none */
    int64_t whole;                  /* T */
    int64_t segments, segment_rows; /* each sequence is so many runs of consecutive tokens */
    int64_t leaves, sequences;      /* whole ones, or one of which these are some sequences */
    int64_t tiles, tile_tokens;     /* of each sequence, here */
};
struct rows rows_of(const struct ls_model *model, const struct ls_micro_batch *batch);
/* Of the largest micro-batch. */
struct rows rows_most(const struct ls_model *model);
/* The order of token sums over all rows. */
struct ls_token_sum rows_sum(const struct rows *rows, enum ls_onto onto);
/* The tree over count parts of `elements` values each, one behind the other, into the first. */
void parts_tree(struct ls_ops *ops, float *parts, int64_t count, int64_t elements);

/* A piece of [first, first + count) whose tokens follow each other, all of one document. Start from
 * {0}. */
struct token_run {
    int64_t row, count;      /* relative to first */
    int64_t sequence, token; /* of its first row; of the micro-batch, of the sequence */
    int64_t position;        /* in its document */
};
bool rows_next(const struct ls_model *model, const struct rows *rows, int64_t first, int64_t count,
               struct token_run *run);

/* ---- vectors.c: gradients of vectors, of which ranks hold parts ------------------------------ */

/* Units of tokens of which a rank makes parts: tiles of sequences, in the order of rows. */
int64_t vectors_units(const struct ls_model *model, const struct rows *rows);
/* Bytes of vectors of so many floats, one for each unit of the largest micro-batch. */
size_t vectors_bytes(const struct ls_model *model, int64_t width);
/* Of the whole vectors [units, width], in place: tiles by the tree, into the first of each
 * sequence; sequences of a leaf by the chain, into the first of each leaf, unless they go on with a
 * leaf that is there. Returns how many are to be delivered one by one, and *stride, how far apart
 * they lie. */
int64_t vectors_add(const struct layer_run *run, float *vectors, int64_t width, int64_t *stride);
/* What lies at from, `count` times every `stride`, goes to the parameter's gradient. */
void vector_deliver(const struct layer_run *run, const struct ls_param *param, const float *from,
                    int64_t count, int64_t stride);

bool model_held(const struct ls_model *model, int64_t layer);
/* Whether layer's input is the caller's, and whether its output's gradient is. */
bool model_chunk_first(const struct ls_model *model, int64_t layer);
bool model_chunk_last(const struct ls_model *model, int64_t layer);
int model_units_check(const struct ls_model *model, const struct rows *rows,
                      struct ls_error *error);

/* ---- layer_plan.c: where values lie ---------------------------------------------------------- */

/* Binds the steps of a layer, new but for its tables, to the parameters held; plans its buffers. */
void layer_plan(const struct ls_model *model, int index, struct layer *layer);
/* When step i runs in a walk, on the layer's clock. */
int layer_time(const struct layer *layer, enum phase phase, int i);

/* ---- layer_check.c --------------------------------------------------------------------------- */

/* Tell a queue that checks what lives: around a walk, and around each of its steps. The last two
 * of a walk return status, or what was found. */
void layer_check_begin(const struct layer_run *run);
void layer_check_step(const struct layer_run *run, const struct bound_step *s, int time);
int layer_check_stepped(const struct layer_run *run, int status);
int layer_check_end(const struct layer_run *run, int status);
/* A step asks for what lies there. */
void layer_check_use(const struct layer_run *run, const struct place *place);

/* ---- layer_run.c ----------------------------------------------------------------------------- */

/* Walks over the layer's steps. */
int layer_walk(struct ls_model *model, struct ls_ops *ops, int index, enum phase phase,
               const struct ls_micro_batch *batch, const struct ls_gradient *gradient,
               struct ls_error *error);

/* ---- products.c: parameters and products ----------------------------------------------------- */

/* Values of a matrix in the compute type, of a vector in float32 (NULL for NULL). */
const void *model_weight(const struct ls_model *model, const struct ls_param *param);
const float *model_vector(const struct ls_model *model, const struct ls_param *param);
size_t model_act_bytes(const struct ls_model *model);
void *model_take(const struct ls_model *model, struct ls_arena *arena, int64_t rows, int64_t width);
/* The products of a linear layer, W [out, weight->cols] = [out, in], for ls_gemm_run.
 * y [rows, out] = x [rows, in] W^T + bias. */
struct ls_gemm model_linear(const struct ls_model *model, int64_t rows, int64_t out, int64_t tiles,
                            const struct ls_param *weight, const struct ls_param *bias,
                            const void *x, void *y);
/* dx [rows, in] = dy [rows, out] W. */
struct ls_gemm model_input_gradient(const struct ls_model *model, int64_t rows, int64_t out,
                                    int64_t tiles, const struct ls_param *weight, const void *dy,
                                    void *dx);
/* d_w [out, in] = dy^T x over all of sum's rows, in its order, onto what it says. */
struct ls_gemm model_weight_gradient(const struct ls_model *model, const struct ls_token_sum *sum,
                                     int64_t out, const struct ls_param *weight, const void *dy,
                                     const void *x, float *d_w);
/* What the operations that follow on this model's groups move, for error texts and records. */
void model_label(const struct ls_model *model, const struct ls_param *param);

/* ---- sections.c: contractions over rows of a stack ------------------------------------------- */

/* Matrices first .. end - 1 of a step's stack. Where ranks share a key/value head, all of them have
 * its gradient whole; each brings its own tiles of the contraction over the head's rows, so that
 * every row counts once. */
struct sections {
    int count;
    bool shared;   /* some rows are those of other ranks */
    int64_t own;   /* rows of all sections */
    int64_t begin; /* of the first matrix, in the stack's rows */
    int64_t first[LS_GEMM_SECTIONS_MAX], width[LS_GEMM_SECTIONS_MAX]; /* of the stack's rows */
};
struct sections sections_of(const struct ls_model *model, const struct bound_step *s, int first,
                            int end);
/* Where they lie together, if some are other ranks' and thus between them. */
struct packed {
    void *dy;     /* [M, own] */
    void *weight; /* [own, cols] */
};
struct packed packed_take(const struct ls_model *model, struct ls_arena *arena,
                          const struct sections *sections, int64_t cols);
/* gemm: model_input_gradient's over the whole stack's dy and the first matrix's weight, behind
 * which the others' lie. It becomes that over the sections. */
void sections_contract(const struct layer_run *run, const struct sections *sections,
                       const struct packed *packed, struct ls_gemm *gemm);

/* ---- lora.c: adapters of a linear step; without such they do nothing ------------------------- */

/* y += theirs. x, y: all rows of x; of y as the step has it (all, or the stream's). */
int lora_forward(const struct layer_run *run, const struct bound_step *s, const void *x, void *y,
                 struct ls_arena *work);
/* dx += theirs, of all rows of dy. */
int lora_input(const struct layer_run *run, const struct bound_step *s, const void *dy, void *dx,
               struct ls_arena *work);
/* Their gradients, of all rows of dy and x. */
int lora_weight(const struct layer_run *run, const struct bound_step *s, const void *dy,
                const void *x);
/* What these take of a step's buffers, and what the input half keeps for the weight half. */
void lora_work(const struct ls_model *model, const struct bound_step *s, enum phase phase,
               struct ls_arena *arena);
size_t lora_kept(const struct ls_model *model, const struct bound_step *s);

/* Buffers in which tensor-parallel ranks exchange rows [N or M, C]; none with one rank. */
struct exchange {
    struct ls_tp_scratch scratch;
    void *gathered; /* [M, C] rows of all ranks, under sequence parallel */
};
/* Those of a product whose rows are gathered first, into a place of its own or into the caller's,
 * and of one whose sums are scattered. */
struct exchange exchange_gather(const struct ls_model *model, struct ls_arena *arena);
struct exchange exchange_staging(const struct ls_model *model, struct ls_arena *arena);
struct exchange exchange_reduce(const struct ls_model *model, struct ls_arena *arena);
/* All rows of own [N, C]: itself, or gathered. */
int model_gather(const struct ls_model *model, const struct rows *rows, const void *own,
                 void *gathered, const void **all, struct ls_error *error);
/* Dropout of the rows of the stream for (step, layer, place); copies nothing when the model has
 * none: returns x then, storage otherwise. */
const void *model_dropout(const struct layer_run *run, const char *place, const void *x,
                          void *storage);
bool model_drops(const struct ls_model *model, const char *place);

/* ---- generation ------------------------------------------------------------------------------ */

/* A decoder's step. */
struct decoding_run {
    int64_t row, count, sequence; /* rows [row, row + count) of the step */
    int64_t position;             /* of the first */
    bool ends;
};
struct decoding {
    struct ls_decoder_size size;
    struct decoding_run *runs; /* [sequences], of which there are run_count */
    int run_count;
    int64_t ending; /* runs whose logits are asked for */
    struct text_blocks blocks;
    int32_t *lengths; /* [runs]: tokens of each text, with those of the step */
    int32_t *tables;  /* [runs, blocks.width]: where they are */
    char **cache; /* [layers + 2] of each layer held: keys, then values [blocks, BLOCK, G*D] act */
    char *rows;   /* [sequences, C] act: the head's input of runs that end */
    char *logits; /* [tp, ending, V / tp] act */
};

#endif
