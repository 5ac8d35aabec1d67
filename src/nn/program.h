/* Private to nn: a layer as a program, a short table of typed steps over named values.
 *
 *     norm x -> a1;  linear a1 -> qkv;  attention qkv -> o;  linear o -> y1;  ...
 *
 * A family (family_*.c) is three such tables, and what a configuration asks it. Everything that
 * must know what a layer does reads them: the run and its two backward halves (layer_run.c), what
 * is kept, recomputed and where it lies (layer_plan.c), the parameters (params.c), operations, and
 * generation (decoder.c). A kind of step is one file, step_<kind>.c, which ends with its struct
 * step_kind.
 *
 * To add a kind: its file, its name at the end of this page, and a family's table that uses it;
 * test/nn/test_steps.c and test_steps_decode.c then take it alone, and hold it to what is said
 * here. To add a family: its file, and its word in LS_FAMILIES (lockstep/nn.h); what Llama's
 * descendants share is in family_llama.h.
 *
 * Sizes: M is all rows of a micro-batch on this context-parallel rank, N the rows of the residual
 * stream: M, or this rank's share of them under sequence parallel. */
#ifndef NN_PROGRAM_H
#define NN_PROGRAM_H

#include <lockstep/nn.h>

enum { VALUES_MAX = 20, STEPS_MAX = 13 };

/* ---- what a family says ---------------------------------------------------------------------- */

/* Sizes by name: of the whole model, or of this tensor-parallel rank's part (size_whole,
 * size_held). */
enum size {
    SIZE_ONE,
    SIZE_CHANNELS,
    SIZE_PAIR, /* two */
    SIZE_HEADS,
    SIZE_QK_HEADS, /* heads and kv_heads */
    SIZE_HEAD,     /* head_dim */
    SIZE_QUERY,    /* heads x head_dim */
    SIZE_KV,       /* kv_heads x head_dim */
    SIZE_QKV,      /* query and two times kv */
    SIZE_FFN,
    SIZE_UP, /* what the activation reads: ffn, or two times with a gate */
    SIZE_VOCABULARY,
    SIZE_CONTEXT,
    SIZE_RANK /* of adapters */
};

enum value_rows { ROWS_STREAM, ROWS_ALL };
/* Which policy gives a value up between the forward and the backward, and makes it again there:
 * with FULL all of them, with SELECTIVE those that cost little. */
enum value_again { AGAIN_FULL, AGAIN_SELECTIVE };
/* A value [rows, size] in the compute type, or in float32. Value 0 of a layer is its input, which
 * the layer below holds; the last one is its output, if it has one. */
struct value {
    const char *name;
    enum value_rows rows;
    enum size size;
    enum value_again again;
    bool f32;
};

/* How tensor parallel cuts a parameter. */
enum tp_cut {
    CUT_NONE,
    CUT_ROWS,
    CUT_COLUMNS,
    CUT_KV /* rows, or a vector's elements, by heads */
};
enum start {
    START_NORMAL,
    START_RESIDUAL, /* normal, / sqrt(2 L) */
    START_ONE,
    START_ZERO,
    START_ADAPTER /* normal, 1 / sqrt(3 columns) */
};
enum when { WHEN_ALWAYS, WHEN_BIAS /* where the model has biases */ };
/* A parameter. Those of one role follow each other and are stacked; steps know the role. A matrix
 * is [rows, columns]; a vector has SIZE_ONE rows. */
struct parameter {
    const char *role, *name; /* name: without the layer's prefix */
    enum size rows, columns;
    enum tp_cut cut;
    enum start start;
    enum when when;
    /* The name in Hugging Face's files, without the layer's prefix. Those that name one tensor
     * are its rows, in the order of the table. NULL: the files have none. */
    const char *elsewhere;
};

/* Rows of a table of parameters. */
#define PARAMETER_MATRIX(role, name, rows, columns, cut, elsewhere)                                \
    {                                                                                              \
        role, name, rows, columns, cut, START_NORMAL, WHEN_ALWAYS, elsewhere                       \
    }
/* The weight of a norm over that many values, which begins at one. */
#define PARAMETER_NORM(role, name, size, cut, elsewhere)                                           \
    {                                                                                              \
        role, name, SIZE_ONE, size, cut, START_ONE, WHEN_ALWAYS, elsewhere                         \
    }
#define PARAMETER_BIAS(role, name, size, cut, elsewhere)                                           \
    {                                                                                              \
        role, name, SIZE_ONE, size, cut, START_ZERO, WHEN_BIAS, elsewhere                          \
    }

/* A step: a kind with its values and parameters. */
struct step {
    const struct step_kind *kind;
    int in[2], out[4];         /* values, as the kind says; unused: 0 */
    const char *weight, *bias; /* roles; NULL: none */
    const char *dropout;       /* the place of a dropout of the result; NULL: none */
};

/* A layer of a family. Tables end with a NULL name, kind or role. */
struct program {
    const char *prefix;           /* of parameters' names: "h.%ld." or "" */
    const char *elsewhere_prefix; /* of their names in Hugging Face's files */
    bool elsewhere_transposed;    /* matrices are [columns, rows] there */
    struct value values[VALUES_MAX];
    struct step steps[STEPS_MAX];
    const struct parameter *parameters;
};
struct family {
    struct ls_family about;
    const char *keys; /* of the configuration's group `model` that only families read which name
                       * them, with | between; NULL: none */
    const struct program *embedding, *block, *head;
};
#define FAMILY_DECLARED(arch, name) extern const struct family family_##name;
LS_FAMILIES(FAMILY_DECLARED)
/* The program of layer 0 .. layers + 1. */
const struct program *program_of(const struct ls_model_config *config, int64_t layer);
int program_steps(const struct program *program);
int program_values(const struct program *program);
/* Name of layer's parameter; a tied head's table has the embedding's. */
void parameter_name(const struct ls_model_config *config, int layer,
                    const struct parameter *parameter, char text[LS_PARAM_NAME_MAX + 1]);
/* The parameter of that name that the part holds, NULL if it has none. */
const struct ls_param *parameter_find(const struct ls_params *params,
                                      const struct ls_model_config *config, int layer,
                                      const struct parameter *parameter);
bool parameter_is_table(const struct parameter *parameter); /* [vocabulary, channels] */
bool parameter_present(const struct parameter *parameter, const struct ls_model_config *config);
/* Whether it is of an adapter, and whether it is not trained. */
bool parameter_adapts(const struct parameter *parameter);
bool parameter_frozen(const struct ls_model_config *config, int layer,
                      const struct parameter *parameter);
/* Matrices of a block that share the A of an adapter: one, or those that are one tensor in Hugging
 * Face's files. These have no model with shared key/value heads: there each has its own, so that
 * ranks which share a head bring their tiles of one matrix at a time. */
struct adapted {
    const struct parameter *matrices[3];
    int count, place; /* place: of the first among the block's present parameters */
    int end;          /* where to look for the next */
};
/* From the block's entry `from` on; false if there are no more with adapters. */
bool adapted_next(const struct ls_model_config *config, const struct program *block, int from,
                  struct adapted *out);
/* Without the layer's prefix: of the B of matrix i, -1: of their A. "attn.q.lora_b". */
void adapter_name(const struct adapted *pair, int i, char name[LS_PARAM_NAME_MAX + 1]);
int64_t size_whole(const struct ls_model_config *config, enum size size);
/* Tiles that one of tp ranks has of a contraction that tp cuts (S2). */
static inline int64_t tiles_held(const struct ls_numerics *numerics, int64_t tp)
{
    return numerics->fast ? 1 : numerics->tp_tiles / tp;
}

/* ---- a step of one layer --------------------------------------------------------------------- */

/* The walks over a layer's steps: the forward; the forward again, of what was not kept; the input
 * half and the weight half of the backward, from the last step to the first. */
enum phase { PHASE_FORWARD, PHASE_AGAIN, PHASE_INPUT, PHASE_WEIGHT, PHASES };

/* Where a buffer lies, and since when until when:
 *   KEPT    of the layer and the slot: from the forward to the end of the backward
 *   HELD    of the layer and the slot: from the input half to a weight half that comes later
 *   SEGMENT of the layer's place in its segment: from when it is made again to its last use
 *   WORK    while one layer is under work
 *   PASS    one of two, in turn by layer: a stream that is not kept */
enum room { ROOM_NONE, ROOM_KEPT, ROOM_HELD, ROOM_SEGMENT, ROOM_WORK, ROOM_PASS };
struct place {
    enum room room;
    size_t offset, bytes;
};

/* Whose gradient: of a value (its index), or what comes from above and what goes below. */
enum { GRADIENT_NONE = -1, GRADIENT_ABOVE = -2, GRADIENT_BELOW = -3 };

struct bound_step {
    const struct step *step;
    const struct program *program;        /* that it is a step of */
    const struct ls_param *weight, *bias; /* the first of a stack */
    int stacked;                          /* matrices of weight's stack */
    bool trains, adapted;      /* some parameter takes a gradient; the stack has adapters */
    int dy;                    /* the gradient of out[0] */
    int residual;              /* what has already come to the value that dx is the gradient of */
    int dx;                    /* the gradient that the input half makes */
    bool joins;                /* the residual is added to it behind the step */
    bool again;                /* it runs again in front of the backward */
    bool restart;              /* and then from out[3], which is kept */
    struct place own;          /* what its input half keeps for its weight half */
    struct place adapters;     /* and beside it what its adapters keep */
    struct place work[PHASES]; /* what it works in */
};

/* When what lies in a place lives: [from, to] on the layer's clock (layer_plan.c). */
struct life {
    const struct place *place;
    int from, to;
};
/* LAYER_ZONE bytes stand behind every place of a model that is checked. */
enum { LIVES_MAX = 3 * VALUES_MAX + (PHASES + 2) * STEPS_MAX, LAYER_ZONE = 64 };
struct walk_check {
    int time, ended; /* now; up to when what ended is poisoned */
};

struct layer {
    const struct program *program;
    int index; /* of the model's layers */
    int step_count, value_count;
    struct bound_step steps[STEPS_MAX];
    struct place value[VALUES_MAX];    /* as the forward makes it */
    struct place backward[VALUES_MAX]; /* as the backward reads it: the same, or made again */
    struct place gradient[VALUES_MAX];
    int segment_first; /* of its segment; index where it is alone */
    bool segment_last, output_kept, recomputed;
    bool input_cut;                /* it keeps this rank's share of its input's rows */
    size_t kept_bytes, held_bytes; /* of a slot */
    size_t segment_bytes;          /* of a place in the segment */
    size_t work_bytes[2];          /* of the forward, of the rest */
    bool away;                     /* what it keeps lies in a tier between its walks */
    char **kept, **held;           /* [slots]; kept NULL: in the tier */
    struct life *lives;            /* [LIVES_MAX], of which there are life_count; NULL: unchecked */
    int life_count;
};

/* One walk over a layer's steps. */
struct layer_run {
    struct ls_model *model;
    struct ls_ops *ops;
    const struct layer *layer;
    enum phase phase;
    const struct ls_micro_batch *batch;
    const struct ls_gradient *gradient; /* of the weight half, or of the head's forward */
    const struct rows *rows;
    struct ls_request *gathering; /* what weight_begin began */
    void *value[VALUES_MAX], *delta[VALUES_MAX];
    struct walk_check *check;
    const void *above; /* the gradient of the output */
    void *below;       /* of the input */
    struct ls_error *error;
};

/* Where a place of the layer is in this walk. */
void *run_place(const struct layer_run *run, const struct place *place);
/* What a step's functions read: its values, gradients, parameters and buffers in this walk. */
const void *run_in(const struct layer_run *run, const struct bound_step *s, int i);
void *run_out(const struct layer_run *run, const struct bound_step *s, int i);
const void *run_dy(const struct layer_run *run, const struct bound_step *s);
const void *run_residual(const struct layer_run *run, const struct bound_step *s); /* may be NULL */
void *run_dx(const struct layer_run *run, const struct bound_step *s);
void *run_own(const struct layer_run *run, const struct bound_step *s);      /* NULL: has none */
void *run_adapters(const struct layer_run *run, const struct bound_step *s); /* the same */
/* The step's work buffers are taken from this, in the order of its kind's work(). */
struct ls_arena run_work(const struct layer_run *run, const struct bound_step *s);
/* Where the gradient of a parameter goes, NULL if it takes none. */
float *run_gradient(const struct layer_run *run, const struct ls_param *param);

/* ---- kinds ----------------------------------------------------------------------------------- */

/* Values by which a kind says what a half of the backward reads of the forward. */
enum {
    READS_IN0 = 1,
    READS_IN1 = 2,
    READS_OUT0 = 4,
    READS_OUT1 = 8,
    READS_OUT2 = 16,
    READS_OUT3 = 32
};

/* How gradients go through a step. */
enum flow {
    FLOW_NONE,     /* it has no input that a gradient goes to */
    FLOW_NEW,      /* in[0]'s gradient is a buffer of its own; what has come to in[0] otherwise is
                    * added behind the step */
    FLOW_IN_PLACE, /* in[0]'s gradient takes the place of out[0]'s */
    FLOW_THROUGH,  /* the inputs' gradients are out[0]'s */
    FLOW_JOIN,   /* a norm: what has come to out[3], the argument, is added; all inputs get that */
    FLOW_FORWARD /* in[0]'s gradient is made by the forward, and kept */
};

struct step_kind {
    const char *name;
    const char *keys; /* of the configuration's group `model` that nothing else reads, with |
                       * between; NULL: none */
    int ins, outs;    /* of a step's arrays; a second in of 0 is none */
    unsigned input_reads, weight_reads; /* READS_... */
    enum flow flow;
    bool restarts; /* out[3] alone, where it is kept, gives the rest again */

    /* Makes all outs, from the ins (or from out[3]: s->restart) and the parameters alone. */
    int (*forward)(const struct layer_run *run, const struct bound_step *s);
    /* Makes run_dx() and run_own(), of run_dy(), run_residual() and what input_reads says. NULL:
     * there is nothing to be done. */
    int (*input)(const struct layer_run *run, const struct bound_step *s);
    /* Makes the parameters' gradients, of run_own() where the step keeps some, run_dy() otherwise,
     * and what weight_reads says. As run->gradient->onto says. NULL: it has none. Called where some
     * parameter takes a gradient (s->trains). */
    int (*weight)(const struct layer_run *run, const struct bound_step *s);
    /* Begins to gather what weight() reads, while the step before it is under work; weight() waits
     * for it. */
    int (*weight_begin)(const struct layer_run *run, const struct bound_step *s,
                        struct ls_request *request);
    /* The weight halves of all the layer's steps of this kind, after those of the others. */
    int (*weights)(const struct layer_run *run, const struct bound_step *const *steps, int count);
    /* Tokens with caches; NULL: forward does it, at the rows' positions. Its bits are those of
     * the forward over the whole sequence, however tokens are cut in steps. */
    int (*decode)(const struct layer_run *run, const struct bound_step *s);

    /* Takes what the step works in during a walk from an arena, which measures. NULL: nothing. */
    void (*work)(const struct ls_model *model, const struct bound_step *s, enum phase phase,
                 struct ls_arena *arena);
    /* Bytes that the input half keeps for the weight half, which only comes where s->trains. NULL:
     * none. */
    size_t (*own)(const struct ls_model *model, const struct bound_step *s);
    /* Takes what a model with such a step needs for good. NULL: nothing. */
    void (*constants)(struct ls_model *model, struct ls_arena *arena, const struct bound_step *s);
    /* Operations of one token, forward and backward, of the whole model: 6 for each element of the
     * weights of the step's role, which rows are multiplied by, and these. NULL: none. */
    bool multiplies;
    double (*flops)(const struct ls_model_config *config, int64_t layer, int64_t tokens);
};
extern const struct step_kind step_embedding, step_scale, step_layernorm, step_rmsnorm,
    step_rmsnorm_plus_one, step_headnorm, step_headnorm_plus_one, step_widenorm, step_column,
    step_row, step_rope, step_attention, step_activation, step_add, step_head;

#endif
